//! Values on their way into a column: MySQL's assignment conversions with strict mode's errors, and the conversions of
//! constants into index keys.

mod characters;
pub mod index_key;
#[cfg(test)]
mod tests;

use apus_types::{
    Column, ColumnType, ErrorCode, TableSchema, Value,
    row::int_fits,
    time::{pack_date, pack_datetime, unpack_datetime},
};
use std::borrow::Cow;

use self::characters::{beginning_of, into_text, length_in, limit_chars, text_for, trim_end, valid_text};
use super::{Env, json};
use crate::{
    errors::{self, Result},
    value::{
        bits,
        datum::{Datum, Number, text_to_f64},
        decimal, enum_set, float_digits,
        temporal::{self, Dates},
        zone::{Moment, Zone},
    },
    wire::SqlError,
};

/// How values are assigned.
#[derive(Clone, Copy, Debug)]
pub struct Assign<'e> {
    pub row: usize,
    /// Name of the table, for errors.
    pub table: &'e str,
    pub strict: bool,
    pub zone: Zone,
    /// The session, whose day a time is of where a date is wanted, and who says which dates there are. Without one all are.
    pub env: Option<&'e Env>,
    /// What strict mode refuses is warned of and stored as well as it can be ([`assign_or_warn`]).
    pub warns: bool,
}

impl<'e> Assign<'e> {
    /// By the session: its zone and its day.
    pub fn of(env: &'e Env, table: &'e str, row: usize, strict: bool) -> Assign<'e> {
        Assign { row, table, strict, zone: env.zone(), env: Some(env), warns: false }
    }
    /// A date of zeros is none.
    fn no_zero_date(&self) -> bool {
        self.env.is_some_and(|env| env.variables.no_zero_date)
    }
    fn cuts_fractions(&self) -> bool {
        self.env.is_some_and(|env| env.variables.cuts_fractions)
    }
    /// Whether a date of a column goes into another one as it is: nothing is asked of dates that are written.
    fn takes_all_dates(&self) -> bool {
        self.env.is_none_or(|env| !env.variables.no_zero_date && !env.variables.no_zero_in_date)
    }
    fn dates_of(&self, ty: ColumnType) -> Dates {
        match (ty, self.env) {
            (ColumnType::Timestamp { .. }, _) => Dates::REAL,
            (_, None) => Dates::WRITTEN,
            (_, Some(env)) => env.variables.dates_of_columns(),
        }
    }
}

/// The value as the column stores it; TIMESTAMP becomes microseconds in an `Int`. Without strict mode it is cut to fit.
pub fn assign<'a>(column: &Column, value: Datum<'a>, a: Assign<'_>) -> Result<Datum<'a>> {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    // All the digits there are, also in a text.
    let value = match value {
        Datum::Fine { unscaled, scale, .. } => Datum::Decimal { unscaled, scale },
        other => other,
    };
    let range = || errors::out_of_range(&column.name, a.row);
    let value = match (value, column.ty) {
        (document @ Datum::Json(_), ColumnType::Json) => return Ok(document),
        (document @ Datum::Json(_), ty) => json::assigned(document, ty, a)?,
        (other, ColumnType::Json) => return json::document(&column.name, &other, a),
        (other, _) => other,
    };
    match column.ty {
        // Seen to above.
        ColumnType::Json => Ok(value),
        ColumnType::Int { bits, unsigned } => {
            let (n, fault) = integer(column, &value, unsigned, a);
            if !int_fits(bits, unsigned, n) {
                if a.strict {
                    return Err(range());
                }
            } else if let Some(fault) = fault.filter(|_| a.strict) {
                return Err(fault);
            }
            let (low, high) =
                if unsigned { (0, (1i128 << bits) - 1) } else { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) };
            let n = n.clamp(low, high);
            Ok(if unsigned { Datum::UInt(n as u64) } else { Datum::Int(n as i64) })
        }
        ColumnType::Year => year(column, &value, a),
        ColumnType::Bit { length } => match bits::assigned(&value, length) {
            Some(n) => Ok(Datum::UInt(n)),
            None if a.strict => Err(errors::too_long(&column.name, a.row)),
            None => Ok(Datum::UInt(u64::MAX >> (64 - length))),
        },
        ColumnType::Label { is_set, collation, labels: list, .. } => {
            let (n, is_whole) = enum_set::number(list, is_set, collation, &value);
            if a.strict && !is_whole {
                return Err(errors::truncated(&column.name, a.row));
            }
            Ok(Datum::UInt(n))
        }
        ColumnType::Decimal { precision, scale, unsigned } => {
            let limit = decimal::power_of_ten(precision).map_or(i128::MAX, |p| p - 1);
            let n = match &value {
                Datum::Text(t) | Datum::Bytes(t) => match decimal::parse_prefix(t.trim_ascii()) {
                    Some((n, s, rest)) if rest.is_empty() || !a.strict => decimal::rescale(n, s, scale),
                    _ => {
                        let (x, whole) = text_to_f64(t);
                        if a.strict && !whole {
                            return Err(errors::incorrect_value("decimal", &value.as_string(), &column.name, a.row));
                        }
                        decimal::from_f64(x, scale)
                    }
                },
                _ => match value.number().unwrap_or(Number::Int(0)) {
                    Number::Double(x) => decimal::from_f64(x, scale),
                    n => n.to_decimal().and_then(|(n, s)| decimal::rescale(n, s, scale)),
                },
            };
            match n {
                Some(n) if n.abs() <= limit && !(unsigned && n < 0) => Ok(Datum::Decimal { unscaled: n, scale }),
                _ if a.strict => Err(range()),
                n => Ok(Datum::Decimal {
                    unscaled: n.unwrap_or(limit).clamp(if unsigned { 0 } else { -limit }, limit),
                    scale,
                }),
            }
        }
        ColumnType::Float | ColumnType::Double => {
            let x = double(column, &value, a)?;
            match float_digits::fitted(column, x) {
                (_, false) if a.strict => Err(range()),
                (fitted, _) => Ok(Datum::Double(fitted)),
            }
        }
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => {
            let text = valid_text(column, text_for(column, value, a)?, a)?;
            let (text, cut) = limit_chars(text, usize::from(length));
            if a.strict && cut {
                return Err(errors::too_long(&column.name, a.row));
            }
            // CHAR loses its trailing spaces, as it is read back without them.
            Ok(Datum::Text(if matches!(column.ty, ColumnType::Char { .. }) { trim_end(text) } else { text }))
        }
        ColumnType::Text { length, .. } => {
            let text = valid_text(column, text_for(column, value, a)?, a)?;
            if length_in(column, &text) <= length as usize {
                return Ok(Datum::Text(text));
            }
            if a.strict {
                return Err(errors::too_long(&column.name, a.row));
            }
            Ok(Datum::Text(Cow::Owned(beginning_of(column, &text, length as usize).to_vec())))
        }
        ColumnType::Blob { length } => {
            let bytes = into_text(value);
            if bytes.len() <= length as usize {
                return Ok(Datum::Bytes(bytes));
            }
            if a.strict {
                return Err(errors::too_long(&column.name, a.row));
            }
            Ok(Datum::Bytes(Cow::Owned(bytes[..length as usize].to_vec())))
        }
        ColumnType::VarBinary { length } | ColumnType::Binary { length } => {
            let mut bytes = into_text(value);
            let length = usize::from(length);
            if bytes.len() > length {
                if a.strict {
                    return Err(errors::too_long(&column.name, a.row));
                }
                bytes.to_mut().truncate(length);
            }
            if matches!(column.ty, ColumnType::Binary { .. }) && bytes.len() < length {
                bytes.to_mut().resize(length, 0);
            }
            Ok(Datum::Bytes(bytes))
        }
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => moment(column, &value, a),
        ColumnType::Time { decimals } => {
            let bad = || errors::incorrect_value("time", &value.as_string(), &column.name, a.row);
            let t = match &value {
                Datum::Text(t) | Datum::Bytes(t) if t.is_empty() => 0,
                Datum::Time(..) | Datum::DateTime(..) | Datum::Date(_) => value.time(a.zone).unwrap_or(0),
                other if !a.strict && is_beyond_times(other) => {
                    let sign = if other.number().is_some_and(|n| n.to_f64() < 0.0) { -1 } else { 1 };
                    sign * temporal::TIME_MAX
                }
                other => match temporal::read_time(&other.as_text(), a.zone) {
                    Some(t) if !a.strict || !t.cut && !t.beyond => {
                        if t.of_date {
                            remark(column, "time", &value.as_string(), a);
                        }
                        t.micros
                    }
                    _ => return Err(bad()),
                },
            };
            Ok(Datum::Time(temporal::fit_micros(t, decimals, a.cuts_fractions()), decimals))
        }
    }
}

/// What a NOT NULL column gets without strict mode.
pub fn implicit_default(ty: ColumnType) -> Datum<'static> {
    use ColumnType as T;
    match ty {
        T::Date => Datum::Date(0),
        T::DateTime { .. } | T::Timestamp { .. } => Datum::DateTime(0, 0),
        T::Time { .. } => Datum::Time(0, 0),
        T::Label { is_set, .. } => Datum::UInt(u64::from(!is_set)),
        T::Json => json::datum(&crate::value::json::Json::Null),
        _ if ty.fixed_bytes().is_none() => Datum::text(""),
        _ => Datum::Int(0),
    }
}

/// What is said of a value that strict mode refuses (`refused`) when it is stored as well as it can be.
fn warning_of(refused: SqlError, column: &Column, value: &Datum<'_>, a: Assign<'_>) -> SqlError {
    let is_zero = || value.civil(a.zone) == Some(Default::default()) || value.number().is_some_and(Number::is_zero);
    match (refused.errno, column.ty) {
        (1406, ColumnType::Bit { .. }) if a.strict => refused,
        (1406, ColumnType::Bit { .. }) => errors::out_of_range(&column.name, a.row),
        (1406, _) => errors::truncated(&column.name, a.row),
        (1292, ColumnType::Time { .. }) => match temporal::read_time(&value.as_text(), a.zone) {
            Some(t) if !t.beyond => errors::truncated(&column.name, a.row),
            None if !matches!(value, Datum::Text(_) | Datum::Bytes(_)) => errors::out_of_range(&column.name, a.row),
            None if is_beyond_dates(value) => errors::out_of_range(&column.name, a.row),
            None => errors::truncated(&column.name, a.row),
            Some(_) => errors::out_of_range(&column.name, a.row),
        },
        (1292, ColumnType::Timestamp { .. }) if value.civil(a.zone).is_some_and(|c| temporal::is_valid(&c)) => {
            match value.civil(a.zone).map(|c| a.zone.moment(c)) {
                Some(Moment::Never(_)) => errors::invalid_timestamp(&column.name, a.row),
                _ => errors::out_of_range(&column.name, a.row),
            }
        }
        (1292, _) if reads_as_zero(value, a.zone) && is_zero() => errors::out_of_range(&column.name, a.row),
        (1292, ty) if is_no_date_here(value, a.dates_of(ty), a.zone) => errors::out_of_range(&column.name, a.row),
        (1292, _) if value.is_number() && is_beyond_dates(value) => errors::out_of_range(&column.name, a.row),
        (1292, _) => errors::truncated(&column.name, a.row),
        _ => refused,
    }
}

/// Whether this is the number 0, or a text that says a date of zeros.
fn reads_as_zero(value: &Datum<'_>, zone: Zone) -> bool {
    match value {
        Datum::Text(t) | Datum::Bytes(t) => temporal::parse_datetime(t, zone) == Some(Default::default()),
        _ => true,
    }
}

/// A text or a date that names what other dates may be, and none of these.
fn is_no_date_here(value: &Datum<'_>, dates: Dates, zone: Zone) -> bool {
    !value.is_number() && value.civil(zone).is_some_and(|c| c != Default::default() && !dates.have(&c))
}

/// A number that is no moment by its size, a text of the form of a date that is none.
fn is_beyond_dates(value: &Datum<'_>) -> bool {
    const LAST: f64 = 99_991_231_235_959.0;
    match value {
        Datum::Text(t) | Datum::Bytes(t) => {
            let parts = t.split(|b| !b.is_ascii_digit()).take(3).filter(|part| (1..=4).contains(&part.len())).count();
            let with_offset = t.iter().skip_while(|b| **b != b':').any(|b| matches!(b, b'+' | b'-'));
            parts == 3 && !with_offset
        }
        _ => value.number().is_some_and(|n| n.to_f64() < 0.0 || n.to_f64() > LAST),
    }
}

/// A number that says more than the longest time.
fn is_beyond_times(value: &Datum<'_>) -> bool {
    value.is_number() && value.number().is_some_and(|n| n.to_f64().abs() > 8_385_959.0)
}

/// The value as the column stores it as well as it can; what strict mode would refuse is put to the warnings.
pub fn assign_or_warn<'a>(
    column: &Column,
    value: Datum<'a>,
    a: Assign<'_>,
    warnings: &mut Vec<SqlError>,
) -> Result<Datum<'a>> {
    let a = Assign { warns: true, ..a };
    match assign(column, value.clone(), Assign { strict: true, ..a }) {
        Ok(value) => Ok(value),
        Err(e) if e.errno == errors::no_next_second().errno => {
            warnings.extend([e, errors::out_of_range(&column.name, a.row)]);
            assign_leniently(column, value, a)
        }
        Err(e) => {
            warnings.push(warning_of(e, column, &value, a));
            assign_leniently(column, value, a)
        }
    }
}

/// [`assign`] without strict mode; what has no likeness in the column becomes its implicit default.
pub fn assign_leniently<'a>(column: &Column, value: Datum<'a>, a: Assign<'_>) -> Result<Datum<'a>> {
    let a = Assign { strict: false, ..a };
    match column.ty {
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } | ColumnType::Time { .. } => {
            assign(column, value, a).or_else(|_| assign(column, implicit_default(column.ty), a))
        }
        _ => assign(column, value, a),
    }
}

fn moment<'a>(column: &Column, value: &Datum<'_>, a: Assign<'_>) -> Result<Datum<'a>> {
    let kind = if column.ty == ColumnType::Date { "date" } else { "datetime" };
    let bad = || errors::incorrect_value(kind, &value.as_string(), &column.name, a.row);
    let c = match value {
        Datum::Time(t, _) => a.env.map(|env| {
            let t = if column.ty == ColumnType::Date { temporal::fit_micros(*t, 0, a.cuts_fractions()) } else { *t };
            temporal::of_today(env.local_now(), t)
        }),
        Datum::Text(t) | Datum::Bytes(t) => {
            let read = temporal::read_datetime(t, a.zone, Dates::WRITTEN);
            read.filter(|(_, cut)| !cut || !a.strict).map(|(c, _)| c)
        }
        v if v.number().is_some_and(Number::is_zero) => Some(Default::default()),
        v => v.civil(a.zone),
    };
    let is_alike = matches!(
        (value, column.ty),
        (Datum::Date(_), ColumnType::Date) | (Datum::DateTime(..), ColumnType::DateTime { .. })
    );
    let dates = if is_alike && a.takes_all_dates() { Dates::WRITTEN } else { a.dates_of(column.ty) };
    let c = c.filter(|c| *c == Default::default() || dates.have(c));
    let zero = c == Some(Default::default());
    if c.is_none() || (a.strict && zero && a.no_zero_date()) {
        return Err(bad());
    }
    let c = c.unwrap_or_default();
    let none = || if temporal::is_partial(&c) { bad() } else { errors::no_next_second() };
    let rounded = |decimals| temporal::fit_datetime(pack_datetime(c), decimals, a.cuts_fractions()).ok_or_else(none);
    Ok(match column.ty {
        ColumnType::Date => {
            let (whole, is_time) = (unpack_datetime(rounded(0)?), matches!(value, Datum::Time(..)));
            if !is_time && temporal::time_of_day(&whole) != 0 {
                let whole = Datum::DateTime(pack_datetime(whole), 0);
                let said = if matches!(value, Datum::DateTime(..)) { &whole } else { value };
                remark(column, "date", &said.as_string(), a);
            }
            Datum::Date(pack_date(whole.year, whole.month, whole.day))
        }
        ColumnType::Timestamp { decimals } => {
            let rounded = unpack_datetime(rounded(decimals)?);
            let stored = temporal::civil_to_timestamp(rounded, a.zone);
            let is_refused = a.strict && matches!(stored, Moment::Never(_));
            if !zero && (is_refused || !temporal::TIMESTAMPS.contains(&stored.micros())) {
                return Err(bad());
            }
            Datum::Int(stored.micros())
        }
        ColumnType::DateTime { decimals } => Datum::DateTime(rounded(decimals)?, decimals),
        _ => return Err(bad()),
    })
}

/// Notes that the column has no place for a part of the value.
fn remark(column: &Column, kind: &str, value: &str, a: Assign<'_>) {
    if let Some(env) = a.env {
        env.remark(match a.warns {
            true => errors::truncated(&column.name, a.row),
            false => errors::incorrect_value(kind, value, &column.name, a.row),
        });
    }
}

/// The integer nearest to a value, and what strict mode says of it if it is in range.
fn integer(column: &Column, value: &Datum<'_>, unsigned: bool, a: Assign<'_>) -> (i128, Option<SqlError>) {
    match value {
        Datum::Int(n) => (i128::from(*n), None),
        Datum::UInt(n) => (i128::from(*n), None),
        Datum::Text(t) | Datum::Bytes(t) => {
            let trimmed = t.trim_ascii();
            if let Some((n, scale, [])) = decimal::parse_prefix(trimmed) {
                return (decimal::rescale(n, scale, 0).unwrap_or(i128::MAX), None);
            }
            let (x, whole) = text_to_f64(trimmed);
            let digits = trimmed.strip_prefix(b"-").or_else(|| trimmed.strip_prefix(b"+")).unwrap_or(trimmed);
            let digits = digits.strip_prefix(b".").unwrap_or(digits);
            let begins = digits.first().is_some_and(u8::is_ascii_digit);
            let fault = match (whole, begins) {
                (true, _) => None,
                (false, true) => Some(errors::truncated(&column.name, a.row)),
                _ => Some(errors::incorrect_value("integer", &value.as_string(), &column.name, a.row)),
            };
            (x.round() as i128, fault)
        }
        // Whole seconds, not a whole number: 60 seconds are a minute.
        Datum::Time(t, _) => (Datum::Time(temporal::round_micros(*t, 0), 0).number().map_or(0, Number::to_i128), None),
        // Below zero, however little.
        Datum::Decimal { unscaled, .. } if unsigned && *unscaled < 0 => (-1, None),
        v => (v.number().map_or(0, Number::to_i128), None),
    }
}

fn year<'a>(column: &Column, value: &Datum<'_>, a: Assign<'_>) -> Result<Datum<'a>> {
    let (n, fault) = match value {
        Datum::Date(_) | Datum::DateTime(..) => (value.civil(a.zone).map_or(0, |c| i128::from(c.year)), None),
        Datum::Time(t, _) => {
            let of_today = |env: &Env| i128::from(temporal::of_today(env.local_now(), *t).year);
            (a.env.map_or(0, of_today), None)
        }
        v => integer(column, v, true, a),
    };
    let is_text = matches!(value, Datum::Text(_));
    let full = match n {
        0 if is_text && fault.is_none() && value.as_text().trim_ascii().len() != 4 => 2000,
        1..=69 => n + 2000,
        70..=99 => n + 1900,
        n => n,
    };
    if full != 0 && !(1901..=2155).contains(&full) {
        return if a.strict { Err(errors::out_of_range(&column.name, a.row)) } else { Ok(Datum::UInt(0)) };
    }
    match fault {
        Some(fault) if a.strict => Err(fault),
        _ => Ok(Datum::UInt(full as u64)),
    }
}

fn double(column: &Column, value: &Datum<'_>, a: Assign<'_>) -> Result<f64> {
    if let Datum::Text(t) | Datum::Bytes(t) = value {
        let (x, whole) = text_to_f64(t);
        if a.strict && !whole {
            let kind = if column.ty == ColumnType::Float { "FLOAT" } else { "DOUBLE" };
            return Err(errors::incorrect_value(kind, &value.as_string(), &column.name, a.row));
        }
        return Ok(x);
    }
    Ok(value.number().map_or(0.0, Number::to_f64))
}

/// An assigned value in the form that rows and keys are encoded from.
pub fn stored<'v>(ty: ColumnType, value: &'v Datum<'_>) -> Value<'v> {
    match (value, ty) {
        (Datum::Null, _) => Value::Null,
        (Datum::Int(n), ColumnType::Timestamp { .. }) => Value::Timestamp(*n),
        (Datum::Int(n), _) => Value::Int(*n),
        (Datum::UInt(n), _) => Value::UInt(*n),
        (Datum::Label(n, _), ColumnType::Label { .. }) => Value::UInt(*n),
        (Datum::Bit(n, _), _) => Value::UInt(*n),
        (Datum::Label(_, t), _) => Value::Bytes(t),
        (Datum::Decimal { unscaled, scale }, _) => Value::Decimal { unscaled: *unscaled, scale: *scale },
        (Datum::Fine { unscaled, scale, .. }, _) => Value::Decimal { unscaled: *unscaled, scale: *scale },
        (Datum::Double(x), ColumnType::Float) => Value::Float(*x as f32),
        (Datum::Double(x), _) => Value::Double(*x),
        (Datum::Text(t) | Datum::Bytes(t) | Datum::Json(t), _) => Value::Bytes(t),
        (Datum::Date(d), _) => Value::Date(*d),
        (Datum::DateTime(d, _), _) => Value::DateTime(*d),
        (Datum::Time(t, _), _) => Value::Time(*t),
    }
}

/// The row with another value in a column.
pub fn replace(
    schema: &TableSchema,
    row: &[u8],
    column: u16,
    value: &Datum<'_>,
) -> std::result::Result<Vec<u8>, ErrorCode> {
    let layout = schema.layout();
    let values: Vec<Value<'_>> = (0..schema.columns.len() as u16)
        .map(|c| if c == column { stored(schema.columns[usize::from(c)].ty, value) } else { layout.value(row, c) })
        .collect();
    let mut out = Vec::with_capacity(row.len() + 16);
    layout.encode(&values, &mut out)?;
    Ok(out)
}

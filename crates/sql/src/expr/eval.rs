//! Evaluation.

use std::{borrow::Cow, cmp::Ordering};

use apus_types::{
    collate::{Collation, like},
    time::pack_datetime,
};

use super::{ArithOp, CastType, ColumnRef, Context, Expr, Kind, json, moments};
use crate::{
    errors::{self, Result},
    program::function,
    value::{
        datum::{Datum, Number},
        decimal, temporal,
        zone::Zone,
    },
};

impl Expr {
    #[inline]
    pub fn eval<'a>(&'a self, cx: &Context<'a>) -> Result<Datum<'a>> {
        match self {
            Expr::Column(c) => Ok(column(c, cx)),
            Expr::Const(d) => Ok(d.borrowed()),
            _ => self.eval_node(cx),
        }
    }

    fn eval_node<'a>(&'a self, cx: &Context<'a>) -> Result<Datum<'a>> {
        Ok(match self {
            Expr::Const(d) => d.borrowed(),
            Expr::Param(i) | Expr::Variable(i, _) => cx.params.get(*i).map_or(Datum::Null, Datum::borrowed),
            Expr::Column(c) | Expr::Outer(c) => column(c, cx),
            Expr::Given(i, ..) => cx.given.get(usize::from(*i)).map_or(Datum::Null, Datum::borrowed),
            Expr::NewColumn(c) => match cx.new_row {
                Some((layout, row)) => Datum::of_column(c.ty, layout.value(row, c.slot), cx.env.zone()),
                None => Datum::Null,
            },
            Expr::Aggregate(i, ..) => cx.aggregates.get(*i).map_or(Datum::Null, Datum::borrowed),
            Expr::UserVariable(name, _, true) => cx.env.variable_now(name),
            Expr::UserVariable(name, ..) => cx.env.user_variables.get(name).map_or(Datum::Null, Datum::borrowed),
            Expr::Stored(stored, arguments) => function::eval(stored, arguments, cx)?,
            Expr::SystemVariable { name, global } => cx.env.system_variable(name, *global)?,
            Expr::Negate(e) => {
                let value = e.eval(cx)?;
                json::note_cut(cx, e, &value);
                negate(cx, &value)?
            }
            Expr::Not(e) => truth_value(truth(cx, &e.eval(cx)?).map(|t| !t)),
            Expr::BitNot(e) => bit_operand(cx, e.eval(cx)?).number().map_or(Datum::Null, |n| Datum::UInt(!to_bits(n))),
            Expr::Arith(op, a, b) if op.is_bitwise() => {
                let a = bit_operand(cx, a.eval(cx)?);
                if a.is_null() {
                    return Ok(Datum::Null);
                }
                arith(*op, &a, &bit_operand(cx, b.eval(cx)?))?
            }
            Expr::Arith(op, a, b) => {
                let (x, y) = (a.eval(cx)?, b.eval(cx)?);
                note_operand(cx, a, &x);
                note_operand(cx, b, &y);
                let (a, b) = (x, y);
                let result = arith(*op, &a, &b)?;
                if result.is_null() && !a.is_null() && !b.is_null() && cx.env.variables.division_errors {
                    cx.env.note(errors::division_by_zero());
                }
                result
            }
            Expr::Compare(op, a, b, collation) => {
                truth_value(compare_sides(cx, (a, &a.eval(cx)?), (b, &b.eval(cx)?), *collation).map(|o| op.holds(o)))
            }
            Expr::NullSafeEq(a, b, collation) => {
                let (x, y) = (a.eval(cx)?, b.eval(cx)?);
                Datum::from_bool(match compare_sides(cx, (a, &x), (b, &y), *collation) {
                    Some(o) => o.is_eq(),
                    None => x.is_null() && y.is_null(),
                })
            }
            Expr::And(list) => {
                let mut unknown = false;
                for e in list {
                    match truth(cx, &e.eval(cx)?) {
                        Some(false) => return Ok(Datum::Int(0)),
                        None => unknown = true,
                        Some(true) => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Int(1) }
            }
            Expr::Or(list) => {
                let mut unknown = false;
                for e in list {
                    match truth(cx, &e.eval(cx)?) {
                        Some(true) => return Ok(Datum::Int(1)),
                        None => unknown = true,
                        Some(false) => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Int(0) }
            }
            Expr::Xor(a, b) => truth_value(truth(cx, &a.eval(cx)?).zip(truth(cx, &b.eval(cx)?)).map(|(a, b)| a != b)),
            Expr::IsNull { expr, negated } => Datum::from_bool(expr.eval(cx)?.is_null() != *negated),
            Expr::IsTruth { expr, want, negated } => {
                Datum::from_bool((truth(cx, &expr.eval(cx)?) == Some(*want)) != *negated)
            }
            Expr::In { expr, list, negated, collation } => eval_in(cx, expr, list, *negated, *collation)?,
            Expr::Between { expr, low, high, negated, collation } => {
                let (value, from, to) = (expr.eval(cx)?, low.eval(cx)?, high.eval(cx)?);
                // Texts among which is a number are compared as numbers.
                let are_numbers = value.is_text() && (from.is_number() || to.is_number());
                let against = |e: &Expr, bound: &Datum<'_>| match bound.is_text() && are_numbers {
                    true => number(cx, &value).zip(number(cx, bound)).map(|(a, b)| a.compare(b)),
                    false => compare_sides(cx, (expr, &value), (e, bound), *collation),
                };
                let above = against(low, &from).map(Ordering::is_ge);
                let below = against(high, &to).map(Ordering::is_le);
                let inside = match (above, below) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                truth_value(inside.map(|i| i != *negated))
            }
            Expr::Like { expr, pattern, escape, negated, collation } => {
                let (value, pattern) = (expr.eval(cx)?, pattern.eval(cx)?);
                if value.is_null() || pattern.is_null() {
                    return Ok(Datum::Null);
                }
                let is_bytes = matches!(value, Datum::Bytes(_));
                let collation = if is_bytes { Collation::Binary } else { *collation };
                let found = like(&value.as_text(), &pattern.as_text(), *escape, Some(collation));
                Datum::from_bool(found != *negated)
            }
            Expr::Case { operand, whens, otherwise, collation } => {
                let operand = operand.as_ref().map(|e| e.eval(cx)).transpose()?;
                for (when, then) in whens {
                    let when = when.eval(cx)?;
                    let hit = match &operand {
                        Some(value) => compare(cx, value, &when, *collation).is_some_and(Ordering::is_eq),
                        None => truth(cx, &when) == Some(true),
                    };
                    if hit {
                        return then.eval(cx);
                    }
                }
                match otherwise {
                    Some(e) => e.eval(cx)?,
                    None => Datum::Null,
                }
            }
            Expr::Cast(e, to) => {
                let value = e.eval(cx)?;
                match to {
                    CastType::Json => json::cast_as_json(e, value)?,
                    CastType::AsYear if matches!(value, Datum::Json(_)) => {
                        cast_year(cx, &json::cast(cx, e, &json::of_datum(&value), CastType::Signed)?)
                    }
                    to if matches!(value, Datum::Json(_)) && !matches!(to, CastType::Text(_) | CastType::Bytes(_)) => {
                        match to {
                            CastType::Exact { .. }
                            | CastType::Moment { .. }
                            | CastType::Literal(_)
                            | CastType::Year { .. } => value,
                            to => json::cast(cx, e, &json::of_datum(&value), *to)?,
                        }
                    }
                    CastType::Moment { kind, alone, of_column } => moment_of(cx, value, *kind, (*alone, *of_column))?,
                    CastType::Literal(kind) => literal(cx, value, *kind)?,
                    CastType::Text(_) if !is_utf8(&value) => {
                        cx.env.note(errors::not_utf8(&value.as_text()));
                        Datum::Null
                    }
                    CastType::Text(Some(length)) => cast_text(cx, value, *length),
                    CastType::AsYear => cast_year(cx, &value),
                    CastType::Year { alone: true } => {
                        note_cast(cx, &value, *to);
                        compared_year(cx, value)
                    }
                    CastType::Year { alone: false } => value,
                    CastType::Date | CastType::DateTime(_) | CastType::Time(_) => moments::cast(cx, value, *to),
                    to => {
                        note_cast(cx, &value, *to);
                        note_range(cx, &value, *to);
                        cast(value, *to)?
                    }
                }
            }
            Expr::Call(f, args, collation) => f.call(args, *collation, cx)?,
        })
    }

    /// Whether a row passes this as a condition.
    #[inline]
    pub fn passes(&self, cx: &Context<'_>) -> Result<bool> {
        Ok(truth(cx, &self.eval(cx)?) == Some(true))
    }
}

fn column<'a>(c: &ColumnRef, cx: &Context<'a>) -> Datum<'a> {
    let value = Datum::of_column(c.ty, cx.layout.value(cx.row, c.slot), cx.env.zone());
    match c.ty {
        apus_types::ColumnType::Char { length, .. } if cx.env.variables.pads_chars => padded(value, length),
        _ => value,
    }
}

/// By `PAD_CHAR_TO_FULL_LENGTH`: with its spaces behind it.
#[cold]
fn padded(value: Datum<'_>, length: u16) -> Datum<'_> {
    let Datum::Text(text) = value else { return value };
    let chars = text.iter().filter(|&&b| b & 0xc0 != 0x80).count();
    let mut text = text.into_owned();
    text.resize(text.len() + usize::from(length).saturating_sub(chars), b' ');
    Datum::Text(text.into())
}

/// Warns of a text that is not a number in whole where a number is wanted; an empty one is 0 without a word, as in MySQL.
#[inline]
fn note_cut(cx: &Context<'_>, value: &Datum<'_>) {
    if let Datum::Text(text) | Datum::Bytes(text) = value
        && !crate::value::datum::text_to_f64(text).1
        && !text.trim_ascii().is_empty()
    {
        cx.env.note(errors::truncated_number("DOUBLE", text));
    }
}

/// [`note_cut`], also of a document that is no number.
#[inline]
fn note_operand(cx: &Context<'_>, e: &Expr, value: &Datum<'_>) {
    note_cut(cx, value);
    json::note_cut(cx, e, value);
}

#[inline]
pub(crate) fn number(cx: &Context<'_>, value: &Datum<'_>) -> Option<Number> {
    note_cut(cx, value);
    value.number()
}

/// [`Datum::truth`], which warns of a text that is no number.
#[inline]
pub fn truth(cx: &Context<'_>, value: &Datum<'_>) -> Option<bool> {
    note_cut(cx, value);
    if let Datum::Json(_) = value {
        cx.env.note_once(errors::json_as_truth());
    }
    value.truth()
}

/// [`Datum::compare`], which warns of a text that is no number beside a number.
#[inline]
pub fn compare(cx: &Context<'_>, a: &Datum<'_>, b: &Datum<'_>, collation: Collation) -> Option<Ordering> {
    let is_number = |d: &Datum<'_>| {
        matches!(d, Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. } | Datum::Fine { .. } | Datum::Double(_))
    };
    if is_number(a) {
        note_cut(cx, b);
    } else if is_number(b) {
        note_cut(cx, a);
    } else if is_moment(a) || is_moment(b) {
        return compare_with_moment(cx, a, b, collation);
    }
    a.compare(b, collation)
}

/// [`compare`] of the values of two expressions. Of a TEXT column's value nothing is said beside a number, as in MySQL.
fn compare_sides(
    cx: &Context<'_>,
    (a, x): (&Expr, &Datum<'_>),
    (b, y): (&Expr, &Datum<'_>),
    collation: Collation,
) -> Option<Ordering> {
    let is_text = |e: &Expr| matches!(e.column_type(), Some(apus_types::ColumnType::Text { .. }));
    if is_text(a) && y.is_number() || is_text(b) && x.is_number() {
        return x.compare(y, collation);
    }
    compare(cx, x, y, collation)
}

fn is_moment(d: &Datum<'_>) -> bool {
    matches!(d, Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..))
}

/// A text beside a date is one, or is warned of.
fn compare_with_moment(cx: &Context<'_>, a: &Datum<'_>, b: &Datum<'_>, collation: Collation) -> Option<Ordering> {
    let (moment, text, is_first) = match (a, b) {
        (m, Datum::Text(t) | Datum::Bytes(t)) => (m, t, true),
        (Datum::Text(t) | Datum::Bytes(t), m) => (m, t, false),
        // A time beside a date is one of today.
        (Datum::Time(..), Datum::Date(_) | Datum::DateTime(..))
        | (Datum::Date(_) | Datum::DateTime(..), Datum::Time(..)) => {
            let packed = |d| moments::moment(cx, d, moments::Wanted::Parts).map(pack_datetime);
            return Some(packed(a)?.cmp(&packed(b)?));
        }
        _ => return a.compare(b, collation),
    };
    if !matches!(moment, Datum::Time(..)) {
        let kind = if matches!(moment, Datum::Date(_)) { "date" } else { "datetime" };
        let read = temporal::read_datetime(text, cx.env.zone(), cx.env.variables.dates_of_columns());
        if read.is_none_or(|(_, cut)| cut) {
            cx.env.note_once(errors::truncated_value(kind, text));
        }
        // What is no date is below every date.
        let (held, said) = (moment.civil(cx.env.zone()).map(pack_datetime), read.map(|(c, _)| pack_datetime(c)));
        return Some(if is_first { held.cmp(&said) } else { said.cmp(&held) });
    }
    // A constant beside a column has become a time before; others are compared as texts.
    match is_first {
        true => Some(collation.compare(&moment.as_text(), text)),
        false => Some(collation.compare(text, &moment.as_text())),
    }
}

/// Warns of a text of which a cast to a number keeps a part only.
pub(crate) fn note_cast(cx: &Context<'_>, value: &Datum<'_>, to: CastType) {
    let (Datum::Text(text) | Datum::Bytes(text)) = value else { return };
    let trimmed = text.trim_ascii();
    let digits = trimmed.strip_prefix(b"-").or_else(|| trimmed.strip_prefix(b"+")).unwrap_or(trimmed);
    let (kind, whole) = match to {
        CastType::Signed | CastType::Unsigned => {
            ("INTEGER", !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        }
        CastType::Decimal { .. } => ("DECIMAL", crate::value::datum::text_to_f64(text).1),
        CastType::Double | CastType::Float => ("DOUBLE", crate::value::datum::text_to_f64(text).1),
        CastType::Year { .. } if !trimmed.is_empty() && !digits.first().is_some_and(u8::is_ascii_digit) => {
            return cx.env.note_once(errors::truncated_number("DOUBLE", text));
        }
        // A constant is converted once in MySQL.
        CastType::Exact { decimal }
            if !crate::value::datum::text_to_f64(text).1 && (decimal || !trimmed.is_empty()) =>
        {
            let kind = if trimmed.is_empty() { "DECIMAL" } else { "DOUBLE" };
            return cx.env.note_once(errors::truncated_number(kind, text));
        }
        _ => return,
    };
    if !whole {
        cx.env.note(errors::truncated_number(kind, text));
    }
}

/// Warns of what a cast to DECIMAL or BINARY cuts to fit.
fn note_range(cx: &Context<'_>, value: &Datum<'_>, to: CastType) {
    match to {
        CastType::Decimal { precision, scale } => {
            let limit = 10f64.powi(i32::from(precision) - i32::from(scale));
            if value.number().is_some_and(|n| n.to_f64().abs() >= limit) {
                cx.env.note(errors::out_of_range("CAST", 1));
            }
        }
        CastType::Bytes(Some(length)) if !value.is_null() => {
            let text = value.as_text();
            if text.len() > length as usize {
                cx.env.note(errors::truncated_value(&format!("BINARY({length})"), &text));
            }
        }
        _ => {}
    }
}

fn is_utf8(value: &Datum<'_>) -> bool {
    match value {
        Datum::Bytes(b) => std::str::from_utf8(b).is_ok(),
        Datum::Bit(..) => std::str::from_utf8(&value.as_text()).is_ok(),
        _ => true,
    }
}

/// [`CastType::Year`] alone: what a column of years would hold of it. What such a column does not take stays as it is.
fn compared_year<'a>(cx: &Context<'_>, value: Datum<'a>) -> Datum<'a> {
    if value.is_null() {
        return value;
    }
    let n = match &value {
        Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..) => {
            moments::moment(cx, &value, moments::Wanted::Parts).map_or(0, |c| i128::from(c.year))
        }
        other => other.number().map_or(0, |n| n.to_f64().round() as i128),
    };
    let text = value.is_text().then(|| value.as_text());
    let first = |t: &[u8]| t.trim_ascii_start().iter().copied().find(|&b| b != b'-');
    let is_zero = |t: &[u8]| t.len() != 4 && first(t).is_some_and(|b| b.is_ascii_digit());
    match n {
        0 if text.as_deref().is_some_and(is_zero) => Datum::Int(2000),
        1..=69 => Datum::Int(2000 + n as i64),
        70..=99 => Datum::Int(1900 + n as i64),
        0 | 1901..=2155 => Datum::Int(n as i64),
        _ => match &value {
            Datum::Text(text) => exact(text),
            Datum::Date(_) | Datum::DateTime(..) => Datum::Int(n as i64),
            _ => value,
        },
    }
}

/// [`Expr::In`] of a column of years and several constants: numbers if one is, otherwise texts, so that only a year of four digits is one.
fn is_among_years<'a>(
    cx: &Context<'a>,
    year: &Datum<'a>,
    list: &'a [Expr],
    collation: Collation,
) -> Result<Option<bool>> {
    let values = list.iter().map(|e| e.eval(cx)).collect::<Result<Vec<_>>>()?;
    let are_numbers = values.iter().any(Datum::is_number);
    let text = format!("{:0>4}", year.as_string());
    let mut found = Some(false);
    for value in values {
        let order = match are_numbers {
            true => compare(cx, year, &value, collation),
            false if value.is_null() => None,
            false => Some(text.as_bytes().cmp(&value.as_text())),
        };
        match order {
            Some(Ordering::Equal) => return Ok(Some(true)),
            None => found = None,
            Some(_) => {}
        }
    }
    Ok(found)
}

/// CAST AS YEAR: NULL with a warning for what is none.
fn cast_year(cx: &Context<'_>, value: &Datum<'_>) -> Datum<'static> {
    let n = match value {
        Datum::Null => return Datum::Null,
        Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..) => {
            moments::moment(cx, value, moments::Wanted::Parts).map_or(0, |c| i128::from(c.year))
        }
        Datum::Text(t) | Datum::Bytes(t) => {
            let (x, whole) = crate::value::datum::text_to_f64(t);
            if !t.trim_ascii().first().is_some_and(u8::is_ascii_digit) {
                cx.env.note(errors::wrong_moment("YEAR", t));
                return Datum::Null;
            }
            if !whole {
                cx.env.note(errors::truncated_value("YEAR", t));
            }
            x as i128
        }
        number => number.number().map_or(0, Number::to_i128),
    };
    match n {
        0 | 1901..=2155 => Datum::UInt(n as u64),
        1..=69 => Datum::UInt(n as u64 + 2000),
        70..=99 => Datum::UInt(n as u64 + 1900),
        _ => {
            cx.env.note(errors::truncated_value("YEAR", &value.as_text()));
            Datum::Null
        }
    }
}

/// An operand of a bit operation: a text is the integer that it begins with.
fn bit_operand<'a>(cx: &Context<'_>, value: Datum<'a>) -> Datum<'a> {
    let (Datum::Text(text) | Datum::Bytes(text)) = &value else { return value };
    note_cast(cx, &value, CastType::Signed);
    match decimal::parse_prefix(text.trim_ascii()).and_then(|(n, scale, _)| decimal::truncate(n, scale, 0)) {
        Some(n) if n < 0 => Datum::Int(n.max(i128::from(i64::MIN)) as i64),
        Some(n) => Datum::UInt(n.min(i128::from(u64::MAX)) as u64),
        None => Datum::Int(0),
    }
}

/// A constant beside a moment, as [`CastType::Moment`] says.
fn moment_of<'a>(
    cx: &Context<'_>,
    value: Datum<'a>,
    kind: Kind,
    (alone, of_column): (bool, bool),
) -> Result<Datum<'a>> {
    if let Kind::Time(decimals) = kind {
        return Ok(time_of(cx, value, decimals));
    }
    let name = if kind == Kind::Date { "date" } else { "datetime" };
    let (zone, dates) = (cx.env.zone(), cx.env.variables.dates_of_columns());
    let read_number = |number: &Datum<'_>| number.civil_of(zone, dates);
    let text = match &value {
        Datum::Text(text) | Datum::Bytes(text) => text,
        number if of_column && number.is_number() && read_number(number).is_some() => {
            return Ok(read_number(number).map_or(Datum::Null, |c| Datum::DateTime(pack_datetime(c), 6)));
        }
        number if number.number().is_some_and(|n| n.to_i128() != 0) && read_number(number).is_none() => {
            if of_column || !cx.env.changes_rows.get() {
                cx.env.note_once(errors::truncated_value(name, &number.as_text()));
            }
            return Ok(value);
        }
        _ => return Ok(value),
    };
    match temporal::read_datetime(text, zone, dates) {
        Some((c, cut)) if !alone || !moments::is_forbidden(cx, c) => {
            if cut {
                cx.env.note_once(errors::truncated_value(name, text));
            }
            Ok(Datum::DateTime(pack_datetime(c), 6))
        }
        // Where rows are changed the strict mode has the word.
        _ if alone && !(cx.env.changes_rows.get() && cx.env.variables.strict) => {
            Err(errors::wrong_moment(&name.to_ascii_uppercase(), text))
        }
        _ => {
            cx.env.note_once(errors::truncated_value(name, text));
            Ok(value)
        }
    }
}

/// The text of a literal, as [`CastType::Literal`] says.
fn literal<'a>(cx: &Context<'_>, value: Datum<'a>, kind: Kind) -> Result<Datum<'a>> {
    let (text, zone, dates) = (value.as_text(), cx.env.zone(), cx.env.variables.dates_of_columns());
    let is_moment =
        || temporal::read_datetime(&text, zone, dates).is_some_and(|(c, cut)| !cut && !moments::is_forbidden(cx, c));
    let (name, is_one) = match kind {
        Kind::Time(_) => ("TIME", temporal::read_time(&text, zone).is_some_and(|t| !t.cut && !t.beyond && !t.of_date)),
        Kind::Date => ("DATE", is_moment() && !temporal::has_clock(&text)),
        _ => ("DATETIME", is_moment() && temporal::has_clock(&text)),
    };
    if !value.is_null() && !is_one {
        return Err(errors::wrong_moment(name, &text));
    }
    Ok(value)
}

/// A constant beside a column of times has as many digits as the column; what is no time stays as it is, with a warning.
fn time_of<'a>(cx: &Context<'_>, value: Datum<'a>, decimals: u8) -> Datum<'a> {
    if !matches!(value, Datum::Text(_) | Datum::Bytes(_) | Datum::Decimal { .. } | Datum::Double(_)) {
        return value;
    }
    let text = value.as_text();
    let read = temporal::read_time(&text, cx.env.zone());
    if !text.is_empty() && read.is_none_or(|t| t.cut || t.beyond || t.of_date) {
        cx.env.note_once(errors::truncated_value("time", &text));
    }
    match read {
        Some(t) if !t.cut && !t.beyond => {
            Datum::Time(temporal::fit_micros(t.micros, decimals, cx.env.variables.cuts_fractions), 6)
        }
        _ => value.clone(),
    }
}

/// CAST AS CHAR(length), which warns of what it cuts off.
fn cast_text<'a>(cx: &Context<'_>, value: Datum<'a>, length: u32) -> Datum<'a> {
    if value.is_null() {
        return Datum::Null;
    }
    let text = value.as_text();
    let kept = char_offset(&text, length as usize);
    if kept < text.len() {
        cx.env.note(errors::truncated_value(&format!("CHAR({length})"), &text));
    }
    Datum::Text(Cow::Owned(text[..kept].to_vec()))
}

pub fn truth_value(t: Option<bool>) -> Datum<'static> {
    t.map_or(Datum::Null, Datum::from_bool)
}

fn eval_in<'a>(
    cx: &Context<'a>,
    expr: &'a Expr,
    list: &'a [Expr],
    negated: bool,
    collation: Collation,
) -> Result<Datum<'a>> {
    let value = expr.eval(cx)?;
    if value.is_null() {
        return Ok(Datum::Null);
    }
    if let Some(Expr::Cast(_, CastType::Year { alone: false })) = list.first() {
        let found = is_among_years(cx, &value, list, collation)?;
        return Ok(found.map_or(Datum::Null, |found| Datum::from_bool(found != negated)));
    }
    let mut unknown = false;
    for item in list {
        match compare_sides(cx, (expr, &value), (item, &item.eval(cx)?), collation) {
            Some(Ordering::Equal) => return Ok(Datum::from_bool(!negated)),
            None => unknown = true,
            Some(_) => {}
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::from_bool(negated) })
}

fn negate(cx: &Context<'_>, value: &Datum<'_>) -> Result<Datum<'static>> {
    Ok(match number(cx, value) {
        None => Datum::Null,
        Some(Number::Int(n)) => {
            Datum::Int(n.checked_neg().ok_or_else(|| overflow("BIGINT", "-", value, &Datum::Null))?)
        }
        Some(Number::UInt(n)) if n <= 1 << 63 => Datum::Int((n as i64).wrapping_neg()),
        Some(Number::UInt(n)) => Datum::Decimal { unscaled: -i128::from(n), scale: 0 },
        Some(Number::Decimal(unscaled, scale)) => Datum::decimal(-unscaled, scale, value.shown_scale().min(scale)),
        Some(Number::Double(x)) => Datum::Double(-x),
    })
}

/// Operand of a bit operation.
pub fn to_bits(n: Number) -> u64 {
    match n {
        Number::Int(n) => n as u64,
        Number::UInt(n) => n,
        other => {
            let wide = other.to_i128();
            let high = if wide < 0 { 0 } else { i128::from(i64::MAX) };
            wide.clamp(i128::from(i64::MIN), high) as i64 as u64
        }
    }
}

fn overflow(kind: &str, op: &str, a: &Datum<'_>, b: &Datum<'_>) -> crate::wire::SqlError {
    errors::overflow(kind, &format!("({} {op} {})", a.as_string(), b.as_string()))
}

/// The sum, difference or product of two numbers with a fixed point, all of whose digits are shown, where it fits.
#[inline]
fn plain_arith(op: ArithOp, left: &Datum<'_>, right: &Datum<'_>) -> Option<Datum<'static>> {
    let (x, y) = match (left, right) {
        (Datum::Decimal { unscaled, scale }, Datum::Decimal { unscaled: other, scale: of_other }) => {
            ((*unscaled, *scale), (*other, *of_other))
        }
        (Datum::Decimal { unscaled, scale }, Datum::Int(n)) => ((*unscaled, *scale), (i128::from(*n), 0)),
        (Datum::Int(n), Datum::Decimal { unscaled, scale }) => ((i128::from(*n), 0), (*unscaled, *scale)),
        _ => return None,
    };
    let (unscaled, scale) = match op {
        ArithOp::Mul if x.1 + y.1 <= decimal::SCALE_MAX => decimal::multiply(x, y)?,
        ArithOp::Add => decimal::align(x, y).and_then(|(x, y, scale)| Some((x.checked_add(y)?, scale)))?,
        ArithOp::Sub | ArithOp::SignedSub => {
            decimal::align(x, y).and_then(|(x, y, scale)| Some((x.checked_sub(y)?, scale)))?
        }
        _ => return None,
    };
    Some(Datum::Decimal { unscaled, scale })
}

pub fn arith(op: ArithOp, left: &Datum<'_>, right: &Datum<'_>) -> Result<Datum<'static>> {
    use ArithOp::*;
    if let Some(result) = plain_arith(op, left, right) {
        return Ok(result);
    }
    let (Some(a), Some(b)) = (left.number(), right.number()) else { return Ok(Datum::Null) };
    let symbol = match op {
        Add => "+",
        Sub | SignedSub => "-",
        Mul => "*",
        Div => "/",
        IntDiv => "DIV",
        Mod => "%",
        BitAnd => return Ok(Datum::UInt(to_bits(a) & to_bits(b))),
        BitOr => return Ok(Datum::UInt(to_bits(a) | to_bits(b))),
        BitXor => return Ok(Datum::UInt(to_bits(a) ^ to_bits(b))),
        ShiftLeft | ShiftRight => {
            let (bits, by) = (to_bits(a), u32::try_from(to_bits(b)).unwrap_or(64));
            let shifted = if op == ShiftLeft { bits.checked_shl(by) } else { bits.checked_shr(by) };
            return Ok(Datum::UInt(shifted.unwrap_or(0)));
        }
    };
    if matches!(op, Div | IntDiv | Mod) && b.is_zero() {
        return Ok(Datum::Null);
    }
    let fail = |kind| Err(overflow(kind, symbol, left, right));
    let is_unsigned = op != SignedSub && (matches!(a, Number::UInt(_)) || matches!(b, Number::UInt(_)));
    match (a, b) {
        (Number::Int(_) | Number::UInt(_), Number::Int(_) | Number::UInt(_)) if op != Div => {
            let (x, y) = (a.to_i128(), b.to_i128());
            let result = match op {
                Add => x + y,
                Sub | SignedSub => x - y,
                Mul => x.checked_mul(y).unwrap_or(i128::MAX),
                IntDiv => x / y,
                _ => {
                    return Ok(if matches!(a, Number::UInt(_)) {
                        Datum::UInt((x % y) as u64)
                    } else {
                        Datum::Int((x % y) as i64)
                    });
                }
            };
            if is_unsigned {
                u64::try_from(result).map_or_else(|_| fail("BIGINT UNSIGNED"), |n| Ok(Datum::UInt(n)))
            } else {
                i64::try_from(result).map_or_else(|_| fail("BIGINT"), |n| Ok(Datum::Int(n)))
            }
        }
        (a, b) => match (a.to_decimal(), b.to_decimal()) {
            (Some(x), Some(y)) => {
                let shown = (left.shown_scale(), right.shown_scale());
                match decimal_arith(op, x, y, shown) {
                    // A quotient of what has no sign has none.
                    Some(Datum::Int(n)) if op == IntDiv && n < 0 && is_unsigned => fail("BIGINT UNSIGNED"),
                    result => result.map_or_else(|| fail("DECIMAL"), Ok),
                }
            }
            _ => {
                let (x, y) = (a.to_f64(), b.to_f64());
                let result = match op {
                    Add => x + y,
                    Sub | SignedSub => x - y,
                    Mul => x * y,
                    Div => x / y,
                    Mod => x % y,
                    _ => {
                        return i64::try_from((x / y).trunc() as i128)
                            .map_or_else(|_| fail("BIGINT"), |n| Ok(Datum::Int(n)));
                    }
                };
                if result.is_finite() { Ok(Datum::Double(result)) } else { fail("DOUBLE") }
            }
        },
    }
}

/// Arithmetic on exact numbers that are declared with `shown` digits. Where the representation is too small for all the
/// digits, those that are not shown go first.
fn decimal_arith(
    op: ArithOp,
    mut x: (i128, u8),
    mut y: (i128, u8),
    (shown_x, shown_y): (u8, u8),
) -> Option<Datum<'static>> {
    let shown = match op {
        ArithOp::Mul => shown_x + shown_y,
        ArithOp::Div => shown_x + decimal::DIVISION_DIGITS,
        _ => shown_x.max(shown_y),
    };
    loop {
        let done = match op {
            ArithOp::Div => decimal::divide(x, y, shown.min(decimal::SCALE_MAX)),
            ArithOp::Mul => decimal::multiply(x, y),
            _ => decimal::align(x, y).and_then(|(a, b, scale)| match op {
                ArithOp::Add => Some((a.checked_add(b)?, scale)),
                ArithOp::Sub | ArithOp::SignedSub => Some((a.checked_sub(b)?, scale)),
                ArithOp::Mod => Some((a % b, scale)),
                _ => Some((a / b, 0)),
            }),
        };
        if let Some((unscaled, scale)) = done {
            return Some(match (op, i64::try_from(unscaled)) {
                (ArithOp::IntDiv, Ok(n)) => Datum::Int(n),
                _ => Datum::decimal(unscaled, scale, shown.min(decimal::SCALE_MAX)),
            });
        }
        let longer = match (x.1 > shown_x, y.1 > shown_y) {
            (true, true) if y.1 > x.1 => &mut y,
            (true, _) => &mut x,
            (false, true) => &mut y,
            (false, false) => return None,
        };
        *longer = (decimal::truncate(longer.0, longer.1, longer.1 - 1)?, longer.1 - 1);
    }
}

/// The number that a text is, without loss where it is written without an exponent.
fn exact(text: &[u8]) -> Datum<'static> {
    match decimal::parse_prefix(text.trim_ascii()) {
        Some((n, 0, [])) => match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => Datum::Int(n),
            (_, Ok(n)) => Datum::UInt(n),
            _ => Datum::Decimal { unscaled: n, scale: 0 },
        },
        Some((unscaled, scale, [])) => Datum::Decimal { unscaled, scale },
        _ => Datum::Double(crate::value::datum::text_to_f64(text).0),
    }
}

pub fn cast<'a>(value: Datum<'a>, to: CastType) -> Result<Datum<'a>> {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    let number = || value.number().unwrap_or(Number::Int(0));
    Ok(match to {
        CastType::Signed | CastType::Unsigned => {
            // Whole seconds: 60 of them are a minute.
            let value = match value {
                Datum::DateTime(p, _) => Datum::DateTime(temporal::round_datetime(p, 0), 0),
                Datum::Time(t, _) => Datum::Time(temporal::round_micros(t, 0), 0),
                other => other,
            };
            let number = || value.number().unwrap_or(Number::Int(0));
            let wide = match &value {
                Datum::Text(t) | Datum::Bytes(t) => integer_prefix(t),
                _ => match number() {
                    n @ (Number::Int(_) | Number::UInt(_)) => n.to_i128(),
                    n if to == CastType::Signed => n.to_i128().min(i128::from(i64::MAX)),
                    n => n.to_i128(),
                },
            };
            let bits = if wide < 0 {
                wide.max(i128::from(i64::MIN)) as i64 as u64
            } else {
                wide.min(i128::from(u64::MAX)) as u64
            };
            if to == CastType::Signed { Datum::Int(bits as i64) } else { Datum::UInt(bits) }
        }
        CastType::Double | CastType::Quiet => Datum::Double(number().to_f64()),
        CastType::Float => match number().to_f64() as f32 {
            x if x.is_finite() => Datum::Double(f64::from(x)),
            _ => return Err(errors::overflow("DOUBLE", &format!("cast({} as float)", value.as_string()))),
        },
        CastType::Chosen { kind: Kind::Double, .. } => Datum::Double(number().to_f64()),
        CastType::Chosen { kind: Kind::Decimal(scale), scaled } if value.is_number() => {
            let Some((n, own)) = number().to_decimal().filter(|_| !matches!(value, Datum::Fine { .. })) else {
                return Ok(value);
            };
            let scale = if scaled { scale.max(own) } else { own };
            decimal::rescale(n, own, scale).map_or(value, |unscaled| Datum::Decimal { unscaled, scale })
        }
        CastType::Chosen { .. }
        | CastType::Moment { .. }
        | CastType::Literal(_)
        | CastType::AsYear
        | CastType::Year { .. }
        | CastType::Json => value,
        CastType::Exact { .. } => match &value {
            Datum::Text(text) => exact(text),
            Datum::Double(x) if x.fract() == 0.0 && x.abs() < 9e18 => Datum::Int(*x as i64),
            _ => value,
        },
        CastType::Decimal { precision, scale } => {
            let limit = decimal::power_of_ten(precision).map_or(i128::MAX, |p| p - 1);
            let unscaled = match &value {
                Datum::Text(t) | Datum::Bytes(t) => {
                    match decimal::parse_scientific(t.trim_ascii()).map(|(n, s)| decimal::rescale(n, s, scale)) {
                        Some(Some(n)) => n,
                        // No number, or none that the representation holds.
                        _ => match crate::value::datum::text_to_f64(t).0 {
                            x if x >= 1.0 => limit,
                            x if x <= -1.0 => -limit,
                            _ => 0,
                        },
                    }
                }
                _ => match number() {
                    Number::Double(x) => decimal::from_f64(x, scale).unwrap_or(if x < 0.0 { -limit } else { limit }),
                    n => n.to_decimal().and_then(|(n, s)| decimal::rescale(n, s, scale)).unwrap_or(limit),
                },
            };
            Datum::Decimal { unscaled: unscaled.clamp(-limit, limit), scale }
        }
        CastType::Text(length) => {
            let text = value.as_text();
            let kept = length.map_or(text.len(), |n| char_offset(&text, n as usize));
            Datum::Text(Cow::Owned(text[..kept].to_vec()))
        }
        CastType::Faced(face) => Datum::text(face.text(&value)),
        CastType::Bytes(length) => {
            let mut bytes = value.as_text().into_owned();
            if let Some(n) = length {
                bytes.resize((n as usize).min(1 << 24), 0);
            }
            Datum::Bytes(Cow::Owned(bytes))
        }
        CastType::Date => value
            .civil(Zone::UTC)
            .map_or(Datum::Null, |c| Datum::Date(apus_types::time::pack_date(c.year, c.month, c.day))),
        CastType::DateTime(n) => value
            .civil(Zone::UTC)
            .map_or(Datum::Null, |c| Datum::DateTime(temporal::round_datetime(pack_datetime(c), n), n)),
        CastType::Time(n) => {
            value.time(Zone::UTC).map_or(Datum::Null, |t| Datum::Time(temporal::round_micros(t, n), n))
        }
    })
}

fn integer_prefix(text: &[u8]) -> i128 {
    decimal::parse_prefix(text.trim_ascii()).map_or(0, |(n, scale, _)| decimal::truncate(n, scale, 0).unwrap_or(0))
}

/// Byte offset behind the first `count` characters.
pub fn char_offset(text: &[u8], count: usize) -> usize {
    let mut seen = 0;
    for (at, &b) in text.iter().enumerate() {
        if b & 0xc0 != 0x80 {
            if seen == count {
                return at;
            }
            seen += 1;
        }
    }
    text.len()
}
pub fn char_count(text: &[u8]) -> usize {
    text.iter().filter(|&&b| b & 0xc0 != 0x80).count()
}

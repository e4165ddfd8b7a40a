//! CAST, and the conversions that stand unwritten in a plan, with what each warns of.

use std::borrow::Cow;

use apus_types::time::{Civil, pack_datetime};

use super::{arithmetic::exact, char_offset};
use crate::{
    errors::{self, Result},
    expr::{CastType, Context, Kind, moments},
    value::{
        datum::{Datum, Number},
        decimal, temporal,
        zone::Zone,
    },
};

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
pub(super) fn note_range(cx: &Context<'_>, value: &Datum<'_>, to: CastType) {
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

/// CAST AS YEAR: NULL with a warning for what is none.
pub(super) fn cast_year(cx: &Context<'_>, value: &Datum<'_>) -> Datum<'static> {
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
pub(super) fn bit_operand<'a>(cx: &Context<'_>, value: Datum<'a>) -> Datum<'a> {
    let (Datum::Text(text) | Datum::Bytes(text)) = &value else { return value };
    note_cast(cx, &value, CastType::Signed);
    match decimal::parse_prefix(text.trim_ascii()).and_then(|(n, scale, _)| decimal::truncate(n, scale, 0)) {
        Some(n) if n < 0 => Datum::Int(n.max(i128::from(i64::MIN)) as i64),
        Some(n) => Datum::UInt(n.min(i128::from(u64::MAX)) as u64),
        None => Datum::Int(0),
    }
}

/// A constant beside a moment, as [`CastType::Moment`] says.
pub(super) fn moment_of<'a>(
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
pub(super) fn literal<'a>(cx: &Context<'_>, value: Datum<'a>, kind: Kind) -> Result<Datum<'a>> {
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
pub(super) fn cast_text<'a>(cx: &Context<'_>, value: Datum<'a>, length: u32) -> Datum<'a> {
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

/// [`CastType::NewYear`].
pub(super) fn new_year(year: &Datum<'_>) -> Datum<'static> {
    year.number().map_or(Datum::Null, |n| {
        let year = n.to_i128().clamp(0, 9999) as u16;
        Datum::DateTime(pack_datetime(Civil { year, month: 1, day: 1, ..Civil::default() }), 0)
    })
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
                Datum::DateTime(p, _) => Datum::DateTime(temporal::round_datetime(p, 0).unwrap_or(p), 0),
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
        | CastType::NewYear
        | CastType::Year { .. }
        | CastType::Json
        | CastType::Array(_)
        | CastType::Element(_) => value,
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
            .and_then(|c| temporal::round_datetime(pack_datetime(c), n))
            .map_or(Datum::Null, |fit| Datum::DateTime(fit, n)),
        CastType::Time(n) => {
            value.time(Zone::UTC).map_or(Datum::Null, |t| Datum::Time(temporal::round_micros(t, n), n))
        }
    })
}

fn integer_prefix(text: &[u8]) -> i128 {
    decimal::parse_prefix(text.trim_ascii()).map_or(0, |(n, scale, _)| decimal::truncate(n, scale, 0).unwrap_or(0))
}

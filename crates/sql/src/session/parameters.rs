//! Values that a client sends with a statement.

use apus_types::collate::Charset;
use std::borrow::Cow;

use crate::{
    parse::digest::literal,
    value::datum::Datum,
    wire::{ParamValue, SqlError, characters, foreign::Foreign},
};

/// What a client sends in its character set.
///
/// # Errors
/// 1300: bytes that it has not.
pub fn param_of<'a>(p: &ParamValue<'a>, client: Charset) -> Result<Datum<'a>, SqlError> {
    match p {
        ParamValue::Text(text) => match characters::read(client, text) {
            // As a literal that is no text.
            Err(_) if Foreign::of(client).is_some() => Ok(Datum::Bytes(Cow::Borrowed(text))),
            read => Ok(Datum::Text(read?)),
        },
        ParamValue::Blob(bytes) if !characters::is_utf8(client) => Ok(Datum::Bytes(Cow::Borrowed(bytes))),
        other => Ok(param_datum(other)),
    }
}

fn param_datum<'a>(p: &ParamValue<'a>) -> Datum<'a> {
    use apus_types::time::{Civil, pack_date, pack_datetime};
    match *p {
        ParamValue::Null => Datum::Null,
        ParamValue::Int(n) => Datum::Int(n),
        ParamValue::UInt(n) => i64::try_from(n).map_or(Datum::UInt(n), Datum::Int),
        ParamValue::Float(x) => Datum::Double(f64::from(x)),
        ParamValue::Double(x) => Datum::Double(x),
        ParamValue::Decimal(t) => literal::number(t).unwrap_or(Datum::Text(Cow::Borrowed(t))),
        ParamValue::Text(t) => Datum::Text(Cow::Borrowed(t)),
        // A text column takes either; bytes that are UTF-8 compare as text.
        ParamValue::Blob(t) if std::str::from_utf8(t).is_ok() => Datum::Text(Cow::Borrowed(t)),
        ParamValue::Blob(t) => Datum::Bytes(Cow::Borrowed(t)),
        ParamValue::Date { year, month, day } => Datum::Date(pack_date(year, month, day)),
        ParamValue::DateTime { year, month, day, hour, minute, second, micros } => {
            let c = Civil { year, month, day, hour, minute, second, micros };
            Datum::DateTime(pack_datetime(c), if micros > 0 { 6 } else { 0 })
        }
        ParamValue::Time { negative, hours, minutes, seconds, micros } => {
            let total = (i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(seconds)) * 1_000_000
                + i64::from(micros);
            Datum::Time(if negative { -total } else { total }, if micros > 0 { 6 } else { 0 })
        }
    }
}

/// As `mysql_query_attribute_string` tells it.
pub fn attribute_text(value: &ParamValue<'_>, client: Charset) -> Option<String> {
    Some(match param_of(value, client).unwrap_or_else(|_| param_datum(value)) {
        Datum::Null => return None,
        Datum::DateTime(at, _) => Datum::DateTime(at, 6).as_string(),
        Datum::Time(micros, _) => Datum::Time(micros, 6).as_string(),
        other => other.as_string(),
    })
}

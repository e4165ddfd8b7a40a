//! Constants as parts of index keys, without changing what the comparison finds.

use apus_types::{
    ColumnType,
    time::{pack_date, pack_datetime},
};

use crate::value::{
    datum::{Datum, Number, text_to_f64},
    decimal, enum_set,
    temporal::{self, Dates},
    zone::{Moment, Zone},
};

/// A constant as a bound of an index over a column.
#[derive(Debug, PartialEq)]
pub enum KeyValue<'a> {
    /// Comparing keys is comparing values.
    Exact(Datum<'a>),
    /// The column has no such value; this is the greatest one below.
    Above(Datum<'a>),
    /// Comparison with NULL is never true.
    Never,
    /// Below (or above) every value of the column.
    BelowAll,
    AboveAll,
    /// Compared in another way than keys are ordered: the index is of no use.
    Unusable,
}

/// A text of which a comparison with such a column takes a part only, and warns, or takes none and compares texts.
fn is_cut(ty: ColumnType, value: &Datum<'_>, zone: Zone) -> bool {
    let Datum::Text(text) = value else { return false };
    match ty {
        ColumnType::Decimal { .. } | ColumnType::Double | ColumnType::Float => {
            !text_to_f64(text).1 && !text.trim_ascii().is_empty()
        }
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => {
            temporal::read_datetime(text, zone, Dates::REAL).is_none_or(|(_, cut)| cut)
        }
        ColumnType::Time { .. } => temporal::read_time(text, zone).is_none_or(|t| t.cut || t.beyond || t.of_date),
        _ => false,
    }
}

/// Converts `value`, which is compared with a column of type `ty`, into a key part without changing the comparison.
pub fn key_value<'a>(ty: ColumnType, value: Datum<'a>, zone: Zone) -> KeyValue<'a> {
    if value.is_null() {
        return KeyValue::Never;
    }
    let value = match value {
        Datum::Label(_, t) if !matches!(ty.stored(), ColumnType::Int { .. }) => Datum::Text(t),
        other => other,
    };
    if matches!(value, Datum::Json(_)) || is_cut(ty, &value, zone) {
        return KeyValue::Unusable;
    }
    match ty {
        ColumnType::Json => KeyValue::Unusable,
        ColumnType::Int { bits, unsigned } => int_key(bits, unsigned, &value),
        ColumnType::Label { bits, is_set, collation, labels: list } => match &value {
            Datum::Text(t) | Datum::Label(_, t) => match enum_set::find(list, is_set, collation, t) {
                Some(n) => KeyValue::Exact(Datum::UInt(n)),
                None => KeyValue::AboveAll,
            },
            _ => int_key(bits, true, &value),
        },
        ColumnType::Year => int_key(16, true, &value),
        ColumnType::Bit { length } => int_key(length, true, &value),
        ColumnType::Decimal { precision, scale, .. } => {
            let exact = match value.number() {
                Some(n) => n.to_decimal(),
                None => None,
            };
            let Some((n, s)) = exact else { return KeyValue::Unusable };
            let limit = decimal::power_of_ten(precision).map_or(i128::MAX, |p| p - 1);
            let Some(at) = (if s <= scale { decimal::rescale(n, s, scale) } else { floor_scale(n, s - scale) }) else {
                return if n < 0 { KeyValue::BelowAll } else { KeyValue::AboveAll };
            };
            if at.abs() > limit {
                return if n < 0 { KeyValue::BelowAll } else { KeyValue::AboveAll };
            }
            let datum = Datum::Decimal { unscaled: at, scale };
            if s > scale && decimal::rescale(at, scale, s) != Some(n) {
                KeyValue::Above(datum)
            } else {
                KeyValue::Exact(datum)
            }
        }
        ColumnType::Double => match value.number() {
            Some(n) if n.to_f64().is_finite() => KeyValue::Exact(Datum::Double(n.to_f64())),
            _ => KeyValue::Unusable,
        },
        ColumnType::Float => match value.number().map(Number::to_f64) {
            Some(x) if f64::from(x as f32) == x && x.is_finite() => KeyValue::Exact(Datum::Double(x)),
            _ => KeyValue::Unusable,
        },
        ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Text { .. } => match value {
            Datum::Text(t) => KeyValue::Exact(Datum::Text(t)),
            _ => KeyValue::Unusable,
        },
        ColumnType::VarBinary { .. } | ColumnType::Blob { .. } => match value {
            Datum::Text(t) | Datum::Bytes(t) => KeyValue::Exact(Datum::Bytes(t)),
            _ => KeyValue::Unusable,
        },
        ColumnType::Binary { length } => match value {
            Datum::Text(t) | Datum::Bytes(t) if t.len() == usize::from(length) => KeyValue::Exact(Datum::Bytes(t)),
            _ => KeyValue::Unusable,
        },
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => moment_key(ty, &value, zone),
        ColumnType::Time { decimals } => match &value {
            Datum::Time(..) | Datum::Text(_) => match value.time(zone) {
                Some(t) if temporal::round_micros(t, decimals) == t => KeyValue::Exact(Datum::Time(t, decimals)),
                _ => KeyValue::Unusable,
            },
            _ => KeyValue::Unusable,
        },
    }
}

fn floor_scale(n: i128, digits: u8) -> Option<i128> {
    Some(n.div_euclid(decimal::power_of_ten(digits)?))
}

fn int_key<'a>(bits: u8, unsigned: bool, value: &Datum<'a>) -> KeyValue<'a> {
    let (floor, exact) = match value.number() {
        Some(Number::Int(n)) => (i128::from(n), true),
        Some(Number::UInt(n)) => (i128::from(n), true),
        Some(Number::Decimal(n, scale)) => {
            let unit = decimal::power_of_ten(scale).unwrap_or(1);
            (n.div_euclid(unit), n.rem_euclid(unit) == 0)
        }
        // Integers up to 2^53 are compared exactly as doubles.
        Some(Number::Double(x)) if x.abs() < 9e15 => (x.floor() as i128, x.fract() == 0.0),
        _ => return KeyValue::Unusable,
    };
    if matches!(value, Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..) | Datum::Bytes(_)) {
        return KeyValue::Unusable;
    }
    let (low, high) =
        if unsigned { (0, (1i128 << bits) - 1) } else { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) };
    if floor < low {
        return KeyValue::BelowAll;
    }
    if floor > high {
        return KeyValue::AboveAll;
    }
    let datum = if unsigned { Datum::UInt(floor as u64) } else { Datum::Int(floor as i64) };
    if exact { KeyValue::Exact(datum) } else { KeyValue::Above(datum) }
}

fn moment_key<'a>(ty: ColumnType, value: &Datum<'_>, zone: Zone) -> KeyValue<'a> {
    let Some(c) = value.civil(zone) else { return KeyValue::Unusable };
    if matches!(value, Datum::Time(..)) {
        return KeyValue::Unusable;
    }
    match ty {
        ColumnType::Date => {
            let datum = Datum::Date(pack_date(c.year, c.month, c.day));
            if temporal::time_of_day(&c) == 0 { KeyValue::Exact(datum) } else { KeyValue::Above(datum) }
        }
        ColumnType::DateTime { decimals } => KeyValue::Exact(Datum::DateTime(pack_datetime(c), decimals)),
        _ if c != Default::default() && !temporal::is_valid(&c) => KeyValue::Unusable,
        // What the clocks show twice are two keys, and what they never show is between two.
        _ => match temporal::civil_to_timestamp(c, zone) {
            Moment::Once(micros) => KeyValue::Exact(Datum::Int(micros)),
            Moment::Twice(_) | Moment::Never(_) => KeyValue::Unusable,
        },
    }
}

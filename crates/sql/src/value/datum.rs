//! A value during evaluation, and MySQL's implicit conversions between the kinds.

use std::{borrow::Cow, cmp::Ordering};

use apus_types::{
    ColumnType, Value,
    collate::Collation,
    time::{Civil, pack_datetime, unpack_date, unpack_datetime},
};

use super::{
    bits, decimal, enum_set,
    json::{compare, print},
    temporal::{self, Dates},
    zone::Zone,
};
use crate::{expr::json, wire::number};

/// One value. TIMESTAMP columns are seen as `DateTime` in the session's zone.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    Null,
    Int(i64),
    UInt(u64),
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    /// A decimal inside arithmetic: MySQL computes quotients to more digits than their declared scale `shown`, and rounds only
    /// where the value leaves arithmetic.
    Fine {
        unscaled: i128,
        scale: u8,
        shown: u8,
    },
    Double(f64),
    Text(Cow<'a, [u8]>),
    Bytes(Cow<'a, [u8]>),
    Date(u32),
    /// Packed, and how many digits of the fraction are shown.
    DateTime(u64, u8),
    Time(i64, u8),
    /// What an ENUM or a SET has: a number and the text that it stands for.
    Label(u64, Cow<'a, [u8]>),
    /// A document in its stored form.
    Json(Cow<'a, [u8]>),
    /// What a BIT column has, and how many bits that are: a number, which is shown as bytes.
    Bit(u64, u8),
}

/// A number as the arithmetic sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    UInt(u64),
    Decimal(i128, u8),
    Double(f64),
}

impl Number {
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::UInt(n) => n as f64,
            Number::Decimal(unscaled, scale) => decimal::to_f64(unscaled, scale),
            Number::Double(x) => x,
        }
    }
    /// Exact numbers only.
    pub fn to_decimal(self) -> Option<(i128, u8)> {
        match self {
            Number::Int(n) => Some((i128::from(n), 0)),
            Number::UInt(n) => Some((i128::from(n), 0)),
            Number::Decimal(unscaled, scale) => Some((unscaled, scale)),
            Number::Double(_) => None,
        }
    }
    pub fn is_zero(self) -> bool {
        match self {
            Number::Int(n) => n == 0,
            Number::UInt(n) => n == 0,
            Number::Decimal(n, _) => n == 0,
            Number::Double(x) => x == 0.0,
        }
    }
    /// Rounded to an integer, saturating.
    pub fn to_i128(self) -> i128 {
        match self {
            Number::Int(n) => i128::from(n),
            Number::UInt(n) => i128::from(n),
            Number::Decimal(unscaled, scale) => decimal::rescale(unscaled, scale, 0).unwrap_or(0),
            Number::Double(x) => x.round_ties_even() as i128,
        }
    }
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (a, b) => match (a.to_decimal(), b.to_decimal()) {
                (Some(x), Some(y)) => match decimal::align(x, y) {
                    Some((x, y, _)) => x.cmp(&y),
                    None => a.to_f64().total_cmp(&b.to_f64()),
                },
                _ => a.to_f64().partial_cmp(&b.to_f64()).unwrap_or(Ordering::Equal),
            },
        }
    }
    pub fn datum(self) -> Datum<'static> {
        match self {
            Number::Int(n) => Datum::Int(n),
            Number::UInt(n) => Datum::UInt(n),
            Number::Decimal(unscaled, scale) => Datum::Decimal { unscaled, scale },
            Number::Double(x) => Datum::Double(x),
        }
    }
}

/// The number at the start of a text, as a double; 0 where there is none. The flag says that all of it was a number.
pub fn text_to_f64(text: &[u8]) -> (f64, bool) {
    let text = text.trim_ascii();
    let mut end = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let mut seen_digit = false;
    let mut seen_point = false;
    while let Some(&b) = text.get(end) {
        match b {
            b'0'..=b'9' => seen_digit = true,
            b'.' if !seen_point => seen_point = true,
            _ => break,
        }
        end += 1;
    }
    if !seen_digit {
        return (0.0, false);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let digits = text[(end + 1 + sign).min(text.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    let value = std::str::from_utf8(&text[..end]).ok().and_then(|t| t.parse().ok()).unwrap_or(0.0);
    (value, end == text.len())
}

impl<'a> Datum<'a> {
    pub fn text(s: impl Into<String>) -> Datum<'a> {
        Datum::Text(Cow::Owned(s.into().into_bytes()))
    }
    /// A decimal of `scale` digits behind the point of which `shown` are declared.
    pub fn decimal(unscaled: i128, scale: u8, shown: u8) -> Datum<'a> {
        if scale > shown { Datum::Fine { unscaled, scale, shown } } else { Datum::Decimal { unscaled, scale } }
    }
    /// Without digits that it is not declared with.
    pub fn declared(self) -> Datum<'a> {
        match self {
            Datum::Fine { unscaled, scale, shown } => {
                Datum::Decimal { unscaled: decimal::rescale(unscaled, scale, shown).unwrap_or(0), scale: shown }
            }
            other => other,
        }
    }
    /// Digits behind the point that the value is declared with.
    pub fn shown_scale(&self) -> u8 {
        match self {
            Datum::Decimal { scale, .. } => *scale,
            Datum::Fine { shown, .. } => *shown,
            Datum::DateTime(_, n) | Datum::Time(_, n) => *n,
            _ => 0,
        }
    }
    pub fn from_bool(b: bool) -> Datum<'a> {
        Datum::Int(i64::from(b))
    }
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// A stored value; `zone` is the session's, `decimals` the column's fraction digits.
    #[inline]
    pub fn from_value(value: Value<'a>, binary: bool, zone: Zone, decimals: u8) -> Datum<'a> {
        match value {
            Value::Null => Datum::Null,
            Value::Int(n) => Datum::Int(n),
            Value::UInt(n) => Datum::UInt(n),
            Value::Decimal { unscaled, scale } => Datum::Decimal { unscaled, scale },
            Value::Float(x) => Datum::Double(f64::from(x)),
            Value::Double(x) => Datum::Double(x),
            Value::Bytes(b) if binary => Datum::Bytes(Cow::Borrowed(b)),
            Value::Bytes(b) => Datum::Text(Cow::Borrowed(b)),
            Value::Date(d) => Datum::Date(d),
            Value::DateTime(d) => Datum::DateTime(d, decimals),
            Value::Timestamp(t) => Datum::DateTime(pack_datetime(temporal::timestamp_to_civil(t, zone)), decimals),
            Value::Time(t) => Datum::Time(t, decimals),
        }
    }

    /// A stored value of a column of this type.
    #[inline]
    pub fn of_column(ty: ColumnType, value: Value<'a>, zone: Zone) -> Datum<'a> {
        match (ty, value) {
            (ColumnType::Label { is_set, labels: list, .. }, Value::UInt(n)) => {
                Datum::Label(n, enum_set::text(list, is_set, n))
            }
            (ColumnType::Json, Value::Bytes(b)) => Datum::Json(Cow::Borrowed(b)),
            (ColumnType::Bit { length }, Value::UInt(n)) => Datum::Bit(n, length),
            _ => Datum::from_value(value, is_binary(ty), zone, decimals_of(ty)),
        }
    }

    /// Memory beside the value itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Datum::Text(t) | Datum::Bytes(t) | Datum::Label(_, t) | Datum::Json(t) => t.len(),
            _ => 0,
        }
    }
    pub fn into_owned(self) -> Datum<'static> {
        match self {
            Datum::Null => Datum::Null,
            Datum::Int(n) => Datum::Int(n),
            Datum::UInt(n) => Datum::UInt(n),
            Datum::Decimal { unscaled, scale } => Datum::Decimal { unscaled, scale },
            Datum::Fine { unscaled, scale, shown } => Datum::Fine { unscaled, scale, shown },
            Datum::Double(x) => Datum::Double(x),
            Datum::Text(t) => Datum::Text(Cow::Owned(t.into_owned())),
            Datum::Bytes(b) => Datum::Bytes(Cow::Owned(b.into_owned())),
            Datum::Date(d) => Datum::Date(d),
            Datum::DateTime(d, n) => Datum::DateTime(d, n),
            Datum::Time(t, n) => Datum::Time(t, n),
            Datum::Label(n, t) => Datum::Label(n, Cow::Owned(t.into_owned())),
            Datum::Json(b) => Datum::Json(Cow::Owned(b.into_owned())),
            Datum::Bit(n, length) => Datum::Bit(n, length),
        }
    }

    /// The same value, borrowing its bytes.
    pub fn borrowed(&self) -> Datum<'_> {
        match self {
            Datum::Text(t) => Datum::Text(Cow::Borrowed(t)),
            Datum::Bytes(b) => Datum::Bytes(Cow::Borrowed(b)),
            Datum::Null => Datum::Null,
            Datum::Int(n) => Datum::Int(*n),
            Datum::UInt(n) => Datum::UInt(*n),
            Datum::Decimal { unscaled, scale } => Datum::Decimal { unscaled: *unscaled, scale: *scale },
            Datum::Fine { unscaled, scale, shown } => Datum::Fine { unscaled: *unscaled, scale: *scale, shown: *shown },
            Datum::Double(x) => Datum::Double(*x),
            Datum::Date(d) => Datum::Date(*d),
            Datum::DateTime(d, n) => Datum::DateTime(*d, *n),
            Datum::Time(t, n) => Datum::Time(*t, *n),
            Datum::Label(n, t) => Datum::Label(*n, Cow::Borrowed(t)),
            Datum::Json(b) => Datum::Json(Cow::Borrowed(b)),
            Datum::Bit(n, length) => Datum::Bit(*n, *length),
        }
    }

    /// As a number; `None` for NULL.
    pub fn number(&self) -> Option<Number> {
        Some(match self {
            Datum::Null => return None,
            Datum::Int(n) => Number::Int(*n),
            Datum::UInt(n) | Datum::Label(n, _) | Datum::Bit(n, _) => Number::UInt(*n),
            Datum::Decimal { unscaled, scale } | Datum::Fine { unscaled, scale, .. } => {
                Number::Decimal(*unscaled, *scale)
            }
            Datum::Double(x) => Number::Double(*x),
            Datum::Text(t) | Datum::Bytes(t) => Number::Double(text_to_f64(t).0),
            Datum::Json(_) => Number::Double(json::double(&json::of_datum(self)).0),
            Datum::Date(d) => {
                let (y, m, d) = unpack_date(*d);
                Number::Int(i64::from(y) * 10_000 + i64::from(m) * 100 + i64::from(d))
            }
            Datum::DateTime(p, decimals) => {
                let c = unpack_datetime(*p);
                let day = i128::from(c.year) * 10_000 + i128::from(c.month) * 100 + i128::from(c.day);
                let clock = i128::from(c.hour) * 10_000 + i128::from(c.minute) * 100 + i128::from(c.second);
                with_fraction(day * 1_000_000 + clock, c.micros, *decimals)
            }
            Datum::Time(t, decimals) => {
                let s = i128::from(t.unsigned_abs() / 1_000_000);
                let whole = s / 3600 * 10_000 + s / 60 % 60 * 100 + s % 60;
                let micros = (t.unsigned_abs() % 1_000_000) as u32;
                match with_fraction(whole, micros, *decimals) {
                    Number::Int(n) if *t < 0 => Number::Int(-n),
                    Number::Decimal(n, s) if *t < 0 => Number::Decimal(-n, s),
                    n => n,
                }
            }
        })
    }

    /// Truth in a condition; `None` for NULL.
    #[inline]
    pub fn truth(&self) -> Option<bool> {
        match self {
            Datum::Null => None,
            Datum::Int(n) => Some(*n != 0),
            Datum::Json(_) => Some(json::truth(&json::of_datum(self))),
            other => other.number().map(|n| !n.is_zero()),
        }
    }

    /// Appends the text form; nothing for NULL.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        match self {
            Datum::Null => {}
            Datum::Int(n) => {
                if *n < 0 {
                    out.push(b'-');
                }
                number::push_u64(out, n.unsigned_abs());
            }
            Datum::UInt(n) => number::push_u64(out, *n),
            Datum::Decimal { unscaled, scale } => decimal::push(out, *unscaled, *scale),
            Datum::Fine { unscaled, scale, shown } => {
                // Fewer digits than there are: it cannot overflow.
                decimal::push(out, decimal::rescale(*unscaled, *scale, *shown).unwrap_or(0), *shown);
            }
            Datum::Double(x) => number::push_f64(out, *x),
            Datum::Text(t) | Datum::Bytes(t) | Datum::Label(_, t) => out.extend_from_slice(t),
            Datum::Json(_) => print::push(out, &json::of_datum(self)),
            Datum::Bit(n, length) => out.extend_from_slice(bits::shown(&n.to_be_bytes(), *length)),
            Datum::Date(d) => {
                let (year, month, day) = unpack_date(*d);
                temporal::push_date(out, &Civil { year, month, day, ..Civil::default() });
            }
            Datum::DateTime(p, decimals) => temporal::push_datetime(out, &unpack_datetime(*p), *decimals),
            Datum::Time(t, decimals) => temporal::push_time(out, *t, *decimals),
        }
    }

    /// The text form; borrowed where it is text already. NULL gives an empty text.
    pub fn as_text(&self) -> Cow<'_, [u8]> {
        match self {
            Datum::Text(t) | Datum::Bytes(t) | Datum::Label(_, t) => Cow::Borrowed(t),
            other => {
                let mut out = Vec::new();
                other.push_text(&mut out);
                Cow::Owned(out)
            }
        }
    }
    pub fn as_string(&self) -> String {
        String::from_utf8_lossy(&self.as_text()).into_owned()
    }

    /// As a moment: dates and times, or numbers and texts that read as one, those with an offset by a clock in `zone`. Any date that a column may
    /// hold is one.
    pub fn civil(&self, zone: Zone) -> Option<Civil> {
        self.civil_of(zone, Dates::WRITTEN)
    }

    /// [`civil`](Self::civil), of these dates. The days of a month are asked of numbers and texts only.
    pub fn civil_of(&self, zone: Zone, dates: Dates) -> Option<Civil> {
        let number = |n| temporal::datetime_from_number(n, dates);
        let held = |c: Civil| (dates.partial || !temporal::is_partial(&c) || c == Civil::default()).then_some(c);
        match self {
            Datum::Date(d) => {
                let (year, month, day) = unpack_date(*d);
                held(Civil { year, month, day, ..Civil::default() })
            }
            Datum::DateTime(p, _) => held(unpack_datetime(*p)),
            Datum::Text(t) | Datum::Bytes(t) | Datum::Label(_, t) => {
                temporal::read_datetime(t, zone, dates).map(|(c, _)| c)
            }
            Datum::Int(n) => number(*n),
            Datum::UInt(n) | Datum::Bit(n, _) => number(i64::try_from(*n).ok()?),
            Datum::Decimal { unscaled, scale } | Datum::Fine { unscaled, scale, .. } => {
                let unit = decimal::power_of_ten(*scale)?;
                let c = number(i64::try_from(unscaled / unit).ok()?)?;
                let has_clock = unscaled / unit > 99_999_999;
                let micros = decimal::truncate(unscaled % unit, *scale, 6).filter(|_| has_clock);
                Some(Civil { micros: micros.map_or(0, |n| n as u32), ..c })
            }
            Datum::Double(_) => number(i64::try_from(self.number()?.to_i128()).ok()?),
            Datum::Json(_) => json::civil(&json::of_datum(self)),
            Datum::Null | Datum::Time(..) => None,
        }
    }

    /// As a duration in microseconds.
    pub fn time(&self, zone: Zone) -> Option<i64> {
        match self {
            Datum::Time(t, _) => Some(*t),
            Datum::DateTime(p, _) => Some(temporal::time_of_day(&unpack_datetime(*p))),
            Datum::Date(_) => Some(0),
            Datum::Json(_) => json::time(&json::of_datum(self)),
            Datum::Null => None,
            Datum::Bit(n, _) => Datum::UInt(*n).time(zone),
            other => temporal::parse_time(&other.as_text(), zone),
        }
    }

    pub fn is_number(&self) -> bool {
        use Datum::*;
        matches!(self, Int(_) | UInt(_) | Decimal { .. } | Fine { .. } | Double(_) | Bit(..))
    }

    pub fn is_text(&self) -> bool {
        matches!(self, Datum::Text(_) | Datum::Bytes(_) | Datum::Label(..))
    }

    /// MySQL's comparison of two values; `None` when one is NULL.
    #[inline]
    pub fn compare(&self, other: &Datum<'_>, collation: Collation) -> Option<Ordering> {
        match (self, other) {
            (Datum::Null, _) | (_, Datum::Null) => None,
            (Datum::Int(a), Datum::Int(b)) => Some(a.cmp(b)),
            (Datum::Json(_), _) | (_, Datum::Json(_)) => {
                Some(compare::compare(&json::of_datum(self), &json::of_datum(other)))
            }
            (Datum::Text(a) | Datum::Label(_, a), Datum::Text(b) | Datum::Label(_, b)) => Some(collation.compare(a, b)),
            (
                Datum::Text(a) | Datum::Bytes(a) | Datum::Label(_, a),
                Datum::Text(b) | Datum::Bytes(b) | Datum::Label(_, b),
            ) => Some(a.as_ref().cmp(b.as_ref())),
            (Datum::Time(a, _), Datum::Time(b, _)) => Some(a.cmp(b)),
            (Datum::Time(a, _), b) if b.is_text() => Some(b.time(Zone::UTC).map_or(Ordering::Greater, |b| a.cmp(&b))),
            (a, Datum::Time(b, _)) if a.is_text() => Some(a.time(Zone::UTC).map_or(Ordering::Less, |a| a.cmp(b))),
            // A number beside a moment is one: 20200102. What is constant beside a column has become a moment before.
            (Datum::Date(_) | Datum::DateTime(..), b) if !b.is_number() && !matches!(b, Datum::Time(..)) => {
                Some(compare_moments(self, b))
            }
            (a, Datum::Date(_) | Datum::DateTime(..)) if !a.is_number() && !matches!(a, Datum::Time(..)) => {
                Some(compare_moments(a, other))
            }
            _ => Some(self.number()?.compare(other.number()?)),
        }
    }
}

fn compare_moments(a: &Datum<'_>, b: &Datum<'_>) -> Ordering {
    // A text that is no date is below every date: never equal, as MySQL's error would have it.
    a.civil(Zone::UTC).map(pack_datetime).cmp(&b.civil(Zone::UTC).map(pack_datetime))
}

fn with_fraction(whole: i128, micros: u32, decimals: u8) -> Number {
    if decimals == 0 {
        return Number::Int(whole as i64);
    }
    let scale = decimals.min(6);
    let fraction = i128::from(micros) / 10i128.pow(u32::from(6 - scale));
    Number::Decimal(whole * 10i128.pow(u32::from(scale)) + fraction, scale)
}

/// Empties a vector of values and keeps its memory for values of another lifetime.
pub fn recycle<'b>(mut values: Vec<Datum<'_>>) -> Vec<Datum<'b>> {
    values.clear();
    // In-place collection: source and target elements have the same layout, so the allocation is kept.
    values.into_iter().map(|_| Datum::Null).collect()
}

pub(crate) type Row = Vec<Datum<'static>>;

pub fn is_binary(ty: apus_types::ColumnType) -> bool {
    use apus_types::ColumnType::*;
    matches!(ty, Binary { .. } | VarBinary { .. } | Blob { .. })
}

pub fn decimals_of(ty: apus_types::ColumnType) -> u8 {
    use apus_types::ColumnType::*;
    match ty {
        DateTime { decimals } | Timestamp { decimals } | Time { decimals } => decimals,
        _ => 0,
    }
}

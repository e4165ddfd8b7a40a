//! Comparisons: texts beside moments and years, IN.

use std::cmp::Ordering;

use apus_types::{collate::Collation, time::pack_datetime};

use super::{arithmetic::exact, note_cut};
use crate::{
    errors::{self, Result},
    expr::{CastType, Context, Expr, Kind, moments},
    value::{datum::Datum, temporal},
};

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
pub(super) fn compare_sides(
    cx: &Context<'_>,
    (a, x): (&Expr, &Datum<'_>),
    (b, y): (&Expr, &Datum<'_>),
    collation: Collation,
) -> Option<Ordering> {
    let is_text = |e: &Expr| matches!(e.column_type(), Some(apus_types::ColumnType::Text { .. }));
    if is_text(a) && y.is_number() || is_text(b) && x.is_number() {
        return x.compare(y, collation);
    }
    if y.is_null() {
        // The left side has been read as a number by then.
        if x.is_text() && !is_text(a) && matches!(b.kind(&[]), Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double)
        {
            note_cut(cx, x);
        }
        return None;
    }
    compare(cx, x, y, collation)
}

/// Whether a column of times is BETWEEN one constant moment and the same, which MySQL takes for `=`: the moment is a time then.
pub(super) fn is_one_moment_beside_times(
    (column, value): (&Expr, &Datum<'_>),
    (low, from): (&Expr, &Datum<'_>),
    (high, to): (&Expr, &Datum<'_>),
) -> bool {
    let is_one = matches!(from, Datum::Date(_) | Datum::DateTime(..)) && from == to;
    let is_of_column = matches!(value, Datum::Time(..)) && column.column_type().is_some();
    is_one && is_of_column && low.is_constant() && high.is_constant()
}

pub(super) fn is_moment(d: &Datum<'_>) -> bool {
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

/// [`CastType::Year`] alone: what a column of years would hold of it. What such a column does not take stays as it is.
pub(super) fn compared_year<'a>(cx: &Context<'_>, value: Datum<'a>) -> Datum<'a> {
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

pub(super) fn eval_in<'a>(
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

//! Values as moments and durations, as functions of time take them, and what is said of those that are none.

use apus_types::time::{Civil, civil_from_unix_micros};

use super::Context;
use crate::{
    errors,
    value::{datum::Datum, temporal},
};

/// [`Datum::civil`]; a time is one of today, and a text of zeros nothing where `sql_mode` forbids it.
pub fn moment(cx: &Context<'_>, value: &Datum<'_>) -> Option<Civil> {
    let Datum::Time(t, _) = value else {
        let read = value.civil(cx.env.zone());
        return read.filter(|c| !is_forbidden(cx, *c) || !value.is_text());
    };
    let today = cx.env.local_now().div_euclid(temporal::MICROS_PER_DAY) * temporal::MICROS_PER_DAY;
    Some(civil_from_unix_micros(today + t))
}

/// [`moment`] where only its day counts: a time that is not of one day goes up to the next midnight first, as in MySQL 9.7.
pub fn day_of(cx: &Context<'_>, value: &Datum<'_>) -> Option<Civil> {
    use temporal::MICROS_PER_DAY as DAY;
    match value {
        Datum::Time(t, n) => {
            let t = t - t % temporal::MICROS_PER_SECOND;
            let t = if (0..DAY).contains(&t) { t } else { -(-t).div_euclid(DAY) * DAY };
            moment(cx, &Datum::Time(t, *n))
        }
        other => moment(cx, other),
    }
}

/// Warns of what is no moment, and of text behind one. A function that asks for a day alone has the same words for both, as in MySQL.
pub fn note_moment(cx: &Context<'_>, value: &Datum<'_>, by_day: bool) {
    if !value.is_text() && !value.is_number() {
        return;
    }
    let text = value.as_text();
    let none =
        || if by_day { errors::truncated_value("date", &text) } else { errors::incorrect_moment("datetime", &text) };
    let warning = match value {
        _ if value.is_text() => match temporal::read_datetime(&text, cx.env.zone()) {
            Some((c, _)) if is_forbidden(cx, c) => Some(none()),
            Some((_, true)) if !by_day && temporal::has_clock(&text) => {
                Some(errors::truncated_value("datetime", &text))
            }
            Some((_, true)) => Some(errors::truncated_value("date", &text)),
            Some((_, false)) => None,
            None => Some(none()),
        },
        Datum::Int(0) | Datum::UInt(0) => None,
        Datum::Int(_) | Datum::UInt(_) => {
            value.civil(cx.env.zone()).is_none().then(|| errors::incorrect_moment("datetime", &text))
        }
        _ => value.civil(cx.env.zone()).is_none().then(none),
    };
    if let Some(warning) = warning {
        cx.env.note(warning);
    }
}

/// [`Datum::time`], which warns of what is no time, and of what was left out of one.
pub fn duration(cx: &Context<'_>, value: &Datum<'_>) -> Option<i64> {
    let (read, whole) = match value {
        Datum::Text(text) | Datum::Bytes(text) => {
            let read = temporal::read_time(text, cx.env.zone());
            (read.map(|t| t.micros), read.is_some_and(|t| !t.cut && !t.beyond))
        }
        Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. } | Datum::Double(_) => {
            let is_beyond = |n: u128| n > 8_385_959 && n < 10_000_000_000;
            let beyond = value.number().is_some_and(|n| is_beyond(n.to_i128().unsigned_abs()));
            let read = if beyond { None } else { value.time(cx.env.zone()) };
            (read, read.is_some())
        }
        other => return other.time(cx.env.zone()),
    };
    if !whole {
        cx.env.note(errors::truncated_value("time", &value.as_text()));
    }
    read
}

/// A date of zeros, by `sql_mode`.
pub fn is_forbidden(cx: &Context<'_>, c: Civil) -> bool {
    c == Default::default() && cx.env.variables.no_zero_date
}

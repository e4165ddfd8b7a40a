//! Values as moments and durations, as functions of time take them, and what is said of those that are none.

use apus_types::time::{Civil, civil_from_unix_micros, pack_date, pack_datetime};

use super::{CastType, Context};
use crate::{
    errors,
    value::{
        datum::Datum,
        temporal::{self, Dates},
    },
};

/// What a function wants to know of a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Parts of it, which may be zero.
    Parts,
    /// How many days it is from others.
    Days,
    /// The day in the calendar.
    Calendar,
}

/// The dates that a function takes.
pub fn dates(cx: &Context<'_>, wanted: Wanted) -> Dates {
    Dates { partial: wanted == Wanted::Parts, any_day: wanted != Wanted::Calendar && cx.env.variables.any_day }
}

/// Whether DATE(), TIMESTAMP() and CAST make a value of this date.
pub fn is_made(cx: &Context<'_>, c: Civil) -> bool {
    let variables = &cx.env.variables;
    if c == Civil::default() {
        !variables.no_zero_date
    } else {
        !variables.no_zero_in_date || !temporal::is_partial(&c)
    }
}

/// Of [`dates`]; a time is one of today. A date of zeros lacks month and day; that of a text is nothing where `sql_mode` forbids it.
pub fn moment(cx: &Context<'_>, value: &Datum<'_>, wanted: Wanted) -> Option<Civil> {
    let Datum::Time(t, _) = value else {
        let read = value.civil_of(cx.env.zone(), dates(cx, wanted));
        let is_none =
            |c: &Civil| *c == Civil::default() && (wanted != Wanted::Parts || is_forbidden(cx, *c) && value.is_text());
        return read.filter(|c| !is_none(c));
    };
    let today = cx.env.local_now().div_euclid(temporal::MICROS_PER_DAY) * temporal::MICROS_PER_DAY;
    Some(civil_from_unix_micros(today + t))
}

/// [`moment`] where only its day counts: a time that is not of one day goes up to the next midnight first, as in MySQL 9.7.
pub fn day_of(cx: &Context<'_>, value: &Datum<'_>, wanted: Wanted) -> Option<Civil> {
    use temporal::MICROS_PER_DAY as DAY;
    match value {
        Datum::Time(t, n) => {
            let t = t - t % temporal::MICROS_PER_SECOND;
            let t = if (0..DAY).contains(&t) { t } else { -(-t).div_euclid(DAY) * DAY };
            moment(cx, &Datum::Time(t, *n), wanted)
        }
        other => moment(cx, other, wanted),
    }
}

/// Warns of what is no moment, and of text behind one. A function that asks for a day alone has the same words for both, as in MySQL.
pub fn note_moment(cx: &Context<'_>, value: &Datum<'_>, by_day: bool, wanted: Wanted) {
    if !value.is_text() && !value.is_number() {
        return;
    }
    let (text, zone, dates) = (value.as_text(), cx.env.zone(), dates(cx, wanted));
    let none =
        || if by_day { errors::truncated_value("date", &text) } else { errors::incorrect_moment("datetime", &text) };
    let warning = match value {
        _ if value.is_text() => match temporal::read_datetime(&text, zone, dates) {
            Some((c, _)) if is_forbidden(cx, c) || wanted != Wanted::Parts && c == Civil::default() => Some(none()),
            Some((_, true)) if !by_day && temporal::has_clock(&text) => {
                Some(errors::truncated_value("datetime", &text))
            }
            Some((_, true)) => Some(errors::truncated_value("date", &text)),
            Some((_, false)) => None,
            None => Some(none()),
        },
        Datum::Int(0) | Datum::UInt(0) => None,
        Datum::Int(_) | Datum::UInt(_) => {
            value.civil_of(zone, dates).is_none().then(|| errors::incorrect_moment("datetime", &text))
        }
        _ => value.civil_of(zone, dates).is_none().then(none),
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

/// CAST to a date or a time, which warns of what is none and of what it leaves out.
pub fn cast<'a>(cx: &Context<'_>, value: Datum<'a>, to: CastType) -> Datum<'a> {
    let text = match &value {
        Datum::Null => return Datum::Null,
        Datum::Text(t) | Datum::Bytes(t) => Some(t.as_ref()),
        _ => None,
    };
    let warn = |kind| cx.env.note(errors::truncated_value(kind, &value.as_text()));
    let cuts = cx.env.variables.cuts_fractions;
    if let CastType::Time(n) = to {
        let read = match &value {
            Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..) => value.time(cx.env.zone()).map(|t| (t, false)),
            other => temporal::read_time(&other.as_text(), cx.env.zone()).map(|t| (t.micros, t.cut || t.beyond)),
        };
        if read.is_none_or(|(_, cut)| cut) {
            warn("time");
        }
        return read.map_or(Datum::Null, |(t, _)| Datum::Time(temporal::fit_micros(t, n, cuts), n));
    }
    let read = match (text, &value) {
        (Some(text), _) => temporal::read_datetime(text, cx.env.zone(), dates(cx, Wanted::Parts)),
        (None, other) if to == CastType::Date => day_of(cx, other, Wanted::Parts).map(|c| (c, false)),
        (None, other) => moment(cx, other, Wanted::Parts).map(|c| (c, false)),
    };
    let read = match read {
        Some((c, _)) if !is_made(cx, c) && matches!(value, Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..)) => {
            return Datum::Null;
        }
        read => read.filter(|(c, _)| is_made(cx, *c)),
    };
    if read.is_none_or(|(_, cut)| cut) {
        warn(if to == CastType::Date { "date" } else { "datetime" });
    }
    let Some((c, _)) = read else { return Datum::Null };
    match to {
        CastType::DateTime(n) => match temporal::fit_datetime(pack_datetime(c), n, cuts) {
            Some(fit) => Datum::DateTime(fit, n),
            None => {
                if !temporal::is_partial(&c) {
                    cx.env.note(errors::no_next_second());
                }
                Datum::Null
            }
        },
        _ if matches!(value, Datum::Date(_)) && c != Default::default() && !dates(cx, Wanted::Parts).have(&c) => {
            Datum::Null
        }
        _ => Datum::Date(pack_date(c.year, c.month, c.day)),
    }
}

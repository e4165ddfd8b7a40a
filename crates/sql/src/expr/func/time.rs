//! Functions over dates and times.

use std::borrow::Cow;

use apus_types::{
    Value,
    time::{Civil, civil_from_unix_micros, pack_date, pack_datetime},
};

use super::{
    calendar::{self, WeekRule},
    clock,
};
use crate::{
    errors::{self, Result},
    expr::{
        Context, Expr, Func, Kind,
        moments::{Wanted, dates, day_of, duration, is_made, moment, note_moment},
    },
    value::{
        datum::{Datum, Number},
        temporal::{self, MICROS_PER_DAY, MICROS_PER_SECOND},
        zone::Zone,
    },
};

/// How many of a function's first arguments are moments.
pub fn moments(f: Func) -> usize {
    use Func::*;
    match f {
        DateDiff | TimestampDiff => 2,
        Date | Time | Timestamp | Year | Quarter | Month | Day | Hour | Minute | Second | Microsecond | DayOfWeek
        | Weekday | DayOfYear | Week | WeekMode | YearWeek | LastDay | DateFormat | ToDays | ToSeconds | DateAdd
        | DateSub | UnixTimestamp | DayName | MonthName | ExtractUnit => 1,
        _ => 0,
    }
}

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    match f {
        Now | Sysdate | UtcTimestamp | CurTime | UtcTime => {
            let decimals = match args.first() {
                Some(e) => e.eval(cx)?.number().map_or(0, |n| n.to_i128().clamp(0, 6) as u8),
                None => 0,
            };
            let zone = if matches!(f, Now | Sysdate | CurTime) { cx.env.zone() } else { Zone::UTC };
            let unit = 10i64.pow(u32::from(6 - decimals));
            let local = zone.local(if f == Sysdate { crate::value::zone::clock() } else { cx.env.now() });
            let local = local - local.rem_euclid(unit);
            Ok(if matches!(f, Now | Sysdate | UtcTimestamp) {
                Datum::DateTime(pack_datetime(civil_from_unix_micros(local)), decimals)
            } else {
                Datum::Time(local.rem_euclid(MICROS_PER_DAY), decimals)
            })
        }
        CurDate | UtcDate => {
            let zone = if f == CurDate { cx.env.zone() } else { Zone::UTC };
            Ok(date(&zone.civil(cx.env.now())))
        }
        UnixTimestamp if args.is_empty() => Ok(Datum::Int(cx.env.now() / MICROS_PER_SECOND)),
        DateAdd | DateSub => {
            let unit = unit_of(args);
            let base = match args[0].eval(cx)? {
                Datum::Time(t, n) if moves_days(&unit) => {
                    Datum::DateTime(pack_datetime(temporal::of_today(cx.env.local_now(), t)), n)
                }
                other => other,
            };
            note_moment(cx, &base, false, Wanted::Calendar);
            add(base, &args[1].eval(cx)?, &unit, f == DateSub, cx)
        }
        TimestampDiff => {
            let (a, b) = (args[0].eval(cx)?, args[1].eval(cx)?);
            [&a, &b].iter().for_each(|value| note_moment(cx, value, false, Wanted::Calendar));
            let (Some(a), Some(b)) = (moment(cx, &a, Wanted::Calendar), moment(cx, &b, Wanted::Calendar)) else {
                return Ok(Datum::Null);
            };
            Ok(Datum::Int(difference(&a, &b, &unit_of(args))))
        }
        DateDiff => {
            let (a, b) = (args[0].eval(cx)?, args[1].eval(cx)?);
            let day = |value: &Datum<'_>| {
                note_moment(cx, value, true, Wanted::Days);
                day_of(cx, value, Wanted::Days)
            };
            let (Some(a), Some(b)) = (day(&a), day(&b)) else {
                return Ok(Datum::Null);
            };
            Ok(Datum::Int(temporal::day_number(&a) - temporal::day_number(&b)))
        }
        FromUnixTime => from_unix_time(args, cx),
        Time => {
            let value = args[0].eval(cx)?;
            let decimals = match &value {
                Datum::Time(_, n) | Datum::DateTime(_, n) => *n,
                Datum::Date(_) => 0,
                _ => digits_of(&args[0], &[]),
            };
            Ok(duration(cx, &value).map_or(Datum::Null, |t| Datum::Time(t, decimals)))
        }
        Hour | Minute | Second | Microsecond => {
            let Some(t) = duration(cx, &args[0].eval(cx)?) else { return Ok(Datum::Null) };
            let t = t.abs();
            Ok(Datum::Int(match f {
                Hour => t / (3600 * MICROS_PER_SECOND),
                Minute => t / (60 * MICROS_PER_SECOND) % 60,
                Second => t / MICROS_PER_SECOND % 60,
                _ => t % MICROS_PER_SECOND,
            }))
        }
        _ => of_moment(f, args, cx),
    }
}

/// Whether a DATE that a column has is one wherever a date is asked for, and not a moment: its month has the day.
fn is_date(c: &Civil, cx: &Context<'_>, wanted: Wanted) -> bool {
    *c == Civil::default() || dates(cx, wanted).have(c)
}

fn date(c: &Civil) -> Datum<'static> {
    Datum::Date(pack_date(c.year, c.month, c.day))
}

fn formatted(c: &Civil, format: &Datum<'_>, cx: &Context<'_>) -> Datum<'static> {
    calendar::format_date(c, &format.as_text(), cx.env.variables.locale).map_or(Datum::Null, Datum::text)
}

fn from_unix_time<'a>(args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let value = args[0].eval(cx)?;
    let Some(n) = value.number() else { return Ok(Datum::Null) };
    let micros = match n {
        Number::Int(n) => n.checked_mul(MICROS_PER_SECOND),
        Number::UInt(n) => i64::try_from(n).ok().and_then(|n| n.checked_mul(MICROS_PER_SECOND)),
        Number::Decimal(n, s) => crate::value::decimal::rescale(n, s, 6).and_then(|n| i64::try_from(n).ok()),
        Number::Double(x) => Some((x * 1e6).round() as i64),
    };
    let Some(micros) = micros.filter(|m| (0..=32_536_771_199 * MICROS_PER_SECOND).contains(m)) else {
        return Ok(Datum::Null);
    };
    let c = cx.env.zone().civil(micros);
    if let Some(format) = args.get(1) {
        let format = format.eval(cx)?;
        return Ok(if format.is_null() { Datum::Null } else { formatted(&c, &format, cx) });
    }
    let decimals = digits_of_value(&value);
    Ok(Datum::DateTime(pack_datetime(c), decimals))
}

/// What a TIMESTAMP column holds: its local time may have been twice.
fn stored_moment(e: &Expr, cx: &Context<'_>) -> Option<i64> {
    let Expr::Column(column) = e else { return None };
    match cx.layout.value(cx.row, column.slot) {
        Value::Timestamp(micros) => Some(micros),
        _ => None,
    }
}

fn of_moment<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    let value = args[0].eval(cx)?;
    let has_clock = matches!(f, Timestamp | UnixTimestamp | ToSeconds | DateFormat);
    let wanted = match f {
        Date | Year | Quarter | Month | Day | MonthName | LastDay | DateFormat | UnixTimestamp => Wanted::Parts,
        Timestamp if args.len() == 1 => Wanted::Parts,
        ToDays => Wanted::Days,
        _ => Wanted::Calendar,
    };
    note_moment(cx, &value, !has_clock, wanted);
    let read = if has_clock { moment(cx, &value, wanted) } else { day_of(cx, &value, wanted) };
    let read = read.filter(|c| match f {
        Date | Timestamp if args.len() == 1 && !is_made(cx, *c) => {
            if value.is_text() || value.is_number() {
                cx.env.note(errors::truncated_value(if has_clock { "datetime" } else { "date" }, &value.as_text()));
            }
            false
        }
        UnixTimestamp => !temporal::is_partial(c),
        Date | DayOfWeek | Weekday | DayOfYear | DayName | Week | WeekMode | YearWeek => {
            !matches!(value, Datum::Date(_)) || is_date(c, cx, wanted)
        }
        _ => true,
    });
    let Some(c) = read else {
        return Ok(match digits_of(&args[0], &[]) {
            _ if f != UnixTimestamp || value.is_null() => Datum::Null,
            0 => Datum::Int(0),
            scale => Datum::Decimal { unscaled: 0, scale },
        });
    };
    let days = temporal::day_number(&c);
    let january_first = temporal::day_number(&Civil { month: 1, day: 1, ..c });
    Ok(match f {
        Date => date(&c),
        Timestamp => {
            let decimals = match value {
                Datum::DateTime(_, n) => n,
                Datum::Date(_) => 0,
                _ => digits_of(&args[0], &[]),
            };
            let Some(added) = args.get(1) else { return Ok(Datum::DateTime(pack_datetime(c), decimals)) };
            let added = added.eval(cx)?;
            match duration(cx, &added).and_then(|t| temporal::add_micros(c, t)) {
                Some(c) => Datum::DateTime(pack_datetime(c), decimals.max(digits_of_value(&added))),
                None => Datum::Null,
            }
        }
        UnixTimestamp => {
            let micros = match stored_moment(&args[0], cx) {
                Some(micros) => micros,
                None => cx.env.zone().moment(c).micros(),
            };
            match value {
                Datum::DateTime(_, n) if n > 0 => {
                    let micros = micros.max(0);
                    Datum::Decimal { unscaled: i128::from(micros / 10i64.pow(u32::from(6 - n.min(6)))), scale: n }
                }
                Datum::Date(_) | Datum::DateTime(..) | Datum::Int(_) => Datum::Int((micros / MICROS_PER_SECOND).max(0)),
                _ if digits_of(&args[0], &[]) == 0 => Datum::Int((micros / MICROS_PER_SECOND).max(0)),
                _ => Datum::Decimal { unscaled: i128::from(micros.max(0)), scale: 6 },
            }
        }
        Year => Datum::UInt(u64::from(c.year)),
        Quarter => Datum::Int((i64::from(c.month) + 2) / 3),
        Month => Datum::Int(i64::from(c.month)),
        Day => Datum::Int(i64::from(c.day)),
        DayOfWeek => Datum::Int((days + 4).rem_euclid(7) + 1),
        Weekday => Datum::Int((days + 3).rem_euclid(7)),
        DayOfYear => Datum::Int(days - january_first + 1),
        Week => Datum::Int(calendar::week(&c, WeekRule::of_mode(3)).1),
        WeekMode | YearWeek => {
            let mode = match args.get(1) {
                Some(e) => e.eval(cx)?.number().map_or(0, |n| n.to_i128() as i64),
                None => 0,
            };
            let rule = WeekRule::of_mode(mode);
            if f == WeekMode {
                return Ok(Datum::Int(calendar::week(&c, rule).1));
            }
            let (year, week) = calendar::week(&c, WeekRule { of_year: true, ..rule });
            Datum::Int(year * 100 + week)
        }
        DayName => Datum::text(cx.env.variables.locale.days[(days + 3).rem_euclid(7) as usize]),
        MonthName => match cx.env.variables.locale.months.get(usize::from(c.month).wrapping_sub(1)) {
            Some(name) => Datum::text(*name),
            None => Datum::Null,
        },
        ToSeconds => {
            let seconds = temporal::time_of_day(&c) / MICROS_PER_SECOND;
            Datum::Int((days + temporal::DAYS_BEFORE_1970) * 86_400 + seconds)
        }
        LastDay if c.month == 0 => {
            cx.env.note(errors::truncated_value("date", &date(&c).as_text()));
            Datum::Null
        }
        LastDay => Datum::Date(pack_date(c.year, c.month, temporal::days_in_month(c.year, c.month))),
        ToDays => Datum::Int(days + temporal::DAYS_BEFORE_1970),
        DateFormat => {
            let format = args[1].eval(cx)?;
            if format.is_null() { Datum::Null } else { formatted(&c, &format, cx) }
        }
        _ => return Err(errors::internal("not a function over dates")),
    })
}

/// Digits of the fraction that a function over this argument declares.
pub fn digits_of(e: &Expr, params: &[Kind]) -> u8 {
    match (e, e.kind(params)) {
        (Expr::Const(d), _) => digits_of_value(d),
        (_, Kind::Time(n) | Kind::DateTime(n)) => n,
        (_, Kind::Decimal(n)) => n.min(6),
        (_, Kind::Int | Kind::UInt | Kind::Bit(_) | Kind::Date | Kind::Null) => 0,
        _ => 6,
    }
}

/// Digits of the fraction that a value has.
pub fn digits_of_value(value: &Datum<'_>) -> u8 {
    match value {
        Datum::Text(t) | Datum::Bytes(t) => {
            let fraction = t.iter().position(|b| *b == b'.').map_or(&[][..], |at| &t[at + 1..]);
            fraction.iter().take(6).take_while(|b| b.is_ascii_digit()).count() as u8
        }
        Datum::Double(_) => 6,
        other => other.shown_scale().min(6),
    }
}

/// Unit of DATE_ADD and its kin: their third argument.
pub fn unit_of(args: &[Expr]) -> String {
    match args.get(2) {
        Some(Expr::Const(d)) => d.as_string(),
        _ => String::new(),
    }
}

/// Units that INTERVAL takes: micros or months of one, and whether it has a time of day.
fn unit_size(unit: &str) -> Option<(i64, i64, bool)> {
    Some(match unit {
        "microsecond" => (1, 0, true),
        "second" => (MICROS_PER_SECOND, 0, true),
        "minute" => (60 * MICROS_PER_SECOND, 0, true),
        "hour" => (3600 * MICROS_PER_SECOND, 0, true),
        "day" => (MICROS_PER_DAY, 0, false),
        "week" => (7 * MICROS_PER_DAY, 0, false),
        "month" => (0, 1, false),
        "quarter" => (0, 3, false),
        "year" => (0, 12, false),
        // Of compound units the value decides.
        "year_month" => (0, 0, false),
        "day_hour" | "day_minute" | "day_second" | "day_microsecond" | "hour_minute" | "hour_second"
        | "hour_microsecond" | "minute_second" | "minute_microsecond" | "second_microsecond" => (0, 0, true),
        _ => return None,
    })
}
pub fn is_unit(unit: &str) -> bool {
    unit_size(unit).is_some()
}
pub fn is_compound(unit: &str) -> bool {
    matches!(unit_size(unit), Some((0, 0, _)))
}

/// Whether an interval of this unit moves days: a time plus it is a moment, of today.
fn moves_days(unit: &str) -> bool {
    ["day", "week", "month", "quarter", "year"].iter().any(|u| unit.starts_with(u))
}

pub fn date_add_kind(base: Kind, unit: &str) -> Kind {
    let clock = unit_size(unit).is_some_and(|u| u.2);
    let digits = if unit.ends_with("microsecond") { 6 } else { 0 };
    match base {
        Kind::Date if clock => Kind::DateTime(digits),
        Kind::Date => Kind::Date,
        Kind::DateTime(n) => Kind::DateTime(n.max(digits)),
        Kind::Time(n) if moves_days(unit) => Kind::DateTime(n.max(digits)),
        Kind::Time(n) => Kind::Time(n.max(digits)),
        _ => Kind::Text,
    }
}

fn add<'a>(base: Datum<'a>, count: &Datum<'_>, unit: &str, subtract: bool, cx: &Context<'_>) -> Result<Datum<'a>> {
    let Some((mut micros, mut months, clock)) = unit_size(unit) else { return Ok(Datum::Null) };
    let n = if is_compound(unit) && !count.is_null() {
        let Some(parts) = clock::compound_interval(count, unit) else { return Ok(Datum::Null) };
        (months, micros) = parts;
        Some(Number::Int(1))
    } else {
        count.number()
    };
    let Some(n) = n else { return Ok(Datum::Null) };
    let whole = |n: Number| i64::try_from(n.to_i128()).ok().map(|n| if subtract { -n } else { n });
    // Seconds may have a fraction.
    let delta = match n {
        Number::Decimal(..) | Number::Double(_) if unit == "second" => {
            let micros = (n.to_f64() * 1e6).round() as i64;
            Some(if subtract { -micros } else { micros })
        }
        n => whole(n).and_then(|n| n.checked_mul(micros)),
    };
    let fraction_unit =
        unit.ends_with("microsecond") || matches!(n, Number::Decimal(..) | Number::Double(_)) && unit == "second";
    if let (Datum::Time(t, decimals), Some(delta), true) = (&base, delta, months == 0) {
        let digits = if fraction_unit { 6 } else { *decimals };
        return Ok(t
            .checked_add(delta)
            .map_or(Datum::Null, |t| Datum::Time(t.clamp(-temporal::TIME_MAX, temporal::TIME_MAX), digits)));
    }
    let read = base.civil_of(cx.env.zone(), dates(cx, Wanted::Calendar));
    let is_asked = |c: &Civil| {
        !temporal::is_partial(c) && (clock || !matches!(base, Datum::Date(_)) || is_date(c, cx, Wanted::Calendar))
    };
    let Some(c) = read.filter(is_asked) else { return Ok(Datum::Null) };
    let moved = if months != 0 {
        // Years keep the day that the month does not have.
        let is_kept = unit == "year" && c.day > temporal::days_in_month(c.year, c.month);
        let moved = whole(n).and_then(|n| n.checked_mul(months)).and_then(|m| temporal::add_months(c, m));
        moved.filter(|_| !is_kept)
    } else {
        delta.and_then(|d| temporal::add_micros(c, d))
    };
    let Some(moved) = moved else { return Ok(Datum::Null) };
    let digits = if fraction_unit { 6 } else { 0 };
    Ok(match base {
        Datum::Date(_) if !clock => date(&moved),
        Datum::Date(_) => Datum::DateTime(pack_datetime(moved), digits),
        Datum::DateTime(_, n) => Datum::DateTime(pack_datetime(moved), n.max(digits)),
        _ => {
            let mut out = Vec::new();
            let only_date =
                !clock && c.hour == 0 && c.minute == 0 && c.second == 0 && c.micros == 0 && base.as_text().len() <= 10;
            if only_date {
                temporal::push_date(&mut out, &moved);
            } else {
                temporal::push_datetime(&mut out, &moved, if moved.micros > 0 { 6 } else { 0 });
            }
            Datum::Text(Cow::Owned(out))
        }
    })
}

/// `b - a` in whole units.
fn difference(a: &Civil, b: &Civil, unit: &str) -> i64 {
    let Some((micros, months, _)) = unit_size(unit) else { return 0 };
    let micros_of = |c: &Civil| temporal::day_number(c) * MICROS_PER_DAY + temporal::time_of_day(c);
    let (from, to) = (micros_of(a), micros_of(b));
    if micros > 0 {
        return (to - from) / micros;
    }
    let (early, late) = if from <= to { (a, b) } else { (b, a) };
    let mut count =
        (i64::from(late.year) - i64::from(early.year)) * 12 + i64::from(late.month) - i64::from(early.month);
    let rest = |c: &Civil| (c.day, temporal::time_of_day(c));
    if rest(late) < rest(early) {
        count -= 1;
    }
    let count = count / months;
    if from <= to { count } else { -count }
}

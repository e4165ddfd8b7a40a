//! Functions over dates and times.

use std::borrow::Cow;

use apus_types::time::{Civil, civil_from_unix_micros, pack_date, pack_datetime, unix_micros_from_civil};

use super::{
    Context, Datum, Expr, Func, Kind,
    datum::Number,
    temporal::{self, MICROS_PER_DAY, MICROS_PER_SECOND},
};
use crate::engine::errors::{self, Result};

pub(super) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    match f {
        Now | UtcTimestamp | CurTime | UtcTime => {
            let decimals = match args.first() {
                Some(e) => e.eval(cx)?.number().map_or(0, |n| n.to_i128().clamp(0, 6) as u8),
                None => 0,
            };
            let zone = if matches!(f, Now | CurTime) { cx.env.zone() } else { 0 };
            let unit = 10i64.pow(u32::from(6 - decimals));
            let local = cx.env.now() + zone;
            let local = local - local.rem_euclid(unit);
            Ok(if matches!(f, Now | UtcTimestamp) {
                Datum::DateTime(pack_datetime(civil_from_unix_micros(local)), decimals)
            } else {
                Datum::Time(local.rem_euclid(MICROS_PER_DAY), decimals)
            })
        }
        CurDate | UtcDate => {
            let zone = if f == CurDate { cx.env.zone() } else { 0 };
            Ok(date(&civil_from_unix_micros(cx.env.now() + zone)))
        }
        UnixTimestamp if args.is_empty() => Ok(Datum::Int(cx.env.now() / MICROS_PER_SECOND)),
        DateAdd | DateSub => add(args[0].eval(cx)?, &args[1].eval(cx)?, &unit_of(args), f == DateSub),
        TimestampDiff => {
            let (Some(a), Some(b)) = (args[0].eval(cx)?.civil(), args[1].eval(cx)?.civil()) else {
                return Ok(Datum::Null);
            };
            Ok(Datum::Int(difference(&a, &b, &unit_of(args))))
        }
        DateDiff => {
            let (Some(a), Some(b)) = (args[0].eval(cx)?.civil(), args[1].eval(cx)?.civil()) else {
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
                _ => 6,
            };
            Ok(value.time().map_or(Datum::Null, |t| Datum::Time(t, decimals)))
        }
        Hour | Minute | Second | Microsecond => {
            let Some(t) = args[0].eval(cx)?.time() else { return Ok(Datum::Null) };
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

fn date(c: &Civil) -> Datum<'static> {
    Datum::Date(pack_date(c.year, c.month, c.day))
}

fn from_unix_time<'a>(args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let value = args[0].eval(cx)?;
    let Some(n) = value.number() else { return Ok(Datum::Null) };
    let micros = match n {
        Number::Int(n) => n.checked_mul(MICROS_PER_SECOND),
        Number::UInt(n) => i64::try_from(n).ok().and_then(|n| n.checked_mul(MICROS_PER_SECOND)),
        Number::Decimal(n, s) => super::decimal::rescale(n, s, 6).and_then(|n| i64::try_from(n).ok()),
        Number::Double(x) => Some((x * 1e6).round() as i64),
    };
    let Some(micros) = micros.filter(|m| (0..=32_536_771_199 * MICROS_PER_SECOND).contains(m)) else {
        return Ok(Datum::Null);
    };
    let c = civil_from_unix_micros(micros + cx.env.zone());
    if let Some(format) = args.get(1) {
        let format = format.eval(cx)?;
        return Ok(if format.is_null() { Datum::Null } else { Datum::text(format_date(&c, &format.as_text())) });
    }
    let decimals = if matches!(n, Number::Int(_) | Number::UInt(_)) { 0 } else { 6 };
    Ok(Datum::DateTime(pack_datetime(c), decimals))
}

fn of_moment<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    let value = args[0].eval(cx)?;
    let Some(c) = value.civil() else { return Ok(Datum::Null) };
    let days = temporal::day_number(&c);
    let january_first = temporal::day_number(&Civil { month: 1, day: 1, ..c });
    Ok(match f {
        Date => date(&c),
        Timestamp => {
            let decimals = match value {
                Datum::DateTime(_, n) => n,
                Datum::Date(_) => 0,
                _ => 6,
            };
            Datum::DateTime(pack_datetime(c), decimals)
        }
        UnixTimestamp => {
            let micros = unix_micros_from_civil(c) - cx.env.zone();
            match value {
                Datum::DateTime(_, n) if n > 0 => {
                    Datum::Decimal { unscaled: i128::from(micros / 10i64.pow(u32::from(6 - n.min(6)))), scale: n }
                }
                Datum::Date(_) | Datum::DateTime(..) | Datum::Int(_) => Datum::Int((micros / MICROS_PER_SECOND).max(0)),
                _ => Datum::Decimal { unscaled: i128::from(micros), scale: 6 },
            }
        }
        Year => Datum::Int(i64::from(c.year)),
        Quarter => Datum::Int((i64::from(c.month) + 2) / 3),
        Month => Datum::Int(i64::from(c.month)),
        Day => Datum::Int(i64::from(c.day)),
        DayOfWeek => Datum::Int((days + 4).rem_euclid(7) + 1),
        Weekday => Datum::Int((days + 3).rem_euclid(7)),
        DayOfYear => Datum::Int(days - january_first + 1),
        Week => Datum::Int(iso_week(days).1),
        LastDay => Datum::Date(pack_date(c.year, c.month, temporal::days_in_month(c.year, c.month))),
        ToDays => Datum::Int(days + 719_528),
        DateFormat => {
            let format = args[1].eval(cx)?;
            if format.is_null() { Datum::Null } else { Datum::text(format_date(&c, &format.as_text())) }
        }
        _ => return Err(errors::internal("not a function over dates")),
    })
}

/// ISO 8601 year and week of a day number.
fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, ..) = apus_types::time::civil_from_days(thursday);
    let first = apus_types::time::days_from_civil(year, 1, 1);
    (year, (thursday - first) / 7 + 1)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

fn format_date(c: &Civil, format: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let format = String::from_utf8_lossy(format);
    let mut chars = format.chars();
    let hour12 = (c.hour + 11) % 12 + 1;
    let half = if c.hour < 12 { "AM" } else { "PM" };
    let days = temporal::day_number(c);
    let weekday = (days + 3).rem_euclid(7) as usize;
    let month = MONTHS.get(usize::from(c.month).wrapping_sub(1)).copied().unwrap_or("");
    while let Some(ch) = chars.next() {
        if ch != '%' {
            out.push(ch);
            continue;
        }
        let Some(code) = chars.next() else { break };
        let written = match code {
            'Y' => write!(out, "{:04}", c.year),
            'y' => write!(out, "{:02}", c.year % 100),
            'm' => write!(out, "{:02}", c.month),
            'c' => write!(out, "{}", c.month),
            'd' => write!(out, "{:02}", c.day),
            'e' => write!(out, "{}", c.day),
            'D' => {
                let suffix = match c.day {
                    1 | 21 | 31 => "st",
                    2 | 22 => "nd",
                    3 | 23 => "rd",
                    _ => "th",
                };
                write!(out, "{}{suffix}", c.day)
            }
            'H' => write!(out, "{:02}", c.hour),
            'k' => write!(out, "{}", c.hour),
            'h' | 'I' => write!(out, "{hour12:02}"),
            'l' => write!(out, "{hour12}"),
            'i' => write!(out, "{:02}", c.minute),
            's' | 'S' => write!(out, "{:02}", c.second),
            'f' => write!(out, "{:06}", c.micros),
            'p' => write!(out, "{half}"),
            'T' => write!(out, "{:02}:{:02}:{:02}", c.hour, c.minute, c.second),
            'r' => write!(out, "{hour12:02}:{:02}:{:02} {half}", c.minute, c.second),
            'M' => write!(out, "{month}"),
            'b' => write!(out, "{}", month.get(..3).unwrap_or("")),
            'W' => write!(out, "{}", DAYS[weekday]),
            'a' => write!(out, "{}", &DAYS[weekday][..3]),
            'w' => write!(out, "{}", (weekday + 1) % 7),
            'j' => write!(out, "{:03}", days - temporal::day_number(&Civil { month: 1, day: 1, ..*c }) + 1),
            'v' => write!(out, "{:02}", iso_week(days).1),
            'x' => write!(out, "{:04}", iso_week(days).0),
            other => write!(out, "{other}"),
        };
        if written.is_err() {
            break;
        }
    }
    out
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
        _ => return None,
    })
}
pub fn is_unit(unit: &str) -> bool {
    unit_size(unit).is_some()
}

pub fn date_add_kind(base: Kind, unit: &str) -> Kind {
    let clock = unit_size(unit).is_some_and(|u| u.2);
    let digits = if unit == "microsecond" { 6 } else { 0 };
    match base {
        Kind::Date if clock => Kind::DateTime(digits),
        Kind::Date => Kind::Date,
        Kind::DateTime(n) => Kind::DateTime(n.max(digits)),
        Kind::Time(n) => Kind::Time(n.max(digits)),
        _ => Kind::Text,
    }
}

fn add<'a>(base: Datum<'a>, count: &Datum<'_>, unit: &str, subtract: bool) -> Result<Datum<'a>> {
    let (Some((micros, months, clock)), Some(n)) = (unit_size(unit), count.number()) else { return Ok(Datum::Null) };
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
        unit == "microsecond" || matches!(n, Number::Decimal(..) | Number::Double(_)) && unit == "second";
    if let (Datum::Time(t, decimals), Some(delta), true) = (&base, delta, months == 0) {
        let digits = if fraction_unit { 6 } else { *decimals };
        return Ok(t
            .checked_add(delta)
            .map_or(Datum::Null, |t| Datum::Time(t.clamp(-temporal::TIME_MAX, temporal::TIME_MAX), digits)));
    }
    let Some(c) = base.civil().filter(temporal::is_valid) else { return Ok(Datum::Null) };
    let moved = if months != 0 {
        whole(n).and_then(|n| n.checked_mul(months)).and_then(|m| temporal::add_months(c, m))
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
    let (from, to) = (unix_micros_from_civil(*a), unix_micros_from_civil(*b));
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

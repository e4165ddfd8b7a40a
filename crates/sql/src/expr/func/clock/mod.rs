//! Functions that make, take apart and convert dates and times; STR_TO_DATE.

pub mod str_to_date;

use std::borrow::Cow;

use apus_types::time::{Civil, civil_from_days, days_from_civil, pack_date, pack_datetime, unix_micros_from_civil};

use self::str_to_date::{parse, parsed_kind};
use super::{calendar, time};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func, Kind, moments},
    value::{
        datum::{Datum, Number},
        decimal,
        temporal::{self, Dates, MICROS_PER_DAY, MICROS_PER_SECOND},
        zone::Zone,
    },
};

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    let values = args.iter().map(|e| e.eval(cx)).collect::<Result<Vec<_>>>()?;
    if values.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let int =
        |i: usize| values.get(i).and_then(Datum::number).map_or(0, |n| n.to_i128().clamp(-(1 << 60), 1 << 60) as i64);
    let digits = |i: usize| time::digits_of_value(&values[i]);
    Ok(match f {
        FromDays => date_of_day(int(0)),
        MakeDate => {
            let (year, day) = (int(0), int(1));
            let year = match year {
                0..70 => year + 2000,
                70..100 => year + 1900,
                y => y,
            };
            if !(0..=9999).contains(&year) || !(1..=4_000_000).contains(&day) {
                return Ok(Datum::Null);
            }
            date_of_day(days_from_civil(year, 1, 1) + day - 1 + temporal::DAYS_BEFORE_1970)
        }
        PeriodAdd | PeriodDiff => {
            let name = if f == PeriodAdd { "period_add" } else { "period_diff" };
            let months = |i: usize| months_of_period(int(i)).ok_or_else(|| errors::wrong_arguments(name));
            if f == PeriodDiff {
                return Ok(Datum::Int(months(0)? - months(1)?));
            }
            let sum = (months(0)? + int(1).clamp(-(1 << 40), 1 << 40)).max(0);
            let year = match sum / 12 {
                year @ 0..70 => year + 2000,
                year @ 70..100 => year + 1900,
                year => year,
            };
            Datum::Int(year * 100 + sum % 12 + 1)
        }
        ConvertTz => {
            let zone = |i: usize| Zone::parse(&values[i].as_string());
            moments::note_moment(cx, &values[0], false, moments::Wanted::Calendar);
            let read = values[0].civil_of(cx.env.zone(), moments::dates(cx, moments::Wanted::Calendar));
            let (Some(c), Some(from), Some(to)) = (read.filter(|c| !temporal::is_partial(c)), zone(1), zone(2)) else {
                return Ok(Datum::Null);
            };
            let moment = from.moment(c).micros();
            let in_range = (1..=32_536_771_199 * MICROS_PER_SECOND).contains(&moment);
            let c = if in_range { to.civil(moment) } else { c };
            Datum::DateTime(pack_datetime(c), digits(0))
        }
        GetFormat => get_format(&values[0].as_string(), &values[1].as_string()).map_or(Datum::Null, Datum::text),
        MakeTime => {
            let Some(seconds) = values[2].number().and_then(micros_of) else { return Ok(Datum::Null) };
            let (hours, minutes) = (int(0), int(1));
            if !(0..60).contains(&minutes) || !(0..60 * MICROS_PER_SECOND).contains(&seconds) {
                return Ok(Datum::Null);
            }
            let total = (hours.abs().min(1000) * 3600 + minutes * 60) * MICROS_PER_SECOND + seconds;
            let total = temporal::round_micros(total.min(temporal::TIME_MAX), digits(2));
            Datum::Time(if hours < 0 { -total } else { total }, digits(2))
        }
        SecToTime => {
            let Some(micros) = values[0].number().and_then(micros_of) else { return Ok(Datum::Null) };
            Datum::Time(clamped(temporal::round_micros(micros, digits(0)), cx), digits(0))
        }
        TimeToSec => match moments::duration(cx, &values[0]) {
            Some(t) => Datum::Int(t / MICROS_PER_SECOND),
            None => Datum::Null,
        },
        TimeDiff => {
            let (Some(a), Some(b)) = (span(&values[0], cx.env.zone()), span(&values[1], cx.env.zone())) else {
                return Ok(Datum::Null);
            };
            match (a, b) {
                (Span::Time(a), Span::Time(b)) => Datum::Time(clamped(a - b, cx), digits(0).max(digits(1))),
                (Span::Moment(a), Span::Moment(b)) => {
                    let between = unix_micros_from_civil(a) - unix_micros_from_civil(b);
                    Datum::Time(clamped(between, cx), digits(0).max(digits(1)))
                }
                _ => Datum::Null,
            }
        }
        AddTime | SubTime => {
            let (Some(base), Some(Span::Time(delta))) =
                (span(&values[0], cx.env.zone()), span(&values[1], cx.env.zone()))
            else {
                return Ok(Datum::Null);
            };
            if let Span::Moment(c) = base
                && (temporal::is_partial(&c)
                    || values[0].is_text() && !moments::dates(cx, moments::Wanted::Calendar).have(&c))
            {
                if values[0].is_text() {
                    let text = values[0].as_text();
                    let kind = if temporal::has_clock(&text) { "datetime" } else { "date" };
                    cx.env.note(errors::truncated_value(kind, &text));
                }
                return Ok(Datum::Null);
            }
            let delta = if f == SubTime { -delta } else { delta };
            let shown = digits(0).max(digits(1));
            let typed = !matches!(values[0], Datum::Text(_) | Datum::Bytes(_));
            match base {
                Span::Time(t) => in_kind(Datum::Time(clamped(t + delta, cx), shown), typed),
                Span::Moment(c) => match temporal::add_micros(c, delta) {
                    Some(c) => in_kind(Datum::DateTime(pack_datetime(c), shown), typed),
                    None => Datum::Null,
                },
            }
        }
        TimeFormat => match values[0].time(cx.env.zone()) {
            Some(t) => calendar::format_time(t, &values[1].as_text()).map_or(Datum::Null, Datum::text),
            None => Datum::Null,
        },
        StrToDate => {
            let kind = parsed_kind(args.get(1));
            let dates = cx.env.variables.dates_of_columns();
            match parse(&values[0].as_text(), &values[1].as_text(), dates) {
                Some(parsed) if matches!(kind, Kind::Time(_)) || dates.any_day || parsed.is_of_month() => {
                    parsed.datum(kind)
                }
                _ => {
                    let kind = if matches!(kind, Kind::Time(_)) { "time" } else { "datetime" };
                    cx.env.note(errors::wrong_value(kind, &values[0], "str_to_date"));
                    Datum::Null
                }
            }
        }
        ExtractUnit => {
            let unit = values[1].as_string();
            let of_date = unit == "year_month"
                || unit.starts_with("day_") && matches!(&values[0], Datum::Text(t) if reads_as_date(t));
            if of_date {
                moments::note_moment(cx, &values[0], false, moments::Wanted::Parts);
                if moments::moment(cx, &values[0], moments::Wanted::Parts).is_none() {
                    return Ok(Datum::Null);
                }
            }
            extract(&values[0], &unit, cx.env.zone())
        }
        _ => return Err(errors::internal("not a function over times")),
    })
}

/// The date of a day number as TO_DAYS counts; the zero date outside of what there is.
fn date_of_day(day: i64) -> Datum<'static> {
    let (year, month, day) = match day {
        366..=3_652_424 => civil_from_days(day - temporal::DAYS_BEFORE_1970),
        _ => return Datum::Date(0),
    };
    Datum::Date(pack_date(year as u16, month as u8, day as u8))
}

/// `YYMM` or `YYYYMM` in months.
fn months_of_period(period: i64) -> Option<i64> {
    if !(1..1 << 40).contains(&period) || !(1..=12).contains(&(period % 100)) {
        return None;
    }
    let year = match period / 100 {
        year @ 0..70 => year + 2000,
        year @ 70..100 => year + 1900,
        year => year,
    };
    Some(year * 12 + period % 100 - 1)
}

/// Seconds in microseconds.
fn micros_of(n: Number) -> Option<i64> {
    match n {
        Number::Int(n) => n.checked_mul(MICROS_PER_SECOND).or(Some(if n < 0 { i64::MIN / 4 } else { i64::MAX / 4 })),
        Number::UInt(n) => {
            Some(i64::try_from(n).ok().and_then(|n| n.checked_mul(MICROS_PER_SECOND)).unwrap_or(i64::MAX / 4))
        }
        Number::Decimal(n, s) => decimal::rescale(n, s, 6).and_then(|n| i64::try_from(n).ok()),
        Number::Double(x) => Some((x * 1e6).round() as i64).map(|n| n.clamp(i64::MIN / 4, i64::MAX / 4)),
    }
}

/// Inside of what TIME holds, with MySQL's warning.
fn clamped(micros: i64, cx: &Context<'_>) -> i64 {
    let inside = micros.clamp(-temporal::TIME_MAX, temporal::TIME_MAX);
    if inside != micros {
        let mut text = Vec::new();
        temporal::push_time(&mut text, micros, 0);
        cx.env.note(errors::truncated_time(&String::from_utf8_lossy(&text)));
    }
    inside
}

/// What a value is to ADDTIME and TIMEDIFF.
enum Span {
    Time(i64),
    Moment(Civil),
}

fn span(value: &Datum<'_>, zone: Zone) -> Option<Span> {
    match value {
        Datum::Time(t, _) => Some(Span::Time(*t)),
        Datum::Date(_) | Datum::DateTime(..) => value.civil(zone).map(Span::Moment),
        Datum::Text(t) | Datum::Bytes(t) if reads_as_date(t) => {
            temporal::read_datetime(t, zone, Dates::WRITTEN).map(|(c, _)| Span::Moment(c))
        }
        _ => value.time(zone).map(Span::Time),
    }
}

/// Whether a text has the separators or the length of a date.
fn reads_as_date(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    digits >= 12 || digits > 0 && matches!(text.get(digits), Some(b'-' | b'/'))
}

/// Text arguments give a text, with a fraction where there is one.
fn in_kind(value: Datum<'static>, typed: bool) -> Datum<'static> {
    if typed {
        return value;
    }
    let fraction = |micros: i64| if micros % MICROS_PER_SECOND == 0 { 0 } else { 6 };
    Datum::text(match value {
        Datum::Time(t, _) => Datum::Time(t, fraction(t)).as_string(),
        Datum::DateTime(p, _) => {
            let micros = i64::from(apus_types::time::unpack_datetime(p).micros);
            Datum::DateTime(p, fraction(micros)).as_string()
        }
        other => return other,
    })
}

fn get_format(kind: &str, name: &str) -> Option<&'static str> {
    const NAMES: [&str; 5] = ["USA", "JIS", "ISO", "EUR", "INTERNAL"];
    const DATES: [&str; 5] = ["%m.%d.%Y", "%Y-%m-%d", "%Y-%m-%d", "%d.%m.%Y", "%Y%m%d"];
    const TIMES: [&str; 5] = ["%h:%i:%s %p", "%H:%i:%s", "%H:%i:%s", "%H.%i.%s", "%H%i%s"];
    const MOMENTS: [&str; 5] =
        ["%Y-%m-%d %H.%i.%s", "%Y-%m-%d %H:%i:%s", "%Y-%m-%d %H:%i:%s", "%Y-%m-%d %H.%i.%s", "%Y%m%d%H%i%s"];
    let at = NAMES.iter().position(|n| n.eq_ignore_ascii_case(name))?;
    match kind.to_ascii_lowercase().as_str() {
        "date" => Some(DATES[at]),
        "time" => Some(TIMES[at]),
        "datetime" | "timestamp" => Some(MOMENTS[at]),
        _ => None,
    }
}

/// EXTRACT of a unit that joins several fields.
fn extract(value: &Datum<'_>, unit: &str, zone: Zone) -> Datum<'static> {
    if unit == "year_month" {
        return value.civil(zone).map_or(Datum::Null, |c| Datum::Int(i64::from(c.year) * 100 + i64::from(c.month)));
    }
    let (day, t) = match span(value, zone) {
        Some(Span::Time(t)) => (0, t),
        Some(Span::Moment(c)) => (i64::from(c.day), temporal::time_of_day(&c)),
        None => return Datum::Null,
    };
    let (sign, t) = (t.signum(), t.abs());
    let (hours, minutes) = (t / (3600 * MICROS_PER_SECOND), t / (60 * MICROS_PER_SECOND) % 60);
    let (seconds, micros) = (t / MICROS_PER_SECOND % 60, t % MICROS_PER_SECOND);
    let clock = (day * 100 + hours) * 100 + minutes;
    let n = match unit {
        "day_hour" => day * 100 + hours,
        "day_minute" => clock,
        "day_second" => clock * 100 + seconds,
        "day_microsecond" => (clock * 100 + seconds) * 1_000_000 + micros,
        "hour_minute" => hours * 100 + minutes,
        "hour_second" => (hours * 100 + minutes) * 100 + seconds,
        "hour_microsecond" => ((hours * 100 + minutes) * 100 + seconds) * 1_000_000 + micros,
        "minute_second" => minutes * 100 + seconds,
        "minute_microsecond" => (minutes * 100 + seconds) * 1_000_000 + micros,
        "second_microsecond" => seconds * 1_000_000 + micros,
        _ => return Datum::Null,
    };
    Datum::Int(if sign < 0 { -n } else { n })
}

/// An interval of several fields (`'1:30' HOUR_MINUTE`): months and microseconds.
pub fn compound_interval(value: &Datum<'_>, unit: &str) -> Option<(i64, i64)> {
    // Microseconds of each field, the last one first; months for years and months.
    const MICROSECOND: i64 = 1;
    const SECOND: i64 = MICROS_PER_SECOND;
    const SIZES: [i64; 5] = [MICROSECOND, SECOND, 60 * SECOND, 3600 * SECOND, MICROS_PER_DAY];
    let field = |name: &str| ["microsecond", "second", "minute", "hour", "day"].iter().position(|f| *f == name);
    let text = value.as_text();
    let text: Cow<'_, [u8]> = Cow::Borrowed(text.trim_ascii());
    let negative = text.first() == Some(&b'-');
    let numbers: Vec<(i64, usize)> = text
        .split(|b| !b.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| {
            (part.iter().fold(0i64, |n, b| n.saturating_mul(10).saturating_add(i64::from(b - b'0'))), part.len())
        })
        .collect();
    let sizes: Vec<i64> = if unit == "year_month" {
        vec![12, 1]
    } else {
        let (first, last) = unit.split_once('_')?;
        let (first, last) = (field(first)?, field(last)?);
        SIZES[last..=first].iter().rev().copied().collect()
    };
    if numbers.len() > sizes.len() {
        return None;
    }
    let missing = sizes.len() - numbers.len();
    let mut total = 0i64;
    for (size, (n, digits)) in sizes[missing..].iter().zip(&numbers) {
        // What stands for microseconds is a fraction.
        let scale = if *size == MICROSECOND && unit != "year_month" {
            10i64.pow(6u32.saturating_sub(*digits as u32))
        } else {
            1
        };
        total = total.checked_add(n.checked_mul(*size)?.checked_mul(scale)?)?;
    }
    let total = if negative { -total } else { total };
    Some(if unit == "year_month" { (total, 0) } else { (0, total) })
}

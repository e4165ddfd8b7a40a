//! Functions that make, take apart and convert dates and times; STR_TO_DATE.

use std::borrow::Cow;

use apus_types::time::{Civil, civil_from_days, days_from_civil, pack_date, pack_datetime, unix_micros_from_civil};

use super::{calendar, time};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func, Kind, moments},
    value::{
        datum::{Datum, Number},
        decimal, locale,
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

/// What STR_TO_DATE yields, from its format.
pub fn parsed_kind(format: Option<&Expr>) -> Kind {
    let Some(Expr::Const(format)) = format else { return Kind::DateTime(6) };
    let format = format.as_text();
    let codes: Vec<u8> = format.windows(2).filter(|w| w[0] == b'%').map(|w| w[1]).collect();
    let fraction = if codes.contains(&b'f') { 6 } else { 0 };
    let clock = codes.iter().any(|c| b"HhIiklprSsTf".contains(c));
    let day = codes.iter().any(|c| b"MbDdejmcYyUuVvXxWaw".contains(c));
    match (day, clock) {
        (false, true) => Kind::Time(fraction),
        (_, true) => Kind::DateTime(fraction),
        _ => Kind::Date,
    }
}

/// What STR_TO_DATE has read.
#[derive(Default)]
struct Parsed {
    civil: Civil,
    afternoon: Option<bool>,
    half_day: bool,
    day_of_year: Option<i64>,
    /// Monday is 1, Sunday 7.
    weekday: Option<i64>,
    week: Option<(i64, bool, bool)>,
    week_year: Option<(i64, bool)>,
}

impl Parsed {
    fn datum(&self, kind: Kind) -> Datum<'static> {
        let c = self.civil;
        match kind {
            Kind::Time(n) => Datum::Time(temporal::time_of_day(&c), n),
            Kind::Date => Datum::Date(pack_date(c.year, c.month, c.day)),
            Kind::DateTime(n) => Datum::DateTime(pack_datetime(c), n),
            _ => Datum::Null,
        }
    }

    /// The month has this day.
    fn is_of_month(&self) -> bool {
        let Civil { year, month, day, .. } = self.civil;
        month == 0 || day <= temporal::days_in_month(year, month)
    }

    /// Completes the date from the fields that stand for it.
    fn complete(mut self, day_given: bool, dates: Dates) -> Option<Parsed> {
        if self.half_day {
            if !(1..=12).contains(&self.civil.hour) {
                return None;
            }
            self.civil.hour = self.civil.hour % 12 + if self.afternoon == Some(true) { 12 } else { 0 };
        } else if self.afternoon.is_some() {
            return None;
        }
        let mut day = self.day_of_year.map(|n| days_from_civil(i64::from(self.civil.year), 1, 1) + n - 1);
        if let (Some((week, sunday_first, strict)), Some(weekday)) = (self.week, self.weekday) {
            let year = match (strict, self.week_year) {
                (true, Some((year, same))) if same == sunday_first => year,
                (false, None) => i64::from(self.civil.year),
                _ => return None,
            };
            let january_first = days_from_civil(year, 1, 1);
            let starts_on = (january_first + if sunday_first { 4 } else { 3 }).rem_euclid(7);
            let (least, in_week) = if sunday_first { (0, weekday % 7) } else { (3, weekday - 1) };
            let first_week = january_first + if starts_on <= least { 0 } else { 7 } - starts_on;
            day = Some(first_week + (week - 1) * 7 + in_week);
        }
        if let Some(day) = day {
            let (year, month, day) = civil_from_days(day);
            self.civil.year = u16::try_from(year).ok().filter(|y| *y <= 9999)?;
            (self.civil.month, self.civil.day) = (month as u8, day as u8);
        } else if day_given && !dates.partial && temporal::is_partial(&self.civil) {
            return None;
        }
        let c = &self.civil;
        (c.month <= 12 && c.day <= 31 && c.hour < 24 && c.minute < 60 && c.second < 60).then_some(self)
    }
}

/// Takes up to `most` digits.
fn number(text: &mut &[u8], most: usize) -> Option<i64> {
    let digits = text.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    (digits > 0).then(|| number.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
}

/// Takes the name from a list that the text begins with (or its first three letters); its place.
fn name(text: &mut &[u8], names: &[&str], short: bool) -> Option<i64> {
    for (i, name) in names.iter().enumerate() {
        let name = if short { &name[..3] } else { name };
        if text.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name.as_bytes())) {
            *text = &text[name.len()..];
            return Some(i as i64);
        }
    }
    None
}

fn parse(text: &[u8], format: &[u8], dates: Dates) -> Option<Parsed> {
    let mut p = Parsed::default();
    let mut rest = text;
    let mut day_given = false;
    fields(&mut p, &mut rest, format, &mut day_given)?;
    p.complete(day_given, dates)
}

fn fields(p: &mut Parsed, rest: &mut &[u8], format: &[u8], day_given: &mut bool) -> Option<()> {
    let mut at = 0;
    while let Some(&b) = format.get(at) {
        at += 1;
        if b != b'%' || at == format.len() {
            if b.is_ascii_whitespace() {
                *rest = rest.trim_ascii_start();
            } else if rest.first() == Some(&b) {
                *rest = &rest[1..];
            } else {
                return None;
            }
            continue;
        }
        let code = format[at];
        at += 1;
        *rest = rest.trim_ascii_start();
        *day_given |= b"YymcMbdeD".contains(&code);
        field(p, rest, code, day_given)?;
    }
    Some(())
}

fn field(p: &mut Parsed, rest: &mut &[u8], code: u8, day_given: &mut bool) -> Option<()> {
    let c = &mut p.civil;
    match code {
        b'Y' | b'y' => {
            let digits = rest.iter().take(if code == b'Y' { 4 } else { 2 }).take_while(|b| b.is_ascii_digit()).count();
            let year = number(rest, digits.max(1))?;
            c.year = (year
                + if digits > 2 {
                    0
                } else if year < 70 {
                    2000
                } else {
                    1900
                }) as u16;
        }
        b'm' | b'c' => c.month = u8::try_from(number(rest, 2)?).ok()?,
        b'M' | b'b' => c.month = name(rest, &locale::english().months, code == b'b')? as u8 + 1,
        b'd' | b'e' => c.day = u8::try_from(number(rest, 2)?).ok()?,
        b'D' => {
            c.day = u8::try_from(number(rest, 2)?).ok()?;
            *rest = rest.get(2..).unwrap_or(&[]);
        }
        b'H' | b'k' => c.hour = u8::try_from(number(rest, 2)?).ok()?,
        b'h' | b'I' | b'l' => {
            c.hour = u8::try_from(number(rest, 2)?).ok()?;
            p.half_day = true;
        }
        b'i' => c.minute = u8::try_from(number(rest, 2)?).ok()?,
        b's' | b'S' => c.second = u8::try_from(number(rest, 2)?).ok()?,
        b'f' => {
            let before = rest.len();
            let n = number(rest, 6)?;
            c.micros = (n * 10i64.pow(6 - (before - rest.len()) as u32)) as u32;
        }
        b'p' => p.afternoon = Some(name(rest, &["AM", "PM"], false)? == 1),
        b'W' | b'a' => p.weekday = Some(name(rest, &locale::english().days, code == b'a')? + 1),
        b'w' => {
            let n = number(rest, 1).filter(|n| *n < 7)?;
            p.weekday = Some(if n == 0 { 7 } else { n });
        }
        b'j' => p.day_of_year = Some(number(rest, 3).filter(|n| (1..=366).contains(n))?),
        b'U' | b'u' | b'V' | b'v' => {
            let week = number(rest, 2).filter(|n| *n <= 53)?;
            let strict = matches!(code, b'V' | b'v');
            if strict && week == 0 {
                return None;
            }
            p.week = Some((week, matches!(code, b'U' | b'V'), strict));
        }
        b'X' | b'x' => p.week_year = Some((number(rest, 4)?, code == b'X')),
        b'T' => fields(p, rest, b"%H:%i:%S", day_given)?,
        b'r' => fields(p, rest, b"%I:%i:%S %p", day_given)?,
        b'.' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_punctuation()).count()..],
        b'@' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_alphabetic()).count()..],
        b'#' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_digit()).count()..],
        other if rest.first() == Some(&other) => *rest = &rest[1..],
        _ => return None,
    }
    Some(())
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

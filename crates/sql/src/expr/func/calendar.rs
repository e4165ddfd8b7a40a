//! The calendar as DATE_FORMAT, WEEK and their kin see it.

use apus_types::time::Civil;

use crate::value::{
    locale::Locale,
    temporal::{self, MICROS_PER_SECOND},
};

/// How weeks are counted.
#[derive(Clone, Copy, Debug)]
pub struct WeekRule {
    pub monday_first: bool,
    /// Days before the first week belong to the last year's last one, instead of week 0.
    pub of_year: bool,
    /// The first week is the first that begins in the year, instead of the first with four days in it.
    pub whole_first: bool,
}

impl WeekRule {
    /// The `mode` of WEEK().
    pub fn of_mode(mode: i64) -> WeekRule {
        let monday_first = mode & 1 != 0;
        WeekRule { monday_first, of_year: mode & 2 != 0, whole_first: (mode & 4 != 0) == monday_first }
    }
}

/// Year and week of a date.
pub fn week(c: &Civil, rule: WeekRule) -> (i64, i64) {
    let days_in = |year: i64| if temporal::days_in_month(year.rem_euclid(10_000) as u16, 2) == 29 { 366 } else { 365 };
    let day = temporal::day_number(c);
    let mut first = temporal::day_number(&Civil { month: 1, day: 1, ..*c });
    let mut weekday = (first + if rule.monday_first { 3 } else { 4 }).rem_euclid(7);
    let mut year = i64::from(c.year);
    let mut of_year = rule.of_year;
    let late = |weekday: i64| if rule.whole_first { weekday != 0 } else { weekday >= 4 };
    if c.month == 1 && i64::from(c.day) <= 7 - weekday {
        if !of_year && late(weekday) {
            return (year, 0);
        }
        if late(weekday) {
            of_year = true;
            year -= 1;
            first -= days_in(year);
            weekday = (weekday + 53 * 7 - days_in(year)).rem_euclid(7);
        }
    }
    let days = day - if late(weekday) { first + 7 - weekday } else { first - weekday };
    // Without a sign, as MySQL has it: a month of zero is before the first week.
    let days = days as u32;
    if of_year && days >= 52 * 7 {
        let next = (weekday + days_in(year)) % 7;
        if !late(next) {
            return (year + 1, 1);
        }
    }
    (year, i64::from(days / 7) + 1)
}

/// DATE_FORMAT; `None` where a field has no name (a month of zero).
pub fn format_date(c: &Civil, format: &[u8], locale: &Locale) -> Option<String> {
    format_moment(c, u64::from(c.hour), Some(locale), format)
}

/// TIME_FORMAT; `None` where the format asks for a date.
pub fn format_time(t: i64, format: &[u8]) -> Option<String> {
    let total = t.unsigned_abs();
    let seconds = total / MICROS_PER_SECOND as u64;
    let c = Civil {
        minute: (seconds / 60 % 60) as u8,
        second: (seconds % 60) as u8,
        micros: (total % MICROS_PER_SECOND as u64) as u32,
        ..Civil::default()
    };
    let text = format_moment(&c, seconds / 3600, None, format)?;
    Some(if t < 0 { format!("-{text}") } else { text })
}

/// Of a time alone without a locale.
fn format_moment(c: &Civil, hours: u64, locale: Option<&Locale>, format: &[u8]) -> Option<String> {
    use std::fmt::Write;
    if format.is_empty() {
        return None;
    }
    let mut out = String::new();
    let format = String::from_utf8_lossy(format);
    let mut chars = format.chars();
    let hour12 = (hours % 24 + 11) % 12 + 1;
    let half = if hours % 24 < 12 { "AM" } else { "PM" };
    let time_only = locale.is_none();
    let has_day = !time_only && (c.month > 0 || c.year > 0);
    let day = || has_day.then(|| temporal::day_number(c));
    let weekday = || day().map(|n| (n + 3).rem_euclid(7) as usize);
    let month = |of: fn(&Locale) -> &[&'static str; 12]| of(locale?).get(usize::from(c.month).wrapping_sub(1)).copied();
    let in_week = |monday_first, of_year| {
        let rule = WeekRule { monday_first, of_year, whole_first: !monday_first };
        (!time_only).then(|| week(c, rule))
    };
    while let Some(ch) = chars.next() {
        if ch != '%' {
            out.push(ch);
            continue;
        }
        let Some(code) = chars.next() else {
            out.push('%');
            break;
        };
        let written = match code {
            'Y' => write!(out, "{:04}", c.year),
            'y' => write!(out, "{:02}", c.year % 100),
            'm' => write!(out, "{:02}", c.month),
            'c' => write!(out, "{}", c.month),
            'd' => write!(out, "{:02}", c.day),
            'e' => write!(out, "{}", c.day),
            'D' if time_only => return None,
            'D' => {
                let suffix = match c.day {
                    1 | 21 | 31 => "st",
                    2 | 22 => "nd",
                    3 | 23 => "rd",
                    _ => "th",
                };
                write!(out, "{}{suffix}", c.day)
            }
            'H' => write!(out, "{hours:02}"),
            'k' => write!(out, "{hours}"),
            'h' | 'I' => write!(out, "{hour12:02}"),
            'l' => write!(out, "{hour12}"),
            'i' => write!(out, "{:02}", c.minute),
            's' | 'S' => write!(out, "{:02}", c.second),
            'f' => write!(out, "{:06}", c.micros),
            'p' => write!(out, "{half}"),
            'T' => write!(out, "{hours:02}:{:02}:{:02}", c.minute, c.second),
            'r' => write!(out, "{hour12:02}:{:02}:{:02} {half}", c.minute, c.second),
            'M' => write!(out, "{}", month(|l| &l.months)?),
            'b' => write!(out, "{}", month(|l| &l.short_months)?),
            'W' => write!(out, "{}", locale?.days[weekday()?]),
            'a' => write!(out, "{}", locale?.short_days[weekday()?]),
            'w' => write!(out, "{}", (weekday()? + 1) % 7),
            'j' => {
                let first = temporal::day_number(&Civil { month: 1, day: 1, ..*c });
                write!(out, "{:03}", (!time_only).then(|| temporal::day_number(c))? - first + 1)
            }
            'U' => write!(out, "{:02}", in_week(false, false)?.1),
            'u' => write!(out, "{:02}", in_week(true, false)?.1),
            'V' => write!(out, "{:02}", in_week(false, true)?.1),
            'v' => write!(out, "{:02}", in_week(true, true)?.1),
            'X' => write!(out, "{:04}", in_week(false, true)?.0),
            'x' => write!(out, "{:04}", in_week(true, true)?.0),
            other => write!(out, "{other}"),
        };
        written.ok()?;
    }
    Some(out)
}

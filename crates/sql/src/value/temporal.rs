//! Dates and times: parsing of MySQL's relaxed formats, printing, arithmetic.

use apus_types::time::{
    Civil, civil_from_days, civil_from_unix_micros, days_from_civil, pack_datetime, unix_micros_from_civil,
    unpack_datetime,
};

use super::zone::{Moment, Zone};

/// What TO_DAYS gives for 1970-01-01.
pub const DAYS_BEFORE_1970: i64 = 719_528;
pub const MICROS_PER_SECOND: i64 = 1_000_000;
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// MySQL's longest TIME, 838:59:59, in microseconds.
pub const TIME_MAX: i64 = (838 * 3600 + 59 * 60 + 59) * MICROS_PER_SECOND;

/// A time as a moment of the day on which `local` is, in microseconds since 1970.
pub fn of_today(local: i64, time: i64) -> Civil {
    civil_from_unix_micros(local.div_euclid(MICROS_PER_DAY) * MICROS_PER_DAY + time)
}

pub fn days_in_month(year: u16, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Which dates a text or a number may say that no calendar has. Of zeros alone is the matter of who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dates {
    /// With a month or a day of zero.
    pub partial: bool,
    /// With a day of up to 31 in every month.
    pub any_day: bool,
}

impl Dates {
    pub const REAL: Dates = Dates { partial: false, any_day: false };
    pub const PARTIAL: Dates = Dates { partial: true, any_day: false };
    /// All that a column may hold.
    pub const WRITTEN: Dates = Dates { partial: true, any_day: true };

    pub fn have(self, c: &Civil) -> bool {
        let days = if self.any_day { 31 } else { days_in_month(c.year, c.month) };
        (self.partial || !is_partial(c))
            && c.month <= 12
            && c.day <= days
            && c.year <= 9999
            && c.hour < 24
            && c.minute < 60
            && c.second < 60
    }
}

/// Whether the month or the day is zero.
pub fn is_partial(c: &Civil) -> bool {
    c.month == 0 || c.day == 0
}

/// Whether the fields name a real moment (zero dates are none).
pub fn is_valid(c: &Civil) -> bool {
    Dates::REAL.have(c)
}

/// Numbers separated by anything that is not a digit.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn next(&mut self) -> Option<(u64, usize)> {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 || digits > 18 {
            return None;
        }
        let value = self.rest[..digits].iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
        self.rest = &self.rest[digits..];
        Some((value, digits))
    }
    fn separator(&mut self, allowed: impl Fn(u8) -> bool) -> bool {
        match self.rest.first() {
            Some(&b) if allowed(b) => {
                self.rest = &self.rest[1..];
                true
            }
            _ => false,
        }
    }
    /// Microseconds after a point, rounded at the seventh digit.
    /// In microseconds, rounded: up to a whole second.
    fn fraction(&mut self) -> u32 {
        if !self.separator(|b| b == b'.') {
            return 0;
        }
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let mut micros = 0u32;
        for i in 0..6 {
            micros = micros * 10 + self.rest.get(i).filter(|_| i < digits).map_or(0, |b| u32::from(b - b'0'));
        }
        if digits > 6 && self.rest[6] >= b'5' {
            micros += 1;
        }
        self.rest = &self.rest[digits..];
        micros
    }
}

fn full_year(year: u64, digits: usize) -> u16 {
    match (digits, year) {
        (..=2, 0..70) => 2000 + year as u16,
        (..=2, _) => 1900 + year as u16,
        _ => year.min(10_000) as u16,
    }
}

/// A date or date with time; `None` for what is no real moment. Zero dates are accepted as MySQL reads them. One that ends with an offset
/// (`2024-07-01 12:00:00+05:30`) is what clocks in `zone` show then.
pub fn parse_datetime(text: &[u8], zone: Zone) -> Option<Civil> {
    read_datetime(text, zone, Dates::REAL).map(|(c, _)| c)
}

/// As [`parse_datetime`], of these dates; the flag says that something stands behind it which is no part of it.
pub fn read_datetime(text: &[u8], zone: Zone, dates: Dates) -> Option<(Civil, bool)> {
    match written_datetime(text, dates)? {
        (c, Some(east), cut) => Some((moved(c, east, zone)?, cut)),
        (c, None, cut) => Some((c, cut)),
    }
}

/// As [`read_datetime`], but as it is written, and its offset in microseconds.
pub fn written_datetime(text: &[u8], dates: Dates) -> Option<(Civil, Option<i64>, bool)> {
    let text = text.trim_ascii();
    let mut fields = Fields { rest: text };
    let (first, digits) = fields.next()?;
    if !matches!(fields.rest.first(), Some(b) if b.is_ascii_punctuation() && *b != b'.') {
        return from_digits(first, digits, &mut fields, dates).map(|(c, cut)| (c, None, cut));
    }
    let mut c = Civil { year: full_year(first, digits), ..Civil::default() };
    let dash = |b: u8| b.is_ascii_punctuation();
    if !fields.separator(dash) {
        return None;
    }
    c.month = u8::try_from(fields.next()?.0).ok()?;
    if !fields.separator(dash) {
        return None;
    }
    c.day = u8::try_from(fields.next()?.0).ok()?;
    if fields.separator(|b| b == b' ' || b == b'T') {
        let with_seconds = clock(&mut fields, &mut c)?;
        if with_seconds && matches!(fields.rest, [b'+' | b'-', ..]) {
            let (c, _) = finish(c, b"", Dates::REAL)?;
            return Some((c, Some(offset(fields.rest)?), false));
        }
    } else if fields.rest.first() == Some(&b'.') {
        return None;
    }
    finish(c, fields.rest, dates).map(|(c, cut)| (c, None, cut))
}

/// Whether a text that reads as a moment has a time of day, and not a date alone.
pub fn has_clock(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.iter().take_while(|b| b.is_ascii_digit()).count() > 8 || text.iter().any(|b| matches!(b, b' ' | b'T'))
}

/// The time of a day; whether it has seconds.
fn clock(fields: &mut Fields<'_>, c: &mut Civil) -> Option<bool> {
    fields.rest = fields.rest.trim_ascii_start();
    c.hour = u8::try_from(fields.next()?.0).ok()?;
    if fields.separator(|b| b == b':') {
        c.minute = u8::try_from(fields.next()?.0).ok()?;
        if fields.separator(|b| b == b':') {
            c.second = u8::try_from(fields.next()?.0).ok()?;
            c.micros = fields.fraction();
            return Some(true);
        }
    }
    Some(false)
}

/// `+05:30`, with all its digits, in microseconds; up to 14 hours in both directions.
fn offset(text: &[u8]) -> Option<i64> {
    let &[sign, h, i, b':', m, n] = text else { return None };
    if ![h, i, m, n].iter().all(u8::is_ascii_digit) || text == b"-00:00" {
        return None;
    }
    let number = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let (minutes, all) = (number(m, n), number(h, i) * 60 + number(m, n));
    let east = if sign == b'-' { -all } else { all };
    (minutes < 60 && all <= 14 * 60).then_some(east * 60 * MICROS_PER_SECOND)
}

/// What clocks in `zone` show when those that are `east` of UTC show `c`.
fn moved(c: Civil, east: i64, zone: Zone) -> Option<Civil> {
    let first = Civil { year: 1, month: 1, day: 1, ..Civil::default() };
    let behind = Civil { year: 10_000, ..first };
    let local = zone.local(unix_micros_from_civil(c) - east);
    (unix_micros_from_civil(first)..unix_micros_from_civil(behind))
        .contains(&local)
        .then(|| civil_from_unix_micros(local))
}

fn finish(c: Civil, rest: &[u8], dates: Dates) -> Option<(Civil, bool)> {
    let zero = c == Civil::default();
    let second = Civil { micros: c.micros % MICROS_PER_SECOND as u32, ..c };
    if !zero && !dates.have(&second) {
        return None;
    }
    let c = if second == c { c } else { next_second(c)? };
    Some((c, !rest.trim_ascii().is_empty()))
}

/// The whole second behind this one; `None` behind the last one, and where that is of another minute and there is no day.
fn next_second(c: Civil) -> Option<Civil> {
    if c.second < 59 {
        return Some(Civil { second: c.second + 1, micros: 0, ..c });
    }
    if is_partial(&c) {
        return None;
    }
    add_micros(Civil { micros: 0, ..c }, MICROS_PER_SECOND)
}

/// `YYYYMMDD`, `YYMMDD`, `YYYYMMDDhhmmss`, `YYMMDDhhmmss`.
fn from_digits(n: u64, digits: usize, fields: &mut Fields<'_>, dates: Dates) -> Option<(Civil, bool)> {
    let (date, time) = match digits {
        14 | 12 => (n / 1_000_000, n % 1_000_000),
        8 | 6 | 5 => (n, 0),
        _ => return None,
    };
    let micros = fields.fraction();
    let year_digits = if matches!(digits, 14 | 8) { 4 } else { 2 };
    let c = Civil {
        year: full_year(date / 10_000, year_digits),
        month: (date / 100 % 100) as u8,
        day: (date % 100) as u8,
        hour: (time / 10_000) as u8,
        minute: (time / 100 % 100) as u8,
        second: (time % 100) as u8,
        micros,
    };
    finish(c, fields.rest, dates)
}

/// A date given as the number `YYYYMMDD` or `YYYYMMDDhhmmss`; 0 is none.
pub fn datetime_from_number(n: i64, dates: Dates) -> Option<Civil> {
    if n < 101 {
        return None;
    }
    let n = u64::try_from(n).ok()?;
    let n = if n < 1_000_000 { if n < 700_000 { n + 20_000_000 } else { n + 19_000_000 } } else { n };
    let digits = if n > 99_999_999 { 14 } else { 8 };
    from_digits(n, digits, &mut Fields { rest: b"" }, dates).map(|(c, _)| c)
}

/// `[-][days ]hh:mm[:ss[.ffffff]]` or the digits `hhmmss`, in microseconds; out of range saturates.
pub fn parse_time(text: &[u8], zone: Zone) -> Option<i64> {
    read_time(text, zone).map(|t| t.micros)
}

/// A duration as it was read from a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReadTime {
    pub micros: i64,
    /// Something stands behind it which is no part of it.
    pub cut: bool,
    /// It was beyond the longest one, which it is now.
    pub beyond: bool,
    /// It is the time of day of a date with time.
    pub of_date: bool,
}

/// `None` for what does not begin as a duration, or has more than 59 minutes or seconds.
pub fn read_time(text: &[u8], zone: Zone) -> Option<ReadTime> {
    let text = text.trim_ascii();
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        _ => (false, text),
    };
    let with_date = text.iter().any(|b| matches!(b, b' ' | b'T')) || text.iter().take(12).all(u8::is_ascii_digit);
    if text.len() >= 12
        && with_date
        && let Some((c, cut)) = read_datetime(text, zone, Dates::PARTIAL)
    {
        return Some(ReadTime { micros: time_of_day(&c), cut, beyond: false, of_date: true });
    }
    // A date with a time that is none is no duration either.
    let date = text.split(|b| matches!(b, b' ' | b'T')).next().filter(|date| date.len() < text.len());
    if text.len() >= 12 && !negative && date.is_some_and(|date| date.iter().filter(|b| **b == b'-').count() == 2) {
        return None;
    }
    let mut fields = Fields { rest: digits };
    let (first, _) = fields.next()?;
    let first = i64::try_from(first).ok()?;
    let (mut hours, mut minutes, mut seconds) = (first / 10_000, first / 100 % 100, first % 100);
    let days = fields.rest.first() == Some(&b' ') && fields.rest.get(1).is_some_and(u8::is_ascii_digit);
    if days {
        fields.separator(|b| b == b' ');
        hours = first.min(1000) * 24 + fields.next()?.0 as i64;
    }
    if days || fields.rest.first() == Some(&b':') {
        hours = if days { hours } else { first };
        (minutes, seconds) = (0, 0);
        if fields.separator(|b| b == b':') {
            minutes = fields.next()?.0 as i64;
            if fields.separator(|b| b == b':') {
                seconds = fields.next()?.0 as i64;
            }
        }
    }
    let micros = i64::from(fields.fraction());
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let total = (hours.min(1_000_000) * 3600 + minutes * 60 + seconds) * MICROS_PER_SECOND + micros;
    let micros = total.min(TIME_MAX);
    let micros = if negative { -micros } else { micros };
    let cut = !fields.rest.trim_ascii().is_empty();
    Some(ReadTime { micros, cut, beyond: total > TIME_MAX, of_date: false })
}

pub fn time_of_day(c: &Civil) -> i64 {
    (i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second)) * MICROS_PER_SECOND
        + i64::from(c.micros)
}

/// What a TIMESTAMP column holds besides the zero date, in microseconds since 1970: 32 bits of seconds, without the first.
pub const TIMESTAMPS: std::ops::RangeInclusive<i64> = 1_000_000..=(i32::MAX as i64 * 1_000_000 + 999_999);

/// Civil time in a zone of a timestamp; the zero timestamp is the zero date.
pub fn timestamp_to_civil(micros: i64, zone: Zone) -> Civil {
    if micros == 0 { Civil::default() } else { zone.civil(micros) }
}
/// What a TIMESTAMP column holds for a civil time in a zone; the zero date is the zero timestamp.
pub fn civil_to_timestamp(c: Civil, zone: Zone) -> Moment {
    if c == Civil::default() { Moment::Once(0) } else { zone.moment(c) }
}

/// Rounds the fraction to `decimals` digits; carries into the seconds and beyond. `None` where there is no next second.
pub fn round_datetime(packed: u64, decimals: u8) -> Option<u64> {
    let c = unpack_datetime(packed);
    let unit = 10i64.pow(u32::from(6 - decimals.min(6)));
    if i64::from(c.micros) % unit == 0 {
        return Some(packed);
    }
    let micros = round_micros(i64::from(c.micros), decimals);
    if micros < MICROS_PER_SECOND {
        return Some(pack_datetime(Civil { micros: micros as u32, ..c }));
    }
    next_second(c).map(pack_datetime)
}
/// [`round_datetime`], or without the digits that are too many, as it is stored: where there is no day there is no next second.
pub fn fit_datetime(packed: u64, decimals: u8, cuts: bool) -> Option<u64> {
    let c = unpack_datetime(packed);
    if !cuts {
        let rounded = round_datetime(packed, decimals)?;
        return (!is_partial(&c) || unpack_datetime(rounded).second == c.second).then_some(rounded);
    }
    let unit = 10u32.pow(u32::from(6 - decimals.min(6)));
    Some(pack_datetime(Civil { micros: c.micros - c.micros % unit, ..c }))
}
/// [`round_micros`], or without the digits that are too many.
pub fn fit_micros(micros: i64, decimals: u8, cuts: bool) -> i64 {
    if cuts { micros - micros % 10i64.pow(u32::from(6 - decimals.min(6))) } else { round_micros(micros, decimals) }
}
pub fn round_micros(micros: i64, decimals: u8) -> i64 {
    let unit = 10i64.pow(u32::from(6 - decimals.min(6)));
    let rest = micros.rem_euclid(unit);
    if rest * 2 >= unit && rest != 0 { micros - rest + unit } else { micros - rest }
}

pub fn push_date(out: &mut Vec<u8>, c: &Civil) {
    use crate::wire::number::{push_four, push_two};
    push_four(out, c.year);
    out.push(b'-');
    push_two(out, c.month);
    out.push(b'-');
    push_two(out, c.day);
}
pub fn push_datetime(out: &mut Vec<u8>, c: &Civil, decimals: u8) {
    use crate::wire::number::{push_fraction, push_two};
    push_date(out, c);
    out.push(b' ');
    push_two(out, c.hour);
    out.push(b':');
    push_two(out, c.minute);
    out.push(b':');
    push_two(out, c.second);
    push_fraction(out, c.micros, decimals);
}
pub fn push_time(out: &mut Vec<u8>, micros: i64, decimals: u8) {
    use crate::wire::number::{push_fraction, push_two, push_u64};
    if micros < 0 {
        out.push(b'-');
    }
    let total = micros.unsigned_abs();
    let seconds = total / 1_000_000;
    let hours = seconds / 3600;
    if hours < 100 {
        push_two(out, hours as u8)
    } else {
        push_u64(out, hours)
    }
    out.push(b':');
    push_two(out, (seconds / 60 % 60) as u8);
    out.push(b':');
    push_two(out, (seconds % 60) as u8);
    push_fraction(out, (total % 1_000_000) as u32, decimals);
}

/// Without the fraction of its second.
pub fn whole_seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND) * MICROS_PER_SECOND
}

/// Adds months, keeping the day inside the month; `None` outside years 0..=9999.
pub fn add_months(c: Civil, months: i64) -> Option<Civil> {
    let total = (i64::from(c.year) * 12 + i64::from(c.month) - 1).checked_add(months)?;
    let year = u16::try_from(total.div_euclid(12)).ok().filter(|y| *y <= 9999)?;
    let month = total.rem_euclid(12) as u8 + 1;
    Some(Civil { year, month, day: c.day.min(days_in_month(year, month)), ..c })
}
/// Adds microseconds; `None` outside years 0..=9999.
pub fn add_micros(c: Civil, micros: i64) -> Option<Civil> {
    let total = unix_micros_from_civil(c).checked_add(micros)?;
    let (year, ..) = civil_from_days(total.div_euclid(MICROS_PER_DAY));
    (0..=9999).contains(&year).then(|| civil_from_unix_micros(total))
}
/// Days since 1970 as MySQL counts them, of partial dates, too: a month of zero is the one before January, and the year 0 has no 29th of February.
pub fn day_number(c: &Civil) -> i64 {
    if c.year == 0 && c.month == 0 {
        return -DAYS_BEFORE_1970;
    }
    let is_early = c.year == 0 && c.month <= 2;
    days_from_civil(i64::from(c.year), u32::from(c.month), 1) + i64::from(c.day) - 1 + i64::from(is_early)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> Option<String> {
        parse_datetime(text.as_bytes(), Zone::UTC).map(|c| {
            let mut out = Vec::new();
            push_datetime(&mut out, &c, 6);
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn datetimes() {
        for (text, want) in [
            ("2024-02-29", Some("2024-02-29 00:00:00.000000")),
            ("2024-2-9 1:2:3.5", Some("2024-02-09 01:02:03.500000")),
            ("24-01-02T03:04", Some("2024-01-02 03:04:00.000000")),
            ("20240102", Some("2024-01-02 00:00:00.000000")),
            ("20240102030405", Some("2024-01-02 03:04:05.000000")),
            ("0000-00-00", Some("0000-00-00 00:00:00.000000")),
            ("2023-02-29", None),
            ("abc", None),
            ("2024-01-02 25:00:00", None),
            ("", None),
        ] {
            assert_eq!(show(text).as_deref(), want, "{text}");
        }
        assert_eq!(parse_time(b"-12:34:56.7", Zone::UTC), Some(-45_296_700_000));
        assert_eq!(parse_time(b"1 02:03", Zone::UTC), Some((26 * 3600 + 180) * MICROS_PER_SECOND));
        assert_eq!(parse_time(b"123456", Zone::UTC), Some(45_296 * MICROS_PER_SECOND));
        let jan = parse_datetime(b"2024-01-31", Zone::UTC).unwrap();
        assert_eq!(add_months(jan, 1).map(|c| (c.month, c.day)), Some((2, 29)));
        assert_eq!(round_micros(1_499_999, 0), 1_000_000);
        assert_eq!(round_micros(-1_500_000, 0), -1_000_000);
    }
    #[test]
    fn datetimes_with_an_offset() {
        let zone = Zone::parse("+02:00").expect("a zone");
        let show = |text: &str| {
            parse_datetime(text.as_bytes(), zone).map(|c| {
                let mut out = Vec::new();
                push_datetime(&mut out, &c, 6);
                String::from_utf8(out).unwrap()
            })
        };
        assert_eq!(show("2024-07-01 12:00:00+05:30").unwrap(), "2024-07-01 08:30:00.000000");
        assert_eq!(show("2024-07-01T12:00:00.25-14:00 ").unwrap(), "2024-07-02 04:00:00.250000");
        assert_eq!(show("2024-07-01 12:00:00 +01:00").unwrap(), "2024-07-01 12:00:00.000000");
        for none in ["-00:00", "+14:01", "+1:00", "+01", "+", "+01:60", "+01:00x", "+0x:00"] {
            assert_eq!(show(&format!("2024-07-01 12:00:00{none}")), None, "{none}");
        }
        for none in ["0000-00-00 00:00:00+01:00", "9999-12-31 23:59:59-01:00", "0001-01-01 00:00:00+05:00"] {
            assert_eq!(show(none), None, "{none}");
        }
    }
}

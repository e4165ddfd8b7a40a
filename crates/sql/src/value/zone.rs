//! Time zones of sessions: an offset, or a zone of the IANA database by its name, as a MySQL has them whose tables of zones are loaded.
//! The database is compiled in (`chrono-tz`), so every SQL node has the same.
//!
//! As in MySQL, a local time that a zone leaves out, because its clocks go forward, stands for the moment at which they do; one that it
//! has twice, because they go back, stands for the earlier moment; and after 2037 clocks do not change any more, since the tables that
//! `mysql_tzinfo_to_sql` writes end there.

use apus_types::time::{Civil, civil_from_unix_micros, unix_micros_from_civil};
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;
use std::time::{SystemTime, UNIX_EPOCH};

use super::temporal::MICROS_PER_SECOND;

/// The end of 2037, in microseconds since 1970.
const END: i64 = 2_145_916_799 * MICROS_PER_SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// Microseconds east of UTC.
    Offset(i64),
    Named(Tz),
}

/// What a local time stands for, in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    Once(i64),
    /// The clocks went back: the earlier of the two.
    Twice(i64),
    /// The clocks went forward over it: when they did, with the same fraction of a second.
    Never(i64),
}

impl Moment {
    pub fn micros(self) -> i64 {
        let (Moment::Once(micros) | Moment::Twice(micros) | Moment::Never(micros)) = self;
        micros
    }
}

impl Zone {
    pub const UTC: Zone = Zone::Offset(0);

    /// `[+-]hh:mm` from -13:59 to +14:00, SYSTEM (which is UTC here), or a name of the database in any case.
    pub fn parse(text: &str) -> Option<Zone> {
        if text.eq_ignore_ascii_case("system") {
            return Some(Zone::UTC);
        }
        let (sign, rest) = match text.as_bytes().first()? {
            b'+' => (1, &text[1..]),
            b'-' => (-1, &text[1..]),
            _ => return Tz::from_str_insensitive(text).ok().map(Zone::Named),
        };
        let (hours, minutes) = rest.split_once(':')?;
        let number = |digits: &str| digits.parse::<i64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let offset = sign * (hours * 60 + minutes);
        let is_legal = (0..=14).contains(&hours) && (0..60).contains(&minutes) && (-839..=840).contains(&offset);
        is_legal.then_some(Zone::Offset(offset * 60 * MICROS_PER_SECOND))
    }

    /// Microseconds east of UTC at a moment.
    fn offset(self, micros: i64) -> i64 {
        match self {
            Zone::Offset(offset) => offset,
            Zone::Named(tz) => naive(micros.min(END)).map_or(0, |at| east(&tz.offset_from_utc_datetime(&at))),
        }
    }
    /// What the clocks show at a moment, as microseconds since 1970 of a clock that never changes.
    pub fn local(self, micros: i64) -> i64 {
        micros.saturating_add(self.offset(micros))
    }
    /// What the clocks show at a moment.
    pub fn civil(self, micros: i64) -> Civil {
        civil_from_unix_micros(self.local(micros))
    }
    /// When the clocks show this.
    pub fn moment(self, c: Civil) -> Moment {
        let local = unix_micros_from_civil(c);
        let Zone::Named(tz) = self else { return Moment::Once(local - self.offset(local)) };
        let late = local - self.offset(END);
        let Some(at) = naive(local).filter(|_| late < END) else { return Moment::Once(late) };
        match tz.offset_from_local_datetime(&at) {
            MappedLocalTime::Single(offset) => Moment::Once(local - east(&offset)),
            MappedLocalTime::Ambiguous(first, second) => Moment::Twice(local - east(&first).max(east(&second))),
            MappedLocalTime::None => Moment::Never(self.change(local) + local.rem_euclid(MICROS_PER_SECOND)),
        }
    }
    /// When the clocks went forward over this local time.
    fn change(self, local: i64) -> i64 {
        const DAY: i64 = 86_400 * MICROS_PER_SECOND;
        let (before, after) = (self.offset(local - DAY), self.offset(local + DAY));
        // Before the change at the one, after it at the other.
        let (mut low, mut high) = ((local - after) / MICROS_PER_SECOND - 1, (local - before) / MICROS_PER_SECOND + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset(middle * MICROS_PER_SECOND) == before { low = middle } else { high = middle }
        }
        high * MICROS_PER_SECOND
    }
}

fn naive(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(micros).map(|at| at.naive_utc())
}
fn east(offset: &impl Offset) -> i64 {
    i64::from(offset.fix().local_minus_utc()) * MICROS_PER_SECOND
}

pub fn clock() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::temporal::parse_datetime;

    fn at(text: &str) -> Civil {
        parse_datetime(text.as_bytes(), Zone::UTC).expect(text)
    }
    fn utc(text: &str) -> i64 {
        unix_micros_from_civil(at(text))
    }

    #[test]
    fn clocks_that_change() {
        let berlin = Zone::parse("europe/berlin").expect("a name in any case");
        assert_eq!(berlin.civil(utc("2024-01-01 00:00:00")), at("2024-01-01 01:00:00"));
        assert_eq!(berlin.civil(utc("2024-07-01 00:00:00")), at("2024-07-01 02:00:00"));
        assert_eq!(berlin.moment(at("2024-07-01 02:00:00.25")), Moment::Once(utc("2024-07-01 00:00:00.25")));
        for gone in ["2024-03-31 02:00:00", "2024-03-31 02:30:00", "2024-03-31 02:59:59"] {
            assert_eq!(berlin.moment(at(gone)), Moment::Never(utc("2024-03-31 01:00:00")), "{gone}");
        }
        assert_eq!(berlin.moment(at("2024-03-31 02:30:00.5")), Moment::Never(utc("2024-03-31 01:00:00.5")));
        assert_eq!(berlin.moment(at("2024-10-27 02:30:00")), Moment::Twice(utc("2024-10-27 00:30:00")));
        assert_eq!(berlin.moment(at("2024-10-27 03:00:00")), Moment::Once(utc("2024-10-27 02:00:00")));
        assert_eq!(berlin.civil(utc("2037-07-01 12:00:00")), at("2037-07-01 14:00:00"));
        assert_eq!(berlin.civil(utc("2040-07-01 12:00:00")), at("2040-07-01 13:00:00"));
        assert_eq!(berlin.moment(at("2040-07-01 13:00:00")), Moment::Once(utc("2040-07-01 12:00:00")));
    }

    #[test]
    fn what_is_a_zone() {
        assert_eq!(Zone::parse("-03:30"), Some(Zone::Offset(-12_600_000_000)));
        assert_eq!(Zone::parse("+14:00"), Some(Zone::Offset(50_400_000_000)));
        assert_eq!(Zone::parse("SYSTEM"), Some(Zone::UTC));
        for none in ["+14:01", "-14:00", "+1", "++1:00", "+1:+0", "Mars", "", "+0x:00", "\u{e9}"] {
            assert_eq!(Zone::parse(none), None, "{none}");
        }
    }
}

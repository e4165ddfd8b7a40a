//! When an event runs: once, or again and again.
//!
//! The runs of an event of EVERY lie on a grid that begins with STARTS. Intervals of days, weeks and months are counted by the clocks of the event's time zone, so that one at noon
//! stays at noon when those change; shorter ones are counted by time that has passed. All moments are whole seconds, in microseconds since 1970.

use apus_types::time::civil_from_unix_micros;

use crate::value::{
    temporal::{MICROS_PER_DAY, MICROS_PER_SECOND, add_months},
    zone::Zone,
};

const MINUTE: i64 = 60 * MICROS_PER_SECOND;
const HOUR: i64 = 60 * MINUTE;
/// The last second of the year 9999.
const LATEST: i64 = 253_402_300_799 * MICROS_PER_SECOND;

/// Longest interval in the unit that it is counted in, as in MySQL.
pub const COUNT_MAX: i64 = 1_000_000_000;

/// What an interval is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Months,
    Micros(i64),
}

/// A unit of EVERY. What has several fields is counted in the last of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    pub name: &'static str,
    step: Step,
    /// So many of what is counted make one of the unit (QUARTER, WEEK).
    pub each: i64,
    /// How the fields behind the first are written: how many of each make one of the field before, and what stands between.
    fields: &'static [(i64, char)],
}

const fn unit(name: &'static str, step: Step, each: i64, fields: &'static [(i64, char)]) -> Unit {
    Unit { name, step, each, fields }
}

const UNITS: [Unit; 15] = [
    unit("YEAR", Step::Months, 12, &[]),
    unit("QUARTER", Step::Months, 3, &[]),
    unit("MONTH", Step::Months, 1, &[]),
    unit("WEEK", Step::Micros(MICROS_PER_DAY), 7, &[]),
    unit("DAY", Step::Micros(MICROS_PER_DAY), 1, &[]),
    unit("HOUR", Step::Micros(HOUR), 1, &[]),
    unit("MINUTE", Step::Micros(MINUTE), 1, &[]),
    unit("SECOND", Step::Micros(MICROS_PER_SECOND), 1, &[]),
    unit("YEAR_MONTH", Step::Months, 1, &[(12, '-')]),
    unit("DAY_HOUR", Step::Micros(HOUR), 1, &[(24, ' ')]),
    unit("DAY_MINUTE", Step::Micros(MINUTE), 1, &[(24, ' '), (60, ':')]),
    unit("DAY_SECOND", Step::Micros(MICROS_PER_SECOND), 1, &[(24, ' '), (60, ':'), (60, ':')]),
    unit("HOUR_MINUTE", Step::Micros(MINUTE), 1, &[(60, ':')]),
    unit("HOUR_SECOND", Step::Micros(MICROS_PER_SECOND), 1, &[(60, ':'), (60, ':')]),
    unit("MINUTE_SECOND", Step::Micros(MICROS_PER_SECOND), 1, &[(60, ':')]),
];

/// The units that there are in MySQL, as INFORMATION_SCHEMA has them.
pub const FIELDS: [&str; 20] = [
    "YEAR",
    "QUARTER",
    "MONTH",
    "DAY",
    "HOUR",
    "MINUTE",
    "WEEK",
    "SECOND",
    "MICROSECOND",
    "YEAR_MONTH",
    "DAY_HOUR",
    "DAY_MINUTE",
    "DAY_SECOND",
    "HOUR_MINUTE",
    "HOUR_SECOND",
    "MINUTE_SECOND",
    "DAY_MICROSECOND",
    "HOUR_MICROSECOND",
    "MINUTE_MICROSECOND",
    "SECOND_MICROSECOND",
];

impl Unit {
    /// In letters of any case; `SQL_TSI_DAY` is DAY.
    pub fn named(name: &str) -> Option<Unit> {
        let plain = name.get(..8).filter(|head| head.eq_ignore_ascii_case("SQL_TSI_")).and_then(|_| name.get(8..));
        let is = |unit: &Unit| match plain {
            Some(plain) => !unit.is_compound() && unit.name.eq_ignore_ascii_case(plain),
            None => unit.name.eq_ignore_ascii_case(name),
        };
        UNITS.into_iter().find(is)
    }
    /// The longest interval in what it is counted in.
    pub fn longest(self) -> i64 {
        if self.name == "YEAR" { COUNT_MAX.saturating_mul(self.each) } else { COUNT_MAX }
    }
    /// It has several fields.
    pub fn is_compound(self) -> bool {
        !self.fields.is_empty()
    }
    /// How many of what it is counted in an interval of several fields has, which is so many months, and microseconds.
    pub fn count_of(self, months: i64, micros: i64) -> i64 {
        match self.step {
            Step::Months => months,
            Step::Micros(size) => micros.div_euclid(size),
        }
    }
    /// A count as SHOW tells it; of several fields without quotes around them.
    pub fn written(self, count: i64) -> String {
        let (mut rest, mut behind) = (count / self.each, String::new());
        for (size, between) in self.fields.iter().rev() {
            behind = format!("{between}{}{behind}", rest % size);
            rest /= size;
        }
        format!("{rest}{behind}")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    At(i64),
    Every {
        unit: Unit,
        /// Of what the unit is counted in.
        count: i64,
        starts: i64,
        ends: Option<i64>,
    },
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::At(0)
    }
}

impl Schedule {
    /// The first run that is due at `from` or later, and after the run `last`; `None`: there is no more.
    pub fn next(&self, from: i64, last: Option<i64>, zone: Zone) -> Option<i64> {
        match *self {
            Schedule::At(at) => last.is_none_or(|last| last < at).then_some(at),
            Schedule::Every { unit, count, starts, ends } => {
                let least = last.map_or(from, |last| from.max(last + 1));
                let next = if least <= starts { starts } else { on_grid(unit, count, starts, least, zone)? };
                ends.is_none_or(|ends| next <= ends).then_some(next)
            }
        }
    }
}

/// The first place of the grid that is not before `least`, which lies behind its beginning; `None`: it is beyond the year 9999.
fn on_grid(unit: Unit, count: i64, starts: i64, least: i64, zone: Zone) -> Option<i64> {
    let moved = |from: i64, by: i64| from.checked_add(by).filter(|to| *to <= LATEST);
    let moment = |place: i64| match unit.step {
        Step::Months => {
            let civil = add_months(zone.civil(starts), place.checked_mul(count)?)?;
            Some(zone.moment(civil).micros())
        }
        Step::Micros(size) if size < MICROS_PER_DAY => moved(starts, place.checked_mul(count)?.checked_mul(size)?),
        Step::Micros(size) => {
            let local = moved(zone.local(starts), place.checked_mul(count)?.checked_mul(size)?)?;
            Some(zone.moment(civil_from_unix_micros(local)).micros())
        }
    };
    // Where no interval is longer, this place is certainly not behind the one that is looked for.
    let longest = match unit.step {
        Step::Months => count.saturating_mul(31 * MICROS_PER_DAY),
        Step::Micros(size) => count.saturating_mul(size),
    };
    let mut place = ((least - starts) / longest - 1).max(0);
    loop {
        let moment = moment(place)?;
        if moment >= least {
            return Some(moment);
        }
        place += 1;
    }
}

#[cfg(test)]
mod tests {
    use apus_types::time::unix_micros_from_civil;

    use super::*;
    use crate::value::temporal::parse_datetime;

    fn at(text: &str) -> i64 {
        unix_micros_from_civil(parse_datetime(text.as_bytes(), Zone::UTC).expect(text))
    }
    fn every(count: i64, unit: &str, starts: &str) -> Schedule {
        Schedule::Every { unit: Unit::named(unit).expect(unit), count, starts: at(starts), ends: None }
    }

    #[test]
    fn a_grid_begins_with_its_start() {
        let hourly = every(1, "hour", "2030-01-01 10:30:00");
        let next = |from, last| hourly.next(at(from), last, Zone::UTC);
        assert_eq!(next("2029-12-31 00:00:00", None), Some(at("2030-01-01 10:30:00")));
        assert_eq!(next("2030-01-01 10:30:00", None), Some(at("2030-01-01 10:30:00")));
        assert_eq!(next("2030-01-01 10:30:01", None), Some(at("2030-01-01 11:30:00")));
        assert_eq!(next("2030-01-01 10:30:00", Some(at("2030-01-01 10:30:00"))), Some(at("2030-01-01 11:30:00")));
        assert_eq!(next("2031-05-05 00:00:00", Some(at("2030-01-01 10:30:00"))), Some(at("2031-05-05 00:30:00")));
    }

    #[test]
    fn days_and_months_go_by_the_clocks_of_the_zone() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        // Noon in winter, which is 11 o'clock of UTC, stays noon in summer.
        let noon = every(1, "day", "2024-01-01 11:00:00");
        assert_eq!(noon.next(at("2024-07-01 10:00:00"), None, berlin), Some(at("2024-07-01 10:00:00")));
        let hourly = every(1, "hour", "2024-01-01 11:00:00");
        assert_eq!(hourly.next(at("2024-07-01 10:00:01"), None, berlin), Some(at("2024-07-01 11:00:00")));
        let last_days = every(1, "month", "2024-01-31 12:00:00");
        assert_eq!(last_days.next(at("2024-02-01 00:00:00"), None, Zone::UTC), Some(at("2024-02-29 12:00:00")));
        assert_eq!(last_days.next(at("2024-03-01 00:00:00"), None, Zone::UTC), Some(at("2024-03-31 12:00:00")));
    }

    #[test]
    fn the_end_and_what_runs_once() {
        let Schedule::Every { unit, count, starts, .. } = every(10, "minute", "2030-01-01 00:00:00") else { return };
        let ends = Some(at("2030-01-01 00:20:00"));
        let limited = Schedule::Every { unit, count, starts, ends };
        assert_eq!(limited.next(at("2030-01-01 00:11:00"), None, Zone::UTC), ends);
        assert_eq!(limited.next(at("2030-01-01 00:11:00"), ends, Zone::UTC), None);
        let once = Schedule::At(100);
        assert_eq!(once.next(500, None, Zone::UTC), Some(100));
        assert_eq!(once.next(500, Some(99), Zone::UTC), Some(100));
        assert_eq!(once.next(0, Some(100), Zone::UTC), None);
    }

    #[test]
    fn the_next_place_is_the_first_of_all() {
        let zone = Zone::parse("America/New_York").unwrap();
        for (unit, count) in [("second", 7), ("hour", 5), ("day", 1), ("week", 7), ("month", 1), ("year", 12)] {
            let schedule = every(count, unit, "2024-02-29 06:30:00");
            let mut last = at("2024-02-29 06:30:00");
            for _ in 0..400 {
                let Some(next) = schedule.next(0, Some(last), zone) else { break };
                assert!(next > last, "{unit}");
                assert_eq!(schedule.next(next, None, zone), Some(next), "{unit}");
                assert_eq!(schedule.next(last + 1, None, zone), Some(next), "{unit}");
                last = next;
            }
        }
    }

    #[test]
    fn intervals_as_they_are_shown() {
        let shown = |unit: &str, count| Unit::named(unit).unwrap().written(count);
        assert_eq!(shown("quarter", 6), "2");
        assert_eq!(shown("week", 21), "3");
        assert_eq!(shown("year_month", 30), "2-6");
        assert_eq!(shown("day_second", 90_061), "1 1:1:1");
        assert_eq!(shown("minute_second", 90), "1:30");
        assert!(Unit::named("microsecond").is_none());
    }
}

//! The clocks of hosts. Each host has its own: it began at another moment than those of others, runs at its own rate, and stands still
//! while a hypervisor has taken the whole guest away (a snapshot): then it goes on as if nothing had happened.
//! A process reads its machine's clock as it is, or as the time since the process began, which is how `apus-runtime` does it: "ten
//! seconds ago" is then before the beginning for a node that has just started.
//!
//! Nothing in the cluster may compare clocks of two hosts. What it does compare is how much time passes on two of them, and there
//! leases bear a difference of one part in 32 (`heartbeat` in QMGR), 3.1 %: rates are drawn within [`RATE_PPM_MAX`] of the true one,
//! so that two hosts differ by 3.0 % at most. Oscillators are off by 100 ppm, NTP slews by 500.

/// No host's clock is further from the true rate than this, in parts per million.
pub const RATE_PPM_MAX: u64 = 15_000;
/// Seconds since 1970 at the beginning of virtual time.
const EPOCH_MICROS: i64 = 1_790_000_000_000_000;
const MILLION: i128 = 1_000_000;

/// Reads `reading` at the virtual time `since`, and goes on from there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HostClock {
    since: u64,
    reading: u64,
    rate_ppm: i64,
    frozen: bool,
    /// What the machine's clock read when the process began, 0 where the process reads the machine's clock as it is.
    began: u64,
}

impl HostClock {
    /// A clock that reads `reading` now and is wrong by `rate_ppm` parts in a million.
    pub fn new(now: u64, reading: u64, rate_ppm: i64) -> HostClock {
        HostClock { since: now, reading, rate_ppm, frozen: false, began: 0 }
    }
    /// The clock of a process that begins now: it reads 0.
    pub fn of_process(self, now: u64) -> HostClock {
        HostClock { began: self.machine(now), ..self }
    }
    /// What it reads at this virtual time.
    pub fn read(&self, now: u64) -> u64 {
        self.machine(now) - self.began
    }
    fn machine(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.since);
        if self.frozen {
            return self.reading;
        }
        if self.rate_ppm == 0 {
            return self.reading.saturating_add(passed);
        }
        let own = i128::from(passed) * (MILLION + i128::from(self.rate_ppm)) / MILLION;
        self.reading.saturating_add(u64::try_from(own).unwrap_or(u64::MAX))
    }
    /// The first virtual time at which it reads this, if it is not frozen before.
    pub fn when(&self, reading: u64) -> u64 {
        let reading = reading.saturating_add(self.began);
        let own = reading.saturating_sub(self.reading);
        if self.rate_ppm == 0 || own == 0 || reading == u64::MAX {
            return self.since.saturating_add(own);
        }
        let rate = MILLION + i128::from(self.rate_ppm);
        let passed = (i128::from(own) * MILLION + rate - 1) / rate;
        self.since.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
    /// Time of day, microseconds since 1970.
    pub fn unix_micros(&self, now: u64) -> i64 {
        EPOCH_MICROS + (self.machine(now) / 1000) as i64
    }
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }
    pub fn set_frozen(&mut self, now: u64, frozen: bool) {
        (self.reading, self.since, self.frozen) = (self.machine(now), now, frozen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_reached_when_it_says() {
        for rate in [0, 100, -100, 15_000, -15_000] {
            let clock = HostClock::new(1_000, 77_000_000_000, rate);
            assert_eq!(clock.read(1_000), 77_000_000_000);
            for reading in [77_000_000_001, 77_000_000_999, 77_010_000_000, 99_123_456_789] {
                let at = clock.when(reading);
                assert!(clock.read(at) >= reading && clock.read(at - 1) < reading, "{rate} {reading}");
            }
        }
        let fast = HostClock::new(0, 0, 15_000);
        assert_eq!(fast.read(1_000_000_000), 1_015_000_000);
    }

    #[test]
    fn a_process_reads_the_time_since_it_began_and_the_time_of_day() {
        let machine = HostClock::new(0, 77_000_000_000, 15_000);
        let process = machine.of_process(500_000_000);
        assert_eq!((process.read(500_000_000), process.read(1_500_000_000)), (0, 1_015_000_000));
        assert_eq!(process.unix_micros(1_500_000_000), machine.unix_micros(1_500_000_000));
        for reading in [1, 999, 5_000_000_000] {
            let at = process.when(reading);
            assert!(process.read(at) >= reading && process.read(at - 1) < reading, "{reading}");
        }
        assert!(process.when(u64::MAX) > u64::MAX / 2, "never");
    }

    #[test]
    fn a_frozen_clock_goes_on_where_it_stood() {
        let mut clock = HostClock::new(0, 500, 0);
        clock.set_frozen(100, true);
        assert_eq!((clock.read(100), clock.read(9_000)), (600, 600));
        clock.set_frozen(9_000, false);
        assert_eq!((clock.read(9_000), clock.read(9_010)), (600, 610));
    }
}

//! How fast a checkpoint is written: between a minimum and a maximum, which operators set (`apus_signal::speeds`), by what else is to be done.
//!
//! Ten times a second the instance looks at its worker and its log:
//!
//! ```text
//! the log's disk is late (LATE_NS, LATE_BYTES)    a fifth of the range less
//! worker busy  99 % or more                       an eighth less
//!              95 % or more                       a twelfth less
//!              90 % or more                       as before
//!              less                               a sixtieth more
//! ```
//!
//! So load brakes in about a second, and calm takes six to go from the minimum to the maximum; NDB steers in the same way. A log that has grown raises the
//! minimum: by as many times as what begins a checkpoint has been written since the last one began, up to the maximum. No load brakes below that, for the disk
//! would fill and a start take ever longer.
//!
//! The maximum is another one while a node of the cluster starts, and from this process's own start until its first checkpoint counts, for so long a
//! next start would read a long log; it is that also for the last one, at the orderly end, which nothing brakes. The bounds are a node's, its workers share them evenly.

use apus_signal::speeds::Speeds;

/// Between two looks.
pub const LOOK_NS: u64 = 100_000_000;
/// A write or sync of the log that is not answered for so long is late, and so is a log of which so many bytes wait to be written.
pub const LATE_NS: u64 = 500_000_000;
pub const LATE_BYTES: usize = super::redo::BUFFER_MAX / 4;

/// In bytes per second, of one instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub min: u64,
    pub max: u64,
}

impl Bounds {
    /// `growth`: how many times the log has grown by what begins a checkpoint.
    pub fn new(speeds: Speeds, instances: u32, other_starts: bool, own_start: bool, growth: u64) -> Bounds {
        let most = match (own_start, other_starts) {
            (true, _) => speeds.max_own_restart,
            (false, true) => speeds.max_other_restart,
            (false, false) => speeds.max,
        };
        let share = |mib: u32| (u64::from(mib) << 20) / u64::from(instances.max(1));
        let max = share(most.max(speeds.min));
        Bounds { min: share(speeds.min).saturating_mul(growth.max(1)).min(max), max }
    }
}

/// What an instance had to do since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub busy_percent: u64,
    pub is_log_late: bool,
}

#[derive(Default, Debug)]
pub struct Speed {
    /// Bytes per second.
    now: u64,
    looked_at: u64,
    /// The worker's idle time then.
    idle_ns: u64,
}

impl Speed {
    /// Bytes per second.
    pub fn get(&self) -> u64 {
        self.now
    }
    pub fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.looked_at) >= LOOK_NS
    }
    /// How busy the worker was since the last look.
    pub fn busy_percent(&mut self, now: u64, idle_ns: u64) -> u64 {
        let passed = now.saturating_sub(self.looked_at).max(1);
        let idle = idle_ns.saturating_sub(self.idle_ns).min(passed);
        (self.looked_at, self.idle_ns) = (now, idle_ns);
        100 - idle * 100 / passed
    }
    /// Nobody is served any more.
    pub fn release(&mut self, bounds: Bounds) {
        self.now = bounds.max;
    }
    pub fn steer(&mut self, load: Load, bounds: Bounds) {
        let Bounds { min, max } = bounds;
        let range = max - min;
        let now = self.now.clamp(min, max);
        let next = match load {
            Load { is_log_late: true, .. } => now.saturating_sub(range / 5),
            Load { busy_percent: 99.., .. } => now.saturating_sub(range / 8),
            Load { busy_percent: 95.., .. } => now.saturating_sub(range / 12),
            Load { busy_percent: 90.., .. } => now,
            Load { .. } => now + range / 60 + 1,
        };
        self.now = next.clamp(min, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CALM: Load = Load { busy_percent: 30, is_log_late: false };

    fn bounds() -> Bounds {
        Bounds::new(Speeds::DEFAULT, 1, false, false, 0)
    }
    /// How many looks it takes until the speed is there.
    fn looks_to(speed: &mut Speed, load: Load, wanted: u64) -> u32 {
        (1..=1000)
            .find(|_| {
                speed.steer(load, bounds());
                speed.get() == wanted
            })
            .expect("it gets there")
    }

    #[test]
    fn load_brakes_faster_than_calm_releases() {
        let (Bounds { min, max }, mut speed) = (bounds(), Speed::default());
        assert_eq!((min, max), (20 * MIB, 200 * MIB));
        let release = looks_to(&mut speed, CALM, max);
        let busy = looks_to(&mut speed, Load { busy_percent: 96, ..CALM }, min);
        looks_to(&mut speed, CALM, max);
        let full = looks_to(&mut speed, Load { busy_percent: 100, ..CALM }, min);
        looks_to(&mut speed, CALM, max);
        let late = looks_to(&mut speed, Load { is_log_late: true, ..CALM }, min);
        assert!(late < full && full < busy && busy * 3 < release, "{late} {full} {busy} {release}");
        assert!((50..=70).contains(&release), "about 6 s");
        speed.steer(Load { busy_percent: 92, ..CALM }, bounds());
        assert_eq!(speed.get(), min, "it holds");
        (0..10).for_each(|_| speed.steer(CALM, bounds()));
        let held = speed.get();
        speed.steer(Load { busy_percent: 94, ..CALM }, bounds());
        assert!(held > min && speed.get() == held);
    }

    #[test]
    fn bounds_follow_starts_and_the_log() {
        let of = |other, own, growth| Bounds::new(Speeds::DEFAULT, 2, other, own, growth);
        assert_eq!(of(false, false, 0), Bounds { min: 10 * MIB, max: 100 * MIB });
        assert_eq!(of(true, false, 1), Bounds { min: 10 * MIB, max: 50 * MIB });
        assert_eq!(of(true, true, 1), Bounds { min: 10 * MIB, max: 200 * MIB });
        assert_eq!(of(false, false, 3).min, 30 * MIB);
        assert_eq!(of(false, false, 1000), Bounds { min: 100 * MIB, max: 100 * MIB });
        // A maximum below the minimum counts as the minimum.
        let odd = Bounds::new(Speeds { max: 5, ..Speeds::DEFAULT }, 1, false, false, 1);
        assert_eq!(odd, Bounds { min: 20 * MIB, max: 20 * MIB });
        // New bounds count at once.
        let mut speed = Speed::default();
        (0..100).for_each(|_| speed.steer(CALM, bounds()));
        speed.steer(CALM, of(true, false, 0));
        assert_eq!(speed.get(), 50 * MIB);
        speed.steer(Load { is_log_late: true, ..CALM }, of(false, false, 1000));
        assert_eq!(speed.get(), 100 * MIB, "a log that has grown so much needs the checkpoint");
    }

    #[test]
    fn what_is_not_idle_is_busy() {
        let mut speed = Speed::default();
        assert!(speed.is_due(LOOK_NS) && !speed.is_due(LOOK_NS - 1));
        assert_eq!(speed.busy_percent(LOOK_NS, 25_000_000), 75);
        assert_eq!(speed.busy_percent(3 * LOOK_NS, 25_000_000), 100);
        assert_eq!(speed.busy_percent(4 * LOOK_NS, 25_000_000 + LOOK_NS), 0);
    }
}

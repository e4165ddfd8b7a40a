//! How late something that should come regularly has come: what to expect of it.
//!
//! The longest lateness counts, and is forgotten by half in about 14 s: one pause says little of the next minute. What has happened
//! twice will happen again: on a machine whose cores are wanted by others, turns are late every few minutes. So the second longest lateness is
//! forgotten by half in about 4 minutes only, but counts for no more than [`REPEATED_MAX_NS`].

use super::MS;

/// Of the longest and of the second longest, one part in so many is forgotten per sample; a sample comes with each heartbeat or tick.
const FORGET: u64 = 2048;
const FORGET_REPEATED: u64 = 32_768;
const REPEATED_MAX_NS: u64 = 60 * MS;

/// In nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Jitter {
    recent: u64,
    longest: u64,
    second: u64,
}

impl Jitter {
    /// Longer was a pause, not a lack of CPU, and says no more about the next one than this.
    pub const MAX_NS: u64 = 700 * MS;

    pub fn note(&mut self, late: u64) {
        self.recent = (self.recent - self.recent / FORGET).max(late.min(Self::MAX_NS));
        self.longest -= self.longest / FORGET_REPEATED;
        self.second -= self.second / FORGET_REPEATED;
        let late = late.min(REPEATED_MAX_NS);
        if late > self.longest {
            self.second = std::mem::replace(&mut self.longest, late);
        } else {
            self.second = self.second.max(late);
        }
    }

    pub fn ns(&self) -> u64 {
        self.recent.max(self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pauses: &[u64], seconds: u64) -> u64 {
        let mut jitter = Jitter::default();
        for pause in pauses {
            jitter.note(pause * MS);
            (0..100).for_each(|_| jitter.note(10 * MS));
        }
        (0..seconds * 100).for_each(|_| jitter.note(10 * MS));
        jitter.ns() / MS
    }

    #[test]
    fn one_pause_is_forgotten_soon() {
        assert!((80..90).contains(&after(&[90], 0)));
        assert!((40..50).contains(&after(&[90], 14)));
        assert_eq!(after(&[90], 60), 10);
    }

    #[test]
    fn two_pauses_are_remembered_for_minutes() {
        assert!((40..60).contains(&after(&[90, 70], 60)));
        assert!((25..35).contains(&after(&[60, 60], 227)));
        assert!((25..35).contains(&after(&[700, 700], 227)), "no more than the limit");
        assert_eq!(after(&[90, 70], 1200), 10);
    }
}

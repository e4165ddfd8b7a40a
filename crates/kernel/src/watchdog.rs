//! Finds the data workers of a node that make no rounds any more.
//!
//! The executor tells the control worker once per tick how many rounds each data worker has begun and whether it sleeps. Time is counted in
//! ticks of the control worker, which stand still with the process: SIGSTOP, a paused machine or one that gives the process no CPU trip
//! nothing. QMGR hears of a worker after each [`STUCK_WARN_TICKS`] and decides (see its module `stuck`).

use crate::limits::STUCK_WARN_TICKS;

#[derive(Clone, Copy, Default)]
struct Watched {
    rounds: u64,
    /// Ticks in which it has begun no round.
    ticks: u32,
}

#[derive(Default)]
pub(crate) struct Watchdog {
    workers: Vec<Watched>,
}

impl Watchdog {
    /// What QMGR must hear: for how many ticks the worker has been in one round, 0: no longer.
    pub fn look(&mut self, worker: u8, rounds: u64, is_asleep: bool) -> Option<u32> {
        let place = usize::from(worker);
        if self.workers.len() <= place {
            self.workers.resize(place + 1, Watched::default());
        }
        let watched = &mut self.workers[place];
        if is_asleep || watched.rounds != rounds {
            let was_told = watched.ticks >= STUCK_WARN_TICKS;
            *watched = Watched { rounds, ticks: 0 };
            return was_told.then_some(0);
        }
        watched.ticks = watched.ticks.saturating_add(1);
        watched.ticks.is_multiple_of(STUCK_WARN_TICKS).then_some(watched.ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_that_neither_turns_nor_sleeps_is_stuck() {
        let mut dog = Watchdog::default();
        for tick in 0..4 * u64::from(STUCK_WARN_TICKS) {
            assert_eq!(dog.look(0, tick, false), None, "it turns");
            assert_eq!(dog.look(1, 7, true), None, "it sleeps");
        }
        let told: Vec<u32> = (0..=2 * STUCK_WARN_TICKS).filter_map(|_| dog.look(0, u64::MAX, false)).collect();
        assert_eq!(told, [STUCK_WARN_TICKS, 2 * STUCK_WARN_TICKS]);
        assert_eq!(dog.look(0, 1, false), Some(0), "QMGR hears that it is over");
        assert_eq!(dog.look(0, 2, false), None);
    }
}

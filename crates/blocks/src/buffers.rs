//! What a worker holds in job and send buffers, accounted in the memory manager: load that piles up there takes its share of the node's
//! memory like rows do.
//!
//! The LDM of each data worker follows its worker's buffers once per round, in steps of [`STEP`], so that a quiet worker touches no counter.
//! What the manager refuses is there all the same; the worker then reads from no client until it has gone down or memory is free.

use std::sync::Arc;

use apus_kernel::Context;
use apus_storage::{MemoryManager, Region};

/// Buffers are accounted in whole steps of so many bytes; less is the worker's own.
const STEP: usize = 1 << 20;

/// Bytes that this worker has from the manager.
#[derive(Default)]
pub(crate) struct Buffers {
    jobs: usize,
    unsent: usize,
}

impl Buffers {
    pub fn follow(&mut self, memory: &Arc<MemoryManager>, ctx: &mut Context<'_>) {
        let (jobs, unsent) = ctx.buffered_bytes();
        if jobs.max(self.jobs).max(unsent).max(self.unsent) < STEP {
            return;
        }
        let granted = step(memory, Region::JobBuffers, &mut self.jobs, jobs)
            & step(memory, Region::SendBuffers, &mut self.unsent, unsent);
        if !granted {
            ctx.probe("ldm: no memory for buffers");
        }
        ctx.set_short_of_memory(!granted);
    }
}

/// What a coordinator's records of transactions hold: the operations and results of each batch until it is answered.
#[derive(Default)]
pub(crate) struct Records {
    have: usize,
}

impl Records {
    /// Whether so many bytes may be held.
    #[inline]
    pub fn admits(&mut self, memory: &MemoryManager, held: usize) -> bool {
        held < self.have + STEP || step(memory, Region::Transaction, &mut self.have, held)
    }
    /// Once per tick: what is over is given back. What came beside the clients' batches (answers of LDMs, take-over) is held in any case.
    pub fn follow(&mut self, memory: &MemoryManager, held: usize) {
        step(memory, Region::Transaction, &mut self.have, held);
    }
}

/// The same for other memory of an LDM that lasts beyond transactions. False: the manager refused.
pub(crate) fn follow_lasting(memory: &MemoryManager, have: &mut usize, held: usize) -> bool {
    step(memory, Region::Transaction, have, held)
}

/// Goes up or down to `held`. False: the manager refused.
fn step(memory: &MemoryManager, region: Region, have: &mut usize, held: usize) -> bool {
    let wanted = held - held % STEP;
    if wanted > *have {
        if !memory.account(region, wanted - *have, false) {
            return false;
        }
    } else if wanted < *have {
        memory.unaccount(region, *have - wanted);
    }
    *have = wanted;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_accounted_in_steps_and_given_back() {
        let memory = MemoryManager::new(100 << 20);
        let used = || {
            let mut all = memory.usage();
            all.find(|u| u.region == Region::JobBuffers).map_or(0, |u| u.used)
        };
        let mut have = 0;
        assert!(step(&memory, Region::JobBuffers, &mut have, STEP - 1) && used() == 0);
        assert!(step(&memory, Region::JobBuffers, &mut have, 3 * STEP + 5) && used() == 3 << 20);
        assert!(!step(&memory, Region::JobBuffers, &mut have, 60 << 20), "more than the region's tenth");
        assert_eq!((have, used()), (3 * STEP, 3 << 20));
        assert!(step(&memory, Region::JobBuffers, &mut have, 0) && used() == 0);
    }
}

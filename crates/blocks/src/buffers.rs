//! What a worker holds in job and send buffers, accounted in the memory manager: load that piles up there takes its share of the node's
//! memory like rows do.
//!
//! The LDM of each data worker follows its worker's buffers once per round, in steps of [`STEP`], so that a quiet worker touches no counter.
//! What the manager refuses is there all the same; the worker then reads from no client until it has gone down or memory is free. Where it is clients that do not
//! read their answers, nothing is read from those, and the others are served.

use std::sync::Arc;

use apus_kernel::Context;
use apus_signal::mgmt::{MemoryUse, RegionUse};
use apus_storage::{MemoryManager, Region};

/// What is not rows is accounted in whole steps of so many bytes; less is the worker's own.
pub(crate) const STEP: usize = 1 << 20;

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
        let has_jobs = step(memory, Region::JobBuffers, &mut self.jobs, jobs);
        let has_unsent = step(memory, Region::SendBuffers, &mut self.unsent, unsent);
        if !has_jobs || !has_unsent {
            ctx.probe("ldm: no memory for buffers");
        }
        ctx.set_short_of_memory(!has_jobs);
        ctx.set_short_of_send_memory(!has_unsent);
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

/// Goes up or down to `held`, in whole steps. False: the manager refused.
pub(crate) fn step(memory: &MemoryManager, region: Region, have: &mut usize, held: usize) -> bool {
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

/// For operators.
pub(crate) fn usage(memory: &MemoryManager) -> MemoryUse {
    let region = |u: apus_storage::RegionUse| RegionUse {
        name: u.region.name().to_owned(),
        used: u.used,
        reserved: u.reserved,
        maximum: u.maximum,
        room: u.room,
        refused: u.refused,
        full: u.room < STEP as u64,
    };
    let (pool_used, pool) = memory.pool();
    MemoryUse { pool, pool_used, regions: memory.usage().map(region).collect() }
}

#[cfg(test)]
mod tests {
    use apus_kernel::{Worker, WorkerConfig};
    use apus_signal::{BlockId, BlockRef, Kind};
    use apus_types::NodeId;

    use super::*;

    /// A client that does not read fills the region of send buffers: nothing is read from it, nor from any other that leaves something unread. Another node that
    /// does not read stops all.
    #[test]
    fn without_memory_for_buffers_who_does_not_read_is_not_read_from() {
        let (node, client) = (NodeId(1), NodeId(NodeId::CLIENT_BASE));
        let config = WorkerConfig { node, worker: 0, instances: 1, control: false, incarnation: 1, seed: 1 };
        let mut worker = Worker::new(config);
        let other = NodeId(client.0 + 1);
        let slow = NodeId(2);
        [client, other, slow].into_iter().for_each(|c| worker.link_up(c, 77));
        let (memory, mut buffers) = (MemoryManager::new(100 << 20), Buffers::default());
        let me = BlockRef::new(node, BlockId::Ldm, 0);
        let send = |worker: &mut Worker, buffers: &mut Buffers, to: NodeId, bytes: usize| {
            worker.with_context(me, |ctx| {
                if bytes > 0 {
                    let block = if to.is_client() { BlockId::Client } else { BlockId::Qmgr };
                    let kind = if to.is_client() { Kind::ReadConf } else { Kind::HeartbeatRep };
                    ctx.send(BlockRef::new(to, block, 0), kind, |out| out.resize(out.len() + bytes, 0));
                }
            });
            while worker.next_dirty().is_some() {}
            worker.with_context(me, |ctx| buffers.follow(&memory, ctx));
        };
        send(&mut worker, &mut buffers, client, 600 << 10);
        send(&mut worker, &mut buffers, other, 100);
        assert!(worker.may_read(other) && worker.may_read(client));
        for _ in 0..5 {
            send(&mut worker, &mut buffers, client, 5 << 20);
        }
        assert!(!worker.may_read(other) && !worker.may_read(client), "{:?}", memory.usage().collect::<Vec<_>>());
        let read = |worker: &mut Worker, node: NodeId| {
            while !worker.output(node).is_empty() {
                worker.sent(node, worker.output(node).len());
            }
        };
        read(&mut worker, other);
        assert!(worker.may_read(other), "it has read all");
        read(&mut worker, client);
        send(&mut worker, &mut buffers, client, 0);
        assert!(worker.may_read(other) && worker.may_read(client) && memory.usage().all(|u| u.used == 0));
        for _ in 0..6 {
            send(&mut worker, &mut buffers, slow, 5 << 20);
        }
        assert!(!worker.may_read(other), "another node reads nothing");
    }

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

//! Node recovery, its end: the recovering node learns what became of transactions, so that it can answer for them when the last other replica is gone.
//!
//! When a primary has sent all rows of a partition, it sends the commits of the last [`super::outcome::KEPT_NS`] that it remembers, of all clients, down the same chain. They
//! are those of the whole instance: each partition brings them again, some hundred kilobytes at 400,000 commits a second.
//!
//! **Why none is missing.** A change of a row that the recovering node was not sent by the chain belongs to a transaction that locked the row in an earlier view. The walk
//! passes such a row over until it is decided, and outcomes are told behind the last of them; a commit is remembered before its row is decided.
//! A commit of the time since then comes by the chain. So with the last message of the last of its partitions the node knows of every commit that one of their primaries
//! knew of, as far back as the one that remembers least.
//!
//! **Slices.** A message has [`OUTCOME_BYTES`] at most, and takes its turn like one with rows. A new round (a node of the chain died) begins anew: what is told twice does no harm.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_signal::{
    DecodeError, Kind,
    copy::{CommittedChunk, CopyOutcomesOrd, CopyRowsConf},
    view::NodeState,
};
use apus_types::{
    PartitionId,
    planted::{Bug, planted},
};

use super::{LocalDataManager, copy_out::CopyJob, ends::is_short, outcome::KEPT_NS};

/// A message is closed when it holds so many bytes: some 200 chunks.
const OUTCOME_BYTES: usize = 16 << 10;
/// Chunks looked at for a message, most of which may be old; what a look and what the storing of one may cost at worst.
const LOOKED_MAX: usize = 16 << 10;
const LOOK_NS_MAX: u64 = 200;
const STORE_NS_MAX: u64 = 4_000;
const _: () = assert!(is_short(LOOKED_MAX, LOOK_NS_MAX));
const _: () = assert!(is_short(OUTCOME_BYTES / CommittedChunk::BYTES + 1, STORE_NS_MAX));

/// At the recovering node: of which partitions it has learned all, and from when on.
#[derive(Debug, Default)]
pub(super) struct Learning {
    partitions: BTreeSet<PartitionId>,
    /// By this process's clock, which may have begun later: negative.
    since: Option<i64>,
}

impl LocalDataManager {
    /// One message of outcomes, from the chunk `place` on. Returns where the next begins.
    pub(super) fn tell_outcomes(&mut self, job: &mut CopyJob, place: u32, ctx: &mut Context<'_>) -> Option<u32> {
        let now = ctx.now();
        let mut chunks = std::mem::take(&mut self.scratch.rows);
        chunks.clear();
        let next = self.outcomes.young(place, LOOKED_MAX, now, |chunk| {
            if !planted(Bug::OutcomesNotCopied) {
                chunk.encode(&mut chunks);
            }
            chunks.len() < OUTCOME_BYTES
        });
        ctx.spend(LOOKED_MAX.min(self.outcomes.figures().0), LOOK_NS_MAX);
        let known_ns = if next.is_none() { (now as i64 - self.outcomes.known_since(now)).max(1) as u64 } else { 0 };
        let (generation, partition) = (job.round, job.partition);
        let chain = self.view.chain(partition);
        let order = CopyOutcomesOrd { generation, source: self.me, chain, partition, known_ns, chunks: &chunks };
        if let Some(behind) = self.next_in(chain) {
            ctx.send(self.peer(behind), Kind::CopyOutcomesOrd, |out| order.encode(out));
            job.outstanding += self.behind(job);
        }
        self.scratch.rows = chunks;
        next
    }

    pub(super) fn on_copy_outcomes_ord(
        &mut self,
        order: &CopyOutcomesOrd<'_>,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        jam!(ctx);
        if self.view.state(self.me.node) == NodeState::Recovering {
            for chunk in order.chunks() {
                self.outcomes.learn(&chunk?, ctx.now());
                ctx.spend(1, STORE_NS_MAX);
            }
            if order.known_ns > 0 {
                self.learned_of(order.partition, ctx.now() as i64 - order.known_ns.min(KEPT_NS) as i64, ctx);
            }
        }
        if let Some(next) = self.next_in(order.chain) {
            ctx.send(self.peer(next), Kind::CopyOutcomesOrd, |out| out.extend_from_slice(body));
        }
        let conf = CopyRowsConf { generation: order.generation, partition: order.partition };
        ctx.send(order.source, Kind::CopyRowsConf, |out| conf.encode(out));
        Ok(())
    }

    fn learned_of(&mut self, partition: PartitionId, since: i64, ctx: &mut Context<'_>) {
        self.learning.partitions.insert(partition);
        self.learning.since = self.learning.since.max(Some(since));
        let known = &self.learning.partitions;
        let is_mine =
            |p: &PartitionId| self.view.instance(*p) == self.me.instance && self.view.chain(*p).contains(self.me.node);
        if (0..self.view.partition_count()).map(PartitionId).filter(is_mine).all(|p| known.contains(&p)) {
            ctx.probe("ldm: a recovering node knows what became of transactions before it");
            self.outcomes.learned_all(self.learning.since.unwrap_or(since));
        }
    }

    /// Of what was before this node joined, or of what an operator gave up, nothing is known here.
    pub(super) fn forget_outcomes(&mut self, ctx: &mut Context<'_>) {
        self.learning = Learning::default();
        self.outcomes.joined(ctx.now());
    }
}

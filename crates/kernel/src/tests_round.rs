//! How much a worker does in one round.

use apus_signal::{BlockId, BlockRef, DecodeError, Envelope, Kind};
use apus_types::NodeId;

use crate::{Block, Context, Worker, WorkerConfig, limits::ROUND_SPENT_NS};

/// Asks itself for the next slice, each of which may cost so much.
struct Sliced(BlockRef, u64);

impl Block for Sliced {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, _: &Envelope, _: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        ctx.spend(1, self.1);
        ctx.send(self.0, Kind::LdmContinueOrd, |_| {});
        Ok(())
    }
    fn tick(&mut self, _: &mut Context<'_>) {}
    fn dump(&self, _: &mut String) {}
}

#[test]
fn slices_do_not_follow_one_another_in_one_round() {
    for (slice_ns, expected) in [(ROUND_SPENT_NS, 1), (ROUND_SPENT_NS / 4, 4), (0, 1000)] {
        let who = WorkerConfig { node: NodeId(1), worker: 0, instances: 1, control: false, incarnation: 7, seed: 1 };
        let mut worker = Worker::new(who);
        let block = BlockRef::new(NodeId(1), BlockId::Ldm, 0);
        worker.add_block(Box::new(Sliced(block, slice_ns)));
        worker.with_context(block, |ctx| ctx.send(block, Kind::LdmContinueOrd, |_| {}));
        for _ in 0..3 {
            assert_eq!(worker.run(1000), expected, "a slice of {slice_ns} ns");
            assert!(worker.has_work(), "the next slice waits for the next round");
        }
    }
}

//! What a signal between two local blocks costs. `cargo run --release -p apus-kernel --example pingpong [signals]`; under
//! callgrind, the difference between two counts divided by their difference in signals is the cost of one.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program, not the core")]

use apus_kernel::{Block, Context, Worker, WorkerConfig};
use apus_signal::{BlockId, BlockRef, DecodeError, Envelope, Kind, Reader, codec::Put};
use apus_types::NodeId;

struct Bouncer(BlockRef);

impl Block for Bouncer {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let n = Reader::new(body).u64()?;
        ctx.send(envelope.from, Kind::HeartbeatRep, |b| b.put_u64(n + 1));
        Ok(())
    }
    fn tick(&mut self, _ctx: &mut Context<'_>) {}
    fn dump(&self, _out: &mut String) {}
}

fn main() {
    let signals: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(20_000_000);
    let mut worker =
        Worker::new(WorkerConfig { node: NodeId(1), worker: 0, instances: 1, control: false, incarnation: 1, seed: 1 });
    let [a, b] = [BlockId::Qmgr, BlockId::Cntr].map(|block| BlockRef::new(NodeId(1), block, 0));
    worker.add_block(Box::new(Bouncer(a)));
    worker.add_block(Box::new(Bouncer(b)));
    // Sixteen balls, so that the job buffer is more than one signal at a time.
    for n in 0..16 {
        worker.with_context(b, |ctx| ctx.send(a, Kind::HeartbeatRep, |out| out.put_u64(n)));
    }
    worker.set_time(1, 0);
    let executed = worker.run(signals);
    println!("executed {executed}");
}

//! The simulator itself, with blocks that only gossip: the seed decides everything, a crash is seen, a restart is linked again.

use apus_kernel::{Block, Context, WorkerConfig};
use apus_signal::{BlockId, BlockRef, DecodeError, Envelope, Kind, Reader, codec::Put};
use apus_sim::{Cluster, SimConfig};
use apus_types::NodeId;

const NODES: [u16; 3] = [1, 2, 3];

/// Passes every rumour on to a random block of a random node; counts links.
struct Gossip {
    me: BlockRef,
    heard: u64,
    up: u64,
    down: u64,
}

impl Gossip {
    fn pass(&self, rumour: u64, ctx: &mut Context<'_>) {
        let node = NodeId(NODES[(ctx.random() % 3) as usize]);
        let instances = u64::from(ctx.instances());
        let instance = Some(ctx.random() % (instances + 1)).filter(|i| *i < instances);
        let instance = instance.map_or(BlockRef::CONTROL, |i| i as u8);
        ctx.send(BlockRef { node, instance, block: BlockId::Qmgr }, Kind::HeartbeatRep, |b| b.put_u64(rumour + 1));
    }
}

impl Block for Gossip {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        match envelope.kind {
            Kind::LinkUpRep => self.up += 1,
            Kind::LinkDownRep => self.down += 1,
            Kind::HeartbeatRep => {
                self.heard += 1;
                let rumour = Reader::new(body).u64()?;
                if rumour < 200 {
                    self.pass(rumour, ctx);
                }
            }
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.pass(0, ctx);
    }
    fn dump(&self, out: &mut String) {
        out.push_str(&format!("heard {} up {} down {}", self.heard, self.up, self.down));
    }
}

fn cluster(seed: u64) -> Cluster {
    let config = SimConfig::new(&NODES.map(|n| (NodeId(n), 2)));
    Cluster::new(seed, config, |who: &WorkerConfig| {
        let me = BlockRef::new(who.node, BlockId::Qmgr, who.instance());
        vec![Box::new(Gossip { me, heard: 0, up: 0, down: 0 })]
    })
}

fn dump(c: &Cluster, node: u16) -> String {
    let mut out = String::new();
    c.worker(NodeId(node), 2).expect("the control worker, which hears of links").dump(&mut out);
    out
}

#[test]
fn the_seed_decides_the_run() {
    let run = |seed| {
        let mut c = cluster(seed);
        c.run_until(|_| false, 300_000_000);
        c.crash(NodeId(2));
        c.run_until(|_| false, 600_000_000);
        c.start(NodeId(2));
        c.run_until(|_| false, 900_000_000);
        (c.hash(), dump(&c, 1))
    };
    let (hash, state) = run(7);
    assert_eq!(run(7), (hash, state));
    assert_ne!(run(8).0, hash);
}

#[test]
fn crash_and_part_are_seen_and_links_come_back() {
    let mut c = cluster(1);
    c.run_until(|_| false, 50_000_000);
    assert!(dump(&c, 1).contains("up 6 down 0"), "{}", dump(&c, 1));
    c.crash(NodeId(2));
    c.run_until(|_| false, 100_000_000);
    assert!(dump(&c, 1).contains("up 6 down 3"), "{}", dump(&c, 1));
    c.start(NodeId(2));
    assert!(c.run_until(|c| dump(c, 1).contains("up 9 down 3"), 1_000_000_000));
    c.part(NodeId(1), NodeId(3));
    assert!(c.run_until(|c| dump(c, 1).contains("up 9 down 6"), 2_000_000_000));
    c.heal(NodeId(1), NodeId(3));
    assert!(c.run_until(|c| dump(c, 1).contains("up 12 down 6"), 3_000_000_000));
}

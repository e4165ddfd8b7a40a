//! COPY: drives node recovery from the side of the primaries.
//!
//! Owns, for every partition that this node is primary of, which recovering nodes are being filled and which are done. Talks to
//! the LDM instance of the partition (`CopyFragReq`, see `apus_signal::copy`) and to the president's QMGR (`RecoveredRep`).
//!
//! ```text
//! (partition, recovering nodes) --CopyFragReq--> Running --CopyFragConf--> Done --RecoveredRep--> the president
//!                                     ^             | CopyFragRef, or another set of nodes in a new view
//!                                     +-------------+
//! ```
//!
//! A view that changes neither the primary nor the recovering nodes of a partition leaves its copying alone; any other starts
//! it again with the new view's generation, and an answer with an older generation is ignored. LDM stops what it was copying of
//! a partition when it is asked anew, or when the view has nothing to fill any more. Done stays done: the node gets every later
//! write by the chain. If the primary dies, the new one copies again. If the president dies, everything done is told again.
//!
//! All partitions are asked for at once: LDM bounds what is under way (`COPY_WINDOW` per instance). A refused partition is
//! asked again after [`RETRY_NS`].

use std::{collections::BTreeMap, fmt::Write};

use apus_kernel::{Block, Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    copy::CopyFrag,
    qmgr::{Incarnation, RecoveredRep, encode},
    view::{NodeState, View},
};
use apus_types::{NodeId, PartitionId};

use crate::NodeConfig;

/// A refused copy is asked for again after so many nanoseconds.
pub const RETRY_NS: u64 = 100_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    /// Refused; ask again at this time.
    Refused(u64),
    Done,
}

#[derive(Debug)]
struct Fill {
    nodes: Vec<Incarnation>,
    generation: u64,
    state: State,
}

/// Node recovery's conductor; see the module.
pub struct NodeRecovery {
    me: NodeId,
    view: Option<View>,
    fills: BTreeMap<PartitionId, Fill>,
}

impl NodeRecovery {
    pub fn new(config: &NodeConfig) -> NodeRecovery {
        NodeRecovery { me: config.node, view: None, fills: BTreeMap::new() }
    }

    fn on_view(&mut self, view: View, ctx: &mut Context<'_>) {
        let president_changed = self.view.as_ref().is_none_or(|old| old.president != view.president);
        self.fills.retain(|p, _| usize::from(p.0) < view.chains.len());
        for partition in (0..view.partition_count()).map(PartitionId) {
            let chain = view.chain(partition);
            let recovering = chain.nodes().filter_map(|n| view.node(n)).filter(|n| n.state() == NodeState::Recovering);
            let nodes: Vec<Incarnation> =
                recovering.map(|n| Incarnation { node: n.id, incarnation: n.incarnation }).collect();
            if chain.primary() != Some(self.me) || nodes.is_empty() {
                self.fills.remove(&partition);
                continue;
            }
            if let Some(fill) = self.fills.get_mut(&partition) {
                // Fewer nodes than before, all of them served: nothing to do again.
                let covered = nodes.iter().all(|n| fill.nodes.contains(n));
                if fill.nodes == nodes || (covered && fill.state == State::Done) {
                    fill.nodes = nodes;
                    continue;
                }
            }
            let fill = Fill { nodes, generation: view.generation, state: State::Running };
            Self::ask(self.me, &view, partition, &fill, ctx);
            self.fills.insert(partition, fill);
        }
        self.view = Some(view);
        if president_changed {
            let done: Vec<PartitionId> =
                self.fills.iter().filter(|(_, f)| f.state == State::Done).map(|(p, _)| *p).collect();
            for partition in done {
                self.report(partition, ctx);
            }
        }
    }

    fn ask(me: NodeId, view: &View, partition: PartitionId, fill: &Fill, ctx: &mut Context<'_>) {
        assert!(fill.state == State::Running, "{partition} is to be filled and is {:?}", fill.state);
        assert!(view.chain(partition).primary() == Some(me), "{partition} is to be filled by {me}, not its primary");
        let ldm = BlockRef::new(me, BlockId::Ldm, view.instance(partition));
        let request = CopyFrag { generation: fill.generation, partition };
        ctx.send(ldm, Kind::CopyFragReq, |b| request.encode(b));
    }

    fn report(&self, partition: PartitionId, ctx: &mut Context<'_>) {
        let (Some(view), Some(fill)) = (&self.view, self.fills.get(&partition)) else { return };
        assert!(fill.state == State::Done, "{partition} is reported as filled and is {:?}", fill.state);
        let qmgr = BlockRef::new(NodeId(view.president as u16), BlockId::Qmgr, BlockRef::CONTROL);
        for &node in &fill.nodes {
            let rep = RecoveredRep { node: Some(node), partitions: vec![partition.0.into()] };
            ctx.send(qmgr, Kind::RecoveredRep, |b| encode(&rep, b));
        }
    }

    fn on_answer(&mut self, kind: Kind, answer: CopyFrag, ctx: &mut Context<'_>) {
        let Some(fill) = self.fills.get_mut(&answer.partition) else { return };
        if fill.generation != answer.generation || fill.state != State::Running {
            jam!(ctx);
            return;
        }
        if kind == Kind::CopyFragConf {
            fill.state = State::Done;
            self.report(answer.partition, ctx);
        } else {
            fill.state = State::Refused(ctx.now() + RETRY_NS);
        }
    }
}

impl Block for NodeRecovery {
    fn block_ref(&self) -> BlockRef {
        BlockRef::new(self.me, BlockId::Copy, 0)
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        match envelope.kind {
            Kind::ViewOrd => self.on_view(View::from_bytes(body)?, ctx),
            Kind::CopyFragConf | Kind::CopyFragRef if envelope.from.node == self.me => {
                self.on_answer(envelope.kind, CopyFrag::decode(body)?, ctx);
            }
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        let Some(view) = &self.view else { return };
        for (partition, fill) in &mut self.fills {
            if matches!(fill.state, State::Refused(at) if ctx.now() >= at) {
                fill.state = State::Running;
                Self::ask(self.me, view, *partition, fill, ctx);
            }
        }
    }
    fn dump(&self, out: &mut String) {
        for (partition, fill) in &self.fills {
            let _ = writeln!(out, "copy partition {partition}: {:?} for {:?}", fill.state, fill.nodes);
        }
    }
}

//! An operator's tool at the management nodes: what `apus status` shows, and `apus cluster resume --force`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    envelope::{decode_frame, frame_length},
    mgmt::{MgmtReq, NodeSummary, StatusConf},
    operator::{FrozenSide, Resume, ResumeAnswer},
    qmgr::Incarnation,
};
use apus_types::{Epoch, NodeId};
use prost::Message;

use crate::{Actor, ActorOutput, Welcome};

/// The tool looks this often.
const LOOK_NS: u64 = 100_000_000;

/// A side that waits for an operator, as its leader tells of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Waiting {
    pub side: FrozenSide,
    leader: Incarnation,
    cluster: u64,
    mgmt: NodeId,
}

/// What the tool shows, and what it is told to do.
#[derive(Default)]
pub(crate) struct Desk {
    /// Of each management node that answers.
    seen: BTreeMap<NodeId, StatusConf>,
    order: Option<(NodeId, Resume)>,
    /// Of the last order.
    pub answer: Option<ResumeAnswer>,
}

impl Desk {
    /// The first side that waits.
    pub fn waiting(&self) -> Option<Waiting> {
        let is_leader = |n: &&NodeSummary| n.incarnation != 0 && n.side.as_ref().is_some_and(|s| s.leader == n.id);
        self.seen.iter().find_map(|(mgmt, status)| {
            let node = status.nodes.iter().find(is_leader)?;
            let leader = Incarnation { node: node.id, incarnation: node.incarnation };
            Some(Waiting { side: node.side.clone()?, leader, cluster: status.cluster, mgmt: *mgmt })
        })
    }
    /// That side is to go on; `micros` is the operator's time since the founding.
    pub fn resume(&mut self, waiting: &Waiting, micros: u64) {
        let Waiting { side, leader, cluster, mgmt } = waiting.clone();
        let FrozenSide { lineage, generation, abandons, .. } = side;
        let (request, new_lineage) = (2, lineage + micros);
        let order = Resume { request, cluster, leader: Some(leader), lineage, generation, abandons, new_lineage };
        self.order = Some((mgmt, order));
        self.answer = None;
    }
}

pub(crate) struct Console {
    mgmts: Vec<NodeId>,
    /// Links that stand: the id by which the node knows it, and bytes that came.
    links: BTreeMap<NodeId, (NodeId, Vec<u8>)>,
    dialled: BTreeSet<NodeId>,
    desk: Rc<RefCell<Desk>>,
}

impl Console {
    pub fn new(mgmts: Vec<NodeId>) -> (Console, Rc<RefCell<Desk>>) {
        let desk = Rc::<RefCell<Desk>>::default();
        (Console { mgmts, links: BTreeMap::new(), dialled: BTreeSet::new(), desk: desk.clone() }, desk)
    }
    fn say(&self, node: NodeId, kind: Kind, body: &impl Message, out: &mut ActorOutput) {
        let Some((own, _)) = self.links.get(&node) else { return };
        let (to, from) = (BlockRef::new(node, BlockId::Mgmt, 0), BlockRef::new(*own, BlockId::Client, 0));
        let mut bytes = Vec::new();
        Envelope { kind, to, from, epoch: Epoch(0), trace: 0, generation: 0 }
            .encode(&mut bytes, |out| body.encode_raw(out));
        out.send(node, bytes);
    }
    /// Takes the next whole frame of a node.
    fn take(&mut self, node: NodeId) -> bool {
        let Some((_, bytes)) = self.links.get_mut(&node) else { return false };
        let Some(length) = frame_length(bytes).ok().flatten().filter(|length| *length <= bytes.len()) else {
            return false;
        };
        let frame: Vec<u8> = bytes.drain(..length).collect();
        let Ok((envelope, body)) = decode_frame(&frame) else { return false };
        let mut desk = self.desk.borrow_mut();
        match envelope.kind {
            Kind::StatusConf => desk.seen.extend(StatusConf::decode(body).ok().map(|status| (node, status))),
            Kind::ResumeConf => desk.answer = ResumeAnswer::decode(body).ok(),
            _ => {}
        }
        true
    }
}

impl Actor for Console {
    fn is_operator(&self) -> bool {
        true
    }
    fn wake(&mut self, now_ns: u64, out: &mut ActorOutput) {
        for node in self.mgmts.clone() {
            if self.links.contains_key(&node) {
                self.say(node, Kind::StatusReq, &MgmtReq { request: 1 }, out);
            } else if self.dialled.insert(node) {
                out.connect(node, 0);
            }
        }
        let order = self.desk.borrow_mut().order.take();
        if let Some((mgmt, order)) = order {
            self.say(mgmt, Kind::ResumeReq, &order, out);
        }
        out.wake_at(now_ns + LOOK_NS);
    }
    fn link_up(&mut self, _now_ns: u64, node: NodeId, welcome: Welcome, _out: &mut ActorOutput) {
        self.dialled.remove(&node);
        self.links.insert(node, (welcome.own, Vec::new()));
    }
    fn link_down(&mut self, _now_ns: u64, node: NodeId, _out: &mut ActorOutput) {
        self.dialled.remove(&node);
        self.links.remove(&node);
        self.desk.borrow_mut().seen.remove(&node);
    }
    fn receive(&mut self, _now_ns: u64, node: NodeId, bytes: &[u8], _out: &mut ActorOutput) {
        if let Some((_, all)) = self.links.get_mut(&node) {
            all.extend_from_slice(bytes);
        }
        while self.take(node) {}
    }
}

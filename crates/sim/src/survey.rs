//! A surveyor: asks every data node itself for its dictionary, by a link of its own. Clients ask whichever node they like.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    dict::{DictReadReq, Dictionary},
    envelope::{decode_frame, frame_length},
};
use apus_types::{Epoch, NodeId};
use prost::Message;

use crate::{Actor, ActorOutput, Welcome};

/// A node that could not be asked is asked again after this.
const RETRY_NS: u64 = 500_000_000;

/// What was found so far.
pub(crate) type Survey = Rc<RefCell<BTreeMap<NodeId, Dictionary>>>;

pub(crate) struct Surveyor {
    nodes: Vec<NodeId>,
    /// Bytes of links that stand.
    received: BTreeMap<NodeId, Vec<u8>>,
    found: Survey,
}

impl Surveyor {
    pub fn new(nodes: Vec<NodeId>) -> (Surveyor, Survey) {
        let found = Survey::default();
        (Surveyor { nodes, received: BTreeMap::new(), found: found.clone() }, found)
    }
    fn is_found(&self, node: NodeId) -> bool {
        self.found.borrow().contains_key(&node)
    }
    fn ask(node: NodeId, own: NodeId, out: &mut ActorOutput) {
        let (to, from) = (BlockRef::new(node, BlockId::Dict, 0), BlockRef::new(own, BlockId::Client, 0));
        let mut bytes = Vec::new();
        Envelope { kind: Kind::DictReadReq, to, from, epoch: Epoch(0), trace: 0, generation: 0 }
            .encode(&mut bytes, |out| DictReadReq { request: 1, ..DictReadReq::default() }.encode_raw(out));
        out.send(node, bytes);
    }
    /// The next whole frame of a node: its dictionary, or that it has none to give now.
    fn take(&mut self, node: NodeId) -> Option<Option<Dictionary>> {
        let bytes = self.received.get_mut(&node)?;
        let length = frame_length(bytes).ok()??;
        let frame: Vec<u8> = bytes.get(..length)?.to_vec();
        bytes.drain(..length);
        let (envelope, body) = decode_frame(&frame).ok()?;
        Some((envelope.kind == Kind::DictReadConf).then(|| Dictionary::decode(body).ok()).flatten())
    }
}

impl Actor for Surveyor {
    fn wake(&mut self, now_ns: u64, out: &mut ActorOutput) {
        let missing: Vec<NodeId> = self.nodes.iter().copied().filter(|node| !self.is_found(*node)).collect();
        for node in missing {
            if self.received.contains_key(&node) {
                out.disconnect(node); // it has not answered, or refused
            } else {
                out.connect(node, 0);
            }
            out.wake_at(now_ns + RETRY_NS);
        }
    }
    fn link_up(&mut self, _now_ns: u64, node: NodeId, welcome: Welcome, out: &mut ActorOutput) {
        self.received.insert(node, Vec::new());
        Surveyor::ask(node, welcome.own, out);
    }
    fn link_down(&mut self, _now_ns: u64, node: NodeId, _out: &mut ActorOutput) {
        self.received.remove(&node);
    }
    fn receive(&mut self, _now_ns: u64, node: NodeId, bytes: &[u8], _out: &mut ActorOutput) {
        if let Some(all) = self.received.get_mut(&node) {
            all.extend_from_slice(bytes);
        }
        while let Some(answer) = self.take(node) {
            if let Some(dictionary) = answer {
                self.found.borrow_mut().insert(node, dictionary);
            }
        }
    }
}

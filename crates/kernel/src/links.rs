//! The sending side of a worker's links and who may talk to us over them.
//!
//! The kernel knows a link as an output buffer with a state. The executor announces a connection ([`crate::Worker::link_offered`]), writes
//! what [`crate::Worker::output`] holds to wherever it goes, says how much went ([`crate::Worker::sent`]) and reports its loss
//! ([`crate::Worker::link_lost`]). A link between data nodes outlives its connections (`session`). The end of a link
//! throws away what was unsent: signals to a dead link are lost and counted, like those on the wire at that moment, and the failure
//! protocol of the conversation deals with both alike.

use apus_signal::{Kind, view::View};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use crate::{
    limits::{BUFFER_BYTES_KEPT, CLIENT_UNSENT_MAX, CLIENTS_MAX, LINK_KEPT_MIN, MEMBER_UNSENT_MAX},
    session::{Rank, Session},
};

#[derive(Default)]
pub(crate) struct Link {
    pub up: bool,
    pub incarnation: u64,
    pub out: Vec<u8>,
    /// Bytes at the start of `out` that the executor has written already.
    pub sent: usize,
    /// Of those, the ones at the start that are not needed any more.
    pub released: usize,
    /// Is in the list of links to flush.
    pub dirty: bool,
    /// When whole signals came last.
    pub heard: u64,
    /// Of this link in [`Links::unsent_total`].
    counted: usize,
    pub session: Session,
}

impl Link {
    #[inline]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }
    #[inline]
    pub fn output(&self) -> &[u8] {
        let session = &self.session;
        if session.awaits_opening() || !session.head.is_empty() {
            return &session.head;
        }
        &self.out[self.sent..]
    }
    pub fn advance(&mut self, bytes: usize) {
        let head = &mut self.session.head;
        if !head.is_empty() {
            head.drain(..bytes);
            return;
        }
        assert!(bytes <= self.unsent(), "executor sent more than there was");
        self.sent += bytes;
        if self.session.is_numbered {
            self.keep_sent();
        } else {
            self.release(self.sent);
        }
    }
    /// What lies before this place of `out` is not needed any more.
    pub fn release(&mut self, to: usize) {
        assert!(self.released <= to && to <= self.sent, "bytes {to} of {} to {}", self.released, self.sent);
        self.released = to;
        let least = if self.session.is_numbered { LINK_KEPT_MIN } else { BUFFER_BYTES_KEPT };
        if to < self.out.len() && (to < least || to * 2 < self.out.len()) {
            return;
        }
        if to == self.out.len() {
            self.out.clear();
        } else {
            self.out.drain(..to);
        }
        if self.out.len() <= BUFFER_BYTES_KEPT {
            self.out.shrink_to(BUFFER_BYTES_KEPT);
        }
        self.session.moved(to);
        self.sent -= to;
        self.released = 0;
    }
    /// It is gone, with all it held.
    pub fn close(&mut self) {
        self.up = false;
        self.out = Vec::new();
        (self.sent, self.released) = (0, 0);
        self.session.forget();
    }
}

/// Who may send and be sent data-plane signals.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gate {
    pub allowed: bool,
    pub incarnation: u64,
}

pub(crate) struct Links {
    data: Vec<Link>,
    mgmt: Vec<Link>,
    /// Clients of this worker: slot / instances.
    clients: Vec<Link>,
    gates: [Gate; NodeId::DATA_MAX as usize + 1],
    instances: usize,
    /// Links with something new to flush.
    pub dirty: Vec<NodeId>,
    /// Generation of the newest view that set the gates.
    generation: u64,
    /// Of all links, as of when each was looked at last.
    unsent: usize,
    /// Of those the ones for clients.
    unsent_to_clients: usize,
    /// Sessions begun: each has a number of its own.
    sessions: u64,
    /// Id of the cluster, as that view or before it the configuration says; 0: not known yet.
    pub cluster: u64,
}

impl Links {
    pub fn new(own: NodeId, instances: u8) -> Links {
        let mut gates = [Gate::default(); NodeId::DATA_MAX as usize + 1];
        if let Some(gate) = gates.get_mut(usize::from(own.0)) {
            gate.allowed = true;
        }
        let mut data = Vec::new();
        data.resize_with(usize::from(NodeId::DATA_MAX) + 1, Link::default);
        Links {
            data,
            mgmt: Vec::new(),
            clients: Vec::new(),
            gates,
            instances: usize::from(instances),
            dirty: Vec::new(),
            generation: 0,
            unsent: 0,
            unsent_to_clients: 0,
            sessions: 0,
            cluster: 0,
        }
    }
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<&Link> {
        let n = usize::from(node.0);
        if node.is_data() {
            self.data.get(n)
        } else if node.is_client() {
            self.clients.get((n - usize::from(NodeId::CLIENT_BASE)) / self.instances)
        } else {
            self.mgmt.get(n.checked_sub(usize::from(NodeId::MGMT_BASE))?)
        }
    }
    #[inline]
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Link> {
        let n = usize::from(node.0);
        if node.is_data() {
            self.data.get_mut(n)
        } else if node.is_client() {
            self.clients.get_mut((n - usize::from(NodeId::CLIENT_BASE)) / self.instances)
        } else {
            self.mgmt.get_mut(n.checked_sub(usize::from(NodeId::MGMT_BASE))?)
        }
    }
    /// The output buffer of a link that exists, which goes on the list of those to flush.
    #[inline]
    pub fn writer(&mut self, node: NodeId) -> Option<&mut Vec<u8>> {
        self.note_dirty(node);
        self.get_mut(node).map(|link| &mut link.out)
    }
    /// There may be something to flush.
    #[inline]
    pub fn note_dirty(&mut self, node: NodeId) {
        let Some(link) = self.get_mut(node) else { return };
        if !std::mem::replace(&mut link.dirty, true) {
            self.dirty.push(node);
        }
    }
    /// Makes room for a link that the executor announces. `numbered`: rank of its first connection.
    pub fn open(&mut self, node: NodeId, incarnation: u64, numbered: Option<Rank>) {
        let n = usize::from(node.0);
        let (list, at) = if node.is_client() {
            (&mut self.clients, (n - usize::from(NodeId::CLIENT_BASE)) / self.instances)
        } else if node.may_arbitrate() {
            (&mut self.mgmt, n - usize::from(NodeId::MGMT_BASE))
        } else {
            (&mut self.data, n)
        };
        assert!(at < CLIENTS_MAX && n != 0, "link to impossible node {node}");
        if list.len() <= at {
            list.resize_with(at + 1, Link::default);
        }
        let link = &mut list[at];
        let (out, dirty, counted) = (std::mem::take(&mut link.out), link.dirty, link.counted);
        self.sessions += 1;
        let session = numbered.map_or_else(Session::default, |rank| Session::numbered(self.sessions, rank));
        *link = Link { up: true, incarnation, out, sent: 0, released: 0, dirty, heard: 0, counted, session };
        link.out.clear();
        self.recount(node);
    }
    /// Takes what the link holds now into the total.
    #[inline]
    pub fn recount(&mut self, node: NodeId) {
        let Some(link) = self.get_mut(node) else { return };
        let now = link.out.len() - link.released;
        let before = std::mem::replace(&mut link.counted, now);
        self.unsent = self.unsent + now - before;
        if node.is_client() {
            self.unsent_to_clients = self.unsent_to_clients + now - before;
        }
    }
    pub fn unsent_max(node: NodeId) -> usize {
        if node.is_client() { CLIENT_UNSENT_MAX } else { MEMBER_UNSENT_MAX }
    }
    #[inline]
    pub fn is_allowed(&self, node: NodeId) -> bool {
        self.gates.get(usize::from(node.0)).is_none_or(|gate| gate.allowed)
    }
    /// Allowed, and the link is to the very process that was.
    #[inline]
    pub fn is_allowed_link(&self, node: NodeId) -> bool {
        let Some(gate) = self.gates.get(usize::from(node.0)) else { return true };
        gate.allowed
            && self.get(node).is_some_and(|link| link.incarnation == gate.incarnation || planted(Bug::GateLeftOpen))
    }
    pub fn set_gate(&mut self, node: NodeId, gate: Gate) {
        if let Some(old) = self.gates.get_mut(usize::from(node.0)) {
            *old = gate;
        }
    }
    /// What the configuration says counts until a view says it.
    pub fn set_cluster(&mut self, cluster: u64) {
        if self.generation == 0 {
            self.cluster = cluster;
        }
    }
    /// A committed view passed this worker: its members may speak, all others may not.
    pub fn note_view(&mut self, view: &View, own: NodeId) {
        if view.generation <= self.generation {
            return;
        }
        self.generation = view.generation;
        self.cluster = view.cluster;
        for id in 1..=NodeId::DATA_MAX {
            let node = NodeId(id);
            if node != own {
                let incarnation = view.node(node).map_or(0, |n| n.incarnation);
                let allowed = view.is_alive(node) || planted(Bug::GateLeftOpen);
                self.set_gate(node, Gate { allowed, incarnation });
            }
        }
    }
    /// Of the newest view that passed this worker, as envelopes carry it.
    #[inline]
    pub fn generation(&self) -> u32 {
        u32::try_from(self.generation).unwrap_or(u32::MAX)
    }
    /// Bytes held for all links together, unsent or not acknowledged, as of the last flush: no walk over all links.
    pub fn unsent_total(&self) -> usize {
        self.unsent
    }
    /// Most of them are for clients.
    pub fn clients_hold_most(&self) -> bool {
        self.unsent_to_clients > self.unsent / 2
    }
}

/// Signals that only members may exchange: everything but membership, link and management conversations.
#[inline]
pub(crate) fn is_data_plane(kind: Kind) -> bool {
    let n = kind as u16;
    (Kind::ReadReq as u16..Kind::HeartbeatRep as u16).contains(&n)
        || (Kind::MapReq as u16..Kind::ConfigReq as u16).contains(&n)
}

/// Whether a member may send this over its link. A management node configures, arbitrates and orders a stop; it is no part of any
/// transaction, nor does it change the view. A SQL node that may arbitrate does that, and asks a management node where the data nodes are.
#[inline]
pub(crate) fn may_say(source: NodeId, kind: Kind) -> bool {
    match source {
        _ if source.is_data() => !is_inside_only(kind),
        _ if source.is_sql_arbitrator() => is_of_arbitrator(kind),
        _ => is_of_mgmt(kind),
    }
}

fn is_of_arbitrator(kind: Kind) -> bool {
    matches!(kind, Kind::ConfigReq | Kind::HeartbeatRep | Kind::ArbitConf | Kind::StopOrd | Kind::LeaseEndReq)
}

fn is_of_mgmt(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::ConfigConf
            | Kind::ConfigRef
            | Kind::HeartbeatRep
            | Kind::ArbitConf
            | Kind::StopOrd
            | Kind::LeaseEndReq
            | Kind::SettingOrd
            | Kind::EndOrd
            | Kind::ResumeOrd
            | Kind::RequestRef
    )
}

/// What changes or ends a cluster: of its clients only an operator may ask for it.
pub(crate) fn is_of_operator(kind: Kind) -> bool {
    matches!(kind, Kind::SettingReq | Kind::ClusterStopReq | Kind::ResumeReq)
}

/// Signals that never leave a process: one that comes over a link is forged.
#[inline]
pub(crate) fn is_inside_only(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::ClientGoneRep
            | Kind::ClientUpRep
            | Kind::LdmContinueOrd
            | Kind::TcContinueOrd
            | Kind::EpochContinueOrd
            | Kind::DrainReq
            | Kind::DrainConf
            | Kind::LinkDownRep
            | Kind::LinkUpRep
            | Kind::LinkSuspendedRep
            | Kind::LinkResumedRep
            | Kind::ViewOrd
            | Kind::WorkerStuckRep
            | Kind::LeaveOrd
            | Kind::TableOrd
            | Kind::RedoFoundRep
            | Kind::StartRep
            | Kind::KeepReq
            | Kind::KeepConf
            | Kind::DiskRep
            | Kind::FileConf
            | Kind::FileRef
            | Kind::DiskConf
            | Kind::DiskRef
    )
}

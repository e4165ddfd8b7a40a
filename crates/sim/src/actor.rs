//! Actors: whatever talks to the cluster from outside, such as a native client with a workload.

use apus_types::NodeId;

/// Number of an actor, in order of attaching.
pub type ActorId = usize;

/// What the process at the other end of a new link says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The id by which that node knows this link.
    pub own: NodeId,
    /// Workers of the node.
    pub instances: u8,
    pub incarnation: u64,
    /// Id of the cluster, 0: not known there yet.
    pub cluster: u64,
}

/// What an actor wants done, collected while it runs.
#[derive(Default)]
pub struct ActorOutput {
    pub(crate) connect: Vec<(NodeId, u64)>,
    pub(crate) disconnect: Vec<NodeId>,
    pub(crate) bytes: Vec<(NodeId, Vec<u8>)>,
    pub(crate) wake_at: Option<u64>,
}

impl ActorOutput {
    /// Opens a client link; [`Actor::link_up`] or [`Actor::link_down`] follows, never before this call has returned. An
    /// incarnation other than 0 is part of the address: nobody else answers there.
    pub fn connect(&mut self, node: NodeId, incarnation: u64) {
        self.connect.push((node, incarnation));
    }
    pub fn disconnect(&mut self, node: NodeId) {
        self.disconnect.push(node);
    }
    /// Sends frames over the link to the node; lost if there is none.
    pub fn send(&mut self, node: NodeId, bytes: Vec<u8>) {
        self.bytes.push((node, bytes));
    }
    /// Asks for [`Actor::wake`] at this virtual time.
    pub fn wake_at(&mut self, now_ns: u64) {
        self.wake_at = Some(self.wake_at.map_or(now_ns, |t| t.min(now_ns)));
    }
}

/// Deterministic code that speaks to nodes over client links. It has at most one link to a node.
pub trait Actor {
    /// The id that it names in its hello; 0: none.
    fn identity(&self) -> u64 {
        0
    }
    /// It proves by the secret of the cluster's nodes that it may do what an operator may.
    fn is_operator(&self) -> bool {
        false
    }
    /// First when attached, then at the times it asked for.
    fn wake(&mut self, now_ns: u64, out: &mut ActorOutput);
    fn link_up(&mut self, now_ns: u64, node: NodeId, welcome: Welcome, out: &mut ActorOutput);
    fn link_down(&mut self, now_ns: u64, node: NodeId, out: &mut ActorOutput);
    /// Bytes in order, cut anywhere.
    fn receive(&mut self, now_ns: u64, node: NodeId, bytes: &[u8], out: &mut ActorOutput);
}

//! The queue of what will happen, in order of virtual time.

use std::{cmp::Reverse, collections::BinaryHeap};

use apus_kernel::DiskDone;
use apus_signal::BlockRef;
use apus_types::NodeId;

use crate::ActorId;

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    Worker { node: NodeId, worker: u8 },
    Actor(ActorId),
}

#[derive(Debug)]
pub enum Event {
    /// Bytes arrive at the far end of the link; `at_end` is 0 or 1.
    LinkBytes {
        link: u64,
        at_end: usize,
        bytes: Vec<u8>,
    },
    /// The end learns that the link is gone.
    LinkEnd {
        link: u64,
        at_end: usize,
    },
    /// Bytes arrive at the worker from another of the same node and the same start of it.
    Ring {
        node: NodeId,
        worker: u8,
        incarnation: u64,
        bytes: Vec<u8>,
    },
    /// The worker's timers are due or it has work left.
    Turn {
        node: NodeId,
        worker: u8,
        incarnation: u64,
    },
    /// What waited for the worker is done, if its node is not paused and its turn is over.
    Resume {
        node: NodeId,
        worker: u8,
        incarnation: u64,
    },
    /// A link is tried between equal workers of two nodes.
    Dial {
        from: NodeId,
        to: NodeId,
        worker: u8,
    },
    /// A connection is tried with which the link between two data nodes goes on.
    Redial {
        from: NodeId,
        to: NodeId,
        worker: u8,
        number: u32,
    },
    /// Nobody answered it for the process that was there.
    Refused {
        from: NodeId,
        to: NodeId,
        worker: u8,
        incarnation: u64,
        number: u32,
    },
    /// It comes to the worker at this end.
    Offer {
        link: u64,
        at_end: usize,
    },
    /// An actor's link is tried; an incarnation other than 0 must be the node's.
    ActorDial {
        actor: ActorId,
        node: NodeId,
        incarnation: u64,
    },
    Wake {
        actor: ActorId,
    },
    /// The node's disk has performed something.
    Disk {
        node: NodeId,
    },
    /// A block learns what became of its file.
    FileDone {
        node: NodeId,
        worker: u8,
        incarnation: u64,
        asker: BlockRef,
        token: u64,
        outcome: Result<(), String>,
    },
    /// A worker learns what became of a request to a data file.
    DiskDone {
        node: NodeId,
        worker: u8,
        incarnation: u64,
        done: DiskDone,
    },
}

/// Events of equal time happen in the order in which they were planned.
#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Planned>>,
    planned: u64,
}

struct Planned {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl Queue {
    pub fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse(Planned { at, order: self.planned, event }));
    }
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(p)| (p.at, p.event))
    }
}

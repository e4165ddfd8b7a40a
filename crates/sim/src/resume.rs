//! How links between data nodes go on when their connection is lost; the kernel's `session` has the rules.
//!
//! Both ends dial as soon as they have learnt of the loss, each at its own time. A connection that comes through is offered to the workers of
//! both, again each at its own time: what one sends waits at the other until then. A dial finds nobody if the process is gone, or, where
//! the nodes are kept apart, if so it was drawn: something on the way refuses. Otherwise there is no answer, and it is repeated.

use apus_kernel::Offer;
use apus_types::NodeId;

use crate::{
    Cluster,
    events::{End, Event},
    network::{Party, REDIAL_NS},
};

/// A dial without an answer is repeated after this long.
const AGAIN_NS: u64 = 5_000_000;

impl Cluster {
    /// The number with which the worker would have the node dialled.
    pub(crate) fn awaits(&self, node: NodeId, peer: NodeId, worker: u8) -> Option<u32> {
        self.worker(node, worker).filter(|_| self.is_running(node)).and_then(|w| w.awaits_connection(peer))
    }
    /// The worker has no connection to the node (any more): dials what it lacks.
    pub(crate) fn dial_again(&mut self, node: NodeId, worker: u8, peer: NodeId) {
        if let Some(number) = self.awaits(node, peer, worker) {
            if self.addresses.contains(&(node, peer)) {
                let at = self.now + self.delay(self.config.link_delay_ns);
                self.queue.plan(at, Event::Redial { from: node, to: peer, worker, number });
            }
            return;
        }
        let number = if node.is_data() && peer.is_data() { worker } else { 0 };
        for (from, to) in [(node, peer), (peer, node)] {
            if self.wanted.contains_key(&(from, to)) {
                self.plan_dial(REDIAL_NS, from, to, number);
            }
        }
    }
    pub(crate) fn on_redial(&mut self, from: NodeId, to: NodeId, worker: u8, number: u32) {
        if self.awaits(from, to, worker) != Some(number) {
            return;
        }
        let (here, there) = (self.incarnation(from), self.incarnation(to));
        let is_barred = !self.may_dial(from, to);
        let refuses = self.refusing.contains(&(Party::Node(from), Party::Node(to)));
        if self.is_paused(from) || (is_barred && !(refuses && self.is_barred(from, to))) {
            self.queue.plan(self.now + AGAIN_NS, Event::Redial { from, to, worker, number });
        } else if is_barred || there == 0 {
            let at = self.now + self.delay(self.config.link_delay_ns);
            self.queue.plan(at, Event::Refused { from, to, worker, incarnation: here, number });
        } else if self.is_paused(to) {
            self.queue.plan(self.now + AGAIN_NS, Event::Redial { from, to, worker, number });
        } else {
            let ends = [from, to].map(|node| End::Worker { node, worker });
            let link = self.connect(ends, [to, from], [here, there]);
            if let Some(made) = self.links.get_mut(&link) {
                (made.number, made.offered) = (number, [false; 2]);
            }
            for at_end in 0..2 {
                let at = self.now + self.delay(self.config.link_delay_ns);
                self.queue.plan(at, Event::Offer { link, at_end });
            }
        }
    }
    pub(crate) fn on_refused(&mut self, from: NodeId, to: NodeId, worker: u8, incarnation: u64, number: u32) {
        let mut ended = false;
        self.with_worker(from, worker, Some(incarnation), |w| ended = w.link_refused(to, number));
        if ended {
            self.dial_again(from, worker, to);
        }
    }
    pub(crate) fn on_offer(&mut self, id: u64, at_end: usize) {
        let Some(link) = self.links.get(&id).filter(|link| !link.ended(at_end)) else { return };
        let (end, name, incarnation) = (link.ends[at_end], link.names[at_end], link.incarnations[at_end]);
        let offer = Offer { incarnation: link.incarnations[1 - at_end], number: link.number, dialled: at_end == 0 };
        let End::Worker { node, worker } = end else { return };
        if self.incarnation(node) != incarnation {
            return; // its death ends the connection
        }
        let host = self.hosts.get_mut(&node);
        let Some(w) = host.and_then(|host| host.workers.get_mut(usize::from(worker))) else { return };
        let is_taken = w.link_offered(name, offer);
        if is_taken {
            if let Some(link) = self.links.get_mut(&id) {
                link.offered[at_end] = true;
            }
            if let Some(before) = self.by_end.insert((end, name), id) {
                self.give_up(before, end);
            }
        } else {
            self.give_up(id, end);
        }
        self.with_worker(node, worker, Some(incarnation), |_| ());
        if is_taken {
            self.read_link(id, at_end, incarnation);
        } else if !self.by_end.contains_key(&(end, name)) {
            self.dial_again(node, worker, name);
        }
    }
    /// This end closes a connection that its worker does not use: nothing of it is read there any more.
    fn give_up(&mut self, id: u64, end: End) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let at_end = usize::from(link.ends[1] == end);
        link.end(at_end);
        if let End::Worker { node, worker } = end {
            self.held.remove(&(node, worker, id, at_end));
        }
        self.cut(id, Some(at_end));
    }
}

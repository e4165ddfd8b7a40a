//! What an executor says of its connections, and what it writes to them.

use apus_signal::{BlockId, BlockRef, Kind, codec::Put};
use apus_types::NodeId;

use crate::{Worker, core::Core, links::Link, session::Wire};

/// A connection whose hello is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Of the process at the other end; of a client the id that it chose for itself.
    pub incarnation: u64,
    /// How often the link between these data nodes was taken up before; 0: it is to begin anew.
    pub number: u32,
    /// By us.
    pub dialled: bool,
}

impl Worker {
    /// A link stands: signals may leave by it. See [`Worker::link_offered`].
    pub fn link_up(&mut self, node: NodeId, incarnation: u64) {
        self.link_offered(node, Offer { incarnation, number: 0, dialled: false });
    }

    /// There is a connection to the node. Members are reported to QMGR (on a management node: to MGMT), clients to every TC
    /// before anything that they send. False: it is to be closed, and if there was one before, that one stays; otherwise it takes the
    /// place of that.
    pub fn link_offered(&mut self, node: NodeId, offer: Offer) -> bool {
        if !self.core.is_numbered(node) {
            if self.core.links.get(node).is_some_and(|link| link.up) {
                self.link_down(node);
            }
            self.core.links.open(node, offer.incarnation, None);
            self.report_up(node, offer.incarnation);
            return true;
        }
        let rank = (offer.number, offer.dialled == (self.core.config.node < node));
        let opening = self.core.link_envelope(Kind::LinkOpenOrd, node);
        if let Some(link) = self.core.links.get_mut(node) {
            let is_same = link.up && link.incarnation == offer.incarnation && !link.session.is_broken;
            // Before the other end was heard, one that begins anew has lost nothing.
            if is_same && (offer.number > 0 || !link.session.is_met()) {
                let is_without = link.session.wire == Wire::None;
                // Who dials twice with one number has nothing of the first.
                let is_again = rank == link.session.rank && (offer.number == 0 || is_without);
                // The last connection came to go on with the link of a process that was here before. Whoever made it begins anew now.
                let is_anew = offer.number == 0 && is_without;
                let is_newer = rank > link.session.rank || is_again || is_anew;
                if is_newer {
                    link.begin_opening(rank, &opening);
                    self.core.suspend(node);
                    self.core.links.note_dirty(node);
                }
                return is_newer;
            }
            if link.up || link.session.is_known {
                self.link_down(node);
            }
        }
        // Who dials to go on with a link that is not there learns it from what we open with.
        if offer.number > 0 && offer.dialled {
            return false;
        }
        self.core.links.open(node, offer.incarnation, Some(rank));
        if let Some(link) = self.core.links.get_mut(node) {
            link.begin_opening(rank, &opening);
            // Who comes to go on may not know that there is nothing to go on with: then there is no link.
            link.session.is_known = offer.number == 0;
        }
        if offer.number == 0 {
            self.core.report_link(Kind::LinkUpRep, node, offer.incarnation);
        }
        self.core.links.note_dirty(node);
        true
    }

    /// The connection to the node is lost. `Some`: the link waits for another, to be dialled at once and offered with this number.
    /// `None`: the link has ended.
    pub fn link_lost(&mut self, node: NodeId) -> Option<u32> {
        let link = self.core.links.get_mut(node)?;
        if !link.up || link.session.is_broken || !link.session.is_known {
            self.link_down(node);
            return None;
        }
        link.session.wire = Wire::None;
        link.session.head.clear();
        self.core.suspend(node);
        self.awaits_connection(node)
    }

    /// The number with which a connection to the node is to be dialled, if its link waits for one.
    pub fn awaits_connection(&self, node: NodeId) -> Option<u32> {
        let link = self.core.links.get(node).filter(|link| link.up && link.session.is_known)?;
        if link.session.wire == Wire::None { link.session.rank.0.checked_add(1) } else { None }
    }

    /// Where the link waited for a connection of this number, nobody answers for the process that was there: it has ended. False: it does
    /// not wait for that one.
    pub fn link_refused(&mut self, node: NodeId, number: u32) -> bool {
        let waits = self.awaits_connection(node) == Some(number);
        if waits {
            self.link_down(node);
        }
        waits
    }

    /// A link is gone for good, what was unsent with it. A client's end is reported to every TC and to DIH.
    pub fn link_down(&mut self, node: NodeId) {
        let Some(link) = self.core.links.get_mut(node) else { return };
        let incarnation = link.incarnation;
        let is_known = !link.session.is_numbered || link.session.is_known;
        link.close();
        self.core.links.recount(node);
        if !node.is_client() {
            if is_known {
                self.core.report_link(Kind::LinkDownRep, node, incarnation);
            }
            return;
        }
        let from = self.core.link_ref();
        for instance in 0..self.core.config.instances {
            let to = BlockRef { block: BlockId::Tc, instance, ..from };
            self.core.send(from, to, Kind::ClientGoneRep, 0, |b| b.put_u16(node.0));
        }
        let dih = BlockRef { block: BlockId::Dih, instance: 0, ..from };
        self.core.send(from, dih, Kind::ClientGoneRep, 0, |b| b.put_u16(node.0));
    }

    fn report_up(&mut self, node: NodeId, incarnation: u64) {
        if !node.is_client() {
            return self.core.report_link(Kind::LinkUpRep, node, incarnation);
        }
        let from = self.core.link_ref();
        let mut body = Vec::with_capacity(10);
        body.put_u16(node.0);
        body.put_u64(incarnation);
        for instance in (0..self.core.config.instances).filter(|_| from.node.is_data()) {
            let to = BlockRef { block: BlockId::Tc, instance, ..from };
            if instance == self.core.config.worker {
                // At once, as what the client sends to this worker: the job buffer may be long.
                self.dispatch_own(Kind::ClientUpRep, to, &body);
            } else {
                self.core.send(from, to, Kind::ClientUpRep, 0, |b| b.put_bytes(&body));
            }
        }
    }

    /// Takes a link off the list of those with something to send.
    pub fn next_dirty(&mut self) -> Option<NodeId> {
        let node = self.core.links.dirty.pop()?;
        if let Some(link) = self.core.links.get_mut(node) {
            link.dirty = false;
        }
        self.core.links.recount(node);
        Some(node)
    }
    /// Bytes to send over the link; when they are sent there may be more.
    #[inline]
    pub fn output(&self, node: NodeId) -> &[u8] {
        self.core.links.get(node).map_or(&[], Link::output)
    }
    /// So many bytes of [`Worker::output`] are on their way.
    pub fn sent(&mut self, node: NodeId, bytes: usize) {
        if let Some(link) = self.core.links.get_mut(node) {
            let was_head = !link.session.head.is_empty();
            link.advance(bytes);
            if was_head && !link.output().is_empty() {
                self.core.links.note_dirty(node);
            }
        }
        self.core.links.recount(node);
    }
}

impl Core {
    /// The link to the node is numbered: both are data nodes.
    pub fn is_numbered(&self, node: NodeId) -> bool {
        node.is_data() && self.config.node.is_data()
    }

    /// QMGR learns that there is no connection, if it has heard of the link.
    fn suspend(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(node) else { return };
        let incarnation = link.incarnation;
        if link.session.is_known && !std::mem::replace(&mut link.session.is_suspended, true) {
            self.report_link(Kind::LinkSuspendedRep, node, incarnation);
        }
    }

    pub fn report_link(&mut self, kind: Kind, node: NodeId, incarnation: u64) {
        let from = self.link_ref();
        let to = if from.node.may_arbitrate() { (BlockId::Mgmt, 0) } else { (BlockId::Qmgr, BlockRef::CONTROL) };
        self.send(from, BlockRef::new(from.node, to.0, to.1), kind, 0, |b| {
            b.put_u16(node.0);
            b.put_u8(from.instance);
            b.put_u64(incarnation);
        });
    }
}

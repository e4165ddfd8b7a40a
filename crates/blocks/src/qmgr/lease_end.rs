//! The end of the lease of a member that is to be removed, and may live and not know it.
//!
//! A link that ends between two members need not end at both at the same time: one of them may go on without the other, which still
//! answers its clients from memory that is no longer current (simulator seed 80001967). So whoever still has its links to a member
//! that is to be removed, because another says so or the arbitrator is asked, does not say yes before that member
//!
//! - has answered `LeaseEndReq`: its workers read from clients no more, from that moment on, and nobody renews its lease, for whoever asks or
//!   has it asked sends it no heartbeats; or
//! - is gone: the link has ended, not only lost its connection; or
//! - cannot have a lease any more, by the promise that we, or who asks the arbitrator, gave it last (`heartbeat`).
//!
//! A process that dies is found gone on all its links at once, so a crash costs nothing of this. A link that waits for a connection keeps the
//! question until it has one; meanwhile the promise runs out.
//! What it rests on: a member does not lose *all* its links, each at the other end only. At most one exchange per member.

use std::collections::BTreeMap;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, Kind,
    qmgr::{LeaseEnd, encode},
};
use apus_types::NodeId;

use super::Membership;

/// We wait for a member to have no lease.
struct Pending {
    incarnation: u64,
    until: u64,
}

#[derive(Default)]
pub(super) struct LeaseEnds {
    from: BTreeMap<NodeId, Pending>,
}

impl LeaseEnds {
    pub(super) fn is_empty(&self) -> bool {
        self.from.is_empty()
    }
}

impl Membership {
    /// Instead of cutting off a member to which all links stand, while it may still rely on our promise. False: it cannot.
    pub(super) fn part_from(&mut self, node: NodeId, incarnation: u64, ctx: &mut Context<'_>) -> bool {
        let until = self.heartbeats.promised_until(node);
        let is_linked = self.is_linked(node) && self.links.get(node).is_some_and(|l| l.incarnation == incarnation);
        if !is_linked || until < ctx.now() {
            return false;
        }
        ctx.probe("qmgr: a member is asked to give up its lease");
        ctx.accept_from(node, incarnation, false);
        self.lease_ends.from.insert(node, Pending { incarnation, until });
        self.send(ctx, node, Kind::LeaseEndReq, &LeaseEnd { incarnation });
        true
    }

    /// It has no lease, or is gone.
    pub(super) fn parted(&mut self, node: NodeId, incarnation: u64, ctx: &mut Context<'_>) {
        if self.lease_ends.from.get(&node).is_some_and(|p| p.incarnation == incarnation) {
            self.lease_ends.from.remove(&node);
            self.fence(node, incarnation, ctx);
            self.pass_gates(ctx);
        }
    }

    pub(super) fn check_lease_ends(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        while let Some((&node, over)) = self.lease_ends.from.iter().find(|(_, p)| p.until < now) {
            let incarnation = over.incarnation;
            ctx.probe("qmgr: a lease ended by itself");
            self.parted(node, incarnation, ctx);
        }
    }

    /// We are about to be removed, or the arbitrator lets others go on without us.
    pub(super) fn on_lease_end_req(&mut self, asker: BlockRef, order: &LeaseEnd, ctx: &mut Context<'_>) {
        if order.incarnation != self.incarnation {
            jam!(ctx);
            return;
        }
        self.heartbeats.void_lease(ctx.now());
        self.renew_lease(ctx);
        // All workers look at the lease after they have a request's bytes, and it is gone.
        let conf = LeaseEnd { incarnation: self.incarnation };
        ctx.send(asker, Kind::LeaseEndConf, |b| encode(&conf, b));
    }
}

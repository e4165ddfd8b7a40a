//! The orderly end of a cluster whose data is on disk: everything is made durable first, so that nothing that was acknowledged is lost, whatever its class.
//!
//! ```text
//! EndOrd (operator) -> Refusing: no client is served any more --every worker knows: EndReadyRep--> acting president
//!    president: all members are ready --GcpHurryOrd--> DIH: a global checkpoint of all there is --GcpSaveConf--> EndOrd to every member: all end
//!    --END_NS over--> ends anyway, and says so
//! ```
//!
//! While it ends a member changes no view: those that end first are no failures. A member that dies meanwhile is noticed by the time-out; what was acknowledged as
//! durable is on the disks of the others all the same.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_signal::{BlockId, BlockRef, Kind, gcp::GcpHurry, operator::EndOrder, qmgr::encode, view::View};
use apus_types::{Epoch, NodeId};

use super::{Membership, Phase};

/// Who has not heard for so long that all is on the disks ends anyway.
const END_NS: u64 = 10_000_000_000;
/// The president is told again.
const TELL_NS: u64 = 50_000_000;

#[derive(Default)]
pub(super) struct Ending {
    since: Option<u64>,
    told: u64,
    /// Asked of the workers, and how many have not answered.
    ping: (u64, u8),
    /// As acting president: who serves nobody any more.
    ready: BTreeSet<NodeId>,
    asked: bool,
}

impl Ending {
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }
}

impl Membership {
    /// An operator ends the cluster, or the acting president does because all is on the disks.
    pub(super) fn on_end_ord(&mut self, from: NodeId, order: EndOrder, ctx: &mut Context<'_>) {
        if order.incarnation != self.incarnation {
            return jam!(ctx);
        }
        let is_orderly = self.restart.has_disk && self.phase == Phase::Member && !self.freeze.is_frozen();
        if from.is_data() && self.ending.has_begun() {
            self.end_leave("ended by an operator, with the whole cluster; everything is on disk", ctx);
        } else if from.is_mgmt() && !is_orderly {
            self.end_leave("ended by an operator, with the whole cluster", ctx);
        } else if from.is_mgmt() && !self.ending.has_begun() {
            ctx.log(format_args!("an operator ends the cluster: makes everything durable first"));
            self.ending.since = Some(ctx.now());
            self.renew_lease(ctx);
            self.pings += 1;
            self.ending.ping = (self.pings, ctx.ping_workers(self.pings));
            self.tick_ending(ctx);
        }
    }

    pub(super) fn on_end_ping(&mut self, token: u64, ctx: &mut Context<'_>) {
        if self.ending.ping.0 == token && self.ending.ping.1 > 0 {
            self.ending.ping.1 -= 1;
            self.tick_ending(ctx);
        }
    }

    pub(super) fn tick_ending(&mut self, ctx: &mut Context<'_>) {
        let Some(since) = self.ending.since else { return };
        if ctx.now().saturating_sub(since) > END_NS {
            self.end_leave(
                "ended by an operator; not everything may be on disk, for other members did not answer in time",
                ctx,
            );
            return;
        }
        let is_due = self.ending.told == 0 || ctx.now().saturating_sub(self.ending.told) >= TELL_NS;
        if self.ending.ping.1 == 0
            && is_due
            && let Some(president) = self.acting_president()
        {
            self.ending.told = ctx.now();
            let ready = EndOrder { incarnation: self.incarnation };
            match president == self.me {
                true => self.on_end_ready(self.me, ctx),
                false => self.send(ctx, president, Kind::EndReadyRep, &ready),
            }
        }
    }

    pub(super) fn on_end_ready(&mut self, from: NodeId, ctx: &mut Context<'_>) {
        if !self.ending.has_begun() || self.acting_president() != Some(self.me) {
            return jam!(ctx);
        }
        self.ending.ready.insert(from);
        let all_are = self.view.iter().flat_map(View::living).all(|n| self.ending.ready.contains(&n.node()));
        if all_are && !std::mem::replace(&mut self.ending.asked, true) {
            // Of whatever epoch there is by now.
            let dih = BlockRef::new(self.me, BlockId::Dih, 0);
            ctx.send(dih, Kind::GcpHurryOrd, |b| GcpHurry { epoch: Epoch(u64::MAX) }.encode(b));
        }
    }

    /// From this node's DIH: everything is on the disks of all.
    pub(super) fn on_all_saved(&mut self, ctx: &mut Context<'_>) {
        let Some(view) = self.view.clone().filter(|_| self.ending.has_begun()) else { return };
        ctx.probe("qmgr: a cluster ends with everything on disk");
        for member in view.living().filter(|n| n.node() != self.me) {
            let order = EndOrder { incarnation: member.incarnation };
            ctx.send(Self::qmgr_of(member.node()), Kind::EndOrd, |b| encode(&order, b));
        }
        self.end_leave("ended by an operator, with the whole cluster; everything is on disk", ctx);
    }
}

//! The orderly end of a cluster whose data is on disk: everything is made durable first, so that nothing that was acknowledged is lost, whatever its class.
//!
//! ```text
//! EndOrd (operator) -> Refusing: no client is served any more, TCs end what is under way (`tc/ending`)
//!    --EndOrd--> LDMs: a last checkpoint, so that the next start reads little log (`ldm/checkpoint_end`); CHECKPOINT_NS at most --EndReadyRep--> acting president
//!    president: all members are ready --GcpHurryOrd--> DIH: a global checkpoint of all there is --GcpSaveConf--> EndOrd to every member: all end,
//!       when their last checkpoints are listed on their disks; LIST_NS at most
//!    --END_NS over--> ends anyway, and says so
//! ```
//!
//! While it ends a member changes no view: those that end first are no failures. A member that dies meanwhile is noticed by the time-out; what was acknowledged as
//! durable is on the disks of the others all the same.
//!
//! **A departure** is the same for a single node that is told to end (SIGTERM) while its group has no other full copy (`leave`). Without that group nobody can go on, so all
//! members refuse clients and save. Then that node ends; the others lose it, freeze with everything on their disks, and start from there when it is back (`lost_group`). Each of them that is told to
//! end then does, at once. A member takes part under the president's view: where the commit of that view is still on its way it waits for the next telling ([`TELL_NS`]), for a view that comes
//! later ends what was begun under the one before. If another member is lost, a view changes, or [`DEPART_NS`] pass before all is saved, everybody goes on as before, and the node asks again or stays.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    gcp::{GcpHurry, GcpSave},
    operator::EndOrder,
    qmgr::encode,
    view::View,
};
use apus_types::{Epoch, NodeId};

use super::{Membership, Phase};

/// Who has not heard for so long that all is on the disks ends anyway.
const END_NS: u64 = 10_000_000_000;
/// All is saved for a node that departs within so long, or it does not.
const DEPART_NS: u64 = 5_000_000_000;
/// The president is told again, and tells of a departure again.
const TELL_NS: u64 = 50_000_000;
/// Who ends stays for so long that the others hear that all is saved.
const LINGER_NS: u64 = 5_000_000;
/// The last checkpoint is waited for until it is written, and then until it counts; without it the next start reads more of the log.
const CHECKPOINT_NS: u64 = 4_000_000_000;
const LIST_NS: u64 = 500_000_000;
const _: () = assert!(CHECKPOINT_NS < END_NS / 2);

#[derive(Default)]
pub(super) struct Ending {
    since: Option<u64>,
    told: u64,
    /// When this node told the others of the departure that it has saved; 0: another one has, or it is none.
    told_members: u64,
    /// TCs of this node that may still commit something.
    busy: u8,
    /// 0: an operator ends the cluster.
    attempt: u64,
    /// As acting president: who serves nobody any more.
    ready: BTreeSet<NodeId>,
    /// All that was acknowledged is in this epoch or an earlier one.
    asked: Option<Epoch>,
    /// All that was acknowledged is on the disks, and nobody was served since.
    saved: bool,
    /// LDMs of this node that are to write a last checkpoint: since when, how many have not written theirs, and whose does not count yet.
    checkpoints_since: Option<u64>,
    unwritten: u8,
    unlisted: u8,
    /// When this process ends, and why.
    last: Option<(u64, &'static str)>,
}

impl Ending {
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }
    /// A node departs, the cluster does not end.
    fn is_departure(&self) -> bool {
        self.attempt != 0
    }
    pub(super) fn is_saved(&self) -> bool {
        self.saved
    }
    /// Clients are served again.
    pub(super) fn serves(&mut self) {
        self.saved = false;
    }
}

impl Membership {
    /// An operator ends the cluster, or the acting president does because all is on the disks.
    pub(super) fn on_end_ord(&mut self, from: NodeId, order: EndOrder, ctx: &mut Context<'_>) {
        if order.incarnation != self.incarnation {
            return jam!(ctx);
        }
        let is_orderly = self.restart.has_disk && self.phase == Phase::Member && !self.freeze.is_frozen();
        let may_begin = !self.ending.has_begun() || self.ending.is_departure();
        if from.is_data() && order.departs {
            if order.saved && self.ending.has_begun() && self.ending.attempt == order.attempt {
                self.all_is_saved(ctx);
            } else if !order.saved && is_orderly && may_begin && self.is_told_in_time(from, &order) {
                self.begin_to_end(order.attempt, ctx);
            }
        } else if from.is_data() && self.ending.has_begun() {
            self.end_soon("ended by an operator, with the whole cluster; everything is on disk", ctx);
        } else if from.is_mgmt() && !is_orderly {
            self.end_leave("ended by an operator, with the whole cluster", ctx);
        } else if from.is_mgmt() && may_begin {
            ctx.log(format_args!("an operator ends the cluster: makes everything durable first"));
            self.begin_to_end(0, ctx);
        }
    }

    /// Of a departure that this node takes no part in yet: the acting president has it saved, under the view that is in force here.
    fn is_told_in_time(&self, from: NodeId, order: &EndOrder) -> bool {
        let is_new = !self.ending.has_begun() || self.ending.attempt != order.attempt;
        let is_of_view = self.view.as_ref().is_some_and(|v| v.generation == order.generation);
        is_new && is_of_view && self.acting_president() == Some(from)
    }

    /// As acting president: a node wants to end that the others cannot go on without.
    pub(super) fn depart(&mut self, ctx: &mut Context<'_>) {
        if self.ending.has_begun() || !self.failed.is_empty() {
            return jam!(ctx); // it asks again
        }
        ctx.log(format_args!("the last full copy of a node group is told to end: makes everything durable first"));
        self.pings += 1;
        let attempt = self.pings << 16 | u64::from(self.me.0);
        self.begin_to_end(attempt, ctx);
        self.tell_of_departure(false, ctx);
    }

    /// As acting president: all members, or those that are not ready yet.
    fn tell_of_departure(&mut self, saved: bool, ctx: &mut Context<'_>) {
        let Some(view) = self.view.clone() else { return };
        let (attempt, generation) = (self.ending.attempt, view.generation);
        self.ending.told_members = ctx.now();
        for member in view.living().filter(|n| saved || !self.ending.ready.contains(&n.node())) {
            let incarnation = member.incarnation;
            let order = EndOrder { incarnation, departs: true, saved, attempt, generation, over: false };
            if member.node() != self.me {
                self.send(ctx, member.node(), Kind::EndOrd, &order);
            }
        }
    }

    fn begin_to_end(&mut self, attempt: u64, ctx: &mut Context<'_>) {
        self.ending = Ending { since: Some(ctx.now()), attempt, busy: self.instances, ..Ending::default() };
        self.renew_lease(ctx);
        self.tell_coordinators(EndOrder { incarnation: self.incarnation, attempt, ..EndOrder::default() }, ctx);
        self.tick_ending(ctx);
    }

    /// Nobody of this node commits anything more.
    fn begin_last_checkpoints(&mut self, ctx: &mut Context<'_>) {
        self.ending.checkpoints_since = Some(ctx.now());
        if !self.ending.is_departure() {
            (self.ending.unwritten, self.ending.unlisted) = (self.instances, self.instances);
            let order = EndOrder { incarnation: self.incarnation, ..EndOrder::default() };
            for instance in 0..self.instances {
                ctx.send(BlockRef::new(self.me, BlockId::Ldm, instance), Kind::EndOrd, |b| encode(&order, b));
            }
        }
    }

    /// From an LDM of this node.
    pub(super) fn on_last_checkpoint(&mut self, rep: &EndOrder, ctx: &mut Context<'_>) {
        let missing = if rep.saved { &mut self.ending.unlisted } else { &mut self.ending.unwritten };
        *missing = missing.saturating_sub(1);
        self.tick_ending(ctx);
    }

    fn tell_coordinators(&self, order: EndOrder, ctx: &mut Context<'_>) {
        for instance in 0..self.instances {
            ctx.send(BlockRef::new(self.me, BlockId::Tc, instance), Kind::EndOrd, |b| encode(&order, b));
        }
    }

    /// Of a departure: who was told to end does.
    fn all_is_saved(&mut self, ctx: &mut Context<'_>) {
        self.ending.saved = true;
        if self.leave.is_ordered() {
            ctx.probe("qmgr: the last full copy of a group ends with everything on disk");
            self.end_soon("asked to end; it held the last full copy of its node group, and everything is on disk", ctx);
        }
    }

    fn end_soon(&mut self, why: &'static str, ctx: &mut Context<'_>) {
        self.ending.last = Some((ctx.now() + LINGER_NS, why));
    }

    /// A member is lost: who departed, or another one, and then that has to be settled first.
    pub(super) fn check_departure(&mut self, ctx: &mut Context<'_>) {
        if !self.failed.is_empty() {
            self.departure_is_over(ctx);
        }
    }

    pub(super) fn departure_is_over(&mut self, ctx: &mut Context<'_>) {
        if self.ending.is_departure() && self.ending.last.is_none() && self.ending.since.take().is_some() {
            self.tell_coordinators(EndOrder { over: true, ..EndOrder::default() }, ctx);
            self.renew_lease(ctx);
        }
    }

    /// From a TC of this node.
    pub(super) fn on_quiet(&mut self, order: &EndOrder, ctx: &mut Context<'_>) {
        if self.ending.has_begun() && self.ending.attempt == order.attempt && self.ending.busy > 0 {
            self.ending.busy -= 1;
            self.tick_ending(ctx);
        }
    }

    pub(super) fn tick_ending(&mut self, ctx: &mut Context<'_>) {
        let Some(since) = self.ending.since else { return };
        if let Some((at, why)) = self.ending.last {
            let may_list = self.ending.unwritten == 0 && self.ending.unlisted > 0;
            if ctx.now() >= at + if may_list { LIST_NS } else { 0 } {
                self.end_leave(why, ctx);
            }
            return;
        }
        if self.ending.is_departure() && ctx.now().saturating_sub(since) > DEPART_NS {
            self.departure_is_over(ctx);
            if self.leave.is_ordered() {
                self.refuse_to_end(
                    "it holds the last full copy of its node group, and not all could be made durable in time",
                    ctx,
                );
            }
            return self.drive(ctx);
        }
        if ctx.now().saturating_sub(since) > END_NS {
            self.end_leave(
                "ended by an operator; not everything may be on disk, for other members did not answer in time",
                ctx,
            );
            return;
        }
        let is_due = |told: u64, now: u64| told == 0 || now.saturating_sub(told) >= TELL_NS;
        if self.ending.told_members > 0 && self.ending.asked.is_none() && is_due(self.ending.told_members, ctx.now()) {
            self.tell_of_departure(false, ctx);
        }
        if self.ending.busy == 0 && self.ending.checkpoints_since.is_none() {
            self.begin_last_checkpoints(ctx);
        }
        let is_written = self.ending.unwritten == 0
            || self.ending.checkpoints_since.is_some_and(|since| ctx.now().saturating_sub(since) > CHECKPOINT_NS);
        if self.ending.busy == 0
            && is_written
            && is_due(self.ending.told, ctx.now())
            && let Some(president) = self.acting_president()
        {
            self.ending.told = ctx.now();
            let attempt = self.ending.attempt;
            let ready = EndOrder { incarnation: self.incarnation, attempt, ..EndOrder::default() };
            match president == self.me {
                true => self.on_end_ready(self.me, &ready, ctx),
                false => self.send(ctx, president, Kind::EndReadyRep, &ready),
            }
        }
    }

    pub(super) fn on_end_ready(&mut self, from: NodeId, ready: &EndOrder, ctx: &mut Context<'_>) {
        if !self.ending.has_begun() || ready.attempt != self.ending.attempt || self.acting_president() != Some(self.me)
        {
            return jam!(ctx);
        }
        self.ending.ready.insert(from);
        let all_are = self.view.iter().flat_map(View::living).all(|n| self.ending.ready.contains(&n.node()));
        if all_are && self.ending.asked.is_none() {
            let epoch = ctx.epoch();
            self.ending.asked = Some(epoch);
            let dih = BlockRef::new(self.me, BlockId::Dih, 0);
            ctx.send(dih, Kind::GcpHurryOrd, |b| GcpHurry { epoch }.encode(b));
        }
    }

    /// From this node's DIH: what was to be saved is on the disks of all.
    pub(super) fn on_all_saved(&mut self, save: GcpSave, ctx: &mut Context<'_>) {
        let is_all = self.ending.has_begun() && self.ending.asked.is_some_and(|epoch| epoch <= save.epoch);
        let Some(view) = self.view.clone().filter(|_| is_all) else { return jam!(ctx) };
        if self.ending.is_departure() {
            self.tell_of_departure(true, ctx);
            return self.all_is_saved(ctx);
        }
        ctx.probe("qmgr: a cluster ends with everything on disk");
        for member in view.living().filter(|n| n.node() != self.me) {
            let order = EndOrder { incarnation: member.incarnation, ..EndOrder::default() };
            ctx.send(Self::qmgr_of(member.node()), Kind::EndOrd, |b| encode(&order, b));
        }
        self.end_soon("ended by an operator, with the whole cluster; everything is on disk", ctx);
    }
}

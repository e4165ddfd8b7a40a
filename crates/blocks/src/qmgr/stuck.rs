//! A data worker that makes no rounds any more: what its node does about it.
//!
//! The control worker's heartbeats say that the process lives; they do not say that it works. The kernel's watchdog counts the ticks in
//! which a data worker has begun no round. After [`STUCK_WARN_TICKS`] (2.5 s in which the process ran) the node says so in its
//! heartbeats and to the management nodes, which show it. After [`STUCK_TICKS`] (5 s) it ends itself with a crash report that holds
//! the worker's trail, if the others can go on without it: the survival rule is judged on those that do not say the same of themselves.
//! Since they have said so for 2.5 s by then, two nodes that one statement has stuck do not end each other's last copy. With half of the
//! nodes left the arbitrator must be in reach. Otherwise the node stays, with all its rows, and is judged again every 2.5 s.
//!
//! **Epochs.** A worker that waits for a commit for over a second, so that an epoch cannot end, names the transaction and the member that
//! does not answer; a TC whose take-over waits for what a member knows of it names that member (`EpochLateRep`, [`crate::flight::Patience`]). That member shows it like a stuck worker, and after 5 s ends in the same way, if it has been told for most of them: the
//! view without it settles the commit. Of several that are named only the one with the lowest id ends, since heartbeats have told who they
//! are for 4 s by then. NDB's GCP monitor is the model. A commit passes all nodes of its chain, and who waits knows only the first of them. So a member that is named passes
//! the blame on to one that is much slower than itself (`slow`).

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{
    Context, jam,
    limits::{EPOCH_LATE_TICKS, STUCK_TICKS, TICK_NS},
};
use apus_signal::{BlockId, BlockRef, Kind, epoch::EpochLate, qmgr::encode};
use apus_types::NodeId;

use super::{
    MS, Membership, Phase,
    survival::{Verdict, holds_all, verdict},
};

/// Data workers of this node that are stuck, with the ticks since when.
#[derive(Default)]
pub(super) struct Stuck {
    workers: BTreeMap<u8, u32>,
    /// Who waits for an answer of this node to end an epoch.
    waiters: BTreeMap<BlockRef, Waiter>,
}

/// What it said last, when, and since when it has said so without a break.
struct Waiter {
    text: String,
    told: u64,
    since: u64,
}

/// Who has not said for so long that it waits does not wait any more.
const WAITER_NS: u64 = 2 * EPOCH_LATE_TICKS as u64 * TICK_NS;
/// Whoever has been told for less time than this does not end itself: where a network was parted, all that was said meanwhile comes at once, and the answers
/// are on their way.
const TOLD_NS: u64 = (STUCK_TICKS - EPOCH_LATE_TICKS - EPOCH_LATE_TICKS / 2) as u64 * TICK_NS;

impl Stuck {
    pub(super) fn is_any(&self) -> bool {
        !self.workers.is_empty()
    }
    pub(super) fn holds_epoch(&self) -> bool {
        !self.waiters.is_empty()
    }
    /// For operators; empty: no worker is stuck.
    pub(super) fn summary(&self) -> String {
        let ms = |ticks: u32| u64::from(ticks) * TICK_NS / MS;
        let one = |(worker, ticks): (&u8, &u32)| format!("worker {worker} has been in one turn for {} ms", ms(*ticks));
        self.workers.iter().map(one).chain(self.waiters.values().map(|w| w.text.clone())).collect::<Vec<_>>().join(", ")
    }
}

impl Membership {
    /// From the watchdog; 0 ticks: it turns again.
    pub(super) fn on_worker_stuck(&mut self, worker: u8, ticks: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        if ticks == 0 {
            self.stuck.workers.remove(&worker);
            ctx.log(format_args!("worker {worker} turns again"));
        } else {
            ctx.probe("qmgr: a worker is stuck");
            self.stuck.workers.insert(worker, ticks);
        }
        self.send_heartbeats(ctx);
        self.register(ctx);
        if ticks >= STUCK_TICKS {
            self.end_if_spared(worker, ctx);
        }
    }

    fn end_if_spared(&mut self, worker: u8, ctx: &mut Context<'_>) {
        if self.phase != Phase::Member {
            return;
        }
        match self.spared_by_others(ctx.now()) {
            Ok(()) => self.end_for_stuck(worker, ctx),
            Err(why) => ctx.log(format_args!("{}; this node does not end itself: {why}", self.stuck.summary())),
        }
    }

    /// A member waits for this node's answer to a commit, and an epoch for that.
    pub(super) fn on_epoch_late(&mut self, from: BlockRef, late: EpochLate, ctx: &mut Context<'_>) {
        let is_member = self.view.as_ref().is_some_and(|v| v.is_alive(from.node));
        if late.generation != self.generation() || !is_member || self.phase != Phase::Member {
            jam!(ctx);
            return;
        }
        ctx.probe("qmgr: an epoch is late");
        if let Some(slower) = self.slower_member() {
            let text = format!("{}, where it waits for data node {slower}", late.text);
            let qmgr = BlockRef::new(slower, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(qmgr, Kind::EpochLateRep, |b| encode(&EpochLate { text, ..late }, b));
            return;
        }
        let now = ctx.now();
        let since = self.stuck.waiters.get(&from).map_or(now, |waiter| waiter.since);
        self.stuck.waiters.insert(from, Waiter { text: late.text, told: now, since });
        self.send_heartbeats(ctx);
        self.register(ctx);
        // Of several that are named the first ends: the view without it may settle it for all.
        let is_first = !self.survivors().iter().any(|n| *n < self.me && self.heartbeats.holds_epoch(*n));
        if late.ticks >= STUCK_TICKS && now - since >= TOLD_NS && is_first {
            let worker = u8::try_from(late.instance).unwrap_or(0).min(ctx.instances().saturating_sub(1));
            self.end_if_spared(worker, ctx);
        }
    }

    pub(super) fn tick_waiters(&mut self, ctx: &mut Context<'_>) {
        self.stuck.waiters.retain(|_, w| ctx.now() < w.told + WAITER_NS);
    }

    fn end_for_stuck(&mut self, worker: u8, ctx: &mut Context<'_>) {
        assert!(self.stuck.is_any() || self.stuck.holds_epoch(), "worker {worker} ends its node, and is not stuck");
        let reason = format!("{}; the others go on without this node", self.stuck.summary());
        self.phase = Phase::Stopped;
        self.renew_lease(ctx);
        ctx.log(format_args!("ends: {reason}"));
        ctx.stop_for_stuck(worker, &reason);
    }

    /// What is wrong with this node, for operators.
    pub(super) fn ailments(&self) -> String {
        let all = [self.stuck.summary(), self.disks.summary()];
        all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Whether the others can go on without us; if not, why. They hold our rows if those do that say nothing of the same of themselves. The first of all who do say so counts the
    /// others' votes in the agreement, for they stay until it has gone; the others count on nobody of them.
    pub(super) fn spared_by_others(&self, now: u64) -> Result<(), &'static str> {
        let Some(base) = &self.view else { return Err("it is no member") };
        let longest = self.longest_silence();
        let mut side = self.survivors();
        side.retain(|n| self.heartbeats.is_heard(*n, now, longest));
        let sound: BTreeSet<NodeId> = side.iter().copied().filter(|n| !self.heartbeats.is_stuck(*n)).collect();
        if !holds_all(base, &sound) {
            return Err("a node group has no other sound full member");
        }
        let is_first = side.difference(&sound).all(|n| *n > self.me);
        match verdict(base, if is_first { &side } else { &sound }) {
            Verdict::Win => Ok(()),
            Verdict::Lose(why) => Err(why),
            Verdict::Ask => {
                let named = (base.arbitrator, base.arbitrator_incarnation);
                let is_named = |m: &apus_signal::qmgr::Incarnation| (m.node, m.incarnation) == named;
                let in_reach = Membership::arbitrator_of(base).is_some_and(NodeId::may_arbitrate)
                    && self.managers.reached(now).iter().any(is_named);
                if in_reach { Ok(()) } else { Err("the arbitrator, which the others would need, is out of reach") }
            }
        }
    }
}

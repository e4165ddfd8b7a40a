//! The president's side of a switchover ([`apus_signal::switchover`]): primaries are spread evenly again after a rejoin, and a node that is to
//! end leaves (`leave`), which goes before.
//!
//! ```text
//! Idle --the view is as it should be for SETTLE_NS, and uneven--> Draining: SwitchReq to every TC and LDM --all confirm--> propose the view
//!   ^                                                                |  a refusal, ANSWER_NS, or another change: SwitchEndOrd
//!   +----------------------------------------------------------------+  tried again after RETRY_NS, twice as long after each failure
//! ```
//!
//! Only the president that made the committed view begins, and only while it holds nobody for failed, so there is one attempt at a time per
//! generation. Any new view, whoever makes it, ends the attempt everywhere. Once proposed, the view with the new chains is agreed like any
//! other: who takes over from a dead president may finish it, because what the TCs have confirmed holds until there is a newer view.

use apus_kernel::Context;
use apus_signal::{
    BlockId, BlockRef, Kind,
    qmgr::encode,
    switchover::{Switch, SwitchAnswer},
    view::View,
};
use apus_types::NodeId;
use std::collections::BTreeSet;

use super::{Membership, Phase, layout};
use crate::ldm::living_in_order;

/// A view stands for so long before primaries are moved: what failed is often not alone.
pub const SETTLE_NS: u64 = 100_000_000;
/// Everybody has answered by then, or the attempt is over. TC answers within its own limit (`tc::switchover::WAIT_NS`).
pub const ANSWER_NS: u64 = 250_000_000;
/// Pause after an attempt that failed; doubled with each further one, up to [`RETRY_MAX_NS`].
pub const RETRY_NS: u64 = 500_000_000;
pub const RETRY_MAX_NS: u64 = 30_000_000_000;
/// The same where a node wants to leave.
const LEAVE_RETRY_NS: u64 = 100_000_000;

#[derive(Default, Debug)]
pub(super) struct Switchover {
    number: u64,
    draining: Option<Draining>,
    /// Not before, ns.
    next: u64,
    /// In a row.
    failures: u32,
    /// No attempt to let a node leave before, ns.
    next_leave: u64,
    /// It was said in this view why this one cannot leave yet.
    told: Option<NodeId>,
}

#[derive(Debug)]
struct Draining {
    view: View,
    leaver: Option<NodeId>,
    missing: BTreeSet<BlockRef>,
    deadline: u64,
}

impl Switchover {
    /// Another view is committed: whatever was going on is over.
    pub fn view_is_new(&mut self, now: u64) {
        (self.draining, self.told) = (None, None);
        self.failures = 0;
        self.next = now + SETTLE_NS;
    }
    pub fn summary(&self) -> String {
        let missing = self.draining.as_ref().map(|d| &d.missing);
        format!("attempt {}, {} failed, waits for {missing:?}", self.number, self.failures)
    }
}

impl Membership {
    pub(super) fn tick_switchover(&mut self, ctx: &mut Context<'_>) {
        if self.switchover.draining.as_ref().is_some_and(|d| ctx.now() >= d.deadline) {
            self.give_up_switchover("not everybody has answered", ctx);
        }
        let wants_to_leave = self.leave.is_asked() && ctx.now() >= self.switchover.next_leave;
        if !wants_to_leave && ctx.now() < self.switchover.next {
            return;
        }
        let is_quiet = self.phase == Phase::Member
            && self.failed.is_empty()
            && self.joining.is_empty()
            && self.change.is_none()
            && self.prepared.is_none()
            && self.switchover.draining.is_none();
        if !is_quiet {
            return;
        }
        let Some(base) = self.view.as_ref().filter(|v| v.president == u32::from(self.me.0)) else { return };
        if self.acting_president() != Some(self.me) || self.next_view(ctx.now()).is_some() {
            return;
        }
        match self.next_leave() {
            Some((leaver, view)) if ctx.now() >= self.switchover.next_leave => {
                self.begin_switchover(view, Some(leaver), ctx);
            }
            None if ctx.now() >= self.switchover.next => {
                match layout::spread(base, self.me) {
                    Some(view) => self.begin_switchover(view, None, ctx),
                    None => self.switchover.next = u64::MAX, // until there is another view
                }
            }
            _ => {}
        }
    }

    fn begin_switchover(&mut self, view: View, leaver: Option<NodeId>, ctx: &mut Context<'_>) {
        let Some(base) = &self.view else { return };
        assert!(self.switchover.draining.is_none(), "two switchovers at once: {:?}", self.switchover);
        let mut all = BTreeSet::new();
        for node in living_in_order(base) {
            for block in [BlockId::Tc, BlockId::Ldm] {
                all.extend((0..base.instances as u8).map(|instance| BlockRef::new(node, block, instance)));
            }
        }
        self.switchover.number += 1;
        let req = Switch {
            generation: base.generation,
            number: self.switchover.number,
            chains: view.chains.clone(),
            leaver: leaver.map_or(0, |n| n.0.into()),
        };
        for &to in &all {
            ctx.send(to, Kind::SwitchReq, |b| encode(&req, b));
        }
        let deadline = ctx.now() + ANSWER_NS;
        self.switchover.draining = Some(Draining { view, leaver, missing: all, deadline });
    }

    pub(super) fn on_switch_conf(&mut self, from: BlockRef, conf: &SwitchAnswer, ctx: &mut Context<'_>) {
        if conf.number != self.switchover.number || conf.generation != self.generation() {
            return;
        }
        let Some(draining) = &mut self.switchover.draining else { return };
        draining.missing.remove(&from);
        if !draining.missing.is_empty() {
            return;
        }
        let is_free = self.failed.is_empty() && self.change.is_none() && self.prepared.is_none();
        if !is_free || self.acting_president() != Some(self.me) {
            return self.give_up_switchover("the view changes", ctx);
        }
        let Some(draining) = self.switchover.draining.take() else { return };
        if draining.leaver.is_some() {
            ctx.probe("qmgr: a node leaves in order");
        } else {
            ctx.probe("qmgr: primaries are moved");
        }
        let (base, next) = (self.generation(), draining.view.generation);
        assert!(next == base + 1, "view {next} was prepared for, and {base} is committed");
        self.switchover.failures = 0;
        self.propose(draining.view, ctx);
    }

    pub(super) fn on_switch_ref(&mut self, from: BlockRef, refusal: &SwitchAnswer, ctx: &mut Context<'_>) {
        if refusal.number == self.switchover.number && refusal.generation == self.generation() {
            self.give_up_switchover(&format!("{from:?}: {}", refusal.reason), ctx);
        }
    }

    fn give_up_switchover(&mut self, why: &str, ctx: &mut Context<'_>) {
        let Some(draining) = self.switchover.draining.take() else { return };
        self.end_switchover(ctx);
        if let Some(leaver) = draining.leaver {
            self.switchover.next_leave = ctx.now() + LEAVE_RETRY_NS;
            // It is tried again many times a second.
            if self.switchover.told.replace(leaver) != Some(leaver) {
                ctx.log(format_args!("node {leaver} cannot leave yet: {why}"));
            }
            return;
        }
        let pause = (RETRY_NS << self.switchover.failures.min(7)).min(RETRY_MAX_NS);
        self.switchover.failures += 1;
        self.switchover.next = ctx.now() + pause;
        ctx.log(format_args!("primaries stay where they are for {} ms more: {why}", pause / 1_000_000));
    }

    /// Who is held goes on by the old chains.
    fn end_switchover(&self, ctx: &mut Context<'_>) {
        let Some(base) = &self.view else { return };
        let end = SwitchAnswer { generation: base.generation, number: self.switchover.number, reason: String::new() };
        for node in living_in_order(base) {
            for instance in 0..base.instances as u8 {
                ctx.send(BlockRef::new(node, BlockId::Tc, instance), Kind::SwitchEndOrd, |b| encode(&end, b));
            }
        }
    }
}

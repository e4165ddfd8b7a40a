//! An operator makes a frozen side go on (`apus cluster resume --force`), and abandons what the others hold. So he does where a cluster waits for disks that are
//! lost ([`Membership::abandon_missing`]): the start is then made without them.
//!
//! The rules of `survival` and `freeze` never let a side go on that could be the wrong one. Where the others are gone for good, nobody but an
//! operator knows that. He names the processes that he abandons; the acting president of the side checks that these are exactly the full members
//! it lacks, that it has a full copy of every node group, and that all of the side have said that they are frozen in its own view (one may have heard of a
//! later one from a president that died; simulator seed 206004333), and proposes a view without them as the first of a *new lineage* ([`View::lineage`]). It is agreed upon as any view is, by all that are left of the side, with one difference: a full copy of every group is enough.
//!
//! Why the two lineages never mix ([decision 0012](../../../../docs/decisions/0012-resumed-by-force.md)):
//!
//! - *Points compare.* The new lineage is newer than the old one, and its generations are above all that the old one can reach
//!   ([`LINEAGE_STEP`]), so whoever compares views, or generations alone, takes it for the newer. Disks that lost their last views with the power are the
//!   exception: a start from them can begin below what a client knows, and the client believes processes that are younger than its view.
//! - *Who has accepted it is bound.* It takes no view of the old lineage any more, committed or proposed, gives way to nobody of it, does not speak
//!   for the dead in it, and no word of it makes it stop. It finishes what it has accepted when the proposer dies.
//! - *The abandoned have no place in it.* Whoever of them comes back says his generation and is told to stop; his process starts again, empty.
//! - *No lease.* The side waits until its promises to the abandoned are over, and those that it is linked to are asked for their leases, as for
//!   every view without somebody. One that went on under its own view serves its clients until it hears of the new lineage: that is what the
//!   operator answers for.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_signal::{
    Kind,
    operator::{FrozenSide, Resume, ResumeAnswer},
    qmgr::{Incarnation, encode},
    view::{NodeState, View},
};
use apus_types::{ErrorCode, NodeId};

use super::{Membership, Phase, layout};

/// The first generation of a new lineage is so much above the last one of the old: those that are abandoned make fewer views on their own. 4096
/// times in the life of a cluster, for envelopes carry 32 bits of it.
pub const LINEAGE_STEP: u64 = 1 << 20;

impl Membership {
    /// Members that this side lacks: held for failed, or so silent that it has no quorum.
    fn lacking(&self) -> BTreeSet<NodeId> {
        let mut lacking = self.failed.clone();
        if self.heartbeats.lacks_quorum() {
            lacking.extend(self.heartbeats.fading(self.now, self.longest_silence()).0);
        }
        lacking
    }

    /// What a frozen member could go on with, and what that would abandon.
    pub(super) fn frozen_side(&self) -> Option<FrozenSide> {
        if self.phase == Phase::Starting {
            return self.waiting_side();
        }
        let view = self.view.as_ref().filter(|_| self.freeze.is_frozen() && self.phase == Phase::Member)?;
        let lacking = self.lacking();
        let side: BTreeSet<NodeId> = view.living().map(|n| n.node()).filter(|n| !lacking.contains(n)).collect();
        let full = || view.nodes.iter().filter(|n| n.state() == NodeState::Up);
        let here = || full().filter(|n| side.contains(&n.node()));
        let name = |n: &apus_signal::view::ViewNode| Incarnation { node: n.id, incarnation: n.incarnation };
        let lacks: BTreeSet<u32> = full().map(|n| n.group).filter(|g| here().all(|n| n.group != *g)).collect();
        Some(FrozenSide {
            leader: here().min_by_key(|n| n.join_order).map_or(0, |n| n.id),
            lineage: view.lineage,
            generation: view.generation,
            abandons: full().filter(|n| lacking.contains(&n.node())).map(name).collect(),
            lacks_groups: lacks.into_iter().collect(),
            members: side.into_iter().map(|n| n.0.into()).collect(),
        })
    }

    pub(super) fn on_resume_ord(&mut self, from: NodeId, order: Resume, ctx: &mut Context<'_>) {
        if order.leader != Some(self.own()) {
            jam!(ctx);
            return;
        }
        let outcome = self.resume(&order, ctx);
        let (error, reason) = outcome.map_or_else(|(code, why)| (code as u32, why), |()| (0, String::new()));
        let answer = ResumeAnswer { request: order.request, error, reason };
        ctx.send(Self::mgmt_of(from), Kind::ResumeRep, |b| encode(&answer, b));
    }

    fn resume(&mut self, order: &Resume, ctx: &mut Context<'_>) -> Result<(), (ErrorCode, String)> {
        let no = |code: ErrorCode, why: String| Err((code, why));
        let Some(side) = self.frozen_side().filter(|side| !side.abandons.is_empty()) else {
            return no(ErrorCode::NotFrozen, format!("data node {} serves its clients", self.me));
        };
        let is_same = (side.lineage, side.generation) == (order.lineage, order.generation)
            && side.abandons == order.abandons
            && side.leader == u32::from(self.me.0)
            && !self.is_resumed();
        if !is_same {
            let lacking: Vec<u32> = side.abandons.iter().map(|a| a.node).collect();
            let why = format!("data node {} leads it in view {} and lacks {lacking:?}", side.leader, side.generation);
            return no(ErrorCode::SideChanged, why);
        }
        if !side.lacks_groups.is_empty() {
            return no(ErrorCode::NoFullCopy, format!("no full member of group {:?} is there", side.lacks_groups));
        }
        if order.new_lineage <= side.lineage {
            return no(
                ErrorCode::ProtocolViolation,
                "the operator's clock is behind the cluster's founding".to_owned(),
            );
        }
        if self.phase == Phase::Starting {
            self.abandon_missing(&side, ctx);
            return Ok(());
        }
        let agrees = |n: &u32| *n == side.leader || self.heartbeats.is_frozen_in(NodeId(*n as u16), side.generation);
        if let Some(other) = side.members.iter().find(|n| !agrees(n)) {
            let why = format!("data node {other} has not said yet that it is frozen in view {}", side.generation);
            return no(ErrorCode::SideChanged, why);
        }
        ctx.probe("qmgr: an operator makes a frozen side go on");
        let nodes: Vec<u32> = side.abandons.iter().map(|a| a.node).collect();
        ctx.log(format_args!("an operator abandons what data nodes {nodes:?} hold: this side goes on without them"));
        self.hold_all_for_failed(&self.lacking(), "an operator abandons it", ctx);
        let Some(base) = &self.view else { return Ok(()) };
        let view = layout::resumed(base, self.me, order.new_lineage, |n| self.failed.contains(&n));
        let is_new = self.begins_lineage(&view) && self.is_successor(&view);
        assert!(is_new, "an operator's view is of lineage {}, generation {}", view.lineage, view.generation);
        self.change = None;
        self.propose(view, ctx);
        Ok(())
    }

    /// The view of a new lineage has been accepted here: nothing of the old one counts any more.
    pub(super) fn is_resumed(&self) -> bool {
        self.prepared.as_ref().is_some_and(|(_, view)| self.begins_lineage(view))
    }

    /// As opposed to a successor of the committed view in its own lineage.
    pub(super) fn begins_lineage(&self, view: &View) -> bool {
        self.view.as_ref().is_some_and(|base| base.lineage != view.lineage)
    }

    /// It may be accepted in the place of the committed view.
    pub(super) fn is_successor(&self, view: &View) -> bool {
        let Some(base) = &self.view else { return view.generation == 1 };
        if view.lineage == base.lineage {
            view.generation == base.generation + 1 && !self.is_resumed()
        } else {
            view.lineage > base.lineage && view.generation == base.generation + LINEAGE_STEP
        }
    }

    /// An order to stop that comes from the lineage that was abandoned.
    pub(super) fn is_of_abandoned(&self, lineage: u64) -> bool {
        self.prepared.as_ref().is_some_and(|(_, view)| self.begins_lineage(view) && lineage < view.lineage)
    }

    /// Finishes what was accepted, as acting president; in the place of all that `drive` would do.
    pub(super) fn drive_resumed(&mut self, ctx: &mut Context<'_>) {
        assert!(self.is_resumed(), "finishes a view of a new lineage that it has not accepted");
        if self.acting_president() != Some(self.me) {
            self.change = None;
        } else if self.change.is_some() {
            self.advance(ctx);
        } else if !self.took_over {
            self.begin_take_over(ctx);
        } else if let Some((_, view)) = self.prepared.clone() {
            self.propose(view, ctx);
        }
    }
}

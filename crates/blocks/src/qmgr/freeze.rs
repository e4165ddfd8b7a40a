//! Who may not go on freezes: it serves nobody, keeps what it holds, goes on asking, and listens.
//!
//! A side that could not replace the committed view, or of which nobody says whether it may, was often destroyed by nothing: a link was
//! reset, the management node was down. Its rows may be the only ones left. So it is *frozen*: it has no lease, so does nothing for a client
//! and answers each with a temporary error (`ErrorCode::Frozen`, `Worker::refuse_frames`); what was asked before waits, for a commit is acknowledged by all replicas of the view or not at all. It goes on by itself when
//!
//! - the arbitrator of its view says yes, however late; or
//! - enough members of its view meet again: those of other sides are frozen too, are linked to us again, and *give way*; or
//! - it has outlived all others, and what is on their disks gives way to it (`outlive`).
//!
//! **Giving way.** The acting president of a side that holds a full member of every group asks all sides that are there what they accepted, as
//! in any take-over (`PresTakeOverReq`), and then proposes the view without the other sides to these, too (`GiveWayReq`). Who accepts it is an
//! acceptor as any other: it has dropped its own proposal and promised the ballot. It waits to be told that the view was committed; then it
//! starts again and joins. It makes no proposal of its own any more: the view may be committed without its having heard of it. Signals that
//! sides had lost to each other need no repair: of all sides one stays, within which no link was lost.
//!
//! Why that is safe. The survival rule is applied to all acceptors, those that stay and those that give way; so the view is chosen as any other
//! is, with one addition: if *all* full members of the base take part, an accepted proposal need not be finished. Only they can have committed a
//! successor of the base; each says that it has not and, by its promise, that it will not under a lower ballot; one that has refuses and sends
//! what it committed. Who was told yes by the arbitrator and has not used it is one of them. Where some are missing, the accepted proposal
//! with the highest ballot is finished; if the others are in it, they are frozen under it, and meet under it again.
//!
//! It gives up what it holds only when it is certain that others went on: a member of a later view, or a management node that such a member
//! has reported to, says so (`StopOrd`, a committed view without us, `ArbitConf::gone_on`). "The other side asked first" is not certain.
//!
//! A member whose process died is spoken for by the next process of its node, if that has what the dead one kept (`testify`).
//!
//! Who only hears too few (`quorum`) is frozen without holding anybody for failed: when they are heard again, all go on where they were.
//!
//! Limits: one entry per member; one proposal at a time.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    mgmt::RegisterRep,
    qmgr::{
        Heartbeat, Incarnation, PresTakeOverConf, PresTakeOverReq, ViewCommit, ViewPrep, ViewPrepAnswer, checked_view,
        encode,
    },
    view::{NodeState, View, ViewNode},
};
use apus_types::NodeId;

use super::{MS, Membership, Phase, RETRY_NS, arbiter, lost_group, restart::names, survival};

/// A frozen member of another side is there if it was heard in so long.
const RETURN_NS: u64 = 500 * MS;
/// Of several that could ask the others to give way, each lets its seniors go first, so long for each of them.
const TURN_NS: u64 = 30 * MS;
/// Who asked in vain, or gave way, asks for nothing so long.
const PAUSE_NS: u64 = 1_000 * MS;
/// A proposal that waits for others to give way is dropped after this.
const GIVE_WAY_NS: u64 = 2_000 * MS;
/// Where enough are there, those that are missing get so long to come.
const MISSING_NS: u64 = 200 * MS;

struct Frozen {
    why: String,
    /// It has given way: it makes no proposal that the other side has no part in.
    gives_way_to_others: bool,
}

#[derive(Default)]
pub(super) struct Freeze {
    frozen: Option<Frozen>,
    /// Members that we hold for failed and that said by a new link that they are frozen, and when last.
    returned: BTreeMap<NodeId, u64>,
    /// Processes that speak for members that we hold for failed (`testify`), and when they were heard last.
    witnesses: BTreeMap<NodeId, (u64, u64)>,
    /// Processes of such members that have begun with what the dead ones had on disk.
    pub(super) on_disk: BTreeMap<NodeId, lost_group::OnDisk>,
    /// Whom the members that were asked hold for failed.
    lost_by: BTreeMap<NodeId, BTreeSet<u32>>,
    /// One of those told of an accepted view, which may be committed.
    must_finish: bool,
    /// One of those told of a later view without us; of its other members nobody is known to live.
    gone_on: Option<String>,
    /// Since when enough of the other sides are there.
    together_since: Option<u64>,
    not_before: u64,
    asked_at: u64,
    last_try: u64,
}

impl Freeze {
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }
    pub(super) fn note_witness(&mut self, node: NodeId, process: u64, now: u64) {
        self.witnesses.insert(node, (process, now));
    }
    pub(super) fn note_accepted(&mut self, by: NodeId, is_any: bool) {
        self.must_finish |= is_any && self.witnesses.contains_key(&by);
    }
    pub(super) fn note_lost(&mut self, by: NodeId, failed: &[Incarnation]) {
        self.lost_by.insert(by, failed.iter().map(|f| f.node).collect());
    }
    /// One of the two has lost the other, or has not said that it has not.
    pub(super) fn have_parted(&self, a: NodeId, b: NodeId) -> bool {
        let has_lost = |by: NodeId, node: NodeId| self.lost_by.get(&by).is_none_or(|l| l.contains(&node.0.into()));
        has_lost(a, b) || has_lost(b, a)
    }
    pub(super) fn gives_way_to_others(&self) -> bool {
        self.frozen.as_ref().is_some_and(|f| f.gives_way_to_others)
    }
    /// It has not agreed to what others go on with, and nobody is known to have gone on.
    pub(super) fn may_outlive(&self) -> bool {
        self.frozen.as_ref().is_some_and(|f| !f.gives_way_to_others) && self.gone_on.is_none()
    }
    pub(super) fn summary(&self) -> String {
        let why = self.frozen.as_ref().map_or("no", |f| f.why.as_str());
        format!("frozen {why}, returned {:?}, witnesses {:?}, {:?}", self.returned, self.witnesses, self.gone_on)
    }
}

/// The full members.
pub(super) fn full(view: &View) -> impl Iterator<Item = &ViewNode> {
    view.nodes.iter().filter(|n| n.state() == NodeState::Up)
}

impl Membership {
    pub(super) fn freeze(&mut self, why: &str, ctx: &mut Context<'_>) {
        self.freeze_as(why, false, ctx);
    }

    pub(super) fn freeze_to_give_way(&mut self, why: &str, ctx: &mut Context<'_>) {
        self.freeze_as(why, true, ctx);
    }

    fn freeze_as(&mut self, why: &str, gives_way_to_others: bool, ctx: &mut Context<'_>) {
        assert!(self.phase == Phase::Member && self.view.is_some(), "only a member freezes: {why}");
        let gives_way_to_others = gives_way_to_others || self.freeze.gives_way_to_others();
        let before = self.freeze.frozen.replace(Frozen { why: why.to_owned(), gives_way_to_others });
        if before.is_some_and(|f| f.why == why) {
            return;
        }
        ctx.probe("qmgr: frozen");
        self.renew_lease(ctx);
        let account = self.account();
        ctx.log(format_args!("frozen: {account}"));
        self.register(ctx);
        self.send_heartbeats(ctx);
    }

    /// It may go on.
    pub(super) fn thaw(&mut self, ctx: &mut Context<'_>) {
        self.freeze.returned.clear();
        self.freeze.witnesses.clear();
        self.freeze.on_disk.clear();
        self.freeze.gone_on = None;
        self.freeze.together_since = None;
        self.outlive = super::outlive::Outlive::default();
        if self.freeze.frozen.take().is_some() {
            ctx.probe("qmgr: thawed");
            self.refuse_or_wait(ctx);
            ctx.log(format_args!("goes on"));
            self.tell_control(ctx);
        }
    }

    /// Why it is frozen and what it waits for; empty: it is not.
    pub(super) fn account(&self) -> String {
        let (Some(frozen), Some(view)) = (&self.freeze.frozen, &self.view) else { return String::new() };
        let missing: Vec<String> = self.lost_full().map(|n| n.id.to_string()).collect();
        let nodes = format!("data node {}", missing.join(", "));
        let arbitrator = Self::arbitrator_of(view).map(arbiter::title);
        let waits_for = match (missing.is_empty(), arbitrator) {
            (true, _) => "those that it does not hear".to_owned(),
            (false, Some(title)) if !self.is_outvoted() => format!("{title} to decide, or for {nodes}"),
            (false, _) => nodes,
        };
        let gone_on = self.freeze.gone_on.as_ref().map_or_else(String::new, |text| format!("; {text}"));
        format!("{}; waits for {waits_for}{gone_on}{}", frozen.why, self.begun_anew())
    }

    /// For people: lost members of which only a disk is left, while others may live.
    fn begun_anew(&self) -> String {
        let dead: Vec<NodeId> = self.lost_full().filter_map(|n| self.successor(n)).map(|(node, _)| node).collect();
        if dead.is_empty() {
            return String::new();
        }
        format!(
            "; {} began anew with an older view on disk, and when all that are lost have, this side goes on without them",
            names(&dead)
        )
    }

    /// The arbitrator is not asked whether this side may go on.
    fn is_outvoted(&self) -> bool {
        let rest = self.own_side();
        self.view.as_ref().is_some_and(|v| survival::verdict(v, &rest) != survival::Verdict::Ask)
    }

    pub(super) fn own_side(&self) -> BTreeSet<NodeId> {
        let mut rest = self.survivors();
        rest.insert(self.me);
        rest
    }

    /// Full members that we hold for failed.
    pub(super) fn lost_full(&self) -> impl Iterator<Item = &ViewNode> {
        self.view.iter().flat_map(full).filter(|n| self.failed.contains(&n.node()))
    }

    pub(super) fn tell_control(&self, ctx: &mut Context<'_>) {
        let rep = RegisterRep { node: self.me.0.into(), frozen: self.account(), ..RegisterRep::default() };
        ctx.send(BlockRef::new(self.me, BlockId::Cntr, 0), Kind::RegisterRep, |b| encode(&rep, b));
    }

    /// As long as we are frozen, those that we hold for failed hear of it: they may be frozen, or know that we are out.
    pub(super) fn tell_lost(&self, ctx: &mut Context<'_>) {
        if !self.freeze.is_frozen() && !self.heartbeats.lacks_quorum() {
            return;
        }
        let beat = Heartbeat {
            generation: self.generation(),
            incarnation: self.incarnation,
            quorum_lost_ns: 1,
            frozen: self.freeze.is_frozen(),
            ..Heartbeat::default()
        };
        for node in self.failed.iter().filter(|n| self.is_linked(**n)) {
            self.send(ctx, *node, Kind::HeartbeatRep, &beat);
        }
    }

    /// A heartbeat of a member that we hold for failed.
    pub(super) fn on_word_of_lost(&mut self, from: NodeId, beat: &Heartbeat, ctx: &mut Context<'_>) {
        let Some(view) = self.view.as_ref().filter(|_| self.phase == Phase::Member) else { return };
        let is_member = view.node(from).is_some_and(|n| n.incarnation == beat.incarnation);
        if is_member && beat.frozen && beat.generation < view.generation {
            // It missed the commit.
            self.send(ctx, from, Kind::ViewCommitOrd, &ViewCommit { view: Some(view.clone()) });
        } else if is_member && beat.frozen && beat.generation == view.generation && self.freeze.is_frozen() {
            self.freeze.returned.insert(from, ctx.now());
        } else {
            jam!(ctx);
        }
    }

    /// The acting president of our side says that it may not go on.
    pub(super) fn on_frozen_president(&mut self, from: NodeId, ctx: &mut Context<'_>) {
        if !self.failed.is_empty() && !self.freeze.is_frozen() && self.acting_president() == Some(from) {
            self.freeze(&format!("node {from}, which acts for this side, may not go on"), ctx);
        }
    }

    pub(super) fn tick_frozen(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        if !self.freeze.is_frozen() {
            return;
        }
        self.freeze.returned.retain(|_, heard| now.saturating_sub(*heard) < RETURN_NS);
        self.freeze.witnesses.retain(|_, (_, heard)| now.saturating_sub(*heard) < RETURN_NS);
        self.freeze.on_disk.retain(|_, disk| now.saturating_sub(disk.heard) < RETURN_NS);
        if self.gives_way().is_some() && now.saturating_sub(self.freeze.asked_at) > GIVE_WAY_NS {
            self.give_up_asking(ctx);
        }
        if now.saturating_sub(self.freeze.last_try) >= RETRY_NS {
            self.freeze.last_try = now;
            self.drive(ctx);
        }
        self.look_for_all_sides(ctx);
        self.tick_outlive(ctx);
        self.tick_lost_group(ctx);
    }

    /// Full members that we hold for failed and that are there, frozen, in the process that the view names or one that speaks for it.
    pub(super) fn back(&self) -> BTreeSet<NodeId> {
        let is_back = |n: &&ViewNode| {
            let process = self.links.incarnation(n.node());
            let is_itself = self.freeze.returned.contains_key(&n.node()) && process == n.incarnation;
            let is_witness = self.freeze.witnesses.get(&n.node()).is_some_and(|w| w.0 == process);
            self.is_linked(n.node()) && (is_itself || is_witness)
        };
        self.lost_full().filter(is_back).map(ViewNode::node).collect()
    }

    /// Its process is dead, and another one speaks for it.
    pub(super) fn is_witnessed(&self, node: NodeId) -> bool {
        self.freeze.witnesses.contains_key(&node)
    }

    pub(super) fn holds_every_group(&self, side: &BTreeSet<NodeId>) -> bool {
        let Some(view) = &self.view else { return false };
        let of = |n: &ViewNode| n.group;
        let held: BTreeSet<u32> = full(view).filter(|n| side.contains(&n.node())).map(of).collect();
        full(view).all(|n| held.contains(&n.group))
    }

    fn look_for_all_sides(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let Some(view) = &self.view else { return };
        let (side, back) = (self.own_side(), self.back());
        assert!(side.is_disjoint(&back), "{back:?} are back, and were not lost by {side:?}");
        let all: BTreeSet<NodeId> = side.union(&back).copied().collect();
        // Who is spoken for has died with its rows.
        let living: BTreeSet<NodeId> = all.iter().copied().filter(|n| !self.is_witnessed(*n)).collect();
        // Who is missing has no lease from us, and needs one from all.
        let is_served = |n: &NodeId| !back.contains(n) && self.heartbeats.promised_until(*n) >= now;
        let is_enough = !back.is_empty()
            && self.freeze.gone_on.is_none()
            && !self.is_resumed()
            && !self.failed.iter().any(is_served)
            && survival::verdict(view, &all) == survival::Verdict::Win
            && self.holds_every_group(&living);
        let holds_all = self.holds_every_group(&side);
        let is_able = is_enough && self.acting_president() == Some(self.me);
        if !is_able || self.gives_way().is_some() {
            self.freeze.together_since = None;
            return;
        }
        let since = *self.freeze.together_since.get_or_insert(now);
        if !holds_all && !self.may_meet(&back, since, now) {
            return;
        }
        let own = view.node(self.me).map_or(0, |n| n.join_order);
        let seniors = self.lost_full().filter(|n| n.join_order < own).count() as u64;
        // Those that are on their way are better asked, too.
        // So is who could have all others give way.
        let grace = if back.len() < self.lost_full().count() || !holds_all { MISSING_NS } else { 0 };
        if now < self.freeze.not_before || now.saturating_sub(since) < grace + seniors * TURN_NS {
            return;
        }
        ctx.probe("qmgr: other sides are asked to give way");
        ctx.log(format_args!("meets {back:?} again and asks them to give way"));
        self.freeze.asked_at = now;
        self.freeze.must_finish = false;
        self.freeze.lost_by.clear();
        self.begin_take_over_with(back, ctx);
    }

    /// All have told what they accepted.
    pub(super) fn propose_reunion(
        &mut self,
        accepted: Option<(u64, View)>,
        back: BTreeSet<NodeId>,
        ctx: &mut Context<'_>,
    ) {
        let Some(base) = &self.view else { return };
        let are_all = !self.freeze.must_finish && self.lost_full().all(|n| back.contains(&n.node()));
        let next = match accepted {
            Some((_, view)) if !are_all => Some(view),
            _ if self.holds_every_group(&self.own_side()) => Some(self.without_failed(base)),
            // Whoever is missing has committed nothing: no set without all of those that are here passes.
            None => self.meeting(&back),
            Some(_) => self.meeting(&back).filter(|_| are_all),
        };
        if let Some(next) = next.filter(|next| self.is_own_entry(next)) {
            self.propose_to(next, back, ctx);
        } else {
            self.give_up_asking(ctx); // who stays in it may finish it
        }
    }

    /// The process that spoke for a member knows of a later view, in which we are not.
    pub(super) fn learn_of_later(&mut self, from: NodeId, generation: u64, ctx: &mut Context<'_>) {
        let text = format!("node {from} went on in generation {generation} without this node, and has died since");
        ctx.log(format_args!("{text}"));
        self.freeze.gone_on = Some(text);
        self.give_up_asking(ctx);
        self.register(ctx);
    }

    /// Says what it accepted and promises the ballot, if it is frozen under the same view.
    pub(super) fn on_reunion_req(
        &mut self,
        from: NodeId,
        req: PresTakeOverReq,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let base = checked_view(req.committed.clone())?.ok_or(DecodeError)?;
        if !self.is_on_base_of(from, base, ctx) {
            // A view in which the sides have met already.
            let has_met = self.phase == Phase::Member && !self.failed.contains(&from);
            return if has_met { self.on_take_over_req(from, req, ctx) } else { Ok(()) };
        }
        if !self.freeze.is_frozen() || req.ballot < self.promised || self.is_resumed() {
            self.refuse_to_give_way(from, req.ballot, ctx);
            return Ok(());
        }
        self.promised = req.ballot;
        self.change = None;
        self.freeze.not_before = ctx.now() + PAUSE_NS;
        let conf = PresTakeOverConf {
            ballot: req.ballot,
            committed: self.view.clone(),
            prepared: self.prepared.as_ref().map(|p| p.1.clone()),
            prepared_ballot: self.prepared.as_ref().map_or(0, |p| p.0),
            failed: self.failed_list(),
        };
        self.tell_when_kept(from, Kind::PresTakeOverConf, &conf, ctx);
        Ok(())
    }

    fn refuse_to_give_way(&self, to: NodeId, ballot: u64, ctx: &mut Context<'_>) {
        let (generation, promised) = (self.generation(), self.promised);
        let answer = ViewPrepAnswer { ballot, generation, promised, ..ViewPrepAnswer::default() };
        self.send(ctx, to, Kind::ViewPrepRef, &answer);
    }

    /// The sender is a full member of our view, and asks under the same one. Whoever has an older view gets the newer one.
    fn is_on_base_of(&mut self, from: NodeId, base: View, ctx: &mut Context<'_>) -> bool {
        let Some(view) = self.view.as_ref().filter(|_| self.phase == Phase::Member) else { return false };
        let incarnation = self.links.incarnation(from);
        if base.generation > view.generation {
            self.apply(base, ctx); // it stops us, if we are not in it
            return false;
        }
        let is_member = view.node(from).is_some_and(|n| n.incarnation == incarnation && n.state() == NodeState::Up);
        if !is_member && base.generation < view.generation {
            self.stop_removed(from, incarnation, ctx);
        } else if is_member && base.generation < view.generation {
            self.send(ctx, from, Kind::ViewCommitOrd, &ViewCommit { view: Some(view.clone()) });
        }
        is_member && base.generation == view.generation
    }

    /// Asks a member of another side, as part of a proposal.
    pub(super) fn ask_to_give_way(&self, node: NodeId, message: &ViewPrep, ctx: &mut Context<'_>) {
        assert!(self.failed.contains(&node), "data node {node} is on this side, and asked to give way to it");
        self.send(ctx, node, Kind::GiveWayReq, message);
    }

    pub(super) fn give_up_asking(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.change = None;
        self.freeze.not_before = ctx.now() + PAUSE_NS;
        self.freeze.together_since = None;
    }

    pub(super) fn on_give_way_req(
        &mut self,
        from: NodeId,
        req: ViewPrep,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if self.phase == Phase::Starting {
            return self.on_give_way_req_before(from, req, ctx);
        }
        let next = checked_view(req.view)?.ok_or(DecodeError)?;
        let base = checked_view(req.base)?.ok_or(DecodeError)?;
        if !self.is_on_base_of(from, base, ctx) {
            return Ok(());
        }
        let is_next = self.is_successor(&next) && !self.begins_lineage(&next);
        if !self.freeze.is_frozen() || req.ballot < self.promised || !is_next {
            self.refuse_to_give_way(from, req.ballot, ctx);
            return Ok(());
        }
        let stays = self.is_own_entry(&next);
        // One that only finishes what was accepted may name dead nodes; its members are frozen under it.
        if stays && next.settles == next.generation && !self.is_linked_to_all(&next) {
            self.refuse_to_give_way(from, req.ballot, ctx);
            return Ok(());
        }
        let answer = ViewPrepAnswer { ballot: req.ballot, generation: self.generation(), ..ViewPrepAnswer::default() };
        if stays {
            self.open_gates(&next, ctx);
        } else {
            ctx.probe("qmgr: a frozen node gives way");
        }
        self.promised = req.ballot;
        self.change = None;
        self.prepared = Some((req.ballot, next));
        self.freeze.not_before = ctx.now() + PAUSE_NS;
        if self.has_given_way() {
            self.freeze_to_give_way(&format!("gives way to node {from}"), ctx);
        }
        self.confirm_prepare(from, answer, ctx);
        Ok(())
    }

    /// The accepted proposal is not for us to finish: it goes on without us, and may have been committed.
    pub(super) fn has_given_way(&self) -> bool {
        self.prepared.as_ref().is_some_and(|(_, view)| !self.is_own_entry(view))
    }
}

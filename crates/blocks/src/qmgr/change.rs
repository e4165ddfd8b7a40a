//! The two-phase change of the view: the acting president's side, and the member's answers.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, ensure, jam};
use apus_signal::{
    DecodeError, Kind,
    qmgr::{
        ArbitConf, ArbitReq, BALLOT_SHIFT, Incarnation, PresTakeOverConf, PresTakeOverReq, ViewCommit, ViewPrep,
        ViewPrepAnswer, checked_view, encode,
    },
    view::{NodeState, View, ViewNode},
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use super::{
    ARBITRATION_TIMEOUT_NS, MS, Membership, Phase, arbiter, freeze, layout,
    survival::{Verdict, is_tie, verdict},
};

/// A process that is to be let in answers the proposal so soon, in nanoseconds.
const JOINER_NS: u64 = 1_000 * MS;

/// The change under way at the acting president.
pub(super) struct Change {
    ballot: u64,
    step: Step,
    waiting: BTreeSet<NodeId>,
    asked_at: u64,
    confirmed: BTreeSet<NodeId>,
    /// Frozen members of other sides that are to give way, and those that do; none: nobody is asked to.
    yielding: BTreeSet<NodeId>,
    yielded: BTreeSet<NodeId>,
}

enum Step {
    /// Best accepted proposal so far, and who has accepted any; confirmed are those that have told.
    TakeOver(Option<(u64, View)>, BTreeSet<NodeId>),
    Prepare(View),
    /// The other half may rely on promises until then.
    Outlast(View, u64),
    Arbitrate {
        view: View,
        question: u64,
        deadline: u64,
    },
}

/// An answer to a proposal that waits until all workers of this node have opened their gates, for those we part from, and for the file.
pub(super) struct Gates {
    token: u64,
    missing: u8,
    /// Number of the state that is to be in the file, and of the write of the synced one that is to be over.
    file: u64,
    sync: u64,
    from: NodeId,
    answer: ViewPrepAnswer,
}

impl Change {
    pub(super) fn summary(&self) -> String {
        let step = match &self.step {
            Step::TakeOver(..) => "take-over".to_owned(),
            Step::Prepare(view) => format!("prepare {}", view.generation),
            Step::Outlast(view, _) => format!("outlast {}", view.generation),
            Step::Arbitrate { view, .. } => format!("arbitrate {}", view.generation),
        };
        format!("{step} ballot {:x} waits for {:?} {:?}", self.ballot, self.waiting, self.yielding)
    }
    /// Other sides are to give way.
    fn is_for_all_sides(&self) -> bool {
        !self.yielding.is_empty() || !self.yielded.is_empty()
    }
    /// Who is asked has not answered, and who proposes has agreed.
    fn verify(&self, me: NodeId) {
        let Change { waiting, confirmed, yielding, yielded, .. } = self;
        let is_open = |n: &&NodeId| **n != me && confirmed.contains(n);
        assert!(waiting.iter().find(is_open).is_none(), "{waiting:?} are asked, {confirmed:?} have confirmed");
        assert!(yielding.is_disjoint(yielded), "{yielding:?} are to give way, {yielded:?} have");
        assert!(!yielding.contains(&me) && !yielded.contains(&me), "{me} gives way to itself");
        let agrees = matches!(self.step, Step::TakeOver(..)) || confirmed.contains(&me);
        assert!(agrees, "{me} proposes what it has not confirmed, as {confirmed:?} have");
    }
    pub(super) fn waits_for(&self, node: NodeId) -> bool {
        self.waiting.contains(&node)
    }
}

impl Membership {
    pub(super) fn next_ballot(&self) -> u64 {
        ((self.promised >> BALLOT_SHIFT) + 1) << BALLOT_SHIFT | u64::from(self.me.0)
    }

    /// Does what the acting president has to do next; called whenever something changed.
    pub(super) fn drive(&mut self, ctx: &mut Context<'_>) {
        self.check_departure(ctx);
        if self.phase != Phase::Member || self.ending.has_begun() {
            return;
        }
        let acting = self.acting_president();
        if acting.is_none() && self.view.is_some() {
            self.stop(ctx, "this node was recovering and has lost all full members");
            return;
        }
        if self.gives_way().is_some() {
            self.advance(ctx);
            return;
        }
        if self.is_resumed() {
            self.drive_resumed(ctx);
            return;
        }
        let outlook = self.view.as_ref().map(|base| verdict(base, &self.own_side()));
        // Whoever confirms, it will not do: others may still do without us.
        if let Some(Verdict::Lose(reason)) = outlook {
            self.change = None;
            self.freeze(reason, ctx);
            return;
        }
        if self.is_left_alone() {
            self.change = None;
            self.freeze_to_give_way("it has agreed to leave, and who was to stay is gone", ctx);
            return;
        }
        if acting != Some(self.me) || self.freeze.gives_way_to_others() {
            self.change = None;
            return;
        }
        if self.change.is_some() {
            self.advance(ctx);
            return;
        }
        // Nothing is accepted for which there is nobody to say yes: others could not tell whether it came to be.
        if outlook == Some(Verdict::Ask) && !self.reaches_arbitrator(ctx.now()) {
            self.freeze("exactly half of the cluster is here, and the arbitrator is out of reach", ctx);
            return;
        }
        let made_by_us = self.view.as_ref().is_some_and(|v| v.president == u32::from(self.me.0));
        if !made_by_us && !self.took_over {
            self.begin_take_over(ctx);
        } else if let Some((_, view)) = self.prepared.clone() {
            self.is_own_choice = false;
            self.propose(view, ctx);
        } else if let Some(view) = self.next_view(ctx.now()) {
            self.is_own_choice = true;
            self.propose(view, ctx);
        }
    }

    pub(super) fn without_failed(&self, base: &View) -> View {
        let mut view = layout::without(base, self.me, |n| self.failed.contains(&n));
        self.leave.mark(&mut view);
        view
    }

    /// What the view should become; `None`: it is as it should be.
    pub(super) fn next_view(&self, now: u64) -> Option<View> {
        let base = self.view.as_ref()?;
        if !self.failed.is_empty() {
            return Some(self.without_failed(base));
        }
        if !self.joining.is_empty()
            && let Some(config) = &self.config
        {
            let view = layout::with(base, self.me, config, &self.joining);
            return Some(view);
        }
        let is_filled = |id: u32, incarnation: u64| {
            let done = self.recovered.get(&Incarnation { node: id, incarnation });
            let mut wanted =
                (0u32..).zip(&base.chains).filter(|(_, c)| apus_types::Chain(**c).contains(NodeId(id as u16)));
            planted(Bug::RecoveredTooEarly) || wanted.all(|(p, _)| done.is_some_and(|d| d.contains(&p)))
        };
        let view = layout::promoted(base, self.me, |n| is_filled(n.id, n.incarnation));
        if view.nodes != base.nodes {
            return Some(view);
        }
        self.with_new_arbitrator(base, now).or_else(|| self.with_settings(base))
    }

    pub(super) fn begin_take_over(&mut self, ctx: &mut Context<'_>) {
        self.begin_take_over_with(BTreeSet::new(), ctx);
    }

    /// Frozen members of other sides are asked, too.
    pub(super) fn begin_take_over_with(&mut self, yielding: BTreeSet<NodeId>, ctx: &mut Context<'_>) {
        jam!(ctx);
        let ballot = self.next_ballot();
        self.promised = ballot;
        let waiting = self.survivors();
        let req = PresTakeOverReq { ballot, committed: self.view.clone(), failed: self.failed_list() };
        for &node in &waiting {
            self.send(ctx, node, Kind::PresTakeOverReq, &req);
        }
        let req = PresTakeOverReq { failed: Vec::new(), ..req };
        yielding.iter().for_each(|node| self.send(ctx, *node, Kind::PresTakeOverReq, &req));
        let confirmed = BTreeSet::from([self.me]);
        let accepted = confirmed.iter().filter(|_| self.prepared.is_some()).copied().collect();
        let step = Step::TakeOver(self.prepared.clone(), accepted);
        let yielded = BTreeSet::new();
        self.change = Some(Change { ballot, step, waiting, asked_at: ctx.now(), confirmed, yielding, yielded });
        self.advance(ctx);
    }

    pub(super) fn on_reunion_conf(
        &mut self,
        from: NodeId,
        conf: PresTakeOverConf,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let prepared = checked_view(conf.prepared)?;
        let committed = checked_view(conf.committed)?;
        let next = self.generation() + 1;
        self.freeze.note_lost(from, &conf.failed);
        let Some(Change { ballot, step: Step::TakeOver(best, _), yielding, yielded, .. }) = &mut self.change else {
            return Ok(());
        };
        if *ballot == conf.ballot && yielding.remove(&from) {
            if let Some(later) = committed.map(|v| v.generation).filter(|g| *g >= next) {
                self.learn_of_later(from, later, ctx);
                return Ok(());
            }
            yielded.insert(from);
            self.freeze.note_accepted(from, prepared.is_some());
            if let Some(view) = prepared.filter(|v| v.generation == next)
                && best.as_ref().is_none_or(|b| b.0 < conf.prepared_ballot)
            {
                *best = Some((conf.prepared_ballot, view));
            }
            self.advance(ctx);
        }
        Ok(())
    }

    /// Offers `view` to everyone who is left, and to those it lets in.
    pub(super) fn propose(&mut self, view: View, ctx: &mut Context<'_>) {
        self.propose_to(view, BTreeSet::new(), ctx);
    }

    /// As above; frozen members of other sides are to give way.
    pub(super) fn propose_to(&mut self, view: View, yielding: BTreeSet<NodeId>, ctx: &mut Context<'_>) {
        let lost =
            self.view.iter().flat_map(freeze::full).find(|n| freeze::full(&view).all(|other| other.group != n.group));
        assert!(lost.is_none(), "a view without the rows of a node group is proposed: {lost:?} of {:?}", self.view);
        let (next, now) = (view.generation, self.generation());
        assert!(next > now, "view {next} is proposed after {now}");
        let ballot = self.next_ballot();
        assert!(ballot > self.promised, "ballot {ballot:x} follows {:x}", self.promised);
        self.promised = ballot;
        self.late_joiners.clear();
        let waiting = self.concerned(&view);
        if self.view.is_some() && !self.is_own_entry(&view) {
            self.agree_to_leave(ctx);
        }
        let message =
            ViewPrep { ballot, view: Some(view.clone()), base: self.view.clone(), failed: self.failed_list() };
        for &node in &waiting {
            self.send(ctx, node, Kind::ViewPrepReq, &message);
        }
        yielding.iter().for_each(|node| self.ask_to_give_way(*node, &message, ctx));
        if self.view.is_some() {
            self.prepared = Some((ballot, view.clone()));
        }
        self.heartbeats.prepared(ctx.now());
        self.open_gates(&view, ctx);
        self.gates_for = None;
        let mut waiting = waiting;
        if self.await_gates(self.me, ViewPrepAnswer { ballot, ..ViewPrepAnswer::default() }, ctx) {
            waiting.insert(self.me);
        }
        let (step, confirmed) = (Step::Prepare(view), BTreeSet::from([self.me]));
        let (asked_at, yielded) = (ctx.now(), BTreeSet::new());
        self.change = Some(Change { ballot, step, waiting, asked_at, confirmed, yielding, yielded });
        self.advance(ctx);
    }

    /// The others who have to know of a proposal: its members, and who leaves by it.
    fn concerned(&self, view: &View) -> BTreeSet<NodeId> {
        let all = view.living().chain(self.view.iter().flat_map(View::living)).map(|n| n.node());
        all.filter(|n| *n != self.me && !self.failed.contains(n)).collect()
    }

    /// Goes as far as the answers allow.
    pub(super) fn advance(&mut self, ctx: &mut Context<'_>) {
        let Some(mut change) = self.change.take() else { return };
        change.waiting.retain(|n| !self.failed.contains(n));
        change.confirmed.retain(|n| !self.failed.contains(n));
        change.verify(self.me);
        if !change.waiting.is_empty() {
            // A joiner is no member yet, so its loss is no failure: its link says it.
            let members = self.view.clone();
            change
                .waiting
                .retain(|n| *n == self.me || members.as_ref().is_none_or(|v| v.is_alive(*n)) || self.is_linked(*n));
        }
        if planted(Bug::ViewNotAwaited) && self.view.is_some() && matches!(change.step, Step::Prepare(_)) {
            change.confirmed.append(&mut change.waiting);
        }
        if !change.waiting.is_empty() || !change.yielding.is_empty() {
            self.change = Some(change);
            return;
        }
        if change.is_for_all_sides() {
            self.decide_for_all(change, ctx);
            return;
        }
        match change.step {
            Step::TakeOver(best, accepted) => {
                self.took_over = true;
                self.prepared = best.filter(|(_, view)| self.may_be_committed(view, &accepted, &change.confirmed, ctx));
                self.drive(ctx);
            }
            Step::Prepare(view) | Step::Outlast(view, _) => {
                self.decide(view, change.ballot, change.confirmed, None, ctx)
            }
            Step::Arbitrate { view, question, deadline } => {
                self.decide(view, change.ballot, change.confirmed, Some((question, deadline)), ctx);
            }
        }
    }

    /// A process that is to be let in says nothing: it is no member that could be held for failed, and its link may stand as long as TCP likes. The view is
    /// committed without its answer, and it is removed by the next one, for others may have spoken to it before it knew them.
    pub(super) fn tick_joiners(&mut self, ctx: &mut Context<'_>) {
        let (Some(Change { step: Step::Prepare(view), waiting, asked_at, .. }), Some(base)) =
            (&self.change, &self.view)
        else {
            return;
        };
        if ctx.now() < asked_at + JOINER_NS || self.phase != Phase::Member {
            return;
        }
        let is_late = |n: &&ViewNode| n.node() != self.me && waiting.contains(&n.node()) && !base.is_alive(n.node());
        let late: Vec<Incarnation> =
            view.living().filter(is_late).map(|n| Incarnation::of(n.node(), n.incarnation)).collect();
        if late.is_empty() {
            return;
        }
        ctx.probe("qmgr: who is to be let in does not answer");
        for joiner in &late {
            ctx.log(format_args!("node {} is to be let in and does not answer", joiner.node));
            self.joining.remove(&NodeId(joiner.node as u16));
            self.fence(NodeId(joiner.node as u16), joiner.incarnation, ctx);
        }
        self.late_joiners.extend(late);
        self.advance(ctx);
    }

    /// An accepted proposal is finished if it may have been committed: had those of whom we do not know it accepted it, too, they would pass the survival rule. Else it
    /// is dropped, and what it was for is decided anew by who is left: a president that is about to be removed may have had a few accept a view of its own
    /// (simulator seed 175007616). Those that have told accept no lower ballot any more, so that nobody will commit it later either.
    fn may_be_committed(
        &self,
        accepted: &View,
        by: &BTreeSet<NodeId>,
        told: &BTreeSet<NodeId>,
        ctx: &mut Context<'_>,
    ) -> bool {
        let Some(base) = self.view.as_ref().filter(|_| !self.begins_lineage(accepted)) else { return true };
        let may_have = |n: &NodeId| by.contains(n) || !told.contains(n);
        let most = base.living().map(ViewNode::node).filter(may_have).collect();
        let may_be = !matches!(verdict(base, &most), Verdict::Lose(_));
        if !may_be {
            ctx.probe("qmgr: take-over drops what nobody has committed");
        }
        may_be
    }

    /// The members of other sides that this proposal asks to give way.
    pub(super) fn gives_way(&self) -> Option<&BTreeSet<NodeId>> {
        self.change.as_ref().filter(|c| c.is_for_all_sides()).map(|c| &c.yielding)
    }

    /// All that were asked have told what they accepted, or have accepted the proposal, be it that they give way to it.
    fn decide_for_all(&mut self, change: Change, ctx: &mut Context<'_>) {
        let view = match change.step {
            Step::TakeOver(best, _) => return self.propose_reunion(best, change.yielded, ctx),
            Step::Prepare(view) | Step::Outlast(view, _) | Step::Arbitrate { view, .. } => view,
        };
        let all = change.confirmed.union(&change.yielded).copied().collect();
        if self.view.as_ref().is_none_or(|base| verdict(base, &all) != Verdict::Win) {
            self.give_up_asking(ctx);
            return;
        }
        self.commit(view, ctx);
        let told = ViewCommit { view: self.view.clone() };
        for node in change.yielded {
            self.send(ctx, node, Kind::ViewCommitOrd, &told);
        }
    }

    pub(super) fn on_gave_way(&mut self, from: NodeId, conf: &ViewPrepAnswer, ctx: &mut Context<'_>) {
        if self.has_given_way_to_rest(from, conf) {
            return;
        }
        if let Some(change) = &mut self.change
            && change.ballot == conf.ballot
            && change.yielding.remove(&from)
        {
            change.yielded.insert(from);
            self.advance(ctx);
        }
    }

    pub(super) fn on_gave_no_way(&mut self, answer: &ViewPrepAnswer, ctx: &mut Context<'_>) {
        if self.is_refused_by_disk(answer, ctx.now()) {
            return;
        }
        if self.change.as_ref().is_some_and(|c| c.ballot == answer.ballot) {
            self.promised = self.promised.max(answer.promised);
            self.give_up_asking(ctx);
        }
    }

    /// All that live have confirmed: may we commit?
    fn decide(
        &mut self,
        view: View,
        ballot: u64,
        confirmed: BTreeSet<NodeId>,
        asked: Option<(u64, u64)>,
        ctx: &mut Context<'_>,
    ) {
        let is_forced = self.begins_lineage(&view);
        let outcome = match &self.view {
            None => Verdict::Win,
            Some(_) if is_forced && self.holds_every_group(&confirmed) => Verdict::Win,
            Some(_) if is_forced => Verdict::Lose("a node group has no full member left on this side"),
            Some(base) => verdict(base, &confirmed),
        };
        match outcome {
            Verdict::Win => {
                let until = self.promised_to_others(&confirmed, is_forced);
                if until <= ctx.now() {
                    return self.commit(view, ctx);
                }
                let (waiting, yielding, yielded) = <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
                let step = Step::Outlast(view, until);
                self.change = Some(Change { ballot, step, waiting, asked_at: ctx.now(), confirmed, yielding, yielded });
            }
            Verdict::Lose(reason) => self.freeze(reason, ctx),
            Verdict::Ask if asked.is_none() && self.is_own_choice && self.lists_lost(&view) => {
                self.propose_without_lost(ctx);
            }
            Verdict::Ask => {
                let (question, deadline) = asked.unwrap_or_else(|| {
                    self.questions += 1;
                    (ctx.random() << 8 | (self.questions & 0xff), ctx.now() + ARBITRATION_TIMEOUT_NS)
                });
                let step = Step::Arbitrate { view, question, deadline };
                let (waiting, yielding, yielded) = <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
                self.change = Some(Change { ballot, step, waiting, asked_at: ctx.now(), confirmed, yielding, yielded });
                if asked.is_none() {
                    self.ask_again(ctx);
                    self.check_asked_arbitrator(ctx); // it was there when this began
                }
            }
        }
    }

    fn lists_lost(&self, view: &View) -> bool {
        view.living().any(|n| self.failed.contains(&n.node()))
    }

    /// Half is left of those that were asked, and the proposal has some of the others still. What the arbitrator is asked for is a view without them: a start from the disks may rest on its
    /// yes (`fenced`). Nobody but this node could have committed what it drops: whoever takes over has one of this half with him, who accepts another one now, or needs the same arbitrator's yes.
    fn propose_without_lost(&mut self, ctx: &mut Context<'_>) {
        let Some(next) = self.view.as_ref().map(|base| self.without_failed(base)) else { return };
        ctx.probe("qmgr: half of the cluster is lost one after the other");
        self.propose(next, ctx);
    }

    /// Until when the other half of a tie, or those that an operator abandons, may serve clients by our promises; 0: others ask them for their
    /// leases (`lease_end`).
    fn promised_to_others(&self, side: &BTreeSet<NodeId>, is_forced: bool) -> u64 {
        let Some(base) = self.view.as_ref().filter(|base| is_forced || is_tie(base, side)) else { return 0 };
        let others = base.living().filter(|n| !side.contains(&n.node()));
        others.map(|n| self.heartbeats.promised_until(n.node()) + 1).max().unwrap_or(0)
    }

    fn commit(&mut self, view: View, ctx: &mut Context<'_>) {
        ensure!(
            ctx,
            self.view.is_none() || self.begins_lineage(&view) || view.generation == self.generation() + 1,
            "view {} follows {}",
            view.generation,
            self.generation()
        );
        let message = ViewCommit { view: Some(view.clone()) };
        for node in self.concerned(&view) {
            if ctx.fault("qmgr.drop_view_commit") {
                continue;
            }
            self.send(ctx, node, Kind::ViewCommitOrd, &message);
        }
        let late = std::mem::take(&mut self.late_joiners);
        self.apply(view, ctx);
        for joiner in late {
            let why = super::Loss::Seen("it did not answer the view that let it in");
            self.mark_failed(NodeId(joiner.node as u16), joiner.incarnation, why, ctx);
        }
    }

    // ---- arbitration

    /// Sends the open question to the arbitrator (again).
    pub(super) fn ask_again(&mut self, ctx: &mut Context<'_>) {
        let Some(Change { step: Step::Arbitrate { view, question, .. }, confirmed, .. }) = &self.change else { return };
        let Some(base) = &self.view else { return };
        let full = base.nodes.iter().filter(|n| n.state() == NodeState::Up);
        let name = |n: &apus_signal::view::ViewNode| Incarnation { node: n.id, incarnation: n.incarnation };
        let (side, others): (Vec<_>, Vec<_>) = full.partition(|n| confirmed.contains(&n.node()));
        let promised = others.iter().map(|o| self.heartbeats.promised_until(o.node())).max().unwrap_or(0);
        let without_others = others.iter().all(|o| view.state(o.node()) == NodeState::Down);
        let arbitrator = self.whom_to_ask(base, ctx.now());
        let req = ArbitReq {
            cluster: base.cluster,
            generation: base.generation,
            asker: Some(self.own()),
            side: side.into_iter().map(name).collect(),
            others: others.into_iter().map(name).collect(),
            question: *question,
            arbitrator_incarnation: arbitrator.incarnation,
            promise_ns: promised.saturating_sub(ctx.now()),
            lineage: base.lineage,
            without_others,
        };
        if let Some(node) = arbiter::node_of(arbitrator) {
            ctx.send(Self::mgmt_of(node), Kind::ArbitReq, |b| encode(&req, b));
        }
    }

    pub(super) fn on_arbit_conf(&mut self, from: NodeId, conf: ArbitConf, ctx: &mut Context<'_>) {
        if self.phase == Phase::Starting {
            if Some(from) == self.start_arbitrator() {
                self.on_start_granted(conf, ctx);
            }
            return;
        }
        if self.view.as_ref().and_then(Self::arbitrator_of) != Some(from) && !planted(Bug::AnyArbitratorAsked) {
            jam!(ctx);
            return;
        }
        let is_ours =
            |c: &mut Change| matches!(&c.step, Step::Arbitrate { question, .. } if *question == conf.question);
        if conf.gone_on && self.change.as_mut().is_some_and(is_ours) {
            self.stop(ctx, &format!("arbitration lost: {}", conf.reason));
        } else if !conf.granted && self.change.as_mut().is_some_and(is_ours) {
            self.freeze(&format!("the arbitrator says no: {}", conf.reason), ctx);
        } else if let Some(Change { step: Step::Arbitrate { view, .. }, .. }) = self.change.take_if(is_ours) {
            if from.is_sql_arbitrator() {
                ctx.probe("qmgr: a SQL node lets a side go on");
            }
            self.commit(view, ctx);
        }
    }

    /// Whoever has been asked and is not there any more does not answer; the question stays open, and is asked again when it is back.
    pub(super) fn check_asked_arbitrator(&mut self, ctx: &mut Context<'_>) {
        let is_asked = matches!(&self.change, Some(Change { step: Step::Arbitrate { .. }, .. }));
        if is_asked && !self.reaches_arbitrator(ctx.now()) && !self.freeze.is_frozen() {
            ctx.probe("qmgr: the arbitrator is lost while it is asked");
            self.freeze("exactly half of the cluster is here, and the connection to the arbitrator is lost", ctx);
        }
    }

    pub(super) fn check_arbitration(&mut self, ctx: &mut Context<'_>) {
        if matches!(&self.change, Some(Change { step: Step::Outlast(_, until), .. }) if *until <= ctx.now()) {
            self.advance(ctx);
        }
        if let Some(Change { step: Step::Arbitrate { deadline, .. }, .. }) = &self.change
            && ctx.now() > *deadline
            && !self.freeze.is_frozen()
        {
            self.freeze("exactly half of the cluster is here, and the arbitrator does not answer", ctx);
        }
    }

    // ---- members

    /// Lets data-plane signals of the coming view's members pass before the first of them can arrive.
    pub(super) fn open_gates(&self, view: &View, ctx: &mut Context<'_>) {
        let is_met = view.settles == view.generation;
        for node in view.living().filter(|n| n.node() != self.me && (is_met || !self.failed.contains(&n.node()))) {
            ctx.accept_from(node.node(), node.incarnation, true);
        }
    }

    pub(super) fn on_view_prep_req(
        &mut self,
        from: NodeId,
        req: ViewPrep,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let view = checked_view(req.view)?.ok_or(DecodeError)?;
        let base = checked_view(req.base)?;
        if self.phase == Phase::Member
            && let Some(base) = base
        {
            self.apply(base, ctx);
        }
        let mut answer = ViewPrepAnswer {
            ballot: req.ballot,
            generation: self.generation(),
            promised: self.promised,
            committed: None,
        };
        if self.phase == Phase::Starting {
            if self.is_own_entry(&view) {
                self.open_gates(&view, ctx);
                self.confirm_prepare(from, answer, ctx);
            }
            return Ok(());
        }
        if self.phase == Phase::Stopped {
            return Ok(());
        }
        if !self.is_successor(&view) || req.ballot < self.promised {
            jam!(ctx);
            answer.committed = self.view.clone();
            self.send(ctx, from, Kind::ViewPrepRef, &answer);
            return Ok(());
        }
        if !self.adopt_failed(from, &req.failed, ctx) {
            return Ok(());
        }
        if !self.is_own_entry(&view) {
            if !self.leave.is_wanted() {
                self.hold_reporter(from, ctx);
                return Ok(());
            }
            self.agree_to_leave(ctx);
        }
        self.promised = req.ballot;
        self.change = None;
        self.open_gates(&view, ctx);
        self.prepared = Some((req.ballot, view));
        self.confirm_prepare(from, answer, ctx);
        Ok(())
    }

    /// Says yes once the gates are open on every worker: the first member of the new view may speak to any of them.
    pub(super) fn confirm_prepare(&mut self, from: NodeId, answer: ViewPrepAnswer, ctx: &mut Context<'_>) {
        self.gates_for = None;
        self.heartbeats.prepared(ctx.now());
        if !self.await_gates(from, answer.clone(), ctx) {
            self.send(ctx, from, Kind::ViewPrepConf, &answer);
        }
    }

    /// False: there is nothing to wait for.
    fn await_gates(&mut self, from: NodeId, answer: ViewPrepAnswer, ctx: &mut Context<'_>) -> bool {
        self.pings += 1;
        let missing = ctx.ping_workers(self.pings);
        let (file, sync) = (self.keep(ctx), self.sync_accepted(ctx));
        let is_kept = self.keeper.has_written(file) && self.keeper.has_synced(sync);
        let waits = missing > 0 || !self.lease_ends.is_empty() || !is_kept;
        if waits {
            self.gates_for = Some(Gates { token: self.pings, missing, file, sync, from, answer });
        }
        waits
    }

    /// A worker has done what it was told before.
    pub(super) fn on_ping_conf(&mut self, token: u64, ctx: &mut Context<'_>) {
        self.on_leave_ping(token, ctx);
        self.on_probe_conf(token, ctx.now());
        if let Some(gates) = self.gates_for.as_mut().filter(|g| g.token == token) {
            gates.missing = gates.missing.saturating_sub(1);
            self.pass_gates(ctx);
        }
    }

    /// Says yes when nothing is waited for any more.
    pub(super) fn pass_gates(&mut self, ctx: &mut Context<'_>) {
        let (is_clear, keeper) = (self.lease_ends.is_empty(), &self.keeper);
        let is_kept = |g: &Gates| keeper.has_written(g.file) && keeper.has_synced(g.sync);
        let is_open = |g: &mut Gates| g.missing == 0 && is_clear && is_kept(g);
        let Some(gates) = self.gates_for.take_if(is_open) else { return };
        if gates.from != self.me {
            self.send(ctx, gates.from, Kind::ViewPrepConf, &gates.answer);
        } else if let Some(change) = &mut self.change
            && change.ballot == gates.answer.ballot
            && change.waiting.remove(&self.me)
        {
            self.advance(ctx);
        }
    }

    pub(super) fn on_view_prep_conf(&mut self, from: NodeId, conf: &ViewPrepAnswer, ctx: &mut Context<'_>) {
        if let Some(change) = &mut self.change
            && change.ballot == conf.ballot
            && !matches!(change.step, Step::TakeOver(..))
            && change.waiting.remove(&from)
        {
            change.confirmed.insert(from);
            self.advance(ctx);
        }
    }

    pub(super) fn on_view_prep_ref(
        &mut self,
        from: NodeId,
        answer: ViewPrepAnswer,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        jam!(ctx);
        let committed = checked_view(answer.committed)?;
        if self.phase == Phase::Starting {
            // There is a cluster already: no first start.
            if self.change.as_ref().is_some_and(|c| c.ballot == answer.ballot) {
                self.change = None;
            }
            return Ok(());
        }
        if let Some(view) = committed {
            if view.generation > self.generation() {
                self.apply(view, ctx);
                return Ok(());
            }
            if view.generation < self.generation() {
                let current = ViewCommit { view: self.view.clone() };
                self.send(ctx, from, Kind::ViewCommitOrd, &current);
            }
        }
        if self.change.as_ref().is_some_and(|c| c.ballot == answer.ballot) {
            self.promised = self.promised.max(answer.promised);
            self.change = None;
            self.took_over = false;
            if self.acting_president() == Some(self.me) {
                self.begin_take_over(ctx);
            }
        }
        Ok(())
    }

    pub(super) fn on_take_over_req(
        &mut self,
        from: NodeId,
        req: PresTakeOverReq,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let committed = checked_view(req.committed)?;
        if self.phase != Phase::Member {
            // We missed the commit that made us a member; the view says so.
            if let Some(view) = committed.clone().filter(|v| self.is_own_entry(v)) {
                self.apply(view, ctx);
            }
            if self.phase != Phase::Member {
                committed.into_iter().for_each(|base| self.on_reunion_req_before(from, req.ballot, base, ctx));
                return Ok(());
            }
        } else if let Some(view) = committed {
            self.apply(view, ctx);
        }
        if !self.adopt_failed(from, &req.failed, ctx) {
            return Ok(());
        }
        if req.ballot < self.promised {
            let answer = ViewPrepAnswer {
                ballot: req.ballot,
                generation: self.generation(),
                promised: self.promised,
                committed: self.view.clone(),
            };
            self.send(ctx, from, Kind::ViewPrepRef, &answer);
            return Ok(());
        }
        self.promised = req.ballot;
        let conf = PresTakeOverConf {
            ballot: req.ballot,
            committed: self.view.clone(),
            prepared: self.prepared.as_ref().map(|p| p.1.clone()),
            prepared_ballot: self.prepared.as_ref().map_or(0, |p| p.0),
            ..PresTakeOverConf::default()
        };
        self.tell_when_kept(from, Kind::PresTakeOverConf, &conf, ctx);
        Ok(())
    }

    pub(super) fn on_take_over_conf(
        &mut self,
        from: NodeId,
        conf: PresTakeOverConf,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let committed = checked_view(conf.committed)?;
        let prepared = checked_view(conf.prepared)?;
        if let Some(view) = committed
            && view.generation > self.generation()
        {
            ctx.probe("qmgr: take-over finds a newer committed view");
            self.apply(view, ctx);
            return Ok(());
        }
        let prepared = prepared.filter(|view| self.is_successor(view));
        let Some(Change { ballot, step: Step::TakeOver(best, accepted), waiting, confirmed, .. }) = &mut self.change
        else {
            return Ok(());
        };
        if *ballot != conf.ballot || !waiting.remove(&from) {
            return Ok(());
        }
        confirmed.insert(from);
        accepted.extend(prepared.as_ref().map(|_| from));
        // What an operator has forced comes before all of the lineage that it abandons.
        if let Some(view) = prepared
            && best.as_ref().is_none_or(|b| (b.1.lineage, b.0) < (view.lineage, conf.prepared_ballot))
        {
            ctx.probe("qmgr: take-over finds an accepted proposal");
            *best = Some((conf.prepared_ballot, view));
        }
        self.advance(ctx);
        Ok(())
    }

    /// The nodes that a first view would be made of, for `start`.
    pub(super) fn propose_first(&mut self, candidates: &BTreeMap<NodeId, layout::Candidate>, ctx: &mut Context<'_>) {
        let arbitrator = arbiter::first_choice(&self.managers.reached(ctx.now()));
        let Some(view) = self.config.as_ref().and_then(|c| layout::first(c, candidates, arbitrator, self.incarnation))
        else {
            return;
        };
        self.propose(view, ctx);
    }
}

//! A frozen side that has outlived all others goes on by itself, in a new lineage.
//!
//! Some of a cluster lose power, and those that are left may not go on without them: too few, or exactly half, and the arbitrator is gone or has let the others go on. In memory they have everything
//! up to the newest view they know. Of the others only disks are left, and the next processes that have read them.
//!
//! ```text
//! frozen leader: next processes of all that it lacks ask to join, no disk has a later view --GiveWayReq(first view of a new lineage)--> each of them
//! next process:  no later view here, no start under way: keeps that its disk gives way, synced --ViewPrepConf-->
//! frozen leader: all have said so --as after an operator's word (`resume`)--> view of the new lineage, agreed upon by its side --> serves; the others join it
//! ```
//!
//! **The rule.** A side goes on that is frozen in V, holds a full member of each group, has lost some full members of V, and of each of these: the process is dead (its next one has taken the directory),
//! its disk knows V or an earlier view as the newest one committed, none accepted that promotes anybody (`accepted`), and it has given way in a synced file.
//!
//! **Why nothing of class `disk` is lost.** An epoch that became restorable in V or before was executed by each full member of V; those that are left have it in memory. One that became restorable in a later view W is in the logs of
//! all full members of W, with the view. W has no full member but those of V, for whoever else was promoted would be known (`accepted`). One of the lost: its disk would know W. None of them: all full members of W are on this side, and execute W.
//!
//! **Of class `replicated`** a suffix is lost: what the lost ones acknowledged in a later view that never got to a disk, less than the time from one global checkpoint to the next. To start from the disks instead would lose that, and what was
//! acknowledged in V since the last one.
//!
//! **Why no two sides go on.** Every full member of V is on this side, or dead and asked. *Processes*: who executes a view after V is dead, or a node that it promoted, which is ruled out. *The old lineage*: its acceptors are
//! this side, which is bound to the new one by acceptance as after an operator's word, and the dead. *A start from the disks*: one by the rule needs all full members of the newest view found, and those of this side hold no disk out to anybody as
//! long as they live; one without those that the arbitrator has fenced (`fenced`) needs all others, who do not take part once they have given way, and who give way to nobody once they take part. A process that takes part ends if it is asked to
//! give way, for those that live lose less. *An operator* may force another side; he answers for that.
//!
//! **What dies with whom.** The leader, before the view is proposed: some disks have given way to a view that never comes. They go on waiting as before, take part in a start with all full members of V, and in none without. The next leader
//! asks them again. Later: whoever has accepted the view finishes it. One of those asked: its next process has read that it gave way, and is asked again. This side: its disks and those that gave way are started from, if all are there.
//!
//! Who is spoken for (`testify`) is better met in the old lineage, so a side of which all lost are waits longer. A disk that is lost, and a process that may live, keep the side frozen, and `account` names them; so does a data node without a disk.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    Kind,
    qmgr::{ViewPrep, ViewPrepAnswer},
    view::{NodeState, View, ViewNode},
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use super::{MS, Membership, accepted::promotes, freeze::full, layout, restart::names};

/// What is there for so long is there: the arbitrator may have a late word, or others may be on their way.
const PATIENCE_NS: u64 = 1_000 * MS;
/// The same where the dead are spoken for.
const SPOKEN_FOR_NS: u64 = 6_000 * MS;
/// Who is asked answers when its file is synced, or is asked again.
const ANSWER_NS: u64 = 3_000 * MS;

/// At the acting president of a frozen side; one question at a time.
#[derive(Default)]
pub(super) struct Outlive {
    since: Option<u64>,
    asked: Option<Asked>,
}

struct Asked {
    view: View,
    ballot: u64,
    processes: BTreeMap<NodeId, u64>,
    /// Those that have not given way yet.
    waiting: BTreeSet<NodeId>,
    at: u64,
}

impl Membership {
    /// The next process of a full member that this side has lost, if nothing later is known to be on its disk.
    pub(super) fn successor(&self, lost: &ViewNode) -> Option<(NodeId, u64)> {
        let view = self.view.as_ref().filter(|_| self.restart.has_disk)?;
        let disk = self.freeze.on_disk.get(&lost.node())?;
        let is_linked = self.is_linked(lost.node()) && disk.process == self.links.incarnation(lost.node());
        let is_older = |v: &View| v.point() <= view.point();
        let is_known = disk.holding.view.as_ref().is_some_and(is_older);
        (is_linked && is_known).then_some((lost.node(), disk.process))
    }

    /// Of all that are lost; `None`: this side is not to go on.
    fn successors(&self) -> Option<BTreeMap<NodeId, u64>> {
        let generation = self.view.as_ref()?.generation;
        let is_of_one_mind = || self.survivors().iter().all(|n| self.heartbeats.is_frozen_in(*n, generation));
        let may_go_on = self.acting_president() == Some(self.me)
            && self.freeze.may_outlive()
            && self.gives_way().is_none()
            && !self.is_resumed()
            && self.holds_every_group(&self.own_side())
            && self.lost_full().next().is_some()
            && is_of_one_mind();
        if !may_go_on {
            return None;
        }
        if planted(Bug::SilentHeldForDead) {
            return self.restart.has_disk.then(|| self.lost_full().filter_map(|n| self.successor(n)).collect());
        }
        self.lost_full().map(|n| self.successor(n)).collect()
    }

    pub(super) fn tick_outlive(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let Some(processes) = self.successors() else {
            self.outlive = Outlive::default();
            return;
        };
        let since = *self.outlive.since.get_or_insert(now);
        let back = self.back();
        let patience = if self.lost_full().all(|n| back.contains(&n.node())) { SPOKEN_FOR_NS } else { PATIENCE_NS };
        if now < since + patience {
            return;
        }
        let is_open = |asked: &Asked| asked.processes == processes && now < asked.at + ANSWER_NS;
        match self.outlive.asked.take_if(|asked| asked.waiting.is_empty() || !is_open(asked)) {
            Some(asked) if asked.waiting.is_empty() && asked.processes == processes => self.go_on_alone(asked, ctx),
            Some(_) => self.outlive.since = Some(now),
            None if self.outlive.asked.is_none() => self.ask_disks(processes, ctx),
            None => {}
        }
    }

    fn ask_disks(&mut self, processes: BTreeMap<NodeId, u64>, ctx: &mut Context<'_>) {
        let Some(base) = self.view.clone() else { return };
        ctx.probe("qmgr: disks are asked to give way to a side that has outlived them");
        let waiting: BTreeSet<NodeId> = processes.keys().copied().collect();
        ctx.log(format_args!(
            "the processes of {} are dead and their disks know nothing later than view {}: asks them to give way to this side",
            names(&waiting.iter().copied().collect::<Vec<_>>()),
            base.generation
        ));
        // Younger than whatever a start from these disks could be called.
        let lineage = processes.values().copied().chain([base.lineage, self.incarnation]).max().unwrap_or(0) + 1;
        let view = layout::resumed(&base, self.me, lineage, |n| self.failed.contains(&n));
        let ballot = self.next_ballot();
        let message = ViewPrep { ballot, view: Some(view.clone()), base: Some(base), failed: Vec::new() };
        waiting.iter().for_each(|node| self.ask_to_give_way(*node, &message, ctx));
        self.outlive.asked = Some(Asked { view, ballot, processes, waiting, at: ctx.now() });
    }

    fn go_on_alone(&mut self, asked: Asked, ctx: &mut Context<'_>) {
        ctx.probe("qmgr: a side that has outlived all others goes on");
        let nodes: Vec<NodeId> = asked.processes.keys().copied().collect();
        let why = "their processes are dead and their disks know no later view; what they acknowledged since in class replicated is lost";
        ctx.log(format_args!("goes on without {}: {why}", names(&nodes)));
        self.restart.did_without =
            Some((nodes.iter().copied().collect(), format!("went on without {}: {why}", names(&nodes))));
        assert!(
            self.begins_lineage(&asked.view) && self.is_successor(&asked.view),
            "of another view: {:?}",
            asked.view
        );
        self.change = None;
        self.propose(asked.view, ctx);
    }

    /// Somebody's disk gives way: an answer to our question.
    pub(super) fn has_given_way_to_rest(&mut self, from: NodeId, conf: &ViewPrepAnswer) -> bool {
        let is_answer = |a: &&mut Asked| (a.ballot, a.view.generation) == (conf.ballot, conf.generation);
        self.outlive.asked.as_mut().filter(is_answer).is_some_and(|asked| asked.waiting.remove(&from))
    }

    /// It does not. Asked again later.
    pub(super) fn is_refused_by_disk(&mut self, answer: &ViewPrepAnswer, now: u64) -> bool {
        let is_answer = |a: &mut Asked| (a.ballot, a.view.generation) == (answer.ballot, answer.generation);
        let is_refused = self.outlive.asked.take_if(is_answer).is_some();
        if is_refused {
            self.outlive.since = Some(now);
        }
        is_refused
    }

    /// Asked, while it starts, to give way to what is left of the cluster that its disk is of.
    pub(super) fn on_rest_goes_on(
        &mut self,
        from: NodeId,
        ballot: u64,
        base: &View,
        next: View,
        ctx: &mut Context<'_>,
    ) {
        let asker = self.links.incarnation(from);
        let is_full = |v: &View| v.node(from).is_some_and(|n| n.incarnation == asker && n.state() == NodeState::Up);
        let was_full =
            base.node(self.me).is_some_and(|n| n.state() == NodeState::Up && n.incarnation != self.incarnation);
        let is_legal = is_full(base) && is_full(&next) && was_full && next.state(self.me) == NodeState::Down;
        if !is_legal || next.point() <= base.point() || !self.has_looked() {
            return jam!(ctx);
        }
        let answer = ViewPrepAnswer { ballot, generation: next.generation, ..ViewPrepAnswer::default() };
        if let Err(why) = self.may_give_way(base, ctx) {
            self.state(Some(from), &format!("asks this disk to give way, which it does not: {why}"), ctx);
            return self.send(ctx, from, Kind::ViewPrepRef, &answer);
        }
        ctx.probe("qmgr: a disk gives way to those that have outlived it");
        let members: Vec<NodeId> = full(&next).map(ViewNode::node).collect();
        let text = format!("what is on this disk gives way to {}, which have it all in memory", names(&members));
        self.state(Some(from), &text, ctx);
        self.restart.accepted.retain(|v| v.lineage == base.lineage);
        self.keep_giving_way(next.clone());
        self.restart.accepted.push(next);
        self.tell_when_synced(from, Kind::ViewPrepConf, &answer, ctx);
    }

    /// # Errors
    /// For people: why not.
    fn may_give_way(&mut self, base: &View, ctx: &mut Context<'_>) -> Result<(), &'static str> {
        let restart = &self.restart;
        let Some(newest) = restart.view.as_ref().filter(|_| !restart.views_are_damaged) else {
            return Err("its file of views is missing or damaged");
        };
        if newest.point() > base.point() || newest.cluster != base.cluster {
            return Err("it has a later view");
        }
        let later = || restart.accepted.iter().filter(|v| v.point() > base.point());
        if later().any(|v| v.lineage == base.lineage && promotes(base, v)) {
            return Err("it knows that another node may have been promoted since");
        }
        let Some(work) = restart.work.as_ref().filter(|work| work.order.lineage == 0) else { return Ok(()) };
        let is_led = work.founder == self.me || self.is_linked(work.founder);
        if is_led && work.order.without.is_empty() {
            return Err("an operator has the cluster start from the disks");
        }
        // Its next process has restored nothing, and gives way.
        self.stop_to_rejoin(ctx, "what is left of the cluster lives, and goes on with more than the disks have");
        Err("a start from the disks is given up first")
    }
}

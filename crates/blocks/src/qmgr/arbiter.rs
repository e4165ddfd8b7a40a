//! The management nodes as a member sees them, and the election of the arbitrator.
//!
//! The committed view names the arbitrator: a management node, or a SQL node that may arbitrate, *and its identity*. One that has kept in its file whom it fenced has the same
//! identity after a restart; one that has forgotten it is another arbitrator, which says no until a view names it. Every heartbeat tells
//! which arbitrators its sender reaches (the link stands and something came by it in the last [`MGMT_SILENCE_NS`]). When no member reaches
//! the one that is named, the president proposes a view that names another, the one that most members reach, of these a management node
//! before a SQL node. A SQL node gives way to a management node that all members reach: it is a process that comes and goes with its users.
//!
//! Such a view is committed like any other: judged on the view before it, whose arbitrator is asked if exactly half confirms. So a
//! part of the cluster never elects an arbitrator of its own. Why two arbitrators never serve two halves: per generation one view is
//! committed (Paxos); a half that is asked for a yes by the old arbitrator has accepted the view that names the new one, or is
//! fenced by the old one.
//!
//! With no management node in reach of anybody for [`NOBODY_NS`] the president proposes a view that names no arbitrator and a *tie-breaker*,
//! itself: of two halves the one with that member goes on, and the other freezes. It is judged, like any, by the rule of the view before it. So
//! of two nodes that are left alone one may die; which one is a toss, and if it is the tie-breaker, the other keeps its rows and waits.
//! When a management node is back, the next view names it.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    qmgr::{Heartbeat, Incarnation, LinkRep, encode},
    view::View,
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use super::{JOIN_RETRY_NS, Membership, layout};

/// A management node that was not heard for so long is as good as gone: long, for nothing waits for it in the meantime.
pub const MGMT_SILENCE_NS: u64 = 1_000_000_000;
/// Management nodes are asked for a sign of life this often.
const MGMT_BEAT_NS: u64 = JOIN_RETRY_NS;

/// Nobody has reached a management node for so long: longer than one that is restarted by hand at once is away.
const NOBODY_NS: u64 = 100_000_000;

struct Link {
    incarnation: u64,
    heard: u64,
    /// By which views name it, as it says itself: it may outlive its process. 0: not known yet, or it does not arbitrate.
    identity: u64,
}

#[derive(Default)]
pub(super) struct Managers {
    links: BTreeMap<NodeId, Link>,
    /// What each other member reaches, by its newest heartbeat.
    reached: BTreeMap<NodeId, BTreeSet<Incarnation>>,
    last_beat: u64,
    /// Since when no member is known to reach any.
    nobody_since: Option<u64>,
}

impl Managers {
    /// Whom we reach.
    pub(super) fn reached(&self, now: u64) -> Vec<Incarnation> {
        let is_heard = |l: &&Link| l.identity != 0 && now.saturating_sub(l.heard) < MGMT_SILENCE_NS;
        let name = |(n, l): (&NodeId, &Link)| Incarnation::of(*n, l.identity);
        self.links.iter().filter(|(_, l)| is_heard(l)).map(name).collect()
    }
    pub(super) fn down(&mut self, rep: LinkRep) {
        if self.links.get(&rep.node).is_some_and(|l| l.incarnation == rep.incarnation) {
            self.links.remove(&rep.node);
        }
    }
    pub(super) fn heard(&mut self, node: NodeId, identity: u64, now: u64) {
        if let Some(link) = self.links.get_mut(&node) {
            link.heard = link.heard.max(now);
            link.identity = identity;
        }
    }
    /// Our own pause is nobody's silence.
    pub(super) fn forgive(&mut self, time: u64, now: u64) {
        self.links.values_mut().for_each(|l| l.heard = (l.heard + time).min(now));
    }
    pub(super) fn told(&mut self, member: NodeId, reached: Vec<Incarnation>) {
        self.reached.insert(member, reached.into_iter().collect());
    }
    fn note_reach(&mut self, now: u64) {
        if self.reached(now).is_empty() && self.reached.values().all(BTreeSet::is_empty) {
            self.nobody_since.get_or_insert(now);
        } else {
            self.nobody_since = None;
        }
    }
    pub(super) fn members_are(&mut self, view: &View) {
        self.reached.retain(|n, _| view.is_alive(*n));
    }
}

/// The node of an arbitrator, if it may be one.
pub(super) fn node_of(arbitrator: Incarnation) -> Option<NodeId> {
    u16::try_from(arbitrator.node).ok().map(NodeId).filter(|n| n.may_arbitrate())
}

fn arbitrator_of(view: &View) -> Option<NodeId> {
    node_of(Incarnation { node: view.arbitrator, incarnation: view.arbitrator_incarnation })
}

/// For people.
pub(super) fn title(arbitrator: NodeId) -> String {
    if arbitrator.is_mgmt() {
        format!("management node {}", arbitrator.0 - NodeId::MGMT_BASE)
    } else {
        format!("SQL node {}", arbitrator.0 - NodeId::ARBITRATOR_BASE)
    }
}

/// The arbitrator that a first view names.
pub(super) fn first_choice(reached: &[Incarnation]) -> Incarnation {
    reached.iter().min_by_key(|i| i.node).copied().unwrap_or(Incarnation { node: 0, incarnation: 0 })
}

impl Membership {
    pub(super) fn mgmt_of(node: NodeId) -> BlockRef {
        BlockRef::new(node, BlockId::Mgmt, 0)
    }

    pub(super) fn on_mgmt_up(&mut self, rep: LinkRep, ctx: &mut Context<'_>) {
        self.managers.links.insert(rep.node, Link { incarnation: rep.incarnation, heard: ctx.now(), identity: 0 });
        self.register(ctx);
        self.beat_managers(ctx);
    }

    /// To all management nodes that a link stands to.
    pub(super) fn tell_managers<M: prost::Message>(&self, kind: Kind, message: &M, ctx: &mut Context<'_>) {
        self.tell_some_managers(NodeId::may_arbitrate, kind, message, ctx);
    }
    pub(super) fn tell_some_managers<M: prost::Message>(
        &self,
        wanted: fn(NodeId) -> bool,
        kind: Kind,
        message: &M,
        ctx: &mut Context<'_>,
    ) {
        for node in self.managers.links.keys().filter(|n| wanted(**n)) {
            ctx.send(Self::mgmt_of(*node), kind, |b| encode(message, b));
        }
    }

    fn beat_managers(&mut self, ctx: &mut Context<'_>) {
        self.managers.last_beat = ctx.now();
        let beat = Heartbeat { generation: self.generation(), incarnation: self.incarnation, ..Heartbeat::default() };
        self.tell_managers(Kind::HeartbeatRep, &beat, ctx);
    }

    pub(super) fn tick_managers(&mut self, ctx: &mut Context<'_>) {
        if ctx.now().saturating_sub(self.managers.last_beat) >= MGMT_BEAT_NS {
            self.beat_managers(ctx);
        }
        self.managers.note_reach(ctx.now());
    }

    /// The view that names another arbitrator, when nobody reaches the one that `base` names.
    pub(super) fn with_new_arbitrator(&self, base: &View, now: u64) -> Option<View> {
        let current = Incarnation { node: base.arbitrator, incarnation: base.arbitrator_incarnation };
        let mine = self.managers.reached(now);
        let mut by_members: BTreeMap<Incarnation, usize> = mine.iter().map(|m| (*m, 1)).collect();
        for member in self.survivors() {
            // Who has not told yet may reach it.
            for reached in self.managers.reached.get(&member)? {
                *by_members.entry(*reached).or_default() += 1;
            }
        }
        if by_members.contains_key(&current) {
            let all = self.survivors().len() + 1;
            let takes_over = |m: &&Incarnation| node_of(**m).is_some_and(NodeId::is_mgmt) && by_members[*m] == all;
            let gives_way = arbitrator_of(base).is_some_and(NodeId::is_sql_arbitrator);
            let manager = mine.iter().filter(takes_over).min_by_key(|m| m.node).filter(|_| gives_way)?;
            return Some(layout::arbitrated(base, self.me, *manager));
        }
        if by_members.is_empty() {
            let is_long = self.managers.nobody_since.is_some_and(|t| now.saturating_sub(t) > NOBODY_NS);
            let names_somebody = base.arbitrator == 0 && base.tie_breaker != 0;
            return (is_long && !names_somebody).then(|| layout::unarbitrated(base, self.me));
        }
        let choice = mine.into_iter().max_by_key(|m| (by_members[m], std::cmp::Reverse(m.node)))?;
        Some(layout::arbitrated(base, self.me, choice))
    }

    /// The process that the committed view names is there to be asked.
    pub(super) fn reaches_arbitrator(&self, now: u64) -> bool {
        let Some(view) = &self.view else { return false };
        self.managers.reached(now).contains(&self.whom_to_ask(view, now))
    }

    /// The one that decides about the successor of `view`.
    pub(super) fn whom_to_ask(&self, view: &View, now: u64) -> Incarnation {
        let named = Incarnation { node: view.arbitrator, incarnation: view.arbitrator_incarnation };
        if planted(Bug::AnyArbitratorAsked) && !self.managers.reached(now).contains(&named) {
            return first_choice(&self.managers.reached(now));
        }
        named
    }

    /// Where the question about the successor of `view` goes.
    pub(super) fn arbitrator_of(view: &View) -> Option<NodeId> {
        arbitrator_of(view)
    }

    /// The management node that grants a start without all data nodes: the first configured one, so that it is the same for all.
    pub(super) fn start_arbitrator(&self) -> Option<NodeId> {
        let first = self.config.as_ref()?.mgmts.iter().min().copied().unwrap_or(u32::from(NodeId::MGMT_BASE) + 1);
        u16::try_from(first).ok().map(NodeId).filter(|n| n.is_mgmt())
    }

    /// Another one than in the view before.
    pub(super) fn log_arbitrator(&self, before: Option<&View>, view: &View, ctx: &mut Context<'_>) {
        if before.map(|old| old.arbitrator) == Some(view.arbitrator) {
            return;
        }
        match arbitrator_of(view) {
            Some(node) => ctx.log(format_args!("{} arbitrates", title(node))),
            None => ctx.log(format_args!("nobody arbitrates; data node {} breaks a tie", view.tie_breaker)),
        }
    }

    /// Every member's heartbeat carries it, so a change of heart reaches the president within a heartbeat.
    pub(super) fn reconsider_arbitrator(&mut self, ctx: &mut Context<'_>) {
        if self.change.is_none() && self.acting_president() == Some(self.me) {
            jam!(ctx);
            self.drive(ctx);
        }
    }
}

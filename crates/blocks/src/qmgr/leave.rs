//! Leaving in order: a node that is asked to end goes by a view that it agrees to itself, so that no client notices.
//!
//! ```text
//! LeaveOrd (SIGTERM) -> Leaving --LeaveReq, again and again--> the acting president: switchover to a view without this node
//!    ^ another view: asks again    --ViewPrepReq without us--> lease given up on all workers, ViewPrepConf --ViewCommitOrd--> ends
//!                                  --LeaveRef: the last full copy of its group, in memory only--> stays; a second order within INSIST_NS ends it
//!                                  --the last full copy, on disk: EndOrd--> ends when all is on the disks (`ending`)
//!                                  --LEAVE_NS: LeaveReq to all members, that it ends--> ends, as by a crash
//!                                  --a second order--> ends at once, as by a crash
//! ```
//!
//! The view is prepared like any switchover (`switchover`), so nothing is open on this node's chains, and this node's TCs have ended all that
//! they coordinate. The leaver is asked like any member and confirms, so all members of the old view have agreed, no arbitrator is needed, and
//! a proposal that it has accepted is found by whoever takes over. Before it confirms it gives up its lease, its TCs refuse
//! what they hold, and from then on TC and LDM refuse whatever comes: who commits the view may rely on it that this node serves no client any
//! more, and a client hears that it has to go elsewhere rather than lose its link and have to ask what became of its statement. The view names the next president if the leaver is president.
//!
//! Who has agreed to its leave has accepted a view without itself, like who gives way (`freeze`). If those that were to stay are lost before the
//! view is committed, it freezes and proposes nothing: they may have gone on without it, and its rows may be the only ones left.
//!
//! Where data is in memory only, a node goes only if another full member of its group stays: the president says no otherwise, and the node
//! stays, with the reason in its log. A frozen node stays, too, unless all that it has is on the disks. The president waits until those that stay have been there for
//! 0.8 s, so that they can tell a client what became of a statement that it sent to the leaver at the last moment (`ldm/outcome`).

use std::collections::BTreeMap;

use apus_kernel::Context;
use apus_signal::{
    BlockId, BlockRef, Kind,
    qmgr::Leave as Message,
    view::{NodeState, View, ViewNode},
};
use apus_types::NodeId;

use super::{Membership, Phase, layout};

/// Who has not left after this ends anyway, in nanoseconds, while another full member of its group is there.
pub const LEAVE_NS: u64 = 6_000_000_000;
/// A second order so soon after one that was refused is meant.
pub const INSIST_NS: u64 = 60_000_000_000;
/// Who has left stays for so long that the others hear of it.
const LINGER_NS: u64 = 5_000_000;
/// Clients are refused for so long.
const REFUSE_NS: u64 = 1_000_000_000;
/// The president is asked this often.
const ASK_NS: u64 = 50_000_000;
/// Who has not asked for so long has changed its mind, or is gone.
const FORGET_NS: u64 = 500_000_000;

#[derive(Default, Debug)]
pub(super) struct Leave {
    own: Option<Own>,
    /// When the last order was refused; 0: none was.
    refused_at: u64,
    /// As acting president: who wants to go, the incarnation, and when it asked last.
    others: BTreeMap<NodeId, (u64, u64)>,
    /// Processes (their incarnations) that said that they end out of order; the last one of each node.
    out_of_order: BTreeMap<NodeId, u64>,
    /// The generation of the view without this node, and when it came.
    left: Option<(u64, u64)>,
    /// Asked of the workers when the leave was agreed to, and how many have not answered.
    ping: (u64, u8),
    /// 0: not every worker refuses yet.
    refuses_until: u64,
}

#[derive(Debug)]
struct Own {
    /// By whoever runs the process.
    ordered: bool,
    deadline: u64,
    asked: u64,
    /// A view without this node was accepted here.
    agreed: bool,
    /// When the others were told that it ends out of order; 0: they were not.
    told: u64,
}

impl Leave {
    /// As acting president: somebody wants to go.
    pub fn is_asked(&self) -> bool {
        !self.others.is_empty()
    }
    pub fn is_wanted(&self) -> bool {
        self.own.is_some()
    }
    /// By whoever runs the process.
    pub fn is_ordered(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.ordered)
    }
    pub fn is_agreed(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.agreed)
    }
    /// Marks those that a view is without because they were told to end: no statement did it, and clients count none of them against one.
    pub fn mark(&self, view: &mut View) {
        for node in view.nodes.iter_mut().filter(|n| n.state() == NodeState::Down) {
            node.left |= self.out_of_order.get(&node.node()) == Some(&node.incarnation);
        }
    }
    /// A view with this node: what it agreed to is not to be.
    pub fn view_is_new(&mut self) {
        if let Some(own) = &mut self.own {
            (own.agreed, own.asked) = (false, 0);
        }
    }
}

impl Membership {
    /// The process was told to end.
    pub(super) fn on_leave_ord(&mut self, ctx: &mut Context<'_>) {
        let is_meant = self.leave.refused_at > 0 && ctx.now() < self.leave.refused_at + INSIST_NS;
        if self.phase != Phase::Member {
            self.end_leave("asked to end, and is no member", ctx);
        } else if self.leave.own.as_ref().is_some_and(|own| own.ordered) || is_meant {
            self.end_leave("asked to end for the second time, and ends at once", ctx);
        } else if self.ending.is_saved() {
            self.end_leave("asked to end; everything is on disk, and nobody was served since", ctx);
        } else if let Some(own) = &mut self.leave.own {
            own.ordered = true; // it was about to leave by itself
        } else if self.freeze.is_frozen() {
            self.refuse_to_end(&format!("it is frozen and may hold the last rows: {}", self.account()), ctx);
        } else {
            ctx.log(format_args!("asked to end: leaves the cluster"));
            self.wish_to_leave(true, ctx);
        }
    }

    /// `ordered`: by whoever runs the process, not by itself.
    pub(super) fn wish_to_leave(&mut self, ordered: bool, ctx: &mut Context<'_>) {
        self.leave.own = Some(Own { ordered, deadline: ctx.now() + LEAVE_NS, asked: 0, agreed: false, told: 0 });
        self.tick_leave(ctx);
    }

    pub(super) fn refuse_to_end(&mut self, why: &str, ctx: &mut Context<'_>) {
        if self.leave.own.take_if(|own| !own.ordered).is_some() {
            ctx.log(format_args!("does not leave: {why}"));
            return;
        }
        ctx.probe("qmgr: an order to end is refused");
        let what = if self.restart.has_disk { "What was committed since the last global checkpoint" } else { "Data" };
        ctx.log(format_args!(
            "does not end: {why}. {what} is in memory only, and would be lost. A second order within {} s ends this process",
            INSIST_NS / 1_000_000_000
        ));
        self.leave.own = None;
        self.leave.refused_at = ctx.now();
    }

    pub(super) fn tick_leave(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.leave.others.retain(|_, (_, asked)| now < *asked + FORGET_NS);
        let Some(own) = self.leave.own.as_mut() else { return };
        let own_ordered = own.ordered;
        if (own.agreed && self.freeze.is_frozen()) || self.ending.has_begun() {
            return; // its rows may be the last; or they are being saved
        }
        if now >= own.deadline {
            let is_held = self.view.as_ref().is_some_and(|base| self.others_hold_group_of(base, self.me));
            return match is_held && own_ordered {
                true => self.end_out_of_order(ctx),
                false if is_held => self.refuse_to_end("it could not in time", ctx),
                false => self.refuse_to_end("it holds the last full copy of its node group", ctx),
            };
        }
        if own.agreed || now < own.asked + ASK_NS {
            return;
        }
        own.asked = now;
        let Some(president) = self.acting_president() else { return };
        let wish = Message { incarnation: self.incarnation, ordered: own_ordered, ..Message::default() };
        self.send(ctx, president, Kind::LeaveReq, &wish);
    }

    /// The time is over. The others are told, or clients would take its end for that of a node which a statement has ended.
    fn end_out_of_order(&mut self, ctx: &mut Context<'_>) {
        let (now, incarnation) = (ctx.now(), self.incarnation);
        let Some(own) = &mut self.leave.own else { return };
        if own.told > 0 {
            if now > own.told + LINGER_NS {
                self.end_leave("could not leave in order in time, and ends", ctx);
            }
            return;
        }
        own.told = now;
        let others: Vec<NodeId> =
            self.view.iter().flat_map(View::living).map(ViewNode::node).filter(|n| *n != self.me).collect();
        for node in others {
            self.send(ctx, node, Kind::LeaveReq, &Message { incarnation, ends: true, ..Message::default() });
        }
    }

    pub(super) fn on_leave_req(&mut self, from: NodeId, wish: &Message, ctx: &mut Context<'_>) {
        let is_member = |v: &&View| v.node(from).is_some_and(|n| n.incarnation == wish.incarnation && v.is_alive(from));
        let Some(base) = self.view.as_ref().filter(is_member) else { return };
        if wish.ends {
            ctx.probe("qmgr: a member ends out of order, as it was told to");
            self.leave.out_of_order.insert(from, wish.incarnation);
            return;
        }
        if self.acting_president() != Some(self.me) {
            return; // it asks again, and will know by then whom
        }
        self.leave.others.insert(from, (wish.incarnation, ctx.now()));
        if self.without_leaver(base, from).is_none() {
            let is_last = !self.others_hold_group_of(base, from);
            self.leave.others.remove(&from);
            if wish.ordered && is_last && self.restart.has_disk && !self.freeze.is_frozen() {
                return self.depart(ctx);
            }
            let reason = "it holds the last full copy of its node group".to_owned();
            let refusal = Message { incarnation: wish.incarnation, reason, ..Message::default() };
            self.send(ctx, from, Kind::LeaveRef, &refusal);
        }
    }

    pub(super) fn on_leave_ref(&mut self, refusal: &Message, ctx: &mut Context<'_>) {
        if self.leave.is_wanted() && !self.leave.is_agreed() && refusal.incarnation == self.incarnation {
            self.refuse_to_end(&refusal.reason, ctx);
        }
    }

    /// Who may go next, and the view without it.
    pub(super) fn next_leave(&self) -> Option<(NodeId, View)> {
        let base = self.view.as_ref()?;
        // One that has left by the committed view, or is back as another process, still stands in the list for a moment.
        let is_there = |leaver: NodeId, incarnation: u64| {
            base.is_alive(leaver) && base.node(leaver).is_some_and(|n| n.incarnation == incarnation)
        };
        let mut there = self.leave.others.iter().filter(|(leaver, wish)| is_there(**leaver, wish.0));
        there.find_map(|(&leaver, _)| Some((leaver, self.without_leaver(base, leaver)?)))
    }

    /// Full members that stay if `leaver` goes.
    fn stayers<'a>(&'a self, base: &'a View, leaver: NodeId) -> impl Iterator<Item = &'a ViewNode> {
        // The wish of a process that has left stands in the list for a moment, while the next one of that node may be a full member already.
        let goes = |n: &ViewNode| self.leave.others.get(&n.node()).is_some_and(|wish| wish.0 == n.incarnation);
        let stays = move |n: &ViewNode| n.node() != leaver && !self.failed.contains(&n.node()) && !goes(n);
        base.nodes.iter().filter(move |n| n.state() == NodeState::Up && stays(n))
    }

    fn others_hold_group_of(&self, base: &View, leaver: NodeId) -> bool {
        let group = base.node(leaver).map(|n| n.group);
        self.stayers(base, leaver).any(|n| Some(n.group) == group)
    }

    /// It has accepted a view without itself, and of some group of that view nobody is there.
    pub(super) fn is_left_alone(&self) -> bool {
        self.leave.is_agreed() && !self.failed.is_empty() && !self.holds_every_group(&self.survivors())
    }

    fn without_leaver(&self, base: &View, leaver: NodeId) -> Option<View> {
        if !self.others_hold_group_of(base, leaver) {
            return None;
        }
        let full = || self.stayers(base, leaver);
        let president = full().min_by_key(|n| n.join_order)?.node();
        let president = if leaver == self.me { president } else { self.me };
        let mut view = layout::without(base, president, |n| n == leaver);
        view.nodes.iter_mut().filter(|n| n.node() == leaver).for_each(|n| n.left = true);
        let is_led = view.president == u32::from(president.0) && view.is_alive(president);
        assert!(is_led && !view.is_alive(leaver), "{leaver} leaves, and {president} is to lead: {view:?}");
        let is_served = |c: &u32| {
            let primary = apus_types::Chain(*c).primary();
            primary.is_some_and(|n| view.state(n) == NodeState::Up)
        };
        view.chains.iter().all(is_served).then_some(view)
    }

    /// A view without this node is proposed or accepted here: no client is answered any more but with a refusal, by which it goes to another
    /// node. What was held is refused at once.
    pub(super) fn agree_to_leave(&mut self, ctx: &mut Context<'_>) {
        let Some(own) = &mut self.leave.own else { return };
        own.agreed = true;
        self.leave.refuses_until = 0;
        self.heartbeats.void_lease(ctx.now());
        self.renew_lease(ctx);
        for instance in 0..self.instances {
            ctx.send(BlockRef::new(self.me, BlockId::Tc, instance), Kind::LeaveOrd, |_| {});
            ctx.send(BlockRef::new(self.me, BlockId::Ldm, instance), Kind::LeaveOrd, |_| {});
        }
        self.pings += 1;
        self.leave.ping = (self.pings, ctx.ping_workers(self.pings));
    }

    /// Every worker refuses by now: clients are read again.
    pub(super) fn on_leave_ping(&mut self, token: u64, ctx: &mut Context<'_>) {
        if self.leave.ping.0 == token && self.leave.ping.1 > 0 {
            self.leave.ping.1 -= 1;
            if self.leave.ping.1 == 0 && self.refuses_until().is_some() {
                self.leave.refuses_until = ctx.now() + REFUSE_NS;
                self.renew_lease(ctx);
            }
        }
    }

    /// The view without this node is committed. Its process ends a little later: the others are to hear of the view before they see links close.
    pub(super) fn left(&mut self, generation: u64, ctx: &mut Context<'_>) {
        self.phase = Phase::Stopped;
        self.leave.left = Some((generation, ctx.now()));
        self.renew_lease(ctx);
    }

    /// Of a node that has agreed: until when its workers may read from clients, to refuse them.
    pub(super) fn refuses_until(&self) -> Option<u64> {
        (self.leave.is_agreed() || self.leave.left.is_some()).then_some(self.leave.refuses_until)
    }

    pub(super) fn tick_left(&mut self, ctx: &mut Context<'_>) {
        if let Some((generation, _)) = self.leave.left.take_if(|left| ctx.now() > left.1 + LINGER_NS) {
            self.end_leave(&format!("has left the cluster in generation {generation}"), ctx);
        }
    }

    pub(super) fn end_leave(&mut self, why: &str, ctx: &mut Context<'_>) {
        self.phase = Phase::Stopped;
        self.renew_lease(ctx);
        ctx.log(format_args!("{why}"));
        ctx.stop_node(why);
    }
}

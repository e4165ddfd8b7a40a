//! TC's part of a switchover ([`apus_signal::switchover`]): no transaction of this coordinator holds anything on the chains that are to be
//! turned, and none will.
//!
//! A transaction that has nothing yet on any of these chains is *held* when it first comes to one: the part of its batch waits in its
//! record, as one that was refused for its view does, and is sent when the new view is here (by the new chain) or when the attempt is
//! over (by the old one). A transaction that has something there goes on undisturbed, and is waited for. Locks of reads exist at the primary
//! alone and are not moved, so nothing less will do.
//!
//! Which chains? All that this instance number has with a node of one that changes: a part may name its chain by an older view.
//!
//! The wait ends after [`WAIT_NS`], and does not begin if a transaction there is older than that: somebody thinks, and everybody else
//! would wait in vain. One that is held may hold rows elsewhere for which one that is waited for waits; that ends by the same limit.
//!
//! Once confirmed, only a new view or the president's `SwitchEndOrd` ends the hold, because the president may have proposed the view.
//!
//! Limits: what is held is the one batch of each open transaction ([`super::TRANSACTIONS_MAX`]).

use apus_kernel::Context;
use apus_signal::{
    BlockRef, Kind,
    qmgr::encode,
    switchover::{Switch, SwitchAnswer},
};
use apus_types::{
    Chain, ErrorCode, PartitionId, TransId,
    planted::{Bug, planted},
};

use super::{
    TransactionCoordinator,
    record::{HELD, Participant, State, Trans},
};

/// How long transactions are waited for, and others held meanwhile, in nanoseconds.
pub const WAIT_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Switchover {
    number: u64,
    president: BlockRef,
    /// This node is to leave: nothing may be open here at all.
    all: bool,
    /// Instances and chains that nobody new may use.
    turned: Vec<(u8, Chain)>,
    /// Who is waited for; `None` until the take-over of this view is over. Finished ones at the end are taken off.
    open: Option<Vec<(u32, TransId)>>,
    deadline: u64,
    confirmed: bool,
}

impl Switchover {
    fn concerns(&self, participant: &Participant) -> bool {
        let is_turned = |&(instance, chain): &(u8, Chain)| {
            instance == participant.instance && chain.nodes().any(|n| participant.chain.contains(n))
        };
        self.all || self.turned.iter().any(is_turned)
    }
    /// The transaction may hold something there.
    fn is_used_by(&self, trans: &Trans) -> bool {
        trans.participants.iter().any(|p| p.sent && self.concerns(p) && (p.writes || !planted(Bug::SwitchForgetsLocks)))
    }
}

fn is_held(trans: &Trans) -> bool {
    trans.subs().iter().any(|s| !s.done && s.retry_at == Some(HELD))
}

impl TransactionCoordinator {
    pub(super) fn on_switch_req(&mut self, from: BlockRef, req: &Switch, ctx: &mut Context<'_>) {
        if req.generation != self.view.generation || u32::from(from.node.0) != self.view.president {
            return;
        }
        let partitions = (0..self.view.partition_count()).map(PartitionId);
        let changed = partitions.zip(&req.chains).filter(|(p, chain)| self.view.chain(*p).0 != **chain);
        let mut turned: Vec<(u8, Chain)> = changed.map(|(p, _)| (self.view.instance(p), self.view.chain(p))).collect();
        turned.sort_unstable_by_key(|t| (t.0, t.1.0));
        turned.dedup();
        let deadline = ctx.now() + WAIT_NS;
        let (number, president) = (req.number, from);
        let all = req.leaver == u32::from(self.me.node.0);
        let switch = Switchover { number, president, all, turned, open: None, deadline, confirmed: false };
        let limit = ctx.now().saturating_sub(WAIT_NS);
        let slow = self.transactions.iter().find(|(_, t)| t.since < limit && switch.is_used_by(t));
        let reason = slow.map(|(_, t)| format!("transaction {} is open there for long", t.id));
        self.release_held(ctx); // of an attempt whose end we have not heard
        match reason {
            Some(reason) => Self::refuse_switch(&switch, self.view.generation, reason, ctx),
            None => self.switch = Some(switch),
        }
    }

    fn refuse_switch(switch: &Switchover, generation: u64, reason: String, ctx: &mut Context<'_>) {
        ctx.probe("tc: switchover refused for an open transaction");
        let answer = SwitchAnswer { generation, number: switch.number, reason };
        ctx.send(switch.president, Kind::SwitchRef, |b| encode(&answer, b));
    }

    /// Keeps a part back that would be the first of its transaction on chains that are to be turned.
    pub(super) fn hold_for_switch(&mut self, at: u32, sub: usize) -> bool {
        let Some(switch) = &self.switch else { return false };
        let trans = self.transactions.get_mut(at);
        let participant = trans.request.subs[sub].participant;
        if !switch.concerns(&trans.participants[participant])
            || switch.is_used_by(trans)
            || planted(Bug::SwitchHoldsNobody)
        {
            return false;
        }
        trans.request.subs[sub].retry_at = Some(HELD);
        true
    }

    /// Confirms once nobody is left.
    pub(super) fn try_switch(&mut self, ctx: &mut Context<'_>) {
        let Some(switch) = self.switch.as_mut().filter(|s| !s.confirmed) else { return };
        if self.take_over.is_some() {
            return; // others' transactions may be on their way to us
        }
        if switch.open.is_none() {
            let used = self.transactions.iter().filter(|(_, t)| switch.is_used_by(t));
            let used: Vec<(u32, TransId)> = used.map(|(at, t)| (at, t.id)).collect();
            switch.open = Some(used);
        }
        let open = switch.open.get_or_insert_default();
        while open.pop_if(|&mut (at, id)| !self.transactions.is_open(at, id)).is_some() {}
        if open.is_empty() {
            switch.confirmed = true;
            let answer =
                SwitchAnswer { generation: self.view.generation, number: switch.number, reason: String::new() };
            ctx.send(switch.president, Kind::SwitchConf, |b| encode(&answer, b));
        }
    }

    pub(super) fn tick_switch(&mut self, ctx: &mut Context<'_>) {
        let Some(switch) = self.switch.take_if(|s| !s.confirmed && ctx.now() >= s.deadline) else { return };
        let open = switch.open.as_ref().map_or(0, Vec::len);
        let reason = format!("{open} transactions are open there");
        Self::refuse_switch(&switch, self.view.generation, reason, ctx);
        self.release_held(ctx);
    }

    pub(super) fn on_switch_end(&mut self, end: &SwitchAnswer, ctx: &mut Context<'_>) {
        let is_ours = self.switch.as_ref().is_some_and(|s| s.number == end.number);
        if is_ours && end.generation == self.view.generation {
            self.release_held(ctx);
        }
    }

    /// Sends what was held, by the chains of the present view.
    fn release_held(&mut self, ctx: &mut Context<'_>) {
        self.switch = None;
        let held: Vec<u32> = self.transactions.iter().filter(|(_, t)| is_held(t)).map(|(at, _)| at).collect();
        for at in held {
            self.carry_over(at, ctx);
            if self.transactions.is_used(at) && is_held(self.transactions.get(at)) {
                self.resend_refused(at, HELD, ctx);
            }
        }
    }

    /// The node has agreed to a view without it: nothing is open here but what was held, and that begins anew at another node.
    pub(super) fn on_left(&mut self, ctx: &mut Context<'_>) {
        self.has_left = true;
        self.switch = None;
        let all: Vec<u32> = self.transactions.iter().map(|(at, _)| at).collect();
        for at in all {
            self.carry_over(at, ctx);
            if !self.transactions.is_used(at) {
                continue;
            }
            let trans = self.transactions.get_mut(at);
            assert!(
                trans.participants.iter().all(|p| !p.sent),
                "transaction {} is open where a node has left",
                trans.id
            );
            trans.state = State::Active;
            self.start_abort(at, ErrorCode::NodeStarting, ctx);
        }
    }

    /// What was confirmed holds.
    pub(super) fn verify_switch(&self) -> Result<(), String> {
        let Some(switch) = &self.switch else {
            let held = self.transactions.iter().find(|(_, t)| is_held(t));
            return held.map_or(Ok(()), |(_, t)| Err(format!("transaction {} is held for no switchover", t.id)));
        };
        if !switch.confirmed {
            return Ok(());
        }
        match self.transactions.iter().find(|(_, t)| switch.is_used_by(t)) {
            Some((_, t)) => {
                Err(format!("switchover {} confirmed, and transaction {} is open there", switch.number, t.id))
            }
            None => Ok(()),
        }
    }
}

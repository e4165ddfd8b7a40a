//! New views: transactions that used a dead node, and the take-over of those a dead node coordinated. The protocol is described in
//! [`apus_signal::takeover`].
//!
//! **Slices.** A node may coordinate [`super::TRANSACTIONS_MAX`] transactions, and take over as many, so neither is done in one go. A record
//! knows the view in which it was looked at last, and whoever needs it is given it as the present view has it
//! ([`TransactionCoordinator::find`]); the others follow in slices, one per round of the worker. When all are done this instance reports its
//! end, and when all instances have, what was reported is taken over in slices as well. Until then no epoch is drained and no primary is
//! moved. A view that comes meanwhile begins anew: what was reported and not yet taken over is reported again by whoever has it.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    takeover::{TakeOverEndRep, TakeOverTransRep},
    view::View,
};
use apus_types::{
    Chain, ErrorCode, NodeId, TransId,
    limits::{BATCH_OPS_MAX, PARTITIONS_MAX},
    planted::{Bug, planted},
};

use super::{
    TransactionCoordinator,
    batch::Scratch,
    record::{State, Sub},
};
use crate::ldm::{SLICE_ROWS, departed, is_short, living_in_order, taker};

/// Most steps of a slice; it ends with the transaction that exceeds them. A step is a participant or a report of it, or an operation that is sent
/// again.
pub const SLICE_STEPS_MAX: usize = SLICE_ROWS as usize;
/// Records looked at in a slice for which nothing is to be done.
const LOOKED_MAX: u32 = 16 << 10;
/// What a step may cost at worst: a signal, a change of the record.
const STEP_NS_MAX: u64 = 8_000;
const LOOK_NS_MAX: u64 = 200;
const _: () = assert!(is_short(SLICE_STEPS_MAX + PARTITIONS_MAX as usize + BATCH_OPS_MAX, STEP_NS_MAX));
const _: () = assert!(is_short(LOOKED_MAX as usize, LOOK_NS_MAX));

/// What one view asks for.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub generation: u64,
    /// Instances of LDM and TC that have not reported their end.
    missing: BTreeSet<BlockRef>,
    /// Records from this place on that were there when the view came are still to be looked at; `None`: all have been.
    looked: Option<std::ops::Range<u32>>,
    /// By transaction, chain and instance of the LDM, and in the order in which they came.
    reports: BTreeMap<(TransId, Chain, u8, u64), TakeOverTransRep>,
    came: u64,
}

impl TransactionCoordinator {
    pub(super) fn on_view_ord(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let view = View::from_bytes(body)?;
        if view.generation <= self.view.generation {
            return Ok(());
        }
        self.durability_is(&view);
        let old = std::mem::replace(&mut self.view, view);
        if old.generation == 0 {
            self.transactions.seed(ctx.random());
            self.scratch = Scratch::new(ctx.random());
        }
        self.has_left = false;
        self.switch = None; // what was held is sent below, where the view says
        for node in departed(&old, &self.view).collect::<Vec<NodeId>>() {
            self.left_at[usize::from(node.0)] = self.view.generation;
        }
        if self.view.settles_after(&old) {
            // Sides met, and whatever was on its way between them may be lost. What is open here is left to the takers, as if this coordinator had
            // died; clients lose their links, by which they know that they have to ask.
            ctx.probe("tc: all that was open is left to the take-over");
            self.left_at.fill(self.view.settles);
            for link in self.clients.links() {
                ctx.close_link(link);
            }
        }
        // A round of take-over in every view: another node may have learned of a failure in this one only. Ends come from every LDM
        // instance and, because an earlier round may be under way, from every TC instance.
        let of_node = |node| {
            let instances = 0..self.view.instances as u8;
            instances.flat_map(move |i| [BlockId::Ldm, BlockId::Tc].map(|block| BlockRef::new(node, block, i)))
        };
        let missing = living_in_order(&self.view).flat_map(of_node).collect();
        self.take_over = Some(TakeOver {
            generation: self.view.generation,
            missing,
            looked: Some(0..self.transactions.places()),
            reports: BTreeMap::new(),
            came: 0,
        });
        self.drop_questions(ctx);
        self.continue_take_over(ctx);
        std::mem::take(&mut self.deferred).replay(self, ctx);
        Ok(())
    }

    /// The open transaction with this id, as the present view has it.
    #[inline]
    pub(super) fn find(&mut self, id: TransId, ctx: &mut Context<'_>) -> Option<u32> {
        let at = self.transactions.find(id)?;
        if self.transactions.get(at).view == self.view.generation {
            return Some(at);
        }
        self.carry_over(at, ctx);
        self.transactions.find(id)
    }

    /// Does for one record what the views since it was looked at last mean for it. It may have ended by that. Returns what it took.
    pub(super) fn carry_over(&mut self, at: u32, ctx: &mut Context<'_>) -> usize {
        if !self.transactions.is_used(at) {
            return 0;
        }
        let generation = self.view.generation;
        let trans = self.transactions.get_mut(at);
        let since = std::mem::replace(&mut trans.view, generation);
        assert!(since <= generation, "{} is of view {since}, and this is {generation}", trans.id);
        if since == generation {
            return 0;
        }
        let (id, steps) = (trans.id, trans.participants.len());
        if trans.taken_over {
            self.hand_over(at, ctx);
            return steps;
        }
        if self.view.settles > since {
            trans.request.outstanding = 0; // whoever answers for a part is not heard any more
            self.transactions.remove(at);
            return steps;
        }
        let left_at = &self.left_at;
        let is_hit = trans.participants.iter().any(|p| p.chain.nodes().any(|n| left_at[usize::from(n.0)] > since));
        if is_hit {
            self.survive(at, since, ctx);
        }
        if !self.transactions.is_open(at, id) {
            return steps;
        }
        let is_refused = |s: &&Sub| !s.done && (s.retry_at.is_some() || planted(Bug::ExecutedTwice));
        let refused: usize =
            self.transactions.get(at).subs().iter().filter(is_refused).map(|s| usize::from(s.count) + 1).sum();
        if refused > 0 {
            self.resend_refused(at, u64::MAX, ctx);
        }
        refused + if is_hit { steps } else { 0 }
    }

    /// The next slice.
    pub(super) fn continue_take_over(&mut self, ctx: &mut Context<'_>) {
        let most = self.slices.rows as usize;
        let mut steps = 0;
        let mut places = self.take_over.as_mut().and_then(|t| t.looked.take());
        if let Some(rest) = &mut places {
            for at in rest.by_ref().take(LOOKED_MAX as usize) {
                steps += self.carry_over(at, ctx);
                if steps >= most {
                    break;
                }
            }
            if rest.start >= rest.end {
                places = None;
                let is_missing = self.take_over.as_ref().is_some_and(|t| t.missing.contains(&self.me));
                assert!(is_missing, "this instance has reported its end of {} already", self.view.generation);
                self.report_end(ctx);
            }
        }
        ctx.spend(steps, STEP_NS_MAX);
        let Some(take_over) = self.take_over.as_mut() else { return };
        take_over.looked = places;
        if take_over.looked.is_none() {
            if !take_over.missing.is_empty() {
                return; // goes on with the last of them
            }
            let mut later = Vec::new();
            while steps < most
                && let Some(reports) = self.take_over.as_mut().and_then(TakeOver::next)
            {
                steps += reports.len();
                ctx.spend(reports.len(), STEP_NS_MAX);
                if self.is_free_to_take_over(&reports, ctx) {
                    self.take_over_one(&reports, ctx);
                } else {
                    later.extend(reports);
                }
            }
            later.iter().for_each(|rep| self.on_take_over_trans(rep));
            if self.take_over.as_ref().is_none_or(|t| t.reports.is_empty()) {
                self.take_over = None;
                return;
            }
        }
        if !std::mem::replace(&mut self.continuing, true) {
            ctx.probe("tc: a take-over goes on in the next slice");
            ctx.send_delayed(self.slices.pause_ns, Kind::TcContinueOrd, |_| {});
        }
    }

    /// A take-over begins anew with each failure, perhaps at another taker. That a transaction was found committed must not be
    /// lost with the replica that had it: this taker tells the next one.
    fn hand_over(&mut self, at: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get(at);
        assert!(trans.client.is_none(), "{} is taken over and has a client, {:?}", trans.id, trans.client);
        let is_ours = matches!(trans.state, State::OnePass | State::RollingBack);
        assert!(!is_ours, "{} is taken over and is {:?}", trans.id, trans.state);
        ctx.probe("tc: take-over begins anew");
        if trans.state == State::Committing
            && let Some(next) = taker(&self.view, trans.id)
        {
            ctx.probe("tc: take-over handed on after its commit");
            for p in &trans.participants {
                let rep = TakeOverTransRep {
                    generation: self.view.generation,
                    trans: trans.id,
                    chain: p.chain,
                    instance: p.instance,
                    committed: true,
                    epoch: trans.epoch,
                };
                ctx.send(next, Kind::TakeOverTransRep, |out| rep.encode(out));
            }
        }
        self.transactions.remove(at);
    }

    fn report_end(&self, ctx: &mut Context<'_>) {
        let end = TakeOverEndRep { generation: self.view.generation };
        for node in living_in_order(&self.view) {
            for instance in 0..self.view.instances as u8 {
                ctx.send(BlockRef::new(node, BlockId::Tc, instance), Kind::TakeOverEndRep, |out| end.encode(out));
            }
        }
    }

    pub(super) fn on_take_over_trans(&mut self, rep: &TakeOverTransRep) {
        if let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == rep.generation) {
            take_over.came += 1;
            take_over.reports.insert((rep.trans, rep.chain, rep.instance, take_over.came), *rep);
        }
    }

    pub(super) fn on_take_over_end(&mut self, from: BlockRef, generation: u64, ctx: &mut Context<'_>) {
        let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == generation) else { return };
        assert!(take_over.missing.remove(&from), "{from:?} ends the take-over of {generation} twice");
        if take_over.missing.is_empty() {
            assert!(take_over.looked.is_none(), "the take-over of {generation} is over before our own end");
            self.continue_take_over(ctx);
        }
    }

    /// A take-over that is open keeps every epoch open: says who has not reported what it knows. Own records are looked at in slices, and
    /// a transaction of a client that has to end first is aborted as any other; of these nobody else is to be named.
    #[cold]
    pub(super) fn name_late_take_over(&self, take_over: &TakeOver, ctx: &mut Context<'_>) {
        let generation = take_over.generation;
        match take_over.missing.iter().find(|at| **at != self.me).filter(|_| take_over.looked.is_none()) {
            Some(late) => {
                let what = format_args!("the take-over after view {generation} at {:?}", self.me);
                self.patience.report(self.me, what, late.node, ctx);
            }
            None => ctx.log(format_args!(
                "an epoch does not end: the take-over after view {generation} goes on, {} reports are left",
                take_over.reports.len()
            )),
        }
    }

    /// A client of ours may have given the same id to a transaction here: that one ends first.
    fn is_free_to_take_over(&mut self, reports: &[TakeOverTransRep], ctx: &mut Context<'_>) -> bool {
        let Some(at) = reports.first().and_then(|rep| self.find(rep.trans, ctx)) else { return true };
        let trans = self.transactions.get(at);
        if trans.taken_over {
            return true;
        }
        ctx.probe("tc: a take-over waits for another transaction with its id");
        if trans.may_abort() {
            self.start_abort(at, ErrorCode::TransactionIdUsed, ctx);
        }
        false
    }

    /// Committed on any replica: commit on all. Otherwise the client was told nothing: abort.
    fn take_over_one(&mut self, reports: &[TakeOverTransRep], ctx: &mut Context<'_>) {
        jam!(ctx);
        let Some(id) = reports.first().map(|rep| rep.trans) else { return };
        self.counters.taken_over += 1;
        let at = match self.find(id, ctx) {
            Some(at) => at,
            None => self.transactions.create(id, None, self.view.generation, ctx.now()),
        };
        self.transactions.forget_client(at);
        let trans = self.transactions.get_mut(at);
        trans.taken_over = true;
        trans.state = State::Active;
        trans.participants.clear();
        for rep in reports {
            let i = trans.participant(rep.chain, rep.instance);
            (trans.participants[i].writes, trans.participants[i].sent) = (true, true);
        }
        let committed =
            |rep: &&TakeOverTransRep| (rep.committed || planted(Bug::TakeOverCommits)) && !planted(Bug::TakeOverAborts);
        match reports.iter().find(committed) {
            Some(rep) => {
                trans.epoch = rep.epoch;
                let same = reports.iter().all(|r| !r.committed || r.epoch == rep.epoch);
                assert!(same, "transaction {id} was committed in different epochs: {reports:?}");
                ctx.probe("tc: take-over commits");
                self.start_commit(at, ctx);
            }
            None => {
                ctx.probe("tc: take-over aborts");
                self.start_abort(at, ErrorCode::NodeFailed, ctx);
            }
        }
    }
}

impl TakeOver {
    /// All that was reported of the next transaction.
    fn next(&mut self) -> Option<Vec<TakeOverTransRep>> {
        let ((id, ..), first) = self.reports.pop_first()?;
        let mut all = vec![first];
        while let Some(entry) = self.reports.first_entry().filter(|entry| entry.key().0 == id) {
            all.push(entry.remove());
        }
        Some(all)
    }
}

//! The president's side of epochs: one round after another.
//!
//! ```text
//! Waiting --time, or somebody waits for an epoch--> Running: EpochOrd to all members --EpochDrainedRep of each--> Waiting
//! ```
//!
//! A round raises the epoch to `e + 1` and is over when every member has drained `e`; then `e` is complete, which the next round announces.
//! A new view ends the round under way and begins another, whoever is president: what a dead node had under way is known to its takers
//! by the time they report in the new view. Complete epochs never go back, because a round of a later president begins above whatever
//! this node has reported as drained.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::{Drained, EpochFloor, EpochOrd},
};
use apus_types::{
    Epoch, NodeId,
    planted::{Bug, planted},
};

use super::{Distribution, EPOCH_NS, HURRY_NS, RESEND_NS};

#[derive(Debug, Default)]
pub(super) struct Rounds {
    round: u64,
    /// Members that have not reported in the round under way.
    missing: Vec<NodeId>,
    epoch: Epoch,
    started: u64,
    sent: u64,
    /// Least of what the members reported in this round.
    oldest: Option<Epoch>,
    short_of_memory: bool,
    pub complete: Epoch,
    pub horizon: Epoch,
    /// A round has ended in this view: nobody alive knows an epoch above our own.
    settled: bool,
    /// As last announced, and the epoch that somebody waits for.
    announced: Epoch,
    wanted: Epoch,
    /// Questions to be answered when settled.
    questions: Vec<(BlockRef, EpochFloor)>,
    timer: bool,
}

impl Distribution {
    fn presides(&self) -> bool {
        self.president() == Some(self.me)
    }

    /// A new view.
    pub(super) fn begin_rounds(&mut self, ctx: &mut Context<'_>) {
        let rounds = &mut self.rounds;
        rounds.round = 0;
        rounds.missing.clear();
        rounds.settled = false;
        rounds.wanted = Epoch(0);
        rounds.questions.clear();
        rounds.complete = rounds.complete.max(self.snapshots.complete);
        rounds.horizon = rounds.horizon.max(self.snapshots.horizon);
        if self.presides() {
            self.start_round(ctx);
        }
    }

    fn start_round(&mut self, ctx: &mut Context<'_>) {
        let Some(view) = &self.view else { return };
        assert!(self.rounds.missing.is_empty(), "a round begins amid another: {:?}", self.rounds);
        ctx.raise_epoch(Epoch(ctx.epoch().0 + 1));
        let rounds = &mut self.rounds;
        rounds.round += 1;
        rounds.epoch = ctx.epoch();
        rounds.started = ctx.now();
        rounds.missing.clear();
        rounds.missing.extend(view.living().map(|n| n.node()));
        rounds.oldest = None;
        rounds.short_of_memory = false;
        rounds.announced = rounds.complete;
        self.send_round(ctx);
    }

    /// To the members that have not reported yet.
    fn send_round(&mut self, ctx: &mut Context<'_>) {
        let generation = self.generation();
        let rounds = &mut self.rounds;
        rounds.sent = ctx.now();
        let Rounds { round, epoch, complete, horizon, .. } = *rounds;
        let order = EpochOrd { generation, round, epoch, complete, horizon };
        for &node in &rounds.missing {
            ctx.send(BlockRef::new(node, BlockId::Dih, 0), Kind::EpochOrd, |b| order.encode(b));
        }
    }

    pub(super) fn on_drained_rep(&mut self, from: NodeId, rep: Drained, ctx: &mut Context<'_>) {
        if rep.generation != self.generation() || rep.round != self.rounds.round || !self.presides() {
            jam!(ctx);
            return;
        }
        let rounds = &mut self.rounds;
        let Some(at) = rounds.missing.iter().position(|&n| n == from) else { return };
        rounds.missing.swap_remove(at);
        assert!(rep.oldest < rounds.epoch, "node {from} promises epoch {}, and that is not complete", rep.oldest);
        rounds.oldest = Some(rounds.oldest.map_or(rep.oldest, |o| o.min(rep.oldest)));
        rounds.short_of_memory |= rep.short_of_memory;
        if planted(Bug::DrainNotAwaited) {
            rounds.missing.clear();
        }
        if !rounds.missing.is_empty() {
            return;
        }
        rounds.complete = rounds.complete.max(Epoch(rounds.epoch.0 - 1));
        let mut horizon = rounds.horizon.max(rounds.oldest.unwrap_or_default());
        if rounds.short_of_memory && horizon < rounds.complete {
            // The oldest snapshots first, all of them within some tens of rounds.
            ctx.probe("dih: snapshots are given up because memory is short");
            horizon.0 += (rounds.complete.0 - horizon.0) / 4 + 1;
        }
        assert!(rounds.complete < rounds.epoch, "epoch {} is complete and current", rounds.epoch);
        let before = std::mem::replace(&mut rounds.horizon, horizon.min(rounds.complete));
        assert!(rounds.horizon >= before, "the horizon goes back from {before} to {}", rounds.horizon);
        rounds.settled = true;
        for (from, question) in std::mem::take(&mut self.rounds.questions) {
            self.answer_floor(from, question, ctx);
        }
        self.plan_round(ctx);
    }

    /// Begins the next round if it is time, or sees to it that it begins.
    fn plan_round(&mut self, ctx: &mut Context<'_>) {
        if !self.presides() || !self.rounds.missing.is_empty() {
            return;
        }
        let rounds = &mut self.rounds;
        let hurry = rounds.announced < rounds.wanted;
        let due = rounds.started + if hurry { HURRY_NS } else { EPOCH_NS };
        if ctx.now() >= due {
            self.start_round(ctx);
        } else if hurry && !std::mem::replace(&mut rounds.timer, true) {
            ctx.send_delayed(due - ctx.now(), Kind::EpochContinueOrd, |_| ());
        }
    }

    pub(super) fn on_epoch_continue(&mut self, ctx: &mut Context<'_>) {
        self.rounds.timer = false;
        self.plan_round(ctx);
    }

    pub(super) fn tick_rounds(&mut self, ctx: &mut Context<'_>) {
        if !self.presides() {
            return;
        }
        if self.rounds.missing.is_empty() {
            self.plan_round(ctx);
        } else if ctx.now() >= self.rounds.sent + RESEND_NS {
            jam!(ctx);
            self.send_round(ctx);
        }
    }

    pub(super) fn on_floor_req(&mut self, from: BlockRef, question: EpochFloor, ctx: &mut Context<'_>) {
        if question.generation != self.generation() || !self.presides() {
            jam!(ctx); // asked again in the view that both know
        } else if self.rounds.settled {
            self.answer_floor(from, question, ctx);
            self.plan_round(ctx);
        } else {
            self.rounds.questions.retain(|q| q.0 != from);
            self.rounds.questions.push((from, question));
        }
    }

    fn answer_floor(&mut self, to: BlockRef, question: EpochFloor, ctx: &mut Context<'_>) {
        let floor = ctx.epoch();
        self.rounds.wanted = self.rounds.wanted.max(floor);
        ctx.send(to, Kind::EpochFloorConf, |b| EpochFloor { floor, ..question }.encode(b));
    }
}

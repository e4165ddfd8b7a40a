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
//!
//! **Versions are kept only while somebody reads at an epoch.** No commit has an epoch above the president's, so a snapshot that is asked for later
//! is not below any commit so far: what these replaced, it does not need. Rounds therefore say whether to keep (`keep`). The
//! first question for a snapshot has the next round turn it on; the snapshot's floor is that round's epoch at least, and no commit is above that
//! before every member has heard of it. It is turned off when a round that began after the last answer has found nobody who holds or awaits a
//! snapshot, and the last need is [`crate::NodeConfig::linger_ns`] ago. A new president begins by keeping. An LDM judges for itself which
//! snapshots it can serve (`ldm::snapshot`), so a mistake here is a refusal, not a wrong answer.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::{Drained, EpochFloor, EpochOrd},
};
use apus_types::{
    Epoch, NodeId,
    planted::{Bug, planted},
};

use crate::flight::Patience;

use super::{Distribution, EPOCH_NS, HURRY_AHEAD_NS, HURRY_NS, RESEND_NS};

#[derive(Debug, Default)]
pub(super) struct Rounds {
    round: u64,
    /// Members that have not reported in the round under way.
    missing: Vec<NodeId>,
    epoch: Epoch,
    started: u64,
    /// The end of the time that rounds have used up: each twice the time that the last one took, [`HURRY_NS`] at most.
    used: u64,
    /// How long the last round took.
    lasted: u64,
    sent: u64,
    patience: Patience,
    /// Least of what the members reported in this round.
    oldest: Option<Epoch>,
    short_of_memory: bool,
    pub complete: Epoch,
    pub horizon: Epoch,
    /// A round has ended in this view: nobody alive knows an epoch above our own.
    pub settled: bool,
    /// As last announced, and the epoch that somebody waits for.
    announced: Epoch,
    wanted: Epoch,
    /// Questions to be answered when settled and versions are kept.
    questions: Vec<(BlockRef, EpochFloor)>,
    timer: bool,
    /// The round under way, or the last one, has versions kept.
    keep: bool,
    /// A floor was told since it began, or a member holds or awaits a snapshot.
    needed: bool,
    /// When versions were needed last, as far as known.
    needed_at: u64,
}

impl Distribution {
    pub(super) fn presides(&self) -> bool {
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
        (rounds.keep, rounds.needed, rounds.needed_at) = (true, true, ctx.now());
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
        assert!(
            rounds.epoch > rounds.complete,
            "a round begins in {}, and {} is complete",
            rounds.epoch,
            rounds.complete
        );
        rounds.started = ctx.now();
        let pace = HURRY_NS.min(2 * rounds.lasted);
        rounds.used = (rounds.used.max(ctx.now()) + pace).min(ctx.now() + HURRY_AHEAD_NS + pace);
        rounds.missing.clear();
        rounds.missing.extend(view.living().map(|n| n.node()));
        rounds.oldest = None;
        rounds.short_of_memory = false;
        rounds.announced = rounds.complete;
        let is_wanted = rounds.needed || !rounds.questions.is_empty();
        let keep = is_wanted || (rounds.keep && ctx.now() < rounds.needed_at + self.linger_ns);
        if keep != std::mem::replace(&mut rounds.keep, keep) {
            match keep {
                true => ctx.probe("dih: versions are kept again"),
                false => ctx.probe("dih: versions are not kept any more"),
            }
        }
        rounds.needed = false;
        self.saves.round_begins();
        self.saves.announced = self.saves.restorable;
        self.send_round(ctx);
        self.answer_floors(ctx);
    }

    /// To the members that have not reported yet.
    fn send_round(&mut self, ctx: &mut Context<'_>) {
        let generation = self.generation();
        let rounds = &mut self.rounds;
        rounds.sent = ctx.now();
        let Rounds { round, epoch, complete, horizon, keep, .. } = *rounds;
        let (saves, restorable) = (self.saves.possible, self.saves.announced);
        let order = EpochOrd { generation, round, epoch, complete, horizon, keep, saves, restorable };
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
        self.saves.on_drained(&rep);
        if rep.holds {
            (rounds.needed, rounds.needed_at) = (true, ctx.now());
        }
        if planted(Bug::DrainNotAwaited) {
            rounds.missing.clear();
        }
        if !rounds.missing.is_empty() {
            return;
        }
        rounds.lasted = ctx.now().saturating_sub(rounds.started);
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
        self.saves.round_ends();
        self.answer_floors(ctx);
        self.plan_save(ctx);
        self.plan_round(ctx);
    }

    /// Begins the next round if it is time, or sees to it that it begins.
    pub(super) fn plan_round(&mut self, ctx: &mut Context<'_>) {
        if !self.presides() || !self.rounds.missing.is_empty() {
            return;
        }
        let rounds = &mut self.rounds;
        let is_for_save = self.saves.wants_round(rounds.complete);
        let hurry = rounds.announced < rounds.wanted || (rounds.settled && !rounds.questions.is_empty()) || is_for_save;
        let due = match hurry {
            _ if is_for_save && self.saves.paces() => 0,
            true => rounds.used.saturating_sub(HURRY_AHEAD_NS),
            false => rounds.started + EPOCH_NS,
        };
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
        let open = (!self.rounds.missing.is_empty()).then_some((self.generation(), self.rounds.round));
        if self.rounds.patience.tick(open) {
            let Rounds { epoch, missing, patience, .. } = &self.rounds;
            let ms = patience.waited_ms();
            let missing = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            ctx.log(format_args!(
                "epoch {epoch} does not end: {ms} ms wait for data nodes {missing}, which have not drained it"
            ));
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
        } else {
            self.rounds.questions.retain(|q| q.0 != from);
            self.rounds.questions.push((from, question));
            self.answer_floors(ctx);
            self.plan_round(ctx);
        }
    }

    /// Answers what is asked as soon as that can be done.
    fn answer_floors(&mut self, ctx: &mut Context<'_>) {
        let rounds = &mut self.rounds;
        let keeps = rounds.keep || planted(Bug::SnapshotWithoutVersions);
        if !rounds.settled || !keeps || rounds.questions.is_empty() {
            return;
        }
        let floor = ctx.epoch();
        assert!(floor >= rounds.epoch, "a snapshot may begin at {floor}, and the round is of {}", rounds.epoch);
        rounds.wanted = rounds.wanted.max(floor);
        (rounds.needed, rounds.needed_at) = (true, ctx.now());
        for (to, question) in rounds.questions.drain(..) {
            ctx.send(to, Kind::EpochFloorConf, |b| EpochFloor { floor, ..question }.encode(b));
        }
    }
}

//! Global checkpoints: the president's rounds, and a member's part in them. `apus_signal::gcp` has the messages and the why.
//!
//! ```text
//! president: Idle --gcp_interval and something was written, or somebody waits--> Saving --all full members confirm--> Idle, restorable = e
//! member:    Idle --GcpSaveReq--> Keeping (QMGR's and DICT's files) --> Logging (a mark in each LDM's log) --> answered, Idle
//! ```
//!
//! Nobody is made wait for a save: epochs go on meanwhile. A president that dies leaves a save that nobody ends; the next one begins with a new
//! number in its own view. A member that is asked again answers again. What does not come back within [`super::RESEND_NS`] is asked for again, and what
//! a member has refused, because its disk is lost, no sooner: the others write and sync a mark for every save.
//!
//! A node without a data directory takes no part, and as long as one is a member nothing becomes restorable: commits that ask for the disk are
//! refused ([`apus_signal::epoch::EpochOrd::saves`]).

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::Drained,
    gcp::{GcpHurry, GcpSave, Keep},
    view::{NodeState, View},
};
use apus_types::{
    Epoch, NodeId,
    planted::{Bug, planted},
};

use super::{Distribution, RESEND_NS};

#[derive(Default, Debug)]
pub(super) struct Saves {
    /// President: number of the save under way, or of the last one, in this view.
    number: u64,
    epoch: Epoch,
    /// Members that have not confirmed it.
    missing: Vec<NodeId>,
    /// One of them cannot write.
    refused: bool,
    started: u64,
    sent: u64,
    /// Something was written since the last save began.
    dirty: bool,
    /// The newest epoch that somebody waits for.
    wanted: Epoch,
    /// Nobody waits for an epoch below it that is not restorable: a save of one would serve nobody.
    first_wanted: Epoch,
    /// The cluster ends when this one is restorable.
    last: Option<Epoch>,
    /// DICT goes on when this one is, or none can be.
    dictionary: Option<Epoch>,
    /// As told to everybody last.
    pub announced: Epoch,
    /// Every member has a disk, as far as the last round knows; and what the one under way says so far.
    pub possible: bool,
    all_so_far: bool,
    /// A round of this view has said so.
    is_known: bool,
    /// As known on this node.
    pub restorable: Epoch,
    /// Member.
    taking: Option<Taking>,
    /// For the next [`Keep`].
    questions: u64,
    /// View and dictionary that QMGR and DICT have in synced files.
    kept: Option<(u64, u64, u64)>,
}

/// A member's save under way.
#[derive(Debug)]
struct Taking {
    save: GcpSave,
    president: NodeId,
    step: Step,
    refused: bool,
}

#[derive(Debug)]
enum Step {
    Keeping { question: u64, view: bool, dictionary: bool, version: u64 },
    Logging { missing: u8 },
    Done,
}

impl Saves {
    /// A round of epochs begins.
    pub fn round_begins(&mut self) {
        self.all_so_far = true;
    }
    /// A member reports in it.
    pub fn on_drained(&mut self, rep: &Drained) {
        self.all_so_far &= rep.has_disk;
        self.dirty |= rep.dirty;
    }
    /// It is over.
    pub fn round_ends(&mut self) {
        self.possible = self.all_so_far;
        self.is_known = true;
    }
    /// Somebody waits for an epoch to be complete, or to be told that one is restorable. One epoch is completed ahead of the save under way, so that the next one begins with its end.
    pub fn wants_round(&self, complete: Epoch) -> bool {
        let is_ahead = !self.missing.is_empty() && complete > self.epoch;
        let lacks_epoch = complete < self.wanted && !is_ahead;
        self.possible && self.wanted > self.announced && (lacks_epoch || self.restorable > self.announced)
    }
    /// Disks set the pace of rounds that saves want, unless one of them fails.
    pub fn paces(&self) -> bool {
        !self.refused
    }
    /// Somebody waits for this epoch from now on.
    fn want(&mut self, epoch: Epoch) {
        let first = if self.wanted > self.restorable { self.first_wanted.min(epoch) } else { epoch };
        (self.first_wanted, self.wanted) = (first, self.wanted.max(epoch));
    }
    pub fn summary(&self) -> String {
        format!(
            "saves: restorable {} save {} of {} waits for {:?}, taking {:?}",
            self.restorable, self.number, self.epoch, self.missing, self.taking
        )
    }
}

impl Distribution {
    /// A new view: what is under way counts for nothing, and the next save is due at once, for by the first one that it takes part in the log of a new full member
    /// is whole. That all members have disks holds until a round says otherwise: who asks for the outcome of
    /// a commit just then is not to be told of one that no disk has.
    pub(super) fn begin_saves(&mut self) {
        let saves = &mut self.saves;
        saves.missing.clear();
        (saves.number, saves.started) = (0, 0);
        (saves.all_so_far, saves.dirty, saves.is_known) = (true, true, false);
        saves.taking = None;
        saves.announced = Epoch(0);
    }

    /// `from` QMGR: the cluster ends when all there is is restorable; DICT of this node: it asks to be told.
    pub(super) fn on_hurry(&mut self, from: BlockRef, hurry: GcpHurry, ctx: &mut Context<'_>) {
        if from.block == BlockId::Qmgr {
            self.saves.last = Some(hurry.epoch.min(ctx.epoch()));
            self.tell_qmgr(ctx);
        }
        if from == BlockRef::new(self.me, BlockId::Dict, 0) {
            self.saves.dictionary = Some(hurry.epoch.min(ctx.epoch()));
            self.tell_dictionary(ctx);
        }
        let Some(president) = self.president() else { return };
        if president != self.me {
            ctx.send(BlockRef::new(president, BlockId::Dih, 0), Kind::GcpHurryOrd, |b| hurry.encode(b));
            return;
        }
        // No commit is above the newest epoch; who says so would have every round hurry for ever.
        self.saves.want(hurry.epoch.min(ctx.epoch()));
        self.plan_save(ctx);
        self.plan_round(ctx);
    }

    /// Begins a save if there is something to be saved and it is time, of an epoch of this view: what a node got as a copy before it became a full
    /// member is not above it.
    pub(super) fn plan_save(&mut self, ctx: &mut Context<'_>) {
        let (complete, presides) = (self.rounds.complete, self.presides() && self.rounds.settled);
        let saves = &mut self.saves;
        if !presides || !saves.possible || !saves.missing.is_empty() || complete <= saves.restorable {
            return;
        }
        let may_repeat = !saves.refused || ctx.now() >= saves.started + RESEND_NS;
        let is_wanted = saves.wanted > saves.restorable && complete >= saves.first_wanted && may_repeat;
        let interval_ns = |view: &View| u64::from(view.gcp_interval_ms()) * 1_000_000;
        let is_due = |view: &&View| saves.dirty && ctx.now() >= saves.started + interval_ns(view);
        let Some(view) = self.view.as_ref().filter(|view| is_wanted || is_due(view)) else { return };
        assert!(complete > saves.epoch || saves.refused || saves.number == 0, "epoch {complete} is saved again");
        saves.number += 1;
        saves.epoch = complete;
        (saves.refused, saves.dirty) = (false, false);
        saves.started = ctx.now();
        saves.missing.extend(view.nodes.iter().filter(|n| n.state() == NodeState::Up).map(|n| n.node()));
        self.send_save(ctx);
    }

    /// To the members that have not confirmed.
    fn send_save(&mut self, ctx: &mut Context<'_>) {
        let Some((lineage, generation)) = self.view.as_ref().map(View::point) else { return };
        let saves = &mut self.saves;
        saves.sent = ctx.now();
        let save = GcpSave { lineage, generation, save: saves.number, epoch: saves.epoch };
        for &node in &saves.missing {
            ctx.send(BlockRef::new(node, BlockId::Dih, 0), Kind::GcpSaveReq, |b| save.encode(b));
        }
    }

    /// A member's answer, at the president; an LDM's, at a member.
    pub(super) fn on_save_answer(&mut self, from: BlockRef, save: GcpSave, done: bool, ctx: &mut Context<'_>) {
        if from.block == BlockId::Ldm {
            self.on_logged(save, done, ctx);
            return;
        }
        let saves = &mut self.saves;
        let is_current = self.view.as_ref().map(View::point) == Some((save.lineage, save.generation));
        let Some(at) = saves.missing.iter().position(|&n| n == from.node && save.save == saves.number && is_current)
        else {
            return jam!(ctx);
        };
        saves.missing.swap_remove(at);
        saves.refused |= !done;
        if !saves.missing.is_empty() && !planted(Bug::SavedByOneNode) {
            return;
        }
        saves.missing.clear();
        match saves.refused {
            true => ctx.probe("dih: a member cannot write its log, nothing becomes restorable"),
            false => {
                assert!(saves.epoch <= self.rounds.complete, "epoch {} is restorable and not complete", saves.epoch);
                saves.restorable = saves.restorable.max(saves.epoch);
            }
        }
        self.tell_qmgr(ctx);
        self.tell_dictionary(ctx);
        self.plan_save(ctx);
        self.plan_round(ctx);
    }

    /// What QMGR waits for is on the disks.
    fn tell_qmgr(&mut self, ctx: &mut Context<'_>) {
        let saves = &mut self.saves;
        let restorable = saves.restorable;
        if saves.last.take_if(|last| *last <= restorable).is_some() {
            let (lineage, generation) = self.view.as_ref().map_or((0, 0), View::point);
            let save = GcpSave { lineage, generation, save: saves.number, epoch: restorable };
            let qmgr = BlockRef::new(self.me, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(qmgr, Kind::GcpSaveConf, |b| save.encode(b));
        }
    }

    /// What DICT waits for is on the disks, or there are none.
    fn tell_dictionary(&mut self, ctx: &mut Context<'_>) {
        let saves = &mut self.saves;
        let (restorable, is_impossible) = (saves.restorable, saves.is_known && !saves.possible);
        if let Some(epoch) = saves.dictionary.take_if(|epoch| *epoch <= restorable || is_impossible) {
            let (lineage, generation) = self.view.as_ref().map_or((0, 0), View::point);
            let save = GcpSave { lineage, generation, save: saves.number, epoch };
            ctx.send(BlockRef::new(self.me, BlockId::Dict, 0), Kind::GcpSaveConf, |b| save.encode(b));
        }
    }

    pub(super) fn tick_saves(&mut self, ctx: &mut Context<'_>) {
        self.tell_dictionary(ctx);
        if !self.presides() {
            return;
        }
        if self.saves.missing.is_empty() {
            self.plan_save(ctx);
        } else if ctx.now() >= self.saves.sent + RESEND_NS {
            jam!(ctx);
            self.send_save(ctx);
        }
    }

    // ---- member

    /// From the president: everything up to the epoch is to be on this node's disk.
    pub(super) fn on_save_req(&mut self, from: NodeId, save: GcpSave, ctx: &mut Context<'_>) {
        let point = self.view.as_ref().map(View::point);
        if point != Some((save.lineage, save.generation)) || self.president() != Some(from) {
            return jam!(ctx); // of an older view, or of one that is still to come: then it comes again
        }
        if let Some(taking) = self.saves.taking.as_mut().filter(|t| t.save == save) {
            match &taking.step {
                Step::Done => self.answer_save(ctx),
                Step::Keeping { question, .. } => Self::ask_to_keep(self.me, *question, ctx), // a file may not have been written
                Step::Logging { .. } => {}
            }
            return;
        }
        self.saves.questions += 1;
        let dictionary = self.dictionary_version;
        let is_kept = self.saves.kept == Some((save.lineage, save.generation, dictionary));
        let question = self.saves.questions;
        let step = Step::Keeping { question, view: false, dictionary: false, version: dictionary };
        self.saves.taking = Some(Taking { save, president: from, step, refused: false });
        if is_kept {
            self.log_save(ctx);
            return;
        }
        Self::ask_to_keep(self.me, question, ctx);
    }
    fn ask_to_keep(me: NodeId, number: u64, ctx: &mut Context<'_>) {
        for to in [BlockRef::new(me, BlockId::Qmgr, BlockRef::CONTROL), BlockRef::new(me, BlockId::Dict, 0)] {
            ctx.send(to, Kind::KeepReq, |b| Keep { number }.encode(b));
        }
    }

    /// QMGR or DICT has in a synced file what it had when it was asked.
    pub(super) fn on_kept(&mut self, from: BlockId, conf: Keep, ctx: &mut Context<'_>) {
        let Some(Taking { save, step: Step::Keeping { question, view, dictionary, version }, .. }) =
            &mut self.saves.taking
        else {
            return;
        };
        if *question == conf.number {
            *view |= from == BlockId::Qmgr;
            *dictionary |= from == BlockId::Dict;
            if *view && *dictionary {
                self.saves.kept = Some((save.lineage, save.generation, *version));
                self.log_save(ctx);
            }
        }
    }

    fn log_save(&mut self, ctx: &mut Context<'_>) {
        let Some(taking) = &mut self.saves.taking else { return };
        let instances = ctx.instances();
        taking.step = Step::Logging { missing: instances };
        let save = taking.save;
        for instance in 0..instances {
            ctx.send(BlockRef::new(self.me, BlockId::Ldm, instance), Kind::GcpSaveReq, |b| save.encode(b));
        }
    }

    fn on_logged(&mut self, save: GcpSave, done: bool, ctx: &mut Context<'_>) {
        let Some(taking) = self.saves.taking.as_mut().filter(|t| t.save == save) else { return };
        let Step::Logging { missing } = &mut taking.step else { return };
        assert!(*missing > 0, "more logs have saved {save:?} than there are");
        *missing -= 1;
        taking.refused |= !done;
        if *missing == 0 {
            taking.step = Step::Done;
            self.answer_save(ctx);
        }
    }

    fn answer_save(&mut self, ctx: &mut Context<'_>) {
        let Some(Taking { save, president, refused, .. }) = &self.saves.taking else { return };
        let kind = if *refused { Kind::GcpSaveRef } else { Kind::GcpSaveConf };
        ctx.send(BlockRef::new(*president, BlockId::Dih, 0), kind, |b| save.encode(b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited_for(epochs: &[u64]) -> Saves {
        let mut saves = Saves { possible: true, ..Saves::default() };
        epochs.iter().for_each(|epoch| saves.want(Epoch(*epoch)));
        saves
    }

    #[test]
    fn one_epoch_is_completed_ahead_of_a_save_and_no_more() {
        let mut saves = waited_for(&[5]);
        assert!(saves.wants_round(Epoch(4)) && !saves.wants_round(Epoch(5)), "a lone commit");
        (saves.epoch, saves.missing) = (Epoch(5), vec![NodeId(1)]);
        saves.want(Epoch(6));
        saves.want(Epoch(7));
        assert!(saves.wants_round(Epoch(5)) && !saves.wants_round(Epoch(6)), "6 is complete while 5 is saved, 7 waits");
        saves.missing.clear();
        saves.restorable = Epoch(5);
        assert!(saves.wants_round(Epoch(6)), "5 is to be told");
        saves.announced = Epoch(5);
        assert!(saves.wants_round(Epoch(6)) && !saves.wants_round(Epoch(7)), "for 7");
    }

    #[test]
    fn the_first_that_is_waited_for_is_known_until_it_is_restorable() {
        let mut saves = waited_for(&[7, 5, 6]);
        assert_eq!((saves.first_wanted, saves.wanted), (Epoch(5), Epoch(7)));
        saves.restorable = Epoch(7);
        saves.want(Epoch(9));
        assert_eq!((saves.first_wanted, saves.wanted), (Epoch(9), Epoch(9)));
        assert!(waited_for(&[]).paces() && !Saves { refused: true, ..Saves::default() }.paces());
    }
}

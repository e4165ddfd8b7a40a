//! Commits of class `disk`: their answers are held until the epoch of the commit is restorable (`apus_signal::gcp`).
//!
//! The commit itself is as any other: locks are given back and readers see it when all replicas have it. Only the client waits. Whoever asks what became
//! of a transaction whose coordinator died is told "committed" no earlier either: the answer would say that the disk has it.
//!
//! Answers wait in one buffer per epoch, which is used again, so nothing is allocated for one in steady state. The first one of an epoch makes the
//! president hurry; those that come during a save share the next (group commit). An answer whose client's link is gone is dropped as any signal
//! to it is. Limits: [`HELD_MAX`] answers, [`HELD_BYTES_MAX`]; what would be more is refused when it begins.

use std::collections::VecDeque;

use apus_kernel::Context;
use apus_signal::{BlockId, BlockRef, Kind, epoch::EpochOrd, gcp::GcpHurry, view::View};
use apus_types::{
    Epoch, ErrorCode,
    planted::{Bug, planted},
};

use super::TransactionCoordinator;

/// Most answers that one TC instance holds.
pub const HELD_MAX: usize = 100_000;
/// Most bytes of them.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// A buffer that has grown beyond this is not kept for the next epoch.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Answers of one epoch: one after another in `bytes`, each with its length.
#[derive(Default)]
struct Batch {
    epoch: Epoch,
    bytes: Vec<u8>,
    answers: Vec<(BlockRef, Kind, usize)>,
}

/// What is held, and what is known of the disk.
#[derive(Default)]
pub(super) struct Held {
    /// Every member has a disk, so that epochs become restorable.
    saves: bool,
    /// Some member has none, and nothing ever was restorable as far as this process knows.
    is_diskless: bool,
    restorable: Epoch,
    /// The cluster's class is `disk`.
    always: bool,
    /// By epoch, the lowest first.
    batches: VecDeque<Batch>,
    idle: Vec<Batch>,
    answers: usize,
    bytes: usize,
}

impl Held {
    /// Why a transaction that asks for the disk, or has to, is not begun.
    pub fn refusal(&self, asks: bool) -> Option<ErrorCode> {
        if !asks && !self.always {
            None
        } else if !self.saves {
            Some(ErrorCode::NoDisk)
        } else {
            (self.answers >= HELD_MAX || self.bytes >= HELD_BYTES_MAX).then_some(ErrorCode::Overload)
        }
    }
    /// Why a batch that asks for the disk where there are some is not taken. Where epochs have become restorable, all are to; a process that has heard of none yet does not know.
    pub fn refusal_where_saved(&self) -> Option<ErrorCode> {
        if self.saves { self.refusal(true) } else { (!self.is_diskless).then_some(ErrorCode::NoDisk) }
    }
    /// Whether a transaction that asks for the disk where there are some waits for it.
    pub fn is_saved(&self) -> bool {
        !self.is_diskless
    }
    /// Whether the answer to a commit has to wait.
    pub fn waits(&self, asks: bool, epoch: Epoch) -> bool {
        (asks || self.always) && epoch > self.restorable && !planted(Bug::AckBeforeSync)
    }
    /// The same for the outcome of a transaction that another coordinator answered for.
    pub fn outcome_waits(&self, now: Epoch) -> bool {
        self.saves && now > self.restorable
    }
    /// Keeps an answer; `true`: it is the first one of its epoch.
    pub fn push(&mut self, epoch: Epoch, to: BlockRef, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let place = self.batches.iter().rposition(|b| b.epoch <= epoch).map_or(0, |at| at + 1);
        let is_new = place == 0 || self.batches[place - 1].epoch < epoch;
        if is_new {
            let batch = Batch { epoch, ..self.idle.pop().unwrap_or_default() };
            self.batches.insert(place, batch);
        }
        let batch = &mut self.batches[if is_new { place } else { place - 1 }];
        let before = batch.bytes.len();
        write(&mut batch.bytes);
        let length = batch.bytes.len() - before;
        batch.answers.push((to, kind, length));
        self.answers += 1;
        self.bytes += length;
        is_new
    }
    /// Sends what waits for epochs up to `restorable`.
    fn release(&mut self, ctx: &mut Context<'_>) {
        while let Some(mut batch) = self.batches.pop_front_if(|b| b.epoch <= self.restorable) {
            let mut rest = &batch.bytes[..];
            for (to, kind, length) in batch.answers.drain(..) {
                let (answer, after) = rest.split_at(length);
                ctx.send(to, kind, |out| out.extend_from_slice(answer));
                rest = after;
                self.answers -= 1;
            }
            assert!(rest.is_empty(), "{} bytes of epoch {} belong to no answer", rest.len(), batch.epoch);
            self.bytes -= batch.bytes.len();
            batch.bytes.clear();
            if batch.bytes.capacity() <= BUFFER_BYTES_KEPT && self.idle.len() < 4 {
                self.idle.push(batch);
            }
        }
        let is_empty = (self.answers, self.bytes) == (0, 0);
        assert!(is_empty == self.batches.is_empty(), "held: {} answers of {} bytes", self.answers, self.bytes);
    }
    pub fn summary(&self) -> String {
        format!("{} answers wait for the disk, restorable {}", self.answers, self.restorable)
    }
    pub fn verify(&self) -> Result<(), String> {
        let answers: usize = self.batches.iter().map(|b| b.answers.len()).sum();
        let in_order = self.batches.iter().zip(self.batches.iter().skip(1)).all(|(a, b)| a.epoch < b.epoch);
        let all_late = self.batches.iter().all(|b| b.epoch > self.restorable);
        if answers != self.answers || !in_order || !all_late {
            return Err(format!("{answers} answers are held: {}", self.summary()));
        }
        Ok(())
    }
}

impl TransactionCoordinator {
    pub(super) fn durability_is(&mut self, view: &View) {
        self.held.always = view.durability != 0;
    }

    /// A round of epochs tells what is on all disks.
    pub(super) fn on_restorable(&mut self, order: &EpochOrd, ctx: &mut Context<'_>) {
        self.held.saves = order.saves;
        // Of a new view's president the first round does not know yet.
        let is_known = order.saves || order.round > 2;
        self.held.is_diskless = (self.held.is_diskless || is_known) && !order.saves && self.held.restorable == Epoch(0);
        if order.restorable > self.held.restorable {
            self.held.restorable = order.restorable;
            self.held.release(ctx);
        }
    }

    /// Somebody waits for `epoch` to be restorable.
    pub(super) fn hurry_save(&self, epoch: Epoch, ctx: &mut Context<'_>) {
        let dih = BlockRef::new(self.me.node, BlockId::Dih, 0);
        ctx.send(dih, Kind::GcpHurryOrd, |out| GcpHurry { epoch }.encode(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_types::NodeId;

    #[test]
    fn answers_are_held_by_epoch_and_counted() {
        let to = BlockRef::new(NodeId(NodeId::CLIENT_BASE), BlockId::Client, 0);
        let mut held = Held { saves: true, restorable: Epoch(3), ..Held::default() };
        assert!(held.waits(true, Epoch(4)) && !held.waits(true, Epoch(3)) && !held.waits(false, Epoch(4)));
        let mut push = |epoch| held.push(Epoch(epoch), to, Kind::TcCommitConf, |out| out.extend_from_slice(b"four"));
        assert!(push(5) && push(4) && !push(5) && push(7) && !push(4) && push(6));
        assert_eq!((held.answers, held.bytes), (6, 24));
        let epochs: Vec<u64> = held.batches.iter().map(|b| b.epoch.0).collect();
        assert_eq!(epochs, [4, 5, 6, 7]);
        assert_eq!(held.verify(), Ok(()));
        held.answers = HELD_MAX;
        assert_eq!((held.refusal(true), held.refusal(false)), (Some(ErrorCode::Overload), None));
        held.saves = false;
        held.always = true;
        assert_eq!(held.refusal(false), Some(ErrorCode::NoDisk));
    }
}

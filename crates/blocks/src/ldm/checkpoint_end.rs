//! A checkpoint at the orderly end of the cluster (`qmgr/ending`), so that the next start reads little log.
//!
//! ```text
//! EndOrd (QMGR; clients are refused and TCs are quiet) --the log has grown by END_GROWTH--> a checkpoint, at full speed
//!    its file is synced, or none is to be --EndReadyRep--> QMGR      (then the last global checkpoint makes its epoch restorable)
//!    it is listed on the disk             --EndReadyRep, saved--> QMGR
//! ```
//!
//! QMGR waits for both for a bounded time. Nothing depends on it: what is not in a checkpoint that counts is in the log.

use apus_kernel::{Context, jam};
use apus_signal::{BlockId, BlockRef, Kind, operator::EndOrder, qmgr::encode};

use super::LocalDataManager;

/// A log that has grown by less since the last checkpoint began is read in no time.
const END_GROWTH: u64 = 1 << 20;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The file is being written.
    Writing,
    /// QMGR knows that it is synced.
    Synced,
}

/// What QMGR waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastOne {
    order: EndOrder,
    stage: Stage,
}

impl LocalDataManager {
    pub(super) fn on_end_ord(&mut self, order: EndOrder, ctx: &mut Context<'_>) {
        jam!(ctx);
        let is_up = self.is_up();
        let may = self.redo.as_mut().filter(|redo| is_up && redo.is_open()).is_some_and(|redo| {
            let written = redo.written();
            redo.checkpoints.is_worthwhile(written, END_GROWTH)
        });
        if !may {
            self.tell_of_last(order, false, ctx);
            return self.tell_of_last(order, true, ctx);
        }
        let Some(redo) = &mut self.redo else { return };
        redo.checkpoints.last_one = Some(LastOne { order, stage: Stage::Writing });
        if redo.checkpoints.file().is_none() {
            self.begin_checkpoint(ctx);
        }
        self.tick_last_one(ctx);
    }

    fn tell_of_last(&self, order: EndOrder, saved: bool, ctx: &mut Context<'_>) {
        let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::EndReadyRep, |b| encode(&EndOrder { saved, ..order }, b));
    }

    pub(super) fn tick_last_one(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let (is_gone, is_written) = (redo.checkpoints.file().is_none(), redo.is_control_written());
        let is_synced = redo.checkpoints.is_synced();
        let Some(last) = &mut redo.checkpoints.last_one else { return };
        let order = last.order;
        if last.stage == Stage::Writing && (is_synced || is_gone) {
            last.stage = Stage::Synced;
            self.tell_of_last(order, false, ctx);
        } else if last.stage == Stage::Synced && is_gone && is_written {
            redo.checkpoints.last_one = None;
            self.tell_of_last(order, true, ctx);
        }
    }
}

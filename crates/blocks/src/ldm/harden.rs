//! What a process finds at the end of its log, and cannot know to be on the disk, is written anew and synced before anything rests on it.
//!
//! ```text
//! Looking --the log has ended--> Hardening: each piece is read --> written with the same bytes --> all are synced --> Found
//!                                     a write or sync fails: once more from the beginning, later
//! ```
//!
//! The process before may have been killed with blocks in the system's memory alone; any sync takes those. But where its last sync failed, Linux has lost some pages
//! and holds all of them for written: they can be read as long as the machine runs, and no later sync writes them. A process that went on behind such blocks
//! would say of them that they are synced, and the power's next failure would leave a hole in the log (simulator seed 181000390). A write makes the pages count as changed again.
//!
//! Which blocks these are is told by those behind them: each says up to where the log was synced when it was written. Nothing is reported of a log before this is done, so a node
//! whose disk takes no writes does not come back; its log says why.

use apus_kernel::{Context, DiskOp, limits::DISK_PIECE_MAX};
use apus_redo::Piece;

use super::redo::{Asked, Redo, State};

/// A disk that has refused is asked again after this time.
const RETRY_NS: u64 = 500_000_000;

/// How far it is.
pub(super) struct Hardening {
    pieces: Vec<Piece>,
    /// Of these, so many are written.
    written: usize,
    /// Syncs that are not answered.
    syncs: usize,
    retry_at: Option<u64>,
    has_said: bool,
}

impl Hardening {
    pub fn new(pieces: Vec<Piece>) -> Hardening {
        Hardening { pieces, written: 0, syncs: 0, retry_at: None, has_said: false }
    }
}

/// Bytes of a piece that is read and written at once.
pub(super) const PIECE_BYTES: u32 = 1 << 20;
const _: () = assert!(PIECE_BYTES as u64 <= DISK_PIECE_MAX as u64);

impl Redo {
    /// Asks for the next piece, or for the syncs.
    pub(super) fn harden(&mut self, ctx: &mut Context<'_>) {
        let State::Hardening(hardening) = &mut self.state else { return };
        if let Some(&Piece { segment, at, bytes }) = hardening.pieces.get(hardening.written) {
            return self.ask(
                segment,
                DiskOp::Read { at, count: bytes },
                Asked::Read { segment, at, count: bytes },
                ctx,
            );
        }
        let mut segments: Vec<u32> = hardening.pieces.iter().map(|piece| piece.segment).collect();
        segments.dedup();
        hardening.syncs = segments.len();
        if segments.is_empty() {
            return self.report(ctx);
        }
        for segment in segments {
            self.ask(segment, DiskOp::Sync, Asked::Harden, ctx);
        }
    }

    /// A piece was read.
    pub(super) fn on_unproven(&mut self, (segment, at): (u32, u64), bytes: &[u8], ctx: &mut Context<'_>) {
        let mut buffer = ctx.disk_buffer();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.ask(segment, DiskOp::Write { at, bytes: buffer }, Asked::Harden, ctx);
    }

    /// A piece is written, or a segment synced.
    pub(super) fn on_hardened(&mut self, ctx: &mut Context<'_>) {
        let State::Hardening(hardening) = &mut self.state else { return };
        if hardening.written < hardening.pieces.len() {
            hardening.written += 1;
            return self.harden(ctx);
        }
        hardening.syncs = hardening.syncs.saturating_sub(1);
        if hardening.syncs == 0 && hardening.retry_at.is_none() {
            ctx.probe("ldm: the end of a log is written anew");
            self.report(ctx);
        }
    }

    pub(super) fn on_not_hardened(&mut self, reason: &str, ctx: &mut Context<'_>) {
        let State::Hardening(hardening) = &mut self.state else { return };
        hardening.retry_at = Some(ctx.now() + RETRY_NS);
        if !std::mem::replace(&mut hardening.has_said, true) {
            ctx.log(format_args!(
                "the end of the log, which may not be on the disk, cannot be written anew: {reason}; tried again until it can"
            ));
        }
    }

    pub(super) fn tick_hardening(&mut self, ctx: &mut Context<'_>) {
        // Answers of the attempt before are over.
        let is_idle = self.asks_nothing();
        let State::Hardening(hardening) = &mut self.state else { return };
        if is_idle && hardening.retry_at.take_if(|at| ctx.now() >= *at).is_some() {
            (hardening.written, hardening.syncs) = (0, 0);
            self.harden(ctx);
        }
    }
}

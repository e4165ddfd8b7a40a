//! Signals of a view that is not here yet: set aside whole, executed in their order once it is.
//!
//! A member that has the new view may speak before we have it; its signals name the generation, and wait here. A worker on which much
//! waits reads no more from its links until the view is here (`apus_kernel::limits::DEFERRED_BYTES_SOFT`); the view comes by the control
//! worker, whose links it does not concern. So [`DEFERRED_BYTES_MAX`] finds a bug, not load.

use apus_kernel::{Block, Context};
use apus_signal::{
    Envelope,
    envelope::{decode_frame, frame_length},
};

/// More bytes than this per block cannot have been read since the worker stopped reading.
const DEFERRED_BYTES_MAX: usize = 1 << 30;

/// Whole frames, in the order in which they came.
#[derive(Default)]
pub(crate) struct Deferred {
    frames: Vec<u8>,
}

impl Deferred {
    pub fn set_aside(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) {
        let before = self.frames.len();
        assert!(before + body.len() < DEFERRED_BYTES_MAX, "a view does not arrive: {before} bytes wait for it");
        envelope.encode(&mut self.frames, |out| out.extend_from_slice(body));
        ctx.note_deferred(before, self.frames.len());
    }

    /// Executes what was set aside; `block`, from which it was taken, may set some of it aside again.
    pub fn replay(self, block: &mut impl Block, ctx: &mut Context<'_>) {
        if !self.frames.is_empty() {
            ctx.probe("blocks: signal of a later view set aside");
        }
        ctx.note_deferred(self.frames.len(), 0);
        let mut rest = self.frames.as_slice();
        while let Ok(Some(length)) = frame_length(rest) {
            let Some((frame, tail)) = rest.split_at_checked(length) else { break };
            rest = tail;
            if let Ok((envelope, body)) = decode_frame(frame) {
                let replayed = block.receive(&envelope, body, ctx);
                assert!(replayed.is_ok(), "{:?} does not decode what it set aside: {envelope:?}", block.block_ref());
            }
        }
    }
}

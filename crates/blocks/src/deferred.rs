//! Signals of a view that is not here yet: set aside whole, executed in their order once it is.
//!
//! A member that has the new view may speak before we have it; its signals name the generation, and wait here. The view is on its way,
//! so what waits is bounded by time; [`DEFERRED_BYTES_MAX`] finds a bug, not load.

use apus_kernel::{Block, Context};
use apus_signal::{
    Envelope,
    envelope::{decode_frame, frame_length},
};

/// Signals are set aside up to this many bytes per block.
const DEFERRED_BYTES_MAX: usize = 64 << 20;

/// Whole frames, in the order in which they came.
#[derive(Default)]
pub(crate) struct Deferred {
    frames: Vec<u8>,
}

impl Deferred {
    /// # Panics
    /// When the view does not arrive for very long.
    pub fn set_aside(&mut self, generation: u64, envelope: &Envelope, body: &[u8]) {
        let waiting = self.frames.len();
        assert!(
            waiting + body.len() < DEFERRED_BYTES_MAX,
            "view {generation} does not arrive: {waiting} bytes wait for it"
        );
        envelope.encode(&mut self.frames, |out| out.extend_from_slice(body));
    }

    /// Executes what was set aside; `block`, from which it was taken, may set some of it aside again.
    pub fn replay(self, block: &mut impl Block, ctx: &mut Context<'_>) {
        if !self.frames.is_empty() {
            ctx.probe("blocks: signal of a later view set aside");
        }
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

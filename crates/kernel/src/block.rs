//! The contract between a block and whoever runs it.

use apus_signal::{BlockRef, DecodeError, Envelope};

use crate::Context;

/// One actor: owns its data, is executed by one worker, never blocks.
pub trait Block {
    /// Own address; the instance is the index of the worker that runs it, or [`BlockRef::CONTROL`].
    fn block_ref(&self) -> BlockRef;
    /// Executes one signal.
    ///
    /// # Errors
    /// The signal does not follow the protocol: the worker counts it, logs it and closes the link to the node of the sender.
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError>;
    /// Called about every [`crate::limits::TICK_NS`]: time-outs only.
    fn tick(&mut self, ctx: &mut Context<'_>);
    /// Called after a round of signals, before links are flushed: cheap tidy-up.
    fn settle(&mut self, _ctx: &mut Context<'_>) {}
    /// For crash reports and operators.
    fn dump(&self, out: &mut String);
    /// Checks the whole structure, at any cost; for the simulator and tests.
    ///
    /// # Errors
    /// What does not hold.
    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

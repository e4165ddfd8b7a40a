//! Deadlock detection by edge chasing; see [`apus_signal::tc::DeadlockProbe`].
//!
//! Each transaction that has waited for a few milliseconds sends probes along its wait-for edges. A cycle is seen by every
//! transaction on it; only the one with the highest id gives way, so exactly one does.

use apus_kernel::Context;
use apus_signal::{
    BlockRef, DecodeError, Kind,
    ldm::{CANCEL_WAIT, LdmWaitRep},
    tc::{DEADLOCK_PATH_MAX, DeadlockProbe},
};
use apus_types::{ErrorCode, TransId};

use super::{TransactionCoordinator, record::State};

impl TransactionCoordinator {
    pub(super) fn on_wait_rep(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let rep = LdmWaitRep::decode(body)?;
        let Some(at) = self.find(rep.waiter, ctx) else { return Ok(()) };
        let me = self.me;
        let trans = self.transactions.get_mut(at);
        if !matches!(trans.state, State::Active | State::OnePass) || trans.sub_mut(rep.batch).is_none() {
            return Ok(());
        }
        trans.waits_for.clear();
        for holder in rep.holders() {
            let (holder, tc) = holder?;
            if holder != rep.waiter {
                trans.waits_for.push((holder, tc));
            }
        }
        for &(holder, tc) in &trans.waits_for {
            ctx.send(tc, Kind::DeadlockProbeOrd, |out| {
                DeadlockProbe::encode(out, me, [rep.waiter, holder].into_iter());
            });
        }
        Ok(())
    }

    pub(super) fn on_deadlock_probe(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let probe = DeadlockProbe::decode(body)?;
        let (Some(first), Some(last)) = (probe.path().next(), probe.path().next_back()) else {
            return Err(DecodeError);
        };
        if first == last {
            self.break_cycle(first, &probe, ctx);
            return Ok(());
        }
        let Some(at) = self.find(last, ctx) else { return Ok(()) };
        if !self.transactions.get_mut(at).passes_probe(first, ctx.now()) {
            ctx.probe("tc: deadlock probe that came another way before");
            return Ok(());
        }
        let trans = self.transactions.get(at);
        let length = probe.path().count();
        for &(holder, tc) in &trans.waits_for {
            let closes = holder == first;
            if length >= DEADLOCK_PATH_MAX || (!closes && probe.path().any(|t| t == holder)) {
                continue;
            }
            let to: BlockRef = if closes { probe.origin } else { tc };
            ctx.send(to, Kind::DeadlockProbeOrd, |out| {
                DeadlockProbe::encode(out, probe.origin, probe.path().chain(std::iter::once(holder)));
            });
        }
        Ok(())
    }

    /// A probe came back to the transaction that sent it.
    fn break_cycle(&mut self, victim: TransId, probe: &DeadlockProbe<'_>, ctx: &mut Context<'_>) {
        if probe.path().any(|t| t > victim) {
            return; // that one's own probe ends it
        }
        let Some(at) = self.find(victim, ctx) else { return };
        let trans = self.transactions.get_mut(at);
        if trans.waits_for.is_empty() || !matches!(trans.state, State::Active | State::OnePass) {
            return;
        }
        self.counters.deadlocks += 1;
        ctx.probe("tc: deadlock victim");
        trans.detail.clear();
        trans.detail.extend_from_slice(b"cycle: ");
        for (i, step) in probe.path().enumerate() {
            if i > 0 {
                trans.detail.extend_from_slice(b" waits for ");
            }
            trans.detail.extend_from_slice(step.to_string().as_bytes());
        }
        match trans.state {
            State::OnePass => self.cancel_wait(at, ctx),
            _ => self.start_abort(at, ErrorCode::Deadlock, ctx),
        }
    }

    /// A one-pass batch may have got its lock and be on its way: only its LDM knows, and refuses it if it still waits.
    pub(super) fn cancel_wait(&mut self, at: u32, ctx: &mut Context<'_>) {
        for i in 0..self.transactions.get(at).participants.len() {
            self.send_abort(at, i, CANCEL_WAIT, ctx);
        }
    }
}

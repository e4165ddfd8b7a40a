//! Commits under way, counted by epoch: what a worker waits for before it reports an epoch as drained.
//!
//! TC counts the commits it has ordered, LDM the one-pass batches it has stamped as primary. Both stamp with their worker's epoch,
//! which never goes back: once that is `e` and nothing below `e` is counted, nothing below `e` will be committed from here any more.
//! Limit: an entry per epoch with something under way, so no more than there are transactions.

use std::fmt;

use apus_kernel::{Context, limits};
use apus_signal::{BlockId, BlockRef, Kind, epoch::EpochLate, qmgr::encode};
use apus_types::{Epoch, NodeId};

#[derive(Default, Debug)]
pub struct InFlight {
    /// Epochs with something under way, ascending.
    counts: Vec<(Epoch, u32)>,
}

impl InFlight {
    #[inline]
    pub fn enter(&mut self, epoch: Epoch) {
        match self.counts.last_mut() {
            Some(last) if last.0 == epoch => last.1 += 1,
            Some(last) if last.0 > epoch => self.enter_old(epoch),
            _ => self.counts.push((epoch, 1)),
        }
        assert!(epoch > Epoch(0), "a commit without an epoch is under way");
    }
    /// A commit taken over from a dead coordinator has an epoch of the past.
    #[cold]
    fn enter_old(&mut self, epoch: Epoch) {
        match self.counts.binary_search_by_key(&epoch, |c| c.0) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (epoch, 1)),
        }
    }
    /// # Panics
    /// When nothing of this epoch is under way.
    #[inline]
    pub fn leave(&mut self, epoch: Epoch) {
        let at = self.counts.iter().position(|c| c.0 == epoch);
        let at = at.unwrap_or_else(|| panic!("a commit of epoch {epoch} ended that never began"));
        assert!(self.counts[at].1 > 0, "epoch {epoch} is counted with nothing under way");
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }
    /// Nothing below `epoch` is under way.
    pub fn is_drained(&self, epoch: Epoch) -> bool {
        self.counts.first().is_none_or(|c| c.0 >= epoch)
    }
    /// The oldest epoch with something under way.
    pub fn oldest(&self) -> Option<Epoch> {
        self.counts.first().map(|c| c.0)
    }
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|c| u64::from(c.1)).sum()
    }
}

/// The monitor of epochs: how long a worker has been asked to drain one, in ticks, so that time in which the process stood still
/// does not count. Once per [`limits::EPOCH_LATE_TICKS`] it is said which transaction or take-over is waited for and where (`EpochLateRep`); what
/// becomes of that is QMGR's (`qmgr::stuck`). NDB's GCP monitor does the same.
#[derive(Default, Debug)]
pub struct Patience {
    round: Option<(u64, u64)>,
    ticks: u32,
}

impl Patience {
    /// Once per tick, with the generation and the number of the round that does not end; true when it is time to say who keeps the epoch open.
    pub fn tick(&mut self, round: Option<(u64, u64)>) -> bool {
        self.ticks = if round.is_some() && round == self.round { self.ticks + 1 } else { 0 };
        self.round = round;
        self.ticks > 0 && self.ticks.is_multiple_of(limits::EPOCH_LATE_TICKS)
    }
    /// For how long, in ms of ticks.
    pub fn waited_ms(&self) -> u64 {
        u64::from(self.ticks) * limits::TICK_NS / 1_000_000
    }
    /// `what` waits for an answer of the member `at`.
    pub fn report(&self, me: BlockRef, what: fmt::Arguments<'_>, at: NodeId, ctx: &mut Context<'_>) {
        let Some((generation, _)) = self.round else { return };
        let ms = self.waited_ms();
        let text = format!("{what} keeps an epoch open for {ms} ms: data node {at} does not answer");
        ctx.log(format_args!("{text}"));
        let late = EpochLate { generation, ticks: self.ticks, instance: me.instance.into(), text };
        let qmgr = BlockRef::new(at, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::EpochLateRep, |b| encode(&late, b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_commit_decides() {
        let mut flight = InFlight::default();
        assert!(flight.is_drained(Epoch(u64::MAX)));
        for epoch in [5, 5, 7, 3, 4, 3] {
            flight.enter(Epoch(epoch));
        }
        assert_eq!(flight.total(), 6);
        assert!(flight.is_drained(Epoch(3)) && !flight.is_drained(Epoch(4)));
        flight.leave(Epoch(3));
        flight.leave(Epoch(4));
        assert!(!flight.is_drained(Epoch(5)));
        flight.leave(Epoch(3));
        assert!(flight.is_drained(Epoch(5)) && !flight.is_drained(Epoch(6)));
        flight.leave(Epoch(5));
        flight.leave(Epoch(7));
        flight.leave(Epoch(5));
        assert_eq!(flight.total(), 0);
    }
}

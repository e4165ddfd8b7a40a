//! Commits under way, counted by epoch: what a worker waits for before it reports an epoch as drained.
//!
//! TC counts the commits it has ordered, LDM the one-pass batches it has stamped as primary. Both stamp with their worker's epoch,
//! which never goes back: once that is `e` and nothing below `e` is counted, nothing below `e` will be committed from here any more.
//! Limit: an entry per epoch with something under way, so no more than there are transactions.

use apus_types::Epoch;

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
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }
    /// Nothing below `epoch` is under way.
    pub fn is_drained(&self, epoch: Epoch) -> bool {
        self.counts.first().is_none_or(|c| c.0 >= epoch)
    }
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|c| u64::from(c.1)).sum()
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

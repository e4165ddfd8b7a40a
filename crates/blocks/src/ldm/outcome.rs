//! Memory of commits, so that a client whose coordinator died learns what became of its transaction.
//!
//! A fixed table of the last [`OUTCOMES`] committed transactions of this LDM instance, open addressing, overwritten oldest first.
//! A question about a transaction that may be older than the memory is answered "forgotten", never "aborted": the memory
//! begins when the node joined a running cluster, and later where entries were overwritten.

use apus_types::TransId;
use apus_types::collections::FixedMap;

/// Commits remembered per LDM instance: at 100,000 commits a second about 2.6 s, many times what a client with a lost link needs.
pub const OUTCOMES: usize = 1 << 18;
/// Added to the age that a client names: what its question and the cluster's clocks may be late.
const LATENESS_NS: u64 = 2_000_000_000;
/// A statement that waits for a node to leave is not older.
const STATEMENT_NS: u64 = 500_000_000;

#[derive(Debug, Default)]
pub struct Outcomes {
    ring: Vec<(TransId, u64)>,
    next: usize,
    known: FixedMap<TransId, ()>,
    /// Time of the newest commit that may have been forgotten.
    forgotten_at: Option<u64>,
    joined_at: Option<u64>,
}

impl Outcomes {
    /// Remembers a commit; idempotent.
    pub fn record(&mut self, trans: TransId, now: u64) {
        if self.known.insert(trans, ()).is_some() {
            return;
        }
        if self.ring.len() < OUTCOMES {
            self.ring.push((trans, now));
            return;
        }
        let (old, at) = std::mem::replace(&mut self.ring[self.next], (trans, now));
        self.known.remove(&old);
        self.forgotten_at = Some(at);
        self.next = (self.next + 1) % OUTCOMES;
    }
    /// This node joins a running cluster now: of what it did before, nothing is known here.
    pub fn joined(&mut self, now: u64) {
        self.forgotten_at = Some(now);
        self.joined_at = Some(now);
    }
    /// This node cannot tell yet what became of a statement that a client loses now.
    pub fn is_young(&self, now: u64) -> bool {
        self.joined_at.is_some_and(|at| now.saturating_sub(at) <= LATENESS_NS + STATEMENT_NS)
    }
    pub fn committed(&self, trans: TransId) -> bool {
        self.known.contains_key(&trans)
    }
    /// Whether the commit of a transaction that began `age_ms` ago could have been forgotten.
    pub fn may_have_forgotten(&self, now: u64, age_ms: u32) -> bool {
        let since = u64::from(age_ms) * 1_000_000 + LATENESS_NS;
        self.forgotten_at.is_some_and(|at| now.saturating_sub(at) <= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_joined_knows_nothing_older() {
        let mut outcomes = Outcomes::default();
        assert!(!outcomes.may_have_forgotten(5, 1000), "nothing was before the cluster");
        outcomes.joined(7_000_000);
        assert!(outcomes.may_have_forgotten(8_000_000, 1));
        assert!(outcomes.may_have_forgotten(LATENESS_NS + 17_000_000, 10));
        assert!(!outcomes.may_have_forgotten(LATENESS_NS + 17_000_001, 10));
    }

    #[test]
    fn the_oldest_goes_first_and_is_owned_up_to() {
        let mut outcomes = Outcomes::default();
        let id = |seq| TransId { client: 9, seq };
        for seq in 1..=OUTCOMES as u64 + 10 {
            outcomes.record(id(seq), seq);
            outcomes.record(id(seq), seq);
        }
        assert!(!outcomes.committed(id(10)));
        assert!(outcomes.committed(id(11)));
        assert!(outcomes.may_have_forgotten(11, 0));
        assert!(outcomes.may_have_forgotten(10 + LATENESS_NS + 1_000_000, 1));
        assert!(!outcomes.may_have_forgotten(11 + LATENESS_NS + 1_000_000, 1));
    }
}

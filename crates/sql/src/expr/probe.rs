//! What EXPLAIN ANALYZE counts: how often each part of a plan was run, how many rows it gave, and when.
//!
//! A part is named by its address in the plan ([`of`]), which stays where it is while the statement runs. Nothing is counted unless someone asks ([`Env::begin_counting`](super::Env::begin_counting)).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// What is told apart within one part of a plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    /// Rows that were read for it.
    Read,
    /// Rows that satisfied the condition on the table alone, or matched in a join.
    Matched,
    /// Rows that it gave on.
    Given,
}

/// A part of a plan.
pub type Part = (usize, Of);

pub fn of<T>(part: &T, what: Of) -> Part {
    (std::ptr::from_ref(part).addr(), what)
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Counted {
    pub loops: u64,
    pub rows: u64,
    /// From the start of the statement to the first row and to the last.
    pub first: Option<Duration>,
    pub last: Duration,
}

#[derive(Debug)]
pub struct Counts {
    start: Instant,
    parts: BTreeMap<Part, Counted>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { start: Instant::now(), parts: BTreeMap::new() }
    }
}

impl Counts {
    pub fn add(&mut self, part: Part, loops: u64, rows: u64) {
        let at = self.start.elapsed();
        let counted = self.parts.entry(part).or_default();
        counted.loops += loops;
        counted.rows += rows;
        if rows > 0 {
            counted.first.get_or_insert(at);
        }
        counted.last = at;
    }

    pub fn get(&self, part: Part) -> Option<Counted> {
        self.parts.get(&part).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_by_themselves() {
        let (a, b) = (1u8, 2u8);
        let mut counts = Counts::default();
        counts.add(of(&a, Of::Read), 1, 0);
        assert_eq!(counts.get(of(&a, Of::Read)).and_then(|c| c.first), None, "no row yet");
        counts.add(of(&a, Of::Read), 0, 3);
        counts.add(of(&a, Of::Read), 1, 2);
        let read = counts.get(of(&a, Of::Read)).unwrap();
        assert_eq!((read.loops, read.rows), (2, 5));
        assert!(read.first.unwrap() <= read.last);
        assert!(counts.get(of(&a, Of::Given)).is_none() && counts.get(of(&b, Of::Read)).is_none());
    }
}

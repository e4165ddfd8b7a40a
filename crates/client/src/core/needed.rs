//! Which transactions of this client may still be asked about: the nodes keep their outcomes.
//!
//! Numbers are given out in order and ended in any order. One bit per number from the lowest that is not ended to the highest; a word goes
//! when all of it is ended, so that one transaction that stays open costs a bit for each that begins after it, up to [`FLOOR_DEPTH`].

use std::collections::VecDeque;

use apus_signal::tc::FLOOR_DEPTH;

/// Numbers that are remembered at most, 512 KiB of bits.
const NUMBERS_MAX: usize = FLOOR_DEPTH as usize;
const WORD: u64 = 64;

pub(crate) struct Needed {
    /// First number of the first word.
    base: u64,
    next: u64,
    /// Set: ended.
    ended: VecDeque<u64>,
}

impl Needed {
    /// Numbers begin with 1.
    pub fn new() -> Needed {
        Needed { base: 0, next: 1, ended: VecDeque::from([1]) }
    }
    pub fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        if (number - self.base) / WORD >= self.ended.len() as u64 {
            if self.ended.len() * WORD as usize >= NUMBERS_MAX {
                self.ended.pop_front();
                self.base += WORD;
            }
            self.ended.push_back(0);
        }
        number
    }
    /// Nobody will ask about it any more; ending twice is ending once.
    pub fn end(&mut self, number: u64) {
        let Some(at) = number.checked_sub(self.base) else { return };
        let Some(word) = self.ended.get_mut((at / WORD) as usize) else { return };
        *word |= 1 << (at % WORD);
        while self.ended.len() > 1 && self.ended.front() == Some(&u64::MAX) {
            self.ended.pop_front();
            self.base += WORD;
        }
    }
    /// All numbers below are ended.
    pub fn floor(&self) -> u64 {
        self.base + self.ended.front().map_or(0, |word| u64::from(word.trailing_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_lowest_that_is_open() {
        let mut needed = Needed::new();
        let numbers: Vec<u64> = (0..1000).map(|_| needed.begin()).collect();
        assert_eq!((numbers[0], needed.floor()), (1, 1));
        numbers.iter().rev().filter(|n| **n != 700).for_each(|n| needed.end(*n));
        assert_eq!((needed.floor(), needed.ended.len()), (700, 1000 / 64 + 1 - 10));
        needed.end(3);
        needed.end(700);
        assert_eq!(needed.floor(), needed.next);
        for _ in 0..10_000 {
            let number = needed.begin();
            needed.end(number);
            assert_eq!(needed.floor(), number + 1);
        }
        assert!(needed.ended.len() <= 2);
    }

    #[test]
    fn one_that_stays_open_costs_no_more_than_the_limit() {
        let mut needed = Needed::new();
        needed.begin();
        for _ in 0..NUMBERS_MAX + 1000 {
            let number = needed.begin();
            needed.end(number);
        }
        assert!(needed.ended.len() * WORD as usize <= NUMBERS_MAX);
        assert!(needed.floor() > 1);
    }
}

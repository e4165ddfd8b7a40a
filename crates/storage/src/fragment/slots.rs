//! The slots of a fragment: which row has which number.
//!
//! The primary gives a new row the lowest free slot; every other replica is told that number and takes it ([`Slots::take_at`]). So a row
//! has the same [`RowId`] wherever it is, and what names a row by it (a copied row, a log, a checkpoint) means the same on
//! each node.
//!
//! Free slots are found in a tree of bitmaps: a bit of a level says whether its word in the level below has a bit set. A slot that no row has may still
//! be counted for (`incomplete`) or listed to be visited (`kept_next`), because a replica has given up its row early
//! ([`crate::Fragment::evict`]); the next row of the slot takes both over.

use apus_types::ErrorCode;

use super::{RowId, versions::NOT_KEPT};
use crate::{
    memory::{MemoryManager, Region},
    record::RecRef,
};

pub const INLINE_KEY: usize = 16;
/// Slots of a page: what a checkpoint writes as a whole.
pub const CHUNK: usize = 256;
/// Slots of a fragment. The numbers above are marks in lists of rows.
const SLOTS_MAX: u32 = u32::MAX - 1024;

#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub head: RecRef,
    pub lock: u32,
    pub incomplete: u32,
    pub hash: u64,
    /// The key, or the record that holds it (little-endian, in the first 8 bytes) when it is longer.
    pub key: [u8; INLINE_KEY],
    pub key_length: u16,
    /// The next row in the same bucket of [`super::versions::Kept`], or that there is none, or that the row is in no bucket.
    pub kept_next: u32,
    pub used: bool,
}

pub const FREE: Slot = Slot {
    head: RecRef::NONE,
    lock: 0,
    incomplete: 0,
    hash: 0,
    key: [0; INLINE_KEY],
    key_length: 0,
    kept_next: NOT_KEPT,
    used: false,
};
const _: () = assert!(size_of::<Slot>() == 48);

#[derive(Default)]
pub struct Slots {
    chunks: Vec<Box<[Slot; CHUNK]>>,
    /// Of each chunk: the round in which a row of it got its newest committed version.
    changed: Vec<u32>,
    /// The one that changes are of now.
    round: u32,
    /// Slots that a row has or had.
    reached: u32,
    free: Bits,
}

impl Slots {
    /// How many there are, free ones among them.
    pub fn reached(&self) -> u32 {
        self.reached
    }
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot>()
    }
    #[inline]
    pub fn get(&self, row: RowId) -> &Slot {
        &self.chunks[row.0 as usize / CHUNK][row.0 as usize % CHUNK]
    }
    #[inline]
    pub fn get_mut(&mut self, row: RowId) -> &mut Slot {
        &mut self.chunks[row.0 as usize / CHUNK][row.0 as usize % CHUNK]
    }
    /// Changes are of this round from now on.
    pub fn begin_round(&mut self, round: u32) {
        self.round = round;
    }
    #[inline]
    pub fn note_changed(&mut self, row: RowId) {
        self.changed[row.0 as usize / CHUNK] = self.round;
    }
    /// The round in which the page was changed last; `None`: there is no such page.
    pub fn changed_in(&self, page: u32) -> Option<u32> {
        self.changed.get(page as usize).copied()
    }
    /// A row has this slot.
    #[inline]
    pub fn is_used(&self, row: RowId) -> bool {
        row.0 < self.reached && self.get(row).used
    }

    /// Takes the lowest free slot.
    ///
    /// # Errors
    /// Without memory nothing changes.
    pub fn take(&mut self, memory: &MemoryManager) -> Result<RowId, ErrorCode> {
        let row = RowId(self.free.first().unwrap_or(self.reached));
        self.take_at(row, memory)?;
        Ok(row)
    }

    /// Takes this slot; those below it that were never used become free.
    ///
    /// # Errors
    /// Without memory nothing changes.
    ///
    /// # Panics
    /// If a row has it.
    pub fn take_at(&mut self, row: RowId, memory: &MemoryManager) -> Result<(), ErrorCode> {
        if row.0 >= SLOTS_MAX {
            return Err(ErrorCode::OutOfMemory);
        }
        while self.chunks.len() <= row.0 as usize / CHUNK {
            if !memory.account(Region::Data, CHUNK * size_of::<Slot>(), true) {
                return Err(ErrorCode::OutOfMemory);
            }
            self.chunks.push(Box::new([FREE; CHUNK]));
            self.changed.push(self.round);
        }
        if row.0 < self.reached {
            assert!(self.free.remove(row.0), "slot {} is given to two rows", row.0);
        } else {
            (self.reached..row.0).for_each(|free| self.free.insert(free));
            self.reached = row.0 + 1;
        }
        Ok(())
    }

    /// The slot's row is gone.
    pub fn give_back(&mut self, row: RowId) {
        let slot = self.get_mut(row);
        *slot = Slot { incomplete: slot.incomplete, kept_next: slot.kept_next, ..FREE };
        self.free.insert(row.0);
    }

    /// Every slot is used or free, never both.
    pub fn verify(&self) -> Result<(), String> {
        match (0..self.reached).find(|&slot| self.free.contains(slot) == self.get(RowId(slot)).used) {
            Some(slot) => Err(format!("slot {slot} is both free and used, or neither")),
            None => Ok(()),
        }
    }
}

/// A set of numbers whose lowest is found in a step per level.
#[derive(Default)]
struct Bits {
    /// A bit per number, then a bit per word of the level before, up to a level of one word.
    levels: Vec<Vec<u64>>,
}

impl Bits {
    /// Makes room for the number: words, and levels above them until one of a single word.
    fn reach(&mut self, number: u32) {
        let mut words = number as usize / 64 + 1;
        for level in 0.. {
            if level == self.levels.len() {
                // What was the top has one word so far.
                let below = level.checked_sub(1).and_then(|below| self.levels[below].first());
                let has_any = below.is_some_and(|&word| word != 0);
                self.levels.push(vec![u64::from(has_any)]);
            }
            let count = self.levels[level].len().max(words);
            self.levels[level].resize(count, 0);
            if count == 1 {
                return;
            }
            words = words.div_ceil(64);
        }
    }

    fn insert(&mut self, number: u32) {
        self.reach(number);
        let mut at = number as usize;
        for words in &mut self.levels {
            let was = words[at / 64];
            words[at / 64] |= 1 << (at % 64);
            if was != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// `false`: it was not there.
    fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        let mut at = number as usize;
        for words in &mut self.levels {
            words[at / 64] &= !(1 << (at % 64));
            if words[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    fn contains(&self, number: u32) -> bool {
        let word = self.levels.first().and_then(|words| words.get(number as usize / 64));
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    fn first(&self) -> Option<u32> {
        let mut at = 0;
        for words in self.levels.iter().rev() {
            let word = words.get(at).copied().unwrap_or(0);
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        (!self.levels.is_empty()).then_some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bits_agree_with_a_set() {
        let (mut bits, mut model, mut seed) = (Bits::default(), BTreeSet::new(), 1u64);
        for step in 0..30_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (seed >> 40) as u32 % if step < 10_000 { 500 } else { 300_000 };
            if seed >> 63 == 0 {
                bits.insert(number);
                model.insert(number);
            } else {
                let lowest = model.first().copied().filter(|_| seed >> 62 & 1 == 0).unwrap_or(number);
                assert_eq!(bits.remove(lowest), model.remove(&lowest));
            }
            assert_eq!(bits.first(), model.first().copied(), "step {step}");
            assert_eq!(bits.contains(number), model.contains(&number));
        }
    }

    #[test]
    fn a_replica_takes_the_slots_that_it_is_told() {
        let memory = MemoryManager::new(64 << 20);
        let mut slots = Slots::default();
        for wanted in [700, 3, 0] {
            slots.take_at(RowId(wanted), &memory).unwrap();
            slots.get_mut(RowId(wanted)).used = true;
        }
        slots.verify().unwrap();
        assert_eq!(slots.take(&memory).unwrap(), RowId(1), "the lowest that is free");
        slots.get_mut(RowId(1)).used = true;
        slots.give_back(RowId(0));
        slots.verify().unwrap();
        assert_eq!(slots.take(&memory).unwrap(), RowId(0));
        assert!(slots.take_at(RowId(u32::MAX), &memory).is_err(), "no slot has this number");
    }
}

//! The slots of a fragment: which row has which number.
//!
//! The primary gives a new row the lowest free slot; every other replica is told that number and takes it ([`Slots::take_at`]). So a row
//! has the same [`RowId`] wherever it is, and what names a row by it (a copied row, a log, a checkpoint) means the same on
//! each node.
//!
//! **8 bytes.** A slot has the name of a record. The record is the row's newest version, or, of a row that has none (it is being inserted, or was
//! deleted and is still locked), a *bare* one that is there for its key. The lock word, the count of changes that are not complete and the place in a list of kept rows are nothing
//! for most rows at most times. A row that has one of them is *active*: they are in an entry of a table beside the slots, the name of the record with them, and the slot
//! names the entry. A lock that is a change needs none (module `idle`). A row is looked at when something of it ends ([`Slots::settle`]). The table has an entry for each lock and each kept version at
//! most, which were paid for with memory before, so it is never refused any.
//!
//! Free slots are found in a tree of bitmaps: a bit of a level says whether its word in the level below has a bit set. A slot that no row has may still
//! be counted for (`incomplete`) or listed to be visited (`kept_next`), because a replica has given up its row early
//! ([`crate::Fragment::evict`]); the next row of the slot takes both over.

use apus_types::{Epoch, ErrorCode};

use super::{RowId, versions::NOT_KEPT};
use crate::{
    memory::{MemoryManager, Region},
    record::RecRef,
};

/// Slots of a page: what a checkpoint writes as a whole.
pub const CHUNK: usize = 256;
/// Slots of a fragment. The numbers above are marks in lists of rows.
const SLOTS_MAX: u32 = u32::MAX - 1024;
/// Chunks of the table of active rows that are given back at a time.
const CHUNKS_BACK: usize = 4;

/// In the name of a record: it is no version.
const BARE: u64 = 1 << 62;
/// In a slot: it names an entry of the table of active rows.
const ACTIVE: u64 = 1 << 61;

/// A record, with [`BARE`]; or [`ACTIVE`] and an entry; or nothing.
type Slot = u64;

static FREE: Slot = 0;

/// What a row has for a while.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Active {
    /// The record, as in a slot that is not active.
    record: u64,
    lock: u32,
    incomplete: u32,
    /// The next row in the same bucket of [`super::versions::Kept`], or that there is none, or that the row is in no bucket. Of a free entry: the next free one.
    kept_next: u32,
}

const IDLE: Active = Active { record: 0, lock: 0, incomplete: 0, kept_next: NOT_KEPT };

/// The record of a row, read once.
#[derive(Clone, Copy)]
pub struct Name(u64);

impl Name {
    /// A row has the slot.
    #[inline]
    pub fn is_used(self) -> bool {
        self.0 != 0
    }
    /// The newest version; none of a row that has only a key, and of a free slot.
    #[inline]
    pub fn head(self) -> RecRef {
        if self.0 & BARE == 0 { RecRef(self.0) } else { RecRef::NONE }
    }
    /// The record that has the row's key; none of a free slot, and of a row that was just made.
    #[inline]
    pub fn holder(self) -> RecRef {
        RecRef(self.0 & !BARE)
    }
}

#[derive(Default)]
struct Actives {
    chunks: Vec<Box<[Active; CHUNK]>>,
    /// Entries that were used since the table was last empty, of so many.
    fresh: u32,
    room: u32,
    /// The first free one of them, plus one.
    free: u32,
    used: u32,
}

impl Actives {
    #[inline]
    fn get(&self, entry: u32) -> &Active {
        &self.chunks[entry as usize / CHUNK][entry as usize % CHUNK]
    }
    #[inline]
    fn get_mut(&mut self, entry: u32) -> &mut Active {
        &mut self.chunks[entry as usize / CHUNK][entry as usize % CHUNK]
    }
    #[inline]
    fn add(&mut self, active: Active, memory: &MemoryManager) -> u32 {
        let entry = match self.free {
            0 => {
                if self.fresh == self.room {
                    self.grow(memory);
                }
                self.fresh += 1;
                self.fresh - 1
            }
            next => {
                self.free = self.get(next - 1).kept_next;
                next - 1
            }
        };
        self.used += 1;
        *self.get_mut(entry) = active;
        entry
    }
    #[cold]
    fn grow(&mut self, memory: &MemoryManager) {
        memory.account_anyway(Region::Data, CHUNK * size_of::<Active>());
        self.chunks.push(Box::new([IDLE; CHUNK]));
        self.room += CHUNK as u32;
    }
    #[inline]
    fn remove(&mut self, entry: u32, memory: &MemoryManager) {
        assert!(self.used > 0 && entry < self.fresh, "entry {entry} of {} active rows ends", self.used);
        self.used -= 1;
        if self.used > 0 {
            self.get_mut(entry).kept_next = self.free;
            self.free = entry + 1;
            return;
        }
        (self.free, self.fresh) = (0, 0);
        if self.chunks.len() > 1 {
            self.shrink(memory);
        }
    }
    #[cold]
    fn shrink(&mut self, memory: &MemoryManager) {
        for _ in 0..CHUNKS_BACK.min(self.chunks.len() - 1) {
            self.chunks.pop();
            self.room -= CHUNK as u32;
            memory.unaccount(Region::Data, CHUNK * size_of::<Active>());
        }
    }
}

#[derive(Default)]
pub struct Slots {
    /// `None`: no row has a slot of it.
    chunks: Vec<Option<Box<[Slot; CHUNK]>>>,
    /// Of each chunk: its slots that rows have, those made for a row to come among them.
    taken: Vec<u16>,
    /// A chunk that was left by its last row, and is kept for the next one.
    kept: Option<u32>,
    present: usize,
    /// Of each chunk: the round in which a row of it got its newest committed version.
    changed: Vec<u32>,
    /// Of each chunk: the epoch of the newest version that was committed in it, stamped ones only.
    newest: Vec<Epoch>,
    /// The one that changes are of now.
    round: u32,
    /// Slots that a row has or had.
    reached: u32,
    free: Bits,
    actives: Actives,
}

impl Slots {
    /// How many there are, free ones among them.
    pub fn reached(&self) -> u32 {
        self.reached
    }
    pub fn bytes(&self) -> usize {
        self.present * CHUNK * size_of::<Slot>() + self.actives.chunks.len() * CHUNK * size_of::<Active>()
    }
    #[inline]
    fn slot(&self, row: RowId) -> &Slot {
        match &self.chunks[row.0 as usize / CHUNK] {
            Some(chunk) => &chunk[row.0 as usize % CHUNK],
            None => &FREE,
        }
    }
    #[inline]
    fn slot_mut(&mut self, row: RowId) -> &mut Slot {
        let chunk = self.chunks[row.0 as usize / CHUNK].as_mut().expect("a slot that no row has");
        &mut chunk[row.0 as usize % CHUNK]
    }
    /// Where the slot is, for a prefetch.
    #[inline]
    pub fn place(&self, row: RowId) -> &u64 {
        self.slot(row)
    }
    /// The same, of a number that may be of no slot.
    #[inline]
    pub fn place_at(&self, row: RowId) -> Option<&u64> {
        let chunk = self.chunks.get(row.0 as usize / CHUNK)?.as_deref()?;
        Some(&chunk[row.0 as usize % CHUNK])
    }
    #[inline]
    fn active(&self, row: RowId) -> Option<&Active> {
        let word = *self.slot(row);
        (word & ACTIVE != 0).then(|| self.actives.get(word as u32))
    }
    /// The entry of a row, made if there is none.
    #[inline]
    fn active_mut(&mut self, row: RowId, memory: &MemoryManager) -> &mut Active {
        let word = *self.slot(row);
        let entry = match word & ACTIVE {
            0 => self.activate(row, 0, memory),
            _ => word as u32,
        };
        self.actives.get_mut(entry)
    }
    /// Makes an entry for a row that has none, with this lock.
    pub fn activate(&mut self, row: RowId, lock: u32, memory: &MemoryManager) -> u32 {
        let slot = *self.slot(row);
        assert!(slot & ACTIVE == 0, "row {row:?} has an entry and gets another one");
        let entry = self.actives.add(Active { record: slot, lock, ..IDLE }, memory);
        *self.slot_mut(row) = ACTIVE | u64::from(entry);
        entry
    }
    /// The row has nothing any more that an entry is for, perhaps. What is left of a row that has none: its record.
    #[inline]
    pub fn settle(&mut self, row: RowId, memory: &MemoryManager) -> Option<Name> {
        let word = *self.slot(row);
        if word & ACTIVE == 0 {
            return Some(Name(word));
        }
        let entry = *self.actives.get(word as u32);
        if entry != (Active { record: entry.record, ..IDLE }) {
            return None;
        }
        *self.slot_mut(row) = entry.record;
        self.actives.remove(word as u32, memory);
        Some(Name(entry.record))
    }
    /// The entry and the record of a row that has this lock and nothing else that an entry is for.
    #[inline]
    pub fn locked_only(&self, row: RowId, lock: u32) -> Option<(u32, Name)> {
        let word = *self.slot(row);
        if word & ACTIVE == 0 {
            return None;
        }
        let active = self.actives.get(word as u32);
        let is_all = active.lock == lock && active.incomplete == 0 && active.kept_next == NOT_KEPT;
        is_all.then_some((word as u32, Name(active.record)))
    }
    /// Such a row gives its lock back, and has this version.
    #[inline]
    pub fn unlock_only(&mut self, row: RowId, entry: u32, head: RecRef, memory: &MemoryManager) {
        let slot = self.slot_mut(row);
        assert!(*slot == ACTIVE | u64::from(entry), "row {row:?} gives back a lock that it has not");
        *slot = head.0;
        self.actives.remove(entry, memory);
    }
    #[inline]
    fn record(&self, row: RowId) -> u64 {
        let word = *self.slot(row);
        if word & ACTIVE == 0 { word } else { self.actives.get(word as u32).record }
    }
    /// What the slot says, read once.
    #[inline]
    pub fn name(&self, row: RowId) -> Name {
        Name(self.record(row))
    }
    /// The same of a row that has nothing that an entry is for.
    #[inline]
    pub fn idle(&self, row: RowId) -> Option<Name> {
        let word = *self.slot(row);
        (word & ACTIVE == 0).then_some(Name(word))
    }
    /// The same, of a number that may be of no slot.
    #[inline]
    pub fn idle_at(&self, row: RowId) -> Option<Name> {
        let word = *self.place_at(row)?;
        (word & ACTIVE == 0).then_some(Name(word))
    }
    /// What the slot says, of a number that may be of no slot.
    #[inline]
    pub fn name_at(&self, row: RowId) -> Name {
        match self.place_at(row) {
            None => Name(0),
            Some(&word) if word & ACTIVE == 0 => Name(word),
            Some(&word) => Name(self.actives.get(word as u32).record),
        }
    }
    #[inline]
    fn set_record(&mut self, row: RowId, record: u64) {
        let word = *self.slot(row);
        match word & ACTIVE {
            0 => *self.slot_mut(row) = record,
            _ => self.actives.get_mut(word as u32).record = record,
        }
    }

    #[inline]
    pub fn head(&self, row: RowId) -> RecRef {
        self.name(row).head()
    }
    #[inline]
    pub fn holder(&self, row: RowId) -> RecRef {
        self.name(row).holder()
    }
    /// The row was found with the record `before` and without an entry, and has this one now.
    #[inline(always)]
    pub fn replace_head(&mut self, row: RowId, before: RecRef, head: RecRef) {
        let slot = self.slot_mut(row);
        assert!(*slot == before.0, "row {row:?} is not any more as it was found");
        *slot = head.0;
    }
    #[inline]
    pub fn set_head(&mut self, row: RowId, head: RecRef) {
        assert!(!head.is_none(), "row {row:?} would be without a record");
        self.set_record(row, head.0);
    }
    /// The row has no version any more; what was the newest stays for its key.
    pub fn bare(&mut self, row: RowId) {
        let record = self.record(row);
        assert!(record != 0, "row {row:?} does not exist and is bare");
        self.set_record(row, record | BARE);
    }
    /// A row has the slot from now on, without a version; `record` has its key, if any has.
    #[inline]
    pub fn fill(&mut self, row: RowId, record: RecRef) {
        assert!(self.record(row) == 0, "slot {row:?} is not free");
        self.set_record(row, record.0 | BARE);
    }
    #[inline]
    pub fn lock(&self, row: RowId) -> u32 {
        self.active(row).map_or(0, |active| active.lock)
    }
    #[inline]
    pub fn lock_mut(&mut self, row: RowId, memory: &MemoryManager) -> &mut u32 {
        &mut self.active_mut(row, memory).lock
    }
    #[inline]
    pub fn incomplete(&self, row: RowId) -> u32 {
        self.active(row).map_or(0, |active| active.incomplete)
    }
    #[inline]
    pub fn incomplete_mut(&mut self, row: RowId, memory: &MemoryManager) -> &mut u32 {
        &mut self.active_mut(row, memory).incomplete
    }
    #[inline]
    pub fn kept_next(&self, row: RowId) -> u32 {
        self.active(row).map_or(NOT_KEPT, |active| active.kept_next)
    }
    /// Sets it, and gives what it was.
    pub fn set_kept_next(&mut self, row: RowId, next: u32, memory: &MemoryManager) -> u32 {
        let before = std::mem::replace(&mut self.active_mut(row, memory).kept_next, next);
        self.settle(row, memory);
        before
    }

    /// Changes are of this round from now on.
    pub fn begin_round(&mut self, round: u32) {
        self.round = round;
    }
    /// A row was committed in `epoch`, or, where that is 0, given up.
    #[inline]
    pub fn note_changed(&mut self, row: RowId, epoch: Epoch) {
        let at = row.0 as usize / CHUNK;
        self.changed[at] = self.round;
        self.newest[at] = self.newest[at].max(epoch);
    }
    /// The epoch of the newest version that was committed in the page.
    pub fn newest_in(&self, page: u32) -> Epoch {
        self.newest.get(page as usize).copied().unwrap_or(Epoch(0))
    }
    /// The round in which the page was changed last; `None`: there is no such page.
    pub fn changed_in(&self, page: u32) -> Option<u32> {
        self.changed.get(page as usize).copied()
    }
    /// A row has this slot.
    #[inline]
    pub fn is_used(&self, row: RowId) -> bool {
        self.name_at(row).is_used()
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
        let at = row.0 as usize / CHUNK;
        if self.chunks.get(at).is_none_or(Option::is_none) {
            if !memory.account(Region::Data, CHUNK * size_of::<Slot>(), true) {
                return Err(ErrorCode::OutOfMemory);
            }
            while self.chunks.len() <= at {
                self.chunks.push(None);
                self.taken.push(0);
                self.changed.push(self.round);
                self.newest.push(Epoch(0));
            }
            self.chunks[at] = Some(Box::new([FREE; CHUNK]));
            self.present += 1;
        }
        self.taken[at] += 1;
        if self.kept == Some(at as u32) {
            self.kept = None;
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
    pub fn give_back(&mut self, row: RowId, memory: &MemoryManager) {
        assert!(self.lock(row) == 0, "the row of slot {row:?} is gone and locked");
        self.set_record(row, 0);
        self.settle(row, memory);
        self.free.insert(row.0);
        let at = row.0 / CHUNK as u32;
        self.taken[at as usize] -= 1;
        if self.taken[at as usize] == 0
            && let Some(before) = self.kept.replace(at)
        {
            self.drop_chunk(before as usize, memory);
        }
    }
    /// Gives a chunk back that no row has a slot of, unless a row that is gone is still counted for or listed.
    fn drop_chunk(&mut self, at: usize, memory: &MemoryManager) {
        assert!(self.taken[at] == 0, "a chunk of {} slots in use is given back", self.taken[at]);
        if self.chunks[at].take_if(|chunk| chunk.iter().all(|slot| *slot == 0)).is_some() {
            self.present -= 1;
            memory.unaccount(Region::Data, CHUNK * size_of::<Slot>());
        }
    }

    /// Every slot is used or free, never both, and every entry of the table of active rows has its row.
    pub fn verify(&self) -> Result<(), String> {
        let rows = || (0..self.reached).map(RowId);
        if let Some(row) = rows().find(|&row| self.free.contains(row.0) == self.is_used(row)) {
            return Err(format!("slot {row:?} is both free and used, or neither"));
        }
        let has_slot = |at: usize| (0..CHUNK).filter(|slot| self.is_used(RowId((at * CHUNK + slot) as u32))).count();
        if let Some(at) = (0..self.chunks.len()).find(|&at| usize::from(self.taken[at]) != has_slot(at)) {
            return Err(format!("chunk {at} has {} rows, {} are counted", has_slot(at), self.taken[at]));
        }
        if self.present != self.chunks.iter().flatten().count() {
            return Err(format!("{} chunks of slots are counted", self.present));
        }
        let active = rows().filter(|&row| self.active(row).is_some()).count();
        if active != self.actives.used as usize {
            return Err(format!("{active} rows are active, {} entries are used", self.actives.used));
        }
        Ok(())
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
            slots.fill(RowId(wanted), RecRef(9));
        }
        slots.verify().unwrap();
        assert_eq!(slots.take(&memory).unwrap(), RowId(1), "the lowest that is free");
        slots.fill(RowId(1), RecRef(9));
        slots.give_back(RowId(0), &memory);
        slots.verify().unwrap();
        assert_eq!(slots.take(&memory).unwrap(), RowId(0));
        assert!(slots.take_at(RowId(u32::MAX), &memory).is_err(), "no slot has this number");
        // Chunks that no row has a slot of go, but for one of them.
        slots.fill(RowId(0), RecRef(9));
        for row in 2..5 * CHUNK as u32 {
            if !slots.is_used(RowId(row)) {
                slots.take_at(RowId(row), &memory).unwrap();
                slots.fill(RowId(row), RecRef(9));
            }
        }
        let full = slots.bytes();
        (0..5 * CHUNK as u32).for_each(|row| slots.give_back(RowId(row), &memory));
        slots.verify().unwrap();
        assert_eq!((slots.bytes(), slots.reached()), (full / 5, 5 * CHUNK as u32));
        assert_eq!(memory.usage().map(|region| region.used).sum::<u64>(), slots.bytes() as u64);
        assert_eq!(slots.take(&memory).unwrap(), RowId(0));
    }

    /// Rows come and go in the table of active rows as they are locked, counted for and listed, and it gives its memory back.
    #[test]
    fn rows_are_active_while_they_have_something() {
        let (memory, rows, mut seed) = (MemoryManager::new(64 << 20), 20 * CHUNK as u32, 5u64);
        let (mut slots, mut model) = (Slots::default(), vec![(0u32, 0u32, NOT_KEPT); rows as usize]);
        for row in (0..rows).map(RowId) {
            slots.take_at(row, &memory).unwrap();
            slots.fill(row, RecRef(9));
        }
        let check = |slots: &Slots, row: RowId, (lock, incomplete, next): (u32, u32, u32)| {
            assert_eq!((slots.lock(row), slots.incomplete(row), slots.kept_next(row)), (lock, incomplete, next));
            assert_eq!((slots.holder(row), slots.head(row)), (RecRef(9), RecRef::NONE));
        };
        for step in 0..100_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let row = RowId((seed >> 40) as u32 % rows);
            let (state, value) = (&mut model[row.0 as usize], if step < 50_000 { step } else { 0 });
            match seed >> 62 {
                0 => {
                    *slots.lock_mut(row, &memory) = {
                        state.0 = value;
                        value
                    }
                }
                1 => {
                    *slots.incomplete_mut(row, &memory) = {
                        state.1 = value;
                        value
                    }
                }
                _ => {
                    let next = if value == 0 { NOT_KEPT } else { value };
                    assert_eq!(slots.set_kept_next(row, next, &memory), std::mem::replace(&mut state.2, next));
                }
            }
            slots.settle(row, &memory);
            check(&slots, row, *state);
        }
        slots.verify().unwrap();
        assert!(slots.actives.used > 0 && slots.actives.chunks.len() > 10);
        for (row, state) in (0..).map(RowId).zip(&model) {
            check(&slots, row, *state);
            (*slots.lock_mut(row, &memory), *slots.incomplete_mut(row, &memory)) = (0, 0);
            slots.set_kept_next(row, NOT_KEPT, &memory);
        }
        slots.verify().unwrap();
        for _ in 0..10 {
            *slots.lock_mut(RowId(3), &memory) = 1;
            *slots.lock_mut(RowId(3), &memory) = 0;
            slots.settle(RowId(3), &memory);
        }
        assert_eq!((slots.actives.used, slots.actives.chunks.len()), (0, 1));
        assert_eq!(memory.usage().map(|region| region.used).sum::<u64>(), slots.bytes() as u64);
    }
}

//! The rows of transactions: a slab of entries in chunks, accounted as transaction memory.
//!
//! Growing never copies what is there, so no transaction is large enough to hold up its worker for that. A chunk without entries goes
//! back, but for [`CHUNKS_KEPT`] that wait for the next transaction.

use std::sync::Arc;

use apus_storage::{MemoryManager, Region, RowId};
use apus_types::{ErrorCode, PartitionId, TableId};

use super::RowAt;

pub const NONE: u32 = u32::MAX;
/// Entries of a chunk.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;
/// Empty chunks kept.
const CHUNKS_KEPT: usize = 8;
/// Most rows that the transactions of one LDM instance may hold locked at once: what an entry's number can name. Memory ends before.
pub const ENTRIES_MAX: usize = 1 << 30;

/// One row of one transaction: locked, perhaps changed.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Older entry of the same part.
    pub next: u32,
    pub table: TableId,
    pub row: RowId,
    pub partition: PartitionId,
    /// A version was pushed on the row by this entry.
    pub write: bool,
    /// This entry took the row's lock: where the part ends, it ends the row.
    pub lock: bool,
    pub savepoint: u32,
    /// The highest savepoint of this entry and all older ones: where undoing to a higher one may stop.
    pub reach: u32,
}

const FREE: Entry = Entry {
    next: NONE,
    table: TableId(0),
    row: RowId(0),
    partition: PartitionId(0),
    write: false,
    lock: false,
    savepoint: 0,
    reach: 0,
};
/// Bytes that a row of a transaction takes here.
pub const ENTRY_BYTES: usize = size_of::<Entry>();
const _: () = assert!(ENTRY_BYTES == 24);

impl Entry {
    pub fn at(&self) -> RowAt {
        (self.table, self.partition, self.row)
    }
}

#[derive(Debug)]
struct Chunk {
    /// Empty: given back, the number is free.
    entries: Vec<Entry>,
    /// First free one of a list through `next`.
    free: u32,
    used: u32,
    /// Place among the chunks with room, or `NONE`.
    listed: u32,
}

#[derive(Debug)]
pub struct Entries {
    memory: Arc<MemoryManager>,
    chunks: Vec<Chunk>,
    free_chunks: Vec<u32>,
    with_room: Vec<u32>,
}

impl Entries {
    pub fn new(memory: Arc<MemoryManager>) -> Entries {
        Entries { memory, chunks: Vec::new(), free_chunks: Vec::new(), with_room: Vec::new() }
    }
    /// Counts them chunk by chunk.
    pub fn in_use(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.used as usize).sum()
    }
    #[inline]
    pub fn get(&self, i: u32) -> &Entry {
        &self.chunks[i as usize / CHUNK].entries[i as usize % CHUNK]
    }
    /// One of a number that somebody else has named.
    pub fn find(&self, i: u32) -> Option<&Entry> {
        self.chunks.get(i as usize / CHUNK)?.entries.get(i as usize % CHUNK)
    }
    #[inline]
    pub fn get_mut(&mut self, i: u32) -> &mut Entry {
        &mut self.chunks[i as usize / CHUNK].entries[i as usize % CHUNK]
    }

    /// Makes sure that the next [`Entries::add`] finds room.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfMemory`].
    #[inline]
    pub fn reserve(&mut self) -> Result<(), ErrorCode> {
        if self.with_room.is_empty() { self.grow() } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self) -> Result<(), ErrorCode> {
        let is_full = self.chunks.len() * CHUNK >= ENTRIES_MAX && self.free_chunks.is_empty();
        if is_full || !self.memory.account(Region::Transaction, CHUNK * ENTRY_BYTES, false) {
            return Err(ErrorCode::OutOfMemory);
        }
        let number = self.free_chunks.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk { entries: Vec::new(), free: NONE, used: 0, listed: NONE });
            (self.chunks.len() - 1) as u32
        });
        let chunk = &mut self.chunks[number as usize];
        assert!(chunk.used == 0 && chunk.entries.is_empty(), "a chunk that is free has {} entries", chunk.used);
        chunk.entries = vec![FREE; CHUNK];
        for (i, entry) in chunk.entries.iter_mut().enumerate() {
            entry.next = if i + 1 < CHUNK { i as u32 + 1 } else { NONE };
        }
        (chunk.free, chunk.used, chunk.listed) = (0, 0, self.with_room.len() as u32);
        self.with_room.push(number);
        Ok(())
    }

    /// # Panics
    /// Where no room was reserved.
    #[inline(always)]
    pub fn add(&mut self, entry: Entry) -> u32 {
        let number = *self.with_room.last().expect("an entry without reserved room");
        let chunk = &mut self.chunks[number as usize];
        let place = chunk.free;
        let slot = &mut chunk.entries[place as usize];
        chunk.free = slot.next;
        *slot = entry;
        chunk.used += 1;
        if chunk.free == NONE {
            assert!(chunk.used == CHUNK as u32, "a chunk of {} entries has no room", chunk.used);
            chunk.listed = NONE;
            self.with_room.pop();
        }
        number << CHUNK_BITS | place
    }

    /// Frees an entry, and gives what it was.
    #[inline]
    pub fn take(&mut self, i: u32) -> Entry {
        let (number, place) = (i >> CHUNK_BITS, i % CHUNK as u32);
        let chunk = &mut self.chunks[number as usize];
        assert!(chunk.used > 0, "an entry is freed twice");
        let slot = &mut chunk.entries[place as usize];
        let entry = *slot;
        slot.next = chunk.free;
        chunk.free = place;
        chunk.used -= 1;
        if chunk.listed == NONE {
            chunk.listed = self.with_room.len() as u32;
            self.with_room.push(number);
        }
        if chunk.used == 0 && self.with_room.len() > CHUNKS_KEPT {
            self.give_back(number);
        }
        entry
    }

    #[cold]
    fn give_back(&mut self, number: u32) {
        let chunk = &mut self.chunks[number as usize];
        assert!(chunk.used == 0, "a chunk with {} entries is given back", chunk.used);
        chunk.entries = Vec::new();
        let place = std::mem::replace(&mut chunk.listed, NONE) as usize;
        let listed = self.with_room.swap_remove(place);
        assert!(listed == number, "chunk {number} is listed where {listed} is");
        if let Some(&moved) = self.with_room.get(place) {
            self.chunks[moved as usize].listed = place as u32;
        }
        self.free_chunks.push(number);
        self.memory.unaccount(Region::Transaction, CHUNK * ENTRY_BYTES);
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        let held = self.chunks.iter().filter(|c| !c.entries.is_empty()).count();
        self.memory.unaccount(Region::Transaction, held * CHUNK * ENTRY_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_and_go_with_their_entries() {
        let memory = MemoryManager::new(64 << 20);
        let mut entries = Entries::new(memory.clone());
        let used =
            |memory: &MemoryManager| memory.usage().find(|r| r.region == Region::Transaction).map_or(0, |r| r.used);
        let mut seed = 5u64;
        let mut held: Vec<(u32, u32)> = Vec::new();
        for round in 0..200_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let grows = (round / 50_000).is_multiple_of(2);
            if held.is_empty() || (seed >> 40) % 4 < if grows { 3 } else { 1 } {
                entries.reserve().expect("room");
                held.push((entries.add(Entry { savepoint: round, ..FREE }), round));
            } else {
                let (i, round) = held.swap_remove((seed >> 33) as usize % held.len());
                assert_eq!(entries.take(i).savepoint, round, "an entry is another's");
            }
            assert_eq!(entries.in_use(), held.len());
        }
        for (i, round) in held.drain(..) {
            assert_eq!(entries.take(i).savepoint, round);
        }
        assert!(used(&memory) <= (CHUNKS_KEPT * CHUNK * ENTRY_BYTES) as u64);
        drop(entries);
        assert_eq!(used(&memory), 0);
    }

    #[test]
    fn without_memory_nothing_is_reserved() {
        let memory = MemoryManager::new(1 << 20);
        let mut entries = Entries::new(memory);
        let mut count = 0;
        while entries.reserve().is_ok() {
            entries.add(FREE);
            count += 1;
        }
        assert!(count > CHUNK && entries.in_use() == count);
    }
}

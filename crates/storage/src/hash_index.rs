//! The primary-key hash index: linear hashing (Litwin 1980) over cache-line buckets.
//!
//! A bucket is one 64-byte line with seven entries of 32 hash bits and a row slot, so a lookup costs one miss here, and a key is only
//! compared when 32 bits of hash agree. The table grows by splitting one bucket per insert that finds it too full: no insert
//! ever pays for a big rehash. It shrinks in the same way: a removal that finds it too empty takes the last bucket back, and chunks of buckets that are not
//! reached any more go back to the memory manager.

use std::sync::Arc;

use apus_types::ErrorCode;

use crate::memory::{MemoryManager, Region};

const ENTRIES: usize = 7;
const NONE: u32 = u32::MAX;
/// Buckets are made in chunks, so that growing never copies them.
const CHUNK: usize = 256;
/// Split when there are more entries than this many per bucket on average.
const LOAD: usize = 5;

/// Take a bucket back when there are fewer than the so-manieth part of that.
const SPARSE: usize = 4;

#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The hashes of its entries, then how many there are, so that all can be compared with a hash at once.
    lanes: [u32; ENTRIES + 1],
    rows: [u32; ENTRIES],
    /// Overflow bucket.
    next: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

const EMPTY: Bucket = Bucket { lanes: [0; ENTRIES + 1], rows: [0; ENTRIES], next: NONE };

impl Bucket {
    #[inline]
    fn count(&self) -> usize {
        self.lanes[ENTRIES] as usize
    }
    fn push(&mut self, hash: u32, row: u32) {
        let count = self.count();
        assert!(count < ENTRIES, "a bucket gets {count} entries and one more");
        (self.lanes[count], self.rows[count]) = (hash, row);
        self.lanes[ENTRIES] += 1;
    }
    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count()).map(|i| (self.lanes[i], self.rows[i]))
    }
    /// A bit for each entry that has this hash.
    #[inline]
    fn with_hash(&self, hash: u32) -> u32 {
        let mut same = [0; ENTRIES + 1];
        for (i, bit) in same.iter_mut().enumerate() {
            *bit = if self.lanes[i] == hash { 1 << i } else { 0 };
        }
        same.iter().fold(0, |all, bit| all | bit) & ((1 << self.count().min(ENTRIES)) - 1)
    }
}

#[derive(Debug)]
struct Chunks {
    chunks: Vec<Box<[Bucket; CHUNK]>>,
    used: usize,
}

impl Chunks {
    #[inline]
    fn get(&self, i: usize) -> &Bucket {
        &self.chunks[i / CHUNK][i % CHUNK]
    }
    #[inline]
    fn get_mut(&mut self, i: usize) -> &mut Bucket {
        &mut self.chunks[i / CHUNK][i % CHUNK]
    }
    fn push(&mut self, memory: &MemoryManager) -> bool {
        if self.used == self.chunks.len() * CHUNK {
            if !memory.account(Region::Index, CHUNK * size_of::<Bucket>(), false) {
                return false;
            }
            self.chunks.push(Box::new([EMPTY; CHUNK]));
        }
        *self.get_mut(self.used) = EMPTY;
        self.used += 1;
        true
    }
    /// The last one is not needed any more.
    fn pop(&mut self, memory: &MemoryManager) {
        assert!(self.used > 0, "a bucket is taken back, and there is none");
        self.used -= 1;
        // Half a chunk stays, so that a bucket coming and going does not cost a chunk each time.
        if self.used + CHUNK / 2 < (self.chunks.len() - 1) * CHUNK {
            self.drop_chunk(memory);
        }
    }
    fn drop_chunk(&mut self, memory: &MemoryManager) {
        if self.chunks.pop().is_some() {
            memory.unaccount(Region::Index, CHUNK * size_of::<Bucket>());
        }
    }
    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Bucket>()
    }
}

#[derive(Debug)]
pub struct HashIndex {
    memory: Arc<MemoryManager>,
    buckets: Chunks,
    overflow: Chunks,
    free_overflow: Vec<u32>,
    /// Buckets at the start of this round of splits: a power of two.
    round: usize,
    len: usize,
}

impl HashIndex {
    pub fn new(memory: Arc<MemoryManager>) -> Result<HashIndex, ErrorCode> {
        let empty = || Chunks { chunks: Vec::new(), used: 0 };
        let mut index =
            HashIndex { memory, buckets: empty(), overflow: empty(), free_overflow: Vec::new(), round: 1, len: 0 };
        if index.buckets.push(&index.memory) { Ok(index) } else { Err(ErrorCode::OutOfMemory) }
    }

    pub fn len(&self) -> usize {
        self.len
    }
    pub fn bytes(&self) -> usize {
        self.buckets.bytes() + self.overflow.bytes()
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        let wide = hash as usize & (2 * self.round - 1);
        if wide < self.buckets.used { wide } else { wide & (self.round - 1) }
    }

    /// Has the bucket fetched into the cache, so that a later lookup finds it there. Gives its place, for [`HashIndex::candidate`].
    #[inline]
    pub fn prefetch(&self, hash: u64) -> usize {
        let place = self.home(hash as u32);
        prefetch_read(self.buckets.get(place));
        place
    }

    /// A row of the bucket whose hash agrees, probably the one with the key: to fetch what a lookup will need. What follows the bucket is fetched itself.
    #[inline]
    pub fn candidate(&self, place: usize, hash: u64) -> Option<u32> {
        let bucket = self.buckets.get(place);
        if bucket.next != NONE {
            prefetch_read(self.overflow.get(bucket.next as usize));
        }
        let same = bucket.with_hash(hash as u32);
        (same != 0).then(|| bucket.rows[same.trailing_zeros() as usize])
    }

    /// The row whose hash agrees and for which `is_key` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = hash as u32;
        let mut bucket = self.buckets.get(self.home(hash));
        loop {
            let mut same = bucket.with_hash(hash);
            while same != 0 {
                let row = bucket.rows[same.trailing_zeros() as usize];
                if is_key(row) {
                    return Some(row);
                }
                same &= same - 1;
            }
            if bucket.next == NONE {
                return None;
            }
            bucket = self.overflow.get(bucket.next as usize);
        }
    }

    /// Adds an entry; the caller knows that the key is not there.
    pub fn insert(&mut self, hash: u64, row: u32) -> Result<(), ErrorCode> {
        self.put(hash as u32, row)?;
        self.len += 1;
        if self.len > LOAD * self.buckets.used {
            self.split();
        }
        Ok(())
    }

    fn put(&mut self, hash: u32, row: u32) -> Result<(), ErrorCode> {
        let home = self.home(hash);
        let mut at: Option<usize> = None;
        loop {
            let bucket = match at {
                None => self.buckets.get_mut(home),
                Some(i) => self.overflow.get_mut(i),
            };
            if bucket.count() < ENTRIES {
                bucket.push(hash, row);
                return Ok(());
            }
            if bucket.next == NONE {
                break;
            }
            at = Some(bucket.next as usize);
        }
        let fresh = self.new_overflow()?;
        match at {
            None => self.buckets.get_mut(home).next = fresh,
            Some(i) => self.overflow.get_mut(i).next = fresh,
        }
        self.overflow.get_mut(fresh as usize).push(hash, row);
        Ok(())
    }

    fn new_overflow(&mut self) -> Result<u32, ErrorCode> {
        if let Some(free) = self.free_overflow.pop() {
            *self.overflow.get_mut(free as usize) = EMPTY;
            return Ok(free);
        }
        if !self.overflow.push(&self.memory) {
            return Err(ErrorCode::OutOfMemory);
        }
        Ok((self.overflow.used - 1) as u32)
    }

    /// Splits the next bucket in turn. Without memory the table stays as it is, with longer chains.
    fn split(&mut self) {
        let source = self.buckets.used - self.round;
        assert!(source < self.round, "bucket {source} is split in a round of {}", self.round);
        if !self.buckets.push(&self.memory) {
            return;
        }
        let mut chain = std::mem::replace(self.buckets.get_mut(source), EMPTY);
        if self.buckets.used == 2 * self.round {
            self.round *= 2;
        }
        loop {
            for (hash, row) in chain.entries() {
                // Its overflow buckets are freed as we go, so there is always one for what they held.
                let put = self.put(hash, row);
                assert!(put.is_ok(), "a split needs no more overflow buckets than it frees");
            }
            if chain.next == NONE {
                break;
            }
            let next = chain.next;
            chain = *self.overflow.get(next as usize);
            self.free_overflow.push(next);
            assert!(self.free_overflow.len() <= self.overflow.used, "an overflow bucket is given back twice");
        }
    }

    /// Takes the last bucket back into the one that it was split from, if there is room.
    fn join(&mut self) {
        let round = if self.buckets.used == self.round { self.round / 2 } else { self.round };
        let last = self.buckets.used - 1;
        let mut chain = *self.buckets.get(last);
        let fits = chain.next == NONE && chain.count() + self.buckets.get(last - round).count() <= ENTRIES;
        // Its own overflow buckets are freed as we go, so the one that takes its entries needs one more than there are, at most.
        if !fits && self.free_overflow.is_empty() {
            return;
        }
        self.round = round;
        self.buckets.pop(&self.memory);
        loop {
            for (hash, row) in chain.entries() {
                let put = self.put(hash, row);
                assert!(put.is_ok(), "buckets are joined and need more overflow buckets than there are");
            }
            if chain.next == NONE {
                break;
            }
            let next = chain.next;
            chain = *self.overflow.get(next as usize);
            self.free_overflow.push(next);
        }
    }

    /// After a removal: gives back what a smaller table does not need, a little at a time.
    fn shrink(&mut self) {
        if self.buckets.used > 1 && self.len * SPARSE < LOAD * self.buckets.used {
            self.join();
        }
        if self.overflow.used > 0 && self.free_overflow.len() == self.overflow.used {
            self.free_overflow.clear();
            self.overflow.used = 0;
        }
        if self.overflow.used == 0 && self.overflow.chunks.len() > 1 {
            self.overflow.drop_chunk(&self.memory);
        }
    }

    /// Removes the entry of `row`; `false` if it is not there.
    pub fn remove(&mut self, hash: u64, row: u32) -> bool {
        let removed = self.take_out(hash, row);
        if removed {
            self.shrink();
        }
        removed
    }

    fn take_out(&mut self, hash: u64, row: u32) -> bool {
        let hash = hash as u32;
        let home = self.home(hash);
        let (mut at, mut before): (Option<usize>, Option<usize>) = (None, None);
        loop {
            let bucket = match at {
                None => self.buckets.get_mut(home),
                Some(i) => self.overflow.get_mut(i),
            };
            let count = bucket.count();
            if let Some(i) = (0..count).find(|&i| bucket.lanes[i] == hash && bucket.rows[i] == row) {
                bucket.lanes[i] = bucket.lanes[count - 1];
                bucket.rows[i] = bucket.rows[count - 1];
                bucket.lanes[ENTRIES] -= 1;
                let (emptied, next) = (count == 1, bucket.next);
                if let Some(empty) = at.filter(|_| emptied) {
                    match before {
                        None => self.buckets.get_mut(home).next = next,
                        Some(b) => self.overflow.get_mut(b).next = next,
                    }
                    self.free_overflow.push(empty as u32);
                }
                assert!(self.len > 0, "more entries go than came");
                self.len -= 1;
                return true;
            }
            if bucket.next == NONE {
                return false;
            }
            before = at;
            at = Some(bucket.next as usize);
        }
    }

    /// All rows, for verification.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.buckets.used).flat_map(move |i| {
            let mut next = Some(self.buckets.get(i));
            std::iter::from_fn(move || {
                let bucket = next?;
                next = (bucket.next != NONE).then(|| self.overflow.get(bucket.next as usize));
                Some(&bucket.rows[..bucket.count()])
            })
            .flatten()
            .copied()
        })
    }
}

/// Starts fetching the cache line at the beginning of `value`, and does not wait for it.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the intrinsic takes a raw pointer"))]
pub(crate) fn prefetch_read<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86_64; a prefetch reads nothing into the program and faults on no address, and this one is valid.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(std::ptr::from_ref(value));
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        self.memory.unaccount(Region::Index, self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_types::hash::hash_key;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_while_growing_and_emptying() {
        let memory = MemoryManager::new(64 << 20);
        let mut index = HashIndex::new(memory.clone()).unwrap();
        let mut model = BTreeSet::new();
        let mut seed = 1u64;
        for step in 0..60_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let row = (seed >> 40) as u32 % 20_000;
            // Some rows share all 32 hash bits.
            let hash = hash_key(&(row / 3).to_le_bytes());
            let grow = step < 40_000;
            if !model.contains(&row) && (grow || seed >> 63 == 0) {
                index.insert(hash, row).unwrap();
                model.insert(row);
            } else if model.remove(&row) {
                assert!(index.remove(hash, row));
            }
            assert_eq!(index.find(hash, |r| r == row).is_some(), model.contains(&row));
        }
        assert_eq!(index.len(), model.len());
        assert_eq!(index.rows().collect::<BTreeSet<_>>(), model);
        let full = index.bytes();
        while let Some(row) = model.pop_first() {
            assert!(index.remove(hash_key(&(row / 3).to_le_bytes()), row));
            if row.is_multiple_of(64) {
                assert_eq!(index.rows().collect::<BTreeSet<_>>(), model);
                let found = |row: &u32| index.find(hash_key(&(row / 3).to_le_bytes()), |r| r == *row).is_some();
                assert!(model.iter().take(50).all(found));
            }
        }
        assert!(
            index.bytes() <= 3 * CHUNK * size_of::<Bucket>() && full > 4 * index.bytes(),
            "{full} {}",
            index.bytes()
        );
        assert_eq!(memory.usage().map(|region| region.used).sum::<u64>(), index.bytes() as u64);
        for row in 0..30_000u32 {
            index.insert(hash_key(&row.to_le_bytes()), row).unwrap();
        }
        assert!((0..30_000u32).all(|row| index.find(hash_key(&row.to_le_bytes()), |r| r == row).is_some()));
        drop(index);
        assert!(memory.usage().all(|r| r.used == 0));
    }
}

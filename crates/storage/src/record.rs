//! Row versions in memory: a slab allocator with size classes over 32 KiB pages, one per fragment.
//!
//! ```text
//! record: | epoch u64 | previous version u64 | length u32 | flags u8 | pad 3 | bytes |
//! ```
//!
//! A record is named by a [`RecRef`] (page and offset) that stays valid until it is freed. Records larger than a page are single
//! heap blocks, accounted like pages. Everything is bounds-checked slices: a stale reference can give wrong bytes to this node's own
//! code, never touch foreign memory; [`crate::Fragment::verify`] finds such bugs in tests.

use std::sync::Arc;

use apus_types::{Epoch, ErrorCode};

use crate::memory::{MemoryManager, PAGE_BYTES, Page, Region};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 24;

/// The version is not committed.
pub const PENDING: u8 = 1;
/// The version is a delete.
pub const TOMBSTONE: u8 = 2;
/// The version has exactly the index entries of the one right below it (no index changed). To be dropped or worked out anew wherever
/// another version comes to stand below.
pub const SAME_ENTRIES: u8 = 4;
/// Only in records that are free.
const FREED: u8 = 128;

/// Sizes that divide a page with little waste.
const CLASSES: [u32; 24] = [
    48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1280, 1632, 2048, 2976, 4096, 8192,
    16_384, 32_768,
];
const NO_PAGE: u32 = u32::MAX;
const NO_OFFSET: u32 = u32::MAX;
const LARGE: u64 = 1 << 63;

/// Names a record; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecRef(pub u64);

impl RecRef {
    pub const NONE: RecRef = RecRef(0);
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
    fn small(page: u32, offset: u32) -> RecRef {
        RecRef((u64::from(page) + 1) << 32 | u64::from(offset))
    }
    fn page(self) -> usize {
        (self.0 >> 32) as usize - 1
    }
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }
}

#[derive(Debug)]
struct SlabPage {
    /// `None`: given back, the number is free.
    page: Option<Page>,
    class: u8,
    used: u32,
    /// First never used offset, and the list of freed ones.
    fresh: u32,
    free: u32,
    /// Place in its class's list of pages with room, or `NO_PAGE`.
    listed: u32,
}

/// The records of one fragment.
#[derive(Debug)]
pub struct Records {
    memory: Arc<MemoryManager>,
    pages: Vec<SlabPage>,
    free_pages: Vec<u32>,
    with_room: [Vec<u32>; CLASSES.len()],
    large: Vec<Option<Box<[u8]>>>,
    free_large: Vec<u32>,
    bytes: u64,
    count: u64,
}

impl Records {
    pub fn new(memory: Arc<MemoryManager>) -> Records {
        Records {
            memory,
            pages: Vec::new(),
            free_pages: Vec::new(),
            with_room: std::array::from_fn(|_| Vec::new()),
            large: Vec::new(),
            free_large: Vec::new(),
            bytes: 0,
            count: 0,
        }
    }

    /// Memory taken from the manager, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Makes a record with these bytes behind its header. `insert`: see [`MemoryManager::account`].
    pub fn alloc(&mut self, bytes: &[u8], flags: u8, previous: RecRef, insert: bool) -> Result<RecRef, ErrorCode> {
        let size = HEADER_BYTES + bytes.len();
        let at =
            if size > PAGE_BYTES { self.alloc_large(size, insert)? } else { self.alloc_small(size as u32, insert)? };
        let record = self.record_mut(at);
        record[0..8].copy_from_slice(&0u64.to_le_bytes());
        record[8..16].copy_from_slice(&previous.0.to_le_bytes());
        record[16..20].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        record[20] = flags;
        record[HEADER_BYTES..size].copy_from_slice(bytes);
        self.count += 1;
        Ok(at)
    }

    fn alloc_small(&mut self, size: u32, insert: bool) -> Result<RecRef, ErrorCode> {
        let class = CLASSES.partition_point(|&c| c < size);
        let number = match self.with_room[class].last() {
            Some(&number) => number,
            None => self.add_page(class, insert)?,
        };
        let slab = &mut self.pages[number as usize];
        let page = slab.page.as_mut().expect("listed page without memory");
        let offset = if slab.free != NO_OFFSET {
            let offset = slab.free;
            let at = offset as usize;
            slab.free = u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
            offset
        } else {
            let offset = slab.fresh;
            slab.fresh += CLASSES[class];
            offset
        };
        slab.used += 1;
        assert!(offset + CLASSES[class] <= PAGE_BYTES as u32, "a record at {offset} goes beyond its page");
        assert!(slab.used * CLASSES[class] <= slab.fresh, "{} records in {} bytes", slab.used, slab.fresh);
        if slab.free == NO_OFFSET && (slab.fresh + CLASSES[class]) as usize > PAGE_BYTES {
            slab.listed = NO_PAGE;
            self.with_room[class].pop();
        }
        Ok(RecRef::small(number, offset))
    }

    fn add_page(&mut self, class: usize, insert: bool) -> Result<u32, ErrorCode> {
        let page = self.memory.alloc_page(Region::Data, insert).ok_or(ErrorCode::OutOfMemory)?;
        self.bytes += PAGE_BYTES as u64;
        let slab = SlabPage { page: Some(page), class: class as u8, used: 0, fresh: 0, free: NO_OFFSET, listed: 0 };
        let number = match self.free_pages.pop() {
            Some(number) => {
                self.pages[number as usize] = slab;
                number
            }
            None => {
                self.pages.push(slab);
                (self.pages.len() - 1) as u32
            }
        };
        self.pages[number as usize].listed = self.with_room[class].len() as u32;
        self.with_room[class].push(number);
        Ok(number)
    }

    fn alloc_large(&mut self, size: usize, insert: bool) -> Result<RecRef, ErrorCode> {
        if !self.memory.account(Region::Data, size, insert) {
            return Err(ErrorCode::OutOfMemory);
        }
        self.bytes += size as u64;
        let block = Some(vec![0; size].into_boxed_slice());
        let number = match self.free_large.pop() {
            Some(number) => {
                self.large[number as usize] = block;
                number
            }
            None => {
                self.large.push(block);
                (self.large.len() - 1) as u32
            }
        };
        Ok(RecRef(LARGE | (u64::from(number) + 1) << 32))
    }

    pub fn free(&mut self, at: RecRef) {
        assert!(!at.is_none() && self.count > 0, "a record is freed that does not exist: {at:?}");
        self.count -= 1;
        if at.0 & LARGE != 0 {
            let number = ((at.0 & !LARGE) >> 32) as usize - 1;
            let block = self.large[number].take().expect("large record freed twice");
            self.memory.unaccount(Region::Data, block.len());
            self.bytes -= block.len() as u64;
            self.free_large.push(number as u32);
            return;
        }
        let number = at.page();
        let slab = &mut self.pages[number];
        let class = usize::from(slab.class);
        let page = slab.page.as_mut().expect("record freed in a page that was given back");
        assert!(page[at.offset() + 20] & FREED == 0, "record {at:?} is freed twice");
        page[at.offset() + 20] = FREED;
        page[at.offset()..at.offset() + 4].copy_from_slice(&slab.free.to_le_bytes());
        slab.free = at.offset() as u32;
        assert!(slab.used > 0 && (at.offset() as u32) < slab.fresh, "a record is freed where none was made: {at:?}");
        slab.used -= 1;
        if slab.listed == NO_PAGE {
            slab.listed = self.with_room[class].len() as u32;
            self.with_room[class].push(number as u32);
        }
        // The last page with room stays, so that one row coming and going does not cost a page each time.
        if self.pages[number].used == 0 && self.with_room[class].len() > 1 {
            self.give_back(number);
        }
    }

    fn give_back(&mut self, number: usize) {
        let slab = &mut self.pages[number];
        let (class, place) = (usize::from(slab.class), slab.listed as usize);
        let page = slab.page.take().expect("page given back twice");
        assert!(slab.used == 0, "a page with {} records is given back", slab.used);
        let listed = self.with_room[class].swap_remove(place);
        assert!(listed as usize == number, "page {number} is listed where {listed} is");
        if let Some(&moved) = self.with_room[class].get(place) {
            self.pages[moved as usize].listed = place as u32;
        }
        self.memory.free_page(Region::Data, page);
        self.bytes -= PAGE_BYTES as u64;
        self.free_pages.push(number as u32);
    }

    #[inline]
    fn record(&self, at: RecRef) -> &[u8] {
        if at.0 & LARGE != 0 {
            let number = ((at.0 & !LARGE) >> 32) as usize - 1;
            return self.large[number].as_deref().expect("reference to a freed large record");
        }
        let page = self.pages[at.page()].page.as_deref().expect("reference to a record in a freed page");
        &page[at.offset()..]
    }
    #[inline]
    fn record_mut(&mut self, at: RecRef) -> &mut [u8] {
        if at.0 & LARGE != 0 {
            let number = ((at.0 & !LARGE) >> 32) as usize - 1;
            return self.large[number].as_deref_mut().expect("reference to a freed large record");
        }
        let page = self.pages[at.page()].page.as_deref_mut().expect("reference to a record in a freed page");
        &mut page[at.offset()..]
    }

    /// Where the record begins, for a prefetch: nothing of it is read.
    #[inline]
    pub fn place(&self, at: RecRef) -> &[u8] {
        self.record(at)
    }
    #[inline]
    pub fn bytes_of(&self, at: RecRef) -> &[u8] {
        let record = self.record(at);
        let length = u32::from_le_bytes([record[16], record[17], record[18], record[19]]) as usize;
        &record[HEADER_BYTES..HEADER_BYTES + length]
    }
    #[inline]
    pub fn flags(&self, at: RecRef) -> u8 {
        self.record(at)[20]
    }
    /// Its flags and its epoch, or its writer.
    #[inline]
    pub fn stamp(&self, at: RecRef) -> (u8, Epoch) {
        let record = self.record(at);
        (record[20], Epoch(long(record, 0)))
    }
    /// Its bytes, unless it has one of these flags.
    #[inline]
    pub fn bytes_without(&self, at: RecRef, flags: u8) -> Option<&[u8]> {
        let record = self.record(at);
        let length = u32::from_le_bytes([record[16], record[17], record[18], record[19]]) as usize;
        (record[20] & flags == 0).then(|| &record[HEADER_BYTES..HEADER_BYTES + length])
    }
    pub fn set_flags(&mut self, at: RecRef, flags: u8) {
        self.record_mut(at)[20] = flags;
    }
    #[inline]
    pub fn previous(&self, at: RecRef) -> RecRef {
        RecRef(long(self.record(at), 8))
    }
    pub fn set_previous(&mut self, at: RecRef, previous: RecRef) {
        self.record_mut(at)[8..16].copy_from_slice(&previous.0.to_le_bytes());
    }
    pub fn epoch(&self, at: RecRef) -> Epoch {
        Epoch(long(self.record(at), 0))
    }
    pub fn set_epoch(&mut self, at: RecRef, epoch: Epoch) {
        self.record_mut(at)[0..8].copy_from_slice(&epoch.0.to_le_bytes());
    }
}

fn long(record: &[u8], at: usize) -> u64 {
    record[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

impl Records {
    /// Frees so many pages or large records at most, of a fragment that nobody will use again. `true`: nothing is left.
    pub fn give_up(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if let Some(slab) = self.pages.pop() {
                slab.page.into_iter().for_each(|page| self.memory.free_page(Region::Data, page));
            } else if let Some(block) = self.large.pop() {
                self.memory.unaccount(Region::Data, block.map_or(0, |block| block.len()));
            } else {
                return true;
            }
        }
        false
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        for slab in &mut self.pages {
            if let Some(page) = slab.page.take() {
                self.memory.free_page(Region::Data, page);
            }
        }
        for block in self.large.iter().flatten() {
            self.memory.unaccount(Region::Data, block.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_go_and_give_their_memory_back() {
        let memory = MemoryManager::new(64 << 20);
        let mut records = Records::new(memory.clone());
        let mut live = Vec::new();
        let mut seed = 7u64;
        for i in 0..20_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
            if seed >> 60 < 9 || live.is_empty() {
                let length = if seed >> 50 & 255 == 0 { 100_000 } else { (seed >> 33) as usize % 900 };
                let bytes = vec![i as u8; length];
                live.push((records.alloc(&bytes, 0, RecRef::NONE, true).unwrap(), bytes));
            } else {
                let (at, bytes) = live.swap_remove(seed as usize % live.len());
                assert_eq!(records.bytes_of(at), bytes);
                records.free(at);
            }
        }
        for (at, bytes) in live.drain(..) {
            assert_eq!(records.bytes_of(at), bytes);
            records.free(at);
        }
        assert!(records.bytes() <= (CLASSES.len() * PAGE_BYTES) as u64);
        drop(records);
        assert!(memory.usage().all(|r| r.used == 0));
    }
}

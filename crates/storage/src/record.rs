//! Row versions in memory: a slab allocator with size classes over 32 KiB pages, one per fragment.
//!
//! ```text
//! record: | stamp u64 | length of the image u24 | flags u8 | previous version u64 ? | length u16 and bytes of the key ? | image |
//! ```
//!
//! What has a `?` is there if a flag says so: a row that was inserted and not changed since has no previous version, and a key that can be made from the
//! image (module `keys` of the fragment) is not stored. The stamp is an epoch, or who writes the version while it is pending.
//!
//! A record is named by a [`RecRef`] (page and offset) that stays valid until it is freed. Records larger than a page are single
//! heap blocks, accounted like pages. Everything is bounds-checked slices: a stale reference can give wrong bytes to this node's own
//! code, never touch foreign memory; [`crate::Fragment::verify`] finds such bugs in tests.
//!
//! **Classes** are a few bytes apart, so that a record has little room that it does not use. A small fragment takes fewer of them, since each that is
//! used has a page that is not full.

use std::sync::Arc;

use apus_types::{Epoch, ErrorCode};

use crate::memory::{MemoryManager, PAGE_BYTES, Page, Region};

/// Bytes that every record has in front of what it holds.
const FIXED_BYTES: usize = 12;
const FLAGS_AT: usize = 11;
const REF_BYTES: usize = 8;
/// Most bytes in front of an image whose key is not stored.
pub const HEADER_BYTES: usize = FIXED_BYTES + REF_BYTES;

/// The version is not committed.
pub const PENDING: u8 = 1;
/// The version is a delete.
pub const TOMBSTONE: u8 = 2;
/// The version has exactly the index entries of the one right below it (no index changed). To be dropped or worked out anew wherever
/// another version comes to stand below.
pub const SAME_ENTRIES: u8 = 4;
/// There is a place for a previous version.
const PREVIOUS: u8 = 8;
/// The key is stored.
const KEY: u8 = 16;
/// What the flags say of the record, and not of the version.
const LAYOUT: u8 = PREVIOUS | KEY;
/// Only in records that are free.
const FREED: u8 = 128;

/// Classes of sizes up to 256 in steps of 2, up to 512 in steps of 8, then so many as fit a page 63 times or less.
const CLASSES: usize = 128 + 32 + 63;
/// A fragment with fewer bytes of records takes coarse classes only.
const FINE_BYTES: u64 = 2 << 20;
const NO_PAGE: u32 = u32::MAX;
const NO_OFFSET: u32 = u32::MAX;
const LARGE: u64 = 1 << 63;

/// The class of the records with so many bytes, and what one of them takes.
#[inline(always)]
fn class_of(size: usize, fine: bool) -> (usize, u32) {
    let size = if fine { size } else { size.next_multiple_of(32) };
    if size <= 256 {
        let steps = size.div_ceil(2);
        return (steps - 1, steps as u32 * 2);
    }
    large_class_of(size, fine)
}
fn large_class_of(size: usize, fine: bool) -> (usize, u32) {
    if size <= 512 {
        let steps = size.div_ceil(8);
        return (128 + steps - 33, steps as u32 * 8);
    }
    let fit = PAGE_BYTES / size.next_multiple_of(8);
    let fit = if fine || fit < 8 { fit } else { fit & !3 };
    (CLASSES - fit, (PAGE_BYTES / fit) as u32 & !7)
}

/// Names a record; 0 is none. The highest bit is for large records, the two below it are free for whoever keeps the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecRef(pub u64);

impl RecRef {
    pub const NONE: RecRef = RecRef(0);
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
    fn small(page: u32, offset: u32) -> RecRef {
        RecRef((u64::from(page) + 1) << 32 | u64::from(offset))
    }
    /// Of a small record. None has page `usize::MAX`, which does not exist.
    #[inline]
    fn page(self) -> usize {
        ((self.0 >> 32) as usize).wrapping_sub(1)
    }
    #[inline]
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }
}

/// What a record says of its version, read at once.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Its epoch, or its writer.
    pub stamp: u64,
    /// The version below it.
    pub previous: RecRef,
    flags: u8,
}

impl Header {
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.flags & PENDING != 0
    }
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }
    /// The key is stored.
    #[inline]
    pub fn has_key(&self) -> bool {
        self.flags & KEY != 0
    }
    /// It has the entries of the version right below it.
    #[inline]
    pub fn has_same_entries(&self) -> bool {
        self.flags & SAME_ENTRIES != 0
    }
    /// It is committed, no delete, and the last one.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & (PENDING | TOMBSTONE) == 0 && self.previous.is_none()
    }
    /// Of the newest committed version: when nobody can see an older state any more, there is something to free.
    pub fn needs_visit(&self) -> bool {
        !self.previous.is_none() || self.is_tombstone()
    }
    /// It is no delete, and its key can be made from its image.
    #[inline]
    pub fn gives_key(&self) -> bool {
        self.flags & (TOMBSTONE | KEY) == 0
    }
    /// For [`Records::set_flags`].
    #[inline]
    pub fn without_same_entries(&self) -> u8 {
        self.flags & !SAME_ENTRIES
    }
}

/// What is known of a page.
#[derive(Debug)]
struct SlabPage {
    class: u8,
    is_listed: bool,
    used: u32,
    /// Bytes of a record.
    size: u32,
    /// First never used offset, and the list of freed ones.
    fresh: u32,
    free: u32,
    /// Neighbours in the list of the class's pages with room, or `NO_PAGE`.
    before: u32,
    after: u32,
}

/// The records of one fragment.
#[derive(Debug)]
pub struct Records {
    memory: Arc<MemoryManager>,
    /// `None`: given back, the number is free.
    pages: Vec<Option<Page>>,
    /// Of each page.
    slabs: Vec<SlabPage>,
    free_pages: Vec<u32>,
    /// Of each class the first page with room.
    with_room: [u32; CLASSES],
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
            slabs: Vec::new(),
            free_pages: Vec::new(),
            with_room: [NO_PAGE; CLASSES],
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

    /// Makes a record of this image, and of the key unless it can be made from the image. `insert`: see [`MemoryManager::account`].
    pub fn alloc(
        &mut self,
        key: Option<&[u8]>,
        image: &[u8],
        stamp: (u8, u64),
        previous: RecRef,
        insert: bool,
    ) -> Result<RecRef, ErrorCode> {
        match key {
            None => self.alloc_image(image, stamp, previous, insert),
            Some(_) => self.make(key, image, stamp, previous, insert),
        }
    }
    /// The same of an image that gives the key.
    #[inline(always)]
    pub fn alloc_image(
        &mut self,
        image: &[u8],
        stamp: (u8, u64),
        previous: RecRef,
        insert: bool,
    ) -> Result<RecRef, ErrorCode> {
        self.make(None, image, stamp, previous, insert)
    }
    #[inline(always)]
    fn make(
        &mut self,
        key: Option<&[u8]>,
        image: &[u8],
        (flags, stamp): (u8, u64),
        previous: RecRef,
        insert: bool,
    ) -> Result<RecRef, ErrorCode> {
        assert!(image.len() < 1 << 24, "an image of {} bytes", image.len());
        let layout = (u8::from(key.is_some()) * KEY) | (u8::from(!previous.is_none()) * PREVIOUS);
        let front = if previous.is_none() { FIXED_BYTES } else { HEADER_BYTES };
        let mut head = [0; HEADER_BYTES];
        head[..8].copy_from_slice(&stamp.to_le_bytes());
        head[8..12].copy_from_slice(&(image.len() as u32 | u32::from(flags | layout) << 24).to_le_bytes());
        head[12..].copy_from_slice(&previous.0.to_le_bytes());
        let key_bytes = key.map_or(0, |key| 2 + key.len());
        let size = front + key_bytes + image.len();
        if size > PAGE_BYTES {
            let at = self.alloc_large(size, insert)?;
            self.count += 1;
            write_record(self.record_mut(at), &head[..front], key, image);
            return Ok(at);
        }
        let (class, room) = class_of(size, self.bytes >= FINE_BYTES);
        let number = match self.with_room[class] {
            NO_PAGE => self.add_page(class, room, insert)?,
            number => number,
        };
        let slab = &mut self.slabs[number as usize];
        let page = self.pages[number as usize].as_deref_mut().expect("listed page without memory");
        assert!(slab.size == room, "a record of {room} bytes goes into a page of records of {}", slab.size);
        let mut offset = slab.free;
        if offset == NO_OFFSET {
            offset = slab.fresh;
            slab.fresh += room;
        } else {
            slab.free = word(page, offset as usize);
        }
        slab.used += 1;
        let is_full = slab.free == NO_OFFSET && (slab.fresh + room) as usize > PAGE_BYTES;
        let (offset, record) = (offset, &mut page[offset as usize..][..size]);
        match (record.first_chunk_mut::<HEADER_BYTES>(), key) {
            (Some(place), None) => {
                *place = head; // what is too much is written over
                record[front..].copy_from_slice(image);
            }
            _ => write_record(record, &head[..front], key, image),
        }
        self.count += 1;
        if is_full {
            self.unlist(number);
        }
        Ok(RecRef::small(number, offset))
    }

    #[cold]
    fn add_page(&mut self, class: usize, size: u32, insert: bool) -> Result<u32, ErrorCode> {
        let page = self.memory.alloc_page(Region::Data, insert).ok_or(ErrorCode::OutOfMemory)?;
        self.bytes += PAGE_BYTES as u64;
        let slab = SlabPage {
            class: class as u8,
            is_listed: false,
            used: 0,
            size,
            fresh: 0,
            free: NO_OFFSET,
            before: NO_PAGE,
            after: NO_PAGE,
        };
        let number = match self.free_pages.pop() {
            Some(number) => {
                self.slabs[number as usize] = slab;
                self.pages[number as usize] = Some(page);
                number
            }
            None => {
                self.slabs.push(slab);
                self.pages.push(Some(page));
                (self.pages.len() - 1) as u32
            }
        };
        self.list(number);
        Ok(number)
    }

    /// Frees a version that is committed, no delete, and has none below it; `false`: it is not, and stays.
    #[inline]
    pub fn free_plain(&mut self, at: RecRef) -> bool {
        self.free_if::<true>(at)
    }

    /// Puts a page at the beginning of its class's list.
    fn list(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let first = std::mem::replace(&mut self.with_room[usize::from(slab.class)], number);
        assert!(!slab.is_listed, "page {number} is listed twice");
        (slab.is_listed, slab.before, slab.after) = (true, NO_PAGE, first);
        if let Some(next) = self.slabs.get_mut(first as usize) {
            next.before = number;
        }
    }
    fn unlist(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let (class, before, after) = (usize::from(slab.class), slab.before, slab.after);
        assert!(slab.is_listed, "page {number} is not listed");
        slab.is_listed = false;
        match self.slabs.get_mut(before as usize) {
            Some(neighbour) => neighbour.after = after,
            None => self.with_room[class] = after,
        }
        if let Some(neighbour) = self.slabs.get_mut(after as usize) {
            neighbour.before = before;
        }
    }

    #[cold]
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
        self.free_if::<false>(at);
    }
    #[inline(always)]
    fn free_if<const ONLY_PLAIN: bool>(&mut self, at: RecRef) -> bool {
        assert!(!at.is_none() && self.count > 0, "a record is freed that does not exist: {at:?}");
        if at.0 & LARGE != 0 {
            let goes = !ONLY_PLAIN || self.header(at).is_plain();
            if goes {
                self.free_large(at);
            }
            return goes;
        }
        let (number, offset) = (at.page(), at.offset());
        let page = self.pages[number].as_deref_mut().expect("record freed in a page that was given back");
        let record = &mut page[offset..];
        if ONLY_PLAIN && !header_of(record).is_plain() {
            return false;
        }
        let slab = &mut self.slabs[number];
        let Some(head) = record.first_chunk_mut::<FIXED_BYTES>() else {
            panic!("a record is freed that goes beyond its page: {at:?}")
        };
        assert!(head[FLAGS_AT] & FREED == 0, "record {at:?} is freed twice");
        head[FLAGS_AT] = FREED;
        head[..4].copy_from_slice(&slab.free.to_le_bytes());
        assert!(slab.used > 0 && (offset as u32) < slab.fresh, "a record is freed where none was made: {at:?}");
        slab.free = offset as u32;
        slab.used -= 1;
        self.count -= 1;
        if slab.used == 0 || !slab.is_listed {
            self.note_room(number);
        }
        true
    }

    /// A page has room again, or nothing in it.
    fn note_room(&mut self, number: usize) {
        if !self.slabs[number].is_listed {
            self.list(number as u32);
        }
        // The last page with room stays, so that one row coming and going does not cost a page each time.
        let slab = &self.slabs[number];
        if slab.used == 0 && (slab.before != NO_PAGE || slab.after != NO_PAGE) {
            self.give_back(number);
        }
    }

    #[cold]
    fn free_large(&mut self, at: RecRef) {
        let number = ((at.0 & !LARGE) >> 32) as usize - 1;
        self.count -= 1;
        let block = self.large[number].take().expect("large record freed twice");
        self.memory.unaccount(Region::Data, block.len());
        self.bytes -= block.len() as u64;
        self.free_large.push(number as u32);
    }

    fn give_back(&mut self, number: usize) {
        self.unlist(number as u32);
        let page = self.pages[number].take().expect("page given back twice");
        let used = self.slabs[number].used;
        assert!(used == 0, "a page with {used} records is given back");
        self.memory.free_page(Region::Data, page);
        self.bytes -= PAGE_BYTES as u64;
        self.free_pages.push(number as u32);
    }

    #[inline(always)]
    fn record(&self, at: RecRef) -> &[u8] {
        if at.0 & LARGE != 0 {
            return self.large_record(at);
        }
        let page = self.pages[at.page()].as_deref().expect("reference to a record in a freed page");
        &page[at.offset()..]
    }
    #[cold]
    fn large_record(&self, at: RecRef) -> &[u8] {
        let number = ((at.0 & !LARGE) >> 32) as usize - 1;
        self.large[number].as_deref().expect("reference to a freed large record")
    }
    #[inline(always)]
    fn record_mut(&mut self, at: RecRef) -> &mut [u8] {
        if at.0 & LARGE != 0 {
            return self.large_record_mut(at);
        }
        let page = self.pages[at.page()].as_deref_mut().expect("reference to a record in a freed page");
        &mut page[at.offset()..]
    }
    #[cold]
    fn large_record_mut(&mut self, at: RecRef) -> &mut [u8] {
        let number = ((at.0 & !LARGE) >> 32) as usize - 1;
        self.large[number].as_deref_mut().expect("reference to a freed large record")
    }

    /// Where the record begins, for a prefetch: nothing of it is read.
    #[inline]
    pub fn place(&self, at: RecRef) -> &[u8] {
        self.record(at)
    }
    #[inline]
    pub fn bytes_of(&self, at: RecRef) -> &[u8] {
        image_of(self.record(at))
    }
    /// The stored key, or else the image, from which the key can be made.
    #[inline]
    pub fn key_or_image(&self, at: RecRef) -> Result<&[u8], &[u8]> {
        let record = self.record(at);
        if record[FLAGS_AT] & KEY == 0 {
            return Err(image_of(record));
        }
        let from = key_at(record);
        Ok(&record[from..from + key_length(record, from)])
    }
    /// Flags, stamp and the version below, read at once.
    #[inline(always)]
    pub fn header(&self, at: RecRef) -> Header {
        header_of(self.record(at))
    }
    /// The header with the image.
    #[inline(always)]
    pub fn version(&self, at: RecRef) -> (Header, &[u8]) {
        let record = self.record(at);
        (header_of(record), image_of(record))
    }
    /// Sets what the flags say of the version.
    pub fn set_flags(&mut self, at: RecRef, flags: u8) {
        let old = &mut self.record_mut(at)[FLAGS_AT];
        *old = *old & LAYOUT | flags & !LAYOUT;
    }
    /// Only a record that was made with a previous version may get one.
    pub fn set_previous(&mut self, at: RecRef, previous: RecRef) {
        let record = self.record_mut(at);
        set_previous_in(record, previous);
    }
    /// The version is committed in this epoch, above what is named.
    #[inline(always)]
    pub fn settle(&mut self, at: RecRef, epoch: Epoch, flags: u8, previous: RecRef) {
        let record = self.record_mut(at);
        let Some(head) = record.first_chunk_mut::<FIXED_BYTES>() else { panic!("record {at:?} has no header") };
        head[..8].copy_from_slice(&epoch.0.to_le_bytes());
        head[FLAGS_AT] = head[FLAGS_AT] & LAYOUT | flags & !LAYOUT;
        set_previous_in(record, previous);
    }
}

/// Puts a record together.
fn write_record(record: &mut [u8], head: &[u8], key: Option<&[u8]>, image: &[u8]) {
    let (front, rest) = record.split_at_mut(head.len());
    front.copy_from_slice(head);
    let key_bytes = key.map_or(0, |key| 2 + key.len());
    if let Some(key) = key {
        rest[..2].copy_from_slice(&(key.len() as u16).to_le_bytes());
        rest[2..key_bytes].copy_from_slice(key);
    }
    rest[key_bytes..key_bytes + image.len()].copy_from_slice(image);
}

#[inline(always)]
fn header_of(record: &[u8]) -> Header {
    let Some(head) = record.first_chunk::<FIXED_BYTES>() else { panic!("a record of {} bytes", record.len()) };
    let flags = head[FLAGS_AT];
    let previous = if flags & PREVIOUS == 0 { 0 } else { long(record, FIXED_BYTES) };
    let stamp = head.first_chunk().map_or(0, |stamp| u64::from_le_bytes(*stamp));
    Header { stamp, previous: RecRef(previous), flags }
}
#[inline(always)]
fn set_previous_in(record: &mut [u8], previous: RecRef) {
    if record[FLAGS_AT] & PREVIOUS == 0 {
        assert!(previous.is_none(), "a record has no place for a previous version, {previous:?}");
        return;
    }
    record[FIXED_BYTES..HEADER_BYTES].copy_from_slice(&previous.0.to_le_bytes());
}
/// Where the length of the key is, or the image if there is no key.
#[inline]
fn front(record: &[u8]) -> usize {
    FIXED_BYTES + if record[FLAGS_AT] & PREVIOUS == 0 { 0 } else { REF_BYTES }
}
#[inline]
fn key_at(record: &[u8]) -> usize {
    front(record) + 2
}
#[inline]
fn key_length(record: &[u8], from: usize) -> usize {
    usize::from(u16::from_le_bytes([record[from - 2], record[from - 1]]))
}
#[inline(always)]
fn image_of(record: &[u8]) -> &[u8] {
    let mut from = front(record);
    if record[FLAGS_AT] & KEY != 0 {
        from += 2 + key_length(record, from + 2);
    }
    &record[from..from + (word(record, 8) & 0xff_ffff) as usize]
}
#[inline]
fn word(record: &[u8], at: usize) -> u32 {
    record[at..].first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
}
#[inline]
fn long(record: &[u8], at: usize) -> u64 {
    record[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

impl Records {
    /// Frees so many pages or large records at most, of a fragment that nobody will use again. `true`: nothing is left.
    pub fn give_up(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if let Some(page) = self.pages.pop() {
                page.into_iter().for_each(|page| self.memory.free_page(Region::Data, page));
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
        for page in self.pages.drain(..).flatten() {
            self.memory.free_page(Region::Data, page);
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
    fn every_size_has_a_class_that_it_fits() {
        for fine in [true, false] {
            let (mut last, mut sizes) = (0, [0; CLASSES]);
            for size in FIXED_BYTES..=PAGE_BYTES {
                let (class, bytes) = class_of(size, fine);
                assert!(bytes as usize >= size && (class >= last) && bytes as usize <= PAGE_BYTES, "{size} in {bytes}");
                assert!(!fine || size > 512 || bytes as usize - size < 8, "{size} in {bytes}");
                assert!(sizes[class] == 0 || sizes[class] == bytes, "class {class} has {bytes} and {}", sizes[class]);
                (last, sizes[class]) = (class, bytes);
                assert!(fine || class_of(bytes as usize, true) == (class, bytes), "class {class} is of two sizes");
            }
        }
    }

    #[test]
    fn records_come_go_and_give_their_memory_back() {
        let memory = MemoryManager::new(64 << 20);
        let mut records = Records::new(memory.clone());
        let mut live: Vec<(RecRef, Option<Vec<u8>>, Vec<u8>)> = Vec::new();
        let mut seed = 7u64;
        let check = |records: &Records, (at, key, image): &(RecRef, Option<Vec<u8>>, Vec<u8>)| {
            assert_eq!(records.bytes_of(*at), image);
            assert_eq!(records.key_or_image(*at), key.as_deref().ok_or(&image[..]));
        };
        for i in 0..40_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
            if seed >> 60 < 9 || live.is_empty() {
                let length = if seed >> 50 & 255 == 0 { 100_000 } else { (seed >> 33) as usize % 900 };
                let (image, key) = (vec![i as u8; length], (seed >> 20 & 1 == 0).then(|| vec![!i as u8; length % 300]));
                let previous = if seed >> 21 & 1 == 0 { RecRef(seed >> 3) } else { RecRef::NONE };
                let at = records.alloc(key.as_deref(), &image, (TOMBSTONE, seed), previous, true).unwrap();
                let header = records.header(at);
                assert_eq!((header.previous, header.stamp, header.is_tombstone()), (previous, seed, true));
                records.set_flags(at, PENDING);
                let header = records.header(at);
                assert_eq!(
                    (header.is_pending(), header.is_tombstone(), header.has_same_entries()),
                    (true, false, false)
                );
                records.settle(at, Epoch(i), SAME_ENTRIES, previous);
                let header = records.header(at);
                assert_eq!((header.stamp, header.is_pending(), header.has_same_entries()), (i, false, true));
                assert_eq!(header.previous, previous);
                live.push((at, key, image));
            } else {
                let record = live.swap_remove(seed as usize % live.len());
                check(&records, &record);
                records.free(record.0);
            }
        }
        assert!(records.bytes() > FINE_BYTES, "{} bytes", records.bytes());
        for record in live.drain(..) {
            check(&records, &record);
            records.free(record.0);
        }
        assert!(records.bytes() <= (CLASSES * PAGE_BYTES) as u64);
        drop(records);
        assert!(memory.usage().all(|r| r.used == 0));
    }
}

//! Where a tree keeps its nodes and long keys.

use std::{
    mem,
    ops::{Index, IndexMut},
};

use super::NIL;

/// Items of a chunk.
pub(super) const CHUNK: usize = 32;

/// Items with stable numbers in chunks; freed numbers are used again, and chunks of which no item is left go.
pub(super) struct Slab<T> {
    pub(super) chunks: Vec<Chunk<T>>,
    /// Chunks with room, each at least once; others may be among them.
    with_room: Vec<u32>,
    /// A chunk that was left by its last item, and is kept for the next one.
    kept: Option<u32>,
    /// Items in use, and those that the chunks have room for.
    used: usize,
    room: usize,
}

/// Has the full capacity, but the first of a slab, which starts small.
pub(super) struct Chunk<T> {
    pub(super) items: Vec<T>,
    /// A bit for each item in use.
    used: u32,
    is_listed: bool,
}

const _: () = assert!(CHUNK == u32::BITS as usize);

impl<T> Slab<T> {
    pub(super) const EMPTY: Slab<T> = Slab { chunks: Vec::new(), with_room: Vec::new(), kept: None, used: 0, room: 0 };

    pub(super) fn insert(&mut self, item: T) -> u32 {
        let at = loop {
            match self.with_room.last() {
                Some(&at) if self.chunks[at as usize].used != u32::MAX => break at as usize,
                Some(&at) => {
                    self.chunks[at as usize].is_listed = false;
                    self.with_room.pop();
                }
                None => {
                    assert!(self.chunks.len() < NIL as usize / CHUNK, "slab full");
                    self.with_room.push(self.chunks.len() as u32);
                    self.chunks.push(Chunk { items: Vec::new(), used: 0, is_listed: true });
                }
            }
        };
        let chunk = &mut self.chunks[at];
        let place = chunk.used.trailing_ones();
        chunk.used |= 1 << place;
        self.used += 1;
        if let Some(free) = chunk.items.get_mut(place as usize) {
            *free = item;
        } else {
            let before = chunk.items.capacity();
            if at > 0 && before == 0 {
                chunk.items.reserve_exact(CHUNK);
            }
            chunk.items.push(item);
            self.room += chunk.items.capacity() - before;
        }
        at as u32 * CHUNK as u32 + place
    }
    pub(super) fn remove(&mut self, id: u32, empty: T) -> T {
        let at = id / CHUNK as u32;
        let chunk = &mut self.chunks[at as usize];
        let bit = 1 << (id % CHUNK as u32);
        assert!(chunk.used & bit != 0, "item {id} of a slab is freed twice");
        let item = mem::replace(&mut chunk.items[id as usize % CHUNK], empty);
        chunk.used &= !bit;
        self.used -= 1;
        let is_empty = chunk.used == 0;
        if !chunk.is_listed {
            chunk.is_listed = true;
            self.with_room.push(at);
        }
        // One empty chunk stays, so that one item coming and going does not cost a chunk each time.
        if is_empty
            && let Some(before) = self.kept.replace(at).filter(|before| *before != at)
            && self.chunks[before as usize].used == 0
        {
            self.room -= mem::take(&mut self.chunks[before as usize].items).capacity();
        }
        item
    }
    /// Items in use.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.used
    }
    /// Items the chunks have room for.
    pub(super) fn room(&self) -> usize {
        self.room
    }
    /// Heap bytes, without what the items own.
    pub(super) fn bytes(&self) -> usize {
        self.room * size_of::<T>() + self.list_bytes()
    }
    /// Those among them that are not for items.
    #[inline]
    pub(super) fn list_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk<T>>() + self.with_room.capacity() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK].items[id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK].items[id as usize % CHUNK]
    }
}

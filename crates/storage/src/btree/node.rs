//! A node of a tree: a slotted page, or a leaf without keys.

use std::cmp::Ordering;

use super::{BARE_ENTRY, BARE_SKIP_MAX, ENTRY, INLINE_MAX, Long, NIL, OUTSIDE, PAGE};
use crate::{
    hash_index::prefetch_read,
    row_key::{RowKey, RowKeys},
};

/// Where keys are that are not in their node.
pub(super) struct Keys<'t, R> {
    pub(super) long: &'t Long,
    pub(super) rows: &'t R,
}

impl<R> Clone for Keys<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Keys<'_, R> {}

/// What a node knows of a key in 16 bytes: head, length code, offset of the key bytes in the page, value.
#[derive(Clone, Copy)]
pub(super) struct Entry(u128);

impl Entry {
    pub(super) fn new(head: u64, len: u16, offset: usize, value: u32) -> Entry {
        Entry(u128::from(head) << 64 | u128::from(len) << 48 | (offset as u128) << 32 | u128::from(value))
    }
    #[inline]
    pub(super) fn of(bytes: &[u8; ENTRY]) -> Entry {
        Entry(u128::from_le_bytes(*bytes))
    }
    /// An entry of a leaf without keys.
    #[inline]
    pub(super) fn of_bare(bytes: &[u8; BARE_ENTRY]) -> Entry {
        let row = bytes.last_chunk().map_or(0, |row| u32::from_le_bytes(*row));
        Entry::new(bare_head(bytes), 0, PAGE, row)
    }
    #[inline]
    pub(super) fn head(self) -> u64 {
        (self.0 >> 64) as u64
    }
    /// Length of the key, or [`OUTSIDE`].
    #[inline]
    pub(super) fn len(self) -> u16 {
        (self.0 >> 48) as u16
    }
    #[inline]
    pub(super) fn offset(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }
    #[inline]
    pub(super) fn value(self) -> u32 {
        self.0 as u32
    }
    /// Bytes the key takes in the page.
    #[inline]
    pub(super) fn stored(self) -> usize {
        if self.len() == OUTSIDE { size_of::<u32>() } else { usize::from(self.len()) }
    }
}

/// The head in an entry of a leaf without keys.
#[inline]
pub(super) fn bare_head(entry: &[u8; BARE_ENTRY]) -> u64 {
    entry.first_chunk().map_or(0, |head| u64::from_le_bytes(*head))
}

/// Bytes a key takes in a page.
pub(super) fn stored_bytes(key: &[u8]) -> usize {
    if key.len() > INLINE_MAX { size_of::<u32>() } else { key.len() }
}

/// The 8 bytes behind the first `skip`, zeros where the key ends.
#[inline]
pub(super) fn head_of(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None if rest.is_empty() => 0,
        None => rest.iter().fold(0, |head, byte| head << 8 | u64::from(*byte)) << (64 - 8 * rest.len()),
    }
}

/// Length of the common prefix.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()))
}

#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Node {
    /// Entries.
    pub(super) len: u32,
    /// Bytes that all keys share and the heads leave out; 0 when the heads tell the keys apart anyway.
    pub(super) skip: u16,
    /// A leaf without keys.
    pub(super) bare: bool,
    /// Where the key bytes begin.
    pub(super) heap: u32,
    /// Bytes of removed keys among them.
    pub(super) dead: u32,
    /// Leaf: the leaf before. Inner node: the child below the first separator.
    pub(super) left: u32,
    /// Leaf: the leaf after.
    pub(super) right: u32,
    pub(super) page: [u8; PAGE],
}

const _: () = assert!(size_of::<Node>() == 2048 && PAGE.is_multiple_of(ENTRY) && PAGE / 2 > 4 * (ENTRY + INLINE_MAX));

impl Node {
    pub(super) const EMPTY: Node =
        Node { len: 0, skip: 0, bare: false, heap: PAGE as u32, dead: 0, left: NIL, right: NIL, page: [0; PAGE] };
    pub(super) const EMPTY_BARE: Node = Node { bare: true, ..Node::EMPTY };

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
    /// Of a node with keys.
    #[inline]
    pub(super) fn entries(&self) -> &[[u8; ENTRY]] {
        &self.page.as_chunks::<ENTRY>().0[..self.len()]
    }
    #[inline]
    pub(super) fn bare_entries(&self) -> &[[u8; BARE_ENTRY]] {
        &self.page.as_chunks::<BARE_ENTRY>().0[..self.len()]
    }
    #[inline]
    pub(super) fn entry_bytes(&self) -> usize {
        if self.bare { BARE_ENTRY } else { ENTRY }
    }
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Entry {
        match self.bare {
            true => Entry::of_bare(&self.bare_entries()[at]),
            false => Entry::of(&self.entries()[at]),
        }
    }
    pub(super) fn set_entry(&mut self, at: usize, entry: Entry) {
        if self.bare {
            let bytes = &mut self.page.as_chunks_mut::<BARE_ENTRY>().0[at];
            bytes[..8].copy_from_slice(&entry.head().to_le_bytes());
            bytes[8..].copy_from_slice(&entry.value().to_le_bytes());
        } else {
            self.page.as_chunks_mut::<ENTRY>().0[at] = entry.0.to_le_bytes();
        }
    }
    pub(super) fn set_value(&mut self, at: usize, value: u32) {
        let old = self.entry(at);
        self.set_entry(at, Entry::new(old.head(), old.len(), old.offset(), value));
    }
    #[inline]
    pub(super) fn head(&self, at: usize) -> u64 {
        if self.bare { bare_head(&self.bare_entries()[at]) } else { self.entry(at).head() }
    }
    /// The key bytes in the page: the key, or the number of a long one.
    #[inline]
    pub(super) fn stored(&self, entry: Entry) -> &[u8] {
        &self.page[entry.offset()..entry.offset() + entry.stored()]
    }
    /// The number of a key that lies outside.
    pub(super) fn outside(&self, entry: Entry) -> Option<u32> {
        let bytes = if entry.len() == OUTSIDE { self.stored(entry).first_chunk() } else { None };
        bytes.map(|number| u32::from_le_bytes(*number))
    }
    #[inline]
    pub(super) fn key<'t, R: RowKeys>(&'t self, keys: Keys<'t, R>, at: usize) -> RowKey<'t> {
        let entry = self.entry(at);
        if self.bare {
            return keys.rows.key(entry.value());
        }
        RowKey::stored(match self.outside(entry) {
            Some(number) => &keys.long[number],
            None => self.stored(entry),
        })
    }
    /// Whether a key has all that the heads leave out, or on which side of the node it is.
    #[inline]
    pub(super) fn side<R: RowKeys>(&self, keys: Keys<'_, R>, key: &[u8]) -> Ordering {
        let skip = usize::from(self.skip);
        let mine = &key[..skip.min(key.len())];
        match self.bare {
            true => mine.cmp(&self.page[PAGE - skip..]),
            false => mine.cmp(&self.key(keys, 0)[..skip]),
        }
    }
    /// Inner node: child `at` of `len + 1`.
    #[inline]
    pub(super) fn child(&self, at: usize) -> u32 {
        if at == 0 { self.left } else { self.entry(at - 1).value() }
    }
    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.len() * self.entry_bytes() + PAGE - self.heap as usize - self.dead as usize
    }
    /// From `from` on, entries of which this holds of the head, as it does of the first ones only.
    #[inline(always)]
    pub(super) fn heads_with(&self, from: usize, holds: impl Fn(u64) -> bool) -> usize {
        match self.bare {
            true => self.bare_entries()[from..].partition_point(|entry| holds(bare_head(entry))),
            false => self.entries()[from..].partition_point(|entry| holds(Entry::of(entry).head())),
        }
    }
    /// Has its entries fetched, and what heads leave out where no key says it: all at once, since a search and the shift of an insert wait for one line after another.
    #[inline]
    pub(super) fn prefetch(&self) {
        let end = self.len() * self.entry_bytes();
        self.page[..end].chunks(64).for_each(prefetch_read);
        if self.bare && self.skip > 0 {
            prefetch_read(&self.page[PAGE - usize::from(self.skip)..]);
        }
    }
    /// Where the key is, or where it would go.
    #[inline]
    pub(super) fn search<R: RowKeys>(&self, keys: Keys<'_, R>, key: &[u8]) -> Result<usize, usize> {
        let len = self.len();
        if self.skip > 0 {
            match self.side(keys, key) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(len),
                Ordering::Equal => {}
            }
        }
        let head = head_of(key, usize::from(self.skip));
        let mut low = self.heads_with(0, |other| other < head);
        let equal = |at: usize| at < len && self.head(at) == head;
        if !equal(low) {
            return Err(low);
        }
        let mut high = low + 1;
        if equal(high) {
            high += self.heads_with(high, |other| other == head);
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(keys, middle, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Entries before the key, or up to and with it.
    #[inline]
    pub(super) fn rank<R: RowKeys>(&self, keys: Keys<'_, R>, key: &[u8], with: bool) -> usize {
        self.search(keys, key).map_or_else(|at| at, |at| at + usize::from(with))
    }

    /// The key of an entry against `key`, when the heads are equal.
    #[inline]
    pub(super) fn compare<R: RowKeys>(&self, keys: Keys<'_, R>, at: usize, key: &[u8]) -> Ordering {
        let told = usize::from(self.skip) + size_of::<u64>();
        let len = usize::from(self.entry(at).len());
        if !self.bare && len <= told && key.len() <= told {
            return len.cmp(&key.len()); // equal but for zeros at the end
        }
        let skip = usize::from(self.skip);
        self.key(keys, at)[skip..].cmp(&key[skip..])
    }

    /// As [`Node::open`], in a leaf without keys.
    pub(super) fn open_bare(&mut self, at: usize, head: u64, value: u32) {
        let (from, end) = (at * BARE_ENTRY, self.len() * BARE_ENTRY);
        assert!(self.bare && from <= end && end + BARE_ENTRY <= self.heap as usize, "node overflow");
        self.page.copy_within(from..end, from + BARE_ENTRY);
        let entry = &mut self.page[from..from + BARE_ENTRY];
        entry[..8].copy_from_slice(&head.to_le_bytes());
        entry[8..].copy_from_slice(&value.to_le_bytes());
        self.len += 1;
    }
    /// The caller has made room.
    pub(super) fn open(&mut self, at: usize, head: u64, len: u16, value: u32, stored: &[u8]) {
        let width = self.entry_bytes();
        let (from, end, heap) = (at * width, self.len() * width, self.heap as usize);
        assert!(from <= end && end + width + stored.len() <= heap, "node overflow");
        let offset = heap - stored.len();
        self.page[offset..heap].copy_from_slice(stored);
        self.page.copy_within(from..end, from + width);
        self.set_entry(at, Entry::new(head, len, offset, value));
        self.heap = offset as u32;
        self.len += 1;
    }

    /// Takes an entry of another node as the last one, the head as it is there.
    pub(super) fn append(&mut self, other: &Node, at: usize) {
        let entry = other.entry(at);
        self.open(self.len(), entry.head(), entry.len(), entry.value(), other.stored(entry));
    }

    /// Removes an entry; a key outside stays there.
    pub(super) fn close(&mut self, at: usize) {
        let width = self.entry_bytes();
        self.dead += self.entry(at).stored() as u32;
        let end = self.len() * width;
        self.page.copy_within((at + 1) * width..end, at * width);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        }
    }
    pub(super) fn clear(&mut self) {
        (self.len, self.skip, self.heap, self.dead) = (0, 0, PAGE as u32, 0);
    }
    /// Is empty and takes heads as another node does.
    pub(super) fn begin_as(&mut self, other: &Node) {
        self.clear();
        self.bare = other.bare;
        self.skip = other.skip;
        if self.bare {
            let from = PAGE - usize::from(self.skip);
            self.page[from..].copy_from_slice(&other.page[from..]);
            self.heap = from as u32;
        }
    }

    /// Wins back the bytes of removed keys.
    pub(super) fn compact(&mut self) {
        let old = self.clone();
        self.begin_as(&old);
        (0..old.len()).for_each(|at| self.append(&old, at));
    }

    /// Takes all heads behind the first `skip` bytes, which the keys share.
    pub(super) fn rehead<R: RowKeys>(&mut self, keys: Keys<'_, R>, skip: usize) {
        if self.bare && self.len > 0 {
            let first = keys.rows.key(self.entry(0).value());
            self.page[PAGE - skip..].copy_from_slice(&first[..skip]);
            self.heap = (PAGE - skip) as u32;
        }
        for at in 0..self.len() {
            let (head, old) = (head_of(&self.key(keys, at), skip), self.entry(at));
            self.set_entry(at, Entry::new(head, old.len(), old.offset(), old.value()));
        }
        self.skip = skip as u16;
    }

    /// Bytes that all keys share, as far as heads may leave them out.
    pub(super) fn shared<R: RowKeys>(&self, keys: Keys<'_, R>) -> usize {
        let shared = common(&self.key(keys, 0), &self.key(keys, self.len() - 1));
        if self.bare { shared.min(BARE_SKIP_MAX) } else { shared }
    }

    /// Chooses what the heads leave out after the node was put together anew.
    pub(super) fn choose_heads<R: RowKeys>(&mut self, keys: Keys<'_, R>) {
        if !self.bare {
            self.rehead(keys, 0);
        }
        if (1..self.len()).any(|at| self.head(at - 1) == self.head(at)) {
            let skip = self.shared(keys);
            if skip != usize::from(self.skip) && (!self.bare || self.len() * BARE_ENTRY + skip <= PAGE) {
                self.rehead(keys, skip);
            }
        }
    }

    /// Entries of the left half of a split by bytes.
    pub(super) fn middle(&self) -> usize {
        if self.bare {
            return self.len() / 2;
        }
        let mut bytes = 0;
        let half = self.entries().iter().position(|entry| {
            bytes += ENTRY + Entry::of(entry).stored();
            bytes * 2 >= self.used()
        });
        half.unwrap_or(0).clamp(1, self.len() - 2)
    }
}

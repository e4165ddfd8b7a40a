//! Byte strings of a statement's execution without an allocation for each: lists, pairs for sorting, sets.
//!
//! All keep their memory from one statement to the next, up to [`KEPT_BYTES_MAX`] each.

use std::{cmp::Ordering, ops::Range};

use apus_types::hash::hash_key;

use super::memory_sort;
use crate::{expr::Env, wire::SqlError};

/// Memory that one container keeps for the next statement, in bytes; what grew beyond is given back.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Strings that are looked for together, and places of a table from which it is worth it: one that is in the cache needs no look ahead.
const LOOK_AHEAD: usize = 64;
const LOOK_AHEAD_MIN: usize = 16 << 10;

/// Empties a list; memory beyond [`KEPT_BYTES_MAX`] is given back.
pub fn trim<T>(list: &mut Vec<T>) {
    list.clear();
    if list.capacity() * size_of::<T>() > KEPT_BYTES_MAX {
        *list = Vec::new();
    }
}

/// Byte strings in a row.
#[derive(Clone, Default, Debug)]
pub struct Strings {
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Strings {
    pub fn clear(&mut self) {
        trim(&mut self.bytes);
        trim(&mut self.spans);
    }
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Memory used, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Range<usize>>()
    }
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(self.spans.get(index)?.clone())
    }
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.spans.iter().map(|span| &self.bytes[span.clone()])
    }
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.end();
    }
    /// The buffer to write the next string to, until [`Strings::end`].
    pub fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
    /// Ends the string written since the last one.
    pub fn end(&mut self) {
        let start = self.open_start();
        self.spans.push(start..self.bytes.len());
    }
    /// Drops what was written since the last string.
    pub fn abandon(&mut self) {
        let start = self.open_start();
        self.bytes.truncate(start);
    }
    /// Removes the last string.
    pub fn pop(&mut self) {
        if let Some(span) = self.spans.pop() {
            self.bytes.truncate(span.start);
        }
    }
    // Spans may be in any order after a sort, but then no string is added any more.
    fn open_start(&self) -> usize {
        self.spans.last().map_or(0, |span| span.end)
    }
    /// Brings the strings into byte order, each once. Nothing may be added before the next `clear`.
    pub fn sort_and_dedup(&mut self) {
        let Strings { bytes, spans } = self;
        spans.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
        spans.dedup_by(|a, b| bytes[a.clone()] == bytes[b.clone()]);
    }
}

/// Pairs of a sort key and a payload.
#[derive(Clone, Default, Debug)]
pub struct Pairs {
    bytes: Vec<u8>,
    spans: Vec<Pair>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    start: usize,
    middle: usize,
    end: usize,
}

impl Pair {
    /// By key, then by when they came.
    fn order(&self, other: &Pair, bytes: &[u8]) -> Ordering {
        bytes[self.start..self.middle].cmp(&bytes[other.start..other.middle]).then(self.start.cmp(&other.start))
    }
}

impl Pairs {
    pub fn clear(&mut self) {
        trim(&mut self.bytes);
        trim(&mut self.spans);
    }
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Memory used, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Pair>()
    }
    /// Adds a pair.
    pub fn push_plain(&mut self, key: &[u8], payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.spans.push(Pair { start, middle, end: self.bytes.len() });
    }
    /// Adds a pair with a payload in parts.
    pub fn push_parts(&mut self, key: &[u8], payload: &[&[u8]]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        payload.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.spans.push(Pair { start, middle, end: self.bytes.len() });
    }
    /// Only the first pairs stay, in the memory that they need.
    pub fn keep_first(&mut self, count: usize) {
        let mut kept = Pairs::default();
        (0..count.min(self.len())).for_each(|at| kept.push_plain(self.key(at), self.payload(at)));
        *self = kept;
    }
    /// Adds a pair whose key `write` appends.
    pub fn push<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>, payload: &[u8]) -> Result<(), E> {
        let start = self.bytes.len();
        if let Err(e) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(e);
        }
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.spans.push(Pair { start, middle, end: self.bytes.len() });
        Ok(())
    }
    pub fn key(&self, index: usize) -> &[u8] {
        self.spans.get(index).map_or(&[], |p| &self.bytes[p.start..p.middle])
    }
    pub fn payload(&self, index: usize) -> &[u8] {
        self.spans.get(index).map_or(&[], |p| &self.bytes[p.middle..p.end])
    }
    /// Orders by payload.
    pub fn sort_by_payload(&mut self) {
        let Pairs { bytes, spans } = self;
        spans.sort_unstable_by(|a, b| bytes[a.middle..a.end].cmp(&bytes[b.middle..b.end]));
    }
    /// Orders by key; equal keys stay in the order they came.
    pub fn sort(&mut self) {
        let Pairs { bytes, spans } = self;
        spans.sort_unstable_by(|a, b| a.order(b, bytes));
    }
    /// As [`Pairs::sort`], of so many that others of the thread have their turn meanwhile.
    ///
    /// # Errors
    /// As [`memory_sort::sort`].
    pub async fn sort_in_turns(&mut self, env: &Env) -> Result<(), SqlError> {
        let Pairs { bytes, spans } = self;
        memory_sort::sort(spans, |a, b| a.order(b, bytes), env).await
    }
}

/// Reads the beginning of each string, so that those who read them next do not wait for each.
pub fn touch<'s>(strings: impl Iterator<Item = &'s [u8]>) {
    let seen = strings.fold(0, |seen, string| seen ^ string.first().copied().unwrap_or(0));
    std::hint::black_box(seen);
}

fn tag_of(string: &[u8]) -> u32 {
    hash_key(string) as u32
}

/// Byte strings, each once, numbered in the order they came.
#[derive(Clone, Default, Debug)]
pub struct StringSet {
    strings: Strings,
    /// Open addressing: a power of two long, at most three quarters full.
    slots: Vec<Slot>,
    /// Empty: memory of the table from before it grew.
    before: Vec<Slot>,
    /// The string that was inserted last, new or not: rows that belong together often follow each other.
    last: usize,
}

/// Number + 1 of a string, 0 where the slot is free, and half of its hash: most other strings are told apart without a look at their bytes, and a table that grows needs none of them.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    number: u32,
    tag: u32,
}

impl StringSet {
    pub fn clear(&mut self) {
        self.strings.clear();
        trim(&mut self.slots);
        trim(&mut self.before);
    }
    pub fn len(&self) -> usize {
        self.strings.len()
    }
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
    /// Memory used, in bytes.
    pub fn byte_len(&self) -> usize {
        self.strings.byte_len() + self.slots.len() * size_of::<Slot>()
    }
    /// String `number`.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.strings.get(number)
    }
    pub fn contains(&self, string: &[u8]) -> bool {
        self.find(string).is_ok()
    }
    /// The number of a string that is in the set.
    pub fn number(&self, string: &[u8]) -> Option<usize> {
        self.find(string).ok()
    }
    /// The number of the string and whether it is new.
    pub fn insert(&mut self, string: &[u8]) -> (usize, bool) {
        self.strings.push(string);
        self.insert_written()
    }
    /// As [`StringSet::insert`] of the string that `write` appends.
    pub fn insert_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(usize, bool), E> {
        if let Err(e) = write(self.strings.writer()) {
            self.strings.abandon();
            return Err(e);
        }
        self.strings.end();
        Ok(self.insert_written())
    }

    /// The last string is not in the table yet.
    fn insert_written(&mut self) -> (usize, bool) {
        let last = self.strings.len() - 1;
        if self.last < last && self.strings.get(self.last) == self.strings.get(last) {
            self.strings.pop();
            return (self.last, false);
        }
        let (number, is_new) = self.insert_other(last);
        self.last = number;
        (number, is_new)
    }

    fn insert_other(&mut self, last: usize) -> (usize, bool) {
        if self.strings.len() * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let string = self.strings.get(last).unwrap_or(&[]);
        let tag = tag_of(string);
        match self.find_tagged(string, tag) {
            Ok(number) => {
                self.strings.pop();
                (number, false)
            }
            Err(slot) => {
                let number = u32::try_from(last + 1).expect("memory limits keep a set below 2^32 strings");
                self.slots[slot] = Slot { number, tag };
                (last, true)
            }
        }
    }

    /// Whether a look ahead pays.
    pub fn is_large(&self) -> bool {
        self.slots.len() >= LOOK_AHEAD_MIN
    }

    /// Brings into the cache what looking these strings up will touch. A step asks for many places that say nothing of each other, so the processor waits for them together.
    pub fn look_ahead(&self, strings: &Strings) {
        if !self.is_large() {
            return;
        }
        let mask = self.slots.len() - 1;
        for chunk in strings.spans.chunks(LOOK_AHEAD) {
            let (mut tags, mut numbers, mut starts) = ([0; LOOK_AHEAD], [0; LOOK_AHEAD], [0; LOOK_AHEAD]);
            for (tag, span) in tags.iter_mut().zip(chunk) {
                *tag = tag_of(&strings.bytes[span.clone()]);
            }
            for (number, tag) in numbers.iter_mut().zip(&tags[..chunk.len()]) {
                let slot = self.slots[*tag as usize & mask];
                *number = if slot.tag == *tag { slot.number as usize } else { 0 };
            }
            for (start, number) in starts.iter_mut().zip(&numbers[..chunk.len()]) {
                *start = number.checked_sub(1).map_or(0, |number| self.strings.spans[number].start);
            }
            touch(starts[..chunk.len()].iter().map(|start| self.strings.bytes.get(*start..).unwrap_or(&[])));
        }
    }

    fn find(&self, string: &[u8]) -> Result<usize, usize> {
        self.find_tagged(string, tag_of(string))
    }

    /// The number of a string, or the free slot where it belongs.
    #[inline]
    fn find_tagged(&self, string: &[u8], tag: u32) -> Result<usize, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mask = self.slots.len() - 1;
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at];
            let Some(number) = slot.number.checked_sub(1) else { return Err(at) };
            if slot.tag == tag && self.strings.get(number as usize) == Some(string) {
                return Ok(number as usize);
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(32);
        std::mem::swap(&mut self.slots, &mut self.before);
        self.slots.clear();
        self.slots.resize(size, Slot::default());
        for slot in self.before.drain(..).filter(|slot| slot.number > 0) {
            let mut at = slot.tag as usize & (size - 1);
            while self.slots[at].number > 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_sort_and_lose_doubles() {
        let mut s = Strings::default();
        for k in [&b"b"[..], b"a", b"", b"b", b"aa"] {
            s.push(k);
        }
        s.writer().extend_from_slice(b"half");
        s.abandon();
        s.sort_and_dedup();
        assert_eq!(s.iter().collect::<Vec<_>>(), [&b""[..], b"a", b"aa", b"b"]);
        s.clear();
        assert!(s.is_empty());
    }

    #[test]
    fn pairs_sort_stably() {
        let mut p = Pairs::default();
        for (k, v) in [("b", "1"), ("a", "2"), ("b", "3"), ("a", "4")] {
            p.push_plain(k.as_bytes(), v.as_bytes());
        }
        assert_eq!(
            p.push(
                |out| {
                    out.push(1);
                    Err(7)
                },
                b"x"
            ),
            Err(7)
        );
        p.sort();
        let all: Vec<_> = (0..p.len()).map(|i| p.payload(i).to_vec()).collect();
        assert_eq!(all, [b"2", b"4", b"1", b"3"]);
        assert_eq!((p.key(9), p.payload(9)), (&b""[..], &b""[..]));
    }

    #[test]
    fn sets_number_strings() {
        let mut set = StringSet::default();
        for round in 0..2 {
            for n in 0..5000u32 {
                assert_eq!(set.insert(&n.to_le_bytes()), (n as usize, round == 0));
            }
        }
        assert!(set.contains(&7u32.to_le_bytes()) && !set.contains(b"none"));
        assert_eq!(set.insert_with(|_| Err::<(), u8>(1)), Err(1));
        assert_eq!(set.len(), 5000);
        set.clear();
        assert!(!set.contains(&7u32.to_le_bytes()));
        assert_eq!(set.insert(b""), (0, true));
    }
}

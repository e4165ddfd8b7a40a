//! From entries to blocks.
//!
//! An entry is copied once, into the block that is being filled. A block gets its place, its number and its checksum when it is taken; until then
//! nothing is decided, so entries may be appended while there is no room on the disk. An entry that is longer than a block is cut into blocks of its own,
//! all in one segment, so that a reader may begin at any segment.

use std::collections::VecDeque;

use apus_types::Epoch;

use crate::{
    Control, Entry, LogId,
    block::{HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX, block_bytes},
    key::FileKey,
    reader::End,
};

/// A block for its place on the disk.
#[derive(Debug)]
pub struct Block {
    pub segment: u32,
    /// Offset in it.
    pub at: u64,
    pub sequence: u64,
    pub bytes: Vec<u8>,
}

/// A place in a log, with what is known of the block before it. Ordered as the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// 0: before all segments.
    pub segment: u32,
    pub at: u64,
    /// Number and checksum of the block before; 0: there is none.
    pub sequence: u64,
    pub previous: u64,
}

impl Place {
    /// Behind every other.
    pub const END: Place = Place { segment: u32::MAX, at: u64::MAX, sequence: u64::MAX, previous: u64::MAX };
}

/// Filled and not taken yet: room for the header, then the payload.
#[derive(Debug)]
struct Filled {
    kind: Kind,
    /// Of a first piece: what all pieces take on the disk. Otherwise what this block takes.
    run: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Writer {
    id: LogId,
    segment_bytes: u64,
    open: Vec<u8>,
    filled: VecDeque<Filled>,
    spare: Vec<Vec<u8>>,
    /// Bytes of payload in `open` and `filled`.
    buffered: usize,
    /// Segments to be written, each with its key: the current one first.
    segments: VecDeque<(u32, Option<FileKey>)>,
    /// In the current one.
    at: u64,
    sequence: u64,
    synced: u64,
    previous: u64,
    /// Bytes of all blocks that were taken.
    written: u64,
}

impl Writer {
    /// A log with nothing in it and no segment yet.
    pub fn new(control: &Control) -> Writer {
        Writer::resume(control, &End::default())
    }
    /// Goes on where a log ends. Nothing of it counts as synced: a process that was killed may have left it in the system's memory alone. So
    /// whoever goes on has the last segments synced before its first [`Writer::synced`].
    /// What it writes from there on has the keys that the control file names: they are new ones.
    pub fn resume(control: &Control, end: &End) -> Writer {
        let keyed = |(index, number): (usize, &u32)| {
            let at = if index == 0 { end.at } else { 0 };
            (*number, control.keys.of(*number, at).cloned())
        };
        Writer {
            id: control.id,
            segment_bytes: control.segment_bytes,
            open: vec![0; HEADER_BYTES],
            filled: VecDeque::new(),
            spare: Vec::new(),
            buffered: 0,
            segments: end.segments.iter().enumerate().map(keyed).collect(),
            at: end.at,
            sequence: end.sequence,
            synced: 0,
            previous: end.previous,
            written: 0,
        }
    }

    #[inline]
    pub fn append(&mut self, entry: &Entry<'_>) {
        let length = entry.encoded_len();
        self.buffered += length;
        if self.open.len() + length > HEADER_BYTES + PAYLOAD_BYTES_MAX {
            self.close();
            if length > PAYLOAD_BYTES_MAX {
                return self.append_long(entry);
            }
        }
        entry.encode(&mut self.open);
    }

    #[cold]
    fn append_long(&mut self, entry: &Entry<'_>) {
        let mut whole = Vec::with_capacity(entry.encoded_len());
        entry.encode(&mut whole);
        let run = whole.chunks(PAYLOAD_BYTES_MAX).map(|piece| block_bytes(piece.len())).sum();
        for (number, piece) in whole.chunks(PAYLOAD_BYTES_MAX).enumerate() {
            let kind = if number == 0 { Kind::First } else { Kind::Next };
            let mut bytes = vec![0; HEADER_BYTES];
            bytes.extend_from_slice(piece);
            let run = if number == 0 { run } else { block_bytes(piece.len()) };
            self.filled.push_back(Filled { kind, run, bytes });
        }
    }

    fn close(&mut self) {
        if self.open.len() > HEADER_BYTES {
            let mut next = self.spare.pop().unwrap_or_default();
            next.clear();
            next.resize(HEADER_BYTES, 0);
            let bytes = std::mem::replace(&mut self.open, next);
            let run = block_bytes(bytes.len() - HEADER_BYTES);
            self.filled.push_back(Filled { kind: Kind::Entries, run, bytes });
        }
    }

    /// Bytes that were appended and are not taken.
    pub fn buffered(&self) -> usize {
        self.buffered
    }
    /// Bytes left in the segments that the writer has.
    pub fn room(&self) -> u64 {
        (self.segments.len() as u64 * self.segment_bytes).saturating_sub(self.at)
    }
    /// Where the next block goes at the earliest: what is appended from now on is not before it.
    #[inline]
    pub fn place(&self) -> Place {
        let segment = self.segments.front().map_or(0, |segment| segment.0);
        Place { segment, at: self.at, sequence: self.sequence, previous: self.previous }
    }
    /// Bytes of the blocks that were taken.
    pub fn written(&self) -> u64 {
        self.written
    }
    /// A segment that is allocated on the disk, for when the last one is full; its key, if it is to be encrypted.
    pub fn add_segment(&mut self, number: u32, key: Option<FileKey>) {
        self.segments.push_back((number, key));
    }
    /// The number that the newest block has.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
    /// Every block up to this one is on the disk, as far as this process knows.
    pub fn synced_to(&self) -> u64 {
        self.synced
    }
    /// Every block up to this one is on the disk, whatever happens.
    pub fn synced(&mut self, sequence: u64) {
        assert!(sequence <= self.sequence, "block {sequence} is synced, and {} is the newest", self.sequence);
        self.synced = self.synced.max(sequence);
    }

    /// The next block to be written, padded to its full length. `spare`: a buffer for one to come. `None`: nothing was appended, or there is no room.
    pub fn take(&mut self, epoch: Epoch, spare: Vec<u8>) -> Option<Block> {
        if spare.capacity() > 0 && self.spare.len() < 4 {
            self.spare.push(spare);
        }
        if self.filled.is_empty() {
            self.close();
        }
        let run = self.filled.front()?.run as u64;
        if self.segments.is_empty() || (self.at + run > self.segment_bytes && self.segments.len() < 2) {
            return None;
        }
        if self.at + run > self.segment_bytes {
            self.segments.pop_front();
            self.at = 0;
        }
        let Filled { kind, mut bytes, .. } = self.filled.pop_front()?;
        let (segment, key) = self.segments.front()?;
        let segment = *segment;
        let payload = bytes.len() - HEADER_BYTES;
        self.buffered -= payload;
        self.sequence += 1;
        let (sequence, synced, previous) = (self.sequence, self.synced, self.previous);
        let header = Header { kind, payload, sequence, synced, epoch, previous };
        bytes.resize(block_bytes(payload), 0);
        self.previous = header.seal(self.id, segment, self.at, key.as_ref(), &mut bytes);
        let block = Block { segment, at: self.at, sequence, bytes };
        self.at += block.bytes.len() as u64;
        self.written += block.bytes.len() as u64;
        assert!(self.at <= self.segment_bytes, "block {sequence} goes beyond its segment");
        Some(block)
    }
}

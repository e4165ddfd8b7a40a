//! From blocks to entries.
//!
//! Whoever uses a reader moves the bytes: [`Reader::step`] says which piece of which segment it needs, [`Reader::feed`] brings it. Entries are borrowed from
//! the reader's buffer, so nothing is copied but the pieces of long ones.
//!
//! ```text
//! Blocks --no next block here--> does the next segment begin with it? --yes--> Blocks
//!                                 no: Scan: what is left of this segment and all of the next ones, for a block that says the missing one was synced
//!                                 --found--> Damaged          --none--> Ended
//! ```

use std::{borrow::Cow, collections::VecDeque};

use apus_signal::Reader as Bytes;
use apus_types::Epoch;

use crate::{
    BLOCK_ALIGN, Control, Damage, Entry, LogId, VERSION,
    block::{HEADER_BYTES, Header, Kind, NoBlock, block_bytes},
    key::Keys,
};

/// What is next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Feed so many bytes, or fewer at the end of the file, of this segment from this offset on.
    Read {
        segment: u32,
        at: u64,
        count: u32,
    },
    Entry(Entry<'a>),
    /// Nothing is left, and nothing is missing that anybody was promised.
    Ended,
    Damaged(Damage),
}

/// Where a log ends, for a writer that goes on.
#[derive(Clone, Default, Debug)]
pub struct End {
    /// The current segment and those behind it.
    pub segments: Vec<u32>,
    /// In the current one.
    pub at: u64,
    /// Of the last block.
    pub sequence: u64,
    /// Its checksum.
    pub previous: u64,
}

/// A piece of a segment: whole blocks, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub segment: u32,
    pub at: u64,
    pub bytes: u32,
}

/// Bytes of one piece.
const PIECE_BYTES: u32 = 256 << 10;

#[derive(Debug)]
enum Phase {
    Blocks,
    /// Looks whether the segment with this index begins with the next block.
    Peek(usize),
    /// Looks for a block that proves damage, in the segment with this index, at this offset.
    Scan(usize, u64),
    Ended,
    Damaged(Damage),
}

#[derive(Debug)]
pub struct Reader {
    id: LogId,
    segment_bytes: u64,
    segments: Vec<u32>,
    keys: Keys,
    phase: Phase,
    /// Index of the segment and place of the next block.
    index: usize,
    at: u64,
    /// What was fed: where it begins, and whether the file ends with it.
    piece: Vec<u8>,
    piece_of: Option<(u32, u64)>,
    is_last_piece: bool,
    /// Of the last block; `None`: none was read yet, any may come.
    last: Option<(u64, u64)>,
    /// Number of the first block that was read; 0: none.
    first: u64,
    /// Up to this block the last one says that all were synced, and those behind, by their numbers.
    synced: u64,
    unproven: VecDeque<(u64, Piece)>,
    epoch: Epoch,
    highest: Epoch,
    blocks: u64,
    /// Payload of the current block, and how far it is read.
    payload: Vec<u8>,
    next: usize,
    /// The pieces so far of a long entry, and how long it is.
    long: Vec<u8>,
    long_bytes: usize,
}

impl Reader {
    /// Reads from the segment with this index on; from where the log begins if that is the first.
    pub fn new(control: &Control, first: usize) -> Reader {
        let start = Some(control.start).filter(|start| first == 0 && control.segments.first() == Some(&start.segment));
        let phase = if first < control.segments.len() { Phase::Blocks } else { Phase::Ended };
        Reader {
            id: control.id,
            segment_bytes: control.segment_bytes,
            segments: control.segments.clone(),
            keys: control.keys.clone(),
            phase,
            index: first,
            at: start.map_or(0, |start| start.at),
            piece: Vec::new(),
            piece_of: None,
            is_last_piece: false,
            last: start.filter(|start| start.sequence > 0).map(|start| (start.sequence, start.previous)),
            first: 0,
            synced: 0,
            unproven: VecDeque::new(),
            epoch: Epoch(0),
            highest: Epoch(0),
            blocks: 0,
            payload: Vec::new(),
            next: 0,
            long: Vec::new(),
            long_bytes: 0,
        }
    }
    /// Highest epoch of a worker that any block names.
    pub fn highest(&self) -> Epoch {
        self.highest
    }
    /// Number of the last block that was read; 0: none.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |last| last.0)
    }
    /// Takes no more entries of the block that is read.
    pub fn pass_over(&mut self) {
        self.payload.clear();
        self.next = 0;
    }
    /// Blocks that were read.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
    /// Segment index and offset of what is read next: how far it is.
    pub fn place(&self) -> (usize, u64) {
        (self.index, self.at)
    }
    /// Where the log ends; after [`Step::Ended`].
    pub fn end(&self) -> End {
        let (sequence, previous) = self.last.unwrap_or((0, 0));
        let segments = self.segments.get(self.index..).unwrap_or_default().to_vec();
        End { segments, at: self.at, sequence, previous }
    }

    /// The blocks that no later one says were synced, in order; pieces have at most so many bytes, or one block.
    pub fn unproven(&self, bytes_max: u32) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (_, block) in &self.unproven {
            match pieces.last_mut() {
                Some(piece)
                    if piece.segment == block.segment
                        && piece.at + u64::from(piece.bytes) == block.at
                        && piece.bytes + block.bytes <= bytes_max =>
                {
                    piece.bytes += block.bytes;
                }
                _ => pieces.push(*block),
            }
        }
        pieces
    }
    /// Blocks before those that were read are not known to have been synced either.
    pub fn is_unproven_before(&self) -> bool {
        self.synced + 1 < self.first
    }

    /// What was asked for by [`Step::Read`].
    pub fn feed(&mut self, segment: u32, at: u64, count: u32, bytes: &[u8]) {
        self.piece.clear();
        self.piece.extend_from_slice(bytes);
        self.piece_of = Some((segment, at));
        self.is_last_piece = bytes.len() < count as usize;
    }

    pub fn step(&mut self) -> Step<'_> {
        loop {
            if self.next < self.payload.len() {
                match self.entry_bounds() {
                    Ok((from, to)) => return self.entry(from, to),
                    Err(reason) => self.damage(reason),
                }
            }
            let read = match &self.phase {
                Phase::Blocks => self.next_block(),
                Phase::Peek(index) => self.peek(*index),
                Phase::Scan(index, at) => self.scan(*index, *at),
                Phase::Ended => return Step::Ended,
                Phase::Damaged(damage) => return Step::Damaged(damage.clone()),
            };
            if let Some((segment, at)) = read {
                return Step::Read { segment, at, count: PIECE_BYTES };
            }
        }
    }

    /// Where the next entry's body is in the payload.
    fn entry_bounds(&mut self) -> Result<(usize, usize), String> {
        let rest = &self.payload[self.next..];
        let length = Bytes::new(rest).u32().map_err(|_| "an entry is cut off")? as usize;
        let from = self.next + 4;
        let to = from + length;
        if to > self.payload.len() {
            return Err("an entry is longer than its block".to_owned());
        }
        self.next = to;
        Ok((from, to))
    }
    fn entry(&mut self, from: usize, to: usize) -> Step<'_> {
        // A block whose checksum is right holds what a writer has put there: this is a mistake of a release, not of a disk.
        if Entry::decode(&self.payload[from..to]).is_err() {
            self.damage("an entry is of a kind that this release does not know".to_owned());
        }
        match (&self.phase, Entry::decode(self.payload.get(from..to).unwrap_or_default())) {
            (_, Ok(entry)) => Step::Entry(entry),
            (Phase::Damaged(damage), _) => Step::Damaged(damage.clone()),
            _ => Step::Ended,
        }
    }

    fn damage(&mut self, reason: String) {
        let segment = self.segments.get(self.index).copied().unwrap_or(0);
        self.payload.clear();
        self.next = 0;
        self.phase = Phase::Damaged(Damage { segment, at: self.at, epoch: self.epoch, reason });
    }

    /// The bytes at a place, as far as they are here. `Err`: they have to be fed.
    fn bytes_at(&self, index: usize, at: u64, wanted: usize) -> Result<&[u8], ()> {
        let Some(&segment) = self.segments.get(index) else { return Ok(&[]) };
        let wanted = wanted.min(self.segment_bytes.saturating_sub(at) as usize);
        let Some((of, from)) = self.piece_of.filter(|(of, from)| *of == segment && *from <= at) else { return Err(()) };
        debug_assert_eq!(of, segment);
        let bytes = self.piece.get((at - from) as usize..).unwrap_or_default();
        if bytes.len() >= wanted || self.is_last_piece { Ok(bytes) } else { Err(()) }
    }

    /// The block at a place. `Ok(None)`: there is none. `Err`: bytes have to be fed.
    fn block_at(&self, index: usize, at: u64) -> Result<Option<Placed<'_>>, ()> {
        let Some(&segment) = self.segments.get(index) else { return Ok(None) };
        let key = self.keys.of(segment, at);
        let mut wanted = HEADER_BYTES;
        loop {
            let bytes = self.bytes_at(index, at, wanted)?;
            match Header::open(self.id, segment, at, key, bytes) {
                Ok(block) => return Ok(Some(block)),
                Err(NoBlock::Short(more)) if more > bytes.len() && bytes.len() >= wanted => wanted = more,
                Err(NoBlock::Short(_) | NoBlock::Wrong) => return Ok(None),
                Err(NoBlock::Version(version)) => return Ok(Some((of_version(version), 0, Cow::Borrowed(&[])))),
            }
        }
    }
    fn follows(&self, header: &Header) -> bool {
        self.last.is_none_or(|(sequence, sum)| header.sequence == sequence + 1 && header.previous == sum)
    }

    fn next_block(&mut self) -> Option<(u32, u64)> {
        let segment = self.segments[self.index];
        let Ok(found) = self.block_at(self.index, self.at) else { return Some((segment, self.at)) };
        let Some((header, sum, payload)) = found.filter(|(header, ..)| self.follows(header)) else {
            self.phase = Phase::Peek(self.index + 1);
            return None;
        };
        if header.sequence == 0 {
            let reason = format!("a block has version {}, this release reads {VERSION}", header.synced);
            self.damage(reason);
            return None;
        }
        let payload = payload.into_owned();
        let block = Piece { segment, at: self.at, bytes: block_bytes(header.payload) as u32 };
        if self.first == 0 {
            self.first = header.sequence;
        }
        self.synced = self.synced.max(header.synced);
        while self.unproven.front().is_some_and(|(sequence, _)| *sequence <= header.synced) {
            self.unproven.pop_front();
        }
        self.unproven.push_back((header.sequence, block));
        self.at += u64::from(block.bytes);
        self.last = Some((header.sequence, sum));
        self.epoch = header.epoch;
        self.highest = self.highest.max(header.epoch);
        self.blocks += 1;
        self.take_payload(header.kind, payload);
        None
    }

    fn take_payload(&mut self, kind: Kind, payload: Vec<u8>) {
        self.next = 0;
        match kind {
            Kind::Entries => {
                self.long.clear();
                self.payload = payload;
                return;
            }
            Kind::First => {
                self.long_bytes = Bytes::new(&payload).u32().map_or(0, |n| n as usize + 4);
                self.long = payload;
            }
            // The log begins amid an entry that is not needed.
            Kind::Next if self.long.is_empty() => return self.payload.clear(),
            Kind::Next => self.long.extend_from_slice(&payload),
        }
        self.payload.clear();
        if self.long.len() >= self.long_bytes {
            self.payload = std::mem::take(&mut self.long);
        }
    }

    /// The log may go on at the start of a later segment: the one before had no room for the next block.
    fn peek(&mut self, index: usize) -> Option<(u32, u64)> {
        let Some(&segment) = self.segments.get(index) else {
            self.phase = Phase::Scan(self.index, self.at);
            return None;
        };
        match self.block_at(index, 0) {
            Err(()) => return Some((segment, 0)),
            Ok(Some((header, ..))) if self.last.is_some() && self.follows(&header) => {
                (self.index, self.at, self.phase) = (index, 0, Phase::Blocks);
            }
            Ok(_) => self.phase = Phase::Scan(self.index, self.at),
        }
        None
    }

    /// Is there a block that says that the missing one had been synced?
    fn scan(&mut self, index: usize, at: u64) -> Option<(u32, u64)> {
        let Some(&segment) = self.segments.get(index) else {
            self.phase = Phase::Ended;
            return None;
        };
        let missing = self.last.map_or(1, |last| last.0 + 1);
        let mut place = at;
        loop {
            match self.block_at(index, place) {
                Err(()) => {
                    self.phase = Phase::Scan(index, place);
                    return Some((segment, place));
                }
                Ok(Some((header, ..))) if header.sequence > missing && header.synced >= missing => {
                    let reason =
                        format!("block {missing} is not there, and block {} says that it was synced", header.sequence);
                    self.damage(reason);
                    return None;
                }
                Ok(_) => {}
            }
            place += BLOCK_ALIGN as u64;
            let is_end = place >= self.segment_bytes || self.bytes_at(index, place, 1).is_ok_and(<[u8]>::is_empty);
            if is_end {
                self.phase = Phase::Scan(index + 1, 0);
                return None;
            }
        }
    }
}

/// A block at its place: header, checksum, payload.
type Placed<'a> = (Header, u64, Cow<'a, [u8]>);

/// Stands for a block of another version: its number is where `synced` is.
fn of_version(version: u16) -> Header {
    let synced = u64::from(version);
    Header { kind: Kind::Entries, payload: 0, sequence: 0, synced, epoch: Epoch(0), previous: 0 }
}

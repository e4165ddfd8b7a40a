//! The header of a block.

use std::borrow::Cow;

use apus_types::Epoch;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    BLOCK_ALIGN, BLOCK_BYTES_MAX, LogId, VERSION,
    key::{FileKey, TAG_BYTES},
};

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX - HEADER_BYTES;
const MAGIC: u32 = u32::from_le_bytes(*b"ApRd");
const CHECKSUM_AT: usize = 56;
/// Of an encrypted block; its last eight bytes are where the checksum is, and are the next block's `previous`.
const TAG_AT: usize = HEADER_BYTES - TAG_BYTES;
const PLACE_BYTES: usize = 24;

/// What a payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Whole entries.
    Entries = 1,
    /// The first piece of a long entry, and those behind it.
    First = 2,
    Next = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    pub payload: usize,
    pub sequence: u64,
    pub synced: u64,
    pub epoch: Epoch,
    pub previous: u64,
}

/// Why there is no block at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoBlock {
    /// More bytes are needed to tell: so many in all.
    Short(usize),
    Wrong,
    /// Of a later release.
    Version(u16),
}

/// Bytes that a block with this payload takes.
pub(crate) fn block_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(BLOCK_ALIGN)
}

/// What every checksum and tag is over, besides the block: whose it is, and where.
fn place(id: LogId, segment: u32, at: u64) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    place[..8].copy_from_slice(&id.cluster.to_le_bytes());
    place[8..10].copy_from_slice(&id.node.0.to_le_bytes());
    place[10] = id.instance;
    place[11] = id.kind as u8;
    place[12..16].copy_from_slice(&segment.to_le_bytes());
    place[16..].copy_from_slice(&at.to_le_bytes());
    place
}

/// The checksum of a block at its place: of the header up to the checksum, the payload and the zeros behind it.
fn checksum(place: &[u8; PLACE_BYTES], block: &[u8]) -> u64 {
    let seed = xxh3_64_with_seed(&block[..CHECKSUM_AT], xxh3_64(place));
    xxh3_64_with_seed(&block[HEADER_BYTES..], seed)
}

/// What the tag of an encrypted block is over, besides what is encrypted: the header up to the tag, and the place.
fn context(place: &[u8; PLACE_BYTES], block: &[u8]) -> [u8; TAG_AT + PLACE_BYTES] {
    let mut context = [0; TAG_AT + PLACE_BYTES];
    context[..TAG_AT].copy_from_slice(&block[..TAG_AT]);
    context[TAG_AT..].copy_from_slice(place);
    context
}

fn long(head: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    u64::from(word(at)) | u64::from(word(at + 4)) << 32
}

impl Header {
    /// Fills in the header in front of a payload, for the place where the block is going to be, and encrypts the payload where there is a key. `block` has its full
    /// length, zeros behind the payload. The checksum, which the next block names.
    pub fn seal(&self, id: LogId, segment: u32, at: u64, key: Option<&FileKey>, block: &mut [u8]) -> u64 {
        block[..HEADER_BYTES].fill(0);
        block[..4].copy_from_slice(&MAGIC.to_le_bytes());
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        block[6..8].copy_from_slice(&(self.kind as u16).to_le_bytes());
        block[8..12].copy_from_slice(&(self.payload as u32).to_le_bytes());
        block[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        block[24..32].copy_from_slice(&self.synced.to_le_bytes());
        block[32..40].copy_from_slice(&self.epoch.0.to_le_bytes());
        block[40..48].copy_from_slice(&self.previous.to_le_bytes());
        let (place, block) = (place(id, segment, at), &mut block[..block_bytes(self.payload)]);
        let Some(FileKey(key)) = key else {
            let sum = checksum(&place, block);
            block[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
            return sum;
        };
        let tag = key.seal(self.sequence, &context(&place, block), &mut block[HEADER_BYTES..]);
        block[TAG_AT..HEADER_BYTES].copy_from_slice(&tag);
        block.first_chunk().map_or(0, |head| long(head, CHECKSUM_AT))
    }

    /// The block that begins `bytes`, its checksum and its payload.
    pub fn open<'a>(
        id: LogId,
        segment: u32,
        at: u64,
        key: Option<&FileKey>,
        bytes: &'a [u8],
    ) -> Result<(Header, u64, Cow<'a, [u8]>), NoBlock> {
        let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(NoBlock::Short(HEADER_BYTES))?;
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| long(head, at);
        if word(0) != MAGIC {
            return Err(NoBlock::Wrong);
        }
        let payload = word(8) as usize;
        if payload > PAYLOAD_BYTES_MAX {
            return Err(NoBlock::Wrong);
        }
        let Some(block) = bytes.get(..block_bytes(payload)) else {
            return Err(NoBlock::Short(block_bytes(payload)));
        };
        let (place, sum) = (place(id, segment, at), long(CHECKSUM_AT));
        let content = match key {
            None if sum == checksum(&place, block) => Some(Cow::Borrowed(&block[HEADER_BYTES..HEADER_BYTES + payload])),
            None => None,
            Some(FileKey(key)) => head.last_chunk().and_then(|tag| {
                let mut content = key.open(long(16), &context(&place, block), &block[HEADER_BYTES..], tag)?;
                content.truncate(payload);
                Some(Cow::Owned(content))
            }),
        };
        let content = content.ok_or(NoBlock::Wrong)?;
        if short(4) != VERSION {
            return Err(NoBlock::Version(short(4)));
        }
        let kind = match short(6) {
            1 => Kind::Entries,
            2 => Kind::First,
            3 => Kind::Next,
            _ => return Err(NoBlock::Wrong),
        };
        let (sequence, synced, epoch, previous) = (long(16), long(24), Epoch(long(32)), long(40));
        if sequence == u64::MAX {
            return Err(NoBlock::Wrong); // none could follow it
        }
        Ok((Header { kind, payload, sequence, synced, epoch, previous }, sum, content))
    }
}

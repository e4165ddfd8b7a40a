//! Node recovery: a joining node gets from the primaries what it lacks, while traffic goes on: every row, or what has changed since the epoch up to which
//! it has put back everything from its own disk (`ViewNode::restored`).
//!
//! From the view that has the node as `Recovering`, every write goes along a chain that ends at it. The primary's LDM, ordered by
//! its own node's COPY block (`CopyFragReq`), walks its rows in slices. Each row goes down the *same chain* as writes do
//! (`CopyRowsOrd`); only recovering nodes store it. Each node behind the primary answers `CopyRowsConf` to it, and it keeps at most `COPY_WINDOW`
//! messages under way.
//!
//! A row that a transaction has locked is passed over, so that no change prepared before the node was in the chain is missed. It is copied when
//! it is looked at again and free, or by the primary as soon as its lock changes hands, before the new holder does anything with it. So
//! a row that is never free is copied, too. Why the copy and the changes stay in order:
//!
//! - *Changes of earlier holders.* The one before has given the lock back at the primary, so its commit or abort has been at every node of its chain.
//!   If the recovering node was in that chain, it has the committed version, as a pending one perhaps, and then leaves the copy aside; what was
//!   undone it has undone. If it was not, it has nothing of that holder, and the copy holds all that it missed.
//! - *Changes of the new holder.* The batch that got the lock sends the copy before its own changes, over the same links, and each node passes both
//!   on in the order in which they came. A node that has an older view sets changes aside until it has theirs, and never a copy for longer: a copy names
//!   the view in which its walk began, which is not later than that of any change after it.
//!
//! **A node with rows of its own** ([`Walked`]). A walk of slots says of each what the node is to have there: the row in this message, the one that it has (a bit in
//! `unchanged`), one that a transaction has at the primary and that is left for now (`left`), or none. So rows that were deleted since go, without anybody having
//! kept their numbers. A row in a message whose key is empty is no row: its slot is empty. The sum over the unchanged rows shows that both mean
//! the same rows; if not, the node gives up all that it had, and comes back empty.
//!
//! **Outcomes.** When all rows of a partition are on their way the primary sends what it remembers of commits (`CopyOutcomesOrd`), down the same chain. By then every
//! change that the recovering node was not sent by the chain is decided at the primary, so the node knows afterwards of every commit
//! that the primary does, and can tell a client what became of its transaction.
//!
//! If the recovering node dies the copying stops with the view; if the primary dies the new primary's COPY block starts that
//! fragment again (rows stored twice are equal or older and are overwritten in chain order).

use apus_types::{Chain, Epoch, PartitionId, TableId};

use crate::{
    codec::{DecodeError, Put, Reader},
    envelope::BlockRef,
};

/// Most `CopyRowsOrd` unanswered per LDM instance while it does nothing else.
pub const COPY_WINDOW: u32 = 4;
/// The same while it serves transactions: each write down the chain waits behind what is under way.
pub const COPY_WINDOW_BUSY: u32 = 1;
/// A `CopyRowsOrd` is closed when it holds this many bytes.
pub const COPY_BYTES: usize = 64 << 10;

/// `CopyFragReq` (COPY to LDM of the primary), `CopyFragConf`, `CopyFragRef`: all fragments of `partition`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyFrag {
    pub generation: u64,
    pub partition: PartitionId,
}

impl CopyFrag {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_u16(self.partition.0);
    }
    pub fn decode(body: &[u8]) -> Result<CopyFrag, DecodeError> {
        let mut r = Reader::new(body);
        Ok(CopyFrag { generation: r.u64()?, partition: PartitionId(r.u16()?) })
    }
}

/// What a `CopyRowsOrd` says of the slots from `from` on and below `to` besides the rows that it brings: `from u32, to u32, since u64, sum u64, unchanged
/// long, left long`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walked<'a> {
    pub from: u32,
    pub to: u32,
    /// Rows that were not changed after this epoch are not sent. 0: all are.
    pub since: Epoch,
    /// Over those, [`Walked::add`].
    pub sum: u64,
    /// A bit for each of those, from `from` on; what is behind the last byte has none.
    pub unchanged: &'a [u8],
    /// Slots, four bytes each in ascending order, of which another message will tell, or a change down the chain.
    pub left: &'a [u8],
}

impl<'a> Walked<'a> {
    pub fn is_unchanged(&self, row: u32) -> bool {
        let at = row.wrapping_sub(self.from) as usize;
        row >= self.from && self.unchanged.get(at / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0)
    }
    pub fn left(&self) -> impl Iterator<Item = u32> + 'a {
        self.left.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
    /// The sum with a row more: what its place, key and image hash to, and the epoch of its last change.
    #[must_use]
    pub fn add(sum: u64, row_hash: u64, epoch: Epoch) -> u64 {
        sum.wrapping_add(row_hash ^ epoch.0.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.from);
        out.put_u32(self.to);
        out.put_u64(self.since.0);
        out.put_u64(self.sum);
        out.put_long_bytes(self.unchanged);
        out.put_long_bytes(self.left);
    }
    fn decode(r: &mut Reader<'a>) -> Result<Walked<'a>, DecodeError> {
        let (from, to, since, sum) = (r.u32()?, r.u32()?, r.epoch()?, r.u64()?);
        Ok(Walked { from, to, since, sum, unchanged: r.long_bytes()?, left: r.long_bytes()? })
    }
}

/// `CopyRowsOrd`: `generation u64, source, chain, partition u16, table u32, slots u64, [`Walked`], count u16, count x [`CopiedRow`]`.
#[derive(Clone, Copy, Debug)]
pub struct CopyRowsOrd<'a> {
    pub generation: u64,
    /// The LDM to answer.
    pub source: BlockRef,
    pub chain: Chain,
    pub partition: PartitionId,
    pub table: TableId,
    /// Of all tables of the partition together, when the walk began: for whoever wants to know how far it is.
    pub slots: u64,
    pub walked: Walked<'a>,
    pub count: u16,
    pub rows: &'a [u8],
}

impl<'a> CopyRowsOrd<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_block(self.source);
        out.put_chain(self.chain);
        out.put_u16(self.partition.0);
        out.put_u32(self.table.0);
        out.put_u64(self.slots);
        self.walked.encode(out);
        out.put_u16(self.count);
        out.put_bytes(self.rows);
    }
    pub fn decode(body: &'a [u8]) -> Result<CopyRowsOrd<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(CopyRowsOrd {
            generation: r.u64()?,
            source: r.block()?,
            chain: r.chain()?,
            partition: PartitionId(r.u16()?),
            table: TableId(r.u32()?),
            slots: r.u64()?,
            walked: Walked::decode(&mut r)?,
            count: r.u16()?,
            rows: r.rest(),
        })
    }
    pub fn rows(&self) -> impl Iterator<Item = Result<CopiedRow<'a>, DecodeError>> {
        let mut r = Reader::new(self.rows);
        (0..self.count).map(move |_| CopiedRow::decode(&mut r))
    }
}

/// A committed row: `epoch u64, row u32, key short, image long`; with an empty key, which no row has: the slot is empty, as of that epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopiedRow<'a> {
    /// Of its last change.
    pub epoch: Epoch,
    /// Its slot at the primary, and so at every replica.
    pub row: u32,
    pub key: &'a [u8],
    pub image: &'a [u8],
}

impl<'a> CopiedRow<'a> {
    pub fn empty(row: u32, epoch: Epoch) -> CopiedRow<'static> {
        CopiedRow { epoch, row, key: &[], image: &[] }
    }
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.epoch.0);
        out.put_u32(self.row);
        out.put_short_bytes(self.key);
        out.put_long_bytes(self.image);
    }
    pub fn decode(r: &mut Reader<'a>) -> Result<CopiedRow<'a>, DecodeError> {
        Ok(CopiedRow { epoch: r.epoch()?, row: r.u32()?, key: r.short_bytes()?, image: r.long_bytes()? })
    }
}

/// Commits of a client with numbers that follow each other: [`CommittedChunk::BYTES`] of a `CopyOutcomesOrd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommittedChunk {
    pub client: u64,
    /// Its first number divided by [`CommittedChunk::NUMBERS`].
    pub number: u64,
    /// Of those that are committed, from the lowest bit of the first word on.
    pub bits: [u64; CommittedChunk::WORDS],
}

impl CommittedChunk {
    pub const NUMBERS: u64 = 512;
    const WORDS: usize = Self::NUMBERS as usize / 64;
    pub const BYTES: usize = (2 + Self::WORDS) * size_of::<u64>();

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.client);
        out.put_u64(self.number);
        self.bits.iter().for_each(|word| out.put_u64(*word));
    }
    fn decode(r: &mut Reader<'_>) -> Result<CommittedChunk, DecodeError> {
        let (client, number, mut bits) = (r.u64()?, r.u64()?, [0; Self::WORDS]);
        for word in &mut bits {
            *word = r.u64()?;
        }
        if number > u64::MAX / Self::NUMBERS {
            return Err(DecodeError);
        }
        Ok(CommittedChunk { client, number, bits })
    }
}

/// `CopyOutcomesOrd`: `generation u64, source, chain, partition u16, known_ns u64, [`CommittedChunk`]s`. Answered like a `CopyRowsOrd`.
#[derive(Clone, Copy, Debug)]
pub struct CopyOutcomesOrd<'a> {
    pub generation: u64,
    /// The LDM to answer.
    pub source: BlockRef,
    pub chain: Chain,
    pub partition: PartitionId,
    /// The last of the partition: all commits of so many nanoseconds have been told. 0: more will come.
    pub known_ns: u64,
    pub chunks: &'a [u8],
}

impl<'a> CopyOutcomesOrd<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_block(self.source);
        out.put_chain(self.chain);
        out.put_u16(self.partition.0);
        out.put_u64(self.known_ns);
        out.put_bytes(self.chunks);
    }
    pub fn decode(body: &'a [u8]) -> Result<CopyOutcomesOrd<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(CopyOutcomesOrd {
            generation: r.u64()?,
            source: r.block()?,
            chain: r.chain()?,
            partition: PartitionId(r.u16()?),
            known_ns: r.u64()?,
            chunks: r.rest(),
        })
    }
    pub fn chunks(&self) -> impl Iterator<Item = Result<CommittedChunk, DecodeError>> + 'a {
        self.chunks.chunks(CommittedChunk::BYTES).map(|bytes| CommittedChunk::decode(&mut Reader::new(bytes)))
    }
}

/// `CopyRowsConf`: a node has passed one `CopyRowsOrd` or `CopyOutcomesOrd` on, and stored it if it is being filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRowsConf {
    pub generation: u64,
    pub partition: PartitionId,
}

impl CopyRowsConf {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_u16(self.partition.0);
    }
    pub fn decode(body: &[u8]) -> Result<CopyRowsConf, DecodeError> {
        let mut r = Reader::new(body);
        Ok(CopyRowsConf { generation: r.u64()?, partition: PartitionId(r.u16()?) })
    }
}

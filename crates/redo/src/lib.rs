//! Form of the redo log of one LDM: a [`Writer`] turns entries into blocks, a [`Reader`] blocks into entries. No I/O: whoever uses them moves the bytes.
//!
//! ```text
//! log      = segments in the order of the control file; files of SEGMENT_BYTES, allocated before they are used
//! segment  = blocks, one behind the other, each a multiple of BLOCK_ALIGN and written once
//! block    = header (64 bytes), payload, zeros
//! payload  = whole entries, or a piece of one entry that is longer than a block
//! entry    = length u32 of what follows, kind u8, fields
//! ```
//!
//! ```text
//! header:  0 magic u32 | 4 version u16 | 6 kind u16 | 8 payload bytes u32 | 12 zero u32
//!         16 sequence u64      counts the blocks of this log
//!         24 synced u64        every block up to this one was synced when this one was written
//!         32 epoch u64         the worker's, so that a damaged log can say from when on
//!         40 previous u64      checksum of the block before
//!         48 zero u64
//!         56 checksum u64      of all that is before it, the payload, and the place: cluster, node, instance, segment, offset
//! ```
//!
//! **Encrypted blocks** have the same header, in the clear. What is behind it is encrypted, zeros included; the tag, of 16 bytes, takes the place of the last two words, and its second
//! half that of the checksum. It is over the same bytes and the same place. Which blocks are encrypted is told by the control file ([`Control::keys`]), not by a block. [`key`] has the rest.
//!
//! **Misplaced blocks.** A block that was written elsewhere, or belongs to another node's, another cluster's or another segment's file, has a wrong
//! checksum. Numbers of segments are never used again, so neither is a place.
//!
//! **Where a log begins.** At a block of its first segment ([`Control::start`]) whose predecessor's number and checksum are known, so that a log whose first block is
//! gone is damaged and not shorter.
//!
//! **A checkpoint** is a file of the same blocks with entries of its own ([`Entry::Fragment`], [`Entry::Page`], [`Entry::Commits`]), listed with length, number of blocks and last checksum,
//! which is of all of them.
//!
//! **Where a log ends.** Reading stops at the first place where the next block (by `sequence` and `previous`) is not. Blocks that are not synced may get to the disk
//! in any order, so that alone is no damage: what was not synced was promised to nobody. If a block that lies further on says by `synced`
//! that the missing one had been synced, the log is damaged: see [`Damage`].
//!
//! **Versions.** A block of another version is refused with its number ([`Damage`]); this release reads version [`VERSION`] only. In version 1 rows did not say
//! with which columns they were written (`apus_types::form`). In version 2 keys of texts had the order of other weights (`apus_types::collate`).

mod block;
mod control;
mod entry;
pub mod key;
mod reader;
mod vault;
mod writer;

use std::fmt;

use apus_types::{Epoch, NodeId};

pub use self::{
    control::{CHECKPOINTS_MAX, Checkpoint, Control, Layout, Unread, Useless},
    entry::Entry,
    reader::{End, Piece, Reader, Step},
    vault::{Closed, OVERHEAD_BYTES, Vault, key_name, sealed_under},
    writer::{Block, Place, Writer},
};

/// Bytes of a segment, unless a log was made with another size (tests draw small ones).
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Blocks begin and end at multiples of this.
pub const BLOCK_ALIGN: usize = 4096;
/// Longest block: one request to the disk.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Of the form on disk.
pub const VERSION: u16 = 3;
/// Longest entry: the changes of one batch, which come in one signal.
pub const ENTRY_BYTES_MAX: usize = apus_types::limits::SIGNAL_BYTES_MAX + (1 << 10);

/// Whose log: part of every checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogId {
    pub cluster: u64,
    pub node: NodeId,
    pub instance: u8,
    pub kind: LogKind,
}

/// What its blocks are read as: one of the other kind has a wrong checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    Redo = 0,
    /// A file of a checkpoint: a log of one segment ([`Control::of_checkpoint`]).
    Checkpoint = 1,
}

/// A log is not what was written, at a place where it had been synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub segment: u32,
    pub at: u64,
    /// Of the last block that is sound.
    pub epoch: Epoch,
    /// For people.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { segment, at, epoch, reason } = self;
        write!(f, "segment {segment} is damaged at byte {at}, after epoch {epoch}: {reason}")
    }
}

/// A block must fit into a segment, and the pieces of the longest entry into one.
const _: () = assert!(BLOCK_BYTES_MAX.is_multiple_of(BLOCK_ALIGN));
const _: () = assert!((ENTRY_BYTES_MAX as u64) < SEGMENT_BYTES / 2);

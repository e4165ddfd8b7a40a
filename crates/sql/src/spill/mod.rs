//! Rows that a statement has more of than it may keep in memory: files that only it knows.
//!
//! ```text
//! Space      one per SQL node: the directory, and how many bytes all statements together may have there
//!   File       one per sort or join: appended to in chunks, read by position; its name is gone before its first byte is written
//!     Stream     records of a key and a payload, one after the other: a list of chunks of a file
//!       Sorter     sorted streams, merged by key; equal keys stay in the order in which they came
//!       Later      the first record of each key, of those that no set in memory has
//!       Partitions streams by hash of the key
//!     Rows       rows of a derived table, in memory or in a stream
//! ```
//!
//! **Who waits.** No thread that serves connections touches a disk: each chunk is written and read by a helper thread of the runtime (at most
//! `BLOCKING_THREADS_MAX` of `server::limits`), and the statement waits for it as it waits for a data node; others have their turn. Files are closed there, too: to give back
//! gigabytes takes the kernel long. KILL and the deadline end the wait at once.
//!
//! **What is read is what was written.** A chunk begins with a tag over its place in the file, its length and its bytes; anything else is error 1024 for
//! the statement, never an answer.
//!
//! **Nobody else reads it.** Chunks are encrypted by AES-256-GCM, whether the files of data nodes are or not. Each file has a random key that is in this process alone and ends with
//! the file, so a SQL node needs no disk key.
//!
//! **What stays.** Nothing: a file is unlinked when it is opened, so it ends with the statement, or with the process. A process that is killed between the two leaves an empty file, which the next
//! start removes.
//!
//! Rows are in the form that they have in memory ([`RowLayout`](apus_types::RowLayout)); what has no such form (values of groups) is written by [`values`].

pub mod byte_strings;
mod distinct;
mod file;
pub(crate) mod memory_sort;
mod partitions;
mod rows;
mod sorter;
mod stream;
pub mod values;

pub use distinct::Later;
pub use file::{File, Space};
pub use partitions::Partitions;
pub use rows::{Gathered, Kept, RowReader};
pub use sorter::{Merge, Runs, Sorter};
pub use stream::{Reader, Stream, Writer};

/// Bytes of all spill files of a SQL node, unless `--spill-limit` says otherwise.
pub const BYTES_MAX_DEFAULT: u64 = 16 << 30;
/// Bytes that are written and read at once: so many that a trip to the helper thread costs little beside them. A record that is longer is a chunk by itself.
const CHUNK_BYTES: usize = 128 << 10;
/// What has to be in memory together (the values of one group, the rows of one key) may be so much, however little `apus_query_memory` is: as much as a batch of rows.
pub const TOGETHER_BYTES_MIN: usize = 1 << 20;
/// Streams that are merged at once: each has a chunk in memory, 8 MiB in all. More are merged in several passes.
const FAN_IN: usize = 64;
/// Streams that rows are parted into, each with a chunk in memory, 4 MiB in all; a power of two.
const PARTITIONS: usize = 32;
/// How often rows are parted again: with the default memory of a statement so many are enough for 2^48 bytes, and rows that are still too many have the same key.
pub const DEPTH_MAX: u32 = 4;

const _: () = assert!(PARTITIONS.is_power_of_two());
// Each level takes bits of its own from the upper half of a hash, of which sets in memory use the lower.
const _: () = assert!(PARTITIONS.trailing_zeros() * DEPTH_MAX <= 32);

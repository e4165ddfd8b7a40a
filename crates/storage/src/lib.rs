//! Plain data structures of a data node: memory regions, row versions, locks, hash and ordered indexes, fragments.
//!
//! Nothing here knows signals, threads, clocks or files. A fragment has one owner, the LDM instance that is given it, and is not
//! shared; only the [`MemoryManager`] is, by all threads of a node.

pub mod btree;
mod fragment;
mod hash_index;
mod lock;
mod memory;
mod record;
mod row_key;
mod trail;

pub use fragment::{Between, Change, EntryAhead, EntryKey, Fragment, FragmentScan, Idle, PAGE_ROWS, RowId, Writers};
pub use lock::{Acquire, Grant, LockMode, Locks};
pub use memory::{MemoryManager, PAGE_BYTES, Priority, REGIONS, Region, RegionLimits, RegionUse, Release};
pub use record::HEADER_BYTES as VERSION_BYTES;
pub use row_key::{RowKey, RowKeys};
pub use trail::{Point, Trail};

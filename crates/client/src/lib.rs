//! The native client of Apus: what SQL nodes, `apus bench` and the simulator's workloads are made of.
//!
//! - [`Client`] is the handle: committed key reads, scans and aggregates from any replica, transactions through a coordinator, the
//!   dictionary. Failures of nodes are hidden where that is right ([`Transaction`] says where it is not).
//! - [`Snapshot`] fixes a moment that reads, scans and aggregates may be asked for instead of now.
//! - The core is a state machine without I/O: links, hello, requests in flight, routing by the newest map. Operations are
//!   futures over it that need no particular executor and never touch a socket or a clock.
//! - A [`Driver`] moves the bytes and tells the time: module `shell` does it with tokio, the simulator with virtual ones.
//!
//! Everything is `!Send`: one client per thread, with its own connections, so that a key query never changes thread.
//! Containers ([`KeyList`], [`Rows`], [`OpBatch`], [`Results`]) are made to be reused.
//!
//! What dies with whom: a lost link ends its requests; reads go on elsewhere, transactions coordinated there are over. A dropped
//! future forgets its requests; a dropped [`Transaction`] is rolled back; the last dropped [`Client`] closes its links, on which the
//! cluster rolls back what was open.

mod batch;
mod branch;
mod changes;
mod client;
mod config;
mod core;
mod dictionary;
mod driver;
mod error;
mod losses;
mod moment;
mod read;
mod request;
mod retry;
mod rows;
mod scan;
mod shell;
mod snapshot;
mod transaction;

pub use apus_signal::{changed::ChangedRow, epoch::Moment, scan::Aggregate, scan::AggregateFunction, tc::Outcome};
pub use batch::{OpBatch, Results};
pub use branch::{BRANCH_BYTES_MAX, BranchEnd, BranchTables};
pub use client::Client;
pub use config::ClientConfig;
pub use core::{Action, ConnId, Counters};
pub use driver::Driver;
pub use error::ClientError;
pub use losses::{Losses, LostNode};
pub use moment::ANY_MOMENT;
pub use request::{Aggregates, CommitToken, Committed, ExecOptions, PartialAggregate, ReadBatch, ScanRequest};
pub use rows::{KeyList, Rows};
pub use scan::ScanCursor;
pub use snapshot::Snapshot;
pub use transaction::Transaction;

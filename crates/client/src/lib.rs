//! The native client.

pub mod batch;
pub mod client;
pub mod config;
pub mod error;
pub mod request;
pub mod rows;

pub use batch::{OpBatch, Results};
pub use client::{Client, ScanCursor, Transaction};
pub use config::ClientConfig;
pub use error::ClientError;
pub use request::{CommitToken, Committed, ExecOptions, PartialAggregate, ReadBatch, ScanRequest};
pub use rows::{KeyList, Rows};

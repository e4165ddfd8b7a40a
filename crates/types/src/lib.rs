//! What every layer of Apus agrees on: ids, the schema, values, the row format, key encoding, the error catalogue.
//!
//! This crate is the bottom of the ladder. It knows no signal, no block, no socket. Formats defined here ([`row`], [`key`])
//! travel between nodes and will be written to disk, so a change to them is a change of protocol version.

pub mod claims;
pub mod collate;
pub mod collections;
pub mod eras;
pub mod error;
pub mod filter;
pub mod foreign_key;
pub mod form;
pub mod full_text;
pub mod hash;
pub mod ids;
pub mod key;
pub mod limits;
pub mod list;
pub mod planted;
pub mod row;
pub mod rules;
pub mod schema;
pub mod time;
pub mod update;
pub mod value;

pub use error::{ErrorClass, ErrorCode};
pub use full_text::FullText;
pub use ids::{Chain, Epoch, IndexNo, NodeId, PartitionId, TableId, TransId};
pub use row::RowLayout;
pub use schema::{Column, ColumnType, IndexDef, IndexState, TableSchema};
pub use value::Value;

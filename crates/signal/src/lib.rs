//! Every signal and its wire form, one file per conversation.
//!
//! A signal is an [`Envelope`] and a body. Bodies of hot signals (key operations, scans, commit) have fixed little-endian
//! layouts written by `encode` functions and read by bounds-checked views that borrow from the message; control signals
//! (membership, schema, management) are prost messages. One byte form serves everywhere: between nodes, between the threads
//! of a node and in the simulator, so what is tested is what is sent.
//!
//! Decoders take bytes from a stranger: they return [`DecodeError`], they never panic and never trust a length.

pub mod changed;
pub mod codec;
pub mod copy;
mod describe;
pub mod dict;
pub mod envelope;
pub mod epoch;
pub mod file;
pub mod foreign_key;
pub mod gcp;
pub mod held;
pub mod hello;
pub mod key_read;
pub mod ldm;
pub mod mgmt;
pub mod operator;
pub mod qmgr;
pub mod restart;
pub mod scan;
pub mod schema;
pub mod speeds;
pub mod switchover;
pub mod takeover;
pub mod tc;
pub mod view;

pub use codec::{DecodeError, Reader};
pub use describe::describe;
pub use envelope::{BlockId, BlockRef, Envelope, Kind};

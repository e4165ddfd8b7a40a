//! The MySQL client/server protocol as a codec without I/O.
//!
//! Everything here is a function from bytes to values or from values to bytes; sockets, clocks and entropy stay in
//! [`crate::server`]. Decoders take bytes from strangers: they refuse with a [`DecodeError`] or an [`SqlError`] and
//! never panic, never index unchecked, never allocate by a length that was only claimed.
//!
//! - [`packet`]: framing. [`packet::PacketReader`] over one input buffer, [`packet::PacketBuffer`] as output buffer
//!   with the header patched in place.
//! - [`handshake`] and [`auth`]: greeting, client response, password checks.
//! - [`command`] and [`params`]: what a client asks, and the parameters of a prepared execution.
//! - [`characters`] and [`foreign`]: texts of clients that do not speak UTF-8.
//! - [`result`]: OK, ERR, EOF, column definitions, text and binary rows.
//! - [`compressed`]: packets in compressed ones.
//! - [`file`]: the packets of a file that a client sends for LOAD DATA LOCAL.
//!
//! Deliberately not spoken: OPTIONAL_RESULTSET_METADATA, MULTI_FACTOR_AUTHENTICATION. Neither is advertised, so no client may use it.

pub mod auth;
pub mod characters;
pub mod command;
pub mod compressed;
pub mod constants;
pub mod cursor;
pub mod error;
pub mod file;
mod fill;
pub mod foreign;
pub mod handshake;
pub mod number;
pub mod packet;
pub mod params;
pub mod result;
#[cfg(test)]
mod tests;

pub use constants::{capability, column_flag, status};
pub use error::{DecodeError, SqlError};
pub use params::ParamValue;
pub use result::{
    ResultWriter,
    column::{ColumnDef, ColumnType, Heading},
};

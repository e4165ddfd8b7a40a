//! The SQL node: a stateless MySQL-protocol front end over the native client.
//!
//! - [`wire`] is the MySQL protocol as a codec: bytes in, typed commands out; typed results in, bytes out. No I/O.
//! - [`server`] is the tokio shell: listener, one task per connection, command dispatch, time-outs, accounts.
//! - [`json`] is what a JSON value is: text, stored form, paths, order. No I/O.
//! - [`engine`] is what a statement means: session state, parsing, catalog, plans, execution. It implements
//!   [`server::Engine`] and writes rows straight into the connection's output buffer.
//! - [`accounts`] are who may log in and what he may do: values that the other two share.
//!
//! The arrows: `server` uses `wire`; `engine` uses `server`'s boundary types and `wire`'s result types; `wire` uses
//! nothing of ours. A connection lives and dies on one thread, and so do its session and its key plans.

pub mod accounts;
pub mod engine;
pub mod full_text;
pub mod json;
pub mod server;
pub mod wire;

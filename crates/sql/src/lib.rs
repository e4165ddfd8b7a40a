//! The SQL node: a stateless MySQL-protocol front end over the native client.
//!
//! A statement walks through the rooms once, front to back:
//!
//! - [`wire`] is the MySQL protocol as a codec: bytes in, typed commands out; typed results in, bytes out. No I/O.
//! - [`server`] is the tokio shell: listener, one task per connection, time-outs, TLS, logins. Its boundary is [`server::Engine`].
//! - [`dispatch`] takes a command of a connection, and a statement to its executor. It implements that boundary.
//! - [`session`] is what a connection has: its transaction, rights, prepared statements, buffers.
//! - [`parse`] is text: tokens, normal forms, hints, and what the parser of queries lacks.
//! - [`catalog`] has tables as SQL sees them.
//! - [`plan`] binds names and types ([`plan::bind`]), chooses access paths and orders of joins, and keeps plans.
//! - [`exec`] runs plans over the native client and writes cells straight from row bytes.
//! - [`ddl`], [`admin`] and [`program`] have the statements that are no queries: schemas, the server, what is stored to be run.
//!
//! What all of them stand on: [`value`], [`expr`] (the evaluator), [`variables`], [`accounts`], [`full_text`], [`files`], [`spill`], [`monitor`], [`errors`].
//!
//! Arrows go down only; `tests/rooms.rs` has the order, and what is left against it. A connection lives and dies on one thread, and so do its session
//! and its key plans.

pub mod accounts;
pub mod admin;
pub mod catalog;
pub mod ddl;
pub mod dispatch;
pub mod errors;
pub mod exec;
pub mod expr;
pub mod files;
pub mod full_text;
pub mod monitor;
pub mod parse;
pub mod plan;
pub mod program;
pub mod server;
pub mod session;
pub mod spill;
pub mod value;
pub mod variables;
pub mod wire;

#[cfg(test)]
mod tests;

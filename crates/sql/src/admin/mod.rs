//! Statements about the server: accounts and grants, SET, SHOW, INFORMATION_SCHEMA, EXPLAIN.

pub(crate) mod account;
mod events;
pub(crate) mod explain;
pub(crate) mod grant_tables;
pub mod information_schema;
pub(crate) mod performance_schema;
pub(crate) mod persist;
pub(crate) mod processlist;
pub(crate) mod set;
pub mod show;
pub(crate) mod sys;
pub(crate) mod table_locks;
pub(crate) mod table_sizes;
pub(crate) mod unsupported;

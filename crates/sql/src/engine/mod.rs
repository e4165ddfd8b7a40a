//! Session state, planning and execution of SQL statements.
//!
//! A statement's way: [`digest`] cuts it off and normalises it; the plan cache maps that to a [`plan`]; [`exec`] runs the plan
//! over the native client and writes cells straight from row bytes. What is no query goes through [`token`] to [`ddl`],
//! [`utility`] and [`show`]. Expressions live in [`expr`], MySQL's assignment rules in [`convert`].
//!
//! Queries of several tables, with subqueries, derived tables, set operations and common table expressions are bound and planned as blocks ([`plan`]) and
//! run by [`exec::query`]. Refused on purpose with error 1235 and their name: SKIP LOCKED of
//! joins. Isolation is READ COMMITTED or REPEATABLE READ.
//!
//! What one statement may hold in memory is bounded ([`exec::sink`] for sorting and grouping, [`exec::query`] between the steps of a join, [`exec::lock`] for locked rows,
//! [`exec::insert`] for new ones, [`load`] for a file) and refused beyond; rows of a plain SELECT are streamed. In steady state a cached plan runs
//! by key or range without an allocation per key or row: buffers are the session's ([`session::Scratch`], [`keys`]).
//!
//! Who may do what is asked of [`authorize`] before a plan is run or a definition is carried out; accounts are read and changed by [`account_store`].
//!
//! A session dies with its connection; its open transaction is rolled back when it is dropped.

mod absent;
mod account_exec;
mod account_options;
mod account_parse;
mod account_random;
mod account_show;
mod account_store;
mod account_watch;
mod alter;
mod assignments;
mod authorize;
pub mod auto_increment;
pub mod bits;
pub mod catalog;
pub mod cells;
mod characteristics;
pub mod characters;
mod client_text;
mod column_type;
mod commands;
pub mod convert;
mod create_select;
pub mod ddl;
pub mod ddl_exec;
pub mod digest;
pub mod dispatch;
pub mod errors;
pub mod event;
pub mod exec;
mod explain;
pub mod expr;
pub mod face;
pub mod files;
pub mod foreign_key;
pub mod full_text;
mod grant_tables;
mod hint;
mod histogram;
pub mod information_schema;
pub mod join_size;
mod key_parts;
pub mod keys;
pub mod labels;
mod load;
mod named_statements;
pub mod own;
mod parameters;
mod performance_schema;
pub mod plan;
pub mod plan_cache;
mod planning;
mod processlist;
mod reals;
mod remake;
mod routine;
mod rules;
pub mod serializable;
pub mod session;
pub mod show;
mod show_filter;
mod show_heading;
pub mod spill;
pub mod sql_mode;
pub mod statements;
pub mod statistics;
mod status;
mod stored;
mod system_rows;
mod table_locks;
mod table_options;
pub mod token;
mod tracking;
mod trigger;
mod turns;
mod user_lock;
pub mod utility;
pub mod variables;
pub mod view;
mod view_exec;
mod view_text;
mod visibility;

pub use auto_increment::AutoIncrement;
pub use dispatch::SqlEngine;
pub use files::Places;
pub use session::Session;
pub use statements::slow;
pub use user_lock::UserLocks;
pub use variables::Globals;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_explain;
#[cfg(test)]
mod tests_functions;
#[cfg(test)]
mod tests_hints;

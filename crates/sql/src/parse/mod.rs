//! Text: tokens, normal forms of statements, and what the parser of queries lacks. Nothing here knows a table.

pub(crate) mod account;
pub(crate) mod account_options;
pub mod charset;
pub(crate) mod column_type;
pub mod dialect;
pub mod digest;
pub mod hint;
pub(crate) mod nesting;
pub mod token;
pub(crate) mod view_text;
pub(crate) mod xa;
pub mod xid;

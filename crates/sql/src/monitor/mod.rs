//! What is counted and kept of statements for those who look at the server: SHOW STATUS, statements by their normal form, the slow log.

pub(crate) mod access;
pub mod digest_text;
pub mod digests;
pub mod slow;
pub(crate) mod status;

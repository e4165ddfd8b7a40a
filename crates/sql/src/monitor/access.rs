//! How statements read their rows, as MySQL counts it: one bit each.

/// The first table is read as a whole.
pub const SCAN: u8 = 1;

/// The first table is read by a range of an index.
pub const RANGE: u8 = 2;

/// A further table is read without a key for each row.
pub const FULL_JOIN: u8 = 4;

/// Rows that were scanned, or read by a range, are sorted.
pub const SORT_SCAN: u8 = 8;
pub const SORT_RANGE: u8 = 16;

/// Groups, distinct rows or a derived table are kept.
pub const TEMPORARY: u8 = 32;

/// Some table is read without an index.
pub const NO_INDEX: u8 = 64;

//! Every limit that more than one layer must agree on, with its reason.

/// Fixed number of buckets of a distribution; hash -> bucket -> partition. Divisible by 1..=6, 8, 10, 12, 15, 16, 20, 24, ...
/// so that partitions get equal shares, and large enough that moving one bucket moves little data.
pub const BUCKETS: u32 = 3840;
/// Most partitions of a distribution.
pub const PARTITIONS_MAX: u16 = 1024;
/// Most columns of a table, as in NDB and (nearly) MySQL.
pub const COLUMNS_MAX: usize = 512;
/// Most ordered indexes of a table, the primary key's included; MySQL's figure plus one.
pub const INDEXES_MAX: usize = 65;
/// Most columns in a key.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Longest encoded primary or index key in bytes (MySQL: 3072 bytes of key columns; collation keys may double them).
pub const KEY_BYTES_MAX: usize = 8192;
/// Largest row in bytes; larger TEXT and BLOB values are refused with [`crate::ErrorCode::RowTooBig`].
pub const ROW_BYTES_MAX: usize = 4 << 20;
/// Most operations in one batch message; a client splits longer lists.
pub const BATCH_OPS_MAX: usize = 1024;
/// Largest signal body in bytes: a few of the largest rows plus keys.
pub const SIGNAL_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(SIGNAL_BYTES_MAX > 2 * (ROW_BYTES_MAX + KEY_BYTES_MAX)); // an update may carry key, program and image
const _: () = assert!(PARTITIONS_MAX as u32 <= BUCKETS); // a partition without a bucket would be empty for ever

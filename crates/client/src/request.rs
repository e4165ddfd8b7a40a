//! What a caller asks for.

use std::ops::Bound;

use apus_signal::scan::Aggregate;
use apus_types::{Epoch, IndexNo, NodeId, PartitionId, TableId, TableSchema, TransId};

use crate::rows::KeyList;

/// Reads of keys of one table with one projection.
#[derive(Clone, Copy, Debug)]
pub struct ReadBatch<'a> {
    /// [`TransId::NONE`]: the latest committed rows, from any replica. Otherwise the id of an open transaction, whose own
    /// changes are seen; only primaries are asked then.
    pub trans: TransId,
    /// [`Epoch`] 0: the latest committed rows. Otherwise the rows as of a [`crate::Snapshot`], the transaction's own changes in front.
    pub snapshot: Epoch,
    pub table: TableId,
    pub schema_version: u32,
    /// Columns wanted, in the order wanted; `None`: whole rows.
    pub columns: Option<&'a [u16]>,
    pub keys: &'a KeyList,
}

impl<'a> ReadBatch<'a> {
    /// The latest committed rows, whole, of a table.
    pub fn newest(table: &TableSchema, keys: &'a KeyList) -> ReadBatch<'a> {
        let (trans, snapshot) = (TransId::NONE, Epoch(0));
        ReadBatch { trans, snapshot, table: table.id, schema_version: table.version, columns: None, keys }
    }
}

/// An ordered scan of an index, or the aggregation of what it would return.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest<'a> {
    /// As in [`ReadBatch`].
    pub trans: TransId,
    /// As in [`ReadBatch`].
    pub snapshot: Epoch,
    pub table: TableId,
    pub schema_version: u32,
    /// 0: the primary key's.
    pub index: IndexNo,
    pub reverse: bool,
    /// Rows in index order over all partitions. Without it each batch is ordered only in itself, and streams of several nodes
    /// are not merged: cheaper where order does not matter.
    pub ordered: bool,
    /// Entry keys wanted with the rows ([`crate::Rows::key`]).
    pub with_keys: bool,
    /// Also rows that exist only in open transactions, in one of the versions that may stay; asked of primaries. For those who lock
    /// the rows then to see what becomes of them.
    pub with_pending: bool,
    /// All rows are of one moment (where `snapshot` names none): see [`crate::moment`].
    pub one_moment: bool,
    /// Encoded bounds over leading index columns.
    pub low: Bound<&'a [u8]>,
    pub high: Bound<&'a [u8]>,
    /// Columns wanted, in the order wanted; `None`: whole rows.
    pub columns: Option<&'a [u16]>,
    /// `None`: all partitions of the map. A caller that knows the distribution key names the one partition.
    pub partitions: Option<&'a [PartitionId]>,
    /// Stop after so many rows; `u64::MAX`: all.
    pub limit: u64,
    /// What rows must be like, as [`apus_types::filter`] says it; empty: all of them.
    pub filter: &'a [u8],
    /// Partial groups in place of rows, as `apus_eval::grouping` says it: of each its first row, with the states of its aggregates as its [`crate::Rows::key`]; empty: rows. Not with `ordered` or `with_keys`.
    pub grouping: &'a [u8],
    /// Rows of a group follow each other in the index: where groups are many, the entries of all partitions are better merged than each partition read by itself.
    pub groups_follow: bool,
    /// Most rows of one batch; at most [`apus_signal::scan::SCAN_ROWS_MAX`].
    pub batch_rows: u32,
}

impl<'a> ScanRequest<'a> {
    /// All committed rows of a table in no particular order.
    pub fn all(table: TableId, schema_version: u32) -> ScanRequest<'a> {
        ScanRequest {
            trans: TransId::NONE,
            snapshot: Epoch(0),
            table,
            schema_version,
            index: IndexNo(0),
            reverse: false,
            ordered: false,
            with_keys: false,
            with_pending: false,
            one_moment: false,
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            columns: None,
            partitions: None,
            filter: &[],
            grouping: &[],
            groups_follow: false,
            limit: u64::MAX,
            batch_rows: 1024,
        }
    }
}

/// The result of one [`Aggregate`] over everything that was scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartialAggregate {
    /// Rows (CountRows) or rows with a value (all others).
    pub count: u64,
    /// Sum, minimum or maximum; `None` for the counts and when no row had a value.
    pub value: Option<i128>,
}

/// How to execute a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExecOptions {
    /// Commit the transaction when all operations succeeded.
    pub commit: bool,
    /// Number of the statement within the transaction, from 1, growing: what a refused batch is rolled back to, and what
    /// [`crate::Transaction::rollback_to`] may name.
    pub savepoint: u32,
    /// Longest wait for one row lock, in milliseconds.
    pub lock_wait_ms: u32,
}

impl Default for ExecOptions {
    fn default() -> ExecOptions {
        ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 50_000 }
    }
}

impl ExecOptions {
    /// An autocommit statement.
    pub fn autocommit(lock_wait_ms: u32) -> ExecOptions {
        ExecOptions { commit: true, savepoint: 1, lock_wait_ms }
    }
}

/// Everything needed to ask later, through any client, what became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitToken {
    pub trans: TransId,
    /// Where it was coordinated.
    pub tc_node: NodeId,
    pub tc_instance: u8,
    pub tc_incarnation: u64,
    /// When it began, by the clock of the client that began it, in nanoseconds.
    pub began: u64,
}

/// How a commit ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Epoch of the commit; [`Epoch`] 0 when nothing had to be committed, or when the coordinator died and another node said
    /// that the transaction is committed.
    pub epoch: Epoch,
}

/// The aggregates of one request: `apus_signal::scan::AGGREGATES_MAX` at most.
pub type Aggregates<'a> = &'a [Aggregate];

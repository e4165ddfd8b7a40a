//! The client's conversation with the transaction coordinator (TC).
//!
//! A transaction is named by the client ([`TransId`], also its commit token) and lives at the TC the first batch was sent to.
//!
//! - `TcBatchReq` carries operations, executed in order where they meet the same row; with [`START`] it opens the transaction,
//!   with [`COMMIT`] it commits it when all operations succeeded: an autocommit statement is one message each way.
//! - `TcBatchConf`: every operation done (some perhaps with [`OpStatus::NotFound`] or [`OpStatus::Duplicate`] where their flags
//!   allow it). `TcBatchRef`: an operation failed; unless `aborted`, the transaction lives and the statement's effects are
//!   undone already: TC rolls a refused batch back to its savepoint before it answers.
//! - `TcCommitReq` / `TcRollbackReq`: end it, or roll back to a savepoint (effects of batches with that savepoint number or a
//!   higher one are undone, locks stay). `TcCommitConf` says committed on every live replica; a refusal of a commit
//!   (`TcBatchRef` with `aborted`) says rolled back everywhere.
//! - `TcOutcomeReq`: what became of a transaction whose coordinator is gone. Any node answers; it asks all others. While a
//!   take-over runs the answer waits for it.
//!
//! - `TcFloorOrd`: which outcomes the client still needs.
//!
//! If TC dies the client learns it by its lost link and asks for the outcome; if the client dies TC gets `ClientGoneRep` and rolls
//! back what was not committing.

use apus_types::{Chain, Epoch, ErrorCode, NodeId, PartitionId, TableId, TransId, limits};

use crate::{
    codec::{DecodeError, Put, Reader, long_length, patch_u16, patch_u32, short_length, u16_at, u32_at},
    envelope::{BlockRef, Kind},
};

/// Flags of a batch.
pub const START: u8 = 1;
pub const COMMIT: u8 = 2;
/// The transaction's commit is answered when it is on the disks of all replicas (class `disk`), whatever the cluster's class.
pub const DURABLE: u8 = 4;
/// As [`DURABLE`] where all data nodes have disks; nothing where not.
pub const DURABLE_IF_SAVED: u8 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OpKind {
    /// Locks and returns the row. The value is the projection: column numbers as u16, empty for the whole row.
    ReadShared = 1,
    ReadExclusive = 2,
    /// The value is the row; refused or `Duplicate` when the key exists.
    Insert = 3,
    /// The value is the row; inserts or replaces.
    Write = 4,
    /// The value is an update program ([`apus_types::update`]).
    Update = 5,
    Delete = 6,
}

impl OpKind {
    pub fn from_u8(n: u8) -> Option<OpKind> {
        Some(match n {
            1 => OpKind::ReadShared,
            2 => OpKind::ReadExclusive,
            3 => OpKind::Insert,
            4 => OpKind::Write,
            5 => OpKind::Update,
            6 => OpKind::Delete,
            _ => return None,
        })
    }
    pub fn is_write(self) -> bool {
        !matches!(self, OpKind::ReadShared | OpKind::ReadExclusive)
    }
}

/// Operation flags: a missing or existing row is a status, not a refusal of the batch.
pub const ALLOW_MISSING: u8 = 1;
/// A duplicate in the primary key is a status. (A duplicate in a unique index always refuses the batch.)
pub const ALLOW_DUPLICATE: u8 = 2;
/// Do not wait for a row lock: refuse with `LockNotAvailable`.
pub const NO_WAIT: u8 = 4;
/// Do not wait for a row lock: answer [`OpStatus::Skipped`].
pub const SKIP_LOCKED: u8 = 8;

/// One operation: `kind u8, flags u8, partition u16, table u32, schema version u32, key short bytes, value long bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    pub kind: OpKind,
    pub flags: u8,
    pub partition: PartitionId,
    pub table: TableId,
    pub schema_version: u32,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Bytes of an operation before its key.
const OP_HEAD_BYTES: usize = 14;

impl<'a> Op<'a> {
    /// `kind u8, flags u8, partition u16, table u32, schema version u32, key short, value long`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(OP_HEAD_BYTES + self.key.len() + 4 + self.value.len());
        let mut head = [0u8; OP_HEAD_BYTES];
        head[0] = self.kind as u8;
        head[1] = self.flags;
        head[2..4].copy_from_slice(&self.partition.0.to_le_bytes());
        head[4..8].copy_from_slice(&self.table.0.to_le_bytes());
        head[8..12].copy_from_slice(&self.schema_version.to_le_bytes());
        head[12..14].copy_from_slice(&short_length(self.key).to_le_bytes());
        out.put_bytes(&head);
        out.put_bytes(self.key);
        out.put_long_bytes(self.value);
    }
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Op<'a>, DecodeError> {
        let head = r.array::<OP_HEAD_BYTES>()?;
        let op = Op {
            kind: OpKind::from_u8(head[0]).ok_or(DecodeError)?,
            flags: head[1],
            partition: PartitionId(u16_at(&head, 2)),
            table: TableId(u32_at(&head, 4)),
            schema_version: u32_at(&head, 8),
            key: r.bytes(usize::from(u16_at(&head, 12)))?,
            value: r.long_bytes()?,
        };
        if op.key.len() > limits::KEY_BYTES_MAX || op.value.len() > limits::ROW_BYTES_MAX + limits::KEY_BYTES_MAX {
            return Err(DecodeError);
        }
        Ok(op)
    }
}

/// `request u64, trans, flags u8, savepoint u32, lock wait u32 ms, count u16, operations`.
#[derive(Clone, Copy, Debug)]
pub struct TcBatchReq<'a> {
    pub request: u64,
    pub trans: TransId,
    pub flags: u8,
    pub savepoint: u32,
    /// Longest wait for one row lock in milliseconds.
    pub lock_wait_ms: u32,
    pub count: u16,
    pub ops: &'a [u8],
}

impl<'a> TcBatchReq<'a> {
    /// Appends the head; then append operations with [`Op::encode`] and patch the count (u16) at the returned position.
    pub fn begin(
        out: &mut Vec<u8>,
        request: u64,
        trans: TransId,
        flags: u8,
        savepoint: u32,
        lock_wait_ms: u32,
    ) -> usize {
        out.put_u64(request);
        out.put_trans(trans);
        out.put_u8(flags);
        out.put_u32(savepoint);
        out.put_u32(lock_wait_ms);
        out.put_u16(0);
        out.len() - 2
    }
    pub fn decode(body: &'a [u8]) -> Result<TcBatchReq<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let req = TcBatchReq {
            request: r.u64()?,
            trans: r.trans()?,
            flags: r.u8()?,
            savepoint: r.u32()?,
            lock_wait_ms: r.u32()?,
            count: r.u16()?,
            ops: r.rest(),
        };
        if usize::from(req.count) > limits::BATCH_OPS_MAX || req.trans.is_none() {
            return Err(DecodeError);
        }
        Ok(req)
    }
    pub fn ops(&self) -> impl Iterator<Item = Result<Op<'a>, DecodeError>> {
        ops(self.ops, self.count)
    }
}

/// Iterates `count` encoded operations.
pub fn ops<'a>(bytes: &'a [u8], count: u16) -> impl Iterator<Item = Result<Op<'a>, DecodeError>> {
    let mut r = Reader::new(bytes);
    (0..count).map(move |_| Op::decode(&mut r))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OpStatus {
    Done = 0,
    /// Only with [`ALLOW_MISSING`].
    NotFound = 1,
    /// Only with [`ALLOW_DUPLICATE`].
    Duplicate = 2,
    /// The row was there and the update program changed nothing.
    Unchanged = 3,
    /// Only with [`SKIP_LOCKED`].
    Skipped = 4,
}

/// Bytes of a result without a row.
pub const RESULT_BYTES_MIN: usize = 5;

/// One result: `status u8, length u32, row` (rows only for reads).
#[derive(Clone, Copy, Debug)]
pub struct OpResult<'a> {
    pub status: OpStatus,
    pub row: &'a [u8],
}

impl<'a> OpResult<'a> {
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let [a, b, c, d] = long_length(self.row).to_le_bytes();
        out.put_bytes(&[self.status as u8, a, b, c, d]);
        if !self.row.is_empty() {
            out.put_bytes(self.row);
        }
    }
    /// Appends a `Done` result whose row `write` appends.
    pub fn encode_row(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        out.put_u8(OpStatus::Done as u8);
        let at = out.len();
        out.put_u32(0);
        write(out);
        let length = (out.len() - at - 4) as u32;
        patch_u32(out, at, length);
    }
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<OpResult<'a>, DecodeError> {
        let head = r.array::<RESULT_BYTES_MIN>()?;
        let status = match head[0] {
            0 => OpStatus::Done,
            1 => OpStatus::NotFound,
            2 => OpStatus::Duplicate,
            3 => OpStatus::Unchanged,
            4 => OpStatus::Skipped,
            _ => return Err(DecodeError),
        };
        Ok(OpResult { status, row: r.bytes(u32_at(&head, 1) as usize)? })
    }
}

/// `request u64, committed u8, epoch u64, count u16, results` in the order of the operations.
#[derive(Clone, Copy, Debug)]
pub struct TcBatchConf<'a> {
    pub request: u64,
    pub committed: bool,
    pub epoch: Epoch,
    pub count: u16,
    results: &'a [u8],
}

impl<'a> TcBatchConf<'a> {
    pub fn begin(out: &mut Vec<u8>, request: u64, committed: bool, epoch: Epoch, count: u16) {
        out.put_u64(request);
        out.put_u8(u8::from(committed));
        out.put_u64(epoch.0);
        out.put_u16(count);
    }
    pub fn decode(body: &'a [u8]) -> Result<TcBatchConf<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(TcBatchConf {
            request: r.u64()?,
            committed: r.u8()? != 0,
            epoch: r.epoch()?,
            count: r.u16()?,
            results: r.rest(),
        })
    }
    pub fn results(&self) -> impl Iterator<Item = Result<OpResult<'a>, DecodeError>> {
        let mut r = Reader::new(self.results);
        (0..self.count).map(move |_| OpResult::decode(&mut r))
    }
}

/// The refusal of any client request (`TcBatchRef`, `RequestRef`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRef<'a> {
    pub request: u64,
    pub code: ErrorCode,
    /// The transaction was rolled back completely.
    pub aborted: bool,
    /// Which operation failed.
    pub op: u16,
    /// Which index a duplicate was found in (0: primary key).
    pub index: u16,
    /// More for a person, perhaps empty: the deadlock's cycle, the missing table.
    pub detail: &'a [u8],
}

impl<'a> RequestRef<'a> {
    pub fn new(request: u64, code: ErrorCode) -> RequestRef<'a> {
        RequestRef { request, code, aborted: false, op: 0, index: 0, detail: &[] }
    }
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_u16(self.code as u16);
        out.put_u8(u8::from(self.aborted));
        out.put_u16(self.op);
        out.put_u16(self.index);
        out.put_short_bytes(&self.detail[..self.detail.len().min(1024)]);
    }
    pub fn decode(body: &'a [u8]) -> Result<RequestRef<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(RequestRef {
            request: r.u64()?,
            code: r.error_code()?,
            aborted: r.u8()? != 0,
            op: r.u16()?,
            index: r.u16()?,
            detail: r.short_bytes()?,
        })
    }
}

/// `TcCommitReq`, `TcRollbackReq` (with the savepoint to return to; 0: all).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcEndReq {
    pub request: u64,
    pub trans: TransId,
    pub savepoint: u32,
}

impl TcEndReq {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_trans(self.trans);
        out.put_u32(self.savepoint);
    }
    pub fn decode(body: &[u8]) -> Result<TcEndReq, DecodeError> {
        let mut r = Reader::new(body);
        let req = TcEndReq { request: r.u64()?, trans: r.trans()?, savepoint: r.u32()? };
        r.end()?;
        Ok(req)
    }
}

/// `TcCommitConf` and `TcRollbackConf`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcEndConf {
    pub request: u64,
    pub epoch: Epoch,
}

impl TcEndConf {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_u64(self.epoch.0);
    }
    pub fn decode(body: &[u8]) -> Result<TcEndConf, DecodeError> {
        let mut r = Reader::new(body);
        Ok(TcEndConf { request: r.u64()?, epoch: r.epoch()? })
    }
}

/// A client that asks what became of a transaction believes "aborted" only if it comes within so many milliseconds after the question, by its own
/// clock, and otherwise asks again. So a node that joined lately knows how old the transaction was when it is asked, give or take that.
pub const OUTCOME_LATE_MS: u32 = 300;

/// `TcOutcomeReq`: names the node that coordinated the transaction and that node's incarnation as the client knew it, because
/// the answer is final only when that incarnation is no longer a member (or the question is put to that very node).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcOutcomeReq {
    pub request: u64,
    pub trans: TransId,
    pub tc_node: NodeId,
    pub tc_incarnation: u64,
    /// How long ago the transaction began, in milliseconds, rounded up: a commit that was forgotten earlier was another's.
    pub age_ms: u32,
}

impl TcOutcomeReq {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_trans(self.trans);
        out.put_u16(self.tc_node.0);
        out.put_u64(self.tc_incarnation);
        out.put_u32(self.age_ms);
    }
    pub fn decode(body: &[u8]) -> Result<TcOutcomeReq, DecodeError> {
        let mut r = Reader::new(body);
        let (request, trans, tc_node, tc_incarnation) = (r.u64()?, r.trans()?, NodeId(r.u16()?), r.u64()?);
        let age_ms = r.u32()?;
        r.end()?;
        Ok(TcOutcomeReq { request, trans, tc_node, tc_incarnation, age_ms })
    }
}

/// A client's floor is no further below its newest number than this, whatever is open: a transaction that stays open for hours, as a forgotten session's
/// does, costs 8,192 chunks of each LDM and no more. The outcome of one that is passed by is kept for some seconds after its commit, as all are.
pub const FLOOR_DEPTH: u64 = 1 << 22;

/// `TcFloorOrd`: the client will not ask for the outcome of a transaction below this sequence number. What it names is forgotten after
/// some seconds; a higher one is kept. TC fills in the client that the link belongs to and passes it on to the LDMs of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcFloor {
    pub client: u64,
    pub floor: u64,
}

impl TcFloor {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.client);
        out.put_u64(self.floor);
    }
    pub fn decode(body: &[u8]) -> Result<TcFloor, DecodeError> {
        let mut r = Reader::new(body);
        let floor = TcFloor { client: r.u64()?, floor: r.u64()? };
        r.end()?;
        Ok(floor)
    }
}

/// `LastWordsRep`: a panic ends the node in the midst of this. Best effort: the client may never hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastWords {
    /// Of a read or a scan; 0: none.
    pub request: u64,
    /// Of a batch; none for reads.
    pub trans: TransId,
}

impl LastWords {
    /// What a client has to know if this signal panics.
    pub fn of(kind: Kind, body: &[u8]) -> Option<LastWords> {
        let mut r = Reader::new(body);
        match kind {
            Kind::ReadReq | Kind::ScanReq => Some(LastWords { request: r.u64().ok()?, trans: TransId::NONE }),
            // Request or generation, then the transaction.
            Kind::TcBatchReq | Kind::LdmBatchReq | Kind::LdmPrepareReq => {
                r.u64().ok()?;
                Some(LastWords { request: 0, trans: r.trans().ok()? })
            }
            _ => None,
        }
    }
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_trans(self.trans);
    }
    pub fn decode(body: &[u8]) -> Result<LastWords, DecodeError> {
        let mut r = Reader::new(body);
        let words = LastWords { request: r.u64()?, trans: r.trans()? };
        r.end()?;
        Ok(words)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    Committed = 1,
    /// Rolled back, or never seen by any live node: it will not commit any more.
    Aborted = 2,
    /// Still open, committing, or being taken over: ask again.
    Open = 3,
    /// Older than what is remembered.
    Forgotten = 4,
}

impl Outcome {
    pub fn from_u8(n: u8) -> Option<Outcome> {
        Some(match n {
            1 => Outcome::Committed,
            2 => Outcome::Aborted,
            3 => Outcome::Open,
            4 => Outcome::Forgotten,
            _ => return None,
        })
    }
}

/// `TcOutcomeConf`: `request u64, outcome u8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcOutcomeConf {
    pub request: u64,
    pub outcome: Outcome,
}

impl TcOutcomeConf {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_u8(self.outcome as u8);
    }
    pub fn decode(body: &[u8]) -> Result<TcOutcomeConf, DecodeError> {
        let mut r = Reader::new(body);
        Ok(TcOutcomeConf { request: r.u64()?, outcome: Outcome::from_u8(r.u8()?).ok_or(DecodeError)? })
    }
}

/// Edge chasing (Chandy, Misra, Haas 1983): the coordinator of a waiting transaction sends a probe to the coordinator of each
/// transaction it waits for; that one passes it on along its own waits. A probe that returns to its origin has found a cycle,
/// and the youngest transaction on the path gives way.
///
/// `origin TC, count u8, count x (trans), target trans is the last`.
#[derive(Clone, Copy, Debug)]
pub struct DeadlockProbe<'a> {
    pub origin: BlockRef,
    /// The waits so far: path[0] waits for path[1] and so on; the receiver coordinates the last.
    path: &'a [u8],
}

/// Longest cycle found; longer ones end by the lock wait time-out.
pub const DEADLOCK_PATH_MAX: usize = 32;

impl<'a> DeadlockProbe<'a> {
    pub fn encode(out: &mut Vec<u8>, origin: BlockRef, path: impl Iterator<Item = TransId>) {
        out.put_block(origin);
        out.put_u16(0);
        let at = out.len() - 2;
        let mut count = 0;
        for trans in path {
            out.put_trans(trans);
            count += 1;
        }
        patch_u16(out, at, count);
    }
    pub fn decode(body: &'a [u8]) -> Result<DeadlockProbe<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let origin = r.block()?;
        let count = usize::from(r.u16()?);
        if !(2..=DEADLOCK_PATH_MAX).contains(&count) {
            return Err(DecodeError);
        }
        let path = r.bytes(16 * count)?;
        r.end()?;
        Ok(DeadlockProbe { origin, path })
    }
    pub fn path(&self) -> impl DoubleEndedIterator<Item = TransId> + 'a {
        self.path.as_chunks::<16>().0.iter().map(|b| {
            let (client, seq) = b.split_at(8);
            let long = |s: &[u8]| s.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
            TransId { client: long(client), seq: long(seq) }
        })
    }
}

/// Where a participant's operations are: one replica chain on one LDM instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Participant {
    pub chain: Chain,
    pub instance: u8,
}

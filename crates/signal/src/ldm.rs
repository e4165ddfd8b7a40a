//! TC and LDM: operations, the replica chain, commit, complete, abort.
//!
//! ```text
//! TC --LdmBatchReq--> primary: locks, executes      primary --LdmBatchConf(results)--> TC
//!                     primary --LdmPrepareReq--> backup ... last --LdmPreparedConf--> TC        (writes only, not waited for
//!                                                                                                 before commit)
//! TC --LdmCommitOrd--> last --> ... --> primary --LdmCommittedConf--> TC --> client
//! TC --LdmCompleteOrd--> every backup: rows may be read there
//! TC --LdmAbortOrd--> primary --> ... --> last --LdmAbortConf--> ... --> primary --LdmAbortConf--> TC  (whole or to a savepoint)
//! ```
//!
//! One pass: with [`ONE_PASS`] the last replica commits as it prepares and the same `LdmCommitOrd` flows back to the primary,
//! whose `LdmBatchConf` then says committed.
//!
//! Results go to TC as soon as the primary has executed: a statement inside a transaction does not wait for the backups. Commit
//! does: TC sends no commit before every batch's `LdmPreparedConf` is in.
//!
//! Everything along a chain stays in order because it takes one link per hop. A node that left the view is skipped: the next
//! living node of the chain is addressed instead. Each signal carries the sender's view generation; a receiver that knows an
//! older view puts the signal aside until it has caught up.

use apus_types::{Chain, Epoch, ErrorCode, IndexNo, PartitionId, TableId, TransId, limits};

use crate::{
    codec::{DecodeError, Put, Reader, short_length, u16_at, u32_at},
    envelope::BlockRef,
    tc::OpResult,
};

/// Commit on the way: only for a batch that is a whole transaction on one chain, coordinated on the primary's node.
pub const ONE_PASS: u8 = 1;
/// The batch has writes: `LdmPreparedConf` will follow (in `LdmBatchConf`).
pub const WRITES: u8 = 2;
/// In `LdmBatchConf`: committed (one pass).
pub const COMMITTED: u8 = 4;
/// In `LdmBatchReq`: unique-index maintenance by TC itself.
pub const INDEX_WORK: u8 = 8;

/// In `LdmBatchConf`: a table of class `disk` was changed, so the commit is answered when it is on disk.
pub const DISK_TABLE: u8 = 16;

/// Savepoint of an `LdmAbortOrd` that only ends a lock wait: the waiting batch is refused with `Deadlock`, anything else is left as
/// it is. For one-pass batches, which nobody may abort once they are on their way.
pub const CANCEL_WAIT: u32 = u32::MAX;

/// `LdmBatchReq`: operations for the addressed instance, all of one chain.
#[derive(Clone, Copy, Debug)]
pub struct LdmBatchReq<'a> {
    pub generation: u64,
    pub trans: TransId,
    /// TC's number for this batch within the transaction.
    pub batch: u32,
    pub chain: Chain,
    pub flags: u8,
    pub savepoint: u32,
    pub lock_wait_ms: u32,
    pub count: u16,
    /// As in [`crate::tc::Op`].
    pub ops: &'a [u8],
}

impl<'a> LdmBatchReq<'a> {
    /// Appends the head, `ops` follows as it stands.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_u32(self.batch);
        out.put_chain(self.chain);
        out.put_u8(self.flags);
        out.put_u32(self.savepoint);
        out.put_u32(self.lock_wait_ms);
        out.put_u16(self.count);
        out.put_bytes(self.ops);
    }
    pub fn decode(body: &'a [u8]) -> Result<LdmBatchReq<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let req = LdmBatchReq {
            generation: r.u64()?,
            trans: r.trans()?,
            batch: r.u32()?,
            chain: r.chain()?,
            flags: r.u8()?,
            savepoint: r.u32()?,
            lock_wait_ms: r.u32()?,
            count: r.u16()?,
            ops: r.rest(),
        };
        if usize::from(req.count) > limits::BATCH_OPS_MAX { Err(DecodeError) } else { Ok(req) }
    }
}

/// A change of a unique index, or of one with a list, that follows from a write; TC executes it on the index's hidden table in the same transaction:
/// `op u16, index u16, insert u8, hidden table u32, hidden version u32, key short, distribution hash u64, primary key short`.
#[derive(Clone, Copy, Debug)]
pub struct IndexChange<'a> {
    /// Operation of the batch that caused it.
    pub op: u16,
    pub index: IndexNo,
    pub insert: bool,
    pub hidden_table: TableId,
    /// The hidden table's key.
    pub key: &'a [u8],
    /// Placement and primary key of the base row.
    pub distribution_hash: u64,
    pub primary_key: &'a [u8],
}

impl<'a> IndexChange<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.op);
        out.put_u16(self.index.0);
        out.put_u8(u8::from(self.insert));
        out.put_u32(self.hidden_table.0);
        out.put_short_bytes(self.key);
        out.put_u64(self.distribution_hash);
        out.put_short_bytes(self.primary_key);
    }
    pub fn decode(r: &mut Reader<'a>) -> Result<IndexChange<'a>, DecodeError> {
        Ok(IndexChange {
            op: r.u16()?,
            index: IndexNo(r.u16()?),
            insert: r.u8()? != 0,
            hidden_table: TableId(r.u32()?),
            key: r.short_bytes()?,
            distribution_hash: r.u64()?,
            primary_key: r.short_bytes()?,
        })
    }
}

/// `LdmBatchConf`: results in order, then index changes.
#[derive(Clone, Copy, Debug)]
pub struct LdmBatchConf<'a> {
    /// The view in which the writes were sent on.
    pub generation: u64,
    pub trans: TransId,
    pub batch: u32,
    pub flags: u8,
    pub epoch: Epoch,
    pub count: u16,
    /// Result bytes ([`OpResult`]), `count` of them.
    pub results: &'a [u8],
    pub change_count: u16,
    /// [`IndexChange`]s.
    pub changes: &'a [u8],
}

impl<'a> LdmBatchConf<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_u32(self.batch);
        out.put_u8(self.flags);
        out.put_u64(self.epoch.0);
        out.put_u16(self.count);
        out.put_u16(self.change_count);
        out.put_long_bytes(self.results);
        out.put_bytes(self.changes);
    }
    pub fn decode(body: &'a [u8]) -> Result<LdmBatchConf<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let generation = r.u64()?;
        let trans = r.trans()?;
        let batch = r.u32()?;
        let flags = r.u8()?;
        let epoch = r.epoch()?;
        let count = r.u16()?;
        let change_count = r.u16()?;
        let results = r.long_bytes()?;
        Ok(LdmBatchConf { generation, trans, batch, flags, epoch, count, results, change_count, changes: r.rest() })
    }
    pub fn results(&self) -> impl Iterator<Item = Result<OpResult<'a>, DecodeError>> {
        let mut r = Reader::new(self.results);
        (0..self.count).map(move |_| OpResult::decode(&mut r))
    }
    pub fn changes(&self) -> impl Iterator<Item = Result<IndexChange<'a>, DecodeError>> {
        let mut r = Reader::new(self.changes);
        (0..self.change_count).map(move |_| IndexChange::decode(&mut r))
    }
}

/// `LdmBatchRef`: operation `op` of the batch failed. What the batch did before it stays until TC orders a rollback to the
/// savepoint; nothing was sent to the backups unless `WRITES` is in flags.
#[derive(Clone, Copy, Debug)]
pub struct LdmBatchRef {
    pub trans: TransId,
    pub batch: u32,
    pub code: ErrorCode,
    pub op: u16,
}

impl LdmBatchRef {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_trans(self.trans);
        out.put_u32(self.batch);
        out.put_u16(self.code as u16);
        out.put_u16(self.op);
    }
    pub fn decode(body: &[u8]) -> Result<LdmBatchRef, DecodeError> {
        let mut r = Reader::new(body);
        Ok(LdmBatchRef { trans: r.trans()?, batch: r.u32()?, code: r.error_code()?, op: r.u16()? })
    }
}

/// `LdmPrepareReq`: a batch's writes, on its way along the chain. `count` of `delete u8, partition u16, table u32, schema
/// version u32, row u32, key short, image long`.
#[derive(Clone, Copy, Debug)]
pub struct LdmPrepareReq<'a> {
    pub generation: u64,
    pub trans: TransId,
    pub batch: u32,
    pub tc: BlockRef,
    pub chain: Chain,
    pub flags: u8,
    pub savepoint: u32,
    /// With [`ONE_PASS`]: the epoch to commit in.
    pub epoch: Epoch,
    pub count: u16,
    pub rows: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct PreparedRow<'a> {
    pub partition: PartitionId,
    pub table: TableId,
    pub schema_version: u32,
    /// Its slot at the primary, and so at every replica.
    pub row: u32,
    pub key: &'a [u8],
    /// `None`: the row is deleted.
    pub image: Option<&'a [u8]>,
}

/// Bytes of a prepared row before its key.
const ROW_HEAD_BYTES: usize = 17;

impl<'a> PreparedRow<'a> {
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let image = self.image.unwrap_or(&[]);
        out.reserve(ROW_HEAD_BYTES + self.key.len() + 4 + image.len());
        let mut head = [0u8; ROW_HEAD_BYTES];
        head[0] = u8::from(self.image.is_none());
        head[1..3].copy_from_slice(&self.partition.0.to_le_bytes());
        head[3..7].copy_from_slice(&self.table.0.to_le_bytes());
        head[7..11].copy_from_slice(&self.schema_version.to_le_bytes());
        head[11..15].copy_from_slice(&self.row.to_le_bytes());
        head[15..17].copy_from_slice(&short_length(self.key).to_le_bytes());
        out.put_bytes(&head);
        out.put_bytes(self.key);
        out.put_long_bytes(image);
    }
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<PreparedRow<'a>, DecodeError> {
        let head = r.array::<ROW_HEAD_BYTES>()?;
        let key = r.bytes(usize::from(u16_at(&head, 15)))?;
        let image = r.long_bytes()?;
        if key.len() > limits::KEY_BYTES_MAX || image.len() > limits::ROW_BYTES_MAX {
            return Err(DecodeError);
        }
        Ok(PreparedRow {
            partition: PartitionId(u16_at(&head, 1)),
            table: TableId(u32_at(&head, 3)),
            schema_version: u32_at(&head, 7),
            row: u32_at(&head, 11),
            key,
            image: (head[0] == 0).then_some(image),
        })
    }
}

impl<'a> LdmPrepareReq<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_u32(self.batch);
        out.put_block(self.tc);
        out.put_chain(self.chain);
        out.put_u8(self.flags);
        out.put_u32(self.savepoint);
        out.put_u64(self.epoch.0);
        out.put_u16(self.count);
        out.put_bytes(self.rows);
    }
    pub fn decode(body: &'a [u8]) -> Result<LdmPrepareReq<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(LdmPrepareReq {
            generation: r.u64()?,
            trans: r.trans()?,
            batch: r.u32()?,
            tc: r.block()?,
            chain: r.chain()?,
            flags: r.u8()?,
            savepoint: r.u32()?,
            epoch: r.epoch()?,
            count: r.u16()?,
            rows: r.rest(),
        })
    }
    pub fn rows(&self) -> impl Iterator<Item = Result<PreparedRow<'a>, DecodeError>> {
        let mut r = Reader::new(self.rows);
        (0..self.count).map(move |_| PreparedRow::decode(&mut r))
    }
}

/// `LdmPreparedConf` and `LdmPreparedRef` (with a code): the last replica, or the one that failed, to TC; the refusal of a one-pass batch
/// goes back along the chain, and the primary tells TC. A refusal with `TransactionTimeout` and batch 0 is a primary's wish: rows that the
/// transaction has locked hold up a recovery.
#[derive(Clone, Copy, Debug)]
pub struct LdmPrepared {
    pub trans: TransId,
    pub batch: u32,
    pub chain: Chain,
    pub code: Option<ErrorCode>,
}

impl LdmPrepared {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_trans(self.trans);
        out.put_u32(self.batch);
        out.put_chain(self.chain);
        out.put_u16(self.code.map_or(0, |c| c as u16));
    }
    pub fn decode(body: &[u8]) -> Result<LdmPrepared, DecodeError> {
        let mut r = Reader::new(body);
        let (trans, batch, chain, code) = (r.trans()?, r.u32()?, r.chain()?, r.u16()?);
        let code = (code != 0).then(|| ErrorCode::from_u16(code).unwrap_or(ErrorCode::Internal));
        Ok(LdmPrepared { trans, batch, chain, code })
    }
}

/// `LdmCommitOrd`, `LdmCommittedConf`, `LdmCompleteOrd`, `LdmAbortOrd`, `LdmAbortConf`: one transaction's part on one chain of one
/// LDM instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LdmEnd {
    pub generation: u64,
    pub trans: TransId,
    pub chain: Chain,
    /// Where the answer goes: TC, or the take-over coordinator.
    pub tc: BlockRef,
    /// Commit: the epoch. Abort: unused.
    pub epoch: Epoch,
    /// Abort: undo what has this savepoint number or a higher one; 0 undoes all and releases the locks.
    pub savepoint: u32,
    /// Abort: which one of this participant, counted by TC. One that is sent again in a new view may come when the first is confirmed:
    /// only the last one's confirmation says that none is under way.
    pub round: u32,
}

impl LdmEnd {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_chain(self.chain);
        out.put_block(self.tc);
        out.put_u64(self.epoch.0);
        out.put_u32(self.savepoint);
        out.put_u32(self.round);
    }
    pub fn decode(body: &[u8]) -> Result<LdmEnd, DecodeError> {
        let mut r = Reader::new(body);
        let end = LdmEnd {
            generation: r.u64()?,
            trans: r.trans()?,
            chain: r.chain()?,
            tc: r.block()?,
            epoch: r.epoch()?,
            savepoint: r.u32()?,
            round: r.u32()?,
        };
        r.end()?;
        Ok(end)
    }
}

/// `LdmWaitRep`: `waiter`'s batch waits for row locks of `holders` (`trans, tc` each). Sent a little after the wait began, so
/// that short waits cost nothing, and again while it lasts.
#[derive(Clone, Copy, Debug)]
pub struct LdmWaitRep<'a> {
    pub waiter: TransId,
    pub batch: u32,
    holders: &'a [u8],
}

/// Most holders reported; shared locks of more owners are reported in part.
pub const WAIT_HOLDERS_MAX: usize = 64;

impl<'a> LdmWaitRep<'a> {
    pub fn begin(out: &mut Vec<u8>, waiter: TransId, batch: u32) {
        out.put_trans(waiter);
        out.put_u32(batch);
    }
    pub fn push_holder(out: &mut Vec<u8>, trans: TransId, tc: BlockRef) {
        out.put_trans(trans);
        out.put_block(tc);
    }
    pub fn decode(body: &'a [u8]) -> Result<LdmWaitRep<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let rep = LdmWaitRep { waiter: r.trans()?, batch: r.u32()?, holders: r.rest() };
        if !rep.holders.len().is_multiple_of(20) || rep.holders.len() > 20 * WAIT_HOLDERS_MAX {
            Err(DecodeError)
        } else {
            Ok(rep)
        }
    }
    pub fn holders(&self) -> impl Iterator<Item = Result<(TransId, BlockRef), DecodeError>> + 'a {
        let mut r = Reader::new(self.holders);
        (0..self.holders.len() / 20).map(move |_| Ok((r.trans()?, r.block()?)))
    }
}

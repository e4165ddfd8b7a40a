//! Claims of prepared branches (`apus_types::claims`) at the primary: who meets one waits, and which rows a transaction holds that is to become a branch.
//!
//! # Who may lock a row
//!
//! A row is free for a transaction when its lock is, and when no claim on it is in the way. A claim is in the way if it is there or may be, is not shared by both, and is not locked by the transaction itself, which is then
//! the one that ends the branch, or makes it. The claim is in the row's partition, so one look at one fragment says so, also on a primary that has got the rows by a copy, by the chain or from its disk.
//!
//! *No gap.* The transaction that becomes a branch holds the row's lock until its commit is decided here, and its claim is decided by the same change of its part. Whoever is granted the lock then looks for claims
//! again before it does anything ([`LocalDataManager::execute_op`]), and gives the lock back. Locks for reading are lost with their primary, and a commit that was ordered before goes on at the next one: there the claim,
//! which was prepared on every replica before that, is in the way though it is not committed. The transaction that ends a branch deletes the claim and changes the row in one part: whoever does not find the
//! claim any more finds the row decided, or its lock held by a transaction that is.
//!
//! # Waiting for a claim
//!
//! A branch may be ended days later, by a transaction that does not know who waits. So a batch that meets a claim stands in no queue: it looks again every [`LOOK_NS`] until its time is over. The order in which waiters
//! come is not theirs. Nobody waits for them in turn whom they would wait for, for a branch waits for nobody: no deadlock has a claim in it.

use std::ops::Bound;

use apus_kernel::Context;
use apus_signal::{
    held::{HeldPlace, HeldRow},
    scan::{ScanConf, ScanReq},
    tc::{NO_WAIT, Op, OpKind, OpResult, OpStatus, SKIP_LOCKED},
};
use apus_storage::{LockMode, RowId};
use apus_types::{
    ErrorCode, IndexNo, PartitionId, TableId, claims, key,
    planted::{Bug, planted},
    schema::HIDDEN_PK_COLUMN,
};

use super::{
    LocalDataManager, RowAt, WAITING_MAX,
    execute::{self, Step, Work},
    scan::EXAMINED_MAX,
    trans::NONE,
};

/// A batch that has met a claim looks again after this.
pub(super) const LOOK_NS: u64 = 10_000_000;
/// The place of a row that a batch waits for when it is a claim that it waits for.
pub(super) const NO_ROW: RowAt = (TableId(u32::MAX), PartitionId(0), RowId(0));

impl LocalDataManager {
    /// Whether a claim of another transaction's branch keeps the operation from its row.
    #[cold]
    pub(super) fn is_claimed(&self, trans_at: u32, op: &Op<'_>) -> bool {
        let Some((schema, fragment)) = self.tables.claims(op.partition).filter(|(schema, _)| schema.id != op.table)
        else {
            return false;
        };
        if planted(Bug::ClaimIgnored) {
            return false;
        }
        let prefix = claims::prefix(op.table, op.key);
        let above = claims::above(prefix);
        let low = Bound::Included(&prefix[..]);
        let high = above.as_ref().map_or(Bound::Unbounded, |above| Bound::Excluded(&above[..]));
        let Some(mut entries) = fragment.scan(IndexNo(0), low, high, false) else { return false };
        let is_in_the_way = |row: RowId| {
            let claim = fragment.newest(row).or_else(|| fragment.committed(row, &self.transactions));
            let Some(claim) = claim else { return false };
            let may_share = op.kind == OpKind::ReadShared && claims::is_shared(schema, claim);
            claims::claimed_key(schema, claim) == op.key
                && !may_share
                && self.locks.held_mode(fragment.lock_word_of(row), trans_at) != Some(LockMode::Exclusive)
        };
        entries.any(|(_, row)| is_in_the_way(row))
    }

    /// What becomes of an operation whose row is claimed.
    pub(super) fn meet_claim(&self, work: &mut Work, op: &Op<'_>) -> Result<Step, ErrorCode> {
        if op.flags & SKIP_LOCKED != 0 {
            OpResult { status: OpStatus::Skipped, row: &[] }.encode(&mut work.results);
            return Ok(Step::Done);
        }
        if op.flags & NO_WAIT != 0 {
            return Err(ErrorCode::LockNotAvailable);
        }
        if self.free_waiting.is_empty() && self.waiting.len() >= WAITING_MAX {
            return Err(ErrorCode::Overload);
        }
        work.meets_claim();
        Ok(Step::Wait)
    }

    /// A batch that has met a claim looks again. Returns how many operations it tried.
    pub(super) fn look_again(&mut self, slot: u32, ctx: &mut Context<'_>) -> usize {
        let Some(work) = self.take_wait(slot, ctx) else { return 0 };
        if self.succession.is_some() && self.is_orphan(work.trans_at) {
            ctx.probe("ldm: wait of a dead coordinator's transaction for a claim dropped");
            self.recycle(work);
            return 0;
        }
        let tried = self.run(work, false, ctx);
        ctx.spend(tried, execute::OP_NS_MAX);
        tried
    }

    /// Some of the rows that a transaction holds in partitions of which this node is primary; see [`apus_signal::held`]. Returns how many, whether there may be more, and how many entries were looked at.
    pub(super) fn held_page(
        &self,
        req: &ScanReq<'_>,
        rows: &mut Vec<u8>,
        resume: &mut Vec<u8>,
    ) -> Result<(u32, bool, u32), ErrorCode> {
        let Some(at) = self.transactions.find(req.trans) else { return Ok((0, false, 0)) };
        let trans = self.transactions.get(at);
        if trans.parts.iter().any(|part| part.committed || part.aborted || part.undo.is_some()) {
            return Err(ErrorCode::TransactionNotFound);
        }
        let mut partitions = [false; apus_types::limits::PARTITIONS_MAX as usize + 1];
        req.partitions().for_each(|p| partitions[usize::from(p.0).min(partitions.len() - 1)] = true);
        let mut numbers: Vec<(u32, u32)> = trans.parts.iter().map(|part| (part.number, part.head)).collect();
        numbers.sort_unstable();
        let from = match req.low {
            Bound::Excluded(place) => HeldPlace::decode(place).map_err(|_| ErrorCode::ProtocolViolation)?,
            _ => HeldPlace::default(),
        };
        let (mut place, node) = (from.place, self.me.node);
        let known = numbers.iter().position(|(number, _)| *number == from.part).filter(|_| from.node == node);
        let (mut part, mut entry) = match known {
            Some(part) => (part, from.entry),
            None => (0, numbers.first().map_or(NONE, |part| part.1)),
        };
        let (mut count, mut examined) = (0, 0);
        while part < numbers.len() {
            if entry == NONE {
                part += 1;
                entry = numbers.get(part).map_or(NONE, |part| part.1);
                continue;
            }
            if examined >= EXAMINED_MAX || count >= req.rows_max || rows.len() >= req.bytes_max as usize {
                HeldPlace { place, node, part: numbers[part].0, entry }.encode(resume);
                return Ok((count, true, examined));
            }
            (place, examined) = (place + 1, examined + 1);
            // The number comes from the client: it may name nothing, or what is another's, which the transaction has no lock on.
            let held = self.transactions.entry(entry).ok_or(ErrorCode::TransactionNotFound)?;
            let (lock, row) = (held.lock, held.at());
            entry = held.next;
            let is_asked = partitions.get(usize::from(row.1.0)).is_some_and(|asked| *asked);
            if lock && is_asked && self.is_primary(row.1) && self.push_held(at, row, rows)? {
                count += 1;
            }
        }
        Ok((count, false, examined))
    }

    /// `false`: its table is dropped.
    fn push_held(&self, trans_at: u32, at: RowAt, rows: &mut Vec<u8>) -> Result<bool, ErrorCode> {
        let Some(table) = self.tables.get(at.0) else { return Ok(false) };
        let fragment = table.fragment(at.1).filter(|f| f.is_used(at.2)).ok_or(ErrorCode::TransactionNotFound)?;
        let mode = self.locks.held_mode(fragment.lock_word_of(at.2), trans_at).ok_or(ErrorCode::TransactionNotFound)?;
        let written = fragment.has_pending(at.2);
        let (layout, key) = (table.schema.layout(), fragment.key(at.2));
        let row_of = |entry| layout.raw(entry, HIDDEN_PK_COLUMN);
        let (now, before) = (fragment.newest(at.2), fragment.committed(at.2, &self.transactions));
        let is_entry = table.schema.is_hidden_index();
        let giver = match (now.filter(|_| is_entry), before) {
            (Some(now), Some(before)) if row_of(now) != row_of(before) => row_of(before),
            _ => &[],
        };
        let held = HeldRow {
            table: at.0,
            base: table.schema.base_table.unwrap_or(TableId(0)),
            hash: key::distribution_hash(&table.schema, &key),
            exclusive: mode == LockMode::Exclusive,
            written,
            key: &key,
            image: now.filter(|_| written && !is_entry).unwrap_or_default(),
            giver,
        };
        ScanConf::push_row(rows, &[], |out| held.encode(out));
        Ok(true)
    }
}

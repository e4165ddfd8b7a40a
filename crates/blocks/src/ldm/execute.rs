//! Executing a batch at the primary: lock, check, push the new version, collect what the backups and the unique indexes need.

use std::cmp::Reverse;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, DecodeError, Kind, Reader,
    key_read::Projection,
    ldm::{
        COMMITTED, DISK_TABLE, INDEX_WORK, IndexChange, LdmBatchConf, LdmBatchRef, LdmBatchReq, LdmPrepareReq,
        ONE_PASS, PreparedRow, WRITES,
    },
    tc::{ALLOW_DUPLICATE, ALLOW_MISSING, NO_WAIT, Op, OpKind, OpResult, OpStatus, SKIP_LOCKED},
    view::View,
};
use apus_storage::{Acquire, Change, Fragment, Idle, LockMode, Locks, RowId};
use apus_types::{
    Chain, ErrorCode, IndexDef, IndexNo, PartitionId, TableSchema, TransId,
    hash::hash_key,
    key,
    limits::{BATCH_OPS_MAX, SIGNAL_BYTES_MAX},
    list::KeyList,
    planted::{Bug, planted},
    schema::{Durability, HIDDEN_PK_COLUMN},
    update,
};

use super::{
    LocalDataManager, REPORT_WAIT_NS, RowAt, Scratch, WAITING_MAX,
    ahead::{AHEAD, Ahead, fetch_entries},
    claims::{LOOK_NS, NO_ROW},
    ends::{RowEnds, is_short},
    redo::Redo,
    trans::{Entry, NONE, Part, Transactions},
};

/// What an operation of a batch may cost at worst, here or at a backup: a new version, an entry in each of the most indexes, memory that is not in the
/// cache.
pub(super) const OP_NS_MAX: u64 = 15_000;
const _: () = assert!(is_short(BATCH_OPS_MAX, OP_NS_MAX));

/// A batch under way, with everything done so far; survives lock waits. Reused, so that its buffers keep their memory.
#[derive(Default)]
pub(super) struct Work {
    pub trans: TransId,
    pub trans_at: u32,
    pub batch: u32,
    /// Of the view in which its coordinator sent it.
    generation: u64,
    pub next_op: u16,
    /// Where it waits, until when, and when the wait is reported next.
    pub lock_row: RowAt,
    pub deadline: u64,
    /// What it waits for is no lock, but the end of a branch that claims the row.
    is_claimed: bool,
    /// The operation that has last waited: it has one time for the lock and for claims.
    waited_for: Option<u16>,
    pub report_at: u64,
    /// Tells this wait from others in its slot.
    pub wait: u64,
    chain: Chain,
    /// Its part of the transaction.
    part: u32,
    flags: u8,
    savepoint: u32,
    lock_wait_ms: u32,
    count: u16,
    /// The operations; filled only when the batch has to wait.
    ops: Vec<u8>,
    /// Bytes of the operations before `next_op`.
    offset: usize,
    /// The lock waited for was granted; `lock_fresh`: the transaction did not hold the row before.
    lock_granted: bool,
    lock_fresh: bool,
    pub results: Vec<u8>,
    changes: Vec<u8>,
    change_count: u16,
    rows: Vec<u8>,
    row_count: u16,
    /// Changes go to other replicas or into the log.
    is_recorded: bool,
    /// It writes to a table of class `disk`.
    writes_disk_table: bool,
}

impl Work {
    /// What it holds while it waits.
    pub(super) fn bytes(&self) -> usize {
        self.ops.len() + self.results.len() + self.changes.len() + self.rows.len()
    }
}

/// An operation that is decoded, the hash of its key, the row that this names, perhaps, and how many bytes the operation took.
struct Coming<'o> {
    op: Op<'o>,
    secret: u64,
    guess: Option<RowId>,
    bytes: usize,
}

enum Progress {
    Done,
    Wait,
    Failed(ErrorCode),
}

pub(super) enum Step {
    Done,
    Wait,
}

enum Lock {
    /// `true`: the transaction did not hold this row before.
    Held(bool),
    /// It waits, or the row is skipped.
    Else(Step),
}

impl LocalDataManager {
    pub(super) fn on_batch_req(
        &mut self,
        from: BlockRef,
        req: &LdmBatchReq<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if !self.coordinator_valid(from, req.generation) && !planted(Bug::GateLeftOpen) {
            ctx.probe("ldm: batch of a removed coordinator dropped");
            return Ok(());
        }
        jam!(ctx);
        if self.is_id_used(req.trans, req.chain, from) {
            ctx.probe("ldm: the id of another transaction is refused");
            let refusal = LdmBatchRef { trans: req.trans, batch: req.batch, code: ErrorCode::TransactionIdUsed, op: 0 };
            ctx.send(from, Kind::LdmBatchRef, |out| refusal.encode(out));
            return Ok(());
        }
        self.counters.batches += 1;
        assert!(
            req.generation <= self.view.generation,
            "a batch of view {} comes in {}",
            req.generation,
            self.view.generation
        );
        let mut work = self.idle_work.pop().unwrap_or_default();
        work.begin(req);
        work.trans_at = self.transactions.find_or_create(req.trans, from, req.generation);
        let part = self.transactions.ensure_part(work.trans_at, req.chain);
        assert!(!part.committed && !part.aborted, "a batch of {} comes after its end on {:?}", req.trans, req.chain);
        assert!(part.undo.is_none(), "a batch of {} comes while it is undone on {:?}", req.trans, req.chain);
        assert!(!part.one_pass && part.refused.is_none(), "a batch of {} comes behind one that ends it", req.trans);
        work.part = part.number;
        let is_full = ctx.fault("ldm.refuse_memory");
        let progress = if is_full {
            Progress::Failed(ErrorCode::OutOfMemory)
        } else if ctx.is_overloaded(from.node) {
            ctx.probe("ldm: batch refused because answers pile up");
            Progress::Failed(ErrorCode::Overload)
        } else if self.outcomes.is_full(req.trans.client, ctx.now()) {
            ctx.probe("ldm: memory of outcomes is full");
            Progress::Failed(ErrorCode::OutcomesFull)
        } else if self.locks_refused && has(req, |kind| kind == OpKind::ReadShared) {
            ctx.probe("ldm: no memory for locks");
            Progress::Failed(ErrorCode::OutOfMemory)
        } else if let Some(code) = self.redo.as_ref().and_then(Redo::refusal).filter(|_| has(req, OpKind::is_write)) {
            ctx.probe("ldm: a change is refused because the disk does not take it");
            Progress::Failed(code)
        } else {
            self.execute_ops(&mut work, req.ops)
        };
        ctx.spend(usize::from(work.next_op), OP_NS_MAX);
        if matches!(progress, Progress::Wait) {
            work.ops.clear();
            work.ops.extend_from_slice(req.ops);
        }
        self.conclude(work, progress, ctx);
        Ok(())
    }

    /// A client has given one id to two transactions: this one is of another coordinator, or of one that was removed meanwhile, or has ended.
    fn is_id_used(&self, id: TransId, chain: Chain, tc: BlockRef) -> bool {
        let Some(at) = self.transactions.find(id) else { return self.outcomes.committed(id) };
        let has_ended = |part: &Part| part.committed || part.aborted;
        self.is_of_another(at, tc) || self.is_orphan(at) || self.transactions.get(at).part(chain).is_some_and(has_ended)
    }

    /// Continues a batch that waited for a lock, which was granted or is not needed any more. Returns how many operations it tried.
    pub(super) fn run(&mut self, mut work: Box<Work>, granted: bool, ctx: &mut Context<'_>) -> usize {
        jam!(ctx);
        work.lock_granted = granted;
        let before = work.next_op;
        let ops = std::mem::take(&mut work.ops);
        let progress = self.execute_ops(&mut work, &ops);
        work.ops = ops;
        if std::mem::take(&mut work.lock_granted) {
            // Refused before it could use the lock, for instance because the view changed while it waited.
            ctx.probe("ldm: lock granted in vain");
            self.give_back_unused(&work);
        }
        let tried = usize::from(work.next_op - before) + 1;
        self.conclude(work, progress, ctx);
        tried
    }

    /// The lock that the batch waited for was granted and not used: no entry of the transaction would give it back.
    pub(super) fn give_back_unused(&mut self, work: &Work) {
        if work.lock_fresh && !self.tell_twins(work.trans_at, work.lock_row, false) {
            self.release_row(work.lock_row, work.trans_at, true);
        }
    }

    pub(super) fn recycle(&mut self, work: Box<Work>) {
        if self.idle_work.len() < 64 {
            self.idle_work.push(work);
        }
    }

    fn execute_ops(&mut self, work: &mut Work, ops: &[u8]) -> Progress {
        work.is_claimed = false;
        work.is_recorded = self.redo.is_some() || self.next_in(work.chain).is_some();
        while work.next_op < work.count {
            let Some(rest) = ops.get(work.offset..) else { return Progress::Failed(ErrorCode::ProtocolViolation) };
            let mut coming: [Option<Coming<'_>>; AHEAD] = [const { None }; AHEAD];
            self.look_ahead(rest, usize::from(work.count - work.next_op), &mut coming);
            if coming[0].is_none() {
                return Progress::Failed(ErrorCode::ProtocolViolation);
            }
            for coming in coming.iter().flatten() {
                match self.execute_op(work, coming) {
                    Ok(Step::Done) => {
                        work.next_op += 1;
                        work.offset += coming.bytes;
                    }
                    Ok(Step::Wait) => return Progress::Wait,
                    Err(code) => return Progress::Failed(code),
                }
            }
        }
        Progress::Done
    }

    /// Decodes the next operations, `most` at most and [`AHEAD`], and fetches what they will touch.
    fn look_ahead<'o>(&self, ops: &'o [u8], most: usize, coming: &mut [Option<Coming<'o>>; AHEAD]) {
        let mut reader = Reader::new(ops);
        for place in coming.iter_mut().take(most) {
            let before = reader.rest().len();
            let Ok(op) = Op::decode(&mut reader) else { break };
            let (secret, bytes) = (self.secret.of(op.key), before - reader.rest().len());
            *place = Some(Coming { op, secret, guess: None, bytes });
        }
        let mut ahead = Ahead::default();
        for Coming { op, secret, .. } in coming.iter().flatten() {
            let table = self.tables.get(op.table);
            ahead.push(table.and_then(|table| table.fragment(op.partition)), *secret);
        }
        ahead.fetch();
        for (coming, row) in coming.iter_mut().flatten().zip(ahead.rows()) {
            coming.guess = *row;
        }
        if coming[1].is_none() {
            return;
        }
        let makes_row =
            |coming: &Coming<'_>| coming.guess.is_none() && matches!(coming.op.kind, OpKind::Insert | OpKind::Write);
        let made = coming.iter().flatten().enumerate().filter(|(_, coming)| makes_row(coming));
        fetch_entries(IndexNo(0), made.filter_map(|(number, coming)| Some((ahead.get(number).0?, coming.op.key))));
    }

    /// The chain that TC had in mind is still the partition's, or is what is left of it, and TC knew who has left. Locks for reading are at
    /// primaries alone: a coordinator that does not know yet that one is gone would go on under locks that its transaction has lost, and
    /// that its successor gives to others. A part that is refused goes out again in the view that says whether the transaction may go on.
    fn chain_valid(&self, work: &Work, partition: PartitionId) -> bool {
        if work.generation < self.lost_at {
            return false;
        }
        let (chain, current) = (work.chain, self.view.chain(partition));
        current.primary() == Some(self.me.node)
            && (planted(Bug::StaleMapAccepted)
                || chain == current
                || chain.retain(|n| self.view.is_alive(n)) == current)
    }

    fn execute_op(&mut self, work: &mut Work, coming: &Coming<'_>) -> Result<Step, ErrorCode> {
        let Coming { op, secret, guess, .. } = coming;
        if !self.chain_valid(work, op.partition) {
            return Err(ErrorCode::WrongView);
        }
        self.transactions.reserve(work.trans_at, self.transaction_bytes)?;
        if work.is_index_work() && self.tables.is_dropped(op.table) {
            // The index is dropped, here before the primary of the row has heard it.
            OpResult { status: OpStatus::Done, row: &[] }.encode(&mut work.results);
            return Ok(Step::Done);
        }
        if self.tables.claims(op.partition).is_some() {
            self.tables.checked_for(op)?;
            if self.is_claimed(work.trans_at, op) {
                return self.meet_claim(work, op);
            }
        }
        let table = self.tables.checked_for(op)?;
        if op.kind.is_write() && table.schema.durability == Durability::Disk {
            if !self.epochs.saves {
                return Err(ErrorCode::NoDisk);
            }
            // One that changes nothing, too: that the row is gone already is acknowledged, and may be on no disk yet.
            work.writes_disk_table = true;
        }
        let inserts = matches!(op.kind, OpKind::Insert | OpKind::Write);
        if inserts {
            table.schema.layout().check(op.value)?;
        }
        let (schema, fragment) = table.parts_mut(op.partition).ok_or(ErrorCode::WrongView)?;
        let found = fragment.find_idle(*guess, op.key, *secret);
        // A row that is there was made in the right partition, which is still that of its key if no bucket was ever moved.
        let may_be_elsewhere = found.is_none() || !self.view.bucket_map.is_empty();
        if may_be_elsewhere && is_elsewhere(schema, &self.view, op) {
            return Err(ErrorCode::ProtocolViolation);
        }
        let found = match found {
            Some(found) => found,
            None if inserts => {
                let row = fragment.insert_slot(op.key, *secret)?;
                fragment.idle(row).ok_or(row)
            }
            None => return missing(op, work),
        };
        let row = found.map_or_else(|row| row, |idle| idle.row());
        let at = (op.table, op.partition, row);
        let exclusive = op.kind != OpKind::ReadShared && !planted(Bug::ExclusiveReadUnlocked);
        // A change locks such a row by itself.
        let idle = found.ok().filter(|_| op.kind.is_write());
        let (fresh, outcome) = if let Some(idle) = &idle
            && self.copy_jobs.is_empty()
        {
            (true, write_row((schema, fragment), &mut self.scratch, work, op, Written::Idle(idle)))
        } else {
            let is_locked = idle.is_some() || (exclusive && fragment.lock_idle(row, Locks::sole(work.trans_at)));
            let fresh = match is_locked {
                true => true,
                false => match self.lock_row(work, op, at)? {
                    Lock::Held(fresh) => fresh,
                    Lock::Else(step) => return Ok(step),
                },
            };
            if fresh && !self.copy_jobs.is_empty() {
                self.copy_before_use(at);
            }
            let outcome = match op.kind.is_write() {
                true => self.write_found(work, op, idle.as_ref().map_or(Written::Locked(row, fresh), Written::Idle)),
                false => self.read_row(work, op, row, fresh),
            };
            (fresh, outcome)
        };
        let keeps = matches!(outcome, Ok(Effect::Wrote(_) | Effect::Keep));
        let passed_on = fresh && self.tell_twins(work.trans_at, at, keeps) && !keeps;
        match outcome {
            Ok(Effect::Wrote(bytes)) => self.note_row(work, at, fresh, Some(bytes)),
            Ok(Effect::Keep) if fresh => {
                if idle.is_some() {
                    self.lock_unchanged(work, at);
                }
                self.note_row(work, at, fresh, None);
            }
            Ok(Effect::Keep) => {}
            Ok(Effect::Release) | Err(_) if fresh && !passed_on => self.release_row(at, work.trans_at, true),
            Ok(Effect::Release) | Err(_) => {}
        }
        outcome.map(|_| Step::Done)
    }

    /// Locks a row that was idle and that the operation has left as it is.
    fn lock_unchanged(&mut self, work: &Work, at: RowAt) {
        let fragment = self.tables.fragment_mut(at.0, at.1);
        let locked = fragment.is_some_and(|fragment| fragment.lock_idle(at.2, Locks::sole(work.trans_at)));
        assert!(locked, "row {at:?} was idle and has changed under an operation that changes nothing");
    }

    /// Locks a row that somebody has already, perhaps this transaction, or that is to be shared.
    fn lock_row(&mut self, work: &mut Work, op: &Op<'_>, at: RowAt) -> Result<Lock, ErrorCode> {
        let fragment = self.tables.fragment_mut(at.0, at.1).ok_or(ErrorCode::Internal)?;
        if Locks::is_contended(fragment.lock_word_of(at.2), work.trans_at) {
            let (transactions, granted) = (&self.transactions, &mut self.granted);
            let mut ends = RowEnds { locks: &mut self.locks, transactions, epochs: &mut self.epochs, granted };
            ends.settle(fragment, at, work.trans_at, false);
        }
        if std::mem::take(&mut work.lock_granted) {
            return Ok(Lock::Held(work.lock_fresh));
        }
        if planted(Bug::ExclusiveReadUnlocked) && op.kind == OpKind::ReadExclusive
            || planted(Bug::SharedReadUnlocked) && op.kind == OpKind::ReadShared
        {
            return Ok(Lock::Held(false));
        }
        let slot = self.free_waiting.last().copied().unwrap_or(self.waiting.len() as u32);
        let has_room = (slot as usize) < WAITING_MAX && !self.locks_refused;
        let may_wait = op.flags & (NO_WAIT | SKIP_LOCKED) == 0 && has_room;
        let mode = if op.kind == OpKind::ReadShared { LockMode::Shared } else { LockMode::Exclusive };
        let word = fragment.lock_word(at.2);
        let fresh = *word == 0 || self.locks.held_mode(*word, work.trans_at).is_none();
        match self.locks.acquire(word, work.trans_at, mode, slot, may_wait) {
            Acquire::Granted => Ok(Lock::Held(fresh)),
            Acquire::AlreadyHeld => Ok(Lock::Held(false)),
            Acquire::Waiting => {
                self.note_waited_for(at, work.trans_at);
                work.lock_row = at;
                work.lock_fresh = fresh;
                Ok(Lock::Else(Step::Wait))
            }
            Acquire::WouldWait if op.flags & SKIP_LOCKED != 0 => {
                OpResult { status: OpStatus::Skipped, row: &[] }.encode(&mut work.results);
                Ok(Lock::Else(Step::Done))
            }
            Acquire::WouldWait if op.flags & NO_WAIT != 0 => Err(ErrorCode::LockNotAvailable),
            Acquire::WouldWait if self.locks_refused => Err(ErrorCode::OutOfMemory),
            Acquire::WouldWait => Err(ErrorCode::Overload),
        }
    }

    /// Two batches of one transaction (its work on unique indexes) may have waited for one row and been granted it together. The first to run
    /// tells the other whether there is an entry now that gives the lock back; if not, the lock is the other's. `true` if there is another.
    fn tell_twins(&mut self, owner: u32, at: RowAt, has_entry: bool) -> bool {
        let mut found = false;
        for &slot in &self.transactions.get(owner).waits {
            if let Some(twin) = self.waiting[slot as usize].as_mut().filter(|w| w.lock_row == at) {
                twin.lock_fresh = !has_entry;
                found = true;
            }
        }
        found
    }

    /// A row has one more waiter. With the first one its holders learn that somebody wants it.
    fn note_waited_for(&mut self, at: RowAt, waiter: u32) {
        let word = self.tables.get(at.0).and_then(|t| t.fragment(at.1)).map_or(0, |f| f.lock_word_of(at.2));
        if self.locks.waiting(word) != 1 {
            return;
        }
        let mut place = 0;
        while let Some(holder) = self.locks.holder(word, place) {
            place += 1;
            if holder != waiter {
                self.transactions.get_mut(holder).wanted.insert(at);
            }
        }
    }

    /// Remembers a row that the transaction has locked or changed.
    #[inline(always)]
    fn note_row(&mut self, work: &Work, at: RowAt, lock: bool, written: Option<usize>) {
        // A row locked just now has no earlier entry.
        let again = !lock && self.transactions.may_share(work.trans_at, work.chain, &self.view);
        let entry = Entry {
            next: NONE,
            table: at.0,
            partition: at.1,
            row: at.2,
            savepoint: work.savepoint,
            write: written.is_some(),
            lock,
            reach: 0,
        };
        self.transactions.push_entry(work.trans_at, work.chain, entry, written.unwrap_or(0), again);
    }

    fn read_row(&mut self, work: &mut Work, op: &Op<'_>, row: RowId, fresh: bool) -> Result<Effect, ErrorCode> {
        let table = self.tables.checked(op.table, op.schema_version)?;
        let projection = match op.value {
            [] => None,
            columns if columns.len() % 2 == 0 => table.projection(Projection { columns: Some(columns) })?,
            _ => return Err(ErrorCode::ProtocolViolation),
        };
        let Some(image) = table.fragment(op.partition).and_then(|f| f.newest_locked(row, fresh)) else {
            missing(op, work)?;
            return Ok(Effect::Release);
        };
        OpResult::encode_row(&mut work.results, |out| match &projection {
            None => out.extend_from_slice(image),
            Some(p) => table.schema.layout().project(image, &p.0, &p.1, out),
        });
        Ok(Effect::Keep)
    }

    /// Of a table and a definition that were checked.
    fn write_found(&mut self, work: &mut Work, op: &Op<'_>, row: Written<'_>) -> Result<Effect, ErrorCode> {
        let parts = self.tables.get_mut(op.table).and_then(|table| table.parts_mut(op.partition));
        write_row(parts.ok_or(ErrorCode::Internal)?, &mut self.scratch, work, op, row)
    }

    fn conclude(&mut self, mut work: Box<Work>, progress: Progress, ctx: &mut Context<'_>) {
        if !self.copy_jobs.is_empty() {
            self.send_early_copies(ctx);
        }
        match progress {
            Progress::Wait => return self.start_wait(work, ctx),
            Progress::Failed(code) => {
                let refusal = LdmBatchRef { trans: work.trans, batch: work.batch, code, op: work.next_op };
                ctx.send(self.transactions.get(work.trans_at).tc, Kind::LdmBatchRef, |out| refusal.encode(out));
                if code == ErrorCode::WrongView {
                    ctx.probe("ldm: batch refused for its view");
                }
                if code == ErrorCode::WrongView && work.next_op == 0 {
                    self.forget_untouched_part(work.trans_at, work.chain);
                }
            }
            Progress::Done => self.answer(&mut work, ctx),
        }
        self.recycle(work);
    }

    /// TC sends a batch that was refused for its view to another chain; this one may never hear of its end.
    fn forget_untouched_part(&mut self, at: u32, chain: Chain) {
        if self.transactions.get(at).part(chain).is_some_and(|part| part.head != NONE) {
            return;
        }
        self.transactions.drop_part(at, chain);
        self.remove_if_empty(at);
    }

    fn start_wait(&mut self, mut work: Box<Work>, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.counters.lock_waits += 1;
        assert!(work.next_op < work.count, "a batch of {} waits with nothing left to do", work.trans);
        if work.waited_for != Some(work.next_op) {
            work.deadline = ctx.now() + u64::from(work.lock_wait_ms) * 1_000_000;
            work.waited_for = Some(work.next_op);
        }
        work.report_at = ctx.now() + if work.is_claimed { LOOK_NS } else { REPORT_WAIT_NS };
        if work.is_claimed {
            ctx.probe("ldm: a batch waits for a claim");
            work.lock_row = NO_ROW;
        }
        self.waits += 1;
        work.wait = self.waits;
        let (due, wait) = (work.due(), work.wait);
        let slot = self.free_waiting.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            (self.waiting.len() - 1) as u32
        });
        assert!(self.waiting[slot as usize].is_none(), "slot {slot} of waiting batches given out twice");
        self.transactions.get_mut(work.trans_at).waits.push(slot);
        self.waiting_bytes += work.bytes();
        self.waiting[slot as usize] = Some(work);
        self.waits_due.push(Reverse((due, wait, slot)));
    }

    fn answer(&mut self, work: &mut Work, ctx: &mut Context<'_>) {
        assert!(work.next_op == work.count, "{} of {} operations are done and answered", work.next_op, work.count);
        let one_pass = work.flags & ONE_PASS != 0 && work.change_count == 0;
        let next = if work.row_count > 0 { self.next_in(work.chain) } else { None };
        let next = if planted(Bug::MiddleReplicaSkipped) && next.is_some() {
            work.chain.retain(|n| self.view.is_alive(n)).last()
        } else {
            next
        };
        if planted(Bug::LocksEndWithBatch) && work.flags & ONE_PASS == 0 {
            self.release_read_locks(work.trans_at, work.chain);
        }
        let tc = self.transactions.get(work.trans_at).tc;
        self.log_prepare(work.trans_at, work.chain, work.savepoint, work.row_count, &work.rows);
        if let Some(next) = next {
            let req = LdmPrepareReq {
                generation: self.view.generation,
                trans: work.trans,
                batch: work.batch,
                tc,
                chain: work.chain,
                flags: if one_pass { ONE_PASS } else { 0 },
                savepoint: work.savepoint,
                epoch: ctx.epoch(),
                count: work.row_count,
                rows: &work.rows,
            };
            ctx.send(self.peer(next), Kind::LdmPrepareReq, |out| req.encode(out));
        }
        if one_pass {
            let (epoch, batch) = (ctx.epoch(), work.batch);
            self.transactions.enter_flight(work.trans_at, work.chain, epoch, batch);
            let trans = self.transactions.get_mut(work.trans_at);
            trans.results.clear();
            trans.results.extend_from_slice(&work.results);
            trans.result_count = work.count;
            trans.result_flags = work.conf_flags();
            if next.is_none() || planted(Bug::AckBeforeBackup) {
                self.finish_one_pass(work.trans_at, work.chain, ctx);
            }
            return;
        }
        let conf = LdmBatchConf {
            generation: self.view.generation,
            trans: work.trans,
            batch: work.batch,
            flags: work.conf_flags() | if next.is_some() { WRITES } else { 0 },
            epoch: ctx.epoch(),
            count: work.count,
            results: &work.results,
            change_count: work.change_count,
            changes: &work.changes,
        };
        ctx.send(tc, Kind::LdmBatchConf, |out| conf.encode(out));
    }

    /// Only for [`Bug::LocksEndWithBatch`].
    fn release_read_locks(&mut self, at: u32, chain: Chain) {
        let head = self.transactions.get(at).part(chain).map_or(NONE, |part| part.head);
        let read: Vec<RowAt> =
            self.transactions.entries_from(head).filter(|e| e.lock && !e.write).map(Entry::at).collect();
        for (table, partition, row) in read {
            if let Some(fragment) = self.tables.fragment_mut(table, partition).filter(|f| !f.has_pending(row)) {
                self.locks.release(fragment.lock_word(row), at, &mut self.granted);
                fragment.add_incomplete(row);
            }
        }
    }

    /// Commits a one-pass batch at the primary, answers TC and lets the backups complete.
    pub(super) fn finish_one_pass(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        jam!(ctx);
        let (epoch, batch) = match self.transactions.part_mut(at, chain) {
            Some(part) => {
                assert!(part.in_flight || part.committed, "a one-pass batch on {chain:?} comes back that never left");
                (part.epoch, part.batch)
            }
            None => return,
        };
        self.commit_part(at, chain, epoch, ctx);
        self.transactions.leave_flight(at, chain);
        let trans = self.transactions.get(at);
        let conf = LdmBatchConf {
            generation: self.view.generation,
            trans: trans.id,
            batch,
            flags: COMMITTED | trans.result_flags,
            epoch,
            count: trans.result_count,
            results: &trans.results,
            change_count: 0,
            changes: &[],
        };
        ctx.send(trans.tc, Kind::LdmBatchConf, |out| conf.encode(out));
        let end = self.end_signal(trans.id, chain, trans.tc, epoch);
        for node in chain.nodes().filter(|&n| n != self.me.node && self.view.is_alive(n)) {
            ctx.send(self.peer(node), Kind::LdmCompleteOrd, |out| end.encode(out));
        }
        self.complete_part(at, chain, ctx);
    }
}

/// A row that is to be changed: idle, or locked, and whether just now.
#[derive(Clone, Copy)]
enum Written<'i> {
    Idle(&'i Idle),
    Locked(RowId, bool),
}

fn write_row(
    (schema, fragment): (&TableSchema, &mut Fragment),
    scratch: &mut Scratch,
    work: &mut Work,
    op: &Op<'_>,
    at: Written<'_>,
) -> Result<Effect, ErrorCode> {
    let image = &mut scratch.image;
    let (row, old, fresh) = match at {
        Written::Idle(idle) => (idle.row(), fragment.image_of(idle), true),
        Written::Locked(row, fresh) => (row, fragment.newest_locked(row, fresh), fresh),
    };
    let new: Option<&[u8]> = match (op.kind, old) {
        (OpKind::Insert, Some(_)) if op.flags & ALLOW_DUPLICATE != 0 => {
            OpResult { status: OpStatus::Duplicate, row: &[] }.encode(&mut work.results);
            return Ok(Effect::Keep);
        }
        (OpKind::Insert, Some(_)) => return Err(ErrorCode::DuplicateKey),
        (OpKind::Insert | OpKind::Write, _) => Some(op.value),
        (_, None) => {
            missing(op, work)?;
            return Ok(Effect::Release);
        }
        (OpKind::Delete, Some(old)) if is_entry_of_other(schema, old, op.value) => {
            missing(op, work)?;
            return Ok(Effect::Release);
        }
        (OpKind::Delete, Some(_)) => None,
        (_, Some(old)) => {
            if !update::apply(schema, old, op.value, image)? {
                OpResult { status: OpStatus::Unchanged, row: &[] }.encode(&mut work.results);
                return Ok(Effect::Keep);
            }
            Some(image)
        }
    };
    let rollback_to = (work.changes.len(), work.change_count);
    let writer = Transactions::writer(work.trans_at, work.part);
    // An update program leaves the primary key alone.
    let change = Change { image: new, writer, fresh, keeps_key: op.kind == OpKind::Update };
    let changed = match schema.indexes.is_empty() {
        true => Ok(()),
        false => entry_changes(schema, work, op.key, old, new, &mut scratch.key),
    };
    let pushed = changed.and_then(|()| match at {
        Written::Idle(idle) => fragment.push_idle(idle, &change),
        Written::Locked(row, _) => fragment.push(row, &change),
    });
    if let Err(code) = pushed {
        work.changes.truncate(rollback_to.0);
        work.change_count = rollback_to.1;
        return Err(code);
    }
    if work.is_recorded && !(planted(Bug::BackupMissesDeletes) && new.is_none()) {
        let prepared = PreparedRow {
            partition: op.partition,
            table: op.table,
            schema_version: op.schema_version,
            row: row.0,
            key: op.key,
            image: new,
        };
        prepared.encode(&mut work.rows);
        work.row_count += 1;
    }
    OpResult { status: OpStatus::Done, row: &[] }.encode(&mut work.results);
    Ok(Effect::Wrote(new.map_or(0, <[u8]>::len)))
}

/// What an operation did to its row's lock.
#[derive(Clone, Copy)]
enum Effect {
    /// A version of so many bytes.
    Wrote(usize),
    /// Nothing changed, the lock stays.
    Keep,
    /// Nothing changed, and the transaction need not hold the row.
    Release,
}

impl Work {
    /// When it is looked at next while it waits.
    pub fn due(&self) -> u64 {
        self.deadline.min(self.report_at)
    }
    fn begin(&mut self, req: &LdmBatchReq<'_>) {
        self.trans = req.trans;
        self.batch = req.batch;
        self.generation = req.generation;
        self.chain = req.chain;
        self.flags = req.flags;
        self.savepoint = req.savepoint;
        self.lock_wait_ms = req.lock_wait_ms;
        self.count = req.count;
        self.next_op = 0;
        self.offset = 0;
        (self.is_claimed, self.waited_for) = (false, None);
        self.lock_granted = false;
        self.ops.clear();
        self.results.clear();
        self.changes.clear();
        self.change_count = 0;
        self.rows.clear();
        self.row_count = 0;
        self.writes_disk_table = false;
    }
    /// What TC has to know of it.
    fn conf_flags(&self) -> u8 {
        u8::from(self.writes_disk_table) * DISK_TABLE
    }
    /// Entries of unique indexes, for another batch of the transaction.
    pub(super) fn is_index_work(&self) -> bool {
        self.flags & INDEX_WORK != 0
    }
    pub(super) fn chain(&self) -> Chain {
        self.chain
    }
    pub(super) fn meets_claim(&mut self) {
        self.is_claimed = true;
    }
    pub(super) fn waits_for_claim(&self) -> bool {
        self.is_claimed
    }
}

/// The operation names another partition than its key does.
fn is_elsewhere(schema: &TableSchema, view: &View, op: &Op<'_>) -> bool {
    let is_by_key = schema.is_hidden_index() || schema.distributed_by_whole_key();
    is_by_key && view.partition_of(hash_key(op.key)) != op.partition
}

fn has(req: &LdmBatchReq<'_>, which: impl Fn(OpKind) -> bool) -> bool {
    let mut reader = Reader::new(req.ops);
    (0..req.count).any(|_| Op::decode(&mut reader).is_ok_and(|op| which(op.kind)))
}

fn missing(op: &Op<'_>, work: &mut Work) -> Result<Step, ErrorCode> {
    if op.flags & ALLOW_MISSING == 0 {
        return Err(ErrorCode::RowNotFound);
    }
    OpResult { status: OpStatus::NotFound, row: &[] }.encode(&mut work.results);
    Ok(Step::Done)
}

/// The entry of a unique index that is to go belongs to another row than `primary_key`: while an index is filled, a row without an
/// entry may share its key with one that was written since.
fn is_entry_of_other(schema: &TableSchema, entry: &[u8], primary_key: &[u8]) -> bool {
    schema.is_hidden_index() && schema.layout().raw(entry, HIDDEN_PK_COLUMN) != primary_key
}

/// Most bytes of the entries that the operations of a batch change.
const CHANGES_BYTES_MAX: usize = SIGNAL_BYTES_MAX / 2;

impl Work {
    /// Appends an entry that comes or goes.
    fn change_entry(&mut self, change: &IndexChange<'_>) -> Result<(), ErrorCode> {
        if planted(Bug::UniqueEntryStays) && !change.insert {
            return Ok(());
        }
        let Some(count) = self.change_count.checked_add(1).filter(|_| self.changes.len() <= CHANGES_BYTES_MAX) else {
            return Err(ErrorCode::RequestTooLarge);
        };
        change.encode(&mut self.changes);
        self.change_count = count;
        Ok(())
    }
}

/// Appends what the write means for an index of which a column lists the keys.
fn list_changes<'r>(
    schema: &'r TableSchema,
    work: &mut Work,
    (index, column): (&IndexDef, u16),
    change: IndexChange<'_>,
    (old, new): (Option<&'r [u8]>, Option<&'r [u8]>),
    entry: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    let bytes_of = |image: Option<&'r [u8]>| image.map_or(&[][..], |image| schema.layout().raw(image, column));
    let keys_of = |bytes| KeyList::read(bytes, change.primary_key.len());
    let (old, new) = (keys_of(bytes_of(old))?, keys_of(bytes_of(new))?);
    old.changes(new, |insert, key| {
        entry.clear();
        entry.extend_from_slice(key);
        if !index.unique || if insert { new.is_shared } else { old.is_shared } {
            entry.extend_from_slice(change.primary_key);
        }
        work.change_entry(&IndexChange { insert, key: entry, ..change })
    })
}

/// Appends what the write means for the table's unique indexes, and for those with a list.
fn entry_changes(
    schema: &TableSchema,
    work: &mut Work,
    primary_key: &[u8],
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    scratch: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    for index in &schema.indexes {
        let Some(hidden_table) = index.hidden_table else { continue };
        let list = index.list_column();
        let columns = list.as_ref().map_or(index.columns.as_slice(), std::slice::from_ref);
        if let (Some(old), Some(new)) = (old, new)
            && key::same_columns(schema.layout(), columns, old, new)
        {
            continue;
        }
        let distribution_hash = key::distribution_hash(schema, primary_key);
        let (op, index_no) = (work.next_op, index.no);
        let change =
            IndexChange { op, index: index_no, insert: false, hidden_table, key: &[], distribution_hash, primary_key };
        if let Some(column) = list {
            list_changes(schema, work, (index, column), change, (old, new), scratch)?;
            continue;
        }
        let ends: [Option<usize>; 2] = {
            scratch.clear();
            let mut end_of = |image: Option<&[u8]>| -> Result<Option<usize>, ErrorCode> {
                let Some(image) = image else { return Ok(None) };
                let start = scratch.len();
                if key::encode_unique(schema, index, image, scratch)? {
                    scratch.truncate(start); // a key with a NULL is not in the unique index
                    return Ok(None);
                }
                Ok(Some(scratch.len()))
            };
            [end_of(old)?, end_of(new)?]
        };
        let split = ends[0].unwrap_or(0);
        if let (Some(first), Some(second)) = (ends[0], ends[1])
            && scratch[..first] == scratch[first..second]
        {
            continue; // other bytes, same key under the collation
        }
        for (insert, range) in [(false, ends[0].map(|e| 0..e)), (true, ends[1].map(|e| split..e))] {
            let Some(range) = range else { continue };
            work.change_entry(&IndexChange { insert, key: &scratch[range], ..change })?;
        }
    }
    Ok(())
}

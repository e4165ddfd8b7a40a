//! Node recovery: the primary sends its rows down the chain, the recovering node at its end stores them. See
//! `apus_signal::copy` for the protocol and why the order is safe.
//!
//! **Pace.** A write to a recovering chain waits behind the copied rows on the same links, and rows are copied in the time of the
//! worker that serves transactions. So while this instance was asked for anything since its last slice, one small message
//! ([`SLICE_ROWS_BUSY`]) is under way at a time, and the next is made when the last is confirmed and the foreground has had its
//! share ([`SHARE_ASKED`]) or did not want it ([`SHARE_NS`]). An idle instance copies as fast as it can.
//!
//! **A node that has rows of its own** (`apus_signal::copy::Walked`): the walk sends the rows that were changed after the epoch up to which each node that is being filled
//! has everything, and names the others by a bit. The node gives up what is not named (`copy_in`).
//!
//! **Locked rows.** A row that is undecided when its turn comes is *passed over*. It is copied by whoever is first of two: the walk, which
//! looks at it again and again, or the next transaction that gets its lock, which copies it before it does anything with the row
//! ([`LocalDataManager::copy_before_use`]). So a row that is locked without a break is copied at the first change of hands. The copy leaves
//! before the batch that got the lock sends its changes, on the same links, so it arrives before them.
//!
//! **Idle transactions.** A row that is locked by somebody who does nothing never changes hands. When only such rows have been left for
//! [`HELD_UP_NS`], the coordinators of their holders are asked, once in [`ASK_NS`], to end those that are idle: `tc::idle`.

use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, DecodeError, Kind,
    copy::{COPY_BYTES, COPY_WINDOW, COPY_WINDOW_BUSY, CopiedRow, CopyFrag, CopyRowsConf, CopyRowsOrd, Walked},
    ldm::LdmPrepared,
    view::{NodeState, View, ViewNode},
};
use apus_storage::{Fragment, LockMode, RowId};
use apus_types::{
    Epoch, ErrorCode, NodeId, PartitionId, TableId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager, RowAt,
    ends::{ROW_NS_MAX, is_short},
    tables::{Table, Tables},
    trans::Standing,
};

/// Rows looked at in one slice by an instance that does nothing else.
const SLICE_ROWS: usize = 256;
// A row is copied out, or stored with an entry in each index, in much less than what its end may take.
const _: () = assert!(is_short(SLICE_ROWS, ROW_NS_MAX) && SLICE_ROWS_BUSY <= SLICE_ROWS);
/// The same for one that serves transactions: some 100 microseconds on the recovering node.
const SLICE_ROWS_BUSY: usize = 64;
/// Rows looked at for each that may be sent, where most are not, and what that may cost at worst: the hash of a long row.
const LOOKED: usize = 8;
pub(super) const LOOK_NS_MAX: u64 = 6_000;
const _: () = assert!(is_short(SLICE_ROWS * LOOKED, LOOK_NS_MAX));
/// Slots that one message tells of, unless no row is behind them.
const SPAN: u32 = 1 << 11;
const _: () = assert!(is_short(SPAN as usize, LOOK_NS_MAX));
/// Rows read and changed by others between two busy slices, so that copying takes about half of the time.
const SHARE_ASKED: u64 = 32;
/// At the latest after this time the next slice is due: a quarter of a million rows per second and instance.
const SHARE_NS: u64 = 250_000;
/// The body of the delayed `LdmContinueOrd` with which copying goes on.
pub(super) const CONTINUE_COPY: u8 = 2;
/// Locked rows are looked at again after this time.
const RETRY_NS: u64 = 1_000_000;
/// Whoever locks the last rows for longer is to end.
const HELD_UP_NS: u64 = 5_000_000_000;
const ASK_NS: u64 = 1_000_000_000;
/// Most rows of a partition whose holders are asked at once.
const ASKED_MAX: usize = 64;

/// How copying shares the worker with transactions.
#[derive(Default)]
pub(super) struct Pace {
    /// Transactions wanted something of this instance between the last two slices.
    is_busy: bool,
    /// Of the last slice, ns.
    slice_at: u64,
    /// [`super::Counters::asked`] at the last slice.
    asked: u64,
}

/// One partition being copied: which table and row come next, and the rows that were passed over.
#[derive(Debug)]
pub(super) struct CopyJob {
    generation: u64,
    /// View in which it began, or began anew because a node of the chain died with messages under way.
    pub(super) round: u64,
    pub(super) partition: PartitionId,
    reply_to: BlockRef,
    fill: Fill,
    /// Of all tables, when it began.
    slots: u64,
    /// `None`: all tables walked.
    table: Option<TableId>,
    row: RowId,
    /// Passed over, and the one that was looked at last since.
    locked: BTreeSet<(TableId, RowId)>,
    looked_at: (TableId, RowId),
    /// Since when nothing else has been left, and when the holders were asked last, ns.
    held_up: Option<u64>,
    asked_at: u64,
    /// Rows copied by the batch that is being executed; empty between two signals.
    early: Vec<Rows>,
    /// Behind the rows: the chunk of outcomes that is told next; `None`: all are told.
    outcomes: Option<u32>,
    /// Confirmations that are to come, of each message one by each node behind this one.
    pub(super) outstanding: u32,
}

/// What the nodes that are being filled have already.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    /// Each has everything up to this epoch, of tables whose rows are kept on disk.
    since: Epoch,
    /// One has rows that it may have to give up.
    some_restored: bool,
}

/// Of the slots that a message tells of: [`Walked`], in memory that stays.
#[derive(Debug, Default)]
pub(super) struct Walking {
    from: u32,
    to: u32,
    since: Epoch,
    sum: u64,
    unchanged: Vec<u8>,
    left: Vec<u8>,
}

impl Walking {
    fn begin(&mut self, from: RowId, since: Epoch) {
        (self.from, self.to, self.since, self.sum) = (from.0, from.0, since, 0);
        self.unchanged.clear();
        self.left.clear();
    }
    fn note_unchanged(&mut self, row: RowId, hash: u64, epoch: Epoch) {
        assert!(row.0 >= self.from, "row {} is told of in a message from {} on", row.0, self.from);
        let at = (row.0 - self.from) as usize;
        if self.unchanged.len() <= at / 8 {
            self.unchanged.resize(at / 8 + 1, 0);
        }
        self.unchanged[at / 8] |= 1 << (at % 8);
        self.sum = Walked::add(self.sum, hash, epoch);
    }
    fn walked(&self) -> Walked<'_> {
        let Walking { from, to, since, sum, .. } = *self;
        Walked { from, to, since, sum, unchanged: &self.unchanged, left: &self.left }
    }
}

/// Rows of one table, encoded for one message.
#[derive(Debug)]
struct Rows {
    table: TableId,
    count: u16,
    bytes: Vec<u8>,
}

impl CopyJob {
    fn new(req: CopyFrag, round: u64, tables: &Tables, reply_to: BlockRef, fill: Fill) -> CopyJob {
        CopyJob {
            generation: req.generation,
            round,
            partition: req.partition,
            reply_to,
            fill,
            slots: tables.slots(req.partition),
            table: tables.next_id(TableId(0)),
            row: RowId::default(),
            locked: BTreeSet::new(),
            looked_at: (TableId(0), RowId(0)),
            held_up: None,
            asked_at: 0,
            early: Vec::new(),
            outcomes: Some(0),
            outstanding: 0,
        }
    }

    fn begin_anew(&mut self, round: u64, tables: &Tables, fill: Fill) {
        let req = CopyFrag { generation: self.generation, partition: self.partition };
        *self = CopyJob::new(req, round, tables, self.reply_to, fill);
    }
}

impl LocalDataManager {
    pub(super) fn on_copy_frag_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = CopyFrag::decode(body)?;
        jam!(ctx);
        let may_copy = req.generation <= self.view.generation && self.is_primary(req.partition);
        if !may_copy || ctx.fault("ldm.refuse_copy") {
            ctx.probe("ldm: copy of a partition refused");
            ctx.send(from, Kind::CopyFragRef, |out| req.encode(out));
            return Ok(());
        }
        self.copy_jobs.retain(|j| j.partition != req.partition);
        let fill = self.fill_of(req.partition, ctx.epoch());
        if fill.since > Epoch(0) {
            ctx.probe("ldm: a node is sent what has changed since it died");
        }
        self.copy_jobs.push(CopyJob::new(req, self.view.generation, &self.tables, from, fill));
        self.continue_soon(ctx);
        Ok(())
    }

    fn fill_of(&self, partition: PartitionId, now: Epoch) -> Fill {
        let recovering = |n: &&ViewNode| n.state() == NodeState::Recovering;
        let nodes = || self.view.chain(partition).nodes().filter_map(|n| self.view.node(n)).filter(recovering);
        let some_restored = nodes().any(|n| n.restored > 0);
        let since = Epoch(nodes().map(|n| n.restored).min().unwrap_or(0));
        let is_late = since > Epoch(0) && planted(Bug::ChangesMissed);
        Fill { since: if is_late { now } else { since }, some_restored }
    }

    /// A new view: jobs go on unless a node of their chain died. With the recovering node gone they end (COPY asks anew for its next
    /// incarnation); with another one gone, messages may be lost and they begin anew.
    pub(super) fn fit_copy_jobs(&mut self, gone: &[NodeId], old: &View, ctx: &mut Context<'_>) {
        let mut jobs = std::mem::take(&mut self.copy_jobs);
        jobs.retain_mut(|job| {
            let mut dead = old.chain(job.partition).nodes().filter(|n| gone.contains(n)).peekable();
            if dead.peek().is_none() {
                return true;
            }
            if dead.any(|n| old.state(n) == NodeState::Recovering) {
                ctx.probe("ldm: copy ends with the recovering node");
                return false;
            }
            ctx.probe("ldm: copy begins anew without a dead node");
            let fill = self.fill_of(job.partition, ctx.epoch());
            job.begin_anew(self.view.generation, &self.tables, fill);
            true
        });
        self.copy_jobs = jobs;
        if !self.copy_jobs.is_empty() {
            self.continue_soon(ctx);
        }
    }

    /// Sliced work: index builds, freeing of old versions and copying, one slice of each, then again after whatever else is waiting.
    pub(super) fn on_continue(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.continuing = false;
        // One slice of one kind of work: together they would be longer than a slice may be. Copying has every second turn.
        self.copy_turn = !self.copy_jobs.is_empty() && !self.copy_turn;
        if !self.copy_turn && (self.do_odd_job(ctx) || !self.copy_jobs.is_empty()) {
            return self.continue_soon(ctx);
        }
        let mut again = self.copy_turn && self.has_odd_jobs();
        let mut later = false;
        if self.copy_jobs.is_empty() || !self.may_copy(ctx.now()) {
            if again {
                self.continue_soon(ctx);
            } else if !self.copy_jobs.is_empty() {
                self.copy_later(SHARE_NS, ctx);
            }
            return;
        }
        let (window, slice_rows) =
            if self.pace.is_busy { (COPY_WINDOW_BUSY, SLICE_ROWS_BUSY) } else { (COPY_WINDOW, SLICE_ROWS) };
        let mut under_way: u32 = self.copy_jobs.iter().map(|job| self.orders_under_way(job)).sum();
        for _ in 0..self.copy_jobs.len() {
            let mut job = self.copy_jobs.remove(0);
            assert!(job.early.is_empty(), "rows copied by a batch were not sent with it: {job:?}");
            under_way -= self.orders_under_way(&job);
            let before = job.outstanding;
            let slice = self.copy_slice(&mut job, window.saturating_sub(under_way), slice_rows, ctx);
            let has_sent = job.outstanding > before;
            under_way += self.orders_under_way(&job);
            match slice {
                Slice::More => {
                    self.copy_jobs.push(job);
                    again = true;
                    break; // the others have the next turns
                }
                Slice::Locked => {
                    ctx.probe("ldm: copy waits for locked rows");
                    self.ask_holders(&mut job, ctx);
                    later = true;
                }
                Slice::WindowFull if has_sent => {
                    self.copy_jobs.push(job);
                    again = true;
                    break; // its last rows
                }
                Slice::WindowFull => {}
                Slice::Finished => {
                    assert!(job.locked.is_empty() && job.outstanding == 0, "a copy ends with rows to come: {job:?}");
                    assert!(job.outcomes.is_none(), "a copy ends with outcomes to come: {job:?}");
                    let conf = CopyFrag { generation: job.generation, partition: job.partition };
                    ctx.send(job.reply_to, Kind::CopyFragConf, |out| conf.encode(out));
                    continue;
                }
            }
            self.copy_jobs.push(job);
        }
        if again {
            self.continue_soon(ctx);
        } else if later {
            self.copy_later(RETRY_NS, ctx);
        }
    }
    /// The locked rows are all that is left for long: asks for the end of whoever holds them and is idle.
    fn ask_holders(&self, job: &mut CopyJob, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let since = *job.held_up.get_or_insert(now);
        if now - since < HELD_UP_NS || now < job.asked_at + ASK_NS {
            return;
        }
        job.asked_at = now;
        ctx.probe("ldm: holders of the last rows to be copied are asked");
        for (table, row) in job.locked.iter().take(ASKED_MAX) {
            let fragment = self.tables.get(*table).and_then(|t| t.fragment(job.partition));
            let Some(holder) = fragment.and_then(|f| self.locks.holder(f.lock_word_of(*row), 0)) else { continue };
            let trans = self.transactions.get(holder);
            let chain = self.view.chain(job.partition);
            let wish = LdmPrepared { trans: trans.id, batch: 0, chain, code: Some(ErrorCode::TransactionTimeout) };
            ctx.send(trans.tc, Kind::LdmPreparedRef, |out| wish.encode(out));
        }
    }
    /// Nodes that confirm each message of the job.
    pub(super) fn behind(&self, job: &CopyJob) -> u32 {
        self.view.chain(job.partition).nodes().count().saturating_sub(1) as u32
    }
    fn orders_under_way(&self, job: &CopyJob) -> u32 {
        job.outstanding.div_ceil(self.behind(job).max(1))
    }
    fn has_odd_jobs(&self) -> bool {
        !self.given_up.is_empty() || !self.index_builds.is_empty()
    }
    /// A slice of what is to be done besides copying; `true`: there may be more.
    fn do_odd_job(&mut self, ctx: &mut Context<'_>) -> bool {
        if self.free_given_up(ctx) || self.continue_index_build(ctx) {
            return true;
        }
        self.collect_versions(ctx)
    }

    /// One delayed signal at a time, whoever else has continued meanwhile.
    fn copy_later(&mut self, delay_ns: u64, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.copy_waits, true) {
            ctx.send_delayed(delay_ns, Kind::LdmContinueOrd, |out| out.push(CONTINUE_COPY));
        }
    }

    /// Whether copying is due; sets the pace.
    fn may_copy(&mut self, now: u64) -> bool {
        let asked = self.counters.asked();
        let since = asked - self.pace.asked;
        let is_late = now.saturating_sub(self.pace.slice_at) >= SHARE_NS;
        if !is_late && since < SHARE_ASKED && (self.pace.is_busy || since > 0) {
            return false;
        }
        self.pace.is_busy = since > 0;
        (self.pace.slice_at, self.pace.asked) = (now, asked);
        true
    }

    /// One message of `job`, which may have `window` under way.
    fn copy_slice(&mut self, job: &mut CopyJob, window: u32, slice_rows: usize, ctx: &mut Context<'_>) -> Slice {
        if self.orders_under_way(job) >= window {
            return Slice::WindowFull;
        }
        let mut rows = std::mem::take(&mut self.scratch.rows);
        let mut walking = std::mem::take(&mut self.scratch.walking);
        rows.clear();
        walking.begin(RowId(0), Epoch(0));
        let (mut count, mut table) = (0u16, job.table);
        if let Some(id) = job.table {
            count = self.walk_rows(job, id, slice_rows, &mut rows, &mut walking, ctx);
        } else if let Some((id, row)) = self.next_locked(job) {
            table = Some(id);
            count = self.revisit_locked(job, id, row, slice_rows, &mut rows);
        } else if let Some(place) = job.outcomes {
            job.outcomes = self.tell_outcomes(job, place, ctx);
        }
        ctx.spend(usize::from(count), ROW_NS_MAX);
        let sent = count > 0 || walking.to > walking.from;
        if let Some(table) = table.filter(|_| sent) {
            self.send_copied(job, table, (count, &rows), walking.walked(), ctx);
        }
        (self.scratch.rows, self.scratch.walking) = (rows, walking);
        match (job.table, job.locked.is_empty()) {
            (Some(_), _) => Slice::More,
            (None, false) if sent => Slice::More,
            (None, false) => Slice::Locked,
            (None, true) if job.outcomes.is_some() => Slice::More,
            (None, true) if job.outstanding > 0 => Slice::WindowFull,
            (None, true) => Slice::Finished,
        }
    }

    fn send_copied(
        &self,
        job: &mut CopyJob,
        table: TableId,
        (count, rows): (u16, &[u8]),
        walked: Walked<'_>,
        ctx: &mut Context<'_>,
    ) {
        let chain = self.view.chain(job.partition);
        let CopyJob { round: generation, partition, slots, .. } = *job;
        let source = self.me;
        let order = CopyRowsOrd { generation, source, chain, partition, table, slots, walked, count, rows };
        if let Some(next) = self.next_in(chain) {
            ctx.send(self.peer(next), Kind::CopyRowsOrd, |out| order.encode(out));
            job.outstanding += self.behind(job);
            job.held_up = None;
        }
    }

    /// Collects the next rows of `id` and moves the job on, to the next table at the end.
    fn walk_rows(
        &mut self,
        job: &mut CopyJob,
        id: TableId,
        slice_rows: usize,
        rows: &mut Vec<u8>,
        walking: &mut Walking,
        ctx: &mut Context<'_>,
    ) -> u16 {
        let (mut count, mut looked) = (0, 0);
        let table = self.tables.get(id);
        let since = if table.is_some_and(Table::is_logged) { job.fill.since } else { Epoch(0) };
        let most = slice_rows * LOOKED;
        walking.begin(job.row, since);
        let fragment = table.and_then(|t| t.fragment(job.partition));
        let mut next = fragment.and_then(|f| f.next_row(job.row));
        while let (Some(fragment), Some(row)) = (fragment, next) {
            let is_far = job.fill.some_restored && row.0 - walking.from >= SPAN;
            // A row that is sent takes the time of so many that are not.
            if looked + LOOKED * usize::from(count) >= most || rows.len() >= COPY_BYTES || is_far {
                break;
            }
            looked += 1;
            count += self.walk_row(job, (id, row), fragment, rows, walking);
            job.row = RowId(row.0 + 1);
            next = fragment.next_row(job.row);
        }
        ctx.spend(looked - usize::from(count), LOOK_NS_MAX);
        if let Some(row) = next {
            job.row = row;
        } else {
            job.table = self.tables.next_id(TableId(id.0 + 1));
            job.row = RowId::default();
        }
        if job.fill.some_restored {
            walking.to = next.map_or(u32::MAX, |row| row.0);
        }
        count
    }

    /// What is to be said of a row: 1 if it is sent.
    fn walk_row(
        &self,
        job: &mut CopyJob,
        (table, row): (TableId, RowId),
        fragment: &Fragment,
        rows: &mut Vec<u8>,
        walking: &mut Walking,
    ) -> u16 {
        if self.is_undecided(fragment, row) && !planted(Bug::CopyOverwritesNewer) {
            walking.left.extend_from_slice(&row.0.to_le_bytes());
            if !planted(Bug::CopyMissesLocked) {
                job.locked.insert((table, row));
            }
            return 0;
        }
        let Some(image) = fragment.committed(row, &self.transactions) else { return 0 };
        let epoch = fragment.last_change(row, &self.transactions);
        if epoch <= walking.since {
            walking.note_unchanged(row, fragment.hash_of(row, image), epoch);
            return 0;
        }
        CopiedRow { epoch, row: row.0, key: &fragment.key(row), image }.encode(rows);
        1
    }

    /// The row has a change that is not committed yet, or perhaps not on every replica; or it may have had one that is being undone: the
    /// recovering node may still hold that, and would take it for newer than the copy.
    fn is_undecided(&self, fragment: &Fragment, row: RowId) -> bool {
        if let Some(writer) = fragment.writer(row) {
            return matches!(self.transactions.standing(writer), Standing::Open | Standing::Between);
        }
        let word = fragment.lock_word_of(row);
        self.locks.holder(word, 0).is_some_and(|holder| {
            let trans = self.transactions.get(holder);
            let is_exclusive = self.locks.held_mode(word, holder) == Some(LockMode::Exclusive);
            is_exclusive && trans.decided().is_none() && !trans.is_over()
        })
    }

    /// Appends the row as it is committed, or where somebody may have one that the slot is empty; 0: there is nothing to be said.
    fn push_copied(&self, job: Fill, fragment: &Fragment, row: RowId, rows: &mut Vec<u8>) -> u16 {
        let Some(image) = fragment.committed(row, &self.transactions) else {
            if job.some_restored {
                CopiedRow::empty(row.0, Epoch(0)).encode(rows);
            }
            return u16::from(job.some_restored);
        };
        let epoch = fragment.last_change(row, &self.transactions);
        CopiedRow { epoch, row: row.0, key: &fragment.key(row), image }.encode(rows);
        1
    }

    /// The row to look at again next, in turn.
    fn next_locked(&self, job: &CopyJob) -> Option<(TableId, RowId)> {
        let after = job.locked.range((Excluded(job.looked_at), Unbounded)).next();
        after.or_else(|| job.locked.first()).copied()
    }

    /// Collects those rows of `id` that were passed over and are decided now, from `row` on.
    fn revisit_locked(
        &mut self,
        job: &mut CopyJob,
        id: TableId,
        row: RowId,
        slice_rows: usize,
        rows: &mut Vec<u8>,
    ) -> u16 {
        let mut count = 0;
        let fragment = self.tables.get(id).and_then(|t| t.fragment(job.partition));
        let mut next = Some((id, row));
        for _ in 0..slice_rows {
            // Another table's rows get their turn with the next slice.
            let Some(at) = next.filter(|at| at.0 == id) else { break };
            job.looked_at = at;
            next = job.locked.range((Excluded(at), Unbounded)).next().copied();
            if fragment.is_some_and(|f| self.is_undecided(f, at.1)) {
                continue;
            }
            job.locked.remove(&at);
            count += fragment.map_or(0, |f| self.push_copied(job.fill, f, at.1, rows));
            if rows.len() >= COPY_BYTES {
                break;
            }
        }
        count
    }

    /// A transaction has got a row's lock and has done nothing with it yet: if the row was passed over, it is copied now.
    #[cold]
    pub(super) fn copy_before_use(&mut self, at: RowAt) {
        let (table, partition, row) = at;
        let Some(i) = self.copy_jobs.iter().position(|j| j.partition == partition) else { return };
        if !self.copy_jobs[i].locked.remove(&(table, row)) {
            return;
        }
        let Some(fragment) = self.tables.get(table).and_then(|t| t.fragment(partition)) else { return };
        let fill = self.copy_jobs[i].fill;
        let mut early = std::mem::take(&mut self.copy_jobs[i].early);
        if early.last().is_none_or(|rows| rows.table != table || rows.bytes.len() >= COPY_BYTES) {
            early.push(Rows { table, count: 0, bytes: Vec::new() });
        }
        if let Some(last) = early.last_mut() {
            last.count += self.push_copied(fill, fragment, row, &mut last.bytes);
        }
        self.copy_jobs[i].early = early;
    }

    /// Sends what a batch has copied, before its own changes go down the same chain.
    pub(super) fn send_early_copies(&mut self, ctx: &mut Context<'_>) {
        for i in 0..self.copy_jobs.len() {
            if self.copy_jobs[i].early.is_empty() {
                continue;
            }
            ctx.probe("ldm: row copied as its lock changes hands");
            let mut job = self.copy_jobs.swap_remove(i);
            for rows in std::mem::take(&mut job.early).into_iter().filter(|rows| rows.count > 0) {
                self.send_copied(&mut job, rows.table, (rows.count, &rows.bytes), Walked::default(), ctx);
            }
            self.copy_jobs.push(job);
            let last = self.copy_jobs.len() - 1;
            self.copy_jobs.swap(i, last);
        }
    }

    pub(super) fn on_copy_rows_conf(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let conf = CopyRowsConf::decode(body)?;
        let Some(job) = self.copy_jobs.iter_mut().find(|j| j.partition == conf.partition && j.round == conf.generation)
        else {
            return Ok(());
        };
        job.outstanding = job.outstanding.saturating_sub(1);
        self.continue_soon(ctx);
        Ok(())
    }
}

enum Slice {
    More,
    /// Only locked rows are left.
    Locked,
    /// Goes on with the next `CopyRowsConf`.
    WindowFull,
    Finished,
}

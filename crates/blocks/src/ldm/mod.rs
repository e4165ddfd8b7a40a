//! Local data manager (LDM): the rows of this instance's fragments, their locks, and one replica's side of every transaction.
//!
//! Owns the fragments of the partitions `p` with `p mod instances == own instance` in whose chain this node is. Talks to TCs (any
//! node), to the LDMs of the same instance number on the other nodes of a chain, to clients (committed reads and scans), and to
//! its node's DICT and COPY. The messages are in `apus_signal::{ldm, key_read, scan, takeover, copy}`.
//!
//! # A row in a transaction
//!
//! ```text
//!                 primary                                   backup
//! LdmBatchReq     lock, push pending version        LdmPrepareReq   lock, push pending version
//! LdmCommitOrd    <- arrives last: decided, readable, <- arrives first: decided; readable at the primary only
//!                    answer TC; rows stamped, locks
//!                    released in slices
//! LdmCompleteOrd  record forgotten                   readable here; rows stamped, locks released in slices;
//!                                                    record forgotten
//! LdmAbortOrd     versions popped                    versions popped
//! LdmAbortConf    <- arrives last: lock released     <- arrives first: lock released, passed on
//! ```
//!
//! # Rules
//!
//! 1. A pending version exists only under an exclusive lock of its transaction, on every replica.
//! 2. A row's changes reach a backup in the order of the primary, because each hop of a chain is one link.
//! 3. A backup commits before the primary, so whoever sees a version at the primary can rely on every replica having it.
//! 4. A backup answers a read only for rows that are complete; others are read at the primary.
//! 5. A part that is committed is remembered until TC says complete, so that a take-over finds it.
//! 6. After a view without node X has been processed, nothing that X coordinated is accepted any more.
//! 7. A view in which a chain is turned (`apus_signal::switchover`) finds no part on it that is not committed.
//!
//! # Waiting
//!
//! A batch that meets a locked row is set aside with all it has done so far ([`execute::Work`]) and continues when the lock is
//! granted; nothing blocks. The lock wait ends by grant, by time-out ([`LdmBatchRef`]), or because TC aborts the transaction.
//!
//! # Limits
//!
//! [`entries::ENTRIES_MAX`], `transaction_bytes` of [`LocalDataManager::new`], [`ends::SLICE_ROWS`], [`WAITING_MAX`], [`outcome::CHUNKS_MAX`], [`tables::TABLE_ID_MAX`], [`scan::EXAMINED_MAX`],
//! [`snapshot::COLLECT_ROWS`], [`redo::BUFFER_MAX`], [`redo::SEGMENTS_MAX`].

mod ahead;
mod changed;
mod checkpoint;
mod checkpoint_end;
mod checkpoint_speed;
mod claims;
mod copy_in;
mod copy_out;
mod copy_outcomes;
mod disk_health;
mod ends;
mod entries;
mod execute;
mod harden;
mod outcome;
mod read;
mod redo;
mod replicate;
pub mod reshape;
mod restore;
mod scan;
mod scrub;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests_reshape;
mod trans;
mod view_change;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
};

use apus_eval::{grouping::Grouping, groups::Groups};
use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    copy::{CopyOutcomesOrd, CopyRowsOrd},
    epoch::EpochOrd,
    file::{DiskConf, DiskRef, FileDone},
    gcp::GcpSave,
    ldm::{LdmBatchRef, LdmBatchReq, LdmEnd, LdmPrepareReq, LdmPrepared, LdmWaitRep, WAIT_HOLDERS_MAX},
    qmgr::decode,
    restart::Progress,
    switchover::Switch,
    takeover::OutcomeSignal,
    tc::{Outcome, RequestRef, TcFloor},
    view::{NodeState, View},
};
use apus_storage::{Fragment, Grant, Locks, MemoryManager, Region, RowId};
use apus_types::{
    Chain, Epoch, ErrorCode, NodeId, PartitionId,
    hash::SecretHash,
    planted::{Bug, planted},
};

pub(crate) use self::ends::is_short;
pub use self::{
    checkpoint::CHECKPOINT_BYTES,
    copy_in::DIFFERS,
    ends::{SLICE_ROWS, Slices},
    scrub::SCRUB_NS,
    view_change::{departed, living_in_order, taker},
};
use self::{copy_outcomes::Learning, execute::Work, outcome::Outcomes, tables::Tables, trans::Transactions};
use crate::{
    OnDisk,
    buffers::{Buffers, step},
    deferred::Deferred,
    flight::Patience,
};

/// Most batches of one LDM instance that may wait for row locks; more are refused with `Overload`.
pub const WAITING_MAX: usize = 16 << 10;
/// A wait is reported for deadlock detection when it has lasted this long, and again after each further period.
const REPORT_WAIT_NS: u64 = 5_000_000;
/// Waits looked at in one tick; each may have to be found in a queue of all others.
const WAITS_PER_TICK: usize = 256;
const _: () = assert!(ends::is_short(WAITS_PER_TICK, WAITING_MAX as u64));
/// Body of the `LdmContinueOrd` with which batches that were granted their locks go on.
const CONTINUE_GRANTED: u8 = 6;
// The last batch of a turn may be of any size.
const _: () =
    assert!(ends::is_short(ends::SLICE_ROWS as usize + apus_types::limits::BATCH_OPS_MAX, execute::OP_NS_MAX));
/// The dump shows the content hash of fragments up to this many rows.
const HASHED_ROWS_MAX: u64 = 100_000;

pub struct LocalDataManager {
    me: BlockRef,
    memory: Arc<MemoryManager>,
    view: View,
    /// Generation of the view that last saw each data node leave, by node id.
    left_at: Vec<u64>,
    /// Generation of the view that last saw anybody leave.
    lost_at: u64,
    tables: Tables,
    /// Of the keys in the fragments' hash indexes; its seed is drawn with the first view, before there is a fragment.
    secret: SecretHash,
    transactions: Transactions,
    locks: Locks,
    outcomes: Outcomes,
    learning: Learning,
    /// Batches that wait for a lock; `None` slots are free.
    waiting: Vec<Option<Box<Work>>>,
    free_waiting: Vec<u32>,
    /// That they hold.
    waiting_bytes: usize,
    /// When the waits are to be looked at, each with its number and slot; of those that are over some are left for a while.
    waits_due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    waits: u64,
    /// Work objects for reuse; boxed because they move between here and the queue of waiting ones.
    #[allow(clippy::vec_box)]
    idle_work: Vec<Box<Work>>,
    /// Lock grants not yet followed up.
    granted: Vec<Grant>,
    deferred: Deferred,
    buffers: Buffers,
    /// Bytes of the memory that the outcomes have.
    outcome_bytes: usize,
    /// The same of the queues of row locks and what waits in them, and whether they were refused more.
    lock_bytes: usize,
    locks_refused: bool,
    /// The same of transactions that are put back from the disk and have not ended where the log is read.
    replay_bytes: usize,
    copy_jobs: Vec<copy_out::CopyJob>,
    index_builds: Vec<tables::IndexBuild>,
    /// Of dropped tables and of partitions that are elsewhere now: their memory is freed in slices.
    given_up: Vec<Fragment>,
    pace: copy_out::Pace,
    epochs: snapshot::Epochs,
    patience: Patience,
    is_seeded: bool,
    /// While this node is being filled: it has put back everything up to this epoch from its own disk.
    base: Option<Epoch>,
    /// Rows of that which have gone, for the log.
    emptied: Vec<RowAt>,
    /// Of this start: how far, what QMGR was told of it and when, and since when rows come as copies.
    progress: Progress,
    told: (Progress, u64),
    filled_since: u64,
    /// Slots of each partition that is being filled that were walked, and all.
    walked: BTreeMap<PartitionId, (u64, u64)>,
    /// `None`: the node is diskless.
    redo: Option<redo::Redo>,
    /// The node has agreed to leave the cluster: clients are refused.
    has_left: bool,
    /// Of the next slice copying has the turn, and not all else.
    copy_turn: bool,
    /// Copying goes on by a delayed `LdmContinueOrd`.
    copy_waits: bool,
    /// A `LdmContinueOrd` is on its way.
    continuing: bool,
    /// The next turn of those that were granted a lock is on its way.
    resuming: bool,
    /// Parts whose end takes more than one slice (slot and part number), in turn; and whether the next slice is on its way.
    ending: VecDeque<(u32, u32)>,
    ending_soon: bool,
    slices: Slices,
    /// What the present view asks for is not done yet.
    succession: Option<view_change::Succession>,
    /// The next slice of that is on its way.
    succeeding: bool,
    /// Most bytes that one transaction may take here.
    transaction_bytes: u64,
    scratch: Scratch,
    counters: Counters,
}

/// Buffers that keep their memory from one signal to the next.
#[derive(Default)]
struct Scratch {
    image: Vec<u8>,
    key: Vec<u8>,
    rows: Vec<u8>,
    walking: copy_out::Walking,
    owners: Vec<u32>,
    /// Always empty: the memory of the list of a scan.
    streams: Vec<scan::Stream<'static>>,
    /// As empty: of the ranges of a filter.
    ranges: Vec<apus_types::filter::KeyRange<'static>>,
    /// A key that a filter looks at, or the states of a group.
    tested: Vec<u8>,
    grouping: Grouping,
    groups: Groups,
}

/// What this instance has done since it started.
#[derive(Default, Debug, Clone, Copy)]
pub struct Counters {
    pub reads: u64,
    pub scans: u64,
    pub scan_rows: u64,
    pub batches: u64,
    pub prepared_rows: u64,
    pub commits: u64,
    pub aborts: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    pub sent_to_primary: u64,
}

impl Counters {
    /// Grows with everything that clients or other nodes' transactions ask of this instance.
    fn asked(&self) -> u64 {
        self.reads + self.scans + self.batches + self.prepared_rows + self.commits
    }
}

impl LocalDataManager {
    /// `transaction_bytes`: what one transaction may take of transaction and data memory here; more is refused.
    pub fn new(
        node: NodeId,
        instance: u8,
        memory: Arc<MemoryManager>,
        transaction_bytes: u64,
        slices: Slices,
    ) -> LocalDataManager {
        LocalDataManager {
            me: BlockRef::new(node, BlockId::Ldm, instance),
            transactions: Transactions::new(memory.clone()),
            ending: VecDeque::new(),
            ending_soon: false,
            slices,
            succession: None,
            succeeding: false,
            transaction_bytes,
            memory,
            view: View::default(),
            left_at: vec![0; usize::from(NodeId::DATA_MAX) + 1],
            lost_at: 0,
            tables: Tables::default(),
            secret: SecretHash::new(0),
            locks: Locks::default(),
            outcomes: Outcomes::default(),
            learning: Learning::default(),
            waiting: Vec::new(),
            free_waiting: Vec::new(),
            waiting_bytes: 0,
            waits_due: BinaryHeap::new(),
            waits: 0,
            idle_work: Vec::new(),
            granted: Vec::new(),
            deferred: Deferred::default(),
            buffers: Buffers::default(),
            outcome_bytes: 0,
            lock_bytes: 0,
            replay_bytes: 0,
            locks_refused: false,
            copy_jobs: Vec::new(),
            index_builds: Vec::new(),
            given_up: Vec::new(),
            pace: copy_out::Pace::default(),
            epochs: snapshot::Epochs::default(),
            patience: Patience::default(),
            is_seeded: false,
            base: None,
            emptied: Vec::new(),
            progress: Progress { instance: instance.into(), ..Progress::default() },
            told: (Progress { instance: instance.into(), ..Progress::default() }, 0),
            filled_since: 0,
            walked: BTreeMap::new(),
            redo: None,
            has_left: false,
            continuing: false,
            resuming: false,
            copy_turn: false,
            copy_waits: false,
            scratch: Scratch::default(),
            counters: Counters::default(),
        }
    }

    /// With a disk for its log.
    #[must_use]
    pub fn with_disk(mut self, disk: &OnDisk) -> LocalDataManager {
        let mut redo = redo::Redo::new(self.me.node, self.me.instance, disk);
        redo.checkpoints.set_every(disk.checkpoint_bytes);
        redo.scrub.set_every(disk.scrub_ns);
        self.redo = Some(redo);
        self
    }

    fn is_up(&self) -> bool {
        !self.has_left && self.view.state(self.me.node) == NodeState::Up
    }
    fn is_primary(&self, partition: PartitionId) -> bool {
        self.view.chain(partition).primary() == Some(self.me.node)
    }
    /// The next living node after this one in the chain.
    fn next_in(&self, chain: Chain) -> Option<NodeId> {
        let own = chain.position(self.me.node)?;
        chain.nodes().skip(own + 1).find(|&n| self.view.is_alive(n))
    }
    /// The living node before this one, towards the primary.
    fn previous_in(&self, chain: Chain) -> Option<NodeId> {
        let own = chain.position(self.me.node)?;
        chain.nodes().take(own).filter(|&n| self.view.is_alive(n)).last()
    }
    fn peer(&self, node: NodeId) -> BlockRef {
        BlockRef::new(node, BlockId::Ldm, self.me.instance)
    }

    /// Signals that name a view this node has not got yet wait for it. `true`: the signal was set aside.
    fn defer(&mut self, generation: u64, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> bool {
        if generation <= self.view.generation {
            return false;
        }
        self.deferred.set_aside(envelope, body, ctx);
        true
    }

    /// Whether signals of a transaction coordinated by `tc` and sent in view `generation` are still valid here (rule 6).
    fn coordinator_valid(&self, tc: BlockRef, generation: u64) -> bool {
        let left = self.left_at.get(usize::from(tc.node.0)).copied().unwrap_or(0);
        generation >= left && self.view.is_alive(tc.node)
    }

    /// Goes on with sliced work after the signals that are queued already.
    fn continue_soon(&mut self, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.continuing, true) {
            ctx.send(self.me, Kind::LdmContinueOrd, |_| {});
        }
    }

    fn refuse_request(&self, to: BlockRef, request: u64, code: ErrorCode, ctx: &mut Context<'_>) {
        ctx.send(to, Kind::RequestRef, |out| RequestRef::new(request, code).encode(out));
    }

    fn on_outcome_req(&mut self, from: BlockRef, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let question = OutcomeSignal::decode(body)?;
        let held = self.transactions.find(question.trans).map(|at| self.transactions.get(at));
        let outcome = if question.generation > self.view.generation
            || held.is_some_and(|t| t.parts.iter().any(|p| !p.committed))
        {
            Outcome::Open
        } else if self.outcomes.committed(question.trans) {
            Outcome::Committed
        } else if held.is_some() {
            Outcome::Open
        } else if self.outcomes.may_have_forgotten(question.trans, ctx.now(), question.age_ms) {
            Outcome::Forgotten
        } else if planted(Bug::OutcomeLies) {
            Outcome::Committed
        } else {
            Outcome::Aborted
        };
        ctx.send(from, Kind::OutcomeConf, |out| OutcomeSignal { outcome, ..question }.encode(out));
        Ok(())
    }

    /// Ends waits that have lasted too long and reports the others for deadlock detection.
    fn check_waits(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let (mut looked_at, mut ops) = (0, 0);
        while looked_at < WAITS_PER_TICK
            && let Some(&Reverse((due, wait, slot))) = self.waits_due.peek()
            && due <= now
        {
            self.waits_due.pop();
            let Some(work) = self.waiting[slot as usize].as_mut().filter(|work| work.wait == wait) else { continue };
            looked_at += 1;
            if now >= work.deadline {
                self.counters.lock_timeouts += 1;
                ctx.probe("ldm: lock wait timed out");
                self.cancel_wait(slot, Some(ErrorCode::LockTimeout), ctx);
            } else if work.waits_for_claim() {
                ops += self.look_again(slot, ctx);
                if ops >= self.slices.rows as usize {
                    break;
                }
            } else {
                work.report_at = now + 10 * REPORT_WAIT_NS;
                self.waits_due.push(Reverse((work.due(), wait, slot)));
                self.report_wait(slot, ctx);
            }
        }
        ctx.spend(looked_at, WAITING_MAX as u64);
        self.resume_granted(ctx);
    }

    fn report_wait(&mut self, waiting: u32, ctx: &mut Context<'_>) {
        let Some(work) = self.waiting[waiting as usize].as_ref() else { return };
        let (trans, batch, at) = (work.trans, work.batch, work.lock_row);
        let owner = work.trans_at;
        let Some(fragment) = self.tables.fragment_mut(at.0, at.1) else { return };
        let word = fragment.lock_word_of(at.2);
        let owners = &mut self.scratch.owners;
        owners.clear();
        self.locks.blockers(word, owner, owners);
        let tc = self.transactions.get(owner).tc;
        let transactions = &self.transactions;
        ctx.send(tc, Kind::LdmWaitRep, |out| {
            LdmWaitRep::begin(out, trans, batch);
            for &holder in owners.iter().take(WAIT_HOLDERS_MAX) {
                let holder = transactions.get(holder);
                LdmWaitRep::push_holder(out, holder.id, holder.tc);
            }
        });
    }

    /// Takes a waiting batch out of its row's queue. With a code, TC is told that the batch failed.
    fn cancel_wait(&mut self, waiting: u32, code: Option<ErrorCode>, ctx: &mut Context<'_>) {
        let Some(work) = self.take_wait(waiting, ctx) else { return };
        if let Some(code) = code {
            let refusal = LdmBatchRef { trans: work.trans, batch: work.batch, code, op: work.next_op };
            let tc = self.transactions.get(work.trans_at).tc;
            ctx.send(tc, Kind::LdmBatchRef, |out| refusal.encode(out));
        }
        self.recycle(work);
    }

    /// The batch waits no longer, and has not got its lock.
    fn take_wait(&mut self, waiting: u32, ctx: &mut Context<'_>) -> Option<Box<Work>> {
        let work = self.waiting[waiting as usize].take()?;
        self.waiting_bytes -= work.bytes();
        self.free_waiting.push(waiting);
        assert!(self.free_waiting.len() <= self.waiting.len(), "wait {waiting} is given back twice");
        if let Some(i) = self.granted.iter().position(|g| g.waiter == waiting) {
            ctx.probe("ldm: wait cancelled after its grant");
            self.granted.remove(i);
            self.give_back_unused(&work);
        } else if let Some(fragment) = self.tables.fragment_mut(work.lock_row.0, work.lock_row.1) {
            let row = work.lock_row.2;
            self.locks.cancel_wait(fragment.lock_word(row), work.trans_at, &mut self.granted);
            fragment.reclaim(row);
        }
        self.transactions.end_wait(work.trans_at, waiting);
        Some(work)
    }

    /// Continues batches whose locks were granted. One signal may free a row that thousands wait for: some operations of theirs in a turn, one batch at least.
    fn resume_granted(&mut self, ctx: &mut Context<'_>) {
        let (mut resumed, mut ops) = (0, 0);
        while let Some(&Grant { owner, waiter, .. }) =
            self.granted.get(resumed).filter(|_| ops < self.slices.rows as usize)
        {
            resumed += 1;
            let work = self.waiting.get_mut(waiter as usize).and_then(Option::take);
            let work =
                work.unwrap_or_else(|| panic!("slot {owner} is granted a lock for wait {waiter}, which is over"));
            assert!(work.trans_at == owner, "lock granted to another transaction than the one that waits");
            self.waiting_bytes -= work.bytes();
            self.free_waiting.push(waiter);
            self.transactions.end_wait(owner, waiter);
            if self.succession.is_some() && self.is_orphan(owner) {
                ctx.probe("ldm: wait of a dead coordinator's transaction granted");
                self.give_back_unused(&work);
                self.recycle(work);
                continue;
            }
            self.note_wanted(owner, work.lock_row);
            ops += self.run(work, true, ctx);
        }
        self.granted.drain(..resumed);
        ctx.spend(ops, execute::OP_NS_MAX);
        if !self.granted.is_empty() && !std::mem::replace(&mut self.resuming, true) {
            ctx.probe("ldm: more are granted a lock than go on in one turn");
            ctx.send(self.me, Kind::LdmContinueOrd, |out| out.push(CONTINUE_GRANTED));
        }
    }

    /// The transaction has been granted a row: if others still wait for that, they wait for it now.
    fn note_wanted(&mut self, owner: u32, at: RowAt) {
        let word = self.tables.get(at.0).and_then(|t| t.fragment(at.1)).map_or(0, |f| f.lock_word_of(at.2));
        if self.locks.waiting(word) > 0 {
            self.transactions.get_mut(owner).wanted.insert(at);
        }
    }

    /// Gives a row's lock back if `lock` says that it is held, and removes the row if nothing is left of it.
    fn release_row(&mut self, at: RowAt, owner: u32, lock: bool) {
        if let Some(fragment) = self.tables.fragment_mut(at.0, at.1) {
            if lock {
                self.locks.release(fragment.lock_word(at.2), owner, &mut self.granted);
            }
            fragment.reclaim(at.2);
        }
    }
}

/// Where a row is: table, partition, slot.
type RowAt = (apus_types::TableId, PartitionId, RowId);

impl Block for LocalDataManager {
    fn block_ref(&self) -> BlockRef {
        self.me
    }

    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from;
        match envelope.kind {
            Kind::ReadReq => self.on_read_req(from, body, ctx)?,
            Kind::ScanReq => self.on_scan_req(envelope, body, ctx)?,
            Kind::LdmBatchReq => {
                let req = LdmBatchReq::decode(body)?;
                if !self.defer(req.generation, envelope, body, ctx) {
                    self.on_batch_req(from, &req, ctx)?;
                }
            }
            Kind::LdmPrepareReq => {
                let req = LdmPrepareReq::decode(body)?;
                if !self.defer(req.generation, envelope, body, ctx) {
                    self.on_prepare_req(&req, ctx)?;
                }
            }
            Kind::LdmPreparedRef => self.on_prepare_refused(&LdmPrepared::decode(body)?, ctx),
            Kind::LdmCommitOrd | Kind::LdmCompleteOrd | Kind::LdmAbortOrd | Kind::LdmAbortConf => {
                let end = LdmEnd::decode(body)?;
                // Of a coordinator that is gone the gates let nothing pass; one that has lost all it had open in a view still lives.
                let is_settled = end.generation < self.view.settles && from.block == BlockId::Tc;
                if !is_settled && !self.defer(end.generation, envelope, body, ctx) {
                    match envelope.kind {
                        Kind::LdmCommitOrd => self.on_commit_ord(&end, ctx),
                        Kind::LdmCompleteOrd => self.on_complete_ord(&end, ctx),
                        Kind::LdmAbortOrd => self.on_abort_ord(&end, ctx),
                        _ => self.on_abort_conf(&end, ctx),
                    }
                }
            }
            Kind::LdmContinueOrd if body == [ends::CONTINUE_ENDS] => self.on_continue_ends(ctx),
            Kind::LdmContinueOrd if body == [view_change::CONTINUE_VIEW] => self.on_continue_view(ctx),
            Kind::LdmContinueOrd if body == [checkpoint::CONTINUE_CHECKPOINT] => self.on_continue_checkpoint(ctx),
            Kind::LdmContinueOrd if body == [restore::CONTINUE_RESTORE] => self.on_continue_restore(ctx),
            Kind::LdmContinueOrd if body == [CONTINUE_GRANTED] => self.resuming = false, // as after every signal
            Kind::LdmContinueOrd => {
                self.copy_waits &= body != [copy_out::CONTINUE_COPY];
                self.on_continue(ctx);
            }
            Kind::TcFloorOrd if from.node == self.me.node => self.outcomes.raise_floor(TcFloor::decode(body)?),
            Kind::OutcomeReq => self.on_outcome_req(from, body, ctx)?,
            Kind::CopyFragReq => self.on_copy_frag_req(from, body, ctx)?,
            Kind::CopyRowsOrd => {
                let order = CopyRowsOrd::decode(body)?;
                if !self.defer(order.generation, envelope, body, ctx) {
                    self.on_copy_rows_ord(from, &order, body, ctx)?;
                }
            }
            Kind::CopyOutcomesOrd => {
                let order = CopyOutcomesOrd::decode(body)?;
                if !self.defer(order.generation, envelope, body, ctx) {
                    self.on_copy_outcomes_ord(&order, body, ctx)?;
                }
            }
            Kind::CopyRowsConf => self.on_copy_rows_conf(body, ctx)?,
            Kind::TableOrd => self.on_table_ord(from, body, ctx)?,
            Kind::ViewOrd => self.on_view_ord(body, ctx)?,
            Kind::SwitchReq => {
                let switch = decode::<Switch>(body)?;
                if !self.defer(switch.generation, envelope, body, ctx) {
                    self.on_switch_req(from, &switch, ctx);
                }
            }
            Kind::SwitchEndOrd => {} // nothing is held here
            Kind::LeaveOrd => self.has_left = true,
            Kind::EndOrd if from.node == self.me.node => self.on_end_ord(decode(body)?, ctx),
            Kind::DrainReq => {
                let order = EpochOrd::decode(body)?;
                if !self.defer(order.generation, envelope, body, ctx) {
                    self.on_drain_req(order, ctx);
                }
            }
            Kind::GcpSaveReq if from.node == self.me.node => self.on_save_req(GcpSave::decode(body)?, ctx),
            Kind::RestoreReq if from.node == self.me.node => self.on_restore_req(decode(body)?, ctx),
            Kind::DiskConf => self.on_disk_conf(&DiskConf::decode(body)?, ctx),
            Kind::DiskRef => self.on_disk_ref(&DiskRef::decode(body)?, ctx),
            Kind::FileConf => self.on_control(&FileDone::decode(body)?, true, ctx),
            Kind::FileRef => self.on_control(&FileDone::decode(body)?, false, ctx),
            _ => return Err(DecodeError),
        }
        self.resume_granted(ctx);
        if self.epochs.drain.is_some() {
            self.try_drain(ctx);
        }
        Ok(())
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.begin_redo(ctx);
        if let Some(redo) = &mut self.redo {
            redo.tick(ctx);
        }
        self.tick_checkpoint(ctx);
        self.tell_progress(ctx);
        self.check_waits(ctx);
        let held = self.outcomes.figures().1;
        self.outcomes.may_grow(step(&self.memory, Region::Outcomes, &mut self.outcome_bytes, held));
        self.locks.trim();
        let held = self.locks.bytes() + self.waiting_bytes;
        self.locks_refused = !step(&self.memory, Region::Transaction, &mut self.lock_bytes, held);
        if self.patience.tick(self.epochs.drain.as_ref().map(EpochOrd::id)) {
            self.name_late_commit(ctx);
        }
    }

    fn settle(&mut self, ctx: &mut Context<'_>) {
        self.buffers.follow(&self.memory, ctx);
        if let Some(redo) = &mut self.redo {
            redo.pump(ctx);
            redo.follow_memory(&self.memory, ctx);
        }
    }

    fn dump(&self, out: &mut String) {
        use std::fmt::Write;
        let _ = writeln!(
            out,
            "LDM {:?}: view {}, {} transactions, {} entries, {} parts ending, {} waiting, {} copy jobs, {:?}, {:?}",
            self.me,
            self.view.generation,
            self.transactions.len(),
            self.transactions.entries_in_use(),
            self.ending.len(),
            self.waiting.iter().flatten().count(),
            self.copy_jobs.len(),
            self.epochs,
            self.counters
        );
        let (chunks, bytes) = self.outcomes.figures();
        let _ = writeln!(out, "  outcomes: {chunks} chunks, {bytes} bytes");
        let _ = self.redo.as_ref().map(|redo| writeln!(out, "  {}", redo.summary()));
        for (_, t) in self.transactions.iter().take(100) {
            let _ = writeln!(out, "  transaction {} of {:?}: {} entries, parts {:?}", t.id, t.tc, t.rows(), t.parts);
        }
        for table in self.tables.iter() {
            for (partition, fragment) in table.fragments() {
                let _ = writeln!(
                    out,
                    "  fragment {}.{} part {}: {} rows, {} bytes, last {:?}, content {:x}",
                    table.schema.database,
                    table.schema.name,
                    partition,
                    fragment.row_count(),
                    fragment.data_bytes(),
                    fragment.trail().points().collect::<Vec<_>>(),
                    if fragment.row_count() <= HASHED_ROWS_MAX { fragment.content_hash() } else { 0 },
                );
            }
        }
    }

    fn verify(&self) -> Result<(), String> {
        self.outcomes.verify()?;
        let stamped = |t: &trans::Trans| t.parts.iter().filter(|p| p.in_flight && !p.committed).count() as u64;
        let stamped: u64 = self.transactions.iter().map(|(_, t)| stamped(t)).sum();
        if stamped != self.transactions.in_flight.total() {
            return Err(format!("{stamped} one-pass batches are under way, {:?}", self.transactions.in_flight));
        }
        let waits: usize = self.transactions.iter().map(|(_, t)| t.waits.len()).sum();
        let held: usize = self.waiting.iter().flatten().map(|work| work.bytes()).sum();
        if held != self.waiting_bytes {
            return Err(format!("what waits holds {held} bytes, {} are counted", self.waiting_bytes));
        }
        if waits != self.waiting.iter().flatten().count() || waits + self.free_waiting.len() != self.waiting.len() {
            return Err(format!(
                "transactions have {waits} waits, {} slots, {} free",
                self.waiting.len(),
                self.free_waiting.len()
            ));
        }
        let parts = || self.transactions.iter().flat_map(|(at, t)| t.parts.iter().map(move |p| (at, p)));
        let queued = parts().filter(|(_, p)| p.queued).count();
        if queued != self.ending.len() {
            return Err(format!("{queued} parts wait for their next slice, {} are listed", self.ending.len()));
        }
        let rows: u64 = parts().map(|(_, p)| u64::from(p.rows)).sum();
        if rows != self.transactions.entries_in_use() as u64 {
            return Err(format!("parts have {rows} entries, {} are in use", self.transactions.entries_in_use()));
        }
        for table in self.tables.iter() {
            for (partition, fragment) in table.fragments() {
                fragment.verify()?;
                let mut next = fragment.next_row(RowId(0));
                while let Some(row) = next {
                    let at = (table.schema.id, partition, row);
                    let holders = self.locks.holders(fragment.lock_word_of(row));
                    if let Some(holder) = holders.into_iter().find(|&h| !self.transactions.has_lock_entry(h, at)) {
                        return Err(format!("row {at:?} is locked by slot {holder}, which knows nothing of it"));
                    }
                    next = fragment.next_row(RowId(row.0 + 1));
                }
            }
        }
        Ok(())
    }
}

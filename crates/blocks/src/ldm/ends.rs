//! How a part ends: commit, complete, abort and rollback to a savepoint, in slices.
//!
//! A commit is one change of state of the part ([`Part::committed`]). From then on readers find the transaction's changes through its
//! record (`Writers`), whatever the number of its rows, and nobody waits for the rest: each row is *stamped* (its version gets the epoch, its lock
//! goes) when its turn comes, some rows in a slice. At the primary that begins with the commit, at a backup with the complete: until
//! then it answers `AtPrimary` for them. An undo walks the entries and pops versions; then, once the abort has been to the end of the chain
//! and back, the locks go in slices as well.
//!
//! **Slices.** The first slice is executed with the signal that causes it, so small transactions never see the queue. What is left is
//! worked off one slice per round of the worker (`LdmContinueOrd`), the parts in turn, some of them in each round.
//!
//! **Who needs a row before its turn** ends it himself ([`LocalDataManager::settle_row`]): at the primary whoever asks for the lock of a row
//! whose transaction is over, at a backup whoever brings the row's next change, which proves that the primary has given the lock back. Such a row
//! counts as incomplete until its entry's turn, which finds that the transaction does not hold the lock any more.
//!
//! **A transaction with a row on two chains** (it went on in a new view) ends all its parts together, when the last one is ready. So a row that
//! it has on both is stamped once, with its newest change, and the primary gives the lock back after all replicas have heard of both ends.
//!
//! docs/decisions/0005-large-transactions.md argues why this is safe under failures.

use apus_kernel::{Context, jam};
use apus_redo::Entry as LogEntry;
use apus_signal::{Kind, ldm::LdmEnd};
use apus_storage::{Fragment, Grant, LockMode, Locks};
use apus_types::{
    Chain, Epoch, ErrorCode,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager, RowAt,
    snapshot::Epochs,
    trans::{Entry, NONE, Part, Transactions, Undo},
};

/// Rows of a slice.
pub const SLICE_ROWS: u32 = 256;
/// Parts that share the slice of a round, so that those of some hundred rows do not wait for the large ones.
const PARTS_PER_ROUND: usize = 4;
/// What a row may cost at worst: all its versions, an entry in each of the most indexes, memory that is not in the cache.
pub(super) const ROW_NS_MAX: u64 = 50_000;
const _: () = assert!(is_short(SLICE_ROWS as usize, ROW_NS_MAX));

/// A slice of so many steps, each of so many nanoseconds at worst, takes at most a quarter of the shortest silence for which a node may be held for failed.
/// Every slice of an LDM is bound to it by an assertion beside its constant: ends of parts (commit, complete, abort, rollback; a taken-over
/// transaction ends the same way), batches and prepares, copies and their storing, scans, index builds, freed versions, looks at waits.
pub(crate) const fn is_short(steps: usize, step_ns: u64) -> bool {
    steps as u64 * step_ns * 4 <= crate::qmgr::SILENCE_MIN_NS
}

/// How large a slice is and how soon the next one follows; the simulator draws tiny and slow ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices {
    pub rows: u32,
    /// How many parts share it in a round, each with a row at least.
    pub parts: usize,
    /// Between two slices; 0: in the next round.
    pub pause_ns: u64,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices { rows: SLICE_ROWS, parts: PARTS_PER_ROUND, pause_ns: 0 }
    }
}

/// The body of the `LdmContinueOrd` that asks for the next slice of an end; other sliced work has an empty one.
pub const CONTINUE_ENDS: u8 = 1;

/// How a transaction that is over ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Committed(Epoch),
    Aborted,
}

impl LocalDataManager {
    /// The part is committed here: every replica further back has decided it, and so does this one now.
    pub(super) fn commit_part(&mut self, at: u32, chain: Chain, epoch: Epoch, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.counters.commits += 1;
        self.outcomes.record(self.transactions.get(at).id, ctx.now());
        self.epochs.check_commit(epoch);
        let whole = self.previous_in(chain).is_none();
        if planted(Bug::BackupDropsCommit) && !whole {
            self.undo_newest(at, chain);
        }
        let trans = self.transactions.get_mut(at);
        if !planted(Bug::MomentMissesCommits) {
            self.epochs.note_commit(trans.changes, epoch);
        }
        let id = trans.id;
        let decided = trans.decided();
        assert!(decided.is_none_or(|other| other == epoch), "{id} commits in epoch {epoch} and in {decided:?}");
        let Some(part) = self.transactions.part_mut(at, chain) else { return };
        assert!(!part.aborted && part.undo.is_none(), "{id} commits on {chain:?}, where it is undone");
        assert!(!part.committed, "{id} commits twice on {chain:?}");
        assert!(part.refused.is_none(), "{id} commits on {chain:?}, which has refused it");
        assert!(
            !part.whole && !part.complete && !part.queued,
            "{id} commits on {chain:?} and has ended there: {part:?}"
        );
        assert!(epoch > Epoch(0), "{id} commits in no epoch");
        (part.committed, part.epoch, part.whole) = (true, epoch, whole);
        if let Some(redo) = self.redo.as_mut().filter(|_| part.logged) {
            redo.append(&LogEntry::Commit { trans: id, chain, epoch });
        }
        self.transactions.note_committed(at);
        if whole {
            self.end_part(at, chain, ctx);
        }
    }

    /// The commit has been to the end of the chain: this node is its primary now, or TC says so.
    pub(super) fn note_whole(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        let Some(part) = self.transactions.part_mut(at, chain) else { return };
        assert!(part.committed, "a commit is everywhere on {chain:?} but here");
        if !std::mem::replace(&mut part.whole, true) {
            self.end_part(at, chain, ctx);
        }
    }

    pub(super) fn on_complete_ord(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        jam!(ctx);
        let Some(at) = self.transactions.find(end.trans) else { return };
        let Some(part) = self.transactions.part_mut(at, end.chain) else { return };
        assert!(part.committed, "complete of {} on {:?} before its commit", end.trans, end.chain);
        assert!(part.epoch == end.epoch, "{} is complete in {}, committed in {}", end.trans, end.epoch, part.epoch);
        self.complete_part(at, end.chain, ctx);
    }

    /// Nobody will ask for the part any more: it is forgotten as soon as its rows are stamped.
    pub(super) fn complete_part(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        let Some(part) = self.transactions.part_mut(at, chain) else { return };
        assert!(part.committed, "a part on {chain:?} is complete and not committed");
        part.complete = true;
        if !std::mem::replace(&mut part.whole, true) {
            self.end_part(at, chain, ctx);
        } else if part.head == NONE && !part.queued {
            self.ended(at, chain, ctx);
        }
    }

    /// The abort has been to the end of the chain and back to this node: its locks go, then the answer goes on.
    pub(super) fn abort_part(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        jam!(ctx);
        let found = self.transactions.find(end.trans).filter(|at| !self.is_of_another(*at, end.tc));
        let Some(at) = found else { return self.pass_abort_back(end, ctx) };
        let Some(part) = self.transactions.part_mut(at, end.chain) else { return self.pass_abort_back(end, ctx) };
        assert!(!part.committed, "abort of {} on {:?} after its commit", end.trans, end.chain);
        if part.undo.is_some() {
            ctx.probe("ldm: confirmation of an abort while a later one is under way");
            return; // the later one will be confirmed
        }
        (part.aborted, part.answer) = (true, Some(*end));
        self.end_part(at, end.chain, ctx);
    }

    /// The part is ready to give up its rows; with rows on two chains all parts wait for the last.
    fn end_part(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        let trans = self.transactions.get(at);
        if !trans.shares {
            return self.work_off(at, chain, ctx);
        }
        if trans.parts.iter().all(Part::is_ready) {
            ctx.probe("ldm: rows on two chains end with the later one");
            let chains: Vec<Chain> = trans.parts.iter().map(|p| p.chain).collect();
            for chain in chains {
                self.work_off(at, chain, ctx);
            }
        } else if let Some(answer) = self.transactions.part_mut(at, chain).and_then(|p| p.answer.take()) {
            self.pass_abort_back(&answer, ctx);
        }
    }

    /// One slice at once, the rest later.
    pub(super) fn work_off(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        let Some(part) = self.transactions.part_mut(at, chain) else { return };
        let number = part.number;
        if part.queued || !self.slice(at, number, self.slices.rows, ctx) {
            return;
        }
        if let Some(part) = self.transactions.part_mut(at, chain) {
            part.queued = true;
        }
        self.ending.push_back((at, number));
        self.continue_ends(ctx);
    }

    fn continue_ends(&mut self, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.ending_soon, true) {
            // Delayed even if by nothing: so it comes in the next round, after the sockets have been looked at.
            ctx.send_delayed(self.slices.pause_ns, Kind::LdmContinueOrd, |out| out.push(CONTINUE_ENDS));
        }
    }

    pub(super) fn on_continue_ends(&mut self, ctx: &mut Context<'_>) {
        self.ending_soon = false;
        ctx.probe("ldm: a part goes on ending");
        let parts = self.slices.parts.min(self.ending.len());
        let rows = (self.slices.rows / parts.max(1) as u32).max(1);
        for _ in 0..parts {
            let Some((at, number)) = self.ending.pop_front() else { break };
            let part = self.transactions.get_mut(at).numbered(number);
            let part = part.unwrap_or_else(|| panic!("part {number} of slot {at} is gone amid its end"));
            assert!(part.queued, "part {number} of slot {at} ends without being listed");
            part.queued = false;
            if self.slice(at, number, rows, ctx) {
                let part = self.transactions.get_mut(at).numbered(number);
                part.unwrap_or_else(|| panic!("part {number} of slot {at} is gone after a slice")).queued = true;
                self.ending.push_back((at, number));
            }
        }
        if !self.ending.is_empty() {
            self.continue_ends(ctx);
        }
    }

    /// Works on a part for one slice; `true`: there is more to do.
    fn slice(&mut self, at: u32, number: u32, rows: u32, ctx: &mut Context<'_>) -> bool {
        let Some(part) = self.transactions.get_mut(at).numbered(number) else { return false };
        let chain = part.chain;
        let rows = if planted(Bug::SliceWithoutEnd) { u32::MAX } else { rows };
        let mut budget = rows;
        if let Some(undo) = part.undo {
            let end = self.undo_slice(at, chain, undo, &mut budget);
            ctx.spend((rows - budget) as usize, ROW_NS_MAX);
            let Some(end) = end else { return true };
            self.undone(&end, ctx);
            return false; // what follows comes with the answer, which may have come already
        }
        let how = match part.committed {
            true => Ended::Committed(part.epoch),
            false => Ended::Aborted,
        };
        if part.rows > rows {
            self.end_wanted(at, &mut budget);
        }
        let LocalDataManager { transactions, tables, locks, epochs, granted, .. } = self;
        budget -= transactions.pop_entries(at, number, budget, |entry| {
            if entry.lock
                && let Some(fragment) = tables.fragment_mut(entry.table, entry.partition)
            {
                end_row(fragment, locks, epochs, granted, entry, at, how);
            }
        });
        ctx.spend((rows - budget) as usize, ROW_NS_MAX);
        let more = self.transactions.part_mut(at, chain).is_some_and(|part| part.head != NONE);
        if !more {
            self.ended(at, chain, ctx);
        }
        more
    }

    /// All rows of the part are done.
    fn ended(&mut self, at: u32, chain: Chain, ctx: &mut Context<'_>) {
        let Some(part) = self.transactions.part_mut(at, chain) else { return };
        assert!(part.committed != part.aborted, "a part on {chain:?} has ended both ways or none: {part:?}");
        if part.committed && !part.complete {
            return;
        }
        assert!(part.undo.is_none() && !part.queued, "a part on {chain:?} has ended amid its slices: {part:?}");
        let answer = part.answer.take();
        self.transactions.drop_part(at, chain);
        self.remove_if_empty(at);
        if let Some(answer) = answer {
            self.pass_abort_back(&answer, ctx);
        }
    }

    /// Undoes the changes from a savepoint on for one slice; the locks stay, as in InnoDB. The order that goes on when nothing is left to do.
    fn undo_slice(&mut self, at: u32, chain: Chain, mut undo: Undo, budget: &mut u32) -> Option<LdmEnd> {
        let savepoint = undo.end.savepoint;
        let mut forget = planted(Bug::SavepointForgetsRow) && savepoint != 0;
        while undo.next != NONE && *budget > 0 {
            let entry = self.transactions.entry_mut(undo.next);
            if entry.reach < savepoint {
                undo.next = NONE;
                break;
            }
            undo.next = entry.next;
            *budget -= 1;
            if entry.savepoint >= savepoint && entry.write && !std::mem::take(&mut forget) {
                entry.write = false;
                let (table, partition, row) = entry.at();
                if let Some(fragment) = self.tables.fragment_mut(table, partition) {
                    let writer = fragment.writer(row).map(Transactions::slot_of);
                    assert!(
                        writer == Some(at),
                        "row {:?} is undone for slot {at}, its change is of {writer:?}",
                        (table, row)
                    );
                    fragment.pop_pending(row);
                }
            }
        }
        let part = self.transactions.part_mut(at, chain)?;
        part.undo = (undo.next != NONE).then_some(undo);
        part.undo.is_none().then_some(undo.end)
    }

    /// Only for [`Bug::BackupDropsCommit`].
    fn undo_newest(&mut self, at: u32, chain: Chain) {
        let head = self.transactions.part_mut(at, chain).map_or(NONE, |p| p.head);
        let rows: Vec<RowAt> = self.transactions.entries_from(head).take(1).map(Entry::at).collect();
        for (table, partition, row) in rows {
            if let Some(fragment) = self.tables.fragment_mut(table, partition) {
                while fragment.has_pending(row) {
                    fragment.pop_pending(row);
                }
            }
        }
    }

    /// Of a transaction whose end takes several slices, the rows that others wait for end first.
    fn end_wanted(&mut self, at: u32, budget: &mut u32) {
        if !self.transactions.get(at).is_over() {
            return;
        }
        while *budget > 0
            && let Some(row) = self.transactions.get_mut(at).wanted.pop_first()
        {
            *budget -= 1;
            if let Some(fragment) = self.tables.fragment_mut(row.0, row.1) {
                let mut ends = RowEnds {
                    locks: &mut self.locks,
                    transactions: &self.transactions,
                    epochs: &mut self.epochs,
                    granted: &mut self.granted,
                };
                ends.settle(fragment, row, NONE, false);
            }
        }
    }

    /// Only for [`Bug::SlicesLostInView`].
    pub(super) fn lose_slices(&mut self) {
        if planted(Bug::SlicesLostInView) {
            self.ending.clear();
        }
    }

    pub(super) fn remove_if_empty(&mut self, at: u32) {
        let trans = self.transactions.get(at);
        if trans.parts.is_empty() && trans.waits.is_empty() {
            self.transactions.remove(at);
        }
    }
}

/// What it takes to end a row before its turn.
pub(super) struct RowEnds<'a> {
    pub locks: &'a mut Locks,
    pub transactions: &'a Transactions,
    pub epochs: &'a mut Epochs,
    pub granted: &'a mut Vec<Grant>,
}

impl RowEnds<'_> {
    /// Makes a row in the slot that its primary has named. Another row of this slot or of this key is one that the primary has reclaimed: it
    /// is ended and given up. Snapshots from before its delete are shown by other replicas from now on, if anybody holds one. At a node that has put back rows
    /// from its disk and is being filled it may be one of these, which is `given_up`.
    ///
    /// # Errors
    /// No memory: the row is not made.
    pub fn insert_at(
        &mut self,
        fragment: &mut Fragment,
        row: RowAt,
        (key, hash): (&[u8], u64),
        mut given_up: Option<&mut Vec<RowAt>>,
        ctx: &mut Context<'_>,
    ) -> Result<(), ErrorCode> {
        let in_slot = fragment.is_used(row.2).then_some(row.2);
        for dead in in_slot.into_iter().chain(fragment.find(key, hash)) {
            ctx.probe("ldm: a deleted row gives way to the next one of its slot or key");
            self.settle(fragment, (row.0, row.1, dead), NONE, true);
            if let Some(gone) = &mut given_up
                && fragment.committed(dead, self.transactions).is_some()
                && fragment.give_up_row(dead)
            {
                ctx.probe("ldm: a row that was put back gives way to a later one");
                gone.push((row.0, row.1, dead));
                continue;
            }
            self.epochs.begin_after(fragment.evict(dead));
        }
        fragment.insert_slot_at(row.2, key, hash)
    }

    /// Gives up a row that was put back from disk and is not at its primary. A transaction that is over there may still have its lock here, to be given
    /// back in a later slice; one that is not keeps it, and what it has changed: it has undone a change of this row, or makes one. `false`: nothing was there.
    pub fn give_up(&mut self, fragment: &mut Fragment, row: RowAt, ctx: &mut Context<'_>) -> bool {
        self.settle(fragment, row, NONE, true);
        if planted(Bug::DeletedRowStays) {
            return false;
        }
        if fragment.give_up_row(row.2) {
            return true;
        }
        let was_there = fragment.give_up_committed(row.2);
        if was_there {
            ctx.probe("ldm: a row that was put back goes from under its transaction");
        }
        was_there
    }

    /// Ends the row for those transactions other than `owner` that hold it and are over. At a backup, `by_successor`: the row's next
    /// change has come, so the primary has ended it, and how is known by any part of the transaction.
    #[cold]
    pub fn settle(&mut self, fragment: &mut Fragment, row: RowAt, owner: u32, by_successor: bool) {
        let mut place = 0;
        while let Some(holder) = self.locks.holder(fragment.lock_word_of(row.2), place) {
            let trans = self.transactions.get(holder);
            let is_over = trans.is_over() || (by_successor && trans.parts.iter().any(|p| p.committed || p.aborted));
            if holder == owner || !is_over {
                place += 1;
                continue;
            }
            let how = trans.decided().map_or(Ended::Aborted, Ended::Committed);
            let is_exclusive = self.locks.held_mode(fragment.lock_word_of(row.2), holder) == Some(LockMode::Exclusive);
            if is_exclusive {
                stamp(fragment, self.epochs, row, holder, how);
            }
            self.locks.release(fragment.lock_word(row.2), holder, self.granted);
            fragment.add_incomplete(row.2);
        }
    }
}

/// The turn of a row's entry: unless somebody who needed the row has ended it already, it is stamped or left, and its lock goes.
fn end_row(
    fragment: &mut Fragment,
    locks: &mut Locks,
    epochs: &mut Epochs,
    granted: &mut Vec<Grant>,
    entry: &Entry,
    at: u32,
    how: Ended,
) {
    if let Ended::Committed(epoch) = how {
        let epochs = (epoch, epochs.horizon_of(epoch));
        if fragment.end_locked(entry.row, at, epochs) {
            return;
        }
    }
    if locks.held_mode(fragment.lock_word_of(entry.row), at).is_some() {
        stamp(fragment, epochs, entry.at(), at, how);
        locks.release(fragment.lock_word(entry.row), at, granted);
    } else {
        fragment.sub_incomplete(entry.row);
    }
    fragment.reclaim(entry.row);
}

/// Gives a row's newest change its epoch.
///
/// # Panics
/// If the row of an aborted transaction is not undone, or the change is another's than the lock's holder's.
fn stamp(fragment: &mut Fragment, epochs: &mut Epochs, row: RowAt, holder: u32, how: Ended) {
    let Some(writer) = fragment.writer(row.2).map(Transactions::slot_of) else { return };
    assert!(writer == holder, "row {row:?} is stamped for slot {holder}, its change is of slot {writer}");
    match how {
        Ended::Committed(epoch) => {
            if fragment.commit(row.2, epoch, epochs.horizon_of(epoch)) {
                epochs.note_kept(row.0, row.1);
            }
        }
        Ended::Aborted => panic!("row {row:?} of an aborted transaction is given back with its change"),
    }
}

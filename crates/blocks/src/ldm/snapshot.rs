//! Epochs at an LDM: its part of draining, which snapshots it can serve, and the freeing of versions that none needs.
//!
//! A committed change leaves the version it replaced in place as long as its epoch is above the *horizon*, the oldest epoch that
//! anybody may still read at. The horizon comes with each round of epochs. When it moves, the fragments with old versions are worked
//! off in slices of [`COLLECT_ROWS`] rows between other signals.
//!
//! While nobody reads at an epoch nothing is kept at all; `dih::rounds` says how that is turned on before the next snapshot.
//!
//! A snapshot is readable here when it is not below the horizon, nor below the epoch at which this node became a full member (what node
//! recovery copied is only the newest version of each row), nor below the one at which the table was made, nor
//! from a time at which nothing was kept.

use std::collections::VecDeque;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::{Drained, EpochOrd, Moment},
};
use apus_types::{
    Epoch, ErrorCode, PartitionId, TableId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    ends::{ROW_NS_MAX, is_short},
    redo::Redo,
    trans::Transactions,
};

/// Rows whose old versions are freed in one slice.
pub const COLLECT_ROWS: usize = 256;
const _: () = assert!(is_short(COLLECT_ROWS, ROW_NS_MAX));

/// Tables are told apart by so many bits of their ids: [`changes_of`].
const TABLE_BITS: usize = 64;

/// By [`changes_of`].
#[derive(Debug)]
struct Changed([Epoch; TABLE_BITS]);

impl Default for Changed {
    fn default() -> Changed {
        Changed([Epoch(0); TABLE_BITS])
    }
}

/// The bit of a table in the set of tables that a transaction changes; few tables share one.
#[inline]
pub(super) fn changes_of(table: TableId) -> u64 {
    1 << (table.0 as usize % TABLE_BITS)
}

#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// DIH waits for us to have drained the epochs below this round's.
    pub drain: Option<EpochOrd>,
    /// Nothing will be committed any more in this epoch or below.
    complete: Epoch,
    /// Versions that only snapshots below this could need are freed.
    pub horizon: Epoch,
    /// Where this node's history begins.
    base: Epoch,
    /// Nobody reads at an epoch: what is replaced goes at once.
    keeps_nothing: bool,
    /// Otherwise: versions that were replaced in later epochs than this are there.
    kept_since: Epoch,
    /// The newest commit that changed a table, by the table's id.
    changed: Changed,
    /// Every member has a disk, as far as the rounds say: what is to be on disk gets there.
    pub saves: bool,
    /// Fragments that hold old versions.
    kept: VecDeque<(TableId, PartitionId)>,
}

impl Epochs {
    /// This node became a full member.
    pub fn begin(&mut self, now: Epoch) {
        self.base = now;
    }
    /// What was before this epoch is not all here any more.
    pub fn begin_after(&mut self, epoch: Epoch) {
        self.base = self.base.max(epoch);
    }
    /// The oldest epoch that anybody may read at, as far as it concerns a change in `epoch`.
    #[inline]
    pub fn horizon_of(&self, epoch: Epoch) -> Epoch {
        if self.keeps_nothing { epoch } else { self.horizon }
    }
    /// A round says whether versions are to be kept; `now` is not below the epoch of anything that was committed here.
    fn keep(&mut self, on: bool, now: Epoch) {
        if std::mem::replace(&mut self.keeps_nothing, !on) && on {
            self.kept_since = now;
        }
    }
    /// A commit of a transaction that has changed `tables` ([`changes_of`]) is decided here: whoever reads sees it from now on.
    #[inline]
    pub fn note_commit(&mut self, mut tables: u64, epoch: Epoch) {
        while tables != 0 {
            let changed = &mut self.changed.0[tables.trailing_zeros() as usize];
            *changed = epoch.max(*changed);
            tables &= tables - 1;
        }
    }
    /// What a reader of a table's newest rows sees here now: no moment at all while a transaction that has changed it is committed on one of its chains only.
    pub fn moment(&self, table: TableId, created: Epoch, transactions: &Transactions) -> Moment {
        if transactions.shows_part_of(changes_of(table)) {
            return Moment::NONE;
        }
        let changed = self.changed.0[table.0 as usize % TABLE_BITS];
        Moment { from: changed.max(created).max(self.base), to: self.complete, answers: 1 }
    }
    #[inline]
    pub fn check_commit(&self, epoch: Epoch) {
        assert!(epoch > self.complete, "commit in epoch {epoch}, and {} is complete", self.complete);
    }
    /// A fragment has its first old version.
    pub fn note_kept(&mut self, table: TableId, partition: PartitionId) {
        self.kept.push_back((table, partition));
    }
    /// No snapshot is held that this node is too young for.
    pub fn shows_all(&self) -> bool {
        self.horizon >= self.base
    }
    /// Whether rows can be shown as of `snapshot`; `now` is the newest epoch there is.
    ///
    /// # Errors
    /// [`ErrorCode::SnapshotTooOld`] for good, [`ErrorCode::SnapshotElsewhere`] where another replica may have it.
    pub fn check_read(&self, snapshot: Epoch, now: Epoch, table: Epoch) -> Result<(), ErrorCode> {
        let has_versions = !self.keeps_nothing && snapshot >= self.kept_since;
        if snapshot < self.horizon || !(has_versions || planted(Bug::SnapshotWithoutVersions)) {
            return Err(ErrorCode::SnapshotTooOld);
        }
        // Each complete epoch is below that of every worker that took part in its round.
        if snapshot < self.base || snapshot >= now {
            return Err(ErrorCode::SnapshotElsewhere);
        }
        if snapshot < table { Err(ErrorCode::SnapshotTooOld) } else { Ok(()) }
    }
}

impl LocalDataManager {
    pub(super) fn on_drain_req(&mut self, order: EpochOrd, ctx: &mut Context<'_>) {
        jam!(ctx);
        ctx.raise_epoch(order.epoch);
        assert!(order.complete < order.epoch, "epoch {} is complete and current", order.epoch);
        assert!(
            order.horizon <= order.complete,
            "the horizon {} is above what is complete, {}",
            order.horizon,
            order.complete
        );
        self.epochs.drain = Some(order);
        // Of a new view's president the first round does not know yet.
        if order.saves || order.round > 2 {
            self.epochs.saves = order.saves;
        }
        if let Some(redo) = &mut self.redo {
            redo.note_restorable(order.restorable, self.epochs.saves);
        }
        self.epochs.keep(order.keep, ctx.epoch());
        self.epochs.complete = self.epochs.complete.max(order.complete);
        if order.horizon > self.epochs.horizon {
            self.epochs.horizon = order.horizon;
            if self.collect_versions(ctx) {
                self.continue_soon(ctx);
            }
        }
    }

    /// Reports the round's epoch as drained once no one-pass batch below it is under way: further ones get this worker's epoch, which is
    /// not below it.
    pub(super) fn try_drain(&mut self, ctx: &mut Context<'_>) {
        let Some(order) = self.epochs.drain else { return };
        if order.generation < self.view.generation {
            self.epochs.drain = None;
        } else if self.transactions.in_flight.is_drained(order.epoch) {
            self.epochs.drain = None;
            let short_of_memory = !self.epochs.kept.is_empty() && self.memory.is_short();
            let (generation, round) = (order.generation, order.round);
            let dirty = self.redo.as_ref().is_some_and(Redo::is_dirty);
            let conf = Drained { generation, round, short_of_memory, dirty, ..Drained::default() };
            ctx.send(BlockRef::new(self.me.node, BlockId::Dih, 0), Kind::DrainConf, |out| conf.encode(out));
        }
    }

    /// An epoch does not end: says which one-pass batch has not come back along its chain.
    #[cold]
    pub(super) fn name_late_commit(&self, ctx: &mut Context<'_>) {
        let oldest = self.transactions.in_flight.oldest();
        let late = self.transactions.iter().find_map(|(_, t)| {
            let part = t.parts.iter().find(|p| p.in_flight && Some(p.epoch) == oldest)?;
            Some((t.id, part.chain))
        });
        if let Some((trans, chain)) = late {
            let at = self.next_in(chain).unwrap_or(self.me.node);
            let what = format_args!("transaction {trans}, committed by {:?},", self.me);
            self.patience.report(self.me, what, at, ctx);
        }
    }

    /// Frees old versions of some rows; `true` when more can be freed at once.
    pub(super) fn collect_versions(&mut self, ctx: &mut Context<'_>) -> bool {
        let mut budget = COLLECT_ROWS;
        let horizon = self.epochs.horizon;
        for _ in 0..self.epochs.kept.len() {
            if budget == 0 {
                break;
            }
            let Some(at) = self.epochs.kept.pop_front() else { break };
            let Some(fragment) = self.tables.fragment_mut(at.0, at.1) else { continue };
            budget -= fragment.collect(horizon, budget);
            if fragment.keeps_versions() {
                self.epochs.kept.push_back(at);
            }
        }
        ctx.spend(COLLECT_ROWS - budget, ROW_NS_MAX);
        budget == 0
    }
}

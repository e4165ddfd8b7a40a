//! Reading the log back: what an LDM applies of it, and what not.
//!
//! Entries come in the order in which they were written. The changes of a transaction are kept until its commit, and applied if the commit's epoch is
//! restored; an abort drops them, and so does a restart mark, behind which no transaction of before goes on. A row is put into the slot that its
//! change names, in the place of whatever is there: along the versions of a row epochs never fall, so what is restored later is newer.
//!
//! **One transaction, several chains.** Its parts commit one after another with one epoch, and of an epoch that is restored all of them. So the first commit
//! applies all its changes, in the order in which they were prepared, and those that follow find nothing.

use std::collections::{BTreeMap, VecDeque};

use apus_redo::Entry;
use apus_signal::{Reader, copy::CopiedRow, ldm::PreparedRow};
use apus_types::{
    Chain, Epoch, ErrorCode, PartitionId, TableId, TransId,
    planted::{Bug, planted},
};

use super::{LocalDataManager, RowAt};
use apus_storage::RowId;

/// Changes of a transaction that has not ended yet, as far as the log was read.
#[derive(Default)]
pub(super) struct Unended {
    batches: Vec<Batch>,
}

struct Batch {
    chain: Chain,
    savepoint: u32,
    count: u16,
    rows: Vec<u8>,
}

/// What is known while a log is applied.
pub(super) struct Replay {
    /// The last epoch that is restored.
    pub restored: Epoch,
    /// Epochs of a suffix that an earlier restart gave up: from (inclusive) and to (exclusive).
    pub void: Vec<(Epoch, Epoch)>,
    unended: BTreeMap<TransId, Unended>,
    /// Memory of batches that have ended.
    idle: Vec<Vec<u8>>,
    pub rows: u64,
    /// Commits that were applied, oldest first: their clients may still ask for them.
    pub commits: VecDeque<TransId>,
}

/// Most commits that a restart remembers of a log; what is older is "lost or never committed" to whoever asks.
const COMMITS_MAX: usize = 100_000;
/// Buffers of batches that are kept for the next ones.
const IDLE_MAX: usize = 1024;

impl Replay {
    pub fn new(restored: Epoch, void: Vec<(Epoch, Epoch)>) -> Replay {
        Replay { restored, void, unended: BTreeMap::new(), idle: Vec::new(), rows: 0, commits: VecDeque::new() }
    }
    fn is_restored(&self, epoch: Epoch) -> bool {
        let is_void = |(from, to): &(Epoch, Epoch)| *from <= epoch && epoch < *to;
        epoch <= self.restored && (planted(Bug::VoidReadAgain) || !self.void.iter().any(is_void))
    }
    fn drop_batches(&mut self, trans: TransId, drops: impl Fn(&Batch) -> bool) {
        let Some(unended) = self.unended.get_mut(&trans) else { return };
        for batch in unended.batches.extract_if(.., |batch| drops(batch)) {
            if self.idle.len() < IDLE_MAX {
                self.idle.push(batch.rows);
            }
        }
        if unended.batches.is_empty() {
            self.unended.remove(&trans);
        }
    }
}

impl LocalDataManager {
    /// Applies one entry.
    ///
    /// # Errors
    /// For people: it does not fit to what is here.
    pub(super) fn replay(&mut self, replay: &mut Replay, entry: &Entry<'_>) -> Result<(), String> {
        match *entry {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                let mut buffer = replay.idle.pop().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(rows);
                let batch = Batch { chain, savepoint, count, rows: buffer };
                replay.unended.entry(trans).or_default().batches.push(batch);
            }
            Entry::Abort { trans, chain, savepoint } => {
                replay.drop_batches(trans, |batch| batch.chain == chain && batch.savepoint >= savepoint);
            }
            Entry::Commit { trans, epoch, .. } => {
                let batches = replay.unended.remove(&trans).unwrap_or_default().batches;
                let is_restored = replay.is_restored(epoch);
                for batch in batches {
                    if is_restored {
                        self.replay_batch(replay, &batch, epoch)?;
                    }
                    if replay.idle.len() < IDLE_MAX {
                        replay.idle.push(batch.rows);
                    }
                }
                if is_restored {
                    if replay.commits.len() >= COMMITS_MAX {
                        replay.commits.pop_front();
                    }
                    replay.commits.push_back(trans);
                }
            }
            Entry::Copied { partition, table, count, rows } => {
                let mut reader = Reader::new(rows);
                for _ in 0..count {
                    let row = CopiedRow::decode(&mut reader).map_err(|_| "a copied row does not decode".to_owned())?;
                    let at = (table, partition, RowId(row.row));
                    self.replay_row(at, row.key, Some(row.image), row.epoch)?;
                    replay.rows += 1;
                }
            }
            Entry::Restart { .. } => replay.unended.clear(),
            Entry::Saved { .. } => {}
        }
        Ok(())
    }

    fn replay_batch(&mut self, replay: &mut Replay, batch: &Batch, epoch: Epoch) -> Result<(), String> {
        let mut reader = Reader::new(&batch.rows);
        for _ in 0..batch.count {
            let row = PreparedRow::decode(&mut reader).map_err(|_| "a change does not decode".to_owned())?;
            self.replay_row((row.table, row.partition, RowId(row.row)), row.key, row.image, epoch)?;
            replay.rows += 1;
        }
        Ok(())
    }

    /// A row as it was committed in `epoch`; `None`: it was deleted.
    fn replay_row(&mut self, at: RowAt, key: &[u8], image: Option<&[u8]>, epoch: Epoch) -> Result<(), String> {
        let named = |code: ErrorCode| format!("row {} of table {} and partition {}: {code}", at.2.0, at.0, at.1);
        let (table, partition, row): (TableId, PartitionId, RowId) = at;
        let memory = self.memory.clone();
        let Some(table) = self.tables.get_mut(table) else { return Ok(()) }; // dropped since
        if let Some(image) = image {
            table.schema.layout().check(image).map_err(named)?;
        }
        let fragment = match table.fragment(partition) {
            Some(_) => table.fragment_mut(partition).ok_or_else(|| named(ErrorCode::Internal))?,
            None => table.make_fragment(partition, &memory).map_err(named)?,
        };
        if !fragment.holds(row, key) {
            if image.is_none() {
                return Ok(()); // deleted, and not there
            }
            let hash = self.secret.of(key);
            let in_slot = fragment.is_used(row).then_some(row);
            if in_slot.is_some() || fragment.find(key, hash).is_some() {
                return Err(format!("{}: another row is in the place", named(ErrorCode::Internal)));
            }
            fragment.insert_slot_at(row, key, hash).map_err(named)?;
        }
        fragment.push_pending(row, image, 0).map_err(named)?;
        fragment.commit(row, epoch, epoch);
        if image.is_none() {
            fragment.reclaim(row);
        }
        Ok(())
    }
}

//! Reading back what is on the disk: what an LDM takes of its checkpoints and its log, and what not.
//!
//! ```text
//! checkpoint files, the newest first --each page once--> log, from where it begins --> ordered indexes --> Restored
//! ```
//!
//! **Pages.** The newest file that has a page says all of it: which slots have rows, and that the others are empty. A file is read as a whole and compared with what the
//! control file says of it, and its rows are put into slots as they come.
//!
//! **Log.** Entries come in the order in which they were written. The changes of a transaction are kept until its commit, and applied if the commit's epoch is
//! restored; an abort drops them, and so does a restart mark, behind which no transaction of before goes on and the suffix that it gave up cannot be. A slot gets the state that a change names,
//! in the place of whatever is there, unless a checkpoint has brought a later one: along the versions of a slot epochs never fall, so what is restored later is newer. A key may be
//! in two slots on the way, so there are no ordered indexes before the end.
//!
//! **One transaction, several chains.** Its parts commit one after another with one epoch, and of an epoch that is restored all of them. So the first commit
//! applies all its changes, in the order in which they were prepared, and those that follow find nothing. A large one is applied in slices of a round each, for a worker that makes no rounds for seconds is ended.
//! The changes of transactions that have not ended are in memory beside the rows: as much as the log has of them.

use std::collections::{BTreeMap, VecDeque};

use apus_kernel::{Context, DataFile, DiskOp, jam};
use apus_redo::{Checkpoint, End, Entry, Reader as LogReader, Step};
use apus_signal::{
    BlockId, BlockRef, Kind, Reader,
    copy::CopiedRow,
    ldm::PreparedRow,
    qmgr::encode,
    restart::{Progress, Restore, StartPhase},
};
use apus_storage::{PAGE_ROWS, Region, RowId};
use apus_types::{
    Chain, Epoch, ErrorCode, IndexNo, PartitionId, TableId, TransId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager, RowAt,
    checkpoint::COMMITS_MAX,
    ends::{ROW_NS_MAX, is_short},
    redo::{Asked, State},
};
use crate::buffers::step;

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
    /// As far as they are applied.
    done: usize,
}

/// What is known while files are read.
pub(super) struct Replay {
    /// The last epoch that is restored.
    pub restored: Epoch,
    /// Epochs of a suffix that an earlier restart gave up: from (inclusive) and to (exclusive).
    pub void: Vec<(Epoch, Epoch)>,
    /// `None`: the log is read.
    load: Option<Load>,
    unended: BTreeMap<TransId, Unended>,
    /// What was committed last and is restored, as far as it is not applied, and its epoch.
    applies: VecDeque<Batch>,
    epoch: Epoch,
    /// Memory of batches that have ended.
    idle: Vec<Vec<u8>>,
    /// Bytes of all batches, those that are idle included.
    held: usize,
    /// Rows that came from checkpoints, and changes from the log.
    loaded: u64,
    pub rows: u64,
    began_at: u64,
    /// Commits that were applied, oldest first: their clients may still ask for them.
    pub commits: VecDeque<TransId>,
    /// Ordered indexes that are to be made, and how far the last of these is.
    indexes: Vec<(TableId, PartitionId, IndexNo)>,
    row: RowId,
}

/// Checkpoints are read.
pub(super) struct Load {
    /// What is to be read after this, the newest last.
    pub rest: Vec<Checkpoint>,
    pub current: Checkpoint,
    pub is_newest: bool,
    fragments: BTreeMap<(TableId, PartitionId), Pages>,
    /// The page whose rows come now has not come before.
    pub takes: bool,
}

/// Of a fragment, as the newest checkpoint knows it.
struct Pages {
    count: u32,
    /// A bit for each that has come.
    seen: Vec<u64>,
}

/// Buffers of batches that are kept for the next ones.
const IDLE_MAX: usize = 1024;
/// A larger one is not kept.
const IDLE_BYTES: usize = 64 << 10;
/// Rows that get their index entries in one step.
const INDEXED: usize = 200;
const _: () = assert!(is_short(INDEXED, ROW_NS_MAX));
/// QMGR is told how far this is so often.
const TELL_NS: u64 = 500_000_000;
/// The body of the `LdmContinueOrd` that asks for the next step.
pub(super) const CONTINUE_RESTORE: u8 = 5;

impl Load {
    /// Reads this list from its newest on; `None`: there is none.
    pub fn new(mut rest: Vec<Checkpoint>) -> Option<Load> {
        let current = rest.pop()?;
        Some(Load { rest, current, is_newest: true, fragments: BTreeMap::new(), takes: false })
    }
    pub fn on_fragment(&mut self, table: TableId, partition: PartitionId, count: u32) {
        if self.is_newest {
            let seen = vec![0; count.div_ceil(64) as usize];
            self.fragments.insert((table, partition), Pages { count, seen });
        }
    }
    pub fn on_page(&mut self, table: TableId, partition: PartitionId, page: u32) {
        let pages = self.fragments.get_mut(&(table, partition)).filter(|pages| page < pages.count);
        self.takes = pages.is_some_and(|pages| {
            let (word, bit) = (&mut pages.seen[page as usize / 64], 1 << (page % 64));
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new || planted(Bug::PageHeaderIgnored)
        });
    }
}

impl Replay {
    fn new(restored: Epoch, void: Vec<(Epoch, Epoch)>, checkpoints: Vec<Checkpoint>, now: u64) -> Replay {
        Replay {
            restored,
            void,
            load: Load::new(checkpoints),
            unended: BTreeMap::new(),
            applies: VecDeque::new(),
            epoch: Epoch(0),
            idle: Vec::new(),
            held: 0,
            loaded: 0,
            rows: 0,
            began_at: now,
            commits: VecDeque::new(),
            indexes: Vec::new(),
            row: RowId::default(),
        }
    }
    fn is_restored(&self, epoch: Epoch) -> bool {
        let is_void = |(from, to): &(Epoch, Epoch)| *from <= epoch && epoch < *to;
        epoch <= self.restored && (planted(Bug::VoidReadAgain) || !self.void.iter().any(is_void))
    }
    fn drop_batches(&mut self, trans: TransId, drops: impl Fn(&Batch) -> bool) {
        let Some(mut unended) = self.unended.remove(&trans) else { return };
        for batch in unended.batches.extract_if(.., |batch| drops(batch)) {
            self.give_back(batch.rows);
        }
        if !unended.batches.is_empty() {
            self.unended.insert(trans, unended);
        }
    }
    /// All is read.
    fn end(&mut self) {
        (self.unended, self.idle, self.held) = (BTreeMap::new(), Vec::new(), 0);
    }
    /// What a transaction has changed counts as memory of transactions, as it did when that ran.
    fn keep(&mut self, rows: &[u8]) -> Vec<u8> {
        let mut buffer = self.idle.pop().unwrap_or_default();
        self.held -= buffer.capacity();
        buffer.clear();
        buffer.extend_from_slice(rows);
        self.held += buffer.capacity();
        buffer
    }
    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.idle.len() < IDLE_MAX && buffer.capacity() <= IDLE_BYTES {
            self.idle.push(buffer);
        } else {
            self.held -= buffer.capacity();
        }
    }
    /// What it has changed is to be applied, before anything else is read.
    fn commit(&mut self, trans: TransId, epoch: Epoch) {
        assert!(self.applies.is_empty(), "transaction {trans} commits amid another one");
        if self.is_restored(epoch) {
            let unended = self.unended.remove(&trans).unwrap_or_default();
            (self.applies, self.epoch) = (unended.batches.into(), epoch);
            self.note_commit(trans);
        } else {
            self.drop_batches(trans, |_| true);
        }
    }
    fn note_commit(&mut self, trans: TransId) {
        if self.commits.len() >= COMMITS_MAX {
            self.commits.pop_front();
        }
        self.commits.push_back(trans);
    }
}

impl LocalDataManager {
    /// From QMGR: everything up to an epoch is to be in memory, and nothing above it.
    pub(super) fn on_restore_req(&mut self, order: Restore, ctx: &mut Context<'_>) {
        self.seed_rows(ctx);
        let Some(redo) = self.redo.as_mut().filter(|_| self.view.generation == 0) else { return };
        match &mut redo.state {
            State::Restored(known) if known.restored == order.restored => {
                *known = order.clone();
                redo.void(Epoch(order.restored), Epoch(order.begins), ctx);
                redo.append(&Entry::Restart { restored: Epoch(order.restored), begins: Epoch(order.begins) });
            }
            // Of another founder, or the same one after somebody died.
            State::Reading(.., known) | State::Indexing(.., known) if known.restored == order.restored => {
                *known = order;
            }
            State::Found => {
                let (restored, control) = (Epoch(order.restored), &redo.control);
                ctx.log(format_args!(
                    "reads {} checkpoints and its log of {} segments up to epoch {restored}",
                    control.checkpoints.len(),
                    control.segments.len(),
                ));
                if let Some(late) = control.checkpoints.iter().find(|c| c.epoch > restored) {
                    let why = format!("checkpoint {} has rows up to epoch {}", late.file, late.epoch);
                    return self.refuse_restore(why, order, ctx);
                }
                let is_all = order.lineage != 0 && planted(Bug::OwnSuffixKept);
                let restored = if is_all { Epoch(u64::MAX) } else { restored };
                let replay = Replay::new(restored, control.void.clone(), control.checkpoints.clone(), ctx.now());
                let reader = match &replay.load {
                    Some(load) => LogReader::new(&control.of_checkpoint(load.current.file), 0),
                    None => LogReader::new(control, 0),
                };
                let (phase, of) = match &replay.load {
                    Some(_) => (StartPhase::Checkpoints, control.checkpoints.iter().map(|c| c.bytes).sum()),
                    None => (StartPhase::Log, redo.log_bytes()),
                };
                redo.state = State::Reading(reader, Box::new(replay), order);
                self.begin_phase(phase, of);
                self.tables.begin_round(0);
                self.read_files(ctx);
            }
            _ => jam!(ctx),
        }
    }

    pub(super) fn refuse_restore(&mut self, reason: String, order: Restore, ctx: &mut Context<'_>) {
        let refusal = Restore { reason, instance: self.me.instance.into(), ..order };
        let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::RestoreRef, |b| encode(&refusal, b));
    }

    /// Applies what has been read, and reads on.
    pub(super) fn read_files(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let State::Reading(mut reader, mut replay, order) = std::mem::replace(&mut redo.state, State::Found) else {
            return;
        };
        let mut left = self.slices.rows as usize;
        let outcome = loop {
            match self.apply(&mut replay, &mut left) {
                Err(reason) => break Err(reason),
                Ok(()) if replay.applies.is_empty() => {}
                Ok(()) => {
                    ctx.probe("ldm: a large transaction is put back in slices");
                    (self.progress.loaded, self.progress.replayed) = (replay.loaded, replay.rows);
                    let Some(redo) = &mut self.redo else { return };
                    redo.state = State::Reading(reader, replay, order);
                    ctx.spend(self.slices.rows as usize, ROW_NS_MAX);
                    return ctx.send(self.me, Kind::LdmContinueOrd, |out| out.push(CONTINUE_RESTORE));
                }
            }
            match reader.step() {
                Step::Entry(Entry::Saved { epoch, .. })
                    if planted(Bug::ReplayStopsEarly) && epoch.0 + 2 > order.restored =>
                {
                    break Ok(());
                }
                Step::Entry(entry) => {
                    if let Err(reason) = self.replay(&mut replay, &entry) {
                        break Err(reason);
                    }
                }
                Step::Read { .. } if !step(&self.memory, Region::Transaction, &mut self.replay_bytes, replay.held) => {
                    ctx.probe("ldm: no memory for what is put back");
                    let mib = replay.held >> 20;
                    break Err(format!(
                        "no memory for {mib} MiB of changes whose transactions have not ended where it reads: start it with a larger --memory"
                    ));
                }
                Step::Read { segment, at, count } => {
                    (self.progress.loaded, self.progress.replayed) = (replay.loaded, replay.rows);
                    self.progress.done = (self.progress.done + u64::from(count)).min(self.progress.of);
                    let Some(redo) = &mut self.redo else { return };
                    let file = match replay.load {
                        Some(_) => DataFile::checkpoint(self.me.instance, segment),
                        None => DataFile::redo(self.me.instance, segment),
                    };
                    redo.state = State::Reading(reader, replay, order);
                    return redo.ask_file(file, DiskOp::Read { at, count }, Asked::Read { segment, at, count }, ctx);
                }
                Step::Ended if replay.load.is_some() => match self.next_file(&mut replay, &reader.end(), ctx) {
                    Ok(next) => reader = next,
                    Err(reason) => break Err(reason),
                },
                Step::Ended => break Ok(()),
                Step::Damaged(damage) => break Err(damage.to_string()),
            }
        };
        (self.progress.loaded, self.progress.replayed) = (replay.loaded, replay.rows);
        replay.end();
        step(&self.memory, Region::Transaction, &mut self.replay_bytes, 0);
        match outcome {
            Ok(()) => self.begin_indexes(reader, replay, order, ctx),
            Err(reason) => self.refuse_restore(reason, order, ctx),
        }
    }

    /// A checkpoint is read: on with the one before it, or the log.
    fn next_file(&mut self, replay: &mut Replay, end: &End, ctx: &mut Context<'_>) -> Result<LogReader, String> {
        let (Some(redo), Some(load)) = (&mut self.redo, &mut replay.load) else { return Err(String::new()) };
        load.current.check(end)?;
        load.is_newest = false;
        if let Some(next) = load.rest.pop() {
            load.current = next;
            return Ok(LogReader::new(&redo.control.of_checkpoint(next.file), 0));
        }
        replay.load = None;
        ctx.probe("ldm: a restart reads checkpoints");
        // What the log changes from now on is not in any checkpoint.
        redo.checkpoints.counted = Some(redo.checkpoints.round);
        self.tables.begin_round(redo.checkpoints.round);
        let (reader, of) = (LogReader::new(&redo.control, 0), redo.log_bytes());
        self.begin_phase(StartPhase::Log, of);
        Ok(reader)
    }

    fn begin_indexes(&mut self, reader: LogReader, mut replay: Box<Replay>, order: Restore, ctx: &mut Context<'_>) {
        assert!(replay.load.is_none(), "the log is read, and checkpoint {:?} is not", replay.load.map(|l| l.current));
        let Some(redo) = &mut self.redo else { return };
        for table in self.tables.iter_mut() {
            let id = table.schema.id;
            for (partition, fragment) in table.fragments_mut() {
                replay.indexes.extend(fragment.add_indexes().into_iter().map(|no| (id, partition, no)));
            }
        }
        let slots = |(table, partition, _): &(TableId, PartitionId, IndexNo)| {
            let fragment = self.tables.get(*table).and_then(|t| t.fragment(*partition));
            fragment.map_or(0, |f| u64::from(f.pages()) * PAGE_ROWS as u64)
        };
        let of = replay.indexes.iter().map(slots).sum();
        redo.state = State::Indexing(reader, replay, order);
        self.begin_phase(StartPhase::Indexes, of);
        self.on_continue_restore(ctx);
    }

    fn begin_phase(&mut self, phase: StartPhase, of: u64) {
        (self.progress.phase, self.progress.done, self.progress.of) = (phase as i32, 0, of);
    }

    /// The next rows of a transaction are put back, or get their index entries; when all have them, the node has what it was told to have.
    pub(super) fn on_continue_restore(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        if matches!(&redo.state, State::Reading(_, replay, _) if !replay.applies.is_empty()) {
            return self.read_files(ctx);
        }
        let State::Indexing(_, replay, _) = &mut redo.state else { return };
        let step = match replay.indexes.last() {
            Some(&(table, partition, no)) => match self.tables.fragment_mut(table, partition) {
                Some(fragment) => {
                    ctx.spend(INDEXED.min(fragment.row_count() as usize), ROW_NS_MAX);
                    fragment.build_index(no, replay.row, INDEXED)
                }
                None => Ok(None),
            },
            None => return self.all_is_restored(ctx),
        };
        match step {
            Ok(next) => {
                let before = replay.row.0;
                replay.row = next.unwrap_or_default();
                let looked_at = u64::from(replay.row.0.saturating_sub(before));
                self.progress.done = (self.progress.done + looked_at).min(self.progress.of);
                if next.is_none() {
                    replay.indexes.pop();
                }
                ctx.send(self.me, Kind::LdmContinueOrd, |out| out.push(CONTINUE_RESTORE));
            }
            Err(code) => {
                if let State::Indexing(.., order) = std::mem::replace(&mut redo.state, State::Found) {
                    self.refuse_restore(format!("an ordered index cannot be made: {code}"), order, ctx);
                }
            }
        }
    }

    fn all_is_restored(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let State::Indexing(reader, replay, order) = std::mem::replace(&mut redo.state, State::Found) else { return };
        let ms = (ctx.now() - replay.began_at) / 1_000_000;
        assert!(replay.indexes.is_empty(), "{} indexes of what was put back are not made", replay.indexes.len());
        let (loaded, rows, blocks) = (replay.loaded, replay.rows, reader.blocks());
        ctx.log(format_args!(
            "has put back {loaded} rows from checkpoints and {rows} changes from {blocks} blocks of its log in {ms} ms"
        ));
        replay.commits.iter().for_each(|trans| self.outcomes.record(*trans, ctx.now()));
        redo.restored(&reader.end(), order, ctx);
    }

    /// Tells QMGR how far this instance is, twice a second while that changes, and that another phase begins at once.
    pub(super) fn tell_progress(&mut self, ctx: &mut Context<'_>) {
        let (told, at) = self.told;
        let is_due = ctx.now().saturating_sub(at) >= TELL_NS || told.phase != self.progress.phase;
        if told != self.progress && is_due {
            self.told = (self.progress, ctx.now());
            let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(qmgr, Kind::StartRep, |b| encode(&self.progress, b));
        }
    }

    /// The node is a full member now: for people.
    pub(super) fn log_filled(&self, ctx: &mut Context<'_>) {
        let Progress { fetched, unchanged, gone, .. } = self.progress;
        let ms = (ctx.now() - self.filled_since) / 1_000_000;
        ctx.log(format_args!("was filled in {ms} ms: {fetched} rows fetched, {unchanged} unchanged, {gone} gone"));
    }

    /// Applies one entry.
    ///
    /// # Errors
    /// For people: it does not fit to what is here.
    fn replay(&mut self, replay: &mut Replay, entry: &Entry<'_>) -> Result<(), String> {
        match *entry {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                let batch = Batch { chain, savepoint, count, rows: replay.keep(rows), done: 0 };
                replay.unended.entry(trans).or_default().batches.push(batch);
            }
            Entry::Abort { trans, chain, savepoint } => {
                replay.drop_batches(trans, |batch| batch.chain == chain && batch.savepoint >= savepoint);
            }
            Entry::Commit { trans, epoch, .. } => replay.commit(trans, epoch),
            Entry::Copied { partition, table, count, rows } => {
                if replay.load.as_ref().is_some_and(|load| !load.takes) {
                    return Ok(());
                }
                let mut reader = Reader::new(rows);
                for _ in 0..count {
                    let row = CopiedRow::decode(&mut reader).map_err(|_| "a copied row does not decode".to_owned())?;
                    let at = (table, partition, RowId(row.row));
                    // What a node got that was being filled may be later than what it is to have now.
                    if replay.load.is_some() || replay.is_restored(row.epoch) {
                        let image = (!row.is_empty()).then_some(row.image);
                        self.replay_row(at, row.key, image, row.epoch)?;
                    }
                }
                match replay.load {
                    Some(_) => replay.loaded += u64::from(count),
                    None => replay.rows += u64::from(count),
                }
            }
            Entry::Restart { restored, begins } => {
                for batch in std::mem::take(&mut replay.unended).into_values().flat_map(|unended| unended.batches) {
                    replay.give_back(batch.rows);
                }
                if !planted(Bug::VoidReadAgain) {
                    replay.void.retain(|range| *range != (Epoch(restored.0 + 1), begins));
                }
            }
            Entry::Saved { .. } => {}
            Entry::Fragment { partition, table, pages } => {
                replay.load.iter_mut().for_each(|load| load.on_fragment(table, partition, pages));
            }
            Entry::Page { partition, table, page } => {
                replay.load.iter_mut().for_each(|load| load.on_page(table, partition, page));
            }
            Entry::Commits { ids } => {
                if replay.load.as_ref().is_some_and(|load| load.is_newest) {
                    Entry::commits(ids).for_each(|trans| replay.note_commit(trans));
                }
            }
        }
        Ok(())
    }

    /// Applies what is committed, up to so many rows.
    fn apply(&mut self, replay: &mut Replay, left: &mut usize) -> Result<(), String> {
        let epoch = replay.epoch;
        while *left > 0
            && let Some(batch) = replay.applies.front_mut()
        {
            let mut reader = Reader::new(&batch.rows[batch.done..]);
            while *left > 0 && batch.count > 0 {
                let row = PreparedRow::decode(&mut reader).map_err(|_| "a change does not decode".to_owned())?;
                self.replay_row((row.table, row.partition, RowId(row.row)), row.key, row.image, epoch)?;
                (batch.count, *left) = (batch.count - 1, *left - 1);
                replay.rows += 1;
            }
            batch.done = batch.rows.len() - reader.rest().len();
            if batch.count == 0
                && let Some(batch) = replay.applies.pop_front()
            {
                replay.give_back(batch.rows);
            }
        }
        Ok(())
    }

    /// A slot as it was committed in `epoch`; `None`: its row was deleted.
    fn replay_row(&mut self, at: RowAt, key: &[u8], image: Option<&[u8]>, epoch: Epoch) -> Result<(), String> {
        let named = |code: ErrorCode| format!("row {} of table {} and partition {}: {code}", at.2.0, at.0, at.1);
        let (table, partition, row): (TableId, PartitionId, RowId) = at;
        let memory = self.memory.clone();
        let Some(table) = self.tables.get_mut(table) else { return Ok(()) }; // dropped since
        if let Some(image) = image {
            table.schema.layout().check(image).map_err(named)?;
        }
        if table.fragment(partition).is_none() {
            table.make_fragment(partition, &memory, self.secret).map_err(named)?.drop_indexes();
        }
        let fragment = table.fragment_mut(partition).ok_or_else(|| named(ErrorCode::Internal))?;
        let secret = &self.secret;
        fragment.restore(row, key, |key| secret.of(key), image, epoch).map_err(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(replay: &mut Replay, seq: u64, bytes: usize) {
        let batch = Batch { chain: Chain(1), savepoint: 1, count: 1, rows: replay.keep(&vec![7; bytes]), done: 0 };
        replay.unended.entry(TransId { client: 1, seq }).or_default().batches.push(batch);
    }

    /// Of ten thousand small and some large transactions that are open at once, and of which each ends some time.
    #[test]
    fn what_has_not_ended_is_counted_and_large_buffers_do_not_stay() {
        let mut replay = Replay::new(Epoch(10), Vec::new(), Vec::new(), 0);
        for seq in 0..10_000 {
            prepared(&mut replay, seq, 100);
            prepared(&mut replay, seq, if seq % 100 == 0 { 1 << 20 } else { 200 });
        }
        assert!(replay.held >= (100 << 20) + 10_000 * 300 - 100 * 200, "{} bytes", replay.held);
        for seq in 0..5_000 {
            replay.drop_batches(TransId { client: 1, seq }, |batch| batch.rows.len() > 100);
            assert!(
                replay.unended.contains_key(&TransId { client: 1, seq }),
                "a statement of {seq} was undone, not all"
            );
            replay.commit(TransId { client: 1, seq }, Epoch(11)); // void: later than what is restored
        }
        assert!(replay.held < (51 << 20) + 10_000 * 300, "{} bytes", replay.held);
        for seq in 5_000..10_000 {
            replay.commit(TransId { client: 1, seq }, Epoch(9));
            while let Some(batch) = replay.applies.pop_front() {
                replay.give_back(batch.rows);
            }
        }
        assert_eq!((replay.unended.len(), replay.idle.len(), replay.commits.len()), (0, IDLE_MAX, 5_000));
        assert_eq!(replay.held, replay.idle.iter().map(Vec::capacity).sum());
    }
}

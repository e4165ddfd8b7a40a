//! Another number of workers: the logs and checkpoints of a data directory are written anew, as as many workers as the process has would have written them.
//!
//! Done once, before the process has any blocks, and by itself: nobody else is asked or told. What the node can say afterwards of what it holds is what it could have said before, so nothing
//! of a start, a return or a join knows of this. Decision 0044 has the reasons.
//!
//! ```text
//! old: redo-0.ctl ...                        new: redo-0-of-2-1.ctl, redo-1-of-2-1.ctl
//! marker --> each old instance in turn: its checkpoints, then its log --entry by entry, by partition--> data files of the new instances --> all synced
//!        --> control files of the new instances, synced; with the last one they count --> what they do not list is removed --> no marker
//! ```
//!
//! **When it dies.** Until the last new control file is on the disk the old ones count, and none of their files was touched; from then on the new ones do. What is left of either is not listed and goes
//! at the next start, which the marker tells to look. Data files have numbers that no file before had, control files the number of the change, so nothing is ever taken for a part of something else.
//!
//! **What goes where.** A partition is at one old instance and goes to one new instance, so all that ever happened to a slot stays in order. Logs follow one another in the new one. So that nothing of one meddles with
//! the next, each is resolved as replay would: what is void is left out, what has not ended where the log ends or a restart mark lies is undone.
//!
//! **Marks.** A new log has one mark, at its end: the least epoch that an old log has saved. It is complete from where all old ones are, or was being filled if one of them was; what they do not agree on counts as unknown.
//!
//! **Tokens.** The newest commits of all old logs are at the end of each new one once more, with their epochs.
//!
//! **Old logs that are damaged** are left as they are: the process starts with logs that say so, as it would without a change, and is filled from a replica.
//!
//! **Limits**: in memory are pieces of files, 100,000 commits per old log, and which transactions have not ended. The directory needs room for all of it twice.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{DataFile, Directory, limits::FILE_BYTES_MAX};
use apus_redo::{
    Checkpoint, Closed, Control, Entry, Layout, LogId, LogKind, Reader as LogReader, SEGMENT_BYTES, Step, Unread,
    Vault, Writer,
};
use apus_signal::{Reader, copy::CopiedRow, ldm::PreparedRow};
use apus_types::{
    Chain, Epoch, NodeId, PartitionId, TransId,
    planted::{Bug, planted},
};

use super::{checkpoint::COMMITS_MAX, restore::Load};

/// The logs that a process begins with.
#[derive(Clone, Default, Debug)]
pub struct Logs {
    pub layout: Layout,
    /// For people: there are logs of another number of workers, and they cannot be read; of this number there are none.
    pub damage: String,
    /// Data files below this number may be there.
    pub next: u32,
}

/// Says that there may be files that no control file lists.
const MARKER: &str = "workers-change";
/// So many bytes are written at once.
const FLUSH_BYTES: usize = 256 << 10;

/// Why the logs of before are not written anew.
enum Failure {
    /// They cannot be read.
    Damaged(String),
    /// The new ones cannot be written.
    Unwritten(String),
}

/// Sees to it that the directory has logs of so many workers; `known`: workers of the newest view in it, or 0. `say`: for people.
///
/// # Errors
/// For people: the disk does not let it. What was there counts as before.
pub fn open(
    dir: &mut dyn Directory,
    vault: &Vault,
    node: NodeId,
    workers: u8,
    known: u8,
    say: &mut dyn FnMut(String),
) -> Result<Logs, String> {
    let names = dir.names()?;
    let taken = names.iter().filter_map(|name| DataFile::parse(name)).map(|file| file.number).max().unwrap_or(0);
    let change = names.iter().filter_map(|name| Layout::parse(name)).map(|(layout, _)| layout.change).max();
    let is_marked = names.iter().any(|name| name == MARKER);
    let new = Layout { workers, change: change.map_or(0, |change| change + 1) };
    let Some(old) = Layout::current(names.iter().map(String::as_str), known) else {
        return Ok(Logs { layout: new, damage: String::new(), next: taken + 1 });
    };
    if is_marked {
        sweep(dir, vault, old)?;
    }
    if old.workers == workers {
        return Ok(Logs { layout: old, ..Logs::default() });
    }
    say(format!("its files are of {} workers: what they hold is written anew for {workers}", old.workers));
    let unwritten = |why: String| {
        format!(
            "the logs of {} workers cannot be written anew for {workers}, and are as they were: {why}; see to the disk, which needs room for all of it twice, or start it with --workers {}",
            old.workers, old.workers
        )
    };
    dir.put(MARKER, format!("from {} to {workers} workers\n", old.workers).as_bytes()).map_err(unwritten)?;
    match convert(dir, vault, node, old, new, taken) {
        Ok(()) => {
            sweep(dir, vault, new)?;
            say(format!("it has the logs of {workers} workers"));
            Ok(Logs { layout: new, ..Logs::default() })
        }
        Err(Failure::Damaged(why)) => {
            sweep_but(dir, vault, old, true)?;
            Ok(Logs { layout: new, damage: format!("of {} workers: {why}", old.workers), next: taken + 1 })
        }
        Err(Failure::Unwritten(why)) => Err(unwritten(why)),
    }
}

/// Removes what no control file of this layout lists, if all of these can be read.
fn sweep(dir: &mut dyn Directory, vault: &Vault, layout: Layout) -> Result<(), String> {
    sweep_but(dir, vault, layout, false)
}
fn sweep_but(dir: &mut dyn Directory, vault: &Vault, layout: Layout, keeps_marker: bool) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    for instance in 0..layout.workers {
        let name = layout.control_file(instance);
        let Ok(content) = vault.open_file(&name, &dir.read(&name, 0, FILE_BYTES_MAX as u32)?) else { return Ok(()) };
        let Ok(control) = Control::decode(&content, vault) else { return Ok(()) };
        kept.extend(control.segments.iter().map(|n| DataFile::redo(instance, *n).to_string()));
        kept.extend(control.checkpoints.iter().map(|c| DataFile::checkpoint(instance, c.file).to_string()));
        kept.insert(name);
    }
    let (data, controls): (Vec<String>, Vec<String>) =
        dir.names()?.into_iter().partition(|name| Layout::parse(name).is_none());
    let is_data = |name: &String| DataFile::parse(name).is_some();
    for name in data.into_iter().filter(is_data).chain(controls).filter(|name| !kept.contains(name)) {
        dir.remove(&name)?;
    }
    if keeps_marker { Ok(()) } else { dir.remove(MARKER) }
}

/// A log as it was, and what is learned of it on the way.
struct Old {
    control: Control,
    /// As `Redo::look` finds them.
    saved: Epoch,
    lineage: u64,
    generation: u64,
    highest: Epoch,
    /// The newest, oldest first, with their epochs.
    commits: Vec<(Epoch, TransId)>,
}

/// A log that is made, and its checkpoint.
struct New {
    /// Has keys for their files, if these are to be encrypted.
    vault: Vault,
    control: Control,
    log: Writer,
    file: u32,
    checkpoint: Writer,
    checkpoint_bytes: u64,
    /// Rows of a batch that go here.
    rows: Vec<u8>,
    count: u16,
}

fn convert(
    dir: &mut dyn Directory,
    vault: &Vault,
    node: NodeId,
    old: Layout,
    new: Layout,
    taken: u32,
) -> Result<(), Failure> {
    let mut logs = read_controls(dir, vault, node, old)?;
    let cluster = logs.iter().map(|log| log.control.id.cluster).max().unwrap_or(0);
    if logs.iter().any(|log| log.control.id.cluster != cluster) {
        return Err(Failure::Damaged("the logs are of different clusters".to_owned()));
    }
    let segment_bytes = logs.iter().map(|log| log.control.segment_bytes).max().unwrap_or(SEGMENT_BYTES);
    let make = |instance| {
        let id = LogId { cluster, node, instance, kind: LogKind::Redo };
        New::begun(Control { next: taken + 1, ..Control::empty(id, segment_bytes) }, vault)
    };
    let mut made: Vec<New> = (0..new.workers).map(make).collect();
    for log in &mut logs {
        copy_checkpoints(dir, log, &mut made)?;
        if !(planted(Bug::OldLogUnread) && log.control.id.instance > 0) {
            copy_log(dir, log, &mut made)?;
        }
    }
    let summary = Summary::of(&logs);
    for log in &mut made {
        log.end(dir, &summary, !logs.iter().all(|log| log.control.checkpoints.is_empty()))
            .map_err(Failure::Unwritten)?;
    }
    if planted(Bug::OldLogsGoEarly) {
        let gone = logs.iter().flat_map(|log| {
            let instance = log.control.id.instance;
            log.control.segments.iter().map(move |n| DataFile::redo(instance, *n).to_string())
        });
        gone.collect::<Vec<_>>().iter().try_for_each(|name| dir.remove(name)).map_err(Failure::Unwritten)?;
    }
    for log in &made {
        let name = new.control_file(log.control.id.instance);
        let content = vault.seal_file(&name, log.control.encode());
        dir.put(&name, &content).map_err(Failure::Unwritten)?;
    }
    Ok(())
}

fn read_controls(dir: &mut dyn Directory, vault: &Vault, node: NodeId, layout: Layout) -> Result<Vec<Old>, Failure> {
    let mut logs = Vec::new();
    for instance in 0..layout.workers {
        let name = layout.control_file(instance);
        let content = dir.read(&name, 0, FILE_BYTES_MAX as u32).map_err(Failure::Damaged)?;
        if content.is_empty() {
            return Err(Failure::Damaged("the log of a worker is missing".to_owned()));
        }
        let of_file = |why: String| format!("the control file {name} {why}");
        let content = vault.open_file(&name, &content).map_err(|why| match why {
            // Whoever opened the directory has seen to it that its keys are here.
            Closed::NoKey(_) | Closed::Version(_) => Failure::Unwritten(of_file(why.to_string())),
            Closed::Damaged(why) => Failure::Damaged(of_file(why)),
        })?;
        let control = Control::decode(&content, vault).map_err(|why| match why {
            Unread::NoKey(_) => Failure::Unwritten(of_file(why.to_string())),
            Unread::Other(why) => Failure::Damaged(of_file(why)),
        })?;
        if (control.id.node, control.id.instance) != (node, instance) {
            return Err(Failure::Damaged(format!("the control file {name} is of data node {}", control.id.node)));
        }
        let voids = control.void.iter().map(|(_, to)| *to);
        let highest = voids.chain(control.complete).max().unwrap_or_default();
        let (saved, lineage, generation, commits) = (Epoch(0), 0, 0, Vec::new());
        logs.push(Old { control, saved, lineage, generation, highest, commits });
    }
    Ok(logs)
}

/// Feeds a reader until it has an entry, for `take`, or has ended.
fn read_all(
    dir: &mut dyn Directory,
    reader: &mut LogReader,
    name: impl Fn(u32) -> String,
    mut take: impl FnMut(&mut dyn Directory, &Entry<'_>, Epoch) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let highest = reader.highest();
        match reader.step() {
            Step::Entry(entry) => take(dir, &entry, highest)?,
            Step::Read { segment, at, count } => {
                let bytes = dir.read(&name(segment), at, count).map_err(Failure::Damaged)?;
                reader.feed(segment, at, count, &bytes);
            }
            Step::Ended => return Ok(()),
            Step::Damaged(damage) => return Err(Failure::Damaged(damage.to_string())),
        }
    }
}

/// The new log of this partition.
fn of(made: &mut [New], partition: PartitionId) -> &mut New {
    let count = made.len();
    &mut made[usize::from(partition.0) % count]
}

/// Of each page the newest copy; the commits that the newest checkpoint remembers.
fn copy_checkpoints(dir: &mut dyn Directory, log: &mut Old, made: &mut [New]) -> Result<(), Failure> {
    let Old { control, commits, .. } = log;
    let Some(mut load) = Load::new(control.checkpoints.clone()) else { return Ok(()) };
    let instance = control.id.instance;
    loop {
        let mut reader = LogReader::new(&control.of_checkpoint(load.current.file), 0);
        let name = |file| DataFile::checkpoint(instance, file).to_string();
        read_all(dir, &mut reader, name, |dir, entry, epoch| {
            let new = match *entry {
                Entry::Fragment { partition, table, pages } => {
                    load.on_fragment(table, partition, pages);
                    load.is_newest.then(|| of(made, partition))
                }
                Entry::Page { partition, table, page } => {
                    load.on_page(table, partition, page);
                    load.takes.then(|| of(made, partition))
                }
                Entry::Copied { partition, .. } => load.takes.then(|| of(made, partition)),
                Entry::Commits { ids } if load.is_newest => {
                    note_commits(commits, Entry::commits(ids).map(|trans| (Epoch(0), trans)));
                    None
                }
                _ => None,
            };
            new.map_or(Ok(()), |new| {
                new.checkpoint.append(entry);
                new.write_checkpoint(dir, epoch, false).map_err(Failure::Unwritten)
            })
        })?;
        load.current.check(&reader.end()).map_err(Failure::Damaged)?;
        load.is_newest = false;
        match load.rest.pop() {
            Some(next) => load.current = next,
            None => return Ok(()),
        }
    }
}

fn note_commits(commits: &mut Vec<(Epoch, TransId)>, more: impl Iterator<Item = (Epoch, TransId)>) {
    commits.extend(more);
    // Moved seldom.
    if commits.len() > 2 * COMMITS_MAX {
        commits.drain(..commits.len() - COMMITS_MAX);
    }
}

/// Transactions that have not ended: which new logs have got something of which chains.
type Unended = BTreeMap<TransId, BTreeSet<(u8, Chain)>>;

fn undo(dir: &mut dyn Directory, unended: Unended, made: &mut [New], epoch: Epoch) -> Result<(), Failure> {
    for (trans, parts) in unended {
        for (instance, chain) in parts {
            made[usize::from(instance)].append(dir, &Entry::Abort { trans, chain, savepoint: 0 }, epoch)?;
        }
    }
    Ok(())
}

fn copy_log(dir: &mut dyn Directory, log: &mut Old, made: &mut [New]) -> Result<(), Failure> {
    let mut reader = LogReader::new(&log.control, 0);
    let instance = log.control.id.instance;
    let mut void = log.control.void.clone();
    let mut unended = Unended::new();
    let name = |segment| DataFile::redo(instance, segment).to_string();
    read_all(dir, &mut reader, name, |dir, entry, at| {
        let is_void = |epoch: Epoch| void.iter().any(|(from, to)| *from <= epoch && epoch < *to);
        match *entry {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                split(rows, count, made)?;
                for new in made.iter_mut().filter(|new| new.count > 0) {
                    unended.entry(trans).or_default().insert((new.control.id.instance, chain));
                    let (rows, count) = (std::mem::take(&mut new.rows), std::mem::take(&mut new.count));
                    new.append(dir, &Entry::Prepare { trans, chain, savepoint, count, rows: &rows }, at)?;
                    new.rows = rows;
                }
            }
            Entry::Abort { trans, chain, savepoint } => {
                let Some(parts) = unended.get_mut(&trans) else { return Ok(()) };
                for (instance, _) in parts.iter().filter(|part| part.1 == chain) {
                    made[usize::from(*instance)].append(dir, entry, at)?;
                }
                if savepoint == 0 {
                    parts.retain(|part| part.1 != chain);
                }
            }
            Entry::Commit { trans, epoch, .. } if is_void(epoch) => {
                let ended = unended.remove_entry(&trans).into_iter().collect();
                undo(dir, ended, made, at)?;
            }
            Entry::Commit { trans, chain, epoch } => {
                note_commits(&mut log.commits, [(epoch, trans)].into_iter());
                let instances: BTreeSet<u8> =
                    unended.remove(&trans).into_iter().flatten().map(|(instance, _)| instance).collect();
                for instance in instances {
                    made[usize::from(instance)].append(dir, &Entry::Commit { trans, chain, epoch }, at)?;
                }
            }
            Entry::Copied { partition, table, count, rows } => {
                let new = of(made, partition);
                if void.is_empty() {
                    return new.append(dir, &Entry::Copied { partition, table, count, rows }, at);
                }
                let (kept, count) = without_void(rows, count, is_void)?;
                new.append(dir, &Entry::Copied { partition, table, count, rows: &kept }, at)?;
            }
            Entry::Restart { restored, begins } => {
                undo(dir, std::mem::take(&mut unended), made, at)?;
                void.retain(|range| *range != (Epoch(restored.0 + 1), begins));
                (log.saved, log.highest) = (restored, log.highest.max(begins));
            }
            Entry::Saved { epoch, lineage, generation } => {
                (log.saved, log.lineage, log.generation) = (epoch, lineage, generation);
            }
            Entry::Commits { .. } | Entry::Fragment { .. } | Entry::Page { .. } => {}
        }
        Ok(())
    })?;
    log.highest = log.highest.max(reader.highest()).max(log.saved);
    undo(dir, unended, made, log.highest)
}

/// To each new log its rows of a batch.
fn split(rows: &[u8], count: u16, made: &mut [New]) -> Result<(), Failure> {
    made.iter_mut().for_each(|new| new.rows.clear());
    let mut reader = Reader::new(rows);
    for _ in 0..count {
        let before = reader.rest();
        let row =
            PreparedRow::decode(&mut reader).map_err(|_| Failure::Damaged("a change does not decode".to_owned()))?;
        let new = of(made, row.partition);
        new.rows.extend_from_slice(&before[..before.len() - reader.rest().len()]);
        new.count += 1;
    }
    Ok(())
}

fn without_void(rows: &[u8], count: u16, is_void: impl Fn(Epoch) -> bool) -> Result<(Vec<u8>, u16), Failure> {
    let (mut kept, mut left) = (Vec::new(), 0);
    let mut reader = Reader::new(rows);
    for _ in 0..count {
        let row =
            CopiedRow::decode(&mut reader).map_err(|_| Failure::Damaged("a copied row does not decode".to_owned()))?;
        if !is_void(row.epoch) {
            row.encode(&mut kept);
            left += 1;
        }
    }
    Ok((kept, left))
}

/// What the old logs say together, for each new one.
struct Summary {
    saved: Epoch,
    lineage: u64,
    generation: u64,
    highest: Epoch,
    complete: Option<Epoch>,
    base: Option<(Epoch, u64)>,
    filling: u64,
    /// No row in a checkpoint is of a later epoch.
    loaded: Epoch,
    commits: Vec<(Epoch, TransId)>,
}

impl Summary {
    fn of(logs: &[Old]) -> Summary {
        let complete = || logs.iter().map(|log| log.control.complete);
        let complete_from = complete().flatten().max().unwrap_or_default();
        let is_complete = complete().all(|epoch| epoch.is_some());
        let lineage = one(logs.iter().map(|log| log.lineage)).unwrap_or(0);
        let incomplete = logs.iter().map(|log| &log.control).filter(|control| control.complete.is_none());
        let base = one(logs.iter().map(|log| log.control.base)).flatten();
        let mut commits: Vec<(Epoch, usize, TransId)> = Vec::new();
        for log in logs {
            let newest = log.commits.iter().rev().take(COMMITS_MAX).enumerate();
            commits.extend(newest.map(|(rank, (epoch, trans))| (*epoch, usize::MAX - rank, *trans)));
        }
        commits.sort_unstable();
        let commits = commits.split_off(commits.len().saturating_sub(COMMITS_MAX));
        Summary {
            saved: logs.iter().map(|log| log.saved).min().unwrap_or_default(),
            lineage,
            generation: logs.iter().map(|log| log.generation).max().unwrap_or(0),
            highest: logs.iter().map(|log| log.highest).max().unwrap_or_default(),
            complete: is_complete.then_some(complete_from),
            base: base.filter(|_| !is_complete),
            filling: incomplete.map(|control| control.filling).max().unwrap_or(0),
            loaded: logs.iter().flat_map(|log| &log.control.checkpoints).map(|c| c.epoch).max().unwrap_or_default(),
            commits: commits.into_iter().map(|(epoch, _, trans)| (epoch, trans)).collect(),
        }
    }
}

/// What all of them are.
fn one<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

impl New {
    fn begun(mut control: Control, vault: &Vault) -> New {
        let file = control.next;
        control.next += 1;
        let key = vault.new_key();
        control.keys.set(file, 0, key.clone());
        let mut checkpoint = Writer::new(&control.of_checkpoint(file));
        checkpoint.add_segment(file, key);
        let log = Writer::new(&control);
        New { vault: vault.clone(), log, control, file, checkpoint, checkpoint_bytes: 0, rows: Vec::new(), count: 0 }
    }
    fn append(&mut self, dir: &mut dyn Directory, entry: &Entry<'_>, epoch: Epoch) -> Result<(), Failure> {
        self.log.append(entry);
        self.write_log(dir, epoch, false).map_err(Failure::Unwritten)
    }
    fn write_log(&mut self, dir: &mut dyn Directory, epoch: Epoch, all: bool) -> Result<(), String> {
        while self.log.buffered() >= if all { 1 } else { FLUSH_BYTES } {
            let Some(block) = self.log.take(epoch, Vec::new()) else {
                let number = self.control.next;
                let name = DataFile::redo(self.control.id.instance, number).to_string();
                dir.remove(&name)?;
                dir.allocate(&name, self.control.segment_bytes)?;
                self.control.next += 1;
                self.control.segments.push(number);
                let key = self.vault.new_key();
                self.control.keys.set(number, 0, key.clone());
                self.log.add_segment(number, key);
                continue;
            };
            dir.write(&DataFile::redo(self.control.id.instance, block.segment).to_string(), block.at, &block.bytes)?;
        }
        Ok(())
    }
    fn write_checkpoint(&mut self, dir: &mut dyn Directory, epoch: Epoch, all: bool) -> Result<(), String> {
        let name = DataFile::checkpoint(self.control.id.instance, self.file).to_string();
        while self.checkpoint.buffered() >= if all { 1 } else { FLUSH_BYTES } {
            let block = self.checkpoint.take(epoch, Vec::new()).ok_or(format!("no more fits into {name}"))?;
            if block.at == 0 {
                dir.remove(&name)?;
            }
            dir.write(&name, block.at, &block.bytes)?;
            self.checkpoint_bytes = block.at + block.bytes.len() as u64;
        }
        Ok(())
    }

    /// All is there: syncs it, with the mark behind it.
    fn end(&mut self, dir: &mut dyn Directory, summary: &Summary, has_checkpoint: bool) -> Result<(), String> {
        let Summary { saved, lineage, generation, highest, .. } = *summary;
        let instance = self.control.id.instance;
        if has_checkpoint {
            self.end_checkpoint(dir, summary)?;
        }
        // With their epochs: which of them a start restores is decided later.
        for &(epoch, trans) in &summary.commits {
            self.log.append(&Entry::Commit { trans, chain: Chain::default(), epoch });
        }
        self.write_log(dir, highest, true)?;
        self.sync_from(dir, 0)?;
        let last = self.control.segments.len().saturating_sub(1);
        self.log.synced(self.log.sequence());
        match saved {
            // The last block names the highest epoch.
            Epoch(0) => self.log.append(&Entry::Commits { ids: &[] }),
            epoch => self.log.append(&Entry::Saved { epoch, lineage, generation }),
        }
        self.write_log(dir, highest, true)?;
        self.sync_from(dir, last)?;
        assert!(self.log.buffered() == 0, "log {instance} is written anew, and not all of it");
        (self.control.complete, self.control.base) = (summary.complete, summary.base);
        self.control.filling = summary.filling;
        Ok(())
    }
    fn end_checkpoint(&mut self, dir: &mut dyn Directory, summary: &Summary) -> Result<(), String> {
        // A file has a block at least.
        self.checkpoint.append(&Entry::Commits { ids: &[] });
        self.write_checkpoint(dir, summary.highest, true)?;
        dir.sync(&DataFile::checkpoint(self.control.id.instance, self.file).to_string())?;
        let place = self.checkpoint.place();
        self.control.checkpoints.push(Checkpoint {
            file: self.file,
            turn: 1,
            epoch: summary.loaded,
            bytes: self.checkpoint_bytes,
            sequence: place.sequence,
            checksum: place.previous,
        });
        Ok(())
    }
    fn sync_from(&self, dir: &mut dyn Directory, first: usize) -> Result<(), String> {
        let instance = self.control.id.instance;
        let names = self.control.segments[first..].iter().map(|n| DataFile::redo(instance, *n).to_string());
        names.into_iter().try_for_each(|name| dir.sync(&name))
    }
}

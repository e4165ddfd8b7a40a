//! What a directory says before and after its logs are written anew, and when the process dies at any request to the disk.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{DataFile, Directory};
use apus_redo::{Checkpoint, Control, Entry, Layout, LogId, LogKind, Reader as LogReader, Step, Vault, Writer};
use apus_signal::{Reader, copy::CopiedRow, ldm::PreparedRow};
use apus_types::{Chain, Epoch, NodeId, PartitionId, TableId, TransId};

use super::{reshape, restore::Load};

const NODE: NodeId = NodeId(3);
const TABLE: TableId = TableId(7);
const SEGMENT: u64 = 256 << 10;

/// In memory; dies after so many requests. What was not synced is there all the same: losses of power are the simulator's.
#[derive(Clone, Default)]
struct Files {
    files: BTreeMap<String, Vec<u8>>,
    left: Option<u64>,
    requests: u64,
}

impl Files {
    fn count(&mut self) -> Result<(), String> {
        self.requests += 1;
        match &mut self.left {
            Some(0) => Err("it dies".to_owned()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Directory for Files {
    fn names(&mut self) -> Result<Vec<String>, String> {
        self.count().map(|()| self.files.keys().cloned().collect())
    }
    fn read(&mut self, file: &str, at: u64, count: u32) -> Result<Vec<u8>, String> {
        self.count()?;
        let rest = self.files.get(file).and_then(|bytes| bytes.get(at as usize..)).unwrap_or_default();
        Ok(rest[..rest.len().min(count as usize)].to_vec())
    }
    fn write(&mut self, file: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.count()?;
        let content = self.files.entry(file.to_owned()).or_default();
        content.resize(content.len().max(at as usize + bytes.len()), 0);
        content[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn allocate(&mut self, file: &str, _: u64) -> Result<(), String> {
        self.count()?;
        self.files.entry(file.to_owned()).or_default();
        Ok(())
    }
    fn sync(&mut self, _: &str) -> Result<(), String> {
        self.count()
    }
    fn put(&mut self, file: &str, content: &[u8]) -> Result<(), String> {
        self.count().map(|()| drop(self.files.insert(file.to_owned(), content.to_vec())))
    }
    fn remove(&mut self, file: &str) -> Result<(), String> {
        self.count().map(|()| drop(self.files.remove(file)))
    }
}

/// What all logs of the directory say together, as a restart reads them.
#[derive(PartialEq, Debug, Default)]
struct Said {
    rows: BTreeMap<(u16, u32), (u64, Vec<u8>)>,
    /// With their epochs: a start takes those that it restores.
    commits: BTreeSet<(u64, u64)>,
    saved: u64,
    complete: Option<u64>,
    highest: u64,
    filling: u64,
    base: Option<(Epoch, u64)>,
}

impl Said {
    /// What is not as in the other one, without the rows' contents.
    fn differs(&self, other: &Said) -> String {
        if self == other {
            return String::new();
        }
        let rows = |of: &Said| of.rows.iter().map(|(at, (epoch, _))| (*at, *epoch)).collect::<BTreeSet<_>>();
        let commits: Vec<_> = self.commits.symmetric_difference(&other.commits).collect();
        let rows: Vec<_> = rows(self).symmetric_difference(&rows(other)).copied().collect();
        let rest = |of: &Said| format!("{:?}", (of.saved, of.complete, of.highest, of.filling, of.base));
        format!("rows {rows:?}, commits {commits:?}, {} and {}", rest(self), rest(other))
    }
}

fn said(files: &Files) -> Said {
    let layout = Layout::current(files.files.keys().map(String::as_str), 0).expect("there are logs");
    let (mut said, mut from, mut are_complete) = (Said { saved: u64::MAX, ..Said::default() }, 0, true);
    for instance in 0..layout.workers {
        let control =
            Control::decode(&files.files[&layout.control_file(instance)], &Vault::default()).expect("it is whole");
        let mut rows = Rows::new(&mut said, layout.workers, &control);
        let mut load = Load::new(control.checkpoints.clone());
        while let Some(current) = &mut load {
            let mut reader = LogReader::new(&control.of_checkpoint(current.current.file), 0);
            let name = |n| DataFile::checkpoint(instance, n).to_string();
            read(files, &mut reader, name, |entry| rows.load(current, entry));
            current.current.check(&reader.end()).expect("as it is listed");
            current.is_newest = false;
            match current.rest.pop() {
                Some(next) => current.current = next,
                None => load = None,
            }
        }
        let mut reader = LogReader::new(&control, 0);
        read(files, &mut reader, |n| DataFile::redo(instance, n).to_string(), |entry| rows.replay(entry));
        let (saved, highest) = (rows.saved, reader.highest().0.max(rows.highest).max(rows.saved));
        said.saved = said.saved.min(saved);
        said.highest = said.highest.max(highest).max(control.void.iter().map(|v| v.1.0).max().unwrap_or(0));
        said.filling = said.filling.max(control.filling);
        said.base = control.base;
        are_complete &= control.complete.is_some();
        from = from.max(control.complete.unwrap_or_default().0);
    }
    let restored = said.saved;
    said.rows.retain(|_, (epoch, image)| *epoch <= restored && !image.is_empty());
    said.complete = are_complete.then_some(from);
    said
}

fn read(files: &Files, reader: &mut LogReader, name: impl Fn(u32) -> String, mut take: impl FnMut(&Entry<'_>)) {
    loop {
        match reader.step() {
            Step::Entry(entry) => take(&entry),
            Step::Read { segment, at, count } => {
                let bytes = files.clone().read(&name(segment), at, count).expect("it does not die");
                reader.feed(segment, at, count, &bytes);
            }
            Step::Ended => return,
            Step::Damaged(damage) => panic!("{damage}"),
        }
    }
}

/// A plain replay: what is committed and not void, as far as the directory's `saved`, which no row of these tests is above in its last change.
struct Rows<'a> {
    said: &'a mut Said,
    workers: u8,
    instance: u8,
    void: Vec<(Epoch, Epoch)>,
    unended: BTreeMap<TransId, Vec<(Chain, u32, Vec<u8>, u16)>>,
    saved: u64,
    highest: u64,
}

impl<'a> Rows<'a> {
    fn new(said: &'a mut Said, workers: u8, control: &Control) -> Rows<'a> {
        let (void, unended) = (control.void.clone(), BTreeMap::new());
        Rows { said, workers, instance: control.id.instance, void, unended, saved: 0, highest: 0 }
    }
    fn put(&mut self, partition: PartitionId, row: u32, epoch: Epoch, image: &[u8]) {
        assert_eq!(partition.0 % u16::from(self.workers), self.instance.into(), "a row is in the log of another");
        let at = self.said.rows.entry((partition.0, row)).or_default();
        if at.0 <= epoch.0 {
            *at = (epoch.0, image.to_vec());
        }
    }
    fn copied(&mut self, partition: PartitionId, count: u16, rows: &[u8], all: bool) {
        let mut reader = Reader::new(rows);
        for _ in 0..count {
            let row = CopiedRow::decode(&mut reader).expect("as it was written");
            if all || !self.is_void(row.epoch) {
                self.put(partition, row.row, row.epoch, row.image);
            }
        }
    }
    fn is_void(&self, epoch: Epoch) -> bool {
        self.void.iter().any(|(from, to)| *from <= epoch && epoch < *to)
    }
    fn load(&mut self, load: &mut Load, entry: &Entry<'_>) {
        match *entry {
            Entry::Fragment { partition, table, pages } => load.on_fragment(table, partition, pages),
            Entry::Page { partition, table, page } => load.on_page(table, partition, page),
            Entry::Copied { partition, count, rows, .. } if load.takes => self.copied(partition, count, rows, true),
            Entry::Commits { ids } if load.is_newest => {
                self.said.commits.extend(Entry::commits(ids).map(|t| (0, t.seq)))
            }
            _ => {}
        }
    }
    fn replay(&mut self, entry: &Entry<'_>) {
        match *entry {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                self.unended.entry(trans).or_default().push((chain, savepoint, rows.to_vec(), count));
            }
            Entry::Abort { trans, chain, savepoint } => {
                self.unended.entry(trans).or_default().retain(|b| b.0 != chain || b.1 < savepoint);
            }
            Entry::Commit { trans, epoch, .. } => {
                let batches = self.unended.remove(&trans).unwrap_or_default();
                if self.is_void(epoch) {
                    return;
                }
                self.said.commits.insert((epoch.0, trans.seq));
                for (_, _, rows, count) in batches {
                    let mut reader = Reader::new(&rows);
                    for _ in 0..count {
                        let row = PreparedRow::decode(&mut reader).expect("as it was written");
                        self.put(row.partition, row.row, epoch, row.image.unwrap_or_default());
                    }
                }
            }
            Entry::Copied { partition, count, rows, .. } => self.copied(partition, count, rows, false),
            Entry::Restart { restored, begins } => {
                self.unended.clear();
                self.void.retain(|range| *range != (Epoch(restored.0 + 1), begins));
                (self.saved, self.highest) = (restored.0, self.highest.max(begins.0));
            }
            Entry::Saved { epoch, .. } => self.saved = epoch.0,
            Entry::Commits { ids } => assert!(ids.is_empty(), "which of them are restored nobody knows"),
            Entry::Fragment { .. } | Entry::Page { .. } => panic!("in a log"),
        }
    }
}

/// A log that is being written.
struct Log {
    control: Control,
    writer: Writer,
    epoch: u64,
}

fn trans(seq: u64) -> TransId {
    TransId { client: 1, seq }
}

impl Log {
    fn new(instance: u8) -> Log {
        let id = LogId { cluster: 5, node: NODE, instance, kind: LogKind::Redo };
        let control = Control { complete: Some(Epoch(0)), ..Control::empty(id, SEGMENT) };
        Log { writer: Writer::new(&control), control, epoch: 0 }
    }
    fn add(&mut self, files: &mut Files, entry: &Entry<'_>) {
        self.writer.append(entry);
        while self.writer.buffered() > 0 {
            let Some(block) = self.writer.take(Epoch(self.epoch), Vec::new()) else {
                self.control.segments.push(self.control.next);
                self.writer.add_segment(self.control.next, None);
                self.control.next += 1;
                continue;
            };
            let name = DataFile::redo(self.control.id.instance, block.segment).to_string();
            files.write(&name, block.at, &block.bytes).expect("it does not die");
        }
    }
    /// Rows of a transaction: partition, row, image.
    fn prepare(&mut self, files: &mut Files, seq: u64, savepoint: u32, rows: &[(u16, u32, &str)]) {
        let mut bytes = Vec::new();
        for &(partition, row, image) in rows {
            let image = (!image.is_empty()).then_some(image.as_bytes());
            let partition = PartitionId(partition);
            PreparedRow { partition, table: TABLE, schema_version: 1, row, key: b"k", image }.encode(&mut bytes);
        }
        let (count, rows) = (rows.len() as u16, bytes.as_slice());
        self.add(files, &Entry::Prepare { trans: trans(seq), chain: Chain(0x0403), savepoint, count, rows });
    }
    fn commit(&mut self, files: &mut Files, seq: u64, epoch: u64) {
        self.epoch = epoch;
        self.add(files, &Entry::Commit { trans: trans(seq), chain: Chain(0x0403), epoch: Epoch(epoch) });
    }
    fn abort(&mut self, files: &mut Files, seq: u64, savepoint: u32) {
        self.add(files, &Entry::Abort { trans: trans(seq), chain: Chain(0x0403), savepoint });
    }
    fn saved(&mut self, files: &mut Files, epoch: u64) {
        self.add(files, &Entry::Saved { epoch: Epoch(epoch), lineage: 2, generation: 9 });
        self.writer.synced(self.writer.sequence());
    }
    /// A page of a partition with one row each.
    fn checkpoint(&mut self, files: &mut Files, turn: u64, pages: &[(u16, u32, u32, &str)], seq: u64) {
        let file = self.control.next;
        self.control.next += 1;
        let of = self.control.of_checkpoint(file);
        let mut writer = Writer::new(&of);
        writer.add_segment(file, None);
        writer.append(&Entry::Commits { ids: &Entry::commit_id(trans(seq)) });
        for &(partition, page, row, image) in pages {
            let partition = PartitionId(partition);
            writer.append(&Entry::Fragment { partition, table: TABLE, pages: 2 });
            writer.append(&Entry::Page { partition, table: TABLE, page });
            let mut rows = Vec::new();
            CopiedRow { epoch: Epoch(turn), row, key: b"k", image: image.as_bytes() }.encode(&mut rows);
            writer.append(&Entry::Copied { partition, table: TABLE, count: 1, rows: &rows });
        }
        let block = writer.take(Epoch(turn), Vec::new()).expect("it has something");
        let name = DataFile::checkpoint(self.control.id.instance, file).to_string();
        files.write(&name, 0, &block.bytes).expect("it does not die");
        let place = writer.place();
        self.control.checkpoints.push(Checkpoint {
            file,
            turn,
            epoch: Epoch(turn),
            bytes: block.bytes.len() as u64,
            sequence: place.sequence,
            checksum: place.previous,
        });
    }
    fn end(self, files: &mut Files) {
        files.put(&Layout::default().control_file(self.control.id.instance), &self.control.encode()).expect("lives");
    }
}

/// Two logs with all there is in logs: checkpoints of which the older has pages that the newer has not, savepoints, a suffix that was given up and of which one log has the mark and the
/// other only the control file's word, a transaction on both logs, others that did not end, and more bytes than a segment.
fn directory() -> Files {
    let mut files = Files::default();
    let (mut a, mut b) = (Log::new(0), Log::new(1));
    a.checkpoint(&mut files, 3, &[(0, 0, 1, "old"), (2, 1, 300, "only here"), (4, 0, 9, "four")], 70);
    a.checkpoint(&mut files, 5, &[(0, 0, 2, "new"), (2, 0, 4, "two"), (4, 0, 9, "fourth")], 71);
    b.checkpoint(&mut files, 4, &[(1, 0, 5, "one")], 72);
    a.prepare(&mut files, 1, 1, &[(0, 10, "a"), (2, 10, "b"), (4, 11, "c"), (6, 1, "six")]);
    b.prepare(&mut files, 1, 1, &[(1, 10, "a"), (3, 10, "b"), (5, 9, "nine")]);
    a.prepare(&mut files, 1, 2, &[(0, 11, "undone")]);
    b.prepare(&mut files, 1, 3, &[(3, 11, "kept")]);
    a.abort(&mut files, 1, 2);
    a.commit(&mut files, 1, 20);
    b.commit(&mut files, 1, 20);
    let large = "x".repeat(3000);
    for seq in 100..220 {
        let partition = (seq % 5) as u16;
        let log = if partition.is_multiple_of(2) { &mut a } else { &mut b };
        log.prepare(&mut files, seq, 1, &[(partition, seq as u32, &large)]);
        log.commit(&mut files, seq, 30);
    }
    a.saved(&mut files, 40);
    b.saved(&mut files, 40);
    // Given up: above 40.
    a.prepare(&mut files, 2, 1, &[(0, 10, "void")]);
    b.prepare(&mut files, 2, 1, &[(1, 10, "void")]);
    a.commit(&mut files, 2, 45);
    b.commit(&mut files, 2, 45);
    b.saved(&mut files, 46);
    a.prepare(&mut files, 3, 1, &[(2, 10, "never")]);
    a.add(&mut files, &Entry::Restart { restored: Epoch(40), begins: Epoch(1000) });
    a.commit(&mut files, 3, 1001);
    a.prepare(&mut files, 4, 1, &[(2, 10, "later"), (4, 11, "")]);
    a.commit(&mut files, 4, 1001);
    let mut copied = Vec::new();
    CopiedRow { epoch: Epoch(35), row: 1, key: b"k", image: b"copied" }.encode(&mut copied);
    CopiedRow { epoch: Epoch(45), row: 2, key: b"k", image: b"void" }.encode(&mut copied);
    b.add(&mut files, &Entry::Copied { partition: PartitionId(5), table: TABLE, count: 2, rows: &copied });
    (a.control.void, b.control.void) = (vec![(Epoch(41), Epoch(1000))], vec![(Epoch(41), Epoch(1000))]);
    a.saved(&mut files, 1002);
    b.prepare(&mut files, 5, 1, &[(1, 10, "not ended")]);
    a.control.complete = Some(Epoch(5));
    a.end(&mut files);
    b.end(&mut files);
    files
}

fn open(files: &mut Files, workers: u8) -> Result<reshape::Logs, String> {
    reshape::open(files, &Vault::default(), NODE, workers, 2, &mut |_| ())
}

#[test]
fn the_logs_of_any_number_of_workers_say_the_same() {
    let before = said(&directory());
    assert_eq!((before.saved, before.complete, before.highest), (46, Some(5), 1002));
    assert_eq!(before.rows[&(0, 10)], (20, b"a".to_vec()), "what came later is void, or not saved by all");
    assert_eq!(before.rows.get(&(5, 2)), None);
    assert_eq!(before.rows[&(2, 300)], (3, b"only here".to_vec()));
    let commits: Vec<u64> = before.commits.iter().map(|commit| commit.1).collect();
    assert!(!commits.contains(&70) && !commits.contains(&2), "of an older checkpoint, and given up");
    assert!(commits.contains(&71) && before.commits.contains(&(1001, 4)));
    for counts in [[1, 2, 1], [3, 2, 5], [5, 1, 4], [16, 3, 2]] {
        let mut files = directory();
        for workers in counts {
            let logs = open(&mut files, workers).expect("the disk does what it should");
            assert_eq!((logs.layout.workers, logs.damage.as_str()), (workers, ""));
            assert_eq!(said(&files).differs(&before), "", "{workers} of {counts:?}");
            let names = files.files.keys().filter(|name| Layout::parse(name).is_some()).count();
            assert_eq!(names, workers.into(), "nothing else is left");
        }
        let count = files.files.len();
        open(&mut files, counts[2]).expect("nothing is to be done");
        assert_eq!(files.files.len(), count);
    }
}

/// And the next process has the number of before, a third one, or dies, too.
#[test]
fn it_may_die_at_any_request() {
    let before = said(&directory());
    let mut whole = Files { requests: 0, ..directory() };
    open(&mut whole, 3).expect("it lives");
    let requests = whole.requests;
    assert!(requests > 50, "{requests}");
    for dies in 0..requests {
        let mut files = Files { left: Some(dies), ..directory() };
        assert!(open(&mut files, 3).is_err(), "{dies} of {requests} requests");
        for workers in [3, 2, 1] {
            let mut again = Files { left: Some(dies / 2), ..files.clone() };
            drop(open(&mut again, workers));
            again.left = None;
            let logs = open(&mut again, workers).expect("it lives");
            assert_eq!(logs.damage, "");
            assert_eq!(said(&again).differs(&before), "", "{dies} of {requests} requests, then {workers} workers");
            let listed = |name: &String| DataFile::parse(name).is_none_or(|file| is_listed(&again, file));
            assert!(again.files.keys().all(listed), "files are left that nobody lists");
            assert!(!again.files.contains_key("workers-change"));
        }
    }
}

fn is_listed(files: &Files, file: DataFile) -> bool {
    let layout = Layout::current(files.files.keys().map(String::as_str), 0).expect("there are logs");
    let Some(content) = files.files.get(&layout.control_file(file.instance)) else { return false };
    let control = Control::decode(content, &Vault::default()).expect("it is whole");
    control.segments.contains(&file.number) || control.checkpoints.iter().any(|c| c.file == file.number)
}

/// What a log that was being filled says of itself is so afterwards, or is not known any more.
#[test]
fn a_node_that_was_being_filled_can_say_so_afterwards() {
    let filled = |change: fn(&mut Control, &mut Control)| {
        let mut files = directory();
        let [mut a, mut b] =
            [0, 1].map(|i| Control::decode(&files.files[&format!("redo-{i}.ctl")], &Vault::default()).expect("whole"));
        change(&mut a, &mut b);
        files.put("redo-0.ctl", &a.encode()).expect("it lives");
        files.put("redo-1.ctl", &b.encode()).expect("it lives");
        open(&mut files, 1).expect("it lives");
        let said = said(&files);
        (said.complete, said.base, said.filling)
    };
    let base = filled(|a, b| {
        for control in [a, b] {
            (control.complete, control.base, control.filling) = (None, Some((Epoch(30), 2)), 77);
        }
    });
    assert_eq!(base, (None, Some((Epoch(30), 2)), 77));
    let one = filled(|_, b| (b.complete, b.base, b.filling) = (None, Some((Epoch(30), 2)), 77));
    assert_eq!(one, (None, None, 77), "it is joined with nothing");
    assert_eq!(filled(|a, _| a.complete = Some(Epoch(44))), (Some(44), None, 0));
}

#[test]
fn logs_that_are_damaged_stay_and_are_told_of() {
    let mut files = directory();
    let name = DataFile::redo(1, 2).to_string();
    let byte = &mut files.files.get_mut(&name).expect("it has a segment")[100];
    *byte ^= 1;
    let before = files.files.clone();
    for workers in [1, 3] {
        let logs = open(&mut files, workers).expect("the disk does what it should");
        assert!(logs.damage.starts_with("of 2 workers: "), "{}", logs.damage);
        assert_eq!((logs.layout, logs.next > 2), (Layout { workers, change: 1 }, true));
        let is_there = |(name, content): (&String, &Vec<u8>)| files.files.get(name) == Some(content);
        assert!(before.iter().all(is_there), "what a disk that rots has kept is for people");
    }
    let mut lacks = directory();
    lacks.files.remove("redo-1.ctl");
    assert!(open(&mut lacks, 1).is_ok_and(|logs| logs.damage.contains("missing")), "the view has told of two");
    let logs = reshape::open(&mut Files::default(), &Vault::default(), NODE, 4, 2, &mut |_| ()).expect("it lives");
    assert_eq!((logs.layout, logs.damage.as_str()), (Layout { workers: 4, change: 0 }, ""), "a new directory");
}

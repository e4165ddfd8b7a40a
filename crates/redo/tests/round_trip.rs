//! What a writer puts on a disk a reader takes from it, whatever is cut off.

use std::collections::BTreeMap;

use apus_redo::{BLOCK_ALIGN, Control, Entry, LogId, LogKind, Reader, Step, Vault, Writer};
use apus_signal::file::seal;
use apus_types::{Chain, Epoch, NodeId, PartitionId, TableId, TransId};

/// Small ones, so that there are several.
const SEGMENT_BYTES: u64 = 4 << 20;
const ID: LogId = LogId { cluster: 7, node: NodeId(1), instance: 0, kind: LogKind::Redo };

/// Segments by number.
type Disk = BTreeMap<u32, Vec<u8>>;

/// What becomes of a block.
type Spoil<'a> = &'a dyn Fn(&mut [u8]);

struct Log {
    control: Control,
    writer: Writer,
    disk: Disk,
    /// Where each block is: segment, offset, length.
    blocks: Vec<(u32, usize, usize)>,
}

impl Log {
    fn new() -> Log {
        let control = Control::empty(ID, SEGMENT_BYTES);
        Log { writer: Writer::new(&control), control, disk: Disk::new(), blocks: Vec::new() }
    }
    fn write(&mut self, epoch: u64) {
        loop {
            if self.writer.room() < SEGMENT_BYTES {
                let number = self.control.next;
                self.control.next += 1;
                self.control.segments.push(number);
                self.writer.add_segment(number, None);
            }
            let Some(block) = self.writer.take(Epoch(epoch), Vec::new()) else { return };
            let file = self.disk.entry(block.segment).or_default();
            let (at, length) = (block.at as usize, block.bytes.len());
            assert!(at.is_multiple_of(BLOCK_ALIGN) && length.is_multiple_of(BLOCK_ALIGN));
            file.resize(file.len().max(at + length), 0);
            file[at..at + length].copy_from_slice(&block.bytes);
            self.blocks.push((block.segment, at, length));
        }
    }
    fn sync(&mut self) {
        let newest = self.writer.sequence();
        self.writer.synced(newest);
    }
    fn read(&self) -> (Vec<String>, Result<Reader, String>) {
        read(&self.control, &self.disk, 0)
    }
}

fn read(control: &Control, disk: &Disk, first: usize) -> (Vec<String>, Result<Reader, String>) {
    let mut reader = Reader::new(control, first);
    let mut entries = Vec::new();
    loop {
        let (segment, at, count) = match reader.step() {
            Step::Entry(entry) => {
                entries.push(format!("{entry:?}"));
                continue;
            }
            Step::Read { segment, at, count } => (segment, at, count),
            Step::Ended => return (entries, Ok(reader)),
            Step::Damaged(damage) => return (entries, Err(damage.to_string())),
        };
        let file = disk.get(&segment).map_or(&[][..], Vec::as_slice);
        let from = (at as usize).min(file.len());
        let to = (from + count as usize).min(file.len());
        reader.feed(segment, at, count, &file[from..to]);
    }
}

fn trans(seq: u64) -> TransId {
    TransId { client: 3, seq }
}
fn chain() -> Chain {
    Chain::new(&[NodeId(1), NodeId(2)])
}

/// Entries of all kinds and of many sizes, from the number.
fn append(log: &mut Log, number: u64) -> String {
    let bytes = vec![number as u8; (number * 7919 % 3000) as usize];
    let rows = if number % 97 == 5 { vec![number as u8; 700_000] } else { bytes };
    let entry = match number % 6 {
        0 => Entry::Commit { trans: trans(number), chain: chain(), epoch: Epoch(number) },
        1 => Entry::Abort { trans: trans(number), chain: chain(), savepoint: number as u32 },
        2 => Entry::Copied { partition: PartitionId(1), table: TableId(9), count: 4, rows: &rows },
        3 => Entry::Saved { epoch: Epoch(number), lineage: 1, generation: 2 },
        4 => Entry::Restart { restored: Epoch(number), begins: Epoch(number + 1) },
        _ => Entry::Prepare { trans: trans(number), chain: chain(), savepoint: 1, count: 2, rows: &rows },
    };
    log.writer.append(&entry);
    format!("{entry:?}")
}

#[test]
fn what_is_written_is_read() {
    let mut log = Log::new();
    let mut expected = Vec::new();
    for number in 0..4_000 {
        expected.push(append(&mut log, number));
        if number % 53 == 0 {
            log.write(number);
        }
    }
    log.write(99);
    assert_eq!(log.writer.buffered(), 0);
    assert!(log.control.segments.len() > 3, "{:?}", log.control.segments);
    let (entries, end) = log.read();
    let end = end.expect("nothing is damaged");
    assert_eq!(entries.len(), expected.len());
    assert_eq!(entries, expected);
    assert!(end.highest() > Epoch(3900));
    // From any segment on, with whole entries.
    let (tail, _) = read(&log.control, &log.disk, 2);
    assert!(expected.ends_with(&tail) && !tail.is_empty());
    // And on from the end, over another process.
    log.writer = Writer::resume(&log.control, &end.end());
    expected.push(append(&mut log, 3));
    log.write(100);
    assert_eq!(log.read().0, expected);
}

#[test]
fn a_tail_that_was_not_synced_ends_the_log_and_one_that_was_is_damage() {
    let (mut log, mut synced) = (Log::new(), 0);
    for number in 0..40 {
        append(&mut log, number);
        log.write(number);
        if number == 20 {
            log.sync();
            synced = log.writer.sequence();
        }
    }
    let (all, _) = log.read();
    for (number, &(segment, at, length)) in log.blocks.clone().iter().enumerate() {
        let file = log.disk[&segment].clone();
        let spoilt = log.disk.get_mut(&segment).expect("it was written");
        // A rotten bit, a block that never came, a torn one.
        let kinds: [Spoil; 3] =
            [&|b| b[70] ^= 1, &|b| b.fill(0), &|b| b.iter_mut().skip(BLOCK_ALIGN).for_each(|b| *b = 0)];
        for (kind, spoil) in kinds.iter().enumerate() {
            if kind == 2 && length == BLOCK_ALIGN {
                continue;
            }
            spoil(&mut spoilt[at..at + length]);
            let (entries, end) = read(&log.control, &BTreeMap::from([(segment, spoilt.clone())]), 0);
            assert!(all.starts_with(&entries) && entries.len() < all.len());
            match end {
                Err(damage) => assert!(damage.contains("was synced") && (number as u64) < synced, "{number}: {damage}"),
                Ok(_) => assert!(number as u64 >= synced, "block {number}, kind {kind}"),
            }
            spoilt.copy_from_slice(&file);
        }
    }
}

#[test]
fn a_block_in_another_place_is_none() {
    let mut log = Log::new();
    for number in [6, 12, 18] {
        append(&mut log, number);
        log.write(number);
        log.sync();
    }
    let (segment, at, length) = log.blocks[1];
    let file = log.disk.get_mut(&segment).expect("it was written");
    let (_, to, _) = log.blocks[0];
    let block = file[at..at + length].to_vec();
    file[to..to + length].copy_from_slice(&block);
    assert!(log.read().1.is_err(), "misdirected");
    let mut other = log.control.clone();
    other.id.node = NodeId(2);
    assert!(read(&other, &log.disk, 0).0.is_empty(), "another node's file");
}

#[test]
fn control_files_round_trip_and_refuse() {
    let control = Control {
        complete: Some(Epoch(4)),
        void: vec![(Epoch(5), Epoch(9))],
        segments: vec![3, 4],
        next: 5,
        ..Control::empty(ID, SEGMENT_BYTES)
    };
    let content = control.encode();
    // Version 1 ends before the checkpoints.
    let mut old = content[16..content.len() - 64].to_vec();
    old[..2].copy_from_slice(&1u16.to_le_bytes());
    assert_eq!(Control::decode(&seal(*b"APUSRDC1", &old), &Vault::default()), Ok(control.clone()));
    // Version 2 ends before the base.
    let mut old = content[16..content.len() - 28].to_vec();
    old[..2].copy_from_slice(&2u16.to_le_bytes());
    assert_eq!(Control::decode(&seal(*b"APUSRDC1", &old), &Vault::default()), Ok(control.clone()));
    // Version 3 ends before the process.
    let mut old = content[16..content.len() - 12].to_vec();
    old[..2].copy_from_slice(&3u16.to_le_bytes());
    assert_eq!(Control::decode(&seal(*b"APUSRDC1", &old), &Vault::default()), Ok(control.clone()));
    // Version 4 ends before the keys.
    let mut old = content[16..content.len() - 4].to_vec();
    old[..2].copy_from_slice(&4u16.to_le_bytes());
    assert_eq!(Control::decode(&seal(*b"APUSRDC1", &old), &Vault::default()), Ok(control.clone()));
    old[..2].copy_from_slice(&6u16.to_le_bytes());
    assert!(
        Control::decode(&seal(*b"APUSRDC1", &old), &Vault::default())
            .is_err_and(|why| why.to_string().contains("version 6"))
    );
    assert_eq!(Control::decode(&content, &Vault::default()), Ok(control.clone()));
    let filled = Control { base: Some((Epoch(3), 77)), complete: None, filling: 9, ..control };
    assert_eq!(Control::decode(&filled.encode(), &Vault::default()), Ok(filled));
    for at in 0..content.len() {
        assert!(Control::decode(&content[..at], &Vault::default()).is_err(), "cut off at {at}");
        let mut bad = content.clone();
        bad[at] ^= 1;
        assert!(Control::decode(&bad, &Vault::default()).is_err(), "byte {at}");
    }
}

/// A log that begins later has the entries from there on, and of one that was cut into pieces before that place nothing.
#[test]
fn a_log_begins_at_any_place_that_was_noted() {
    let (mut log, mut places, mut expected) = (Log::new(), Vec::new(), Vec::new());
    for number in 0..1_500 {
        places.push(log.writer.place());
        expected.push(append(&mut log, number));
        if number % 53 == 0 {
            log.write(number);
            log.sync();
        }
    }
    log.write(99);
    let mut begins_late = 0;
    for (number, place) in places.into_iter().enumerate().step_by(61) {
        let first = log.control.segments.iter().position(|n| *n == place.segment).unwrap_or(0);
        let control = Control { start: place, segments: log.control.segments[first..].to_vec(), ..log.control.clone() };
        let (entries, end) = read(&control, &log.disk, 0);
        end.unwrap_or_else(|damage| panic!("entry {number} at {place:?}: {damage}"));
        assert!(
            expected.ends_with(&entries) && entries.len() >= expected.len() - number,
            "{number}: {}",
            entries.len()
        );
        begins_late += usize::from(entries.len() < expected.len());
        // Without its first block it is damaged, not shorter.
        let mut disk = log.disk.clone();
        let gone = log.blocks.iter().find(|block| (block.0, block.1 as u64) >= (place.segment, place.at));
        let &(segment, at, length) = gone.expect("a block is behind each place");
        disk.get_mut(&segment).expect("written")[at..at + length].fill(0);
        let is_synced = number < 1_000;
        assert!(read(&control, &disk, 0).1.is_err() || !is_synced || place.sequence == 0, "{number} at {place:?}");
    }
    assert!(begins_late > 10, "{begins_late}");
}

#[test]
fn a_checkpoint_is_no_segment() {
    let mut log = Log::new();
    let of = log.control.of_checkpoint(1);
    let mut writer = Writer::new(&of);
    writer.add_segment(1, None);
    let (partition, table) = (PartitionId(3), TableId(4));
    let ids: Vec<u8> = [trans(1), trans(2)].iter().flat_map(|trans| Entry::commit_id(*trans)).collect();
    let entries = [
        Entry::Commits { ids: &ids },
        Entry::Fragment { partition, table, pages: 9 },
        Entry::Page { partition, table, page: 7 },
        Entry::Copied { partition, table, count: 1, rows: b"rows" },
    ];
    entries.iter().for_each(|entry| writer.append(entry));
    assert_eq!(Entry::commits(&ids).collect::<Vec<_>>(), [trans(1), trans(2)]);
    let block = writer.take(Epoch(4), Vec::new()).expect("a block");
    log.disk.insert(1, block.bytes);
    let (read_back, end) = read(&of, &log.disk, 0);
    assert_eq!(read_back, entries.map(|entry| format!("{entry:?}")));
    let (end, place) = (end.expect("whole").end(), writer.place());
    assert_eq!((end.at, end.sequence, end.previous), (place.at, place.sequence, place.previous));
    log.control.segments = vec![1];
    assert!(log.read().0.is_empty(), "a checkpoint is read as a segment");
}

//! Segments that are missing, cut off, swapped or another node's, and what a process leaves that was killed before it had synced.

use std::collections::BTreeMap;

use apus_redo::{Control, Damage, End, Entry, LogId, LogKind, Reader, Step, Writer};
use apus_types::{Epoch, NodeId, PartitionId, TableId};

const ID: LogId = LogId { cluster: 7, node: NodeId(1), instance: 0, kind: LogKind::Redo };
const SEGMENT: u64 = 256 << 10;
/// Entries of a quarter of a segment.
const ROWS: usize = 60 << 10;

#[derive(Clone)]
struct Log {
    control: Control,
    files: BTreeMap<u32, Vec<u8>>,
    /// Segment, place and length of each block.
    blocks: Vec<(u32, u64, usize)>,
}

fn append(writer: &mut Writer, number: u8) {
    let rows = vec![number; ROWS];
    writer.append(&Entry::Copied { partition: PartitionId(1), table: TableId(1), count: 1, rows: &rows });
}

impl Log {
    fn new(id: LogId) -> (Log, Writer) {
        let control = Control::empty(id, SEGMENT);
        let writer = Writer::new(&control);
        (Log { control, files: BTreeMap::new(), blocks: Vec::new() }, writer)
    }
    fn write(&mut self, writer: &mut Writer) {
        loop {
            if writer.room() < SEGMENT {
                writer.add_segment(self.control.next, None);
                self.control.segments.push(self.control.next);
                self.control.next += 1;
            }
            let Some(block) = writer.take(Epoch(5), Vec::new()) else { return };
            let file = self.files.entry(block.segment).or_default();
            let (from, to) = (block.at as usize, block.at as usize + block.bytes.len());
            file.resize(file.len().max(to), 0);
            file[from..to].copy_from_slice(&block.bytes);
            self.blocks.push((block.segment, block.at, block.bytes.len()));
        }
    }
    fn read(&self) -> (usize, Result<End, Damage>) {
        self.run(&mut Reader::new(&self.control, 0))
    }
    fn run(&self, reader: &mut Reader) -> (usize, Result<End, Damage>) {
        let mut entries = 0;
        loop {
            let (segment, at, count) = match reader.step() {
                Step::Entry(_) => {
                    entries += 1;
                    continue;
                }
                Step::Read { segment, at, count } => (segment, at, count),
                Step::Ended => return (entries, Ok(reader.end())),
                Step::Damaged(damage) => return (entries, Err(damage)),
            };
            let file = self.files.get(&segment).map_or(&[][..], Vec::as_slice);
            let from = (at as usize).min(file.len());
            reader.feed(segment, at, count, &file[from..(from + count as usize).min(file.len())]);
        }
    }
    fn lose(&mut self, block: usize) {
        let (segment, at, length) = self.blocks[block];
        self.files.get_mut(&segment).expect("written")[at as usize..at as usize + length].fill(0);
    }
}

/// Synced after each entry; the fourth segment has the last ones.
fn synced(id: LogId) -> Log {
    let (mut log, mut writer) = Log::new(id);
    for number in 0..14 {
        append(&mut writer, number);
        log.write(&mut writer);
        writer.synced(writer.sequence());
    }
    assert_eq!(log.blocks.last().map(|block| block.0), Some(4));
    log
}

#[test]
fn a_segment_before_the_last_that_is_not_as_it_was_is_damage() {
    let whole = synced(ID);
    let (count, end) = whole.read();
    assert!(count == 14 && end.is_ok());
    let other = synced(LogId { node: NodeId(2), ..ID });
    let judge = |what: &str, segment: u32, change: &dyn Fn(&mut Log)| {
        let mut log = whole.clone();
        change(&mut log);
        let (read, end) = log.read();
        let damage = end.expect_err(what);
        // Where a segment is gone from its start, the end of the one before it is named.
        assert!(damage.segment == segment || damage.segment + 1 == segment, "{what} {segment}: {damage}");
        assert!(read < count && damage.to_string().contains("synced"), "{what}: {damage}");
    };
    for segment in 1..=3 {
        judge("missing", segment, &|log| drop(log.files.remove(&segment)));
        judge("empty", segment, &|log| log.files.get_mut(&segment).expect("there").clear());
        judge("cut off", segment, &|log| log.files.get_mut(&segment).expect("there").truncate(70 << 10));
        judge("another node's", segment, &|log| drop(log.files.insert(segment, other.files[&segment].clone())));
        judge("a copy of the next", segment, &|log| drop(log.files.insert(segment, log.files[&(segment + 1)].clone())));
    }
    judge("swapped", 1, &|log| {
        let (one, two) = (log.files[&1].clone(), log.files[&2].clone());
        log.files.insert(1, two);
        log.files.insert(2, one);
    });
}

#[test]
fn what_a_killed_process_had_not_synced_may_be_lost_later() {
    // Its blocks were in the system's memory, and the next process has read them. Then the power fails: of blocks that are not synced any is lost.
    for lost in 2..6 {
        let (mut log, mut writer) = Log::new(ID);
        for number in 0..6 {
            append(&mut writer, number);
            log.write(&mut writer);
            if number == 1 {
                writer.synced(writer.sequence());
            }
        }
        let (read, end) = log.read();
        assert_eq!(read, 6);
        let mut writer = Writer::resume(&log.control, &end.expect("whole"));
        append(&mut writer, 6);
        log.write(&mut writer);
        assert_eq!(log.read().0, 7);
        log.lose(lost);
        let (read, end) = log.read();
        assert!(end.is_ok(), "block {lost} was promised to nobody: {end:?}");
        assert_eq!(read, lost);
    }
}

#[test]
fn what_nobody_says_was_synced_is_told() {
    for synced in 0..5u64 {
        let (mut log, mut writer) = Log::new(ID);
        for number in 0..6 {
            append(&mut writer, number);
            log.write(&mut writer);
            if writer.sequence() == synced {
                writer.synced(synced);
            }
        }
        for first in 0..2 {
            let mut reader = Reader::new(&log.control, first);
            assert!(log.run(&mut reader).1.is_ok());
            let skipped = log.blocks.iter().filter(|block| first > 0 && block.0 == 1).count();
            let told: Vec<_> = reader.unproven(1).iter().map(|p| (p.segment, p.at, p.bytes as usize)).collect();
            assert_eq!(told, log.blocks[skipped.max(synced as usize)..], "{synced} are synced, segment {first}");
            assert_eq!(reader.is_unproven_before(), skipped > synced as usize, "{synced} are synced, segment {first}");
            let joined = reader.unproven(u32::MAX);
            assert!(joined.len() < told.len() || told.len() < 2, "{joined:?}");
            assert_eq!(joined.iter().map(|p| p.bytes as usize).sum::<usize>(), told.iter().map(|b| b.2).sum::<usize>());
        }
    }
}

#[test]
fn a_bit_that_is_another_one_is_damage_wherever_it_is() {
    let log = synced(ID);
    let (segment, at, length) = log.blocks[0];
    // Of the header, the payload and the zeros up to the block's end.
    for place in [0, 5, 20, 63, 64, 100, length / 2, length - 1] {
        let mut rotten = log.clone();
        rotten.files.get_mut(&segment).unwrap()[at as usize + place] ^= 0x10;
        assert!(rotten.read().1.is_err(), "byte {place} of {length}");
    }
}

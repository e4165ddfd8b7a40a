//! Whatever bytes are on disk: they are read, end the log or are damage, and never end the process.
//!
//! 5,000 inputs each; `make fuzz` gives a million.
#![expect(clippy::disallowed_methods, reason = "a test that is run by hand for longer")]

use apus_redo::{BLOCK_ALIGN, Checkpoint, Control, Entry, LogId, LogKind, Place, Reader, Step, Useless, Vault, Writer};
use apus_signal::file::seal;
use apus_types::{Chain, Epoch, NodeId, PartitionId, TableId, TransId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const ID: LogId = LogId { cluster: 7, node: NodeId(1), instance: 3, kind: LogKind::Redo };
const SEGMENT: u64 = 1 << 20;

fn inputs() -> u64 {
    std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000)
}

/// splitmix64: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

struct Log {
    control: Control,
    /// Segments 1 and 2.
    files: [Vec<u8>; 2],
    entries: usize,
}

/// As a writer leaves it: nothing, all or a part of it synced.
fn log(random: &mut Random, writer_buffers: &mut Vec<Vec<u8>>) -> Log {
    let mut control = Control::empty(ID, SEGMENT);
    (control.segments, control.next) = (vec![1, 2], 3);
    let mut writer = Writer::new(&control);
    (1..=2).for_each(|number| writer.add_segment(number, None));
    let (mut files, mut entries) = ([Vec::new(), Vec::new()], 0);
    for n in 0..random.below(7) as u64 {
        let length = [random.below(300), random.below(9000)][random.below(2)];
        let rows = random.bytes(length);
        let (trans, chain) = (TransId { client: n, seq: n }, Chain(n as u32));
        let (partition, table) = (PartitionId(1), TableId(2));
        writer.append(&match random.below(6) {
            0 => Entry::Prepare { trans, chain, savepoint: 1, count: 2, rows: &rows },
            1 => Entry::Commit { trans, chain, epoch: Epoch(n) },
            2 => Entry::Abort { trans, chain, savepoint: 0 },
            3 => Entry::Copied { partition, table, count: 1, rows: &rows },
            4 => Entry::Saved { epoch: Epoch(n), lineage: 1, generation: 1 },
            _ => Entry::Restart { restored: Epoch(n), begins: Epoch(n + 1) },
        });
        entries += 1;
        if random.one_in(2) {
            write(&mut writer, &mut files, n, writer_buffers);
        }
        if random.one_in(2) {
            writer.synced(writer.sequence());
        }
    }
    write(&mut writer, &mut files, 9, writer_buffers);
    Log { control, files, entries }
}

fn write(writer: &mut Writer, files: &mut [Vec<u8>; 2], epoch: u64, buffers: &mut Vec<Vec<u8>>) {
    while let Some(block) = writer.take(Epoch(epoch), buffers.pop().unwrap_or_default()) {
        files[block.segment as usize - 1].extend_from_slice(&block.bytes);
        let mut bytes = block.bytes;
        bytes.clear();
        buffers.push(bytes);
    }
}

/// Entries, and whether the log is damaged.
fn read(control: &Control, files: &[Vec<u8>; 2], first: usize) -> (usize, bool) {
    let mut reader = Reader::new(control, first);
    let (mut entries, mut steps) = (0, 0);
    loop {
        steps += 1;
        assert!(steps < 100_000, "it goes on for ever");
        let (segment, at, count) = match reader.step() {
            Step::Entry(_) => {
                entries += 1;
                continue;
            }
            Step::Read { segment, at, count } => (segment, at, count),
            Step::Ended => return (entries, false),
            Step::Damaged(damage) => {
                assert!(!damage.reason.is_empty());
                return (entries, true);
            }
        };
        let file = files.get(segment.wrapping_sub(1) as usize).map_or(&[][..], Vec::as_slice);
        let from = (at as usize).min(file.len());
        reader.feed(segment, at, count, &file[from..(from + count as usize).min(file.len())]);
    }
}

/// The checksum of the block at a place is right again, if one is there.
fn mend((kind, segment): (LogKind, u32), at: usize, file: &mut [u8]) {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&ID.cluster.to_le_bytes());
    place[8..10].copy_from_slice(&ID.node.0.to_le_bytes());
    place[10] = ID.instance;
    place[11] = kind as u8;
    place[12..16].copy_from_slice(&segment.to_le_bytes());
    place[16..].copy_from_slice(&(at as u64).to_le_bytes());
    let Some(block) = file.get_mut(at..).filter(|block| block.len() >= 64) else { return };
    let payload = u32::from_le_bytes([block[8], block[9], block[10], block[11]]) as usize;
    let Some(content) = block.get(64..).and_then(|rest| rest.get(..payload)) else { return };
    let sum = xxh3_64_with_seed(content, xxh3_64_with_seed(&block[..56], xxh3_64(&place)));
    block[56..64].copy_from_slice(&sum.to_le_bytes());
}

fn spoil(random: &mut Random, of: (LogKind, u32), file: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let Some(last) = file.len().checked_sub(1) else { return };
        let page = random.below(file.len().div_ceil(BLOCK_ALIGN)) * BLOCK_ALIGN;
        let at = (page + [random.below(100), random.below(BLOCK_ALIGN)][random.below(2)]).min(last);
        match random.below(7) {
            0 => file[at] = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5)],
            1 => file[at] ^= 1 << random.below(8),
            2 => file.truncate(at),
            3 => file[page..(page + BLOCK_ALIGN).min(last + 1)].fill(0),
            4 => {
                let number = [0, u64::MAX, random.next()][random.below(3)].to_le_bytes();
                let to = (at + 8).min(last);
                file[at..to].copy_from_slice(&number[..to - at]);
            }
            5 => {
                let from = random.below(file.len().div_ceil(BLOCK_ALIGN)) * BLOCK_ALIGN;
                let block = file[from..(from + BLOCK_ALIGN).min(last + 1)].to_vec();
                let to = (page + block.len()).min(last + 1);
                file[page..to].copy_from_slice(&block[..to - page]);
            }
            _ => {
                let length = random.below(200);
                file.extend(random.bytes(length));
            }
        }
        if random.one_in(2) {
            mend(of, page, file);
        }
    }
}

#[test]
fn segments() {
    let mut random = Random(830_400_000);
    let (mut whole, mut ended, mut damaged, mut buffers) = (0, 0, 0, Vec::new());
    for _ in 0..inputs() {
        let Log { control, mut files, entries } = log(&mut random, &mut buffers);
        assert_eq!(read(&control, &files, 0), (entries, false));
        for (number, file) in (1..).zip(&mut files) {
            spoil(&mut random, (LogKind::Redo, number), file);
        }
        if random.one_in(8) {
            files.swap(0, 1);
        }
        read(&control, &files, 1);
        match read(&control, &files, 0) {
            (read, false) if read == entries => whole += 1,
            (_, false) => ended += 1,
            (_, true) => damaged += 1,
        }
    }
    let least = inputs() / 50;
    assert!(whole > least && ended > least && damaged > least, "{whole} {ended} {damaged}");
}

#[test]
fn control_files() {
    let mut random = Random(830_500_000);
    let mut read = 0;
    for _ in 0..inputs() {
        let mut body = Vec::new();
        for _ in 0..random.below(16) {
            let number = [0, 1, 2, 3, u64::from(u32::MAX), random.next()][random.below(6)];
            body.extend_from_slice(&number.to_le_bytes()[..[1, 2, 4, 8][random.below(4)]]);
        }
        if random.one_in(2) {
            body.splice(..2.min(body.len()), (1 + random.below(2) as u16).to_le_bytes());
        }
        let content = seal(*b"APUSRDC1", &body);
        read +=
            u64::from(Control::decode(&content, &Vault::default()).is_ok_and(|control| control.encode() == content));
        let _ = Control::decode(&body, &Vault::default());
    }
    // And one that is right but for a byte of its body.
    let mut control = Control::empty(ID, SEGMENT);
    control.start = Place { segment: 1, at: 4096, sequence: 1, previous: 7 };
    control.useless = vec![Useless::Segment(9), Useless::Checkpoint(8)];
    let (file, turn, epoch, bytes, sequence, checksum) = (7, 3, Epoch(5), 8192, 2, 11);
    control.checkpoints = vec![Checkpoint { file, turn, epoch, bytes, sequence, checksum }; 2];
    assert_eq!(Control::decode(&control.encode(), &Vault::default()), Ok(control.clone()));
    (control.segments, control.void) = (vec![1, 2, 3], vec![(Epoch(4), Epoch(9))]);
    let body = control.encode()[16..].to_vec();
    for _ in 0..inputs() {
        let mut body = body.clone();
        let at = random.below(body.len());
        body[at] = [0, 1, 0xff, random.next() as u8][random.below(4)];
        read += u64::from(Control::decode(&seal(*b"APUSRDC1", &body), &Vault::default()).is_ok());
    }
    assert!(read > inputs() / 10, "{read}");
}

/// A file that is not as it was written does not end where the control file says.
#[test]
fn checkpoints() {
    let mut random = Random(830_600_000);
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..inputs() {
        let control = Control::empty(ID, SEGMENT).of_checkpoint(1);
        let mut writer = Writer::new(&control);
        writer.add_segment(1, None);
        let (partition, table) = (PartitionId(1), TableId(2));
        let (mut files, mut entries) = ([Vec::new(), Vec::new()], 0);
        for page in 0..1 + random.below(5) as u32 {
            let length = random.below(9000);
            let rows = random.bytes(length);
            writer.append(&Entry::Page { partition, table, page });
            writer.append(&Entry::Copied { partition, table, count: 1, rows: &rows });
            entries += 2;
            if random.one_in(2) {
                write(&mut writer, &mut files, 1, &mut Vec::new());
            }
        }
        write(&mut writer, &mut files, 1, &mut Vec::new());
        spoil(&mut random, (LogKind::Checkpoint, 1), &mut files[0]);
        let mut reader = Reader::new(&control, 0);
        let mut got = 0;
        let is_ended = loop {
            match reader.step() {
                Step::Entry(_) => got += 1,
                Step::Read { segment, at, count } => {
                    let from = (at as usize).min(files[0].len());
                    let to = (from + count as usize).min(files[0].len());
                    reader.feed(segment, at, count, &files[0][from..to]);
                }
                Step::Ended => break true,
                Step::Damaged(_) => break false,
            }
        };
        let (end, place) = (reader.end(), writer.place());
        let is_listed = is_ended && (end.at, end.sequence, end.previous) == (place.at, place.sequence, place.previous);
        if is_listed {
            assert_eq!(got, entries);
            whole += 1;
        } else {
            refused += 1;
        }
    }
    assert!(whole > inputs() / 50 && refused > inputs() / 50, "{whole} {refused}");
}

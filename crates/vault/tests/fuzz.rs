//! As `crates/redo/tests/fuzz.rs`, of encrypted logs: whatever bytes are on disk, they are read, end the log or are damage. Also what the right key has sealed and no writer has
//! written.
//!
//! 2,000 inputs each; `make fuzz` gives a million.

use apus_redo::{
    BLOCK_ALIGN, Control, Entry, LogId, LogKind, Reader, Step, Vault, Writer,
    key::{FileKey, TAG_BYTES},
};
use apus_types::{Chain, Epoch, NodeId, PartitionId, TableId, TransId};
use apus_vault::DiskKeys;

const ID: LogId = LogId { cluster: 7, node: NodeId(1), instance: 3, kind: LogKind::Redo };
const SEGMENT: u64 = 1 << 20;
const HEADER_BYTES: usize = 64;

fn inputs() -> u64 {
    std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
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

/// Segment 1 has a part in the clear and one that is encrypted, or is encrypted as a whole.
fn log(random: &mut Random, vault: &Vault) -> Log {
    let mut control = Control::empty(ID, SEGMENT);
    (control.segments, control.next) = (vec![1, 2], 3);
    let mut log = Log { control, files: [Vec::new(), Vec::new()], entries: 0 };
    if random.below(2) == 0 {
        let mut writer = Writer::new(&log.control);
        (1..=2).for_each(|number| writer.add_segment(number, None));
        log.fill(random, &mut writer);
    }
    let end = log.files[0].len() as u64;
    log.control.keys.set(1, end, vault.new_key());
    log.control.keys.set(2, 0, vault.new_key());
    let mut reader = Reader::new(&log.control, 0);
    let _ = log.run(&mut reader);
    let mut writer = Writer::resume(&log.control, &reader.end());
    log.fill(random, &mut writer);
    log
}

impl Log {
    fn fill(&mut self, random: &mut Random, writer: &mut Writer) {
        for n in 0..1 + random.below(5) as u64 {
            let length = [random.below(300), random.below(9000)][random.below(2)];
            let rows = random.bytes(length);
            let (trans, chain) = (TransId { client: n, seq: n }, Chain(n as u32));
            writer.append(&match random.below(3) {
                0 => Entry::Prepare { trans, chain, savepoint: 1, count: 2, rows: &rows },
                1 => Entry::Commit { trans, chain, epoch: Epoch(n) },
                _ => Entry::Copied { partition: PartitionId(1), table: TableId(2), count: 1, rows: &rows },
            });
            self.entries += 1;
            while let Some(block) = writer.take(Epoch(n), Vec::new()) {
                let file = &mut self.files[block.segment as usize - 1];
                file.resize(block.at as usize, 0);
                file.extend_from_slice(&block.bytes);
            }
            if random.below(2) == 0 {
                writer.synced(writer.sequence());
            }
        }
    }
    /// Entries, and whether the log is damaged.
    fn read(&self, first: usize) -> (usize, bool) {
        self.run(&mut Reader::new(&self.control, first))
    }
    fn run(&self, reader: &mut Reader) -> (usize, bool) {
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
            let file = self.files.get(segment.wrapping_sub(1) as usize).map_or(&[][..], Vec::as_slice);
            let from = (at as usize).min(file.len());
            reader.feed(segment, at, count, &file[from..(from + count as usize).min(file.len())]);
        }
    }
    /// What is in the block at this place is what its key has sealed there.
    fn mend(&mut self, segment: u32, at: usize) {
        let Some(FileKey(key)) = self.control.keys.of(segment, at as u64) else { return };
        let Some(block) = self.files[segment as usize - 1].get_mut(at..).filter(|b| b.len() >= HEADER_BYTES) else {
            return;
        };
        let payload = u32::from_le_bytes([block[8], block[9], block[10], block[11]]) as usize;
        let Some(block) = block.get_mut(..(HEADER_BYTES + payload).next_multiple_of(BLOCK_ALIGN)) else { return };
        let (head, content) = block.split_at_mut(HEADER_BYTES);
        let mut context = head[..HEADER_BYTES - TAG_BYTES].to_vec();
        context.extend_from_slice(&ID.cluster.to_le_bytes());
        context.extend_from_slice(&ID.node.0.to_le_bytes());
        context.extend_from_slice(&[ID.instance, ID.kind as u8]);
        context.extend_from_slice(&segment.to_le_bytes());
        context.extend_from_slice(&(at as u64).to_le_bytes());
        let nonce = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes"));
        head[HEADER_BYTES - TAG_BYTES..].copy_from_slice(&key.seal(nonce, &context, content));
    }
    fn spoil(&mut self, random: &mut Random, segment: u32) {
        for _ in 0..random.below(4) {
            let file = &mut self.files[segment as usize - 1];
            let Some(last) = file.len().checked_sub(1) else { return };
            let page = random.below(file.len().div_ceil(BLOCK_ALIGN)) * BLOCK_ALIGN;
            let at = (page + [random.below(100), random.below(BLOCK_ALIGN)][random.below(2)]).min(last);
            match random.below(6) {
                0 => file[at] = random.next() as u8,
                1 => file[at] ^= 1 << random.below(8),
                2 => file.truncate(at),
                3 => file[page..(page + BLOCK_ALIGN).min(last + 1)].fill(0),
                4 => {
                    let from = random.below(file.len().div_ceil(BLOCK_ALIGN)) * BLOCK_ALIGN;
                    let block = file[from..(from + BLOCK_ALIGN).min(last + 1)].to_vec();
                    let to = (page + block.len()).min(last + 1);
                    file[page..to].copy_from_slice(&block[..to - page]);
                }
                _ => file.extend(random.bytes(100)),
            }
            if random.below(2) == 0 {
                self.mend(segment, page);
            }
        }
    }
}

#[test]
fn segments() {
    let mut random = Random(830_700_000);
    let vault = DiskKeys::new(&[[3; 32]], true).vault();
    let (mut whole, mut ended, mut damaged) = (0, 0, 0);
    for _ in 0..inputs() {
        let mut log = log(&mut random, &vault);
        assert_eq!(log.read(0), (log.entries, false));
        (1..=2).for_each(|segment| log.spoil(&mut random, segment));
        if random.below(8) == 0 {
            log.files.swap(0, 1);
        }
        log.read(1);
        match log.read(0) {
            (read, false) if read == log.entries => whole += 1,
            (_, false) => ended += 1,
            (_, true) => damaged += 1,
        }
    }
    let least = inputs() / 50;
    assert!(whole > least && ended > least && damaged > least, "{whole} {ended} {damaged}");
}

//! Encrypted logs: what is written is read with the right key alone, at its place alone; nothing of it is on the disk in the clear, and no nonce is used twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use apus_redo::{
    Block, Control, End, Entry, LogId, LogKind, Reader, Step, Unread, Vault, Writer,
    key::{FileCipher, FileKey, TAG_BYTES, Wrapped},
};
use apus_types::{Epoch, NodeId, PartitionId, TableId};
use apus_vault::{DiskKeys, MasterKey, key_id};

const ID: LogId = LogId { cluster: 7, node: NodeId(1), instance: 0, kind: LogKind::Redo };
const SEGMENT: u64 = 256 << 10;
const TEXT: &[u8] = b"what nobody else is to read";

const OLD: MasterKey = [1; 32];
const NEW: MasterKey = [2; 32];

fn vault(keys: &[MasterKey]) -> Vault {
    DiskKeys::new(keys, true).vault()
}

#[derive(Clone)]
struct Log {
    control: Control,
    files: BTreeMap<u32, Vec<u8>>,
    /// Segment, place and length of each block.
    blocks: Vec<(u32, u64, usize)>,
}

/// Entries with [`TEXT`] in them.
fn append(writer: &mut Writer, bytes: usize) {
    let rows: Vec<u8> = TEXT.iter().copied().cycle().take(bytes).collect();
    writer.append(&Entry::Copied { partition: PartitionId(1), table: TableId(1), count: 1, rows: &rows });
}

impl Log {
    fn new() -> Log {
        Log { control: Control::empty(ID, SEGMENT), files: BTreeMap::new(), blocks: Vec::new() }
    }
    /// As an LDM does it.
    fn write(&mut self, writer: &mut Writer, new_key: impl Fn() -> Option<FileKey>) -> Vec<Block> {
        let mut taken = Vec::new();
        loop {
            if writer.room() < SEGMENT {
                let (number, key) = (self.control.next, new_key());
                self.control.segments.push(number);
                self.control.keys.set(number, 0, key.clone());
                writer.add_segment(number, key);
                self.control.next += 1;
            }
            let Some(block) = writer.take(Epoch(5), Vec::new()) else { return taken };
            let file = self.files.entry(block.segment).or_default();
            let (from, to) = (block.at as usize, block.at as usize + block.bytes.len());
            file.resize(file.len().max(to), 0);
            file[from..to].copy_from_slice(&block.bytes);
            self.blocks.push((block.segment, block.at, block.bytes.len()));
            taken.push(block);
        }
    }
    /// `count` blocks, each synced before the next.
    fn filled(count: usize, vault: &Vault) -> Log {
        let mut log = Log::new();
        let mut writer = Writer::new(&log.control);
        for number in 0..count {
            append(&mut writer, 5_000 + 100 * number);
            log.write(&mut writer, || vault.new_key());
            writer.synced(writer.sequence());
        }
        log
    }
    /// Entries, and where it ends or why it is damaged.
    fn read(&self) -> (usize, Result<End, String>) {
        let (mut reader, mut entries) = (Reader::new(&self.control, 0), 0);
        loop {
            let (segment, at, count) = match reader.step() {
                Step::Entry(Entry::Copied { rows, .. }) => {
                    assert!(rows.starts_with(TEXT));
                    entries += 1;
                    continue;
                }
                Step::Entry(other) => unreachable!("nobody wrote {other:?}"),
                Step::Read { segment, at, count } => (segment, at, count),
                Step::Ended => return (entries, Ok(reader.end())),
                Step::Damaged(damage) => return (entries, Err(damage.to_string())),
            };
            let file = self.files.get(&segment).map_or(&[][..], Vec::as_slice);
            let from = (at as usize).min(file.len());
            reader.feed(segment, at, count, &file[from..(from + count as usize).min(file.len())]);
        }
    }
    fn block(&mut self, number: usize) -> &mut [u8] {
        let (segment, at, length) = self.blocks[number];
        &mut self.files.get_mut(&segment).expect("written")[at as usize..at as usize + length]
    }
    fn has_text(&self) -> bool {
        self.files.values().any(|file| file.windows(TEXT.len()).any(|bytes| bytes == TEXT))
    }
    /// The control file as another process finds it.
    fn reopened(&self, vault: &Vault) -> Result<Log, Unread> {
        Control::decode(&self.control.encode(), vault).map(|control| Log { control, ..self.clone() })
    }
}

#[test]
fn what_is_written_is_read_and_is_not_on_the_disk() {
    let vault = vault(&[OLD]);
    let mut log = Log::filled(60, &vault);
    assert!(log.control.segments.len() > 2, "several segments");
    // An entry of several blocks.
    let end = log.read().1.expect("whole");
    let mut writer = Writer::resume(&log.control, &end);
    append(&mut writer, 100_000);
    log.write(&mut writer, || vault.new_key());
    let again = log.reopened(&vault).expect("the key is there");
    assert_eq!(again.read().0, 61);
    assert!(!log.has_text());
    assert!(Log::filled(2, &Vault::default()).has_text(), "in the clear it is there");
    let names: BTreeSet<u64> = log.control.keys.all().filter_map(|(_, key)| key).map(|key| key.0.name()).collect();
    assert_eq!(names.len(), log.control.segments.len(), "each segment has a key of its own");
}

#[test]
fn a_bit_that_is_another_one_is_seen_wherever_it_is() {
    let log = Log::filled(3, &vault(&[OLD]));
    let length = log.blocks[1].2;
    for bit in (0..64 * 8).chain((64 * 8..length * 8).step_by(101)) {
        let mut log = log.clone();
        log.block(1)[bit / 8] ^= 1 << (bit % 8);
        let (entries, end) = log.read();
        assert!(entries == 1 && end.is_err(), "bit {bit}: {entries}, {end:?}");
        let mut tail = Log { blocks: log.blocks[..2].to_vec(), ..log };
        let (segment, at, _) = tail.blocks[1];
        tail.files.get_mut(&segment).expect("written").truncate(at as usize + length);
        assert_eq!(tail.read().0, 1, "bit {bit} of the last block");
    }
}

#[test]
fn a_block_in_another_place_is_none() {
    let vault = vault(&[OLD]);
    let log = Log::filled(60, &vault);
    let of_segment = |number: u32| (0..log.blocks.len()).filter(|n| log.blocks[*n].0 == number).collect::<Vec<_>>();
    let (one, two) = (of_segment(1), of_segment(2));
    for (from, to) in [(one[1], one[2]), (two[0], one[0]), (one[0], two[0]), (two[1], one[1])] {
        let mut log = log.clone();
        let moved = log.block(from).to_vec();
        let place = log.block(to);
        let length = place.len().min(moved.len());
        place[..length].copy_from_slice(&moved[..length]);
        assert!(log.read().1.is_err(), "block {from} at the place of {to}");
    }
    let mut swapped = log.clone();
    let (a, b) = (log.files[&1].clone(), log.files[&2].clone());
    swapped.files.extend([(1, b), (2, a)]);
    assert_eq!(swapped.read().0, 0);
    // The same blocks under the key of another log, or in the clear, are none either.
    for other in [vault.new_key(), None] {
        let mut other_key = log.clone();
        other_key.control.keys.set(1, 0, other);
        assert_eq!(other_key.read().0, 0);
    }
    let mut clear = Log::filled(3, &Vault::default());
    assert_eq!(clear.read().0, 3);
    clear.control.keys.set(1, 0, vault.new_key());
    assert_eq!(clear.read().0, 0, "who says that it is encrypted takes nothing in the clear");
}

#[test]
fn without_the_master_key_there_is_no_control_file_and_it_says_which_is_missing() {
    let log = Log::filled(3, &vault(&[OLD]));
    assert_eq!(log.reopened(&vault(&[NEW])).err(), Some(Unread::NoKey(key_id(&OLD))));
    assert_eq!(log.reopened(&Vault::default()).err(), Some(Unread::NoKey(key_id(&OLD))));
    let content = log.control.encode();
    for at in 0..content.len() {
        let cut = Control::decode(&content[..at], &vault(&[OLD]));
        assert!(matches!(cut, Err(Unread::Other(_))), "cut off at {at}");
    }
    // Bytes that a key was not wrapped to, behind a hash that is right.
    let mut body = content[16..].to_vec();
    *body.last_mut().expect("a tag") ^= 1;
    let spoilt = Control::decode(&apus_signal::file::seal(*b"APUSRDC1", &body), &vault(&[OLD]));
    assert!(matches!(spoilt, Err(Unread::Other(_))), "{spoilt:?}");
}

#[test]
fn a_rotated_key_opens_what_the_one_before_closed() {
    let keys = DiskKeys::new(&[OLD], true);
    let log = Log::filled(3, &keys.vault());
    // While the files are open.
    keys.renew(&[NEW, OLD]);
    assert_eq!(log.reopened(&vault(&[NEW])).expect("it is wrapped anew").read().0, 3);
    // And what an older process has left.
    let left = Log::filled(3, &vault(&[OLD])).reopened(&vault(&[NEW, OLD])).expect("the older key is there");
    assert_eq!(left.reopened(&vault(&[NEW])).expect("it is wrapped anew").read().0, 3);
}

#[test]
fn a_log_has_parts_in_the_clear_and_parts_under_several_keys() {
    let vault = vault(&[OLD]);
    let mut log = Log::filled(2, &Vault::default());
    for (number, key) in [vault.new_key(), vault.new_key(), None, vault.new_key()].into_iter().enumerate() {
        let end = log.read().1.expect("whole");
        for (index, segment) in end.segments.iter().enumerate() {
            log.control.keys.set(*segment, if index == 0 { end.at } else { 0 }, key.clone());
        }
        let mut writer = Writer::resume(&log.control, &end);
        append(&mut writer, 3_000);
        log.write(&mut writer, || key.clone());
        let again = log.reopened(&vault).expect("the key is there");
        assert_eq!(again.read().0, 3 + number);
    }
}

/// What was sealed by which key and nonce.
type Seals = Arc<Mutex<BTreeMap<(u64, u64), Vec<u8>>>>;

struct Noted(FileKey, Seals);

impl FileCipher for Noted {
    fn name(&self) -> u64 {
        self.0.0.name()
    }
    fn seal(&self, nonce: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let before = self.1.lock().expect("one thread").insert((self.name(), nonce), bytes.to_vec());
        assert!(before.is_none(), "nonce {nonce} twice");
        self.0.0.seal(nonce, context, bytes)
    }
    fn open(&self, nonce: u64, context: &[u8], bytes: &[u8], tag: &[u8; TAG_BYTES]) -> Option<Vec<u8>> {
        self.0.0.open(nonce, context, bytes, tag)
    }
    fn wrap(&self) -> Wrapped {
        self.0.0.wrap()
    }
}

/// Process after process loses the end of what it wrote, and the next one gives the same numbers at the same places to other blocks.
#[test]
fn no_nonce_is_used_twice_where_a_tail_is_lost() {
    let (vault, seals) = (vault(&[OLD]), Seals::default());
    let new_key = || Some(FileKey(Arc::new(Noted(vault.new_key().expect("it encrypts"), seals.clone()))));
    let mut log = Log::new();
    let (mut writer, mut places) = (Writer::new(&log.control), BTreeSet::new());
    let mut given_twice = 0;
    for round in 0..20 {
        for _ in 0..3 {
            append(&mut writer, 2_000 + 500 * round);
            for block in log.write(&mut writer, new_key) {
                given_twice += u32::from(!places.insert((block.segment, block.at, block.sequence)));
            }
        }
        let newest = log.blocks.len() - 1;
        log.block(newest - 1).fill(0);
        let end = log.read().1.expect("nothing was synced");
        log.blocks.truncate(newest - 1);
        for (index, segment) in end.segments.iter().enumerate() {
            log.control.keys.set(*segment, if index == 0 { end.at } else { 0 }, new_key());
        }
        writer = Writer::resume(&log.control, &end);
    }
    assert!(given_twice >= 15, "{given_twice} places were given to two blocks");
}

//! Fragments against a model: random inserts, updates, deletes, undo, commits with and without kept versions, index builds and scans,
//! with plenty of memory and with so little that operations are refused all the time.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use apus_storage::{Change, Fragment, Locks, MemoryManager, RowId};
use apus_types::{
    Column, ColumnType, Epoch, ErrorCode, IndexDef, IndexNo, IndexState, PartitionId, TableSchema, Value,
    collate::Collation, hash::hash_key, key,
};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

fn column(name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column { nullable, ..Column::new(name, ty) }
}

fn index(no: u16, columns: &[u16]) -> IndexDef {
    IndexDef {
        no: IndexNo(no),
        name: format!("i{no}"),
        columns: columns.to_vec(),
        list: None,
        unique: false,
        prefixes: Vec::new(),
        hidden_table: None,
        state: IndexState::Ready,
    }
}

/// `text_key`: the primary key is a string, sometimes a long one.
fn schema(text_key: bool) -> TableSchema {
    let text = |length| ColumnType::VarChar { length, collation: Collation::default() };
    let id = if text_key { text(4000) } else { ColumnType::Int { bits: 64, unsigned: false } };
    let columns = vec![
        column("id", id, false),
        column("a", ColumnType::Int { bits: 32, unsigned: false }, true),
        column("s", text(100), true),
        column("b", ColumnType::Blob { length: 1 << 20 }, false),
    ];
    let mut table = TableSchema::new("d", "t", columns, vec![0]);
    table.indexes = vec![index(1, &[1]), index(2, &[2, 1])];
    table.validate().unwrap();
    table
}

type Image = Option<Vec<u8>>;

#[derive(Default)]
struct Row {
    committed: Vec<(u64, Image)>,
    pending: Vec<Image>,
}

impl Row {
    fn at(&self, epoch: u64) -> Option<&[u8]> {
        self.committed.iter().rev().find(|(e, _)| *e <= epoch).and_then(|(_, i)| i.as_deref())
    }
    /// Nobody sees it, at the horizon or later.
    fn is_nothing(&self, horizon: u64) -> bool {
        let newest = self.committed.last().map_or(0, |c| c.0).max(horizon);
        self.pending.is_empty() && (horizon..=newest).all(|e| self.at(e).is_none())
    }
}

const OWNER: u32 = 5;
const WRITER: u64 = (OWNER as u64) << 32 | 7;

struct World {
    fragment: Fragment,
    schema: Arc<TableSchema>,
    text_key: bool,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Row>,
    epoch: u64,
    horizon: u64,
    refused: u64,
    done: u64,
    /// By [`Fragment::end_locked`].
    simple_ends: u64,
}

impl World {
    fn new(text_key: bool, seed: u64, memory: &Arc<MemoryManager>) -> World {
        let schema = Arc::new(schema(text_key));
        let mut fragment = Fragment::new(schema.clone(), PartitionId(0), memory).unwrap();
        fragment.add_index(IndexNo(1));
        World {
            fragment,
            schema,
            text_key,
            rng: Rng(seed | 1),
            model: BTreeMap::new(),
            epoch: 1,
            horizon: 0,
            refused: 0,
            done: 0,
            simple_ends: 0,
        }
    }

    /// The image and encoded key of row `id`, other columns random.
    fn make(&mut self, id: u64) -> (Vec<u8>, Vec<u8>) {
        let long = if id.is_multiple_of(16) { "x".repeat(id as usize % 1500) } else { String::new() };
        let text = format!("{long}{id}");
        let id_value = if self.text_key { Value::Bytes(text.as_bytes()) } else { Value::Int(id as i64 - 100) };
        let a = if self.rng.below(8) == 0 { Value::Null } else { Value::Int(self.rng.below(20) as i64) };
        // Same sort key, different bytes: the index must not lose the entry that two versions share.
        let s = ["a", "A", "b", "B", "ab", "Zebra, and more than a few bytes"][self.rng.below(6) as usize];
        let s = if self.rng.below(8) == 0 { Value::Null } else { Value::Bytes(s.as_bytes()) };
        let size = if self.rng.below(50) == 0 { self.rng.below(80_000) } else { self.rng.below(200) };
        let blob = vec![id as u8; size as usize];
        let mut image = Vec::new();
        self.schema.layout().encode(&[id_value, a, s, Value::Bytes(&blob)], &mut image).unwrap();
        let mut key = Vec::new();
        key::encode_from_row(&self.schema, &self.schema.primary_key, &image, &mut key).unwrap();
        (key, image)
    }

    fn step(&mut self, ids: u64) {
        let id = self.rng.below(ids);
        let (key, image) = self.make(id);
        let hash = hash_key(&key);
        let found = self.fragment.find(&key, hash);
        assert_eq!(found.is_some(), self.model.contains_key(&key));
        match (self.rng.below(10), found) {
            (0..5, None) => self.push(&key, hash, None, Some(image)),
            (0..4, Some(row)) => self.push(&key, hash, Some(row), Some(image)),
            (4, Some(row)) => self.push(&key, hash, Some(row), None),
            (5, Some(row)) => self.undo(&key, row),
            (6..8, Some(row)) => self.commit(&key, row),
            (8, _) => self.advance(),
            _ => {}
        }
    }

    fn push(&mut self, key: &[u8], hash: u64, row: Option<RowId>, image: Image) {
        let row = match row.map_or_else(|| self.fragment.insert_slot(key, hash), Ok) {
            Ok(row) => row,
            Err(code) => return self.refuse(code),
        };
        let idle = self.fragment.idle(row).filter(|_| self.rng.below(3) > 0);
        if idle.is_none() && self.fragment.lock_word_of(row) == 0 {
            *self.fragment.lock_word(row) = Locks::of_writer(WRITER);
        }
        let change = Change { image: image.as_deref(), writer: WRITER, fresh: idle.is_some(), keeps_key: false };
        let pushed = match &idle {
            Some(idle) => self.fragment.push_idle(idle, &change),
            None => self.fragment.push(row, &change),
        };
        match pushed {
            Ok(()) => {
                self.done += 1;
                self.model.entry(key.to_vec()).or_default().pending.push(image);
                self.check_lock(key, row);
            }
            Err(code) => {
                self.refuse(code);
                self.unlock_unchanged(key, row);
                let gone = self.fragment.reclaim(row);
                assert_eq!(gone, !self.model.contains_key(key));
            }
        }
    }

    /// A row with an open change is locked, whether it was before the change or not.
    fn check_lock(&self, key: &[u8], row: RowId) {
        let is_open = self.model.get(key).is_some_and(|row| !row.pending.is_empty());
        assert_eq!(self.fragment.lock_word_of(row), if is_open { Locks::of_writer(WRITER) } else { 0 });
    }
    fn unlock_unchanged(&mut self, key: &[u8], row: RowId) {
        if self.model.get(key).is_none_or(|row| row.pending.is_empty()) {
            *self.fragment.lock_word(row) = 0;
        }
    }

    fn refuse(&mut self, code: ErrorCode) {
        assert_eq!(code, ErrorCode::OutOfMemory);
        self.refused += 1;
    }

    fn undo(&mut self, key: &[u8], row: RowId) {
        let model = self.model.get_mut(key).unwrap();
        if model.pending.pop().is_some() {
            self.fragment.pop_pending(row);
            assert_eq!(self.fragment.lock_word_of(row), Locks::of_writer(WRITER), "the lock stays");
            self.unlock_unchanged(key, row);
            self.settle(key, row);
        }
    }

    fn commit(&mut self, key: &[u8], row: RowId) {
        if self.rng.below(3) == 0 {
            self.raise_horizon(self.epoch);
        }
        let Some(model) = self.model.get_mut(key) else { return };
        let Some(image) = model.pending.pop() else { return };
        model.pending.clear();
        model.committed.push((self.epoch, image));
        let epochs = (Epoch(self.epoch), Epoch(self.horizon));
        if self.rng.below(2) == 0 && self.fragment.end_locked(row, OWNER, epochs) {
            self.simple_ends += 1;
        } else {
            self.fragment.commit(row, epochs.0, epochs.1);
            *self.fragment.lock_word(row) = 0;
        }
        self.settle(key, row);
    }

    /// Forgets in the model what may be gone, and the row when nothing is left.
    fn settle(&mut self, key: &[u8], row: RowId) {
        let gone = self.fragment.reclaim(row) || self.fragment.find(key, hash_key(key)).is_none();
        if gone {
            assert!(self.model[key].is_nothing(self.horizon));
            self.model.remove(key);
        }
    }

    fn advance(&mut self) {
        self.epoch += 1;
        if self.rng.below(4) == 0 {
            let back = self.rng.below(2).min(self.epoch - 1 - self.horizon);
            self.raise_horizon(self.epoch - 1 - back);
        }
    }
    /// Nobody reads below this epoch any more.
    fn raise_horizon(&mut self, horizon: u64) {
        self.horizon = horizon;
        while self.fragment.collect(Epoch(horizon), 7) != 0 {}
        let fragment = &self.fragment;
        self.model.retain(|key, row| !row.is_nothing(horizon) || fragment.find(key, hash_key(key)).is_some());
    }

    fn compare(&self) {
        self.fragment.verify().unwrap();
        for (key, model) in &self.model {
            let row = self.fragment.find(key, hash_key(key)).unwrap();
            assert_eq!(&*self.fragment.key(row), key);
            let committed = model.committed.last().and_then(|(_, i)| i.as_deref());
            assert_eq!(self.fragment.committed(row, &()), committed);
            let newest = model.pending.last().map_or(committed, |i| i.as_deref());
            assert_eq!(self.fragment.newest(row), newest);
            assert_eq!(self.fragment.has_pending(row), !model.pending.is_empty());
            for epoch in self.horizon..=self.epoch {
                assert_eq!(self.fragment.committed_at(row, Epoch(epoch), &()), model.at(epoch), "at {epoch}");
            }
            if committed.is_some() {
                assert_eq!(self.fragment.last_change(row, &()).0, model.committed.last().unwrap().0);
            }
        }
        for from in (self.horizon..=self.epoch).filter(|from| *from > 0) {
            (from..=self.epoch).for_each(|to| self.compare_changes(from, to));
        }
        // As of now, and as of every epoch that may still be read at.
        for epoch in (self.horizon..=self.epoch).map(Some).chain([None]) {
            for no in 0..3 {
                let mut entries = Vec::new();
                for (key, model) in &self.model {
                    let Some(image) = model.at(epoch.unwrap_or(u64::MAX)) else { continue };
                    let mut entry = Vec::new();
                    if no != 0 {
                        let columns = self.schema.index_columns(IndexNo(no)).unwrap();
                        key::encode_from_row(&self.schema, columns, image, &mut entry).unwrap();
                    }
                    entry.extend_from_slice(key);
                    entries.push((entry, image.to_vec()));
                }
                entries.sort();
                self.compare_scans(IndexNo(no), &entries, epoch);
            }
        }
    }

    /// What has changed between two epochs that may be read at.
    fn compare_changes(&self, from: u64, to: u64) {
        let mut expected = BTreeMap::new();
        for (key, model) in &self.model {
            let changed = model.committed.iter().any(|(e, _)| *e > from && *e <= to);
            let (old, new) = (model.at(from), model.at(to));
            if changed && (old.is_some() || new.is_some()) {
                expected.insert(key.clone(), (old, new));
            }
        }
        let (mut found, mut at) = (BTreeMap::new(), RowId(0));
        while let Some(row) = self.fragment.next_changed(at, Epoch(from)) {
            if let Some(images) = self.fragment.changed_between(row, Epoch(from), Epoch(to), &()) {
                found.insert(self.fragment.key(row).to_vec(), images);
            }
            at = RowId(row.0 + 1);
        }
        assert!(found == expected, "from {from} to {to}: {} rows, {} due", found.len(), expected.len());
    }

    fn compare_scans(&self, no: IndexNo, expected: &[(Vec<u8>, Vec<u8>)], epoch: Option<u64>) {
        let mut rng = Rng(self.rng.0);
        for _ in 0..6 {
            let mut bound = || match (rng.below(4), expected.get(rng.below(expected.len() as u64 + 1) as usize)) {
                (0, _) | (_, None) => Bound::Unbounded,
                (1, Some((key, _))) => Bound::Included(key.as_slice()),
                (2, Some((key, _))) => Bound::Excluded(key.as_slice()),
                (_, Some((key, _))) => Bound::Included(&key[..key.len() / 2]),
            };
            let (low, high) = (bound(), bound());
            for reverse in [false, true] {
                let Some(scan) = self.fragment.scan(no, low, high, reverse) else { return };
                let mut scratch = Vec::new();
                let mut got: Vec<(Vec<u8>, &[u8])> = Vec::new();
                for (entry, row) in scan {
                    let image = match epoch {
                        None => self.fragment.committed(row, &()),
                        Some(epoch) => self.fragment.committed_at(row, Epoch(epoch), &()),
                    };
                    let Some(image) = image else { continue };
                    if self.fragment.entry_matches(no, row, image, entry, &mut scratch) {
                        got.push((self.fragment.entry_key_of(entry, row).to_vec(), image));
                    }
                }
                if reverse {
                    got.reverse();
                }
                let above = |k: &[u8]| match low {
                    Bound::Included(l) => k >= l,
                    Bound::Excluded(l) => k > l,
                    Bound::Unbounded => true,
                };
                let below = |k: &[u8]| match high {
                    Bound::Included(h) => k <= h,
                    Bound::Excluded(h) => k < h,
                    Bound::Unbounded => true,
                };
                let want: Vec<(Vec<u8>, &[u8])> = expected
                    .iter()
                    .filter(|(k, _)| above(k) && below(k))
                    .map(|(k, i)| (k.clone(), i.as_slice()))
                    .collect();
                assert!(got == want, "index {no} {low:?}..{high:?}: {} entries, {} due", got.len(), want.len());
            }
        }
    }

    fn build(&mut self, no: IndexNo) {
        self.fragment.add_index(no);
        let mut from = RowId(0);
        loop {
            match self.fragment.build_index(no, from, 5) {
                Ok(Some(next)) => from = next,
                Ok(None) => return,
                Err(code) => {
                    self.refuse(code);
                    self.fragment.drop_index(no);
                    return;
                }
            }
            for _ in 0..3 {
                self.step(400);
            }
        }
    }
}

fn run(text_key: bool, seed: u64, memory_bytes: u64, steps: u32) -> (u64, u64) {
    let memory = MemoryManager::new(memory_bytes);
    let mut world = World::new(text_key, seed, &memory);
    for step in 0..steps {
        world.step(400);
        if step % 500 == 0 {
            world.compare();
        }
        if step == steps / 3 {
            world.build(IndexNo(2));
            world.compare();
        }
        if step == steps / 2 {
            world.fragment.drop_index(IndexNo(1));
            world.build(IndexNo(1));
            world.compare();
        }
    }
    world.compare();
    assert!(world.simple_ends > u64::from(steps) / 400, "{} simple ends", world.simple_ends);
    let answer = (world.done, world.refused);
    drop(world);
    assert!(memory.usage().all(|u| u.used == 0), "{:?}", memory.usage().collect::<Vec<_>>());
    answer
}

#[test]
fn random_transactions_match_the_model() {
    for seed in 1..=3 {
        let (done, refused) = run(false, seed * 7919, 256 << 20, 8_000);
        assert!(done > 2_000 && refused == 0, "{done} done, {refused} refused");
        run(true, seed * 104_729, 256 << 20, 8_000);
    }
}

#[test]
fn refusals_of_memory_change_nothing() {
    for seed in 1..=3 {
        let (done, refused) = run(seed == 2, seed * 15_485_863, 700_000, 8_000);
        assert!(done > 100 && refused > 100, "{done} done, {refused} refused");
    }
}

#[test]
fn a_row_that_changes_all_the_time_keeps_one_version_per_epoch() {
    let memory = MemoryManager::new(64 << 20);
    let mut world = World::new(false, 9, &memory);
    let (key, mut image) = world.make(5);
    let row = world.fragment.insert_slot(&key, hash_key(&key)).unwrap();
    let change = |world: &mut World, image: Option<&[u8]>, epoch, horizon| {
        world.fragment.push_pending(row, image, 7).unwrap();
        world.fragment.commit(row, Epoch(epoch), Epoch(horizon))
    };
    assert!(!change(&mut world, Some(&image), 1, 0), "an insert replaces nothing");
    let mut fresh = true;
    for epoch in 2..=100 {
        for _ in 0..50 {
            image = world.make(5).1;
            let first = change(&mut world, Some(&image), epoch, 1);
            assert_eq!(first, std::mem::take(&mut fresh), "told once");
        }
    }
    // More epochs than buckets: the row is visited when the newest of them is reached, and again until nothing old is left.
    world.fragment.verify().unwrap();
    assert!(world.fragment.committed_at(row, Epoch(1), &()).is_some());
    assert_eq!(world.fragment.collect(Epoch(1), 1000), 0);
    assert_eq!(world.fragment.collect(Epoch(60), 1000), 1);
    assert_eq!(world.fragment.collect(Epoch(99), 1000), 0);
    change(&mut world, None, 101, 99);
    assert_eq!(world.fragment.collect(Epoch(100), 1000), 1);
    assert!(world.fragment.committed_at(row, Epoch(100), &()).is_some());
    assert!(world.fragment.committed_at(row, Epoch(101), &()).is_none());
    assert_eq!(world.fragment.collect(Epoch(101), 1000), 1);
    assert!(!world.fragment.keeps_versions());
    assert_eq!(world.fragment.row_count(), 0, "a deleted row goes when no snapshot sees it");
    world.fragment.verify().unwrap();
}

#[test]
fn a_row_without_versions_that_waits_for_its_visit_is_not_counted() {
    let memory = MemoryManager::new(64 << 20);
    let mut world = World::new(false, 9, &memory);
    let (key, image) = world.make(5);
    let row = world.fragment.insert_slot(&key, hash_key(&key)).unwrap();
    let change = |world: &mut World, image: Option<&[u8]>, epoch, horizon| {
        world.fragment.push_pending(row, image, 7).unwrap();
        world.fragment.commit(row, Epoch(epoch), Epoch(horizon));
        world.fragment.verify().unwrap();
    };
    change(&mut world, Some(&image), 1, 0);
    change(&mut world, Some(&image), 2, 0); // the first one is kept
    change(&mut world, Some(&image), 2, 2); // as a copy from another replica stores it
    change(&mut world, None, 2, 0);
    assert_eq!(world.fragment.row_count(), 0, "nothing is left of it");
    change(&mut world, Some(&image), 2, 0);
    assert_eq!(world.fragment.row_count(), 1, "there again");
    change(&mut world, None, 2, 0);
    assert_eq!(world.fragment.collect(Epoch(2), 1000), 1);
    assert!(world.fragment.is_empty());
    world.fragment.verify().unwrap();
}

/// What is left of a large fragment goes in pieces, none of them much.
#[test]
fn a_fragment_is_given_up_in_pieces() {
    let memory = MemoryManager::new(256 << 20);
    let mut world = World::new(true, 11, &memory);
    for _ in 0..6_000 {
        world.step(3_000);
    }
    let used = || memory.usage().map(|u| u.used).sum::<u64>();
    let (all, mut before, mut most) = (used(), used(), 0);
    assert!(all > 2 << 20, "{all} bytes are not many");
    while !world.fragment.give_up(2) {
        most = most.max(before - used());
        before = used();
    }
    assert!(most <= all / 8 && used() < all / 4, "of {all} bytes {most} went at once, {} are left", used());
    drop(world);
    assert_eq!(used(), 0);
}

/// A node that is being filled gives up what it has put back of a row that a transaction has.
#[test]
fn what_is_committed_goes_from_under_a_transaction() {
    let (memory, mut rng) = (MemoryManager::new(64 << 20), Rng(77));
    let mut world = World::new(false, 13, &memory);
    for _ in 0..2_000 {
        let (key, first) = world.make(5);
        let row = world.fragment.insert_slot(&key, hash_key(&key)).unwrap();
        let mut images = vec![first];
        images.extend((0..3).map(|_| world.make(5).1));
        let image = |rng: &mut Rng| (rng.below(6) > 0).then(|| images[rng.below(4) as usize].clone());
        let (changes, open) = (rng.below(4), rng.below(4));
        let horizon = Epoch(rng.below(5));
        for epoch in 1..=changes {
            world.fragment.push_pending(row, image(&mut rng).as_deref(), 7).unwrap();
            world.fragment.commit(row, Epoch(epoch), horizon);
        }
        let pending: Vec<Image> = (0..open).map(|_| image(&mut rng)).collect();
        for image in &pending {
            world.fragment.push_pending(row, image.as_deref(), 7).unwrap();
        }
        let was_there = world.fragment.last_change(row, &()) > Epoch(0);
        assert_eq!(world.fragment.give_up_committed(row), was_there);
        world.fragment.verify().unwrap();
        assert_eq!(world.fragment.committed(row, &()), None);
        assert_eq!(world.fragment.newest(row), pending.last().and_then(|image| image.as_deref()));
        if open > 0 && rng.below(2) == 0 {
            world.fragment.commit(row, Epoch(9), Epoch(9));
            let kept = pending.last().and_then(|image| image.as_deref());
            assert_eq!(world.fragment.committed(row, &()), kept);
            world.fragment.verify().unwrap();
            world.fragment.push_pending(row, None, 7).unwrap();
            world.fragment.commit(row, Epoch(9), Epoch(9));
        } else {
            for _ in 0..open {
                world.fragment.pop_pending(row);
                world.fragment.verify().unwrap();
            }
            *world.fragment.lock_word(row) = 0;
        }
        world.fragment.collect(Epoch(9), 10);
        world.fragment.reclaim(row);
        assert!(world.fragment.find(&key, hash_key(&key)).is_none(), "nothing is left of it");
        world.fragment.verify().unwrap();
    }
}

//! A replica that is told the primary's row numbers, and ends, trims and reclaims its rows later than the primary does.

use std::{collections::VecDeque, sync::Arc};

use apus_storage::{Fragment, MemoryManager, RowId};
use apus_types::{Column, ColumnType, Epoch, PartitionId, TableSchema, Value, hash::hash_key, key};

fn schema() -> TableSchema {
    let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
    let id = column("id", ColumnType::VarBinary { length: 100 });
    TableSchema::new("d", "t", vec![id, column("a", ColumnType::Int { bits: 64, unsigned: false })], vec![0])
}

struct Pair {
    schema: Arc<TableSchema>,
    primary: Fragment,
    replica: Fragment,
    /// Changes that the replica has and has not stamped: row and epoch.
    unstamped: VecDeque<(RowId, Vec<u8>, Epoch)>,
    epoch: u64,
    evicted: u32,
}

impl Pair {
    fn new(memory: &Arc<MemoryManager>) -> Pair {
        let schema = Arc::new(schema());
        let make = || Fragment::new(schema.clone(), PartitionId(0), memory).unwrap();
        let (primary, replica) = (make(), make());
        Pair { schema, primary, replica, unstamped: VecDeque::new(), epoch: 1, evicted: 0 }
    }

    /// A committed change of the primary, and what the replica does with it at once.
    fn change(&mut self, id: u64, value: Option<i64>) {
        let text = format!("{id}{}", "x".repeat(id as usize % 40)); // some keys are inside of their slots, some are not
        let (mut image, mut key) = (Vec::new(), Vec::new());
        let values = [Value::Bytes(text.as_bytes()), Value::Int(value.unwrap_or(0))];
        self.schema.layout().encode(&values, &mut image).unwrap();
        key::encode_from_row(&self.schema, &self.schema.primary_key, &image, &mut key).unwrap();
        let hash = hash_key(&key);
        let image = value.is_some().then_some(image.as_slice());
        let found = self.primary.find(&key, hash);
        if found.is_none() && image.is_none() {
            return;
        }
        let row = found.unwrap_or_else(|| self.primary.insert_slot(&key, hash).unwrap());
        self.primary.push_pending(row, image, 7).unwrap();
        self.primary.commit(row, Epoch(self.epoch), Epoch(self.epoch - 1));
        self.primary.reclaim(row);
        self.follow(row, &key, image);
    }

    fn follow(&mut self, row: RowId, key: &[u8], image: Option<&[u8]>) {
        if self.replica.holds(row, key) {
            self.stamp_row(row);
        } else if image.is_some() {
            let in_slot = self.replica.is_used(row).then_some(row);
            for dead in in_slot.into_iter().chain(self.replica.find(key, hash_key(key))) {
                self.stamp_row(dead);
                if self.replica.is_used(dead) {
                    self.replica.evict(dead);
                    self.evicted += 1;
                }
            }
            self.replica.insert_slot_at(row, key, hash_key(key)).unwrap();
        } else {
            return;
        }
        self.replica.push_pending(row, image, 7).unwrap();
        self.unstamped.push_back((row, key.to_vec(), Epoch(self.epoch)));
    }

    fn stamp_row(&mut self, row: RowId) {
        while let Some(at) = self.unstamped.iter().position(|u| u.0 == row) {
            let (row, key, epoch) = self.unstamped.remove(at).unwrap();
            self.stamp(row, &key, epoch);
        }
    }
    fn stamp(&mut self, row: RowId, key: &[u8], epoch: Epoch) {
        assert!(self.replica.holds(row, key));
        self.replica.commit(row, epoch, Epoch(epoch.0 - 1));
        self.replica.reclaim(row);
    }
}

#[test]
fn rows_have_the_numbers_of_the_primary_however_late_the_replica_is() {
    let memory = MemoryManager::new(256 << 20);
    let mut evicted = 0;
    for seed in 1..=8u64 {
        let (mut pair, mut random) = (Pair::new(&memory), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for step in 0..6_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, id) = (random >> 60, (random >> 33) % 300);
            match what {
                0..8 => pair.change(id, Some(step)),
                8..13 => pair.change(id, None),
                13 => {
                    pair.epoch += 1;
                    while pair.primary.collect(Epoch(pair.epoch - 1), 5) != 0 {}
                }
                14 => {
                    if let Some((row, key, epoch)) = pair.unstamped.pop_front() {
                        pair.stamp(row, &key, epoch);
                    }
                }
                _ => {
                    pair.replica.collect(Epoch(pair.epoch - 1), 3);
                }
            }
            if step % 500 == 0 {
                pair.primary.verify().unwrap();
                pair.replica.verify().unwrap();
            }
        }
        while let Some((row, key, epoch)) = pair.unstamped.pop_front() {
            pair.stamp(row, &key, epoch);
        }
        pair.replica.verify().unwrap();
        assert_eq!(pair.primary.content_hash(), pair.replica.content_hash(), "seed {seed}");
        for fragment in [&mut pair.primary, &mut pair.replica] {
            while fragment.collect(Epoch(pair.epoch), 100) != 0 {}
            fragment.verify().unwrap();
        }
        assert_eq!(pair.primary.row_count(), pair.replica.row_count());
        assert_eq!(pair.primary.content_hash(), pair.replica.content_hash(), "seed {seed}");
        evicted += pair.evicted;
    }
    assert!(evicted > 100, "only {evicted} rows were given up early");
    assert!(memory.usage().all(|u| u.used == 0));
}

#[test]
#[should_panic(expected = "lives here")]
fn a_living_row_is_not_given_up() {
    let mut pair = Pair::new(&MemoryManager::new(64 << 20));
    pair.change(1, Some(1));
    pair.stamp_row(RowId(0));
    pair.replica.evict(RowId(0));
}

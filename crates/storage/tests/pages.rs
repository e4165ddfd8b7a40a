//! A fragment put together again from pages that were copied at different moments, and from the changes since.

use std::{collections::BTreeMap, sync::Arc};

use apus_storage::{Fragment, MemoryManager, PAGE_ROWS, RowId};
use apus_types::{Column, ColumnType, Epoch, PartitionId, TableSchema, Value, hash::hash_key, key};

/// splitmix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Of a row: slot, key, image or deleted, epoch.
type Change = (RowId, Vec<u8>, Option<Vec<u8>>, Epoch);

struct Live {
    schema: Arc<TableSchema>,
    fragment: Fragment,
    log: Vec<Change>,
}

impl Live {
    fn change(&mut self, id: u64, value: Option<i64>, epoch: Epoch) {
        let (mut image, mut key) = (Vec::new(), Vec::new());
        self.schema.layout().encode(&[Value::Int(id as i64), Value::Int(value.unwrap_or(0))], &mut image).unwrap();
        key::encode_from_row(&self.schema, &self.schema.primary_key, &image, &mut key).unwrap();
        let hash = hash_key(&key);
        let image = value.is_some().then_some(image);
        let Some(row) = self
            .fragment
            .find(&key, hash)
            .or_else(|| image.is_some().then(|| self.fragment.insert_slot(&key, hash).unwrap()))
        else {
            return;
        };
        self.fragment.push_pending(row, image.as_deref(), 7).unwrap();
        self.fragment.commit(row, epoch, epoch);
        self.fragment.reclaim(row);
        self.log.push((row, key, image, epoch));
    }
}

/// Newest copy of each page: rows with their epochs.
type Pages = BTreeMap<u32, Vec<(RowId, Vec<u8>, Vec<u8>, Epoch)>>;

fn copy(fragment: &Fragment, page: u32, pages: &mut Pages) {
    let row = |row: RowId| {
        let image = fragment.committed(row, &())?.to_vec();
        Some((row, fragment.key(row).to_vec(), image, fragment.last_change(row, &())))
    };
    pages.insert(page, fragment.rows_of(page).filter_map(row).collect());
}

fn restored(live: &Live, pages: &Pages, from: usize, memory: &Arc<MemoryManager>) -> Fragment {
    let mut fragment = Fragment::new(live.schema.clone(), PartitionId(0), memory).unwrap();
    fragment.drop_indexes();
    for (row, key, image, epoch) in pages.values().flatten() {
        fragment.restore(*row, key, hash_key, Some(image), *epoch).unwrap();
    }
    for (row, key, image, epoch) in &live.log[from..] {
        fragment.restore(*row, key, hash_key, image.as_deref(), *epoch).unwrap();
    }
    for no in fragment.add_indexes() {
        let mut next = Some(RowId(0));
        while let Some(row) = next {
            next = fragment.build_index(no, row, 1000).unwrap();
        }
    }
    fragment.verify().unwrap();
    fragment
}

#[test]
fn pages_of_different_moments_and_the_changes_since_give_the_fragment_back() {
    let column =
        |name: &str| Column { nullable: false, ..Column::new(name, ColumnType::Int { bits: 64, unsigned: false }) };
    let memory = MemoryManager::new(256 << 20);
    let schema = Arc::new(TableSchema::new("d", "t", vec![column("id"), column("a")], vec![0]));
    let fragment = Fragment::new(schema.clone(), PartitionId(0), &memory).unwrap();
    let mut live = Live { schema, fragment, log: Vec::new() };
    let (mut random, mut pages, mut round, mut epoch) = (Random(7), Pages::new(), 0, 1);
    let mut unchanged = 0;
    for walk in 0..24 {
        let change = |live: &mut Live, random: &mut Random, epoch: &mut u64| {
            // Slots and keys wander: few keys are there at a time, and some walks leave most pages alone.
            let id = random.below(if walk % 3 == 0 { 8000 } else { 8 });
            let value = (random.below(3) > 0).then(|| random.below(1 << 40) as i64);
            live.change(id, value, Epoch(*epoch));
            *epoch += u64::from(random.below(4) == 0);
        };
        (0..if walk % 3 == 0 { 6000 } else { 100 }).for_each(|_| change(&mut live, &mut random, &mut epoch));
        // A walk over the pages that have changed, amid further changes.
        let (since, begin) = (round, live.log.len());
        round += 1;
        live.fragment.begin_round(round);
        for page in 0..live.fragment.pages() {
            match live.fragment.changed_in(page).is_some_and(|of| of >= since) {
                true => copy(&live.fragment, page, &mut pages),
                false => unchanged += 1,
            }
            (0..20).for_each(|_| change(&mut live, &mut random, &mut epoch));
        }
        (0..random.below(300)).for_each(|_| change(&mut live, &mut random, &mut epoch));
        // Replay may begin at the walk, or long before.
        let from = begin - random.below(begin as u64 / 2) as usize;
        for from in [begin, from] {
            let again = restored(&live, &pages, from, &memory);
            assert_eq!(again.content_hash(), live.fragment.content_hash(), "walk {walk} from {from} of {begin}");
            assert_eq!(again.row_count(), live.fragment.row_count());
        }
    }
    assert!(unchanged > 100 && live.fragment.pages() as usize * PAGE_ROWS > 1000, "{unchanged} pages were unchanged");
}

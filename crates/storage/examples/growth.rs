//! What an insert costs a data node's fragments as they grow, by part: nanoseconds per row between two sizes, faults of fresh memory, and processor time of the system.
//! Keys and rows are those of `apus bench kv`, in batches as an LDM executes them: fetch ahead, look up, make the row, push its version; commit some batches later.
//! Under the parts is the time of the clock, above 200 microseconds left out; with rows one by one nothing is fetched ahead. `growth [rows] [fragments] [batch]`
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the core"
)]

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use apus_storage::{EntryAhead, Fragment, MemoryManager, RowId};
use apus_types::{Column, ColumnType, Epoch, PartitionId, TableSchema, Value, hash::hash_key, key};

/// Operations that are fetched ahead together, as in `ldm::ahead`.
const AHEAD: usize = 16;
/// Batches that are executed and not committed yet.
const OPEN_BATCHES: usize = 16;
const OTHERS: Duration = Duration::from_micros(200);
const SIZES: [u64; 7] = [100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000];
const PARTS: [&str; 5] = ["fetch", "find", "slot+hash", "record+index", "commit"];

/// As `apus bench kv` makes them.
fn mix(n: u32) -> u32 {
    let n = n.wrapping_mul(0x9e37_79b1);
    let n = (n ^ (n >> 15)).wrapping_mul(0x85eb_ca6b);
    n ^ (n >> 13)
}

/// Of a part; what is longer than any row takes was spent by others.
#[derive(Clone, Copy, Default)]
struct Spent {
    time: Duration,
    times: u32,
}

impl Spent {
    fn add(&mut self, time: Duration) {
        if time < OTHERS {
            self.time += time;
            self.times += 1;
        }
    }
    fn mean(self) -> f64 {
        self.time.as_nanos() as f64 / f64::from(self.times.max(1))
    }
}

struct Op {
    partition: usize,
    hash: u64,
    key: Vec<u8>,
    image: Vec<u8>,
}

fn make(schema: &TableSchema, n: u64, fragments: usize, op: &mut Op) {
    let text = format!("{:08x}kkkkkkkk", mix(n as u32));
    op.image.clear();
    op.key.clear();
    schema.layout().encode(&[Value::Bytes(text.as_bytes()), Value::Bytes(&[7; 100])], &mut op.image).expect("fits");
    key::encode_from_row(schema, &[0], &op.image, &mut op.key).expect("fits");
    let hash = hash_key(&op.key);
    (op.partition, op.hash) = ((hash >> 40) as usize % fragments, hash);
}

/// Minor faults; milliseconds of processor of this process, and of the system for it.
fn system() -> (u64, u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (field(7), field(11) * 10, field(12) * 10)
}

/// Nanoseconds of looking at the clock, as often as not interrupted.
fn clock() -> f64 {
    let thousand = || {
        let start = Instant::now();
        (0..1_000).for_each(|_| {
            std::hint::black_box(Instant::now());
        });
        start.elapsed().as_nanos() as f64 / 1e3
    };
    (0..200).map(|_| thousand()).fold(f64::MAX, f64::min)
}

/// A table's fragments, and the batches that are not committed yet.
struct Load {
    schema: Arc<TableSchema>,
    fragments: Vec<Fragment>,
    ops: Vec<Op>,
    open: VecDeque<Vec<(usize, RowId)>>,
    spent: [Spent; PARTS.len()],
}

impl Load {
    fn new(count: usize, batch: usize) -> Load {
        let column =
            |name: &str, length| Column { nullable: false, ..Column::new(name, ColumnType::VarBinary { length }) };
        let schema = Arc::new(TableSchema::new("d", "t", vec![column("k", 16), column("v", 100)], vec![0]));
        let memory = MemoryManager::new(64 << 30);
        let made = (0..count).map(|i| Fragment::new(schema.clone(), PartitionId(i as u16), &memory).expect("memory"));
        let fragments = made.collect();
        let ops = (0..batch).map(|_| Op { partition: 0, hash: 0, key: Vec::new(), image: Vec::new() }).collect();
        Load { schema, fragments, ops, open: VecDeque::new(), spent: [Spent::default(); PARTS.len()] }
    }

    /// Inserts the next rows, from this one on, and commits a batch that was inserted before.
    fn insert_batch(&mut self, first: u64) {
        let count = self.fragments.len();
        self.ops.iter_mut().zip(first..).for_each(|(op, n)| make(&self.schema, n, count, op));
        let mut rows = Vec::with_capacity(self.ops.len());
        for ops in self.ops.chunks(AHEAD) {
            let start = Instant::now();
            fetch(&self.fragments, ops);
            self.spent[0].add(start.elapsed());
            for op in ops {
                let fragment = &mut self.fragments[op.partition];
                let start = Instant::now();
                assert!(fragment.find(&op.key, op.hash).is_none());
                let found = Instant::now();
                let row = fragment.insert_slot(&op.key, op.hash).expect("memory");
                let inserted = Instant::now();
                fragment.push_pending(row, Some(&op.image), 7).expect("memory");
                let pushed = Instant::now();
                self.spent[1].add(found - start);
                self.spent[2].add(inserted - found);
                self.spent[3].add(pushed - inserted);
                rows.push((op.partition, row));
            }
        }
        self.open.push_back(rows);
        if self.open.len() > OPEN_BATCHES {
            let start = Instant::now();
            for (partition, row) in self.open.pop_front().unwrap_or_default() {
                self.fragments[partition].commit(row, Epoch(1), Epoch(1));
            }
            self.spent[4].add(start.elapsed());
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let rows = arguments.next().unwrap_or(10_000_000);
    let (count, batch) = (arguments.next().unwrap_or(4) as usize, arguments.next().unwrap_or(64) as usize);
    let (mut load, mut done, mut begun, clock) = (Load::new(count, batch), 0, system(), clock());
    let heads = PARTS.into_iter().chain(["sum", "faults", "user", "system"]);
    println!("{:>10} {}", "rows", heads.map(|head| format!("{head:>13}")).collect::<String>());
    for size in SIZES.into_iter().filter(|&size| size <= rows) {
        let first = done;
        while done < size {
            load.insert_batch(done);
            done += batch as u64;
        }
        let now = system();
        let shares = [AHEAD.min(batch), 1, 1, 1, batch];
        let parts: Vec<f64> = load.spent.iter().zip(shares).map(|(s, n)| (s.mean() - clock) / n as f64).collect();
        let sum = parts.iter().sum();
        let per_row = |more: u64| more as f64 / (done - first) as f64;
        let times = parts.into_iter().chain([sum]).map(|ns| format!("{ns:>13.0}")).collect::<String>();
        let (faults, user, system_time) = (now.0 - begun.0, now.1 - begun.1, now.2 - begun.2);
        println!(
            "{done:>10} {times} {:>12.4} {:>12.0} {:>12.0}",
            per_row(faults),
            per_row(user) * 1e6,
            per_row(system_time) * 1e6
        );
        (load.spent, begun) = ([Spent::default(); PARTS.len()], system());
    }
}

/// As `ldm::ahead` does it.
fn fetch(fragments: &[Fragment], ops: &[Op]) {
    if ops.len() < 2 {
        return;
    }
    let (mut places, mut rows) = ([0; AHEAD], [None; AHEAD]);
    for (op, place) in ops.iter().zip(&mut places) {
        *place = fragments[op.partition].prefetch(op.hash);
    }
    for ((op, place), row) in ops.iter().zip(places).zip(&mut rows) {
        *row = fragments[op.partition].prefetch_slot(place, op.hash);
    }
    for (op, row) in ops.iter().zip(rows) {
        if let Some(row) = row {
            fragments[op.partition].prefetch_version(row);
        }
    }
    let mut ways: [Option<EntryAhead<'_>>; AHEAD] = [const { None }; AHEAD];
    for (op, way) in ops.iter().zip(&mut ways) {
        *way = fragments[op.partition].entry_ahead(apus_types::IndexNo(0), &op.key);
    }
    let mut is_under_way = true;
    while is_under_way {
        is_under_way = false;
        for way in &mut ways {
            match way.as_mut().is_some_and(EntryAhead::step) {
                true => is_under_way = true,
                false => *way = None,
            }
        }
    }
}

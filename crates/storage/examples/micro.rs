//! Cost of fragment operations: nanoseconds per operation, and under `valgrind --tool=callgrind` the instructions of one kind
//! (`micro <rows> <find|insert|update|scan>`).
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the core"
)]

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Instant};

use apus_storage::{Fragment, MemoryManager};
use apus_types::{
    Column, ColumnType, Epoch, IndexDef, IndexNo, IndexState, PartitionId, TableSchema, Value, hash::hash_key, key,
};

fn schema() -> TableSchema {
    let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
    let int = ColumnType::Int { bits: 64, unsigned: false };
    let columns = vec![column("id", int), column("a", int), column("b", ColumnType::VarBinary { length: 200 })];
    let mut table = TableSchema::new("d", "t", columns, vec![0]);
    table.indexes.push(IndexDef {
        no: IndexNo(1),
        name: "a".to_owned(),
        columns: vec![1],
        list: None,
        unique: false,
        hidden_table: None,
        prefixes: Vec::new(),
        state: IndexState::Ready,
    });
    table
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let only = arguments.next();
    let wanted = |what: &str| only.as_deref().is_none_or(|o| o == what);
    let memory = MemoryManager::new(4 << 30);
    let schema = Arc::new(schema());
    let mut fragment = Fragment::new(schema.clone(), PartitionId(0), &memory).expect("memory");
    fragment.add_index(IndexNo(1));
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    let mut image = Vec::new();
    let mut make = |id: u64, a: u64| {
        image.clear();
        let values = [Value::Int(id as i64), Value::Int(a as i64), Value::Bytes(&[7; 80])];
        schema.layout().encode(&values, &mut image).expect("fits");
        let mut key = Vec::with_capacity(16);
        key::encode_from_row(&schema, &[0], &image, &mut key).expect("fits");
        (key, image.clone())
    };
    // Keys in an order that neither the hash nor the tree likes.
    let shuffled = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let data: Vec<(Vec<u8>, Vec<u8>)> = (0..rows).map(|i| make(shuffled(i), i)).collect();
    let per = |start: Instant| start.elapsed().as_nanos() as f64 / rows as f64;

    let start = Instant::now();
    for (key, image) in &data {
        let row = fragment.insert_slot(key, hash_key(key)).expect("memory");
        fragment.push_pending(row, Some(image), 7).expect("memory");
        fragment.commit(row, Epoch(1), Epoch(1));
    }
    times.insert("insert, two ordered indexes", per(start));

    let mut sum = 0u64;
    if wanted("find") {
        let start = Instant::now();
        for i in 0..rows {
            let key = &data[(i.wrapping_mul(7_919) % rows) as usize].0;
            let row = fragment.find(key, hash_key(key)).expect("inserted");
            sum += fragment.committed(row, &()).expect("committed").len() as u64;
        }
        times.insert("find", per(start));
        let start = Instant::now();
        for batch in data.chunks(16) {
            for (key, _) in batch {
                fragment.prefetch(hash_key(key));
            }
            for (key, _) in batch {
                let row = fragment.find(key, hash_key(key)).expect("inserted");
                sum += fragment.committed(row, &()).expect("committed").len() as u64;
            }
        }
        times.insert("find, batches of 16 in insert order", per(start));
    }
    if wanted("update") {
        let start = Instant::now();
        for i in 0..rows {
            let (key, image) = &data[(i.wrapping_mul(7_919) % rows) as usize];
            let row = fragment.find(key, hash_key(key)).expect("inserted");
            fragment.push_pending(row, Some(image), 7).expect("memory");
            fragment.commit(row, Epoch(2), Epoch(2));
        }
        times.insert("update, index columns unchanged", per(start));
    }
    if wanted("scan") {
        for (name, index) in [("scan by primary key", 0), ("scan by secondary index", 1)] {
            let start = Instant::now();
            let mut scratch = Vec::new();
            let scan = fragment.scan(IndexNo(index), Bound::Unbounded, Bound::Unbounded, false).expect("exists");
            for (entry, row) in scan {
                let Some(image) = fragment.committed(row, &()) else { continue };
                sum += u64::from(fragment.entry_matches(IndexNo(index), row, image, entry, &mut scratch));
            }
            times.insert(name, per(start));
        }
    }
    for (what, ns) in times {
        println!("{what:40} {ns:8.1} ns");
    }
    let (data_bytes, index_bytes) = (fragment.data_bytes() / rows, fragment.index_bytes() / rows);
    println!("{rows} rows, {data_bytes} data bytes and {index_bytes} index bytes per row ({sum})");
}

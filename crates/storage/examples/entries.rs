//! What an entry of an ordered index that holds its keys takes, and what it costs to find: bytes beside the key, nanoseconds of an insert and of a lookup.
//! Keys are an indexed column and a primary key of 8 bytes, rows come in no order of the column. `entries [rows]`
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the core"
)]

use std::time::Instant;

use apus_storage::btree::BTree;

/// A permutation of the numbers of 32 bits.
fn mix(n: u32) -> u32 {
    let n = n.wrapping_mul(0x9e37_79b1);
    let n = (n ^ (n >> 15)).wrapping_mul(0x85eb_ca6b);
    n ^ (n >> 13)
}

/// The entry of a row.
type MadeKey = fn(u32, &mut Vec<u8>);

const FORMS: [(&str, MadeKey); 4] = [
    ("numbers of 32 bits", |row, key| key.extend_from_slice(&(1 << 63 | u64::from(mix(row))).to_be_bytes())),
    ("numbers in order", |row, key| key.extend_from_slice(&(1 << 63 | u64::from(row)).to_be_bytes())),
    ("1,000 numbers", |row, key| key.extend_from_slice(&(1 << 63 | u64::from(mix(row) % 1_000)).to_be_bytes())),
    ("texts of 16 bytes", |row, key| key.extend_from_slice(format!("{:08x}kkkkkkkk\0\0", mix(row)).as_bytes())),
];

fn main() {
    let rows: u32 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    println!(
        "{:>20} {:>10} {:>12} {:>12} {:>10} {:>10}",
        "", "key bytes", "entry bytes", "beside it", "insert ns", "get ns"
    );
    for (name, make) in FORMS {
        let (mut tree, mut key, mut bytes) = (BTree::new(), Vec::new(), 0);
        let mut entry = |row: u32| {
            key.clear();
            make(row, &mut key);
            key.extend_from_slice(&(1 << 63 | u64::from(row)).to_be_bytes());
            key.clone()
        };
        let keys: Vec<Vec<u8>> = (0..rows).map(&mut entry).collect();
        let start = Instant::now();
        for (key, row) in keys.iter().zip(0..) {
            assert!(tree.insert(&(), key, row));
            bytes += key.len();
        }
        let inserted = start.elapsed().as_nanos() as f64 / f64::from(rows);
        let start = Instant::now();
        for i in 0..rows {
            let row = (u64::from(i) * 7_919 % u64::from(rows)) as u32;
            assert!(tree.get(&(), &keys[row as usize]) == Some(row));
        }
        let found = start.elapsed().as_nanos() as f64 / f64::from(rows);
        let (key, all) = (bytes as f64 / f64::from(rows), tree.bytes() as f64 / f64::from(rows));
        println!("{name:>20} {key:>10.1} {all:>12.1} {:>12.1} {inserted:>10.0} {found:>10.0}", all - key);
    }
}

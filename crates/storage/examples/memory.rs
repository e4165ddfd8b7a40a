//! What a row takes in memory: bytes by part as the fragment accounts for them, and of the process as the system does, while rows come in the order of
//! their keys or in none, and when all are gone again. `memory [rows] [16+100|8+8] [sequential|random]`; all forms without the last two.
#![expect(
    unsafe_code,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the core"
)]

use std::{sync::Arc, time::Instant};

use apus_storage::{Fragment, MemoryManager, PAGE_BYTES, RowId};
use apus_types::{Column, ColumnType, Epoch, PartitionId, TableSchema, Value, hash::hash_key, key};

unsafe extern "C" {
    fn madvise(start: *mut u8, length: usize, advice: i32) -> i32;
}
const MADV_DONTNEED: i32 = 4;

/// As data nodes do it (`apus_runtime::release_memory`).
fn release(page: &mut [u8; PAGE_BYTES]) {
    // SAFETY: plain bytes of a private anonymous page, ours alone for the time of the call; zeros may be read of them afterwards.
    unsafe { madvise(page.as_mut_ptr(), PAGE_BYTES, MADV_DONTNEED) };
}

/// Bytes that are in memory of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// A number that no other one gives.
fn shuffled(i: u64) -> u64 {
    let mut z = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Form {
    schema: Arc<TableSchema>,
    wide: bool,
    random: bool,
}

impl Form {
    fn new(wide: bool, random: bool) -> Form {
        let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
        let int = ColumnType::Int { bits: 64, unsigned: true };
        let bytes = |length| ColumnType::VarBinary { length };
        let columns = match wide {
            true => vec![column("k", bytes(16)), column("v", bytes(100))],
            false => vec![column("k", int), column("v", int)],
        };
        Form { schema: Arc::new(TableSchema::new("d", "t", columns, vec![0])), wide, random }
    }
    fn make(&self, i: u64, image: &mut Vec<u8>, key: &mut Vec<u8>) {
        let number = if self.random { shuffled(i) } else { i };
        let text = format!("{number:016x}");
        let values = match self.wide {
            true => [Value::Bytes(text.as_bytes()), Value::Bytes(&[7; 100])],
            false => [Value::UInt(number), Value::UInt(i)],
        };
        image.clear();
        key.clear();
        self.schema.layout().encode(&values, image).expect("fits");
        key::encode_from_row(&self.schema, &[0], image, key).expect("fits");
    }
}

fn measure(rows: u64, wide: bool, random: bool) {
    let (form, memory, before) = (
        Form::new(wide, random),
        MemoryManager::releasing(64 << 30, MemoryManager::usual_limits(64 << 30), release),
        resident(),
    );
    let mut fragment = Fragment::new(form.schema.clone(), PartitionId(0), &memory).expect("memory");
    let (mut image, mut key) = (Vec::new(), Vec::new());
    let (mut start, mut first) = (Instant::now(), 0.0);
    for i in 0..rows {
        form.make(i, &mut image, &mut key);
        let row = fragment.insert_slot(&key, hash_key(&key)).expect("memory");
        fragment.push_pending(row, Some(&image), 7).expect("memory");
        fragment.commit(row, Epoch(1), Epoch(1));
        if i + 1 == rows / 50 {
            first = start.elapsed().as_nanos() as f64 / (rows / 50) as f64;
            start = Instant::now();
        }
    }
    let rest = start.elapsed().as_nanos() as f64 / (rows - rows / 50) as f64;
    let full = resident() - before;
    let per = |bytes: u64| bytes as f64 / rows as f64;
    let parts: Vec<String> = fragment.bytes_by_part().map(|(what, bytes)| format!("{what} {:.1}", per(bytes))).into();
    print!(
        "{} {}: {}",
        if wide { "16+100" } else { "8+8" },
        if random { "random" } else { "sequential" },
        parts.join(", ")
    );
    print!("; resident {:.1}; insert {first:.0} ns up to {}, then {rest:.0} ns", per(full), rows / 50);
    let (mut start, mut longest) = (Instant::now(), 0);
    for row in (0..rows).map(|i| RowId(i as u32)) {
        fragment.push_pending(row, None, 7).expect("memory");
        fragment.commit(row, Epoch(2), Epoch(2));
        fragment.reclaim(row);
        longest = longest.max(start.elapsed().as_micros());
        start = Instant::now();
    }
    let used: u64 = memory.usage().map(|region| region.used).sum();
    println!(
        "; all deleted: accounted {:.1}, resident {:.1}; longest delete {longest} us",
        per(used),
        per(resident().saturating_sub(before))
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let (form, order) = (arguments.next(), arguments.next());
    for wide in [true, false] {
        for random in [false, true] {
            let is = |asked: &Option<String>, name: &str| asked.as_deref().is_none_or(|asked| asked == name);
            if is(&form, if wide { "16+100" } else { "8+8" })
                && is(&order, if random { "random" } else { "sequential" })
            {
                measure(rows, wide, random);
            }
        }
    }
}

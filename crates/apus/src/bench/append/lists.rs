//! Lists as rows: their numbers, keys and bytes.
//!
//! A row holds a list as its values one after another, four bytes each. All rows are made before the run, empty, so that an append is always
//! an update of a row that is locked. Of each active place one list after the other is used; the n-th append to a place says
//! which list it goes to and which value it has, so values are unique within a list whatever becomes of their transactions.

use std::sync::atomic::{AtomicU64, Ordering};

use apus_client::{Client, OpBatch, Results};
use apus_signal::tc::OpKind;
use apus_types::{ColumnType, ErrorCode, TableSchema, Value, key, update};

use crate::bench::{
    cluster::{DATABASE, column, create_table},
    numbers::Random,
};

const LIST_COLUMN: u16 = 1;
/// Most values in a list.
const VALUES_MAX: u16 = 2000;
const VALUE_BYTES: u16 = 4;
const MADE_PER_BATCH: u64 = 200;
const ID: ColumnType = ColumnType::Int { bits: 64, unsigned: true };

pub struct Lists {
    pub table: TableSchema,
    active: u64,
    length: u64,
    /// Appends given out, by place.
    given: Vec<AtomicU64>,
}

impl Lists {
    pub fn new(table: TableSchema, active: u64, length: u64) -> Lists {
        Lists { table, active, length, given: (0..active).map(|_| AtomicU64::new(0)).collect() }
    }
    /// Rows needed for so many appends, however unevenly they fall on the places.
    pub fn capacity(appends: u64, active: u64, length: u64) -> u64 {
        let per_place = appends / active;
        // Random places get more than their share, by far less than this.
        (per_place + per_place / 4 + 64 * length).div_ceil(length) * active
    }
    /// The list that a place has now.
    pub fn at(&self, place: u64) -> u64 {
        self.given[place as usize].load(Ordering::Relaxed) / self.length * self.active + place
    }
    /// List and value of a new append to a place.
    pub fn append_at(&self, place: u64) -> (u64, u64) {
        let n = self.given[place as usize].fetch_add(1, Ordering::Relaxed);
        (n / self.length * self.active + place, n % self.length + 1)
    }
    pub fn random_place(&self, random: &mut Random) -> u64 {
        random.below(self.active)
    }
    /// Lists with numbers below this were in use.
    pub fn used(&self) -> u64 {
        let most = self.given.iter().map(|n| n.load(Ordering::Relaxed)).max().unwrap_or(0);
        (most / self.length + 1) * self.active
    }
}

/// Makes the table and its rows.
///
/// # Errors
/// The cluster refuses.
pub async fn create(client: &Client, rows: u64) -> Result<TableSchema, String> {
    let list = ColumnType::VarBinary { length: VALUES_MAX * VALUE_BYTES };
    let table = TableSchema::new(DATABASE, "append", vec![column("id", ID), column("list", list)], vec![0]);
    let table = create_table(client, &table).await?;
    let failed = |e: &dyn std::fmt::Display| format!("cannot make the lists: {e}");
    let (mut ops, mut results, mut row, mut key) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    let mut next = 0;
    while next < rows {
        ops.clear();
        for id in next..rows.min(next + MADE_PER_BATCH) {
            row.clear();
            encode_key(id, &mut key);
            table.layout().encode(&[Value::UInt(id), Value::Bytes(&[])], &mut row).map_err(|e| failed(&e))?;
            ops.push(&table, OpKind::Insert, 0, &key, &row).map_err(|e| failed(&e))?;
        }
        client.run_autocommit(&ops, 10_000, &mut results).await.map_err(|e| failed(&e))?;
        next += MADE_PER_BATCH;
    }
    Ok(table)
}

/// Replaces `out` by the encoded primary key of a list.
pub fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(ID, false, &Value::UInt(id), out).expect("every number fits its column");
}

/// The values of a row.
///
/// # Errors
/// The row is not one of ours.
pub fn decode(table: &TableSchema, row: &[u8]) -> Result<Vec<u64>, ErrorCode> {
    table.layout().check(row)?;
    let Value::Bytes(bytes) = table.layout().value(row, LIST_COLUMN) else { return Err(ErrorCode::Internal) };
    let (values, []) = bytes.as_chunks::<{ VALUE_BYTES as usize }>() else { return Err(ErrorCode::Internal) };
    Ok(values.iter().map(|v| u64::from(u32::from_le_bytes(*v))).collect())
}

/// The update that makes a list of these values.
///
/// # Errors
/// The list is too long, or a value too large.
pub fn program(values: &[u64], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    out.clear();
    if values.len() > usize::from(VALUES_MAX) {
        return Err(ErrorCode::ValueOutOfRange);
    }
    let mut bytes = Vec::with_capacity(values.len() * usize::from(VALUE_BYTES));
    for value in values {
        bytes.extend_from_slice(&u32::try_from(*value).map_err(|_| ErrorCode::ValueOutOfRange)?.to_le_bytes());
    }
    update::push_set(out, LIST_COLUMN, &bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(active: u64, length: u64) -> Lists {
        let list = ColumnType::VarBinary { length: VALUES_MAX * VALUE_BYTES };
        let table = TableSchema::new(DATABASE, "append", vec![column("id", ID), column("list", list)], vec![0]);
        table.validate().unwrap();
        Lists::new(table, active, length)
    }

    #[test]
    fn every_append_has_a_value_of_its_own_and_a_row() {
        let lists = lists(4, 10);
        let (mut random, mut seen) = (Random::new(3), std::collections::BTreeSet::new());
        for _ in 0..4000 {
            let place = lists.random_place(&mut random);
            assert_eq!(lists.at(place) % 4, place);
            let (list, value) = lists.append_at(place);
            assert!(seen.insert((list, value)) && (1..=10).contains(&value) && list < lists.used());
        }
        assert!(lists.used() <= Lists::capacity(4000, 4, 10), "{}", lists.used());
    }

    #[test]
    fn rows_hold_lists() {
        let lists = lists(1, 1);
        let (mut row, mut new, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        lists.table.layout().encode(&[Value::UInt(7), Value::Bytes(&[])], &mut row).unwrap();
        assert_eq!(decode(&lists.table, &row), Ok(vec![]));
        program(&[1, 70_000, 3], &mut bytes).unwrap();
        update::apply(&lists.table, &row, &bytes, &mut new).unwrap();
        assert_eq!(decode(&lists.table, &new), Ok(vec![1, 70_000, 3]));
        assert!(program(&[u64::MAX], &mut bytes).is_err());
        assert!(decode(&lists.table, &new[..new.len() - 1]).is_err());
    }
}

//! What a SERIALIZABLE transaction has read.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use apus_client::{KeyList, Rows};
use apus_types::{IndexNo, TableId, TableSchema};

use crate::plan::access::EncodedRange;

/// Keys and ranges kept of a table.
pub const KEPT_MAX: usize = 16_384;
/// Bytes of them.
pub const BYTES_MAX: usize = 4 << 20;

/// Kept while a SERIALIZABLE transaction is open, and of nothing else.
#[derive(Default)]
pub struct Reads {
    are_kept: Cell<bool>,
    tables: RefCell<BTreeMap<TableId, OfTable>>,
}

/// Of one table and its unique indexes.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct OfTable {
    /// Read at the snapshot: keys of the table, or entries of a unique index, by the table that has them; whether a row was there.
    keys: BTreeMap<(TableId, Vec<u8>), bool>,
    /// Keys that were to be locked, without a row.
    missing: BTreeSet<Vec<u8>>,
    ranges: BTreeSet<(IndexNo, EncodedRange)>,
    /// Some of the above was not there, or a whole range was looked at.
    has_gaps: bool,
    count: usize,
    bytes: usize,
}

impl Reads {
    pub fn are_kept(&self) -> bool {
        self.are_kept.get()
    }
    pub fn keep(&self, keep: bool) {
        self.are_kept.set(keep);
    }
    pub fn clear(&self) {
        self.keep(false);
        if !self.tables.borrow().is_empty() {
            self.take();
        }
    }
    /// Takes what there is out; nothing more is kept.
    pub fn take(&self) -> BTreeMap<TableId, OfTable> {
        self.keep(false);
        self.tables.take()
    }

    /// Keys of a table, or of a unique index's own, that were read at the snapshot. An entry that is there leads to a row, which counts instead of it.
    pub fn keys(&self, schema: &TableSchema, keys: &KeyList, rows: &Rows) {
        if !self.are_kept() {
            return;
        }
        for (i, row) in rows.iter().enumerate() {
            let is_entry = schema.base_table.is_some();
            if let Some(key) = keys.key(i).filter(|_| !is_entry || row.is_none()) {
                self.put(schema, key.len(), |of| {
                    of.has_gaps |= row.is_none();
                    of.keys.insert((schema.id, key.to_vec()), row.is_some()).is_none()
                });
            }
        }
    }

    /// A key that was to be locked, without a row.
    pub fn missing(&self, schema: &TableSchema, key: &[u8]) {
        self.put(schema, key.len(), |of| {
            of.has_gaps = true;
            of.missing.insert(key.to_vec())
        });
    }

    pub fn range(&self, schema: &TableSchema, index: IndexNo, range: &EncodedRange) {
        let bytes = |bound: &Option<Vec<u8>>| bound.as_ref().map_or(0, Vec::len);
        self.put(schema, bytes(&range.0) + bytes(&range.1), |of| {
            of.has_gaps = true;
            of.ranges.insert((index, range.clone()))
        });
    }

    pub fn whole(&self, schema: &TableSchema) {
        self.range(schema, IndexNo(0), &(None, None));
    }

    fn put(&self, schema: &TableSchema, bytes: usize, put: impl FnOnce(&mut OfTable) -> bool) {
        if !self.are_kept() {
            return;
        }
        let mut tables = self.tables.borrow_mut();
        let of = tables.entry(schema.base_table.unwrap_or(schema.id)).or_default();
        if of.is_whole() || !put(of) {
            return;
        }
        of.count += 1;
        of.bytes += bytes;
        if of.count > KEPT_MAX || of.bytes > BYTES_MAX {
            let ranges = [(IndexNo(0), (None, None))].into();
            *of = OfTable { has_gaps: true, ranges, ..OfTable::default() };
        }
    }
}

impl OfTable {
    fn is_whole(&self) -> bool {
        self.ranges.contains(&(IndexNo(0), (None, None)))
    }
    pub fn has_gaps(&self) -> bool {
        self.has_gaps
    }
    /// A row that was read is gone.
    pub fn note_gap(&mut self) {
        self.has_gaps = true;
    }
    /// Keys of the table whose rows were read.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().filter(|(_, is_there)| **is_there).map(|((_, key), _)| key.as_slice())
    }
    /// Keys that this table has, be it the table itself or a unique index's own.
    pub fn keys_of(&self, table: TableId) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().filter(move |(of, _)| *of == table).map(|(_, key)| key.as_slice())
    }
    pub fn missing(&self) -> impl Iterator<Item = &[u8]> {
        self.missing.iter().map(Vec::as_slice)
    }
    pub fn ranges(&self) -> impl Iterator<Item = (IndexNo, &EncodedRange)> {
        self.ranges.iter().map(|(index, range)| (*index, range))
    }
}

#[cfg(test)]
mod tests {
    use apus_types::{Column, ColumnType};

    use super::*;

    fn table(id: u32) -> TableSchema {
        let column = Column { nullable: false, ..Column::new("id", ColumnType::Int { bits: 32, unsigned: true }) };
        let mut table = TableSchema::new("d", "t", vec![column], vec![0]);
        table.id = TableId(id);
        table
    }

    fn kept() -> Reads {
        let reads = Reads::default();
        reads.keep(true);
        reads
    }

    #[test]
    fn nothing_is_kept_of_other_levels() {
        let reads = Reads::default();
        reads.whole(&table(7));
        reads.missing(&table(7), b"k");
        assert!(reads.take().is_empty());
    }

    #[test]
    fn an_entry_that_is_there_is_left_to_its_row() {
        let (reads, base, mut index) = (kept(), table(7), table(8));
        index.base_table = Some(base.id);
        let (mut keys, mut rows) = (KeyList::new(), Rows::new());
        keys.push_hashed(1, b"a").unwrap();
        rows.append(b"row").unwrap();
        reads.keys(&index, &keys, &rows);
        reads.keys(&base, &keys, &rows);
        let found = reads.take().remove(&base.id).unwrap();
        assert!(!found.has_gaps());
        assert_eq!(found.rows().collect::<Vec<_>>(), [b"a"]);
        assert_eq!((found.keys_of(index.id).count(), found.keys_of(base.id).count()), (0, 1));
    }

    #[test]
    fn beyond_the_limit_whole_tables_count() {
        let (reads, base) = (kept(), table(7));
        for n in 0..=KEPT_MAX as u32 {
            reads.missing(&base, &n.to_be_bytes());
        }
        reads.missing(&base, b"one more");
        let found = reads.take().remove(&base.id).unwrap();
        assert_eq!((found.missing().count(), found.ranges().count(), found.has_gaps()), (0, 1, true));
    }
}

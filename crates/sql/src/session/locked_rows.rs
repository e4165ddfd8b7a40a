//! Rows that the open transaction has locked exclusively, and changes of them that nobody has been told of yet.
//!
//! Nobody else changes such a row, so what it holds is known here until the transaction ends. A statement that names it by its primary key is
//! answered without asking anybody: SELECT ... FOR UPDATE again, a plain SELECT that reads what is there now, UPDATE and DELETE. The change itself *waits*:
//! it goes in front of the next batch of operations, or with the commit. What is done by SELECT ... FOR UPDATE and UPDATE, as most applications do, costs one
//! conversation with the data nodes instead of two.
//!
//! # What may wait
//!
//! A change that cannot be refused for what is in the database: of a row that is there and locked, in a table without unique indexes, of columns that no index
//! has. What the cluster may still say (no memory, the table was altered) comes with the statement or the commit that takes the change along, and undoes that one; a refused commit is a
//! rollback, as ever.
//!
//! # Who must not overlook it
//!
//! Reads that go past the coordinator: [`crate::exec::reader`] sends what waits of the table first. Savepoints: a batch has one number, and what is
//! taken along has that of an earlier statement. So what waits is sent before SAVEPOINT makes a number, and what a statement has taken along is kept until it has
//! ended ([`OwnRows::begin_statement`]): if the statement is undone, that waits again ([`OwnRows::rolled_back_to`]).
//!
//! Limits: [`ROWS_MAX`], [`BYTES_MAX`], [`WAITING_MAX`].

use std::ops::Range;

use apus_client::{OpBatch, Results};
use apus_types::{TableId, TableSchema, key};

/// Rows known of a transaction.
pub const ROWS_MAX: usize = 64;
/// Bytes of them, keys included; what they were before they were changed counts, too.
pub const BYTES_MAX: usize = 256 << 10;
/// Changes that wait; more are sent.
pub const WAITING_MAX: usize = 64;

struct Row {
    table: TableId,
    version: u32,
    key: (usize, usize),
    row: (usize, usize),
}

/// Changes of one statement.
#[derive(Clone, Copy)]
struct Mark {
    of: u32,
    /// Number of the batch that took them along; 0 as long as they wait.
    sent_as: u32,
    /// Of its operations, in the list.
    end: usize,
}

/// Operations in the order to be executed, statement by statement.
#[derive(Default)]
struct Changes {
    ops: OpBatch,
    marks: Vec<Mark>,
    tables: Vec<TableId>,
}

impl Changes {
    fn clear(&mut self) {
        self.ops.clear();
        self.marks.clear();
        self.tables.clear();
    }
    /// End of the operations of the first statements for which `is` holds.
    fn end_of(&self, is: impl Fn(&Mark) -> bool) -> usize {
        self.marks.iter().take_while(|mark| is(mark)).last().map_or(0, |mark| mark.end)
    }
    /// Adds operations of another list, as those that were, or were not, sent under a number.
    fn append(&mut self, other: &Changes, numbers: Range<usize>, sent_as: u32) {
        let before = self.ops.len();
        let of_these = |mark: &&Mark| numbers.start < mark.end && mark.end <= numbers.end;
        let moved = |mark: &Mark| Mark { sent_as, end: before + mark.end - numbers.start, ..*mark };
        self.marks.extend(other.marks.iter().filter(of_these).map(moved));
        self.ops.append(&other.ops, numbers.clone());
        other.tables.iter().for_each(|table| self.is_of(*table));
    }
    fn is_of(&mut self, table: TableId) {
        if !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }
}

#[derive(Default)]
pub struct OwnRows {
    rows: Vec<Row>,
    bytes: Vec<u8>,
    waiting: Changes,
    /// Went along with batches of the present statement.
    along: Changes,
    /// What is sent: what waits, and the batch.
    batch: OpBatch,
    results: Results,
}

impl OwnRows {
    pub fn clear(&mut self) {
        self.forget_rows();
        self.waiting.clear();
        self.along.clear();
    }

    /// A statement begins: none before it is undone alone.
    pub fn begin_statement(&mut self) {
        self.along.clear();
    }

    pub fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The row with this primary key, as the transaction has left it.
    pub fn find(&self, schema: &TableSchema, key: &[u8]) -> Option<&[u8]> {
        let row = self.rows.iter().find(|row| self.is(row, schema, key))?;
        Some(&self.bytes[row.row.0..row.row.1])
    }

    fn is(&self, row: &Row, schema: &TableSchema, key: &[u8]) -> bool {
        row.table == schema.id && row.version == schema.version && self.bytes[row.key.0..row.key.1] == *key
    }

    /// The transaction has locked the row exclusively, or changed it since.
    pub fn hold(&mut self, schema: &TableSchema, key: &[u8], row: &[u8]) {
        let known = self.rows.iter().position(|row| self.is(row, schema, key));
        if let Some((start, end)) = known.map(|at| self.rows[at].row).filter(|(start, end)| end - start == row.len()) {
            self.bytes[start..end].copy_from_slice(row);
            return;
        }
        let new = row.len() + if known.is_some() { 0 } else { key.len() };
        if self.bytes.len() + new > BYTES_MAX || known.is_none() && self.rows.len() >= ROWS_MAX {
            if let Some(at) = known {
                self.rows.swap_remove(at);
            }
            return;
        }
        let mut put = |bytes: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            (start, self.bytes.len())
        };
        let row = put(row);
        match known {
            Some(at) => self.rows[at].row = row,
            None => {
                let key = put(key);
                self.rows.push(Row { table: schema.id, version: schema.version, key, row });
            }
        }
    }

    /// The row is gone, or what it holds is not known.
    pub fn forget(&mut self, schema: &TableSchema, key: &[u8]) {
        if let Some(at) = self.rows.iter().position(|row| self.is(row, schema, key)) {
            self.rows.swap_remove(at);
        }
    }

    /// Rows of a table were changed in another way.
    pub fn forget_table(&mut self, table: TableId) {
        self.rows.retain(|row| row.table != table);
    }

    pub fn forget_rows(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    /// Whether this change of a row may wait; `new`: what it becomes, none where it is deleted.
    pub fn may_wait(&self, schema: &TableSchema, old: &[u8], new: Option<&[u8]>) -> bool {
        let is_same = |columns: &[u16]| new.is_none_or(|new| key::same_columns(schema.layout(), columns, old, new));
        self.waiting.ops.len() < WAITING_MAX
            && self.waiting.ops.byte_len() < BYTES_MAX
            && new.is_none_or(|new| new.len() < BYTES_MAX)
            && schema.indexes.iter().all(|index| !index.unique && is_same(&index.columns))
    }

    /// Changes of rows that are held wait; the caller has found that they may, and says what the rows are now.
    pub fn wait(&mut self, savepoint: u32, schema: &TableSchema, ops: &OpBatch) {
        self.waiting.ops.append(ops, 0..ops.len());
        self.waiting.marks.push(Mark { of: savepoint, sent_as: 0, end: self.waiting.ops.len() });
        self.waiting.is_of(schema.id);
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.ops.is_empty()
    }
    pub fn waits_of(&self, table: TableId) -> bool {
        self.waiting.tables.contains(&table)
    }

    /// What waits and then these operations, and how many of them wait. To be given back by [`OwnRows::sent`].
    pub fn with(&mut self, ops: &OpBatch) -> (OpBatch, usize) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let count = self.waiting.ops.len();
        batch.append(&self.waiting.ops, 0..count);
        batch.append(ops, 0..ops.len());
        (batch, count)
    }
    /// The batch was executed under this number, or refused, which leaves things as they were.
    pub fn sent(&mut self, batch: OpBatch, executed_as: Option<u32>) {
        self.batch = batch;
        if let Some(savepoint) = executed_as {
            self.along.append(&self.waiting, 0..self.waiting.ops.len(), savepoint);
            self.waiting.clear();
        }
    }

    /// A buffer for answers that say nothing.
    pub fn results(&mut self) -> Results {
        std::mem::take(&mut self.results)
    }
    pub fn keep_results(&mut self, results: Results) {
        self.results = results;
    }

    /// Everything from this number on was undone.
    pub fn rolled_back_to(&mut self, savepoint: u32) {
        self.forget_rows();
        let is_kept = |mark: &Mark| mark.of < savepoint;
        let undone = self.along.end_of(|mark| mark.sent_as < savepoint)..self.along.end_of(is_kept);
        let mut waiting = Changes::default();
        waiting.append(&self.along, undone, 0);
        waiting.append(&self.waiting, 0..self.waiting.end_of(is_kept), 0);
        self.waiting = waiting;
        self.along.clear();
    }
}

#[cfg(test)]
mod tests {
    use apus_signal::tc::OpKind;
    use apus_types::{Column, ColumnType};

    use super::*;

    fn schema() -> TableSchema {
        let column =
            |name: &str| Column { nullable: false, ..Column::new(name, ColumnType::Int { bits: 32, unsigned: true }) };
        TableSchema::new("d", "t", vec![column("id")], vec![0])
    }

    fn ops(schema: &TableSchema, keys: &[u8]) -> OpBatch {
        let mut ops = OpBatch::new();
        keys.iter().for_each(|key| ops.push(schema, OpKind::Update, 0, &[*key], b"").unwrap());
        ops
    }

    /// What would be sent now, by the keys of [`ops`].
    fn waiting(own: &mut OwnRows, schema: &TableSchema) -> usize {
        let (batch, count) = own.with(&ops(schema, &[9]));
        assert_eq!(batch.len(), count + 1);
        own.sent(batch, None);
        assert_eq!(own.has_waiting(), count > 0);
        count
    }

    fn send(own: &mut OwnRows, schema: &TableSchema, savepoint: u32) {
        let (batch, _) = own.with(&ops(schema, &[9]));
        own.sent(batch, Some(savepoint));
    }

    #[test]
    fn what_went_along_with_a_statement_that_is_undone_waits_again() {
        let (schema, mut own) = (schema(), OwnRows::default());
        own.begin_statement();
        own.wait(1, &schema, &ops(&schema, &[1, 2]));
        own.begin_statement();
        own.wait(2, &schema, &ops(&schema, &[3]));
        own.begin_statement();
        send(&mut own, &schema, 3);
        own.wait(4, &schema, &ops(&schema, &[4]));
        send(&mut own, &schema, 5);
        assert_eq!(waiting(&mut own, &schema), 0);
        own.rolled_back_to(3);
        assert_eq!(waiting(&mut own, &schema), 3, "of statements 1 and 2, not of 4");
        assert!(own.waits_of(schema.id));
        own.rolled_back_to(2);
        assert_eq!(waiting(&mut own, &schema), 2);
    }

    #[test]
    fn what_was_sent_before_the_point_is_not_sent_again() {
        let (schema, mut own) = (schema(), OwnRows::default());
        own.begin_statement();
        own.wait(1, &schema, &ops(&schema, &[1]));
        send(&mut own, &schema, 2);
        own.wait(3, &schema, &ops(&schema, &[2, 3]));
        send(&mut own, &schema, 4);
        own.rolled_back_to(4);
        assert_eq!(waiting(&mut own, &schema), 2);
        send(&mut own, &schema, 5);
        own.begin_statement();
        own.rolled_back_to(3);
        assert_eq!(waiting(&mut own, &schema), 0);
    }

    #[test]
    fn rows_are_known_within_limits() {
        let (schema, mut own) = (schema(), OwnRows::default());
        own.hold(&schema, b"k", b"first");
        own.hold(&schema, b"k", b"again");
        assert_eq!(own.find(&schema, b"k"), Some(&b"again"[..]));
        own.hold(&schema, b"k", b"of another length");
        assert_eq!(own.find(&schema, b"k"), Some(&b"of another length"[..]));
        assert_eq!(own.find(&schema, b"l"), None);
        own.hold(&schema, b"k", &vec![0; BYTES_MAX]);
        assert_eq!(own.find(&schema, b"k"), None, "not what it was before");
        (0..=ROWS_MAX).for_each(|i| own.hold(&schema, &[i as u8], b"row"));
        let last = ROWS_MAX as u8;
        assert_eq!((own.find(&schema, &[last - 1]).is_some(), own.find(&schema, &[last])), (true, None));
        own.forget(&schema, &[3]);
        assert!(own.find(&schema, &[3]).is_none() && own.find(&schema, &[last - 1]).is_some());
        own.forget_table(schema.id);
        assert!(!own.has_rows());
    }
}

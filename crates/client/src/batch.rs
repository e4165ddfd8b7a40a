//! Reusable containers of a transaction: operations to execute, their results.

use std::{fmt::Write, ops::Range};

use apus_signal::{
    Reader,
    tc::{Op, OpKind, OpResult, OpStatus},
};
use apus_types::{ErrorCode, PartitionId, TableSchema, key, limits};

use crate::rows::BUFFER_KEPT_MAX;

/// Operations of a transaction in the order to execute, already in wire form. Reuse it: [`OpBatch::clear`] keeps the memory.
///
/// Operations may be on any tables. A batch over the limits of one message is sent as several; see
/// [`crate::Transaction::execute`].
#[derive(Clone, Debug, Default)]
pub struct OpBatch {
    bytes: Vec<u8>,
    entries: Vec<OpEntry>,
    writes: bool,
    /// Operations of a message, where the tables that are written say how many.
    most: Option<usize>,
    /// Constraints held by the caller.
    holds_constraints: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpEntry {
    hash: u64,
    end: usize,
}

impl OpBatch {
    pub fn new() -> OpBatch {
        OpBatch::default()
    }
    /// Constraints held by the caller: rows may be written to tables with foreign keys, CHECK constraints and generated columns.
    pub fn hold_constraints(&mut self) {
        self.holds_constraints = true;
    }
    pub fn clear(&mut self) {
        if self.bytes.capacity() > BUFFER_KEPT_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.entries.clear();
        self.writes = false;
        self.most = None;
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// Bytes of the encoded operations.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }
    pub fn has_writes(&self) -> bool {
        self.writes
    }

    /// Adds an operation on `schema`. `key` is the encoded primary key; `value` is the row (Insert, Write), the update program
    /// (Update), the projection as little-endian column numbers (reads; empty: whole row) or empty (Delete). `flags` are
    /// those of [`apus_signal::tc`] (`ALLOW_MISSING`, ...).
    ///
    /// # Errors
    /// `KeyTooLong`, `RowTooBig`, `ConstraintsNotHeld`.
    #[inline]
    pub fn push(
        &mut self,
        schema: &TableSchema,
        kind: OpKind,
        flags: u8,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), ErrorCode> {
        self.push_hashed(schema, key::distribution_hash(schema, key), kind, flags, key, value)
    }

    /// As [`OpBatch::push`] where the key's distribution hash is known (from a unique index entry).
    ///
    /// # Errors
    /// `KeyTooLong`, `RowTooBig`; `ConstraintsNotHeld` for a change of a table with foreign keys, unless the caller holds them.
    pub fn push_hashed(
        &mut self,
        schema: &TableSchema,
        distribution_hash: u64,
        kind: OpKind,
        flags: u8,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), ErrorCode> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(ErrorCode::KeyTooLong);
        }
        if (schema.is_constrained() || schema.has_rules()) && kind.is_write() && !self.holds_constraints {
            return Err(ErrorCode::ConstraintsNotHeld);
        }
        if value.len() > limits::ROW_BYTES_MAX {
            return Err(ErrorCode::RowTooBig);
        }
        // The partition is filled in when the batch is sent, by the map of that moment.
        let partition = PartitionId(0);
        Op { kind, flags, partition, table: schema.id, schema_version: schema.version, key, value }
            .encode(&mut self.bytes);
        self.entries.push(OpEntry { hash: distribution_hash, end: self.bytes.len() });
        self.writes |= kind.is_write();
        if kind.is_write() {
            self.at_most(schema.writes_max());
        }
        Ok(())
    }

    /// Adds a locking read of `columns` (`None`: the whole row).
    ///
    /// # Errors
    /// `KeyTooLong`.
    pub fn push_read(
        &mut self,
        schema: &TableSchema,
        exclusive: bool,
        flags: u8,
        key: &[u8],
        columns: Option<&[u16]>,
    ) -> Result<(), ErrorCode> {
        let kind = if exclusive { OpKind::ReadExclusive } else { OpKind::ReadShared };
        let mut projection = [0u8; 2 * limits::COLUMNS_MAX];
        let columns = columns.unwrap_or(&[]);
        let bytes = projection.get_mut(..2 * columns.len()).ok_or(ErrorCode::RequestTooLarge)?;
        for (pair, column) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(columns) {
            *pair = column.to_le_bytes();
        }
        self.push(schema, kind, flags, key, bytes)
    }

    /// Adds some operations of another batch.
    pub fn append(&mut self, other: &OpBatch, numbers: Range<usize>) {
        let start_of = |number: usize| if number == 0 { 0 } else { other.entries[number - 1].end };
        let (skipped, base) = (start_of(numbers.start), self.bytes.len());
        self.bytes.extend_from_slice(&other.bytes[skipped..start_of(numbers.end)]);
        let added = other.entries[numbers].iter();
        self.entries.extend(added.map(|e| OpEntry { hash: e.hash, end: base + e.end - skipped }));
        self.writes |= other.writes;
        other.most.into_iter().for_each(|most| self.at_most(most));
    }
    fn at_most(&mut self, writes: usize) {
        self.most = Some(self.most.map_or(writes, |most| most.min(writes)));
    }
    /// Leaves the first `count` operations.
    pub fn truncate(&mut self, count: usize) {
        self.entries.truncate(count);
        self.bytes.truncate(self.entries.last().map_or(0, |e| e.end));
        self.writes &= !self.entries.is_empty();
    }

    pub(crate) fn hash(&self, index: usize) -> u64 {
        self.entries[index].hash
    }
    /// Operation `index` in wire form.
    /// For an error: how many operations, and the first.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("batch of {} operations", self.len());
        if !self.is_empty()
            && let Ok(op) = Op::decode(&mut Reader::new(self.op_bytes(0)))
        {
            let (kind, table) = (op.kind, op.table.0);
            let _ = write!(text, ", the first of them {kind:?} of table {table}, key 0x");
            op.key.iter().take(32).for_each(|byte| _ = write!(text, "{byte:02x}"));
        }
        text
    }
    pub(crate) fn op_bytes(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.entries[index - 1].end };
        &self.bytes[start..self.entries[index].end]
    }
    /// End of the message that starts with operation `first`: as many as the limits of one message allow, at least one.
    pub(crate) fn message_end(&self, first: usize) -> usize {
        let start = if first == 0 { 0 } else { self.entries[first - 1].end };
        let mut end = first;
        while end < self.entries.len()
            && end - first < self.most.unwrap_or(limits::BATCH_OPS_MAX)
            && (end == first || self.entries[end].end - start <= MESSAGE_BYTES_MAX)
        {
            end += 1;
        }
        end
    }
}

/// A batch is split into messages of about this many bytes, so that a large one neither blocks a link nor meets the limit of
/// a signal.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Offset of the partition in an encoded operation.
pub(crate) const OP_PARTITION_AT: usize = 2;

const _: () =
    assert!(MESSAGE_BYTES_MAX + limits::ROW_BYTES_MAX + limits::KEY_BYTES_MAX + 64 < limits::SIGNAL_BYTES_MAX);

/// Results of a batch, one per operation in order. Reuse it; buffers are swapped with the client's own.
#[derive(Clone, Debug, Default)]
pub struct Results {
    bytes: Vec<u8>,
    spans: Vec<ResultSpan>,
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct ResultSpan {
    status: OpStatus,
    start: u32,
    length: u32,
}

impl Results {
    pub fn new() -> Results {
        Results::default()
    }
    pub fn clear(&mut self) {
        if self.bytes.capacity() > BUFFER_KEPT_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.spans.clear();
        self.lost = false;
    }
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// The batch was committed, but the coordinator died before its answer arrived: there are no results, only the knowledge
    /// (from another node) that every operation succeeded and is committed. Rows affected and rows read are not known.
    pub fn lost(&self) -> bool {
        self.lost
    }
    pub fn status(&self, index: usize) -> Option<OpStatus> {
        self.spans.get(index).map(|s| s.status)
    }
    /// The row of a locking read; empty for writes and for rows that were not there.
    pub fn row(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans.get(index)?;
        self.bytes.get(span.start as usize..)?.get(..span.length as usize)
    }
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (OpStatus, &[u8])> {
        self.spans.iter().map(|s| {
            let row = self.bytes.get(s.start as usize..).and_then(|b| b.get(..s.length as usize));
            (s.status, row.unwrap_or(&[]))
        })
    }

    /// Forgets the results of the first `count` operations.
    pub fn skip(&mut self, count: usize) {
        self.spans.drain(..count.min(self.spans.len()));
    }

    pub(crate) fn set_lost(&mut self) {
        self.clear();
        self.lost = true;
    }
    /// The buffer itself, emptied, to be swapped with a whole answer; results are then added by position in it.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.clear();
        &mut self.bytes
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    pub(crate) fn push_span(&mut self, status: OpStatus, start: usize, length: usize) {
        self.spans.push(ResultSpan { status, start: start as u32, length: length as u32 });
    }
    /// Copies a result of a batch that was split.
    ///
    /// # Errors
    /// `RequestTooLarge` over 4 GiB.
    pub(crate) fn push(&mut self, result: &OpResult<'_>) -> Result<(), ErrorCode> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| ErrorCode::RequestTooLarge)?;
        self.bytes.extend_from_slice(result.row);
        self.spans.push(ResultSpan { status: result.status, start, length: result.row.len() as u32 });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_types::{Column, ColumnType};

    fn schema() -> TableSchema {
        let column = Column { nullable: false, ..Column::new("id", ColumnType::Int { bits: 32, unsigned: true }) };
        TableSchema::new("d", "t", vec![column], vec![0])
    }

    #[test]
    fn rows_of_constrained_tables_are_written_by_who_holds_the_constraints() {
        let mut schema = schema();
        schema.held.is_referenced = true;
        let mut ops = OpBatch::new();
        assert_eq!(ops.push(&schema, OpKind::Delete, 0, b"key", b""), Err(ErrorCode::ConstraintsNotHeld));
        ops.push_read(&schema, true, 0, b"key", None).unwrap();
        ops.hold_constraints();
        ops.push(&schema, OpKind::Delete, 0, b"key", b"").unwrap();
        ops.clear();
        ops.push(&schema, OpKind::Delete, 0, b"key", b"").unwrap();
        assert_eq!(ops.len(), 1);
    }

    #[test]
    fn rows_of_a_constrained_table_are_for_those_who_hold_its_constraints() {
        let mut schema = schema();
        let (text, enforced) = ("(`id` > 5)".to_owned(), Default::default());
        schema.checks.push(apus_types::rules::CheckDef { name: "c".to_owned(), text, enforced });
        schema.refresh();
        let mut batch = OpBatch::new();
        for kind in [OpKind::Insert, OpKind::Write, OpKind::Update, OpKind::Delete] {
            assert_eq!(batch.push(&schema, kind, 0, b"k", b""), Err(ErrorCode::ConstraintsNotHeld));
        }
        batch.push_read(&schema, true, 0, b"k", None).unwrap();
        batch.hold_constraints();
        batch.clear();
        batch.push(&schema, OpKind::Insert, 0, b"k", b"").unwrap();
    }

    #[test]
    fn batches_are_joined_and_cut() {
        let schema = schema();
        let [mut a, mut b] = [OpBatch::new(), OpBatch::new()];
        for i in 0..3u32 {
            a.push(&schema, OpKind::Delete, 0, &i.to_be_bytes(), b"").unwrap();
            b.push(&schema, OpKind::Update, 0, &i.to_be_bytes(), b"program").unwrap();
        }
        let mut both = OpBatch::new();
        both.append(&a, 1..3);
        both.append(&b, 0..3);
        let ops: Vec<_> = (0..both.len()).map(|i| (both.hash(i), both.op_bytes(i).to_vec())).collect();
        let parts: Vec<_> = [(&a, 1), (&a, 2), (&b, 0), (&b, 1), (&b, 2)]
            .map(|(batch, i)| (batch.hash(i), batch.op_bytes(i).to_vec()))
            .into();
        assert_eq!(ops, parts);
        both.truncate(2);
        both.append(&b, 3..3);
        assert_eq!((both.len(), both.op_bytes(1), both.has_writes()), (2, a.op_bytes(2), true));
        both.truncate(0);
        assert_eq!((both.len(), both.byte_len(), both.has_writes()), (0, 0, false));
    }

    #[test]
    fn long_batches_are_cut_by_count_and_by_bytes() {
        let schema = schema();
        let mut batch = OpBatch::new();
        for i in 0..3000u32 {
            batch.push(&schema, OpKind::Delete, 0, &i.to_be_bytes(), b"").unwrap();
        }
        assert_eq!(batch.message_end(0), 1024);
        assert_eq!(batch.message_end(2048), 3000);
        batch.clear();
        let row = vec![0u8; 3 << 20];
        for i in 0..3u32 {
            batch.push(&schema, OpKind::Write, 0, &i.to_be_bytes(), &row).unwrap();
        }
        assert_eq!((batch.message_end(0), batch.message_end(1), batch.message_end(2)), (1, 2, 3));
        assert!(batch.has_writes());
        assert_eq!(
            batch.push(&schema, OpKind::Write, 0, b"k", &vec![0; limits::ROW_BYTES_MAX + 1]),
            Err(ErrorCode::RowTooBig)
        );
    }
}

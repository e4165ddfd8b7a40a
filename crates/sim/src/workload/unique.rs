//! Items: rows with a unique column, which may be NULL, and an indexed one. Members insert, change and delete rows of their own, while the values
//! of the unique column belong to whoever has them. A column lists marks that follow from the two, and has an index of lists. Some statements fail for a value that is taken and are undone, the rest of their transaction
//! goes on. When all rest, the table is read by its key, through the unique index, through that of lists and through the ordered one; [`crate::check::unique`] compares,
//! and every row must be what its owner last made of it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use apus_client::{
    Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest, Transaction,
};
use apus_kernel::Random;
use apus_signal::tc::{ALLOW_MISSING, OpKind};
use apus_types::{
    Column, ColumnType, Epoch, ErrorCode, IndexDef, IndexNo, IndexState, TableSchema, TransId, Value,
    hash::hash_key,
    key, list,
    schema::{HIDDEN_KEY_COLUMN, HIDDEN_PK_COLUMN},
    update,
};

use super::{
    crew::{Fate, Hall, LOCK_WAIT_MS, Member, Play, column, encode_key, number, number_type, partitions, scan, table},
    ledger::{Changes, Ledger},
};
use crate::{
    check::unique::{ADDED, Row, Table, marks, rows_by_key},
    drill::Judgement,
};

const ROWS_PER_MEMBER: u64 = 12;
/// Keys of one read.
const KEYS_AT_ONCE: usize = 1000;
pub(super) const ID: &str = "id";
pub(super) const UNIQUE: &str = "tag";
pub(super) const ORDERED: &str = "rank";
/// Lists the keys of [`marks`].
const LISTED: &str = "marks";

pub(super) struct Items {
    hall: Rc<Hall>,
    /// Values that the unique column takes.
    values: u64,
    ledger: Ledger,
    found: RefCell<Vec<Table>>,
    refused: Cell<u64>,
}

impl Items {
    pub fn new(hall: Rc<Hall>) -> Items {
        let values = [6, 20, 100][Random::new(hall.seed ^ 0x756e_6971).below(3) as usize];
        Items { hall, values, ledger: Ledger::default(), found: RefCell::default(), refused: Cell::new(0) }
    }
    /// What a statement makes of a row, as its member knows it so far.
    fn change(&self, random: &mut Random, member: u64, now: &Changes) -> (u64, OpKind, Option<Row>) {
        let id = member * ROWS_PER_MEMBER + random.below(ROWS_PER_MEMBER);
        let possible = now.get(&id).cloned().unwrap_or_else(|| self.ledger.possible(id));
        let row = Row {
            key: id,
            unique: (!random.one_in(4)).then(|| random.below(self.values)),
            ordered: random.below(30),
            added: None,
        };
        let certain = if let [one] = possible.as_slice() { Some(*one) } else { None };
        match (certain, random.below(4)) {
            (_, 0) => (id, OpKind::Delete, None),
            (Some(None), _) => (id, OpKind::Insert, Some(row)),
            // Only the indexed column, by an update program.
            (Some(Some(old)), 1) => (id, OpKind::Update, Some(Row { ordered: row.ordered, ..old })),
            _ => (id, OpKind::Write, Some(row)),
        }
    }
    /// One statement after another, each undone alone if its value is taken.
    async fn statements(
        &self,
        member: &Member,
        transaction: &mut Transaction,
        random: &mut Random,
        table: &TableSchema,
    ) -> Result<(), ClientError> {
        let mut now = Changes::new();
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let statements = 1..2 + random.below(3) as u32;
        let end = statements.end;
        for savepoint in statements {
            let before = now.clone();
            ops.clear();
            for _ in 0..1 + random.below(3) {
                let (id, kind, row) = self.change(random, member.number, &now);
                push(&mut ops, table, id, kind, row)?;
                now.insert(id, vec![row]);
            }
            self.ledger.intend(member.number, &now);
            let options = ExecOptions { commit: false, savepoint, lock_wait_ms: LOCK_WAIT_MS };
            match transaction.execute(&ops, options, &mut results).await {
                Ok(()) => {}
                Err(error) if error.code == ErrorCode::DuplicateKey && !error.aborted => {
                    self.refuse(&error);
                    now = before;
                    self.ledger.intend(member.number, &now);
                }
                Err(error) => return Err(error),
            }
        }
        if self.hall.desk.is_open && random.one_in(2) {
            member.doing("prepares changes of its rows".to_owned());
            let violation = |text| self.hall.violation(text);
            let at = (&member.client, &member.clock);
            return self.hall.desk.see_through(at, random, transaction, end, member.number, violation).await;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// A batch with its commit.
    async fn at_once(
        &self,
        member: &Member,
        transaction: &mut Transaction,
        random: &mut Random,
        table: &TableSchema,
    ) -> Result<(), ClientError> {
        let mut now = Changes::new();
        let mut ops = OpBatch::new();
        for _ in 0..1 + random.below(2) {
            let (id, kind, row) = self.change(random, member.number, &now);
            push(&mut ops, table, id, kind, row)?;
            now.insert(id, vec![row]);
        }
        self.ledger.intend(member.number, &now);
        transaction.execute(&ops, ExecOptions::autocommit(LOCK_WAIT_MS), &mut Results::new()).await?;
        Ok(())
    }

    fn refuse(&self, error: &ClientError) {
        self.refused.set(self.refused.get() + 1);
        if error.index == 0 {
            self.hall.violation(format!("a row is there that its owner knows to be absent: {error}"));
        }
    }
}

/// The column that comes and goes, if it is there: its place, and which of them it is.
pub(super) fn added(table: &TableSchema) -> Option<(u16, u64)> {
    let at = table.column_no(ADDED)?;
    Some((at, table.columns[usize::from(at)].comment.parse().ok()?))
}

/// An operation on a row of number, tag and rank, wherever these stand; an update changes the rank, and the column that comes and goes.
pub(super) fn push(
    ops: &mut OpBatch,
    table: &TableSchema,
    id: u64,
    kind: OpKind,
    row: Option<Row>,
) -> Result<(), ErrorCode> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    encode_key(id, &mut key);
    let of_added = |row: &Row| added(table).and_then(|(_, number)| row.added.filter(|(of, _)| *of == number)?.1);
    match (kind, row) {
        (OpKind::Update, Some(row)) => {
            let ordered = table.column_no(ORDERED).ok_or(ErrorCode::InvalidSchema)?;
            update::push_set(&mut value, ordered, &row.ordered.to_le_bytes());
            if let Some(listed) = table.column_no(LISTED) {
                update::push_set(&mut value, listed, &list_of(&row)?);
            }
            if let (Some((at, _)), Some(number)) = (added(table), of_added(&row)) {
                update::push_set(&mut value, at, &number.to_le_bytes());
            }
        }
        (_, Some(row)) => {
            let number = |column: &Column| match column.name.as_str() {
                ID => Some(id),
                UNIQUE => row.unique,
                ORDERED => Some(row.ordered),
                _ => of_added(&row),
            };
            let list = list_of(&row)?;
            let value_of = |column: &Column| match column.name.as_str() {
                LISTED => Value::Bytes(&list),
                _ => number(column).map_or(Value::Null, Value::UInt),
            };
            let values: Vec<Value<'_>> = table.columns.iter().map(value_of).collect();
            table.layout().encode(&values, &mut value)?;
        }
        (_, None) => return ops.push(table, OpKind::Delete, ALLOW_MISSING, &key, &[]),
    }
    ops.push(table, kind, 0, &key, &value)
}

/// The list of a row's marks.
fn list_of(row: &Row) -> Result<Vec<u8>, ErrorCode> {
    let (mut keys, mut out) = (Vec::new(), Vec::new());
    for mark in marks(row) {
        let mut key = Vec::new();
        key::encode_part(number_type(), false, &Value::UInt(mark), &mut key)?;
        keys.push(key);
    }
    list::write(&mut keys, false, &mut out)?;
    Ok(out)
}

/// The mark and the id of an entry of the index of lists; `u64::MAX` is none.
fn marked(hidden: &TableSchema, entry: &[u8]) -> (u64, u64) {
    let mark = hidden.layout().raw(entry, HIDDEN_KEY_COLUMN).first_chunk().map(|mark| u64::from_be_bytes(*mark));
    let id = id_of(hidden.layout().raw(entry, HIDDEN_PK_COLUMN));
    (mark.unwrap_or(u64::MAX), id.unwrap_or(u64::MAX))
}

/// The hidden table of an index.
fn hidden_of(table: &TableSchema, at: usize) -> Result<TableSchema, ErrorCode> {
    let index = table.indexes.get(at).ok_or(ErrorCode::IndexNotFound)?;
    let mut hidden = TableSchema::hidden_for(table, index);
    hidden.id = index.hidden_table.ok_or(ErrorCode::IndexNotFound)?;
    Ok(hidden)
}

pub(super) fn row(table: &TableSchema, bytes: &[u8]) -> Row {
    let value = |name| table.column_no(name).and_then(|column| number(table, bytes, column));
    let added = added(table).map(|(at, of)| (of, number(table, bytes, at)));
    Row {
        key: value(ID).unwrap_or(u64::MAX),
        unique: value(UNIQUE),
        ordered: value(ORDERED).unwrap_or(u64::MAX),
        added,
    }
}

/// What a unique index gives for each of these values: value and id, of which `u64::MAX` is none.
pub(super) async fn entries(
    client: &Client,
    hidden: &TableSchema,
    values: impl Iterator<Item = u64>,
) -> Result<Vec<(u64, u64)>, ClientError> {
    let values: Vec<u64> = values.collect();
    let mut entries = Vec::new();
    for values in values.chunks(KEYS_AT_ONCE) {
        let (mut keys, mut rows, mut key) = (KeyList::new(), Rows::new(), Vec::new());
        for value in values {
            key.clear();
            key::encode_part(number_type(), true, &Value::UInt(*value), &mut key)?;
            keys.push_hashed(hash_key(&key), &key)?;
        }
        let (table, schema_version) = (hidden.id, hidden.version);
        let request =
            ReadBatch { trans: TransId::NONE, snapshot: Epoch(0), table, schema_version, columns: None, keys: &keys };
        client.read(&request, &mut rows).await?;
        for (value, row) in values.iter().zip(rows.iter()) {
            let Some(row) = row else { continue };
            hidden.layout().check(row)?;
            let id = match hidden.layout().value(row, HIDDEN_PK_COLUMN) {
                Value::Bytes(encoded) => id_of(encoded),
                _ => None,
            };
            entries.push((*value, id.unwrap_or(u64::MAX)));
        }
    }
    Ok(entries)
}

/// The id in an encoded primary key.
fn id_of(encoded: &[u8]) -> Option<u64> {
    let id = u64::from_be_bytes(*encoded.last_chunk()?);
    let mut key = Vec::new();
    encode_key(id, &mut key);
    (key == encoded).then_some(id)
}

pub(super) fn columns() -> Vec<Column> {
    vec![column(ID, number_type(), false), column(UNIQUE, number_type(), true), column(ORDERED, number_type(), false)]
}

impl Play for Items {
    fn tables(&self) -> Vec<TableSchema> {
        let index = |no, name: &str, column, unique| IndexDef {
            no: IndexNo(no),
            name: name.to_owned(),
            columns: vec![column],
            list: None,
            unique,
            hidden_table: None,
            prefixes: Vec::new(),
            state: IndexState::Ready,
        };
        let mut columns = columns();
        columns.push(column(LISTED, ColumnType::Blob { length: 1 << 16 }, true));
        let mut items = table("items", columns);
        let marks = IndexDef { list: Some(0), ..index(3, "marks", 3, false) };
        items.indexes = vec![index(1, "tags", 1, true), index(2, "ranks", 2, false), marks];
        vec![items]
    }
    async fn fill(&self, _client: &Client, _tables: &[TableSchema]) -> Result<(), ClientError> {
        Ok(())
    }

    async fn turn(&self, member: &mut Member) -> bool {
        let mut random = Random::new(member.random.next_u64());
        let tables = member.tables();
        let mut transaction = member.client.begin();
        self.ledger.intend(member.number, &Changes::new());
        member.doing("changes its rows".to_owned());
        let result = match random.one_in(2) {
            true => self.at_once(member, &mut transaction, &mut random, &tables[0]).await,
            false => self.statements(member, &mut transaction, &mut random, &tables[0]).await,
        };
        let fate = match result {
            Ok(()) => Fate::Committed,
            Err(error) => {
                if error.code == ErrorCode::DuplicateKey {
                    self.refuse(&error);
                }
                let token = transaction.token();
                let _ = transaction.rollback().await;
                member.fate(&error, token).await
            }
        };
        self.ledger.settle(member.number, fate);
        fate == Fate::Committed
    }

    async fn read(&self, reader: &Member) -> Result<(), ClientError> {
        let tables = reader.tables();
        let items = &tables[0];
        let everything = ScanRequest::all(items.id, items.version);
        let rows = scan(&reader.client, items, &everything, |bytes| row(items, bytes)).await?;
        let mut in_order = Vec::new();
        for partition in partitions(&reader.client) {
            let only = [partition];
            let request = ScanRequest { index: IndexNo(2), partitions: Some(&only), ..everything };
            in_order.push(scan(&reader.client, items, &request, |bytes| row(items, bytes)).await?);
        }
        let entries = entries(&reader.client, &hidden_of(items, 0)?, 0..self.values).await?;
        let listed = hidden_of(items, 2)?;
        let everything = ScanRequest::all(listed.id, listed.version);
        let marks = scan(&reader.client, &listed, &everything, |entry| marked(&listed, entry)).await?;
        self.found.borrow_mut().push(Table { rows, entries, marks, in_order });
        Ok(())
    }

    fn died(&self, member: u64) {
        self.ledger.settle(member, Fate::Unknown);
    }

    fn judge(&self) -> Result<Judgement, String> {
        for table in self.found.take() {
            table.check()?;
            self.ledger.compare(&rows_by_key(&table.rows)?, |row| row)?;
        }
        Ok(Judgement::Good)
    }
}

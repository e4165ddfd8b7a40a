//! The member that changes the schema: CREATE, DROP and TRUNCATE TABLE, CREATE and DROP INDEX, ADD and DROP COLUMN, as a SQL node does them.
//!
//! Names are few, so they come again. A unique index of a table with rows is made in three steps, all of which may be interrupted: the
//! definition, after which writes make entries; an entry for each row that was written before, committed or not yet, under its lock; the
//! publication. Two rows with one tag end it, and the index is dropped. A change of unknown outcome may still be made later: its object is left
//! alone until the next audit.

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results, ScanRequest};
use apus_kernel::Random;
use apus_signal::{
    dict::{Change, ColumnsChange, IndexChange, TableName},
    schema::{SourceMessage, TableMessage, column_to_wire},
    tc::{ALLOW_DUPLICATE, ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{
    Column, ErrorClass, ErrorCode, IndexDef, IndexNo, IndexState, TableSchema, Value,
    form::Source,
    key,
    schema::{DefaultValue, Durability, HIDDEN_PK_COLUMN},
};

use super::{
    churn::{DATABASE, Known, STOCK, Stock},
    crew::{LOCK_WAIT_MS, Member, column, encode_key, number_type, scan},
    unique::{ORDERED, UNIQUE, row},
};
use crate::check::{
    schema::{Fate, Object, Presence},
    unique::ADDED,
};

const SMALL_TABLES: [&str; 4] = ["t0", "t1", "t2", "t3"];
/// What the tables begin with that are made while of all else nobody knows whether it is there.
const SPARE: char = 'x';
const ORDERED_INDEXES: [&str; 2] = ["o0", "o1"];
const UNIQUE_INDEXES: [&str; 2] = ["u0", "u1"];
/// Longest pause between two changes, ns.
const PAUSE_MAX_NS: u64 = 20_000_000;
/// Rows whose entries are made in one transaction, and how often that is tried.
const FILL_BATCH: usize = 16;
const FILL_ATTEMPTS: u32 = 20;

/// What may be done next.
enum Wish {
    Make(Object),
    Drop(Object),
    /// TRUNCATE a table.
    Empty(String),
    /// Go on with a unique index that is defined.
    Fill(String),
}

fn table_name(name: &str) -> TableName {
    TableName { database: DATABASE.to_owned(), table: name.to_owned(), version: 0 }
}

/// A small table of numbers; some have indexes from the beginning.
fn small_table(name: &str, class: Durability) -> TableMessage {
    let columns = vec![column("id", number_type(), false), column("value", number_type(), false)];
    let mut table = TableSchema::new(DATABASE, name, columns, vec![0]);
    if name != SMALL_TABLES[0] {
        table.indexes.push(IndexDef {
            no: IndexNo(1),
            name: "value".to_owned(),
            columns: vec![1],
            list: None,
            unique: name == SMALL_TABLES[1],
            hidden_table: None,
            prefixes: Vec::new(),
            state: IndexState::Ready,
        });
    }
    table.durability = class;
    TableMessage::from(&table)
}

fn is_unique(index: &str) -> bool {
    UNIQUE_INDEXES.contains(&index)
}

/// What only says which index is meant.
fn index_change(name: &str) -> IndexChange {
    let unique = is_unique(name);
    IndexChange { table: Some(table_name(STOCK)), name: name.to_owned(), unique, ..IndexChange::default() }
}
fn new_index(stock: &TableSchema, name: &str) -> IndexChange {
    let column = stock.column_no(if is_unique(name) { UNIQUE } else { ORDERED });
    IndexChange {
        columns: column.map(u32::from).into_iter().collect(),
        form: u32::from(stock.form),
        ..index_change(name)
    }
}

/// The column comes or goes.
fn column_change(stock: &TableSchema, comes: bool, number: u64, random: &mut Random) -> ColumnsChange {
    let mut columns: Vec<(Column, Source)> = stock.columns.iter().cloned().zip((0..).map(Source::Kept)).collect();
    columns.retain(|(column, _)| column.name != ADDED);
    if comes {
        let default = (!random.one_in(3)).then(|| random.below(1 << 20));
        let source = default.map_or(Source::Null, |n| Source::Given(n.to_le_bytes().to_vec()));
        let default = default.map_or(DefaultValue::Null, |n| DefaultValue::Literal(n.to_string()));
        let new = Column { default, comment: number.to_string(), ..column(ADDED, number_type(), true) };
        columns.insert(random.below(columns.len() as u64 + 1) as usize, (new, source));
    }
    ColumnsChange {
        table: Some(table_name(STOCK)),
        id: stock.id.0,
        version: stock.version,
        columns: columns.iter().map(|(column, _)| column_to_wire(column)).collect(),
        sources: columns.iter().map(|(_, source)| SourceMessage::from(source)).collect(),
        ..ColumnsChange::default()
    }
}

fn dropping(object: &Object, stock: &TableSchema, random: &mut Random) -> Change {
    match object {
        Object::Table(name) => Change::DropTable(table_name(name)),
        Object::Index(name) => Change::DropIndex(index_change(name)),
        Object::Column(_) => Change::ChangeColumns(column_change(stock, false, 0, random)),
    }
}

impl Stock {
    fn wishes(&self) -> Vec<Wish> {
        let (objects, mut wishes) = (self.objects.borrow(), Vec::new());
        let tables = SMALL_TABLES.iter().map(|name| Object::Table((*name).to_owned()));
        let indexes = ORDERED_INDEXES.iter().chain(&UNIQUE_INDEXES).map(|name| Object::Index((*name).to_owned()));
        let columns = [ADDED].iter().map(|name| Object::Column((*name).to_owned()));
        for object in tables.chain(indexes).chain(columns) {
            match (objects.certain(&object), &object) {
                // Twice as often: more is made than dropped as long as there is little.
                (Some(Presence::Absent), _) => wishes.extend([Wish::Make(object.clone()), Wish::Make(object)]),
                (Some(Presence::Building), Object::Index(name)) => {
                    wishes.extend([Wish::Fill(name.clone()), Wish::Fill(name.clone()), Wish::Drop(object)]);
                }
                (Some(_), Object::Table(name)) => {
                    wishes.extend([Wish::Empty(name.clone()), Wish::Drop(object)]);
                }
                (Some(_), Object::Index(_)) => wishes.push(Wish::Drop(object)),
                // There is one, so it has turns like several others.
                (Some(_), Object::Column(_)) => wishes.extend((0..4).map(|_| Wish::Drop(object.clone()))),
                (None, _) => {}
            }
        }
        if wishes.is_empty() {
            // Each takes memory, so there is one at most of which it is known that it is there.
            let spare = objects.certainly_ready().find(|name| name.starts_with(SPARE)).map(str::to_owned);
            wishes.push(match spare {
                Some(name) => Wish::Drop(Object::Table(name)),
                None => Wish::Make(Object::Table(format!("{SPARE}{}", self.hall.moment()))),
            });
        }
        wishes
    }

    /// One change, or all of a unique index; `true` if something was acknowledged.
    pub(super) async fn change_schema(&self, member: &Member, random: &mut Random) -> bool {
        member.doing("waits to change the schema".to_owned());
        let pause = random.below(PAUSE_MAX_NS);
        member.clock.think(pause).await;
        let mut wishes = self.wishes();
        let wish = wishes.swap_remove(random.below(wishes.len() as u64) as usize);
        let Ok(known) = self.known(member, true).await else { return false };
        let stock = &known.stock;
        match wish {
            Wish::Make(Object::Index(name)) if is_unique(&name) => {
                let change = Change::CreateIndex(new_index(stock, &name));
                self.ask(member, &Object::Index(name.clone()), Presence::Building, change).await
                    && self.complete(member, name).await
            }
            Wish::Make(object) => {
                let change = self.making(&object, stock, random);
                self.ask(member, &object, Presence::Ready, change).await
            }
            Wish::Drop(object) => {
                let change = dropping(&object, stock, random);
                self.ask(member, &object, Presence::Absent, change).await
            }
            Wish::Empty(name) => {
                let change = Change::TruncateTable(table_name(&name));
                self.ask(member, &Object::Table(name), Presence::Ready, change).await
            }
            Wish::Fill(name) => self.complete(member, name).await,
        }
    }

    fn making(&self, object: &Object, stock: &TableSchema, random: &mut Random) -> Change {
        match object {
            Object::Table(name) => Change::CreateTable(small_table(name, self.hall.class())),
            Object::Index(name) => Change::CreateIndex(new_index(stock, name)),
            Object::Column(_) => Change::ChangeColumns(column_change(stock, true, self.hall.moment(), random)),
        }
    }

    async fn ask(&self, member: &Member, object: &Object, presence: Presence, change: Change) -> bool {
        member.doing(format!("makes {object:?} {presence:?}"));
        *self.changing.borrow_mut() = Some((object.clone(), presence));
        let result = member.client.schema_change(change).await;
        *self.changing.borrow_mut() = None;
        let fate = match result {
            Ok(conf) => {
                self.version.set(self.version.get().max(conf.version));
                self.changes.set(self.changes.get() + 1);
                Fate::Made
            }
            Err(error) => {
                member.count(&error);
                match error.class() {
                    ErrorClass::NoSpace => Fate::Refused,
                    // Filled before a start from the disks.
                    _ if error.code == ErrorCode::SchemaVersionChanged => Fate::Refused,
                    // As far as the client can tell it was the change that two nodes were lost by.
                    _ if error.code == ErrorCode::StatementEndsNodes => Fate::Unknown,
                    ErrorClass::Temporary | ErrorClass::Timeout | ErrorClass::UnknownOutcome => Fate::Unknown,
                    _ => {
                        self.hall.violation(format!("{object:?} cannot become {presence:?}: {error}"));
                        Fate::Unknown
                    }
                }
            }
        };
        self.objects.borrow_mut().settle(object, presence, fate);
        fate == Fate::Made
    }

    /// Fills a unique index and publishes it, or drops it because two rows have one tag. What fails otherwise is left for another time.
    async fn complete(&self, member: &Member, name: String) -> bool {
        member.doing(format!("fills index {name}"));
        self.forget(member); // the lineage may be another one now
        let filled = match self.known(member, true).await {
            Ok(known) => self.fill_index(member, &known, &name).await.map(|()| known.lineage),
            Err(error) => Err(error),
        };
        let object = Object::Index(name);
        let Object::Index(name) = &object else { return false };
        match filled {
            Ok(lineage) => {
                let index = IndexChange { lineage, ..index_change(name) };
                self.ask(member, &object, Presence::Ready, Change::PublishIndex(index)).await
            }
            Err(error) if error.code == ErrorCode::DuplicateKey => {
                self.ask(member, &object, Presence::Absent, Change::DropIndex(index_change(name))).await
            }
            Err(error) => {
                member.count(&error);
                false
            }
        }
    }

    async fn fill_index(&self, member: &Member, known: &Known, name: &str) -> Result<(), ClientError> {
        let stock = &known.stock;
        let position = stock.indexes.iter().position(|i| i.name == name).ok_or(ErrorCode::IndexNotFound)?;
        let hidden = known.hidden_of(&stock.indexes[position]).ok_or(ErrorCode::IndexNotFound)?;
        let all = ScanRequest { with_pending: true, ..ScanRequest::all(stock.id, stock.version) };
        let ids = scan(&member.client, stock, &all, |bytes| row(stock, bytes).key).await?;
        for batch in ids.chunks(FILL_BATCH) {
            let mut attempts = 0;
            while let Err(error) = enter(&member.client, stock, position, hidden, batch).await {
                member.count(&error);
                attempts += 1;
                let is_final = error.code == ErrorCode::DuplicateKey
                    || matches!(error.class(), ErrorClass::Schema | ErrorClass::User | ErrorClass::Internal);
                if is_final || attempts == FILL_ATTEMPTS {
                    return Err(error);
                }
                member.clock.sleep(PAUSE_MAX_NS / 8).await;
            }
        }
        Ok(())
    }
}

/// Enters rows into a unique index, under shared locks: what was written since the definition has its entry already.
async fn enter(
    client: &Client,
    stock: &TableSchema,
    position: usize,
    hidden: &TableSchema,
    ids: &[u64],
) -> Result<(), ClientError> {
    let options = |savepoint| ExecOptions { commit: false, savepoint, lock_wait_ms: LOCK_WAIT_MS };
    let (mut ops, mut results, mut primary) = (OpBatch::new(), Results::new(), Vec::new());
    for id in ids {
        encode_key(*id, &mut primary);
        ops.push_read(stock, false, ALLOW_MISSING, &primary, None)?;
    }
    let mut transaction = client.begin();
    transaction.execute(&ops, options(1), &mut results).await?;
    ops.clear();
    let mut entries = Vec::new();
    for (id, (status, row)) in ids.iter().zip(results.iter()) {
        let mut entry = Vec::new();
        let columns = &stock.indexes[position].columns;
        if status != OpStatus::Done || key::encode_from_row(stock, columns, row, &mut entry)? {
            continue; // gone, or without a tag
        }
        encode_key(*id, &mut primary);
        let hash = key::distribution_hash(stock, &primary);
        let mut image = Vec::new();
        hidden.layout().encode(&[Value::Bytes(&entry), Value::UInt(hash), Value::Bytes(&primary)], &mut image)?;
        ops.push(hidden, OpKind::Insert, ALLOW_DUPLICATE, &entry, &image)?;
        entries.push((entry, primary.clone()));
    }
    if ops.is_empty() {
        return transaction.rollback().await;
    }
    transaction.execute(&ops, options(2), &mut results).await?;
    let is_taken = |(_, (status, _)): &(_, (OpStatus, &[u8]))| *status == OpStatus::Duplicate;
    let taken: Vec<(Vec<u8>, Vec<u8>)> =
        entries.into_iter().zip(results.iter()).filter(is_taken).map(|(entry, _)| entry).collect();
    ops.clear();
    for (entry, _) in &taken {
        ops.push_read(hidden, false, ALLOW_MISSING, entry, None)?;
    }
    if !taken.is_empty() {
        transaction.execute(&ops, options(3), &mut results).await?;
        let owners = taken.iter().zip(results.iter());
        let mut strangers = owners
            .filter(|((_, primary), (_, row))| hidden.layout().value(row, HIDDEN_PK_COLUMN) != Value::Bytes(primary));
        if strangers.next().is_some() {
            drop(strangers);
            transaction.rollback().await?;
            return Err(ErrorCode::DuplicateKey.into());
        }
    }
    transaction.commit().await.map(drop)
}

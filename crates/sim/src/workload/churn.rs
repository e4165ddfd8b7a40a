//! Schema churn, beside any workload: while faults strike, one member makes and drops tables and indexes ([`super::changer`]), and all others
//! write the tables that come and go and the one whose indexes do.
//!
//! The *stock* is a table of numbers with tags and ranks. Each member writes rows of its own, with a tag that nobody else uses or, now and then,
//! one that others use, too: as long as there is no unique index that is fine. One more column comes and goes, in another place and with another default each
//! time; rows that were written without it have the default, and what was written there before it went does not come back. Sometimes a transaction stays open for a while between its rows
//! and its commit, over changes of the schema. Small tables get rows that are only inserted.
//!
//! When all rest, what the dictionaries of the nodes have is held against what was acknowledged ([`crate::check::schema`]), the indexes of the stock
//! against its rows, those against what their owners made of them, and no small table lacks a row or has one that was refused.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results, ScanRequest};
use apus_kernel::Random;
use apus_signal::{dict::Dictionary, tc::OpKind};
use apus_types::{ErrorClass, ErrorCode, IndexDef, IndexState, TableSchema, Value, schema::DefaultValue};

use super::{
    crew::{Crew, Fate, Hall, LOCK_WAIT_MS, Member, Play, encode_key, number, partitions, scan},
    ledger::{Changes, Ledger},
    unique,
};
use crate::{
    Clock, NativeClient,
    check::{
        schema::{Fate as ChangeFate, Object, Objects, Presence},
        unique::{Row, check_entries, check_order, check_unique, rows_by_key},
    },
    drill::{Judgement, Workload},
    settings::Settings,
};

pub(super) const DATABASE: &str = "churn";
pub(super) const STOCK: &str = "stock";
const ROWS_PER_MEMBER: u64 = 12;
/// Tags below are used by all; then come four for each row.
const OWN_TAGS: u64 = 3;
const MS: u64 = 1_000_000;
/// A writer and one who may be called to change the schema.
const MEMBERS_PER_CLIENT: u64 = 2;

/// The dictionary as one member knows it.
pub(super) struct Known {
    version: u64,
    pub lineage: u64,
    pub stock: TableSchema,
    /// By id.
    hidden: BTreeMap<u32, TableSchema>,
    small: Vec<TableSchema>,
}

impl Known {
    fn new(dictionary: &Dictionary) -> Result<Known, ClientError> {
        let mut small = Vec::new();
        let (mut hidden, mut stock) = (BTreeMap::new(), None);
        for table in dictionary.tables.iter().filter(|t| t.database == DATABASE) {
            let schema = TableSchema::try_from(table)?;
            match schema.base_table {
                Some(_) => drop(hidden.insert(schema.id.0, schema)),
                None if schema.name == STOCK => stock = Some(schema),
                None => small.push(schema),
            }
        }
        let stock = stock.ok_or_else(|| ClientError::with_detail(ErrorCode::TableNotFound, STOCK))?;
        Ok(Known { version: dictionary.version, lineage: dictionary.lineage, stock, hidden, small })
    }
    pub fn hidden_of(&self, index: &IndexDef) -> Option<&TableSchema> {
        self.hidden.get(&index.hidden_table?.0)
    }
}

/// The column of the stock that comes and goes, and what rows have there that were written before it came.
fn added_with(stock: &TableSchema) -> Option<(u64, Option<u64>)> {
    let (at, number) = unique::added(stock)?;
    let default = match &stock.columns[usize::from(at)].default {
        DefaultValue::Literal(text) => text.parse().ok(),
        _ => None,
    };
    Some((number, default))
}
/// What a row has in this column: what was written there, if it was written with it.
fn of_column((number, default): (u64, Option<u64>), written: Option<(u64, Option<u64>)>) -> (u64, Option<u64>) {
    written.filter(|(of, _)| *of == number).unwrap_or((number, default))
}
/// A row with another rank, and now and then another value in the column that comes and goes.
fn update(random: &mut Random, row: Row, old: Row) -> Row {
    Row { ordered: row.ordered, added: if random.one_in(2) { row.added } else { old.added }, ..old }
}

/// Rows that were inserted into a small table.
#[derive(Default)]
struct Inserted {
    acknowledged: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
}

/// A unique index of the stock, with value and id of each entry.
struct UniqueIndex {
    name: String,
    state: IndexState,
    entries: Vec<(u64, u64)>,
}

/// Everything as one client has read it.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    /// Which column that comes and goes is there, and what rows have there that were written before it.
    added: Option<(u64, Option<u64>)>,
    unique: Vec<UniqueIndex>,
    ordered: Vec<(String, Vec<Vec<Row>>)>,
    /// Small tables by id, with the numbers of their rows.
    small: Vec<(u32, BTreeSet<u64>)>,
}

pub(super) struct Stock {
    pub(super) hall: Rc<Hall>,
    ledger: Ledger,
    pub(super) objects: RefCell<Objects>,
    /// The member that changes the schema, and what it has asked for.
    changer: Cell<Option<u64>>,
    pub(super) changing: RefCell<Option<(Object, Presence)>>,
    /// Changes that were acknowledged, and the highest version that any of them led to.
    pub(super) changes: Cell<u64>,
    pub(super) version: Cell<u64>,
    /// By member.
    known: RefCell<BTreeMap<u64, Rc<Known>>>,
    /// By table: ids are not given out twice.
    inserted: RefCell<BTreeMap<u32, Inserted>>,
    inserting: RefCell<BTreeMap<u64, (u32, u64)>>,
    found: RefCell<Vec<Found>>,
}

impl Stock {
    fn new(hall: Rc<Hall>) -> Stock {
        Stock {
            hall,
            ledger: Ledger::default(),
            objects: RefCell::new(Objects::new(DATABASE, STOCK)),
            changer: Cell::new(None),
            changing: RefCell::default(),
            changes: Cell::new(0),
            version: Cell::new(0),
            known: RefCell::default(),
            inserted: RefCell::default(),
            inserting: RefCell::default(),
            found: RefCell::default(),
        }
    }
    /// The dictionary, asked for again if there may be a newer one.
    pub(super) async fn known(&self, member: &Member, again: bool) -> Result<Rc<Known>, ClientError> {
        let old = self.known.borrow().get(&member.number).cloned();
        if let Some(old) = old.as_ref().filter(|_| !again) {
            return Ok(old.clone());
        }
        let version = old.as_ref().map_or(0, |old| old.version);
        let known = match (member.client.dictionary(version).await?, old) {
            (Some(dictionary), _) => Rc::new(Known::new(&dictionary)?),
            (None, Some(old)) => old,
            (None, None) => return Err(ErrorCode::ProtocolViolation.into()),
        };
        self.known.borrow_mut().insert(member.number, known.clone());
        Ok(known)
    }
    pub(super) fn forget(&self, member: &Member) {
        self.known.borrow_mut().remove(&member.number);
    }

    async fn write(&self, member: &Member, random: &mut Random) -> bool {
        member.doing("asks for the dictionary".to_owned());
        let Ok(known) = self.known(member, random.one_in(8)).await else { return false };
        let small = known.small.get(random.below(5 * known.small.len() as u64 + 1) as usize);
        member.doing("writes".to_owned());
        match small {
            Some(table) => self.insert(member, table).await,
            None => self.change_rows(member, random, &known.stock).await,
        }
    }

    /// One row more of a small table.
    async fn insert(&self, member: &Member, table: &TableSchema) -> bool {
        let id = self.hall.moment();
        self.inserting.borrow_mut().insert(member.number, (table.id.0, id));
        let (mut ops, mut key, mut row) = (OpBatch::new(), Vec::new(), Vec::new());
        encode_key(id, &mut key);
        let made = table.layout().encode(&[Value::UInt(id), Value::UInt(id)], &mut row);
        if let Err(error) = made.and_then(|()| ops.push(table, OpKind::Insert, 0, &key, &row)) {
            self.hall.violation(format!("a row cannot be made: {error}"));
        }
        let mut transaction = member.client.begin();
        let result = transaction.execute(&ops, ExecOptions::autocommit(LOCK_WAIT_MS), &mut Results::new()).await;
        let fate = match result {
            Ok(()) => Fate::Committed,
            Err(error) => {
                if error.code == ErrorCode::DuplicateKey {
                    self.hall.violation(format!("a new row is there already: {error}"));
                }
                let token = transaction.token();
                let _ = transaction.rollback().await;
                self.fate(member, &error, token).await
            }
        };
        self.settle_insert(member.number, fate);
        fate == Fate::Committed
    }
    fn settle_insert(&self, member: u64, fate: Fate) {
        let Some((table, id)) = self.inserting.borrow_mut().remove(&member) else { return };
        let mut all = self.inserted.borrow_mut();
        let inserted = all.entry(table).or_default();
        match fate {
            Fate::Committed => inserted.acknowledged.insert(id),
            Fate::Unknown => inserted.unknown.insert(id),
            Fate::RolledBack => false,
        };
    }
    /// A change of the schema in between is no fault, and nothing is left of the transaction.
    async fn fate(&self, member: &Member, error: &ClientError, token: Option<apus_client::CommitToken>) -> Fate {
        if error.class() == ErrorClass::Schema {
            member.count(error);
            self.forget(member);
            return Fate::RolledBack;
        }
        member.fate(error, token).await
    }

    /// What is made of a row, as its member knows it so far.
    fn change(
        &self,
        random: &mut Random,
        member: u64,
        now: &Changes,
        stock: &TableSchema,
    ) -> (u64, OpKind, Option<Row>) {
        let id = member * ROWS_PER_MEMBER + random.below(ROWS_PER_MEMBER);
        let possible = now.get(&id).cloned().unwrap_or_else(|| self.ledger.possible(id));
        let tag = match random.below(24) {
            0 => Some(random.below(OWN_TAGS)),
            1..3 => None,
            _ => Some(OWN_TAGS + 4 * id + random.below(4)),
        };
        let added = unique::added(stock).map(|(_, of)| (of, Some(random.below(1 << 20))));
        let row = Row { key: id, unique: tag, ordered: random.below(30), added };
        let certain = if let [one] = possible.as_slice() { Some(*one) } else { None };
        match (certain, random.below(4)) {
            (_, 0) => (id, OpKind::Delete, None),
            (Some(None), _) => (id, OpKind::Insert, Some(row)),
            (Some(Some(old)), 1) => (id, OpKind::Update, Some(update(random, row, old))),
            _ => (id, OpKind::Write, Some(row)),
        }
    }

    /// Some rows of the member, in one transaction that may stay open for a while.
    async fn change_rows(&self, member: &Member, random: &mut Random, stock: &TableSchema) -> bool {
        let (mut ops, mut now, mut is_shared) = (OpBatch::new(), Changes::new(), false);
        for _ in 0..1 + random.below(3) {
            let (id, kind, row) = self.change(random, member.number, &now, stock);
            is_shared |= row.and_then(|row| row.unique).is_some_and(|tag| tag < OWN_TAGS);
            if let Err(error) = unique::push(&mut ops, stock, id, kind, row) {
                self.hall.violation(format!("a row cannot be made: {error}"));
            }
            now.insert(id, vec![row]);
        }
        self.ledger.intend(member.number, &now);
        let mut transaction = member.client.begin();
        let commit = random.one_in(2);
        let options = ExecOptions { commit, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
        let mut result = transaction.execute(&ops, options, &mut Results::new()).await;
        if result.is_ok() && !commit {
            let pause = if random.one_in(2) { random.below(30 * MS) } else { 0 };
            member.clock.think(pause).await;
            result = transaction.commit().await.map(drop);
        }
        let fate = match result {
            Ok(()) => Fate::Committed,
            Err(error) => {
                if error.code == ErrorCode::DuplicateKey && (error.index == 0 || !is_shared) {
                    self.hall.violation(format!("a row or a tag is there that nobody else uses: {error}"));
                }
                let token = transaction.token();
                let _ = transaction.rollback().await;
                self.fate(member, &error, token).await
            }
        };
        self.ledger.settle(member.number, fate);
        fate == Fate::Committed
    }

    /// Every tag that there may be.
    fn tags(&self) -> std::ops::Range<u64> {
        0..OWN_TAGS + 4 * self.ledger.ids()
    }
    fn compare_small(&self, table: u32, found: &BTreeSet<u64>) -> Result<(), String> {
        let all = self.inserted.borrow();
        let none = Inserted::default();
        let inserted = all.get(&table).unwrap_or(&none);
        if let Some(id) = inserted.acknowledged.difference(found).next() {
            return Err(format!("row {id} of the small table {table} was acknowledged and is not there"));
        }
        let is_wrong = |id: &&u64| !inserted.acknowledged.contains(*id) && !inserted.unknown.contains(*id);
        match found.iter().find(is_wrong) {
            Some(id) => Err(format!("row {id} of the small table {table} was never acknowledged")),
            None => Ok(()),
        }
    }
}

impl Play for Stock {
    fn tables(&self) -> Vec<TableSchema> {
        vec![TableSchema::new(DATABASE, STOCK, unique::columns(), vec![0])]
    }
    async fn fill(&self, _client: &Client, _tables: &[TableSchema]) -> Result<(), ClientError> {
        Ok(())
    }
    async fn turn(&self, member: &mut Member) -> bool {
        let mut random = Random::new(member.random.next_u64());
        if member.number % MEMBERS_PER_CLIENT == 1 && self.changer.get().is_none() {
            self.changer.set(Some(member.number));
        }
        if self.changer.get() == Some(member.number) {
            self.change_schema(member, &mut random).await
        } else {
            self.write(member, &mut random).await
        }
    }
    async fn read(&self, reader: &Member) -> Result<(), ClientError> {
        let known = Known::new(&reader.client.dictionary(0).await?.unwrap_or_default())?;
        let (client, stock) = (&reader.client, &known.stock);
        let everything = ScanRequest::all(stock.id, stock.version);
        let row = |bytes: &[u8]| unique::row(stock, bytes);
        let rows = scan(client, stock, &everything, row).await?;
        let mut found = Found { rows, added: added_with(stock), ..Found::default() };
        for index in &stock.indexes {
            if index.unique {
                let hidden = known.hidden_of(index).ok_or(ErrorCode::IndexNotFound)?;
                let entries = unique::entries(client, hidden, self.tags()).await?;
                found.unique.push(UniqueIndex { name: index.name.clone(), state: index.state, entries });
                continue;
            }
            let mut in_order = Vec::new();
            for partition in partitions(client) {
                let only = [partition];
                let request = ScanRequest { index: index.no, partitions: Some(&only), ..everything };
                in_order.push(scan(client, stock, &request, row).await?);
            }
            found.ordered.push((index.name.clone(), in_order));
        }
        for small in &known.small {
            let all = ScanRequest::all(small.id, small.version);
            let ids = scan(client, small, &all, |row| number(small, row, 0).unwrap_or(u64::MAX)).await?;
            found.small.push((small.id.0, ids.into_iter().collect()));
        }
        self.found.borrow_mut().push(found);
        Ok(())
    }
    fn died(&self, member: u64) {
        self.ledger.settle(member, Fate::Unknown);
        self.settle_insert(member, Fate::Unknown);
        if self.changer.get() == Some(member) {
            self.changer.set(None);
            if let Some((object, presence)) = self.changing.borrow_mut().take() {
                self.objects.borrow_mut().settle(&object, presence, ChangeFate::Unknown);
            }
        }
    }
    fn judge(&self) -> Result<Judgement, String> {
        for found in self.found.take() {
            let rows = rows_by_key(&found.rows)?;
            for UniqueIndex { name, state, entries } in &found.unique {
                let is_ready = *state == IndexState::Ready;
                let checked = if is_ready { check_unique(&rows, entries) } else { check_entries(&rows, entries) };
                checked.map_err(|what| format!("index {name} of the stock: {what}"))?;
            }
            for (name, in_order) in &found.ordered {
                check_order(&rows, in_order).map_err(|what| format!("index {name} of the stock: {what}"))?;
            }
            let seen = |row: Row| Row { added: found.added.map(|column| of_column(column, row.added)), ..row };
            self.ledger.compare(&rows, seen).map_err(|what| format!("stock: {what}"))?;
            found.small.iter().try_for_each(|(table, ids)| self.compare_small(*table, ids))?;
        }
        Ok(Judgement::Good)
    }
}

/// A workload with changes of the schema beside it.
pub(super) struct Churned<W> {
    workload: W,
    crew: Crew<Stock>,
}

impl<W: Workload> Churned<W> {
    pub fn new(settings: &Settings, workload: W) -> Churned<W> {
        Churned { workload, crew: Crew::of(settings, MEMBERS_PER_CLIENT, Stock::new) }
    }
}

impl<W: Workload> Workload for Churned<W> {
    fn equip(&mut self, number: u64, client: &Client, clock: &Clock, actor: &mut NativeClient) {
        self.workload.equip(number, client, clock, actor);
        self.crew.equip(number, client, clock, actor);
    }
    fn lost(&mut self, number: u64) {
        self.workload.lost(number);
        self.crew.lost(number);
    }
    fn is_open(&self) -> bool {
        self.workload.is_open() && self.crew.is_open()
    }
    fn progress(&self, number: u64) -> u64 {
        self.workload.progress(number)
    }
    fn schema_changes(&self) -> Option<u64> {
        Some(self.crew.play().changes.get())
    }
    fn shut(&mut self, shut: bool) {
        self.workload.shut(shut);
        self.crew.shut(shut);
    }
    fn at_rest(&self) -> Result<(), String> {
        match (self.workload.at_rest(), self.crew.at_rest()) {
            (Err(workload), Err(crew)) => Err(format!("{workload}, churn {crew}")),
            (workload, crew) => workload.and(crew),
        }
    }
    fn survey(&mut self, dictionary: &Dictionary) -> Result<(), String> {
        let stock = self.crew.play();
        if dictionary.version < stock.version.get() {
            let (told, found) = (stock.version.get(), dictionary.version);
            return Err(format!("a change was acknowledged for version {told}, the dictionary has {found}"));
        }
        stock.objects.borrow_mut().check(dictionary)
    }
    fn read(&mut self) {
        self.workload.read();
        self.crew.read();
    }
    fn is_read(&self) -> bool {
        self.workload.is_read() && self.crew.is_read()
    }
    fn judge(&self) -> Result<Judgement, String> {
        self.crew.judge()?;
        self.workload.judge()
    }
    fn violation(&self) -> Option<String> {
        self.workload.violation().or_else(|| self.crew.violation())
    }
    fn figures(&self) -> (u64, u64, BTreeMap<u16, u64>) {
        let (mut all, more) = (self.workload.figures(), self.crew.figures());
        more.2.into_iter().for_each(|(code, count)| *all.2.entry(code).or_default() += count);
        (all.0 + more.0, all.1 + more.1, all.2)
    }
    fn snapshots(&self) -> u64 {
        self.workload.snapshots()
    }
}

//! The SQL thread's copy of the dictionary.
//!
//! Before each statement its version is compared with the newest that the cluster announced, and the whole copy is
//! fetched again when they differ; an operation that the data nodes refuse with `SchemaVersionChanged` forces that too. So a
//! stale definition can cost a retry, never a wrong row.

pub mod auto_increment;
pub(crate) mod copies;
mod empty_tables;
pub mod foreign_key;
pub mod full_text;
pub(crate) mod grant_tables;
pub(crate) mod histogram;
pub(crate) mod information_schema;
pub(crate) mod key_parts;
pub(crate) mod performance_schema;
pub mod statistics;
pub(crate) mod sys;
pub mod temporary;
pub mod view;
pub(crate) mod visibility;

use apus_types::{Column, ColumnType, IndexDef, IndexState, TableId, TableSchema, collate::Collation, schema::Form};
use std::{collections::BTreeMap, rc::Rc};

use apus_client::Client;
use apus_signal::dict::Dictionary;

use self::{copies::Copies, foreign_key::Rules, histogram::Histograms, statistics::Statistics, view::View};
use crate::{
    accounts::kept,
    ddl::create_select,
    errors::{self, Result},
    plan::{rules, shape::Shape},
    program::{
        event::{self, Event, Events},
        routine::{self, Kind, Routine, Routines},
        trigger::{self, Triggers},
    },
    value::enum_set,
};

/// The database of the cluster's own tables.
pub use apus_types::claims::SYSTEM_DATABASE;

/// A table and the hidden tables of its unique indexes, in the order of its indexes.
#[derive(PartialEq, Debug)]
pub struct Table {
    pub schema: TableSchema,
    pub hidden: Vec<Option<Rc<TableSchema>>>,
    /// The columns that those of a set operation would be in a table; none: as the schema says.
    pub shapes: Vec<Shape>,
    /// Of a temporary table, as its session sees it: the name that it has in the dictionary.
    pub kept_as: Option<Box<str>>,
    rules: rules::Kept,
    triggers: trigger::Kept,
}

impl Table {
    pub fn new(schema: TableSchema, hidden: Vec<Option<Rc<TableSchema>>>) -> Table {
        let (rules, triggers) = (rules::Kept::default(), trigger::Kept::default());
        Table { schema, hidden, shapes: Vec::new(), kept_as: None, rules, triggers }
    }
    /// What its definition says in expressions; `None`: nothing.
    ///
    /// # Errors
    /// An expression cannot be bound.
    pub fn rules(&self) -> Result<Option<&rules::Rules>> {
        self.rules.of(&self.schema)
    }
    /// What runs for the rows that are written; `None`: nothing.
    pub fn triggers(&self) -> Option<&Triggers> {
        self.triggers.of(&self.schema)
    }
    /// Indexes that reads may use.
    pub fn ready_indexes(&self) -> impl Iterator<Item = (usize, &IndexDef)> {
        self.indexes_in_use().filter(|(_, i)| i.is_whole())
    }
    /// Also those of beginnings of columns, which do not say all, and those of lists.
    pub fn indexes_in_use(&self) -> impl Iterator<Item = (usize, &IndexDef)> {
        let is_in_use = |i: &IndexDef| i.state == IndexState::Ready && self.schema.is_visible(i);
        self.schema.indexes.iter().enumerate().filter(move |(_, i)| is_in_use(i))
    }
    /// Columns that a user sees, with their numbers.
    pub fn visible_columns(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.schema.columns.len() as u16).filter(|&c| !self.schema.columns[usize::from(c)].name.starts_with('#'))
    }
    /// Columns that `*` stands for.
    pub fn listed_columns(&self) -> impl Iterator<Item = u16> + '_ {
        self.visible_columns().filter(|&c| !self.schema.columns[usize::from(c)].invisible)
    }
    /// Name of index `no` in error messages.
    pub fn key_name(&self, no: u16) -> String {
        let name = if no == 0 {
            "PRIMARY"
        } else {
            self.schema.index(apus_types::IndexNo(no)).map_or("?", |i| i.name.as_str())
        };
        format!("{}.{name}", self.schema.name)
    }
}

/// A clone costs no more than the counts of what is shared: sessions with temporary tables have one each.
#[derive(Clone, Default, Debug)]
pub struct Catalog {
    pub version: u64,
    /// Of the cluster's view when it was read.
    pub lineage: u64,
    loaded: bool,
    pub databases: Rc<BTreeMap<String, Collation>>,
    tables: Rc<BTreeMap<(String, String), Rc<Table>>>,
    views: Rc<BTreeMap<(String, String), Rc<View>>>,
    routines: Rc<Routines>,
    events: Rc<Events>,
    pub histograms: Rc<Histograms>,
    /// Tables that CREATE TABLE ... SELECT is filling, or left.
    unfinished: Rc<Vec<Rc<Table>>>,
    /// Of ALTER TABLE.
    pub copies: Rc<Copies>,
    temporary: Rc<BTreeMap<String, Rc<Table>>>,
    own: Option<temporary::Own>,
    /// Of tables with foreign keys, and of those that they refer to.
    rules: Rc<BTreeMap<TableId, Rc<Rules>>>,
    /// The table of AUTO_INCREMENT counters, which the first president made.
    counters: Option<Rc<Table>>,
    /// How many of its tables are not those of the catalog before.
    pub opened: u64,
    /// Sizes of its tables, as far as they were asked for.
    pub statistics: Rc<Statistics>,
}

impl Catalog {
    pub fn is_current(&self, client: &Client) -> bool {
        self.loaded && client.dictionary_point() == (self.lineage, self.version)
    }

    /// Builds the catalog of a dictionary. Tables that are as they were in `before` are the same, so that plans made for them stay.
    pub fn from_dictionary(dictionary: &Dictionary, before: &Catalog) -> Result<Catalog> {
        let bad = || errors::internal("the dictionary does not decode");
        let mut catalog =
            Catalog { version: dictionary.version, lineage: dictionary.lineage, loaded: true, ..Catalog::default() };
        catalog.statistics = before.statistics.clone();
        let collation = |id: u32| u16::try_from(id).ok().and_then(Collation::from_id).unwrap_or_default();
        let seen = dictionary.databases.iter().filter(|d| d.name != temporary::DATABASE);
        let databases = seen.map(|d| (d.name.clone(), collation(d.collation)));
        catalog.databases = Rc::new(databases.collect());
        let mut hidden: BTreeMap<TableId, Rc<TableSchema>> = BTreeMap::new();
        let (mut plain, mut views, mut routines) = (Vec::new(), Vec::new(), Vec::new());
        let (mut events, mut histograms) = (Vec::new(), Vec::new());
        for message in &dictionary.tables {
            let mut schema = TableSchema::try_from(message).map_err(|_| bad())?;
            if schema.columns.iter().any(|c| c.form != Form::Plain) {
                schema.columns.iter_mut().try_for_each(enum_set::typed)?;
                schema.refresh();
            }
            if schema.is_hidden_index() {
                hidden.insert(schema.id, Rc::new(schema));
            } else if view::is_view(&schema) {
                views.push(schema);
            } else if routine::is_routine(&schema) {
                routines.push(schema);
            } else if event::is_event(&schema) {
                events.push(schema);
            } else if histogram::is_histogram(&schema) {
                histograms.push(schema);
            } else {
                plain.push(schema);
            }
        }
        let (mut copies, mut unfinished) = (Copies::default(), Vec::new());
        let (mut tables, mut temporary) = (BTreeMap::new(), BTreeMap::new());
        for mut schema in plain {
            let is_copy = copies.sort(&mut schema);
            let of = |i: &IndexDef| i.hidden_table.and_then(|id| hidden.get(&id).cloned());
            let hidden = schema.indexes.iter().map(of).collect();
            let table = Table::new(schema, hidden);
            if is_copy {
                copies.put(Rc::new(table));
                continue;
            }
            if table.schema.database == SYSTEM_DATABASE && table.schema.name == kept::TABLE {
                continue; // no statement can name it
            }
            if create_select::unfinished(&table.schema.name).is_some() {
                unfinished.push(Rc::new(table));
                continue;
            }
            if table.schema.database == temporary::DATABASE {
                temporary.insert(table.schema.name.clone(), Rc::new(table));
                continue;
            }
            let key = (table.schema.database.clone(), table.schema.name.clone());
            let same = before.tables.get(&key).filter(|known| ***known == table).cloned();
            catalog.opened += u64::from(same.is_none());
            tables.insert(key, same.unwrap_or_else(|| Rc::new(table)));
        }
        (catalog.copies, catalog.unfinished) = (Rc::new(copies), Rc::new(unfinished));
        (catalog.tables, catalog.temporary) = (Rc::new(tables), Rc::new(temporary));
        if catalog.tables.values().any(|t| !t.schema.foreign_keys.is_empty()) {
            catalog.rules = Rc::new(foreign_key::all_rules(&catalog));
        }
        catalog.views = Rc::new(view::views(views, &before.views)?);
        catalog.routines = Rc::new(routine::routines(routines, &before.routines)?);
        catalog.events = Rc::new(event::events(events, &before.events)?);
        catalog.histograms = Rc::new(histogram::histograms(histograms, &before.histograms)?);
        if catalog.histograms != before.histograms {
            catalog.statistics.set_histograms(&catalog.histograms);
        }
        catalog.counters = catalog.find(SYSTEM_DATABASE, self::auto_increment::TABLE);
        Ok(catalog)
    }

    /// The table of AUTO_INCREMENT counters.
    ///
    /// # Errors
    /// The dictionary is not here yet.
    pub fn counters(&self) -> errors::Result<&TableSchema> {
        self.counters.as_ref().map(|t| &t.schema).ok_or_else(|| errors::internal("no table of counters"))
    }
    /// What rows of a table are held to, if anything.
    pub fn rules(&self, table: TableId) -> Option<Rc<Rules>> {
        self.rules.get(&table).cloned()
    }
    pub fn unfinished(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.unfinished.iter()
    }
    pub fn find(&self, database: &str, name: &str) -> Option<Rc<Table>> {
        // The key is a pair of owned strings, so a lookup makes two; plans keep the table, so this is not on the hot path.
        let permanent = || self.tables.get(&(database.to_owned(), name.to_owned()));
        self.own(database, name).or_else(permanent).or_else(|| self.kept_as(database, name)).cloned()
    }
    /// Databases and names of tables.
    pub fn names_of(&self, ids: &[TableId]) -> Vec<(String, String)> {
        let named = self.tables.iter().filter(|(_, table)| ids.contains(&table.schema.id));
        named.map(|(name, _)| name.clone()).collect()
    }
    /// The table is still what it was.
    pub fn has(&self, table: &Rc<Table>) -> bool {
        let found = self.find(&table.schema.database, &table.schema.name);
        found.is_some_and(|found| Rc::ptr_eq(&found, table))
    }
    /// The view whose columns these are is still what it was.
    pub fn has_view(&self, table: &Rc<Table>) -> bool {
        let found = self.view(&table.schema.database, &table.schema.name);
        found.is_some_and(|found| Rc::ptr_eq(&found.table, table))
    }
    pub fn view(&self, database: &str, name: &str) -> Option<&Rc<View>> {
        // Without views a lookup makes no strings.
        if self.views.is_empty() || self.own(database, name).is_some() {
            return None;
        }
        self.views.get(&(database.to_owned(), name.to_owned()))
    }
    pub fn routine(&self, kind: Kind, database: &str, name: &str) -> Option<&Rc<Routine>> {
        self.routines.get(&routine::key(kind, database, name))
    }
    /// The routine is still what it was.
    pub fn has_routine(&self, routine: &Rc<Routine>) -> bool {
        self.routines.get(&routine.key()).is_some_and(|found| Rc::ptr_eq(found, routine))
    }
    /// By kind, database and name.
    pub fn routines(&self) -> impl Iterator<Item = &Rc<Routine>> {
        self.routines.values()
    }
    pub fn event(&self, database: &str, name: &str) -> Option<&Rc<Event>> {
        self.events.get(&event::key(database, name))
    }
    /// By database and name.
    pub fn events(&self) -> impl Iterator<Item = &Rc<Event>> {
        self.events.values()
    }
    /// The columns of a table or view.
    pub fn columns_of(&self, database: &str, name: &str) -> Result<Rc<Table>> {
        match self.view(database, name) {
            Some(view) => Ok(view.table.clone()),
            None => self.table(database, name),
        }
    }
    pub fn table(&self, database: &str, name: &str) -> Result<Rc<Table>> {
        if let Some(found) = self.own(database, name).or_else(|| self.kept_as(database, name)) {
            return Ok(found.clone());
        }
        if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
            return crate::catalog::information_schema::table(name).ok_or_else(|| errors::unknown_virtual_table(name));
        }
        if !self.databases.contains_key(database) {
            let found = match self.virtual_tables(database) {
                None => return Err(errors::unknown_database(database)),
                Some(crate::catalog::grant_tables::DATABASE) => crate::catalog::grant_tables::table(name),
                Some(crate::catalog::sys::DATABASE) => crate::catalog::sys::table(name),
                Some(_) => crate::catalog::performance_schema::table(name),
            };
            return found.ok_or_else(|| errors::unknown_table(database, name));
        }
        match self.find(database, name) {
            Some(found) => Ok(found),
            None if self.view(database, name).is_some() => Err(errors::wrong_object(database, name, "BASE TABLE")),
            None => Err(errors::unknown_table(database, name)),
        }
    }
    /// The database of this name, if it has virtual tables and is in no list.
    pub fn virtual_tables(&self, database: &str) -> Option<&'static str> {
        let all = [
            crate::catalog::grant_tables::DATABASE,
            crate::catalog::performance_schema::DATABASE,
            crate::catalog::sys::DATABASE,
        ];
        let known = all.into_iter().find(|known| *known == database);
        known.filter(|known| !self.databases.contains_key(*known))
    }
    pub fn tables_of(&self, database: &str) -> impl Iterator<Item = &Rc<Table>> {
        let database = database.to_owned();
        self.tables.iter().filter(move |((d, _), _)| *d == database).map(|(_, t)| t)
    }
    pub fn tables(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.tables.values()
    }
    pub fn views_of(&self, database: &str) -> impl Iterator<Item = &Rc<View>> {
        let database = database.to_owned();
        self.views.iter().filter(move |((d, _), _)| *d == database).map(|(_, v)| v)
    }
    pub fn views(&self) -> impl Iterator<Item = &Rc<View>> {
        self.views.values()
    }
    /// Columns of the tables and views of a database, in the order of their names.
    pub fn named_in(&self, database: &str) -> Vec<&Rc<Table>> {
        let mut all: Vec<&Rc<Table>> =
            self.tables_of(database).chain(self.views_of(database).map(|v| &v.table)).collect();
        all.sort_by(|a, b| a.schema.name.cmp(&b.schema.name));
        all
    }
}

/// Name of the hidden primary key.
pub const HIDDEN_KEY: &str = "#key";

/// The table that a definition is kept as. It has a key that nobody sees.
pub fn kept_table(database: &str, kept_as: &str, engine: &str, definition: String) -> TableSchema {
    let key = Column { nullable: false, ..Column::new(HIDDEN_KEY, ColumnType::Int { bits: 64, unsigned: true }) };
    let mut schema = TableSchema::new(database, kept_as, vec![key], vec![0]);
    schema.hidden_key = true;
    schema.engine = engine.to_owned();
    schema.comment = definition;
    schema
}

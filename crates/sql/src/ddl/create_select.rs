//! CREATE TABLE ... SELECT.
//!
//! The table is made and filled under a name that nobody sees (`#made#N`) and renamed when its rows are committed, and on the disks where there are
//! any. So others see it with all its rows or not at all, a statement that fails leaves nothing, and what it selects from may be read meanwhile. All rows are one
//! transaction, with the limits of INSERT ... SELECT.
//!
//! A SQL node that dies in between leaves such a table behind. Whoever fills one holds a row lock as long as it lives: an insert into the table of counters, of the key
//! [`guard_key`], that is never committed. The next CREATE TABLE ... SELECT, through any SQL node, drops the tables whose lock it gets ([`SqlEngine::drop_abandoned`]). If
//! the lock is lost because the node that coordinates it dies, the table may be dropped under its maker, which then begins again.

use std::{
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use apus_client::{ClientError, ExecOptions, OpBatch, Results, Transaction};
use apus_signal::{
    dict::{Change, RenameTable, TableName},
    schema::TableMessage,
    tc::{NO_WAIT, OpKind},
};
use apus_types::{Column, ErrorCode, TableSchema, Value, key, schema::DefaultValue};

use super::{
    create_view, default_dates,
    statement::{self, definitions::Definitions},
};
use crate::{
    catalog::{Catalog, Table, copies},
    errors::{self, Result},
    exec::{self, Changed, insert},
    parse::token::{Name, Token, Tokens},
    plan::{
        Insert, Plan, Select,
        dml::insert::{OnDuplicate, Source, texts_as_bytes},
        rules,
    },
    session::{Fail, Session, buffers::Scratch, engine::SqlEngine},
    variables::NO_LIMIT,
};

/// What the names of tables begin with that are being filled.
const MARK: &str = "#made#";
/// Attempts of a statement that others, or failing nodes, get in the way of.
const ATTEMPTS_MAX: u32 = 10;
/// How long it is believed that data nodes have no disks: to be told so takes a second.
const DISKLESS_KNOWN: Duration = Duration::from_secs(60);
/// Longest name of a column in characters.
const NAME_CHARS_MAX: usize = 64;

/// CREATE TABLE ... SELECT.
#[derive(Debug)]
pub struct SelectClause {
    pub name: Name,
    pub(super) if_not_exists: bool,
    pub(super) definitions: Definitions,
    /// A table without columns.
    pub(super) options: TableSchema,
    pub(super) auto_increment: Option<u64>,
    pub(super) on_duplicate: OnDuplicate,
    /// The SELECT.
    pub(super) text: String,
}

/// Whether the SELECT comes next, or what may stand before it.
pub fn begins_select(t: &Tokens) -> bool {
    let is = |token: &Token, words: &[&str]| matches!(token, Token::Word(w) if words.iter().any(|word| w.eq_ignore_ascii_case(word)));
    let opened = t.rest().iter().take_while(|token| **token == Token::Symbol('(')).count();
    let query = ["select", "with", "values", "table"];
    match t.rest().get(opened) {
        Some(token) if opened == 0 => is(token, &query) || is(token, &["as", "ignore", "replace"]),
        Some(token) => is(token, &query),
        None => false,
    }
}

impl SelectClause {
    pub fn parse(
        t: &mut Tokens,
        text: &str,
        name: Name,
        if_not_exists: bool,
        definitions: Definitions,
        options: TableSchema,
        auto_increment: Option<u64>,
    ) -> Result<SelectClause> {
        if !definitions.foreign_keys.is_empty() {
            return Err(errors::not_supported("foreign keys in CREATE TABLE ... SELECT"));
        }
        let on_duplicate = if t.word("ignore") {
            OnDuplicate::Ignore
        } else if t.word("replace") {
            OnDuplicate::Replace
        } else {
            OnDuplicate::Refuse
        };
        t.word("as");
        let begin = t.offset().filter(|_| begins_select(t)).ok_or_else(|| t.error())?;
        t.skip_all();
        let text = text.get(begin..).unwrap_or("").trim().to_owned();
        Ok(SelectClause { name, if_not_exists, definitions, options, auto_increment, on_duplicate, text })
    }
}

/// Whether a table is being filled, or was when its SQL node died; its number.
pub fn unfinished(name: &str) -> Option<u16> {
    name.strip_prefix(MARK)?.parse().ok()
}

/// Names of tables that are being filled are nobody else's.
pub fn check_table_name(name: &str) -> Result<()> {
    if unfinished(name).is_some() || copies::number(name).is_some() {
        Err(errors::wrong_table_name(name))
    } else {
        Ok(())
    }
}

/// The row whose lock says that the maker of table `#made#N` lives. No counter is of this column.
fn guard_key(number: u16) -> u64 {
    u64::from(number) << 16 | 0xffff
}

/// A maker's lock.
pub(crate) struct Guard {
    pub number: u16,
    /// Open as long as the table is being filled; rolled back when it is dropped.
    _transaction: Transaction,
    /// Commits can wait for disks.
    pub on_disk: bool,
}

impl SqlEngine {
    /// The guard of this number; `None`: another maker has it.
    pub(crate) async fn guard(
        &self,
        counters: &TableSchema,
        number: u16,
    ) -> std::result::Result<Option<Guard>, ClientError> {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let value = Value::UInt(guard_key(number));
        key::encode_part(counters.columns[0].ty, false, &value, &mut key)?;
        counters.layout().encode(&[value, Value::UInt(0)], &mut row)?;
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        ops.push(counters, OpKind::Insert, NO_WAIT, &key, &row)?;
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 0 };
        let is_diskless = self.found_diskless.get().is_some_and(|at| at.elapsed() < DISKLESS_KNOWN);
        for on_disk in [!is_diskless, false] {
            let mut transaction = self.client.begin();
            transaction.wait_for_disk(on_disk);
            match transaction.execute(&ops, options, &mut results).await {
                Ok(()) => return Ok(Some(Guard { number, _transaction: transaction, on_disk })),
                Err(e) if e.code == ErrorCode::NoDisk && on_disk => self.found_diskless.set(Some(Instant::now())),
                Err(e) if matches!(e.code, ErrorCode::LockNotAvailable | ErrorCode::LockTimeout) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// A guard that nobody had.
    pub(crate) async fn new_guard(&self, session: &Session, counters: &TableSchema) -> Result<Guard> {
        let first = session.info.id as u16;
        for more in 0..=u16::MAX {
            if let Some(guard) =
                self.guard(counters, first.wrapping_add(more)).await.map_err(|e| errors::from_client(&e))?
            {
                return Ok(guard);
            }
        }
        Err(errors::from_code(ErrorCode::TooManyTables, ""))
    }

    /// Drops the tables whose makers died.
    pub(crate) async fn drop_abandoned(&self, catalog: &Catalog, counters: &TableSchema) -> Result<()> {
        self.give_up_abandoned(catalog).await?;
        for table in catalog.unfinished() {
            let Some(number) = unfinished(&table.schema.name) else { continue };
            // What cannot be told now is for the next one.
            if let Ok(Some(_guard)) = self.guard(counters, number).await {
                self.drop_made(&table.schema).await?;
            }
        }
        Ok(())
    }

    async fn drop_made(&self, made: &TableSchema) -> Result<()> {
        let name = TableName { database: made.database.clone(), table: made.name.clone(), version: 0 };
        self.change(Change::DropTable(name)).await.map(|_| ())
    }

    pub(crate) async fn create_table_select(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        clause: &SelectClause,
    ) -> Result<Changed> {
        let database =
            clause.name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        let name = TableName { database, table: clause.name.1.clone(), version: 0 };
        check_table_name(&name.table)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            session.clear_warnings();
            let catalog = self.fetch_catalog_of(session).await?;
            if !clause.if_not_exists {
                check_free(catalog.permanent(), &name)?;
            }
            let planned = self.plan_measured(&catalog, &session.env, &clause.text, Vec::new(), NO_LIMIT).await?;
            let Plan::Select(select) = planned else {
                return Err(errors::syntax(&clause.text));
            };
            self.authorize(session, &select.names.needs).await?;
            select.names.hints.iter().for_each(|told| {
                session.tell_hints(told);
            });
            if let Err(e) = check_free(catalog.permanent(), &name) {
                return exists(session, clause, e);
            }
            let made = pin!(self.make(session, s, clause, &name, *select)).await?;
            match made {
                Made::Filled(changed) => return Ok(changed),
                Made::NameTaken => return exists(session, clause, errors::table_exists(&name.table)),
                Made::Failed(e, again) if !again || attempt == ATTEMPTS_MAX => return Err(e),
                Made::Failed(..) => {}
            }
        }
    }

    /// One attempt: makes the table, fills and names it.
    async fn make(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        clause: &SelectClause,
        name: &TableName,
        select: Select,
    ) -> Result<Made> {
        let catalog = self.catalog().await?;
        let counters = catalog.counters()?;
        self.drop_abandoned(&catalog, counters).await?;
        let mut table = defined(&catalog, clause, &select, name)?;
        table.columns.iter_mut().try_for_each(|column| default_dates::check(&session.env, column))?;
        let guard = self.new_guard(session, counters).await?;
        table.name = format!("{MARK}{}", guard.number);
        for again in [true, false] {
            match self.change(Change::CreateTable(TableMessage::from(&table))).await? {
                None => break,
                // Its maker is dead, since its guard is ours.
                Some(ErrorCode::TableExists) if again => self.drop_made(&table).await?,
                Some(ErrorCode::DatabaseNotFound) => return Err(errors::unknown_database(&name.database)),
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        let filled = pin!(self.fill(session, s, clause, (&table, name), select, guard.on_disk)).await;
        let made = match filled {
            Ok(changed) => {
                let from = TableName { database: table.database.clone(), table: table.name.clone(), version: 0 };
                let names = RenameTable { from: Some(from), to: Some(name.clone()) };
                match self.change(Change::RenameTable(names)).await {
                    Ok(None) => return Ok(Made::Filled(changed)),
                    Ok(Some(ErrorCode::TableExists)) => Made::NameTaken,
                    Ok(Some(code)) => {
                        Made::Failed(errors::from_code(code, &name.table), code == ErrorCode::TableNotFound)
                    }
                    Err(e) => Made::Failed(e, false),
                }
            }
            Err((e, again)) => Made::Failed(e, again),
        };
        // Where that fails, too, the table is dropped by whoever gets the guard.
        let _ = self.drop_made(&table).await;
        Ok(made)
    }

    /// Puts the rows into the table that was made. The flag of an error says that the statement may be tried again.
    async fn fill(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        clause: &SelectClause,
        (made, name): (&TableSchema, &TableName),
        select: Select,
        on_disk: bool,
    ) -> std::result::Result<Changed, (crate::wire::SqlError, bool)> {
        let catalog = self.fetch_catalog().await.map_err(|e| (e, false))?;
        let Some(found) =
            catalog.unfinished().find(|t| t.schema.database == made.database && t.schema.name == made.name)
        else {
            return Err((errors::unknown_table(&name.database, &name.table), true));
        };
        if let Some(first) = clause.auto_increment {
            self.start_counter(&found.schema, first).await.map_err(|e| (e, false))?;
        }
        let plan = filling(named(found, name), select, clause.on_duplicate);
        let reads = session.reads.clone();
        let cluster = self.cluster(&catalog, &reads);
        let before = session.savepoint;
        let asked = session.env.variables.on_disk;
        session.env.variables.on_disk |= on_disk;
        session.fix_characteristics();
        let mut done = pin!(insert::insert(cluster, session, s, &plan, &[], 1)).await;
        if done.is_ok() && session.transaction.is_some() {
            let committed = exec::commit(session).await;
            session.forget_transaction();
            done = committed.map_err(Fail::Client).and(done);
        }
        session.env.variables.on_disk = asked;
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        session.tell_remarks();
        match done {
            Ok(changed) => Ok(changed),
            Err(fail) => Err(self.failed(session, fail, before, false, false, true).await),
        }
    }
}

/// What became of an attempt.
enum Made {
    Filled(Changed),
    /// Somebody else made a table of this name meanwhile.
    NameTaken,
    /// The flag: it may be tried again.
    Failed(crate::wire::SqlError, bool),
}

fn exists(session: &mut Session, clause: &SelectClause, e: crate::wire::SqlError) -> Result<Changed> {
    if !clause.if_not_exists || e.errno != 1050 {
        return Err(e);
    }
    session.warn("Note", e.errno, e.message);
    Ok(Changed::default())
}

fn check_free(catalog: &Catalog, name: &TableName) -> Result<()> {
    if name.database == crate::catalog::information_schema::DATABASE {
        return Err(errors::virtual_table_write(&name.database));
    }
    match catalog.columns_of(&name.database, &name.table) {
        Ok(_) => Err(errors::table_exists(&name.table)),
        Err(e) if e.errno == 1146 => Ok(()),
        Err(e) => Err(e),
    }
}

/// The definition of the table: the columns that are in the parentheses alone, then those of the select list, which may be in both.
pub(super) fn defined(
    catalog: &Catalog,
    clause: &SelectClause,
    select: &Select,
    name: &TableName,
) -> Result<TableSchema> {
    if select.lock.is_some() || select.locked.is_some() {
        let read = select.reads.first().map_or("", |t| t.schema.name.as_str());
        return Err(errors::locked_while_created(read, &name.table));
    }
    let mut alone = clause.definitions.columns.clone();
    let mut selected: Vec<Column> = Vec::new();
    let mut computed: Vec<&str> = Vec::new();
    for output in &select.outputs {
        let column = create_view::column_of_output(catalog, &output.def.name, output);
        check_column_name(&column.name)?;
        if selected.iter().any(|c| c.name.eq_ignore_ascii_case(&column.name)) {
            return Err(errors::duplicate_column(&column.name));
        }
        let given = alone.iter().position(|c| c.name.eq_ignore_ascii_case(&column.name));
        if given.is_some_and(|at| alone[at].generated.is_some()) {
            return Err(rules::failures::value_for_generated(&column.name, &name.table));
        }
        selected.push(match given.map(|at| alone.remove(at)) {
            Some(given) if given.comment.is_empty() => Column { comment: column.comment, ..given },
            Some(given) => given,
            None => {
                computed.extend(output.def.org_table.is_empty().then_some(output.def.name.as_str()));
                column
            }
        });
    }
    alone.append(&mut selected);
    let clauses = &clause.definitions;
    let (indexes, primary, checks) = (clauses.indexes.clone(), clauses.primary.clone(), clauses.checks.clone());
    let definitions = Definitions { columns: alone, indexes, primary, checks, ..Definitions::default() };
    let mut table = statement::assemble(&clause.options, definitions)?;
    table.database.clone_from(&name.database);
    for &column in &table.primary_key {
        let column = &mut table.columns[usize::from(column)];
        if computed.iter().any(|name| column.name.eq_ignore_ascii_case(name)) {
            column.default = DefaultValue::None;
        }
    }
    let names = table.checks.iter().map(|check| &check.name);
    super::rules::check_free(catalog, (&table.database, &name.table), names)?;
    Ok(table)
}

fn check_column_name(name: &str) -> Result<()> {
    if name.chars().count() > NAME_CHARS_MAX { Err(errors::wrong_column_name(name)) } else { check_new_name(name) }
}

/// Names that begin with `#` are those of columns that nobody sees.
///
/// # Errors
/// 1166.
pub(crate) fn check_new_name(name: &str) -> Result<()> {
    let wrong = name.is_empty() || name.ends_with(' ') || name.starts_with('#');
    if wrong { Err(errors::wrong_column_name(name)) } else { Ok(()) }
}

/// The table as errors name it.
fn named(made: &Table, name: &TableName) -> Rc<Table> {
    let mut schema = made.schema.clone();
    schema.name.clone_from(&name.table);
    Rc::new(Table::new(schema, made.hidden.clone()))
}

/// The rows of the SELECT into the columns of their names.
pub(super) fn filling(table: Rc<Table>, select: Select, on_duplicate: OnDuplicate) -> Insert {
    let place = |c: &Column| select.outputs.iter().position(|o| o.def.name.eq_ignore_ascii_case(&c.name));
    let places: Vec<Option<usize>> = table.schema.columns.iter().map(place).collect();
    Insert {
        of_values: false,
        encoded: texts_as_bytes(&table.schema, &places, &select, &[]),
        places,
        defaults: (0..table.schema.columns.len() as u16).map(|c| rules::initial(&table, c)).collect(),
        names: Default::default(),
        source: Source::Select(Box::new(select)),
        on_duplicate,
        assignments: Vec::new(),
        check: None,
        within: None,
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::statement::Ddl;

    fn parsed(text: &str) -> Result<Box<SelectClause>> {
        match statement::parse(&mut Tokens::new(text), text, Default::default())? {
            Some(Ddl::CreateTableSelect(clause)) => Ok(clause),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_select_begins_where_options_end() {
        for (text, columns, on_duplicate, select) in [
            ("CREATE TABLE t SELECT 1", 0, OnDuplicate::Refuse, "SELECT 1"),
            ("create table t as select 1", 0, OnDuplicate::Refuse, "select 1"),
            ("CREATE TABLE t (SELECT 1)", 0, OnDuplicate::Refuse, "(SELECT 1)"),
            ("CREATE TABLE t ((SELECT 1))", 0, OnDuplicate::Refuse, "((SELECT 1))"),
            ("CREATE TABLE t (a INT) (SELECT 1)", 1, OnDuplicate::Refuse, "(SELECT 1)"),
            ("CREATE TABLE t (a INT, b INT) ENGINE=InnoDB IGNORE AS TABLE x", 2, OnDuplicate::Ignore, "TABLE x"),
            ("CREATE TABLE t (KEY (a)) COMMENT='as' REPLACE SELECT 1 a", 0, OnDuplicate::Replace, "SELECT 1 a"),
            (
                "CREATE TABLE t WITH q AS (SELECT 1) SELECT * FROM q",
                0,
                OnDuplicate::Refuse,
                "WITH q AS (SELECT 1) SELECT * FROM q",
            ),
        ] {
            let clause = parsed(text).unwrap();
            assert_eq!((clause.definitions.columns.len(), clause.on_duplicate), (columns, on_duplicate), "{text}");
            assert_eq!(clause.text, select, "{text}");
        }
        for wrong in [
            "CREATE TABLE t",
            "CREATE TABLE t AS",
            "CREATE TABLE t IGNORE",
            "CREATE TABLE t (a INT) AS 1",
            "CREATE TABLE t (a INT",
        ] {
            assert!(statement::parse(&mut Tokens::new(wrong), wrong, Default::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_collation_of_the_select_is_not_the_tables() {
        use apus_types::collate::Collation;
        let of = |text| parsed(text).unwrap().options.collation;
        assert_eq!(of("CREATE TABLE t COLLATE=utf8mb4_bin SELECT 'a' a"), Collation::Utf8mb4Bin);
        assert_eq!(of("CREATE TABLE t SELECT 'a' COLLATE utf8mb4_bin a"), Collation::default());
    }

    #[test]
    fn tables_that_are_being_filled_are_known_by_their_names() {
        assert_eq!(unfinished("#made#17"), Some(17));
        assert_eq!(
            [unfinished("#made#"), unfinished("#made#x"), unfinished("made"), unfinished("#view#1#2")],
            [None; 4]
        );
        assert_ne!(guard_key(1) & 0xffff, 1, "no counter has the key of a guard");
    }
}

//! Definition statements carried out: schema changes sent to the dictionary, unique indexes filled.

mod indexes;

use self::indexes::FILL_ATTEMPTS;
use super::{
    create_select, default_dates,
    foreign_key::{self, clause::Clause},
    histogram::Follows,
    rules,
    statement::Ddl,
    temporary::Defined,
};
use crate::{
    admin::performance_schema,
    catalog::{Catalog, copies},
    errors::{self, Result},
    exec::{Changed, Info},
    parse::token::Name,
    program::trigger,
    session::{Session, buffers::Scratch, engine::SqlEngine, read_locks::Kept},
};
use apus_signal::dict::{Change, DatabaseMessage, RenameTable, TableName};
use apus_types::{ErrorCode, TableSchema, schema::Durability};

impl SqlEngine {
    /// Commits what is open and changes the schema; histograms go with their tables.
    pub(crate) async fn define(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Changed> {
        let ddl = match Box::pin(self.define_temporary(session, s, ddl)).await? {
            Defined::Done(done) => return Ok(done),
            Defined::Not(ddl) => ddl,
        };
        let before = self.catalog().await?;
        if before.histograms.is_empty() {
            return self.define_only(session, s, ddl).await;
        }
        let follows = Follows::of(&ddl, session.env.database.as_deref());
        let done = Box::pin(self.define_only(session, s, ddl)).await?;
        Box::pin(self.settle_histograms(&before, &follows)).await?;
        Ok(done)
    }

    async fn define_only(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Changed> {
        let renamed = if session.locked.is_some() { self.moved_tables(session, &ddl) } else { Vec::new() };
        let done = self.carry_out_definition(session, s, ddl).await;
        session.uses.end_statement(false);
        if done.is_ok() {
            Box::pin(self.move_locks(session, &renamed)).await;
        }
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        done
    }

    async fn carry_out_definition(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Changed> {
        let mut done = Changed::default();
        self.authorize_definition(session, &ddl).await?;
        self.check_locked_tables(session, &ddl)?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        let current = session.env.database.clone();
        let full = |name: &Name| -> Result<TableName> {
            let database = name.0.clone().or_else(|| current.clone()).ok_or_else(errors::no_database)?;
            Ok(TableName { database, table: name.1.clone(), version: 0 })
        };
        let changed: Vec<TableName> = ddl.changed_tables().iter().filter_map(|name| full(name).ok()).collect();
        let session_locks = session.locked.is_some();
        let dropped = if let Ddl::DropDatabase { name, .. } = &ddl { name.as_str() } else { "" };
        let of_change = |catalog: &Catalog| -> Vec<_> {
            let named = changed.iter().filter_map(|name| catalog.find(&name.database, &name.table));
            named.chain(catalog.tables_of(dropped).cloned()).collect()
        };
        let is_closed = |catalog: &Catalog| {
            changed.iter().any(|name| copies::is_copied(catalog, &name.database, &name.table))
                || copies::is_copied_in(catalog, dropped)
        };
        Box::pin(self.wait_for_copies(session, is_closed)).await?;
        session.uses.begin(&self.table_locks, of_change(&*self.catalog().await?).iter().map(|table| (&**table, true)));
        let is_kept = |kept: &Kept| match kept {
            // Whoever wants to keep others from writing waits for UNLOCK TABLES.
            Kept::Everything | Kept::Node(_) if session_locks => false,
            Kept::Node(_) => {
                changed.iter().any(|name| kept.has_table(&name.database, &name.table)) || kept.has_database(dropped)
            }
            _ => true,
        };
        Box::pin(self.wait_for_read_locks(session, is_kept)).await?;
        let tables = of_change(&*self.catalog().await?);
        Box::pin(self.wait_for_branches(session, &tables)).await?;
        match ddl {
            Ddl::CreateDatabase { name, if_not_exists, collation } => {
                let change = Change::CreateDatabase(DatabaseMessage {
                    name: name.clone(),
                    collation: u32::from(collation.id()),
                });
                match self.change(change).await? {
                    Some(ErrorCode::DatabaseExists) if if_not_exists => {
                        session.warn("Note", 1007, errors::database_exists(&name).message);
                    }
                    Some(ErrorCode::DatabaseExists) => return Err(errors::database_exists(&name)),
                    Some(code) => return Err(errors::from_code(code, &name)),
                    None => done.affected = 1,
                }
            }
            Ddl::AlterDatabase { name, characters } => {
                let name = name.or(current).ok_or_else(errors::no_database)?;
                let Some(before) = self.fetch_catalog().await?.databases.get(&name).copied() else {
                    return Err(errors::unknown_schema(&name));
                };
                let collation = characters.collation(before)?;
                let change =
                    Change::AlterDatabase(DatabaseMessage { name: name.clone(), collation: u32::from(collation.id()) });
                if let Some(code) = self.change(change).await? {
                    return Err(errors::from_code(code, &name));
                }
                if session.env.database.as_ref() == Some(&name) {
                    session.env.variables.set_database(Some(collation));
                }
                done.affected = 1;
            }
            Ddl::DropDatabase { name, if_exists } => {
                let catalog = self.catalog().await?;
                if session.env.variables.foreign_key_checks {
                    let tables = catalog.tables_of(&name).map(|t| (name.clone(), t.schema.name.clone()));
                    foreign_key::check_drops(&catalog, &tables.collect::<Vec<_>>())?;
                }
                done.affected = catalog.named_in(&name).len() as u64;
                match self.change(Change::DropDatabase(name.clone())).await? {
                    Some(ErrorCode::DatabaseNotFound) if if_exists => {
                        session.warn("Note", 1008, errors::drop_unknown_database(&name).message);
                    }
                    Some(ErrorCode::DatabaseNotFound) => return Err(errors::drop_unknown_database(&name)),
                    Some(code) => return Err(errors::from_code(code, &name)),
                    None => {
                        if session.env.database.as_ref() == Some(&name) {
                            session.env.database = None;
                            session.note_schema();
                            session.env.variables.set_database(None);
                        }
                        for event in catalog.events().filter(|event| event.database == name) {
                            self.forget_runs(event.definition.number).await;
                        }
                    }
                }
            }
            Ddl::CreateTable { name, if_not_exists, mut table, foreign_keys, auto_increment } => {
                table.database = full(&name)?.database;
                table.columns.iter_mut().try_for_each(|column| default_dates::check(&session.env, column))?;
                let made = self.create(session, &table, &foreign_keys, if_not_exists).await?;
                if let Some(first) = auto_increment.filter(|_| made) {
                    let made = self.fetch_catalog().await?.table(&table.database, &table.name)?;
                    self.start_counter(&made.schema, first).await?;
                }
            }
            Ddl::CreateTableSelect(clause) => {
                done = Box::pin(self.create_table_select(session, s, &clause)).await?;
            }
            Ddl::CreateTableLike { name, like, if_not_exists } => {
                let (from, to) = (full(&like)?, full(&name)?);
                let source = self.catalog_of(session).await?.table(&from.database, &from.table)?;
                let mut table = source.schema.clone();
                if source.is_temporary() {
                    table.durability = Durability::default();
                }
                (table.database, table.name) = (to.database, to.table);
                table.indexes.iter_mut().for_each(|i| i.hidden_table = None);
                (table.foreign_keys, table.held, table.triggers) = Default::default();
                rules::copied(&mut table)?;
                table.columns.iter_mut().try_for_each(|column| default_dates::check(&session.env, column))?;
                self.create(session, &table, &[], if_not_exists).await?;
            }
            Ddl::CreateTemporary(_) | Ddl::DropTemporary { .. } => {
                return Err(errors::internal("a temporary table among others"));
            }
            Ddl::DropTables { names, if_exists } => {
                let mut unknown = Vec::new();
                let names = names.iter().map(full).collect::<Result<Vec<_>>>()?;
                self.check_drops(session, &names, if_exists).await?;
                // A view must not be taken for a table because it is new.
                let catalog = self.fetch_catalog().await?;
                for name in names {
                    let shown = format!("{}.{}", name.database, name.table);
                    if catalog.view(&name.database, &name.table).is_some() {
                        unknown.push(shown);
                        continue;
                    }
                    match self.drop_table(session, name).await? {
                        Some(ErrorCode::TableNotFound | ErrorCode::DatabaseNotFound) => unknown.push(shown),
                        Some(code) => return Err(errors::from_code(code, &shown)),
                        None => {}
                    }
                }
                if !unknown.is_empty() {
                    let e = errors::drop_unknown_table(&unknown.join(","));
                    if !if_exists {
                        return Err(e);
                    }
                    session.warn("Note", e.errno, e.message);
                }
            }
            Ddl::Truncate(name) => {
                let name = full(&name)?;
                let catalog = self.fetch_catalog().await?;
                match catalog.virtual_tables(&name.database) {
                    Some(crate::catalog::performance_schema::DATABASE)
                        if performance_schema::truncate(&name.table, &session.env) =>
                    {
                        return Ok(done);
                    }
                    Some(crate::catalog::grant_tables::DATABASE)
                        if name.table == crate::catalog::grant_tables::SLOW_LOG =>
                    {
                        self.globals.slow.forget();
                        return Ok(done);
                    }
                    _ => {}
                }
                if catalog.view(&name.database, &name.table).is_some() {
                    return Err(errors::unknown_table(&name.database, &name.table));
                }
                let shown = (name.database.clone(), name.table.clone());
                match self.truncate(session, name).await? {
                    Some(ErrorCode::TableNotFound) => return Err(errors::unknown_table(&shown.0, &shown.1)),
                    Some(code) => return Err(errors::from_code(code, &shown.1)),
                    None => {}
                }
            }
            Ddl::CreateView(view) => self.create_view(session, &view).await?,
            Ddl::DropViews { names, if_exists } => {
                let names = names.iter().map(full).collect::<Result<Vec<_>>>()?;
                self.drop_views(session, &names, if_exists).await?;
            }
            Ddl::RenameTable(from, to) => {
                let (from, to) = (full(&from)?, full(&to)?);
                self.fetch_catalog().await?.table(&from.database, &from.table)?;
                self.rename(from, to).await?;
            }
            Ddl::Rename(list) => {
                for (from, to) in &list {
                    let (from, to) = (full(from)?, full(to)?);
                    let is_view = self.fetch_catalog().await?.view(&from.database, &from.table).is_some();
                    if is_view && from.database != to.database {
                        return Err(errors::other_schema(&from.database, &to.database));
                    }
                    self.rename(from, to).await?;
                }
            }
            Ddl::AddIndexes { table, indexes, drops } => {
                let name = full(&table)?;
                self.fetch_catalog().await?.table(&name.database, &name.table)?;
                self.change_indexes(session, name, table, indexes, drops).await?;
                done.info = Info::Inserted { records: 0, duplicates: 0 };
            }
            Ddl::Alter(clause) => {
                let name = full(&clause.table)?;
                self.fetch_catalog().await?.table(&name.database, &name.table)?;
                let records = self.alter_table(session, name, *clause).await?;
                done.affected = records;
                done.info = Info::Inserted { records, duplicates: 0 };
            }
        }
        self.fetch_catalog().await?;
        Ok(done)
    }

    async fn rename(&self, mut from: TableName, to: TableName) -> Result<()> {
        create_select::check_table_name(&to.table)?;
        let catalog = self.catalog().await?;
        if let Some(table) = catalog.find(&from.database, &from.table) {
            if from.database != to.database && !table.schema.triggers.is_empty() {
                return Err(trigger::failures::other_database());
            }
            from.version = table.schema.version;
            let mut renamed = table.schema.clone();
            (renamed.database, renamed.name) = (to.database.clone(), to.table.clone());
            let checked = foreign_key::check_new_table(&catalog, &renamed, false);
            checked.map_err(|_| errors::rename_breaks_foreign_key(&table.schema, &renamed))?;
        }
        let (old, new) = (format!("{}.{}", from.database, from.table), to.table.clone());
        match self.change(Change::RenameTable(RenameTable { from: Some(from), to: Some(to) })).await? {
            Some(ErrorCode::TableExists) => Err(errors::table_exists(&new)),
            Some(code) => Err(errors::from_code(code, &old)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// 3730; 1051 for a table that is not there, where another one of the statement could not be dropped.
    async fn check_drops(&self, session: &Session, names: &[TableName], if_exists: bool) -> Result<()> {
        if !session.env.variables.foreign_key_checks {
            return Ok(());
        }
        let catalog = self.fetch_catalog().await?;
        let list: Vec<_> = names.iter().map(|n| (n.database.clone(), n.table.clone())).collect();
        let checked = foreign_key::check_drops(&catalog, &list);
        let unknown = list.iter().filter(|(database, name)| catalog.find(database, name).is_none());
        let unknown: Vec<String> = unknown.map(|(database, name)| format!("{database}.{name}")).collect();
        match checked {
            Err(_) if !if_exists && !unknown.is_empty() => Err(errors::drop_unknown_table(&unknown.join(","))),
            checked => checked,
        }
    }

    /// The table as it was looked at: what refers to it may be new, and it may be copied.
    async fn drop_table(&self, session: &mut Session, name: TableName) -> Result<Option<ErrorCode>> {
        for _ in 0..FILL_ATTEMPTS {
            let mut name = name.clone();
            let found = self.fetch_catalog().await?.find(&name.database, &name.table);
            name.version = found.map_or(0, |table| table.schema.version);
            match self.change(Change::DropTable(name.clone())).await? {
                Some(ErrorCode::SchemaVersionChanged) => self.look_again(session, &name).await?,
                done => return Ok(done),
            }
        }
        Ok(Some(ErrorCode::SchemaVersionChanged))
    }

    pub(super) async fn truncate(&self, session: &mut Session, name: TableName) -> Result<Option<ErrorCode>> {
        for _ in 0..FILL_ATTEMPTS {
            let mut name = name.clone();
            let catalog = self.fetch_catalog().await?;
            if session.env.variables.foreign_key_checks {
                foreign_key::check_truncate(&catalog, &name.database, &name.table)?;
            }
            name.version = catalog.find(&name.database, &name.table).map_or(0, |table| table.schema.version);
            match self.change(Change::TruncateTable(name.clone())).await? {
                Some(ErrorCode::SchemaVersionChanged) => self.look_again(session, &name).await?,
                done => return Ok(done),
            }
        }
        Ok(Some(ErrorCode::SchemaVersionChanged))
    }

    /// Somebody else has changed a table: what is in the way of dropping or emptying it.
    async fn look_again(&self, session: &mut Session, name: &TableName) -> Result<()> {
        let is_closed = |catalog: &Catalog| copies::is_copied(catalog, &name.database, &name.table);
        self.wait_for_copies(session, is_closed).await?;
        self.check_drops(session, std::slice::from_ref(name), true).await
    }

    /// Sends a change; a refusal that the statement may turn into a note is returned.
    pub(crate) async fn change(&self, change: Change) -> Result<Option<ErrorCode>> {
        Ok(self.change_to(change).await?.err())
    }

    /// As [`SqlEngine::change`], with the version of the dictionary to which it led.
    pub(crate) async fn change_to(&self, change: Change) -> Result<std::result::Result<u64, ErrorCode>> {
        match self.client.schema_change(change).await {
            Ok(conf) => Ok(Ok(conf.version)),
            Err(e) if matches!(e.class(), apus_types::ErrorClass::Schema) => Ok(Err(e.code)),
            Err(e) => Err(errors::from_client(&e)),
        }
    }

    /// Makes the values that a new table generates begin at `first`.
    pub(crate) async fn start_counter(&self, table: &TableSchema, first: u64) -> Result<()> {
        let Some(column) = table.auto_increment_column() else { return Ok(()) };
        let catalog = self.catalog().await?;
        let highest = first.saturating_sub(1);
        let raised = self.auto_increment.raise(&self.client, catalog.counters()?, table, column, highest).await;
        raised.map_err(|e| errors::from_client(&e))
    }

    /// Returns whether the table was made now.
    async fn create(
        &self,
        session: &mut Session,
        table: &TableSchema,
        foreign_keys: &[Clause],
        if_not_exists: bool,
    ) -> Result<bool> {
        create_select::check_table_name(&table.name)?;
        if !table.checks.is_empty() {
            let names = table.checks.iter().map(|check| &check.name);
            rules::check_free(&*self.fetch_catalog().await?, (&table.database, &table.name), names)?;
        }
        match self.create_with_keys(session, table, foreign_keys).await? {
            Some(ErrorCode::TableExists) if if_not_exists => {
                session.warn("Note", 1050, errors::table_exists(&table.name).message);
                Ok(false)
            }
            Some(ErrorCode::TableExists) => Err(errors::table_exists(&table.name)),
            Some(ErrorCode::DatabaseNotFound) => Err(errors::unknown_database(&table.database)),
            Some(code) => Err(errors::from_code(code, &table.name)),
            None => Ok(true),
        }
    }
}

//! Definition statements carried out: schema changes sent to the dictionary, unique indexes filled.

use super::{
    alter::AlterClause,
    create_select, default_dates,
    foreign_key::{self, clause::Clause},
    histogram::Follows,
    rules,
    statement::Ddl,
};
use crate::{
    admin::performance_schema,
    catalog::{
        Catalog, copies, full_text,
        key_parts::{self, IndexClause},
    },
    errors::{self, Result},
    exec::{Changed, Info},
    parse::token::Name,
    plan::rules::functional,
    program::trigger,
    session::{Scratch, Session, engine::SqlEngine, read_locks::Kept},
};
use apus_client::{ExecOptions, OpBatch, Results, Rows, ScanRequest};
use apus_signal::{
    dict::{Change, DatabaseMessage, IndexChange, RenameTable, TableName},
    tc::OpKind,
};
use apus_types::{ErrorCode, TableSchema, key};

/// Rows of a unique index filled per transaction.
const FILL_BATCH: u32 = 256;
/// Attempts of one batch of filling that meets a lock or a failing node.
const FILL_ATTEMPTS: u32 = 50;

impl SqlEngine {
    /// Commits what is open and changes the schema; histograms go with their tables.
    pub(crate) async fn define(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Changed> {
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
                let source = self.catalog().await?.table(&from.database, &from.table)?;
                let mut table = source.schema.clone();
                (table.database, table.name) = (to.database, to.table);
                table.indexes.iter_mut().for_each(|i| i.hidden_table = None);
                (table.foreign_keys, table.held, table.triggers) = Default::default();
                rules::copied(&mut table)?;
                table.columns.iter_mut().try_for_each(|column| default_dates::check(&session.env, column))?;
                self.create(session, &table, &[], if_not_exists).await?;
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
                let known = self.fetch_catalog().await?.table(&name.database, &name.table)?;
                let is_more =
                    |name: &String| full_text::has(&known.schema, name) || functional::is_index(&known.schema, name);
                let comes = |index: &IndexClause| index.full_text || !index.expressions.is_empty();
                if indexes.iter().any(comes) || drops.iter().any(is_more) {
                    let clause = AlterClause::of_indexes(table, indexes, drops);
                    self.alter_table(session, name, clause).await?;
                    done.info = Info::Inserted { records: 0, duplicates: 0 };
                    self.fetch_catalog().await?;
                    return Ok(done);
                }
                for index in &drops {
                    match self.drop_index(&name, index).await? {
                        Some(ErrorCode::IndexNotFound) => {
                            let text = format!("Can't DROP '{index}'; check that column/key exists");
                            return Err(crate::wire::SqlError::new(1091, b"42000", text));
                        }
                        Some(code) => return Err(errors::from_code(code, index)),
                        None => {}
                    }
                }
                for index in &indexes {
                    self.add_index(session, &name, index).await?;
                }
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

    async fn truncate(&self, session: &mut Session, name: TableName) -> Result<Option<ErrorCode>> {
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

    async fn drop_index(&self, name: &TableName, index: &str) -> Result<Option<ErrorCode>> {
        for _ in 0..FILL_ATTEMPTS {
            let catalog = self.fetch_catalog().await?;
            let table = catalog.table(&name.database, &name.table)?;
            let indexes = [index.to_owned()];
            let loss = foreign_key::Loss { indexes: &indexes, columns: &[], redefined: &[], keys: &[] };
            foreign_key::check_loss(&catalog, &table.schema, &loss)?;
            let change = IndexChange {
                table: Some(name.clone()),
                name: index.to_owned(),
                version: table.schema.version,
                ..IndexChange::default()
            };
            match self.change(Change::DropIndex(change)).await? {
                Some(ErrorCode::SchemaVersionChanged) => {}
                done => return Ok(done),
            }
        }
        Ok(Some(ErrorCode::SchemaVersionChanged))
    }

    /// Sends a change; a refusal that the statement may turn into a note is returned.
    pub(crate) async fn change(&self, change: Change) -> Result<Option<ErrorCode>> {
        match self.client.schema_change(change).await {
            Ok(_) => Ok(None),
            Err(e) if matches!(e.class(), apus_types::ErrorClass::Schema) => Ok(Some(e.code)),
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

    pub(crate) async fn add_index(&self, session: &Session, name: &TableName, clause: &IndexClause) -> Result<()> {
        let mut change = self.new_index(name, clause).await?;
        let index = change.name.clone();
        session.info.activity.tells("data nodes build the index".to_owned());
        let mut made = self.change(Change::CreateIndex(change.clone())).await?;
        for _ in 0..FILL_ATTEMPTS {
            if made != Some(ErrorCode::SchemaVersionChanged) {
                break;
            }
            change = self.new_index(name, clause).await?;
            made = self.change(Change::CreateIndex(change.clone())).await?;
        }
        if let Some(code) = made {
            return Err(errors::from_code(code, &index));
        }
        if !clause.unique {
            return Ok(());
        }
        for _ in 0..FILL_ATTEMPTS {
            change.lineage = match self.fill_unique(session, name, &index).await {
                Ok(lineage) => lineage,
                Err(e) => {
                    self.change(Change::DropIndex(change)).await?;
                    return Err(e);
                }
            };
            match self.change(Change::PublishIndex(change.clone())).await? {
                // The cluster has started from the disks since: rows may be others.
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, &index)),
                None => return Ok(()),
            }
        }
        self.change(Change::DropIndex(change)).await?;
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &index))
    }

    /// An index by the columns that the table has now.
    async fn new_index(&self, name: &TableName, clause: &IndexClause) -> Result<IndexChange> {
        let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
        let index = key_parts::index_name(&table.schema, clause)?;
        let mut columns = Vec::new();
        for column in &clause.columns {
            let no = table.schema.column_no(column).ok_or_else(|| errors::no_key_column(column))?;
            columns.push(no);
        }
        let prefixes = key_parts::prefixes(&table.schema, &columns, &clause.lengths)?;
        let columns = columns.into_iter().map(u32::from).collect();
        let form = u32::from(table.schema.form);
        let (table, unique, invisible) = (Some(name.clone()), clause.unique, clause.invisible);
        let descending = clause.descending.iter().map(|&at| at.into()).collect();
        let name = index;
        Ok(IndexChange {
            table,
            name,
            columns,
            prefixes,
            descending,
            unique,
            form,
            invisible,
            ..IndexChange::default()
        })
    }

    /// Enters the rows that were there before the index into its hidden table. Each is locked shared meanwhile, so that no change of
    /// it can slip between reading and entering; rows written since carry their own entries. The cluster's lineage when it began.
    async fn fill_unique(&self, session: &Session, name: &TableName, index: &str) -> Result<u64> {
        let catalog = self.fetch_catalog().await?;
        let table = catalog.table(&name.database, &name.table)?;
        let position = table.schema.indexes.iter().position(|i| i.name == index);
        let hidden = position.and_then(|p| table.hidden.get(p)).and_then(|h| h.as_ref());
        let (Some(position), Some(hidden)) = (position, hidden) else {
            return Err(errors::internal("unique index vanished"));
        };
        let schema = &table.schema;
        self.check_no_claims(schema.id).await?;
        let mut request = ScanRequest::all(schema.id, schema.version);
        request.columns = Some(&schema.primary_key);
        request.batch_rows = FILL_BATCH;
        // What was written before the definition and is not committed yet has no entry either.
        request.with_pending = true;
        let key_layout =
            schema.layout().project_layout(&schema.primary_key).ok_or_else(|| errors::internal("projection"))?;
        let mut cursor = self.client.scan(&request);
        let mut rows = Rows::new();
        let mut progress = self.progress(schema, "filling the index").await;
        while cursor.next_batch(&mut rows).await.map_err(|e| errors::from_client(&e))? {
            session.env.may_go_on()?;
            let mut keys = Vec::with_capacity(rows.len());
            for row in rows.iter().flatten() {
                let mut key = Vec::new();
                for (i, &column) in schema.primary_key.iter().enumerate() {
                    let ty = schema.columns[usize::from(column)].ty;
                    key::encode_part(ty, false, &key_layout.value(row, i as u16), &mut key)
                        .map_err(|e| errors::from_code(e, ""))?;
                }
                keys.push(key);
            }
            let mut attempt = 0;
            loop {
                attempt += 1;
                match self.fill_batch(&table, position, hidden, &keys).await {
                    Ok(()) => break,
                    Err(e)
                        if attempt < FILL_ATTEMPTS
                            && (e.retry_transaction()
                                || matches!(e.code, ErrorCode::Deadlock | ErrorCode::LockTimeout)) => {}
                    Err(e) if e.code == ErrorCode::DuplicateKey => {
                        return Err(errors::duplicate_key(&e.detail, &format!("{}.{index}", schema.name)));
                    }
                    Err(e) => return Err(errors::from_client(&e)),
                }
            }
            progress.advance(session, rows.len() as u64).await?;
        }
        Ok(catalog.lineage)
    }

    async fn fill_batch(
        &self,
        table: &crate::catalog::Table,
        position: usize,
        hidden: &TableSchema,
        keys: &[Vec<u8>],
    ) -> std::result::Result<(), apus_client::ClientError> {
        use apus_types::Value;
        let schema = &table.schema;
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        for key in keys {
            ops.push_read(schema, false, apus_signal::tc::ALLOW_MISSING, key, None)?;
        }
        let mut transaction = self.client.begin();
        transaction
            .execute(&ops, ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 10_000 }, &mut results)
            .await?;
        ops.clear();
        let mut entries = Vec::new();
        for (primary, (status, row)) in keys.iter().zip(results.iter()) {
            if status != apus_signal::tc::OpStatus::Done {
                continue;
            }
            let mut entry = Vec::new();
            if key::encode_unique(schema, &schema.indexes[position], row, &mut entry)? {
                continue; // NULL is in no unique index
            }
            let mut image = Vec::new();
            let hash = key::distribution_hash(schema, primary);
            hidden.layout().encode(&[Value::Bytes(&entry), Value::UInt(hash), Value::Bytes(primary)], &mut image)?;
            ops.push(hidden, OpKind::Insert, apus_signal::tc::ALLOW_DUPLICATE, &entry, &image)?;
            let columns = &schema.indexes[position].columns;
            let shown: Vec<String> = columns
                .iter()
                .map(|&c| {
                    crate::expr::result_cells::display(&schema.columns[usize::from(c)], schema.layout().value(row, c))
                })
                .collect();
            entries.push((entry, primary.clone(), shown.join("-")));
        }
        if ops.is_empty() {
            transaction.rollback().await?;
            return Ok(());
        }
        transaction
            .execute(&ops, ExecOptions { commit: false, savepoint: 2, lock_wait_ms: 10_000 }, &mut results)
            .await?;
        // An entry that is there already was written with its row, if it names this row; otherwise two rows share the key.
        let taken: Vec<usize> = results
            .iter()
            .enumerate()
            .filter(|(_, (status, _))| *status == apus_signal::tc::OpStatus::Duplicate)
            .map(|(i, _)| i)
            .collect();
        if !taken.is_empty() {
            ops.clear();
            for &i in &taken {
                ops.push_read(hidden, false, apus_signal::tc::ALLOW_MISSING, &entries[i].0, None)?;
            }
            transaction
                .execute(&ops, ExecOptions { commit: false, savepoint: 3, lock_wait_ms: 10_000 }, &mut results)
                .await?;
            for (&i, (_, row)) in taken.iter().zip(results.iter()) {
                if hidden.layout().raw(row, apus_types::schema::HIDDEN_PK_COLUMN) != entries[i].1 {
                    let shown = entries[i].2.clone();
                    transaction.rollback().await?;
                    return Err(apus_client::ClientError::with_detail(ErrorCode::DuplicateKey, shown));
                }
            }
        }
        transaction.commit().await?;
        Ok(())
    }
}

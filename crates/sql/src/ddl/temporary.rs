//! CREATE TEMPORARY TABLE, and what statements of definitions do to temporary tables of the session, which hide permanent ones of their names.
//!
//! CREATE TEMPORARY and DROP TEMPORARY end no transaction: the dictionary changes beside it, since nobody else knows the table. All other definitions do, also of temporary tables. Those are carried out as of
//! any other table, by the name that it has in the dictionary, and the session looks at what has become of it ([`SqlEngine::learn_own`]).

use std::{pin::pin, rc::Rc};

use apus_signal::{
    dict::{Change, DatabaseMessage, TableName},
    schema::TableMessage,
};
use apus_types::{ErrorCode, TableSchema, schema::Durability};

use super::{
    create_select::{self, SelectClause},
    default_dates, rules,
    statement::Ddl,
};
use crate::{
    accounts::Privileges,
    catalog::{SYSTEM_DATABASE, Table, statistics, temporary},
    errors::{self, Result, xa},
    exec::{self, Changed, Info, insert},
    parse::token::Name,
    plan::{Insert, Plan},
    session::{Session, authorize::database_denied, buffers::Scratch, engine::SqlEngine, temporary::spare},
    variables::NO_LIMIT,
    wire::SqlError,
};

/// Database and name of a table, as statements call it.
type Key = (String, String);

/// What became of a definition.
pub(super) enum Defined {
    Done(Changed),
    /// It is, or goes on, about permanent tables.
    Not(Ddl),
}

fn key(session: &Session, name: &Name) -> Result<Key> {
    let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
    Ok((database, name.1.clone()))
}

/// The key of a temporary table of the session, where a statement names one.
fn own_key(session: &Session, name: &Name) -> Option<Key> {
    key(session, name).ok().filter(|(database, name)| session.temporary.find(database, name).is_some())
}

fn unknown<'n>(names: impl Iterator<Item = &'n Key>) -> SqlError {
    let shown: Vec<String> = names.map(|(database, name)| format!("{database}.{name}")).collect();
    errors::drop_unknown_table(&shown.join(","))
}

impl SqlEngine {
    /// Carries a definition out as far as it is about temporary tables.
    pub(super) async fn define_temporary(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Defined> {
        let done = match ddl {
            Ddl::CreateTemporary(made) => {
                session.check_may_define()?;
                if session.branch.is_some() {
                    // It may be prepared, and then outlives the session.
                    return Err(xa::with_temporary_table());
                }
                self.create_temporary(session, s, *made).await?
            }
            Ddl::DropTemporary { names, if_exists } => {
                session.check_may_define()?;
                drop_temporary(session, &names, if_exists)?;
                Changed::default()
            }
            ddl if session.temporary.is_empty() => return Ok(Defined::Not(ddl)),
            Ddl::DropTables { names, if_exists } => return self.drop_own_first(session, names, if_exists).await,
            ddl => {
                let name = match &ddl {
                    Ddl::Truncate(name) | Ddl::RenameTable(name, _) => name,
                    Ddl::AddIndexes { table, .. } => table,
                    Ddl::Alter(clause) => &clause.table,
                    _ => return Ok(Defined::Not(ddl)),
                };
                let Some(key) = own_key(session, name) else { return Ok(Defined::Not(ddl)) };
                self.end_transaction(session, true).await?;
                session.check_may_define()?;
                self.change_own(session, &key, ddl).await?
            }
        };
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        Ok(Defined::Done(done))
    }

    async fn create_temporary(&self, session: &mut Session, s: &mut Scratch, ddl: Ddl) -> Result<Changed> {
        let (name, if_not_exists) = match &ddl {
            Ddl::CreateTable { name, if_not_exists, .. } | Ddl::CreateTableLike { name, if_not_exists, .. } => {
                (key(session, name)?, *if_not_exists)
            }
            Ddl::CreateTableSelect(clause) => (key(session, &clause.name)?, clause.if_not_exists),
            _ => return Err(errors::internal("CREATE TEMPORARY of something else than a table")),
        };
        self.check_may_create(session, &name).await?;
        if session.temporary.find(&name.0, &name.1).is_some() {
            let e = errors::table_exists(&name.1);
            if !if_not_exists {
                return Err(e);
            }
            session.warn("Note", e.errno, e.message);
            return Ok(Changed::default());
        }
        let done = match ddl {
            Ddl::CreateTable { table, foreign_keys, auto_increment, .. } => {
                if !foreign_keys.is_empty() {
                    return Err(errors::cannot_add_foreign_key());
                }
                let made = self.make_own(session, &name, *table, auto_increment).await?;
                session.temporary.put(made);
                Changed::default()
            }
            Ddl::CreateTableLike { like, .. } => {
                let table = self.like(session, &name, key(session, &like)?).await?;
                let made = self.make_own(session, &name, table, None).await?;
                session.temporary.put(made);
                Changed::default()
            }
            Ddl::CreateTableSelect(clause) => self.create_own_select(session, s, &name, &clause).await?,
            _ => return Err(errors::internal("CREATE TEMPORARY of something else than a table")),
        };
        session.temporary.made |= session.has_begun();
        Ok(done)
    }

    async fn check_may_create(&self, session: &mut Session, (database, name): &Key) -> Result<()> {
        if [SYSTEM_DATABASE, temporary::DATABASE].contains(&database.as_str())
            || database == crate::catalog::information_schema::DATABASE
        {
            return Err(database_denied(&session.env, database));
        }
        self.require_on_database(session, database, Privileges::CREATE_TEMPORARY_TABLES).await?;
        create_select::check_table_name(name)?;
        let mut catalog = self.catalog().await?;
        if !catalog.databases.contains_key(database) {
            catalog = self.fetch_catalog().await?;
        }
        match catalog.databases.contains_key(database) {
            true => Ok(()),
            false if catalog.virtual_tables(database).is_some() => Err(database_denied(&session.env, database)),
            false => Err(errors::unknown_database(database)),
        }
    }

    /// The definition of a table like another one, which may be temporary itself.
    async fn like(&self, session: &mut Session, to: &Key, from: Key) -> Result<TableSchema> {
        if *to == from {
            return Err(errors::not_unique_table(&from.1));
        }
        if session.temporary.find(&from.0, &from.1).is_none() {
            self.require_on_table(session, (&from.0, &from.1), Privileges::SELECT).await?;
        }
        let source = self.catalog_with(session, &from.0, &from.1).await?.table(&from.0, &from.1)?;
        let mut table = source.schema.clone();
        (table.database, table.name) = to.clone();
        table.indexes.iter_mut().for_each(|i| i.hidden_table = None);
        (table.foreign_keys, table.held, table.triggers) = Default::default();
        rules::copied(&mut table)?;
        Ok(table)
    }

    /// Makes a table in the dictionary, which the session does not know yet. `first`: the first value of AUTO_INCREMENT.
    async fn make_own(
        &self,
        session: &mut Session,
        (database, name): &Key,
        mut table: TableSchema,
        first: Option<u64>,
    ) -> Result<Rc<Table>> {
        if !table.full_texts.is_empty() {
            return Err(errors::with_full_text());
        }
        table.columns.iter_mut().try_for_each(|column| default_dates::check(&session.env, column))?;
        table.durability = Durability::None;
        let kept_as = self.new_temporary_name(session).await?;
        let shape = spare::shape(&table);
        if let Some(made) = self.take_spare(session, &shape, database, name) {
            self.count_from(&made, first);
            return Ok(made);
        }
        (table.database, table.name) = (temporary::DATABASE.to_owned(), kept_as.clone());
        let create = Change::CreateTable(TableMessage::from(&table));
        let mut done = self.change(create.clone()).await;
        if let Ok(Some(ErrorCode::DatabaseNotFound)) = done {
            // The first one of the cluster; another session may make it, too.
            let database = DatabaseMessage { name: temporary::DATABASE.to_owned(), ..DatabaseMessage::default() };
            self.change(Change::CreateDatabase(database)).await?;
            done = self.change(create).await;
        }
        match done {
            Ok(None) => {}
            Ok(Some(code)) => return Err(errors::from_code(code, name)),
            Err(e) => {
                session.temporary.leave_alone(kept_as);
                return Err(e);
            }
        }
        let found = self.fetch_catalog().await.map(|catalog| catalog.temporary().get(&kept_as).cloned());
        let Ok(Some(found)) = found else {
            session.temporary.leave_alone(kept_as);
            return Err(found.err().unwrap_or_else(|| errors::from_code(ErrorCode::TableNotFound, name)));
        };
        self.count_from(&found, first);
        self.remember_shape(found.schema.id, shape);
        Ok(Rc::new(found.as_own(database, name)))
    }

    /// Nobody else makes values for the columns of an empty table.
    fn count_from(&self, table: &Table, first: Option<u64>) {
        let counting = table.schema.columns.iter().zip(0..).filter(|(column, _)| column.auto_increment);
        counting.for_each(|(_, no)| self.auto_increment.keep_here(&table.schema, no, first.unwrap_or(1)));
    }

    /// CREATE TEMPORARY TABLE ... SELECT: a table that is there with its rows, or not at all. The rows belong to the open transaction.
    async fn create_own_select(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        name: &Key,
        clause: &SelectClause,
    ) -> Result<Changed> {
        let catalog = self.fetch_catalog_of(session).await?;
        let planned = self.plan_measured(&catalog, &session.env, &clause.text, Vec::new(), NO_LIMIT).await?;
        let Plan::Select(select) = planned else {
            return Err(errors::syntax(&clause.text));
        };
        self.authorize(session, &select.names.needs).await?;
        select.names.hints.iter().for_each(|told| {
            session.tell_hints(told);
        });
        let full = TableName { database: name.0.clone(), table: name.1.clone(), version: 0 };
        let table = create_select::defined(&catalog, clause, &select, &full)?;
        let made = self.make_own(session, name, table, clause.auto_increment).await?;
        let plan = create_select::filling(made.clone(), *select, clause.on_duplicate);
        let filled = pin!(self.fill_own(session, s, &plan)).await;
        // As one that was dropped, if not: the transaction may have rows of it.
        session.temporary.put(made);
        if filled.is_err() {
            let waits = session.in_transaction();
            session.temporary.remove(name, waits);
        }
        filled
    }

    async fn fill_own(&self, session: &mut Session, s: &mut Scratch, plan: &Insert) -> Result<Changed> {
        let catalog = self.catalog().await?;
        let reads = session.reads.clone();
        let cluster = self.cluster(&catalog, &reads);
        let (before, inside, had_transaction) =
            (session.savepoint, session.in_transaction(), session.transaction.is_some());
        session.fix_characteristics();
        let sent = if session.own.has_waiting() { exec::send_waiting(session).await } else { Ok(()) };
        let mut done = match sent {
            Ok(()) => pin!(insert::insert(cluster, session, s, plan, &[], 1)).await,
            Err(fail) => Err(fail),
        };
        if done.is_ok() && !session.in_transaction() && session.transaction.is_some() {
            let committed = self.commit(session).await;
            session.forget_transaction();
            done = committed.and(done);
        }
        session.tell_remarks();
        match done {
            Ok(changed) => Ok(changed),
            Err(fail) => Err(self.failed(session, fail, before, inside, had_transaction, true).await.0),
        }
    }

    /// DROP TABLE drops a temporary table before a permanent one of its name.
    async fn drop_own_first(&self, session: &mut Session, names: Vec<Name>, if_exists: bool) -> Result<Defined> {
        let (own, others): (Vec<Name>, Vec<Name>) =
            names.into_iter().partition(|name| own_key(session, name).is_some());
        let rest = Ddl::DropTables { names: others, if_exists };
        let Ddl::DropTables { names: others, .. } = &rest else { return Ok(Defined::Not(rest)) };
        if own.is_empty() {
            return Ok(Defined::Not(rest));
        }
        self.authorize_definition(session, &rest).await?;
        if !if_exists {
            let catalog = self.fetch_catalog().await?;
            let keys = others.iter().map(|name| key(session, name)).collect::<Result<Vec<_>>>()?;
            let mut missing = keys.iter().filter(|(database, name)| catalog.find(database, name).is_none()).peekable();
            if missing.peek().is_some() {
                return Err(unknown(missing));
            }
        }
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        let own: Vec<Key> = own.iter().filter_map(|name| own_key(session, name)).collect();
        own.iter().for_each(|key| session.temporary.remove(key, false));
        Ok(if others.is_empty() { Defined::Done(Changed::default()) } else { Defined::Not(rest) })
    }

    /// TRUNCATE, ALTER TABLE, CREATE INDEX and DROP INDEX of a temporary table.
    async fn change_own(&self, session: &mut Session, key: &Key, ddl: Ddl) -> Result<Changed> {
        if let Ddl::RenameTable(_, to) = &ddl {
            let to = self::key(session, to)?;
            let needed = Privileges::CREATE.union(Privileges::INSERT);
            self.require_on_table(session, (&to.0, &to.1), needed).await?;
            return rename(session, key, &to);
        }
        let found = session.temporary.find(&key.0, &key.1).cloned();
        let Some(found) = found else { return Err(errors::unknown_table(&key.0, &key.1)) };
        let kept_as = found.kept_as.as_deref().unwrap_or_default();
        let name = TableName { database: temporary::DATABASE.to_owned(), table: kept_as.to_owned(), version: 0 };
        let (full, shown) = (format!("{}.{kept_as}", temporary::DATABASE), format!("{}.{}", key.0, key.1));
        let is_emptied = matches!(ddl, Ddl::Truncate(_));
        self.forget_shape(found.schema.id);
        self.fetch_catalog().await?;
        let changed = match ddl {
            Ddl::Truncate(_) => match self.truncate(session, name).await {
                Ok(Some(code)) => Err(errors::from_code(code, &key.1)),
                done => done.map(|_| ()),
            },
            Ddl::AddIndexes { indexes, .. } if indexes.iter().any(|index| index.full_text) => {
                Err(errors::with_full_text())
            }
            Ddl::AddIndexes { table, indexes, drops } => {
                self.change_indexes(session, name, table, indexes, drops).await
            }
            Ddl::Alter(clause) if !clause.foreign_keys.is_empty() => Err(errors::cannot_add_foreign_key()),
            Ddl::Alter(clause) if !clause.full_texts().is_empty() => Err(errors::with_full_text()),
            Ddl::Alter(clause) => self.alter_table(session, name, *clause).await.map(|_| ()),
            _ => Err(errors::internal("another definition of a temporary table")),
        };
        let now = self.learn_own(session, key, kept_as).await;
        let by_its_name =
            |e: SqlError| SqlError { message: e.message.replace(&full, &shown).replace(kept_as, &key.1), ..e };
        changed.map_err(by_its_name)?;
        let now = now?;
        if now.schema.id != found.schema.id {
            self.forget_table(found.schema.id);
        }
        if is_emptied {
            self.count_from(&now, None);
            return Ok(Changed::default());
        }
        // MySQL copies all rows.
        let records = statistics::rows_of(&self.client, &now).await.map_err(|e| errors::from_client(&e))?;
        Ok(Changed { affected: records, info: Info::Inserted { records, duplicates: 0 }, ..Changed::default() })
    }

    /// What has become of a table of the session.
    async fn learn_own(&self, session: &mut Session, key: &Key, kept_as: &str) -> Result<Rc<Table>> {
        let now = self.fetch_catalog().await?.temporary().get(kept_as).cloned();
        let now = now.ok_or_else(|| errors::unknown_table(&key.0, &key.1))?;
        session.temporary.put(Rc::new(now.as_own(&key.0, &key.1)));
        Ok(now)
    }
}

fn drop_temporary(session: &mut Session, names: &[Name], if_exists: bool) -> Result<()> {
    let names = names.iter().map(|name| key(session, name)).collect::<Result<Vec<_>>>()?;
    let (own, others): (Vec<Key>, Vec<Key>) =
        names.into_iter().partition(|(database, name)| session.temporary.find(database, name).is_some());
    if !others.is_empty() {
        let e = unknown(others.iter());
        if !if_exists {
            return Err(e);
        }
        session.warn("Note", e.errno, e.message);
    }
    session.temporary.dropped |= session.has_begun() && !own.is_empty();
    let waits = session.in_transaction();
    own.iter().for_each(|key| session.temporary.remove(key, waits));
    Ok(())
}

/// ALTER TABLE ... RENAME of a temporary table: nobody but the session has to hear of it.
fn rename(session: &mut Session, from: &Key, to: &Key) -> Result<Changed> {
    create_select::check_table_name(&to.1)?;
    if to != from && session.temporary.find(&to.0, &to.1).is_some() {
        return Err(errors::table_exists(&to.1));
    }
    session.temporary.rename(from, (&to.0, &to.1));
    Ok(Changed { info: Info::Inserted { records: 0, duplicates: 0 }, ..Changed::default() })
}

//! LOCK TABLES, UNLOCK TABLES, LOCK INSTANCE and FLUSH: what the statements say. What the locks do: [`crate::session::table_locks`], [`crate::session::read_locks`].
//!
//! Beside the tables that LOCK TABLES names it locks those that views, triggers and foreign keys of them use ([`implied`]).

mod implied;

use crate::{
    accounts::Privileges,
    catalog::Catalog,
    errors::{self, Result},
    parse::token::{Name, Tokens},
    session::{
        Session,
        authorize::database_denied,
        engine::SqlEngine,
        read_locks::Kept,
        table_locks::{LockTables, Locked},
    },
};

/// A table behind LOCK TABLES.
struct Clause {
    name: Name,
    alias: Option<String>,
    writes: bool,
}

impl Clause {
    fn parse(t: &mut Tokens) -> Result<Clause> {
        let name = t.name()?;
        let is_word = |t: &Tokens| ["read", "write", "low_priority"].iter().any(|word| t.peek_word(word));
        let alias = if t.word("as") || !is_word(t) { Some(t.identifier()?) } else { None };
        let writes = !t.word("read");
        if writes {
            t.expect("write")?;
        } else {
            t.word("local");
        }
        Ok(Clause { name, alias, writes })
    }
}

impl SqlEngine {
    /// Behind LOCK.
    pub(crate) async fn lock_tables(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        if t.word("instance") {
            return self.lock_instance(session, t).await;
        }
        if !t.word("tables") && !t.word("table") {
            return Err(t.error());
        }
        let mut clauses = vec![Clause::parse(t)?];
        while t.symbol(',') {
            clauses.push(Clause::parse(t)?);
        }
        t.end()?;
        self.end_transaction(session, true).await?;
        self.end_table_locks(session).await;
        let named = self.locked(session, clauses).await?;
        if named.iter().any(|locked| locked.writes) {
            if session.read_locks.iter().any(|lock| lock.kept == Kept::Everything) {
                return Err(errors::conflicting_read_lock());
            }
            session.check_may_define()?;
        }
        self.lock(session, named).await
    }

    /// What is to be locked, in databases that are there, where the account may.
    async fn locked(&self, session: &mut Session, clauses: Vec<Clause>) -> Result<Vec<Locked>> {
        let mut all: Vec<Locked> = Vec::new();
        for Clause { name: (database, name), alias, writes } in clauses {
            let database = database.or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
            if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
                return Err(database_denied(&session.env, &database));
            }
            if session.temporary.find(&database, &name).is_some() {
                continue; // nobody else has it
            }
            let needed = Privileges::SELECT.union(Privileges::LOCK_TABLES);
            self.require_on_table(session, (&database, &name), needed).await?;
            let catalog = self.catalog_with(session, &database, &name).await?;
            catalog.columns_of(&database, &name)?;
            let is_view = catalog.view(&database, &name).is_some();
            let alias = alias.unwrap_or_else(|| name.clone());
            if all.iter().any(|other| other.database == database && other.alias.eq_ignore_ascii_case(&alias)) {
                return Err(errors::not_unique_table(&alias));
            }
            all.push(Locked { database, name, alias, writes, is_view });
        }
        Ok(all)
    }

    /// Locks tables for a session that has none. What is prepared, and not committed, in one of them is waited for.
    async fn lock(&self, session: &mut Session, named: Vec<Locked>) -> Result<()> {
        loop {
            let catalog = self.catalog().await?;
            let tables = implied::tables(&catalog, &session.env, &named)?;
            self.take_table_locks(session, &tables).await?;
            let now = self.catalog().await?;
            let is_the_same = |now: &Catalog| {
                tables.iter().all(|t| now.find(&t.database, &t.name).is_some_and(|found| found.schema.id == t.id))
            };
            let mut claimed = None;
            for table in tables.iter().filter_map(|t| now.find(&t.database, &t.name)) {
                if self.has_claims(table.schema.id).await? {
                    claimed = Some(table);
                }
            }
            session.locked = Some(Box::new(LockTables { named: named.clone(), tables: tables.clone() }));
            if claimed.is_none() && (now.version == catalog.version || is_the_same(&now)) {
                return Ok(());
            }
            self.end_table_locks(session).await;
            self.wait_for_branches(session, claimed.as_slice()).await?;
            // A table that is gone is told of.
            let catalog = self.catalog().await?;
            named.iter().try_for_each(|l| catalog.columns_of(&l.database, &l.name).map(|_| ()))?;
        }
    }

    /// Behind UNLOCK. Without locks it does nothing, and a transaction that is open goes on.
    pub(crate) async fn unlock_tables(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        if t.word("instance") {
            t.end()?;
            self.require_for_backup(session).await?;
            return self.end_read_locks(session, |lock| lock.kept == Kept::Definitions).await;
        }
        if !t.word("tables") && !t.word("table") {
            return Err(t.error());
        }
        t.end()?;
        if session.locked.is_some() {
            self.end_transaction(session, true).await?;
            self.end_table_locks(session).await;
        }
        self.end_read_locks(session, |lock| lock.kept != Kept::Definitions).await
    }

    /// Behind LOCK INSTANCE: nobody else defines anything.
    async fn lock_instance(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        t.expect("for")?;
        t.expect("backup")?;
        t.end()?;
        self.require_for_backup(session).await?;
        if session.read_locks.iter().any(|lock| lock.kept == Kept::Definitions) {
            return Ok(());
        }
        self.take_read_lock(session, Kept::Definitions).await
    }

    async fn require_for_backup(&self, session: &mut Session) -> Result<()> {
        self.require(session, Privileges::RELOAD, "BACKUP_ADMIN").await
    }

    /// FLUSH TABLES, and what is said behind it.
    ///
    /// # Errors
    /// 1192: LOCK TABLES has tables. 1044, 1142, 1146, 1347: of the tables that are named.
    pub(crate) async fn flush_tables(&self, session: &mut Session, tables: &FlushedTables) -> Result<()> {
        session.check_no_locked_tables()?;
        if tables.names.is_empty() {
            self.end_transaction(session, true).await?;
            let has = session.read_locks.iter().any(|lock| lock.kept == Kept::Everything);
            if !tables.locks || has {
                return Ok(());
            }
            return self.take_read_lock(session, Kept::Everything).await;
        }
        let clauses = tables.names.iter().map(|name| Clause { name: name.clone(), alias: None, writes: false });
        if !tables.locks {
            if tables.names.iter().any(|(database, _)| database.is_none()) && session.env.database.is_none() {
                return Err(errors::no_database());
            }
            return self.end_transaction(session, true).await;
        }
        let named = self.locked(session, clauses.collect()).await?;
        if let Some(view) = named.iter().find(|locked| locked.is_view) {
            return Err(errors::wrong_object(&view.database, &view.name, "BASE TABLE"));
        }
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.lock(session, named).await
    }
}

/// What FLUSH names of what means something.
#[derive(Default)]
pub(crate) struct Flushed {
    pub tables: Option<FlushedTables>,
    pub privileges: bool,
    pub user_resources: bool,
}

/// Behind FLUSH TABLES.
#[derive(Default)]
pub(crate) struct FlushedTables {
    names: Vec<(Option<String>, String)>,
    /// WITH READ LOCK or FOR EXPORT.
    locks: bool,
}

/// Behind FLUSH: but for what accounts have used there is nothing that it could write or forget.
pub(crate) fn flush(t: &mut Tokens) -> Result<Flushed> {
    let _ = t.word("no_write_to_binlog") || t.word("local");
    let mut flushed = Flushed::default();
    if t.word("table") || t.word("tables") {
        flushed.tables = Some(flush_tables(t)?);
        return Ok(flushed);
    }
    loop {
        let of_logs = ["binary", "engine", "error", "general", "relay", "slow"].iter().any(|kind| t.word(kind));
        let alone = ["logs", "hosts", "optimizer_costs", "status"];
        if of_logs {
            t.expect("logs")?;
        } else if t.word("privileges") {
            flushed.privileges = true;
        } else if t.word("user_resources") {
            flushed.user_resources = true;
        } else if !alone.iter().any(|what| t.word(what)) {
            return Err(t.error());
        }
        if !t.symbol(',') {
            return t.end().map(|()| flushed);
        }
    }
}

fn flush_tables(t: &mut Tokens) -> Result<FlushedTables> {
    let mut flushed = FlushedTables::default();
    if !t.at_end() && !t.peek_word("with") {
        flushed.names.push(t.name()?);
        while t.symbol(',') {
            flushed.names.push(t.name()?);
        }
    }
    if t.word("with") {
        t.expect("read")?;
        t.expect("lock")?;
        flushed.locks = true;
    } else if !flushed.names.is_empty() && t.word("for") {
        t.expect("export")?;
        flushed.locks = true;
    }
    t.end()?;
    Ok(flushed)
}

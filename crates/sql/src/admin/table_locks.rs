//! LOCK TABLES, UNLOCK TABLES, LOCK INSTANCE and FLUSH: what they promise here, and what is refused.
//!
//! `LOCK TABLES ... READ [LOCAL]` promises that the tables do not change for this session. A read-only transaction at a snapshot of all tables gives that
//! and keeps nobody from writing; whoever dumps tables asks for no more. It ends with UNLOCK TABLES or with the transaction.
//!
//! `LOCK TABLES ... WRITE` promises that nobody else reads or writes. Nothing here does that. Every dump has it before its rows, where it only makes
//! InnoDB faster, so it is taken with a warning. `FLUSH TABLES WITH READ LOCK` and its kin promise to several sessions at once that nobody writes, or defines: [`crate::session::read_locks`]. Of some tables it is LOCK TABLES ... READ as well.

use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::token::Tokens,
    session::{Session, engine::SqlEngine, read_locks::Kept},
};

impl SqlEngine {
    /// Behind LOCK.
    pub(crate) async fn lock_tables(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        if t.word("instance") {
            return self.lock_instance(session, t).await;
        }
        if !t.word("tables") && !t.word("table") {
            return Err(t.error());
        }
        let catalog = self.catalog().await?;
        let (mut reads, mut writes) = (false, false);
        loop {
            let (database, name) = t.name()?;
            let database = database.or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
            self.require_on_table(session, (&database, &name), Privileges::SELECT.union(Privileges::LOCK_TABLES))
                .await?;
            catalog.columns_of(&database, &name)?;
            let is_kind = |t: &Tokens| ["read", "write", "low_priority"].iter().any(|word| t.peek_word(word));
            if t.word("as") || !is_kind(t) {
                t.identifier()?;
            }
            if t.word("read") {
                t.word("local");
                reads = true;
            } else {
                t.word("low_priority");
                t.expect("write")?;
                writes = true;
            }
            if !t.symbol(',') {
                break;
            }
        }
        t.end()?;
        if reads && writes {
            return Err(errors::not_supported("LOCK TABLES of some tables to read and others to write"));
        }
        self.end_transaction(session, true).await?;
        if writes {
            if session.read_locks.iter().any(|lock| lock.kept == Kept::Everything) {
                return Err(errors::conflicting_read_lock());
            }
            session.check_may_define()?;
            let warning = "LOCK TABLES ... WRITE keeps no other session away; lock rows with SELECT ... FOR UPDATE in a transaction";
            session.warn("Warning", 1235, warning);
            return Ok(());
        }
        self.begin(session, Some(true)).await?;
        self.begin_at_snapshot(session).await?;
        session.locks_tables = true;
        Ok(())
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
        if session.locks_tables {
            self.end_transaction(session, true).await?;
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
        if session.locks_tables {
            return Err(errors::locked_tables());
        }
        if tables.names.is_empty() {
            self.end_transaction(session, true).await?;
            let has = session.read_locks.iter().any(|lock| lock.kept == Kept::Everything);
            if !tables.locks || has {
                return Ok(());
            }
            return self.take_read_lock(session, Kept::Everything).await;
        }
        let catalog = self.fetch_catalog().await?;
        let mut names = Vec::new();
        for (database, name) in &tables.names {
            let database = database.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
            if tables.locks {
                let needed = Privileges::SELECT.union(Privileges::LOCK_TABLES);
                self.require_on_table(session, (&database, name), needed).await?;
                catalog.columns_of(&database, name)?;
                if catalog.view(&database, name).is_some() {
                    return Err(errors::wrong_object(&database, name, "BASE TABLE"));
                }
            }
            names.push((database, name.clone()));
        }
        self.end_transaction(session, true).await?;
        if !tables.locks {
            return Ok(());
        }
        session.check_may_define()?;
        self.begin(session, Some(true)).await?;
        let taken = match self.take_read_lock(session, Kept::Tables(names)).await {
            Ok(()) => self.begin_at_snapshot(session).await,
            refused => refused,
        };
        session.locks_tables = taken.is_ok();
        if taken.is_err() {
            self.end_transaction(session, false).await?;
        }
        taken
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

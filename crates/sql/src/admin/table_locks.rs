//! LOCK TABLES, UNLOCK TABLES and FLUSH: what they promise here, and what is refused.
//!
//! `LOCK TABLES ... READ [LOCAL]` promises that the tables do not change for this session. A read-only transaction at a snapshot of all tables gives that
//! and keeps nobody from writing; whoever dumps tables asks for no more. It ends with UNLOCK TABLES or with the transaction.
//!
//! `LOCK TABLES ... WRITE` promises that nobody else reads or writes. Nothing here does that. Every dump has it before its rows, where it only makes
//! InnoDB faster, so it is taken with a warning. `FLUSH TABLES WITH READ LOCK` promises to several sessions at once that nobody writes, and a backup tool
//! that believes it writes down rows of different times: refused.

use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::token::Tokens,
    session::{Session, engine::SqlEngine},
};

impl SqlEngine {
    /// Behind LOCK.
    pub(crate) async fn lock_tables(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        if !t.word("tables") && !t.word("table") {
            return Err(errors::not_supported("LOCK INSTANCE"));
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
        if !t.word("tables") && !t.word("table") {
            return Err(errors::not_supported("UNLOCK INSTANCE"));
        }
        t.end()?;
        if session.locks_tables { self.end_transaction(session, true).await } else { Ok(()) }
    }
}

/// What FLUSH names of what means something.
#[derive(Default)]
pub(crate) struct Flushed {
    pub tables: bool,
    pub privileges: bool,
    pub user_resources: bool,
}

/// Behind FLUSH: but for what accounts have used there is nothing that it could write or forget, and nothing that keeps others from writing.
pub(crate) fn flush(t: &mut Tokens) -> Result<Flushed> {
    let _ = t.word("no_write_to_binlog") || t.word("local");
    let mut flushed = Flushed::default();
    if t.word("table") || t.word("tables") {
        flushed.tables = true;
        return flush_tables(t).map(|()| flushed);
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

fn flush_tables(t: &mut Tokens) -> Result<()> {
    if !t.at_end() && !t.peek_word("with") {
        t.name()?;
        while t.symbol(',') {
            t.name()?;
        }
    }
    if t.word("with") || t.word("for") {
        return Err(errors::not_supported(
            "FLUSH TABLES WITH READ LOCK; START TRANSACTION WITH CONSISTENT SNAPSHOT reads all tables as of one moment",
        ));
    }
    t.end()
}

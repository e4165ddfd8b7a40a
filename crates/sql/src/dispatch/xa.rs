//! XA: branches of distributed transactions.
//!
//! ```text
//! (none) --START--> ACTIVE --END--> IDLE --PREPARE--> (none; the branch is prepared, and of no session)
//!                     ^--START RESUME-'  '--COMMIT ONE PHASE, ROLLBACK--> (none)
//! ```
//!
//! Until XA PREPARE a branch is the open transaction of its session, and ends with it. What is prepared is rows of the cluster (`apus_client`'s module `branch`, decision 0045): any session of any
//! SQL node ends it by its name, after whatever has died. As in MySQL with `xa_detach_on_prepare`, the session that has prepared it is free for something else.
//!
//! Names of branches that are not prepared are told apart within a SQL node ([`crate::variables::branch_names`]). Of two SQL nodes that begin a branch of one name the second to prepare it is refused (1440).
//!
//! A transaction that the cluster ends, for a deadlock or with a data node, leaves its branch *lost*: nothing can be done in it, and XA END says how it was lost. Then there is only XA ROLLBACK.

use std::{collections::BTreeSet, rc::Rc};

use apus_client::{BranchEnd, ClientError};
use apus_types::{ErrorClass, ErrorCode, TableId};

use crate::{
    accounts::Privileges,
    admin::show::heading::{Told, def_of},
    ddl::branches::{branch_tables, is_as_before},
    errors::{self, Result, xa},
    exec,
    parse::{token::Tokens, xa::Clause, xid::Xid},
    server::Output,
    session::{
        Fail, Session,
        branch::{Branch, State},
        engine::SqlEngine,
        ok,
        read_locks::Kept,
    },
    variables::branch_names::Taken,
};

impl SqlEngine {
    /// Behind the word XA.
    pub(crate) async fn xa(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        let clause = Clause::parse(t)?;
        if session.within > 0 {
            return Err(match clause {
                Clause::Start(..) => xa::outside(),
                _ => xa::wrong_state(session.branch_state()),
            });
        }
        match clause {
            Clause::Start(xid, option) => self.xa_start(session, &xid, option).await?,
            Clause::End(xid, suspends) => xa_end(session, &xid, suspends)?,
            Clause::Prepare(xid) => self.xa_prepare(session, &xid).await?,
            Clause::Commit(xid, is_one_phase) => self.xa_commit(session, &xid, is_one_phase).await?,
            Clause::Rollback(xid) => self.xa_rollback(session, &xid).await?,
            Clause::Recover(converted) => return self.xa_recover(session, converted, out).await,
        }
        ok(session, out)
    }

    async fn xa_start(&self, session: &mut Session, xid: &Xid, option: Option<bool>) -> Result<()> {
        if option == Some(false)
            && let Some(branch) = session.branch.as_mut().filter(|branch| branch.state == State::Idle)
        {
            if branch.taken.xid() != xid {
                return Err(xa::unknown());
            }
            branch.state = State::Active;
            return Ok(());
        }
        if option.is_some() {
            return Err(xa::invalid());
        }
        session.check_no_branch()?;
        if session.has_begun() || session.locked.is_some() {
            return Err(xa::outside());
        }
        let taken = Taken::new(&self.globals.branches, xid).ok_or_else(xa::duplicate)?;
        if let Some(tables) = branch_tables(&*self.catalog().await?)
            && self.client.has_branch(&xid.encode(), &tables).await.map_err(|e| errors::from_client(&e))?
        {
            return Err(xa::duplicate());
        }
        self.begin(session, None).await?;
        session.branch = Some(Branch { taken, state: State::Active, lost: None });
        Ok(())
    }

    async fn xa_prepare(&self, session: &mut Session, xid: &Xid) -> Result<()> {
        match &session.branch {
            Some(branch) if branch.state == State::Idle && branch.taken.xid() == xid => {}
            Some(branch) if branch.state == State::Idle => return Err(xa::unknown()),
            _ => return Err(xa::wrong_state(session.branch_state())),
        }
        if !session.wrote.is_empty() && self.may_be_read_locked() {
            // Who is refused may try again.
            Box::pin(self.wait_to_commit(session)).await?;
        }
        let done = Box::pin(self.prepare_branch(session, xid)).await;
        // Detached, or rolled back.
        session.branch = None;
        session.forget_transaction();
        session.forget_next();
        done.map_err(|fail| match fail {
            Fail::Client(e) if e.code == ErrorCode::DuplicateKey => xa::duplicate(),
            Fail::Client(e) if e.class() == ErrorClass::UnknownOutcome => errors::from_client(&e),
            fail => xa::not_prepared(&fail.into()),
        })
    }

    async fn prepare_branch(&self, session: &mut Session, xid: &Xid) -> std::result::Result<(), Fail> {
        if session.own.has_waiting() {
            exec::send_waiting(session).await?;
        }
        self.look_before_end(session).await?;
        let tables = self.branch_tables().await?;
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
        let before = self.catalog().await?;
        let savepoint = session.savepoint + 1;
        let mut transaction = session.transaction.take().unwrap_or_else(|| self.client.begin());
        let is_still_so = async |touched: &BTreeSet<TableId>| {
            let now =
                self.read_catalog().await.map_err(|e| ClientError::with_detail(ErrorCode::Internal, e.message))?;
            let moved = touched.iter().find(|table| !is_as_before(&before, &now, **table));
            match moved {
                Some(_) => Err(ClientError::new(ErrorCode::SchemaVersionChanged)),
                None => Ok(()),
            }
        };
        let number = u64::from_le_bytes(random);
        transaction.prepare(&xid.encode(), number, savepoint, &tables, is_still_so).await?;
        Ok(())
    }

    async fn xa_commit(&self, session: &mut Session, xid: &Xid, is_one_phase: bool) -> Result<()> {
        let Some(branch) = session.branch_named(xid) else {
            return self.end_detached(session, xid, BranchEnd::Commit).await;
        };
        if let Some(lost) = branch.lost {
            return self.end_own(session, false).await.and(Err(lost.error()));
        }
        match (branch.state, is_one_phase) {
            (State::Idle, true) => self.end_own(session, true).await,
            (state, _) => Err(xa::wrong_state(state.name())),
        }
    }

    async fn xa_rollback(&self, session: &mut Session, xid: &Xid) -> Result<()> {
        match session.branch_named(xid).map(|branch| branch.state) {
            None => self.end_detached(session, xid, BranchEnd::Rollback).await,
            Some(State::Active) => Err(xa::wrong_state(State::Active.name())),
            Some(State::Idle | State::RollbackOnly) => self.end_own(session, false).await,
        }
    }

    /// The branch of the session ends.
    async fn end_own(&self, session: &mut Session, commit: bool) -> Result<()> {
        let branch = session.branch.take();
        let done = self.end_transaction(session, commit).await;
        drop(branch);
        session.forget_next();
        done
    }

    /// A branch that was prepared ends, whoever has prepared it.
    async fn end_detached(&self, session: &mut Session, xid: &Xid, end: BranchEnd) -> Result<()> {
        if session.branch.is_some() || session.has_begun() {
            return Err(xa::wrong_state(session.branch_state()));
        }
        if end == BranchEnd::Commit && self.may_be_read_locked() {
            Box::pin(self.wait_for_read_locks(session, |kept| *kept != Kept::Definitions)).await?;
        }
        // As it is now: a table that is not in it is dropped.
        let catalog = self.fetch_catalog().await?;
        let Some(tables) = branch_tables(&catalog) else { return Err(xa::unknown()) };
        let schema_of = |id: TableId| {
            let table = catalog.tables().find(|table| table.schema.id == id);
            table.map(|table| Rc::new(table.schema.clone()))
        };
        let wait_ms = session.env.variables.lock_wait_ms;
        let ended = Box::pin(self.client.end_branch(&xid.encode(), end, &tables, schema_of, wait_ms)).await;
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(xa::unknown()),
            Err(e) => Err(errors::from_client(&e)),
        }
    }

    async fn xa_recover(&self, session: &mut Session, converted: bool, out: &mut Output<'_>) -> Result<()> {
        let is_allowed = self.require(session, Privileges::XA_RECOVER_ADMIN, "XA_RECOVER_ADMIN").await;
        is_allowed.map_err(|e| if e.errno == 1227 { xa::not_shown() } else { e })?;
        let names = match branch_tables(&*self.fetch_catalog().await?) {
            Some(tables) => self.client.branches(&tables).await.map_err(|e| errors::from_client(&e))?,
            None => Vec::new(),
        };
        let number = |name| def_of(Told::BigInt, name);
        let heading = [number("formatID"), number("gtrid_length"), number("bqual_length"), def_of(Told::Text, "data")];
        out.begin_rows(&heading);
        let xids: Vec<Xid> = names.iter().filter_map(|name| Xid::decode(name)).collect();
        for xid in &xids {
            out.row_start();
            out.int(xid.format as i64);
            out.int(xid.gtrid.len() as i64);
            out.int(xid.bqual.len() as i64);
            out.bytes(&xid.shown(converted));
            out.row_end();
        }
        (session.env.row_count, session.env.found_rows) = (-1, xids.len() as u64);
        out.end_rows(session.warning_count(), session.status());
        Ok(())
    }
}

fn xa_end(session: &mut Session, xid: &Xid, suspends: bool) -> Result<()> {
    if suspends {
        return Err(xa::invalid());
    }
    let state = session.branch_state();
    let Some(branch) = session.branch.as_mut().filter(|branch| branch.state == State::Active) else {
        return Err(xa::wrong_state(state));
    };
    if branch.taken.xid() != xid {
        return Err(xa::unknown());
    }
    match branch.lost {
        Some(lost) => {
            branch.state = State::RollbackOnly;
            Err(lost.error())
        }
        None => {
            branch.state = State::Idle;
            Ok(())
        }
    }
}

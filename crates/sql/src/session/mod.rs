//! A session: its transaction, variables, warnings, prepared statements and reusable buffers.

pub(crate) mod account_limits;
pub(crate) mod account_store;
pub(crate) mod authorize;
pub mod branch;
pub mod buffers;
pub(crate) mod characteristics;
pub mod engine;
pub mod locked_rows;
pub(crate) mod parameters;
pub mod peers;
pub mod prepared;
pub(crate) mod read_locks;
pub mod serializable_reads;
pub(crate) mod system_rows;
pub mod table_locks;
pub mod temporary;
pub(crate) mod tracking;
pub mod user_lock;
pub mod warnings;

use std::{collections::BTreeMap, rc::Rc};

use apus_client::{ClientError, Snapshot, Transaction};
use apus_types::{Epoch, TableId};

use self::{
    account_limits::Watch,
    branch::{Branch, Lost},
    buffers::Scratch,
    locked_rows::OwnRows,
    prepared::Prepared,
    read_locks::ReadLock,
    serializable_reads::Reads,
    table_locks::{LockTables, Uses},
    temporary::TemporaryTables,
    user_lock::Held,
    warnings::{Signalled, Warning},
};
use crate::{
    catalog::Catalog,
    errors::{self, Result},
    expr::env::{Env, OfStatement},
    monitor::digests::Place,
    plan::{Plan, hint::Hinted},
    program::{
        routine::{Kind, Routine, failures},
        trigger::{self, Trigger},
    },
    server::Output,
    value::datum::Datum,
    variables::isolation::Isolation,
    wire::SqlError,
};

pub struct Session {
    pub env: Env,
    pub transaction: Option<Transaction>,
    /// BEGIN was given.
    pub explicit: bool,
    /// Of the open transaction, from its beginning on.
    pub read_only: Option<bool>,
    /// LOCK TABLES was given.
    pub locked: Option<Box<LockTables>>,
    /// The tables that it uses.
    pub uses: Uses,
    /// The normal form by which the statement under way is counted.
    pub digest: Option<Place>,
    /// The key of that form.
    pub form: u64,
    pub is_failed: bool,
    /// How the plans read that the statement has run.
    pub traits: u8,
    /// The statement under way has hints.
    pub hinted: Option<Box<Hinted>>,
    /// A statement with hints was prepared.
    pub has_hinted: bool,
    /// Of the open transaction, from its first statement on.
    pub isolation: Option<Isolation>,
    /// SET TRANSACTION without a scope: of the next transaction.
    pub next_isolation: Option<Isolation>,
    pub next_read_only: Option<bool>,
    /// Taken by the first plain SELECT of a REPEATABLE READ transaction.
    pub snapshot: Option<Snapshot>,
    /// What a SERIALIZABLE transaction has read.
    pub reads: Rc<Reads>,
    /// The tables that there were when the snapshot was taken.
    pub tables_known: Option<Rc<Catalog>>,
    /// Tables that the transaction wrote: their reads must see it.
    pub wrote: Vec<TableId>,
    /// Tables of its statements that change or lock rows.
    pub worked: Vec<TableId>,
    /// What it has locked, and changes that are not sent yet.
    pub own: OwnRows,
    /// Number of the last statement (or step of one) of the transaction.
    pub savepoint: u32,
    pub named: Vec<(String, u32)>,
    pub warnings: Vec<Warning>,
    /// Warnings of the statement beyond [`WARNINGS_MAX`](crate::errors::WARNINGS_MAX), which are counted only.
    pub unlisted_warnings: u64,
    /// The warnings are those of the command under way, not of one before.
    pub has_own_warnings: bool,
    pub prepared: BTreeMap<u32, Prepared>,
    /// Of PREPARE, by their lower case names; at most [`crate::dispatch::prepare::NAMED_MAX`].
    pub named_statements: BTreeMap<String, u32>,
    pub next_statement: u32,
    pub multi_statements: bool,
    /// Affected rows of UPDATE are the matched ones.
    pub found_rows: bool,
    /// `None`: nobody looks at its statements.
    pub watch: Option<Box<Watch>>,
    pub info: crate::server::ConnectionInfo,
    pub compression: crate::wire::compressed::Compression,
    pub changes: self::tracking::Changes,
    /// Taken out while a statement uses it; in a box, because it is moved there and back with each.
    pub scratch: Option<Box<Scratch>>,
    /// For SHOW STATUS.
    pub counts: crate::monitor::status::Counts,
    /// User locks.
    pub held: Held,
    pub temporary: TemporaryTables,
    /// Each has a user lock of its name.
    pub read_locks: Vec<ReadLock>,
    /// The branch that the open transaction is.
    pub branch: Option<Branch>,
    /// Routines and triggers under way, the innermost last.
    pub calls: Vec<Called>,
    /// Statements that run something within them: triggers, functions.
    pub within: u32,
    /// What the statements around change, or also read: nothing within may change it.
    pub in_use: Vec<TableId>,
    /// What the statements around change row after row: no function may read it.
    pub in_change: Vec<TableId>,
    /// The statement calls functions: its transaction ends with it, and what they have done began behind this number.
    pub calls_own: bool,
    pub calls_from: Option<u32>,
    /// The statement is a SERIALIZABLE transaction of its own.
    pub is_own_transaction: bool,
    /// What ended the transaction of the statement around from within.
    pub lost_within: Option<ClientError>,
    /// EXECUTE ... USING is under way: what a CALL gives out in place of its parameters, by their numbers.
    pub given_out: Option<Vec<(usize, Datum<'static>)>>,
    /// The last one, until somebody handles it.
    pub signalled: Option<Signalled>,
    /// Rows of the last query whose rows were for the session.
    pub collected: Vec<Vec<Datum<'static>>>,
}

/// What is of the statement around while something runs within it.
pub struct Aside {
    warnings: Vec<Warning>,
    unlisted_warnings: u64,
    has_own_warnings: bool,
    calls_own: bool,
    calls_from: Option<u32>,
    /// Savepoints within are a level of their own.
    named: Vec<(String, u32)>,
    statement: OfStatement,
}

impl Session {
    /// Something runs within the statement.
    pub fn step_aside(&mut self) -> Aside {
        self.within += 1;
        Aside {
            warnings: std::mem::take(&mut self.warnings),
            unlisted_warnings: std::mem::take(&mut self.unlisted_warnings),
            has_own_warnings: std::mem::take(&mut self.has_own_warnings),
            calls_own: std::mem::take(&mut self.calls_own),
            calls_from: self.calls_from.take(),
            named: std::mem::take(&mut self.named),
            statement: self.env.step_aside(),
        }
    }
    /// It has ended.
    pub fn step_back(&mut self, aside: Aside) {
        self.within -= 1;
        self.warnings = aside.warnings;
        self.unlisted_warnings = aside.unlisted_warnings;
        self.has_own_warnings = aside.has_own_warnings;
        (self.calls_own, self.calls_from) = (aside.calls_own, aside.calls_from);
        self.named = aside.named;
        self.env.step_back(aside.statement);
    }
    /// What the innermost of those is, for errors.
    pub fn within_what(&self) -> &'static str {
        let what = |called: &Called| match called {
            Called::Trigger(_) => Some("trigger"),
            Called::Routine(routine) => (routine.definition.kind == Kind::Function).then_some("function"),
        };
        self.calls.iter().rev().find_map(what).unwrap_or("function")
    }
}

/// Something with a body that is under way.
pub enum Called {
    Routine(Rc<Routine>),
    Trigger(Rc<Trigger>),
}

impl Called {
    pub fn is(&self, routine: &Rc<Routine>) -> bool {
        matches!(self, Called::Routine(other) if Rc::ptr_eq(other, routine))
    }
    pub fn is_trigger(&self, trigger: &Rc<Trigger>) -> bool {
        matches!(self, Called::Trigger(other) if Rc::ptr_eq(other, trigger))
    }
}

impl Session {
    /// Whether statements belong to a transaction that someone else ends.
    pub fn in_transaction(&self) -> bool {
        self.explicit
            || !self.env.variables.autocommit
            || self.within > 0
            || self.calls_own
            || self.is_own_transaction
            || self.branch.is_some()
    }
    /// What plain SELECTs read at: a snapshot in REPEATABLE READ and SERIALIZABLE transactions, otherwise (0) the latest committed rows.
    ///
    /// # Errors
    /// The cluster has no snapshot to give.
    pub async fn reading_at(&mut self, client: &apus_client::Client) -> Done<Epoch> {
        if self.isolation.unwrap_or_default() < Isolation::RepeatableRead {
            return Ok(Epoch(0));
        }
        if self.snapshot.is_none() {
            self.snapshot = Some(client.snapshot().await?);
        }
        Ok(self.snapshot.as_ref().map_or(Epoch(0), Snapshot::epoch))
    }
    pub fn status(&self) -> u16 {
        use crate::wire::status;
        let active = self.explicit || self.branch.is_some() || self.transaction.is_some() && !self.calls_own;
        u16::from(active) * status::IN_TRANS + u16::from(self.env.variables.autocommit) * status::AUTOCOMMIT
    }
    /// The transaction is gone, by its end or by the cluster.
    pub fn forget_transaction(&mut self) {
        self.transaction = None;
        if let Some(branch) = &mut self.branch {
            branch.lose(Lost::Otherwise);
        }
        self.explicit = false;
        self.read_only = None;
        self.uses.end_transaction();
        self.isolation = None;
        self.snapshot = None;
        self.reads.clear();
        self.tables_known = None;
        self.wrote.clear();
        self.worked.clear();
        self.own.clear();
        self.named.clear();
        self.savepoint = 0;
        self.temporary.end_transaction();
    }
    /// The statement under way is run again.
    pub fn begin_again(&mut self) {
        self.env.forget_assigned();
        self.env.forget_notes();
        self.env.sleep_seconds.set(0.0);
        self.own.begin_statement();
    }
    /// A statement alone is over, and what it read at.
    pub fn forget_reading(&mut self) {
        self.isolation = None;
        self.read_only = None;
        self.snapshot = None;
        self.reads.clear();
        self.tables_known = None;
    }
    /// A plan is run: while triggers run within it, nobody changes its tables. How many were in use before.
    ///
    /// # Errors
    /// 1442: it changes what a statement around uses.
    pub fn use_tables(&mut self, plan: &Plan) -> std::result::Result<usize, SqlError> {
        let before = self.in_use.len();
        if plan.written().any(|table| table.triggers().is_none() && !table.schema.triggers.is_empty()) {
            return Err(trigger::failures::unreadable());
        }
        if let Some(table) = plan.written().find(|table| self.in_use.contains(&table.schema.id)) {
            return Err(failures::in_use(&table.schema.name));
        }
        if let Some(table) = plan.tables().find(|table| self.in_change.contains(&table.schema.id)) {
            let what = format!(
                "a stored function that reads '{}', whose rows the statement changes one after the other",
                table.schema.name
            );
            return Err(errors::not_supported(&what));
        }
        if plan.written().any(|table| table.triggers().is_some()) {
            self.in_use.extend(plan.tables().map(|table| table.schema.id));
        }
        Ok(before)
    }
    /// A statement that changes or locks rows begins within a transaction.
    pub fn remember_work(&mut self, plan: &Plan) {
        for table in plan.tables() {
            if !self.worked.contains(&table.schema.id) {
                self.worked.push(table.schema.id);
            }
        }
    }
    pub fn remember_write(&mut self, table: TableId) {
        if !self.wrote.contains(&table) {
            self.wrote.push(table);
            if !self.worked.contains(&table) {
                self.worked.push(table);
            }
        }
    }
}

/// Why an execution stopped: the cluster's errors are kept as they are until it is decided whether to try again.
#[derive(Debug)]
pub enum Fail {
    Sql(SqlError),
    Client(ClientError),
}

impl From<SqlError> for Fail {
    fn from(e: SqlError) -> Fail {
        Fail::Sql(e)
    }
}
impl From<ClientError> for Fail {
    fn from(e: ClientError) -> Fail {
        Fail::Client(e)
    }
}
impl From<apus_types::ErrorCode> for Fail {
    fn from(e: apus_types::ErrorCode) -> Fail {
        Fail::Client(e.into())
    }
}

impl From<Fail> for SqlError {
    fn from(fail: Fail) -> SqlError {
        match fail {
            Fail::Sql(e) => e,
            Fail::Client(e) => crate::errors::from_client(&e),
        }
    }
}

pub type Done<T> = std::result::Result<T, Fail>;

impl Session {
    /// The open transaction wrote this table.
    pub fn remember(&mut self, table: &apus_types::TableSchema) {
        self.own.forget_table(table.id);
        if self.transaction.is_some() {
            self.remember_write(table.id);
        }
    }
}

pub(crate) fn ok(session: &mut Session, out: &mut Output<'_>) -> Result<()> {
    ok_with(session, out, "")
}

pub(crate) fn ok_with(session: &mut Session, out: &mut Output<'_>, info: &str) -> Result<()> {
    session.env.row_count = 0;
    out.set_status(session.status());
    session.tell_changes(out);
    out.ok(0, 0, session.warning_count(), info);
    Ok(())
}

/// Undoes everything from a number on.
///
/// # Errors
/// `aborted`: the whole transaction is rolled back.
pub async fn rollback_to(session: &mut Session, savepoint: u32) -> std::result::Result<(), ClientError> {
    let Some(transaction) = session.transaction.as_mut() else { return Ok(()) };
    transaction.rollback_to(savepoint).await?;
    session.own.rolled_back_to(savepoint);
    Ok(())
}

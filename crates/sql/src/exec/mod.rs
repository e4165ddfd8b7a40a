//! Execution of plans over the native client.
//!
//! Reads go past the coordinator unless the transaction wrote the table. Writes of a statement carry its savepoint number: a
//! refused batch leaves nothing of the statement behind. A statement outside of a transaction is one: a single batch where
//! possible, otherwise a transaction that this module commits.

pub mod aggregate;
pub mod change;
pub mod change_joined;
pub mod conflict;
pub mod foreign_key;
pub mod insert;
mod insert_batch;
pub mod into;
pub(crate) mod load;
pub mod lock;
pub mod locked_rows;
pub mod new_row;
pub mod query;
pub mod read;
pub mod rules;
pub mod serializable;
pub mod sink;
pub mod target;
pub mod triggered;
mod window;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results, Transaction};
use apus_types::{TableSchema, TransId};

use crate::{
    catalog::{Catalog, Table, auto_increment::AutoIncrement},
    errors,
    program::function::calls::unanswered,
    session::{Done, Fail, Session, engine::SqlEngine, serializable_reads::Reads},
};

/// What executing needs besides the session.
#[derive(Clone, Copy)]
pub struct Cluster<'c> {
    /// Runs what runs within a statement.
    pub engine: &'c SqlEngine,
    pub client: &'c Client,
    pub catalog: &'c Catalog,
    pub auto_increment: &'c AutoIncrement,
    /// Of the session, if it is in a SERIALIZABLE transaction.
    pub reads: &'c Reads,
}

impl SqlEngine {
    /// What a statement is executed with.
    pub(crate) fn cluster<'c>(&'c self, catalog: &'c Catalog, reads: &'c Reads) -> Cluster<'c> {
        Cluster { engine: self, client: &self.client, catalog, auto_increment: &self.auto_increment, reads }
    }
}

/// Outcome of a statement without rows.
#[derive(Default, Debug)]
pub struct Changed {
    pub affected: u64,
    pub last_insert_id: u64,
    pub info: Info,
}

/// What the text of an OK packet says.
#[derive(Clone, Copy, Default, Debug)]
pub enum Info {
    #[default]
    None,
    Updated {
        matched: u64,
        changed: u64,
    },
    Inserted {
        records: u64,
        duplicates: u64,
    },
    Loaded {
        records: u64,
        deleted: u64,
        skipped: u64,
    },
}

impl Info {
    pub fn write(self, warnings: u64, out: &mut String) {
        use std::fmt::Write;
        out.clear();
        let _ = match self {
            Info::None => Ok(()),
            Info::Updated { matched, changed } => {
                write!(out, "Rows matched: {matched}  Changed: {changed}  Warnings: {warnings}")
            }
            Info::Inserted { records, duplicates } => {
                write!(out, "Records: {records}  Duplicates: {duplicates}  Warnings: {warnings}")
            }
            Info::Loaded { records, deleted, skipped } => {
                write!(out, "Records: {records}  Deleted: {deleted}  Skipped: {skipped}  Warnings: {warnings}")
            }
        };
    }
}

/// The transaction that reads of a table must name to see the session's own changes; those that wait are sent.
pub async fn reader(session: &mut Session, table: &TableSchema) -> Done<TransId> {
    if session.own.waits_of(table.id) {
        send_waiting(session).await?;
    }
    Ok(match &session.transaction {
        Some(t) if t.is_started() && session.wrote.contains(&table.id) => t.id(),
        _ => TransId::NONE,
    })
}

/// A new savepoint number.
pub fn next_savepoint(session: &mut Session) -> u32 {
    session.savepoint += 1;
    session.savepoint
}

/// Executes a batch in the session's transaction, which is opened where there is none. Outside of one, a batch that does not commit is given up
/// when the statement is to stop: all that is rolled back is the statement.
pub async fn execute(
    cluster: Cluster<'_>,
    session: &mut Session,
    ops: &OpBatch,
    results: &mut Results,
    savepoint: u32,
    commit: bool,
) -> Done<()> {
    if session.env.is_wanting() {
        return Err(unanswered().into());
    }
    let options = ExecOptions { commit, savepoint, lock_wait_ms: session.env.variables.lock_wait_ms };
    let alone = !session.in_transaction() && !commit;
    if session.own.has_waiting() {
        return pin!(execute_with_waiting(session, ops, results, options)).await;
    }
    let transaction = session.transaction.get_or_insert_with(|| cluster.client.begin());
    transaction.wait_for_disk(session.env.variables.on_disk);
    let done = {
        let mut executed = pin!(transaction.execute(ops, options, results));
        let mut stop = pin!(session.env.stopped());
        poll_fn(|cx| match executed.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if alone => stop.as_mut().poll(cx).map(|()| None),
            Poll::Pending => Poll::Pending,
        })
        .await
    };
    let Some(done) = done else {
        // Dropped while it was executed, so it is rolled back as a whole, which is the statement.
        session.forget_transaction();
        return Err(session.env.why_stopped().into());
    };
    ended(session, done, commit)
}

fn ended(session: &mut Session, done: Result<(), ClientError>, commit: bool) -> Done<()> {
    let is_gone =
        done.as_ref().is_err_and(|e| e.aborted) || session.transaction.as_ref().is_some_and(Transaction::is_over);
    if is_gone || commit && done.is_ok() {
        session.forget_transaction();
    }
    done.map_err(Fail::Client)
}

/// As [`execute`], with what waits in front. Such a transaction is older than the statement, so nothing stops it.
async fn execute_with_waiting(
    session: &mut Session,
    ops: &OpBatch,
    results: &mut Results,
    options: ExecOptions,
) -> Done<()> {
    let Some(transaction) = session.transaction.as_mut() else {
        return Err(errors::internal("changes wait without a transaction").into());
    };
    transaction.wait_for_disk(session.env.variables.on_disk);
    let (batch, count) = session.own.with(ops);
    let done = pin!(transaction.execute(&batch, options, results)).await;
    session.own.sent(batch, done.is_ok().then_some(options.savepoint));
    results.skip(count);
    let done = done.map_err(|e| ClientError { op: e.op.saturating_sub(count as u32), ..e });
    ended(session, done, options.commit)
}

/// Sends the changes that wait.
///
/// # Errors
/// The cluster refuses them.
pub async fn send_waiting(session: &mut Session) -> Done<()> {
    let savepoint = next_savepoint(session);
    let options = ExecOptions { commit: false, savepoint, lock_wait_ms: session.env.variables.lock_wait_ms };
    let mut results = session.own.results();
    let sent = execute_with_waiting(session, &OpBatch::new(), &mut results, options).await;
    session.own.keep_results(results);
    sent
}

/// Commits the open transaction with what waits.
///
/// # Errors
/// As [`Transaction::commit`].
pub async fn commit(session: &mut Session) -> Result<(), ClientError> {
    let Some(transaction) = session.transaction.as_mut() else { return Ok(()) };
    if !session.own.has_waiting() {
        return transaction.commit().await.map(|_| ());
    }
    session.savepoint += 1;
    let variables = &session.env.variables;
    let options = ExecOptions { commit: true, savepoint: session.savepoint, lock_wait_ms: variables.lock_wait_ms };
    transaction.wait_for_disk(variables.on_disk);
    let (batch, mut results) = (session.own.with(&OpBatch::new()).0, session.own.results());
    let done = transaction.execute(&batch, options, &mut results).await;
    session.own.sent(batch, Some(options.savepoint));
    session.own.keep_results(results);
    done
}

/// Error 1062 with the values of the key, when the row is known.
pub fn duplicate(env: &crate::expr::Env, table: &Table, index: u16, row: Option<&[u8]>) -> crate::wire::SqlError {
    let schema = &table.schema;
    let list_of = |column: u16| table.rules().ok().flatten()?.computed(column)?.list.as_ref();
    let columns = schema.index_columns(apus_types::IndexNo(index)).unwrap_or(&[]);
    let cut = |at| schema.index(apus_types::IndexNo(index)).and_then(|i| i.prefix(at));
    let shown = |(at, c): (usize, &u16)| {
        if let Some(shown) = list_of(*c).and_then(|keys| keys.shown(schema, env, row?)) {
            return shown;
        }
        let (column, value) = (&schema.columns[usize::from(*c)], schema.layout().value(row.unwrap_or(&[]), *c));
        crate::expr::result_cells::display(
            column,
            cut(at).map_or(value, |n| apus_types::key::beginning(column.ty, &value, n)),
        )
    };
    let values: Vec<String> = match row {
        Some(_) => columns.iter().enumerate().map(shown).collect(),
        None => Vec::new(),
    };
    errors::duplicate_key(&values.join("-"), &table.key_name(index))
}

//! Execution of plans over the native client.
//!
//! Reads go past the coordinator unless the transaction wrote the table. Writes of a statement carry its savepoint number: a
//! refused batch leaves nothing of the statement behind. A statement outside of a transaction is one: a single batch where
//! possible, otherwise a transaction that this module commits.

pub mod aggregate;
pub mod change;
pub mod change_joined;
pub mod insert;
pub mod into;
pub mod lock;
pub mod query;
pub mod read;
pub mod sink;
pub mod target;
mod window;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use apus_client::{Client, ExecOptions, OpBatch, Results};
use apus_types::{TableSchema, TransId};

use super::{
    auto_increment::AutoIncrement,
    catalog::{Catalog, Table},
    errors,
    session::{Done, Fail, Session},
};

/// What executing needs besides the session.
#[derive(Clone, Copy)]
pub struct Cluster<'c> {
    pub client: &'c Client,
    pub catalog: &'c Catalog,
    pub auto_increment: &'c AutoIncrement,
    /// The table of AUTO_INCREMENT counters.
    pub counters: Option<&'c TableSchema>,
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
}

impl Info {
    pub fn write(self, warnings: u16, out: &mut String) {
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
        };
    }
}

/// The transaction that reads of a table must name to see the session's own changes.
pub fn reader(session: &Session, table: &TableSchema) -> TransId {
    match &session.transaction {
        Some(t) if t.is_started() && session.wrote.contains(&table.id) => t.id(),
        _ => TransId::NONE,
    }
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
    let options = ExecOptions { commit, savepoint, lock_wait_ms: session.env.variables.lock_wait_ms };
    let alone = !session.in_transaction() && !commit;
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
    match done {
        Ok(()) => {
            if commit {
                session.forget_transaction();
            }
            Ok(())
        }
        Err(e) => {
            if e.aborted || transaction.is_over() {
                session.forget_transaction();
            }
            Err(Fail::Client(e))
        }
    }
}

/// Error 1062 with the values of the key, when the row is known.
pub fn duplicate(table: &Table, index: u16, row: Option<&[u8]>) -> crate::wire::SqlError {
    let schema = &table.schema;
    let columns = schema.index_columns(apus_types::IndexNo(index)).unwrap_or(&[]);
    let values: Vec<String> = match row {
        Some(row) => columns
            .iter()
            .map(|&c| super::cells::display(schema.columns[usize::from(c)].ty, schema.layout().value(row, c)))
            .collect(),
        None => Vec::new(),
    };
    errors::duplicate_key(&values.join("-"), &table.key_name(index))
}

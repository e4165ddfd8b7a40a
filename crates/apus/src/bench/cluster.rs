//! What the workloads need of the cluster besides their operations: an event loop per thread, a client in it, tables.

use std::{
    future::Future,
    process::ExitCode,
    time::{Duration, Instant},
};

use apus_client::{Client, ClientConfig, ClientError, CommitToken, Outcome};
use apus_signal::{
    dict::{Change, DatabaseMessage, Dictionary, TableName},
    schema::TableMessage,
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema};
use tokio::task::LocalSet;

use crate::discover::Access;

/// Where all tables of `apus bench` live.
pub const DATABASE: &str = "apus_bench";
/// Pause between two questions for an outcome.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Runs a future, and the tasks it spawns, on this thread.
///
/// # Errors
/// The operating system refuses an event loop.
pub fn on_this_thread<F: Future>(future: F) -> Result<F::Output, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| format!("cannot make an event loop: {e}"))?;
    Ok(LocalSet::new().block_on(&runtime, future))
}

/// A client that prefers to read from full member number `preferred` (modulo their count).
///
/// # Errors
/// No data node serves.
pub async fn connect(mgmt: &Access, preferred: u64) -> Result<Client, String> {
    let mut config = ClientConfig::new(crate::discover::each(&mgmt.mgmt), crate::random_id()?);
    config.secret = mgmt.secret.clone();
    config.name = format!("{} bench", crate::build_id());
    config.preferred_node_seed = preferred;
    Client::connect(config).await.map_err(|e| format!("cannot connect to the cluster of {}: {e}", mgmt.mgmt))
}

pub fn column(name: &str, ty: ColumnType) -> Column {
    Column { nullable: false, ..Column::new(name, ty) }
}

/// Makes an empty table in place of one that may be there, and returns its definition as the cluster gave it.
///
/// # Errors
/// The cluster refuses.
pub async fn create_table(client: &Client, table: &TableSchema) -> Result<TableSchema, String> {
    let failed = |e: ClientError| format!("cannot create table {DATABASE}.{}: {e}", table.name);
    let database = DatabaseMessage { name: DATABASE.to_owned(), collation: u32::from(table.collation.id()) };
    let done = client.schema_change(Change::CreateDatabase(database)).await;
    accept(done.map(drop), ErrorCode::DatabaseExists).map_err(failed)?;
    let name = TableName { database: DATABASE.to_owned(), table: table.name.clone(), version: 0 };
    let done = client.schema_change(Change::DropTable(name)).await;
    accept(done.map(drop), ErrorCode::TableNotFound).map_err(failed)?;
    client.schema_change(Change::CreateTable(TableMessage::from(table))).await.map_err(failed)?;
    find_table(client, &table.name).await
}

fn accept(done: Result<(), ClientError>, known: ErrorCode) -> Result<(), ClientError> {
    match done {
        Err(e) if e.code != known => Err(e),
        _ => Ok(()),
    }
}

/// The definition of a table that is there.
///
/// # Errors
/// It is not.
pub async fn find_table(client: &Client, name: &str) -> Result<TableSchema, String> {
    let dictionary = client.dictionary(0).await.map_err(|e| format!("cannot read the dictionary: {e}"))?;
    let Dictionary { tables, .. } = dictionary.unwrap_or_default();
    let found = tables.iter().find(|t| t.database == DATABASE && t.name == name && t.base_table == 0);
    let found = found.ok_or_else(|| format!("there is no table {DATABASE}.{name}; run the insert phase first"))?;
    TableSchema::try_from(found).map_err(|_| format!("the definition of {DATABASE}.{name} does not decode"))
}

/// What became of a commit, by its token: committed or not; `None` if nobody could tell for so long, or it is forgotten.
pub async fn outcome_of(client: &Client, token: &CommitToken, patience: Duration) -> Option<bool> {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        match client.outcome(token).await {
            Ok(Outcome::Committed) => return Some(true),
            Ok(Outcome::Aborted) => return Some(false),
            Ok(Outcome::Forgotten) => return None,
            Ok(Outcome::Open) | Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
    None
}

pub fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! Which runs of events have begun: rows of `apus.event_runs`, one for each event that has run.
//!
//! A run is *claimed* by a committed row that has a moment not before it, and a number that nobody else draws. Whoever finds such a moment leaves the run alone, so of two SQL nodes that
//! both believe to have the lease one runs it. Whether a claim was committed whose outcome is unknown is told by its number.

use std::{collections::BTreeMap, rc::Rc};

use apus_client::{Client, ClientError, OpBatch, Results};
use apus_signal::{
    dict::Change,
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value};

use crate::{
    catalog::{Catalog, SYSTEM_DATABASE, Table},
    errors::{self, Result},
    session::{
        engine::SqlEngine,
        system_rows::{ROW_WAIT_MS, Rows, encoded_key, is_passing, numbers},
    },
};

const TABLE: &str = "event_runs";
/// Rows that are asked for at a time.
const BATCH: usize = 256;

fn found(catalog: &Catalog) -> Option<Rc<Table>> {
    catalog.find(SYSTEM_DATABASE, TABLE)
}

fn definition() -> TableSchema {
    let number =
        |name: &str| Column { nullable: false, ..Column::new(name, ColumnType::Int { bits: 64, unsigned: true }) };
    TableSchema::new(SYSTEM_DATABASE, TABLE, vec![number("event"), number("last"), number("claim")], vec![0])
}

impl SqlEngine {
    /// When the last runs of events began, by their numbers; those that never ran are missing.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub(crate) async fn event_runs(&self, events: impl IntoIterator<Item = u64>) -> Result<BTreeMap<u64, i64>> {
        let mut runs = BTreeMap::new();
        let Some(table) = found(&*self.catalog().await?) else { return Ok(runs) };
        let events: Vec<u64> = events.into_iter().collect();
        for some in events.chunks(BATCH) {
            let (mut ops, mut results) = (OpBatch::new(), Results::new());
            let read = async {
                for event in some {
                    let key = encoded_key(&table.schema, &Value::UInt(*event))?;
                    ops.push_read(&table.schema, false, ALLOW_MISSING, &key, None)?;
                }
                self.client.run_autocommit(&ops, ROW_WAIT_MS, &mut results).await
            };
            read.await.map_err(|e| errors::from_client(&e))?;
            for (i, event) in some.iter().enumerate() {
                let row = results.row(i).filter(|_| results.status(i) == Some(OpStatus::Done));
                if let Some([last, _]) = row.map(|row| numbers(&table.schema, row)).as_deref() {
                    runs.insert(*event, i64::try_from(*last).unwrap_or(i64::MAX));
                }
            }
        }
        Ok(runs)
    }

    /// Claims the run of an event that was due at `due` and begins `now`, by a number that was drawn for it; false: somebody else has.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub(crate) async fn claim_run(&self, event: u64, due: i64, now: i64, claim: u64) -> Result<bool> {
        let table = self.table_of_runs().await?;
        loop {
            match claim_once(&self.client, &table.schema, event, due, now.max(due), claim).await {
                Err(e) if e.code == ErrorCode::DuplicateKey || is_passing(&e) => {}
                done => return done.map_err(|e| errors::from_client(&e)),
            }
        }
    }

    /// Forgets the runs of an event that is gone. A row that stays does no harm.
    pub(crate) async fn forget_runs(&self, event: u64) {
        let Ok(catalog) = self.catalog().await else { return };
        let Some(table) = found(&catalog) else { return };
        let (mut ops, key) = (OpBatch::new(), encoded_key(&table.schema, &Value::UInt(event)));
        let pushed = key.and_then(|key| ops.push(&table.schema, OpKind::Delete, ALLOW_MISSING, &key, &[]));
        if pushed.is_ok() {
            let _ = self.client.run_autocommit(&ops, ROW_WAIT_MS, &mut Results::new()).await;
        }
    }

    /// Made when an event first runs.
    async fn table_of_runs(&self) -> Result<Rc<Table>> {
        if let Some(table) = found(&*self.catalog().await?) {
            return Ok(table);
        }
        self.change(Change::CreateTable(TableMessage::from(&definition()))).await?;
        found(&*self.fetch_catalog().await?).ok_or_else(|| errors::internal("no table of runs of events"))
    }
}

/// A number that nobody else draws.
///
/// # Errors
/// No entropy.
pub fn draw() -> Result<u64> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
    Ok(u64::from_le_bytes(random))
}

async fn claim_once(
    client: &Client,
    table: &TableSchema,
    event: u64,
    due: i64,
    now: i64,
    claim: u64,
) -> std::result::Result<bool, ClientError> {
    let micros = |moment: i64| u64::try_from(moment).unwrap_or(0);
    let (key, mut rows) = (Value::UInt(event), Rows::begin(client));
    let found = rows.lock(&[(table, &key)]).await?;
    let row = found.first().and_then(Option::as_deref);
    if let Some([last, by]) = row
        && (*by == claim || *last >= micros(due))
    {
        let is_ours = *by == claim;
        let _ = rows.transaction.rollback().await;
        return Ok(is_ours);
    }
    // Of a row that is not there nobody has the lock.
    let kind = if row.is_some() { OpKind::Write } else { OpKind::Insert };
    rows.put(kind, table, &key, &[micros(now), claim])?;
    rows.run(true).await.map(|()| true)
}

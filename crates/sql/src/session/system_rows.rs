//! Transactions on a few rows of the cluster's own tables, whose columns behind the key are numbers.

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results, Transaction};
use apus_signal::{
    dict::Change,
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{ErrorClass, ErrorCode, TableSchema, Value, key};

use super::engine::SqlEngine;
use crate::{catalog::Catalog, errors};

/// Longest wait for the lock of a row, which everybody holds for one transaction only.
pub const ROW_WAIT_MS: u32 = 2_000;

pub fn encoded_key(table: &TableSchema, value: &Value<'_>) -> std::result::Result<Vec<u8>, ErrorCode> {
    let mut encoded = Vec::new();
    key::encode_part(table.columns[0].ty, false, value, &mut encoded)?;
    Ok(encoded)
}

/// The columns behind the key, which are all numbers.
pub fn numbers(table: &TableSchema, row: &[u8]) -> Vec<u64> {
    let columns = 1..table.columns.len() as u16;
    let number = |column| match table.layout().value(row, column) {
        Value::UInt(n) => n,
        _ => 0,
    };
    columns.map(number).collect()
}

/// One transaction on a few rows.
pub struct Rows {
    pub transaction: Transaction,
    ops: OpBatch,
    results: Results,
    steps: u32,
}

impl Rows {
    pub fn begin(client: &Client) -> Rows {
        Rows { transaction: client.begin(), ops: OpBatch::new(), results: Results::new(), steps: 0 }
    }
    pub async fn run(&mut self, commit: bool) -> std::result::Result<(), ClientError> {
        self.steps += 1;
        let options = ExecOptions { commit, savepoint: self.steps, lock_wait_ms: ROW_WAIT_MS };
        let done = self.transaction.execute(&self.ops, options, &mut self.results).await;
        self.ops.clear();
        done
    }
    /// Locks rows; their numbers.
    pub async fn lock(
        &mut self,
        wanted: &[(&TableSchema, &Value<'_>)],
    ) -> std::result::Result<Vec<Option<Vec<u64>>>, ClientError> {
        for (table, value) in wanted {
            self.ops.push_read(table, true, ALLOW_MISSING, &encoded_key(table, value)?, None)?;
        }
        self.run(false).await?;
        let found = |i| self.results.row(i).filter(|_| self.results.status(i) == Some(OpStatus::Done));
        Ok(wanted.iter().enumerate().map(|(i, (table, _))| found(i).map(|row| numbers(table, row))).collect())
    }
    pub fn put(
        &mut self,
        kind: OpKind,
        table: &TableSchema,
        value: &Value<'_>,
        rest: &[u64],
    ) -> std::result::Result<(), ErrorCode> {
        let mut row = Vec::new();
        if kind != OpKind::Delete {
            let values: Vec<_> = std::iter::once(*value).chain(rest.iter().map(|n| Value::UInt(*n))).collect();
            table.layout().encode(&values, &mut row)?;
        }
        self.ops.push(table, kind, 0, &encoded_key(table, value)?, &row)
    }
}

/// Whether it may be looked at again what has become of it.
pub fn is_passing(e: &ClientError) -> bool {
    e.class() == ErrorClass::UnknownOutcome
        || e.retry_transaction() && !e.code.waits_for_operator()
        || e.code == ErrorCode::Deadlock
}

impl SqlEngine {
    /// Tables of the cluster's own, made when they are first needed.
    ///
    /// # Errors
    /// They cannot be made.
    pub(crate) async fn system_tables<T>(
        &self,
        find: impl Fn(&Catalog) -> Option<T>,
        definitions: impl IntoIterator<Item = TableSchema>,
    ) -> errors::Result<T> {
        if let Some(tables) = find(&*self.catalog().await?) {
            return Ok(tables);
        }
        for table in definitions {
            self.change(Change::CreateTable(TableMessage::from(&table))).await?;
        }
        find(&*self.fetch_catalog().await?).ok_or_else(|| errors::internal("a table of the cluster's own is not there"))
    }
}

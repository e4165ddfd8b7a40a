//! The rows that were there before a constraint or a column with an expression.
//!
//! From the moment that the dictionary has it, every SQL node holds it for what it writes, so only older rows are open. They are named by a scan that also names what is
//! not committed yet, and looked at under a lock, some hundred at a time: a row that waits for its transaction is seen as that leaves it. Should this SQL node die, the constraint stays
//! as one that is not enforced to all who look, and holds for new rows; a column stays hidden.

use apus_client::{ClientError, ExecOptions, OpBatch, Results, Rows, ScanRequest};
use apus_signal::{
    dict::{Change, ColumnsChange, TableName},
    schema::{SourceMessage, column_to_wire},
    tc::{ALLOW_MISSING, OpStatus},
};
use apus_types::{ErrorCode, TableSchema, form::Source, key, rules::CheckDef};

use super::alter;
use crate::{
    catalog::Table,
    errors::{self, Result},
    session::{Session, engine::SqlEngine},
    wire::SqlError,
};

/// Rows looked at in one transaction.
const BATCH: u32 = 256;
/// Attempts of a batch that meets a lock or a failing node, and of a change that meets another.
const ATTEMPTS_MAX: u32 = 50;
const LOCK_WAIT_MS: u32 = 10_000;

/// Why looking at rows ended.
pub enum Stop {
    Sql(SqlError),
    Client(ClientError),
}

impl From<SqlError> for Stop {
    fn from(e: SqlError) -> Stop {
        Stop::Sql(e)
    }
}
impl From<ClientError> for Stop {
    fn from(e: ClientError) -> Stop {
        Stop::Client(e)
    }
}
impl From<ErrorCode> for Stop {
    fn from(e: ErrorCode) -> Stop {
        Stop::Client(e.into())
    }
}

impl Stop {
    fn may_pass(&self) -> bool {
        match self {
            Stop::Sql(_) => false,
            Stop::Client(e) => e.retry_transaction() || matches!(e.code, ErrorCode::Deadlock | ErrorCode::LockTimeout),
        }
    }
    fn is_other_definition(&self) -> bool {
        matches!(self, Stop::Client(e) if e.code == ErrorCode::SchemaVersionChanged)
    }
    pub fn into_sql(self) -> SqlError {
        match self {
            Stop::Sql(e) => e,
            Stop::Client(e) => errors::from_client(&e),
        }
    }
}

/// Encoded primary keys of rows that hold the columns of the key alone.
fn keys_of(schema: &TableSchema, rows: &Rows) -> std::result::Result<Vec<Vec<u8>>, ErrorCode> {
    let layout = schema.layout().project_layout(&schema.primary_key).ok_or(ErrorCode::Internal)?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows.iter().flatten() {
        let mut key = Vec::new();
        for (i, &column) in schema.primary_key.iter().enumerate() {
            let ty = schema.columns[usize::from(column)].ty;
            key::encode_part(ty, false, &layout.value(row, i as u16), &mut key)?;
        }
        keys.push(key);
    }
    Ok(keys)
}

/// The change of a table that leaves its columns.
fn checks_change(name: &TableName, schema: &TableSchema, checks: &[CheckDef], lineage: Option<u64>) -> Change {
    let sources = (0..schema.columns.len() as u16).map(|c| SourceMessage::from(&Source::Kept(c)));
    Change::ChangeColumns(ColumnsChange {
        table: Some(name.clone()),
        id: schema.id.0,
        version: schema.version,
        columns: schema.columns.iter().map(column_to_wire).collect(),
        sources: sources.collect(),
        checks: Some(alter::to_wire(checks)),
        lineage,
        ..ColumnsChange::default()
    })
}

/// All rows were looked at.
#[derive(Clone, Copy)]
pub struct Looked {
    pub rows: u64,
    /// Of the dictionary when it began. A start from the disks may bring back an older epoch of the rows.
    pub lineage: u64,
}

impl SqlEngine {
    /// Looks at all rows under their locks: once at each, unless the table is changed meanwhile.
    pub(crate) async fn all_rows(
        &self,
        session: &Session,
        name: &TableName,
        exclusive: bool,
        mut look: impl FnMut(&Session, &Table, &[u8], &[u8], &mut OpBatch) -> std::result::Result<(), Stop>,
    ) -> Result<Looked> {
        'table: for _ in 0..ATTEMPTS_MAX {
            let mut count = 0;
            let catalog = self.fetch_catalog().await?;
            let (table, lineage) = (catalog.table(&name.database, &name.table)?, catalog.lineage);
            let schema = &table.schema;
            let mut request = ScanRequest::all(schema.id, schema.version);
            request.columns = Some(&schema.primary_key);
            request.batch_rows = BATCH;
            request.with_pending = true;
            let (mut cursor, mut rows) = (self.client.scan(&request), Rows::new());
            let mut progress = self.progress(schema, "going through rows").await;
            loop {
                session.env.may_go_on()?;
                match cursor.next_batch(&mut rows).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(Looked { rows: count, lineage }),
                    Err(e) if e.code == ErrorCode::SchemaVersionChanged => continue 'table,
                    Err(e) => return Err(errors::from_client(&e)),
                }
                let keys = keys_of(schema, &rows).map_err(|e| errors::from_code(e, &name.table))?;
                let mut attempt = 0;
                loop {
                    attempt += 1;
                    match self.batch_of_rows(session, &table, &keys, exclusive, &mut look).await {
                        Ok(looked) => {
                            count += looked;
                            break;
                        }
                        Err(stop) if stop.is_other_definition() => continue 'table,
                        Err(stop) if attempt < ATTEMPTS_MAX && stop.may_pass() => {}
                        Err(stop) => return Err(stop.into_sql()),
                    }
                }
                progress.advance(session, keys.len() as u64).await?;
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }

    async fn batch_of_rows(
        &self,
        session: &Session,
        table: &Table,
        keys: &[Vec<u8>],
        exclusive: bool,
        look: &mut impl FnMut(&Session, &Table, &[u8], &[u8], &mut OpBatch) -> std::result::Result<(), Stop>,
    ) -> std::result::Result<u64, Stop> {
        let schema = &table.schema;
        let (mut ops, mut changes, mut results) = (OpBatch::new(), OpBatch::new(), Results::new());
        changes.hold_constraints();
        for key in keys {
            ops.push_read(schema, exclusive, ALLOW_MISSING, key, None)?;
        }
        let mut transaction = self.client.begin();
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        let mut count = 0;
        for (key, (status, row)) in keys.iter().zip(results.iter()) {
            if status == OpStatus::Done {
                count += 1;
                schema.layout().check(row)?;
                look(session, table, key, row, &mut changes)?;
            }
        }
        if changes.is_empty() {
            transaction.rollback().await?;
            return Ok(count);
        }
        let options = ExecOptions { commit: false, savepoint: 2, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&changes, options, &mut results).await?;
        transaction.commit().await?;
        Ok(count)
    }

    /// Proves constraints that the dictionary has, or takes them back; how many rows there are.
    ///
    /// # Errors
    /// 3819: a row violates one.
    pub(crate) async fn prove_checks(
        &self,
        session: &Session,
        name: &TableName,
        checks: &[String],
        before: &[CheckDef],
    ) -> Result<u64> {
        for _ in 0..ATTEMPTS_MAX {
            let proven = self.checks_hold(session, name, checks).await;
            session.env.forget_notes();
            let lineage = proven.as_ref().ok().map(|looked| looked.lineage);
            if self.settle_checks(name, checks, before, lineage).await? {
                return proven.map(|looked| looked.rows);
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }

    /// Looks at all rows for these constraints.
    async fn checks_hold(&self, session: &Session, name: &TableName, checks: &[String]) -> Result<Looked> {
        let strict = session.env.variables.strict;
        self.all_rows(session, name, false, |session, table, _, row, _| {
            let Some(rules) = table.rules()? else { return Ok(()) };
            match rules.violated(session, &table.schema, row, strict, Some(checks)) {
                Some(e) => Err(e.into()),
                None => Ok(()),
            }
        })
        .await
    }

    /// Publishes constraints for rows of this lineage, or takes them back without one; `false`: the rows are to be looked at again.
    async fn settle_checks(
        &self,
        name: &TableName,
        checks: &[String],
        before: &[CheckDef],
        lineage: Option<u64>,
    ) -> Result<bool> {
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            if lineage.is_some_and(|lineage| lineage != catalog.lineage) {
                return Ok(false);
            }
            let table = catalog.table(&name.database, &name.table)?;
            let now = alter::settled(&table.schema, checks, lineage.is_some(), before);
            if now == table.schema.checks {
                return Ok(true);
            }
            match self.change(checks_change(name, &table.schema, &now, lineage)).await? {
                None => return Ok(true),
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }
}

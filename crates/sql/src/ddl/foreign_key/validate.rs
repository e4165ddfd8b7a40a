//! The rows that a table has when it gets a foreign key.
//!
//! The key is in the dictionary first: from then on all SQL nodes hold it for what they write, and who does not know it is refused. Then all rows are read, also those of
//! transactions that are open, some hundred at a time. Each is locked, so that who wrote it before has ended, and what it refers to is locked with it: what was
//! being deleted by somebody who did not know the key is gone by then, or there to stay. At the end the key is published. A row that refers to nothing takes the key away again.
//!
//! A SQL node that dies meanwhile leaves a key that is held for new rows, and says in SHOW CREATE TABLE that the old ones have not been looked at.

use std::{pin::pin, rc::Rc};

use apus_client::{OpBatch, Results, Rows, ScanRequest};
use apus_signal::{
    dict::{Change, IndexChange, TableName},
    tc::{ALLOW_MISSING, OpStatus},
};
use apus_types::ErrorCode;

use crate::{
    catalog::{Table, foreign_key::Rules},
    errors::{self, Result},
    exec::{
        Cluster, execute,
        foreign_key::{Row, parents, primary_keys},
        next_savepoint,
    },
    session::{Done, Fail, Session, engine::SqlEngine, serializable_reads::Reads},
};

/// Rows looked at per transaction.
const BATCH: u32 = 512;
/// Attempts of one batch that meets a lock or a failing node.
const ATTEMPTS_MAX: u32 = 50;
/// Times that all is looked at again because the cluster has started from its disks meanwhile.
const PASSES_MAX: u32 = 5;

impl SqlEngine {
    /// Looks at all rows and publishes the key; how many there are.
    pub(crate) async fn validate_foreign_key(&self, session: &mut Session, name: &TableName, key: &str) -> Result<u64> {
        for _ in 0..PASSES_MAX {
            let (rows, lineage) = Box::pin(self.look_at_rows(session, name, key)).await?;
            let table = Some(TableName { version: 0, ..name.clone() });
            let publish =
                IndexChange { table, name: key.to_owned(), lineage, is_foreign_key: true, ..IndexChange::default() };
            match self.change(Change::PublishIndex(publish)).await? {
                None => return Ok(rows),
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, key)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, key))
    }

    async fn look_at_rows(&self, session: &mut Session, name: &TableName, key: &str) -> Result<(u64, u64)> {
        let catalog = self.fetch_catalog().await?;
        let table = catalog.table(&name.database, &name.table)?;
        self.check_no_claims(table.schema.id).await?;
        let rules = catalog.rules(table.schema.id).ok_or_else(|| errors::internal("a foreign key vanished"))?;
        let parents = rules.parents.iter().filter(|r| r.key.name.eq_ignore_ascii_case(key)).cloned().collect();
        let rules = Rules { parents, children: Vec::new(), is_cyclic: false };
        let schema = &table.schema;
        let mut request = ScanRequest::all(schema.id, schema.version);
        request.columns = Some(&schema.primary_key);
        (request.batch_rows, request.with_pending) = (BATCH, true);
        let layout = schema.layout().project_layout(&schema.primary_key);
        let layout = layout.ok_or_else(|| errors::internal("projection"))?;
        let reads = Reads::default();
        let cluster = self.cluster(&catalog, &reads);
        let (mut cursor, mut rows, mut count) = (self.client.scan(&request), Rows::new(), 0);
        let mut progress = self.progress(schema, "looking at rows").await;
        while cursor.next_batch(&mut rows).await.map_err(|e| errors::from_client(&e))? {
            let keys = primary_keys(schema, &layout, &rows).map_err(|e| errors::from_code(e, ""))?;
            let mut attempt = 0;
            count += loop {
                attempt += 1;
                session.env.may_go_on()?;
                let looked = pin!(look(cluster, session, &table, &rules, &keys)).await;
                if let Some(mut transaction) = session.transaction.take() {
                    let _ = transaction.rollback().await;
                }
                session.forget_transaction();
                match looked {
                    Ok(count) => break count,
                    Err(Fail::Client(e))
                        if attempt < ATTEMPTS_MAX
                            && (e.retry_transaction()
                                || matches!(e.code, ErrorCode::Deadlock | ErrorCode::LockTimeout)) => {}
                    Err(fail) => return Err(fail.into()),
                }
            };
            progress.advance(session, rows.len() as u64).await?;
        }
        Ok((count, catalog.lineage))
    }
}

/// How many of these rows there are.
async fn look(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<Table>,
    rules: &Rules,
    keys: &[Vec<u8>],
) -> Done<u64> {
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    for key in keys {
        ops.push_read(&table.schema, false, ALLOW_MISSING, key, None)?;
    }
    let savepoint = next_savepoint(session);
    pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
    let mut rows = Vec::with_capacity(keys.len());
    for (key, (status, row)) in keys.iter().zip(results.iter()) {
        if status == OpStatus::Done {
            table.schema.layout().check(row)?;
            rows.push(Row::made(key, row));
        }
    }
    match pin!(parents::missing(cluster, session, rules, &rows, None)).await? {
        None => Ok(rows.len() as u64),
        Some((_, reference)) => Err(errors::no_parent_row(&reference.text()).into()),
    }
}

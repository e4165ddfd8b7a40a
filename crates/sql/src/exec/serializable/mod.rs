//! SERIALIZABLE: what a transaction read is looked at again before it commits.
//!
//! All plain reads of such a transaction are of one snapshot, at epoch `E`, as in REPEATABLE READ; so are the searches of UPDATE, DELETE, INSERT ... SELECT and
//! SELECT ... FOR UPDATE, whose rows are locked then as always. [`Reads`] keeps which keys and ranges were read. A transaction that has written or locked
//! something ends so ([`SqlEngine::commit`]):
//!
//! ```text
//! 1. shared locks on the rows that were read by key
//! 2. the mark of each table: exclusively where a range, or a key that is not there, was read; shared where it only wrote
//! 3. a snapshot, at epoch N
//! 4. what was read, once more at E and at N: equal, or error 1213
//! 5. commit
//! ```
//!
//! This is the validation of optimistic concurrency control (Kung and Robinson 1981): whatever it read was still so when all that it writes was locked. Steps 1 and 2 keep it so
//! until the commit is done, as far as other SERIALIZABLE transactions go: who has written a table waits in step 2 for those that are between step 2 and 5 and have read
//! a range of it. So transactions that are in each other's way commit one after the other, the later one with a snapshot that has the earlier one's commit, and with an epoch above that
//! snapshot's. The order of epochs is the serial order, and a snapshot is a point in it: transactions that only read need none of this. Argued in decision 0038.
//!
//! A mark ([`marks`]) is a row of a table of the cluster's own, one for each table, without content. Nobody waits for a row's lock while he holds a mark, and marks are taken in the
//! order of the tables' numbers: no deadlock has a mark in it.
//!
//! Transactions of weaker levels take no marks. What they have committed by `N` is seen in step 4; what they commit between `N` and the commit is not kept out.
//!
//! Limits: [`crate::session::serializable_reads::KEPT_MAX`] keys and ranges of a table, and [`crate::session::serializable_reads::BYTES_MAX`] of them; beyond, the whole table is compared.

pub mod marks;

use std::{collections::BTreeMap, pin::pin};

use apus_client::{ClientError, KeyList, OpBatch, ReadBatch, Results, Rows, ScanCursor, ScanRequest, Snapshot};
use apus_signal::tc::{ALLOW_MISSING, NO_WAIT, OpStatus};
use apus_types::{Epoch, ErrorCode, TableId, TableSchema};

use self::marks::Marks;
use super::{Cluster, execute, next_savepoint};
use crate::{
    catalog::{Catalog, Table, foreign_key::rules},
    errors, exec,
    plan::{
        Plan, Update,
        access::binding::bounds_of,
        dml::insert::{OnDuplicate, Source},
    },
    session::{
        Done, Fail, Session,
        engine::SqlEngine,
        serializable_reads::{OfTable, Reads},
    },
    variables::isolation::Isolation,
};

/// Keys locked, or compared, at a time.
const BATCH: usize = 512;
const DIFFERS: &str = "what this SERIALIZABLE transaction has read was changed by others meanwhile";

impl Session {
    /// The statement that begins, or its transaction, is SERIALIZABLE.
    pub fn is_serializable(&self) -> bool {
        let next = self.next_isolation.unwrap_or(self.env.variables.isolation);
        self.isolation.unwrap_or(next) == Isolation::Serializable
    }
}

impl SqlEngine {
    /// Commits the open transaction, if what it has read is still so.
    ///
    /// # Errors
    /// `Deadlock`: it is not, and the transaction is rolled back. As [`exec::commit`].
    pub(crate) async fn commit(&self, session: &mut Session) -> Done<()> {
        if !session.wrote.is_empty()
            && self.may_be_read_locked()
            && let Err(e) = Box::pin(self.wait_to_commit(session)).await
        {
            if let Some(mut transaction) = session.transaction.take() {
                let _ = transaction.rollback().await;
            }
            // What has made way for LOCK TABLES may be run again.
            let is_over = e.errno == 1213;
            return Err(if is_over { ErrorCode::TransactionNotFound.into() } else { Fail::Sql(e) });
        }
        self.look_before_end(session).await?;
        Ok(exec::commit(session).await?)
    }

    /// Before the open transaction is committed, or prepared: what it has read is still so, and others are kept from changing it until it ends.
    ///
    /// # Errors
    /// `Deadlock`: it is not, and the transaction is rolled back.
    pub(crate) async fn look_before_end(&self, session: &mut Session) -> Done<()> {
        if session.reads.are_kept()
            && let Err(e) = Box::pin(self.validate(session)).await
        {
            if let Some(mut transaction) = session.transaction.take() {
                let _ = transaction.rollback().await;
            }
            return Err(e);
        }
        Ok(())
    }

    async fn validate(&self, session: &mut Session) -> Done<()> {
        let kept = session.reads.take();
        let (catalog, no_reads) = (self.catalog().await?, Reads::default());
        let cluster = self.cluster(&catalog, &no_reads);
        let mut tables = Vec::with_capacity(kept.len());
        // Nobody else changes a temporary table.
        for (id, read) in kept.into_iter().filter(|(id, _)| !session.temporary.has(*id)) {
            let table = catalog.tables().find(|table| table.schema.id == id).cloned();
            tables.push((table.ok_or_else(errors::definition_changed)?, read));
        }
        for (table, read) in &mut tables {
            lock_keys(cluster, session, table, read).await?;
        }
        let mut wanted: BTreeMap<TableId, bool> = {
            let others = session.wrote.iter().filter(|id| !session.temporary.has(**id));
            others.map(|table| (*table, false)).collect()
        };
        wanted.extend(tables.iter().filter(|(_, read)| read.has_gaps()).map(|(table, _)| (table.schema.id, true)));
        if !wanted.is_empty() {
            let marks = self.system_tables(Marks::of, [Marks::definition()]).await?;
            for (table, exclusive) in wanted {
                marks.take(cluster, session, table, exclusive).await?;
            }
        }
        let then = session.snapshot.as_ref().map(Snapshot::epoch);
        let now = self.client.snapshot().await?;
        for (table, read) in &tables {
            session.env.may_go_on()?;
            let compared = Compared { table, then, now: now.epoch() };
            if !pin!(compared.is_as_read(cluster, session, read)).await? {
                return Err(ClientError::with_detail(ErrorCode::Deadlock, DIFFERS).into());
            }
        }
        Ok(())
    }

    /// A statement begins. What it may be told of rows that it does not lock has to be of the transaction's snapshot, so that is taken first; rows that are named by their primary key are
    /// locked without one, so that who waited for them is not behind his own snapshot.
    ///
    /// # Errors
    /// The cluster has no snapshot to give.
    pub(crate) async fn begin_serializable(&self, session: &mut Session, plan: &Plan) -> Done<()> {
        let is_told = match plan {
            Plan::Select(_) | Plan::Into(_) | Plan::Change(_) => false,
            Plan::Insert(insert) => {
                matches!(insert.on_duplicate, OnDuplicate::Refuse | OnDuplicate::Ignore)
                    || matches!(insert.source, Source::Select(_))
                    || insert.table.schema.is_constrained()
                    || insert.table.schema.indexes.iter().any(|i| i.unique)
            }
            Plan::Update(update) => update.table.schema.is_constrained() || may_duplicate(update),
            Plan::Delete(delete) => delete.table.schema.is_constrained(),
        };
        if is_told {
            session.reading_at(&self.client).await?;
        }
        Ok(())
    }

    /// What a statement was told of rows that it has not locked, by an error or by leaving its own out, counts as read: of all of their tables.
    pub(crate) fn note_told(&self, session: &Session, catalog: &Catalog, plan: &Plan, failed: Option<&Fail>) {
        let is_told = match failed {
            Some(Fail::Sql(e)) => matches!(e.errno, 1062 | 1451 | 1452),
            Some(Fail::Client(e)) => e.code == ErrorCode::DuplicateKey,
            None => matches!(plan, Plan::Insert(insert) if insert.on_duplicate == OnDuplicate::Ignore),
        };
        if !is_told || session.snapshot.is_none() {
            return;
        }
        for table in plan.written() {
            session.reads.whole(&table.schema);
            let Some(rules) = rules(session, catalog, &table.schema).filter(|_| failed.is_some()) else { continue };
            let parents = rules.parents.iter().filter_map(|rule| rule.parent.as_ref());
            parents.for_each(|parent| session.reads.whole(&parent.table.schema));
            rules.children.iter().for_each(|rule| session.reads.whole(&rule.child.schema));
        }
    }
}

/// Whether a key may be taken that the change gives to a row.
fn may_duplicate(update: &Update) -> bool {
    let schema = &update.table.schema;
    let changes = |c: &u16| {
        let column = &schema.columns[usize::from(*c)];
        column.on_update_now || column.generated.is_some() || update.assignments.iter().any(|(to, _)| to == c)
    };
    let unique = schema.indexes.iter().filter(|index| index.unique).flat_map(|index| &index.columns);
    !schema.triggers.is_empty() || unique.chain(&schema.primary_key).any(changes)
}

/// Step 1. A row that is gone is not locked: its key is one that is not there.
async fn lock_keys(cluster: Cluster<'_>, session: &mut Session, table: &Table, read: &mut OfTable) -> Done<()> {
    let schema = &table.schema;
    let keys: Vec<&[u8]> = read.rows().collect();
    let mut is_gone = false;
    for some in keys.chunks(BATCH) {
        is_gone |= lock_some(cluster, session, schema, some, 0).await? < some.len();
    }
    if is_gone {
        read.note_gap();
    }
    Ok(())
}

/// Locks rows shared; how many there are. `wait`: 0, or [`NO_WAIT`].
async fn lock_some(
    cluster: Cluster<'_>,
    session: &mut Session,
    schema: &TableSchema,
    keys: &[&[u8]],
    wait: u8,
) -> Done<usize> {
    session.env.may_go_on()?;
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    for key in keys {
        ops.push_read(schema, false, ALLOW_MISSING | wait, key, Some(&schema.primary_key[..1]))?;
    }
    let savepoint = next_savepoint(session);
    pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
    Ok(results.iter().filter(|(status, _)| *status == OpStatus::Done).count())
}

/// Step 4, of one table.
struct Compared<'c> {
    table: &'c Table,
    /// What the transaction read at, if it read at a snapshot.
    then: Option<Epoch>,
    now: Epoch,
}

impl Compared<'_> {
    async fn is_as_read(&self, cluster: Cluster<'_>, session: &mut Session, read: &OfTable) -> Done<bool> {
        Ok(self.are_equal_keys(cluster, read).await?
            && self.are_missing(cluster, session, read).await?
            && self.are_equal_ranges(cluster, session, read).await?)
    }

    fn epoch_read(&self) -> errors::Result<Epoch> {
        self.then.ok_or_else(|| errors::internal("a transaction has read without a snapshot"))
    }

    async fn are_equal_keys(&self, cluster: Cluster<'_>, read: &OfTable) -> Done<bool> {
        let entries = self.table.hidden.iter().flatten().map(|hidden| &**hidden);
        for schema in std::iter::once(&self.table.schema).chain(entries) {
            let keys: Vec<&[u8]> = read.keys_of(schema.id).collect();
            for some in keys.chunks(BATCH) {
                let list = listed(schema, some)?;
                let (mut then, mut now) = (Rows::new(), Rows::new());
                for (rows, snapshot) in [(&mut then, self.epoch_read()?), (&mut now, self.now)] {
                    cluster.client.read(&ReadBatch { snapshot, ..ReadBatch::newest(schema, &list) }, rows).await?;
                }
                if !then.iter().eq(now.iter()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Keys that a lock was asked for, and which were not there: nobody has committed a row meanwhile, or the transaction itself has deleted it.
    async fn are_missing(&self, cluster: Cluster<'_>, session: &mut Session, read: &OfTable) -> Done<bool> {
        let schema = &self.table.schema;
        let missing: Vec<&[u8]> = read.missing().collect();
        for some in missing.chunks(BATCH) {
            let mut rows = Rows::new();
            let list = listed(schema, some)?;
            let request = ReadBatch { snapshot: self.now, ..ReadBatch::newest(schema, &list) };
            cluster.client.read(&request, &mut rows).await?;
            let there = some.iter().zip(rows.iter()).filter(|(_, row)| row.is_some());
            let there: Vec<&[u8]> = there.map(|(key, _)| *key).collect();
            if there.is_empty() {
                continue;
            }
            match lock_some(cluster, session, schema, &there, NO_WAIT).await {
                Ok(0) => {}
                Ok(_) => return Ok(false),
                Err(Fail::Client(e)) if e.code == ErrorCode::LockNotAvailable => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    async fn are_equal_ranges(&self, cluster: Cluster<'_>, session: &Session, read: &OfTable) -> Done<bool> {
        for (index, (low, high)) in read.ranges() {
            let (low, high) = bounds_of(low.as_deref(), high.as_deref());
            let all = ScanRequest::all(self.table.schema.id, self.table.schema.version);
            let request = ScanRequest { index, low, high, ordered: true, ..all };
            let walk = |snapshot| {
                let cursor = cluster.client.scan(&ScanRequest { snapshot, ..request });
                Walk { cursor, rows: Rows::new(), at: 0 }
            };
            let (mut then, mut now) = (walk(self.epoch_read()?), walk(self.now));
            loop {
                let (before, row) = (pin!(then.next(session)).await?, pin!(now.next(session)).await?);
                if before != row {
                    return Ok(false);
                }
                if row.is_none() {
                    break;
                }
            }
        }
        Ok(true)
    }
}

fn listed(schema: &TableSchema, keys: &[&[u8]]) -> Result<KeyList, ErrorCode> {
    let mut list = KeyList::new();
    keys.iter().try_for_each(|key| list.push(schema, key))?;
    Ok(list)
}

/// The rows of a scan, one after the other.
struct Walk {
    cursor: ScanCursor,
    rows: Rows,
    at: usize,
}

impl Walk {
    async fn next(&mut self, session: &Session) -> Done<Option<&[u8]>> {
        if self.at >= self.rows.len() {
            session.env.may_go_on()?;
            self.at = 0;
            self.cursor.next_batch(&mut self.rows).await?;
        }
        self.at += 1;
        Ok(self.rows.row(self.at - 1))
    }
}

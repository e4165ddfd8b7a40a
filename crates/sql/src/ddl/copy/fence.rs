//! How others see a table that is being copied, and how a copy comes to its end whoever dies.
//!
//! The copy is a table `#alter#N`. It is made with a foreign key of a name that no statement can say, [`Mark`], which refers to the table that is copied. That gives this one a new version, which
//! data nodes require of whoever reads or writes its rows from then on (`Held::since`): so a SQL node that does not know of the copy is refused and fetches the dictionary, and one that knows of it lets
//! nobody write or lock ([`SqlEngine::wait_for_copies`]). The copy, the key and the new version are one change of the dictionary; if the copy is dropped the key goes with it, and
//! the table has yet another version. So there is no moment at which the copy is there and somebody may write.
//!
//! The key has two names: `#filling#N#T` while rows are copied, `#ready#N#T` when all are; T is the id of the table that is copied. Dropping that table *by its version* is the moment at which the
//! statement takes effect. Before it, whoever finds that the maker is dead ([`SqlEngine::guard`] can be had) makes a ready copy a filling one again, which is refused once the table is gone, and drops it. After it,
//! whoever reads the dictionary gives the copy the name of the table, then the table its foreign keys. All these changes name the versions that were looked at, so of two that exclude each other one is refused.

use std::{rc::Rc, time::Duration};

use apus_signal::{
    dict::{Change, TableName},
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
};
use apus_types::{ErrorCode, TableSchema};

use crate::{
    catalog::{
        Catalog,
        copies::{ATTEMPTS_MAX, Mark, has_closed, number},
    },
    errors::{self, Result},
    plan::Plan,
    session::{Session, engine::SqlEngine},
    variables::Isolation,
};

/// Between two looks at whether the copy is still there.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two looks at whether its maker lives.
const LOOK: Duration = Duration::from_secs(1);
/// How long a transaction that may hold what the copy waits for, by locks, waits for the copy.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a plan changes or locks rows of a table that is being copied, or of one that its rows are held to.
pub fn is_closed(catalog: &Catalog, plan: &Plan) -> bool {
    let is_read = catalog.copies.are_none() || !plan.changes_or_locks();
    !is_read && has_closed(catalog, plan.tables().map(|table| table.schema.id).collect())
}

/// Refuses to read at a snapshot in a table that has come into the place of another since: its rows are younger.
///
/// # Errors
/// 1412.
pub fn check_snapshot(session: &mut Session, catalog: &Rc<Catalog>, plan: &Plan) -> Result<()> {
    if session.isolation.unwrap_or_default() < Isolation::RepeatableRead {
        return Ok(());
    }
    let Some(known) = session.tables_known.as_ref().filter(|_| session.snapshot.is_some()) else {
        session.tables_known = Some(catalog.clone());
        return Ok(());
    };
    if Rc::ptr_eq(known, catalog) {
        return Ok(());
    }
    for table in plan.tables() {
        let schema = &table.schema;
        if known.find(&schema.database, &schema.name).is_some_and(|before| before.schema.id != schema.id) {
            return Err(errors::definition_changed());
        }
    }
    Ok(())
}

impl SqlEngine {
    /// Brings copies to their ends that are in effect; the catalog after that.
    pub(crate) async fn finish_copies(&self, mut catalog: Rc<Catalog>) -> Result<Rc<Catalog>> {
        for attempt in 0..ATTEMPTS_MAX {
            let Some(step) = catalog.copies.next_step(&catalog, attempt) else { break };
            // Refused: somebody else was faster.
            self.change(step).await?;
            catalog = self.read_catalog().await?;
        }
        Ok(catalog)
    }

    /// Waits until nothing is copied that is in the way.
    ///
    /// # Errors
    /// 1213: the transaction may have what the copy waits for, and is rolled back. 1205: as long as `lock_wait_timeout` says.
    pub(crate) async fn wait_for_copies(
        &self,
        session: &mut Session,
        is_closed: impl Fn(&Catalog) -> bool,
    ) -> Result<()> {
        let started = tokio::time::Instant::now();
        let mut looked = started;
        let mut catalog = self.catalog().await?;
        while is_closed(&catalog) {
            session.env.may_go_on()?;
            let is_open = session.transaction.as_ref().is_some_and(|t| t.is_started());
            // The copy waits for what this transaction has written.
            let is_waited_for = session.wrote.iter().any(|table| catalog.copies.closes(*table));
            if is_open && (is_waited_for || started.elapsed() > PATIENCE) {
                self.end_transaction(session, false).await?;
                return Err(errors::from_code(ErrorCode::Deadlock, ""));
            }
            if started.elapsed() > Duration::from_secs(session.env.variables.definition_wait) {
                return Err(errors::from_code(ErrorCode::LockTimeout, ""));
            }
            tokio::time::sleep(PAUSE).await;
            if looked.elapsed() > LOOK {
                looked = tokio::time::Instant::now();
                self.give_up_abandoned(&catalog).await?;
                catalog = self.fetch_catalog().await?;
            } else {
                catalog = self.catalog().await?;
            }
        }
        Ok(())
    }

    /// Gives up the copies whose makers are dead.
    pub(crate) async fn give_up_abandoned(&self, catalog: &Catalog) -> Result<()> {
        let counters = catalog.counters()?;
        for copy in catalog.copies.hidden() {
            let Some(number) = number(&copy.schema.name) else { continue };
            // What cannot be told now is for the next one.
            if let Ok(Some(_guard)) = self.guard(counters, number).await {
                self.give_up(&copy.schema.database, number).await?;
            }
        }
        Ok(())
    }

    /// Takes a copy back: the table is as it was, and may be written. Returns whether it is too late, because the statement is in effect.
    pub(crate) async fn give_up(&self, database: &str, number: u16) -> Result<bool> {
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.read_catalog().await?;
            let Some(copy) = catalog.copies.find(database, number) else { return Ok(false) };
            let schema = &copy.schema;
            let name = TableName { database: database.to_owned(), table: schema.name.clone(), version: schema.version };
            let Some((mark, key)) = Mark::of(schema) else { return Ok(false) };
            if catalog.copies.is_final(mark) {
                self.finish_copies(catalog.clone()).await?;
                return Ok(true);
            }
            let original = catalog.find(&key.parent_database, &key.parent_table);
            let step = match original.filter(|t| mark.is_ready && t.schema.id == mark.original) {
                Some(original) => {
                    let filling = Mark { is_ready: false, ..mark };
                    mark_change(schema, filling.key(schema, &original.schema), mark)
                }
                None => Change::DropTable(name),
            };
            self.change(step).await?;
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, database))
    }
}

/// Another mark for a copy.
pub fn mark_change(copy: &TableSchema, to: ForeignKeyMessage, from: Mark) -> Change {
    let name = TableName { database: copy.database.clone(), table: copy.name.clone(), version: copy.version };
    Change::ChangeForeignKeys(ForeignKeysChange {
        table: Some(name),
        id: copy.id.0,
        version: copy.version,
        drop: vec![from.name()],
        add: vec![to],
    })
}

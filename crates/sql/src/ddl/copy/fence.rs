//! How others see a table that is being copied, and how a copy comes to its end whoever dies.
//!
//! The copy is a table `#alter#N`. While it follows the table that is copied ([`super::follow`]) nobody minds it. To close that table the copy gets a foreign key of a name that no statement can say, [`Mark`], which refers to it. That gives the table a new version, which
//! data nodes require of whoever reads or writes its rows from then on (`Held::since`): so a SQL node that does not know of the mark is refused and fetches the dictionary, and one that knows of it lets
//! nobody write or lock ([`SqlEngine::wait_for_copies`]). The key and the new version are one change of the dictionary; if the copy is dropped the key goes with it, and
//! the table has yet another version. So there is no moment at which the mark is there and somebody may write who does not know of it.
//!
//! The key has three names. `#closing#N#T`: transactions that have worked with the table may go on, all others wait; T is the id of the table that is copied. `#filling#N#T`: nobody writes, and rows are copied. `#ready#N#T`: all are. Dropping the table *by its version* is the moment at which the
//! statement takes effect. Before it, whoever finds that the maker is dead ([`SqlEngine::guard`] can be had) makes a ready copy a filling one again, which is refused once the table is gone, and drops it. After it,
//! whoever reads the dictionary gives the copy the name of the table, then the table its foreign keys. All these changes name the versions that were looked at, so of two that exclude each other one is refused.

use std::{rc::Rc, time::Duration};

use apus_signal::{
    dict::{Change, TableName},
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
};
use apus_types::{ErrorCode, TableId, TableSchema, eras};

use crate::{
    catalog::{
        Catalog, Table,
        copies::{ATTEMPTS_MAX, Mark, Stage, is_closed_for, number},
    },
    errors::{self, Result},
    plan::Plan,
    session::{Session, engine::SqlEngine},
    variables::isolation::Isolation,
};

use super::Failed;

/// Between two looks at whether the copy is still there: the first pause, which doubles, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Between two looks at whether its maker lives.
const LOOK: Duration = Duration::from_secs(1);
/// How long a transaction that may hold what the copy waits for, by locks, waits for the copy.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a plan changes or locks rows of a table that is closed because it is being copied, or of one that its rows are held to.
pub fn is_closed(catalog: &Catalog, plan: &Plan, worked: &[TableId]) -> bool {
    let is_read = catalog.copies.are_none() || !plan.changes_or_locks();
    !is_read && is_closed_for(catalog, plan.tables().map(|table| table.schema.id).collect(), worked)
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
    // Nobody else changes a temporary table, and in a transaction its own session does not change its definition.
    for table in plan.tables().filter(|table| !table.is_temporary()) {
        let schema = &table.schema;
        if known.permanent().find(&schema.database, &schema.name).is_some_and(|before| before.schema.id != schema.id) {
            return Err(errors::definition_changed());
        }
    }
    Ok(())
}

/// A table and its copy, through the changes that this statement makes of the mark. Any other change of the table's definition, and a start of the cluster from its disks, is found.
pub struct Pair<'o> {
    pub old: &'o TableSchema,
    number: u16,
    lineage: u64,
    /// Of the table, after the last change that was ours.
    version: u32,
}

/// Both as the dictionary has them.
pub struct Sides {
    pub catalog: Rc<Catalog>,
    pub table: Rc<Table>,
    pub copy: Rc<Table>,
}

impl<'o> Pair<'o> {
    /// `marked`: the version of the dictionary in which the table has a version for the copy, if it was made with a mark.
    pub fn new(before: &Catalog, old: &'o TableSchema, number: u16, marked: Option<u64>) -> Pair<'o> {
        let version = marked.map_or(old.version, |dictionary| eras::table_version(dictionary, old.version));
        Pair { old, number, lineage: before.lineage, version }
    }

    fn sides(&self, catalog: Rc<Catalog>) -> std::result::Result<Sides, Failed> {
        let is_it = |table: &Rc<Table>| table.schema.id == self.old.id && table.schema.version == self.version;
        let table = catalog.find(&self.old.database, &self.old.name).filter(is_it);
        let copy = catalog.copies.find(&self.old.database, self.number).cloned();
        match (table, copy) {
            // Started from the disks in between, the cluster may have lost what was copied.
            (Some(table), Some(copy)) if catalog.lineage == self.lineage => Ok(Sides { catalog, table, copy }),
            _ => Err(Failed::overtaken(&self.old.name)),
        }
    }
}

impl SqlEngine {
    pub(super) async fn look_at(&self, pair: &Pair<'_>) -> std::result::Result<Sides, Failed> {
        pair.sides(self.fetch_catalog().await?)
    }

    /// Gives the copy another mark, or takes it away.
    pub(super) async fn mark(&self, pair: &mut Pair<'_>, stage: Option<Stage>) -> std::result::Result<Sides, Failed> {
        let Sides { table, copy, .. } = self.look_at(pair).await?;
        let original = table.schema.id;
        let to = stage.map(|stage| Mark { stage, number: pair.number, original }.key(&copy.schema, &table.schema));
        let Ok(marked) = self.change_to(mark_change(&copy.schema, to)).await? else {
            return Err(Failed::overtaken(&pair.old.name));
        };
        let catalog = self.fetch_catalog().await?;
        // A new mark gives the table a version. The end of the last one does if nobody else refers to the table: then it says so.
        let now = catalog.find(&pair.old.database, &pair.old.name);
        let is_free = now.is_some_and(|now| !now.schema.held.is_referenced);
        if stage.is_some() || is_free {
            pair.version = eras::table_version(marked, pair.version);
        }
        pair.sides(catalog)
    }

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
        let mut pause = PAUSE;
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
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
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
            let Some((mark, key)) = Mark::of(schema) else {
                self.change(Change::DropTable(name)).await?;
                continue;
            };
            if catalog.copies.is_final(mark) {
                self.finish_copies(catalog.clone()).await?;
                return Ok(true);
            }
            let original = catalog.find(&key.parent_database, &key.parent_table);
            let step = match original.filter(|t| mark.stage == Stage::Ready && t.schema.id == mark.original) {
                Some(original) => {
                    let filling = Mark { stage: Stage::Filling, ..mark };
                    mark_change(schema, Some(filling.key(schema, &original.schema)))
                }
                None => Change::DropTable(name),
            };
            self.change(step).await?;
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, database))
    }
}

/// Another mark for a copy, or none.
pub fn mark_change(copy: &TableSchema, to: Option<ForeignKeyMessage>) -> Change {
    let name = TableName { database: copy.database.clone(), table: copy.name.clone(), version: copy.version };
    Change::ChangeForeignKeys(ForeignKeysChange {
        table: Some(name),
        id: copy.id.0,
        version: copy.version,
        drop: Mark::of(copy).map(|(mark, _)| mark.name()).into_iter().collect(),
        add: to.into_iter().collect(),
    })
}

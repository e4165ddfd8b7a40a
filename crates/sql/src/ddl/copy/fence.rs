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

use std::{collections::BTreeSet, rc::Rc, time::Duration};

use apus_signal::{
    dict::{Change, RenameTable, TableName},
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
};
use apus_types::{ErrorCode, TableId, TableSchema, foreign_key::ForeignKey};

use crate::{
    catalog::{Catalog, Table},
    errors::{self, Result},
    plan::Plan,
    session::{Session, characteristics::Isolation, engine::SqlEngine},
};

/// What the name of a copy begins with.
pub const MARK: &str = "#alter#";
const FILLING: &str = "#filling#";
const READY: &str = "#ready#";
/// What the name of a foreign key begins with that the table will have.
const KEPT: &str = "#kept#";
/// Attempts of a change that meets another.
const ATTEMPTS_MAX: u32 = 50;
/// Between two looks at whether the copy is still there.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two looks at whether its maker lives.
const LOOK: Duration = Duration::from_secs(1);
/// How long a transaction that may hold what the copy waits for, by locks, waits for the copy.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the key of a copy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub is_ready: bool,
    pub number: u16,
    /// The table that is copied.
    pub original: TableId,
}

impl Mark {
    pub fn name(self) -> String {
        let front = if self.is_ready { READY } else { FILLING };
        format!("{front}{}#{}", self.number, self.original.0)
    }
    fn read(name: &str) -> Option<Mark> {
        let is_ready = name.starts_with(READY);
        let (number, original) = name.strip_prefix(if is_ready { READY } else { FILLING })?.split_once('#')?;
        Some(Mark { is_ready, number: number.parse().ok()?, original: TableId(original.parse().ok()?) })
    }
    pub fn of(copy: &TableSchema) -> Option<(Mark, &ForeignKey)> {
        copy.foreign_keys.iter().find_map(|key| Some((Mark::read(&key.name)?, key)))
    }
    /// The key itself, of a copy, for the original as it is.
    pub fn key(self, copy: &TableSchema, original: &TableSchema) -> ForeignKeyMessage {
        let column = |t: &TableSchema| t.primary_key.first().copied().unwrap_or(0);
        let key = ForeignKey {
            name: self.name(),
            columns: vec![column(copy)],
            parent_database: original.database.clone(),
            parent_table: original.name.clone(),
            parent_columns: vec![original.columns[usize::from(column(original))].name.clone()],
            on_delete: Default::default(),
            on_update: Default::default(),
            matching: Default::default(),
            created: 0,
            unchecked: true,
        };
        let (parent_id, parent_version) = (original.id.0, original.version);
        ForeignKeyMessage { parent_id, parent_version, ..ForeignKeyMessage::from(&key) }
    }
}

/// The number of a copy, by the name of its table.
pub fn number(name: &str) -> Option<u16> {
    name.strip_prefix(MARK)?.parse().ok()
}

/// The name under which a copy keeps a foreign key of the table: names of keys are taken once in a database.
pub fn kept_name(number: u16, key: &str) -> String {
    format!("{KEPT}{number}#{key}")
}

fn own_name(name: &str) -> Option<&str> {
    name.strip_prefix(KEPT)?.split_once('#').map(|(_, own)| own)
}

/// Copies and what they stand for, of a dictionary.
#[derive(Default, Debug)]
pub struct Copies {
    /// Under names that nobody sees.
    hidden: Vec<Rc<Table>>,
    /// That have their names, but not their foreign keys.
    named: Vec<TableSchema>,
    ids: BTreeSet<TableId>,
}

impl Copies {
    /// Looks at a definition, and takes what only a copy has out of it. Whether it is a copy, that users do not see.
    pub fn sort(&mut self, schema: &mut TableSchema) -> bool {
        self.ids.insert(schema.id);
        if number(&schema.name).is_some() {
            return true;
        }
        if Mark::of(schema).is_some() {
            self.named.push(schema.clone());
            schema.foreign_keys.retain(|key| !key.name.starts_with('#'));
        }
        false
    }
    pub fn put(&mut self, copy: Rc<Table>) {
        self.hidden.push(copy);
    }
    pub fn find(&self, database: &str, number: u16) -> Option<&Rc<Table>> {
        let is_it = |t: &&Rc<Table>| t.schema.database == database && self::number(&t.schema.name) == Some(number);
        self.hidden.iter().find(is_it)
    }
    pub fn hidden(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.hidden.iter()
    }
    pub fn are_none(&self) -> bool {
        self.hidden.is_empty() && self.named.is_empty()
    }
    /// The copy has taken the place of its original.
    fn is_final(&self, mark: Mark) -> bool {
        mark.is_ready && !self.ids.contains(&mark.original)
    }
    /// Some copy has taken the place of its original, and is not finished.
    pub fn are_pending(&self) -> bool {
        let is_final = |copy: &Rc<Table>| Mark::of(&copy.schema).is_some_and(|(mark, _)| self.is_final(mark));
        !self.are_none() && (!self.named.is_empty() || self.hidden.iter().any(is_final))
    }
    /// Nobody may write this table.
    fn closes(&self, table: TableId) -> bool {
        let is_of = |copy: &&Rc<Table>| Mark::of(&copy.schema).is_some_and(|(mark, _)| mark.original == table);
        self.hidden.iter().any(|copy| is_of(&copy)) || self.named.iter().any(|t| t.id == table)
    }

    /// The next change that brings a copy to its end that is in effect.
    fn next_step(&self, catalog: &Catalog, attempt: u32) -> Option<Change> {
        for copy in &self.hidden {
            let schema = &copy.schema;
            let Some((_, key)) = Mark::of(schema).filter(|(mark, _)| self.is_final(*mark)) else { continue };
            let name =
                |version| TableName { database: key.parent_database.clone(), table: key.parent_table.clone(), version };
            // Made in the moment at which there was none of its name. Nobody could write it.
            if let Some(other) = catalog.find(&key.parent_database, &key.parent_table) {
                return Some(Change::DropTable(name(other.schema.version)));
            }
            let from =
                TableName { database: schema.database.clone(), table: schema.name.clone(), version: schema.version };
            return Some(Change::RenameTable(RenameTable { from: Some(from), to: Some(name(0)) }));
        }
        self.named.first().map(|table| keys_change(catalog, table, attempt))
    }
}

/// Gives a table the foreign keys that its copy kept, under their own names.
fn keys_change(catalog: &Catalog, table: &TableSchema, attempt: u32) -> Change {
    let drop = table.foreign_keys.iter().filter(|key| key.name.starts_with('#')).map(|key| key.name.clone());
    let add = table.foreign_keys.iter().filter_map(|key| {
        let own = own_name(&key.name)?;
        // Somebody has taken the name since, for a key of another table.
        let name = if attempt > ATTEMPTS_MAX / 2 { format!("{own}_{attempt}") } else { own.to_owned() };
        let parent = catalog.find(&key.parent_database, &key.parent_table);
        let (parent_id, parent_version) = parent.map_or((0, 0), |p| (p.schema.id.0, p.schema.version));
        Some(ForeignKeyMessage { name, parent_id, parent_version, ..ForeignKeyMessage::from(key) })
    });
    let name = TableName { database: table.database.clone(), table: table.name.clone(), version: 0 };
    Change::ChangeForeignKeys(ForeignKeysChange {
        table: Some(name),
        id: table.id.0,
        version: table.version,
        drop: drop.collect(),
        add: add.collect(),
    })
}

/// Whether a plan changes or locks rows of a table that is being copied, or of one that its rows are held to.
pub fn is_closed(catalog: &Catalog, plan: &Plan) -> bool {
    let is_read = catalog.copies.are_none() || !plan.changes_or_locks();
    !is_read && has_closed(catalog, plan.tables().map(|table| table.schema.id).collect())
}

/// Whether rows of these tables may not be changed, or those of others that follow.
pub fn has_closed(catalog: &Catalog, tables: Vec<TableId>) -> bool {
    if catalog.copies.are_none() {
        return false;
    }
    let mut open = tables;
    let mut seen: BTreeSet<TableId> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        let Some(rules) = catalog.rules(id) else { continue };
        for child in rules.children.iter().map(|reference| reference.child.schema.id) {
            if seen.insert(child) {
                open.push(child);
            }
        }
    }
    let parents: Vec<TableId> = seen
        .iter()
        .filter_map(|id| catalog.rules(*id))
        .flat_map(|rules| rules.parents.clone())
        .filter_map(|reference| reference.parent.as_ref().map(|parent| parent.table.schema.id))
        .collect();
    seen.iter().chain(&parents).any(|id| catalog.copies.closes(*id))
}

/// Whether a table of this name is being copied.
pub fn is_copied(catalog: &Catalog, database: &str, name: &str) -> bool {
    !catalog.copies.are_none()
        && catalog.find(database, name).is_some_and(|table| catalog.copies.closes(table.schema.id))
}

/// Whether something in a database is being copied.
pub fn is_copied_in(catalog: &Catalog, database: &str) -> bool {
    catalog.tables_of(database).any(|table| catalog.copies.closes(table.schema.id))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_stand_for() {
        for is_ready in [false, true] {
            let mark = Mark { is_ready, number: 7, original: TableId(12) };
            assert_eq!(Mark::read(&mark.name()), Some(mark));
        }
        assert_eq!(Mark::read("#filling#7"), None);
        assert_eq!([number("#alter#17"), number("#alter#"), number("#made#1")], [Some(17), None, None]);
        assert_eq!(own_name(&kept_name(3, "t#ibfk_1")), Some("t#ibfk_1"));
    }
}

//! ALTER TABLE that writes the rows anew: another type of a column, NOT NULL, another primary key, a character set, options, and whatever `alter` cannot do to a table with rows.
//!
//! The new definition is made as a table aside ([`define`], [`fence`]), the rows are copied into it ([`rows`]), and it takes the place of the old one. Meanwhile others read the table and nobody writes it. A
//! statement that fails drops the copy, and the table is as it was. See docs/decisions/0032-tables-copied-by-alter.md.

mod define;
pub mod fence;
mod rows;
mod whole;

use std::{pin::pin, rc::Rc};

use apus_signal::{
    dict::{Change, TableName},
    foreign_key::ForeignKeyMessage,
    schema::TableMessage,
};
use apus_types::{ErrorCode, TableSchema};

use self::define::Remade;
use super::alter::AlterClause;
use crate::{
    catalog::{
        Catalog, Table,
        copies::{self, MARK, Mark},
    },
    errors::{self, Result},
    session::{Session, engine::SqlEngine},
    wire::SqlError,
};
pub use whole::Whole;

/// Attempts of a statement that others, or failing nodes, get in the way of.
const ATTEMPTS_MAX: u32 = 10;

/// Why an attempt ended.
pub struct Failed {
    error: SqlError,
    /// It may go the next time.
    again: bool,
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Failed {
        Failed { error, again: false }
    }
}

impl Failed {
    /// Somebody else has changed what this attempt goes by.
    fn overtaken(table: &str) -> Failed {
        Failed { error: errors::from_code(ErrorCode::SchemaVersionChanged, table), again: true }
    }
}

impl SqlEngine {
    /// How many rows were copied, where MySQL copies them, too.
    pub(crate) async fn remake(&self, session: &mut Session, name: &TableName, clause: &AlterClause) -> Result<u64> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            self.wait_for_copies(session, |catalog| copies::is_copied(catalog, &name.database, &name.table)).await?;
            session.clear_warnings();
            match pin!(self.remake_once(session, name, clause)).await {
                Ok(rows) => return Ok(rows),
                Err(failed) if !failed.again || attempt == ATTEMPTS_MAX => return Err(failed.error),
                Err(_) => {}
            }
        }
    }

    async fn remake_once(
        &self,
        session: &mut Session,
        name: &TableName,
        clause: &AlterClause,
    ) -> std::result::Result<u64, Failed> {
        let catalog = self.fetch_catalog().await?;
        let old = catalog.table(&name.database, &name.table)?;
        let read_again = clause.read_again(&old.schema)?;
        let read = read_again.as_ref().unwrap_or(clause);
        let counted = read.whole.is_copied_by_mysql(&old.schema, read);
        let remade = define::remade(session, &catalog, &old.schema, (clause, read))?;
        read.whole.check_way(&old.schema, read)?;
        let counters = catalog.counters()?;
        self.drop_abandoned(&catalog, counters).await?;
        let guard = self.new_guard(session, counters).await?;
        let copy = message(&catalog, &old.schema, &remade, guard.number);
        match self.change(Change::CreateTable(copy)).await? {
            None => {}
            // Its maker is dead, since its guard is ours.
            Some(ErrorCode::TableExists) => {
                self.give_up(&name.database, guard.number).await?;
                return Err(Failed::overtaken(&name.table));
            }
            Some(ErrorCode::SchemaVersionChanged) => return Err(Failed::overtaken(&name.table)),
            Some(code) => return Err(errors::from_code(code, &name.table).into()),
        }
        let place = (guard.number, guard.on_disk);
        let done = pin!(self.fill_and_swap(session, &old, &remade, place, counted)).await;
        let Err(failed) = done else {
            let first = read.whole.auto_increment;
            let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
            if let Some(first) = first {
                self.start_counter(&table.schema, first).await?;
            }
            return done.map(|rows| if counted { rows } else { 0 });
        };
        if self.give_up(&name.database, guard.number).await? {
            // The answer was lost, not the change.
            return Ok(0);
        }
        Err(failed)
    }

    /// Copies the rows, and puts the copy into the place of the table.
    async fn fill_and_swap(
        &self,
        session: &mut Session,
        old: &Rc<Table>,
        remade: &Remade,
        (number, on_disk): (u16, bool),
        counted: bool,
    ) -> std::result::Result<u64, Failed> {
        let overtaken = || Failed::overtaken(&old.schema.name);
        let catalog = self.fetch_catalog().await?;
        let copy = catalog.copies.find(&old.schema.database, number).cloned().ok_or_else(overtaken)?;
        let closed = next_version(&catalog, &old.schema, 1).ok_or_else(overtaken)?;
        self.check_no_claims(old.schema.id).await?;
        let mut named = copy.schema.clone();
        named.name.clone_from(&old.schema.name);
        let new = Rc::new(Table::new(named, copy.hidden.clone()));
        let (zeros, keeps_zeros) = (session.env.variables.no_auto_value_on_zero, keeps_zeros(&old.schema, remade));
        session.env.variables.no_auto_value_on_zero |= keeps_zeros;
        let copying = rows::Copying { old: &closed, new, remade, on_disk, names_row: counted };
        let copied = pin!(self.copy_rows(session, &catalog, &copying)).await;
        session.env.variables.no_auto_value_on_zero = zeros;
        let copied = copied?;
        self.swap(&catalog, &old.schema, &copy.schema).await?;
        Ok(copied)
    }

    async fn swap(&self, before: &Catalog, old: &TableSchema, copy: &TableSchema) -> std::result::Result<(), Failed> {
        let overtaken = || Failed::overtaken(&old.name);
        let catalog = self.fetch_catalog().await?;
        let closed = next_version(&catalog, old, 1).ok_or_else(overtaken)?;
        // Started from the disks in between, the cluster may have lost what was copied.
        if catalog.lineage != before.lineage {
            return Err(overtaken());
        }
        let (mark, _) = Mark::of(copy).ok_or_else(overtaken)?;
        let ready = Mark { is_ready: true, ..mark };
        let change = fence::mark_change(copy, ready.key(copy, &closed.schema), mark);
        if self.change(change).await?.is_some() {
            return Err(overtaken());
        }
        let catalog = self.fetch_catalog().await?;
        let closed = next_version(&catalog, old, 2).ok_or_else(overtaken)?;
        if catalog.lineage != before.lineage {
            return Err(overtaken());
        }
        let name =
            TableName { database: old.database.clone(), table: old.name.clone(), version: closed.schema.version };
        match self.change(Change::DropTable(name)).await? {
            None => self.fetch_catalog().await.map(|_| ()).map_err(Failed::from),
            Some(_) => Err(overtaken()),
        }
    }
}

/// The table, if nothing but so many marks have come to it.
fn next_version(catalog: &Catalog, old: &TableSchema, marks: u32) -> Option<Rc<Table>> {
    let is_it = |table: &Rc<Table>| table.schema.id == old.id && table.schema.version == old.version + marks;
    catalog.find(&old.database, &old.name).filter(is_it)
}

/// Values 0 of a column that counts stay if it counted before.
fn keeps_zeros(old: &TableSchema, remade: &Remade) -> bool {
    let counts = |from: &Option<u16>| from.is_some_and(|c| old.columns[usize::from(c)].auto_increment);
    remade.table.columns.iter().zip(&remade.from).any(|(column, from)| column.auto_increment && counts(from))
}

/// The definition of the copy: it has the name that nobody sees, its mark, and the foreign keys under other names.
fn message(catalog: &Catalog, old: &TableSchema, remade: &Remade, number: u16) -> TableMessage {
    let mut copy = remade.table.clone();
    copy.name = format!("{MARK}{number}");
    let kept = remade.foreign_keys.iter().map(|key| {
        let parent = catalog.find(&key.parent_database, &key.parent_table);
        let (parent_id, parent_version) = parent.map_or((0, 0), |p| (p.schema.id.0, p.schema.version));
        let name = copies::kept_name(number, &key.name);
        ForeignKeyMessage { name, parent_id, parent_version, ..ForeignKeyMessage::from(key) }
    });
    let mark = Mark { is_ready: false, number, original: old.id }.key(&copy, old);
    TableMessage { foreign_keys: kept.chain([mark]).collect(), ..TableMessage::from(&copy) }
}

//! ALTER TABLE that writes the rows anew: another type of a column, NOT NULL, another primary key, a character set, options, and whatever `alter` cannot do to a table with rows.
//!
//! The new definition is made as a table aside ([`define`], [`fence`]), the rows are copied into it, and it takes the place of the old one. Others read and write the table meanwhile, and the copy follows it ([`follow`]);
//! for the last bit nobody writes. Where a copy cannot follow, nobody writes while rows are copied ([`rows`]). A statement that fails drops the copy, and the table is as it was.
//! See docs/decisions/0032-tables-copied-by-alter.md.

mod abandoned;
mod define;
pub mod fence;
mod follow;
mod rows;
mod whole;

use std::{pin::pin, rc::Rc};

use apus_signal::{
    dict::{Change, TableName},
    foreign_key::ForeignKeyMessage,
    schema::TableMessage,
};
use apus_types::{ErrorCode, TableSchema};

use self::{
    define::Remade,
    fence::{Pair, Sides},
    rows::Copying,
};
use super::alter::alter_clause::AlterClause;
use crate::{
    catalog::{
        Catalog, Table,
        copies::{self, MARK, Mark, Stage},
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
    /// What the copy follows cannot be kept for so long: rows are to be copied while nobody writes.
    cannot_follow: bool,
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Failed {
        Failed { error, again: false, cannot_follow: false }
    }
}

impl Failed {
    /// Somebody else has changed what this attempt goes by.
    fn overtaken(table: &str) -> Failed {
        Failed { again: true, ..errors::from_code(ErrorCode::SchemaVersionChanged, table).into() }
    }
}

impl SqlEngine {
    /// How many rows were copied, where MySQL copies them, too.
    pub(crate) async fn remake(&self, session: &mut Session, name: &TableName, clause: &AlterClause) -> Result<u64> {
        let (mut attempt, mut may_follow) = (0, true);
        loop {
            attempt += 1;
            self.wait_for_copies(session, |catalog| copies::is_copied(catalog, &name.database, &name.table)).await?;
            session.clear_warnings();
            match pin!(self.remake_once(session, name, clause, may_follow)).await {
                Ok(rows) => return Ok(rows),
                Err(failed) if !failed.again || attempt == ATTEMPTS_MAX => return Err(failed.error),
                Err(failed) => may_follow &= !failed.cannot_follow,
            }
        }
    }

    async fn remake_once(
        &self,
        session: &mut Session,
        name: &TableName,
        clause: &AlterClause,
        may_follow: bool,
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
        let follows = may_follow && follow::can_follow(&old.schema, &remade);
        let copy = message(&catalog, &old.schema, &remade, guard.number, !follows);
        let made = match self.change_to(Change::CreateTable(copy)).await? {
            Ok(version) => version,
            // Its maker is dead, since its guard is ours.
            Err(ErrorCode::TableExists) => {
                self.give_up(&name.database, guard.number).await?;
                return Err(Failed::overtaken(&name.table));
            }
            Err(ErrorCode::SchemaVersionChanged) => return Err(Failed::overtaken(&name.table)),
            Err(code) => return Err(errors::from_code(code, &name.table).into()),
        };
        let mut pair = Pair::new(&catalog, &old.schema, guard.number, (!follows).then_some(made));
        let (zeros, keeps_zeros) = (session.env.variables.no_auto_value_on_zero, keeps_zeros(&old.schema, &remade));
        session.env.variables.no_auto_value_on_zero |= keeps_zeros;
        let how = How { remade: &remade, on_disk: guard.on_disk, counted };
        let done = match follows {
            true => pin!(self.follow_and_swap(session, &mut pair, &how)).await,
            false => pin!(self.fill_and_swap(session, &mut pair, &how)).await,
        };
        session.env.variables.no_auto_value_on_zero = zeros;
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

    /// Copies the rows while nobody writes, and puts the copy into the place of the table.
    async fn fill_and_swap(
        &self,
        session: &mut Session,
        pair: &mut Pair<'_>,
        how: &How<'_>,
    ) -> std::result::Result<u64, Failed> {
        let sides = self.look_at(pair).await?;
        self.check_no_claims(pair.old.id).await?;
        let copied = pin!(self.copy_rows(session, &sides.catalog, &how.copying(&sides))).await?;
        self.swap(pair).await?;
        Ok(copied)
    }

    /// The copy has all rows, and nobody writes the table.
    async fn swap(&self, pair: &mut Pair<'_>) -> std::result::Result<(), Failed> {
        let Sides { table, .. } = self.mark(pair, Some(Stage::Ready)).await?;
        let TableSchema { database, name, version, .. } = &table.schema;
        let name = TableName { database: database.clone(), table: name.clone(), version: *version };
        match self.change(Change::DropTable(name)).await? {
            None => self.fetch_catalog().await.map(|_| ()).map_err(Failed::from),
            Some(_) => Err(Failed::overtaken(&pair.old.name)),
        }
    }
}

/// What the statement asks for.
struct How<'r> {
    remade: &'r Remade,
    /// Commits can wait for disks.
    on_disk: bool,
    /// MySQL copies the rows, too, and counts them.
    counted: bool,
}

impl How<'_> {
    fn copying<'c>(&'c self, sides: &'c Sides) -> Copying<'c> {
        let mut named = sides.copy.schema.clone();
        named.name.clone_from(&sides.table.schema.name);
        let new = Rc::new(Table::new(named, sides.copy.hidden.clone()));
        Copying { old: &sides.table, new, remade: self.remade, on_disk: self.on_disk, names_row: self.counted }
    }
}

/// Values 0 of a column that counts stay if it counted before.
fn keeps_zeros(old: &TableSchema, remade: &Remade) -> bool {
    let counts = |from: &Option<u16>| from.is_some_and(|c| old.columns[usize::from(c)].auto_increment);
    remade.table.columns.iter().zip(&remade.from).any(|(column, from)| column.auto_increment && counts(from))
}

/// The definition of the copy: it has the name that nobody sees, the foreign keys under other names, and its mark if the table is closed from now on.
fn message(catalog: &Catalog, old: &TableSchema, remade: &Remade, number: u16, closes: bool) -> TableMessage {
    let mut copy = remade.table.clone();
    copy.name = format!("{MARK}{number}");
    let kept = remade.foreign_keys.iter().map(|key| {
        let parent = catalog.find(&key.parent_database, &key.parent_table);
        let (parent_id, parent_version) = parent.map_or((0, 0), |p| (p.schema.id.0, p.schema.version));
        let name = copies::kept_name(number, &key.name);
        ForeignKeyMessage { name, parent_id, parent_version, ..ForeignKeyMessage::from(key) }
    });
    let mark = closes.then(|| Mark { stage: Stage::Filling, number, original: old.id }.key(&copy, old));
    TableMessage { foreign_keys: kept.chain(mark).collect(), ..TableMessage::from(&copy) }
}

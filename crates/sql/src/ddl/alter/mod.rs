//! ALTER TABLE: columns come, go, move and change their names and defaults by one change of the dictionary that touches no row (`apus_types::form`); indexes
//! are made and dropped one by one.
//!
//! All changes of columns in a statement, and the indexes that go, are one change. Indexes that come follow it. Should one of them be refused, columns that
//! were only added go again; a statement that also takes columns away and makes a unique index is refused beforehand, because it could not be undone.
//!
//! What needs another form of the rows that are there (an integer becomes wider, NULL is forbidden, another collation of an indexed column), other primary keys, AUTO_INCREMENT for an
//! old column: whatever is refused here with error 1235 is done by [`super::copy`], which copies the table. Constraints and columns with expressions are in [`rules`].

pub mod alter_clause;
pub(crate) mod columns;

use apus_signal::{
    dict::{Change, ColumnsChange, TableName},
    schema::{SourceMessage, column_to_wire},
};
use apus_types::{
    Column, ErrorCode, TableSchema,
    form::Source,
    rules::{CheckDef, Enforced},
};

use self::{
    alter_clause::{AlterClause, Step},
    columns::{Work, given, refused_in_rows},
};
use super::{
    default_dates,
    rules::{self, alter::CheckStep},
};
use crate::{
    catalog::{Table, full_text, visibility},
    errors::{self, Result},
    session::{Session, engine::SqlEngine},
    wire::SqlError,
};

/// Attempts of a change that meets another change of the same table.
const ATTEMPTS_MAX: u32 = 20;

/// The change of this table; `None`: the columns stay as they are.
pub(crate) fn change(
    session: &Session,
    name: &TableName,
    table: &TableSchema,
    clause: &AlterClause,
) -> Result<Option<ColumnsChange>> {
    if clause.steps.is_empty() && clause.drops.is_empty() && clause.full_texts.is_empty() {
        return Ok(None);
    }
    if clause.must_copy() {
        return Err(errors::not_supported("ALTER TABLE of a key or an option without a copy of the table"));
    }
    let mut work = Work::new(table, clause, false)?;
    let filled: Vec<&String> = clause.filled()?.iter().map(|column| &column.name).collect();
    let (mut shown, mut hidden) = steps(session, table, clause, &mut work, &filled)?;
    visibility::check_columns(work.columns.iter().map(|(column, _)| column))?;
    let full_texts = {
        let (added, dropped) = (clause.full_texts.as_slice(), work.drop_indexes.as_slice());
        let changes = full_text::Changes { added, dropped, shown: &shown, hidden: &hidden };
        full_text::altered(table, &work.columns, &changes)?
    };
    for names in [&mut shown, &mut hidden, &mut work.drop_indexes] {
        names.retain(|name| !full_text::has(table, name));
    }
    let mut checks = work.rules.finish(table, &mut work.columns)?;
    if !filled.is_empty() {
        // They come when the columns have their names.
        checks = None;
        for (column, _) in work.columns.iter_mut().filter(|(c, _)| filled.contains(&&c.name)) {
            *column = rules::fill::hidden(column.clone());
        }
    }
    Ok(Some(ColumnsChange {
        table: Some(name.clone()),
        id: table.id.0,
        version: table.version,
        columns: work.columns.iter().map(|(column, _)| column_to_wire(column)).collect(),
        sources: work.columns.iter().map(|(_, source)| SourceMessage::from(source)).collect(),
        drop_indexes: work.drop_indexes,
        checks: checks.as_deref().map(rules::alter::to_wire),
        visible_indexes: shown,
        invisible_indexes: hidden,
        lineage: None,
        full_texts,
        triggers: None,
    }))
}

/// Carries out what is said of columns; the indexes that are shown from now on, and those that are hidden.
fn steps(
    session: &Session,
    table: &TableSchema,
    clause: &AlterClause,
    work: &mut Work<'_>,
    filled: &[&String],
) -> Result<(Vec<String>, Vec<String>)> {
    let (mut shown_indexes, mut hidden_indexes) = (Vec::new(), Vec::new());
    for step in &clause.steps {
        match step {
            Step::Add(column, place) => {
                work.refuse_twin(&column.name)?;
                let is_later = work.copies || filled.contains(&&column.name);
                let source = if is_later { Source::Null } else { given(session, table, column)? };
                let end = work.end();
                work.put(column.clone(), source, place, end)?;
            }
            Step::Drop(name) => work.drop(name)?,
            Step::Redefine(name, column, place) => work.redefine(name, column.clone(), place)?,
            Step::Rename(old, new) => work.rename(old, new)?,
            Step::Default(name, default) => {
                work.set_default(name, default)?;
                let at = work.find(name)?;
                default_dates::check(&session.env, &mut work.columns[at].0)?;
            }
            Step::Check(_) => {}
            Step::ShowColumn(name, invisible) => {
                let at = work.find(name)?;
                work.columns[at].0.invisible = *invisible;
            }
            Step::ShowIndex(name, invisible) => {
                visibility::check_alter(table, name, *invisible)?;
                let is_primary = name.eq_ignore_ascii_case("primary");
                let list = if *invisible { &mut hidden_indexes } else { &mut shown_indexes };
                list.extend((!is_primary).then(|| name.clone()));
            }
        }
    }
    Ok((shown_indexes, hidden_indexes))
}

/// What a table consists of when its rows are written anew.
pub(crate) struct Anew {
    /// Each with the column that its values come from; none: it is new.
    pub columns: Vec<(Column, Option<u16>)>,
    pub checks: Vec<CheckDef>,
    pub drop_indexes: Vec<String>,
    /// Indexes that are shown from now on, and those that are hidden.
    pub shown: (Vec<String>, Vec<String>),
}

/// The columns and constraints that the statement makes of a table, however rows store them.
pub(crate) fn anew(session: &Session, table: &TableSchema, clause: &AlterClause) -> Result<Anew> {
    let mut work = Work::new(table, clause, true)?;
    work.columns.retain(|(column, _)| !rules::fill::is_unfinished(column));
    let shown = steps(session, table, clause, &mut work, &[])?;
    let mut checks = work.rules.finish(table, &mut work.columns)?.unwrap_or_else(|| table.checks.clone());
    // All rows are looked at while they are copied.
    for check in checks.iter_mut().filter(|check| check.enforced == Enforced::Validating) {
        check.enforced = Enforced::Yes;
    }
    let from = |source: Source| if let Source::Kept(at) = source { Some(at) } else { None };
    let columns = work.columns.into_iter().map(|(column, source)| (column, from(source))).collect();
    Ok(Anew { columns, checks, drop_indexes: work.drop_indexes, shown })
}

impl SqlEngine {
    /// Whether the rows have to be written anew: whatever cannot be done with them as they are.
    async fn copies(&self, session: &Session, name: &TableName, clause: &AlterClause) -> Result<bool> {
        let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
        let is_new_unique = clause.indexes.iter().any(|index| index.unique) && !clause.only_adds();
        let read_again = clause.read_again(&table.schema)?;
        let read = read_again.as_ref().unwrap_or(clause);
        let company = || {
            let is_filled = !read.filled()?.is_empty();
            rules::alter::check_company(
                read.tightens() || is_filled,
                read.only_adds() || read.is_of_checks(),
                !read.indexes.is_empty() || !read.foreign_keys.is_empty(),
            )?;
            change(session, name, &table.schema, read).map(|_| ())
        };
        let in_place = company();
        let copies = is_new_unique || clause.must_copy() || in_place.is_err_and(|e| e.errno == 1235);
        Ok(copies || clause.whole.is_copy_asked())
    }

    /// How many rows were looked at.
    pub(crate) async fn alter_table(
        &self,
        session: &mut Session,
        name: TableName,
        mut clause: AlterClause,
    ) -> Result<u64> {
        let before = self.catalog().await?.table(&name.database, &name.table)?;
        clause.find_keys(&before.schema);
        clause.check_dates(&session.env, &before.schema)?;
        if Box::pin(self.copies(session, &name, &clause)).await? {
            return Box::pin(self.remake(session, &name, &clause)).await;
        }
        if let Some(first) = clause.whole.auto_increment {
            let table = self.catalog().await?.table(&name.database, &name.table)?;
            self.start_counter(&table.schema, first).await?;
        }
        let filled: Vec<String> = clause.filled()?.iter().map(|column| column.name.clone()).collect();
        let is_filled = !filled.is_empty();
        rules::alter::check_company(
            clause.tightens() || is_filled,
            clause.only_adds() || clause.is_of_checks(),
            !clause.indexes.is_empty() || !clause.foreign_keys.is_empty(),
        )?;
        Box::pin(self.prepare_keys(session, &name, &mut clause)).await?;
        let adds_unique = clause.indexes.iter().any(|index| index.unique);
        if adds_unique && !clause.only_adds() {
            return Err(errors::not_supported("ALTER TABLE with a new unique index beside other changes"));
        }
        let before = self.catalog().await?.table(&name.database, &name.table)?;
        match self.change_columns(session, &name, &clause).await {
            // As many changes as there can be: a new table begins anew.
            Err(e) if e.errno == 4092 && clause.whole.may_copy() && clause.has_no_keys() => {
                return Box::pin(self.remake(session, &name, &clause)).await;
            }
            changed => changed?,
        }
        let mut rows = 0;
        if is_filled {
            let checks: Vec<&CheckStep> = clause.checks().collect();
            rows = self.fill_columns(session, &name, &filled, &checks).await?;
        }
        if clause.tightens() {
            return self.prove(session, &name, &clause, &before).await;
        }
        for (at, index) in clause.indexes.iter().enumerate() {
            if let Err(refused) = self.add_index(session, &name, index).await {
                self.take_back(session, &name, clause, at).await?;
                return Err(refused);
            }
        }
        match Box::pin(self.add_foreign_keys(session, &name, &clause)).await {
            Ok(looked) => Ok(rows.max(looked)),
            Err(refused) => {
                let made = clause.indexes.len();
                self.take_back(session, &name, clause, made).await?;
                Err(refused)
            }
        }
    }

    /// Looks at the rows that are there for new constraints. One that is violated goes again, with the columns that came with it.
    async fn prove(
        &self,
        session: &mut Session,
        name: &TableName,
        clause: &AlterClause,
        before: &Table,
    ) -> Result<u64> {
        let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
        let unproven = rules::alter::unproven(&table.schema.checks, &before.schema.checks, clause.checks());
        let proven = self.prove_checks(session, name, &unproven, &before.schema.checks).await;
        if proven.is_err() {
            let added = clause.steps.iter().filter_map(|step| match step {
                Step::Add(column, _) => Some(Step::Drop(column.name.clone())),
                _ => None,
            });
            let (steps, text) = (added.collect(), String::new());
            let back = AlterClause { table: clause.table.clone(), steps, text, ..AlterClause::default() };
            self.change_columns(session, name, &back).await?;
        }
        proven
    }

    /// An index is refused: the columns that were added go again, and the indexes that were made before it.
    async fn take_back(&self, session: &mut Session, name: &TableName, done: AlterClause, made: usize) -> Result<()> {
        let is_undone = done.only_adds();
        let steps = done.steps.into_iter().filter_map(|step| match step {
            Step::Add(column, _) if is_undone => Some(Step::Drop(column.name)),
            _ => None,
        });
        let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
        let searched = table.schema.full_texts.iter().rev().take(done.full_texts.len()).map(|index| &index.name);
        let made = table.schema.indexes.iter().rev().take(made).map(|index| &index.name);
        let drops = searched.chain(made).cloned().collect();
        let back = AlterClause { table: done.table, steps: steps.collect(), drops, ..AlterClause::default() };
        self.change_columns(session, name, &back).await
    }

    async fn change_columns(&self, session: &mut Session, name: &TableName, clause: &AlterClause) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            let table = catalog.table(&name.database, &name.table)?;
            let schema = &table.schema;
            let read_again = clause.read_again(schema)?;
            let clause = read_again.as_ref().unwrap_or(clause);
            if schema.is_constrained() {
                clause.check_loss(&catalog, schema, false)?;
            }
            let refused = clause.steps.iter().find_map(|step| match step {
                Step::Add(column, _) => refused_in_rows(session, column),
                _ => None,
            });
            if let Some(e) = refused {
                self.all_rows(session, name, false, |_, _, _, _, _| Err(e.clone().into())).await?;
            }
            let change = change(session, name, schema, clause)?;
            let Some(change) = change else { return Ok(()) };
            if let Some(checks) = &change.checks {
                let names = checks.checks.iter().map(|check| &check.name);
                rules::check_free(&*self.catalog().await?, (&name.database, &name.table), names)?;
            }
            match self.change(Change::ChangeColumns(change)).await? {
                // Somebody else has changed it since.
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(ErrorCode::NotSupported) => {
                    let text = format!(
                        "Maximum row versions reached for table {}/{}. No more columns can be added or dropped instantly. Please use COPY/INPLACE.",
                        name.database, name.table
                    );
                    return Err(SqlError::new(4092, b"HY000", text));
                }
                Some(code) => return Err(errors::from_code(code, &name.table)),
                None => return Ok(()),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }
}

//! ALTER TABLE: columns come, go, move and change their names and defaults by one change of the dictionary that touches no row (`apus_types::form`); indexes
//! are made and dropped one by one.
//!
//! All changes of columns in a statement, and the indexes that go, are one change. Indexes that come follow it. Should one of them be refused, columns that
//! were only added go again; a statement that also takes columns away and makes a unique index is refused beforehand, because it could not be undone.
//!
//! What needs another form of the rows that are there (an integer becomes wider, NULL is forbidden, another collation of an indexed column), other primary keys, AUTO_INCREMENT for an
//! old column: whatever is refused here with error 1235 is done by [`super::copy`], which copies the table. Constraints and columns with expressions are in [`rules`].

use apus_signal::{
    dict::{Change, ColumnsChange, TableName},
    schema::{SourceMessage, column_to_wire},
};
use apus_types::{
    Column, ErrorCode, IndexDef, RowLayout, TableSchema,
    collate::Collation,
    form::{self, Source},
    rules::{CheckDef, Enforced},
    schema::DefaultValue,
};

use super::{
    copy::Whole,
    create_select::check_new_name,
    default_dates,
    foreign_key::{
        self, Loss,
        clause::{self, Clause},
    },
    rules::{self, alter::CheckStep},
    statement::{self, Definitions, Given},
};
use crate::{
    catalog::{
        Catalog, Table, full_text,
        key_parts::{self, IndexClause},
        visibility,
    },
    errors::{self, Result},
    exec,
    expr::{
        Context, Env,
        assign::{self, Assign},
    },
    parse::{
        charset,
        token::{Name, Tokens},
    },
    plan::{dml::default_expr, rules::functional},
    session::{Session, engine::SqlEngine},
    value::{enum_set, float_digits, number_format::Face},
    wire::SqlError,
};

/// Attempts of a change that meets another change of the same table.
const ATTEMPTS_MAX: u32 = 20;

/// Where a column is to stand.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// At the end, or where it is.
    Unsaid,
    First,
    After(String),
}

#[derive(Clone, Debug)]
enum Step {
    Add(Column, Place),
    Drop(String),
    /// MODIFY and CHANGE.
    Redefine(String, Column, Place),
    Rename(String, String),
    Default(String, Given),
    Check(CheckStep),
    /// The flag: invisible.
    ShowColumn(String, bool),
    ShowIndex(String, bool),
}

/// What stands behind ALTER TABLE, but for RENAME.
#[derive(Debug, Default)]
pub struct AlterClause {
    pub table: Name,
    steps: Vec<Step>,
    indexes: Vec<IndexClause>,
    full_texts: Vec<IndexClause>,
    drops: Vec<String>,
    pub(crate) foreign_keys: Vec<Clause>,
    /// Names of constraints; the flag says that it may be another than a foreign key.
    pub(crate) drop_keys: Vec<(String, bool)>,
    /// What is said of the table as a whole.
    pub(crate) whole: Whole,
    /// To be read again with the collation of the table, which columns take that name none.
    text: String,
}

impl AlterClause {
    /// It says nothing that the dictionary can change in a table with rows.
    pub(crate) fn must_copy(&self) -> bool {
        let is_primary = |index: &IndexClause| index.name.as_deref() == Some(key_parts::PRIMARY);
        let is_functional = |index: &IndexClause| !index.expressions.is_empty();
        self.whole.must_copy() || self.indexes.iter().any(|index| is_primary(index) || is_functional(index))
    }
    /// Columns that come, and constraints, as MySQL looks at them: rows are copied for a column that is stored.
    pub(crate) fn computes(&self) -> bool {
        let is_stored = |column: &Column| column.generated.as_ref().is_some_and(|g| g.stored);
        self.tightens() || self.steps.iter().any(|step| matches!(step, Step::Add(column, _) if is_stored(column)))
    }
    pub(crate) fn dropped_columns(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| if let Step::Drop(name) = step { Some(name.as_str()) } else { None })
    }
    /// Columns that are renamed or defined anew, by the names that they had.
    pub(crate) fn changed_columns(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Rename(name, _) | Step::Redefine(name, ..) => Some(name.as_str()),
            _ => None,
        })
    }
    fn has_no_keys(&self) -> bool {
        self.foreign_keys.is_empty() && self.drop_keys.is_empty()
    }
    pub(crate) fn new_indexes(&self) -> &[IndexClause] {
        &self.indexes
    }
    pub(crate) fn full_texts(&self) -> &[IndexClause] {
        &self.full_texts
    }
    /// DROP INDEX `PRIMARY`.
    pub(crate) fn of_primary_dropped(table: Name) -> AlterClause {
        let mut clause = AlterClause { table, ..AlterClause::default() };
        clause.whole.drop_primary = true;
        clause
    }
    /// CREATE INDEX and DROP INDEX where that is more than an ordered index of columns.
    pub(crate) fn of_indexes(table: Name, indexes: Vec<IndexClause>, drops: Vec<String>) -> AlterClause {
        let (full_texts, indexes) = indexes.into_iter().partition(|index| index.full_text);
        AlterClause { table, indexes, full_texts, drops, ..AlterClause::default() }
    }
    /// Columns that are defined anew, by the names that they have.
    pub(crate) fn redefined(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Redefine(name, column, _) => Some((name.as_str(), column)),
            _ => None,
        })
    }
    /// Nothing is changed or dropped, so that it can be undone.
    fn only_adds(&self) -> bool {
        let adds = |step: &Step| matches!(step, Step::Add(..) | Step::Check(CheckStep::Add(_)));
        self.drops.is_empty() && self.drop_keys.is_empty() && self.steps.iter().all(adds)
    }
    /// DROP CONSTRAINT may mean foreign keys.
    fn find_keys(&mut self, table: &TableSchema) {
        let is_key = |name: &str| table.foreign_keys.iter().any(|key| key.name.eq_ignore_ascii_case(name));
        let is_check = |name: &str| table.checks.iter().any(|check| check.name.eq_ignore_ascii_case(name));
        let drop_keys = &mut self.drop_keys;
        self.steps.retain(|step| match step {
            Step::Check(CheckStep::Drop(name, true)) if is_key(name) && !is_check(name) => {
                drop_keys.push((name.clone(), true));
                false
            }
            _ => true,
        });
    }
    fn checks(&self) -> impl Iterator<Item = &CheckStep> {
        self.steps.iter().filter_map(|step| if let Step::Check(check) = step { Some(check) } else { None })
    }
    /// New columns whose values rows that are there must be given.
    fn filled(&self) -> Result<Vec<&Column>> {
        let mut filled = Vec::new();
        for step in &self.steps {
            if let Step::Add(column, _) = step
                && rules::fill::needs_rows(column)?
            {
                filled.push(column);
            }
        }
        rules::fill::check_apart(&filled)?;
        Ok(filled)
    }
    /// Constraints alone are changed.
    fn is_of_checks(&self) -> bool {
        self.drops.is_empty()
            && self.drop_keys.is_empty()
            && self.steps.iter().all(|step| matches!(step, Step::Check(_)))
    }
    fn add_checks(&mut self, checks: Vec<rules::clause::CheckClause>) {
        self.steps.extend(checks.into_iter().map(|check| Step::Check(CheckStep::Add(check))));
    }
    /// A constraint comes, or is enforced from now on.
    fn tightens(&self) -> bool {
        self.checks().any(|step| match step {
            CheckStep::Add(clause) => clause.enforced,
            CheckStep::Drop(..) => false,
            CheckStep::Enforce { enforced, .. } => *enforced,
        })
    }

    /// The indexes that it makes; those that its keys need, if none that stays will do.
    pub(crate) fn make_indexes(&mut self, table: &TableSchema) {
        let names = |columns: &[u16]| columns.iter().map(|&c| table.columns[usize::from(c)].name.clone()).collect();
        let stays = |index: &&IndexDef| !self.drops.iter().any(|name| index.name.eq_ignore_ascii_case(name));
        let whole = table.indexes.iter().filter(stays).filter(|index| !index.has_prefixes());
        let known = whole.map(|index| names(&index.columns));
        let known: Vec<Vec<String>> = known.chain([names(&table.primary_key)]).collect();
        self.indexes = clause::indexes(std::mem::take(&mut self.indexes), &self.foreign_keys, &known);
    }
    /// Its new foreign keys are of columns that are there.
    pub(crate) fn has_columns_of_keys(&self, table: &TableSchema) -> bool {
        let is_there = |name: &String| table.column_no(name).is_some();
        self.steps.is_empty() && self.foreign_keys.iter().flat_map(|key| &key.columns).all(is_there)
    }
    /// With the collation of the table, if that is another one.
    pub(crate) fn read_again(&self, table: &TableSchema) -> Result<Option<AlterClause>> {
        let collation = self.whole.collation(table.collation)?;
        let is_other = collation != Collation::default() && !self.text.is_empty();
        let mut again = is_other.then(|| statement::parse_alter(&self.text, collation)).transpose()?;
        // What was found to be a foreign key is no step of it.
        let is_key = |name: &String| self.drop_keys.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        if let Some(again) = &mut again {
            again.steps.retain(|step| !matches!(step, Step::Check(CheckStep::Drop(name, true)) if is_key(name)));
        }
        Ok(again)
    }
    /// What foreign keys may need of what it changes, or of the types of columns only.
    pub(crate) fn check_loss(&self, catalog: &Catalog, table: &TableSchema, only_types: bool) -> Result<()> {
        let (mut columns, mut redefined) = (Vec::new(), Vec::new());
        for step in &self.steps {
            match step {
                Step::Drop(name) => columns.push(name.clone()),
                Step::Redefine(name, column, _) => redefined.push((name.clone(), column.clone())),
                _ => {}
            }
        }
        let keys: Vec<String> = self.drop_keys.iter().map(|(name, _)| name.clone()).collect();
        let (indexes, columns): (&[String], &[String]) = if only_types { (&[], &[]) } else { (&self.drops, &columns) };
        let loss = Loss { indexes, columns, redefined: &redefined, keys: &keys };
        foreign_key::check_loss(catalog, table, &loss)
    }
}

fn cant_drop(name: &str) -> SqlError {
    SqlError::new(1091, b"42000", format!("Can't DROP '{name}'; check that column/key exists"))
}

/// Behind ALTER TABLE and its name, which `table` is.
pub fn parse(t: &mut Tokens, text: &str, table: Name, default: Collation) -> Result<AlterClause> {
    let mut clause = AlterClause { table, text: text.to_owned(), ..AlterClause::default() };
    loop {
        // Options may stand without commas.
        let is_option = clause.whole.take(t)?;
        if !is_option {
            step(t, &mut clause, default)?;
        }
        if !t.symbol(',') && (!is_option || t.at_end()) {
            (clause.full_texts, clause.indexes) = clause.indexes.into_iter().partition(|index| index.full_text);
            return Ok(clause);
        }
    }
}

/// The next part of the statement.
fn step(t: &mut Tokens, clause: &mut AlterClause, default: Collation) -> Result<()> {
    if t.word("add") {
        add(t, clause, default)?;
    } else if t.word("drop") {
        if let Some(check) = rules::alter::drop(t)? {
            clause.steps.push(Step::Check(check));
        } else if t.word("primary") {
            t.expect("key")?;
            clause.whole.drop_primary = true;
        } else if t.word("foreign") {
            t.expect("key")?;
            clause.drop_keys.push((t.identifier()?, false));
        } else if t.word("index") || t.word("key") {
            match t.identifier()? {
                name if name.eq_ignore_ascii_case(key_parts::PRIMARY) => clause.whole.drop_primary = true,
                name => clause.drops.push(name),
            }
        } else {
            t.word("column");
            clause.steps.push(Step::Drop(t.identifier()?));
            let _ = t.word("restrict") || t.word("cascade");
        }
    } else if t.word("modify") || t.peek_word("change") {
        let changes = t.word("change");
        t.word("column");
        let old = if changes { Some(t.identifier()?) } else { None };
        let (column, place) = column_and_place(t, clause, default)?;
        let old = old.unwrap_or_else(|| column.name.clone());
        clause.steps.push(Step::Redefine(old, column, place));
    } else if t.word("alter") {
        if let Some(check) = rules::alter::enforce(t)? {
            clause.steps.push(Step::Check(check));
            return Ok(());
        }
        if let Some((name, invisible)) = visibility::of_index(t)? {
            clause.steps.push(Step::ShowIndex(name, invisible));
            return Ok(());
        }
        t.word("column");
        let name = t.identifier()?;
        if t.word("set") {
            if let Some(invisible) = visibility::word(t) {
                clause.steps.push(Step::ShowColumn(name, invisible));
                return Ok(());
            }
            t.expect("default")?;
            clause.steps.push(Step::Default(name, statement::default_value(t)?));
        } else {
            t.expect("drop")?;
            t.expect("default")?;
            clause.steps.push(Step::Default(name, Given::Value(DefaultValue::None)));
        }
    } else if t.word("rename") {
        if t.word("index") || t.word("key") {
            let old = t.identifier()?;
            t.expect("to")?;
            clause.whole.rename_indexes.push((old, t.identifier()?));
            return Ok(());
        }
        if !t.word("column") {
            return Err(errors::not_supported("ALTER TABLE ... RENAME of a table beside other changes"));
        }
        let old = t.identifier()?;
        t.expect("to")?;
        clause.steps.push(Step::Rename(old, t.identifier()?));
    } else if t.word("enable") || t.word("disable") {
        t.expect("keys")?;
    } else {
        return Err(errors::not_supported("this form of ALTER TABLE"));
    }
    Ok(())
}

fn add(t: &mut Tokens, clause: &mut AlterClause, default: Collation) -> Result<()> {
    let is_column = t.word("column");
    if t.symbol('(') {
        let made = Definitions::parse(t, default)?;
        clause.whole.add_primary(made.primary)?;
        clause.steps.extend(made.columns.into_iter().map(|column| Step::Add(column, Place::Unsaid)));
        clause.indexes.extend(made.indexes);
        clause.foreign_keys.extend(made.foreign_keys);
        clause.add_checks(made.checks);
        return Ok(());
    }
    let is_index = ["index", "key", "unique", "primary", "constraint", "foreign", "check", "fulltext", "spatial"];
    if !is_column && is_index.iter().any(|word| t.peek_word(word)) {
        let mut made = Definitions::default();
        made.take(t, default)?;
        clause.whole.add_primary(made.primary)?;
        clause.indexes.extend(made.indexes);
        clause.foreign_keys.extend(made.foreign_keys);
        clause.add_checks(made.checks);
        return Ok(());
    }
    let (column, place) = column_and_place(t, clause, default)?;
    clause.steps.push(Step::Add(column, place));
    Ok(())
}

fn column_and_place(t: &mut Tokens, clause: &mut AlterClause, default: Collation) -> Result<(Column, Place)> {
    let mut made = Definitions::default();
    made.take(t, default)?;
    let column = made.columns.pop().ok_or_else(|| t.error())?;
    clause.whole.add_primary(made.primary)?;
    clause.indexes.extend(made.indexes);
    clause.foreign_keys.extend(made.foreign_keys);
    clause.add_checks(made.checks);
    let place = if t.word("first") {
        Place::First
    } else if t.word("after") {
        Place::After(t.identifier()?)
    } else {
        Place::Unsaid
    };
    Ok((column, place))
}

/// Columns as they will be, each with what rows have there that were written before.
struct Work<'a> {
    table: &'a TableSchema,
    columns: Vec<(Column, Source)>,
    drop_indexes: Vec<String>,
    rules: rules::alter::Work,
    /// The rows will be written anew: how they are stored may change.
    copies: bool,
    drops_primary: bool,
}

impl<'a> Work<'a> {
    fn new(table: &'a TableSchema, clause: &AlterClause, copies: bool) -> Result<Work<'a>> {
        let drops = &clause.drops;
        let columns = table.columns.iter().cloned().zip((0..).map(Source::Kept)).collect();
        for name in drops {
            let known = table.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name));
            let known = known || full_text::has(table, name);
            known.then_some(()).ok_or_else(|| cant_drop(name))?;
        }
        let of_index = |step: &CheckStep| rules::alter::dropped_index(table, step);
        let rules = rules::alter::Work::new(table, clause.checks().filter(|step| of_index(step).is_none()))?;
        let drops: Vec<String> = drops.iter().cloned().chain(clause.checks().filter_map(of_index)).collect();
        let mut columns: Vec<(Column, Source)> = columns;
        let comes = |c: &Column| {
            clause
                .steps
                .iter()
                .any(|step| matches!(step, Step::Add(new, _) if rules::fill::hidden(new.clone()).name == c.name))
        };
        columns.retain(|(c, _)| !rules::fill::is_unfinished(c) || clause.only_adds() && !comes(c));
        let drops_primary = clause.whole.drop_primary;
        let mut work = Work { table, columns: Vec::new(), drop_indexes: drops, rules, copies, drops_primary };
        // What was made for an index goes with it.
        columns.retain(|(c, source)| {
            let is_in_index = |at: &u16| work.indexes_with(*at).next().is_some();
            !functional::is_part(c) || matches!(source, Source::Kept(at) if is_in_index(at))
        });
        work.columns = columns;
        Ok(work)
    }
    fn find(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|(column, _)| column.name.eq_ignore_ascii_case(name));
        found.filter(|at| !self.is_hidden(*at)).ok_or_else(|| errors::unknown_column(name, &self.table.name))
    }
    fn is_hidden(&self, at: usize) -> bool {
        self.columns.get(at).is_some_and(|(column, _)| column.name.starts_with('#'))
    }
    fn refuse_twin(&self, name: &str) -> Result<()> {
        let is_taken = self.columns.iter().any(|(column, _)| column.name.eq_ignore_ascii_case(name));
        if is_taken { Err(errors::duplicate_column(name)) } else { Ok(()) }
    }
    fn put(&mut self, column: Column, source: Source, place: &Place, otherwise: usize) -> Result<()> {
        let at = match place {
            Place::Unsaid => otherwise,
            Place::First => 0,
            Place::After(name) => self.find(name)? + 1,
        };
        self.columns.insert(at, (column, source));
        Ok(())
    }
    fn end(&self) -> usize {
        (0..self.columns.len()).rev().find(|at| !self.is_hidden(*at)).map_or(0, |last| last + 1)
    }
    /// Indexes that stay and have this column of the table.
    fn indexes_with(&self, column: u16) -> impl Iterator<Item = &'a IndexDef> {
        let gone = |index: &IndexDef| self.drop_indexes.iter().any(|name| index.name.eq_ignore_ascii_case(name));
        self.table.indexes.iter().filter(move |index| index.columns.contains(&column) && !gone(index))
    }
    fn drop(&mut self, name: &str) -> Result<()> {
        let at = self.find(name).map_err(|_| cant_drop(name))?;
        self.rules.lose(self.table, &self.columns, name, true)?;
        if let Source::Kept(old) = self.columns[at].1
            && !self.copies
        {
            if self.table.primary_key.contains(&old) {
                return Err(errors::not_supported("ALTER TABLE ... DROP of a column of the primary key"));
            }
            let with: Vec<&IndexDef> = self.indexes_with(old).collect();
            if let Some(index) = with.iter().find(|index| index.columns.len() > 1) {
                let what = format!("ALTER TABLE ... DROP of a column of index '{}': drop the index first", index.name);
                return Err(errors::not_supported(&what));
            }
            let names: Vec<String> = with.iter().map(|index| index.name.clone()).collect();
            self.drop_indexes.extend(names);
        }
        self.columns.remove(at);
        if (0..self.columns.len()).all(|at| self.is_hidden(at)) {
            let text = "You can't delete all columns with ALTER TABLE; use DROP TABLE instead";
            return Err(SqlError::new(1090, b"42000", text));
        }
        Ok(())
    }
    fn redefine(&mut self, name: &str, mut column: Column, place: &Place) -> Result<()> {
        let at = self.find(name)?;
        if !column.name.eq_ignore_ascii_case(name) {
            self.refuse_twin(&column.name)?;
            self.rules.lose(self.table, &self.columns, name, false)?;
        }
        let is_read = self.rules.reads(&self.columns, name)?;
        let is_in_key_part = self.rules.is_in_key_part(&self.columns, name)?;
        let (old, source) = self.columns.remove(at);
        let is_key = !self.drops_primary && matches!(source, Source::Kept(at) if self.table.primary_key.contains(&at));
        column.nullable &= !is_key;
        let kept = match source {
            Source::Kept(at) => at,
            _ => return Err(errors::not_supported("ALTER TABLE with two changes of one column")),
        };
        let is_indexed = is_key || self.indexes_with(kept).next().is_some();
        let is_other = changes_storage(&old, &column)
            || (is_indexed && old.ty.collation() != column.ty.collation())
            || (is_indexed && old.nullable != column.nullable)
            || (old.nullable && !column.nullable)
            || (column.auto_increment && !old.auto_increment)
            || (is_in_key_part && old.ty != column.ty)
            || (is_read && old.ty.collation() != column.ty.collation())
            || (is_read && Face::of(&old) != Face::of(&column));
        if is_other && !self.copies {
            let what = format!("ALTER TABLE that changes how rows store column '{}'", old.name);
            return Err(errors::not_supported(&what));
        }
        rules::alter::redefined(&old, &column, self.copies)?;
        self.put(column, source, place, at)
    }
    fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        let at = self.find(old)?;
        check_new_name(new)?;
        if !old.eq_ignore_ascii_case(new) {
            self.refuse_twin(new)?;
            self.rules.lose(self.table, &self.columns, old, false)?;
        }
        new.clone_into(&mut self.columns[at].0.name);
        Ok(())
    }
    fn set_default(&mut self, name: &str, default: &Given) -> Result<()> {
        let at = self.find(name)?;
        self.columns[at].0.default = default.of(&self.columns[at].0)?;
        rules::clause::check_options(&self.columns[at].0)?;
        statement::settle_default(&mut self.columns[at].0)
    }
}

/// What rows have in a column may have to be another thing, or not be there, when it is defined anew.
pub(crate) fn changes_storage(old: &Column, new: &Column) -> bool {
    !form::same_bytes(old.ty, new.ty)
        || !enum_set::extends(old.ty, new.ty)
        || length(new) < length(old)
        || loses_characters(old.ty, new.ty)
        || float_digits::is_narrower(old, new)
}

/// Rows may have what the new character set has not.
fn loses_characters(old: apus_types::ColumnType, new: apus_types::ColumnType) -> bool {
    match (old.collation(), new.collation()) {
        (Some(old), Some(new)) => !charset::holds(new.charset(), old.charset()),
        _ => false,
    }
}

/// Characters, bytes or digits that the column takes at most, where its stored bytes do not say.
fn length(column: &Column) -> u32 {
    use apus_types::ColumnType as T;
    match column.ty {
        T::Char { length, .. } | T::VarChar { length, .. } => u32::from(length) * 4,
        T::Text { length, .. } | T::Blob { length } => length,
        T::Binary { length } | T::VarBinary { length } => u32::from(length),
        T::Bit { length } => u32::from(length),
        T::Decimal { precision, unsigned, .. } => u32::from(precision) * 2 + u32::from(!unsigned),
        _ => 0,
    }
}

impl AlterClause {
    /// Looks at the defaults that the table will have.
    fn check_dates(&mut self, env: &Env, table: &TableSchema) -> Result<()> {
        let is_said = |name: &str| {
            let is_it = |said: &String| said.eq_ignore_ascii_case(name);
            self.steps.iter().any(|step| match step {
                Step::Drop(said) | Step::Redefine(said, ..) | Step::Default(said, _) => is_it(said),
                _ => false,
            })
        };
        let kept = table.columns.iter().filter(|column| !is_said(&column.name));
        kept.cloned().try_for_each(|mut column| default_dates::check(env, &mut column))?;
        env.forget_notes();
        for step in &mut self.steps {
            if let Step::Add(column, _) | Step::Redefine(_, column, _) = step {
                default_dates::check(env, column)?;
            }
        }
        Ok(())
    }
}

/// What rows that were there before have in a column that is added.
fn given(session: &Session, table: &TableSchema, column: &Column) -> Result<Source> {
    if column.auto_increment {
        return Err(errors::not_supported("ALTER TABLE ... ADD of an AUTO_INCREMENT column"));
    }
    let (layout, env) = (&RowLayout::new([]), &session.env);
    let cx = Context { layout, row: &[], new_row: None, params: &[], aggregates: &[], given: &[], env };
    let default = match rules::fill::one_for_all(table, column)? {
        Some(default) => Ok(default),
        None => default_expr(column),
    };
    let value = match &default {
        Ok(default) => exec::change::truncate_now(default.eval(&cx)?, column.ty),
        Err(_) => assign::implicit_default(column.ty),
    };
    let strict = session.env.variables.strict;
    let assign = Assign { row: 1, table: "", strict, zone: session.env.zone(), env: Some(env) };
    let value = match &default {
        Ok(_) => assign::assign(column, value, assign)?,
        // What no row may have is for a table without rows ([`refused_in_rows`]).
        Err(_) => assign::assign_leniently(column, value, assign)?,
    };
    if value.is_null() {
        return Ok(Source::Null);
    }
    let (alone, mut image) = (RowLayout::new([column.ty]), Vec::new());
    alone.encode(&[assign::stored(column.ty, &value)], &mut image).map_err(|e| errors::from_code(e, &column.name))?;
    Ok(Source::Given(alone.raw(&image, 0).to_vec()))
}

/// Why rows that are there cannot have what a new column without a default begins with: a date of zeros.
fn refused_in_rows(session: &Session, column: &Column) -> Option<SqlError> {
    default_expr(column).err()?;
    let env = &session.env;
    let assign = Assign { row: 1, table: "", strict: env.variables.strict, zone: env.zone(), env: Some(env) };
    assign::assign(column, assign::implicit_default(column.ty), assign).err()
}

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

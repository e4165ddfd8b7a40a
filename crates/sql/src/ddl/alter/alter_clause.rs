//! ALTER TABLE as it is written: its steps, and what they mean for the table as a whole.

use apus_types::{Column, IndexDef, TableSchema, collate::Collation, schema::DefaultValue};

use crate::{
    catalog::{
        Catalog,
        key_parts::{self, IndexClause},
        visibility,
    },
    ddl::{
        copy::Whole,
        default_dates,
        foreign_key::{
            self, Loss,
            clause::{self, Clause},
        },
        rules::{self, alter::CheckStep},
        statement::{self, defaults::Given, definitions::Definitions},
    },
    errors::{self, Result},
    expr::Env,
    parse::token::{Name, Tokens},
    wire::SqlError,
};

/// Where a column is to stand.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// At the end, or where it is.
    Unsaid,
    First,
    After(String),
}

#[derive(Clone, Debug)]
pub(super) enum Step {
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
    pub(super) steps: Vec<Step>,
    pub(super) indexes: Vec<IndexClause>,
    pub(super) full_texts: Vec<IndexClause>,
    pub(super) drops: Vec<String>,
    pub(crate) foreign_keys: Vec<Clause>,
    /// Names of constraints; the flag says that it may be another than a foreign key.
    pub(crate) drop_keys: Vec<(String, bool)>,
    /// What is said of the table as a whole.
    pub(crate) whole: Whole,
    /// To be read again with the collation of the table, which columns take that name none.
    pub(super) text: String,
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
    pub(super) fn has_no_keys(&self) -> bool {
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
    pub(super) fn only_adds(&self) -> bool {
        let adds = |step: &Step| matches!(step, Step::Add(..) | Step::Check(CheckStep::Add(_)));
        self.drops.is_empty() && self.drop_keys.is_empty() && self.steps.iter().all(adds)
    }
    /// DROP CONSTRAINT may mean foreign keys.
    pub(super) fn find_keys(&mut self, table: &TableSchema) {
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
    pub(super) fn checks(&self) -> impl Iterator<Item = &CheckStep> {
        self.steps.iter().filter_map(|step| if let Step::Check(check) = step { Some(check) } else { None })
    }
    /// New columns whose values rows that are there must be given.
    pub(super) fn filled(&self) -> Result<Vec<&Column>> {
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
    pub(super) fn is_of_checks(&self) -> bool {
        self.drops.is_empty()
            && self.drop_keys.is_empty()
            && self.steps.iter().all(|step| matches!(step, Step::Check(_)))
    }
    fn add_checks(&mut self, checks: Vec<rules::clause::CheckClause>) {
        self.steps.extend(checks.into_iter().map(|check| Step::Check(CheckStep::Add(check))));
    }
    /// A constraint comes, or is enforced from now on.
    pub(super) fn tightens(&self) -> bool {
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
        let whole = table.indexes.iter().filter(stays).filter(|index| index.is_whole());
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

pub(super) fn cant_drop(name: &str) -> SqlError {
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
pub(super) fn step(t: &mut Tokens, clause: &mut AlterClause, default: Collation) -> Result<()> {
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
            clause.steps.push(Step::Default(name, statement::defaults::default_value(t)?));
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

impl AlterClause {
    /// Looks at the defaults that the table will have.
    pub(super) fn check_dates(&mut self, env: &Env, table: &TableSchema) -> Result<()> {
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

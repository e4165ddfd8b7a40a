//! The columns of a table on their way from what they are to what ALTER TABLE makes of them.

use apus_types::{
    Column, IndexDef, RowLayout, TableSchema,
    form::{self, Source},
};

use super::alter_clause::{AlterClause, Place, Step, cant_drop};
use crate::{
    catalog::full_text,
    ddl::{
        create_select::check_new_name,
        rules::{self, alter::CheckStep},
        statement::{self, defaults::Given},
    },
    errors::{self, Result},
    exec,
    expr::{
        Context,
        assign::{self, Assign},
    },
    parse::charset,
    plan::{dml::default_expr, rules::functional},
    session::Session,
    value::{enum_set, float_digits, number_format::Face},
    wire::SqlError,
};

/// Columns as they will be, each with what rows have there that were written before.
pub(super) struct Work<'a> {
    pub(super) table: &'a TableSchema,
    pub(super) columns: Vec<(Column, Source)>,
    pub(super) drop_indexes: Vec<String>,
    pub(super) rules: rules::alter::Work,
    /// The rows will be written anew: how they are stored may change.
    pub(super) copies: bool,
    drops_primary: bool,
}

impl<'a> Work<'a> {
    pub(super) fn new(table: &'a TableSchema, clause: &AlterClause, copies: bool) -> Result<Work<'a>> {
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
    pub(super) fn find(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|(column, _)| column.name.eq_ignore_ascii_case(name));
        found.filter(|at| !self.is_hidden(*at)).ok_or_else(|| errors::unknown_column(name, &self.table.name))
    }
    fn is_hidden(&self, at: usize) -> bool {
        self.columns.get(at).is_some_and(|(column, _)| column.name.starts_with('#'))
    }
    pub(super) fn refuse_twin(&self, name: &str) -> Result<()> {
        let is_taken = self.columns.iter().any(|(column, _)| column.name.eq_ignore_ascii_case(name));
        if is_taken { Err(errors::duplicate_column(name)) } else { Ok(()) }
    }
    pub(super) fn put(&mut self, column: Column, source: Source, place: &Place, otherwise: usize) -> Result<()> {
        let at = match place {
            Place::Unsaid => otherwise,
            Place::First => 0,
            Place::After(name) => self.find(name)? + 1,
        };
        self.columns.insert(at, (column, source));
        Ok(())
    }
    pub(super) fn end(&self) -> usize {
        (0..self.columns.len()).rev().find(|at| !self.is_hidden(*at)).map_or(0, |last| last + 1)
    }
    /// Indexes that stay and have this column of the table.
    fn indexes_with(&self, column: u16) -> impl Iterator<Item = &'a IndexDef> {
        let gone = |index: &IndexDef| self.drop_indexes.iter().any(|name| index.name.eq_ignore_ascii_case(name));
        self.table.indexes.iter().filter(move |index| index.columns.contains(&column) && !gone(index))
    }
    pub(super) fn drop(&mut self, name: &str) -> Result<()> {
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
    pub(super) fn redefine(&mut self, name: &str, mut column: Column, place: &Place) -> Result<()> {
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
    pub(super) fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        let at = self.find(old)?;
        check_new_name(new)?;
        if !old.eq_ignore_ascii_case(new) {
            self.refuse_twin(new)?;
            self.rules.lose(self.table, &self.columns, old, false)?;
        }
        new.clone_into(&mut self.columns[at].0.name);
        Ok(())
    }
    pub(super) fn set_default(&mut self, name: &str, default: &Given) -> Result<()> {
        let at = self.find(name)?;
        self.columns[at].0.default = default.of(&self.columns[at].0)?;
        rules::clause::check_options(&self.columns[at].0)?;
        statement::defaults::settle_default(&mut self.columns[at].0)
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

/// What rows that were there before have in a column that is added.
pub(super) fn given(session: &Session, table: &TableSchema, column: &Column) -> Result<Source> {
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
    let assign = Assign { row: 1, table: "", strict, zone: session.env.zone(), env: Some(env), warns: false };
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
pub(super) fn refused_in_rows(session: &Session, column: &Column) -> Option<SqlError> {
    default_expr(column).err()?;
    let env = &session.env;
    let assign =
        Assign { row: 1, table: "", strict: env.variables.strict, zone: env.zone(), env: Some(env), warns: false };
    assign::assign(column, assign::implicit_default(column.ty), assign).err()
}

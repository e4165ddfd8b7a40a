//! Invisible columns and indexes: `*` does not stand for such a column, and an INSERT that names none does not mean it; plans do without such an index.
//!
//! Both are marks of the definition (`apus_types::Column::invisible`, `apus_types::TableSchema::invisible_indexes`). An invisible index is maintained and, if unique, enforced as any other.

use apus_types::{Column, IndexDef, TableSchema};

use super::full_text;
use crate::{errors::Result, parse::token::Tokens, plan::rules::functional, wire::SqlError};

/// `VISIBLE` or `INVISIBLE`; whether it says the second.
pub fn word(t: &mut Tokens) -> Option<bool> {
    if t.word("invisible") {
        return Some(true);
    }
    t.word("visible").then_some(false)
}

/// `INDEX name VISIBLE | INVISIBLE` behind ALTER; the name, and whether it is to be invisible.
pub fn of_index(t: &mut Tokens) -> Result<Option<(String, bool)>> {
    if !t.peek_word("index") {
        return Ok(None);
    }
    t.skip();
    let name = t.identifier()?;
    word(t).map(|invisible| Some((name, invisible))).ok_or_else(|| t.error())
}

/// # Errors
/// 4028: no column is left for `*`.
pub fn check_columns<'c>(columns: impl Iterator<Item = &'c Column>) -> Result<()> {
    let mut shown = columns.filter(|c| !c.name.starts_with('#')).peekable();
    if shown.peek().is_some() && shown.all(|c| c.invisible) {
        return Err(SqlError::new(4028, b"HY000", "A table must have at least one visible column."));
    }
    Ok(())
}

pub fn primary_key() -> SqlError {
    SqlError::new(3522, b"HY000", "A primary key index cannot be invisible")
}

/// The unique index that MySQL takes for the primary key of a table that has none.
fn stands_for_primary(table: &TableSchema) -> Option<&IndexDef> {
    let is_never_null = |index: &&IndexDef| {
        let mut columns = index.columns.iter().map(|&c| &table.columns[usize::from(c)]);
        columns.all(|c| !c.nullable && !functional::is_part(c))
    };
    table.indexes.iter().filter(|index| table.hidden_key && index.unique).find(is_never_null)
}

/// # Errors
/// 3522.
pub fn check_indexes(table: &TableSchema) -> Result<()> {
    match stands_for_primary(table) {
        Some(index) if !table.is_visible(index) => Err(primary_key()),
        _ => Ok(()),
    }
}

/// # Errors
/// 1176, 3522.
pub fn check_alter(table: &TableSchema, name: &str, invisible: bool) -> Result<()> {
    if name.eq_ignore_ascii_case("primary") && !table.hidden_key {
        return if invisible { Err(primary_key()) } else { Ok(()) };
    }
    if full_text::has(table, name) {
        return Ok(());
    }
    let found = table.indexes.iter().find(|index| index.name.eq_ignore_ascii_case(name));
    let Some(found) = found else {
        let text = format!("Key '{name}' doesn't exist in table '{}'", table.name);
        return Err(SqlError::new(1176, b"42000", text));
    };
    match stands_for_primary(table) {
        Some(index) if invisible && index.no == found.no => Err(primary_key()),
        _ => Ok(()),
    }
}

/// Behind a column in SHOW CREATE TABLE.
pub fn shown_column(column: &Column) -> &'static str {
    if column.invisible { " /*!80023 INVISIBLE */" } else { "" }
}

/// Behind an index in SHOW CREATE TABLE.
pub fn shown_index(table: &TableSchema, index: &IndexDef) -> &'static str {
    if table.is_visible(index) { "" } else { " /*!80000 INVISIBLE */" }
}

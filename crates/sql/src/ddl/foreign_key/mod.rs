//! Whether foreign keys may be made, and what may not be done because of those that there are.
//!
//! All is judged by one version of the catalog; the change of the dictionary names the versions of the tables that were looked at and is refused if they are others by
//! then. Keys are compared as encoded by the table that is looked into, so the types of both sides must be stored alike; what MySQL allows beyond that (decimals of
//! another scale, a TIMESTAMP for a DATETIME, other labels) is refused by name.

pub(crate) mod alter;
pub mod clause;
pub mod validate;

use apus_signal::foreign_key::ForeignKeyMessage;
use apus_types::{
    Column, ColumnType, TableSchema,
    foreign_key::{Action, ForeignKey},
};

use self::clause::Clause;
use crate::{
    catalog::{
        Catalog,
        foreign_key::{Reference, index_for, unique_for},
    },
    errors::{self, Result},
};

/// Longest name of a constraint, in characters.
const NAME_CHARS_MAX: usize = 64;

/// # Errors
/// 3780; 1235 where MySQL would compare what is stored in different ways.
fn check_types(child: &Column, parent: &Column, key: &str) -> Result<()> {
    use ColumnType as T;
    let is_moment = |ty| matches!(ty, T::DateTime { .. } | T::Timestamp { .. });
    let is_one_byte = |ty: T| ty == T::Year || matches!(ty.stored(), T::Int { bits: 8, unsigned: true });
    let bytes = |ty| matches!(ty, T::Binary { .. } | T::VarBinary { .. });
    let (is_alike, is_allowed) = match (child.ty, parent.ty) {
        (a, b) if a == b => (true, true),
        (T::Char { .. } | T::VarChar { .. }, T::Char { .. } | T::VarChar { .. }) => {
            let is_same = child.ty.collation() == parent.ty.collation();
            (is_same, is_same)
        }
        (T::VarBinary { .. }, T::VarBinary { .. }) => (true, true),
        (T::Time { .. }, T::Time { .. })
        | (T::DateTime { .. }, T::DateTime { .. })
        | (T::Timestamp { .. }, T::Timestamp { .. }) => (true, true),
        (T::Decimal { scale, unsigned, .. }, T::Decimal { scale: other, unsigned: also, .. }) => {
            (scale == other && unsigned == also, true)
        }
        (a, b) if bytes(a) && bytes(b) || is_moment(a) && is_moment(b) => (false, true),
        (a, b) if is_one_byte(a) && is_one_byte(b) => (false, true),
        (a @ T::Label { .. }, b) | (a, b @ T::Label { .. }) => (false, a.stored() == b.stored()),
        _ => (false, false),
    };
    match (is_alike, is_allowed) {
        (true, _) => Ok(()),
        (_, false) => Err(errors::incompatible(&child.name, &parent.name, key)),
        _ => Err(errors::not_supported("foreign keys between columns of types that are stored in different ways")),
    }
}

/// # Errors
/// The table cannot be what the key refers to.
fn check_parent(child: &TableSchema, key: &ForeignKey, parent: &TableSchema) -> Result<()> {
    let mut columns = Vec::new();
    for (own, name) in key.columns.iter().zip(&key.parent_columns) {
        let missing = || errors::no_parent_column(name, &key.name, &parent.name);
        let no = parent.column_no(name).filter(|_| !name.starts_with('#')).ok_or_else(missing)?;
        check_types(&child.columns[usize::from(*own)], &parent.columns[usize::from(no)], &key.name)?;
        columns.push(no);
    }
    match unique_for(parent, &columns) {
        Some(_) => Ok(()),
        None => Err(errors::no_unique_parent_key(&key.name, &parent.name)),
    }
}

/// The number in a name that a key of the table got by itself.
fn number_of(name: &str, table: &str) -> Option<u64> {
    let (front, number) = name.rsplit_once("_ibfk_")?;
    if front.eq_ignore_ascii_case(table) { number.parse().ok() } else { None }
}

/// The keys of clauses, for a table as it will be; `checks`: what they refer to must be there.
///
/// # Errors
/// In MySQL's order.
pub fn new_keys(
    catalog: &Catalog,
    table: &TableSchema,
    clauses: &[Clause],
    checks: bool,
) -> Result<Vec<ForeignKeyMessage>> {
    let mut number = table.foreign_keys.iter().filter_map(|key| number_of(&key.name, &table.name)).max().unwrap_or(0);
    let mut made: Vec<ForeignKeyMessage> = Vec::new();
    for clause in clauses {
        clause.check()?;
        let name = clause.name.clone().unwrap_or_else(|| {
            number += 1;
            format!("{}_ibfk_{number}", table.name)
        });
        if name.chars().count() > NAME_CHARS_MAX {
            let text = format!("Identifier name '{name}' is too long");
            return Err(crate::wire::SqlError::new(1059, b"42000", text));
        }
        let others = catalog.tables_of(&table.database).filter(|t| t.schema.id != table.id);
        let taken = others.flat_map(|t| &t.schema.foreign_keys).chain(&table.foreign_keys).map(|key| &key.name);
        if taken.chain(made.iter().map(|m| &m.name)).any(|other| other.eq_ignore_ascii_case(&name)) {
            return Err(errors::duplicate_foreign_key(&name));
        }
        made.push(new_key(catalog, table, clause, name, checks)?);
    }
    Ok(made)
}

fn new_key(
    catalog: &Catalog,
    table: &TableSchema,
    clause: &Clause,
    name: String,
    checks: bool,
) -> Result<ForeignKeyMessage> {
    let mut columns = Vec::new();
    for column in &clause.columns {
        let no = table.column_no(column).filter(|_| !column.starts_with('#'));
        let no = no.ok_or_else(|| errors::no_key_column(column))?;
        if matches!(table.columns[usize::from(no)].ty, ColumnType::Text { .. } | ColumnType::Blob { .. }) {
            return Err(errors::key_without_length(&table.columns[usize::from(no)].name));
        }
        let is_null = [clause.on_delete, clause.on_update].contains(&Action::SetNull);
        if is_null && !table.columns[usize::from(no)].nullable {
            return Err(errors::set_null_of_not_null(&table.columns[usize::from(no)].name, &name));
        }
        columns.push(no);
    }
    let parent_database = clause.parent.0.clone().unwrap_or_else(|| table.database.clone());
    let mut key = ForeignKey {
        name,
        columns,
        parent_database,
        parent_table: clause.parent.1.clone(),
        parent_columns: clause.parent_columns.clone(),
        on_delete: clause.on_delete,
        on_update: clause.on_update,
        matching: clause.matching,
        created: 0,
        unchecked: false,
    };
    let is_own = key.refers_to(&table.database, &table.name);
    let found = if is_own { None } else { catalog.find(&key.parent_database, &key.parent_table) };
    let parent = if is_own { Some(table) } else { found.as_ref().map(|t| &t.schema) };
    match parent {
        None if checks => return Err(errors::no_parent_table(&key.parent_table)),
        None if key.parent_columns.is_empty() => return Err(errors::wrong_foreign_key(clause.name.as_deref())),
        None => {}
        Some(parent) => {
            if key.parent_columns.is_empty() && !parent.hidden_key {
                let name = |&c: &u16| parent.columns[usize::from(c)].name.clone();
                key.parent_columns = parent.primary_key.iter().map(name).collect();
            }
            if key.parent_columns.len() != key.columns.len() {
                return Err(errors::wrong_foreign_key(clause.name.as_deref()));
            }
            check_parent(table, &key, parent)?;
            for column in &mut key.parent_columns {
                if let Some(no) = parent.column_no(column) {
                    column.clone_from(&parent.columns[usize::from(no)].name);
                }
            }
        }
    }
    let seen = found.map_or((0, 0), |t| (t.schema.id.0, t.schema.version));
    Ok(ForeignKeyMessage { parent_id: seen.0, parent_version: seen.1, ..ForeignKeyMessage::from(&key) })
}

/// A new table of a name that keys refer to already.
///
/// # Errors
/// It is not what they need.
pub fn check_new_table(catalog: &Catalog, table: &TableSchema, checks: bool) -> Result<()> {
    for child in catalog.tables() {
        for key in child.schema.foreign_keys.iter().filter(|key| key.refers_to(&table.database, &table.name)) {
            let found = check_parent(&child.schema, key, table);
            found.map_err(|e| if checks { errors::cannot_add_foreign_key() } else { e })?;
        }
    }
    Ok(())
}

/// Who refers to a table, the oldest first.
fn referring(catalog: &Catalog, database: &str, name: &str) -> Vec<std::rc::Rc<Reference>> {
    let table = catalog.find(database, name);
    let rules = table.and_then(|table| catalog.rules(table.schema.id));
    rules.map_or_else(Vec::new, |rules| rules.children.clone())
}

/// # Errors
/// 3730: a table that stays refers to one of those that go.
pub fn check_drops(catalog: &Catalog, names: &[(String, String)]) -> Result<()> {
    for (database, name) in names {
        for reference in referring(catalog, database, name) {
            let child = &reference.child.schema;
            if !names.iter().any(|(d, n)| *d == child.database && *n == child.name) {
                return Err(errors::cannot_drop_parent(name, &reference.key.name, &child.name));
            }
        }
    }
    Ok(())
}

/// # Errors
/// 1701.
pub fn check_truncate(catalog: &Catalog, database: &str, name: &str) -> Result<()> {
    let others = referring(catalog, database, name).into_iter().find(|reference| !reference.is_of_itself());
    let Some(reference) = others else { return Ok(()) };
    let (schema, key) = (&reference.child.schema, &reference.key);
    let quoted = crate::parse::view_text::quoted;
    let text = format!("{}.{}, CONSTRAINT {}", quoted(&schema.database), quoted(&schema.name), quoted(&key.name));
    Err(errors::cannot_truncate_parent(&text))
}

/// What an ALTER TABLE does to what keys need: the indexes and columns that go, and columns that are defined anew.
pub struct Loss<'l> {
    pub indexes: &'l [String],
    pub columns: &'l [String],
    pub redefined: &'l [(String, Column)],
    /// Keys that the statement drops.
    pub keys: &'l [String],
}

/// # Errors
/// 1553, 1828, 1829, 3780.
pub fn check_loss(catalog: &Catalog, table: &TableSchema, loss: &Loss<'_>) -> Result<()> {
    let is_dropped = |key: &ForeignKey| loss.keys.iter().any(|name| key.name.eq_ignore_ascii_case(name));
    let own: Vec<&ForeignKey> =
        crate::catalog::foreign_key::by_name(table).into_iter().filter(|key| !is_dropped(key)).collect();
    let others: Vec<_> = referring(catalog, &table.database, &table.name)
        .into_iter()
        .filter(|r| r.child.schema.id != table.id || !is_dropped(&r.key))
        .collect();
    let name_of = |column: &u16| table.columns[usize::from(*column)].name.as_str();
    for column in loss.columns {
        if let Some(key) = own.iter().find(|key| key.columns.iter().any(|c| name_of(c).eq_ignore_ascii_case(column))) {
            return Err(errors::column_needed(column, &key.name));
        }
        let refers = |r: &&std::rc::Rc<Reference>| r.key.parent_columns.iter().any(|c| c.eq_ignore_ascii_case(column));
        if let Some(reference) = others.iter().find(refers) {
            return Err(errors::column_needed_by(column, &reference.key.name, &reference.child.schema.name));
        }
    }
    for (old, new) in loss.redefined {
        check_redefined(catalog, table, (&own, &others), old, new)?;
    }
    check_indexes(table, (&own, &others), loss.indexes)
}

fn check_redefined(
    catalog: &Catalog,
    table: &TableSchema,
    (own, others): (&[&ForeignKey], &[std::rc::Rc<Reference>]),
    old: &str,
    new: &Column,
) -> Result<()> {
    let Some(no) = table.column_no(old) else { return Ok(()) };
    for key in own {
        let Some(at) = key.columns.iter().position(|&c| c == no) else { continue };
        let Some(parent) = catalog.find(&key.parent_database, &key.parent_table) else { continue };
        let column = parent.schema.column_no(&key.parent_columns[at]);
        if let Some(other) = column.filter(|_| parent.schema.id != table.id) {
            check_types(new, &parent.schema.columns[usize::from(other)], &key.name)?;
        }
    }
    for reference in others {
        let named = reference.key.parent_columns.iter().position(|c| c.eq_ignore_ascii_case(old));
        if let Some(at) = named.filter(|_| reference.child.schema.id != table.id) {
            let child = &reference.child.schema.columns[usize::from(reference.key.columns[at])];
            check_types(child, new, &reference.key.name)?;
        }
    }
    Ok(())
}

fn check_indexes(
    table: &TableSchema,
    (own, others): (&[&ForeignKey], &[std::rc::Rc<Reference>]),
    dropped: &[String],
) -> Result<()> {
    let mut left = table.clone();
    left.indexes.retain(|index| !dropped.iter().any(|name| index.name.eq_ignore_ascii_case(name)));
    for name in dropped {
        let Some(index) = table.indexes.iter().find(|index| index.name.eq_ignore_ascii_case(name)) else { continue };
        let is_child =
            |key: &&&ForeignKey| index.columns.starts_with(&key.columns) && index_for(&left, &key.columns).is_none();
        let is_parent = |r: &&std::rc::Rc<Reference>| {
            r.parent
                .as_ref()
                .is_some_and(|p| index.unique && index.columns == p.columns && unique_for(&left, &p.columns).is_none())
        };
        if own.iter().any(|key| is_child(&key)) || others.iter().any(|r| is_parent(&r)) {
            return Err(errors::index_needed(&index.name));
        }
    }
    Ok(())
}

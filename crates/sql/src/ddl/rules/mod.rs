//! The expressions of a new definition: looked through, named, and written as they are kept.

pub mod alter;
pub mod clause;
pub mod fill;
pub(crate) mod rows;

use apus_types::{
    ErrorCode, TableSchema,
    form::Source,
    rules::{CheckDef, Enforced},
    schema::DefaultValue,
};

use self::{clause::CheckClause, fill::is_unfinished};
use crate::{
    catalog::Catalog,
    errors::{self, Result},
    plan::rules::{
        failures::{self, Place},
        read::{examine, names},
    },
};

/// Most constraints of a table.
const CHECKS_MAX: usize = 1000;
/// Longest name in characters.
const NAME_CHARS_MAX: usize = 64;

/// Looks through the expressions of the columns, and adds constraints.
///
/// # Errors
/// What MySQL refuses of them.
pub fn complete(table: &mut TableSchema, checks: &[CheckClause]) -> Result<()> {
    columns(table)?;
    add_checks(table, checks, Enforced::Yes)?;
    table.refresh();
    Ok(())
}

/// The texts of generated columns and defaults.
pub fn columns(table: &mut TableSchema) -> Result<()> {
    for at in 0..table.columns.len() {
        let column = &table.columns[at];
        let has_value_later = |c: u16| {
            let other = &table.columns[usize::from(c)];
            usize::from(c) >= at && (other.generated.is_some() || matches!(other.default, DefaultValue::Expression(_)))
        };
        if let Some(generated) = &column.generated {
            let place = Place::Generated(&column.name);
            let examined = examine(table, &generated.text, place)?;
            let is_later = |c: u16| usize::from(c) >= at && table.columns[usize::from(c)].generated.is_some();
            if examined.columns.iter().any(|&c| is_later(c)) {
                return Err(place.later_column());
            }
            if !generated.stored && table.primary_key.contains(&(at as u16)) {
                return Err(failures::not_of_generated("Defining a virtual generated column as primary key"));
            }
            if let Some(generated) = &mut table.columns[at].generated {
                generated.text = examined.text;
            }
        } else if let DefaultValue::Expression(text) = &column.default {
            let place = Place::Default(&column.name);
            let examined = examine(table, text, place)?;
            if examined.columns.iter().any(|&c| has_value_later(c)) {
                return Err(place.later_column());
            }
            table.columns[at].default = DefaultValue::Expression(examined.text);
        }
    }
    Ok(())
}

/// Adds constraints, which get names where they have none. `enforced`: what is said of those that are enforced.
pub fn add_checks(table: &mut TableSchema, clauses: &[CheckClause], enforced: Enforced) -> Result<()> {
    let mut last = table.checks.iter().filter_map(|check| check.number(&table.name)).max().unwrap_or(0);
    for clause in clauses {
        let name = clause.name.clone().unwrap_or_else(|| {
            last += 1;
            CheckDef::automatic_name(&table.name, last)
        });
        if name.chars().count() > NAME_CHARS_MAX || name.is_empty() {
            return Err(crate::wire::SqlError::new(1059, b"42000", format!("Identifier name '{name}' is too long")));
        }
        if let Some(own) = &clause.column
            && names(&clause.text)?.iter().any(|name| !name.eq_ignore_ascii_case(own))
        {
            return Err(failures::other_column(&name));
        }
        let place = if enforced == Enforced::Yes { Place::Check(&name) } else { Place::Added(&name) };
        let examined = examine(table, &clause.text, place)?;
        if !examined.is_boolean {
            return Err(failures::not_boolean(&name));
        }
        if table.checks.iter().any(|check| check.name.eq_ignore_ascii_case(&name)) {
            return Err(failures::duplicate_check(&name));
        }
        let enforced = if clause.enforced { enforced } else { Enforced::No };
        table.checks.push(CheckDef { name, text: examined.text, enforced });
    }
    if table.checks.len() > CHECKS_MAX {
        return Err(errors::from_code(ErrorCode::InvalidSchema, "1000 constraints of a table"));
    }
    table.checks.sort_by_key(|check| check.name.to_lowercase());
    Ok(())
}

/// The constraints of a table that was made like another, without columns that are being filled there.
///
/// # Errors
/// None that is known.
pub fn copied(table: &mut TableSchema) -> Result<()> {
    for (check, number) in table.checks.iter_mut().zip(1..) {
        check.name = CheckDef::automatic_name(&table.name, number);
        if check.enforced == Enforced::Validating {
            check.enforced = Enforced::Yes;
        }
    }
    if table.columns.iter().any(is_unfinished) {
        let kept = table.columns.iter().cloned().zip((0..).map(Source::Kept)).filter(|(c, _)| !is_unfinished(c));
        let (columns, sources) = kept.unzip();
        table.change_columns(columns, sources).map_err(|(code, text)| errors::from_code(code, &text))?;
        table.forget_forms();
    }
    table.checks.sort_by_key(|check| check.name.to_lowercase());
    Ok(())
}

/// Names of constraints are those of one table of the database.
///
/// # Errors
/// 3822.
pub fn check_free<'n>(
    catalog: &Catalog,
    (database, table): (&str, &str),
    names: impl Iterator<Item = &'n String>,
) -> Result<()> {
    for name in names {
        let others = catalog.tables_of(database).filter(|other| other.schema.name != table);
        if others.flat_map(|other| &other.schema.checks).any(|other| other.name.eq_ignore_ascii_case(name)) {
            return Err(failures::duplicate_check(name));
        }
    }
    Ok(())
}

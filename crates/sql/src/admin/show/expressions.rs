//! Expressions of a definition as SHOW and information_schema tell of them.

use apus_types::{
    Column, TableSchema,
    rules::{CheckDef, Enforced},
    schema::DefaultValue,
};

use crate::parse::view_text::{escaped, quoted};

/// Behind the type in SHOW CREATE TABLE.
pub fn generated(column: &Column) -> Option<String> {
    let generated = column.generated.as_ref()?;
    let kind = if generated.stored { "STORED" } else { "VIRTUAL" };
    Some(format!(" GENERATED ALWAYS AS ({}) {kind}", generated.text))
}

/// The expression of a generated column in information_schema.
pub fn generation(column: &Column) -> String {
    column.generated.as_ref().map_or_else(String::new, |g| escaped(&g.text))
}

/// What EXTRA begins with.
pub fn extra(column: &Column) -> &'static str {
    match (&column.generated, &column.default) {
        (Some(generated), _) if generated.stored => "STORED GENERATED",
        (Some(_), _) => "VIRTUAL GENERATED",
        (None, DefaultValue::CurrentTimestamp | DefaultValue::Expression(_)) => "DEFAULT_GENERATED",
        _ => "",
    }
}

/// A constraint that holds for all rows.
pub fn is_enforced(check: &CheckDef) -> bool {
    check.enforced == Enforced::Yes
}

/// Lines of SHOW CREATE TABLE.
pub fn checks(table: &TableSchema) -> impl Iterator<Item = String> {
    table.checks.iter().map(|check| {
        let end = if is_enforced(check) { "" } else { " /*!80016 NOT ENFORCED */" };
        format!("  CONSTRAINT {} CHECK ({}){end}", quoted(&check.name), check.text)
    })
}

//! Errors of foreign keys, in MySQL's words: applications read them.

use apus_types::TableSchema;

use super::error;
use crate::{catalog::foreign_key::Reference, wire::SqlError};

/// `constraint`: see [`Reference::text`].
pub fn no_parent_row(constraint: &str) -> SqlError {
    let text = format!("Cannot add or update a child row: a foreign key constraint fails ({constraint})");
    error(1452, b"23000", text)
}
pub fn row_is_referenced(constraint: &str) -> SqlError {
    let text = format!("Cannot delete or update a parent row: a foreign key constraint fails ({constraint})");
    error(1451, b"23000", text)
}
pub fn duplicate_by_cascade(reference: &Reference, values: &str, index: &str) -> SqlError {
    let (parent, child) = (&reference.key.parent_table, &reference.child.schema.name);
    let text = format!(
        "Foreign key constraint for table '{parent}', record '{values}' would lead to a duplicate entry in table '{child}', key '{index}'"
    );
    error(1761, b"23000", text)
}
pub fn cascade_too_deep(most: usize) -> SqlError {
    error(3008, b"HY000", format!("Foreign key cascade delete/update exceeds max depth of {most}."))
}
pub fn cannot_drop_parent(table: &str, key: &str, child: &str) -> SqlError {
    let text =
        format!("Cannot drop table '{table}' referenced by a foreign key constraint '{key}' on table '{child}'.");
    error(3730, b"HY000", text)
}
pub fn cannot_truncate_parent(constraint: &str) -> SqlError {
    let text = format!("Cannot truncate a table referenced in a foreign key constraint ({constraint})");
    error(1701, b"42000", text)
}
pub fn index_needed(index: &str) -> SqlError {
    error(1553, b"HY000", format!("Cannot drop index '{index}': needed in a foreign key constraint"))
}
pub fn column_needed(column: &str, key: &str) -> SqlError {
    let text = format!("Cannot drop column '{column}': needed in a foreign key constraint '{key}'");
    error(1828, b"HY000", text)
}
pub fn column_needed_by(column: &str, key: &str, child: &str) -> SqlError {
    let text = format!("Cannot drop column '{column}': needed in a foreign key constraint '{key}' of table '{child}'");
    error(1829, b"HY000", text)
}
pub fn set_null_of_not_null(column: &str, key: &str) -> SqlError {
    let text = format!("Column '{column}' cannot be NOT NULL: needed in a foreign key constraint '{key}' SET NULL");
    error(1830, b"HY000", text)
}
pub fn incompatible(column: &str, other: &str, key: &str) -> SqlError {
    let text = format!(
        "Referencing column '{column}' and referenced column '{other}' in foreign key constraint '{key}' are incompatible."
    );
    error(3780, b"HY000", text)
}
pub fn no_parent_table(table: &str) -> SqlError {
    error(1824, b"HY000", format!("Failed to open the referenced table '{table}'"))
}
pub fn no_parent_column(column: &str, key: &str, table: &str) -> SqlError {
    let text = format!(
        "Failed to add the foreign key constraint. Missing column '{column}' for constraint '{key}' in the referenced table '{table}'"
    );
    error(3734, b"HY000", text)
}
pub fn no_unique_parent_key(key: &str, table: &str) -> SqlError {
    let text = format!(
        "Failed to add the foreign key constraint. Missing unique key for constraint '{key}' in the referenced table '{table}'"
    );
    error(6125, b"HY000", text)
}
pub fn duplicate_foreign_key(name: &str) -> SqlError {
    error(1826, b"HY000", format!("Duplicate foreign key constraint name '{name}'"))
}
pub fn wrong_foreign_key(name: Option<&str>) -> SqlError {
    let name = name.unwrap_or("foreign key without name");
    let text = format!("Incorrect foreign key definition for '{name}': Key reference and table reference don't match");
    error(1239, b"42000", text)
}
pub fn cannot_add_foreign_key() -> SqlError {
    error(1215, b"HY000", "Cannot add foreign key constraint".into())
}
pub fn cannot_drop_foreign_key(name: &str) -> SqlError {
    error(1091, b"42000", format!("Can't DROP '{name}'; check that column/key exists"))
}
pub fn no_key_column(name: &str) -> SqlError {
    error(1072, b"42000", format!("Key column '{name}' doesn't exist in table"))
}
pub fn key_without_length(column: &str) -> SqlError {
    let text = format!("BLOB/TEXT column '{column}' used in key specification without a key length");
    error(1170, b"42000", text)
}
pub fn rename_breaks_foreign_key(from: &TableSchema, to: &TableSchema) -> SqlError {
    let path = |table: &TableSchema| format!("'./{}/{}'", table.database, table.name);
    let (from, to) = (path(from), path(to));
    let text = format!("Error on rename of {from} to {to} (errno: 150 - Foreign key constraint is incorrectly formed)");
    error(1025, b"HY000", text)
}
pub fn no_constraint(name: &str) -> SqlError {
    error(3940, b"HY000", format!("Constraint '{name}' does not exist."))
}

//! Errors of views, and of changes through them.

use super::error;
use crate::wire::SqlError;

pub fn not_updatable(table: &str, of: &str) -> SqlError {
    error(1288, b"HY000", format!("The target table {table} of the {of} is not updatable"))
}

pub fn column_not_updatable(name: &str) -> SqlError {
    error(1348, b"HY000", format!("Column '{name}' is not updatable"))
}

pub fn check_failed(database: &str, view: &str) -> SqlError {
    error(1369, b"HY000", format!("CHECK OPTION failed '{database}.{view}'"))
}

pub fn several_tables_of_view(database: &str, view: &str) -> SqlError {
    error(1393, b"HY000", format!("Can not modify more than one base table through a join view '{database}.{view}'"))
}

pub fn join_view_without_fields(database: &str, view: &str) -> SqlError {
    error(1394, b"HY000", format!("Can not insert into join view '{database}.{view}' without fields list"))
}

pub fn delete_from_join_view(database: &str, view: &str) -> SqlError {
    error(1395, b"HY000", format!("Can not delete from join view '{database}.{view}'"))
}

pub fn view_without_default(database: &str, view: &str) -> SqlError {
    let text = format!("Field of view '{database}.{view}' underlying table doesn't have a default value");
    error(1423, b"HY000", text)
}

pub fn changed_in_subquery(view: &str, of: &str) -> SqlError {
    let text = format!("The definition of table '{view}' prevents operation {of} on table '{view}'.");
    error(1443, b"HY000", text)
}

pub fn not_insertable(view: &str) -> SqlError {
    error(1471, b"HY000", format!("The target table {view} of the INSERT is not insertable-into"))
}

pub fn replaces_outside() -> SqlError {
    error(3059, b"HY000", "REPLACE cannot be executed as it requires deleting rows that are not in the view".into())
}

pub fn invalid_view(database: &str, name: &str) -> SqlError {
    let text = format!(
        "View '{database}.{name}' references invalid table(s) or column(s) or function(s) or definer/invoker of view lack rights to use them"
    );
    error(1356, b"HY000", text)
}

pub fn view_with_clause(clause: &str) -> SqlError {
    error(1350, b"HY000", format!("View's SELECT contains a '{clause}' clause"))
}

pub fn view_with_variable() -> SqlError {
    error(1351, b"HY000", "View's SELECT contains a variable or parameter".into())
}

pub fn no_merge() -> SqlError {
    error(1354, b"HY000", "View merge algorithm can't be used here for now (assumed undefined algorithm)".into())
}

pub fn check_not_updatable(database: &str, name: &str) -> SqlError {
    error(1368, b"HY000", format!("CHECK OPTION on non-updatable view '{database}.{name}'"))
}

pub fn recursive_view(database: &str, name: &str) -> SqlError {
    error(1462, b"HY000", format!("`{database}`.`{name}` contains view recursion"))
}

pub fn other_schema(from: &str, to: &str) -> SqlError {
    error(1450, b"HY000", format!("Changing schema from '{from}' to '{to}' is not allowed."))
}

pub fn no_such_definer(user: &str, host: &str) -> SqlError {
    error(1449, b"HY000", format!("The user specified as a definer ('{user}'@'{host}') does not exist"))
}

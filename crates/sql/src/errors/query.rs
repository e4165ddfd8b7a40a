//! Errors of queries: groups, subqueries, set operations, recursive tables, INTO.

use super::{error, internal};
use crate::wire::SqlError;

pub fn column_count(row: usize) -> SqlError {
    error(1136, b"21S01", format!("Column count doesn't match value count at row {row}"))
}

pub fn operand_columns(count: usize) -> SqlError {
    error(1241, b"21000", format!("Operand should contain {count} column(s)"))
}

/// `place`: which expression of which clause.
pub fn not_in_group_by(place: &str, column: &str) -> SqlError {
    let text = format!(
        "{place} is not in GROUP BY clause and contains nonaggregated column '{column}' which is not functionally dependent on columns in GROUP BY clause; this is incompatible with sql_mode=only_full_group_by"
    );
    error(1055, b"42000", text)
}

pub fn not_aggregated(place: &str, column: &str) -> SqlError {
    let text = format!(
        "In aggregated query without GROUP BY, {place} contains nonaggregated column '{column}'; this is incompatible with sql_mode=only_full_group_by",
        place = place.replacen('E', "e", 1)
    );
    error(1140, b"42000", text)
}

pub fn not_grouping(argument: usize) -> SqlError {
    error(3602, b"HY000", format!("Argument #{argument} of GROUPING function is not in GROUP BY"))
}

pub fn invalid_group_function() -> SqlError {
    error(1111, b"HY000", "Invalid use of group function".into())
}

pub fn join_too_big() -> SqlError {
    let text = "The SELECT would examine more than MAX_JOIN_SIZE rows; check your WHERE and use SET SQL_BIG_SELECTS=1 or SET MAX_JOIN_SIZE=# if the SELECT is okay";
    error(1104, b"42000", text.into())
}

pub fn cursor_with_into() -> SqlError {
    error(1323, b"42000", "Cursor SELECT must not have INTO".into())
}

pub fn ambiguous_column(column: &str, clause: &str) -> SqlError {
    error(1052, b"23000", format!("Column '{column}' in {clause} is ambiguous"))
}

pub fn derived_without_alias() -> SqlError {
    error(1248, b"42000", "Every derived table must have its own alias".into())
}

pub fn set_operation_columns() -> SqlError {
    error(1222, b"21000", "The used SELECT statements have a different number of columns".into())
}

pub fn subquery_rows() -> SqlError {
    error(1242, b"21000", "Subquery returns more than 1 row".into())
}

pub fn alias_columns() -> SqlError {
    let text = "In definition of view, derived table or common table expression, SELECT list and column names list have different column counts";
    error(1353, b"HY000", text.into())
}

pub fn too_many_tables(most: usize) -> SqlError {
    error(1116, b"HY000", format!("Too many tables; MySQL can only use {most} tables in a join"))
}

pub fn empty_values_row() -> SqlError {
    let text =
        "Each row of a VALUES clause must have at least one column, unless when used as source in an INSERT statement.";
    error(3942, b"HY000", text.into())
}

pub fn values_default() -> SqlError {
    let text = "A VALUES clause cannot use DEFAULT values, unless used as a source in an INSERT statement.";
    error(3943, b"HY000", text.into())
}

pub fn no_data() -> SqlError {
    error(1329, b"02000", "No data - zero rows fetched, selected, or processed".into())
}

pub fn several_rows() -> SqlError {
    error(1172, b"42000", "Result consisted of more than one row".into())
}

pub fn into_columns() -> SqlError {
    error(1222, b"21000", "The used SELECT statements have a different number of columns".into())
}

pub fn into_twice() -> SqlError {
    error(3953, b"HY000", "Multiple INTO clauses in one query block.".into())
}

pub fn into_inside() -> SqlError {
    let text =
        "Misplaced INTO clause, INTO is not allowed inside subqueries, and must be placed at end of UNION clauses.";
    error(3954, b"HY000", text.into())
}

pub fn recursive_first(name: &str) -> SqlError {
    let text = format!(
        "Recursive Common Table Expression '{name}' should have one or more non-recursive query blocks followed by one or more recursive ones"
    );
    error(3574, b"HY000", text)
}

pub fn recursive_union(name: &str) -> SqlError {
    error(3573, b"HY000", format!("Recursive Common Table Expression '{name}' should contain a UNION"))
}

pub fn recursive_aggregate(name: &str) -> SqlError {
    let text = format!(
        "Recursive Common Table Expression '{name}' can contain neither aggregation nor window functions in recursive query block"
    );
    error(3575, b"HY000", text)
}

pub fn recursive_once(name: &str) -> SqlError {
    let text = format!(
        "In recursive query block of Recursive Common Table Expression '{name}', the recursive table must be referenced only once, and not in any subquery"
    );
    error(3577, b"HY000", text)
}

/// An alias where no window function may stand.
pub fn alias_of_window(alias: &str, clause: &str) -> SqlError {
    if clause == "group statement" {
        return error(1056, b"42000", format!("Can't group on '{alias}'"));
    }
    let text =
        format!("You cannot use the alias '{alias}' of an expression containing a window function in this context.'");
    error(3594, b"HY000", text)
}

/// Inside of planning: the statement's own text must be planned, with its literals.
pub fn structural() -> SqlError {
    internal("a plan without literals")
}

pub fn recursion_too_deep(depth: u64) -> SqlError {
    let text = format!(
        "Recursive query aborted after {depth} iterations. Try increasing @@cte_max_recursion_depth to a larger value."
    );
    error(3636, b"HY000", text)
}

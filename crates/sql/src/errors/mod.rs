//! Errors in MySQL's numbers, states and words; and the mapping of the cluster's error catalogue onto them.

mod files;
mod foreign_key;
mod json;
mod spill;
pub(crate) mod xa;

pub use files::*;
pub use foreign_key::*;
pub use json::*;
pub use spill::*;

use apus_client::ClientError;
use apus_types::ErrorCode;

use crate::wire::SqlError;

pub type Result<T> = std::result::Result<T, SqlError>;

fn error(errno: u16, sqlstate: &[u8; 5], message: String) -> SqlError {
    SqlError::new(errno, sqlstate, message)
}

pub fn syntax(near: &str) -> SqlError {
    let near: String = near.chars().take(80).collect();
    let text = format!(
        "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version for the right syntax to use near '{near}' at line 1"
    );
    error(1064, b"42000", text)
}
pub fn syntax_message(message: &str) -> SqlError {
    error(1064, b"42000", format!("You have an error in your SQL syntax; {message}"))
}
pub fn collation_mix(errno: u16, which: &str, operation: &str) -> SqlError {
    let space = if which.is_empty() { "" } else { " " };
    error(errno, b"HY000", format!("Illegal mix of collations{space}{which} for operation '{operation}'"))
}
pub fn truncated_number(kind: &str, text: &[u8]) -> SqlError {
    error(1292, b"22007", format!("Truncated incorrect {kind} value: '{}'", String::from_utf8_lossy(text)))
}
pub fn empty_query() -> SqlError {
    error(1065, b"42000", "Query was empty".into())
}
pub fn multiple_primary() -> SqlError {
    error(1068, b"42000", "Multiple primary key defined".into())
}
/// Something MySQL can and we cannot yet; never a wrong answer instead.
pub fn not_supported(what: &str) -> SqlError {
    error(1235, b"42000", format!("This version of Apus doesn't yet support '{what}'"))
}
pub fn no_database() -> SqlError {
    error(1046, b"3D000", "No database selected".into())
}
pub fn unknown_database(name: &str) -> SqlError {
    error(1049, b"42000", format!("Unknown database '{name}'"))
}
/// ALTER DATABASE has a number of its own.
pub fn unknown_schema(name: &str) -> SqlError {
    error(3503, b"42Y07", format!("Database '{name}' doesn't exist"))
}
pub fn unknown_table(database: &str, table: &str) -> SqlError {
    error(1146, b"42S02", format!("Table '{database}.{table}' doesn't exist"))
}
pub fn unknown_virtual_table(table: &str) -> SqlError {
    error(1109, b"42S02", format!("Unknown table '{table}' in information_schema"))
}
pub fn virtual_table_write(database: &str) -> SqlError {
    if database == crate::catalog::grant_tables::DATABASE {
        return not_supported("changes of the grant tables; use CREATE USER, ALTER USER, DROP USER, GRANT and REVOKE");
    }
    error(1044, b"42000", format!("Access denied to database '{database}'"))
}
pub fn drop_unknown_table(names: &str) -> SqlError {
    error(1051, b"42S02", format!("Unknown table '{names}'"))
}
pub fn unknown_column(column: &str, clause: &str) -> SqlError {
    error(1054, b"42S22", format!("Unknown column '{column}' in '{clause}'"))
}
pub fn unknown_function(database: &str, name: &str) -> SqlError {
    error(1305, b"42000", format!("FUNCTION {database}.{name} does not exist"))
}
pub fn argument_count(name: &str) -> SqlError {
    error(1582, b"42000", format!("Incorrect parameter count in the call to native function '{name}'"))
}
pub fn column_count(row: usize) -> SqlError {
    error(1136, b"21S01", format!("Column count doesn't match value count at row {row}"))
}
pub fn operand_columns(count: usize) -> SqlError {
    error(1241, b"21000", format!("Operand should contain {count} column(s)"))
}
pub fn regexp(errno: u16, message: &str) -> SqlError {
    error(errno, b"HY000", message.into())
}
pub fn wrong_value(kind: &str, value: &crate::value::datum::Datum<'_>, function: &str) -> SqlError {
    let shown: String = value.as_string().chars().take(64).collect();
    error(1411, b"HY000", format!("Incorrect {kind} value: '{shown}' for function {function}"))
}
/// A constant beside a column of moments that is none.
pub fn wrong_moment(kind: &str, text: &[u8]) -> SqlError {
    error(1525, b"HY000", format!("Incorrect {kind} value: '{}'", String::from_utf8_lossy(text)))
}
pub fn incorrect_moment(kind: &str, text: &[u8]) -> SqlError {
    error(1292, b"22007", format!("Incorrect {kind} value: '{}'", String::from_utf8_lossy(text)))
}
pub fn truncated_value(kind: &str, text: &[u8]) -> SqlError {
    error(1292, b"22007", format!("Truncated incorrect {kind} value: '{}'", String::from_utf8_lossy(text)))
}
pub fn not_utf8(text: &[u8]) -> SqlError {
    invalid_bytes("utf8mb4", text)
}
pub fn invalid_bytes(charset: &str, text: &[u8]) -> SqlError {
    SqlError::invalid_characters(charset, text)
}
pub fn truncated_time(text: &str) -> SqlError {
    error(1292, b"22007", format!("Truncated incorrect time value: '{text}'"))
}
pub fn cut_by_group_concat(row: u64) -> SqlError {
    error(1260, b"HY000", format!("Row {row} was cut by GROUP_CONCAT()"))
}
pub fn division_by_zero() -> SqlError {
    error(1365, b"22012", "Division by 0".into())
}
pub fn unknown_prepared(name: &str, by: &str) -> SqlError {
    error(1243, b"HY000", format!("Unknown prepared statement handler ({name}) given to {by}"))
}
pub fn not_preparable() -> SqlError {
    error(1295, b"HY000", "This command is not supported in the prepared statement protocol yet".into())
}
pub fn no_auto_increment() -> SqlError {
    error(1467, b"HY000", "Failed to read auto-increment value from storage engine".into())
}
pub fn safe_update() -> SqlError {
    let text =
        "You are using safe update mode and you tried to update a table without a WHERE that uses a KEY column. ";
    error(1175, b"HY000", text.into())
}
pub fn role_not_granted(role: &str, user: &str) -> SqlError {
    error(3530, b"HY000", format!("{role} is not granted to {user}"))
}
pub fn interrupted() -> SqlError {
    error(1317, b"70100", "Query execution was interrupted".into())
}
pub fn out_of_time() -> SqlError {
    error(3024, b"HY000", "Query execution was interrupted, maximum statement execution time exceeded".into())
}
pub fn column_twice(name: &str) -> SqlError {
    error(1110, b"42000", format!("Column '{name}' specified twice"))
}
pub fn null_not_allowed(column: &str) -> SqlError {
    error(1048, b"23000", format!("Column '{column}' cannot be null"))
}
pub fn invalid_characters(charset: &str) -> SqlError {
    error(1300, b"HY000", format!("Invalid {charset} character string: ''"))
}
pub fn line_too_long(row: usize, most: usize) -> SqlError {
    let text = format!(
        "Row size too large: row {row} of the file has no end within {most} bytes. See whether FIELDS and LINES of the statement say how its fields and \
         lines end"
    );
    error(1118, b"42000", text)
}
pub fn local_files_disabled() -> SqlError {
    let text = "Loading local data is disabled; this must be enabled on both the client and server sides";
    error(3948, b"42000", text.into())
}
pub fn wrong_separator() -> SqlError {
    error(1083, b"42000", "Field separator argument is not what is expected; check the manual".into())
}
pub fn long_separator() -> SqlError {
    error(1638, b"HY000", "Non-ASCII separator arguments are not fully supported".into())
}
pub fn fixed_of_blobs() -> SqlError {
    let text = "You can't use fixed rowlength with BLOBs; please use 'fields terminated by'";
    error(1084, b"42000", text.into())
}
pub fn fixed_to_variable() -> SqlError {
    error(1409, b"HY000", "Can't load value from file with fixed size rows to variable".into())
}
pub fn unknown_charset(name: &str) -> SqlError {
    error(1115, b"42000", format!("Unknown character set: '{name}'"))
}
pub fn unknown_collation(name: &str) -> SqlError {
    error(1273, b"HY000", format!("Unknown collation: '{name}'"))
}
pub fn global_variable(name: &str) -> SqlError {
    error(1229, b"HY000", format!("Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL"))
}
pub fn too_few_fields(row: usize) -> SqlError {
    error(1261, b"01000", format!("Row {row} doesn't contain data for all columns"))
}
pub fn too_many_fields(row: usize) -> SqlError {
    error(1262, b"01000", format!("Row {row} was truncated; it contained more data than there were input columns"))
}
pub fn null_in_file(column: &str, row: usize) -> SqlError {
    let text = format!("Column set to default value; NULL supplied to NOT NULL column '{column}' at row {row}");
    error(1263, b"22004", text)
}
pub fn no_default(column: &str) -> SqlError {
    error(1364, b"HY000", format!("Field '{column}' doesn't have a default value"))
}
pub fn invalid_default(column: &str) -> SqlError {
    error(1067, b"42000", format!("Invalid default value for '{column}'"))
}
/// A local time that the session's time zone leaves out.
pub fn invalid_timestamp(column: &str, row: usize) -> SqlError {
    error(1299, b"HY000", format!("Invalid TIMESTAMP value in column '{column}' at row {row}"))
}
pub fn out_of_range(column: &str, row: usize) -> SqlError {
    error(1264, b"22003", format!("Out of range value for column '{column}' at row {row}"))
}
pub fn too_long(column: &str, row: usize) -> SqlError {
    error(1406, b"22001", format!("Data too long for column '{column}' at row {row}"))
}
pub fn truncated(column: &str, row: usize) -> SqlError {
    error(1265, b"01000", format!("Data truncated for column '{column}' at row {row}"))
}
pub fn incorrect_value(kind: &str, value: &str, column: &str, row: usize) -> SqlError {
    let errno = if matches!(kind, "date" | "datetime" | "time") { 1292 } else { 1366 };
    let state = if errno == 1292 { b"22007" } else { b"HY000" };
    error(errno, state, format!("Incorrect {kind} value: '{value}' for column '{column}' at row {row}"))
}
pub fn overflow(kind: &str, expression: &str) -> SqlError {
    error(1690, b"22003", format!("{kind} value is out of range in '{expression}'"))
}
pub fn illegal_double(text: &str) -> SqlError {
    error(1367, b"22007", format!("Illegal double '{text}' value found during parsing"))
}
pub fn duplicate_key(value: &str, key: &str) -> SqlError {
    error(1062, b"23000", format!("Duplicate entry '{value}' for key '{key}'"))
}
pub fn wrong_arguments(what: &str) -> SqlError {
    error(1210, b"HY000", format!("Incorrect arguments to {what}"))
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
pub fn unknown_variable(name: &str) -> SqlError {
    error(1193, b"HY000", format!("Unknown system variable '{name}'"))
}
pub fn read_only_variable(name: &str) -> SqlError {
    error(1238, b"HY000", format!("Variable '{name}' is a read only variable"))
}
/// Of a variable that is each session's own.
pub fn no_global_value(name: &str) -> SqlError {
    error(1238, b"HY000", format!("Variable '{name}' is a SESSION variable"))
}
pub fn no_session_value(name: &str) -> SqlError {
    error(1238, b"HY000", format!("Variable '{name}' is a GLOBAL variable"))
}
/// `kind`: PROCEDURE, FUNCTION.
pub fn unknown_routine(kind: &str, name: &str) -> SqlError {
    error(1305, b"42000", format!("{kind} {name} does not exist"))
}
pub fn needs_debug() -> SqlError {
    let text = "The 'SHOW PROCEDURE|FUNCTION CODE' feature is disabled; you need MySQL built with '--with-debug' to have it working";
    error(1289, b"HY000", text.into())
}
pub fn unknown_trigger() -> SqlError {
    error(1360, b"HY000", "Trigger does not exist".into())
}
pub fn no_binary_log() -> SqlError {
    error(1381, b"HY000", "You are not using binary logging".into())
}
pub fn session_variable(name: &str) -> SqlError {
    error(1228, b"HY000", format!("Variable '{name}' is a SESSION variable and can't be used with SET GLOBAL"))
}
pub fn join_too_big() -> SqlError {
    let text = "The SELECT would examine more than MAX_JOIN_SIZE rows; check your WHERE and use SET SQL_BIG_SELECTS=1 or SET MAX_JOIN_SIZE=# if the SELECT is okay";
    error(1104, b"42000", text.into())
}
pub fn unknown_locale(name: &str) -> SqlError {
    error(1649, b"HY000", format!("Unknown locale: '{name}'"))
}
pub fn wrong_variable_type(name: &str) -> SqlError {
    error(1232, b"42000", format!("Incorrect argument type to variable '{name}'"))
}
pub fn wrong_variable_value(name: &str, value: &str) -> SqlError {
    error(1231, b"42000", format!("Variable '{name}' can't be set to the value of '{value}'"))
}
pub fn out_of_sort_memory() -> SqlError {
    error(1038, b"HY001", "Out of sort memory, consider a narrower WHERE or a LIMIT".into())
}
pub fn duplicate_name_in_list(name: &str) -> SqlError {
    error(3026, b"HY000", format!("Duplicate entry '{name}'."))
}
pub fn cursor_with_into() -> SqlError {
    error(1323, b"42000", "Cursor SELECT must not have INTO".into())
}
/// Rows between the steps of one statement, over its limit.
pub fn out_of_query_memory(bytes_max: usize) -> SqlError {
    let text =
        format!("Memory capacity of {bytes_max} bytes for 'rows of a statement' exceeded. Join or collect fewer rows");
    error(3170, b"HY000", text)
}
pub fn ambiguous_column(column: &str, clause: &str) -> SqlError {
    error(1052, b"23000", format!("Column '{column}' in {clause} is ambiguous"))
}
pub fn not_unique_table(name: &str) -> SqlError {
    error(1066, b"42000", format!("Not unique table/alias: '{name}'"))
}
pub fn derived_without_alias() -> SqlError {
    error(1248, b"42000", "Every derived table must have its own alias".into())
}
pub fn wrong_column_name(name: &str) -> SqlError {
    error(1166, b"42000", format!("Incorrect column name '{name}'"))
}
pub fn wrong_table_name(name: &str) -> SqlError {
    error(1103, b"42000", format!("Incorrect table name '{name}'"))
}
pub fn no_columns() -> SqlError {
    error(4028, b"HY000", "A table must have at least one visible column.".to_owned())
}
pub fn locked_while_created(table: &str, created: &str) -> SqlError {
    error(1746, b"HY000", format!("Can't update table '{table}' while '{created}' is being created."))
}
pub fn explain_into(format: Option<&str>) -> SqlError {
    match format {
        None => error(6006, b"0A000", "EXPLAIN INTO does not support implicit FORMAT.".to_owned()),
        Some(name) => error(6007, b"0A000", format!("EXPLAIN INTO does not support FORMAT={name}.")),
    }
}
/// As at a login.
pub fn access_denied(user: &str, host: &str, with_password: bool) -> SqlError {
    let using = if with_password { "YES" } else { "NO" };
    error(1045, b"28000", format!("Access denied for user '{user}'@'{host}' (using password: {using})"))
}
pub fn unknown_thread(id: u32) -> SqlError {
    error(1094, b"HY000", format!("Unknown thread id: {id}"))
}
pub fn not_explained() -> SqlError {
    let text = "EXPLAIN FOR CONNECTION command is supported only for SELECT/UPDATE/INSERT/DELETE/REPLACE";
    error(3012, b"HY000", text.to_owned())
}
pub fn only_integers(near: &str) -> SqlError {
    error(1064, b"42000", format!("Only integers allowed as number here near '{near}' at line 1"))
}
pub fn explain_connection_into() -> SqlError {
    error(6009, b"0A000", "EXPLAIN FOR CONNECTION does not support the INTO clause.".to_owned())
}
pub fn old_json_format() -> SqlError {
    not_supported("explain_json_format_version = 1; EXPLAIN FORMAT=JSON writes version 2 only, so leave it at 2")
}
pub fn unknown_format(name: &str) -> SqlError {
    error(1791, b"HY000", format!("Unknown EXPLAIN format name: '{name}'"))
}
pub fn duplicate_column(name: &str) -> SqlError {
    error(1060, b"42S21", format!("Duplicate column name '{name}'"))
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
pub fn update_table_used(name: &str) -> SqlError {
    error(1093, b"HY000", format!("You can't specify target table '{name}' for update in FROM clause"))
}
pub fn too_many_tables(most: usize) -> SqlError {
    error(1116, b"HY000", format!("Too many tables; MySQL can only use {most} tables in a join"))
}
pub fn no_key_of_table(key: &str, table: &str) -> SqlError {
    error(1176, b"42000", format!("Key '{key}' doesn't exist in table '{table}'"))
}
pub fn wrong_usage(a: &str, b: &str) -> SqlError {
    error(1221, b"HY000", format!("Incorrect usage of {a} and {b}"))
}
pub fn not_updatable(table: &str, of: &str) -> SqlError {
    error(1288, b"HY000", format!("The target table {table} of the {of} is not updatable"))
}
pub fn unknown_multi_table(table: &str) -> SqlError {
    error(1109, b"42S02", format!("Unknown table '{table}' in MULTI DELETE"))
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
pub fn undeclared_variable(name: &str) -> SqlError {
    error(1327, b"42000", format!("Undeclared variable: {name}"))
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
pub fn too_many_locks() -> SqlError {
    let text = "The total number of locks exceeds the lock table size; change fewer rows per statement (LIMIT)";
    error(1206, b"HY000", text.into())
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
pub fn unknown_engine(name: &str) -> SqlError {
    error(1286, b"42000", format!("Unknown storage engine '{name}'"))
}
pub fn invalid_view(database: &str, name: &str) -> SqlError {
    let text = format!(
        "View '{database}.{name}' references invalid table(s) or column(s) or function(s) or definer/invoker of view lack rights to use them"
    );
    error(1356, b"HY000", text)
}
pub fn wrong_object(database: &str, name: &str, wanted: &str) -> SqlError {
    error(1347, b"HY000", format!("'{database}.{name}' is not {wanted}"))
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
pub fn unknown_savepoint(name: &str) -> SqlError {
    error(1305, b"42000", format!("SAVEPOINT {name} does not exist"))
}
pub fn table_exists(name: &str) -> SqlError {
    error(1050, b"42S01", format!("Table '{name}' already exists"))
}
pub fn database_exists(name: &str) -> SqlError {
    error(1007, b"HY000", format!("Can't create database '{name}'; database exists"))
}
pub fn drop_unknown_database(name: &str) -> SqlError {
    error(1008, b"HY000", format!("Can't drop database '{name}'; database doesn't exist"))
}
pub fn internal(what: &str) -> SqlError {
    error(1815, b"HY000", format!("Internal error: {what}"))
}
pub fn read_only_transaction() -> SqlError {
    error(1792, b"25006", "Cannot execute statement in a READ ONLY transaction.".into())
}

pub fn locked_tables() -> SqlError {
    let text = "Can't execute the given command because you have active locked tables or an active transaction";
    error(1192, b"HY000", text.to_owned())
}
/// Of a session that keeps all others from writing.
pub fn conflicting_read_lock() -> SqlError {
    error(1223, b"HY000", "Can't execute the query because you have a conflicting read lock".to_owned())
}
pub fn not_locked(table: &str) -> SqlError {
    error(1100, b"HY000", format!("Table '{table}' was not locked with LOCK TABLES"))
}
pub fn locked_to_read(table: &str) -> SqlError {
    error(1099, b"HY000", format!("Table '{table}' was locked with a READ lock and can't be updated"))
}

/// MySQL's number and state for each of ours.
fn number_of(code: ErrorCode) -> (u16, &'static [u8; 5]) {
    match code {
        ErrorCode::DuplicateKey => (1062, b"23000"),
        ErrorCode::RowNotFound => (1032, b"HY000"),
        ErrorCode::NullNotAllowed => (1048, b"23000"),
        ErrorCode::ValueOutOfRange => (1264, b"22003"),
        ErrorCode::RowTooBig => (1118, b"42000"),
        ErrorCode::KeyTooLong => (1071, b"42000"),
        ErrorCode::LockTimeout | ErrorCode::TransactionTimeout => (1205, b"HY000"),
        ErrorCode::LockNotAvailable => (3572, b"HY000"),
        ErrorCode::Deadlock
        | ErrorCode::NodeFailed
        | ErrorCode::SnapshotTooOld
        | ErrorCode::TransactionAborted
        | ErrorCode::TransactionNotFound => (1213, b"40001"),
        ErrorCode::WrongView
        | ErrorCode::NodeStarting
        | ErrorCode::SnapshotElsewhere
        | ErrorCode::OutcomesFull
        | ErrorCode::Frozen
        | ErrorCode::NoDisk
        | ErrorCode::LogFull
        | ErrorCode::DiskFailed
        | ErrorCode::Overload
        | ErrorCode::LinkLost
        | ErrorCode::NoNodeAvailable => (1297, b"HY000"),
        ErrorCode::SchemaBusy => (1205, b"HY000"),
        ErrorCode::OutOfMemory | ErrorCode::TransactionTooLarge => (1114, b"HY000"),
        ErrorCode::TooManyTransactions | ErrorCode::TooManySnapshots => (1637, b"HY000"),
        ErrorCode::RequestTooLarge => (1153, b"08S01"),
        ErrorCode::TableNotFound => (1146, b"42S02"),
        ErrorCode::TableExists => (1050, b"42S01"),
        ErrorCode::SchemaVersionChanged => (1412, b"HY000"),
        ErrorCode::IndexNotFound => (1091, b"42000"),
        ErrorCode::IndexExists => (1061, b"42000"),
        ErrorCode::DatabaseNotFound => (1049, b"42000"),
        ErrorCode::DatabaseExists => (1007, b"HY000"),
        ErrorCode::DatabaseNotEmpty => (1010, b"HY000"),
        ErrorCode::InvalidSchema => (1005, b"HY000"),
        ErrorCode::TooManyTables => (1113, b"42000"),
        ErrorCode::OutcomeUnknown | ErrorCode::OutcomeForgotten => (1180, b"HY000"),
        ErrorCode::NotSupported => (1235, b"42000"),
        ErrorCode::ProtocolViolation
        | ErrorCode::ProtocolVersion
        | ErrorCode::WrongCluster
        | ErrorCode::NotProven
        | ErrorCode::RoleNotProven
        | ErrorCode::Fenced
        | ErrorCode::StatementEndsNodes
        | ErrorCode::TransactionIdUsed
        | ErrorCode::NotFrozen
        | ErrorCode::SideChanged
        | ErrorCode::NoFullCopy
        | ErrorCode::ConstraintsNotHeld
        | ErrorCode::Internal => (1296, b"HY000"),
    }
}

/// A snapshot does not have the table: it has come into the place of another since.
pub fn definition_changed() -> SqlError {
    error(1412, b"HY000", "Table definition has changed, please retry transaction".to_owned())
}

/// A cluster error as a client of MySQL expects it; ours stays visible behind.
pub fn from_code(code: ErrorCode, detail: &str) -> SqlError {
    let (errno, state) = number_of(code);
    let message = match code {
        ErrorCode::Deadlock => "Deadlock found when trying to get lock; try restarting transaction".to_owned(),
        ErrorCode::LockTimeout => "Lock wait timeout exceeded; try restarting transaction".to_owned(),
        ErrorCode::LockNotAvailable => {
            "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.".to_owned()
        }
        _ => code.to_string(),
    };
    let message = if detail.is_empty() { message } else { format!("{message} ({detail})") };
    SqlError::new(errno, state, message)
}

pub fn from_client(e: &ClientError) -> SqlError {
    from_code(e.code, &e.detail)
}

/// 1191: no index has exactly the columns that MATCH names.
pub fn no_full_text() -> SqlError {
    error(1191, b"HY000", "Can't find FULLTEXT index matching the column list".to_owned())
}

/// Most warnings kept of one statement; `max_error_count` may say fewer.
pub const WARNINGS_MAX: usize = 1024;

/// Longest text of a warning that is kept, in bytes, as in MySQL.
pub const MESSAGE_BYTES_MAX: usize = 511;

/// A message as it is kept.
pub fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.shrink_to_fit();
    }
    message
}

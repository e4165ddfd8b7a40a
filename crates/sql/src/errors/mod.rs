//! Errors in MySQL's numbers, states and words; and the mapping of the cluster's error catalogue onto them.

mod files;
mod foreign_key;
mod json;
mod load;
mod query;
mod spill;
mod temporary;
mod value;
mod variable;
mod view;
pub(crate) mod xa;

pub use files::*;
pub use foreign_key::*;
pub use json::*;
pub use load::*;
pub use query::*;
pub use spill::*;
pub use temporary::*;
pub use value::*;
pub use variable::*;
pub use view::*;

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
pub fn unknown_charset(name: &str) -> SqlError {
    error(1115, b"42000", format!("Unknown character set: '{name}'"))
}
pub fn unknown_collation(name: &str) -> SqlError {
    error(1273, b"HY000", format!("Unknown collation: '{name}'"))
}
pub fn duplicate_key(value: &str, key: &str) -> SqlError {
    error(1062, b"23000", format!("Duplicate entry '{value}' for key '{key}'"))
}
pub fn wrong_arguments(what: &str) -> SqlError {
    error(1210, b"HY000", format!("Incorrect arguments to {what}"))
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
pub fn out_of_sort_memory() -> SqlError {
    error(1038, b"HY001", "Out of sort memory, consider a narrower WHERE or a LIMIT".into())
}
pub fn duplicate_name_in_list(name: &str) -> SqlError {
    error(3026, b"HY000", format!("Duplicate entry '{name}'."))
}
/// Rows between the steps of one statement, over its limit.
pub fn out_of_query_memory(bytes_max: usize) -> SqlError {
    let text =
        format!("Memory capacity of {bytes_max} bytes for 'rows of a statement' exceeded. Join or collect fewer rows");
    error(3170, b"HY000", text)
}
pub fn not_unique_table(name: &str) -> SqlError {
    error(1066, b"42000", format!("Not unique table/alias: '{name}'"))
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
pub fn not_owner_of_thread(id: u32) -> SqlError {
    error(1095, b"HY000", format!("You are not owner of thread {id}"))
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
pub fn update_table_used(name: &str) -> SqlError {
    error(1093, b"HY000", format!("You can't specify target table '{name}' for update in FROM clause"))
}
pub fn no_key_of_table(key: &str, table: &str) -> SqlError {
    error(1176, b"42000", format!("Key '{key}' doesn't exist in table '{table}'"))
}
pub fn wrong_usage(a: &str, b: &str) -> SqlError {
    error(1221, b"HY000", format!("Incorrect usage of {a} and {b}"))
}
pub fn unknown_multi_table(table: &str) -> SqlError {
    error(1109, b"42S02", format!("Unknown table '{table}' in MULTI DELETE"))
}
pub fn too_many_locks() -> SqlError {
    let text = "The total number of locks exceeds the lock table size; change fewer rows per statement (LIMIT)";
    error(1206, b"HY000", text.into())
}
pub fn unknown_engine(name: &str) -> SqlError {
    error(1286, b"42000", format!("Unknown storage engine '{name}'"))
}
pub fn wrong_object(database: &str, name: &str, wanted: &str) -> SqlError {
    error(1347, b"HY000", format!("'{database}.{name}' is not {wanted}"))
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

//! Errors of triggers, with MySQL's numbers and texts.

use crate::wire::SqlError;

fn error(number: u16, state: &[u8; 5], text: String) -> SqlError {
    SqlError::new(number, state, text)
}

pub fn exists() -> SqlError {
    error(1359, b"HY000", "Trigger already exists".into())
}
/// Of CREATE TRIGGER IF NOT EXISTS.
pub fn exists_on(name: &str, database: &str, table: &str) -> SqlError {
    error(4099, b"HY000", format!("Trigger '{name}' already exists on the table '{database}'.'{table}'."))
}
pub fn exists_elsewhere(name: &str, database: &str) -> SqlError {
    let text = format!(
        "Trigger '{database}'.'{name}' already exists on a different table. The 'IF NOT EXISTS' clause is only supported for triggers associated with the same table."
    );
    error(4100, b"HY000", text)
}
pub fn on_system_table() -> SqlError {
    error(1465, b"HY000", "Triggers can not be created on system tables".into())
}
/// A newer SQL node has made a trigger that this one cannot read: rows must not go without it.
pub fn unreadable() -> SqlError {
    crate::errors::not_supported("a trigger of a newer version of Apus; upgrade this SQL node")
}
pub fn other_database() -> SqlError {
    error(1435, b"HY000", "Trigger in wrong schema".into())
}
pub fn no_neighbour(name: &str) -> SqlError {
    let text = format!("Referenced trigger '{name}' for the given action time and event type does not exist.");
    error(3011, b"HY000", text)
}

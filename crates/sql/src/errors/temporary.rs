//! Refusals and warnings about temporary tables, in MySQL's words.

use super::error;
use crate::wire::SqlError;

pub fn cannot_reopen(alias: &str) -> SqlError {
    error(1137, b"HY000", format!("Can't reopen table: '{alias}'"))
}
pub fn in_a_view(name: &str) -> SqlError {
    error(1352, b"HY000", format!("View's SELECT refers to a temporary table '{name}'"))
}
pub fn with_trigger(name: &str) -> SqlError {
    error(1361, b"HY000", format!("Trigger's '{name}' is view or temporary table"))
}
pub fn with_full_text() -> SqlError {
    error(1796, b"HY000", "Cannot create FULLTEXT index on temporary InnoDB table".into())
}
/// What ROLLBACK leaves.
pub fn made_stay() -> SqlError {
    error(1751, b"HY000", "The creation of some temporary tables could not be rolled back.".into())
}
pub fn dropped_stay_so() -> SqlError {
    error(1752, b"HY000", "Some temporary tables were dropped, but these operations could not be rolled back.".into())
}

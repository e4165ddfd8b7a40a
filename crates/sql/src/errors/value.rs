//! Errors of values: what is no number, no moment or no text, and what a column does not take.

use super::error;
use crate::wire::SqlError;

pub fn collation_mix(errno: u16, which: &str, operation: &str) -> SqlError {
    let space = if which.is_empty() { "" } else { " " };
    error(errno, b"HY000", format!("Illegal mix of collations{space}{which} for operation '{operation}'"))
}

pub fn truncated_number(kind: &str, text: &[u8]) -> SqlError {
    error(1292, b"22007", format!("Truncated incorrect {kind} value: '{}'", String::from_utf8_lossy(text)))
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

pub fn null_not_allowed(column: &str) -> SqlError {
    error(1048, b"23000", format!("Column '{column}' cannot be null"))
}

pub fn invalid_characters(charset: &str) -> SqlError {
    error(1300, b"HY000", format!("Invalid {charset} character string: ''"))
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

pub fn no_next_second() -> SqlError {
    error(1441, b"22008", "Datetime function: datetime field overflow".into())
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

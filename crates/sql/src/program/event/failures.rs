//! Errors of events, with MySQL's numbers and texts.

use crate::wire::SqlError;

fn error(number: u16, text: String) -> SqlError {
    SqlError::new(number, b"HY000", text)
}

pub fn exists(name: &str) -> SqlError {
    error(1537, format!("Event '{name}' already exists"))
}
pub fn unknown(name: &str) -> SqlError {
    error(1539, format!("Unknown event '{name}'"))
}
/// The note of DROP EVENT IF EXISTS.
pub fn does_not_exist(name: &str) -> SqlError {
    SqlError::new(1305, b"42000", format!("Event {name} does not exist"))
}
pub fn interval() -> SqlError {
    error(1542, "INTERVAL is either not positive or too big".into())
}
pub fn ends() -> SqlError {
    error(1543, "ENDS is either invalid or before STARTS".into())
}
/// The note of an event that is kept.
pub fn past_and_disabled() -> SqlError {
    error(1544, "Event execution time is in the past. Event has been disabled".into())
}
pub fn same_name() -> SqlError {
    error(1551, "Same old and new event name".into())
}
pub fn recursion() -> SqlError {
    error(1576, "Recursion of EVENT DDL statements is forbidden when body is present".into())
}
/// The note of one that is not.
pub fn past_and_dropped() -> SqlError {
    let text = "Event execution time is in the past and ON COMPLETION NOT PRESERVE is set. The event was dropped immediately after creation.";
    error(1588, text.into())
}
pub fn past_and_unchanged() -> SqlError {
    let text = "Event execution time is in the past and ON COMPLETION NOT PRESERVE is set. The event was not changed. Specify a time in the future.";
    error(1589, text.into())
}
/// `what`: AT, STARTS, ENDS or INTERVAL.
pub fn wrong_value(what: &str, value: &str) -> SqlError {
    error(1525, format!("Incorrect {what} value: '{value}'"))
}
pub fn no_calls() -> SqlError {
    let text = "This version of MySQL doesn't yet support 'Event schedule expressions which contain subqueries or stored function calls'";
    SqlError::new(1235, b"42000", text)
}

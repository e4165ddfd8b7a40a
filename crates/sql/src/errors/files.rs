//! What is wrong with files of the server. Errors below 1000 are those of MySQL's library of system calls.

use std::io;

use super::error;
use crate::wire::SqlError;

pub fn no_files() -> SqlError {
    let text = "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement";
    error(1290, b"HY000", text.into())
}
pub fn file_exists(name: &str) -> SqlError {
    error(1086, b"HY000", format!("File '{name}' already exists"))
}
pub fn file_not_readable(name: &str) -> SqlError {
    error(1085, b"HY000", format!("The file '{name}' must be in the database directory or be readable by all"))
}
pub fn file_not_created(name: &str, e: &io::Error) -> SqlError {
    os_error(1, &format!("Can't create/write to file '{name}'"), e)
}
pub fn file_not_read(name: &str, e: &io::Error) -> SqlError {
    os_error(2, &format!("Error reading file '{name}'"), e)
}
pub fn file_not_written(name: &str, e: &io::Error) -> SqlError {
    os_error(3, &format!("Error writing file '{name}'"), e)
}
/// 13 where nothing can be learned of it, 29 where it cannot be opened.
pub fn file_not_found(errno: u16, name: &str, e: &io::Error) -> SqlError {
    let what = if errno == 13 { format!("Can't get stat of '{name}'") } else { format!("File '{name}' not found") };
    os_error(errno, &what, e)
}
pub fn into_deprecated() -> SqlError {
    let text = "The INTO clause is deprecated inside query blocks of query expressions and will be removed in a future release. Please move the INTO clause to the end of statement instead.";
    error(3962, b"HY000", text.into())
}
pub fn ambiguous_separator() -> SqlError {
    let text = "First character of the FIELDS TERMINATED string is ambiguous; please use non-optional and non-empty FIELDS ENCLOSED BY";
    error(1475, b"HY000", text.into())
}
pub fn file_too_long(bytes: usize) -> SqlError {
    error(1301, b"HY000", format!("Result of load_file() was larger than max_allowed_packet ({bytes}) - truncated"))
}

/// What the system says of an error, without its number.
fn reason(e: &io::Error) -> (i32, String) {
    let (number, text) = (e.raw_os_error().unwrap_or(22), e.to_string());
    let text = text.split(" (os error").next().unwrap_or("").to_owned();
    (number, text)
}

/// `Error writing file 'f' (OS errno 28 - No space left on device)`, and its like.
pub fn os_error(errno: u16, what: &str, e: &io::Error) -> SqlError {
    let (number, text) = reason(e);
    SqlError::new(errno, b"HY000", format!("{what} (OS errno {number} - {text})"))
}

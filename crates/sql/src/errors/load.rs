//! Errors of LOAD DATA: lines, fields and their separators.

use super::error;
use crate::wire::SqlError;

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

//! Errors of rows that a statement keeps on disk.

use std::{io, path::Path};

use super::error;
use crate::wire::SqlError;

/// The limit of the SQL node.
pub fn out_of_spill_space(directory: &Path, bytes_max: u64) -> SqlError {
    let text = format!(
        "The table '{}' is full: rows of statements under way may take {bytes_max} bytes there (--spill-limit). Ask for fewer rows at a time, or raise the limit",
        directory.display()
    );
    error(1114, b"HY000", text)
}

pub fn cannot_make_spill_file(directory: &Path, e: &io::Error) -> SqlError {
    if e.kind() == io::ErrorKind::StorageFull {
        return disk_full(directory, e);
    }
    error(
        1004,
        b"HY000",
        format!("Can't create file in '{}' for rows that memory has no room for ({e})", directory.display()),
    )
}

pub fn cannot_write_spill_file(directory: &Path, e: &io::Error) -> SqlError {
    if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return disk_full(directory, e);
    }
    error(1026, b"HY000", format!("Error writing file in '{}' ({e})", directory.display()))
}

pub fn cannot_read_spill_file(directory: &Path, why: &str) -> SqlError {
    error(1024, b"HY000", format!("Error reading file in '{}' ({why})", directory.display()))
}

fn disk_full(directory: &Path, e: &io::Error) -> SqlError {
    let text = format!(
        "Disk full ({}): rows of this statement do not fit ({e}). Free some space there, or ask for fewer rows at a time",
        directory.display()
    );
    error(1021, b"HY000", text)
}

/// Rows of one key, or of one partition of a window, which are in memory together.
pub fn out_of_memory_for(what: &str, bytes_max: usize) -> SqlError {
    let text = format!(
        "Memory capacity of {bytes_max} bytes for '{what}' exceeded. Raise apus_query_memory, or ask for fewer rows"
    );
    error(3170, b"HY000", text)
}

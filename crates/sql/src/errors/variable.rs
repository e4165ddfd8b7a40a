//! Errors of variables, of the system and of programs.

use super::error;
use crate::wire::SqlError;

pub fn global_variable(name: &str) -> SqlError {
    error(1229, b"HY000", format!("Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL"))
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

pub fn session_variable(name: &str) -> SqlError {
    error(1228, b"HY000", format!("Variable '{name}' is a SESSION variable and can't be used with SET GLOBAL"))
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

pub fn undeclared_variable(name: &str) -> SqlError {
    error(1327, b"42000", format!("Undeclared variable: {name}"))
}

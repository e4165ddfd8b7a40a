//! Errors of stored routines, with MySQL's numbers and texts.

use super::Kind;
use crate::wire::SqlError;

fn error(number: u16, state: &[u8; 5], text: String) -> SqlError {
    SqlError::new(number, state, text)
}

pub fn exists(kind: &str, name: &str) -> SqlError {
    error(1304, b"42000", format!("{kind} {name} already exists"))
}
pub fn no_label(what: &str, label: &str) -> SqlError {
    error(1308, b"42000", format!("{what} with no matching label: {label}"))
}
pub fn label_twice(label: &str) -> SqlError {
    error(1309, b"42000", format!("Redefining label {label}"))
}
pub fn other_end_label(label: &str) -> SqlError {
    error(1310, b"42000", format!("End-label {label} without match"))
}
pub fn no_result_set(kind: &str, name: &str) -> SqlError {
    error(1312, b"0A000", format!("{kind} {name} can't return a result set in the given context"))
}
pub fn return_outside() -> SqlError {
    error(1313, b"42000", "RETURN is only allowed in a FUNCTION".into())
}
pub fn not_allowed(what: &str) -> SqlError {
    error(1314, b"0A000", format!("{what} is not allowed in stored procedures"))
}
pub fn within_another(what: &str) -> SqlError {
    error(1303, b"2F003", format!("Can't create a {what} from within another stored routine"))
}
pub fn wrong_arguments(kind: Kind, name: &str, expected: usize, got: usize) -> SqlError {
    let kind = kind.name();
    let text = format!("Incorrect number of arguments for {kind} {name}; expected {expected}, got {got}");
    error(1318, b"42000", text)
}
pub fn no_condition(name: &str) -> SqlError {
    error(1319, b"42000", format!("Undefined CONDITION: {name}"))
}
pub fn no_cursor(name: &str) -> SqlError {
    error(1324, b"42000", format!("Undefined CURSOR: {name}"))
}
pub fn cursor_open() -> SqlError {
    error(1325, b"24000", "Cursor is already open".into())
}
pub fn cursor_closed() -> SqlError {
    error(1326, b"24000", "Cursor is not open".into())
}
pub fn wrong_fetch() -> SqlError {
    error(1328, b"HY000", "Incorrect number of FETCH variables".into())
}
pub fn parameter_twice(name: &str) -> SqlError {
    error(1330, b"42000", format!("Duplicate parameter: {name}"))
}
pub fn variable_twice(name: &str) -> SqlError {
    error(1331, b"42000", format!("Duplicate variable: {name}"))
}
pub fn condition_twice(name: &str) -> SqlError {
    error(1332, b"42000", format!("Duplicate condition: {name}"))
}
pub fn cursor_twice(name: &str) -> SqlError {
    error(1333, b"42000", format!("Duplicate cursor: {name}"))
}
pub fn variable_late() -> SqlError {
    error(1337, b"42000", "Variable or condition declaration after cursor or handler declaration".into())
}
pub fn cursor_late() -> SqlError {
    error(1338, b"42000", "Cursor declaration after handler declaration".into())
}
pub fn no_case() -> SqlError {
    error(1339, b"20000", "Case not found for CASE statement".into())
}
pub fn denied(command: &str, user: &str, host: &str, name: &str) -> SqlError {
    error(1370, b"42000", format!("{command} command denied to user '{user}'@'{host}' for routine '{name}'"))
}
pub fn no_grant(user: &str, host: &str, name: &str) -> SqlError {
    let text = format!("There is no such grant defined for user '{user}' on host '{host}' on routine '{name}'");
    error(1403, b"42000", text)
}
pub fn bad_state(state: &str) -> SqlError {
    error(1407, b"42000", format!("Bad SQLSTATE: '{state}'"))
}
pub fn handler_twice() -> SqlError {
    error(1413, b"42000", "Duplicate handler declared in the same block".into())
}
pub fn no_place_for_out(number: usize, name: &str) -> SqlError {
    let text = format!(
        "OUT or INOUT argument {number} for routine {name} is not a variable or NEW pseudo-variable in BEFORE trigger"
    );
    error(1414, b"42000", text)
}
pub fn recursion(limit: u64, name: &str) -> SqlError {
    let text = format!(
        "Recursive limit {limit} (as set by the max_sp_recursion_depth variable) was exceeded for routine {name}"
    );
    error(1456, b"HY000", text)
}
pub fn too_deep() -> SqlError {
    error(1436, b"HY000", "Thread stack overrun: routines or their statements are nested too deeply".into())
}
pub fn no_definer(user: &str, host: &str) -> SqlError {
    error(1449, b"HY000", format!("The user specified as a definer ('{user}'@'{host}') does not exist"))
}
pub fn not_by_state() -> SqlError {
    error(1646, b"HY000", "SIGNAL/RESIGNAL can only use a CONDITION defined with SQLSTATE".into())
}
pub fn item_twice(item: &str) -> SqlError {
    error(1641, b"42000", format!("Duplicate condition information item '{item}'"))
}
pub fn no_handler() -> SqlError {
    error(1645, b"0K000", "RESIGNAL when handler not active".into())
}
pub fn no_stacked() -> SqlError {
    error(3004, b"0Z002", "GET STACKED DIAGNOSTICS when handler not active".into())
}
pub fn no_such_condition() -> SqlError {
    error(1758, b"35000", "Invalid condition number".into())
}
pub fn bad_condition(value: &str) -> SqlError {
    error(1525, b"HY000", format!("Incorrect CONDITION value: '{value}'"))
}
pub fn bad_name(name: &str) -> SqlError {
    error(1458, b"42000", format!("Incorrect routine name '{name}'"))
}
pub fn changes_another(what: &str) -> SqlError {
    error(1357, b"HY000", format!("Can't drop or alter a {what} from within another stored routine"))
}
pub fn no_number(name: &str) -> SqlError {
    error(1064, b"42000", format!("The variable \"{name}\" has a non-integer based type"))
}
pub fn no_return(name: &str) -> SqlError {
    error(1320, b"42000", format!("No RETURN found in FUNCTION {name}"))
}
pub fn ended_without_return(name: &str) -> SqlError {
    error(1321, b"2F005", format!("FUNCTION {name} ended without RETURN"))
}
pub fn not_within(what: &str) -> SqlError {
    error(1336, b"0A000", format!("{what} is not allowed in stored function or trigger"))
}
pub fn recursive() -> SqlError {
    error(1424, b"HY000", "Recursive stored functions and triggers are not allowed.".into())
}
pub fn sets_autocommit() -> SqlError {
    error(1445, b"HY000", "Not allowed to set autocommit from a stored function or trigger".into())
}
pub fn native_name(name: &str) -> SqlError {
    error(1585, b"HY000", format!("This function '{name}' has the same name as a native function"))
}
/// NEW or OLD; `after `: why.
pub fn changes_row(row: &str, when: &str) -> SqlError {
    error(1362, b"HY000", format!("Updating of {row} row is not allowed in {when}trigger"))
}
pub fn no_row(row: &str, event: &str) -> SqlError {
    error(1363, b"HY000", format!("There is no {row} row in on {event} trigger"))
}
pub fn returns_result(of: &str) -> SqlError {
    error(1415, b"0A000", format!("Not allowed to return a result set from a {of}"))
}
pub fn commits() -> SqlError {
    error(1422, b"HY000", "Explicit or implicit commit is not allowed in stored function or trigger.".into())
}
pub fn in_use(table: &str) -> SqlError {
    let text = format!(
        "Can't update table '{table}' in stored function/trigger because it is already used by statement which invoked this stored function/trigger."
    );
    error(1442, b"HY000", text)
}
pub fn too_much() -> SqlError {
    crate::errors::not_supported("procedures longer than 256 KiB")
}
pub fn truncated(name: &str) -> SqlError {
    error(1265, b"01000", format!("Data truncated for column '{name}' at row 1"))
}
pub fn too_long(name: &str) -> SqlError {
    error(1059, b"42000", format!("Identifier name '{name}' is too long"))
}
/// What SIGNAL says unless it is told.
pub fn signalled(state: [u8; 5]) -> SqlError {
    let (number, text) = match &state[..2] {
        b"01" => (1642, "Unhandled user-defined warning condition"),
        b"02" => (1643, "Unhandled user-defined not found condition"),
        _ => (1644, "Unhandled user-defined exception condition"),
    };
    error(number, &state, text.into())
}

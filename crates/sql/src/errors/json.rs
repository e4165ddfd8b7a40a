//! Errors of JSON.

use super::error;
use crate::wire::SqlError;

/// What MySQL does not do, either, in its words.
pub fn not_yet_in_mysql(what: &str) -> SqlError {
    error(1235, b"42000", format!("This version of MySQL doesn't yet support '{what}'"))
}

/// `CAST(... AS ... ARRAY)` anywhere else than as a key part.
pub fn array_outside_of_key() -> SqlError {
    not_yet_in_mysql(
        "Use of CAST( .. AS .. ARRAY) outside of functional index in CREATE(non-SELECT)/ALTER TABLE or in general expressions",
    )
}

pub fn json_of_column(what: &str, at: usize, table: &str, column: &str) -> SqlError {
    let text = format!("Invalid JSON text: \"{what}\" at position {at} in value for column '{table}.{column}'.");
    error(3140, b"22032", text)
}

pub fn json_argument(argument: usize, function: &str, what: &str, at: usize) -> SqlError {
    let text = format!("Invalid JSON text in argument {argument} to function {function}: \"{what}\" at position {at}.");
    error(3141, b"22032", text)
}

pub fn json_path(at: usize) -> SqlError {
    error(3143, b"42000", format!("Invalid JSON path expression. The error is around character position {at}."))
}

pub fn json_of_binary() -> SqlError {
    error(3144, b"22032", "Cannot create a JSON value from a string with CHARACTER SET 'binary'.".into())
}

pub fn json_data_type(argument: usize, function: &str) -> SqlError {
    let text = format!(
        "Invalid data type for JSON data in argument {argument} to function {function}; a JSON string or JSON type is required."
    );
    error(3146, b"22032", text)
}

pub fn json_wild_path() -> SqlError {
    let text = "In this situation, path expressions may not contain the * and ** tokens or an array range.";
    error(3149, b"42000", text.into())
}

pub fn json_key(column: &str) -> SqlError {
    let text = format!("JSON column '{column}' supports indexing only via generated columns on a specified JSON path.");
    error(3152, b"42000", text)
}

pub fn json_range(kind: &str, column: &str, row: usize) -> SqlError {
    error(3155, b"22003", format!("Out of range JSON value for CAST to {kind} from column {column} at row {row}"))
}

pub fn json_cast(kind: &str, column: &str, row: usize) -> SqlError {
    error(3156, b"22018", format!("Invalid JSON value for CAST to {kind} from column {column} at row {row}"))
}

pub fn json_depth() -> SqlError {
    error(3157, b"22032", "The JSON document exceeds the maximum depth.".into())
}

pub fn json_one_or_all(function: &str) -> SqlError {
    error(3154, b"42000", format!("The oneOrAll argument to {function} may take these values: 'one' or 'all'."))
}

pub fn json_root_path() -> SqlError {
    error(3153, b"42000", "The path expression '$' is not allowed in this context.".into())
}

pub fn json_no_cell() -> SqlError {
    error(3165, b"42000", "A path expression is not a path to a cell in an array.".into())
}

pub fn json_merge_is_old() -> SqlError {
    let text = "'JSON_MERGE' is deprecated and will be removed in a future release. Please use JSON_MERGE_PRESERVE/JSON_MERGE_PATCH instead";
    error(1287, b"HY000", text.into())
}

pub fn json_table_without_alias() -> SqlError {
    error(3667, b"42000", "Every table function must have an alias".into())
}

pub fn json_table_missing(column: &str) -> SqlError {
    error(3665, b"22035", format!("Missing value for JSON_TABLE column '{column}'"))
}

pub fn json_table_no_scalar(column: &str) -> SqlError {
    error(3666, b"2203F", format!("Can't store an array or an object in the scalar JSON_TABLE column '{column}'"))
}

pub fn json_value_missing() -> SqlError {
    error(3966, b"22035", "No value was found by 'json_value' on the specified path.".into())
}

pub fn json_value_several() -> SqlError {
    error(3967, b"22034", "More than one value was found by 'json_value' on the specified path.".into())
}

pub fn json_value_range(kind: &str) -> SqlError {
    error(1690, b"22003", format!("{kind} value is out of range in 'json_value'"))
}

pub fn json_no_object(argument: usize, function: &str) -> SqlError {
    let text = format!("Invalid JSON type in argument {argument} to function {function}; an object is required.");
    error(3853, b"22032", text)
}

pub fn json_null_key() -> SqlError {
    error(3158, b"22032", "JSON documents may not contain NULL member names.".into())
}

pub fn json_argument_type(argument: usize, function: &str) -> SqlError {
    error(3064, b"HY000", format!("Incorrect type for argument {argument} in function {function}."))
}

pub fn json_as_truth() -> SqlError {
    let text = "Evaluating a JSON value in SQL boolean context does an implicit comparison against JSON integer 0; if this is not what you want, consider converting JSON to a SQL numeric type with JSON_VALUE RETURNING";
    error(3986, b"HY000", text.into())
}

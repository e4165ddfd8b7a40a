//! SET_VAR: a variable of the session that has another value for one statement.

use crate::{
    errors::Result,
    parse::hint::grammar::{Hint, Value},
    value::datum::Datum,
    variables::{self, Variables},
    wire::SqlError,
};

/// What MySQL lets SET_VAR set. Those that are no variables here say how MySQL goes about its work; they are taken and change nothing.
const NAMES: [&str; 54] = [
    "auto_increment_increment",
    "auto_increment_offset",
    "big_tables",
    "bulk_insert_buffer_size",
    "cte_max_recursion_depth",
    "default_table_encryption",
    "default_tmp_storage_engine",
    "div_precision_increment",
    "enable_secondary_engine_statistics",
    "end_markers_in_json",
    "eq_range_index_dive_limit",
    "foreign_key_checks",
    "group_concat_max_len",
    "insert_id",
    "internal_tmp_mem_storage_engine",
    "join_buffer_size",
    "lock_wait_timeout",
    "max_error_count",
    "max_execution_time",
    "max_heap_table_size",
    "max_join_size",
    "max_length_for_sort_data",
    "max_points_in_geometry",
    "max_seeks_for_key",
    "max_sort_length",
    "optimizer_max_subgraph_pairs",
    "optimizer_prune_level",
    "optimizer_search_depth",
    "optimizer_switch",
    "range_alloc_block_size",
    "range_optimizer_max_mem_size",
    "read_buffer_size",
    "read_rnd_buffer_size",
    "secondary_engine_cost_threshold",
    "select_into_buffer_size",
    "select_into_disk_sync",
    "select_into_disk_sync_delay",
    "set_operations_buffer_size",
    "sort_buffer_size",
    "sql_auto_is_null",
    "sql_big_selects",
    "sql_buffer_result",
    "sql_mode",
    "sql_require_primary_key",
    "sql_safe_updates",
    "sql_select_limit",
    "time_zone",
    "timestamp",
    "tmp_table_size",
    "unique_checks",
    "updatable_views_with_limit",
    "use_secondary_engine",
    "windowing_use_high_precision",
    "xa_detach_on_prepare",
];

/// # Errors
/// 3637 of a variable that no hint sets, 3128 of none at all.
pub fn check(name: &str) -> Result<()> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    Err(match variables::check_name(name) {
        Ok(()) => SqlError::new(3637, b"HY000", format!("Variable '{name}' cannot be set using SET_VAR hint.")),
        Err(_) => SqlError::new(3128, b"HY000", format!("Unresolved name '{name}' for SET_VAR hint")),
    })
}

/// A hint as a warning writes it.
pub fn shown(hint: &Hint) -> String {
    let value = match &hint.value {
        Some(Value::Whole(n)) => n.to_string(),
        Some(Value::Fraction(text)) => text.clone(),
        Some(Value::Text(text)) => format!("'{text}'"),
        None => String::new(),
    };
    format!("SET_VAR({}={value})", hint.name)
}

/// Sets what hints say, the first of each name; what is to be warned of.
pub fn apply(hints: &[Hint], variables: &mut Variables) -> Vec<SqlError> {
    let mut told = Vec::new();
    let mut set: Vec<String> = Vec::new();
    // How the statement is read was said before it was.
    let syntax = variables.syntax;
    for hint in hints {
        let name = hint.name.to_ascii_lowercase();
        let Some(value) = hint.value.as_ref().filter(|_| check(&name).is_ok() && !set.contains(&name)) else {
            continue;
        };
        let value = match value {
            Value::Whole(n) => i64::try_from(*n).map_or(Datum::UInt(*n), Datum::Int),
            Value::Fraction(text) => crate::parse::digest::literal::number(text.as_bytes()).unwrap_or(Datum::Null),
            Value::Text(text) => Datum::text(text.clone()),
        };
        match variables.set(&name, Some(&value)) {
            Ok(warning) => told.extend(warning),
            // Not there, or always as it is.
            Err(e) if matches!(e.errno, 1193 | 1238) => {}
            Err(e) => told.push(e),
        }
        set.push(name);
    }
    variables.syntax = syntax;
    told
}

//! The system variables that there are: MySQL's names, types, ranges and defaults, and who may set them.
//!
//! Those under "MySQL's server" say how much memory MySQL takes for a step of a statement, or which plans it looks at. They are kept and shown, as tools and dumps set them, and
//! change nothing here: memory goes by `apus_query_memory`, plans by other rules. A variable that would change an answer is here only where it does.

use super::{SQL_MODE, assignment::CLASSES};
use crate::{
    accounts::policy::{LENGTH_MAX, LENGTH_MIN, PASTS_MAX},
    errors::{self, WARNINGS_MAX},
    monitor::digests::SIZE_MAX as DIGESTS_MAX,
    value::{datum::Datum, locale},
    wire::{SqlError, constants::SERVER_VERSION},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// From `min` to `max`, a multiple of `step`; others are moved there with warning 1292.
    Number {
        min: u64,
        max: u64,
        step: u64,
    },
    Text,
    /// 0/1 in expressions, ON/OFF in SHOW.
    Bool,
    /// One of these, in upper or lower case.
    Word(&'static [&'static str]),
    /// A locale's name, set by it or by its number.
    Locale,
    /// Seconds since 1970 with six digits; now, unless it was set.
    Moment,
    /// Seconds with six digits, up to so many; more are moved there with warning 1292.
    Seconds {
        max: u64,
    },
}

/// Who sets a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// SET; SET GLOBAL says what sessions begin with.
    Both,
    Session,
    Global,
    Nobody,
    /// A session's statements do, and nobody else.
    Told,
}

#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub ty: Type,
    pub default: &'static str,
    pub scope: Scope,
}

const fn v(name: &'static str, ty: Type, default: &'static str, scope: Scope) -> Definition {
    Definition { name, ty, default, scope }
}
/// A number that sessions may set.
const fn n(name: &'static str, default: &'static str, min: u64, max: u64) -> Definition {
    blocks(name, default, min, max, 1)
}
const fn blocks(name: &'static str, default: &'static str, min: u64, max: u64, step: u64) -> Definition {
    v(name, Type::Number { min, max, step }, default, Scope::Both)
}
const fn switch(name: &'static str, default: &'static str) -> Definition {
    v(name, Type::Bool, default, Scope::Both)
}
const fn text(name: &'static str, default: &'static str) -> Definition {
    v(name, Type::Text, default, Scope::Both)
}
const fn word(name: &'static str, words: &'static [&'static str]) -> Definition {
    v(name, Type::Word(words), words[0], Scope::Both)
}
const fn number(max: u64) -> Type {
    Type::Number { min: 0, max, step: 1 }
}
/// What is as it is.
const fn fixed(name: &'static str, ty: Type, default: &'static str) -> Definition {
    v(name, ty, default, Scope::Nobody)
}

const OFF_ON: [&str; 2] = ["OFF", "ON"];
const ANY: Type = Type::Number { min: 0, max: MOST, step: 1 };
const MOST: u64 = u64::MAX;
const U32: u64 = u32::MAX as u64;
const I32: u64 = i32::MAX as u64;
const YEAR: u64 = 31_536_000;
/// More than a machine has.
const QUERY_MEMORY_MAX: u64 = 1 << 40;
const MOST_TEXT: &str = "18446744073709551615";
const ISOLATION: &str = "READ-COMMITTED";

static DEFINITIONS: &[Definition] = &[
    n("apus_alter_rate", "0", 0, U32),
    word("apus_durability", &CLASSES),
    n("apus_query_memory", "268435456", 0, QUERY_MEMORY_MAX),
    n("auto_increment_increment", "1", 1, 65_535),
    n("auto_increment_offset", "1", 1, 65_535),
    switch("autocommit", "1"),
    text("character_set_client", "utf8mb4"),
    text("character_set_connection", "utf8mb4"),
    text("character_set_database", "utf8mb4"),
    text("character_set_filesystem", "binary"),
    text("character_set_results", "utf8mb4"),
    text("character_set_server", "utf8mb4"),
    fixed("character_set_system", Type::Text, "utf8mb3"),
    text("collation_connection", "utf8mb4_0900_ai_ci"),
    text("collation_database", "utf8mb4_0900_ai_ci"),
    text("collation_server", "utf8mb4_0900_ai_ci"),
    n("cte_max_recursion_depth", "1000", 0, U32),
    v("default_password_lifetime", number(65_535), "0", Scope::Global),
    text("default_storage_engine", "InnoDB"),
    fixed("disconnect_on_expired_password", Type::Bool, "1"),
    fixed("div_precision_increment", ANY, "4"),
    text("explain_format", "TREE"),
    n("explain_json_format_version", "2", 1, 2),
    v("event_scheduler", Type::Word(&OFF_ON), "ON", Scope::Global),
    v("error_count", ANY, "0", Scope::Told),
    fixed("explicit_defaults_for_timestamp", Type::Bool, "1"),
    switch("foreign_key_checks", "1"),
    fixed("ft_boolean_syntax", Type::Text, "+ -><()~*:\"\"&|"),
    fixed("ft_max_word_len", ANY, "84"),
    fixed("ft_min_word_len", ANY, "4"),
    fixed("ft_query_expansion_limit", ANY, "20"),
    fixed("ft_stopword_file", Type::Text, "(built-in)"),
    n("generated_random_password_length", "20", LENGTH_MIN, LENGTH_MAX),
    n("group_concat_max_len", "1024", 4, MOST),
    fixed("have_openssl", Type::Text, "DISABLED"),
    fixed("have_ssl", Type::Text, "DISABLED"),
    fixed("hostname", Type::Text, "apus"),
    v("identity", ANY, "0", Scope::Session),
    fixed("init_connect", Type::Text, ""),
    fixed("innodb_ft_enable_stopword", Type::Bool, "1"),
    fixed("innodb_ft_max_token_size", ANY, "84"),
    fixed("innodb_ft_min_token_size", ANY, "3"),
    fixed("innodb_ft_server_stopword_table", Type::Text, ""),
    fixed("innodb_ft_user_stopword_table", Type::Text, ""),
    n("innodb_lock_wait_timeout", "50", 1, 1_073_741_824),
    fixed("innodb_native_foreign_keys", Type::Bool, "0"),
    v("insert_id", ANY, "0", Scope::Session),
    n("interactive_timeout", "28800", 1, YEAR),
    v("last_insert_id", ANY, "0", Scope::Session),
    v("lc_messages", Type::Locale, "en_US", Scope::Both),
    v("lc_time_names", Type::Locale, "en_US", Scope::Both),
    fixed("license", Type::Text, "Apache-2.0"),
    v("log_output", Type::Text, "FILE", Scope::Global),
    v("log_queries_not_using_indexes", Type::Bool, "0", Scope::Global),
    v("local_infile", Type::Bool, "0", Scope::Global),
    n("lock_wait_timeout", "31536000", 1, YEAR),
    v("long_query_time", Type::Seconds { max: YEAR }, "10.000000", Scope::Both),
    fixed("log_bin", Type::Bool, "0"),
    fixed("lower_case_file_system", Type::Bool, "0"),
    fixed("lower_case_table_names", ANY, "0"),
    fixed("max_allowed_packet", ANY, ""),
    fixed("max_connections", ANY, "10000"),
    fixed("max_digest_length", ANY, "1024"),
    n("max_error_count", "1024", 0, WARNINGS_MAX as u64),
    n("max_execution_time", "0", 0, MOST),
    n("max_join_size", MOST_TEXT, 1, MOST),
    n("max_sp_recursion_depth", "0", 0, 255),
    n("min_examined_row_limit", "0", 0, MOST),
    n("net_read_timeout", "30", 1, YEAR),
    n("net_write_timeout", "60", 1, YEAR),
    text("optimizer_switch", ""),
    // No more passwords are remembered.
    v("password_history", number(PASTS_MAX as u64), "0", Scope::Global),
    v("password_require_current", Type::Bool, "0", Scope::Global),
    v("password_reuse_interval", number(65_535), "0", Scope::Global),
    fixed("performance_schema", Type::Bool, "1"),
    v("performance_schema_digests_size", number(DIGESTS_MAX as u64), "1000", Scope::Global),
    fixed("port", ANY, "3306"),
    v("protocol_compression_algorithms", Type::Text, "zlib,zstd,uncompressed", Scope::Global),
    fixed("protocol_version", ANY, "10"),
    v("pseudo_thread_id", ANY, "0", Scope::Session),
    fixed("query_cache_size", ANY, "0"),
    fixed("query_cache_type", Type::Text, "OFF"),
    v("rand_seed1", ANY, "0", Scope::Session),
    v("rand_seed2", ANY, "0", Scope::Session),
    fixed("read_only", Type::Bool, "0"),
    fixed("require_secure_transport", Type::Bool, "0"),
    fixed("secure_file_priv", Type::Text, "NULL"),
    fixed("server_id", ANY, "1"),
    // There are none to tell of.
    word("session_track_gtids", &["OFF", "OWN_GTID", "ALL_GTIDS"]),
    switch("session_track_schema", "1"),
    switch("session_track_state_change", "0"),
    text("session_track_system_variables", VARIABLES),
    word("session_track_transaction_info", &["OFF", "STATE", "CHARACTERISTICS"]),
    v("slow_query_log", Type::Bool, "0", Scope::Global),
    v("slow_query_log_file", Type::Text, "", Scope::Global),
    fixed("socket", Type::Text, ""),
    switch("sql_auto_is_null", "0"),
    switch("sql_big_selects", "1"),
    v("sql_log_bin", Type::Bool, "1", Scope::Session),
    text("sql_mode", SQL_MODE),
    switch("sql_notes", "1"),
    switch("sql_quote_show_create", "1"),
    switch("sql_safe_updates", "0"),
    n("sql_select_limit", MOST_TEXT, 0, MOST),
    switch("sql_warnings", "0"),
    text("storage_engine", "InnoDB"),
    fixed("system_time_zone", Type::Text, "UTC"),
    text("time_zone", "SYSTEM"),
    v("timestamp", Type::Moment, "0", Scope::Session),
    fixed("tls_version", Type::Text, ""),
    text("transaction_isolation", ISOLATION),
    switch("transaction_read_only", "0"),
    text("tx_isolation", ISOLATION),
    switch("tx_read_only", "0"),
    switch("unique_checks", "1"),
    fixed("version", Type::Text, SERVER_VERSION),
    fixed("version_comment", Type::Text, "Apus"),
    fixed("version_compile_machine", Type::Text, std::env::consts::ARCH),
    fixed("version_compile_os", Type::Text, "Linux"),
    v("warning_count", ANY, "0", Scope::Told),
    n("wait_timeout", "28800", 1, YEAR),
    fixed("xa_detach_on_prepare", Type::Bool, "1"),
    // MySQL's server.
    switch("big_tables", "0"),
    n("bulk_insert_buffer_size", "8388608", 0, MOST),
    n("eq_range_index_dive_limit", "200", 0, U32),
    n("histogram_generation_max_mem_size", "20000000", 1_000_000, MOST),
    n("information_schema_stats_expiry", "86400", 0, YEAR),
    n("innodb_ddl_buffer_size", "1048576", 65_536, U32),
    n("innodb_ddl_threads", "4", 1, 64),
    n("innodb_parallel_read_threads", "4", 1, 256),
    word("internal_tmp_mem_storage_engine", &["TempTable", "MEMORY"]),
    blocks("join_buffer_size", "262144", 128, MOST, 128),
    blocks("max_heap_table_size", "16777216", 16_384, MOST, 1024),
    n("max_length_for_sort_data", "4096", 4, 8_388_608),
    n("max_seeks_for_key", MOST_TEXT, 1, MOST),
    blocks("net_buffer_length", "16384", 1024, 1_048_576, 1024),
    n("net_retry_count", "10", 1, MOST),
    n("optimizer_max_subgraph_pairs", "100000", 1, I32),
    n("optimizer_prune_level", "1", 0, 1),
    n("optimizer_search_depth", "62", 0, 62),
    n("parser_max_mem_size", MOST_TEXT, 10_000_000, MOST),
    blocks("preload_buffer_size", "32768", 1024, 1_073_741_824, 1024),
    blocks("query_alloc_block_size", "8192", 1024, U32, 1024),
    blocks("query_prealloc_size", "8192", 8192, MOST, 1024),
    blocks("range_alloc_block_size", "4096", 4096, U32, 1024),
    n("range_optimizer_max_mem_size", "8388608", 0, MOST),
    blocks("read_buffer_size", "131072", 8192, I32, 4096),
    n("read_rnd_buffer_size", "262144", 1, I32),
    blocks("select_into_buffer_size", "131072", 8192, I32, 4096),
    blocks("set_operations_buffer_size", "262144", 16_384, MOST, 1024),
    n("sort_buffer_size", "262144", 32_768, MOST),
    switch("sql_buffer_result", "0"),
    n("tmp_table_size", "16777216", 1024, MOST),
    blocks("transaction_alloc_block_size", "8192", 1024, 131_072, 1024),
    blocks("transaction_prealloc_size", "4096", 1024, 131_072, 1024),
];

/// All of them, in no order.
pub fn all() -> &'static [Definition] {
    DEFINITIONS
}

pub fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|d| d.name == name)
}

/// Longest value that SET takes, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

impl Definition {
    /// There is no global value.
    pub fn is_of_sessions(&self) -> bool {
        matches!(self.scope, Scope::Session | Scope::Told)
    }

    /// The text that a value is kept as, and a warning where it stands for another value.
    ///
    /// # Errors
    /// 1231 of a value that there is not, 1232 of one of another type.
    pub fn check(&self, value: &Datum<'_>) -> errors::Result<(String, Option<SqlError>)> {
        let text = value.as_string();
        let wrong = || errors::wrong_variable_value(self.name, if value.is_null() { "NULL" } else { &text });
        let wrong_type = || errors::wrong_variable_type(self.name);
        if text.len() > VALUE_BYTES_MAX {
            return Err(wrong());
        }
        let kept = match (self.ty, value) {
            (Type::Text, _) => return Ok((text, None)),
            (Type::Locale, _) => locale::of_value(self.name, value)?.name.to_owned(),
            (Type::Number { min, max, step }, Datum::Int(_) | Datum::UInt(_)) => {
                let asked = if let Datum::Int(n) = value { u64::try_from(*n).ok() } else { text.parse().ok() };
                let clamped = asked.unwrap_or(0).clamp(min, max);
                let taken = clamped - clamped % step;
                let warning = (asked != Some(taken)).then(|| errors::truncated_number(self.name, text.as_bytes()));
                return Ok((taken.to_string(), warning));
            }
            (Type::Word(_), Datum::Decimal { .. } | Datum::Double(_)) => return Err(wrong_type()),
            (Type::Word(words), Datum::Int(n @ (0 | 1))) if *words == OFF_ON => words[*n as usize].to_owned(),
            (Type::Bool, Datum::Decimal { .. } | Datum::Double(_)) => return Err(wrong_type()),
            (Type::Bool, _) => i32::from(on_or_off(&text).ok_or_else(wrong)?).to_string(),
            (Type::Word(words), _) => {
                let known = words.iter().find(|word| text.eq_ignore_ascii_case(word));
                (*known.ok_or_else(wrong)?).to_owned()
            }
            (Type::Number { .. }, _)
            | (Type::Moment | Type::Seconds { .. }, Datum::Text(_) | Datum::Bytes(_) | Datum::Null) => {
                return Err(wrong_type());
            }
            (Type::Seconds { max }, _) => {
                let asked = value.number().ok_or_else(wrong_type)?.to_f64();
                let taken = asked.clamp(0.0, max as f64);
                let warning = (taken != asked).then(|| errors::truncated_number(self.name, text.as_bytes()));
                return Ok((format!("{taken:.6}"), warning));
            }
            (Type::Moment, _) => {
                let micros = value.number().ok_or_else(wrong_type)?.to_f64() * 1e6;
                if !(0.0..=2_147_483_647e6).contains(&micros) {
                    return Err(wrong());
                }
                (micros.round() as i64).to_string()
            }
        };
        Ok((kept, None))
    }
}

fn on_or_off(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// What `session_track_system_variables` says from the start.
pub const VARIABLES: &str = "time_zone,autocommit,character_set_client,character_set_results,character_set_connection";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_every_default_is_a_value() {
        let mut names: Vec<_> = all().iter().map(|d| d.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for d in all() {
            let value = match d.ty {
                Type::Number { .. } if !d.default.is_empty() => Datum::UInt(d.default.parse().unwrap()),
                Type::Number { .. } | Type::Moment | Type::Seconds { .. } => continue,
                _ => Datum::text(d.default),
            };
            assert_eq!(d.check(&value).unwrap(), (d.default.to_owned(), None), "{}", d.name);
        }
    }

    #[test]
    fn numbers_are_moved_into_their_range() {
        let found = |name: &str, value: &Datum<'_>| {
            let (text, warning) = find(name).unwrap().check(value).unwrap();
            (text, warning.map(|w| w.message))
        };
        let moved = |text: &str, said: &str| (text.to_owned(), Some(format!("Truncated incorrect {said} value")));
        let of = |name: &str, value: &Datum<'_>| {
            let (text, said) = found(name, value);
            (text, said.map(|s| s.split(':').next().unwrap_or_default().to_owned()))
        };
        assert_eq!(of("join_buffer_size", &Datum::Int(129)), moved("128", "join_buffer_size"));
        assert_eq!(of("join_buffer_size", &Datum::UInt(u64::MAX)), moved("18446744073709551488", "join_buffer_size"));
        assert_eq!(of("sql_select_limit", &Datum::Int(-1)), moved("0", "sql_select_limit"));
        assert_eq!(of("sort_buffer_size", &Datum::Int(1)), moved("32768", "sort_buffer_size"));
        assert_eq!(of("sql_select_limit", &Datum::UInt(u64::MAX)), ("18446744073709551615".to_owned(), None));
        let tenth = Datum::Decimal { unscaled: 1, scale: 1 };
        assert_eq!(found("long_query_time", &tenth), ("0.100000".to_owned(), None));
        assert_eq!(of("long_query_time", &Datum::Int(-1)), moved("0.000000", "long_query_time"));
        assert_eq!(of("long_query_time", &Datum::Double(1e300)), moved("31536000.000000", "long_query_time"));
        let number = find("sort_buffer_size").unwrap();
        for wrong in [Datum::text("5"), Datum::Null, Datum::Double(1.0)] {
            assert_eq!(number.check(&wrong).unwrap_err().errno, 1232);
        }
    }
}

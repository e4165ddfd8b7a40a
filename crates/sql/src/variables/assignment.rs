//! A value on its way into a variable of the session: what it changes there.

use std::time::Duration;

use apus_types::collate::{Charset, Collation};

use super::{
    NO_LIMIT, Variables,
    definitions::{Scope, find},
    format_of,
    isolation::Isolation,
    micros_of,
    sql_mode::SqlMode,
};
use crate::{
    errors::{self, Result, WARNINGS_MAX},
    parse::charset::{charset_named, client_named, collation_named, spoken_named},
    value::{datum::Datum, locale, zone::Zone},
    wire::{SqlError, constants::MAX_ALLOWED_PACKET_DEFAULT},
};

impl Variables {
    /// Sets a variable of the session (`None`: what new sessions begin with); returns a warning where another value is in force.
    pub fn set(&mut self, name: &str, value: Option<&Datum<'_>>) -> Result<Option<SqlError>> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        match d.scope {
            Scope::Nobody | Scope::Told => return Err(errors::read_only_variable(name)),
            Scope::Global => return Err(errors::global_variable(name)),
            Scope::Session | Scope::Both => {}
        }
        let (text, warning) = match (d.name, value) {
            (_, None) => (self.text(d, true).into_owned(), None),
            ("sql_mode", Some(value)) => (SqlMode::parse(value)?.names(), None),
            ("time_zone", Some(Datum::Null)) => return Err(errors::wrong_variable_value(name, "NULL")),
            ("session_track_system_variables" | "character_set_results", Some(Datum::Null)) => Default::default(),
            (_, Some(value)) => d.check(value)?,
        };
        Ok(self.take(d.name, text)?.or(warning))
    }

    /// Puts a value (its text) in force.
    pub(super) fn take(&mut self, name: &'static str, text: String) -> Result<Option<SqlError>> {
        let (on, number) = (text == "1", text.parse::<u64>().unwrap_or(0));
        match name {
            "autocommit" => self.autocommit = on,
            "max_error_count" => self.max_error_count = usize::try_from(number).unwrap_or(WARNINGS_MAX),
            "apus_alter_rate" => self.alter_rate = number,
            "apus_durability" => self.on_disk = text == CLASSES[1],
            "apus_query_memory" => self.query_memory = usize::try_from(number).unwrap_or(usize::MAX),
            "explain_json_format_version" if number == 1 => return Err(errors::old_json_format()),
            "foreign_key_checks" => self.foreign_key_checks = on,
            "session_track_schema" => self.track_schema = on,
            "session_track_state_change" => self.track_state = on,
            "sql_safe_updates" => self.safe_updates = on,
            "sql_big_selects" => self.big_selects = on,
            "auto_increment_increment" => self.auto_increment.increment = number,
            "auto_increment_offset" => self.auto_increment.offset = number,
            "cte_max_recursion_depth" => self.cte_max_recursion_depth = number,
            "group_concat_max_len" => {
                self.group_concat_max_len =
                    usize::try_from(number).map_or(MAX_ALLOWED_PACKET_DEFAULT, |n| n.min(MAX_ALLOWED_PACKET_DEFAULT));
            }
            "innodb_lock_wait_timeout" => self.lock_wait_ms = u32::try_from(number * 1000).unwrap_or(u32::MAX),
            "insert_id" => self.insert_id = number,
            "lock_wait_timeout" => self.definition_wait = number,
            "long_query_time" => self.long_query = Duration::from_micros(micros_of(&text)),
            "max_execution_time" => self.max_execution_ms = number,
            "min_examined_row_limit" => self.min_examined_rows = number,
            "max_join_size" => {
                self.max_join_size = number;
                self.take("sql_big_selects", u8::from(number == NO_LIMIT).to_string())?;
            }
            "sql_select_limit" => self.select_limit = number,
            "max_sp_recursion_depth" => self.max_sp_recursion_depth = number,
            "timestamp" => {
                self.timestamp_micros = i64::try_from(number).unwrap_or(0);
                return Ok(None);
            }
            "wait_timeout" => self.wait_timeout = Some(Duration::from_secs(number)),
            "transaction_read_only" | "tx_read_only" => {
                self.read_only = on;
                for name in ["transaction_read_only", "tx_read_only"] {
                    self.set.insert(name, text.clone());
                }
            }
            _ => return self.take_text(name, text),
        }
        self.set.insert(name, text);
        Ok(None)
    }

    /// [`take`](Self::take) of what is no number.
    fn take_text(&mut self, name: &'static str, text: String) -> Result<Option<SqlError>> {
        let wrong = || errors::wrong_variable_value(name, &text);
        let kept = match name {
            "time_zone" => {
                self.zone = Zone::parse(&text).ok_or_else(|| {
                    SqlError::new(1298, b"HY000", format!("Unknown or incorrect time zone: '{text}'"))
                })?;
                text
            }
            "lc_time_names" => {
                self.locale = locale::named(&text).ok_or_else(wrong)?;
                text
            }
            "sql_mode" => {
                let mode = SqlMode::parse(&Datum::text(text))?;
                self.strict = mode.has("STRICT_TRANS_TABLES") || mode.has("STRICT_ALL_TABLES");
                self.only_full_group_by = mode.has("ONLY_FULL_GROUP_BY");
                self.division_errors = mode.has("ERROR_FOR_DIVISION_BY_ZERO");
                self.no_zero_date = mode.has("NO_ZERO_DATE");
                self.no_zero_in_date = mode.has("NO_ZERO_IN_DATE");
                self.any_day = mode.has("ALLOW_INVALID_DATES");
                self.signed_difference = mode.has("NO_UNSIGNED_SUBTRACTION");
                self.cuts_fractions = mode.has("TIME_TRUNCATE_FRACTIONAL");
                self.pads_chars = mode.has("PAD_CHAR_TO_FULL_LENGTH");
                self.no_auto_value_on_zero = mode.has("NO_AUTO_VALUE_ON_ZERO");
                self.syntax = mode.syntax();
                self.set.insert(name, mode.names());
                return Ok(self.pads_chars.then(SqlMode::pads_chars_will_go));
            }
            "transaction_isolation" | "tx_isolation" => {
                self.isolation = Isolation::named(&text.to_ascii_uppercase()).ok_or_else(wrong)?;
                for name in ["transaction_isolation", "tx_isolation"] {
                    self.set.insert(name, self.isolation.name().to_owned());
                }
                return Ok(None);
            }
            "explain_format" => format_of(&text).ok_or_else(wrong)?.to_owned(),
            "session_track_transaction_info" if text != "OFF" => return Err(errors::not_supported(name)),
            "character_set_results" if text.is_empty() => {
                self.results = Charset::Utf8mb4;
                text
            }
            "character_set_client" => {
                self.client = client_named(&text)?;
                self.client.name().to_owned()
            }
            "character_set_results" => {
                self.results = spoken_named(&text)?;
                self.results.name().to_owned()
            }
            "character_set_connection" => {
                self.set_connection(charset_named(&text)?.default_collation());
                return Ok(None);
            }
            "collation_connection" => {
                let by_id = text.parse().ok().and_then(Collation::from_id);
                self.set_connection(by_id.map_or_else(|| collation_named(&text), Ok)?);
                return Ok(None);
            }
            "character_set_database" | "character_set_server" => {
                let collation = charset_named(&text)?.default_collation();
                self.set_pair(&name["character_set".len()..], collation);
                return Ok(None);
            }
            "collation_database" | "collation_server" => {
                let by_id = text.parse().ok().and_then(Collation::from_id);
                let collation = by_id.map_or_else(|| collation_named(&text), Ok)?;
                self.set_pair(&name["collation".len()..], collation);
                return Ok(None);
            }
            _ => text,
        };
        self.set.insert(name, kept);
        Ok(None)
    }
}

/// Values of `apus_durability`.
pub(super) const CLASSES: [&str; 2] = ["replicated", "disk"];

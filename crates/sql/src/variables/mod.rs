//! System variables: the ones that clients read when they connect, with MySQL's names, and those that change something here.
//!
//! `transaction_isolation`: READ UNCOMMITTED means READ COMMITTED.

mod assignment;
pub(crate) mod branch_names;
mod charsets;
mod definitions;
mod globals;
pub mod isolation;
pub(crate) mod persisted;
pub mod sql_mode;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use apus_types::collate::{Charset, Collation};

use self::{
    definitions::{Definition, Scope, Type, find},
    isolation::Isolation,
};
use crate::{
    errors::{self, Result, WARNINGS_MAX},
    expr::Kind,
    files::Places,
    parse::digest::Syntax,
    spill::Space,
    value::{
        datum::Datum,
        locale::{self, Locale},
        temporal::Dates,
        zone::Zone,
    },
    wire::{SqlError, constants::MAX_ALLOWED_PACKET_DEFAULT},
};
pub use globals::Globals;

const SQL_MODE: &str = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/// `sql_select_limit` and `max_join_size` of a session that has not set them.
pub const NO_LIMIT: u64 = u64::MAX;

/// Bytes of rows that a statement keeps in memory, unless `apus_query_memory` says otherwise.
const QUERY_MEMORY: usize = 256 << 20;

/// Error 1193 for a name that is no variable (lower case).
pub fn check_name(name: &str) -> Result<()> {
    find(name).map(|_| ()).ok_or_else(|| errors::unknown_variable(name))
}

/// 1238 for a name behind `@@session.` of what sessions have no value of.
pub fn check_of_session(name: &str) -> Result<()> {
    match find(name) {
        Some(d) if d.scope == Scope::Global => Err(errors::no_session_value(name)),
        _ => Ok(()),
    }
}

pub fn kind_of(name: &str) -> Kind {
    match find(name).map(|d| d.ty) {
        Some(Type::Number { .. }) => Kind::UInt,
        Some(Type::Bool) => Kind::Int,
        Some(Type::Moment | Type::Seconds { .. }) => Kind::Decimal(6),
        _ => Kind::Text,
    }
}

fn switch(text: &str) -> &'static str {
    if text == "0" { "OFF" } else { "ON" }
}

/// Of a text of seconds with six digits.
fn micros_of(text: &str) -> u64 {
    (text.parse().unwrap_or(0.0) * 1e6_f64).round() as u64
}

/// What a plan depends on besides its text and its tables.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Planning {
    only_full_group_by: bool,
    no_backslash: bool,
    signed_difference: bool,
    connection: Collation,
    select_limit: u64,
}

/// Variables of one session; those not set have their defaults.
#[derive(Clone, Debug)]
pub struct Variables {
    set: BTreeMap<&'static str, String>,
    pub autocommit: bool,
    client: Charset,
    results: Charset,
    connection: Collation,
    of_databases: Collation,
    pub lock_wait_ms: u32,
    /// lock_wait_timeout, in seconds.
    pub definition_wait: u64,
    pub zone: Zone,
    /// Of the names of days and months.
    pub locale: &'static Locale,
    pub strict: bool,
    pub only_full_group_by: bool,
    /// Division by zero warns, and is refused where strict mode writes a row with it.
    pub division_errors: bool,
    /// A literal is no date of zeros.
    pub no_zero_date: bool,
    /// No date that is written lacks its month or its day.
    pub no_zero_in_date: bool,
    /// Dates have days of up to 31 in every month.
    pub any_day: bool,
    /// A difference of unsigned numbers may be below zero.
    pub signed_difference: bool,
    /// What a column or a cast has no digits for is cut off, and not rounded.
    pub cuts_fractions: bool,
    /// Values of CHAR have their spaces behind them.
    pub pads_chars: bool,
    pub syntax: Syntax,
    /// Zero in an AUTO_INCREMENT column is a value.
    pub no_auto_value_on_zero: bool,
    pub read_only: bool,
    /// Longest text that GROUP_CONCAT makes, in bytes.
    pub group_concat_max_len: usize,
    pub cte_max_recursion_depth: u64,
    /// REPEATABLE READ, for the transactions that begin from now on.
    pub isolation: Isolation,
    pub auto_increment: Step,
    /// First value of AUTO_INCREMENT of the next INSERT; 0: the next one.
    pub insert_id: u64,
    /// What NOW() says, in microseconds since 1970; 0: the time.
    pub timestamp_micros: i64,
    /// UPDATE and DELETE want a key or a LIMIT.
    pub safe_updates: bool,
    /// Most rows that a SELECT without a LIMIT answers.
    pub select_limit: u64,
    max_join_size: u64,
    /// How often a procedure may call itself.
    pub max_sp_recursion_depth: u64,
    big_selects: bool,
    pub foreign_key_checks: bool,
    /// Where it is another than the server's.
    pub wait_timeout: Option<Duration>,
    pub track_schema: bool,
    pub track_state: bool,
    /// A SELECT that takes longer ends with an error; 0: none does.
    pub max_execution_ms: u64,
    /// A statement that takes as long is counted as a slow one.
    pub long_query: Duration,
    /// The slow log has statements that looked at so many rows.
    pub min_examined_rows: u64,
    /// So many warnings of a statement are kept; the others are counted.
    pub max_error_count: usize,
    /// `apus_durability` is `disk`: commits are answered when they are on the disks of all replicas.
    pub on_disk: bool,
    /// Bytes of rows that a statement keeps in memory; beyond, they go to a file.
    pub query_memory: usize,
    /// Rows per second that a definition goes through at most; 0: as fast as it can.
    pub alter_rate: u64,
    pub(crate) globals: Arc<Globals>,
}

impl Default for Variables {
    fn default() -> Variables {
        Variables {
            client: Charset::Utf8mb4,
            results: Charset::Utf8mb4,
            connection: Collation::DEFAULT,
            of_databases: Collation::default(),
            set: BTreeMap::new(),
            autocommit: true,
            lock_wait_ms: 50_000,
            definition_wait: 31_536_000,
            zone: Zone::UTC,
            locale: locale::english(),
            strict: true,
            no_zero_date: true,
            no_zero_in_date: true,
            any_day: false,
            signed_difference: false,
            cuts_fractions: false,
            pads_chars: false,
            syntax: Syntax::default(),
            only_full_group_by: true,
            division_errors: true,
            no_auto_value_on_zero: false,
            read_only: false,
            group_concat_max_len: 1024,
            cte_max_recursion_depth: 1000,
            isolation: Isolation::default(),
            auto_increment: Step { increment: 1, offset: 1 },
            insert_id: 0,
            timestamp_micros: 0,
            safe_updates: false,
            select_limit: NO_LIMIT,
            max_join_size: NO_LIMIT,
            max_sp_recursion_depth: 0,
            big_selects: true,
            foreign_key_checks: true,
            wait_timeout: None,
            track_schema: true,
            track_state: false,
            max_execution_ms: 0,
            min_examined_rows: 0,
            long_query: Duration::from_secs(10),
            max_error_count: WARNINGS_MAX,
            on_disk: false,
            query_memory: QUERY_MEMORY,
            alter_rate: 0,
            globals: Arc::default(),
        }
    }
}

impl Variables {
    /// Of a session that begins, with a person at the other end or a program.
    pub fn new(globals: Arc<Globals>, is_interactive: bool) -> Variables {
        let begin_with = globals.of_sessions();
        let mut variables = Variables { globals, ..Variables::default() };
        let of_person = begin_with.get("interactive_timeout").cloned();
        let is_timed = of_person.is_some() || begin_with.contains_key("wait_timeout");
        for (name, text) in begin_with {
            // They were values when they were set; of one that is none now the default stays.
            let _ = variables.take(name, text);
        }
        if let Some(d) = find("wait_timeout").filter(|_| is_interactive && is_timed) {
            let _ = variables.take(d.name, of_person.unwrap_or_else(|| d.default.to_owned()));
        }
        variables
    }

    /// What plans that are made now depend on.
    pub fn planning(&self) -> Planning {
        Planning {
            only_full_group_by: self.only_full_group_by,
            no_backslash: self.syntax.no_backslash,
            signed_difference: self.signed_difference,
            connection: self.connection,
            select_limit: self.select_limit,
        }
    }

    /// The dates that columns take, but those of TIMESTAMP.
    pub fn dates_of_columns(&self) -> Dates {
        Dates { partial: !self.no_zero_in_date, any_day: self.any_day }
    }

    /// Most combinations of rows that a statement may look at, as estimated, where there is a limit.
    pub fn join_limit(&self) -> Option<u64> {
        (!self.big_selects && self.max_join_size != NO_LIMIT).then_some(self.max_join_size)
    }

    fn text(&self, d: &Definition, global: bool) -> Cow<'_, str> {
        match d.name {
            "max_allowed_packet" => Cow::Owned(MAX_ALLOWED_PACKET_DEFAULT.to_string()),
            "have_openssl" | "have_ssl" if self.globals.tls => Cow::Borrowed("YES"),
            "require_secure_transport" if self.globals.tls_required => Cow::Borrowed("1"),
            "secure_file_priv" => Cow::Owned(self.globals.places.shown()),
            "slow_query_log_file" => Cow::Owned(self.globals.slow.file().display().to_string()),
            "tls_version" if self.globals.tls => Cow::Borrowed("TLSv1.2,TLSv1.3"),
            name if global || d.scope == Scope::Global => {
                self.globals.get(name).map_or(Cow::Borrowed(d.default), Cow::Owned)
            }
            name => Cow::Borrowed(self.set.get(name).map_or(d.default, String::as_str)),
        }
    }

    /// What SQL nodes have in common for all sessions.
    pub(crate) fn of_node(&self) -> &Globals {
        &self.globals
    }
    /// Where statements keep rows that memory has no room for.
    pub fn spill_space(&self) -> &Arc<Space> {
        &self.globals.spill
    }

    /// Whether LOAD DATA LOCAL is there.
    pub fn local_infile(&self) -> bool {
        self.globals.local_infile()
    }

    /// Where the files of statements may be.
    pub fn places(&self) -> &Places {
        &self.globals.places
    }

    /// The variable timestamp, in microseconds since 1970.
    fn moment(&self) -> i64 {
        if self.timestamp_micros == 0 { crate::value::zone::clock() } else { self.timestamp_micros }
    }
    /// An INSERT has used it.
    pub fn forget_insert_id(&mut self) {
        if std::mem::take(&mut self.insert_id) != 0 {
            self.set.remove("insert_id");
        }
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub fn get(&self, name: &str, global: bool) -> Result<Datum<'static>> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        if global && d.is_of_sessions() {
            return Err(errors::no_global_value(name));
        }
        let text = self.text(d, global);
        Ok(match d.ty {
            Type::Text if name == "character_set_results" && text.is_empty() => Datum::Null,
            Type::Text | Type::Word(_) | Type::Locale => Datum::text(text.into_owned()),
            Type::Number { .. } | Type::Bool => {
                crate::parse::digest::literal::number(text.as_bytes()).unwrap_or(Datum::Int(0))
            }
            Type::Moment => Datum::Decimal { unscaled: i128::from(self.moment()), scale: 6 },
            Type::Seconds { .. } => Datum::Decimal { unscaled: i128::from(micros_of(&text)), scale: 6 },
        })
    }

    /// Characters of a password that is made up.
    pub fn random_password(&self) -> usize {
        let name = "generated_random_password_length";
        self.set.get(name).and_then(|text| text.parse().ok()).unwrap_or(20)
    }

    /// Name and SHOW text of every variable, by name.
    pub fn list(&self, global: bool) -> Vec<(String, String)> {
        let is_there = |d: &&Definition| !(global && d.is_of_sessions());
        let mut list: Vec<_> =
            definitions::all().iter().filter(is_there).map(|d| (d.name.to_owned(), self.show(d, global))).collect();
        list.sort_unstable();
        list
    }

    fn show(&self, d: &Definition, global: bool) -> String {
        match (d.ty, self.text(d, global)) {
            (Type::Bool, text) => switch(&text).to_owned(),
            (Type::Moment, _) => Datum::Decimal { unscaled: i128::from(self.moment()), scale: 6 }.as_string(),
            (_, text) => text.into_owned(),
        }
    }

    /// A variable's text in SHOW VARIABLES.
    pub fn shown(&self, name: &str) -> Option<String> {
        find(name).map(|d| self.show(d, false))
    }

    /// Names of variables whose changes the client is told of.
    pub fn tracked(&self) -> String {
        self.shown("session_track_system_variables").unwrap_or_default()
    }

    /// The errors that [`set_global`](Self::set_global) would meet.
    pub fn check_global(&self, name: &str, value: Option<&Datum<'_>>) -> Result<()> {
        self.globals.values_of(name, value).map(|_| ())
    }

    /// What SET PERSIST keeps of a value (`None`: MySQL's default), by the variable's name.
    ///
    /// # Errors
    /// Those of [`set_global`](Self::set_global).
    pub fn persisted_value(&self, name: &str, value: Option<&Datum<'_>>) -> Result<(&'static str, String)> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        let (mut texts, _) = self.globals.values_of(name, value)?;
        Ok((d.name, texts.remove(d.name).flatten().unwrap_or_else(|| d.default.to_owned())))
    }

    /// Sets a variable for the sessions that begin from now on (`None`: MySQL's default); returns a warning as [`set`](Self::set).
    pub fn set_global(&self, name: &str, value: Option<&Datum<'_>>) -> Result<Option<SqlError>> {
        self.globals.set(name, value)
    }
}

/// The variables auto_increment_increment and auto_increment_offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub increment: u64,
    /// Ignored where it is greater than the increment.
    pub offset: u64,
}

impl Step {
    /// The least value that is not below `next` and in step.
    pub(crate) fn align(self, next: u64) -> Option<u64> {
        let offset = if self.offset > self.increment { 1 } else { self.offset };
        if next <= offset {
            return Some(offset);
        }
        (next - offset).div_ceil(self.increment).checked_mul(self.increment)?.checked_add(offset)
    }
    /// The first value behind `count` values that begin at `next` or above.
    pub(crate) fn behind(self, next: u64, count: u64) -> Option<u64> {
        let last = self.align(next)?.checked_add(self.increment.checked_mul(count.checked_sub(1)?)?)?;
        last.checked_add(1)
    }
}

/// Values of `explain_format`, by number.
const FORMATS: [&str; 4] = ["TRADITIONAL", "TRADITIONAL_STRICT", "TREE", "JSON"];

/// The value of `explain_format` that a name or a number means.
pub fn format_of(text: &str) -> Option<&'static str> {
    let by_number = text.parse::<usize>().ok().and_then(|at| FORMATS.get(at));
    by_number.or_else(|| FORMATS.iter().find(|name| text.eq_ignore_ascii_case(name))).copied()
}

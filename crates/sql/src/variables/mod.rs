//! System variables: the ones that clients read when they connect, with MySQL's names, and those that change something here.
//!
//! `transaction_isolation`: READ UNCOMMITTED means READ COMMITTED.

pub(crate) mod branch_names;
mod definitions;
mod globals;
pub(crate) mod persisted;
pub mod sql_mode;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use apus_types::collate::{Charset, Collation};

use self::{
    definitions::{Definition, Scope, Type, find},
    sql_mode::SqlMode,
};
use crate::{
    errors::{self, Result, WARNINGS_MAX},
    expr::Kind,
    files::Places,
    parse::{
        charset::{charset_named, client_named, collation_named, spoken_collation_named, spoken_named},
        digest::Syntax,
    },
    spill::Space,
    value::{
        datum::Datum,
        locale::{self, Locale},
        temporal::Dates,
        zone::Zone,
    },
    wire::{
        SqlError,
        characters::{Spoken, SpokenCollation},
        constants::MAX_ALLOWED_PACKET_DEFAULT,
        foreign::Quoting,
    },
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
    connection: SpokenCollation,
    /// Literals behind the name of a character set are bytes of latin1.
    is_latin1: bool,
    select_limit: u64,
}

/// Variables of one session; those not set have their defaults.
#[derive(Clone, Debug)]
pub struct Variables {
    set: BTreeMap<&'static str, String>,
    pub autocommit: bool,
    client: Spoken,
    results: Spoken,
    connection: SpokenCollation,
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
            client: Spoken::DEFAULT,
            results: Spoken::DEFAULT,
            connection: SpokenCollation::DEFAULT,
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
            is_latin1: self.client == Spoken::Own(Charset::Latin1),
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
            Type::Number { .. } | Type::Bool => crate::parse::digest::number(text.as_bytes()).unwrap_or(Datum::Int(0)),
            Type::Moment => Datum::Decimal { unscaled: i128::from(self.moment()), scale: 6 },
            Type::Seconds { .. } => Datum::Decimal { unscaled: i128::from(micros_of(&text)), scale: 6 },
        })
    }

    /// Both variables of a pair: `_connection`, `_database` or `_server`.
    fn set_pair(&mut self, end: &str, collation: SpokenCollation) {
        let find = |head: &str| definitions::all().iter().find(|d| d.name.strip_prefix(head) == Some(end));
        for (definition, text) in
            [(find("character_set"), collation.charset().name()), (find("collation"), collation.name())]
        {
            if let Some(d) = definition {
                self.set.insert(d.name, text.to_owned());
            }
        }
        match end {
            "_connection" => self.connection = collation,
            "_server" => self.of_databases = collation.inside(),
            _ => {}
        }
    }

    /// SET NAMES.
    pub fn set_names(&mut self, collation: SpokenCollation) {
        self.speak_as((collation.charset(), collation));
        self.results = collation.charset();
        self.set.insert("character_set_results", collation.charset().name().to_owned());
    }

    /// Texts are read in this character set, and literals have this collation; what was before.
    pub fn speak_as(&mut self, (client, connection): (Spoken, SpokenCollation)) -> (Spoken, SpokenCollation) {
        let before = self.spoken();
        if before != (client, connection) {
            self.client = client;
            self.set.insert("character_set_client", client.name().to_owned());
            self.set_connection(connection);
        }
        before
    }

    /// What a client asks for when it connects; of what is not there it gets utf8mb4.
    pub fn greet(&mut self, collation: u16) {
        self.set_names(SpokenCollation::from_id(collation).unwrap_or(SpokenCollation::DEFAULT));
    }

    /// In which the client speaks, and in which it is told results.
    pub fn charsets(&self) -> (Spoken, Spoken) {
        (self.client, self.results)
    }

    /// In which the client speaks, and the collation of its literals.
    pub fn spoken(&self) -> (Spoken, SpokenCollation) {
        (self.client, self.connection)
    }

    /// How the statements of the client are read.
    pub fn quoting(&self) -> Quoting {
        Quoting { of_names: self.syntax.ansi_quotes, no_backslash: self.syntax.no_backslash }
    }

    pub fn set_connection(&mut self, collation: SpokenCollation) {
        self.set_pair("_connection", collation);
    }

    /// The database is another; `None`: there is none.
    pub fn set_database(&mut self, collation: Option<Collation>) {
        self.set_pair("_database", SpokenCollation::Own(collation.unwrap_or(self.of_databases)));
    }

    /// Characters of a password that is made up.
    pub fn random_password(&self) -> usize {
        let name = "generated_random_password_length";
        self.set.get(name).and_then(|text| text.parse().ok()).unwrap_or(20)
    }

    /// `character_set_database`.
    pub fn of_database(&self) -> Spoken {
        let name = self.set.get("character_set_database");
        name.and_then(|name| Spoken::from_name(name)).unwrap_or(Spoken::DEFAULT)
    }

    /// The collation of literals.
    pub fn connection(&self) -> Collation {
        self.connection.inside()
    }

    /// The collation of new databases that name none.
    pub fn of_databases(&self) -> Collation {
        self.of_databases
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
    fn take(&mut self, name: &'static str, text: String) -> Result<Option<SqlError>> {
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
                self.results = Spoken::DEFAULT;
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
                self.set_connection(spoken_named(&text)?.default_collation());
                return Ok(None);
            }
            "collation_connection" => {
                let by_id = text.parse().ok().and_then(SpokenCollation::from_id);
                self.set_connection(by_id.map_or_else(|| spoken_collation_named(&text), Ok)?);
                return Ok(None);
            }
            "character_set_database" | "character_set_server" => {
                let collation = SpokenCollation::Own(charset_named(&text)?.default_collation());
                self.set_pair(&name["character_set".len()..], collation);
                return Ok(None);
            }
            "collation_database" | "collation_server" => {
                let by_id = text.parse().ok().and_then(Collation::from_id);
                let collation = by_id.map_or_else(|| collation_named(&text), Ok)?;
                self.set_pair(&name["collation".len()..], SpokenCollation::Own(collation));
                return Ok(None);
            }
            _ => text,
        };
        self.set.insert(name, kept);
        Ok(None)
    }
}

/// Values of `apus_durability`.
const CLASSES: [&str; 2] = ["replicated", "disk"];

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

/// How much a transaction sees of others. READ UNCOMMITTED is taken for READ COMMITTED.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Isolation {
    /// Each statement what was committed before it.
    #[default]
    ReadCommitted,
    /// All plain reads at one snapshot.
    RepeatableRead,
    /// As if it were alone: see [`crate::exec::serializable`].
    Serializable,
}

impl Isolation {
    /// Of a name in capitals, its words joined by hyphens.
    pub fn named(name: &str) -> Option<Isolation> {
        match name {
            "READ-COMMITTED" | "READ-UNCOMMITTED" => Some(Isolation::ReadCommitted),
            "REPEATABLE-READ" => Some(Isolation::RepeatableRead),
            "SERIALIZABLE" => Some(Isolation::Serializable),
            _ => None,
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ-COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE-READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// Values of `explain_format`, by number.
const FORMATS: [&str; 4] = ["TRADITIONAL", "TRADITIONAL_STRICT", "TREE", "JSON"];

/// The value of `explain_format` that a name or a number means.
pub fn format_of(text: &str) -> Option<&'static str> {
    let by_number = text.parse::<usize>().ok().and_then(|at| FORMATS.get(at));
    by_number.or_else(|| FORMATS.iter().find(|name| text.eq_ignore_ascii_case(name))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let mut vars = Variables::default();
        assert!(vars.autocommit);
        vars.set("autocommit", Some(&Datum::text("OFF"))).unwrap();
        assert!(!vars.autocommit);
        assert_eq!(vars.get("autocommit", false).unwrap(), Datum::Int(0));
        assert_eq!(vars.get("autocommit", true).unwrap(), Datum::Int(1));
        let later = Variables::new(vars.globals.clone(), false);
        for (value, on_disk) in [("DISK", true), ("replicated", false), ("disk", true)] {
            vars.set("apus_durability", Some(&Datum::text(value))).unwrap();
            assert_eq!((vars.on_disk, later.on_disk), (on_disk, false));
        }
        assert_eq!(vars.get("apus_durability", true).unwrap(), Datum::text("replicated"));
        for wrong in [Datum::text("often"), Datum::Int(1), Datum::Null] {
            assert_eq!(vars.set("apus_durability", Some(&wrong)).unwrap_err().errno, 1231);
            assert_eq!(vars.set_global("apus_durability", Some(&wrong)).unwrap_err().errno, 1231);
        }
        later.set_global("apus_durability", Some(&Datum::text("disk"))).unwrap();
        assert_eq!(vars.get("apus_durability", true).unwrap(), Datum::text("disk"));
        vars.set("apus_durability", Some(&Datum::text("replicated"))).unwrap();
        vars.set("apus_durability", None).unwrap();
        assert!(vars.on_disk && !later.on_disk && Variables::new(vars.globals.clone(), false).on_disk);
        assert_eq!(vars.set("version", Some(&Datum::Int(1))).unwrap_err().errno, 1238);
        assert_eq!(vars.set("nonsense", None).unwrap_err().errno, 1193);
        for (level, in_force) in [
            ("repeatable-read", Isolation::RepeatableRead),
            ("READ-UNCOMMITTED", Isolation::ReadCommitted),
            ("serializable", Isolation::Serializable),
            ("READ-COMMITTED", Isolation::ReadCommitted),
        ] {
            assert_eq!(vars.set("transaction_isolation", Some(&Datum::text(level))).unwrap(), None);
            assert_eq!(vars.get("tx_isolation", false).unwrap(), Datum::text(in_force.name()));
            assert_eq!(vars.isolation, in_force);
        }
        assert!(vars.set("transaction_isolation", Some(&Datum::text("CHAOS"))).is_err());
        vars.set("time_zone", Some(&Datum::text("+02:00"))).unwrap();
        assert_eq!(vars.zone, Zone::Offset(7_200_000_000));
        assert!(vars.set("time_zone", Some(&Datum::text("Mars"))).is_err());
        vars.set("sql_mode", Some(&Datum::text("ANSI_QUOTES"))).unwrap();
        assert!(vars.syntax.ansi_quotes && !vars.strict);
        vars.set("sql_mode", None).unwrap();
        assert!(!vars.syntax.ansi_quotes && vars.strict);
    }
}

//! System variables: the ones that clients read when they connect, with MySQL's names, and those that change something here.
//!
//! `transaction_isolation`: SERIALIZABLE is accepted with a warning and REPEATABLE READ is in force; READ UNCOMMITTED means READ COMMITTED.

use crate::engine::characters::{charset_named, collation_named};
use apus_types::collate::{Charset, Collation};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    auto_increment::Step,
    digest::Syntax,
    errors::{self, Result},
    explain,
    expr::{Datum, Kind, zone::Zone},
    sql_mode::SqlMode,
    tracking,
};
use crate::wire::{
    SqlError,
    compressed::Algorithms,
    constants::{MAX_ALLOWED_PACKET_DEFAULT, SERVER_VERSION},
};

/// Longest value that SET takes, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Int,
    Text,
    /// 0/1 in expressions, ON/OFF in SHOW.
    Bool,
    /// Seconds since 1970 with six digits; now, unless it was set.
    Moment,
}

struct Definition {
    name: &'static str,
    ty: Type,
    default: &'static str,
    settable: bool,
}

const fn v(name: &'static str, ty: Type, default: &'static str, settable: bool) -> Definition {
    Definition { name, ty, default, settable }
}

const SQL_MODE: &str = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/// Sorted by name.
static DEFINITIONS: &[Definition] = &[
    v("apus_durability", Type::Text, "replicated", true),
    v("auto_increment_increment", Type::Int, "1", true),
    v("auto_increment_offset", Type::Int, "1", true),
    v("autocommit", Type::Bool, "1", true),
    v("big_tables", Type::Bool, "0", true),
    v("bulk_insert_buffer_size", Type::Int, "8388608", true),
    v("character_set_client", Type::Text, "utf8mb4", true),
    v("character_set_connection", Type::Text, "utf8mb4", true),
    v("character_set_database", Type::Text, "utf8mb4", true),
    v("character_set_filesystem", Type::Text, "binary", true),
    v("character_set_results", Type::Text, "utf8mb4", true),
    v("character_set_server", Type::Text, "utf8mb4", true),
    v("character_set_system", Type::Text, "utf8mb3", false),
    v("collation_connection", Type::Text, "utf8mb4_0900_ai_ci", true),
    v("collation_database", Type::Text, "utf8mb4_0900_ai_ci", true),
    v("collation_server", Type::Text, "utf8mb4_0900_ai_ci", true),
    v("cte_max_recursion_depth", Type::Int, "1000", true),
    v("default_storage_engine", Type::Text, "InnoDB", true),
    v("div_precision_increment", Type::Int, "4", false),
    v("explain_format", Type::Text, "TREE", true),
    v("explicit_defaults_for_timestamp", Type::Bool, "1", false),
    v("foreign_key_checks", Type::Bool, "1", true),
    v("group_concat_max_len", Type::Int, "1024", true),
    v("have_openssl", Type::Text, "DISABLED", false),
    v("have_ssl", Type::Text, "DISABLED", false),
    v("hostname", Type::Text, "apus", false),
    v("init_connect", Type::Text, "", false),
    v("innodb_lock_wait_timeout", Type::Int, "50", true),
    v("innodb_native_foreign_keys", Type::Bool, "0", false),
    v("insert_id", Type::Int, "0", true),
    v("interactive_timeout", Type::Int, "28800", true),
    v("license", Type::Text, "Apache-2.0", false),
    v("local_infile", Type::Bool, "0", false),
    v("lock_wait_timeout", Type::Int, "31536000", true),
    v("log_bin", Type::Bool, "0", false),
    v("lower_case_file_system", Type::Bool, "0", false),
    v("lower_case_table_names", Type::Int, "0", false),
    v("max_allowed_packet", Type::Int, "", false),
    v("max_connections", Type::Int, "10000", false),
    v("max_execution_time", Type::Int, "0", true),
    v("net_buffer_length", Type::Int, "16384", true),
    v("net_read_timeout", Type::Int, "30", true),
    v("net_write_timeout", Type::Int, "60", true),
    v("optimizer_switch", Type::Text, "", true),
    v("performance_schema", Type::Bool, "0", false),
    v("port", Type::Int, "3306", false),
    v("protocol_compression_algorithms", Type::Text, "zlib,zstd,uncompressed", false),
    v("protocol_version", Type::Int, "10", false),
    v("pseudo_thread_id", Type::Int, "0", true),
    v("query_cache_size", Type::Int, "0", false),
    v("query_cache_type", Type::Text, "OFF", false),
    v("read_only", Type::Bool, "0", false),
    v("rand_seed1", Type::Int, "0", true),
    v("rand_seed2", Type::Int, "0", true),
    v("require_secure_transport", Type::Bool, "0", false),
    v("server_id", Type::Int, "1", false),
    v("session_track_gtids", Type::Text, "OFF", true),
    v("session_track_schema", Type::Bool, "1", true),
    v("session_track_state_change", Type::Bool, "0", true),
    v("session_track_system_variables", Type::Text, tracking::VARIABLES, true),
    v("session_track_transaction_info", Type::Text, "OFF", true),
    v("socket", Type::Text, "", false),
    v("sql_auto_is_null", Type::Bool, "0", true),
    v("sql_log_bin", Type::Bool, "0", true),
    v("sql_mode", Type::Text, SQL_MODE, true),
    v("sql_notes", Type::Bool, "1", true),
    v("sql_quote_show_create", Type::Bool, "1", true),
    v("sql_safe_updates", Type::Bool, "0", true),
    v("sql_select_limit", Type::Int, "18446744073709551615", false),
    v("sql_warnings", Type::Bool, "0", true),
    v("storage_engine", Type::Text, "InnoDB", true),
    v("system_time_zone", Type::Text, "UTC", false),
    v("time_zone", Type::Text, "SYSTEM", true),
    v("timestamp", Type::Moment, "0", true),
    v("tls_version", Type::Text, "", false),
    v("transaction_isolation", Type::Text, "READ-COMMITTED", true),
    v("transaction_read_only", Type::Bool, "0", true),
    v("tx_isolation", Type::Text, "READ-COMMITTED", true),
    v("tx_read_only", Type::Bool, "0", true),
    v("unique_checks", Type::Bool, "1", true),
    v("version", Type::Text, SERVER_VERSION, false),
    v("version_comment", Type::Text, "Apus", false),
    v("version_compile_machine", Type::Text, std::env::consts::ARCH, false),
    v("version_compile_os", Type::Text, "Linux", false),
    v("wait_timeout", Type::Int, "28800", true),
];

fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|d| d.name == name)
}

/// Error 1193 for a name that is no variable (lower case).
pub fn check_name(name: &str) -> Result<()> {
    find(name).map(|_| ()).ok_or_else(|| errors::unknown_variable(name))
}

pub fn kind_of(name: &str) -> Kind {
    match find(name).map(|d| d.ty) {
        Some(Type::Int) => Kind::UInt,
        Some(Type::Bool) => Kind::Int,
        Some(Type::Moment) => Kind::Decimal(6),
        _ => Kind::Text,
    }
}

/// Variables of one session; those not set have their defaults.
#[derive(Debug)]
pub struct Variables {
    set: BTreeMap<&'static str, String>,
    pub autocommit: bool,
    connection: Collation,
    of_databases: Collation,
    pub lock_wait_ms: u32,
    /// lock_wait_timeout, in seconds.
    pub definition_wait: u64,
    pub zone: Zone,
    pub strict: bool,
    pub only_full_group_by: bool,
    /// Division by zero warns, and is refused where strict mode writes a row with it.
    pub division_errors: bool,
    /// A literal is no date of zeros.
    pub no_zero_date: bool,
    pub syntax: Syntax,
    /// Zero in an AUTO_INCREMENT column is a value.
    pub no_auto_value_on_zero: bool,
    pub read_only: bool,
    /// Longest text that GROUP_CONCAT makes, in bytes.
    pub group_concat_max_len: usize,
    pub cte_max_recursion_depth: u64,
    /// REPEATABLE READ, for the transactions that begin from now on.
    pub repeatable_read: bool,
    pub auto_increment: Step,
    /// First value of AUTO_INCREMENT of the next INSERT; 0: the next one.
    pub insert_id: u64,
    /// What NOW() says, in microseconds since 1970; 0: the time.
    pub timestamp_micros: i64,
    /// UPDATE and DELETE want a key or a LIMIT.
    pub safe_updates: bool,
    pub foreign_key_checks: bool,
    /// Where it was set.
    pub wait_timeout: Option<Duration>,
    pub track_schema: bool,
    pub track_state: bool,
    /// A SELECT that takes longer ends with an error; 0: none does.
    pub max_execution_ms: u64,
    /// `apus_durability` is `disk`: commits are answered when they are on the disks of all replicas.
    pub on_disk: bool,
    globals: Arc<Globals>,
}

/// Values that SET GLOBAL has given to the sessions that begin afterwards at this SQL node.
#[derive(Debug, Default)]
pub struct Globals {
    on_disk: AtomicBool,
    /// The SQL port offers TLS, and refuses who does without.
    tls: bool,
    tls_required: bool,
    /// Clients may be asked for files.
    local_infile: AtomicBool,
    /// `protocol_compression_algorithms`, where it was set.
    compression: Mutex<Option<(String, Algorithms)>>,
}

impl Globals {
    /// Of a SQL node that offers TLS, and perhaps requires it.
    pub fn with_tls(tls: bool, tls_required: bool) -> Globals {
        Globals { tls, tls_required, ..Globals::default() }
    }
}

impl Globals {
    /// What `protocol_compression_algorithms` says.
    pub fn compression(&self) -> Algorithms {
        self.compression
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map_or_else(Algorithms::default, |c| c.1)
    }
    fn compression_text(&self) -> Option<String> {
        self.compression.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|c| c.0.clone())
    }
    fn set_compression(&self, set: Option<(String, Algorithms)>) {
        *self.compression.lock().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// With this value of `local_infile`.
    #[must_use]
    pub fn with_local_infile(self, on: bool) -> Globals {
        Globals { local_infile: AtomicBool::new(on), ..self }
    }
}

impl Default for Variables {
    fn default() -> Variables {
        Variables {
            connection: Collation::default(),
            of_databases: Collation::default(),
            set: BTreeMap::new(),
            autocommit: true,
            lock_wait_ms: 50_000,
            definition_wait: 31_536_000,
            zone: Zone::UTC,
            strict: true,
            no_zero_date: true,
            syntax: Syntax::default(),
            only_full_group_by: true,
            division_errors: true,
            no_auto_value_on_zero: false,
            read_only: false,
            group_concat_max_len: 1024,
            cte_max_recursion_depth: 1000,
            repeatable_read: false,
            auto_increment: Step { increment: 1, offset: 1 },
            insert_id: 0,
            timestamp_micros: 0,
            safe_updates: false,
            foreign_key_checks: true,
            wait_timeout: None,
            track_schema: true,
            track_state: false,
            max_execution_ms: 0,
            on_disk: false,
            globals: Arc::default(),
        }
    }
}

impl Variables {
    /// Of a session that begins.
    pub fn new(globals: Arc<Globals>) -> Variables {
        Variables { on_disk: globals.on_disk.load(Relaxed), globals, ..Variables::default() }
    }

    fn text(&self, d: &Definition, global: bool) -> Cow<'_, str> {
        match d.name {
            "max_allowed_packet" => Cow::Owned(MAX_ALLOWED_PACKET_DEFAULT.to_string()),
            "apus_durability" => Cow::Borrowed(
                CLASSES[usize::from(if global { self.globals.on_disk.load(Relaxed) } else { self.on_disk })],
            ),
            "local_infile" => Cow::Borrowed(if self.local_infile() { "1" } else { "0" }),
            "protocol_compression_algorithms" => {
                self.globals.compression_text().map_or(Cow::Borrowed(d.default), Cow::Owned)
            }
            "have_openssl" | "have_ssl" if self.globals.tls => Cow::Borrowed("YES"),
            "require_secure_transport" if self.globals.tls_required => Cow::Borrowed("1"),
            "tls_version" if self.globals.tls => Cow::Borrowed("TLSv1.2,TLSv1.3"),
            name if !global && self.set.contains_key(name) => Cow::Borrowed(self.set[name].as_str()),
            _ => Cow::Borrowed(d.default),
        }
    }

    /// Whether LOAD DATA LOCAL is there.
    pub fn local_infile(&self) -> bool {
        self.globals.local_infile.load(Relaxed)
    }

    /// The variable timestamp, in microseconds since 1970.
    fn moment(&self) -> i64 {
        if self.timestamp_micros == 0 { super::expr::env::clock() } else { self.timestamp_micros }
    }
    /// An INSERT has used it.
    pub fn forget_insert_id(&mut self) {
        if std::mem::take(&mut self.insert_id) != 0 {
            self.set.remove("insert_id");
        }
    }

    pub fn get(&self, name: &str, global: bool) -> Result<Datum<'static>> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        let text = self.text(d, global);
        Ok(match d.ty {
            Type::Text => Datum::text(text.into_owned()),
            Type::Int | Type::Bool => super::digest::number(text.as_bytes()).unwrap_or(Datum::Int(0)),
            Type::Moment => Datum::Decimal { unscaled: i128::from(self.moment()), scale: 6 },
        })
    }

    /// Both variables of a pair: `_connection`, `_database` or `_server`.
    fn set_pair(&mut self, end: &str, collation: Collation) {
        let find = |head: &str| DEFINITIONS.iter().find(|d| d.name.strip_prefix(head) == Some(end));
        for (definition, text) in
            [(find("character_set"), collation.charset().name()), (find("collation"), collation.name())]
        {
            if let Some(d) = definition {
                self.set.insert(d.name, text.to_owned());
            }
        }
        match end {
            "_connection" => self.connection = collation,
            "_server" => self.of_databases = collation,
            _ => {}
        }
    }

    /// SET NAMES.
    pub fn set_names(&mut self, collation: Collation) -> Result<()> {
        check_client(collation.charset())?;
        for name in ["character_set_client", "character_set_results"] {
            self.set.insert(name, collation.charset().name().to_owned());
        }
        self.set_connection(collation);
        Ok(())
    }

    /// What a client asks for when it connects. Of others than UTF-8 it gets UTF-8, as most of them mean ASCII.
    pub fn greet(&mut self, collation: u16) {
        let asked = Collation::from_id(collation).filter(|c| check_client(c.charset()).is_ok());
        let _ = self.set_names(asked.unwrap_or_default());
    }

    pub fn set_connection(&mut self, collation: Collation) {
        self.set_pair("_connection", collation);
    }

    /// The database is another; `None`: there is none.
    pub fn set_database(&mut self, collation: Option<Collation>) {
        self.set_pair("_database", collation.unwrap_or(self.of_databases));
    }

    /// The collation of literals.
    pub fn connection(&self) -> Collation {
        self.connection
    }

    /// The collation of new databases that name none.
    pub fn of_databases(&self) -> Collation {
        self.of_databases
    }

    /// Name and SHOW text of every variable, by name.
    pub fn list(&self, global: bool) -> Vec<(String, String)> {
        DEFINITIONS.iter().map(|d| (d.name.to_owned(), self.show(d, global))).collect()
    }

    fn show(&self, d: &Definition, global: bool) -> String {
        match (d.ty, self.text(d, global)) {
            (Type::Bool, text) => if text == "0" { "OFF" } else { "ON" }.to_owned(),
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

    /// Sets a variable for the sessions that begin from now on.
    pub fn set_global(&mut self, name: &str, value: Option<&Datum<'_>>) -> Result<()> {
        match name {
            "apus_durability" => {
                let text = value.map_or_else(|| CLASSES[0].to_owned(), Datum::as_string);
                let on_disk = class(&text).ok_or_else(|| errors::wrong_variable_value(name, &text))?;
                self.globals.on_disk.store(on_disk, Relaxed);
                Ok(())
            }
            "local_infile" => {
                let text = value.map_or_else(|| "0".to_owned(), Datum::as_string);
                let on = switch(&text).ok_or_else(|| errors::wrong_variable_value(name, &text))?;
                self.globals.local_infile.store(on, Relaxed);
                Ok(())
            }
            "protocol_compression_algorithms" => {
                let set = match value {
                    None => None,
                    Some(Datum::Text(_)) => {
                        let text = value.map_or_else(String::new, Datum::as_string);
                        let found =
                            Algorithms::parse(&text).ok_or_else(|| errors::wrong_variable_value(name, &text))?;
                        Some((text, found))
                    }
                    Some(_) => return Err(errors::wrong_variable_type(name)),
                };
                self.globals.set_compression(set);
                Ok(())
            }
            _ => Err(errors::not_supported("SET GLOBAL")),
        }
    }

    /// Sets a variable of the session (`None`: its default); returns a warning where another value is in force.
    pub fn set(&mut self, name: &str, value: Option<&Datum<'_>>) -> Result<Option<SqlError>> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        if matches!(name, "local_infile" | "protocol_compression_algorithms") {
            return Err(errors::global_variable(name));
        }
        if !d.settable {
            return Err(errors::read_only_variable(name));
        }
        let text = value.map_or_else(|| self.text(d, true).into_owned(), Datum::as_string);
        let wrong = || errors::wrong_variable_value(name, &text);
        if text.len() > VALUE_BYTES_MAX {
            return Err(wrong());
        }
        let stored = match d.ty {
            Type::Bool => i32::from(switch(&text).ok_or_else(wrong)?).to_string(),
            Type::Int if matches!(value, Some(Datum::Text(_))) => return Err(errors::wrong_variable_type(name)),
            Type::Int => text.parse::<i64>().map_err(|_| wrong())?.to_string(),
            Type::Text => text.clone(),
            Type::Moment => match value.map(|v| (v, v.number())) {
                None => "0".to_owned(),
                Some((Datum::Text(_) | Datum::Bytes(_), _) | (_, None)) => {
                    return Err(errors::wrong_variable_type(name));
                }
                Some((_, Some(n))) => {
                    let micros = n.to_f64() * 1e6;
                    if !(0.0..=2_147_483_647e6).contains(&micros) {
                        return Err(wrong());
                    }
                    (micros.round() as i64).to_string()
                }
            },
        };
        match d.name {
            "autocommit" => self.autocommit = stored == "1",
            "apus_durability" => {
                self.on_disk = class(&stored).ok_or_else(wrong)?;
                return Ok(None);
            }
            "innodb_lock_wait_timeout" => {
                let seconds = stored.parse::<u32>().map_err(|_| wrong())?.clamp(1, 1_000_000);
                self.lock_wait_ms = seconds * 1000;
            }
            "lock_wait_timeout" => {
                self.definition_wait = stored.parse::<u64>().map_err(|_| wrong())?.clamp(1, 31_536_000);
            }
            "group_concat_max_len" => {
                let bytes = stored.parse::<usize>().map_err(|_| wrong())?;
                self.group_concat_max_len = bytes.clamp(4, MAX_ALLOWED_PACKET_DEFAULT);
            }
            "cte_max_recursion_depth" => {
                self.cte_max_recursion_depth = stored.parse::<u64>().map_err(|_| wrong())?.min(u64::from(u32::MAX));
            }
            "time_zone" if matches!(value, Some(Datum::Null)) => {
                return Err(errors::wrong_variable_value(name, "NULL"));
            }
            "time_zone" => {
                self.zone = Zone::parse(&text).ok_or_else(|| {
                    crate::wire::SqlError::new(1298, b"HY000", format!("Unknown or incorrect time zone: '{text}'"))
                })?
            }
            "sql_mode" => {
                let mode = SqlMode::parse(value.unwrap_or(&Datum::text(text)))?;
                self.strict = mode.has("STRICT_TRANS_TABLES") || mode.has("STRICT_ALL_TABLES");
                self.only_full_group_by = mode.has("ONLY_FULL_GROUP_BY");
                self.division_errors = mode.has("ERROR_FOR_DIVISION_BY_ZERO");
                self.no_zero_date = mode.has("NO_ZERO_DATE");
                self.no_auto_value_on_zero = mode.has("NO_AUTO_VALUE_ON_ZERO");
                self.syntax = mode.syntax();
                self.set.insert(d.name, mode.names());
                return Ok(None);
            }
            "transaction_isolation" | "tx_isolation" => {
                let level = text.to_ascii_uppercase();
                let (repeatable, weaker) = isolation(&level).ok_or_else(wrong)?;
                self.repeatable_read = repeatable;
                let in_force = if repeatable { "REPEATABLE-READ" } else { "READ-COMMITTED" };
                for name in ["transaction_isolation", "tx_isolation"] {
                    self.set.insert(name, in_force.to_owned());
                }
                return Ok(weaker.map(|text| SqlError::new(1235, b"42000", text)));
            }
            "auto_increment_increment" | "auto_increment_offset" => {
                let asked = stored.parse::<i64>().map_err(|_| wrong())?;
                let n = asked.clamp(1, 65_535);
                let Step { increment, offset } = &mut self.auto_increment;
                *(if d.name == "auto_increment_offset" { offset } else { increment }) = n as u64;
                self.set.insert(d.name, n.to_string());
                return Ok((n != asked).then(|| errors::truncated_number(name, asked.to_string().as_bytes())));
            }
            "explain_format" => {
                let format = explain::format_of(value.map_or("TREE", |_| &text)).ok_or_else(wrong)?;
                self.set.insert(d.name, format.to_owned());
                return Ok(None);
            }
            "wait_timeout" => {
                let asked = stored.parse::<i64>().map_err(|_| wrong())?;
                let seconds = asked.clamp(1, 31_536_000);
                self.wait_timeout = Some(Duration::from_secs(seconds.unsigned_abs()));
                self.set.insert(d.name, seconds.to_string());
                return Ok((seconds != asked).then(|| errors::truncated_number(name, asked.to_string().as_bytes())));
            }
            "insert_id" => self.insert_id = stored.parse().map_err(|_| wrong())?,
            "timestamp" => {
                self.timestamp_micros = stored.parse().map_err(|_| wrong())?;
                return Ok(None);
            }
            "sql_safe_updates" => self.safe_updates = stored == "1",
            "session_track_schema" => self.track_schema = stored == "1",
            "session_track_state_change" => self.track_state = stored == "1",
            "session_track_system_variables" if value.is_some_and(Datum::is_null) => {
                self.set.insert(d.name, String::new());
                return Ok(None);
            }
            // There are none to tell of.
            "session_track_gtids" => {
                let known = ["OFF", "OWN_GTID", "ALL_GTIDS"].into_iter().find(|v| text.eq_ignore_ascii_case(v));
                self.set.insert(d.name, known.ok_or_else(wrong)?.to_owned());
                return Ok(None);
            }
            "session_track_transaction_info" => match text.to_ascii_uppercase().as_str() {
                "OFF" => {}
                "STATE" | "CHARACTERISTICS" => {
                    return Err(errors::not_supported("session_track_transaction_info"));
                }
                _ => return Err(wrong()),
            },
            "foreign_key_checks" => self.foreign_key_checks = stored == "1",
            "max_execution_time" => self.max_execution_ms = stored.parse().map_err(|_| wrong())?,
            "transaction_read_only" | "tx_read_only" => self.read_only = stored == "1",
            "character_set_client" | "character_set_results" if stored.is_empty() || value.is_none() => {}
            "character_set_client" | "character_set_results" => {
                let charset = charset_named(&stored)?;
                check_client(charset)?;
                self.set.insert(d.name, charset.name().to_owned());
                return Ok(None);
            }
            "character_set_connection" | "character_set_database" | "character_set_server" => {
                let collation = match value {
                    Some(_) => charset_named(&stored)?.default_collation(),
                    None => Collation::default(),
                };
                self.set_pair(&d.name["character_set".len()..], collation);
                return Ok(None);
            }
            "collation_connection" | "collation_database" | "collation_server" => {
                let by_id = stored.parse().ok().and_then(Collation::from_id);
                let collation = by_id.map_or_else(|| collation_named(&stored), Ok)?;
                self.set_pair(&d.name["collation".len()..], collation);
                return Ok(None);
            }
            _ => {}
        }
        self.set.insert(d.name, stored);
        Ok(None)
    }
}

/// Texts of clients are UTF-8; others would have to be converted.
fn check_client(charset: Charset) -> Result<()> {
    match charset {
        Charset::Utf8mb4 | Charset::Utf8mb3 | Charset::Binary => Ok(()),
        Charset::Latin1 | Charset::Ascii => {
            Err(errors::not_supported(&format!("clients that speak {}; utf8mb4 is spoken", charset.name())))
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// Values of `apus_durability`.
const CLASSES: [&str; 2] = ["replicated", "disk"];

fn class(text: &str) -> Option<bool> {
    CLASSES.iter().position(|class| text.eq_ignore_ascii_case(class)).map(|at| at == 1)
}

/// Whether a level (words joined by hyphens) reads at snapshots, and a warning where it is not what was asked for.
pub fn isolation(level: &str) -> Option<(bool, Option<String>)> {
    match level {
        "REPEATABLE-READ" => Some((true, None)),
        "READ-COMMITTED" | "READ-UNCOMMITTED" => Some((false, None)),
        "SERIALIZABLE" => {
            Some((true, Some("SERIALIZABLE is not available yet; REPEATABLE READ is in force".to_owned())))
        }
        _ => None,
    }
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
        let mut later = Variables::new(vars.globals.clone());
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
        assert!(vars.on_disk && !later.on_disk && Variables::new(vars.globals.clone()).on_disk);
        assert_eq!(vars.set("version", Some(&Datum::Int(1))).unwrap_err().errno, 1238);
        assert_eq!(vars.set("nonsense", None).unwrap_err().errno, 1193);
        for (level, in_force, warns) in [
            ("repeatable-read", "REPEATABLE-READ", false),
            ("READ-UNCOMMITTED", "READ-COMMITTED", false),
            ("SERIALIZABLE", "REPEATABLE-READ", true),
            ("READ-COMMITTED", "READ-COMMITTED", false),
        ] {
            assert_eq!(vars.set("transaction_isolation", Some(&Datum::text(level))).unwrap().is_some(), warns);
            assert_eq!(vars.get("tx_isolation", false).unwrap(), Datum::text(in_force));
            assert_eq!(vars.repeatable_read, in_force == "REPEATABLE-READ");
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

//! What SHOW STATUS tells: counters of the session, and of all sessions that this SQL node has had.
//!
//! Each worker thread counts for itself, with plain loads and stores of its own cache line; whoever asks adds the lines up. What MySQL counts of its
//! storage engine has no like here, and is left out rather than shown as zero. UPDATE and DELETE of several tables are counted with the others (MySQL:
//! Com_update_multi, Com_delete_multi).

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use super::access;
use crate::{
    parse::token::{Token, Tokens},
    plan::Plan,
    server::{Registry, Traffic},
    session::{Session, engine::SqlEngine},
    wire::compressed::Compression,
};

/// What is counted, in the order of [`NAMES`]. What is counted of plans and rows is of statements, not of what a storage engine did for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    Begin,
    Commit,
    Delete,
    Insert,
    Replace,
    Rollback,
    Select,
    SetOption,
    Update,
    /// FLUSH TABLES.
    Flush,
    /// Definitions of tables that a thread has taken over from the dictionary.
    Opened,
    Questions,
    /// Rows that were written.
    RowsDeleted,
    RowsInserted,
    RowsUpdated,
    /// How plans read ([`super::access`]).
    TemporaryTables,
    SelectFullJoin,
    SelectRange,
    SelectScan,
    SortRange,
    SortScan,
    /// Statements that took `long_query_time`.
    Slow,
}

const COUNTERS: usize = Counter::Slow as usize + 1;
const NAMES: [&str; COUNTERS] = [
    "Com_begin",
    "Com_commit",
    "Com_delete",
    "Com_insert",
    "Com_replace",
    "Com_rollback",
    "Com_select",
    "Com_set_option",
    "Com_update",
    "Flush_commands",
    "Opened_tables",
    "Questions",
    "Innodb_rows_deleted",
    "Innodb_rows_inserted",
    "Innodb_rows_updated",
    "Created_tmp_tables",
    "Select_full_join",
    "Select_range",
    "Select_scan",
    "Sort_range",
    "Sort_scan",
    "Slow_queries",
];

/// Statements that are told by their first words, in the order of [`OTHERS`], are counted behind the others.
const OTHERS: [(&str, &str, &str); 50] = [
    ("alter", "database", "Com_alter_db"),
    ("alter", "table", "Com_alter_table"),
    ("alter", "user", "Com_alter_user"),
    ("analyze", "", "Com_analyze"),
    ("call", "", "Com_call_procedure"),
    ("use", "", "Com_change_db"),
    ("create", "database", "Com_create_db"),
    ("create", "event", "Com_create_event"),
    ("create", "function", "Com_create_function"),
    ("create", "index", "Com_create_index"),
    ("create", "procedure", "Com_create_procedure"),
    ("create", "table", "Com_create_table"),
    ("create", "trigger", "Com_create_trigger"),
    ("create", "user", "Com_create_user"),
    ("create", "view", "Com_create_view"),
    ("deallocate", "", "Com_dealloc_sql"),
    ("do", "", "Com_do"),
    ("drop", "database", "Com_drop_db"),
    ("drop", "index", "Com_drop_index"),
    ("drop", "procedure", "Com_drop_procedure"),
    ("drop", "table", "Com_drop_table"),
    ("drop", "user", "Com_drop_user"),
    ("drop", "view", "Com_drop_view"),
    ("execute", "", "Com_execute_sql"),
    ("flush", "", "Com_flush"),
    ("grant", "", "Com_grant"),
    ("kill", "", "Com_kill"),
    ("load", "", "Com_load"),
    ("lock", "", "Com_lock_tables"),
    ("optimize", "", "Com_optimize"),
    ("prepare", "", "Com_prepare_sql"),
    ("rename", "table", "Com_rename_table"),
    ("revoke", "", "Com_revoke"),
    ("savepoint", "", "Com_savepoint"),
    ("show", "create", "Com_show_create_table"),
    ("show", "databases", "Com_show_databases"),
    ("show", "fields", "Com_show_fields"),
    ("show", "processlist", "Com_show_processlist"),
    ("show", "status", "Com_show_status"),
    ("show", "tables", "Com_show_tables"),
    ("show", "variables", "Com_show_variables"),
    ("show", "warnings", "Com_show_warnings"),
    ("truncate", "", "Com_truncate"),
    ("unlock", "", "Com_unlock_tables"),
    ("xa", "commit", "Com_xa_commit"),
    ("xa", "end", "Com_xa_end"),
    ("xa", "prepare", "Com_xa_prepare"),
    ("xa", "recover", "Com_xa_recover"),
    ("xa", "rollback", "Com_xa_rollback"),
    ("xa", "start", "Com_xa_start"),
];

/// Where a statement is counted that begins with these words.
pub fn other(first: &str, second: &str, third: &str) -> Option<usize> {
    let is = |known: &str, word: &str| known.is_empty() || known.eq_ignore_ascii_case(word);
    // SHOW FULL TABLES, CREATE UNIQUE INDEX.
    let is_between =
        ["full", "global", "session", "unique", "columns", "schema"].iter().any(|w| w.eq_ignore_ascii_case(second));
    let second = match is_between {
        true if second.eq_ignore_ascii_case("schema") => "database",
        true if second.eq_ignore_ascii_case("columns") => "fields",
        true => third,
        false => second,
    };
    OTHERS.iter().position(|(a, b, _)| is(a, first) && is(b, second)).map(|at| COUNTERS + at)
}

/// All counters.
pub const ALL: usize = COUNTERS + OTHERS.len();

/// Of one session.
pub type Counts = [u64; ALL];

/// Of one worker thread, the only one that writes it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Line([AtomicU64; ALL]);

impl Default for Line {
    fn default() -> Line {
        Line([const { AtomicU64::new(0) }; ALL])
    }
}

impl Line {
    /// Once more, by the thread whose line it is.
    pub fn count(&self, what: Counter) {
        self.add(what, 1);
    }
    pub fn add(&self, what: Counter, times: u64) {
        self.add_at(what as usize, times);
    }
    pub fn add_at(&self, at: usize, times: u64) {
        let cell = &self.0[at];
        cell.store(cell.load(Relaxed).wrapping_add(times), Relaxed);
    }
}

/// Of a SQL node.
#[derive(Debug)]
pub struct Status {
    started: Instant,
    lines: Mutex<Vec<Arc<Line>>>,
}

impl Default for Status {
    fn default() -> Status {
        Status { started: Instant::now(), lines: Mutex::default() }
    }
}

impl Status {
    /// A line for a worker thread.
    pub fn line(&self) -> Arc<Line> {
        let line = Arc::<Line>::default();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        line
    }

    pub fn began(&self) -> Instant {
        self.started
    }
    /// Seconds since the SQL node began.
    pub fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    pub fn counts(&self) -> Counts {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        std::array::from_fn(|what| lines.iter().map(|line| line.0[what].load(Relaxed)).sum())
    }

    /// What COM_STATISTICS answers; so many connections and tables are there.
    pub fn line_of(&self, connections: usize, tables: usize) -> String {
        let (uptime, counts) = (self.uptime(), self.counts());
        let of = |what: Counter| counts[what as usize];
        let a_second = of(Counter::Questions) as f64 / uptime.max(1) as f64;
        format!(
            "Uptime: {uptime}  Threads: {connections}  Questions: {}  Slow queries: {}  Opens: {}  Flush tables: {}  \
             Open tables: {tables}  Queries per second avg: {a_second:.3}",
            of(Counter::Questions),
            of(Counter::Slow),
            of(Counter::Opened),
            of(Counter::Flush),
        )
    }

    /// Name and value of all, by name; so many tables are known.
    pub fn list(&self, session: &Session, tables: Tables, global: bool, dropped: u64) -> Vec<(&'static str, String)> {
        let registry = &session.info.registry;
        if global {
            return self.list_of_node(registry, session.env.spill_space().figures(), tables, dropped);
        }
        let all = self.counts();
        let mut counts = session.counts;
        // Nobody flushes, and no definition is taken over, for a session alone.
        for shared in [Counter::Flush, Counter::Opened] {
            counts[shared as usize] = all[shared as usize];
        }
        let traffic = registry.traffic_of(session.env.connection_id);
        let mut list = self.lines(counts, traffic, registry, session.env.spill_space().figures(), tables, dropped);
        list.extend(of_connection(session));
        list.sort_unstable();
        list
    }

    /// The same of all sessions together; `spilled` are bytes and files.
    pub fn list_of_node(
        &self,
        registry: &Registry,
        spilled: (u64, u64),
        tables: Tables,
        dropped: u64,
    ) -> Vec<(&'static str, String)> {
        let mut list = self.lines(self.counts(), registry.traffic(), registry, spilled, tables, dropped);
        list.sort_unstable();
        list
    }

    fn lines(
        &self,
        counts: Counts,
        traffic: Traffic,
        registry: &Registry,
        spilled: (u64, u64),
        tables: Tables,
        dropped: u64,
    ) -> Vec<(&'static str, String)> {
        let names = NAMES.into_iter().chain(OTHERS.iter().map(|(_, _, name)| *name));
        let mut list: Vec<(&str, String)> = names.zip(counts.map(|n| n.to_string())).collect();
        let (use_of, uptime) = (registry.use_of_connections(), self.uptime().to_string());
        list.extend([
            ("Apus_slow_log_dropped", dropped.to_string()),
            ("Apus_spill_bytes", spilled.0.to_string()),
            ("Created_tmp_files", spilled.1.to_string()),
            ("Aborted_clients", use_of.aborted.to_string()),
            ("Aborted_connects", use_of.aborted_logins.to_string()),
            ("Bytes_received", traffic.received.to_string()),
            ("Bytes_sent", traffic.sent.to_string()),
            ("Connections", use_of.admitted.to_string()),
            ("Max_used_connections", use_of.most.to_string()),
            ("Apus_temporary_tables", tables.temporary.to_string()),
            ("Open_tables", tables.permanent.to_string()),
            ("Queries", self.counts()[Counter::Questions as usize].to_string()),
            ("Threads_connected", use_of.now.to_string()),
            ("Threads_running", use_of.running.to_string()),
            ("Uptime", uptime.clone()),
            ("Uptime_since_flush_status", uptime),
        ]);
        list
    }
}

/// Of the dictionary, as a thread knows it.
#[derive(Clone, Copy, Default)]
pub struct Tables {
    pub permanent: usize,
    /// Of all sessions of all SQL nodes.
    pub temporary: usize,
}

impl SqlEngine {
    /// How a plan that is run reads.
    #[cold]
    pub(crate) fn count_traits(&self, session: &mut Session, found: u8) {
        session.traits |= found;
        for (bit, what) in [
            (access::TEMPORARY, Counter::TemporaryTables),
            (access::FULL_JOIN, Counter::SelectFullJoin),
            (access::RANGE, Counter::SelectRange),
            (access::SCAN, Counter::SelectScan),
            (access::SORT_RANGE, Counter::SortRange),
            (access::SORT_SCAN, Counter::SortScan),
        ] {
            if found & bit != 0 {
                self.count(session, what);
            }
        }
    }

    /// Rows that a plan has changed.
    pub(crate) fn count_rows(&self, session: &mut Session, plan: &Plan, affected: u64) {
        let what = match plan.counter() {
            Counter::Insert | Counter::Replace => Counter::RowsInserted,
            Counter::Update => Counter::RowsUpdated,
            Counter::Delete => Counter::RowsDeleted,
            _ => return,
        };
        self.count_by(session, what as usize, affected);
        let examined = &session.env.examined;
        examined.set(examined.get().max(affected));
    }

    /// A statement that goes by its words.
    pub(crate) fn count_other(&self, session: &mut Session, t: &Tokens) {
        let word = |at: usize| match t.ahead(at) {
            Some(Token::Word(word)) => word.as_str(),
            _ => "",
        };
        if let Some(at) = other(word(0), word(1), word(2)) {
            self.count_by(session, at, 1);
        }
    }
}

fn of_connection(session: &Session) -> [(&'static str, String); 5] {
    let (tls, compression) = (session.info.tls.as_ref(), session.compression);
    let is_compressed = if compression == Compression::None { "OFF" } else { "ON" };
    [
        ("Compression", is_compressed.to_owned()),
        ("Compression_algorithm", compression.name().to_owned()),
        ("Compression_level", compression.level().to_string()),
        ("Ssl_cipher", tls.map_or_else(String::new, |tls| tls.cipher.clone())),
        ("Ssl_version", tls.map_or_else(String::new, |tls| tls.version.clone())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_threads_are_added_up() {
        let status = Status::default();
        let (one, another) = (status.line(), status.line());
        std::thread::scope(|s| {
            s.spawn(|| (0..1000).for_each(|_| one.count(Counter::Select)));
            s.spawn(|| (0..500).for_each(|_| another.count(Counter::Select)));
        });
        another.count(Counter::Questions);
        assert_eq!(status.counts()[Counter::Select as usize], 1500);
        assert_eq!(status.counts()[Counter::Questions as usize], 1);
        assert_eq!(status.counts()[Counter::Begin as usize], 0);
        assert!(OTHERS.iter().map(|(_, _, name)| name).is_sorted());
        assert_eq!(other("SHOW", "FULL", "TABLES"), other("show", "tables", ""));
        assert_eq!((other("create", "schema", "x"), other("begin", "", "")), (other("create", "database", ""), None));
    }
}

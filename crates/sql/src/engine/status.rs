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

use super::session::Session;
use crate::server::Compression;

/// What is counted, in the order of [`NAMES`].
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
    "Slow_queries",
];

/// Of one session.
pub type Counts = [u64; COUNTERS];

/// Of one worker thread, the only one that writes it.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct Line([AtomicU64; COUNTERS]);

impl Line {
    /// Once more, by the thread whose line it is.
    pub fn count(&self, what: Counter) {
        self.add(what, 1);
    }
    pub fn add(&self, what: Counter, times: u64) {
        let cell = &self.0[what as usize];
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
    pub fn list(&self, session: &Session, tables: usize, global: bool) -> Vec<(&'static str, String)> {
        let all = self.counts();
        let mut counts = if global { all } else { session.counts };
        // Nobody flushes, and no definition is taken over, for a session alone.
        for shared in [Counter::Flush, Counter::Opened] {
            counts[shared as usize] = all[shared as usize];
        }
        let mut list: Vec<(&str, String)> = NAMES.into_iter().zip(counts.map(|n| n.to_string())).collect();
        let (registry, uptime) = (&session.info.registry, self.uptime().to_string());
        let use_of = registry.use_of_connections();
        let own = session.env.connection_id;
        let traffic = if global { registry.traffic() } else { registry.traffic_of(own) };
        let space = session.env.spill_space();
        list.extend([
            ("Apus_spill_bytes", space.used().to_string()),
            ("Created_tmp_files", space.files_made().to_string()),
            ("Aborted_clients", use_of.aborted.to_string()),
            ("Aborted_connects", use_of.aborted_logins.to_string()),
            ("Bytes_received", traffic.received.to_string()),
            ("Bytes_sent", traffic.sent.to_string()),
            ("Connections", use_of.admitted.to_string()),
            ("Max_used_connections", use_of.most.to_string()),
            ("Open_tables", tables.to_string()),
            ("Queries", all[Counter::Questions as usize].to_string()),
            ("Threads_connected", use_of.now.to_string()),
            ("Threads_running", use_of.running.to_string()),
            ("Uptime", uptime.clone()),
            ("Uptime_since_flush_status", uptime),
        ]);
        if !global {
            list.extend(of_connection(session));
        }
        list.sort_unstable();
        list
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
        let (one, other) = (status.line(), status.line());
        std::thread::scope(|s| {
            s.spawn(|| (0..1000).for_each(|_| one.count(Counter::Select)));
            s.spawn(|| (0..500).for_each(|_| other.count(Counter::Select)));
        });
        other.count(Counter::Questions);
        assert_eq!(status.counts()[Counter::Select as usize], 1500);
        assert_eq!(status.counts()[Counter::Questions as usize], 1);
        assert_eq!(status.counts()[Counter::Begin as usize], 0);
        assert!(NAMES.is_sorted());
    }
}

//! The slow query log: a file that mysqldumpslow and pt-query-digest read, and the table mysql.slow_log.
//!
//! SQL threads put entries into a queue of [`QUEUE_MAX`]; a thread of its own, which begins with the first entry, writes them. What the queue has no room for is counted
//! ([`SlowLog::dropped`]), as is what a file did not take. The file is opened for each batch of entries, so that it may be moved away at any time. The table has the last [`KEPT_MAX`] entries of this SQL
//! node, while `log_output` names TABLE. Statements are those that the list of processes has, up to 4 KiB.

use std::{
    collections::VecDeque,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use apus_types::time::{Civil, civil_from_unix_micros};

use crate::wire::constants::SERVER_VERSION;

/// Entries that wait to be written.
pub const QUEUE_MAX: usize = 1024;
/// Entries that the table has.
pub const KEPT_MAX: usize = 1000;
/// Entries that are written to the file at once.
const BATCH_MAX: usize = 256;
/// The file's name, unless it is told otherwise.
pub const FILE_DEFAULT: &str = "apus-slow.log";

/// A statement that took long.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Microseconds since 1970.
    pub ended: i64,
    pub user: String,
    pub host: String,
    pub id: u32,
    /// Empty: none.
    pub database: String,
    pub micros: u64,
    pub sent: u64,
    pub examined: u64,
    pub last_insert_id: u64,
    pub statement: String,
}

impl Entry {
    pub fn user_host(&self) -> String {
        format!("{0}[{0}] @ {1} []", self.user, self.host)
    }
    /// As a file has it. `before`: the database of the entry before.
    fn write(&self, before: &str, out: &mut String) {
        let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let c = civil_from_unix_micros(self.ended);
        *out += &format!("# Time: {}\n# User@Host: {}  Id: {:5}\n", moment(c), self.user_host(), self.id);
        *out += &format!(
            "# Query_time: {}  Lock_time: 0.000000 Rows_sent: {}  Rows_examined: {}\n",
            seconds(self.micros),
            self.sent,
            self.examined
        );
        if !self.database.is_empty() && self.database != before {
            *out += &format!("use {};\n", self.database);
        }
        let began = self.ended.div_euclid(1_000_000) - i64::try_from(self.micros / 1_000_000).unwrap_or(0);
        *out += &format!("SET timestamp={began};\n{};\n", self.statement.trim_end_matches([';', ' ', '\n']));
    }
}

fn moment(c: Civil) -> String {
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", c.year, c.month, c.day, c.hour, c.minute, c.second, c.micros)
}

/// Where entries go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outputs {
    pub file: bool,
    pub table: bool,
}

impl Outputs {
    /// What `log_output` says: names of outputs, NONE above all. And how MySQL writes that.
    pub fn parse(text: &str) -> Option<(Outputs, &'static str)> {
        let (mut outputs, mut is_none) = (Outputs { file: false, table: false }, false);
        for name in text.split(',').map(str::trim) {
            match name.to_ascii_uppercase().as_str() {
                "FILE" => outputs.file = true,
                "TABLE" => outputs.table = true,
                "NONE" => is_none = true,
                _ => return None,
            }
        }
        Some(match (is_none, outputs.file, outputs.table) {
            (true, ..) => (Outputs { file: false, table: false }, "NONE"),
            (_, true, true) => (outputs, "FILE,TABLE"),
            (_, true, false) => (outputs, "FILE"),
            _ => (outputs, "TABLE"),
        })
    }
}

#[derive(Debug)]
struct Settings {
    outputs: Outputs,
    file: PathBuf,
    kept: VecDeque<Entry>,
    queue: Option<SyncSender<Entry>>,
}

#[derive(Debug)]
struct Shared {
    settings: Mutex<Settings>,
    dropped: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a SQL node.
#[derive(Debug)]
pub struct SlowLog {
    is_on: AtomicBool,
    logs_unindexed: AtomicBool,
    shared: Arc<Shared>,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        let outputs = Outputs { file: true, table: false };
        let settings = Settings { outputs, file: FILE_DEFAULT.into(), kept: VecDeque::new(), queue: None };
        let shared = Arc::new(Shared { settings: Mutex::new(settings), dropped: AtomicU64::new(0) });
        SlowLog { is_on: AtomicBool::new(false), logs_unindexed: AtomicBool::new(false), shared }
    }
}

impl SlowLog {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    pub fn logs_unindexed(&self) -> bool {
        self.logs_unindexed.load(Relaxed)
    }
    pub fn set_on(&self, on: bool) {
        self.is_on.store(on, Relaxed);
    }
    pub fn set_unindexed(&self, on: bool) {
        self.logs_unindexed.store(on, Relaxed);
    }
    pub fn set_outputs(&self, outputs: Outputs) {
        self.shared.lock().outputs = outputs;
    }
    pub fn set_file(&self, file: &Path) {
        file.clone_into(&mut self.shared.lock().file);
    }
    /// A file of this name beside the one that is written; `None`: it would be somewhere else.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        let current = self.shared.lock().file.clone();
        let path = Path::new(name);
        let file = path.file_name().filter(|_| !name.ends_with(['/', '.']))?;
        let is_here = path.parent().is_some_and(|p| p.as_os_str().is_empty()) || path.parent() == current.parent();
        is_here.then(|| current.with_file_name(file))
    }
    pub fn file(&self) -> PathBuf {
        self.shared.lock().file.clone()
    }
    /// Entries that were not written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }
    /// What the table has.
    pub fn kept(&self) -> Vec<Entry> {
        self.shared.lock().kept.iter().cloned().collect()
    }
    pub fn forget(&self) {
        self.shared.lock().kept.clear();
    }

    pub fn push(&self, entry: Entry) {
        let mut settings = self.shared.lock();
        if settings.outputs.table {
            if settings.kept.len() == KEPT_MAX {
                settings.kept.pop_front();
            }
            settings.kept.push_back(entry.clone());
        }
        if !settings.outputs.file {
            return;
        }
        if settings.queue.is_none() {
            let (queue, entries) = sync_channel(QUEUE_MAX);
            let shared = self.shared.clone();
            let begun =
                std::thread::Builder::new().name("slow-log".to_owned()).spawn(move || write_all(&entries, &shared));
            settings.queue = begun.is_ok().then_some(queue);
        }
        if settings.queue.as_ref().is_none_or(|queue| queue.try_send(entry).is_err()) {
            self.shared.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// The thread that writes the file, as long as somebody may push.
fn write_all(entries: &Receiver<Entry>, shared: &Shared) {
    while let Ok(first) = entries.recv() {
        let mut batch = vec![first];
        batch.extend(entries.try_iter().take(BATCH_MAX - 1));
        let file = shared.lock().file.clone();
        if write(&file, &batch).is_err() {
            shared.dropped.fetch_add(batch.len() as u64, Relaxed);
        }
    }
}

fn write(path: &Path, batch: &[Entry]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut text = String::new();
    if file.metadata()?.len() == 0 {
        text += &format!("/apus, Version: {SERVER_VERSION} (Apus). started with:\nTcp port: 0  Unix socket: \n");
        text += "Time                 Id Command    Argument\n";
    }
    let mut before = "";
    for entry in batch {
        entry.write(before, &mut text);
        before = &entry.database;
    }
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(statement: &str) -> Entry {
        Entry {
            ended: 1_700_000_000_123_456,
            user: "root".into(),
            host: "localhost".into(),
            id: 7,
            database: "shop".into(),
            micros: 2_500_001,
            sent: 1,
            examined: 9,
            last_insert_id: 0,
            statement: statement.into(),
        }
    }

    #[test]
    fn entries_look_as_in_mysql() {
        let mut text = String::new();
        entry("SELECT SLEEP(2.5);").write("", &mut text);
        assert_eq!(
            text,
            "# Time: 2023-11-14T22:13:20.123456Z\n# User@Host: root[root] @ localhost []  Id:     7\n\
             # Query_time: 2.500001  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 9\nuse shop;\n\
             SET timestamp=1699999998;\nSELECT SLEEP(2.5);\n"
        );
    }

    #[test]
    fn outputs_have_mysql_s_names() {
        let of = |text| Outputs::parse(text).map(|(o, name)| (o.file, o.table, name));
        assert_eq!(of("table, file"), Some((true, true, "FILE,TABLE")));
        assert_eq!(of("FILE,NONE"), Some((false, false, "NONE")));
        assert_eq!((of("TABLE"), of("nowhere")), (Some((false, true, "TABLE")), None));
    }

    #[test]
    fn a_full_queue_and_a_lost_file_are_counted() {
        let log = SlowLog::default();
        log.set_file(Path::new("/nonexistent/apus-slow.log"));
        log.push(entry("SELECT 1"));
        while log.dropped() == 0 {
            std::thread::yield_now();
        }
        log.set_outputs(Outputs { file: false, table: true });
        (0..KEPT_MAX + 5).for_each(|n| log.push(entry(&format!("SELECT {n}"))));
        let kept = log.kept();
        assert_eq!((kept.len(), kept[0].statement.as_str(), log.dropped()), (KEPT_MAX, "SELECT 5", 1));
        assert_eq!(log.beside("other.log"), Some("/nonexistent/other.log".into()));
        assert_eq!((log.beside("/etc/passwd"), log.beside("../x")), (None, None));
    }
}

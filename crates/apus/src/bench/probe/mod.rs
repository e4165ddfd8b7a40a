//! `apus bench probe`: what clients of the SQL nodes feel while something goes wrong.
//!
//! It writes rows at a fixed rate, through every SQL node, to every node group, and does not slow down when answers do (an open loop,
//! [`stream`]). Whoever breaks the cluster marks the time on standard input, one command a line, and gets one line of JSON
//! for each answer on standard output:
//!
//! ```text
//! begin NAME         a window begins
//! fault NS           the fault struck at this time of the monotonic clock
//! end                the window ends: gaps, latencies, errors by MySQL number, fates of writes in flight (record), removals (views)
//! home               connections that moved to another SQL node return to their own with their next write
//! audit              stop writing, read every replica, compare with what was acknowledged (audit); the last command
//! ```
//!
//! Without `--control` it measures one window of `--seconds` and audits. The exit code is 0 only if the audit found nothing.
//!
//! Limits: writes are remembered for the audit at about 100 bytes each in the probe and in each replica, so a run is minutes to an hour
//! long, not days; [`RATE_MAX`] writes a second.

mod audit;
mod record;
mod stream;
mod views;

use std::{
    io::{BufRead, Write},
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use apus_types::{ColumnType, TableSchema};
use serde_json::{Value, json};

use self::{
    record::Window,
    stream::{Load, Placement, now_ns},
    views::{Removals, watch},
};
use super::{
    cluster::{DATABASE, column, connect, create_table, exit_code, on_this_thread},
    target::sql_nodes,
};
use crate::discover::{Access, ClusterArgs};

/// The table written to.
const TABLE: &str = "probe";
/// Most writes a second.
const RATE_MAX: u64 = 100_000;
/// Time between the threads' start and the first write.
const LEAD: Duration = Duration::from_millis(500);
/// A window is reported when its writes are answered, or this long after their deadline.
const GRACE: Duration = Duration::from_secs(2);
/// Stack of a writer thread in bytes.
const STACK_BYTES: usize = 256 << 10;

#[derive(clap::Args, Clone, Debug)]
pub struct ProbeArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// SQL nodes; default: those of the running `apus dev`
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    sql: Vec<String>,
    /// Writes a second, altogether
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=RATE_MAX))]
    rate: u64,
    /// Connections per SQL node and node group
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// One of so many writes is a transaction of two statements over two node groups; 0 for none
    #[arg(long, default_value_t = 10)]
    explicit_every: u64,
    /// Pause between the two statements of a transaction
    #[arg(long, default_value_t = 20, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    think: u64,
    /// A statement that is not answered for so long is given up, with its connection
    #[arg(long, default_value_t = 10_000, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(10..=600_000))]
    deadline: u64,
    /// Length of the only window
    #[arg(long, default_value_t = 10, conflicts_with = "control")]
    seconds: u64,
    /// File whose first line is root's password at the SQL nodes; default: none
    #[arg(long, value_name = "FILE")]
    root_password_file: Option<std::path::PathBuf>,
    /// Take commands from standard input
    #[arg(long)]
    control: bool,
}

/// # Errors
/// No cluster was found, or it does not serve.
pub fn run(args: &ProbeArgs) -> Result<ExitCode, String> {
    let mgmt = args.cluster.find()?;
    let sql = sql_nodes(&args.sql)?;
    let (table, placement) = on_this_thread(async {
        let client = connect(&mgmt, 0).await?;
        let id_type = ColumnType::Int { bits: 64, unsigned: true };
        let columns = vec![column("id", id_type), column("slot", id_type)];
        let table = create_table(&client, &TableSchema::new(DATABASE, TABLE, columns, vec![0])).await?;
        Ok::<_, String>((table, Placement::new(&client.view())?))
    })??;
    let groups = placement.groups;
    let streams = sql.len() as u64 * u64::from(groups);
    let password = args.root_password_file.as_deref().map_or(Ok(String::new()), crate::secret::load_password)?;
    let load = Arc::new(Load {
        sql,
        password,
        placement,
        start_ns: now_ns() + LEAD.as_nanos() as u64,
        period_ns: 1_000_000_000 / args.rate,
        explicit_every: args.explicit_every,
        think: Duration::from_millis(args.think),
        deadline: Duration::from_millis(args.deadline),
        turns: (0..streams).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        home_calls: AtomicU64::new(0),
        records: Mutex::default(),
        removals: Removals::default(),
    });
    let mut threads = Vec::new();
    for number in 0..streams * args.connections {
        let load = load.clone();
        let stream = (number % streams) as usize;
        let named = thread::Builder::new().name(format!("probe-{number}")).stack_size(STACK_BYTES);
        let thread = named.spawn(move || stream::run(&load, stream));
        threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    let (of_watcher, address) = (load.clone(), mgmt.clone());
    let watcher = thread::Builder::new().name("probe-views".to_owned()).spawn(move || watch(&of_watcher, &address));
    let watcher = watcher.map_err(|e| format!("cannot start a thread: {e}"))?;
    let mut probe = Probe { load, threads, watcher: Some(watcher), mgmt, table, open: None, reported: 0 };
    if args.control { probe.obey() } else { probe.measure(args.seconds) }
}

/// Addresses of the SQL nodes: the ones given, or those of the running `apus dev`.
struct Probe {
    load: Arc<Load>,
    threads: Vec<thread::JoinHandle<()>>,
    watcher: Option<thread::JoinHandle<Result<(), String>>>,
    mgmt: Access,
    table: TableSchema,
    open: Option<Window>,
    /// Records before this index are older than every later window.
    reported: usize,
}

impl Probe {
    fn measure(&mut self, seconds: u64) -> Result<ExitCode, String> {
        self.wait_for_first_writes();
        self.open = Some(Window { name: "run".to_owned(), begin_ns: now_ns(), end_ns: 0, fault_ns: None });
        thread::sleep(Duration::from_secs(seconds)); // the window is so long
        let window = self.end_window()?;
        say(&window);
        self.audit()
    }

    fn obey(&mut self) -> Result<ExitCode, String> {
        self.wait_for_first_writes();
        say(&json!({ "ready": true, "streams": self.load.streams(), "groups": self.load.placement.groups }));
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|e| format!("cannot read commands: {e}"))?;
            let (command, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
            match command {
                "audit" => return self.audit(),
                _ => say(&self.execute(command, rest).unwrap_or_else(|reason| json!({ "error": reason }))),
            }
        }
        Err("standard input ended without an audit".to_owned())
    }

    fn execute(&mut self, command: &str, rest: &str) -> Result<Value, String> {
        match command {
            "begin" if self.open.is_some() => Err("a window is open already".to_owned()),
            "begin" => {
                self.open = Some(Window { name: rest.to_owned(), begin_ns: now_ns(), end_ns: 0, fault_ns: None });
                Ok(json!({ "begun": rest }))
            }
            "fault" => {
                let at: u64 = rest.parse().map_err(|_| format!("{rest:?} is no time"))?;
                let window = self.open.as_mut().ok_or("no window is open")?;
                window.fault_ns = Some(at);
                Ok(json!({ "fault": at }))
            }
            "end" => self.end_window(),
            "home" => {
                self.load.home_calls.fetch_add(1, Ordering::Relaxed);
                Ok(json!({ "home": true }))
            }
            _ => Err(format!("unknown command {command:?}")),
        }
    }

    /// The first writes pay for caches that are cold.
    fn wait_for_first_writes(&self) {
        let warm = self.load.start_ns + LEAD.as_nanos() as u64;
        thread::sleep(Duration::from_nanos(warm.saturating_sub(now_ns())));
    }

    /// Closes the window and waits until every write that was due in it is answered.
    fn end_window(&mut self) -> Result<Value, String> {
        let mut window = self.open.take().ok_or("no window is open")?;
        window.end_ns = now_ns();
        let due = |ns: u64| ns.saturating_sub(self.load.start_ns).div_ceil(self.load.period_ns);
        let expected = due(window.end_ns) - due(window.begin_ns);
        let give_up = window.end_ns + (self.load.deadline + GRACE).as_nanos() as u64;
        loop {
            let records = self.load.records();
            let recent = &records[self.reported..];
            let inside = |due_ns| (window.begin_ns..window.end_ns).contains(&due_ns);
            let answered = recent.iter().filter(|r| inside(r.due_ns)).count() as u64;
            if answered >= expected || now_ns() > give_up {
                let mut report =
                    record::report(recent, &self.load.removals.list(), &window, self.load.placement.groups);
                report["unanswered"] = json!(expected.saturating_sub(answered));
                self.reported += recent.iter().position(|r| r.done_ns >= window.begin_ns).unwrap_or(0);
                return Ok(report);
            }
            drop(records);
            thread::sleep(Duration::from_millis(2)); // polls the records; nothing waits for this
        }
    }

    fn audit(&mut self) -> Result<ExitCode, String> {
        self.load.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a writer panicked".to_owned())?;
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.join().map_err(|_| "the watcher of views panicked".to_owned())??;
        }
        let (findings, nodes) = audit::audit_all(&self.load, &self.mgmt, &self.table)?;
        let mut found = findings.to_json(nodes);
        let begin = self.load.start_ns;
        found["removals"] = self.load.removals.list().iter().map(|r| r.to_json(begin)).collect();
        say(&found);
        Ok(exit_code(findings.is_good()))
    }
}

fn say(value: &Value) {
    // Nobody listens any more: then nobody wants to know.
    let _ = writeln!(std::io::stdout().lock(), "{value}");
}

//! `apus bench append`: a history of list transactions on a real cluster, for a judge.
//!
//! Workers run transactions that read lists and append to them, and write down when each began, how it ended and what it saw, in
//! Jepsen's form. `apus check-history` (or anybody's Elle) says which isolation level the history allows. Killing nodes meanwhile
//! is left to others; the workload only needs the cluster to come back.
//!
//! A list is a row. Appending locks the row, reads it and writes it back longer. Reads are
//!
//! - committed reads, which lock nothing and may go to any replica: level `strict-read-committed`;
//! - reads at a snapshot that the first of them takes, with the transaction's own appends in front: `strict-snapshot-reads`;
//! - or locking reads: `strict-serializable`.
//!
//! Appends go to a few *active* lists at a time, so that transactions meet; a list that is long enough is replaced by a new one. When the number of
//! transactions is reached every list is read once more, so that an append that was lost is seen.
//!
//! An unknown outcome is asked for by commit token; only one that nobody can tell within [`PATIENCE`] is written as `:info`.

mod lists;
mod worker;

use std::{
    collections::BTreeMap,
    fs::File,
    io::BufWriter,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use apus_sim::check::history::{EventKind, Mop, Writer};
use serde_json::json;

use self::lists::Lists;
use super::{
    cluster::{connect, exit_code, on_this_thread},
    numbers::{grouped, nanoseconds, per_second},
};
use crate::discover::{Access, ClusterArgs};

/// How long the outcome of one transaction is asked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The cluster may refuse everything for so long before the run gives up.
const OUTAGE_MAX: Duration = Duration::from_secs(120);

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Latest committed rows, from any replica
    Committed,
    /// At a snapshot taken by a transaction's first read, as plain SELECTs under REPEATABLE READ
    Snapshot,
    /// With shared locks
    Locking,
}

#[derive(clap::Args, Clone, Debug)]
pub struct AppendArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Where the history goes
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// Transactions to run
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    transactions: u64,
    /// How reads are made
    #[arg(long, value_enum, default_value_t = Reads::Committed)]
    reads: Reads,
    /// Transactions under way at a time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    workers: u64,
    /// Threads of the operating system, each with its own client
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Lists that are appended to at a time
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    active: u64,
    /// Appends to a list before it is replaced
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1000))]
    length: u64,
    /// What transactions do follows from this; default: random
    #[arg(long)]
    seed: Option<u64>,
}

/// What the workers share.
pub struct Run {
    pub mgmt: Access,
    pub reads: Reads,
    pub seed: u64,
    pub lists: Lists,
    pub workers: u64,
    pub transactions: u64,
    start: Instant,
    begun: AtomicU64,
    /// Lists that were read in the end.
    read_last: AtomicU64,
    /// Nanoseconds after the start of the last success.
    last_success: AtomicU64,
    history: Mutex<Writer<BufWriter<File>>>,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    ended: [u64; 3],
    errors: BTreeMap<u16, u64>,
    failure: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// Whether there is another transaction to run.
    pub fn claim(&self) -> bool {
        self.begun.fetch_add(1, Ordering::Relaxed) < self.transactions && lock(&self.tally).failure.is_none()
    }
    /// The next lists to read in the end.
    pub fn claim_last(&self, count: u64) -> std::ops::Range<u64> {
        let first = self.read_last.fetch_add(count, Ordering::Relaxed).min(self.lists.used());
        first..(first + count).min(self.lists.used())
    }
    pub fn error(&self, code: u16) {
        *lock(&self.tally).errors.entry(code).or_default() += 1;
    }
    pub fn fail(&self, reason: String) {
        lock(&self.tally).failure.get_or_insert(reason);
    }
    /// Writes an event. The order of the file is that of the calls.
    pub fn event(&self, process: u64, kind: EventKind, mops: &[Mop]) {
        let now = nanoseconds(self.start.elapsed());
        let written = lock(&self.history).write(now, process, kind, mops);
        if let Err(error) = written {
            self.fail(format!("cannot write the history: {error}"));
        }
        let ended = match kind {
            EventKind::Invoke => return,
            EventKind::Ok => 0,
            EventKind::Fail => 1,
            EventKind::Info => 2,
        };
        lock(&self.tally).ended[ended] += 1;
        if kind == EventKind::Ok {
            self.last_success.fetch_max(now, Ordering::Relaxed);
        } else if now.saturating_sub(self.last_success.load(Ordering::Relaxed)) > nanoseconds(OUTAGE_MAX) {
            self.fail(format!("nothing succeeded for {} s", OUTAGE_MAX.as_secs()));
        }
    }
}

/// # Errors
/// No cluster was found, it stopped serving, or the history cannot be written.
pub fn run(args: &AppendArgs) -> Result<ExitCode, String> {
    let mgmt = args.cluster.find()?;
    let seed = args.seed.map_or_else(crate::random_id, Ok)?;
    let file = File::create(&args.history).map_err(|e| format!("cannot write {}: {e}", args.history.display()))?;
    let capacity = Lists::capacity(args.transactions * worker::MOPS_MAX, args.active, args.length);
    let table = on_this_thread(async { lists::create(&connect(&mgmt, 0).await?, capacity).await })??;
    let run = Arc::new(Run {
        mgmt,
        reads: args.reads,
        seed,
        lists: Lists::new(table, args.active, args.length),
        workers: args.workers.max(args.threads),
        transactions: args.transactions,
        start: Instant::now(),
        begun: AtomicU64::new(0),
        read_last: AtomicU64::new(0),
        last_success: AtomicU64::new(0),
        history: Mutex::new(Writer::new(BufWriter::with_capacity(1 << 20, file))),
        tally: Mutex::default(),
    });
    let mut threads = Vec::new();
    for number in 0..args.threads {
        let share = |n| run.workers * n / args.threads;
        let (run, workers) = (run.clone(), share(number)..share(number + 1));
        let thread = thread::Builder::new().name(format!("append-{number}"));
        let thread = thread.spawn(move || worker::run_thread(&run, number, workers));
        threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    watch(&run, &threads);
    for thread in threads {
        thread.join().map_err(|_| "a load thread panicked".to_owned())?;
    }
    report(&run)
}

/// One line of progress each second until all threads have ended.
fn watch(run: &Run, threads: &[thread::JoinHandle<()>]) {
    let mut told = (Instant::now(), 0);
    while threads.iter().any(|t| !t.is_finished()) {
        thread::sleep(Duration::from_millis(20)); // polls the threads; nothing waits for this
        if told.0.elapsed() >= Duration::from_secs(1) {
            let ended = lock(&run.tally).ended;
            let all = ended.iter().sum();
            let rate = per_second(all - told.1, told.0.elapsed());
            eprintln!("append {:>9} transactions/s, {} of {}", grouped(rate), grouped(all), grouped(run.transactions));
            told = (Instant::now(), all);
        }
    }
}

fn report(run: &Run) -> Result<ExitCode, String> {
    lock(&run.history).flush().map_err(|e| format!("cannot write the history: {e}"))?;
    let tally = lock(&run.tally);
    let [ok, failed, unknown] = tally.ended;
    let errors: BTreeMap<String, u64> = tally.errors.iter().map(|(code, n)| (format!("APUS-{code}"), *n)).collect();
    let seconds = run.start.elapsed().as_secs_f64();
    let all = ok + failed + unknown;
    let text = json!({
        "transactions": all, "ok": ok, "failed": failed, "unknown": unknown, "lists": run.lists.used(),
        "seconds": seconds, "per_second": all as f64 / seconds, "errors": errors, "failure": tally.failure, "seed": run.seed,
    });
    println!("{text}");
    Ok(exit_code(tally.failure.is_none()))
}

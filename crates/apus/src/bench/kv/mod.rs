//! `apus bench kv`: operations per second by key, and the latency of a request.
//!
//! Phases run one after another over one table (`apus_bench.kv`, made anew by the insert phase): *insert* writes each key once,
//! *read* and *update* take random keys for some seconds or for a number of operations, *delete* removes each key once. A request
//! is one batch: a committed multi-key read from any replica, or one transaction. Updates that run at the same time are on disjoint
//! keys, so that the cluster is measured and not the workload's lock conflicts. What is read is checked: a missing row, a wrong
//! value or a failed request makes the exit code non-zero.
//!
//! Instructions per operation of client or data node: run it under callgrind with two operation counts and divide the
//! difference by the difference of the counts. What connecting and inserting cost falls out:
//!
//! ```text
//! for n in 20000 40000; do
//!   valgrind --tool=callgrind apus bench kv --single-thread --keys 1000 --batch 1 --phases insert,read --ops $n
//! done
//! ```

mod data;
mod worker;

use std::{
    process::ExitCode,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use apus_types::TableSchema;

use self::worker::{Load, Tally};
use super::{
    cluster::{connect, create_table, exit_code, find_table, on_this_thread},
    numbers::{grouped, per_second},
};
use crate::discover::{Access, ClusterArgs};

/// Most keys: their numbers have eight hexadecimal digits.
const KEYS_MAX: u64 = 1 << 32;
const TABLE: &str = "kv";

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Phase {
    Insert,
    Read,
    Update,
    Delete,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Read => "read",
            Phase::Update => "update",
            Phase::Delete => "delete",
        }
    }
    /// Each key once, rather than random keys until the time is over.
    fn is_sweep(self) -> bool {
        matches!(self, Phase::Insert | Phase::Delete)
    }
}

#[derive(clap::Args, Clone, Debug)]
pub struct KvArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Phases to run, in this order; without insert the table of the last run is used
    #[arg(long, value_enum, value_delimiter = ',', default_value = "insert,read,update,delete")]
    phases: Vec<Phase>,
    /// Rows in the table
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=1024))]
    key_size: u16,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_size: u32,
    /// Keys per request
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// Threads of the operating system, each with its own client
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Requests in flight per thread
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    in_flight: u16,
    /// How long read and update run (insert and delete go over every key once)
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Run read and update for this many operations instead of for a time
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// One thread with one request in flight: with --ops every run executes the same operations (for callgrind)
    #[arg(long)]
    single_thread: bool,
}

/// # Errors
/// No cluster was found, or the table could not be made.
pub fn run(args: &KvArgs) -> Result<ExitCode, String> {
    let mut args = args.clone();
    if args.single_thread {
        (args.threads, args.in_flight) = (1, 1);
    }
    let mgmt = args.cluster.find()?;
    let mut good = true;
    for &phase in &args.phases {
        let table = on_this_thread(table_for(&mgmt, phase, &args))??;
        let load = Load {
            mgmt: mgmt.clone(),
            phase,
            table,
            keys: args.keys,
            key_size: usize::from(args.key_size),
            value_size: args.value_size as usize,
            batch: args.batch,
            in_flight: u64::from(args.in_flight),
            tasks: u64::from(args.threads) * u64::from(args.in_flight),
            limit: if phase.is_sweep() { args.keys } else { args.ops.unwrap_or(u64::MAX) },
            next: AtomicU64::new(0),
            executed: AtomicU64::new(0),
        };
        let until = (!phase.is_sweep() && args.ops.is_none()).then(|| Duration::from_secs(args.seconds));
        let (tally, time) = run_phase(load, args.threads, until)?;
        println!("{}", summary(phase, &tally, time));
        if let Some(error) = &tally.first_error {
            eprintln!("{}: first error: {error}", phase.name());
        }
        good &= tally.is_good();
    }
    Ok(exit_code(good))
}

async fn table_for(mgmt: &Access, phase: Phase, args: &KvArgs) -> Result<TableSchema, String> {
    let client = connect(mgmt, 0).await?;
    if phase != Phase::Insert {
        return find_table(&client, TABLE).await;
    }
    create_table(&client, &data::table(TABLE, args.key_size, args.value_size)).await
}

/// Runs all threads of a phase; what they did together, and the time from the first request to the last answer.
fn run_phase(load: Load, threads: u16, until: Option<Duration>) -> Result<(Tally, Duration), String> {
    let load = Arc::new(load);
    let start = Arc::new(Barrier::new(usize::from(threads) + 1));
    let spawn = |number: u16| {
        let (load, start) = (load.clone(), start.clone());
        thread::Builder::new()
            .name(format!("bench-{number}"))
            .spawn(move || worker::run_thread(&load, number, &start))
            .map_err(|e| format!("cannot start a thread: {e}"))
    };
    let handles = (0..threads).map(spawn).collect::<Result<Vec<_>, _>>()?;
    start.wait();
    let begin = Instant::now();
    let mut told = (Duration::ZERO, 0);
    while handles.iter().any(|h| !h.is_finished()) {
        thread::sleep(Duration::from_millis(20));
        let elapsed = begin.elapsed();
        if until.is_some_and(|until| elapsed >= until) {
            load.stop();
        }
        if elapsed - told.0 >= Duration::from_secs(1) {
            let executed = load.executed.load(Ordering::Relaxed);
            let rate = grouped(per_second(executed - told.1, elapsed - told.0));
            eprintln!("{:<6} {:>4} s  {rate:>12} operations/s", load.phase.name(), elapsed.as_secs());
            told = (elapsed, executed);
        }
    }
    let mut total = Tally::new();
    let mut end = begin;
    for handle in handles {
        let (tally, finished) = handle.join().map_err(|_| "a load thread panicked".to_owned())??;
        total.merge(tally);
        end = end.max(finished);
    }
    Ok((total, end - begin))
}

fn summary(phase: Phase, tally: &Tally, time: Duration) -> String {
    format!(
        "{:<6} {} operations/s, {} batches/s, batch latency {}; {} operations in {:.2} s, missing {}, wrong {}, errors {}",
        phase.name(),
        grouped(per_second(tally.operations, time)),
        grouped(per_second(tally.batches, time)),
        tally.latencies.summary(),
        grouped(tally.operations),
        time.as_secs_f64(),
        tally.missing,
        tally.wrong,
        tally.errors,
    )
}

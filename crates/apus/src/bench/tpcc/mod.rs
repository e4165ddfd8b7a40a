//! `apus bench tpcc`: TPC-C over MySQL's protocol, against Apus or any other server, and its consistency conditions.
//!
//! It fills `apus_tpcc` ([`load`]), lets terminals run the five transactions ([`transaction`]) in the specification's mix and with its distributions
//! ([`input`], [`random`]), without think times, and then asks the server whether the twelve conditions hold ([`check`]). The exit code is 0
//! only if they do and no transaction met an error that no client expects.
//!
//! What differs from the specification: no think and keying times, so a few warehouses take all load; statements are sent as text, one at a time, as sysbench's
//! TPC-C does; no foreign keys; a delivery is one transaction of ten districts and not deferred; READ COMMITTED with FOR UPDATE.
//! So these are no tpmC that may be published as results of TPC-C: they compare servers.

mod check;
mod input;
mod load;
mod random;
mod schema;
mod terminal;
mod transaction;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::{
    input::{KINDS, Kind},
    terminal::{Tally, Terminal},
};
use super::{cluster::exit_code, numbers::grouped, target::TargetArgs};

/// MySQL's number for a commit whose outcome the cluster could not tell.
const OUTCOME_UNKNOWN: u16 = 1180;
/// Stack of a terminal in bytes.
const STACK_BYTES: usize = 512 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Phase {
    Load,
    Run,
    Check,
}

#[derive(clap::Args, Clone, Debug)]
pub struct TpccArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    warehouses: u64,
    /// Connections that run transactions
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    terminals: u64,
    /// Measured time
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Time before it that is not counted
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    warmup: u64,
    /// What to do, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,run,check")]
    phases: Vec<Phase>,
    /// The same again for the same number, as far as clocks allow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// # Errors
/// The server is not there or does not take the tables, or a consistency condition does not hold.
pub fn run(args: &TpccArgs) -> Result<ExitCode, String> {
    let server = args.target.find()?;
    let wants = |phase| args.phases.contains(&phase);
    if wants(Phase::Load) {
        load::load(&server, args.warehouses, args.seed)?;
    }
    let mut good = true;
    let mut report = json!({});
    if wants(Phase::Run) {
        let tally = measure(args, &server)?;
        good = tally.unexpected == 0 && tally.committed[Kind::NewOrder as usize] > 0;
        report = of_tally(args, &tally);
        if !args.json {
            print(&report);
        }
        if let Some(first) = &tally.first {
            eprintln!("{} unexpected errors, the first: {first}", tally.unexpected);
        }
    }
    if wants(Phase::Check) {
        let held = check::check(&server, !wants(Phase::Run) && wants(Phase::Load))?;
        report["conditions_held"] = held.into();
        if !args.json {
            println!("{held} consistency conditions hold");
        }
    }
    if args.json {
        println!("{report}");
    }
    Ok(exit_code(good))
}

fn measure(args: &TpccArgs, server: &super::target::Server) -> Result<Tally, String> {
    let stop = AtomicBool::new(false);
    let measured_from = Instant::now() + Duration::from_secs(args.warmup);
    thread::scope(|scope| {
        let one = |number| {
            let stop = &stop;
            let terminal =
                Terminal { server, number, warehouses: args.warehouses, seed: args.seed, measured_from, stop };
            let builder = thread::Builder::new().name(format!("terminal {number}")).stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || terminal.run()).map_err(|e| format!("cannot start a thread: {e}"))
        };
        let threads: Vec<_> = (0..args.terminals).map(one).collect();
        thread::sleep(Duration::from_secs(args.warmup + args.seconds));
        stop.store(true, Ordering::Relaxed);
        let mut all = Tally::new();
        for thread in threads {
            all.merge(&thread?.join().map_err(|_| "a terminal panicked".to_owned())?);
        }
        Ok(all)
    })
}

fn of_tally(args: &TpccArgs, tally: &Tally) -> Value {
    let committed = tally.committed[Kind::NewOrder as usize];
    let mut kinds = serde_json::Map::new();
    for kind in KINDS {
        let at = kind as usize;
        let ms = |quantile| tally.latencies[at].at_ms(quantile);
        let of = json!({"committed": tally.committed[at], "p50_ms": ms(0.5), "p95_ms": ms(0.95), "p99_ms": ms(0.99)});
        kinds.insert(kind.name().to_owned(), of);
    }
    let aborts =
        tally.aborts.iter().map(|((kind, errno), count)| json!({"transaction": kind, "errno": errno, "count": count}));
    json!({
        "warehouses": args.warehouses, "terminals": args.terminals, "seconds": args.seconds,
        "tpmC": committed as f64 * 60.0 / args.seconds.max(1) as f64,
        "transactions": kinds,
        "rolled_back": tally.rolled_back,
        "aborts": aborts.collect::<Vec<_>>(),
        "unexpected": tally.unexpected,
        "longest_gap_ms": tally.gap.as_millis() as u64,
    })
}

fn print(report: &Value) {
    let whole = |v: &Value| grouped(v.as_f64().unwrap_or_default() as u64);
    println!(
        "{} new orders a minute (tpmC), {} rolled back as they should",
        whole(&report["tpmC"]),
        report["rolled_back"]
    );
    println!("{:14}{:>12}{:>10}{:>10}{:>10}", "", "committed", "p50 ms", "p95 ms", "p99 ms");
    for (name, of) in report["transactions"].as_object().into_iter().flatten() {
        let ms = |name: &str| format!("{:.2}", of[name].as_f64().unwrap_or_default());
        println!(
            "{name:14}{:>12}{:>10}{:>10}{:>10}",
            whole(&of["committed"]),
            ms("p50_ms"),
            ms("p95_ms"),
            ms("p99_ms")
        );
    }
    for abort in report["aborts"].as_array().into_iter().flatten() {
        let name = abort["transaction"].as_str().unwrap_or_default();
        println!("aborted: {name} by error {}: {}", abort["errno"], abort["count"]);
    }
    println!("longest time of a terminal between two commits: {} ms", report["longest_gap_ms"]);
}

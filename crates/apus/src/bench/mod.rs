//! `apus bench`: load from the native client and over MySQL's protocol, for figures and for proof.
//!
//! - [`kv`]: how many key operations per second a cluster executes, and how long one request takes.
//! - [`bank`]: transfers between accounts while nodes are killed, then a check that nothing acknowledged is missing, nothing
//!   was executed twice and no money came or went.
//! - [`append`]: histories of list transactions for `apus check-history`.
//! - [`tpcc`]: orders, payments and deliveries over MySQL's protocol, against any server, and their consistency conditions.
//! - [`tpch`]: 22 analytical queries over MySQL's protocol, timed and compared with MySQL's answers.
//! - [`probe`]: what clients of the SQL nodes feel while something is broken: gaps, errors, and nothing acknowledged is lost.
//!
//! Load comes from operating system threads, each with its own event loop and its own client (the client never changes
//! thread), each with several requests in flight. Both workloads are closed loops: a worker sends its next request when it has
//! the answer to the last one, so latencies are those of a caller that waits, not of callers that arrive at a fixed rate.
//! Progress goes to standard error, results to standard output.

mod append;
mod bank;
mod cluster;
mod kv;
mod mysql;
mod numbers;
mod probe;
mod progress;
mod rows;
mod target;
mod tpcc;
mod tpch;

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(clap::Subcommand)]
enum Workload {
    /// Insert, read, update and delete rows by key, as many as the cluster takes
    Kv(kv::KvArgs),
    /// Move money between accounts, kill nodes meanwhile, and check that all of it is accounted for
    Bank(bank::BankArgs),
    /// Read and append to lists in transactions, and write down what was seen for `apus check-history`
    Append(append::AppendArgs),
    /// Write at a fixed rate through every SQL node and tell what clients feel when something breaks
    Probe(probe::ProbeArgs),
    /// TPC-C against Apus or any server that speaks MySQL's protocol, with its consistency conditions
    Tpcc(tpcc::TpccArgs),
    /// TPC-H against Apus or any server that speaks MySQL's protocol, with answers compared
    Tpch(tpch::TpchArgs),
}

/// Runs the workload that was asked for; the exit code says whether everything it checked was right.
///
/// # Errors
/// No cluster was found, or the workload could not begin.
pub fn run(args: BenchArgs) -> Result<ExitCode, String> {
    match args.workload {
        Workload::Kv(args) => kv::run(&args),
        Workload::Bank(args) => bank::run(args),
        Workload::Append(args) => append::run(&args),
        Workload::Probe(args) => probe::run(&args),
        Workload::Tpcc(args) => tpcc::run(&args),
        Workload::Tpch(args) => tpch::run(&args),
    }
}

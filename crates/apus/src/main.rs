//! The one binary: every role of the cluster and every tool is a verb.

mod arbitrator;
mod bench;
mod check_history;
mod cluster;
mod data;
mod dev;
mod discover;
mod disk_key;
mod inspect;
mod mgmt;
mod secret;
mod sim;
mod sql;
mod status;
mod tls;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Apus: a shared-nothing, in-memory, synchronously replicated database that speaks MySQL.
#[derive(Parser)]
#[command(name = "apus", version, about, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a whole cluster on this machine, for trying things out; Ctrl-C ends it and leaves nothing behind
    Dev(dev::DevArgs),
    /// Show the nodes of a running cluster
    Status(status::StatusArgs),
    /// Change a running cluster
    Cluster(cluster::ClusterArgs),
    /// Measure a running cluster with the native client
    Bench(bench::BenchArgs),
    /// Judge a history of list transactions (Jepsen's EDN) by an isolation level
    CheckHistory(check_history::CheckHistoryArgs),
    /// Print files of a data directory, without a cluster, and say what is wrong with them
    Inspect(inspect::InspectArgs),
    /// Run whole clusters in the deterministic simulator, with faults
    Sim(sim::SimArgs),
    /// Run a management node
    Mgmt(mgmt::MgmtArgs),
    /// Run a data node
    Data(data::DataArgs),
    /// Run a SQL node
    Sql(sql::SqlArgs),
    /// Make a secret's file for the nodes or the clients of a cluster, or a key for the files of data nodes
    Secret(secret::SecretArgs),
}

// Bugs planted to test the simulator are never in this binary: the question is a constant only without them.
const _: () = assert!(!apus_types::planted::planted(apus_types::planted::Bug::PendingRead));

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Dev(args) => dev::run(args),
        Verb::Status(args) => status::run(&args),
        Verb::Cluster(args) => cluster::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::CheckHistory(args) => check_history::run(&args),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Mgmt(args) => mgmt::run(&args),
        Verb::Data(args) => data::run(args),
        Verb::Sql(args) => sql::run(args),
        Verb::Secret(args) => secret::run(&args),
    };
    result.unwrap_or_else(|message| {
        eprintln!("apus: {message}");
        ExitCode::FAILURE
    })
}

/// Name, version and target as told to peers and written into crash reports.
fn build_id() -> String {
    format!("apus {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// A random number from the operating system, never 0.
fn random_id() -> Result<u64, String> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|e| format!("no random numbers from the operating system: {e}"))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// What a child of `apus dev` does first and last: die with its parent, and say when it is ready.
#[derive(clap::Args, Clone, Default)]
struct ChildArgs {
    /// Write {"host","port","pid"} here when the node accepts connections
    #[arg(long, value_name = "FILE")]
    ready_file: Option<std::path::PathBuf>,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    die_with_parent: bool,
}

impl ChildArgs {
    fn begin(&self) -> Result<(), String> {
        if self.die_with_parent {
            // Not SIGTERM: the last full copy of a group would refuse it.
            let signal = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(signal)
                .map_err(|e| format!("cannot ask to be told of the parent's end: {e}"))?;
        }
        Ok(())
    }
    fn ready(&self, address: std::net::SocketAddr) -> Result<(), String> {
        let Some(path) = &self.ready_file else { return Ok(()) };
        let text = serde_json::json!({
            "host": address.ip().to_string(),
            "port": address.port(),
            "pid": std::process::id(),
        });
        write_whole(path, &text.to_string())
    }
}

/// Makes the names beside `path` durable.
fn sync_names(path: &std::path::Path) -> std::io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    std::fs::File::open(above)?.sync_all()
}

/// Writes a file so that a reader sees all of it or nothing, after a loss of power too.
fn write_whole(path: &std::path::Path, text: &str) -> Result<(), String> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, text)
        .and_then(|()| std::fs::File::open(&temporary)?.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| sync_names(path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}

//! `apus sim`: whole clusters in the deterministic simulator; see `apus_sim::runner`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use apus_sim::runner::{Options, catch_panics, run_one, run_range};

#[derive(clap::Args)]
pub struct SimArgs {
    /// Run this seed and show what it drew and how it went
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "seconds"])]
    seed: Option<u64>,
    /// Faults to use instead of those that the seed drew, as they are printed
    #[arg(long, value_name = "TEXT", requires = "seed")]
    faults: Option<String>,
    /// Settings to use instead of those that the seed drew: "name=value ...", as they are printed
    #[arg(long, value_name = "TEXT", requires = "seed")]
    set: Option<String>,
    /// Run so many seeds
    #[arg(long, value_name = "COUNT")]
    seeds: Option<u64>,
    /// First seed of a range [default: 1; with --seconds alone a fresh one, which is printed]
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Begin no further seed after so many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Seeds at the same time [default: one per core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Run every seed twice and compare the hashes
    #[arg(long)]
    twice: bool,
    /// Runs that may be spent on making a failing seed smaller
    #[arg(long, value_name = "RUNS", default_value_t = 60)]
    shrink: usize,
    /// Where logs of failing seeds are written [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &SimArgs) -> Result<ExitCode, String> {
    let count = match (args.seed, args.seeds, args.seconds) {
        (_, Some(count), _) => count,
        (None, None, Some(_)) => u64::MAX,
        (None, None, None) => return Err("give --seed N, --seeds COUNT or --seconds S".to_owned()),
        (Some(_), None, _) => 1,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        from: args.from.unwrap_or_else(|| if args.seeds.is_some() { 1 } else { fresh() }),
        count,
        limit: args.seconds.map(Duration::from_secs),
        threads: args.threads.map_or(cores, usize::from),
        twice: args.twice,
        shrink_runs: args.shrink,
        directory: args.dir.clone().unwrap_or_else(std::env::temp_dir),
        cpu_seconds,
    };
    catch_panics();
    let is_good = match args.seed {
        Some(seed) => run_one(&options, seed, args.set.as_deref().unwrap_or_default(), args.faults.as_deref())?,
        None => run_range(&options)?,
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a range begins that nobody has run before: no two that begin within one second of time are meant to differ.
fn fresh() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |time| time.as_secs() * 1_000_000)
}

/// CPU time of all threads of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

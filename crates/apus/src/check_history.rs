//! `apus check-history`: judges a history of list transactions, as a client of real processes or the simulator wrote it.

use std::{fs::File, io::BufReader, path::PathBuf, process::ExitCode};

use apus_sim::check::{
    append::{Claim, History},
    history::Reader,
};

#[derive(clap::Args)]
pub struct CheckHistoryArgs {
    /// The history: one event per line in Jepsen's form (EDN, list-append)
    file: PathBuf,
    /// The isolation level that must hold; `strict-` adds real time, `session-` the order of each process
    #[arg(long, default_value = "strict-serializable", value_parser = clap::builder::PossibleValuesParser::new(Claim::NAMES))]
    level: String,
}

/// Prints what was found; fails if that is anything.
///
/// # Errors
/// The file cannot be read, or is no history.
pub fn run(args: &CheckHistoryArgs) -> Result<ExitCode, String> {
    let name = args.file.display();
    let claim = Claim::parse(&args.level).ok_or_else(|| format!("there is no level {}", args.level))?;
    let file = File::open(&args.file).map_err(|e| format!("cannot open {name}: {e}"))?;
    let mut history = History::new();
    for event in Reader::new(BufReader::with_capacity(1 << 20, file)) {
        let event = event.map_err(|e| format!("{name}: {e}"))?;
        history.add(&event).map_err(|e| format!("{name}: {e}"))?;
    }
    let report = history.check(claim);
    print!("{report}");
    println!("{}: {}", args.level, if report.is_good() { "holds" } else { "DOES NOT HOLD" });
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `apus bench tpch`: TPC-H over MySQL's protocol, against Apus or any other server: load, 22 queries, their times and answers.
//!
//! The tables of `apus_tpch` have primary keys and an index on each foreign key ([`schema`]); rows and queries are those of the `tpchgen` crate ([`load`],
//! [`queries`]). Queries run one after the other on one connection. With `--check` each answer is compared with what MySQL 9.7.4 said, recorded for scale 0.01
//! in `tests/reference/tpch-0.01.answers`, or with what another server said in a file of `--record`. The exit code is 0 only if every query was
//! answered in time, and rightly where that is known.

mod answers;
mod load;
mod queries;
mod schema;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::answers::Answers;
use super::{
    cluster::exit_code,
    mysql::{Connection, Failure},
    target::{Server, TargetArgs},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Phase {
    Load,
    Run,
}

#[derive(clap::Args, Clone, Debug)]
pub struct TpchArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Scale factor: 1 is 8.7 million rows
    #[arg(long, default_value_t = 0.01)]
    scale: f64,
    /// Connections that load
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,
    /// What to do, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,run")]
    phases: Vec<Phase>,
    /// Which of the 22 queries; default: all
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=queries::COUNT as u64))]
    queries: Vec<u64>,
    /// How often each query is run; the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// A query is given up after so long
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    limit: u64,
    /// Compare answers with those of a file of --record, or with MySQL's at scale 0.01
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    check: Option<Option<PathBuf>>,
    /// Write the answers to a file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the queries and do nothing
    #[arg(long)]
    print: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// One query: its times in milliseconds, or why there are none, and its rows.
struct Answered {
    number: usize,
    ms: Result<Vec<f64>, String>,
    rows: Vec<String>,
    wrong: Option<String>,
}

/// # Errors
/// The server is not there or does not take the tables, or a file cannot be read or written.
pub fn run(args: &TpchArgs) -> Result<ExitCode, String> {
    let numbers: Vec<usize> = if args.queries.is_empty() {
        (1..=queries::COUNT).collect()
    } else {
        args.queries.iter().map(|&n| n as usize).collect()
    };
    if args.print {
        for &number in &numbers {
            println!("-- {number}\n{};\n", queries::query(number, args.scale).unwrap_or_default());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = wanted(args)?;
    let server = args.target.find()?;
    if args.phases.contains(&Phase::Load) {
        load::load(&server, args.scale, args.connections as usize)?;
    }
    if !args.phases.contains(&Phase::Run) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut all = Vec::new();
    for number in numbers {
        let mut answered = ask(&server, args, number);
        if let (Some(wanted), Ok(_)) = (&wanted, &answered.ms) {
            answered.wrong = match wanted.get(&number) {
                Some(rows) => answers::difference(&answered.rows, rows),
                None => Some("there is no answer to compare with".to_owned()),
            };
        }
        if !args.json {
            println!("{}", line(&answered, wanted.is_some()));
        }
        all.push(answered);
    }
    if let Some(file) = &args.record {
        let answers: Answers = all.iter().map(|a| (a.number, a.rows.clone())).collect();
        std::fs::write(file, answers::write(&answers)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    report(args, &all);
    Ok(exit_code(all.iter().all(|a| a.ms.is_ok() && a.wrong.is_none())))
}

fn wanted(args: &TpchArgs) -> Result<Option<Answers>, String> {
    match &args.check {
        None => Ok(None),
        Some(Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
            Ok(Some(answers::parse(&text)))
        }
        Some(None) if args.scale == answers::RECORDED_SCALE => Ok(Some(answers::recorded())),
        Some(None) => Err(format!("answers are recorded for scale {} only; name a file", answers::RECORDED_SCALE)),
    }
}

fn ask(server: &Server, args: &TpchArgs, number: usize) -> Answered {
    let mut answered = Answered { number, ms: Ok(Vec::new()), rows: Vec::new(), wrong: None };
    let limit = Duration::from_secs(args.limit);
    let text = queries::query(number, args.scale).unwrap_or_default();
    let one = |rows: &mut Vec<String>| -> Result<f64, Failure> {
        let mut connection = server.connect(0, Some(schema::DATABASE), limit)?;
        let id = connection.query("SELECT CONNECTION_ID()")?.pop().and_then(|mut row| row.pop().flatten());
        let begin = Instant::now();
        let found = connection.query(&text).inspect_err(|_| end(server, id.as_deref()))?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        *rows = answers::lines(&found);
        Ok(ms)
    };
    for _ in 0..args.rounds {
        match (one(&mut answered.rows), &mut answered.ms) {
            (Ok(ms), Ok(all)) => all.push(ms),
            (Err(failure), _) => {
                answered.ms = Err(failure.to_string());
                break;
            }
            _ => {}
        }
    }
    answered
}

/// The query was given up: the server shall not go on with it.
fn end(server: &Server, id: Option<&str>) {
    let connection = server.connect(0, None, Duration::from_secs(10));
    if let (Ok(mut connection), Some(id)) = (connection, id) {
        let _: Result<u64, Failure> = Connection::execute(&mut connection, &format!("KILL {id}")); // it may have ended by itself
    }
}

fn median(ms: &[f64]) -> f64 {
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn line(answered: &Answered, is_checked: bool) -> String {
    let Answered { number, rows, wrong, .. } = answered;
    match (&answered.ms, wrong) {
        (Err(reason), _) => format!("Q{number:<2} FAILED: {reason}"),
        (Ok(ms), Some(wrong)) => format!("Q{number:<2} {:>10.1} ms, WRONG: {wrong}", median(ms)),
        (Ok(ms), None) => {
            let is_right = if is_checked { ", right" } else { "" };
            format!("Q{number:<2} {:>10.1} ms, {} rows{is_right}", median(ms), rows.len())
        }
    }
}

fn report(args: &TpchArgs, all: &[Answered]) {
    let times: Vec<f64> = all.iter().filter_map(|a| a.ms.as_ref().ok()).map(|ms| median(ms)).collect();
    let mean = (times.iter().map(|ms| ms.max(0.001).ln()).sum::<f64>() / times.len().max(1) as f64).exp();
    let total: f64 = times.iter().sum();
    if !args.json {
        println!("{} of {} answered, {total:.0} ms altogether, geometric mean {mean:.1} ms", times.len(), all.len());
        return;
    }
    let one = |a: &Answered| -> Value {
        let (ms, error) = match &a.ms {
            Ok(ms) => (Some(median(ms)), None),
            Err(reason) => (None, Some(reason)),
        };
        json!({"query": a.number, "ms": ms, "rows": a.rows.len(), "error": error, "wrong": a.wrong})
    };
    let queries: Vec<Value> = all.iter().map(one).collect();
    println!("{}", json!({"scale": args.scale, "geometric_mean_ms": mean, "total_ms": total, "queries": queries}));
}

//! The table of planted bugs: how many seeds each needs, the median of disjoint ranges, and by what it is found.
//!
//!     cargo run --release -p apus-sim --features planted-bugs --example planted -- [--ranges 5] [--seeds 50] [--from SEED] [--threads T] [BUG...]
//!
//! Range number i begins at SEED + i * 100,000. Ends with 1 if a median is above what a range has.

use std::process::ExitCode;

use apus_sim::{
    planted::{Hunt, guard},
    runner::catch_panics,
};
use apus_types::planted::Bug;

/// From the first seed of a range to that of the next.
const STEP: u64 = 100_000;
/// Where ranges begin if nothing else is said.
const FROM: u64 = 6_500_000;

fn main() -> Result<ExitCode, String> {
    let (mut ranges, mut seeds, mut from, mut threads) = (5, 50, FROM, 1);
    let mut bugs = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "--ranges" => &mut ranges,
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            "--threads" => &mut threads,
            name => {
                bugs.extend(Bug::ALL.iter().filter(|bug| format!("{bug:?}") == name));
                if bugs.last().is_none_or(|bug| format!("{bug:?}") != name) {
                    return Err(format!("there is no bug {name}"));
                }
                continue;
            }
        };
        *value = words.next().and_then(|v| v.parse().ok()).ok_or_else(|| format!("{word}: a number is wanted"))?;
    }
    if bugs.is_empty() {
        bugs.extend(Bug::ALL);
    }
    catch_panics();
    println!("| mistake | median | in each range | found by |\n|---|---|---|---|");
    let from = (0..ranges).map(|i| from + i * STEP).collect();
    let rows =
        Hunt { bugs, from, seeds, threads: threads as usize, counts_assertions: false }.run(|row| println!("{row}"));
    let missed: Vec<Bug> = rows.iter().filter(|row| row.median().is_none()).map(|row| row.bug).collect();
    println!(
        "{} bugs, {} with a median of {seeds} seeds or less; not: {missed:?}",
        rows.len(),
        rows.len() - missed.len()
    );
    for (bug, text) in rows.iter().flat_map(|row| guard(row.bug).iter().map(|text| (row.bug, text))) {
        println!("guard of {bug:?}: `{text}`");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

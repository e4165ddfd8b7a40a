//! Tests of the tests: every planted bug must be found by some seed, within a bound, and the same seed must be good without it.
//!
//!     cargo test -p apus-sim --features planted-bugs --test planted -- --nocapture
//!
//! prints a table: which bug, after how many seeds, by what. PLANTED_ONLY=Name tries one, PLANTED_FROM begins elsewhere.

use apus_sim::{drill::Failure, runner::catch_panics, settings::Settings, workload};
use apus_types::planted::{Bug, arm};

/// Seeds that a bug may need. PLANTED_SEEDS asks for another number.
const SEEDS_MAX: u64 = 300;
/// Columns of the table for what was found.
const FOUND_CHARS: usize = 150;

fn run(seed: u64, bug: Option<Bug>) -> Option<Failure> {
    arm(bug);
    let result = workload::run(&Settings::from_seed(seed));
    arm(None);
    result.err()
}

/// The number of seeds it took, the seed, its workload and what was found.
fn hunt(bug: Bug, from: u64, bound: u64) -> Option<(u64, String)> {
    for seed in from..from + bound {
        let Some(failure) = run(seed, Some(bug)) else { continue };
        if run(seed, None).is_some() {
            continue; // not by this bug
        }
        let line = failure.what.replace('\n', " ");
        let kind = Settings::from_seed(seed).workload.name();
        return Some((seed - from + 1, format!("{kind}: {}", line.chars().take(FOUND_CHARS).collect::<String>())));
    }
    None
}

#[test]
fn every_planted_bug_is_found() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, bound) = (number("PLANTED_FROM").unwrap_or(1), number("PLANTED_SEEDS").unwrap_or(SEEDS_MAX));
    let only = std::env::var("PLANTED_ONLY").ok();
    catch_panics();
    let mut missed = Vec::new();
    println!("| bug | seeds needed | found by |\n|---|---|---|");
    for bug in Bug::ALL.iter().filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)) {
        match hunt(*bug, from, bound) {
            Some((seeds, found)) => println!("| {bug:?} | {seeds} | {found} |"),
            None => {
                println!("| {bug:?} | not within {bound} | |");
                missed.push(*bug);
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

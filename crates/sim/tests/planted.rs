//! Tests of the tests: every planted bug must be found by some seed, within a bound, and the same seed must be good without it.
//!
//!     cargo test -p apus-sim --features planted-bugs --test planted -- --nocapture
//!
//! One range from seed 1 on, in which any broken assertion counts; `examples/planted.rs` prints medians of several. All of them take a quarter of an hour on two slow cores, so a
//! run looks for a third, another one each day; `APUS_PLANTED=0`, `1`, `2` or `all` in the environment says which, and FULL=1 looks for all.

use std::time::{SystemTime, UNIX_EPOCH};

use apus_sim::{planted::Hunt, runner::catch_panics};
use apus_types::planted::Bug;

/// Seeds that a bug may need in one range.
const SEEDS_MAX: u64 = 300;
const PARTS: usize = 3;

/// Those to be looked for, and how to look for the same again.
fn bugs() -> Vec<Bug> {
    let is_full = std::env::var("FULL").is_ok_and(|text| !matches!(text.as_str(), "" | "0"));
    let today =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) as usize % PARTS;
    let part = std::env::var("APUS_PLANTED").unwrap_or(if is_full { "all".to_owned() } else { today.to_string() });
    println!("APUS_PLANTED={part}"); // shown with a failure
    let all = Bug::ALL.iter().copied().enumerate();
    match part.parse::<usize>() {
        Ok(part) => all.filter(|(at, _)| at % PARTS == part % PARTS).map(|(_, bug)| bug).collect(),
        Err(_) => all.map(|(_, bug)| bug).collect(),
    }
}

#[test]
fn every_planted_bug_is_found() {
    catch_panics();
    println!("| mistake | median | in each range | found by |\n|---|---|---|---|");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let hunt = Hunt { bugs: bugs(), from: vec![1], seeds: SEEDS_MAX, threads, counts_assertions: true };
    let rows = hunt.run(|row| println!("{row}"));
    let missed: Vec<Bug> = rows.iter().filter(|row| row.median().is_none()).map(|row| row.bug).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

//! Tests of the tests: every planted bug must be found by some seed, within a bound, and the same seed must be good without it.
//!
//!     cargo test -p apus-sim --features planted-bugs --test planted -- --nocapture
//!
//! One range from seed 1 on, in which any broken assertion counts; `examples/planted.rs` prints medians of several.

use apus_sim::{planted::Hunt, runner::catch_panics};
use apus_types::planted::Bug;

/// Seeds that a bug may need in one range.
const SEEDS_MAX: u64 = 300;

#[test]
fn every_planted_bug_is_found() {
    catch_panics();
    println!("| mistake | median | in each range | found by |\n|---|---|---|---|");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let hunt = Hunt { bugs: Bug::ALL.to_vec(), from: vec![1], seeds: SEEDS_MAX, threads, counts_assertions: true };
    let rows = hunt.run(|row| println!("{row}"));
    let missed: Vec<Bug> = rows.iter().filter(|row| row.median().is_none()).map(|row| row.bug).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

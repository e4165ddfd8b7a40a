//! Unique indexes that are made while one disk is behind, just before power goes everywhere: what the start from the disks finds has an entry for each row.

use apus_sim::{drill::Failure, settings::Settings, workload};

const SEEDS: u64 = 10;
const FILLED_AGAIN: &str = "dict: an index is to be filled again";

/// Rows are written and deleted and indexes made all the time. A save waits for the slow disk, so the start goes back by up to two seconds; the dictionary that it finds is as
/// new as the last mark that was synced.
fn behind(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=register groups=1 replicas=2 files=1 durable=1 churn=1 rate=0 idle=0ms clients=3";
    settings.set(values).expect("values in range");
    let round = |at: u64| format!("50ms disk n2 slow 4000ms, {at}ms dark");
    let rounds: Vec<String> = (0..16).map(|i| round(400 + 173 * i)).collect();
    settings.schedule = rounds.join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn an_index_has_what_comes_back() {
    let mut filled_again = 0;
    let from = std::env::var("SIM_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in from..from + SEEDS {
        println!("seed {seed}"); // shown with a panic
        let settings = behind(seed);
        match workload::run(&settings) {
            Ok(report) => filled_again += report.probes.get(FILLED_AGAIN).copied().unwrap_or(0),
            Err(Failure { what, details, .. }) => panic!("{details}\n{settings}{what}"),
        }
    }
    assert!(filled_again > 0, "no seed has reached `{FILLED_AGAIN}`");
}

//! Unique indexes that are made while one disk is behind, just before power goes everywhere: what the start from the disks finds has an entry for each row.

use apus_sim::settings::Settings;

use crate::common;

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
    assert!(common::probes(SEEDS, behind).contains_key(FILLED_AGAIN), "no seed has reached `{FILLED_AGAIN}`");
}

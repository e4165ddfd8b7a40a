//! Definitions that nobody's disk has yet are lost with the power, and others are made: no statement that was planned by the lost ones is taken for one of the new ones.

use apus_sim::settings::Settings;

use crate::common;

/// Where columns were read by the numbers that they had in a definition that was lost (APUS-701), before versions had eras.
const FOUND: [u64; 2] = [220_810_005, 220_810_024];
const BEGINS: &str = "dict: an era of versions begins";

/// All disks are behind each time that power goes everywhere, so clients know changes of the schema that none of them has.
fn all_behind(number: u64) -> Settings {
    let seed = FOUND.get(number as usize - 1).copied().unwrap_or(number);
    let mut settings = Settings::from_seed(seed);
    let values = "workload=register groups=1 replicas=2 files=1 durable=1 churn=1 rate=0 idle=0ms clients=3";
    settings.set(values).expect("values in range");
    let slow = "50ms disk n1 slow 4000ms, 50ms disk n2 slow 4000ms";
    let rounds: Vec<String> = (0..12).map(|i| format!("{slow}, {}ms dark", 300 + 37 * (seed % 11) + 113 * i)).collect();
    settings.schedule = rounds.join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn a_lost_definition_is_taken_for_no_other() {
    let reached = common::probes(FOUND.len() as u64 + 2, all_behind);
    assert!(reached.contains_key(BEGINS), "no seed has reached `{BEGINS}`");
}

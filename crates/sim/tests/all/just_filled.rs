//! A node that has just been filled is left alone and dies before a global checkpoint ends: its log is not whole, and no newer view has anybody else of its group.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 40;
const STANDS_IN: &str = "qmgr: disks stand in for those of a node that was just filled";

/// The first node of the last group comes back; some time later the other one dies, and some milliseconds after that the first one again.
fn left_alone(seed: u64, groups: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings
        .set(&format!("workload=register groups={groups} replicas=2 files=1 durable=1 spikes=0 rate=0 churn=0"))
        .expect("values in range");
    let alone = 12 + 8 * (seed % 3);
    let (first, second) = (2 * groups - 1, 2 * groups);
    let round = |i: u64| {
        let dies = 320 + 20 * i + 3 * (seed % 7);
        format!(
            "50ms crash n{first} 150ms, {dies}ms crash n{second} 20ms, {}ms crash n{first} 20ms, 1200ms heal",
            dies + alone
        )
    };
    settings.schedule = (0..16).map(round).collect::<Vec<_>>().join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn the_disks_of_those_who_were_full_beside_it_stand_in() {
    for groups in [1, 2] {
        let reached = common::probes(SEEDS, |seed| left_alone(seed, groups));
        assert!(reached.contains_key(STANDS_IN), "{groups} groups: no seed has reached `{STANDS_IN}`");
    }
}

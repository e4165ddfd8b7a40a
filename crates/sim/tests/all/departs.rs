//! SIGTERM of a node whose group has no other full copy, with data on disk: all is saved first, and nothing that was acknowledged is lost, whatever its class.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 8;
const DEPARTS: &str = "qmgr: the last full copy of a group ends with everything on disk";

const REFUSED: &str = "qmgr: an order to end is refused";

/// One of the last group dies, and the other one is told to end while clients write; commits are of class `replicated`, which a loss of the group would cost.
fn told_to_end(seed: u64, groups: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings
        .set(&format!("groups={groups} replicas=2 files=1 durable=1 spikes=0 rate=0 idle=0ms"))
        .expect("values in range");
    let (first, second) = (2 * groups - 1, 2 * groups);
    let round = |i: u64| {
        let told = 100 + 41 * i + 3 * (seed % 13);
        format!("1ms set durability 0, 20ms crash n{second} 2000ms, {told}ms leave n{first} 1500ms, 2200ms heal")
    };
    settings.schedule = (0..10).map(round).collect::<Vec<_>>().join(" / ").parse().expect("a schedule");
    settings
}

/// All are told within some milliseconds, as on a machine that shuts down.
fn all_are_told(seed: u64, groups: u64) -> Settings {
    let mut settings = told_to_end(seed, groups);
    let round = |i: u64| {
        let told = |n: u64| format!("{}us leave n{n} 1500ms", 100_000 + 41_000 * i + (1 + seed * i * n * 613) % 9_000);
        let leaves: Vec<String> = (1..=2 * groups).map(told).collect();
        format!("1ms set durability 0, {}, 2200ms heal", leaves.join(", "))
    };
    settings.schedule = (0..10).map(round).collect::<Vec<_>>().join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn whoever_is_told_to_end_does_with_everything_on_disk() {
    for groups in [1, 2] {
        let reached = common::probes(SEEDS, |seed| all_are_told(seed, groups));
        assert!(reached.contains_key(DEPARTS), "{groups} groups: no seed has reached `{DEPARTS}`");
        assert!(!reached.contains_key(REFUSED), "{groups} groups: {reached:?}");
    }
}

#[test]
fn the_last_copy_of_a_group_saves_all_before_it_ends() {
    for groups in [1, 2] {
        let reached = common::probes(SEEDS, |seed| told_to_end(seed, groups));
        assert!(reached.contains_key(DEPARTS), "{groups} groups: no seed has reached `{DEPARTS}`");
    }
}

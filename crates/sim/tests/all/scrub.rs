//! Files that rot while the node lives: the scrubber finds it, what is in memory is written anew, and the next start from the disks misses nothing.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;
const DAMAGED: &str = "ldm: what is on disk is damaged";
const REPAIRED: &str = "ldm: damage on disk is repaired";

/// First one disk rots for six seconds, and half a minute later the other one; some seconds later all machines lose power. If what was damaged were still needed, no start
/// would have all rows.
fn rotten(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values =
        "workload=register groups=1 replicas=2 files=1 durable=1 checkpoint=16384 scrub=200ms churn=0 rate=0 idle=0ms";
    settings.set(values).expect("values in range");
    let rounds = "100ms disk n1 rots 6000ms, 30000ms heal / 50ms crash n2 300ms, 900ms heal / 100ms disk n2 rots 6000ms, 30000ms heal / 100ms dark / 100ms dark";
    settings.schedule = rounds.parse().expect("a schedule");
    settings
}

#[test]
fn what_rots_is_found_and_written_anew() {
    let probes = common::probes(SEEDS, rotten);
    for name in ["ldm: what is on disk was read again", "ldm: a restart reads checkpoints", DAMAGED, REPAIRED] {
        assert!(probes.contains_key(name), "no seed has reached `{name}`");
    }
    assert_eq!(probes[DAMAGED], probes[REPAIRED]);
}

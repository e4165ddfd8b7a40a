//! Nodes that are started again and again with other master keys, and in half of their starts write in the clear: everything is read, and what is not as it is to be goes with a
//! checkpoint of everything.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;

/// All machines lose power three times, with time for a checkpoint behind each start; then a node dies alone.
fn turned_on_and_off(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values =
        "workload=register groups=1 replicas=2 files=1 durable=1 checkpoint=16384 encrypt=2 churn=0 rate=0 idle=0ms";
    settings.set(values).expect("values in range");
    let rounds = "100ms dark / 2000ms dark / 2000ms dark / 50ms crash n2 300ms, 2000ms heal / 100ms dark";
    settings.schedule = rounds.parse().expect("a schedule");
    settings
}

#[test]
fn what_was_written_under_other_keys_is_read_and_goes() {
    let probes = common::probes(SEEDS, turned_on_and_off);
    for name in [
        "ldm: files are to be encrypted, or not any more",
        "ldm: all files are encrypted, or none",
        "ldm: a restart reads checkpoints",
    ] {
        assert!(probes.contains_key(name), "no seed has reached `{name}`");
    }
}

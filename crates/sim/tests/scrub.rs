//! Files that rot while the node lives: the scrubber finds it, what is in memory is written anew, and the next start from the disks misses nothing.

use std::collections::BTreeMap;

use apus_sim::{drill::Failure, settings::Settings, workload};

const SEEDS: u64 = 12;

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
    let mut probes: BTreeMap<&'static str, u64> = BTreeMap::new();
    let from = std::env::var("SIM_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in from..from + SEEDS {
        println!("seed {seed}"); // shown with a panic
        let settings = rotten(seed);
        match workload::run(&settings) {
            Ok(report) => {
                let times = |name: &str| report.probes.get(name).copied().unwrap_or(0);
                let (found, repaired) =
                    (times("ldm: what is on disk is damaged"), times("ldm: damage on disk is repaired"));
                assert_eq!(found, repaired, "seed {seed}");
                report.probes.iter().for_each(|(name, n)| *probes.entry(name).or_insert(0) += n);
            }
            Err(Failure { what, details, .. }) => panic!("{details}\n{settings}{what}"),
        }
    }
    println!("{probes:?}");
    for name in [
        "ldm: what is on disk was read again",
        "ldm: what is on disk is damaged",
        "ldm: damage on disk is repaired",
        "ldm: a restart reads checkpoints",
    ] {
        assert!(probes.contains_key(name), "no seed has reached `{name}`");
    }
}

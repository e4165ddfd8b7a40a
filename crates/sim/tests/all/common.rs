//! Runs of seeds whose settings a test makes itself.

use std::collections::BTreeMap;

use apus_sim::{drill::Failure, settings::Settings, workload};

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How often the runs of `count` seeds have reached each probe; the first seed that fails ends the test. `SIM_FROM=N` in the environment: from that seed on, not from 1.
pub fn probes(count: u64, settings: impl Fn(u64) -> Settings) -> BTreeMap<&'static str, u64> {
    let mut reached = BTreeMap::new();
    let from = number("SIM_FROM", 1);
    for seed in from..from + count {
        println!("seed {seed}"); // shown with a panic
        let settings = settings(seed);
        match workload::run(&settings) {
            Ok(report) => report.probes.iter().for_each(|(name, n)| *reached.entry(*name).or_insert(0) += n),
            Err(Failure { what, details, .. }) => panic!("{details}\n{settings}{what}"),
        }
    }
    println!("{reached:?}");
    reached
}

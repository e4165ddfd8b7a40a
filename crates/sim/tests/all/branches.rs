//! Branches of distributed transactions are prepared and ended, amid all that may happen to a cluster; `apus_client`'s module `branch` has what they are.

use apus_sim::{settings::Settings, workload};

use crate::common;

const SEEDS: u64 = 12;
const WAITED: &str = "ldm: a batch waits for a claim";

fn prepared(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let workload = ["bank", "unique"][seed as usize % 2];
    settings.set(&format!("workload={workload} branches=1 accounts=6")).expect("values in range");
    settings
}

/// Nodes, clients and, of every second seed, all machines at once die between the preparation of branches and their end.
#[test]
fn what_is_prepared_outlives_nodes_and_losses_of_power() {
    let reached = common::probes(SEEDS, |seed| {
        let mut settings = prepared(seed);
        if seed / 2 % 2 == 0 {
            settings.set("replicas=2 files=1 durable=1 spikes=0 rate=0 idle=0ms").expect("values in range");
            settings.schedule = "150ms dark / 90ms dark / 60ms stop / 40ms dark".parse().expect("a schedule");
        }
        settings
    });
    assert!(reached.get(WAITED).is_some_and(|times| *times > SEEDS), "{reached:?}");
}

/// Without branches nobody meets a claim.
#[test]
fn without_branches_there_are_no_claims() {
    let mut settings = prepared(1);
    settings.set("branches=0").expect("a value in range");
    let report = workload::run(&settings).unwrap_or_else(|failure| panic!("{}", failure.what));
    assert!(report.probes.iter().all(|(name, times)| *name != WAITED || *times == 0), "{:?}", report.probes);
}

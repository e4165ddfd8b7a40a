//! The cluster is started with another number of workers where no process of it is left; `apus_blocks::ldm::reshape` has what becomes of the logs.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;
const CHANGED: &str = "qmgr: a system restart with another number of workers";

/// Losses of power under load and an orderly end; after each of them the operator may change the number, some processes die while they write their logs anew, and
/// the power may fail again meanwhile.
fn changed(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let (change, workload) = (1 + seed * 7919, ["bank", "unique", "register"][seed as usize % 3]);
    settings
        .set(&format!("workload={workload} replicas=2 files=1 durable=1 spikes=0 rate=0 idle=0ms change={change}"))
        .expect("values in range");
    settings.schedule = "150ms dark / 90ms dark / 60ms stop / 200ms dark / 40ms dark".parse().expect("a schedule");
    settings
}

#[test]
fn the_number_of_workers_may_change_where_no_process_is_left() {
    let reached = common::probes(SEEDS, changed);
    assert!(reached.get(CHANGED).is_some_and(|times| *times > SEEDS), "{reached:?}");
}

/// Without a change a start does nothing to the logs.
#[test]
fn it_stays_where_nobody_changes_it() {
    let reached = common::probes(3, |seed| {
        let mut settings = changed(seed);
        settings.set("change=0").expect("a value in range");
        settings
    });
    assert!(!reached.contains_key(CHANGED), "{reached:?}");
}

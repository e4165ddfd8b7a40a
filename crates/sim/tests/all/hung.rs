//! Disks that all hang at once, as those on one array do: the nodes go on, and the cluster loses nobody whom it cannot spare.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 24;
const PROBED: &str = "qmgr: the disk is probed";
const HUNG: &str = "ldm: the disk of a log hangs";

fn hung(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let groups = 1 + seed % 2;
    let values = format!(
        "workload=register groups={groups} replicas=2 files=1 durable=1 mgmts=1 sqls=0 clients=3 churn=0 slice=1 cost=1000"
    );
    settings.set(&values).expect("values in range");
    let hangs = |node: u64| format!("{}ms disk n{node} hangs 3000ms", 20 + seed % 3 * node);
    let all: Vec<String> = (1..=2 * groups).map(hangs).collect();
    let round = format!("{}, 3100ms heal", all.join(", "));
    settings.schedule = format!("{round} / {round}").parse().expect("a schedule");
    settings
}

#[test]
fn disks_that_hang_all_at_once_cost_no_cluster() {
    let reached = common::probes(SEEDS, hung);
    assert!(reached.contains_key(HUNG) && reached.contains_key(PROBED), "no disk hung, or no other was probed");
}

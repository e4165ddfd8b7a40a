//! A data worker that makes no turn for longer than the watchdog waits: its node ends if the others can go on without it, and stays if it has a last full copy.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;
const STUCK: &str = "qmgr: a worker is stuck";

fn stuck(seed: u64, values: &str, round: &str) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings.set(values).expect("values in range");
    settings.schedule = round.parse().expect("a schedule");
    settings
}

#[test]
fn a_node_with_a_stuck_worker_ends_and_the_others_go_on() {
    let reached = common::probes(SEEDS, |seed| {
        let (node, worker) = (1 + seed % 4, seed % 2);
        let round = format!("{}ms stick n{node} {worker} 20000ms, 9000ms hold / 200ms heal", 20 + 7 * seed);
        stuck(seed, "workload=register groups=2 replicas=2 workers=2 mgmts=1 spikes=0 rate=0 churn=0", &round)
    });
    assert!(reached.contains_key(STUCK), "no worker was stuck");
}

/// The other replica is away, and the stuck node has the rows: it stays, and serves when its worker goes on.
#[test]
fn a_last_full_copy_does_not_end_for_a_stuck_worker() {
    let reached = common::probes(SEEDS, |seed| {
        let worker = seed % 2;
        let round = format!("20ms crash n2 14000ms, 4000ms stick n1 {worker} 8000ms, 15000ms heal");
        stuck(
            seed,
            "workload=register groups=1 replicas=2 workers=2 mgmts=1 spikes=0 rate=0 churn=0 durable=0 files=1",
            &round,
        )
    });
    assert!(reached.contains_key(STUCK), "no worker was stuck");
}

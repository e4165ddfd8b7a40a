//! A node whose data workers lag, and not its heartbeats: commits wait for it in the middle of their chains, and nobody else may end for that.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 24;
const LATE: &str = "qmgr: an epoch is late";

fn lagging(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=unique groups=1 replicas=4 workers=1 accounts=60 drift=1000 files=1 mgmts=1 sqls=0 clients=3 tellers=2 cost=2000 link=10ms slice=1 breath=0ms churn=0 idle=0ms durable=0";
    settings.set(values).expect("values in range");
    let node = 1 + seed % 4;
    let lasts = 9_000 + 300 * seed;
    let round = format!("23ms set eject_slow_ms 20, 24ms lag n{node} 50000 {lasts}ms, 17000ms heal");
    settings.schedule = round.parse().expect("a schedule");
    settings
}

#[test]
fn who_waits_for_a_slow_node_does_not_end_in_its_place() {
    assert!(common::probes(SEEDS, lagging).contains_key(LATE), "no epoch was late");
}

//! Indexes that are dropped while presidents die: a drop that is undone has changed nothing, also for what was written meanwhile.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;
const UNDONE: &str = "dict: a new president undoes a schema transaction";

/// One member hears half a second late of what is to be prepared. All others have prepared it, and rows are written, when the president dies. The client that
/// asked for it ends, too, or it would ask again.
fn half_prepared(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=register groups=1 replicas=3 files=0 durable=0 churn=1 rate=0 idle=0ms clients=3";
    settings.set(values).expect("values in range");
    let clients = |at: u64| format!("{at}ms client 0, {at}ms client 1, {at}ms client 2");
    let round = |i: u64| {
        let (begin, first, second) = (1_000 + 977 * i, clients(140 + 7 * i), clients(320 + 5 * i));
        format!("{begin}us doom p dict.drop_prepare {} 150ms 20ms, {first}, {second}, 600ms heal", i % 5)
    };
    let rounds: Vec<String> = (0..16).map(round).collect();
    settings.schedule = rounds.join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn what_is_written_while_a_drop_is_prepared_has_its_entries() {
    let undone = common::probes(SEEDS, half_prepared).remove(UNDONE);
    assert!(undone > Some(SEEDS), "{undone:?} reached `{UNDONE}`");
}

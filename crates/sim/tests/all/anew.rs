//! A node that dies again just when it has been let in: the view that takes the next process in its place is late, for the president's disk is slow.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;

/// Node 3 of three is let in by a view that waits for the disk, and is another process by then.
fn again(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=append groups=1 replicas=3 mgmts=1 sqls=0 clients=1 tellers=1 files=1 durable=0 link=300us ring=20us spikes=0 churn=0";
    settings.set(values).expect("values in range");
    let round = |i: u64| {
        let dies = 420 + 61 * i + 7 * seed;
        format!("20ms crash n3 200ms, 150ms disk n1 slow 1500ms, {dies}ms crash n3 1ms, 1700ms heal")
    };
    settings.schedule = (0..8).map(round).collect::<Vec<_>>().join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn the_next_process_is_not_held_for_silent_since_the_one_before_it_died() {
    common::probes(SEEDS, again);
}

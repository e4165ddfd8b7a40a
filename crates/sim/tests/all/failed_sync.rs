//! A disk whose syncs fail for a while, and then the power of all machines: what the next process read from the system's memory has to be on the disk before it goes on
//! behind it. And one that is lost while commits wait for it: the others are not asked without end.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 8;
const WRITTEN: &str = "ldm: the end of a log is written anew";
const DAMAGED: &str = "ldm: a log is damaged";
const REFUSED: &str = "dih: a member cannot write its log, nothing becomes restorable";

fn failing(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=bank groups=1 replicas=2 workers=1 files=1 durable=1 churn=0 rate=0 idle=0ms clients=3 mgmts=1 sqls=0 cost=0";
    settings.set(values).expect("values in range");
    let round = |i: u64| {
        let (node, begin) = (1 + i % 2, 40_000 + 7_919 * (seed + i));
        format!("{begin}us disk n{node} fails 300ms, 3500ms heal / 200ms client 0, {}ms dark", 300 + 31 * i)
    };
    let rounds: Vec<String> = (0..6).map(round).collect();
    settings.schedule = rounds.join(" / ").parse().expect("a schedule");
    settings
}

#[test]
fn what_a_failed_sync_has_lost_is_written_anew() {
    let reached = common::probes(SEEDS, failing);
    assert!(reached.contains_key(WRITTEN), "no log was written anew");
    assert_eq!(reached.get(DAMAGED), None, "a block that was read was never on the disk");
}

/// Commits wait for disks of which one hangs, and its node cannot be spared: it is the last full copy.
fn hung(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=bank groups=2 replicas=1 workers=1 files=1 durable=1 churn=0 rate=0 idle=0ms clients=3 mgmts=1 sqls=0 cost=0";
    settings.set(values).expect("values in range");
    let schedule = format!("{}ms disk n{} hangs 4000ms, 4100ms heal", 40 + seed, 1 + seed % 2);
    settings.schedule = schedule.parse().expect("a schedule");
    settings
}

#[test]
fn a_refused_save_is_not_repeated_at_once() {
    let refused = common::probes(SEEDS, hung).get(REFUSED).copied().unwrap_or(0);
    // The disk is lost after 2 s; a save every RESEND_NS (50 ms) from then on.
    assert!((SEEDS..=SEEDS * 60).contains(&refused), "{refused} refused saves in {SEEDS} rounds");
}

//! The bank on simulated clusters: money, records, locks and replicas through crashes and partitions.

use apus_sim::{
    drill::Failure,
    workload::{
        self,
        bank::{Report, Settings, run},
    },
};

use crate::common;

/// Seeds of the default run; SIM_SEEDS asks for another number, SIM_FROM for another first one.
const SEEDS: u64 = 40;

fn good(settings: &Settings) -> Report {
    passed(settings, run(settings))
}

/// With the workload that the settings name.
fn good_as_set(settings: &Settings) -> Report {
    passed(settings, workload::run(settings))
}

fn passed(settings: &Settings, outcome: Result<Report, Failure>) -> Report {
    match outcome {
        Ok(report) => report,
        Err(failure) => panic!("{}\n{settings}{}", failure.details, failure.what),
    }
}

#[test]
fn money_survives_node_failures() {
    let from = common::number("SIM_FROM", 1);
    let (mut take_overs, mut transfers, mut snapshots) = (0, 0, 0);
    for seed in from..from + common::number("SIM_SEEDS", SEEDS) {
        println!("seed {seed}"); // shown with a panic
        let report = good(&Settings::from_seed(seed));
        take_overs += report.probes.get("tc: take-over commits").copied().unwrap_or(0);
        transfers += report.transfers;
        snapshots += report.snapshots;
    }
    assert!(transfers > 0, "nothing was transferred");
    assert!(snapshots > 0, "no snapshot was read");
    assert!(take_overs > 0, "no seed interrupted a commit");
}

#[test]
fn the_seed_decides_the_run() {
    let mut hashes = Vec::new();
    for seed in 1..=4 {
        let settings = Settings::from_seed(seed);
        let report = good(&settings);
        assert_eq!(report, good(&settings), "seed {seed} ran twice");
        hashes.push(report.hash);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
}

fn scripted(seed: u64, values: &str, faults: &str) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings.set(values).expect("values in range");
    settings.schedule = faults.parse().expect("a schedule");
    settings
}

/// The brief form of every failure: each node in turn, for one and two workers and two and three replicas.
#[test]
fn each_node_dies_once() {
    for (replicas, workers) in [(2, 1), (2, 2), (3, 1), (3, 2)] {
        let crash = |node| format!("60ms crash n{node} 30ms, 95ms core");
        let rounds: Vec<String> = (1..=replicas).map(crash).collect();
        let values = format!("groups=1 replicas={replicas} workers={workers}");
        assert!(good(&scripted(99, &values, &rounds.join(" / "))).transfers > 10);
    }
}

/// Two of four nodes lose only each other: the senior is believed, the rest goes on with it.
#[test]
fn one_lost_link_does_not_end_the_cluster() {
    good(&scripted(273, "groups=2 replicas=2 workers=2", "163ms cut n1 n2 1310ms, 1500ms heal"));
}

/// Every kind of fault once, each alone.
#[test]
fn each_kind_of_fault_is_lived_through() {
    for fault in [
        "crash p 40ms",
        "crash m1 40ms",
        "pause n2 900ms",
        "pause n1 3000ms",
        "slow n1 200 900ms",
        "cut n1 n2 40ms",
        "mute n1 n2 900ms",
        "lose n2 n1 900ms",
        "split n1 900ms",
        "hush n2+n3 900ms",
        "bridge n1 n2 900ms",
        "stall all 40ms",
        "flap n1 n3 90ms 5",
        "reset n1 n2",
        "reset n2 n3 1",
        "client 0",
        "arm p qmgr.drop_view_commit 0",
    ] {
        println!("{fault}"); // shown with a panic
        let report = good(&scripted(5, "groups=1 replicas=3 workers=2", &format!("60ms {fault}, 1000ms core")));
        assert_eq!(report.faults.values().sum::<u64>(), 1);
    }
}

/// Both nodes of a group are removed and join again, one after the other: who joined knows no commit from before, and says so.
#[test]
fn a_node_that_joined_does_not_deny_what_was_committed_before() {
    let values = "workload=set groups=1 replicas=2 workers=1 fixed=1";
    good_as_set(&scripted(
        5060,
        values,
        "233050us split n2 1ms, 2096685us heal / 150829us split n1 1ms, 854711us heal",
    ));
}

/// An abort went past a node that became the primary, and not to the one behind it: the row stays locked until that one has it, too.
#[test]
fn who_becomes_primary_in_the_midst_of_an_abort_keeps_the_lock() {
    let hush = "236553us hush n1+n3+m1 252ms, 1250884us heal";
    good_as_set(&scripted(102_156, "fixed=1", hush));
}

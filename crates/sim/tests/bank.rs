//! The bank on simulated clusters: money, records, locks and replicas through crashes and partitions.

use apus_sim::workload::bank::{Fault, Report, Settings, run};
use apus_types::NodeId;

/// Seeds of the default run; SIM_SEEDS asks for another number, SIM_FROM for another first one.
const SEEDS: u64 = 100;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn good(settings: &Settings) -> Report {
    match run(settings) {
        Ok(report) => report,
        Err(failure) => panic!("{settings:?}: {}\n{}", failure.what, failure.details),
    }
}

#[test]
fn money_survives_node_failures() {
    let from = number("SIM_FROM", 1);
    let (mut take_overs, mut transfers) = (0, 0);
    for seed in from..from + number("SIM_SEEDS", SEEDS) {
        println!("seed {seed}"); // shown with a panic
        let report = good(&Settings::from_seed(seed));
        take_overs += report.probes.get("tc: take-over commits").copied().unwrap_or(0);
        transfers += report.transfers;
    }
    assert!(transfers > 0, "nothing was transferred");
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

/// The brief form of every failure: each node in turn, for one and two workers and two and three replicas.
#[test]
fn each_node_dies_once() {
    for (replicas, workers) in [(2, 1), (2, 2), (3, 1), (3, 2)] {
        let crash = |node| (60_000_000, Fault::Crash(NodeId(node)), 30_000_000);
        let rounds = (1..=u16::from(replicas)).map(crash).collect();
        let settings = Settings { groups: 1, replicas, workers, rounds, ..Settings::from_seed(99) };
        assert!(good(&settings).transfers > 10);
    }
}

/// Two of four nodes lose only each other: the senior is believed, the rest goes on with it.
#[test]
fn one_lost_link_does_not_end_the_cluster() {
    let rounds = vec![(163_000_000, Fault::Part(NodeId(1), NodeId(2), 1_310_000_000), 8_900_000)];
    good(&Settings { groups: 2, replicas: 2, workers: 2, rounds, ..Settings::from_seed(273) });
}

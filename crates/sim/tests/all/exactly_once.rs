//! A statement runs once, however late the first copy of it is read: clients lose links with requests on them, to nodes that live.

use apus_sim::{
    drill::{Failure, Report},
    settings::Settings,
    workload::{self, Kind},
};

/// Clients lose link after link; what was on them is read up to 150 ms later.
fn schedule(seed: u64, clients: u64, nodes: u64) -> String {
    let mut at = 50;
    let mut faults = Vec::new();
    for i in 0..12 {
        let (client, node) = (i % clients, 1 + (i + seed) % nodes);
        faults.push(format!("{at}ms unlink {client} n{node} {}ms {}ms", 1 + i % 7, 15 + 23 * (i % 6)));
        at += 60;
    }
    format!("{}, {}ms heal", faults.join(", "), at + 200)
}

fn settings(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings.set("groups=1 replicas=2 clients=2 tellers=4 workers=2 churn=0").expect("settings");
    settings.workload = [Kind::Bank, Kind::Register, Kind::Unique, Kind::Set][seed as usize % 4];
    settings.schedule = schedule(seed, 2, 2).parse().expect("a schedule");
    settings
}

fn run(seed: u64) -> Result<Report, Failure> {
    workload::run(&settings(seed))
}

#[test]
fn what_was_on_a_lost_link_does_not_run_after_the_answer() {
    const LATE: &str = "tc: batch came after its client was told that it did not run";
    let mut late = 0;
    for seed in 1..=24 {
        match run(seed) {
            Ok(report) => late += report.probes.get(LATE).copied().unwrap_or(0),
            Err(failure) => panic!("{}\n{}{}", failure.details, settings(seed), failure.what),
        }
    }
    assert!(late > 0, "no batch came late: the schedule does not show what it is for");
}

/// The same schedule finds a coordinator that forgets what it told.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_forgotten_tombstone_is_found() {
    use apus_types::planted::{Bug, arm};
    apus_sim::runner::catch_panics();
    for bug in [Bug::TombstoneIgnored, Bug::TombstoneTooShort, Bug::OutcomeAskedElsewhere] {
        arm(Some(bug));
        let found: Vec<String> = (1..=24).filter_map(|seed| run(seed).err()).map(|failure| failure.what).collect();
        arm(None);
        println!("{bug:?}: {} of 24, {found:?}", found.len());
        assert!(!found.is_empty(), "{bug:?}");
    }
}

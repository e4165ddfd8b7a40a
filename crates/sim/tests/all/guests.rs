//! A guest stands still with its clocks until the others have gone on without it, and then goes on as if nothing had happened. It answers what it
//! was asked meanwhile by its old view. A client that knows a newer one takes no such answer.

use apus_sim::{
    drill::{Failure, Report},
    settings::Settings,
    workload::{self, Kind},
};

/// Client 0 hears late that the node is removed, and asks it until then; it has heard of it when the node goes on.
fn schedule(seed: u64) -> String {
    let round = |node: u64| {
        let (heard, other) = (900 + 37 * (seed % 20), 3 - node);
        format!("5ms freeze n{node} {}ms, 20ms mute n{other} c0 {heard}ms, {}ms heal", heard + 100, heard + 200)
    };
    format!("{} / {} / {}", round(1), round(2), round(1))
}

fn settings(seed: u64) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "groups=1 replicas=2 clients=3 tellers=4 workers=2 mgmts=1 accounts=4 churn=0 idle=900ms pause=4ms";
    settings.set(values).expect("settings");
    settings.set("link=300us ring=20us spikes=0 spike=0us rate=0").expect("settings");
    settings.workload = Kind::Register;
    settings.schedule = schedule(seed).parse().expect("a schedule");
    settings
}

fn run(seed: u64) -> Result<Report, Failure> {
    workload::run(&settings(seed))
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn who_knows_of_a_newer_view_takes_no_answer_by_an_older_one() {
    for seed in 1..=24 {
        if let Err(failure) = run(seed) {
            panic!("{}\n{}{}", failure.details, settings(seed), failure.what);
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_client_that_takes_it_is_found() {
    use apus_types::planted::{Bug, arm};
    apus_sim::runner::catch_panics();
    arm(Some(Bug::AnswerOfRemoved));
    let found: Vec<String> = (1..=24).filter_map(|seed| run(seed).err()).map(|failure| failure.what).collect();
    arm(None);
    println!("{} of 24, {found:?}", found.len());
    assert!(!found.is_empty());
}

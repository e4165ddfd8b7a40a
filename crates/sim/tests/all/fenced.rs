//! Who goes on after a loss of power, and without whom: those that the arbitrator let go on, from their disks; a frozen side that has outlived all others, with its rows.
//! The histories are judged as in any run: of class `disk` nothing is lost, and no two sides go on.

use apus_sim::settings::Settings;

use crate::common;

const SEEDS: u64 = 12;
const FENCED: &str = "qmgr: a system restart without those that the arbitrator has fenced";
const OUTLIVED: &str = "qmgr: a side that has outlived all others goes on";
const GAVE_WAY: &str = "qmgr: a disk gives way to those that have outlived it";
const RESTART: &str = "qmgr: a system restart begins";

fn settings(seed: u64, groups: u64, replicas: u64, schedule: &str) -> Settings {
    let mut settings = Settings::from_seed(seed);
    let values = "workload=register files=1 durable=1 spikes=0 rate=0 churn=0 mgmts=1 sqls=0 cost=0 link=300us ring=20us change=0 clients=2";
    settings.set(&format!("{values} groups={groups} replicas={replicas}")).expect("values in range");
    settings.schedule = schedule.parse().expect("a schedule");
    settings
}
/// One node of each group, and the other ones.
fn halves(groups: u64) -> (Vec<u64>, Vec<u64>) {
    ((0..groups).map(|g| 2 * g + 1).collect(), (0..groups).map(|g| 2 * g + 2).collect())
}
fn each(nodes: &[u64], what: impl Fn(u64) -> String) -> String {
    nodes.iter().map(|n| what(*n)).collect::<Vec<_>>().join(", ")
}
fn side(nodes: &[u64]) -> String {
    let names: Vec<String> = nodes.iter().map(|n| format!("n{n}")).collect();
    format!("{}+m1", names.join("+"))
}

/// Half goes on by the arbitrator's word, and its disks hang from about then on: the view without the others is on none of them when all lose power. The others stay away for long.
fn half_stays_away(seed: u64, groups: u64) -> Settings {
    let (here, there) = halves(groups);
    let round = |i: u64| {
        let hangs = each(&here, |n| format!("{}us disk n{n} hangs 360ms", 144_000 + 1_000 * (seed % 12) + 330 * i));
        let back = each(&here, |n| format!("500ms power n{n} 40ms"));
        let away = each(&there, |n| format!("500ms power n{n} 4500ms"));
        format!("60ms split {} 1000ms, {hangs}, {back}, {away}, 5200ms heal", side(&here))
    };
    settings(seed, groups, 2, &[round(0), round(1), round(2)].join(" / "))
}

/// The same, and the others are back before those that went on: they have to wait.
fn half_comes_first(seed: u64, groups: u64) -> Settings {
    let (here, there) = halves(groups);
    let dies = 100 + 50 * (seed % 20);
    let late = each(&here, |n| format!("{dies}ms power n{n} 2500ms"));
    let early = each(&there, |n| format!("{dies}ms power n{n} 40ms"));
    let round = format!("60ms split {} 1200ms, {late}, {early}, {}ms heal", side(&here), dies + 2_000);
    settings(seed, groups, 2, &[round.clone(), round.clone(), round].join(" / "))
}

/// The others have come back meanwhile, so the yes is from an older view than the newest; then all lose power, and one half is away for long.
fn half_is_away_later(seed: u64, groups: u64) -> Settings {
    let (here, there) = halves(groups);
    let parted = format!("60ms split {} 300ms, 500ms heal", side(&here));
    let dies = 40 + 31 * (seed % 13);
    let back = each(&here, |n| format!("{dies}ms power n{n} 40ms"));
    let away = each(&there, |n| format!("{dies}ms power n{n} 2500ms"));
    let dark = format!("{back}, {away}, {}ms heal", dies + 2_300);
    settings(seed, groups, 2, &format!("{parted} / {dark}"))
}

/// All but one of each group lose power; those that are left are too few, or half without an arbitrator.
fn few_are_left(seed: u64, groups: u64, replicas: u64) -> Settings {
    let lost: Vec<u64> = (1..=groups * replicas).filter(|n| !(n - 1).is_multiple_of(replicas)).collect();
    let power = |n: u64| format!("50ms power n{n} {}ms", 100 + 150 * n + 13 * (seed % 7));
    let round = |i: u64| {
        let arbitrator = if i == 1 { "40ms crash m1 400ms, " } else { "" };
        format!("{arbitrator}{}, {}ms heal", each(&lost, power), 400 + 150 * groups * replicas)
    };
    settings(seed, groups, replicas, &[round(0), round(1), round(2)].join(" / "))
}

/// Those that the arbitrator let go on lose power like that, and come back when the network is whole.
fn those_let_go_on_die(seed: u64, groups: u64) -> Settings {
    let (here, _) = halves(groups);
    let round = |i: u64| {
        let hangs = each(&here, |n| format!("{}us disk n{n} hangs 360ms", 144_000 + 1_000 * (seed % 12) + 330 * i));
        let power = each(&here, |n| format!("500ms power n{n} 1500ms"));
        format!("60ms split {} 800ms, {hangs}, {power}, 2300ms heal", side(&here))
    };
    settings(seed, groups, 2, &[round(0), round(1), round(2)].join(" / "))
}

fn must_reach(reached: &std::collections::BTreeMap<&'static str, u64>, probe: &str) {
    assert!(reached.contains_key(probe), "no seed has reached `{probe}`: {reached:?}");
}

#[test]
fn those_that_were_let_go_on_start_without_those_that_were_fenced() {
    for groups in [1, 2] {
        must_reach(&common::probes(SEEDS, |seed| half_stays_away(seed, groups)), FENCED);
    }
}

#[test]
fn those_that_were_fenced_wait_for_the_others() {
    for groups in [1, 2] {
        let reached = common::probes(SEEDS, |seed| half_comes_first(seed, groups));
        must_reach(&reached, RESTART);
    }
}

#[test]
fn whoever_came_back_is_waited_for() {
    for groups in [1, 2] {
        let reached = common::probes(SEEDS, |seed| half_is_away_later(seed, groups));
        must_reach(&reached, RESTART);
        assert!(!reached.contains_key(FENCED), "the yes was from an older view: {reached:?}");
    }
}

#[test]
fn few_that_are_left_go_on_when_all_others_have_begun_anew() {
    for (groups, replicas) in [(1, 3), (1, 4), (2, 3)] {
        let reached = common::probes(SEEDS / 2, |seed| few_are_left(seed, groups, replicas));
        must_reach(&reached, OUTLIVED);
        must_reach(&reached, GAVE_WAY);
    }
}

/// Mostly a disk has the view in which they went on; where none has, those that were fenced go on with their rows (`qmgr/tests_outlive.rs` has that for certain).
#[test]
fn those_that_were_let_go_on_and_those_that_were_fenced_find_out_who_goes_on() {
    for groups in [1, 2] {
        must_reach(&common::probes(SEEDS, |seed| those_let_go_on_die(seed, groups)), RESTART);
    }
}

/// A node is filled, and left alone the moment it is a full member; it goes on, and dies. Who was full before comes back first, and waits.
fn just_promoted(seed: u64) -> Settings {
    let round = |i: u64| {
        let dies = 200 + 11 * i + seed % 11;
        format!(
            "50ms crash n2 100ms, {dies}ms power n1 1200ms, {}ms power n2 1500ms, {}ms heal",
            dies + 900,
            dies + 1_900
        )
    };
    settings(seed, 1, 2, &(0..10).map(round).collect::<Vec<_>>().join(" / "))
}

#[test]
fn whoever_was_promoted_last_is_waited_for() {
    let reached = common::probes(SEEDS, just_promoted);
    must_reach(&reached, RESTART);
}

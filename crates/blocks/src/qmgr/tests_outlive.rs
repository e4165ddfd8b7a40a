//! Who goes on after a loss of power, and without whom, in the harness: a side that has outlived all others, and disks that the arbitrator let go on.

use std::{borrow::Cow, collections::BTreeMap};

use apus_signal::mgmt::NodeSummary;
use apus_types::NodeId;

use super::{
    SYNCED_VIEW_FILE, VIEW_FILE,
    keep::Kept,
    tests::{details, members},
    tests_freeze::{is_whole, serves},
    tests_resume::status,
};
use crate::harness::{Cluster, MGMT};

type Files = BTreeMap<NodeId, BTreeMap<Cow<'static, str>, Vec<u8>>>;

fn started(groups: u16, replicas: u16) -> Cluster {
    let mut c = Cluster::new(groups.into(), replicas.into());
    c.start_lasting_mgmt(MGMT);
    (c.keeps_views, c.keeps_logs) = (true, true);
    let nodes = groups * replicas;
    (1..=nodes).for_each(|n| c.start_node(n));
    assert!(c.run_until(3_000, |c| is_whole(c, nodes) && (1..=nodes).all(|n| serves(c, n))), "{}", details(&c));
    c.run_ms(1_100);
    c
}
/// The machine goes, and its disk has what it had then.
fn lose_power(c: &mut Cluster, id: u16, disks: &Files) {
    let node = NodeId(id);
    c.kill(id);
    *c.boots.entry(node).or_default() += 1;
    c.files.insert(node, disks.get(&node).cloned().unwrap_or_default());
}
fn part(c: &mut Cluster, here: &[u16], there: &[u16]) {
    here.iter().for_each(|a| there.iter().for_each(|b| c.separate(*a, *b)));
}
fn has_said(c: &Cluster, id: u16, text: &str) -> bool {
    c.processes[&NodeId(id)].log.iter().any(|line| line.contains(text))
}
fn told(c: &mut Cluster, id: u16) -> NodeSummary {
    status(c).nodes.into_iter().find(|n| n.id == u32::from(id)).expect("it is configured")
}
fn lineage(c: &Cluster, id: u16) -> u64 {
    c.view(id).map_or(0, |v| v.lineage)
}

/// A minority keeps its rows: when all others have begun anew it goes on, and they join it.
#[test]
fn a_side_that_has_outlived_all_others_goes_on() {
    for left in [1u16, 2, 3] {
        let mut c = started(1, 3);
        let (disks, before) = (c.files.clone(), lineage(&c, left));
        let lost: Vec<u16> = (1..=3).filter(|n| *n != left).collect();
        lost.iter().for_each(|n| lose_power(&mut c, *n, &disks));
        c.run_ms(500);
        c.start_node(lost[0]);
        c.run_ms(5_000);
        assert!(!serves(&c, left) && c.stopped(left).is_none(), "data node {} may live\n{}", lost[1], details(&c));
        let account = told(&mut c, left).frozen;
        assert!(account.contains(&format!("data node {} began anew", lost[0])), "{account}");
        c.start_node(lost[1]);
        assert!(c.run_until(5_000, |c| serves(c, left)), "{}", details(&c));
        assert!(lineage(&c, left) > before && has_said(&c, left, "goes on without data nodes"), "{}", details(&c));
        assert!(c.run_until(5_000, |c| is_whole(c, 3)), "{}", details(&c));
        assert!(lost.iter().all(|n| has_said(&c, *n, "gives way to data node")), "{}", details(&c));
    }
}

/// The arbitrator has let the others go on, and they went on for too short a time to know it after the loss of power.
#[test]
fn a_side_that_was_fenced_goes_on_when_all_others_have_begun_anew() {
    for (groups, replicas, here, there) in [(1, 2, [1].as_slice(), [2].as_slice()), (2, 2, &[1, 3], &[2, 4])] {
        let mut c = started(groups, replicas);
        let disks = c.files.clone();
        there.iter().for_each(|n| c.separate(*n, MGMT.0));
        part(&mut c, here, there);
        assert!(c.run_until(500, |c| here.iter().all(|n| members(c, *n) == here)), "{}", details(&c));
        here.iter().for_each(|n| lose_power(&mut c, *n, &disks));
        c.cut.clear();
        c.start_lasting_mgmt(MGMT);
        c.run_ms(1_000);
        here.iter().for_each(|n| c.start_node(*n));
        assert!(c.run_until(6_000, |c| there.iter().all(|n| serves(c, *n))), "{}", details(&c));
        assert!(c.run_until(6_000, |c| is_whole(c, groups * replicas)), "{}", details(&c));
    }
}

/// One of those that were let go on lives, where the others do not hear it.
#[test]
fn nobody_goes_on_beside_a_process_that_may_live() {
    let mut c = started(1, 4);
    let disks = c.files.clone();
    [3, 4].iter().for_each(|n| c.separate(*n, MGMT.0));
    part(&mut c, &[1, 2], &[3, 4]);
    assert!(c.run_until(500, |c| members(c, 2) == [1, 2]), "{}", details(&c));
    lose_power(&mut c, 1, &disks);
    assert!(c.run_until(500, |c| members(c, 2) == [2]), "{}", details(&c));
    [3, 4].iter().for_each(|n| _ = c.cut.remove(&(NodeId(1), NodeId(*n))));
    c.separate(1, 2);
    c.start_node(1);
    c.run_ms(10_000);
    assert!(serves(&c, 2) && [3, 4].iter().all(|n| !serves(&c, *n) && c.stopped(*n).is_none()), "{}", details(&c));
}

/// A later view is on one of the disks: whoever has it may have acknowledged something.
#[test]
fn a_disk_with_a_later_view_gives_way_to_nobody() {
    let mut c = started(1, 2);
    c.separate(2, MGMT.0);
    part(&mut c, &[1], &[2]);
    assert!(c.run_until(500, |c| members(c, 1) == [1]), "{}", details(&c));
    c.run_ms(100);
    let disks = c.files.clone();
    lose_power(&mut c, 1, &disks);
    c.kill(MGMT.0);
    c.run_ms(1_000);
    c.cut.clear();
    c.start_node(1);
    c.run_ms(20_000);
    assert!(!serves(&c, 2) && c.stopped(2).is_none(), "{}", details(&c));
    c.start_lasting_mgmt(MGMT);
    assert!(c.run_until(10_000, |c| c.stopped(2).is_some()), "its disk is enough\n{}", details(&c));
    c.rejoin_node(2);
    assert!(c.run_until(5_000, |c| is_whole(c, 2)), "{}", details(&c));
}

/// All lose power just after half of them was let go on; the other half does not come back.
fn half_comes_back(lasting: bool, later: bool) -> Cluster {
    let mut c = Cluster::new(2, 2);
    let start_mgmt = |c: &mut Cluster| if lasting { c.start_lasting_mgmt(MGMT) } else { c.start_mgmt(MGMT) };
    start_mgmt(&mut c);
    (c.keeps_views, c.keeps_logs) = (true, true);
    (1..=4).for_each(|n| c.start_node(n));
    assert!(c.run_until(3_000, |c| is_whole(c, 4)), "{}", details(&c));
    c.run_ms(1_100);
    let mut disks = c.files.clone();
    [2, 4].iter().for_each(|n| c.separate(*n, MGMT.0));
    part(&mut c, &[1, 3], &[2, 4]);
    assert!(c.run_until(500, |c| members(c, 1) == [1, 3]), "{}", details(&c));
    if later {
        c.cut.clear();
        [2, 4]
            .iter()
            .filter(|n| c.stopped(**n).is_some())
            .copied()
            .collect::<Vec<u16>>()
            .into_iter()
            .for_each(|n| c.rejoin_node(n));
        c.run_ms(2_000);
        [2, 4]
            .iter()
            .filter(|n| c.stopped(**n).is_some())
            .copied()
            .collect::<Vec<u16>>()
            .into_iter()
            .for_each(|n| c.rejoin_node(n));
        assert!(c.run_until(5_000, |c| is_whole(c, 4)), "{}", details(&c));
        c.run_ms(1_100);
        disks = c.files.clone();
    }
    (1..=4).for_each(|n| lose_power(&mut c, n, &disks));
    c.cut.clear();
    c.kill(MGMT.0);
    c.run_ms(10);
    start_mgmt(&mut c);
    [1, 3].iter().for_each(|n| c.start_node(*n));
    c
}

#[test]
fn those_that_the_arbitrator_let_go_on_start_from_their_disks() {
    let mut c = half_comes_back(true, false);
    let is_member = |c: &Cluster, n: u16| c.generation(n) > 0 && serves(c, n);
    assert!(c.run_until(5_000, |c| [1, 3].iter().all(|n| is_member(c, *n))), "{}", details(&c));
    assert!(
        has_said(&c, 1, "begins from the disks without data nodes 2, 4, fenced by management node 1"),
        "{}",
        details(&c)
    );
    c.run_ms(1_100);
    let text = told(&mut c, 1).progress;
    assert!(text.contains("without data nodes 2, 4"), "{text}");
    [2, 4].iter().for_each(|n| c.start_node(*n));
    assert!(c.run_until(5_000, |c| is_whole(c, 4)), "{}", details(&c));
    c.run_ms(1_100);
    assert_eq!(told(&mut c, 1).progress, "", "they are back");
}

#[test]
fn all_others_wait_for_whoever_is_missing() {
    for (lasting, later) in [(false, false), (true, true)] {
        let mut c = half_comes_back(lasting, later);
        c.run_ms(20_000);
        assert!([1, 3].iter().all(|n| c.generation(*n) == 0), "{lasting} {later}\n{}", details(&c));
        assert!(has_said(&c, 1, "waits for data nodes 2, 4"), "{}", details(&c));
        [2, 4].iter().for_each(|n| c.start_node(*n));
        assert!(c.run_until(5_000, |c| is_whole(c, 4)), "{lasting} {later}\n{}", details(&c));
    }
}

/// Node 2 comes back to node 1, whose disk does not take the synced file of views.
fn returning_to_a_slow_disk() -> Cluster {
    let mut c = started(1, 2);
    c.kill(2);
    assert!(c.run_until(500, |c| members(c, 1) == [1]), "{}", details(&c));
    c.run_ms(100);
    c.slow_file = Some(SYNCED_VIEW_FILE);
    c.start_node(2);
    c
}

/// A member's file says at once what it has accepted that makes another one a full member.
#[test]
fn a_promotion_is_synced_before_it_is_accepted() {
    let mut c = returning_to_a_slow_disk();
    let is_asked = |c: &Cluster| c.unwritten.iter().any(|(_, bytes, ..)| accepted(bytes).is_some_and(|full| full == 2));
    assert!(c.run_until(3_000, is_asked), "{}", details(&c));
    c.run_ms(1_000);
    assert!(!is_whole(&c, 2), "the disk has not taken it yet");
    c.write_slow_file();
    assert!(c.run_until(1_000, |c| is_whole(c, 2)), "{}", details(&c));
}

/// Full members of what a file says was accepted.
fn accepted(file: &[u8]) -> Option<usize> {
    let kept = Kept::read(None, Some(file), NodeId(1), String::new()).expect("its own");
    kept.accepted.first().map(|view| super::freeze::full(view).count())
}

/// A disk that takes nothing is not waited for without end.
#[test]
fn a_disk_that_hangs_does_not_keep_others_from_being_promoted() {
    let mut c = returning_to_a_slow_disk();
    assert!(c.run_until(8_000, |c| is_whole(c, 2)), "{}", details(&c));
    assert!(c.files[&NodeId(1)].contains_key(VIEW_FILE));
}

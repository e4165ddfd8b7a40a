//! What a data node keeps, and what its next process does with it, in the harness.

use apus_signal::{BlockId, BlockRef, Kind, gcp::Keep, view::NodeState};
use apus_types::NodeId;

use super::{
    keep::{Kept, SYNCED_FILE},
    tests::{details, frozen, members},
    tests_resume::status,
};
use crate::harness::{Cluster, MGMT};

fn serves(c: &Cluster, id: u16) -> bool {
    let client = NodeId(NodeId::CLIENT_BASE);
    c.processes.get(&NodeId(id)).is_some_and(|p| p.stopped.is_none() && p.worker.serves(client, c.now))
}

/// One group; each node keeps its views.
fn started(replicas: u16) -> Cluster {
    started_groups(1, replicas)
}

fn started_groups(groups: u16, replicas: u16) -> Cluster {
    let mut c = Cluster::new(groups.into(), replicas.into());
    c.keeps_views = true;
    (1..=groups * replicas).for_each(|n| c.start_node(n));
    assert!(c.run_until(2000, |c| (1..=groups * replicas).all(|n| c.generation(n) == 1)));
    c.run_ms(50);
    c
}

fn is_whole(c: &Cluster, nodes: u16) -> bool {
    (1..=nodes).all(|n| c.view(n).is_some_and(|v| (1..=nodes).all(|m| v.state(NodeId(m)) == NodeState::Up)))
}

/// The management node dies, then one of two nodes, before or after the view names a tie-breaker. What the other one waits for is the dead
/// node's next process.
#[test]
fn the_next_process_of_a_dead_node_lets_the_other_go_on() {
    for (dead, left, apart) in [(1u16, 2u16, 10), (2, 1, 10), (1, 2, 500)] {
        let mut c = started(2);
        c.kill(MGMT.0);
        c.run_ms(apart);
        let generation = c.generation(left);
        c.kill(dead);
        c.run_ms(5_000);
        assert!(!serves(&c, left) && !frozen(&mut c, left).is_empty());
        assert!(c.node(left).worker.refuses(NodeId(NodeId::CLIENT_BASE)));
        c.start_node(dead);
        assert!(
            c.run_until(3000, |c| members(c, left) == [left] && serves(c, left)),
            "{dead} {apart}\n{}",
            details(&c)
        );
        assert!(c.generation(left) > generation && !c.node(left).worker.refuses(NodeId(NodeId::CLIENT_BASE)));
        c.start_mgmt(MGMT);
        assert!(c.run_until(5000, |c| is_whole(c, 2)), "{dead} {apart}\n{}", details(&c));
    }
}

/// As above, where what is found proves nothing: the machine has started since, or the directory is another one.
#[test]
fn after_another_boot_or_without_the_file_nobody_speaks_for_the_dead() {
    for is_lost in [false, true] {
        let mut c = started(2);
        c.kill(MGMT.0);
        c.run_ms(10);
        c.kill(1);
        c.run_ms(2_000);
        if is_lost {
            c.files.remove(&NodeId(1));
        } else {
            c.boots.insert(NodeId(1), 1);
        }
        c.start_node(1);
        c.run_ms(20_000);
        assert!(c.stopped(2).is_none() && c.generation(2) == 1 && !serves(&c, 2), "{}", details(&c));
    }
}

/// Two of three die at once. With the next process of one of them more than half of the acceptors are there.
#[test]
fn a_minority_and_a_witness_are_a_majority() {
    for dead in [[1u16, 2], [2, 3], [1, 3]] {
        let left = (1..=3).find(|n| !dead.contains(n)).expect("one is left");
        let mut c = started(3);
        dead.iter().for_each(|n| c.kill(*n));
        c.run_ms(2_000);
        assert!(frozen(&mut c, left).contains("minority") && !serves(&c, left));
        c.start_node(dead[1]);
        assert!(c.run_until(3000, |c| serves(c, left)), "{dead:?}\n{}", details(&c));
        c.start_node(dead[0]);
        assert!(c.run_until(5000, |c| is_whole(c, 3)), "{dead:?}\n{}", details(&c));
    }
}

/// The next processes of a whole group know what the dead accepted, but not their rows: nobody goes on without these.
#[test]
fn processes_that_speak_for_the_dead_are_no_copy_of_their_rows() {
    for last in [3u16, 4] {
        let mut c = started_groups(2, 2);
        c.kill(7 - last);
        assert!(c.run_until(2000, |c| members(c, 1).len() == 3));
        c.kill(last);
        c.run_ms(100);
        [3, 4].iter().for_each(|n| c.start_node(*n));
        c.run_ms(10_000);
        for left in [1, 2] {
            assert!(members(&c, left).contains(&last) && !serves(&c, left), "{}", details(&c));
            assert!(frozen(&mut c, left).contains("no full member left"), "{}", details(&c));
        }
    }
}

/// Node 1 went on alone and died, and nobody else heard of it. Its next process knows: node 2 has old rows and must not serve them, but
/// they are all that is left, so it does not give them up.
#[test]
fn who_was_left_behind_by_the_dead_stays_frozen_and_says_why() {
    let mut c = started(2);
    c.mute(1, MGMT.0); // what it commits is not reported
    c.run_ms(5);
    c.mute.remove(&(NodeId(1), MGMT));
    c.separate(1, 2);
    assert!(c.run_to(300, |c| c.generation(1) == 2));
    c.kill(1);
    c.kill(MGMT.0);
    c.cut.clear();
    c.run_ms(500);
    c.start_node(1);
    c.run_ms(20_000);
    assert!(c.stopped(2).is_none() && c.generation(2) == 1 && !serves(&c, 2), "{}", details(&c));
    let account = frozen(&mut c, 2);
    assert!(account.contains("node 1 went on in generation 2 without this node"), "{account}");
}

/// Node 2 accepted a view without node 3, and cannot know whether node 1 committed it.
#[test]
fn a_view_that_the_dead_accepted_is_finished_or_nothing() {
    let mut c = started(3);
    c.arm(1, "qmgr.drop_view_commit");
    c.separate(3, 1);
    c.separate(3, 2);
    assert!(c.run_to(500, |c| c.generation(1) == 2));
    assert_eq!(c.generation(2), 1);
    [1, 2, MGMT.0].iter().for_each(|n| c.kill(*n));
    c.cut.clear();
    c.start_node(2);
    c.run_ms(20_000);
    assert!(c.stopped(3).is_none() && c.generation(3) == 1 && !serves(&c, 3), "{}", details(&c));
}

/// The process that speaks for the dead one dies, too, after it has promised. The third one knows it.
#[test]
fn a_promise_outlives_who_speaks_for_the_dead() {
    let mut c = started(2);
    c.kill(MGMT.0);
    c.run_ms(10);
    c.kill(1);
    c.run_ms(1_000);
    let incarnation = |c: &Cluster| {
        let content = c.files[&NodeId(1)][super::VIEW_FILE].clone();
        let kept =
            super::Kept::read(Some(&content), None, NodeId(1), String::new()).expect("its own").found.expect("sound");
        (kept.incarnation, kept.promised)
    };
    let (first, before) = incarnation(&c);
    c.start_node(1);
    let promised = |c: &Cluster| incarnation(c).1 > before;
    assert!(c.run_to(3_000, promised), "{}", details(&c));
    c.kill(1);
    c.run_ms(1_000);
    assert_eq!((incarnation(&c).0, c.generation(2)), (first, 1));
    c.start_node(1);
    assert!(c.run_until(5000, |c| serves(c, 2)), "{}", details(&c));
}

/// The power fails for all: what the nodes held is gone, and they know that there was something. Only an operator can say that it is.
#[test]
fn what_was_founded_is_founded_again_by_an_operator_only() {
    for (mgmt_knows, nodes_know) in [(true, true), (true, false), (false, true)] {
        let mut c = Cluster::new(1, 2);
        c.start_lasting_mgmt(MGMT);
        c.keeps_views = nodes_know;
        (1..=2).for_each(|n| c.start_node(n));
        assert!(c.run_until(2000, |c| is_whole(c, 2)));
        c.run_ms(1_500);
        [1, 2, MGMT.0].iter().for_each(|n| c.kill(*n));
        (1..=2).for_each(|n| _ = c.boots.insert(NodeId(n), 1));
        if !mgmt_knows {
            c.files.remove(&MGMT);
        }
        c.start_lasting_mgmt(MGMT);
        (1..=2).for_each(|n| c.start_node(n));
        c.run_ms(30_000);
        assert!((1..=2).all(|n| c.generation(n) == 0 && c.stopped(n).is_none()), "{}", details(&c));
        assert!(c.node(1).log.iter().any(|l| l.contains("--found-again")), "{}", details(&c));
        c.start_mgmt_to_found_again(MGMT);
        assert!(c.run_until(20_000, |c| is_whole(c, 2)), "{mgmt_knows} {nodes_know}\n{}", details(&c));
    }
}

/// All processes die just when the cluster is founded: nobody may have been served by what no file knows of (scenario `last_resort`, once in 52 runs).
#[test]
fn who_founds_a_cluster_serves_nobody_before_its_file_says_so() {
    let mut c = Cluster::new(1, 2);
    c.keeps_views = true;
    c.slow_file = Some(super::VIEW_FILE);
    (1..=2).for_each(|n| c.start_node(n));
    assert!(c.run_until(2000, |c| (1..=2).all(|n| c.generation(n) == 1)));
    c.run_ms(1_500);
    assert!((1..=2).all(|n| !serves(&c, n) && c.stopped(n).is_none()), "{}", details(&c));
    assert_eq!(status(&mut c).generation, 0);
    c.write_slow_file();
    assert!(c.run_until(100, |c| (1..=2).all(|n| serves(c, n))), "{}", details(&c));
    c.run_ms(20);
    assert_eq!(status(&mut c).generation, 1);
}

/// What cannot be written is removed, for an old file would be a lie: the node goes on, and nobody will speak for it.
#[test]
fn a_full_disk_delays_no_view() {
    let mut c = started(2);
    c.disk_fails.insert(NodeId(1));
    c.kill(2);
    assert!(c.run_until(1000, |c| members(c, 1) == [1] && serves(c, 1)), "{}", details(&c));
    assert!(!c.files[&NodeId(1)].contains_key(super::VIEW_FILE));
    c.disk_fails.clear();
    c.start_node(2);
    assert!(c.run_until(3000, |c| is_whole(c, 2)));
    assert!(c.files[&NodeId(1)].contains_key(super::VIEW_FILE));
}

/// A disk that does nothing at all costs its node, where the others can go on.
#[test]
fn a_node_whose_disk_is_broken_ends_where_it_may() {
    let mut c = started(3);
    c.kill(3);
    assert!(c.run_until(1000, |c| members(c, 1) == [1, 2]));
    for n in [1, 2] {
        c.disk_fails.insert(NodeId(n));
        c.disk_broken.insert(NodeId(n));
    }
    c.start_node(3);
    c.run_ms(6_000);
    let ended: Vec<u16> = [1, 2].into_iter().filter(|n| c.stopped(*n).is_some()).collect();
    assert!(ended.len() <= 1 && c.generation(3) == 0, "{}", details(&c));
    c.disk_fails.clear();
    c.disk_broken.clear();
    assert!(c.run_until(5000, |c| [1, 2].iter().any(|n| serves(c, *n))), "{}", details(&c));
}

/// As a global checkpoint asks for it. While the file is written another view comes: a mark in a log that names that one is worth nothing without it.
#[test]
fn the_synced_file_has_the_view_that_was_there_when_it_was_asked_for() {
    let mut c = started(2);
    let ask = |c: &mut Cluster, number: u64| {
        let (dih, qmgr) =
            (BlockRef::new(NodeId(1), BlockId::Dih, 0), BlockRef::new(NodeId(1), BlockId::Qmgr, BlockRef::CONTROL));
        c.node(1).worker.with_context(dih, |ctx| ctx.send(qmgr, Kind::KeepReq, |b| Keep { number }.encode(b)));
        c.run_ms(2);
    };
    c.slow_file = Some(SYNCED_FILE);
    ask(&mut c, 1);
    c.kill(2);
    assert!(c.run_until(500, |c| members(c, 1) == [1]));
    ask(&mut c, 2);
    ask(&mut c, 2); // again, for it takes long
    assert_eq!(c.unwritten.len(), 1, "one write at a time");
    c.write_slow_file();
    c.run_ms(10);
    let synced = c.files[&NodeId(1)].get(SYNCED_FILE).cloned();
    let kept = Kept::read(None, synced.as_deref(), NodeId(1), String::new()).expect("its own");
    assert_eq!(kept.newest.map(|view| view.generation), Some(c.generation(1)));
}

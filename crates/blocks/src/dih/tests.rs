//! Rounds of epochs and snapshots between the nodes of the harness; what they mean for data is tested in `testing::epochs`.

use apus_signal::{
    BlockId, Kind,
    epoch::{EpochOrd, SnapshotConf, SnapshotReq},
    tc::RequestRef,
};
use apus_types::{Epoch, ErrorCode, NodeId};

use super::snapshots::{SNAPSHOT_AGE_NS, SNAPSHOTS_MAX};
use crate::harness::{Cluster, MS};

fn started(nodes: u16) -> Cluster {
    let mut c = Cluster::new(1, u32::from(nodes));
    (1..=nodes).for_each(|id| c.start_node(id));
    assert!(c.run_until(2000, |c| (1..=nodes).all(|n| c.generation(n) == 1)), "no first view");
    c.run_ms(50);
    c
}
fn round(c: &mut Cluster, id: u16) -> EpochOrd {
    c.node(id).seen.borrow().round.expect("a round")
}
fn ask(c: &mut Cluster, id: u16, request: u64) {
    c.ask(id, BlockId::Dih, Kind::SnapshotReq, |b| SnapshotReq { request }.encode(b));
}
fn give_back(c: &mut Cluster, id: u16, request: u64) {
    c.ask(id, BlockId::Dih, Kind::SnapshotEndOrd, |b| SnapshotReq { request }.encode(b));
}
fn answered(c: &mut Cluster) -> Option<Epoch> {
    c.answer(Kind::SnapshotConf).map(|body| SnapshotConf::decode(&body).expect("snapshot").epoch)
}
/// A snapshot of now, which must not take longer than a few round trips.
fn snapshot(c: &mut Cluster, id: u16, request: u64) -> Epoch {
    ask(c, id, request);
    assert!(c.run_until(8, |c| c.answers.iter().any(|a| a.1 == Kind::SnapshotConf)), "no snapshot in time");
    answered(c).expect("a snapshot")
}

#[test]
fn epochs_complete_one_after_another_everywhere() {
    let mut c = started(3);
    let before = round(&mut c, 3);
    c.run_ms(1000);
    for id in 1..=3 {
        let now = round(&mut c, id);
        assert!(now.complete.0 >= before.complete.0 + 40, "{before:?}, a second later {now:?}");
        assert_eq!(now.complete.0, now.epoch.0 - 2, "the round before is announced with this one");
        assert_eq!(now.horizon.0, now.complete.0 - 1, "nobody reads at anything older");
    }
}

#[test]
fn a_snapshot_holds_the_horizon_until_it_is_given_back() {
    let mut c = started(2);
    let first = snapshot(&mut c, 2, 7);
    c.run_ms(100);
    let second = snapshot(&mut c, 1, 8);
    assert!(second > first);
    c.run_ms(500);
    assert_eq!(round(&mut c, 1).horizon, first);
    give_back(&mut c, 2, 7);
    give_back(&mut c, 2, 7);
    c.run_ms(100);
    assert_eq!(round(&mut c, 2).horizon, second);
    let client = NodeId(NodeId::CLIENT_BASE);
    c.node(1).worker.link_down(client);
    c.run_ms(100);
    assert!(round(&mut c, 2).horizon > second, "the end of a client's link gives its snapshots back");
}

#[test]
fn versions_are_kept_while_somebody_reads_and_a_second_longer() {
    let mut c = started(2);
    assert!(round(&mut c, 2).keep, "a new view begins so");
    c.run_ms(1500);
    let off = round(&mut c, 2);
    assert!(!off.keep && !round(&mut c, 1).keep);
    for request in 7..10 {
        let epoch = snapshot(&mut c, 2, request);
        assert!(epoch > off.epoch, "older than the time without versions");
        c.run_ms(3000);
        assert!(round(&mut c, 1).keep && round(&mut c, 2).keep, "a snapshot is held");
        give_back(&mut c, 2, request);
        c.run_ms(500);
        assert!(round(&mut c, 1).keep, "the next reader may come at once");
        c.run_ms(1500);
        assert!(!round(&mut c, 1).keep && !round(&mut c, 2).keep);
    }
}

#[test]
fn a_snapshot_given_back_before_its_answer_is_never_held() {
    let mut c = started(2);
    ask(&mut c, 2, 7);
    give_back(&mut c, 2, 7);
    c.run_ms(200);
    assert_eq!(answered(&mut c), None);
    let now = round(&mut c, 1);
    assert_eq!(now.horizon.0, now.complete.0 - 1);
}

#[test]
fn the_death_of_the_president_neither_loses_snapshots_nor_turns_epochs_back() {
    for wait in 0..12 {
        let mut c = started(3);
        let held = snapshot(&mut c, 3, 7);
        c.run_ms(30);
        ask(&mut c, 2, 9); // may be under way when the president dies
        c.run_ms(wait % 4);
        let before = round(&mut c, 2).max_with(round(&mut c, 3));
        c.kill(1);
        assert!(c.run_until(3000, |c| c.generation(2) == 2 && c.generation(3) == 2));
        c.run_ms(200);
        let asked = answered(&mut c).expect("the snapshot asked for");
        for id in [2, 3] {
            let now = round(&mut c, id);
            assert!(now.complete > before.complete && now.epoch > before.epoch, "{before:?} and later {now:?}");
            assert_eq!(now.horizon, held, "a snapshot is held at node 3");
        }
        assert!(asked >= held);
    }
}

trait Newest {
    fn max_with(self, other: EpochOrd) -> EpochOrd;
}
impl Newest for EpochOrd {
    fn max_with(self, other: EpochOrd) -> EpochOrd {
        if other.epoch > self.epoch { other } else { self }
    }
}

#[test]
fn a_dead_node_takes_its_snapshots_with_it() {
    let mut c = started(2);
    let held = snapshot(&mut c, 2, 7);
    c.kill(2);
    assert!(c.run_until(3000, |c| c.generation(1) == 2));
    c.run_ms(100);
    assert!(round(&mut c, 1).horizon > held);
}

#[test]
fn a_member_that_does_not_drain_holds_everything() {
    let mut c = started(2);
    c.node(2).seen.borrow_mut().silent = true;
    c.run_ms(50);
    let stuck = round(&mut c, 1);
    ask(&mut c, 1, 7);
    c.run_ms(500);
    let now = round(&mut c, 1);
    assert_eq!((now.round, now.complete), (stuck.round, stuck.complete));
    assert_eq!(answered(&mut c), None);
}

#[test]
fn short_memory_gives_up_the_oldest_snapshots_first() {
    let mut c = started(2);
    let old = snapshot(&mut c, 2, 7);
    c.run_ms(2000);
    let young = snapshot(&mut c, 1, 8);
    c.node(2).seen.borrow_mut().short_of_memory = true;
    assert!(c.run_until(100, |c| {
        let seen = c.processes[&NodeId(1)].seen.borrow();
        seen.round.is_some_and(|r| r.horizon > old)
    }));
    assert!(round(&mut c, 1).horizon < young, "not all at once");
    c.run_ms(1000);
    let now = round(&mut c, 1);
    assert!(now.horizon > young && now.horizon <= now.complete, "{now:?}");
    c.node(2).seen.borrow_mut().short_of_memory = false;
    c.run_ms(50);
    let again = snapshot(&mut c, 2, 9);
    c.run_ms(300);
    assert_eq!(round(&mut c, 1).horizon, again);
}

#[test]
fn snapshots_are_limited_in_number_and_age() {
    let mut c = started(1);
    for request in 1..=SNAPSHOTS_MAX as u64 + 1 {
        ask(&mut c, 1, request);
    }
    c.run_ms(50);
    let refusal = c.answer(Kind::RequestRef).expect("a refusal");
    assert_eq!(RequestRef::decode(&refusal).map(|r| r.code), Ok(ErrorCode::TooManySnapshots));
    let held = answered(&mut c).expect("a snapshot");
    assert_eq!(c.answers.iter().filter(|a| a.1 == Kind::SnapshotConf).count(), SNAPSHOTS_MAX - 1);
    c.run_ms(2000);
    assert_eq!(round(&mut c, 1).horizon, held);
    c.now += SNAPSHOT_AGE_NS - 1000 * MS;
    c.run_ms(2000);
    assert!(round(&mut c, 1).horizon > held, "nobody holds the horizon for ever");
}

/// In the harness a round takes no time; held to one in half a millisecond, a few snapshots would use up what may be drawn in advance.
#[test]
fn rounds_that_take_no_time_hold_no_snapshot_up() {
    let mut c = started(2);
    for request in 1..=30 {
        ask(&mut c, 2, request);
        c.run_rounds(40);
        assert!(answered(&mut c).is_some(), "snapshot {request} of the same moment waits");
        give_back(&mut c, 2, request);
    }
}

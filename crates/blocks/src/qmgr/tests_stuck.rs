//! What a node does of which a data worker makes no rounds any more. The watchdog is the kernel's; here time is its ticks.

use apus_kernel::limits::{EPOCH_LATE_TICKS, STUCK_TICKS, STUCK_WARN_TICKS, TICK_NS};
use apus_signal::{BlockId, BlockRef, Kind, epoch::EpochLate, qmgr::encode};
use apus_types::NodeId;

use super::tests::{members, started};
use crate::harness::{Cluster, MGMT, MS};

/// So many ticks pass in which each of these nodes finds its worker in one round.
fn stick(c: &mut Cluster, nodes: &[u16], ticks: u32) {
    for _ in 0..ticks {
        for id in nodes {
            if c.stopped(*id).is_none() {
                c.node(*id).worker.watch(0, 7, false);
            }
        }
        c.now += MS; // a tenth of what it would be, the heartbeats go on
        c.run_ms(1);
    }
}

#[test]
fn a_node_whose_worker_is_stuck_ends_and_the_others_go_on() {
    for (groups, replicas) in [(1, 2), (1, 3), (2, 2)] {
        let mut c = started(groups, replicas);
        c.node(2).worker.watch(0, 7, false);
        stick(&mut c, &[2], STUCK_TICKS - 1);
        assert_eq!(c.stopped(2), None, "not before its time");
        stick(&mut c, &[2], 1);
        let reason = c.stopped(2).expect("it ends");
        assert!(reason.contains("worker 0 has been in one turn for 5000 ms"), "{reason}");
        assert_eq!(c.node(2).worker.stuck_worker(), Some(0), "the executor is to ask that worker for its trail");
        assert!(c.run_until(100, |c| !members(c, 1).contains(&2)));
    }
}

#[test]
fn the_last_full_copy_of_a_group_stays() {
    let mut c = started(1, 2);
    c.kill(2);
    assert!(c.run_until(500, |c| members(c, 1) == [1]));
    c.node(1).worker.watch(0, 7, false);
    stick(&mut c, &[1], 2 * STUCK_TICKS);
    assert_eq!(c.stopped(1), None);
    assert!(
        c.node(1)
            .log
            .iter()
            .any(|line| line.contains("does not end itself: a node group has no other sound full member"))
    );
    // Once there is another copy it is of use to nobody.
    c.start_node(2);
    assert!(c.run_until(2000, |c| members(c, 1) == [1, 2]));
    c.run_ms(500);
    stick(&mut c, &[1], STUCK_WARN_TICKS);
    assert!(c.stopped(1).is_some());
}

#[test]
fn nodes_that_one_statement_has_stuck_do_not_all_end() {
    for replicas in [2, 3] {
        let mut c = started(1, replicas);
        let all: Vec<u16> = (1..=replicas as u16).collect();
        for id in &all {
            c.node(*id).worker.watch(0, 7, false);
        }
        stick(&mut c, &all, 3 * STUCK_TICKS);
        assert!(all.iter().all(|id| c.stopped(*id).is_none()), "all hold the same rows");
    }
}

#[test]
fn half_of_a_cluster_needs_its_arbitrator() {
    let mut c = started(1, 2);
    c.kill(MGMT.0);
    c.run_ms(1500);
    // Node 1 breaks ties by now: the other would freeze without it.
    c.node(1).worker.watch(0, 7, false);
    stick(&mut c, &[1], STUCK_TICKS);
    assert_eq!(c.stopped(1), None);
    assert!(c.node(1).log.iter().any(|line| line.contains("tie-breaker")), "{:?}", c.node(1).log);
    c.node(1).worker.watch(0, 8, false);
    c.run_ms(1);
    assert!(c.node(1).log.iter().any(|line| line.contains("worker 0 turns again")));
}

/// A worker of node 1 says that it has waited for so long for an answer of node 2.
fn tell_late(c: &mut Cluster, ticks: u32) {
    let late = EpochLate { generation: c.generation(1), ticks, instance: 0, text: "a commit hangs".to_owned() };
    let (from, qmgr) =
        (BlockRef::new(NodeId(1), BlockId::Tc, 0), BlockRef::new(NodeId(2), BlockId::Qmgr, BlockRef::CONTROL));
    c.node(1).worker.with_context(from, |ctx| ctx.send(qmgr, Kind::EpochLateRep, |b| encode(&late, b)));
    c.run_ms(10);
}

const LATE_MS: u64 = EPOCH_LATE_TICKS as u64 * TICK_NS / MS;

#[test]
fn who_keeps_an_epoch_open_for_long_ends() {
    let mut c = started(1, 3);
    for ticks in (EPOCH_LATE_TICKS..STUCK_TICKS).step_by(EPOCH_LATE_TICKS as usize) {
        tell_late(&mut c, ticks);
        assert_eq!(c.stopped(2), None, "not before its time");
        c.run_ms(LATE_MS - 10);
    }
    tell_late(&mut c, STUCK_TICKS);
    assert!(c.stopped(2).expect("it ends").contains("a commit hangs"));
    assert!(c.run_until(100, |c| members(c, 1) == [1, 3]));
}

/// What was said while a network was parted comes at once, and the answers that were waited for are on their way.
#[test]
fn who_is_told_all_at_once_that_it_keeps_an_epoch_open_stays() {
    let mut c = started(1, 3);
    for ticks in (EPOCH_LATE_TICKS..=STUCK_TICKS).step_by(EPOCH_LATE_TICKS as usize) {
        tell_late(&mut c, ticks);
    }
    assert_eq!(c.stopped(2), None);
    // It was not waited for any more, and is again, much later.
    c.run_ms(5 * LATE_MS);
    tell_late(&mut c, STUCK_TICKS);
    c.run_ms(LATE_MS);
    assert_eq!((c.stopped(2), members(&c, 1)), (None, vec![1, 2, 3]));
}

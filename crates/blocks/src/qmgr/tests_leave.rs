//! Processes that are told to end, in the harness.

use std::cell::Cell;

use apus_types::NodeId;

use super::tests::{details, frozen, members, started};
use crate::harness::{Cluster, MGMT};

const INSIST_MS: u64 = super::leave::INSIST_NS / 1_000_000;

/// Stops at each moment of a conversation that takes a few milliseconds.
fn pass(c: &mut Cluster, moment: u64) {
    let looked = Cell::new(0);
    c.run_to(20, |_| {
        looked.set(looked.get() + 1);
        looked.get() > moment
    });
}

#[test]
fn a_node_leaves_by_a_view_without_anybody_to_decide() {
    for (leaver, stays) in [(1u16, 2u16), (2, 1)] {
        let mut c = started(1, 2);
        c.kill(MGMT.0);
        c.tell_to_end(leaver);
        assert!(c.run_until(500, |c| c.stopped(leaver).is_some()), "{}", details(&c));
        assert!(c.stopped(leaver).unwrap().starts_with("has left"), "{:?}", c.stopped(leaver));
        assert!(c.run_until(100, |c| members(c, stays) == [stays]));
        assert!(frozen(&mut c, stays).is_empty());
    }
}

/// The view without it has been told to the management node, which ends who does not know it; the commit comes later or never.
#[test]
fn who_hears_from_others_that_it_is_out_has_left() {
    let mut c = started(1, 3);
    c.arm(1, "qmgr.drop_view_commit"); // node 2 does not hear of it, 3 does
    c.tell_to_end(2);
    assert!(c.run_until(2000, |c| c.stopped(2).is_some()), "{}", details(&c));
    assert!(c.stopped(2).unwrap().starts_with("has left"), "{:?}", c.stopped(2));
}

#[test]
fn the_last_full_copy_ends_at_a_second_order_only() {
    let mut c = started(1, 2);
    c.tell_to_end(1);
    c.tell_to_end(2);
    c.run_ms(10_000);
    let stays: Vec<u16> = [1, 2].into_iter().filter(|n| c.stopped(*n).is_none()).collect();
    assert_eq!(stays.len(), 1, "{}", details(&c));
    c.tell_to_end(stays[0]);
    c.run_ms(10);
    assert!(c.stopped(stays[0]).is_some(), "{}", details(&c));

    let mut c = started(1, 2);
    c.kill(2);
    c.run_ms(100);
    for _ in 0..2 {
        c.tell_to_end(1);
        c.run_ms(INSIST_MS + 1000);
        assert!(c.stopped(1).is_none() && members(&c, 1) == [1], "orders that are far apart are refused each");
    }
    assert!(c.node(1).log.iter().any(|l| l.contains("last full copy")));
    c.tell_to_end(1);
    c.run_ms(10);
    c.tell_to_end(1);
    c.run_ms(10);
    assert!(c.stopped(1).is_some());
}

#[test]
fn a_frozen_node_does_not_end_at_a_first_order() {
    let mut c = started(1, 2);
    c.kill(MGMT.0);
    c.run_ms(20);
    c.kill(1);
    c.run_ms(300);
    assert!(!frozen(&mut c, 2).is_empty());
    c.tell_to_end(2);
    c.run_ms(10_000);
    assert!(c.stopped(2).is_none());
    c.tell_to_end(2);
    c.run_ms(10);
    assert!(c.stopped(2).is_some());
}

/// Who is to stay dies at any moment of the leave: the leaver has left, goes on alone, or keeps its rows and waits.
#[test]
fn who_stays_dies_while_the_other_leaves() {
    let (mut left, mut kept, mut waits) = (0, 0, 0);
    for moment in 0..120 {
        for (leaver, stays) in [(1u16, 2u16), (2, 1)] {
            let mut c = started(1, 2);
            c.tell_to_end(leaver);
            pass(&mut c, moment);
            c.kill(stays);
            c.run_ms(20_000);
            match c.stopped(leaver) {
                Some(why) => {
                    assert!(why.starts_with("has left"), "{moment}: {why}\n{}", details(&c));
                    left += 1;
                }
                None if frozen(&mut c, leaver).is_empty() => {
                    assert_eq!(members(&c, leaver), [leaver], "{moment}");
                    kept += 1;
                }
                None => waits += 1,
            }
        }
    }
    assert!(left > 0 && kept > 0 && waits > 0, "left {left}, kept {kept}, waits {waits}");
}

/// One that has the lowest join order and has agreed loses a third one: the view without it is finished.
#[test]
fn a_leaver_finishes_what_it_began_with_those_that_are_left() {
    for moment in 0..120 {
        for leaver in 1..=3u16 {
            let mut c = started(1, 3);
            c.tell_to_end(leaver);
            pass(&mut c, moment);
            let dead = leaver % 3 + 1;
            let stays = dead % 3 + 1;
            c.kill(dead);
            c.run_ms(20_000);
            assert!(c.stopped(leaver).is_some(), "{moment} {leaver}\n{}", details(&c));
            assert_eq!(members(&c, stays), [stays], "{moment} {leaver}\n{}", details(&c));
            assert!(frozen(&mut c, stays).is_empty());
        }
    }
}

/// A transaction does not end in time, and the node goes as by a crash, but says that it was told to: the view tells that to clients.
#[test]
fn who_could_not_go_in_order_says_so() {
    for leaver in 1..=3u16 {
        let mut c = started(1, 3);
        (1..=3).for_each(|n| c.node(n).seen.borrow_mut().busy = true);
        let process = c.processes[&NodeId(leaver)].incarnation;
        c.tell_to_end(leaver);
        let stays = leaver % 3 + 1;
        assert!(!c.run_until(5_900, |c| members(c, stays).len() == 2), "{}", details(&c));
        assert!(c.run_until(500, |c| members(c, stays).len() == 2), "{}", details(&c));
        let marked =
            |c: &Cluster, n: u16| c.view(stays).and_then(|v| v.node(NodeId(n)).map(|n| (n.left, n.incarnation)));
        assert_eq!(marked(&c, leaver), Some((true, process)));
        let dead = stays % 3 + 1;
        let other = if dead == leaver { dead % 3 + 1 } else { dead };
        c.kill(other);
        assert!(c.run_until(1_000, |c| members(c, stays).len() == 1), "{}", details(&c));
        assert_eq!(marked(&c, other).map(|m| m.0), Some(false), "it crashed");
        assert_eq!(marked(&c, leaver), Some((true, process)), "and this is still known");
    }
}

//! A coordinator of many transactions dies, and a node on which many depend: no signal does all of the work, whoever comes meanwhile finds what
//! the new view means for him, and in the end nothing is left over.

use apus_signal::{
    Kind,
    tc::{COMMIT, OpKind, START},
};
use apus_types::{ErrorCode, NodeId};

use super::{Answer, Cluster, op, trans};
use crate::ldm::Slices;

const ONE: NodeId = NodeId(1);
const THREE: NodeId = NodeId(3);
const MANY: i64 = 150;
const ROWS: u32 = 4;
/// What one signal may send: a slice, the transaction that exceeds it, and the ends to two instances of two nodes.
const SENT_MAX: u64 = 2 * ROWS as u64 + 8;

/// Three nodes, and [`MANY`] rows.
fn filled(seed: u64, pause_ns: u64) -> Cluster {
    let mut c = Cluster::with_limits(seed, 3, Slices { rows: ROWS, parts: 1, pause_ns }, u64::MAX);
    let inserts: Vec<_> = (0..MANY).map(|id| op(OpKind::Insert, id, 10)).collect();
    let filled = c.batch(ONE, trans(1), START | COMMIT, 1, &inserts);
    assert!(matches!(c.wait(filled), Answer::Batch { committed: true, .. }));
    c.pass(1);
    c
}

/// Each row is changed by a transaction of its own that stays open.
fn open_many(c: &mut Cluster, coordinator: NodeId) {
    let requests: Vec<u64> = (0..MANY)
        .map(|id| c.batch(coordinator, trans(100 + id as u64), START, 1, &[op(OpKind::Update, id, 1)]))
        .collect();
    for request in requests {
        assert!(matches!(c.wait(request), Answer::Batch { .. }));
    }
    c.quiesce();
}

fn check_rest(c: &mut Cluster, context: &str) {
    c.pass(5);
    assert!(!c.dump().contains("  transaction "), "{context}: records are left\n{}", c.dump());
    c.workers.values().for_each(|worker| worker.verify().expect(context));
    for id in 0..MANY {
        let answer = c.auto(ONE, 1000 + id as u64, op(OpKind::Update, id, 0));
        assert!(matches!(answer, Answer::Batch { committed: true, .. }), "{context}: row {id}: {answer:?}");
    }
}

#[test]
fn many_orphans_are_taken_over_in_slices() {
    for seed in 1..=super::seeds(10) {
        let mut c = filled(seed, 0);
        open_many(&mut c, THREE);
        c.kill(THREE);
        c.busiest = 0;
        c.remove(&[THREE]);
        c.quiesce();
        assert!(c.busiest <= SENT_MAX, "seed {seed}: a signal has sent {}", c.busiest);
        check_rest(&mut c, &format!("seed {seed}"));
        assert_eq!(c.values(ONE, &[0, MANY - 1]), [Some(10), Some(10)]);
    }
}

#[test]
fn many_transactions_survive_a_node_in_slices() {
    for seed in 1..=super::seeds(10) {
        let mut c = filled(seed, 0);
        open_many(&mut c, ONE);
        let commits: Vec<u64> = (0..MANY).map(|id| c.end(ONE, Kind::TcCommitReq, trans(100 + id as u64), 0)).collect();
        c.advance(0, 20);
        c.kill(THREE);
        c.busiest = 0;
        c.remove(&[THREE]);
        c.quiesce();
        assert!(c.busiest <= SENT_MAX, "seed {seed}: a signal has sent {}", c.busiest);
        for request in commits {
            let answer = c.wait(request);
            let is_doomed = matches!(answer, Answer::Refused { code: ErrorCode::NodeFailed, aborted: true, .. });
            assert!(is_doomed || answer == Answer::Committed, "seed {seed}: {answer:?}");
        }
        check_rest(&mut c, &format!("seed {seed}"));
    }
}

/// The primary of its row is gone: it must not commit, also if its turn has not come yet.
#[test]
fn who_asks_before_his_turn_hears_what_the_view_means() {
    for seed in 1..=super::seeds(10) {
        let mut c = filled(seed, 1_000_000_000);
        open_many(&mut c, ONE);
        let hit: Vec<i64> = (0..MANY).filter(|&id| c.primary_of(id) == THREE).collect();
        let last = *hit.last().expect("a row whose primary dies");
        c.kill(THREE);
        c.remove(&[THREE]);
        let since = c.now;
        let end = c.end(ONE, Kind::TcCommitReq, trans(100 + last as u64), 0);
        let answer = c.wait(end);
        assert!(
            matches!(answer, Answer::Refused { code: ErrorCode::NodeFailed, aborted: true, .. }),
            "seed {seed}: {answer:?}"
        );
        assert!(c.now - since < 1_000_000_000, "seed {seed}: it has waited for its turn");
    }
}

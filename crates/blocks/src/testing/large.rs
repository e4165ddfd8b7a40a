//! Transactions that end in many slices, with long pauses between them: what they have committed is there at once, and everybody else goes
//! on beside them, whoever dies between two slices.

use apus_signal::{
    BlockId, Kind,
    copy::CopyFrag,
    tc::{COMMIT, NO_WAIT, OpKind, START},
    view::NodeState,
};
use apus_types::{Chain, Epoch, ErrorCode, NodeId, PartitionId, TransId};

use super::{Answer, Cluster, TestOp, op, trans, view_node};
use crate::ldm::Slices;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const ROWS: i64 = 60;
/// Long beyond what any request takes: rows are not stamped before a test lets this time pass.
const PAUSE_NS: u64 = 1_000_000_000;

pub(super) fn slow(seed: u64, replicas: u16) -> Cluster {
    let slices = Slices { rows: 1 + seed as u32 % 3, parts: 4, pause_ns: PAUSE_NS };
    Cluster::with_limits(seed, replicas, slices, u64::MAX)
}

pub(super) fn every(kind: OpKind, v: i64) -> Vec<TestOp> {
    (0..ROWS).map(|id| op(kind, id, v)).collect()
}

/// Whether the transaction committed.
pub(super) fn run(c: &mut Cluster, seq: u64, ops: &[TestOp]) -> Answer {
    let request = c.batch(ONE, trans(seq), START | COMMIT, 1, ops);
    c.wait(request)
}

pub(super) fn is_committed(answer: &Answer) -> bool {
    matches!(answer, Answer::Batch { committed: true, .. } | Answer::Committed)
}

/// Every slice there may be.
pub(super) fn let_slices_pass(c: &mut Cluster) {
    for _ in 0..8 * ROWS {
        c.advance(PAUSE_NS, 40);
    }
    c.quiesce();
}

fn check_rest(c: &mut Cluster, context: &str) {
    let_slices_pass(c);
    assert!(!c.dump().contains("  transaction "), "{context}: records are left\n{}", c.dump());
    for worker in c.workers.values() {
        worker.verify().expect(context);
    }
}

/// The rows as their primaries show them.
fn at_primaries(c: &mut Cluster) -> Vec<Option<i64>> {
    let ids: Vec<i64> = (0..ROWS).collect();
    let mut found = vec![None; ids.len()];
    for node in c.workers.keys().copied().collect::<Vec<_>>() {
        let mine: Vec<i64> = ids.iter().copied().filter(|&id| c.primary_of(id) == node).collect();
        for (id, value) in mine.iter().zip(c.values(node, &mine)) {
            found[*id as usize] = value;
        }
    }
    found
}

#[test]
fn what_is_committed_is_read_before_its_rows_are_stamped() {
    for seed in 1..=super::seeds(30) {
        let mut c = slow(seed, 2 + (seed % 2) as u16);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        assert!(c.dump().contains(" parts ending"), "{}", c.dump());
        assert_eq!(at_primaries(&mut c), vec![Some(10); ROWS as usize], "seed {seed}");
        assert!(
            is_committed(&run(&mut c, 2, &every(OpKind::Update, 5))),
            "locks of a transaction that is over are free"
        );
        assert_eq!(at_primaries(&mut c), vec![Some(15); ROWS as usize], "seed {seed}");
        // A backup shows the newest row or says that the primary has it.
        for node in c.workers.keys().copied().collect::<Vec<_>>() {
            let shown = c.values(node, &(0..ROWS).collect::<Vec<_>>());
            assert!(shown.iter().all(|v| v.is_none_or(|v| v == 15)), "seed {seed}: {node} shows {shown:?}");
        }
        let deleted = TestOp { flags: NO_WAIT, ..op(OpKind::Delete, 7, 0) };
        assert!(is_committed(&run(&mut c, 3, &[deleted])));
        assert_eq!(at_primaries(&mut c)[7], None);
        check_rest(&mut c, &format!("seed {seed}"));
        assert_eq!(at_primaries(&mut c).iter().flatten().sum::<i64>(), 15 * (ROWS - 1));
    }
}

/// A commit counts for its epoch until all chains have decided it, not until all rows are stamped.
#[test]
fn no_epoch_waits_for_the_rows_of_a_commit() {
    for seed in 1..=super::seeds(20) {
        let mut c = slow(seed, 2);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        let old = c.snapshot(ONE);
        let Answer::Snapshot(old_epoch) = c.wait(old) else { panic!("no snapshot") };
        assert!(is_committed(&run(&mut c, 2, &every(OpKind::Update, 1))));
        let new = c.snapshot(TWO);
        let Answer::Snapshot(new_epoch) = c.wait(new) else { panic!("no snapshot") };
        assert!(c.now < PAUSE_NS, "the snapshots have waited for slices");
        let ids: Vec<i64> = (0..ROWS).collect();
        for (epoch, value) in [(old_epoch, 10), (new_epoch, 11)] {
            for node in [ONE, TWO] {
                let request = c.read_at(node, TransId::NONE, epoch, &ids);
                let Answer::Rows(rows) = c.wait(request) else { panic!("seed {seed}: no rows at {epoch}") };
                let shown: Vec<i64> = rows.iter().map(|r| c.value(r.as_ref().expect("a row"))).collect();
                assert_eq!(shown, vec![value; ROWS as usize], "seed {seed}: {node} at {epoch}");
            }
        }
        c.end_snapshot(ONE, old);
        c.end_snapshot(TWO, new);
        check_rest(&mut c, &format!("seed {seed}"));
    }
}

/// Rows that others wait for end with the first slice, also those that came to a transaction with others still waiting for them.
#[test]
fn who_waits_for_a_large_transaction_goes_on_with_its_end() {
    for seed in 1..=super::seeds(20) {
        let mut c = slow(seed, 2);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        let_slices_pass(&mut c);
        let since = c.now;
        let first = c.batch(ONE, trans(2), START, 1, &every(OpKind::Update, 1));
        assert!(matches!(c.wait(first), Answer::Batch { .. }));
        let second = c.batch(TWO, trans(3), START, 1, &every(OpKind::Update, 1));
        let row = c.rng.below(ROWS as usize) as i64;
        c.advance(0, 200);
        let third = c.batch(ONE, trans(4), START | COMMIT, 1, &[op(OpKind::Update, row, 1)]);
        c.advance(0, 200);
        let end = c.end(ONE, Kind::TcCommitReq, trans(2), 0);
        assert_eq!(c.wait(end), Answer::Committed);
        assert!(matches!(c.wait(second), Answer::Batch { .. }), "seed {seed}");
        let end = c.end(TWO, Kind::TcCommitReq, trans(3), 0);
        assert_eq!(c.wait(end), Answer::Committed);
        assert!(is_committed(&c.wait(third)), "seed {seed}");
        assert!(c.now - since < PAUSE_NS, "seed {seed}: a transaction has waited for slices");
        check_rest(&mut c, &format!("seed {seed}"));
        assert_eq!(at_primaries(&mut c).iter().flatten().sum::<i64>(), 12 * ROWS + 1, "seed {seed}");
    }
}

#[test]
fn a_rollback_in_slices_leaves_nothing() {
    for seed in 1..=super::seeds(20) {
        let mut c = slow(seed, 2);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        let t = trans(2);
        let first = c.batch(ONE, t, START, 1, &every(OpKind::Update, 1));
        assert!(matches!(c.wait(first), Answer::Batch { .. }));
        let second = c.batch(ONE, t, 0, 2, &every(OpKind::Update, 100));
        assert!(matches!(c.wait(second), Answer::Batch { .. }));
        let back = c.end(ONE, Kind::TcRollbackReq, t, 2);
        for _ in 0..8 * ROWS {
            c.advance(PAUSE_NS, 40);
        }
        assert_eq!(c.wait(back), Answer::RolledBack);
        let own = c.read(c.primary_of(3), t, &[3]);
        let Answer::Rows(rows) = c.wait(own) else { panic!("no rows") };
        assert_eq!(rows[0].as_ref().map(|r| c.value(r)), Some(11), "seed {seed}: only the second statement is undone");
        let end = if seed % 2 == 0 { Kind::TcCommitReq } else { Kind::TcRollbackReq };
        let end = c.end(ONE, end, t, 0);
        check_rest(&mut c, &format!("seed {seed}"));
        c.wait(end);
        let value = if seed % 2 == 0 { 11 } else { 10 };
        assert_eq!(at_primaries(&mut c), vec![Some(value); ROWS as usize], "seed {seed}");
    }
}

/// Whatever has been decided when a node dies between two slices is decided for all rows, on all nodes.
#[test]
fn a_node_dies_between_two_slices() {
    for seed in 1..=super::seeds(60) {
        println!("seed {seed}");
        let mut c = slow(seed, 2 + (seed % 2) as u16);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        if seed % 3 == 0 {
            let_slices_pass(&mut c);
        }
        let request = c.batch(ONE, trans(2), START | COMMIT, 1, &every(OpKind::Update, 1));
        for _ in 0..c.rng.below(300) {
            c.step();
        }
        let dead = NodeId(1 + c.rng.below(c.workers.len()) as u16);
        c.kill(dead);
        c.remove(&[dead]);
        for _ in 0..c.rng.below(200) {
            c.step();
        }
        let_slices_pass(&mut c);
        let shown = at_primaries(&mut c);
        let whole = shown.iter().all(|v| *v == Some(10)) || shown.iter().all(|v| *v == Some(11));
        assert!(whole, "seed {seed}: {shown:?}");
        if c.answers.remove(&request).is_some_and(|answer| is_committed(&answer)) {
            assert_eq!(shown[0], Some(11), "seed {seed}: an acknowledged commit is gone");
        }
        check_rest(&mut c, &format!("seed {seed}"));
    }
}

/// What is committed and not stamped is copied as committed; what is open is copied once it is decided.
#[test]
fn a_node_comes_back_between_two_slices() {
    for seed in 1..=super::seeds(30) {
        println!("seed {seed}");
        let mut c = slow(seed, 2);
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        c.kill(TWO);
        c.remove(&[TWO]);
        c.quiesce();
        let update = run(&mut c, 2, &every(OpKind::Update, 1));
        assert!(is_committed(&update), "seed {seed}: {update:?}");
        c.start(TWO, 2);
        c.view.nodes[1] = view_node(TWO, 2, NodeState::Recovering);
        c.view.chains = vec![Chain::new(&[ONE, TWO]).0; 4];
        c.commit_view();
        let during = c.batch(ONE, trans(3), START, 1, &every(OpKind::Update, 1));
        c.wait(during);
        for partition in (0..4).map(PartitionId) {
            let req = CopyFrag { generation: c.view.generation, partition };
            let mut body = Vec::new();
            req.encode(&mut body);
            c.tell(ONE, BlockId::Ldm, Kind::CopyFragReq, &body);
        }
        for _ in 0..c.rng.below(300) {
            c.step();
        }
        let commits = seed % 2 == 0;
        let end = c.end(ONE, if commits { Kind::TcCommitReq } else { Kind::TcRollbackReq }, trans(3), 0);
        let_slices_pass(&mut c);
        assert_eq!(c.wait(end), if commits { Answer::Committed } else { Answer::RolledBack });
        let value = if commits { 12 } else { 11 };
        c.view.nodes[1] = view_node(TWO, 2, NodeState::Up);
        c.commit_view();
        c.quiesce();
        for node in [ONE, TWO] {
            assert_eq!(
                c.values(node, &(0..ROWS).collect::<Vec<_>>()),
                vec![Some(value); ROWS as usize],
                "seed {seed}: {node}"
            );
        }
        check_rest(&mut c, &format!("seed {seed}"));
    }
}

#[test]
fn a_transaction_beyond_its_limit_is_refused_and_undone() {
    let mut c = Cluster::with_limits(5, 2, Slices { rows: 3, parts: 1, pause_ns: 0 }, 20 * 80);
    let answer = run(&mut c, 1, &every(OpKind::Insert, 10));
    assert!(
        matches!(answer, Answer::Refused { code: ErrorCode::TransactionTooLarge, aborted: true, .. }),
        "{answer:?}"
    );
    check_rest(&mut c, "refused");
    assert_eq!(at_primaries(&mut c), vec![None; ROWS as usize]);
    let ops: Vec<TestOp> = every(OpKind::Insert, 10).into_iter().take(10).collect();
    assert!(is_committed(&run(&mut c, 2, &ops)));
    let snapshot = c.snapshot(ONE);
    assert!(matches!(c.wait(snapshot), Answer::Snapshot(epoch) if epoch > Epoch(0)));
}

//! The transaction protocol with every node alive, under many orders of delivery.

use apus_signal::{
    BlockId, Kind,
    tc::{ALLOW_DUPLICATE, ALLOW_MISSING, COMMIT, OpKind, OpStatus, START},
};
use apus_types::{ErrorCode, NodeId, TransId};

use super::{Answer, Cluster, HIDDEN, TestOp, op, trans};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const SEEDS: u64 = 40;

fn committed(answer: &Answer) -> bool {
    matches!(answer, Answer::Batch { committed: true, .. } | Answer::Committed)
}

#[test]
fn autocommit_writes_are_seen_at_every_replica() {
    for seed in 1..=super::seeds(SEEDS) {
        for replicas in 1..=4 {
            let mut c = Cluster::new(seed, replicas);
            for id in 0..20 {
                let node = NodeId(1 + (id as u16 % replicas));
                let answer = c.auto(node, id as u64 + 1, TestOp { u: Some(id), ..op(OpKind::Insert, id, 100 + id) });
                assert!(committed(&answer), "{answer:?}");
                // Right after the acknowledgement any replica must show it or send us to the primary.
                for n in 1..=replicas {
                    let request = c.read(NodeId(n), TransId::NONE, &[id]);
                    let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
                    if let Some(row) = &rows[0] {
                        assert_eq!(c.value(row), 100 + id);
                    }
                }
            }
            c.quiesce();
            for n in 1..=replicas {
                let request = c.read(NodeId(n), TransId::NONE, &(0..20).collect::<Vec<_>>());
                let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
                assert!(rows.iter().all(Option::is_some), "seed {seed}, node {n}: a complete row is missing");
            }
            assert!(!c.dump().contains("  transaction "), "records are left:\n{}", c.dump());
        }
    }
}

/// Each of them waits for all before it. A probe for a deadlock that took every way through the queue would never end.
#[test]
fn a_long_queue_for_one_row_costs_little() {
    let mut c = Cluster::new(1, 2);
    assert!(committed(&c.auto(ONE, 1, op(OpKind::Insert, 1, 10))));
    let node = c.primary_of(1);
    let holder = c.batch(node, trans(2), START, 1, &[op(OpKind::Update, 1, 1)]);
    assert!(matches!(c.wait(holder), Answer::Batch { committed: false, .. }));
    let waiting: Vec<u64> =
        (3..203).map(|seq| c.batch(node, trans(seq), START | COMMIT, 1, &[op(OpKind::Update, 1, 1)])).collect();
    let executed = |c: &Cluster| c.workers[&node].counters().executed;
    let before = executed(&c);
    (0..15).for_each(|_| c.pass(10));
    let signals = executed(&c) - before;
    assert!(signals < 200_000, "{signals} signals for a queue of 200");
    let end = c.end(node, Kind::TcCommitReq, trans(2), 0);
    assert_eq!(c.wait(end), Answer::Committed);
    for request in waiting {
        let answer = c.wait(request);
        assert!(committed(&answer) || matches!(answer, Answer::Refused { code: ErrorCode::LockTimeout, .. }));
    }
}

/// 1,000 operations of each batch lie in the coordinator's records until the batch is answered, and it is not while its rows are locked.
#[test]
fn batches_beyond_the_memory_for_transactions_are_refused_for_a_while() {
    let mut c = Cluster::new(1, 1);
    assert!(committed(&c.auto(ONE, 1, op(OpKind::Insert, 1, 10))));
    let holder = c.batch(ONE, trans(2), START, 1, &[op(OpKind::Update, 1, 1)]);
    assert!(matches!(c.wait(holder), Answer::Batch { committed: false, .. }));
    let ops: Vec<TestOp> = (0..1000).map(|n| op(OpKind::Update, 1, n)).collect();
    let mut refused = None;
    for seq in 3..2000 {
        let request = c.batch(ONE, trans(seq), START, 1, &ops);
        (0..20).for_each(|_| _ = c.step());
        if let Some(Answer::Refused { code, .. }) = c.answers.get(&request) {
            refused = Some((seq, *code));
            break;
        }
    }
    let (seq, code) = refused.expect("memory ends");
    assert!(code == ErrorCode::Overload && code.is_temporary(), "{code:?}");
    assert!(seq > 100, "refused after {seq}");
    // The others give up, or are given up, and there is room again.
    let end = c.end(ONE, Kind::TcRollbackReq, trans(2), 0);
    c.wait(end);
    (0..50).for_each(|_| c.pass(100));
    for seq in 3..seq {
        let end = c.end(ONE, Kind::TcRollbackReq, trans(seq), 0);
        c.wait(end);
    }
    c.pass(100);
    let again = c.batch(ONE, trans(5000), START | COMMIT, 1, &ops[..1]);
    assert!(committed(&c.wait(again)));
    c.quiesce();
    c.workers.values().for_each(|worker| worker.verify().expect("all is counted"));
}

#[test]
fn statements_roll_back_to_their_savepoint_and_transactions_whole() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        assert!(committed(&c.auto(ONE, 1, op(OpKind::Insert, 1, 10))));
        let t = trans(2);
        let first = c.batch(ONE, t, START, 1, &[op(OpKind::Update, 1, 5), op(OpKind::Insert, 2, 20)]);
        assert!(matches!(c.wait(first), Answer::Batch { committed: false, .. }));
        let bad =
            c.batch(ONE, t, 0, 2, &[op(OpKind::Insert, 3, 30), op(OpKind::Update, 1, 100), op(OpKind::Insert, 2, 21)]);
        let answer = c.wait(bad);
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, aborted: false, .. }), "{answer:?}");
        // The transaction sees its own changes, others do not.
        let own = c.read(ONE, t, &[1]);
        let others = c.read(ONE, TransId::NONE, &[1, 2, 3]);
        if let Answer::Rows(rows) = c.wait(own) {
            assert_eq!(rows[0].as_ref().map(|r| c.value(r)), Some(15));
        }
        if let Answer::Rows(rows) = c.wait(others) {
            assert!(rows[1].is_none() && rows[2].is_none());
        }
        let end = c.end(ONE, Kind::TcCommitReq, t, 0);
        assert_eq!(c.wait(end), Answer::Committed);
        c.quiesce();
        for node in [ONE, TWO] {
            let request = c.read(node, TransId::NONE, &[1, 2, 3]);
            let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
            let values: Vec<Option<i64>> = rows.iter().map(|r| r.as_ref().map(|r| c.value(r))).collect();
            assert_eq!(values, [Some(15), Some(20), None], "seed {seed} node {node}");
        }
        let t = trans(3);
        let all = c.batch(TWO, t, START, 1, &[op(OpKind::Delete, 1, 0), op(OpKind::Delete, 2, 0)]);
        c.wait(all);
        let end = c.end(TWO, Kind::TcRollbackReq, t, 0);
        assert_eq!(c.wait(end), Answer::RolledBack);
        c.quiesce();
        assert!(!c.dump().contains("  transaction "), "{}", c.dump());
    }
}

#[test]
fn statuses_where_flags_allow_them() {
    let mut c = Cluster::new(3, 2);
    c.auto(ONE, 1, op(OpKind::Insert, 1, 10));
    let ops = [
        TestOp { flags: ALLOW_DUPLICATE, ..op(OpKind::Insert, 1, 11) },
        TestOp { flags: ALLOW_MISSING, ..op(OpKind::Delete, 9, 0) },
        op(OpKind::Update, 1, 0),
        op(OpKind::ReadExclusive, 1, 0),
        op(OpKind::Write, 1, 12),
    ];
    let request = c.batch(ONE, trans(2), START | COMMIT, 1, &ops);
    let Answer::Batch { statuses, rows, committed } = c.wait(request) else { panic!("refused") };
    use OpStatus::{Done, Duplicate, NotFound, Unchanged};
    assert_eq!((statuses, committed), (vec![Duplicate, NotFound, Unchanged, Done, Done], true));
    assert_eq!(c.value(&rows[3]), 10);
}

#[test]
fn unique_indexes_are_kept_by_the_coordinator() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        assert!(committed(&c.auto(ONE, 1, TestOp { u: Some(5), ..op(OpKind::Insert, 1, 1) })));
        let answer = c.auto(TWO, 2, TestOp { u: Some(5), ..op(OpKind::Insert, 2, 2) });
        assert!(
            matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, aborted: true, index: 1, .. }),
            "{answer:?}"
        );
        assert!(committed(&c.auto(ONE, 3, TestOp { u: Some(6), ..op(OpKind::Write, 1, 1) })));
        assert!(committed(&c.auto(TWO, 4, TestOp { u: Some(5), ..op(OpKind::Insert, 2, 2) })));
        assert!(committed(&c.auto(TWO, 5, op(OpKind::Delete, 1, 0))));
        assert!(committed(&c.auto(TWO, 6, TestOp { u: Some(6), ..op(OpKind::Insert, 3, 2) })));
        c.quiesce();
        let request = c.read(ONE, TransId::NONE, &[1, 2, 3]);
        let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
        assert_eq!(rows.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true]);
    }
}

/// Whoever takes an entry that is not free is named by its number in the batch, in whatever part of it that is.
#[test]
fn the_operation_that_finds_a_duplicate_is_named() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        let with = |id, u| TestOp { u: Some(u), ..op(OpKind::Insert, id, 1) };
        assert!(committed(&c.auto(ONE, 1, with(100, 5))));
        let wanted = (seed % 9) as u16;
        let ops: Vec<_> = (0..9).map(|i| with(i, if i == i64::from(wanted) { 5 } else { 50 + i })).collect();
        let request = c.batch(TWO, trans(2), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        let Answer::Refused { code: ErrorCode::DuplicateKey, index: 1, op, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(op, wanted, "seed {seed}");
    }
}

/// Deletes of index entries go before inserts, but not before those that made the entry.
#[test]
fn an_entry_made_and_removed_by_one_batch_is_gone() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        let with = |kind, id, u| TestOp { u: Some(u), ..op(kind, id, 1) };
        let ops = [with(OpKind::Insert, 1, 5), op(OpKind::Delete, 1, 0), with(OpKind::Insert, 2, 5)];
        let request = c.batch(ONE, trans(1), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        assert!(committed(&answer), "{answer:?}");
        // There and back: the entry stays.
        let ops = [with(OpKind::Write, 2, 6), with(OpKind::Write, 2, 5)];
        let request = c.batch(ONE, trans(2), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        assert!(committed(&answer), "{answer:?}");
        assert!(committed(&c.auto(ONE, 3, with(OpKind::Insert, 3, 6))));
        let answer = c.auto(TWO, 4, with(OpKind::Insert, 4, 5));
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, index: 1, .. }), "{answer:?}");
        assert!(committed(&c.auto(TWO, 5, op(OpKind::Delete, 2, 0))));
        assert!(committed(&c.auto(TWO, 6, with(OpKind::Insert, 4, 5))));
    }
}

/// One part of a batch frees the entry that another takes: no order of their answers makes that a duplicate.
#[test]
fn entries_change_hands_within_one_batch() {
    const ROWS: i64 = 8;
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        let with = |kind, id, u| TestOp { u: Some(u), ..op(kind, id, 1) };
        let ops: Vec<_> = (1..=ROWS).map(|id| with(OpKind::Insert, id, id)).collect();
        let request = c.batch(ONE, trans(1), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        assert!(committed(&answer), "{answer:?}");
        let ops: Vec<_> = (1..=ROWS).map(|id| with(OpKind::Write, id, id % ROWS + 1)).collect();
        let request = c.batch(ONE, trans(2), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        assert!(committed(&answer), "seed {seed}: {answer:?}");
        let ops = [op(OpKind::Delete, 1, 0), with(OpKind::Insert, ROWS + 1, 2)];
        let request = c.batch(TWO, trans(3), START | COMMIT, 1, &ops);
        let answer = c.wait(request);
        assert!(committed(&answer), "seed {seed}: {answer:?}");
        let answer = c.auto(TWO, 4, with(OpKind::Insert, 20, 1));
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, index: 1, .. }), "{answer:?}");
    }
}

/// Two parts of a statement wait for one entry of a unique index and get it together; the second finds a duplicate. The lock stays with
/// what the first has done, though the statement is undone.
#[test]
fn a_lock_granted_to_two_parts_is_given_back_once() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        let with = |id, u| TestOp { u: Some(u), ..op(OpKind::Insert, id, 1) };
        let (first, second) = (trans(1), trans(2));
        let request = c.batch(ONE, first, START, 1, &[with(9, 5)]);
        assert!(matches!(c.wait(request), Answer::Batch { .. }));
        // In most pairs the rows are in different partitions.
        let waits = c.batch(TWO, second, START, 1, &[with(1, 5), with(2 + seed as i64 % 7, 5)]);
        c.pass(20);
        let end = c.end(ONE, Kind::TcRollbackReq, first, 0);
        assert_eq!(c.wait(end), Answer::RolledBack);
        let answer = c.wait(waits);
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, aborted: false, .. }), "{answer:?}");
        let third = c.batch(ONE, trans(3), START | COMMIT, 1, &[with(20, 5)]);
        c.pass(20);
        let end = c.end(TWO, Kind::TcCommitReq, second, 0);
        assert_eq!(c.wait(end), Answer::Committed);
        let answer = c.wait(third);
        assert!(committed(&answer), "{answer:?}");
        c.quiesce();
        assert!(!c.dump().contains("  transaction "), "records are left:\n{}", c.dump());
    }
}

#[test]
fn a_deadlock_ends_with_one_victim_and_names_the_cycle() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        for id in 1..=3 {
            c.auto(ONE, id as u64, op(OpKind::Insert, id, 0));
        }
        let ids = [trans(11), trans(12), trans(13)];
        let tcs = [ONE, TWO, ONE];
        for (i, &t) in ids.iter().enumerate() {
            let request = c.batch(tcs[i], t, START, 1, &[op(OpKind::Update, 1 + i as i64, 1)]);
            assert!(matches!(c.wait(request), Answer::Batch { .. }));
        }
        let waits: Vec<u64> =
            (0..3).map(|i| c.batch(tcs[i], ids[i], 0, 2, &[op(OpKind::Update, 1 + (i as i64 + 1) % 3, 1)])).collect();
        c.pass(100);
        let victim = c.answers.remove(&waits[2]);
        let Some(Answer::Refused { code: ErrorCode::Deadlock, aborted: true, detail, .. }) = victim else {
            panic!("seed {seed}: {victim:?}")
        };
        assert!(detail.contains("waits for"), "{detail}");
        assert!(matches!(c.wait(waits[1]), Answer::Batch { .. }));
        let end = c.end(tcs[1], Kind::TcCommitReq, ids[1], 0);
        assert_eq!(c.wait(end), Answer::Committed);
        assert!(matches!(c.wait(waits[0]), Answer::Batch { .. }));
    }
}

#[test]
fn a_lock_wait_ends_in_time() {
    let mut c = Cluster::new(5, 2);
    c.auto(ONE, 1, op(OpKind::Insert, 1, 0));
    let holder = c.batch(ONE, trans(2), START, 1, &[op(OpKind::Update, 1, 1)]);
    c.wait(holder);
    let waiter = c.batch(ONE, trans(3), START, 1, &[op(OpKind::Update, 1, 1)]);
    c.pass(150);
    assert!(!c.answers.contains_key(&waiter));
    c.pass(100);
    let answer = c.answers.remove(&waiter);
    assert!(matches!(answer, Some(Answer::Refused { code: ErrorCode::LockTimeout, aborted: false, .. })), "{answer:?}");
}

/// Two wait for one row and both times end in one round: the end of the first lets the second in, which then ends, too.
#[test]
fn a_wait_that_ends_as_it_is_granted_leaves_no_lock() {
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        c.auto(ONE, 1, op(OpKind::Insert, 1, 0));
        let holder = c.batch(ONE, trans(2), START, 1, &[op(OpKind::ReadShared, 1, 0)]);
        assert!(matches!(c.wait(holder), Answer::Batch { .. }));
        let writer = c.batch(ONE, trans(3), START, 1, &[op(OpKind::Update, 1, 1)]);
        let reader = c.batch(ONE, trans(4), START, 1, &[op(OpKind::ReadShared, 1, 0)]);
        c.pass(300);
        for (request, t) in [(writer, trans(3)), (reader, trans(4))] {
            // Where the reader came first it was let in at once.
            assert!(c.answers.remove(&request).is_some());
            let end = c.end(ONE, Kind::TcRollbackReq, t, 0);
            c.wait(end);
        }
        let end = c.end(ONE, Kind::TcCommitReq, trans(2), 0);
        assert_eq!(c.wait(end), Answer::Committed);
        let answer = c.auto(TWO, 5, op(OpKind::Update, 1, 1));
        assert!(committed(&answer), "seed {seed}: {answer:?}");
    }
}

#[test]
fn a_client_that_leaves_leaves_no_locks() {
    let mut c = Cluster::new(6, 2);
    c.auto(ONE, 1, op(OpKind::Insert, 1, 0));
    let request = c.batch(TWO, trans(2), START, 1, &[op(OpKind::Update, 1, 1)]);
    c.wait(request);
    c.tell(TWO, BlockId::Tc, Kind::ClientGoneRep, &NodeId::CLIENT_BASE.to_le_bytes());
    c.quiesce();
    assert!(!c.dump().contains("  transaction "), "{}", c.dump());
}

/// The drop of an index is heard by one node after the other. Until all have heard it some primaries send entries to where their table is gone, and a statement may wait
/// for an entry when that goes: nobody is refused for it.
#[test]
fn nobody_is_refused_for_the_entries_of_an_index_that_is_dropped() {
    let entered = |id: i64, u: i64| TestOp { u: Some(u), ..op(OpKind::Insert, id, id) };
    for seed in 1..=super::seeds(SEEDS) {
        let mut c = Cluster::new(seed, 2);
        let holder = c.batch(ONE, trans(1), START, 1, &[entered(1, 5)]);
        assert!(matches!(c.wait(holder), Answer::Batch { committed: false, .. }), "seed {seed}");
        let waiter = c.batch(TWO, trans(2), START | COMMIT, 1, &[entered(2, 5)]);
        c.pass(20);
        assert!(!c.answers.contains_key(&waiter), "seed {seed}: it waits for the entry");
        let mut changed = c.schema.clone();
        changed.version = 2;
        for node in [1, 2] {
            c.define(NodeId(node), &changed);
        }
        changed.indexes.clear();
        for node in [1 + seed as u16 % 2, 2 - seed as u16 % 2] {
            c.define(NodeId(node), &changed);
            c.drop_table(NodeId(node), HIDDEN);
            for id in 0..8 {
                let id = 10 * i64::from(node) + id;
                let answer = c.auto(NodeId(1 + id as u16 % 2), id as u64, entered(id, id));
                assert!(committed(&answer), "seed {seed}: {answer:?}");
            }
        }
        let answer = c.wait(waiter);
        assert!(committed(&answer), "seed {seed}: {answer:?}");
        let end = c.end(ONE, Kind::TcCommitReq, trans(1), 0);
        assert_eq!(c.wait(end), Answer::Committed, "seed {seed}");
        c.quiesce();
        assert_eq!(c.values(ONE, &[1, 2, 10, 27]), [Some(1), Some(2), Some(10), Some(27)], "seed {seed}");
    }
}

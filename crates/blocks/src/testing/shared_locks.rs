//! Locks for reading are at primaries alone. When one dies, whoever held them there must not go on as if they still kept others away.

use std::ops::Bound;

use apus_signal::{
    BlockId, Kind,
    scan::{ScanConf, ScanSpec},
    tc::{ALLOW_MISSING, COMMIT, OpKind, OpStatus, START},
};
use apus_types::{Chain, Epoch, ErrorCode, IndexNo, NodeId, TransId, hash::hash_key};

use super::{Answer, Cluster, TABLE, TestOp, op, seeds, trans};
use crate::ldm::Slices;

/// Node 3 is the parent's primary and dies, node 1 is its backup and coordinates who takes the parent away. The child is at 2 and 1. Node 4 has
/// neither, coordinates who adds the child, and hears of the death last.
const DEAD: NodeId = NodeId(3);
const ADDS: NodeId = NodeId(4);
const TAKES: NodeId = NodeId(1);
const KEEPS: NodeId = NodeId(2);

fn cluster(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 4);
    let chains = [Chain::new(&[DEAD, TAKES]).0, Chain::new(&[KEEPS, TAKES]).0];
    c.view.chains = chains.repeat(2);
    c.commit_view();
    c.quiesce();
    c
}

/// Who takes the parent away: first the parent, then a look for children, then the end.
enum Taking {
    Deletes(u64),
    Looks(u64),
    Ends(u64),
    Over { committed: bool },
}

impl Taking {
    fn begin(c: &mut Cluster, parent: i64) -> Taking {
        Taking::Deletes(c.batch(TAKES, trans(2), START, 1, &[op(OpKind::Delete, parent, 0)]))
    }

    /// By a batch or by a scan at the primary that shows what is not committed, which takes no lock if there is nothing.
    fn look(c: &mut Cluster, child: i64, scans: bool) -> Taking {
        if scans {
            return Taking::Looks(scan(c, child));
        }
        let look = TestOp { flags: ALLOW_MISSING, ..op(OpKind::ReadShared, child, 0) };
        Taking::Looks(c.batch(TAKES, trans(2), 0, 2, &[look]))
    }

    fn end(c: &mut Cluster, is_free: bool) -> Taking {
        let kind = if is_free { Kind::TcCommitReq } else { Kind::TcRollbackReq };
        Taking::Ends(c.end(TAKES, kind, trans(2), 0))
    }

    fn go_on(self, c: &mut Cluster, child: i64, scans: bool) -> Taking {
        let (Taking::Deletes(request) | Taking::Looks(request) | Taking::Ends(request)) = self else { return self };
        let Some(answer) = c.answers.remove(&request) else { return self };
        match (self, answer) {
            (Taking::Deletes(_), Answer::Batch { .. })
            | (Taking::Looks(_), Answer::Refused { code: ErrorCode::WrongView, aborted: false, .. }) => {
                Taking::look(c, child, scans)
            }
            (Taking::Looks(_), Answer::Batch { statuses, .. }) => Taking::end(c, statuses == [OpStatus::NotFound]),
            (Taking::Looks(_), Answer::Other(Kind::ScanConf, page)) => {
                Taking::end(c, ScanConf::decode(&page).expect("a page").count == 0)
            }
            (Taking::Ends(_), Answer::Committed) => Taking::Over { committed: true },
            (_, Answer::RolledBack | Answer::Refused { .. }) => Taking::Over { committed: false },
            (_, other) => panic!("unexpected answer {other:?}"),
        }
    }
}

fn scan(c: &mut Cluster, child: i64) -> u64 {
    let partition = c.view.partition_of(hash_key(&c.key(child)));
    c.request(KEEPS, BlockId::Ldm, Kind::ScanReq, |out, request| {
        let spec = ScanSpec {
            request,
            trans: TransId::NONE,
            snapshot: Epoch(0),
            table: TABLE,
            schema_version: 1,
            index: IndexNo(0),
            reverse: false,
            with_keys: false,
            with_pending: true,
            with_moment: false,
            rows_max: 10,
            bytes_max: 1000,
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            columns: None,
            partitions: &[partition],
            aggregates: &[],
            grouping: &[],
            filter: &[],
        };
        spec.encode(out);
    })
}

/// Shares a lock on the parent, and adds its child while the node with the lock is gone and not everybody knows that.
#[test]
fn a_lock_that_died_with_its_primary_protects_nobodys_later_writes() {
    let (mut added, mut taken) = (0, 0);
    for seed in 1..=seeds(600) {
        let mut c = cluster(seed);
        let of = |c: &Cluster, primary: NodeId| {
            (0..64).find(|&id| c.primary_of(id) == primary).expect("a row of each primary")
        };
        let (parent, child) = (of(&c, DEAD), of(&c, KEEPS));
        c.auto(TAKES, 9, op(OpKind::Insert, parent, 1));
        let shares = c.batch(ADDS, trans(1), START, 1, &[op(OpKind::ReadShared, parent, 0)]);
        assert!(matches!(c.wait(shares), Answer::Batch { .. }));
        c.quiesce();
        c.kill(DEAD);
        c.drop_from_view(&[DEAD]);
        let mut taking = Some(Taking::begin(&mut c, parent));
        let mut adding = None;
        let adds_at = c.rng.below(400);
        let mut steps = 0;
        let mut go = |c: &mut Cluster, most: usize| {
            for _ in 0..most {
                if steps == adds_at {
                    adding = Some(c.batch(ADDS, trans(1), COMMIT, 2, &[op(OpKind::Insert, child, 1)]));
                }
                steps += 1;
                if !c.step() {
                    c.advance(100_000, 1);
                }
                taking = taking.take().map(|t| t.go_on(c, child, seed % 2 == 0));
            }
        };
        c.spread_view(&mut |c| {
            let most = c.rng.below(400);
            go(c, most);
        });
        go(&mut c, 4000);
        c.quiesce();
        let adding = adding.map(|request| c.wait(request));
        let values = c.values(TAKES, &[parent, child]);
        let context = format!("seed {seed}: adding {adding:?}, parent and child {values:?}\n{}", c.dump());
        let is_added = matches!(adding, Some(Answer::Batch { committed: true, .. }));
        let Some(Taking::Over { committed: is_taken }) = taking else { panic!("the taking does not end, {context}") };
        assert_eq!(values, [(!is_taken).then_some(1), is_added.then_some(1)], "{context}");
        assert!(!(is_added && is_taken), "a child without a parent, {context}");
        assert!(!c.dump().contains("  transaction "), "records are left, {context}");
        added += u32::from(is_added);
        taken += u32::from(is_taken);
    }
    assert!(taken > 0, "{added} children added, {taken} parents taken away");
}

/// A lock for reading takes memory of its own, which is counted: who locks too many rows is refused, and has others served once it is over.
#[test]
fn locks_for_reading_have_their_memory_counted() {
    const BATCH: i64 = 1_000;
    let mut c = Cluster::new(3, 1);
    let batch = |kind: OpKind, number: i64| -> Vec<TestOp> {
        (number * BATCH..(number + 1) * BATCH).map(|id| op(kind, id, 1)).collect()
    };
    let rows = (0..250).find(|number| {
        let request =
            c.batch(NodeId(1), trans(1_000 + *number as u64), START | COMMIT, 1, &batch(OpKind::Insert, *number));
        !matches!(c.wait(request), Answer::Batch { committed: true, .. })
    });
    let rows = rows.unwrap_or(250);
    let refused = (0..rows).find_map(|number| {
        c.advance(apus_kernel::limits::TICK_NS, 1);
        let start = if number == 0 { START } else { 0 };
        let request = c.batch(NodeId(1), trans(1), start, 1 + number as u32, &batch(OpKind::ReadShared, number));
        match c.wait(request) {
            Answer::Batch { .. } => None,
            Answer::Refused { code, .. } => Some((number, code)),
            other => panic!("{other:?}"),
        }
    });
    assert!(
        refused.is_some_and(|(number, code)| number > 10 && code == ErrorCode::OutOfMemory),
        "{refused:?} of {rows}"
    );
    let end = c.end(NodeId(1), Kind::TcRollbackReq, trans(1), 0);
    let is_over = (0..2_000).any(|_| {
        c.advance(apus_kernel::limits::TICK_NS, 40);
        c.answers.remove(&end).is_some()
    });
    assert!(is_over, "{}", c.dump());
    let request = c.batch(NodeId(1), trans(2), START | COMMIT, 1, &[op(OpKind::ReadShared, 5, 0)]);
    assert!(matches!(c.wait(request), Answer::Batch { committed: true, .. }), "its memory is given back");
}

/// One row is given free, and three hundred readers wait for it: they go on some in a turn. Some give up before theirs, the others end, and the row is free again.
#[test]
fn many_that_wait_for_one_row_go_on_in_slices() {
    for seed in 0..seeds(8) {
        let rows = [1, 3, 32][seed as usize % 3];
        let mut c = Cluster::with_limits(seed, 2, Slices { rows, parts: 1, pause_ns: 0 }, u64::MAX);
        let primary = c.primary_of(1);
        let other = NodeId(3 - primary.0);
        c.auto(primary, 1, op(OpKind::Insert, 1, 10));
        let held = c.batch(primary, trans(2), START, 1, &[op(OpKind::Update, 1, 20)]);
        c.wait(held);
        let readers: Vec<u64> = (100..400).collect();
        let read = |c: &mut Cluster, n: &u64| c.batch(other, trans(*n), START, 1, &[op(OpKind::ReadShared, 1, 0)]);
        let asked: Vec<u64> = readers.iter().map(|n| read(&mut c, n)).collect();
        c.quiesce();
        assert!(asked.iter().all(|request| !c.answers.contains_key(request)), "seed {seed}: somebody does not wait");
        c.busiest = 0;
        let end = c.end(primary, Kind::TcCommitReq, trans(2), 0);
        let mut gave_up: Vec<u64> = Vec::new();
        for n in readers.iter().rev().take(40) {
            for _ in 0..c.rng.below(4) {
                c.step();
            }
            gave_up.push(c.end(other, Kind::TcRollbackReq, trans(*n), 0));
        }
        assert_eq!(c.wait(end), Answer::Committed);
        c.quiesce();
        assert!(c.busiest <= u64::from(rows) + 4, "seed {seed}: {} answers in one turn", c.busiest);
        for (n, request) in readers.iter().zip(&asked).take(260) {
            let answer = c.answers.remove(request);
            assert!(matches!(answer, Some(Answer::Batch { .. })), "seed {seed}: {n} is told {answer:?}");
            gave_up.push(c.end(other, Kind::TcRollbackReq, trans(*n), 0));
        }
        gave_up.into_iter().for_each(|end| assert_eq!(c.wait(end), Answer::RolledBack, "seed {seed}"));
        assert!(matches!(c.auto(other, 3, op(OpKind::Update, 1, 30)), Answer::Batch { committed: true, .. }));
        c.pass(5);
        c.workers.values().for_each(|worker| worker.verify().expect("at rest"));
    }
}

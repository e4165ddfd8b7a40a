//! Regions of memory at their limits: the request that would go beyond one is refused, everything else goes on, and once the cause is gone it is served.

use apus_signal::tc::{COMMIT, OpKind, START};
use apus_storage::{MemoryManager, PAGE_BYTES, Region};
use apus_types::{ErrorCode, NodeId};

use super::{Answer, Cluster, MEMORY, TestOp, op, trans};
use crate::ldm::Slices;

const ONE: NodeId = NodeId(1);
const BATCH: i64 = 500;

/// Two replicas of which a region may take so many bytes.
fn limited(region: Region, maximum: u64) -> Cluster {
    let mut regions = MemoryManager::usual_limits(MEMORY);
    (regions[region as usize].reserved, regions[region as usize].maximum) = (0, maximum);
    Cluster::with_memory(7, 2, Slices { rows: 256, parts: 4, pause_ns: 0 }, u64::MAX, regions)
}

fn used(c: &Cluster, node: NodeId, region: Region) -> u64 {
    c.memories[&node].usage().find(|u| u.region == region).map_or(0, |u| u.used)
}

fn many(kind: OpKind, number: i64) -> Vec<TestOp> {
    (number * BATCH..(number + 1) * BATCH).map(|id| op(kind, id, 1)).collect()
}

/// One transaction of its own.
fn run(c: &mut Cluster, seq: u64, ops: &[TestOp]) -> Result<(), ErrorCode> {
    let request = c.batch(ONE, trans(seq), START | COMMIT, 1, ops);
    match c.wait(request) {
        Answer::Batch { committed: true, .. } => Ok(()),
        Answer::Refused { code, .. } => {
            // One that was not aborted by its refusal is undone by its client.
            let end = c.end(ONE, apus_signal::Kind::TcRollbackReq, trans(seq), 0);
            c.wait(end);
            Err(code)
        }
        other => panic!("{other:?}"),
    }
}

/// Inserts batches until one is refused: how many were not, and why that one was.
fn fill(c: &mut Cluster) -> (i64, ErrorCode) {
    (0..10_000)
        .find_map(|n| run(c, 1 + n as u64, &many(OpKind::Insert, n)).err().map(|code| (n, code)))
        .expect("refused")
}

/// What both regions of rows have in common at their limits.
fn rows_at_the_limit(region: Region) {
    let mut c = limited(region, 6 << 20);
    let (batches, code) = fill(&mut c);
    assert!(batches > 2 && code == ErrorCode::OutOfMemory, "{batches} {code:?}");
    let full = |node: &NodeId| {
        let of = c.memories[node].usage().find(|u| u.region == region).expect("it is there");
        of.room < 2 * PAGE_BYTES as u64 && of.refused > 0
    };
    assert!([ONE, NodeId(2)].iter().any(full), "{}", c.dump());
    // Reads go on, of what is there and of what was refused; so do changes.
    let last = batches * BATCH;
    assert_eq!(c.values(ONE, &[0, last - 1, last]), [Some(1), Some(1), None]);
    assert_eq!(run(&mut c, 20_000, &many(OpKind::Update, 0)), Ok(()));
    c.pass(2_000); // a backup tells rows when the change is over everywhere
    assert_eq!(c.values(NodeId(2), &[0]), [Some(2)]);
    for n in 0..batches / 2 {
        assert_eq!(run(&mut c, 30_000 + n as u64, &many(OpKind::Delete, n)), Ok(()));
    }
    c.pass(2_000);
    // An ordered index takes more for rows that come between others.
    for n in 0..batches / 8 {
        assert_eq!(run(&mut c, 40_000 + n as u64, &many(OpKind::Insert, n)), Ok(()), "{n} of {batches}");
    }
    c.quiesce();
}

#[test]
fn inserts_are_refused_when_data_memory_is_full() {
    rows_at_the_limit(Region::Data);
}

#[test]
fn inserts_are_refused_when_index_memory_is_full() {
    rows_at_the_limit(Region::Index);
}

/// A transaction that changes more than there is memory for is refused; readers and others go on, and its end gives everything back.
#[test]
fn a_transaction_is_refused_when_transaction_memory_is_full() {
    let mut c = limited(Region::Transaction, 3 << 20);
    let batches = 60;
    for n in 0..batches {
        assert_eq!(run(&mut c, 1 + n as u64, &many(OpKind::Insert, n)), Ok(()));
    }
    c.pass(50);
    let refused = (0..10 * batches).find_map(|n| {
        let flags = if n == 0 { START } else { 0 };
        let request = c.batch(ONE, trans(1_000), flags, 1 + n as u32, &many(OpKind::Update, n % batches));
        match c.wait(request) {
            Answer::Refused { code, .. } => Some(code),
            _ => None,
        }
    });
    assert_eq!(refused, Some(ErrorCode::OutOfMemory));
    assert_eq!(c.values(ONE, &[0, 1]), [Some(1), Some(1)]);
    let end = c.end(ONE, apus_signal::Kind::TcRollbackReq, trans(1_000), 0);
    c.wait(end);
    c.pass(100);
    assert!(used(&c, ONE, Region::Transaction) < 1 << 20, "what some transactions need is kept");
    assert_eq!(run(&mut c, 2_000, &many(OpKind::Update, 0)), Ok(()));
}

/// Batches that wait for a row are kept whole. With no more memory none waits: it is told so, and the row's holder goes on.
#[test]
fn nobody_waits_for_a_row_where_there_is_no_memory_for_it() {
    let mut c = limited(Region::Transaction, 4 << 20);
    assert_eq!(run(&mut c, 1, &many(OpKind::Insert, 0)), Ok(()));
    let request = c.batch(ONE, trans(2), START, 1, &[op(OpKind::Update, 0, 1)]);
    assert!(matches!(c.wait(request), Answer::Batch { .. }));
    let mut waiting: Vec<u64> = Vec::new();
    let mut refused = None;
    for n in 0..2_000 {
        let ops: Vec<TestOp> = many(OpKind::Update, 0);
        waiting.push(c.batch(ONE, trans(10 + n), START | COMMIT, 1, &ops));
        c.advance(apus_kernel::limits::TICK_NS / 10, 200);
        refused = waiting.iter().find_map(|request| match c.answers.get(request) {
            Some(Answer::Refused { code: ErrorCode::OutOfMemory | ErrorCode::Overload, .. }) => Some(*request),
            _ => None,
        });
        if refused.is_some() {
            break;
        }
    }
    assert!(refused.is_some(), "{} wait", waiting.len());
    assert_eq!(c.values(ONE, &[1]), [Some(1)]);
    let end = c.end(ONE, apus_signal::Kind::TcCommitReq, trans(2), 0);
    assert_eq!(c.wait(end), Answer::Committed);
    c.pass(1_000);
    assert_eq!(run(&mut c, 9_999, &[op(OpKind::Update, 0, 1)]), Ok(()));
}

//! Claims of prepared branches: who waits for them, who does not, and what a transaction holds that is to become one.

use std::{collections::BTreeSet, ops::Bound};

use apus_signal::{
    BlockId, Kind,
    codec::patch_u16,
    held::{HELD, HeldRow},
    scan::{ScanConf, ScanSpec},
    tc::{COMMIT, NO_WAIT, Op, OpKind, START, TcBatchReq},
};
use apus_types::{
    Epoch, ErrorCode, NodeId, PartitionId, TableId, TableSchema, TransId,
    claims::{Claim, ClaimKind, claims_definition},
    hash::hash_key,
};

use super::{Answer, Cluster, TABLE, TestOp, op, seeds, trans};

const CLAIMS: TableId = TableId(30);
const NODE: NodeId = NodeId(1);
const ROW: i64 = 5;
/// Longer than batches of these tests wait for a lock.
const LONG_MS: u64 = 300;

fn cluster(seed: u64) -> (Cluster, TableSchema) {
    let (mut c, mut claims) = (Cluster::new(seed, 2), claims_definition());
    claims.id = CLAIMS;
    for node in [1, 2] {
        c.define(NodeId(node), &claims);
    }
    c.quiesce();
    assert!(matches!(c.auto(NODE, 1, op(OpKind::Insert, ROW, 100)), Answer::Batch { .. }));
    (c, claims)
}

/// Makes or deletes the claim on a row.
fn claim(c: &mut Cluster, claims: &TableSchema, id: TransId, flags: u8, (op, kind): (OpKind, ClaimKind)) -> Answer {
    let row = c.key(ROW);
    let hash = hash_key(&row);
    let claim = Claim { table: TABLE, branch: 9, number: 0, hash, kind, more: false, key: &row, image: &[] };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    claim.encode_key(&mut key);
    if op == OpKind::Insert {
        claim.encode_row(claims, &mut value).expect("a short row");
    }
    let partition = c.view.partition_of(hash);
    let request = c.request(NODE, BlockId::Tc, Kind::TcBatchReq, |out, request| {
        let at = TcBatchReq::begin(out, request, id, flags, 1, 200);
        Op { kind: op, flags: 0, partition, table: CLAIMS, schema_version: 1, key: &key, value: &value }.encode(out);
        patch_u16(out, at, 1);
    });
    c.wait(request)
}

fn is_refused(answer: &Answer, wanted: ErrorCode) -> bool {
    matches!(answer, Answer::Refused { code, .. } if *code == wanted)
}

#[test]
fn a_claimed_row_is_for_who_ends_the_branch() {
    for seed in 0..seeds(30) {
        let (mut c, claims) = cluster(seed);
        let made = claim(&mut c, &claims, trans(2), START | COMMIT, (OpKind::Insert, ClaimKind::Write));
        assert!(matches!(made, Answer::Batch { .. }), "{made:?}");
        let late = c.auto(NODE, 3, op(OpKind::Update, ROW, 1));
        assert!(is_refused(&late, ErrorCode::LockTimeout), "{late:?}");
        let now = c.auto(NODE, 4, TestOp { flags: NO_WAIT, ..op(OpKind::ReadShared, ROW, 0) });
        assert!(is_refused(&now, ErrorCode::LockNotAvailable), "{now:?}");
        let waits = c.batch(NODE, trans(5), START | COMMIT, 1, &[op(OpKind::Update, ROW, 10)]);
        c.pass(50);
        assert!(!c.answers.contains_key(&waits), "a claimed row is changed");
        claim(&mut c, &claims, trans(6), START, (OpKind::Delete, ClaimKind::Write));
        let own = c.batch(NODE, trans(6), 0, 2, &[op(OpKind::Update, ROW, 1000)]);
        let own = c.wait(own);
        assert!(matches!(own, Answer::Batch { .. }), "its own claim is in its way: {own:?}");
        assert!(!c.answers.contains_key(&waits), "the branch has not ended");
        let end = c.end(NODE, Kind::TcCommitReq, trans(6), 0);
        assert!(matches!(c.wait(end), Answer::Committed));
        assert!(matches!(c.wait(waits), Answer::Batch { .. }));
        c.quiesce();
        assert_eq!(c.values(c.primary_of(ROW), &[ROW]), [Some(1110)]);
    }
}

#[test]
fn a_shared_claim_lets_readers_pass_and_a_branch_that_is_not_ended_stays() {
    for seed in 0..seeds(30) {
        let (mut c, claims) = cluster(seed);
        claim(&mut c, &claims, trans(2), START | COMMIT, (OpKind::Insert, ClaimKind::Shared));
        assert!(matches!(c.auto(NODE, 3, op(OpKind::ReadShared, ROW, 0)), Answer::Batch { .. }));
        // Whose end is rolled back leaves the claim.
        claim(&mut c, &claims, trans(4), START, (OpKind::Delete, ClaimKind::Shared));
        let end = c.end(NODE, Kind::TcRollbackReq, trans(4), 0);
        c.wait(end);
        assert!(is_refused(&c.auto(NODE, 5, op(OpKind::Update, ROW, 1)), ErrorCode::LockTimeout));
        // A claim that is not committed is in the way, too: its transaction may be committing.
        claim(&mut c, &claims, trans(6), START | COMMIT, (OpKind::Delete, ClaimKind::Shared));
        claim(&mut c, &claims, trans(7), START, (OpKind::Insert, ClaimKind::Exclusive));
        let waits = c.batch(NODE, trans(8), START | COMMIT, 1, &[op(OpKind::Update, ROW, 1)]);
        c.pass(50);
        assert!(!c.answers.contains_key(&waits));
        let end = c.end(NODE, Kind::TcRollbackReq, trans(7), 0);
        c.wait(end);
        assert!(matches!(c.wait(waits), Answer::Batch { .. }));
    }
}

/// A waiter dies with its coordinator, and holds nobody up.
#[test]
fn who_waits_for_a_claim_may_lose_its_coordinator() {
    for seed in 0..seeds(30) {
        let (mut c, claims) = cluster(seed);
        claim(&mut c, &claims, trans(2), START | COMMIT, (OpKind::Insert, ClaimKind::Write));
        let primary = c.primary_of(ROW);
        let other = NodeId(3 - primary.0);
        c.batch(other, trans(3), START, 1, &[op(OpKind::Update, ROW, 1)]);
        c.pass(20);
        c.kill(other);
        c.remove(&[other]);
        c.quiesce();
        c.pass(LONG_MS);
        let late = c.auto(primary, 4, op(OpKind::Update, ROW, 1));
        assert!(is_refused(&late, ErrorCode::LockTimeout), "{late:?}");
        c.workers.values().for_each(|worker| worker.verify().expect("all is in order"));
    }
}

/// What the transaction holds at this node, so many rows at a time.
fn held(c: &mut Cluster, node: NodeId, id: TransId, rows_max: u32) -> Vec<(Vec<u8>, bool, bool, usize)> {
    let (mut all, mut resume) = (Vec::new(), Vec::new());
    let partitions: Vec<PartitionId> =
        (0..c.view.partition_count()).map(PartitionId).filter(|p| c.view.chain(*p).primary() == Some(node)).collect();
    loop {
        let low = if resume.is_empty() { Bound::Unbounded } else { Bound::Excluded(resume.as_slice()) };
        let request = c.request(node, BlockId::Ldm, Kind::ScanReq, |out, request| {
            let spec = ScanSpec {
                request,
                trans: id,
                snapshot: Epoch(0),
                table: CLAIMS,
                schema_version: 1,
                index: HELD,
                reverse: false,
                with_keys: false,
                with_pending: false,
                with_moment: false,
                rows_max,
                bytes_max: 1 << 20,
                low,
                high: Bound::Unbounded,
                columns: None,
                partitions: &partitions,
                aggregates: &[],
                grouping: &[],
                filter: &[],
            };
            spec.encode(out);
        });
        let Answer::Other(Kind::ScanConf, page) = c.wait(request) else { panic!("no page") };
        let page = ScanConf::decode(&page).expect("a page");
        for row in page.rows() {
            let row = HeldRow::decode(row.expect("a row").0).expect("a held row");
            if row.base == TableId(0) {
                all.push((row.key.to_vec(), row.exclusive, row.written, row.image.len()));
            }
        }
        if !page.more {
            return all;
        }
        assert!(page.resume > resume.as_slice(), "a list that goes on where it was");
        resume = page.resume.to_vec();
    }
}

#[test]
fn what_a_transaction_holds_is_listed_once_whatever_the_pages() {
    for seed in 0..seeds(20) {
        let (mut c, _) = cluster(seed);
        for id in 1..5 {
            assert!(matches!(c.auto(NODE, 10 + id as u64, op(OpKind::Insert, id, 1)), Answer::Batch { .. }));
        }
        let steps = [
            op(OpKind::Update, 1, 5),
            op(OpKind::Update, 1, 6),
            op(OpKind::ReadShared, 2, 0),
            op(OpKind::ReadExclusive, 3, 0),
            op(OpKind::Delete, 4, 0),
            op(OpKind::Insert, 7, 1),
        ];
        for (i, step) in steps.iter().enumerate() {
            let flags = if i == 0 { START } else { 0 };
            let request = c.batch(NODE, trans(50), flags, 1 + i as u32, &[*step]);
            assert!(matches!(c.wait(request), Answer::Batch { .. }));
        }
        let long = c.row(1, 1, None).len();
        let wanted: BTreeSet<_> = [
            (1, true, true, long),
            (2, false, false, 0),
            (3, true, false, 0),
            (4, true, true, 0),
            (7, true, true, long),
        ]
        .map(|(id, exclusive, written, image)| (c.key(id), exclusive, written, image))
        .into();
        for rows_max in [1, 2, 100] {
            let found = [1, 2].map(|node| held(&mut c, NodeId(node), trans(50), rows_max)).concat();
            assert_eq!(found.len(), wanted.len(), "{found:?}");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
        }
        assert!(held(&mut c, NODE, trans(51), 10).is_empty(), "of a transaction that nobody knows");
        // Undone, the locks stay and nothing is changed.
        let undo = c.end(NODE, Kind::TcRollbackReq, trans(50), 1);
        c.wait(undo);
        let found = [1, 2].map(|node| held(&mut c, NodeId(node), trans(50), 2)).concat();
        assert!(found.len() == wanted.len() && found.iter().all(|row| !row.2), "{found:?}");
    }
}

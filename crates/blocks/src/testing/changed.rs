//! What has changed between two snapshots, and whether transactions have rows of a table, as primaries and backups tell it, a few rows at a time, also while commits wait for their rows to be stamped.

use std::{collections::BTreeMap, ops::Bound};

use apus_signal::{
    BlockId, Kind,
    changed::{CHANGED, ChangedPlace, ChangedRow, OPEN},
    scan::{ScanConf, ScanSpec},
    tc::{OpKind, START},
    view::NodeState,
};
use apus_types::{Epoch, ErrorCode, IndexNo, NodeId, PartitionId, TransId};

use super::{
    Answer, Cluster, TABLE, TestOp,
    large::{every, is_committed, let_slices_pass, run, slow},
    op, trans,
};

const ONE: NodeId = NodeId(1);
/// The values of a row at two moments.
type Pair = (Option<i64>, Option<i64>);

fn page(
    c: &mut Cluster,
    node: NodeId,
    (index, version, snapshot): (IndexNo, u32, Epoch),
    low: Bound<&[u8]>,
    partitions: &[PartitionId],
) -> Answer {
    let request = c.request(node, BlockId::Ldm, Kind::ScanReq, |out, request| {
        let spec = ScanSpec {
            request,
            trans: TransId::NONE,
            snapshot,
            table: TABLE,
            schema_version: version,
            index,
            reverse: false,
            with_keys: false,
            with_pending: index == OPEN,
            with_moment: false,
            rows_max: 3,
            bytes_max: 1 << 20,
            low,
            high: Bound::Unbounded,
            columns: None,
            partitions,
            aggregates: &[],
            grouping: &[],
            filter: &[],
        };
        spec.encode(out);
    });
    c.wait(request)
}

fn served(c: &Cluster, node: NodeId, primary: bool) -> Vec<PartitionId> {
    let is_asked = |p: &PartitionId| !primary || c.view.chain(*p).primary() == Some(node);
    (0..c.view.partition_count()).map(PartitionId).filter(is_asked).collect()
}

/// The rows that differ, as this node tells it of all partitions.
fn changed(c: &mut Cluster, node: NodeId, since: Epoch, until: Epoch) -> BTreeMap<i64, Pair> {
    let (mut all, mut place, partitions) = (BTreeMap::new(), Vec::new(), served(c, node, false));
    ChangedPlace { since, ..ChangedPlace::default() }.encode(&mut place);
    let mut low = Bound::Included(place);
    loop {
        let bound = low.as_ref().map(|place| &place[..]);
        let answer = page(c, node, (CHANGED, 1, until), bound, &partitions);
        let Answer::Other(Kind::ScanConf, page) = answer else { panic!("no page: {answer:?}") };
        let page = ScanConf::decode(&page).expect("a page");
        for row in page.rows() {
            let row = ChangedRow::decode(row.expect("a row").0).expect("a changed row");
            let id = |image: &[u8]| match c.schema.layout().value(image, 0) {
                apus_types::Value::Int(id) => id,
                other => panic!("column id holds {other:?}"),
            };
            let key = row.old.or(row.new).map(id).expect("a row at one of the moments");
            let (old, new): &mut Pair = all.entry(key).or_default();
            // A row that was made again has two places.
            *old = old.or(row.old.map(|image| c.value(image)));
            *new = new.or(row.new.map(|image| c.value(image)));
        }
        if !page.more {
            return all;
        }
        low = Bound::Excluded(page.resume.to_vec());
    }
}

fn is_open(c: &mut Cluster, node: NodeId) -> bool {
    let partitions = served(c, node, true);
    let answer = page(c, node, (OPEN, 1, Epoch(0)), Bound::Unbounded, &partitions);
    let Answer::Other(Kind::ScanConf, page) = answer else { panic!("no page: {answer:?}") };
    ScanConf::decode(&page).expect("a page").count > 0
}

fn snapshot(c: &mut Cluster, node: NodeId) -> (u64, Epoch) {
    let request = c.snapshot(node);
    match c.wait(request) {
        Answer::Snapshot(epoch) => (request, epoch),
        other => panic!("no snapshot: {other:?}"),
    }
}

#[test]
fn what_has_changed_is_told_by_every_replica() {
    for seed in 1..=super::seeds(30) {
        let mut c = slow(seed, 2 + (seed % 2) as u16);
        let mut values: BTreeMap<i64, i64> = (0..60).map(|id| (id, 10)).collect();
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        let_slices_pass(&mut c);
        let mut taken = vec![(snapshot(&mut c, ONE), values.clone())];
        for round in 0..3 {
            let mut ops: Vec<TestOp> = Vec::new();
            for id in 0..70 {
                let (kind, value) = match (c.rng.below(6), values.contains_key(&id)) {
                    (0, true) => (OpKind::Delete, None),
                    (1, true) => (OpKind::Update, values.get(&id).map(|v| v + 1)),
                    (0..3, false) => (OpKind::Insert, Some(1)),
                    _ => continue,
                };
                ops.push(op(kind, id, 1));
                match value {
                    Some(value) => _ = values.insert(id, value),
                    None => _ = values.remove(&id),
                }
            }
            let answer = run(&mut c, 2 + round, &ops);
            assert!(is_committed(&answer), "{answer:?}");
            // Some rows get their epochs; not for so long that the first snapshot is too old.
            for _ in 0..c.rng.below(3) * 20 {
                c.advance(1_000_000_000, 40);
            }
            taken.push((snapshot(&mut c, ONE), values.clone()));
            for first in 0..taken.len() {
                let (((_, since), before), ((_, until), now)) = (&taken[first], &taken[taken.len() - 1]);
                let keys = before.keys().chain(now.keys());
                let pairs = keys.map(|id| (*id, (before.get(id).copied(), now.get(id).copied())));
                let expected: BTreeMap<i64, Pair> = pairs.filter(|(_, (old, new))| old != new).collect();
                let (since, until) = (*since, *until);
                for node in c.workers.keys().copied().collect::<Vec<_>>() {
                    let mut told = changed(&mut c, node, since, until);
                    // Gone and there again with the same value.
                    told.retain(|_, (old, new)| old != new);
                    assert_eq!(told, expected, "seed {seed}: {node} from {since} to {until}");
                }
            }
        }
        let ((first, since), _) = taken[0];
        c.end_snapshot(ONE, first);
        // Versions for it are given up, and whoever asks is told.
        let (_, until) = taken[3].0;
        c.pass(2_000);
        let mut place = Vec::new();
        ChangedPlace { since, ..ChangedPlace::default() }.encode(&mut place);
        let partitions = served(&c, ONE, false);
        let answer = page(&mut c, ONE, (CHANGED, 1, until), Bound::Included(&place), &partitions);
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::SnapshotTooOld, .. }), "seed {seed}: {answer:?}");
    }
}

#[test]
fn a_table_is_in_use_until_the_last_row_is_let_go() {
    for seed in 1..=super::seeds(20) {
        let mut c = slow(seed, 2);
        let ids: Vec<i64> = (0..60).collect();
        assert!(is_committed(&run(&mut c, 1, &every(OpKind::Insert, 10))));
        let_slices_pass(&mut c);
        let id = ids[c.rng.below(ids.len())];
        let primary = c.primary_of(id);
        let others: Vec<NodeId> = c.workers.keys().copied().filter(|node| *node != primary).collect();
        assert!(!is_open(&mut c, primary));
        let kind = [OpKind::ReadShared, OpKind::ReadExclusive, OpKind::Update, OpKind::Delete][c.rng.below(4)];
        let request = c.batch(ONE, trans(2), START, 1, &[op(kind, id, 1)]);
        assert!(matches!(c.wait(request), Answer::Batch { .. }));
        assert!(is_open(&mut c, primary), "seed {seed}: {kind:?}");
        assert!(!others.iter().any(|&node| is_open(&mut c, node)), "seed {seed}: it is nobody's primary");
        let end = [Kind::TcCommitReq, Kind::TcRollbackReq][c.rng.below(2)];
        let request = c.end(ONE, end, trans(2), 0);
        c.wait(request);
        let_slices_pass(&mut c);
        assert!(!is_open(&mut c, primary), "seed {seed}: {kind:?}");
        // By another version of the table nothing is told.
        let partitions = served(&c, primary, true);
        let answer = page(&mut c, primary, (OPEN, 9, Epoch(0)), Bound::Unbounded, &partitions);
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::SchemaVersionChanged, .. }), "{answer:?}");
        assert!(c.view.living().all(|node| node.state() == NodeState::Up));
    }
}

//! Scans with filters: in pages, of committed rows, of a snapshot, and of a transaction's own, they give the rows of a scan without one for which the conditions are true.

use std::{collections::BTreeMap, ops::Bound};

use apus_signal::{
    BlockId, Kind,
    codec::Reader,
    scan::{Aggregate, AggregateFunction, ScanConf, ScanSpec},
    tc::{OpKind, START},
};
use apus_types::{Epoch, ErrorCode, IndexNo, PartitionId, TransId, Value, filter, key};

use super::{Answer, Cluster, TABLE, TestOp, op, seeds, trans};

const IDS: i64 = 40;

/// v and u of each row.
pub(super) type Rows = BTreeMap<i64, (i64, Option<i64>)>;

/// Conditions, any of which may be missing.
struct Drawn {
    /// `v >= .0 AND v < .1`
    v: Option<(i64, i64)>,
    /// `u IN (...)`
    u: Option<Vec<i64>>,
    /// `u IS NULL`, `u IS NOT NULL`
    is_null: Option<bool>,
    /// `id < u` and the other five.
    orders: Option<u8>,
}

impl Drawn {
    fn of(c: &mut Cluster) -> Drawn {
        let mut some = |n: usize| c.rng.below(n) == 0;
        let (has_v, has_u, has_null, has_orders, is_null) = (some(2), some(3), some(4), some(4), some(2));
        let low = c.rng.below(8) as i64 - 4;
        let mut points: Vec<i64> = (0..c.rng.below(12)).map(|_| c.rng.below(2 * IDS as usize) as i64).collect();
        points.sort_unstable();
        points.dedup();
        Drawn {
            v: has_v.then_some((low, low + c.rng.below(5) as i64)),
            u: has_u.then_some(points),
            is_null: has_null.then_some(is_null),
            orders: has_orders.then_some(1 + c.rng.below(6) as u8),
        }
    }

    fn is_true(&self, id: i64, v: i64, u: Option<i64>) -> bool {
        let bit = |u: i64| match id.cmp(&u) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => 2,
            std::cmp::Ordering::Greater => 4,
        };
        self.v.is_none_or(|(low, high)| (low..high).contains(&v))
            && self.u.as_ref().is_none_or(|points| u.is_some_and(|u| points.contains(&u)))
            && self.is_null.is_none_or(|wanted| u.is_none() == wanted)
            && self.orders.is_none_or(|orders| u.is_some_and(|u| orders & bit(u) != 0))
    }

    fn filter(&self, c: &Cluster) -> Vec<u8> {
        let of = |column: usize, n: i64| {
            let definition = &c.schema.columns[column];
            let mut out = Vec::new();
            key::encode_part(definition.ty, definition.nullable, &Value::Int(n), &mut out).expect("a key");
            out
        };
        let mut out = Vec::new();
        if let Some((low, high)) = self.v {
            let (low, high) = (of(1, low), of(1, high));
            filter::push_ranges(&mut out, 1, [(Some(low.as_slice()), Some(high.as_slice()))].into_iter());
        }
        if let Some(points) = &self.u {
            let keys: Vec<_> = points.iter().map(|&n| (of(2, n), of(2, n + 1))).collect();
            filter::push_ranges(&mut out, 2, keys.iter().map(|(a, b)| (Some(a.as_slice()), Some(b.as_slice()))));
        }
        if let Some(is_null) = self.is_null {
            let mark = Some(&[1][..]);
            let range = if is_null { (None, mark) } else { (mark, None) };
            filter::push_ranges(&mut out, 2, [range].into_iter());
        }
        if let Some(orders) = self.orders {
            filter::push_columns(&mut out, 0, orders, 2);
        }
        out
    }
}

/// A page of one partition, from its primary.
pub(super) fn page(
    c: &mut Cluster,
    partition: PartitionId,
    (trans, snapshot): (TransId, Epoch),
    resume: &[u8],
    aggregates: &[Aggregate],
    (filter, grouping, with_pending): (&[u8], &[u8], bool),
) -> Answer {
    let primary = c.view.chain(partition).primary().expect("a primary");
    let low = if resume.is_empty() { Bound::Unbounded } else { Bound::Excluded(resume) };
    let request = c.request(primary, BlockId::Ldm, Kind::ScanReq, |out, request| {
        let spec = ScanSpec {
            request,
            trans,
            snapshot,
            table: TABLE,
            schema_version: 1,
            index: IndexNo(0),
            reverse: false,
            with_keys: false,
            with_pending,
            with_moment: false,
            rows_max: 3,
            bytes_max: 1000,
            low,
            high: Bound::Unbounded,
            columns: None,
            partitions: &[partition],
            aggregates,
            grouping,
            filter,
        };
        spec.encode(out);
    });
    c.wait(request)
}

pub(super) fn scan(c: &mut Cluster, seen: (TransId, Epoch), filter: &[u8]) -> Rows {
    let mut rows = Rows::new();
    for partition in (0..c.view.partition_count()).map(PartitionId) {
        let mut resume = Vec::new();
        loop {
            let answer = page(c, partition, seen, &resume, &[], (filter, &[], false));
            let Answer::Other(Kind::ScanConf, body) = answer else { panic!("{answer:?} instead of a page") };
            let conf = ScanConf::decode(&body).expect("a page");
            for row in conf.rows() {
                let (row, _) = row.expect("a row");
                let layout = c.schema.layout();
                let (Value::Int(id), Value::Int(v)) = (layout.value(row, 0), layout.value(row, 1)) else {
                    panic!("a row of other types")
                };
                let u = if let Value::Int(u) = layout.value(row, 2) { Some(u) } else { None };
                assert_eq!(rows.insert(id, (v, u)), None, "row {id} twice");
            }
            if !conf.more {
                break;
            }
            resume = conf.resume.to_vec();
        }
    }
    rows
}

fn count(c: &mut Cluster, seen: (TransId, Epoch), filter: &[u8]) -> u64 {
    let all = [Aggregate { function: AggregateFunction::CountRows, column: 0 }];
    let partitions = c.view.partition_count();
    let of = |c: &mut Cluster, partition| {
        let answer = page(c, partition, seen, &[], &all, (filter, &[], false));
        let Answer::Other(Kind::ScanConf, body) = answer else { panic!("{answer:?} instead of a count") };
        let conf = ScanConf::decode(&body).expect("a page");
        let (row, _) = conf.rows().next().expect("a row").expect("a row");
        Reader::new(row).u64().expect("a count")
    };
    (0..partitions).map(|p| of(c, PartitionId(p))).sum()
}

#[test]
fn what_passes_is_what_the_conditions_are_true_of() {
    for seed in 1..=seeds(60) {
        let mut c = Cluster::new(seed, 2);
        let node = apus_types::NodeId(1);
        for id in 0..IDS {
            let u = (c.rng.below(3) > 0).then_some(id * 2 % (IDS + 1));
            let v = c.rng.below(8) as i64 - 4;
            let _ = c.auto(node, 100 + id as u64, TestOp { u, ..op(OpKind::Insert, id, v) });
        }
        c.quiesce();
        let held = c.snapshot(node);
        let Answer::Snapshot(epoch) = c.wait(held) else { panic!("no snapshot") };
        let before = scan(&mut c, (TransId::NONE, epoch), &[]);
        let changes: Vec<TestOp> =
            (0..IDS).filter(|id| id % 5 == 0).map(|id| op(OpKind::Update, id, 1 + id % 3)).collect();
        let open = c.batch(node, trans(1), START, 1, &changes);
        assert!(matches!(c.wait(open), Answer::Batch { .. }));
        for (what, seen) in
            [("committed", (TransId::NONE, Epoch(0))), ("old", (TransId::NONE, epoch)), ("own", (trans(1), Epoch(0)))]
        {
            let all = scan(&mut c, seen, &[]);
            assert_eq!(all == before, what != "own", "seed {seed}: {what}");
            for _ in 0..8 {
                let drawn = Drawn::of(&mut c);
                let filter = drawn.filter(&c);
                let wanted: Rows =
                    all.iter().map(|(id, row)| (*id, *row)).filter(|(id, (v, u))| drawn.is_true(*id, *v, *u)).collect();
                assert_eq!(scan(&mut c, seen, &filter), wanted, "seed {seed}: {what}");
                assert_eq!(count(&mut c, seen, &filter), wanted.len() as u64, "seed {seed}: {what}");
            }
        }
    }
}

/// A row that may have two versions has no answer; bytes that are no filter are a violation of the protocol.
#[test]
fn what_has_no_answer_is_refused() {
    let mut c = Cluster::new(1, 2);
    let mut good = Vec::new();
    filter::push_ranges(&mut good, 1, std::iter::empty());
    let nobody = (TransId::NONE, Epoch(0));
    let answer = page(&mut c, PartitionId(0), nobody, &[], &[], (&good, &[], true));
    assert!(matches!(answer, Answer::Refused { code: ErrorCode::NotSupported, .. }), "{answer:?}");
    assert!(scan(&mut c, nobody, &good).is_empty());
    let answer = page(&mut c, PartitionId(0), nobody, &[], &[], (&[9, 9, 9], &[], false));
    assert!(matches!(answer, Answer::Refused { code: ErrorCode::ProtocolViolation, .. }), "{answer:?}");
}

//! Scans with groupings: in pages, of committed rows, of a snapshot, and of a transaction's own, parts of groups put together are the groups of the rows that a scan without a grouping gives.

use std::collections::BTreeMap;

use apus_eval::{
    fixed::{Program, Step},
    grouping::{self, Slot},
    groups::State,
};
use apus_signal::{
    Kind,
    scan::{Aggregate, AggregateFunction, ScanConf},
    tc::{OpKind, START},
};
use apus_types::{Epoch, ErrorCode, PartitionId, TransId, Value};

use super::{
    Answer, Cluster, TestOp,
    filters::{Rows, page, scan},
    op, seeds, trans,
};

const IDS: i64 = 60;
const ID: u16 = 0;
const V: u16 = 1;
const U: u16 = 2;
/// Rows, values of u, sum of `id * (u - v)`, least u, greatest id.
const SLOTS: [Slot; 5] = [Slot::Rows, Slot::Values(U), Slot::Sum(0), Slot::Least(1), Slot::Greatest(2)];

type Key = (Option<i64>, Option<Option<i64>>);

fn encoded(keys: &[u16], slots: &[Slot]) -> Vec<u8> {
    let program = |steps: &[Step]| {
        let mut program = Program::default();
        steps.iter().try_for_each(|step| program.push(*step)).expect("a program");
        program
    };
    let product = program(&[Step::Column(ID), Step::Column(U), Step::Column(V), Step::Subtract(0, 0), Step::Multiply]);
    let mut out = Vec::new();
    grouping::encode(keys, &[product, program(&[Step::Column(U)]), program(&[Step::Column(ID)])], slots, &mut out);
    out
}

fn key(keys: &[u16], v: i64, u: Option<i64>) -> Key {
    (keys.contains(&V).then_some(v), keys.contains(&U).then_some(u))
}

/// Two parts of a group as one.
fn joined(slot: Slot, a: State, b: State) -> State {
    let value = match (a.count, b.count, slot) {
        (0, ..) => b.value,
        (_, 0, _) => a.value,
        (_, _, Slot::Least(_)) => a.value.min(b.value),
        (_, _, Slot::Greatest(_)) => a.value.max(b.value),
        _ => a.value + b.value,
    };
    State { count: a.count + b.count, value }
}

fn of_rows(rows: &Rows, keys: &[u16]) -> BTreeMap<Key, [State; 5]> {
    let mut groups: BTreeMap<Key, [State; 5]> = BTreeMap::new();
    for (&id, &(v, u)) in rows {
        let of = |value: Option<i64>| match value {
            Some(n) => State { count: 1, value: i128::from(n) },
            None => State::default(),
        };
        let counted = |is: bool| State { count: u64::from(is), value: 0 };
        let one = [counted(true), counted(u.is_some()), of(u.map(|u| id * (u - v))), of(u), of(Some(id))];
        let group = groups.entry(key(keys, v, u)).or_default();
        group.iter_mut().zip(one).zip(SLOTS).for_each(|((all, one), slot)| *all = joined(slot, *all, one));
    }
    groups
}

/// The groups that scans have; and how many parts came, and in how many pages.
fn of_scans(c: &mut Cluster, seen: (TransId, Epoch), keys: &[u16]) -> (BTreeMap<Key, [State; 5]>, usize, usize) {
    let grouping = encoded(keys, &SLOTS);
    let (mut groups, mut parts, mut pages): (BTreeMap<Key, [State; 5]>, _, _) = (BTreeMap::new(), 0, 0);
    for partition in (0..c.view.partition_count()).map(PartitionId) {
        let mut resume = Vec::new();
        loop {
            let answer = page(c, partition, seen, &resume, &[], (&[], &grouping, false));
            let Answer::Other(Kind::ScanConf, body) = answer else { panic!("{answer:?} instead of a page") };
            let conf = ScanConf::decode(&body).expect("a page");
            pages += 1;
            for row in conf.rows() {
                let (row, mut states) = row.expect("a group");
                let layout = c.schema.layout();
                let Value::Int(v) = layout.value(row, V) else { panic!("a row of other types") };
                let u = if let Value::Int(u) = layout.value(row, U) { Some(u) } else { None };
                let group = groups.entry(key(keys, v, u)).or_default();
                for (all, slot) in group.iter_mut().zip(SLOTS) {
                    *all = joined(slot, *all, State::take(slot, &mut states).expect("a state"));
                }
                assert!(states.is_empty());
                parts += 1;
            }
            if !conf.more {
                break;
            }
            resume = conf.resume.to_vec();
        }
    }
    (groups, parts, pages)
}

#[test]
fn parts_of_groups_are_the_groups_of_the_rows() {
    let mut had_several_pages = false;
    for seed in 1..=seeds(40) {
        let mut c = Cluster::new(seed, 2);
        let node = apus_types::NodeId(1);
        for id in 0..IDS {
            let u = (c.rng.below(4) > 0).then(|| IDS - id);
            let v = c.rng.below(5) as i64 - 2;
            let _ = c.auto(node, 100 + id as u64, TestOp { u, ..op(OpKind::Insert, id, v) });
        }
        c.quiesce();
        let held = c.snapshot(node);
        let Answer::Snapshot(epoch) = c.wait(held) else { panic!("no snapshot") };
        let changes: Vec<TestOp> =
            (0..IDS).filter(|id| id % 5 == 0).map(|id| op(OpKind::Update, id, 1 + id % 3)).collect();
        let open = c.batch(node, trans(1), START, 1, &changes);
        assert!(matches!(c.wait(open), Answer::Batch { .. }));
        for (what, seen) in
            [("committed", (TransId::NONE, Epoch(0))), ("old", (TransId::NONE, epoch)), ("own", (trans(1), Epoch(0)))]
        {
            let rows = scan(&mut c, seen, &[]);
            for keys in [&[][..], &[V], &[U], &[V, U]] {
                let (groups, parts, pages) = of_scans(&mut c, seen, keys);
                assert_eq!(groups, of_rows(&rows, keys), "seed {seed}: {what} by {keys:?}");
                assert!(parts >= groups.len());
                had_several_pages |= pages > usize::from(c.view.partition_count());
            }
        }
    }
    assert!(had_several_pages, "an answer of 1000 bytes has room for all groups");
}

/// What cannot be answered so is refused, and who asked reads rows; bytes that are no grouping are a violation of the protocol.
#[test]
fn what_has_no_groups_is_refused() {
    let mut c = Cluster::new(1, 2);
    let node = apus_types::NodeId(1);
    let nobody = (TransId::NONE, Epoch(0));
    let _ = c.auto(node, 100, TestOp { u: Some(1), ..op(OpKind::Insert, 1, 2) });
    c.quiesce();
    let good = encoded(&[V], &SLOTS);
    let all = (0..c.view.partition_count()).map(PartitionId);
    let of_row = all.into_iter().find(|p| {
        let answer = page(&mut c, *p, nobody, &[], &[], (&[], &good, false));
        matches!(&answer, Answer::Other(Kind::ScanConf, body) if ScanConf::decode(body).is_ok_and(|conf| conf.count == 1))
    });
    let partition = of_row.expect("the row's partition");
    let count = [Aggregate { function: AggregateFunction::CountRows, column: 0 }];
    let mut large = Vec::new();
    let mut program = Program::default();
    for step in [Step::Constant(i128::MAX), Step::Column(U), Step::Add(0, 0)] {
        program.push(step).expect("a program");
    }
    grouping::encode(&[], &[program], &[Slot::Sum(0)], &mut large);
    let mut newer = good.clone();
    newer[0] += 1;
    for (what, bytes, aggregates, with_pending, wanted) in [
        ("rows in two versions", &good, &[][..], true, ErrorCode::NotSupported),
        ("aggregates beside it", &good, &count, false, ErrorCode::NotSupported),
        ("a newer form", &newer, &[], false, ErrorCode::NotSupported),
        ("what does not fit", &large, &[], false, ErrorCode::ValueOutOfRange),
        ("no grouping", &vec![1, 2, 3], &[], false, ErrorCode::ProtocolViolation),
    ] {
        let answer = page(&mut c, partition, nobody, &[], aggregates, (&[], bytes, with_pending));
        assert!(matches!(answer, Answer::Refused { code, .. } if code == wanted), "{what}: {answer:?}");
    }
}

//! Rows with a list of keys: after any order of changes, refusals and rollbacks, and after a node that dies, the entries in the hidden table are those of the rows.

use std::{collections::BTreeSet, ops::Bound};

use apus_signal::{
    BlockId, Kind,
    codec::patch_u16,
    scan::{ScanConf, ScanSpec},
    tc::{ALLOW_MISSING, COMMIT, Op, OpKind, START, TcBatchReq},
};
use apus_types::{
    Chain, ColumnType, Epoch, ErrorCode, IndexDef, IndexNo, IndexState, NodeId, PartitionId, TableId, TableSchema,
    TransId, Value,
    hash::hash_key,
    key,
    list::{self, KeyList},
    schema::{HIDDEN_HASH_COLUMN, HIDDEN_KEY_COLUMN, HIDDEN_PK_COLUMN},
};

use super::{Answer, Cluster, column, trans};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const LISTED: TableId = TableId(20);
const ENTRIES: TableId = TableId(21);
const ROWS: i64 = 12;

/// `l(id int primary key, keys blob)` with an index of the lists, and the hidden table.
struct Tables {
    listed: TableSchema,
    entries: TableSchema,
}

/// Keys of a row, and whether other rows may have them.
type List<'l> = (&'l [&'l str], bool);
type Change<'l> = (OpKind, i64, Option<List<'l>>);

impl Tables {
    fn new(c: &mut Cluster, unique: bool) -> Tables {
        let id = column("id", ColumnType::Int { bits: 32, unsigned: false }, false);
        let keys = column("keys", ColumnType::Blob { length: 1 << 16 }, true);
        let mut listed = TableSchema::new("d", "l", vec![id, keys], vec![0]);
        listed.id = LISTED;
        listed.indexes.push(IndexDef {
            no: IndexNo(1),
            name: "k".into(),
            columns: vec![1],
            prefixes: Vec::new(),
            list: Some(0),
            unique,
            hidden_table: Some(ENTRIES),
            state: IndexState::Ready,
        });
        listed.validate().expect("test schema");
        let mut entries = TableSchema::hidden_for(&listed, &listed.indexes[0]);
        entries.id = ENTRIES;
        for node in c.workers.keys().copied().collect::<Vec<_>>() {
            c.define(node, &listed);
            c.define(node, &entries);
        }
        c.quiesce();
        Tables { listed, entries }
    }

    fn key(&self, id: i64) -> Vec<u8> {
        let mut out = Vec::new();
        key::encode_part(self.listed.columns[0].ty, false, &Value::Int(id), &mut out).expect("a key");
        out
    }

    fn row(&self, id: i64, list: Option<List<'_>>) -> Vec<u8> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        if let Some((keys, is_shared)) = list {
            let mut keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            list::write(&mut keys, is_shared, &mut bytes).expect("a list");
        }
        let value = list.map_or(Value::Null, |_| Value::Bytes(&bytes));
        self.listed.layout().encode(&[Value::Int(id), value], &mut out).expect("a row");
        out
    }

    fn send(&self, c: &mut Cluster, node: NodeId, id: TransId, flags: u8, savepoint: u32, ops: &[Change<'_>]) -> u64 {
        let mut wire = Vec::new();
        for &(kind, id, list) in ops {
            let key = self.key(id);
            let value = if kind == OpKind::Delete { Vec::new() } else { self.row(id, list) };
            let (partition, flags) = (c.view.partition_of(hash_key(&key)), ALLOW_MISSING * u8::from(value.is_empty()));
            let op = Op { kind, flags, partition, table: LISTED, schema_version: 1, key: &key, value: &value };
            op.encode(&mut wire);
        }
        c.request(node, BlockId::Tc, Kind::TcBatchReq, |out, request| {
            let at = TcBatchReq::begin(out, request, id, flags, savepoint, 200);
            out.extend_from_slice(&wire);
            patch_u16(out, at, ops.len() as u16);
        })
    }

    fn run(&self, c: &mut Cluster, seq: u64, ops: &[Change<'_>]) -> Answer {
        let request = self.send(c, ONE, trans(seq), START | COMMIT, 1, ops);
        c.wait(request)
    }

    /// All rows of a table, partition by partition in the order of their keys, from what is primary.
    fn scan(c: &mut Cluster, table: &TableSchema) -> Vec<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for partition in (0..c.view.partition_count()).map(PartitionId) {
            let (mut rows, mut resume) = (Vec::new(), Vec::new());
            let primary = Chain::primary(c.view.chain(partition)).expect("a primary");
            loop {
                let low = if resume.is_empty() { Bound::Unbounded } else { Bound::Excluded(resume.as_slice()) };
                let request = c.request(primary, BlockId::Ldm, Kind::ScanReq, |out, request| {
                    let spec = ScanSpec {
                        request,
                        trans: TransId::NONE,
                        snapshot: Epoch(0),
                        table: table.id,
                        schema_version: 1,
                        index: IndexNo(0),
                        reverse: false,
                        with_keys: false,
                        with_pending: false,
                        with_moment: false,
                        rows_max: 3,
                        bytes_max: 1000,
                        low,
                        high: Bound::Unbounded,
                        columns: None,
                        partitions: &[partition],
                        aggregates: &[],
                        grouping: &[],
                        filter: &[],
                    };
                    spec.encode(out);
                });
                let Answer::Other(Kind::ScanConf, page) = c.wait(request) else { panic!("no page") };
                let page = ScanConf::decode(&page).expect("a page");
                rows.extend(page.rows().map(|row| row.expect("a row").0.to_vec()));
                if !page.more {
                    break;
                }
                resume = page.resume.to_vec();
            }
            all.push(rows);
        }
        all
    }

    /// The entries that are there are those of the rows, and name them. How many there are.
    fn check(&self, c: &mut Cluster) -> usize {
        let mut wanted = BTreeSet::new();
        let unique = self.listed.indexes[0].unique;
        for row in Tables::scan(c, &self.listed).concat() {
            let Value::Int(id) = self.listed.layout().value(&row, 0) else { panic!("a row without id") };
            let primary = self.key(id);
            let list = KeyList::read(self.listed.layout().raw(&row, 1), primary.len()).expect("a list");
            for key in list.keys() {
                let own = if unique && !list.is_shared { &[][..] } else { &primary };
                assert!(wanted.insert(([key, own].concat(), primary.clone())), "a key of two rows");
            }
        }
        let count = wanted.len();
        for partition in Tables::scan(c, &self.entries) {
            let layout = self.entries.layout();
            let keys: Vec<&[u8]> = partition.iter().map(|row| layout.raw(row, HIDDEN_KEY_COLUMN)).collect();
            assert!(keys.is_sorted(), "entries are read in the order of their keys");
            for entry in &partition {
                let primary = layout.raw(entry, HIDDEN_PK_COLUMN).to_vec();
                let hash = layout.value(entry, HIDDEN_HASH_COLUMN);
                assert_eq!(hash, Value::UInt(key::distribution_hash(&self.listed, &primary)));
                let found = (layout.raw(entry, HIDDEN_KEY_COLUMN).to_vec(), primary);
                assert!(wanted.remove(&found), "an entry of no row: {found:?}");
            }
        }
        assert!(wanted.is_empty(), "rows without entries: {wanted:?}");
        count
    }
}

fn is_committed(answer: &Answer) -> bool {
    matches!(answer, Answer::Batch { committed: true, .. })
}

fn is_refused(answer: &Answer, wanted: ErrorCode) -> bool {
    matches!(answer, Answer::Refused { code, .. } if *code == wanted)
}

#[test]
fn entries_are_the_difference_of_lists() {
    for seed in 1..=super::seeds(20) {
        let mut c = Cluster::new(seed, 2);
        let t = Tables::new(&mut c, false);
        let first = [(OpKind::Insert, 1, Some((&["a", "b"][..], false))), (OpKind::Insert, 2, Some((&["b"], false)))];
        assert!(is_committed(&t.run(&mut c, 1, &first)));
        assert_eq!(t.check(&mut c), 3);
        assert!(is_committed(&t.run(&mut c, 2, &[(OpKind::Write, 1, Some((&["b", "c", ""], false)))])));
        assert_eq!(t.check(&mut c), 4);
        // One key of three rows, made and taken away by one batch, in the middle.
        let there_and_back = [
            (OpKind::Insert, 3, Some((&["b", "x"][..], false))),
            (OpKind::Write, 3, Some((&["x"], false))),
            (OpKind::Insert, 4, Some((&["x"], false))),
            (OpKind::Delete, 3, None),
            (OpKind::Write, 1, Some((&["x"], false))),
        ];
        assert!(is_committed(&t.run(&mut c, 3, &there_and_back)));
        assert_eq!(t.check(&mut c), 3);
        let emptied = [(OpKind::Write, 1, None), (OpKind::Write, 2, Some((&[][..], false))), (OpKind::Delete, 4, None)];
        assert!(is_committed(&t.run(&mut c, 4, &emptied)));
        assert_eq!(t.check(&mut c), 0);
    }
}

#[test]
fn a_unique_list_refuses_keys_of_others() {
    for seed in 1..=super::seeds(20) {
        let mut c = Cluster::new(seed, 2);
        let t = Tables::new(&mut c, true);
        assert!(is_committed(&t.run(&mut c, 1, &[(OpKind::Insert, 1, Some((&["a", "b"], false)))])));
        let taken = t.run(&mut c, 2, &[(OpKind::Insert, 2, Some((&["c", "b"], false)))]);
        assert!(is_refused(&taken, ErrorCode::DuplicateKey), "{taken:?}");
        assert_eq!(t.check(&mut c), 2);
        // Where a part of the key is NULL.
        let shared = [(OpKind::Insert, 2, Some((&["a"][..], true))), (OpKind::Insert, 3, Some((&["a"], true)))];
        assert!(is_committed(&t.run(&mut c, 3, &shared)));
        assert_eq!(t.check(&mut c), 4);
        // Keys change hands in one batch.
        let swapped = [(OpKind::Write, 1, Some((&["z"][..], false))), (OpKind::Write, 2, Some((&["a", "b"], false)))];
        assert!(is_committed(&t.run(&mut c, 4, &swapped)));
        assert_eq!(t.check(&mut c), 4);
    }
}

#[test]
fn what_is_no_list_or_too_much_is_refused() {
    let mut c = Cluster::new(3, 2);
    let t = Tables::new(&mut c, false);
    let mut row = Vec::new();
    t.listed.layout().encode(&[Value::Int(1), Value::Bytes(&[0, 5, 0, b'a'])], &mut row).expect("a row");
    let key = t.key(1);
    let partition = c.view.partition_of(hash_key(&key));
    let mut wire = Vec::new();
    let kind = OpKind::Insert;
    Op { kind, flags: 0, partition, table: LISTED, schema_version: 1, key: &key, value: &row }.encode(&mut wire);
    let request = c.request(ONE, BlockId::Tc, Kind::TcBatchReq, |out, request| {
        let at = TcBatchReq::begin(out, request, trans(1), START | COMMIT, 1, 200);
        out.extend_from_slice(&wire);
        patch_u16(out, at, 1);
    });
    let answer = c.wait(request);
    assert!(is_refused(&answer, ErrorCode::ValueOutOfRange), "{answer:?}");
    // More changes than one answer may tell: a client that does not split its batches.
    let keys: Vec<String> = (0..1500).map(|n| format!("{n:05}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let many: Vec<Change<'_>> = (0..200).map(|id| (OpKind::Insert, id, Some((keys.as_slice(), false)))).collect();
    let answer = t.run(&mut c, 2, &many);
    assert!(is_refused(&answer, ErrorCode::RequestTooLarge), "{answer:?}");
    assert_eq!(t.check(&mut c), 0);
    assert!(is_committed(&t.run(&mut c, 3, &many[..2])));
    assert_eq!(t.check(&mut c), 3000);
}

/// Random changes, some in transactions that are rolled back, while a node dies; then what is left agrees, and goes on.
#[test]
fn entries_follow_rows_through_rollbacks_and_a_dead_node() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    for seed in 1..=super::seeds(40) {
        let mut c = Cluster::new(seed, 2);
        let t = Tables::new(&mut c, seed % 2 == 0);
        let dies_at = 20 + c.rng.below(30);
        let mut open = Vec::new();
        for round in 0..70_usize {
            if round == dies_at {
                c.kill(TWO);
                c.remove(&[TWO]);
            }
            let id = trans(100 + round as u64);
            let ends = c.rng.below(3);
            let ops: Vec<(OpKind, i64, Vec<&str>)> = (0..1 + c.rng.below(3))
                .map(|_| {
                    let kind = if c.rng.below(4) == 0 { OpKind::Delete } else { OpKind::Write };
                    let keys = KEYS.iter().copied().filter(|_| c.rng.below(4) == 0).collect();
                    (kind, c.rng.below(ROWS as usize) as i64, keys)
                })
                .collect();
            let ops: Vec<Change<'_>> =
                ops.iter().map(|(kind, id, keys)| (*kind, *id, Some((&keys[..], false)))).collect();
            let node = if round < dies_at && c.rng.below(2) == 0 { TWO } else { ONE };
            let flags = if ends == 0 { START } else { START | COMMIT };
            let request = t.send(&mut c, node, id, flags, 1, &ops);
            open.push(request);
            if ends == 0 && node == ONE {
                let answer = c.wait(request);
                if !matches!(answer, Answer::Refused { aborted: true, .. }) {
                    let end = c.end(ONE, Kind::TcRollbackReq, id, 0);
                    assert_eq!(c.wait(end), Answer::RolledBack);
                }
            }
            for _ in 0..c.rng.below(30) {
                c.step();
            }
        }
        c.quiesce();
        c.pass(1000);
        c.quiesce();
        t.check(&mut c);
        let all: Vec<Change<'_>> = (0..ROWS).map(|id| (OpKind::Delete, id, None)).collect();
        let answer = t.run(&mut c, 900, &all);
        assert!(is_committed(&answer), "seed {seed}: {answer:?}");
        assert_eq!(t.check(&mut c), 0);
        c.workers.values().for_each(|worker| worker.verify().expect("all is in order"));
    }
}

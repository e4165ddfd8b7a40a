//! Schema transactions in the harness.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Request, Worker, WorkerConfig};
use apus_signal::{
    BlockId, Kind,
    dict::{
        self, Change, ColumnsChange, DatabaseMessage, DictReadReq, IndexChange, SchemaConf, SchemaReq, TableAction,
        TableName,
    },
    qmgr::{decode, encode},
    schema::{SourceMessage, TableMessage, column_to_wire},
    tc::RequestRef,
    view::NodeState,
};
use apus_types::{Column, ColumnType, ErrorCode, NodeId, TableSchema, form::Source};

use super::{Catalog, Dictionary, bootstrap, read_file};
use crate::{
    NodeConfig, OnDisk,
    harness::{Cluster, MGMT, node_config},
};

fn started(replicas: u32) -> Cluster {
    let mut c = Cluster::new(1, replicas);
    for id in 1..=replicas as u16 {
        c.start_node(id);
    }
    assert!(c.run_until(2000, |c| (1..=replicas as u16).all(|n| c.generation(n) == 1)));
    c.run_ms(50);
    c
}
fn read(c: &mut Cluster, id: u16) -> dict::Dictionary {
    c.ask(id, BlockId::Dict, Kind::DictReadReq, |b| encode(&DictReadReq { request: 1, ..DictReadReq::default() }, b));
    c.run_ms(1);
    decode(&c.answer(Kind::DictReadConf).expect("answer")).unwrap()
}
fn wish(c: &mut Cluster, id: u16, token: u64, change: Change) {
    let req = SchemaReq { request: token, token, change: Some(change) };
    c.ask(id, BlockId::Dict, Kind::SchemaReq, |b| encode(&req, b));
}
/// Asks again each time that a president is lost with the change, as clients do.
fn insist_ms(c: &mut Cluster, ms: u64, id: u16, token: u64, change: &Change) {
    for _ in 0..ms {
        c.run_ms(1);
        if let Some(body) = c.answer(Kind::SchemaRef) {
            assert_eq!(RequestRef::decode(&body).map(|r| r.code), Ok(ErrorCode::NodeFailed));
            wish(c, id, token, change.clone());
        }
    }
}
fn table(name: &str) -> Change {
    let column = Column { nullable: false, ..Column::new("a", ColumnType::Int { bits: 32, unsigned: false }) };
    Change::CreateTable(TableMessage::from(&TableSchema::new("test", name, vec![column], vec![0])))
}
fn has_table(d: &dict::Dictionary, name: &str) -> bool {
    d.tables.iter().any(|t| t.name == name)
}

#[test]
fn a_change_is_everywhere_when_it_is_answered() {
    let mut c = started(3);
    assert_eq!(read(&mut c, 3).databases.len(), 2);
    wish(&mut c, 3, 7, table("t"));
    assert!(c.run_until(10, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)));
    let conf: SchemaConf = decode(&c.answer(Kind::SchemaConf).unwrap()).unwrap();
    assert_eq!((conf.request, conf.version, conf.table.unwrap().name.as_str()), (7, 2, "t"));
    assert!(c.answer(Kind::SchemaRep).is_some(), "who read the dictionary is told");
    for n in 1..=3 {
        assert!(has_table(&read(&mut c, n), "t"));
    }
    wish(&mut c, 2, 7, table("t"));
    c.run_ms(5);
    let again: SchemaConf = decode(&c.answer(Kind::SchemaConf).unwrap()).unwrap();
    assert_eq!(again.version, 2, "the same token is the same change");
    wish(&mut c, 2, 8, table("t"));
    c.run_ms(5);
    let body = c.answer(Kind::SchemaRef).unwrap();
    let refusal = RequestRef::decode(&body).unwrap();
    assert_eq!((refusal.code, refusal.detail), (ErrorCode::TableExists, &b"test.t"[..]));
}

#[test]
fn a_refusal_of_one_instance_undoes_it_everywhere() {
    let mut c = started(2);
    c.node(2).seen.borrow_mut().refuse = ErrorCode::OutOfMemory as u32;
    wish(&mut c, 1, 7, table("t"));
    c.run_ms(5);
    let body = c.answer(Kind::SchemaRef).unwrap();
    assert_eq!(RequestRef::decode(&body).unwrap().code, ErrorCode::OutOfMemory);
    for n in 1..=2 {
        assert!(!has_table(&read(&mut c, n), "t"));
        let last = c.node(n).seen.borrow().orders.last().map(|o| o.action);
        assert_eq!(last, Some(TableAction::Drop as i32));
    }
    let refused = c.node(2).seen.borrow().orders.last().map(|o| o.table_id);
    wish(&mut c, 1, 8, table("t"));
    c.run_ms(5);
    assert!(c.answer(Kind::SchemaConf).is_some());
    let made = c.node(2).seen.borrow().orders.last().map(|o| o.table_id);
    assert!(made > refused, "transactions may still have rows of {refused:?}");
}

/// Its region is full: what adds a table is refused and undone, what takes one away is not, and then there is room again.
#[test]
fn a_change_without_memory_for_it_is_refused() {
    let mut c = started(2);
    let wide = |name: String| {
        let columns: Vec<Column> =
            (0..200).map(|i| Column::new(format!("column_{i}_{name}"), ColumnType::Double)).collect();
        let key = Column { nullable: false, ..Column::new("a", ColumnType::Int { bits: 32, unsigned: false }) };
        let columns = [vec![key], columns].concat();
        Change::CreateTable(TableMessage::from(&TableSchema::new("test", &name, columns, vec![0])))
    };
    let mut ask = |token: u64, change: Change| {
        wish(&mut c, 1, token, change);
        c.run_ms(5);
        let refusal = c.answer(Kind::SchemaRef).map(|body| RequestRef::decode(&body).map(|r| r.code));
        assert!(refusal.is_some() != c.answer(Kind::SchemaConf).is_some());
        refusal.map_or(Ok(()), |code| Err(code.unwrap()))
    };
    let made = (0..100).find(|n| ask(10 + n, wide(format!("t{n}"))).is_err()).expect("one is refused");
    assert!(made > 3, "{made} tables");
    assert_eq!(ask(200, wide("more".into())), Err(ErrorCode::OutOfMemory));
    for n in 0..2 {
        let name = TableName { database: "test".into(), table: format!("t{n}"), ..TableName::default() };
        assert_eq!(ask(300 + n, Change::DropTable(name)), Ok(()));
    }
    assert_eq!(ask(400, wide("more".into())), Ok(()));
    for n in 1..=2 {
        assert!(has_table(&read(&mut c, n), "more") && !has_table(&read(&mut c, n), &format!("t{made}")));
    }
}

#[test]
fn the_president_dies_in_a_schema_transaction() {
    let mut c = started(3);
    c.node(3).seen.borrow_mut().silent = true; // prepare does not end
    wish(&mut c, 2, 7, table("t"));
    c.run_ms(5);
    c.kill(1);
    c.node(3).seen.borrow_mut().silent = false;
    assert!(c.run_until(100, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaRef)), "the client hears of it");
    let body = c.answer(Kind::SchemaRef).unwrap();
    assert_eq!(RequestRef::decode(&body).unwrap().code, ErrorCode::NodeFailed);
    c.run_ms(2_000);
    assert!(c.answer(Kind::SchemaConf).is_none(), "nobody runs unasked what may have ended a node");
    wish(&mut c, 2, 7, table("t"));
    assert!(c.run_until(100, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)), "the new president runs it again");
    let undone = |n: u16| {
        c.processes[&NodeId(n)].worker.probes().get("dict: a new president undoes a schema transaction").copied()
    };
    assert!([2, 3].into_iter().filter_map(undone).sum::<u64>() > 0, "not all had prepared it");
    let (two, three) = (read(&mut c, 2), read(&mut c, 3));
    assert!(has_table(&two, "t") && two.version == three.version && two.tables == three.tables);
    assert_eq!(two.tables.iter().filter(|t| t.name == "t").count(), 1);
}

#[test]
fn what_one_member_has_committed_is_committed_by_all() {
    let mut c = started(3);
    c.arm(1, "dict.drop_commit"); // one of the members does not hear of it
    wish(&mut c, 2, 7, table("t"));
    c.run_ms(5);
    let versions: Vec<u64> = [2, 3].map(|n| read(&mut c, n).version).to_vec();
    assert_ne!(versions[0], versions[1]);
    c.kill(1);
    insist_ms(&mut c, 50, 2, 7, &table("t"));
    assert!(has_table(&read(&mut c, 2), "t") && has_table(&read(&mut c, 3), "t"));
    assert!(c.answer(Kind::SchemaConf).is_some());
}

#[test]
fn a_member_that_missed_the_commit_is_told_again() {
    let mut c = started(3);
    c.arm(1, "dict.drop_commit");
    wish(&mut c, 2, 7, table("t"));
    c.run_ms(5);
    assert!(c.answer(Kind::SchemaConf).is_none(), "one member has not confirmed");
    assert!(c.run_until(600, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)), "told again");
    let all = [1, 2, 3].map(|n| schema(&mut c, n));
    assert!(has_table(&all[0], "t") && all.iter().all(|one| *one == all[0]));
}

/// A member whose workers are slow is asked again and orders them nothing anew.
#[test]
fn a_member_that_is_asked_again_prepares_once() {
    let mut c = started(3);
    c.node(3).seen.borrow_mut().silent = true;
    wish(&mut c, 2, 7, table("t"));
    c.run_ms(5);
    let orders = c.node(3).seen.borrow().orders.len();
    assert!(orders > 0);
    c.run_ms(1200);
    assert_eq!(c.node(3).seen.borrow().orders.len(), orders);
}

/// What is written between prepare and commit has its entries, for the drop may be undone.
#[test]
fn an_index_is_kept_until_its_drop_is_certain() {
    for unique in [false, true] {
        let mut c = started(3);
        for (token, change) in [(1, table("t")), (2, index(unique))] {
            wish(&mut c, 2, token, change);
            c.run_ms(5);
        }
        let hidden = schema(&mut c, 2).tables.iter().find(|t| t.base_table != 0).map(|t| t.id);
        assert_eq!(hidden.is_some(), unique);
        c.node(3).seen.borrow_mut().silent = true; // prepare does not end
        let begun = c.node(2).seen.borrow().orders.len();
        c.answers.clear();
        let drop = IndexChange { table: Some(table_name()), name: "i".to_owned(), ..IndexChange::default() };
        let drop = Change::DropIndex(drop);
        wish(&mut c, 2, 3, drop.clone());
        c.run_ms(5);
        let defined = |c: &mut Cluster| -> Vec<(u32, usize)> {
            let seen = c.node(2).seen.borrow();
            let tables = seen.orders[begun..].iter().filter_map(|o| o.table.as_ref());
            tables.map(|t| (t.version, t.indexes.len())).collect()
        };
        let prepared = defined(&mut c);
        assert!(!prepared.is_empty() && prepared.iter().all(|t| *t == (3, 1)), "{prepared:?}");
        c.node(3).seen.borrow_mut().silent = false;
        c.kill(1);
        insist_ms(&mut c, 100, 2, 3, &drop);
        assert!(c.answer(Kind::SchemaConf).is_some());
        assert_eq!(defined(&mut c).last(), Some(&(3, 0)));
        let dropped = c.node(2).seen.borrow().orders.last().map(|o| (o.action(), o.table_id));
        assert!(!unique || dropped == hidden.map(|id| (TableAction::Drop, id)), "{dropped:?}");
    }
}

/// A client that lost its node asked another one, whose question was faster than the first.
#[test]
fn everyone_who_asks_for_a_change_is_answered() {
    let mut c = started(3);
    wish(&mut c, 2, 7, table("t"));
    wish(&mut c, 3, 7, table("t"));
    wish(&mut c, 1, 7, table("t"));
    let answered = |c: &Cluster| c.answers.iter().filter(|a| a.1 == Kind::SchemaConf).count();
    assert!(c.run_until(10, |c| answered(c) == 3), "{} answers", answered(&c));
    assert_eq!(read(&mut c, 2).version, 2);
}

#[test]
fn a_joining_node_has_the_dictionary() {
    let mut c = started(2);
    wish(&mut c, 1, 7, table("t"));
    c.run_ms(5);
    c.kill(2);
    c.run_ms(20);
    c.start_node(2);
    let base = c.generation(1);
    assert!(c.run_until(3000, |c| c.generation(1) == base + 2), "joined and filled");
    c.run_ms(5);
    assert_eq!(read(&mut c, 2), read(&mut c, 1));
    let database = DatabaseMessage { name: "later".to_owned(), collation: 255 };
    wish(&mut c, 2, 9, Change::CreateDatabase(database));
    c.run_ms(5);
    assert_eq!(read(&mut c, 2).databases.len(), 3);
}

fn table_name() -> TableName {
    TableName { database: "test".to_owned(), table: "t".to_owned(), version: 0 }
}
fn index(unique: bool) -> Change {
    let (table, name) = (Some(table_name()), "i".to_owned());
    Change::CreateIndex(IndexChange { table, name, columns: vec![0], unique, ..IndexChange::default() })
}
/// One column more in table `t`, which has this id.
fn column(id: u32) -> Change {
    let ty = ColumnType::Int { bits: 32, unsigned: false };
    let columns = [Column { nullable: false, ..Column::new("a", ty) }, Column::new("b", ty)];
    let sources = [Source::Kept(0), Source::Null];
    Change::ChangeColumns(ColumnsChange {
        table: Some(table_name()),
        id,
        version: 1,
        columns: columns.iter().map(column_to_wire).collect(),
        sources: sources.iter().map(SourceMessage::from).collect(),
        ..ColumnsChange::default()
    })
}
/// The dictionary without what is no part of the schema.
fn schema(c: &mut Cluster, id: u16) -> dict::Dictionary {
    dict::Dictionary { request: 0, next_table_id: 0, ..read(c, id) }
}

/// Transactions write rows of a table that is prepared, and a log keeps them. If the change is undone by a restart, the id is not given to another table.
#[test]
fn the_ids_of_tables_are_on_disk_before_they_are_made() {
    let disk =
        OnDisk { files: BTreeMap::new(), segment_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..OnDisk::default() };
    let (node, incarnation) = (NodeId(1), 1);
    let config = NodeConfig { disk: Some(disk), ..node_config(node, incarnation) };
    let mut worker = Worker::new(WorkerConfig { node, worker: 0, instances: 1, control: false, incarnation, seed: 1 });
    let mut dict = Dictionary::new(&config);
    let (me, step) = (Dictionary::dict_of(NodeId(1)), bootstrap(&Catalog::default(), 0).step);
    let written = worker.with_context(me, |ctx| dict.on_prep_req(me, step.clone(), ctx));
    assert!(written.is_ok());
    let files: BTreeMap<String, Vec<u8>> = worker
        .take_requests()
        .into_iter()
        .filter_map(|request| match request {
            Request::Write { file, bytes, .. } => Some((file.into_owned(), bytes)),
            _ => None,
        })
        .collect();
    let kept = read_file(&files).expect("a dictionary");
    assert_eq!((kept.version, kept.next_table_id), (0, step.next_table_id));
}

/// A change is answered when it is on the disks of all members: also where the client asks again, and where the president has died that waited for the disks.
#[test]
fn a_change_is_on_disk_when_it_is_answered_whoever_is_asked() {
    for dies in [false, true] {
        let mut c = Cluster::new(1, 2);
        c.keeps_dictionaries = true;
        (1..=2).for_each(|id| c.start_node(id));
        assert!(c.run_until(2000, |c| (1..=2).all(|n| c.generation(n) == 1)));
        c.run_ms(50);
        c.slow_file = Some(super::DICTIONARY_FILE);
        wish(&mut c, 2, 7, table("t"));
        c.run_ms(5);
        assert!((1..=2).all(|n| has_table(&read(&mut c, n), "t")), "committed in memory");
        if dies {
            c.kill(1);
            c.unwritten.retain(|(node, ..)| *node != NodeId(1));
            insist_ms(&mut c, 200, 2, 7, &table("t"));
        } else {
            wish(&mut c, 1, 7, table("t"));
            c.run_ms(200);
        }
        assert!(c.answer(Kind::SchemaConf).is_none(), "answered before it is on disk; the president dies: {dies}");
        c.write_slow_file();
        c.run_ms(5);
        assert!(c.answer(Kind::SchemaConf).is_some(), "not answered; the president dies: {dies}");
        let files = c.files[&NodeId(2)].iter().map(|(file, bytes)| (file.to_string(), bytes.clone())).collect();
        assert!(read_file(&files).is_ok_and(|kept| kept.tables.values().any(|t| t.name == "t")));
    }
}

fn changed(c: &mut Cluster, id: u16, token: u64, change: Change) -> SchemaConf {
    c.answers.clear();
    wish(c, id, token, change);
    assert!(c.run_until(500, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)), "change {token} is answered");
    decode(&c.answer(Kind::SchemaConf).unwrap()).unwrap()
}

/// Data node 1 goes on without 2, loses power and with it definitions that clients have seen. Data node 2 has outlived it: no table gets a version there that another definition had,
/// and nobody is told a version of the new era before disks know that it was begun.
#[test]
fn a_version_that_was_lost_is_given_to_no_other_definition() {
    let mut c = Cluster::new(1, 2);
    c.start_lasting_mgmt(MGMT);
    (c.keeps_views, c.keeps_logs, c.keeps_dictionaries) = (true, true, true);
    (1..=2).for_each(|id| c.start_node(id));
    let lives = |c: &Cluster, id: u16| c.view(id).is_some_and(|v| v.state(NodeId(id)) == NodeState::Up);
    assert!(c.run_until(3_000, |c| (1..=2).all(|id| lives(c, id))));
    c.run_ms(1_100);
    let t = changed(&mut c, 2, 5, table("t")).table.expect("it is made");
    c.run_ms(50);
    let (disk, lineage) = (c.files[&NodeId(1)].clone(), c.view(2).map(|v| v.lineage));
    c.separate(2, MGMT.0);
    c.separate(1, 2);
    assert!(c.run_until(2_000, |c| c.view(1).is_some_and(|v| v.living().count() == 1)));
    changed(&mut c, 1, 6, column(t.id));
    changed(&mut c, 1, 7, table("u"));
    let lost = read(&mut c, 1);
    c.kill(1);
    c.boots.insert(NodeId(1), 1);
    c.files.insert(NodeId(1), disk);
    c.cut.clear();
    c.start_lasting_mgmt(MGMT);
    c.run_ms(1_000);
    c.start_node(1);
    assert!(c.run_until(9_000, |c| c.view(2).map(|v| v.lineage) > lineage), "2 goes on");
    assert!(c.run_until(9_000, |c| (1..=2).all(|id| lives(c, id))), "1 is back");
    c.run_ms(100);
    let before = read(&mut c, 2).version;
    c.slow_file = Some(super::DICTIONARY_FILE);
    c.answers.clear();
    wish(&mut c, 2, 8, index(true));
    c.run_ms(300);
    assert!(c.answer(Kind::SchemaConf).is_none() && read(&mut c, 2).version == before, "the era is not on disk");
    c.write_slow_file();
    assert!(c.run_until(500, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)));
    changed(&mut c, 2, 9, table("v"));
    let (made, by_lost) = (read(&mut c, 2), |id: u32| lost.tables.iter().find(|t| t.id == id));
    assert!(made.version > lost.version && made.tables.len() > lost.tables.len(), "{} {}", made.version, lost.version);
    let given_twice = made.tables.iter().find(|t| by_lost(t.id).is_some_and(|l| l.version == t.version && l != *t));
    assert!(given_twice.is_none(), "{given_twice:?} in {lost:?}");
    let (table, name) = (Some(table_name()), "i".to_owned());
    let next = changed(&mut c, 2, 10, Change::DropIndex(IndexChange { table, name, ..IndexChange::default() }));
    assert_eq!(next.version, made.version + 1, "one era for all changes of a lineage");
}

/// A president that stays goes through a take-over when node groups meet again. What a member said when it joined is of an earlier dictionary.
#[test]
fn a_table_that_was_dropped_does_not_return_when_sides_meet() {
    for rounds in 0..16 {
        let mut c = Cluster::new(2, 2);
        (1..=4).for_each(|n| c.start_node(n));
        assert!(c.run_until(2000, |c| (1..=4).all(|n| c.generation(n) == 1)));
        c.kill(4);
        c.run_ms(20);
        c.start_node(4);
        let full = |c: &Cluster| c.view(1).is_some_and(|v| v.nodes.iter().all(|n| n.state() == NodeState::Up));
        assert!(c.run_until(3000, |c| c.generation(1) > 2 && full(c)), "4 is back");
        wish(&mut c, 2, 5, table("t"));
        c.run_ms(5);
        assert!(c.answer(Kind::SchemaConf).is_some());
        wish(&mut c, 2, 6, table("u"));
        c.run_rounds(rounds);
        (1..=2).for_each(|a| (3..=4).for_each(|b| c.separate(a, b)));
        c.run_ms(5000);
        c.cut.clear();
        assert!(c.run_until(9000, |c| c.answers.iter().any(|a| a.1 == Kind::SchemaConf)), "parted after {rounds}");
        c.run_ms(600);
        let all = [1, 2, 3, 4].map(|n| schema(&mut c, n));
        assert!(has_table(&all[0], "u") && all.iter().all(|one| *one == all[0]), "parted after {rounds}");
        for n in 1..=4 {
            let mut dropped = BTreeSet::new();
            for order in &c.node(n).seen.borrow().orders {
                let id = order.table_id;
                match order.action() {
                    TableAction::Drop => _ = dropped.insert(id),
                    TableAction::Define => assert!(!dropped.contains(&id), "table {id} at {n}, parted after {rounds}"),
                }
            }
        }
    }
}

/// Whoever dies at whatever step of whatever change: all who are left have the old or the new schema, the same one, the client is told
/// which, and the cluster goes on: with the next change, and with the dead nodes once they are back.
#[test]
fn a_schema_change_is_whole_whoever_dies_at_whatever_step() {
    let changes: [(&str, fn(u32) -> Change); 7] = [
        ("create table", |_| table("u")),
        ("drop table", |_| Change::DropTable(table_name())),
        ("truncate", |_| Change::TruncateTable(table_name())),
        ("create index", |_| index(false)),
        ("create unique index", |_| index(true)),
        ("columns", column),
        ("drop database", |_| Change::DropDatabase("test".to_owned())),
    ];
    let (mut finished, mut made) = (0, 0);
    for (what, change) in &changes {
        for victims in [&[1u16][..], &[2], &[1, 2], &[2, 3], &[1, 3]] {
            for rounds in 0..20 {
                let mut c = started(4);
                wish(&mut c, 4, 5, table("t"));
                c.run_ms(5);
                let old: SchemaConf = decode(&c.answer(Kind::SchemaConf).expect("answer")).unwrap();
                let change = change(old.table.map_or(0, |t| t.id));
                let before = schema(&mut c, 4);
                if victims.contains(&1) && rounds % 2 == 0 {
                    c.arm(1, "dict.drop_commit"); // what is sent when a process dies reaches some
                }
                wish(&mut c, 4, 6, change.clone());
                c.run_rounds(rounds);
                victims.iter().for_each(|v| c.kill(*v));
                insist_ms(&mut c, 60, 4, 6, &change);
                let left: Vec<u16> = (1..=4).filter(|n| !victims.contains(n)).collect();
                let after = schema(&mut c, 4);
                for n in &left {
                    assert_eq!(schema(&mut c, *n), after, "{what}, {victims:?} die after {rounds}");
                }
                let is_told = c.answer(Kind::SchemaConf).is_some();
                assert!(is_told, "{what}, {victims:?} die after {rounds}: the change is made in the end");
                assert!(after.version > before.version && after.tables != before.tables);
                for n in &left {
                    let probe = |name: &str| c.processes[&NodeId(*n)].worker.probes().get(name).copied().unwrap_or(0);
                    finished += probe("dict: a new president finishes a schema transaction");
                    made += probe("dict: a new president makes what all have prepared");
                }
                victims.iter().for_each(|v| c.start_node(*v));
                let full = |c: &Cluster| c.view(4).is_some_and(|v| v.nodes.iter().all(|n| n.state() == NodeState::Up));
                assert!(c.run_until(3000, full), "{what}, {victims:?} come back after {rounds}");
                c.run_ms(5);
                wish(&mut c, 4, 7, Change::CreateDatabase(DatabaseMessage { name: "n".to_owned(), collation: 255 }));
                c.run_ms(5);
                assert!(c.answer(Kind::SchemaConf).is_some(), "{what}, {victims:?} after {rounds}: the next change");
                let last = schema(&mut c, 4);
                assert!((1..=4).all(|n| schema(&mut c, n) == last));
            }
        }
    }
    assert!(
        finished > 0 && made > 0,
        "steps that were interrupted: {finished} finished, {made} made by another president"
    );
}

//! A statement that ends every node that executes it, against scripted nodes: it is not brought to the last one.

mod common;

use apus_client::{ClientError, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest};
use apus_signal::{
    Kind,
    dict::{Change, DatabaseMessage},
    key_read::ReadReq,
    mgmt::MgmtReq,
    qmgr::decode,
    scan::ScanReq,
    tc::{LastWords, OpKind, Outcome, RequestRef, TcBatchReq},
    view::NodeState,
};
use apus_types::{ErrorCode, NodeId, TableId, TransId};
use common::{Act, Bench, Hook, World, key_of, schema, view};

const POISON: u32 = 3;

/// Three replicas.
fn bench(hook: Hook) -> Bench {
    let mut bench = Bench::new(10);
    bench.listening = vec![1, 2, 3];
    bench.world.view = view(1, &[(1, NodeState::Up), (2, NodeState::Up), (3, NodeState::Up)]);
    bench.link();
    bench.hook = hook;
    bench
}

fn is_poison(world: &World, kind: Kind, body: &[u8]) -> bool {
    let key = key_of(POISON);
    match kind {
        Kind::TcBatchReq => TcBatchReq::decode(body).unwrap().ops().any(|op| op.unwrap().key == key),
        Kind::ReadReq => ReadReq::decode(body).unwrap().keys().any(|k| k.unwrap().1 == key),
        Kind::ScanReq => ScanReq::decode(body).unwrap().partitions().any(|p| p == world.partition(&key)),
        _ => false,
    }
}

/// Whoever executes something on the marked row panics.
fn poison() -> Hook {
    Box::new(|world, node, envelope, body, _| {
        if !is_poison(world, envelope.kind, body) {
            return Act::Default;
        }
        world.die(node);
        Act::Break
    })
}

fn write(id: u32) -> OpBatch {
    let mut ops = OpBatch::new();
    ops.push(&schema(), OpKind::Write, 0, &key_of(id), b"new").unwrap();
    ops
}
fn autocommit(bench: &mut Bench, id: u32) -> Result<(), ClientError> {
    let (client, mut results) = (bench.client.clone(), Results::new());
    bench.run(client.run_autocommit(&write(id), 1000, &mut results)).map(|_| ())
}
fn read(bench: &mut Bench, ids: &[u32]) -> Result<(), ClientError> {
    let (schema, mut keys) = (schema(), KeyList::new());
    ids.iter().for_each(|id| keys.push(&schema, &key_of(*id)).unwrap());
    let (client, mut rows) = (bench.client.clone(), Rows::new());
    let (trans, table) = (TransId::NONE, TableId(7));
    let batch = ReadBatch { trans, snapshot: Default::default(), table, schema_version: 1, columns: None, keys: &keys };
    bench.run(client.read(&batch, &mut rows))
}

fn refused_by_name(bench: &Bench, error: &ClientError, name: &str) {
    assert_eq!(error.code, ErrorCode::StatementEndsNodes, "{error}");
    assert!(error.detail.contains(name) && !error.retry_transaction(), "{error}");
    assert_eq!(bench.world.dead.len(), 2, "the third lives");
}

#[test]
fn a_batch_that_ended_two_nodes_is_refused_by_name() {
    let mut bench = bench(poison());
    let error = autocommit(&mut bench, POISON).unwrap_err();
    refused_by_name(&bench, &error, "Write of table 7, key 0x00000003");
    assert!(error.aborted);
    autocommit(&mut bench, 4).expect("others are served");
    assert_eq!(bench.world.dead.len(), 2);
}

/// Nodes that are told to end while they execute it: it goes to the last one, and none counts.
fn ending() -> Hook {
    Box::new(|world, node, envelope, body, _| {
        if world.dead.len() == 2 || !is_poison(world, envelope.kind, body) {
            return Act::Default;
        }
        world.die(node);
        for n in world.view.nodes.iter_mut().filter(|n| n.state() == NodeState::Down) {
            n.left = true;
        }
        Act::Break
    })
}

#[test]
fn nodes_that_were_told_to_end_do_not_count() {
    let mut bench = bench(ending());
    autocommit(&mut bench, POISON).expect("the last one executes it");
    assert_eq!(bench.world.dead.len(), 2);
    let mut reader = self::bench(ending());
    read(&mut reader, &[1, 2, POISON, 5]).expect("the last one executes it");
    assert_eq!(reader.world.dead.len(), 2);
}

#[test]
fn so_are_reads_of_one_key_and_of_several_and_scans() {
    let mut one = bench(poison());
    let error = read(&mut one, &[POISON]).unwrap_err();
    refused_by_name(&one, &error, "read of 1 keys of table 7");
    read(&mut one, &[4]).expect("others are served");
    let mut several = bench(poison());
    let error = read(&mut several, &[1, 2, POISON, 5]).unwrap_err();
    refused_by_name(&several, &error, "read of 4 keys");
    let mut scan = bench(poison());
    let (client, mut rows) = (scan.client.clone(), Rows::new());
    let error = scan.run(client.scan_all(&ScanRequest::all(TableId(7), 1), &mut rows)).unwrap_err();
    refused_by_name(&scan, &error, "scan of table 7");
}

/// The connection breaks each time, and the node lives.
#[test]
fn resets_of_links_to_living_nodes_do_not_count() {
    let mut left = 5;
    let resets: Hook = Box::new(move |world, _, envelope, body, _| {
        let breaks = is_poison(world, envelope.kind, body) && left > 0;
        left -= u32::from(breaks);
        if breaks { Act::Break } else { Act::Default }
    });
    let mut bench = bench(resets);
    autocommit(&mut bench, POISON).expect("tried until it was executed");
    assert_eq!(bench.world.rows[&key_of(POISON)], b"new");
    assert_eq!(bench.linked(), [1, 2, 3]);
}

/// The coordinator lives, and says each time that a participant is gone.
#[test]
fn losses_of_participants_count_as_the_map_shows_them() {
    let participants: Hook = Box::new(|world, node, envelope, body, out| {
        if !is_poison(world, envelope.kind, body) {
            return Act::Default;
        }
        let victim = (1..=3).map(NodeId).find(|n| *n != node && !world.dead.contains(n)).unwrap();
        world.die(victim);
        let request = TcBatchReq::decode(body).unwrap().request;
        let refusal = RequestRef { aborted: true, ..RequestRef::new(request, ErrorCode::NodeFailed) };
        world.refuse(node, envelope, refusal, out);
        Act::Done
    });
    let mut bench = bench(participants);
    let error = autocommit(&mut bench, POISON).unwrap_err();
    refused_by_name(&bench, &error, "table 7");
}

/// Whoever is asked for a change of the schema dies, or lives and says that the president did.
#[test]
fn a_change_of_the_schema_that_ended_two_nodes_is_refused_by_name() {
    for forwards in [false, true] {
        let hook: Hook = Box::new(move |world, node, envelope, body, out| {
            if envelope.kind != Kind::SchemaReq {
                return Act::Default;
            }
            let president = (1..=3).map(NodeId).find(|n| !world.dead.contains(n) && (!forwards || *n != node));
            world.die(president.filter(|_| forwards).unwrap_or(node));
            if !forwards {
                return Act::Break;
            }
            let request = decode::<MgmtReq>(body).unwrap().request;
            world.refuse(node, envelope, RequestRef::new(request, ErrorCode::NodeFailed), out);
            Act::Done
        });
        let mut bench = bench(hook);
        let client = bench.client.clone();
        let name = DatabaseMessage { name: "d".to_owned(), collation: 255 };
        let error = bench.run(client.schema_change(Change::CreateDatabase(name))).unwrap_err();
        refused_by_name(&bench, &error, "change of the schema");
    }
}

/// The node says what it panics of before it is gone, as real ones do where they can.
fn poison_with_last_words() -> Hook {
    Box::new(|world, node, envelope, body, out| {
        if !is_poison(world, envelope.kind, body) {
            return Act::Default;
        }
        let words = LastWords::of(envelope.kind, body).unwrap();
        world.reply(node, envelope, Kind::LastWordsRep, out, |b| words.encode(b));
        world.die(node);
        Act::Break
    })
}

#[test]
fn who_is_named_by_a_dying_node_is_not_brought_to_the_last_one() {
    let mut bench = Bench::ready(10);
    bench.hook = poison_with_last_words();
    let error = autocommit(&mut bench, POISON).unwrap_err();
    assert!(error.code == ErrorCode::StatementEndsNodes && error.aborted, "{error}");
    assert_eq!(bench.world.dead.len(), 1, "the other one lives");
    autocommit(&mut bench, 4).expect("others are served");
    let mut reader = Bench::ready(10);
    reader.hook = poison_with_last_words();
    let error = read(&mut reader, &[POISON]).unwrap_err();
    assert_eq!((error.code, reader.world.dead.len()), (ErrorCode::StatementEndsNodes, 1), "{error}");
    read(&mut reader, &[4]).expect("others are served");
}

/// The commit that a node panicked in the midst of may be on the others: the cluster is asked, as for any other.
#[test]
fn a_commit_that_is_known_elsewhere_is_committed() {
    let mut bench = Bench::ready(10);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if !is_poison(world, envelope.kind, body) {
            return Act::Default;
        }
        let words = LastWords::of(envelope.kind, body).unwrap();
        world.outcomes.insert(words.trans, Outcome::Committed);
        world.reply(node, envelope, Kind::LastWordsRep, out, |b| words.encode(b));
        world.die(node);
        Act::Break
    });
    autocommit(&mut bench, POISON).expect("committed");
    assert_eq!(bench.world.dead.len(), 1);
}

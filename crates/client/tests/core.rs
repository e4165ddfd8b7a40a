//! The client's core against scripted data nodes, byte by byte, in virtual time.

mod common;

use std::{cell::RefCell, ops::Bound, rc::Rc};

use apus_client::{
    Aggregate, AggregateFunction, ExecOptions, KeyList, OpBatch, Outcome, ReadBatch, Results, Rows, ScanRequest,
};
use apus_signal::{
    Kind,
    dict::{Change, DatabaseMessage},
    hello::Hello,
    key_read::{ReadConf, ReadReq, ReadStatus},
    scan::{ScanConf, ScanReq},
    tc::{OpKind, OpStatus, RequestRef, TcBatchReq, TcEndReq},
    view::NodeState,
};
use apus_types::{Epoch, ErrorCode, NodeId, TableId, TransId};
use common::{Act, Bench, key_of, once, row_of, schema, view};
use prost::Message;

fn keys(ids: impl IntoIterator<Item = u32>) -> KeyList {
    let (schema, mut list) = (schema(), KeyList::new());
    for id in ids {
        list.push(&schema, &key_of(id)).unwrap();
    }
    list
}

fn batch(keys: &KeyList) -> ReadBatch<'_> {
    ReadBatch {
        trans: TransId::NONE,
        snapshot: Default::default(),
        table: TableId(7),
        schema_version: 1,
        columns: None,
        keys,
    }
}

fn read(bench: &mut Bench, list: &KeyList) -> Result<Vec<Option<Vec<u8>>>, apus_client::ClientError> {
    let (client, mut rows) = (bench.client.clone(), Rows::new());
    bench.run(client.read(&batch(list), &mut rows))?;
    Ok(rows.iter().map(|r| r.map(<[u8]>::to_vec)).collect())
}

fn expect(ids: impl IntoIterator<Item = u32>, rows: u32) -> Vec<Option<Vec<u8>>> {
    ids.into_iter().map(|id| (id < rows).then(|| row_of(id))).collect()
}

#[test]
fn a_client_finds_all_nodes_from_one_seed_and_reads() {
    let mut bench = Bench::ready(10);
    assert_eq!(bench.linked(), [1, 2]);
    assert_eq!((bench.client.view().generation, bench.client.schema_version()), (1, 1));
    for id in 0..12 {
        assert_eq!(read(&mut bench, &keys([id])).unwrap(), expect([id], 10));
    }
    assert_eq!(bench.world.nodes_asked(Kind::ReadReq), [1; 12], "the preferred node holds every partition");
}

#[test]
fn a_management_node_names_the_data_nodes() {
    let mut bench = Bench::with(3, |c| c.seeds = vec!["mgmt:1".to_owned()]);
    bench.listening.push(NodeId::MGMT_BASE);
    bench.link();
    assert_eq!(bench.linked(), [1, 2]);
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let mut bench = Bench::with(0, |c| c.connect_timeout_ms = 500);
    bench.listening.clear();
    let client = bench.client.clone();
    let error = bench.run(client.ready()).unwrap_err();
    assert_eq!(error.code, ErrorCode::NoNodeAvailable);
    assert!((500..700).contains(&bench.now_ms()));
}

#[test]
fn many_keys_come_back_in_the_order_asked() {
    let mut bench = Bench::ready(3000);
    bench.piece = 7;
    let ids: Vec<u32> = (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761) % 4000).collect();
    assert_eq!(read(&mut bench, &keys(ids.clone())).unwrap(), expect(ids, 3000));
    assert!(bench.world.count(Kind::ReadReq) >= 5, "split by instance and by number");
}

#[test]
fn few_slots_in_flight_suffice_for_many_requests() {
    let mut bench = Bench::with(3000, |c| c.max_in_flight = 1);
    bench.link();
    assert_eq!(read(&mut bench, &keys(0..3000)).unwrap(), expect(0..3000, 3000));
    let client = bench.client.clone();
    let mut rows = Rows::new();
    let request = ScanRequest { ordered: true, ..ScanRequest::all(TableId(7), 1) };
    bench.run(client.scan_all(&request, &mut rows)).unwrap();
    assert_eq!(rows.len(), 3000);
}

#[test]
fn a_row_not_yet_complete_is_asked_of_the_primary() {
    let mut bench = Bench::ready(50);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind != Kind::ReadReq {
            return Act::Default;
        }
        let req = ReadReq::decode(body).unwrap();
        if req.keys().all(|k| world.view.chain(k.unwrap().0).primary() == Some(node)) {
            return Act::Default;
        }
        world.reply(node, envelope, Kind::ReadConf, out, |b| {
            ReadConf::begin(b, req.request, req.count);
            for key in req.keys() {
                let (partition, key) = key.unwrap();
                if world.view.chain(partition).primary() == Some(node) {
                    ReadConf::push_row(b, |b| b.extend_from_slice(&world.rows[key]));
                } else {
                    ReadConf::push_missing(b, ReadStatus::AtPrimary);
                }
            }
        });
        Act::Done
    });
    assert_eq!(read(&mut bench, &keys(0..50)).unwrap(), expect(0..50, 50));
    for id in 0..10 {
        assert_eq!(read(&mut bench, &keys([id])).unwrap(), expect([id], 50));
    }
    assert!(bench.world.nodes_asked(Kind::ReadReq).contains(&2));
}

#[test]
fn reads_survive_a_lost_link_and_a_dead_node() {
    let mut bench = Bench::ready(50);
    bench.hook = once(Kind::ReadReq, |_, _, _, _, _| Act::Break);
    assert_eq!(read(&mut bench, &keys([1])).unwrap(), expect([1], 50));
    assert_eq!(bench.world.nodes_asked(Kind::ReadReq), [1, 2]);
    bench.pass_ms(1000);
    assert_eq!(bench.linked(), [1, 2], "the link is made again");
    bench.hook = once(Kind::ReadReq, |_, _, _, _, _| Act::Break);
    assert_eq!(read(&mut bench, &keys(0..50)).unwrap(), expect(0..50, 50));
    bench.kill(1, true);
    assert_eq!(read(&mut bench, &keys(0..50)).unwrap(), expect(0..50, 50));
    assert_eq!(bench.client.view().generation, 2);
}

#[test]
fn a_silent_node_is_left_after_the_attempt_timeout() {
    let mut bench = Bench::ready(50);
    bench.hook = Box::new(
        |_, node, envelope, _, _| {
            if node == NodeId(1) && envelope.kind == Kind::ReadReq { Act::Done } else { Act::Default }
        },
    );
    let start = bench.now_ms();
    assert_eq!(read(&mut bench, &keys([1])).unwrap(), expect([1], 50));
    let mut took = bench.now_ms() - start;
    assert!((2900..6500).contains(&took), "{took}");
    // A view without the node ends what waits for it at once.
    let (client, list, mut rows) = (bench.client.clone(), keys([1]), Rows::new());
    let mut future = Box::pin(async move {
        client.read(&batch(&list), &mut rows).await.unwrap();
        rows.row(0).map(<[u8]>::to_vec)
    });
    let start = bench.now_ms();
    let poll =
        std::future::Future::poll(future.as_mut(), &mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(poll.is_pending());
    bench.pump();
    bench.world.view = view(2, &[(1, NodeState::Down), (2, NodeState::Up)]);
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    assert_eq!(bench.run(future), Some(row_of(1)));
    took = bench.now_ms() - start;
    assert!(took < 100, "{took}");
}

#[test]
fn a_network_that_swallows_everything_is_found_by_pings() {
    let mut bench = Bench::ready(10);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    let tc = trans.token().unwrap().tc_node;
    bench.hook = Box::new(move |_, node, _, _, _| if node == tc { Act::Done } else { Act::Default });
    let start = bench.now_ms();
    let error = bench.run(trans.execute(&write(4, b"x"), ExecOptions { savepoint: 2, ..PLAIN }, &mut out)).unwrap_err();
    assert_eq!((error.code, error.aborted), (ErrorCode::NodeFailed, true));
    assert!((4_000..8_000).contains(&(bench.now_ms() - start)));
}

#[test]
fn a_long_lock_wait_is_not_taken_for_a_failure() {
    let mut bench = Bench::ready(10);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    let mut held: Option<(NodeId, apus_signal::Envelope, Vec<u8>)> = None;
    let mut asked = 0;
    bench.hook = Box::new(move |world, node, envelope, body, out| match envelope.kind {
        Kind::TcBatchReq => {
            held = Some((node, *envelope, body.to_vec()));
            Act::Done
        }
        Kind::MapReq => {
            asked += 1;
            if asked > 100
                && let Some((_, envelope, body)) = held.take_if(|h| h.0 == node)
            {
                world.serve(node, &envelope, &body, out);
            }
            Act::Default
        }
        _ => Act::Default,
    });
    let start = bench.now_ms();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    assert!(bench.now_ms() - start > 8_000);
}

#[test]
fn an_old_map_is_refreshed_by_the_refusal() {
    let mut bench = Bench::ready(50);
    bench.world.view.generation = 2;
    bench.world.schema_version = 4;
    bench.hook = once(Kind::ReadReq, |world, node, envelope, body, out| {
        let req = ReadReq::decode(body).unwrap();
        world.refuse(node, envelope, RequestRef::new(req.request, ErrorCode::WrongView), out);
        Act::Done
    });
    assert_eq!(read(&mut bench, &keys([1])).unwrap(), expect([1], 50));
    assert_eq!((bench.client.view().generation, bench.client.schema_version()), (2, 4));
}

#[test]
fn another_lineage_has_another_dictionary_though_its_version_is_the_same() {
    let mut bench = Bench::ready(50);
    let before = bench.client.dictionary_point();
    (bench.world.view.lineage, bench.world.view.generation) = (7, 1 << 20);
    bench.hook = once(Kind::ReadReq, |world, node, envelope, body, out| {
        let req = ReadReq::decode(body).unwrap();
        world.refuse(node, envelope, RequestRef::new(req.request, ErrorCode::WrongView), out);
        Act::Done
    });
    assert_eq!(read(&mut bench, &keys([1])).unwrap(), expect([1], 50));
    let after = bench.client.dictionary_point();
    assert_eq!((before.1, after), (after.1, (7, before.1)));
    assert_ne!(before, after);
}

#[test]
fn a_final_refusal_is_passed_on_and_a_temporary_one_ends() {
    let mut bench = Bench::ready(5);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind != Kind::ReadReq {
            return Act::Default;
        }
        let mut refusal = RequestRef::new(ReadReq::decode(body).unwrap().request, ErrorCode::SchemaVersionChanged);
        refusal.detail = b"t";
        world.refuse(node, envelope, refusal, out);
        Act::Done
    });
    for list in [keys([1]), keys(0..5)] {
        let error = read(&mut bench, &list).unwrap_err();
        assert_eq!((error.code, error.detail.as_str()), (ErrorCode::SchemaVersionChanged, "t"));
    }
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind == Kind::ReadReq {
            let request = ReadReq::decode(body).unwrap().request;
            world.refuse(node, envelope, RequestRef::new(request, ErrorCode::Overload), out);
            return Act::Done;
        }
        Act::Default
    });
    let start = bench.now_ms();
    assert_eq!(read(&mut bench, &keys([1])).unwrap_err().code, ErrorCode::Overload);
    assert!((9_900..10_200).contains(&(bench.now_ms() - start)));
}

#[test]
fn answers_too_large_are_asked_for_in_halves() {
    let mut bench = Bench::ready(100);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind == Kind::ReadReq
            && let req = ReadReq::decode(body).unwrap()
            && req.count > 5
        {
            world.refuse(node, envelope, RequestRef::new(req.request, ErrorCode::RequestTooLarge), out);
            return Act::Done;
        }
        Act::Default
    });
    assert_eq!(read(&mut bench, &keys(0..100)).unwrap(), expect(0..100, 100));
}

fn scan(bench: &mut Bench, request: ScanRequest<'_>) -> Vec<u32> {
    let (client, mut out, mut ids) = (bench.client.clone(), Rows::new(), Vec::new());
    let mut cursor = client.scan(&request);
    while bench.run(cursor.next_batch(&mut out)).unwrap() {
        assert!(!out.is_empty() && out.len() <= request.batch_rows as usize);
        for (i, row) in out.iter().enumerate() {
            let id: u32 = std::str::from_utf8(row.unwrap()).unwrap()[4..].parse().unwrap();
            assert!(!request.with_keys || out.key(i) == key_of(id));
            ids.push(id);
        }
    }
    assert!(!bench.run(cursor.next_batch(&mut out)).unwrap(), "an end stays an end");
    ids
}

#[test]
fn scans_merge_in_order_both_ways_with_limits() {
    let mut bench = Bench::ready(1000);
    let all = ScanRequest { batch_rows: 64, ordered: true, with_keys: true, ..ScanRequest::all(TableId(7), 1) };
    assert_eq!(scan(&mut bench, all), (0..1000).collect::<Vec<_>>());
    let (low, high) = (key_of(100), key_of(200));
    let range = ScanRequest { low: Bound::Included(&low), high: Bound::Excluded(&high), ..all };
    assert_eq!(scan(&mut bench, range), (100..200).collect::<Vec<_>>());
    let back = ScanRequest { reverse: true, limit: 70, ..range };
    assert_eq!(scan(&mut bench, back), (130..200).rev().collect::<Vec<_>>());
    let mut loose = scan(&mut bench, ScanRequest { ordered: false, batch_rows: 100, ..all });
    loose.sort_unstable();
    assert_eq!(loose, (0..1000).collect::<Vec<_>>());
    assert_eq!(scan(&mut bench, ScanRequest { ordered: false, limit: 7, ..all }).len(), 7);
    assert_eq!(scan(&mut bench, ScanRequest { limit: 0, ..all }), []);
}

#[test]
fn a_scan_goes_on_elsewhere_when_its_node_dies_half_way() {
    let mut bench = Bench::ready(1000);
    let mut left = 6;
    bench.hook = Box::new(move |_, node, envelope, _, _| {
        if envelope.kind == Kind::ScanReq && node == NodeId(1) {
            left -= 1;
            if left < 0 {
                return Act::Break;
            }
        }
        Act::Default
    });
    let all = ScanRequest { batch_rows: 64, ordered: true, ..ScanRequest::all(TableId(7), 1) };
    assert_eq!(scan(&mut bench, all), (0..1000).collect::<Vec<_>>());
    assert!(bench.world.nodes_asked(Kind::ScanReq).contains(&2));
}

/// The first page is of one node; from there on each partition is read by itself, at its primary.
#[test]
fn a_long_scan_goes_on_at_all_primaries() {
    let mut bench = Bench::ready(1000);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let seen = asked.clone();
    bench.hook = Box::new(move |world, node, envelope, body, _| {
        if envelope.kind == Kind::ScanReq {
            let partitions: Vec<_> = ScanReq::decode(body).unwrap().partitions().collect();
            let are_own = partitions.iter().all(|p| world.view.chain(*p).primary() == Some(node));
            seen.borrow_mut().push((node, partitions.len(), are_own));
        }
        Act::Default
    });
    let all = ScanRequest { batch_rows: 64, with_keys: true, ..ScanRequest::all(TableId(7), 1) };
    let mut ids = scan(&mut bench, all);
    ids.sort_unstable();
    assert_eq!(ids, (0..1000).collect::<Vec<_>>());
    let asked = std::mem::take(&mut *asked.borrow_mut());
    // Each node has two instances.
    let (first, rest) = asked.split_at(2);
    assert!(first.iter().all(|(node, count, _)| *node == NodeId(1) && *count > 1), "{asked:?}");
    assert!(rest.iter().all(|(_, count, are_own)| *count == 1 && *are_own), "{asked:?}");
    assert!([1, 2].iter().all(|node| rest.iter().any(|(asked, ..)| *asked == NodeId(*node))), "{asked:?}");
    // A scan of some rows, or in order, is not for all nodes.
    assert_eq!(scan(&mut bench, ScanRequest { limit: 200, ..all }).len(), 200);
    assert_eq!(scan(&mut bench, ScanRequest { ordered: true, ..all }).len(), 1000);
}

/// Partitions stay together where that keeps groups together, and only if these are many.
#[test]
fn partitions_of_many_groups_stay_together() {
    for (rows, merged) in [(600, true), (100, false)] {
        let mut bench = Bench::ready(3000);
        let asked = Rc::new(RefCell::new(Vec::new()));
        let seen = asked.clone();
        bench.hook = Box::new(move |_, _, envelope, body, _| {
            if envelope.kind == Kind::ScanReq {
                seen.borrow_mut().push(ScanReq::decode(body).unwrap().partitions().count());
            }
            Act::Default
        });
        let all = ScanRequest { batch_rows: rows, groups_follow: true, ..ScanRequest::all(TableId(7), 1) };
        let mut ids = scan(&mut bench, all);
        ids.sort_unstable();
        assert_eq!(ids, (0..3000).collect::<Vec<_>>());
        assert_eq!(asked.borrow().iter().all(|count| *count > 1), merged, "{:?}", asked.borrow());
    }
}

#[test]
fn a_long_scan_goes_on_when_a_node_dies_half_way() {
    for most in 1..12 {
        let mut bench = Bench::ready(1000);
        let mut left = most;
        bench.hook = Box::new(move |_, node, envelope, _, _| {
            if envelope.kind == Kind::ScanReq && node == NodeId(2) {
                left -= 1;
                if left < 0 {
                    return Act::Break;
                }
            }
            Act::Default
        });
        let all = ScanRequest { batch_rows: 64, ..ScanRequest::all(TableId(7), 1) };
        let mut ids = scan(&mut bench, all);
        ids.sort_unstable();
        assert_eq!(ids, (0..1000).collect::<Vec<_>>(), "node 2 dies with request {most}");
    }
}

#[test]
fn a_scan_refused_by_a_backup_goes_to_the_primaries() {
    let mut bench = Bench::ready(300);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind != Kind::ScanReq {
            return Act::Default;
        }
        let req = ScanReq::decode(body).unwrap();
        if req.partitions().all(|p| world.view.chain(p).primary() == Some(node)) {
            return Act::Default;
        }
        world.refuse(node, envelope, RequestRef::new(req.request, ErrorCode::WrongView), out);
        Act::Done
    });
    let all = ScanRequest { batch_rows: 50, ordered: true, ..ScanRequest::all(TableId(7), 1) };
    assert_eq!(scan(&mut bench, all), (0..300).collect::<Vec<_>>());
}

#[test]
fn a_scan_that_does_not_advance_is_a_violation_not_a_loop() {
    let mut bench = Bench::ready(300);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if envelope.kind != Kind::ScanReq || node != NodeId(1) {
            return Act::Default;
        }
        let request = ScanReq::decode(body).unwrap().request;
        world.reply(node, envelope, Kind::ScanConf, out, |b| ScanConf::encode(b, request, true, 0, b"", &[]));
        Act::Done
    });
    let all = ScanRequest { ordered: true, ..ScanRequest::all(TableId(7), 1) };
    assert_eq!(scan(&mut bench, all), (0..300).collect::<Vec<_>>());
    assert!(bench.client.counters().violations > 0);
}

#[test]
fn aggregates_are_merged_over_nodes_and_slices() {
    let mut bench = Bench::ready(1000);
    let list = [
        Aggregate { function: AggregateFunction::CountRows, column: 0 },
        Aggregate { function: AggregateFunction::Sum, column: 0 },
        Aggregate { function: AggregateFunction::Min, column: 0 },
        Aggregate { function: AggregateFunction::Max, column: 0 },
    ];
    let (client, mut out) = (bench.client.clone(), Vec::new());
    let request = ScanRequest { batch_rows: 100, ..ScanRequest::all(TableId(7), 1) };
    bench.run(client.aggregate(&request, &list, &mut out)).unwrap();
    assert_eq!(out[0].count, 1000);
    assert_eq!((out[1].value, out[2].value, out[3].value), (Some(499_500), Some(0), Some(999)));
}

#[test]
fn row_counts_are_asked_for_by_themselves() {
    let mut bench = Bench::ready(1000);
    let estimate = Aggregate { function: AggregateFunction::EstimatedRows, column: 0 };
    let (client, mut out) = (bench.client.clone(), Vec::new());
    let request = ScanRequest::all(TableId(7), 1);
    bench.run(client.aggregate(&request, &[estimate], &mut out)).unwrap();
    assert_eq!((out[0].count, out[0].value), (1000, None));
}

fn write(id: u32, value: &[u8]) -> OpBatch {
    let mut ops = OpBatch::new();
    ops.push(&schema(), OpKind::Write, 0, &key_of(id), value).unwrap();
    ops
}

const PLAIN: ExecOptions = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 1000 };
const COMMIT: ExecOptions = ExecOptions { commit: true, savepoint: 1, lock_wait_ms: 1000 };

#[test]
fn a_transaction_writes_sees_itself_and_commits() {
    let mut bench = Bench::ready(10);
    let (client, mut out, mut rows) = (bench.client.clone(), Results::new(), Rows::new());
    let mut trans = client.begin();
    assert!(!trans.is_started() && !trans.has_writes());
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    assert!(trans.is_started() && trans.has_writes() && out.status(0) == Some(OpStatus::Done));
    let list = keys([3]);
    bench.run(client.read(&ReadBatch { trans: trans.id(), ..batch(&list) }, &mut rows)).unwrap();
    assert_eq!(rows.row(0), Some(&b"new"[..]));
    bench.run(trans.execute(&write(4, b"undone"), ExecOptions { savepoint: 2, ..PLAIN }, &mut out)).unwrap();
    bench.run(trans.rollback_to(2)).unwrap();
    let mut locked = OpBatch::new();
    locked.push_read(&schema(), true, 0, &key_of(4), Some(&[1])).unwrap();
    bench.run(trans.execute(&locked, ExecOptions { savepoint: 3, ..PLAIN }, &mut out)).unwrap();
    assert_eq!(out.row(0), Some(&row_of(4)[..]));
    assert_eq!(bench.run(trans.commit()).unwrap().epoch, Epoch(11));
    assert_eq!(bench.world.rows[&key_of(3)], b"new");
    assert_eq!(bench.world.rows[&key_of(4)], row_of(4));
    assert!(bench.run(trans.commit()).is_err());
    let token = trans.token().unwrap();
    assert_eq!(bench.run(client.outcome(&token)), Ok(Outcome::Committed));
}

#[test]
fn a_refused_statement_leaves_the_transaction_alive() {
    let mut bench = Bench::ready(2000);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    // 1500 operations are two messages; the failing one is in the second, and the first is undone with it.
    let mut ops = OpBatch::new();
    for id in 0..1500u32 {
        ops.push(&schema(), OpKind::Delete, 0, &key_of(if id == 1400 { 9999 } else { id }), b"").unwrap();
    }
    let error = bench.run(trans.execute(&ops, ExecOptions { savepoint: 2, ..PLAIN }, &mut out)).unwrap_err();
    assert_eq!((error.code, error.op, error.aborted), (ErrorCode::RowNotFound, 1400, false));
    assert!(out.is_empty() && trans.is_started());
    bench.run(trans.commit()).unwrap();
    assert_eq!((bench.world.rows.len(), &bench.world.rows[&key_of(3)][..]), (2000, &b"new"[..]));
}

#[test]
fn a_split_batch_commits_with_its_last_message() {
    let mut bench = Bench::ready(0);
    let (client, mut out, mut ops) = (bench.client.clone(), Results::new(), OpBatch::new());
    for id in 0..3000 {
        ops.push(&schema(), OpKind::Insert, 0, &key_of(id), &row_of(id)).unwrap();
    }
    let committed = bench.run(client.run_autocommit(&ops, 1000, &mut out)).unwrap();
    assert_eq!((committed.epoch, out.len(), bench.world.rows.len()), (Epoch(9), 3000, 3000));
    assert_eq!(bench.world.count(Kind::TcBatchReq), 3);
    let error = bench.run(client.run_autocommit(&ops, 1000, &mut out)).unwrap_err();
    assert_eq!(error.code, ErrorCode::DuplicateKey);
    bench.pump();
    assert!(bench.world.open.is_empty());
}

#[test]
fn an_open_transaction_ends_with_its_coordinator() {
    let mut bench = Bench::ready(10);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    let tc = trans.token().unwrap().tc_node;
    bench.kill(tc.0, true);
    bench.world.open.clear();
    let error = bench.run(trans.execute(&write(4, b"x"), ExecOptions { savepoint: 2, ..PLAIN }, &mut out)).unwrap_err();
    assert_eq!((error.code, error.aborted, trans.is_over()), (ErrorCode::NodeFailed, true, true));
    let error = bench.run(trans.commit()).unwrap_err();
    assert_eq!((error.code, error.aborted), (ErrorCode::TransactionAborted, true));
    bench.run(trans.rollback()).unwrap();
    // Also when the same node comes back as another process within the life of the transaction.
    assert_eq!(bench.world.rows[&key_of(3)], row_of(3));
}

#[test]
fn a_first_batch_is_begun_again_elsewhere_under_a_new_id() {
    let mut bench = Bench::ready(10);
    bench.hook = once(Kind::TcBatchReq, |_, _, _, _, _| Act::Break);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    let id = trans.id();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    assert_ne!(trans.id(), id);
    for (aborted, code) in [(true, ErrorCode::NodeStarting), (false, ErrorCode::WrongView)] {
        let mut trans = client.begin();
        bench.hook = once(Kind::TcBatchReq, move |world, node, envelope, body, out| {
            let request = TcBatchReq::decode(body).unwrap().request;
            world.refuse(node, envelope, RequestRef { aborted, ..RequestRef::new(request, code) }, out);
            Act::Done
        });
        bench.run(trans.execute(&write(5, b"new"), PLAIN, &mut out)).unwrap();
        bench.run(trans.rollback()).unwrap();
    }
}

#[test]
fn a_lost_commit_is_asked_for() {
    for committed in [true, false] {
        for autocommit in [true, false] {
            let mut bench = Bench::ready(10);
            let (client, mut out) = (bench.client.clone(), Results::new());
            let mut trans = client.begin();
            if !autocommit {
                bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
            }
            let mut asked = 0;
            bench.hook = Box::new(move |world, node, envelope, body, out| match envelope.kind {
                Kind::TcBatchReq if committed => {
                    world.serve(node, envelope, body, &mut Vec::new());
                    Act::Break
                }
                Kind::TcCommitReq if committed => {
                    world.commit(TcEndReq::decode(body).unwrap().trans);
                    Act::Break
                }
                Kind::TcBatchReq | Kind::TcCommitReq => Act::Break,
                Kind::TcOutcomeReq if asked < 3 => {
                    asked += 1;
                    let req = apus_signal::tc::TcOutcomeReq::decode(body).unwrap();
                    let conf = apus_signal::tc::TcOutcomeConf { request: req.request, outcome: Outcome::Open };
                    world.reply(node, envelope, Kind::TcOutcomeConf, out, |b| conf.encode(b));
                    Act::Done
                }
                _ => Act::Default,
            });
            let ended = if autocommit {
                bench.run(trans.execute(&write(3, b"new"), COMMIT, &mut out))
            } else {
                bench.run(trans.commit()).map(|_| ())
            };
            assert_eq!(ended.is_ok(), committed);
            assert_eq!(bench.world.rows[&key_of(3)] == b"new", committed);
            assert_eq!(out.lost(), committed && autocommit);
            assert!(bench.world.count(Kind::TcOutcomeReq) >= 4 && trans.is_over());
            if let Err(error) = ended {
                assert_eq!((error.code, error.aborted), (ErrorCode::NodeFailed, true));
            }
        }
    }
}

#[test]
fn an_outcome_nobody_knows_is_unknown_and_not_retried() {
    let mut bench = Bench::ready(10);
    bench.hook = Box::new(|_, _, envelope, _, _| match envelope.kind {
        Kind::TcBatchReq | Kind::TcOutcomeReq => Act::Break,
        _ => Act::Default,
    });
    let (client, mut out) = (bench.client.clone(), Results::new());
    let error = bench.run(client.run_autocommit(&write(3, b"new"), 1000, &mut out)).unwrap_err();
    assert_eq!((error.code, error.aborted), (ErrorCode::OutcomeUnknown, false));
    assert_eq!(bench.world.count(Kind::TcBatchReq), 1);
}

#[test]
fn autocommit_is_run_again_when_it_was_rolled_back() {
    let mut bench = Bench::ready(10);
    bench.hook = once(Kind::TcBatchReq, |_, _, _, _, _| Act::Break);
    let (client, mut out) = (bench.client.clone(), Results::new());
    bench.run(client.run_autocommit(&write(3, b"new"), 1000, &mut out)).unwrap();
    assert_eq!((out.len(), out.lost(), bench.world.count(Kind::TcBatchReq)), (1, false, 2));
    assert_eq!(bench.world.rows[&key_of(3)], b"new");
}

#[test]
fn dropping_rolls_back_and_a_half_done_call_ends_the_transaction() {
    let mut bench = Bench::ready(10);
    let (client, mut out) = (bench.client.clone(), Results::new());
    let mut trans = client.begin();
    bench.run(trans.execute(&write(3, b"new"), PLAIN, &mut out)).unwrap();
    drop(trans);
    bench.pump();
    assert_eq!((bench.world.count(Kind::TcRollbackReq), bench.world.open.len()), (1, 0));
    let mut trans = client.begin();
    {
        let ops = write(4, b"new");
        let mut future = std::pin::pin!(trans.execute(&ops, PLAIN, &mut out));
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(cx).is_pending());
    }
    let error = bench.run(trans.execute(&write(5, b"x"), PLAIN, &mut out)).unwrap_err();
    assert_eq!((error.code, bench.world.open.len()), (ErrorCode::TransactionAborted, 0));
    use std::future::Future;
}

#[test]
fn schema_changes_are_executed_once() {
    let mut bench = Bench::ready(0);
    let client = bench.client.clone();
    assert!(bench.run(client.dictionary(0)).unwrap().is_some());
    assert!(bench.run(client.dictionary(1)).unwrap().is_none());
    bench.hook = once(Kind::SchemaReq, |world, node, envelope, body, _| {
        world.serve(node, envelope, body, &mut Vec::new());
        Act::Break
    });
    let change = Change::CreateDatabase(DatabaseMessage { name: "d".to_owned(), collation: 0 });
    assert_eq!(bench.run(client.schema_change(change)).unwrap().version, 2);
    assert_eq!((bench.world.tokens.len(), client.schema_version()), (1, 2));
}

#[test]
fn a_whole_cluster_that_comes_back_is_found_again() {
    let mut bench = Bench::ready(10);
    bench.world.view.generation = 50;
    let map = bench.world.map_rep(NodeId(1));
    bench.push(1, &map);
    assert_eq!(bench.client.view().generation, 50);
    bench.kill(2, false);
    bench.kill(1, false);
    bench.pass_ms(2000);
    assert!(bench.linked().is_empty());
    bench.listening = vec![1, 2];
    bench.world.view = view(1, &[(1, NodeState::Up), (2, NodeState::Up)]);
    bench.world.view.cluster = 100;
    assert_eq!(read(&mut bench, &keys(0..10)).unwrap(), expect(0..10, 10));
    bench.pass_ms(1000);
    assert_eq!((bench.linked(), bench.client.view().cluster), (vec![1, 2], 100));
}

/// Clusters share hosts and ports come back: where node 1 was, node 1 of another cluster starts.
#[test]
fn a_node_of_another_cluster_at_an_old_address_is_left_alone() {
    for foreign_cluster in [0, 7] {
        let mut bench = Bench::ready(10);
        bench.kill(1, true);
        bench.hook = Box::new(move |world, node, envelope, body, out| match (node.0, envelope.kind) {
            (1, Kind::HelloReq) => {
                let hello = Hello { cluster: foreign_cluster, ..world.hello(node) };
                world.reply(node, envelope, Kind::HelloConf, out, |b| hello.encode_raw(b));
                Act::Done
            }
            (1, Kind::MapReq) if foreign_cluster != 0 => {
                let mut map = world.map(0);
                map.view.as_mut().unwrap().cluster = foreign_cluster;
                map.view.as_mut().unwrap().generation = 90;
                world.reply(node, envelope, Kind::MapConf, out, |b| map.encode_raw(b));
                Act::Done
            }
            (1, Kind::PingReq) => Act::Default,
            (1, _) => Act::Done, // does not serve anybody yet
            (11, _) => {
                world.serve(NodeId(1), envelope, body, out);
                Act::Done
            }
            _ => Act::Default,
        });
        bench.listening.extend([1, 11]);
        bench.pass_ms(1000);
        for (generation, state) in [(3, NodeState::Recovering), (4, NodeState::Up)] {
            bench.world.view = view(generation, &[(1, state), (2, NodeState::Up)]);
            bench.world.view.nodes[0].address = "node11:1".to_owned();
            let map = bench.world.map_rep(NodeId(2));
            bench.push(2, &map);
            bench.pass_ms(1000);
        }
        bench.kill(2, false);
        bench.world.view.nodes.iter_mut().filter(|n| n.id == 1).for_each(|n| n.address = "node11:1".to_owned());
        let map = bench.world.map_rep(NodeId(1));
        bench.push(11, &map);
        assert_eq!(read(&mut bench, &keys(0..10)).unwrap(), expect(0..10, 10), "cluster {foreign_cluster}");
        assert_eq!((bench.linked(), bench.client.view().cluster), (vec![1], 99));
    }
}

#[test]
fn recovering_nodes_are_linked_but_not_read() {
    let mut bench = Bench::ready(20);
    bench.world.view = view(2, &[(1, NodeState::Recovering), (2, NodeState::Up)]);
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    assert_eq!(read(&mut bench, &keys(0..20)).unwrap(), expect(0..20, 20));
    assert!(bench.world.nodes_asked(Kind::ReadReq).iter().all(|&n| n == 2));
    assert_eq!(bench.linked(), [1, 2]);
}

#[test]
fn garbage_from_a_node_closes_its_link_and_nothing_else() {
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    for round in 0..300 {
        let mut bench = Bench::ready(20);
        bench.patience_ms = 200_000;
        // Every byte of a good answer may be wrong, and the answer may be cut.
        let (at, flip, cut) = (next(), (next() % 255 + 1) as u8, round % 3 == 0);
        let kinds = [Kind::ReadReq, Kind::ScanReq, Kind::TcBatchReq, Kind::DictReadReq, Kind::MapReq];
        let kind = kinds[round % kinds.len()];
        bench.hook = once(kind, move |world, node, envelope, body, out| {
            let mut good = Vec::new();
            world.serve(node, envelope, body, &mut good);
            let length = good.len();
            good[at % length] ^= flip;
            if cut {
                good.truncate(at % length);
                let length = good.len() as u32;
                if let Some(head) = good.first_chunk_mut::<4>() {
                    *head = length.to_le_bytes();
                }
            }
            out.extend_from_slice(&good);
            Act::Done
        });
        let (client, mut out) = (bench.client.clone(), Results::new());
        let _ = read(&mut bench, &keys([1]));
        let _ = bench.run(client.scan_all(&ScanRequest::all(TableId(7), 1), &mut Rows::new()));
        let _ = bench.run(client.run_autocommit(&write(3, b"x"), 1000, &mut out));
        let _ = bench.run(client.dictionary(0));
        bench.pass_ms(20_000);
        assert_eq!(bench.linked(), [1, 2]);
        assert_eq!(read(&mut bench, &keys(5..9)).unwrap().len(), 4);
    }
    // Noise instead of a hello.
    let mut bench = Bench::with(5, |c| c.connect_timeout_ms = 300);
    bench.hook = Box::new(|_, _, _, _, out| {
        out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        Act::Done
    });
    let client = bench.client.clone();
    assert!(bench.run(client.ready()).is_err());
}

/// A virtual machine was set back or stood still: its process has no place in the newest view, and says what was true then.
fn stale_node_1() -> Bench {
    let mut bench = Bench::ready(10);
    bench.hook = Box::new(|world, node, envelope, body, out| {
        if node != NodeId(1) || envelope.kind != Kind::ReadReq {
            return Act::Default;
        }
        let request = ReadReq::decode(body).unwrap().request;
        world.reply(node, envelope, Kind::ReadConf, out, |b| {
            ReadConf::begin(b, request, 1);
            ReadConf::push_row(b, |b| b.extend_from_slice(b"what was true then"));
        });
        Act::Done
    });
    bench.world.said.insert(NodeId(1), 1);
    bench
}

#[test]
fn an_answer_by_an_older_view_of_who_is_not_in_ours_is_no_answer() {
    let mut bench = stale_node_1();
    // It has been replaced, and the old process is still found at its address.
    bench.world.view.generation = 2;
    bench.world.view.nodes[0].incarnation = 2;
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    assert_eq!(bench.linked(), [2], "the link to the old process ends with the map");
    for id in 0..9 {
        bench.pass_ms(20);
        assert_eq!(read(&mut bench, &keys([id])).unwrap(), expect([id], 10), "after {} ms", bench.now_ms());
    }
    assert!(bench.client.counters().outdated > 0, "it was linked again and asked");
    let batch = write(3, b"new");
    let (client, mut results) = (bench.client.clone(), Results::new());
    bench.run(client.run_autocommit(&batch, 1000, &mut results)).expect("committed elsewhere");
}

#[test]
fn an_answer_by_an_older_view_of_a_member_is_taken() {
    let mut bench = Bench::ready(10);
    bench.world.view.generation = 2;
    bench.world.said.insert(NodeId(1), 1);
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    assert_eq!(read(&mut bench, &keys([1])).unwrap(), expect([1], 10));
    assert_eq!((bench.world.nodes_asked(Kind::ReadReq), bench.linked()), (vec![1], vec![1, 2]));
    assert_eq!(bench.client.counters().outdated, 0);
}

#[test]
fn who_is_found_first_after_all_links_were_lost_does_not_bring_an_older_map() {
    let mut bench = stale_node_1();
    bench.kill(1, true);
    assert_eq!(bench.client.view().generation, 2);
    bench.kill(2, false);
    bench.world.view = view(1, &[(1, NodeState::Up), (2, NodeState::Up)]);
    bench.world.said.insert(NodeId(1), 1);
    bench.listening = vec![1];
    bench.pass_ms(2_000);
    assert_eq!(bench.client.view().generation, 2, "of the same founding, so it is older");
    bench.world.view = view(3, &[(1, NodeState::Down), (2, NodeState::Up)]);
    bench.listening = vec![1, 2];
    assert_eq!(read(&mut bench, &keys([4])).unwrap(), expect([4], 10));
    assert_eq!(bench.linked(), [2]);
}

/// Another process of that node is in our view, all links are lost, and the old one is found at its address; another worker of it answers before its map comes.
#[test]
fn who_is_found_first_after_all_links_were_lost_answers_nothing_before_its_map() {
    let mut bench = stale_node_1();
    bench.world.view.generation = 2;
    bench.world.view.nodes[0].incarnation = 2;
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    bench.kill(2, false);
    let mut stale = std::mem::replace(&mut bench.hook, Box::new(|_, _, _, _, _| Act::Default));
    bench.hook = Box::new(move |world, node, envelope, body, out| match (node, envelope.kind) {
        (NodeId(1), Kind::MapReq) => Act::Done,
        _ => stale(world, node, envelope, body, out),
    });
    bench.listening = vec![1];
    for id in 0..9 {
        let answer = read(&mut bench, &keys([id]));
        assert!(answer.is_err(), "{answer:?}");
    }
    assert!(bench.client.counters().outdated > 0, "it was asked");
}

/// The cluster starts from disks, one of which lost its last views when the power went, and begins below what the client knows; simulator seed 1000187.
#[test]
fn a_cluster_that_begins_anew_below_the_view_that_is_known_is_believed() {
    let mut bench = Bench::ready(10);
    bench.world.view.generation = 5;
    let map = bench.world.map_rep(NodeId(2));
    bench.push(2, &map);
    bench.kill(1, true);
    bench.kill(2, false);
    let mut first = view(4, &[(1, NodeState::Down), (2, NodeState::Up)]);
    (first.lineage, first.nodes[1].incarnation) = (1, 2);
    bench.world.view = first;
    bench.world.processes.insert(NodeId(2), 2);
    bench.listening = vec![2];
    assert_eq!(read(&mut bench, &keys([4])).unwrap(), expect([4], 10));
    assert_eq!(bench.client.view().point(), (1, 4));
}

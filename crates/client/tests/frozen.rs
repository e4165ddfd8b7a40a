//! Nodes that are frozen refuse every request before anybody has looked at it.

mod common;

use std::{cell::Cell, rc::Rc};

use apus_client::{ExecOptions, OpBatch, Results};
use apus_signal::{
    Kind,
    tc::{OpKind, RequestRef},
    view::NodeState,
};
use apus_types::{ErrorCode, NodeId};
use common::{Act, Bench, key_of, schema, view};

/// Two replicas; with the switch on both refuse.
fn bench() -> (Bench, Rc<Cell<bool>>) {
    let mut bench = Bench::new(10);
    bench.listening = vec![1, 2];
    bench.world.view = view(1, &[(1, NodeState::Up), (2, NodeState::Up)]);
    bench.link();
    let frozen = Rc::new(Cell::new(false));
    let switch = frozen.clone();
    bench.hook = Box::new(move |world, node, envelope, body, out| {
        if !switch.get()
            || !matches!(envelope.kind, Kind::TcBatchReq | Kind::TcCommitReq | Kind::ReadReq | Kind::MapReq)
        {
            return Act::Default;
        }
        let request = body.first_chunk().map_or(0, |head| u64::from_le_bytes(*head)); // none of a question for the map
        world.refuse(node, envelope, RequestRef::new(request, ErrorCode::Frozen), out);
        Act::Done
    });
    (bench, frozen)
}

fn write(id: u32) -> OpBatch {
    let mut ops = OpBatch::new();
    ops.push(&schema(), OpKind::Write, 0, &key_of(id), b"new").expect("it has room");
    ops
}

/// Milliseconds until the statement is refused with the number.
fn refused_after(bench: &mut Bench, id: u32) -> u64 {
    let (client, mut results, began) = (bench.client.clone(), Results::new(), bench.now_ms());
    let error = bench.run(client.run_autocommit(&write(id), 1000, &mut results)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Frozen, "{error}");
    assert!(bench.world.rows[&key_of(id)] != b"new");
    bench.now_ms() - began
}

fn goes_on(bench: &mut Bench, id: u32) {
    let (client, mut results) = (bench.client.clone(), Results::new());
    bench.run(client.run_autocommit(&write(id), 1000, &mut results)).expect("it goes on");
    assert_eq!(bench.world.rows[&key_of(id)], b"new");
}

/// A freeze that is over in a moment is hidden; of one that lasts the first statement hears in a second and all others at once.
#[test]
fn an_autocommit_statement_gets_the_number_in_a_second() {
    let (mut bench, frozen) = bench();
    frozen.set(true);
    let first = refused_after(&mut bench, 3);
    assert!((1000..1200).contains(&first), "{first} ms");
    for _ in 0..3 {
        let next = refused_after(&mut bench, 3);
        assert!(next < 20, "{next} ms");
        bench.pass_ms(1000);
    }
    frozen.set(false);
    goes_on(&mut bench, 3);
    frozen.set(true);
    let again = refused_after(&mut bench, 4);
    assert!((1000..1200).contains(&again), "{again} ms");
}

/// The primary is gone, and the node that is left has no new map to give.
#[test]
fn who_finds_no_primary_learns_that_the_rest_is_frozen() {
    let (mut bench, frozen) = bench();
    frozen.set(true);
    bench.kill(1, false);
    let (newer, known) = (bench.world.view.generation, bench.client.view());
    let is_of_dead = |id: &u32| known.chain(bench.world.partition(&key_of(*id))).primary() == Some(NodeId(1));
    let id = (0..10).find(is_of_dead).expect("a key of node 1");
    let first = refused_after(&mut bench, id);
    assert!(first < 1200, "{first} ms");
    let next = refused_after(&mut bench, id);
    assert!(next < 20, "{next} ms");
    frozen.set(false);
    assert!(newer > known.generation);
    bench.tell_all();
    goes_on(&mut bench, id);
}

/// The coordinator has not undone what the statement did before, so the whole transaction is.
#[test]
fn an_open_transaction_is_rolled_back() {
    for commits in [false, true] {
        let (mut bench, frozen) = bench();
        let (client, mut results) = (bench.client.clone(), Results::new());
        let mut transaction = client.begin();
        bench.run(transaction.execute(&write(1), ExecOptions::default(), &mut results)).expect("it is served");
        frozen.set(true);
        let error = if commits {
            bench.run(transaction.commit()).unwrap_err()
        } else {
            bench.run(transaction.execute(&write(2), ExecOptions::default(), &mut results)).unwrap_err()
        };
        assert!(error.aborted && transaction.is_over(), "{error}");
        frozen.set(false);
        bench.pass_ms(100);
        assert!(bench.world.rows[&key_of(1)] != b"new" && bench.world.count(Kind::TcRollbackReq) > 0);
    }
}

/// A frozen coordinator answers neither a rollback nor a batch that it had begun before it can end them. Both are undone in any case.
#[test]
fn what_is_undone_in_any_case_is_not_waited_for() {
    for rolls_back in [true, false] {
        let (mut bench, frozen) = bench();
        let (client, mut results) = (bench.client.clone(), Results::new());
        let mut transaction = client.begin();
        bench.run(transaction.execute(&write(1), ExecOptions::default(), &mut results)).expect("it is served");
        frozen.set(true);
        let mut refuses = std::mem::replace(&mut bench.hook, Box::new(|_, _, _, _, _| Act::Default));
        bench.hook = Box::new(move |world, node, envelope, body, out| match envelope.kind {
            Kind::TcRollbackReq | Kind::TcBatchReq => Act::Done,
            _ => refuses(world, node, envelope, body, out),
        });
        let began = bench.now_ms();
        if rolls_back {
            bench.run(transaction.rollback()).expect("it is over");
        } else {
            let error = bench.run(transaction.execute(&write(2), ExecOptions::default(), &mut results)).unwrap_err();
            assert!(error.aborted && error.code == ErrorCode::NodeFailed, "{error}");
        }
        assert!(transaction.is_over() && bench.now_ms() - began < 2000, "{} ms", bench.now_ms() - began);
    }
}

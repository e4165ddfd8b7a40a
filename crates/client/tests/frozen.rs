//! Nodes that are frozen refuse every request before anybody has looked at it.

mod common;

use std::{cell::Cell, rc::Rc};

use apus_client::{ExecOptions, OpBatch, Results};
use apus_signal::{
    Kind,
    tc::{OpKind, RequestRef},
    view::NodeState,
};
use apus_types::ErrorCode;
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
        if !switch.get() || !matches!(envelope.kind, Kind::TcBatchReq | Kind::TcCommitReq | Kind::ReadReq) {
            return Act::Default;
        }
        let request = u64::from_le_bytes(*body.first_chunk().expect("a number"));
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

#[test]
fn an_autocommit_statement_gets_the_number_when_its_time_is_over() {
    let (mut bench, frozen) = bench();
    frozen.set(true);
    let (client, mut results, began) = (bench.client.clone(), Results::new(), bench.now_ms());
    let error = bench.run(client.run_autocommit(&write(3), 1000, &mut results)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Frozen, "{error}");
    assert!(bench.now_ms() > began + 100 && bench.world.rows[&key_of(3)] != b"new");
    frozen.set(false);
    bench.run(client.run_autocommit(&write(3), 1000, &mut results)).expect("it goes on");
    assert_eq!(bench.world.rows[&key_of(3)], b"new");
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

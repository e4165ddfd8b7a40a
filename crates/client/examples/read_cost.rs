//! What a single-key committed read costs in the client: run under callgrind with different counts and subtract.
//!
//! `cargo build --profile release -p apus-client --example read_cost`, then
//! `valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/read_cost 10000 1`. Arguments: reads, and how many
//! of them are in flight at a time. The node's answers are made outside of what is measured.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use apus_client::{Action, Client, ClientConfig, ConnId, Driver, KeyList, ReadBatch, Rows};
use apus_signal::{
    Envelope, Kind,
    envelope::{decode_frame, frame_length},
    hello::{Hello, MAGIC, Role},
    key_read::{ReadConf, ReadReq},
    view::{ClusterMap, NodeState, View, ViewNode},
};
use apus_types::{Chain, Epoch, NodeId, TableId, TransId};
use prost::Message;

fn answer(envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
    let head = |kind| Envelope { kind, to: envelope.from, from: envelope.to, epoch: Epoch(1), trace: 0, generation: 0 };
    match envelope.kind {
        Kind::MapReq => {
            let node = ViewNode { id: 1, state: NodeState::Up as i32, ..ViewNode::default() };
            let chains = vec![Chain::new(&[NodeId(1)]).0; 8];
            let view = View { generation: 1, nodes: vec![node], chains, instances: 2, cluster: 1, ..View::default() };
            let map = ClusterMap { request: 0, view: Some(view), schema_version: 1 };
            head(Kind::MapConf).encode(out, |b| map.encode_raw(b));
        }
        Kind::ReadReq => {
            let request = ReadReq::decode(body).map_or(0, |r| r.request);
            head(Kind::ReadConf).encode(out, |b| {
                ReadConf::begin(b, request, 1);
                ReadConf::push_row(b, |b| b.extend_from_slice(&[7; 100]));
            });
        }
        _ => {}
    }
}

fn exchange(driver: &Driver, conn: ConnId, requests: &mut Vec<u8>, answers: &mut Vec<u8>) {
    requests.clear();
    answers.clear();
    driver.take_output(conn, requests);
    let mut at = 0;
    while let Ok(Some(length)) = frame_length(&requests[at..]) {
        if let Ok((envelope, body)) = decode_frame(&requests[at..at + length]) {
            answer(&envelope, body, answers);
        }
        at += length;
    }
}

type Reads<'a> = Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>;

/// One poll of every task, as an executor would.
#[inline(never)]
fn measured_poll(tasks: &mut Reads<'_>, cx: &mut Context<'_>) -> bool {
    let mut pending = false;
    for task in tasks {
        pending |= task.as_mut().poll(cx) == Poll::Pending;
    }
    pending
}

#[inline(never)]
fn measured_receive(driver: &Driver, conn: ConnId, answers: &[u8]) {
    driver.received(conn, answers);
}

fn main() {
    let argument = |n: usize, default| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (count, tasks): (u32, u32) = (argument(1, 10_000), argument(2, 1));
    let Ok(client) = Client::new(ClientConfig::new(vec!["node:1".to_owned()], 1)) else { return };
    let driver = client.driver();
    driver.tick(0);
    let Some(Action::Connect { conn, .. }) = driver.next_action() else { return };
    let role = Role::Data as i32;
    let hello = Hello { magic: MAGIC, role, node: 1, peer: 0x8000, workers: 1, ..Hello::default() };
    if driver.opened(conn).is_none() || !driver.admitted(conn, &hello) {
        return;
    }
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        exchange(&driver, conn, &mut requests, &mut answers);
        driver.received(conn, &answers);
    }
    let each = count / tasks;
    let read = |task: u32| {
        let client = client.clone();
        async move {
            let (mut keys, mut rows) = (KeyList::new(), Rows::new());
            for i in 0..each {
                keys.clear();
                let key = (i * tasks + task).to_be_bytes();
                let hash = apus_types::hash::hash_key(&key);
                if keys.push_hashed(hash, &key).is_err() {
                    return;
                }
                let (trans, table) = (TransId::NONE, TableId(7));
                let batch = ReadBatch {
                    trans,
                    snapshot: Default::default(),
                    table,
                    schema_version: 1,
                    columns: None,
                    keys: &keys,
                };
                if client.read(&batch, &mut rows).await.is_err() || rows.row(0).is_none() {
                    eprintln!("a read failed");
                    return;
                }
            }
        }
    };
    let mut list: Reads<'_> = (0..tasks).map(|t| Box::pin(read(t)) as Pin<Box<dyn Future<Output = ()>>>).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut rounds = 0;
    // All tasks make the same number of reads, so none is polled after its end.
    while measured_poll(&mut list, &mut cx) {
        exchange(&driver, conn, &mut requests, &mut answers);
        measured_receive(&driver, conn, &answers);
        rounds += 1;
    }
    println!("{count} reads in {rounds} rounds of {tasks}");
}

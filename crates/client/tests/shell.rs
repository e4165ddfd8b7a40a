//! The tokio shell on real sockets, against a small server that answers like a good data node.

mod common;

use std::{cell::RefCell, rc::Rc};

use apus_auth::{Acceptor, Keys, Progress, Secret};
use apus_client::{Client, ClientConfig, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest};
use apus_signal::{
    envelope::{decode_frame, frame_length},
    hello::Hello,
    tc::OpKind,
    view::NodeState,
};
use apus_types::{NodeId, TableId, TransId};
use common::{World, key_of, row_of, schema, view};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, LocalSet},
};

/// Reads seen by a fake node: calls and frames, to see that requests travel together.
#[derive(Default)]
struct Seen {
    reads: usize,
    frames: usize,
}

fn secret() -> Secret {
    Secret::from_bytes([2; 32])
}

fn config(seeds: &[String], id: u64) -> ClientConfig {
    ClientConfig { secret: secret(), ..ClientConfig::new(seeds.to_vec(), id) }
}

/// Lets in whoever proves the client secret.
async fn admit(me: NodeId, stream: &mut TcpStream, hello: Hello) -> Option<()> {
    let keys = Keys { node: Secret::from_bytes([1; 32]), client: secret() };
    let mut acceptor = Acceptor::new(hello, &keys, [me.0 as u8; 32]);
    let mut buffer = [0; 2048];
    loop {
        let missing = acceptor.missing();
        let count = stream.read(&mut buffer[..missing]).await.ok().filter(|count| *count > 0)?;
        match acceptor.take(&buffer[..count]) {
            Ok(Progress::More) => {}
            Ok(Progress::Send(out)) => stream.write_all(&out).await.ok()?,
            Ok(Progress::Done(_)) => return stream.write_all(&acceptor.admit(NodeId(0x8000), 0)).await.ok(),
            Err(failure) => {
                let _ = stream.write_all(&Acceptor::refusal(&failure)).await;
                return None;
            }
        }
    }
}

async fn serve(me: NodeId, mut stream: TcpStream, world: Rc<RefCell<World>>, seen: Rc<RefCell<Seen>>) {
    let hello = world.borrow().hello(me);
    if admit(me, &mut stream, hello).await.is_none() {
        return;
    }
    let (mut input, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(count) = stream.read(&mut buffer).await
        && count > 0
    {
        input.extend_from_slice(&buffer[..count]);
        let (mut at, mut out) = (0, Vec::new());
        seen.borrow_mut().reads += 1;
        while let Some(length) = frame_length(&input[at..]).unwrap().filter(|l| *l <= input.len() - at) {
            let (envelope, body) = decode_frame(&input[at..at + length]).unwrap();
            world.borrow_mut().serve(me, &envelope, body, &mut out);
            seen.borrow_mut().frames += 1;
            at += length;
        }
        input.drain(..at);
        if stream.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn listen(me: NodeId, listener: TcpListener, world: Rc<RefCell<World>>, seen: Rc<RefCell<Seen>>) -> JoinHandle<()> {
    tokio::task::spawn_local(async move {
        let mut links = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            links.spawn_local(serve(me, stream, world.clone(), seen.clone()));
        }
    })
}

struct Cluster {
    world: Rc<RefCell<World>>,
    seen: Rc<RefCell<Seen>>,
    nodes: Vec<JoinHandle<()>>,
    seeds: Vec<String>,
}

async fn cluster(rows: u32) -> Cluster {
    let (world, seen) = (Rc::new(RefCell::new(World::new(rows))), Rc::default());
    let (mut nodes, mut seeds) = (Vec::new(), Vec::new());
    for id in 1..=2u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        world.borrow_mut().view.nodes[usize::from(id) - 1].address.clone_from(&address);
        seeds.push(address);
        nodes.push(listen(NodeId(id), listener, world.clone(), Rc::clone(&seen)));
    }
    Cluster { world, seen, nodes, seeds }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(std::time::Duration::from_secs(30), test).await.expect("the test took too long");
    });
}

async fn read_one(client: &Client, id: u32, rows: &mut Rows) -> Result<(), apus_client::ClientError> {
    let mut keys = KeyList::new();
    keys.push(&schema(), &key_of(id)).unwrap();
    let batch = ReadBatch {
        trans: TransId::NONE,
        snapshot: Default::default(),
        table: TableId(7),
        schema_version: 1,
        columns: None,
        keys: &keys,
    };
    client.read(&batch, rows).await
}

#[test]
fn many_tasks_share_links_and_writes() {
    run(async {
        let cluster = cluster(1000).await;
        let client = Client::connect(config(&cluster.seeds, 77)).await.unwrap();
        assert_eq!(client.linked_nodes().len(), 2);
        let before = cluster.seen.borrow().reads;
        let tasks: Vec<_> = (0..1000)
            .map(|id| {
                let client = client.clone();
                tokio::task::spawn_local(async move {
                    let mut rows = Rows::new();
                    read_one(&client, id, &mut rows).await.unwrap();
                    assert_eq!(rows.row(0), Some(&row_of(id)[..]));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let reads = cluster.seen.borrow().reads - before;
        assert!(reads <= 100, "1000 requests of one turn took {reads} reads");

        let mut out = Results::new();
        let mut ops = OpBatch::new();
        ops.push(&schema(), OpKind::Insert, 0, &key_of(5000), b"new").unwrap();
        client.run_autocommit(&ops, 1000, &mut out).await.unwrap();
        let mut rows = Rows::new();
        let request = ScanRequest { ordered: true, ..ScanRequest::all(TableId(7), 1) };
        client.scan_all(&request, &mut rows).await.unwrap();
        assert_eq!((rows.len(), rows.row(1000)), (1001, Some(&b"new"[..])));
    });
}

#[test]
fn a_killed_node_is_not_noticed_by_readers() {
    run(async {
        let cluster = cluster(100).await;
        let mut config = config(&cluster.seeds, 78);
        config.preferred_node_seed = 0;
        let client = Client::connect(config).await.unwrap();
        let mut rows = Rows::new();
        for id in 0..100 {
            if id == 50 {
                cluster.nodes[0].abort();
                let addresses: Vec<String> =
                    cluster.world.borrow().view.nodes.iter().map(|n| n.address.clone()).collect();
                let mut next = view(2, &[(1, NodeState::Down), (2, NodeState::Up)]);
                for (node, address) in next.nodes.iter_mut().zip(addresses) {
                    node.address = address;
                }
                cluster.world.borrow_mut().view = next;
            }
            read_one(&client, id, &mut rows).await.unwrap();
            assert_eq!(rows.row(0), Some(&row_of(id)[..]));
        }
        assert_eq!(client.linked_nodes(), [NodeId(2)]);
    });
}

#[test]
fn the_last_handle_closes_the_links() {
    run(async {
        let cluster = cluster(1).await;
        let client = Client::connect(config(&cluster.seeds, 79)).await.unwrap();
        let open = Rc::clone(&cluster.seen);
        let other = client.clone();
        drop(client);
        read_one(&other, 0, &mut Rows::new()).await.unwrap();
        let held = Rc::strong_count(&open);
        drop(other);
        while Rc::strong_count(&open) > held - 2 {
            tokio::task::yield_now().await;
        }
    });
}

//! Two data nodes with two workers each, a management node and a client on one thread, under a virtual clock. Only what the product
//! does is counted: wires between workers are the test's own.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use apus_blocks::NodeConfig;
use apus_client::{Action, Client, ClientConfig, ConnId, Driver};
use apus_kernel::{Block, Lease, Request, Worker, WorkerConfig};
use apus_mgmt::{Management, Memory, MgmtConfig, cluster_config, default_partitions};
use apus_signal::hello::{Hello, MAGIC, Role};
use apus_storage::MemoryManager;
use apus_types::NodeId;

use crate::counting::counted;

const MGMT: NodeId = NodeId(NodeId::MGMT_BASE + 1);
const WORKERS: u8 = 2;
/// The client's id at every node: its link belongs to worker 1.
const CLIENT: NodeId = NodeId(NodeId::CLIENT_BASE + 1);
const CLIENT_ID: u64 = 99;
const RUN_BUDGET: usize = 1024;

struct Node {
    id: NodeId,
    workers: Vec<Worker>,
    /// Bytes that arrived at each worker, by link; the beginning of a frame may remain.
    links: Vec<Vec<(NodeId, Vec<u8>)>>,
    /// Bytes from the other workers of the node.
    rings: Vec<Vec<u8>>,
}

impl Node {
    fn new(id: NodeId, blocks: impl Fn(&WorkerConfig) -> Vec<Box<dyn Block>>, instances: u8) -> Node {
        let mut workers = Vec::new();
        let (lease, control) = (Arc::<Lease>::default(), id.is_data());
        for worker in 0..instances + u8::from(control) {
            let (incarnation, seed) = (incarnation(id), 7);
            let config = WorkerConfig { node: id, worker, instances, control, incarnation, seed };
            let mut made = Worker::with_lease(config, Arc::clone(&lease));
            blocks(&config).into_iter().for_each(|block| made.add_block(block));
            workers.push(made);
        }
        let links = workers.iter().map(|_| Vec::new()).collect();
        let rings = workers.iter().map(|_| Vec::new()).collect();
        Node { id, workers, links, rings }
    }
    fn arrive(&mut self, worker: usize, from: NodeId, bytes: &[u8]) {
        let links = &mut self.links[worker];
        match links.iter_mut().find(|(node, _)| *node == from) {
            Some((_, wire)) => wire.extend_from_slice(bytes),
            None => links.push((from, bytes.to_vec())),
        }
    }
}

fn incarnation(node: NodeId) -> u64 {
    100 + u64::from(node.0)
}

struct Conn {
    id: ConnId,
    node: usize,
    /// Bytes for the client.
    inbox: Vec<u8>,
}

pub struct Cluster {
    nodes: Vec<Node>,
    linked: BTreeSet<(NodeId, NodeId)>,
    driver: Driver,
    conns: Vec<Conn>,
    now: u64,
    /// How far the clock moves with each round.
    pub step_ns: u64,
    spare: Vec<u8>,
}

fn data_node(id: NodeId) -> Node {
    let config = NodeConfig {
        node: id,
        workers: WORKERS,
        control: true,
        rejoins: false,
        kept: None,
        incarnation: incarnation(id),
        address: format!("n{}", id.0),
        mgmts: vec![(MGMT, format!("n{}", MGMT.0))],
        memory: MemoryManager::new(256 << 20),
        transaction_bytes: u64::MAX,
        slices: apus_blocks::ldm::Slices::default(),
        disk: None,
        linger_ns: apus_blocks::dih::LINGER_NS,
    };
    Node::new(id, |who| apus_blocks::build(who, &config), WORKERS)
}

impl Cluster {
    pub fn new() -> (Cluster, Client) {
        let workers = u32::from(WORKERS);
        let cluster = cluster_config(1, 1, 2, workers, default_partitions(1, 2, workers)).expect("a cluster in range");
        let mgmt = |_: &WorkerConfig| -> Vec<Box<dyn Block>> {
            let (cluster, incarnation) = (cluster.clone(), incarnation(MGMT));
            vec![Box::new(Management::new(MgmtConfig {
                node: MGMT,
                cluster,
                incarnation,
                may_adopt: false,
                found_again: false,
                memory: Memory::Process,
                mgmts: Vec::new(),
            }))]
        };
        let nodes = vec![Node::new(MGMT, mgmt, 1), data_node(NodeId(1)), data_node(NodeId(2))];
        let client = Client::new(ClientConfig::new(vec!["n1".into(), "n2".into()], CLIENT_ID)).expect("a client");
        let driver = client.driver();
        let (linked, conns, spare) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut cluster = Cluster { nodes, linked, driver, conns, now: 0, step_ns: 500_000, spare };
        cluster.run(client.ready()).expect("the cluster starts");
        while client.view().living().count() < 2 || client.linked_nodes().len() < 2 {
            cluster.round();
        }
        for _ in 0..2000 {
            cluster.round(); // until everybody is a full member and has come to rest
        }
        (cluster, client)
    }

    /// Runs the future to its end; its polls count.
    pub fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1_000_000 {
            if let Poll::Ready(value) = counted(|| future.as_mut().poll(&mut cx)) {
                return value;
            }
            self.round();
        }
        panic!("no answer at {} ms:\n{}", self.now / 1_000_000, self.dump());
    }

    fn dump(&self) -> String {
        let mut out = String::new();
        self.nodes.iter().flat_map(|n| &n.workers).for_each(|w| w.dump(&mut out));
        out
    }

    /// Everybody once: what came in, jobs, what goes out.
    pub fn round(&mut self) {
        self.now += self.step_ns;
        self.serve_client();
        for node in 0..self.nodes.len() {
            for worker in 0..self.nodes[node].workers.len() {
                self.work(node, worker);
                self.carry_away(node, worker);
            }
        }
    }

    fn work(&mut self, node: usize, index: usize) {
        let now = self.now;
        let Node { workers, links, rings, id } = &mut self.nodes[node];
        let worker = &mut workers[index];
        counted(|| worker.set_time(now, 0));
        for (from, wire) in &mut links[index] {
            if !worker.serves(*from, now) {
                continue;
            }
            let used = counted(|| worker.deliver_frames(*from, wire)).expect("frames that follow the protocol");
            wire.drain(..used);
        }
        counted(|| worker.receive_ring(&rings[index]));
        rings[index].clear();
        counted(|| {
            worker.run(RUN_BUDGET);
            worker.settle();
        });
        assert!(worker.stop_reason().is_none(), "node {id} stopped: {:?}", worker.stop_reason());
    }

    fn carry_away(&mut self, node: usize, index: usize) {
        for to in 0..self.nodes[node].workers.len() {
            let Node { workers, rings, .. } = &mut self.nodes[node];
            // As the executor does it: the buffers go round.
            if to != index && workers[index].take_ring(to as u8, &mut self.spare) {
                rings[to].extend_from_slice(&self.spare);
                self.spare.clear();
            }
        }
        let from = self.nodes[node].id;
        while let Some(to) = counted(|| self.nodes[node].workers[index].next_dirty()) {
            self.spare.clear();
            self.spare.extend_from_slice(self.nodes[node].workers[index].output(to));
            let bytes = self.spare.len();
            counted(|| self.nodes[node].workers[index].sent(to, bytes));
            if to == CLIENT {
                let conn = self.conns.iter_mut().find(|c| c.node == node).expect("the client's connection");
                conn.inbox.extend_from_slice(&self.spare);
            } else if let Some(peer) = self.nodes.iter_mut().find(|n| n.id == to) {
                let worker = if from.is_data() && to.is_data() { index } else { peer.workers.len() - 1 };
                peer.arrive(worker, from, &self.spare);
            }
            self.spare.clear();
        }
        for request in self.nodes[node].workers[index].take_requests() {
            match request {
                Request::Connect { node: to, .. } => self.link(from, to),
                Request::Write { file, .. } => panic!("{from} writes {file}"),
                Request::Disk { file, .. } => panic!("{from} writes {file}"),
                Request::Close { node: to } => panic!("{from} closes its link to {to}:\n{}", self.dump()),
            }
        }
        for line in self.nodes[node].workers[index].take_log() {
            println!("{} {from}.{index} {line}", self.now / 1_000_000);
        }
    }

    fn link(&mut self, a: NodeId, b: NodeId) {
        if a == b || !self.linked.insert((a.min(b), a.max(b))) {
            return;
        }
        for (own, other) in [(a, b), (b, a)] {
            let Some(node) = self.nodes.iter_mut().find(|n| n.id == own) else { continue };
            // A management node is linked to the control worker, which is the last.
            let links = if a.is_data() && b.is_data() { node.workers.len() } else { 1 };
            node.workers.iter_mut().rev().take(links).for_each(|w| w.link_up(other, incarnation(other)));
        }
    }

    fn admit(&mut self, conn: ConnId, node: usize) {
        let worker = usize::from((CLIENT.0 - NodeId::CLIENT_BASE) % u16::from(WORKERS));
        self.nodes[node].workers[worker].link_up(CLIENT, CLIENT_ID);
        self.conns.push(Conn { id: conn, node, inbox: Vec::new() });
        assert!(self.driver.admitted(conn, &hello_answer(self.nodes[node].id)));
    }

    fn serve_client(&mut self) {
        let driver = self.driver.clone();
        counted(|| driver.tick(self.now));
        while let Some(action) = driver.next_action() {
            match action {
                Action::Connect { conn, address } => {
                    let node = self.nodes.iter().position(|n| format!("n{}", n.id.0) == address);
                    let node = node.filter(|&n| self.conns.iter().all(|c| c.node != n));
                    match node.filter(|_| driver.opened(conn).is_some()) {
                        Some(node) => self.admit(conn, node),
                        None => driver.closed(conn),
                    }
                }
                Action::Close { conn } => panic!("the client closes {conn:?}:\n{}", self.dump()),
            }
        }
        for conn in &mut self.conns {
            if !conn.inbox.is_empty() {
                assert!(counted(|| driver.received(conn.id, &conn.inbox)), "the client refuses what a node sent");
                conn.inbox.clear();
            }
            self.spare.clear();
            if counted(|| driver.take_output(conn.id, &mut self.spare)) != Some(true) {
                continue;
            }
            let node = &mut self.nodes[conn.node];
            let worker = usize::from((CLIENT.0 - NodeId::CLIENT_BASE) % u16::from(WORKERS));
            node.arrive(worker, CLIENT, &self.spare);
            self.spare.clear();
        }
    }
}

fn hello_answer(node: NodeId) -> Hello {
    Hello {
        magic: MAGIC,
        role: Role::Data as i32,
        node: u32::from(node.0),
        incarnation: incarnation(node),
        peer: u32::from(CLIENT.0),
        workers: u32::from(WORKERS),
        ..Hello::default()
    }
}

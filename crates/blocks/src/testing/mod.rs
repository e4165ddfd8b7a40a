//! TC and LDM of a few nodes on one thread, with links that a seed orders and a view that the test decides: the transaction
//! protocol without membership around it. Whole clusters are tested in `apus-sim`.
#![expect(clippy::disallowed_macros, reason = "a failing seed is printed for whoever repeats it")]

mod changed;
mod claims;
mod copying;
mod epochs;
mod exactly_once;
mod filters;
mod groups;
mod large;
mod lists;
mod memory;
mod node_failure;
mod protocol;
mod reuse;
mod shared_locks;
mod take_over;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use apus_kernel::{Worker, WorkerConfig};
use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    dict::{TableAction, TableOrd},
    envelope::{decode_frame, frame_length},
    epoch::{SnapshotConf, SnapshotReq},
    key_read::{ReadConf, ReadReq, ReadStatus},
    schema::TableMessage,
    tc::{Op, OpKind, OpStatus, RequestRef, START, TcBatchConf, TcBatchReq, TcEndReq},
    view::{NodeState, View, ViewNode},
};
use apus_storage::{MemoryManager, REGIONS, RegionLimits};
use apus_types::{
    Chain, Column, ColumnType, Epoch, ErrorCode, IndexDef, IndexNo, IndexState, NodeId, TableId, TableSchema, TransId,
    Value, hash::hash_key, key, limits,
};
use prost::Message;

use crate::{
    NodeConfig,
    dih::{Distribution, LINGER_NS},
    harness::node_config,
    ldm::{LocalDataManager, Slices},
    tc::TransactionCoordinator,
};

pub const TABLE: TableId = TableId(10);
pub const HIDDEN: TableId = TableId(11);
/// Bytes of each node.
const MEMORY: u64 = 64 << 20;
type Regions = [RegionLimits; REGIONS.len()];

/// How many seeds a test runs: `usual`, or what APUS_SEEDS says for a long run by hand.
#[expect(clippy::disallowed_methods, reason = "a test that is run by hand for longer")]
pub fn seeds(usual: u64) -> u64 {
    std::env::var("APUS_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(usual)
}

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

/// What a client got back.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Batch { committed: bool, statuses: Vec<OpStatus>, rows: Vec<Vec<u8>> },
    Refused { code: ErrorCode, aborted: bool, op: u16, index: u16, detail: String },
    Committed,
    RolledBack,
    Rows(Vec<Option<Vec<u8>>>),
    Snapshot(Epoch),
    Other(Kind, Vec<u8>),
}

pub struct Cluster {
    pub workers: BTreeMap<NodeId, Worker>,
    /// Bytes on their way, per (from, to); frames of one link stay in order.
    wires: BTreeMap<(NodeId, NodeId), VecDeque<Vec<u8>>>,
    pub answers: BTreeMap<u64, Answer>,
    pub view: View,
    pub schema: TableSchema,
    pub rng: Rng,
    slices: Slices,
    /// How long versions are kept after the last reader at an epoch.
    linger_ns: u64,
    transaction_bytes: u64,
    /// Of each node's memory.
    regions: Regions,
    memories: BTreeMap<NodeId, Arc<MemoryManager>>,
    pub now: u64,
    /// Most that one signal has sent over links.
    pub busiest: u64,
    next_request: u64,
    /// Of the newest view in which the client's batches were answered.
    client_generation: u32,
}

fn column(name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column { nullable, ..Column::new(name, ty) }
}

/// `t(id int primary key, v bigint, u int null unique)`
fn schema() -> TableSchema {
    let int = ColumnType::Int { bits: 32, unsigned: false };
    let columns = vec![
        column("id", int, false),
        column("v", ColumnType::Int { bits: 64, unsigned: false }, false),
        column("u", int, true),
    ];
    let mut table = TableSchema::new("d", "t", columns, vec![0]);
    table.id = TABLE;
    let unique = IndexDef {
        no: IndexNo(1),
        name: "u".into(),
        columns: vec![2],
        prefixes: Vec::new(),
        list: None,
        unique: true,
        hidden_table: Some(HIDDEN),
        state: IndexState::Ready,
    };
    table.indexes.push(unique);
    table.validate().expect("test schema");
    table
}

impl Cluster {
    /// `replicas` nodes in one group, four partitions, all up. Slices are as small as the seed says.
    pub fn new(seed: u64, replicas: u16) -> Cluster {
        let slices = Slices { rows: [1, 2, 3, 256][seed as usize % 4], parts: 1 + seed as usize % 3, pause_ns: 0 };
        Cluster::with_limits(seed, replicas, slices, u64::MAX)
    }

    pub fn with_limits(seed: u64, replicas: u16, slices: Slices, transaction_bytes: u64) -> Cluster {
        Cluster::with_memory(seed, replicas, slices, transaction_bytes, MemoryManager::usual_limits(MEMORY))
    }

    fn with_memory(seed: u64, replicas: u16, slices: Slices, transaction_bytes: u64, regions: Regions) -> Cluster {
        let schema = schema();
        let mut cluster = Cluster {
            workers: BTreeMap::new(),
            wires: BTreeMap::new(),
            answers: BTreeMap::new(),
            view: View { instances: 1, cluster: 1, ..View::default() },
            schema,
            rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            slices,
            linger_ns: [0, 2_000_000, LINGER_NS][seed as usize % 3],
            transaction_bytes,
            regions,
            memories: BTreeMap::new(),
            now: 0,
            busiest: 0,
            next_request: 1,
            client_generation: 0,
        };
        let nodes: Vec<NodeId> = (1..=replicas).map(NodeId).collect();
        for &node in &nodes {
            cluster.start(node, 1);
        }
        cluster.view.nodes = nodes.iter().map(|n| view_node(*n, 1, NodeState::Up)).collect();
        cluster.view.chains = (0..4).map(|p| Chain::new(&rotated(&nodes, p)).0).collect();
        cluster.commit_view();
        cluster.quiesce();
        cluster
    }

    /// A fresh process with the schema, linked to all others.
    pub fn start(&mut self, node: NodeId, incarnation: u64) {
        let memory = MemoryManager::with_limits(MEMORY, self.regions);
        self.memories.insert(node, memory.clone());
        let mut worker = Worker::new(WorkerConfig {
            node,
            worker: 0,
            instances: 1,
            control: false,
            incarnation,
            seed: self.rng.next(),
        });
        worker.add_block(Box::new(TransactionCoordinator::new(node, 0, memory.clone(), self.slices)));
        worker.add_block(Box::new(LocalDataManager::new(node, 0, memory.clone(), self.transaction_bytes, self.slices)));
        let config = NodeConfig {
            memory,
            transaction_bytes: self.transaction_bytes,
            slices: self.slices,
            linger_ns: self.linger_ns,
            ..node_config(node, incarnation)
        };
        worker.add_block(Box::new(Distribution::new(&config)));
        worker.link_up(client(), trans(0).client);
        for (&other, peer) in &mut self.workers {
            peer.link_up(node, incarnation);
            let of_other = self.view.node(other).map_or(1, |n| n.incarnation);
            worker.link_up(other, of_other);
            self.wires.remove(&(node, other));
            self.wires.remove(&(other, node));
        }
        self.workers.insert(node, worker);
        let hidden = {
            let mut hidden = TableSchema::hidden_for(&self.schema, &self.schema.indexes[0]);
            hidden.id = HIDDEN;
            hidden
        };
        for table in [&self.schema.clone(), &hidden] {
            self.define(node, table);
        }
    }

    /// As DICT of the node orders it.
    pub fn define(&mut self, node: NodeId, table: &TableSchema) {
        let (action, table) = (TableAction::Define as i32, Some(TableMessage::from(table)));
        let order = TableOrd { request: 1, action, table, ..TableOrd::default() };
        self.tell(node, BlockId::Ldm, Kind::TableOrd, &order.encode_to_vec());
    }
    pub fn drop_table(&mut self, node: NodeId, table: TableId) {
        let order = TableOrd { request: 1, action: TableAction::Drop as i32, table_id: table.0, ..TableOrd::default() };
        self.tell(node, BlockId::Ldm, Kind::TableOrd, &order.encode_to_vec());
    }

    /// A signal from inside the node.
    pub fn tell(&mut self, node: NodeId, block: BlockId, kind: Kind, body: &[u8]) {
        let Some(worker) = self.workers.get_mut(&node) else { return };
        let from = BlockRef::new(node, BlockId::Copy, 0);
        worker.with_context(from, |ctx| {
            ctx.send(BlockRef::new(node, block, 0), kind, |out| out.extend_from_slice(body));
        });
    }

    /// Tells every node of `self.view`, as its next generation; the nodes learn it at different times.
    pub fn commit_view(&mut self) {
        self.spread_view(&mut |c| {
            for _ in 0..c.rng.below(20) {
                c.step();
            }
        });
    }

    /// The same, with what happens after each node has got it.
    pub fn spread_view(&mut self, between: &mut dyn FnMut(&mut Cluster)) {
        self.view.generation += 1;
        // Who has been there longest: a process that is new knows no epoch.
        let oldest = self.view.living().min_by_key(|n| (n.incarnation, n.id));
        self.view.president = oldest.map_or(0, |n| n.id);
        let body = self.view.encode_to_vec();
        let living: Vec<NodeId> = self.workers.keys().copied().collect();
        for node in living {
            for other in self.view.nodes.clone() {
                if let Some(worker) = self.workers.get_mut(&node).filter(|_| other.node() != node) {
                    let allowed = self.view.is_alive(other.node());
                    worker.with_context(BlockRef::new(node, BlockId::Qmgr, BlockRef::CONTROL), |ctx| {
                        ctx.accept_from(other.node(), other.incarnation, allowed);
                    });
                }
            }
        }
        // As after the first phase of the membership transaction: all know whom to listen to, none has the view yet.
        let living: Vec<NodeId> = self.workers.keys().copied().collect();
        for node in living {
            self.tell(node, BlockId::Ldm, Kind::ViewOrd, &body);
            self.tell(node, BlockId::Tc, Kind::ViewOrd, &body);
            self.tell(node, BlockId::Dih, Kind::ViewOrd, &body);
            between(self);
        }
    }

    /// The process is gone; what it had sent may still arrive in part.
    pub fn kill(&mut self, node: NodeId) {
        self.workers.remove(&node);
        self.wires.retain(|&(_, to), _| to != node);
        for (&(from, _), wire) in &mut self.wires {
            if from == node {
                let keep = self.rng.below(wire.len() + 1);
                wire.truncate(keep);
            }
        }
    }

    /// The view without the dead nodes, their chains shortened.
    pub fn remove(&mut self, dead: &[NodeId]) {
        self.drop_from_view(dead);
        self.commit_view();
    }
    pub fn drop_from_view(&mut self, dead: &[NodeId]) {
        for node in &mut self.view.nodes {
            if dead.contains(&node.node()) {
                node.state = NodeState::Down as i32;
            }
        }
        for chain in &mut self.view.chains {
            *chain = Chain(*chain).retain(|n| !dead.contains(&n)).0;
        }
    }

    /// Runs some node or delivers from some link, as the seed says. `false`: nothing is left to do.
    pub fn step(&mut self) -> bool {
        let nodes: Vec<NodeId> = self.workers.keys().copied().collect();
        let mut busy = false;
        for node in nodes {
            let Some(worker) = self.workers.get_mut(&node) else { continue };
            if self.rng.below(3) > 0 {
                worker.set_time(self.now, 0); // what is due at once, as the next slice of an end
            }
            if worker.has_work() && self.rng.below(3) > 0 {
                for _ in 0..=self.rng.below(5) {
                    let before = worker.counters().sent_link;
                    worker.run(1);
                    self.busiest = self.busiest.max(worker.counters().sent_link - before);
                }
                worker.settle();
            }
            busy |= worker.has_work() || worker.next_deadline() <= self.now;
            self.collect(node);
        }
        let full: Vec<(NodeId, NodeId)> = self.wires.iter().filter(|(_, w)| !w.is_empty()).map(|(k, _)| *k).collect();
        if full.is_empty() {
            return busy;
        }
        let link = full[self.rng.below(full.len())];
        if let Some(frame) = self.wires.get_mut(&link).and_then(VecDeque::pop_front) {
            match self.workers.get_mut(&link.1) {
                Some(worker) => {
                    let before = worker.counters().sent_link; // what comes to an idle worker is executed at once
                    worker.deliver_frames(link.0, &frame).expect("a member's frame is refused");
                    self.busiest = self.busiest.max(worker.counters().sent_link - before);
                }
                None if link.1 == client() => self.answered(&frame),
                None => {}
            }
        }
        true
    }

    fn collect(&mut self, node: NodeId) {
        let Some(worker) = self.workers.get_mut(&node) else { return };
        while let Some(to) = worker.next_dirty() {
            let mut bytes = Vec::new();
            while !worker.output(to).is_empty() {
                let start = bytes.len();
                bytes.extend_from_slice(worker.output(to));
                worker.sent(to, bytes.len() - start);
            }
            let mut rest = bytes.as_slice();
            while let Ok(Some(length)) = frame_length(rest) {
                let (frame, tail) = rest.split_at(length);
                self.wires.entry((node, to)).or_default().push_back(frame.to_vec());
                rest = tail;
            }
        }
        assert!(worker.stop_reason().is_none(), "node {node} stopped: {:?}", worker.stop_reason());
    }

    /// Until nothing moves any more.
    pub fn quiesce(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() && self.wires.values().all(VecDeque::is_empty) {
                return;
            }
        }
        panic!("the cluster does not come to rest\n{}", self.dump());
    }

    /// Lets time pass: timers and ticks.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.advance(1_000_000, 50);
        }
        self.quiesce();
    }
    /// Time passes and so many steps are taken, with whatever is under way.
    pub fn advance(&mut self, nanoseconds: u64, steps: usize) {
        self.now += nanoseconds;
        for worker in self.workers.values_mut() {
            worker.set_time(self.now, 0);
        }
        for _ in 0..steps {
            self.step();
        }
    }

    fn answered(&mut self, frame: &[u8]) {
        let (envelope, body) = decode_frame(frame).expect("answer decodes");
        let request = apus_signal::Reader::new(body).u64().expect("answer has a request number");
        let answer = match envelope.kind {
            Kind::TcBatchConf => {
                let conf = TcBatchConf::decode(body).expect("batch conf");
                self.client_generation = self.client_generation.max(envelope.generation);
                let results: Vec<_> = conf.results().map(|r| r.expect("result")).collect();
                Answer::Batch {
                    committed: conf.committed,
                    statuses: results.iter().map(|r| r.status).collect(),
                    rows: results.iter().map(|r| r.row.to_vec()).collect(),
                }
            }
            Kind::TcBatchRef | Kind::RequestRef => {
                let r = RequestRef::decode(body).expect("refusal");
                let detail = String::from_utf8_lossy(r.detail).into_owned();
                Answer::Refused { code: r.code, aborted: r.aborted, op: r.op, index: r.index, detail }
            }
            Kind::TcCommitConf => Answer::Committed,
            Kind::TcRollbackConf => Answer::RolledBack,
            Kind::ReadConf => {
                let conf = ReadConf::decode(body).expect("read conf");
                let rows = conf.rows().map(|r| r.expect("row"));
                Answer::Rows(rows.map(|(s, row)| (s == ReadStatus::Found).then(|| row.to_vec())).collect())
            }
            Kind::SnapshotConf => Answer::Snapshot(SnapshotConf::decode(body).expect("snapshot").epoch),
            kind => Answer::Other(kind, body.to_vec()),
        };
        assert!(self.answers.insert(request, answer).is_none(), "request {request} answered twice");
    }

    /// Sends a client's request; the number under which its answer will be found.
    pub fn request(&mut self, node: NodeId, block: BlockId, kind: Kind, write: impl FnOnce(&mut Vec<u8>, u64)) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        let envelope = Envelope {
            kind,
            to: BlockRef::new(node, block, 0),
            from: BlockRef::new(client(), BlockId::Client, 0),
            epoch: Epoch(0),
            trace: 0,
            generation: self.client_generation,
        };
        let mut frame = Vec::new();
        envelope.encode(&mut frame, |out| write(out, request));
        if self.workers.contains_key(&node) {
            self.wires.entry((client(), node)).or_default().push_back(frame);
        }
        request
    }

    pub fn batch(&mut self, node: NodeId, trans: TransId, flags: u8, savepoint: u32, ops: &[TestOp]) -> u64 {
        let wire = self.encode_ops(ops);
        self.request(node, BlockId::Tc, Kind::TcBatchReq, |out, request| {
            let at = TcBatchReq::begin(out, request, trans, flags, savepoint, 200);
            out.extend_from_slice(&wire);
            apus_signal::codec::patch_u16(out, at, ops.len() as u16);
        })
    }

    /// A batch as bytes of a link of its own.
    pub fn batch_frame(&mut self, node: NodeId, trans: TransId, flags: u8, ops: &[TestOp]) -> Vec<u8> {
        let wire = self.encode_ops(ops);
        let (to, from) = (BlockRef::new(node, BlockId::Tc, 0), BlockRef::new(client(), BlockId::Client, 0));
        let mut frame = Vec::new();
        Envelope { kind: Kind::TcBatchReq, to, from, epoch: Epoch(0), trace: 0, generation: 0 }.encode(
            &mut frame,
            |out| {
                let at = TcBatchReq::begin(out, 1, trans, flags, 1, 200);
                out.extend_from_slice(&wire);
                apus_signal::codec::patch_u16(out, at, ops.len() as u16);
            },
        );
        frame
    }

    pub fn end(&mut self, node: NodeId, kind: Kind, trans: TransId, savepoint: u32) -> u64 {
        self.request(node, BlockId::Tc, kind, |out, request| TcEndReq { request, trans, savepoint }.encode(out))
    }

    pub fn read(&mut self, node: NodeId, trans: TransId, ids: &[i64]) -> u64 {
        self.read_at(node, trans, Epoch(0), ids)
    }

    pub fn snapshot(&mut self, node: NodeId) -> u64 {
        self.request(node, BlockId::Dih, Kind::SnapshotReq, |out, request| SnapshotReq { request }.encode(out))
    }

    pub fn end_snapshot(&mut self, node: NodeId, request: u64) {
        self.request(node, BlockId::Dih, Kind::SnapshotEndOrd, |out, _| SnapshotReq { request }.encode(out));
    }

    pub fn read_at(&mut self, node: NodeId, trans: TransId, snapshot: Epoch, ids: &[i64]) -> u64 {
        let keys: Vec<Vec<u8>> = ids.iter().map(|&id| self.key(id)).collect();
        let view = self.view.clone();
        self.request(node, BlockId::Ldm, Kind::ReadReq, |out, request| {
            let at = ReadReq::begin(out, request, (trans, snapshot), TABLE, 1, None, false);
            for key in &keys {
                ReadReq::push_key(out, at, view.partition_of(hash_key(key)), key);
            }
        })
    }

    pub fn primary_of(&self, id: i64) -> NodeId {
        let partition = self.view.partition_of(hash_key(&self.key(id)));
        self.view.chain(partition).primary().expect("a primary")
    }

    /// Column v of these rows as the node has them now.
    pub fn values(&mut self, node: NodeId, ids: &[i64]) -> Vec<Option<i64>> {
        let request = self.read(node, TransId::NONE, ids);
        let Answer::Rows(rows) = self.wait(request) else { panic!("no rows") };
        rows.iter().map(|row| row.as_ref().map(|row| self.value(row))).collect()
    }

    pub fn key(&self, id: i64) -> Vec<u8> {
        let mut out = Vec::new();
        key::encode_part(self.schema.columns[0].ty, false, &Value::Int(id), &mut out).expect("key");
        out
    }

    pub fn row(&self, id: i64, v: i64, u: Option<i64>) -> Vec<u8> {
        let mut out = Vec::new();
        let values = [Value::Int(id), Value::Int(v), u.map_or(Value::Null, Value::Int)];
        self.schema.layout().encode(&values, &mut out).expect("row");
        out
    }

    pub fn value(&self, row: &[u8]) -> i64 {
        match self.schema.layout().value(row, 1) {
            Value::Int(v) => v,
            other => panic!("column v holds {other:?}"),
        }
    }

    fn encode_ops(&self, ops: &[TestOp]) -> Vec<u8> {
        let mut out = Vec::new();
        for op in ops {
            let key = self.key(op.id);
            let value = match op.kind {
                OpKind::Insert | OpKind::Write => self.row(op.id, op.v, op.u),
                OpKind::Update => {
                    let mut program = Vec::new();
                    apus_types::update::push_add(&mut program, 1, op.v);
                    program
                }
                _ => Vec::new(),
            };
            let partition = self.view.partition_of(hash_key(&key));
            let op = Op {
                kind: op.kind,
                flags: op.flags,
                partition,
                table: TABLE,
                schema_version: 1,
                key: &key,
                value: &value,
            };
            op.encode(&mut out);
        }
        assert!(ops.len() <= limits::BATCH_OPS_MAX);
        out
    }

    /// Runs until the request is answered.
    pub fn wait(&mut self, request: u64) -> Answer {
        for _ in 0..200_000 {
            if let Some(answer) = self.answers.remove(&request) {
                return answer;
            }
            if !self.step() {
                self.pass(1);
            }
        }
        panic!("request {request} is never answered\n{}", self.dump());
    }

    /// One autocommit operation.
    pub fn auto(&mut self, node: NodeId, seq: u64, op: TestOp) -> Answer {
        let request = self.batch(node, trans(seq), START | apus_signal::tc::COMMIT, 1, &[op]);
        self.wait(request)
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        for worker in self.workers.values() {
            worker.dump(&mut out);
        }
        out
    }
}

#[derive(Clone, Copy)]
pub struct TestOp {
    pub kind: OpKind,
    pub flags: u8,
    pub id: i64,
    pub v: i64,
    pub u: Option<i64>,
}

pub fn op(kind: OpKind, id: i64, v: i64) -> TestOp {
    TestOp { kind, flags: 0, id, v, u: None }
}

pub fn trans(seq: u64) -> TransId {
    TransId { client: 77, seq }
}

pub fn client() -> NodeId {
    NodeId(NodeId::CLIENT_BASE)
}

pub fn view_node(node: NodeId, incarnation: u64, state: NodeState) -> ViewNode {
    ViewNode {
        id: u32::from(node.0),
        state: state as i32,
        incarnation,
        group: 0,
        join_order: u64::from(node.0),
        address: String::new(),
        restored: 0,
        left: false,
    }
}

fn rotated(nodes: &[NodeId], by: usize) -> Vec<NodeId> {
    let mut nodes = nodes.to_vec();
    let by = by % nodes.len();
    nodes.rotate_left(by);
    nodes
}

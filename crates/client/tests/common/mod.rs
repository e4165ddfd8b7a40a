//! A scripted cluster of fake data nodes, and a driver with virtual time: what the client's core is tested against.
#![allow(dead_code)] // each test program uses its part

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    ops::Bound,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use apus_client::{Action, Client, ClientConfig, ConnId, Driver};
use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    dict::{DictReadReq, Dictionary, SchemaConf, SchemaReq},
    envelope::{decode_frame, frame_length},
    hello::{Hello, MAGIC, Role},
    key_read::{ReadConf, ReadReq, ReadStatus},
    mgmt::{ClusterConfig, ConfigConf, ConfigNode},
    scan::{AggregateFunction, ScanConf, ScanReq},
    tc::{
        self, ALLOW_MISSING, OpKind, OpResult, OpStatus, Outcome, RequestRef, TcBatchConf, TcBatchReq, TcEndConf,
        TcEndReq, TcFloor, TcOutcomeConf, TcOutcomeReq,
    },
    view::{ClusterMap, NodeState, View, ViewNode},
};
use apus_types::{
    Chain, Column, ColumnType, Epoch, ErrorCode, NodeId, PartitionId, TableId, TableSchema, TransId, key,
};
use prost::Message;

pub const PARTITIONS: u16 = 8;

/// What a test's hook makes of a request.
pub enum Act {
    /// As a good node would.
    Default,
    /// The hook has written the answer, or wants none.
    Done,
    /// The connection breaks, before or instead of an answer.
    Break,
}

pub type Hook = Box<dyn FnMut(&mut World, NodeId, &Envelope, &[u8], &mut Vec<u8>) -> Act>;

/// Savepoint, key, new row (`None`: deleted).
pub type Change = (u32, Vec<u8>, Option<Vec<u8>>);

/// All fake nodes share what they store: the tests are about the client.
#[derive(Default)]
pub struct World {
    pub view: View,
    pub schema_version: u64,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Changes of open transactions.
    pub open: BTreeMap<TransId, Vec<Change>>,
    pub outcomes: BTreeMap<TransId, Outcome>,
    pub tokens: BTreeMap<u64, u64>,
    /// Nodes that know an older view only.
    pub said: BTreeMap<NodeId, u64>,
    /// Incarnations of processes that are there, where it is not 1.
    pub processes: BTreeMap<NodeId, u64>,
    /// Nodes that are gone: their links break, and nobody listens there.
    pub dead: Vec<NodeId>,
    pub log: Vec<(NodeId, Kind)>,
}

pub fn schema() -> TableSchema {
    let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
    let columns = vec![
        column("id", ColumnType::Int { bits: 32, unsigned: true }),
        column("value", ColumnType::VarBinary { length: 100 }),
    ];
    let mut schema = TableSchema::new("d", "t", columns, vec![0]);
    schema.id = TableId(7);
    schema
}

pub fn key_of(id: u32) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}
pub fn row_of(id: u32) -> Vec<u8> {
    format!("row {id}").into_bytes()
}

pub fn view(generation: u64, states: &[(u16, NodeState)]) -> View {
    let living: Vec<NodeId> = states.iter().filter(|s| s.1 != NodeState::Down).map(|s| NodeId(s.0)).collect();
    let chain = |p: u16| {
        let mut chain = living.clone();
        chain.rotate_left(usize::from(p) % living.len());
        chain.sort_by_key(|n| states.iter().any(|s| s.0 == n.0 && s.1 == NodeState::Recovering));
        Chain::new(&chain).0
    };
    View {
        generation,
        president: 1,
        nodes: states
            .iter()
            .map(|&(id, state)| ViewNode {
                id: u32::from(id),
                state: state as i32,
                incarnation: 1,
                address: format!("node{id}:1"),
                ..ViewNode::default()
            })
            .collect(),
        chains: (0..PARTITIONS).map(chain).collect(),
        instances: 2,
        cluster: 99,
        ..View::default()
    }
}

impl World {
    pub fn new(rows: u32) -> World {
        World {
            view: view(1, &[(1, NodeState::Up), (2, NodeState::Up)]),
            schema_version: 1,
            rows: (0..rows).map(|i| (key_of(i), row_of(i))).collect(),
            ..World::default()
        }
    }
    pub fn partition(&self, key: &[u8]) -> PartitionId {
        self.view.partition_of(key::distribution_hash(&schema(), key))
    }
    pub fn count(&self, kind: Kind) -> usize {
        self.log.iter().filter(|l| l.1 == kind).count()
    }
    pub fn nodes_asked(&self, kind: Kind) -> Vec<u16> {
        self.log.iter().filter(|l| l.1 == kind).map(|l| l.0.0).collect()
    }

    pub fn reply(
        &self,
        me: NodeId,
        envelope: &Envelope,
        kind: Kind,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let (to, from) = (envelope.from, BlockRef { node: me, ..envelope.to });
        let generation = self.said.get(&me).copied().unwrap_or(self.view.generation) as u32;
        Envelope { kind, to, from, epoch: Epoch(5), trace: 0, generation }.encode(out, write);
    }
    pub fn refuse(&self, me: NodeId, envelope: &Envelope, refusal: RequestRef<'_>, out: &mut Vec<u8>) {
        self.reply(me, envelope, Kind::RequestRef, out, |b| refusal.encode(b));
    }
    pub fn map(&self, request: u64) -> ClusterMap {
        ClusterMap { request, view: Some(self.view.clone()), schema_version: self.schema_version }
    }
    /// The pushed map, as bytes for a client.
    pub fn map_rep(&self, me: NodeId) -> Vec<u8> {
        let mut out = Vec::new();
        let (to, from) = (BlockRef::new(NodeId(0x8000), BlockId::Client, 0), BlockRef::new(me, BlockId::Dih, 0));
        let map = self.map(0);
        Envelope { kind: Kind::MapRep, to, from, epoch: Epoch(5), trace: 0, generation: 0 }
            .encode(&mut out, |b| map.encode_raw(b));
        out
    }

    /// A good node's answer to a hello.
    pub fn hello(&self, me: NodeId) -> Hello {
        Hello {
            magic: MAGIC,
            role: if me.is_data() { Role::Data } else { Role::Mgmt } as i32,
            node: u32::from(me.0),
            incarnation: self.processes.get(&me).copied().unwrap_or(1),
            cluster: self.view.cluster,
            peer: 0x8000,
            workers: 2,
            ..Hello::default()
        }
    }

    /// The node ends itself, and the others go on without it.
    pub fn die(&mut self, node: NodeId) {
        self.dead.push(node);
        let state = |n: &ViewNode| {
            let is_down = self.dead.contains(&n.node());
            (n.node().0, if is_down { NodeState::Down } else { n.state() })
        };
        let states: Vec<(u16, NodeState)> = self.view.nodes.iter().map(state).collect();
        if states.iter().any(|s| s.1 == NodeState::Up) {
            self.view = view(self.view.generation + 1, &states);
        }
    }

    /// What a good node does.
    pub fn serve(&mut self, me: NodeId, envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
        match envelope.kind {
            Kind::HelloReq => {
                let hello = Hello::decode(body).unwrap();
                assert_eq!((hello.magic, hello.role), (MAGIC, Role::Client as i32));
                let answer = self.hello(me);
                self.reply(me, envelope, Kind::HelloConf, out, |b| answer.encode_raw(b));
            }
            Kind::PingReq => self.reply(me, envelope, Kind::PingConf, out, |b| b.extend_from_slice(body)),
            Kind::MapReq => {
                let map = self.map(0);
                self.reply(me, envelope, Kind::MapConf, out, |b| map.encode_raw(b));
            }
            Kind::ConfigReq => {
                let node = |id: u32| ConfigNode { id, address: format!("node{id}:1"), ..ConfigNode::default() };
                let config = Some(ClusterConfig {
                    cluster: self.view.cluster,
                    nodes: vec![node(1), node(2)],
                    ..ClusterConfig::default()
                });
                self.reply(me, envelope, Kind::ConfigConf, out, |b| ConfigConf { request: 0, config }.encode_raw(b));
            }
            Kind::ReadReq => self.serve_read(me, envelope, body, out),
            Kind::ScanReq => self.serve_scan(me, envelope, body, out),
            Kind::TcBatchReq => self.serve_batch(me, envelope, body, out),
            Kind::TcCommitReq => {
                let req = TcEndReq::decode(body).unwrap();
                self.commit(req.trans);
                let conf = TcEndConf { request: req.request, epoch: Epoch(11) };
                self.reply(me, envelope, Kind::TcCommitConf, out, |b| conf.encode(b));
            }
            Kind::TcRollbackReq => {
                let req = TcEndReq::decode(body).unwrap();
                if req.savepoint == 0 {
                    self.open.remove(&req.trans);
                    self.outcomes.entry(req.trans).or_insert(Outcome::Aborted);
                } else if let Some(changes) = self.open.get_mut(&req.trans) {
                    changes.retain(|c| c.0 < req.savepoint);
                }
                let conf = TcEndConf { request: req.request, epoch: Epoch(11) };
                self.reply(me, envelope, Kind::TcRollbackConf, out, |b| conf.encode(b));
            }
            Kind::TcOutcomeReq => {
                let req = TcOutcomeReq::decode(body).unwrap();
                let outcome = self.outcomes.get(&req.trans).copied().unwrap_or(Outcome::Aborted);
                let conf = TcOutcomeConf { request: req.request, outcome };
                self.reply(me, envelope, Kind::TcOutcomeConf, out, |b| conf.encode(b));
            }
            Kind::DictReadReq => {
                let req = DictReadReq::decode(body).unwrap();
                let (version, unchanged) = (self.schema_version, req.known_version == self.schema_version);
                let conf = Dictionary { request: req.request, version, unchanged, ..Dictionary::default() };
                self.reply(me, envelope, Kind::DictReadConf, out, |b| conf.encode_raw(b));
            }
            Kind::SchemaReq => {
                let req = SchemaReq::decode(body).unwrap();
                let next = self.schema_version + 1;
                let version = *self.tokens.entry(req.token).or_insert(next);
                self.schema_version = version;
                let conf = SchemaConf { request: req.request, version, table: None };
                self.reply(me, envelope, Kind::SchemaConf, out, |b| conf.encode_raw(b));
            }
            Kind::TcFloorOrd => {
                let told = TcFloor::decode(body).unwrap();
                assert!(told.client != 0 && told.floor > 1, "{told:?} says nothing");
            }
            other => panic!("a client sent {other:?}"),
        }
    }

    fn serve_read(&mut self, me: NodeId, envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
        let req = ReadReq::decode(body).unwrap();
        self.reply(me, envelope, Kind::ReadConf, out, |b| {
            ReadConf::begin(b, req.request, req.count);
            for key in req.keys() {
                let (partition, key) = key.unwrap();
                assert_eq!(partition, self.partition(key));
                assert_eq!(self.view.instance(partition), envelope.to.instance);
                let own = self.open.get(&req.trans).and_then(|c| c.iter().rev().find(|c| c.1 == key));
                match own.map_or(self.rows.get(key), |c| c.2.as_ref()) {
                    Some(row) => ReadConf::push_row(b, |b| b.extend_from_slice(row)),
                    None => ReadConf::push_missing(b, ReadStatus::NotFound),
                }
            }
        });
    }

    fn serve_scan(&mut self, me: NodeId, envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
        let req = ScanReq::decode(body).unwrap();
        let partitions: Vec<PartitionId> = req.partitions().collect();
        assert!(partitions.iter().all(|&p| self.view.instance(p) == envelope.to.instance));
        assert!(partitions.iter().all(|&p| self.view.chain(p).contains(me)));
        let inside = |key: &[u8]| {
            let low = match req.low {
                Bound::Unbounded => true,
                Bound::Included(low) => key >= low,
                Bound::Excluded(low) => key > low,
            };
            let high = match req.high {
                Bound::Unbounded => true,
                Bound::Included(high) => key <= high,
                Bound::Excluded(high) => key < high,
            };
            low && high && partitions.contains(&self.partition(key))
        };
        let mut found: Vec<_> = self.rows.iter().filter(|(key, _)| inside(key)).collect();
        if req.reverse {
            found.reverse();
        }
        let more = found.len() > req.rows_max as usize;
        found.truncate(req.rows_max as usize);
        let resume = found.last().map_or(&[][..], |f| f.0.as_slice());
        let mut rows = Vec::new();
        let mut count = found.len() as u32;
        if req.aggregates().next().is_some() {
            count = 1;
            ScanConf::push_row(&mut rows, b"", |b| {
                for aggregate in req.aggregates() {
                    b.extend_from_slice(&(found.len() as u64).to_le_bytes());
                    let ids = found.iter().map(|f| i128::from(u32::from_be_bytes(*f.0.first_chunk().unwrap())));
                    let value = match aggregate.function {
                        AggregateFunction::Sum => Some(ids.sum()),
                        AggregateFunction::Min => ids.min(),
                        AggregateFunction::Max => ids.max(),
                        _ => continue,
                    };
                    b.push(u8::from(value.is_some()));
                    b.extend_from_slice(&value.unwrap_or(0).to_le_bytes());
                }
            });
        } else {
            for (key, row) in &found {
                let key: &[u8] = if req.with_keys { key } else { b"" };
                ScanConf::push_row(&mut rows, key, |b| b.extend_from_slice(row));
            }
        }
        self.reply(me, envelope, Kind::ScanConf, out, |b| {
            ScanConf::encode(b, req.request, more, count, resume, &rows);
        });
    }

    fn serve_batch(&mut self, me: NodeId, envelope: &Envelope, body: &[u8], out: &mut Vec<u8>) {
        let req = TcBatchReq::decode(body).unwrap();
        if req.flags & tc::START != 0 {
            assert!(self.open.insert(req.trans, Vec::new()).is_none() && !self.outcomes.contains_key(&req.trans));
        }
        let Some(mut changes) = self.open.remove(&req.trans) else {
            let refusal = RequestRef { aborted: true, ..RequestRef::new(req.request, ErrorCode::TransactionNotFound) };
            return self.reply(me, envelope, Kind::TcBatchRef, out, |b| refusal.encode(b));
        };
        let mut results = Vec::new();
        for (number, op) in req.ops().enumerate() {
            let op = op.unwrap();
            assert_eq!(op.partition, self.partition(op.key));
            let seen = changes.iter().rev().find(|c| c.1 == op.key).map(|c| c.2.clone());
            let old = seen.unwrap_or_else(|| self.rows.get(op.key).cloned());
            let code = match (op.kind, &old) {
                (OpKind::Insert, Some(_)) => Some(ErrorCode::DuplicateKey),
                (OpKind::Insert | OpKind::Write, _) | (_, Some(_)) => None,
                (_, None) => Some(ErrorCode::RowNotFound),
            };
            if let Some(code) = code.filter(|_| op.flags & ALLOW_MISSING == 0) {
                changes.retain(|c| c.0 < req.savepoint);
                let aborted = req.flags & tc::COMMIT != 0;
                if !aborted {
                    self.open.insert(req.trans, changes);
                }
                let refusal = RequestRef { op: number as u16, aborted, ..RequestRef::new(req.request, code) };
                return self.reply(me, envelope, Kind::TcBatchRef, out, |b| refusal.encode(b));
            }
            let status = if code.is_some() { OpStatus::NotFound } else { OpStatus::Done };
            let row = if op.kind.is_write() { &[][..] } else { old.as_deref().unwrap_or(&[]) };
            OpResult { status, row }.encode(&mut results);
            match op.kind {
                OpKind::Delete => changes.push((req.savepoint, op.key.to_vec(), None)),
                k if k.is_write() => changes.push((req.savepoint, op.key.to_vec(), Some(op.value.to_vec()))),
                _ => {}
            }
        }
        self.open.insert(req.trans, changes);
        let committed = req.flags & tc::COMMIT != 0;
        if committed {
            self.commit(req.trans);
        }
        self.reply(me, envelope, Kind::TcBatchConf, out, |b| {
            TcBatchConf::begin(b, req.request, committed, Epoch(9), req.count);
            b.extend_from_slice(&results);
        });
    }

    pub fn commit(&mut self, trans: TransId) {
        for (_, key, row) in self.open.remove(&trans).unwrap_or_default() {
            match row {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
        self.outcomes.insert(trans, Outcome::Committed);
    }
}

struct Flag(AtomicBool);
impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The world, the client's driver and virtual time.
pub struct Bench {
    pub client: Client,
    pub world: World,
    pub hook: Hook,
    /// Nodes that accept connections.
    pub listening: Vec<u16>,
    /// Bytes reach the client in pieces of this many.
    pub piece: usize,
    driver: Driver,
    conns: BTreeMap<ConnId, (NodeId, Vec<u8>)>,
    now: u64,
    /// Time after which a future that is not ready has failed the test.
    pub patience_ms: u64,
}

impl Bench {
    pub fn new(rows: u32) -> Bench {
        Bench::with(rows, |_| {})
    }
    pub fn with(rows: u32, change: impl FnOnce(&mut ClientConfig)) -> Bench {
        let mut config = ClientConfig::new(vec!["node1:1".to_owned()], 0xc11e);
        config.preferred_node_seed = 0;
        change(&mut config);
        let client = Client::new(config).unwrap();
        Bench {
            driver: client.driver(),
            client,
            world: World::new(rows),
            hook: Box::new(|_, _, _, _, _| Act::Default),
            listening: vec![1, 2],
            piece: usize::MAX,
            conns: BTreeMap::new(),
            now: 0,
            patience_ms: 60_000,
        }
    }
    /// Linked to all nodes.
    pub fn ready(rows: u32) -> Bench {
        let mut bench = Bench::new(rows);
        bench.link();
        bench
    }
    pub fn link(&mut self) {
        let client = self.client.clone();
        self.run(client.ready()).unwrap();
        self.world.log.clear();
    }
    pub fn now_ms(&self) -> u64 {
        self.now / 1_000_000
    }

    /// Polls a future to its end, moving bytes and time meanwhile.
    pub fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut future = pin!(future);
        let end = self.now + self.patience_ms * 1_000_000;
        loop {
            if flag.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                self.pump();
                return value;
            }
            if !self.pump() && !flag.0.load(Ordering::Relaxed) {
                let next = self.driver.tick(self.now).max(self.now + 1000);
                assert!(next <= end, "stuck after {} ms of virtual time", self.now_ms());
                self.now = next;
                self.driver.tick(next);
            }
        }
    }
    /// Lets time pass.
    pub fn pass_ms(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds * 1_000_000;
        while self.now < end {
            if !self.pump() {
                self.now = self.driver.tick(self.now).clamp(self.now + 1000, end);
                self.driver.tick(self.now);
            }
        }
        self.pump();
    }

    /// One round of actions and bytes; whether anything happened.
    pub fn pump(&mut self) -> bool {
        let mut busy = false;
        while let Some(action) = self.driver.next_action() {
            busy = true;
            match action {
                Action::Close { conn } => {
                    self.conns.remove(&conn);
                }
                Action::Connect { conn, address } => {
                    let id =
                        address.strip_prefix("node").and_then(|a| a.strip_suffix(":1")).and_then(|a| a.parse().ok());
                    let node = if address == "mgmt:1" { NodeId(NodeId::MGMT_BASE) } else { NodeId(id.unwrap()) };
                    if !self.listening.contains(&node.0) || self.world.dead.contains(&node) {
                        self.driver.closed(conn);
                    } else if let Some(hello) = self.driver.opened(conn) {
                        self.greet(conn, node, &hello);
                    }
                }
            }
        }
        let conns: Vec<ConnId> = self.conns.keys().copied().collect();
        for conn in conns {
            busy |= self.serve(conn);
        }
        busy
    }

    /// The hello without its proof: what the node answers is believed.
    fn greet(&mut self, conn: ConnId, node: NodeId, hello: &Hello) {
        let link = BlockRef::new(node, BlockId::Link, 0);
        let envelope =
            Envelope { kind: Kind::HelloReq, to: link, from: link, epoch: Epoch(0), trace: 0, generation: 0 };
        let (body, mut out) = (hello.encode_to_vec(), Vec::new());
        match (self.hook)(&mut self.world, node, &envelope, &body, &mut out) {
            Act::Default => self.world.serve(node, &envelope, &body, &mut out),
            Act::Done => {}
            Act::Break => return self.driver.closed(conn),
        }
        let answer = decode_frame(&out).ok().filter(|(e, _)| e.kind == Kind::HelloConf);
        match answer.and_then(|(_, body)| Hello::decode(body).ok()) {
            None => self.driver.refused(conn, "no hello".to_owned()),
            Some(answer) if self.driver.admitted(conn, &answer) => _ = self.conns.insert(conn, (node, Vec::new())),
            Some(_) => {}
        }
    }

    fn serve(&mut self, conn: ConnId) -> bool {
        let mut bytes = Vec::new();
        let Some(true) = self.driver.take_output(conn, &mut bytes) else { return false };
        let Some((node, mut input)) = self.conns.remove(&conn) else { return true };
        input.extend_from_slice(&bytes);
        let mut at = 0;
        let mut out = Vec::new();
        let mut broken = false;
        while let Some(length) = frame_length(&input[at..]).unwrap().filter(|l| *l <= input.len() - at) {
            let (envelope, body) = decode_frame(&input[at..at + length]).unwrap();
            at += length;
            self.world.log.push((node, envelope.kind));
            match (self.hook)(&mut self.world, node, &envelope, body, &mut out) {
                Act::Default => self.world.serve(node, &envelope, body, &mut out),
                Act::Done => {}
                Act::Break => {
                    broken = true;
                    break;
                }
            }
        }
        self.conns.insert(conn, (node, input.split_off(at)));
        self.deliver(conn, &out);
        if broken {
            self.break_conn(conn);
        }
        let dead: Vec<ConnId> =
            self.conns.iter().filter(|(_, (n, _))| self.world.dead.contains(n)).map(|(conn, _)| *conn).collect();
        if !dead.is_empty() || self.world.dead.contains(&node) {
            dead.into_iter().for_each(|conn| self.break_conn(conn));
            self.tell_all();
        }
        true
    }

    pub fn deliver(&mut self, conn: ConnId, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece.min(bytes.len()).max(1)) {
            if !self.driver.received(conn, piece) {
                self.conns.remove(&conn);
                return;
            }
        }
    }
    fn break_conn(&mut self, conn: ConnId) {
        if self.conns.remove(&conn).is_some() {
            self.driver.closed(conn);
        }
    }
    fn conns_of(&self, node: u16) -> Vec<ConnId> {
        self.conns.iter().filter(|c| c.1.0.0 == node).map(|c| *c.0).collect()
    }
    /// Pushes bytes to the client as if `node` had sent them.
    pub fn push(&mut self, node: u16, bytes: &[u8]) {
        for conn in self.conns_of(node) {
            self.deliver(conn, bytes);
        }
    }
    /// All who live push their map.
    pub fn tell_all(&mut self) {
        for node in self.linked() {
            let map = self.world.map_rep(NodeId(node));
            self.push(node, &map);
        }
    }
    /// The node dies; the others know it by a new view, which they push if `tell`.
    pub fn kill(&mut self, node: u16, tell: bool) {
        self.listening.retain(|&n| n != node);
        for conn in self.conns_of(node) {
            self.break_conn(conn);
        }
        let other = 3 - node;
        self.world.view = view(self.world.view.generation + 1, &[(node, NodeState::Down), (other, NodeState::Up)]);
        if tell {
            let map = self.world.map_rep(NodeId(other));
            self.push(other, &map);
        }
    }
    pub fn linked(&self) -> Vec<u16> {
        self.client.linked_nodes().iter().map(|n| n.0).collect()
    }
}

/// Counts down a number of requests of one kind before `act` is done once.
pub fn once(
    kind: Kind,
    mut act: impl FnMut(&mut World, NodeId, &Envelope, &[u8], &mut Vec<u8>) -> Act + 'static,
) -> Hook {
    let mut queue = VecDeque::from([()]);
    Box::new(move |world, node, envelope, body, out| {
        if envelope.kind == kind && queue.pop_front().is_some() {
            return act(world, node, envelope, body, out);
        }
        Act::Default
    })
}

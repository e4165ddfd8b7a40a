//! What a node may say that was removed and does not know it: a register whose reads never go back, while nodes are paused and cut off.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use apus_blocks::NodeConfig;
use apus_client::{Client, ClientConfig, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows};
use apus_kernel::{Block, FaultRule, Random, WorkerConfig};
use apus_mgmt::{Management, Memory, MgmtConfig, cluster_config, default_partitions};
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind},
    view::NodeState,
};
use apus_sim::{Clock, Cluster, NativeClient, SimConfig, address};
use apus_storage::MemoryManager;
use apus_types::{Chain, Column, ColumnType, NodeId, TableSchema, TransId, Value, key};

const MS: u64 = 1_000_000;
/// Each writer has its own.
const REGISTERS: u64 = 8;
const WRITERS: u64 = 3;
const LONG: ColumnType = ColumnType::Int { bits: 64, unsigned: true };

fn mgmt(n: u16) -> NodeId {
    NodeId(NodeId::MGMT_BASE + n)
}

fn build(
    seed: u64,
    replicas: u32,
    mgmts: u16,
    eject_slow_ms: u32,
) -> impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + 'static {
    let workers = 2;
    let partitions = default_partitions(1, replicas, workers);
    let mut config = cluster_config(seed | 1, 1, replicas, workers, partitions).expect("a cluster in range");
    config.eject_slow_ms = eject_slow_ms;
    config.mgmts = (1..=mgmts).map(|n| u32::from(mgmt(n).0)).collect();
    let mut memories: BTreeMap<(NodeId, u64), std::sync::Arc<MemoryManager>> = BTreeMap::new();
    move |who| {
        let (cluster, incarnation) = (config.clone(), who.incarnation);
        if who.node.is_mgmt() {
            return vec![Box::new(Management::new(MgmtConfig {
                node: who.node,
                cluster,
                incarnation,
                may_adopt: false,
                found_again: false,
                memory: Memory::Process,
                mgmts: Vec::new(),
            }))];
        }
        let memory = memories.entry((who.node, incarnation)).or_insert_with(|| MemoryManager::new(64 << 20)).clone();
        let node = NodeConfig {
            node: who.node,
            workers: who.instances,
            control: who.control,
            rejoins: false,
            kept: None,
            incarnation,
            address: address(who.node, incarnation),
            mgmts: (1..=mgmts).map(|n| (mgmt(n), address(mgmt(n), 0))).collect(),
            memory,
            transaction_bytes: u64::MAX,
            slices: apus_blocks::ldm::Slices::default(),
            disk: None,
            linger_ns: apus_blocks::dih::LINGER_NS,
        };
        apus_blocks::build(who, &node)
    }
}

/// What all clients know together; they live in one thread.
#[derive(Default)]
struct Board {
    table: RefCell<Option<TableSchema>>,
    /// By register: the highest value that was acknowledged, or read by anybody.
    floor: RefCell<BTreeMap<u64, u64>>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    violations: RefCell<Vec<String>>,
    /// What a client was told that its caller would see.
    errors: RefCell<Vec<String>>,
    /// Longest time between two acknowledged writes, and when the last one was, ns.
    gap: Cell<u64>,
    last: Cell<u64>,
    /// Machines are frozen with their clocks.
    clocks_stop: Cell<bool>,
}

impl Board {
    fn note<T>(&self, result: Result<T, ClientError>, now: u64) -> bool {
        match &result {
            Ok(_) => {
                self.gap.set(self.gap.get().max(now - self.last.get()));
                self.last.set(now);
            }
            Err(error) => self.errors.borrow_mut().push(format!("at {now}: {error}")),
        }
        result.is_ok()
    }
}

fn schema() -> TableSchema {
    let column = |name: &str| Column { nullable: false, ..Column::new(name, LONG) };
    TableSchema::new("test", "registers", vec![column("id"), column("value")], vec![0])
}
fn encode(id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_part(LONG, false, &Value::UInt(id), &mut out).expect("every number fits");
    out
}

async fn make_table(client: &Client) -> Result<TableSchema, ClientError> {
    client.ready().await?;
    let database = DatabaseMessage { name: "test".to_owned(), collation: u32::from(schema().collation.id()) };
    // There already, perhaps.
    let _ = client.schema_change(Change::CreateDatabase(database)).await;
    client.schema_change(Change::CreateTable(TableMessage::from(&schema()))).await?;
    let dictionary = client.dictionary(0).await?.unwrap_or_default();
    let found = dictionary.tables.iter().find(|t| t.name == "registers").and_then(|t| TableSchema::try_from(t).ok());
    Ok(found.expect("the table was made"))
}

/// Sets registers to ever higher values, each acknowledged before the next.
async fn write(client: Client, board: Rc<Board>, clock: Clock, writer: u64) {
    if writer > 0 {
        while board.table.borrow().is_none() {
            clock.sleep(MS).await;
        }
    } else {
        match make_table(&client).await {
            Ok(table) => *board.table.borrow_mut() = Some(table),
            Err(error) => return board.violations.borrow_mut().push(format!("no table: {error}")),
        }
    }
    let _ = client.ready().await;
    let table = board.table.borrow().clone().expect("was just put there");
    for value in 1.. {
        let id = writer * REGISTERS + value % REGISTERS;
        let mut row = Vec::new();
        table.layout().encode(&[Value::UInt(id), Value::UInt(value)], &mut row).expect("the row fits");
        let mut ops = OpBatch::new();
        ops.push(&table, OpKind::Write, 0, &encode(id), &row).expect("one operation");
        // A write that fails may be made or not: nothing follows from it.
        let result = match value % 3 {
            0 => two_statements(&client, &table, id, &ops, &clock).await,
            _ => client.run_autocommit(&ops, 1000, &mut Results::new()).await.map(|_| ()),
        };
        if board.note(result, clock.now()) {
            let mut floor = board.floor.borrow_mut();
            let known = floor.entry(id).or_default();
            *known = value.max(*known);
            board.writes.set(board.writes.get() + 1);
        }
        clock.sleep(200_000).await;
    }
}

/// Locks the register, thinks, and writes it.
async fn two_statements(
    client: &Client,
    table: &TableSchema,
    id: u64,
    write: &OpBatch,
    clock: &Clock,
) -> Result<(), ClientError> {
    let (mut trans, mut results) = (client.begin(), Results::new());
    let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 1000 };
    let mut lock = OpBatch::new();
    lock.push(table, OpKind::ReadExclusive, ALLOW_MISSING, &encode(id), &[]).expect("one operation");
    trans.execute(&lock, options, &mut results).await?;
    clock.sleep(2 * MS).await;
    trans.execute(write, ExecOptions { savepoint: 2, ..options }, &mut results).await?;
    trans.commit().await.map(|_| ())
}

/// What a read finds is not older than what anybody knew when it was asked; or, where machines are frozen with their clocks, than what this client
/// knew: it believes a node that was removed until it has heard of that by anybody.
async fn read(client: Client, board: Rc<Board>, clock: Clock, reader: u64) {
    let _ = client.ready().await;
    let mut own: BTreeMap<u64, u64> = BTreeMap::new();
    loop {
        clock.sleep(50_000 + reader * 3_000).await;
        let Some(table) = board.table.borrow().clone() else { continue };
        let id = board.reads.get() % (WRITERS * REGISTERS);
        let known = match board.clocks_stop.get() {
            true => own.get(&id).copied(),
            false => board.floor.borrow().get(&id).copied(),
        };
        let known = known.unwrap_or(0);
        let (mut keys, mut rows) = (KeyList::new(), Rows::new());
        keys.push(&table, &encode(id)).expect("one key");
        let request = ReadBatch {
            trans: TransId::NONE,
            snapshot: Default::default(),
            table: table.id,
            schema_version: table.version,
            columns: None,
            keys: &keys,
        };
        if let Err(error) = client.read(&request, &mut rows).await {
            board.errors.borrow_mut().push(format!("at {}: read: {error}", clock.now()));
            continue;
        }
        let found = rows.row(0).map_or(0, |row| match table.layout().value(row, 1) {
            Value::UInt(n) => n,
            other => panic!("the register holds {other:?}"),
        });
        if found < known {
            let text = format!("reader {reader} finds {found} in register {id}, when {known} was known before");
            board.violations.borrow_mut().push(text);
        }
        for floor in [&mut own, &mut *board.floor.borrow_mut()] {
            let floor = floor.entry(id).or_default();
            *floor = found.max(*floor);
        }
        board.reads.set(board.reads.get() + 1);
    }
}

struct Drill {
    cluster: Cluster,
    board: Rc<Board>,
    clients: Vec<Client>,
    nodes: u16,
}

impl Drill {
    fn new(seed: u64, replicas: u16, mgmts: u16, link_spike_ns: (u64, u64)) -> Drill {
        Drill::with_setting(seed, replicas, mgmts, link_spike_ns, 0)
    }
    fn with_setting(seed: u64, replicas: u16, mgmts: u16, link_spike_ns: (u64, u64), eject_slow_ms: u32) -> Drill {
        let mut nodes: Vec<(NodeId, u8)> = (1..=replicas).map(|n| (NodeId(n), 2)).collect();
        nodes.extend((1..=mgmts).map(|n| (mgmt(n), 1)));
        let link_delay_ns = (20_000, 300_000);
        // Every second cluster has machines whose clocks run at different speeds.
        let (clock_offset_ns, clock_rate_ppm) = (3_600_000 * MS, seed % 2 * 15_000);
        let config = SimConfig {
            link_delay_ns,
            link_spike_ns,
            clock_offset_ns,
            clock_rate_ppm,
            link_all: false,
            ..SimConfig::new(&nodes)
        };
        let mut cluster = Cluster::new(seed, config, build(seed, u32::from(replicas), mgmts, eject_slow_ms));
        let board = Rc::new(Board::default());
        let mut clients = Vec::new();
        for number in 0..WRITERS + 2 * u64::from(replicas) {
            let mut config =
                ClientConfig::new((1..=mgmts).map(|n| address(mgmt(n), 0)).collect(), (seed << 16) | (1 + number));
            (config.preferred_node_seed, config.attempt_timeout_ms) = (number, 400);
            let client = Client::new(config).expect("a client in range");
            let clock = Clock::default();
            let mut actor = NativeClient::new(&client, clock.clone());
            match number {
                0..WRITERS => actor.spawn(write(client.clone(), board.clone(), clock, number)),
                _ => actor.spawn(read(client.clone(), board.clone(), clock, number)),
            }
            cluster.attach(Box::new(actor));
            clients.push(client);
        }
        Drill { cluster, board, clients, nodes: replicas }
    }
    fn pass(&mut self, ms: u64) {
        let end = self.cluster.now() + ms * MS;
        self.cluster.run_until(|_| false, end);
        let violations = self.board.violations.borrow();
        assert!(violations.is_empty(), "{violations:#?}\n{}", self.cluster.log().join("\n"));
    }
    /// Primaries by node, as the first client knows it.
    fn primaries(&self) -> BTreeMap<NodeId, usize> {
        let view = self.clients[0].view();
        let mut counts: BTreeMap<NodeId, usize> = (1..=self.nodes).map(|n| (NodeId(n), 0)).collect();
        for chain in &view.chains {
            *counts.entry(Chain(*chain).primary().expect("a chain has one")).or_default() += 1;
        }
        counts
    }
    fn is_even(&self) -> bool {
        let counts = self.primaries();
        counts.values().max().zip(counts.values().min()).is_some_and(|(most, least)| most - least <= 1)
    }
    fn wait_whole(&mut self) {
        for _ in 0..30_000 {
            for node in (1..=self.nodes).map(NodeId) {
                if !self.cluster.is_running(node) {
                    self.cluster.crash(node);
                    self.cluster.start(node);
                }
            }
            self.pass(1);
            let up = |c: &Client| {
                let view = c.view();
                (1..=self.nodes).map(NodeId).all(|n| {
                    let node = view.node(n);
                    let incarnation = self.cluster.incarnation(n);
                    node.is_some_and(|n| n.state() == NodeState::Up && n.incarnation == incarnation)
                })
            };
            if self.board.table.borrow().is_some() && self.clients.iter().all(up) {
                return;
            }
        }
        panic!("the cluster does not become whole\n{}", self.cluster.log().join("\n"));
    }
}

/// Each node in turn is paused (or frozen, with its clock) for about as long as a failure takes, and hears nobody, or is heard by nobody,
/// for a while after it wakes. Some messages take long: that is how a client comes to ask a node that was removed.
fn pause_and_cut_off(seeds: std::ops::RangeInclusive<u64>, frozen: bool) {
    let (mut reads, mut writes) = (0, 0);
    for seed in seeds {
        let mut random = Random::new(seed);
        let replicas = 2 + (seed % 4 / 2) as u16;
        let mut drill = Drill::new(seed, replicas, 1, (60, 120 * MS));
        drill.board.clocks_stop.set(frozen);
        drill.wait_whole();
        for hit in (1..=replicas).map(NodeId) {
            drill.pass(20 + random.below(50));
            let all: Vec<NodeId> = (1..=replicas).map(NodeId).chain([mgmt(1)]).filter(|n| *n != hit).collect();
            let way = random.below(4);
            if way != 3 {
                if frozen {
                    drill.cluster.freeze(hit)
                } else {
                    drill.cluster.pause(hit)
                }
                let longest = if random.one_in(4) { 400 } else { 90 };
                drill.pass(70 + random.below(longest));
            }
            for other in &all {
                if way != 1 {
                    drill.cluster.mute(*other, hit);
                }
                if way != 0 {
                    drill.cluster.mute(hit, *other);
                }
            }
            drill.cluster.resume(hit);
            drill.pass(200 + random.below(400));
            drill.cluster.heal_network();
            drill.pass(20);
            drill.wait_whole();
        }
        writes += drill.board.writes.get();
        reads += drill.board.reads.get();
    }
    assert!(writes > 1000 && reads > 5000, "{writes} writes, {reads} reads");
}

#[test]
fn reads_never_go_back_while_nodes_are_paused_and_cut_off() {
    pause_and_cut_off(1..=48, false);
}

#[test]
fn reads_never_go_back_while_machines_are_frozen_and_cut_off() {
    pause_and_cut_off(101..=124, true);
}

/// With two management nodes either may die, and the other then arbitrates about a crash.
#[test]
fn either_of_two_management_nodes_may_die() {
    for seed in 1..=8u64 {
        let mut drill = Drill::new(seed, 2, 2, (0, 0));
        drill.wait_whole();
        for (dead, node) in [(1, 1), (2, 2), (1, 2)] {
            drill.cluster.crash(mgmt(dead));
            drill.pass(30);
            drill.cluster.crash(NodeId(node));
            drill.pass(100);
            assert!(drill.cluster.is_running(NodeId(3 - node)), "the other management node arbitrates");
            drill.cluster.start(mgmt(dead));
            drill.wait_whole();
            drill.pass(200);
        }
    }
}

/// A stopped process costs a hundred milliseconds: the writer goes on after that.
#[test]
fn a_stopped_process_holds_up_writes_for_a_tenth_of_a_second() {
    for seed in 1..=6u64 {
        let mut drill = Drill::new(seed, 2, 1, (0, 0));
        drill.wait_whole();
        drill.pass(500);
        let hit = NodeId(1 + (seed % 2) as u16);
        drill.cluster.pause(hit);
        drill.pass(125);
        let before = drill.board.writes.get();
        drill.pass(50);
        assert!(drill.board.writes.get() > before + 5, "seed {seed}\n{}", drill.cluster.log().join("\n"));
        drill.cluster.resume(hit);
        drill.wait_whole();
    }
}

/// A rejoined node gets its share of the primaries back, while clients read, write and lock, and none of them hears of it.
#[test]
fn primaries_move_back_without_an_error_to_any_client() {
    for seed in 1..=24u64 {
        let replicas = 2 + (seed % 2) as u16;
        let mut drill = Drill::new(seed, replicas, 1, (0, 0));
        drill.wait_whole();
        drill.pass(200 + seed * 7);
        let hit = NodeId(1 + (seed / 2 % u64::from(replicas)) as u16);
        drill.cluster.crash(hit);
        drill.pass(200);
        assert!(!drill.is_even(), "the others have its primaries");
        drill.wait_whole();
        drill.board.errors.borrow_mut().clear();
        drill.board.gap.set(0);
        let began = drill.cluster.now();
        while !drill.is_even() {
            drill.pass(1);
            assert!(drill.cluster.now() < began + 5_000 * MS, "seed {seed}: {:?}", drill.primaries());
        }
        drill.pass(300);
        assert!(drill.is_even());
        let errors = drill.board.errors.borrow();
        assert!(errors.is_empty(), "seed {seed}: {errors:#?}\n{}", drill.cluster.log().join("\n"));
        let gap = drill.board.gap.get();
        assert!(gap < 30 * MS, "seed {seed}: nothing was written for {} us", gap / 1000);
    }
}

/// A node that is asked to end goes without an error to any client; then the others, one after the other, as soon as the last one is full.
#[test]
fn every_node_restarts_in_turn_without_an_error_to_any_client() {
    for seed in 1..=8u64 {
        let replicas = 2 + (seed % 2) as u16;
        let mut drill = Drill::new(seed, replicas, 1, (0, 0));
        drill.wait_whole();
        drill.pass(200 + seed * 7);
        drill.board.errors.borrow_mut().clear();
        drill.board.gap.set(0);
        for round in 0..2 {
            for node in (1..=replicas).map(NodeId) {
                if (seed + round) % 4 == 0 {
                    drill.cluster.crash(mgmt(1)); // nobody arbitrates, and nobody has to
                }
                drill.cluster.leave(node);
                let began = drill.cluster.now();
                while drill.cluster.is_running(node) {
                    drill.pass(1);
                    assert!(drill.cluster.now() < began + 5_500 * MS, "seed {seed}: node {node} stays");
                }
                let why = drill.cluster.stop_reason(node).unwrap_or_default().to_owned();
                assert!(why.starts_with("has left the cluster"), "seed {seed}: node {node}: {why}");
                if (seed + round) % 4 == 0 {
                    drill.cluster.start(mgmt(1));
                }
                drill.wait_whole();
            }
        }
        let errors = drill.board.errors.borrow();
        assert!(errors.is_empty(), "seed {seed}: {errors:#?}\n{}", drill.cluster.log().join("\n"));
        let gap = drill.board.gap.get();
        assert!(gap < 60 * MS, "seed {seed}: nothing was written for {} us", gap / 1000);
    }
}

/// A commit is lost on its way up the chain, which no network does and a mistake might: the epoch cannot end, the transaction and the node are
/// named after a second, and after five the node ends and the view without it settles the commit.
#[test]
fn who_keeps_an_epoch_open_is_named_and_ends() {
    for seed in 1..=4u64 {
        let replicas = 2 + (seed % 2) as u16;
        let mut drill = Drill::new(seed, replicas, 1, (0, 0));
        drill.wait_whole();
        drill.pass(200);
        let hit = NodeId(1 + (seed / 2 % u64::from(replicas)) as u16);
        drill.cluster.arm_fault(hit, "ldm.lose_commit", FaultRule::ONCE);
        drill.pass(900);
        assert_eq!(drill.cluster.probe("qmgr: an epoch is late"), 0, "seed {seed}: too early");
        drill.pass(3_000);
        assert!(drill.cluster.probe("qmgr: an epoch is late") > 0, "seed {seed}\n{}", drill.cluster.log().join("\n"));
        // Each worker has lost one, so perhaps one node after the other.
        let mut ends = 0;
        for _ in 0..15 {
            drill.pass(1_000);
            let down = (1..=replicas).map(NodeId).find(|n| !drill.cluster.is_running(*n));
            if let Some(node) = down {
                let why = drill.cluster.stop_reason(node).unwrap_or_default().to_owned();
                assert!(why.contains("keeps an epoch open"), "seed {seed}: {why}");
                ends += 1;
                drill.cluster.start(node);
                drill.wait_whole();
            }
        }
        assert!((1..=2).contains(&ends), "seed {seed}: {ends}\n{}", drill.cluster.log().join("\n"));
        drill.board.gap.set(0);
        drill.pass(300);
        assert!(drill.board.gap.get() < 100 * MS, "seed {seed}: writes go on");
    }
}

/// A node does not say what it knows of the transactions that a dead one has left: no epoch ends before, so it is named and ends, and the others
/// take over without it.
#[test]
fn who_keeps_a_take_over_open_is_named_and_ends() {
    for seed in 1..=4u64 {
        let mut drill = Drill::new(seed, 4, 1, (0, 0));
        drill.wait_whole();
        drill.pass(200);
        let (dead, hit) = (NodeId(1 + seed as u16 % 4), NodeId(1 + (seed as u16 + 1 + seed as u16 / 3) % 4));
        drill.cluster.arm_fault(hit, "ldm.lose_end", FaultRule::ONCE);
        drill.cluster.crash(dead);
        drill.pass(900);
        assert_eq!(drill.cluster.probe("qmgr: an epoch is late"), 0, "seed {seed}: too early");
        drill.pass(3_000);
        let log = drill.cluster.log().join("\n");
        assert!(drill.cluster.probe("qmgr: an epoch is late") > 0, "seed {seed}\n{log}");
        assert!(log.contains("which have not drained it"), "seed {seed}: the president names nobody\n{log}");
        drill.pass(4_000);
        let why = drill.cluster.stop_reason(hit).unwrap_or_default().to_owned();
        assert!(why.contains("the take-over after view"), "seed {seed}: {why}\n{}", drill.cluster.log().join("\n"));
        let others = (1..=4).map(NodeId).filter(|n| ![dead, hit].contains(n));
        others.for_each(|n| assert!(drill.cluster.is_running(n), "seed {seed}: node {n} has done nothing"));
        drill.board.gap.set(0);
        drill.pass(300);
        assert!(drill.board.gap.get() < 100 * MS, "seed {seed}: writes go on");
        drill.cluster.start(dead);
        drill.cluster.start(hit);
        drill.wait_whole();
    }
}

/// A node whose workers are slow, and which answers heartbeats, is named; where the setting wants it, it leaves without an error to anybody.
#[test]
fn a_slow_node_is_named_and_leaves_where_that_is_wanted() {
    for (seed, eject_ms) in [(1, 0), (2, 0), (3, 25), (4, 25)] {
        let mut drill = Drill::with_setting(seed, 3, 1, (0, 0), eject_ms);
        drill.wait_whole();
        drill.pass(6_000);
        assert_eq!(drill.cluster.probe("qmgr: a node is slow"), 0, "seed {seed}: all are alike");
        let hit = NodeId(1 + (seed % 3) as u16);
        drill.board.errors.borrow_mut().clear();
        drill.cluster.slow_down_data(hit, 4_000);
        drill.pass(20_000);
        assert_eq!(drill.cluster.probe("qmgr: a node is slow"), 1, "seed {seed}\n{}", drill.cluster.log().join("\n"));
        assert_eq!(drill.cluster.is_running(hit), eject_ms == 0, "seed {seed}\n{}", drill.cluster.log().join("\n"));
        if eject_ms > 0 {
            let why = drill.cluster.stop_reason(hit).unwrap_or_default();
            assert!(why.starts_with("has left the cluster"), "seed {seed}: {why}\n{}", drill.cluster.log().join("\n"));
            drill.cluster.start(hit);
        } else {
            drill.cluster.slow_down(hit, 1);
        }
        drill.pass(10_000);
        drill.wait_whole();
        let errors = drill.board.errors.borrow();
        assert!(errors.is_empty(), "seed {seed}: {errors:#?}\n{}", drill.cluster.log().join("\n"));
    }
}

/// The second crash hits the node that is being filled, or one of two full copies while a third node is being filled.
#[test]
fn two_crashes_in_a_row_keep_what_a_full_copy_holds() {
    for seed in 1..=16u64 {
        let replicas = 2 + (seed % 2) as u16;
        let mut drill = Drill::new(seed, replicas, 1, (0, 0));
        drill.wait_whole();
        drill.pass(400);
        for round in 0..4u64 {
            let first = NodeId(1 + ((seed + round) % u64::from(replicas)) as u16);
            let other = NodeId(first.0 % replicas + 1);
            drill.cluster.crash(first);
            drill.pass(100 + 7 * seed);
            drill.cluster.start(first);
            // From before it has joined to after it is full.
            drill.cluster.run_until(|_| false, drill.cluster.now() + (seed * 3 + round * 17) * MS / 2);
            let is_filled = drill.clients.iter().any(|c| c.view().state(first) == NodeState::Up);
            let second = if replicas > 2 && !is_filled { other } else { first };
            drill.cluster.crash(second);
            drill.pass(100);
            drill.wait_whole(); // reads never go back: `pass` looks at that
            drill.pass(200);
        }
        assert!(drill.board.writes.get() > 200 && drill.board.reads.get() > 500);
    }
}

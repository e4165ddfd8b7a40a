//! The bank: transfers between accounts while nodes crash, are cut off and come back.
//!
//! What must hold whenever tellers pause and the cluster is whole: the sum of all balances, each balance as the records say, a record
//! for exactly what was acknowledged (and perhaps for what nobody could tell), no transaction left anywhere, every block's own
//! structure, replicas with equal content. A survivor of a crash must never stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_blocks::NodeConfig;
use apus_client::{Client, ClientConfig};
use apus_kernel::{Block, Random, WorkerConfig};
use apus_mgmt::{Management, MgmtConfig, cluster_config, default_partitions};
use apus_signal::view::NodeState;
use apus_storage::MemoryManager;
use apus_types::NodeId;

use super::teller::{self, BALANCE, Floor, Teller};
use crate::{Clock, Cluster, NativeClient, SimConfig, address};

const MS: u64 = 1_000_000;
const MGMT: NodeId = NodeId(NodeId::MGMT_BASE + 1);
const NODE_MEMORY: u64 = 64 << 20;
/// A restarted node is a full member after this, tellers are at rest after this, in virtual nanoseconds.
const PATIENCE_NS: u64 = 30_000 * MS;

/// What happens to the cluster in one round; afterwards whatever does not run is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Crash(NodeId),
    /// Again while it recovers, this long after its start (ns).
    CrashTwice(NodeId, u64),
    /// Two nodes lose their links for so long (ns).
    Part(NodeId, NodeId, u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub seed: u64,
    pub groups: u8,
    pub replicas: u8,
    pub workers: u8,
    pub clients: u64,
    pub tellers_per_client: u64,
    pub accounts: u64,
    /// A restarted node has the address that it had before.
    pub fixed_addresses: bool,
    /// Longest time on a link and between two workers of a node, ns.
    pub link_delay_max_ns: u64,
    pub ring_delay_max_ns: u64,
    /// Traffic before the fault (ns), the fault, and how long until the restart (ns).
    pub rounds: Vec<(u64, Fault, u64)>,
}

impl Settings {
    /// A cluster of one group of two nodes mostly, with two or three rounds of faults.
    pub fn from_seed(seed: u64) -> Settings {
        let mut random = Random::new(seed ^ 0x6261_6e6b);
        let replicas = if random.one_in(4) { 3 } else { 2 };
        let groups = if replicas == 2 && random.one_in(5) { 2 } else { 1 };
        let nodes = u64::from(groups * replicas);
        let mut last = random.below(nodes);
        let rounds = (0..2 + random.below(2)).map(|_| {
            last = (last + 1 + random.below(nodes - 1)) % nodes;
            let node = NodeId(1 + last as u16);
            let other = NodeId(1 + ((last + 1) % nodes) as u16);
            let fault = match random.below(8) {
                0 => Fault::Part(node, other, 1 + random.below(2_000 * MS)),
                1 | 2 => Fault::CrashTwice(node, random.below(300 * MS)),
                _ => Fault::Crash(node),
            };
            let spread = if random.one_in(2) { 400 * MS } else { 20 * MS };
            (1 + random.below(250 * MS), fault, random.below(spread))
        });
        Settings {
            seed,
            groups,
            replicas,
            rounds: rounds.collect(),
            workers: 1 + random.below(2) as u8,
            clients: 1 + random.below(3),
            tellers_per_client: 1 + random.below(4),
            accounts: if random.one_in(6) { 1000 } else { 4 + random.below(60) },
            fixed_addresses: random.one_in(2),
            link_delay_max_ns: [300_000, 300_000, 3 * MS, 10 * MS][random.below(4) as usize],
            ring_delay_max_ns: [20_000, 20_000, 500_000, 5 * MS][random.below(4) as usize],
        }
    }
    fn nodes(&self) -> Vec<NodeId> {
        (1..=u16::from(self.groups * self.replicas)).map(NodeId).collect()
    }
}

/// How a run that went well went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Equal for equal seeds and code.
    pub hash: u64,
    pub virtual_ms: u64,
    pub transfers: usize,
    pub unresolved: usize,
    /// Errors that tellers met, by number.
    pub retries: BTreeMap<u16, u64>,
    /// Rare conditions that were reached.
    pub probes: BTreeMap<&'static str, u64>,
}

/// A run that did not go well.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    /// The nodes' log, then the state of every worker.
    pub details: String,
}

/// Runs the whole with the settings.
///
/// # Errors
/// What does not hold. A failed invariant of a block panics instead.
pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut bank = Bank::new(settings);
    let result = bank.run();
    result.map_err(|what| Failure { what, details: bank.details() })
}

struct Bank<'s> {
    settings: &'s Settings,
    cluster: Cluster,
    floor: Rc<Floor>,
    clients: Vec<Client>,
    /// Nodes whose stop is a consequence of the fault.
    excused: BTreeSet<NodeId>,
}

fn build(settings: &Settings) -> impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + 'static {
    let s = settings.clone();
    let (groups, replicas, workers) = (u32::from(s.groups), u32::from(s.replicas), u32::from(s.workers));
    let partitions = default_partitions(groups, replicas, workers);
    let config = cluster_config(s.seed | 1, groups, replicas, workers, partitions).expect("a cluster in range");
    let mut memories: BTreeMap<NodeId, (u64, std::sync::Arc<MemoryManager>)> = BTreeMap::new();
    move |who| {
        if who.node == MGMT {
            return vec![Box::new(Management::new(MgmtConfig { node: MGMT, cluster: config.clone() }))];
        }
        let memory = match memories.get(&who.node) {
            Some((incarnation, memory)) if *incarnation == who.incarnation => memory.clone(),
            _ => MemoryManager::new(NODE_MEMORY),
        };
        memories.insert(who.node, (who.incarnation, memory.clone()));
        let node = NodeConfig {
            node: who.node,
            workers: who.instances,
            incarnation: who.incarnation,
            address: address(who.node, if s.fixed_addresses { 0 } else { who.incarnation }),
            mgmt: MGMT,
            mgmt_address: address(MGMT, 0),
            memory,
        };
        apus_blocks::build(who.worker, &node)
    }
}

impl Bank<'_> {
    fn new(settings: &Settings) -> Bank<'_> {
        let mut nodes: Vec<(NodeId, u8)> = settings.nodes().into_iter().map(|n| (n, settings.workers)).collect();
        nodes.push((MGMT, 1));
        let config = SimConfig {
            link_delay_ns: (20_000, settings.link_delay_max_ns),
            ring_delay_ns: (200, settings.ring_delay_max_ns),
            link_all: false,
            ..SimConfig::new(&nodes)
        };
        let mut cluster = Cluster::new(settings.seed, config, build(settings));
        let floor = Rc::new(Floor { seed: settings.seed, accounts: settings.accounts, ..Floor::default() });
        let mut clients = Vec::new();
        for number in 0..settings.clients {
            let id = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number + 1) | 1 << 40;
            let config = ClientConfig::new(vec![address(MGMT, 0)], id);
            let client = Client::new(config).expect("a client in range");
            let clock = Clock::default();
            let mut actor = NativeClient::new(&client, clock.clone());
            if number == 0 {
                let (client, floor) = (client.clone(), floor.clone());
                actor.spawn(async move {
                    match teller::open(&client, floor.accounts).await {
                        Ok(tables) => *floor.tables.borrow_mut() = Some(tables),
                        Err(error) => floor.violation(format!("the accounts cannot be opened: {error}")),
                    }
                });
            }
            for t in 0..settings.tellers_per_client {
                let number = number * settings.tellers_per_client + t;
                actor.spawn(Teller::new(floor.clone(), client.clone(), clock.clone(), number).run());
            }
            actor.spawn(teller::audit(floor.clone(), client.clone(), clock, number));
            cluster.attach(Box::new(actor));
            clients.push(client);
        }
        Bank { settings, cluster, floor, clients, excused: BTreeSet::new() }
    }

    fn run(&mut self) -> Result<Report, String> {
        self.wait_whole("the first start")?;
        for &(before, fault, until_restart) in &self.settings.rounds {
            self.pass(before)?;
            self.inflict(fault, until_restart)?;
            self.wait_whole(&format!("{fault:?}"))?;
            self.pass(50 * MS)?;
            if before.is_multiple_of(2) {
                self.audit()?;
            }
        }
        self.audit()?;
        let mut probes = BTreeMap::new();
        for worker in self.workers() {
            for (name, count) in worker.probes() {
                *probes.entry(*name).or_insert(0) += count;
            }
        }
        Ok(Report {
            hash: self.cluster.hash(),
            virtual_ms: self.cluster.now() / MS,
            transfers: self.floor.acknowledged.borrow().len(),
            unresolved: self.floor.unresolved.borrow().len(),
            retries: self.floor.retries.borrow().clone(),
            probes,
        })
    }

    fn workers(&self) -> impl Iterator<Item = &apus_kernel::Worker> {
        let nodes = self.settings.nodes().into_iter();
        nodes.flat_map(move |n| (0..self.settings.workers).filter_map(move |w| self.cluster.worker(n, w)))
    }

    // ---- time and faults

    fn pass(&mut self, nanoseconds: u64) -> Result<(), String> {
        let end = self.cluster.now() + nanoseconds;
        self.cluster.run_until(|_| false, end);
        self.check_stops()
    }

    /// Nobody may stop who was not hit.
    fn check_stops(&self) -> Result<(), String> {
        for node in self.settings.nodes() {
            if let Some(reason) = self.cluster.stop_reason(node).filter(|_| !self.excused.contains(&node)) {
                return Err(format!("node {node} stopped: {reason}"));
            }
        }
        Ok(())
    }

    fn inflict(&mut self, fault: Fault, until_restart: u64) -> Result<(), String> {
        self.excused.clear();
        match fault {
            Fault::Crash(node) => {
                self.cluster.crash(node);
                self.pass(until_restart)?;
            }
            Fault::CrashTwice(node, after) => {
                self.cluster.crash(node);
                self.pass(until_restart)?;
                self.cluster.start(node);
                self.pass(after)?;
                self.cluster.crash(node);
                self.pass(until_restart / 2)?;
            }
            Fault::Part(a, b, duration) => {
                self.excused.extend([a, b]);
                self.cluster.part(a, b);
                self.pass(duration)?;
                self.cluster.heal(a, b);
                self.pass(until_restart)?;
                // Who lost may learn it late.
                self.pass(1_000 * MS)?;
            }
        }
        Ok(())
    }

    /// What a supervisor does: whoever does not run is started.
    fn restart_all(&mut self) {
        for node in self.settings.nodes() {
            if !self.cluster.is_running(node) {
                self.cluster.crash(node);
                self.cluster.start(node);
            }
        }
    }

    fn is_whole(&self) -> bool {
        let is_up = |view: &apus_signal::view::View, node: NodeId| {
            let incarnation = self.cluster.incarnation(node);
            view.node(node).is_some_and(|n| n.state() == NodeState::Up && n.incarnation == incarnation)
        };
        self.floor.tables.borrow().is_some()
            && self.clients.iter().all(|client| {
                let view = client.view();
                self.settings.nodes().into_iter().all(|n| is_up(&view, n))
            })
    }

    /// Until every client knows every node as a full member.
    fn wait_whole(&mut self, after: &str) -> Result<(), String> {
        let end = self.cluster.now() + PATIENCE_NS;
        while self.cluster.now() < end {
            self.check_stops()?;
            self.restart_all();
            if self.is_whole() {
                return Ok(());
            }
            self.pass(MS)?;
        }
        Err(format!("the cluster is not whole {} s after {after}", PATIENCE_NS / 1000 / MS))
    }

    // ---- what must hold

    fn audit(&mut self) -> Result<(), String> {
        self.floor.shut.set(true);
        let tellers = (self.settings.clients * self.settings.tellers_per_client) as usize;
        let end = self.cluster.now() + PATIENCE_NS;
        while self.floor.parked.get() < tellers {
            self.pass(MS)?;
            if self.cluster.now() >= end {
                return Err(format!("tellers do not come to rest: {:?}", self.floor.doing.borrow()));
            }
        }
        while let Err(what) = self.check_quiet() {
            self.pass(MS)?;
            if self.cluster.now() >= end + PATIENCE_NS {
                return Err(format!("not quiet: {what}"));
            }
        }
        self.cluster.verify()?;
        self.check_replicas()?;
        self.check_money()?;
        if let Some(first) = self.floor.violations.borrow().first() {
            return Err(first.clone());
        }
        self.floor.shut.set(false);
        Ok(())
    }

    /// No worker holds anything of a transaction.
    fn check_quiet(&self) -> Result<(), String> {
        for worker in self.workers() {
            let mut dump = String::new();
            worker.dump(&mut dump);
            let is_busy = |line: &&str| {
                let number = |what| number_before(line, what);
                (line.starts_with("TC ") && (number("transactions") > 0 || !line.contains("take-over None")))
                    || (line.starts_with("LDM ")
                        && ["transactions", "entries", "waiting", "copy jobs"].iter().any(|what| number(what) > 0))
            };
            if let Some(line) = dump.lines().find(is_busy) {
                return Err(line.to_owned());
            }
        }
        Ok(())
    }

    /// Every fragment has equal content on all nodes of its group.
    fn check_replicas(&self) -> Result<(), String> {
        let mut contents: BTreeMap<String, Vec<(NodeId, String)>> = BTreeMap::new();
        for worker in self.workers() {
            let mut dump = String::new();
            worker.dump(&mut dump);
            for line in dump.lines() {
                if let Some((name, content)) = line.trim().strip_prefix("fragment ").and_then(|l| l.split_once(": ")) {
                    contents.entry(name.to_owned()).or_default().push((worker.config().node, content.to_owned()));
                }
            }
        }
        let rows_and_hash = |content: &str| {
            let hash = content.rsplit("content ").next().unwrap_or_default().to_owned();
            (number_before(content, "rows"), hash)
        };
        for (name, replicas) in contents {
            let is_equal = replicas.windows(2).all(|w| rows_and_hash(&w[0].1) == rows_and_hash(&w[1].1));
            if replicas.len() != usize::from(self.settings.replicas) || !is_equal {
                return Err(format!("replicas of {name} differ: {replicas:?}"));
            }
        }
        Ok(())
    }

    /// Every client reads all, from the nodes it prefers.
    fn check_money(&mut self) -> Result<(), String> {
        let round = self.floor.audits.get() + 1;
        self.floor.audits.set(round);
        let end = self.cluster.now() + PATIENCE_NS;
        while self.floor.findings.borrow().values().filter(|(r, _)| *r == round).count() < self.clients.len() {
            if self.cluster.now() >= end {
                return Err("clients do not end reading".to_owned());
            }
            self.pass(MS)?;
        }
        for (_, found) in self.floor.findings.borrow().values() {
            let found = found.as_ref().map_err(|e| format!("cannot read: {e}"))?;
            self.compare(&found.accounts, &found.transfers)?;
            self.check_latest(&found.latest)?;
        }
        Ok(())
    }

    fn compare(&self, accounts: &[Vec<i128>], records: &[Vec<i128>]) -> Result<(), String> {
        let mut expected: BTreeMap<u64, i128> = (0..self.settings.accounts).map(|a| (a, i128::from(BALANCE))).collect();
        let acknowledged: BTreeSet<u64> = self.floor.acknowledged.borrow().iter().copied().collect();
        let unresolved: BTreeSet<u64> = self.floor.unresolved.borrow().iter().copied().collect();
        let mut seen = BTreeSet::new();
        for record in records {
            let id = record[0] as u64;
            let t = self.floor.transfer(id);
            if record[1..] != [i128::from(t.source), i128::from(t.target), i128::from(t.amount)] {
                return Err(format!("the record {record:?} is not {t:?}"));
            }
            if !seen.insert(id) {
                return Err(format!("transfer {id} has two records"));
            }
            if !acknowledged.contains(&id) && !unresolved.contains(&id) {
                return Err(format!("there is a record of transfer {id}, which was never acknowledged"));
            }
            *expected.entry(t.source).or_default() -= i128::from(t.amount);
            *expected.entry(t.target).or_default() += i128::from(t.amount);
        }
        if let Some(id) = acknowledged.iter().find(|id| !seen.contains(id)) {
            return Err(format!("transfer {id} was acknowledged and has no record"));
        }
        let found: BTreeMap<u64, i128> = accounts.iter().map(|row| (row[0] as u64, row[1])).collect();
        if found != expected || accounts.len() != expected.len() {
            let wrong: Vec<_> =
                expected.iter().filter(|(a, b)| found.get(a) != Some(b)).map(|(a, b)| (a, b, found.get(a))).collect();
            return Err(format!("{} accounts; wrong (account, expected, found): {wrong:?}", accounts.len()));
        }
        Ok(())
    }

    fn check_latest(&self, rows: &[Vec<i128>]) -> Result<(), String> {
        let found: BTreeSet<i128> = rows.iter().map(|row| row[0]).collect();
        let expected: BTreeSet<i128> = self.floor.latest.borrow().values().map(|&id| i128::from(id)).collect();
        // A transfer of unknown outcome may have left its row and that of its predecessor.
        let is_good =
            if self.floor.unresolved.borrow().is_empty() { found == expected } else { found.is_superset(&expected) };
        if is_good && found.len() == rows.len() { Ok(()) } else { Err(format!("latest {found:?}, not {expected:?}")) }
    }

    fn details(&self) -> String {
        let mut out = self.cluster.log().join("\n");
        for worker in self.workers() {
            let config = worker.config();
            out.push_str(&format!("\n==== node {} worker {}\n", config.node, config.worker));
            worker.dump(&mut out);
        }
        out
    }
}

/// The number that stands right before `what`, 0 if there is none.
fn number_before(line: &str, what: &str) -> u64 {
    let before = line.split(&format!(" {what}")).next().unwrap_or_default();
    if before.len() == line.len() {
        return 0;
    }
    before.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

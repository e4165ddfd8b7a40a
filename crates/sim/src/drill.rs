//! A drill: a cluster with the settings of a seed, a workload on it, and rounds of faults.
//!
//! ```text
//! start -> whole? -> round: traffic, faults (safety phase) -> healed -> [core serves without those that are down] ->
//!   whole? -> every client gets something done (liveness phase) -> [audit] -> next round ... -> audit
//! ```
//!
//! *Safety* is checked all the time: a node that no fault touched must not stop, no block may panic, no client may see what cannot be.
//! *Liveness* is checked after the faults have ended, in virtual time: stopped nodes are members again within [`PATIENCE_NS`], and each
//! client has something new acknowledged within [`PROGRESS_NS`]. An audit lets clients come to rest and demands that no worker
//! holds anything of a transaction, that every structure is sound, that replicas are equal, and what the workload itself knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use apus_blocks::NodeConfig;
use apus_client::{Client, ClientConfig};
use apus_kernel::{Block, FaultRule, Worker, WorkerConfig};
use apus_mgmt::{Management, MgmtConfig, cluster_config, default_partitions};
use apus_signal::{dict::Dictionary, view::NodeState};
use apus_storage::MemoryManager;
use apus_types::NodeId;

use crate::{
    ActorId, Clock, Cluster, NativeClient, SimConfig, address,
    check::schema,
    fault::{Fault, Round, Who},
    promise::touches_arbitrator,
    settings::Settings,
    survey::Surveyor,
    workload::Kind,
};

const MS: u64 = 1_000_000;
const NODE_MEMORY: u64 = 64 << 20;
/// A restarted node is a full member after this, clients are at rest after this, in virtual nanoseconds.
pub const PATIENCE_NS: u64 = 30_000 * MS;
/// In a healed cluster, each client has something acknowledged after this. Longer than the time for which a client waits for a node
/// that does not answer.
pub const PROGRESS_NS: u64 = 15_000 * MS;
/// A supervisor starts a node that stopped itself after this.
const RESTART_NS: u64 = 200 * MS;
/// How the second line of DICT's dump begins when it is about nothing.
const DICT_AT_REST: &str = "prepared None copying false running None queued 0 collecting None locks {}";
/// No node is held for lost because nothing is heard of it for so long.
const BORNE_NS: u64 = 50 * MS;

/// What clients do, and what must hold. A client is known by its number, counted from 0; one that comes in the place of a dead one has
/// the next free number.
pub trait Workload {
    /// Gives a client its tasks.
    fn equip(&mut self, number: u64, client: &Client, clock: &Clock, actor: &mut NativeClient);
    /// The client died in the midst of what it did.
    fn lost(&mut self, number: u64);
    /// The tables are there, so faults may begin.
    fn is_open(&self) -> bool;
    /// What this client had acknowledged so far.
    fn progress(&self, number: u64) -> u64;
    /// Schema changes that were acknowledged so far; `None`: nobody makes any.
    fn schema_changes(&self) -> Option<u64> {
        None
    }
    /// Clients begin nothing new, or do again.
    fn shut(&mut self, shut: bool);
    /// # Errors
    /// Who still does what.
    fn at_rest(&self) -> Result<(), String>;
    /// All rest, and this is the dictionary of every node.
    ///
    /// # Errors
    /// It is not what was acknowledged.
    fn survey(&mut self, _dictionary: &Dictionary) -> Result<(), String> {
        Ok(())
    }
    /// Clients read everything; then [`Workload::is_read`].
    fn read(&mut self);
    fn is_read(&self) -> bool;
    /// # Errors
    /// What was read, or anything before it, is not what it must be.
    fn judge(&self) -> Result<Judgement, String>;
    /// What a client saw that cannot be.
    fn violation(&self) -> Option<String>;
    /// Acknowledged so far, of unknown outcome, and errors by number.
    fn figures(&self) -> (u64, u64, BTreeMap<u16, u64>);
    /// Snapshots that were read and found right.
    fn snapshots(&self) -> u64 {
        0
    }
}

/// What a judge says of a history in which nothing is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judgement {
    Good,
    /// The judge gave up, for this reason.
    Undecided(String),
}

/// How a run that went well went.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Equal for equal seeds and code.
    pub hash: u64,
    pub virtual_ms: u64,
    /// Transactions that clients know to be committed, and those of which they could not learn it.
    pub transfers: usize,
    pub unresolved: usize,
    /// Snapshots that were read and found right.
    pub snapshots: u64,
    /// Schema changes that were acknowledged.
    pub schema_changes: u64,
    pub audits: u64,
    /// Histories that were found right, each as far as it had come at an audit, and why one could not be judged.
    pub histories: u64,
    pub undecided: Vec<String>,
    /// Errors that clients met, by number.
    pub retries: BTreeMap<u16, u64>,
    /// Rare conditions that were reached, also on nodes that died since.
    pub probes: BTreeMap<&'static str, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

/// A run that did not go well.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    /// The nodes' log, then the state of every worker.
    pub details: String,
    pub virtual_ms: u64,
}

/// Runs the whole with the settings.
///
/// # Errors
/// What does not hold; a panic of a block is that, too.
pub fn run<W: Workload>(settings: &Settings, workload: W) -> Result<Report, Failure> {
    let mut drill = Drill::new(settings, workload);
    let ended = catch_unwind(AssertUnwindSafe(|| drill.run()));
    let what = match ended {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(what)) => what,
        Err(panic) => format!("panic: {}", panic_text(panic.as_ref())),
    };
    let details = catch_unwind(AssertUnwindSafe(|| drill.details()));
    let details = details.unwrap_or_else(|_| drill.cluster.log().join("\n"));
    Err(Failure { what, details, virtual_ms: drill.cluster.now() / MS })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of another kind").to_owned()
}

struct Alive {
    number: u64,
    actor: ActorId,
    client: Client,
}

/// After this the members have named a management process that has started anew: its silence may have to be noticed first.
const NAMING_NS: u64 = 1_500 * MS;

/// What is still to be done in a round, at its time.
enum Deed {
    Inflict(Fault),
    Start(NodeId),
    Resume(NodeId),
    Speed(NodeId),
    Heal(NodeId, NodeId),
    Unmute { from: NodeId, to: NodeId, lost: bool },
    Flap { a: NodeId, b: NodeId, period: u64, times: u64 },
}

struct Drill<'s, W> {
    settings: &'s Settings,
    cluster: Cluster,
    workload: W,
    clients: Vec<Alive>,
    next_client: u64,
    /// What is to be done, by virtual time and order.
    agenda: BTreeMap<(u64, u64), Deed>,
    planned: u64,
    /// Nodes whose stop is a consequence of the faults.
    excused: BTreeSet<NodeId>,
    /// Whose process ended in this round, and that who was let in may not have been told so: then it is removed for its silence.
    restarted: BTreeSet<NodeId>,
    drops_commits: bool,
    /// Nodes that were paused or slow in this round, and nodes that stopped though no fault touched them. One that wakes up just as another
    /// one holds it for lost may be believed when it says that the other is gone: then that one goes in its place.
    held_up: BTreeSet<NodeId>,
    instead: BTreeSet<NodeId>,
    /// Nodes that a fault has killed and that stay down for now.
    down: BTreeSet<NodeId>,
    /// When a supervisor noticed that a node had stopped.
    stopped: BTreeMap<NodeId, u64>,
    report: Report,
}

fn build(settings: &Settings) -> impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + 'static {
    let s = settings.clone();
    let (groups, replicas, workers) = (u32::from(s.groups), u32::from(s.replicas), u32::from(s.workers));
    let partitions = default_partitions(groups, replicas, workers);
    let mut config = cluster_config(s.seed | 1, groups, replicas, workers, partitions).expect("a cluster in range");
    let mgmts = s.mgmt_nodes();
    config.mgmts = mgmts.iter().map(|n| u32::from(n.0)).collect();
    let mut memories: BTreeMap<NodeId, (u64, std::sync::Arc<MemoryManager>)> = BTreeMap::new();
    move |who| {
        if who.node.is_mgmt() {
            let (cluster, incarnation) = (config.clone(), who.incarnation);
            return vec![Box::new(Management::new(MgmtConfig {
                node: who.node,
                cluster,
                incarnation,
                may_adopt: false,
            }))];
        }
        let memory = match memories.get(&who.node) {
            Some((incarnation, memory)) if *incarnation == who.incarnation => memory.clone(),
            _ => MemoryManager::new(NODE_MEMORY),
        };
        memories.insert(who.node, (who.incarnation, memory.clone()));
        let node = NodeConfig {
            node: who.node,
            workers: who.instances,
            rejoins: false,
            incarnation: who.incarnation,
            address: address(who.node, if s.fixed_addresses { 0 } else { who.incarnation }),
            mgmts: mgmts.iter().map(|n| (*n, address(*n, 0))).collect(),
            memory,
        };
        apus_blocks::build(who.worker, &node)
    }
}

impl<W: Workload> Drill<'_, W> {
    fn new(settings: &Settings, workload: W) -> Drill<'_, W> {
        let mut nodes: Vec<(NodeId, u8)> = settings.data_nodes().into_iter().map(|n| (n, settings.workers)).collect();
        nodes.extend(settings.mgmt_nodes().into_iter().map(|n| (n, 1)));
        let config = SimConfig {
            link_delay_ns: (20_000, settings.link_delay_max_ns),
            link_spike_ns: settings.link_spike_ns,
            link_bytes_per_ms: settings.link_bytes_per_ms,
            ring_delay_ns: (200, settings.ring_delay_max_ns),
            link_all: false,
            ..SimConfig::new(&nodes)
        };
        let mut drill = Drill {
            settings,
            cluster: Cluster::new(settings.seed, config, build(settings)),
            workload,
            clients: Vec::new(),
            next_client: 0,
            agenda: BTreeMap::new(),
            planned: 0,
            excused: BTreeSet::new(),
            restarted: BTreeSet::new(),
            drops_commits: false,
            held_up: BTreeSet::new(),
            instead: BTreeSet::new(),
            down: BTreeSet::new(),
            stopped: BTreeMap::new(),
            report: Report::default(),
        };
        (0..settings.clients).for_each(|_| drill.attach_client());
        drill
    }
    fn attach_client(&mut self) {
        let number = self.next_client;
        self.next_client += 1;
        let id = self.settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number + 1) | 1 << 40;
        let seeds = self.settings.mgmt_nodes().into_iter().map(|n| address(n, 0)).collect();
        let client = Client::new(ClientConfig::new(seeds, id)).expect("a client in range");
        let clock = Clock::default();
        let mut actor = NativeClient::new(&client, clock.clone());
        self.workload.equip(number, &client, &clock, &mut actor);
        let actor = self.cluster.attach(Box::new(actor));
        self.clients.push(Alive { number, actor, client });
    }

    fn run(&mut self) -> Result<Report, String> {
        self.wait_whole("the first start")?;
        self.demand_progress("the first start")?;
        let settings = self.settings;
        for (index, round) in settings.schedule.0.iter().enumerate() {
            self.round(round)?;
            if round.end % (2 * MS) < MS || index + 1 == settings.schedule.0.len() {
                self.audit()?;
            }
        }
        if settings.schedule.0.is_empty() {
            self.pass(100 * MS)?;
            self.audit()?;
        }
        for node in settings.data_nodes() {
            self.note_probes(node);
        }
        let (acknowledged, unresolved, retries) = self.workload.figures();
        Ok(Report {
            hash: self.cluster.hash(),
            virtual_ms: self.cluster.now() / MS,
            transfers: acknowledged as usize,
            unresolved: unresolved as usize,
            snapshots: self.workload.snapshots(),
            schema_changes: self.workload.schema_changes().unwrap_or(0),
            retries,
            ..std::mem::take(&mut self.report)
        })
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        let nodes = self.settings.data_nodes().into_iter();
        nodes.flat_map(move |n| (0..self.settings.workers).filter_map(move |w| self.cluster.worker(n, w)))
    }
    fn note_probes(&mut self, node: NodeId) {
        for worker in 0..self.settings.workers {
            for (name, count) in self.cluster.worker(node, worker).map(Worker::probes).into_iter().flatten() {
                *self.report.probes.entry(*name).or_insert(0) += count;
            }
        }
    }

    // ---- time

    /// Lets time pass, does what is due meanwhile.
    fn pass(&mut self, nanoseconds: u64) -> Result<(), String> {
        let end = self.cluster.now() + nanoseconds;
        while let Some((&(at, order), _)) = self.agenda.first_key_value().filter(|((at, _), _)| *at <= end) {
            self.cluster.run_until(|_| false, at);
            self.check_stops()?;
            if let Some(deed) = self.agenda.remove(&(at, order)) {
                self.perform(deed);
            }
        }
        self.cluster.run_until(|_| false, end);
        self.check_stops()
    }
    fn plan(&mut self, after: u64, deed: Deed) {
        self.planned += 1;
        self.agenda.insert((self.cluster.now().saturating_add(after), self.planned), deed);
    }
    /// Nobody may stop who was not hit, no client may see what cannot be.
    fn check_stops(&mut self) -> Result<(), String> {
        for node in self.settings.data_nodes() {
            let is_excused = self.excused.contains(&node) || (self.drops_commits && self.restarted.contains(&node));
            if let Some(reason) = self.cluster.stop_reason(node).filter(|_| !is_excused) {
                self.instead.insert(node);
                if self.instead.len() > self.held_up.len() {
                    return Err(format!("node {node} stopped: {reason}"));
                }
            }
        }
        if !self.settings.data_nodes().iter().any(|node| self.cluster.is_running(*node)) {
            return Err("no data node is left".to_owned());
        }
        self.workload.violation().map_or(Ok(()), Err)
    }

    // ---- faults

    fn round(&mut self, round: &Round) -> Result<(), String> {
        for (at, fault) in &round.faults {
            self.plan(*at, Deed::Inflict(fault.clone()));
        }
        self.pass(round.end)?;
        self.end_faults();
        let what = round.to_string();
        if round.core && !self.down.is_empty() {
            self.demand_progress(&what)?;
        }
        self.down.clear();
        // Who lost may learn it late.
        self.pass(1_000 * MS)?;
        self.wait_whole(&what)?;
        self.demand_progress(&what)?;
        if round.faults.iter().any(|(_, fault)| touches_arbitrator(fault)) {
            self.pass(NAMING_NS)?;
        }
        self.excused.clear();
        self.restarted.clear();
        self.drops_commits = false;
        self.held_up.clear();
        self.instead.clear();
        Ok(())
    }
    /// The network is whole, nobody is paused or slow, no fault point is armed.
    fn end_faults(&mut self) {
        let left = std::mem::take(&mut self.agenda);
        // What links lose is decided by the fault; all else is undone at once.
        for deed in left.into_values() {
            if let Deed::Unmute { .. } = deed {
                self.perform(deed);
            }
        }
        self.cluster.heal_network();
        for node in self.nodes() {
            self.cluster.resume(node);
            self.cluster.slow_down(node, 1);
        }
        self.cluster.disarm_faults();
    }
    fn nodes(&self) -> Vec<NodeId> {
        self.settings.data_nodes().into_iter().chain(self.settings.mgmt_nodes()).collect()
    }
    fn resolve(&self, who: Who) -> NodeId {
        match who {
            Who::Node(node) => node,
            Who::President => {
                let newest = self.clients.iter().map(|c| c.client.view()).max_by_key(|view| view.generation);
                NodeId(newest.map_or(1, |view| view.president as u16).max(1))
            }
        }
    }
    /// Nodes that a side does not hear any more, with the nodes of that side.
    fn across(&self, side: &[NodeId], bridge: Option<NodeId>) -> Vec<(NodeId, NodeId)> {
        let is_here = |n: &NodeId| side.contains(n) && Some(*n) != bridge;
        let is_there = |n: &NodeId| !side.contains(n) && Some(*n) != bridge;
        let nodes = self.nodes();
        let here = nodes.iter().copied().filter(is_here);
        here.flat_map(|a| nodes.iter().copied().filter(is_there).map(move |b| (a, b))).collect()
    }
    fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Inflict(fault) => {
                *self.report.faults.entry(fault.kind()).or_insert(0) += 1;
                self.inflict(fault);
            }
            Deed::Start(node) => self.start(node),
            Deed::Resume(node) => self.cluster.resume(node),
            Deed::Speed(node) => self.cluster.slow_down(node, 1),
            Deed::Heal(a, b) => self.cluster.heal(a, b),
            Deed::Unmute { from, to, lost } => self.cluster.unmute(from, to, lost),
            Deed::Flap { a, b, period, times } => {
                self.cluster.part(a, b);
                self.plan(period / 2, Deed::Heal(a, b));
                if times > 1 {
                    self.plan(period, Deed::Flap { a, b, period, times: times - 1 });
                }
            }
        }
    }
    fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { who, down } => {
                let node = self.resolve(who);
                self.crash(node);
                self.down.insert(node);
                self.plan(down, Deed::Start(node));
            }
            Fault::Pause { who, lasts } => {
                let node = self.resolve(who);
                self.hold_up(node);
                self.cluster.pause(node);
                self.plan(lasts, Deed::Resume(node));
            }
            Fault::Slow { who, factor, lasts } => {
                let node = self.resolve(who);
                self.hold_up(node);
                self.cluster.slow_down(node, factor);
                self.plan(lasts, Deed::Speed(node));
            }
            Fault::Cut { a, b, lasts } => {
                let (a, b) = (self.resolve(a), self.resolve(b));
                self.excused.extend([a, b]);
                self.cluster.part(a, b);
                self.plan(lasts, Deed::Heal(a, b));
            }
            Fault::Mute { from, to, lasts, lost } => {
                let (from, to) = (self.resolve(from), self.resolve(to));
                self.excused.extend([from, to]);
                self.cluster.mute(from, to);
                self.plan(lasts, Deed::Unmute { from, to, lost });
            }
            Fault::Split { side, lasts, silent } => self.split(&side, None, lasts, silent),
            Fault::Bridge { side, bridge, lasts, silent } => self.split(&side, Some(bridge), lasts, silent),
            Fault::Stall { side, lasts } => self.stall(side.as_deref(), lasts),
            Fault::Flap { a, b, period, times } => {
                let (a, b) = (self.resolve(a), self.resolve(b));
                self.excused.extend([a, b]);
                self.perform(Deed::Flap { a, b, period, times });
            }
            Fault::Reset { a, b, worker } => {
                let (a, b) = (self.resolve(a), self.resolve(b));
                self.excused.extend([a, b]);
                self.cluster.reset(a, b, worker);
            }
            Fault::Client { number } => self.lose_client(number),
            Fault::Arm { who, point, skip } => {
                let node = self.resolve(who);
                self.excused.insert(node);
                self.drops_commits |= point == "qmgr.drop_view_commit";
                self.cluster.arm_fault(node, &point, FaultRule { skip, ..FaultRule::ONCE });
            }
        }
    }
    fn hold_up(&mut self, node: NodeId) {
        self.excused.insert(node);
        if node.is_data() {
            self.held_up.insert(node);
        }
    }
    fn split(&mut self, side: &[NodeId], bridge: Option<NodeId>, lasts: u64, silent: bool) {
        self.excused.extend(bridge);
        for (a, b) in self.across(side, bridge) {
            self.excused.extend([a, b]);
            if silent {
                self.cluster.mute(a, b);
                self.cluster.mute(b, a);
                self.plan(lasts, Deed::Unmute { from: a, to: b, lost: false });
                self.plan(lasts, Deed::Unmute { from: b, to: a, lost: false });
            } else {
                self.cluster.part(a, b);
                self.plan(lasts, Deed::Heal(a, b));
            }
        }
    }
    fn stall(&mut self, side: Option<&[NodeId]>, lasts: u64) {
        let nodes = side.map_or_else(|| self.nodes(), <[NodeId]>::to_vec);
        // Who is held for lost is decided among them, but everybody bears a moment.
        if lasts + self.settings.link_spike_ns.1 > BORNE_NS {
            self.excused.extend(nodes.iter().copied());
        }
        for &from in &nodes {
            for &to in nodes.iter().filter(|to| **to != from) {
                self.cluster.mute(from, to);
                self.plan(lasts, Deed::Unmute { from, to, lost: false });
            }
        }
    }
    fn crash(&mut self, node: NodeId) {
        self.note_probes(node);
        self.cluster.crash(node);
        self.restarted.insert(node);
        self.stopped.remove(&node);
    }
    fn start(&mut self, node: NodeId) {
        self.down.remove(&node);
        self.cluster.start(node);
    }
    /// The client with this number or, if that one is dead, the one that came in its place.
    fn lose_client(&mut self, number: u64) {
        let Some(index) = (number as usize).checked_rem(self.clients.len()) else { return };
        if !self.workload.is_open() {
            return;
        }
        let dead = self.clients.remove(index);
        self.cluster.detach(dead.actor);
        self.workload.lost(dead.number);
        self.attach_client();
    }
    /// What a supervisor does: whoever stopped or died is started after a moment, unless it is to stay down.
    fn supervise(&mut self) {
        let now = self.cluster.now();
        for node in self.nodes() {
            if self.cluster.is_running(node) || self.down.contains(&node) {
                self.stopped.remove(&node);
            } else if *self.stopped.entry(node).or_insert(now) + RESTART_NS <= now {
                self.crash(node);
                self.start(node);
            }
        }
    }

    // ---- liveness

    fn is_whole(&self) -> bool {
        let is_up = |view: &apus_signal::view::View, node: NodeId| {
            let incarnation = self.cluster.incarnation(node);
            view.node(node).is_some_and(|n| n.state() == NodeState::Up && n.incarnation == incarnation)
        };
        self.workload.is_open()
            && self.settings.mgmt_nodes().into_iter().all(|n| self.cluster.is_running(n))
            && self.clients.iter().all(|alive| {
                let view = alive.client.view();
                self.settings.data_nodes().into_iter().all(|n| is_up(&view, n))
            })
    }
    /// Until every client knows every node as a full member.
    fn wait_whole(&mut self, after: &str) -> Result<(), String> {
        let end = self.cluster.now() + PATIENCE_NS;
        while self.cluster.now() < end {
            self.supervise();
            if self.is_whole() {
                return Ok(());
            }
            self.pass(MS)?;
        }
        Err(format!("the cluster is not whole {} s after {after}", PATIENCE_NS / 1000 / MS))
    }
    /// Until every client got something acknowledged that was not before.
    fn demand_progress(&mut self, after: &str) -> Result<(), String> {
        let before: Vec<(u64, u64)> =
            self.clients.iter().map(|c| (c.number, self.workload.progress(c.number))).collect();
        let changes = self.workload.schema_changes();
        let end = self.cluster.now() + PROGRESS_NS;
        loop {
            let stuck = before.iter().find(|(number, count)| self.workload.progress(*number) <= *count);
            let is_locked = changes.is_some() && self.workload.schema_changes() <= changes;
            let what = match stuck {
                Some((number, _)) => format!("client {number} gets nothing done"),
                None if is_locked => "no schema change is made".to_owned(),
                None => return Ok(()),
            };
            if self.cluster.now() >= end {
                let doing = self.workload.at_rest().err().unwrap_or_default();
                return Err(format!("{what} after {after}: {doing}"));
            }
            self.supervise();
            self.pass(MS)?;
        }
    }

    // ---- what must hold

    fn audit(&mut self) -> Result<(), String> {
        self.workload.shut(true);
        let end = self.cluster.now() + PATIENCE_NS;
        while let Err(what) = self.workload.at_rest() {
            if self.cluster.now() >= end {
                return Err(format!("clients do not come to rest: {what}"));
            }
            self.pass(MS)?;
        }
        while let Err(what) = self.check_quiet() {
            self.pass(MS)?;
            if self.cluster.now() >= end + PATIENCE_NS {
                return Err(format!("not quiet: {what}"));
            }
        }
        self.cluster.verify()?;
        if self.settings.churn {
            self.survey()?;
        }
        self.check_replicas()?;
        self.workload.read();
        let end = self.cluster.now() + PATIENCE_NS;
        while !self.workload.is_read() {
            if self.cluster.now() >= end {
                return Err("clients do not end reading".to_owned());
            }
            self.pass(MS)?;
        }
        match self.workload.judge()? {
            Judgement::Good => self.report.histories += u64::from(self.settings.workload != Kind::Bank),
            Judgement::Undecided(what) => self.report.undecided.push(what),
        }
        self.report.audits += 1;
        self.workload.shut(false);
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
                    || (line.starts_with("dict version ") && !line.ends_with(" forwarded 0"))
                    || (line.starts_with("prepared ") && !line.starts_with(DICT_AT_REST))
                    || (line.starts_with("LDM ")
                        && ["transactions", "entries", "waiting", "copy jobs"].iter().any(|what| number(what) > 0))
            };
            if let Some(line) = dump.lines().find(is_busy) {
                return Err(line.to_owned());
            }
        }
        Ok(())
    }

    /// All nodes have the same dictionary, which is what was acknowledged, and their workers have its tables.
    fn survey(&mut self) -> Result<(), String> {
        let nodes = self.settings.data_nodes();
        let (surveyor, found) = Surveyor::new(nodes.clone());
        let actor = self.cluster.attach(Box::new(surveyor));
        let end = self.cluster.now() + PROGRESS_NS;
        while found.borrow().len() < nodes.len() {
            if self.cluster.now() >= end {
                return Err("a node does not give its dictionary".to_owned());
            }
            self.pass(MS)?;
        }
        self.cluster.detach(actor);
        let found = found.take();
        let dictionary = schema::agreed(&found)?;
        let carried_out = |fragments: Vec<(NodeId, String, String)>| {
            let names: Vec<(NodeId, String)> = fragments.into_iter().map(|(node, name, _)| (node, name)).collect();
            schema::check_carried_out(dictionary, &names)
        };
        // Nobody waits until the workers have carried out a drop.
        while let Err(what) = carried_out(self.fragments()) {
            if self.cluster.now() >= end {
                return Err(what);
            }
            self.pass(MS)?;
        }
        self.workload.survey(dictionary)
    }

    /// All fragments with node, name and content, as the workers tell them.
    fn fragments(&self) -> Vec<(NodeId, String, String)> {
        let mut all = Vec::new();
        for worker in self.workers() {
            let mut dump = String::new();
            worker.dump(&mut dump);
            let lines = dump.lines().filter_map(|line| line.trim().strip_prefix("fragment ")?.split_once(": "));
            all.extend(lines.map(|(name, content)| (worker.config().node, name.to_owned(), content.to_owned())));
        }
        all
    }

    /// Every fragment has equal content on all nodes of its group.
    fn check_replicas(&self) -> Result<(), String> {
        let mut contents: BTreeMap<String, Vec<(NodeId, String)>> = BTreeMap::new();
        for (node, name, content) in self.fragments() {
            contents.entry(name).or_default().push((node, content));
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

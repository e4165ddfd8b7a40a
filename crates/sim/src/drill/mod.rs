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

mod audit;
mod faults;
mod operator;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use apus_blocks::{
    NodeConfig, OnDisk,
    ldm::{DIFFERS, Slices},
    qmgr,
};
use apus_client::{Client, ClientConfig};
use apus_kernel::{Block, Random, Worker, WorkerConfig};
use apus_mgmt::{
    Management, Memory, MgmtConfig, cluster_config, default_partitions,
    kept::{self, Promise},
};
use apus_signal::{dict::Dictionary, mgmt::ClusterConfig, view::NodeState};
use apus_storage::MemoryManager;
use apus_types::NodeId;

use self::faults::{Deed, Doom};
use crate::{
    ActorId, Clock, Cluster, Kept, NativeClient, SimConfig, address,
    fault::{Ailment, Fault, Knob, Round, Then},
    promise::{gap_ns, goes_back_to_disks, is_all_dark, is_of_halves, serves_on, touches_arbitrator},
    reshape,
    settings::Settings,
    vaults::Vaults,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const NODE_MEMORY: u64 = 64 << 20;
/// What the scrubber says when a file is not what was written.
const DAMAGED: &str = "ldm: what is on disk is damaged";
/// Of a process that began in this round and has no rows that others do not have: it starts again, and meets the others as they are then.
const HOLDS_NOTHING: &str = "was recovering and has lost all full members";
/// A restarted node is a full member after this, clients are at rest after this, in virtual nanoseconds.
pub const PATIENCE_NS: u64 = 30_000 * MS;
/// In a healed cluster, each client has something acknowledged after this. Longer than the time for which a client waits for a node
/// that does not answer.
pub const PROGRESS_NS: u64 = 15_000 * MS;
/// What was written has been synced after this.
const SYNCED_NS: u64 = 500 * MS;
/// A cluster that more has happened to than is promised to be lived through is whole again after this, or is taken for lost.
const RUIN_NS: u64 = 12_000 * MS;
/// What the cluster does is looked at so often at least.
const LOOK_NS: u64 = 10 * MS;
/// What one signal may keep a worker for at worst: a quarter of the lowest silence limit, as the slices are bound to it (`is_short` in LDM).
const SPENT_MAX_NS: u64 = *apus_signal::mgmt::SILENCE_MS.start() as u64 * MS / 4;
/// A supervisor starts a node that stopped itself after this.
const RESTART_NS: u64 = 200 * MS;
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
    /// Clusters that did not come back from more than is promised to be lived through.
    pub ruined: u64,
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
    clock: Clock,
}

/// After this the members have named a management process that has started anew: its silence may have to be noticed first.
const NAMING_NS: u64 = 1_500 * MS;

/// A slow node that has begun to leave has left after this (QMGR ends it after 6 s), or goes on.
const LEAVE_NS: u64 = 7_000 * MS;

struct Ruin {
    lineage: u64,
    /// The process of every data node.
    processes: BTreeMap<NodeId, u64>,
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
    /// When something happened to the cluster last.
    stirred: u64,
    /// Newest that any client knows.
    generation: u64,
    /// Nodes whose stop is a consequence of the faults.
    excused: BTreeSet<NodeId>,
    /// When the resets of these nodes' connections began that came one upon the other, and the last of them.
    resets: BTreeMap<(NodeId, NodeId), (u64, u64)>,
    /// Whose process ended in this round, and that who was let in may not have been told so: then it is removed for its silence.
    restarted: BTreeSet<NodeId>,
    drops_commits: bool,
    /// Nodes that were paused or slow in this round or died after they had lost a link, and nodes that stopped though no fault touched them.
    /// One that wakes up just as another one holds it for lost may be believed when it says that the other is gone: then that one goes in
    /// its place. Of one that dies, the words may have been believed by some and not by others: then one of those two has to go.
    held_up: BTreeSet<NodeId>,
    instead: BTreeSet<NodeId>,
    /// Processes that are to die when they have passed a point, and nodes whose disks are not as they should be.
    dooms: Vec<Doom>,
    ailing: BTreeSet<NodeId>,
    /// More happens than is promised to be lived through, so anybody may stop: the lineage and the processes before that.
    ruin: Option<Ruin>,
    /// In this round all lose power: until it is over anybody may be down, or stop.
    is_dark: bool,
    /// Workers of a data node's process that starts now, and what else becomes of them.
    count: Rc<Cell<u8>>,
    changes: Random,
    rolling: Option<operator::Rolling>,
    /// Nodes that a fault has killed and that stay down for now.
    down: BTreeSet<NodeId>,
    /// When a supervisor noticed that a node had stopped.
    stopped: BTreeMap<NodeId, u64>,
    report: Report,
}

fn build(
    settings: &Settings,
    kept: Kept,
    count: Rc<Cell<u8>>,
    vaults: Vaults,
) -> impl FnMut(&WorkerConfig, bool) -> Vec<Box<dyn Block>> + 'static {
    let s = settings.clone();
    let (groups, replicas) = (u32::from(s.groups), u32::from(s.replicas));
    let partitions = move |workers| default_partitions(groups, replicas, workers);
    let workers = s.workers.into();
    let mut config =
        cluster_config(s.seed | 1, groups, replicas, workers, partitions(workers)).expect("a cluster in range");
    let mgmts = s.mgmt_nodes();
    config.mgmts = mgmts.iter().map(|n| u32::from(n.0)).collect();
    config.durability = u32::from(s.durable && !s.by_table);
    let mut memories: BTreeMap<NodeId, (u64, std::sync::Arc<MemoryManager>)> = BTreeMap::new();
    move |who, rejoins| {
        if who.node.may_arbitrate() {
            let instances = count.get().into();
            let cluster = ClusterConfig { instances, partitions: partitions(instances), ..config.clone() };
            let incarnation = who.incarnation;
            let files = kept.borrow();
            let bytes = files.get(&who.node).and_then(|found| found.files.get(kept::FILE));
            let promise = bytes.map(|bytes| Promise::from_bytes(bytes, who.node).expect("synced files are whole"));
            let mgmts = mgmts.iter().map(|n| (*n, address(*n, 0))).collect();
            let own = if who.node.is_sql_arbitrator() {
                MgmtConfig { mgmts, ..MgmtConfig::arbitrator(who.node, incarnation, promise) }
            } else {
                let (may_adopt, found_again, memory, mgmts) = (false, false, Memory::File(promise), Vec::new());
                MgmtConfig { node: who.node, cluster, incarnation, may_adopt, found_again, memory, mgmts }
            };
            return vec![Box::new(Management::new(own))];
        }
        let memory = match memories.get(&who.node) {
            Some((incarnation, memory)) if *incarnation == who.incarnation => memory.clone(),
            _ => MemoryManager::new(NODE_MEMORY),
        };
        memories.insert(who.node, (who.incarnation, memory.clone()));
        let node = NodeConfig {
            node: who.node,
            workers: who.instances,
            control: who.control,
            rejoins,
            kept: s.keeps_views.then(|| kept_view(&kept, who.node)),
            incarnation: who.incarnation,
            address: address(who.node, if s.fixed_addresses { 0 } else { who.incarnation }),
            mgmts: mgmts.iter().map(|n| (*n, address(*n, 0))).collect(),
            memory,
            transaction_bytes: u64::MAX,
            // Each part gets a row at least after each pause: what is to be done never grows beyond what is asked for.
            // Many share a round, each with a row: no more of these than a node takes at once.
            slices: Slices { rows: s.slice_rows, parts: Slices::default().rows as usize, pause_ns: s.slice_pause_ns },
            disk: s.durable.then(|| OnDisk {
                files: kept_files(&kept, who.node),
                logs: kept.borrow().get(&who.node).map(|found| found.logs.clone()).unwrap_or_default(),
                vault: vaults.of(who.node, who.incarnation),
                segment_bytes: s.segment_bytes,
                checkpoint_bytes: s.checkpoint_bytes,
                scrub_ns: s.scrub_ns,
            }),
            linger_ns: s.linger_ns,
        };
        apus_blocks::build(who, &node)
    }
}

fn kept_files(kept: &Kept, node: NodeId) -> BTreeMap<String, Vec<u8>> {
    kept.borrow().get(&node).map(|found| found.files.clone()).unwrap_or_default()
}

fn kept_view(kept: &Kept, node: NodeId) -> qmgr::Kept {
    let found = kept.borrow().get(&node).cloned().unwrap_or_default();
    let content = |name: &str| found.files.get(name).map(Vec::as_slice);
    qmgr::Kept::read(content(qmgr::VIEW_FILE), content(qmgr::SYNCED_VIEW_FILE), node, found.boot.to_string())
        .expect("the node's own file")
}

impl<W: Workload> Drill<'_, W> {
    fn new(settings: &Settings, workload: W) -> Drill<'_, W> {
        let mut nodes: Vec<(NodeId, u8)> = settings.data_nodes().into_iter().map(|n| (n, settings.workers)).collect();
        nodes.extend(settings.arbitrators().into_iter().map(|n| (n, 1)));
        let config = SimConfig {
            link_delay_ns: (20_000, settings.link_delay_max_ns),
            link_spike_ns: settings.link_spike_ns,
            link_bytes_per_ms: settings.link_bytes_per_ms,
            ring_delay_ns: (200, settings.ring_delay_max_ns),
            clock_offset_ns: settings.clock_offset_ns,
            clock_rate_ppm: settings.clock_rate_ppm,
            clock_per_process: settings.clock_per_process,
            signal_ns: settings.signal_ns,
            row_permille: settings.row_permille,
            spent_max_ns: SPENT_MAX_NS,
            link_all: false,
            vaults: Vaults::new(settings.seed, settings.encryption),
            ..SimConfig::new(&nodes)
        };
        let (kept, vaults) = (Kept::clone(&config.kept), config.vaults.clone());
        let count = Rc::new(Cell::new(settings.workers));
        let mut drill = Drill {
            settings,
            cluster: Cluster::with_rejoin(settings.seed, config, build(settings, kept, Rc::clone(&count), vaults)),
            workload,
            clients: Vec::new(),
            next_client: 0,
            agenda: BTreeMap::new(),
            planned: 0,
            stirred: 0,
            generation: 0,
            excused: BTreeSet::new(),
            resets: BTreeMap::new(),
            restarted: BTreeSet::new(),
            drops_commits: false,
            held_up: BTreeSet::new(),
            instead: BTreeSet::new(),
            dooms: Vec::new(),
            ailing: BTreeSet::new(),
            ruin: None,
            is_dark: false,
            count,
            changes: Random::new(settings.change),
            rolling: None,
            down: BTreeSet::new(),
            stopped: BTreeMap::new(),
            report: Report::default(),
        };
        drill.clients = (0..settings.clients).map(|_| drill.attach_client()).collect();
        drill
    }
    /// Another client comes.
    fn attach_client(&mut self) -> Alive {
        let number = self.next_client;
        self.next_client += 1;
        let id = self.settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number + 1) | 1 << 40;
        let seeds = self.settings.mgmt_nodes().into_iter().map(|n| address(n, 0)).collect();
        let client = Client::new(ClientConfig::new(seeds, id)).expect("a client in range");
        let clock = Clock::default();
        let mut actor = NativeClient::new(&client, clock.clone());
        self.workload.equip(number, &client, &clock, &mut actor);
        let actor = self.cluster.attach(Box::new(actor));
        Alive { number, actor, client, clock }
    }

    fn run(&mut self) -> Result<Report, String> {
        self.wait_whole("the first start")?;
        self.demand_progress("the first start", PROGRESS_NS)?;
        let settings = self.settings;
        for (index, round) in settings.schedule.0.iter().enumerate() {
            self.round(round)?;
            if self.ruin.is_some() {
                self.report.ruined += 1;
                break;
            }
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
        let rots = |fault: &Fault| matches!(fault, Fault::Disk { ailment: Ailment::Rots, .. });
        let may_rot = settings.schedule.0.iter().flat_map(|round| &round.faults).any(|(_, fault)| rots(fault));
        if self.report.probes.contains_key(DAMAGED) && !may_rot {
            return Err("the scrubber has found damage, and nothing has damaged a file".to_owned());
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
        nodes.flat_map(move |n| (0..=self.count.get()).filter_map(move |w| self.cluster.worker(n, w)))
    }
    fn note_probes(&mut self, node: NodeId) {
        for worker in 0..=self.count.get() {
            for (name, count) in self.cluster.worker(node, worker).map(Worker::probes).into_iter().flatten() {
                *self.report.probes.entry(*name).or_insert(0) += count;
            }
        }
    }

    // ---- time

    /// Lets time pass, does what is due meanwhile.
    fn pass(&mut self, nanoseconds: u64) -> Result<(), String> {
        let end = self.cluster.now() + nanoseconds;
        loop {
            let until = end.min(self.cluster.now() + LOOK_NS);
            let next = self.agenda.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= until);
            let dooms = &self.dooms;
            let is_met =
                self.cluster.run_until(|c| dooms.iter().any(|doom| doom.is_due(c)), next.map_or(until, |(at, _)| at));
            self.check_stops()?;
            self.note_views();
            match next {
                _ if is_met => self.meet_dooms(),
                Some(key) => {
                    let deed = self.agenda.remove(&key);
                    deed.into_iter().for_each(|deed| self.perform(deed));
                }
                None if until == end => return Ok(()),
                None => {}
            }
        }
    }
    fn plan(&mut self, after: u64, deed: Deed) {
        self.planned += 1;
        self.agenda.insert((self.cluster.now().saturating_add(after), self.planned), deed);
    }
    /// A new view is something that happens.
    fn note_views(&mut self) {
        let newest = self.clients.iter().map(|alive| alive.client.view().generation).max().unwrap_or(0);
        if newest > self.generation {
            self.generation = newest;
            self.stir();
        }
    }
    /// Nobody may stop who was not hit, no client may see what cannot be.
    fn check_stops(&mut self) -> Result<(), String> {
        if let Some(what) = self.cluster.overlong() {
            return Err(format!("a slice without end: {what}"));
        }
        if let Some(ruin) = &self.ruin {
            return match self.is_lost(ruin)? {
                true => Ok(()),
                false => self.workload.violation().map_or(Ok(()), Err),
            };
        }
        for node in self.settings.data_nodes() {
            if let Some(reason) = self.cluster.stop_reason(node).filter(|reason| reason.contains(DIFFERS)) {
                return Err(format!("node {node} stopped: {reason}"));
            }
            let Some(reason) = self.cluster.stop_reason(node) else { continue };
            let may_fall_out = self.restarted.contains(&node) && (self.drops_commits || reason.contains(HOLDS_NOTHING));
            if !self.excused.contains(&node) && !may_fall_out {
                self.instead.insert(node);
                if self.instead.len() > self.held_up.len() {
                    return Err(format!("node {node} stopped: {reason}"));
                }
            }
        }
        let is_any = self.settings.data_nodes().iter().any(|node| self.cluster.is_running(*node));
        if !is_any && !self.is_dark {
            return Err("no data node is left".to_owned());
        }
        self.workload.violation().map_or(Ok(()), Err)
    }

    // ---- rounds

    fn round(&mut self, round: &Round) -> Result<(), String> {
        self.stir();
        if is_all_dark(self.settings, round) {
            self.wait_restorable()?;
        }
        self.ruin = (round.then == Then::Ruin).then(|| Ruin {
            lineage: self.lineage(),
            processes: self.settings.data_nodes().into_iter().map(|n| (n, self.cluster.incarnation(n))).collect(),
        });
        self.is_dark = round.then == Then::Dark
            || goes_back_to_disks(self.settings, round)
            || is_of_halves(self.settings, round)
            || is_all_dark(self.settings, round);
        if self.is_dark {
            self.excused.extend(self.settings.data_nodes());
        }
        for (at, fault) in &round.faults {
            self.plan(*at, Deed::Inflict(fault.clone()));
        }
        self.pass(round.end)?;
        let what = round.to_string();
        self.end_roll(&what)?;
        if round.then == Then::Ruin {
            return self.end_ruin(&what);
        }
        if round.then == Then::Dark {
            self.go_dark(round);
        }
        if round.then == Then::Stop {
            self.stop_cluster(&what)?;
        }
        if round.then == Then::Hold && serves_on(self.settings, round) {
            self.guide_new_clients();
            self.demand_progress(&what, gap_ns(round))?;
        }
        // In the dark more is to come.
        if round.then != Then::Dark {
            self.end_faults();
        }
        if round.then == Then::Force {
            self.force(&what)?;
        }
        if matches!(round.then, Then::Core | Then::Hold | Then::Force) && !self.down.is_empty() {
            self.guide_new_clients();
            self.demand_progress(&what, gap_ns(round))?;
        }
        self.down.clear();
        // Who lost may learn it late. What happens after power has come back belongs to this round.
        let late =
            round.faults.iter().filter(|(at, _)| *at > round.end).map(|(at, fault)| at + fault.lasts() - round.end);
        self.pass(late.max().unwrap_or(0).max(1_000 * MS))?;
        self.wait_whole(&what)?;
        // Of what was to come amid the start some comes after it.
        while self.is_dark && self.agenda.values().any(|deed| matches!(deed, Deed::Inflict(_))) {
            self.pass(LOOK_NS)?;
            self.wait_whole(&what)?;
        }
        self.demand_progress(&what, PROGRESS_NS)?;
        if round.faults.iter().any(|(_, fault)| matches!(fault, Fault::Set { knob: Knob::Eject, .. })) {
            self.pass(LEAVE_NS)?;
            self.wait_whole(&what)?;
        }
        // A SQL node that was named gives way.
        if self.settings.sqls > 0 || round.faults.iter().any(|(_, fault)| touches_arbitrator(fault)) {
            self.pass(NAMING_NS)?;
            self.wait_whole(&what)?;
        }
        self.forget_round();
        Ok(())
    }
    fn forget_round(&mut self) {
        self.is_dark = false;
        self.excused.clear();
        self.resets.clear();
        self.restarted.clear();
        self.drops_commits = false;
        self.held_up.clear();
        self.instead.clear();
    }
    /// Every machine loses power; the supervisor starts them again, each when its time comes.
    fn go_dark(&mut self, round: &Round) {
        self.end_faults();
        self.down.clear();
        self.agenda.clear();
        for node in self.nodes() {
            self.crash(node, true);
        }
        for (at, fault) in round.faults.iter().filter(|(at, _)| *at > round.end) {
            self.plan(at - round.end, Deed::Inflict(fault.clone()));
        }
        self.change_workers();
    }
    /// No data node runs. Its operator may start all of them with another number of workers, and the power may fail again meanwhile.
    fn change_workers(&mut self) {
        if self.settings.change == 0 || self.changes.one_in(4) {
            return;
        }
        let (workers, deaths) = reshape::drawn(&mut self.changes, &self.settings.data_nodes());
        if workers != self.count.get() {
            *self.report.faults.entry("workers").or_insert(0) += 1;
        }
        self.count.set(workers);
        self.cluster.set_workers(workers);
        for (node, requests, with_machine) in deaths {
            self.cluster.doom_start(node, requests, with_machine);
        }
        if self.changes.one_in(3) {
            let after = US * (1 + self.changes.below(1_500_000));
            self.plan(after, Deed::DarkAgain);
        }
    }
    /// All machines lose power amid a start.
    fn go_dark_again(&mut self) {
        if self.is_dark {
            self.nodes().into_iter().for_each(|node| self.crash(node, true));
            self.change_workers();
        }
    }
    /// After faults that nobody promises to live through the cluster is whole and has all that it had, or is not whole, or all of it starts anew.
    fn end_ruin(&mut self, what: &str) -> Result<(), String> {
        self.end_faults();
        self.down.clear();
        let end = self.cluster.now() + RUIN_NS;
        while self.cluster.now() < end {
            self.supervise();
            if self.is_whole() {
                // Who lost may learn it late.
                self.pass(1_000 * MS)?;
            }
            if let Some(ruin) = &self.ruin
                && self.is_lost(ruin)?
            {
                return Ok(());
            }
            if self.is_whole() {
                self.demand_progress(what, PROGRESS_NS)?;
                self.ruin = None;
                self.forget_round();
                return Ok(());
            }
            self.pass(MS)?;
        }
        Ok(())
    }
    /// The founding of the cluster, as far as clients know.
    fn lineage(&self) -> u64 {
        self.clients.iter().map(|alive| alive.client.view().lineage).max().unwrap_or(0)
    }
    /// No process of some group is left that was there before. Nobody founds the cluster anew while any process lives that has rows.
    fn is_lost(&self, ruin: &Ruin) -> Result<bool, String> {
        let is_left = |node: &NodeId| ruin.processes.get(node) == Some(&self.cluster.incarnation(*node));
        let left = ruin.processes.keys().find(|node| is_left(node));
        if let Some(node) = left.filter(|_| self.lineage() > ruin.lineage) {
            return Err(format!("the cluster was founded anew while node {node} had its rows"));
        }
        Ok(self.settings.group_members().iter().any(|group| !group.iter().any(is_left)))
    }
    /// What a supervisor does: whoever stopped or died is started after a moment, unless it is to stay down.
    fn supervise(&mut self) {
        let now = self.cluster.now();
        for node in self.nodes() {
            if self.cluster.is_running(node) || self.down.contains(&node) {
                self.stopped.remove(&node);
            } else if *self.stopped.entry(node).or_insert(now) + RESTART_NS <= now {
                self.restart(node);
            }
        }
    }

    /// Who knows no cluster yet finds it through a management node, so one has to run, and not stand still.
    fn guide_new_clients(&mut self) {
        let mgmts = self.settings.mgmt_nodes();
        let is_lost = self.clients.iter().any(|c| c.client.view().living().next().is_none());
        let guides = |mgmt: &NodeId| self.cluster.is_running(*mgmt) && !self.cluster.is_paused(*mgmt);
        if !is_lost || mgmts.iter().any(guides) {
            return;
        }
        match self.cluster.is_running(mgmts[0]) {
            true => self.cluster.resume(mgmts[0]),
            false => self.start(mgmts[0]),
        }
    }

    // ---- liveness

    fn is_whole(&self) -> bool {
        let is_up = |view: &apus_signal::view::View, node: NodeId| {
            let incarnation = self.cluster.incarnation(node);
            view.node(node).is_some_and(|n| n.state() == NodeState::Up && n.incarnation == incarnation)
        };
        self.workload.is_open()
            && self.settings.arbitrators().into_iter().all(|n| self.cluster.is_running(n))
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
    /// Until each node could start alone from its disk: all others may be about to be lost for good.
    fn wait_restorable(&mut self) -> Result<(), String> {
        let end = self.cluster.now() + PATIENCE_NS;
        while !self.settings.data_nodes().into_iter().all(|node| self.cluster.is_restorable(node)) {
            if self.cluster.now() > end {
                return Err("a full member has no whole log".to_owned());
            }
            self.pass(MS)?;
        }
        self.pass(SYNCED_NS)
    }
    /// Until every client got something acknowledged that was not before, and the first of them before so long.
    fn demand_progress(&mut self, after: &str, gap: u64) -> Result<(), String> {
        let before: Vec<(u64, u64)> =
            self.clients.iter().map(|c| (c.number, self.workload.progress(c.number))).collect();
        let changes = self.workload.schema_changes();
        let begin = self.cluster.now();
        let end = begin + PROGRESS_NS;
        loop {
            let is_served = before.iter().any(|(number, count)| self.workload.progress(*number) > *count);
            if !is_served && self.cluster.now() > begin + gap && end > begin + gap {
                let doing = self.workload.at_rest().err().unwrap_or_default();
                return Err(format!("nobody is served for {} ms after {after}: {doing}", gap / MS));
            }
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

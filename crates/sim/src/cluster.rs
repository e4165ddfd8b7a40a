//! A cluster under a seed; see the crate documentation.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use apus_kernel::{Block, FaultRule, Lease, Random, Request, Worker, WorkerConfig};
use apus_signal::{BlockId, BlockRef, Kind, mgmt::Setting, operator::EndOrder, qmgr::encode};
use apus_types::NodeId;

use crate::{
    Actor,
    clock::{HostClock, RATE_PPM_MAX},
    disk::DiskConfig,
    events::{End, Event, Queue},
    files::{DataRequest, HostDisk, Kept, Write},
    network::{Link, Party},
    reshape::Deaths,
    vaults::Vaults,
};

/// Nodes of a simulated cluster and the shape of its network.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Data and management nodes with their numbers of workers; a data node has a control worker besides.
    pub nodes: Vec<(NodeId, u8)>,
    /// Shortest and longest time on a link, ns.
    pub link_delay_ns: (u64, u64),
    /// One message in so many (0: none) takes up to so much longer, ns.
    pub link_spike_ns: (u64, u64),
    /// What a link carries in each direction; `None`: any amount at once.
    pub link_bytes_per_ms: Option<u64>,
    /// What a worker's turn is taken to cost, and a signal in it, ns: who is behind is late.
    pub signal_ns: u64,
    /// Of what blocks say that their work costs at worst (`Context::spend`), so many thousandths pass.
    pub row_permille: u64,
    /// Most that one signal may spend of that, ns.
    pub spent_max_ns: u64,
    /// Shortest and longest time between two workers of a node, ns.
    pub ring_delay_ns: (u64, u64),
    /// Largest difference between a host's clock and the virtual time when it starts, ns.
    pub clock_offset_ns: u64,
    /// Largest error of its rate, parts per million, at most [`RATE_PPM_MAX`].
    pub clock_rate_ppm: u64,
    /// A process reads the time since it began, not its machine's clock.
    pub clock_per_process: bool,
    /// Link every pair of nodes from the start; otherwise nodes ask with `connect_to`, naming [`address`]es.
    pub link_all: bool,
    /// Of every node.
    pub disk: DiskConfig,
    /// Blocks are told that there is a directory for data files (it is there in any case).
    pub has_disk: bool,
    /// What the processes found on their disks: for `build`.
    pub kept: Kept,
    /// Keys of their files.
    pub vaults: Vaults,
}

impl SimConfig {
    /// Work takes time.
    fn costs(&self) -> bool {
        self.signal_ns > 0 || self.row_permille > 0
    }
    pub fn new(nodes: &[(NodeId, u8)]) -> SimConfig {
        SimConfig {
            nodes: nodes.to_vec(),
            link_delay_ns: (20_000, 300_000),
            link_spike_ns: (0, 0),
            link_bytes_per_ms: None,
            signal_ns: 0,
            row_permille: 0,
            spent_max_ns: u64::MAX,
            ring_delay_ns: (200, 20_000),
            clock_offset_ns: 0,
            clock_rate_ppm: 0,
            clock_per_process: false,
            link_all: true,
            disk: DiskConfig::default(),
            has_disk: true,
            kept: Kept::default(),
            vaults: Vaults::default(),
        }
    }
}

/// Where a node is reached: any process of it (incarnation 0), or only that one.
pub fn address(node: NodeId, incarnation: u64) -> String {
    format!("n{}:{incarnation}", node.0)
}

/// The node and the incarnation that [`address`] names.
pub fn parse_address(address: &str) -> Option<(NodeId, u64)> {
    let (node, incarnation) = address.strip_prefix('n')?.split_once(':')?;
    Some((NodeId(node.parse().ok()?), incarnation.parse().ok()?))
}

/// Signals of a job buffer that a worker executes in one turn.
const TURN_BUDGET: usize = 256;
/// What one turn is taken to cost in virtual time.
const TURN_NS: u64 = 1_000;
/// What one signal is taken to cost on a slow node, before the slowness.
const SIGNAL_NS: u64 = 500;
/// A processor of a guest that goes on may do so by less than this after the first one, in nanoseconds.
const GUEST_LATE_NS: u64 = 20_000_000;

/// Makes the blocks of one worker. A process that is to start again because a block said so is told that it rejoins.
type Build = Box<dyn FnMut(&WorkerConfig, bool) -> Vec<Box<dyn Block>>>;

pub(crate) struct Host {
    pub workers: Vec<Worker>,
    /// Virtual time of the next planned turn of each worker.
    turns: Vec<u64>,
    stalls: Vec<Stall>,
    pub incarnation: u64,
    /// Files that it has asked to have written.
    writes: u64,
    /// Reason of its stop, once a block has asked for one.
    stopped: Option<String>,
    paused: bool,
    /// How many times longer its turns take.
    slowness: u64,
    /// But for the control worker's.
    spares_control: bool,
    clock: HostClock,
}

/// What comes to a worker whose node is paused, or slow and in the midst of a turn.
#[derive(Default)]
struct Stall {
    /// The worker makes no turn before.
    until: u64,
    /// Nor does it while others of its node do.
    stuck: bool,
    /// A [`Event::Resume`] is in the queue.
    planned: bool,
    waiting: Vec<Event>,
}

pub struct Cluster {
    pub(crate) config: SimConfig,
    build: Build,
    pub(crate) now: u64,
    pub(crate) random: Random,
    seed: u64,
    starts: u64,
    pub(crate) queue: Queue,
    pub(crate) hosts: BTreeMap<NodeId, Host>,
    pub(crate) disks: BTreeMap<NodeId, HostDisk>,
    pub(crate) deaths: Deaths,
    pub(crate) links: BTreeMap<u64, Link>,
    /// The link of an end to a name.
    pub(crate) by_end: BTreeMap<(End, NodeId), u64>,
    pub(crate) next_link: u64,
    pub(crate) next_client: BTreeMap<NodeId, u16>,
    /// Last arrival planned between two workers of a node: later bytes do not overtake.
    ring_last: BTreeMap<(NodeId, u8, u8), u64>,
    /// Pairs (dialler, dialled) that are linked again whenever they are not, with the incarnation that the address names.
    pub(crate) wanted: BTreeMap<(NodeId, NodeId), u64>,
    /// Pairs of which the first knows where the second is.
    pub(crate) addresses: BTreeSet<(NodeId, NodeId)>,
    /// Where nodes are kept apart, directions in which a dial is refused; in others it is not answered.
    pub(crate) refusing: BTreeSet<(Party, Party)>,
    /// Dials in the queue.
    pub(crate) dialling: BTreeSet<(NodeId, NodeId, u8)>,
    /// Link ends at which a worker would not read.
    pub(crate) held: BTreeSet<(NodeId, u8, u64, usize)>,
    /// Pairs that cannot be linked, the lower id first; once per fault.
    pub(crate) barred: Vec<(Party, Party)>,
    /// Directions (from, to) in which nothing passes; once per fault.
    pub(crate) muted: Vec<(Party, Party)>,
    /// Some node is paused or slow.
    is_impaired: bool,
    pub(crate) actors: Vec<Option<Box<dyn Actor>>>,
    /// Virtual time of the next planned wake-up of each actor.
    pub(crate) wakes: Vec<u64>,
    hash: u64,
    log: Vec<String>,
    /// A signal has spent more than it may.
    overlong: Option<String>,
}

impl Cluster {
    /// Makes and starts all nodes. `build` makes the blocks of one worker.
    pub fn new(
        seed: u64,
        config: SimConfig,
        mut build: impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + 'static,
    ) -> Cluster {
        Cluster::with_rejoin(seed, config, move |who, _| build(who))
    }
    /// As above; `build` is also told whether the process may only join a cluster that is there ([`Cluster::start_again`]).
    pub fn with_rejoin(
        seed: u64,
        config: SimConfig,
        build: impl FnMut(&WorkerConfig, bool) -> Vec<Box<dyn Block>> + 'static,
    ) -> Cluster {
        let mut cluster = Cluster {
            build: Box::new(build),
            now: 0,
            random: Random::new(seed),
            seed,
            starts: 0,
            queue: Queue::default(),
            hosts: BTreeMap::new(),
            disks: BTreeMap::new(),
            deaths: Deaths::new(),
            links: BTreeMap::new(),
            by_end: BTreeMap::new(),
            next_link: 0,
            next_client: BTreeMap::new(),
            ring_last: BTreeMap::new(),
            wanted: BTreeMap::new(),
            addresses: BTreeSet::new(),
            refusing: BTreeSet::new(),
            dialling: BTreeSet::new(),
            held: BTreeSet::new(),
            barred: Vec::new(),
            muted: Vec::new(),
            is_impaired: config.costs(),
            actors: Vec::new(),
            wakes: Vec::new(),
            hash: seed,
            log: Vec::new(),
            overlong: None,
            config,
        };
        let nodes = cluster.config.nodes.clone();
        nodes.iter().for_each(|&(node, _)| cluster.start(node));
        if cluster.config.link_all {
            for &(a, _) in &nodes {
                nodes.iter().filter(|&&(b, _)| b != a).for_each(|&(b, _)| {
                    if b < a || (a.is_data() && b.is_data()) {
                        cluster.want(a, b, 0);
                    }
                });
            }
        }
        cluster
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }
    pub fn now(&self) -> u64 {
        self.now
    }
    /// Covers every signal executed so far, with its time and place.
    pub fn hash(&self) -> u64 {
        let each = self.hosts.values().flat_map(|h| &h.workers).filter_map(Worker::hash);
        each.fold(self.hash, fold)
    }
    pub(crate) fn note(&mut self, node: NodeId, text: &str) {
        self.log.push(format!("{} node {node} {text}", self.now));
    }
    /// Log lines of all nodes so far, with their virtual times.
    pub fn log(&self) -> &[String] {
        &self.log
    }
    pub fn is_running(&self, node: NodeId) -> bool {
        self.hosts.get(&node).is_some_and(|host| host.stopped.is_none())
    }
    /// The process that runs, 0: none.
    pub fn incarnation(&self, node: NodeId) -> u64 {
        self.hosts.get(&node).filter(|host| host.stopped.is_none()).map_or(0, |host| host.incarnation)
    }
    pub fn stop_reason(&self, node: NodeId) -> Option<&str> {
        self.hosts.get(&node).and_then(|host| host.stopped.as_deref())
    }
    /// Which signal has kept a worker for longer than it may.
    pub fn overlong(&self) -> Option<&str> {
        self.overlong.as_deref()
    }
    /// What the clock of the node's machine reads.
    pub(crate) fn clock(&self, node: NodeId) -> u64 {
        self.hosts.get(&node).map_or(self.now, |host| host.clock.read(self.now))
    }
    pub fn worker(&self, node: NodeId, worker: u8) -> Option<&Worker> {
        self.hosts.get(&node).and_then(|host| host.workers.get(usize::from(worker)))
    }
    pub fn arm_fault(&mut self, node: NodeId, name: &str, rule: FaultRule) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        host.workers.iter_mut().for_each(|worker| worker.arm_fault(name, rule));
    }
    /// What was armed by this name has answered yes.
    pub fn is_fault_spent(&self, node: NodeId, name: &str) -> bool {
        self.hosts.get(&node).is_some_and(|host| host.workers.iter().any(|worker| worker.is_fault_spent(name)))
    }
    /// How often the process that runs has asked for a file to be written.
    pub fn writes_asked(&self, node: NodeId) -> u64 {
        self.hosts.get(&node).map_or(0, |host| host.writes)
    }
    /// Times a probe was reached on all nodes that run.
    pub fn probe(&self, name: &str) -> u64 {
        self.hosts.values().flat_map(|h| &h.workers).filter_map(|w| w.probes().get(name)).sum()
    }
    /// # Errors
    /// The first structure that does not hold.
    pub fn verify(&self) -> Result<(), String> {
        self.hosts.values().flat_map(|h| &h.workers).try_for_each(Worker::verify)
    }

    // ---- faults

    /// The clock of a machine goes on from process to process.
    fn clock_of(&self, node: NodeId) -> HostClock {
        let mut random = Random::new(self.seed ^ 0x636c_6f63_6b00 ^ u64::from(node.0) << 48);
        let offset = random.below(self.config.clock_offset_ns.saturating_add(1));
        let most = self.config.clock_rate_ppm.min(RATE_PPM_MAX);
        let machine = HostClock::new(0, offset, random.below(2 * most + 1) as i64 - most as i64);
        if self.config.clock_per_process { machine.of_process(self.now) } else { machine }
    }
    /// Starts a node that is not running, as a new process that is given everything anew.
    pub fn start(&mut self, node: NodeId) {
        self.start_as(node, false);
    }
    /// What `apus data` does when a block has stopped its node so that it joins again ([`Worker::rejoins`]): a new process
    /// that founds no cluster. False: the node did not stop so.
    pub fn start_again(&mut self, node: NodeId) -> bool {
        let rejoins = self.hosts.get(&node).is_some_and(|host| host.stopped.is_some() && host.rejoins());
        if rejoins {
            self.end_process(node, false);
            self.start_as(node, true);
        }
        rejoins
    }
    fn start_as(&mut self, node: NodeId, rejoins: bool) {
        let Some(&(_, instances)) = self.config.nodes.iter().find(|(n, _)| *n == node) else { return };
        if self.hosts.contains_key(&node) {
            return;
        }
        let Some(logs) = self.open_logs(node, instances, self.starts + 1) else { return };
        self.note_kept(node, logs);
        self.starts += 1;
        let incarnation = self.starts;
        let mut host = Host {
            workers: Vec::new(),
            turns: Vec::new(),
            stalls: Vec::new(),
            incarnation,
            writes: 0,
            stopped: None,
            paused: false,
            slowness: 1,
            spares_control: false,
            clock: self.clock_of(node),
        };
        let lease = Arc::<Lease>::default();
        let control = node.is_data();
        for worker in 0..instances + u8::from(control) {
            let seed = self.random.next_u64();
            let who = WorkerConfig { node, worker, instances, control, incarnation, seed };
            let mut made = Worker::with_lease(who, Arc::clone(&lease));
            made.hash_signals(self.seed);
            made.set_has_disk(self.config.has_disk && node.is_data());
            (self.build)(&who, rejoins).into_iter().for_each(|block| made.add_block(block));
            host.workers.push(made);
            host.turns.push(self.now);
            host.stalls.push(Stall::default());
            self.queue.plan(self.now, Event::Turn { node, worker, incarnation });
        }
        self.hosts.insert(node, host);
        let wanted: Vec<_> = self.wanted.keys().copied().filter(|&(a, b)| a == node || b == node).collect();
        wanted.into_iter().for_each(|(a, b)| self.dial_all(a, b));
    }
    /// The process is gone at once with all it held; its peers learn it by their links, sometimes without the last bytes it sent.
    pub fn crash(&mut self, node: NodeId) {
        self.end_process(node, false);
    }
    /// As above, with its machine: what its files have not synced may be lost, and they were written before another boot.
    pub fn crash_machine(&mut self, node: NodeId) {
        self.end_process(node, true);
    }
    fn end_process(&mut self, node: NodeId, with_machine: bool) {
        let Some(mut host) = self.hosts.remove(&node) else { return };
        self.crash_disk(node, with_machine);
        self.note_impaired();
        // What waited for the dead is planned again: it ends links, the rest finds nobody.
        let waiting = host.stalls.iter_mut().flat_map(|stall| std::mem::take(&mut stall.waiting));
        waiting.for_each(|event| self.queue.plan(self.now, event));
        self.hash = host.workers.iter().filter_map(Worker::hash).fold(self.hash, fold);
        if !self.config.link_all {
            self.wanted.retain(|&(dialler, _), _| dialler != node);
            self.addresses.retain(|&(dialler, _)| dialler != node);
        }
        self.by_end.retain(|(end, _), _| !matches!(end, End::Worker { node: n, .. } if *n == node));
        self.held.retain(|&(n, ..)| n != node);
        self.ring_last.retain(|&(n, ..), _| n != node);
        let lose_tail = self.random.one_in(2);
        for id in self.links_where(|end| matches!(end, End::Worker { node: n, .. } if *n == node)) {
            let (now, latest) = (self.now, self.config.link_delay_ns.1);
            let lost_after = if lose_tail { now + self.random.below(latest + 1) } else { u64::MAX };
            if let Some(link) = self.links.get_mut(&id) {
                link.lost_after = lost_after;
            }
            self.cut(id, None);
        }
    }
    /// SIGTERM: the node is to leave the cluster.
    pub fn leave(&mut self, node: NodeId) {
        let places = self.hosts.get(&node).map_or(0, |host| host.workers.len() as u8);
        if let Some(control) = (0..places).find(|w| self.worker(node, *w).is_some_and(|w| w.config().is_control())) {
            self.with_worker(node, control, None, |w| w.ask_to_leave());
        }
    }
    /// What a management node tells a data node when an operator ends the cluster.
    pub fn order_end(&mut self, mgmt: NodeId, node: NodeId) {
        let incarnation = self.incarnation(node);
        self.order(mgmt, node, Kind::EndOrd, &EndOrder { incarnation, ..EndOrder::default() });
    }
    /// What a management node that runs tells all data nodes when an operator changes a setting.
    pub fn order_setting(&mut self, mgmt: NodeId, setting: &Setting) {
        let nodes: Vec<NodeId> = self.hosts.keys().copied().filter(|node| node.is_data()).collect();
        for node in nodes {
            if self.is_running(mgmt) && self.is_running(node) {
                self.order(mgmt, node, Kind::SettingOrd, setting);
            }
        }
    }
    fn order<M: prost::Message>(&mut self, mgmt: NodeId, node: NodeId, kind: Kind, order: &M) {
        let control = self.hosts.get(&node).map_or(0, |host| host.workers.len().saturating_sub(1) as u8);
        let (from, qmgr) =
            (BlockRef::new(mgmt, BlockId::Mgmt, 0), BlockRef::new(node, BlockId::Qmgr, BlockRef::CONTROL));
        self.with_worker(node, control, None, |w| {
            w.with_context(from, |ctx| ctx.send(qmgr, kind, |b| encode(order, b)));
        });
    }
    /// The node makes no turn until [`Cluster::resume`]; what comes waits.
    pub fn pause(&mut self, node: NodeId) {
        self.impair(node, |host| host.paused = true);
    }
    /// The processors of a guest go on one after the other.
    pub fn resume(&mut self, node: NodeId) {
        let (now, mut was_frozen) = (self.now, false);
        self.impair(node, |host| {
            host.paused = false;
            was_frozen = host.clock.is_frozen();
            host.clock.set_frozen(now, false);
        });
        let Some(host) = self.hosts.get_mut(&node).filter(|_| was_frozen) else { return };
        for stall in &mut host.stalls {
            if self.random.one_in(2) {
                stall.until = now + self.random.below(GUEST_LATE_NS);
            }
        }
    }
    /// As [`Cluster::pause`], and the clock of the machine stands still, too.
    pub fn freeze(&mut self, node: NodeId) {
        let now = self.now;
        self.impair(node, |host| {
            host.paused = true;
            host.clock.set_frozen(now, true);
        });
    }
    /// One worker of the node makes no turn until it is let go on.
    pub fn stick(&mut self, node: NodeId, worker: u8, stuck: bool) {
        self.impair(node, |host| {
            if let Some(stall) = host.stalls.get_mut(usize::from(worker)) {
                stall.stuck = stuck;
            }
        });
    }
    pub fn unstick(&mut self, node: NodeId) {
        self.impair(node, |host| host.stalls.iter_mut().for_each(|stall| stall.stuck = false));
    }
    /// From now on each turn of the node takes so many times longer; 1: as it should.
    pub fn slow_down(&mut self, node: NodeId, factor: u64) {
        self.impair(node, |host| (host.slowness, host.spares_control) = (factor.max(1), false));
    }
    /// The same of its data workers alone.
    pub fn slow_down_data(&mut self, node: NodeId, factor: u64) {
        self.impair(node, |host| (host.slowness, host.spares_control) = (factor.max(1), true));
    }
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.hosts.get(&node).is_some_and(|host| host.paused)
    }
    pub fn disarm_faults(&mut self) {
        self.hosts.values_mut().flat_map(|h| &mut h.workers).for_each(Worker::disarm_faults);
    }

    fn impair(&mut self, node: NodeId, change: impl FnOnce(&mut Host)) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        change(host);
        for stall in host.stalls.iter_mut().filter(|_| host.slowness == 1) {
            // What is planned may be as far away as a turn of the slow node was long.
            (stall.until, stall.planned) = (self.now, false);
        }
        let incarnation = host.incarnation;
        for worker in 0..host.stalls.len() as u8 {
            self.plan_resume(node, worker, incarnation);
        }
        self.note_impaired();
    }
    fn note_impaired(&mut self) {
        self.is_impaired = self.config.costs() || self.hosts.values().any(Host::is_impaired);
    }
    fn plan_resume(&mut self, node: NodeId, worker: u8, incarnation: u64) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let stall = &mut host.stalls[usize::from(worker)];
        if !host.paused && !stall.stuck && !stall.waiting.is_empty() && !stall.planned {
            stall.planned = true;
            self.queue.plan(stall.until.max(self.now), Event::Resume { node, worker, incarnation });
        }
    }
    /// Keeps an event for a worker that makes no turn now; gives back any other.
    fn put_off(&mut self, event: Event) -> Option<Event> {
        let target = match &event {
            Event::LinkBytes { link, at_end, .. } | Event::LinkEnd { link, at_end } | Event::Offer { link, at_end } => {
                self.links.get(link).and_then(|link| match link.ends[*at_end] {
                    End::Worker { node, worker } => Some((node, worker, link.incarnations[*at_end])),
                    End::Actor(_) => None,
                })
            }
            Event::Ring { node, worker, incarnation, .. }
            | Event::Turn { node, worker, incarnation }
            | Event::FileDone { node, worker, incarnation, .. }
            | Event::DiskDone { node, worker, incarnation, .. } => Some((*node, *worker, *incarnation)),
            Event::Refused { from, worker, incarnation, .. } => Some((*from, *worker, *incarnation)),
            Event::ActorDial { node, .. } => Some((*node, 0, self.incarnation(*node))),
            Event::Resume { .. }
            | Event::Dial { .. }
            | Event::Redial { .. }
            | Event::Wake { .. }
            | Event::Disk { .. } => None,
        };
        let Some((node, worker, incarnation)) = target else { return Some(event) };
        let Some(host) = self.hosts.get_mut(&node).filter(|host| host.incarnation == incarnation) else {
            return Some(event);
        };
        let stall = host.stalls.get_mut(usize::from(worker));
        let Some(stall) = stall.filter(|s| host.paused || s.stuck || s.until > self.now || !s.waiting.is_empty())
        else {
            return Some(event);
        };
        // A turn that is planned and put off is not planned again.
        stall.waiting.push(event);
        self.plan_resume(node, worker, incarnation);
        None
    }
    /// All that has come meanwhile, in one go.
    fn on_resume(&mut self, node: NodeId, worker: u8, incarnation: u64) {
        let Some(host) = self.hosts.get_mut(&node).filter(|host| host.incarnation == incarnation) else { return };
        let stall = &mut host.stalls[usize::from(worker)];
        stall.planned = false;
        if host.paused || stall.stuck {
            return;
        }
        if stall.until > self.now {
            return self.plan_resume(node, worker, incarnation);
        }
        for event in std::mem::take(&mut stall.waiting) {
            self.perform(event);
        }
        self.note_impaired();
    }

    // ---- running

    /// Performs the next event. False: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        if !self.is_impaired {
            self.perform(event);
        } else if let Some(event) = self.put_off(event) {
            self.perform(event);
        }
        true
    }
    fn perform(&mut self, event: Event) {
        match event {
            Event::LinkBytes { link, at_end, bytes } => self.on_link_bytes(link, at_end, &bytes),
            Event::LinkEnd { link, at_end } => self.on_link_end(link, at_end),
            Event::Ring { node, worker, incarnation, bytes } => {
                self.with_worker(node, worker, Some(incarnation), |w| w.receive_ring(&bytes));
            }
            Event::Turn { node, worker, incarnation } => self.on_turn(node, worker, incarnation),
            Event::Resume { node, worker, incarnation } => self.on_resume(node, worker, incarnation),
            Event::Dial { from, to, worker } => self.on_dial(from, to, worker),
            Event::Redial { from, to, worker, number } => self.on_redial(from, to, worker, number),
            Event::Refused { from, to, worker, incarnation, number } => {
                self.on_refused(from, to, worker, incarnation, number);
            }
            Event::Offer { link, at_end } => self.on_offer(link, at_end),
            Event::ActorDial { actor, node, incarnation } => self.on_actor_dial(actor, node, incarnation),
            Event::Disk { node } => self.on_disk(node),
            Event::FileDone { node, worker, incarnation, asker, token, outcome } => {
                self.with_worker(node, worker, Some(incarnation), |w| w.file_done(asker, token, outcome));
            }
            Event::DiskDone { node, worker, incarnation, done } => {
                self.with_worker(node, worker, Some(incarnation), |w| w.disk_done(done));
            }
            Event::Wake { actor } => {
                // As with turns, only the newest plan counts.
                if self.wakes.get(actor) == Some(&self.now) {
                    self.wakes[actor] = u64::MAX;
                    self.with_actor(actor, |a, now, out| a.wake(now, out));
                }
            }
        }
    }
    /// Steps until the condition holds (true) or the virtual time is reached (false).
    pub fn run_until(&mut self, mut condition: impl FnMut(&Cluster) -> bool, limit_ns: u64) -> bool {
        loop {
            if condition(self) {
                return true;
            }
            if self.now >= limit_ns || !self.step() {
                return false;
            }
        }
    }

    pub(crate) fn delay(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.random.below(most.saturating_sub(least) + 1)
    }

    fn on_turn(&mut self, node: NodeId, worker: u8, incarnation: u64) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        // Only the newest plan counts: earlier ones for a later time stay in the queue and are ignored here.
        if host.incarnation == incarnation && host.turns.get(usize::from(worker)).is_some_and(|&at| at <= now) {
            host.turns[usize::from(worker)] = u64::MAX;
            self.with_worker(node, worker, Some(incarnation), |_| ());
        }
    }

    /// One round of a worker: time, what came, its jobs, and what leaves.
    pub(crate) fn with_worker(
        &mut self,
        node: NodeId,
        worker: u8,
        incarnation: Option<u64>,
        work: impl FnOnce(&mut Worker),
    ) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        if host.stopped.is_some() || incarnation.is_some_and(|i| i != host.incarnation) {
            return;
        }
        let Some(w) = host.workers.get_mut(usize::from(worker)) else { return };
        let (executed, ticks) = (w.counters().executed, w.ticks());
        let (time, stall) = (host.clock.read(now), &host.stalls[usize::from(worker)]);
        w.rested(time.saturating_sub(w.now()).min(now.saturating_sub(stall.until)));
        w.set_time(time, host.clock.unix_micros(now));
        if w.config().is_control() && w.ticks() > ticks {
            // As an executor does: of a worker that is stuck it sees no new round, and it does not sleep.
            (0..w.config().instances).zip(&host.stalls).for_each(|(data, stall)| w.watch(data, 0, !stall.stuck));
        }
        work(w);
        w.run(TURN_BUDGET);
        w.settle();
        let (spent, most) = w.take_spent();
        // What was set aside for a view is executed with it, signal by signal, but in one go.
        if let Some((ns, kind)) = most.filter(|(ns, kind)| *ns > self.config.spent_max_ns && *kind != Kind::ViewOrd) {
            let text = || format!("worker {worker} of node {node} spends {} ms on one {kind:?}", ns / 1_000_000);
            self.overlong.get_or_insert_with(text);
        }
        if host.slowness > 1 || self.config.costs() {
            let each = if self.config.signal_ns > 0 { self.config.signal_ns } else { SIGNAL_NS };
            let cost = TURN_NS + each * (w.counters().executed - executed) + spent / 1000 * self.config.row_permille;
            let stall = &mut host.stalls[usize::from(worker)];
            let factor = if host.spares_control && w.config().is_control() { 1 } else { host.slowness };
            stall.until = stall.until.max(now).saturating_add(cost * factor);
        }
        self.carry_away(node, worker);
        self.plan_turn(node, worker);
        self.read_held(node, worker);
    }

    fn plan_turn(&mut self, node: NodeId, worker: u8) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let index = usize::from(worker);
        let w = &host.workers[index];
        let at = if w.has_work() { self.now + TURN_NS } else { host.clock.when(w.next_deadline()).max(self.now + 1) };
        if host.stopped.is_none() && at < host.turns[index] {
            host.turns[index] = at;
            self.queue.plan(at, Event::Turn { node, worker, incarnation: host.incarnation });
        }
    }

    /// Moves a worker's output into the queue and serves its requests.
    fn carry_away(&mut self, node: NodeId, worker: u8) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let incarnation = host.incarnation;
        let others = host.workers.len() as u8;
        let w = &mut host.workers[usize::from(worker)];
        let mut rings = Vec::new();
        for to in 0..others {
            let mut bytes = Vec::new();
            if to != worker && w.take_ring(to, &mut bytes) {
                rings.push((to, bytes));
            }
        }
        let mut outputs = Vec::new();
        while let Some(to) = w.next_dirty() {
            outputs.push(to);
        }
        let (requests, lines) = (w.take_requests(), w.take_log());
        let stop = w.stop_reason().map(str::to_owned);
        self.log.extend(lines.into_iter().map(|line| format!("{} {line}", self.now)));
        for (to, bytes) in rings {
            self.send_ring(node, worker, to, incarnation, bytes);
        }
        for to in outputs {
            self.send_output(node, worker, to);
        }
        for request in requests {
            match request {
                Request::Connect { node: to, address } => match parse_address(&address) {
                    Some((named, incarnation)) if named == to => self.want(node, to, incarnation),
                    _ => self.log.push(format!("{} node {node} dials {address}: nobody there", self.now)),
                },
                Request::Close { node: to } => self.close(End::Worker { node, worker }, to),
                Request::Write { file, bytes, synced, token, asker } => {
                    self.hosts.get_mut(&node).into_iter().for_each(|host| host.writes += 1);
                    let bytes = self.config.vaults.of(node, incarnation).seal_file(&file, bytes);
                    self.write_file(node, Write { file, bytes, synced, token, asker, worker, incarnation });
                }
                Request::Disk { file, op, token, asker } => {
                    self.data_request(node, DataRequest { file, op, token, asker, worker, incarnation });
                }
            }
        }
        if let Some(reason) = stop {
            self.log.push(format!("{} node {node} stopped: {reason}", self.now));
            if let Some(host) = self.hosts.get_mut(&node) {
                host.stopped = Some(reason);
            }
            for id in self.links_where(|end| matches!(end, End::Worker { node: n, .. } if *n == node)) {
                self.cut(id, None);
            }
        }
    }

    /// What the worker has for a link leaves, if the other end reads.
    fn send_output(&mut self, node: NodeId, worker: u8, to: NodeId) {
        let from = End::Worker { node, worker };
        if to.is_client() && self.is_unread(from, to) {
            return;
        }
        let Some(w) = self.hosts.get_mut(&node).and_then(|host| host.workers.get_mut(usize::from(worker))) else {
            return;
        };
        let mut bytes = Vec::new();
        while !w.output(to).is_empty() {
            let start = bytes.len();
            bytes.extend_from_slice(w.output(to));
            w.sent(to, bytes.len() - start);
        }
        self.send_link(from, to, bytes);
    }
    /// Clients of the node read again.
    pub(crate) fn send_unsent(&mut self, node: NodeId) {
        let ends = |(end, name): &(End, NodeId)| match *end {
            End::Worker { node: n, worker } if n == node && name.is_client() => Some((worker, *name)),
            _ => None,
        };
        let all: Vec<(u8, NodeId)> = self.by_end.keys().filter_map(ends).collect();
        for (worker, name) in all {
            self.send_output(node, worker, name);
            self.read_held(node, worker);
        }
    }

    /// Rings keep their order like links.
    fn send_ring(&mut self, node: NodeId, from: u8, to: u8, incarnation: u64, bytes: Vec<u8>) {
        let delay = self.delay(self.config.ring_delay_ns);
        let last = self.ring_last.entry((node, from, to)).or_insert(0);
        let at = (self.now + delay).max(*last + 1);
        *last = at;
        self.queue.plan(at, Event::Ring { node, worker: to, incarnation, bytes });
    }
}

fn fold(hash: u64, more: u64) -> u64 {
    (hash.rotate_left(23) ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Host {
    fn is_impaired(&self) -> bool {
        self.paused || self.slowness > 1 || self.stalls.iter().any(|stall| stall.stuck || !stall.waiting.is_empty())
    }
    fn rejoins(&self) -> bool {
        self.workers.iter().any(Worker::rejoins)
    }
}

//! A cluster under a seed; see the crate documentation.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Block, FaultRule, Random, Request, Worker, WorkerConfig};
use apus_types::NodeId;

use crate::{
    Actor, ActorId, ActorOutput, Welcome,
    events::{End, Event, Queue},
};

/// Nodes of a simulated cluster and the shape of its network.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Data and management nodes with their numbers of workers.
    pub nodes: Vec<(NodeId, u8)>,
    /// Shortest and longest time on a link, ns.
    pub link_delay_ns: (u64, u64),
    /// Shortest and longest time between two workers of a node, ns.
    pub ring_delay_ns: (u64, u64),
    /// Link every pair of nodes from the start; otherwise nodes ask with `connect_to`, naming [`address`]es.
    pub link_all: bool,
}

impl SimConfig {
    pub fn new(nodes: &[(NodeId, u8)]) -> SimConfig {
        SimConfig {
            nodes: nodes.to_vec(),
            link_delay_ns: (20_000, 300_000),
            ring_delay_ns: (200, 20_000),
            link_all: true,
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

/// A dial that found nobody is repeated after this long.
const REDIAL_NS: u64 = 20_000_000;
/// Signals of a job buffer that a worker executes in one turn.
const TURN_BUDGET: usize = 256;
/// What one turn is taken to cost in virtual time.
const TURN_NS: u64 = 1_000;

type Build = Box<dyn FnMut(&WorkerConfig) -> Vec<Box<dyn Block>>>;

struct Host {
    workers: Vec<Worker>,
    /// Virtual time of the next planned turn of each worker.
    turns: Vec<u64>,
    incarnation: u64,
    /// Reason of its stop, once a block has asked for one.
    stopped: Option<String>,
}

struct Link {
    ends: [End; 2],
    /// What each end calls the other.
    names: [NodeId; 2],
    /// The process at each end (0: an actor): what the dead one was sent must not reach the one that comes after it.
    incarnations: [u64; 2],
    /// Last arrival planned at each end: later bytes do not overtake.
    last: [u64; 2],
    /// Bytes that arrived at each end and were not read yet: the beginning of a frame, or all that came while the worker would
    /// not read ([`Worker::may_read`]).
    unread: [Vec<u8>; 2],
    ended: [bool; 2],
    cut: bool,
    /// Bytes that would arrive later than this were lost with the machine that sent them.
    lost_after: u64,
}

pub struct Cluster {
    config: SimConfig,
    build: Build,
    now: u64,
    random: Random,
    seed: u64,
    starts: u64,
    queue: Queue,
    hosts: BTreeMap<NodeId, Host>,
    links: BTreeMap<u64, Link>,
    /// The link of an end to a name.
    by_end: BTreeMap<(End, NodeId), u64>,
    next_link: u64,
    next_client: BTreeMap<NodeId, u16>,
    /// Last arrival planned between two workers of a node: later bytes do not overtake.
    ring_last: BTreeMap<(NodeId, u8, u8), u64>,
    /// Pairs (dialler, dialled) that are linked again whenever they are not, with the incarnation that the address names.
    wanted: BTreeMap<(NodeId, NodeId), u64>,
    /// Dials in the queue.
    dialling: BTreeSet<(NodeId, NodeId, u8)>,
    /// Link ends at which a worker would not read.
    held: BTreeSet<(NodeId, u8, u64, usize)>,
    barred: Vec<(NodeId, NodeId)>,
    actors: Vec<Option<Box<dyn Actor>>>,
    /// Virtual time of the next planned wake-up of each actor.
    wakes: Vec<u64>,
    hash: u64,
    log: Vec<String>,
}

impl Cluster {
    /// Makes and starts all nodes. `build` makes the blocks of one worker.
    pub fn new(
        seed: u64,
        config: SimConfig,
        build: impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + 'static,
    ) -> Cluster {
        let mut cluster = Cluster {
            build: Box::new(build),
            now: 0,
            random: Random::new(seed),
            seed,
            starts: 0,
            queue: Queue::default(),
            hosts: BTreeMap::new(),
            links: BTreeMap::new(),
            by_end: BTreeMap::new(),
            next_link: 0,
            next_client: BTreeMap::new(),
            ring_last: BTreeMap::new(),
            wanted: BTreeMap::new(),
            dialling: BTreeSet::new(),
            held: BTreeSet::new(),
            barred: Vec::new(),
            actors: Vec::new(),
            wakes: Vec::new(),
            hash: seed,
            log: Vec::new(),
            config,
        };
        let nodes = cluster.config.nodes.clone();
        nodes.iter().for_each(|&(node, _)| cluster.start(node));
        if cluster.config.link_all {
            for &(a, _) in &nodes {
                nodes.iter().filter(|&&(b, _)| b < a).for_each(|&(b, _)| cluster.want(a, b, 0));
            }
        }
        cluster
    }

    pub fn now(&self) -> u64 {
        self.now
    }
    /// Covers every signal executed so far, with its time and place.
    pub fn hash(&self) -> u64 {
        let each = self.hosts.values().flat_map(|h| &h.workers).filter_map(Worker::hash);
        each.fold(self.hash, fold)
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
    pub fn worker(&self, node: NodeId, worker: u8) -> Option<&Worker> {
        self.hosts.get(&node).and_then(|host| host.workers.get(usize::from(worker)))
    }
    pub fn arm_fault(&mut self, node: NodeId, name: &str, rule: FaultRule) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        host.workers.iter_mut().for_each(|worker| worker.arm_fault(name, rule));
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

    /// Starts a node that is not running, as a new process.
    pub fn start(&mut self, node: NodeId) {
        let Some(&(_, instances)) = self.config.nodes.iter().find(|(n, _)| *n == node) else { return };
        if self.hosts.contains_key(&node) {
            return;
        }
        self.starts += 1;
        let incarnation = self.starts;
        let mut host = Host { workers: Vec::new(), turns: Vec::new(), incarnation, stopped: None };
        for worker in 0..instances {
            let seed = self.random.next_u64();
            let who = WorkerConfig { node, worker, instances, incarnation, seed };
            let mut made = Worker::new(who);
            made.hash_signals(self.seed);
            (self.build)(&who).into_iter().for_each(|block| made.add_block(block));
            host.workers.push(made);
            host.turns.push(self.now);
            self.queue.plan(self.now, Event::Turn { node, worker, incarnation });
        }
        self.hosts.insert(node, host);
        let wanted: Vec<_> = self.wanted.keys().copied().filter(|&(a, b)| a == node || b == node).collect();
        wanted.into_iter().for_each(|(a, b)| self.dial_all(a, b));
    }
    /// The process is gone at once with all it held; its peers learn it by their links, sometimes without the last bytes it sent.
    pub fn crash(&mut self, node: NodeId) {
        let Some(host) = self.hosts.remove(&node) else { return };
        self.hash = host.workers.iter().filter_map(Worker::hash).fold(self.hash, fold);
        if !self.config.link_all {
            self.wanted.retain(|&(dialler, _), _| dialler != node);
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
            self.cut(id);
        }
    }
    /// Cuts the links between two nodes and keeps them apart until [`Cluster::heal`].
    pub fn part(&mut self, a: NodeId, b: NodeId) {
        self.barred.push((a.min(b), a.max(b)));
        let between: Vec<u64> = self.links.iter().filter(|(_, l)| joins(l, a, b)).map(|(&id, _)| id).collect();
        between.into_iter().for_each(|id| self.cut(id));
    }
    pub fn heal(&mut self, a: NodeId, b: NodeId) {
        self.barred.retain(|&pair| pair != (a.min(b), a.max(b)));
    }

    fn links_where(&self, is_hit: impl Fn(&End) -> bool) -> Vec<u64> {
        self.links.iter().filter(|(_, l)| l.ends.iter().any(&is_hit)).map(|(&id, _)| id).collect()
    }
    /// Bytes on their way still arrive, each end then learns that there will be no more.
    fn cut(&mut self, id: u64) {
        for at_end in 0..2 {
            let soonest = self.now + self.delay(self.config.link_delay_ns);
            let Some(link) = self.links.get_mut(&id).filter(|link| !link.cut) else { return };
            let at = link.last[at_end].max(soonest) + 1;
            link.cut = at_end == 1;
            self.queue.plan(at, Event::LinkEnd { link: id, at_end });
        }
    }

    // ---- running

    /// Performs the next event. False: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match event {
            Event::LinkBytes { link, at_end, bytes } => self.on_link_bytes(link, at_end, &bytes),
            Event::LinkEnd { link, at_end } => self.on_link_end(link, at_end),
            Event::Ring { node, worker, incarnation, bytes } => {
                self.with_worker(node, worker, Some(incarnation), |w| w.receive_ring(&bytes));
            }
            Event::Turn { node, worker, incarnation } => self.on_turn(node, worker, incarnation),
            Event::Dial { from, to, worker } => self.on_dial(from, to, worker),
            Event::ActorDial { actor, node, incarnation } => self.on_actor_dial(actor, node, incarnation),
            Event::Wake { actor } => {
                // As with turns, only the newest plan counts.
                if self.wakes.get(actor) == Some(&self.now) {
                    self.wakes[actor] = u64::MAX;
                    self.with_actor(actor, |a, now, out| a.wake(now, out));
                }
            }
        }
        true
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

    fn delay(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.random.below(most.saturating_sub(least) + 1)
    }

    fn on_turn(&mut self, node: NodeId, worker: u8, incarnation: u64) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        // Only the newest plan counts: earlier ones for a later time stay in the queue and are ignored here.
        if host.incarnation == incarnation && host.turns.get(usize::from(worker)) == Some(&now) {
            host.turns[usize::from(worker)] = u64::MAX;
            self.with_worker(node, worker, Some(incarnation), |_| ());
        }
    }

    /// One round of a worker: time, what came, its jobs, and what leaves.
    fn with_worker(&mut self, node: NodeId, worker: u8, incarnation: Option<u64>, work: impl FnOnce(&mut Worker)) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        if host.stopped.is_some() || incarnation.is_some_and(|i| i != host.incarnation) {
            return;
        }
        let Some(w) = host.workers.get_mut(usize::from(worker)) else { return };
        w.set_time(now, (now / 1000) as i64);
        work(w);
        w.run(TURN_BUDGET);
        w.settle();
        self.carry_away(node, worker);
        self.plan_turn(node, worker);
        self.read_held(node, worker);
    }

    /// Plans the reading of links that the worker would not read before and would now.
    fn read_held(&mut self, node: NodeId, worker: u8) {
        let range = (node, worker, 0, 0)..=(node, worker, u64::MAX, usize::MAX);
        let held: Vec<_> = self.held.range(range).copied().collect();
        for at in held {
            let Some(name) = self.links.get(&at.2).map(|link| link.names[at.3]) else { continue };
            if self.worker(node, worker).is_some_and(|w| w.may_read(name)) {
                self.held.remove(&at);
                self.queue.plan(self.now + 1, Event::LinkBytes { link: at.2, at_end: at.3, bytes: Vec::new() });
            }
        }
    }

    fn plan_turn(&mut self, node: NodeId, worker: u8) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let index = usize::from(worker);
        let w = &host.workers[index];
        let at = if w.has_work() { self.now + TURN_NS } else { w.next_deadline().max(self.now + 1) };
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
            let bytes = w.output(to).to_vec();
            w.sent(to, bytes.len());
            outputs.push((to, bytes));
        }
        let (requests, lines) = (w.take_requests(), w.take_log());
        let stop = w.stop_reason().map(str::to_owned);
        self.log.extend(lines.into_iter().map(|line| format!("{} {line}", self.now)));
        for (to, bytes) in rings {
            self.send_ring(node, worker, to, incarnation, bytes);
        }
        for (to, bytes) in outputs {
            self.send_link(End::Worker { node, worker }, to, bytes);
        }
        for request in requests {
            match request {
                Request::Connect { node: to, address } => match parse_address(&address) {
                    Some((named, incarnation)) if named == to => self.want(node, to, incarnation),
                    _ => self.log.push(format!("{} node {node} dials {address}: nobody there", self.now)),
                },
                Request::Close { node: to } => self.close(End::Worker { node, worker }, to),
            }
        }
        if let Some(reason) = stop {
            self.log.push(format!("{} node {node} stopped: {reason}", self.now));
            if let Some(host) = self.hosts.get_mut(&node) {
                host.stopped = Some(reason);
            }
            for id in self.links_where(|end| matches!(end, End::Worker { node: n, .. } if *n == node)) {
                self.cut(id);
            }
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

    // ---- links

    fn want(&mut self, a: NodeId, b: NodeId, incarnation: u64) {
        if a != b {
            self.wanted.insert((a, b), incarnation);
            self.dial_all(a, b);
        }
    }
    fn dial_all(&mut self, a: NodeId, b: NodeId) {
        let workers = |node| self.config.nodes.iter().find(|(n, _)| *n == node).map_or(0, |&(_, workers)| workers);
        let links = if a.is_data() && b.is_data() { workers(a).min(workers(b)) } else { 1 };
        for worker in 0..links {
            let delay = self.delay(self.config.link_delay_ns);
            self.plan_dial(delay, a, b, worker);
        }
    }
    fn plan_dial(&mut self, delay: u64, from: NodeId, to: NodeId, worker: u8) {
        if self.dialling.insert((from, to, worker)) {
            self.queue.plan(self.now + delay, Event::Dial { from, to, worker });
        }
    }
    fn on_dial(&mut self, from: NodeId, to: NodeId, worker: u8) {
        self.dialling.remove(&(from, to, worker));
        let (a, b) = (End::Worker { node: from, worker }, End::Worker { node: to, worker });
        let is_linked = self.by_end.contains_key(&(a, to)) || self.by_end.contains_key(&(b, from));
        let Some(&wanted) = self.wanted.get(&(from, to)) else { return };
        if !self.is_running(from) || is_linked {
            return;
        }
        let there = self.incarnation(to);
        let is_barred = self.barred.contains(&(from.min(to), from.max(to)));
        if there == 0 || is_barred || (wanted != 0 && wanted != there) {
            self.plan_dial(REDIAL_NS, from, to, worker);
            return;
        }
        let here = self.incarnation(from);
        self.open([a, b], [to, from], [here, there]);
        self.with_worker(from, worker, Some(here), |w| w.link_up(to, there));
        self.with_worker(to, worker, Some(there), |w| w.link_up(from, here));
    }
    fn open(&mut self, ends: [End; 2], names: [NodeId; 2], incarnations: [u64; 2]) {
        self.next_link += 1;
        let id = self.next_link;
        self.by_end.insert((ends[0], names[0]), id);
        self.by_end.insert((ends[1], names[1]), id);
        let link = Link {
            ends,
            names,
            incarnations,
            last: [self.now; 2],
            unread: Default::default(),
            ended: [false; 2],
            cut: false,
            lost_after: u64::MAX,
        };
        self.links.insert(id, link);
    }
    fn close(&mut self, end: End, name: NodeId) {
        if let Some(&id) = self.by_end.get(&(end, name)) {
            self.cut(id);
        }
    }
    fn send_link(&mut self, from: End, name: NodeId, bytes: Vec<u8>) {
        let Some(&id) = self.by_end.get(&(from, name)) else { return };
        let delay = self.delay(self.config.link_delay_ns);
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.cut || bytes.is_empty() {
            return;
        }
        let at_end = usize::from(link.ends[0] == from);
        let at = (self.now + delay).max(link.last[at_end] + 1);
        link.last[at_end] = at;
        self.queue.plan(at, Event::LinkBytes { link: id, at_end, bytes });
    }
    fn on_link_bytes(&mut self, id: u64, at_end: usize, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (end, name, incarnation) = (link.ends[at_end], link.names[at_end], link.incarnations[at_end]);
        if self.now > link.lost_after {
            return;
        }
        link.unread[at_end].extend_from_slice(bytes);
        match end {
            End::Actor(actor) => {
                let all = std::mem::take(&mut link.unread[at_end]);
                self.with_actor(actor, |a, now, out| a.receive(now, name, &all, out));
            }
            End::Worker { node, worker } => {
                if self.worker(node, worker).is_some_and(|w| !w.may_read(name)) {
                    self.held.insert((node, worker, id, at_end));
                } else {
                    self.read_link(id, at_end, incarnation);
                }
            }
        }
    }
    /// Gives a worker what came over a link, if it is still the process that the link was made to.
    fn read_link(&mut self, id: u64, at_end: usize, incarnation: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let End::Worker { node, worker } = link.ends[at_end] else { return };
        let name = link.names[at_end];
        let mut all = std::mem::take(&mut link.unread[at_end]);
        let mut result = Ok(all.len());
        self.with_worker(node, worker, Some(incarnation), |w| result = w.deliver_frames(name, &all));
        match result {
            Ok(consumed) => {
                all.drain(..consumed);
                if let Some(link) = self.links.get_mut(&id) {
                    link.unread[at_end] = all;
                }
            }
            Err(_) => self.cut(id),
        }
    }
    fn on_link_end(&mut self, id: u64, at_end: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (end, name, incarnation) = (link.ends[at_end], link.names[at_end], link.incarnations[at_end]);
        let other = link.ends[1 - at_end];
        if let End::Worker { node, worker } = end {
            self.held.remove(&(node, worker, id, at_end));
            self.read_link(id, at_end, incarnation);
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.ended[at_end] = true;
            if link.ended == [true; 2] {
                self.links.remove(&id);
            }
        }
        if self.by_end.get(&(end, name)) == Some(&id) {
            self.by_end.remove(&(end, name));
        }
        match end {
            End::Actor(actor) => self.with_actor(actor, |a, now, out| a.link_down(now, name, out)),
            End::Worker { node, worker } => {
                self.with_worker(node, worker, Some(incarnation), |w| w.link_down(name));
                if let End::Worker { node: peer, .. } = other {
                    for (from, to) in [(node, peer), (peer, node)] {
                        if self.wanted.contains_key(&(from, to)) {
                            self.plan_dial(REDIAL_NS, from, to, worker);
                        }
                    }
                }
            }
        }
    }

    // ---- actors

    /// Attaches an actor and wakes it.
    pub fn attach(&mut self, actor: Box<dyn Actor>) -> ActorId {
        self.actors.push(Some(actor));
        self.wakes.push(self.now);
        let actor = self.actors.len() - 1;
        self.queue.plan(self.now, Event::Wake { actor });
        actor
    }
    fn with_actor(&mut self, id: ActorId, act: impl FnOnce(&mut dyn Actor, u64, &mut ActorOutput)) {
        let Some(mut actor) = self.actors.get_mut(id).and_then(Option::take) else { return };
        let mut out = ActorOutput::default();
        act(actor.as_mut(), self.now, &mut out);
        self.actors[id] = Some(actor);
        if let Some(at) = out.wake_at {
            let at = at.max(self.now + 1);
            if at < self.wakes[id] {
                self.wakes[id] = at;
                self.queue.plan(at, Event::Wake { actor: id });
            }
        }
        for node in out.disconnect {
            self.close(End::Actor(id), node);
        }
        for (node, bytes) in out.bytes {
            self.send_link(End::Actor(id), node, bytes);
        }
        for (node, incarnation) in out.connect {
            let at = self.now + self.delay(self.config.link_delay_ns);
            self.queue.plan(at, Event::ActorDial { actor: id, node, incarnation });
        }
    }
    fn on_actor_dial(&mut self, id: ActorId, node: NodeId, wanted: u64) {
        let end = End::Actor(id);
        let incarnation = self.incarnation(node);
        let is_linked = self.by_end.contains_key(&(end, node));
        if is_linked || incarnation == 0 || (wanted != 0 && wanted != incarnation) {
            self.with_actor(id, |a, now, out| a.link_down(now, node, out));
            return;
        }
        let workers = self.hosts.get(&node).map_or(&[][..], |host| &host.workers);
        let instances = workers.len() as u8;
        let cluster = workers.iter().map(Worker::cluster).max().unwrap_or(0);
        let slot = self.next_client.entry(node).or_insert(0);
        let own = NodeId(NodeId::CLIENT_BASE + *slot);
        *slot = (*slot + 1) % NodeId::CLIENT_BASE;
        let worker = ((own.0 - NodeId::CLIENT_BASE) % u16::from(instances)) as u8;
        self.open([end, End::Worker { node, worker }], [node, own], [0, incarnation]);
        self.with_worker(node, worker, Some(incarnation), |w| w.link_up(own, 0));
        let welcome = Welcome { own, instances, incarnation, cluster };
        self.with_actor(id, |a, now, out| a.link_up(now, node, welcome, out));
    }
}

fn fold(hash: u64, more: u64) -> u64 {
    (hash.rotate_left(23) ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn joins(link: &Link, a: NodeId, b: NodeId) -> bool {
    let node = |end: End| if let End::Worker { node, .. } = end { Some(node) } else { None };
    let pair = (node(link.ends[0]), node(link.ends[1]));
    pair == (Some(a), Some(b)) || pair == (Some(b), Some(a))
}

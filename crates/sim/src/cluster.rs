//! A cluster under a seed; see the crate documentation.

use std::collections::BTreeMap;

use apus_kernel::{Block, FaultRule, Random, Request, Worker, WorkerConfig};
use apus_types::NodeId;

use crate::{
    Actor, ActorId, ActorOutput,
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
    /// Link every pair of nodes from the start; otherwise nodes ask with `connect_to`.
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
    /// Last arrival planned at each end: later bytes do not overtake.
    last: [u64; 2],
    /// Bytes that arrived at each end as the beginning of a frame.
    partial: [Vec<u8>; 2],
    cut: bool,
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
    /// Pairs (dialler, dialled) that are linked again whenever they are not.
    wanted: Vec<(NodeId, NodeId)>,
    barred: Vec<(NodeId, NodeId)>,
    actors: Vec<Option<Box<dyn Actor>>>,
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
            wanted: Vec::new(),
            barred: Vec::new(),
            actors: Vec::new(),
            hash: seed,
            log: Vec::new(),
            config,
        };
        let nodes = cluster.config.nodes.clone();
        nodes.iter().for_each(|&(node, _)| cluster.start(node));
        if cluster.config.link_all {
            for &(a, _) in &nodes {
                nodes.iter().filter(|&&(b, _)| b < a).for_each(|&(b, _)| cluster.want(a, b));
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
        for (a, b) in self.wanted.clone() {
            if a == node || b == node {
                self.dial_all(a, b);
            }
        }
    }
    /// The process is gone at once with all it held; its peers learn it by their links.
    pub fn crash(&mut self, node: NodeId) {
        let Some(host) = self.hosts.remove(&node) else { return };
        self.hash = host.workers.iter().filter_map(Worker::hash).fold(self.hash, fold);
        self.cut_where(|end| matches!(end, End::Worker { node: n, .. } if *n == node));
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

    fn cut_where(&mut self, is_hit: impl Fn(&End) -> bool) {
        let hit: Vec<u64> = self.links.iter().filter(|(_, l)| l.ends.iter().any(&is_hit)).map(|(&id, _)| id).collect();
        hit.into_iter().for_each(|id| self.cut(id));
    }
    /// Bytes on their way still arrive, each end then learns that there will be no more.
    fn cut(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if std::mem::replace(&mut link.cut, true) {
            return;
        }
        for at_end in 0..2 {
            let at = link.last[at_end].max(self.now) + 1;
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
            Event::Wake { actor } => self.with_actor(actor, |a, now, out| a.wake(now, out)),
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
                Request::Connect { node: to, .. } => self.want(node, to),
                Request::Close { node: to } => self.close(End::Worker { node, worker }, to),
            }
        }
        if let Some(reason) = stop {
            self.log.push(format!("{} node {node} stopped: {reason}", self.now));
            if let Some(host) = self.hosts.get_mut(&node) {
                host.stopped = Some(reason);
            }
            self.cut_where(|end| matches!(end, End::Worker { node: n, .. } if *n == node));
        }
    }

    /// Rings keep their order like links: the pair's last arrival is kept as a pseudo-link of the sender.
    fn send_ring(&mut self, node: NodeId, from: u8, to: u8, incarnation: u64, bytes: Vec<u8>) {
        let delay = self.delay(self.config.ring_delay_ns);
        let key = (End::Worker { node, worker: from }, NodeId(u16::MAX - u16::from(to)));
        let last = self.by_end.get(&key).copied().unwrap_or(0);
        let at = (self.now + delay).max(last + 1);
        self.by_end.insert(key, at);
        self.queue.plan(at, Event::Ring { node, worker: to, incarnation, bytes });
    }

    // ---- links

    fn want(&mut self, a: NodeId, b: NodeId) {
        // As in the runtime: of two data nodes the higher dials.
        if a == b || self.wanted.contains(&(a, b)) || self.wanted.contains(&(b, a)) {
            return;
        }
        self.wanted.push((a, b));
        self.dial_all(a, b);
    }
    fn dial_all(&mut self, a: NodeId, b: NodeId) {
        let workers = |node| self.config.nodes.iter().find(|(n, _)| *n == node).map_or(0, |&(_, workers)| workers);
        let links = if a.is_data() && b.is_data() { workers(a).min(workers(b)) } else { 1 };
        for worker in 0..links {
            let delay = self.delay(self.config.link_delay_ns);
            self.queue.plan(self.now + delay, Event::Dial { from: a, to: b, worker });
        }
    }
    fn on_dial(&mut self, from: NodeId, to: NodeId, worker: u8) {
        let (a, b) = (End::Worker { node: from, worker }, End::Worker { node: to, worker });
        let is_linked = self.by_end.contains_key(&(a, to)) || self.by_end.contains_key(&(b, from));
        if !self.is_running(from) || is_linked {
            return;
        }
        if !self.is_running(to) || self.barred.contains(&(from.min(to), from.max(to))) {
            self.queue.plan(self.now + REDIAL_NS, Event::Dial { from, to, worker });
            return;
        }
        self.open([a, b], [to, from]);
        let incarnation = |node: NodeId| self.hosts.get(&node).map_or(0, |host| host.incarnation);
        let (of_from, of_to) = (incarnation(from), incarnation(to));
        self.with_worker(from, worker, None, |w| w.link_up(to, of_to));
        self.with_worker(to, worker, None, |w| w.link_up(from, of_from));
    }
    fn open(&mut self, ends: [End; 2], names: [NodeId; 2]) {
        self.next_link += 1;
        let id = self.next_link;
        self.by_end.insert((ends[0], names[0]), id);
        self.by_end.insert((ends[1], names[1]), id);
        let partial = [Vec::new(), Vec::new()];
        self.links.insert(id, Link { ends, names, last: [self.now; 2], partial, cut: false });
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
        let (end, name) = (link.ends[at_end], link.names[at_end]);
        let mut all = std::mem::take(&mut link.partial[at_end]);
        all.extend_from_slice(bytes);
        match end {
            End::Actor(actor) => self.with_actor(actor, |a, now, out| a.receive(now, name, &all, out)),
            End::Worker { node, worker } => {
                let mut result = Ok(all.len());
                self.with_worker(node, worker, None, |w| result = w.deliver_frames(name, &all));
                match result {
                    Ok(consumed) => {
                        all.drain(..consumed);
                        if let Some(link) = self.links.get_mut(&id) {
                            link.partial[at_end] = all;
                        }
                    }
                    Err(_) => self.cut(id),
                }
            }
        }
    }
    fn on_link_end(&mut self, id: u64, at_end: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (end, name) = (link.ends[at_end], link.names[at_end]);
        let other = link.ends[1 - at_end];
        self.by_end.remove(&(end, name));
        let both_know = !self.by_end.values().any(|&l| l == id);
        if both_know {
            self.links.remove(&id);
        }
        match end {
            End::Actor(actor) => self.with_actor(actor, |a, now, out| a.link_down(now, name, out)),
            End::Worker { node, worker } => {
                self.with_worker(node, worker, None, |w| w.link_down(name));
                if let End::Worker { node: peer, .. } = other
                    && let Some(&(from, to)) =
                        self.wanted.iter().find(|&&pair| pair == (node, peer) || pair == (peer, node))
                {
                    self.queue.plan(self.now + REDIAL_NS, Event::Dial { from, to, worker });
                }
            }
        }
    }

    // ---- actors

    /// Attaches an actor and wakes it.
    pub fn attach(&mut self, actor: Box<dyn Actor>) -> ActorId {
        self.actors.push(Some(actor));
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
            self.queue.plan(at.max(self.now + 1), Event::Wake { actor: id });
        }
        for node in out.disconnect {
            self.close(End::Actor(id), node);
        }
        for (node, bytes) in out.bytes {
            self.send_link(End::Actor(id), node, bytes);
        }
        for node in out.connect {
            self.connect_actor(id, node);
        }
    }
    fn connect_actor(&mut self, id: ActorId, node: NodeId) {
        let end = End::Actor(id);
        if self.by_end.contains_key(&(end, node)) {
            return;
        }
        if !self.is_running(node) {
            self.with_actor(id, |a, now, out| a.link_down(now, node, out));
            return;
        }
        let instances = self.hosts.get(&node).map_or(1, |host| host.workers.len() as u16);
        let slot = self.next_client.entry(node).or_insert(0);
        let own = NodeId(NodeId::CLIENT_BASE + *slot);
        *slot = (*slot + 1) % NodeId::CLIENT_BASE;
        let worker = ((own.0 - NodeId::CLIENT_BASE) % instances) as u8;
        self.open([end, End::Worker { node, worker }], [node, own]);
        self.with_worker(node, worker, None, |w| w.link_up(own, 0));
        self.with_actor(id, |a, now, out| a.link_up(now, node, own, instances as u8, out));
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

//! The part of a worker that blocks reach through their [`crate::Context`]: routing, buffers, time, randomness, traces.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use apus_signal::{BlockId, BlockRef, Envelope, Kind, codec::Put};
use apus_types::{Epoch, NodeId};

use crate::{
    counters::Counters,
    disk::{DataFile, Disk, DiskOp},
    fault::Faults,
    limits::{CLIENTS_MAX, EPOCH_LEAP_MAX, INSTANCES_MAX, LOG_LINES_MAX},
    links::{Gate, Links, is_data_plane},
    random::Random,
    session::Wire,
    timers::Timers,
    trace::{JamRing, SignalRing},
};

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    pub node: NodeId,
    /// Index of this worker: below `instances` a data worker, equal to it the control worker.
    pub worker: u8,
    /// Data workers of the node.
    pub instances: u8,
    /// The node has a control worker as well. Where it has none (management nodes, tests), worker 0 is in its place.
    pub control: bool,
    /// Distinguishes this start of the process from earlier ones.
    pub incarnation: u64,
    /// Of [`crate::Context::random`].
    pub seed: u64,
}

impl WorkerConfig {
    /// All workers of the node.
    #[inline]
    pub fn places(&self) -> u8 {
        self.instances + u8::from(self.control)
    }
    /// Index of the worker that runs control blocks and has the links to management nodes.
    #[inline]
    pub fn control_place(&self) -> u8 {
        if self.control { self.instances } else { 0 }
    }
    /// Index of the worker that runs blocks of this instance; may be one that the node does not have.
    #[inline]
    pub fn place(&self, instance: u8) -> u8 {
        if instance == BlockRef::CONTROL { self.control_place() } else { instance }
    }
    pub fn is_control(&self) -> bool {
        self.worker == self.instances
    }
    /// Instance number of this worker's blocks.
    #[inline]
    pub fn instance(&self) -> u8 {
        if self.is_control() { BlockRef::CONTROL } else { self.worker }
    }
    fn instance_at(&self, place: u8) -> u8 {
        if place == self.instances { BlockRef::CONTROL } else { place }
    }
}

/// Until when clients of a node are read from, in monotonic nanoseconds: one cell for all its workers. Whoever shortens it need not wait
/// until a worker in the midst of a long turn has heard of it: the worker looks here after it has a request's bytes.
#[derive(Debug)]
pub struct Lease {
    until: AtomicU64,
    /// Until further notice clients are answered that nothing is done for them.
    refuses: AtomicBool,
}

impl Default for Lease {
    /// Nobody has said anything: the blocks refuse.
    fn default() -> Lease {
        Lease { until: AtomicU64::new(u64::MAX), refuses: AtomicBool::new(false) }
    }
}

impl Lease {
    #[inline]
    pub fn until(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }
    fn set(&self, time_ns: u64) {
        self.until.store(time_ns, Ordering::SeqCst);
    }
}

/// What a worker asks of its executor, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Keep a link to this node, over every worker, redialled until it stands.
    Connect { node: NodeId, address: String },
    /// Close this worker's link to the node.
    Close { node: NodeId },
    /// See [`crate::Context::write_file`]; answered by [`crate::Worker::file_done`] in the order of asking.
    Write { file: Cow<'static, str>, bytes: Vec<u8>, synced: bool, token: u64, asker: BlockRef },
    /// See [`crate::Context::disk`]; answered by [`crate::Worker::disk_done`], per file in the order of asking.
    Disk { file: DataFile, op: DiskOp, token: u64, asker: BlockRef },
}

/// What blocks say that their work may cost at worst, in nanoseconds ([`Context::spend`](crate::Context::spend)): until it was taken, and the most that
/// one signal took, with the kind of that.
#[derive(Default)]
pub struct Spent {
    pub sum: u64,
    pub signal: u64,
    pub most: Option<(u64, Kind)>,
}

pub(crate) struct Core {
    pub config: WorkerConfig,
    pub now: u64,
    pub unix_micros: i64,
    pub epoch: Epoch,
    pub lease: Arc<Lease>,
    /// Signals to blocks of this worker, in the order of sending.
    pub jobs: Vec<u8>,
    /// Signals to each other worker.
    pub rings: Vec<Vec<u8>>,
    /// Bytes of the frames that [`crate::Worker::run`] is in the midst of.
    pub running_bytes: usize,
    /// Bytes that blocks have set aside.
    pub deferred_bytes: usize,
    /// A block has no memory for what the buffers hold.
    pub is_short_of_memory: bool,
    /// ... or for what links could not send.
    pub is_short_of_send_memory: bool,
    /// Nanoseconds in which the worker had nothing to do.
    pub idle_ns: u64,
    pub links: Links,
    pub timers: Timers,
    pub random: Random,
    pub faults: Faults,
    pub jam: JamRing,
    pub signals: SignalRing,
    pub counters: Counters,
    pub requests: Vec<Request>,
    pub disk: Disk,
    pub log: Vec<String>,
    /// A block executes the newest signal of the trace.
    pub executing: bool,
    /// Only for the simulator.
    pub spent: Spent,
    pub stop: Option<String>,
    pub rejoins: bool,
    /// The worker for which the node stops.
    pub stuck: Option<u8>,
}

impl Core {
    pub fn new(config: WorkerConfig, lease: Arc<Lease>) -> Core {
        assert!((1..=INSTANCES_MAX).contains(&config.instances) && config.worker < config.places(), "{config:?}");
        Core {
            config,
            now: 0,
            unix_micros: 0,
            epoch: Epoch(0),
            lease,
            jobs: Vec::new(),
            rings: vec![Vec::new(); usize::from(config.places())],
            running_bytes: 0,
            deferred_bytes: 0,
            is_short_of_memory: false,
            is_short_of_send_memory: false,
            idle_ns: 0,
            links: Links::new(config.node, config.instances),
            timers: Timers::default(),
            random: Random::new(config.seed),
            faults: Faults::default(),
            jam: JamRing::new(),
            signals: SignalRing::default(),
            counters: Counters::default(),
            requests: Vec::new(),
            disk: Disk::default(),
            log: Vec::new(),
            executing: false,
            spent: Spent::default(),
            stop: None,
            rejoins: false,
            stuck: None,
        }
    }

    /// The executor's own address on this worker.
    pub fn link_ref(&self) -> BlockRef {
        BlockRef::new(self.config.node, BlockId::Link, self.config.instance())
    }

    #[inline]
    pub fn send(&mut self, from: BlockRef, to: BlockRef, kind: Kind, trace: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let envelope = Envelope { kind, to, from, epoch: self.epoch, trace, generation: self.links.generation() };
        if let Some(out) = self.target(to, kind) {
            envelope.encode(out, write);
        }
    }

    /// The buffer by which a signal leaves; `None` when it is dropped (and counted).
    #[inline]
    pub fn target(&mut self, to: BlockRef, kind: Kind) -> Option<&mut Vec<u8>> {
        if to.node == self.config.node {
            let place = self.config.place(to.instance);
            if place == self.config.worker {
                return Some(&mut self.jobs);
            }
            // What the control worker tells the data workers goes by way of worker 0, whose blocks act on it too: so it stands in one
            // order with what those tell the others.
            let is_relayed = self.config.is_control() && place < self.config.instances;
            return self.ring(if is_relayed { 0 } else { usize::from(place) });
        }
        self.remote(to.node, kind)
    }

    fn ring(&mut self, worker: usize) -> Option<&mut Vec<u8>> {
        if worker >= self.rings.len() {
            self.counters.dropped_no_block += 1;
            return None;
        }
        self.counters.sent_ring += 1;
        self.rings.get_mut(worker)
    }

    /// A client's link of this worker: to this node, or, where that is 0, of the client with this id. Looks at all of them.
    pub fn client_link(&self, node: NodeId, id: u64) -> Option<NodeId> {
        let (own, all) = (usize::from(self.config.worker), usize::from(self.config.instances));
        let nodes =
            (own..CLIENTS_MAX).step_by(all).filter(|_| own < all).map(|n| NodeId(NodeId::CLIENT_BASE + n as u16));
        let is_it = |n: &NodeId| {
            let link = self.links.get(*n).filter(|link| link.up);
            link.is_some_and(|link| *n == node || (node.0 == 0 && id != 0 && link.incarnation == id))
        };
        nodes.into_iter().find(is_it)
    }
    /// The worker that owns our link to `node`.
    pub fn link_owner(&self, node: NodeId) -> usize {
        if node.is_client() {
            usize::from(node.0 - NodeId::CLIENT_BASE) % usize::from(self.config.instances)
        } else if node.is_data() {
            usize::from(self.config.worker)
        } else {
            usize::from(self.config.control_place())
        }
    }

    fn remote(&mut self, node: NodeId, kind: Kind) -> Option<&mut Vec<u8>> {
        let owner = self.link_owner(node);
        if owner != usize::from(self.config.worker) {
            return self.ring(owner);
        }
        if node.is_data() && is_data_plane(kind) && !self.links.is_allowed_link(node) {
            self.counters.dropped_not_member += 1;
            return None;
        }
        let link = self.links.get_mut(node);
        let Some(unsent) = link.filter(|link| link.up).map(|link| link.unsent()) else {
            self.counters.dropped_no_link += 1;
            return None;
        };
        if unsent > Links::unsent_max(node) {
            self.overflow(node, unsent);
            return None;
        }
        self.counters.sent_link += 1;
        self.links.writer(node)
    }

    #[cold]
    fn overflow(&mut self, node: NodeId, unsent: usize) {
        self.counters.overflows += 1;
        self.log(format_args!("link to node {node} is cut: {unsent} bytes unread"));
        self.cut(node);
    }

    /// Takes a link that this worker owns out of service and has the executor close it.
    fn cut(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(node).filter(|link| link.up) else { return };
        link.up = false;
        self.requests.push(Request::Close { node });
        // Where it waits for a connection there is nothing that the executor could close.
        if link.session.is_known && link.session.wire == Wire::None {
            let incarnation = link.incarnation;
            link.close();
            self.links.recount(node);
            self.report_link(Kind::LinkDownRep, node, incarnation);
        }
    }

    /// Closes the link to `node` wherever it is owned. `everywhere`: the links of all workers.
    pub fn close_link(&mut self, node: NodeId, everywhere: bool) {
        let owner = self.link_owner(node);
        for worker in 0..usize::from(self.config.places()) {
            if worker == usize::from(self.config.worker) {
                if worker == owner || node.is_data() {
                    self.cut(node);
                }
            } else if (everywhere && node.is_data()) || (worker == owner && !node.is_data()) {
                self.tell_worker(worker, Kind::StopOrd, node, 0);
            }
        }
    }

    pub fn accept_from(&mut self, node: NodeId, gate: Gate) {
        self.links.set_gate(node, gate);
        let kind = if gate.allowed { Kind::LinkUpRep } else { Kind::LinkDownRep };
        // Our own worker too: an older view that still waits in the job buffer would undo what was set just now.
        for worker in 0..usize::from(self.config.places()) {
            self.tell_worker(worker, kind, node, gate.incarnation);
        }
    }

    /// At once, on all workers.
    pub fn serve_clients_until(&mut self, time_ns: u64) {
        self.lease.set(time_ns);
    }
    pub fn refuse_clients(&mut self, is_on: bool) {
        self.lease.refuses.store(is_on, Ordering::SeqCst);
    }

    /// Orders between the workers of a node, addressed to [`BlockId::Link`]: `LinkUpRep` opens a gate, `LinkDownRep` shuts it,
    /// `StopOrd` closes a link.
    fn tell_worker(&mut self, worker: usize, kind: Kind, node: NodeId, incarnation: u64) {
        let from = self.link_ref();
        let instance = self.config.instance_at(worker as u8);
        self.send(from, BlockRef { instance, ..from }, kind, 0, |b| {
            b.put_u16(node.0);
            b.put_u64(incarnation);
        });
    }

    /// Executes what another worker told us.
    pub fn told(&mut self, kind: Kind, node: NodeId, incarnation: u64) {
        match kind {
            Kind::LinkUpRep => self.links.set_gate(node, Gate { allowed: true, incarnation }),
            Kind::LinkDownRep => self.links.set_gate(node, Gate { allowed: false, incarnation }),
            Kind::StopOrd => self.cut(node),
            _ => self.counters.violations += 1,
        }
    }

    /// Adopts a higher epoch from a member; an absurd leap is a forgery or a bug and is not followed.
    #[inline]
    pub fn see_epoch(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            if epoch.0 - self.epoch.0 <= EPOCH_LEAP_MAX || self.epoch.0 == 0 {
                self.epoch = epoch;
            } else {
                self.counters.violations += 1;
            }
        }
    }

    pub fn log(&mut self, line: std::fmt::Arguments<'_>) {
        if self.log.len() < LOG_LINES_MAX {
            self.log.push(line.to_string());
        } else {
            self.counters.log_lines_lost += 1;
        }
    }
}

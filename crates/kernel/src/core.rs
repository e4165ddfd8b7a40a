//! The part of a worker that blocks reach through their [`crate::Context`]: routing, buffers, time, randomness, traces.

use apus_signal::{BlockId, BlockRef, Envelope, Kind, codec::Put};
use apus_types::{Epoch, NodeId};

use crate::{
    counters::Counters,
    fault::Faults,
    limits::{EPOCH_LEAP_MAX, INSTANCES_MAX, LOG_LINES_MAX},
    links::{Gate, Links, is_data_plane},
    random::Random,
    timers::Timers,
    trace::{JamRing, SignalRing},
};

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    pub node: NodeId,
    /// Index of this worker; the instance number of its blocks.
    pub worker: u8,
    /// Workers of the node.
    pub instances: u8,
    /// Distinguishes this start of the process from earlier ones.
    pub incarnation: u64,
    /// Of [`crate::Context::random`].
    pub seed: u64,
}

/// What a worker asks of its executor, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Keep a link to this node, over every worker, redialled until it stands.
    Connect { node: NodeId, address: String },
    /// Close this worker's link to the node.
    Close { node: NodeId },
}

pub(crate) struct Core {
    pub config: WorkerConfig,
    pub now: u64,
    pub unix_micros: i64,
    pub epoch: Epoch,
    /// Clients are read from until then.
    pub serve_until: u64,
    /// Signals to blocks of this worker, in the order of sending.
    pub jobs: Vec<u8>,
    /// Signals to each other worker.
    pub rings: Vec<Vec<u8>>,
    pub links: Links,
    pub timers: Timers,
    pub random: Random,
    pub faults: Faults,
    pub jam: JamRing,
    pub signals: SignalRing,
    pub counters: Counters,
    pub requests: Vec<Request>,
    pub log: Vec<String>,
    pub stop: Option<String>,
    pub rejoins: bool,
}

impl Core {
    pub fn new(config: WorkerConfig) -> Core {
        assert!((1..=INSTANCES_MAX).contains(&config.instances) && config.worker < config.instances, "{config:?}");
        Core {
            config,
            now: 0,
            unix_micros: 0,
            epoch: Epoch(0),
            serve_until: u64::MAX,
            jobs: Vec::new(),
            rings: vec![Vec::new(); usize::from(config.instances)],
            links: Links::new(config.node, config.instances),
            timers: Timers::default(),
            random: Random::new(config.seed),
            faults: Faults::default(),
            jam: JamRing::new(),
            signals: SignalRing::default(),
            counters: Counters::default(),
            requests: Vec::new(),
            log: Vec::new(),
            stop: None,
            rejoins: false,
        }
    }

    /// The executor's own address on this worker.
    pub fn link_ref(&self) -> BlockRef {
        BlockRef::new(self.config.node, BlockId::Link, self.config.worker)
    }

    #[inline]
    pub fn send(&mut self, from: BlockRef, to: BlockRef, kind: Kind, trace: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let envelope = Envelope { kind, to, from, epoch: self.epoch, trace };
        if let Some(out) = self.target(to, kind) {
            envelope.encode(out, write);
        }
    }

    /// The buffer by which a signal leaves; `None` when it is dropped (and counted).
    #[inline]
    pub fn target(&mut self, to: BlockRef, kind: Kind) -> Option<&mut Vec<u8>> {
        if to.node == self.config.node {
            if to.instance == self.config.worker {
                return Some(&mut self.jobs);
            }
            return self.ring(usize::from(to.instance));
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

    /// The worker that owns our link to `node`.
    pub fn link_owner(&self, node: NodeId) -> usize {
        if node.is_client() {
            usize::from(node.0 - NodeId::CLIENT_BASE) % usize::from(self.config.instances)
        } else if node.is_data() {
            usize::from(self.config.worker)
        } else {
            0
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
        if let Some(link) = self.links.get_mut(node)
            && link.up
        {
            link.up = false;
            self.requests.push(Request::Close { node });
        }
    }

    /// Closes the link to `node` wherever it is owned. `everywhere`: the links of all workers.
    pub fn close_link(&mut self, node: NodeId, everywhere: bool) {
        let owner = self.link_owner(node);
        for worker in 0..usize::from(self.config.instances) {
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
        for worker in 0..usize::from(self.config.instances) {
            self.tell_worker(worker, kind, node, gate.incarnation);
        }
    }

    /// Before anything that is asked for afterwards, on the other workers too: their orders come in this order.
    pub fn serve_clients_until(&mut self, time_ns: u64) {
        self.serve_until = time_ns;
        let own = usize::from(self.config.worker);
        for worker in (0..usize::from(self.config.instances)).filter(|w| *w != own) {
            self.tell_worker(worker, Kind::HeartbeatRep, NodeId(0), time_ns);
        }
    }

    /// Orders between the workers of a node, addressed to [`BlockId::Link`]: `LinkUpRep` opens a gate, `LinkDownRep` shuts it,
    /// `StopOrd` closes a link, `HeartbeatRep` says until when clients are served.
    fn tell_worker(&mut self, worker: usize, kind: Kind, node: NodeId, incarnation: u64) {
        let from = self.link_ref();
        self.send(from, BlockRef { instance: worker as u8, ..from }, kind, 0, |b| {
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
            Kind::HeartbeatRep => self.serve_until = incarnation,
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

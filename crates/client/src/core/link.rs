//! One link: a connection to a data node (or, while none is known, to a seed), made again with back-off for as long as it is wanted.
//!
//! ```text
//! Idle --maintain--> Connecting --opened--> Hello --admitted--> Ready
//!   ^-------------------- closed, refused, too late, garbage ------'
//! ```

use std::task::Waker;

use apus_signal::hello::Role;
use apus_types::NodeId;

/// A connection as the driver knows it: the link and which of its connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnId {
    pub link: u16,
    /// Distinguishes this connection from earlier ones of the link.
    pub serial: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkState {
    Idle { until: u64 },
    Connecting { since: u64 },
    Hello { since: u64 },
    Ready,
}

/// First and longest pause between attempts, in nanoseconds.
const BACKOFF_MIN_NS: u64 = 10_000_000;
const BACKOFF_MAX_NS: u64 = 500_000_000;
/// Connecting and hello together may take this long, in nanoseconds.
pub(crate) const OPEN_TIMEOUT_NS: u64 = 3_000_000_000;
/// Silence on a link while requests are in flight after which the other end is pinged, and for how long the ping may stay unanswered
/// before the link is given up, in nanoseconds. Finds a network that swallows everything; a dead process closes its
/// connections or is removed by the cluster much earlier.
pub(crate) const SILENCE_NS: u64 = 2_000_000_000;
pub(crate) const PING_TIMEOUT_NS: u64 = 4_000_000_000;
/// Bytes waiting to be written beyond which callers wait.
pub(crate) const OUT_BYTES_MAX: usize = 4 << 20;

pub(crate) struct Link {
    pub address: String,
    /// The data node expected there (from the map) or found there (from the hello).
    pub node: Option<NodeId>,
    pub role: Option<Role>,
    pub incarnation: u64,
    /// Our address at the other end.
    pub own: NodeId,
    pub state: LinkState,
    pub serial: u32,
    /// From the configuration: kept even if no map names it.
    pub seed: bool,
    /// To be connected now.
    pub wanted: bool,
    failures: u32,
    /// The node answered with a map since the link is ready.
    pub has_map: bool,
    pub map_asked: u64,
    /// When bytes came in last, and since when a ping is unanswered.
    pub heard: u64,
    pub pinged: Option<u64>,
    /// Since when and when last the node said that it is frozen, where it has served nothing since.
    pub frozen: Option<(u64, u64)>,
    pub out: Vec<u8>,
    /// Bytes of a frame that is not complete yet.
    pub input: Vec<u8>,
    pub writer: Option<Waker>,
}

impl Link {
    pub fn new(address: String, node: Option<NodeId>, seed: bool) -> Link {
        Link {
            address,
            node,
            role: None,
            incarnation: 0,
            own: NodeId(0),
            state: LinkState::Idle { until: 0 },
            serial: 0,
            seed,
            wanted: true,
            failures: 0,
            has_map: false,
            map_asked: 0,
            heard: 0,
            pinged: None,
            frozen: None,
            out: Vec::new(),
            input: Vec::new(),
            writer: None,
        }
    }
    pub fn is_ready(&self) -> bool {
        self.state == LinkState::Ready
    }
    /// The data node behind a ready link.
    pub fn data_node(&self) -> Option<NodeId> {
        self.node.filter(|_| self.is_ready() && self.role == Some(Role::Data))
    }
    pub fn is_open(&self) -> bool {
        !matches!(self.state, LinkState::Idle { .. })
    }
    pub fn too_late(&self, now: u64) -> bool {
        match self.state {
            LinkState::Connecting { since } | LinkState::Hello { since } => now > since + OPEN_TIMEOUT_NS,
            LinkState::Idle { .. } | LinkState::Ready => false,
        }
    }
    pub fn heard(&mut self, now: u64) {
        self.heard = now;
        self.pinged = None;
    }
    pub fn due(&self, now: u64) -> bool {
        self.wanted && matches!(self.state, LinkState::Idle { until } if until <= now)
    }
    pub fn ready(&mut self) {
        self.pinged = None;
        self.frozen = None;
        self.state = LinkState::Ready;
        self.failures = 0;
        self.has_map = false;
    }
    /// Back to idle; what was not written is dropped. `jitter` in 0..=255 spreads clients that lost the same node.
    pub fn reset(&mut self, now: u64, jitter: u8) {
        let pause = (BACKOFF_MIN_NS << self.failures.min(10)).min(BACKOFF_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        self.state = LinkState::Idle { until: now + pause / 2 + pause / 512 * u64::from(jitter) };
        self.serial = self.serial.wrapping_add(1);
        self.role = None;
        self.has_map = false;
        self.input = Vec::new();
        self.out.clear();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

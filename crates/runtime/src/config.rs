//! What an executor must be told.

use std::path::PathBuf;

use apus_auth::{Keys, Secret};
use apus_types::NodeId;

/// A data node's place in the world. What its blocks need is their own configuration's business.
#[derive(Clone, Debug)]
pub struct DataNodeConfig {
    pub node: NodeId,
    /// `host:port` to listen on; port 0 chooses one.
    pub listen: String,
    /// `host:port` of each management node.
    pub mgmt: Vec<String>,
    /// Data workers: threads with a TC and an LDM instance each; equal on all data nodes of a cluster.
    pub workers: u8,
    /// Where crash reports go.
    pub dir: PathBuf,
    /// Program, version and build id, for peers and reports.
    pub build: String,
    /// What everybody who links to us has to prove, and we to them.
    pub keys: Keys,
}

impl DataNodeConfig {
    /// All worker threads: a data node has a control worker besides, which has the index `workers`.
    pub fn places(&self) -> u8 {
        self.workers + u8::from(self.node.is_data())
    }
    /// The worker that has the links to management nodes.
    pub fn control_place(&self) -> u8 {
        self.places() - 1
    }
}

/// A management node's.
#[derive(Clone, Debug)]
pub struct MgmtConfig {
    pub node: NodeId,
    pub listen: String,
    pub dir: PathBuf,
    pub build: String,
    pub keys: Keys,
}

/// A SQL node's that may arbitrate: it listens to nobody.
#[derive(Clone, Debug)]
pub struct ArbitratorConfig {
    pub node: NodeId,
    pub mgmt: Vec<String>,
    pub dir: PathBuf,
    pub build: String,
    pub node_secret: Secret,
}

impl From<ArbitratorConfig> for DataNodeConfig {
    fn from(c: ArbitratorConfig) -> DataNodeConfig {
        let ArbitratorConfig { node, mgmt, dir, build, node_secret } = c;
        let keys = Keys { node: node_secret, client: Secret::NONE };
        DataNodeConfig { node, listen: String::new(), mgmt, workers: 1, dir, build, keys }
    }
}

impl From<MgmtConfig> for DataNodeConfig {
    fn from(c: MgmtConfig) -> DataNodeConfig {
        let MgmtConfig { node, listen, dir, build, keys } = c;
        DataNodeConfig { node, listen, mgmt: Vec::new(), workers: 1, dir, build, keys }
    }
}

/// A connection must have proven itself after this many milliseconds.
pub const HELLO_TIMEOUT_MS: u64 = 3_000;
/// Connections that may be in their hello at once; for one more the oldest of the address that has most of them is closed. Well below
/// the 1024 file descriptors that a process often has.
pub const HELLOS_MAX: usize = 256;
/// Connections accepted before those that are there are heard again.
pub const ACCEPTS_PER_ROUND: usize = 32;
/// First and longest pause between two attempts to dial a peer, in milliseconds.
pub const REDIAL_MS: (u64, u64) = (20, 500);
/// An attempt to connect is given up after this many milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 2_000;
/// The same of an attempt to go on with a link whose connection was lost: the network may be back sooner than TCP asks again.
pub const RESUME_CONNECT_TIMEOUT_MS: u64 = 250;
/// Its hello is over after so many milliseconds, or tried again.
pub const RESUME_HELLO_TIMEOUT_MS: u64 = 1_000;
/// Pause between two such attempts, in milliseconds.
pub const RESUME_PAUSE_MS: u64 = 5;
/// Bytes read from a socket at once.
pub const READ_BYTES: usize = 256 << 10;
/// Most bytes in a ring between two workers before its sender keeps them to itself.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Signals a worker executes from its job buffer before it looks at its sockets again.
pub const RUN_BUDGET: usize = 4096;

//! What an executor must be told.

use std::path::PathBuf;

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
}

impl From<MgmtConfig> for DataNodeConfig {
    fn from(c: MgmtConfig) -> DataNodeConfig {
        DataNodeConfig { node: c.node, listen: c.listen, mgmt: Vec::new(), workers: 1, dir: c.dir, build: c.build }
    }
}

/// A connection must have said its hello after this many milliseconds.
pub const HELLO_TIMEOUT_MS: u64 = 3_000;
/// Connections that may be in their hello at once; more are closed at once.
pub const HELLOS_MAX: usize = 1024;
/// First and longest pause between two attempts to dial a peer, in milliseconds.
pub const REDIAL_MS: (u64, u64) = (20, 500);
/// An attempt to connect is given up after this many milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 2_000;
/// Bytes read from a socket at once.
pub const READ_BYTES: usize = 256 << 10;
/// Most bytes in a ring between two workers before its sender keeps them to itself.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Signals a worker executes from its job buffer before it looks at its sockets again.
pub const RUN_BUDGET: usize = 4096;

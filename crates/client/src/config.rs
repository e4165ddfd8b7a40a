//! What a client is told at its start.

use apus_auth::Secret;
use apus_types::ErrorCode;

/// Configuration of a [`crate::Client`]. [`ClientConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of management nodes, or of data nodes: what answers tells which it is. Asked again whenever no data node
    /// is linked any more.
    pub seeds: Vec<String>,
    /// For people: program and version, sent in the hello.
    pub name: String,
    /// The cluster's client secret, by which we prove to be a client and the nodes to be its nodes.
    pub secret: Secret,
    /// Random, drawn by the caller: first half of every [`apus_types::TransId`], so two clients must never share one.
    pub client_id: u64,
    /// Chooses the node this client prefers to read from; consecutive numbers spread evenly over the nodes.
    pub preferred_node_seed: u64,
    /// Most requests in flight; callers beyond it wait.
    pub max_in_flight: usize,
    /// How long [`crate::Client::connect`] tries to find a data node that serves, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long reads, scans and dictionary reads are retried before they fail, in milliseconds.
    pub read_timeout_ms: u64,
    /// How long a request to one replica may take before a read tries another, in milliseconds.
    pub attempt_timeout_ms: u64,
    /// How long one batch or commit may stay unanswered (lock waits come on top), in milliseconds.
    pub transaction_timeout_ms: u64,
    /// How long the outcome of an interrupted commit is asked for, in milliseconds.
    pub outcome_timeout_ms: u64,
    /// How long a schema change may take, in milliseconds.
    pub schema_timeout_ms: u64,
}

impl ClientConfig {
    pub fn new(seeds: Vec<String>, client_id: u64) -> ClientConfig {
        ClientConfig {
            seeds,
            name: String::from("apus-client"),
            secret: Secret::NONE,
            client_id,
            preferred_node_seed: client_id,
            max_in_flight: 65_536,
            connect_timeout_ms: 10_000,
            read_timeout_ms: 10_000,
            attempt_timeout_ms: 3_000,
            transaction_timeout_ms: 60_000,
            outcome_timeout_ms: 10_000,
            schema_timeout_ms: 120_000,
        }
    }

    /// # Errors
    /// `Internal` with a zero id (that is no transaction), no seed or no room for a request.
    pub(crate) fn check(&self) -> Result<(), ErrorCode> {
        let good = self.client_id != 0 && !self.seeds.is_empty() && self.max_in_flight >= 1;
        if good { Ok(()) } else { Err(ErrorCode::Internal) }
    }
}

//! Conversations with the management node, and the status of data nodes.
//!
//! A starting data node sends `RegisterRep` (its address is known only then, where ports are chosen freely) and `ConfigReq`,
//! again and again until the answer lists every node it waits for. Members send `RegisterRep` with each new view and once a
//! second, so that the management node can answer `StatusReq` and knows whether a cluster is running. Clients and SQL nodes
//! that were given nothing but the management node's address find the data nodes by `ConfigReq`.
//!
//! There may be two management nodes; each is told and answers the same. Members send `HeartbeatRep` to each, which answers with its
//! own: who is silent for long is as good as gone. The one that the committed view names arbitrates (see the QMGR block).
//!
//! Management nodes are no part of any transaction: while all are away only arbitration and partial starts are impossible.

use apus_types::limits;
use prost::Message;

use crate::{gcp, operator::FrozenSide, qmgr::Incarnation, restart::StartPhase, speeds::Speeds, view::View};

/// One configured data node.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigNode {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint32, tag = "2")]
    pub group: u32,
    /// `host:port`; empty until the node has registered.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Of the process that registered last; 0 if none did.
    #[prost(fixed64, tag = "4")]
    pub incarnation: u64,
    /// That process was a member when it was heard last.
    #[prost(bool, tag = "5")]
    pub member: bool,
}

/// The configuration of a cluster.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterConfig {
    #[prost(fixed64, tag = "1")]
    pub cluster: u64,
    #[prost(message, repeated, tag = "2")]
    pub nodes: Vec<ConfigNode>,
    /// 1 to 4.
    #[prost(uint32, tag = "3")]
    pub replicas: u32,
    /// LDM and TC instances of every data node.
    #[prost(uint32, tag = "4")]
    pub instances: u32,
    /// Partitions of every table.
    #[prost(uint32, tag = "5")]
    pub partitions: u32,
    /// Time between two heartbeats, in milliseconds.
    #[prost(uint32, tag = "6")]
    pub heartbeat_ms: u32,
    /// Silence after which a node is held for failed, in milliseconds.
    #[prost(uint32, tag = "7")]
    pub heartbeat_timeout_ms: u32,
    /// How long a first start waits for all nodes before it asks to start without some, in milliseconds.
    #[prost(uint32, tag = "8")]
    pub start_partial_timeout_ms: u32,
    /// Ids of the management nodes, ascending. The first one is asked for a start without all data nodes.
    #[prost(uint32, repeated, tag = "9")]
    pub mgmts: Vec<u32>,
    /// Of the first view; see [`SILENCE_MS`]. 0: the lowest.
    #[prost(uint32, tag = "20")]
    pub silence_ms: u32,
    /// Of the first view; see [`EJECT_SLOW_MS`].
    #[prost(uint32, tag = "21")]
    pub eject_slow_ms: u32,
    /// Of the first view; see [`View::durability`].
    #[prost(uint32, tag = "22")]
    pub durability: u32,
    /// The newest founding that the management node remembers, see [`View::lineage`]; 0: none. The cluster is not founded again beside it.
    #[prost(fixed64, tag = "30")]
    pub founded: u64,
    /// The newest founding that an operator has given up, with the rows that its nodes may hold.
    #[prost(fixed64, tag = "31")]
    pub given_up: u64,
    /// What the management node's file says of its newest yes, as long as it is of use to a start from the disks.
    #[prost(message, optional, tag = "32")]
    pub fences: Option<Fences>,
}

/// The newest yes of an arbitrator that is in its file: some members of a view were let go on, in a view without the others.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fences {
    /// By which views name the arbitrator.
    #[prost(uint32, tag = "1")]
    pub arbitrator: u32,
    #[prost(fixed64, tag = "2")]
    pub identity: u64,
    /// Point of the view from which they were let go on.
    #[prost(fixed64, tag = "3")]
    pub lineage: u64,
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// The others.
    #[prost(message, repeated, tag = "5")]
    pub fenced: Vec<Incarnation>,
    /// Of these, nodes whose process has a link to the management node now.
    #[prost(uint32, repeated, tag = "6")]
    pub living: Vec<u32>,
}

/// Enough partitions that every worker of every node is primary of at least two.
pub fn default_partitions(groups: u32, replicas: u32, instances: u32) -> u32 {
    (2 * groups * replicas * instances).clamp(groups.max(1), u32::from(limits::PARTITIONS_MAX))
}

impl ClusterConfig {
    /// For a cluster whose rows are in so many partitions already: the number that nobody asked for gives way, for it goes with the number of workers.
    ///
    /// # Errors
    /// An operator has asked for another number.
    pub fn with_partitions(&self, there_are: u32) -> Result<ClusterConfig, String> {
        let groups = self.nodes.len() as u32 / self.replicas.max(1);
        if self.partitions != there_are && self.partitions != default_partitions(groups, self.replicas, self.instances)
        {
            return Err(format!(
                "the data on disk is in {there_are} partitions, the configuration says {}: that number cannot be changed, leave --partitions out",
                self.partitions
            ));
        }
        Ok(ClusterConfig { partitions: there_are, ..self.clone() })
    }
    /// A cluster whose newest founding that anybody remembers is this one may be founded anew, empty.
    pub fn may_found_after(&self, lineage: u64) -> bool {
        self.founded.max(lineage) <= self.given_up
    }
}

/// Legal values of the shortest silence, in milliseconds, for which a data node is held for failed. The lowest is the default: a silent
/// failure is over in less than 100 ms. A slice of a statement, on any worker, is a small part of it. The highest is half of the longest
/// silence that the limit can grow to.
pub const SILENCE_MS: std::ops::RangeInclusive<u32> = 80..=1000;

/// What `eject_slow_ms` may be but 0, which is the default and ejects nobody. Below the least a node is not called slow.
pub const EJECT_SLOW_MS: std::ops::RangeInclusive<u32> = 20..=60_000;

/// `SettingReq`, `SettingConf`, `SettingOrd`: what is to change.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Setting {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(uint32, optional, tag = "2")]
    pub silence_ms: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub eject_slow_ms: Option<u32>,
    /// See [`View::durability`].
    #[prost(uint32, optional, tag = "4")]
    pub durability: Option<u32>,
    /// See [`gcp::INTERVAL_MS`].
    #[prost(uint32, optional, tag = "5")]
    pub gcp_interval_ms: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub checkpoint_speeds: Option<Speeds>,
}

impl Setting {
    /// Something is to change, and to what it may be.
    pub fn is_legal(&self) -> bool {
        let is_silence = self.silence_ms.is_none_or(|ms| SILENCE_MS.contains(&ms));
        let is_eject = self.eject_slow_ms.is_none_or(|ms| ms == 0 || EJECT_SLOW_MS.contains(&ms));
        let is_class = self.durability.is_none_or(|class| class <= 1);
        let is_interval = self.gcp_interval_ms.is_none_or(|ms| gcp::INTERVAL_MS.contains(&ms));
        let is_speed = self.checkpoint_speeds.as_ref().is_none_or(Speeds::is_legal);
        let is_any = self.silence_ms.or(self.eject_slow_ms).or(self.durability).or(self.gcp_interval_ms).is_some();
        let is_any = is_any || self.checkpoint_speeds.is_some();
        is_silence && is_eject && is_class && is_interval && is_speed && is_any
    }
}

/// `ConfigReq`, `StatusReq`, `NodeStatusReq`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct MgmtReq {
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// `ConfigConf`; a `ConfigRef` is a [`crate::tc::RequestRef`].
#[derive(Clone, PartialEq, Message)]
pub struct ConfigConf {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(message, optional, tag = "2")]
    pub config: Option<ClusterConfig>,
}

/// `RegisterRep`: a data node to the management node.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterRep {
    #[prost(uint32, tag = "1")]
    pub node: u32,
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    #[prost(string, tag = "3")]
    pub address: String,
    /// Of the committed view, 0 while starting.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// The committed view, where it is new to the receiver as far as the sender knows.
    #[prost(message, optional, tag = "5")]
    pub view: Option<View>,
    /// Of the process, in milliseconds.
    #[prost(uint64, tag = "6")]
    pub uptime_ms: u64,
    /// Which data workers are stuck, for people; empty: none.
    #[prost(string, tag = "12")]
    pub stuck: String,
    /// The node is slower than the others: by what; empty: it is not.
    #[prost(string, tag = "20")]
    pub slow: String,
    /// Why the node may not go on and what it waits for; empty: it may.
    #[prost(string, tag = "7")]
    pub frozen: String,
    /// Of a frozen member.
    #[prost(message, optional, tag = "21")]
    pub side: Option<FrozenSide>,
    /// Nodes that could arbitrate and that the sender reaches.
    #[prost(uint32, repeated, tag = "8")]
    pub reaches: Vec<u32>,
    /// It writes a log to its disk.
    #[prost(bool, tag = "22")]
    pub durable: bool,
    /// Of a node that starts or is being filled: how far it is, for people.
    #[prost(string, tag = "23")]
    pub progress: String,
    #[prost(message, optional, tag = "24")]
    pub memory: Option<MemoryUse>,
    /// The same as `progress`, in figures.
    #[prost(message, optional, tag = "25")]
    pub start: Option<StartProgress>,
    /// Its files are encrypted, but for those that wait for a checkpoint of everything.
    #[prost(bool, tag = "26")]
    pub encrypts: bool,
}

/// How far a data node is that starts.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct StartProgress {
    /// Of the instance that is furthest behind.
    #[prost(enumeration = "StartPhase", tag = "1")]
    pub phase: i32,
    /// That it has by now, whatever brought them, and per second in this phase.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint64, tag = "3")]
    pub rows_per_second: u64,
    /// Of this phase.
    #[prost(uint32, tag = "4")]
    pub percent: u32,
    /// Until the end of this phase, at the speed so far; 0: not known.
    #[prost(uint64, tag = "5")]
    pub remaining_ms: u64,
    #[prost(uint64, tag = "6")]
    pub elapsed_ms: u64,
}

/// The memory of a data node, in bytes.
#[derive(Clone, PartialEq, Message)]
pub struct MemoryUse {
    /// What regions share beyond what is reserved for each, and how much of it they have.
    #[prost(uint64, tag = "1")]
    pub pool: u64,
    #[prost(uint64, tag = "2")]
    pub pool_used: u64,
    #[prost(message, repeated, tag = "3")]
    pub regions: Vec<RegionUse>,
}

/// One region of it.
#[derive(Clone, PartialEq, Message)]
pub struct RegionUse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub used: u64,
    #[prost(uint64, tag = "3")]
    pub reserved: u64,
    #[prost(uint64, tag = "4")]
    pub maximum: u64,
    /// What it could get now; of data memory what inserts could.
    #[prost(uint64, tag = "5")]
    pub room: u64,
    /// How often it was refused memory.
    #[prost(uint64, tag = "6")]
    pub refused: u64,
    /// It can get no more than the least that is asked for at once.
    #[prost(bool, tag = "7")]
    pub full: bool,
}

/// One data node as the management node sees it.
#[derive(Clone, PartialEq, Message)]
pub struct NodeSummary {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint32, tag = "2")]
    pub group: u32,
    #[prost(string, tag = "3")]
    pub address: String,
    /// A [`crate::view::NodeState`].
    #[prost(uint32, tag = "4")]
    pub state: u32,
    #[prost(bool, tag = "5")]
    pub president: bool,
    /// Partitions it is primary of, and backup of.
    #[prost(uint32, tag = "6")]
    pub primaries: u32,
    #[prost(uint32, tag = "7")]
    pub backups: u32,
    #[prost(uint64, tag = "8")]
    pub uptime_ms: u64,
    /// Milliseconds since the node was last heard; `u64::MAX` for never.
    #[prost(uint64, tag = "9")]
    pub silent_ms: u64,
    /// See [`RegisterRep::stuck`].
    #[prost(string, tag = "15")]
    pub stuck: String,
    /// See [`RegisterRep::slow`].
    #[prost(string, tag = "20")]
    pub slow: String,
    /// See [`RegisterRep::frozen`].
    #[prost(string, tag = "10")]
    pub frozen: String,
    /// See [`RegisterRep::side`].
    #[prost(message, optional, tag = "21")]
    pub side: Option<FrozenSide>,
    /// Of the process that is linked to the management node that answers; 0: none.
    #[prost(fixed64, tag = "22")]
    pub incarnation: u64,
    /// Of the process that is a member of the newest view; 0: none.
    #[prost(fixed64, tag = "23")]
    pub member: u64,
    /// That process is not there, and the cluster is frozen and cannot remove it.
    #[prost(bool, tag = "24")]
    pub lost: bool,
    /// See [`RegisterRep::progress`].
    #[prost(string, tag = "25")]
    pub progress: String,
    #[prost(message, optional, tag = "26")]
    pub memory: Option<MemoryUse>,
    /// See [`RegisterRep::start`].
    #[prost(message, optional, tag = "27")]
    pub start: Option<StartProgress>,
    /// See [`RegisterRep::encrypts`].
    #[prost(bool, tag = "28")]
    pub encrypts: bool,
}

/// `StatusConf`.
#[derive(Clone, PartialEq, Message)]
pub struct StatusConf {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    #[prost(uint32, tag = "4")]
    pub partitions: u32,
    #[prost(uint32, tag = "5")]
    pub replicas: u32,
    #[prost(message, repeated, tag = "6")]
    pub nodes: Vec<NodeSummary>,
    #[prost(uint64, tag = "7")]
    pub mgmt_uptime_ms: u64,
    /// The management node that answers, and the one that arbitrates (0: none).
    #[prost(uint32, tag = "8")]
    pub mgmt: u32,
    #[prost(uint32, tag = "9")]
    pub arbitrator: u32,
    /// SQL nodes that all members reach: one of them arbitrates if no management node does.
    #[prost(uint32, repeated, tag = "10")]
    pub sql_arbitrators: Vec<u32>,
    /// Of the view; see [`SILENCE_MS`].
    #[prost(uint32, tag = "20")]
    pub silence_ms: u32,
    #[prost(uint32, tag = "21")]
    pub eject_slow_ms: u32,
    /// A data node writes a log to its disk.
    #[prost(bool, tag = "22")]
    pub durable: bool,
    /// Of the view; see [`View::durability`].
    #[prost(uint32, tag = "23")]
    pub durability: u32,
    /// Of the view, in force.
    #[prost(uint32, tag = "24")]
    pub gcp_interval_ms: u32,
    #[prost(message, optional, tag = "25")]
    pub checkpoint_speeds: Option<Speeds>,
}

/// `NodeStatusConf`: one data node about itself.
#[derive(Clone, PartialEq, Message)]
pub struct NodeStatusConf {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// A [`crate::view::NodeState`].
    #[prost(uint32, tag = "3")]
    pub state: u32,
    #[prost(bool, tag = "4")]
    pub president: bool,
    #[prost(uint64, tag = "5")]
    pub generation: u64,
    #[prost(uint64, tag = "6")]
    pub epoch: u64,
    #[prost(uint64, tag = "7")]
    pub uptime_ms: u64,
    #[prost(uint32, tag = "8")]
    pub primaries: u32,
    #[prost(uint32, tag = "9")]
    pub backups: u32,
    #[prost(uint32, tag = "10")]
    pub instances: u32,
    #[prost(uint64, tag = "11")]
    pub dictionary_version: u64,
    /// What the LDM instances reported (see [`LdmStatus`]).
    #[prost(message, repeated, tag = "12")]
    pub ldms: Vec<LdmStatus>,
    /// See [`RegisterRep::frozen`].
    #[prost(string, tag = "13")]
    pub frozen: String,
}

/// What an LDM instance tells CNTR of its node about itself, unasked, as the body of a `NodeStatusConf` signal. CNTR keeps the
/// last one of each; instances that have not told anything are absent from the node's status.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LdmStatus {
    #[prost(uint32, tag = "1")]
    pub instance: u32,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint64, tag = "3")]
    pub fragments: u64,
    #[prost(uint64, tag = "4")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub transactions: u64,
}

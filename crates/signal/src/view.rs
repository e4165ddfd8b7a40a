//! The view: who is a member, and which chain serves each partition. One object, changed only by the president's two-phase
//! membership transaction (`ViewPrepReq`, `ViewCommitOrd`), so that backups become primaries in the same step that removes a
//! node. Clients get it as [`ClusterMap`] = view + addresses (`MapReq`, `MapConf`, pushed again as `MapRep`).
//!
//! Generations grow by one with each committed view. A node executes only views in order.

use apus_types::{Chain, NodeId, PartitionId, hash, limits};
use prost::Message;

use crate::{codec::DecodeError, gcp, speeds::Speeds};

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NodeState {
    /// Not a member.
    Down = 0,
    /// Member that is being filled: in chains for writes, not asked to read.
    Recovering = 1,
    Up = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct ViewNode {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(enumeration = "NodeState", tag = "2")]
    pub state: i32,
    /// Distinguishes this start of the process from earlier ones.
    #[prost(fixed64, tag = "3")]
    pub incarnation: u64,
    #[prost(uint32, tag = "4")]
    pub group: u32,
    /// Position in the order of joining: the lowest living one is president.
    #[prost(uint64, tag = "5")]
    pub join_order: u64,
    /// `host:port` where the node accepts links.
    #[prost(string, tag = "6")]
    pub address: String,
    /// Of a recovering node: it has everything up to this epoch, from its own disk, as this lineage had it. 0: nothing.
    #[prost(uint64, tag = "7")]
    pub restored: u64,
    /// Of a node that is down: its process was told to end, and said so. It did not die of what it executed.
    #[prost(bool, tag = "8")]
    pub left: bool,
}

impl ViewNode {
    pub fn node(&self) -> NodeId {
        NodeId(self.id as u16)
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct View {
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    #[prost(uint32, tag = "2")]
    pub president: u32,
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<ViewNode>,
    /// Chain of each partition, packed; includes recovering nodes, at the end.
    #[prost(fixed32, repeated, tag = "4")]
    pub chains: Vec<u32>,
    /// LDM (and TC) instances of every data node; partition p is served by instance p mod this.
    #[prost(uint32, tag = "5")]
    pub instances: u32,
    /// Partition of each bucket, two little-endian bytes each; empty: bucket mod partitions.
    #[prost(bytes = "vec", tag = "6")]
    pub bucket_map: Vec<u8>,
    /// Random id of the cluster, drawn at its first start.
    #[prost(fixed64, tag = "7")]
    pub cluster: u64,
    /// The management node that arbitrates about the successor of this view; 0: none, see `tie_breaker`.
    #[prost(uint32, tag = "8")]
    pub arbitrator: u32,
    /// Its process: one that has started since knows nothing of whom it fenced, and is another arbitrator.
    #[prost(fixed64, tag = "9")]
    pub arbitrator_incarnation: u64,
    /// Which founding the view goes back to: the incarnation of the process that made the first one. A later founding has a higher one.
    #[prost(fixed64, tag = "10")]
    pub lineage: u64,
    /// Where no arbitrator is named: the full member whose half goes on. 0: exactly half of the members freezes.
    #[prost(uint32, tag = "11")]
    pub tie_breaker: u32,
    /// Floor of the silence limit in milliseconds; see `mgmt::SILENCE_MS`. 0: the lowest.
    #[prost(uint32, tag = "20")]
    pub silence_ms: u32,
    /// A node that is slower than the others, and slower than this in milliseconds, leaves. 0: never.
    #[prost(uint32, tag = "21")]
    pub eject_slow_ms: u32,
    /// Class of commits that ask for none: 0 replicated, 1 disk.
    #[prost(uint32, tag = "23")]
    pub durability: u32,
    /// Time between two global checkpoints in milliseconds; 0: [`crate::gcp::INTERVAL_MS_DEFAULT`].
    #[prost(uint32, tag = "24")]
    pub gcp_interval_ms: u32,
    /// Those that an operator has set; see [`View::checkpoint_speeds`].
    #[prost(message, optional, tag = "25")]
    pub speeds: Option<Speeds>,
    /// Generation of the newest view in which sides met that had lost signals to each other: who executes it, or a later one after an earlier
    /// one, ends all that was open by take-over, as if every coordinator had died. 0: none.
    #[prost(uint64, tag = "22")]
    pub settles: u64,
}

impl View {
    /// Decodes and checks what every user of a view relies on.
    pub fn from_bytes(bytes: &[u8]) -> Result<View, DecodeError> {
        let view = <View as Message>::decode(bytes).map_err(|_| DecodeError)?;
        if view.check() { Ok(view) } else { Err(DecodeError) }
    }
    /// What every user of a view relies on; for views that came inside another message.
    pub fn check(&self) -> bool {
        let view = self;
        let ids_ok = view.nodes.iter().all(|n| n.id >= 1 && n.id <= u32::from(NodeId::DATA_MAX));
        let map_ok = view.bucket_map.is_empty()
            || (view.bucket_map.len() == 2 * limits::BUCKETS as usize
                && view
                    .bucket_map
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .all(|&b| usize::from(u16::from_le_bytes(b)) < view.chains.len()));
        let sizes_ok = (1..=255).contains(&view.instances) && view.chains.len() <= usize::from(limits::PARTITIONS_MAX);
        ids_ok && map_ok && sizes_ok
    }
    /// Sides met between the view `old` and this one: what was open then is settled by take-over.
    pub fn settles_after(&self, old: &View) -> bool {
        old.generation > 0 && self.settles > old.generation
    }
    /// Lineage and generation: of two views of a cluster the one with the higher point is the newer.
    pub fn point(&self) -> (u64, u64) {
        (self.lineage, self.generation)
    }
    /// Time between two global checkpoints, in milliseconds.
    pub fn gcp_interval_ms(&self) -> u32 {
        if self.gcp_interval_ms == 0 { gcp::INTERVAL_MS_DEFAULT } else { self.gcp_interval_ms }
    }
    /// Speeds of checkpoints, in force.
    pub fn checkpoint_speeds(&self) -> Speeds {
        self.speeds.unwrap_or_default().or(&Speeds::DEFAULT)
    }
    pub fn partition_count(&self) -> u16 {
        self.chains.len() as u16
    }
    #[inline]
    pub fn partition_of(&self, distribution_hash: u64) -> PartitionId {
        let bucket = hash::bucket(distribution_hash) as usize;
        match self.bucket_map.get(2 * bucket..2 * bucket + 2) {
            Some(&[low, high]) => PartitionId(u16::from_le_bytes([low, high])),
            _ => hash::default_partition(distribution_hash, self.partition_count()),
        }
    }
    #[inline]
    pub fn chain(&self, partition: PartitionId) -> Chain {
        Chain(self.chains.get(usize::from(partition.0)).copied().unwrap_or(0))
    }
    #[inline]
    pub fn instance(&self, partition: PartitionId) -> u8 {
        (u32::from(partition.0) % self.instances.max(1)) as u8
    }
    pub fn node(&self, id: NodeId) -> Option<&ViewNode> {
        self.nodes.iter().find(|n| n.id == u32::from(id.0))
    }
    pub fn state(&self, id: NodeId) -> NodeState {
        self.node(id).map_or(NodeState::Down, ViewNode::state)
    }
    /// This very process is a member, full or recovering.
    pub fn is_member(&self, id: NodeId, incarnation: u64) -> bool {
        self.node(id).is_some_and(|n| n.state() != NodeState::Down && n.incarnation == incarnation)
    }
    /// Member, full or recovering.
    pub fn is_alive(&self, id: NodeId) -> bool {
        self.state(id) != NodeState::Down
    }
    pub fn living(&self) -> impl Iterator<Item = &ViewNode> {
        self.nodes.iter().filter(|n| n.state() != NodeState::Down)
    }
}

/// `MapConf`/`MapRep`: what a client needs to route.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterMap {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(message, optional, tag = "2")]
    pub view: Option<View>,
    /// Grows with every committed schema change.
    #[prost(uint64, tag = "3")]
    pub schema_version: u64,
}

/// `MapReq`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct MapReq {
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

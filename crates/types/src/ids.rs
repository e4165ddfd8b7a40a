//! Typed ids. A bare integer never travels between layers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A process of the cluster. Data nodes are 1..=255 so that a [`Chain`] fits a word; management nodes and client
    /// links use the ranges below.
    NodeId(u16)
);
id!(
    /// A table, a hidden unique-index table or a system table. Never reused.
    TableId(u32)
);
id!(
    /// A partition number; all tables of a distribution share the partition -> chain map.
    PartitionId(u16)
);
id!(
    /// Number of an ordered index inside its table; 0 is the primary key's.
    IndexNo(u16)
);
id!(
    /// Cluster-wide epoch (DESIGN section 8): a Lamport clock advanced by the president every few milliseconds.
    Epoch(u64)
);

impl NodeId {
    /// Highest id of a data node.
    pub const DATA_MAX: u16 = 255;
    /// Management nodes are `MGMT_BASE .. ARBITRATOR_BASE`.
    pub const MGMT_BASE: u16 = 0x4000;
    /// SQL nodes that may arbitrate are `ARBITRATOR_BASE ..= ARBITRATOR_BASE + 0x7f`.
    pub const ARBITRATOR_BASE: u16 = 0x4080;
    /// Links to clients (SQL nodes, native clients) get ids from here, given out by the node that accepted the link and
    /// meaningful only there.
    pub const CLIENT_BASE: u16 = 0x8000;
    /// Of those, links to operators' tools, which have proven the node secret, get ids from here.
    pub const OPERATOR_BASE: u16 = 0xff00;

    pub fn is_data(self) -> bool {
        self.0 >= 1 && self.0 <= Self::DATA_MAX
    }
    pub fn is_mgmt(self) -> bool {
        self.0 >= Self::MGMT_BASE && self.0 < Self::ARBITRATOR_BASE
    }
    /// A SQL node that may arbitrate, and nothing else.
    pub fn is_sql_arbitrator(self) -> bool {
        self.0 >= Self::ARBITRATOR_BASE && self.0 < Self::ARBITRATOR_BASE + 0x80
    }
    /// A view may name it.
    pub fn may_arbitrate(self) -> bool {
        self.is_mgmt() || self.is_sql_arbitrator()
    }
    pub fn is_client(self) -> bool {
        self.0 >= Self::CLIENT_BASE
    }
    /// A client that may do what an operator may.
    pub fn is_operator(self) -> bool {
        self.0 >= Self::OPERATOR_BASE
    }
}

/// A transaction: unique in the cluster for all time, and the commit token a client may ask about later.
///
/// `client` is drawn at random by each native client at start, `seq` counts its transactions from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransId {
    pub client: u64,
    pub seq: u64,
}

impl TransId {
    /// No transaction: a committed read.
    pub const NONE: TransId = TransId { client: 0, seq: 0 };
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Debug for TransId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.client, self.seq)
    }
}
impl fmt::Display for TransId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The replicas of a partition in chain order, primary first: up to four data node ids packed into a word, one byte each,
/// zero-terminated. Prepare flows from the first to the last, commit from the last to the first (NDB's linear commit).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Chain(pub u32);

impl Chain {
    /// Most replicas of a fragment.
    pub const REPLICAS_MAX: usize = 4;

    /// # Panics
    /// With more than four nodes or with an id that is not a data node's: chains are built from a validated view.
    pub fn new(nodes: &[NodeId]) -> Chain {
        assert!(nodes.len() <= Self::REPLICAS_MAX, "chain of {} replicas", nodes.len());
        let mut word = 0u32;
        for (position, node) in nodes.iter().enumerate() {
            assert!(node.is_data(), "node {node} cannot be in a chain");
            word |= u32::from(node.0) << (8 * position);
        }
        Chain(word)
    }
    #[inline]
    pub fn node(self, position: usize) -> Option<NodeId> {
        if position >= Self::REPLICAS_MAX {
            return None;
        }
        let id = (self.0 >> (8 * position)) & 0xff;
        (id != 0).then_some(NodeId(id as u16))
    }
    #[inline]
    pub fn len(self) -> usize {
        // The high bit of each byte that is zero, of the lowest one in any case.
        let zeros = self.0.wrapping_sub(0x0101_0101) & !self.0 & 0x8080_8080;
        if zeros == 0 { Self::REPLICAS_MAX } else { zeros.trailing_zeros() as usize / 8 }
    }
    pub fn is_empty(self) -> bool {
        self.0 & 0xff == 0
    }
    #[inline]
    pub fn nodes(self) -> impl DoubleEndedIterator<Item = NodeId> + Clone {
        (0..self.len()).map(move |i| NodeId((self.0 >> (8 * i) & 0xff) as u16))
    }
    #[inline]
    pub fn primary(self) -> Option<NodeId> {
        self.node(0)
    }
    pub fn last(self) -> Option<NodeId> {
        self.nodes().next_back()
    }
    pub fn position(self, node: NodeId) -> Option<usize> {
        self.nodes().position(|n| n == node)
    }
    pub fn contains(self, node: NodeId) -> bool {
        self.position(node).is_some()
    }
    /// The chain that is left when only nodes for which `keep` holds remain; order is kept.
    pub fn retain(self, keep: impl Fn(NodeId) -> bool) -> Chain {
        let mut left = Chain(0);
        for (position, node) in self.nodes().filter(|&n| keep(n)).enumerate() {
            left.0 |= u32::from(node.0) << (8 * position);
        }
        left
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        f.write_str("[")?;
        for node in self.nodes() {
            write!(f, "{sep}{node}")?;
            sep = ">";
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_keeps_its_order_and_closes_gaps() {
        let chain = Chain::new(&[NodeId(3), NodeId(1), NodeId(200)]);
        assert_eq!(chain.len(), 3);
        assert_eq!(chain.primary(), Some(NodeId(3)));
        assert_eq!(chain.last(), Some(NodeId(200)));
        assert_eq!(chain.position(NodeId(1)), Some(1));
        let left = chain.retain(|n| n != NodeId(3));
        assert_eq!(left, Chain::new(&[NodeId(1), NodeId(200)]));
        assert_eq!(chain.retain(|_| false), Chain(0));
        assert_eq!(format!("{chain:?}"), "[3>1>200]");
        let lengths = [0, 0x80, 0x0180, 0xff_0001, 0x01_0101, 0x8080_8080, 0x0100_0001].map(|word| Chain(word).len());
        assert_eq!(lengths, [0, 1, 2, 1, 3, 4, 1], "up to the first zero");
    }
}

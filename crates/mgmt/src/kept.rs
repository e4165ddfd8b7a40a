//! What the arbitrator keeps in its file: who it is, and what it promised.
//!
//! A SQL node that arbitrates keeps besides where it finds the data nodes. The file is written as a whole and synced before a promise is told. One that is cut off, changed or somebody else's is refused: an
//! arbitrator that has forgotten what it promised must not pretend that it has not.

use apus_signal::{
    file::{seal, unseal},
    qmgr::Incarnation,
};
use apus_types::NodeId;
use prost::Message;

/// Its name.
pub const FILE: &str = "arbitrator";
const MAGIC: [u8; 8] = *b"APUSARB1";

/// What was kept.
#[derive(Clone, PartialEq, Message)]
pub struct Promise {
    #[prost(fixed64, tag = "1")]
    pub cluster: u64,
    /// Of the management or SQL node.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// By which views name the arbitrator: that of the process that made the file.
    #[prost(fixed64, tag = "3")]
    pub identity: u64,
    /// From where somebody was let go on last: founding and generation of the view.
    #[prost(fixed64, tag = "4")]
    pub lineage: u64,
    #[prost(uint64, tag = "5")]
    pub generation: u64,
    /// Whom of the members of that view it was to go on without.
    #[prost(message, repeated, tag = "6")]
    pub fenced: Vec<Incarnation>,
    /// The newest founding that is known of; 0: the cluster was never founded.
    #[prost(fixed64, tag = "7")]
    pub founded: u64,
    /// The newest founding that an operator has given up, with all rows: the cluster may be founded again.
    #[prost(fixed64, tag = "8")]
    pub given_up: u64,
    /// Of a SQL node: where data nodes were last.
    #[prost(message, repeated, tag = "9")]
    pub members: Vec<Member>,
    /// Each yes from that view was for a view without those.
    #[prost(bool, tag = "10")]
    pub without_fenced: bool,
}

/// A data node and its place.
#[derive(Clone, PartialEq, Message)]
pub struct Member {
    #[prost(uint32, tag = "1")]
    pub node: u32,
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    #[prost(string, tag = "3")]
    pub address: String,
}

impl Promise {
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(MAGIC, &self.encode_to_vec())
    }

    /// Reads the file of the node `node`.
    ///
    /// # Errors
    /// For people: it is none, or is damaged, or another node's.
    pub fn from_bytes(bytes: &[u8], node: NodeId) -> Result<Promise, String> {
        let what_to_do = "this node must not arbitrate with it: give back the right file, or an empty data directory \
                          and it is another arbitrator";
        let refuse = |what: &str| format!("the file `{FILE}` in the data directory {what}; {what_to_do}");
        let promise = Promise::decode(unseal(MAGIC, bytes).map_err(refuse)?).map_err(|_| refuse("is damaged"))?;
        if promise.node != u32::from(node.0) || promise.identity == 0 || promise.cluster == 0 {
            return Err(refuse("is another node's"));
        }
        Ok(promise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(NodeId::MGMT_BASE + 1);

    #[test]
    fn a_file_is_read_as_it_was_written_and_refused_when_it_is_not() {
        let fenced = vec![Incarnation { node: 2, incarnation: 20 }];
        let promise = Promise {
            cluster: 7,
            node: NODE.0.into(),
            identity: 5,
            lineage: 1,
            generation: 9,
            fenced,
            founded: 1,
            given_up: 1,
            members: vec![Member { node: 2, incarnation: 20, address: "host:1".to_owned() }],
            without_fenced: true,
        };
        let bytes = promise.to_bytes();
        assert_eq!(Promise::from_bytes(&bytes, NODE), Ok(promise));
        for length in 0..bytes.len() {
            assert!(Promise::from_bytes(&bytes[..length], NODE).is_err(), "cut off at {length}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Promise::from_bytes(&bad, NODE).is_err(), "byte {at}");
        }
        let text = Promise::from_bytes(&bytes, NodeId(NODE.0 + 1)).unwrap_err();
        assert!(text.contains("another node's"), "{text}");
    }
}

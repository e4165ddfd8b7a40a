//! The first frames of a link. Nothing else is accepted before; a refusal names its reason and the link is closed.
//!
//! `HelloReq` (body: [`Hello`]) from whoever connected. `HelloProofReq` (32 bytes of MAC, then a [`Hello`]) from whoever accepted.
//! `HelloProofConf` (32 bytes of MAC) from whoever connected. `HelloConf` ([`Hello`]) from whoever accepted, which gives a client its
//! link-local node id. `HelloRef` (body: [`crate::tc::RequestRef`]) in the place of either answer. Crate `apus-auth` makes and checks them.

use prost::Message;

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Role {
    Data = 1,
    Mgmt = 2,
    /// SQL node or native client.
    Client = 3,
    /// A tool of an operator: a client that proves the node secret.
    Operator = 4,
    /// A SQL node that may arbitrate: proves the node secret, and is part of nothing else.
    Arbitrator = 5,
}

#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Must be [`MAGIC`].
    #[prost(fixed64, tag = "1")]
    pub magic: u64,
    #[prost(enumeration = "Role", tag = "2")]
    pub role: i32,
    /// Own id; 0 for a client in the request, the id given to it in the answer's `peer`.
    #[prost(uint32, tag = "3")]
    pub node: u32,
    #[prost(fixed64, tag = "4")]
    pub incarnation: u64,
    /// 0: not known yet.
    #[prost(fixed64, tag = "5")]
    pub cluster: u64,
    /// In the answer: the id by which the accepting side knows the connecting one.
    #[prost(uint32, tag = "6")]
    pub peer: u32,
    /// Which worker of the connecting node owns the link; links of equal workers are joined.
    #[prost(uint32, tag = "7")]
    pub worker: u32,
    /// In the answer: workers (LDM and TC instances) of the accepting node.
    #[prost(uint32, tag = "8")]
    pub workers: u32,
    /// For people: program and version.
    #[prost(string, tag = "9")]
    pub name: String,
    /// Of this connection alone, 32 bytes; what is proven of the link holds for no other. Empty in the last answer.
    #[prost(bytes = "vec", tag = "10")]
    pub nonce: Vec<u8>,
    /// Between data nodes: how often their link was taken up before; 0: it is to begin anew.
    #[prost(uint32, tag = "11")]
    pub number: u32,
}

/// "APUSLINK", little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"APUSLINK");
/// A hello longer than this is refused before it is decoded.
pub const HELLO_BYTES_MAX: usize = 1024;

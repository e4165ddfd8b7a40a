//! What an operator alone decides, by a management node: the end of a cluster, and that a frozen side goes on.
//!
//! ```text
//! tool --ClusterStopReq--> management node --EndOrd--> QMGR of each process that is named and linked
//!      <--ClusterStopConf-- which ones were told
//! tool --ResumeReq--> management node --ResumeOrd--> QMGR of the frozen side's acting president
//!      <--ResumeConf--                <--ResumeRep-- yes, or a numbered refusal
//! ```
//!
//! Both name what the operator has seen. If it is not so any more, nothing is done.

use prost::Message;

use crate::qmgr::Incarnation;

/// `ClusterStopReq`: these processes are to end. `ClusterStopConf`: these were told.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterStop {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    #[prost(message, repeated, tag = "3")]
    pub processes: Vec<Incarnation>,
    /// In the answer: they are all members of the newest view, so its rows are gone, and the data nodes may found the cluster again.
    #[prost(bool, tag = "4")]
    pub given_up: bool,
    /// In the answer: data is on disk, and is made durable before the nodes end.
    #[prost(bool, tag = "5")]
    pub durable: bool,
}

/// `EndOrd`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct EndOrder {
    /// Of the process that is to end; any other ignores the order.
    #[prost(fixed64, tag = "1")]
    pub incarnation: u64,
    /// Not the cluster ends but a node without which it cannot go on: the receiver serves nobody until all is on the disks.
    #[prost(bool, tag = "2")]
    pub departs: bool,
    /// All is on the disks.
    #[prost(bool, tag = "3")]
    pub saved: bool,
    /// Of the president that has it saved; an answer to another attempt says nothing.
    #[prost(fixed64, tag = "4")]
    pub attempt: u64,
    /// To a TC: it is not to be, and clients are served again.
    #[prost(bool, tag = "5")]
    pub over: bool,
    /// Of a departure: the view under which all is saved. A member with another one does not take part.
    #[prost(uint64, tag = "6")]
    pub generation: u64,
}

/// What a frozen member and those with it could go on with, and what they would abandon.
#[derive(Clone, PartialEq, Message)]
pub struct FrozenSide {
    /// Its acting president.
    #[prost(uint32, tag = "1")]
    pub leader: u32,
    /// Of the view under which it is frozen.
    #[prost(fixed64, tag = "2")]
    pub lineage: u64,
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// Full members of the view that are not on this side: they may hold what was acknowledged since.
    #[prost(message, repeated, tag = "4")]
    pub abandons: Vec<Incarnation>,
    /// Node groups of which it has no full copy.
    #[prost(uint32, repeated, tag = "5")]
    pub lacks_groups: Vec<u32>,
    /// All members on this side.
    #[prost(uint32, repeated, tag = "6")]
    pub members: Vec<u32>,
}

/// `ResumeReq`, `ResumeOrd`: go on without those. The receiver does it only if that is still exactly what it would abandon.
#[derive(Clone, PartialEq, Message)]
pub struct Resume {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    /// The side's acting president.
    #[prost(message, optional, tag = "3")]
    pub leader: Option<Incarnation>,
    /// Of the view under which the side is frozen.
    #[prost(fixed64, tag = "4")]
    pub lineage: u64,
    #[prost(uint64, tag = "5")]
    pub generation: u64,
    #[prost(message, repeated, tag = "6")]
    pub abandons: Vec<Incarnation>,
    /// The new lineage: the operator's time in microseconds, as incarnations are, so that no two are equal.
    #[prost(fixed64, tag = "7")]
    pub new_lineage: u64,
}

/// `ResumeRep`, `ResumeConf`.
#[derive(Clone, PartialEq, Message)]
pub struct ResumeAnswer {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// An [`apus_types::ErrorCode`]; 0: the view of the new lineage is proposed.
    #[prost(uint32, tag = "2")]
    pub error: u32,
    /// For people.
    #[prost(string, tag = "3")]
    pub reason: String,
}

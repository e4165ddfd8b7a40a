//! System restart: a cluster of which no process is left begins again with what is on the disks.
//!
//! ```text
//! LDM --RedoFoundRep--> QMGR of its node                        what its log holds, read back from its end
//! starting node --JoinReq(Holding)--> every node it is linked to
//! the lowest id of those that hold the newest view: everybody who is needed is there
//!    --RestoreReq(R, N)--> QMGR of each --> DICT, then LDMs of its node --> back --RestoreConf-->
//!    all of them: first view of a new lineage
//! ```
//!
//! *Who is needed*: every full member of the newest view that anybody's files know. *R*, the epoch that is restored, is the least that one of
//! them has saved: each has everything up to its own. A member whose log is not complete, or is damaged, is not needed where its node group has
//! another one; it joins afterwards, empty. *N* is above every epoch on any disk: what lies between `R` and `N` is void in every log before the first new
//! commit, so a suffix that was given up never comes back.

use prost::Message;

use crate::qmgr::Incarnation;

/// `RedoFoundRep` (LDM to QMGR).
#[derive(Clone, PartialEq, Message)]
pub struct RedoFound {
    #[prost(uint32, tag = "1")]
    pub instance: u32,
    /// There is a log of an earlier process.
    #[prost(bool, tag = "2")]
    pub exists: bool,
    /// Of its newest mark; 0: it has none.
    #[prost(uint64, tag = "3")]
    pub saved: u64,
    /// Point of the view of that mark.
    #[prost(fixed64, tag = "4")]
    pub saved_lineage: u64,
    #[prost(uint64, tag = "5")]
    pub saved_generation: u64,
    #[prost(bool, tag = "6")]
    pub complete: bool,
    #[prost(uint64, tag = "7")]
    pub complete_from: u64,
    #[prost(uint64, tag = "8")]
    pub highest: u64,
    /// For people; empty: sound as far as it was read.
    #[prost(string, tag = "9")]
    pub damage: String,
    /// A node that was amid being filled when it died: it had put back everything up to this epoch of this lineage. 0: nothing.
    #[prost(uint64, tag = "10")]
    pub base: u64,
    #[prost(fixed64, tag = "11")]
    pub base_lineage: u64,
    /// Where the log is not complete: the process that was being filled when it was begun; 0: nobody knows.
    #[prost(fixed64, tag = "12")]
    pub filling: u64,
}

/// How a node that was filled became a full member. As long as it has no mark in its log no global checkpoint has ended since, for each waits for every full member.
#[derive(Clone, PartialEq, Message)]
pub struct Promotion {
    /// Of the view that says so.
    #[prost(fixed64, tag = "1")]
    pub lineage: u64,
    /// Of the process that was filled.
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// The other full members of that view.
    #[prost(uint32, repeated, tag = "3")]
    pub beside: Vec<u32>,
}

/// What an instance of a node that starts is doing, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StartPhase {
    /// Nothing yet.
    Waits = 0,
    /// Reads its checkpoints.
    Checkpoints = 1,
    /// Reads its log.
    Log = 2,
    /// Makes ordered indexes of what it has read.
    Indexes = 3,
    /// Is sent rows by those that serve.
    Rows = 4,
}

impl StartPhase {
    pub fn name(self) -> &'static str {
        match self {
            StartPhase::Waits => "waits",
            StartPhase::Checkpoints => "checkpoints",
            StartPhase::Log => "log",
            StartPhase::Indexes => "indexes",
            StartPhase::Rows => "rows",
        }
    }
}

/// `StartRep` (LDM to QMGR): how far an instance is that puts back what is on its disk, or is being filled.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Progress {
    #[prost(uint32, tag = "1")]
    pub instance: u32,
    /// Rows from checkpoints, and changes from the log.
    #[prost(uint64, tag = "2")]
    pub loaded: u64,
    #[prost(uint64, tag = "3")]
    pub replayed: u64,
    /// Rows that came as copies; that need not; and that went because they had been deleted.
    #[prost(uint64, tag = "4")]
    pub fetched: u64,
    #[prost(uint64, tag = "5")]
    pub unchanged: u64,
    #[prost(uint64, tag = "6")]
    pub gone: u64,
    #[prost(enumeration = "StartPhase", tag = "7")]
    pub phase: i32,
    /// How much of it is done, and of how much, as far as that is known: bytes that are read, slots that are looked at.
    #[prost(uint64, tag = "8")]
    pub done: u64,
    #[prost(uint64, tag = "9")]
    pub of: u64,
}

/// `RestoreReq` (founder's QMGR to QMGR; QMGR to the DICT and LDMs of its node), and what `RestoreConf` and `RestoreRef` repeat.
#[derive(Clone, PartialEq, Message)]
pub struct Restore {
    #[prost(message, optional, tag = "1")]
    pub founder: Option<Incarnation>,
    /// The epoch that is restored.
    #[prost(uint64, tag = "2")]
    pub restored: u64,
    /// Where new epochs begin.
    #[prost(uint64, tag = "3")]
    pub begins: u64,
    /// The node with the newest dictionary.
    #[prost(uint32, tag = "4")]
    pub dictionary_from: u32,
    #[prost(uint64, tag = "5")]
    pub dictionary: u64,
    /// `RestoreRef`, for people.
    #[prost(string, tag = "6")]
    pub reason: String,
    /// Inside a node: who answers.
    #[prost(uint32, tag = "7")]
    pub instance: u32,
    /// A single node, beside a cluster of this lineage that lives; 0: a cluster of which nobody lives.
    #[prost(fixed64, tag = "8")]
    pub lineage: u64,
    /// Full members that the arbitrator has fenced, and that the founder does without.
    #[prost(uint32, repeated, tag = "9")]
    pub without: Vec<u32>,
}

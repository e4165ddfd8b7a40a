//! Switchover: a planned change of the primaries, between views, that no client notices but for a pause.
//!
//! ```text
//! president's QMGR --SwitchReq(chains)--> every TC and LDM of all members      "let nobody new use these chains, say when the last has left"
//!   TC  --SwitchConf--> president     no transaction of ours holds anything on them, and none will before a new view (or SwitchEndOrd)
//!   LDM --SwitchConf--> president     this node can serve what it is to be primary of
//!   either --SwitchRef--> president   not now
//! president  all have confirmed: the view with the new chains, agreed as any other
//!            one has refused, or the time is over: --SwitchEndOrd--> all; tried again later
//! ```
//!
//! Everything names the generation of the view that is to be changed. A new view, whichever it is, ends the matter for who has it: a
//! confirmation is a promise for that generation only. The promise is kept until then, so a president that has all of them may propose
//! the chains, and whoever finishes the proposal in its place may do so too.

use prost::Message;

/// `SwitchReq`.
#[derive(Clone, PartialEq, Message)]
pub struct Switch {
    /// The committed view.
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// The president's number for the attempt.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The chains that are to be, one per partition, packed as in the view.
    #[prost(fixed32, repeated, tag = "3")]
    pub chains: Vec<u32>,
    /// The node that the view is to be without, 0 for none: its TCs wait for all that they coordinate.
    #[prost(uint32, tag = "4")]
    pub leaver: u32,
}

/// `SwitchConf`, `SwitchRef`, `SwitchEndOrd`.
#[derive(Clone, PartialEq, Message)]
pub struct SwitchAnswer {
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// Of a refusal; for people.
    #[prost(string, tag = "3")]
    pub reason: String,
}

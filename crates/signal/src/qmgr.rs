//! Membership: heartbeats, joining, the two-phase change of the view, president take-over, arbitration.
//!
//! ```text
//! every member --HeartbeatRep--> every other member
//! joining node --JoinReq--> anyone: JoinRef names the president     (again and again until it is a member)
//!              --JoinReq--> president: JoinConf "copy my dictionary", then JoinReq with `dictionary_from` -> view change
//!              (in between, if it has a disk of this lineage: it puts back what is there, and says up to which epoch)
//! member       --FailRep--> all members: a node does not answer, or its link closed; again to the acting president
//! president    --ViewPrepReq--> every survivor and joiner --ViewPrepConf--> president
//! president    --ArbitReq--> management node --ArbitConf--> president      (only when exactly half is left)
//! president    --ViewCommitOrd--> every member
//! frozen       --GiveWayReq--> frozen member of another side --ViewPrepConf, ViewPrepRef-->: body as `ViewPrepReq`, a view without the receiver
//! frozen       --PresTakeOverReq, GiveWayReq--> starting process that speaks for a dead member (`JoinReq::speaks_for`): as above
//! ```
//!
//! The change of a view is agreed as in Paxos, one instance per generation: a proposal carries a ballot, a member remembers the
//! highest ballot it has promised and the proposal it has accepted. Who takes over from a dead president first asks all it can
//! reach (`PresTakeOverReq`), adopts what is committed, and finishes an accepted proposal before it makes one of its own. What
//! takes the place of the majority is the survival rule (see the QMGR block).
//!
//! If the answer to any of these is lost, its link is lost too, and the link's loss is handled as a failure.

use prost::Message;

use crate::{
    codec::{DecodeError, Put, Reader},
    restart::Promotion,
    view::View,
};

/// Proposals are numbered `attempt << BALLOT_SHIFT | node`, so that no two nodes use the same number.
pub const BALLOT_SHIFT: u32 = 16;

/// One start of one node's process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Incarnation {
    #[prost(uint32, tag = "1")]
    pub node: u32,
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
}

impl Incarnation {
    pub fn of(node: apus_types::NodeId, incarnation: u64) -> Self {
        Incarnation { node: node.0.into(), incarnation }
    }
}

/// `HeartbeatRep`.
#[derive(Clone, PartialEq, Message)]
pub struct Heartbeat {
    /// Committed view of the sender.
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// Management nodes that the sender has a working link to.
    #[prost(message, repeated, tag = "3")]
    pub mgmts: Vec<Incarnation>,
    /// The sender's clock, in nanoseconds.
    #[prost(fixed64, tag = "4")]
    pub clock: u64,
    /// Longest lateness of the sender's own ticks lately, in nanoseconds.
    #[prost(uint64, tag = "5")]
    pub late_ns: u64,
    /// `clock` of the last heartbeat that the sender had from the receiver; 0: none yet.
    #[prost(fixed64, tag = "6")]
    pub echo: u64,
    /// The sender will not hold the receiver for silent before it has not heard it for so long since that heartbeat.
    #[prost(uint64, tag = "7")]
    pub promise_ns: u64,
    /// For so long the sender has heard too few to go on: it has given up what it was promised, and serves no client. 0: it hears enough.
    #[prost(uint64, tag = "8")]
    pub quorum_lost_ns: u64,
    /// A data worker of the sender has been in one turn for long.
    #[prost(bool, tag = "13")]
    pub stuck: bool,
    /// Others wait for long for the sender's answer to a commit, and an epoch for them.
    #[prost(bool, tag = "14")]
    pub holds_epoch: bool,
    /// How long a signal waits for the sender's data workers, nanoseconds.
    #[prost(uint64, tag = "15")]
    pub delay_ns: u64,
    /// Members of whom nothing has come for half the limit of silence.
    #[prost(uint32, repeated, tag = "16")]
    pub unheard: Vec<u32>,
    /// Members to whom a link of the sender waits for a connection.
    #[prost(uint32, repeated, tag = "17")]
    pub unlinked: Vec<u32>,
    /// The sender may not go on from this generation: it serves no client and waits (see the QMGR block, `freeze`).
    #[prost(bool, tag = "12")]
    pub frozen: bool,
}

/// What a starting node has on its disk of an earlier cluster; see [`crate::restart`].
#[derive(Clone, PartialEq, Message)]
pub struct Holding {
    /// The newest committed view that its files know.
    #[prost(message, optional, tag = "1")]
    pub view: Option<View>,
    /// Everything up to this epoch is there; meaningful where `complete` is set.
    #[prost(uint64, tag = "2")]
    pub saved: u64,
    /// Its logs hold all that the cluster had, from `complete_from` on: it was a full member when they were begun, or became one since.
    #[prost(bool, tag = "3")]
    pub complete: bool,
    /// Nothing from before this epoch can be told apart from what came later.
    #[prost(uint64, tag = "4")]
    pub complete_from: u64,
    /// No epoch on its disk is above.
    #[prost(uint64, tag = "5")]
    pub highest: u64,
    /// Version of its dictionary.
    #[prost(uint64, tag = "6")]
    pub dictionary: u64,
    /// What is wrong with its files, for people; empty: nothing that is known.
    #[prost(string, tag = "7")]
    pub damage: String,
    /// Where it is not complete: how the process that was filled became a full member, if it did.
    #[prost(message, optional, tag = "8")]
    pub promotion: Option<Promotion>,
    /// Later views that its files know to have been accepted, and cannot know to have been committed.
    #[prost(message, repeated, tag = "9")]
    pub accepted: Vec<View>,
    /// The synced file of views is damaged: there may have been others.
    #[prost(bool, tag = "10")]
    pub views_are_damaged: bool,
}

impl Holding {
    /// A cluster may start from it.
    pub fn is_whole(&self) -> bool {
        self.complete && self.damage.is_empty()
    }
}

/// `JoinReq`: sent by a starting node to every linked data node until it is a member.
#[derive(Clone, PartialEq, Message)]
pub struct JoinReq {
    #[prost(uint32, tag = "1")]
    pub node: u32,
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// `host:port` where the node accepts links.
    #[prost(string, tag = "3")]
    pub address: String,
    /// LDM and TC instances.
    #[prost(uint32, tag = "4")]
    pub instances: u32,
    #[prost(fixed64, tag = "5")]
    pub cluster: u64,
    /// Processes of data nodes that the joining node has links to, at both ends as far as it knows.
    #[prost(message, repeated, tag = "6")]
    pub linked: Vec<Incarnation>,
    /// Node whose dictionary the joining node has copied; 0 for none.
    #[prost(uint32, tag = "7")]
    pub dictionary_from: u32,
    /// Incarnation of that node.
    #[prost(fixed64, tag = "8")]
    pub dictionary_incarnation: u64,
    /// It was a member and founds no new cluster.
    #[prost(bool, tag = "9")]
    pub rejoins: bool,
    /// The process before this one, where it has kept what that one accepted and promised, and speaks for it; 0: none.
    #[prost(fixed64, tag = "10")]
    pub speaks_for: u64,
    /// What is on its disk, if that may be needed.
    #[prost(message, optional, tag = "11")]
    pub holding: Option<Holding>,
    /// It has put back everything up to this epoch from its own disk; 0: nothing.
    #[prost(uint64, tag = "12")]
    pub restored: u64,
    /// As this lineage had it.
    #[prost(fixed64, tag = "13")]
    pub restored_lineage: u64,
}

/// `JoinConf` (copy the dictionary of `president`, then ask again) and `JoinRef` (not now: see `error`).
#[derive(Clone, PartialEq, Message)]
pub struct JoinAnswer {
    /// 0: the answering node is itself starting and knows of no cluster.
    #[prost(uint32, tag = "1")]
    pub president: u32,
    #[prost(fixed64, tag = "2")]
    pub president_incarnation: u64,
    /// An [`apus_types::ErrorCode`], 0 for none.
    #[prost(uint32, tag = "3")]
    pub error: u32,
    /// For people.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// `JoinConf`: point of the president's view.
    #[prost(fixed64, tag = "5")]
    pub lineage: u64,
    #[prost(uint64, tag = "6")]
    pub generation: u64,
}

/// `ViewPrepReq`.
#[derive(Clone, PartialEq, Message)]
pub struct ViewPrep {
    #[prost(uint64, tag = "1")]
    pub ballot: u64,
    /// The proposal.
    #[prost(message, optional, tag = "2")]
    pub view: Option<View>,
    /// The committed view it follows; none at the first start.
    #[prost(message, optional, tag = "3")]
    pub base: Option<View>,
    /// Nodes the president holds for failed: the receiver does so too from now on.
    #[prost(message, repeated, tag = "4")]
    pub failed: Vec<Incarnation>,
}

/// `ViewPrepConf`; `ViewPrepRef` (a higher ballot was promised, or a newer view is committed).
#[derive(Clone, PartialEq, Message)]
pub struct ViewPrepAnswer {
    #[prost(uint64, tag = "1")]
    pub ballot: u64,
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// In a refusal.
    #[prost(uint64, tag = "3")]
    pub promised: u64,
    /// In a refusal: the newer view, where there is one.
    #[prost(message, optional, tag = "4")]
    pub committed: Option<View>,
}

/// `ViewCommitOrd`.
#[derive(Clone, PartialEq, Message)]
pub struct ViewCommit {
    #[prost(message, optional, tag = "1")]
    pub view: Option<View>,
}

/// `ViewCommitConf`: the sender executes this view.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ViewCommitConf {
    #[prost(uint64, tag = "1")]
    pub generation: u64,
}

/// `PresTakeOverReq`.
#[derive(Clone, PartialEq, Message)]
pub struct PresTakeOverReq {
    #[prost(uint64, tag = "1")]
    pub ballot: u64,
    /// Committed view of the sender.
    #[prost(message, optional, tag = "2")]
    pub committed: Option<View>,
    #[prost(message, repeated, tag = "3")]
    pub failed: Vec<Incarnation>,
}

/// `PresTakeOverConf`.
#[derive(Clone, PartialEq, Message)]
pub struct PresTakeOverConf {
    #[prost(uint64, tag = "1")]
    pub ballot: u64,
    #[prost(message, optional, tag = "2")]
    pub committed: Option<View>,
    /// Accepted for the generation after `committed`.
    #[prost(message, optional, tag = "3")]
    pub prepared: Option<View>,
    #[prost(uint64, tag = "4")]
    pub prepared_ballot: u64,
    /// Of a frozen member: whom it holds for failed, so with whom it may have lost signals.
    #[prost(message, repeated, tag = "5")]
    pub failed: Vec<Incarnation>,
}

/// `ArbitReq`: may these go on without those? Generation 0 asks for a start without all configured nodes.
#[derive(Clone, PartialEq, Message)]
pub struct ArbitReq {
    #[prost(fixed64, tag = "1")]
    pub cluster: u64,
    /// Committed view of the asking side.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    #[prost(message, optional, tag = "3")]
    pub asker: Option<Incarnation>,
    #[prost(message, repeated, tag = "4")]
    pub side: Vec<Incarnation>,
    #[prost(message, repeated, tag = "5")]
    pub others: Vec<Incarnation>,
    /// Echoed in the answer.
    #[prost(uint64, tag = "6")]
    pub question: u64,
    /// The management process that the committed view names. Another one says no. Not looked at for generation 0.
    #[prost(fixed64, tag = "7")]
    pub arbitrator_incarnation: u64,
    /// For so long the others may rely on the asker's promise not to hold them for silent, in ns: the answer need not wait longer for
    /// them to give up their leases.
    #[prost(uint64, tag = "8")]
    pub promise_ns: u64,
    /// Of the asking side's view, see [`View::lineage`].
    #[prost(fixed64, tag = "9")]
    pub lineage: u64,
    /// The view that is to follow has none of the others as a full member.
    #[prost(bool, tag = "10")]
    pub without_others: bool,
}

/// `ArbitConf`.
#[derive(Clone, PartialEq, Message)]
pub struct ArbitConf {
    #[prost(uint64, tag = "1")]
    pub question: u64,
    #[prost(bool, tag = "2")]
    pub granted: bool,
    /// For people.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// In a refusal: a later view without the asker is known to be committed. Otherwise the asker keeps what it has, and asks again.
    #[prost(bool, tag = "4")]
    pub gone_on: bool,
}

/// `FailRep`: the sender holds this incarnation for failed.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct FailRep {
    #[prost(message, optional, tag = "1")]
    pub failed: Option<Incarnation>,
    /// Because another member said so, and not because its own link was lost.
    #[prost(bool, tag = "2")]
    pub hearsay: bool,
    /// Of the sender's view.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
}

/// `StopOrd`: the receiver was removed from the cluster, or an operator stops it.
#[derive(Clone, PartialEq, Message)]
pub struct StopOrd {
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The incarnation meant; any other ignores the order, and 0 is nobody's.
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// See [`View::lineage`]: of the view that goes on without the receiver.
    #[prost(fixed64, tag = "3")]
    pub lineage: u64,
}

/// `LeaveReq` (a member to the acting president): it wants to go. `LeaveRef`: it cannot go in order.
#[derive(Clone, PartialEq, Message)]
pub struct Leave {
    /// Of the member.
    #[prost(fixed64, tag = "1")]
    pub incarnation: u64,
    /// Of a refusal; for people.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Of a wish: by whoever runs the process, who means it whether or not the others can go on.
    #[prost(bool, tag = "3")]
    pub ordered: bool,
    /// To all members: the process could not go in order in time, and ends now.
    #[prost(bool, tag = "4")]
    pub ends: bool,
}

/// `LeaseEndReq` (QMGR of a member, or the arbitrator): others go on without the receiver; it is to serve its clients no more.
/// `LeaseEndConf`: none of its workers does.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseEnd {
    /// Of the process that is asked.
    #[prost(fixed64, tag = "1")]
    pub incarnation: u64,
}

/// `RecoveredRep` (COPY of a primary to the president's QMGR): the recovering node has all rows of these partitions.
#[derive(Clone, PartialEq, Message)]
pub struct RecoveredRep {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Incarnation>,
    #[prost(uint32, repeated, tag = "2")]
    pub partitions: Vec<u32>,
}

/// `LinkUpRep`, `LinkDownRep`, `LinkSuspendedRep`, `LinkResumedRep` (executor to QMGR): `node u16, worker u8, incarnation u64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRep {
    pub node: apus_types::NodeId,
    pub worker: u8,
    pub incarnation: u64,
}

impl LinkRep {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.node.0);
        out.put_u8(self.worker);
        out.put_u64(self.incarnation);
    }
    pub fn decode(body: &[u8]) -> Result<LinkRep, DecodeError> {
        let mut r = Reader::new(body);
        Ok(LinkRep { node: apus_types::NodeId(r.u16()?), worker: r.u8()?, incarnation: r.u64()? })
    }
}

/// Decodes any prost message of a control conversation.
pub fn decode<M: Message + Default>(body: &[u8]) -> Result<M, DecodeError> {
    M::decode(body).map_err(|_| DecodeError)
}

/// Appends any prost message.
///
/// # Panics
/// Never: a `Vec` grows.
pub fn encode<M: Message>(message: &M, out: &mut Vec<u8>) {
    message.encode(out).expect("a Vec has room");
}

/// A view inside another message, checked like one that came alone.
pub fn checked_view(view: Option<View>) -> Result<Option<View>, DecodeError> {
    match view {
        Some(view) if view.check() => Ok(Some(view)),
        Some(_) => Err(DecodeError),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_reports_round_trip_and_refuse() {
        let rep = LinkRep { node: apus_types::NodeId(7), worker: 3, incarnation: u64::MAX - 1 };
        let mut out = Vec::new();
        rep.encode(&mut out);
        assert_eq!(LinkRep::decode(&out), Ok(rep));
        assert_eq!(LinkRep::decode(&out[..5]), Err(DecodeError));
    }

    #[test]
    fn a_view_inside_a_message_is_checked() {
        let bad = View { generation: 1, instances: 0, ..View::default() };
        let mut out = Vec::new();
        encode(&ViewCommit { view: Some(bad) }, &mut out);
        let message = decode::<ViewCommit>(&out).unwrap();
        assert_eq!(checked_view(message.view), Err(DecodeError));
        assert_eq!(decode::<ViewCommit>(&[0xff, 1, 2]), Err(DecodeError));
    }
}

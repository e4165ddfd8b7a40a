//! The envelope, block addresses and signal numbers.
//!
//! ```text
//! 0 length u32 (envelope and body) | 4 kind u16 | 6 version u8 | 7 flags u8 | 8 to u32 | 12 from u32 | 16 epoch u64 | 24 trace u32 | 28 generation u32
//! | 32 body
//! ```

use apus_types::{Epoch, NodeId, limits::SIGNAL_BYTES_MAX};

use crate::codec::DecodeError;

/// Version of this protocol; a peer with another major form is refused at the hello.
pub const PROTOCOL_VERSION: u8 = 14;
/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 32;

/// The blocks of DESIGN section 4, plus the ends of client links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum BlockId {
    /// The executor itself: link hello and link-level refusals.
    Link = 0,
    Qmgr = 1,
    Dih = 2,
    Dict = 3,
    Tc = 4,
    Ldm = 5,
    Copy = 6,
    Cntr = 7,
    /// Management node.
    Mgmt = 8,
    /// A native client behind a client link.
    Client = 9,
}

impl BlockId {
    pub const COUNT: usize = 10;
    const ALL: [BlockId; BlockId::COUNT] = [
        BlockId::Link,
        BlockId::Qmgr,
        BlockId::Dih,
        BlockId::Dict,
        BlockId::Tc,
        BlockId::Ldm,
        BlockId::Copy,
        BlockId::Cntr,
        BlockId::Mgmt,
        BlockId::Client,
    ];
    #[inline]
    pub fn from_u8(n: u8) -> Option<BlockId> {
        BlockId::ALL.get(usize::from(n)).copied()
    }
}

/// Address of a block instance. Packed as `node << 16 | block << 8 | instance`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRef {
    pub node: NodeId,
    pub block: BlockId,
    pub instance: u8,
}

impl BlockRef {
    /// Instance of the blocks that run on a node's control worker, however many data workers it has.
    pub const CONTROL: u8 = u8::MAX;
    pub fn new(node: NodeId, block: BlockId, instance: u8) -> BlockRef {
        BlockRef { node, block, instance }
    }
    #[inline]
    pub fn to_u32(self) -> u32 {
        u32::from(self.node.0) << 16 | u32::from(self.block as u8) << 8 | u32::from(self.instance)
    }
    #[inline]
    pub fn from_u32(n: u32) -> Option<BlockRef> {
        Some(BlockRef { node: NodeId((n >> 16) as u16), block: BlockId::from_u8((n >> 8) as u8)?, instance: n as u8 })
    }
}

impl std::fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:?}.{}", self.node, self.block, self.instance)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Signal numbers: append-only; a retired number is never given out again. `Req` asks, `Conf` confirms, `Ref` refuses,
        /// `Ord` orders without an answer, `Rep` reports. The body of each is in the module of its conversation.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $number,)* }
        impl Kind {
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];
            /// By number: decoded with every signal.
            const BY_NUMBER: [Option<Kind>; 256] = {
                let mut table = [None; 256];
                $(table[$number] = Some(Kind::$name);)*
                table
            };
            #[inline]
            pub fn from_u16(n: u16) -> Option<Kind> {
                *Kind::BY_NUMBER.get(usize::from(n))?
            }
        }
    };
}

kinds! {
    // Links: module `hello`.
    HelloReq = 1;
    HelloConf = 2;
    HelloRef = 3;
    /// A request that could not be routed or decoded; body as `tc::RequestRef`.
    RequestRef = 4;
    PingReq = 5;
    PingConf = 6;
    HelloProofReq = 7;
    HelloProofConf = 8;
    /// First on each connection between data nodes: own session, the other's, bytes received in it, `u64` each. See the kernel's `session`.
    LinkOpenOrd = 9;
    /// Bytes received, `u64`.
    LinkAckOrd = 10;
    /// Inside a node: the connection of a link to a member was lost, and another is dialled; body as `LinkDownRep`.
    LinkSuspendedRep = 11;
    /// Inside a node: the link goes on where it was.
    LinkResumedRep = 12;

    // Clients to LDM, past the coordinator: modules `key_read`, `scan`.
    ReadReq = 16;
    ReadConf = 17;
    ScanReq = 18;
    ScanConf = 19;
    // Clients to DIH: module `epoch`.
    SnapshotReq = 20;
    SnapshotConf = 21;
    SnapshotEndOrd = 22;

    // Clients to TC: module `tc`.
    TcBatchReq = 32;
    TcBatchConf = 33;
    TcBatchRef = 34;
    TcCommitReq = 35;
    TcCommitConf = 36;
    TcRollbackReq = 37;
    TcRollbackConf = 38;
    TcOutcomeReq = 39;
    TcOutcomeConf = 40;
    /// The client link of a client with open transactions was lost (executor to TC).
    ClientGoneRep = 41;
    /// TC to TC: see `tc::DeadlockProbe`.
    DeadlockProbeOrd = 42;
    /// A client link stands (executor to TC): its node id (u16) and the client's id (u64) as the hello named it.
    ClientUpRep = 43;
    /// Client to TC instance 0 of a node, then to the LDMs of that node: see `tc::TcFloor`.
    TcFloorOrd = 44;
    /// A node to a client: what it executed for it when it panicked, `tc::LastWords`. Between its workers: with the client in front.
    LastWordsRep = 45;

    // TC and LDM: module `ldm`.
    LdmBatchReq = 64;
    LdmBatchConf = 65;
    LdmBatchRef = 66;
    LdmPrepareReq = 67;
    LdmPreparedConf = 68;
    LdmPreparedRef = 69;
    LdmCommitOrd = 70;
    LdmCommittedConf = 71;
    LdmCompleteOrd = 72;
    LdmAbortOrd = 73;
    LdmAbortConf = 74;
    LdmWaitRep = 75;
    /// LDM to itself: continue sliced work.
    LdmContinueOrd = 76;
    /// TC to itself: continue sliced work.
    TcContinueOrd = 77;

    // Take-over: module `takeover`.
    TakeOverTransRep = 96;
    TakeOverEndRep = 97;
    OutcomeReq = 98;
    OutcomeConf = 99;

    // Epochs: module `epoch`.
    EpochOrd = 100;
    EpochDrainedRep = 101;
    /// DIH to the TC and LDM instances of its node, and their answer.
    DrainReq = 102;
    DrainConf = 103;
    EpochFloorReq = 104;
    EpochFloorConf = 105;
    /// DIH to itself: the next round is due.
    EpochContinueOrd = 106;

    // Global checkpoints: module `gcp`.
    GcpSaveReq = 107;
    GcpSaveConf = 108;
    GcpSaveRef = 109;
    GcpHurryOrd = 110;

    // Node recovery: module `copy`.
    CopyFragReq = 112;
    CopyFragConf = 113;
    CopyFragRef = 114;
    CopyRowsOrd = 115;
    CopyRowsConf = 116;
    CopyOutcomesOrd = 117;

    // Membership: modules `view`, `qmgr`.
    HeartbeatRep = 128;
    JoinReq = 129;
    JoinConf = 130;
    JoinRef = 131;
    ViewPrepReq = 132;
    ViewPrepConf = 133;
    ViewPrepRef = 134;
    ViewCommitOrd = 135;
    ViewCommitConf = 136;
    PresTakeOverReq = 137;
    PresTakeOverConf = 138;
    ArbitReq = 139;
    ArbitConf = 140;
    /// Inside a node: a link to a member was lost (executor to QMGR).
    LinkDownRep = 141;
    LinkUpRep = 142;
    /// Inside a node: the committed view, to every block instance; body `view::View`.
    ViewOrd = 143;
    // 144: was EpochRep.
    RecoveredRep = 145;
    FailRep = 146;
    StopOrd = 147;
    SuspectRep = 148;
    LeaseEndReq = 149;
    LeaseEndConf = 150;
    // A cluster begins again with what is on the disks: module `restart`.
    RestoreReq = 152;
    RestoreConf = 153;
    RestoreRef = 155;
    /// Inside a node: what an LDM's log holds (LDM to QMGR).
    RedoFoundRep = 172;
    /// Inside a node: how far an LDM is with what is on its disk, or comes as copies.
    StartRep = 195;
    /// Inside a node: DIH has QMGR and DICT make their files durable before a global checkpoint counts; both bodies `gcp::Keep`.
    KeepReq = 173;
    KeepConf = 174;
    /// Inside a node: how the disk of a log does (LDM to QMGR); body: `file::DiskRep`.
    DiskRep = 175;
    /// Inside a node: a data worker makes no rounds (watchdog to QMGR); body: worker `u8`, ticks `u32`, 0: it does again.
    WorkerStuckRep = 154;
    // Moving primaries: module `switchover`.
    SwitchReq = 156;
    SwitchConf = 157;
    SwitchRef = 158;
    SwitchEndOrd = 159;
    /// Frozen member to a frozen member of another side: module `qmgr`.
    GiveWayReq = 151;

    // Leaving: module `qmgr`.
    /// Inside a node: the process was asked to end (executor to QMGR); the node has left (QMGR to TC and LDM).
    LeaveOrd = 168;
    /// Member to the acting president, in a cluster that ends, or that a node is to leave which it cannot spare: it serves nobody any more; body `operator::EndOrder`.
    EndReadyRep = 163;
    LeaveReq = 169;
    LeaveRef = 170;
    /// TC or LDM to the QMGR of the member it waits for, or to its own: an epoch does not end; [`crate::epoch::EpochLate`].
    EpochLateRep = 171;

    // The map for clients: module `view`.
    MapReq = 160;
    MapConf = 161;
    /// Pushed to clients that asked once, whenever the view changes; body as MapConf.
    MapRep = 162;

    // Dictionary: module `dict`.
    DictReadReq = 176;
    DictReadConf = 177;
    DictReadRef = 178;
    SchemaReq = 179;
    SchemaConf = 180;
    SchemaRef = 181;
    SchemaPrepReq = 182;
    SchemaPrepConf = 183;
    SchemaPrepRef = 184;
    SchemaCommitOrd = 185;
    SchemaCommitConf = 186;
    SchemaAbortOrd = 187;
    /// Inside a node: dictionary to LDM and TC instances.
    TableOrd = 188;
    TableConf = 189;
    DictCopyReq = 190;
    DictCopyConf = 191;
    /// Pushed to clients: the schema version changed.
    SchemaRep = 192;
    TableRef = 193;
    /// DICT of a member to that of a new president: its version and what it has prepared; body `dict::SchemaState`.
    SchemaStateRep = 194;

    // Management: module `mgmt`.
    ConfigReq = 208;
    ConfigConf = 209;
    StatusReq = 210;
    StatusConf = 211;
    NodeStatusReq = 212;
    NodeStatusConf = 213;
    RegisterRep = 214;
    ConfigRef = 215;
    /// An operator's change of a setting, its answer when it has been passed on, and what a management node passes on to QMGR; body
    /// `mgmt::Setting`.
    SettingReq = 216;
    SettingConf = 217;
    SettingOrd = 218;
    /// An operator ends the cluster, and what a management node passed on; body `operator::ClusterStop`.
    ClusterStopReq = 219;
    ClusterStopConf = 220;
    /// To QMGR: the process ends; to a TC: it may commit nothing more; body `operator::EndOrder`.
    EndOrd = 221;
    /// An operator makes a frozen side go on, and the answer of the node that is to do it; bodies `operator::Resume`, `operator::ResumeAnswer`.
    ResumeReq = 222;
    ResumeConf = 223;
    /// The request as a management node passes it on to QMGR, and QMGR's answer to it.
    ResumeOrd = 226;
    ResumeRep = 227;

    // Inside a node, executor to the block that asked: module `file`.
    FileConf = 224;
    FileRef = 225;
    DiskConf = 228;
    DiskRef = 229;
}

/// What travels with every signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub kind: Kind,
    pub to: BlockRef,
    pub from: BlockRef,
    /// The sender's epoch: a receiver that knows a lower one adopts it before it executes the signal.
    pub epoch: Epoch,
    /// Follows a request through every block and node; 0 when not traced.
    pub trace: u32,
    /// Of the newest view that the sender's worker knows; 0: none. A client that knows a newer view without that process takes no answer of it.
    /// From a client: of the newest view in which a batch of it was answered.
    pub generation: u32,
}

impl Envelope {
    /// Appends envelope and body; `write` appends the body.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        let mut head = [0u8; ENVELOPE_BYTES];
        head[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        head[6] = PROTOCOL_VERSION;
        head[8..12].copy_from_slice(&self.to.to_u32().to_le_bytes());
        head[12..16].copy_from_slice(&self.from.to_u32().to_le_bytes());
        head[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[24..28].copy_from_slice(&self.trace.to_le_bytes());
        head[28..32].copy_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&head);
        write(out);
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Length in bytes of the frame at the start of `bytes`: `Ok(None)` when even the envelope is incomplete.
///
/// # Errors
/// A length below an envelope's or above the limit: the stream cannot be followed any further.
#[inline]
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if !(ENVELOPE_BYTES..=ENVELOPE_BYTES + SIGNAL_BYTES_MAX).contains(&length) {
        return Err(DecodeError);
    }
    Ok(Some(length))
}

/// Splits one whole frame into envelope and body.
///
/// # Errors
/// Unknown version, kind or block.
#[inline]
pub fn decode_frame(frame: &[u8]) -> Result<(Envelope, &[u8]), DecodeError> {
    let (head, body) = frame.split_first_chunk::<ENVELOPE_BYTES>().ok_or(DecodeError)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if head[6] != PROTOCOL_VERSION {
        return Err(DecodeError);
    }
    let envelope = Envelope {
        kind: Kind::from_u16(u16::from_le_bytes([head[4], head[5]])).ok_or(DecodeError)?,
        to: BlockRef::from_u32(word(8)).ok_or(DecodeError)?,
        from: BlockRef::from_u32(word(12)).ok_or(DecodeError)?,
        epoch: Epoch(long(16)),
        trace: word(24),
        generation: word(28),
    };
    Ok((envelope, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_refuse() {
        let envelope = Envelope {
            kind: Kind::ReadReq,
            to: BlockRef::new(NodeId(2), BlockId::Ldm, 3),
            from: BlockRef::new(NodeId(0x8001), BlockId::Client, 0),
            epoch: Epoch(7),
            trace: u32::MAX,
            generation: 77,
        };
        let mut out = Vec::new();
        envelope.encode(&mut out, |b| b.extend_from_slice(b"body"));
        assert_eq!(frame_length(&out), Ok(Some(36)));
        assert_eq!(decode_frame(&out), Ok((envelope, &b"body"[..])));
        assert_eq!(frame_length(&[1, 0]), Ok(None));
        assert_eq!(frame_length(&[31, 0, 0, 0]), Err(DecodeError));
        assert_eq!(frame_length(&[0, 0, 0, 2]), Err(DecodeError));
        assert!(Kind::ALL.iter().all(|&kind| Kind::from_u16(kind as u16) == Some(kind)));
        assert!((0..=u8::MAX).all(|n| BlockId::from_u8(n).is_none_or(|block| block as u8 == n)));
        for i in 0..32 {
            let mut bad = out.clone();
            bad[i] = 0xee;
            let _ = decode_frame(&bad);
        }
    }
}

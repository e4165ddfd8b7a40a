//! Bodies of signals as text with the names of their fields, for crash reports.

use std::fmt::Debug;

use prost::Message;

use crate::{
    Kind, Reader,
    codec::DecodeError,
    copy::{CopyFrag, CopyOutcomesOrd, CopyRowsConf, CopyRowsOrd},
    dict,
    epoch::{Drained, EpochFloor, EpochOrd, SnapshotConf, SnapshotReq},
    gcp::{GcpHurry, GcpSave, Keep},
    key_read::{ReadConf, ReadReq},
    ldm::{LdmBatchConf, LdmBatchRef, LdmBatchReq, LdmEnd, LdmPrepareReq, LdmPrepared, LdmWaitRep},
    mgmt, operator,
    qmgr::{self, LinkRep},
    restart,
    scan::{ScanConf, ScanReq},
    switchover,
    takeover::{OutcomeSignal, TakeOverEndRep, TakeOverTransRep},
    tc::{DeadlockProbe, RequestRef, TcBatchConf, TcBatchReq, TcEndConf, TcEndReq, TcOutcomeConf, TcOutcomeReq},
    view::{ClusterMap, MapReq, View},
};

/// The fields of a body; `None` where it does not decode, for instance because not all of it was kept.
pub fn describe(kind: Kind, body: &[u8]) -> Option<String> {
    match kind {
        Kind::RequestRef | Kind::TcBatchRef | Kind::DictReadRef | Kind::SchemaRef | Kind::ConfigRef => {
            fixed(RequestRef::decode(body))
        }
        Kind::ReadReq => fixed(ReadReq::decode(body)),
        Kind::ReadConf => fixed(ReadConf::decode(body)),
        Kind::ScanReq => fixed(ScanReq::decode(body)),
        Kind::ScanConf => fixed(ScanConf::decode(body)),
        Kind::SnapshotReq | Kind::SnapshotEndOrd => fixed(SnapshotReq::decode(body)),
        Kind::SnapshotConf => fixed(SnapshotConf::decode(body)),
        Kind::TcBatchReq => fixed(TcBatchReq::decode(body)),
        Kind::TcBatchConf => fixed(TcBatchConf::decode(body)),
        Kind::TcCommitReq | Kind::TcRollbackReq => fixed(TcEndReq::decode(body)),
        Kind::TcCommitConf | Kind::TcRollbackConf => fixed(TcEndConf::decode(body)),
        Kind::TcOutcomeReq => fixed(TcOutcomeReq::decode(body)),
        Kind::TcOutcomeConf => fixed(TcOutcomeConf::decode(body)),
        Kind::DeadlockProbeOrd => fixed(DeadlockProbe::decode(body)),
        Kind::ClientGoneRep => fixed(Reader::new(body).u16()),
        Kind::LdmBatchReq => fixed(LdmBatchReq::decode(body)),
        Kind::LdmBatchConf => fixed(LdmBatchConf::decode(body)),
        Kind::LdmBatchRef => fixed(LdmBatchRef::decode(body)),
        Kind::LdmPrepareReq => fixed(LdmPrepareReq::decode(body)),
        Kind::LdmPreparedConf | Kind::LdmPreparedRef => fixed(LdmPrepared::decode(body)),
        Kind::LdmCommitOrd | Kind::LdmCommittedConf | Kind::LdmCompleteOrd | Kind::LdmAbortOrd | Kind::LdmAbortConf => {
            fixed(LdmEnd::decode(body))
        }
        Kind::LdmWaitRep => fixed(LdmWaitRep::decode(body)),
        Kind::TakeOverTransRep => fixed(TakeOverTransRep::decode(body)),
        Kind::TakeOverEndRep => fixed(TakeOverEndRep::decode(body)),
        Kind::OutcomeReq | Kind::OutcomeConf => fixed(OutcomeSignal::decode(body)),
        Kind::EpochOrd | Kind::DrainReq => fixed(EpochOrd::decode(body)),
        Kind::EpochDrainedRep | Kind::DrainConf => fixed(Drained::decode(body)),
        Kind::GcpSaveReq | Kind::GcpSaveConf | Kind::GcpSaveRef => fixed(GcpSave::decode(body)),
        Kind::GcpHurryOrd => fixed(GcpHurry::decode(body)),
        Kind::KeepReq | Kind::KeepConf => fixed(Keep::decode(body)),
        Kind::EpochFloorReq | Kind::EpochFloorConf => fixed(EpochFloor::decode(body)),
        Kind::CopyFragReq | Kind::CopyFragConf | Kind::CopyFragRef => fixed(CopyFrag::decode(body)),
        Kind::CopyRowsOrd => fixed(CopyRowsOrd::decode(body)),
        Kind::CopyOutcomesOrd => fixed(CopyOutcomesOrd::decode(body)),
        Kind::CopyRowsConf => fixed(CopyRowsConf::decode(body)),
        Kind::LinkDownRep | Kind::LinkUpRep | Kind::LinkSuspendedRep | Kind::LinkResumedRep => {
            fixed(LinkRep::decode(body))
        }
        _ => describe_message(kind, body),
    }
}

fn describe_message(kind: Kind, body: &[u8]) -> Option<String> {
    match kind {
        Kind::HeartbeatRep => message::<qmgr::Heartbeat>(body),
        Kind::JoinReq => message::<qmgr::JoinReq>(body),
        Kind::RestoreReq | Kind::RestoreConf | Kind::RestoreRef => message::<restart::Restore>(body),
        Kind::StartRep => message::<restart::Progress>(body),
        Kind::RedoFoundRep => message::<restart::RedoFound>(body),
        Kind::JoinConf | Kind::JoinRef => message::<qmgr::JoinAnswer>(body),
        Kind::ViewPrepReq => message::<qmgr::ViewPrep>(body),
        Kind::ViewPrepConf | Kind::ViewPrepRef => message::<qmgr::ViewPrepAnswer>(body),
        Kind::ViewCommitOrd => message::<qmgr::ViewCommit>(body),
        Kind::ArbitReq => message::<qmgr::ArbitReq>(body),
        Kind::ArbitConf => message::<qmgr::ArbitConf>(body),
        Kind::FailRep => message::<qmgr::FailRep>(body),
        Kind::StopOrd => message::<qmgr::StopOrd>(body),
        Kind::LeaseEndReq | Kind::LeaseEndConf => message::<qmgr::LeaseEnd>(body),
        Kind::LeaveReq | Kind::LeaveRef => message::<qmgr::Leave>(body),
        Kind::SwitchReq => message::<switchover::Switch>(body),
        Kind::SwitchConf | Kind::SwitchRef | Kind::SwitchEndOrd => message::<switchover::SwitchAnswer>(body),
        Kind::RecoveredRep => message::<qmgr::RecoveredRep>(body),
        Kind::ViewOrd => message::<View>(body),
        Kind::MapReq => message::<MapReq>(body),
        Kind::MapConf | Kind::MapRep => message::<ClusterMap>(body),
        Kind::TableOrd | Kind::TableConf | Kind::TableRef => message::<dict::TableOrd>(body),
        Kind::SchemaRep => message::<dict::Dictionary>(body),
        Kind::RegisterRep => message::<mgmt::RegisterRep>(body),
        Kind::ConfigReq | Kind::StatusReq | Kind::NodeStatusReq => message::<mgmt::MgmtReq>(body),
        Kind::ClusterStopReq | Kind::ClusterStopConf => message::<operator::ClusterStop>(body),
        Kind::EndOrd => message::<operator::EndOrder>(body),
        Kind::ResumeReq | Kind::ResumeOrd => message::<operator::Resume>(body),
        Kind::ResumeConf | Kind::ResumeRep => message::<operator::ResumeAnswer>(body),
        Kind::PingReq | Kind::PingConf => fixed(Reader::new(body).u64()),
        Kind::WorkerStuckRep => {
            let mut r = Reader::new(body);
            fixed(r.u8().and_then(|worker| Ok((worker, r.u32()?))))
        }
        _ => None,
    }
}

fn fixed<T: Debug>(decoded: Result<T, DecodeError>) -> Option<String> {
    decoded.ok().map(|fields| format!("{fields:?}"))
}

fn message<M: Message + Default + Debug>(body: &[u8]) -> Option<String> {
    M::decode(body).ok().map(|fields| format!("{fields:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_names_and_rubbish_is_none() {
        let mut body = Vec::new();
        EpochOrd { round: 77, ..EpochOrd::default() }.encode(&mut body);
        let text = describe(Kind::EpochOrd, &body).expect("decodes");
        assert!(text.contains("round: 77") && text.contains("horizon"), "{text}");
        assert_eq!(describe(Kind::EpochOrd, &body[..5]), None);
        let beat = qmgr::Heartbeat { generation: 9, ..qmgr::Heartbeat::default() };
        let text = describe(Kind::HeartbeatRep, &beat.encode_to_vec()).expect("decodes");
        assert!(text.contains("generation: 9"), "{text}");
        for kind in Kind::ALL {
            for bytes in [&[][..], &[0xff; 7], &[0; 64], &[0xff; 64]] {
                let _ = describe(*kind, bytes);
            }
        }
    }
}

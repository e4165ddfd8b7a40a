//! Global checkpoints: a complete epoch becomes durable on every full member.
//!
//! ```text
//! president's DIH --GcpSaveReq--> DIH of every full member     "everything up to the complete epoch e, to your disk"
//!    member's DIH --KeepReq--> QMGR, DICT of its node --KeepConf-->    the view and the dictionary are in synced files
//!    member's DIH --GcpSaveReq--> each LDM of its node --GcpSaveConf-->  a mark `saved(e, view)` is in the log, and synced
//!    member's DIH --GcpSaveConf--> president                   all of them: e is restorable, as the next EpochOrd says
//! ```
//!
//! It is NDB's GCP_SAVE with the epoch in the place of the GCI. One save is under way at a time; the next one is due after `gcp_interval`, or at once when
//! somebody waits (`GcpHurryOrd`, TC to the DIH of its node and on to the president): commits that come during a save share the next. Their epoch is completed during that save, so that the next one begins when it ends. A new view ends
//! the save under way. A member whose log cannot be written answers `GcpSaveRef`, and nothing becomes restorable until it can or is gone.
//!
//! **Why the view is in the mark.** If A is removed, and B alone acknowledges, B's marks name the view without A; no start that finds them believes A.

use apus_types::Epoch;

use crate::codec::{DecodeError, Put, Reader};

/// Time between two global checkpoints in milliseconds while nobody waits for one (setting `gcp_interval`), and what it may be. NDB's
/// `TimeBetweenGlobalCheckpoints` is 2 s, its epochs 100 ms.
pub const INTERVAL_MS_DEFAULT: u32 = 100;
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=10_000;

/// `GcpSaveReq`, `GcpSaveConf` and `GcpSaveRef`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GcpSave {
    /// The view's point.
    pub lineage: u64,
    pub generation: u64,
    /// Number of the save within the generation, from 1.
    pub save: u64,
    pub epoch: Epoch,
}

impl GcpSave {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.lineage);
        out.put_u64(self.generation);
        out.put_u64(self.save);
        out.put_u64(self.epoch.0);
    }
    pub fn decode(body: &[u8]) -> Result<GcpSave, DecodeError> {
        let mut r = Reader::new(body);
        let save = GcpSave { lineage: r.u64()?, generation: r.u64()?, save: r.u64()?, epoch: r.epoch()? };
        r.end()?;
        Ok(save)
    }
}

/// `GcpHurryOrd`: somebody waits for this epoch to be restorable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GcpHurry {
    pub epoch: Epoch,
}

impl GcpHurry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.epoch.0);
    }
    pub fn decode(body: &[u8]) -> Result<GcpHurry, DecodeError> {
        let mut r = Reader::new(body);
        let hurry = GcpHurry { epoch: r.epoch()? };
        r.end()?;
        Ok(hurry)
    }
}

/// `KeepReq` and `KeepConf`: the number of the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    pub number: u64,
}

impl Keep {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.number);
    }
    pub fn decode(body: &[u8]) -> Result<Keep, DecodeError> {
        let mut r = Reader::new(body);
        let keep = Keep { number: r.u64()? };
        r.end()?;
        Ok(keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_round_trips_and_refuses_other_lengths() {
        let save = GcpSave { lineage: 1, generation: 2, save: 3, epoch: Epoch(4) };
        let mut out = Vec::new();
        save.encode(&mut out);
        assert_eq!(GcpSave::decode(&out), Ok(save));
        assert!(GcpSave::decode(&out[1..]).is_err() && GcpHurry::decode(&out).is_err() && Keep::decode(&out).is_err());
        out.clear();
        GcpHurry { epoch: Epoch(9) }.encode(&mut out);
        assert_eq!(GcpHurry::decode(&out), Ok(GcpHurry { epoch: Epoch(9) }));
        assert_eq!(Keep::decode(&out), Ok(Keep { number: 9 }));
    }
}

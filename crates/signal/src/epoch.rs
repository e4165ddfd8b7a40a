//! Epochs: the rounds by which the president completes them, and the snapshots that clients read at.
//!
//! An epoch `e` is *complete* when no transaction will commit with an epoch of `e` or lower any more, and each one that did is
//! committed on every living replica of everything it changed. A reader that takes from every row the newest version committed at or
//! before a complete epoch sees whole transactions, the same ones on every replica.
//!
//! ```text
//! president's DIH --EpochOrd(epoch e+1, complete, horizon)--> DIH of every member     "report when e is drained"
//!   member's DIH --DrainReq--> each TC and LDM of its node --DrainConf--> DIH          none below e+1 under way, none can begin
//!   member's DIH --EpochDrainedRep(oldest snapshot)--> president                       all of them: e is complete
//! ```
//!
//! The next round announces it. Old versions are kept only while somebody reads at an epoch (`keep`): the first question for a snapshot after a
//! time without any turns that on with the next round, and the snapshot is not older than that round. `horizon` is the oldest epoch that anybody may still read at: versions that only older snapshots could
//! need are freed. A member promises with each report not to hand out a snapshot older than `oldest` later, so the minimum over all
//! members is safe.
//!
//! `SnapshotReq` (client to the DIH of any full member): read everything as of one moment. DIH asks the president for the highest epoch
//! there is (`EpochFloorReq`), which makes the president hurry, waits until that is complete, registers the snapshot and answers.
//! So everything that was acknowledged to anybody before the question is in the snapshot. `SnapshotEndOrd` gives it back; so does the
//! end of the client's link. A snapshot is known to one node: if that one dies, or if it is held too long, or memory runs short, reads
//! at it are refused with `SnapshotTooOld` as soon as what they need may be gone; they never show anything else.
//!
//! Everything here carries the view's generation. What is left of an older view is ignored; in each new view the president, old or
//! new, begins with a round of which every member must have finished its take-over.

use apus_types::Epoch;

use crate::codec::{DecodeError, Put, Reader};

/// `EpochOrd` (president to DIH) and `DrainReq` (DIH to TC and LDM).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochOrd {
    pub generation: u64,
    /// Number of the round within the generation, from 1.
    pub round: u64,
    /// Everything below this is to be drained.
    pub epoch: Epoch,
    /// Complete for everybody; 0: none yet.
    pub complete: Epoch,
    pub horizon: Epoch,
    /// Versions that are replaced from now on are kept, as far as the horizon demands it. Otherwise nobody reads at any epoch.
    pub keep: bool,
    /// Every member has a disk for its log: epochs become durable (see [`crate::gcp`]).
    pub saves: bool,
    /// Every full member has all commits up to this epoch on its disk; 0: none is known.
    pub restorable: Epoch,
}

impl EpochOrd {
    /// What makes this round another one than all others.
    pub fn id(&self) -> (u64, u64) {
        (self.generation, self.round)
    }
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_u64(self.round);
        out.put_u64(self.epoch.0);
        out.put_u64(self.complete.0);
        out.put_u64(self.horizon.0);
        out.put_u8(u8::from(self.keep) | u8::from(self.saves) << 1);
        out.put_u64(self.restorable.0);
    }
    pub fn decode(body: &[u8]) -> Result<EpochOrd, DecodeError> {
        let mut r = Reader::new(body);
        let (generation, round, epoch, complete, horizon) = (r.u64()?, r.u64()?, r.epoch()?, r.epoch()?, r.epoch()?);
        let (flags, restorable) = (r.u8()?, r.epoch()?);
        r.end()?;
        let (keep, saves) = (flags & 1 != 0, flags & 2 != 0);
        Ok(EpochOrd { generation, round, epoch, complete, horizon, keep, saves, restorable })
    }
}

/// `EpochDrainedRep` (DIH to the president) and `DrainConf` (TC and LDM to DIH).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    pub generation: u64,
    pub round: u64,
    /// DIH: the oldest snapshot that this node needs or may yet hand out. Others: unused.
    pub oldest: Epoch,
    /// Data memory is short: old snapshots must be given up.
    pub short_of_memory: bool,
    /// DIH: clients of this node hold snapshots or wait for one.
    pub holds: bool,
    /// This node has a disk for its log.
    pub has_disk: bool,
    /// The log has got something since its newest mark.
    pub dirty: bool,
}

impl Drained {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_u64(self.round);
        out.put_u64(self.oldest.0);
        let flags = [self.short_of_memory, self.holds, self.has_disk, self.dirty];
        out.put_u8(flags.iter().enumerate().map(|(bit, &on)| u8::from(on) << bit).sum());
    }
    pub fn decode(body: &[u8]) -> Result<Drained, DecodeError> {
        let mut r = Reader::new(body);
        let (generation, round, oldest, flags) = (r.u64()?, r.u64()?, r.epoch()?, r.u8()?);
        r.end()?;
        let flag = |bit: u8| flags >> bit & 1 != 0;
        let (short_of_memory, holds, has_disk, dirty) = (flag(0), flag(1), flag(2), flag(3));
        Ok(Drained { generation, round, oldest, short_of_memory, holds, has_disk, dirty })
    }
}

/// `EpochFloorReq` and `EpochFloorConf`: an epoch that no commit acknowledged so far is above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochFloor {
    pub generation: u64,
    /// The asking DIH's number for the question.
    pub question: u64,
    /// In the answer.
    pub floor: Epoch,
}

impl EpochFloor {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_u64(self.question);
        out.put_u64(self.floor.0);
    }
    pub fn decode(body: &[u8]) -> Result<EpochFloor, DecodeError> {
        let mut r = Reader::new(body);
        let floor = EpochFloor { generation: r.u64()?, question: r.u64()?, floor: r.epoch()? };
        r.end()?;
        Ok(floor)
    }
}

/// `SnapshotReq` (refused with `RequestRef`) and `SnapshotEndOrd`: a snapshot is named by its client and the request's number, so that it
/// can be given back though its answer never came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotReq {
    pub request: u64,
}

impl SnapshotReq {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
    }
    pub fn decode(body: &[u8]) -> Result<SnapshotReq, DecodeError> {
        let mut r = Reader::new(body);
        let req = SnapshotReq { request: r.u64()? };
        r.end()?;
        Ok(req)
    }
}

/// `SnapshotConf`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotConf {
    pub request: u64,
    pub epoch: Epoch,
}

impl SnapshotConf {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.request);
        out.put_u64(self.epoch.0);
    }
    pub fn decode(body: &[u8]) -> Result<SnapshotConf, DecodeError> {
        let mut r = Reader::new(body);
        let conf = SnapshotConf { request: r.u64()?, epoch: r.epoch()? };
        r.end()?;
        Ok(conf)
    }
}

/// `EpochLateRep`: a commit is not answered, and the epoch cannot end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EpochLate {
    /// Of the view in which the round is under way.
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// For so many ticks of the sender.
    #[prost(uint32, tag = "2")]
    pub ticks: u32,
    /// The instance that does not answer.
    #[prost(uint32, tag = "3")]
    pub instance: u32,
    /// For people.
    #[prost(string, tag = "4")]
    pub text: String,
}

/// The epochs whose state an answer shows, of the tables that were read: nothing in them was committed after `from`, and everything up to `to` is there. Where
/// `from` is above `to`, the answer is of its own instant alone. At that instant each transaction is shown wholly or not at all; an answer that cannot say
/// even this is of no moment ([`Moment::NONE`]): a worker with several chains gets the commit of one before that of another.
///
/// Several answers are of one moment if there is an epoch in all of their ranges; what any of them was asked after is in it, because none of them has left
/// out anything that was committed where it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    pub from: Epoch,
    pub to: Epoch,
    /// So many answers were taken together.
    pub answers: u32,
}

/// Bytes of a [`Moment`].
pub const MOMENT_BYTES: usize = 16;

impl Moment {
    /// Of an answer that is of no moment, or says none.
    pub const NONE: Moment = Moment { from: Epoch(u64::MAX), to: Epoch(0), answers: 1 };

    /// A single answer that is of some moment is of one.
    pub fn is_one(self) -> bool {
        self.from <= self.to || (self.answers <= 1 && self.from != Moment::NONE.from)
    }
    /// The epochs in both.
    #[must_use]
    pub fn and(self, other: Moment) -> Moment {
        let answers = self.answers.saturating_add(other.answers);
        Moment { from: self.from.max(other.from), to: self.to.min(other.to), answers }
    }
    /// Behind an answer that was asked for it.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.put_u64(self.from.0);
        out.put_u64(self.to.0);
    }
    /// The end of an answer that was asked for it.
    ///
    /// # Errors
    /// It is shorter.
    pub fn at_end_of(body: &[u8]) -> Result<Moment, DecodeError> {
        let at = body.len().checked_sub(MOMENT_BYTES).ok_or(DecodeError)?;
        let mut r = Reader::new(&body[at..]);
        Ok(Moment { from: r.epoch()?, to: r.epoch()?, answers: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_round_trips_and_refuses_other_lengths() {
        let order = EpochOrd {
            generation: 1,
            round: 2,
            epoch: Epoch(3),
            complete: Epoch(4),
            horizon: Epoch(5),
            keep: true,
            saves: false,
            restorable: Epoch(6),
        };
        let drained =
            Drained { generation: 1, round: 2, oldest: Epoch(3), holds: true, dirty: true, ..Drained::default() };
        let floor = EpochFloor { generation: 1, question: 2, floor: Epoch(3) };
        let snapshot = SnapshotConf { request: 1, epoch: Epoch(2) };
        let bytes = |encode: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            encode(&mut out);
            out
        };
        let all = [
            bytes(&|b| order.encode(b)),
            bytes(&|b| drained.encode(b)),
            bytes(&|b| floor.encode(b)),
            bytes(&|b| snapshot.encode(b)),
            bytes(&|b| SnapshotReq { request: 7 }.encode(b)),
        ];
        assert_eq!(EpochOrd::decode(&all[0]), Ok(order));
        assert_eq!(Drained::decode(&all[1]), Ok(drained));
        assert_eq!(EpochFloor::decode(&all[2]), Ok(floor));
        assert_eq!(SnapshotConf::decode(&all[3]), Ok(snapshot));
        assert_eq!(SnapshotReq::decode(&all[4]), Ok(SnapshotReq { request: 7 }));
        for mut body in all {
            body.push(0);
            assert!(EpochOrd::decode(&body).is_err() && SnapshotReq::decode(&body).is_err());
            body.truncate(7);
            assert!(Drained::decode(&body).is_err() && EpochFloor::decode(&body).is_err());
            assert!(SnapshotConf::decode(&body).is_err() && SnapshotReq::decode(&body).is_err());
        }
    }

    #[test]
    fn answers_are_of_one_moment_if_an_epoch_is_in_all_ranges() {
        let moment = |from, to| Moment { from: Epoch(from), to: Epoch(to), answers: 1 };
        let (calm, later, hot) = (moment(3, 10), moment(9, 11), moment(12, 11));
        assert!(
            hot.is_one()
                && calm.and(later).is_one()
                && !calm.and(hot).is_one()
                && !later.and(moment(11, 12)).and(calm).is_one()
        );
        assert!(!Moment::NONE.is_one() && !Moment::NONE.and(calm).is_one());
        let mut body = b"rows".to_vec();
        calm.encode(&mut body);
        assert_eq!(Moment::at_end_of(&body), Ok(calm));
        assert!(Moment::at_end_of(&body[..MOMENT_BYTES - 1]).is_err());
    }
}

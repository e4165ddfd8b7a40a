//! Take-over of a dead coordinator's transactions, and the question what became of one.
//!
//! When a view without node X is committed, every LDM instance of every living node reports each transaction that X coordinated
//! to the TC that takes it over: `hash(trans)` over the living (node, instance) pairs, so the work is spread over all. After its
//! last report an LDM sends `TakeOverEndRep` to every TC instance. A TC that has the end from all LDM instances decides each
//! transaction: committed on any replica -> commit everywhere, else abort everywhere. That is safe because X told the client only
//! after all replicas had committed, and because an LDM that has processed the view accepts nothing more from X. The decision is
//! carried out with the ordinary `LdmCommitOrd`/`LdmAbortOrd` along what is left of each chain. With the next failure the take-over
//! starts over, perhaps at another taker: every step is idempotent, and a taker that has decided to commit says so to its
//! successor before it sends its own end.
//!
//! `OutcomeReq` asks an LDM instance whether it remembers a commit; see [`crate::tc::Outcome`].

use apus_types::{Chain, Epoch, TransId};

use crate::{
    codec::{DecodeError, Put, Reader},
    tc::Outcome,
};

/// `TakeOverTransRep`: one transaction's part on one chain of one LDM instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakeOverTransRep {
    pub generation: u64,
    pub trans: TransId,
    pub chain: Chain,
    pub instance: u8,
    pub committed: bool,
    pub epoch: Epoch,
}

impl TakeOverTransRep {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_chain(self.chain);
        out.put_u8(self.instance);
        out.put_u8(u8::from(self.committed));
        out.put_u64(self.epoch.0);
    }
    pub fn decode(body: &[u8]) -> Result<TakeOverTransRep, DecodeError> {
        let mut r = Reader::new(body);
        Ok(TakeOverTransRep {
            generation: r.u64()?,
            trans: r.trans()?,
            chain: r.chain()?,
            instance: r.u8()?,
            committed: r.u8()? != 0,
            epoch: r.epoch()?,
        })
    }
}

/// `TakeOverEndRep`: the sending LDM instance has reported everything for this view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakeOverEndRep {
    pub generation: u64,
}

impl TakeOverEndRep {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.generation);
    }
    pub fn decode(body: &[u8]) -> Result<TakeOverEndRep, DecodeError> {
        Ok(TakeOverEndRep { generation: Reader::new(body).u64()? })
    }
}

/// `OutcomeReq` (TC to every LDM instance) and `OutcomeConf`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutcomeSignal {
    /// TC's number for the question.
    pub question: u64,
    /// View of the asking TC; an LDM that has an older one answers `Open`.
    pub generation: u64,
    pub trans: TransId,
    /// As in the client's question.
    pub age_ms: u32,
    /// In the answer.
    pub outcome: Outcome,
}

impl OutcomeSignal {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.question);
        out.put_u64(self.generation);
        out.put_trans(self.trans);
        out.put_u32(self.age_ms);
        out.put_u8(self.outcome as u8);
    }
    pub fn decode(body: &[u8]) -> Result<OutcomeSignal, DecodeError> {
        let mut r = Reader::new(body);
        Ok(OutcomeSignal {
            question: r.u64()?,
            generation: r.u64()?,
            trans: r.trans()?,
            age_ms: r.u32()?,
            outcome: Outcome::from_u8(r.u8()?).ok_or(DecodeError)?,
        })
    }
}

//! New views: transactions that used a dead node, and the take-over of those a dead node coordinated. The protocol is described in
//! [`apus_signal::takeover`].

use apus_kernel::Context;
use apus_signal::{
    BlockRef, DecodeError,
    envelope::{decode_frame, frame_length},
    takeover::TakeOverTransRep,
    view::View,
};
use apus_types::{ErrorCode, NodeId, TransId};

use super::{TransactionCoordinator, record::State};
use crate::ldm::departed;

/// Reports gathered for one view in which somebody left.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub generation: u64,
    ends_missing: usize,
    /// (what an LDM holds, that LDM's instance)
    reports: Vec<(TakeOverTransRep, u8)>,
}

impl TransactionCoordinator {
    pub(super) fn on_view_ord(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let view = View::from_bytes(body)?;
        if view.generation <= self.view.generation {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.view, view);
        let gone: Vec<NodeId> = departed(&old, &self.view).collect();
        if !gone.is_empty() {
            let ends_missing = self.view.living().count() * self.view.instances as usize;
            self.take_over = Some(TakeOver { generation: self.view.generation, ends_missing, reports: Vec::new() });
            let open: Vec<u32> = self.transactions.iter().map(|(at, _)| at).collect();
            for at in open {
                self.survive(at, &gone, ctx);
            }
            self.drop_questions(ctx);
        }
        let refused: Vec<u32> = self
            .transactions
            .iter()
            .filter(|(_, t)| t.subs().iter().any(|s| !s.done && s.retry_at.is_some()))
            .map(|(at, _)| at)
            .collect();
        for at in refused {
            self.resend_refused(at, u64::MAX, ctx);
        }
        self.replay_deferred(ctx);
        Ok(())
    }

    fn replay_deferred(&mut self, ctx: &mut Context<'_>) {
        let frames = std::mem::take(&mut self.deferred);
        let mut rest = frames.as_slice();
        while let Ok(Some(length)) = frame_length(rest) {
            let Some((frame, tail)) = rest.split_at_checked(length) else { break };
            rest = tail;
            if let Ok((envelope, body)) = decode_frame(frame) {
                let replayed = apus_kernel::Block::receive(self, &envelope, body, ctx);
                assert!(replayed.is_ok(), "a signal set aside for view {} does not decode", self.view.generation);
            }
        }
    }

    pub(super) fn on_take_over_trans(&mut self, from: BlockRef, rep: &TakeOverTransRep) {
        if let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == rep.generation) {
            take_over.reports.push((*rep, from.instance));
        }
    }

    pub(super) fn on_take_over_end(&mut self, generation: u64, ctx: &mut Context<'_>) {
        let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == generation) else { return };
        take_over.ends_missing = take_over.ends_missing.saturating_sub(1);
        if take_over.ends_missing > 0 {
            return;
        }
        let Some(mut take_over) = self.take_over.take() else { return };
        take_over.reports.sort_by_key(|(rep, instance)| (rep.trans, rep.chain, *instance));
        let mut rest = take_over.reports.as_slice();
        while let Some((first, _)) = rest.first() {
            let trans = first.trans;
            let (own, tail) = rest.split_at(rest.partition_point(|(rep, _)| rep.trans <= trans));
            self.take_over_one(trans, own, ctx);
            rest = tail;
        }
    }

    /// Committed on any replica: commit on all. Otherwise the client was told nothing: abort.
    fn take_over_one(&mut self, id: TransId, reports: &[(TakeOverTransRep, u8)], ctx: &mut Context<'_>) {
        self.counters.taken_over += 1;
        let at = match self.transactions.find(id) {
            Some(at) => at, // taken over before, and interrupted by another failure
            None => self.transactions.create(id, None),
        };
        let trans = self.transactions.get_mut(at);
        trans.client = None;
        trans.state = State::Active;
        trans.participants.clear();
        for (rep, instance) in reports {
            let i = trans.participant(rep.chain, *instance);
            trans.participants[i].writes = true;
        }
        match reports.iter().find(|(rep, _)| rep.committed) {
            Some((rep, _)) => {
                trans.epoch = rep.epoch;
                ctx.probe("tc: take-over commits");
                self.start_commit(at, ctx);
            }
            None => self.start_abort(at, ErrorCode::NodeFailed, ctx),
        }
    }
}

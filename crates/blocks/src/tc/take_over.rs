//! New views: transactions that used a dead node, and the take-over of those a dead node coordinated. The protocol is described in
//! [`apus_signal::takeover`].

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    takeover::{TakeOverEndRep, TakeOverTransRep},
    view::View,
};
use apus_types::{
    ErrorCode, NodeId, TransId,
    collections::seeded_map,
    planted::{Bug, planted},
};

use super::{TransactionCoordinator, record::State};
use crate::ldm::{departed, living_in_order, taker};

/// Reports gathered for one view.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub generation: u64,
    ends_missing: usize,
    reports: Vec<TakeOverTransRep>,
}

impl TransactionCoordinator {
    pub(super) fn on_view_ord(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let view = View::from_bytes(body)?;
        if view.generation <= self.view.generation {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.view, view);
        if old.generation == 0 {
            self.transactions.seed(ctx.random());
            self.scratch.made = seeded_map(ctx.random());
        }
        self.has_left = false;
        self.switch = None; // what was held is sent below, where the view says
        let gone: Vec<NodeId> = departed(&old, &self.view).collect();
        for node in &gone {
            self.left_at[usize::from(node.0)] = self.view.generation;
        }
        if self.view.settles_after(&old) {
            self.settle(ctx);
        }
        // A round of take-over in every view: another node may have learned of a failure in this one only. Ends come from every LDM
        // instance and, because an earlier round may be under way, from every TC instance.
        let ends_missing = 2 * self.view.living().count() * self.view.instances as usize;
        self.take_over = Some(TakeOver { generation: self.view.generation, ends_missing, reports: Vec::new() });
        let open: Vec<u32> = self.transactions.iter().map(|(at, _)| at).collect();
        for at in open {
            match self.transactions.get(at).taken_over {
                true => self.hand_over(at, ctx),
                false if gone.is_empty() => {}
                false => self.survive(at, &gone, ctx),
            }
        }
        self.report_end(ctx);
        self.drop_questions(ctx);
        let refused: Vec<u32> = self
            .transactions
            .iter()
            .filter(|(_, t)| t.subs().iter().any(|s| !s.done && (s.retry_at.is_some() || planted(Bug::ExecutedTwice))))
            .map(|(at, _)| at)
            .collect();
        for at in refused {
            self.resend_refused(at, u64::MAX, ctx);
        }
        std::mem::take(&mut self.deferred).replay(self, ctx);
        Ok(())
    }

    /// Sides met, and whatever was on its way between them may be lost. What is open here is left to the takers, as if this coordinator had died;
    /// clients lose their links, by which they know that they have to ask.
    fn settle(&mut self, ctx: &mut Context<'_>) {
        ctx.probe("tc: all that was open is left to the take-over");
        self.left_at.fill(self.view.settles);
        for link in self.clients.links() {
            ctx.close_link(link);
        }
        let own: Vec<u32> = self.transactions.iter().filter(|(_, t)| !t.taken_over).map(|(at, _)| at).collect();
        for at in own {
            self.transactions.get_mut(at).request.outstanding = 0; // whoever answers for a part is not heard any more
            self.transactions.remove(at);
        }
    }

    /// A take-over begins anew with each failure, perhaps at another taker. That a transaction was found committed must not be
    /// lost with the replica that had it: this taker tells the next one.
    fn hand_over(&mut self, at: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get(at);
        ctx.probe("tc: take-over begins anew");
        if trans.state == State::Committing
            && let Some(next) = taker(&self.view, trans.id)
        {
            ctx.probe("tc: take-over handed on after its commit");
            for p in &trans.participants {
                let rep = TakeOverTransRep {
                    generation: self.view.generation,
                    trans: trans.id,
                    chain: p.chain,
                    instance: p.instance,
                    committed: true,
                    epoch: trans.epoch,
                };
                ctx.send(next, Kind::TakeOverTransRep, |out| rep.encode(out));
            }
        }
        self.transactions.remove(at);
    }

    fn report_end(&self, ctx: &mut Context<'_>) {
        let end = TakeOverEndRep { generation: self.view.generation };
        for node in living_in_order(&self.view) {
            for instance in 0..self.view.instances as u8 {
                ctx.send(BlockRef::new(node, BlockId::Tc, instance), Kind::TakeOverEndRep, |out| end.encode(out));
            }
        }
    }

    pub(super) fn on_take_over_trans(&mut self, rep: &TakeOverTransRep) {
        if let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == rep.generation) {
            take_over.reports.push(*rep);
        }
    }

    pub(super) fn on_take_over_end(&mut self, generation: u64, ctx: &mut Context<'_>) {
        let Some(take_over) = self.take_over.as_mut().filter(|t| t.generation == generation) else { return };
        take_over.ends_missing = take_over.ends_missing.saturating_sub(1);
        if take_over.ends_missing > 0 {
            return;
        }
        let Some(mut take_over) = self.take_over.take() else { return };
        take_over.reports.sort_by_key(|rep| (rep.trans, rep.chain, rep.instance));
        let mut rest = take_over.reports.as_slice();
        while let Some(first) = rest.first() {
            let trans = first.trans;
            let (own, tail) = rest.split_at(rest.partition_point(|rep| rep.trans <= trans));
            self.take_over_one(trans, own, ctx);
            rest = tail;
        }
    }

    /// Committed on any replica: commit on all. Otherwise the client was told nothing: abort.
    fn take_over_one(&mut self, id: TransId, reports: &[TakeOverTransRep], ctx: &mut Context<'_>) {
        jam!(ctx);
        self.counters.taken_over += 1;
        let at = match self.transactions.find(id) {
            Some(at) => at,
            None => self.transactions.create(id, None, ctx.now()),
        };
        self.transactions.forget_client(at);
        let trans = self.transactions.get_mut(at);
        trans.taken_over = true;
        trans.state = State::Active;
        trans.participants.clear();
        for rep in reports {
            let i = trans.participant(rep.chain, rep.instance);
            (trans.participants[i].writes, trans.participants[i].sent) = (true, true);
        }
        let committed =
            |rep: &&TakeOverTransRep| (rep.committed || planted(Bug::TakeOverCommits)) && !planted(Bug::TakeOverAborts);
        match reports.iter().find(committed) {
            Some(rep) => {
                trans.epoch = rep.epoch;
                let same = reports.iter().all(|r| !r.committed || r.epoch == rep.epoch);
                assert!(same, "transaction {id} was committed in different epochs: {reports:?}");
                ctx.probe("tc: take-over commits");
                self.start_commit(at, ctx);
            }
            None => {
                ctx.probe("tc: take-over aborts");
                self.start_abort(at, ErrorCode::NodeFailed, ctx);
            }
        }
    }
}

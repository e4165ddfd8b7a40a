//! What became of a transaction: the commit token, asked of any node.
//!
//! Every LDM instance of every living node is asked. A commit is remembered by each replica of what it changed, so one replica that
//! remembers far enough back and knows of no commit speaks for its partitions. Where no replica of some group does (they all joined
//! lately, or the memory was overwritten) the answer is "forgotten".
//!
//! Asked at the very node that coordinates, the question first leaves a tombstone (see `clients`): a batch that is still on its way over an older
//! link must not run after the answer.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, DecodeError, Kind,
    takeover::OutcomeSignal,
    tc::{Outcome, TcFloor, TcOutcomeConf, TcOutcomeReq},
};
use apus_types::planted::{Bug, planted};

use super::{QUESTIONS_MAX, TransactionCoordinator};

/// A question under way to all LDM instances.
#[derive(Debug)]
pub(super) struct Question {
    id: u64,
    pub client: BlockRef,
    request: u64,
    unanswered: usize,
    committed: bool,
    open: bool,
    /// Node group and instance of the LDMs whose memory goes back far enough.
    sure: BTreeSet<(u32, u8)>,
}

impl TransactionCoordinator {
    pub(super) fn on_outcome_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = TcOutcomeReq::decode(body)?;
        jam!(ctx);
        let coordinator_lives = req.tc_node != self.me.node
            && self.view.node(req.tc_node).is_some_and(|n| {
                self.view.is_alive(req.tc_node) && (req.tc_incarnation == 0 || n.incarnation == req.tc_incarnation)
            });
        // Without them there would be nothing to make these mistakes with.
        let closes =
            !planted(Bug::TombstoneIgnored) && !planted(Bug::TombstoneTooShort) && !planted(Bug::OutcomeAskedElsewhere);
        for link in self.clients.older_links(from.node, req.trans).filter(|_| closes) {
            ctx.probe("tc: older link of a client that asks is closed");
            ctx.close_link(link);
        }
        let busy = self.find(req.trans, ctx).is_some() || self.questions.len() >= QUESTIONS_MAX;
        if !self.is_up() || (coordinator_lives && !planted(Bug::OutcomeAskedElsewhere)) || busy {
            ctx.probe("tc: outcome asked too early");
            answer(from, req.request, Outcome::Open, ctx);
            return Ok(());
        }
        if req.tc_node == self.me.node && !self.clients.bury(req.trans, from.node) {
            ctx.probe("tc: no room for a tombstone");
            answer(from, req.request, Outcome::Open, ctx);
            return Ok(());
        }
        let id = self.next_question;
        self.next_question += 1;
        let question = OutcomeSignal {
            question: id,
            generation: self.view.generation,
            trans: req.trans,
            age_ms: req.age_ms,
            outcome: Outcome::Open,
        };
        let mut asked = 0;
        for node in crate::ldm::living_in_order(&self.view) {
            for instance in 0..self.view.instances as u8 {
                ctx.send(self.ldm(node, instance), Kind::OutcomeReq, |out| question.encode(out));
                asked += 1;
            }
        }
        self.questions.push(Question {
            id,
            client: from,
            request: req.request,
            unanswered: asked,
            committed: false,
            open: false,
            sure: BTreeSet::new(),
        });
        Ok(())
    }

    /// Each node is told by the client itself, so this TC passes it on to the LDMs of its own.
    pub(super) fn on_floor_ord(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let TcFloor { floor, .. } = TcFloor::decode(body)?;
        if let Some(client) = self.clients.client_of(from.node) {
            for instance in 0..self.view.instances as u8 {
                ctx.send(self.ldm(self.me.node, instance), Kind::TcFloorOrd, |out| {
                    TcFloor { client, floor }.encode(out)
                });
            }
        }
        Ok(())
    }

    pub(super) fn on_outcome_conf(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let conf = OutcomeSignal::decode(body)?;
        let Some(i) = self.questions.iter().position(|q| q.id == conf.question) else { return Ok(()) };
        let group = self.view.node(from.node).map_or(u32::MAX, |n| n.group);
        let question = &mut self.questions[i];
        assert!(question.unanswered > 0, "one answer too many: {question:?}");
        question.unanswered -= 1;
        match conf.outcome {
            Outcome::Committed => question.committed = true,
            Outcome::Open => question.open = true,
            Outcome::Aborted => {
                question.sure.insert((group, from.instance));
            }
            Outcome::Forgotten => ctx.probe("tc: a replica does not remember so far back"),
        }
        if question.unanswered == 0 {
            let question = self.questions.swap_remove(i);
            // Committed on one replica and open on another is not yet safe from further failures.
            if question.committed {
                ctx.probe("tc: client learns of its commit from another node");
            }
            let everybody = self
                .view
                .living()
                .all(|n| (0..self.view.instances as u8).all(|instance| question.sure.contains(&(n.group, instance))));
            let outcome = match (question.open, question.committed) {
                (true, _) => Outcome::Open,
                (_, true) => Outcome::Committed,
                _ if everybody => Outcome::Aborted,
                _ => Outcome::Forgotten,
            };
            let now = ctx.epoch();
            if outcome == Outcome::Committed && self.held.outcome_waits(now) {
                let conf = TcOutcomeConf { request: question.request, outcome };
                if self.held.push(now, question.client, Kind::TcOutcomeConf, |out| conf.encode(out)) {
                    self.hurry_save(now, ctx);
                }
                return Ok(());
            }
            answer(question.client, question.request, outcome, ctx);
        }
        Ok(())
    }

    /// In a new view some answers may never come: the clients ask again.
    pub(super) fn drop_questions(&mut self, ctx: &mut Context<'_>) {
        for question in self.questions.drain(..) {
            ctx.probe("tc: question for an outcome dropped by a new view");
            answer(question.client, question.request, Outcome::Open, ctx);
        }
    }
}

fn answer(to: BlockRef, request: u64, outcome: Outcome, ctx: &mut Context<'_>) {
    ctx.send(to, Kind::TcOutcomeConf, |out| TcOutcomeConf { request, outcome }.encode(out));
}

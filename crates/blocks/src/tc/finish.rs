//! Commit, rollback, abort: the ends of transactions and statements.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, DecodeError, Kind,
    ldm::{CANCEL_WAIT, LdmEnd, LdmPrepared},
    tc::{RequestRef, TcEndConf, TcEndReq},
};
use apus_types::{
    ErrorCode, NodeId,
    planted::{Bug, planted},
};

use super::{
    TransactionCoordinator,
    record::{Asked, Participant, State, Trans},
};

impl TransactionCoordinator {
    pub(super) fn on_commit_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = TcEndReq::decode(body)?;
        if let Some(at) = self.for_end(from, &req, Asked::Commit, ctx) {
            match self.transactions.get(at).doomed {
                Some(code) => self.start_abort(at, code, ctx),
                None => self.start_commit(at, ctx),
            }
        }
        Ok(())
    }

    pub(super) fn on_rollback_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = TcEndReq::decode(body)?;
        if let Some(at) = self.for_end(from, &req, Asked::Rollback, ctx) {
            let trans = self.transactions.get(at);
            match (req.savepoint, trans.doomed) {
                (0, _) => self.start_abort(at, ErrorCode::TransactionAborted, ctx),
                (_, Some(code)) => {
                    self.transactions.get_mut(at).request.asked = Asked::Batch; // the client asked for less: tell it
                    self.start_abort(at, code, ctx);
                }
                (savepoint, None) => self.start_rollback_to(at, savepoint, ctx),
            }
        }
        Ok(())
    }

    /// The transaction that a commit or rollback names, ready for it; otherwise the client is answered here.
    fn for_end(&mut self, from: BlockRef, req: &TcEndReq, asked: Asked, ctx: &mut Context<'_>) -> Option<u32> {
        let is_there = |t: &Trans| t.client.map(|c| c.node) == Some(from.node) && !t.ends_unasked();
        let found = self.find(req.trans, ctx).filter(|&at| is_there(self.transactions.get(at)));
        let Some(at) = found else {
            if asked == Asked::Rollback && req.savepoint == 0 {
                let conf = TcEndConf { request: req.request, epoch: ctx.epoch() };
                ctx.send(from, Kind::TcRollbackConf, |out| conf.encode(out));
            } else {
                let refusal =
                    RequestRef { aborted: true, ..RequestRef::new(req.request, ErrorCode::TransactionNotFound) };
                self.refuse(from, Kind::TcBatchRef, refusal, ctx);
            }
            return None;
        };
        let trans = self.transactions.get_mut(at);
        // The client asks for the outcome: a batch in its one pass is ended if it waits for a lock.
        if asked == Asked::Rollback && req.savepoint == 0 && req.request == 0 && trans.state == State::OnePass {
            ctx.probe("tc: client gives up a one-pass batch");
            self.cancel_wait(at, ctx);
            return None;
        }
        // A client that gives up rolls back while its batch still waits; anything else must wait for the answer.
        let gives_up = asked == Asked::Rollback && req.savepoint == 0 && trans.may_abort();
        if gives_up && trans.request.outstanding > 0 {
            ctx.probe("tc: client gives up a batch");
        }
        if (trans.state != State::Active || trans.request.outstanding > 0) && !gives_up {
            self.refuse(from, Kind::TcBatchRef, RequestRef::new(req.request, ErrorCode::ProtocolViolation), ctx);
            return None;
        }
        trans.begin_request(req.request, asked);
        Some(at)
    }

    pub(super) fn start_commit(&mut self, at: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        let trans = self.transactions.get_mut(at);
        assert!(trans.state == State::Active, "{} is to commit and is {:?}", trans.id, trans.state);
        trans.state = State::Preparing;
        self.try_commit(at, ctx);
    }

    /// Orders the commit once every write is prepared on every living replica.
    pub(super) fn try_commit(&mut self, at: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get_mut(at);
        assert!(trans.state == State::Preparing, "{} prepares its commit and is {:?}", trans.id, trans.state);
        if let Some(code) = trans.doomed {
            return self.start_abort(at, code, ctx);
        }
        if trans.participants.iter().any(|p| p.unprepared != 0) && !planted(Bug::PrepareNotAwaited) {
            return;
        }
        trans.state = State::Committing;
        if !trans.taken_over {
            trans.epoch = ctx.epoch(); // one that was taken over keeps the epoch in which some replica has committed it
        }
        self.transactions.enter_flight(at);
        let trans = self.transactions.get_mut(at);
        for i in 0..trans.participants.len() {
            self.transactions.get_mut(at).participants[i].ended = false;
            self.send_commit(at, i, ctx);
        }
        if self.transactions.get(at).all_ended() {
            self.committed(at, ctx);
        }
    }

    fn end_for(&self, at: u32, participant: &Participant, savepoint: u32) -> LdmEnd {
        let trans = self.transactions.get(at);
        LdmEnd {
            generation: self.view.generation,
            trans: trans.id,
            chain: participant.chain,
            tc: self.me,
            epoch: trans.epoch,
            savepoint,
            round: participant.round,
        }
    }

    /// To the last living replica, from where the commit flows to the primary; locks alone are only at the primary.
    pub(super) fn send_commit(&mut self, at: u32, participant: usize, ctx: &mut Context<'_>) {
        let trans = self.transactions.get(at);
        assert!(trans.in_flight, "the commit of {} is ordered and not counted for its epoch", trans.id);
        let p = trans.participants[participant];
        if !p.sent {
            self.transactions.get_mut(at).participants[participant].ended = true;
            return;
        }
        let living = self.living(p.chain);
        let target = if p.writes { living.last() } else { living.primary() };
        let end = self.end_for(at, &p, 0);
        match target {
            Some(node) => ctx.send(self.ldm(node, p.instance), Kind::LdmCommitOrd, |out| end.encode(out)),
            None => {
                // A whole chain is gone: the cluster stops by the survival rules; until then nothing may be acknowledged.
                ctx.probe("tc: commit to a chain without living nodes");
            }
        }
    }

    fn committed(&mut self, at: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.counters.commits += 1;
        let trans = self.transactions.get(at);
        assert!(trans.state == State::Committing, "{} has committed and is {:?}", trans.id, trans.state);
        let everywhere = trans.all_ended() || planted(Bug::AckAfterFirstChain);
        assert!(everywhere, "{} has committed, and not on all chains", trans.id);
        match (trans.request.asked, trans.client) {
            (Asked::Batch, _) => self.answer_batch(at, true, ctx),
            (Asked::Commit, Some(client)) => {
                let conf = TcEndConf { request: trans.request.id, epoch: trans.epoch };
                if !trans.wrote || !self.held.waits(trans.durable, conf.epoch) {
                    ctx.send(client, Kind::TcCommitConf, |out| conf.encode(out));
                } else if self.held.push(conf.epoch, client, Kind::TcCommitConf, |out| conf.encode(out)) {
                    self.hurry_save(conf.epoch, ctx);
                }
            }
            _ => {}
        }
        for i in 0..self.transactions.get(at).participants.len() {
            let p = self.transactions.get(at).participants[i];
            if !p.sent {
                continue;
            }
            let end = self.end_for(at, &p, 0);
            let reached = if p.writes { self.living(p.chain).len() } else { 1 };
            for node in self.living(p.chain).nodes().take(reached) {
                ctx.send(self.ldm(node, p.instance), Kind::LdmCompleteOrd, |out| end.encode(out));
            }
        }
        self.transactions.remove(at);
    }

    /// Rolls the whole transaction back; the client gets `code` unless it asked for a rollback.
    pub(super) fn start_abort(&mut self, at: u32, code: ErrorCode, ctx: &mut Context<'_>) {
        jam!(ctx);
        self.counters.aborts += 1;
        let trans = self.transactions.get_mut(at);
        assert!(
            !matches!(trans.state, State::Committing | State::OnePass),
            "transaction {} aborted with {code} after its commit point",
            trans.id
        );
        trans.state = State::Aborting;
        trans.abort_code = code;
        trans.request.sub_count = 0;
        trans.request.outstanding = 0;
        trans.waits_for.clear();
        self.send_ends(at, 0, ctx);
        if self.transactions.get(at).all_ended() {
            self.aborted(at, ctx);
        }
    }

    pub(super) fn start_rollback_to(&mut self, at: u32, savepoint: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        let trans = self.transactions.get_mut(at);
        trans.state = State::RollingBack;
        trans.request.savepoint = savepoint;
        self.send_ends(at, savepoint, ctx);
        if self.transactions.get(at).all_ended() {
            self.rolled_back(at, ctx);
        }
    }

    fn send_ends(&mut self, at: u32, savepoint: u32, ctx: &mut Context<'_>) {
        for i in 0..self.transactions.get(at).participants.len() {
            self.transactions.get_mut(at).participants[i].ended = false;
            self.send_abort(at, i, savepoint, ctx);
        }
    }

    /// To the first living replica, from where the abort flows to the last, behind whatever was prepared.
    pub(super) fn send_abort(&mut self, at: u32, participant: usize, savepoint: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get_mut(at);
        let is_due = savepoint == CANCEL_WAIT || matches!(trans.state, State::Aborting | State::RollingBack);
        assert!(is_due, "an abort of {} is sent, and that is {:?}", trans.id, trans.state);
        let p = &mut trans.participants[participant];
        if !p.sent {
            p.ended = true;
            return;
        }
        p.round = p.round.wrapping_add(u32::from(savepoint != CANCEL_WAIT));
        let p = *p;
        match self.living(p.chain).primary() {
            Some(node) => {
                let end = self.end_for(at, &p, savepoint);
                ctx.send(self.ldm(node, p.instance), Kind::LdmAbortOrd, |out| end.encode(out));
            }
            None => self.transactions.get_mut(at).participants[participant].ended = true,
        }
    }

    fn aborted(&mut self, at: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        let trans = self.transactions.get(at);
        assert!(trans.state == State::Aborting, "{} is rolled back and was {:?}", trans.id, trans.state);
        assert!(trans.all_ended(), "{} is rolled back, and not on all chains", trans.id);
        if let Some(client) = trans.client {
            match trans.request.asked {
                Asked::Nothing => {} // told when it next asks: the transaction is not found any more
                Asked::Rollback => {
                    let conf = TcEndConf { request: trans.request.id, epoch: trans.epoch };
                    ctx.send(client, Kind::TcRollbackConf, |out| conf.encode(out));
                }
                Asked::Batch | Asked::Commit => {
                    let (kind, refusal) = trans.abort_refusal();
                    ctx.send(client, kind, |out| refusal.encode(out));
                }
            }
        }
        self.transactions.remove(at);
    }

    fn rolled_back(&mut self, at: u32, ctx: &mut Context<'_>) {
        jam!(ctx);
        let trans = self.transactions.get_mut(at);
        assert!(
            trans.state == State::RollingBack,
            "a statement of {} is undone, and that is {:?}",
            trans.id,
            trans.state
        );
        assert!(trans.all_ended(), "a statement of {} is undone, and not on all chains", trans.id);
        trans.state = State::Active;
        let asked = std::mem::replace(&mut trans.request.asked, Asked::Nothing);
        if let Some(code) = trans.doomed {
            trans.request.asked = Asked::Batch;
            return self.start_abort(at, code, ctx);
        }
        let Some(client) = trans.client else { return };
        match (asked, trans.request.failure) {
            (Asked::Batch, Some(failure)) => {
                let refusal = RequestRef {
                    op: failure.op,
                    index: failure.index.0,
                    ..RequestRef::new(trans.request.id, failure.code)
                };
                ctx.send(client, Kind::TcBatchRef, |out| refusal.encode(out));
            }
            _ => {
                let conf = TcEndConf { request: trans.request.id, epoch: trans.epoch };
                ctx.send(client, Kind::TcRollbackConf, |out| conf.encode(out));
            }
        }
    }

    pub(super) fn on_prepared(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let conf = LdmPrepared::decode(body)?;
        jam!(ctx);
        let Some(at) = self.find(conf.trans, ctx) else { return Ok(()) };
        let trans = self.transactions.get_mut(at);
        if trans.taken_over {
            return Ok(()); // asked for before all that was open was settled
        }
        if conf.batch == 0 && conf.code == Some(ErrorCode::TransactionTimeout) {
            self.end_if_idle(at, ctx);
            return Ok(());
        }
        let found = trans.participants.iter().position(|p| p.chain == conf.chain && p.instance == from.instance);
        let Some(participant) = found else { return Ok(()) };
        if let Some(code) = conf.code {
            trans.doomed.get_or_insert(code);
            if trans.state == State::OnePass {
                // A backup refused to commit on the way: nobody has committed, and as the primary knows of it, nobody will.
                ctx.probe("tc: one-pass batch refused by a backup");
                trans.state = State::Active;
                self.start_abort(at, code, ctx);
                return Ok(());
            }
        }
        let p = &mut trans.participants[participant];
        assert!(p.sent, "{} is prepared where nothing was sent, on {:?}", conf.trans, conf.chain);
        if p.chain.retain(|n| self.view.is_alive(n)).len() > 1 {
            p.unprepared -= 1;
        }
        if trans.state == State::Preparing {
            self.try_commit(at, ctx);
        }
        Ok(())
    }

    /// `LdmCommittedConf` or `LdmAbortConf` of one participant.
    pub(super) fn on_ended(
        &mut self,
        kind: Kind,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let end = LdmEnd::decode(body)?;
        let Some(at) = self.find(end.trans, ctx) else { return Ok(()) };
        let trans = self.transactions.get_mut(at);
        let expected = match (kind, trans.state) {
            (Kind::LdmCommittedConf, State::Committing) => true,
            (Kind::LdmAbortConf, State::Aborting) => end.savepoint == 0,
            (Kind::LdmAbortConf, State::RollingBack) => end.savepoint == trans.request.savepoint,
            _ => false,
        };
        if !expected {
            return Ok(());
        }
        let participant = trans.participants.iter_mut().find(|p| p.chain == end.chain && p.instance == from.instance);
        if let Some(participant) = participant {
            if kind == Kind::LdmAbortConf && end.round != participant.round {
                ctx.probe("tc: confirmation of an abort that was sent again");
                return Ok(());
            }
            assert!(participant.sent, "{} has ended where nothing was sent, on {:?}", end.trans, end.chain);
            let agree = kind != Kind::LdmCommittedConf || end.epoch == trans.epoch;
            assert!(
                agree,
                "{} is committed in {} on {:?}, ordered in {}",
                end.trans, end.epoch, end.chain, trans.epoch
            );
            participant.ended = true;
        }
        let early = planted(Bug::AckAfterFirstChain) && trans.state == State::Committing;
        if trans.all_ended() || early {
            match trans.state {
                State::Committing => self.committed(at, ctx),
                State::Aborting => self.aborted(at, ctx),
                _ => self.rolled_back(at, ctx),
            }
        }
        Ok(())
    }

    /// Some nodes have left since the view `since`, in which the record was looked at last: what was on its way there is sent to who is left.
    pub(super) fn survive(&mut self, at: u32, since: u64, ctx: &mut Context<'_>) {
        jam!(ctx);
        let has_left = |tc: &Self, n: NodeId| tc.left_at[usize::from(n.0)] > since;
        let trans = self.transactions.get(at);
        let (state, savepoint) = (trans.state, trans.request.savepoint);
        for i in 0..trans.participants.len() {
            let p = self.transactions.get(at).participants[i];
            if !p.sent || !p.chain.nodes().any(|n| has_left(self, n)) {
                continue;
            }
            let primary_gone = p.chain.primary().is_some_and(|n| has_left(self, n));
            let living = self.living(p.chain).len();
            let trans = self.transactions.get_mut(at);
            match state {
                State::Committing if !p.ended => {
                    ctx.probe("tc: commit sent again in a new view");
                    self.send_commit(at, i, ctx);
                }
                State::Aborting if !p.ended => {
                    ctx.probe("tc: abort sent again in a new view");
                    self.send_abort(at, i, 0, ctx);
                }
                State::Active | State::Preparing | State::RollingBack => {
                    // With one living replica there is nobody left to prepare; with more, a prepare may have died on its way.
                    if primary_gone || (p.unprepared != 0 && living > 1) {
                        ctx.probe("tc: transaction doomed by a lost node");
                        trans.doomed.get_or_insert(ErrorCode::NodeFailed);
                    }
                    if living <= 1 {
                        trans.participants[i].unprepared = 0;
                    }
                    if state == State::RollingBack && !p.ended {
                        self.send_abort(at, i, savepoint, ctx);
                    }
                }
                _ => {}
            }
        }
        let trans = self.transactions.get_mut(at);
        match (state, trans.doomed) {
            (State::Active, Some(code)) if trans.request.outstanding > 0 => self.start_abort(at, code, ctx),
            (State::Preparing, _) => self.try_commit(at, ctx),
            (State::RollingBack | State::Aborting, _) if trans.all_ended() => match state {
                State::Aborting => self.aborted(at, ctx),
                _ => self.rolled_back(at, ctx),
            },
            _ => {}
        }
    }
}

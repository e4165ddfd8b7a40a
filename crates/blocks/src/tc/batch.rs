//! The client's batches: split by participant, sent, collected, answered; unique-index work in between.

use std::cmp::Reverse;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, DecodeError, Kind, Reader,
    codec::Put,
    ldm::{COMMITTED, DISK_TABLE, INDEX_WORK, IndexChange, LdmBatchConf, LdmBatchRef, LdmBatchReq, ONE_PASS, WRITES},
    tc::{
        ALLOW_MISSING, COMMIT, DURABLE, DURABLE_IF_SAVED, Op, OpKind, OpResult, RESULT_BYTES_MIN, RequestRef, START,
        TcBatchConf, TcBatchReq,
    },
};
use apus_types::{
    Chain, ColumnType, Epoch, ErrorCode, IndexNo, NodeId, RowLayout, TableId, Value,
    collections::{SeededMap, seeded_map},
    hash::{SecretHash, hash_key},
    limits::{BATCH_OPS_MAX, SIGNAL_BYTES_MAX},
    planted::{Bug, planted},
};

use super::{
    TRANSACTIONS_MAX, TransactionCoordinator,
    record::{Asked, Failure, RECORD_BYTES, State, Sub},
};

/// A batch refused for its view is sent again after this time at the latest.
const RETRY_NS: u64 = 10_000_000;

/// Where operations that follow each other go, how many they are, and how many bytes of the batch end with them.
struct Route {
    chain: Chain,
    instance: u8,
    count: u16,
    end: usize,
}

/// Buffers that keep their memory.
pub(super) struct Scratch {
    routes: Vec<Route>,
    row: Vec<u8>,
    results: Vec<u8>,
    /// Per part of a batch: where its next result is, and its number in the part.
    cursors: Vec<(usize, usize)>,
    /// Entries that the batch has made so far, by table and hash of the key; where each change begins; those that cancel each other, in order.
    made: SeededMap<(TableId, u64), usize>,
    /// Of those keys: clients choose them, and must not find ones that collide.
    secret: SecretHash,
    starts: Vec<usize>,
    cancelled: Vec<usize>,
}

impl Scratch {
    /// The seed is to be random, and not to be told.
    pub fn new(seed: u64) -> Scratch {
        Scratch {
            routes: Vec::new(),
            row: Vec::new(),
            results: Vec::new(),
            cursors: Vec::new(),
            made: seeded_map(seed.rotate_left(32)),
            secret: SecretHash::new(seed),
            starts: Vec::new(),
            cancelled: Vec::new(),
        }
    }
    /// Finds the deletes of entries that the same batch has inserted before, and those inserts.
    fn find_cancelled(&mut self, changes: &[u8], count: usize) -> Result<(), DecodeError> {
        self.made.clear();
        self.starts.clear();
        self.cancelled.clear();
        let mut reader = Reader::new(changes);
        for number in 0..count {
            self.starts.push(changes.len() - reader.rest().len());
            let change = IndexChange::decode(&mut reader)?;
            let place = (change.hidden_table, self.secret.of(change.key));
            if change.insert {
                self.made.insert(place, number);
            } else if let Some(&insert) = self.made.get(&place) {
                let start = self.starts[insert];
                let made = IndexChange::decode(&mut Reader::new(&changes[start..]))?;
                if (made.key, made.primary_key) == (change.key, change.primary_key) {
                    self.made.remove(&place);
                    self.cancelled.extend([insert, number]);
                }
            }
        }
        self.cancelled.sort_unstable();
        Ok(())
    }
}

/// Bytes of the entries that one message writes, before the last of them.
const INDEX_WORK_BYTES_MAX: usize = SIGNAL_BYTES_MAX / 2;

/// Rows of hidden tables of indexes; see `TableSchema::hidden_for`.
pub(super) fn hidden_layout() -> RowLayout {
    let bytes = ColumnType::VarBinary { length: u16::MAX };
    RowLayout::new([bytes, ColumnType::Int { bits: 64, unsigned: true }, bytes])
}

impl TransactionCoordinator {
    pub(super) fn on_batch_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = TcBatchReq::decode(body)?;
        jam!(ctx);
        let writes = self.route(&req)?;
        self.counters.batches += 1;
        let at = match self.admit(from, &req, writes, ctx) {
            Ok(at) => at,
            Err((code, aborted)) => {
                let refusal = RequestRef { aborted, ..RequestRef::new(req.request, code) };
                self.refuse(from, Kind::TcBatchRef, refusal, ctx);
                return Ok(());
            }
        };
        let trans = self.transactions.get_mut(at);
        assert!(trans.state == State::Active, "{} takes a batch and is {:?}", trans.id, trans.state);
        assert!(trans.request.outstanding == 0, "{} takes a batch amid another", trans.id);
        trans.begin_request(req.request, Asked::Batch);
        trans.request.flags = req.flags;
        trans.durable |= req.flags & DURABLE != 0 || req.flags & DURABLE_IF_SAVED != 0 && self.held.is_saved();
        trans.wrote |= writes;
        trans.request.savepoint = req.savepoint;
        trans.request.lock_wait_ms = req.lock_wait_ms;
        trans.request.count = req.count;
        if let Some(code) = trans.doomed {
            self.start_abort(at, code, ctx);
            return Ok(());
        }
        self.split(at, &req);
        self.transactions.recount(at);
        let trans = self.transactions.get_mut(at);
        let whole = req.flags & (START | COMMIT) == START | COMMIT;
        if whole && trans.request.sub_count == 1 {
            let participant = trans.participants[trans.request.subs[0].participant];
            if participant.chain.primary() == Some(self.me.node) {
                trans.state = State::OnePass;
                trans.request.subs[0].flags = ONE_PASS;
            }
        }
        for i in 0..trans.request.sub_count {
            self.send_sub(at, i, ctx);
        }
        if self.transactions.get(at).request.outstanding == 0 {
            self.batch_finished(at, ctx);
        }
        Ok(())
    }

    /// Finds or makes the transaction a batch belongs to; otherwise why not, and whether the transaction is gone.
    fn admit(
        &mut self,
        from: BlockRef,
        req: &TcBatchReq<'_>,
        writes: bool,
        ctx: &mut Context<'_>,
    ) -> Result<u32, (ErrorCode, bool)> {
        if !self.is_up() {
            return Err((ErrorCode::NodeStarting, req.flags & START != 0));
        }
        let more = RECORD_BYTES + req.ops.len();
        if !self.records.admits(&self.memory, self.transactions.held() + more) {
            // What unused records keep for the next ones must not stand in their way.
            self.transactions.drop_spare();
            if !self.records.admits(&self.memory, self.transactions.held() + more) {
                ctx.probe("tc: no memory for a batch");
                return Err((ErrorCode::Overload, req.flags & START != 0));
            }
        }
        let asks_where_saved = req.flags & DURABLE_IF_SAVED != 0;
        let unsaved = if asks_where_saved { self.held.refusal_where_saved() } else { None };
        if req.flags & START != 0 {
            if !self.clients.owns(from, req.trans) {
                return Err((ErrorCode::ProtocolViolation, true));
            }
            if self.clients.is_buried(req.trans) && !planted(Bug::TombstoneIgnored) {
                ctx.probe("tc: batch came after its client was told that it did not run");
                return Err((ErrorCode::TransactionNotFound, true));
            }
            if self.transactions.len() >= TRANSACTIONS_MAX {
                return Err((ErrorCode::TooManyTransactions, true));
            }
            if self.find(req.trans, ctx).is_some() {
                return Err((ErrorCode::ProtocolViolation, false));
            }
            if let Some(code) = self.held.refusal(req.flags & DURABLE != 0).filter(|_| writes).or(unsaved) {
                return Err((code, true));
            }
            return Ok(self.transactions.create(req.trans, Some(from), self.view.generation, ctx.now()));
        }
        let at = self.find(req.trans, ctx).ok_or((ErrorCode::TransactionNotFound, true))?;
        let trans = self.transactions.get(at);
        if trans.client.map(|c| c.node) != Some(from.node) || trans.ends_unasked() {
            return Err((ErrorCode::TransactionNotFound, true));
        }
        if trans.state != State::Active || trans.request.outstanding > 0 {
            return Err((ErrorCode::ProtocolViolation, false));
        }
        // What begins to write may wait for a disk that is not there.
        let begins = writes && !trans.wrote;
        if let Some(code) = self.held.refusal(trans.durable || req.flags & DURABLE != 0).filter(|_| begins) {
            return Err((code, false));
        }
        if let Some(code) = unsaved {
            return Err((code, false));
        }
        Ok(at)
    }

    /// Finds out where each operation goes; whether any of them writes.
    fn route(&mut self, req: &TcBatchReq<'_>) -> Result<bool, DecodeError> {
        let Scratch { routes, .. } = &mut self.scratch;
        routes.clear();
        let mut writes = false;
        let mut reader = Reader::new(req.ops);
        for _ in 0..req.count {
            let op = Op::decode(&mut reader)?;
            writes |= op.kind.is_write();
            let (chain, instance) = (self.view.chain(op.partition), self.view.instance(op.partition));
            let end = req.ops.len() - reader.rest().len();
            match routes.last_mut() {
                Some(last) if (last.chain, last.instance) == (chain, instance) => {
                    last.count += 1;
                    last.end = end;
                }
                _ => routes.push(Route { chain, instance, count: 1, end }),
            }
        }
        Ok(writes)
    }

    /// Sorts the operations, of which the routes are known, into one part per participant; order within a part is the client's.
    fn split(&mut self, at: u32, req: &TcBatchReq<'_>) {
        let trans = self.transactions.get_mut(at);
        let (mut number, mut begin) = (0, 0);
        for Route { chain, instance, count, end } in &self.scratch.routes {
            let sub = trans.sub_for(*chain, *instance);
            let sub = &mut trans.request.subs[sub];
            sub.ops.extend_from_slice(&req.ops[begin..*end]);
            sub.origin.extend((number..number + count).map(|number| (number, IndexNo(0))));
            sub.count += count;
            (number, begin) = (number + count, *end);
        }
        let trans = self.transactions.get(at);
        let parts: usize = trans.subs().iter().map(|s| usize::from(s.count)).sum();
        assert!(parts == usize::from(req.count), "{} operations of {} are {parts} in parts", req.count, trans.id);
    }

    fn send_sub(&mut self, at: u32, sub: usize, ctx: &mut Context<'_>) {
        if self.switch.is_some() && self.hold_for_switch(at, sub) {
            ctx.probe("tc: part of a batch held for a switchover");
            return;
        }
        let trans = self.transactions.get_mut(at);
        let request = &mut trans.request;
        let sub = &mut request.subs[sub];
        assert!(!sub.done, "a part of {} is sent again after its answer", trans.id);
        assert!(usize::from(sub.count) == sub.origin.len(), "a part of {} with operations of no origin", trans.id);
        sub.retry_at = None;
        let participant = trans.participants[sub.participant];
        let living = participant.chain.retain(|n| self.view.is_alive(n));
        let Some(primary) = living.primary().filter(|_| living.primary() == participant.chain.primary()) else {
            // The primary is gone and with it what the transaction held there.
            assert!(request.outstanding > 0, "{} has a part that nobody waits for", trans.id);
            sub.done = true;
            request.outstanding -= 1;
            request.failure.get_or_insert(Failure { code: ErrorCode::NodeFailed, op: 0, index: IndexNo(0) });
            trans.doomed.get_or_insert(ErrorCode::NodeFailed);
            return;
        };
        trans.participants[sub.participant].sent = true;
        let req = LdmBatchReq {
            generation: self.view.generation,
            trans: trans.id,
            batch: sub.batch,
            chain: participant.chain,
            flags: sub.flags,
            savepoint: request.savepoint,
            lock_wait_ms: request.lock_wait_ms,
            count: sub.count,
            ops: &sub.ops,
        };
        ctx.send(BlockRef::new(primary, apus_signal::BlockId::Ldm, participant.instance), Kind::LdmBatchReq, |out| {
            req.encode(out);
        });
    }

    pub(super) fn on_batch_conf(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let conf = LdmBatchConf::decode(body)?;
        jam!(ctx);
        let Some(at) = self.find(conf.trans, ctx) else { return Ok(()) };
        let trans = self.transactions.get_mut(at);
        if !matches!(trans.state, State::Active | State::OnePass) {
            return Ok(());
        }
        let Some(sub) = trans.sub_mut(conf.batch) else { return Ok(()) };
        assert!(conf.count == sub.count, "{} results for the {} operations of a part", conf.count, sub.count);
        sub.done = true;
        sub.results.clear();
        sub.results.extend_from_slice(conf.results);
        let participant = sub.participant;
        assert!(trans.participants[participant].sent, "{} gets an answer from where nothing was sent", conf.trans);
        assert!(trans.request.outstanding > 0, "{} gets an answer and waits for none", conf.trans);
        trans.request.outstanding -= 1;
        trans.waits_for.clear();
        trans.durable |= conf.flags & DISK_TABLE != 0;
        assert!(conf.epoch <= ctx.epoch(), "an answer of epoch {} has come, and it is {}", conf.epoch, ctx.epoch());
        if conf.flags & COMMITTED != 0 {
            assert!(trans.state == State::OnePass, "{} is committed on the way and is {:?}", conf.trans, trans.state);
            assert!(trans.request.outstanding == 0, "{} is committed on the way by one of several parts", conf.trans);
            assert!(conf.epoch > Epoch(0), "{} is committed in no epoch", conf.trans);
            trans.epoch = conf.epoch;
            self.counters.one_pass_commits += 1;
            self.answer_batch(at, true, ctx);
            self.transactions.remove(at);
            return Ok(());
        }
        trans.state = State::Active; // a one-pass batch with index work goes on as any other
        if conf.flags & WRITES != 0 {
            let participant = &mut trans.participants[participant];
            participant.writes = true;
            if participant.chain.retain(|n| self.view.is_alive(n)).len() > 1 {
                participant.unprepared += 1;
                let left_since = |n: NodeId| self.left_at[usize::from(n.0)] > conf.generation;
                if participant.chain.nodes().any(left_since) {
                    trans.doomed.get_or_insert(ErrorCode::NodeFailed); // the prepare died with a node in the middle
                }
            }
        }
        if conf.change_count > 0 {
            self.transactions.get_mut(at).collect_changes(&conf)?;
        }
        self.transactions.recount(at);
        if self.transactions.get(at).request.outstanding == 0 {
            self.parts_answered(at, ctx)?;
        }
        Ok(())
    }

    /// Every part under way is answered. Index work waits for the last of them: one part may free the entry that another takes.
    fn parts_answered(&mut self, at: u32, ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let trans = self.transactions.get_mut(at);
        let request = &mut trans.request;
        if request.change_count > 0 && request.failure.is_none() && trans.doomed.is_none() {
            let count = std::mem::take(&mut request.change_count);
            let changes = std::mem::take(&mut request.changes);
            let result = self.start_index_work(at, &changes, count, ctx);
            self.transactions.get_mut(at).request.changes = changes;
            result?;
        }
        if self.transactions.get(at).request.outstanding == 0 {
            self.batch_finished(at, ctx);
        }
        Ok(())
    }

    /// Writes the hidden tables of unique indexes, and of those with lists, deletes before inserts, in the same transaction. An entry that the batch makes and removes
    /// again is neither inserted nor deleted.
    fn start_index_work(
        &mut self,
        at: u32,
        changes: &[u8],
        count: usize,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let trans = self.transactions.get(at);
        let first_sub = trans.request.sub_count;
        assert!(trans.request.outstanding == 0, "index work of {} begins before its batch is done", trans.id);
        self.scratch.find_cancelled(changes, count)?;
        for inserts in [false, true] {
            let mut reader = Reader::new(changes);
            for number in 0..count {
                let change = IndexChange::decode(&mut reader)?;
                if change.insert != inserts || self.scratch.cancelled.binary_search(&number).is_ok() {
                    continue;
                }
                self.scratch.row.clear();
                if inserts {
                    let row = [
                        Value::Bytes(change.key),
                        Value::UInt(change.distribution_hash),
                        Value::Bytes(change.primary_key),
                    ];
                    self.hidden_layout.encode(&row, &mut self.scratch.row).map_err(|_| DecodeError)?;
                }
                let partition = self.view.partition_of(hash_key(change.key));
                let op = Op {
                    kind: match inserts {
                        true if planted(Bug::UniqueNotEnforced) => OpKind::Write,
                        true => OpKind::Insert,
                        false => OpKind::Delete,
                    },
                    flags: if inserts { 0 } else { ALLOW_MISSING },
                    partition,
                    table: change.hidden_table,
                    schema_version: 1, // hidden tables never change
                    key: change.key,
                    value: if inserts { &self.scratch.row } else { change.primary_key },
                };
                let trans = self.transactions.get_mut(at);
                let participant = trans.participant(self.view.chain(partition), self.view.instance(partition));
                let found = (first_sub..trans.request.sub_count).rfind(|&i| {
                    let sub = &trans.request.subs[i];
                    sub.participant == participant
                        && usize::from(sub.count) < BATCH_OPS_MAX
                        && sub.ops.len() < INDEX_WORK_BYTES_MAX
                });
                let sub = match found {
                    Some(i) => &mut trans.request.subs[i],
                    None => trans.new_sub(participant),
                };
                sub.index_work = true;
                sub.flags = INDEX_WORK;
                op.encode(&mut sub.ops);
                sub.origin.push((change.op, change.index));
                sub.count += 1;
            }
        }
        for i in first_sub..self.transactions.get(at).request.sub_count {
            self.send_sub(at, i, ctx);
        }
        Ok(())
    }

    pub(super) fn on_batch_ref(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let refusal = LdmBatchRef::decode(body)?;
        jam!(ctx);
        let Some(at) = self.find(refusal.trans, ctx) else { return Ok(()) };
        let trans = self.transactions.get_mut(at);
        if !matches!(trans.state, State::Active | State::OnePass) {
            return Ok(());
        }
        let now = ctx.now();
        let Some(sub) = trans.sub_mut(refusal.batch) else { return Ok(()) };
        if refusal.code == ErrorCode::WrongView && refusal.op == 0 {
            sub.retry_at = Some(now + RETRY_NS);
            self.retries.push(Reverse((now + RETRY_NS, at)));
            return Ok(());
        }
        assert!(refusal.op < sub.count, "operation {} of {} is refused", refusal.op, sub.count);
        sub.done = true;
        let (op, index) = sub.origin.get(usize::from(refusal.op)).copied().unwrap_or((0, IndexNo(0)));
        assert!(trans.request.outstanding > 0, "{} gets a refusal and waits for no answer", refusal.trans);
        trans.request.outstanding -= 1;
        trans.waits_for.clear();
        trans.state = State::Active;
        // What happens in the middle of a batch with a changed view cannot be repeated piecemeal.
        let code = if refusal.code == ErrorCode::WrongView { ErrorCode::NodeFailed } else { refusal.code };
        if code == ErrorCode::TransactionIdUsed {
            trans.doomed.get_or_insert(code); // or a commit of ours would end another one
        }
        trans.request.failure.get_or_insert(Failure { code, op, index });
        if trans.request.outstanding == 0 {
            self.batch_finished(at, ctx);
        }
        Ok(())
    }

    /// Sends parts again that were refused for their view, now that it changed or time has passed.
    pub(super) fn retry_refused(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        while let Some(&Reverse((due, at))) = self.retries.peek()
            && due <= now
        {
            self.retries.pop();
            // Perhaps of another transaction, which has the place now, or sent again already by a new view.
            let is_due = |s: &super::record::Sub| !s.done && s.retry_at.is_some_and(|t| t <= now);
            self.carry_over(at, ctx);
            if self.transactions.is_used(at) && self.transactions.get(at).subs().iter().any(is_due) {
                self.resend_refused(at, now, ctx);
            }
        }
    }

    /// A refused part goes to the partition's present chain.
    pub(super) fn resend_refused(&mut self, at: u32, due: u64, ctx: &mut Context<'_>) {
        jam!(ctx);
        for i in 0..self.transactions.get(at).request.sub_count {
            let trans = self.transactions.get_mut(at);
            let sub = &trans.request.subs[i];
            let is_due = sub.retry_at.is_some_and(|t| t <= due) || planted(Bug::ExecutedTwice);
            if sub.done || !is_due {
                continue;
            }
            let Ok(op) = Op::decode(&mut Reader::new(&sub.ops)) else { continue };
            let (chain, instance) = (self.view.chain(op.partition), self.view.instance(op.partition));
            let participant = trans.participant(chain, instance);
            let sub = &mut trans.request.subs[i];
            sub.participant = participant;
            ctx.probe("tc: part of a batch sent again in another view");
            if chain.primary() != Some(self.me.node) {
                sub.flags &= !ONE_PASS;
                if trans.state == State::OnePass {
                    ctx.probe("tc: one-pass batch becomes an ordinary one");
                    trans.state = State::Active;
                }
            }
            self.send_sub(at, i, ctx);
        }
        let trans = self.transactions.get(at);
        if trans.request.outstanding == 0
            && matches!(trans.state, State::Active | State::OnePass)
            && trans.request.asked == Asked::Batch
        {
            self.batch_finished(at, ctx);
        }
    }

    /// Every part of the batch is answered.
    pub(super) fn batch_finished(&mut self, at: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get_mut(at);
        let is_open = matches!(trans.state, State::Active | State::OnePass);
        assert!(is_open, "a batch of {} is answered, and that is {:?}", trans.id, trans.state);
        assert!(trans.request.outstanding == 0, "a batch of {} is done before its parts are", trans.id);
        assert!(trans.subs().iter().all(|s| s.done), "a batch of {} is done, and a part is not", trans.id);
        trans.state = State::Active;
        if let Some(code) = trans.doomed {
            return self.start_abort(at, code, ctx);
        }
        let flags = trans.request.flags;
        match trans.request.failure {
            Some(failure) => {
                let ends_all = flags & (START | COMMIT) == START | COMMIT
                    || trans.request.savepoint == 0
                    || matches!(
                        failure.code,
                        ErrorCode::Deadlock | ErrorCode::NodeFailed | ErrorCode::TransactionTooLarge
                    );
                if ends_all {
                    self.start_abort(at, failure.code, ctx);
                } else {
                    self.counters.statement_rollbacks += 1;
                    self.start_rollback_to(at, trans_savepoint(self, at), ctx);
                }
            }
            None if flags & COMMIT != 0 => self.start_commit(at, ctx),
            None => self.answer_batch(at, false, ctx),
        }
    }

    /// Puts the parts' results into the client's order and sends them.
    pub(super) fn answer_batch(&mut self, at: u32, committed: bool, ctx: &mut Context<'_>) {
        let trans = self.transactions.get_mut(at);
        trans.request.asked = Asked::Nothing;
        let Some(client) = trans.client else { return };
        let epoch = trans.epoch;
        let waits = committed && trans.wrote && self.held.waits(trans.durable, epoch);
        let request = &trans.request;
        let subs = trans.subs();
        let base = subs.iter().filter(|s| !s.index_work).count();
        if base == 1 && !subs[0].index_work {
            let results = &subs[0].results;
            let write = |out: &mut Vec<u8>| {
                TcBatchConf::begin(out, request.id, committed, epoch, request.count);
                out.put_bytes(results);
            };
            if !waits {
                ctx.send(client, Kind::TcBatchConf, write);
            } else if self.held.push(epoch, client, Kind::TcBatchConf, write) {
                self.hurry_save(epoch, ctx);
            }
            return;
        }
        let Scratch { results, cursors, .. } = &mut self.scratch;
        results.clear();
        cursors.clear();
        cursors.resize(subs.len(), (0, 0));
        let mut op = 0;
        while op < request.count {
            let mut parts = cursors.iter_mut().zip(subs).filter(|(_, sub)| !sub.index_work);
            let has_it = |next: usize, sub: &Sub, op: u16| sub.origin.get(next).is_some_and(|o| o.0 == op);
            let Some(((at, next), sub)) = parts.find(|((_, next), sub)| has_it(*next, sub, op)) else { break };
            // Results that follow each other in the part are copied together.
            let rest = sub.results.get(*at..).unwrap_or(&[]);
            let (mut reader, first) = (Reader::new(rest), *next);
            while has_it(*next, sub, op) {
                (*next, op) = (*next + 1, op + 1);
            }
            // Those without a row all have the same length.
            let taken = match sub.results.len() == sub.origin.len() * RESULT_BYTES_MIN {
                true => (*next - first) * RESULT_BYTES_MIN,
                false => {
                    for _ in first..*next {
                        OpResult::decode(&mut reader).ok();
                    }
                    rest.len() - reader.rest().len()
                }
            };
            results.extend_from_slice(&rest[..taken]);
            *at += taken;
        }
        let given: usize = cursors.iter().map(|c| c.1).sum();
        assert!(given == usize::from(request.count), "{given} results for {} operations", request.count);
        let write = |out: &mut Vec<u8>| {
            TcBatchConf::begin(out, request.id, committed, epoch, request.count);
            out.put_bytes(results);
        };
        if !waits {
            ctx.send(client, Kind::TcBatchConf, write);
        } else if self.held.push(epoch, client, Kind::TcBatchConf, write) {
            self.hurry_save(epoch, ctx);
        }
    }
}

fn trans_savepoint(tc: &TransactionCoordinator, at: u32) -> u32 {
    tc.transactions.get(at).request.savepoint
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever knows the public hash can find keys of one place by it; the places of two processes have nothing to do with each other, nor with it.
    #[test]
    fn entries_have_places_that_no_client_can_know() {
        let mut changes = Vec::new();
        let key = b"a key of some length, chosen by a client";
        let insert = IndexChange {
            insert: true,
            op: 0,
            index: IndexNo(1),
            hidden_table: TableId(7),
            key,
            distribution_hash: 5,
            primary_key: b"row",
        };
        insert.encode(&mut changes);
        let places = [1, 2].map(|seed| {
            let mut scratch = Scratch::new(seed);
            scratch.find_cancelled(&changes, 1).expect("a change");
            scratch.made.keys().map(|(_, place)| *place).collect::<Vec<u64>>()
        });
        assert!(places[0].len() == 1 && places[0] != places[1] && places[0][0] != hash_key(key), "{places:?}");
    }
}

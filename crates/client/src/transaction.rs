//! Transactions through a coordinator (TC).
//!
//! ```text
//! New --first batch--> Open --commit, rollback, abort by the cluster--> Over
//!                        |^ batch
//!                      Busy (a request is under way; if its future is dropped the transaction is lost)
//! ```
//!
//! TC is on the node of the first key's primary. If the link to it is lost, an open transaction is over (`NodeFailed`); for a commit
//! under way the outcome is asked of the cluster, so that the caller hears *committed* or *rolled back* and only if nobody can
//! say for long `OutcomeUnknown`. A first batch that does not commit, or is refused for a temporary reason, is sent again under
//! a new id.

use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    task::Poll,
};

use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    codec::patch_u16,
    tc::{self, OpResult, OpStatus, Outcome, TcBatchConf, TcBatchReq, TcEndConf, TcEndReq},
};
use apus_types::{Epoch, ErrorClass, ErrorCode, NodeId, TransId};

use crate::{
    Client, ClientError, CommitToken, Committed, ExecOptions, Losses, LostNode, OpBatch, Results,
    batch::OP_PARTITION_AT,
    client::refusal,
    core::{route::NOWHERE, table::Verdict},
    retry::{FROZEN_NS, Retry},
};

const MS: u64 = 1_000_000;
/// A batch that is given up is told so again after this.
const GIVE_UP_AGAIN_MS: u64 = 100;
/// Bytes of a `TcBatchConf` before the first result, and of each result before its row.
const CONF_HEAD: usize = 19;
const RESULT_HEAD: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    Open,
    Busy,
    Over,
}

/// A transaction. Dropping it while it is open rolls it back.
pub struct Transaction {
    client: Client,
    id: TransId,
    state: State,
    writes: bool,
    /// The flag of its batches that says so.
    on_disk: u8,
    tc: Option<CommitToken>,
    epoch: Epoch,
    /// Of the present batch, or of all attempts at a statement.
    losses: Losses,
}

enum Failure {
    /// Nobody to send to; nothing was sent.
    Nowhere,
    Refused(ClientError),
    /// The link or the patience ended while the request was under way; whether it asked to commit.
    Lost {
        committing: bool,
    },
}

impl Transaction {
    pub(crate) fn new(client: Client) -> Transaction {
        let id = client.inner.core.borrow_mut().next_trans();
        Transaction {
            client,
            id,
            state: State::New,
            writes: false,
            on_disk: 0,
            tc: None,
            epoch: Epoch(0),
            losses: Losses::default(),
        }
    }
    /// Its id. It changes only where the cluster refuses to start it and the client tries again, within the first `execute`.
    pub fn id(&self) -> TransId {
        self.id
    }
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
    /// For asking later what became of it; `None` until it was started.
    pub fn token(&self) -> Option<CommitToken> {
        self.tc
    }
    /// From the next batch on: its commit is answered when it is on the disks of all replicas (class `disk`), whatever the cluster and the tables
    /// say. What a batch has asked for stays.
    pub fn wait_for_disk(&mut self, wait: bool) {
        self.on_disk = if wait { tc::DURABLE } else { 0 };
    }
    /// The same where all data nodes have disks.
    pub fn wait_where_saved(&mut self) {
        self.on_disk = tc::DURABLE_IF_SAVED;
    }
    /// A write was executed in it (or tried).
    pub fn has_writes(&self) -> bool {
        self.writes
    }
    /// The coordinator knows it and it is not over: reads that shall see its own changes must name it.
    pub fn is_started(&self) -> bool {
        matches!(self.state, State::Open | State::Busy)
    }
    /// Committed, or rolled back by the cluster or by the caller.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }
    /// After a commit: its epoch (0 as in [`Committed::epoch`]).
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Executes operations in order. Batches over the limits of a message are sent as several under the same savepoint number,
    /// so that they are undone together.
    ///
    /// # Errors
    /// An operation was refused: unless `aborted`, the effects of this batch (of all batches with this savepoint number or a
    /// higher one) are undone and the transaction lives. With `aborted` it is over. With `commit`, an error of class unknown
    /// outcome is neither; anything else says that nothing was committed. After a commit whose answer was lost the call
    /// succeeds and [`Results::lost`] is true.
    pub async fn execute(&mut self, ops: &OpBatch, options: ExecOptions, out: &mut Results) -> Result<(), ClientError> {
        out.clear();
        self.check_usable()?;
        if ops.is_empty() {
            return if options.commit { self.commit().await.map(|_| ()) } else { Ok(()) };
        }
        self.writes |= ops.has_writes();
        let client = self.client.clone();
        let fresh = self.state == State::New;
        let mut retry = Retry::for_reads(&client);
        self.losses.begin(&client.inner.core.borrow());
        loop {
            let attempt = pin!(self.attempt(ops, options, out)).await;
            match attempt {
                Ok(()) => return Ok(()),
                Err(Failure::Nowhere) if fresh => {
                    self.renew();
                    retry.nowhere().await?;
                }
                Err(Failure::Nowhere) => return Err(self.lost()),
                Err(Failure::Lost { committing: true }) => return self.settle(out).await,
                Err(Failure::Lost { committing: false }) if fresh && !retry.is_over() => {
                    // Nothing was answered yet: what the lost coordinator did will be rolled back, and we begin again.
                    if client.inner.core.borrow().has_killed(self.id) {
                        return Err(self.lost());
                    }
                    if let Some(token) = self.tc {
                        self.losses.note(lost_tc(&token), client.now());
                    }
                    self.renew();
                    self.losses.admit(&client, retry.deadline(), || ops.describe()).await?;
                    retry.failed(None).await?;
                }
                Err(Failure::Lost { committing: false }) => return Err(self.lost()),
                Err(Failure::Refused(error))
                    if error.code == ErrorCode::NodeFailed && client.inner.core.borrow().has_killed(self.id) =>
                {
                    return Err(self.node_failed());
                }
                Err(Failure::Refused(error)) => {
                    out.clear();
                    if !error.code.is_temporary() || (self.state == State::Over && !fresh) {
                        return Err(error);
                    }
                    if fresh {
                        self.renew();
                    } else if error.code == ErrorCode::Frozen {
                        // The coordinator has not seen it: what other batches of this savepoint did is not undone.
                        retry.refused(error).await.map_err(|_| self.lost())?;
                        continue;
                    }
                    retry.refused(error).await?;
                }
            }
        }
    }

    fn check_usable(&mut self) -> Result<(), ClientError> {
        if self.state == State::Busy {
            // An earlier call was dropped half way: what it did is not known, so the transaction cannot go on.
            self.abandon();
        }
        if self.state == State::Over { Err(ClientError::aborted(ErrorCode::TransactionAborted)) } else { Ok(()) }
    }

    /// A new id for another try at the first batch: the old one may still be held somewhere.
    fn renew(&mut self) {
        self.abandon();
        {
            let mut core = self.client.inner.core.borrow_mut();
            core.end_trans(self.id);
            self.id = core.next_trans();
        }
        self.tc = None;
        self.state = State::New;
    }

    fn abandon(&mut self) {
        if self.is_started()
            && let Some(token) = self.tc
        {
            let end = TcEndReq { request: 0, trans: self.id, savepoint: 0 };
            self.client.inner.core.borrow_mut().send(tc_ref(&token), Kind::TcRollbackReq, |out| end.encode(out));
        }
        self.state = State::Over;
    }

    fn lost(&mut self) -> ClientError {
        self.abandon();
        self.node_failed()
    }
    fn node_failed(&self) -> ClientError {
        if self.client.inner.core.borrow().has_killed(self.id) {
            let detail = "a data node panicked in the midst of it";
            let error = ClientError::with_detail(ErrorCode::StatementEndsNodes, detail);
            return ClientError { aborted: true, ..error };
        }
        ClientError { lost: self.tc.as_ref().map(lost_tc), ..ClientError::aborted(ErrorCode::NodeFailed) }
    }

    /// All messages of a batch, once.
    async fn attempt(&mut self, ops: &OpBatch, options: ExecOptions, out: &mut Results) -> Result<(), Failure> {
        out.clear();
        let mut body = Vec::new();
        let mut first = 0;
        while first < ops.len() {
            let end = ops.message_end(first);
            let whole = first == 0 && end == ops.len();
            let last = end == ops.len();
            let answer = if whole { out.buffer() } else { &mut body };
            let commit = options.commit && last;
            let verdict = pin!(self.message(ops, first, end, options, commit, answer)).await?;
            let error = match verdict {
                Verdict::Answer(Kind::TcBatchConf) => {
                    let taken = if whole { take_whole(out, end - first) } else { take_part(&body, end - first, out) };
                    match taken {
                        Ok((committed, epoch)) if committed == commit => {
                            self.state = if committed { State::Over } else { State::Open };
                            self.epoch = epoch;
                            first = end;
                            continue;
                        }
                        _ => {
                            self.client.violation(self.tc.map_or(NodeId(0), |t| t.tc_node));
                            return Err(Failure::Lost { committing: commit });
                        }
                    }
                }
                Verdict::Answer(_) => refusal(if whole { out.bytes() } else { &body }),
                Verdict::LinkLost | Verdict::TimedOut => return Err(Failure::Lost { committing: commit }),
            };
            // Refused before the coordinator saw it, which has undone nothing of the messages before.
            if error.code == ErrorCode::Frozen && first > 0 {
                return Err(Failure::Lost { committing: false });
            }
            return Err(Failure::Refused(self.refused(error, first)));
        }
        Ok(())
    }

    fn refused(&mut self, mut error: ClientError, first: usize) -> ClientError {
        error.op = error.op.saturating_add(u32::try_from(first).unwrap_or(u32::MAX));
        error.aborted |= error.code == ErrorCode::TransactionNotFound;
        if error.class() == ErrorClass::UnknownOutcome || error.aborted {
            self.state = State::Over;
        } else {
            self.state = State::Open;
        }
        error
    }

    /// One message of a batch.
    async fn message(
        &mut self,
        ops: &OpBatch,
        first: usize,
        end: usize,
        options: ExecOptions,
        commit: bool,
        answer: &mut Vec<u8>,
    ) -> Result<Verdict, Failure> {
        let (token, start) = match self.tc {
            Some(token) => (token, self.state == State::New),
            None => (self.choose_tc(ops.hash(first)).ok_or(Failure::Nowhere)?, true),
        };
        let client = self.client.clone();
        client.room(token.tc_node.0 as u8).await;
        let (view, deadline) = {
            let core = client.inner.core.borrow();
            let timeout_ms = core.config.transaction_timeout_ms + u64::from(options.lock_wait_ms);
            // Another process of the same node knows nothing of the transaction.
            let same = core.incarnation(token.tc_node) == Some(token.tc_incarnation);
            (same.then(|| core.view.clone()), core.now + timeout_ms * MS)
        };
        let Some(view) = view else {
            return Err(if start { Failure::Nowhere } else { Failure::Lost { committing: false } });
        };
        let flags = (u8::from(start) * tc::START) | (u8::from(commit) * tc::COMMIT) | self.on_disk;
        let call = client.call(tc_ref(&token), Kind::TcBatchReq, Kind::TcBatchConf, deadline, |body, request| {
            let count_at = TcBatchReq::begin(body, request, self.id, flags, options.savepoint, options.lock_wait_ms);
            for index in first..end {
                let at = body.len() + OP_PARTITION_AT;
                body.extend_from_slice(ops.op_bytes(index));
                patch_u16(body, at, view.partition_of(ops.hash(index)).0);
            }
            patch_u16(body, count_at, (end - first) as u16);
        });
        let call = call.ok_or(if start { Failure::Nowhere } else { Failure::Lost { committing: false } })?;
        self.tc = Some(token);
        self.state = State::Busy;
        let call = if commit { call } else { call.forgo() };
        Ok(call.end(answer).await)
    }

    fn choose_tc(&self, hash: u64) -> Option<CommitToken> {
        let core = self.client.inner.core.borrow();
        let route = core.route(core.view.partition_of(hash));
        if route.primary == NOWHERE {
            return None;
        }
        let tc_node = NodeId(u16::from(route.primary));
        let tc_incarnation = core.incarnation(tc_node)?;
        let began = core.now;
        Some(CommitToken { trans: self.id, tc_node, tc_instance: route.instance, tc_incarnation, began })
    }

    /// What became of a commit whose answer did not come.
    async fn settle(&mut self, out: &mut Results) -> Result<(), ClientError> {
        out.clear();
        self.state = State::Over;
        let Some(token) = self.tc else { return Err(self.node_failed()) };
        match self.client.outcome(&token).await? {
            Outcome::Committed => {
                out.set_lost();
                Ok(())
            }
            Outcome::Aborted => Err(self.node_failed()),
            Outcome::Forgotten => Err(ClientError::with_detail(ErrorCode::OutcomeForgotten, token.trans.to_string())),
            Outcome::Open => Err(ClientError::with_detail(ErrorCode::OutcomeUnknown, token.trans.to_string())),
        }
    }

    /// After an `execute` that commits was dropped half way: has its waits for locks ended, and tells what became of it. What was refused is asked
    /// for again and again, because a batch that got one lock may wait for the next.
    async fn give_up(&mut self, out: &mut Results) -> Result<Committed, ClientError> {
        out.clear();
        let is_under_way = matches!(self.state, State::Busy | State::Over);
        let Some(token) = self.tc.filter(|_| is_under_way) else {
            self.abandon();
            return Err(ClientError::aborted(ErrorCode::TransactionAborted));
        };
        let timeout_ms = self.client.inner.core.borrow().config.outcome_timeout_ms;
        let deadline = self.client.now() + timeout_ms * MS;
        loop {
            self.state = State::Busy;
            self.abandon();
            match self.client.outcome_within(&token, GIVE_UP_AGAIN_MS).await {
                Ok(Outcome::Committed) => {
                    out.set_lost();
                    return Ok(Committed { epoch: Epoch(0) });
                }
                Ok(Outcome::Aborted) => return Err(ClientError::aborted(ErrorCode::TransactionAborted)),
                Ok(Outcome::Forgotten) => {
                    return Err(ClientError::with_detail(ErrorCode::OutcomeForgotten, token.trans.to_string()));
                }
                Ok(Outcome::Open) => {}
                Err(error) if self.client.now() >= deadline => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Commits. A transaction that was never started has nothing to commit.
    ///
    /// # Errors
    /// `aborted`: rolled back everywhere. Class unknown outcome: ask again with [`Transaction::token`].
    pub async fn commit(&mut self) -> Result<Committed, ClientError> {
        if self.state == State::New {
            self.state = State::Over;
            return Ok(Committed { epoch: Epoch(0) });
        }
        self.check_usable()?;
        match self.end(Kind::TcCommitReq, Kind::TcCommitConf, 0).await {
            Ok(epoch) => {
                self.state = State::Over;
                self.epoch = epoch;
                Ok(Committed { epoch })
            }
            Err(Failure::Refused(error)) if error.code == ErrorCode::Frozen => Err(self.lost()),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Lost { committing: true }) => {
                self.settle(&mut Results::new()).await?;
                Ok(Committed { epoch: Epoch(0) })
            }
            Err(_) => Err(self.lost()),
        }
    }

    /// Rolls back. A transaction that is over already, or lost with its node, is rolled back.
    ///
    /// # Errors
    /// None that matter: the transaction is over in any case.
    pub async fn rollback(&mut self) -> Result<(), ClientError> {
        if self.state == State::Open {
            let ended = self.end(Kind::TcRollbackReq, Kind::TcRollbackConf, 0).await;
            if ended.is_err() {
                self.abandon();
            }
        } else {
            self.abandon();
        }
        self.state = State::Over;
        Ok(())
    }

    /// Undoes the batches with this savepoint number or a higher one; their locks stay.
    ///
    /// # Errors
    /// `aborted`: the whole transaction is rolled back.
    pub async fn rollback_to(&mut self, savepoint: u32) -> Result<(), ClientError> {
        if self.state == State::New {
            return Ok(());
        }
        self.check_usable()?;
        match self.end(Kind::TcRollbackReq, Kind::TcRollbackConf, savepoint.max(1)).await {
            Ok(_) => {
                self.state = State::Open;
                Ok(())
            }
            Err(Failure::Refused(error)) => Err(error),
            Err(_) => Err(self.lost()),
        }
    }

    async fn end(&mut self, kind: Kind, expects: Kind, savepoint: u32) -> Result<Epoch, Failure> {
        let Some(token) = self.tc else { return Err(Failure::Nowhere) };
        let client = self.client.clone();
        client.room(token.tc_node.0 as u8).await;
        let deadline = {
            let core = client.inner.core.borrow();
            if core.incarnation(token.tc_node) != Some(token.tc_incarnation) {
                return Err(Failure::Lost { committing: false });
            }
            core.now + core.config.transaction_timeout_ms * MS
        };
        let trans = self.id;
        let call = client.call(tc_ref(&token), kind, expects, deadline, |body, request| {
            TcEndReq { request, trans, savepoint }.encode(body);
        });
        let call = call.ok_or(Failure::Nowhere)?;
        self.state = State::Busy;
        let mut body = client.spare_body();
        let committing = kind == Kind::TcCommitReq;
        let call = if committing { call } else { call.forgo() };
        let ended = match call.end(&mut body).await {
            Verdict::Answer(kind) if kind == expects => match TcEndConf::decode(&body) {
                Ok(conf) => Ok(conf.epoch),
                Err(_) => {
                    client.violation(token.tc_node);
                    Err(Failure::Lost { committing })
                }
            },
            Verdict::Answer(_) => Err(Failure::Refused(self.refused(refusal(&body), 0))),
            Verdict::LinkLost | Verdict::TimedOut => Err(Failure::Lost { committing }),
        };
        client.keep_body(body);
        ended
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.abandon();
        self.client.inner.core.borrow_mut().end_trans(self.id);
    }
}

impl Client {
    /// Executes a batch as a transaction of its own, and again as a new one where a node failed before it was committed.
    ///
    /// # Errors
    /// Nothing was committed, except with class unknown outcome.
    pub async fn run_autocommit(
        &self,
        ops: &OpBatch,
        lock_wait_ms: u32,
        out: &mut Results,
    ) -> Result<Committed, ClientError> {
        self.run_autocommit_until(ops, lock_wait_ms, false, out, pending()).await
    }

    /// As [`Client::run_autocommit`] as long as `stop` is not done: then a wait for a lock ends. `on_disk`: see [`Transaction::wait_for_disk`].
    ///
    /// # Errors
    /// As there; `TransactionAborted`, with `aborted`, where it was stopped and nothing was committed.
    pub async fn run_autocommit_until(
        &self,
        ops: &OpBatch,
        lock_wait_ms: u32,
        on_disk: bool,
        out: &mut Results,
        stop: impl Future<Output = ()>,
    ) -> Result<Committed, ClientError> {
        let mut retry: Option<Retry<'_>> = None;
        let mut refused_since = None;
        let mut losses = Losses::default();
        let mut stop = pin!(stop);
        loop {
            let mut transaction = self.begin();
            transaction.losses = losses;
            transaction.wait_for_disk(on_disk);
            let done = {
                let mut executed = pin!(transaction.execute(ops, ExecOptions::autocommit(lock_wait_ms), out));
                poll_fn(|cx| match executed.as_mut().poll(cx) {
                    Poll::Ready(done) => Poll::Ready(Some(done)),
                    Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
                })
                .await
            };
            let Some(done) = done else { return transaction.give_up(out).await };
            let error = match done {
                Ok(()) => return Ok(Committed { epoch: transaction.epoch() }),
                Err(error) => error,
            };
            losses = std::mem::take(&mut transaction.losses);
            drop(transaction); // rolls back what may be left of it
            // For a frozen node the attempt has waited as long as is wise; a disk gets as long here.
            if !error.retry_transaction() || error.code == ErrorCode::Frozen {
                return Err(error);
            }
            if error.code.waits_for_operator() {
                let since = *refused_since.get_or_insert(self.now());
                if self.now() >= since + FROZEN_NS {
                    return Err(error);
                }
            }
            let current = retry.get_or_insert_with(|| Retry::for_reads(self));
            if current.is_over() {
                return Err(error);
            }
            losses.note_error(self, &error);
            losses.admit(self, current.deadline(), || ops.describe()).await?;
            current.pause().await?;
        }
    }
}

fn lost_tc(token: &CommitToken) -> LostNode {
    LostNode::new(token.tc_node, token.tc_incarnation)
}

fn tc_ref(token: &CommitToken) -> BlockRef {
    BlockRef::new(token.tc_node, BlockId::Tc, token.tc_instance)
}

/// An answer that lies in the results' own buffer.
fn take_whole(out: &mut Results, count: usize) -> Result<(bool, Epoch), ClientError> {
    let conf = TcBatchConf::decode(out.bytes())?;
    let head = (conf.committed, conf.epoch);
    if usize::from(conf.count) != count {
        return Err(DecodeError.into());
    }
    let mut at = CONF_HEAD;
    for _ in 0..count {
        let (status, length) = result_at(out.bytes(), at).ok_or(DecodeError)?;
        out.push_span(status, at + RESULT_HEAD, length);
        at += RESULT_HEAD + length;
    }
    Ok(head)
}

fn result_at(bytes: &[u8], at: usize) -> Option<(OpStatus, usize)> {
    let mut reader = apus_signal::Reader::new(bytes.get(at..)?);
    let result = OpResult::decode(&mut reader).ok()?;
    Some((result.status, result.row.len()))
}

/// An answer to a part of a batch that was split: results are copied.
fn take_part(body: &[u8], count: usize, out: &mut Results) -> Result<(bool, Epoch), ClientError> {
    let conf = TcBatchConf::decode(body)?;
    if usize::from(conf.count) != count {
        return Err(DecodeError.into());
    }
    for result in conf.results() {
        out.push(&result?)?;
    }
    Ok((conf.committed, conf.epoch))
}

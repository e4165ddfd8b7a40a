//! The handle to a client, and what every operation is made of: one request and its answer, waiting for room, waiting for a change.

use std::{
    any::Any,
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use apus_signal::{
    BlockRef, Kind,
    tc::{OUTCOME_LATE_MS, Outcome, RequestRef, TcOutcomeConf, TcOutcomeReq},
    view::View,
};
use apus_types::{ErrorCode, NodeId, PartitionId};

use crate::{
    ClientConfig, ClientError, CommitToken, Rows, Transaction,
    core::{
        Core, Counters,
        table::{RequestId, Verdict},
    },
    moment::Shared,
    read::ReadScratch,
    retry::Retry,
    scan::ScanScratch,
};

/// Buffers of short answers that a client keeps, and their largest size in bytes.
const BODIES_MAX: usize = 64;
const BODY_KEPT_MAX: usize = 4 << 10;

pub(crate) struct Inner {
    pub core: RefCell<Core>,
    pub scratch: RefCell<Vec<ReadScratch>>,
    pub scans: RefCell<Vec<ScanScratch>>,
    /// Buffers of aggregations.
    pub batches: RefCell<Vec<Rows>>,
    /// Buffers of short answers.
    pub bodies: RefCell<Vec<Vec<u8>>>,
    /// Who waits for a snapshot.
    pub shared: RefCell<Shared>,
    /// Whatever must end with the client: the shell's tasks.
    pub guard: RefCell<Option<Box<dyn Any>>>,
}

/// A client of the cluster: a cheap clone of a handle, for one thread.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Rc<Inner>,
}

/// While all nodes are frozen, nobody learns an outcome: who asks is told so after this.
const OUTCOME_FROZEN_NS: u64 = 1_500_000_000;

impl Client {
    /// A client without a driver: somebody must drive it ([`crate::Driver`]). [`Client::connect`] brings its own.
    ///
    /// # Errors
    /// `Internal` for a configuration without id, seeds or room for a request.
    pub fn new(config: ClientConfig) -> Result<Client, ClientError> {
        config.check()?;
        let core = RefCell::new(Core::new(config));
        let scratch = RefCell::default();
        let (scans, batches, bodies) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (shared, guard) = (RefCell::default(), RefCell::new(None));
        Ok(Client { inner: Rc::new(Inner { core, scratch, scans, batches, bodies, shared, guard }) })
    }

    /// The id that its transactions carry; see [`ClientConfig::client_id`].
    pub fn id(&self) -> u64 {
        self.inner.core.borrow().config.client_id
    }
    /// The newest map.
    pub fn view(&self) -> Rc<View> {
        self.inner.core.borrow().view.clone()
    }
    /// Which dictionary the cluster has, as far as this client has heard: lineage and version. Where a loss of power has taken the newest definitions, other ones get their versions in the next lineage.
    pub fn dictionary_point(&self) -> (u64, u64) {
        let core = self.inner.core.borrow();
        (core.view.lineage, core.schema_version)
    }
    /// Newest dictionary version announced by the cluster. Compare for inequality: a cluster that was set up anew starts again.
    pub fn schema_version(&self) -> u64 {
        self.inner.core.borrow().schema_version
    }
    /// Partition of a distribution hash ([`apus_types::key::distribution_hash`]).
    pub fn partition_of(&self, distribution_hash: u64) -> PartitionId {
        self.inner.core.borrow().view.partition_of(distribution_hash)
    }
    pub fn counters(&self) -> Counters {
        self.inner.core.borrow().counters
    }
    /// Data nodes linked at this moment.
    pub fn linked_nodes(&self) -> Vec<NodeId> {
        self.inner.core.borrow().linked_nodes().collect()
    }
    /// A new transaction; nothing is sent before its first batch.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Waits until a map is known and a data node is linked, then a little longer for links to the other full members.
    ///
    /// # Errors
    /// `NoNodeAvailable` after `connect_timeout_ms`.
    pub async fn ready(&self) -> Result<(), ClientError> {
        let timeout_ms = self.inner.core.borrow().config.connect_timeout_ms;
        let mut retry = Retry::new(self, timeout_ms);
        while !self.inner.core.borrow().is_serving() {
            retry.nowhere().await?;
        }
        // The first requests should not all go to the node that answered first.
        let grace = Retry::new(self, timeout_ms.min(300));
        while !grace.is_over() && !self.all_linked() {
            self.change(5_000_000).await;
        }
        Ok(())
    }

    fn all_linked(&self) -> bool {
        let core = self.inner.core.borrow();
        core.view.living().all(|n| core.is_linked(n.node()))
    }

    /// What became of a transaction; waits while it is open or being taken over.
    ///
    /// # Errors
    /// `OutcomeUnknown` when nobody could say within `outcome_timeout_ms`.
    pub async fn outcome(&self, token: &CommitToken) -> Result<Outcome, ClientError> {
        let timeout_ms = self.inner.core.borrow().config.outcome_timeout_ms;
        self.outcome_within(token, timeout_ms).await
    }
    /// As above, with another patience. Frozen nodes may stay so until an operator acts: while all are, it is over soon.
    pub(crate) async fn outcome_within(&self, token: &CommitToken, timeout_ms: u64) -> Result<Outcome, ClientError> {
        let mut retry = Retry::new(self, timeout_ms);
        let frozen_at = self.now() + OUTCOME_FROZEN_NS;
        let mut body = Vec::new();
        let unknown = || ClientError::with_detail(ErrorCode::OutcomeUnknown, token.trans.to_string());
        loop {
            if let Some(node) = self.outcome_node(token, retry.attempt()) {
                let to = BlockRef::new(node, apus_signal::BlockId::Tc, self.outcome_instance(token));
                let asked = self.now();
                let age = asked.saturating_sub(token.began) / 1_000_000 + 1;
                let age_ms = u32::try_from(age).unwrap_or(u32::MAX);
                let request = |request| TcOutcomeReq {
                    request,
                    trans: token.trans,
                    tc_node: token.tc_node,
                    tc_incarnation: token.tc_incarnation,
                    age_ms,
                };
                let verdict = self
                    .ask(to, Kind::TcOutcomeReq, Kind::TcOutcomeConf, retry.attempt_deadline(), &mut body, |out, id| {
                        request(id).encode(out);
                    })
                    .await;
                if verdict == Some(Verdict::Answer(Kind::TcOutcomeConf)) {
                    match TcOutcomeConf::decode(&body) {
                        Ok(conf) if conf.outcome == Outcome::Open || self.is_stale(conf.outcome, asked) => {}
                        Ok(conf) => return Ok(conf.outcome),
                        Err(_) => self.violation(node),
                    }
                }
            }
            if self.inner.core.borrow_mut().looks_frozen() && self.now() >= frozen_at {
                return Err(unknown());
            }
            retry.pause().await.map_err(|_| unknown())?;
        }
    }

    /// "Aborted" rests on how old the transaction was at the time of the answer: a question may have waited somewhere for long.
    fn is_stale(&self, outcome: Outcome, asked: u64) -> bool {
        outcome == Outcome::Aborted && self.now().saturating_sub(asked) > u64::from(OUTCOME_LATE_MS) * 1_000_000
    }

    /// The coordinator itself while it lives, else the others in turn.
    fn outcome_node(&self, token: &CommitToken, attempt: u32) -> Option<NodeId> {
        let core = self.inner.core.borrow();
        if core.incarnation(token.tc_node) == Some(token.tc_incarnation) {
            return Some(token.tc_node);
        }
        let count = core.linked_nodes().count().max(1);
        core.linked_nodes().nth(attempt as usize % count)
    }

    /// The coordinator's; who speaks for a dead one may have fewer.
    fn outcome_instance(&self, token: &CommitToken) -> u8 {
        let core = self.inner.core.borrow();
        match core.incarnation(token.tc_node) == Some(token.tc_incarnation) {
            true => token.tc_instance,
            false => (u32::from(token.tc_instance) % core.view.instances.max(1)) as u8,
        }
    }

    // Building blocks.

    pub(crate) fn now(&self) -> u64 {
        self.inner.core.borrow().now
    }
    pub(crate) fn violation(&self, node: NodeId) {
        if let Ok(node) = u8::try_from(node.0) {
            self.inner.core.borrow_mut().violation(node);
        }
    }

    /// Waits until a request to `node` may be added.
    #[inline]
    pub(crate) async fn room(&self, node: u8) {
        if self.inner.core.borrow().has_room(node) {
            return;
        }
        poll_fn(|cx| {
            let mut core = self.inner.core.borrow_mut();
            if core.has_room(node) {
                return Poll::Ready(());
            }
            core.wait_for_room(cx);
            Poll::Pending
        })
        .await;
    }

    /// Waits for a change of the map or the links, at most `nanoseconds`.
    pub(crate) async fn change(&self, nanoseconds: u64) {
        let (start, until) = {
            let core = self.inner.core.borrow();
            (core.changes, core.now + nanoseconds)
        };
        let mut timer = Timer { client: self, key: None };
        poll_fn(|cx| {
            let mut core = self.inner.core.borrow_mut();
            if core.changes != start || core.now >= until {
                return Poll::Ready(());
            }
            if let Some(key) = timer.key.take() {
                core.cancel_timer(key);
            }
            core.wait_for_change(cx);
            timer.key = Some(core.set_timer(until, cx.waker()));
            Poll::Pending
        })
        .await;
    }

    /// Sends one request. `None`: the node is not linked. Callers have waited for room.
    #[inline]
    pub(crate) fn call(
        &self,
        to: BlockRef,
        kind: Kind,
        expects: Kind,
        deadline: u64,
        write: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<Call> {
        let id = self.inner.core.borrow_mut().request(to, kind, expects, deadline, write)?;
        Some(Call { client: self.clone(), id, ended: false })
    }

    /// An empty buffer for a short answer; give it back with [`Client::keep_body`].
    pub(crate) fn spare_body(&self) -> Vec<u8> {
        self.inner.bodies.borrow_mut().pop().unwrap_or_default()
    }
    pub(crate) fn keep_body(&self, mut body: Vec<u8>) {
        let mut bodies = self.inner.bodies.borrow_mut();
        if bodies.len() < BODIES_MAX && body.capacity() <= BODY_KEPT_MAX {
            body.clear();
            bodies.push(body);
        }
    }

    /// Sends one request and waits for its end; an answer's body is in `body` then. `None`: the node is not linked.
    pub(crate) async fn ask(
        &self,
        to: BlockRef,
        kind: Kind,
        expects: Kind,
        deadline: u64,
        body: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<Verdict> {
        self.room(u8::try_from(to.node.0).ok()?).await;
        let call = self.call(to, kind, expects, deadline, write)?;
        Some(call.end(body).await)
    }
}

/// A request in flight; dropping it forgets it.
pub(crate) struct Call {
    client: Client,
    id: RequestId,
    ended: bool,
}

impl Call {
    #[inline]
    pub fn poll(&mut self, body: &mut Vec<u8>, cx: &Context<'_>) -> Poll<Verdict> {
        let mut core = self.client.inner.core.borrow_mut();
        let verdict = core.table.poll(self.id, body, cx);
        if let Poll::Ready(verdict) = verdict {
            self.ended = true;
            core.counters.timeouts += u64::from(verdict == Verdict::TimedOut);
            core.freed();
        }
        verdict
    }
    /// Ends as if its time were over where all members are frozen: for what is undone then in any case.
    pub fn forgo(self) -> Self {
        self.client.inner.core.borrow_mut().table.forgo(self.id);
        self
    }
    #[inline]
    pub async fn end(mut self, body: &mut Vec<u8>) -> Verdict {
        poll_fn(|cx| self.poll(body, cx)).await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let mut core = self.client.inner.core.borrow_mut();
            core.table.forget(self.id);
            core.freed();
        }
    }
}

struct Timer<'c> {
    client: &'c Client,
    key: Option<(u64, u64)>,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.client.inner.core.borrow_mut().cancel_timer(key);
        }
    }
}

/// The refusal in an answer's body.
pub(crate) fn refusal(body: &[u8]) -> ClientError {
    match RequestRef::decode(body) {
        Ok(refusal) => ClientError::from_ref(&refusal),
        Err(_) => ClientError::new(ErrorCode::ProtocolViolation),
    }
}

//! Transaction coordinator (TC): carries a client's transactions to the fragments and through commit.
//!
//! Owns one record per open transaction of its clients, and of those it takes over from dead coordinators. Talks to clients
//! (`apus_signal::tc`), to LDMs of every node (`apus_signal::ldm`), and to other TCs (deadlock probes). It keeps no rows and no locks: if
//! it dies, everything it knew is found again in the LDMs (`apus_signal::takeover`).
//!
//! # States of a transaction
//!
//! ```text
//!            batches              all prepared           every chain committed
//!  Active ------------> Preparing ------------> Committing ------------------> answered, completed, gone
//!    |  \ statement failed    | prepare refused, primary died
//!    |   RollingBack -> Active|
//!    +----------------------> Aborting ------> answered, gone
//! ```
//!
//! An autocommit batch for one chain whose primary is on this node is handed to the LDM to commit on the way (one pass): the
//! transaction is then `OnePass` until the LDM answers, and nobody may abort it meanwhile.
//!
//! # What dies with whom
//!
//! A participant's primary: the transaction is rolled back with `NodeFailed` unless it is committing. A backup: nothing is lost, the chain
//! is shorter. The client: what is not committing is rolled back. TC itself: the survivors' TCs take over.
//!
//! # Switchover
//!
//! Before primaries are moved, what is new on their chains is held and what is open there is waited for: `switchover.rs`.
//!
//! # Idle
//!
//! Who does nothing and holds up a recovery is rolled back: `idle.rs`.
//!
//! # Limits
//!
//! [`TRANSACTIONS_MAX`], [`take_over::SLICE_STEPS_MAX`], `BATCH_OPS_MAX` operations per batch, `DEADLOCK_PATH_MAX`, [`QUESTIONS_MAX`], [`TOMBSTONES_MAX`], [`durable::HELD_MAX`].

mod batch;
mod clients;
mod deadlock;
mod durable;
mod ending;
mod finish;
mod idle;
mod outcome;
mod record;
mod switchover;
mod take_over;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    dict::TableOrd,
    epoch::{Drained, EpochOrd},
    operator::EndOrder,
    qmgr::decode,
    switchover::{Switch, SwitchAnswer},
    takeover::{TakeOverEndRep, TakeOverTransRep},
    tc::RequestRef,
    view::{NodeState, View},
};
use apus_storage::MemoryManager;
use apus_types::{Chain, ErrorCode, NodeId, RowLayout};
use prost::Message;

pub use self::clients::TOMBSTONES_MAX;
use self::{
    clients::Clients,
    outcome::Question,
    record::{State, Transactions},
    take_over::TakeOver,
};
use crate::{buffers::Records, deferred::Deferred, flight::Patience, ldm::Slices};

/// Most open transactions of one TC instance; more are refused with `TooManyTransactions`.
pub const TRANSACTIONS_MAX: usize = 100_000;
/// Most outcome questions being answered at once; more are answered "open" and asked again.
pub const QUESTIONS_MAX: usize = 10_000;

pub struct TransactionCoordinator {
    me: BlockRef,
    view: View,
    /// Generation of the view that last saw each data node leave, by node id.
    left_at: Vec<u64>,
    transactions: Transactions,
    memory: Arc<MemoryManager>,
    /// Of the memory, what the transactions' records have.
    records: Records,
    clients: Clients,
    take_over: Option<TakeOver>,
    /// How much of a take-over is done at once; a `TcContinueOrd` for the rest is on its way.
    slices: Slices,
    continuing: bool,
    switch: Option<switchover::Switchover>,
    /// The cluster ends, and QMGR waits for us to have nothing under way.
    ending: Option<EndOrder>,
    /// So it takes nothing from clients that came by another worker.
    ends: bool,
    /// The node has agreed to leave the cluster: whoever still asks is sent to another node.
    has_left: bool,
    /// When batches with refused parts are due again, with their places.
    retries: BinaryHeap<Reverse<(u64, u32)>>,
    questions: Vec<Question>,
    next_question: u64,
    deferred: Deferred,
    /// DIH waits for us to have drained the epochs below this round's.
    drain: Option<EpochOrd>,
    /// Answers that wait for the disk.
    held: durable::Held,
    patience: Patience,
    hidden_layout: RowLayout,
    scratch: batch::Scratch,
    counters: Counters,
}

/// What this instance has done since it started.
#[derive(Default, Debug, Clone, Copy)]
pub struct Counters {
    pub batches: u64,
    pub commits: u64,
    pub one_pass_commits: u64,
    pub aborts: u64,
    pub statement_rollbacks: u64,
    pub deadlocks: u64,
    pub taken_over: u64,
}

impl TransactionCoordinator {
    pub fn new(node: NodeId, instance: u8, memory: Arc<MemoryManager>, slices: Slices) -> TransactionCoordinator {
        TransactionCoordinator {
            me: BlockRef::new(node, BlockId::Tc, instance),
            view: View::default(),
            left_at: vec![0; usize::from(NodeId::DATA_MAX) + 1],
            transactions: Transactions::default(),
            memory,
            records: Records::default(),
            clients: Clients::new(0),
            take_over: None,
            slices,
            continuing: false,
            switch: None,
            ending: None,
            ends: false,
            has_left: false,
            retries: BinaryHeap::new(),
            questions: Vec::new(),
            next_question: 1,
            deferred: Deferred::default(),
            drain: None,
            held: durable::Held::default(),
            patience: Patience::default(),
            hidden_layout: batch::hidden_layout(),
            scratch: batch::Scratch::new(0),
            counters: Counters::default(),
        }
    }

    fn living(&self, chain: Chain) -> Chain {
        chain.retain(|n| self.view.is_alive(n))
    }

    fn ldm(&self, node: NodeId, instance: u8) -> BlockRef {
        BlockRef::new(node, BlockId::Ldm, instance)
    }

    fn refuse(&self, to: BlockRef, kind: Kind, refusal: RequestRef<'_>, ctx: &mut Context<'_>) {
        ctx.send(to, kind, |out| refusal.encode(out));
    }

    fn is_up(&self) -> bool {
        !self.has_left && !self.ends && self.view.state(self.me.node) == NodeState::Up
    }

    /// Sets a signal of a later view aside; `true` if it was.
    fn defer(&mut self, generation: u64, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> bool {
        if generation <= self.view.generation {
            return false;
        }
        self.deferred.set_aside(envelope, body, ctx);
        true
    }

    /// Definitions do not matter to TC: hidden tables all have one form. It confirms so that DICT may treat all alike.
    fn on_table_ord(&mut self, from: BlockRef, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let order = <TableOrd as Message>::decode(body).map_err(|_| DecodeError)?;
        let conf = TableOrd { table: None, ..order };
        ctx.send(from, Kind::TableConf, |out| out.extend_from_slice(&conf.encode_to_vec()));
        Ok(())
    }

    /// Reports the epoch of the round as drained once no commit below it is under way here. During a take-over nobody knows what will be.
    fn try_drain(&mut self, ctx: &mut Context<'_>) {
        let Some(order) = self.drain else { return };
        if order.generation < self.view.generation {
            self.drain = None;
        } else if self.take_over.is_none() && self.transactions.in_flight.is_drained(order.epoch) {
            self.drain = None;
            let conf = Drained { generation: order.generation, round: order.round, ..Drained::default() };
            ctx.send(BlockRef::new(self.me.node, BlockId::Dih, 0), Kind::DrainConf, |out| conf.encode(out));
        }
    }

    /// An epoch does not end: says which take-over or commit is waited for, and whose answer to it.
    #[cold]
    fn name_late(&self, ctx: &mut Context<'_>) {
        if let Some(take_over) = &self.take_over {
            return self.name_late_take_over(take_over, ctx);
        }
        let oldest = self.transactions.in_flight.oldest();
        let is_late = |t: &record::Trans| t.in_flight && Some(t.epoch) == oldest;
        let Some((_, late)) = self.transactions.iter().find(|(_, t)| is_late(t)) else { return };
        let chain = late.participants.iter().find(|p| !p.ended).map(|p| p.chain);
        if let Some(at) = chain.and_then(|c| self.living(c).primary()) {
            let what = format_args!("transaction {}, committed by {:?},", late.id, self.me);
            self.patience.report(self.me, what, at, ctx);
        }
    }

    fn on_client_gone(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let client = NodeId(apus_signal::Reader::new(body).u16()?);
        self.clients.link_down(client);
        while let Some(at) = self.transactions.of_client(client) {
            self.carry_over(at, ctx);
            if self.transactions.of_client(client) != Some(at) {
                continue; // it has ended by that
            }
            self.transactions.forget_client(at);
            if self.transactions.get(at).may_abort() {
                ctx.probe("tc: client gone amid a transaction");
                self.start_abort(at, ErrorCode::LinkLost, ctx);
            }
        }
        self.questions.retain(|q| q.client.node != client);
        Ok(())
    }
}

impl Block for TransactionCoordinator {
    fn block_ref(&self) -> BlockRef {
        self.me
    }

    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from;
        let result = self.execute(from, envelope, body, ctx);
        if self.drain.is_some() {
            self.try_drain(ctx);
        }
        if self.switch.is_some() {
            self.try_switch(ctx);
        }
        if self.ending.is_some() {
            self.try_end(ctx);
        }
        result
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.retry_refused(ctx);
        self.records.follow(&self.memory, self.transactions.held());
        if let Some(ask) = self.clients.tick() {
            let workers = ctx.ping_workers(ask.token);
            self.clients.asked(workers);
        }
        self.tick_switch(ctx);
        if self.patience.tick(self.drain.as_ref().map(EpochOrd::id)) {
            self.name_late(ctx);
        }
    }

    fn dump(&self, out: &mut String) {
        use std::fmt::Write;
        let _ = writeln!(
            out,
            "TC {:?}: view {}, {} transactions, {} tombstones, take-over {:?}, drain {:?}, {}, {:?}",
            self.me,
            self.view.generation,
            self.transactions.len(),
            self.clients.buried(),
            self.take_over.as_ref().map(|t| t.generation),
            self.drain.map(|d| d.epoch.0),
            self.held.summary(),
            self.counters
        );
        for (_, t) in self.transactions.iter().take(100) {
            let _ = writeln!(out, "  transaction {}: {:?}, participants {:?}", t.id, t.state, t.participants);
        }
    }

    fn verify(&self) -> Result<(), String> {
        self.clients.verify()?;
        self.held.verify()?;
        self.transactions.verify()?;
        let committing = self.transactions.iter().filter(|(_, t)| t.state == State::Committing).count() as u64;
        let counted = self.transactions.in_flight.total();
        if committing != counted {
            return Err(format!("{committing} transactions commit, {counted} are counted"));
        }
        self.verify_switch()
    }
}

impl TransactionCoordinator {
    fn execute(
        &mut self,
        from: BlockRef,
        envelope: &Envelope,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        match envelope.kind {
            Kind::TcBatchReq => self.on_batch_req(from, body, ctx),
            Kind::TcCommitReq => self.on_commit_req(from, body, ctx),
            Kind::TcRollbackReq => self.on_rollback_req(from, body, ctx),
            Kind::TcFloorOrd => self.on_floor_ord(from, body, ctx),
            Kind::TcOutcomeReq => self.on_outcome_req(from, body, ctx),
            Kind::LdmBatchConf => self.on_batch_conf(body, ctx),
            Kind::LdmBatchRef => self.on_batch_ref(body, ctx),
            Kind::LdmPreparedConf | Kind::LdmPreparedRef => self.on_prepared(from, body, ctx),
            Kind::LdmCommittedConf | Kind::LdmAbortConf => self.on_ended(envelope.kind, from, body, ctx),
            Kind::LdmWaitRep => self.on_wait_rep(body, ctx),
            Kind::DeadlockProbeOrd => self.on_deadlock_probe(body, ctx),
            Kind::OutcomeConf => self.on_outcome_conf(envelope.from, body, ctx),
            Kind::TakeOverTransRep => {
                let rep = TakeOverTransRep::decode(body)?;
                if !self.defer(rep.generation, envelope, body, ctx) {
                    self.on_take_over_trans(&rep);
                }
                Ok(())
            }
            Kind::TakeOverEndRep => {
                let rep = TakeOverEndRep::decode(body)?;
                if !self.defer(rep.generation, envelope, body, ctx) {
                    self.on_take_over_end(from, rep.generation, ctx);
                }
                Ok(())
            }
            Kind::ViewOrd => self.on_view_ord(body, ctx),
            Kind::TcContinueOrd => {
                self.continuing = false;
                self.continue_take_over(ctx);
                Ok(())
            }
            Kind::SwitchReq => {
                let switch = decode::<Switch>(body)?;
                if !self.defer(switch.generation, envelope, body, ctx) {
                    self.on_switch_req(from, &switch, ctx);
                }
                Ok(())
            }
            Kind::LeaveOrd => {
                self.on_left(ctx);
                Ok(())
            }
            Kind::EndOrd if from.node == self.me.node => {
                self.on_end_ord(decode(body)?, ctx);
                Ok(())
            }
            Kind::SwitchEndOrd => {
                let end = decode::<SwitchAnswer>(body)?;
                if !self.defer(end.generation, envelope, body, ctx) {
                    self.on_switch_end(&end, ctx);
                }
                Ok(())
            }
            Kind::TableOrd => self.on_table_ord(from, body, ctx),
            Kind::ClientUpRep => self.clients.link_up(body, ctx),
            Kind::PingConf if from.node == self.me.node => self.clients.answered(body),
            Kind::ClientGoneRep => self.on_client_gone(body, ctx),
            Kind::DrainReq => {
                let order = EpochOrd::decode(body)?;
                if !self.defer(order.generation, envelope, body, ctx) {
                    ctx.raise_epoch(order.epoch);
                    self.on_restorable(&order, ctx);
                    self.drain = Some(order);
                }
                Ok(())
            }
            _ => Err(DecodeError),
        }
    }
}

//! A member's side of epochs, and the snapshots that clients hold at this node.
//!
//! ```text
//! SnapshotReq --> Asking (the president for the floor) --> Waiting (for the floor to be complete) --> Held --SnapshotEndOrd, the end of the
//!                                                                                       link, age, memory--> gone
//! ```
//!
//! What a node reports as `oldest` is a promise: it will hand out nothing older. It is the oldest snapshot held, or else the newest complete
//! epoch known, which is what the next snapshot will get at least.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::{Drained, EpochFloor, EpochOrd, SnapshotConf, SnapshotReq},
    tc::RequestRef,
};
use apus_types::{Epoch, ErrorCode, NodeId};

use super::{Distribution, RESEND_NS};

/// Most snapshots that the clients of one node may hold or wait for.
pub const SNAPSHOTS_MAX: usize = 10_000;
/// A snapshot is given up at this age: what it keeps in memory has no other bound than what is written meanwhile.
pub const SNAPSHOT_AGE_NS: u64 = 600_000_000_000;
/// Ages are looked at this often.
const SWEEP_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Waiting {
    client: BlockRef,
    request: u64,
    /// Number of the question to the president that concerns it; 0: not asked yet.
    question: u64,
    floor: Option<Epoch>,
}

/// A round that this node takes part in.
#[derive(Debug)]
struct Draining {
    order: EpochOrd,
    /// TC and LDM instances that have not confirmed.
    missing: u32,
    short_of_memory: bool,
    dirty: bool,
}

#[derive(Default)]
pub(super) struct Snapshots {
    pub complete: Epoch,
    pub horizon: Epoch,
    /// The round being drained, or the last one.
    draining: Option<Draining>,
    /// An order of a view that is not here yet.
    early: Option<(NodeId, EpochOrd)>,
    waiting: Vec<Waiting>,
    /// By client and request: its epoch, and since when.
    held: BTreeMap<(NodeId, u64), (Epoch, u64)>,
    by_epoch: BTreeSet<(Epoch, NodeId, u64)>,
    next_question: u64,
    /// The question under way and when it was sent; 0: none.
    asked: u64,
    asked_at: u64,
    swept: u64,
    given_up: u64,
}

impl Snapshots {
    pub fn give_back(&mut self, client: NodeId, request: u64) {
        self.waiting.retain(|w| w.client.node != client || w.request != request);
        if let Some((epoch, _)) = self.held.remove(&(client, request)) {
            let listed = self.by_epoch.remove(&(epoch, client, request));
            assert!(listed, "the snapshot {epoch} of {client} is held and not listed");
        }
    }
    pub fn client_gone(&mut self, client: NodeId) {
        self.waiting.retain(|w| w.client.node != client);
        let gone: Vec<u64> = self.held.range((client, 0)..=(client, u64::MAX)).map(|(key, _)| key.1).collect();
        for request in gone {
            self.give_back(client, request);
        }
    }
    /// The oldest epoch that this node may still read at or hand out.
    fn oldest(&mut self) -> Epoch {
        // What fell behind the horizon was given up by the president.
        while let Some(&(epoch, client, request)) = self.by_epoch.first().filter(|s| s.0 < self.horizon) {
            self.given_up += 1;
            self.by_epoch.remove(&(epoch, client, request));
            let held = self.held.remove(&(client, request));
            assert!(held.is_some(), "the snapshot {epoch} of {client} is listed and not held");
        }
        self.by_epoch.first().map_or(self.complete, |s| s.0.min(self.complete))
    }
    fn sweep(&mut self, now: u64) {
        let old: Vec<(NodeId, u64)> =
            self.held.iter().filter(|(_, (_, since))| since + SNAPSHOT_AGE_NS <= now).map(|(key, _)| *key).collect();
        self.given_up += old.len() as u64;
        for (client, request) in old {
            self.give_back(client, request);
        }
    }
    pub fn summary(&self) -> String {
        format!(
            "complete {} horizon {} held {} waiting {} given up {}",
            self.complete,
            self.horizon,
            self.held.len(),
            self.waiting.len(),
            self.given_up
        )
    }
    pub fn verify(&self) -> Result<(), String> {
        let agree = self.held.len() == self.by_epoch.len()
            && self.by_epoch.iter().all(|&(epoch, c, r)| self.held.get(&(c, r)).is_some_and(|h| h.0 == epoch));
        if !agree || self.horizon > self.complete {
            return Err(format!("snapshots do not agree: {} held, {}", self.by_epoch.len(), self.summary()));
        }
        Ok(())
    }
}

impl Distribution {
    /// A new view: rounds and questions of the old one are void.
    pub(super) fn begin_member(&mut self, ctx: &mut Context<'_>) {
        self.snapshots.draining = None;
        self.snapshots.asked = 0;
        // Floors as well: in which epoch everybody keeps versions is another president's word now.
        for waiting in &mut self.snapshots.waiting {
            (waiting.question, waiting.floor) = (0, None);
        }
        if !self.is_up() {
            for w in std::mem::take(&mut self.snapshots.waiting) {
                let refusal = RequestRef::new(w.request, ErrorCode::NodeStarting);
                ctx.send(w.client, Kind::RequestRef, |b| refusal.encode(b));
            }
        }
        self.ask_floor(ctx);
        if let Some((from, order)) = self.snapshots.early.take() {
            self.on_epoch_ord(from, order, ctx);
        }
    }

    pub(super) fn on_epoch_ord(&mut self, from: NodeId, order: EpochOrd, ctx: &mut Context<'_>) {
        let generation = self.generation();
        if order.generation > generation {
            self.snapshots.early = Some((from, order));
            return;
        }
        if order.generation < generation || self.president() != Some(from) {
            jam!(ctx);
            return;
        }
        let known = self.snapshots.draining.as_ref().map_or(0, |d| d.order.round);
        if order.round < known {
            return;
        }
        if order.round == known {
            self.report_drained(ctx); // asked again: the answer may be lost
            return;
        }
        ctx.raise_epoch(order.epoch);
        let snapshots = &mut self.snapshots;
        snapshots.complete = snapshots.complete.max(order.complete);
        snapshots.horizon = snapshots.horizon.max(order.horizon);
        let (complete, horizon) = (snapshots.complete, snapshots.horizon);
        self.saves.restorable = self.saves.restorable.max(order.restorable);
        if from != self.me {
            self.saves.possible = order.saves;
        }
        let snapshots = &mut self.snapshots;
        assert!(horizon <= complete, "the horizon {horizon} is above what is complete, {complete}");
        assert!(complete < order.epoch, "a round begins in epoch {}, and {complete} is complete", order.epoch);
        let instances = ctx.instances();
        snapshots.draining =
            Some(Draining { order, missing: 2 * u32::from(instances), short_of_memory: false, dirty: false });
        for instance in 0..instances {
            for block in [BlockId::Tc, BlockId::Ldm] {
                ctx.send(BlockRef::new(self.me, block, instance), Kind::DrainReq, |b| order.encode(b));
            }
        }
        self.serve_snapshots(ctx);
    }

    pub(super) fn on_drain_conf(&mut self, conf: Drained, ctx: &mut Context<'_>) {
        let Some(draining) = &mut self.snapshots.draining else { return };
        if (draining.order.generation, draining.order.round) != (conf.generation, conf.round) {
            return;
        }
        assert!(draining.missing > 0, "more confirmations of a round than instances");
        draining.missing -= 1;
        draining.short_of_memory |= conf.short_of_memory;
        draining.dirty |= conf.dirty;
        self.report_drained(ctx);
    }

    /// Tells the president when all instances have drained.
    fn report_drained(&mut self, ctx: &mut Context<'_>) {
        let Some(president) = self.president() else { return };
        let Some(draining) = self.snapshots.draining.as_ref().filter(|d| d.missing == 0) else { return };
        let (EpochOrd { generation, round, .. }, short_of_memory) = (draining.order, draining.short_of_memory);
        let (has_disk, dirty) = (self.has_disk, draining.dirty);
        let oldest = self.snapshots.oldest();
        let holds = !self.snapshots.held.is_empty() || !self.snapshots.waiting.is_empty();
        let rep = Drained { generation, round, oldest, short_of_memory, holds, has_disk, dirty };
        ctx.send(BlockRef::new(president, BlockId::Dih, 0), Kind::EpochDrainedRep, |b| rep.encode(b));
    }

    // ---- snapshots

    pub(super) fn on_snapshot_req(&mut self, from: BlockRef, req: SnapshotReq, ctx: &mut Context<'_>) {
        let full = self.snapshots.waiting.len() + self.snapshots.held.len() >= SNAPSHOTS_MAX;
        let twice = self.snapshots.held.contains_key(&(from.node, req.request));
        let refused = match (self.is_up(), full, twice) {
            (false, ..) => Some(ErrorCode::NodeStarting),
            (_, true, _) => Some(ErrorCode::TooManySnapshots),
            (.., true) => Some(ErrorCode::ProtocolViolation),
            _ => None,
        };
        if let Some(code) = refused {
            ctx.send(from, Kind::RequestRef, |b| RequestRef::new(req.request, code).encode(b));
            return;
        }
        self.snapshots.waiting.push(Waiting { client: from, request: req.request, question: 0, floor: None });
        self.ask_floor(ctx);
    }

    /// One question at a time, for all that wait when it is sent: who comes later may need a higher floor.
    fn ask_floor(&mut self, ctx: &mut Context<'_>) {
        let snapshots = &mut self.snapshots;
        if snapshots.asked != 0 || snapshots.waiting.iter().all(|w| w.question != 0) {
            return;
        }
        snapshots.next_question += 1;
        snapshots.asked = snapshots.next_question;
        for waiting in snapshots.waiting.iter_mut().filter(|w| w.question == 0) {
            waiting.question = snapshots.asked;
        }
        self.send_question(ctx);
    }

    fn send_question(&mut self, ctx: &mut Context<'_>) {
        let Some(president) = self.president() else { return };
        self.snapshots.asked_at = ctx.now();
        let question = EpochFloor { generation: self.generation(), question: self.snapshots.asked, floor: Epoch(0) };
        ctx.send(BlockRef::new(president, BlockId::Dih, 0), Kind::EpochFloorReq, |b| question.encode(b));
    }

    pub(super) fn on_floor_conf(&mut self, conf: EpochFloor, ctx: &mut Context<'_>) {
        if conf.generation != self.generation() || conf.question != self.snapshots.asked || conf.question == 0 {
            jam!(ctx);
            return;
        }
        self.snapshots.asked = 0;
        for waiting in self.snapshots.waiting.iter_mut().filter(|w| w.question == conf.question) {
            waiting.floor = Some(conf.floor);
        }
        self.serve_snapshots(ctx);
        self.ask_floor(ctx);
    }

    /// Answers those whose floor is complete.
    fn serve_snapshots(&mut self, ctx: &mut Context<'_>) {
        let snapshots = &mut self.snapshots;
        let (complete, now) = (snapshots.complete, ctx.now());
        let Snapshots { waiting, held, by_epoch, .. } = snapshots;
        waiting.retain(|w| {
            if w.floor.is_none_or(|floor| floor > complete) {
                return true;
            }
            // A client that has used a number twice gets one snapshot.
            if held.contains_key(&(w.client.node, w.request)) {
                return false;
            }
            held.insert((w.client.node, w.request), (complete, now));
            let fresh = by_epoch.insert((complete, w.client.node, w.request));
            assert!(fresh, "the snapshot {complete} of {} was listed and not held", w.client.node);
            let conf = SnapshotConf { request: w.request, epoch: complete };
            ctx.send(w.client, Kind::SnapshotConf, |b| conf.encode(b));
            false
        });
    }

    pub(super) fn tick_snapshots(&mut self, ctx: &mut Context<'_>) {
        if self.snapshots.asked != 0 && ctx.now() >= self.snapshots.asked_at + RESEND_NS {
            jam!(ctx);
            self.send_question(ctx);
        }
        if ctx.now() >= self.snapshots.swept + SWEEP_NS {
            self.snapshots.swept = ctx.now();
            self.snapshots.sweep(ctx.now());
        }
    }
}

//! The president's part: one schema transaction at a time, and finishing what a dead president began.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    dict::{Change, DictReadReq, Era, SchemaConf, SchemaReq, SchemaState, SchemaStep},
    gcp::GcpHurry,
    qmgr::encode,
    schema::TableMessage,
};
use apus_types::{
    Epoch, ErrorCode, NodeId, eras,
    planted::{Bug, planted},
};

use super::{Dictionary, JOIN_LOCK_NS, QUEUE_MAX, STEP_RETRY_NS, participant::step_table, plan};

/// A change that somebody waits for.
struct Wish {
    from: BlockRef,
    request: u64,
    token: u64,
    change: Change,
}

struct Running {
    step: SchemaStep,
    /// Who is answered, with which number; nobody for what the president does on its own. Several where a client asked again, by
    /// another member, before its first question came; [`QUEUE_MAX`] at most.
    from: Vec<(BlockRef, u64)>,
    committing: bool,
    waiting: BTreeSet<NodeId>,
    /// When they were sent what they are to answer.
    sent: u64,
    error: u32,
}

#[derive(Default)]
pub(super) struct Coordinator {
    queue: VecDeque<Wish>,
    running: Option<Running>,
    /// Members whose state a new president waits for.
    collecting: Option<BTreeSet<NodeId>>,
    /// The view that began this take-over: what members said in earlier ones is of an earlier state.
    since: u64,
    reports: BTreeMap<NodeId, SchemaState>,
    /// Starting nodes that wait for a copy, and those that join with one, with the end of their patience.
    copies: VecDeque<(BlockRef, DictReadReq)>,
    locks: BTreeMap<NodeId, u64>,
    /// Of the change at the head of the queue.
    saved: Saved,
}

/// Whether all that was committed before a change is on the disks.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Saved {
    #[default]
    Unknown,
    Asked,
    Yes,
}

impl Coordinator {
    pub(super) fn summary(&self) -> String {
        let running = self.running.as_ref().map(|r| (r.step.version, r.committing, &r.waiting));
        format!(
            "running {running:?} queued {} collecting {:?} locks {:?}",
            self.queue.len(),
            self.collecting,
            self.locks
        )
    }
    /// Another president: forwarders ask it again.
    pub(super) fn reset(&mut self) {
        self.queue.clear();
        self.running = None;
        self.collecting = None;
        self.copies.clear();
        self.locks.clear();
        self.saved = Saved::Unknown;
    }
    /// A lineage begins. What is not committed anywhere is undone: those that this side goes on without may have given the version to another change.
    pub(super) fn undo_prepared(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|running| !running.committing) {
            running.error = running.error.max(ErrorCode::SchemaBusy as u32);
        }
    }
    pub(super) fn begin_take_over(&mut self, living: BTreeSet<NodeId>, generation: u64) {
        self.collecting = Some(living);
        self.since = generation;
        self.reports.retain(|_, report| report.generation >= generation);
    }
    pub(super) fn members_are(&mut self, living: &BTreeSet<NodeId>) {
        self.locks.retain(|n, _| !living.contains(n));
        self.reports.retain(|n, _| living.contains(n));
        if let Some(running) = &mut self.running {
            running.waiting.retain(|n| living.contains(n));
        }
        if let Some(collecting) = &mut self.collecting {
            collecting.retain(|n| living.contains(n));
        }
    }
}

/// Prepared without an error and to the end.
fn is_sound(prepared: &Option<SchemaStep>) -> bool {
    prepared.as_ref().is_some_and(|step| step.error == 0)
}

impl Dictionary {
    fn broadcast(&self, kind: Kind, step: &SchemaStep, ctx: &mut Context<'_>) -> BTreeSet<NodeId> {
        let living = self.living();
        for &node in &living {
            let is_dropped = match kind {
                Kind::SchemaCommitOrd => node != self.me && ctx.fault("dict.drop_commit"),
                Kind::SchemaPrepReq => node != self.me && ctx.fault("dict.drop_prepare"),
                _ => false,
            };
            if is_dropped {
                continue;
            }
            ctx.send(Self::dict_of(node), kind, |b| encode(step, b));
        }
        living
    }

    /// Sends a step once more to those who do not answer.
    pub(super) fn repeat_step(&mut self, ctx: &mut Context<'_>) {
        let is_late = |r: &&mut Running| ctx.now().saturating_sub(r.sent) >= STEP_RETRY_NS;
        let Some(running) = self.coordinator.running.as_mut().filter(is_late) else { return };
        jam!(ctx);
        running.sent = ctx.now();
        let kind = if running.committing { Kind::SchemaCommitOrd } else { Kind::SchemaPrepReq };
        for &node in &running.waiting {
            ctx.send(Self::dict_of(node), kind, |b| encode(&running.step, b));
        }
    }

    /// Does what is next; called whenever something changed.
    pub(super) fn go_on(&mut self, ctx: &mut Context<'_>) {
        if self.coordinator.collecting.is_some() {
            self.finish_take_over(ctx);
        }
        self.check_running(ctx);
        while self.coordinator.running.is_none() && self.coordinator.collecting.is_none() {
            let lineage = self.lineage();
            if self.catalog.version == 0 {
                self.start(plan::bootstrap(&self.catalog, lineage).step, Vec::new(), ctx);
                return;
            }
            self.serve_copies(ctx);
            let now = ctx.now();
            self.coordinator.locks.retain(|n, until| *until > now && ctx.link_up(*n));
            if !self.coordinator.locks.is_empty() && !planted(Bug::SchemaLockIgnored) {
                return;
            }
            let Some(wish) = self.coordinator.queue.pop_front() else { return };
            // A take-over may have finished it while it waited.
            if self.answer_executed(wish.token, wish.from, wish.request, ctx) {
                continue;
            }
            if let Some((looked_at, name)) = published(&wish.change) {
                if lineage != looked_at {
                    ctx.probe("dict: an index is to be filled again");
                    self.coordinator.saved = Saved::Unknown; // what was asked for this one is not asked for the next
                    let code = ErrorCode::SchemaVersionChanged;
                    Self::refuse(ctx, wish.from, Kind::SchemaRef, wish.request, code, name);
                    continue;
                }
                if !self.is_saved(ctx) {
                    self.coordinator.queue.push_front(wish);
                    return;
                }
            }
            match plan::plan(&self.catalog, wish.token, &wish.change, lineage) {
                Ok(plan) => self.start(plan.step, vec![(wish.from, wish.request)], ctx),
                Err((code, name)) => Self::refuse(ctx, wish.from, Kind::SchemaRef, wish.request, code, &name),
            }
        }
    }

    /// A unique index, or what is said of all rows, is published for rows of which all are on the disks, and their entries. A start from the disks has the newest dictionary and
    /// may have an older epoch of the rows: one that was deleted before the index was filled would be there again, and have no entry.
    fn is_saved(&mut self, ctx: &mut Context<'_>) -> bool {
        if self.coordinator.saved == Saved::Unknown {
            self.coordinator.saved = Saved::Asked;
            let dih = BlockRef::new(self.me, BlockId::Dih, 0);
            ctx.send(dih, Kind::GcpHurryOrd, |b| GcpHurry { epoch: Epoch(u64::MAX) }.encode(b));
        }
        if self.coordinator.saved == Saved::Asked {
            return false;
        }
        self.coordinator.saved = Saved::Unknown;
        true
    }

    pub(super) fn on_saved(&mut self, ctx: &mut Context<'_>) {
        if self.coordinator.saved == Saved::Asked {
            self.coordinator.saved = Saved::Yes;
            self.go_on(ctx);
        }
    }

    fn start(&mut self, step: SchemaStep, from: Vec<(BlockRef, u64)>, ctx: &mut Context<'_>) {
        let step = SchemaStep { generation: self.generation(), ..step };
        let (version, running) = (self.catalog.version, &self.coordinator.running);
        assert!(running.is_none(), "a schema change begins amid another: {}", self.coordinator.summary());
        assert!(step.follows == version, "a schema change to {} begins at {version}", step.version);
        if eras::era(step.version) > eras::era(version) {
            ctx.probe("dict: an era of versions begins");
        }
        let waiting = self.broadcast(Kind::SchemaPrepReq, &step, ctx);
        self.coordinator.running = Some(Running { step, from, committing: false, waiting, sent: ctx.now(), error: 0 });
    }

    pub(super) fn on_schema_req(
        &mut self,
        from: BlockRef,
        req: SchemaReq,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if !self.is_president() {
            jam!(ctx); // we are to be, or the forwarder sends it again when it sees the view that we have seen
            if req.change.is_some() && self.early.len() < QUEUE_MAX {
                ctx.probe("dict: request for a president that does not know it");
                self.early.push_back((ctx.now(), from, req));
            }
            return Ok(());
        }
        let change = req.change.ok_or(DecodeError)?;
        let is_same = |running: &&mut Running| running.step.token == req.token && req.token != 0;
        if let Some(running) = self.coordinator.running.as_mut().filter(is_same) {
            // We have it, which says nothing of the others, nor of the disks.
            if running.from.len() < QUEUE_MAX && !running.from.contains(&(from, req.request)) {
                running.from.push((from, req.request));
            }
        } else if self.coordinator.collecting.is_none() && self.answer_executed(req.token, from, req.request, ctx) {
            jam!(ctx); // asked again
        } else if self.coordinator.queue.iter().any(|wish| (wish.from, wish.request) == (from, req.request)) {
            jam!(ctx); // sent again while it waits
        } else if self.coordinator.queue.len() >= QUEUE_MAX {
            Self::refuse(ctx, from, Kind::SchemaRef, req.request, ErrorCode::SchemaBusy, "");
        } else {
            self.coordinator.queue.push_back(Wish { from, request: req.request, token: req.token, change });
            self.go_on(ctx);
        }
        Ok(())
    }

    /// A change that was made already gets its answer again.
    fn answer_executed(&mut self, token: u64, to: BlockRef, request: u64, ctx: &mut Context<'_>) -> bool {
        let Some(done) = self.catalog.find_executed(token) else { return false };
        let version = done.version;
        let table = self.catalog.tables.get(&done.table).map(TableMessage::from);
        let conf = SchemaConf { request, version, table };
        ctx.send(to, Kind::SchemaConf, |b| encode(&conf, b));
        true
    }

    pub(super) fn on_step_answer(&mut self, from: NodeId, answer: &SchemaStep, commit: bool, ctx: &mut Context<'_>) {
        let Some(running) = &mut self.coordinator.running else { return };
        if running.step.version != answer.version || running.step.token != answer.token || running.committing != commit
        {
            jam!(ctx);
            return;
        }
        running.error = running.error.max(answer.error);
        if running.waiting.remove(&from) {
            self.go_on(ctx);
        }
    }

    /// All have answered: the next phase, or the end.
    fn check_running(&mut self, ctx: &mut Context<'_>) {
        let Some(running) = self.coordinator.running.take_if(|r| r.waiting.is_empty()) else { return };
        if !running.committing && running.error == 0 {
            let version = self.catalog.version;
            assert!(running.step.follows == version, "{} is to be committed on {version}", running.step.version);
            let waiting = self.broadcast(Kind::SchemaCommitOrd, &running.step, ctx);
            self.coordinator.running = Some(Running { committing: true, waiting, sent: ctx.now(), ..running });
            return;
        }
        if !running.committing {
            self.catalog.skip_ids(&running.step);
            self.broadcast(Kind::SchemaAbortOrd, &running.step, ctx);
        }
        for (from, request) in running.from {
            if running.committing {
                let table = step_table(&running.step).cloned();
                let conf = SchemaConf { request, version: running.step.version, table };
                ctx.send(from, Kind::SchemaConf, |b| encode(&conf, b));
            } else {
                Self::refuse(ctx, from, Kind::SchemaRef, request, Self::error_of(running.error), "");
            }
        }
    }

    // ---- take-over

    pub(super) fn on_state_rep(&mut self, from: NodeId, state: SchemaState, ctx: &mut Context<'_>) {
        if state.generation < self.coordinator.since {
            return jam!(ctx);
        }
        // It may come before our own view: then it is kept until we know that we are president.
        self.coordinator.reports.insert(from, state);
        if self.is_president() {
            self.go_on(ctx);
        }
    }

    fn finish_take_over(&mut self, ctx: &mut Context<'_>) {
        let coordinator = &mut self.coordinator;
        let Some(wanted) = &coordinator.collecting else { return };
        if !wanted.iter().all(|n| coordinator.reports.contains_key(n)) {
            return;
        }
        coordinator.collecting = None;
        let reports = std::mem::take(&mut coordinator.reports);
        // An undone step may be unknown to those who were not asked to prepare it.
        let given = reports.values().map(|r| r.next_table_id).max().unwrap_or(0);
        self.catalog.next_table_id = self.catalog.next_table_id.max(given);
        self.catalog.begun = reports.values().filter_map(|r| r.era).fold(self.catalog.begun, Era::max);
        let newest = reports.values().max_by_key(|r| r.version);
        let Some(newest) = newest else { return };
        let is_half = reports.values().any(|r| r.version < newest.version) && !planted(Bug::SchemaLeftHalf);
        if let Some(step) = newest.last.as_ref().filter(|_| is_half) {
            ctx.probe("dict: a new president finishes a schema transaction");
            return self.commit_for_dead(step.clone(), ctx);
        }
        let open = |r: &SchemaState| r.prepared.clone().filter(|p| p.version > newest.version);
        let all: Vec<Option<SchemaStep>> = reports.values().map(open).collect();
        if let Some(Some(step)) = all.first().filter(|first| all.iter().all(|p| p == *first && is_sound(p))) {
            // Who died may have committed it, and rows have been written by it.
            ctx.probe("dict: a new president makes what all have prepared");
            self.commit_for_dead(step.clone(), ctx);
        } else if let Some(step) = all.iter().flatten().next() {
            ctx.probe("dict: a new president undoes a schema transaction");
            self.catalog.skip_ids(step);
            self.broadcast(Kind::SchemaAbortOrd, step, ctx);
        } else if let Some(step) = newest.last.as_ref().filter(|_| !planted(Bug::SchemaLeftHalf)) {
            // All have it, but who died may have waited for a disk: its client is answered when it is on all of those that are left. With something
            // prepared behind it that is certain.
            self.commit_for_dead(step.clone(), ctx);
        }
    }

    fn commit_for_dead(&mut self, step: SchemaStep, ctx: &mut Context<'_>) {
        let waiting = self.broadcast(Kind::SchemaCommitOrd, &step, ctx);
        let sent = ctx.now();
        self.coordinator.running = Some(Running { step, from: Vec::new(), committing: true, waiting, sent, error: 0 });
    }

    // ---- joining nodes

    pub(super) fn on_copy_req(&mut self, from: BlockRef, req: DictReadReq, ctx: &mut Context<'_>) {
        if self.is_president() && !self.coordinator.copies.contains(&(from, req)) {
            self.coordinator.copies.push_back((from, req));
            self.go_on(ctx);
        }
    }

    fn serve_copies(&mut self, ctx: &mut Context<'_>) {
        let is_at_rest = self.coordinator.running.is_none() && self.coordinator.collecting.is_none();
        assert!(is_at_rest, "a joining node is given the dictionary amid a change: {}", self.coordinator.summary());
        while let Some((joiner, req)) = self.coordinator.copies.pop_front() {
            if !req.looks_only {
                self.coordinator.locks.insert(joiner.node, ctx.now() + JOIN_LOCK_NS);
            }
            ctx.send(joiner, Kind::DictCopyConf, |b| encode(&self.catalog.to_copy(), b));
        }
    }
}

/// The lineage by which rows were looked at for what a change says of all of them, and a name for messages.
fn published(change: &Change) -> Option<(u64, &str)> {
    match change {
        Change::PublishIndex(index) => Some((index.lineage, &index.name)),
        Change::ChangeColumns(change) => Some((change.lineage?, change.table.as_ref().map_or("", |name| &name.table))),
        _ => None,
    }
}

//! DICT: the dictionary and its changes.
//!
//! Owns the dictionary of this node (every member has all of it). Talks to clients, to DICT of the other members, to LDM and TC of
//! its node (`TableOrd`), and tells DIH and CNTR the version. Conversations: `apus_signal::dict`.
//!
//! ```text
//! client --SchemaReq--> any DICT (forwarder) --SchemaReq--> the president's DICT (coordinator): one transaction at a time
//!   coordinator --SchemaPrepReq--> every member: Define to LDM and TC, all confirm --SchemaPrepConf--> coordinator
//!   coordinator --SchemaCommitOrd--> every member: dictionary, Drop to LDM and TC   --SchemaCommitConf--> coordinator
//!   coordinator --SchemaConf--> forwarder --SchemaConf--> client                     (or SchemaAbortOrd, SchemaRef)
//! ```
//! The client's answer comes after *every* member has the change: what is created can be used anywhere at once. From prepare
//! to commit LDM and TC know the new definition while operations still carry the old version: both are accepted. What a step takes away is kept
//! whole until the commit, indexes too: a step that is undone has changed nothing.
//!
//! **A member does not answer**: it is asked again every [`STEP_RETRY_NS`]. **It dies**: nobody waits for it any more. **The president dies**: every member tells the new one its version, its last step
//! and what it has prepared (`SchemaStateRep`); committed anywhere is committed everywhere, and so is what all of them have prepared, because
//! who died may have committed it and clients have written by it; anything else is undone; forwarders tell
//! clients, who send again what has no answer, unless it was lost with two presidents. A step is known by its token, and members remember the last [`TOKENS_MAX`], so a request that was
//! executed already gets its answer again, but not while the step is under way: that one member has it says nothing of the others, nor of the disks. A new president lets all of
//! them confirm the last step once more for the same reason (simulator seed 219002582). **A node joins**: it copies the dictionary between two transactions and no transaction
//! begins before it is in the view, its link is gone or [`JOIN_LOCK_NS`] are over; a member that finds itself behind stops.
//!
//! **A lineage begins** with an era of versions, so that no definition gets the version of one that was lost: [`apus_types::eras`].
//!
//! **A unique index is published** when all that was committed before is on the disks, where there are disks; changes behind it wait, too. It is refused if the cluster has
//! started from the disks since it was filled.
//!
//! **The dictionary on disk** and a restart from there: `keep`.
//!
//! **Memory** (`Region::Schema`): a member that has none for a step that adds to the dictionary refuses it, and the step is undone.
//!
//! Limits: [`QUEUE_MAX`] waiting changes, [`WATCHERS_MAX`] clients told of new versions, and those of `plan`.

mod catalog;
mod coordinator;
mod foreign_keys;
mod keep;
mod participant;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write,
    sync::Arc,
};

use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    dict::{self, Change, DictReadReq, SchemaConf, SchemaReq},
    file::FileDone,
    gcp::Keep,
    qmgr::{decode, encode},
    tc::RequestRef,
    view::{NodeState, View},
};
use apus_storage::{MemoryManager, Region};
use apus_types::{ErrorCode, NodeId};

pub use self::{
    catalog::{AUTO_INCREMENT_TABLE, Catalog, SYSTEM_DATABASE},
    keep::{FILE as DICTIONARY_FILE, MAGIC as DICTIONARY_MAGIC, read_file},
    plan::{Plan, bootstrap, plan},
};
use crate::{NodeConfig, buffers::step};

/// Most schema changes that wait at the coordinator, and at a forwarder.
pub const QUEUE_MAX: usize = 256;
/// A definition in memory takes about so many times its encoded bytes.
const SPREAD: usize = 6;
/// A view that makes us president arrives sooner after the first who knows it than this.
const EARLY_NS: u64 = 1_000_000_000;
/// Tokens of executed changes that are remembered.
pub const TOKENS_MAX: usize = 1024;
/// Most clients that are told of new versions.
pub const WATCHERS_MAX: usize = 8192;
/// A node that copied the dictionary holds up schema changes no longer than this.
pub const JOIN_LOCK_NS: u64 = 30_000_000_000;
/// Members that have not answered a step are sent it again after this long.
const STEP_RETRY_NS: u64 = 500_000_000;
/// A forwarder whose request is not answered sends it again after this long: what was on its way is lost with a link that does not go on, or with what
/// a president gives up in a view that settles.
const FORWARD_RETRY_NS: u64 = 1_000_000_000;
/// A joining node asks again for the dictionary after this long.
const COPY_RETRY_NS: u64 = 500_000_000;

/// A client's change on its way to the coordinator.
struct Forwarded {
    client: BlockRef,
    request: u64,
    token: u64,
    change: Change,
    /// To the president, last.
    sent: u64,
}

/// The dictionary manager; see the module.
pub struct Dictionary {
    me: NodeId,
    instances: u8,
    catalog: Catalog,
    view: Option<View>,
    forwarded: BTreeMap<u64, Forwarded>,
    numbers: u64,
    /// Requests to a president that does not know yet that it is one, with when they came: a forwarder may see the view first.
    early: VecDeque<(u64, BlockRef, SchemaReq)>,
    watchers: VecDeque<BlockRef>,
    participant: participant::Participant,
    keeper: keep::Keeper,
    coordinator: coordinator::Coordinator,
    memory: Arc<MemoryManager>,
    /// What it has of that.
    memory_bytes: usize,
}

impl Dictionary {
    pub fn new(config: &NodeConfig) -> Dictionary {
        Dictionary {
            me: config.node,
            instances: config.workers,
            catalog: Catalog::default(),
            view: None,
            forwarded: BTreeMap::new(),
            numbers: 0,
            early: VecDeque::new(),
            watchers: VecDeque::new(),
            participant: participant::Participant::default(),
            keeper: keep::Keeper::new(config.disk.as_ref()),
            coordinator: coordinator::Coordinator::default(),
            memory: config.memory.clone(),
            memory_bytes: 0,
        }
    }

    /// Accounts a dictionary of so many encoded bytes, as it stands in this block and in the LDM and TC of each worker. `false`: there is no memory for it.
    fn account(&mut self, encoded: usize) -> bool {
        let copies = 1 + 2 * usize::from(self.instances);
        step(&self.memory, Region::Schema, &mut self.memory_bytes, encoded * SPREAD * copies)
    }

    fn dict_of(node: NodeId) -> BlockRef {
        BlockRef::new(node, BlockId::Dict, 0)
    }
    fn president(&self) -> Option<NodeId> {
        self.view.as_ref().and_then(|v| u16::try_from(v.president).ok()).map(NodeId)
    }
    fn is_president(&self) -> bool {
        self.president() == Some(self.me)
    }
    fn generation(&self) -> u64 {
        self.view.as_ref().map_or(0, |v| v.generation)
    }
    fn lineage(&self) -> u64 {
        self.view.as_ref().map_or(0, |v| v.lineage)
    }
    fn living(&self) -> BTreeSet<NodeId> {
        self.view.iter().flat_map(View::living).map(|n| n.node()).collect()
    }
    fn serves(&self) -> bool {
        self.catalog.version > 0 && self.view.as_ref().is_some_and(|v| v.state(self.me) == NodeState::Up)
    }
    fn refuse(ctx: &mut Context<'_>, to: BlockRef, kind: Kind, request: u64, code: ErrorCode, detail: &str) {
        let refusal = RequestRef { detail: detail.as_bytes(), ..RequestRef::new(request, code) };
        ctx.send(to, kind, |b| refusal.encode(b));
    }

    // ---- clients

    fn on_read_req(&mut self, from: BlockRef, req: DictReadReq, ctx: &mut Context<'_>) {
        if !self.serves() {
            Self::refuse(ctx, from, Kind::DictReadRef, req.request, ErrorCode::NodeStarting, "");
            return;
        }
        self.watchers.retain(|w| *w != from);
        if self.watchers.len() >= WATCHERS_MAX {
            self.watchers.pop_front();
        }
        self.watchers.push_back(from);
        let lineage = self.lineage();
        let answer = if req.known_version == self.catalog.version {
            let version = self.catalog.version;
            dict::Dictionary { request: req.request, version, unchanged: true, lineage, ..dict::Dictionary::default() }
        } else {
            dict::Dictionary { lineage, ..self.catalog.to_message(req.request) }
        };
        ctx.send(from, Kind::DictReadConf, |b| encode(&answer, b));
    }

    /// Tells clients, DIH and CNTR the version.
    fn announce(&mut self, ctx: &mut Context<'_>) {
        let news = dict::Dictionary { version: self.catalog.version, unchanged: true, ..dict::Dictionary::default() };
        for block in [BlockId::Dih, BlockId::Cntr] {
            ctx.send(BlockRef::new(self.me, block, 0), Kind::SchemaRep, |b| encode(&news, b));
        }
        let instances = u16::from(self.instances).max(1);
        self.watchers.retain(|w| !(w.node.0 - NodeId::CLIENT_BASE).is_multiple_of(instances) || ctx.link_up(w.node));
        for &watcher in &self.watchers {
            ctx.send(watcher, Kind::SchemaRep, |b| encode(&news, b));
        }
    }

    fn on_client_req(&mut self, client: BlockRef, req: SchemaReq, ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let change = req.change.ok_or(DecodeError)?;
        if !self.serves() {
            Self::refuse(ctx, client, Kind::SchemaRef, req.request, ErrorCode::NodeStarting, "");
        } else if self.forwarded.len() >= QUEUE_MAX {
            Self::refuse(ctx, client, Kind::SchemaRef, req.request, ErrorCode::SchemaBusy, "");
        } else {
            self.numbers += 1;
            let wish = Forwarded { client, request: req.request, token: req.token, change, sent: 0 };
            self.forwarded.insert(self.numbers, wish);
            self.forward(self.numbers, ctx);
        }
        Ok(())
    }

    fn forward(&mut self, number: u64, ctx: &mut Context<'_>) {
        let president = self.president();
        let (Some(wish), Some(president)) = (self.forwarded.get_mut(&number), president) else { return };
        wish.sent = ctx.now();
        let req = SchemaReq { request: number, token: wish.token, change: Some(wish.change.clone()) };
        ctx.send(Self::dict_of(president), Kind::SchemaReq, |b| encode(&req, b));
    }

    /// Another one presides. A change with which a president was lost is not brought to the next one unasked, for it may be what ended it: its client
    /// counts (`apus_client::Losses`), and sends it again with the same token.
    fn forward_again(&mut self, number: u64, is_lost: bool, ctx: &mut Context<'_>) {
        match self.forwarded.remove(&number) {
            Some(wish) if is_lost => {
                ctx.probe("dict: a president is lost with a change of the schema");
                Self::refuse(ctx, wish.client, Kind::SchemaRef, wish.request, ErrorCode::NodeFailed, "");
            }
            Some(wish) => {
                self.forwarded.insert(number, wish);
                self.forward(number, ctx);
            }
            None => {}
        }
    }

    fn on_conf(&mut self, mut conf: SchemaConf, ctx: &mut Context<'_>) {
        let Some(wish) = self.forwarded.remove(&conf.request) else { return };
        conf.request = wish.request;
        ctx.send(wish.client, Kind::SchemaConf, |b| encode(&conf, b));
    }

    fn on_ref(&mut self, mut refusal: RequestRef<'_>, ctx: &mut Context<'_>) {
        let Some(wish) = self.forwarded.remove(&refusal.request) else { return };
        refusal.request = wish.request;
        ctx.send(wish.client, Kind::SchemaRef, |b| refusal.encode(b));
    }

    // ---- the view

    fn on_view(&mut self, view: View, ctx: &mut Context<'_>) {
        let before = self.president();
        let process = before.and_then(|n| self.view.as_ref()?.node(n)).map(|n| n.incarnation);
        let settles = self.view.as_ref().is_some_and(|old| view.settles_after(old));
        if self.view.as_ref().is_some_and(|old| old.lineage != view.lineage) {
            self.coordinator.undo_prepared();
        }
        self.view = Some(view);
        self.stop_asking_for_copy();
        let president = self.president();
        if before != president || settles {
            self.coordinator.reset();
            if self.is_president() {
                self.coordinator.begin_take_over(self.living(), self.generation());
            }
            self.report_state(ctx);
            let lives = |n: NodeId| self.view.as_ref().zip(process).is_some_and(|(v, i)| v.is_member(n, i));
            let is_lost = before.is_some_and(|n| !lives(n));
            let numbers: Vec<u64> = self.forwarded.keys().copied().collect();
            for number in numbers {
                self.forward_again(number, is_lost, ctx);
            }
        }
        if self.is_president() {
            let living = self.living();
            self.coordinator.members_are(&living);
            self.go_on(ctx);
            for (_, from, req) in std::mem::take(&mut self.early) {
                let taken = self.on_schema_req(from, req, ctx);
                assert!(taken.is_ok(), "a request that was kept decodes");
            }
        }
    }
}

impl Block for Dictionary {
    fn block_ref(&self) -> BlockRef {
        Self::dict_of(self.me)
    }

    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from;
        let is_client = from.node.is_client();
        match envelope.kind {
            Kind::DictReadReq if is_client => self.on_read_req(from, decode(body)?, ctx),
            Kind::SchemaReq if is_client => self.on_client_req(from, decode(body)?, ctx)?,
            Kind::ViewOrd => self.on_view(View::from_bytes(body)?, ctx),
            // Coordinator.
            Kind::SchemaReq if from.block == BlockId::Dict => self.on_schema_req(from, decode(body)?, ctx)?,
            Kind::SchemaPrepConf => self.on_step_answer(from.node, &decode(body)?, false, ctx),
            Kind::SchemaPrepRef => self.on_step_answer(from.node, &decode(body)?, false, ctx),
            Kind::SchemaCommitConf => self.on_step_answer(from.node, &decode(body)?, true, ctx),
            Kind::SchemaStateRep => self.on_state_rep(from.node, decode(body)?, ctx),
            Kind::DictCopyReq if self.view.is_none() => self.on_copy_req_before(from, decode(body)?, ctx),
            Kind::DictCopyReq => self.on_copy_req(from, decode(body)?, ctx),
            // Files.
            Kind::FileConf => self.on_file(&FileDone::decode(body)?, true, ctx),
            Kind::FileRef => self.on_file(&FileDone::decode(body)?, false, ctx),
            Kind::GcpSaveConf if from.node == self.me => self.on_saved(ctx),
            Kind::KeepReq if from.node == self.me => self.on_keep_req(from, Keep::decode(body)?, ctx),
            Kind::RestoreReq if from.node == self.me => self.on_restore_req(decode(body)?, ctx),
            // Participant.
            Kind::SchemaPrepReq => self.on_prep_req(from, decode(body)?, ctx)?,
            Kind::SchemaCommitOrd => self.on_commit_ord(from, &decode(body)?, ctx)?,
            Kind::SchemaAbortOrd => self.on_abort_ord(&decode(body)?, ctx),
            Kind::TableConf | Kind::TableRef if from.node == self.me => {
                self.on_table_answer(envelope.kind, &decode(body)?, ctx);
            }
            // Joining node.
            Kind::JoinConf if from.node == self.me => self.on_copy_order(decode(body)?, ctx),
            Kind::DictCopyConf => self.on_copy_conf(from.node, &decode(body)?, ctx)?,
            // Forwarder.
            Kind::SchemaConf => self.on_conf(decode(body)?, ctx),
            Kind::SchemaRef => self.on_ref(RequestRef::decode(body)?, ctx),
            _ => return Err(DecodeError),
        }
        Ok(())
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.ask_for_copy(ctx);
        self.tick_file(ctx);
        let is_late = |wish: &Forwarded| ctx.now().saturating_sub(wish.sent) >= FORWARD_RETRY_NS;
        let late: Vec<u64> =
            self.forwarded.iter().filter(|(_, wish)| is_late(wish)).map(|(&number, _)| number).collect();
        for number in late {
            self.forward(number, ctx);
        }
        while self.early.front().is_some_and(|(since, ..)| ctx.now().saturating_sub(*since) > EARLY_NS) {
            self.early.pop_front();
        }
        if self.is_president() {
            self.repeat_step(ctx);
            self.go_on(ctx);
        }
    }

    fn dump(&self, out: &mut String) {
        let c = &self.catalog;
        let _ =
            writeln!(out, "dict version {} tables {} forwarded {}", c.version, c.tables.len(), self.forwarded.len());
        let (participant, coordinator) = (self.participant.summary(), self.coordinator.summary());
        let _ = writeln!(out, "{participant} {coordinator} {}", self.keeper.summary());
    }
}

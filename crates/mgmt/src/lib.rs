//! The management node: holds the configuration, answers operators, arbitrates.
//!
//! Owns the configuration and what data nodes told it last. Talks to QMGR of the data nodes, to operators and to clients that look
//! for data nodes. It is no part of any transaction. After a restart the data nodes register again within a second.
//!
//! **Arbitration.** Exactly half of a cluster asks whether it may go on without the rest. The first to ask gets yes, and the
//! incarnations it goes on without are *fenced*: each of them is answered no from then on, as long as it has that view or an older
//! one. Who is not fenced gets yes (again): the same asker, or the next president of the same side. So at any time the incarnations
//! that could still be told yes are on one side. A fence ends when its process has a later view: one that more than half made with it, while
//! the side that was told yes fell apart. It does not end when its node starts anew: the old process may be frozen somewhere, and ask again.
//!
//! A no is *certain* (`ArbitConf::gone_on`, `StopOrd`) when a member has reported a later view without the asker. Otherwise the asker keeps
//! its rows: who was told yes may have died before it used it.
//!
//! A yes is told when those it goes on without cannot answer clients any more: who is still linked to us is asked to give up its
//! lease, for it may not know yet that it lost the others (see `lease_end` of the QMGR block).
//!
//! **A start without all nodes** (generation 0) is granted when no cluster is known to run and no other such start was
//! granted, as long as one of those it was granted to lives: two halves that cannot see each other never both start.
//!
//! **Fences and disks.** A cluster that begins again from its disks need not wait for those that were fenced last (`qmgr/fenced.rs`): so the configuration
//! says whom the file fences, and from which view, and which of them are known to live.
//!
//! **Its file** (`kept`) holds who the arbitrator is, whom it fenced and which founding it knows of. A yes is told when the file that says so
//! is written and synced. So a management node that was restarted is the *same* arbitrator, and goes on where it was; it grants no start without
//! all nodes of a cluster that was founded before, and tells data nodes of that founding, so that they found no other beside it unless an
//! operator gives it up: for once (`MgmtConfig::found_again`), or with an orderly end of the cluster (`operator`). One that cannot write its file resigns: it promises nothing, and members name another one.
//! Without a data directory nothing is kept: after a restart it is another arbitrator, views name the process, and a question under a
//! view that names another is answered no. The members' next view names the new one (see the QMGR block).
//!
//! **Two management nodes** know nothing of each other. Each holds the configuration, is told everything by the members, and answers
//! operators and clients; one of them is the arbitrator. One that was not told which cluster it belongs to takes over the id that
//! the first member names.
//!
//! **SQL nodes** may run the same block, to arbitrate and for nothing else ([`search`]).

mod arbitrator;
pub mod kept;
mod operator;
mod search;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use apus_kernel::{Block, Context};
pub use apus_signal::mgmt::default_partitions;
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    file::FileDone,
    gcp,
    mgmt::{
        ClusterConfig, ConfigConf, ConfigNode, Fences, MemoryUse, MgmtReq, NodeSummary, RegisterRep, SILENCE_MS,
        StartProgress, StatusConf,
    },
    operator::FrozenSide,
    qmgr::{ArbitConf, ArbitReq, Heartbeat, Incarnation, LeaseEnd, LinkRep, StopOrd, checked_view, decode, encode},
    speeds::Speeds,
    view::{NodeState, View},
};
use apus_types::{Chain, NodeId, limits::PARTITIONS_MAX};

use kept::Promise;

pub use arbitrator::{Arbitrator, Refusal};

/// What the management node is told at its start.
#[derive(Clone, Debug)]
pub struct MgmtConfig {
    /// Own id, [`NodeId::MGMT_BASE`] + 1 or + 2; of a SQL node [`NodeId::ARBITRATOR_BASE`] + its number.
    pub node: NodeId,
    /// See [`cluster_config`].
    pub cluster: ClusterConfig,
    /// Of this process; drawn anew at every start, never 0.
    pub incarnation: u64,
    /// The cluster's id was only drawn: a member's word counts more.
    pub may_adopt: bool,
    /// An operator gives up what was founded before: the data nodes may found the cluster again, once.
    pub found_again: bool,
    pub memory: Memory,
    /// Of a SQL node: management nodes and their addresses, where the executor does not know them.
    pub mgmts: Vec<(NodeId, String)>,
}

/// Where the arbitrator keeps what it promises.
#[derive(Clone, PartialEq, Debug)]
pub enum Memory {
    /// Nowhere: after its end the next process is another arbitrator.
    Process,
    /// In its file (see [`kept`]), with what was there at the start.
    File(Option<kept::Promise>),
}

/// What a node said of itself holds for so long: it says it once a second.
const FRESH_NS: u64 = 5_000_000_000;

/// Longest time that a yes is held back.
const HOLD_MAX_NS: u64 = 5_000_000_000;

/// Most management nodes of a cluster.
pub const MGMTS_MAX: u16 = 2;

/// A configuration with the usual times and one management node: data nodes 1 to `groups * replicas`, neighbours in one group.
/// `cluster` is random.
///
/// # Errors
/// What is out of range.
pub fn cluster_config(
    cluster: u64,
    groups: u32,
    replicas: u32,
    instances: u32,
    partitions: u32,
) -> Result<ClusterConfig, String> {
    let nodes = groups.saturating_mul(replicas);
    if !(1..=Chain::REPLICAS_MAX as u32).contains(&replicas) {
        return Err(format!("replicas must be 1 to {}, not {replicas}", Chain::REPLICAS_MAX));
    }
    if groups == 0 || nodes > u32::from(NodeId::DATA_MAX) {
        return Err(format!("a cluster has 1 to {} data nodes, not {nodes}", NodeId::DATA_MAX));
    }
    if !(1..=u32::from(apus_kernel::limits::INSTANCES_MAX)).contains(&instances) {
        return Err(format!("a data node has 1 to {} workers", apus_kernel::limits::INSTANCES_MAX));
    }
    if !(groups..=u32::from(PARTITIONS_MAX)).contains(&partitions) {
        return Err(format!("partitions must be at least one per node group and at most {PARTITIONS_MAX}"));
    }
    let node = |i: u32| ConfigNode { id: i + 1, group: i / replicas, ..ConfigNode::default() };
    Ok(ClusterConfig {
        cluster,
        nodes: (0..nodes).map(node).collect(),
        replicas,
        instances,
        partitions,
        heartbeat_ms: 10,
        heartbeat_timeout_ms: 500,
        start_partial_timeout_ms: 10_000,
        mgmts: vec![u32::from(NodeId::MGMT_BASE) + 1],
        silence_ms: *SILENCE_MS.start(),
        founded: 0,
        given_up: 0,
        fences: None,
        eject_slow_ms: 0,
        durability: 0,
    })
}

/// What a data node told last.
#[derive(Clone)]
struct Heard {
    at: u64,
    incarnation: u64,
    uptime_ms: u64,
    frozen: String,
    side: Option<FrozenSide>,
    reaches: Vec<u32>,
    stuck: String,
    slow: String,
    progress: String,
    memory: Option<MemoryUse>,
    start: Option<StartProgress>,
    encrypts: bool,
    durable: bool,
    /// Of its view.
    point: (u64, u64),
}

/// A yes that is not told yet: some of the others may still serve clients.
struct Held {
    asker: BlockRef,
    question: u64,
    others: BTreeSet<Incarnation>,
    until: u64,
    /// It is not in the file yet.
    unwritten: Option<u64>,
}

/// The arbitrator's file.
struct Book {
    /// As it was given to be written last, and the token.
    given: Vec<u8>,
    token: u64,
    /// What we are is there.
    is_open: bool,
}

/// The management block; see the crate.
pub struct Management {
    me: NodeId,
    config: ClusterConfig,
    may_adopt: bool,
    arbitrator: Arbitrator,
    /// Nodes that a link stands to, with their incarnations.
    links: BTreeMap<NodeId, u64>,
    asked: operator::Asked,
    /// By asker.
    held: BTreeMap<NodeId, Held>,
    /// `None`: nothing outlives the process.
    book: Option<Book>,
    /// It could not be written: from now on we promise nothing.
    resigned: Option<String>,
    /// Token of the newest state that is in the file.
    written: u64,
    heard: BTreeMap<NodeId, Heard>,
    /// Newest committed view that a living node reported.
    view: Option<View>,
    started_at: Option<u64>,
    /// Of a SQL node.
    search: Option<search::Search>,
}

impl Management {
    pub fn new(config: MgmtConfig) -> Management {
        let (mut arbitrator, book) = match &config.memory {
            Memory::Process => (Arbitrator::new(config.incarnation), None),
            Memory::File(kept) => {
                let new = || Arbitrator::new(config.incarnation);
                let arbitrator = kept.as_ref().map_or_else(new, Arbitrator::from_promise);
                let given = kept.as_ref().map_or_else(Vec::new, kept::Promise::to_bytes);
                (arbitrator, Some(Book { given, token: 0, is_open: kept.is_some() }))
            }
        };
        let search = search::Search::new(&config);
        if config.found_again {
            arbitrator.found_again();
        }
        Management {
            me: config.node,
            config: config.cluster,
            may_adopt: config.may_adopt,
            arbitrator,
            book,
            resigned: None,
            written: 0,
            links: BTreeMap::new(),
            asked: operator::Asked::default(),
            held: BTreeMap::new(),
            heard: BTreeMap::new(),
            view: None,
            started_at: None,
            search,
        }
    }

    fn on_register(&mut self, from: BlockRef, rep: RegisterRep, ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let now = ctx.now();
        if from.node != NodeId(rep.node as u16) {
            return Err(DecodeError);
        }
        let view = checked_view(rep.view.clone())?;
        self.note_registered(&rep, ctx);
        // The node learns from the configuration that it is not known.
        let Some(node) = self.config.nodes.iter_mut().find(|n| n.id == rep.node) else { return Ok(()) };
        node.incarnation = rep.incarnation;
        node.address = rep.address;
        node.member = rep.generation > 0;
        let point = view.as_ref().map_or((0, 0), View::point);
        let RegisterRep {
            incarnation,
            uptime_ms,
            frozen,
            side,
            reaches,
            stuck,
            slow,
            progress,
            durable,
            memory,
            start,
            encrypts,
            ..
        } = rep;
        self.heard.insert(
            from.node,
            Heard {
                at: now,
                incarnation,
                uptime_ms,
                frozen,
                side,
                reaches,
                stuck,
                slow,
                progress,
                memory,
                start,
                durable,
                encrypts,
                point,
            },
        );
        self.arbitrator.registered(rep.node, rep.incarnation);
        if let Some(cluster) = view.as_ref().map(|v| v.cluster).filter(|_| self.may_adopt) {
            self.config.cluster = cluster;
        }
        self.may_adopt &= rep.generation == 0;
        if let Some(view) = view.filter(|v| v.generation == rep.generation && v.cluster == self.config.cluster) {
            if self.arbitrator.saw_view(&view) {
                self.stop_left_behind(ctx);
            }
            if self.view.as_ref().is_none_or(|old| view.point() > old.point()) {
                self.view = Some(view);
            }
        } else if !self.arbitrator.is_running((0, 1)) {
            self.view = None;
        }
        self.stop_if_left_behind(Incarnation { node: rep.node, incarnation: rep.incarnation }, point, ctx);
        Ok(())
    }

    /// Who is still linked to us and has an older view than the newest, in which it is not, may not know it.
    fn stop_left_behind(&self, ctx: &mut Context<'_>) {
        for (node, incarnation) in self.links.iter().filter(|(n, _)| n.is_data()) {
            if let Some(heard) = self.heard.get(node).filter(|h| h.incarnation == *incarnation) {
                let process = Incarnation { node: node.0.into(), incarnation: *incarnation };
                self.stop_if_left_behind(process, heard.point, ctx);
            }
        }
    }

    fn stop_if_left_behind(&self, process: Incarnation, point: (u64, u64), ctx: &mut Context<'_>) {
        if self.arbitrator.has_gone_on_without(process, point) {
            let reason = format!("the cluster went on after generation {} without this node", point.1);
            let to = BlockRef::new(NodeId(process.node as u16), BlockId::Qmgr, BlockRef::CONTROL);
            let lineage = self.arbitrator.newest_lineage();
            let order = StopOrd { reason, incarnation: process.incarnation, lineage };
            ctx.send(to, Kind::StopOrd, |b| encode(&order, b));
        }
    }

    fn on_arbit_req(&mut self, from: BlockRef, req: &ArbitReq, ctx: &mut Context<'_>) {
        if req.cluster != self.config.cluster || req.asker.is_none_or(|a| a.node != u32::from(from.node.0)) {
            return;
        }
        let outcome = match &self.resigned {
            Some(why) => {
                ctx.log(format_args!("promises nothing: {why}"));
                Err("this arbitrator cannot write its file, and promises nothing".into())
            }
            None if !self.is_open() => return, // it asks again
            None if req.generation == 0 && self.search.is_some() => Err("a SQL node grants no start".into()),
            None => self.arbitrator.ask(req),
        };
        self.write_down(ctx);
        let granted = outcome.is_ok();
        let (reason, gone_on) = outcome.map_or_else(|no| (no.reason, no.gone_on), |()| ("", false));
        ctx.log(format_args!(
            "node {} asks to go on from generation {} without {:?}: {}",
            from.node,
            req.generation,
            req.others.iter().map(|o| o.node).collect::<Vec<_>>(),
            if granted { "yes" } else { reason }
        ));
        self.held.remove(&from.node);
        if granted && self.hold_back(from, req, ctx) {
            return;
        }
        let conf = ArbitConf { question: req.question, granted, reason: reason.to_owned(), gone_on };
        ctx.send(from, Kind::ArbitConf, |b| encode(&conf, b));
    }

    /// A yes waits for those that it goes on without and that we are linked to: they are asked to give up their leases, of which
    /// the asker knows the end.
    fn hold_back(&mut self, asker: BlockRef, req: &ArbitReq, ctx: &mut Context<'_>) -> bool {
        let stands = |o: &&Incarnation| self.links.get(&NodeId(o.node as u16)) == Some(&o.incarnation);
        let mut others: BTreeSet<Incarnation> = req.others.iter().filter(stands).copied().collect();
        if req.promise_ns == 0 || req.generation == 0 {
            others.clear();
        }
        let unwritten = self.book.as_ref().map(|b| b.token).filter(|t| *t > self.written);
        if others.is_empty() && unwritten.is_none() {
            return false;
        }
        for other in &others {
            let to = BlockRef::new(NodeId(other.node as u16), BlockId::Qmgr, BlockRef::CONTROL);
            let order = LeaseEnd { incarnation: other.incarnation };
            ctx.send(to, Kind::LeaseEndReq, |b| encode(&order, b));
        }
        let until = ctx.now() + req.promise_ns.min(HOLD_MAX_NS);
        self.held.insert(asker.node, Held { asker, question: req.question, others, until, unwritten });
        true
    }

    /// Views may name us: what we are is in the file, or nothing is to be.
    fn is_open(&self) -> bool {
        self.resigned.is_none() && self.book.as_ref().is_none_or(|b| b.is_open)
    }

    /// What the file says of the newest yes, if it says all of it.
    fn fences(&self) -> Option<Fences> {
        self.book.as_ref().filter(|book| self.is_open() && book.token <= self.written)?;
        let is_linked = |i: &Incarnation| self.links.get(&NodeId(i.node as u16)) == Some(&i.incarnation);
        self.arbitrator.fences(self.me.0.into(), is_linked)
    }

    /// Has the file written, if it is not what we are.
    fn write_down(&mut self, ctx: &mut Context<'_>) {
        // Who does not know its cluster has promised nothing.
        let is_set = self.resigned.is_none() && self.config.cluster != 0;
        let promise =
            Promise { members: self.places(), ..self.arbitrator.promise(self.config.cluster, self.me.0.into()) };
        let Some(book) = self.book.as_mut().filter(|_| is_set) else { return };
        let bytes = promise.to_bytes();
        if book.given != bytes {
            book.token += 1;
            book.given.clone_from(&bytes);
            ctx.write_file(kept::FILE, bytes, true, book.token);
        }
    }

    fn on_written(&mut self, done: &FileDone, ctx: &mut Context<'_>) {
        self.written = self.written.max(done.token);
        if let Some(book) = &mut self.book {
            book.is_open = true;
        }
        let written = self.written;
        for held in self.held.values_mut() {
            held.unwritten = held.unwritten.filter(|token| *token > written);
        }
        self.answer_held(ctx);
    }

    /// What is in the file is not known any more: nothing is promised until the next start has read it.
    fn on_not_written(&mut self, done: FileDone, ctx: &mut Context<'_>) {
        ctx.log(format_args!("arbitrates no more: {}", done.reason));
        self.held.clear();
        self.resigned = Some(done.reason);
    }

    /// A process serves nobody any more.
    fn on_lease_ended(&mut self, ended: Incarnation, ctx: &mut Context<'_>) {
        self.held.values_mut().for_each(|held| _ = held.others.remove(&ended));
        self.answer_held(ctx);
    }

    fn answer_held(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.held.retain(|_, held| {
            let waits = held.unwritten.is_some() || (!held.others.is_empty() && now < held.until);
            if !waits {
                let conf = ArbitConf { question: held.question, granted: true, ..ArbitConf::default() };
                ctx.send(held.asker, Kind::ArbitConf, |b| encode(&conf, b));
            }
            waits
        });
    }

    fn on_link_up(&mut self, rep: &LinkRep, ctx: &mut Context<'_>) {
        let before = self.links.insert(rep.node, rep.incarnation);
        if let Some(incarnation) = before.filter(|b| *b != rep.incarnation) {
            self.on_lease_ended(Incarnation { node: rep.node.0.into(), incarnation }, ctx);
        }
    }

    fn on_link_down(&mut self, rep: &LinkRep, ctx: &mut Context<'_>) {
        if self.links.get(&rep.node) == Some(&rep.incarnation) {
            self.links.remove(&rep.node);
            self.on_lease_ended(Incarnation { node: rep.node.0.into(), incarnation: rep.incarnation }, ctx);
        }
    }

    /// SQL nodes that every member says that it reaches.
    fn sql_arbitrators(&self) -> Vec<u32> {
        let members = || self.view.iter().flat_map(View::living).map(|n| self.heard.get(&n.node()));
        let all: BTreeSet<u32> = members().flatten().flat_map(|h| h.reaches.iter().copied()).collect();
        let is_sql = |id: &u32| u16::try_from(*id).is_ok_and(|id| NodeId(id).is_sql_arbitrator());
        let by_all = |id: &u32| members().all(|heard| heard.is_some_and(|h| h.reaches.contains(id)));
        all.into_iter().filter(|id| is_sql(id) && by_all(id)).collect()
    }

    fn status(&self, request: u64, now: u64) -> StatusConf {
        let view = self.view.as_ref();
        let is_frozen = |h: &Heard| !h.frozen.is_empty() && now.saturating_sub(h.at) < FRESH_NS;
        let is_any_frozen = self.heard.values().any(is_frozen);
        let summary = |n: &ConfigNode| {
            let id = NodeId(n.id as u16);
            let chains = || view.iter().flat_map(|v| &v.chains).filter_map(|c| Chain(*c).position(id));
            let heard = self.heard.get(&id);
            // The view may still name the process before the one that runs, where nobody may change it.
            let member = view.and_then(|v| v.node(id)).map(|n| n.incarnation);
            let is_gone = heard.is_some_and(|h| member.is_some_and(|m| m != h.incarnation));
            NodeSummary {
                id: n.id,
                group: n.group,
                address: n.address.clone(),
                state: view.filter(|_| !is_gone).map_or(NodeState::Down, |v| v.state(id)) as u32,
                president: view.is_some_and(|v| v.president == n.id),
                primaries: chains().filter(|p| *p == 0).count() as u32,
                backups: chains().filter(|p| *p > 0).count() as u32,
                uptime_ms: heard.map_or(0, |h| h.uptime_ms),
                frozen: heard.map_or_else(String::new, |h| h.frozen.clone()),
                side: heard.and_then(|h| h.side.clone()),
                incarnation: self.links.get(&id).copied().unwrap_or(0),
                member: view.filter(|v| v.is_alive(id)).and(member).unwrap_or(0),
                lost: is_any_frozen && self.links.get(&id).copied() != member && view.is_some_and(|v| v.is_alive(id)),
                silent_ms: heard.map_or(u64::MAX, |h| now.saturating_sub(h.at) / 1_000_000),
                stuck: heard.map_or_else(String::new, |h| h.stuck.clone()),
                slow: heard.map_or_else(String::new, |h| h.slow.clone()),
                progress: heard.map_or_else(String::new, |h| h.progress.clone()),
                memory: heard.and_then(|h| h.memory.clone()),
                start: heard.and_then(|h| h.start),
                encrypts: heard.is_some_and(|h| h.encrypts),
            }
        };
        StatusConf {
            request,
            cluster: self.config.cluster,
            generation: view.map_or(0, |v| v.generation),
            partitions: self.config.partitions,
            replicas: self.config.replicas,
            nodes: self.config.nodes.iter().map(summary).collect(),
            silence_ms: view.map_or(self.config.silence_ms, |v| v.silence_ms).max(*SILENCE_MS.start()),
            eject_slow_ms: view.map_or(self.config.eject_slow_ms, |v| v.eject_slow_ms),
            durability: view.map_or(self.config.durability, |v| v.durability),
            gcp_interval_ms: view.map_or(gcp::INTERVAL_MS_DEFAULT, View::gcp_interval_ms),
            checkpoint_speeds: Some(view.map_or(Speeds::DEFAULT, View::checkpoint_speeds)),
            durable: self.heard.values().any(|h| h.durable),
            mgmt: self.me.0.into(),
            arbitrator: view.map_or(0, |v| v.arbitrator),
            sql_arbitrators: self.sql_arbitrators(),
            mgmt_uptime_ms: now.saturating_sub(self.started_at.unwrap_or(now)) / 1_000_000,
        }
    }
}

impl Block for Management {
    fn block_ref(&self) -> BlockRef {
        BlockRef::new(self.me, BlockId::Mgmt, 0)
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from;
        match envelope.kind {
            kind if self.is_foreign(kind) => return Err(DecodeError),
            Kind::ConfigConf if from.node.is_mgmt() => self.on_config(decode(body)?, ctx),
            Kind::ConfigReq => {
                let request = decode::<MgmtReq>(body)?.request;
                let given_up = self.arbitrator.given_up();
                // Without a file it has nothing to remember by, and says nothing that the next process would take back.
                let founded = if self.book.is_some() { self.arbitrator.founded() } else { 0 };
                let config = ClusterConfig { founded, given_up, fences: self.fences(), ..self.config.clone() };
                let conf = ConfigConf { request, config: Some(config) };
                ctx.send(from, Kind::ConfigConf, |b| encode(&conf, b));
            }
            Kind::StatusReq => {
                let status = self.status(decode::<MgmtReq>(body)?.request, ctx.now());
                ctx.send(from, Kind::StatusConf, |b| encode(&status, b));
            }
            // The kernel lets nobody but operators ask for these.
            Kind::SettingReq => self.on_setting_req(from, decode(body)?, ctx),
            Kind::ClusterStopReq => self.on_stop_req(from, decode(body)?, ctx),
            Kind::ResumeReq => self.on_resume_req(from, &decode(body)?, ctx),
            Kind::ResumeRep if from.node.is_data() => self.on_resume_rep(decode(body)?, ctx),
            Kind::RegisterRep if from.node.is_data() => self.on_register(from, decode(body)?, ctx)?,
            Kind::ArbitReq if from.node.is_data() => self.on_arbit_req(from, &decode(body)?, ctx),
            Kind::HeartbeatRep if from.node.is_data() => {
                decode::<Heartbeat>(body)?;
                // 0: nobody to be named.
                let incarnation = if self.is_open() { self.arbitrator.identity() } else { 0 };
                let beat = Heartbeat { incarnation, ..Heartbeat::default() };
                ctx.send(from, Kind::HeartbeatRep, |b| encode(&beat, b));
            }
            Kind::LeaseEndConf if from.node.is_data() => {
                let incarnation = decode::<LeaseEnd>(body)?.incarnation;
                self.on_lease_ended(Incarnation { node: from.node.0.into(), incarnation }, ctx);
            }
            Kind::FileConf => self.on_written(&FileDone::decode(body)?, ctx),
            Kind::FileRef => self.on_not_written(FileDone::decode(body)?, ctx),
            Kind::LinkUpRep => self.on_link_up(&LinkRep::decode(body)?, ctx),
            Kind::LinkDownRep => self.on_link_down(&LinkRep::decode(body)?, ctx),
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.started_at.get_or_insert(ctx.now());
        self.write_down(ctx);
        self.tick_search(ctx);
        if !self.may_adopt {
            ctx.set_cluster(self.config.cluster); // members of another one are refused by the hello
        }
        self.answer_held(ctx);
    }
    fn dump(&self, out: &mut String) {
        let _ = writeln!(out, "mgmt cluster {:x} nodes {:?}", self.config.cluster, self.config.nodes);
        let _ = writeln!(out, "{:?}", self.arbitrator);
    }
}

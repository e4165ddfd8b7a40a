//! A tiny cluster for block tests: one worker per process, links as queues, virtual time. The order is deterministic; the full
//! simulator is the sim crate.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use apus_kernel::{Block, Context, FaultRule, Offer, Request, Worker, WorkerConfig};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    envelope::{decode_frame, frame_length},
    epoch::Drained,
    mgmt::ClusterConfig,
    restart::RedoFound,
    switchover::{Switch, SwitchAnswer},
    view::View,
};
use apus_types::NodeId;

use crate::{NodeConfig, OnDisk, build, dict::Dictionary};

pub const MGMT: NodeId = NodeId(NodeId::MGMT_BASE + 1);
pub const MGMT_2: NodeId = NodeId(NodeId::MGMT_BASE + 2);
/// A SQL node that may arbitrate.
pub const SQL: NodeId = NodeId(NodeId::ARBITRATOR_BASE + 1);
pub const MS: u64 = 1_000_000;
const WORKERS: u8 = 1;

/// A diskless node that knows nobody.
pub fn node_config(node: NodeId, incarnation: u64) -> NodeConfig {
    NodeConfig {
        node,
        workers: WORKERS,
        control: false,
        rejoins: false,
        kept: None,
        incarnation,
        address: String::new(),
        mgmts: Vec::new(),
        memory: apus_storage::MemoryManager::new(1 << 20),
        transaction_bytes: u64::MAX,
        slices: crate::ldm::Slices::default(),
        disk: None,
        linger_ns: crate::dih::LINGER_NS,
    }
}

/// What the stand-ins for LDM and TC saw.
#[derive(Default)]
pub struct Seen {
    pub view: Option<View>,
    pub orders: Vec<apus_signal::dict::TableOrd>,
    pub copied: Vec<apus_signal::copy::CopyFrag>,
    /// Do not answer copy requests, table orders and rounds of epochs.
    pub silent: bool,
    /// A transaction that does not end: no switchover is answered.
    pub busy: bool,
    /// Refuse the next table order with this error.
    pub refuse: u32,
    /// The last round that was to be drained, and what to say of memory.
    pub round: Option<apus_signal::epoch::EpochOrd>,
    pub short_of_memory: bool,
}

/// Stands in for an LDM or TC instance: confirms what it is told.
struct StandIn {
    me: BlockRef,
    seen: Rc<RefCell<Seen>>,
    /// Of an LDM that has a log: what it is to say of it.
    found: Option<RedoFound>,
}

impl Block for StandIn {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let mut seen = self.seen.borrow_mut();
        match envelope.kind {
            Kind::ViewOrd => seen.view = Some(View::from_bytes(body)?),
            Kind::TableOrd => {
                let mut order: apus_signal::dict::TableOrd = apus_signal::qmgr::decode(body)?;
                seen.orders.push(order.clone());
                if seen.refuse != 0 {
                    order.error = std::mem::take(&mut seen.refuse);
                    ctx.send(envelope.from, Kind::TableRef, |b| apus_signal::qmgr::encode(&order, b));
                } else if !seen.silent {
                    ctx.send(envelope.from, Kind::TableConf, |b| b.extend_from_slice(body));
                }
            }
            Kind::DrainReq if !seen.silent => {
                let order = apus_signal::epoch::EpochOrd::decode(body)?;
                let (generation, round, short_of_memory) = (order.generation, order.round, seen.short_of_memory);
                let conf = Drained { generation, round, short_of_memory, ..Drained::default() };
                seen.round = Some(order);
                ctx.send(envelope.from, Kind::DrainConf, |b| conf.encode(b));
            }
            Kind::SwitchReq if !seen.silent && !seen.busy => {
                let req: Switch = apus_signal::qmgr::decode(body)?;
                let (generation, number) = (req.generation, req.number);
                let conf = SwitchAnswer { generation, number, reason: String::new() };
                ctx.send(envelope.from, Kind::SwitchConf, |b| apus_signal::qmgr::encode(&conf, b));
            }
            Kind::CopyFragReq if !seen.silent => {
                seen.copied.push(apus_signal::copy::CopyFrag::decode(body)?);
                ctx.send(envelope.from, Kind::CopyFragConf, |b| b.extend_from_slice(body));
            }
            Kind::RestoreReq => ctx.send(envelope.from, Kind::RestoreConf, |b| b.extend_from_slice(body)),
            _ => {}
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        if let Some(found) = self.found.take() {
            let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(qmgr, Kind::RedoFoundRep, |b| apus_signal::qmgr::encode(&found, b));
        }
    }
    fn dump(&self, _out: &mut String) {}
}

pub struct Process {
    pub worker: Worker,
    pub incarnation: u64,
    pub seen: Rc<RefCell<Seen>>,
    pub log: Vec<String>,
    pub stopped: Option<String>,
    dials: BTreeSet<NodeId>,
    /// Came and was not read yet.
    inbox: VecDeque<(NodeId, Came)>,
}

enum Came {
    /// A link, to this incarnation.
    Link(u64),
    Bytes(Vec<u8>),
    End,
    /// The connection is lost, and another one is there.
    Lost,
    Offer(Offer),
}

/// Signals that a client got.
pub type Answers = Vec<(NodeId, Kind, Vec<u8>)>;

pub struct Cluster {
    pub now: u64,
    pub processes: BTreeMap<NodeId, Process>,
    pub answers: Answers,
    links: BTreeSet<(NodeId, NodeId)>,
    /// Pairs that cannot reach each other.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    /// (from, to): nothing arrives, and no end of the link either.
    pub mute: BTreeSet<(NodeId, NodeId)>,
    held: BTreeMap<(NodeId, NodeId), Vec<Vec<u8>>>,
    /// Of each node, and whose disk takes no more.
    pub files: BTreeMap<NodeId, BTreeMap<Cow<'static, str>, Vec<u8>>>,
    /// A file that the disks are slow with, and what is to be written to it: node, bytes, who asked, the number.
    pub slow_file: Option<&'static str>,
    pub unwritten: Vec<(NodeId, Vec<u8>, BlockRef, u64)>,
    pub disk_fails: BTreeSet<NodeId>,
    pub disk_broken: BTreeSet<NodeId>,
    /// Data nodes keep their dictionaries.
    pub keeps_dictionaries: bool,
    /// Data nodes keep their views; each machine's starts.
    pub keeps_views: bool,
    pub boots: BTreeMap<NodeId, u32>,
    /// They have logs, which are whole and have nothing in them.
    pub keeps_logs: bool,
    /// Processes that do not run, with what they are sent waiting.
    pub paused: BTreeSet<NodeId>,
    cluster: ClusterConfig,
    starts: u64,
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Cluster {
    pub fn new(groups: u32, replicas: u32) -> Cluster {
        let cluster = crate::qmgr::test_config(groups, replicas, WORKERS.into(), 4 * groups * replicas);
        let mut new = Cluster {
            now: MS,
            processes: BTreeMap::new(),
            answers: Vec::new(),
            links: BTreeSet::new(),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            held: BTreeMap::new(),
            files: BTreeMap::new(),
            slow_file: None,
            unwritten: Vec::new(),
            disk_fails: BTreeSet::new(),
            disk_broken: BTreeSet::new(),
            keeps_dictionaries: false,
            keeps_views: false,
            boots: BTreeMap::new(),
            keeps_logs: false,
            paused: BTreeSet::new(),
            cluster,
            starts: 0,
        };
        new.start_mgmt(MGMT);
        new
    }
    /// What management nodes that start from now on say of the cluster.
    pub fn configure(&mut self, change: impl FnOnce(&mut ClusterConfig)) {
        change(&mut self.cluster);
    }
    /// Starts (again) a management node.
    pub fn start_mgmt(&mut self, node: NodeId) {
        let cluster = self.cluster.clone();
        self.start(node, |_, (incarnation, _)| {
            let (may_adopt, found_again, memory, mgmts) = (false, false, apus_mgmt::Memory::Process, Vec::new());
            let config = apus_mgmt::MgmtConfig { node, cluster, incarnation, may_adopt, found_again, memory, mgmts };
            vec![Box::new(apus_mgmt::Management::new(config))]
        });
    }
    /// Starts (again) a management node that keeps its file.
    pub fn start_lasting_mgmt(&mut self, node: NodeId) {
        self.start_mgmt_with_file(node, false);
    }
    /// As above, as an operator does who gives up what the cluster held.
    pub fn start_mgmt_to_found_again(&mut self, node: NodeId) {
        self.start_mgmt_with_file(node, true);
    }
    fn start_mgmt_with_file(&mut self, node: NodeId, found_again: bool) {
        let cluster = self.cluster.clone();
        let bytes = self.files.get(&node).and_then(|files| files.get(apus_mgmt::kept::FILE)).cloned();
        self.start(node, |_, (incarnation, _)| {
            let kept = bytes.map(|b| apus_mgmt::kept::Promise::from_bytes(&b, node).expect("its own file"));
            let memory = apus_mgmt::Memory::File(kept);
            let (may_adopt, mgmts) = (false, Vec::new());
            let config = apus_mgmt::MgmtConfig { node, cluster, incarnation, may_adopt, found_again, memory, mgmts };
            vec![Box::new(apus_mgmt::Management::new(config))]
        });
    }
    /// Starts (again) a SQL node that may arbitrate.
    pub fn start_sql_arbitrator(&mut self, node: NodeId) {
        let bytes = self.files.get(&node).and_then(|files| files.get(apus_mgmt::kept::FILE)).cloned();
        self.start(node, |_, (incarnation, _)| {
            let kept = bytes.map(|b| apus_mgmt::kept::Promise::from_bytes(&b, node).expect("its own file"));
            let mut config = apus_mgmt::MgmtConfig::arbitrator(node, incarnation, kept);
            config.mgmts = vec![(MGMT, "mgmt:1".to_owned()), (MGMT_2, "mgmt:2".to_owned())];
            vec![Box::new(apus_mgmt::Management::new(config))]
        });
    }
    /// Starts (again) a data node.
    pub fn start_node(&mut self, id: u16) {
        self.start_data(id, false);
    }
    /// Starts a data node that was a member.
    pub fn rejoin_node(&mut self, id: u16) {
        self.start_data(id, true);
    }
    fn start_data(&mut self, id: u16, rejoins: bool) {
        let node = NodeId(id);
        let content = |name: &str| self.files.get(&node).and_then(|files| files.get(name)).map(Vec::as_slice);
        let boot = self.boots.get(&node).copied().unwrap_or(0).to_string();
        let (view, synced) = (content(crate::qmgr::VIEW_FILE), content(crate::qmgr::SYNCED_VIEW_FILE));
        let kept = crate::qmgr::Kept::read(view, synced, node, boot).expect("its own file");
        let found = RedoFound { exists: kept.newest.is_some(), complete: true, ..RedoFound::default() };
        let kept = self.keeps_views.then_some(kept);
        let files: BTreeMap<String, Vec<u8>> = self
            .files
            .get(&node)
            .into_iter()
            .flatten()
            .map(|(file, bytes)| (file.to_string(), bytes.clone()))
            .collect();
        let (keeps_dictionary, keeps_logs) = (self.keeps_dictionaries, self.keeps_logs);
        self.start(node, |who, (incarnation, seen)| {
            let disk = OnDisk { files, segment_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..OnDisk::default() };
            let config = NodeConfig {
                rejoins,
                kept,
                disk: keeps_logs.then(|| disk.clone()),
                address: format!("n{id}:{incarnation}"),
                mgmts: vec![(MGMT, "mgmt:1".to_owned()), (MGMT_2, "mgmt:2".to_owned())],
                ..node_config(node, incarnation)
            };
            let mut blocks: Vec<Box<dyn Block>> = build(who, &config);
            blocks.retain(|b| !matches!(b.block_ref().block, BlockId::Ldm | BlockId::Tc));
            if keeps_dictionary {
                blocks.retain(|b| b.block_ref().block != BlockId::Dict);
                blocks.push(Box::new(Dictionary::new(&NodeConfig { disk: Some(disk), ..config })));
            }
            for block in [BlockId::Ldm, BlockId::Tc] {
                let found = Some(found.clone()).filter(|_| keeps_logs && block == BlockId::Ldm);
                blocks.push(Box::new(StandIn { me: BlockRef::new(node, block, 0), seen: Rc::clone(&seen), found }));
            }
            blocks
        });
    }
    fn start(
        &mut self,
        node: NodeId,
        blocks: impl FnOnce(&WorkerConfig, (u64, Rc<RefCell<Seen>>)) -> Vec<Box<dyn Block>>,
    ) {
        self.kill(node.0);
        self.starts += 1;
        let incarnation = 100 + self.starts;
        let config =
            WorkerConfig { node, worker: 0, instances: WORKERS, control: false, incarnation, seed: incarnation };
        let mut worker = Worker::new(config);
        let seen = Rc::new(RefCell::new(Seen::default()));
        for block in blocks(&config, (incarnation, Rc::clone(&seen))) {
            worker.add_block(block);
        }
        let process = Process {
            worker,
            incarnation,
            seen,
            log: Vec::new(),
            stopped: None,
            dials: BTreeSet::new(),
            inbox: VecDeque::new(),
        };
        self.processes.insert(node, process);
    }
    /// The process ends at once; its links close.
    pub fn kill(&mut self, id: u16) {
        let node = NodeId(id);
        self.processes.remove(&node);
        self.paused.remove(&node);
        let gone: Vec<_> = self.links.iter().copied().filter(|l| l.0 == node || l.1 == node).collect();
        for link in gone {
            self.close(link);
        }
    }
    fn close(&mut self, link: (NodeId, NodeId)) {
        if self.links.remove(&link) {
            for (me, peer) in [link, (link.1, link.0)] {
                if let Some(held) = self.held.get_mut(&(peer, me)) {
                    held.clear(); // bytes of this connection
                }
                if self.mute.contains(&(peer, me)) && self.processes.contains_key(&peer) {
                    continue;
                }
                if let Some(p) = self.processes.get_mut(&me) {
                    p.inbox.push_back((peer, Came::End));
                }
            }
        }
    }
    /// The connection of two nodes is lost, with what is on its way; there is no other before [`Cluster::reconnect`].
    pub fn lose(&mut self, a: u16, b: u16) {
        let link = pair(NodeId(a), NodeId(b));
        self.links.remove(&link);
        for (me, peer) in [link, (link.1, link.0)] {
            if let Some(p) = self.processes.get_mut(&me) {
                p.inbox.retain(|(from, came)| *from != peer || !matches!(came, Came::Bytes(_)));
                p.inbox.push_back((peer, Came::Lost));
            }
        }
    }
    /// The first dials to go on with the link.
    pub fn reconnect(&mut self, a: u16, b: u16) {
        let (dialler, other) = (NodeId(a), NodeId(b));
        let number = self.node(a).worker.awaits_connection(other).expect("a link that waits for a connection");
        self.links.insert(pair(dialler, other));
        for (me, peer) in [(dialler, other), (other, dialler)] {
            let offer = Offer { incarnation: self.processes[&peer].incarnation, number, dialled: me == dialler };
            if let Some(p) = self.processes.get_mut(&me) {
                p.inbox.push_back((peer, Came::Offer(offer)));
            }
        }
    }
    /// As [`Cluster::reconnect`], by whichever end waits; one whose other end does not is refused.
    pub fn redial(&mut self, a: u16, b: u16) {
        let waits = |c: &mut Cluster, me: u16, peer: u16| c.node(me).worker.awaits_connection(NodeId(peer));
        match (waits(self, a, b), waits(self, b, a)) {
            (Some(_), Some(_)) => self.reconnect(a, b),
            (Some(number), None) => assert!(self.node(a).worker.link_refused(NodeId(b), number)),
            (None, Some(number)) => assert!(self.node(b).worker.link_refused(NodeId(a), number)),
            (None, None) => {}
        }
    }
    /// Nothing that `from` sends reaches `to` any more; the link stands.
    pub fn mute(&mut self, from: u16, to: u16) {
        self.mute.insert((NodeId(from), NodeId(to)));
    }
    /// What `from` sends to `to` is on its way until [`Cluster::release`].
    pub fn hold(&mut self, from: u16, to: u16) {
        self.held.insert((NodeId(from), NodeId(to)), Vec::new());
    }
    pub fn release(&mut self) {
        for ((from, to), all) in std::mem::take(&mut self.held) {
            all.iter().for_each(|bytes| self.deliver(from, to, bytes));
        }
    }
    /// Closes the link of two nodes and keeps it closed.
    pub fn separate(&mut self, a: u16, b: u16) {
        let link = pair(NodeId(a), NodeId(b));
        self.cut.insert(link);
        self.close(link);
    }
    /// Nothing passes between two nodes any more, and neither end is told, as when the power of one fails.
    pub fn cut_silently(&mut self, a: u16, b: u16) {
        let link = pair(NodeId(a), NodeId(b));
        self.cut.insert(link);
        self.links.remove(&link);
    }
    /// SIGTERM.
    pub fn tell_to_end(&mut self, id: u16) {
        self.node(id).worker.ask_to_leave();
    }
    pub fn arm(&mut self, id: u16, fault: &str) {
        self.node(id).worker.arm_fault(fault, FaultRule::ONCE);
    }

    /// The disks are as fast as ever.
    pub fn write_slow_file(&mut self) {
        let Some(file) = self.slow_file.take() else { return };
        for (node, bytes, asker, token) in std::mem::take(&mut self.unwritten) {
            self.node(node.0).worker.file_done(asker, token, Ok(()));
            self.files.entry(node).or_default().insert(file.into(), bytes);
        }
    }

    pub fn node(&mut self, id: u16) -> &mut Process {
        self.processes.get_mut(&NodeId(id)).expect("process runs")
    }
    pub fn view(&self, id: u16) -> Option<View> {
        self.processes.get(&NodeId(id)).and_then(|p| p.seen.borrow().view.clone())
    }
    pub fn generation(&self, id: u16) -> u64 {
        self.view(id).map_or(0, |v| v.generation)
    }
    pub fn stopped(&self, id: u16) -> Option<String> {
        self.processes.get(&NodeId(id)).and_then(|p| p.stopped.clone())
    }

    /// A client's request through its link (made where needed) to a node's block.
    pub fn ask(&mut self, id: u16, block: BlockId, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        self.ask_as(NodeId(NodeId::CLIENT_BASE), id, block, kind, write);
    }
    /// An operator's.
    pub fn order(&mut self, id: u16, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        self.ask_as(NodeId(NodeId::OPERATOR_BASE), id, BlockId::Mgmt, kind, write);
    }
    fn ask_as(&mut self, client: NodeId, id: u16, block: BlockId, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let process = self.node(id);
        if !process.worker.with_context(BlockRef::new(NodeId(id), block, 0), |ctx| ctx.link_up(client)) {
            process.worker.link_up(client, 1);
        }
        let to = BlockRef::new(NodeId(id), block, 0);
        let from = BlockRef::new(client, BlockId::Client, 0);
        let mut frame = Vec::new();
        Envelope { kind, to, from, epoch: apus_types::Epoch(0), trace: 0, generation: 0 }.encode(&mut frame, write);
        process.inbox.push_back((client, Came::Bytes(frame)));
    }
    pub fn answer(&mut self, kind: Kind) -> Option<Vec<u8>> {
        let at = self.answers.iter().position(|a| a.1 == kind)?;
        Some(self.answers.remove(at).2)
    }

    /// Lets virtual time pass in steps of 1 ms.
    pub fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            self.step();
        }
    }
    /// So many times every process reads what came, executes and sends: to stop in the middle of a conversation.
    pub fn run_rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let nodes: Vec<NodeId> = self.processes.keys().copied().collect();
            for node in nodes {
                self.round(node);
            }
        }
    }
    /// Runs until `done`, at most `ms`; returns whether it came to be.
    pub fn run_until(&mut self, ms: u64, done: impl Fn(&Cluster) -> bool) -> bool {
        for _ in 0..ms {
            if done(self) {
                return true;
            }
            self.run_ms(1);
        }
        done(self)
    }
    /// As `run_until`, but stops in the middle of a conversation.
    pub fn run_to(&mut self, ms: u64, done: impl Fn(&Cluster) -> bool) -> bool {
        for _ in 0..ms {
            self.now += MS;
            if self.step_to(&done) {
                return true;
            }
        }
        false
    }
    fn step(&mut self) {
        self.step_to(&|_| false);
    }
    fn step_to(&mut self, done: &impl Fn(&Cluster) -> bool) -> bool {
        let nodes: Vec<NodeId> = self.processes.keys().copied().collect();
        for node in &nodes {
            let now = self.now;
            if let Some(p) = self.running(*node) {
                p.worker.set_time(now, 0);
            }
        }
        // Signals travel until nobody has any more to say in this millisecond.
        for _ in 0..1000 {
            let mut busy = false;
            for node in &nodes {
                busy |= self.round(*node);
                if done(self) {
                    return true;
                }
            }
            if !busy {
                return false;
            }
        }
        panic!("the cluster does not come to rest");
    }
    fn running(&mut self, node: NodeId) -> Option<&mut Process> {
        let is_paused = self.paused.contains(&node);
        self.processes.get_mut(&node).filter(|p| p.stopped.is_none() && !is_paused)
    }
    /// Gives a process what came; a client's requests wait while it does not serve.
    fn read_inbox(&mut self, node: NodeId) {
        let now = self.now;
        let Some(p) = self.running(node) else { return };
        for (from, came) in std::mem::take(&mut p.inbox) {
            match came {
                Came::Link(incarnation) => p.worker.link_up(from, incarnation),
                Came::End => p.worker.link_down(from),
                Came::Lost => assert!(p.worker.link_lost(from).is_some(), "the link has ended"),
                Came::Offer(offer) => assert!(p.worker.link_offered(from, offer), "not taken"),
                Came::Bytes(bytes) if p.worker.serves(from, now) => {
                    let taken = p.worker.deliver_frames(from, &bytes).expect("frames between nodes");
                    assert!(taken == bytes.len() || p.worker.stop_reason().is_some());
                }
                came @ Came::Bytes(_) => p.inbox.push_back((from, came)),
            }
        }
    }
    fn round(&mut self, node: NodeId) -> bool {
        self.read_inbox(node);
        let (disk_fails, disk_broken) = (self.disk_fails.clone(), self.disk_broken.clone());
        let (slow_file, mut unwritten) = (self.slow_file, Vec::new());
        let Some(p) = self.running(node) else { return false };
        let mut busy = p.worker.run(10_000) > 0;
        p.worker.settle();
        if let Err(what) = p.worker.verify() {
            panic!("node {node}: {what}");
        }
        p.log.extend(p.worker.take_log());
        let mut out = Vec::new();
        while let Some(peer) = p.worker.next_dirty() {
            while !p.worker.output(peer).is_empty() {
                let bytes = p.worker.output(peer).to_vec();
                p.worker.sent(peer, bytes.len());
                out.push((peer, bytes));
            }
        }
        let (mut closes, mut written) = (Vec::new(), Vec::new());
        for request in p.worker.take_requests() {
            match request {
                // The higher id begins links.
                Request::Connect { node: to, .. } if to.is_data() && node.is_data() && to > node => {}
                Request::Connect { node: to, .. } => {
                    p.dials.insert(to);
                }
                Request::Close { node } => closes.push(node),
                Request::Write { file, bytes, token, asker, .. } if slow_file == Some(&*file) => {
                    unwritten.push((node, bytes, asker, token));
                }
                Request::Write { file, bytes, token, asker, .. } => {
                    // A full disk lets go of what it has; a broken one does nothing.
                    let is_full = disk_fails.contains(&node) && (!bytes.is_empty() || disk_broken.contains(&node));
                    p.worker.file_done(asker, token, if is_full { Err("disk full".to_owned()) } else { Ok(()) });
                    if !is_full {
                        written.push((file, bytes));
                    }
                }
                Request::Disk { file, .. } => panic!("{file} of node {node}, which has no data directory"),
            }
        }
        let stop = p.worker.stop_reason().map(str::to_owned);
        self.unwritten.extend(unwritten);
        let files = self.files.entry(node).or_default();
        files.extend(written);
        files.retain(|_, content| !content.is_empty());
        for (peer, bytes) in out {
            busy |= !bytes.is_empty();
            self.deliver(node, peer, &bytes);
        }
        for peer in closes {
            self.close(pair(node, peer));
        }
        if let Some(reason) = stop {
            let gone: Vec<_> = self.links.iter().copied().filter(|l| l.0 == node || l.1 == node).collect();
            gone.into_iter().for_each(|link| self.close(link));
            if let Some(p) = self.processes.get_mut(&node) {
                p.stopped = Some(reason);
            }
            return true;
        }
        self.dial(node) || busy
    }
    fn dial(&mut self, node: NodeId) -> bool {
        let wanted: Vec<NodeId> = self.processes.get(&node).into_iter().flat_map(|p| p.dials.iter().copied()).collect();
        let mut busy = false;
        for peer in wanted {
            let link = pair(node, peer);
            let alive = self.running(peer).is_some();
            let is_muted = self.mute.contains(&(node, peer)) || self.mute.contains(&(peer, node));
            let is_begun = self.processes[&node].worker.awaits_connection(peer).is_some();
            if !alive || is_begun || is_muted || self.cut.contains(&link) || !self.links.insert(link) {
                continue;
            }
            busy = true;
            for (me, other) in [(node, peer), (peer, node)] {
                let incarnation = self.processes[&other].incarnation;
                if let Some(p) = self.processes.get_mut(&me) {
                    p.inbox.push_back((other, Came::Link(incarnation)));
                }
            }
        }
        busy
    }
    fn deliver(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        if to.is_client() {
            let mut rest = bytes;
            while let Ok(Some(length)) = frame_length(rest) {
                let (envelope, body) = decode_frame(&rest[..length]).expect("frame");
                self.answers.push((from, envelope.kind, body.to_vec()));
                rest = &rest[length..];
            }
        } else if let Some(held) = self.held.get_mut(&(from, to)) {
            held.push(bytes.to_vec());
        } else if self.links.contains(&pair(from, to))
            && !self.mute.contains(&(from, to))
            && let Some(p) = self.processes.get_mut(&to).filter(|p| p.stopped.is_none())
        {
            p.inbox.push_back((from, Came::Bytes(bytes.to_vec())));
        }
    }
}

//! One thread's work without the thread; see the crate documentation.
//!
//! An executor's round: `set_time`, then what the world brought (`deliver_frames`, `receive_ring`), `run`, `settle`, then what
//! the world gets (`take_ring` for each other worker, `next_dirty`/`output`/`sent` for each link), `take_requests`, `take_log`,
//! `stop_reason`. It sleeps until `next_deadline` when `has_work` is false.

use std::{collections::BTreeMap, sync::Arc};

use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind, Reader,
    codec::Put,
    envelope::{decode_frame, frame_length},
    file::{DiskConf, DiskRef, FileDone},
    mgmt::MgmtReq,
    qmgr::decode,
    tc::{LastWords, Outcome, RequestRef, TcOutcomeConf},
    view::View,
};
use apus_types::{Epoch, ErrorCode, NodeId, hash::hash_key};

use crate::{
    Block, Context, Counters, DiskDone, FaultRule, Request, WorkerConfig,
    core::{Core, Lease},
    limits::{
        BUFFER_BYTES_KEPT, CLIENT_UNSENT_SOFT, DEFERRED_BYTES_SOFT, JOB_BYTES_MAX, JOB_BYTES_SOFT, ROUND_SPENT_NS,
        TICK_NS,
    },
    links::{is_data_plane, is_of_operator, may_say},
    watchdog::Watchdog,
};

const NO_BLOCK: u8 = u8::MAX;

/// See [`Worker::last_words`].
#[derive(Debug)]
pub struct Farewell {
    pub own: Option<(NodeId, Vec<u8>)>,
    pub others: Vec<(u8, Vec<u8>)>,
}

pub struct Worker {
    pub(crate) core: Core,
    blocks: Vec<Box<dyn Block>>,
    /// Position in `blocks` by block id.
    places: [u8; BlockId::COUNT],
    /// Frames being executed, and how far; new sends go to `core.jobs`.
    running: Vec<u8>,
    running_at: usize,
    next_tick: u64,
    /// Ticks so far.
    ticks: u64,
    watchdog: Watchdog,
    /// Hash over every executed signal, where the simulator wants one.
    hash: Option<u64>,
}

impl Worker {
    /// A worker with a lease of its own; see [`Worker::with_lease`].
    pub fn new(config: WorkerConfig) -> Worker {
        Worker::with_lease(config, Arc::default())
    }
    /// `lease` is the same for all workers of the node.
    pub fn with_lease(config: WorkerConfig, lease: Arc<Lease>) -> Worker {
        Worker {
            core: Core::new(config, lease),
            blocks: Vec::new(),
            places: [NO_BLOCK; BlockId::COUNT],
            running: Vec::new(),
            running_at: 0,
            next_tick: 0,
            ticks: 0,
            watchdog: Watchdog::default(),
            hash: None,
        }
    }

    /// # Panics
    /// When the block is not of this node and worker, or is there already.
    pub fn add_block(&mut self, block: Box<dyn Block>) {
        let me = block.block_ref();
        let config = self.core.config;
        assert!(
            me.node == config.node && config.place(me.instance) == config.worker,
            "{me:?} does not belong on {config:?}"
        );
        let place = &mut self.places[me.block as usize];
        assert!(*place == NO_BLOCK && me.block != BlockId::Link, "{me:?} is on this worker already");
        *place = self.blocks.len() as u8;
        self.blocks.push(block);
    }

    pub fn config(&self) -> WorkerConfig {
        self.core.config
    }
    pub fn epoch(&self) -> Epoch {
        self.core.epoch
    }
    /// Id of the cluster as the newest view, or before it the configuration, says; 0: not known yet.
    pub fn cluster(&self) -> u64 {
        self.core.links.cluster
    }
    pub fn now(&self) -> u64 {
        self.core.now
    }

    // ---- time

    /// Begins a round: fires timers and ticks that are due. Time never goes back.
    pub fn set_time(&mut self, now_ns: u64, unix_micros: i64) {
        let core = &mut self.core;
        core.now = core.now.max(now_ns);
        core.unix_micros = unix_micros;
        core.timers.fire(core.now, &mut core.jobs);
        if core.now >= self.next_tick {
            self.next_tick = core.now + TICK_NS;
            self.ticks += 1;
            for block in &mut self.blocks {
                let me = block.block_ref();
                block.tick(&mut Context { core: &mut self.core, me, trace: 0 });
            }
        }
    }
    /// The executor had nothing for it to do for so long, before the round that begins.
    #[inline]
    pub fn rested(&mut self, ns: u64) {
        self.core.idle_ns += ns;
    }
    /// Ticks so far, of at most one per round.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
    /// On the control worker, once per tick: how many rounds a data worker has begun, and whether it sleeps. QMGR hears of one that is
    /// stuck.
    pub fn watch(&mut self, worker: u8, rounds: u64, is_asleep: bool) {
        let Some(ticks) = self.watchdog.look(worker, rounds, is_asleep) else { return };
        let (from, node) = (self.core.link_ref(), self.core.config.node);
        let qmgr = BlockRef::new(node, BlockId::Qmgr, BlockRef::CONTROL);
        self.core.send(from, qmgr, Kind::WorkerStuckRep, 0, |b| {
            b.put_u8(worker);
            b.put_u32(ticks);
        });
    }
    /// On the control worker: the process was asked to end; QMGR leaves the cluster, and stops the node.
    pub fn ask_to_leave(&mut self) {
        let (from, node) = (self.core.link_ref(), self.core.config.node);
        let qmgr = BlockRef::new(node, BlockId::Qmgr, BlockRef::CONTROL);
        self.core.send(from, qmgr, Kind::LeaveOrd, 0, |_| {});
    }
    /// When `set_time` must be called again at the latest.
    pub fn next_deadline(&self) -> u64 {
        self.core.timers.next_deadline().map_or(self.next_tick, |t| t.min(self.next_tick))
    }

    // ---- signals in

    /// Executes or passes on the whole frames at the start of `bytes`, which came over the link to `source`. Returns the bytes
    /// consumed; what remains is the beginning of a frame.
    ///
    /// # Errors
    /// The stream is not ours to follow: the executor closes the link.
    pub fn deliver_frames(&mut self, source: NodeId, bytes: &[u8]) -> Result<usize, DecodeError> {
        let delivered = self.deliver(source, bytes);
        if delivered.is_err() && self.core.is_numbered(source) {
            // The same bytes would come again: there is nothing to go on with.
            self.core.links.get_mut(source).into_iter().for_each(|link| link.session.is_broken = true);
        }
        delivered
    }

    fn deliver(&mut self, source: NodeId, bytes: &[u8]) -> Result<usize, DecodeError> {
        let awaits_opening = |link: &crate::links::Link| link.up && link.session.awaits_opening();
        let opening =
            if self.core.links.get(source).is_some_and(awaits_opening) { self.core.meet(source, bytes)? } else { 0 };
        if opening == 0 && self.core.links.get(source).is_some_and(awaits_opening) {
            return Ok(0);
        }
        let mut at = opening;
        while let Some(rest) = bytes.get(at..)
            && let Some(length) = frame_length(rest)?
            && let Some(frame) = rest.get(..length)
        {
            let (envelope, body) = decode_frame(frame).inspect_err(|_| self.core.counters.violations += 1)?;
            self.core.counters.received_link += 1;
            if source.is_client() {
                self.admit_client(source, envelope, body);
            } else {
                self.admit_member(source, &envelope, body, frame)?;
            }
            at += length;
            if self.core.stop.is_some() {
                break;
            }
        }
        if at > opening
            && let Some(link) = self.core.links.get_mut(source)
        {
            link.heard = self.core.now;
            if link.session.receive(at - opening) && link.up {
                self.core.acknowledge(source);
            }
        }
        Ok(at)
    }

    /// Answers a client of a node that serves nobody (see [`Worker::refuses`]), without doing anything that needs the lease: requests are
    /// refused, a transaction may be rolled back, the node's state be asked. A question for the outcome of a commit is answered "open": not
    /// decided here, ask again; nobody may conclude more. Returns the bytes consumed.
    ///
    /// # Errors
    /// As [`Worker::deliver_frames`].
    pub fn refuse_frames(&mut self, source: NodeId, bytes: &[u8]) -> Result<usize, DecodeError> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(length) = frame_length(rest)?
            && let Some(frame) = rest.get(..length)
        {
            let (mut envelope, body) = decode_frame(frame).inspect_err(|_| self.core.counters.violations += 1)?;
            match envelope.kind {
                Kind::TcOutcomeReq => {
                    let request = body.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
                    let to = BlockRef { node: source, block: BlockId::Client, instance: envelope.from.instance };
                    let from = self.core.link_ref();
                    let answer = TcOutcomeConf { request, outcome: Outcome::Open };
                    self.core.send(from, to, Kind::TcOutcomeConf, envelope.trace, |b| answer.encode(b));
                }
                Kind::ReadReq | Kind::ScanReq | Kind::TcBatchReq | Kind::TcCommitReq | Kind::SnapshotReq => {
                    let request = body.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
                    envelope.from = BlockRef { node: source, block: BlockId::Client, instance: envelope.from.instance };
                    self.refuse_request(&envelope, request, ErrorCode::Frozen);
                }
                Kind::MapReq | Kind::DictReadReq | Kind::SchemaReq => {
                    let request = decode::<MgmtReq>(body).map_or(0, |r| r.request); // all have it in the same place
                    envelope.from = BlockRef { node: source, block: BlockId::Client, instance: envelope.from.instance };
                    self.refuse_request(&envelope, request, ErrorCode::Frozen);
                }
                _ => self.admit_client(source, envelope, body),
            }
            self.core.counters.received_link += 1;
            at += length;
        }
        Ok(at)
    }

    fn admit_member(
        &mut self,
        source: NodeId,
        envelope: &Envelope,
        body: &[u8],
        frame: &[u8],
    ) -> Result<(), DecodeError> {
        let config = self.core.config;
        let Envelope { kind, to, from, .. } = *envelope;
        // A node speaks for itself only, over the link on which it has proven who it is.
        if to.node != config.node || from.node != source || to.block == BlockId::Link || !may_say(source, kind) {
            if matches!(kind, Kind::LinkAckOrd | Kind::LinkOpenOrd) && from.node == source && to.node == config.node {
                // Of a link that we are closing nothing is left to be said.
                let is_closing = self.core.is_numbered(source) && self.core.links.get(source).is_some_and(|l| !l.up);
                if is_closing {
                    return Ok(());
                } else if kind == Kind::LinkAckOrd {
                    return self.core.acknowledged(source, body);
                }
            }
            self.core.counters.dropped_forbidden += 1;
            self.core.log(format_args!("refused {kind:?} from {from:?} to {to:?} over the link of node {source}"));
            return Err(DecodeError);
        }
        if is_data_plane(kind) && !self.core.links.is_allowed_link(source) {
            self.core.counters.dropped_not_member += 1;
            return Ok(());
        }
        if config.place(to.instance) == config.worker {
            self.core.see_epoch(envelope.epoch);
            self.dispatch(envelope, body);
        } else if let Some(ring) = self.core.target(to, kind) {
            ring.extend_from_slice(frame);
        }
        Ok(())
    }

    /// A client cannot forge its address, name an epoch or reach what is not meant for clients.
    fn admit_client(&mut self, source: NodeId, mut envelope: Envelope, body: &[u8]) {
        let config = self.core.config;
        envelope.from = BlockRef { node: source, block: BlockId::Client, instance: envelope.from.instance };
        envelope.epoch = self.core.epoch;
        if envelope.kind == Kind::PingReq {
            let from = self.core.link_ref();
            self.core.send(from, envelope.from, Kind::PingConf, envelope.trace, |b| b.put_bytes(body));
            return;
        }
        let to = envelope.to;
        if to.node != config.node || Some(to.block) != client_door(envelope.kind) {
            self.refuse(&envelope, body, ErrorCode::ProtocolViolation);
        } else if to.instance >= config.instances {
            // By an older view: the cluster has begun anew with fewer workers.
            self.refuse(&envelope, body, ErrorCode::WrongView);
        } else if is_of_operator(envelope.kind) && !source.is_operator() {
            let request = decode::<MgmtReq>(body).map_or(0, |r| r.request); // all have it in the same place
            self.refuse_request(&envelope, request, ErrorCode::RoleNotProven);
        } else if to.instance == config.worker {
            self.dispatch(&envelope, body);
        } else if let Some(ring) = self.core.target(to, envelope.kind) {
            envelope.encode(ring, |b| b.put_bytes(body));
        }
    }

    /// Answers a request that cannot be routed; every client request begins with its number where it has a fixed layout.
    fn refuse(&mut self, envelope: &Envelope, body: &[u8], code: ErrorCode) {
        let request = body.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
        self.refuse_request(envelope, request, code);
    }

    fn refuse_request(&mut self, envelope: &Envelope, request: u64, code: ErrorCode) {
        self.core.counters.refused += 1;
        let from = self.core.link_ref();
        let answer = RequestRef::new(request, code);
        self.core.send(from, envelope.from, Kind::RequestRef, envelope.trace, |b| answer.encode(b));
    }

    /// Executes what another worker of this node sent.
    ///
    /// # Panics
    /// When the bytes are not whole frames: they come from our own process.
    pub fn receive_ring(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (envelope, body, tail) = own_frame(rest);
            self.core.counters.received_ring += 1;
            self.core.see_epoch(envelope.epoch);
            let to = envelope.to;
            let config = &self.core.config;
            if to.node != config.node || config.place(to.instance) != config.worker {
                let frame = &rest[..rest.len() - tail.len()];
                if let Some(out) = self.core.target(to, envelope.kind) {
                    out.extend_from_slice(frame);
                }
            } else {
                self.dispatch(&envelope, body);
            }
            rest = tail;
        }
    }

    /// Executes up to about `budget` signals of the job buffer, fewer where they cost much ([`ROUND_SPENT_NS`]); returns how many.
    pub fn run(&mut self, budget: usize) -> usize {
        let mut executed = 0;
        let spent_max = self.core.spent.sum.saturating_add(ROUND_SPENT_NS);
        while executed < budget && self.core.spent.sum < spent_max && self.core.stop.is_none() {
            if self.running_at == self.running.len() {
                self.running.clear();
                self.running.shrink_to(BUFFER_BYTES_KEPT);
                self.running_at = 0;
                if self.core.jobs.is_empty() {
                    break;
                }
                std::mem::swap(&mut self.running, &mut self.core.jobs);
            }
            let running = std::mem::take(&mut self.running);
            let mut rest = &running[self.running_at..];
            while executed < budget && self.core.spent.sum < spent_max && !rest.is_empty() {
                let (envelope, body, tail) = own_frame(rest);
                self.dispatch(&envelope, body);
                executed += 1;
                rest = tail;
            }
            self.running_at = running.len() - rest.len();
            self.running = running;
            self.core.running_bytes = self.running.len() - self.running_at;
            assert!(self.core.jobs.len() <= JOB_BYTES_MAX, "job buffer over {JOB_BYTES_MAX} bytes");
        }
        executed
    }

    /// Lets blocks tidy up before links are flushed.
    pub fn settle(&mut self) {
        for block in &mut self.blocks {
            let me = block.block_ref();
            block.settle(&mut Context { core: &mut self.core, me, trace: 0 });
        }
    }

    #[inline]
    fn dispatch(&mut self, envelope: &Envelope, body: &[u8]) {
        let to = envelope.to;
        let from = envelope.from.node;
        if is_data_plane(envelope.kind) && !self.core.links.is_allowed(from) {
            self.core.counters.dropped_not_member += 1;
            return;
        }
        if envelope.kind == Kind::ViewOrd {
            self.note_view(body);
        }
        self.core.counters.executed += 1;
        self.core.signals.push(envelope, body, self.core.now);
        if let Some(hash) = self.hash {
            self.hash = Some(mix(hash, envelope, body, self.core.now));
        }
        let Some(block) = self.blocks.get_mut(usize::from(self.places[to.block as usize])) else {
            self.no_block(envelope, body);
            return;
        };
        self.core.executing = true;
        let mut ctx = Context { core: &mut self.core, me: to, trace: envelope.trace };
        let received = block.receive(envelope, body, &mut ctx);
        self.core.executing = false;
        let spent = std::mem::take(&mut self.core.spent.signal);
        if spent > 0 {
            self.core.spent.sum += spent;
            if self.core.spent.most.is_none_or(|(most, _)| most < spent) {
                self.core.spent.most = Some((spent, envelope.kind));
            }
        }
        if received.is_err() {
            self.violation(envelope, body.len());
        }
    }

    /// Of this worker's executor to a block of this worker.
    pub(crate) fn dispatch_own(&mut self, kind: Kind, to: BlockRef, body: &[u8]) {
        let from = self.core.link_ref();
        self.dispatch(&Envelope { kind, to, from, epoch: self.core.epoch, trace: 0, generation: 0 }, body);
    }

    /// After a panic: what was being executed, for the client that asked for it. `own`: by a link of this worker, if it is one;
    /// `others`: what the other workers are to be given.
    pub fn last_words(&self) -> Option<Farewell> {
        let core = &self.core;
        let trace = core.signals.newest().filter(|_| core.executing)?;
        let words = LastWords::of(trace.envelope.kind, trace.body())?;
        let client = trace.envelope.from.node;
        let client = if client.is_client() { client } else { NodeId(0) };
        let from = core.link_ref();
        let frame = |to: BlockRef, write: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = Vec::new();
            let generation = core.links.generation();
            let kind = Kind::LastWordsRep;
            Envelope { kind, to, from, epoch: core.epoch, trace: 0, generation }.encode(&mut frame, write);
            frame
        };
        let own = core.client_link(client, words.trans.client).map(|node| {
            let to = BlockRef::new(node, BlockId::Client, 0);
            (node, frame(to, &|out| words.encode(out)))
        });
        let to_worker = |worker: u8| {
            let to = BlockRef { instance: worker, ..from };
            let bytes = frame(to, &|out| {
                out.put_u16(client.0);
                words.encode(out);
            });
            (worker, bytes)
        };
        let others = (0..core.config.instances).filter(|w| *w != core.config.worker && own.is_none());
        let others = others.map(to_worker).collect();
        Some(Farewell { own, others })
    }

    /// Another worker of this node has panicked: if the client is linked here it hears of that.
    fn pass_last_words(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        let (client, words) = body.split_at_checked(2).ok_or(DecodeError)?;
        let (client, words) = (NodeId(Reader::new(client).u16()?), LastWords::decode(words)?);
        if let Some(node) = self.core.client_link(client, words.trans.client) {
            let from = self.core.link_ref();
            self.core.send(from, BlockRef::new(node, BlockId::Client, 0), Kind::LastWordsRep, 0, |b| words.encode(b));
        }
        Ok(())
    }

    fn note_view(&mut self, body: &[u8]) {
        match View::from_bytes(body) {
            Ok(view) => self.core.links.note_view(&view, self.core.config.node),
            Err(DecodeError) => self.core.counters.violations += 1,
        }
    }

    #[cold]
    fn no_block(&mut self, envelope: &Envelope, body: &[u8]) {
        if envelope.to.block == BlockId::Link && envelope.kind == Kind::PingReq {
            let from = self.core.link_ref();
            self.core.send(from, envelope.from, Kind::PingConf, envelope.trace, |b| b.put_bytes(body));
        } else if envelope.to.block == BlockId::Link && envelope.kind == Kind::LastWordsRep {
            let passed = self.pass_last_words(body);
            self.core.counters.violations += u64::from(passed.is_err());
        } else if envelope.to.block == BlockId::Link {
            let mut r = Reader::new(body);
            match (r.u16(), r.u64()) {
                (Ok(node), Ok(incarnation)) => self.core.told(envelope.kind, NodeId(node), incarnation),
                _ => self.core.counters.violations += 1,
            }
        } else if envelope.from.block == BlockId::Client {
            self.refuse(envelope, body, ErrorCode::ProtocolViolation);
        } else {
            self.core.counters.dropped_no_block += 1;
        }
    }

    #[cold]
    fn violation(&mut self, envelope: &Envelope, body_bytes: usize) {
        self.core.counters.violations += 1;
        let Envelope { kind, from, to, .. } = *envelope;
        self.core.log(format_args!("{to:?} refused {kind:?} of {body_bytes} bytes from {from:?}"));
        if from.node != self.core.config.node {
            self.core.close_link(from.node, false);
        }
    }

    // ---- links

    /// A file was written for a block, or not.
    pub fn file_done(&mut self, asker: BlockRef, token: u64, outcome: Result<(), String>) {
        let kind = if outcome.is_ok() { Kind::FileConf } else { Kind::FileRef };
        let done = FileDone { token, reason: outcome.err().unwrap_or_default() };
        let from = self.core.link_ref();
        self.core.send(from, asker, kind, 0, |b| done.encode(b));
    }
    /// The executor has a data directory for this node. Before blocks are added.
    pub fn set_has_disk(&mut self, is_there: bool) {
        self.core.disk.is_there = is_there;
    }
    /// What became of a request to a data file.
    pub fn disk_done(&mut self, done: DiskDone) {
        let DiskDone { asker, token, op, outcome } = done;
        self.core.disk.end(op);
        let from = self.core.link_ref();
        match outcome {
            Ok(bytes) => {
                self.core.send(from, asker, Kind::DiskConf, 0, |b| DiskConf { token, bytes: &bytes }.encode(b));
            }
            Err(failure) => {
                let refused = DiskRef { token, full: failure.full, reason: failure.reason };
                self.core.send(from, asker, Kind::DiskRef, 0, |b| refused.encode(b));
            }
        }
    }
    /// There is no memory for more that is unsent: whoever reads its answers adds nothing to that.
    #[cold]
    fn may_read_though_short(&self, node: NodeId) -> bool {
        self.core.links.clients_hold_most() && self.core.links.get(node).is_none_or(|link| link.unsent() == 0)
    }
    /// Whether to read from this link now; a client that does not read its answers, or a worker that is behind, says no.
    pub fn may_read(&self, node: NodeId) -> bool {
        if self.core.deferred_bytes >= DEFERRED_BYTES_SOFT && (node.is_client() || node.is_data()) {
            return false;
        }
        if node.is_client() {
            !self.core.is_short_of_memory
                && self.job_bytes() < JOB_BYTES_SOFT
                && self.core.rings.iter().all(|ring| ring.len() < JOB_BYTES_SOFT)
                && self.core.links.get(node).is_none_or(|link| link.unsent() < CLIENT_UNSENT_SOFT)
                && (!self.core.is_short_of_send_memory || self.may_read_though_short(node))
        } else {
            self.job_bytes() < JOB_BYTES_MAX / 4
        }
    }

    /// Whether what was read from this link may be executed now. The executor asks with a clock that it has looked at *after* it had
    /// the bytes: a node that was paused and may have been removed meanwhile answers no client (see the QMGR block).
    #[inline]
    pub fn serves(&self, node: NodeId, now_ns: u64) -> bool {
        !node.is_client() || now_ns < self.core.lease.until()
    }
    /// Whether what came over this link, which is not served, is to be given to [`Worker::refuse_frames`] instead of waiting.
    pub fn refuses(&self, node: NodeId) -> bool {
        node.is_client() && self.core.lease.refuses()
    }

    // ---- to the executor

    /// Swaps the signals for another worker of this node into `into`, which must be empty and becomes the next buffer.
    /// Returns whether there were any.
    pub fn take_ring(&mut self, worker: u8, into: &mut Vec<u8>) -> bool {
        debug_assert!(into.is_empty());
        let Some(ring) = self.core.rings.get_mut(usize::from(worker)) else { return false };
        std::mem::swap(ring, into);
        !into.is_empty()
    }
    /// Bytes waiting for another worker.
    pub fn ring_output(&self, worker: u8) -> &[u8] {
        self.core.rings.get(usize::from(worker)).map_or(&[], Vec::as_slice)
    }
    /// So many bytes of [`Worker::ring_output`], whole frames or not, were taken.
    pub fn ring_taken(&mut self, worker: u8, bytes: usize) {
        if let Some(ring) = self.core.rings.get_mut(usize::from(worker)) {
            if bytes == ring.len() {
                ring.clear();
                ring.shrink_to(BUFFER_BYTES_KEPT);
            } else {
                ring.drain(..bytes);
            }
        }
    }
    pub fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.core.requests)
    }
    /// As [`Worker::take_requests`], into a buffer that is empty: the buffers take turns.
    pub fn swap_requests(&mut self, into: &mut Vec<Request>) {
        std::mem::swap(&mut self.core.requests, into);
    }
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.core.log)
    }
    /// A block ended the node; see [`Context::stop_node`].
    pub fn stop_reason(&self) -> Option<&str> {
        self.core.stop.as_deref()
    }
    /// It is to start again; see [`Context::stop_to_rejoin`].
    pub fn rejoins(&self) -> bool {
        self.core.rejoins
    }
    /// The data worker for which the node is to end; see [`Context::stop_for_stuck`].
    pub fn stuck_worker(&self) -> Option<u8> {
        self.core.stuck
    }
    /// Whether the job buffer holds signals.
    pub fn has_work(&self) -> bool {
        self.running_at < self.running.len() || !self.core.jobs.is_empty()
    }
    /// Bytes of signals not executed yet.
    pub fn job_bytes(&self) -> usize {
        self.running.len() - self.running_at + self.core.jobs.len()
    }

    // ---- for operators, tests and the simulator

    /// What blocks say that they have spent since this was asked last ([`Context::spend`]), and the most that one signal ever took.
    pub fn take_spent(&mut self) -> (u64, Option<(u64, Kind)>) {
        (std::mem::take(&mut self.core.spent.sum), self.core.spent.most)
    }
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }
    pub fn probes(&self) -> &BTreeMap<&'static str, u64> {
        self.core.faults.probes()
    }
    pub fn arm_fault(&mut self, name: &str, rule: FaultRule) {
        self.core.faults.arm(name, rule);
    }
    /// What was armed by this name has answered yes as often as its rule says.
    pub fn is_fault_spent(&self, name: &str) -> bool {
        self.core.faults.is_spent(name)
    }
    pub fn disarm_faults(&mut self) {
        self.core.faults.disarm_all();
    }
    /// Counters and the dump of every block.
    pub fn dump(&self, out: &mut String) {
        self.write_counters(out);
        for block in &self.blocks {
            out.push_str(&format!("-- {:?}\n", block.block_ref()));
            block.dump(out);
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
    }
    /// Runs every block's whole-structure check.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn verify(&self) -> Result<(), String> {
        self.blocks.iter().try_for_each(|b| b.verify().map_err(|e| format!("{:?}: {e}", b.block_ref())))
    }
    /// Starts hashing every executed signal.
    pub fn hash_signals(&mut self, seed: u64) {
        self.hash = Some(seed);
    }
    pub fn hash(&self) -> Option<u64> {
        self.hash
    }
    /// Runs `f` as if in the block `me`: for tests of blocks and for executors that inject signals.
    pub fn with_context<T>(&mut self, me: BlockRef, f: impl FnOnce(&mut Context<'_>) -> T) -> T {
        f(&mut Context { core: &mut self.core, me, trace: 0 })
    }
}

/// The block that serves a client's request of this kind; `None`: not for clients.
fn client_door(kind: Kind) -> Option<BlockId> {
    match kind {
        Kind::ReadReq | Kind::ScanReq => Some(BlockId::Ldm),
        Kind::TcBatchReq | Kind::TcCommitReq | Kind::TcRollbackReq | Kind::TcOutcomeReq | Kind::TcFloorOrd => {
            Some(BlockId::Tc)
        }
        Kind::MapReq | Kind::SnapshotReq | Kind::SnapshotEndOrd => Some(BlockId::Dih),
        Kind::DictReadReq | Kind::SchemaReq => Some(BlockId::Dict),
        Kind::NodeStatusReq => Some(BlockId::Cntr),
        Kind::StatusReq | Kind::ConfigReq => Some(BlockId::Mgmt),
        _ if is_of_operator(kind) => Some(BlockId::Mgmt),
        _ => None,
    }
}

/// Splits a frame that this process wrote off the front of `bytes`.
#[inline]
fn own_frame(bytes: &[u8]) -> (Envelope, &[u8], &[u8]) {
    let split = || {
        let (frame, tail) = bytes.split_at_checked(frame_length(bytes).ok()??)?;
        let (envelope, body) = decode_frame(frame).ok()?;
        Some((envelope, body, tail))
    };
    split().expect("a frame of our own is whole")
}

fn mix(hash: u64, envelope: &Envelope, body: &[u8], now: u64) -> u64 {
    let mut words = [0u8; 48];
    let fields = [
        hash,
        now,
        hash_key(body),
        envelope.kind as u64,
        u64::from(envelope.to.to_u32()) << 32 | u64::from(envelope.from.to_u32()),
        envelope.epoch.0,
    ];
    for (slot, field) in words.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
    hash_key(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerConfig;

    const MEMBER: NodeId = NodeId(2);
    const CLIENT: NodeId = NodeId(NodeId::CLIENT_BASE);
    const MGMT: NodeId = NodeId(NodeId::MGMT_BASE + 1);

    fn worker(worker: u8) -> Worker {
        Worker::new(WorkerConfig { node: NodeId(1), worker, instances: 1, control: true, incarnation: 1, seed: 1 })
    }
    fn me(worker: &Worker) -> BlockRef {
        BlockRef::new(NodeId(1), BlockId::Ldm, worker.config().instance())
    }

    #[test]
    fn a_worker_that_waits_for_a_view_reads_no_data_and_membership_goes_on() {
        let (mut data, control) = (worker(0), worker(1));
        assert!(data.may_read(MEMBER) && data.may_read(CLIENT));
        let block = me(&data);
        data.with_context(block, |ctx| ctx.note_deferred(0, DEFERRED_BYTES_SOFT));
        assert!(!data.may_read(MEMBER) && !data.may_read(CLIENT));
        assert!(control.may_read(MEMBER) && control.may_read(MGMT));
        data.with_context(block, |ctx| ctx.note_deferred(DEFERRED_BYTES_SOFT, 0));
        assert!(data.may_read(MEMBER) && data.may_read(CLIENT));
    }

    #[test]
    fn without_memory_for_its_buffers_a_worker_reads_from_members_only() {
        let mut data = worker(0);
        let block = me(&data);
        data.with_context(block, |ctx| ctx.set_short_of_memory(true));
        assert!(data.may_read(MEMBER) && !data.may_read(CLIENT));
    }

    #[test]
    fn the_total_of_unsent_bytes_follows_every_link() {
        let mut data = worker(0);
        let (from, block) = (me(&data), me(&data));
        for client in [CLIENT, NodeId(CLIENT.0 + 1)] {
            data.link_up(client, 0);
            let to = BlockRef::new(client, BlockId::Client, 0);
            data.with_context(from, |ctx| ctx.send(to, Kind::PingConf, |b| b.put_bytes(&[0; 1000])));
        }
        let total = |w: &mut Worker| w.with_context(block, |ctx| ctx.buffered_bytes().1);
        let mut held = 0;
        while let Some(node) = data.next_dirty() {
            held += data.output(node).len();
        }
        assert!(held > 2000 && total(&mut data) == held);
        data.sent(CLIENT, 100);
        assert_eq!(total(&mut data), held - 100);
        data.link_down(CLIENT);
        assert_eq!(total(&mut data), held / 2);
        data.link_up(NodeId(CLIENT.0 + 1), 0);
        assert_eq!(total(&mut data), 0);
    }

    #[test]
    fn a_frozen_node_answers_its_clients_and_does_nothing_for_them() {
        let mut data = worker(0);
        let qmgr = BlockRef::new(NodeId(1), BlockId::Qmgr, BlockRef::CONTROL);
        data.link_up(CLIENT, 0);
        data.with_context(qmgr, |ctx| {
            ctx.serve_clients_until(0);
            ctx.refuse_clients(true);
        });
        assert!(!data.serves(CLIENT, 1) && data.refuses(CLIENT) && !data.refuses(MEMBER));
        let executed = data.counters().executed;
        let mut bytes = Vec::new();
        let mut say = |kind: Kind, block: BlockId, body: &[u8]| {
            let (to, from) = (BlockRef::new(NodeId(1), block, 0), BlockRef::new(CLIENT, BlockId::Client, 0));
            Envelope { kind, to, from, epoch: apus_types::Epoch(0), trace: 0, generation: 0 }
                .encode(&mut bytes, |b| b.put_bytes(body));
        };
        say(Kind::TcBatchReq, BlockId::Tc, &7u64.to_le_bytes());
        let mut schema = Vec::new();
        apus_signal::qmgr::encode(&MgmtReq { request: 8 }, &mut schema);
        say(Kind::SchemaReq, BlockId::Dict, &schema);
        say(Kind::TcOutcomeReq, BlockId::Tc, &9u64.to_le_bytes());
        say(Kind::ReadReq, BlockId::Ldm, &10u64.to_le_bytes());
        assert_eq!(data.refuse_frames(CLIENT, &bytes), Ok(bytes.len()), "a question keeps nobody waiting");
        let mut answers = Vec::new();
        let mut out = data.output(CLIENT);
        while !out.is_empty() {
            let (envelope, body, rest) = own_frame(out);
            answers.push(match envelope.kind {
                Kind::TcOutcomeConf => TcOutcomeConf::decode(body).map(|c| (c.request, Err(c.outcome))),
                _ => RequestRef::decode(body).map(|r| (r.request, Ok(r.code))),
            });
            out = rest;
        }
        let frozen = Ok(ErrorCode::Frozen);
        assert_eq!(answers, [Ok((7, frozen)), Ok((8, frozen)), Ok((9, Err(Outcome::Open))), Ok((10, frozen))]);
        assert_eq!(data.counters().executed, executed);
    }

    #[test]
    fn one_lease_for_all_workers_and_what_control_says_passes_worker_0() {
        let lease = Arc::<Lease>::default();
        let config = WorkerConfig { node: NodeId(1), worker: 2, instances: 2, control: true, incarnation: 1, seed: 1 };
        let mut control = Worker::with_lease(config, Arc::clone(&lease));
        let data = Worker::with_lease(WorkerConfig { worker: 1, ..config }, lease);
        assert!(data.serves(CLIENT, 99));
        let qmgr = BlockRef::new(NodeId(1), BlockId::Qmgr, BlockRef::CONTROL);
        control.with_context(qmgr, |ctx| ctx.serve_clients_until(50));
        assert!(data.serves(CLIENT, 49) && !data.serves(CLIENT, 50), "no signal was needed");
        assert!(data.serves(MEMBER, 50));
        let mut bytes = Vec::new();
        let to = BlockRef::new(NodeId(1), BlockId::Ldm, 1);
        control.with_context(qmgr, |ctx| ctx.send(to, Kind::ViewOrd, |_| ()));
        assert!(!control.take_ring(1, &mut bytes) && control.take_ring(0, &mut bytes));
        let mut first = Worker::new(WorkerConfig { worker: 0, ..config });
        first.receive_ring(&bytes);
        assert!(!first.ring_output(1).is_empty(), "worker 0 passes it on");
    }

    /// Panics with whatever it gets.
    struct Bomb(BlockRef);
    impl Block for Bomb {
        fn block_ref(&self) -> BlockRef {
            self.0
        }
        fn receive(&mut self, _: &Envelope, _: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
            panic!("a bug")
        }
        fn tick(&mut self, _: &mut Context<'_>) {}
        fn dump(&self, _: &mut String) {}
    }

    #[test]
    fn a_client_hears_what_panicked() {
        let words_of = |kind: Kind, from: BlockRef, body: &[u8]| {
            let config =
                WorkerConfig { node: NodeId(1), worker: 0, instances: 2, control: true, incarnation: 1, seed: 1 };
            let mut data = Worker::new(config);
            let block = me(&data);
            data.add_block(Box::new(Bomb(block)));
            data.core.links.open(CLIENT, 77, None);
            data.with_context(from, |ctx| ctx.send(block, kind, |b| b.put_bytes(body)));
            assert!(data.last_words().is_none(), "nothing panicked");
            let run = std::panic::AssertUnwindSafe(|| data.run(10));
            assert!(std::panic::catch_unwind(run).is_err());
            data.last_words()
        };
        let mut body = Vec::new();
        body.put_u64(5);
        let read = words_of(Kind::ReadReq, BlockRef::new(CLIENT, BlockId::Client, 0), &body).expect("of a client");
        let (to, frame) = read.own.expect("linked here");
        let (envelope, told) = decode_frame(&frame).expect("a frame");
        assert_eq!((to, envelope.kind, envelope.to.node), (CLIENT, Kind::LastWordsRep, CLIENT));
        assert_eq!(LastWords::decode(told).map(|w| w.request), Ok(5));
        let tc = BlockRef::new(NodeId(1), BlockId::Tc, 0);
        let trans = apus_types::TransId { client: 77, seq: 9 };
        body.put_trans(trans);
        let batch = words_of(Kind::LdmBatchReq, tc, &body).expect("of a client");
        let (_, frame) = batch.own.expect("linked here");
        let told = decode_frame(&frame).map(|(_, told)| LastWords::decode(told));
        assert_eq!(told, Ok(Ok(LastWords { request: 0, trans })));
        assert!(words_of(Kind::ViewOrd, tc, &[]).is_none(), "no client's");
        // A client of another worker hears it from that one.
        let mut other = Vec::new();
        other.put_u64(5);
        other.put_trans(apus_types::TransId { client: 78, seq: 9 });
        let farewell = words_of(Kind::LdmBatchReq, tc, &other).expect("of a client");
        assert!(farewell.own.is_none() && farewell.others.len() == 1);
        let config = WorkerConfig { node: NodeId(1), worker: 1, instances: 2, control: true, incarnation: 1, seed: 1 };
        let (mut second, its) = (Worker::new(config), NodeId(CLIENT.0 + 1));
        second.core.links.open(its, 78, None);
        second.receive_ring(&farewell.others[0].1);
        let (envelope, told) = decode_frame(second.output(its)).expect("a frame");
        assert_eq!(envelope.kind, Kind::LastWordsRep);
        assert_eq!(LastWords::decode(told).map(|w| w.trans.client), Ok(78));
    }
}

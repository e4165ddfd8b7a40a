//! What a block may ask of the world while it runs.

use std::borrow::Cow;

use apus_signal::{BlockId, BlockRef, Envelope, Kind};
use apus_types::{Epoch, NodeId};

use crate::{DataFile, DiskOp, JamPoint, Request, core::Core, limits::FILE_BYTES_MAX, links::Gate};

/// Borrowed from the worker for the execution of one signal. Nothing here blocks, nothing fails.
pub struct Context<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) me: BlockRef,
    pub(crate) trace: u32,
}

impl Context<'_> {
    /// Address of the running block.
    #[inline]
    pub fn me(&self) -> BlockRef {
        self.me
    }
    /// Monotonic nanoseconds, cached per round; virtual in the simulator.
    #[inline]
    pub fn now(&self) -> u64 {
        self.core.now
    }
    /// Wall clock in microseconds since 1970 as the executor gave it: for time stamps that people read.
    pub fn unix_micros(&self) -> i64 {
        self.core.unix_micros
    }
    /// Nanoseconds since the worker was made in which it had nothing to do: what is busy between two moments is the rest.
    pub fn idle_ns(&self) -> u64 {
        self.core.idle_ns
    }
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.core.epoch
    }
    /// Raises the worker's epoch; a lower one changes nothing. Other workers learn it from envelopes.
    pub fn raise_epoch(&mut self, to: Epoch) {
        self.core.epoch = self.core.epoch.max(to);
    }
    /// Trace id of the signal being executed; every send carries it on.
    pub fn trace(&self) -> u32 {
        self.trace
    }
    /// Sends a signal; `write` appends the body. To a node without a link, or a data-plane signal to a node that is not a
    /// member, it is dropped and counted, and `write` is not called.
    #[inline]
    pub fn send(&mut self, to: BlockRef, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        self.core.send(self.me, to, kind, self.trace, write);
    }
    /// Sends in another block's name: what it answers goes there.
    #[inline]
    pub fn send_as(&mut self, from: BlockRef, to: BlockRef, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        self.core.send(from, to, kind, self.trace, write);
    }
    /// Sends to [`Context::me`] after `delay_ns`, at the precision of the executor's rounds.
    pub fn send_delayed(&mut self, delay_ns: u64, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let (epoch, generation) = (self.core.epoch, self.core.links.generation());
        let envelope = Envelope { kind, to: self.me, from: self.me, epoch, trace: self.trace, generation };
        let deadline = self.core.now.saturating_add(delay_ns);
        envelope.encode(self.core.timers.arm(deadline), write);
    }
    /// What was just done may cost so many nanoseconds at worst: so many steps of a slice, by the constant that relates the slice to the shortest silence.
    /// The simulator lets time pass by it, and sees to it that no signal spends more than it may.
    #[inline]
    pub fn spend(&mut self, steps: usize, step_ns: u64) {
        self.core.spent.signal += steps as u64 * step_ns;
    }
    /// Seeded by the executor: not for secrets.
    pub fn random(&mut self) -> u64 {
        self.core.random.next_u64()
    }
    /// Whether to misbehave here; see [`crate::FaultRule`]. False where no fault is armed.
    #[inline]
    pub fn fault(&mut self, name: &'static str) -> bool {
        let core = &mut *self.core;
        core.faults.fires(name, &mut core.random)
    }
    /// A rare condition was reached.
    pub fn probe(&mut self, name: &'static str) {
        self.core.faults.probe(name);
    }
    /// Use [`crate::jam!`].
    #[inline]
    pub fn jam(&mut self, point: &'static JamPoint) {
        self.core.jam.push(point);
    }
    /// A line for the operator: `ctx.log(format_args!(..))`. For events, never per operation.
    pub fn log(&mut self, line: std::fmt::Arguments<'_>) {
        let me = self.me;
        self.core.log(format_args!("{me:?} {line}"));
    }
    /// Whether this worker's link to the node stands (a management node's is the control worker's).
    pub fn link_up(&self, node: NodeId) -> bool {
        self.core.links.get(node).is_some_and(|link| link.up)
    }
    /// When this worker's link to the node brought whole signals last; 0: never.
    pub fn link_heard(&self, node: NodeId) -> u64 {
        self.core.links.get(node).map_or(0, |link| link.heard)
    }
    /// Bytes that this worker's link to the node has not sent yet.
    pub fn link_backlog(&self, node: NodeId) -> usize {
        self.core.links.get(node).map_or(0, |link| link.unsent())
    }
    /// Bytes in this worker's job buffer, with what its blocks have set aside, and bytes that its links could not send so far.
    #[inline]
    pub fn buffered_bytes(&self) -> (usize, usize) {
        let core = &*self.core;
        (core.jobs.len() + core.running_bytes + core.deferred_bytes, core.links.unsent_total())
    }
    /// A block has set signals aside, or not any more: until there is less than [`crate::limits::DEFERRED_BYTES_SOFT`] the worker reads from
    /// no link.
    pub fn note_deferred(&mut self, before: usize, after: usize) {
        self.core.deferred_bytes = self.core.deferred_bytes + after - before;
    }
    /// There is no memory for what this worker's buffers hold: it reads from no client until there is.
    pub fn set_short_of_memory(&mut self, is_short: bool) {
        self.core.is_short_of_memory = is_short;
    }
    /// The same of what its links could not send: it reads from no client that leaves answers unread, and from none at all if it is other nodes that do not
    /// read.
    pub fn set_short_of_send_memory(&mut self, is_short: bool) {
        self.core.is_short_of_send_memory = is_short;
    }
    /// Answers pile up on their way to this node: what a client asks for is to be refused with `Overload`.
    #[inline]
    pub fn is_overloaded(&self, to: NodeId) -> bool {
        let limit = crate::limits::JOB_BYTES_FULL;
        self.core.jobs.len() >= limit || (!self.is_local(to) && self.link_backlog(to) >= limit)
    }
    /// Has the executor replace the content of one of this node's files, as a whole: after a crash of the process there is the old content or
    /// the new one. `synced`: so it is after a crash of the machine, and the new one is there when it is answered; otherwise a machine that
    /// crashes may lose it. Answered by a `FileConf` or `FileRef` with the token, in the order of asking. What the files hold is read by the
    /// executor before the blocks are made, and is part of their configuration. No bytes: the file is removed.
    ///
    /// # Panics
    /// The content is longer than [`crate::limits::FILE_BYTES_MAX`], or the name is not of lower-case letters, digits, `-` and `.`.
    pub fn write_file(&mut self, file: impl Into<Cow<'static, str>>, bytes: Vec<u8>, synced: bool, token: u64) {
        let file = file.into();
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        assert!(bytes.len() <= FILE_BYTES_MAX && file.bytes().all(is_plain), "file {file} of {} bytes", bytes.len());
        self.core.requests.push(Request::Write { file, bytes, synced, token, asker: self.me });
    }
    /// Has the executor do something with a file that is written in pieces. Answered by a `DiskConf` or `DiskRef` (`apus_signal::file`) with the
    /// token, per file in the order of asking; the module `disk` says what is durable. A node without a data directory is answered `DiskRef`.
    ///
    /// # Panics
    /// More than [`crate::limits::DISK_PIECE_MAX`] bytes, or with what is under way more than [`crate::limits::DISK_REQUESTS_MAX`] requests or
    /// [`crate::limits::DISK_BYTES_MAX`] bytes: whoever asks counts.
    pub fn disk(&mut self, file: DataFile, op: DiskOp, token: u64) {
        self.core.disk.begin(file, &op);
        self.core.requests.push(Request::Disk { file, op, token, asker: self.me });
    }
    /// Requests of this worker to its data files that are not answered, and the bytes that they write and read.
    pub fn disk_under_way(&self) -> (usize, usize) {
        self.core.disk.under_way()
    }
    /// An empty buffer for a write: one that a finished write gave back, or a new one.
    pub fn disk_buffer(&mut self) -> Vec<u8> {
        self.core.disk.buffer()
    }
    /// Whether this node has a data directory.
    pub fn has_disk(&self) -> bool {
        self.core.disk.is_there
    }
    /// Has the executor hold a link to the node from every worker (management nodes: from the control worker), redialled until it
    /// stands. Asking again with another address replaces it.
    pub fn connect_to(&mut self, node: NodeId, address: &str) {
        self.core.requests.push(Request::Connect { node, address: address.to_owned() });
    }
    /// Closes the links of all workers to the node: fences one that was removed, cuts off a client.
    pub fn close_link(&mut self, node: NodeId) {
        self.core.close_link(node, true);
    }
    /// Lets data-plane signals from and to this process of a data node pass, or not, on every worker of this node. A
    /// committed view that passes a worker sets the same for all its members.
    pub fn accept_from(&mut self, node: NodeId, incarnation: u64, allowed: bool) {
        self.core.accept_from(node, Gate { allowed, incarnation });
    }
    /// Asks every other data worker of this node to echo `token`: its `PingConf` (8 bytes, little-endian) comes after all that was sent to
    /// that worker before has been executed there, gates included. Returns how many will answer.
    pub fn ping_workers(&mut self, token: u64) -> u8 {
        let config = self.core.config;
        let others = (0..config.instances).filter(|&i| i != config.worker);
        for instance in others.clone() {
            let to = BlockRef::new(config.node, BlockId::Link, instance);
            self.core.send(self.me, to, Kind::PingReq, self.trace, |b| b.extend_from_slice(&token.to_le_bytes()));
        }
        others.count() as u8
    }
    /// Clients are read from until then, on every worker of this node and from now on (see [`crate::Worker::serves`]).
    pub fn serve_clients_until(&mut self, time_ns: u64) {
        self.core.serve_clients_until(time_ns);
    }
    /// As long as clients are not served they are answered [`apus_types::ErrorCode::Frozen`], on every worker (see
    /// [`crate::Worker::refuse_frames`]); otherwise what they ask waits.
    pub fn refuse_clients(&mut self, is_on: bool) {
        self.core.refuse_clients(is_on);
    }
    /// Orderly end of this node for a reason that is not a bug (lost the arbitration, told to leave). Takes effect when the
    /// block returns.
    pub fn stop_node(&mut self, reason: &str) {
        self.core.stop.get_or_insert_with(|| reason.to_owned());
    }
    /// As [`Context::stop_node`]; the process is to start again, as a node that joins the cluster that went on without it.
    pub fn stop_to_rejoin(&mut self, reason: &str) {
        self.core.rejoins |= self.core.stop.is_none();
        self.stop_node(reason);
    }
    /// Ends this node with a crash report that holds the trail of its data worker `worker`, which is stuck.
    pub fn stop_for_stuck(&mut self, worker: u8, reason: &str) {
        if self.core.stop.is_none() {
            self.core.stuck = Some(worker);
        }
        self.stop_node(reason);
    }
    /// The cluster that this node is to belong to, as the configuration says; views say it later. Peers of another one are refused.
    pub fn set_cluster(&mut self, cluster: u64) {
        self.core.links.set_cluster(cluster);
    }
    /// Data workers of this node: TC and LDM instances.
    pub fn instances(&self) -> u8 {
        self.core.config.instances
    }
    /// Distinguishes this start of the process from earlier ones; peers see it in the hello.
    pub fn incarnation(&self) -> u64 {
        self.core.config.incarnation
    }
    #[inline]
    pub fn is_local(&self, node: NodeId) -> bool {
        self.core.config.node == node
    }
}

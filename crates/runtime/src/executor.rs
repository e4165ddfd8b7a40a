//! The loop of a worker's thread; see the crate documentation.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use apus_kernel::{DiskDone, DiskFailure, Request, Worker};
use apus_types::NodeId;

use crate::{
    config::RUN_BUDGET,
    conns::{Conns, WAKER_TOKEN},
    crash, dial,
    disk::Job,
    files::{Files, Write},
    log,
    node::Stop,
    poll::{Interest, Poll, Ready},
    shared::{Arrival, Door, Shared, lock},
};

/// A ring that was full is tried again after this long.
const RING_RETRY_NS: u64 = 1_000_000;

pub struct Executor {
    shared: Arc<Shared>,
    pub worker: Worker,
    poll: Poll,
    conns: Conns,
    /// Zero of the monotonic clock, the same for all workers of the node.
    start: Instant,
    /// Reused: bytes of a ring, ready sockets, requests, what the disk has done.
    ring_bytes: Vec<u8>,
    ready: Vec<Ready>,
    requests: Vec<Request>,
    disk_done: Vec<DiskDone>,
    ring_stuck: bool,
    /// Ticks of the worker when the others were looked at last.
    watched: u64,
    /// How often QMGR was told that the process is to end.
    told_to_end: u32,
}

pub fn unix_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

impl Executor {
    pub fn new(shared: Arc<Shared>, worker: Worker, start: Instant) -> io::Result<Executor> {
        let poll = Poll::new()?;
        let index = usize::from(worker.config().worker);
        poll.add(shared.doors[index].waker().fd(), WAKER_TOKEN, Interest::READ)?;
        Ok(Executor {
            shared,
            worker,
            poll,
            conns: Conns::new(),
            start,
            ring_bytes: Vec::new(),
            ready: Vec::new(),
            requests: Vec::new(),
            disk_done: Vec::new(),
            ring_stuck: false,
            watched: 0,
            told_to_end: 0,
        })
    }

    /// Runs rounds until the node stops.
    ///
    /// # Errors
    /// epoll failed, which leaves nothing to do but to stop the node.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.shared.is_stopping() {
            let slept_at = self.wait()?;
            Self::door(&self.shared, self.worker.config().worker).begin_round();
            let now = self.now_ns();
            slept_at.into_iter().for_each(|at| self.worker.rested(now.saturating_sub(at)));
            self.worker.set_time(now, unix_micros());
            self.watch_workers();
            self.take_in();
            self.worker.run(RUN_BUDGET);
            self.worker.settle();
            self.pass_rings();
            self.flush_links();
            self.serve_requests();
        }
        Ok(())
    }

    /// After a panic: the client for which it happened is told, if that can be done at once.
    pub fn last_words(&mut self) {
        let Some(farewell) = self.worker.last_words() else { return };
        let me = self.worker.config().worker;
        for (to, mut bytes) in farewell.others {
            let door = Self::door(&self.shared, to);
            if !door.rings[usize::from(me)].is_full() {
                door.push_ring(me, &mut bytes);
            }
        }
        if let Some((node, frame)) = farewell.own {
            self.conns.write_last(node, &frame, &self.worker);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    fn door(shared: &Shared, worker: u8) -> &Door {
        &shared.doors[usize::from(worker)]
    }

    /// Since when it has slept, if it has.
    fn wait(&mut self) -> io::Result<Option<u64>> {
        let door = Self::door(&self.shared, self.worker.config().worker);
        let (mut timeout_ns, mut slept_at) = (0, None);
        if !self.worker.has_work() && door.may_sleep() {
            let now = self.now_ns();
            slept_at = Some(now);
            timeout_ns = self.worker.next_deadline().saturating_sub(now);
            if self.ring_stuck {
                timeout_ns = timeout_ns.min(RING_RETRY_NS);
            }
        }
        let result = self.poll.wait(Some(timeout_ns), &mut self.ready);
        door.awake();
        result.map(|()| slept_at)
    }

    /// The control worker looks after the data workers once per tick.
    fn watch_workers(&mut self) {
        let who = self.worker.config();
        if !who.is_control() || self.watched == self.worker.ticks() {
            return;
        }
        self.watched = self.worker.ticks();
        if self.told_to_end < self.shared.told_to_end.load(Ordering::Relaxed) {
            self.told_to_end += 1;
            self.worker.ask_to_leave();
        }
        for worker in 0..who.instances {
            let door = Self::door(&self.shared, worker);
            self.worker.watch(worker, door.rounds(), door.is_asleep());
        }
    }

    /// Executes what the world and the other workers brought.
    fn take_in(&mut self) {
        let shared = Arc::clone(&self.shared);
        let me = self.worker.config().worker;
        let door = Self::door(&shared, me);
        let ready = std::mem::take(&mut self.ready);
        let start = self.start;
        let now = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for event in &ready {
            if event.token == WAKER_TOKEN {
                door.waker().drain();
                continue;
            }
            if event.read
                && let Some(node) = self.conns.read(event.token, &self.poll, &mut self.worker, now)
            {
                self.link_ended(node);
            }
            if event.write
                && let Some(node) = self.conns.node_of(event.token)
                && !self.conns.write(node, &self.poll, &mut self.worker)
            {
                self.link_ended(node);
            }
        }
        self.ready = ready;
        for arrival in door.take_arrivals() {
            self.arrived(arrival);
        }
        for done in door.take_files() {
            self.worker.file_done(done.asker, done.token, done.outcome);
        }
        door.take_disk(&mut self.disk_done);
        self.disk_done.drain(..).for_each(|done| self.worker.disk_done(done));
        for ring in &door.rings {
            if ring.pull(&mut self.ring_bytes) {
                self.worker.receive_ring(&self.ring_bytes);
                self.ring_bytes.clear();
            }
        }
        for node in self.conns.resume(&self.poll, &mut self.worker, now) {
            self.link_ended(node);
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        let worker = self.worker.config().worker;
        match arrival {
            Arrival::Link(link) => {
                let node = link.node;
                if self.conns.open(link, &self.poll, &mut self.worker).is_some() {
                    self.link_ended(node);
                } else if let Some(peer) = lock(&self.shared.peers).get(&node) {
                    peer.linked(worker);
                }
            }
            Arrival::Refused { node, number } => {
                if self.worker.link_refused(node, number) {
                    self.link_ended(node);
                }
            }
        }
    }

    fn pass_rings(&mut self) {
        self.ring_stuck = false;
        let me = self.worker.config();
        for to in (0..me.places()).filter(|&to| to != me.worker) {
            if self.worker.ring_output(to).is_empty() {
                continue;
            }
            let door = Self::door(&self.shared, to);
            if door.rings[usize::from(me.worker)].is_full() {
                self.ring_stuck = true;
            } else if self.worker.take_ring(to, &mut self.ring_bytes) {
                door.push_ring(me.worker, &mut self.ring_bytes);
            }
        }
    }

    fn flush_links(&mut self) {
        while let Some(node) = self.worker.next_dirty() {
            if !self.conns.write(node, &self.poll, &mut self.worker) {
                self.link_ended(node);
            }
        }
    }

    /// The kernel knows already, be it that the link has ended or waits for another connection; here the id of a client is given back or a
    /// member dialled again.
    fn link_ended(&mut self, node: NodeId) {
        if node.is_client() {
            lock(&self.shared.client_ids).give_back(node);
        } else if let Some(peer) = lock(&self.shared.peers).get(&node) {
            let worker = self.worker.config().worker;
            match self.worker.awaits_connection(node) {
                Some(number) => peer.resume(worker, number),
                None => peer.redial(worker),
            }
        }
    }

    fn serve_requests(&mut self) {
        // Before anybody is dialled who asks for it. The control worker knows it first: QMGR runs there.
        if self.worker.cluster() != 0 && self.shared.cluster.load(Ordering::Relaxed) != self.worker.cluster() {
            self.shared.cluster.store(self.worker.cluster(), Ordering::Relaxed);
        }
        let mut requests = std::mem::take(&mut self.requests);
        self.worker.swap_requests(&mut requests);
        for request in requests.drain(..) {
            match request {
                Request::Connect { node, address } => dial::connect(&self.shared, node, &address),
                Request::Write { file, bytes, synced, token, asker } => {
                    let write = Write { file, bytes, synced, token, asker, worker: self.worker.config().worker };
                    if let Err(reason) = Files::put(&self.shared, write) {
                        self.worker.file_done(asker, token, Err(reason.to_owned()));
                    }
                }
                Request::Disk { file, op, token, asker } => match self.shared.disk.get() {
                    Some(disk) => disk.put(Job { file, op, token, asker, worker: self.worker.config().worker }),
                    None => {
                        let reason = "this process has no data directory".to_owned();
                        let outcome = Err(DiskFailure { full: false, reason });
                        self.worker.disk_done(DiskDone { asker, token, op, outcome });
                    }
                },
                Request::Close { node } => {
                    // A link to a data node may wait for a connection.
                    if self.conns.close(node, &mut self.worker) || node.is_data() {
                        self.link_ended(node);
                    }
                }
            }
        }
        self.requests = requests;
        for line in self.worker.take_log() {
            log::line(line);
        }
        if let (Some(stuck), Some(reason)) = (self.worker.stuck_worker(), self.worker.stop_reason()) {
            let thread = Self::door(&self.shared, stuck).thread();
            crash::end_for_stuck(&self.shared.config, stuck, thread, reason, &self.worker);
        }
        if let Some(reason) = self.worker.stop_reason() {
            let stop = if self.worker.rejoins() { Stop::Rejoin } else { Stop::Block };
            self.shared.stop(stop(reason.to_owned()));
        }
    }
}

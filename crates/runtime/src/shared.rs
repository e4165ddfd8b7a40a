//! What the threads of a node share: rings between workers, new links on their way to a worker, dialled peers, the stop.

use std::{
    collections::BTreeMap,
    io,
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use apus_kernel::{DiskDone, Lease, Offer, limits::CLIENTS_MAX};
use apus_signal::BlockRef;
use apus_types::NodeId;

use crate::{
    config::{DataNodeConfig, RING_BYTES_MAX},
    dial::Peer,
    disk::Disk,
    disk_ring::DiskRing,
    files::Files,
    node::Stop,
    poll::Waker,
    trail,
};

/// A thread that panics aborts the process, so that nobody meets a poisoned lock for long.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals from one worker to another: a mutex around a buffer that is swapped once per round, so that it is never held for
/// longer than a swap and hardly ever contended. The flag keeps the receiver from taking locks of empty rings.
#[derive(Default)]
pub struct Ring {
    bytes: Mutex<Vec<u8>>,
    filled: AtomicBool,
}

impl Ring {
    /// Whether it takes no more for now.
    pub fn is_full(&self) -> bool {
        self.filled.load(Ordering::Relaxed) && lock(&self.bytes).len() > RING_BYTES_MAX
    }
    /// Moves all of `from` in; `from` is empty afterwards.
    fn push(&self, from: &mut Vec<u8>) {
        let mut bytes = lock(&self.bytes);
        if bytes.is_empty() {
            std::mem::swap(&mut *bytes, from);
        } else {
            bytes.extend_from_slice(from);
            from.clear();
        }
        self.filled.store(true, Ordering::SeqCst);
    }
    /// Moves everything into `into`, which must be empty.
    pub fn pull(&self, into: &mut Vec<u8>) -> bool {
        if !self.filled.load(Ordering::SeqCst) {
            return false;
        }
        let mut bytes = lock(&self.bytes);
        std::mem::swap(&mut *bytes, into);
        self.filled.store(false, Ordering::SeqCst);
        !into.is_empty()
    }
}

/// A connection whose hello is done.
pub struct NewLink {
    pub stream: TcpStream,
    pub node: NodeId,
    pub offer: Offer,
}

/// What the threads that dial and listen have for a worker.
pub enum Arrival {
    Link(NewLink),
    /// Nobody answers for the process to which a link was, when it was dialled with this number.
    Refused {
        node: NodeId,
        number: u32,
    },
}

/// A file was written, or not.
pub struct FileDone {
    pub asker: BlockRef,
    pub token: u64,
    pub outcome: Result<(), String>,
}

/// What others leave for a worker.
pub struct Door {
    waker: Waker,
    /// The worker sleeps or is about to: who leaves something wakes it.
    sleeping: AtomicBool,
    /// Rounds that it has begun: the control worker watches whether they go on.
    rounds: AtomicU64,
    /// Its thread, once that runs.
    thread: OnceLock<trail::Thread>,
    arrivals: Mutex<Vec<Arrival>>,
    has_arrivals: AtomicBool,
    files: Mutex<Vec<FileDone>>,
    has_files: AtomicBool,
    disk: Mutex<Vec<DiskDone>>,
    has_disk: AtomicBool,
    /// From each worker of the node.
    pub rings: Vec<Ring>,
}

impl Door {
    fn new(workers: u8) -> io::Result<Door> {
        Ok(Door {
            waker: Waker::new()?,
            sleeping: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            thread: OnceLock::new(),
            arrivals: Mutex::new(Vec::new()),
            has_arrivals: AtomicBool::new(false),
            files: Mutex::new(Vec::new()),
            has_files: AtomicBool::new(false),
            disk: Mutex::new(Vec::new()),
            has_disk: AtomicBool::new(false),
            rings: (0..workers).map(|_| Ring::default()).collect(),
        })
    }
    /// By the worker: another round begins. Nobody else writes it.
    pub fn begin_round(&self) {
        self.rounds.store(self.rounds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
    pub fn is_asleep(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }
    /// By the worker, from its own thread.
    pub fn set_thread(&self, thread: trail::Thread) {
        let _ = self.thread.set(thread);
    }
    pub fn thread(&self) -> Option<trail::Thread> {
        self.thread.get().copied()
    }
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
    pub fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
    pub fn push_ring(&self, from_worker: u8, bytes: &mut Vec<u8>) {
        self.rings[usize::from(from_worker)].push(bytes);
        self.wake();
    }
    pub fn push(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
        self.has_arrivals.store(true, Ordering::SeqCst);
        self.wake();
    }
    pub fn push_file(&self, done: FileDone) {
        lock(&self.files).push(done);
        self.has_files.store(true, Ordering::SeqCst);
        self.wake();
    }
    pub fn take_files(&self) -> Vec<FileDone> {
        if !self.has_files.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.files))
    }
    pub fn push_disk(&self, done: DiskDone) {
        lock(&self.disk).push(done);
        self.has_disk.store(true, Ordering::SeqCst);
        self.wake();
    }
    /// Into a buffer that is empty: the buffers take turns.
    pub fn take_disk(&self, into: &mut Vec<DiskDone>) {
        if self.has_disk.swap(false, Ordering::SeqCst) {
            std::mem::swap(&mut *lock(&self.disk), into);
        }
    }
    pub fn take_arrivals(&self) -> Vec<Arrival> {
        if !self.has_arrivals.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.arrivals))
    }
    /// Announces sleep. False: something came meanwhile, do not. Whoever leaves something sets its flag before it reads
    /// `sleeping`, and we set `sleeping` before we read the flags, so that one of the two sees the other.
    pub fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let idle = !self.has_arrivals.load(Ordering::SeqCst)
            && !self.has_files.load(Ordering::SeqCst)
            && !self.has_disk.load(Ordering::SeqCst)
            && self.rings.iter().all(|ring| !ring.filled.load(Ordering::SeqCst));
        if !idle {
            self.awake();
        }
        idle
    }
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

/// Client ids, given out in a circle, so that a late answer to a client that left does not meet its successor.
pub struct ClientIds {
    used: Vec<bool>,
    next: usize,
}

impl ClientIds {
    fn new() -> ClientIds {
        ClientIds { used: vec![false; CLIENTS_MAX], next: 0 }
    }
    pub fn take(&mut self, for_operator: bool) -> Option<NodeId> {
        let others = usize::from(NodeId::OPERATOR_BASE - NodeId::CLIENT_BASE);
        let slot = if for_operator {
            (others..CLIENTS_MAX).find(|&slot| !self.used[slot])?
        } else {
            let slot = (0..others).map(|i| (self.next + i) % others).find(|&slot| !self.used[slot])?;
            self.next = slot + 1;
            slot
        };
        self.used[slot] = true;
        Some(NodeId(NodeId::CLIENT_BASE + slot as u16))
    }
    pub fn give_back(&mut self, node: NodeId) {
        if let Some(used) = self.used.get_mut(usize::from(node.0 - NodeId::CLIENT_BASE)) {
            *used = false;
        }
    }
}

pub struct Shared {
    pub config: DataNodeConfig,
    pub incarnation: u64,
    /// Of all workers.
    pub lease: Arc<Lease>,
    /// Learnt from the first view; 0 until then.
    pub cluster: AtomicU64,
    pub doors: Vec<Door>,
    pub client_ids: Mutex<ClientIds>,
    pub peers: Mutex<BTreeMap<NodeId, Arc<Peer>>>,
    /// Connections closed before their hello was accepted.
    pub refused_hellos: AtomicU64,
    pub listener_waker: Waker,
    /// Where blocks' files are, if they may have any.
    pub files: OnceLock<Files>,
    /// The same place's data files.
    pub disk: OnceLock<Disk>,
    /// Until its thread begins.
    pub ring: Mutex<Option<DiskRing>>,
    /// How often the process was told to end: the control worker tells QMGR, which leaves the cluster, or refuses (`qmgr::leave`).
    pub told_to_end: AtomicU32,
    stop: Mutex<Option<Stop>>,
    stop_flag: AtomicBool,
    stopped: Condvar,
}

impl Shared {
    pub fn new(config: DataNodeConfig, incarnation: u64) -> io::Result<Shared> {
        let doors = (0..config.places()).map(|_| Door::new(config.places())).collect::<io::Result<Vec<_>>>()?;
        Ok(Shared {
            config,
            incarnation,
            lease: Arc::default(),
            cluster: AtomicU64::new(0),
            doors,
            client_ids: Mutex::new(ClientIds::new()),
            peers: Mutex::new(BTreeMap::new()),
            refused_hellos: AtomicU64::new(0),
            listener_waker: Waker::new()?,
            files: OnceLock::new(),
            disk: OnceLock::new(),
            ring: Mutex::new(None),
            told_to_end: AtomicU32::new(0),
            stop: Mutex::new(None),
            stop_flag: AtomicBool::new(false),
            stopped: Condvar::new(),
        })
    }
    /// The first reason counts.
    pub fn stop(&self, reason: Stop) {
        lock(&self.stop).get_or_insert(reason);
        self.stop_flag.store(true, Ordering::SeqCst);
        self.stopped.notify_all();
        self.doors.iter().for_each(|door| door.waker.wake());
        self.listener_waker.wake();
        self.files.get().inspect(|files| files.wake());
        self.disk.get().inspect(|disk| disk.stop());
        lock(&self.peers).values().for_each(|peer| peer.notify());
    }
    pub fn push_disk(&self, worker: u8, done: DiskDone) {
        self.doors[usize::from(worker)].push_disk(done);
    }
    pub fn is_stopping(&self) -> bool {
        self.stop_flag.load(Ordering::Relaxed)
    }
    pub fn wait_stop(&self) -> Stop {
        let mut stop = lock(&self.stop);
        loop {
            if let Some(reason) = &*stop {
                return reason.clone();
            }
            stop = self.stopped.wait(stop).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

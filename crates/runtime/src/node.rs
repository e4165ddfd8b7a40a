//! Starting, stopping and awaiting a node.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Instant,
};

use apus_auth::Keys;
use apus_kernel::{Block, Worker, WorkerConfig};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    config::{ArbitratorConfig, DataNodeConfig, MgmtConfig},
    crash, dial,
    disk::Disk,
    executor::{Executor, unix_micros},
    files::{DataDir, Files},
    listener::Hellos,
    log,
    shared::{Shared, lock},
    trail,
};

/// Exit code of a process whose node was stopped by a block (lost the arbitration, no place in the configuration, ...).
pub const EXIT_STOPPED: i32 = 3;

/// Why a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM, SIGINT or [`Node::stop`].
    Asked,
    /// A block's reason; the process should exit with [`EXIT_STOPPED`].
    Block(String),
    /// A block's reason; the process should start again and join the cluster that went on without it.
    Rejoin(String),
    /// A thread could not go on.
    Failed(String),
}

/// A node that listens and does not run yet: address and incarnation are known, as its blocks may want them.
pub struct Bound {
    /// `None`: it begins all its links.
    listener: Option<TcpListener>,
    shared: Arc<Shared>,
}

impl Bound {
    /// # Errors
    /// The address is taken or wrong, or one secret is given without the other.
    pub fn new(config: impl Into<DataNodeConfig>) -> io::Result<Bound> {
        let config: DataNodeConfig = config.into();
        if config.keys != Keys::NONE && !config.keys.are_set() {
            return Err(io::Error::other(
                "one secret without the other: a node needs that of nodes and that of clients",
            ));
        }
        let listener = TcpListener::bind(&config.listen)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {}: {e}", config.listen)))?;
        Bound::with_listener(config, Some(listener))
    }
    /// A node that listens to nobody.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn arbitrator(config: ArbitratorConfig) -> io::Result<Bound> {
        Bound::with_listener(config.into(), None)
    }
    fn with_listener(config: DataNodeConfig, listener: Option<TcpListener>) -> io::Result<Bound> {
        // Microseconds since 1970: grows with every start of the process as long as the clock is not set back.
        let incarnation = unix_micros().unsigned_abs().max(1);
        Ok(Bound { listener, shared: Arc::new(Shared::new(config, incarnation)?) })
    }
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.as_ref().map_or_else(|| Err(io::Error::other("it does not listen")), TcpListener::local_addr)
    }
    /// Distinguishes this start from earlier ones.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Blocks may have files written in this directory (see [`DataDir`]).
    #[must_use]
    pub fn with_files(self, dir: DataDir) -> Bound {
        if self.shared.config.node.is_data() {
            let (disk, ring) = Disk::with_ring(dir.path());
            let _ = self.shared.disk.set(disk);
            match ring {
                Ok(ring) => *lock(&self.shared.ring) = Some(ring),
                Err(e) => log::line(format!("data files are written by threads: the system gives no io_uring ({e})")),
            }
        }
        let _ = self.shared.files.set(Files::new(dir));
        self
    }

    /// Starts all threads. `build` makes the blocks of one worker, in that worker's thread.
    ///
    /// # Errors
    /// The operating system refuses a thread or a descriptor.
    pub fn start(self, build: impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + Send + 'static) -> io::Result<Node> {
        crash::install_hook();
        let Bound { listener, shared } = self;
        let config = shared.config.clone();
        let build = Arc::new(Mutex::new(build));
        let start = Instant::now();
        // Blocks key maps of what strangers choose by it; the incarnation is known to everybody.
        let secret = secret_seed()?;
        let mut workers = Vec::new();
        for worker in 0..config.places() {
            let who = WorkerConfig {
                node: config.node,
                worker,
                instances: config.workers,
                control: config.node.is_data(),
                incarnation: shared.incarnation,
                seed: secret ^ u64::from(config.node.0) << 48 ^ u64::from(worker) << 40,
            };
            let (build, shared) = (Arc::clone(&build), Arc::clone(&shared));
            let name = if who.is_control() { "control".to_owned() } else { format!("worker-{worker}") };
            let thread = thread::Builder::new().name(name);
            workers.push(thread.spawn(move || run_worker(&shared, who, start, &build))?);
        }
        if let Some(listener) = listener {
            let for_listener = Arc::clone(&shared);
            crash::spawn(&config, "listener".to_owned(), move || {
                let served = Hellos::new(Arc::clone(&for_listener), listener).and_then(|mut hellos| hellos.run());
                if let Err(e) = served {
                    for_listener.stop(Stop::Failed(format!("listener: {e}")));
                }
            });
        }
        if shared.files.get().is_some() {
            let for_files = Arc::clone(&shared);
            crash::spawn(&config, "files".to_owned(), move || Files::run(&for_files));
        }
        if let Some(disk) = shared.disk.get() {
            for number in 0..disk.threads(config.workers) {
                let for_disk = Arc::clone(&shared);
                crash::spawn(&config, format!("disk-{number}"), move || {
                    for_disk.disk.get().into_iter().for_each(|disk| disk.run(|to, done| for_disk.push_disk(to, done)));
                });
            }
        }
        if let Some(mut ring) = lock(&shared.ring).take() {
            let for_ring = Arc::clone(&shared);
            crash::spawn(&config, "disk-ring".to_owned(), move || {
                let Some(disk) = for_ring.disk.get() else { return };
                if let Err(e) = ring.run(disk, |to, done| for_ring.push_disk(to, done)) {
                    for_ring.stop(Stop::Failed(format!("io_uring: {e}")));
                }
            });
        }
        config.mgmt.iter().for_each(|address| dial::connect_mgmt(&shared, address));
        Ok(Node { shared, workers })
    }
}

fn secret_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(format!("no entropy: {e}")))?;
    Ok(u64::from_le_bytes(bytes))
}

fn run_worker<B>(shared: &Arc<Shared>, who: WorkerConfig, start: Instant, build: &Mutex<B>)
where
    B: FnMut(&WorkerConfig) -> Vec<Box<dyn Block>>,
{
    let mut executor =
        match Executor::new(Arc::clone(shared), Worker::with_lease(who, Arc::clone(&shared.lease)), start) {
            Ok(executor) => executor,
            Err(e) => return shared.stop(Stop::Failed(format!("worker {}: {e}", who.worker))),
        };
    shared.doors[usize::from(who.worker)].set_thread(trail::begin(&executor.worker));
    let run = |executor: &mut Executor| {
        executor.worker.set_has_disk(shared.disk.get().is_some());
        let blocks = (*lock(build))(&who);
        blocks.into_iter().for_each(|block| executor.worker.add_block(block));
        if let Err(e) = executor.run() {
            shared.stop(Stop::Failed(format!("worker {}: {e}", who.worker)));
        }
    };
    crash::guard_worker(&shared.config, &mut executor, run, Executor::last_words, |executor| &executor.worker);
    trail::end();
}

/// Gets how many files were written anew, or why not all.
pub type Renewed = Box<dyn FnOnce(io::Result<usize>) + Send>;

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Node {
    /// See [`Files::renew`]; nothing is called where the node has no files.
    pub fn renewer(&self) -> impl Fn(Renewed) + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move |then| {
            if let Some(files) = shared.files.get() {
                files.renew(then);
            }
        }
    }
    /// Asks for an orderly end; [`Node::wait`] returns soon.
    pub fn stop(&self) {
        self.shared.stop(Stop::Asked);
    }
    /// Connections that were closed because their hello was wrong, refused or late.
    pub fn refused_hellos(&self) -> u64 {
        self.shared.refused_hellos.load(Ordering::Relaxed)
    }
    /// Waits until the node has ended and its sockets are closed.
    pub fn wait(self) -> Stop {
        let reason = self.shared.wait_stop();
        for worker in self.workers {
            let _ = worker.join(); // a worker that panicked has aborted the process
        }
        log::flush();
        match reason {
            Stop::Block(_) | Stop::Rejoin(_) if self.shared.told_to_end.load(Ordering::Relaxed) > 0 => Stop::Asked,
            reason => reason,
        }
    }
    /// As [`Node::wait`], and SIGTERM or SIGINT stop the node. On a data node QMGR decides: it leaves the cluster within a few seconds, ends at
    /// once at a second signal, and refuses a first one where rows would be lost.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn wait_signals(self) -> io::Result<Stop> {
        self.wait_signals_and(None::<fn()>)
    }
    /// The same; where there is something to be read again, SIGHUP asks for that.
    ///
    /// # Errors
    /// As [`Node::wait_signals`].
    pub fn wait_signals_and(self, read_again: Option<impl Fn() + Send + 'static>) -> io::Result<Stop> {
        let wanted = [SIGTERM, SIGINT].into_iter().chain(read_again.as_ref().map(|_| SIGHUP));
        let mut signals = Signals::new(wanted)?;
        let handle = signals.handle();
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    read_again.iter().for_each(|read_again| read_again());
                    continue;
                }
                if !shared.config.node.is_data() {
                    return shared.stop(Stop::Asked);
                }
                shared.told_to_end.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let reason = self.wait();
        handle.close();
        let _ = thread.join();
        Ok(reason)
    }
}

/// Runs a data node until it ends.
///
/// # Errors
/// It could not start.
pub fn run_data_node(
    config: DataNodeConfig,
    build: impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + Send + 'static,
) -> io::Result<Stop> {
    Bound::new(config)?.start(build)?.wait_signals()
}

/// Runs a management node until it ends.
///
/// # Errors
/// It could not start.
pub fn run_mgmt(
    config: MgmtConfig,
    build: impl FnMut(&WorkerConfig) -> Vec<Box<dyn Block>> + Send + 'static,
) -> io::Result<Stop> {
    Bound::new(config)?.start(build)?.wait_signals()
}

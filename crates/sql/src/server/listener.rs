//! The listening socket and the worker threads.
//!
//! One acceptor thread takes sockets and hands each to the worker with the fewest connections, so that sixteen
//! connections over two workers are eight and eight; the kernel's own spreading over SO_REUSEPORT sockets would not
//! promise that. Workers end when the server is told to stop or dropped; their connections are then ended first.

use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::{
    Accounts, Engine, Tls,
    connection::Connection,
    cursors::Held,
    limits,
    registry::{Registry, Slot},
};
use crate::wire::{SqlError, constants::MAX_ALLOWED_PACKET_DEFAULT, packet::PacketBuffer, result::write_error};

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Worker threads, at least one; usually the number of cores.
    pub threads: usize,
    /// Connections at once; one more gets error 1040.
    pub max_connections: usize,
    /// Connections at once that have not logged in; see [`limits::STRANGERS_MAX_DEFAULT`].
    pub max_strangers: usize,
    /// Longest packet accepted from an authenticated client, in bytes.
    pub max_allowed_packet: usize,
    /// An idle connection ends after this.
    pub wait_timeout: Duration,
    /// A client that has not authenticated by then is dropped.
    pub handshake_timeout: Duration,
    /// `None`: no TLS is offered.
    pub tls: Option<Tls>,
}

impl ServerConfig {
    pub fn new(listen: SocketAddr, threads: usize) -> ServerConfig {
        ServerConfig {
            listen,
            threads,
            max_connections: limits::CONNECTIONS_MAX_DEFAULT,
            max_strangers: limits::STRANGERS_MAX_DEFAULT,
            max_allowed_packet: MAX_ALLOWED_PACKET_DEFAULT,
            wait_timeout: limits::WAIT_TIMEOUT,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            tls: None,
        }
    }
}

/// What all workers share.
pub(super) struct Shared {
    pub config: ServerConfig,
    pub accounts: Accounts,
    pub registry: Arc<Registry>,
    /// By cursors.
    pub held: Arc<Held>,
}

/// A running server; stops when dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Handover = (TcpStream, Slot);

/// Backstop of a stop: connections that have not ended by then are dropped.
const STOP_GRACE: Duration = Duration::from_secs(2);

impl Server {
    /// Binds the socket, builds one engine per worker thread on that thread (inside its runtime), and starts to accept
    /// once all of them are ready. The first engine that fails stops the start.
    pub fn start<E, F, Fut>(config: ServerConfig, accounts: Accounts, make_engine: F) -> io::Result<Server>
    where
        E: Engine,
        F: Fn(usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<E, SqlError>>,
    {
        let workers = config.threads.max(1);
        let listener = bind(config.listen)?;
        let address = listener.local_addr()?;
        let registry = Arc::new(Registry::new(workers, config.max_connections, config.max_strangers).at(address));
        let shared = Arc::new(Shared { config, accounts, registry, held: Arc::default() });
        let make_engine = Arc::new(make_engine);
        let mut server =
            Server { address, shared: shared.clone(), stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        let mut handovers = Vec::with_capacity(workers);
        for worker in 0..workers {
            let (sender, receiver) = mpsc::channel(limits::HANDOVER_MAX);
            let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
            let (shared, make_engine) = (shared.clone(), make_engine.clone());
            let thread = std::thread::Builder::new()
                .name(format!("apus-sql-{worker}"))
                .stack_size(limits::STACK_BYTES)
                .spawn(move || run_worker(shared, worker, receiver, ready, async move || make_engine(worker).await))?;
            server.threads.push(thread);
            handovers.push(sender);
            match is_ready.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::Error::other("a worker thread ended while it started")),
            }
        }
        let stop = server.stop.clone();
        let thread = std::thread::Builder::new()
            .name("apus-sql-accept".into())
            .spawn(move || accept(&listener, &shared, &handovers, &stop))?;
        server.threads.push(thread);
        Ok(server)
    }

    /// Where it listens; the port is the real one when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// Stops accepting, ends all connections after their current command, and waits for the threads.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the acceptor out of its accept.
        let mut wake = self.address;
        if wake.ip().is_unspecified() {
            wake.set_ip(if wake.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        let _ = TcpStream::connect_timeout(&wake, Duration::from_secs(1));
        self.shared.registry.kill_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(limits::LISTEN_BACKLOG)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, shared: &Shared, handovers: &[mpsc::Sender<Handover>], stop: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or a peer that left at once: neither is a reason to end, nor to spin.
                eprintln!("apus sql: accept: {error}");
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        let _ = stream.set_nodelay(true);
        match shared.registry.admit(host_of(peer.ip())) {
            None => refuse(stream),
            Some(slot) => {
                let Some(handover) = handovers.get(slot.worker) else { continue };
                if let Err(error) = handover.try_send((stream, slot)) {
                    let (mpsc::error::TrySendError::Full((stream, _)) | mpsc::error::TrySendError::Closed((stream, _))) =
                        error;
                    refuse(stream);
                }
            }
        }
    }
}

/// Loopback has a name, as MySQL would find one; no other address is looked up.
fn host_of(address: IpAddr) -> String {
    let address = address.to_canonical();
    if address.is_loopback() { "localhost".to_owned() } else { address.to_string() }
}

/// The socket buffer of a fresh connection takes this short packet at once.
fn refuse(mut stream: TcpStream) {
    let mut out = PacketBuffer::new();
    write_error(&mut out, 1040, None, b"Too many connections");
    let _ = stream.write(out.complete());
}

fn run_worker<E: Engine>(
    shared: Arc<Shared>,
    worker: usize,
    mut receiver: mpsc::Receiver<Handover>,
    ready: std::sync::mpsc::SyncSender<io::Result<()>>,
    make_engine: impl AsyncFnOnce() -> Result<E, SqlError>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(limits::BLOCKING_THREADS_MAX)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async move {
        let engine = match make_engine().await {
            Ok(engine) => Rc::new(engine),
            Err(error) => {
                let _ = ready.send(Err(io::Error::other(error)));
                return;
            }
        };
        engine.started(&shared.registry, worker).await;
        let _ = ready.send(Ok(()));
        // Ends when the acceptor has ended and dropped the sender.
        while let Some((stream, slot)) = receiver.recv().await {
            let id = slot.id;
            let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { continue };
            // Made here: a block around it would keep room for the connection twice.
            let task = tokio::task::spawn_local(Connection::new(shared.clone(), engine.clone(), slot).serve(stream));
            tokio::task::spawn_local(async move {
                if let Err(error) = task.await
                    && error.is_panic()
                {
                    eprintln!("apus sql: connection {id} ended by a panic: {error}");
                }
            });
        }
        engine.ending(worker).await;
        drop(engine);
    }));
    runtime.block_on(async {
        let _ = tokio::time::timeout(STOP_GRACE, tasks).await;
    });
}

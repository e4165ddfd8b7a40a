//! Links, their connections, and the faults of each direction.
//!
//! A direction of a connection is two tasks and a bounded queue between them: one reads chunks and notes when each may arrive, the other
//! waits for that moment, for the cut to heal and for the bandwidth, and writes. Whoever ends takes the connection's other half along.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    io,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::spawn_local,
    time::{Instant, sleep, sleep_until},
};

use crate::command::{Command, Direction};

/// Chunks held per direction of a connection.
pub const HELD_CHUNKS_MAX: usize = 256;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 16 << 10;

/// What is wrong in one direction.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Fault {
    delay_ms: u64,
    jitter_ms: u64,
    /// Bytes a second; 0 for unlimited.
    rate: u64,
    loss_permille: u64,
    cut: bool,
    /// Raised by each `reset`; connections of an older number end.
    resets: u64,
}

#[derive(Default)]
struct Totals {
    connections: Cell<u64>,
    bytes: Cell<u64>,
    resets: Cell<u64>,
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

/// All links and faults.
pub struct Network {
    faults: RefCell<BTreeMap<Direction, watch::Sender<Fault>>>,
    totals: Totals,
    random: Cell<u64>,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        Network { faults: RefCell::default(), totals: Totals::default(), random: Cell::new(seed) }
    }

    /// # Errors
    /// The link's port cannot be had.
    pub async fn execute(self: &Rc<Network>, command: Command) -> Result<String, String> {
        match command {
            Command::Link { from, to, listen, target } => {
                let failed = |e: io::Error| format!("cannot listen on {listen}: {e}");
                let listener = TcpListener::bind(listen).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                spawn_local(self.clone().accept(listener, from, to, target));
                return Ok(address.to_string());
            }
            Command::Delay { direction, ms, jitter_ms } => {
                self.change(&direction, |f| (f.delay_ms, f.jitter_ms) = (ms, jitter_ms));
            }
            Command::Rate { direction, bytes } => self.change(&direction, |f| f.rate = bytes),
            Command::Loss { direction, permille } => self.change(&direction, |f| f.loss_permille = permille),
            Command::Cut { direction } => self.change(&direction, |f| f.cut = true),
            Command::Reset { direction: (a, b) } => {
                self.change(&(a.clone(), b.clone()), |f| f.resets += 1);
                self.change(&(b, a), |f| f.resets += 1);
            }
            Command::Heal { direction } => self.change(&direction, heal),
            Command::HealAll => self.faults.borrow().values().for_each(|fault| fault.send_modify(heal)),
            Command::Stats => {
                let Totals { connections, bytes, resets } = &self.totals;
                return Ok(format!("connections {} bytes {} resets {}", connections.get(), bytes.get(), resets.get()));
            }
        }
        Ok(String::new())
    }

    fn change(&self, direction: &Direction, change: impl FnOnce(&mut Fault)) {
        self.faults.borrow_mut().entry(direction.clone()).or_default().send_modify(change);
    }

    fn watch(&self, from: &str, to: &str) -> watch::Receiver<Fault> {
        self.faults.borrow_mut().entry((from.to_owned(), to.to_owned())).or_default().subscribe()
    }

    /// A number less than `bound` (splitmix64).
    fn below(&self, bound: u64) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if bound == 0 { 0 } else { (z ^ (z >> 31)) % bound }
    }

    async fn accept(self: Rc<Network>, listener: TcpListener, from: String, to: String, target: SocketAddr) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let there = self.watch(&from, &to);
                    let back = self.watch(&to, &from);
                    spawn_local(self.clone().connection(stream, target, there, back));
                }
                // No descriptors left, for example: try again when some may be free.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// A connection from its beginning to its end.
    async fn connection(
        self: Rc<Network>,
        client: TcpStream,
        target: SocketAddr,
        mut there: watch::Receiver<Fault>,
        mut back: watch::Receiver<Fault>,
    ) {
        let resets = (there.borrow().resets, back.borrow().resets);
        if whole(&mut there).await.is_err() || whole(&mut back).await.is_err() {
            return;
        }
        let Ok(server) = TcpStream::connect(target).await else {
            let _ = client.set_zero_linger(); // the dialler is refused, as it would have been
            return;
        };
        let (Ok(()), Ok(())) = (client.set_nodelay(true), server.set_nodelay(true)) else { return };
        add(&self.totals.connections, 1);
        let (mut there_reset, mut back_reset) = (there.clone(), back.clone());
        // Both directions end in order; an error or a reset ends both at once.
        let failed = tokio::select! {
            both = both(
                self.pump(&client, &server, there.clone()),
                self.pump(&server, &client, back.clone()),
            ) => both.is_err(),
            _ = there_reset.wait_for(|f| f.resets != resets.0) => true,
            _ = back_reset.wait_for(|f| f.resets != resets.1) => true,
        };
        if failed {
            add(&self.totals.resets, 1);
            for stream in [&client, &server] {
                let _ = stream.set_zero_linger(); // closing sends a reset
            }
        }
    }

    /// Carries one direction from its first byte to its end.
    async fn pump(&self, source: &TcpStream, sink: &TcpStream, mut fault: watch::Receiver<Fault>) -> io::Result<()> {
        let (send, mut held) = mpsc::channel::<(Instant, Vec<u8>)>(HELD_CHUNKS_MAX);
        let seen = fault.clone();
        let read = async {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                source.readable().await?;
                let count = match source.try_read(&mut chunk) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                    done => done?,
                };
                if count == 0 {
                    drop(send);
                    return Ok::<(), io::Error>(());
                }
                chunk.truncate(count);
                let now = *seen.borrow();
                if self.below(1000) < now.loss_permille {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                let later = now.delay_ms + self.below(now.jitter_ms + 1);
                if send.send((Instant::now() + Duration::from_millis(later), chunk)).await.is_err() {
                    return Ok(());
                }
            }
        };
        let write = async {
            while let Some((due, chunk)) = held.recv().await {
                if due > Instant::now() {
                    sleep_until(due).await;
                }
                let now = whole(&mut fault).await?;
                if now.rate > 0 {
                    sleep(Duration::from_secs_f64(chunk.len() as f64 / now.rate as f64)).await;
                }
                write_all(sink, &chunk).await?;
                add(&self.totals.bytes, chunk.len() as u64);
            }
            rustix::net::shutdown(sink, rustix::net::Shutdown::Write).map_err(io::Error::from)
        };
        both(read, write).await
    }
}

fn heal(fault: &mut Fault) {
    *fault = Fault { resets: fault.resets, ..Fault::default() };
}

/// Waits until the direction is not cut.
async fn whole(fault: &mut watch::Receiver<Fault>) -> io::Result<Fault> {
    let fault = fault.wait_for(|f| !f.cut).await;
    fault.map(|f| *f).map_err(|_| io::ErrorKind::ConnectionReset.into())
}

/// Both to their end, or the first error.
async fn both(a: impl Future<Output = io::Result<()>>, b: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::try_join!(a, b).map(|_| ())
}

async fn write_all(sink: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        sink.writable().await?;
        match sink.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

//! Connections that this node makes: to data nodes with lower ids and to management nodes, so that links begin, and to all data nodes,
//! so that links go on whose connection was lost.
//!
//! Each peer has a thread that sleeps until a worker lacks something, so that resolving a name or waiting for a dead host holds
//! up nobody else. It dials, says hello, hands the socket to the worker, and tries again with a growing pause. A link that lost its
//! connection is dialled at once, from both ends. Where nobody listens any more, or somebody else, its process is gone, and the worker
//! is told: this is how a killed process is seen within a round trip.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use apus_auth::{Connector, Failure, Progress, member_id, role_of};
use apus_kernel::Offer;
use apus_signal::{
    envelope::ENVELOPE_BYTES,
    hello::{HELLO_BYTES_MAX, Hello},
};
use apus_types::{ErrorCode, NodeId};

use crate::{
    config::{
        CONNECT_TIMEOUT_MS, HELLO_TIMEOUT_MS, REDIAL_MS, RESUME_CONNECT_TIMEOUT_MS, RESUME_HELLO_TIMEOUT_MS,
        RESUME_PAUSE_MS,
    },
    crash, log,
    shared::{Arrival, NewLink, Shared, lock},
};

/// What a worker lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// A link, from the beginning.
    Link,
    /// The connection of this number to go on with its link.
    Connection(u32),
}

struct Wanted {
    address: String,
    /// By worker from `first` on.
    lacks: Vec<Lack>,
    first: u8,
    /// Links are begun from here, not only taken up again.
    begins: bool,
}

impl Wanted {
    fn lack(&mut self, worker: u8) -> Option<&mut Lack> {
        let place = worker.checked_sub(self.first).map(usize::from)?;
        self.lacks.get_mut(place)
    }
    /// A link that waits for its connection goes first, and of these the control worker's, which heartbeats pass over.
    fn next(&self) -> Option<(u8, Lack)> {
        let at = |wanted: fn(&Lack) -> bool| self.lacks.iter().rposition(wanted);
        let connection = at(|lack| matches!(lack, Lack::Connection(_)));
        let link = || self.lacks.iter().position(|lack| *lack == Lack::Link).filter(|_| self.begins);
        let place = connection.or_else(link)?;
        Some((place as u8 + self.first, self.lacks[place]))
    }
}

/// A node that is dialled.
pub struct Peer {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Peer {
    /// To be linked with from so many workers, beginning with `first`.
    fn new(address: &str, first: u8, links: u8, begins: bool) -> Peer {
        let lacks = vec![Lack::Link; usize::from(links)];
        let wanted = Wanted { address: address.to_owned(), lacks, first, begins };
        Peer { wanted: Mutex::new(wanted), changed: Condvar::new() }
    }
    fn set(&self, worker: u8, lack: Lack) {
        lock(&self.wanted).lack(worker).into_iter().for_each(|l| *l = lack);
        self.changed.notify_all();
    }
    /// The worker's link ended.
    pub fn redial(&self, worker: u8) {
        self.set(worker, Lack::Link);
    }
    /// The worker's link lost its connection.
    pub fn resume(&self, worker: u8, number: u32) {
        self.set(worker, Lack::Connection(number));
    }
    /// The worker has a connection, whoever dialled it.
    pub fn linked(&self, worker: u8) {
        self.set(worker, Lack::Nothing);
    }
    /// An attempt has come to something, unless the worker lacks something else by now.
    fn done(&self, worker: u8, lack: Lack) {
        lock(&self.wanted).lack(worker).filter(|l| **l == lack).into_iter().for_each(|l| *l = Lack::Nothing);
    }
    pub fn notify(&self) {
        self.changed.notify_all();
    }
    /// Waits until something is lacking.
    fn next(&self, shared: &Shared) -> Option<(u8, Lack, String)> {
        let mut wanted = lock(&self.wanted);
        while !shared.is_stopping() {
            if let Some((worker, lack)) = wanted.next() {
                return Some((worker, lack, wanted.address.clone()));
            }
            wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
    fn pause(&self, ms: u64) {
        let wanted = lock(&self.wanted);
        drop(self.changed.wait_timeout(wanted, Duration::from_millis(ms)));
    }
}

/// Keeps links to `node` from now on. A data node with a higher id begins them itself: it is dialled only to go on with one.
pub fn connect(shared: &Arc<Shared>, node: NodeId, address: &str) {
    let own = shared.config.node;
    if node == own || node.is_client() {
        return;
    }
    let are_data = node.is_data() && own.is_data();
    let (first, links) = if are_data { (0, shared.config.places()) } else { (shared.config.control_place(), 1) };
    let mut peers = lock(&shared.peers);
    if let Some(peer) = peers.get(&node) {
        address.clone_into(&mut lock(&peer.wanted).address);
        peer.notify();
        return;
    }
    let peer = Arc::new(Peer::new(address, first, links, !are_data || node < own));
    peers.insert(node, Arc::clone(&peer));
    drop(peers);
    spawn(shared, peer, Some(node));
}

/// Keeps a link to a management node whose id its hello will tell.
pub fn connect_mgmt(shared: &Arc<Shared>, address: &str) {
    spawn(shared, Arc::new(Peer::new(address, shared.config.control_place(), 1, true)), None);
}

fn spawn(shared: &Arc<Shared>, peer: Arc<Peer>, node: Option<NodeId>) {
    let shared = Arc::clone(shared);
    let name = node.map_or_else(|| "dial-mgmt".to_owned(), |n| format!("dial-{n}"));
    crash::spawn(&shared.config.clone(), name, move || keep(&shared, &peer, node));
}

fn keep(shared: &Shared, peer: &Arc<Peer>, mut node: Option<NodeId>) {
    let (first, longest) = REDIAL_MS;
    let mut pause = first;
    let mut last_error = String::new();
    while let Some((worker, lack, address)) = peer.next(shared) {
        let door = &shared.doors[usize::from(worker)];
        match (dial(shared, &address, worker, node, lack), lack, node) {
            (Ok(link), ..) => {
                if node.is_none() {
                    node = Some(link.node);
                    lock(&shared.peers).insert(link.node, Arc::clone(peer));
                }
                peer.done(worker, lack);
                door.push(Arrival::Link(link));
                pause = first;
                last_error.clear();
            }
            (Err(e), Lack::Connection(number), Some(node)) if is_refused(&e) => {
                log::line(format!("node {}: node {node} is not there any more: {e}", shared.config.node));
                peer.done(worker, lack);
                door.push(Arrival::Refused { node, number });
            }
            (Err(e), ..) => {
                let error = e.to_string();
                if error != last_error {
                    log::line(format!("node {}: no link to {address} yet: {error}", shared.config.node));
                    last_error = error;
                }
                if matches!(lack, Lack::Connection(_)) {
                    peer.pause(RESUME_PAUSE_MS);
                } else {
                    peer.pause(pause);
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }
}

/// The process that was there is not: nobody listens, or somebody else does, or somebody who does not let us in.
fn is_refused(error: &io::Error) -> bool {
    let failure = || error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>());
    error.kind() == io::ErrorKind::ConnectionRefused
        || failure().is_some_and(|f| f.code != ErrorCode::ProtocolViolation)
}

fn dial(shared: &Shared, address: &str, worker: u8, expected: Option<NodeId>, lack: Lack) -> io::Result<NewLink> {
    let (number, connect_ms, hello_ms) = match lack {
        Lack::Connection(number) => (number, RESUME_CONNECT_TIMEOUT_MS, RESUME_HELLO_TIMEOUT_MS),
        Lack::Nothing | Lack::Link => (0, CONNECT_TIMEOUT_MS, HELLO_TIMEOUT_MS),
    };
    let mut stream = connect_any(address, connect_ms)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(hello_ms)))?;
    stream.set_write_timeout(Some(Duration::from_millis(hello_ms)))?;
    let own = shared.config.node;
    let request = Hello {
        role: role_of(own) as i32,
        node: u32::from(own.0),
        incarnation: shared.incarnation,
        cluster: shared.cluster.load(Ordering::Relaxed),
        peer: expected.map_or(0, |n| u32::from(n.0)),
        // A management node has no other worker than its first.
        worker: if expected.is_none_or(NodeId::may_arbitrate) { 0 } else { u32::from(worker) },
        workers: u32::from(shared.config.workers),
        name: shared.config.build.clone(),
        number,
        ..Hello::default()
    };
    let mut nonce = [0; apus_auth::NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|e| io::Error::other(format!("no entropy: {e}")))?;
    let (mut connector, out) = Connector::new(request, &shared.config.keys.node, nonce);
    stream.write_all(&out)?;
    let answer = greet(&mut stream, &mut connector)?;
    let node = member_id(&answer).ok_or_else(|| io::Error::other("the peer is no member"))?;
    if node.is_data() && own.is_data() && answer.workers != u32::from(shared.config.workers) {
        return Err(io::Error::other(format!("node {node} has {} workers", answer.workers)));
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nonblocking(true)?;
    Ok(NewLink { stream, node, offer: Offer { incarnation: answer.incarnation, number, dialled: true } })
}

fn connect_any(address: &str, timeout_ms: u64) -> io::Result<TcpStream> {
    let mut failed: Option<io::Error> = None;
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, Duration::from_millis(timeout_ms)) {
            Ok(stream) => return Ok(stream),
            // The node is refused where all of its addresses refuse: it may be behind the one that does not answer.
            Err(e) if failed.as_ref().is_none_or(|f| f.kind() == io::ErrorKind::ConnectionRefused) => failed = Some(e),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// Reads nothing beyond the hello: what follows is the worker's.
fn greet(stream: &mut TcpStream, connector: &mut Connector) -> io::Result<Hello> {
    let mut bytes = [0u8; ENVELOPE_BYTES + HELLO_BYTES_MAX];
    loop {
        let missing = connector.missing().min(bytes.len());
        let got = stream.read(&mut bytes[..missing])?;
        if got == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer closed the connection during the hello",
            ));
        }
        match connector.take(&bytes[..got]).map_err(io::Error::other)? {
            Progress::More => {}
            Progress::Send(out) => stream.write_all(&out)?,
            Progress::Done(hello) => return Ok(hello),
        }
    }
}

//! Links that this node makes: to data nodes with lower ids, to management nodes.
//!
//! Each peer has a thread that sleeps until a worker lacks its link, so that resolving a name or waiting for a dead host holds
//! up nobody else. It dials, says hello, hands the socket to the worker, and tries again with a growing pause.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use apus_auth::{Connector, Progress, member_id, role_of};
use apus_signal::{
    envelope::ENVELOPE_BYTES,
    hello::{HELLO_BYTES_MAX, Hello},
};
use apus_types::NodeId;

use crate::{
    config::{CONNECT_TIMEOUT_MS, HELLO_TIMEOUT_MS, REDIAL_MS},
    crash, log,
    shared::{NewLink, Shared, lock},
};

struct Wanted {
    address: String,
    /// Lacks its link, by worker from `first` on.
    missing: Vec<bool>,
    first: u8,
}

impl Wanted {
    fn set_missing(&mut self, worker: u8, is_missing: bool) {
        let place = worker.checked_sub(self.first).map(usize::from);
        if let Some(missing) = place.and_then(|p| self.missing.get_mut(p)) {
            *missing = is_missing;
        }
    }
}

/// A node that is dialled.
pub struct Peer {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Peer {
    /// To be linked with from so many workers, beginning with `first`.
    fn new(address: &str, first: u8, links: u8) -> Peer {
        let wanted = Wanted { address: address.to_owned(), missing: vec![true; usize::from(links)], first };
        Peer { wanted: Mutex::new(wanted), changed: Condvar::new() }
    }
    /// The worker's link ended.
    pub fn redial(&self, worker: u8) {
        lock(&self.wanted).set_missing(worker, true);
        self.changed.notify_all();
    }
    pub fn notify(&self) {
        self.changed.notify_all();
    }
    /// Waits until a link is missing.
    fn next(&self, shared: &Shared) -> Option<(u8, String)> {
        let mut wanted = lock(&self.wanted);
        while !shared.is_stopping() {
            if let Some(worker) = wanted.missing.iter().position(|&missing| missing) {
                return Some((worker as u8 + wanted.first, wanted.address.clone()));
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

/// Keeps links to `node` from now on. Nodes that dial us are left alone.
pub fn connect(shared: &Arc<Shared>, node: NodeId, address: &str) {
    let own = shared.config.node;
    if node == own || node.is_client() || (node.is_data() && own.is_data() && node > own) {
        return;
    }
    let (first, links) =
        if node.is_data() && own.is_data() { (0, shared.config.places()) } else { (shared.config.control_place(), 1) };
    let mut peers = lock(&shared.peers);
    if let Some(peer) = peers.get(&node) {
        address.clone_into(&mut lock(&peer.wanted).address);
        peer.notify();
        return;
    }
    let peer = Arc::new(Peer::new(address, first, links));
    peers.insert(node, Arc::clone(&peer));
    drop(peers);
    spawn(shared, peer, Some(node));
}

/// Keeps a link to a management node whose id its hello will tell.
pub fn connect_mgmt(shared: &Arc<Shared>, address: &str) {
    spawn(shared, Arc::new(Peer::new(address, shared.config.control_place(), 1)), None);
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
    while let Some((worker, address)) = peer.next(shared) {
        match dial(shared, &address, worker, node) {
            Ok(link) => {
                if node.is_none() {
                    node = Some(link.node);
                    lock(&shared.peers).insert(link.node, Arc::clone(peer));
                }
                lock(&peer.wanted).set_missing(worker, false);
                shared.doors[usize::from(worker)].push_link(link);
                pause = first;
                last_error.clear();
            }
            Err(e) => {
                let error = e.to_string();
                if error != last_error {
                    log::line(format!("node {}: no link to {address} yet: {error}", shared.config.node));
                    last_error = error;
                }
                peer.pause(pause);
                pause = (pause * 2).min(longest);
            }
        }
    }
}

fn dial(shared: &Shared, address: &str, worker: u8, expected: Option<NodeId>) -> io::Result<NewLink> {
    let mut stream = connect_any(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(HELLO_TIMEOUT_MS)))?;
    stream.set_write_timeout(Some(Duration::from_millis(HELLO_TIMEOUT_MS)))?;
    let own = shared.config.node;
    let request = Hello {
        role: role_of(own) as i32,
        node: u32::from(own.0),
        incarnation: shared.incarnation,
        cluster: shared.cluster.load(Ordering::Relaxed),
        peer: expected.map_or(0, |n| u32::from(n.0)),
        // A management node has no other worker than its first.
        worker: if expected.is_none_or(NodeId::is_mgmt) { 0 } else { u32::from(worker) },
        workers: u32::from(shared.config.workers),
        name: shared.config.build.clone(),
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
    Ok(NewLink { stream, node, incarnation: answer.incarnation })
}

fn connect_any(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, Duration::from_millis(CONNECT_TIMEOUT_MS)) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
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

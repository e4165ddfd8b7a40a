//! Accepting connections and hearing their hellos, in a thread of its own: a stranger takes no time from a worker.
//!
//! Nothing but the frames of the hello is read here, and a worker never sees a connection whose other side has not proven itself.
//! Strangers are many and cheap, so that what they can take is bounded: [`HELLOS_MAX`] connections at once, each for
//! [`HELLO_TIMEOUT_MS`]. When all places are taken a newcomer gets that of the oldest connection of the address that holds most of them:
//! whoever opens thousands pushes out his own. The log gets a line for the first few, and then a count.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use apus_auth::{Acceptor, Failure, Progress, member_id, role_of};
use apus_kernel::Offer;
use apus_signal::{
    envelope::ENVELOPE_BYTES,
    hello::{HELLO_BYTES_MAX, Hello, Role},
};
use apus_types::{ErrorCode, NodeId};

use crate::{
    config::{ACCEPTS_PER_ROUND, HELLO_TIMEOUT_MS, HELLOS_MAX},
    log,
    poll::{Interest, Poll, Ready},
    quiet::Quiet,
    shared::{Arrival, NewLink, Shared, lock},
};

const LISTENER_TOKEN: u64 = u64::MAX;
const WAKER_TOKEN: u64 = u64::MAX - 1;
/// While hellos are pending or file descriptors ran out, the thread looks again after this long.
const RECHECK_NS: u64 = 100_000_000;

struct Pending {
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Acceptor,
    deadline: Instant,
    /// Grows with every connection: the lowest is the oldest.
    number: u64,
}

pub struct Hellos {
    shared: Arc<Shared>,
    listener: TcpListener,
    poll: Poll,
    pending: Vec<Option<Pending>>,
    /// How many of `pending` each address has.
    by_address: BTreeMap<IpAddr, usize>,
    accepted: u64,
    quiet: Quiet,
}

impl Hellos {
    pub fn new(shared: Arc<Shared>, listener: TcpListener) -> io::Result<Hellos> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER_TOKEN, Interest::READ)?;
        poll.add(shared.listener_waker.fd(), WAKER_TOKEN, Interest::READ)?;
        let (pending, by_address) = ((0..HELLOS_MAX).map(|_| None).collect(), BTreeMap::new());
        Ok(Hellos { shared, listener, poll, pending, by_address, accepted: 0, quiet: Quiet::default() })
    }

    pub fn run(&mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.shared.is_stopping() {
            let waits = !self.by_address.is_empty() || self.quiet.has_more();
            self.poll.wait(waits.then_some(RECHECK_NS), &mut ready)?;
            for event in &ready {
                match event.token {
                    LISTENER_TOKEN => self.accept(),
                    WAKER_TOKEN => self.shared.listener_waker.drain(),
                    token => self.hear(token),
                }
            }
            self.expire();
            let node = self.shared.config.node;
            self.quiet.flush(Instant::now(), |more| log::line(format!("node {node}: refused {more} more connections")));
        }
        Ok(())
    }

    /// Few at a time, so that those who are accepted are heard in between.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_ROUND {
            match self.listener.accept() {
                Ok((stream, address)) => self.begin(stream, address),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    // Out of file descriptors or memory: a stranger gives way, and if there is none, workers may close some.
                    if !self.make_room() {
                        log::line(format!("node {}: cannot accept a connection: {e}", self.shared.config.node));
                        std::thread::sleep(Duration::from_nanos(RECHECK_NS));
                    }
                    return;
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.pending.iter().all(Option::is_some) {
            self.make_room();
        }
        let Some(slot) = self.pending.iter().position(Option::is_none) else { return };
        let mut nonce = [0; apus_auth::NONCE_BYTES];
        let number = self.accepted;
        self.accepted += 1;
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok()
            && getrandom::fill(&mut nonce).is_ok()
            && self.poll.add(&stream, token_of(slot, number), Interest::READ).is_ok();
        if !set_up {
            self.refused(address, "it could not be set up");
            return;
        }
        let acceptor = Acceptor::new(self.own_hello(), &self.shared.config.keys, nonce);
        let deadline = Instant::now() + Duration::from_millis(HELLO_TIMEOUT_MS);
        self.pending[slot] = Some(Pending { stream, address, acceptor, deadline, number });
        *self.by_address.entry(address.ip()).or_default() += 1;
    }

    fn own_hello(&self) -> Hello {
        let own = &self.shared.config;
        Hello {
            role: role_of(own.node) as i32,
            node: u32::from(own.node.0),
            incarnation: self.shared.incarnation,
            cluster: self.shared.cluster.load(Ordering::Relaxed),
            workers: u32::from(own.workers),
            name: own.build.clone(),
            ..Hello::default()
        }
    }

    /// Closes the oldest connection of the address that has most. False: there is none.
    fn make_room(&mut self) -> bool {
        let Some(address) = self.by_address.iter().max_by_key(|(_, count)| **count).map(|(a, _)| *a) else {
            return false;
        };
        let of_it = |p: &&Pending| p.address.ip() == address;
        let oldest = self.pending.iter().flatten().filter(of_it).map(|p| p.number).min();
        let slot = self.pending.iter().position(|p| p.as_ref().map(|p| p.number) == oldest);
        let Some(pending) = slot.and_then(|slot| self.take(slot)) else { return false };
        self.refused(pending.address, "too many connections have not proven themselves");
        true
    }

    fn take(&mut self, slot: usize) -> Option<Pending> {
        let pending = self.pending.get_mut(slot)?.take()?;
        if let Some(count) = self.by_address.get_mut(&pending.address.ip()) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&pending.address.ip());
            }
        }
        Some(pending)
    }

    fn refused(&mut self, address: SocketAddr, why: impl std::fmt::Display) {
        self.shared.refused_hellos.fetch_add(1, Ordering::Relaxed);
        if self.quiet.may_say(Instant::now()) {
            log::line(format!("node {}: refused a connection from {address}: {why}", self.shared.config.node));
        }
    }

    fn hear(&mut self, token: u64) {
        let slot = token as usize % HELLOS_MAX;
        let Some(Some(pending)) = self.pending.get_mut(slot) else { return };
        if token_of(slot, pending.number) != token {
            return; // of a connection that had this place before
        }
        let heard = match read_some(pending) {
            Ok(None) => return,
            Ok(Some(hello)) => Ok(hello),
            Err(failure) => Err(failure),
        };
        let Some(Pending { stream, address, acceptor, .. }) = self.take(slot) else { return };
        let judged = heard.and_then(|hello| self.judge(&hello).map(|(node, worker)| (hello, node, worker)));
        match judged {
            Ok((hello, node, worker)) => {
                if !self.welcome(stream, &acceptor, &hello, node, worker) {
                    self.refused(address, "it closed the connection");
                }
            }
            Err(failure) => {
                if failure.code != ErrorCode::ProtocolViolation {
                    let _ = (&stream).write(&Acceptor::refusal(&failure));
                }
                self.refused(address, failure);
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        for slot in 0..self.pending.len() {
            if self.pending[slot].as_ref().is_some_and(|p| p.deadline <= now)
                && let Some(pending) = self.take(slot)
            {
                self.refused(pending.address, format_args!("it did not prove itself within {HELLO_TIMEOUT_MS} ms"));
            }
        }
    }

    /// Which node this is and which worker gets it, or why not. All of it is proven.
    fn judge(&self, hello: &Hello) -> Result<(NodeId, usize), Failure> {
        let no = |detail: String| Err(Failure::new(ErrorCode::NotSupported, detail));
        let own = &self.shared.config;
        let cluster = self.shared.cluster.load(Ordering::Relaxed);
        if hello.peer != 0 && hello.peer != u32::from(own.node.0) {
            return no(format!("this is node {}, not {}", own.node, hello.peer));
        }
        if cluster != 0 && hello.cluster != 0 && hello.cluster != cluster {
            return Err(Failure::new(ErrorCode::WrongCluster, format!("this node belongs to {cluster:016x}")));
        }
        if let Ok(role @ (Role::Client | Role::Operator)) = Role::try_from(hello.role) {
            let node = lock(&self.shared.client_ids).take(role == Role::Operator);
            let node = node.ok_or_else(|| Failure::new(ErrorCode::Overload, "too many clients"))?;
            return Ok((node, usize::from(node.0 - NodeId::CLIENT_BASE) % usize::from(own.workers)));
        }
        let Some(node) = member_id(hello) else { return no(format!("node id {} does not fit its role", hello.node)) };
        if node == own.node {
            return no(format!("node {node} runs here already"));
        }
        let worker = usize::try_from(hello.worker).unwrap_or(usize::MAX);
        if node.is_data() && own.node.is_data() {
            if cluster == 0 || hello.cluster == 0 {
                return no("one of us does not know its cluster yet".to_owned());
            }
            if node < own.node && hello.number == 0 {
                return no("the node with the higher id begins a link".to_owned());
            }
            if hello.workers != u32::from(own.workers) {
                return no(format!("all data nodes have {} workers, not {}", own.workers, hello.workers));
            }
            return if worker < usize::from(own.places()) {
                Ok((node, worker))
            } else {
                no(format!("no worker {worker}"))
            };
        }
        if worker != 0 {
            return no("there is one link to a management node, and it has the number 0".to_owned());
        }
        Ok((node, usize::from(own.control_place())))
    }

    fn welcome(&self, stream: TcpStream, acceptor: &Acceptor, hello: &Hello, node: NodeId, worker: usize) -> bool {
        let bytes = acceptor.admit(node, worker as u8);
        // The socket is fresh: its buffer takes these few bytes at once or the peer is gone. The worker's epoll takes over.
        let sent = (&stream).write(&bytes).is_ok_and(|n| n == bytes.len()) && self.poll.remove(&stream).is_ok();
        if sent {
            let offer = Offer { incarnation: hello.incarnation, number: hello.number, dialled: false };
            self.shared.doors[worker].push(Arrival::Link(NewLink { stream, node, offer }));
        } else if node.is_client() {
            lock(&self.shared.client_ids).give_back(node);
        }
        sent
    }
}

/// Of a connection in `slot`, different from those before it there.
fn token_of(slot: usize, number: u64) -> u64 {
    (number % (1 << 40)) * HELLOS_MAX as u64 + slot as u64
}

/// Reads what has come of the hello and answers it. `Some`: the other side has proven this hello.
fn read_some(pending: &mut Pending) -> Result<Option<Hello>, Failure> {
    let ended = || Failure::new(ErrorCode::ProtocolViolation, "it left before it had proven itself");
    let mut buffer = [0u8; ENVELOPE_BYTES + HELLO_BYTES_MAX];
    loop {
        let missing = pending.acceptor.missing().min(buffer.len());
        let got = match pending.stream.read(&mut buffer[..missing]) {
            Ok(0) => return Err(ended()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Err(ended()),
        };
        match pending.acceptor.take(&buffer[..got])? {
            Progress::More => {}
            // As with the last answer: the buffer of a fresh socket takes it at once.
            Progress::Send(out) => {
                if !pending.stream.write(&out).is_ok_and(|n| n == out.len()) {
                    return Err(ended());
                }
            }
            Progress::Done(hello) => return Ok(Some(hello)),
        }
    }
}

//! Accepting connections and hearing their hellos, in a thread of its own: a stranger takes no time from a worker.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use apus_signal::{
    Kind,
    hello::{Hello, MAGIC, Role},
};
use apus_types::NodeId;

use crate::{
    config::{HELLO_TIMEOUT_MS, HELLOS_MAX},
    hello::{self, First},
    log,
    poll::{Interest, Poll, Ready},
    shared::{NewLink, Shared, lock},
};

const LISTENER_TOKEN: u64 = u64::MAX;
const WAKER_TOKEN: u64 = u64::MAX - 1;
/// While hellos are pending or file descriptors ran out, the thread looks again after this long.
const RECHECK_NS: u64 = 100_000_000;

struct Pending {
    stream: TcpStream,
    bytes: Vec<u8>,
    deadline: Instant,
}

enum Progress {
    More,
    Said(First),
    Ended,
}

pub struct Hellos {
    shared: Arc<Shared>,
    listener: TcpListener,
    poll: Poll,
    pending: Vec<Option<Pending>>,
}

impl Hellos {
    pub fn new(shared: Arc<Shared>, listener: TcpListener) -> io::Result<Hellos> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER_TOKEN, Interest::READ)?;
        poll.add(shared.listener_waker.fd(), WAKER_TOKEN, Interest::READ)?;
        Ok(Hellos { shared, listener, poll, pending: Vec::new() })
    }

    pub fn run(&mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.shared.is_stopping() {
            let timeout = self.pending.iter().any(Option::is_some).then_some(RECHECK_NS);
            self.poll.wait(timeout, &mut ready)?;
            for event in &ready {
                match event.token {
                    LISTENER_TOKEN => self.accept(),
                    WAKER_TOKEN => self.shared.listener_waker.drain(),
                    slot => self.hear(slot as usize),
                }
            }
            self.expire();
        }
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.begin(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    // Out of file descriptors or memory: let workers close some instead of asking again at once.
                    log::line(format!("node {}: cannot accept a connection: {e}", self.shared.config.node));
                    std::thread::sleep(Duration::from_nanos(RECHECK_NS));
                    return;
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        let slot = self.pending.iter().position(Option::is_none).unwrap_or(self.pending.len());
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        if slot >= HELLOS_MAX || set_up.is_err() || self.poll.add(&stream, slot as u64, Interest::READ).is_err() {
            self.shared.refused_hellos.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let deadline = Instant::now() + Duration::from_millis(HELLO_TIMEOUT_MS);
        let pending = Some(Pending { stream, bytes: Vec::new(), deadline });
        match self.pending.get_mut(slot) {
            Some(free) => *free = pending,
            None => self.pending.push(pending),
        }
    }

    fn hear(&mut self, slot: usize) {
        let Some(Some(pending)) = self.pending.get_mut(slot) else { return };
        let progress = read_some(pending);
        if matches!(progress, Progress::More) {
            return;
        }
        let Some(Pending { stream, .. }) = self.pending.get_mut(slot).and_then(Option::take) else { return };
        let welcomed = match progress {
            Progress::Said(First::Req(hello)) => match self.judge(&hello) {
                Ok((node, worker)) => self.welcome(stream, &hello, node, worker),
                Err(reason) => {
                    let _ = (&stream).write(&hello::encode_refusal(self.shared.config.node, &reason));
                    false
                }
            },
            _ => false,
        };
        if !welcomed {
            self.shared.refused_hellos.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        for pending in &mut self.pending {
            if pending.as_ref().is_some_and(|p| p.deadline <= now) {
                *pending = None;
                self.shared.refused_hellos.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Which node this is and which worker gets it, or why not.
    fn judge(&self, hello: &Hello) -> Result<(NodeId, usize), String> {
        let own = &self.shared.config;
        let cluster = self.shared.cluster.load(Ordering::Relaxed);
        if hello.peer != 0 && hello.peer != u32::from(own.node.0) {
            return Err(format!("this is node {}, not {}", own.node, hello.peer));
        }
        if cluster != 0 && hello.cluster != 0 && hello.cluster != cluster {
            return Err("this node belongs to another cluster".to_owned());
        }
        if hello.role() == Role::Client {
            let node = lock(&self.shared.client_ids).take().ok_or("too many clients")?;
            return Ok((node, usize::from(node.0 - NodeId::CLIENT_BASE) % usize::from(own.workers)));
        }
        let node = hello::member_id(hello).ok_or_else(|| format!("node id {} does not fit its role", hello.node))?;
        if node == own.node {
            return Err(format!("node {node} runs here already"));
        }
        let worker = usize::try_from(hello.worker).unwrap_or(usize::MAX);
        if node.is_data() && own.node.is_data() {
            if cluster == 0 {
                return Err("this node does not know its cluster yet".to_owned());
            }
            if node < own.node {
                return Err("the node with the higher id dials".to_owned());
            }
            if hello.workers != u32::from(own.workers) {
                return Err(format!("all data nodes have {} workers, not {}", own.workers, hello.workers));
            }
            if worker >= usize::from(own.places()) {
                return Err(format!("no worker {worker}"));
            }
            return Ok((node, worker));
        }
        if worker != 0 {
            return Err("there is one link to a management node, and it has the number 0".to_owned());
        }
        Ok((node, usize::from(own.control_place())))
    }

    fn welcome(&self, stream: TcpStream, request: &Hello, node: NodeId, worker: usize) -> bool {
        let own = &self.shared.config;
        let answer = Hello {
            magic: MAGIC,
            role: hello::role_of(own.node) as i32,
            node: u32::from(own.node.0),
            incarnation: self.shared.incarnation,
            cluster: self.shared.cluster.load(Ordering::Relaxed),
            peer: u32::from(node.0),
            worker: worker as u32,
            workers: u32::from(own.workers),
            name: own.build.clone(),
        };
        let bytes = hello::encode(Kind::HelloConf, own.node, &answer);
        // The socket is fresh: its buffer takes these few bytes at once or the peer is gone. The worker's epoll takes over.
        let sent = (&stream).write(&bytes).is_ok_and(|n| n == bytes.len()) && self.poll.remove(&stream).is_ok();
        if sent {
            let incarnation = request.incarnation;
            self.shared.doors[worker].push_link(NewLink { stream, node, incarnation });
        } else if node.is_client() {
            lock(&self.shared.client_ids).give_back(node);
        }
        sent
    }
}

fn read_some(pending: &mut Pending) -> Progress {
    loop {
        let Ok(missing) = hello::missing_bytes(&pending.bytes) else { return Progress::Ended };
        if missing == 0 {
            return hello::decode(&pending.bytes).map_or(Progress::Ended, Progress::Said);
        }
        let have = pending.bytes.len();
        pending.bytes.resize(have + missing, 0);
        let got = pending.stream.read(&mut pending.bytes[have..]);
        pending.bytes.truncate(have + got.as_ref().map_or(0, |&n| n));
        match got {
            Ok(0) => return Progress::Ended,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Progress::More,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Progress::Ended,
        }
    }
}

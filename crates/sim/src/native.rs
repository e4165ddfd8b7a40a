//! A native client as an actor: its driver, a clock for its tasks, and the tasks themselves.
//!
//! The client library is the real one ([`apus_client`]); only the driver is ours. The hello of a link is answered here, as the executor
//! of a real node does it before blocks see anything, and without its proof.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use apus_client::{Action, Client, ConnId, Driver};
use apus_signal::hello::{Hello, MAGIC, Role};
use apus_types::NodeId;

use crate::{Actor, ActorOutput, Welcome, parse_address};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Nobody thinks for longer because nothing happens: what happens next finds everybody at work.
const THOUGHT_MAX_NS: u64 = 100_000_000;

/// The virtual time as tasks of one client see it.
#[derive(Clone, Default)]
pub struct Clock {
    now: Rc<Cell<u64>>,
    /// How many times longer all think ([`Clock::think`]); 0: not longer.
    calm: Rc<Cell<u64>>,
    sleepers: Rc<RefCell<Vec<(u64, Waker)>>>,
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.now.get()
    }
    /// From now on those who think do so for `factor` times as long, up to [`THOUGHT_MAX_NS`]; 0 and 1: as long as they say.
    pub fn set_calm(&self, factor: u64) {
        self.calm.set(factor);
    }
    /// The time between two things that somebody does: it is long where nothing happens to the cluster.
    pub async fn think(&self, nanoseconds: u64) {
        let long = nanoseconds.saturating_mul(self.calm.get().max(1)).min(THOUGHT_MAX_NS);
        self.sleep(long.max(nanoseconds)).await;
    }
    pub async fn sleep(&self, nanoseconds: u64) {
        let until = self.now() + nanoseconds;
        poll_fn(|cx| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            self.sleepers.borrow_mut().push((until, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
    fn set(&self, now: u64) {
        self.now.set(now);
        self.sleepers.borrow_mut().retain(|(until, waker)| {
            let is_due = *until <= now;
            if is_due {
                waker.wake_by_ref();
            }
            !is_due
        });
    }
    fn next(&self) -> u64 {
        self.sleepers.borrow().iter().map(|(until, _)| *until).min().unwrap_or(u64::MAX)
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum LinkPhase {
    Dialling,
    Open,
    /// Closed by the client, the network does not know it yet.
    Closing,
}

struct NodeLink {
    conn: ConnId,
    phase: LinkPhase,
}

/// A client and its tasks.
pub struct NativeClient {
    driver: Driver,
    /// As its transactions name it.
    identity: u64,
    clock: Clock,
    tasks: Vec<(Option<Task>, Arc<Flag>)>,
    links: BTreeMap<NodeId, NodeLink>,
}

impl NativeClient {
    /// Keeps no handle: when all tasks (and other holders of `client`) are gone, its links close.
    pub fn new(client: &Client, clock: Clock) -> NativeClient {
        NativeClient {
            driver: client.driver(),
            identity: client.id(),
            clock,
            tasks: Vec::new(),
            links: BTreeMap::new(),
        }
    }
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.tasks.push((Some(Box::pin(task)), Arc::new(Flag(AtomicBool::new(true)))));
    }

    /// Polls and moves bytes until nothing more can happen at this moment.
    fn pump(&mut self, now: u64, out: &mut ActorOutput) {
        self.clock.set(now);
        let deadline = loop {
            let deadline = self.driver.tick(now);
            let polled = self.poll_tasks();
            let acted = self.carry_out(out);
            if !polled && !acted {
                break deadline;
            }
        };
        let next = deadline.min(self.clock.next());
        if next != u64::MAX {
            out.wake_at(next.max(now + 1));
        }
    }
    fn poll_tasks(&mut self) -> bool {
        let mut polled = false;
        for (slot, flag) in &mut self.tasks {
            let Some(task) = slot else { continue };
            if flag.0.swap(false, Ordering::Relaxed) {
                polled = true;
                let waker = Waker::from(flag.clone());
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    *slot = None;
                }
            }
        }
        polled
    }
    fn carry_out(&mut self, out: &mut ActorOutput) -> bool {
        let mut acted = false;
        while let Some(action) = self.driver.next_action() {
            acted = true;
            match action {
                Action::Connect { conn, address } => self.connect(conn, &address, out),
                Action::Close { conn } => self.close(conn, out),
            }
        }
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        for node in nodes {
            acted |= self.write(node, out);
        }
        acted
    }
    fn connect(&mut self, conn: ConnId, address: &str, out: &mut ActorOutput) {
        match parse_address(address) {
            Some((node, incarnation)) if !self.links.contains_key(&node) => {
                self.links.insert(node, NodeLink { conn, phase: LinkPhase::Dialling });
                out.connect(node, incarnation);
            }
            _ => self.driver.closed(conn),
        }
    }
    fn close(&mut self, conn: ConnId, out: &mut ActorOutput) {
        if let Some((&node, link)) = self.links.iter_mut().find(|(_, link)| link.conn == conn) {
            link.phase = LinkPhase::Closing;
            out.disconnect(node);
        }
    }
    fn write(&mut self, node: NodeId, out: &mut ActorOutput) -> bool {
        let Some(link) = self.links.get_mut(&node) else { return false };
        let mut bytes = Vec::new();
        match &mut link.phase {
            LinkPhase::Dialling | LinkPhase::Closing => return false,
            LinkPhase::Open => match self.driver.take_output(link.conn, &mut bytes) {
                Some(true) => out.send(node, bytes),
                Some(false) => return false,
                None => {
                    link.phase = LinkPhase::Closing;
                    out.disconnect(node);
                }
            },
        }
        true
    }
}

/// What a real node proves of itself; who may say it is not simulated.
fn hello_answer(node: NodeId, welcome: &Welcome) -> Hello {
    let role = if node.is_mgmt() { Role::Mgmt } else { Role::Data };
    Hello {
        magic: MAGIC,
        role: role as i32,
        node: u32::from(node.0),
        incarnation: welcome.incarnation,
        cluster: welcome.cluster,
        peer: u32::from(welcome.own.0),
        workers: u32::from(welcome.instances),
        ..Hello::default()
    }
}

impl Actor for NativeClient {
    fn identity(&self) -> u64 {
        self.identity
    }
    fn wake(&mut self, now_ns: u64, out: &mut ActorOutput) {
        self.pump(now_ns, out);
    }
    fn link_up(&mut self, now_ns: u64, node: NodeId, welcome: Welcome, out: &mut ActorOutput) {
        if let Some(link) = self.links.get_mut(&node) {
            let conn = link.conn;
            let is_wanted = matches!(link.phase, LinkPhase::Dialling) && self.driver.opened(conn).is_some();
            if is_wanted && self.driver.admitted(conn, &hello_answer(node, &welcome)) {
                link.phase = LinkPhase::Open;
            } else {
                link.phase = LinkPhase::Closing;
                out.disconnect(node);
            }
        }
        self.pump(now_ns, out);
    }
    fn link_down(&mut self, now_ns: u64, node: NodeId, out: &mut ActorOutput) {
        if let Some(link) = self.links.remove(&node) {
            self.driver.closed(link.conn);
        }
        self.pump(now_ns, out);
    }
    fn receive(&mut self, now_ns: u64, node: NodeId, bytes: &[u8], out: &mut ActorOutput) {
        if let Some(link) = self.links.get_mut(&node)
            && !matches!(link.phase, LinkPhase::Closing)
            && !self.driver.received(link.conn, bytes)
        {
            link.phase = LinkPhase::Closing;
            out.disconnect(node);
        }
        self.pump(now_ns, out);
    }
}

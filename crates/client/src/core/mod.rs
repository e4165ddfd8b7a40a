//! The client without I/O: links, hello, requests in flight, routing. Bytes in, wakes and bytes out.
//!
//! Nothing here opens a socket or reads a clock. A driver ([`crate::Driver`]: the tokio shell, a simulator, a test) carries out the
//! [`Action`]s, brings the bytes and tells the time; the operations of [`crate::Client`] are futures over this state that
//! need no particular executor.
//!
//! Guarantees: a request on a link that is lost ends at once; a request ends at its deadline; an answer to a request nobody waits
//! for is ignored; bytes that do not follow the protocol close the link they came from and nothing else.
//!
//! Limits: `max_in_flight` requests, [`link::OUT_BYTES_MAX`] unsent bytes per link (callers wait), [`LINKS_MAX`] links, one incomplete
//! frame per link of at most a signal's size.

pub(crate) mod link;
mod maintain;
mod needed;
mod receive;
pub(crate) mod route;
pub(crate) mod table;

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    task::{Context, Waker},
};

use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    hello::{Hello, MAGIC, Role},
    view::{NodeState, View},
};
use apus_types::{Epoch, NodeId, TransId};

pub use link::ConnId;
use link::{Link, LinkState};
use needed::Needed;
use route::Route;
use table::{RequestId, RequestTable};

use crate::{config::ClientConfig, retry::FROZEN_NS};

/// Most links: every possible data node, and seeds.
pub(crate) const LINKS_MAX: usize = 512;
const NO_LINK: u16 = u16::MAX;
const MS: u64 = 1_000_000;
/// Requests are looked through for passed deadlines this often, in nanoseconds.
const EXPIRE_EVERY_NS: u64 = 50 * MS;
/// That a node said that it is frozen holds for so long, in nanoseconds.
const FROZEN_HEARD_NS: u64 = 500 * MS;

/// What the driver shall do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect to `address` (`host:port`); then `opened` or `closed`.
    Connect { conn: ConnId, address: String },
    /// Close it; no further call is needed.
    Close { conn: ConnId },
}

/// Counters for people and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    pub requests: u64,
    pub answers: u64,
    /// Links closed because of bytes that do not follow the protocol.
    pub violations: u64,
    pub links_lost: u64,
    /// Answers of nodes that had no place in the view any more.
    pub outdated: u64,
    pub maps: u64,
    pub timeouts: u64,
}

pub(crate) struct Core {
    pub config: ClientConfig,
    pub now: u64,
    epoch: Epoch,
    /// Of the newest view in which a batch was answered: of the locks that we hold.
    generation: u32,
    needed: Needed,
    /// The floor that all linked nodes were told, and when the next one is due.
    told_floor: u64,
    next_floor: u64,
    random: u64,
    pub view: Rc<View>,
    pub schema_version: u64,
    /// See [`Core::takes_turn`].
    is_turn: bool,
    /// The cluster that we belong to; 0: not known yet. Hosts are shared and ports come back: whoever belongs to another one is left
    /// alone. While no data node is linked the cluster may have been set up anew, and a seed is believed.
    cluster: u64,
    /// All links were lost since the map came: the next map is taken whatever its generation.
    map_stale: bool,
    routes: Vec<Route>,
    links: Vec<Link>,
    node_links: [u16; 256],
    /// Of each node's process whose link was lost last.
    lost_incarnations: [u64; 256],
    /// Processes that maps said were told to end, the last ones.
    left: VecDeque<(NodeId, u64)>,
    /// Transactions in the midst of which a node panicked, the last ones.
    killers: VecDeque<TransId>,
    pub table: RequestTable,
    actions: VecDeque<Action>,
    driver: Option<Waker>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    next_maintain: u64,
    next_expire: u64,
    changed: Vec<Waker>,
    /// Changes of the map or of the links so far.
    pub changes: u64,
    room: Vec<Waker>,
    pub counters: Counters,
    /// Why the last link was refused, for the error of a connect that finds nobody.
    pub last_refusal: String,
}

impl Core {
    pub fn new(config: ClientConfig) -> Core {
        let seeds = config.seeds.iter().take(LINKS_MAX / 2);
        Core {
            links: seeds.map(|address| Link::new(address.clone(), None, true)).collect(),
            table: RequestTable::new(config.max_in_flight),
            now: 0,
            epoch: Epoch(0),
            generation: 0,
            needed: Needed::new(),
            told_floor: 0,
            next_floor: 0,
            random: config.client_id,
            view: Rc::new(View { instances: 1, ..View::default() }),
            schema_version: 0,
            is_turn: false,
            cluster: 0,
            map_stale: true,
            routes: Vec::new(),
            node_links: [NO_LINK; 256],
            lost_incarnations: [0; 256],
            left: VecDeque::new(),
            killers: VecDeque::new(),
            actions: VecDeque::new(),
            driver: None,
            timers: BTreeMap::new(),
            next_timer: 0,
            next_maintain: 0,
            next_expire: 0,
            changed: Vec::new(),
            changes: 0,
            room: Vec::new(),
            counters: Counters::default(),
            last_refusal: String::new(),
            config,
        }
    }

    // What operations ask for.

    pub fn next_trans(&mut self) -> TransId {
        TransId { client: self.config.client_id, seq: self.needed.begin() }
    }
    /// Nobody will ask this client what became of it.
    pub fn end_trans(&mut self, trans: TransId) {
        self.needed.end(trans.seq);
    }
    /// SplitMix64 from the client's id: jitter and tokens, nothing that must not be guessed.
    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// True every second time.
    pub fn takes_turn(&mut self) -> bool {
        self.is_turn = !self.is_turn;
        !self.is_turn
    }
    #[inline]
    pub fn route(&self, partition: apus_types::PartitionId) -> Route {
        self.routes.get(usize::from(partition.0)).copied().unwrap_or_default()
    }
    pub fn other_replica(&self, partition: apus_types::PartitionId, attempt: u32) -> u8 {
        route::other_replica(&self.view, partition, attempt, |n| self.is_linked(n))
    }
    /// A map is known and at least one data node is linked.
    pub fn is_serving(&self) -> bool {
        !self.routes.is_empty() && self.linked_nodes().next().is_some()
    }
    pub fn is_linked(&self, node: NodeId) -> bool {
        self.node_links.get(usize::from(node.0)).is_some_and(|&l| l != NO_LINK)
    }
    /// Linked data nodes, by id.
    pub fn linked_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (1..=NodeId::DATA_MAX).map(NodeId).filter(|&n| self.is_linked(n))
    }
    pub fn incarnation(&self, node: NodeId) -> Option<u64> {
        let link = *self.node_links.get(usize::from(node.0)).filter(|&&l| l != NO_LINK)?;
        self.links.get(usize::from(link)).map(|l| l.incarnation)
    }
    /// Every full member of the map that is linked, one at least, has said for [`FROZEN_NS`] and just now that it is frozen.
    pub fn is_frozen(&self) -> bool {
        let full = self.linked_nodes().filter(|&n| self.view.state(n) == NodeState::Up);
        let mut said = full.map(|n| self.links[usize::from(self.node_links[usize::from(n.0)])].frozen).peekable();
        let long = |(since, last): (u64, u64)| self.now >= since + FROZEN_NS && self.now <= last + FROZEN_HEARD_NS;
        said.peek().is_some() && said.all(|frozen| frozen.is_some_and(long))
    }
    /// As above; where it is not, all are asked.
    pub fn looks_frozen(&mut self) -> bool {
        let is_frozen = self.is_frozen();
        if !is_frozen {
            self.refresh_map();
        }
        is_frozen
    }
    /// A node has said that it panics in the midst of this.
    pub fn has_killed(&self, trans: TransId) -> bool {
        self.killers.contains(&trans)
    }
    /// It was told to end, and did not die of what it executed.
    pub fn has_left(&self, node: NodeId, incarnation: u64) -> bool {
        self.left.contains(&(node, incarnation))
    }
    /// Of the process whose link was lost last.
    pub fn lost_incarnation(&self, node: NodeId) -> u64 {
        self.lost_incarnations[usize::from(node.0) & 0xff]
    }
    #[inline]
    pub fn has_room(&self, node: u8) -> bool {
        let link = self.node_links[usize::from(node)];
        let short = self.links.get(usize::from(link)).is_none_or(|l| l.out.len() < link::OUT_BYTES_MAX);
        short && !self.table.is_full()
    }
    pub fn wait_for_room(&mut self, cx: &Context<'_>) {
        self.room.push(cx.waker().clone());
    }
    pub fn wait_for_change(&mut self, cx: &Context<'_>) {
        self.changed.push(cx.waker().clone());
    }

    /// Sends a request that is answered by `expects` or a refusal. `write` appends the body, which starts with the id given
    /// to it. `None`: the node is not linked.
    #[inline]
    pub fn request(
        &mut self,
        to: BlockRef,
        kind: Kind,
        expects: Kind,
        deadline: u64,
        write: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<RequestId> {
        let link = *self.node_links.get(usize::from(to.node.0)).filter(|&&l| l != NO_LINK)?;
        let id = self.table.add(link, expects, deadline);
        self.counters.requests += 1;
        self.append(link, to, kind, |out| write(out, id.0));
        Some(id)
    }

    /// Sends what needs no answer; does nothing when the node is not linked.
    pub fn send(&mut self, to: BlockRef, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let link = self.node_links.get(usize::from(to.node.0)).copied().unwrap_or(NO_LINK);
        if link != NO_LINK {
            self.append(link, to, kind, write);
        }
    }

    #[inline]
    fn append(&mut self, link: u16, to: BlockRef, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let link = &mut self.links[usize::from(link)];
        let from = BlockRef::new(link.own, BlockId::Client, 0);
        let (epoch, generation) = (self.epoch, self.generation);
        Envelope { kind, to, from, epoch, trace: 0, generation }.encode(&mut link.out, write);
        if let Some(writer) = link.writer.take() {
            writer.wake();
        }
    }

    /// A timer that wakes `waker` at `at`; cancel it with the returned key.
    pub fn set_timer(&mut self, at: u64, waker: &Waker) -> (u64, u64) {
        let key = (at, self.next_timer);
        self.next_timer += 1;
        let earliest = self.timers.keys().next().is_none_or(|first| at < first.0);
        self.timers.insert(key, waker.clone());
        if earliest {
            self.wake_driver();
        }
        key
    }
    pub fn cancel_timer(&mut self, key: (u64, u64)) {
        self.timers.remove(&key);
    }

    // The driver's side.

    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
    pub fn set_driver(&mut self, cx: &Context<'_>) {
        self.driver = Some(cx.waker().clone());
    }
    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
        self.wake_driver();
    }

    /// When [`Core::tick`] must be called again at the latest.
    pub fn next_deadline(&self) -> u64 {
        let timer = self.timers.keys().next().map_or(u64::MAX, |key| key.0);
        let expire = if self.table.in_flight() > 0 { self.next_expire } else { u64::MAX };
        timer.min(expire).min(self.next_maintain)
    }

    pub fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= self.now
        {
            first.remove().wake();
        }
        if self.next_expire <= self.now {
            self.next_expire = self.now + EXPIRE_EVERY_NS;
            self.table.expire(self.now);
            if self.is_frozen() {
                self.table.end_forgone();
            }
            self.wake_room();
        }
        if self.next_maintain <= self.now {
            self.maintain();
        }
    }

    fn link_of(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.links.get_mut(usize::from(conn.link)).filter(|l| l.serial == conn.serial && l.is_open())
    }

    /// Connected: what the driver is to say and prove of us; then `admitted` or `refused`. `None`: no longer wanted, close it.
    pub fn opened(&mut self, conn: ConnId) -> Option<Hello> {
        let now = self.now;
        let believes = self.map_stale && self.link_of(conn).is_some_and(|l| l.seed);
        let hello = Hello {
            magic: MAGIC,
            role: Role::Client as i32,
            incarnation: self.config.client_id,
            cluster: if believes { 0 } else { self.cluster },
            name: self.config.name.chars().take(64).collect(),
            ..Hello::default()
        };
        self.link_of(conn)?.state = LinkState::Hello { since: now };
        Some(hello)
    }

    /// The other side does not let us in, or is not whom we look for.
    pub fn refused(&mut self, conn: ConnId, reason: String) {
        if self.link_of(conn).is_some() {
            self.last_refusal = reason;
            self.lose(conn.link);
        }
    }

    /// The connection ended or was never made.
    pub fn closed(&mut self, conn: ConnId) {
        if self.link_of(conn).is_some() {
            self.lose(conn.link);
        }
    }

    /// Moves what is to be written into `out` (which is empty, its memory is reused). `None`: close the connection.
    pub fn take_output(&mut self, conn: ConnId, out: &mut Vec<u8>) -> Option<bool> {
        let link = self.link_of(conn)?;
        if link.out.is_empty() {
            return Some(false);
        }
        let was_full = link.out.len() >= link::OUT_BYTES_MAX;
        std::mem::swap(&mut link.out, out);
        if link.out.capacity() > 2 * link::OUT_BYTES_MAX {
            link.out = Vec::new();
        }
        if was_full {
            self.wake_room();
        }
        Some(true)
    }
    pub fn set_writer(&mut self, conn: ConnId, cx: &Context<'_>) {
        if let Some(link) = self.link_of(conn) {
            link.writer = Some(cx.waker().clone());
        }
    }

    pub fn wake_room(&mut self) {
        for waiter in self.room.drain(..) {
            waiter.wake();
        }
    }
    /// A request ended that others may have waited for.
    #[inline]
    pub fn freed(&mut self) {
        if !self.room.is_empty() {
            self.wake_room();
        }
    }

    fn announce_change(&mut self) {
        let Core { view, routes, node_links, config, .. } = self;
        let linked = |n: NodeId| node_links.get(usize::from(n.0)).is_some_and(|&l| l != NO_LINK);
        route::routes(view, config.preferred_node_seed, linked, routes);
        self.changes += 1;
        for waiter in self.changed.drain(..) {
            waiter.wake();
        }
        self.next_maintain = 0;
        self.wake_driver();
    }

    /// The client's own end of a link: fails its requests, closes the connection, starts the back-off.
    fn lose(&mut self, index: u16) {
        let jitter = self.draw() as u8;
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        if !link.is_open() {
            return;
        }
        let conn = ConnId { link: index, serial: link.serial };
        let (node, incarnation) = (link.data_node(), link.incarnation);
        link.reset(self.now, jitter);
        self.act(Action::Close { conn });
        let Some(node) = node else { return };
        self.counters.links_lost += 1;
        self.lost_incarnations[usize::from(node.0) & 0xff] = incarnation;
        let slot = &mut self.node_links[usize::from(node.0) & 0xff];
        if *slot == index {
            *slot = NO_LINK;
        }
        self.table.lose_link(index);
        if self.linked_nodes().next().is_none() {
            self.map_stale = true;
        }
        self.wake_room();
        self.announce_change();
    }

    /// What came from this node does not follow the protocol.
    pub fn violation(&mut self, node: u8) {
        let link = self.node_links[usize::from(node)];
        self.counters.violations += 1;
        self.lose(link);
    }
}

//! The network of a simulated cluster: links between workers and from actors, what delays them and what breaks them.
//!
//! A link keeps its order and loses nothing until it is cut; then each end learns it at its own time. It belongs to two processes: what
//! the dead one was sent never reaches the one that comes after it. Faults:
//! - *cut*: the connections of two nodes are lost, and dialling is in vain until [`Cluster::heal`]: refused or without an answer, as is drawn
//!   for each direction;
//! - *mute*: what one node sends to the other, the end of its links included, is held back while links stay up; it arrives
//!   after [`Cluster::unmute`]. Nobody can dial meanwhile, for that takes both directions;
//! - the same between a client and a node, where the dial of a client hangs as long as nothing passes;
//! - *reset*: connections are lost and may be made again at once, and links between data nodes go on (`resume`);
//! - *unlink*: a client loses its link to a node that reads what it was sent only later.

use apus_kernel::Worker;
use apus_types::NodeId;

use crate::{
    Actor, ActorId, ActorOutput, Cluster, Welcome,
    events::{End, Event},
};

/// A dial that found nobody is repeated after this long.
pub(crate) const REDIAL_NS: u64 = 20_000_000;
/// A node that does not serve its clients looks at their sockets again after this long.
const UNSERVED_NS: u64 = 1_000_000;
/// What is sent at once arrives in two pieces, cut anywhere, once in so many times.
const TORN_ONE_IN: u64 = 24;
/// The second piece is later by less than this: longer delays are drawn for whole messages, within what silence is borne.
const TORN_MAX_NS: u64 = 1_000_000;

pub(crate) struct Link {
    pub ends: [End; 2],
    /// What each end calls the other.
    pub names: [NodeId; 2],
    /// The process at each end (0: an actor): what the dead one was sent must not reach the one that comes after it.
    pub incarnations: [u64; 2],
    /// Last arrival planned at each end: later bytes do not overtake.
    last: [u64; 2],
    /// When the last byte to each end has left, where bandwidth is limited.
    busy: [u64; 2],
    /// Held back on the way to each end, and whether the end of the link is held back too.
    stalled: [Vec<u8>; 2],
    stalled_end: [bool; 2],
    /// Bytes that arrived at each end and were not read yet: the beginning of a frame, or all that came while the worker would
    /// not read ([`Worker::may_read`]).
    unread: [Vec<u8>; 2],
    ended: [bool; 2],
    /// Its worker uses it; a link goes on over several connections.
    pub offered: [bool; 2],
    /// How often the link was taken up before, by the first end; 0: it begins.
    pub number: u32,
    /// Until then the node at this end reads nothing; what comes stays in its socket.
    deaf_until: [u64; 2],
    cut: bool,
    /// Bytes that would arrive later than this were lost with the machine that sent them.
    pub lost_after: u64,
}

/// Whom a fault of the network is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    Node(NodeId),
    Client(ActorId),
}

impl From<NodeId> for Party {
    fn from(node: NodeId) -> Party {
        Party::Node(node)
    }
}

impl Link {
    pub fn ended(&self, at_end: usize) -> bool {
        self.ended[at_end]
    }
    pub fn end(&mut self, at_end: usize) {
        self.ended[at_end] = true;
    }
}

fn party(end: End) -> Party {
    match end {
        End::Worker { node, .. } => Party::Node(node),
        End::Actor(actor) => Party::Client(actor),
    }
}

fn joins(link: &Link, a: Party, b: Party) -> bool {
    let pair = link.ends.map(party);
    pair == [a, b] || pair == [b, a]
}

fn remove_one(list: &mut Vec<(Party, Party)>, pair: (Party, Party)) {
    if let Some(index) = list.iter().position(|p| *p == pair) {
        list.remove(index);
    }
}

/// Faults of the network. Each call is undone by as many of its opposite, so faults may overlap.
impl Cluster {
    /// Cuts the links between two nodes and keeps them apart until [`Cluster::heal`].
    pub fn part(&mut self, a: impl Into<Party>, b: impl Into<Party>) {
        let (a, b) = (a.into(), b.into());
        self.barred.push((a.min(b), a.max(b)));
        for way in [(a, b), (b, a)] {
            if self.random.one_in(2) {
                self.refusing.insert(way);
            } else {
                self.refusing.remove(&way);
            }
        }
        self.reset(a, b, None);
    }
    pub fn heal(&mut self, a: impl Into<Party>, b: impl Into<Party>) {
        let (a, b) = (a.into(), b.into());
        remove_one(&mut self.barred, (a.min(b), a.max(b)));
    }
    /// Holds back what `from` sends to `to` until [`Cluster::unmute`]. What a node has for a client stays in the node, as where a client does
    /// not read: the kernel's buffers are full.
    pub fn mute(&mut self, from: impl Into<Party>, to: impl Into<Party>) {
        self.muted.push((from.into(), to.into()));
    }
    /// Lets through what was held back, unless it is `lost`: then the links turn out to be dead.
    pub fn unmute(&mut self, from: impl Into<Party>, to: impl Into<Party>, lost: bool) {
        let (from, to) = (from.into(), to.into());
        remove_one(&mut self.muted, (from, to));
        if self.muted.contains(&(from, to)) {
            return;
        }
        let goes = |l: &crate::network::Link| (0..2).find(|&e| party(l.ends[1 - e]) == from && party(l.ends[e]) == to);
        let ids: Vec<(u64, usize)> = self.links.iter().filter_map(|(&id, l)| Some((id, goes(l)?))).collect();
        for (id, at_end) in ids {
            if lost {
                if let Some(link) = self.links.get_mut(&id) {
                    link.lost_after = link.lost_after.min(self.now);
                }
                self.cut(id, None);
            }
            self.release(id, at_end);
        }
        if let (Party::Node(node), Party::Client(_)) = (from, to) {
            self.send_unsent(node);
        }
    }
    /// The links between two nodes, or only those of one pair of their workers, end; in half of the cases without what is on its way.
    pub fn reset(&mut self, a: impl Into<Party>, b: impl Into<Party>, worker: Option<u8>) {
        let (a, b) = (a.into(), b.into());
        let is_hit = |end: End| worker.is_none_or(|w| matches!(end, End::Worker { worker, .. } if worker == w));
        let hit = self.links.iter().filter(|(_, l)| joins(l, a, b) && is_hit(l.ends[0]));
        let ids: Vec<u64> = hit.map(|(&id, _)| id).collect();
        for id in ids {
            if self.random.one_in(2) {
                let lost_after = self.now + self.random.below(self.config.link_delay_ns.1 + 1);
                if let Some(link) = self.links.get_mut(&id) {
                    link.lost_after = link.lost_after.min(lost_after);
                }
            }
            self.cut(id, None);
        }
    }
    /// For so long the node reads nothing that this actor sends it; its answers come.
    pub fn deafen(&mut self, actor: ActorId, node: NodeId, lasts: u64) {
        if let Some(&id) = self.by_end.get(&(End::Actor(actor), node))
            && let Some(link) = self.links.get_mut(&id).filter(|link| !link.cut)
        {
            let there = usize::from(link.ends[0] == End::Actor(actor));
            link.deaf_until[there] = self.now + lasts + 1;
            self.queue.plan(self.now + lasts + 1, Event::LinkBytes { link: id, at_end: there, bytes: Vec::new() });
        }
    }
    /// An actor loses its link to a node at once, with the answers on their way. The node reads what it was sent, and that the link has
    /// ended, only `late` from now: until then it lay in its socket.
    pub fn unlink(&mut self, actor: ActorId, node: NodeId, late: u64) {
        if let Some(&id) = self.by_end.get(&(End::Actor(actor), node))
            && let Some(link) = self.links.get_mut(&id).filter(|link| !link.cut)
        {
            let there = usize::from(link.ends[0] == End::Actor(actor));
            link.cut = true;
            link.deaf_until[there] = self.now + late;
            let last = link.last[there].max(self.now + late) + 1;
            self.queue.plan(self.now + 1, Event::LinkEnd { link: id, at_end: 1 - there });
            self.queue.plan(last, Event::LinkEnd { link: id, at_end: there });
        }
    }
    /// Ends all of the above.
    pub fn heal_network(&mut self) {
        self.barred.clear();
        while let Some(&(from, to)) = self.muted.first() {
            self.unmute(from, to, false);
        }
    }
    pub(crate) fn is_muted(&self, from: End, to: End) -> bool {
        !self.muted.is_empty() && self.muted.contains(&(party(from), party(to)))
    }
    /// Whether what this end has for the other stays where it is.
    pub(crate) fn is_unread(&self, from: End, name: NodeId) -> bool {
        let link = self.by_end.get(&(from, name)).and_then(|id| self.links.get(id));
        !self.muted.is_empty()
            && link.is_some_and(|link| {
                let to = link.ends[usize::from(link.ends[0] == from)];
                !link.cut && matches!(to, End::Actor(_)) && self.is_muted(from, to)
            })
    }
    pub(crate) fn is_barred(&self, a: NodeId, b: NodeId) -> bool {
        self.barred.contains(&(Party::Node(a.min(b)), Party::Node(a.max(b))))
    }
    /// Whether a dial comes through.
    pub(crate) fn may_dial(&self, a: impl Into<Party>, b: impl Into<Party>) -> bool {
        let (a, b) = (a.into(), b.into());
        !self.barred.contains(&(a.min(b), a.max(b))) && !self.muted.contains(&(a, b)) && !self.muted.contains(&(b, a))
    }
    /// Sends what was held back on the way to this end.
    fn release(&mut self, id: u64, at_end: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (bytes, ended) = (std::mem::take(&mut link.stalled[at_end]), link.stalled_end[at_end]);
        link.stalled_end[at_end] = false;
        if !bytes.is_empty() {
            self.plan_bytes(id, at_end, bytes);
        }
        if ended {
            self.plan_end(id, at_end);
        }
    }
}

/// Links.
impl Cluster {
    pub(crate) fn links_where(&self, is_hit: impl Fn(&End) -> bool) -> Vec<u64> {
        self.links.iter().filter(|(_, l)| l.ends.iter().any(&is_hit)).map(|(&id, _)| id).collect()
    }
    /// Bytes on their way still arrive, each end then learns that there will be no more. `closer`: the end that knows by itself.
    pub(crate) fn cut(&mut self, id: u64, closer: Option<usize>) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.cut) else { return };
        link.cut = true;
        let ends = link.ends;
        for at_end in 0..2 {
            if closer != Some(at_end) && self.is_muted(ends[1 - at_end], ends[at_end]) {
                if let Some(link) = self.links.get_mut(&id) {
                    link.stalled_end[at_end] = true;
                }
            } else {
                self.plan_end(id, at_end);
            }
        }
    }
    fn plan_end(&mut self, id: u64, at_end: usize) {
        let soonest = self.now + self.delay(self.config.link_delay_ns);
        let Some(link) = self.links.get(&id) else { return };
        self.queue.plan(link.last[at_end].max(soonest) + 1, Event::LinkEnd { link: id, at_end });
    }
    pub(crate) fn want(&mut self, a: NodeId, b: NodeId, incarnation: u64) {
        self.addresses.insert((a, b));
        // The higher id begins links.
        if a != b && !(a.is_data() && b.is_data() && a < b) {
            self.wanted.insert((a, b), incarnation);
            self.dial_all(a, b);
        }
    }
    pub(crate) fn dial_all(&mut self, a: NodeId, b: NodeId) {
        let workers = |node| self.config.nodes.iter().find(|(n, _)| *n == node).map_or(0, |&(_, workers)| workers);
        let links = if a.is_data() && b.is_data() { workers(a).min(workers(b)) + 1 } else { 1 };
        for worker in 0..links {
            let delay = self.delay(self.config.link_delay_ns);
            self.plan_dial(delay, a, b, worker);
        }
    }
    pub(crate) fn plan_dial(&mut self, delay: u64, from: NodeId, to: NodeId, worker: u8) {
        if self.dialling.insert((from, to, worker)) {
            self.queue.plan(self.now + delay, Event::Dial { from, to, worker });
        }
    }
    pub(crate) fn on_dial(&mut self, from: NodeId, to: NodeId, worker: u8) {
        self.dialling.remove(&(from, to, worker));
        let (at_a, at_b) = (self.place(from, to, worker), self.place(to, from, worker));
        let (a, b) = (End::Worker { node: from, worker: at_a }, End::Worker { node: to, worker: at_b });
        let Some(&wanted) = self.wanted.get(&(from, to)) else { return };
        let is_linked = self.by_end.contains_key(&(a, to));
        if !self.is_running(from) || is_linked || self.awaits(from, to, at_a).is_some() {
            return;
        }
        // The other end has not learnt yet that the connection before is lost.
        if self.by_end.contains_key(&(b, from)) {
            self.plan_dial(REDIAL_NS, from, to, worker);
            return;
        }
        let there = self.incarnation(to);
        // A stopped machine neither dials nor answers the hello of one who does.
        let is_possible = there != 0 && self.may_dial(from, to) && !self.is_paused(from) && !self.is_paused(to);
        if !is_possible || (wanted != 0 && wanted != there) {
            self.plan_dial(REDIAL_NS, from, to, worker);
            return;
        }
        let here = self.incarnation(from);
        let id = self.connect([a, b], [to, from], [here, there]);
        if let Some(made) = self.links.get_mut(&id) {
            made.offered = [false; 2];
        }
        // Who does not take it closes it, and it is dialled again.
        (0..2).for_each(|at_end| self.on_offer(id, at_end));
    }
    /// The worker of `node` that owns the link of this number to `peer`: equal ones are joined, the only one to a management node is the
    /// control worker's.
    pub(crate) fn place(&self, node: NodeId, peer: NodeId, number: u8) -> u8 {
        let host = self.hosts.get(&node).and_then(|host| host.workers.first());
        if node.is_data() && peer.is_data() { number } else { host.map_or(0, |w| w.config().control_place()) }
    }
    fn open(&mut self, ends: [End; 2], names: [NodeId; 2], incarnations: [u64; 2]) {
        let id = self.connect(ends, names, incarnations);
        self.by_end.insert((ends[0], names[0]), id);
        self.by_end.insert((ends[1], names[1]), id);
    }
    pub(crate) fn connect(&mut self, ends: [End; 2], names: [NodeId; 2], incarnations: [u64; 2]) -> u64 {
        self.next_link += 1;
        let id = self.next_link;
        let link = Link {
            ends,
            names,
            incarnations,
            last: [self.now; 2],
            busy: [self.now; 2],
            stalled: Default::default(),
            stalled_end: [false; 2],
            unread: Default::default(),
            ended: [false; 2],
            offered: [true; 2],
            number: 0,
            deaf_until: [0; 2],
            cut: false,
            lost_after: u64::MAX,
        };
        self.links.insert(id, link);
        id
    }
    pub(crate) fn close(&mut self, end: End, name: NodeId) {
        if let Some(&id) = self.by_end.get(&(end, name)) {
            let closer = self.links.get(&id).map(|link| usize::from(link.ends[1] == end));
            self.cut(id, closer);
        } else if let End::Worker { node, worker } = end {
            self.dial_again(node, worker, name); // it waited for a connection
        }
    }
    pub(crate) fn send_link(&mut self, from: End, name: NodeId, bytes: Vec<u8>) {
        let Some(&id) = self.by_end.get(&(from, name)) else { return };
        let Some(link) = self.links.get(&id).filter(|link| !link.cut && !bytes.is_empty()) else { return };
        let at_end = usize::from(link.ends[0] == from);
        if self.is_muted(from, link.ends[at_end]) {
            if let Some(link) = self.links.get_mut(&id) {
                link.stalled[at_end].extend_from_slice(&bytes);
            }
            return;
        }
        self.plan_bytes(id, at_end, bytes);
    }
    fn plan_bytes(&mut self, id: u64, at_end: usize, bytes: Vec<u8>) {
        let mut delay = self.delay(self.config.link_delay_ns);
        let (one_in, most) = self.config.link_spike_ns;
        if self.random.one_in(one_in) {
            delay += self.random.below(most + 1);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut left = self.now;
        if let Some(rate) = self.config.link_bytes_per_ms {
            left = link.busy[at_end].max(left) + bytes.len() as u64 * 1_000_000 / rate.max(1);
            link.busy[at_end] = left;
        }
        let at = (left + delay).max(link.last[at_end] + 1);
        link.last[at_end] = at;
        // The world cuts a stream anywhere.
        let cut_at = if self.random.one_in(TORN_ONE_IN) { self.random.below(bytes.len() as u64) as usize } else { 0 };
        if cut_at == 0 {
            self.queue.plan(at, Event::LinkBytes { link: id, at_end, bytes });
            return;
        }
        let later = at + 1 + self.random.below(TORN_MAX_NS);
        let (head, tail) = (bytes[..cut_at].to_vec(), bytes[cut_at..].to_vec());
        if let Some(link) = self.links.get_mut(&id) {
            link.last[at_end] = later;
        }
        self.queue.plan(at, Event::LinkBytes { link: id, at_end, bytes: head });
        self.queue.plan(later, Event::LinkBytes { link: id, at_end, bytes: tail });
    }
    pub(crate) fn on_link_bytes(&mut self, id: u64, at_end: usize, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (end, name, incarnation) = (link.ends[at_end], link.names[at_end], link.incarnations[at_end]);
        if self.now > link.lost_after || link.ended[at_end] {
            return;
        }
        link.unread[at_end].extend_from_slice(bytes);
        if self.now < link.deaf_until[at_end] || !link.offered[at_end] {
            return;
        }
        match end {
            End::Actor(actor) => {
                let all = std::mem::take(&mut link.unread[at_end]);
                self.with_actor(actor, |a, now, out| a.receive(now, name, &all, out));
            }
            End::Worker { node, worker } => {
                let now = self.clock(node);
                let reads = |w: &Worker| w.may_read(name) && (w.serves(name, now) || w.refuses(name));
                if self.worker(node, worker).is_some_and(|w| !reads(w)) {
                    self.held.insert((node, worker, id, at_end));
                } else {
                    self.read_link(id, at_end, incarnation);
                }
            }
        }
    }
    /// Plans the reading of links that the worker would not read before and would now.
    pub(crate) fn read_held(&mut self, node: NodeId, worker: u8) {
        let range = (node, worker, 0, 0)..=(node, worker, u64::MAX, usize::MAX);
        let held: Vec<_> = self.held.range(range).copied().collect();
        for at in held {
            let Some(link) = self.links.get(&at.2) else { continue };
            let (name, now) = (link.names[at.3], self.clock(node));
            let reads = |w: &Worker| w.may_read(name) && (w.serves(name, now) || w.refuses(name));
            if self.worker(node, worker).is_some_and(reads) {
                self.held.remove(&at);
                self.queue.plan(self.now + 1, Event::LinkBytes { link: at.2, at_end: at.3, bytes: Vec::new() });
            }
        }
    }
    /// Gives a worker what came over a link, if it is still the process that the link was made to.
    pub(crate) fn read_link(&mut self, id: u64, at_end: usize, incarnation: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let End::Worker { node, worker } = link.ends[at_end] else { return };
        let name = link.names[at_end];
        let mut all = std::mem::take(&mut link.unread[at_end]);
        let mut result = Ok(all.len());
        let now = self.clock(node);
        self.with_worker(node, worker, Some(incarnation), |w| {
            result = if w.serves(name, now) || !w.refuses(name) {
                w.deliver_frames(name, &all)
            } else {
                w.refuse_frames(name, &all)
            };
        });
        match result {
            Ok(consumed) => {
                all.drain(..consumed);
                if let Some(link) = self.links.get_mut(&id) {
                    link.unread[at_end] = all;
                }
            }
            Err(_) => self.cut(id, Some(at_end)),
        }
    }
    pub(crate) fn on_link_end(&mut self, id: u64, at_end: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (end, name, incarnation) = (link.ends[at_end], link.names[at_end], link.incarnations[at_end]);
        let is_offered = link.offered[at_end];
        if let End::Worker { node, worker } = end
            && is_offered
            && !link.ended[at_end]
        {
            let (now, is_deaf) = (self.now, link.deaf_until[at_end] > 0);
            let clock = self.clock(node);
            if is_deaf && self.worker(node, worker).is_some_and(|w| !w.serves(name, clock)) {
                // The end is read behind what it was sent, when the node serves its clients again.
                self.queue.plan(now + UNSERVED_NS, Event::LinkEnd { link: id, at_end });
                return;
            }
            self.held.remove(&(node, worker, id, at_end));
            self.read_link(id, at_end, incarnation);
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.ended[at_end] = true;
            if link.ended == [true; 2] {
                self.links.remove(&id);
            }
        }
        let is_current = self.by_end.get(&(end, name)) == Some(&id);
        if is_current {
            self.by_end.remove(&(end, name));
        }
        match end {
            End::Actor(actor) => self.with_actor(actor, |a, now, out| a.link_down(now, name, out)),
            End::Worker { node, worker } => {
                if is_current {
                    self.with_worker(node, worker, Some(incarnation), |w| {
                        w.link_lost(name);
                    });
                }
                // Where another connection has taken its place nothing is lacking.
                if !self.by_end.contains_key(&(end, name)) {
                    self.dial_again(node, worker, name);
                }
            }
        }
    }
}

/// Actors.
impl Cluster {
    /// Attaches an actor and wakes it.
    pub fn attach(&mut self, actor: Box<dyn Actor>) -> ActorId {
        self.actors.push(Some(actor));
        self.wakes.push(self.now);
        let actor = self.actors.len() - 1;
        self.queue.plan(self.now, Event::Wake { actor });
        actor
    }
    /// The actor is gone at once with all it held; its links end.
    pub fn detach(&mut self, actor: ActorId) {
        if let Some(slot) = self.actors.get_mut(actor) {
            *slot = None;
        }
        for id in self.links_where(|end| *end == End::Actor(actor)) {
            self.cut(id, None);
        }
    }
    pub(crate) fn with_actor(&mut self, id: ActorId, act: impl FnOnce(&mut dyn Actor, u64, &mut ActorOutput)) {
        let Some(mut actor) = self.actors.get_mut(id).and_then(Option::take) else { return };
        let mut out = ActorOutput::default();
        act(actor.as_mut(), self.now, &mut out);
        self.actors[id] = Some(actor);
        if let Some(at) = out.wake_at {
            let at = at.max(self.now + 1);
            if at < self.wakes[id] {
                self.wakes[id] = at;
                self.queue.plan(at, Event::Wake { actor: id });
            }
        }
        for node in out.disconnect {
            self.close(End::Actor(id), node);
        }
        for (node, bytes) in out.bytes {
            self.send_link(End::Actor(id), node, bytes);
        }
        for (node, incarnation) in out.connect {
            let at = self.now + self.delay(self.config.link_delay_ns);
            self.queue.plan(at, Event::ActorDial { actor: id, node, incarnation });
        }
    }
    /// The id by which a node knows an actor's link.
    fn client_id(&mut self, actor: ActorId, node: NodeId, is_operator: bool) -> NodeId {
        if is_operator {
            let operators = usize::from(u16::MAX - NodeId::OPERATOR_BASE) + 1;
            return NodeId(NodeId::OPERATOR_BASE + (actor % operators) as u16);
        }
        let slot = self.next_client.entry(node).or_insert(0);
        let own = NodeId(NodeId::CLIENT_BASE + *slot);
        *slot = (*slot + 1) % (NodeId::OPERATOR_BASE - NodeId::CLIENT_BASE);
        own
    }
    pub(crate) fn on_actor_dial(&mut self, id: ActorId, node: NodeId, wanted: u64) {
        let end = End::Actor(id);
        if self.actors.get(id).is_some_and(Option::is_some) && !self.may_dial(Party::Client(id), node) {
            self.queue.plan(self.now + REDIAL_NS, Event::ActorDial { actor: id, node, incarnation: wanted });
            return;
        }
        let incarnation = self.incarnation(node);
        let is_linked = self.by_end.contains_key(&(end, node));
        if is_linked || incarnation == 0 || (wanted != 0 && wanted != incarnation) {
            self.with_actor(id, |a, now, out| a.link_down(now, node, out));
            return;
        }
        let Some(actor) = self.actors.get(id).and_then(Option::as_ref) else { return };
        let (identity, is_operator) = (actor.identity(), actor.is_operator());
        let workers = self.hosts.get(&node).map_or(&[][..], |host| &host.workers);
        let instances = workers.first().map_or(1, |w| w.config().instances);
        let cluster = workers.iter().map(Worker::cluster).max().unwrap_or(0);
        let own = self.client_id(id, node, is_operator);
        let worker = ((own.0 - NodeId::CLIENT_BASE) % u16::from(instances)) as u8;
        self.open([end, End::Worker { node, worker }], [node, own], [0, incarnation]);
        self.with_worker(node, worker, Some(incarnation), |w| w.link_up(own, identity));
        let welcome = Welcome { own, instances, incarnation, cluster };
        self.with_actor(id, |a, now, out| a.link_up(now, node, welcome, out));
    }
}

//! Which clients are linked to this node, and the tombstones of transactions that they were told are not done.
//!
//! # Why tombstones
//!
//! A client that loses its link while an autocommit batch is unanswered asks over another link what became of it. The batch may still lie
//! in the old link's socket, on whatever worker that is. So the question itself decides: the TC that the batch was sent to notes the
//! transaction as never to be begun here, *then* asks the LDMs. If none has committed it, none ever will, and the client may run it
//! again. One TC instance receives the batch and the question, so one of the two comes first.
//!
//! # How long they stay
//!
//! Until nothing that was sent before the question can arrive: every link of that client that stood when the question came is closed, but for
//! the one that brought the question (what it brought earlier has been executed). Links belong to all workers, and one that a client
//! has opened may not have reached its worker yet. So a *fence* goes round all workers twice after the question: a worker that answers the
//! second time took over all new links after the first, and links are announced to every TC (`ClientUpRep`) ahead of the answer. The
//! links known then are those to wait for.
//!
//! A client keeps one link to a node, so its older ones are closed here as soon as a younger one asks: a half-open link does not keep
//! tombstones, and transactions it left open end.
//!
//! # Limits
//!
//! [`TOMBSTONES_MAX`] per TC instance, of which [`FOREIGN_MAX`] may be for other clients than the one that asks. Beyond that the answer to
//! the question is "open": the client asks again, and hears in the end that the outcome is not known. Nothing here looks at all of anything
//! but what one client has, once per tick.

use apus_kernel::Context;
use apus_signal::{BlockRef, DecodeError, Reader};
use apus_types::{
    NodeId, TransId,
    collections::{SeededMap, seeded_map},
    planted::{Bug, planted},
};

use super::record::link_number;

/// Most transactions of one TC instance that must never begin; a client has at most so many batches unanswered.
pub const TOMBSTONES_MAX: usize = 65_536;
/// Of these, most that were left by somebody else than the client whose transaction it is.
pub const FOREIGN_MAX: usize = TOMBSTONES_MAX / 4;

/// The link of one client, by the slot of its id.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The id that the client chose; 0: no link.
    client: u64,
    /// Number of the link in the order in which this TC heard of them.
    opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    /// The link that brought the question, if it is one of the client's own.
    asker: Option<NodeId>,
    /// Links opened up to this number are to be waited for; 0: the fence has not gone round yet.
    until: u64,
}

/// What is known of one client id.
#[derive(Debug, Default)]
struct Client {
    /// Its links and their numbers, growing.
    links: Vec<(NodeId, u64)>,
    tombstones: Vec<TransId>,
    /// To be looked through at the next tick.
    due: bool,
}

/// The question put to all workers, whether all links that were opened before have been announced.
#[derive(Debug, Default)]
struct Fence {
    number: u64,
    /// 0: none under way; 1, 2.
    round: u8,
    missing: u8,
}

#[derive(Debug)]
pub(super) struct Clients {
    links: Vec<Link>,
    last: u64,
    known: SeededMap<u64, Client>,
    tombstones: SeededMap<TransId, Tombstone>,
    foreign: usize,
    /// Tombstones that wait for a fence, with the number of the fence that is enough for them.
    unfenced: Vec<(TransId, u64)>,
    fence: Fence,
    due: Vec<u64>,
}

/// What to send for a fence.
pub(super) struct AskWorkers {
    pub token: u64,
}

impl Clients {
    pub fn new(seed: u64) -> Clients {
        Clients {
            links: Vec::new(),
            last: 0,
            known: seeded_map(seed),
            tombstones: seeded_map(seed.rotate_left(32)),
            foreign: 0,
            unfenced: Vec::new(),
            fence: Fence::default(),
            due: Vec::new(),
        }
    }

    /// `ClientUpRep`. The first one draws the seed of the maps.
    pub fn link_up(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let mut r = Reader::new(body);
        let (node, client) = (NodeId(r.u16()?), r.u64()?);
        if self.last == 0 && self.known.is_empty() {
            *self = Clients::new(ctx.random());
        }
        self.opened(node, client);
        Ok(())
    }
    fn opened(&mut self, node: NodeId, client: u64) {
        if !node.is_client() || client == 0 {
            return; // a client without an id begins no transactions
        }
        self.link_down(node);
        let at = link_number(node);
        if self.links.len() <= at {
            self.links.resize(at + 1, Link::default());
        }
        self.last += 1;
        assert!(self.links[at].client == 0, "link {node} belongs to two clients");
        self.links[at] = Link { client, opened: self.last };
        self.known.entry(client).or_default().links.push((node, self.last));
    }

    /// `ClientGoneRep`: whatever the link brought has been executed.
    pub fn link_down(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(link_number(node)).map(std::mem::take).filter(|link| link.client != 0)
        else {
            return;
        };
        let Some(client) = self.known.get_mut(&link.client) else { return };
        let before = client.links.len();
        client.links.retain(|l| l.0 != node);
        assert!(client.links.len() + 1 == before, "client {:x} has link {node} not once, of {before}", link.client);
        if client.tombstones.is_empty() {
            if client.links.is_empty() {
                self.known.remove(&link.client);
            }
        } else if !std::mem::replace(&mut client.due, true) {
            self.due.push(link.client);
        }
    }

    /// Whether this link's client is the one that the transaction names.
    #[inline]
    pub fn owns(&self, from: BlockRef, trans: TransId) -> bool {
        self.links.get(link_number(from.node)).is_some_and(|link| link.client == trans.client && link.client != 0)
    }
    /// The id of the client at this link.
    pub fn client_of(&self, node: NodeId) -> Option<u64> {
        self.links.get(link_number(node)).map(|link| link.client).filter(|client| *client != 0)
    }
    /// All links of clients.
    pub fn links(&self) -> impl Iterator<Item = NodeId> {
        self.known.values().flat_map(|client| client.links.iter().map(|link| link.0))
    }
    /// The transaction must not begin any more.
    #[inline]
    pub fn is_buried(&self, trans: TransId) -> bool {
        !self.tombstones.is_empty() && self.tombstones.contains_key(&trans)
    }
    pub fn buried(&self) -> usize {
        self.tombstones.len()
    }

    /// Older links of the client that asks over `from` for one of its own transactions; they are of no use any more.
    pub fn older_links(&self, from: NodeId, trans: TransId) -> impl Iterator<Item = NodeId> {
        let own = self.links.get(link_number(from)).copied().unwrap_or_default();
        let links = self.known.get(&own.client).filter(|_| own.client == trans.client).map(|c| c.links.as_slice());
        links.unwrap_or(&[]).iter().filter(move |l| l.1 < own.opened).map(|l| l.0)
    }

    /// From now on the transaction does not begin here. `false`: there is no room to remember it.
    pub fn bury(&mut self, trans: TransId, from: NodeId) -> bool {
        if self.tombstones.contains_key(&trans) {
            return true;
        }
        let own = self.links.get(link_number(from)).is_some_and(|link| link.client == trans.client);
        if self.tombstones.len() >= TOMBSTONES_MAX || (!own && self.foreign >= FOREIGN_MAX) {
            return false;
        }
        self.foreign += usize::from(!own);
        self.tombstones.insert(trans, Tombstone { asker: own.then_some(from), until: 0 });
        self.known.entry(trans.client).or_default().tombstones.push(trans);
        self.unfenced.push((trans, self.fence.number + 1));
        true
    }

    /// Once per tick: tombstones that nobody waits for go, and a fence begins or goes on. Returns what all other workers are to be asked.
    pub fn tick(&mut self) -> Option<AskWorkers> {
        for client in std::mem::take(&mut self.due) {
            self.judge(client);
        }
        if self.fence.missing > 0 {
            return None;
        }
        match self.fence.round {
            0 if self.unfenced.is_empty() => return None,
            0 => {
                self.fence.number += 1;
                self.fence.round = 1;
            }
            1 => self.fence.round = 2,
            _ => {
                self.fenced();
                return None;
            }
        }
        Some(AskWorkers { token: self.token() })
    }
    fn token(&self) -> u64 {
        self.fence.number << 2 | u64::from(self.fence.round)
    }
    /// So many workers will answer.
    pub fn asked(&mut self, workers: u8) {
        self.fence.missing = workers;
    }
    /// A worker has answered.
    pub fn answered(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        if Reader::new(body).u64()? == self.token() {
            self.fence.missing = self.fence.missing.saturating_sub(1);
        }
        Ok(())
    }

    /// All links that stood when the fence began are known.
    fn fenced(&mut self) {
        self.fence.round = 0;
        let ready = self.unfenced.partition_point(|(_, needs)| *needs <= self.fence.number);
        for (trans, _) in self.unfenced.drain(..ready) {
            let Some(tombstone) = self.tombstones.get_mut(&trans) else { continue };
            tombstone.until = self.last;
            if let Some(client) = self.known.get_mut(&trans.client)
                && !std::mem::replace(&mut client.due, true)
            {
                self.due.push(trans.client);
            }
        }
    }

    /// Forgets the tombstones of a client whose batches cannot arrive any more.
    fn judge(&mut self, id: u64) {
        let Some(client) = self.known.get_mut(&id) else { return };
        client.due = false;
        let oldest = [client.links.first().copied(), client.links.get(1).copied()];
        let (tombstones, foreign) = (&mut self.tombstones, &mut self.foreign);
        client.tombstones.retain(|trans| {
            let Some(tombstone) = tombstones.get(trans).copied() else { return false };
            let waits = oldest.iter().flatten().find(|link| Some(link.0) != tombstone.asker);
            let stays = (tombstone.until == 0 || waits.is_some_and(|link| link.1 <= tombstone.until))
                && !planted(Bug::TombstoneTooShort);
            if !stays {
                tombstones.remove(trans);
                let is_counted = tombstone.asker.is_some() || *foreign > 0;
                assert!(is_counted, "more tombstones of strangers go than came");
                *foreign -= usize::from(tombstone.asker.is_none());
            }
            stays
        });
        if client.tombstones.is_empty() && client.links.is_empty() {
            self.known.remove(&id);
        }
    }

    /// # Errors
    /// What does not hold between the links, the clients and the tombstones.
    pub fn verify(&self) -> Result<(), String> {
        let linked = self.links.iter().filter(|link| link.client != 0).count();
        let (links, buried) =
            self.known.values().fold((0, 0), |sum, c| (sum.0 + c.links.len(), sum.1 + c.tombstones.len()));
        if linked != links || buried != self.tombstones.len() {
            return Err(format!(
                "{linked} links stand and clients have {links}; {buried} tombstones of clients, {} in all",
                self.tombstones.len()
            ));
        }
        let foreign = self.tombstones.values().filter(|t| t.asker.is_none()).count();
        if foreign != self.foreign {
            return Err(format!("{foreign} tombstones were left by others, {} are counted", self.foreign));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(clients: &mut Clients, n: u16, client: u64) {
        clients.opened(node(n), client);
    }
    fn node(n: u16) -> NodeId {
        NodeId(NodeId::CLIENT_BASE + n)
    }
    /// A tick of a node with one other worker, which answers at once.
    fn tick(clients: &mut Clients) {
        if let Some(ask) = clients.tick() {
            clients.asked(1);
            clients.answered(&ask.token.to_le_bytes()).expect("a token");
        }
        clients.verify().expect("all counts match");
    }
    const OLD: TransId = TransId { client: 7, seq: 3 };

    #[test]
    fn a_tombstone_stays_until_older_links_are_closed() {
        let mut clients = Clients::new(5);
        up(&mut clients, 1, 7);
        up(&mut clients, 2, 7);
        assert_eq!(clients.older_links(node(2), OLD).collect::<Vec<_>>(), [node(1)]);
        assert!(clients.bury(OLD, node(2)));
        for _ in 0..10 {
            tick(&mut clients);
            assert!(clients.is_buried(OLD));
        }
        up(&mut clients, 3, 7);
        clients.link_down(node(1));
        tick(&mut clients);
        assert!(!clients.is_buried(OLD), "the link that asked and a younger one do not matter");
    }

    #[test]
    fn a_link_that_no_worker_has_yet_is_waited_for() {
        let mut clients = Clients::new(5);
        up(&mut clients, 2, 7);
        assert!(clients.bury(OLD, node(2)));
        let first = clients.tick().expect("a fence begins");
        clients.asked(1);
        assert!(clients.tick().is_none());
        clients.answered(&first.token.to_le_bytes()).expect("a token");
        let second = clients.tick().expect("its second round");
        clients.asked(1);
        up(&mut clients, 1, 7); // taken over by its worker before that one answers
        clients.answered(&first.token.to_le_bytes()).expect("a late answer is not this round's");
        assert!(clients.tick().is_none());
        clients.answered(&second.token.to_le_bytes()).expect("a token");
        for _ in 0..5 {
            tick(&mut clients);
            assert!(clients.is_buried(OLD));
        }
        clients.link_down(node(1));
        tick(&mut clients);
        assert!(!clients.is_buried(OLD));
    }

    #[test]
    fn a_stranger_may_ask_but_not_fill_all() {
        let mut clients = Clients::new(5);
        up(&mut clients, 1, 7);
        up(&mut clients, 2, 8);
        let foreign = |seq| TransId { client: 7, seq };
        assert!((0..FOREIGN_MAX as u64).all(|seq| clients.bury(foreign(seq), node(2))));
        assert!(!clients.bury(foreign(1 << 40), node(2)));
        assert!((0..(TOMBSTONES_MAX - FOREIGN_MAX) as u64).all(|seq| clients.bury(foreign(1 << 30 | seq), node(1))));
        assert!(!clients.bury(foreign(1 << 41), node(1)));
        for _ in 0..5 {
            tick(&mut clients);
        }
        assert_eq!(clients.buried(), FOREIGN_MAX, "those wait for the client's only link");
        clients.link_down(node(1));
        tick(&mut clients);
        assert_eq!(clients.buried(), 0);
        assert!(clients.known.len() == 1 && clients.due.is_empty());
    }

    #[test]
    fn only_the_link_of_its_client_begins_a_transaction() {
        let mut clients = Clients::new(5);
        up(&mut clients, 1, 7);
        let from = |n| BlockRef::new(node(n), apus_signal::BlockId::Client, 0);
        assert!(clients.owns(from(1), OLD));
        assert!(!clients.owns(from(2), OLD));
        assert!(!clients.owns(from(1), TransId { client: 8, seq: 3 }));
        clients.link_down(node(1));
        assert!(!clients.owns(from(1), OLD) && clients.known.is_empty());
    }
}

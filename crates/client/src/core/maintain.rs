//! Which links are kept: one to every member of the map; to the seeds as well while no data node is linked.

use apus_signal::{BlockId, BlockRef, Kind, mgmt::MgmtReq, tc::TcFloor, view::ViewNode};
use apus_types::NodeId;
use prost::Message;

use super::{
    Action, Core, LINKS_MAX, MS,
    link::{ConnId, Link, LinkState, PING_TIMEOUT_NS, SILENCE_NS},
};

/// Links are looked after this often while something is missing, and while all is well, in nanoseconds.
const MAINTAIN_BUSY_NS: u64 = 10 * MS;
const MAINTAIN_CALM_NS: u64 = 250 * MS;
/// A data node that has not answered with a map, or a management node that knows no data node yet, is asked again after this, in
/// nanoseconds.
const ASK_AGAIN_NS: u64 = 100 * MS;
/// A data node that is silent so long while answers are due is asked for its map: one that is frozen says so, in nanoseconds.
const FROZEN_ASK_NS: u64 = 200 * MS;
/// Maps are not asked for more often than this because of refusals, in nanoseconds.
const REFRESH_NS: u64 = 5 * MS;
/// Nodes are told this often which outcomes are needed, in nanoseconds.
const FLOOR_NS: u64 = 1_000 * MS;

impl Core {
    /// A link to `node` at `address` shall exist.
    pub(super) fn want_node(&mut self, node: NodeId, address: &str) {
        let linked = self.is_linked(node);
        if let Some(link) =
            self.links.iter_mut().find(|l| l.node == Some(node) && (l.address == address || l.is_ready()))
        {
            link.wanted |= !linked;
            return;
        }
        if linked || address.is_empty() {
            return;
        }
        // A seed at this very address that is on its way already will turn out to be this node.
        if let Some(link) = self.links.iter_mut().find(|l| l.address == address) {
            link.wanted = true;
            return;
        }
        let idle = |l: &Link| !l.seed && !l.wanted && !l.is_open();
        if let Some(unused) = self.links.iter_mut().find(|l| idle(l)) {
            let serial = unused.serial;
            *unused = Link::new(address.to_owned(), Some(node), false);
            unused.serial = serial;
        } else if self.links.len() < LINKS_MAX {
            self.links.push(Link::new(address.to_owned(), Some(node), false));
        }
    }

    pub(super) fn maintain(&mut self) {
        let view = self.view.clone();
        let alone = self.linked_nodes().next().is_none();
        for link in &mut self.links {
            // At the address of its present process only.
            let here = |n: &ViewNode| n.address.is_empty() || n.address == link.address;
            let member = link.node.is_some_and(|n| view.is_alive(n) && view.node(n).is_some_and(here));
            link.wanted = member || link.is_ready() || if alone { link.seed || link.wanted } else { false };
        }
        for node in view.living() {
            self.want_node(node.node(), &node.address);
        }
        if self.now >= self.next_floor {
            self.next_floor = self.now + FLOOR_NS;
            self.tell_floor();
        }
        let mut calm = !alone;
        for index in 0..self.links.len() {
            calm &= self.tend(index as u16, alone);
        }
        self.next_maintain = self.now + if calm { MAINTAIN_CALM_NS } else { MAINTAIN_BUSY_NS };
    }

    /// Tells every node which outcomes are needed no more.
    fn tell_floor(&mut self) {
        let floor = TcFloor { client: self.config.client_id, floor: self.needed.floor() };
        if floor.floor == std::mem::replace(&mut self.told_floor, floor.floor) {
            return;
        }
        for n in 1..=NodeId::DATA_MAX {
            self.send(BlockRef::new(NodeId(n), BlockId::Tc, 0), Kind::TcFloorOrd, |out| floor.encode(out));
        }
    }

    /// One link; returns whether nothing is missing.
    fn tend(&mut self, index: u16, alone: bool) -> bool {
        let (now, in_flight) = (self.now, self.table.in_flight() > 0);
        let Some(link) = self.links.get_mut(usize::from(index)) else { return true };
        if link.too_late(now) {
            self.lose(index);
            return false;
        }
        if link.due(now) {
            if link.node.is_some_and(|n| self.node_links.get(usize::from(n.0)).is_some_and(|&l| l != super::NO_LINK)) {
                return true; // linked another way
            }
            let conn = ConnId { link: index, serial: link.serial };
            link.state = LinkState::Connecting { since: now };
            let address = link.address.clone();
            self.act(Action::Connect { conn, address });
            return false;
        }
        if !link.is_ready() {
            return !link.wanted;
        }
        if let Some(node) = link.data_node() {
            if !self.answers_pings(index, node) {
                return false;
            }
            let Some(link) = self.links.get(usize::from(index)) else { return true };
            let waits = in_flight && now >= link.heard.max(link.map_asked) + FROZEN_ASK_NS;
            if waits || !link.has_map && now >= link.map_asked + ASK_AGAIN_NS {
                self.ask_map(index);
            }
            return self.links.get(usize::from(index)).is_some_and(|l| l.has_map);
        }
        // A management node: asked while no data node is linked, then not needed any more.
        if !alone {
            self.lose(index);
        } else if now >= link.map_asked + ASK_AGAIN_NS {
            link.map_asked = now;
            let to = BlockRef::new(link.node.unwrap_or(NodeId(NodeId::MGMT_BASE)), BlockId::Mgmt, 0);
            self.append(index, to, Kind::ConfigReq, |out| MgmtReq { request: 0 }.encode_raw(out));
        }
        true
    }

    /// Pings a link that is silent while answers are due; gives it up when the ping is not answered either.
    fn answers_pings(&mut self, index: u16, node: NodeId) -> bool {
        let (now, in_flight) = (self.now, self.table.in_flight() > 0);
        let Some(link) = self.links.get_mut(usize::from(index)) else { return true };
        match link.pinged {
            Some(since) if now > since + PING_TIMEOUT_NS => {
                self.lose(index);
                return false;
            }
            None if in_flight && now > link.heard + SILENCE_NS => {
                link.pinged = Some(now);
                let to = BlockRef::new(node, BlockId::Link, 0);
                self.append(index, to, Kind::PingReq, |out| out.extend_from_slice(&[0; 8]));
            }
            _ => {}
        }
        true
    }

    /// Asks every linked node for its map: somebody refused because ours is old.
    pub fn refresh_map(&mut self) {
        for index in 0..self.links.len() {
            let stale = self.links.get(index).is_some_and(|l| l.is_ready() && self.now >= l.map_asked + REFRESH_NS);
            if stale {
                self.ask_map(index as u16);
            }
        }
    }
}

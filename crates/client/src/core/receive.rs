//! Bytes that came in: frames, the hello's answer, maps, answers.

use std::rc::Rc;

use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    dict::Dictionary,
    envelope::{decode_frame, frame_length},
    hello::{Hello, Role},
    mgmt::{ConfigConf, MgmtReq},
    tc::{LastWords, RequestRef},
    view::{ClusterMap, MapReq, NodeState, View},
};
use apus_types::{
    ErrorCode, NodeId,
    planted::{Bug, planted},
};
use prost::Message;

use super::{
    Core, NO_LINK,
    link::{ConnId, LinkState},
};

/// Most transactions of which it is remembered that a node panicked in their midst.
const KILLERS_MAX: usize = 64;
/// Most processes of which it is remembered that they were told to end.
const LEFT_MAX: usize = 64;

/// Only the number of the request an answer belongs to: field 1 of every control answer.
#[derive(Clone, Copy, PartialEq, Message)]
struct RequestNumber {
    #[prost(uint64, tag = "1")]
    request: u64,
}

impl Core {
    /// Bytes of a connection, in order, cut anywhere. `false`: the connection is of no use any more, close it.
    pub fn received(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let now = self.now;
        let Some(link) = self.link_of(conn) else { return false };
        link.heard(now);
        let mut input = std::mem::take(&mut link.input);
        let outcome = if input.is_empty() {
            self.frames(conn, bytes).map(|used| input.extend_from_slice(bytes.get(used..).unwrap_or(&[])))
        } else {
            input.extend_from_slice(bytes);
            self.frames(conn, &input).map(|used| {
                input.drain(..used);
            })
        };
        if outcome.is_err() {
            self.counters.violations += 1;
            self.lose(conn.link);
            return false;
        }
        let Some(link) = self.link_of(conn) else { return false };
        if input.is_empty() && input.capacity() > 1 << 20 {
            input = Vec::new();
        }
        link.input = input;
        true
    }

    /// Executes all whole frames; returns how many bytes they were.
    fn frames(&mut self, conn: ConnId, bytes: &[u8]) -> Result<usize, DecodeError> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(length) = frame_length(rest)?
        {
            let Some(frame) = rest.get(..length) else { break };
            self.frame(conn, frame)?;
            at += length;
        }
        Ok(at)
    }

    #[inline]
    fn frame(&mut self, conn: ConnId, frame: &[u8]) -> Result<(), DecodeError> {
        let (envelope, body) = decode_frame(frame)?;
        let Some(link) = self.link_of(conn) else { return Ok(()) };
        if !link.is_ready() {
            return Err(DecodeError);
        }
        if envelope.epoch > self.epoch {
            self.epoch = envelope.epoch;
        }
        if self.is_outdated(conn.link, envelope.generation) {
            self.counters.outdated += 1;
            self.lose(conn.link);
            return Ok(());
        }
        if envelope.kind == Kind::TcBatchConf {
            self.generation = self.generation.max(envelope.generation);
        }
        self.note_frozen(conn.link, envelope.kind, body);
        let request = match envelope.kind {
            Kind::ReadConf
            | Kind::TcBatchConf
            | Kind::ScanConf
            | Kind::TcCommitConf
            | Kind::TcRollbackConf
            | Kind::TcOutcomeConf
            | Kind::SnapshotConf
            | Kind::RequestRef
            | Kind::TcBatchRef
            | Kind::DictReadRef
            | Kind::SchemaRef => u64::from_le_bytes(*body.first_chunk::<8>().ok_or(DecodeError)?),
            Kind::MapConf | Kind::MapRep => return self.map_arrived(conn, body),
            Kind::SchemaRep => {
                let announced = Dictionary::decode(body).map_err(|_| DecodeError)?;
                self.schema_version = self.schema_version.max(announced.version);
                return Ok(());
            }
            Kind::LastWordsRep => return self.last_words(conn, body),
            Kind::ConfigConf => return self.config_arrived(body),
            Kind::PingConf => return Ok(()),
            Kind::ConfigRef => return RequestRef::decode(body).map(|_| ()),
            Kind::DictReadConf | Kind::SchemaConf | Kind::NodeStatusConf | Kind::StatusConf => {
                RequestNumber::decode(body).map_err(|_| DecodeError)?.request
            }
            _ => return Err(DecodeError),
        };
        self.counters.answers += 1;
        self.table.answer(request, conn.link, envelope.kind, body).map_err(|_| DecodeError)
    }

    /// A node that refuses as one that is frozen is, until it serves something.
    #[inline]
    fn note_frozen(&mut self, index: u16, kind: Kind, body: &[u8]) {
        let (now, Some(link)) = (self.now, self.links.get_mut(usize::from(index))) else { return };
        match kind {
            Kind::RequestRef if RequestRef::decode(body).is_ok_and(|r| r.code == ErrorCode::Frozen) => {
                link.frozen = Some((link.frozen.map_or(now, |(since, _)| since), now));
            }
            Kind::ReadConf
            | Kind::TcBatchConf
            | Kind::ScanConf
            | Kind::TcCommitConf
            | Kind::SnapshotConf
            | Kind::MapConf
            | Kind::MapRep => link.frozen = None,
            _ => {}
        }
    }

    /// The node panics in the midst of what we asked for. A read ends here; of a batch its outcome has to be asked first.
    fn last_words(&mut self, conn: ConnId, body: &[u8]) -> Result<(), DecodeError> {
        let words = LastWords::decode(body)?;
        if words.trans.is_none() {
            let mut refusal = Vec::new();
            let detail = b"a data node panicked in the midst of it";
            RequestRef { detail, ..RequestRef::new(words.request, ErrorCode::StatementEndsNodes) }.encode(&mut refusal);
            return self.table.answer(words.request, conn.link, Kind::RequestRef, &refusal).map_err(|_| DecodeError);
        }
        if self.killers.len() >= KILLERS_MAX {
            self.killers.pop_front();
        }
        self.killers.push_back(words.trans);
        Ok(())
    }

    /// Somebody who knows an older view than ours, in which he has no place any more, says this. His clocks may have stood still since
    /// (a snapshot of a virtual machine): he thinks that he has his lease, and reads what was true then.
    #[inline]
    fn is_outdated(&self, link: u16, generation: u32) -> bool {
        u64::from(generation) < self.view.generation && self.is_removed(link, generation)
    }
    #[cold]
    fn is_removed(&self, link: u16, generation: u32) -> bool {
        // Where all links were lost the cluster may be another one by now, or begin again.
        let may_be_new = self.map_stale && (generation == 0 || self.cluster != self.view.cluster);
        let link = self.links.get(usize::from(link)).and_then(|link| Some((link.data_node()?, link.incarnation)));
        let Some((node, incarnation)) = link.filter(|_| !planted(Bug::AnswerOfRemoved) && !may_be_new) else {
            return false;
        };
        // A cluster that starts from disks that lost its last views begins below them.
        let is_of_newer_lineage = generation > 0 && self.view.node(node).is_some_and(|n| n.incarnation < incarnation);
        !is_of_newer_lineage && !self.view.is_member(node, incarnation)
    }

    /// The other side has proven `hello` and let us in. `false`: close the connection.
    pub fn admitted(&mut self, conn: ConnId, hello: &Hello) -> bool {
        let taken = self.take_in(conn, hello);
        if taken.is_err() {
            self.counters.violations += 1;
            self.lose(conn.link);
        }
        self.link_of(conn).is_some()
    }

    fn take_in(&mut self, conn: ConnId, hello: &Hello) -> Result<(), DecodeError> {
        let node = NodeId(u16::try_from(hello.node).map_err(|_| DecodeError)?);
        let own = NodeId(u16::try_from(hello.peer).map_err(|_| DecodeError)?);
        let role = Role::try_from(hello.role).map_err(|_| DecodeError)?;
        if !matches!(role, Role::Data | Role::Mgmt) || (role == Role::Data) != node.is_data() {
            return Err(DecodeError);
        }
        let (stale, cluster) = (self.map_stale, self.cluster);
        let taken = self.node_links.get(usize::from(node.0)).is_some_and(|&l| l != NO_LINK);
        let Some(link) = self.link_of(conn) else { return Ok(()) };
        if !matches!(link.state, LinkState::Hello { .. }) {
            return Err(DecodeError);
        }
        let believed = cluster == 0 || (link.seed && stale);
        let unexpected = link.node.is_some_and(|n| n != node) && !link.seed;
        let foreign = role == Role::Data && hello.cluster != cluster && !believed;
        if (role == Role::Data && taken) || unexpected || foreign {
            // A second way to a node that is linked, or another node lives there now.
            link.wanted = false;
            self.lose(conn.link);
            return Ok(());
        }
        link.role = Some(role);
        link.node = Some(node);
        link.own = own;
        link.incarnation = hello.incarnation;
        link.ready();
        if role == Role::Data {
            if hello.cluster != 0 {
                self.cluster = hello.cluster;
            }
            self.node_links[usize::from(node.0)] = conn.link;
            self.ask_map(conn.link);
            self.announce_change();
        } else {
            let to = BlockRef::new(node, BlockId::Mgmt, 0);
            self.append(conn.link, to, Kind::ConfigReq, |out| MgmtReq { request: 0 }.encode_raw(out));
        }
        Ok(())
    }

    pub(super) fn ask_map(&mut self, index: u16) {
        let now = self.now;
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        let Some(node) = link.data_node() else { return };
        link.map_asked = now;
        let to = BlockRef::new(node, BlockId::Dih, 0);
        self.append(index, to, Kind::MapReq, |out| MapReq { request: 0 }.encode_raw(out));
    }

    /// The newest generation wins. An older one, after all links were lost, replaces what is known only while nobody else is linked
    /// who could contradict.
    fn map_arrived(&mut self, conn: ConnId, body: &[u8]) -> Result<(), DecodeError> {
        let map = ClusterMap::decode(body).map_err(|_| DecodeError)?;
        let Some(view) = map.view else { return Ok(()) };
        let view = View::from_bytes(&view.encode_to_vec())?;
        if let Some(link) = self.link_of(conn) {
            link.has_map = true;
        }
        if view.chains.is_empty() {
            return Ok(());
        }
        if self.cluster != 0 && view.cluster != self.cluster {
            self.lose(conn.link);
            return Ok(());
        }
        self.cluster = view.cluster;
        self.schema_version =
            if self.map_stale { map.schema_version } else { self.schema_version.max(map.schema_version) };
        let is_older = view.cluster == self.view.cluster && view.point() < self.view.point();
        if is_older && !self.view.chains.is_empty() {
            // So ours is of the cluster that is there, whoever else is linked.
            self.map_stale = false;
            if self.is_removed(conn.link, 0) {
                self.lose(conn.link);
            }
            return Ok(());
        }
        if !self.map_stale && view.point() <= self.view.point() {
            return Ok(());
        }
        self.counters.maps += 1;
        if self.map_stale {
            self.generation = 0; // perhaps a cluster that begins anew
        }
        self.map_stale = false;
        for left in view.nodes.iter().filter(|n| n.left).map(|n| (n.node(), n.incarnation)) {
            if !self.left.contains(&left) {
                self.left.truncate(LEFT_MAX - 1);
                self.left.push_front(left);
            }
        }
        self.view = Rc::new(view);
        self.announce_change();
        let gone: Vec<u16> = self
            .linked_nodes()
            .filter(|&n| self.is_replaced(n) && !planted(Bug::AnswerOfRemoved))
            .map(|n| self.node_links[usize::from(n.0)])
            .collect();
        for link in gone {
            self.lose(link);
        }
        Ok(())
    }

    /// The process that is linked has no place in the view; one that is younger than the view's may get it.
    fn is_replaced(&self, node: NodeId) -> bool {
        let member = self.view.node(node).filter(|n| n.state() != NodeState::Down);
        member.is_none_or(|n| self.incarnation(node).is_some_and(|linked| linked < n.incarnation))
    }

    fn config_arrived(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        let config = ConfigConf::decode(body).map_err(|_| DecodeError)?.config.unwrap_or_default();
        if self.map_stale && config.cluster != 0 {
            self.cluster = config.cluster;
        }
        for node in config.nodes {
            let id = u16::try_from(node.id).map(NodeId).map_err(|_| DecodeError)?;
            if id.is_data() && !node.address.is_empty() {
                self.want_node(id, &node.address);
            }
        }
        self.next_maintain = 0;
        self.wake_driver();
        Ok(())
    }
}

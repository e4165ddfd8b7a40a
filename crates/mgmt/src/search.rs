//! The arbitrator of a SQL node: it is the arbitrator of a management node without the rest, and finds the data nodes by itself.
//!
//! A management node is found by everybody; a SQL node finds the data nodes and begins the links. It asks the management nodes for their addresses, and
//! hears them from the members, who tell it each view. It keeps them in its file, so that it finds the members again while no management
//! node runs. It hands out no configuration, takes nothing from operators, and grants no start. Which cluster it belongs to it believes of members only.

use apus_kernel::Context;
use apus_signal::{
    BlockId, BlockRef, Kind,
    mgmt::{ClusterConfig, ConfigConf, ConfigNode, MgmtReq, RegisterRep},
    qmgr::encode,
    view::View,
};
use apus_types::NodeId;

use crate::{
    Management, Memory, MgmtConfig,
    kept::{Member, Promise},
};

/// A management node is asked for addresses this often; while a link is missing, more often.
const ASK_NS: u64 = 1_000_000_000;
const ASK_SOON_NS: u64 = 100_000_000;

/// What a SQL node's arbitrator does besides.
pub(crate) struct Search {
    /// Management nodes and their addresses, where the executor does not know them.
    mgmts: Vec<(NodeId, String)>,
    asked_at: Option<u64>,
    has_begun: bool,
}

impl MgmtConfig {
    /// Of a SQL node that may arbitrate, with what it kept. `incarnation`: of this process.
    pub fn arbitrator(node: NodeId, incarnation: u64, kept: Option<Promise>) -> MgmtConfig {
        let member = |m: &Member| ConfigNode {
            id: m.node,
            address: m.address.clone(),
            incarnation: m.incarnation,
            ..ConfigNode::default()
        };
        let nodes = kept.iter().flat_map(|k| &k.members).map(member).collect();
        let cluster = kept.as_ref().map_or(0, |k| k.cluster);
        MgmtConfig {
            node,
            cluster: ClusterConfig { cluster, nodes, ..ClusterConfig::default() },
            incarnation,
            may_adopt: cluster == 0,
            found_again: false,
            memory: Memory::File(kept),
            mgmts: Vec::new(),
        }
    }
}

impl Search {
    /// `None`: a management node, which searches nothing.
    pub(crate) fn new(config: &MgmtConfig) -> Option<Search> {
        let search = Search { mgmts: config.mgmts.clone(), asked_at: None, has_begun: false };
        config.node.is_sql_arbitrator().then_some(search)
    }
}

impl Management {
    /// A SQL node that arbitrates takes nothing of this kind from anybody.
    pub(crate) fn is_foreign(&self, kind: Kind) -> bool {
        let is_of_manager = matches!(
            kind,
            Kind::ConfigReq
                | Kind::StatusReq
                | Kind::SettingReq
                | Kind::ClusterStopReq
                | Kind::ResumeReq
                | Kind::ResumeRep
        );
        if self.search.is_some() { is_of_manager } else { kind == Kind::ConfigConf }
    }

    pub(crate) fn tick_search(&mut self, ctx: &mut Context<'_>) {
        let Some(search) = &mut self.search else { return };
        if !std::mem::replace(&mut search.has_begun, true) {
            for (node, address) in &search.mgmts {
                ctx.connect_to(*node, address);
            }
            for node in &self.config.nodes {
                ctx.connect_to(NodeId(node.id as u16), &node.address);
            }
        }
        let nodes = &self.config.nodes;
        let is_met = !nodes.is_empty() && nodes.iter().all(|n| self.links.contains_key(&NodeId(n.id as u16)));
        let pause = if is_met { ASK_NS } else { ASK_SOON_NS };
        if search.asked_at.is_none_or(|at| ctx.now().saturating_sub(at) >= pause) {
            search.asked_at = Some(ctx.now());
            for node in self.links.keys().filter(|n| n.is_mgmt()) {
                let to = BlockRef::new(*node, BlockId::Mgmt, 0);
                ctx.send(to, Kind::ConfigReq, |b| encode(&MgmtReq { request: 0 }, b));
            }
        }
    }

    pub(crate) fn on_config(&mut self, conf: ConfigConf, ctx: &mut Context<'_>) {
        let Some(config) = conf.config else { return };
        if !self.may_adopt && config.cluster != self.config.cluster {
            return;
        }
        for node in config.nodes {
            self.note_place(node.id, node.incarnation, &node.address, ctx);
        }
    }

    /// A data node told its place itself.
    pub(crate) fn note_registered(&mut self, rep: &RegisterRep, ctx: &mut Context<'_>) {
        if self.search.is_some() {
            self.note_place(rep.node, rep.incarnation, &rep.address, ctx);
            for node in rep.view.iter().flat_map(View::living) {
                self.note_place(node.id, node.incarnation, &node.address, ctx);
            }
        }
    }

    fn note_place(&mut self, id: u32, incarnation: u64, address: &str, ctx: &mut Context<'_>) {
        let Some(node) = u16::try_from(id).ok().map(NodeId).filter(|n| n.is_data() && !address.is_empty()) else {
            return;
        };
        let at = self.config.nodes.iter().position(|n| n.id == id).unwrap_or_else(|| {
            self.config.nodes.push(ConfigNode { id, ..ConfigNode::default() });
            self.config.nodes.len() - 1
        });
        let known = &mut self.config.nodes[at];
        if incarnation > known.incarnation || known.address.is_empty() {
            known.incarnation = incarnation;
            if known.address != address {
                address.clone_into(&mut known.address);
                ctx.connect_to(node, address);
            }
        }
    }

    /// What the file is to say of the places of data nodes.
    pub(crate) fn places(&self) -> Vec<Member> {
        let member = |n: &ConfigNode| Member { node: n.id, incarnation: n.incarnation, address: n.address.clone() };
        let kept = self.config.nodes.iter().filter(|_| self.search.is_some());
        kept.map(member).collect()
    }
}

//! From a process to a member: configuration, links, the first start of a cluster, joining one that runs.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    mgmt::{ClusterConfig, ConfigConf, Fences, MgmtReq},
    qmgr::{ArbitConf, ArbitReq, Incarnation, JoinAnswer, JoinReq, ViewCommit, encode},
    view::View,
};
use apus_types::{
    ErrorCode, NodeId,
    planted::{Bug, planted},
};

use super::{Change, JOIN_RETRY_NS, MS, Membership, Phase, layout::Candidate};

/// A candidate that has not asked for so long is not counted on.
const CANDIDATE_NS: u64 = 10 * JOIN_RETRY_NS;
/// A node that may only join says after so long that it found no cluster.
const REJOIN_PATIENCE_NS: u64 = 5000 * MS;
/// What a starting node waits for is logged again after this.
const STATE_AGAIN_NS: u64 = 10_000 * MS;

/// A replica of a partition is at the same instance on every node, and speaks to that of the others.
const SAME_WORKERS: &str = "all data nodes and management nodes of a cluster have the same number; to change it end the cluster (apus cluster stop) and start all of them with the new --workers";
const OTHER_WORKERS: &str = "the node has another number of workers than the members of the cluster: start it with theirs; to change the number end the cluster (apus cluster stop) and start all data and management nodes with the new --workers";
const FOUNDED_BEFORE: &str = "the cluster was founded before, and no member of it is here: this node founds no other. If no node holds the data any \
                              more, start the management nodes once with --found-again (end `apus dev` and start it again), and the data nodes \
                              found the cluster again, empty";

#[derive(Default)]
pub(super) struct Start {
    /// Other starting nodes and when they were heard last.
    candidates: BTreeMap<NodeId, (Candidate, u64)>,
    /// To whom they have links.
    linked: BTreeMap<NodeId, Vec<Incarnation>>,
    /// Addresses that links were asked for.
    dialled: BTreeMap<NodeId, String>,
    /// What the file of each management node says.
    pub(super) fences: BTreeMap<NodeId, Fences>,
    /// When the configuration was known.
    configured_at: Option<u64>,
    last_ask: Option<u64>,
    /// Whose dictionary DICT has.
    dictionary: Option<JoinAnswer>,
    /// Whose dictionary DICT is copying.
    copying: Option<JoinAnswer>,
    /// Open question to the arbitrator: a start with these nodes only.
    question: Option<(u64, BTreeSet<NodeId>)>,
    /// A member has answered: there is a cluster, so none is founded without all configured nodes.
    pub(super) has_met_member: bool,
    /// What it waits for, as it was logged last, and when: by who said so (`None`: this node).
    stated: BTreeMap<Option<NodeId>, (String, u64)>,
}

impl Start {
    /// So long the configuration has been known.
    pub(super) fn configured_for(&self, now: u64) -> u64 {
        self.configured_at.map_or(0, |since| now.saturating_sub(since))
    }
}

impl Membership {
    pub(super) fn tick_starting(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        if self.start.last_ask.is_some_and(|t| now.saturating_sub(t) < JOIN_RETRY_NS) {
            return;
        }
        self.register(ctx);
        self.ask_config(ctx);
        self.ask_to_join(ctx);
        self.try_first_start(ctx);
    }

    /// A node with a lower id that starts again may have another address: a member asks for it as long as one is missing. So does one that has
    /// become a member before it knew the configuration: what it had on disk was enough.
    pub(super) fn look_for_absent(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let asked_lately = self.start.last_ask.is_some_and(|t| now.saturating_sub(t) < JOIN_RETRY_NS);
        let absent = |n: &apus_signal::mgmt::ConfigNode| {
            let id = NodeId(n.id as u16);
            id < self.me && !self.is_linked(id)
        };
        if !asked_lately && self.config.as_ref().is_none_or(|config| config.nodes.iter().any(absent)) {
            self.start.last_ask = Some(now);
            self.ask_config(ctx);
        }
    }

    /// SQL nodes that arbitrate know no configuration.
    fn ask_config(&self, ctx: &mut Context<'_>) {
        self.tell_some_managers(NodeId::is_mgmt, Kind::ConfigReq, &MgmtReq { request: 0 }, ctx);
    }

    pub(super) fn on_config(&mut self, from: NodeId, conf: ConfigConf, ctx: &mut Context<'_>) {
        let Some(config) = conf.config else { return };
        match config.fences.clone().filter(|fences| fences.arbitrator == u32::from(from.0)) {
            Some(fences) => self.start.fences.insert(from, fences),
            None => self.start.fences.remove(&from),
        };
        match (self.contradiction(&config), self.phase) {
            (None, _) => {}
            (Some(wrong), Phase::Member) => {
                // What it holds may be the last copy.
                let text = format!("what a management node says of the cluster is ignored: {wrong}");
                return self.state(None, &text, ctx);
            }
            (Some(wrong), _) => return self.stop(ctx, &wrong),
        }
        self.start.configured_at.get_or_insert(ctx.now());
        for node in config.nodes.iter().filter(|n| !n.address.is_empty()) {
            let id = NodeId(node.id as u16);
            // The higher id begins a link, member or not, so that two nodes never have two; either goes on with it.
            if id != self.me && self.start.dialled.get(&id) != Some(&node.address) {
                ctx.connect_to(id, &node.address);
                self.start.dialled.insert(id, node.address.clone());
            }
        }
        ctx.set_cluster(config.cluster);
        // Of two management nodes one may have forgotten.
        let founded = self.config.as_ref().map_or(0, |known| known.founded).max(config.founded);
        self.config = Some(ClusterConfig { founded, ..config });
    }

    /// Why this node cannot be one of the cluster that a configuration is of.
    fn contradiction(&self, config: &ClusterConfig) -> Option<String> {
        if let Some(cluster) = self.view.as_ref().map(|v| v.cluster).filter(|c| *c != config.cluster) {
            return Some(format!("it is of cluster {:x}, not {cluster:x}", config.cluster));
        }
        let in_range = |n: u32| (1..=u32::from(NodeId::DATA_MAX)).contains(&n);
        if !config.nodes.iter().any(|n| n.id == u32::from(self.me.0)) || !config.nodes.iter().all(|n| in_range(n.id)) {
            return Some("the configuration does not know this node, or has an impossible node id".to_owned());
        }
        (config.instances != u32::from(self.instances)).then(|| {
            format!(
                "this node has {} workers, the configuration says {}: {SAME_WORKERS}",
                self.instances, config.instances
            )
        })
    }

    /// Members with higher ids have dialled us; we dial them to go on with a link whose connection was lost. The configuration may not be
    /// asked for again when they have another address.
    pub(super) fn dial_members(&mut self, view: &View, ctx: &mut Context<'_>) {
        for member in view.living().filter(|n| n.node() > self.me && !n.address.is_empty()) {
            if self.start.dialled.get(&member.node()) != Some(&member.address) {
                ctx.connect_to(member.node(), &member.address);
                self.start.dialled.insert(member.node(), member.address.clone());
            }
        }
    }

    /// Asks everyone we have links to.
    pub(super) fn ask_to_join(&mut self, ctx: &mut Context<'_>) {
        self.start.last_ask = Some(ctx.now());
        if !self.has_looked() {
            return; // what is on the disk is part of the question
        }
        let configured = self.config.as_ref().map(|c| c.cluster);
        let Some(cluster) = configured.or_else(|| self.cluster_before(ctx)) else { return };
        let linked: Vec<NodeId> = self.links.iter().map(|(n, _)| n).filter(|n| self.is_linked(*n)).collect();
        let stands = |n: &&NodeId| self.links.get(**n).is_some_and(|l| l.stands_there);
        let from = self.start.dictionary.as_ref();
        let (restored, restored_lineage) = self.put_back();
        let req = JoinReq {
            node: self.me.0.into(),
            incarnation: self.incarnation,
            address: self.address.clone(),
            instances: self.instances.into(),
            cluster,
            linked: linked.iter().filter(stands).filter_map(|n| self.process_of(*n)).collect(),
            dictionary_from: from.map_or(0, |d| d.president),
            dictionary_incarnation: from.map_or(0, |d| d.president_incarnation),
            rejoins: self.rejoins || !self.may_found(),
            speaks_for: self.speaks_for(),
            holding: self.holding(),
            restored,
            restored_lineage,
        };
        for node in linked {
            self.send(ctx, node, Kind::JoinReq, &req);
        }
    }

    /// That our link to the node leads to.
    fn process_of(&self, node: NodeId) -> Option<Incarnation> {
        self.links.get(node).map(|l| Incarnation::of(node, l.incarnation))
    }

    /// Only who has all links to us asks us to let it in, or answers. Who is let in before a member has all links to it is held for failed by that member: so
    /// what we tell of our links are those that stand at both ends (simulator seed 10001855). When the last end has answered we need not wait to ask again.
    fn note_stands_there(&mut self, from: NodeId, ctx: &mut Context<'_>) {
        let Some(link) = self.links.get_mut(from) else { return };
        let is_new = !std::mem::replace(&mut link.stands_there, true);
        let is_whole = self.links.iter().filter(|(n, _)| self.is_linked(*n)).all(|(_, l)| l.stands_there);
        if is_new && is_whole && self.phase == Phase::Starting {
            self.ask_to_join(ctx);
        }
    }

    /// Where no management node is there to tell it: the cluster of the process that we speak for, whose members are looked for at the
    /// addresses that it knew. We join when there is a configuration.
    fn cluster_before(&mut self, ctx: &mut Context<'_>) -> Option<u64> {
        let known = self.keeper.before.as_ref()?.committed.as_ref()?;
        // The higher id dials.
        for node in known.living().filter(|n| n.node() < self.me) {
            if self.start.dialled.get(&node.node()) != Some(&node.address) {
                ctx.connect_to(node.node(), &node.address);
                self.start.dialled.insert(node.node(), node.address.clone());
            }
        }
        Some(known.cluster)
    }

    // ---- joining

    pub(super) fn on_join_req(&mut self, from: NodeId, req: JoinReq, ctx: &mut Context<'_>) {
        self.note_stands_there(from, ctx);
        let is_peer = self.is_linked(from) && self.links.get(from).is_some_and(|l| l.incarnation == req.incarnation);
        if req.node != u32::from(from.0) || !is_peer {
            jam!(ctx); // not all of its links stand yet: it asks again
            return;
        }
        self.note_on_disk(from, &req, ctx);
        let is_ours = self.view.as_ref().is_some_and(|view| view.lineage == req.restored_lineage);
        let restored = if is_ours { req.restored } else { 0 };
        let candidate = Candidate { incarnation: req.incarnation, address: req.address.clone(), restored };
        let Some(view) = &self.view else {
            if req.instances != u32::from(self.instances) {
                let text = format!("it has {} workers and this node {}: {SAME_WORKERS}", req.instances, self.instances);
                return self.state(Some(from), &text, ctx);
            }
            self.note_holding(from, req.incarnation, req.holding.clone());
            if !req.rejoins || req.holding.is_some() {
                self.start.candidates.insert(from, (candidate, ctx.now()));
                self.start.linked.insert(from, req.linked.clone());
                self.try_first_start(ctx);
            }
            return;
        };
        if let Some(known) = view.node(from).filter(|_| view.is_alive(from)) {
            let (old, current) = (known.incarnation, ViewCommit { view: Some(view.clone()) });
            if old == req.incarnation {
                self.send(ctx, from, Kind::ViewCommitOrd, &current);
            } else {
                self.refuse_successor(from, ctx);
                self.mark_failed(from, old, super::Loss::Seen("it has started anew"), ctx);
            }
            return;
        }
        if view.node(from).is_some_and(|n| n.incarnation == req.incarnation) {
            // It was let in and removed without noticing either. What was sent to it as a member may still wait in it.
            ctx.probe("qmgr: a removed process asks to join");
            self.stop_removed(from, req.incarnation, ctx);
            return;
        }
        let president = self.acting_president().unwrap_or(self.me);
        let mut answer = JoinAnswer { president: president.0.into(), ..JoinAnswer::default() };
        let configured = self.config.as_ref().is_none_or(|c| c.nodes.iter().any(|n| n.id == req.node));
        let refusal = if req.cluster != view.cluster {
            Some((ErrorCode::WrongCluster, "the node belongs to another cluster"))
        } else if req.instances != view.instances {
            Some((ErrorCode::NotSupported, OTHER_WORKERS))
        } else if !configured {
            Some((ErrorCode::NotSupported, "the node is not configured"))
        } else if self.config.is_none() {
            Some((ErrorCode::NodeStarting, "this member does not know the configuration yet"))
        } else if !self.has_all_links(&req, view) {
            Some((ErrorCode::NodeStarting, "the node has not yet a link to every member"))
        } else {
            None
        };
        if let Some((code, reason)) = refusal {
            answer.error = code as u32;
            answer.reason = reason.to_owned();
        }
        if refusal.is_some() || president != self.me {
            self.send(ctx, from, Kind::JoinRef, &answer);
            return;
        }
        answer.president_incarnation = self.incarnation;
        (answer.lineage, answer.generation) = view.point();
        ctx.accept_from(from, req.incarnation, true);
        let has_copy = req.dictionary_from == answer.president && req.dictionary_incarnation == self.incarnation;
        if !has_copy && !planted(Bug::JoinWithoutDictionary) {
            self.send(ctx, from, Kind::JoinConf, &answer);
            return;
        }
        self.joining.insert(from, candidate);
        self.drive(ctx);
    }

    /// To the processes that are members now, not to those before them: power that fails closes no connection.
    fn has_all_links(&self, req: &JoinReq, view: &View) -> bool {
        let live =
            self.survivors().into_iter().filter_map(|n| view.node(n)).map(|n| Incarnation::of(n.node(), n.incarnation));
        // Who is let in at the same time, or a moment before, is a member by then.
        let come = self.joining.iter().map(|(n, c)| Incarnation::of(*n, c.incarnation));
        live.chain(come).all(|process| process.node == req.node || req.linked.contains(&process))
    }

    /// The process before this one is still a member.
    pub(super) fn refuse_successor(&mut self, from: NodeId, ctx: &mut Context<'_>) {
        let account = self.account();
        let frozen = if account.is_empty() { account } else { format!(", and is frozen: {account}") };
        let answer = JoinAnswer {
            president: self.acting_president().map_or(0, |p| p.0.into()),
            error: ErrorCode::NodeStarting as u32,
            reason: format!("the cluster still counts on the process before this one{frozen}"),
            ..JoinAnswer::default()
        };
        self.send(ctx, from, Kind::JoinRef, &answer);
    }

    /// The president admits us as soon as we have its dictionary; before that we put back what is on our disk, if that is of use. Gates are opened to all before DICT tells the workers of any
    /// table, so that they stand open on every worker before we are a member.
    pub(super) fn on_join_conf(&mut self, from: NodeId, answer: JoinAnswer, ctx: &mut Context<'_>) {
        self.note_stands_there(from, ctx);
        let wanted = self.phase == Phase::Starting && self.config.is_some() && answer.president == u32::from(from.0);
        if !wanted || self.start.copying.as_ref() == Some(&answer) || self.start.dictionary.as_ref() == Some(&answer) {
            return;
        }
        self.start.has_met_member = true;
        for (node, link) in self.links.iter() {
            ctx.accept_from(node, link.incarnation, true);
        }
        if self.puts_back(&answer, ctx) {
            return;
        }
        let dict = BlockRef::new(self.me, BlockId::Dict, 0);
        ctx.send(dict, Kind::JoinConf, |b| encode(&answer, b));
        self.start.copying = Some(answer);
    }

    /// From our own DICT.
    pub(super) fn on_dictionary_copied(&mut self, answer: JoinAnswer, ctx: &mut Context<'_>) {
        if self.phase == Phase::Starting && self.start.copying.as_ref() == Some(&answer) {
            self.start.copying = None;
            self.start.dictionary = Some(answer);
            self.ask_to_join(ctx);
        }
    }

    pub(super) fn on_join_ref(&mut self, from: NodeId, answer: &JoinAnswer, ctx: &mut Context<'_>) {
        if self.phase != Phase::Starting {
            return;
        }
        self.note_stands_there(from, ctx);
        self.start.has_met_member = true;
        let fatal = [ErrorCode::WrongCluster as u32, ErrorCode::NotSupported as u32].contains(&answer.error);
        if fatal {
            self.stop(ctx, &format!("node {from} refuses: {}", answer.reason));
        } else if !answer.reason.is_empty() {
            self.state(Some(from), &answer.reason, ctx);
        }
    }

    // ---- first start

    /// Starting nodes that can be counted on, ourselves included.
    fn candidates(&self, now: u64) -> BTreeMap<NodeId, Candidate> {
        let fresh = |n: &NodeId, (c, heard): &(Candidate, u64)| {
            now.saturating_sub(*heard) < CANDIDATE_NS
                && self.is_linked(*n)
                && self.links.get(*n).is_some_and(|l| l.incarnation == c.incarnation)
        };
        let mut all: BTreeMap<NodeId, Candidate> =
            self.start.candidates.iter().filter(|(n, c)| fresh(n, c)).map(|(n, c)| (*n, c.0.clone())).collect();
        all.insert(self.me, Candidate { incarnation: self.incarnation, address: self.address.clone(), restored: 0 });
        all
    }

    fn try_first_start(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let (Some(config), Some(since)) = (&self.config, self.start.configured_at) else { return };
        if self.phase != Phase::Starting || self.change.is_some() {
            return;
        }
        let candidates = self.candidates(now);
        if self.must_restart(&candidates, config) {
            let config = config.clone();
            self.try_restart(&candidates, &config, ctx);
            return;
        }
        if self.rejoins {
            self.say_that_it_waits(now.saturating_sub(since), ctx);
            return;
        }
        if !self.may_found() {
            if now.saturating_sub(since) > REJOIN_PATIENCE_NS {
                self.state(None, FOUNDED_BEFORE, ctx);
            }
            return;
        }
        let are_linked = candidates.keys().all(|a| candidates.keys().all(|b| self.starters_are_linked(*a, *b)));
        if candidates.keys().next() != Some(&self.me) || !are_linked {
            return;
        }
        if config.nodes.iter().all(|n| candidates.contains_key(&NodeId(n.id as u16))) {
            self.propose_first(&candidates, ctx);
            return;
        }
        let groups: BTreeSet<u32> = config.nodes.iter().map(|n| n.group).collect();
        let covered: BTreeSet<u32> =
            config.nodes.iter().filter(|n| candidates.contains_key(&NodeId(n.id as u16))).map(|n| n.group).collect();
        let patience = u64::from(config.start_partial_timeout_ms) * MS;
        if covered != groups || now.saturating_sub(since) < patience || self.start.has_met_member {
            return;
        }
        let name = |(n, c): (&NodeId, &Candidate)| Incarnation::of(*n, c.incarnation);
        let absent = config.nodes.iter().filter(|n| !candidates.contains_key(&NodeId(n.id as u16)));
        let question = ctx.random();
        let req = ArbitReq {
            cluster: config.cluster,
            generation: 0,
            asker: Some(self.own()),
            side: candidates.iter().map(name).collect(),
            others: absent.map(|n| Incarnation { node: n.id, incarnation: n.incarnation }).collect(),
            question,
            arbitrator_incarnation: 0,
            promise_ns: 0,
            lineage: 0,
            without_others: false,
        };
        let Some(arbitrator) = self.start_arbitrator() else { return };
        self.start.question = Some((question, candidates.into_keys().collect()));
        ctx.send(Self::mgmt_of(arbitrator), Kind::ArbitReq, |b| encode(&req, b));
    }

    /// As far as they have said.
    pub(super) fn starters_are_linked(&self, a: NodeId, b: NodeId) -> bool {
        let process = if b == self.me { Some(self.own()) } else { self.process_of(b) };
        let are_linked = |all: &Vec<Incarnation>| process.is_some_and(|p| all.contains(&p));
        a == b || a == self.me || self.start.linked.get(&a).is_some_and(are_linked)
    }

    /// Once, when it has taken longer than a start takes.
    fn say_that_it_waits(&mut self, waited: u64, ctx: &mut Context<'_>) {
        let text = "waits for the cluster that it was a member of. If no member of a node group is left, the data is gone: end all data \
                    nodes and start them anew, under management nodes that are started with --found-again";
        if waited > REJOIN_PATIENCE_NS {
            self.state(None, text, ctx);
        }
    }

    /// Tells people what it waits for: when that is something else, and at times. Several members say different things in turn.
    pub(super) fn state(&mut self, by: Option<NodeId>, text: &str, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let is_old = |(said, at): &(String, u64)| said != text || now.saturating_sub(*at) >= STATE_AGAIN_NS;
        if self.start.stated.get(&by).is_none_or(is_old) {
            match by {
                Some(node) => ctx.log(format_args!("node {node}: {text}")),
                None => ctx.log(format_args!("{text}")),
            }
            self.start.stated.insert(by, (text.to_owned(), now));
        }
    }

    /// Nobody remembers an earlier founding, or an operator has given it up.
    fn may_found(&self) -> bool {
        self.config.as_ref().is_some_and(|c| c.may_found_after(self.keeper.founded))
    }

    pub(super) fn on_start_granted(&mut self, conf: ArbitConf, ctx: &mut Context<'_>) {
        let Some((question, nodes)) = self.start.question.take() else { return };
        if question != conf.question {
            self.start.question = Some((question, nodes));
            return;
        }
        if !conf.granted {
            ctx.log(format_args!("waits for the other nodes: {}", conf.reason));
            return;
        }
        let mut candidates = self.candidates(ctx.now());
        candidates.retain(|n, _| nodes.contains(n));
        if candidates.len() == nodes.len() && self.change.is_none() {
            self.propose_first(&candidates, ctx);
        }
    }

    /// A link of `node` closed.
    pub(super) fn start_lost(&mut self, node: NodeId, ctx: &mut Context<'_>) {
        self.start.candidates.remove(&node);
        self.joining.remove(&node);
        if self.start.copying.as_ref().is_some_and(|c| c.president == u32::from(node.0)) {
            self.start.copying = None;
        }
        if self.phase == Phase::Starting {
            self.restart_lost(node, ctx);
            // Whoever proposes while it starts proposes a first view.
            if self.change.as_ref().is_some_and(|c: &Change| c.waits_for(node)) {
                jam!(ctx);
                self.change = None;
            }
        } else {
            self.drive(ctx);
        }
    }
}

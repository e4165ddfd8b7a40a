//! System restart: the first view of a cluster that begins again with what is on the disks. `apus_signal::restart` has the messages.
//!
//! ```text
//! process: Reading (its LDMs their logs) --all have said--> Holding: asks to join, with what it holds
//!          Holding --RestoreReq--> Restoring: dictionary, then the logs up to R --> Restored --first view--> member
//! founder: all that are needed are there --> RestoreReq to the usable ones --RestoreConf of all--> first view of a new lineage
//! ```
//!
//! **Who is needed.** Every full member of the newest view that anybody here knows. That is enough: a view that followed was accepted by a full member
//! of this one, which knows it, unless no global checkpoint was made in it, and then nothing was acknowledged as durable in it. Who is missing is
//! waited for by name, unless the arbitrator has fenced it (`fenced`). So is who may have been promoted by the next view (`accepted`). Nobody founds an empty cluster beside data, unless the management nodes were told to (`--found-again`).
//!
//! **Who is usable.** A needed node whose logs are complete and undamaged, as long as one of each node group is. The others join empty, afterwards. Where a
//! group has none, those count that were full members beside them when they had just been filled (`stand_in`).
//!
//! **Which epoch.** The least that a usable node has saved. A log that begins above it (its node became a full member later than that) makes its node
//! unusable for this start.
//!
//! **What dies with whom.** A founder or a participant that dies ends the attempt: the others go on asking, and the next founder names the
//! same epoch, for what was given up is void on the disks of those that had restored. A process that has restored another epoch than is asked for
//! starts again. Nothing on a disk is changed before the first new commit but the mark that voids what is above the restored epoch.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    mgmt::ClusterConfig,
    operator::FrozenSide,
    qmgr::{Holding, Incarnation, encode},
    restart::{Promotion, RedoFound, Restore},
    view::{NodeState, View, ViewNode},
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use crate::NodeConfig;

use super::{
    LINEAGE_STEP, Membership, Phase, accepted, arbiter, fenced, layout, layout::Candidate, progress::Starting, stand_in,
};

/// New epochs begin so far above every epoch that is on a disk.
pub(super) const EPOCH_GAP: u64 = 1 << 16;

#[derive(Default)]
pub(super) struct Restart {
    /// The node has a disk for its logs.
    pub(super) has_disk: bool,
    pub(super) encrypts: bool,
    /// Version of the dictionary on it.
    pub(super) dictionary: u64,
    /// For people: it is there, and cannot be read.
    dictionary_damage: String,
    /// The newest view that the file of views knows, whatever the machine's boot.
    pub(super) view: Option<View>,
    /// How the process that it names became a full member.
    pub(super) promotion: Option<Promotion>,
    /// Later views that the files know to have been accepted.
    pub(super) accepted: Vec<View>,
    /// The synced file of views cannot be read.
    pub(super) views_are_damaged: bool,
    pub(super) found: BTreeMap<u32, RedoFound>,
    /// What other starting nodes hold, and their incarnations.
    others: BTreeMap<NodeId, (u64, Holding)>,
    /// Full members that an operator does without, of the view of this point.
    abandoned: Option<((u64, u64), BTreeSet<NodeId>)>,
    /// What he may do without, and why there is no start yet.
    side: Option<FrozenSide>,
    waits: String,
    /// Whom the cluster began or went on without, by this node's word, and why.
    pub(super) did_without: Option<(BTreeSet<NodeId>, String)>,
    /// As founder.
    plan: Option<Plan>,
    /// As participant, or beside a cluster that lives (`rejoin`).
    pub(super) work: Option<Work>,
    /// Why a cluster that lives is joined with nothing, as it was said.
    pub(super) useless: Option<String>,
    /// Of each LDM that starts.
    pub(super) starting: Starting,
}

struct Plan {
    order: Restore,
    view: View,
    waiting: BTreeSet<NodeId>,
    /// Whom the arbitrator has fenced, for people.
    without: Option<(BTreeSet<NodeId>, String)>,
}

pub(super) struct Work {
    pub(super) order: Restore,
    pub(super) founder: NodeId,
    /// LDMs that have not restored; `None`: the dictionary comes first.
    pub(super) missing: Option<BTreeSet<u32>>,
}

/// What a start from disks would be made of, or why there is none.
#[derive(Debug, PartialEq, Eq)]
enum Outlook {
    Waits(String),
    Ready { usable: BTreeSet<NodeId>, restored: u64, begins: u64, dictionary_from: NodeId, dictionary: u64 },
}

pub(super) fn names(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    format!("data node{} {}", if nodes.len() == 1 { "" } else { "s" }, names.join(", "))
}

const NOBODY: &BTreeSet<NodeId> = &BTreeSet::new();

/// Full members of a view, less those that an operator does without.
fn counted<'a>(view: &'a View, abandoned: &BTreeSet<NodeId>) -> impl Iterator<Item = &'a ViewNode> {
    view.nodes.iter().filter(move |n| n.state() == NodeState::Up && !abandoned.contains(&n.node()))
}

/// What an operator may do with those that are here, where others are missing that `newest` has as full members.
fn without_missing(newest: &View, holdings: &BTreeMap<NodeId, Holding>) -> Option<FrozenSide> {
    let full = || counted(newest, NOBODY);
    let missing: BTreeSet<NodeId> = full().map(|n| n.node()).filter(|n| !holdings.contains_key(n)).collect();
    let names = |n: &ViewNode| Incarnation { node: n.id, incarnation: n.incarnation };
    let side = FrozenSide {
        lineage: newest.lineage,
        generation: newest.generation,
        abandons: full().filter(|n| missing.contains(&n.node())).map(names).collect(),
        ..FrozenSide::default()
    };
    let numbers = |nodes: BTreeSet<NodeId>| nodes.into_iter().map(|n| n.0.into()).collect::<Vec<u32>>();
    match outlook(newest, holdings, &missing) {
        _ if missing.is_empty() => None,
        Outlook::Ready { usable, .. } => {
            let members = numbers(usable);
            Some(FrozenSide { leader: members[0], members, ..side })
        }
        Outlook::Waits(_) => {
            let members = numbers(holdings.keys().copied().collect());
            let is_whole = |n: &ViewNode| holdings.get(&n.node()).is_some_and(Holding::is_whole);
            let lacks = full().map(|n| n.group).filter(|g| full().all(|n| n.group != *g || !is_whole(n)));
            let lacks_groups = lacks.collect::<BTreeSet<u32>>().into_iter().collect();
            Some(FrozenSide { leader: *members.first()?, members, lacks_groups, ..side })
        }
    }
}

/// Decides from what the nodes that are here hold; `newest` is the newest view that any of them knows.
fn outlook(newest: &View, holdings: &BTreeMap<NodeId, Holding>, abandoned: &BTreeSet<NodeId>) -> Outlook {
    let full = || counted(newest, abandoned);
    let missing: Vec<NodeId> = full().map(|n| n.node()).filter(|n| !holdings.contains_key(n)).collect();
    if !missing.is_empty() {
        return Outlook::Waits(format!(
            "the cluster's data is on disk, and it starts when all have come that were full members when it ended (view {}): waits for {}; if disks are lost for good: apus cluster resume --force",
            newest.generation,
            names(&missing)
        ));
    }
    let mut usable: BTreeSet<NodeId> = full().map(|n| n.node()).filter(|n| holdings[n].is_whole()).collect();
    let restored = loop {
        let saved = usable.iter().map(|n| holdings[n].saved);
        let epoch = if planted(Bug::EpochOfOneNode) { saved.max() } else { saved.min() }.unwrap_or(0);
        let before = usable.len();
        usable.retain(|n| holdings[n].complete_from <= epoch);
        if usable.len() == before {
            break epoch;
        }
    };
    let groups = counted(newest, NOBODY).map(|n| n.group);
    let lacking: BTreeSet<u32> =
        groups.filter(|g| full().all(|n| n.group != *g || !usable.contains(&n.node()))).collect();
    if !lacking.is_empty() {
        let why: Vec<String> = counted(newest, NOBODY)
            .filter(|n| lacking.contains(&n.group))
            .map(|n| {
                let why = match holdings.get(&n.node()) {
                    None => "is not there",
                    Some(holding) if holding.damage.is_empty() => "was not filled when the cluster ended",
                    Some(holding) => &holding.damage,
                };
                format!("data node {}: {why}", n.id)
            })
            .collect();
        return Outlook::Waits(format!("no node of group {lacking:?} has its data: {}", why.join("; ")));
    }
    let has_it = |n: &NodeId| holdings[n].complete && holdings[n].complete_from <= restored;
    assert!(usable.iter().all(has_it), "epoch {restored} is to be put back, and not all of {usable:?} have it");
    let highest = holdings.values().map(|h| h.highest.max(h.saved)).max().unwrap_or(0);
    let newest_dictionary = usable.iter().max_by_key(|n| (holdings[n].dictionary, std::cmp::Reverse(**n)));
    let dictionary_from = newest_dictionary.copied().unwrap_or(NodeId(0));
    let dictionary = holdings.get(&dictionary_from).map_or(0, |h| h.dictionary);
    Outlook::Ready { usable, restored, begins: highest + EPOCH_GAP, dictionary_from, dictionary }
}

impl Restart {
    pub(super) fn new(config: &NodeConfig) -> Restart {
        let kept = config.kept.as_ref();
        let (view, promotion) = kept.map_or((None, None), |kept| (kept.newest.clone(), kept.promotion.clone()));
        let accepted = kept.map_or_else(Vec::new, |kept| kept.accepted.clone());
        let read = config.disk.as_ref().map_or(Ok(0), |disk| disk.dictionary_version());
        let (dictionary, dictionary_damage) =
            read.map_or_else(|damage| (0, damage), |version| (version, String::new()));
        Restart {
            has_disk: config.disk.is_some(),
            encrypts: config.disk.as_ref().is_some_and(|disk| disk.vault.encrypts()),
            dictionary,
            dictionary_damage,
            view,
            promotion,
            accepted,
            views_are_damaged: kept.is_some_and(|kept| kept.is_synced_damaged),
            ..Restart::default()
        }
    }
}

impl Membership {
    /// From an LDM of this node.
    pub(super) fn on_redo_found(&mut self, found: RedoFound, ctx: &mut Context<'_>) {
        if !found.damage.is_empty() {
            let number = found.instance;
            ctx.log(format_args!(
                "the log of worker {number} (redo-{number}.ctl, redo-{number}-SEGMENT.log): {}",
                found.damage
            ));
        }
        self.restart.found.insert(found.instance, found);
        if self.has_looked() && self.phase == Phase::Starting {
            self.ask_to_join(ctx);
        }
    }

    /// It is known what this node holds.
    pub(super) fn has_looked(&self) -> bool {
        !self.restart.has_disk || self.restart.found.len() == usize::from(self.instances)
    }

    /// What this node has on its disk; `None`: nothing of any cluster.
    pub(super) fn holding(&self) -> Option<Holding> {
        let found = || self.restart.found.values();
        if !self.restart.has_disk || !found().any(|f| f.exists) {
            return None;
        }
        let point = self.restart.view.as_ref().map(View::point);
        // Before the first mark nothing rests on the file of views, and it may not have come to the disk.
        let marked = || found().filter(|f| f.saved_generation > 0);
        let damage = match found().find(|f| !f.damage.is_empty()) {
            Some(damaged) => damaged.damage.clone(),
            None if !self.restart.dictionary_damage.is_empty() => self.restart.dictionary_damage.clone(),
            None if point.is_none() && marked().next().is_some() => {
                "the file of views is missing or damaged".to_owned()
            }
            None if marked().any(|f| Some((f.saved_lineage, f.saved_generation)) > point) => {
                "the file of views is older than the logs".to_owned()
            }
            None if found().any(|f| !f.exists) => "the log of a worker is missing".to_owned(),
            None => String::new(),
        };
        let promotion = self.restart.promotion.clone();
        Some(Holding {
            promotion: promotion.filter(|p| found().any(|f| !f.complete && f.filling == p.incarnation)),
            view: self.restart.view.clone(),
            saved: found().map(|f| f.saved).min().unwrap_or(0),
            complete: found().all(|f| f.complete),
            complete_from: found().map(|f| f.complete_from).max().unwrap_or(0),
            highest: found().map(|f| f.highest).max().unwrap_or(0),
            dictionary: self.restart.dictionary,
            damage,
            accepted: self.restart.accepted.clone(),
            views_are_damaged: self.restart.views_are_damaged,
        })
    }

    /// Another starting node.
    pub(super) fn note_holding(&mut self, from: NodeId, incarnation: u64, holding: Option<Holding>) {
        match holding.filter(|h| h.view.iter().chain(&h.accepted).all(View::check)) {
            Some(holding) => self.restart.others.insert(from, (incarnation, holding)),
            None => self.restart.others.remove(&from),
        };
    }

    /// Somebody here has data of an earlier cluster, and no operator has given it up: there is no other first start than one from the disks.
    pub(super) fn must_restart(&self, candidates: &BTreeMap<NodeId, Candidate>, config: &ClusterConfig) -> bool {
        let holdings = self.holdings(candidates);
        let founded = holdings.values().filter_map(|h| h.view.as_ref()).map(|v| v.lineage).max();
        founded.is_some_and(|lineage| !config.may_found_after(lineage.max(self.keeper.founded)))
    }

    /// Of the nodes that can be counted on.
    fn holdings(&self, candidates: &BTreeMap<NodeId, Candidate>) -> BTreeMap<NodeId, Holding> {
        let is_here = |(n, (incarnation, _)): &(&NodeId, &(u64, Holding))| {
            candidates.get(n).is_some_and(|c| c.incarnation == *incarnation)
        };
        let others = self.restart.others.iter().filter(is_here).map(|(n, (_, h))| (*n, h.clone()));
        others.chain(self.holding().map(|h| (self.me, h))).collect()
    }

    /// Starts the cluster from the disks if everybody who is needed is there and this node is to lead it.
    pub(super) fn try_restart(
        &mut self,
        candidates: &BTreeMap<NodeId, Candidate>,
        config: &ClusterConfig,
        ctx: &mut Context<'_>,
    ) {
        let holdings = self.holdings(candidates);
        let views = holdings.values().filter_map(|h| h.view.as_ref());
        let Some(newest) = views.max_by_key(|v| v.point()).cloned() else { return };
        // Each node has seen to it that its logs are of as many workers as it has (`ldm::reshape`).
        let (config, reason) = match config.with_partitions(newest.chains.len() as u32) {
            _ if newest.cluster != config.cluster => {
                let (cluster, configured) = (newest.cluster, config.cluster);
                (None, format!("the data on disk is of cluster {cluster:x}, the configuration of {configured:x}"))
            }
            Ok(config) => (Some(config), String::new()),
            Err(reason) => (None, reason),
        };
        let mut abandoned = match &self.restart.abandoned {
            Some((point, nodes)) if *point == newest.point() => nodes.clone(),
            _ => BTreeSet::new(),
        };
        let founded = config.as_ref().map_or(0, |config| config.founded);
        let lives = |n: &ViewNode| self.links.get(n.node()).is_some_and(|l| l.incarnation == n.incarnation);
        let excused = match self.start.configured_for(ctx.now()) >= fenced::PATIENCE_NS || planted(Bug::FenceOfAnybody)
        {
            true => fenced::excused(&newest, &holdings, self.start.fences.values(), founded, lives),
            false => Err(String::new()),
        };
        let (excused, why_not) = excused.map_or_else(|why| (BTreeSet::new(), why), |nodes| (nodes, String::new()));
        abandoned.extend(&excused);
        let members = stand_in::members(&accepted::with_promoted(&newest, &holdings), |n| holdings.get(&n), &abandoned);
        self.restart.side = if reason.is_empty() { without_missing(&members, &holdings) } else { None };
        let outlook = if reason.is_empty() { outlook(&members, &holdings, &abandoned) } else { Outlook::Waits(reason) };
        self.restart.waits.clear();
        let (usable, order) = match outlook {
            Outlook::Waits(reason) => {
                let reason = if why_not.is_empty() { reason } else { format!("{reason} ({why_not})") };
                self.state(None, &reason, ctx);
                self.restart.waits = reason;
                return;
            }
            Outlook::Ready { usable, restored, begins, dictionary_from, dictionary } => {
                let order = Restore {
                    founder: Some(self.own()),
                    restored,
                    begins,
                    dictionary_from: dictionary_from.0.into(),
                    dictionary,
                    without: excused.iter().map(|n| n.0.into()).collect(),
                    ..Restore::default()
                };
                (usable, order)
            }
        };
        if usable.first() != Some(&self.me) || self.restart.plan.is_some() {
            return;
        }
        let is_linked = |a: &NodeId| usable.iter().all(|b| a == b || self.starters_are_linked(*a, *b));
        if !usable.iter().all(is_linked) {
            return;
        }
        let chosen: BTreeMap<NodeId, Candidate> =
            candidates.iter().filter(|(n, _)| usable.contains(n)).map(|(n, c)| (*n, c.clone())).collect();
        let arbitrator = arbiter::first_choice(&self.managers.reached(ctx.now()));
        let lineage = self.incarnation.max(newest.lineage + 1);
        let Some(first) = config.and_then(|config| layout::first(&config, &chosen, arbitrator, lineage)) else {
            return;
        };
        let view = View {
            generation: newest.generation + LINEAGE_STEP,
            silence_ms: newest.silence_ms,
            eject_slow_ms: newest.eject_slow_ms,
            durability: newest.durability,
            gcp_interval_ms: newest.gcp_interval_ms,
            speeds: newest.speeds,
            ..first
        };
        if newest.instances != view.instances {
            ctx.probe("qmgr: a system restart with another number of workers");
            ctx.log(format_args!(
                "data nodes have {} workers from now on, before {}",
                view.instances, newest.instances
            ));
        }
        let others = names(&usable.iter().copied().collect::<Vec<_>>());
        ctx.log(format_args!("starts the cluster from the disks of {others}: epoch {}", order.restored));
        ctx.probe("qmgr: a system restart begins");
        let without = (!excused.is_empty()).then(|| {
            ctx.probe("qmgr: a system restart without those that the arbitrator has fenced");
            let text = fenced::account(&newest, &excused);
            ctx.log(format_args!("{text}"));
            (excused, text)
        });
        if usable.iter().any(|n| newest.node(*n).is_none_or(|n| n.state() != NodeState::Up)) {
            ctx.probe("qmgr: disks stand in for those of a node that was just filled");
        }
        for &node in usable.iter().filter(|n| **n != self.me) {
            self.send(ctx, node, Kind::RestoreReq, &order);
        }
        self.restart.plan = Some(Plan { order: order.clone(), view, waiting: usable, without });
        self.on_restore_req(self.me, order, ctx);
    }

    /// Where full members are missing: who is here, and could start without them by an operator's word.
    pub(super) fn waiting_side(&self) -> Option<FrozenSide> {
        let waits = self.phase == Phase::Starting && self.restart.plan.is_none() && !self.start.has_met_member;
        self.restart.side.clone().filter(|_| waits)
    }

    /// For people: why there is no start from the disks.
    pub(super) fn waits_for(&self) -> &str {
        if self.phase == Phase::Starting && !self.start.has_met_member { &self.restart.waits } else { "" }
    }

    /// An operator's word: the start is made without those that are missing, as soon as the rest may make it. The word dies with this process.
    pub(super) fn abandon_missing(&mut self, side: &FrozenSide, ctx: &mut Context<'_>) {
        ctx.probe("qmgr: an operator has a cluster start without lost disks");
        let nodes: BTreeSet<NodeId> = side.abandons.iter().map(|a| NodeId(a.node as u16)).collect();
        let list: Vec<NodeId> = nodes.iter().copied().collect();
        ctx.log(format_args!("an operator gives up what the disks of {} hold", names(&list)));
        self.restart.abandoned = Some(((side.lineage, side.generation), nodes));
    }

    /// The founder wants this node to have everything up to an epoch, and nothing above it.
    pub(super) fn on_restore_req(&mut self, from: NodeId, order: Restore, ctx: &mut Context<'_>) {
        if self.phase != Phase::Starting || self.holding().is_none() {
            return jam!(ctx);
        }
        let has_excluded = |v: &View| order.without.iter().any(|id| v.state(NodeId(*id as u16)) == NodeState::Up);
        if self.restart.accepted.iter().any(has_excluded) {
            let reason = "a view with those that the start is made without was accepted here".to_owned();
            let refusal = Restore { reason, ..order };
            return self.send(ctx, from, Kind::RestoreRef, &refusal);
        }
        if let Some(work) = &mut self.restart.work {
            if work.order.lineage != 0 {
                self.stop_to_rejoin(
                    ctx,
                    "the cluster that it was about to join is gone, and begins again from the disks",
                );
                return;
            }
            if work.order.restored != order.restored || work.order.dictionary != order.dictionary {
                self.stop_to_rejoin(ctx, "another epoch is to be restored than the one that this process has read");
                return;
            }
            // Of another founder it may name another node for the dictionary: what is answered is what was asked.
            let goes_on = order.begins == work.order.begins && work.missing.is_some();
            (work.founder, work.order) = (from, order);
            if goes_on {
                self.check_restored(ctx);
                return;
            }
            work.missing = None;
        } else {
            // DICT may have to ask the founder's, and no view says yet who may speak to whom.
            for (node, link) in self.links.iter() {
                ctx.accept_from(node, link.incarnation, true);
            }
            self.restart.work = Some(Work { order, founder: from, missing: None });
        }
        let Some(work) = &self.restart.work else { return };
        let dict = BlockRef::new(self.me, BlockId::Dict, 0);
        ctx.send(dict, Kind::RestoreReq, |b| encode(&work.order, b));
    }

    /// From DICT or an LDM of this node, or a participant's QMGR.
    pub(super) fn on_restore_conf(&mut self, from: BlockRef, conf: &Restore, ctx: &mut Context<'_>) {
        if from.block == BlockId::Qmgr {
            return self.on_participant_restored(from.node, conf, ctx);
        }
        let instances = u32::from(self.instances);
        let Some(work) = self.restart.work.as_mut().filter(|w| w.order.begins == conf.begins) else { return };
        match (from.block, &mut work.missing) {
            (BlockId::Dict, missing @ None) => {
                *missing = Some((0..instances).collect());
                for instance in 0..self.instances {
                    let ldm = BlockRef::new(self.me, BlockId::Ldm, instance);
                    ctx.send(ldm, Kind::RestoreReq, |b| encode(&work.order, b));
                }
            }
            (BlockId::Ldm, Some(missing)) => {
                assert!(conf.instance < instances, "worker {} of {instances} has restored", conf.instance);
                missing.remove(&conf.instance);
                self.check_restored(ctx);
            }
            _ => jam!(ctx),
        }
    }

    fn check_restored(&mut self, ctx: &mut Context<'_>) {
        let Some(work) = self.restart.work.as_ref().filter(|w| w.missing.as_ref().is_some_and(BTreeSet::is_empty))
        else {
            return;
        };
        let (founder, order) = (work.founder, work.order.clone());
        if order.lineage != 0 {
            return self.has_put_back(ctx);
        }
        self.send(ctx, founder, Kind::RestoreConf, &order);
    }

    fn on_participant_restored(&mut self, from: NodeId, conf: &Restore, ctx: &mut Context<'_>) {
        let Some(plan) = self.restart.plan.as_mut().filter(|p| p.order == *conf) else { return };
        plan.waiting.remove(&from);
        if plan.waiting.is_empty()
            && let Some(plan) = self.restart.plan.take()
        {
            assert!(self.view.is_none(), "the cluster is started from the disks beside view {}", self.generation());
            ctx.raise_epoch(apus_types::Epoch(plan.order.begins));
            self.restart.did_without = plan.without;
            self.propose(plan.view, ctx);
        }
    }

    /// It cannot: for people.
    pub(super) fn on_restore_ref(&mut self, from: BlockRef, refusal: Restore, ctx: &mut Context<'_>) {
        if from.block != BlockId::Qmgr {
            let founder = self.restart.work.as_ref().map(|w| w.founder).filter(|founder| *founder != self.me);
            ctx.log(format_args!("cannot restore epoch {}: {}", refusal.restored, refusal.reason));
            if let Some(found) = self.restart.found.get_mut(&refusal.instance) {
                found.damage.clone_from(&refusal.reason); // the next attempt does without this node
            }
            self.restart.work = None;
            founder.into_iter().for_each(|node| self.send(ctx, node, Kind::RestoreRef, &refusal));
            self.ask_to_join(ctx);
        } else if self.restart.plan.take_if(|p| p.order.begins == refusal.begins).is_some() {
            ctx.log(format_args!("node {} cannot restore: {}", from.node, refusal.reason));
        }
    }

    /// A starting node is gone.
    pub(super) fn restart_lost(&mut self, node: NodeId, ctx: &mut Context<'_>) {
        self.restart.others.remove(&node);
        if self.restart.plan.take_if(|p| p.view.is_alive(node)).is_some() {
            ctx.probe("qmgr: a system restart begins anew");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(newest: &View, holdings: &BTreeMap<NodeId, Holding>) -> Outlook {
        super::outlook(newest, holdings, &BTreeSet::new())
    }
    fn view(nodes: &[(u32, u32, NodeState)]) -> View {
        let node = |&(id, group, state): &(u32, u32, NodeState)| ViewNode {
            id,
            group,
            state: state as i32,
            ..ViewNode::default()
        };
        View { generation: 7, instances: 1, nodes: nodes.iter().map(node).collect(), ..View::default() }
    }
    fn holding(saved: u64, complete_from: u64) -> Holding {
        Holding { saved, complete: true, complete_from, highest: saved + 3, dictionary: saved, ..Holding::default() }
    }
    fn ready(outlook: &Outlook) -> (Vec<u16>, u64) {
        match outlook {
            Outlook::Ready { usable, restored, .. } => (usable.iter().map(|n| n.0).collect(), *restored),
            Outlook::Waits(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn all_full_members_are_waited_for_and_the_least_epoch_is_restored() {
        let newest = view(&[(1, 0, NodeState::Up), (2, 0, NodeState::Up), (3, 0, NodeState::Down)]);
        let mut here = BTreeMap::from([(NodeId(1), holding(50, 0))]);
        assert!(matches!(outlook(&newest, &here), Outlook::Waits(reason) if reason.contains("waits for data node 2;")));
        here.insert(NodeId(3), holding(90, 0));
        assert!(matches!(outlook(&newest, &here), Outlook::Waits(_)), "a removed node is no substitute");
        here.insert(NodeId(2), holding(40, 0));
        assert_eq!(ready(&outlook(&newest, &here)), (vec![1, 2], 40));
        let Outlook::Ready { begins, dictionary_from, .. } = outlook(&newest, &here) else { panic!("it was ready") };
        assert_eq!((begins, dictionary_from), (93 + EPOCH_GAP, NodeId(1)), "above what anybody has");
    }

    #[test]
    fn a_node_that_cannot_show_the_epoch_is_left_out_if_its_group_has_another() {
        let newest = view(&[(1, 0, NodeState::Up), (2, 0, NodeState::Up)]);
        let young = BTreeMap::from([(NodeId(1), holding(40, 0)), (NodeId(2), holding(60, 55))]);
        assert_eq!(ready(&outlook(&newest, &young)), (vec![1], 40));
        let damaged = Holding { damage: "block 3 is gone".to_owned(), ..holding(40, 0) };
        let one = BTreeMap::from([(NodeId(1), damaged.clone()), (NodeId(2), holding(60, 55))]);
        assert_eq!(ready(&outlook(&newest, &one)), (vec![2], 60));
        let unfilled = Holding { complete: false, ..holding(60, 0) };
        let none = BTreeMap::from([(NodeId(1), damaged), (NodeId(2), unfilled)]);
        let Outlook::Waits(reason) = outlook(&newest, &none) else { panic!("nobody has the data") };
        assert!(reason.contains("block 3 is gone") && reason.contains("node 2: was not filled"), "{reason}");
    }

    /// A disk is gone for good: what is left may start if it has each group, and nothing else of what it lacks.
    #[test]
    fn an_operator_may_do_without_a_disk_and_not_without_a_group() {
        use NodeState::{Down, Up};
        let newest = view(&[(1, 0, Up), (2, 0, Up), (3, 1, Up), (4, 1, Down)]);
        let here = BTreeMap::from([(NodeId(2), holding(40, 0)), (NodeId(3), holding(60, 0))]);
        let side = without_missing(&newest, &here).expect("data node 1 is missing");
        let abandoned: Vec<u32> = side.abandons.iter().map(|a| a.node).collect();
        assert_eq!((side.leader, side.members, abandoned), (2, vec![2, 3], vec![1]));
        assert!(side.lacks_groups.is_empty());
        let without = |nodes: &[u16]| super::outlook(&newest, &here, &nodes.iter().map(|n| NodeId(*n)).collect());
        assert_eq!(ready(&without(&[1])), (vec![2, 3], 40));
        assert!(matches!(without(&[]), Outlook::Waits(_)), "nobody has said so");

        let half = BTreeMap::from([(NodeId(2), holding(40, 0))]);
        let side = without_missing(&newest, &half).expect("two are missing");
        assert_eq!((side.abandons.len(), side.lacks_groups), (2, vec![1]));
        let all =
            BTreeMap::from([(NodeId(1), holding(40, 0)), (NodeId(2), holding(40, 0)), (NodeId(3), holding(60, 0))]);
        assert_eq!(without_missing(&newest, &all), None);
    }
}

//! QMGR: who is a member. Starts the cluster, lets nodes join, sees failures, changes the view.
//!
//! Owns the committed view of this node. Talks to QMGR of every other data node and to the management node. Gives each new
//! view to TC, LDM, DIH, DICT, COPY and CNTR of its node (`ViewOrd`); they act on nothing else.
//!
//! ```text
//! Starting --config, links, JoinReq to all--> first view (everybody is starting; the lowest id makes it)
//!          \-> president's dictionary copied -> view with us Recovering -> all partitions filled -> view with us Up
//! Member   --removed | arbitration lost | minority | told so--> the node stops, and starts again as a new incarnation that
//!            joins the cluster that went on without it, and founds no new one (`NodeConfig::rejoins`)
//! ```
//!
//! **Failure.** A link that has ended is a failure at once; silence longer than a limit that follows what is measured is one too (`heartbeat`). A
//! suspicion is never taken back: links are closed, data-plane signals refused, and the incarnation is removed. A link whose connection
//! was lost has not ended: it is dialled from both ends and goes on, or its process is found to be gone. Until then there is no
//! lease, and the time without a connection counts as silence.
//!
//! **Lease** (`heartbeat`). Who may have been removed without knowing it does not read from its clients: a member serves them only as long as
//! all others have promised, in answer to its heartbeats, not to hold it for silent.
//!
//! **End of a lease** (`lease_end`). Who still has its links to a member that others lost makes sure that it serves nobody any more before it agrees
//! to a view without it.
//!
//! **Loss of quorum** (`quorum`). Who hears too few to go on serves nobody and waits, for what stalls the network for all is no failure of any.
//!
//! **Slow** (`slow`). A node whose workers are much slower than the others' says so, and leaves if the setting `eject_slow_ms` wants it.
//!
//! **Stuck** (`stuck`, `disk`). A node of which a data worker makes no rounds any more, or whose disk takes nothing, ends itself, if the others can go on without it.
//!
//! **Meeting** (`meet`). Sides of which none holds every group go on together, in a view that settles what was open.
//!
//! **Forced** (`resume`). An operator makes a frozen side go on in a new lineage, and abandons what the others hold.
//!
//! **File** (`keep`, `testify`). What a member promised and accepted is in a file before it is told. The process that is started after its crash
//! speaks for it, so that whoever waits for it may go on.
//!
//! **Restart** (`restart`). A cluster of which nobody is left begins again with what is on the disks of its full members, less those that the arbitrator has
//! fenced (`fenced`). A frozen side that has outlived all others goes on without what is on their disks (`outlive`).
//!
//! **What others say** of a member that we hear ourselves is not always believed (`suspicion`).
//!
//! **Change of view** (`change`). The *acting president* is the full member with the lowest join order that is not held for
//! failed. One proposal per generation, Paxos ballots:
//! 1. if another made the committed view: take-over. All survivors tell what they committed and accepted; the newest
//!    committed view is adopted, an accepted proposal that may have been committed is finished before there is another;
//! 2. `ViewPrepReq` to all survivors and joiners; who accepts opens its gates to the view's members and shuts them to others;
//! 3. the survival rule (`survival`) on those that confirmed, against the *committed* view; half asks the arbitrator;
//! 4. `ViewCommitOrd`.
//!
//! A node that dies between only leaves the set that is waited for, so steps need not start over: its removal is the next
//! generation. Why this is safe: a view is committed only by a side that the survival rule lets pass against its base, two
//! disjoint sides never both pass against one base, and of sides that overlap the later one learns what the earlier one accepted, and finishes it.
//!
//! **Arbitration.** The arbitrator is the management process that the committed view names (`arbiter`). It fences incarnations: the
//! side that asks first fences the rest. See the mgmt crate. No answer in [`ARBITRATION_TIMEOUT_NS`], or nobody named: lost.
//!
//! **First start.** Nobody is a member; the lowest id proposes generation 1 as soon as all configured nodes are linked and
//! starting. After `start_partial_timeout_ms` the nodes there are may start, if each group has one and the arbitrator says yes
//! (at most one such start is granted). All of a first view must confirm, else it is abandoned. A node that missed the
//! commit asks to join with the incarnation the view has, and is sent the view.
//!
//! **Primaries after a recovery** are spread evenly again by a view of its own, before which TCs hold what is new on the chains that are to be
//! turned and wait for what is open there (`switchover`).
//!
//! **Ending.** A cluster with disks that an operator ends, or that the last full copy of a group is told to leave, makes everything durable first (`ending`).
//!
//! **Leaving.** A process that is asked to end goes by a view that it agrees to itself (`leave`).
//!
//! Limits: 255 data nodes, 4 replicas; one proposal at a time; joiners are admitted together, failures removed together.

mod accepted;
mod arbiter;
mod change;
mod disk;
mod ending;
mod fenced;
mod freeze;
mod heartbeat;
mod jitter;
mod keep;
mod layout;
mod lease_end;
mod leave;
mod links;
mod lost_group;
mod meet;
mod outlive;
mod progress;
mod quorum;
mod rejoin;
mod restart;
mod resume;
mod setting;
mod slow;
mod stand_in;
mod start;
mod stuck;
mod survival;
mod suspicion;
mod switchover;
mod testify;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_disk;
#[cfg(test)]
mod tests_freeze;
#[cfg(test)]
mod tests_keep;
#[cfg(test)]
mod tests_leave;
#[cfg(test)]
mod tests_links;
#[cfg(test)]
mod tests_orders;
#[cfg(test)]
mod tests_outlive;
#[cfg(test)]
mod tests_resume;
#[cfg(test)]
mod tests_silence;
#[cfg(test)]
mod tests_sql;
#[cfg(test)]
mod tests_stuck;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use apus_kernel::{Block, Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    file::{DiskRep, FileDone},
    gcp::{GcpSave, Keep},
    mgmt::{ClusterConfig, RegisterRep, Setting},
    qmgr::{
        ArbitConf, FailRep, Heartbeat, Incarnation, LeaseEnd, LinkRep, RecoveredRep, StopOrd, ViewCommit, checked_view,
        decode, encode,
    },
    view::{NodeState, View},
};
use apus_types::NodeId;
use prost::Message;

use self::{
    change::{Change, Gates},
    layout::Candidate,
};
use crate::NodeConfig;

/// Without the arbitrator's answer for so long, the arbitration is lost.
pub const ARBITRATION_TIMEOUT_NS: u64 = quorum::HOPE_NS;
/// Questions are asked again, reports made again after this long.
const RETRY_NS: u64 = 200_000_000;
/// A starting node asks to join, and for the configuration, this often.
const JOIN_RETRY_NS: u64 = 100_000_000;
/// A member reports to the management node at least this often.
const REGISTER_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

pub(crate) use self::disk::TOLD_NS as DISK_TOLD_NS;
pub(crate) use self::heartbeat::SILENCE_MIN_NS;
#[cfg(test)]
pub(crate) use self::layout::tests::config as test_config;
pub use self::{
    keep::{Acceptor, FILE as VIEW_FILE, Kept, SYNCED_FILE as SYNCED_VIEW_FILE},
    resume::LINEAGE_STEP,
    switchover::RETRY_MAX_NS as SWITCH_RETRY_MAX_NS,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Member,
    Stopped,
}

/// Why a member is held for failed.
#[derive(Clone, Copy)]
enum Loss<'a> {
    Seen(&'a str),
    ToldBy(NodeId),
}

impl std::fmt::Display for Loss<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Seen(what) => f.write_str(what),
            Loss::ToldBy(member) => write!(f, "node {member} says so"),
        }
    }
}

/// The membership manager; see the module.
pub struct Membership {
    me: NodeId,
    /// Told to operators.
    memory: std::sync::Arc<apus_storage::MemoryManager>,
    incarnation: u64,
    rejoins: bool,
    instances: u8,
    /// To each other data node: one per worker.
    links_wanted: usize,
    address: String,
    /// To be dialled.
    mgmts: Vec<(NodeId, String)>,
    managers: arbiter::Managers,
    phase: Phase,
    config: Option<ClusterConfig>,
    links: links::Links,

    /// Committed.
    view: Option<View>,
    /// Accepted for the next generation, with its ballot.
    prepared: Option<(u64, View)>,
    /// Highest ballot promised for the next generation.
    promised: u64,
    /// Members held for failed; removed by a view.
    failed: BTreeSet<NodeId>,
    /// Of those, the ones that only others have lost.
    hearsay: BTreeSet<NodeId>,
    heartbeats: heartbeat::Heartbeats,
    suspicions: suspicion::Suspicions,
    lease_ends: lease_end::LeaseEnds,
    stuck: stuck::Stuck,
    disks: disk::Disks,
    slow: slow::Slow,
    freeze: freeze::Freeze,
    outlive: outlive::Outlive,
    keeper: keep::Keeper,
    restart: restart::Restart,
    ending: ending::Ending,
    /// What an operator wants of the next view.
    /// What an operator wants, and the view does not say yet.
    wanted: Setting,

    /// As acting president.
    change: Option<Change>,
    /// Of the proposal under way: nobody else can have accepted anything before.
    is_own_choice: bool,
    gates_for: Option<Gates>,
    pings: u64,
    took_over: bool,
    joining: BTreeMap<NodeId, Candidate>,
    /// Whom the proposal under way lets in, and who has not answered it.
    late_joiners: Vec<Incarnation>,
    recovered: BTreeMap<Incarnation, BTreeSet<u32>>,
    switchover: switchover::Switchover,
    leave: leave::Leave,

    start: start::Start,
    started_at: Option<u64>,
    /// Of the last tick.
    now: u64,
    last_retry: u64,
    last_register: u64,
    questions: u64,
}

impl Membership {
    pub fn new(config: &NodeConfig) -> Membership {
        Membership {
            me: config.node,
            memory: config.memory.clone(),
            incarnation: config.incarnation,
            rejoins: config.rejoins,
            instances: config.workers,
            links_wanted: usize::from(config.workers) + usize::from(config.control),
            address: config.address.clone(),
            mgmts: config.mgmts.clone(),
            managers: arbiter::Managers::default(),
            phase: Phase::Starting,
            config: None,
            links: links::Links::default(),
            view: None,
            prepared: None,
            promised: 0,
            failed: BTreeSet::new(),
            hearsay: BTreeSet::new(),
            heartbeats: heartbeat::Heartbeats::default(),
            suspicions: suspicion::Suspicions::default(),
            lease_ends: lease_end::LeaseEnds::default(),
            stuck: stuck::Stuck::default(),
            disks: disk::Disks::default(),
            slow: slow::Slow::default(),
            freeze: freeze::Freeze::default(),
            outlive: outlive::Outlive::default(),
            keeper: keep::Keeper::new(config.kept.as_ref()),
            restart: restart::Restart::new(config),
            ending: ending::Ending::default(),
            wanted: Setting::default(),
            change: None,
            is_own_choice: false,
            gates_for: None,
            pings: 0,
            took_over: false,
            joining: BTreeMap::new(),
            late_joiners: Vec::new(),
            recovered: BTreeMap::new(),
            switchover: switchover::Switchover::default(),
            leave: leave::Leave::default(),
            start: start::Start::default(),
            started_at: None,
            now: 0,
            last_retry: 0,
            last_register: 0,
            questions: 0,
        }
    }

    fn qmgr_of(node: NodeId) -> BlockRef {
        BlockRef::new(node, BlockId::Qmgr, BlockRef::CONTROL)
    }
    fn send<M: Message>(&self, ctx: &mut Context<'_>, to: NodeId, kind: Kind, message: &M) {
        ctx.send(Self::qmgr_of(to), kind, |b| encode(message, b));
    }
    fn own(&self) -> Incarnation {
        Incarnation::of(self.me, self.incarnation)
    }
    fn generation(&self) -> u64 {
        self.view.as_ref().map_or(0, |v| v.generation)
    }
    /// Links of all workers stand, to one process.
    fn is_linked(&self, node: NodeId) -> bool {
        self.links.get(node).is_some_and(|l| l.workers.len() >= self.links_wanted)
    }
    fn is_own_entry(&self, view: &View) -> bool {
        view.node(self.me).is_some_and(|n| n.state() != NodeState::Down && n.incarnation == self.incarnation)
    }
    /// Other living members that are not held for failed.
    fn survivors(&self) -> BTreeSet<NodeId> {
        let living = self.view.iter().flat_map(View::living).map(|n| n.node());
        living.filter(|n| *n != self.me && !self.failed.contains(n)).collect()
    }
    fn acting_president(&self) -> Option<NodeId> {
        let view = self.view.as_ref()?;
        let full = view.nodes.iter().filter(|n| n.state() == NodeState::Up && !self.failed.contains(&n.node()));
        full.min_by_key(|n| n.join_order).map(|n| n.node())
    }
    /// For good: others went on without us, or we hold nothing. A member starts again, who never became one has nothing to go back to.
    fn stop(&mut self, ctx: &mut Context<'_>, reason: &str) {
        if self.phase == Phase::Member {
            self.stop_to_rejoin(ctx, reason);
        } else {
            self.phase = Phase::Stopped;
            ctx.stop_node(reason);
        }
    }
    fn stop_to_rejoin(&mut self, ctx: &mut Context<'_>, reason: &str) {
        self.phase = Phase::Stopped;
        self.renew_lease(ctx);
        ctx.log(format_args!("stops: {reason}"));
        ctx.stop_to_rejoin(reason);
    }

    // ---- failure detection

    fn on_link_up(&mut self, rep: LinkRep, ctx: &mut Context<'_>) {
        if rep.node.may_arbitrate() {
            self.on_mgmt_up(rep, ctx);
            return;
        }
        if !rep.node.is_data() || rep.node == self.me {
            return;
        }
        self.links.up(&rep);
        if let Some(old) = self.view.as_ref().and_then(|v| v.node(rep.node)).map(|n| n.incarnation)
            && old != rep.incarnation
        {
            self.mark_failed(rep.node, old, Loss::Seen("it has started anew"), ctx);
        }
        if self.phase == Phase::Starting && self.is_linked(rep.node) {
            self.ask_to_join(ctx);
        }
    }

    fn on_link_down(&mut self, rep: LinkRep, ctx: &mut Context<'_>) {
        if rep.node.may_arbitrate() {
            self.managers.down(rep);
            self.check_asked_arbitrator(ctx);
            self.reconsider_arbitrator(ctx);
            return;
        }
        if !self.links.down(&rep) {
            jam!(ctx);
            return;
        }
        self.start_lost(rep.node, ctx);
        self.mark_failed(rep.node, rep.incarnation, Loss::Seen("its link closed"), ctx);
        self.parted(rep.node, rep.incarnation, ctx);
    }

    /// A connection was lost, and the link is dialled from both ends. It is neither a failure nor as if nothing had happened: who may be
    /// held for failed because of it serves nobody.
    fn on_link_suspended(&mut self, rep: LinkRep, ctx: &mut Context<'_>) {
        let Some(link) = self.links.get_mut(rep.node).filter(|l| l.incarnation == rep.incarnation) else { return };
        if !link.workers.contains(&rep.worker) {
            return;
        }
        let is_first = link.suspended.is_empty();
        link.suspended.entry(rep.worker).or_insert(ctx.now());
        if is_first {
            ctx.probe("qmgr: a link waits for a connection");
            ctx.log(format_args!("the connection to node {} is lost, and dialled again", rep.node));
            self.note_suspended(ctx);
        }
    }

    fn on_link_resumed(&mut self, rep: LinkRep, ctx: &mut Context<'_>) {
        let Some(link) = self.links.get_mut(rep.node).filter(|l| l.incarnation == rep.incarnation) else { return };
        if link.suspended.remove(&rep.worker).is_some() && link.suspended.is_empty() {
            ctx.probe("qmgr: a link goes on");
            ctx.log(format_args!("the link to node {} goes on", rep.node));
            self.note_suspended(ctx);
            if self.phase == Phase::Member {
                self.send_heartbeats(ctx); // what was promised may be over
            }
        }
    }

    /// Nobody's silence ends a link to a node that is no member, or not for us: one that waits for a connection for so long is given up.
    fn end_stale_links(&mut self, ctx: &mut Context<'_>) {
        let (now, longest) = (ctx.now(), self.longest_silence());
        let is_stale =
            |link: &links::LinkState| link.suspended.values().any(|since| now.saturating_sub(*since) > longest);
        for (node, _) in self.links.iter().filter(|(_, link)| is_stale(link)) {
            if !self.survivors().contains(&node) {
                ctx.close_link(node); // which is reported as its end
            }
        }
    }

    /// Holds a member for failed from now on, and does what follows.
    fn mark_failed(&mut self, node: NodeId, incarnation: u64, why: Loss<'_>, ctx: &mut Context<'_>) {
        if self.hold_for_failed(node, incarnation, why, ctx) {
            self.report_failed(ctx);
            self.drive(ctx);
        }
    }

    /// As above, of several members at once.
    fn hold_all_for_failed(&mut self, nodes: &BTreeSet<NodeId>, why: &str, ctx: &mut Context<'_>) {
        for node in nodes {
            let incarnation = self.view.as_ref().and_then(|v| v.node(*node)).map_or(0, |n| n.incarnation);
            self.hold_for_failed(*node, incarnation, Loss::Seen(why), ctx);
        }
        if !nodes.is_empty() {
            self.report_failed(ctx);
            self.drive(ctx);
        }
    }

    /// Anything but a living member of that incarnation is ignored.
    fn hold_for_failed(&mut self, node: NodeId, incarnation: u64, why: Loss<'_>, ctx: &mut Context<'_>) -> bool {
        let is_member = self.phase == Phase::Member
            && self
                .view
                .as_ref()
                .and_then(|v| v.node(node))
                .is_some_and(|n| n.state() != NodeState::Down && n.incarnation == incarnation);
        if !is_member || node == self.me || !self.failed.insert(node) {
            return false;
        }
        jam!(ctx);
        ctx.log(format_args!("holds node {node} for failed: {why}"));
        let hearsay = matches!(why, Loss::ToldBy(_)) && self.hearsay.insert(node);
        self.renew_lease(ctx); // before the link closes, by which the other side learns it
        if !self.part_from(node, incarnation, ctx) {
            self.fence(node, incarnation, ctx);
        }
        // Everybody weighs who has lost whom (`suspicion`).
        let failed = Incarnation::of(node, incarnation);
        for survivor in self.survivors() {
            self.send(
                ctx,
                survivor,
                Kind::FailRep,
                &FailRep { failed: Some(failed), hearsay, generation: self.generation() },
            );
        }
        true
    }

    /// Cuts off one incarnation; the link of a later one stays.
    fn fence(&mut self, node: NodeId, incarnation: u64, ctx: &mut Context<'_>) {
        ctx.accept_from(node, incarnation, false);
        if self.links.forget(node, incarnation) {
            ctx.close_link(node);
        }
    }

    fn failed_list(&self) -> Vec<Incarnation> {
        let Some(view) = &self.view else { return Vec::new() };
        let entry = |n: &NodeId| view.node(*n).map(|v| Incarnation { node: v.id, incarnation: v.incarnation });
        self.failed.iter().filter_map(entry).collect()
    }

    /// Again, to the one who has to act: it may be another one than when we lost them.
    fn report_failed(&mut self, ctx: &mut Context<'_>) {
        let Some(president) = self.acting_president().filter(|p| *p != self.me) else { return };
        for failed in self.failed_list() {
            let hearsay = self.hearsay.iter().any(|n| u32::from(n.0) == failed.node);
            self.send(
                ctx,
                president,
                Kind::FailRep,
                &FailRep { failed: Some(failed), hearsay, generation: self.generation() },
            );
        }
    }

    /// Who holds us for failed has cut us off: the link is lost for both, and the rule says who goes on.
    fn hold_reporter(&mut self, from: NodeId, ctx: &mut Context<'_>) {
        let incarnation = self.view.as_ref().and_then(|v| v.node(from)).map_or(0, |n| n.incarnation);
        self.mark_failed(from, incarnation, Loss::Seen("it holds this node for failed"), ctx);
    }

    /// Adopts another member's suspicions. False: we are among them.
    fn adopt_failed(&mut self, from: NodeId, failed: &[Incarnation], ctx: &mut Context<'_>) -> bool {
        for f in failed {
            if *f == self.own() {
                self.hold_reporter(from, ctx);
                return false;
            }
            let Ok(node) = u16::try_from(f.node) else { continue };
            self.mark_failed(NodeId(node), f.incarnation, Loss::ToldBy(from), ctx);
        }
        self.phase != Phase::Stopped
    }

    /// The process at the other end of the link, or of the link that was, is one that our view has seen leave.
    fn is_removed(&self, from: NodeId) -> bool {
        let Some(view) = self.view.as_ref().filter(|_| self.phase == Phase::Member) else { return false };
        view.node(from).is_some_and(|n| {
            n.state() == NodeState::Down && self.links.get(from).is_none_or(|l| l.incarnation == n.incarnation)
        })
    }

    fn answer_heartbeat(&mut self, from: NodeId, known: bool, beat: Heartbeat, ctx: &mut Context<'_>) {
        let Some(view) = &self.view else { return };
        if known {
            self.managers.told(from, beat.mgmts);
        }
        if !known && beat.generation != 0 && beat.generation <= view.generation {
            self.stop_removed(from, beat.incarnation, ctx);
        } else if known && beat.generation < view.generation && self.tells_of_commits(view) {
            // Crossed the commit on its way, or missed it; the second copy of a view is ignored.
            self.send(ctx, from, Kind::ViewCommitOrd, &ViewCommit { view: Some(view.clone()) });
        }
        self.reconsider_arbitrator(ctx);
    }

    /// The president tells those that are behind; without it everybody does, for a side that is frozen changes no view by which they would learn.
    fn tells_of_commits(&self, view: &View) -> bool {
        let is_president = |n: &NodeId| u32::from(n.0) == view.president;
        is_president(&self.me) || self.failed.iter().any(is_president)
    }

    /// The view is without that process, which may not know it.
    fn stop_removed(&self, node: NodeId, incarnation: u64, ctx: &mut Context<'_>) {
        let Some(view) = &self.view else { return };
        let reason = format!("removed from the cluster before generation {}", view.generation);
        self.send(ctx, node, Kind::StopOrd, &StopOrd { reason, incarnation, lineage: view.lineage });
    }

    // ---- the committed view

    /// Makes `view` the committed one and tells everyone in this node.
    fn apply(&mut self, view: View, ctx: &mut Context<'_>) {
        let is_abandoned = self.is_resumed() && !self.begins_lineage(&view);
        if self.phase == Phase::Stopped || view.generation <= self.generation() || is_abandoned {
            return;
        }
        if !self.is_own_entry(&view) {
            if self.leave.is_wanted() {
                self.left(view.generation, ctx);
            } else if self.phase == Phase::Member {
                self.stop(ctx, &format!("removed from the cluster in generation {}", view.generation));
            }
            return;
        }
        let before = self.view.take();
        let fenced: Vec<(NodeId, u64)> = before
            .iter()
            .flat_map(View::living)
            .filter(|old| {
                view.node(old.node()).is_none_or(|n| n.state() == NodeState::Down || n.incarnation != old.incarnation)
            })
            .map(|old| (old.node(), old.incarnation))
            .collect();
        for (node, incarnation) in fenced {
            self.failed.remove(&node);
            self.hearsay.remove(&node);
            self.fence(node, incarnation, ctx);
            self.parted(node, incarnation, ctx);
        }
        self.reconcile(before.as_ref(), &view, ctx);
        let (failed, hearsay) = (&self.failed, &self.hearsay);
        assert!(failed.iter().all(|n| view.is_alive(*n)), "{failed:?} are held for failed, not all are members");
        assert!(hearsay.is_subset(failed), "{hearsay:?} are lost by others, of {failed:?}");
        assert!(!failed.contains(&self.me), "{} holds itself for failed", self.me);
        self.phase = Phase::Member;
        self.keeper.before = None;
        self.prepared = None;
        self.promised = 0;
        self.change = None;
        self.took_over = false;
        self.thaw(ctx);
        self.joining.retain(|n, c| {
            view.node(*n).is_none_or(|v| v.incarnation != c.incarnation || v.state() == NodeState::Down)
        });
        self.recovered.retain(|i, _| {
            view.nodes
                .iter()
                .any(|n| n.id == i.node && n.incarnation == i.incarnation && n.state() == NodeState::Recovering)
        });
        self.switchover.view_is_new(ctx.now());
        self.leave.view_is_new();
        self.departure_is_over(ctx);
        self.managers.members_are(&view);
        self.suspicions.words.clear();
        self.settings_are(&view);
        self.watch_members(&view, ctx);
        self.dial_members(&view, ctx);
        let text: Vec<String> = view
            .living()
            .map(|n| format!("{}{}", n.id, if n.state() == NodeState::Up { "" } else { "(recovering)" }))
            .collect();
        ctx.log(format_args!("view {}: president {}, members {}", view.generation, view.president, text.join(" ")));
        self.log_arbitrator(before.as_ref(), &view, ctx);
        ctx.set_cluster(view.cluster);
        self.note_promotion(before.as_ref(), &view);
        self.view = Some(view);
        if before.is_none() {
            self.keep_first(ctx);
        } else {
            self.keep(ctx);
        }
        self.tell_blocks(ctx);
        self.send_heartbeats(ctx);
        self.renew_lease(ctx);
        self.register(ctx);
        // A link that closed before the view said that it matters; what was sent meanwhile is lost.
        let lost: BTreeSet<NodeId> = self.survivors().into_iter().filter(|n| !self.is_linked(*n)).collect();
        self.hold_all_for_failed(&lost, "there is no link to it", ctx);
        self.report_failed(ctx);
        self.drive(ctx);
    }

    fn tell_blocks(&self, ctx: &mut Context<'_>) {
        let Some(view) = &self.view else { return };
        let body = view.encode_to_vec();
        let mut tell = |block, instance| {
            ctx.send(BlockRef::new(self.me, block, instance), Kind::ViewOrd, |b| b.extend_from_slice(&body));
        };
        for instance in 0..self.instances {
            tell(BlockId::Ldm, instance);
            tell(BlockId::Tc, instance);
        }
        for block in [BlockId::Dih, BlockId::Dict, BlockId::Copy, BlockId::Cntr] {
            tell(block, 0);
        }
    }

    fn register(&mut self, ctx: &mut Context<'_>) {
        if self.keeper.founds() {
            return jam!(ctx);
        }
        let now = ctx.now();
        self.last_register = now;
        let rep = RegisterRep {
            node: self.me.0.into(),
            incarnation: self.incarnation,
            address: self.address.clone(),
            generation: self.generation(),
            view: self.view.clone(),
            uptime_ms: now.saturating_sub(self.started_at.unwrap_or(now)) / MS,
            stuck: self.ailments(),
            slow: self.slow.summary(),
            frozen: self.account(),
            side: self.frozen_side(),
            reaches: self.managers.reached(now).iter().map(|m| m.node).collect(),
            durable: self.restart.has_disk,
            progress: self.progress(now),
            start: self.start_progress(now),
            memory: Some(crate::buffers::usage(&self.memory)),
            encrypts: self.restart.encrypts,
        };
        self.tell_managers(Kind::RegisterRep, &rep, ctx);
        if self.freeze.is_frozen() {
            self.tell_control(ctx);
        }
    }

    fn on_recovered(&mut self, rep: RecoveredRep, ctx: &mut Context<'_>) {
        let Some(node) = rep.node else { return };
        let is_recovering = self
            .view
            .iter()
            .flat_map(|v| &v.nodes)
            .any(|n| n.id == node.node && n.incarnation == node.incarnation && n.state() == NodeState::Recovering);
        if is_recovering {
            self.recovered.entry(node).or_default().extend(rep.partitions);
            self.drive(ctx);
        }
    }

    fn is_known_sender(&self, from: NodeId) -> bool {
        from.is_data() && !self.failed.contains(&from)
    }

    fn take(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from.node;
        if self.phase == Phase::Stopped {
            if envelope.kind == Kind::PingConf && from == self.me {
                self.on_leave_ping(apus_signal::Reader::new(body).u64()?, ctx);
            }
            return Ok(());
        }
        match envelope.kind {
            Kind::LinkUpRep => self.on_link_up(LinkRep::decode(body)?, ctx),
            Kind::LinkDownRep => self.on_link_down(LinkRep::decode(body)?, ctx),
            Kind::LinkSuspendedRep => self.on_link_suspended(LinkRep::decode(body)?, ctx),
            Kind::LinkResumedRep => self.on_link_resumed(LinkRep::decode(body)?, ctx),
            Kind::ConfigConf if from.is_mgmt() => self.on_config(from, decode(body)?, ctx),
            Kind::ConfigRef => {}
            Kind::HeartbeatRep if from.may_arbitrate() => {
                self.managers.heard(from, decode::<Heartbeat>(body)?.incarnation, ctx.now());
                self.reconsider_arbitrator(ctx);
            }
            Kind::SettingOrd if from.is_mgmt() => self.on_setting(&decode(body)?, ctx),
            Kind::ArbitConf if from.may_arbitrate() => self.on_arbit_conf(from, decode::<ArbitConf>(body)?, ctx),
            Kind::StopOrd if from.is_data() || from.may_arbitrate() => {
                let order = decode::<StopOrd>(body)?;
                if self.is_of_abandoned(order.lineage) {
                    ctx.probe("qmgr: an order to stop of an abandoned lineage");
                } else if order.incarnation == self.incarnation && self.leave.is_agreed() {
                    jam!(ctx); // whoever is without us already was faster than the commit
                    self.left(self.generation() + 1, ctx);
                } else if order.incarnation == self.incarnation {
                    self.stop_to_rejoin(ctx, &order.reason);
                } else {
                    ctx.probe("qmgr: an order to stop that names another process");
                }
            }
            Kind::EndOrd if from.is_mgmt() || from.is_data() => self.on_end_ord(from, decode(body)?, ctx),
            Kind::EndReadyRep if from == self.me && envelope.from.block == BlockId::Tc => {
                self.on_quiet(&decode(body)?, ctx)
            }
            Kind::EndReadyRep if from == self.me && envelope.from.block == BlockId::Ldm => {
                self.on_last_checkpoint(&decode(body)?, ctx)
            }
            Kind::EndReadyRep if from.is_data() => self.on_end_ready(from, &decode(body)?, ctx),
            Kind::GcpSaveConf if from == self.me => self.on_all_saved(GcpSave::decode(body)?, ctx),
            Kind::ResumeOrd if from.is_mgmt() => self.on_resume_ord(from, decode(body)?, ctx),
            Kind::LeaveOrd if from == self.me => self.on_leave_ord(ctx),
            Kind::EpochLateRep => self.on_epoch_late(envelope.from, decode(body)?, ctx),
            Kind::WorkerStuckRep if from == self.me => {
                let mut r = apus_signal::Reader::new(body);
                self.on_worker_stuck(r.u8()?, r.u32()?, ctx);
            }
            Kind::FileConf => self.on_kept(&FileDone::decode(body)?, ctx),
            Kind::FileRef => self.on_not_kept(&FileDone::decode(body)?, ctx),
            Kind::PingConf if from == self.me => self.on_ping_conf(apus_signal::Reader::new(body).u64()?, ctx),
            Kind::LeaseEndReq if from.is_data() || from.may_arbitrate() => {
                self.on_lease_end_req(envelope.from, &decode(body)?, ctx);
            }
            Kind::LeaseEndConf if from.is_data() => self.parted(from, decode::<LeaseEnd>(body)?.incarnation, ctx),
            Kind::StartRep if from == self.me => self.on_progress(decode(body)?, ctx.now()),
            Kind::RedoFoundRep if from == self.me => self.on_redo_found(decode(body)?, ctx),
            Kind::DiskRep if from == self.me => self.on_disk_rep(DiskRep::decode(body)?, ctx),
            Kind::KeepReq if from == self.me => self.on_keep_req(envelope.from, Keep::decode(body)?, ctx),
            Kind::RestoreReq if from.is_data() => self.on_restore_req(from, decode(body)?, ctx),
            Kind::RestoreConf if from.is_data() => self.on_restore_conf(envelope.from, &decode(body)?, ctx),
            Kind::RestoreRef if from.is_data() => self.on_restore_ref(envelope.from, decode(body)?, ctx),
            Kind::JoinConf if from == self.me => self.on_dictionary_copied(decode(body)?, ctx),
            Kind::PresTakeOverReq if self.failed.contains(&from) => self.on_reunion_req(from, decode(body)?, ctx)?,
            Kind::PresTakeOverConf if self.failed.contains(&from) => self.on_reunion_conf(from, decode(body)?, ctx)?,
            Kind::JoinReq if self.failed.contains(&from) => self.on_join_of_lost(from, &decode(body)?, ctx),
            Kind::GiveWayReq if from.is_data() => self.on_give_way_req(from, decode(body)?, ctx)?,
            Kind::HeartbeatRep if self.failed.contains(&from) => self.on_word_of_lost(from, &decode(body)?, ctx),
            Kind::ViewPrepConf if self.failed.contains(&from) => self.on_gave_way(from, &decode(body)?, ctx),
            Kind::ViewPrepRef if self.failed.contains(&from) => self.on_gave_no_way(&decode(body)?, ctx),
            // What was committed was committed, whoever tells it.
            Kind::ViewCommitOrd if self.freeze.is_frozen() && self.failed.contains(&from) => {
                if let Some(view) = checked_view(decode::<ViewCommit>(body)?.view)? {
                    self.apply(view, ctx);
                }
            }
            // From here on: data nodes that are not held for failed.
            _ if !self.is_known_sender(from) => jam!(ctx),
            // What a removed process said before it noticed: nobody's business any more.
            Kind::FailRep | Kind::ViewPrepReq | Kind::PresTakeOverReq if self.is_removed(from) => {
                ctx.probe("qmgr: word of a removed node ignored");
            }
            Kind::FailRep if self.is_before_meeting(decode::<FailRep>(body)?.generation) => {
                ctx.probe("qmgr: a suspicion from before sides met is dropped");
            }
            Kind::FailRep | Kind::ViewPrepReq | Kind::PresTakeOverReq if self.set_aside(envelope, body, ctx)? => {}
            Kind::HeartbeatRep => self.on_heartbeat(from, decode(body)?, ctx),
            Kind::JoinReq => self.on_join_req(from, decode(body)?, ctx),
            Kind::JoinConf => self.on_join_conf(from, decode(body)?, ctx),
            Kind::JoinRef => self.on_join_ref(from, &decode(body)?, ctx),
            Kind::ViewPrepReq => self.on_view_prep_req(from, decode(body)?, ctx)?,
            Kind::ViewPrepConf => self.on_view_prep_conf(from, &decode(body)?, ctx),
            Kind::ViewPrepRef => self.on_view_prep_ref(from, decode(body)?, ctx)?,
            Kind::ViewCommitOrd => {
                if let Some(view) = checked_view(decode::<ViewCommit>(body)?.view)? {
                    self.apply(view, ctx);
                }
            }
            Kind::ViewCommitConf => {}
            Kind::PresTakeOverReq => self.on_take_over_req(from, decode(body)?, ctx)?,
            Kind::PresTakeOverConf => self.on_take_over_conf(from, decode(body)?, ctx)?,
            Kind::FailRep => {
                let rep = decode::<FailRep>(body)?;
                if self.phase == Phase::Member {
                    self.adopt_failed(from, rep.failed.as_slice(), ctx);
                }
            }
            Kind::RecoveredRep => self.on_recovered(decode(body)?, ctx),
            Kind::LeaveReq => self.on_leave_req(from, &decode(body)?, ctx),
            Kind::LeaveRef => self.on_leave_ref(&decode(body)?, ctx),
            Kind::SwitchConf => self.on_switch_conf(envelope.from, &decode(body)?, ctx),
            Kind::SwitchRef => self.on_switch_ref(envelope.from, &decode(body)?, ctx),
            _ => return Err(DecodeError),
        }
        Ok(())
    }
}

impl Block for Membership {
    fn block_ref(&self) -> BlockRef {
        Self::qmgr_of(self.me)
    }

    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let held = self.failed.len();
        self.take(envelope, body, ctx)?;
        // Our own loss settles what others said before.
        if self.failed.len() != held { self.review_suspicions(ctx) } else { Ok(()) }
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.now = now;
        if self.phase == Phase::Stopped {
            return self.tick_left(ctx);
        }
        if self.started_at.is_none() {
            self.started_at = Some(now);
            self.heartbeats.started(now);
            for (node, address) in &self.mgmts {
                ctx.connect_to(*node, address);
            }
        }
        self.tick_managers(ctx);
        self.end_stale_links(ctx);
        match self.phase {
            Phase::Starting => {
                self.heartbeats.started(now);
                self.tick_starting(ctx);
            }
            Phase::Member => {
                self.check_heartbeats(ctx);
                self.check_lease_ends(ctx);
                self.look_for_absent(ctx);
                self.tick_frozen(ctx);
                let reviewed = self.review_suspicions(ctx);
                assert!(reviewed.is_ok(), "an suspicion that was set aside does not decode");
            }
            Phase::Stopped => {}
        }
        if now.saturating_sub(self.last_retry) >= RETRY_NS {
            self.last_retry = now;
            self.report_failed(ctx);
            self.ask_again(ctx);
        }
        self.check_arbitration(ctx);
        self.tick_joiners(ctx);
        self.tick_keeper(ctx);
        self.tick_leave(ctx);
        self.tick_ending(ctx);
        self.tick_waiters(ctx);
        self.tick_disks(ctx);
        self.tick_slow(ctx);
        self.tick_switchover(ctx);
        if self.phase == Phase::Member && now.saturating_sub(self.last_register) >= REGISTER_NS {
            self.register(ctx);
        }
    }

    fn dump(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "qmgr node {} incarnation {:x} {:?} generation {}",
            self.me,
            self.incarnation,
            self.phase,
            self.generation()
        );
        let _ = writeln!(
            out,
            "failed {:?} promised {} prepared {:?}",
            self.failed,
            self.promised,
            self.prepared.as_ref().map(|p| (p.0, p.1.generation))
        );
        let _ = writeln!(out, "{}", self.freeze.summary());
        let _ = writeln!(out, "file: {}", self.keeper.summary());
        let _ = writeln!(out, "words {}", self.suspicions.summary());
        let _ = writeln!(out, "change {:?}", self.change.as_ref().map(Change::summary));
        let _ = writeln!(out, "switchover {}", self.switchover.summary());
        let _ = writeln!(out, "{}", self.heartbeats.summary(self.now, self.longest_silence()));
        let _ = writeln!(
            out,
            "joining {:?} links {:?}",
            self.joining.keys(),
            self.links.iter().collect::<BTreeMap<_, _>>()
        );
    }

    fn verify(&self) -> Result<(), String> {
        if let Some(view) = &self.view {
            if !view.check() || (self.phase == Phase::Member && !self.is_own_entry(view)) {
                return Err(format!("view {} does not hold its owner", view.generation));
            }
            if let Some(n) = self.failed.iter().find(|n| !view.is_alive(**n)) {
                return Err(format!("node {n} is held for failed and is no member"));
            }
        }
        Ok(())
    }
}

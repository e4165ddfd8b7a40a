//! Faults are done to the cluster, and undone when their time is over.

use apus_kernel::{FaultRule, limits::TICK_NS};
use apus_types::NodeId;

use super::{Drill, MS, Workload};
use crate::{
    ActorId, Cluster, Party,
    fault::{FILE_POINT, Fault, Who},
    promise::{self, BORNE_NS},
};

/// So long after anything that happens to the cluster (also: after each change of its view) its clients are as busy as they can be, then they
/// think so many times longer.
const BUSY_NS: u64 = 100 * MS;
const CALM: u64 = 32;

/// What is still to be done in a round, at its time.
pub(super) enum Deed {
    Inflict(Fault),
    Start(NodeId),
    Restart(NodeId),
    Resume(NodeId),
    Speed(NodeId),
    Unstick(NodeId),
    MendDisk(NodeId),
    Kill {
        node: NodeId,
        down: u64,
    },
    Heal(Party, Party),
    Unmute {
        from: Party,
        to: Party,
        lost: bool,
    },
    Unlink {
        number: u64,
        node: NodeId,
        late: u64,
    },
    Flap {
        a: Party,
        b: Party,
        period: u64,
        times: u64,
    },
    Storm {
        node: NodeId,
        period: u64,
        times: u64,
    },
    /// Clients take their time if nothing has happened meanwhile.
    Calm,
    /// The operator looks how far his rolling restart is.
    Roll,
    /// Power fails again while the cluster starts.
    DarkAgain,
}

/// A process that dies when it has passed a point.
pub(super) struct Doom {
    node: NodeId,
    incarnation: u64,
    point: String,
    /// Writes it will have asked for by then.
    writes: u64,
    after: u64,
    down: u64,
}

impl Doom {
    pub(super) fn is_due(&self, cluster: &Cluster) -> bool {
        let is_passed = if self.point == FILE_POINT {
            cluster.writes_asked(self.node) >= self.writes
        } else {
            cluster.is_fault_spent(self.node, &self.point)
        };
        is_passed && cluster.incarnation(self.node) == self.incarnation
    }
}

impl<W: Workload> Drill<'_, W> {
    /// The network is whole, nobody is paused or slow, no fault point is armed.
    pub(super) fn end_faults(&mut self) {
        let left = std::mem::take(&mut self.agenda);
        // What links lose is decided by the fault; all else is undone at once.
        for deed in left.into_values() {
            if let Deed::Unmute { .. } = deed {
                self.perform(deed);
            }
        }
        self.cluster.heal_network();
        for node in self.nodes() {
            self.cluster.resume(node);
            self.cluster.unstick(node);
            self.cluster.slow_down(node, 1);
        }
        self.dooms.clear();
        for node in std::mem::take(&mut self.ailing) {
            self.mend_disk(node);
        }
        self.cluster.disarm_faults();
        self.stir();
    }
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.settings.data_nodes().into_iter().chain(self.settings.arbitrators()).collect()
    }
    /// An end of a link.
    fn party(&self, who: Who) -> Party {
        let Who::Client(number) = who else { return Party::Node(self.resolve(who)) };
        Party::Client(self.actor(number).unwrap_or(ActorId::MAX))
    }
    /// What happens on a link between nodes may cost either; between a client and a node nobody.
    fn excuse(&mut self, ends: [Party; 2]) {
        if let [Party::Node(a), Party::Node(b)] = ends {
            self.excused.extend([a, b]);
        }
    }
    /// A link between data nodes goes on: nobody is removed for a reset. But who cannot be dialled between one and the next is silent.
    fn reset(&mut self, a: NodeId, b: NodeId, worker: Option<u8>) {
        let (now, redial) = (self.cluster.now(), promise::redial_ns(self.settings));
        let (first, last) = self.resets.entry((a.min(b), a.max(b))).or_insert((now, now));
        if now - *last > redial + TICK_NS {
            *first = now;
        }
        *last = now;
        if now - *first + redial > BORNE_NS {
            self.excused.extend([a, b]);
        }
        self.cluster.reset(a, b, worker);
    }
    fn resolve(&self, who: Who) -> NodeId {
        match who {
            Who::Node(node) => node,
            Who::President | Who::Client(_) => {
                let newest = self.clients.iter().map(|c| c.client.view()).max_by_key(|view| view.generation);
                NodeId(newest.map_or(1, |view| view.president as u16).max(1))
            }
        }
    }
    /// Nodes that a side does not hear any more, with the nodes of that side.
    fn across(&self, side: &[NodeId], bridge: Option<NodeId>) -> Vec<(NodeId, NodeId)> {
        let is_here = |n: &NodeId| side.contains(n) && Some(*n) != bridge;
        let is_there = |n: &NodeId| !side.contains(n) && Some(*n) != bridge;
        let nodes = self.nodes();
        let here = nodes.iter().copied().filter(is_here);
        here.flat_map(|a| nodes.iter().copied().filter(is_there).map(move |b| (a, b))).collect()
    }
    /// An arbitrator whose disk has failed promises nothing any more: its operator starts it again.
    fn mend_disk(&mut self, node: NodeId) {
        self.cluster.mend_disk(node);
        if node.may_arbitrate() && !self.down.contains(&node) {
            self.cluster.crash(node);
            self.cluster.start(node);
        }
    }
    /// Who was to die at a point that is passed dies a moment later.
    pub(super) fn meet_dooms(&mut self) {
        let cluster = &self.cluster;
        let met: Vec<Doom> = self.dooms.extract_if(.., |doom| doom.is_due(cluster)).collect();
        for Doom { node, after, down, .. } in met {
            self.plan(after, Deed::Kill { node, down });
        }
    }
    fn set_calm(&self, factor: u64) {
        self.clients.iter().for_each(|alive| alive.clock.set_calm(factor));
    }
    /// Something happens to the cluster.
    pub(super) fn stir(&mut self) {
        self.stirred = self.cluster.now();
        self.set_calm(1);
        self.plan(BUSY_NS, Deed::Calm);
    }
    pub(super) fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Calm if self.stirred + BUSY_NS <= self.cluster.now() => return self.set_calm(CALM),
            Deed::Calm => return,
            Deed::Roll => return self.roll(),
            _ => self.stir(),
        }
        match deed {
            Deed::Calm | Deed::Roll => {}
            Deed::Inflict(fault) => {
                *self.report.faults.entry(fault.kind()).or_insert(0) += 1;
                self.inflict(fault);
            }
            Deed::DarkAgain => self.go_dark_again(),
            Deed::Start(node) => self.start(node),
            Deed::Restart(node) => {
                self.crash(node, false);
                self.start(node);
            }
            Deed::Resume(node) => self.cluster.resume(node),
            Deed::Speed(node) => self.cluster.slow_down(node, 1),
            Deed::Unstick(node) => self.cluster.unstick(node),
            Deed::MendDisk(node) => {
                self.ailing.remove(&node);
                self.mend_disk(node);
            }
            Deed::Kill { node, down } => self.inflict(Fault::Crash { who: Who::Node(node), down }),
            Deed::Heal(a, b) => self.cluster.heal(a, b),
            Deed::Unmute { from, to, lost } => self.cluster.unmute(from, to, lost),
            Deed::Unlink { number, node, late } => {
                if let Some(actor) = self.actor(number) {
                    self.cluster.unlink(actor, node, late);
                }
            }
            Deed::Storm { node, period, times } => {
                for other in self.settings.data_nodes().into_iter().filter(|other| *other != node) {
                    self.reset(node, other, None);
                }
                if times > 1 {
                    self.plan(period, Deed::Storm { node, period, times: times - 1 });
                }
            }
            Deed::Flap { a, b, period, times } => {
                self.cluster.part(a, b);
                self.plan(period / 2, Deed::Heal(a, b));
                if times > 1 {
                    self.plan(period, Deed::Flap { a, b, period, times: times - 1 });
                }
            }
        }
    }
    fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { who, down } | Fault::Power { who, down } => {
                let node = self.resolve(who);
                if self.excused.contains(&node) {
                    self.hold_up(node);
                }
                self.crash(node, matches!(fault, Fault::Power { .. }));
                self.down.insert(node);
                self.plan(down, Deed::Start(node));
            }
            Fault::Leave { who, down } => {
                let node = self.resolve(who);
                self.excused.insert(node);
                self.cluster.leave(node);
                self.plan(down, Deed::Restart(node));
            }
            Fault::Roll { first } => self.begin_roll(first),
            Fault::Set { knob, value } => {
                for mgmt in self.settings.mgmt_nodes() {
                    self.cluster.order_setting(mgmt, &knob.setting(value));
                }
            }
            Fault::Pause { who, lasts } => {
                let node = self.resolve(who);
                self.hold_up(node);
                self.cluster.pause(node);
                self.plan(lasts, Deed::Resume(node));
            }
            Fault::Freeze { who, lasts } => {
                let node = self.resolve(who);
                self.hold_up(node);
                self.cluster.freeze(node);
                self.plan(lasts, Deed::Resume(node));
            }
            Fault::Stick { who, worker, lasts } => {
                let node = self.resolve(who);
                self.hold_up(node);
                self.cluster.stick(node, worker, true);
                self.plan(lasts, Deed::Unstick(node));
            }
            Fault::Slow { who, factor, lasts, data_only } => {
                let node = self.resolve(who);
                self.hold_up(node);
                match data_only {
                    true => self.cluster.slow_down_data(node, factor),
                    false => self.cluster.slow_down(node, factor),
                }
                self.plan(lasts, Deed::Speed(node));
            }
            Fault::Cut { a, b, lasts } => {
                let (a, b) = (self.party(a), self.party(b));
                self.excuse([a, b]);
                self.cluster.part(a, b);
                self.plan(lasts, Deed::Heal(a, b));
            }
            Fault::Mute { from, to, lasts, lost } => {
                self.excused.extend(promise::may_lose(self.settings, &fault));
                let (from, to) = (self.party(from), self.party(to));
                self.cluster.mute(from, to);
                self.plan(lasts, Deed::Unmute { from, to, lost });
            }
            Fault::Split { ref side, lasts, silent } => {
                self.excused.extend(promise::may_lose(self.settings, &fault));
                self.held_up.extend(promise::may_go_instead_of(self.settings, &fault));
                self.split(side, None, lasts, silent);
            }
            Fault::Bridge { ref side, bridge, lasts, silent } => {
                self.excused.extend(promise::may_lose(self.settings, &fault));
                self.held_up.extend(promise::may_go_instead_of(self.settings, &fault));
                self.split(side, Some(bridge), lasts, silent);
            }
            Fault::Stall { side, lasts } => self.stall(side.as_deref(), lasts),
            Fault::Flap { a, b, period, times } => {
                let (a, b) = (self.party(a), self.party(b));
                self.excuse([a, b]);
                self.perform(Deed::Flap { a, b, period, times });
            }
            Fault::Reset { a, b, worker } => {
                let (a, b) = (self.party(a), self.party(b));
                match (a, b) {
                    (Party::Node(a), Party::Node(b)) if a.is_data() && b.is_data() => self.reset(a, b, worker),
                    _ => {
                        self.excuse([a, b]);
                        self.cluster.reset(a, b, worker);
                    }
                }
            }
            Fault::Storm { who, period, times } => {
                let node = self.resolve(who);
                self.perform(Deed::Storm { node, period, times });
            }
            Fault::Client { number } => self.lose_client(number),
            Fault::Unlink { number, who, deaf, late } => {
                let node = self.resolve(who);
                if let Some(actor) = self.actor(number) {
                    self.cluster.deafen(actor, node, deaf);
                    self.plan(deaf, Deed::Unlink { number, node, late });
                }
            }
            Fault::Arm { who, point, skip } => {
                let node = self.resolve(who);
                self.arm(node, &point, skip);
            }
            Fault::Doom { who, point, skip, after, down } => {
                let node = self.resolve(who);
                self.arm(node, &point, skip);
                let (incarnation, writes) =
                    (self.cluster.incarnation(node), self.cluster.writes_asked(node) + skip + 1);
                self.dooms.push(Doom { node, incarnation, point, writes, after, down });
            }
            Fault::Disk { who, ailment, lasts } => {
                let node = self.resolve(who);
                self.excused.insert(node);
                self.ailing.insert(node);
                self.cluster.ail_disk(node, ailment);
                self.plan(lasts, Deed::MendDisk(node));
            }
        }
    }
    fn arm(&mut self, node: NodeId, point: &str, skip: u64) {
        self.excused.insert(node);
        self.drops_commits |= point == "qmgr.drop_view_commit";
        self.cluster.arm_fault(node, point, FaultRule { skip, ..FaultRule::ONCE });
    }
    fn hold_up(&mut self, node: NodeId) {
        self.excused.insert(node);
        if node.is_data() {
            self.held_up.insert(node);
        }
    }
    fn split(&mut self, side: &[NodeId], bridge: Option<NodeId>, lasts: u64, silent: bool) {
        for (a, b) in self.across(side, bridge) {
            if silent {
                self.cluster.mute(a, b);
                self.cluster.mute(b, a);
                self.plan(lasts, Deed::Unmute { from: a.into(), to: b.into(), lost: false });
                self.plan(lasts, Deed::Unmute { from: b.into(), to: a.into(), lost: false });
            } else {
                self.cluster.part(a, b);
                self.plan(lasts, Deed::Heal(a.into(), b.into()));
            }
        }
    }
    fn stall(&mut self, side: Option<&[NodeId]>, lasts: u64) {
        let nodes = side.map_or_else(|| self.nodes(), <[NodeId]>::to_vec);
        // Who is held for lost is decided among them, but everybody bears a moment.
        if lasts + self.settings.link_spike_ns.1 > BORNE_NS {
            self.excused.extend(nodes.iter().copied());
        }
        for &from in &nodes {
            for &to in nodes.iter().filter(|to| **to != from) {
                self.cluster.mute(from, to);
                self.plan(lasts, Deed::Unmute { from: from.into(), to: to.into(), lost: false });
            }
        }
    }
    pub(super) fn crash(&mut self, node: NodeId, with_machine: bool) {
        self.note_probes(node);
        if with_machine {
            self.cluster.crash_machine(node);
        } else {
            self.cluster.crash(node);
        }
        self.restarted.insert(node);
        self.stopped.remove(&node);
    }
    pub(super) fn start(&mut self, node: NodeId) {
        self.down.remove(&node);
        self.cluster.start(node);
    }
    fn actor(&self, number: u64) -> Option<ActorId> {
        let index = (number as usize).checked_rem(self.clients.len())?;
        self.clients.get(index).map(|client| client.actor)
    }
    /// What a supervisor does with a node that has ended: a member that stopped itself may only join, all others start anew.
    pub(super) fn restart(&mut self, node: NodeId) {
        self.note_probes(node);
        self.restarted.insert(node);
        self.stopped.remove(&node);
        if !self.cluster.start_again(node) {
            self.cluster.crash(node);
            self.start(node);
        }
    }
    /// The client with this number or, if that one is dead, the one that came in its place.
    fn lose_client(&mut self, number: u64) {
        let Some(index) = (number as usize).checked_rem(self.clients.len()) else { return };
        if !self.workload.is_open() {
            return;
        }
        let (actor, dead) = (self.clients[index].actor, self.clients[index].number);
        self.cluster.detach(actor);
        self.workload.lost(dead);
        self.clients[index] = self.attach_client();
    }
}

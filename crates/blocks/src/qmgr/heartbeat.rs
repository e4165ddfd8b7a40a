//! Heartbeats: who is silent, and for how long we may answer clients.
//!
//! **Silence.** Every member sends every other a heartbeat per tick. Who is not heard for the *limit* is held for failed; any signal on
//! our link is a sign of life, as in NDB, since heartbeats queue behind data where a line is full. The limit is
//! the *floor* where all is calm (`silence_ms` of the view, [`SILENCE_MIN_NS`] where nobody has set it), so that a stopped process or a cut line costs less than 100 ms, and [`JITTER_FACTOR`] times the
//! jitter where it is not. The jitter is the longest of: the gaps between that member's heartbeats, the lateness of our own ticks, and
//! the lateness that any member measured of its own (heartbeats carry it). Each is forgotten after a while (`jitter`). So a machine
//! that is short of CPU is noticed by its first late turns, on whichever node, before a late turn can be taken for a death. Lateness of
//! our own is nobody's silence and is not counted at all.
//!
//! **Lease.** A node that was paused does not know that it was removed, and clients are still linked to it. So a member reads from its
//! clients only while its lease holds. Every heartbeat carries its sender's clock; the next heartbeat back echoes it with a promise:
//! the sender of the echo will not hold us for silent until it has not heard us for so long. The lease runs until the first of these
//! promises ends (less 1/32 for clocks of different speed), counted from when *we sent* what was echoed, and only while every living
//! member of our view has given one. Nobody holds us for silent before our lease is over, so while it holds, no view without us was
//! made for silence, and what we read is current.
//!
//! The other reason for which we may be removed is a link that has ended: nobody answers for its process, or the process at its other end
//! has given it up. Whoever holds a member for failed has no lease until the next view. Something between two nodes may take the
//! connection of a link from both; one of them may learn it late, and one of them may find the other where the other finds nobody. So
//! whoever waits for a connection has no lease either, promises nothing to the member at the other end and takes no promise of
//! it, and counts the time as that member's silence. What is left to `lease_end` is who has not noticed anything yet.
//!
//! Why a check when a request is *read* is enough: the executor looks at the clock after it has the bytes. A request that was sent
//! before a moment at which the lease held, and is answered from this node's memory afterwards, is answered with what was current
//! between its question and its answer: newer versions, if there are any, were committed later than that moment.
//!
//! A silence that ends is no reason to be sure of the others: who hears one again holds nobody for failed for a while (`silence_ended`), for a network comes
//! back one direction and one connection after the other.
//!
//! A member whose lease is over answers nothing and loses nothing: requests wait in their sockets until it has heard from the others,
//! or learns that it is out and stops. It costs one comparison per read from a client's socket. After [`REFUSE_AFTER_NS`] without a lease it has
//! clients told so (`Frozen`), who may do better elsewhere, or have somebody who waits for them.

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::{Context, jam};
use apus_signal::{
    Kind,
    mgmt::SILENCE_MS,
    qmgr::Heartbeat,
    view::{NodeState, View},
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use super::{MS, Membership, Phase, jitter::Jitter, quorum::HOPE_NS, setting};

/// Lowest legal floor of the silence limit, and the default: no silence that is shorter is a failure in any cluster.
pub const SILENCE_MIN_NS: u64 = *SILENCE_MS.start() as u64 * MS;
/// The limit is so many times the jitter.
const JITTER_FACTOR: u64 = 3;
/// The limit is never longer than so many times the configured time-out.
const TIMEOUT_STRETCH_MAX: u64 = 4;
/// Of a promise, one part in so many is not relied on: the clock of the promiser may be faster than ours by one part in 31, 3.2 %. Two
/// clocks that are each wrong by 1.5 % differ by less, and that is what the simulator draws.
const DRIFT: u64 = 32;
/// Connections that were lost at once come back within so long of each other: a dial that hangs, the pause after it, and a hello.
const PATIENCE_NS: u64 = 2_000 * MS;
/// Within this time whoever is heard again has its quorum back and has said so: each of the two waits for a tick at both ends.
const RETURN_NS: u64 = 4 * apus_kernel::limits::TICK_NS;
/// A member without a lease has its clients wait for so long; every failure that others can go on from is over before.
const REFUSE_AFTER_NS: u64 = 2_000 * MS;
/// A tick that came later than this is our own lateness.
const LATE_TICK_NS: u64 = apus_kernel::limits::TICK_NS * 3 / 2;

/// How a member fares that is not held for failed, and is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// The link to it waits for a connection.
    Unlinked,
    /// Nothing has come from it for half the limit.
    Unheard,
}

/// What passes between us and another member.
#[derive(Clone, Debug)]
struct Peer {
    /// Of its process: the next one of the node, which one view may put in its place, has said and promised nothing yet.
    incarnation: u64,
    /// By a heartbeat.
    heard: u64,
    /// By anything on our link: where it is full, heartbeats wait behind data. Ahead of time for a new member until it has sent its first.
    link_heard: u64,
    /// Gaps between its heartbeats.
    gap: Jitter,
    /// Longest lateness that it measured of itself.
    late: u64,
    /// Its clock in its last heartbeat, to be echoed.
    its_clock: u64,
    /// We have promised not to hold it for silent before.
    promised_until: u64,
    /// It has promised not to hold us for silent before; 0: nothing.
    leased_until: u64,
    /// Since when all its heartbeats say that it has lost its quorum, and how long it has been by its own clock.
    quorum_lost_since: Option<u64>,
    quorum_lost: u64,
    /// It says that a worker of its own is stuck.
    stuck: bool,
    /// It says that it is frozen, and in which view it is.
    frozen: bool,
    generation: u64,
    /// It says that an epoch waits for it.
    holds_epoch: bool,
    /// How long a signal waits for its data workers, ns.
    delay: u64,
    /// Since when a link to it has had no connection.
    suspended_since: Option<u64>,
    /// Members of whom it says that it does not hear them as it should, and those to whom its link waits for a connection.
    unheard: Vec<u32>,
    unlinked: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Heartbeats {
    members: BTreeMap<NodeId, Peer>,
    /// Lateness of our own ticks.
    late: Jitter,
    last_tick: u64,
    last_beat: u64,
    /// When we confirmed or made the proposal that is open: who is let in by it does not count our silence from before.
    prepared_at: u64,
    /// As told to the workers.
    lease: u64,
    /// It has been over since then.
    unleased_since: Option<u64>,
    /// Clients are refused, as told to the workers.
    refuses: bool,
    /// For so long we have heard too few to go on; 0: we hear enough. See `quorum`.
    quorum_lost: u64,
    /// Nobody is held for failed before: we hear enough again, or somebody, and connections come back one after the other.
    patient_until: u64,
    /// Promises that echo an older clock of ours are void.
    void_until: u64,
    /// Shortest silence that is a failure, in nanoseconds, as the view says; 0: no view yet.
    floor: u64,
}

impl Peer {
    fn silence(&self, now: u64) -> u64 {
        let suspended = self.suspended_since.map_or(0, |since| now.saturating_sub(since));
        now.saturating_sub(self.heard.max(self.link_heard)).max(suspended)
    }
}

impl Heartbeats {
    pub(super) fn started(&mut self, now: u64) {
        self.last_tick = now;
    }
    pub(super) fn prepared(&mut self, now: u64) {
        self.prepared_at = now;
    }
    pub(super) fn summary(&self, now: u64, longest: u64) -> String {
        let one = |(n, p): (&NodeId, &Peer)| {
            format!("{n}: silent {} of {}", p.silence(now) / MS, self.limit(p, longest) / MS)
        };
        let members: Vec<String> = self.members.iter().map(one).collect();
        format!("late {} lease {} ms; {}", self.late.ns() / MS, self.lease.saturating_sub(now) / MS, members.join(", "))
    }

    fn floor(&self) -> u64 {
        self.floor.max(SILENCE_MIN_NS)
    }

    /// Silence of this member that is a failure.
    fn limit(&self, peer: &Peer, longest: u64) -> u64 {
        let reported = self.members.values().map(|p| p.late).max().unwrap_or(0);
        let jitter = peer.gap.ns().max(self.late.ns()).max(reported);
        (JITTER_FACTOR * jitter).clamp(self.floor().min(longest), longest)
    }

    /// Silence of this member that is a failure; 0 for who is no member.
    pub(super) fn limit_of(&self, node: NodeId, longest: u64) -> u64 {
        self.members.get(&node).map_or(0, |p| self.limit(p, longest))
    }

    /// We hear the member as we should.
    pub(super) fn is_heard(&self, node: NodeId, now: u64, longest: u64) -> bool {
        self.members.get(&node).is_some_and(|p| p.silence(now) < self.limit(p, longest))
    }

    pub(super) fn is_stuck(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|p| p.stuck)
    }

    /// It has said that it is frozen in this view.
    pub(super) fn is_frozen_in(&self, node: NodeId, generation: u64) -> bool {
        self.members.get(&node).is_some_and(|p| p.frozen && p.generation == generation)
    }

    pub(super) fn delay_of(&self, node: NodeId) -> Option<u64> {
        self.members.get(&node).map(|p| p.delay)
    }

    pub(super) fn holds_epoch(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|p| p.holds_epoch)
    }

    fn beat(&mut self, from: NodeId, beat: &Heartbeat, now: u64) {
        let jitter = self.jitter();
        if let Some(peer) = self.members.get_mut(&from) {
            let silence = peer.silence(now);
            if peer.its_clock == 0 {
                peer.link_heard = now;
            }
            peer.gap.note(now.saturating_sub(peer.heard));
            peer.heard = peer.heard.max(now);
            peer.late = beat.late_ns.min(Jitter::MAX_NS);
            peer.its_clock = beat.clock;
            peer.quorum_lost = beat.quorum_lost_ns;
            (peer.stuck, peer.holds_epoch, peer.delay) = (beat.stuck, beat.holds_epoch, beat.delay_ns);
            (peer.frozen, peer.generation) = (beat.frozen, beat.generation);
            peer.unheard.clone_from(&beat.unheard);
            peer.unlinked.clone_from(&beat.unlinked);
            if beat.quorum_lost_ns > 0 {
                peer.promised_until = 0; // it has given up its lease
            }
            peer.quorum_lost_since = (beat.quorum_lost_ns > 0).then(|| peer.quorum_lost_since.unwrap_or(now));
            if beat.echo > self.void_until && beat.echo <= now && peer.suspended_since.is_none() {
                let promise = beat.promise_ns - beat.promise_ns / DRIFT;
                peer.leased_until = peer.leased_until.max(beat.echo.saturating_add(promise));
            }
            self.silence_ended(silence, jitter, now);
        }
    }

    /// The longest gap between heartbeats of any member.
    fn jitter(&self) -> u64 {
        self.members.values().map(|p| p.gap.ns()).max().unwrap_or(0)
    }

    /// A member is heard again that was silent for so long. If that is long, a network may come back, one connection after the other: nobody is held for
    /// failed for a quarter of it, and for [`RETURN_NS`] and the jitter that there was before where others may have been about to give up. So much later is found who is silent for good.
    fn silence_ended(&mut self, silence: u64, jitter: u64, now: u64) {
        if silence > self.floor() / 2 {
            let least = if silence > self.floor() / 4 * 3 { RETURN_NS.max(jitter) } else { 0 };
            let patience = (silence / 4).max(least).min(PATIENCE_NS);
            self.patient_until = self.patient_until.max(now + patience);
        }
    }

    /// What came by the links counts as a sign of life.
    fn note_links(&mut self, now: u64, link_heard: impl Fn(NodeId) -> u64) {
        let (mut ended, jitter) = (0, self.jitter());
        for (node, peer) in &mut self.members {
            let before = peer.silence(now);
            peer.link_heard = peer.link_heard.max(link_heard(*node));
            if peer.silence(now) < before {
                ended = ended.max(before);
            }
        }
        self.silence_ended(ended, jitter, now);
    }

    /// Members that have been silent for too long, with their silence. Nobody to whom a promise runs, and nobody who still relies
    /// on ours: who holds another for failed must have no lease from it on any worker. Nobody at all while some member is on the
    /// way there, or has been silent for half as long and only has a longer limit: who hears nobody finds that out at once, and not by
    /// suspecting one after the other.
    fn silent(&self, now: u64, longest: u64, is_held: impl Fn(&NodeId) -> bool) -> Vec<(NodeId, u64)> {
        if now < self.patient_until {
            return Vec::new();
        }
        let is_silent =
            |p: &Peer| p.silence(now) > self.limit(p, longest) && now > p.promised_until && now > p.leased_until;
        let watched = || self.members.iter().filter(|(n, _)| !is_held(n));
        let silent: Vec<(NodeId, u64)> =
            watched().filter(|(_, p)| is_silent(p)).map(|(n, p)| (*n, p.silence(now))).collect();
        let shortest = silent.iter().map(|s| s.1).min().unwrap_or(0);
        let is_on_the_way = |p: &Peer| p.silence(now) > self.limit(p, longest).min(shortest) / 2;
        if watched().any(|(_, p)| !is_silent(p) && is_on_the_way(p)) { Vec::new() } else { silent }
    }

    /// Members that have been silent for half the limit, and the shortest of their silences.
    pub(super) fn fading(&self, now: u64, longest: u64) -> (BTreeSet<NodeId>, u64) {
        let fading = || self.members.iter().filter(|(_, p)| p.silence(now) > self.limit(p, longest) / 2);
        (fading().map(|(n, _)| *n).collect(), fading().map(|(_, p)| p.silence(now)).min().unwrap_or(0))
    }

    /// Members that we hear and that have had no quorum for longer than the limit, and have said so for half of that.
    pub(super) fn without_quorum(&self, now: u64, longest: u64) -> BTreeSet<NodeId> {
        if now < self.patient_until {
            return BTreeSet::new();
        }
        let is_long = |p: &Peer| {
            let limit = self.limit(p, longest);
            p.quorum_lost > limit && p.quorum_lost_since.is_some_and(|t| now.saturating_sub(t) > limit / 2)
        };
        self.members.iter().filter(|(_, p)| is_long(p)).map(|(n, _)| *n).collect()
    }

    /// The shortest time for which one of these has had no quorum, by its own clock.
    pub(super) fn shortest_loss(&self, nodes: &BTreeSet<NodeId>) -> u64 {
        nodes.iter().filter_map(|n| self.members.get(n)).map(|p| p.quorum_lost).min().unwrap_or(0)
    }
    /// These have just begun to say that they have lost their quorum, as far as that counts.
    pub(super) fn hear_anew(&mut self, nodes: &BTreeSet<NodeId>, now: u64) {
        for (_, peer) in self.members.iter_mut().filter(|(n, _)| nodes.contains(n)) {
            peer.quorum_lost_since = peer.quorum_lost_since.map(|_| now);
        }
    }
    /// Members that have been silent for longer than this, whatever their limits are.
    pub(super) fn silent_for(&self, now: u64, longer_than: u64) -> impl Iterator<Item = NodeId> {
        self.members.iter().filter(move |(_, p)| p.silence(now) > longer_than).map(|(n, _)| *n)
    }

    pub(super) fn lacks_quorum(&self) -> bool {
        self.quorum_lost > 0
    }

    /// Nothing that others have promised us so far counts. At the end all silence begins anew: whose heartbeats come a moment later than
    /// the first is not dead. And who was without its quorum beside us has it back as we do, a moment later. Both get as long as we were without,
    /// up to [`PATIENCE_NS`].
    pub(super) fn set_quorum_lost(&mut self, quorum_lost: u64, now: u64) {
        if self.quorum_lost > 0 && quorum_lost == 0 {
            for peer in self.members.values_mut() {
                peer.heard = now;
                peer.suspended_since = peer.suspended_since.map(|_| now);
                peer.quorum_lost_since = peer.quorum_lost_since.map(|_| now);
            }
            self.patient_until = now + self.quorum_lost.min(PATIENCE_NS);
        }
        self.quorum_lost = quorum_lost;
        if quorum_lost > 0 {
            self.void_lease(now);
        }
    }

    /// Until when we have promised a member not to hold it for silent; 0: not at all.
    pub(super) fn promised_until(&self, node: NodeId) -> u64 {
        self.members.get(&node).map_or(0, |p| p.promised_until)
    }

    /// What others have promised us so far is void, until they have answered a later heartbeat.
    pub(super) fn void_lease(&mut self, now: u64) {
        self.void_until = now;
        self.members.values_mut().for_each(|p| p.leased_until = 0);
    }

    fn is_apart(&self, peer: &Peer, how: Apart, now: u64, longest: u64) -> bool {
        match how {
            Apart::Unlinked => peer.suspended_since.is_some(),
            Apart::Unheard => peer.silence(now) > self.limit(peer, longest) / 2,
        }
    }

    /// Pairs of these members of which one says so of the other, or of which we see it where one is `me`.
    pub(super) fn apart<'a>(
        &'a self,
        view: &'a View,
        me: NodeId,
        how: Apart,
        now: u64,
        longest: u64,
    ) -> impl Iterator<Item = (NodeId, NodeId)> + 'a {
        let says = move |from: NodeId, of: NodeId| match self.members.get(&if from == me { of } else { from }) {
            Some(peer) if from == me => self.is_apart(peer, how, now, longest),
            Some(peer) if how == Apart::Unlinked => peer.unlinked.contains(&of.0.into()),
            Some(peer) => peer.unheard.contains(&of.0.into()),
            None => false,
        };
        let pairs = view.living().flat_map(|a| view.living().map(move |b| (a.node(), b.node())));
        pairs.filter(move |(a, b)| a != b && (says(*a, *b) || says(*b, *a)))
    }

    /// Some member says that it is frozen.
    pub(super) fn is_any_frozen(&self) -> bool {
        self.members.values().any(|peer| peer.frozen)
    }

    /// A link to some member has no connection.
    fn is_suspended(&self) -> bool {
        self.members.values().any(|p| p.suspended_since.is_some())
    }

    /// Until when all living members of the view have promised not to hold us for silent.
    fn promised_to_us(&self) -> u64 {
        self.members.values().map(|p| p.leased_until).min().unwrap_or(u64::MAX)
    }
}

impl Membership {
    /// The longest silence that can be asked for.
    pub(super) fn longest_silence(&self) -> u64 {
        let configured = u64::from(self.config.as_ref().map_or(500, |c| c.heartbeat_timeout_ms)) * MS;
        // A floor that is set counts, whatever the time-out is.
        let room_above = if self.heartbeats.floor > SILENCE_MIN_NS { 2 * self.heartbeats.floor } else { 0 };
        (configured * TIMEOUT_STRETCH_MAX).max(room_above)
    }

    pub(super) fn on_heartbeat(&mut self, from: NodeId, beat: Heartbeat, ctx: &mut Context<'_>) {
        let Some(view) = self.view.as_ref().filter(|_| self.phase == Phase::Member) else { return };
        let known = view.node(from).is_some_and(|n| n.state() != NodeState::Down && n.incarnation == beat.incarnation);
        if known {
            self.heartbeats.beat(from, &beat, ctx.now());
        }
        if known && beat.frozen {
            self.on_frozen_president(from, ctx);
        }
        self.answer_heartbeat(from, known, beat, ctx);
        self.judge_quorum_lost(ctx);
        if self.heartbeats.lease <= ctx.now() {
            self.renew_lease(ctx);
        }
    }

    /// What a tick finds; see the module.
    pub(super) fn check_heartbeats(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let since = now.saturating_sub(self.heartbeats.last_tick);
        let late = if since > LATE_TICK_NS { since - apus_kernel::limits::TICK_NS } else { 0 };
        if late > 0 {
            jam!(ctx);
            for peer in self.heartbeats.members.values_mut() {
                peer.heard = (peer.heard + late).min(now);
                peer.suspended_since = peer.suspended_since.map(|since| (since + late).min(now));
            }
            self.managers.forgive(late, now);
            self.heartbeats.unleased_since = self.heartbeats.unleased_since.map(|since| (since + late).min(now));
        }
        self.heartbeats.note_links(now, |node| ctx.link_heard(node));
        self.heartbeats.last_tick = now;
        self.heartbeats.late.note(late);
        let silent = self.heartbeats.silent(now, self.longest_silence(), |n| self.failed.contains(n));
        let nodes: BTreeSet<NodeId> = silent.iter().map(|s| s.0).collect();
        let shortest = silent.iter().map(|s| s.1).min().unwrap_or(0);
        let has_hope = self.heartbeats.lacks_quorum() || self.cannot_spare(&nodes);
        if !has_hope {
            self.hold_all_for_failed(
                &nodes,
                &format!("silent, or without a connection, for {} ms", shortest / MS),
                ctx,
            );
        } else if shortest > HOPE_NS && !self.freeze.is_frozen() {
            self.freeze("hears too few to go on", ctx);
        }
        self.check_quorum(ctx);
        let every = u64::from(self.config.as_ref().map_or(10, |c| c.heartbeat_ms)) * MS;
        if now.saturating_sub(self.heartbeats.last_beat) >= every {
            self.send_heartbeats(ctx);
        }
        self.renew_lease(ctx);
    }

    pub(super) fn send_heartbeats(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.heartbeats.last_beat = now;
        let longest = self.longest_silence();
        let mgmts = self.managers.reached(now);
        let beats = &self.heartbeats;
        let those = |apart| move |(_, p): &(&NodeId, &Peer)| beats.is_apart(p, apart, now, longest);
        let apart = |how| beats.members.iter().filter(those(how)).map(|(n, _)| n.0.into()).collect();
        let (unheard, unlinked): (Vec<u32>, Vec<u32>) = (apart(Apart::Unheard), apart(Apart::Unlinked));
        for node in self.survivors() {
            let Some(limit) = self.heartbeats.members.get(&node).map(|p| self.heartbeats.limit(p, longest)) else {
                continue;
            };
            let Some(peer) = self.heartbeats.members.get_mut(&node) else { continue };
            let mut beat = Heartbeat {
                generation: self.view.as_ref().map_or(0, |v| v.generation),
                incarnation: self.incarnation,
                mgmts: mgmts.clone(),
                clock: now,
                late_ns: self.heartbeats.late.ns(),
                echo: 0,
                promise_ns: 0,
                quorum_lost_ns: self.heartbeats.quorum_lost,
                stuck: self.stuck.is_any() || self.disks.is_any_troubled(now) || self.keeper.is_behind(now),
                holds_epoch: self.stuck.holds_epoch(),
                delay_ns: self.slow.delay(),
                frozen: self.freeze.is_frozen(),
                unheard: unheard.clone(),
                unlinked: unlinked.clone(),
            };
            // The promise runs from when we heard what is echoed, which may be a while ago.
            if peer.its_clock != 0 && peer.quorum_lost_since.is_none() && peer.suspended_since.is_none() {
                peer.promised_until = peer.promised_until.max(peer.heard + limit);
                (beat.echo, beat.promise_ns) = (peer.its_clock, limit);
            }
            self.send(ctx, node, Kind::HeartbeatRep, &beat);
        }
        self.tell_lost(ctx);
    }

    // ---- the lease

    /// Tells the workers until when they may read from clients.
    pub(super) fn renew_lease(&mut self, ctx: &mut Context<'_>) {
        let lease = match self.phase {
            Phase::Starting => return, // the blocks refuse
            _ if self.refuses_until().is_some() => self.refuses_until().unwrap_or(0),
            Phase::Member if self.failed.is_empty() && !self.is_held_up() => self.heartbeats.promised_to_us(),
            Phase::Member | Phase::Stopped => 0,
        };
        let is_safe = lease == 0 || !self.heartbeats.is_suspended() || self.refuses_until().is_some();
        assert!(is_safe, "a lease while the link to a member waits for a connection");
        if lease != self.heartbeats.lease {
            self.heartbeats.lease = lease;
            ctx.serve_clients_until(lease);
        }
        self.refuse_or_wait(ctx);
    }

    /// Tells the workers whether clients, whom they do not serve, are to hear of it.
    pub(super) fn refuse_or_wait(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let beats = &mut self.heartbeats;
        beats.unleased_since = (beats.lease <= now).then(|| beats.unleased_since.unwrap_or(now));
        if beats.unleased_since.is_none() {
            self.ending.serves();
        }
        let is_long = beats.unleased_since.is_some_and(|since| now.saturating_sub(since) > REFUSE_AFTER_NS);
        let refuses = self.freeze.is_frozen() || self.ending.has_begun() || (is_long && self.phase == Phase::Member);
        if refuses != std::mem::replace(&mut beats.refuses, refuses) {
            ctx.refuse_clients(refuses);
        }
    }

    /// Hears too few, may not go on, does not know what became of a member, or might be forgotten.
    fn is_held_up(&self) -> bool {
        let is_suspended = self.heartbeats.is_suspended() && !planted(Bug::LeaseWhileSuspended);
        let is_frozen = self.freeze.is_frozen() || self.ending.has_begun();
        self.heartbeats.lacks_quorum() || is_suspended || is_frozen || self.keeper.founds()
    }

    /// Links have lost or got connections.
    pub(super) fn note_suspended(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        for (node, peer) in &mut self.heartbeats.members {
            let is_suspended = self.links.get(*node).is_some_and(|l| !l.suspended.is_empty());
            peer.suspended_since = is_suspended.then(|| peer.suspended_since.unwrap_or(now));
        }
        self.renew_lease(ctx);
    }

    /// A new view: its members are watched from now on.
    pub(super) fn watch_members(&mut self, view: &View, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.heartbeats.patient_until = 0;
        self.heartbeats.floor = u64::from(setting::silence_ms(view)) * MS;
        let mut members = BTreeMap::new();
        for node in view.living().filter(|n| n.node() != self.me) {
            if !self.failed.contains(&node.node()) {
                ctx.accept_from(node.node(), node.incarnation, true);
            }
            // It became a member after we had agreed to it, and counts our silence from then on.
            let promise = SILENCE_MIN_NS.min(self.longest_silence());
            let new = || Peer {
                incarnation: node.incarnation,
                heard: now,
                link_heard: now + SILENCE_MIN_NS, // it has to learn of the view first
                gap: Jitter::default(),
                late: 0,
                its_clock: 0,
                promised_until: now + promise, // it counts on that
                leased_until: self.heartbeats.prepared_at + promise - promise / DRIFT,
                quorum_lost_since: None,
                quorum_lost: 0,
                stuck: false,
                frozen: false,
                generation: 0,
                holds_epoch: false,
                delay: 0,
                suspended_since: None,
                unheard: Vec::new(),
                unlinked: Vec::new(),
            };
            let known = self.heartbeats.members.get(&node.node()).filter(|p| p.incarnation == node.incarnation);
            let known = known.cloned().unwrap_or_else(new);
            // That it heard too few was about the view before.
            members.insert(node.node(), Peer { quorum_lost: 0, quorum_lost_since: None, ..known });
        }
        self.heartbeats.members = members;
        self.note_suspended(ctx);
    }
}

//! The atlas: which faults may come together, because the system promises to live through them.
//!
//! Safety is promised always, but nothing is on disk yet: a cluster of which no group member is left, or of which every side must stop,
//! has lost its data, and there is nothing left to check. So a round of faults is *within the promise* if, whatever the faults do at
//! worst, the nodes that they cannot take away
//! - hold a member of each group,
//! - may go on by the survival rule of QMGR even if all others go at the same moment: a whole group is among them, or more
//!   than half of all nodes, or half of them and the arbitrator can be asked,
//!
//! and the arbitrator counts only if nothing in the round touches a management node (a partition that is the only fault of its round is
//! judged with the management node on its side). A SQL node that nothing in the round touches arbitrates in later phases where no
//! management node does.
//!
//! Faults are judged by *when* they come. Those between which less than [`SETTLED_NS`] passes are a *phase*, and their effects may meet. In the
//! next phase the members are those that were left, so a cluster may lose one replica after the other down to the last; whoever was lost and
//! has come back meanwhile may count as a member, but nobody counts on what it holds.
//!
//! Where data nodes keep their views in files (`files=1`), one kind of round is within the promise that is not by this rule: only processes die,
//! no group dies out, and the round ends with all of them started again. Whoever is left may have to wait for that, and loses nothing.
//!
//! Where the data is on disk (`durable=1`), so is the death of a whole group: the others go back to the disks with it.
//!
//! So are two kinds of rounds after which those that came back from their disks and those that kept their rows have to find out by themselves who goes on: half of
//! the nodes is parted from the other half and loses power, or all do; and all but one of each group die, or lose power, and come back.
//!
//! So is a round in which nothing happens but that disks hang, of all nodes perhaps.
//!
//! So is a round in which nothing happens but that the network parts node groups from each other: each side lacks a group, and when they meet again all
//! go on where they were.
//!
//! A stall makes everybody silent at once, and a split that ends early does so for some. It may cost whomever some side that may go on does without, and never the rest. So it is within
//! the promise alone, and hardly ever together with something else.
//!
//! Each round begins with a whole cluster, so rounds need not be looked at together, with one exception: a management node that was
//! restarted says no until the members' view names its new process, so a round that touched it is followed by a little peace.

use std::collections::{BTreeMap, BTreeSet};

use apus_types::NodeId;

use crate::{
    fault::{Ailment, Fault, Round, Then, Who},
    settings::Settings,
};

type Nodes = BTreeSet<NodeId>;
/// Silence of this length has been noticed by everybody.
const NOTICED_NS: u64 = 400_000_000;
/// So long after the end of a fault (of a crash: after the crash) the others have gone on without whom it cost: the longest silence that is
/// waited for, 2 s, and a view.
pub const SETTLED_NS: u64 = 3_000_000_000;
/// ... by whoever waits longest, because it has met long silences before, and what it promised those that it has lost has run out.
const NOTICED_LATE_NS: u64 = 2_400_000_000;
/// No process is a full member again so soon after it began.
const RETURNED_NS: u64 = 20_000_000;
/// Nodes of which every set is looked at.
const WAYS_NODES_MAX: usize = 12;

/// Why the round is not within the promise; `None`: it is.
pub fn refusal(settings: &Settings, round: &Round) -> Option<String> {
    if round.then == Then::Force {
        let why = "who is left for an operator did not see all that happened";
        return (!is_forced(settings, round)).then(|| why.to_owned());
    }
    let is_promised = matches!(round.then, Then::Ruin | Then::Dark | Then::Stop)
        || goes_back_to_disks(settings, round)
        || is_of_halves(settings, round)
        || is_outlived(settings, round)
        || is_rolled(settings, round)
        || are_spoken_for(settings, round)
        || is_between_groups(settings, round)
        || is_hung(settings, round);
    if is_promised { None } else { refusal_by_rule(settings, round) }
}

/// As above, where nobody speaks for the dead.
pub fn refusal_by_rule(settings: &Settings, round: &Round) -> Option<String> {
    let all: Nodes = settings.data_nodes().into_iter().collect();
    let is_split = |fault: &Fault| matches!(fault, Fault::Split { .. } | Fault::Bridge { .. } | Fault::Stall { .. });
    // One that is the only fault of its round is judged with all sides that it makes.
    let hit = round.faults.iter().map(|(_, fault)| fault).filter(|f| !is_of_client(f));
    let is_alone = hit.clone().count() == 1;
    let arbitrated = hit.clone().all(|f| if is_split(f) { is_alone } else { !touches_arbitrator(f) });
    // Each way in which the faults may go.
    let mut ways: Vec<Way> = vec![Way { base: all.clone(), back: Nodes::new(), left: all.clone() }];
    for phase in phases(round) {
        let arbitrated = arbitrated || stands_in(settings, round, &phase);
        let mut starts: Vec<Way> = Vec::new();
        for left in ways.into_iter().map(|way| way.left) {
            // Who was lost before may be a member again, or not yet.
            for back in subsets(&all.difference(&left).copied().collect()) {
                let start = Way { base: left.union(&back).copied().collect(), back, left: left.clone() };
                if !starts.contains(&start) {
                    starts.push(start);
                }
            }
        }
        ways = starts;
        let mut hit = Nodes::new();
        for fault in phase {
            let losses = losses(settings, fault);
            if losses.is_empty() {
                return Some(format!("after `{fault}` no side may go on"));
            }
            hit.extend(losses.iter().flatten());
            let mut next: Vec<Way> = Vec::new();
            for way in &ways {
                for loss in &losses {
                    let left = way.left.difference(loss).copied().collect();
                    let lost = Way { left, ..way.clone() };
                    if !next.contains(&lost) {
                        next.push(lost);
                    }
                }
            }
            ways = next;
        }
        for Way { base, back, left } in &ways {
            let there: Nodes = left.iter().chain(back.difference(&hit)).copied().collect();
            if !goes_on(settings, base, &there, arbitrated) || !holds_all(settings, left) {
                return Some(format!("if {left:?} were all that is left of {base:?}, they could not go on"));
            }
        }
    }
    None
}

/// Nothing touches a SQL node, and management nodes are touched in earlier phases only: by now the members have named one or the other.
fn stands_in(settings: &Settings, round: &Round, phase: &[&Fault]) -> bool {
    let nobody_parts =
        |fault: &Fault| !matches!(fault, Fault::Split { .. } | Fault::Bridge { .. } | Fault::Stall { .. });
    let spares = |fault: &Fault| nobody_parts(fault) && !touches(fault, NodeId::is_sql_arbitrator);
    settings.sqls > 0
        && round.faults.iter().all(|(_, fault)| spares(fault))
        && !phase.iter().any(|fault| touches_arbitrator(fault))
}

/// Processes die and nothing else happens, no group dies out, and the next process of each knows what the dead one accepted: whoever is
/// left goes on at the latest when all are back.
fn are_spoken_for(settings: &Settings, round: &Round) -> bool {
    let mut left: Nodes = settings.data_nodes().into_iter().collect();
    let mut is_only_that = settings.keeps_views && round.then == Then::Heal;
    for (_, fault) in &round.faults {
        match fault {
            Fault::Crash { who: Who::Node(node), .. } | Fault::Doom { who: Who::Node(node), .. } => {
                _ = left.remove(node)
            }
            Fault::Client { .. } => {}
            _ => is_only_that = false,
        }
    }
    is_only_that && holds_all(settings, &left)
}

/// Processes die, or are told to end, and nothing else happens, and among them are all of a group: what that group had is on its disks only, so the whole cluster starts
/// again from the disks, by itself. They die so soon one after the other that none of them can have come back meanwhile: a process that has, and is all that is left of the
/// group, keeps its rows and waits frozen for the others, of which none may know any more what it has accepted.
pub fn goes_back_to_disks(settings: &Settings, round: &Round) -> bool {
    let mut is_only_that = settings.durable && round.then == Then::Heal;
    let mut away: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    for (at, fault) in &round.faults {
        match fault {
            Fault::Crash { who: Who::Node(node), down }
            | Fault::Power { who: Who::Node(node), down }
            | Fault::Leave { who: Who::Node(node), down } => {
                let times = away.entry(*node).or_insert((0, 0));
                *times = (*times).max((*at, at + down));
            }
            Fault::Client { .. } | Fault::Set { .. } => {}
            _ => is_only_that = false,
        }
    }
    let is_gone = |group: &Nodes| {
        let times: Vec<(u64, u64)> = group.iter().filter_map(|node| away.get(node).copied()).collect();
        let last = times.iter().map(|(at, _)| *at).max().unwrap_or(0);
        times.len() == group.len() && times.iter().all(|(_, until)| last <= until + RETURNED_NS)
    };
    let left: Nodes = settings.data_nodes().into_iter().filter(|node| !away.contains_key(node)).collect();
    is_only_that
        && settings.group_members().iter().all(|group| !group.is_disjoint(&left) || is_gone(group))
        && !holds_all(settings, &left)
}

/// Half of a cluster with disks is parted from the other half, and loses power while it is, or all lose it, each at one moment. The arbitrators are with that half. Whoever has gone on then has
/// what it acknowledged on its disks, and says so when it comes back; else those that live, or all disks together, go on.
pub fn is_of_halves(settings: &Settings, round: &Round) -> bool {
    let is_late = |ailment: &Ailment| matches!(ailment, Ailment::Slow | Ailment::Hangs);
    let is_slow = |fault: &Fault| matches!(fault, Fault::Disk { who: Who::Node(n), ailment, .. } if n.is_data() && is_late(ailment));
    let mut faults = round.faults.iter().filter(|(_, fault)| !is_of_client(fault) && !is_slow(fault));
    let Some((begin, Fault::Split { side, lasts, .. })) = faults.next() else { return false };
    let (half, rest): (Nodes, Nodes) = settings.data_nodes().into_iter().partition(|n| side.contains(n));
    let arbitrators: Nodes = settings.arbitrators().into_iter().collect();
    let (mut dark, mut moment) = (Nodes::new(), None);
    for (at, fault) in faults {
        match fault {
            Fault::Power { who: Who::Node(node), .. }
                if *moment.get_or_insert(*at) == *at && (*begin..begin + lasts).contains(at) =>
            {
                dark.insert(*node);
            }
            _ => return false,
        }
    }
    let is_all = rest.is_subset(&dark);
    settings.durable
        && matches!(round.then, Then::Heal | Then::Core)
        && half.len() == rest.len()
        && holds_all(settings, &half)
        && holds_all(settings, &rest)
        && arbitrators.iter().all(|n| side.contains(n))
        && half.is_subset(&dark)
        && (is_all || dark == half)
}

/// Processes die, or machines lose power, and nothing else happens. Of each group one is never hit: if it may not go on before the others are back, it does then.
fn is_outlived(settings: &Settings, round: &Round) -> bool {
    let mut left: Nodes = settings.data_nodes().into_iter().collect();
    let mut hit = Nodes::new();
    for (_, fault) in &round.faults {
        match fault {
            Fault::Crash { who: Who::Node(node), .. } | Fault::Power { who: Who::Node(node), .. }
                if hit.insert(*node) =>
            {
                left.remove(node);
            }
            Fault::Client { .. } => {}
            _ => return false,
        }
    }
    settings.durable && round.then == Then::Heal && holds_all(settings, &left)
}

/// Data nodes that are down when the round ends, where processes die and nothing else happens; and those that died and are back by then.
fn deaths(settings: &Settings, round: &Round) -> Option<(Nodes, Nodes)> {
    let (mut away, mut back) = (Nodes::new(), Nodes::new());
    for (at, fault) in &round.faults {
        match fault {
            Fault::Crash { who: Who::Node(node), down } | Fault::Power { who: Who::Node(node), down } => {
                // Who would come back just as the round ends may be started by it or not.
                let is_away = at + down >= round.end;
                let is_first = !node.is_data() || if is_away { away.insert(*node) } else { back.insert(*node) };
                if !is_first || (away.contains(node) && back.contains(node)) {
                    return None;
                }
            }
            Fault::Client { .. } => {}
            _ => return None,
        }
    }
    let all = settings.data_nodes();
    (away.iter().chain(&back).all(|node| all.contains(node))).then_some((away, back))
}

/// Whoever is left when some die for good has all that was acknowledged: it was with them all the time, or all lost power at the same moment and it has a
/// disk, on which is whatever was acknowledged by then. It may be too few to go on without an operator.
fn is_forced(settings: &Settings, round: &Round) -> bool {
    let Some((away, back)) = deaths(settings, round) else { return false };
    let left: Nodes = settings.data_nodes().into_iter().filter(|node| !away.contains(node)).collect();
    !away.is_empty() && holds_all(settings, &left) && (back.is_empty() || is_all_dark(settings, round))
}

/// All machines lose power at the same moment, and some are back when the round ends.
pub fn is_all_dark(settings: &Settings, round: &Round) -> bool {
    let is_power = |fault: &Fault| matches!(fault, Fault::Power { who: Who::Node(node), .. } if node.is_data());
    let moment = round.faults.first().map(|(at, _)| *at);
    let is_at_once = round.faults.iter().all(|(at, fault)| Some(*at) == moment && is_power(fault));
    let all = settings.data_nodes().len();
    settings.durable
        && round.then == Then::Force
        && is_at_once
        && deaths(settings, round).is_some_and(|(away, back)| away.len() + back.len() == all)
}

/// An operator restarts one node after the other, and waits for each. Nobody dies meanwhile.
fn is_rolled(settings: &Settings, round: &Round) -> bool {
    let is_calm = |fault: &Fault| matches!(fault, Fault::Roll { .. } | Fault::Client { .. } | Fault::Unlink { .. });
    settings.replicas > 1 && round.then == Then::Heal && round.faults.iter().all(|(_, fault)| is_calm(fault))
}

/// Nothing happens but that the network parts node groups from each other: nobody goes on, and all go on where they were when it is whole.
fn is_between_groups(settings: &Settings, round: &Round) -> bool {
    let mut hit = round.faults.iter().map(|(_, fault)| fault).filter(|f| !matches!(f, Fault::Client { .. }));
    let (Some(Fault::Split { side, .. }), None) = (hit.next(), hit.next()) else { return false };
    let groups = settings.group_members();
    let has_all = |group: &&BTreeSet<NodeId>| group.iter().all(|n| side.contains(n));
    let whole = groups.iter().filter(has_all).count();
    let touched = groups.iter().filter(|group| group.iter().any(|n| side.contains(n))).count();
    round.then == Then::Heal && whole == touched && whole > 0 && whole < groups.len()
}

/// Nothing happens but that disks hang: whoever has one that does ends only if the others can go on, and they do not count on those that say the same of
/// themselves.
fn is_hung(settings: &Settings, round: &Round) -> bool {
    let hangs = |fault: &Fault| matches!(fault, Fault::Disk { who: Who::Node(node), ailment: Ailment::Hangs, .. } if node.is_data());
    let is_calm = |fault: &Fault| matches!(fault, Fault::Client { .. } | Fault::Set { .. });
    let is_only_that = round.faults.iter().all(|(_, fault)| hangs(fault) || is_calm(fault));
    settings.keeps_views && round.then == Then::Heal && is_only_that
}

/// How a round may have gone so far.
#[derive(Clone, PartialEq, Eq)]
struct Way {
    /// The full members at the beginning of the phase, and those of them who had been lost before: nobody counts on what they hold.
    base: Nodes,
    back: Nodes,
    /// Who was never lost.
    left: Nodes,
}

/// A round by time: a phase ends when everything that was done in it is settled.
fn phases(round: &Round) -> Vec<Vec<&Fault>> {
    let mut faults: Vec<&(u64, Fault)> = round.faults.iter().collect();
    faults.sort_by_key(|(at, _)| *at);
    let mut phases: Vec<Vec<&Fault>> = Vec::new();
    let mut settled = 0;
    for (at, fault) in faults {
        if *at >= settled {
            phases.push(Vec::new());
        }
        let ends = match fault {
            Fault::Crash { .. } | Fault::Power { .. } => *at,
            // It may do what it does at any later time.
            Fault::Arm { .. } | Fault::Doom { .. } => u64::MAX,
            other => *at + other.lasts(),
        };
        settled = settled.max(ends.saturating_add(SETTLED_NS));
        if let Some(phase) = phases.last_mut() {
            phase.push(fault);
        }
    }
    phases
}

fn subsets(nodes: &Nodes) -> Vec<Nodes> {
    let list: Vec<NodeId> = nodes.iter().copied().take(WAYS_NODES_MAX).collect();
    let pick = |bits: usize| list.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, n)| *n).collect();
    (0..1usize << list.len()).map(pick).collect()
}

/// Whether somebody has to serve clients at the end of the round although nothing is undone: what still goes on by then is nothing but nodes
/// that are down or silent, or cannot hear others, and it has been noticed.
pub fn serves_on(settings: &Settings, round: &Round) -> bool {
    let is_over = |at: u64, fault: &Fault| at + fault.lasts() <= round.end && !matches!(fault, Fault::Doom { .. });
    let is_clear = |fault: &Fault| match fault {
        Fault::Crash { who, .. }
        | Fault::Power { who, .. }
        | Fault::Pause { who, .. }
        | Fault::Freeze { who, .. }
        | Fault::Doom { who, .. } => matches!(who, Who::Node(n) if n.is_data() || settings.sqls > 0),
        Fault::Split { .. } => true,
        // Who of the two is removed is soon said.
        Fault::Cut { a, b, .. } => matches!((a, b), (Who::Node(a), Who::Node(b)) if a.is_data() && b.is_data()),
        _ => false,
    };
    // Who comes in the place of a client that died asks a management node for the cluster. One that starts while it is parted from the data nodes knows none.
    let is_split = round.faults.iter().any(|(_, fault)| matches!(fault, Fault::Split { .. }));
    let is_found = !is_split
        || !round.faults.iter().any(|(_, fault)| matches!(fault, Fault::Client { .. }))
        || !round.faults.iter().any(|(_, fault)| touches_arbitrator(fault));
    let known = settings.data_nodes().len() <= WAYS_NODES_MAX;
    is_found && known && round.faults.iter().all(|(at, fault)| is_over(*at, fault) || is_clear(fault))
}

/// Where only processes have died, their links tell it: a view and the take-over follow, some round trips each, slices and a client that tries again.
const GAP_DEAD_NS: u64 = 3_000_000_000;
/// Where somebody is silent: the longest limit that silence can grow to (2 s), a view and the take-over; and whoever has asked the silent one waits 3 s for
/// its answer before it asks the others.
const GAP_SILENT_NS: u64 = 6_000_000_000;

/// So long at most nobody at all has anything acknowledged while the faults of this round are in force and the others must serve.
pub fn gap_ns(round: &Round) -> u64 {
    let is_told = |fault: &Fault| match fault {
        Fault::Crash { .. } | Fault::Power { .. } | Fault::Client { .. } | Fault::Reset { .. } | Fault::Set { .. } => {
            true
        }
        Fault::Arm { point, .. } => point != "qmgr.drop_view_commit",
        _ => false,
    };
    let is_told = round.faults.iter().all(|(_, fault)| is_told(fault));
    if is_told { GAP_DEAD_NS } else { GAP_SILENT_NS }
}

/// No node is held for lost because nothing is heard of it for so long.
pub const BORNE_NS: u64 = 50_000_000;

/// A link has another connection, and is heard over it, so long after one was lost.
pub fn redial_ns(settings: &Settings) -> u64 {
    6 * settings.link_delay_max_ns + settings.link_spike_ns.1
}

/// Resets one upon the other let nothing through for longer than silence is borne.
fn is_silence(settings: &Settings, period: u64, times: u64) -> bool {
    let redial = redial_ns(settings);
    redial > BORNE_NS || (period < 2 * redial && period.saturating_mul(times) + redial > BORNE_NS)
}

/// Every group has a member among these.
fn holds_all(settings: &Settings, left: &Nodes) -> bool {
    settings.group_members().iter().all(|group| !group.is_disjoint(left))
}

fn is_client(who: &Who) -> bool {
    matches!(who, Who::Client(_))
}

/// Nothing but clients, what is between them and a node, or a setting: the nodes decide as if it were not there.
fn is_of_client(fault: &Fault) -> bool {
    match fault {
        Fault::Client { .. } | Fault::Unlink { .. } | Fault::Arm { .. } | Fault::Set { .. } => true,
        Fault::Cut { a, b, .. }
        | Fault::Flap { a, b, .. }
        | Fault::Reset { a, b, .. }
        | Fault::Mute { from: a, to: b, .. } => is_client(a) || is_client(b),
        _ => false,
    }
}

/// Whether this fault may keep data nodes from asking the arbitrator, which is a management node as long as all can reach one.
pub fn touches_arbitrator(fault: &Fault) -> bool {
    touches(fault, NodeId::is_mgmt)
}

/// Whether it may keep data nodes from asking an arbitrator of this kind.
fn touches(fault: &Fault, kind: fn(NodeId) -> bool) -> bool {
    let is_mgmt = |who: &Who| matches!(who, Who::Node(node) if kind(*node));
    match fault {
        Fault::Crash { who, .. }
        | Fault::Leave { who, .. }
        | Fault::Power { who, .. }
        | Fault::Pause { who, .. }
        | Fault::Freeze { who, .. }
        | Fault::Stick { who, .. }
        | Fault::Slow { who, .. }
        | Fault::Doom { who, .. }
        | Fault::Disk { who, .. } => is_mgmt(who),
        Fault::Cut { a, b, .. }
        | Fault::Flap { a, b, .. }
        | Fault::Reset { a, b, .. }
        | Fault::Mute { from: a, to: b, .. } => (is_mgmt(a) || is_mgmt(b)) && !is_client(a) && !is_client(b),
        // Judged with the sides: one of them has the management node.
        Fault::Split { .. } | Fault::Bridge { .. } => false,
        Fault::Stall { side, .. } => side.as_ref().is_none_or(|side| side.iter().any(|node| kind(*node))),
        Fault::Storm { .. }
        | Fault::Client { .. }
        | Fault::Unlink { .. }
        | Fault::Arm { .. }
        | Fault::Roll { .. }
        | Fault::Set { .. } => false,
    }
}

/// The survival rule for these full members of a whole cluster.
fn goes_on_of_all(settings: &Settings, left: &Nodes, arbitrated: bool) -> bool {
    goes_on(settings, &settings.data_nodes().into_iter().collect(), left, arbitrated)
}

/// The survival rule for these of the full members `base`.
fn goes_on(settings: &Settings, base: &Nodes, left: &Nodes, arbitrated: bool) -> bool {
    let groups: Vec<Nodes> =
        settings.group_members().iter().map(|group| group.intersection(base).copied().collect()).collect();
    let all: usize = groups.iter().map(BTreeSet::len).sum();
    if groups.iter().any(|group| group.is_disjoint(left)) {
        return false;
    }
    left.len() == all
        || groups.iter().any(|group| group.is_subset(left))
        || 2 * left.len() > all
        || (2 * left.len() == all && arbitrated)
}

/// Whoever this fault may cost its place.
pub fn may_lose(settings: &Settings, fault: &Fault) -> Nodes {
    // Nobody is held for lost for a silence of this length, and nothing else happens to links that stay up.
    let is_borne = |lasts: u64| lasts + settings.link_spike_ns.1 + settings.link_delay_max_ns <= BORNE_NS;
    match fault {
        Fault::Split { lasts, silent: true, .. } | Fault::Bridge { lasts, silent: true, .. } if is_borne(*lasts) => {
            Nodes::new()
        }
        Fault::Mute { lasts, lost: false, .. } if is_borne(*lasts) => Nodes::new(),
        Fault::Pause { who: Who::Node(node), .. }
        | Fault::Freeze { who: Who::Node(node), .. }
        | Fault::Stick { who: Who::Node(node), .. }
        | Fault::Slow { who: Who::Node(node), .. } => Nodes::from([*node]),
        _ => {
            let losses = losses(settings, fault);
            // Groups that hold each other for failed and meet again: all should stay, but two of which each was told that the other's process is gone cannot.
            let is_parted =
                losses.is_empty() && matches!(fault, Fault::Split { silent: false, .. } | Fault::Bridge { .. });
            // Who asks a shared arbitrator first goes on, and which of several arbitrates is not known here.
            let is_shared = matches!(fault, Fault::Bridge { bridge, .. } if !bridge.is_data());
            let losses = if is_parted || is_shared { stall(settings, None) } else { losses };
            losses.into_iter().flatten().collect()
        }
    }
}

/// Sides that meet again before everybody has lost patience, for some have met long silences before: one that had lost it goes in the place of those that were to go, if the
/// cluster keeps more of its nodes so (seed 214000890). So many at most.
pub fn may_go_instead_of(settings: &Settings, fault: &Fault) -> Nodes {
    match fault {
        Fault::Split { lasts, .. } | Fault::Bridge { lasts, .. } if *lasts < NOTICED_LATE_NS => {
            losses(settings, fault).into_iter().min_by_key(Nodes::len).unwrap_or_default()
        }
        _ => Nodes::new(),
    }
}

/// The sets of data nodes of which this fault may take one away; none: it may leave nobody.
fn losses(settings: &Settings, fault: &Fault) -> Vec<Nodes> {
    let only = |who: &Who| match who {
        Who::Client(_) => vec![Nodes::new()],
        Who::Node(node) if node.may_arbitrate() => vec![Nodes::new()],
        Who::Node(node) => vec![Nodes::from([*node])],
        Who::President => settings.data_nodes().into_iter().map(|n| Nodes::from([n])).collect(),
    };
    match fault {
        Fault::Crash { who, .. }
        | Fault::Leave { who, .. }
        | Fault::Power { who, .. }
        | Fault::Doom { who, .. }
        | Fault::Disk { who, .. } => only(who),
        // It wakes up as another one holds it for lost, and that one is gone in its place.
        Fault::Pause { who, .. } | Fault::Freeze { who, .. } | Fault::Stick { who, .. } | Fault::Slow { who, .. } => {
            let is_mgmt = matches!(who, Who::Node(node) if node.may_arbitrate());
            let others = settings.data_nodes().into_iter().filter(|_| !is_mgmt).map(|node| Nodes::from([node]));
            let own = only(who);
            let others: Vec<Nodes> = others.filter(|node| !own.contains(node)).collect();
            own.into_iter().chain(others).collect()
        }
        // The nodes do not notice.
        Fault::Cut { a, b, .. }
        | Fault::Flap { a, b, .. }
        | Fault::Reset { a, b, .. }
        | Fault::Mute { from: a, to: b, .. }
            if is_client(a) || is_client(b) =>
        {
            vec![Nodes::new()]
        }
        // Their links go on.
        Fault::Reset { a, b, .. } if !touches_arbitrator(fault) && a != b && !is_silence(settings, 0, 1) => {
            vec![Nodes::new()]
        }
        Fault::Storm { period, times, .. } if !is_silence(settings, *period, *times) => vec![Nodes::new()],
        Fault::Storm { .. } => settings.data_nodes().into_iter().map(|node| Nodes::from([node])).collect(),
        // One of the two is removed, for it is suspected by the other.
        Fault::Cut { a, b, .. }
        | Fault::Flap { a, b, .. }
        | Fault::Reset { a, b, .. }
        | Fault::Mute { from: a, to: b, .. } => only(a).into_iter().chain(only(b)).collect(),
        Fault::Split { side, lasts, .. } => {
            let mut losses = split(settings, side, None, *lasts < NOTICED_LATE_NS);
            losses.extend(unsettled(settings, *lasts, !losses.is_empty()));
            losses
        }
        Fault::Bridge { side, bridge, lasts, .. } => {
            let mut losses = split(settings, side, Some(*bridge), *lasts < NOTICED_LATE_NS);
            losses.extend(unsettled(settings, *lasts, !losses.is_empty()));
            losses
        }
        // The node that recovers stops.
        Fault::Arm { who, point, .. } if point == "ldm.stop_copy" => only(who),
        Fault::Stall { side, .. } => stall(settings, side.as_deref()),
        Fault::Client { .. } | Fault::Unlink { .. } | Fault::Arm { .. } | Fault::Set { .. } => vec![Nodes::new()],
        // Together with anything else nothing is promised.
        Fault::Roll { .. } => Vec::new(),
    }
}

/// Both sides ask to go on. A bridge belongs to the one that does, or is lost too: both sides tell it of the other's failure.
/// If it is over before all of the side with the arbitrator have noticed, or their promises to the other have run out, the other's question may come first.
fn split(settings: &Settings, side: &[NodeId], bridge: Option<NodeId>, is_soon_over: bool) -> Vec<Nodes> {
    let all: Nodes = settings.data_nodes().into_iter().collect();
    let here: Nodes = side.iter().copied().filter(|n| n.is_data() && Some(*n) != bridge).collect();
    let there: Nodes = all.iter().copied().filter(|n| !here.contains(n) && Some(*n) != bridge).collect();
    // Which management node arbitrates is not known here: a side has it for certain when it has all.
    let mgmts_here = side.iter().filter(|n| n.is_mgmt()).count();
    let is_shared = is_soon_over || (settings.mgmts == 1 && bridge.is_some_and(|node| node.is_mgmt()));
    let (mgmt_here, mgmt_there) =
        (is_shared || mgmts_here == usize::from(settings.mgmts), is_shared || mgmts_here == 0);
    let mut losses = Vec::new();
    for (own, lost, has_mgmt) in [(&here, &there, mgmt_here), (&there, &here, mgmt_there)] {
        let bridge = bridge.filter(|node| node.is_data());
        let with_bridge: Nodes = own.iter().copied().chain(bridge).collect();
        if goes_on_of_all(settings, &with_bridge, has_mgmt) {
            losses.push(lost.iter().copied().chain(bridge).collect());
        }
    }
    losses
}

/// Sides that do not hear each other for about as long as it takes everybody to notice (silence, or links that go on or do not): some find others
/// gone and some do not, so that anybody may be lost whom the rest can do without.
fn unsettled(settings: &Settings, lasts: u64, can_end: bool) -> Vec<Nodes> {
    if can_end && lasts < NOTICED_NS { stall(settings, None) } else { Vec::new() }
}

/// Whoever is not needed may be lost, as long as the stall lasts or when it ends.
fn stall(settings: &Settings, side: Option<&[NodeId]>) -> Vec<Nodes> {
    let all = settings.data_nodes();
    let hit: Vec<NodeId> = all.iter().copied().filter(|node| side.is_none_or(|side| side.contains(node))).collect();
    let left_by = |lost: &Nodes| all.iter().copied().filter(|node| !lost.contains(node)).collect();
    // Of a cluster larger than seeds draw, only some.
    let ways = (0..1usize << hit.len().min(WAYS_NODES_MAX))
        .map(|bits| hit.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, node)| *node).collect());
    ways.filter(|lost: &Nodes| goes_on_of_all(settings, &left_by(lost), true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(groups: u8, replicas: u8, round: &str) -> Option<String> {
        let settings = Settings { groups, replicas, mgmts: 1, sqls: 0, keeps_views: false, ..Settings::from_seed(1) };
        refusal(&settings, &round.parse().expect("a round"))
    }

    #[test]
    fn groups_that_are_parted_meet_again() {
        let judge = |round: &str| judge(2, 2, round);
        assert_eq!(judge("1ms split n1+n2 500ms, 600ms heal"), None);
        assert_eq!(judge("1ms hush n3+n4+m1 5ms, 600ms heal"), None);
        assert!(judge("1ms split n1+n2 500ms, 600ms hold").is_some(), "nobody serves meanwhile");
        assert!(judge("1ms split n1+n2 500ms, 100ms crash n3 1ms, 600ms heal").is_some());
    }

    #[test]
    fn dead_processes_are_spoken_for_where_views_are_kept() {
        let judge = |replicas: u8, keeps_views: bool, round: &str| {
            let settings = Settings { groups: 1, replicas, mgmts: 1, sqls: 0, keeps_views, ..Settings::from_seed(1) };
            refusal(&settings, &round.parse().expect("a round")).is_none()
        };
        for round in [
            "1ms crash m1 2ms, 1ms crash n1 2ms, 9ms heal",
            "1ms crash n1 2ms, 1ms client 1, 1ms crash n1 2ms, 1ms crash m1 2ms, 9ms heal",
        ] {
            assert!(judge(2, true, round) && !judge(2, false, round), "{round}");
        }
        for round in [
            "1ms crash n1 2ms, 1ms crash n2 2ms, 9ms heal",
            "1ms crash m1 2ms, 1ms power n1 2ms, 9ms heal",
            "1ms crash m1 2ms, 1ms crash n1 2ms, 1ms pause n2 200ms, 9ms heal",
            "1ms crash m1 2ms, 1ms crash n1 2ms, 9ms core",
        ] {
            assert!(!judge(2, true, round), "{round}");
        }
    }

    #[test]
    fn a_group_that_dies_at_once_is_on_its_disks() {
        let goes_back = |round: &str| {
            let settings = Settings { groups: 1, replicas: 3, durable: true, ..Settings::from_seed(1) };
            goes_back_to_disks(&settings, &round.parse().expect("a round"))
        };
        assert!(goes_back("1ms crash n1 99ms, 50ms power n2 1ms, 60ms power n3 1ms, 900ms heal"));
        assert!(goes_back("1ms crash n1 9ms, 500ms crash n1 9ms, 501ms power n2 1ms, 502ms power n3 1ms, 900ms heal"));
        assert!(!goes_back("1ms crash n1 99ms, 500ms power n2 1ms, 501ms power n3 1ms, 900ms heal"), "node 1 is back");
        assert!(!goes_back("1ms crash n1 99ms, 50ms power n2 1ms, 900ms heal"));
    }

    #[test]
    fn an_operator_has_those_go_on_who_saw_everything() {
        let judge = |replicas: u8, durable: bool, round: &str| {
            let settings = Settings { groups: 1, replicas, mgmts: 1, sqls: 0, durable, ..Settings::from_seed(1) };
            refusal(&settings, &round.parse().expect("a round")).is_none()
        };
        for round in [
            "1ms power n1 60000ms, 2ms crash n2 60000ms, 9ms force",
            "1ms crash m1 60000ms, 1ms power n1 60000ms, 9ms force",
            "1ms power n3 60000ms, 9ms client 1, 400ms power n2 60000ms, 900ms force",
        ] {
            assert!(judge(3, false, round), "{round}");
        }
        let all_dark = "1ms power n1 60000ms, 1ms power n2 60000ms, 1ms power n3 20ms, 90ms force";
        assert!(judge(3, true, all_dark) && !judge(3, false, all_dark));
        for round in [
            "1ms power n1 60000ms, 2ms crash n2 60000ms, 3ms crash n3 60000ms, 9ms force",
            "1ms power n1 60000ms, 1ms power n2 60000ms, 2ms power n3 20ms, 90ms force",
            "1ms power n1 60000ms, 1ms crash n2 60000ms, 1ms power n3 20ms, 90ms force",
            "1ms power n1 60000ms, 2ms pause n3 2ms, 9ms force",
            "1ms power n1 60000ms, 2ms crash n2 3ms, 9ms force",
            "9ms client 1, 19ms force",
        ] {
            assert!(!judge(3, true, round), "{round}");
        }
    }

    #[test]
    fn a_sql_node_stands_in_for_management_nodes() {
        let judge = |sqls: u8, round: &str| {
            let settings =
                Settings { groups: 1, replicas: 2, mgmts: 1, sqls, keeps_views: false, ..Settings::from_seed(1) };
            refusal(&settings, &round.parse().expect("a round")).is_none()
        };
        let (later, at_once) =
            ("1ms crash m1 9000ms, 3001ms crash n1 9ms, 3100ms hold", "1ms crash m1 9ms, 2ms crash n1 9ms, 30ms heal");
        assert!(judge(1, later) && !judge(0, later) && !judge(1, at_once));
        assert!(!judge(1, "1ms crash m1 9000ms, 9ms pause s1 5ms, 3100ms crash n1 9ms, 3200ms heal"));
        assert!(judge(1, "1ms crash s1 9ms, 2ms crash n1 9ms, 30ms heal"), "the management node is named");
    }

    #[test]
    fn what_is_promised() {
        for (groups, replicas, round) in [
            (1, 2, "1ms crash n1 2ms, 3ms heal"),
            (1, 2, "1ms crash p 2ms, 3ms heal"),
            (1, 2, "1ms cut n1 n2 2ms, 3ms heal"),
            (1, 2, "1ms split n1 2ms, 3ms heal"),
            (1, 2, "1ms reset n1 n2, 2ms storm n2 3ms 9, 3ms crash m1 1ms, 900ms heal"),
            (1, 2, "1ms pause n1 200ms, 300ms heal"),
            (1, 4, "1ms pause n1 200ms, 2ms crash n1 20ms, 300ms heal"),
            (1, 1, "1ms crash m1 2ms, 3ms heal"),
            (1, 2, "1ms crash n1 2ms, 9ms crash n1 1ms, 30ms heal"),
            (2, 2, "1ms crash n1 2ms, 1ms crash n3 1ms, 30ms heal"),
            (1, 3, "1ms crash n1 2ms, 1ms crash m1 1ms, 30ms heal"),
            (2, 2, "1ms split n1+n2+n3 2ms, 3ms heal"),
            (1, 2, "1ms stall all 600ms, 603ms heal"),
            (2, 2, "1ms stall n1+n2+n3+n4 600ms, 9ms client 0, 603ms heal"),
            (1, 3, "1ms stall n1+n2+n3 600ms, 9ms crash m1 1ms, 603ms heal"),
            (3, 2, "1ms hush n2+n4+m1 82ms, 84ms heal"),
            (3, 2, "1ms hush n2+n4+m1 800ms, 84ms crash n4 1ms, 900ms heal"),
            // One after the other, down to the last replica.
            (1, 3, "1ms crash n1 9000ms, 3001ms crash n2 1ms, 9000ms hold"),
            (1, 4, "1ms crash n1 9999ms, 3001ms crash n2 9999ms, 6002ms crash n3 9999ms, 9999ms hold"),
            (1, 3, "1ms cut n1 c0 9000ms, 2ms mute n2 c1 9000ms, 3ms crash n2 1ms, 9000ms heal"),
        ] {
            assert_eq!(judge(groups, replicas, round), None, "{groups} x {replicas}: {round}");
        }
    }

    #[test]
    fn what_is_not() {
        for (groups, replicas, round) in [
            (1, 1, "1ms crash n1 2ms, 3ms heal"),
            (1, 2, "1ms crash n1 2ms, 1ms crash n2 3ms, 5ms heal"),
            (1, 2, "1ms crash n1 2ms, 1ms crash p 3ms, 5ms heal"),
            (1, 2, "1ms pause n1 200ms, 2ms crash n1 20ms, 300ms heal"),
            (1, 2, "1ms crash n1 2ms, 1ms crash m1 3ms, 5ms heal"),
            (1, 2, "1ms split m1 2ms, 1ms cut n1 n2 2ms, 3ms heal"),
            (1, 3, "1ms crash n1 2ms, 1ms crash n2 1ms, 30ms heal"),
            (2, 2, "1ms split n1+n2 2ms, 3ms hold"),
            (2, 2, "1ms crash n1 2ms, 1ms cut n1 n2 1ms, 30ms heal"),
            (3, 2, "1ms hush n2+n4+m1 82ms, 84ms crash n4 1ms, 90ms heal"),
            (2, 3, "1ms split n4+n5+m1 12ms, 84ms crash n5 1ms, 90ms heal"),
            (1, 3, "1ms crash n1 9000ms, 2900ms crash n2 1ms, 9000ms heal"),
            (1, 2, "1ms crash n1 200ms, 4000ms crash n2 1ms, 9000ms heal"),
            (1, 3, "1ms crash m1 1ms, 2ms crash n1 9000ms, 4001ms crash n2 1ms, 9000ms heal"),
            (1, 2, "1ms stall n1+n2 600ms, 9ms crash n1 2ms, 603ms heal"),
            (1, 2, "1ms stall n1+n2 600ms, 9ms crash m1 2ms, 603ms heal"),
        ] {
            assert!(judge(groups, replicas, round).is_some(), "{groups} x {replicas}: {round}");
        }
    }
}

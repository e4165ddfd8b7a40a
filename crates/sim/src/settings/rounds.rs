//! The rounds that seeds draw, each as the atlas allows (`promise`): what nodes, disks, links, clients and operators may do.

use std::collections::BTreeSet;

use apus_kernel::Random;
use apus_types::NodeId;

use super::{MS, Settings, US};
use crate::{
    fault::{Ailment, FILE_POINT, Fault, Knob, Round, Span, Then, Who},
    probes::DRAWN,
    promise,
    workload::Kind,
};

impl Settings {
    /// One round: some faults that together stay within the promise.
    pub(super) fn round(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(250_000));
        let wanted = [1, 2, 2, 3, 4, 6][random.below(6) as usize];
        let mut round = Round { faults: Vec::new(), end: begin, then: Then::Heal };
        let mut at = begin;
        for _ in 0..30 {
            if round.faults.len() >= wanted {
                break;
            }
            let fault = self.fault(random);
            let ends = at + fault.lasts();
            round.faults.push((at, fault));
            if promise::refusal_by_rule(self, &round).is_some() {
                round.faults.pop();
                continue;
            }
            round.end = round.end.max(ends);
            if let (_, Fault::Crash { who: who @ Who::Node(_), down }) = round.faults[round.faults.len() - 1].clone()
                && random.one_in(5)
            {
                // Its recovery fails once, some rows or partitions later.
                let point = "ldm.stop_copy".to_owned();
                round.faults.push((at + down + US, Fault::Arm { who, point, skip: random.below(300) }));
            }
            // What follows hits the beginning of what the first one sets off, or any time of it, or comes when that is over.
            at += match random.below(8) {
                0..=3 => US * random.below(3_000),
                4..=6 => US * random.below(400_000),
                _ => promise::SETTLED_NS + US * random.below(400_000),
            };
        }
        round.end += US * random.below(100_000);
        round.then = [Then::Heal, Then::Heal, Then::Core, Then::Hold][random.below(4) as usize];
        if round.then == Then::Hold {
            self.prolong(&mut round, random);
        }
        round
    }
    /// The last faults go on for longer than any time-out of the failure protocol, if the rest must serve meanwhile.
    fn prolong(&self, round: &mut Round, random: &mut Random) {
        let drawn = round.clone();
        for (at, fault) in &mut round.faults {
            let goes_on = *at + fault.lasts() + promise::SETTLED_NS > drawn.end;
            if let Span::Lasts(time) = fault.span()
                && goes_on
            {
                *time += 15_000 * MS + US * random.below(30_000_000);
            }
        }
        if promise::refusal_by_rule(self, round).is_some() || !promise::serves_on(self, round) {
            *round = Round { then: Then::Core, ..drawn };
        } else if random.one_in(4) {
            round.end += 11_000 * MS;
        }
    }
    /// The president dies when some members have prepared or committed a change of the schema and one has not heard of it. In half of them the clients
    /// die at about the same time: nobody asks for the change again.
    pub(super) fn half_change(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(100_000));
        let (after, down) = (US * random.below(30_000), MS * (1 + random.below(200)));
        let point = ["dict.drop_commit", "dict.drop_prepare"][random.below(2) as usize];
        let (who, point) = (Who::President, point.to_owned());
        let mut faults = vec![(begin, Fault::Doom { who, point, skip: random.below(12), after, down })];
        if random.one_in(2) {
            let at = begin + US * random.below(400_000);
            faults.extend((0..self.clients).map(|number| (at, Fault::Client { number })));
        }
        let then = if random.one_in(3) { Then::Core } else { Then::Heal };
        Round { faults, end: begin + MS * (400 + random.below(400)), then }
    }
    /// Power is lost everywhere, in calm or amid what other faults have set off.
    pub(super) fn dark(&self, random: &mut Random) -> Round {
        let mut at = US * (1 + random.below(100_000));
        let mut faults = Vec::new();
        if self.replicas > 1 && random.one_in(2) {
            // One has been away, and what it missed it has by copies only.
            let who = Who::Node(self.any_data(random));
            faults.push((at, Fault::Crash { who, down: MS * (1 + random.below(300)) }));
            at += MS * (300 + random.below(1_500));
        }
        for _ in 0..random.below(3) {
            faults.push((at, self.fault(random)));
            at += US * [random.below(3_000), random.below(400_000)][random.below(2) as usize];
        }
        if random.one_in(2) {
            // One disk is behind the others when the power goes.
            let who = Who::Node(self.any_data(random));
            faults.push((at, Fault::Disk { who, ailment: Ailment::Slow, lasts: 3_000 * MS }));
            at += US * random.below(500_000);
        }
        let end = at + US * random.below(300_000);
        // And again for some, while the cluster starts from the disks; half of them just when the supervisor has started all, 1.2 s after the loss.
        for _ in 0..random.below(3) {
            let nodes = self.data_nodes();
            let who = Who::Node(nodes[random.below(nodes.len() as u64) as usize]);
            let after =
                US * [1_000 + random.below(2_000_000), 1_200_000 + random.below(100_000)][random.below(2) as usize];
            let down = MS * (1 + random.below(300));
            faults.push((end + after, Fault::Power { who, down }));
        }
        Round { faults, end, then: Then::Dark }
    }
    /// Power is lost while one disk is behind, so that the start voids what the others have on theirs; and again everywhere when there is hardly anything
    /// new. The supervisor has started all 1.2 s after the loss. The clients are gone, too, so that nobody does again what was voided.
    pub(super) fn dark_twice(&self, random: &mut Random) -> Round {
        let slow = Fault::Disk { who: Who::Node(self.any_data(random)), ailment: Ailment::Slow, lasts: 3_000 * MS };
        let begin = US * (1 + random.below(300_000));
        let end = begin + US * (50_000 + random.below(700_000));
        let again = end + US * (1_400_000 + random.below(3_000_000));
        let power = |node| Fault::Power { who: Who::Node(node), down: 100 * MS };
        let mut faults = vec![(begin, slow)];
        faults.extend((0..self.clients).map(|_| (end - US, Fault::Client { number: 0 })));
        faults.extend(self.data_nodes().into_iter().map(|node| (again, power(node))));
        Round { faults, end, then: Then::Dark }
    }
    /// A node dies, and comes back with what its disk has; power is lost soon after that.
    pub(super) fn dark_after_return(&self, random: &mut Random) -> Vec<Round> {
        let begin = US * (1 + random.below(100_000));
        let (who, down) = (Who::Node(self.any_data(random)), MS * (100 + random.below(2_500)));
        let away = Round { faults: vec![(begin, Fault::Crash { who, down })], end: begin + down, then: Then::Heal };
        vec![away, Round { faults: Vec::new(), end: US * (1 + random.below(100_000)), then: Then::Dark }]
    }
    /// Whoever is left of each group, mostly one, cannot go on without those that are down, if these die at once. Where rows are on disks all machines
    /// may lose power, and some never come back.
    pub(super) fn forced(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(100_000));
        let all_dark = self.durable && random.one_in(2);
        let spares = random.one_in(4);
        let (mut away, mut back) = (Vec::new(), Vec::new());
        for (number, group) in self.group_members().into_iter().enumerate() {
            let stays = any_of(&group, random);
            let goes =
                |node: &NodeId, random: &mut Random| *node != stays && !(spares && number > 0 && random.one_in(2));
            let (gone, left): (Vec<NodeId>, Vec<NodeId>) = group.into_iter().partition(|node| goes(node, random));
            away.extend(gone);
            back.extend(left);
        }
        let mut faults = Vec::new();
        if !all_dark && random.one_in(3) {
            faults.extend(
                self.mgmt_nodes().into_iter().map(|m| (begin, Fault::Crash { who: Who::Node(m), down: 60_000 * MS })),
            );
        }
        let mut at = begin;
        for node in &away {
            let (who, down) = (Who::Node(*node), 60_000 * MS);
            let with_machine = all_dark || random.one_in(2);
            faults.push((at, if with_machine { Fault::Power { who, down } } else { Fault::Crash { who, down } }));
            if !all_dark {
                at +=
                    US * [0, random.below(3_000), random.below(3_000), random.below(400_000)][random.below(4) as usize];
            }
        }
        let mut end = at;
        for node in back.into_iter().filter(|_| all_dark) {
            let down = MS * (1 + random.below(300));
            end = end.max(at + down);
            faults.push((at, Fault::Power { who: Who::Node(node), down }));
        }
        Round { faults, end: end + MS * (1 + random.below(3_000)), then: Then::Force }
    }
    /// One half of the nodes is parted from the other, and goes on by the arbitrator's word if there is time; then it loses power, or all do. Whoever is back first
    /// has what it has.
    pub(super) fn fenced(&self, random: &mut Random) -> Round {
        let (mut half, mut rest): (Vec<NodeId>, Vec<NodeId>) = (Vec::new(), Vec::new());
        for group in self.group_members() {
            half.extend(group.iter().take(group.len() / 2));
            rest.extend(group.iter().skip(group.len() / 2));
        }
        if random.one_in(2) {
            std::mem::swap(&mut half, &mut rest);
        }
        let begin = US * (1 + random.below(50_000));
        let dies = begin
            + US * [random.below(60_000), random.below(300_000), random.below(2_000_000)][random.below(3) as usize];
        let lasts = dies - begin + US * (1 + random.below(3_000_000));
        let side = half.iter().copied().chain(self.arbitrators()).collect();
        let mut faults = vec![(begin, Fault::Split { side, lasts, silent: random.one_in(3) })];
        let mut power = |nodes: Vec<NodeId>, random: &mut Random| {
            let down = MS * (1 + random.below(2_500));
            let fault = |node| Fault::Power { who: Who::Node(node), down: down + MS * random.below(100) };
            faults.extend(nodes.into_iter().map(fault).map(|fault| (dies, fault)).collect::<Vec<_>>());
        };
        power(half, random);
        if random.one_in(2) {
            power(rest, random);
            let arbitrators = self.arbitrators().into_iter().filter(|_| random.one_in(3)).collect();
            power(arbitrators, random);
        }
        Round { faults, end: dies + MS * (100 + random.below(3_500)), then: Then::Heal }
    }
    /// All nodes but one of each group lose power, or die, mostly at once, and the arbitrators perhaps. Who is left may not go on, and does when the others are back.
    pub(super) fn outlived(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(100_000));
        let spared: Vec<NodeId> = self.group_members().iter().map(|g| any_of(g, random)).collect();
        let hit = self.data_nodes().into_iter().filter(|n| !spared.contains(n));
        let mut faults = Vec::new();
        let (mut at, mut end) = (begin, begin);
        if random.one_in(3) {
            let down = MS * (1 + random.below(3_000));
            let crash = |m| (begin, Fault::Crash { who: Who::Node(m), down });
            faults.extend(self.arbitrators().into_iter().map(crash));
            at += US * [0, random.below(400_000)][random.below(2) as usize];
        }
        for node in hit {
            let (who, down) = (Who::Node(node), MS * (1 + random.below(1_500)));
            faults.push((at, if random.one_in(4) { Fault::Crash { who, down } } else { Fault::Power { who, down } }));
            end = end.max(at + down);
            at += US * [0, 0, random.below(3_000), random.below(400_000)][random.below(4) as usize];
        }
        Round { faults, end: end + MS * random.below(2_000), then: Then::Heal }
    }
    /// A node is slow for longer than it is looked at, while the setting has such a node leave.
    pub(super) fn ejected(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let (who, lasts) = (Who::Node(self.any_data(random)), MS * (6_000 + random.below(8_000)));
        let (factor, data_only) = ([5_000, 20_000, 50_000][random.below(3) as usize], true);
        let set = |value| Fault::Set { knob: Knob::Eject, value };
        let over = begin + MS + lasts;
        let wanted = [20, 20, 40, 100][random.below(4) as usize];
        let slow = Fault::Slow { who, factor, lasts, data_only };
        let faults = vec![(begin, set(wanted)), (begin + MS, slow), (over, set(0))];
        Round { faults, end: over + MS * (1 + random.below(500)), then: Then::Heal }
    }
    /// All processes of a node group die, at once or one after the other, and perhaps one of another group. If some can be back before the others die nothing is promised: a ruin, which seeds with disks leave out.
    pub(super) fn group_dies(&self, random: &mut Random) -> Round {
        let groups = self.group_members();
        let mut dying: Vec<NodeId> = groups[random.below(groups.len() as u64) as usize].iter().copied().collect();
        if random.one_in(3) {
            dying.push(self.any_data(random));
        }
        let mut at = US * (1 + random.below(100_000));
        let mut end = at;
        let mut faults = Vec::new();
        for node in dying {
            let (who, down) = (Who::Node(node), MS * (1 + random.below(300)));
            let fault = if random.one_in(2) { Fault::Crash { who, down } } else { Fault::Power { who, down } };
            end = end.max(at + fault.lasts());
            faults.push((at, fault));
            at += US * [random.below(3_000), random.below(400_000)][random.below(2) as usize];
        }
        let round = Round { faults, end: end.max(at) + US * random.below(300_000), then: Then::Heal };
        let is_promised = promise::refusal(self, &round).is_none();
        if is_promised { round } else { Round { then: Then::Ruin, ..round } }
    }
    /// Anything, more than is promised to be lived through: what follows hits what the first one sets off.
    pub(super) fn ruin(&self, random: &mut Random) -> Round {
        let mut at = US * (1 + random.below(100_000));
        let mut faults = Vec::new();
        let mut end = at;
        for _ in 0..2 + random.below(5) {
            let fault = self.fault(random);
            end = end.max(at + fault.lasts());
            faults.push((at, fault));
            at += US * [random.below(3_000), random.below(400_000), random.below(3_000_000)][random.below(3) as usize];
        }
        Round { faults, end: end + US * random.below(300_000), then: Then::Ruin }
    }
    /// What a node says is held back until the others have gone on without it, and arrives then. Half of these nodes stand still by then, so that
    /// they learn later than that what has become of them; where that is more than is promised, the round is a ruin.
    pub(super) fn late(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let (from, to) = (self.any_data(random), self.any_data(random));
        let to = if to == from { self.data_nodes().into_iter().find(|n| *n != from).unwrap_or(to) } else { to };
        let (who, lasts) = (Who::Node(from), MS * (80 + random.below(500)));
        let faults = vec![(begin, Fault::Mute { from: who, to: Who::Node(to), lasts, lost: false })];
        let end = begin + lasts + MS * random.below(200);
        let mut round = Round { faults, end, then: Then::Heal };
        if random.one_in(2) {
            let after = US * random.below(30_000);
            let stands = lasts - after + US * random.below(200_000);
            round.faults.push((begin + after, Fault::Pause { who, lasts: stands }));
            round.end = end.max(begin + after + stands);
            if promise::refusal(self, &round).is_some() {
                round.then = Then::Ruin;
            }
        }
        round
    }
    /// A node dies just when links between others wait for a connection, but not those of their control workers: what they pass on for it arrives when
    /// they have gone on without it.
    pub(super) fn relayed(&self, random: &mut Random) -> Round {
        let dying = self.any_data(random);
        let dies = MS + US * random.below(50_000);
        let others: Vec<NodeId> = self.data_nodes().into_iter().filter(|node| *node != dying).collect();
        let down = MS * (1 + random.below(400));
        let mut faults = vec![(dies, Fault::Crash { who: Who::Node(dying), down })];
        for _ in 0..1 + random.below(4) {
            let a = random.below(others.len() as u64) as usize;
            let b = (a + 1 + random.below(others.len() as u64 - 1) as usize) % others.len();
            let (a, b) = (Who::Node(others[a]), Who::Node(others[b]));
            let worker = Some(random.below(u64::from(self.workers)) as u8);
            let at = dies - MS + US * random.below(1_000 + 3 * self.link_delay_max_ns / US);
            faults.push((at, Fault::Reset { a, b, worker }));
        }
        Round { faults, end: dies + down + MS * random.below(300), then: Then::Heal }
    }
    /// Half of the nodes and the other half, who both ask the arbitrator, one after the other perhaps. Mostly each half has clients of its own.
    pub(super) fn halves(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let nodes = self.data_nodes();
        let members = self.group_members();
        // Of each group as many here as there, if that can be.
        let side: Vec<NodeId> = members
            .iter()
            .flat_map(|group| group.iter().copied().take(group.len() / 2))
            .take(nodes.len() / 2)
            .collect();
        let lasts = MS * (100 + random.below(3_000));
        let mut faults = Vec::new();
        if !random.one_in(4) {
            let first = random.below(2);
            for number in 0..self.clients {
                let is_cut = |node: &&NodeId| side.contains(node) == (number + first).is_multiple_of(2);
                let cut = |node: &NodeId| Fault::Cut { a: Who::Client(number), b: Who::Node(*node), lasts };
                faults.extend(nodes.iter().filter(is_cut).map(|node| (begin, cut(node))));
            }
        }
        let bridge = Fault::Bridge { side, bridge: self.mgmt_nodes()[0], lasts, silent: random.one_in(2) };
        faults.push((begin, bridge));
        Round { faults, end: begin + lasts + MS * random.below(500), then: Then::Heal }
    }
    /// More than is promised: a client does not hear what becomes of its statements, and meanwhile both nodes of a group are lost one after the
    /// other, so that nobody is left who remembers. The second one dies when the first one is a member again, mostly.
    pub(super) fn forgetting(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let groups = self.group_members();
        let group: Vec<NodeId> = groups[random.below(groups.len() as u64) as usize].iter().copied().collect();
        let (first, second) = if random.one_in(2) { (group[0], group[1]) } else { (group[1], group[0]) };
        let (client, next) = (Who::Client(random.below(self.clients)), MS * (700 + random.below(1_800)));
        let lasts = next + MS * random.below(1_500);
        let faults = vec![
            (begin, Fault::Mute { from: Who::Node(second), to: client, lasts, lost: random.one_in(2) }),
            (begin + MS * random.below(30), Fault::Crash { who: Who::Node(first), down: MS * (1 + random.below(20)) }),
            (begin + next, Fault::Crash { who: Who::Node(second), down: MS * (1 + random.below(300)) }),
        ];
        Round { faults, end: begin + lasts.max(next) + MS * random.below(500), then: Then::Ruin }
    }
    /// More than is promised: one of two nodes goes on without the other one and dies before its slow disk has that, and its next process is asked
    /// what the dead one has accepted.
    pub(super) fn unwritten(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let nodes = self.data_nodes();
        let (one, other) = if random.one_in(2) { (nodes[0], nodes[1]) } else { (nodes[1], nodes[0]) };
        let (one, other) = (Who::Node(one), Who::Node(other));
        let cut = begin + MS * random.below(20);
        let dies = cut + MS * (40 + random.below(350));
        let lasts = dies - cut + MS * random.below(300);
        let faults = vec![
            (begin, Fault::Disk { who: one, ailment: Ailment::Slow, lasts: 3_000 * MS }),
            (cut, Fault::Cut { a: one, b: other, lasts }),
            (dies, Fault::Crash { who: one, down: MS * (1 + random.below(400)) }),
        ];
        Round { faults, end: dies + MS * (300 + random.below(800)), then: Then::Ruin }
    }
    /// What is below all disks stands still for a while: they hang one soon after the other, and answer again one soon after the other.
    pub(super) fn hung(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(100_000));
        let apart = [1, 20, 1_500][random.below(3) as usize];
        let lasts = MS * (1_900 + random.below(3_000));
        let hangs = |node| {
            let lasts = lasts + MS * random.below(apart);
            (begin + MS * random.below(apart), Fault::Disk { who: Who::Node(node), ailment: Ailment::Hangs, lasts })
        };
        let faults: Vec<(u64, Fault)> = self.data_nodes().into_iter().map(hangs).collect();
        Round { faults, end: begin + lasts + 2 * MS * apart, then: Then::Heal }
    }
    /// There is no management node for a while, and data nodes die, up to all but one of each group. What is left waits for their next processes.
    pub(super) fn orphans(&self, random: &mut Random) -> Round {
        let mut faults = Vec::new();
        let begin = US * (1 + random.below(100_000));
        for arbitrator in self.arbitrators() {
            let down = MS * (1 + random.below(8_000));
            // A SQL node may be there, or die later.
            let at = if arbitrator.is_mgmt() || random.one_in(2) { begin } else { begin + MS * random.below(8_000) };
            faults.push((at, Fault::Crash { who: Who::Node(arbitrator), down }));
        }
        let spared: Vec<NodeId> = self.group_members().iter().map(|g| any_of(g, random)).collect();
        // At once, or when nobody is named to break ties yet, or when somebody is.
        let mut at = begin + US * random.below(400_000);
        for node in self.data_nodes().into_iter().filter(|n| !spared.contains(n)) {
            for _ in 0..=u64::from(random.one_in(3)) {
                let down = MS * (1 + random.below(5_000));
                faults.push((at, Fault::Crash { who: Who::Node(node), down }));
                at += US
                    * [0, random.below(3_000), random.below(300_000), random.below(6_000_000)]
                        [random.below(4) as usize];
            }
        }
        Round { faults, end: at + MS * random.below(6_000), then: Then::Heal }
    }
    /// No management node is there for long; a SQL node arbitrates when one data node of each group dies, up to half of the cluster.
    pub(super) fn stands_in(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(100_000));
        let crash = |who, down| Fault::Crash { who: Who::Node(who), down };
        let away = MS * (4_000 + random.below(20_000));
        let mut faults: Vec<_> = self.mgmt_nodes().into_iter().map(|m| (begin, crash(m, away))).collect();
        let at = begin + promise::SETTLED_NS + US * random.below(400_000);
        let mut end = at;
        for node in self.group_members().iter().flat_map(|g| g.iter().take(g.len() / 2)) {
            let down = MS * (1 + random.below(3_000));
            let at = at + US * [0, random.below(3_000), random.below(300_000)][random.below(3) as usize];
            end = end.max(at);
            faults.push((at, crash(*node, down)));
        }
        let then = [Then::Heal, Then::Core, Then::Hold][random.below(3) as usize];
        Round { faults, end: end + MS * (100 + random.below(1_500)), then }
    }
    /// The network parts half of the cluster, with a member of each group and the management nodes, from the other half and the SQL nodes.
    pub(super) fn two_courts(&self, random: &mut Random) -> Round {
        let mut side = self.mgmt_nodes();
        for (number, group) in self.group_members().into_iter().enumerate() {
            let mut group: Vec<NodeId> = group.into_iter().collect();
            for _ in 0..(group.len() + number % 2) / 2 {
                side.push(group.swap_remove(random.below(group.len() as u64) as usize));
            }
        }
        let (begin, lasts) = (US * (1 + random.below(100_000)), MS * (500 + random.below(2_500)));
        let split = Fault::Split { side, lasts, silent: random.one_in(2) };
        Round { faults: vec![(begin, split)], end: begin + lasts + MS * random.below(500), then: Then::Heal }
    }
    /// The network parts node groups from each other, for a moment or for as long as it takes to freeze.
    pub(super) fn parted(&self, random: &mut Random) -> Round {
        let groups = self.group_members();
        let kept = random.below(groups.len() as u64) as usize;
        let is_here = |at: usize, random: &mut Random| at == kept || (groups.len() > 2 && random.one_in(2));
        let mut side: Vec<NodeId> = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            if is_here(at, random) && side.len() + group.len() < self.data_nodes().len() {
                side.extend(group);
            }
        }
        side.extend(self.arbitrators().into_iter().filter(|_| random.one_in(2)));
        let (begin, most) = (US * (1 + random.below(100_000)), [100, 700, 2_500][random.below(3) as usize]);
        let lasts = MS * (1 + random.below(most));
        let split = Fault::Split { side, lasts, silent: random.one_in(2) };
        Round { faults: vec![(begin, split)], end: begin + lasts + MS * random.below(500), then: Then::Heal }
    }
    /// Clients lose links with requests on them, to nodes that read these when the clients have asked what became of them.
    pub(super) fn unlinks(&self, random: &mut Random) -> Round {
        let mut at = US * (1 + random.below(50_000));
        let mut faults = Vec::new();
        for _ in 0..8 + random.below(13) {
            let (number, who) = (random.below(self.clients), Who::Node(self.any_data(random)));
            let (deaf, late) = (US * (1 + random.below(40_000)), US * (20_000 + random.below(150_000)));
            faults.push((at, Fault::Unlink { number, who, deaf, late }));
            at += US * (10_000 + random.below(60_000));
        }
        Round { faults, end: at + MS * 200, then: Then::Heal }
    }
    /// Two clients with enough to do that each of the links they lose has a request on it.
    pub(super) fn crowd(&mut self) {
        self.workload = Kind::Register;
        (self.clients, self.tellers_per_client, self.workers) = (2, 4, 2);
        self.pause_max_ns = 4 * MS;
    }
    /// Rounds with guests. Few keys, and a client that is idle mostly: it asks after the others have changed them, and before it has heard.
    pub(super) fn add_guests(&mut self, random: &mut Random) {
        let drawn = self.clone();
        self.workload = Kind::Register;
        (self.clients, self.tellers_per_client) = (2 + random.below(2), 4);
        (self.accounts, self.pause_max_ns, self.idle_max_ns) = (6, 4 * MS, 900 * MS);
        for _ in 0..5 {
            let round = self.guest(random);
            if promise::refusal(self, &round).is_some() {
                *self = drawn;
                return;
            }
            self.schedule.0.push(round);
        }
    }
    /// A guest stands still with its clocks and is removed. The first client hears of that late, but before it goes on: what it was asked
    /// meanwhile it answers by its old view.
    fn guest(&self, random: &mut Random) -> Round {
        let begin = US * (1 + random.below(50_000));
        let node = self.any_data(random);
        let (heard, lasts) = (MS * (600 + random.below(2_000)), MS * (20 + random.below(400)));
        let mut faults = vec![(begin, Fault::Freeze { who: Who::Node(node), lasts: heard + lasts })];
        for other in self.data_nodes().into_iter().filter(|other| *other != node) {
            let (from, to) = (Who::Node(other), Who::Client(0));
            faults.push((begin + US, Fault::Mute { from, to, lasts: heard, lost: false }));
        }
        Round { faults, end: begin + heard + lasts + US * random.below(100_000), then: Then::Heal }
    }
    fn fault(&self, random: &mut Random) -> Fault {
        let time = |random: &mut Random, most_ms: u64| US * (1 + random.below(most_ms * 1000));
        let who = Who::Node(self.any_data(random));
        let (a, b) = self.any_pair(random);
        let arbitrators = self.arbitrators();
        let mgmt = Who::Node(arbitrators[random.below(arbitrators.len() as u64) as usize]);
        let most = [100, 700, 2500][random.below(3) as usize];
        let lasts = time(random, most);
        let down_most = if random.one_in(2) { 400 } else { 20 };
        match random.below(31) {
            0..=2 => Fault::Crash { who, down: time(random, down_most) },
            3 => Fault::Power { who, down: time(random, down_most) },
            4 => {
                let who = if random.one_in(3) { Who::President } else { who };
                Fault::Leave { who, down: time(random, 600) }
            }
            5 => Fault::Crash { who: Who::President, down: time(random, 400) },
            6 if random.one_in(2) => Fault::Power { who: mgmt, down: time(random, 2000) },
            6 => Fault::Crash { who: mgmt, down: time(random, 2000) },
            7 => Fault::Cut { a, b, lasts },
            8 => Fault::Mute { from: a, to: b, lasts, lost: random.one_in(2) },
            9 | 10 => Fault::Split { side: self.any_side(random), lasts, silent: random.one_in(2) },
            11 => Fault::Bridge {
                side: self.any_side(random),
                bridge: if random.one_in(2) { self.any_data(random) } else { self.mgmt_nodes()[0] },
                lasts,
                silent: random.one_in(2),
            },
            12 => Fault::Flap { a, b, period: time(random, 100), times: 1 + random.below(10) },
            13 if random.one_in(2) => Fault::Storm { who, period: time(random, 30), times: 1 + random.below(10) },
            13 => Fault::Reset { a, b, worker: None },
            14 => Fault::Reset { a, b, worker: Some(random.below(u64::from(self.workers) + 1) as u8) },
            15 => Fault::Pause { who, lasts },
            16 => Fault::Pause { who: mgmt, lasts },
            17 => {
                let factor = [10, 50, 200, 1000][random.below(4) as usize];
                Fault::Slow { who, factor, lasts, data_only: false }
            }
            18 => {
                let most = [40, 200, 580][random.below(3) as usize];
                let side = random.one_in(2).then(|| self.data_nodes());
                Fault::Stall { side, lasts: 20 * MS + time(random, most) }
            }
            19 => Fault::Stick { who, worker: random.below(u64::from(self.workers) + 1) as u8, lasts },
            20 => Fault::Freeze { who, lasts },
            21 => Fault::Client { number: random.below(self.clients) },
            22 => {
                let most = if random.one_in(2) { 100 } else { 1500 };
                let late = time(random, most);
                Fault::Unlink { number: random.below(self.clients), who, deaf: time(random, 20), late }
            }
            23..=26 => self.client_fault(random),
            27 => Fault::Disk {
                who: if random.one_in(3) { mgmt } else { who },
                ailment: Ailment::DRAWN[random.below(Ailment::DRAWN.len() as u64) as usize],
                lasts: lasts + time(random, 3_000),
            },
            28 | 29 => {
                let point =
                    if random.one_in(2) { FILE_POINT } else { DRAWN[random.below(DRAWN.len() as u64) as usize] };
                let who = [who, who, Who::President, mgmt][random.below(4) as usize];
                let (after, down) = (US * random.below(3_000), time(random, down_most));
                Fault::Doom { who, point: point.to_owned(), skip: random.below(5), after, down }
            }
            _ => {
                let point = DRAWN[random.below(DRAWN.len() as u64) as usize].to_owned();
                Fault::Arm { who, point, skip: random.below(8) }
            }
        }
    }
    /// Something on the way between a client and a node. Whoever waits for an answer is patient for 3 s, for the outcome for 10 s.
    fn client_fault(&self, random: &mut Random) -> Fault {
        let client = Who::Client(random.below(self.clients));
        let node = Who::Node(if random.one_in(8) { self.mgmt_nodes()[0] } else { self.any_data(random) });
        let most = [100, 700, 12_000][random.below(3) as usize];
        let lasts = US * (1 + random.below(most * 1000));
        let (a, b) = if random.one_in(2) { (client, node) } else { (node, client) };
        match random.below(6) {
            0 => Fault::Cut { a, b, lasts },
            1..=3 => Fault::Mute { from: a, to: b, lasts, lost: random.one_in(3) },
            4 => Fault::Flap { a, b, period: US * (1 + random.below(100_000)), times: 1 + random.below(6) },
            _ => Fault::Reset { a, b, worker: None },
        }
    }
    pub(super) fn any_data(&self, random: &mut Random) -> NodeId {
        let nodes = self.data_nodes();
        nodes[random.below(nodes.len() as u64) as usize]
    }
    /// Two data nodes, sometimes a data node and an arbitrator.
    fn any_pair(&self, random: &mut Random) -> (Who, Who) {
        let nodes = self.data_nodes();
        let first = random.below(nodes.len() as u64) as usize;
        let other = (first + 1 + random.below(nodes.len().max(2) as u64 - 1) as usize) % nodes.len();
        if nodes.len() == 1 || random.one_in(6) {
            let arbitrator = *self
                .arbitrators()
                .last()
                .filter(|_| self.sqls > 0 && random.one_in(2))
                .unwrap_or(&self.mgmt_nodes()[0]);
            let pair = (Who::Node(nodes[first]), Who::Node(arbitrator));
            return if random.one_in(2) { pair } else { (pair.1, pair.0) };
        }
        (Who::Node(nodes[first]), Who::Node(nodes[other]))
    }
    /// Some nodes, not all.
    fn any_side(&self, random: &mut Random) -> Vec<NodeId> {
        let all: Vec<NodeId> = self.data_nodes().into_iter().chain(self.arbitrators()).collect();
        let side: Vec<NodeId> = all.iter().copied().filter(|_| random.one_in(2)).collect();
        if side.is_empty() || side.len() == all.len() { vec![all[0]] } else { side }
    }
}

fn any_of(group: &BTreeSet<NodeId>, random: &mut Random) -> NodeId {
    let place = random.below(group.len() as u64) as usize;
    group.iter().nth(place).copied().unwrap_or(NodeId(1))
}

/// An operator ends the cluster and starts it again.
pub(super) fn stopped(random: &mut Random) -> Round {
    Round { faults: Vec::new(), end: US * (1 + random.below(400_000)), then: Then::Stop }
}

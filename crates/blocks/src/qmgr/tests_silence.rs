//! Silence, pauses, one-way links and starvation, in the harness.

use apus_kernel::Random;
use apus_signal::{
    BlockId, Kind,
    qmgr::encode,
    view::{MapReq, NodeState},
};
use apus_types::NodeId;

use super::tests::{frozen, members, started};
use crate::harness::{Cluster, MGMT};

/// A failure that no closed link tells is over after this.
const SILENT_FAILURE_MS: u64 = 100;

fn pause(c: &mut Cluster, id: u16) {
    c.paused.insert(NodeId(id));
}
fn wake(c: &mut Cluster, id: u16) {
    c.paused.remove(&NodeId(id));
}
fn running(c: &Cluster, nodes: u16) -> Vec<u16> {
    (1..=nodes).filter(|n| c.stopped(*n).is_none()).collect()
}

#[test]
fn a_stopped_process_is_removed_within_100_ms() {
    for (groups, replicas) in [(1, 2), (1, 3), (2, 2)] {
        let nodes = (groups * replicas) as u16;
        for dead in 1..=nodes {
            for phase in 0..10 {
                let mut c = started(groups, replicas);
                c.run_ms(phase);
                pause(&mut c, dead);
                let left: Vec<u16> = (1..=nodes).filter(|n| *n != dead).collect();
                assert!(
                    c.run_until(SILENT_FAILURE_MS, |c| left.iter().all(|n| members(c, *n) == left)),
                    "{dead} {phase}"
                );
            }
        }
    }
}

/// A new member learns of its view by a message that may take as long as a heartbeat (simulator seed 60025934).
#[test]
fn a_new_member_is_not_silent_before_it_can_know_of_its_view() {
    for (paused, left) in [(20, 3), (100, 3), (140, 3), (250, 2)] {
        let mut c = started(1, 3);
        c.kill(3);
        c.run_ms(20);
        c.start_node(3);
        assert!(c.run_to(2000, |c| c.view(1).is_some_and(|v| v.is_alive(NodeId(3)))));
        pause(&mut c, 3);
        c.run_ms(paused);
        wake(&mut c, 3);
        c.run_ms(1);
        let alive: Vec<u16> = (1..=left).collect();
        assert!((1..=left).all(|n| members(&c, n) == alive), "{paused} ms");
    }
}

/// A node is let in, and falls silent with the president whose proposal that was: the others do not wait for its answer (simulator seed 213000051).
#[test]
fn a_silent_node_that_was_to_be_let_in_does_not_keep_others_waiting() {
    let mut hung = 0;
    for rounds in 1u32.. {
        let mut c = started(1, 4);
        c.kill(4);
        c.run_ms(20);
        c.start_node(4);
        let left = std::cell::Cell::new(rounds);
        let is_over = |_: &Cluster| left.replace(left.get() - 1) == 1;
        assert!(c.run_to(3000, is_over));
        if c.view(2).is_some_and(|v| v.is_alive(NodeId(4))) {
            break;
        }
        pause(&mut c, 4);
        pause(&mut c, 1);
        hung += u32::from(!c.run_until(500, |c| members(c, 2) == [2, 3]));
        assert!(c.run_until(1000, |c| members(c, 2) == [2, 3] && members(c, 3) == [2, 3]), "after {rounds} rounds");
        wake(&mut c, 4);
        wake(&mut c, 1);
        c.run_ms(50);
        assert!(c.stopped(1).is_some(), "after {rounds} rounds");
        if c.stopped(4).is_some() {
            c.start_node(4);
        }
        assert!(
            c.run_until(3000, |c| members(c, 2) == [2, 3, 4] && members(c, 4) == [2, 3, 4]),
            "after {rounds} rounds"
        );
    }
    assert!(hung > 0, "its answer was never waited for");
}

#[test]
fn a_silent_line_ends_one_of_two() {
    let mut c = started(1, 2);
    c.mute(1, 2);
    c.mute(2, 1);
    assert!(c.run_until(SILENT_FAILURE_MS, |c| members(c, 1) == [1] || members(c, 2) == [2]));
    c.run_ms(1000);
    assert_eq!(running(&c, 2).len(), 1);
}

/// A hears B and B does not hear A: exactly one of them is removed, soon.
#[test]
fn a_line_that_is_silent_one_way_ends_exactly_one() {
    for (groups, replicas) in [(1, 2), (1, 3), (2, 2), (1, 4)] {
        let nodes = (groups * replicas) as u16;
        for from in 1..=nodes {
            for to in (1..=nodes).filter(|to| *to != from) {
                let mut c = started(groups, replicas);
                c.mute(from, to);
                c.run_ms(1000);
                let alive = running(&c, nodes);
                assert_eq!(alive.len(), usize::from(nodes) - 1, "{from} to {to} of {nodes}: {alive:?}");
                assert!(!alive.contains(&from) || !alive.contains(&to));
                assert!(alive.iter().all(|n| members(&c, *n) == alive), "{from} to {to}");
            }
        }
    }
}

#[test]
fn a_recovering_node_that_loses_all_full_members_stops() {
    let mut c = started(1, 2);
    c.kill(2);
    c.run_ms(20);
    c.node(1).seen.borrow_mut().silent = true; // nothing is copied
    c.start_node(2);
    assert!(c.run_until(2000, |c| c.view(2).is_some_and(|v| v.state(NodeId(2)) == NodeState::Recovering)));
    c.separate(1, 2);
    c.run_ms(100);
    assert!(c.stopped(1).is_none() && c.stopped(2).is_some());
}

/// The senior hears nobody any more and is heard by all: it goes, alone, whoever it is.
#[test]
fn who_is_deaf_to_all_goes_alone() {
    for (groups, replicas) in [(1, 3), (2, 2), (1, 4), (2, 3)] {
        let nodes = (groups * replicas) as u16;
        for deaf in 1..=nodes {
            for phase in 0..10 {
                let mut c = started(groups, replicas);
                for (i, other) in (1..=nodes).filter(|n| *n != deaf).enumerate() {
                    c.mute(other, deaf);
                    if i == 0 {
                        c.run_ms(phase);
                    }
                }
                let left: Vec<u16> = (1..=nodes).filter(|n| *n != deaf).collect();
                let is_out = c.run_until(SILENT_FAILURE_MS + 10, |c| left.iter().all(|n| members(c, *n) == left));
                assert!(is_out, "{deaf} of {nodes}, {phase}");
                c.run_ms(2000);
                assert_eq!(running(&c, nodes), left, "a management node tells it");
            }
        }
    }
}

fn stall(c: &mut Cluster, nodes: u16) {
    for from in 1..=nodes {
        (1..=nodes).filter(|to| *to != from).for_each(|to| c.mute(from, to));
    }
}

/// What passes between nobody is nobody's failure: all wait, serve no client, and go on.
#[test]
fn a_network_that_stalls_ends_nobody_where_a_side_could_not_go_on() {
    for (groups, replicas) in [(1, 3), (2, 2), (1, 4), (2, 3)] {
        let nodes = (groups * replicas) as u16;
        for ms in [60, 100, 500, 3000, 9000] {
            let mut c = started(groups, replicas);
            c.run_ms(ms % 11);
            stall(&mut c, nodes);
            c.run_ms(100);
            for n in 1..=nodes {
                let (worker, client) = (&c.processes[&NodeId(n)].worker, NodeId(NodeId::CLIENT_BASE));
                assert!(!worker.serves(client, c.now), "{n} of {nodes}");
            }
            c.run_ms(ms.saturating_sub(100));
            c.mute.clear();
            c.run_ms(100);
            let all: Vec<u16> = (1..=nodes).collect();
            assert!(all.iter().all(|n| members(&c, *n) == all && c.generation(*n) == 1), "{ms} ms, {nodes}");
            let served = |n: &u16| c.processes[&NodeId(*n)].worker.serves(NodeId(NodeId::CLIENT_BASE), c.now);
            assert!(all.iter().all(served), "{ms} ms, {nodes}");
            assert!(!all.iter().any(|n| refuses(&c, *n)), "{ms} ms, {nodes}");
        }
    }
}

/// Whole groups that lose each other in silence: within each all say for long that they hear too few, and that ends for one a moment before the
/// others (simulator seed 820330028).
#[test]
fn who_has_just_enough_again_holds_nobody_for_failed_who_had_not() {
    for (replicas, later) in [(2, 0), (2, 3), (3, 0), (3, 3), (3, 12)] {
        for ms in [90, 130, 160, 400, 3000] {
            let mut c = started(2, replicas);
            let nodes = 2 * replicas as u16;
            let here: Vec<u16> =
                (1..=nodes).filter(|n| c.view(1).unwrap().node(NodeId(*n)).unwrap().group == 0).collect();
            let across = |a: &NodeId, b: &NodeId| here.contains(&a.0) != here.contains(&b.0);
            stall(&mut c, nodes);
            c.mute.retain(|(a, b)| across(a, b));
            c.run_ms(ms);
            c.mute.retain(|(_, b)| b.0 != 1);
            c.run_ms(later);
            c.mute.clear();
            c.run_ms(1000);
            let is_calm = running(&c, nodes).len() == usize::from(nodes) && (1..=nodes).all(|n| c.generation(n) == 1);
            assert!(is_calm, "{nodes} nodes, {ms} ms, {later} ms later");
        }
    }
}

/// As a network is mended connections come back one after the other: all others hear each other again while one still hears too few.
#[test]
fn whose_connections_come_back_last_is_not_cut_off() {
    for (replicas, ms, later) in [(2, 3000, 200), (2, 13_000, 1500), (2, 400, 150), (3, 3000, 1500)] {
        for last in 1..=2 * replicas as u16 {
            let mut c = started(2, replicas);
            let nodes = 2 * replicas as u16;
            let here: Vec<u16> =
                (1..=nodes).filter(|n| c.view(1).unwrap().node(NodeId(*n)).unwrap().group == 0).collect();
            stall(&mut c, nodes);
            c.mute.retain(|(a, b)| here.contains(&a.0) != here.contains(&b.0));
            c.run_ms(ms);
            c.mute.retain(|(a, b)| a.0 == last || b.0 == last);
            c.run_ms(later);
            c.mute.clear();
            c.run_ms(1000);
            let is_calm = running(&c, nodes).len() == usize::from(nodes) && (1..=nodes).all(|n| c.generation(n) == 1);
            assert!(is_calm, "{nodes} nodes, {ms} ms, node {last} {later} ms later");
        }
    }
}

/// The same where one has longer limits than the others, and so has its quorum still while they say that they have none (simulator seed 844000161); it
/// may also be the first to hear the silent again (seed 1000314).
#[test]
fn who_notices_a_silence_later_takes_nobody_for_cut_off() {
    for slow in [56, 76] {
        for patient in 1..=4 {
            for (ms, later) in [(60, 0), (97, 0), (130, 0), (300, 0), (97, 3), (130, 3), (130, 12)] {
                let mut c = started(2, 2);
                let group = |c: &Cluster, n: u16| c.view(1).unwrap().node(NodeId(n)).unwrap().group;
                let across: Vec<u16> = (1..=4).filter(|n| group(&c, *n) != group(&c, patient)).collect();
                across.iter().for_each(|n| c.mute(*n, patient));
                c.run_ms(slow);
                c.mute.clear();
                c.run_ms(300);
                assert!((1..=4).all(|n| c.generation(n) == 1), "{patient} {slow}");
                for one in (1..=4).filter(|n| !across.contains(n)) {
                    across.iter().for_each(|n| c.mute(*n, one));
                    across.iter().for_each(|n| c.mute(one, *n));
                }
                c.run_ms(ms);
                c.mute.retain(|(_, b)| b.0 != patient);
                c.run_ms(later);
                c.mute.clear();
                c.run_ms(1000);
                let is_calm = running(&c, 4).len() == 4 && (1..=4).all(|n| c.generation(n) == 1);
                assert!(is_calm, "node {patient} after {slow} ms, then {ms} ms and {later} ms later");
            }
        }
    }
}

/// The same where the network was seen to be late before, by others than who is heard last: whose first heartbeat is as late as those were is not dead
/// (simulator seed 219010236).
#[test]
fn who_is_heard_last_is_waited_for_as_long_as_the_network_was_seen_to_be_late() {
    for late in 1..=6 {
        for (jitter, later) in [(46, 44), (56, 44), (56, 54), (66, 54), (66, 64)] {
            let mut c = started(2, 3);
            let group = |c: &Cluster, n: u16| c.view(1).unwrap().node(NodeId(n)).unwrap().group;
            let across: Vec<u16> = (1..=6).filter(|n| group(&c, *n) != group(&c, late)).collect();
            across[1..].iter().for_each(|n| c.mute(*n, late));
            c.run_ms(jitter);
            c.mute.clear();
            c.run_ms(300);
            assert!((1..=6).all(|n| c.generation(n) == 1), "{late} {jitter}");
            stall(&mut c, 6);
            c.mute.retain(|(a, b)| across.contains(&a.0) != across.contains(&b.0));
            c.run_ms(75);
            c.mute.retain(|(a, b)| (a.0, b.0) == (across[0], late));
            c.run_ms(later);
            c.mute.clear();
            c.run_ms(1000);
            let is_calm = running(&c, 6).len() == 6 && (1..=6).all(|n| c.generation(n) == 1);
            assert!(is_calm, "node {late}, late by {jitter} ms, then by {later} ms");
        }
    }
}

/// When a stall ends each hears one first, and the others a moment later.
#[test]
fn who_is_heard_last_after_a_stall_is_not_dead() {
    for later in [1, 10, 40] {
        let mut c = started(1, 3);
        stall(&mut c, 3);
        c.run_ms(211);
        for (from, to) in [(2, 1), (3, 2), (1, 3)] {
            c.mute.remove(&(NodeId(from), NodeId(to)));
        }
        c.run_ms(later);
        c.mute.clear();
        c.run_ms(1000);
        assert!(running(&c, 3).len() == 3 && (1..=3).all(|n| c.generation(n) == 1), "{later} ms");
    }
}

/// Limits differ where some links were slow before: nobody is suspected while others have been silent for as long.
#[test]
fn a_stall_of_all_ends_nobody_whose_link_alone_was_calm() {
    for slow in [35, 56, 66, 76] {
        for stalled in [85, 95, 110, 150] {
            let mut c = started(2, 3);
            for (one, other) in [2, 6].into_iter().flat_map(|a| [1, 3, 4, 5].map(|b| (a, b))) {
                c.mute(one, other);
                c.mute(other, one);
            }
            c.run_ms(slow);
            c.mute.clear();
            c.run_ms(1000);
            stall(&mut c, 6);
            c.run_ms(stalled);
            c.mute.clear();
            c.run_ms(1000);
            assert!(running(&c, 6).len() == 6 && (1..=6).all(|n| c.generation(n) == 1), "{slow} ms, then {stalled} ms");
        }
    }
}

/// Of two halves one goes on, whoever stalls.
#[test]
fn a_network_that_stalls_between_two_ends_one() {
    for ms in [60u64, 100, 1000, 5000] {
        let mut c = started(1, 2);
        stall(&mut c, 2);
        c.run_ms(ms);
        c.mute.clear();
        c.run_ms(3000);
        assert_eq!(running(&c, 2).len(), if ms < 80 { 2 } else { 1 }, "{ms} ms");
    }
}

/// Who stays without the rest keeps what it has and says what it waits for, until it learns that the others went on.
#[test]
fn who_is_cut_off_for_good_freezes() {
    let mut c = started(1, 3);
    for other in [1, 2, MGMT.0] {
        c.mute(other, 3);
        c.mute(3, other);
    }
    assert!(c.run_until(SILENT_FAILURE_MS, |c| members(c, 1) == [1, 2]));
    assert!(!refuses(&c, 3), "it may be over soon");
    c.run_ms(2500);
    assert!(refuses(&c, 3) && !refuses(&c, 1), "who waits for it hears of it");
    c.run_ms(6500);
    assert_eq!(frozen(&mut c, 3), "");
    c.run_ms(2000);
    assert!(frozen(&mut c, 3).contains("too few"));
    c.run_ms(60_000);
    assert!(c.stopped(3).is_none());
    c.mute.clear();
    assert!(c.run_until(1000, |c| c.stopped(3).is_some()));
}

#[test]
fn a_short_pause_is_no_failure_and_a_longer_one_is() {
    for (ms, is_removed) in [(50, false), (70, false), (120, true), (400, true), (5000, true)] {
        let mut c = started(1, 3);
        pause(&mut c, 3);
        c.run_ms(ms);
        wake(&mut c, 3);
        c.run_ms(500);
        assert_eq!(c.stopped(3).is_some(), is_removed, "{ms} ms");
        assert_eq!(members(&c, 1).len(), if is_removed { 2 } else { 3 });
        if let Some(reason) = c.stopped(3) {
            assert!(["removed", "went on"].iter().any(|w| reason.contains(w)), "{reason}");
        }
    }
}

fn refuses(c: &Cluster, id: u16) -> bool {
    c.processes.get(&NodeId(id)).is_some_and(|p| p.worker.refuses(NodeId(NodeId::CLIENT_BASE)))
}

fn serves(c: &Cluster, id: u16) -> bool {
    let client = NodeId(NodeId::CLIENT_BASE);
    c.processes.get(&NodeId(id)).is_some_and(|p| p.stopped.is_none() && p.worker.serves(client, c.now))
}

/// A link ends and one of the two does not learn it (simulator seed 80001967): when the others go on it has no lease any more, for a
/// third or the arbitrator, who are still linked to it, have asked it to give that up.
#[test]
fn who_has_not_noticed_that_a_link_ended_serves_nobody_when_the_rest_goes_on() {
    for (groups, replicas) in [(1, 2), (1, 3), (2, 2), (1, 4)] {
        let nodes = (groups * replicas) as u16;
        for unaware in 1..=nodes {
            for other in (1..=nodes).filter(|other| *other != unaware) {
                let mut c = started(groups, replicas);
                c.run_ms(100);
                c.mute(other, unaware);
                c.separate(other, unaware);
                let goes_on = |c: &Cluster, n| c.generation(n) > 1;
                let went_on = c.run_to(200, |c| (1..=nodes).any(|n| goes_on(c, n)));
                assert!(went_on, "{unaware} {other}");
                let members = members(&c, (1..=nodes).find(|n| goes_on(&c, *n)).unwrap_or(0));
                let removed = if members.contains(&unaware) { other } else { unaware };
                assert!(!serves(&c, removed), "{removed} of {nodes}, {other} has lost its link to {unaware}");
                c.mute.clear();
                c.run_ms(1000);
                assert_eq!(running(&c, nodes), members);
            }
        }
    }
}

/// It cannot answer the question whether it has a lease; the promises given to it end.
#[test]
fn a_stopped_process_whose_link_ends_is_removed_within_100_ms() {
    for (groups, replicas) in [(1, 2), (1, 3), (2, 2)] {
        let nodes = (groups * replicas) as u16;
        for dead in 1..=nodes {
            for other in (1..=nodes).filter(|other| *other != dead) {
                let mut c = started(groups, replicas);
                pause(&mut c, dead);
                c.separate(other, dead);
                let left: Vec<u16> = (1..=nodes).filter(|n| *n != dead).collect();
                assert!(
                    c.run_until(SILENT_FAILURE_MS, |c| left.iter().all(|n| members(c, *n) == left)),
                    "{dead} {other}"
                );
            }
        }
    }
}

/// What clients asked a node that was removed while it was paused is not answered, whether it learns of its removal or not.
#[test]
fn who_was_removed_answers_no_client() {
    for is_cut_off in [false, true] {
        for dead in 1..=3u16 {
            let mut c = started(1, 3);
            pause(&mut c, dead);
            c.ask(dead, BlockId::Dih, Kind::MapReq, |b| encode(&MapReq { request: 1 }, b));
            c.run_ms(300);
            if is_cut_off {
                for other in (1..=3).filter(|n| *n != dead).chain([MGMT.0]) {
                    c.mute(other, dead);
                }
            }
            wake(&mut c, dead);
            c.ask(dead, BlockId::Dih, Kind::MapReq, |b| encode(&MapReq { request: 2 }, b));
            c.run_ms(3000);
            assert!(c.answer(Kind::MapConf).is_none(), "node {dead}");
            assert!(c.stopped(dead).is_some(), "node {dead} learns it or finds itself alone");
        }
    }
}

#[test]
fn a_member_serves_again_after_a_pause_that_was_no_failure() {
    let mut c = started(1, 2);
    c.now += 3_000_000_000; // all of them
    c.ask(2, BlockId::Dih, Kind::MapReq, |b| encode(&MapReq { request: 1 }, b));
    c.run_ms(1);
    assert!(c.answer(Kind::MapConf).is_none(), "the others may have gone on");
    c.run_ms(25);
    assert!(c.answer(Kind::MapConf).is_some(), "they have not");
}

/// The lease holds all the time while nothing happens, while a node joins, and soon after a failure.
#[test]
fn the_lease_does_not_lapse_without_a_reason() {
    let mut c = started(1, 3);
    let served = |c: &Cluster, n: u16| {
        let now = c.now;
        c.processes[&NodeId(n)].worker.serves(NodeId(NodeId::CLIENT_BASE), now)
    };
    for _ in 0..1000 {
        c.run_ms(1);
        assert!((1..=3).all(|n| served(&c, n)));
    }
    c.kill(3);
    c.run_ms(5);
    assert!([1, 2].iter().all(|n| served(&c, *n)));
    c.start_node(3);
    for _ in 0..3000 {
        c.run_ms(1);
        assert!([1, 2].iter().all(|n| served(&c, *n)), "{:?}", c.view(1));
    }
    assert_eq!(c.view(3).map(|v| v.state(NodeId(3))), Some(NodeState::Up));
}

/// Two cores and many busy processes: every turn of every node comes up to 80 ms late. Nobody is removed; a node that stops is.
#[test]
fn starved_nodes_are_late_and_not_removed() {
    for seed in 1..=30 {
        let mut random = Random::new(seed);
        let mut c = started(1, 2 + (seed % 3) as u32);
        let nodes = 2 + (seed % 3) as u16;
        let mut wakes = vec![0u64; usize::from(nodes) + 1];
        for ms in 0..20_000u64 {
            for node in 1..=nodes {
                let wake_at = &mut wakes[usize::from(node)];
                if ms == *wake_at {
                    wake(&mut c, node); // for a turn at least
                } else if ms > *wake_at && random.one_in(4) {
                    *wake_at = ms + 1 + random.below(80);
                    pause(&mut c, node);
                }
            }
            c.run_ms(1);
            assert_eq!(c.generation(1), 1, "seed {seed} at {ms} ms: {:?}", c.node(1).log);
        }
        for node in 1..=nodes {
            wake(&mut c, node);
        }
        pause(&mut c, nodes);
        let is_out = c.run_until(1000, |c| members(c, 1).len() == usize::from(nodes) - 1);
        assert!(is_out, "seed {seed}: {:?}", c.node(1).log);
    }
}

fn set_silence(c: &mut Cluster, ms: u32) {
    let setting = apus_signal::mgmt::Setting { request: 1, silence_ms: Some(ms), ..Default::default() };
    c.order(MGMT.0, Kind::SettingReq, |b| encode(&setting, b));
}

/// A host that pauses for 200 ms now and then loses no node once its operator has said so.
#[test]
fn the_floor_of_the_silence_limit_is_a_setting_of_the_view() {
    for id in [1, 2, 3] {
        let mut c = started(1, 3);
        set_silence(&mut c, 400);
        assert!(c.run_until(200, |c| (1..=3).all(|n| c.view(n).is_some_and(|v| v.silence_ms == 400))), "no view");
        assert!(c.answer(Kind::SettingConf).is_some());
        c.run_ms(50);
        for _ in 0..3 {
            pause(&mut c, id);
            c.run_ms(200);
            wake(&mut c, id);
            c.run_ms(100);
        }
        assert!((1..=3).all(|n| members(&c, n) == [1, 2, 3]), "node {id} was removed for a pause that is allowed");
        // Back, while everything runs; and whoever is silent for good is found as before.
        set_silence(&mut c, 80);
        assert!(c.run_until(200, |c| (1..=3).all(|n| c.view(n).is_some_and(|v| v.silence_ms == 80))), "no view");
        c.run_ms(120_000);
        pause(&mut c, id);
        let left: Vec<u16> = (1..=3).filter(|n| *n != id).collect();
        assert!(c.run_until(2 * SILENT_FAILURE_MS, |c| left.iter().all(|n| members(c, *n) == left)));
    }
}

#[test]
fn a_setting_out_of_range_is_refused_and_the_new_member_has_the_old_one() {
    let mut c = started(1, 2);
    for ms in [0, 79, 1001, u32::MAX] {
        set_silence(&mut c, ms);
        c.run_ms(20);
        assert!(c.answer(Kind::RequestRef).is_some(), "{ms} is accepted");
    }
    set_silence(&mut c, 300);
    assert!(c.run_until(200, |c| c.view(1).is_some_and(|v| v.silence_ms == 300)));
    c.kill(1);
    assert!(c.run_until(500, |c| members(c, 2) == [2]));
    c.start_node(1);
    assert!(c.run_until(2000, |c| c.view(1).is_some_and(|v| v.silence_ms == 300)));
}

/// One direction comes back first, and only to one member: it hears those of the other group, and still hears its neighbour say that it does not.
#[test]
fn whose_neighbour_is_still_cut_off_for_a_moment_waits_for_it() {
    for (ms, later) in [(64, 10), (67, 14), (70, 6), (70, 14), (73, 2), (73, 14)] {
        for first in [3, 4] {
            let mut c = started(2, 2);
            let group = |c: &Cluster, n: u16| c.view(1).unwrap().node(NodeId(n)).unwrap().group;
            assert!(group(&c, 1) == group(&c, 2) && group(&c, 3) == group(&c, 4));
            // It has a longer limit for them.
            [3, 4].iter().for_each(|n| c.mute(*n, 1));
            c.run_ms(56);
            c.mute.clear();
            c.run_ms(300);
            for (a, b) in [(1, 3), (1, 4), (2, 3), (2, 4)] {
                c.mute(a, b);
                c.mute(b, a);
            }
            c.run_ms(ms);
            c.mute.retain(|(from, to)| to.0 != 1 || (first == 4 && from.0 == 3));
            c.run_ms(later);
            c.mute.clear();
            c.run_ms(1000);
            let is_calm = running(&c, 4).len() == 4 && (1..=4).all(|n| c.generation(n) == 1);
            assert!(is_calm, "{ms} ms, then {later} ms, {first} heard first");
        }
    }
}

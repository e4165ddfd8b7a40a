//! Whole conversations of membership, in the harness.

use std::collections::BTreeSet;

use apus_signal::{
    BlockId, Kind,
    mgmt::{MgmtReq, NodeStatusConf},
    qmgr::{decode, encode},
    view::{ClusterMap, MapReq, NodeState},
};
use apus_types::{Chain, NodeId};

use crate::harness::{Cluster, MGMT, MGMT_2};

pub(super) fn started(groups: u32, replicas: u32) -> Cluster {
    let mut c = Cluster::new(groups, replicas);
    let nodes = (groups * replicas) as u16;
    for id in 1..=nodes {
        c.start_node(id);
    }
    assert!(c.run_until(2000, |c| (1..=nodes).all(|n| c.generation(n) == 1)), "no first view");
    c.run_ms(50);
    c
}
/// What `apus status` shows of a node that may not go on.
pub(super) fn frozen(c: &mut Cluster, id: u16) -> String {
    let mut text = String::new();
    c.node(id).worker.dump(&mut text);
    let line = text.lines().find_map(|line| line.strip_prefix("frozen ")).unwrap_or("no, ");
    line.strip_prefix("no, ").map_or_else(|| line.to_owned(), |_| String::new())
}
pub(super) fn members(c: &Cluster, id: u16) -> Vec<u16> {
    c.view(id).map(|v| v.living().map(|n| n.id as u16).collect()).unwrap_or_default()
}

#[test]
fn all_nodes_make_the_first_view_together() {
    let c = started(2, 2);
    let view = c.view(3).unwrap();
    assert_eq!((view.president, members(&c, 3)), (1, vec![1, 2, 3, 4]));
    let primaries: BTreeSet<NodeId> = view.chains.iter().filter_map(|c| Chain(*c).primary()).collect();
    assert_eq!(primaries.len(), 4);
    assert!((1..=4).all(|n| c.view(n).unwrap() == view));
}

#[test]
fn a_crashed_node_of_two_is_removed_within_milliseconds() {
    for (dead, left) in [(1u16, 2u16), (2, 1)] {
        let mut c = started(1, 2);
        c.kill(dead);
        assert!(c.run_until(5, |c| c.generation(left) == 2), "node {left} goes on at once");
        let view = c.view(left).unwrap();
        assert_eq!((view.president, members(&c, left)), (u32::from(left), vec![left]));
        assert!(view.chains.iter().all(|ch| Chain(*ch) == Chain::new(&[NodeId(left)])));
    }
}

#[test]
fn of_two_halves_one_survives() {
    let mut c = started(1, 2);
    c.separate(1, 2);
    c.run_ms(3000);
    let alive: Vec<u16> = [1, 2].into_iter().filter(|n| c.stopped(*n).is_none()).collect();
    assert_eq!(alive.len(), 1, "{:?} {:?}", c.stopped(1), c.stopped(2));
    assert_eq!(members(&c, alive[0]), alive);

    let mut c = started(2, 2);
    for (a, b) in [(1, 2), (1, 4), (3, 2), (3, 4)] {
        c.separate(a, b);
    }
    c.run_ms(3000);
    let alive: Vec<u16> = (1..=4).filter(|n| c.stopped(*n).is_none()).collect();
    assert!(alive == [1, 3] || alive == [2, 4], "{alive:?}");
    assert_eq!(members(&c, alive[0]), alive);
}

#[test]
fn a_lost_node_group_freezes_the_rest() {
    let mut c = started(2, 2);
    c.kill(1);
    c.kill(2);
    c.run_ms(100);
    assert!([3, 4].iter().all(|n| frozen(&mut c, *n).contains("no full member")));
    c.run_ms(30_000);
    assert!(c.stopped(3).is_none() && c.stopped(4).is_none());
}

#[test]
fn several_die_at_once_and_majority_goes_on() {
    let mut c = started(2, 2);
    c.kill(1);
    c.run_ms(20);
    assert_eq!(members(&c, 2), [2, 3, 4]);
    c.kill(3);
    assert!(c.run_until(20, |c| members(c, 2) == [2, 4]), "group 0 was whole");
    let mut c = started(1, 3);
    c.kill(1);
    assert!(c.run_until(5, |c| members(c, 3) == [2, 3]));
    c.kill(2);
    assert!(c.run_until(5, |c| members(c, 3) == [3]));
}

#[test]
fn the_president_dies_between_prepare_and_commit() {
    for seen_commit in [false, true] {
        let mut c = started(1, 4);
        if seen_commit {
            c.arm(1, "qmgr.drop_view_commit"); // node 2 does not hear of it, 3 does
        }
        c.kill(4);
        if seen_commit {
            assert!(c.run_until(10, |c| c.generation(3) == 2 && c.generation(1) == 2));
            assert_eq!(c.generation(2), 1);
        }
        c.kill(1);
        assert!(c.run_until(3000, |c| members(c, 2) == [2, 3] && members(c, 3) == [2, 3]));
        assert_eq!(c.view(2), c.view(3));
        assert_eq!(c.view(2).unwrap().president, 2);
    }
}

#[test]
fn a_pause_of_the_whole_machine_is_no_failure() {
    let mut c = started(1, 3);
    c.now += 5_000_000_000;
    c.run_ms(1000);
    assert!((1..=3).all(|n| c.generation(n) == 1 && c.stopped(n).is_none()));
}

#[test]
fn a_restarted_node_joins_is_filled_and_becomes_full() {
    for (dead, others) in [(1u16, [2u16, 3, 4]), (4, [1, 2, 3])] {
        let mut c = started(2, 2);
        c.kill(dead);
        c.run_ms(20);
        assert_eq!(members(&c, others[0]), others);
        c.start_node(dead);
        let full = |c: &Cluster, n: u16| c.view(n).is_some_and(|v| v.state(NodeId(dead)) == NodeState::Up);
        assert!(c.run_until(3000, |c| (1..=4).all(|n| full(c, n))), "node {dead} is full again");
        let view = c.view(dead).unwrap();
        assert!((1..=4).all(|n| c.view(n).unwrap() == view));
        let mine = view.chains.iter().filter(|ch| Chain(**ch).contains(NodeId(dead))).count();
        assert_eq!(mine, view.chains.len() / 2);
        assert!(view.chains.iter().all(|ch| Chain(*ch).len() == 2 && Chain(*ch).primary() != Some(NodeId(dead))));
        assert_eq!(c.node(dead).seen.borrow().orders.len(), 2, "the system table, at LDM and TC, before the view");
    }
}

#[test]
fn a_node_restarted_at_once_replaces_its_old_self() {
    let mut c = started(1, 2);
    c.start_node(2);
    assert!(c.run_until(3000, |c| c.view(1).is_some_and(|v| v.state(NodeId(2)) == NodeState::Up && v.generation > 1)));
    assert!(c.stopped(1).is_none() && c.stopped(2).is_none());
}

#[test]
fn a_recovering_node_that_dies_or_loses_its_source_is_handled() {
    let mut c = started(1, 3);
    c.kill(3);
    c.run_ms(20);
    for n in [1, 2] {
        c.node(n).seen.borrow_mut().silent = true; // nothing is copied
    }
    c.start_node(3);
    assert!(c.run_until(2000, |c| c.view(1).is_some_and(|v| v.state(NodeId(3)) == NodeState::Recovering)));
    c.kill(1); // the president, primary of some
    assert!(c.run_until(100, |c| members(c, 2) == [2, 3]), "half of the full members, and the arbitrator");
    assert!(c.view(2).unwrap().chains.iter().all(|ch| Chain(*ch) == Chain::new(&[NodeId(2), NodeId(3)])));
    c.node(2).seen.borrow_mut().silent = false;
    c.kill(3);
    c.run_ms(50);
    assert_eq!(members(&c, 2), [2]);
    c.start_node(1);
    c.start_node(3);
    let full = |c: &Cluster| c.view(2).is_some_and(|v| (1..=3).all(|n| v.state(NodeId(n)) == NodeState::Up));
    assert!(c.run_until(3000, full), "both join");
}

/// A node that was a member finds its cluster again, and founds no empty one when there is none: only a start by hand does.
#[test]
fn who_was_removed_joins_again_and_founds_nothing() {
    let mut c = started(1, 2);
    c.separate(1, 2);
    assert!(c.run_until(100, |c| c.stopped(1).is_some() != c.stopped(2).is_some()));
    let out = if c.stopped(1).is_some() { 1 } else { 2 };
    assert!(c.node(out).worker.rejoins());
    c.cut.clear();
    c.rejoin_node(out);
    assert!(c.run_until(3000, |c| members(c, 1) == [1, 2] && members(c, 2) == [1, 2]));

    c.kill(1);
    c.kill(2);
    c.rejoin_node(1);
    c.rejoin_node(2);
    c.run_ms(30_000);
    assert_eq!((c.generation(1), c.generation(2)), (0, 0));
    assert_eq!(
        c.node(1).log.iter().filter(|l| l.contains("the data is gone")).count(),
        3,
        "after 5 s, and again each 10 s"
    );
    c.start_node(1);
    assert!(c.run_until(15_000, |c| members(c, 1) == [1, 2] && members(c, 2) == [1, 2]), "{}", details(&c));
}

#[test]
fn a_start_without_all_nodes_needs_the_arbitrator() {
    let mut c = Cluster::new(1, 2);
    c.start_node(2);
    c.run_ms(9000);
    assert_eq!(c.generation(2), 0);
    assert!(c.run_until(2000, |c| c.generation(2) == 1));
    // The other half, cut off: it must not start a second cluster, and joins when it can.
    c.separate(1, 2);
    c.start_node(1);
    c.run_ms(15_000);
    assert_eq!(c.generation(1), 0);
    assert!(c.stopped(1).is_none());
    c.cut.clear();
    assert!(c.run_until(3000, |c| members(c, 1) == [1, 2]));
}

#[test]
fn clients_get_the_map_and_every_new_one() {
    let mut c = started(1, 2);
    c.ask(2, BlockId::Dih, Kind::MapReq, |b| encode(&MapReq { request: 9 }, b));
    c.ask(2, BlockId::Cntr, Kind::NodeStatusReq, |b| encode(&MgmtReq { request: 3 }, b));
    c.run_ms(2);
    let map: ClusterMap = decode(&c.answer(Kind::MapConf).unwrap()).unwrap();
    assert_eq!((map.request, map.schema_version, map.view.unwrap().generation), (9, 1, 1));
    let status: NodeStatusConf = decode(&c.answer(Kind::NodeStatusConf).unwrap()).unwrap();
    assert_eq!((status.node, status.state, status.primaries + status.backups), (2, NodeState::Up as u32, 8));
    assert!(status.epoch > 1, "epochs pass");
    c.kill(1);
    c.run_ms(5);
    let map: ClusterMap = decode(&c.answer(Kind::MapRep).unwrap()).unwrap();
    assert_eq!(map.view.unwrap().generation, 2);
}

pub(super) fn details(c: &Cluster) -> String {
    let mut out = String::new();
    for (node, process) in &c.processes {
        let log = &process.log[process.log.len().saturating_sub(12)..];
        out.push_str(&format!("==== {node} stopped {:?}\n{}\n", process.stopped, log.join("\n")));
        process.worker.dump(&mut out);
    }
    out
}

/// What an operator does where no full member of a group is left, so that the rows are gone: ends all and starts anew. Whoever is frozen though
/// every full member of its view still runs in the same process has not been destroyed, and must help itself.
fn start_anew_if_lost(c: &mut Cluster, nodes: u16) {
    let is_gone = |c: &Cluster, n: u16| {
        let view = c.view(n).unwrap_or_default();
        let runs =
            |m: &apus_signal::view::ViewNode| c.processes.get(&m.node()).map(|p| p.incarnation) == Some(m.incarnation);
        view.nodes.iter().any(|m| m.state() == NodeState::Up && !(runs(m) && c.stopped(m.id as u16).is_none()))
    };
    let waits: Vec<u16> =
        (1..=nodes).filter(|n| c.processes.contains_key(&NodeId(*n)) && !frozen(c, *n).is_empty()).collect();
    if !waits.is_empty() && waits.iter().all(|n| is_gone(c, *n)) {
        (1..=nodes).for_each(|n| c.start_node(n));
    }
}

/// Kills, hangs, cuts and restarts at random moments. Never two clusters: members that still run when every decision has had its time share
/// one view, and the cluster becomes whole again.
#[test]
fn chaos_never_makes_two_clusters() {
    for seed in 1u64..=40 {
        let mut random = apus_kernel::Random::new(seed);
        let (groups, replicas) = [(1, 2), (1, 3), (2, 2), (1, 4), (2, 3)][random.next_u64() as usize % 5];
        let nodes = (groups * replicas) as u16;
        let mut c = started(groups, replicas);
        for _ in 0..6 {
            for _ in 0..1 + random.next_u64() % 3 {
                let (a, b) = (1 + random.next_u64() as u16 % nodes, 1 + random.next_u64() as u16 % nodes);
                match random.next_u64() % 6 {
                    0 => c.kill(a),
                    1 | 2 if a != b => c.separate(a, b),
                    3 => {
                        c.kill(a);
                        c.start_node(a);
                    }
                    4 if c.processes.contains_key(&NodeId(a)) => c.arm(a, "qmgr.drop_view_commit"),
                    _ => {}
                }
                c.run_ms(random.next_u64() % 4);
            }
            c.run_ms(3000 + random.next_u64() % 500);
            let alive: Vec<u16> = (1..=nodes)
                .filter(|n| c.processes.contains_key(&NodeId(*n)) && c.stopped(*n).is_none() && c.generation(*n) > 0)
                .collect();
            for &n in &alive {
                assert_eq!(
                    c.view(n),
                    c.view(alive[0]),
                    "seed {seed}: {n} and {} of {alive:?}\n{}",
                    alive[0],
                    details(&c)
                );
            }
            if !alive.is_empty() {
                c.cut.clear();
            }
            for n in 1..=nodes {
                if c.stopped(n).is_some() || !c.processes.contains_key(&NodeId(n)) {
                    c.start_node(n);
                }
            }
            c.run_ms(3000);
        }
        c.cut.clear();
        for n in 1..=nodes {
            if c.stopped(n).is_some() {
                c.start_node(n);
            }
        }
        let full = |c: &Cluster| {
            (1..=nodes).all(|n| c.view(n).is_some_and(|v| (1..=nodes).all(|m| v.state(NodeId(m)) == NodeState::Up)))
        };
        if !c.run_until(10_000, full) {
            start_anew_if_lost(&mut c, nodes);
        }
        let is_whole = c.run_until(30_000, full);
        assert!(is_whole, "seed {seed}: the cluster does not become whole again\n{}", details(&c));
        assert!((2..=nodes).all(|n| c.view(n) == c.view(1)), "seed {seed}");
    }
}

pub(super) fn arbitrator(c: &Cluster, id: u16) -> (u32, u64) {
    c.view(id).map(|v| (v.arbitrator, v.arbitrator_incarnation)).unwrap_or_default()
}
pub(super) fn process_of(c: &Cluster, node: NodeId) -> (u32, u64) {
    (node.0.into(), c.processes[&node].incarnation)
}

#[test]
fn a_dead_arbitrator_is_replaced_and_the_next_one_arbitrates() {
    for hangs in [false, true] {
        let mut c = Cluster::new(1, 2);
        c.start_mgmt(MGMT_2);
        for n in [1, 2] {
            c.start_node(n);
        }
        assert!(c.run_until(2000, |c| c.generation(2) == 1));
        c.run_ms(200);
        assert_eq!(arbitrator(&c, 2), process_of(&c, MGMT), "the first one");
        if hangs {
            c.node(MGMT.0).stopped = Some("hangs".to_owned());
        } else {
            c.kill(MGMT.0);
        }
        let second = process_of(&c, MGMT_2);
        assert!(c.run_until(1500, |c| arbitrator(c, 1) == second && arbitrator(c, 2) == second), "hangs {hangs}");
        c.kill(1);
        assert!(c.run_until(10, |c| members(c, 2) == [2]), "the second one said yes");
    }
}

#[test]
fn an_arbitrator_that_started_anew_is_named_anew() {
    let mut c = started(1, 2);
    let old = arbitrator(&c, 1);
    c.start_mgmt(MGMT);
    let new = process_of(&c, MGMT);
    assert_ne!(old, new);
    assert!(c.run_until(300, |c| arbitrator(c, 1) == new && arbitrator(c, 2) == new));
    c.kill(2);
    assert!(c.run_until(10, |c| members(c, 1) == [1]));
}

/// It must not say yes under a view that names its predecessor: that one may have said yes to the others.
#[test]
fn an_arbitrator_that_started_anew_does_not_judge_before_it_is_named() {
    let mut c = started(1, 2);
    c.start_mgmt(MGMT); // the members have not seen it yet
    c.kill(2);
    c.run_ms(3000);
    assert!(frozen(&mut c, 1).contains("arbitrat") && c.generation(1) == 1);
}

#[test]
fn one_member_that_lost_the_arbitrator_changes_nothing() {
    let mut c = Cluster::new(1, 2);
    c.start_mgmt(MGMT_2);
    for n in [1, 2] {
        c.start_node(n);
    }
    assert!(c.run_until(2000, |c| c.generation(2) == 1));
    c.separate(1, MGMT.0);
    c.run_ms(3000);
    assert_eq!((c.generation(1), arbitrator(&c, 1)), (1, process_of(&c, MGMT)));
    c.separate(2, MGMT.0);
    let second = process_of(&c, MGMT_2);
    assert!(c.run_until(100, |c| arbitrator(c, 1) == second && arbitrator(c, 2) == second));
}

/// Each half reaches one management node only: the half of the one that is named goes on, the other does not elect its own.
#[test]
fn a_half_cannot_elect_an_arbitrator_of_its_own() {
    let mut c = Cluster::new(2, 2);
    c.start_mgmt(MGMT_2);
    for n in 1..=4 {
        c.start_node(n);
    }
    assert!(c.run_until(2000, |c| (1..=4).all(|n| c.generation(n) == 1)));
    c.run_ms(50);
    for (a, b) in [(1, 2), (1, 4), (3, 2), (3, 4), (1, MGMT.0), (3, MGMT.0), (2, MGMT_2.0), (4, MGMT_2.0)] {
        c.separate(a, b);
    }
    c.run_ms(11_000);
    assert!([2, 4].iter().all(|n| members(&c, *n) == [2, 4]));
    assert!([1, 3].iter().all(|n| c.generation(*n) == 1 && c.stopped(*n).is_none() && !frozen(&mut c, *n).is_empty()));
    c.cut.clear();
    c.run_ms(1000);
    for n in [1, 3] {
        let why = c.stopped(n);
        assert!(why.as_ref().is_some_and(|why| why.contains("without")), "{why:?}\n{}", details(&c));
    }
}

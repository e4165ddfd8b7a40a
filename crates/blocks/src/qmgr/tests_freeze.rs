//! Who may not go on, in the harness.

use apus_signal::{
    BlockId, BlockRef, Kind,
    mgmt::{ClusterConfig, MgmtReq, StatusConf},
    qmgr::{FailRep, Incarnation, decode, encode},
    view::NodeState,
};
use apus_types::NodeId;

use super::tests::{frozen, members, started};
use crate::harness::{Cluster, MGMT};

pub(super) fn serves(c: &Cluster, id: u16) -> bool {
    let client = NodeId(NodeId::CLIENT_BASE);
    c.processes.get(&NodeId(id)).is_some_and(|p| p.stopped.is_none() && p.worker.serves(client, c.now))
}
pub(super) fn is_whole(c: &Cluster, nodes: u16) -> bool {
    (1..=nodes).all(|n| c.view(n).is_some_and(|v| (1..=nodes).all(|m| v.state(NodeId(m)) == NodeState::Up)))
}

/// The only management node is down, then one of two nodes dies: what is left is in the other, which keeps it and goes on by no word but a
/// certain one.
#[test]
fn without_an_arbitrator_half_a_cluster_freezes() {
    for (dead, left) in [(1u16, 2u16), (2, 1)] {
        let mut c = started(1, 2);
        c.separate(1, MGMT.0);
        c.separate(2, MGMT.0);
        c.run_ms(20);
        c.kill(dead);
        c.run_ms(5);
        assert!(!serves(&c, left));
        c.run_ms(60_000);
        assert!(c.stopped(left).is_none() && c.generation(left) == 1 && !serves(&c, left));
        let account = frozen(&mut c, left);
        assert!(account.contains("out of reach"), "{account}");
        // It comes back, empty: no second cluster beside the frozen one, though the management node may know nothing of that.
        if left == 2 {
            c.start_mgmt(MGMT); // it dials node 1 and tells it
        }
        c.cut.remove(&(NodeId(dead), MGMT));
        c.start_node(dead);
        c.run_ms(30_000);
        assert_eq!((c.generation(dead), c.generation(left)), (0, 1));
        assert!(c.node(dead).log.iter().any(|l| l.contains("is frozen")), "{}", super::tests::details(&c));
    }
}

/// It dies just after it was asked: nobody waits for its answer until the time is over, and clients are told.
#[test]
fn an_arbitrator_that_dies_with_the_question_is_not_waited_for() {
    for (dead, left) in [(1u16, 2u16), (2, 1)] {
        let mut c = started(1, 2);
        c.mute(MGMT.0, left);
        c.kill(dead);
        c.run_ms(100);
        assert!(frozen(&mut c, left).is_empty() && !serves(&c, left), "it is asked");
        c.mute.clear();
        c.separate(left, MGMT.0);
        c.run_ms(100);
        assert!(frozen(&mut c, left).contains("connection to the arbitrator is lost"), "{}", frozen(&mut c, left));
        c.cut.clear();
        assert!(c.run_until(1000, |c| members(c, left) == [left]), "asked again, it says yes");
    }
}

/// The arbitrator was out of reach for long, and knows that it has fenced nobody.
#[test]
fn a_late_yes_of_the_arbitrator_thaws() {
    for (dead, left) in [(1u16, 2u16), (2, 1)] {
        let mut c = started(1, 2);
        c.separate(1, MGMT.0);
        c.separate(2, MGMT.0);
        c.run_ms(20);
        c.kill(dead);
        c.run_ms(20_000);
        assert!(!frozen(&mut c, left).is_empty() && !serves(&c, left));
        c.cut.clear();
        assert!(c.run_until(1000, |c| members(c, left) == [left]));
        assert!(serves(&c, left) && frozen(&mut c, left).is_empty());
        c.start_node(dead);
        assert!(c.run_until(3000, |c| is_whole(c, 2)));
    }
}

/// The yes was given to a node that died before it could use it: the other one keeps its rows, and is not told that others went on.
#[test]
fn a_yes_that_nobody_used_destroys_nothing() {
    let mut c = started(1, 2);
    c.mute(MGMT.0, 1); // it asks, and does not hear the answer
    c.separate(1, 2);
    c.run_ms(300);
    let waits: Vec<u16> = [1, 2].into_iter().filter(|n| c.generation(*n) == 1).collect();
    assert!(waits.contains(&1));
    c.kill(1);
    c.run_ms(30_000);
    assert!(c.stopped(2).is_none(), "{:?}", c.stopped(2));
}

/// A link is reset while there is no management node: both freeze, find each other again, and one gives way.
#[test]
fn of_two_frozen_nodes_that_meet_again_one_gives_way() {
    for apart in [0, 5, 300, 20_000] {
        let mut c = started(1, 2);
        c.kill(MGMT.0);
        c.run_ms(20);
        c.separate(1, 2);
        c.run_ms(apart);
        assert!(apart < 100 || (!frozen(&mut c, 1).is_empty() && !frozen(&mut c, 2).is_empty()));
        c.cut.clear();
        assert!(c.run_until(3000, |c| members(c, 1) == [1]), "{apart}\n{}", super::tests::details(&c));
        assert!(
            c.run_until(1000, |c| c.stopped(2).is_some() && serves(c, 1)),
            "{apart}\n{}",
            super::tests::details(&c)
        );
        c.start_mgmt(MGMT);
        c.rejoin_node(2);
        assert!(c.run_until(3000, |c| is_whole(c, 2)), "{apart}");
    }
}

/// All are apart from each other, each a minority: nobody ends, and when they meet again the cluster goes on.
#[test]
fn a_cluster_in_pieces_ends_nowhere() {
    for (groups, replicas) in [(1, 3), (1, 4), (2, 2), (2, 3)] {
        let nodes = (groups * replicas) as u16;
        let mut c = started(groups, replicas);
        for a in 1..=nodes {
            (1..=nodes).filter(|b| *b != a).for_each(|b| c.separate(a, b));
            c.separate(a, MGMT.0);
        }
        c.run_ms(20_000);
        assert!((1..=nodes).all(|n| c.stopped(n).is_none() && !serves(&c, n)), "{nodes}");
        assert!((1..=nodes).all(|n| !frozen(&mut c, n).is_empty()));
        if groups > 1 {
            continue; // no side holds a member of every group: this is for an operator
        }
        c.cut.clear();
        assert!(c.run_until(5000, |c| (1..=nodes).any(|n| serves(c, n))), "{nodes}\n{}", super::tests::details(&c));
        c.run_ms(1000);
        let stays: Vec<u16> = (1..=nodes).filter(|n| c.stopped(*n).is_none()).collect();
        assert_eq!(stays.len(), 1);
        (1..=nodes).filter(|n| !stays.contains(n)).for_each(|n| c.rejoin_node(n));
        assert!(c.run_until(10_000, |c| is_whole(c, nodes)), "{nodes}");
    }
}

/// Two of three die within one change of the view: the third holds everything and keeps it.
#[test]
fn the_last_of_three_keeps_what_it_holds() {
    for left in 1..=3u16 {
        let mut c = started(1, 3);
        (1..=3).filter(|n| *n != left).for_each(|n| c.kill(n));
        c.run_ms(60_000);
        assert!(c.stopped(left).is_none() && !serves(&c, left));
        assert!(frozen(&mut c, left).contains("minority"));
    }
}

#[test]
fn the_status_tells_what_a_frozen_node_waits_for() {
    let mut c = started(1, 3);
    c.kill(2);
    c.kill(3);
    c.run_ms(2000);
    c.ask(MGMT.0, BlockId::Mgmt, Kind::StatusReq, |b| encode(&MgmtReq { request: 1 }, b));
    c.run_ms(2);
    let status: StatusConf = decode(&c.answer(Kind::StatusConf).unwrap()).unwrap();
    let text = &status.nodes[0].frozen;
    assert!(text.contains("minority") && text.contains("waits for data node 2, 3"), "{text}");
    assert_eq!(status.nodes.iter().map(|n| n.lost).collect::<Vec<_>>(), [false, true, true], "who is gone is shown so");
}

/// Members of several sides give a starting node different answers, ten times a second.
#[test]
fn a_starting_node_says_what_it_waits_for_once_in_ten_seconds() {
    let mut c = started(1, 4);
    c.separate(1, 2);
    [3, 4].into_iter().for_each(|n| c.kill(n));
    c.run_ms(3_000);
    c.start_node(4);
    c.run_ms(35_000);
    for said in 1..=2 {
        let of = format!("node {said}: the cluster still counts");
        let lines = c.node(4).log.iter().filter(|l| l.contains(&of)).count();
        assert!((3..=6).contains(&lines), "{lines} lines\n{}", super::tests::details(&c));
    }
}

/// The only management node has been down for a while: of two nodes one was named, so that the death of the other is survived.
#[test]
fn without_a_management_node_the_tie_breaker_goes_on() {
    let mut c = started(1, 2);
    c.kill(MGMT.0);
    assert!(c.run_until(300, |c| (1..=2).all(|n| c.view(n).is_some_and(|v| v.tie_breaker == 1 && v.arbitrator == 0))));
    c.run_ms(300);
    assert_eq!(c.generation(1), 2, "once");
    c.kill(2);
    assert!(c.run_until(100, |c| members(c, 1) == [1] && serves(c, 1)), "{}", super::tests::details(&c));

    for apart in [true, false] {
        let mut c = started(1, 2);
        c.kill(MGMT.0);
        c.run_ms(300);
        if apart {
            c.separate(1, 2);
            assert!(c.run_until(100, |c| members(c, 1) == [1] && serves(c, 1)), "a reset link ends nobody's cluster");
        } else {
            c.kill(1);
        }
        c.run_ms(30_000);
        assert!(c.stopped(2).is_none() && !serves(&c, 2) && frozen(&mut c, 2).contains("tie-breaker"));
        c.cut.clear();
        c.start_mgmt(MGMT);
        c.run_ms(500);
        assert_eq!(c.stopped(2).is_some(), apart, "it is told that node 1 went on, or keeps its rows");
        let named = c.view(1).map(|v| (v.arbitrator, v.tie_breaker));
        assert!(!apart || named == Some((MGMT.0.into(), 0)), "{named:?}");
    }
}

fn started_with_lasting_mgmt() -> Cluster {
    let mut c = Cluster::new(1, 2);
    c.start_lasting_mgmt(MGMT);
    (1..=2).for_each(|n| c.start_node(n));
    assert!(c.run_until(2000, |c| (1..=2).all(|n| c.generation(n) == 1)));
    c.run_ms(50);
    c
}

/// It dies, one of two nodes dies, and it is started again: it is the arbitrator that the view names, and knows that it has fenced nobody.
#[test]
fn an_arbitrator_that_was_restarted_is_the_same_one() {
    for (dead, left) in [(1u16, 2u16), (2, 1)] {
        let mut c = started_with_lasting_mgmt();
        c.kill(MGMT.0);
        c.run_ms(10);
        c.kill(dead);
        c.run_ms(5_000);
        assert!(!serves(&c, left) && !frozen(&mut c, left).is_empty());
        c.start_lasting_mgmt(MGMT);
        assert!(c.run_until(1000, |c| members(c, left) == [left] && serves(c, left)), "{}", super::tests::details(&c));
        assert_eq!(c.generation(left), 2, "no view had to name it again");
    }
}

/// Node 1 was told yes and nobody heard of it since. The arbitrator remembers it after its restart: node 2 stays where it is.
#[test]
fn what_the_arbitrator_promised_outlives_it() {
    let mut c = started_with_lasting_mgmt();
    c.mute(1, MGMT.0); // what it commits is not reported
    c.run_ms(5);
    c.mute.remove(&(NodeId(1), MGMT));
    c.separate(1, 2);
    assert!(c.run_to(300, |c| c.generation(1) == 2));
    c.kill(1);
    c.start_lasting_mgmt(MGMT);
    c.run_ms(30_000);
    assert!(c.generation(2) == 1 && c.stopped(2).is_none() && !serves(&c, 2), "{}", super::tests::details(&c));
    assert!(frozen(&mut c, 2).contains("asked first"), "{}", frozen(&mut c, 2));
}

/// What cannot be written is not promised.
#[test]
fn an_arbitrator_that_cannot_write_resigns() {
    let mut c = started_with_lasting_mgmt();
    c.disk_fails.insert(MGMT);
    c.kill(2);
    c.run_ms(3000);
    assert!(c.generation(1) == 1 && !serves(&c, 1));
    assert!(c.node(MGMT.0).log.iter().any(|l| l.contains("arbitrates no more")), "{:?}", c.node(MGMT.0).log);
    c.disk_fails.clear();
    c.start_lasting_mgmt(MGMT);
    assert!(c.run_until(1000, |c| members(c, 1) == [1] && serves(c, 1)), "{}", super::tests::details(&c));
}

/// Sides that are whole node groups: none can go on, and none may give way.
#[test]
fn sides_that_are_whole_groups_meet_again() {
    for (groups, replicas) in [(2u16, 1u16), (2, 2), (3, 2)] {
        for (apart, arbitrated) in [(300, true), (300, false), (20_000, true), (20_000, false)] {
            let mut c = started(groups.into(), replicas.into());
            if !arbitrated {
                c.kill(MGMT.0);
            }
            let nodes = groups * replicas;
            (1..=replicas).for_each(|a| (replicas + 1..=nodes).for_each(|b| c.separate(a, b)));
            c.run_ms(apart);
            assert!((1..=nodes).all(|n| c.stopped(n).is_none() && !serves(&c, n)), "{}", super::tests::details(&c));
            c.cut.clear();
            let serve = |c: &Cluster| (1..=nodes).all(|n| serves(c, n));
            assert!(c.run_until(5000, serve), "{groups} {apart}\n{}", super::tests::details(&c));
            let view = c.view(nodes).expect("a view");
            assert_eq!(view.settles > 0, apart > 1_000 || view.generation > 1);
            c.start_mgmt(MGMT);
            assert!(c.run_until(5000, |c| is_whole(c, nodes)), "{}", super::tests::details(&c));
            c.kill(1);
            let left = |c: &Cluster| (2..=nodes).all(|n| serves(c, n));
            assert!(replicas == 1 || c.run_until(5000, left), "{}", super::tests::details(&c));
        }
    }
}

/// A full member dies while the groups are parted: the others meet without it, soon if its next process speaks for it.
#[test]
fn sides_meet_without_one_that_died() {
    for (groups, replicas) in [(2u16, 2u16), (3, 2), (2, 3)] {
        for (keeps_views, dead, restarts) in
            [(false, 1, false), (false, 2, true), (false, replicas + 1, false), (true, 1, true), (true, 2, true)]
        {
            let mut c = Cluster::new(groups.into(), replicas.into());
            c.keeps_views = keeps_views;
            let nodes = groups * replicas;
            (1..=nodes).for_each(|n| c.start_node(n));
            assert!(c.run_until(3000, |c| is_whole(c, nodes)));
            (1..=replicas).for_each(|a| (replicas + 1..=nodes).for_each(|b| c.separate(a, b)));
            c.run_ms(5000);
            c.kill(dead);
            c.run_ms(500);
            let left: Vec<u16> = (1..=nodes).filter(|n| *n != dead).collect();
            assert!(left.iter().all(|n| c.stopped(*n).is_none() && !serves(&c, *n)));
            if restarts {
                c.start_node(dead);
            }
            c.cut.clear();
            let patience = if keeps_views { 5000 } else { 20_000 };
            // What was accepted before the split was complete is finished first, and may be without one more.
            let serve = |c: &Cluster| left.iter().all(|n| serves(c, *n) || c.stopped(*n).is_some());
            let what = format!("{groups} x {replicas} {keeps_views} {dead} {restarts}");
            assert!(c.run_until(patience, serve), "{what}\n{}", super::tests::details(&c));
            let stopped: Vec<u16> = left.iter().copied().filter(|n| c.stopped(*n).is_some()).collect();
            assert!(stopped.len() <= 1 && left.iter().any(|n| c.view(*n).is_some_and(|v| v.settles > 0)), "{what}");
            stopped.into_iter().for_each(|n| c.rejoin_node(n));
            if !restarts {
                c.start_node(dead);
            }
            assert!(c.run_until(5000, |c| is_whole(c, nodes)), "{what}\n{}", super::tests::details(&c));
        }
    }
}

/// What somebody said of others before the sides met comes late, or waited: it says nothing of now.
#[test]
fn suspicions_from_before_sides_met_are_dropped() {
    let mut c = started(2, 2);
    (1..=2).for_each(|a| (3..=4).for_each(|b| c.separate(a, b)));
    c.run_ms(20_000);
    c.cut.clear();
    assert!(c.run_until(5000, |c| (1..=4).all(|n| serves(c, n))), "{}", super::tests::details(&c));
    let view = c.view(1).expect("a view");
    assert_eq!(view.settles, view.generation);
    let say = |c: &mut Cluster, of: u16, generation: u64| {
        let failed = view.node(NodeId(of)).map(|n| Incarnation { node: n.id, incarnation: n.incarnation });
        let word = FailRep { failed, hearsay: false, generation };
        let qmgr = |n| BlockRef::new(NodeId(n), BlockId::Qmgr, BlockRef::CONTROL);
        let worker = &mut c.node(2).worker;
        worker.with_context(qmgr(2), |ctx| ctx.send(qmgr(1), Kind::FailRep, |b| encode(&word, b)));
    };
    say(&mut c, 4, view.settles - 1);
    c.run_ms(2000);
    assert!((1..=4).all(|n| members(&c, n) == [1, 2, 3, 4]), "{}", super::tests::details(&c));
    say(&mut c, 4, view.settles);
    c.run_ms(2000);
    assert!(members(&c, 1).len() == 3, "what is said now is believed\n{}", super::tests::details(&c));
}

/// All apart from each other, in several groups: of each group one stays.
#[test]
fn of_groups_in_pieces_one_of_each_stays() {
    for (groups, replicas) in [(2u16, 2u16), (2, 3), (3, 2)] {
        let nodes = groups * replicas;
        let mut c = started(groups.into(), replicas.into());
        for a in 1..=nodes {
            (1..=nodes).filter(|b| *b != a).for_each(|b| c.separate(a, b));
        }
        c.run_ms(20_000);
        assert!((1..=nodes).all(|n| c.stopped(n).is_none() && !serves(&c, n)), "{}", super::tests::details(&c));
        c.cut.clear();
        let stopped = |c: &Cluster| (1..=nodes).filter(|n| c.stopped(*n).is_some()).collect::<Vec<u16>>();
        assert!(
            c.run_until(5000, |c| stopped(c).len() == usize::from(nodes - groups)),
            "{}",
            super::tests::details(&c)
        );
        stopped(&c).into_iter().for_each(|n| c.rejoin_node(n));
        assert!(c.run_until(10_000, |c| is_whole(c, nodes)), "{}", super::tests::details(&c));
    }
}

/// Whoever leads the meeting dies at any moment of it: the others have met or stay frozen, and nobody is lost.
#[test]
fn who_leads_the_meeting_dies() {
    for rounds in 0..20 {
        let mut c = started(2, 2);
        c.keeps_views = true;
        (1..=2).for_each(|a| (3..=4).for_each(|b| c.separate(a, b)));
        c.run_ms(20_000);
        c.cut.clear();
        assert!(c.run_to(5000, |c| c.processes[&NodeId(1)].log.iter().any(|l| l.contains("asks them"))));
        c.run_rounds(rounds);
        c.kill(1);
        c.run_ms(3_000);
        assert!((2..=4).all(|n| c.stopped(n).is_none()), "{rounds}\n{}", super::tests::details(&c));
        let serving = (2..=4).filter(|n| serves(&c, *n)).count();
        assert!(serving == 0 || serving == 3, "{rounds}: {serving}\n{}", super::tests::details(&c));
    }
}

/// The president is the senior one of those that stay, whoever brought them together: the others ask it to join, and its DICT answers.
#[test]
fn who_brings_the_sides_together_need_not_be_president() {
    let mut c = started(2, 2);
    for a in 1..=4u16 {
        (1..=4).filter(|b| *b != a).for_each(|b| c.separate(a, b));
    }
    c.run_ms(20_000);
    c.cut.clear();
    c.mute(1, 2);
    c.mute(2, 1); // so that neither of them has heard of all
    assert!(c.run_until(5000, |c| members(c, 3) == [1, 3] && members(c, 1) == [1, 3]), "{}", super::tests::details(&c));
    assert!(c.node(3).log.iter().any(|l| l.contains("asks them")), "{}", super::tests::details(&c));
    assert_eq!(c.view(3).map(|v| v.president), Some(1));
    c.mute.clear();
    assert!(c.run_until(5000, |c| c.stopped(2).is_some() && c.stopped(4).is_some()), "{}", super::tests::details(&c));
    c.rejoin_node(2);
    c.rejoin_node(4);
    assert!(c.run_until(10_000, |c| is_whole(c, 4)), "{}", super::tests::details(&c));
}

#[test]
fn a_member_outlives_a_management_node_that_is_started_wrongly() {
    let wrong: [fn(&mut ClusterConfig); 2] = [|config| config.instances += 1, |config| config.nodes.truncate(1)];
    for change in wrong {
        let mut c = started(1, 2);
        c.kill(1);
        assert!(c.run_until(20, |c| members(c, 2) == [2]));
        c.kill(MGMT.0);
        c.configure(change);
        c.start_mgmt(MGMT);
        c.run_ms(1000);
        assert_eq!((c.stopped(2), members(&c, 2)), (None, vec![2]), "it holds the last copy");
    }
}

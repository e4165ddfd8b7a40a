//! SQL nodes that arbitrate, in the harness.

use apus_signal::{
    BlockId, DecodeError, Kind,
    mgmt::MgmtReq,
    operator::{ClusterStop, EndOrder},
    qmgr::encode,
};
use apus_types::NodeId;

use super::{
    tests::{arbitrator, details, frozen, members, process_of},
    tests_freeze::{is_whole, serves},
    tests_orders::say,
};
use crate::harness::{Cluster, MGMT, SQL};

/// Two data nodes and a SQL node, all of which have met.
fn with_sql_node() -> Cluster {
    let mut c = Cluster::new(1, 2);
    c.start_sql_arbitrator(SQL);
    for n in [1, 2] {
        c.start_node(n);
    }
    assert!(c.run_until(2000, |c| is_whole(c, 2)), "{}", details(&c));
    c.run_ms(1500);
    c
}

#[test]
fn a_sql_node_arbitrates_while_no_management_node_does() {
    let mut c = with_sql_node();
    assert_eq!(arbitrator(&c, 1), process_of(&c, MGMT), "management nodes come first");
    let (sql, _) = (process_of(&c, SQL), c.kill(MGMT.0));
    assert!(c.run_until(100, |c| [1, 2].iter().all(|n| arbitrator(c, *n) == sql)), "{}", details(&c));
    c.kill(1);
    assert!(c.run_until(10, |c| members(c, 2) == [2]), "it said yes");
}

#[test]
fn a_sql_node_gives_way_to_a_management_node_that_all_reach() {
    let mut c = with_sql_node();
    c.kill(MGMT.0);
    let sql = process_of(&c, SQL);
    assert!(c.run_until(100, |c| arbitrator(c, 2) == sql));
    c.separate(2, MGMT.0);
    c.start_mgmt(MGMT);
    c.run_ms(3000);
    assert_eq!((arbitrator(&c, 1), arbitrator(&c, 2)), (sql, sql), "one member does not reach it");
    c.cut.clear();
    let mgmt = process_of(&c, MGMT);
    assert!(c.run_until(1500, |c| [1, 2].iter().all(|n| arbitrator(c, *n) == mgmt)), "{}", details(&c));
    c.kill(2);
    assert!(c.run_until(10, |c| members(c, 1) == [1]));
}

/// A link ends and one of the two does not learn it: as a management node, it asks the one that is to be removed to give up its lease
/// before it says yes to the other.
#[test]
fn a_sql_node_ends_the_lease_of_whom_others_go_on_without() {
    for (unaware, other) in [(1u16, 2u16), (2, 1)] {
        let mut c = with_sql_node();
        c.kill(MGMT.0);
        let sql = process_of(&c, SQL);
        assert!(c.run_until(100, |c| [1, 2].iter().all(|n| arbitrator(c, *n) == sql)), "{}", details(&c));
        let before = c.generation(1);
        c.mute(other, unaware);
        c.separate(other, unaware);
        let goes_on = |c: &Cluster| [1, 2].into_iter().find(|n| c.generation(*n) > before);
        assert!(c.run_to(200, |c| goes_on(c).is_some()), "{}", details(&c));
        let winner = goes_on(&c).unwrap_or(0);
        assert_eq!(members(&c, winner), [winner]);
        assert!(!serves(&c, 3 - winner), "{unaware} does not know that its link has ended\n{}", details(&c));
        assert!(c.node(SQL.0).log.iter().any(|l| l.contains("asks to go on")), "{:?}", c.node(SQL.0).log);
    }
}

/// It cannot write when two halves ask it, and promises neither. They meet again, one gives way, and who goes on names another arbitrator.
#[test]
fn an_arbitrator_that_resigned_is_replaced() {
    let mut c = Cluster::new(2, 2);
    c.start_lasting_mgmt(MGMT);
    c.start_sql_arbitrator(SQL);
    (1..=4).for_each(|n| c.start_node(n));
    assert!(c.run_until(2000, |c| is_whole(c, 4)), "{}", details(&c));
    c.run_ms(1500);
    assert_eq!(arbitrator(&c, 1), process_of(&c, MGMT));
    let halve = |c: &mut Cluster| [(1, 2), (1, 4), (3, 2), (3, 4)].into_iter().for_each(|(a, b)| c.separate(a, b));
    c.disk_fails.insert(MGMT);
    halve(&mut c);
    c.run_ms(2000);
    assert!((1..=4).all(|n| !serves(&c, n) && c.stopped(n).is_none()), "{}", details(&c));
    assert!(c.node(MGMT.0).log.iter().any(|l| l.contains("arbitrates no more")), "{}", details(&c));
    c.cut.clear();
    let sql = process_of(&c, SQL);
    let is_replaced = |c: &Cluster| [1, 3].iter().all(|n| serves(c, *n) && arbitrator(c, *n) == sql);
    assert!(c.run_until(5000, is_replaced), "{}", details(&c));
    [2, 4].into_iter().for_each(|n| c.start_node(n));
    assert!(c.run_until(5000, |c| is_whole(c, 4)), "{}", details(&c));
    assert_eq!(arbitrator(&c, 1), sql, "the management node stays resigned");
    halve(&mut c);
    let halves = |c: &Cluster| [members(c, 1), members(c, 2)];
    let one_goes_on = |c: &Cluster| [[1, 3], [2, 4]].iter().any(|half| halves(c).contains(&half.to_vec()));
    assert!(c.run_until(3000, one_goes_on), "{}", details(&c));
}

/// It has fenced one half; its next process knows that, and finds the members without a management node.
#[test]
fn a_sql_node_that_starts_again_knows_whom_it_fenced() {
    let mut c = with_sql_node();
    c.kill(MGMT.0);
    let sql = process_of(&c, SQL);
    assert!(c.run_until(100, |c| [1, 2].iter().all(|n| arbitrator(c, *n) == sql)));
    c.separate(1, 2);
    assert!(c.run_until(3000, |c| members(c, 1).len() + members(c, 2).len() == 3), "{}", details(&c));
    let (winner, loser) = if members(&c, 1) == [1] { (1, 2) } else { (2, 1) };
    c.kill(winner);
    c.start_sql_arbitrator(SQL);
    c.run_ms(5000);
    assert_eq!(members(&c, loser), [1, 2], "others may have gone on\n{}", details(&c));
    assert!(c.stopped(loser).is_some() || frozen(&mut c, loser).contains("says no"), "{}", details(&c));
}

/// The management node is there for one half, the SQL node for the other: it is asked who is named.
#[test]
fn of_two_arbitrators_one_is_asked() {
    let mut c = with_sql_node();
    for (a, b) in [(1, 2), (1, SQL.0), (2, MGMT.0)] {
        c.separate(a, b);
    }
    c.run_ms(11_000);
    assert_eq!((members(&c, 1), members(&c, 2)), (vec![1], vec![1, 2]));
    assert!(c.node(2).log.iter().any(|l| l.contains("waits for management node 1 to decide")), "{}", details(&c));
}

#[test]
fn a_sql_node_configures_nobody_ends_nobody_and_answers_no_operator() {
    let mut c = with_sql_node();
    let own = c.processes[&NodeId(1)].incarnation;
    let order = EndOrder { incarnation: own, ..EndOrder::default() };
    for kind in [Kind::EndOrd, Kind::ResumeOrd, Kind::SettingOrd, Kind::ConfigConf, Kind::ViewCommitOrd] {
        let said = say(&mut c, SQL, SQL, kind, |b| encode(&order, b));
        assert_eq!(said, Err(DecodeError), "{kind:?}");
    }
    for kind in [Kind::ConfigReq, Kind::StatusReq] {
        c.ask(SQL.0, BlockId::Mgmt, kind, |b| encode(&MgmtReq { request: 7 }, b));
    }
    c.order(SQL.0, Kind::ClusterStopReq, |b| encode(&ClusterStop::default(), b));
    c.run_ms(500);
    for kind in [Kind::ConfigConf, Kind::StatusConf, Kind::ClusterStopConf] {
        assert_eq!(c.answer(kind), None, "{kind:?}");
    }
    assert!(is_whole(&c, 2), "{}", details(&c));
}

//! What an operator alone decides, in the harness.

use apus_signal::{
    BlockId, Kind,
    mgmt::{MgmtReq, StatusConf},
    operator::{ClusterStop, FrozenSide, Resume, ResumeAnswer},
    qmgr::{Incarnation, decode, encode},
};
use apus_types::{ErrorCode, NodeId};

use super::tests::{details, members, started};
use super::tests_freeze::{is_whole, serves};
use crate::harness::{Cluster, MGMT};

const NEW: u64 = 1 << 40;

pub(super) fn status(c: &mut Cluster) -> StatusConf {
    c.ask(MGMT.0, BlockId::Mgmt, Kind::StatusReq, |b| encode(&MgmtReq { request: 1 }, b));
    c.run_ms(2);
    decode(&c.answer(Kind::StatusConf).expect("the management node answers")).expect("decodes")
}
fn side(c: &mut Cluster, id: u32) -> Option<FrozenSide> {
    status(c).nodes.into_iter().find(|n| n.id == id).and_then(|n| n.side)
}
/// What a tool asks for after it has looked at `side`.
fn request(c: &Cluster, side: &FrozenSide, new_lineage: u64) -> Resume {
    let node = NodeId(side.leader as u16);
    Resume {
        request: 7,
        cluster: c.view(node.0).map_or(0, |v| v.cluster),
        leader: Some(Incarnation { node: side.leader, incarnation: c.processes[&node].incarnation }),
        lineage: side.lineage,
        generation: side.generation,
        abandons: side.abandons.clone(),
        new_lineage,
    }
}
fn ask(c: &mut Cluster, resume: &Resume) -> u32 {
    c.order(MGMT.0, Kind::ResumeReq, |b| encode(resume, b));
    c.run_ms(2);
    let answer = c.answer(Kind::ResumeConf).expect("an answer");
    decode::<ResumeAnswer>(&answer).expect("decodes").error
}
/// Half of 1 x 2 is frozen under a management node that has forgotten everything.
fn frozen_half(left: u16) -> Cluster {
    let mut c = started(1, 2);
    c.kill(MGMT.0);
    c.run_ms(20);
    c.kill(3 - left);
    c.run_ms(2_000);
    c.start_mgmt(MGMT);
    assert!(c.run_until(3_000, |c| c.stopped(left).is_none() && !serves(c, left)));
    c.run_ms(2_000);
    c
}

#[test]
fn a_frozen_side_goes_on_by_an_operators_word() {
    for left in [1u16, 2] {
        let mut c = frozen_half(left);
        let side = side(&mut c, left.into()).unwrap_or_else(|| panic!("{}", details(&c)));
        assert_eq!((side.leader, side.abandons.len(), side.lacks_groups.len()), (u32::from(left), 1, 0));
        let resume = request(&c, &side, NEW);
        assert_eq!(ask(&mut c, &resume), 0);
        assert!(c.run_until(3_000, |c| serves(c, left)), "{}", details(&c));
        assert_eq!(c.view(left).map(|v| v.lineage), Some(NEW));
        assert_eq!(ask(&mut c, &resume), ErrorCode::NotFrozen as u32, "once is enough");
        c.start_node(3 - left);
        assert!(c.run_until(5_000, |c| is_whole(c, 2)), "{}", details(&c));
    }
}

/// Clusters of 2 x 3 without a management node in which node 3 has not heard of the view that node 6 is in, and after how many rounds it was cut off.
fn missed_commits() -> impl Iterator<Item = (usize, Cluster)> {
    (0..40).filter_map(|rounds| {
        let mut c = started(2, 3);
        c.kill(MGMT.0);
        c.run_ms(20);
        let before = c.generation(3);
        c.kill(2);
        c.run_rounds(rounds);
        c.hold(1, 3);
        let is_behind = c.run_until(50, |c| c.generation(6) > before) && c.generation(3) == before;
        is_behind.then_some((rounds, c))
    })
}

/// The president dies between the commits of a view (seed 206004333): who leads the frozen side has missed it, and hears of it from the others.
#[test]
fn who_leads_a_side_has_its_newest_view() {
    let mut behind = 0;
    for (rounds, mut c) in missed_commits() {
        behind += 1;
        [4, 5, 1].into_iter().for_each(|n| c.kill(n)); // the president is missed last, so nobody begins to take over
        c.run_ms(2_000);
        c.start_mgmt(MGMT);
        c.run_ms(2_500);
        assert_eq!(c.generation(3), c.generation(6), "{rounds} {}", details(&c));
        let side = side(&mut c, 3).unwrap_or_else(|| panic!("{rounds} {}", details(&c)));
        let resume = request(&c, &side, NEW);
        assert_eq!(ask(&mut c, &resume), 0, "{rounds}");
        assert!(c.run_until(3_000, |c| serves(c, 3) && serves(c, 6)), "{rounds} {}", details(&c));
    }
    assert!(behind > 0, "a commit was missed");
}

/// As before, with an operator who is in a hurry: what one of the side does not know yet is no base for a new lineage.
#[test]
fn a_side_is_not_resumed_before_it_is_of_one_mind() {
    let mut refused = 0;
    for (rounds, mut c) in missed_commits() {
        [4, 5].into_iter().for_each(|n| c.kill(n));
        c.start_mgmt(MGMT);
        c.kill(1);
        for _ in 0..3_000 {
            c.run_ms(1);
            let Some(side) = side(&mut c, 3).filter(|side| side.leader == 3) else { continue };
            let resume = request(&c, &side, NEW);
            match ask(&mut c, &resume) {
                0 => break,
                error => {
                    assert_eq!(error, ErrorCode::SideChanged as u32, "{rounds} {}", details(&c));
                    refused += 1;
                }
            }
        }
        assert!(c.run_until(3_000, |c| serves(c, 3) && serves(c, 6)), "{rounds} {}", details(&c));
    }
    assert!(refused > 0, "the operator was early");
}

/// The abandoned one went on by itself, and had many views. It learns that it is abandoned as soon as it is linked to anybody.
#[test]
fn who_was_abandoned_gives_up_its_rows_and_joins_again() {
    let mut c = started(1, 3);
    c.separate(3, 1);
    c.separate(3, 2);
    c.separate(1, MGMT.0);
    c.separate(2, MGMT.0);
    assert!(c.run_until(3_000, |c| members(c, 1) == [1, 2] && !serves(c, 3)), "{}", details(&c));
    assert!(c.run_until(20_000, |c| c.generation(1) > 2), "another view: nobody arbitrates");
    c.run_ms(12_000);
    let side = side(&mut c, 3).unwrap_or_else(|| panic!("{}", details(&c)));
    assert_eq!(side.abandons.len(), 2);
    let resume = request(&c, &side, NEW);
    assert_eq!(ask(&mut c, &resume), 0);
    assert!(c.run_until(3_000, |c| serves(c, 3)), "{}", details(&c));
    assert!(serves(&c, 1) && c.generation(1) > 2, "the operator was wrong: the others serve");
    c.cut.clear();
    assert!(c.run_until(3_000, |c| c.stopped(1).is_some() && c.stopped(2).is_some()), "{}", details(&c));
    assert!(c.stopped(3).is_none() && serves(&c, 3));
    c.rejoin_node(1);
    c.rejoin_node(2);
    assert!(c.run_until(5_000, |c| is_whole(c, 3)), "{}", details(&c));
    assert_eq!(c.view(1).map(|v| v.lineage), Some(NEW));
}

#[test]
fn what_cannot_be_resumed_is_refused_by_number() {
    let mut c = started(2, 2);
    let mut other = request(&c, &FrozenSide { leader: 1, ..FrozenSide::default() }, NEW);
    assert_eq!(ask(&mut c, &other), ErrorCode::NotFrozen as u32);
    other.leader = Some(Incarnation { node: 1, incarnation: 5 });
    assert_eq!(ask(&mut c, &other), ErrorCode::NoNodeAvailable as u32);
    c.kill(3);
    c.kill(4);
    c.run_ms(12_000);
    let lacking = side(&mut c, 1).unwrap_or_else(|| panic!("{}", details(&c)));
    assert_eq!(lacking.lacks_groups, [1]);
    let resume = request(&c, &lacking, NEW);
    assert_eq!(ask(&mut c, &resume), ErrorCode::NoFullCopy as u32);
    let mut c = frozen_half(1);
    let seen = side(&mut c, 1).expect("frozen");
    let resume = request(&c, &seen, NEW);
    let changed = Resume { generation: resume.generation + 1, ..resume.clone() };
    assert_eq!(ask(&mut c, &changed), ErrorCode::SideChanged as u32);
    let fewer = Resume { abandons: Vec::new(), ..resume.clone() };
    assert_eq!(ask(&mut c, &fewer), ErrorCode::SideChanged as u32);
    assert_eq!(ask(&mut c, &Resume { new_lineage: 1, ..resume }), ErrorCode::ProtocolViolation as u32);
    assert!(!serves(&c, 1));
}

/// Nobody but an operator may ask.
#[test]
fn a_client_changes_nothing() {
    let mut c = frozen_half(2);
    let side = side(&mut c, 2).expect("frozen");
    let resume = request(&c, &side, NEW);
    let stop = ClusterStop {
        request: 7,
        cluster: resume.cluster,
        processes: resume.leader.into_iter().collect(),
        ..ClusterStop::default()
    };
    c.ask(MGMT.0, BlockId::Mgmt, Kind::ResumeReq, |b| encode(&resume, b));
    c.ask(MGMT.0, BlockId::Mgmt, Kind::ClusterStopReq, |b| encode(&stop, b));
    c.run_ms(2_000);
    for _ in 0..2 {
        let body = c.answer(Kind::RequestRef).expect("refused");
        let refusal = apus_signal::tc::RequestRef::decode(&body).expect("decodes");
        assert_eq!((refusal.request, refusal.code), (7, ErrorCode::RoleNotProven));
    }
    assert!(!serves(&c, 2) && c.stopped(2).is_none());
}

/// Who leads the side dies at any moment of the agreement. The other one, which has all rows, goes on by itself if it has accepted the view, and
/// waits for the operator if not; and it never takes part in the lineage that it has abandoned.
#[test]
fn the_leader_dies_in_between() {
    let mut outcomes = std::collections::BTreeSet::new();
    for rounds in 0..12 {
        let mut c = started(1, 4);
        c.kill(MGMT.0);
        (1..=2).for_each(|n| c.separate(n, MGMT.0));
        c.run_ms(20);
        c.separate(1, 3);
        c.separate(1, 4);
        c.separate(2, 3);
        c.separate(2, 4);
        c.run_ms(2_000);
        c.start_mgmt(MGMT); // another one, which does not know whom it fenced
        c.run_ms(2_500);
        let leader = side(&mut c, 3).unwrap_or_else(|| panic!("{}", details(&c)));
        assert_eq!((leader.leader, leader.members.as_slice()), (3, &[3, 4][..]));
        let resume = request(&c, &leader, NEW);
        c.order(MGMT.0, Kind::ResumeReq, |b| encode(&resume, b));
        c.run_rounds(rounds);
        c.kill(3);
        c.run_ms(3_000);
        let went_on = serves(&c, 4);
        outcomes.insert(went_on);
        assert!(!went_on || c.view(4).is_some_and(|v| v.lineage == NEW), "{}", details(&c));
        if !went_on {
            let left = side(&mut c, 4).unwrap_or_else(|| panic!("{}", details(&c)));
            let again = request(&c, &left, NEW + 1);
            assert_eq!(ask(&mut c, &again), 0, "{rounds} {}", details(&c));
            assert!(c.run_until(3_000, |c| serves(c, 4)), "{rounds} {}", details(&c));
        }
        c.cut.clear();
        assert!(c.run_until(5_000, |c| c.stopped(1).is_some() && c.stopped(2).is_some()), "{rounds} {}", details(&c));
        (1..=3).for_each(|n| c.rejoin_node(n));
        assert!(c.run_until(5_000, |c| is_whole(c, 4)), "{rounds} {}", details(&c));
    }
    assert_eq!(outcomes.len(), 2, "both kinds were seen");
}

/// An orderly end: all that are named end, and then the cluster is founded again without another word.
#[test]
fn a_cluster_that_an_operator_ended_is_founded_again() {
    let mut c = Cluster::new(1, 2);
    c.start_lasting_mgmt(MGMT);
    c.keeps_views = true;
    (1..=2).for_each(|n| c.start_node(n));
    assert!(c.run_until(2000, |c| is_whole(c, 2)));
    c.run_ms(1_500);
    let named = status(&mut c).nodes.iter().map(|n| Incarnation { node: n.id, incarnation: n.incarnation }).collect();
    let cluster = c.view(1).map_or(0, |v| v.cluster);
    let stop = ClusterStop { request: 8, cluster, processes: named, ..ClusterStop::default() };
    let none = ClusterStop { processes: vec![Incarnation { node: 1, incarnation: 5 }], ..stop.clone() };
    for (order, told) in [(none, 0), (stop, 2)] {
        c.order(MGMT.0, Kind::ClusterStopReq, |b| encode(&order, b));
        c.run_ms(3);
        let conf: ClusterStop = decode(&c.answer(Kind::ClusterStopConf).expect("an answer")).expect("decodes");
        assert_eq!((conf.processes.len(), conf.given_up), (told, told == 2));
    }
    assert!((1..=2).all(|n| c.stopped(n).is_some_and(|why| why.contains("operator"))), "{}", details(&c));
    c.kill(MGMT.0);
    c.start_lasting_mgmt(MGMT);
    (1..=2).for_each(|n| c.start_node(n));
    assert!(c.run_until(5000, |c| is_whole(c, 2)), "{}", details(&c));
}

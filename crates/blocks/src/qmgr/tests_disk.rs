//! What a node does whose disk hangs or breaks, in the harness: workers say so as `ldm/disk_health.rs` does.

use apus_signal::{
    BlockId, BlockRef, Kind,
    file::{DiskRep, DiskState},
};
use apus_types::NodeId;

use super::tests::{details, members, started};
use crate::harness::Cluster;

fn say(c: &mut Cluster, node: u16, state: DiskState) {
    let (ldm, qmgr) =
        (BlockRef::new(NodeId(node), BlockId::Ldm, 0), BlockRef::new(NodeId(node), BlockId::Qmgr, BlockRef::CONTROL));
    let rep = DiskRep { instance: 0, state, reason: format!("it is {state:?}") };
    c.node(node).worker.with_context(ldm, |ctx| ctx.send(qmgr, Kind::DiskRep, |b| rep.encode(b)));
}

/// As the worker's clock has it: late for a second before it hangs.
fn hang(c: &mut Cluster, nodes: &[u16]) {
    for state in [DiskState::Late, DiskState::Hangs] {
        nodes.iter().for_each(|n| say(c, *n, state));
        c.run_ms(1_000);
    }
}

fn ended(c: &Cluster, nodes: u16) -> Vec<u16> {
    (1..=nodes).filter(|n| c.stopped(*n).is_some()).collect()
}

/// One array under all disks stood still for 2 s while a table of faults was measured: each node left it to the others to go on, and all rows were lost.
#[test]
fn disks_that_hang_all_at_once_end_nobody() {
    for (groups, replicas) in [(1u16, 2u16), (1, 3), (2, 2)] {
        let mut c = started(groups.into(), replicas.into());
        let all: Vec<u16> = (1..=groups * replicas).collect();
        hang(&mut c, &all);
        c.run_ms(5_000);
        assert_eq!(ended(&c, groups * replicas), [], "{}", details(&c));
        assert!(c.node(1).log.iter().any(|line| line.contains("no other sound full member")), "{:?}", c.node(1).log);
        all.iter().for_each(|n| say(&mut c, *n, DiskState::Answers));
        c.run_ms(100);
        hang(&mut c, &[1]);
        assert_eq!(ended(&c, groups * replicas), [1], "the others answer by now: {}", details(&c));
    }
}

#[test]
fn disks_that_break_within_a_moment_end_nobody() {
    for apart in [0, 20, 40] {
        let mut c = started(1, 2);
        say(&mut c, 1, DiskState::Broken);
        c.run_ms(apart);
        say(&mut c, 2, DiskState::Broken);
        c.run_ms(5_000);
        assert_eq!(ended(&c, 2), [], "{apart} ms: {}", details(&c));
    }
}

#[test]
fn a_node_whose_disk_hangs_or_breaks_ends_where_the_others_can_go_on() {
    for state in [DiskState::Hangs, DiskState::Broken] {
        let mut c = started(1, 2);
        say(&mut c, 2, DiskState::Late);
        c.run_ms(1_000);
        assert_eq!(ended(&c, 2), [], "not for being late");
        say(&mut c, 2, state);
        assert!(c.run_until(200, |c| members(c, 1) == [1]), "{}", details(&c));
        say(&mut c, 1, state);
        c.run_ms(3_000);
        assert_eq!(ended(&c, 2), [2], "it is the last full copy: {}", details(&c));
    }
}

/// Each of them alone leaves a majority, both at once do not.
#[test]
fn of_three_replicas_two_end_one_after_the_other() {
    let mut c = started(1, 3);
    hang(&mut c, &[1, 3]);
    assert!(c.run_until(3_000, |c| members(c, 2) == [2]), "{}", details(&c));
    assert_eq!(ended(&c, 3), [1, 3]);
}

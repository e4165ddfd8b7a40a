//! Rows are copied to a node that comes back while transactions lock and change them without a break.

use apus_signal::{
    BlockId, Kind,
    copy::CopyFrag,
    tc::{COMMIT, OpKind, START},
    view::NodeState,
};
use apus_types::{Chain, NodeId, PartitionId};

use super::{Answer, Cluster, op, trans, view_node};

const ONE: NodeId = NodeId(1);
const LAST: i64 = 6;
/// Transactions that have the row one after the other; each waits in the row's queue before the one before it ends.
const WRITERS: u64 = 60;

/// The last node comes back, behind the others in every chain, and the primary is asked to copy.
pub fn rejoin(c: &mut Cluster, replicas: u16) {
    let last = NodeId(replicas);
    c.start(last, 2);
    c.view.nodes[usize::from(replicas) - 1] = view_node(last, 2, NodeState::Recovering);
    let nodes: Vec<NodeId> = (1..=replicas).map(NodeId).collect();
    c.view.chains = vec![Chain::new(&nodes).0; 4];
    c.commit_view();
    for partition in (0..4).map(PartitionId) {
        let mut body = Vec::new();
        CopyFrag { generation: c.view.generation, partition }.encode(&mut body);
        c.tell(ONE, BlockId::Ldm, Kind::CopyFragReq, &body);
    }
}

/// There is no moment at which nobody holds the row, so a copy that comes by now and then never finds it free.
#[test]
fn a_row_that_writers_queue_for_is_copied() {
    for seed in 1..=super::seeds(60) {
        println!("seed {seed}");
        let replicas = 2 + (seed % 2) as u16;
        let mut c = Cluster::new(seed, replicas);
        for id in 0..=LAST {
            assert!(matches!(c.auto(ONE, 1 + id as u64, op(OpKind::Insert, id, 100)), Answer::Batch { .. }));
        }
        c.kill(NodeId(replicas));
        c.remove(&[NodeId(replicas)]);
        c.view.chains = vec![Chain::new(&(1..replicas).map(NodeId).collect::<Vec<_>>()).0; 4];
        c.commit_view();
        c.quiesce();
        let kind = |n: u64| if n.is_multiple_of(5) { OpKind::ReadExclusive } else { OpKind::Update };
        let begin = |c: &mut Cluster, n: u64| {
            // Every third ends with its statement.
            let flags = START | if n % 3 == 1 && !n.is_multiple_of(5) { COMMIT } else { 0 };
            c.batch(ONE, trans(100 + n), flags, 1, &[op(kind(n), LAST, 1)])
        };
        let mut value = 100;
        let mut open = begin(&mut c, 0);
        c.quiesce();
        rejoin(&mut c, replicas);
        for n in 0..WRITERS {
            let next = begin(&mut c, n + 1);
            c.advance(1_000_000, 30);
            let answer = c.wait(open);
            let Answer::Batch { committed, .. } = answer else { panic!("seed {seed}: {answer:?}") };
            let commits = committed || n % 4 < 2;
            if !committed {
                let end = if commits { Kind::TcCommitReq } else { Kind::TcRollbackReq };
                let end = c.end(ONE, end, trans(100 + n), 0);
                c.wait(end);
            }
            value += i64::from(commits && kind(n) == OpKind::Update);
            open = next;
        }
        c.wait(open);
        let dump = c.dump();
        assert!(!dump.lines().any(|l| l.contains("1 copy jobs")), "seed {seed}: the row is not copied\n{dump}");
        let end = c.end(ONE, Kind::TcRollbackReq, trans(100 + WRITERS), 0);
        c.wait(end);
        c.view.nodes[usize::from(replicas) - 1] = view_node(NodeId(replicas), 2, NodeState::Up);
        c.commit_view();
        c.quiesce();
        let mut expected = vec![Some(100); LAST as usize];
        expected.push(Some(value));
        for node in (1..=replicas).map(NodeId) {
            assert_eq!(c.values(node, &(0..=LAST).collect::<Vec<_>>()), expected, "seed {seed}: {node}");
        }
        assert!(!c.dump().contains("  transaction "), "seed {seed}: records are left\n{}", c.dump());
        c.workers.values().for_each(|worker| worker.verify().expect("replicas are in order"));
    }
}

/// Of two that have locked a row since before the node came back, one does something now and then. The other one must not keep the node from its rows.
#[test]
fn an_idle_transaction_does_not_hold_up_a_recovery() {
    for seed in 1..=super::seeds(6) {
        let replicas = 2 + (seed % 2) as u16;
        let mut c = Cluster::new(seed, replicas);
        for id in 0..=LAST {
            assert!(matches!(c.auto(ONE, 1 + id as u64, op(OpKind::Insert, id, 100)), Answer::Batch { .. }));
        }
        c.kill(NodeId(replicas));
        c.remove(&[NodeId(replicas)]);
        c.view.chains = vec![Chain::new(&(1..replicas).map(NodeId).collect::<Vec<_>>()).0; 4];
        c.commit_view();
        c.quiesce();
        let kind = [OpKind::Update, OpKind::ReadExclusive][seed as usize / 2 % 2];
        let (idle, busy) = (trans(100), trans(101));
        for (id, row) in [(idle, 1), (busy, 2)] {
            let begun = c.batch(ONE, id, START, 1, &[op(kind, row, 7)]);
            assert!(matches!(c.wait(begun), Answer::Batch { committed: false, .. }));
        }
        rejoin(&mut c, replicas);
        let copies =
            |c: &Cluster| c.dump().lines().filter(|l| l.contains(" copy jobs") && !l.contains(" 0 copy jobs")).count();
        let mut savepoint = 1;
        for second in 0..20 {
            (0..250).for_each(|_| c.advance(4_000_000, 40));
            savepoint += 1;
            let next = c.batch(ONE, busy, 0, savepoint, &[op(OpKind::ReadShared, 3, 0)]);
            assert!(matches!(c.wait(next), Answer::Batch { committed: false, .. }), "seed {seed}, {second} s");
            if second == 3 {
                assert!(
                    copies(&c) > 0 && c.dump().contains(&idle.to_string()),
                    "seed {seed}: not so soon\n{}",
                    c.dump()
                );
            }
        }
        assert!(!c.dump().contains(&idle.to_string()), "seed {seed}: it is still open\n{}", c.dump());
        let late = c.end(ONE, Kind::TcCommitReq, idle, 0);
        let answer = c.wait(late);
        assert!(matches!(answer, Answer::Refused { aborted: true, .. }), "seed {seed}: {answer:?}");
        let end = c.end(ONE, Kind::TcCommitReq, busy, 0);
        assert_eq!(c.wait(end), Answer::Committed);
        (0..100).for_each(|_| c.advance(4_000_000, 40));
        c.quiesce();
        assert!(copies(&c) == 0, "seed {seed}: not all is copied\n{}", c.dump());
    }
}

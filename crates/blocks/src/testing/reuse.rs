//! A client that gives one id to several transactions, at several coordinators or at one: it harms nobody but itself.

use apus_signal::{
    Kind,
    tc::{COMMIT, OpKind, START},
};
use apus_types::{ErrorCode, NodeId, TransId};

use super::{Answer, Cluster, Rng, TestOp, op, seeds, trans};

const ROWS: i64 = 12;

fn filled(seed: u64, replicas: u16) -> Cluster {
    let mut c = Cluster::new(seed, replicas);
    for id in 0..ROWS {
        let answer = c.auto(NodeId(1), 1000 + id as u64, TestOp { u: Some(id), ..op(OpKind::Insert, id, 0) });
        assert!(matches!(answer, Answer::Batch { committed: true, .. }), "{answer:?}");
    }
    c
}

/// One request, whatever becomes of it.
fn request(c: &mut Cluster, random: &mut Rng, nodes: &[NodeId]) -> u64 {
    let node = nodes[random.below(nodes.len())];
    let id = trans(2000 + random.below(2) as u64);
    let ops = |random: &mut Rng| -> Vec<TestOp> {
        let kind = [OpKind::Update, OpKind::Update, OpKind::ReadExclusive, OpKind::ReadShared];
        (0..1 + random.below(4)).map(|_| op(kind[random.below(4)], random.below(ROWS as usize) as i64, 1)).collect()
    };
    match random.below(8) {
        0 | 1 => c.batch(node, id, START | COMMIT, 0, &ops(random)),
        2..=4 => c.batch(node, id, START, 1 + random.below(2) as u32, &ops(random)),
        5 => c.batch(node, id, if random.below(2) == 0 { 0 } else { COMMIT }, 2, &ops(random)),
        6 => c.end(node, Kind::TcCommitReq, id, 0),
        _ => c.end(node, Kind::TcRollbackReq, id, random.below(3) as u32),
    }
}

/// All that the id is open as is rolled back; then nothing is left, everything is counted, and rows can be changed.
fn check_rest(c: &mut Cluster, nodes: &[NodeId], context: &str) {
    for _ in 0..4 {
        for &node in nodes {
            for n in 0..2 {
                c.end(node, Kind::TcRollbackReq, trans(2000 + n), 0);
            }
        }
        (0..5).for_each(|_| c.pass(100));
    }
    assert!(!c.dump().contains("  transaction "), "{context}: records are left\n{}", c.dump());
    c.workers.values().for_each(|worker| worker.verify().unwrap_or_else(|what| panic!("{context}: {what}")));
    for id in 0..ROWS {
        let answer = c.auto(nodes[0], 5000 + id as u64, op(OpKind::Update, id, 1));
        assert!(matches!(answer, Answer::Batch { committed: true, .. }), "{context}, row {id}: {answer:?}");
    }
    c.quiesce();
    let ids: Vec<i64> = (0..ROWS).collect();
    let values = c.values(nodes[0], &ids);
    nodes.iter().for_each(|&node| assert_eq!(c.values(node, &ids), values, "{context}: node {node}"));
}

#[test]
fn an_id_that_is_used_at_random_harms_nobody() {
    let mut refused = 0;
    for seed in 1..=seeds(300) {
        let replicas = 2 + (seed % 3) as u16;
        let mut c = filled(seed, replicas);
        let mut random = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut nodes: Vec<NodeId> = (1..=replicas).map(NodeId).collect();
        let dies = seed.is_multiple_of(2).then(|| random.below(60));
        let mut requests = Vec::new();
        for n in 0..60 {
            requests.push(request(&mut c, &mut random, &nodes));
            (0..random.below(60)).for_each(|_| _ = c.step());
            if dies == Some(n) && replicas > 2 {
                let dead = nodes.remove(random.below(nodes.len()));
                c.kill(dead);
                c.remove(&[dead]);
            }
        }
        (0..5).for_each(|_| c.pass(50));
        let is_refusal =
            |a: &&Answer| matches!(a, Answer::Refused { code: ErrorCode::TransactionIdUsed, aborted: true, .. });
        refused += requests.iter().filter_map(|r| c.answers.get(r)).filter(is_refusal).count();
        check_rest(&mut c, &nodes, &format!("seed {seed}"));
    }
    assert!(refused > 0, "no id was found to be used twice");
}

/// The first one goes on as if nobody else had used its id.
#[test]
fn the_second_coordinator_is_refused_and_the_first_one_commits() {
    for seed in 1..=seeds(40) {
        let mut c = filled(seed, 2);
        let (one, two, id) = (NodeId(1), NodeId(2), TransId { seq: 7, ..trans(0) });
        let first = c.batch(one, id, START, 1, &[op(OpKind::Update, 1, 5)]);
        assert!(matches!(c.wait(first), Answer::Batch { committed: false, .. }));
        let second = c.batch(two, id, START, 1, &[op(OpKind::Update, 1, 70)]);
        let answer = c.wait(second);
        let is_refused = matches!(answer, Answer::Refused { code: ErrorCode::TransactionIdUsed, aborted: true, .. });
        assert!(is_refused, "seed {seed}: {answer:?}");
        let commit = c.end(one, Kind::TcCommitReq, id, 0);
        assert_eq!(c.wait(commit), Answer::Committed);
        let again = c.batch(one, id, START | COMMIT, 1, &[op(OpKind::Update, 1, 70)]);
        let answer = c.wait(again);
        let is_refused = matches!(answer, Answer::Refused { code: ErrorCode::TransactionIdUsed, aborted: true, .. });
        assert!(is_refused, "seed {seed}, after its commit: {answer:?}");
        c.quiesce();
        assert_eq!(c.values(two, &[1]), [Some(5)], "seed {seed}");
    }
}

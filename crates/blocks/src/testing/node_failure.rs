//! Node failures under load: nothing acknowledged is lost, nothing half done stays, replicas end up equal.

use std::collections::BTreeMap;

use apus_signal::{
    BlockId, Kind,
    copy::CopyFrag,
    tc::{COMMIT, OpKind, Outcome, START, TcOutcomeConf, TcOutcomeReq},
    view::NodeState,
};
use apus_types::{Chain, ErrorCode, NodeId, PartitionId, hash::hash_key};

use super::{Answer, Cluster, op, trans, view_node};

pub const ACCOUNTS: i64 = 12;

/// One transfer under way: (request, coordinator, from, to, amount).
pub struct Transfer {
    request: u64,
    node: NodeId,
    seq: u64,
    from: i64,
    to: i64,
    amount: i64,
}

pub struct Bank {
    pub c: Cluster,
    pub balances: BTreeMap<i64, i64>,
    pub open: Vec<Transfer>,
    next_seq: u64,
    acknowledged: usize,
}

impl Bank {
    pub fn new(seed: u64, replicas: u16) -> Bank {
        let mut c = Cluster::new(seed, replicas);
        for id in 0..ACCOUNTS {
            let answer = c.auto(NodeId(1), id as u64 + 1, op(OpKind::Insert, id, 1000));
            assert!(matches!(answer, Answer::Batch { committed: true, .. }), "{answer:?}");
        }
        let balances = (0..ACCOUNTS).map(|id| (id, 1000)).collect();
        Bank { c, balances, open: Vec::new(), next_seq: 1000, acknowledged: 0 }
    }

    pub fn start_some(&mut self, count: usize) {
        let nodes: Vec<NodeId> =
            self.c.view.living().filter(|n| n.state() == NodeState::Up).map(|n| n.node()).collect();
        for _ in 0..count {
            let (from, to) = (self.c.rng.below(12) as i64, self.c.rng.below(12) as i64);
            let amount = 1 + self.c.rng.below(50) as i64;
            let node = nodes[self.c.rng.below(nodes.len())];
            if from == to || !self.c.workers.contains_key(&node) {
                continue;
            }
            self.next_seq += 1;
            let ops = if self.c.rng.below(3) == 0 {
                vec![op(OpKind::Update, from, 0)]
            } else {
                vec![
                    op(OpKind::Update, from.min(to), sign(from < to) * amount),
                    op(OpKind::Update, from.max(to), sign(to < from) * amount),
                ]
            };
            let amount = if ops.len() == 1 { 0 } else { amount };
            let request = self.c.batch(node, trans(self.next_seq), START | COMMIT, 1, &ops);
            self.open.push(Transfer { request, node, seq: self.next_seq, from, to, amount });
        }
    }

    fn apply(&mut self, t: &Transfer) {
        self.acknowledged += 1;
        *self.balances.entry(t.from).or_default() -= t.amount;
        *self.balances.entry(t.to).or_default() += t.amount;
    }

    /// Takes the answers that have come.
    pub fn settle(&mut self) {
        for t in std::mem::take(&mut self.open) {
            match self.c.answers.remove(&t.request) {
                Some(Answer::Batch { committed: true, .. }) => self.apply(&t),
                Some(Answer::Refused { code, aborted, .. }) => {
                    assert!(aborted, "autocommit refused with {code} and not rolled back");
                    let expected = matches!(
                        code,
                        ErrorCode::NodeFailed | ErrorCode::Deadlock | ErrorCode::LockTimeout | ErrorCode::NodeStarting
                    );
                    assert!(expected, "unexpected refusal {code}");
                }
                Some(other) => panic!("unexpected answer {other:?}"),
                None => self.open.push(t),
            }
        }
    }

    /// Transfers whose coordinator died: ask the survivors, as the client does.
    pub fn ask_outcomes(&mut self, dead: &[NodeId]) {
        for t in std::mem::take(&mut self.open) {
            if !dead.contains(&t.node) {
                self.open.push(t);
                continue;
            }
            if let Some(answer) = self.c.answers.remove(&t.request) {
                assert!(matches!(answer, Answer::Batch { committed: true, .. } | Answer::Refused { .. }));
                if matches!(answer, Answer::Batch { .. }) {
                    self.apply(&t);
                }
                continue;
            }
            for _ in 0..1000 {
                let survivor = *self.c.workers.keys().next().expect("a survivor");
                let request = self.c.request(survivor, BlockId::Tc, Kind::TcOutcomeReq, |out, request| {
                    TcOutcomeReq { request, trans: trans(t.seq), tc_node: t.node, tc_incarnation: 1, age_ms: 0 }
                        .encode(out);
                });
                let Answer::Other(Kind::TcOutcomeConf, body) = self.c.wait(request) else { panic!("no outcome") };
                match TcOutcomeConf::decode(&body).expect("outcome").outcome {
                    Outcome::Committed => self.apply(&t),
                    Outcome::Aborted => {}
                    _ => continue,
                }
                break;
            }
        }
    }

    pub fn finish(&mut self, context: &str) {
        for _ in 0..400 {
            self.settle();
            if self.open.is_empty() {
                break;
            }
            self.c.pass(5);
        }
        assert!(self.open.is_empty(), "{context}: {} transfers are never answered\n{}", self.open.len(), self.c.dump());
        self.c.quiesce();
        assert!(!self.c.dump().contains("  transaction "), "{context}: records are left\n{}", self.c.dump());
        let nodes: Vec<NodeId> =
            self.c.view.living().filter(|n| n.state() == NodeState::Up).map(|n| n.node()).collect();
        for node in nodes {
            for (id, balance) in self.c.values(node, &(0..ACCOUNTS).collect::<Vec<_>>()).into_iter().enumerate() {
                assert_eq!(balance, self.balances.get(&(id as i64)).copied(), "{context}: account {id} at node {node}");
            }
        }
        for worker in self.c.workers.values() {
            worker.verify().expect(context);
        }
    }
}

fn sign(minus: bool) -> i64 {
    if minus { -1 } else { 1 }
}

#[test]
fn one_node_dies_under_load() {
    for seed in 1..=super::seeds(150) {
        let replicas = 2 + (seed % 3) as u16;
        println!("seed {seed}");
        let mut bank = Bank::new(seed, replicas);
        bank.start_some(30);
        for _ in 0..bank.c.rng.below(400) {
            bank.c.step();
        }
        bank.settle();
        let dead = NodeId(1 + bank.c.rng.below(usize::from(replicas)) as u16);
        bank.c.kill(dead);
        for _ in 0..bank.c.rng.below(100) {
            bank.c.step();
        }
        bank.c.remove(&[dead]);
        bank.ask_outcomes(&[dead]);
        bank.start_some(10);
        bank.finish(&format!("seed {seed}, {replicas} replicas, node {dead} died"));
        assert!(bank.acknowledged > 0);
    }
}

#[test]
fn two_nodes_die_one_during_the_others_take_over() {
    for seed in 1..=super::seeds(100) {
        let replicas = 3 + (seed % 2) as u16;
        println!("seed {seed}");
        let mut bank = Bank::new(seed, replicas);
        bank.start_some(30);
        for _ in 0..bank.c.rng.below(400) {
            bank.c.step();
        }
        bank.settle();
        let first = NodeId(1 + bank.c.rng.below(usize::from(replicas)) as u16);
        let second = NodeId(1 + first.0 % replicas);
        bank.c.kill(first);
        bank.c.remove(&[first]);
        for _ in 0..bank.c.rng.below(60) {
            bank.c.step();
        }
        bank.settle();
        bank.c.kill(second);
        bank.c.remove(&[second]);
        bank.ask_outcomes(&[first, second]);
        bank.finish(&format!("seed {seed}, {replicas} replicas, nodes {first} and {second} died"));
    }
}

#[test]
fn a_node_rejoins_while_traffic_goes_on() {
    for seed in 1..=super::seeds(100) {
        println!("seed {seed}");
        let mut bank = Bank::new(seed, 2);
        bank.start_some(20);
        bank.c.kill(NodeId(2));
        bank.c.remove(&[NodeId(2)]);
        bank.ask_outcomes(&[NodeId(2)]);
        bank.start_some(20);
        for _ in 0..bank.c.rng.below(100) {
            bank.c.step();
        }
        bank.c.start(NodeId(2), 2);
        bank.c.view.nodes[1] = view_node(NodeId(2), 2, NodeState::Recovering);
        for chain in &mut bank.c.view.chains {
            *chain = Chain::new(&[NodeId(1), NodeId(2)]).0;
        }
        bank.start_some(10);
        bank.c.commit_view();
        let generation = bank.c.view.generation;
        for partition in 0..4 {
            let mut body = Vec::new();
            CopyFrag { generation, partition: PartitionId(partition) }.encode(&mut body);
            bank.c.tell(NodeId(1), BlockId::Ldm, Kind::CopyFragReq, &body);
        }
        bank.start_some(20);
        for _ in 0..bank.c.rng.below(300) {
            bank.c.step();
        }
        bank.settle();
        bank.start_some(20);
        bank.c.pass(20);
        bank.c.view.nodes[1] = view_node(NodeId(2), 2, NodeState::Up);
        bank.c.commit_view();
        bank.start_some(10);
        bank.finish(&format!("seed {seed}"));
    }
}

/// A rollback to a savepoint is under way as a backup dies, so it is sent again; the commit follows as soon as the client may send it.
/// The confirmation of the first rollback must not let the commit overtake the second (simulator seed 40003578).
#[test]
fn a_commit_does_not_overtake_a_rollback_that_was_sent_again() {
    let (tc, dead) = (NodeId(1), NodeId(3));
    for seed in 1..=super::seeds(2000) {
        println!("seed {seed}");
        let mut c = Cluster::new(seed, 3);
        let primary = |id: &i64| c.view.chain(c.view.partition_of(hash_key(&c.key(*id)))).primary();
        // The rollback comes to TC's node, the last, by way of another; the commit goes there at once.
        let ids: Vec<i64> = (0..64).filter(|id| primary(id) == Some(NodeId(2))).take(8).collect();
        let (kept, undone) = ids.split_at(4);
        for (savepoint, flags, ids) in [(1, START, kept), (2, 0, undone)] {
            let ops: Vec<_> = ids.iter().map(|id| op(OpKind::Insert, *id, 1)).collect();
            let request = c.batch(tc, trans(1), flags, savepoint, &ops);
            let answer = c.wait(request);
            assert!(matches!(answer, Answer::Batch { .. }), "{answer:?}");
        }
        c.quiesce();
        let rollback = c.end(tc, Kind::TcRollbackReq, trans(1), 2);
        for _ in 0..c.rng.below(80) {
            c.step();
        }
        c.kill(dead);
        c.remove(&[dead]);
        assert_eq!(c.wait(rollback), Answer::RolledBack);
        let commit = c.end(tc, Kind::TcCommitReq, trans(1), 0);
        assert_eq!(c.wait(commit), Answer::Committed);
        c.quiesce();
        for node in [NodeId(1), NodeId(2)] {
            let expected: Vec<Option<i64>> = ids.iter().map(|id| kept.contains(id).then_some(1)).collect();
            assert_eq!(c.values(node, &ids), expected, "seed {seed}, node {node}");
        }
        assert!(!c.dump().contains("  transaction "), "seed {seed}: records are left\n{}", c.dump());
    }
}

/// A backup has refused a batch that is committed on its way, and the replica behind it dies: being the last one now is no reason to
/// commit (simulator seed 100011352).
#[test]
fn a_refused_one_pass_batch_is_not_committed_in_a_new_view() {
    for seed in 1..=super::seeds(500) {
        let mut c = Cluster::new(seed, 3);
        let chain = |id: &i64| c.view.chain(c.view.partition_of(hash_key(&c.key(*id))));
        let id = (0..64).find(|id| chain(id).node(1) == Some(NodeId(2))).expect("node 2 is in the middle of a chain");
        let dead = chain(&id).node(2).expect("three replicas");
        let tc = NodeId(1 + (seed % 2) as u16);
        c.workers.get_mut(&NodeId(2)).expect("runs").arm_fault("ldm.refuse_prepare", apus_kernel::FaultRule::ONCE);
        let request = c.batch(tc, trans(1), START | COMMIT, 1, &[op(OpKind::Insert, id, 1)]);
        for _ in 0..c.rng.below(60) {
            c.step();
        }
        c.kill(dead);
        c.remove(&[dead]);
        let is_committed = matches!(c.wait(request), Answer::Batch { committed: true, .. });
        c.quiesce();
        for node in [NodeId(1), NodeId(2)] {
            assert_eq!(c.values(node, &[id]), [is_committed.then_some(1)], "seed {seed}, node {node}");
        }
        c.workers.values().for_each(|worker| worker.verify().expect("replicas are in order"));
        assert!(!c.dump().contains("  transaction "), "seed {seed}: records are left\n{}", c.dump());
    }
}

/// A transaction has a row on two chains when a node dies between its statements. What the second chain has of it may be at the primary
/// alone, if the statement was refused there, and what the first has, if that only locked it. Whatever the replicas know of it, on
/// both or on one, the lock is given back at the primary last (simulator seeds 110008493 and 96).
#[test]
fn a_row_on_two_chains_ends_at_the_primary_last() {
    for seed in 1..=super::seeds(800) {
        // The refused batch is a later statement, or goes on with the first; it changes the row itself, or comes after one that did.
        let (savepoint, only_locks, in_one) = (1 + (seed % 2) as u32, seed & 2 != 0, seed & 4 != 0);
        let mut c = Cluster::new(seed, 4);
        let chain = |id: &i64| c.view.chain(c.view.partition_of(hash_key(&c.key(*id))));
        let ids: Vec<i64> = (0..64).filter(|id| chain(id).nodes().eq((1..=4).map(NodeId))).take(2).collect();
        let (row, taken) = (ids[0], ids[1]);
        c.auto(NodeId(1), 1, op(OpKind::Insert, taken, 0));
        c.auto(NodeId(1), 2, op(OpKind::Insert, row, 100));
        let first = if only_locks { op(OpKind::ReadExclusive, row, 0) } else { op(OpKind::Update, row, 10) };
        let first = c.batch(NodeId(3), trans(3), START, 1, &[first]);
        assert!(matches!(c.wait(first), Answer::Batch { .. }));
        c.quiesce();
        c.kill(NodeId(4));
        c.remove(&[NodeId(4)]);
        c.quiesce();
        let second = [op(OpKind::Update, row, 5), op(OpKind::Insert, taken, 0)];
        if !in_one {
            let second = c.batch(NodeId(3), trans(3), 0, savepoint, &second[..1]);
            assert!(matches!(c.wait(second), Answer::Batch { .. }));
        }
        let refused = c.batch(NodeId(3), trans(3), 0, savepoint, if in_one { &second } else { &second[1..] });
        let answer = c.wait(refused);
        assert!(matches!(answer, Answer::Refused { code: ErrorCode::DuplicateKey, aborted: false, .. }), "{answer:?}");
        let next = c.batch(NodeId(2), trans(4), START | COMMIT, 1, &[op(OpKind::Update, row, 1)]);
        c.advance(0, 200);
        let is_commit = seed & 8 == 0;
        let (kind, answer) = match is_commit {
            true => (Kind::TcCommitReq, Answer::Committed),
            false => (Kind::TcRollbackReq, Answer::RolledBack),
        };
        let end = c.end(NodeId(3), kind, trans(3), 0);
        assert_eq!(c.wait(end), answer);
        assert!(matches!(c.wait(next), Answer::Batch { committed: true, .. }));
        c.quiesce();
        let expected = if is_commit && !only_locks && savepoint == 2 { 111 } else { 101 };
        for node in (1..=3).map(NodeId) {
            assert_eq!(c.values(node, &[row]), [Some(expected)], "seed {seed}, node {node}");
        }
        assert!(!c.dump().contains("  transaction "), "seed {seed}: records are left\n{}", c.dump());
        c.workers.values().for_each(|worker| worker.verify().expect("replicas are in order"));
    }
}

//! Snapshots of a bank while transfers run and nodes die and come back: whole transactions, everything acknowledged before, equal on every
//! replica, and nothing kept for longer than needed.

use apus_signal::{BlockId, Kind, copy::CopyFrag, tc::OpKind, view::NodeState};
use apus_types::{Chain, Epoch, ErrorCode, NodeId, PartitionId, TransId};

use super::{
    Answer, Cluster,
    node_failure::{ACCOUNTS, Bank},
    op, trans, view_node,
};

/// More transfers on so few accounts are busier with deadlocks than with commits.
const OPEN_MAX: usize = 25;
const ALL: std::ops::Range<i64> = 0..ACCOUNTS;

struct Snapshot {
    node: NodeId,
    request: u64,
    epoch: Option<Epoch>,
    /// As every replica must show them.
    balances: Option<Vec<i64>>,
    /// Its node has died: it may be refused as too old.
    orphan: bool,
}

struct Auditor {
    bank: Bank,
    snapshots: Vec<Snapshot>,
    /// A node that came back and may send us to others.
    newcomer: Option<NodeId>,
    read: u64,
    refused: u64,
}

impl Auditor {
    fn new(seed: u64, replicas: u16) -> Auditor {
        Auditor { bank: Bank::new(seed, replicas), snapshots: Vec::new(), newcomer: None, read: 0, refused: 0 }
    }
    fn up(&self) -> Vec<NodeId> {
        let view = &self.bank.c.view;
        let up = view.living().filter(|n| n.state() == NodeState::Up).map(|n| n.node());
        up.filter(|n| self.bank.c.workers.contains_key(n)).collect()
    }
    fn take_snapshot(&mut self) {
        let up = self.up();
        let node = up[self.bank.c.rng.below(up.len())];
        let request = self.bank.c.snapshot(node);
        self.snapshots.push(Snapshot { node, request, epoch: None, balances: None, orphan: false });
    }
    /// Some steps of everything, then a read of each snapshot somewhere.
    fn go_on(&mut self, rounds: usize) {
        for _ in 0..rounds {
            if self.bank.c.rng.below(3) == 0 {
                self.take_snapshot();
            }
            if self.bank.open.len() < OPEN_MAX {
                self.bank.start_some(3);
            }
            let steps = self.bank.c.rng.below(60);
            self.bank.c.advance(300_000, steps);
            self.bank.settle();
            let up = self.up();
            for i in 0..self.snapshots.len() {
                let node = up[self.bank.c.rng.below(up.len())];
                self.check(i, node);
            }
            if self.bank.c.rng.below(4) == 0 && !self.snapshots.is_empty() {
                let i = self.bank.c.rng.below(self.snapshots.len());
                let ended = self.snapshots.swap_remove(i);
                self.bank.c.end_snapshot(ended.node, ended.request);
            }
        }
    }
    fn check(&mut self, i: usize, node: NodeId) {
        let snapshot = &mut self.snapshots[i];
        if snapshot.epoch.is_none() {
            match self.bank.c.answers.remove(&snapshot.request) {
                Some(Answer::Snapshot(epoch)) => snapshot.epoch = Some(epoch),
                None => return,
                Some(Answer::Refused { code: ErrorCode::NodeStarting, .. }) => return, // it has not heard yet that it is up
                Some(other) => panic!("{other:?} instead of a snapshot"),
            }
        }
        let Some(epoch) = snapshot.epoch else { return };
        let request = self.bank.c.read_at(node, TransId::NONE, epoch, &ALL.collect::<Vec<_>>());
        let answer = self.bank.c.wait(request);
        let snapshot = &mut self.snapshots[i];
        match answer {
            Answer::Rows(rows) => {
                let balances: Vec<i64> =
                    rows.iter().map(|r| self.bank.c.value(r.as_ref().expect("an account"))).collect();
                assert_eq!(balances.iter().sum::<i64>(), 1000 * ACCOUNTS, "{balances:?} at {epoch}, node {node}");
                let first = snapshot.balances.get_or_insert_with(|| balances.clone());
                assert_eq!(*first, balances, "at {epoch}, node {node}");
                self.read += 1;
            }
            Answer::Refused { code: ErrorCode::SnapshotTooOld, .. } if snapshot.orphan => self.refused += 1,
            Answer::Refused { code: ErrorCode::SnapshotElsewhere, .. } if self.newcomer == Some(node) => {
                self.refused += 1;
            }
            other => panic!("snapshot {epoch} at node {node}: {other:?}\n{}", self.bank.c.dump()),
        }
    }
    fn orphan(&mut self, dead: NodeId) {
        self.snapshots.retain_mut(|s| {
            s.orphan |= s.node == dead;
            !s.orphan || s.epoch.is_some()
        });
    }
    /// Everything comes to rest; a snapshot of now shows what the tellers know; what is not held is not kept.
    fn finish(mut self, context: &str) -> u64 {
        self.bank.finish(context);
        let expected: Vec<i64> = self.bank.balances.values().copied().collect();
        for node in self.up() {
            let request = self.bank.c.snapshot(node);
            let Answer::Snapshot(epoch) = self.bank.c.wait(request) else { panic!("{context}: no snapshot") };
            for other in self.up() {
                let read = self.bank.c.read_at(other, TransId::NONE, epoch, &ALL.collect::<Vec<_>>());
                let Answer::Rows(rows) = self.bank.c.wait(read) else { panic!("{context}: no rows at node {other}") };
                let balances: Vec<i64> = rows.iter().flatten().map(|r| self.bank.c.value(r)).collect();
                assert_eq!(balances, expected, "{context}: {epoch} at node {other}");
            }
            self.bank.c.end_snapshot(node, request);
        }
        for s in std::mem::take(&mut self.snapshots) {
            self.bank.c.end_snapshot(s.node, s.request);
        }
        for _ in 0..10 {
            self.bank.c.pass(10);
        }
        let dump = self.bank.c.dump();
        assert!(!dump.contains("kept: [("), "{context}: old versions are left\n{dump}");
        for worker in self.bank.c.workers.values() {
            worker.verify().expect(context);
        }
        self.read
    }
}

#[test]
fn snapshots_are_whole_and_equal_on_every_replica() {
    let mut read = 0;
    for seed in 1..=super::seeds(60) {
        println!("seed {seed}");
        let mut auditor = Auditor::new(seed, 1 + (seed % 4) as u16);
        auditor.go_on(40);
        read += auditor.finish(&format!("seed {seed}"));
    }
    assert!(read > 1000, "{read} snapshots read");
}

#[test]
fn snapshots_survive_the_death_of_nodes() {
    let mut read = 0;
    for seed in 1..=super::seeds(150) {
        println!("seed {seed}");
        let replicas = 2 + (seed % 3) as u16;
        let mut auditor = Auditor::new(seed, replicas);
        auditor.go_on(20);
        let dead = NodeId(1 + auditor.bank.c.rng.below(usize::from(replicas)) as u16);
        auditor.bank.start_some(20);
        for _ in 0..auditor.bank.c.rng.below(200) {
            auditor.bank.c.step();
        }
        auditor.bank.settle();
        auditor.bank.c.kill(dead);
        for _ in 0..auditor.bank.c.rng.below(100) {
            auditor.bank.c.step();
        }
        auditor.orphan(dead);
        auditor.bank.c.remove(&[dead]);
        auditor.go_on(8);
        auditor.bank.ask_outcomes(&[dead]);
        auditor.go_on(8);
        read += auditor.finish(&format!("seed {seed}, {replicas} replicas, node {dead} died"));
    }
    assert!(read > 1000, "{read} snapshots read");
}

#[test]
fn a_node_that_comes_back_shows_whole_snapshots_or_none() {
    for seed in 1..=super::seeds(80) {
        println!("seed {seed}");
        let mut auditor = Auditor::new(seed, 2);
        auditor.go_on(5);
        let dead = NodeId(1 + (seed % 2) as u16);
        let other = NodeId(3 - dead.0);
        auditor.bank.c.kill(dead);
        auditor.orphan(dead);
        auditor.bank.c.remove(&[dead]);
        auditor.bank.ask_outcomes(&[dead]);
        auditor.go_on(5);
        let c = &mut auditor.bank.c;
        c.start(dead, 2);
        c.view.nodes[usize::from(dead.0) - 1] = view_node(dead, 2, NodeState::Recovering);
        for chain in &mut c.view.chains {
            *chain = Chain::new(&[other, dead]).0;
        }
        c.commit_view();
        let generation = c.view.generation;
        for partition in 0..4 {
            let mut body = Vec::new();
            CopyFrag { generation, partition: PartitionId(partition) }.encode(&mut body);
            c.tell(other, BlockId::Ldm, Kind::CopyFragReq, &body);
        }
        auditor.go_on(5);
        auditor.bank.c.pass(20);
        let c = &mut auditor.bank.c;
        c.view.nodes[usize::from(dead.0) - 1] = view_node(dead, 2, NodeState::Up);
        if seed % 3 == 0 {
            for chain in c.view.chains.iter_mut().step_by(2) {
                *chain = Chain::new(&[dead, other]).0;
            }
        }
        c.commit_view();
        auditor.newcomer = Some(dead);
        auditor.go_on(20);
        auditor.finish(&format!("seed {seed}"));
    }
}

#[test]
fn a_transaction_sees_its_own_changes_in_front_of_its_snapshot() {
    let node = NodeId(1);
    let mut c = Cluster::new(3, 2);
    for id in 0..3 {
        c.auto(node, id as u64 + 1, op(OpKind::Insert, id, 100));
    }
    let request = c.snapshot(node);
    let Answer::Snapshot(epoch) = c.wait(request) else { panic!("no snapshot") };
    c.auto(node, 10, op(OpKind::Update, 0, 5));
    c.auto(node, 11, op(OpKind::Delete, 1, 0));
    c.auto(node, 12, op(OpKind::Insert, 7, 1));
    let batch = c.batch(node, trans(20), apus_signal::tc::START, 1, &[op(OpKind::Update, 2, 11)]);
    c.wait(batch);
    c.quiesce();
    let values = |c: &mut Cluster, node, t, epoch| {
        let request = c.read_at(node, t, epoch, &[0, 1, 2, 7]);
        match c.wait(request) {
            Answer::Rows(rows) => rows.iter().map(|r| r.as_ref().map(|r| c.value(r))).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    // All chains of partition 0 begin at node 1 only for some keys: the transaction asks each key's primary, as the client does.
    let mut own = Vec::new();
    for id in [0, 1, 2, 7] {
        let partition = c.view.partition_of(apus_types::hash::hash_key(&c.key(id)));
        let primary = c.view.chain(partition).primary().expect("a primary");
        let request = c.read_at(primary, trans(20), epoch, &[id]);
        let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
        own.push(rows[0].as_ref().map(|r| c.value(r)));
    }
    assert_eq!(own, [Some(100), Some(100), Some(111), None]);
    for node in [NodeId(1), NodeId(2)] {
        assert_eq!(values(&mut c, node, TransId::NONE, epoch), [Some(100), Some(100), Some(100), None]);
        assert_eq!(values(&mut c, node, TransId::NONE, Epoch(0)), [Some(105), None, Some(100), Some(1)]);
    }
}

#[test]
fn nothing_is_kept_while_nobody_reads_at_an_epoch() {
    let mut c = Cluster::new(3, 2); // versions linger for no time
    let keeps = |c: &Cluster| c.dump().contains("kept: [(");
    let show = |c: &mut Cluster, node, epoch| {
        let request = c.read_at(node, TransId::NONE, epoch, &[0]);
        match c.wait(request) {
            Answer::Rows(rows) => Ok(rows[0].as_ref().map(|row| c.value(row))),
            Answer::Refused { code, .. } => Err(code),
            other => panic!("{other:?}"),
        }
    };
    c.auto(NodeId(1), 1, op(OpKind::Insert, 0, 100));
    c.pass(100);
    for seq in 2..10 {
        c.auto(NodeId(1), seq, op(OpKind::Update, 0, 1));
        c.quiesce();
        assert!(!keeps(&c), "an old version of update {seq}\n{}", c.dump());
    }
    let request = c.snapshot(NodeId(2));
    let Answer::Snapshot(epoch) = c.wait(request) else { panic!("no snapshot") };
    c.auto(NodeId(1), 10, op(OpKind::Update, 0, 1));
    c.auto(NodeId(1), 11, op(OpKind::Delete, 0, 0));
    c.quiesce();
    assert!(keeps(&c), "nothing is kept for the snapshot");
    c.pass(200);
    for node in [NodeId(1), NodeId(2)] {
        assert_eq!(show(&mut c, node, epoch), Ok(Some(108)), "node {node}");
        assert_eq!(show(&mut c, node, Epoch(0)), Ok(None), "node {node}");
    }
    c.end_snapshot(NodeId(2), request);
    c.pass(100);
    assert!(!keeps(&c), "kept for nobody\n{}", c.dump());
    for node in [NodeId(1), NodeId(2)] {
        assert_eq!(show(&mut c, node, epoch), Err(ErrorCode::SnapshotTooOld), "node {node}");
    }
}

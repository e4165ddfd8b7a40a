//! A batch runs once, whatever way its client's question and its copies take.

use apus_signal::{
    BlockId, Kind,
    tc::{COMMIT, OpKind, Outcome, START, TcEndReq, TcOutcomeConf, TcOutcomeReq},
    view::NodeState,
};
use apus_types::{Chain, ErrorCode, NodeId, TransId};

use super::{Answer, Cluster, client, copying::rejoin, op, trans, view_node};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

fn ask(c: &mut Cluster, node: NodeId, trans: TransId, tc_node: NodeId) -> Outcome {
    ask_of_age(c, node, trans, tc_node, 1)
}

fn ask_of_age(c: &mut Cluster, node: NodeId, trans: TransId, tc_node: NodeId, age_ms: u32) -> Outcome {
    for _ in 0..1000 {
        let request = c.request(node, BlockId::Tc, Kind::TcOutcomeReq, |out, request| {
            TcOutcomeReq { request, trans, tc_node, tc_incarnation: 1, age_ms }.encode(out);
        });
        let Answer::Other(Kind::TcOutcomeConf, body) = c.wait(request) else { panic!("no outcome") };
        match TcOutcomeConf::decode(&body).expect("an outcome").outcome {
            Outcome::Open => c.pass(1),
            outcome => return outcome,
        }
    }
    Outcome::Open
}

fn value(c: &mut Cluster, id: i64) -> i64 {
    c.quiesce();
    let request = c.read(ONE, TransId::NONE, &[id]);
    let Answer::Rows(rows) = c.wait(request) else { panic!("no rows") };
    rows[0].as_ref().map_or(-1, |row| c.value(row))
}

fn is_refused(answer: &Answer, expected: ErrorCode) -> bool {
    matches!(answer, Answer::Refused { code, aborted: true, .. } if *code == expected)
}

/// The client's old link is read after its question was answered over the new one.
#[test]
fn a_batch_that_comes_after_the_question_does_not_run() {
    for seed in 1..=super::seeds(20) {
        let mut c = Cluster::new(seed, 2);
        c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
        let tc = if seed % 2 == 0 { ONE } else { TWO };
        assert_eq!(ask(&mut c, tc, trans(2), tc), Outcome::Aborted);
        let late = c.batch(tc, trans(2), START | COMMIT, 1, &[op(OpKind::Update, 1, 5)]);
        let answer = c.wait(late);
        assert!(is_refused(&answer, ErrorCode::TransactionNotFound), "seed {seed}: {answer:?}");
        assert!(matches!(c.auto(tc, 3, op(OpKind::Update, 1, 5)), Answer::Batch { committed: true, .. }));
        assert_eq!(value(&mut c, 1), 105, "seed {seed}");
    }
}

/// Question and batch race over two links: whatever is answered stays true.
#[test]
fn an_answer_stays_true_whichever_comes_first() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=super::seeds(40) {
        let mut c = Cluster::new(seed, 3);
        c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
        let request = c.batch(TWO, trans(2), START | COMMIT, 1, &[op(OpKind::Update, 1, 5)]);
        (0..seed % 12).for_each(|_| {
            c.step();
        });
        let outcome = ask(&mut c, TWO, trans(2), TWO);
        let answer = c.wait(request);
        let committed = matches!(answer, Answer::Batch { committed: true, .. });
        assert_eq!(outcome == Outcome::Committed, committed, "seed {seed}: told {outcome:?}, then {answer:?}");
        assert_eq!(value(&mut c, 1), if committed { 105 } else { 100 }, "seed {seed}");
        seen.insert(outcome as u8);
    }
    assert!(seen.contains(&(Outcome::Committed as u8)));
}

#[test]
fn a_batch_in_the_name_of_another_client_is_refused_and_a_question_is_not() {
    let mut c = Cluster::new(3, 2);
    c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
    let foreign = TransId { client: trans(0).client + 1, seq: 5 };
    let forged = c.batch(ONE, foreign, START | COMMIT, 1, &[op(OpKind::Update, 1, 5)]);
    let answer = c.wait(forged);
    assert!(is_refused(&answer, ErrorCode::ProtocolViolation), "{answer:?}");
    assert_eq!(ask(&mut c, ONE, foreign, ONE), Outcome::Aborted);
    assert_eq!(value(&mut c, 1), 100);
}

/// A client that gives up ends the wait for a lock of a batch in its one pass, and learns what became of it.
#[test]
fn a_one_pass_batch_that_is_given_up_ends_its_wait() {
    for seed in 1..=super::seeds(20) {
        let mut c = Cluster::new(seed, 2);
        let tc = if seed % 2 == 0 { ONE } else { TWO };
        c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
        let holder = c.batch(ONE, trans(2), START, 1, &[op(OpKind::Update, 1, 5)]);
        assert!(matches!(c.wait(holder), Answer::Batch { committed: false, .. }));
        // Nobody waits for its answer.
        c.batch(tc, trans(3), START | COMMIT, 1, &[op(OpKind::Update, 1, 7)]);
        c.pass(20);
        let begin = c.now;
        c.request(tc, BlockId::Tc, Kind::TcRollbackReq, |out, _| {
            TcEndReq { request: 0, trans: trans(3), savepoint: 0 }.encode(out);
        });
        assert_eq!(ask(&mut c, tc, trans(3), tc), Outcome::Aborted, "seed {seed}");
        assert!(c.now - begin < 100_000_000, "seed {seed}: its wait for the lock goes on");
        let end = c.end(ONE, Kind::TcCommitReq, trans(2), 0);
        c.wait(end);
        assert_eq!(value(&mut c, 1), 105, "seed {seed}");
    }
}

/// A worker that is behind with its job buffer knows a new link all the same before it executes what comes over it.
#[test]
fn a_new_link_is_known_before_its_first_batch() {
    let mut c = Cluster::new(5, 1);
    c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
    let (new, seq) = (NodeId(client().0 + 1), 7);
    let frame = c.batch_frame(ONE, trans(seq), START | COMMIT, &[op(OpKind::Update, 1, 5)]);
    let worker = c.workers.get_mut(&ONE).expect("it runs");
    worker.link_up(new, trans(seq).client);
    assert_eq!(worker.deliver_frames(new, &frame), Ok(frame.len()));
    assert_eq!(value(&mut c, 1), 105);
}

#[test]
fn tombstones_go_when_the_older_links_are_closed() {
    let mut c = Cluster::new(4, 2);
    let old = NodeId(client().0 + 1);
    let up = |c: &mut Cluster, node: NodeId| {
        c.workers.get_mut(&ONE).expect("it runs").link_up(node, trans(0).client);
    };
    up(&mut c, old);
    c.pass(1);
    assert_eq!(ask(&mut c, ONE, trans(9), ONE), Outcome::Aborted);
    c.pass(200);
    assert!(c.dump().contains(" 1 tombstones"), "{}", c.dump());
    c.workers.get_mut(&ONE).expect("it runs").link_down(old);
    c.pass(100);
    assert!(!c.dump().contains(" 1 tombstones"), "{}", c.dump());
}

/// The node that knew it is killed as soon as the other one has joined: that one was told what became of transactions before it came, and of one that was open then.
#[test]
fn a_node_that_has_just_joined_knows_outcomes_from_before() {
    for seed in 1..=super::seeds(20) {
        let mut c = Cluster::new(seed, 2);
        c.auto(ONE, 1, op(OpKind::Insert, 1, 100));
        c.pass(12_000);
        c.kill(TWO);
        c.remove(&[TWO]);
        c.view.chains = vec![Chain::new(&[ONE]).0; 4];
        c.commit_view();
        c.auto(ONE, 2, op(OpKind::Update, 1, 5));
        // Several messages of others.
        for seq in 0..300 {
            c.auto(ONE, 10_000 + seq * 512, op(OpKind::ReadExclusive, 1, 0));
            c.auto(ONE, 10_001 + seq * 512, op(OpKind::Update, 1, 1));
        }
        let open = c.batch(ONE, trans(3), START, 1, &[op(OpKind::Update, 1, 7)]);
        assert!(matches!(c.wait(open), Answer::Batch { committed: false, .. }));
        rejoin(&mut c, 2);
        (0..20).for_each(|_| c.advance(1_000_000, 40));
        let end = c.end(ONE, Kind::TcCommitReq, trans(3), 0);
        assert_eq!(c.wait(end), Answer::Committed);
        (0..200).for_each(|_| c.advance(1_000_000, 40));
        assert!(!c.dump().contains(" 1 copy jobs"), "seed {seed}: not all is copied\n{}", c.dump());
        c.view.nodes[1] = view_node(TWO, 2, NodeState::Up);
        c.commit_view();
        c.quiesce();
        c.kill(ONE);
        c.remove(&[ONE]);
        c.quiesce();
        for seq in [2, 3, 10_001, 10_001 + 299 * 512] {
            assert_eq!(ask_of_age(&mut c, TWO, trans(seq), ONE, 2_000), Outcome::Committed, "seed {seed}: {seq}");
        }
        for seq in [4, 10_003] {
            assert_eq!(ask_of_age(&mut c, TWO, trans(seq), ONE, 2_000), Outcome::Aborted, "seed {seed}: {seq}");
        }
        assert_eq!(ask_of_age(&mut c, TWO, trans(4), ONE, 60_000), Outcome::Forgotten, "seed {seed}: so old");
    }
}

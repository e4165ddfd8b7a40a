//! The hello between honest sides, and what strangers get: nothing, however they go about it.

use apus_auth::{Acceptor, Connector, Failure, Keys, NONCE_BYTES, Nonce, Progress, Secret};
use apus_signal::{
    Envelope, Kind,
    envelope::{ENVELOPE_BYTES, decode_frame},
    hello::{HELLO_BYTES_MAX, Hello, Role},
};
use apus_types::{ErrorCode, NodeId};
use prost::Message;

fn secret(n: u8) -> Secret {
    Secret::from_bytes([n; 32])
}

fn keys() -> Keys {
    Keys { node: secret(1), client: secret(2) }
}

fn nonce(n: u8) -> Nonce {
    std::array::from_fn(|i| n.wrapping_mul(31).wrapping_add(i as u8))
}

fn data_node(node: u32) -> Hello {
    Hello {
        role: Role::Data as i32,
        node,
        incarnation: 70 + u64::from(node),
        cluster: 9,
        workers: 2,
        ..Hello::default()
    }
}

fn client() -> Hello {
    Hello { role: Role::Client as i32, incarnation: 5, ..Hello::default() }
}

/// Both sides' proven hellos, or who failed and why.
type Outcome = Result<(Hello, Hello), (&'static str, Failure)>;

/// Everything that goes over the wire, in order: true from the connector.
#[derive(Default)]
struct Wire {
    frames: Vec<(bool, Vec<u8>)>,
}

/// Lets both talk; `touch` may change each frame on its way. Bytes arrive one by one.
fn talk_over(
    wire: &mut Wire,
    (mut connector, first): (Connector, Vec<u8>),
    mut acceptor: Acceptor,
    mut touch: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let (mut frame, mut of_connector, mut proven) = (first, true, None);
    loop {
        touch(wire.frames.len(), &mut frame);
        wire.frames.push((of_connector, frame.clone()));
        let mut answer = None;
        for byte in frame {
            let progress = if of_connector {
                assert!(acceptor.missing() > 0);
                acceptor.take(&[byte]).map_err(|f| ("acceptor", f))?
            } else {
                assert!(connector.missing() > 0);
                connector.take(&[byte]).map_err(|f| ("connector", f))?
            };
            match progress {
                Progress::More => {}
                Progress::Send(out) => answer = Some(out),
                Progress::Done(hello) if of_connector => {
                    proven = Some(hello);
                    answer = Some(acceptor.admit(NodeId(0x8007), 1));
                }
                Progress::Done(hello) => return Ok((proven.expect("the acceptor knows whom it let in"), hello)),
            }
        }
        let cut = || Failure::new(ErrorCode::ProtocolViolation, "no answer");
        frame = answer.ok_or_else(|| (if of_connector { "acceptor" } else { "connector" }, cut()))?;
        of_connector = !of_connector;
    }
}

fn talk(connector: (Connector, Vec<u8>), acceptor: Acceptor) -> Outcome {
    talk_over(&mut Wire::default(), connector, acceptor, |_, _| {})
}

fn code(outcome: Outcome) -> (&'static str, ErrorCode) {
    let (who, failure) = outcome.expect_err("must not link");
    (who, failure.code)
}

/// A connector that does not care whether the other side proves anything, as an attacker's: answers the challenge with `key`.
fn careless(hello: &Hello, key: &Secret, own: Nonce, mut acceptor: Acceptor) -> Result<Progress, Failure> {
    let (_, request) = Connector::new(hello.clone(), key, own);
    let Progress::Send(challenge) = acceptor.take_all(&request)? else { panic!("the acceptor asks for a proof") };
    // An acceptor with the same key would have sent the same hello under another MAC: make it right for our own connector.
    let (_, body) = decode_frame(&challenge).expect("a frame");
    let twin = Keys { node: key.clone(), client: key.clone() };
    let theirs = Hello::decode(&body[32..]).expect("a hello");
    let its_nonce: Nonce = theirs.nonce.as_slice().try_into().expect("32 bytes");
    let (mut connector, request) = Connector::new(hello.clone(), key, own);
    let Progress::Send(forged) = Acceptor::new(theirs, &twin, its_nonce).take_all(&request)? else {
        panic!("a challenge")
    };
    let Progress::Send(proof) = connector.take_all(&forged)? else { panic!("a proof") };
    acceptor.take_all(&proof)
}

trait TakeAll {
    fn take_all(&mut self, bytes: &[u8]) -> Result<Progress, Failure>;
}

macro_rules! take_all {
    ($($side:ty),*) => {$(
        impl TakeAll for $side {
            fn take_all(&mut self, mut bytes: &[u8]) -> Result<Progress, Failure> {
                loop {
                    let (now, rest) = bytes.split_at(self.missing().min(bytes.len()));
                    bytes = rest;
                    match self.take(now)? {
                        Progress::More if !bytes.is_empty() => {}
                        progress => return Ok(progress),
                    }
                }
            }
        }
    )*};
}
take_all!(Acceptor, Connector);

#[test]
fn honest_sides_know_each_other() {
    for (hello, key) in [(data_node(2), secret(1)), (client(), secret(2))] {
        let acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
        let (proven, met) = talk(Connector::new(hello.clone(), &key, nonce(2)), acceptor).expect("a link");
        assert_eq!((proven.role, proven.node, proven.incarnation), (hello.role, hello.node, hello.incarnation));
        assert_eq!((met.node, met.incarnation, met.cluster, met.peer), (1, 71, 9, 0x8007));
    }
    let open = Acceptor::new(data_node(1), &Keys::NONE, nonce(1));
    assert!(talk(Connector::new(data_node(2), &Secret::NONE, nonce(2)), open).is_ok());
}

#[test]
fn whoever_lacks_the_secret_is_refused_by_either_side() {
    let refused = |hello: Hello, key: Secret| {
        let accept = || Acceptor::new(data_node(1), &keys(), nonce(1));
        assert_eq!(code(talk(Connector::new(hello.clone(), &key, nonce(2)), accept())).0, "connector");
        careless(&hello, &key, nonce(2), accept()).expect_err("nothing is proven").code
    };
    assert_eq!(refused(data_node(2), secret(3)), ErrorCode::NotProven);
    assert_eq!(refused(data_node(2), Secret::NONE), ErrorCode::NotProven);
    assert_eq!(refused(client(), Secret::NONE), ErrorCode::NotProven);
    assert_eq!(refused(client(), secret(1)), ErrorCode::NotProven, "nodes are no clients");
    let mgmt = Hello { role: Role::Mgmt as i32, node: u32::from(NodeId::MGMT_BASE) + 1, ..Hello::default() };
    let operator = Hello { role: Role::Operator as i32, ..client() };
    let sql = Hello { role: Role::Arbitrator as i32, node: u32::from(NodeId::ARBITRATOR_BASE) + 1, ..Hello::default() };
    for hello in [data_node(2), mgmt, operator, sql] {
        assert_eq!(
            refused(hello, secret(2)),
            ErrorCode::RoleNotProven,
            "a client's secret in a node's or operator's place"
        );
    }
    // With a secret of our own we do not speak to one who has none.
    let open = Acceptor::new(data_node(1), &Keys::NONE, nonce(1));
    assert_eq!(code(talk(Connector::new(client(), &secret(2), nonce(2)), open)), ("connector", ErrorCode::NotProven));
    // Whatever the role field says that is no role.
    for role in [0, 6, -1, i32::MAX] {
        let (_, request) = Connector::new(Hello { role, ..data_node(2) }, &secret(1), nonce(2));
        let mut acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
        assert_eq!(acceptor.take_all(&request).expect_err("no role").code, ErrorCode::ProtocolViolation);
    }
}

#[test]
fn a_recorded_conversation_opens_nothing() {
    let mut wire = Wire::default();
    let acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
    talk_over(&mut wire, Connector::new(data_node(2), &secret(1), nonce(2)), acceptor, |_, _| {}).expect("a link");
    let of_connector: Vec<&Vec<u8>> = wire.frames.iter().filter(|f| f.0).map(|f| &f.1).collect();
    // Played to the same node, to another, and to the same one after its restart: each draws another nonce.
    for (own, own_nonce) in [(data_node(1), 3), (data_node(3), 3), (Hello { incarnation: 99, ..data_node(1) }, 3)] {
        let mut acceptor = Acceptor::new(own, &keys(), nonce(own_nonce));
        assert!(matches!(acceptor.take_all(of_connector[0]), Ok(Progress::Send(_))));
        assert_eq!(acceptor.take_all(of_connector[1]).expect_err("an old proof").code, ErrorCode::NotProven);
    }
    // Played to the connector that dials again.
    let (mut connector, _) = Connector::new(data_node(2), &secret(1), nonce(4));
    assert_eq!(connector.take_all(&wire.frames[1].1).expect_err("an old proof").code, ErrorCode::NotProven);
}

#[test]
fn nobody_is_let_in_by_his_own_words() {
    // We dial an attacker, who dials us and passes our own frames back to us.
    let (mut connector, request) = Connector::new(data_node(2), &secret(1), nonce(2));
    let mut acceptor = Acceptor::new(data_node(2), &keys(), nonce(5));
    let Ok(Progress::Send(challenge)) = acceptor.take_all(&request) else { panic!("a challenge") };
    match connector.take_all(&challenge) {
        // He can pass on what the acceptor proves, for it is a node of the cluster; then both ends know that they are the same node.
        Ok(Progress::Send(proof)) => {
            let Ok(Progress::Done(hello)) = acceptor.take_all(&proof) else { panic!("the node's own proof") };
            assert_eq!(hello.node, 2, "the listener refuses its own id");
        }
        other => panic!("{other:?}"),
    }
    // A proof of one direction is none of the other.
    let (_, request) = Connector::new(data_node(2), &secret(1), nonce(2));
    let mut first = Acceptor::new(data_node(1), &keys(), nonce(1));
    let Ok(Progress::Send(challenge)) = first.take_all(&request) else { panic!("a challenge") };
    let mac = decode_frame(&challenge).expect("a frame").1[..32].to_vec();
    let mut echoed = Vec::new();
    let (envelope, _) = decode_frame(&challenge).expect("a frame");
    Envelope { kind: Kind::HelloProofConf, ..envelope }.encode(&mut echoed, |b| b.extend_from_slice(&mac));
    assert_eq!(first.take_all(&echoed).expect_err("its own MAC").code, ErrorCode::NotProven);
    // A nonce that is our own.
    let mut acceptor = Acceptor::new(data_node(1), &keys(), nonce(2));
    assert_eq!(acceptor.take_all(&request).expect_err("our nonce").code, ErrorCode::ProtocolViolation);
    let (_, short) = Connector::new(data_node(2), &secret(1), nonce(2));
    let (envelope, body) = decode_frame(&short).expect("a frame");
    let hello = Hello { nonce: vec![1; NONCE_BYTES - 1], ..Hello::decode(body).expect("a hello") };
    let mut short = Vec::new();
    envelope.encode(&mut short, |b| hello.encode_raw(b));
    let mut acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
    assert_eq!(acceptor.take_all(&short).expect_err("a short nonce").code, ErrorCode::ProtocolViolation);
}

#[test]
fn every_bit_of_both_hellos_is_proven() {
    let run = |frame: usize, bit: usize| {
        let acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
        let connector = Connector::new(Hello { name: "n".into(), peer: 1, ..data_node(2) }, &secret(1), nonce(2));
        let mut wire = Wire::default();
        let mut within = false;
        let outcome = talk_over(&mut wire, connector, acceptor, |at, bytes| {
            if at == frame && bit / 8 < bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                within = true;
            }
        });
        (within, outcome)
    };
    // Frame 3 only tells a client its id. Of an envelope only kind, version and length mean anything in a hello.
    for frame in 0..3 {
        let mut bit = ENVELOPE_BYTES * 8;
        loop {
            let (within, outcome) = run(frame, bit);
            if !within {
                break;
            }
            assert!(outcome.is_err(), "bit {bit} of frame {frame} is not proven");
            bit += 1;
        }
        assert!(bit > (ENVELOPE_BYTES + 31) * 8);
    }
}

#[test]
fn the_wrong_place_and_the_wrong_cluster_are_named() {
    let accept = |own| Acceptor::new(own, &keys(), nonce(1));
    let wants_three = Hello { peer: 3, ..data_node(2) };
    let outcome = talk(Connector::new(wants_three, &secret(1), nonce(2)), accept(data_node(1)));
    assert_eq!(code(outcome), ("connector", ErrorCode::NotSupported));
    let outcome =
        talk(Connector::new(Hello { cluster: 8, ..data_node(2) }, &secret(1), nonce(2)), accept(data_node(1)));
    assert_eq!(code(outcome), ("connector", ErrorCode::WrongCluster));
    // A refusal is told in words that cannot move a terminal's cursor.
    let (mut connector, _) = Connector::new(client(), &secret(2), nonce(2));
    let refusal = Acceptor::refusal(&Failure::new(ErrorCode::Overload, "too many \x1b[2J clients"));
    let failure = connector.take_all(&refusal).expect_err("refused");
    assert_eq!((failure.code, failure.detail.as_str()), (ErrorCode::Overload, "too many [2J clients"));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() % n.max(1)
    }
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 127, 128, 254, 255][self.below(6)],
                2 => bytes.truncate(at),
                3 => bytes.splice(at..at, (0..self.below(9)).map(|_| 0x55)).for_each(drop),
                4 => _ = bytes.drain(at..bytes.len().min(at + 4)),
                _ => *bytes = (0..self.below(200)).map(|_| self.next() as u8).collect(),
            }
        }
    }
}

/// Any bytes at any time: an error or more to come, never a panic, never a link, never more memory than a frame. 20,000 inputs per side;
/// APUS_FUZZ_INPUTS=1000000 is the long form.
#[test]
fn garbage_opens_nothing() {
    let inputs: usize = std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut wire = Wire::default();
    let acceptor = Acceptor::new(data_node(1), &keys(), nonce(1));
    talk_over(&mut wire, Connector::new(data_node(2), &secret(1), nonce(2)), acceptor, |_, _| {}).expect("a link");
    let mut random = Random(20_261_122);
    let feed = |random: &mut Random, side: &mut dyn TakeAll, first: Option<&[u8]>| {
        if let Some(first) = first {
            side.take_all(first).expect("a good frame");
        }
        for _ in 0..4 {
            let mut bytes = wire.frames[random.below(4)].1.clone();
            random.mutate(&mut bytes);
            match side.take_all(&bytes) {
                Ok(Progress::Done(hello)) => panic!("garbage opened a link: {hello:?}"),
                Ok(Progress::Send(out)) => assert!(out.len() <= ENVELOPE_BYTES + HELLO_BYTES_MAX),
                Ok(Progress::More) => {}
                Err(_) => return,
            }
        }
    };
    for input in 0..inputs {
        // Other nonces than in the recorded frames, so that only the mutation, and no replay, could be right.
        let mut acceptor = Acceptor::new(data_node(1), &keys(), nonce(7));
        feed(&mut random, &mut acceptor, (input % 2 == 0).then_some(&wire.frames[0].1));
        let (mut connector, _) = Connector::new(data_node(2), &secret(1), nonce(8));
        feed(&mut random, &mut connector, None);
        if input % 2 == 0 {
            // After a good challenge only the last answer is missing, which may say what it likes of the id given.
            let (mut connector, request) = Connector::new(data_node(2), &secret(1), nonce(8));
            let Ok(Progress::Send(challenge)) = Acceptor::new(data_node(1), &keys(), nonce(7)).take_all(&request)
            else {
                panic!("a challenge")
            };
            connector.take_all(&challenge).expect("a good challenge");
            let mut bytes = wire.frames[3].1.clone();
            random.mutate(&mut bytes);
            if let Ok(Progress::Done(hello)) = connector.take_all(&bytes) {
                assert_eq!((hello.node, hello.incarnation, hello.cluster), (1, 71, 9), "identity stands under the MAC");
            }
        }
    }
}

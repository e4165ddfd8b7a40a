//! Real threads and sockets: two nodes link up and talk over every worker, a client is answered, strangers are refused.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use apus_auth::{Connector, Failure, Keys, Progress, Secret};
use apus_kernel::{Block, Context, WorkerConfig};
use apus_runtime::{Bound, DataNodeConfig, Node, Stop};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind, Reader,
    codec::Put,
    envelope::{decode_frame, frame_length},
    hello::{Hello, Role},
    qmgr::StopOrd,
};
use apus_types::{Epoch, ErrorCode, NodeId};
use prost::Message;

const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 500;

/// On worker 0 as QMGR it reports links; every instance bounces heartbeats until their number reaches [`ROUNDS`].
struct Bouncer {
    me: BlockRef,
    tell: Sender<(NodeId, Kind, u64)>,
    /// Where the other node is, when that is known.
    peer: Arc<OnceLock<SocketAddr>>,
    is_dialled: bool,
}

impl Block for Bouncer {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let mut r = Reader::new(body);
        match envelope.kind {
            Kind::LinkSuspendedRep | Kind::LinkResumedRep => {}
            Kind::LinkUpRep | Kind::LinkDownRep => {
                let (_peer, worker) = (r.u16()?, r.u8()?);
                let _ = self.tell.send((self.me.node, envelope.kind, u64::from(worker)));
            }
            Kind::HeartbeatRep => {
                let n = r.u64()?;
                if n >= ROUNDS {
                    let _ = self.tell.send((self.me.node, envelope.kind, n));
                } else {
                    ctx.send(envelope.from, Kind::HeartbeatRep, |b| b.put_u64(n + 1));
                }
            }
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        // Data nodes link up only when both know their cluster.
        ctx.set_cluster(7);
        let peer = NodeId(3 - self.me.node.0);
        if let Some(address) = self.peer.get().filter(|_| !self.is_dialled && self.me.instance == 0) {
            ctx.connect_to(peer, &address.to_string());
            self.is_dialled = true;
        }
        // Again and again: an answer by a link that does not stand yet is lost.
        for instance in [0, 1, BlockRef::CONTROL] {
            if self.me != BlockRef::new(NodeId(2), BlockId::Qmgr, 0) {
                break;
            }
            let to = BlockRef::new(NodeId(1), BlockId::Qmgr, instance);
            ctx.send(to, Kind::HeartbeatRep, |b| b.put_u64(0));
        }
    }
    fn dump(&self, _out: &mut String) {}
}

fn keys() -> Keys {
    Keys { node: Secret::from_bytes([1; 32]), client: Secret::from_bytes([2; 32]) }
}

type Told = Receiver<(NodeId, Kind, u64)>;

fn start(id: u16, peer: &Arc<OnceLock<SocketAddr>>) -> (Node, SocketAddr, Told) {
    let node = NodeId(id);
    let bound = Bound::new(DataNodeConfig {
        node,
        listen: "127.0.0.1:0".into(),
        mgmt: Vec::new(),
        workers: 2,
        dir: std::env::temp_dir(),
        build: "test".into(),
        keys: keys(),
    })
    .expect("a free port");
    let address = bound.address().expect("bound");
    let (tell, told) = channel();
    let peer = Arc::clone(peer);
    let build = move |who: &WorkerConfig| -> Vec<Box<dyn Block>> {
        let me = BlockRef::new(who.node, BlockId::Qmgr, who.instance());
        vec![Box::new(Bouncer { me, tell: tell.clone(), peer: Arc::clone(&peer), is_dialled: false })]
    };
    (bound.start(build).expect("threads"), address, told)
}

fn hear(told: &Told, kind: Kind) -> u64 {
    loop {
        let (_, heard, n) = told.recv_timeout(PATIENCE).expect("no word within the time limit");
        if heard == kind {
            return n;
        }
    }
}

/// Of the two data workers and the control worker, in any order.
fn all_links(told: &Told, kind: Kind) -> [u64; 3] {
    let mut links = [hear(told, kind), hear(told, kind), hear(told, kind)];
    links.sort_unstable();
    links
}

fn frame(kind: Kind, to: BlockRef, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let from = BlockRef::new(NodeId(9), BlockId::Client, 0);
    Envelope { kind, to, from, epoch: Epoch(u64::MAX), trace: 5, generation: 0 }
        .encode(&mut out, |b| b.put_bytes(body));
    out
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).expect("a length");
    let length = frame_length(&bytes).expect("sane").expect("whole");
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[4..]).expect("a frame");
    bytes
}

fn connect(address: SocketAddr, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(first).expect("takes bytes");
    stream
}

/// Reads until the other side closes.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn nodes_link_talk_and_notice_the_end() {
    let (one_at, two_at) = <(Arc<OnceLock<_>>, Arc<OnceLock<_>>)>::default();
    let (one, address, told_one) = start(1, &two_at);
    let _ = one_at.set(address);
    let (two, address, told_two) = start(2, &one_at);
    let _ = two_at.set(address);
    assert_eq!(all_links(&told_two, Kind::LinkUpRep), [0, 1, BlockRef::CONTROL.into()]);
    for told in [&told_one; 3] {
        assert_eq!(hear(told, Kind::HeartbeatRep), ROUNDS);
    }
    two.stop();
    assert_eq!(two.wait(), Stop::Asked);
    assert_eq!(all_links(&told_one, Kind::LinkDownRep), [0, 1, BlockRef::CONTROL.into()]);
    one.stop();
    assert_eq!(one.wait(), Stop::Asked);
}

fn client_hello() -> Hello {
    Hello { role: Role::Client as i32, ..Hello::default() }
}

/// Says a hello and proves it; the other side's, or why it refuses.
fn greet(address: SocketAddr, hello: Hello, secret: &Secret, nonce: u8) -> Result<(TcpStream, Hello), Failure> {
    let (mut connector, out) = Connector::new(hello, secret, [nonce; 32]);
    let mut stream = connect(address, &out);
    loop {
        let mut buffer = vec![0; connector.missing()];
        stream.read_exact(&mut buffer).expect("an answer");
        match connector.take(&buffer)? {
            Progress::More => {}
            Progress::Send(out) => stream.write_all(&out).expect("takes bytes"),
            Progress::Done(hello) => return Ok((stream, hello)),
        }
    }
}

fn is_served(stream: &mut TcpStream) -> bool {
    stream.write_all(&frame(Kind::PingReq, BlockRef::new(NodeId(1), BlockId::Link, 0), b"ping")).expect("takes bytes");
    let answer = read_frame(stream);
    let (envelope, body) = decode_frame(&answer).expect("decodes");
    assert!(envelope.epoch < Epoch(u64::MAX), "a client named the epoch");
    (envelope.kind, body) == (Kind::PingConf, &b"ping"[..])
}

#[test]
fn clients_are_answered_and_strangers_refused() {
    let (node, address, _told) = start(1, &Arc::default());
    let own = NodeId(1);
    assert!(is_closed(&mut connect(address, b"GET / HTTP/1.1\r\nHost: a database is no web server\r\n\r\n")));
    let (_, good) = Connector::new(client_hello(), &keys().client, [9; 32]);
    let forged = Hello { magic: 1, role: Role::Client as i32, nonce: vec![9; 32], ..Hello::default() };
    let link = BlockRef::new(own, BlockId::Link, 0);
    assert!(is_closed(&mut connect(address, &frame(Kind::HelloReq, link, &forged.encode_to_vec()))));
    // What one says who has not proven himself is not read: the frame comes instead of the proof.
    let stop = StopOrd { reason: "because".into(), ..StopOrd::default() };
    let mut early = good.clone();
    early.extend(frame(Kind::StopOrd, BlockRef::new(own, BlockId::Qmgr, 0), &stop.encode_to_vec()));
    assert!(is_closed(&mut connect(address, &early)));
    let refused = |hello: Hello, secret: &Secret| greet(address, hello, secret, 7).expect_err("a stranger").code;
    assert_eq!(refused(client_hello(), &Secret::from_bytes([8; 32])), ErrorCode::NotProven);
    assert_eq!(refused(client_hello(), &Secret::NONE), ErrorCode::NotProven);
    let mgmt = Hello { role: Role::Mgmt as i32, node: u32::from(NodeId::MGMT_BASE) + 1, ..Hello::default() };
    assert_eq!(refused(mgmt.clone(), &keys().client), ErrorCode::NotProven, "a client's secret in a node's place");
    // Of another cluster, though the secret is right.
    let foreign = Hello { cluster: 8, ..mgmt.clone() };
    let deadline = std::time::Instant::now() + PATIENCE; // the node does not know its cluster at once
    let refusal = loop {
        match greet(address, foreign.clone(), &keys().node, 7) {
            Err(failure) => break failure.code,
            Ok(_) => assert!(std::time::Instant::now() < deadline, "a node of another cluster is let in"),
        }
    };
    assert_eq!(refusal, ErrorCode::WrongCluster);

    // Two clients land on different workers; one byte at a time is as good as all at once.
    for _ in 0..2 {
        let (mut client, welcome) = greet(address, client_hello(), &keys().client, 7).expect("a client");
        assert_eq!((welcome.node, welcome.workers), (1, 2));
        for byte in frame(Kind::PingReq, link, b"ping") {
            client.write_all(&[byte]).expect("takes bytes");
        }
        let answer = read_frame(&mut client);
        assert_eq!(decode_frame(&answer).expect("decodes").1, b"ping");
        // Not for clients: refused, the link lives; no frame: closed.
        client.write_all(&frame(Kind::StopOrd, BlockRef::new(own, BlockId::Qmgr, 0), &[])).expect("takes bytes");
        let answer = read_frame(&mut client);
        assert_eq!(decode_frame(&answer).expect("decodes").0.kind, Kind::RequestRef);
        assert!(is_served(&mut client));
        client.write_all(&[0xff; 64]).expect("takes bytes");
        assert!(is_closed(&mut client));
    }
    // A management node that speaks for a data node, or of what is not its business, is cut off.
    for (kind, from) in [(Kind::FailRep, 0xff01), (Kind::StopOrd, 2), (Kind::LdmCommitOrd, 0xff01)] {
        let (mut manager, _) = greet(address, mgmt.clone(), &keys().node, 7).expect("a management node");
        let mut forged = Vec::new();
        let (to, from) = (BlockRef::new(own, BlockId::Qmgr, 0), BlockRef::new(NodeId(from), BlockId::Qmgr, 0));
        Envelope { kind, to, from, epoch: Epoch(0), trace: 0, generation: 0 }.encode(&mut forged, |b| b.put_u64(0));
        manager.write_all(&forged).expect("takes bytes");
        assert!(is_closed(&mut manager), "{kind:?}");
    }
    assert!(node.refused_hellos() >= 4);
    node.stop();
    node.wait();
}

/// One stranger with more connections than a node hears at once keeps nobody out.
#[test]
fn a_flood_of_strangers_keeps_nobody_out() {
    let (node, address, _told) = start(1, &Arc::default());
    let (_, hello) = Connector::new(client_hello(), &keys().client, [9; 32]);
    // Silent ones, and ones that stop half way.
    let mut strangers: Vec<TcpStream> = Vec::new();
    for number in 0..600 {
        strangers.push(connect(address, if number % 2 == 0 { &[] } else { &hello }));
        if number % 100 == 99 {
            let (mut client, _) = greet(address, client_hello(), &keys().client, 7).expect("a client");
            assert!(is_served(&mut client));
        }
    }
    // All of them are gone in the end, the last when their time is over.
    strangers.iter_mut().for_each(|s| assert!(is_closed(s)));
    let (mut client, _) = greet(address, client_hello(), &keys().client, 7).expect("a client");
    assert!(is_served(&mut client));
    node.stop();
    node.wait();
}

//! Real threads and sockets, and something on the way between two nodes that resets their connections: nothing is lost, repeated or out of
//! order, and no link ends.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, OnceLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use apus_auth::{Keys, Secret};
use apus_kernel::{Block, Context, WorkerConfig};
use apus_runtime::{Bound, DataNodeConfig, Node, Stop};
use apus_signal::{BlockId, BlockRef, DecodeError, Envelope, Kind, Reader, codec::Put};
use apus_types::NodeId;

const PATIENCE: Duration = Duration::from_secs(60);
/// Signals that each worker sends, and how many per tick.
const TOTAL: u64 = 4_000;
const PER_TICK: u64 = 40;
const PADDING: [u8; 500] = [0x5a; 500];
/// Links of a pair of nodes: two data workers and the control worker.
const LINKS: usize = 3;

/// Sends numbers and expects those of the other node's worker.
struct Counter {
    me: BlockRef,
    tell: Sender<(Kind, u64)>,
    peer: Arc<OnceLock<SocketAddr>>,
    is_dialled: bool,
    sent: u64,
    received: u64,
}

impl Block for Counter {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        if envelope.kind != Kind::HeartbeatRep {
            let _ = self.tell.send((envelope.kind, 0));
            return Ok(());
        }
        let number = Reader::new(body).u64()?;
        if number != self.received {
            let _ = self.tell.send((Kind::FailRep, number));
        }
        self.received += 1;
        if self.received == TOTAL {
            let _ = self.tell.send((Kind::HeartbeatRep, number));
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        ctx.set_cluster(7);
        let peer = NodeId(3 - self.me.node.0);
        if let Some(address) = self.peer.get().filter(|_| !self.is_dialled && self.me.instance == 0) {
            ctx.connect_to(peer, &address.to_string());
            self.is_dialled = true;
        }
        let to = BlockRef { node: peer, ..self.me };
        let last = if ctx.link_up(peer) { (self.sent + PER_TICK).min(TOTAL) } else { self.sent };
        for number in self.sent..last {
            ctx.send(to, Kind::HeartbeatRep, |b| {
                b.put_u64(number);
                b.put_bytes(&PADDING);
            });
        }
        self.sent = last;
    }
    fn dump(&self, _out: &mut String) {}
}

type Told = Receiver<(Kind, u64)>;

fn start(id: u16, peer: Arc<OnceLock<SocketAddr>>) -> (Node, SocketAddr, Told) {
    let bound = Bound::new(DataNodeConfig {
        node: NodeId(id),
        listen: "127.0.0.1:0".into(),
        mgmt: Vec::new(),
        workers: 2,
        dir: std::env::temp_dir(),
        build: "test".into(),
        keys: Keys { node: Secret::from_bytes([1; 32]), client: Secret::from_bytes([2; 32]) },
    })
    .expect("a free port");
    let address = bound.address().expect("bound");
    let (tell, told) = channel();
    let build = move |who: &WorkerConfig| -> Vec<Box<dyn Block>> {
        let me = BlockRef::new(who.node, BlockId::Qmgr, who.instance());
        let (tell, peer) = (tell.clone(), Arc::clone(&peer));
        vec![Box::new(Counter { me, tell, peer, is_dialled: false, sent: 0, received: 0 })]
    };
    (bound.start(build).expect("threads"), address, told)
}

/// Leads connections on, and ends them all when it is told to.
#[derive(Clone, Default)]
struct Way(Arc<Mutex<Vec<TcpStream>>>);

impl Way {
    /// Where a way to the target begins.
    fn to(&self, target: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let way = self.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    way.0.lock().expect("no panic").push(from.try_clone().expect("a socket"));
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    thread::spawn(move || pump(from, to));
                }
            }
        });
        address
    }
    fn reset(&self) {
        for stream in self.0.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 1 << 12];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn links_go_on_when_their_connections_are_reset() {
    let way = Way::default();
    let (one_at, two_at) = <(Arc<OnceLock<_>>, Arc<OnceLock<_>>)>::default();
    let (one, address, told_one) = start(1, Arc::clone(&two_at));
    let _ = one_at.set(way.to(address));
    let (two, address, told_two) = start(2, one_at);
    let _ = two_at.set(way.to(address));
    // A link that has not come up yet may begin twice.
    for told in [&told_one, &told_two].into_iter().flat_map(|told| [told; LINKS]) {
        assert_eq!(told.recv_timeout(PATIENCE).expect("no word within the time limit").0, Kind::LinkUpRep);
    }
    way.reset();
    let (mut resets, mut resumed) = (1, 0);
    for told in [&told_one, &told_two] {
        let mut finished = 0;
        while finished < LINKS {
            match told.recv_timeout(PATIENCE).expect("no word within the time limit").0 {
                Kind::HeartbeatRep => finished += 1,
                // The next reset follows when a link goes on after the one before.
                Kind::LinkResumedRep if resets < 60 => {
                    resets += 1;
                    resumed += 1;
                    way.reset();
                }
                Kind::LinkResumedRep => resumed += 1,
                Kind::LinkSuspendedRep => {}
                kind => panic!("a link failed, or a signal was lost or repeated: {kind:?}"),
            }
        }
    }
    assert!(resets > LINKS && resumed > LINKS, "{resets} resets, {resumed} resumed");
    for node in [one, two] {
        node.stop();
        assert_eq!(node.wait(), Stop::Asked);
    }
}

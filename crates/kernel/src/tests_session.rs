//! Two workers, the connections between them, and what can happen to these at any byte.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use apus_signal::{BlockId, BlockRef, DecodeError, Envelope, Kind, codec::Put};
use apus_types::NodeId;

use crate::{
    Block, Context, Offer, Random, Worker, WorkerConfig,
    limits::{LINK_ACK_BYTES, LINK_UNACKED_MAX},
};

type Heard = Rc<RefCell<Vec<u64>>>;
type Told = Rc<RefCell<Vec<Kind>>>;

/// Keeps the numbers that the other end sent.
struct Listener(BlockRef, Heard);

impl Block for Listener {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, _: &Envelope, body: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        self.1.borrow_mut().push(u64::from_le_bytes(*body.first_chunk().ok_or(DecodeError)?));
        Ok(())
    }
    fn tick(&mut self, _: &mut Context<'_>) {}
    fn dump(&self, _: &mut String) {}
}

/// In the place of QMGR.
struct Manager(BlockRef, Told);

impl Block for Manager {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, envelope: &Envelope, _: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        self.1.borrow_mut().push(envelope.kind);
        Ok(())
    }
    fn tick(&mut self, _: &mut Context<'_>) {}
    fn dump(&self, _: &mut String) {}
}

struct End {
    worker: Worker,
    peer: NodeId,
    heard: Heard,
    told: Told,
    sent: u64,
    /// The connection that it uses.
    current: Option<usize>,
    /// Bytes that came over it and are no whole frame.
    partial: Vec<u8>,
}

impl End {
    fn new(me: u16, peer: u16) -> End {
        let who = WorkerConfig { node: NodeId(me), worker: 0, instances: 1, control: false, incarnation: 7, seed: 1 };
        let mut worker = Worker::new(who);
        let (heard, told) = <(Heard, Told)>::default();
        worker.add_block(Box::new(Listener(BlockRef::new(NodeId(me), BlockId::Ldm, 0), Rc::clone(&heard))));
        worker.add_block(Box::new(Manager(BlockRef::new(NodeId(me), BlockId::Qmgr, 0), Rc::clone(&told))));
        let block = BlockRef::new(NodeId(me), BlockId::Ldm, 0);
        worker.with_context(block, |ctx| ctx.accept_from(NodeId(peer), 7, true));
        worker.run(10);
        End { worker, peer: NodeId(peer), heard, told, sent: 0, current: None, partial: Vec::new() }
    }
    /// The next number, in a body of so many bytes more.
    fn send(&mut self, more: usize) {
        let (me, to) = (self.worker.config().node, BlockRef::new(self.peer, BlockId::Ldm, 0));
        let number = self.sent;
        self.sent += 1;
        self.worker.with_context(BlockRef::new(me, BlockId::Ldm, 0), |ctx| {
            ctx.send(to, Kind::LdmWaitRep, |b| {
                b.put_u64(number);
                b.put_bytes(&vec![0x5a; more]);
            });
        });
    }
    fn told(&mut self) -> Vec<Kind> {
        self.worker.run(1000);
        std::mem::take(&mut self.told.borrow_mut())
    }
    fn heard_in_order(&self) -> usize {
        let heard = self.heard.borrow();
        assert!(heard.iter().copied().eq(0..heard.len() as u64), "lost, repeated or out of order: {heard:?}");
        heard.len()
    }
}

/// A connection: what is on its way to each end, and whether it has ended for whoever has read that.
#[derive(Default)]
struct Conn {
    number: u32,
    dialler: usize,
    to: [VecDeque<u8>; 2],
    is_offered: [bool; 2],
    is_over: bool,
}

struct Net {
    ends: [End; 2],
    conns: Vec<Conn>,
    /// Number that an end has to dial with.
    dials: [Option<u32>; 2],
    delivered: usize,
}

impl Net {
    fn new() -> Net {
        Net { ends: [End::new(1, 2), End::new(2, 1)], conns: Vec::new(), dials: [None; 2], delivered: 0 }
    }
    fn linked() -> Net {
        let mut net = Net::new();
        net.dial(1, 0);
        net.offer(0, 0);
        net.offer(0, 1);
        net.settle();
        assert_eq!(net.ends.each_mut().map(End::told), [[Kind::LinkUpRep]; 2]);
        net
    }
    fn dial(&mut self, dialler: usize, number: u32) {
        self.conns.push(Conn { number, dialler, ..Conn::default() });
    }
    /// The connection comes to the worker at this end.
    fn offer(&mut self, conn: usize, at: usize) {
        let c = &mut self.conns[conn];
        c.is_offered[at] = true;
        let offer = Offer { incarnation: 7, number: c.number, dialled: c.dialler == at };
        let end = &mut self.ends[at];
        if !end.worker.link_offered(end.peer, offer) {
            c.is_over = true;
            return;
        }
        end.partial.clear();
        self.dials[at] = None;
        if let Some(before) = end.current.replace(conn) {
            self.conns[before].is_over = true;
        }
        self.flush(at);
    }
    fn flush(&mut self, at: usize) {
        let end = &mut self.ends[at];
        while end.worker.next_dirty().is_some() {}
        let Some(conn) = end.current else { return };
        loop {
            let bytes = end.worker.output(end.peer).to_vec();
            if bytes.is_empty() {
                return;
            }
            end.worker.sent(end.peer, bytes.len());
            if !self.conns[conn].is_over {
                self.conns[conn].to[1 - at].extend(bytes);
            }
        }
    }
    /// Up to so many bytes arrive at this end. False: nothing was on its way.
    fn deliver(&mut self, at: usize, most: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(conn) = end.current else { return false };
        let wire = &mut self.conns[conn].to[at];
        let count = wire.len().min(most);
        end.partial.extend(wire.drain(..count));
        self.delivered += count;
        match end.worker.deliver_frames(end.peer, &end.partial) {
            Ok(consumed) => drop(end.partial.drain(..consumed)),
            Err(_) => self.lose(at),
        }
        self.flush(at);
        count > 0
    }
    /// This end notices that its connection is over, or closes it.
    fn lose(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let Some(conn) = end.current.take() else { return };
        self.conns[conn].is_over = true;
        end.partial.clear();
        self.dials[at] = end.worker.link_lost(end.peer);
    }
    /// What is on its way is lost; each end will notice.
    fn reset(&mut self) {
        for conn in &mut self.conns {
            conn.is_over = true;
            conn.to = Default::default();
        }
    }
    fn settle(&mut self) {
        (0..2).for_each(|at| self.flush(at));
        while (0..2).any(|at| self.deliver(at, usize::MAX)) {}
    }
    /// Something that can happen now happens. False: nothing can.
    fn happen(&mut self, random: &mut Random) -> bool {
        let mut choices: Vec<(u8, usize, usize)> = Vec::new();
        for at in 0..2 {
            choices.extend(self.dials[at].map(|_| (0, 0, at)));
            if let Some(conn) = self.ends[at].current {
                let conn = &self.conns[conn];
                let is_empty = conn.to[at].is_empty();
                choices.extend((!is_empty).then_some((1, 0, at)));
                choices.extend((is_empty && conn.is_over).then_some((2, 0, at)));
            }
            let pending = self.conns.iter().enumerate().filter(|(_, c)| !c.is_offered[at]);
            choices.extend(pending.map(|(n, _)| (3, n, at)));
        }
        let Some(&(what, conn, at)) = choices.get(random.below(choices.len().max(1) as u64) as usize) else {
            return false;
        };
        match what {
            0 => {
                if let Some(number) = self.dials[at].take() {
                    self.dial(at, number);
                }
            }
            1 => drop(self.deliver(at, 1 + random.below(200) as usize)),
            2 => self.lose(at),
            _ => self.offer(conn, at),
        }
        true
    }
    fn calm_down(&mut self, random: &mut Random) {
        for _ in 0..100_000 {
            (0..2).for_each(|at| self.flush(at));
            if !self.happen(random) {
                return;
            }
        }
        panic!("the ends do not agree on a connection");
    }
    fn all_heard(&self) -> bool {
        let heard = [0, 1].map(|at| self.ends[at].heard_in_order() as u64);
        heard == [self.ends[1].sent, self.ends[0].sent]
    }
}

fn talk(net: &mut Net) {
    for more in [0, 3, 100, 0, 17] {
        net.ends.iter_mut().for_each(|end| end.send(more));
    }
}

#[test]
fn a_reset_at_any_byte_costs_no_signal_and_repeats_none() {
    let begun = || {
        let mut net = Net::new();
        net.dial(1, 0);
        (0..2).for_each(|at| net.offer(0, at));
        talk(&mut net);
        net
    };
    let whole = {
        let mut net = begun();
        net.settle();
        assert!(net.all_heard());
        net.delivered
    };
    for (first, notices) in (0..=whole).flat_map(|first| [(first, 0), (first, 1)]) {
        let mut net = begun();
        (0..2).for_each(|at| net.flush(at));
        while net.delivered < first && (0..2).any(|at| net.deliver(at, 1)) {}
        net.reset();
        net.lose(notices);
        let number = net.dials[notices].take().expect("it is to be dialled");
        net.dial(notices, number);
        talk(&mut net);
        // The other end sees the new connection first or the end of the old one.
        if first % 2 == 0 {
            net.lose(1 - notices);
        }
        net.offer(1, 1 - notices);
        net.offer(1, notices);
        net.settle();
        assert!(net.all_heard(), "reset after {first} bytes");
        for end in &mut net.ends {
            assert_eq!(end.told(), [Kind::LinkUpRep, Kind::LinkSuspendedRep, Kind::LinkResumedRep]);
            assert_eq!(end.worker.counters().links_resumed, 1);
        }
    }
}

#[test]
fn resets_in_any_order_with_both_ends_dialling() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        let mut net = Net::new();
        net.dial(1, 0);
        (0..2).for_each(|at| net.offer(0, at));
        for _ in 0..1 + random.below(6) {
            for _ in 0..random.below(40) {
                let at = random.below(2) as usize;
                let most = if random.one_in(10) { 40_000 } else { 300 };
                net.ends[at].send(random.below(most) as usize);
                net.flush(at);
                for _ in 0..random.below(4) {
                    net.happen(&mut random);
                }
            }
            net.reset();
            // One end may know long before the other.
            for _ in 0..random.below(10) {
                net.happen(&mut random);
            }
        }
        net.calm_down(&mut random);
        assert!(net.all_heard(), "seed {seed}: {:?}", [0, 1].map(|at| net.ends[at].heard_in_order()));
        for end in &mut net.ends {
            let told = end.told();
            assert!(!told.contains(&Kind::LinkDownRep), "seed {seed}: {told:?}");
            let count = |kind| told.iter().filter(|k| **k == kind).count();
            assert_eq!(count(Kind::LinkSuspendedRep), count(Kind::LinkResumedRep), "seed {seed}");
        }
    }
}

#[test]
fn a_busy_link_keeps_no_more_than_is_not_acknowledged() {
    let mut net = Net::linked();
    for _ in 0..2_000 {
        net.ends[0].send(1_000);
        net.settle();
        let me = BlockRef::new(NodeId(1), BlockId::Ldm, 0);
        let held = net.ends[0].worker.with_context(me, |ctx| ctx.buffered_bytes().1);
        assert!(held <= LINK_ACK_BYTES as usize + 2_000, "{held} bytes are held");
    }
    assert!(net.all_heard());
}

#[test]
fn what_was_forgotten_cannot_be_sent_again() {
    let mut net = Net::linked();
    let (body, count) = (8 << 20, LINK_UNACKED_MAX / (8 << 20) + 1);
    for _ in 0..count {
        net.ends[0].send(body);
    }
    net.flush(0);
    net.reset();
    net.lose(0);
    let number = net.dials[0].take().expect("it is to be dialled");
    net.dial(0, number);
    net.offer(1, 1);
    net.offer(1, 0);
    net.settle();
    net.lose(1);
    assert_eq!(net.ends[0].told(), [Kind::LinkSuspendedRep, Kind::LinkDownRep]);
    assert_eq!(net.ends[1].heard_in_order(), 0);
}

#[test]
fn who_has_given_the_link_up_or_is_another_process_does_not_go_on() {
    // Closed at one end: the other comes back and is not known.
    let mut net = Net::linked();
    net.ends[0].worker.link_down(NodeId(2));
    net.ends[0].current = None;
    net.reset();
    net.lose(1);
    let number = net.dials[1].take().expect("it is to be dialled");
    net.dial(1, number);
    net.offer(1, 0);
    net.offer(1, 1);
    net.settle();
    assert_eq!(net.ends[1].told(), [Kind::LinkSuspendedRep, Kind::LinkDownRep]);
    assert_eq!(net.ends[0].told(), [Kind::LinkDownRep]);
    // A new link begins.
    net.lose(0);
    net.dial(1, 0);
    net.offer(2, 0);
    net.offer(2, 1);
    net.ends[0].send(10);
    net.settle();
    assert_eq!(net.ends.each_mut().map(End::told), [[Kind::LinkUpRep]; 2]);
    assert_eq!(net.ends[1].heard_in_order(), 1);
    // Another process answers.
    net.reset();
    net.lose(1);
    let number = net.dials[1].take().expect("it is to be dialled");
    let offer = Offer { incarnation: 8, number, dialled: true };
    assert!(!net.ends[1].worker.link_offered(NodeId(1), offer));
    assert_eq!(net.ends[1].told(), [Kind::LinkSuspendedRep, Kind::LinkDownRep]);
}

/// Node 1 starts anew, and a dial that was to go on with the link of the process before comes to it behind one that begins: node 2 has given
/// it up by then, and begins once more (simulator seed 1000048).
#[test]
fn who_was_taken_for_the_process_before_is_linked_with_the_next_dial() {
    let mut net = Net::new();
    net.dial(1, 4);
    net.conns[0].is_over = true;
    net.dial(1, 0);
    net.offer(1, 1);
    net.offer(1, 0);
    net.offer(0, 0);
    net.reset();
    (0..2).for_each(|at| net.lose(at));
    net.ends[1].worker.link_down(NodeId(1));
    assert_eq!(net.ends[0].worker.awaits_connection(NodeId(2)), Some(5));
    net.dial(1, 0);
    net.offer(2, 1);
    net.offer(2, 0);
    net.ends.iter_mut().for_each(|end| end.send(10));
    net.settle();
    assert_eq!(net.ends[0].told(), [Kind::LinkUpRep, Kind::LinkSuspendedRep, Kind::LinkResumedRep]);
    assert!(net.all_heard() && net.ends.iter().all(|end| end.heard_in_order() == 1));
}

#[test]
fn refused_is_the_end_of_what_waits_and_of_nothing_else() {
    let mut net = Net::linked();
    let peer = net.ends[0].peer;
    assert!(!net.ends[0].worker.link_refused(peer, 1), "it stands");
    net.reset();
    net.lose(0);
    assert_eq!(net.ends[0].worker.awaits_connection(peer), Some(1));
    assert!(!net.ends[0].worker.link_refused(peer, 2) && net.ends[0].worker.link_refused(peer, 1));
    assert_eq!(net.ends[0].worker.awaits_connection(peer), None);
    assert_eq!(net.ends[0].told(), [Kind::LinkSuspendedRep, Kind::LinkDownRep]);
}

#[test]
fn lies_about_what_was_received_end_the_link() {
    for kind in [Kind::LinkAckOrd, Kind::LinkOpenOrd] {
        let mut net = Net::linked();
        net.ends[0].send(10);
        net.settle();
        let (to, from) = (BlockRef::new(NodeId(1), BlockId::Link, 0), BlockRef::new(NodeId(2), BlockId::Link, 0));
        let mut lie = Vec::new();
        let envelope = Envelope { kind, to, from, epoch: apus_types::Epoch(0), trace: 0, generation: 0 };
        envelope.encode(&mut lie, |b| (0..3).for_each(|_| b.put_u64(1 << 40)));
        assert!(net.ends[0].worker.deliver_frames(NodeId(2), &lie).is_err(), "{kind:?}");
        assert_eq!(net.ends[0].worker.link_lost(NodeId(2)), None, "nothing to go on with");
        assert_eq!(net.ends[0].told(), [Kind::LinkDownRep]);
    }
}

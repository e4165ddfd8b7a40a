//! The sockets of one worker.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
};

use apus_kernel::Worker;
use apus_signal::envelope::frame_length;
use apus_types::NodeId;

use crate::{
    config::READ_BYTES,
    poll::{Interest, Poll},
    shared::NewLink,
};

/// Token of the worker's waker; connections use their slot.
pub const WAKER_TOKEN: u64 = u64::MAX;
/// A frame that began in an earlier read is copied in front of the next if it is not longer than this.
const HEAD_BYTES: usize = 64 << 10;

/// What was sent to a member and is not acknowledged for so many milliseconds ends the link: longer than a silence of all is waited out.
const LINK_SILENCE_MS: u32 = 15_000;

struct Conn {
    link: NewLink,
    /// Beginning of a frame of which the rest has not come, or all that came while the worker did not serve clients.
    partial: Vec<u8>,
    interest: Interest,
}

pub struct Conns {
    slots: Vec<Option<Conn>>,
    free: Vec<usize>,
    by_node: BTreeMap<NodeId, usize>,
    /// Slots that are not read from at present.
    paused: Vec<usize>,
    /// One receive buffer for all sockets: what remains in it after a read is the beginning of one frame.
    buffer: Vec<u8>,
}

impl Conns {
    pub fn new() -> Conns {
        Conns {
            slots: Vec::new(),
            free: Vec::new(),
            by_node: BTreeMap::new(),
            paused: Vec::new(),
            buffer: vec![0; HEAD_BYTES + READ_BYTES],
        }
    }

    /// Takes over a connection, unless the worker has a better one; one that it had before to the same node is closed.
    /// Returns the node if it has none now.
    pub fn open(&mut self, link: NewLink, poll: &Poll, worker: &mut Worker) -> Option<NodeId> {
        let node = link.node;
        if !worker.link_offered(node, link.offer) {
            return if self.by_node.contains_key(&node) { None } else { Some(node) };
        }
        if let Some(&slot) = self.by_node.get(&node) {
            self.take_slot(slot);
        }
        if !node.is_client() {
            // Heartbeats pass over the control worker's link alone: a data link that the network has lost ends by this.
            let _ = rustix::net::sockopt::set_tcp_user_timeout(&link.stream, LINK_SILENCE_MS);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if poll.add(&link.stream, slot as u64, Interest::READ).is_err() {
            self.free.push(slot);
            worker.link_lost(node);
            return Some(node);
        }
        self.slots[slot] = Some(Conn { link, partial: Vec::new(), interest: Interest::READ });
        self.by_node.insert(node, slot);
        None
    }

    fn take_slot(&mut self, slot: usize) -> Option<NodeId> {
        let conn = self.slots.get_mut(slot)?.take()?;
        let node = conn.link.node;
        self.free.push(slot);
        self.by_node.remove(&node);
        self.paused.retain(|&s| s != slot);
        Some(node)
    }

    fn close_slot(&mut self, slot: usize, worker: &mut Worker) -> Option<NodeId> {
        let node = self.take_slot(slot)?;
        worker.link_lost(node);
        Some(node)
    }

    pub fn close(&mut self, node: NodeId, worker: &mut Worker) -> bool {
        let slot = self.by_node.get(&node).copied();
        slot.and_then(|slot| self.close_slot(slot, worker)).is_some()
    }

    /// Reads once and executes what came, if the worker serves the link at a time that `now` tells after the reading. Returns the
    /// node of a link that ended.
    pub fn read(&mut self, token: u64, poll: &Poll, worker: &mut Worker, now: impl Fn() -> u64) -> Option<NodeId> {
        let slot = usize::try_from(token).ok()?;
        let conn = self.slots.get_mut(slot)?.as_mut()?;
        if !worker.may_read(conn.link.node) {
            pause(conn, slot, poll, &mut self.paused);
            return None;
        }
        match read_once(conn, &mut self.buffer, worker, now) {
            Came::Executed => None,
            Came::Kept => {
                pause(conn, slot, poll, &mut self.paused);
                None
            }
            Came::End => self.close_slot(slot, worker),
        }
    }

    /// Goes on with those that were paused and may go on. Returns the nodes of links that ended.
    pub fn resume(&mut self, poll: &Poll, worker: &mut Worker, now: impl Fn() -> u64) -> Vec<NodeId> {
        let mut ended = Vec::new();
        for slot in std::mem::take(&mut self.paused) {
            let Some(Some(conn)) = self.slots.get_mut(slot) else { continue };
            let node = conn.link.node;
            if !worker.may_read(node) {
                self.paused.push(slot);
                continue;
            }
            if !worker.serves(node, now()) {
                match if worker.refuses(node) { refuse_partial(conn, worker) } else { Came::Kept } {
                    Came::Kept => self.paused.push(slot),
                    Came::Executed => set_interest(conn, slot, poll, Interest { read: true, ..conn.interest }),
                    Came::End => ended.extend(self.close_slot(slot, worker)),
                }
                continue;
            }
            set_interest(conn, slot, poll, Interest { read: true, ..conn.interest });
            if !execute_partial(conn, worker) {
                ended.extend(self.close_slot(slot, worker));
            }
        }
        ended
    }

    /// Writes what the worker has for a node. Returns false if the link ended.
    pub fn write(&mut self, node: NodeId, poll: &Poll, worker: &mut Worker) -> bool {
        let Some(&slot) = self.by_node.get(&node) else { return true };
        let Some(Some(conn)) = self.slots.get_mut(slot) else { return true };
        loop {
            let bytes = worker.output(node);
            if bytes.is_empty() {
                set_interest(conn, slot, poll, Interest { write: false, ..conn.interest });
                return true;
            }
            match conn.link.stream.write(bytes) {
                Ok(0) => break,
                Ok(n) => worker.sent(node, n),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    set_interest(conn, slot, poll, Interest { write: true, ..conn.interest });
                    return true;
                }
                Err(_) => break,
            }
        }
        self.close_slot(slot, worker);
        false
    }

    /// After a panic of this worker: the whole frames that it had for a client, then this one, as far as the socket takes them. A client that is
    /// behind hears nothing: where its frames begin is not known.
    pub fn write_last(&mut self, node: NodeId, frame: &[u8], worker: &Worker) {
        let slot = self.by_node.get(&node).and_then(|&slot| self.slots.get_mut(slot));
        let Some(Some(conn)) = slot else { return };
        if conn.interest.write {
            return;
        }
        let before = worker.output(node);
        let mut whole = 0;
        while let Ok(Some(length)) = frame_length(&before[whole..])
            && whole + length <= before.len()
        {
            whole += length;
        }
        let _ = conn.link.stream.write(&[&before[..whole], frame].concat());
    }

    pub fn node_of(&self, token: u64) -> Option<NodeId> {
        let slot = usize::try_from(token).ok()?;
        self.slots.get(slot)?.as_ref().map(|conn| conn.link.node)
    }
}

fn set_interest(conn: &mut Conn, slot: usize, poll: &Poll, interest: Interest) {
    if conn.interest != interest {
        // Cannot fail for a socket that is registered; if it did, the peer's heartbeat would find the silent link.
        let _ = poll.change(&conn.link.stream, slot as u64, interest);
        conn.interest = interest;
    }
}

fn pause(conn: &mut Conn, slot: usize, poll: &Poll, paused: &mut Vec<usize>) {
    set_interest(conn, slot, poll, Interest { read: false, ..conn.interest });
    if !paused.contains(&slot) {
        paused.push(slot);
    }
}

/// What became of the bytes of one read.
enum Came {
    Executed,
    /// In [`Conn::partial`], until the worker serves clients again.
    Kept,
    /// The link ended or its bytes do not follow the protocol.
    End,
}

/// False: the bytes do not follow the protocol.
fn execute_partial(conn: &mut Conn, worker: &mut Worker) -> bool {
    let Ok(consumed) = worker.deliver_frames(conn.link.node, &conn.partial) else { return false };
    conn.partial.drain(..consumed);
    conn.partial.shrink_to(HEAD_BYTES.max(2 * conn.partial.len()));
    true
}

/// Answers a client that is not served.
fn refuse_partial(conn: &mut Conn, worker: &mut Worker) -> Came {
    let Ok(consumed) = worker.refuse_frames(conn.link.node, &conn.partial) else { return Came::End };
    conn.partial.drain(..consumed);
    conn.partial.shrink_to(HEAD_BYTES.max(2 * conn.partial.len()));
    Came::Executed
}

fn read_once(conn: &mut Conn, buffer: &mut [u8], worker: &mut Worker, now: impl Fn() -> u64) -> Came {
    let in_front = if conn.partial.len() <= HEAD_BYTES { conn.partial.len() } else { 0 };
    let got = match conn.link.stream.read(&mut buffer[in_front..in_front + READ_BYTES]) {
        Ok(0) => return Came::End,
        Ok(n) => n,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Came::Executed,
        Err(_) => return Came::End,
    };
    let node = conn.link.node;
    if node.is_client() && !worker.serves(node, now()) {
        conn.partial.extend_from_slice(&buffer[in_front..in_front + got]);
        return if worker.refuses(node) { refuse_partial(conn, worker) } else { Came::Kept };
    }
    if in_front < conn.partial.len() {
        conn.partial.extend_from_slice(&buffer[..got]);
        return if execute_partial(conn, worker) { Came::Executed } else { Came::End };
    }
    buffer[..in_front].copy_from_slice(&conn.partial);
    let Ok(consumed) = worker.deliver_frames(node, &buffer[..in_front + got]) else { return Came::End };
    conn.partial.clear();
    conn.partial.extend_from_slice(&buffer[consumed..in_front + got]);
    Came::Executed
}

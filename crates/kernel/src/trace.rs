//! What a crash report remembers: the last signals and the last code points of a worker.

use apus_signal::Envelope;

use crate::limits::{JAM_RING, SIGNAL_RING, SIGNAL_RING_BODY};

/// A place in the code, made by [`crate::jam!`].
#[derive(Debug)]
pub struct JamPoint {
    pub file: &'static str,
    pub line: u32,
}

static NOWHERE: JamPoint = JamPoint { file: "", line: 0 };

/// The last [`JAM_RING`] code points.
pub struct JamRing {
    points: Box<[&'static JamPoint; JAM_RING]>,
    next: usize,
}

impl JamRing {
    pub fn new() -> JamRing {
        JamRing { points: Box::new([&NOWHERE; JAM_RING]), next: 0 }
    }
    #[inline]
    pub fn push(&mut self, point: &'static JamPoint) {
        self.points[self.next & (JAM_RING - 1)] = point;
        self.next = self.next.wrapping_add(1);
    }
    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static JamPoint> {
        (0..JAM_RING).map(|i| self.points[self.next.wrapping_add(i) & (JAM_RING - 1)]).filter(|p| p.line != 0)
    }
}

impl Default for JamRing {
    fn default() -> JamRing {
        JamRing::new()
    }
}

#[derive(Clone, Copy)]
pub struct SignalTrace {
    pub envelope: Envelope,
    /// Monotonic time of the round in which it was executed.
    pub at_ns: u64,
    pub body_bytes: u32,
    body: [u8; SIGNAL_RING_BODY],
}

impl SignalTrace {
    #[inline]
    fn fill(&mut self, envelope: &Envelope, body: &[u8], at_ns: u64) {
        self.envelope = *envelope;
        self.at_ns = at_ns;
        self.body_bytes = body.len() as u32;
        match body.first_chunk::<SIGNAL_RING_BODY>() {
            Some(head) => self.body = *head,
            None => self.body[..body.len()].copy_from_slice(body),
        }
    }
    /// The first bytes of the body.
    pub fn body(&self) -> &[u8] {
        &self.body[..(self.body_bytes as usize).min(SIGNAL_RING_BODY)]
    }
}

/// The last [`SIGNAL_RING`] executed signals; grows to that size and stays there.
#[derive(Default)]
pub struct SignalRing {
    entries: Vec<SignalTrace>,
    next: usize,
}

impl SignalRing {
    #[inline]
    pub fn push(&mut self, envelope: &Envelope, body: &[u8], at_ns: u64) {
        let at = self.next & (SIGNAL_RING - 1);
        self.next = self.next.wrapping_add(1);
        let Some(entry) = self.entries.get_mut(at) else { return self.grow(envelope, body, at_ns) };
        entry.fill(envelope, body, at_ns);
    }
    #[cold]
    fn grow(&mut self, envelope: &Envelope, body: &[u8], at_ns: u64) {
        let mut entry = SignalTrace { envelope: *envelope, at_ns, body_bytes: 0, body: [0; SIGNAL_RING_BODY] };
        entry.fill(envelope, body, at_ns);
        self.entries.push(entry);
    }
    pub fn newest(&self) -> Option<&SignalTrace> {
        self.entries.get(self.next.wrapping_sub(1) & (SIGNAL_RING - 1))
    }
    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &SignalTrace> {
        let oldest = if self.entries.len() < SIGNAL_RING { 0 } else { self.next & (SIGNAL_RING - 1) };
        let (newer, older) = self.entries.split_at(oldest);
        older.iter().chain(newer)
    }
}

//! The requests in flight: a slab whose ids carry a generation, so that a late answer to a forgotten request is recognised.

use std::task::{Context, Poll, Waker};

use apus_signal::Kind;

use crate::rows::BUFFER_KEPT_MAX;

/// Slot and generation: `generation << 32 | slot`. Never 0; 0 on the wire means that nobody waits for the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(pub u64);

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The body is in the caller's buffer.
    Answer(Kind),
    LinkLost,
    TimedOut,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Next free slot; `u32::MAX` ends the list.
    Free(u32),
    Waiting,
    Done(Verdict),
}

struct Slot {
    generation: u32,
    state: State,
    link: u16,
    expects: Kind,
    deadline: u64,
    /// It is not waited for while all members are frozen.
    is_forgone: bool,
    waker: Option<Waker>,
    body: Vec<u8>,
}

pub(crate) struct RequestTable {
    slots: Vec<Slot>,
    free: u32,
    used: usize,
    max: usize,
}

const END: u32 = u32::MAX;

impl RequestTable {
    pub fn new(max: usize) -> RequestTable {
        RequestTable { slots: Vec::new(), free: END, used: 0, max: max.min(END as usize - 1) }
    }
    pub fn is_full(&self) -> bool {
        self.used >= self.max
    }
    pub fn in_flight(&self) -> usize {
        self.used
    }

    /// # Panics
    /// When full: callers wait for room first.
    #[inline]
    pub fn add(&mut self, link: u16, expects: Kind, deadline: u64) -> RequestId {
        assert!(!self.is_full(), "request added to a full table");
        self.used += 1;
        if self.free == END {
            let index = self.slots.len() as u64;
            let state = State::Waiting;
            self.slots.push(Slot {
                generation: 1,
                state,
                link,
                expects,
                deadline,
                is_forgone: false,
                waker: None,
                body: Vec::new(),
            });
            return RequestId(1 << 32 | index);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        let State::Free(next) = slot.state else { unreachable!("slot {index} on the free list is in use") };
        self.free = next;
        slot.state = State::Waiting;
        slot.link = link;
        slot.expects = expects;
        slot.deadline = deadline;
        slot.is_forgone = false;
        RequestId(u64::from(slot.generation) << 32 | u64::from(index))
    }

    #[inline]
    fn find(&mut self, id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        (slot.generation == (id >> 32) as u32).then_some(slot)
    }

    /// Hands an answer to whoever waits; `Err` when this kind is no answer to that request. A stale id is ignored.
    #[inline]
    pub fn answer(&mut self, id: u64, link: u16, kind: Kind, body: &[u8]) -> Result<(), Kind> {
        let Some(slot) = self.find(id).filter(|s| s.state == State::Waiting) else { return Ok(()) };
        let refused = matches!(kind, Kind::RequestRef | Kind::TcBatchRef | Kind::DictReadRef | Kind::SchemaRef);
        if slot.link != link || (slot.expects != kind && !refused) {
            return Err(slot.expects);
        }
        slot.state = State::Done(Verdict::Answer(kind));
        slot.body.clear();
        slot.body.extend_from_slice(body);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Ready when the request ended; the answer's body is swapped with `body` and the slot is free again.
    #[inline]
    pub fn poll(&mut self, id: RequestId, body: &mut Vec<u8>, cx: &Context<'_>) -> Poll<Verdict> {
        let slot = self.find(id.0).expect("a request is polled until it ended, not longer");
        match slot.state {
            State::Done(verdict) => {
                std::mem::swap(&mut slot.body, body);
                self.release(id);
                Poll::Ready(verdict)
            }
            _ => {
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Nobody waits for it any more.
    pub fn forget(&mut self, id: RequestId) {
        if self.find(id.0).is_some_and(|s| !matches!(s.state, State::Free(_))) {
            self.release(id);
        }
    }

    #[inline]
    fn release(&mut self, id: RequestId) {
        let index = id.0 as u32;
        let free = self.free;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        slot.state = State::Free(free);
        slot.waker = None;
        if slot.body.capacity() > BUFFER_KEPT_MAX / 16 {
            slot.body = Vec::new();
        }
        self.free = index;
        self.used -= 1;
    }

    /// The link is gone: every request on it ends.
    pub fn lose_link(&mut self, link: u16) {
        self.end_where(Verdict::LinkLost, |slot| slot.link == link);
    }
    /// Whatever it says does not matter to the caller enough to wait for frozen nodes.
    pub fn forgo(&mut self, id: RequestId) {
        if let Some(slot) = self.find(id.0) {
            slot.is_forgone = true;
        }
    }
    /// All members are frozen.
    pub fn end_forgone(&mut self) {
        self.end_where(Verdict::TimedOut, |slot| slot.is_forgone);
    }
    pub fn expire(&mut self, now: u64) {
        self.end_where(Verdict::TimedOut, |slot| slot.deadline <= now);
    }
    fn end_where(&mut self, verdict: Verdict, matches: impl Fn(&Slot) -> bool) {
        for slot in &mut self.slots {
            if slot.state == State::Waiting && matches(slot) {
                slot.state = State::Done(verdict);
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_foreign_answers_do_no_harm() {
        let cx = &Context::from_waker(Waker::noop());
        let mut table = RequestTable::new(2);
        let mut body = Vec::new();
        let first = table.add(0, Kind::ReadConf, 10);
        let second = table.add(1, Kind::ScanConf, 20);
        assert!(table.is_full());
        assert_eq!(table.answer(first.0, 0, Kind::ScanConf, b""), Err(Kind::ReadConf));
        assert_eq!(table.answer(first.0, 1, Kind::ReadConf, b""), Err(Kind::ReadConf));
        assert_eq!(table.answer(u64::MAX, 0, Kind::ReadConf, b""), Ok(()));
        assert_eq!(table.poll(first, &mut body, cx), Poll::Pending);
        table.answer(first.0, 0, Kind::ReadConf, b"one").unwrap();
        assert_eq!(table.poll(first, &mut body, cx), Poll::Ready(Verdict::Answer(Kind::ReadConf)));
        assert_eq!(body, b"one");
        let again = table.add(0, Kind::ReadConf, 30);
        assert_eq!((again.0 as u32, again.0 == first.0), (first.0 as u32, false));
        table.answer(first.0, 0, Kind::ReadConf, b"late").unwrap();
        assert_eq!(table.poll(again, &mut body, cx), Poll::Pending);
        table.lose_link(1);
        assert_eq!(table.poll(second, &mut body, cx), Poll::Ready(Verdict::LinkLost));
        table.expire(30);
        assert_eq!(table.poll(again, &mut body, cx), Poll::Ready(Verdict::TimedOut));
        assert_eq!(table.in_flight(), 0);
        table.forget(again);
        assert_eq!(table.in_flight(), 0);
    }
}

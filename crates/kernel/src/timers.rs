//! Delayed signals: a heap of deadlines over slots that keep their buffers.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::limits::{TIMER_BYTES_KEPT, TIMERS_MAX};

#[derive(Default)]
pub(crate) struct Timers {
    /// (deadline, order of arming, slot): equal deadlines fire in the order in which they were armed.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Vec<u8>>,
    free: Vec<u32>,
    armed: u64,
}

impl Timers {
    /// The buffer into which the caller writes the frame that will be delivered at `deadline_ns`.
    pub fn arm(&mut self, deadline_ns: u64) -> &mut Vec<u8> {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < TIMERS_MAX, "more than {TIMERS_MAX} delayed signals");
            self.slots.push(Vec::new());
            (self.slots.len() - 1) as u32
        });
        self.armed += 1;
        self.heap.push(Reverse((deadline_ns, self.armed, slot)));
        &mut self.slots[slot as usize]
    }
    pub fn next_deadline(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((deadline, ..))| *deadline)
    }
    /// Moves the frames that are due to the end of `out`.
    pub fn fire(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        while let Some(&Reverse((deadline, _, slot))) = self.heap.peek()
            && deadline <= now_ns
        {
            self.heap.pop();
            let frame = &mut self.slots[slot as usize];
            out.extend_from_slice(frame);
            frame.clear();
            frame.shrink_to(TIMER_BYTES_KEPT);
            self.free.push(slot);
        }
    }
    pub fn count(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_of_deadline_then_arming() {
        let mut timers = Timers::default();
        for (deadline, byte) in [(30, 3), (10, 1), (10, 2), (40, 4)] {
            timers.arm(deadline).push(byte);
        }
        let mut out = Vec::new();
        timers.fire(9, &mut out);
        assert!(out.is_empty());
        timers.fire(30, &mut out);
        assert_eq!(out, [1, 2, 3]);
        assert_eq!((timers.next_deadline(), timers.count(), timers.free.len()), (Some(40), 1, 3));
        timers.arm(50).push(5);
        assert_eq!(timers.slots.len(), 4);
    }
}

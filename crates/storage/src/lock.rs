//! Row locks: shared and exclusive, a FIFO queue per row.
//!
//! A row slot holds one lock word. 0 is free; with [`SOLE`] set, the low bits are the transaction that holds the row exclusively and
//! nobody waits (the common case: no memory but the word); otherwise the word is the number of a [`Head`] in the pool plus one.
//!
//! Grants are FIFO: a request waits behind any earlier one that is waiting, even if it would be compatible with the holders. Only
//! an upgrade (shared holder asks for exclusive) waits at the front, because it can never be granted behind someone who waits for it.
//! So requests of holders are the first ones of a queue, and nobody who leaves has to look at the others.

use std::collections::VecDeque;

use apus_types::collections::FixedMap;

/// Lock mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    Shared,
    Exclusive,
}

/// Answer of [`Locks::acquire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    Granted,
    /// The owner holds the row already in a mode that suffices.
    AlreadyHeld,
    /// Queued; [`Grant`] will name owner and waiter.
    Waiting,
    /// Refused because the caller did not want to wait; nothing was queued.
    WouldWait,
}

/// A queued request that was granted by somebody's leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub owner: u32,
    pub waiter: u32,
}

/// What a short list takes on the heap.
const HEAP_BYTES: usize = 32;
/// Heads that are kept for the next locks.
const KEPT_MAX: usize = 4096;
const SOLE: u32 = 1 << 31;
/// Owners and heads must fit below the flag.
pub const OWNER_MAX: u32 = SOLE - 2;

#[derive(Clone, Copy, Debug)]
struct Waiter {
    owner: u32,
    mode: LockMode,
    waiter: u32,
}

#[derive(Default, Debug)]
struct Head {
    exclusive: bool,
    holders: Holders,
    queue: VecDeque<Waiter>,
}

/// From so many holders on a map knows their places.
const LISTED_MAX: usize = 16;

/// Who holds a row: a short list mostly, of any number if many share it.
#[derive(Default, Debug)]
struct Holders {
    list: Vec<u32>,
    /// The place of each in the list if there are more than [`LISTED_MAX`], and otherwise nothing.
    places: FixedMap<u32, u32>,
}

impl Holders {
    fn place(&self, owner: u32) -> Option<usize> {
        if self.places.is_empty() {
            return self.list.iter().position(|&h| h == owner);
        }
        self.places.get(&owner).map(|place| *place as usize)
    }
    fn push(&mut self, owner: u32) {
        self.list.push(owner);
        match self.list.len() {
            0..=LISTED_MAX => {}
            n if self.places.is_empty() => self.places.extend(self.list.iter().copied().zip(0..n as u32)),
            n => _ = self.places.insert(owner, n as u32 - 1),
        }
        assert!(self.places.is_empty() || self.places.len() == self.list.len(), "{owner} holds a row twice");
    }
    /// The last one comes to its place.
    fn remove(&mut self, owner: u32) -> bool {
        let Some(place) = self.place(owner) else { return false };
        self.list.swap_remove(place);
        if !self.places.is_empty() {
            self.places.remove(&owner);
            if let Some(&moved) = self.list.get(place) {
                self.places.insert(moved, place as u32);
            }
            if self.list.len() <= LISTED_MAX {
                self.places.clear();
            }
        }
        true
    }
}

/// The lock queues of one LDM instance.
#[derive(Default, Debug)]
pub struct Locks {
    heads: Vec<Head>,
    free: Vec<u32>,
    /// Requests that somebody who left has looked at.
    #[cfg(test)]
    looked_at: usize,
}

impl Locks {
    #[inline]
    pub fn acquire(&mut self, word: &mut u32, owner: u32, mode: LockMode, waiter: u32, may_wait: bool) -> Acquire {
        assert!(owner <= OWNER_MAX, "lock owner {owner} out of range");
        if *word == 0 {
            if mode == LockMode::Exclusive {
                *word = SOLE | owner;
            } else {
                let head = self.new_head(word);
                head.exclusive = false;
                head.holders.push(owner);
            }
            return Acquire::Granted;
        }
        if *word == SOLE | owner {
            return Acquire::AlreadyHeld;
        }
        self.acquire_contended(word, owner, mode, waiter, may_wait)
    }

    fn acquire_contended(
        &mut self,
        word: &mut u32,
        owner: u32,
        mode: LockMode,
        waiter: u32,
        may_wait: bool,
    ) -> Acquire {
        if *word & SOLE != 0 {
            if !may_wait {
                return Acquire::WouldWait;
            }
            let holder = *word & !SOLE;
            let head = self.new_head(word);
            head.exclusive = true;
            head.holders.push(holder);
            head.queue.push_back(Waiter { owner, mode, waiter });
            return Acquire::Waiting;
        }
        let head = &mut self.heads[(*word - 1) as usize];
        assert!(!head.holders.list.is_empty(), "a row is locked by nobody, {} wait", head.queue.len());
        let holds = head.holders.place(owner).is_some();
        if holds && (head.exclusive || mode == LockMode::Shared) {
            return Acquire::AlreadyHeld;
        }
        if holds && head.holders.list.len() == 1 {
            head.exclusive = true; // an upgrade with nobody in the way
            return Acquire::Granted;
        }
        if !holds && !head.exclusive && mode == LockMode::Shared && head.queue.is_empty() {
            head.holders.push(owner);
            return Acquire::Granted;
        }
        if !may_wait {
            return Acquire::WouldWait;
        }
        let request = Waiter { owner, mode, waiter };
        let own = head.queue.iter().rposition(|w| w.owner == owner);
        match own {
            // Two requests of one transaction must not stand around somebody else's: that would be a deadlock with itself.
            Some(place) => head.queue.insert(place + 1, request),
            None if holds => head.queue.push_front(request),
            None => head.queue.push_back(request),
        }
        Acquire::Waiting
    }

    /// The owner leaves the row, as holder and as waiter; requests that can be granted now are appended to `granted`, in order.
    #[inline]
    pub fn release(&mut self, word: &mut u32, owner: u32, granted: &mut Vec<Grant>) {
        if *word == SOLE | owner {
            *word = 0;
        } else {
            self.release_contended(word, owner, granted);
        }
    }

    fn release_contended(&mut self, word: &mut u32, owner: u32, granted: &mut Vec<Grant>) {
        if *word == 0 || *word & SOLE != 0 {
            return;
        }
        let head = &mut self.heads[(*word - 1) as usize];
        if head.holders.remove(owner) {
            // Its own requests are behind those of other holders at most.
            let first =
                head.queue.iter().take_while(|w| w.owner != owner && head.holders.place(w.owner).is_some()).count();
            let own = head.queue.iter().skip(first).take_while(|w| w.owner == owner).count();
            head.queue.drain(first..first + own);
            #[cfg(test)]
            {
                self.looked_at += first + own + 1;
            }
        } else {
            head.queue.retain(|w| w.owner != owner);
        }
        self.grant(word, granted);
    }

    /// Takes the owner's waiting requests out of the queue; who stood behind them may be granted.
    pub fn cancel_wait(&mut self, word: &mut u32, owner: u32, granted: &mut Vec<Grant>) {
        if *word == 0 || *word & SOLE != 0 {
            return;
        }
        let head = &mut self.heads[(*word - 1) as usize];
        head.queue.retain(|w| w.owner != owner);
        self.grant(word, granted);
    }

    fn grant(&mut self, word: &mut u32, granted: &mut Vec<Grant>) {
        let number = *word - 1;
        let head = &mut self.heads[number as usize];
        while let Some(&first) = head.queue.front() {
            let alone = head.holders.list.is_empty() || head.holders.list == [first.owner];
            if !alone && (head.exclusive || first.mode == LockMode::Exclusive) {
                break;
            }
            head.queue.pop_front();
            // A second request of the only holder never weakens what it has.
            head.exclusive = first.mode == LockMode::Exclusive || (head.exclusive && !head.holders.list.is_empty());
            if head.holders.place(first.owner).is_none() {
                head.holders.push(first.owner);
            }
            granted.push(Grant { owner: first.owner, waiter: first.waiter });
        }
        assert!(!head.exclusive || head.holders.list.len() <= 1, "a row is held exclusively by {:?}", head.holders);
        assert!(
            !head.holders.list.is_empty() || head.queue.is_empty(),
            "{} wait for a row that nobody holds",
            head.queue.len()
        );
        if head.queue.is_empty() && (head.holders.list.is_empty() || (head.exclusive && head.holders.list.len() == 1)) {
            *word = head.holders.list.first().map_or(0, |&h| SOLE | h);
            head.holders.list.clear();
            head.holders.places.clear();
            head.exclusive = false;
            self.free.push(number);
        }
    }

    fn new_head(&mut self, word: &mut u32) -> &mut Head {
        let number = self.free.pop().unwrap_or_else(|| {
            self.heads.push(Head::default());
            (self.heads.len() - 1) as u32
        });
        *word = number + 1;
        let head = &mut self.heads[number as usize];
        assert!(head.holders.list.is_empty() && head.queue.is_empty(), "head {number} of a lock is given out twice");
        head
    }

    /// The mode in which the owner holds the row, if it does.
    #[inline]
    pub fn held_mode(&self, word: u32, owner: u32) -> Option<LockMode> {
        if word & SOLE != 0 {
            return (word == SOLE | owner).then_some(LockMode::Exclusive);
        }
        let head = self.heads.get(word.checked_sub(1)? as usize)?;
        let mode = if head.exclusive { LockMode::Exclusive } else { LockMode::Shared };
        head.holders.place(owner).map(|_| mode)
    }

    /// The owner of the lock of a row that has an open change of this writer: its high half.
    #[inline]
    pub fn owner_of(writer: u64) -> u32 {
        (writer >> 32) as u32
    }
    /// The word of a row that is locked by such a change.
    #[inline]
    pub fn of_writer(writer: u64) -> u32 {
        Locks::sole(Locks::owner_of(writer))
    }
    /// The word of a row that `owner` holds exclusively and for which nobody waits.
    #[inline]
    pub fn sole(owner: u32) -> u32 {
        assert!(owner <= OWNER_MAX, "lock owner {owner} out of range");
        SOLE | owner
    }
    /// Somebody other than `owner` holds the row, or waits for it with somebody.
    #[inline]
    pub fn is_contended(word: u32, owner: u32) -> bool {
        word != 0 && word != SOLE | owner
    }
    /// The holder in this place, if there are so many.
    pub fn holder(&self, word: u32, place: usize) -> Option<u32> {
        if word & SOLE != 0 {
            return (place == 0).then_some(word & !SOLE);
        }
        self.heads.get(word.checked_sub(1)? as usize)?.holders.list.get(place).copied()
    }
    /// How many requests wait for the row.
    pub fn waiting(&self, word: u32) -> usize {
        if word & SOLE != 0 {
            return 0;
        }
        word.checked_sub(1).and_then(|n| self.heads.get(n as usize)).map_or(0, |head| head.queue.len())
    }
    /// Who holds the row; for checks.
    pub fn holders(&self, word: u32) -> Vec<u32> {
        if word & SOLE != 0 {
            return vec![word & !SOLE];
        }
        let head = word.checked_sub(1).and_then(|n| self.heads.get(n as usize));
        head.map_or_else(Vec::new, |head| head.holders.list.clone())
    }

    /// Whom a waiting owner waits for: holders in conflict, and earlier waiters in conflict back to the nearest exclusive one, which waits for all
    /// before it itself. With all of them a queue of 30 would have a thousand million ways through it.
    pub fn blockers(&self, word: u32, owner: u32, out: &mut Vec<u32>) {
        if word & SOLE != 0 {
            if word & !SOLE != owner {
                out.push(word & !SOLE);
            }
            return;
        }
        let Some(head) = word.checked_sub(1).and_then(|n| self.heads.get(n as usize)) else { return };
        let Some(place) = head.queue.iter().position(|w| w.owner == owner) else { return };
        let mode = head.queue[place].mode;
        let conflicts = |other: LockMode| mode == LockMode::Exclusive || other == LockMode::Exclusive;
        let held = if head.exclusive { LockMode::Exclusive } else { LockMode::Shared };
        out.extend(head.holders.list.iter().copied().filter(|&h| h != owner && conflicts(held)));
        for waiter in head.queue.iter().take(place).rev().filter(|w| w.owner != owner && conflicts(w.mode)) {
            out.push(waiter.owner);
            if waiter.mode == LockMode::Exclusive {
                break;
            }
        }
    }

    /// Bytes of the heads, a holder and a waiter of each that is in use included.
    pub fn bytes(&self) -> usize {
        self.heads.len() * size_of::<Head>() + self.heads_in_use() * (2 * HEAP_BYTES)
    }
    /// Gives memory back that was needed for many locks at once, if there are none.
    pub fn trim(&mut self) {
        if self.heads.len() > KEPT_MAX && self.heads_in_use() == 0 {
            (self.heads, self.free) = (Vec::new(), Vec::new());
        }
    }
    /// Rows with a queue or several holders.
    pub fn heads_in_use(&self) -> usize {
        self.heads.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_many_shared_locks_is_told_and_given_back() {
        let (mut locks, mut words) = (Locks::default(), vec![0u32; 2 * KEPT_MAX]);
        for word in &mut words {
            assert_eq!(locks.acquire(word, 1, LockMode::Shared, 0, false), Acquire::Granted);
        }
        let held = locks.bytes();
        assert!(held > words.len() * 100, "{held}");
        locks.trim();
        assert_eq!(locks.bytes(), held, "they are in use");
        words.iter_mut().for_each(|word| locks.release(word, 1, &mut Vec::new()));
        locks.trim();
        assert_eq!((locks.bytes(), locks.heads_in_use()), (0, 0));
    }

    #[test]
    fn fifo_upgrade_and_release() {
        let mut locks = Locks::default();
        let (mut word, mut granted) = (0, Vec::new());
        use {Acquire::*, LockMode::*};
        assert_eq!(locks.acquire(&mut word, 1, Exclusive, 0, true), Granted);
        assert_eq!(locks.acquire(&mut word, 1, Shared, 0, true), AlreadyHeld);
        assert_eq!(locks.heads_in_use(), 0);
        assert_eq!(locks.acquire(&mut word, 2, Shared, 20, true), Waiting);
        assert_eq!(locks.acquire(&mut word, 3, Shared, 30, true), Waiting);
        assert_eq!(locks.acquire(&mut word, 4, Exclusive, 40, true), Waiting);
        assert_eq!(locks.acquire(&mut word, 5, Shared, 50, false), WouldWait);
        let mut blockers = Vec::new();
        locks.blockers(word, 4, &mut blockers);
        blockers.sort_unstable();
        assert_eq!(blockers, [1, 2, 3]);
        locks.release(&mut word, 1, &mut granted);
        assert_eq!(granted, [Grant { owner: 2, waiter: 20 }, Grant { owner: 3, waiter: 30 }]);
        granted.clear();
        assert_eq!(locks.acquire(&mut word, 2, Exclusive, 21, true), Waiting);
        locks.release(&mut word, 3, &mut granted);
        assert_eq!(granted, [Grant { owner: 2, waiter: 21 }], "the upgrade goes first");
        granted.clear();
        locks.release(&mut word, 2, &mut granted);
        assert_eq!(granted, [Grant { owner: 4, waiter: 40 }]);
        assert_eq!(locks.held_mode(word, 4), Some(Exclusive));
        locks.release(&mut word, 4, &mut granted);
        assert_eq!((word, locks.heads_in_use()), (0, 0));
    }

    #[test]
    fn two_waiting_requests_of_one_transaction_are_granted_together() {
        for (first, second) in [
            (LockMode::Exclusive, LockMode::Shared),
            (LockMode::Shared, LockMode::Exclusive),
            (LockMode::Exclusive, LockMode::Exclusive),
        ] {
            let mut locks = Locks::default();
            let (mut word, mut granted) = (0, Vec::new());
            locks.acquire(&mut word, 1, LockMode::Exclusive, 0, true);
            locks.acquire(&mut word, 2, first, 20, true);
            locks.acquire(&mut word, 3, LockMode::Exclusive, 30, true);
            locks.acquire(&mut word, 2, second, 21, true);
            locks.release(&mut word, 1, &mut granted);
            assert_eq!(granted, [Grant { owner: 2, waiter: 20 }, Grant { owner: 2, waiter: 21 }]);
            assert_eq!(locks.held_mode(word, 2), Some(LockMode::Exclusive));
            granted.clear();
            locks.release(&mut word, 2, &mut granted);
            assert_eq!(granted, [Grant { owner: 3, waiter: 30 }]);
        }
    }

    /// Random requests of few transactions for one row: never two holders in conflict, never a waiter that nobody blocks.
    #[test]
    fn random_requests_keep_the_rules() {
        let (mut locks, mut word, mut granted) = (Locks::default(), 0, Vec::new());
        let mut waiting = [0u32; 6];
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..50_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let owner = (seed >> 20) as u32 % 6;
            let mode = if seed >> 40 & 1 == 0 { LockMode::Shared } else { LockMode::Exclusive };
            granted.clear();
            match seed % 8 {
                0..5 => {
                    let answer = locks.acquire(&mut word, owner, mode, 0, seed >> 41 & 3 != 0);
                    waiting[owner as usize] += u32::from(answer == Acquire::Waiting);
                }
                5 => {
                    locks.cancel_wait(&mut word, owner, &mut granted);
                    waiting[owner as usize] = 0;
                }
                _ => {
                    locks.release(&mut word, owner, &mut granted);
                    waiting[owner as usize] = 0;
                }
            }
            for grant in &granted {
                waiting[grant.owner as usize] -= 1;
            }
            let held: Vec<LockMode> = (0..6).filter_map(|o| locks.held_mode(word, o)).collect();
            assert!(held.len() < 2 || held.iter().all(|&m| m == LockMode::Shared), "{held:?}");
            for owner in (0..6).filter(|&o| waiting[o as usize] > 0) {
                let mut blockers = Vec::new();
                locks.blockers(word, owner, &mut blockers);
                assert!(!blockers.is_empty() || held.is_empty(), "transaction {owner} waits for nobody");
                assert!(!blockers.contains(&owner));
            }
            assert_eq!(locks.heads_in_use(), usize::from(word != 0 && word & SOLE == 0));
        }
    }

    /// Nobody who leaves looks at those that wait, nor at those that share the row with him.
    #[test]
    fn many_leave_a_row_for_which_many_wait() {
        const MANY: u32 = 2000;
        let mut locks = Locks::default();
        let (mut word, mut granted) = (0, Vec::new());
        for owner in 0..MANY {
            assert_eq!(locks.acquire(&mut word, owner, LockMode::Shared, 0, true), Acquire::Granted);
        }
        for owner in MANY..2 * MANY {
            assert_eq!(locks.acquire(&mut word, owner, LockMode::Exclusive, owner, true), Acquire::Waiting);
        }
        for owner in (0..MANY).rev() {
            assert!(granted.is_empty() && locks.held_mode(word, owner) == Some(LockMode::Shared));
            locks.release(&mut word, owner, &mut granted);
            assert_eq!(locks.held_mode(word, owner), None);
        }
        for owner in MANY..2 * MANY {
            assert_eq!(granted, [Grant { owner, waiter: owner }]);
            granted.clear();
            locks.release(&mut word, owner, &mut granted);
        }
        assert_eq!((word, locks.heads_in_use()), (0, 0));
        assert!(locks.looked_at <= 2 * 2 * MANY as usize, "{} requests were looked at", locks.looked_at);
    }

    /// As many as share a row keep their places whoever leaves first.
    #[test]
    fn holders_are_found_as_a_list_would_find_them() {
        let (mut holders, mut model, mut seed) = (Holders::default(), Vec::new(), 7u64);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let owner = (seed >> 40) as u32 % 40;
            match model.iter().position(|&h| h == owner) {
                Some(place) => {
                    model.swap_remove(place);
                    assert!(holders.remove(owner));
                }
                None => {
                    assert!(!holders.remove(owner));
                    model.push(owner);
                    holders.push(owner);
                }
            }
            assert_eq!(holders.list, model);
            assert!((0..40).all(|o| holders.place(o) == model.iter().position(|&h| h == o)));
        }
    }

    #[test]
    fn a_cancelled_wait_lets_others_through() {
        let mut locks = Locks::default();
        let (mut word, mut granted) = (0, Vec::new());
        locks.acquire(&mut word, 1, LockMode::Shared, 0, true);
        locks.acquire(&mut word, 2, LockMode::Exclusive, 20, true);
        locks.acquire(&mut word, 3, LockMode::Shared, 30, true);
        locks.cancel_wait(&mut word, 2, &mut granted);
        assert_eq!(granted, [Grant { owner: 3, waiter: 30 }]);
    }
}

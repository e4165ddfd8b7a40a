//! Memory of commits, so that a client whose link or coordinator is gone learns what became of its transaction.
//!
//! A client numbers its transactions without gaps, so the committed ones are bits: a *chunk* has those of 512 numbers that follow each other.
//! To record a commit is to set a bit in a chunk that is mostly the one of the commit before; a new chunk comes once in some hundred commits,
//! and is one of those given back.
//!
//! # What is kept
//!
//! A chunk is kept while it is younger than [`KEPT_NS`] *or* its client may ask for one of its numbers: clients tell the lowest that they need
//! (`TcFloorOrd`, about once per second, to every node they are linked to). Of a client that has said and done nothing for [`SILENT_NS`] only the
//! age counts. Chunks stand in a queue in the order in which they were last looked at; when a new one is needed, a few of the first are looked at again.
//! One whose last look is no older than [`KEPT_NS`] ends that: it and all behind it are young. So a client that fills its chunk slowly, and keeps it
//! young for minutes, does not keep the chunks of the others.
//!
//! # When it is full
//!
//! At [`CHUNKS_SOFT`], or at fewer where the memory region has no more, or [`CLIENT_CHUNKS_MAX`] for one client, new batches are refused with `OutcomesFull`, which is temporary. A transaction that
//! stays open does not lead there: its client raises the floor past it after [`FLOOR_DEPTH`] numbers. What is under way still commits and may use the rest. Beyond [`CHUNKS_MAX`] the oldest chunk is given up, and owned up to: a question about its numbers is answered
//! "forgotten", never "aborted".
//!
//! # A node that joins
//!
//! It knows of no commit from before, until it has learned those of the last [`KEPT_NS`] from the primaries of all its partitions
//! (`ldm::copy_outcomes`). If the last other replica is killed right then, the clients whose commits were under way still learn what became of them.

use std::collections::VecDeque;

use apus_signal::{
    copy::CommittedChunk,
    tc::{FLOOR_DEPTH, OUTCOME_LATE_MS, TcFloor},
};
use apus_types::{
    TransId,
    collections::{SeededMap, seeded_map},
};

/// Most chunks of one LDM instance: 50 MB, and 20 MB of index; a thousand clients with 260,000 numbers each.
pub const CHUNKS_MAX: usize = 1 << 19;
/// New batches are refused from here on.
pub const CHUNKS_SOFT: usize = CHUNKS_MAX / 8 * 7;
/// Most chunks of one client.
pub const CLIENT_CHUNKS_MAX: u32 = (CHUNKS_MAX / 4) as u32;
// 32 clients with a transaction that stays open leave half of the rest to what is young.
const _: () =
    assert!(FLOOR_DEPTH / CHUNK * 32 <= CHUNKS_SOFT as u64 / 7 * 4 && FLOOR_DEPTH / CHUNK < CLIENT_CHUNKS_MAX as u64);
/// A commit is remembered for so long in any case, in nanoseconds: as long as a client asks by itself (`outcome_timeout_ms`).
pub const KEPT_NS: u64 = 10_000_000_000;
/// A client that neither commits nor tells what it needs for so long, in nanoseconds, needs nothing.
pub const SILENT_NS: u64 = 600_000_000_000;
/// Added to the age that a client names: what its question may be late, or it takes no answer that depends on it.
const LATENESS_NS: u64 = OUTCOME_LATE_MS as u64 * 1_000_000;
/// So is one part in so many of the age: two clocks that are wrong by 3 % each differ by less.
const DRIFT: u64 = 16;
/// A statement that waits for a node to leave is not older.
const STATEMENT_NS: u64 = 500_000_000;
/// Room for so many is there from the beginning.
const CHUNKS_READY: usize = 256;
/// Numbers of a chunk.
const CHUNK: u64 = CommittedChunk::NUMBERS;
/// Chunks that are looked at for the newest commits.
const RECENT_CHUNKS: usize = 1 << 16;
/// Chunks that are looked at when a new one is needed.
const LOOKS: usize = 4;

#[derive(Debug, Default)]
struct Chunk {
    client: u64,
    /// Of the chunk: its first number divided by [`CHUNK`].
    number: u64,
    /// When its newest commit was recorded.
    newest: u64,
    /// When it was made or looked at.
    looked_at: u64,
    bits: [u64; CHUNK as usize / 64],
}

#[derive(Debug, Default)]
struct Client {
    /// The lowest number that it may still ask for.
    floor: u64,
    /// All below may have been given up although they were needed.
    lost_below: u64,
    chunks: u32,
    /// When it was last heard of.
    heard: u64,
    /// Time of the newest of its commits that were given up.
    newest_lost: u64,
}

#[derive(Debug, Default)]
pub struct Outcomes {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    /// Chunks in use, by their last look.
    order: VecDeque<u32>,
    places: SeededMap<(u64, u64), u32>,
    clients: SeededMap<u64, Client>,
    /// The chunk of the last commit.
    last: Option<u32>,
    /// Time of the newest commit of any client that may have been forgotten. One that was learned may be older than this process, whose clock began at 0: negative.
    forgotten_at: Option<i64>,
    /// The same of commits that a client may still need.
    lost_at: Option<i64>,
    /// This node has joined then, and has not learned yet what was before.
    joined_at: Option<i64>,
    /// The time of the last call that knew it.
    now: u64,
    /// While there is no memory for more: from so many chunks on new batches are refused.
    refused_at: Option<usize>,
}

/// Of a transaction that was so old when its client asked, by the client's clock.
fn longest_age(age_ns: u64) -> u64 {
    age_ns + age_ns / DRIFT + LATENESS_NS
}

fn bit(trans: TransId) -> (usize, u64) {
    let at = trans.seq % CHUNK;
    ((at / 64) as usize, 1 << (at % 64))
}

impl Outcomes {
    /// `seed` keys the maps: clients choose their ids and numbers.
    pub fn new(seed: u64) -> Outcomes {
        let mut outcomes =
            Outcomes { places: seeded_map(seed), clients: seeded_map(seed.rotate_left(32)), ..Outcomes::default() };
        outcomes.chunks.reserve(CHUNKS_READY);
        outcomes.order.reserve(CHUNKS_READY);
        outcomes.places.reserve(CHUNKS_READY);
        outcomes
    }

    fn place(&self, trans: TransId) -> Option<u32> {
        let number = trans.seq / CHUNK;
        let is_here = |at: &u32| {
            let chunk = &self.chunks[*at as usize];
            (chunk.client, chunk.number) == (trans.client, number)
        };
        self.last.filter(is_here).or_else(|| self.places.get(&(trans.client, number)).copied())
    }

    /// Remembers a commit; idempotent.
    #[inline]
    pub fn record(&mut self, trans: TransId, now: u64) {
        self.now = now;
        let at = match self.place(trans) {
            Some(at) => at,
            None => self.make(trans),
        };
        let (word, bit) = bit(trans);
        let chunk = &mut self.chunks[at as usize];
        let is_its = (chunk.client, chunk.number) == (trans.client, trans.seq / CHUNK);
        assert!(is_its, "the outcome of {trans} goes to the chunk of {:x}/{}", chunk.client, chunk.number);
        chunk.newest = now;
        chunk.bits[word] |= bit;
        self.last = Some(at);
    }

    /// Whether there is memory for more. If not, what is there has to do: its last eighth is for what is under way.
    pub fn may_grow(&mut self, may: bool) {
        let now = self.chunks.len() / 8 * 7;
        self.refused_at = (!may).then_some(self.refused_at.map_or(now, |before| before.min(now)));
    }
    #[inline]
    fn soft(&self) -> usize {
        self.refused_at.unwrap_or(CHUNKS_SOFT)
    }

    /// Whether a transaction of this client should not begin now.
    #[inline]
    pub fn is_full(&mut self, client: u64, now: u64) -> bool {
        let few = self.order.len() < self.soft() && self.order.len() < CLIENT_CHUNKS_MAX as usize;
        !few && self.is_crowded(client, now)
    }
    #[cold]
    fn is_crowded(&mut self, client: u64, now: u64) -> bool {
        self.now = now;
        self.give_back();
        self.order.len() >= self.soft() || self.clients.get(&client).is_some_and(|c| c.chunks >= CLIENT_CHUNKS_MAX)
    }

    #[cold]
    fn make(&mut self, trans: TransId) -> u32 {
        self.give_back();
        if self.order.len() >= CHUNKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.lose(oldest);
        }
        let fresh = Chunk {
            client: trans.client,
            number: trans.seq / CHUNK,
            newest: self.now,
            looked_at: self.now,
            ..Chunk::default()
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.chunks[at as usize] = fresh;
                at
            }
            None => {
                self.chunks.push(fresh);
                (self.chunks.len() - 1) as u32
            }
        };
        let known = self.places.insert((trans.client, trans.seq / CHUNK), at);
        assert!(known.is_none(), "outcomes near {trans} have two chunks, {at} and {known:?}");
        self.order.push_back(at);
        let (used, free, all) = (self.order.len(), self.free.len(), self.chunks.len());
        assert!(used + free == all, "{used} chunks of outcomes are used and {free} free, {all} in all");
        let client = self.clients.entry(trans.client).or_default();
        client.chunks += 1;
        client.heard = self.now;
        at
    }

    /// Frees some of the oldest chunks that nobody needs.
    fn give_back(&mut self) {
        for _ in 0..LOOKS {
            let Some(&oldest) = self.order.front() else { return };
            let now = self.now;
            let chunk = &mut self.chunks[oldest as usize];
            if now.saturating_sub(chunk.looked_at) <= KEPT_NS {
                return;
            }
            self.order.pop_front();
            let is_young = now.saturating_sub(chunk.newest) <= KEPT_NS;
            let is_needed = self
                .clients
                .get(&chunk.client)
                .is_some_and(|c| (chunk.number + 1) * CHUNK > c.floor && now.saturating_sub(c.heard) <= SILENT_NS);
            if is_young || is_needed {
                chunk.looked_at = now;
                self.order.push_back(oldest);
            } else {
                self.forget(oldest);
            }
        }
    }
    /// A chunk that is needed has to go.
    fn lose(&mut self, at: u32) {
        let Chunk { client, number, newest, .. } = self.chunks[at as usize];
        self.lost_at = self.lost_at.max(Some(newest as i64));
        if let Some(client) = self.clients.get_mut(&client) {
            client.lost_below = client.lost_below.max((number + 1) * CHUNK);
        }
        self.forget(at);
    }
    fn forget(&mut self, at: u32) {
        let Chunk { client, number, newest, .. } = self.chunks[at as usize];
        let known = self.places.remove(&(client, number));
        assert!(known == Some(at), "chunk {at} of outcomes goes, and is known by {known:?}");
        self.free.push(at);
        self.last = self.last.filter(|last| *last != at);
        let Some(known) = self.clients.get_mut(&client) else { return };
        assert!(known.chunks > 0, "client {client:x} has fewer chunks of outcomes than go");
        known.chunks -= 1;
        known.newest_lost = known.newest_lost.max(newest);
        if known.chunks == 0 {
            // From now on all that is known of this client is when it was active here.
            self.forgotten_at = self.forgotten_at.max(Some(known.newest_lost as i64));
            self.clients.remove(&client);
        } else {
            // Nobody needs it, but somebody may ask.
            known.lost_below = known.lost_below.max((number + 1) * CHUNK);
        }
    }

    /// The newest commits that are remembered, so many at most; of the chunks that were made or looked at last.
    pub fn newest(&self, most: usize) -> Vec<TransId> {
        let mut recent: Vec<(u64, u32)> =
            self.order.iter().rev().take(RECENT_CHUNKS).map(|&at| (self.chunks[at as usize].newest, at)).collect();
        recent.sort_unstable_by(|a, b| b.cmp(a));
        let numbers = |at: u32| {
            let Chunk { client, number, bits, .. } = &self.chunks[at as usize];
            let is_set = |n: &u64| bits[(n / 64) as usize] & 1 << (n % 64) != 0;
            (0..CHUNK).filter(is_set).map(move |n| TransId { client: *client, seq: number * CHUNK + n })
        };
        recent.into_iter().flat_map(|(_, at)| numbers(at)).take(most).collect()
    }

    /// What a client tells of what it needs.
    pub fn raise_floor(&mut self, floor: TcFloor) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(&floor.client) {
            client.floor = client.floor.max(floor.floor);
            client.heard = now;
        }
    }
    /// This node joins a running cluster now: of what it did before, nothing is known here.
    pub fn joined(&mut self, now: u64) {
        self.joined_at = Some(now as i64);
    }
    /// Others have told all that they knew, commits from `since` on; all of this node's own time is known anyway.
    pub fn learned_all(&mut self, since: i64) {
        self.joined_at = None;
        self.forgotten_at = self.forgotten_at.max(Some(since));
    }
    /// Which commits others can learn from here: all from this time on.
    pub fn known_since(&self, now: u64) -> i64 {
        let unknown = [self.forgotten_at, self.lost_at, self.joined_at].into_iter().flatten().max();
        unknown.unwrap_or(0).max(now as i64 - KEPT_NS as i64)
    }
    /// Tells of the young ones among the next `most` chunks from `place` on, as long as `tell` takes more. Returns where the next begin.
    pub fn young(
        &self,
        place: u32,
        most: usize,
        now: u64,
        mut tell: impl FnMut(CommittedChunk) -> bool,
    ) -> Option<u32> {
        let rest = self.chunks.get(place as usize..).unwrap_or_default();
        // One that is free says what is true, too.
        let ends = |chunk: &Chunk| {
            let is_young = now.saturating_sub(chunk.newest) <= KEPT_NS;
            is_young && !tell(CommittedChunk { client: chunk.client, number: chunk.number, bits: chunk.bits })
        };
        let looked = rest.iter().take(most).position(ends).map_or(most, |last| last + 1);
        (rest.len() > looked).then_some(place + looked as u32)
    }
    /// Takes over what another replica remembers; idempotent.
    pub fn learn(&mut self, chunk: &CommittedChunk, now: u64) {
        self.now = now;
        let first = TransId { client: chunk.client, seq: chunk.number.saturating_mul(CHUNK) };
        let at = match self.place(first) {
            Some(at) => at,
            None => self.make(first),
        };
        let known = &mut self.chunks[at as usize];
        known.newest = now;
        known.bits.iter_mut().zip(chunk.bits).for_each(|(known, told)| *known |= told);
    }
    /// This node cannot tell yet what became of a statement that a client loses now.
    pub fn is_young(&self, now: u64) -> bool {
        self.is_unknown(now, longest_age(STATEMENT_NS))
    }
    /// Whether a commit may have been forgotten that is not older than this.
    fn is_unknown(&self, now: u64, age: u64) -> bool {
        self.joined_at.max(self.forgotten_at).is_some_and(|at| at >= now as i64 - age as i64)
    }
    pub fn committed(&self, trans: TransId) -> bool {
        let (word, bit) = bit(trans);
        self.place(trans).is_some_and(|at| self.chunks[at as usize].bits[word] & bit != 0)
    }
    /// Whether the commit of a transaction that began `age_ms` ago could have been forgotten.
    pub fn may_have_forgotten(&self, trans: TransId, now: u64, age_ms: u32) -> bool {
        let since = longest_age(u64::from(age_ms) * 1_000_000);
        self.clients.get(&trans.client).is_some_and(|client| trans.seq < client.lost_below)
            || self.is_unknown(now, since)
    }
    /// Chunks in use, and the bytes of all.
    pub fn figures(&self) -> (usize, usize) {
        let places = self.places.capacity() * (size_of::<((u64, u64), u32)>() + 1);
        (self.order.len(), self.chunks.capacity() * size_of::<Chunk>() + places + self.order.capacity() * 4)
    }

    /// # Errors
    /// A chunk that is not counted, or counted twice.
    pub fn verify(&self) -> Result<(), String> {
        let counted: u64 = self.clients.values().map(|c| u64::from(c.chunks)).sum();
        let (used, free) = (self.order.len(), self.free.len());
        if counted != used as u64 || self.places.len() != used || used + free != self.chunks.len() {
            let all = self.chunks.len();
            return Err(format!("outcomes: {used} chunks used, {counted} counted, {free} free, {all} in all"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    fn id(client: u64, seq: u64) -> TransId {
        TransId { client, seq }
    }

    #[test]
    fn a_node_that_joined_knows_nothing_older() {
        let mut outcomes = Outcomes::new(1);
        let forgotten = |o: &Outcomes, now, age_ms| o.may_have_forgotten(id(1, 1), now, age_ms);
        assert!(!forgotten(&outcomes, 5, 1000), "nothing was before the cluster");
        outcomes.joined(7_000_000);
        assert!(forgotten(&outcomes, 8_000_000, 1));
        let known_from = 7_000_000 + longest_age(10_000_000);
        assert!(forgotten(&outcomes, known_from, 10));
        assert!(!forgotten(&outcomes, known_from + 1, 10));
        // A statement that a client loses now is younger than half a second.
        let (young, old) = (7_000_000 + longest_age(STATEMENT_NS), 7_000_000 + 900_000_000);
        assert!(outcomes.is_young(young) && !outcomes.is_young(old) && !forgotten(&outcomes, old, 500));
    }

    /// What one tells another, in messages of two chunks.
    fn copy(from: &Outcomes, to: &mut Outcomes, now: u64) {
        let mut place = Some(0);
        while let Some(at) = place {
            let mut left = 2;
            place = from.young(at, 3, now, |chunk| {
                to.learn(&chunk, now);
                left -= 1;
                left > 0
            });
        }
        to.learned_all(from.known_since(now));
    }

    #[test]
    fn what_is_told_is_known_as_far_back_as_it_was_told() {
        let (mut old, mut new) = (Outcomes::new(1), Outcomes::new(2));
        old.record(id(1, 7), S);
        (0..20).for_each(|n| old.record(id(1, 5000 + n * CHUNK), 95 * S));
        old.record(id(2, 3), 99 * S);
        new.record(id(2, 3), 99 * S);
        new.record(id(3, 4), 99 * S);
        new.joined(100 * S);
        copy(&old, &mut new, 100 * S);
        let undecided = |o: &Outcomes, seq, age_ms| o.may_have_forgotten(id(1, seq), 100 * S, age_ms);
        assert!((0..20).all(|n| new.committed(id(1, 5000 + n * CHUNK)) && !new.committed(id(1, 5001 + n * CHUNK))));
        assert!(new.committed(id(2, 3)) && new.committed(id(3, 4)) && !new.is_young(100 * S));
        assert!(!undecided(&new, 5001, 9_000) && undecided(&new, 7, 60_000) && !new.committed(id(1, 7)));
        new.verify().expect("all is counted");
        // One that tells what it was told itself, and one that had to give up what is needed.
        let mut next = Outcomes::new(3);
        next.joined(100 * S);
        copy(&new, &mut next, 100 * S);
        assert!(next.committed(id(3, 4)) && undecided(&next, 7, 60_000) && !undecided(&next, 5001, 9_000));
        let young = new.place(id(2, 3)).expect("it is there");
        new.order.retain(|at| *at != young);
        new.lose(young);
        copy(&new, &mut next, 100 * S);
        assert!(undecided(&next, 5001, 1_000), "somebody's commit of a second ago was lost");
        // The clock of a process that has just begun.
        let mut fresh = Outcomes::new(4);
        fresh.joined(S / 10);
        fresh.learned_all(S as i64 / 10 - (100 * S as i64 - old.known_since(100 * S)));
        assert!(!fresh.is_young(S / 5) && !fresh.may_have_forgotten(id(9, 9), S / 5, 9_000));
        assert!(fresh.may_have_forgotten(id(9, 9), S / 5, 10_000));
    }

    /// 400,000 commits a second for 40 s: those of the last 10 s and those that are needed are known, and the rest is given back.
    #[test]
    fn many_commits_forget_nothing_that_is_young_or_needed() {
        let mut outcomes = Outcomes::new(1);
        let (clients, per_second) = (8, 50_000);
        outcomes.record(id(99, 5), 0);
        let mut most = 0;
        for second in 0..40 {
            for n in 0..per_second {
                let (seq, now) = (second * per_second + n, second * S + n * (S / per_second));
                (1..=clients).for_each(|client| outcomes.record(id(client, 2 * seq), now));
            }
            for client in 1..=clients {
                outcomes
                    .raise_floor(TcFloor { client, floor: if client == 1 { 2000 } else { 2 * second * per_second } });
            }
            outcomes.raise_floor(TcFloor { client: 99, floor: 5 });
            outcomes.verify().expect("all is counted");
            most = most.max(outcomes.figures().1);
        }
        let now = 40 * S;
        assert!(outcomes.committed(id(99, 5)), "its client needs it");
        let undecided = |o: &Outcomes, client, seq| o.may_have_forgotten(id(client, seq), now, 5_000);
        for client in 1..=clients {
            for seq in (31 * per_second..40 * per_second).step_by(1000) {
                assert!(outcomes.committed(id(client, 2 * seq)), "{client} {seq}");
                assert!(!outcomes.committed(id(client, 2 * seq + 1)) && !undecided(&outcomes, client, 2 * seq + 1));
            }
        }
        assert!(
            outcomes.committed(id(1, 2048)) && !undecided(&outcomes, 1, 2049),
            "the first client needs all above 2000"
        );
        assert!(undecided(&outcomes, 2, 2049), "nobody knows any more");
        assert!(most < 8 << 20, "{most} bytes");
    }

    /// A chunk that one commit per second keeps young stands before those of a client with 200,000 per second.
    #[test]
    fn who_fills_a_chunk_slowly_keeps_no_other() {
        let mut outcomes = Outcomes::new(1);
        let per_second = 200_000;
        for second in 0..60 {
            outcomes.record(id(1, second), second * S);
            (0..per_second).for_each(|n| outcomes.record(id(2, second * per_second + n), second * S));
            outcomes.raise_floor(TcFloor { client: 2, floor: second * per_second });
        }
        let kept = outcomes.figures().0 as u64;
        assert!(kept < 15 * per_second / CHUNK, "{kept} chunks");
        assert!((0..60).all(|second| outcomes.committed(id(1, second))));
        outcomes.verify().expect("all is counted");
    }

    /// The chunk that goes last is not the one with the newest commit.
    #[test]
    fn a_client_that_is_forgotten_is_forgotten_up_to_its_newest_commit() {
        let mut outcomes = Outcomes::new(1);
        outcomes.record(id(7, 0), 90 * S);
        outcomes.record(id(7, 5 * CHUNK), 100 * S);
        let (first, second) = (outcomes.places[&(7, 0)], outcomes.places[&(7, 5)]);
        outcomes.order.clear();
        outcomes.forget(second);
        outcomes.forget(first);
        assert!(outcomes.may_have_forgotten(id(7, 5 * CHUNK), 113 * S, 13_000));
        assert!(!outcomes.may_have_forgotten(id(7, 5 * CHUNK), 113 * S, 10_000));
        outcomes.verify().expect("all is counted");
    }

    #[test]
    fn a_client_that_is_gone_needs_nothing_after_a_while() {
        let mut outcomes = Outcomes::new(1);
        for seq in 0..100 * CHUNK {
            outcomes.record(id(7, seq), S);
        }
        for n in 0..1000 {
            outcomes.record(id(8, n * CHUNK), 2 * S + SILENT_NS);
            outcomes.raise_floor(TcFloor { client: 8, floor: n * CHUNK });
        }
        assert!(!outcomes.committed(id(7, 5)) && !outcomes.clients.contains_key(&7));
        assert!(outcomes.may_have_forgotten(id(7, 5), 2 * S + SILENT_NS, (SILENT_NS / 1_000_000) as u32 + 1000));
        assert!(!outcomes.may_have_forgotten(id(7, 5), 2 * S + SILENT_NS, 5_000));
        outcomes.verify().expect("all is counted");
    }

    /// The memory region gives no more: what is there is refilled, and all is well again when it has been, or when there is memory.
    #[test]
    fn with_no_more_memory_what_is_there_has_to_do() {
        let mut outcomes = Outcomes::new(1);
        (0..800).for_each(|n| outcomes.record(id(1, n * CHUNK), S));
        outcomes.may_grow(false);
        assert!(outcomes.is_full(1, S) && outcomes.is_full(2, S));
        (800..900).for_each(|n| outcomes.record(id(1, n * CHUNK), 2 * S));
        outcomes.may_grow(false);
        assert!((0..900).all(|n| outcomes.committed(id(1, n * CHUNK))), "what is under way commits");
        outcomes.raise_floor(TcFloor { client: 1, floor: 900 * CHUNK });
        let is_served = (0..400).any(|_| !outcomes.is_full(1, 20 * S));
        assert!(is_served && outcomes.figures().0 < 800 / 8 * 7, "what nobody needs went");
        (0..900).for_each(|n| outcomes.record(id(2, n * CHUNK), 20 * S));
        assert!(outcomes.is_full(2, 20 * S));
        outcomes.may_grow(true);
        assert!(!outcomes.is_full(2, 20 * S));
        outcomes.verify().expect("all is counted");
    }

    #[test]
    fn a_full_memory_refuses_first_and_owns_up_then() {
        let mut outcomes = Outcomes::new(1);
        assert!(!outcomes.is_full(1, 1));
        for n in 0..u64::from(CLIENT_CHUNKS_MAX) {
            outcomes.record(id(1, n * CHUNK), 1 + n);
        }
        assert!(outcomes.is_full(1, S) && !outcomes.is_full(2, S), "one client has its share");
        for n in 0..CHUNKS_MAX as u64 {
            outcomes.record(id(2 + n % 4, n / 4 * CHUNK), S);
        }
        assert!(outcomes.is_full(9, S));
        assert_eq!(outcomes.figures().0, CHUNKS_MAX);
        assert!(!outcomes.committed(id(1, 0)) && outcomes.may_have_forgotten(id(1, 1), 300 * S, 300_000));
        assert!(!outcomes.is_full(9, 30 * S + SILENT_NS) || outcomes.order.len() >= CHUNKS_SOFT);
        outcomes.verify().expect("all is counted");
    }
}

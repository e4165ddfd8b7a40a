//! What an LDM instance holds per transaction: its parts (one per chain) and their entries (locked or changed rows).
//!
//! Records and entries live in slabs whose memory is reused, so a transaction allocates nothing in steady state.

use std::{collections::BTreeSet, sync::Arc};

use apus_redo::Place;
use apus_signal::{BlockRef, ldm::LdmEnd, view::View};
use apus_storage::{MemoryManager, VERSION_BYTES, Writers};
use apus_types::collections::{SeededMap, seeded_map};
use apus_types::{
    Chain, Epoch, ErrorCode, TransId,
    planted::{Bug, planted},
};

pub use super::entries::{ENTRY_BYTES, Entry, NONE};
use super::{RowAt, entries::Entries, snapshot::changes_of};
use crate::flight::InFlight;

/// An abort or a rollback to a savepoint on its way through a part's entries.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    /// Goes on to the next replica when this one is done.
    pub end: LdmEnd,
    /// The entry to look at next.
    pub next: u32,
}

/// A transaction's share on one chain.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub chain: Chain,
    /// Names the part within its transaction, also in pending versions.
    pub number: u32,
    /// Its entries, newest first.
    pub head: u32,
    pub rows: u32,
    /// The highest savepoint of its entries.
    reach: u32,
    /// Decided here and on every replica further back, in `epoch`: this is the commit; rows are stamped afterwards.
    pub committed: bool,
    /// Every replica of the chain has decided it: it is committed and this is the primary, or TC has said so.
    pub whole: bool,
    /// TC has said that all chains of the transaction have committed: once its rows are stamped, the part is forgotten.
    pub complete: bool,
    /// Undone on every replica; its locks are being given back.
    pub aborted: bool,
    /// The answer that goes back along the chain when an aborted part has given its locks back.
    pub answer: Option<LdmEnd>,
    pub undo: Option<Undo>,
    /// In the queue of parts that are worked off in slices.
    pub queued: bool,
    /// Sent down the chain to be committed on the way (one pass); no coordinator will order it.
    pub one_pass: bool,
    /// A replica has refused the one-pass batch: whatever happens to the others, it is never committed.
    pub refused: Option<ErrorCode>,
    pub epoch: Epoch,
    /// TC's number of the one-pass batch, to answer it at commit.
    pub batch: u32,
    /// Counted among the one-pass batches that this instance, as primary, has stamped with `epoch`.
    pub in_flight: bool,
    /// Changes of it are in the log, and so has to be its end.
    pub logged: bool,
}

impl Part {
    /// Nothing that anybody may still do changes what becomes of it here: its rows can be stamped or its locks given back.
    pub fn is_ready(&self) -> bool {
        self.whole || self.aborted
    }
}

#[derive(Debug)]
pub struct Trans {
    pub id: TransId,
    pub tc: BlockRef,
    /// View generation in which the transaction was last heard of.
    pub generation: u64,
    /// View generation in which it was heard of first: as long as that view stands, no partition has changed its chain.
    pub born: u64,
    pub parts: Vec<Part>,
    /// Its batches that wait for a lock, by their slots.
    pub waits: Vec<u32>,
    /// Rows that it held when others began to wait for them, or held since with others still waiting: these end before its other rows. May name rows that
    /// nobody waits for any more.
    pub wanted: BTreeSet<RowAt>,
    /// Bytes of its entries and pending versions, as counted against the limit of a transaction.
    pub bytes: u64,
    /// Results of a one-pass batch, kept until its commit comes back.
    pub results: Vec<u8>,
    pub result_count: u16,
    pub result_flags: u8,
    /// The log's first entry of it is not before this place.
    pub logged_from: Place,
    /// Tables that it has changed here: [`super::snapshot::changes_of`].
    pub changes: u64,
    /// It may have a row on two chains: all its parts end together.
    pub shares: bool,
    next_part: u32,
    used: bool,
}

/// What a reader of a pending version has to know about its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may still be undone, or is being undone.
    Open,
    /// It has a row on two chains, and one of them has committed: it is committed, but perhaps not yet here.
    Between,
    /// Committed here and further back along the chain.
    Decided,
    /// Committed on every replica.
    Whole,
}

impl Trans {
    pub fn part(&self, chain: Chain) -> Option<&Part> {
        self.parts.iter().find(|p| p.chain == chain)
    }
    pub fn numbered(&mut self, number: u32) -> Option<&mut Part> {
        self.parts.iter_mut().find(|p| p.number == number)
    }
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|p| u64::from(p.rows)).sum()
    }
    /// The epoch of the commit, once any part of it has come here.
    pub fn decided(&self) -> Option<Epoch> {
        self.parts.iter().find(|p| p.committed).map(|p| p.epoch)
    }
    /// Every part is committed here, or every part is undone: what it locked is free for whoever comes.
    pub fn is_over(&self) -> bool {
        self.parts.iter().all(|p| p.committed) || self.parts.iter().all(|p| p.aborted)
    }
    /// Committed here on one chain, and not yet on another: whoever reads its rows now may see a part of it.
    fn is_torn(&self) -> bool {
        self.parts.iter().any(|p| p.committed) && !self.parts.iter().all(|p| p.committed)
    }
    fn standing(&self, part: u32) -> Standing {
        if self.shares {
            return match (self.decided().is_some(), self.parts.iter().all(|p| p.committed)) {
                (false, _) => Standing::Open,
                (true, false) => Standing::Between,
                (true, true) if self.parts.iter().all(|p| p.whole) => Standing::Whole,
                (true, true) => Standing::Decided,
            };
        }
        match self.parts.iter().find(|p| p.number == part) {
            Some(part) if part.whole => Standing::Whole,
            Some(part) if part.committed => Standing::Decided,
            Some(_) => Standing::Open,
            None => panic!("transaction {} has pending versions of a part that is gone", self.id),
        }
    }
}

#[derive(Debug)]
pub struct Transactions {
    /// One-pass batches stamped here as primary and not committed everywhere yet.
    pub in_flight: InFlight,
    /// The slots of those that are committed here on one chain, and not yet on another.
    torn: Vec<u32>,
    slots: Vec<Trans>,
    free: Vec<u32>,
    by_id: SeededMap<TransId, u32>,
    entries: Entries,
}

impl Transactions {
    pub fn new(memory: Arc<MemoryManager>) -> Transactions {
        Transactions {
            in_flight: InFlight::default(),
            torn: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_id: SeededMap::default(),
            entries: Entries::new(memory),
        }
    }
    /// Clients choose the ids: a secret seed keeps them from choosing those that collide.
    pub fn seed(&mut self, seed: u64) {
        let old = std::mem::replace(&mut self.by_id, seeded_map(seed));
        self.by_id.extend(old);
    }
    pub fn find(&self, id: TransId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    /// Slots, used or not: all are below it.
    pub fn places(&self) -> u32 {
        self.slots.len() as u32
    }
    pub fn is_used(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|t| t.used)
    }
    pub fn entries_in_use(&self) -> usize {
        self.entries.in_use()
    }

    pub fn find_or_create(&mut self, id: TransId, tc: BlockRef, generation: u64) -> u32 {
        if let Some(at) = self.find(id) {
            let trans = &mut self.slots[at as usize];
            trans.generation = trans.generation.max(generation);
            trans.tc = tc;
            return at;
        }
        let at = match self.free.pop() {
            Some(at) => {
                let slot = &mut self.slots[at as usize];
                assert!(!slot.used && slot.parts.is_empty(), "slot {at} is free and holds parts of {}", slot.id);
                assert!(slot.waits.is_empty() && slot.wanted.is_empty(), "slot {at} is free and {} waits", slot.id);
                slot.id = id;
                slot.tc = tc;
                slot.generation = generation;
                slot.born = generation;
                slot.logged_from = Place::END;
                slot.shares = false;
                slot.bytes = 0;
                slot.changes = 0;
                slot.next_part = 0;
                slot.used = true;
                at
            }
            None => {
                self.slots.push(Trans {
                    id,
                    tc,
                    generation,
                    born: generation,
                    parts: Vec::with_capacity(4),
                    waits: Vec::new(),
                    wanted: BTreeSet::new(),
                    bytes: 0,
                    results: Vec::new(),
                    result_count: 0,
                    result_flags: 0,
                    logged_from: Place::END,
                    changes: 0,
                    shares: false,
                    next_part: 0,
                    used: true,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let known = self.by_id.insert(id, at);
        assert!(known.is_none(), "transaction {id} gets slot {at} beside {known:?}");
        at
    }

    pub fn get(&self, at: u32) -> &Trans {
        &self.slots[at as usize]
    }
    pub fn get_mut(&mut self, at: u32) -> &mut Trans {
        &mut self.slots[at as usize]
    }

    /// Records in slot order (deterministic).
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Trans)> {
        self.slots.iter().enumerate().filter(|(_, t)| t.used).map(|(i, t)| (i as u32, t))
    }

    /// Where the log has the first entry of any transaction that is known here.
    pub fn logged_from(&self) -> Place {
        self.slots.iter().filter(|t| t.used).map(|t| t.logged_from).min().unwrap_or(Place::END)
    }

    /// Forgets a transaction that holds nothing any more.
    ///
    /// # Panics
    /// If parts are left: their rows would stay locked for ever.
    pub fn remove(&mut self, at: u32) {
        let trans = &mut self.slots[at as usize];
        assert!(trans.used && trans.parts.is_empty(), "transaction {} removed while it holds rows", trans.id);
        assert!(trans.waits.is_empty(), "transaction {} removed while it waits", trans.id);
        trans.used = false;
        self.torn.retain(|&t| t != at);
        trans.wanted.clear();
        trans.results.clear();
        let known = self.by_id.remove(&trans.id);
        assert!(known == Some(at), "transaction {} has slot {at} and is known by {known:?}", trans.id);
        self.free.push(at);
    }

    /// A batch of the transaction waits in this slot no more.
    pub fn end_wait(&mut self, at: u32, slot: u32) {
        let trans = &mut self.slots[at as usize];
        let place = trans.waits.iter().position(|&w| w == slot);
        let place =
            place.unwrap_or_else(|| panic!("transaction {} knows nothing of the wait in slot {slot}", trans.id));
        trans.waits.swap_remove(place);
    }

    #[inline]
    pub fn part_mut(&mut self, at: u32, chain: Chain) -> Option<&mut Part> {
        self.slots[at as usize].parts.iter_mut().find(|p| p.chain == chain)
    }
    #[inline]
    pub fn ensure_part(&mut self, at: u32, chain: Chain) -> &mut Part {
        let Trans { parts, next_part, .. } = &mut self.slots[at as usize];
        let i = parts.iter().position(|p| p.chain == chain).unwrap_or_else(|| {
            parts.push(Part {
                chain,
                number: *next_part,
                head: NONE,
                rows: 0,
                reach: 0,
                committed: false,
                whole: false,
                complete: false,
                aborted: false,
                answer: None,
                undo: None,
                queued: false,
                one_pass: false,
                refused: None,
                epoch: Epoch(0),
                batch: 0,
                in_flight: false,
                logged: false,
            });
            *next_part += 1;
            parts.len() - 1
        });
        &mut parts[i]
    }
    /// # Panics
    /// While the part has entries: their rows would stay locked for ever.
    pub fn drop_part(&mut self, at: u32, chain: Chain) {
        self.leave_flight(at, chain);
        let trans = &mut self.slots[at as usize];
        if let Some(i) = trans.parts.iter().position(|p| p.chain == chain) {
            let part = trans.parts.remove(i);
            assert!(part.head == NONE && part.rows == 0, "a part of {} is dropped with {} rows", trans.id, part.rows);
            assert!(part.undo.is_none(), "a part of {} is dropped while it is undone", trans.id);
            assert!(!part.queued, "a part of {} is dropped while slices of it are to come", trans.id);
        }
    }

    /// A part of the transaction is committed.
    #[inline]
    pub fn note_committed(&mut self, at: u32) {
        let trans = &self.slots[at as usize];
        if trans.parts.len() == 1 {
            return;
        }
        let known = self.torn.iter().position(|&t| t == at);
        match (trans.is_torn(), known) {
            (true, None) => self.torn.push(at),
            (false, Some(place)) => _ = self.torn.swap_remove(place),
            _ => {}
        }
    }
    /// Whether a reader of these tables' newest rows may see one part of a transaction and not the other.
    pub fn shows_part_of(&self, tables: u64) -> bool {
        let slots = self.torn.iter().map(|&at| &self.slots[at as usize]);
        slots.into_iter().any(|t| t.used && t.changes & tables != 0 && t.is_torn())
    }

    /// Whether a transaction that has changed these tables is committed here, and some of its rows do not have its epoch yet.
    pub fn has_unstamped(&self, tables: u64) -> bool {
        let is_unstamped = |t: &Trans| t.changes & tables != 0 && t.parts.iter().any(|p| p.committed && p.rows > 0);
        self.iter().any(|(_, t)| is_unstamped(t))
    }

    /// A one-pass batch is on its way along the chain, stamped with this epoch.
    pub fn enter_flight(&mut self, at: u32, chain: Chain, epoch: Epoch, batch: u32) {
        let part = self.ensure_part(at, chain);
        assert!(!part.in_flight, "a one-pass batch is stamped twice");
        assert!(!part.committed && !part.aborted, "a one-pass batch is stamped after its end: {part:?}");
        (part.one_pass, part.epoch, part.batch, part.in_flight) = (true, epoch, batch, true);
        self.in_flight.enter(epoch);
    }
    /// Its commit came back, or it is undone.
    pub fn leave_flight(&mut self, at: u32, chain: Chain) {
        if let Some(part) = self.part_mut(at, chain)
            && std::mem::take(&mut part.in_flight)
        {
            let epoch = part.epoch;
            self.in_flight.leave(epoch);
        }
    }

    /// Room for one more entry, of a transaction that may take `bytes_max`.
    ///
    /// # Errors
    /// [`ErrorCode::TransactionTooLarge`] where the transaction has reached its limit, [`ErrorCode::OutOfMemory`].
    #[inline]
    pub fn reserve(&mut self, at: u32, bytes_max: u64) -> Result<(), ErrorCode> {
        if self.slots[at as usize].bytes >= bytes_max {
            return Err(ErrorCode::TransactionTooLarge);
        }
        self.entries.reserve()
    }

    /// A row for the part on `chain`, with so many bytes of a new version; `again`: the transaction may have it on another chain.
    /// Room was reserved.
    #[inline(always)]
    pub fn push_entry(&mut self, at: u32, chain: Chain, mut entry: Entry, image_bytes: usize, again: bool) {
        let trans = &mut self.slots[at as usize];
        let part = trans.parts.iter_mut().find(|p| p.chain == chain);
        let part = part.unwrap_or_else(|| panic!("{} gets a row on {chain:?}, where it has no part", trans.id));
        assert!(!part.committed && !part.aborted, "a part that has ended gets a row: {part:?}");
        assert!(
            (part.head == NONE) == (part.rows == 0),
            "a part has {} rows, the newest is entry {}",
            part.rows,
            part.head
        );
        entry.next = part.head;
        part.reach = part.reach.max(entry.savepoint);
        entry.reach = part.reach;
        part.head = self.entries.add(entry);
        part.rows += 1;
        let written = if entry.write { VERSION_BYTES + image_bytes } else { 0 };
        trans.bytes += (ENTRY_BYTES + written) as u64;
        trans.shares |= again;
        if entry.write {
            trans.changes |= changes_of(entry.table);
        }
    }
    /// The entry of this number, whosever it is, or was.
    pub fn entry(&self, i: u32) -> Option<&Entry> {
        self.entries.find(i)
    }
    pub fn entry_mut(&mut self, i: u32) -> &mut Entry {
        self.entries.get_mut(i)
    }
    /// Takes entries off a part, the newest first and `most` at most, and gives each to `end`. Returns how many.
    #[inline]
    pub fn pop_entries(&mut self, at: u32, part: u32, most: u32, mut end: impl FnMut(&Entry)) -> u32 {
        let Some(part) = self.slots[at as usize].numbered(part) else { return 0 };
        let count = most.min(part.rows);
        for _ in 0..count {
            assert!(part.head != NONE, "a part has {} rows, and there is no next one", part.rows);
            let entry = self.entries.take(part.head);
            part.head = entry.next;
            part.rows -= 1;
            end(&entry);
        }
        assert!((part.head == NONE) == (part.rows == 0), "a part has {} rows, the next is {}", part.rows, part.head);
        count
    }
    /// The entries from this one on, newest first.
    pub fn entries_from(&self, head: u32) -> impl Iterator<Item = &Entry> {
        let some = |i: u32| (i != NONE).then_some(i);
        std::iter::successors(some(head), move |&i| some(self.entries.get(i).next)).map(|i| self.entries.get(i))
    }

    /// Whether the transaction in this slot will give the row's lock back; for checks.
    pub fn has_lock_entry(&self, at: u32, row: RowAt) -> bool {
        let trans = self.slots.get(at as usize).filter(|t| t.used);
        let heads = trans.into_iter().flat_map(|t| t.parts.iter().map(|p| p.head));
        heads.into_iter().any(|head| self.entries_from(head).any(|e| e.lock && e.at() == row))
    }

    /// Whether earlier entries of a row may name another chain than `chain`: only if several are in use and the view has changed since the
    /// transaction was first heard of, or one of them has its name from another view. In one view chains that share a node have the same nodes; what was sent in the view before may
    /// be heard of first in this one, in which the chain has one more.
    pub fn may_share(&self, at: u32, chain: Chain, view: &View) -> bool {
        let trans = &self.slots[at as usize];
        let has_all = |all: Chain, of: Chain| of.nodes().all(|n| all.contains(n));
        let is_of_view = |other: Chain| {
            let is_apart = !other.nodes().any(|n| chain.contains(n));
            other.nodes().all(|n| view.is_alive(n)) && (is_apart || (has_all(chain, other) && has_all(other, chain)))
        };
        trans.parts.iter().any(|p| p.chain != chain && (trans.born != view.generation || !is_of_view(p.chain)))
    }

    /// How pending versions name their writer: the slot is the owner of the lock.
    pub fn writer(at: u32, part: u32) -> u64 {
        u64::from(at) << 32 | u64::from(part)
    }
    /// The transaction's slot, of such a name.
    pub fn slot_of(writer: u64) -> u32 {
        (writer >> 32) as u32
    }
    /// How the writer of a pending version stands.
    #[inline]
    pub fn standing(&self, writer: u64) -> Standing {
        self.slots[(writer >> 32) as usize].standing(writer as u32)
    }
}

/// A snapshot that has a commit's epoch, or a reader at the newest state to whom it may be shown, sees it before its rows are stamped.
impl Writers for Transactions {
    #[inline]
    fn decided(&self, writer: u64) -> Option<Epoch> {
        let trans = &self.slots[(writer >> 32) as usize];
        if planted(Bug::DecidedNotRead) {
            return None;
        }
        if trans.shares {
            return trans.decided();
        }
        trans.parts.iter().find(|p| p.number == writer as u32 && p.committed).map(|p| p.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::view_node;
    use apus_signal::{BlockId, view::NodeState};
    use apus_types::{NodeId, TableId};

    /// A worker that is the primary of one chain and a backup of another gets the commit of the one while that of the other is on its way.
    #[test]
    fn a_transaction_is_shown_in_part_until_its_last_chain_has_committed() {
        let chain = |nodes: &[u16]| Chain::new(&nodes.iter().map(|&n| NodeId(n)).collect::<Vec<_>>());
        let (ours, theirs, table) = (chain(&[1, 2]), chain(&[2, 1]), TableId(3));
        let mut transactions = Transactions::new(MemoryManager::new(64 << 20));
        let tc = BlockRef::new(NodeId(2), BlockId::Tc, 0);
        let (one, both) = (TransId { client: 1, seq: 1 }, TransId { client: 1, seq: 2 });
        let (one, both) = (transactions.find_or_create(one, tc, 1), transactions.find_or_create(both, tc, 1));
        for (at, chain) in [(one, ours), (both, ours), (both, theirs)] {
            transactions.ensure_part(at, chain);
            transactions.get_mut(at).changes |= changes_of(table);
        }
        let mut commit = |at, chain| {
            if let Some(part) = transactions.part_mut(at, chain) {
                part.committed = true;
            }
            transactions.note_committed(at);
            let shows = |table| transactions.shows_part_of(changes_of(table));
            (shows(table), shows(TableId(4)))
        };
        assert_eq!(commit(one, ours), (false, false));
        assert_eq!(commit(both, ours), (true, false));
        assert_eq!(commit(both, theirs), (false, false));
    }

    /// A primary that knows a view passes on what TC has sent in the one before: the backup hears of the transaction first in the new view, on a
    /// chain of the old one.
    #[test]
    fn a_chain_named_in_an_older_view_may_share_rows() {
        let chain = |nodes: &[u16]| Chain::new(&nodes.iter().map(|&n| NodeId(n)).collect::<Vec<_>>());
        let nodes = (1..=2).map(|n| view_node(NodeId(n), 1, NodeState::Up)).collect();
        let view = View { generation: 2, nodes, ..View::default() };
        let mut transactions = Transactions::new(MemoryManager::new(64 << 20));
        let id = TransId { client: 1, seq: 1 };
        let at = transactions.find_or_create(id, BlockRef::new(NodeId(2), BlockId::Tc, 0), view.generation);
        transactions.ensure_part(at, chain(&[2, 1]));
        assert!(!transactions.may_share(at, chain(&[1, 2]), &view));
        transactions.ensure_part(at, chain(&[1, 2, 3]));
        assert!(transactions.may_share(at, chain(&[1, 2]), &view));
        // A node that has joined since (seed 10501496).
        let nodes = (1..=4).map(|n| view_node(NodeId(n), 1, NodeState::Up)).collect();
        let view = View { nodes, ..view };
        let id = TransId { client: 1, seq: 2 };
        let at = transactions.find_or_create(id, BlockRef::new(NodeId(1), BlockId::Tc, 0), view.generation);
        transactions.ensure_part(at, chain(&[1, 2, 3]));
        assert!(transactions.may_share(at, chain(&[1, 2, 3, 4]), &view));
        assert!(!transactions.may_share(at, chain(&[5, 6]), &view), "another group");
    }
}

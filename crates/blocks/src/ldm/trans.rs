//! What an LDM instance holds per transaction: its parts (one per chain) and its entries (locked or changed rows).
//!
//! Records and entries live in slabs whose memory is reused, so a transaction allocates nothing in steady state.

use apus_signal::{BlockRef, view::View};
use apus_storage::RowId;
use apus_types::collections::FixedMap;
use apus_types::{Chain, Epoch, ErrorCode, PartitionId, TableId, TransId};

use super::RowAt;
use crate::flight::InFlight;

/// Most rows that the transactions of one LDM instance may hold locked at once.
pub const ENTRIES_MAX: usize = 8 << 20;
/// Most rows that a single transaction may hold locked in one LDM instance; more are refused with `TransactionTooLarge`. Commit and
/// abort of a part run in one piece, and its worker must not be silent for as long as the heartbeat time-out.
pub const TRANS_ENTRIES_MAX: u32 = 512 << 10;

pub const NONE: u32 = u32::MAX;

/// One row of one transaction: locked, perhaps changed.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Older entry of the same transaction.
    pub next: u32,
    pub table: TableId,
    pub partition: PartitionId,
    pub row: RowId,
    pub chain: Chain,
    pub savepoint: u32,
    /// A version was pushed on the row by this entry.
    pub write: bool,
    /// This entry took the row's lock and gives it back.
    pub lock: bool,
    /// The row has earlier entries, perhaps on another chain ([`Transactions::may_share`]).
    pub again: bool,
}

impl Entry {
    fn row(&self) -> RowAt {
        (self.table, self.partition, self.row)
    }
}

/// A transaction's share on one chain.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub chain: Chain,
    pub committed: bool,
    /// Sent down the chain to be committed on the way (one pass); no coordinator will order it.
    pub one_pass: bool,
    /// A replica has refused the one-pass batch: whatever happens to the others, it is never committed.
    pub refused: Option<ErrorCode>,
    pub epoch: Epoch,
    /// TC's number of the one-pass batch, to answer it at commit.
    pub batch: u32,
    /// Counted among the one-pass batches that this instance, as primary, has stamped with `epoch`.
    pub in_flight: bool,
}

#[derive(Debug)]
pub struct Trans {
    pub id: TransId,
    pub tc: BlockRef,
    /// View generation in which the transaction was last heard of.
    pub generation: u64,
    /// View generation in which it was heard of first: as long as that view stands, no partition has changed its chain.
    pub born: u64,
    pub head: u32,
    pub entry_count: u32,
    pub parts: Vec<Part>,
    /// How many of its batches wait for a lock.
    pub waiting: u32,
    /// Results of a one-pass batch, kept until its commit comes back.
    pub results: Vec<u8>,
    pub result_count: u16,
    /// It may have a row on two chains.
    shares: bool,
    used: bool,
}

#[derive(Debug, Default)]
pub struct Transactions {
    /// One-pass batches stamped here as primary and not committed everywhere yet.
    pub in_flight: InFlight,
    slots: Vec<Trans>,
    free: Vec<u32>,
    by_id: FixedMap<TransId, u32>,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
}

impl Transactions {
    pub fn find(&self, id: TransId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    pub fn entries_in_use(&self) -> usize {
        self.entries.len() - self.free_entries.len()
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
                slot.id = id;
                slot.tc = tc;
                slot.generation = generation;
                slot.born = generation;
                slot.shares = false;
                slot.used = true;
                at
            }
            None => {
                self.slots.push(Trans {
                    id,
                    tc,
                    generation,
                    born: generation,
                    head: NONE,
                    entry_count: 0,
                    parts: Vec::with_capacity(4),
                    waiting: 0,
                    results: Vec::new(),
                    result_count: 0,
                    shares: false,
                    used: true,
                });
                (self.slots.len() - 1) as u32
            }
        };
        self.by_id.insert(id, at);
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

    /// Forgets a transaction that holds nothing any more.
    ///
    /// # Panics
    /// If entries or parts are left: their rows would stay locked for ever.
    pub fn remove(&mut self, at: u32) {
        let trans = &mut self.slots[at as usize];
        assert!(
            trans.used && trans.head == NONE && trans.parts.is_empty(),
            "transaction {} removed while it holds rows",
            trans.id
        );
        assert!(trans.waiting == 0, "transaction {} removed while it waits", trans.id);
        trans.used = false;
        trans.entry_count = 0;
        trans.results.clear();
        self.by_id.remove(&trans.id);
        self.free.push(at);
    }

    pub fn part_mut(&mut self, at: u32, chain: Chain) -> Option<&mut Part> {
        self.slots[at as usize].parts.iter_mut().find(|p| p.chain == chain)
    }
    pub fn ensure_part(&mut self, at: u32, chain: Chain) -> &mut Part {
        let parts = &mut self.slots[at as usize].parts;
        let i = parts.iter().position(|p| p.chain == chain).unwrap_or_else(|| {
            parts.push(Part {
                chain,
                committed: false,
                one_pass: false,
                refused: None,
                epoch: Epoch(0),
                batch: 0,
                in_flight: false,
            });
            parts.len() - 1
        });
        &mut parts[i]
    }
    pub fn drop_part(&mut self, at: u32, chain: Chain) {
        self.leave_flight(at, chain);
        self.slots[at as usize].parts.retain(|p| p.chain != chain);
    }

    /// A one-pass batch is on its way along the chain, stamped with this epoch.
    pub fn enter_flight(&mut self, at: u32, chain: Chain, epoch: Epoch, batch: u32) {
        let part = self.ensure_part(at, chain);
        assert!(!part.in_flight, "a one-pass batch is stamped twice");
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

    /// Room for one more entry?
    pub fn has_room(&self, at: u32) -> bool {
        self.entries_in_use() < ENTRIES_MAX && self.slots[at as usize].entry_count < TRANS_ENTRIES_MAX
    }

    pub fn push_entry(&mut self, at: u32, mut entry: Entry) {
        let trans = &mut self.slots[at as usize];
        entry.next = trans.head;
        trans.entry_count += 1;
        trans.shares |= entry.again;
        trans.head = match self.free_entries.pop() {
            Some(i) => {
                self.entries[i as usize] = entry;
                i
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
    }
    pub fn entry(&self, i: u32) -> &Entry {
        &self.entries[i as usize]
    }
    pub fn entry_mut(&mut self, i: u32) -> &mut Entry {
        &mut self.entries[i as usize]
    }

    /// Takes the entries for which `take` holds out of the list, newest first, into `out`.
    pub fn take_entries(&mut self, at: u32, out: &mut Vec<Entry>, take: impl Fn(&Entry) -> bool) {
        let mut previous = NONE;
        let mut i = self.slots[at as usize].head;
        while i != NONE {
            let entry = self.entries[i as usize];
            if take(&entry) {
                if previous == NONE {
                    self.slots[at as usize].head = entry.next;
                } else {
                    self.entries[previous as usize].next = entry.next;
                }
                self.slots[at as usize].entry_count -= 1;
                self.free_entries.push(i);
                out.push(entry);
            } else {
                previous = i;
            }
            i = entry.next;
        }
    }

    fn indexes(&self, at: u32) -> impl Iterator<Item = u32> {
        let some = |i: u32| (i != NONE).then_some(i);
        std::iter::successors(some(self.slots[at as usize].head), move |&i| some(self.entries[i as usize].next))
    }

    /// The part on `chain` ends here: rows that it shares with a part that has not ended will end with that one. So a row commits once,
    /// with its newest change, and its lock is given back when both chains have ended it on every replica further back, whichever of
    /// them know of it on which chain. Allocates, but only where a transaction goes on in a new view.
    pub fn pass_on_shared(&mut self, at: u32, chain: Chain) {
        if !self.slots[at as usize].shares {
            return;
        }
        let of_row = |i: u32| (self.entries[i as usize].row(), i);
        let mut again: Vec<RowAt> = self.indexes(at).filter(|&i| self.entry(i).again).map(|i| of_row(i).0).collect();
        again.sort_unstable();
        let mut entries: Vec<(RowAt, u32)> = self.indexes(at).map(of_row).collect();
        entries.retain(|e| again.binary_search(&e.0).is_ok());
        entries.sort_by_key(|e| e.0);
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let parts = &self.slots[at as usize].parts;
            let is_open = |other: &Chain| *other != chain && parts.iter().any(|p| p.chain == *other && !p.committed);
            let Some(other) = same.iter().map(|e| self.entry(e.1).chain).find(is_open) else { continue };
            for &(_, i) in same.iter() {
                let entry = &mut self.entries[i as usize];
                if entry.chain == chain {
                    entry.chain = other;
                }
            }
        }
    }

    /// Whether the transaction in this slot will give the row's lock back; for checks.
    pub fn has_lock_entry(&self, at: u32, row: RowAt) -> bool {
        let mut i = self.slots.get(at as usize).filter(|t| t.used).map_or(NONE, |t| t.head);
        while i != NONE {
            let e = &self.entries[i as usize];
            if e.lock && e.row() == row {
                return true;
            }
            i = e.next;
        }
        false
    }

    /// Whether earlier entries of a row may name another chain than `chain`: only if several are in use and the view has changed since the
    /// transaction was first heard of, or one of them has its name from an older view.
    pub fn may_share(&self, at: u32, chain: Chain, view: &View) -> bool {
        let trans = &self.slots[at as usize];
        let is_old = |chain: Chain| !chain.nodes().all(|n| view.is_alive(n));
        trans.parts.iter().any(|p| p.chain != chain && (trans.born != view.generation || is_old(p.chain)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::view_node;
    use apus_signal::{BlockId, view::NodeState};
    use apus_types::NodeId;

    /// A primary that knows a view passes on what TC has sent in the one before: the backup hears of the transaction first in the new view, on a
    /// chain of the old one.
    #[test]
    fn a_chain_named_in_an_older_view_may_share_rows() {
        let chain = |nodes: &[u16]| Chain::new(&nodes.iter().map(|&n| NodeId(n)).collect::<Vec<_>>());
        let nodes = (1..=2).map(|n| view_node(NodeId(n), 1, NodeState::Up)).collect();
        let view = View { generation: 2, nodes, ..View::default() };
        let mut transactions = Transactions::default();
        let id = TransId { client: 1, seq: 1 };
        let at = transactions.find_or_create(id, BlockRef::new(NodeId(2), BlockId::Tc, 0), view.generation);
        transactions.ensure_part(at, chain(&[2, 1]));
        assert!(!transactions.may_share(at, chain(&[1, 2]), &view));
        transactions.ensure_part(at, chain(&[1, 2, 3]));
        assert!(transactions.may_share(at, chain(&[1, 2]), &view));
    }

    /// In one pass: a worker that is silent for long is held for dead.
    #[test]
    fn very_many_rows_on_two_chains_end_with_the_later_one() {
        const ROWS: u32 = 200_000;
        let [first, second] = [[1, 2, 3], [1, 2, 4]].map(|nodes| Chain::new(&nodes.map(NodeId)));
        let mut transactions = Transactions::default();
        let id = TransId { client: 1, seq: 1 };
        let at = transactions.find_or_create(id, BlockRef::new(NodeId(2), BlockId::Tc, 0), 1);
        for (chain, again) in [(first, false), (second, true)] {
            transactions.ensure_part(at, chain);
            for row in 0..ROWS {
                let (table, partition, row) = (TableId(1), PartitionId(0), RowId(row));
                let entry =
                    Entry { next: NONE, table, partition, row, chain, savepoint: 1, write: true, lock: !again, again };
                transactions.push_entry(at, entry);
            }
        }
        let mut ended = Vec::new();
        for (chain, count) in [(first, 0), (second, 2 * ROWS as usize)] {
            transactions.pass_on_shared(at, chain);
            transactions.take_entries(at, &mut ended, |e| e.chain == chain);
            assert_eq!(ended.len(), count);
            transactions.drop_part(at, chain);
        }
    }
}

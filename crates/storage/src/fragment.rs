//! A fragment: one partition of one table on one data node. Row slots, versions, the hash index and the ordered indexes together.
//!
//! # Rows and versions
//!
//! A row is a slot, named by its [`RowId`] for as long as it exists, on every replica by the same (module `slots`). The slot names the newest version, and has the lock word and the count of
//! changes that are committed here but not yet complete in the cluster. Versions are records linked from new to
//! old: any number of pending ones (one transaction, under an exclusive lock), then the committed one, then older committed ones kept
//! for snapshots (module `versions`). The encoded primary key is made from the image or stored in the record (module `keys`).
//!
//! A pending version names its writer in the place of an epoch. A large transaction commits by one change of state of its writer, which
//! readers ask for ([`Writers`]); its rows are stamped with [`Fragment::commit`] afterwards, some at a time, perhaps epochs later.
//!
//! # Ordered indexes
//!
//! Entry key = encoded index columns, then the encoded primary key (index 0: the primary key alone). Rule: for every version that is
//! linked to a row there is an entry, and for every entry there is such a version. The index of primary keys does not hold the keys, which the rows know. A reader that finds an entry therefore checks it
//! against the version it may see ([`Fragment::entry_matches`]). Hidden unique-index tables have no ordered index.
//!
//! # Pages
//!
//! Slots are in pages of 256 for checkpoints, which want to know which pages have changed (module `pages`).
//!
//! # Failure of memory
//!
//! Only [`Fragment::insert_slot`] and its like, [`Fragment::push_pending`] and [`Fragment::build_index`] can be refused, and then change nothing. Commit, undo
//! and everything after a prepare never need memory.

mod keys;
mod pages;
mod slots;
mod versions;

use std::{ops::Bound, sync::Arc};

use apus_types::{
    Epoch, ErrorCode, IndexNo, PartitionId, TableSchema,
    hash::{SecretHash, hash_key},
    key,
    planted::{Bug, planted},
};

use crate::{
    btree::{BTree, Range},
    hash_index::{HashIndex, prefetch_read},
    memory::{MemoryManager, Region},
    record::{PENDING, RecRef, Records, SAME_ENTRIES, TOMBSTONE},
    row_key::{RowKey, RowKeys},
    trail::{Point, Trail},
};

pub use self::pages::PAGE_ROWS;
use self::{
    keys::Keys,
    slots::Slots,
    versions::{Kept, NOT_KEPT},
};

/// Names a row of a fragment until the row is reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RowId(pub u32);

/// Index memory is taken from the manager in steps of this many bytes.
const INDEX_STEP: usize = 32 << 10;

struct Index {
    no: IndexNo,
    tree: BTree,
    /// Bytes taken from the manager for the tree.
    accounted: usize,
}

pub struct Fragment {
    schema: Arc<TableSchema>,
    partition: PartitionId,
    memory: Arc<MemoryManager>,
    secret: Option<SecretHash>,
    keys: Keys,
    slots: Slots,
    rows: u64,
    /// Rows whose newest committed version is a delete, or that have none any more and wait for a visit (`versions`).
    deleted: u64,
    records: Records,
    hash: HashIndex,
    indexes: Vec<Index>,
    kept: Kept,
    trail: Trail,
    newborn: Newborn,
    scratch: Vec<u8>,
    scratch_old: Vec<u8>,
    image: Vec<u8>,
}

/// Who knows what became of the writers of pending versions.
pub trait Writers {
    /// The epoch in which this writer has committed; `None`: it has not.
    fn decided(&self, writer: u64) -> Option<Epoch>;
}

/// Nothing that is pending is decided.
impl Writers for () {
    #[inline]
    fn decided(&self, _: u64) -> Option<Epoch> {
        None
    }
}

/// The key of an index entry: what the index has of it, or that it is the key of its row.
#[derive(Clone, Copy)]
pub struct EntryKey<'f>(Option<&'f [u8]>);

/// Raw index entries in order: (entry key, row). May hold entries of versions the caller must not see.
pub struct FragmentScan<'f> {
    range: Range<'f>,
    has_keys: bool,
}

impl<'f> Iterator for FragmentScan<'f> {
    type Item = (EntryKey<'f>, RowId);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, row) = self.range.next()?;
        Some((EntryKey(self.has_keys.then_some(key)), RowId(row)))
    }
}

/// The row that was made last, until it has a version or another one is made: its key, for which it needs no record then.
#[derive(Default)]
struct Newborn {
    row: Option<RowId>,
    key: Vec<u8>,
}

/// The keys of the rows of a fragment of which other parts are being changed.
struct KeysOf<'f> {
    slots: &'f Slots,
    records: &'f Records,
    newborn: &'f Newborn,
    keys: &'f Keys,
    schema: &'f TableSchema,
}

impl<'f> KeysOf<'f> {
    /// The key of a row, or the image from which it can be made.
    #[inline]
    fn key_or_image(&self, row: RowId) -> Result<&'f [u8], &'f [u8]> {
        let record = self.slots.holder(row);
        if record.is_none() { Ok(&self.newborn.key) } else { self.records.key_or_image(record) }
    }
    #[inline]
    fn of(&self, row: RowId) -> RowKey<'f> {
        match self.key_or_image(row) {
            Ok(key) => RowKey::stored(key),
            Err(image) => self.keys.make(self.schema, image),
        }
    }
}

impl RowKeys for KeysOf<'_> {
    #[inline]
    fn key(&self, row: u32) -> RowKey<'_> {
        self.of(RowId(row))
    }
}

/// The keys of a fragment's rows, without the whole of it.
macro_rules! keys_of {
    ($fragment:expr) => {
        KeysOf {
            slots: &$fragment.slots,
            records: &$fragment.records,
            newborn: &$fragment.newborn,
            keys: &$fragment.keys,
            schema: &$fragment.schema,
        }
    };
}

impl Fragment {
    pub fn new(
        schema: Arc<TableSchema>,
        partition: PartitionId,
        memory: &Arc<MemoryManager>,
    ) -> Result<Fragment, ErrorCode> {
        let mut fragment = Fragment {
            partition,
            memory: memory.clone(),
            secret: None,
            keys: Keys::new(&schema),
            slots: Slots::default(),
            rows: 0,
            deleted: 0,
            records: Records::new(memory.clone()),
            hash: HashIndex::new(memory.clone())?,
            indexes: Vec::new(),
            kept: Kept::default(),
            trail: Trail::default(),
            newborn: Newborn::default(),
            scratch: Vec::new(),
            scratch_old: Vec::new(),
            image: Vec::new(),
            schema,
        };
        if !fragment.schema.is_hidden_index() {
            fragment.add_index(IndexNo(0));
        }
        Ok(fragment)
    }

    /// The hashes that come with keys are of this function, and not [`hash_key`]: to be said before there is a row.
    pub fn hash_by(&mut self, secret: SecretHash) {
        assert!(self.rows == 0, "{} rows are in the hash index by another function", self.rows);
        self.secret = Some(secret);
    }
    fn hash_of_key(&self, key: &[u8]) -> u64 {
        self.secret.map_or_else(|| hash_key(key), |secret| secret.of(key))
    }

    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }
    pub fn set_schema(&mut self, schema: Arc<TableSchema>) {
        self.keys = Keys::new(&schema);
        self.schema = schema;
    }
    pub fn partition(&self) -> PartitionId {
        self.partition
    }
    /// Rows that are there, including those not committed yet and without those that only snapshots see.
    pub fn row_count(&self) -> u64 {
        self.rows - self.deleted
    }
    /// Nothing at all is in it, not even what only snapshots see.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
    /// What was done last.
    pub fn trail(&self) -> Trail {
        self.trail
    }
    pub fn data_bytes(&self) -> u64 {
        self.records.bytes() + self.slots.bytes() as u64
    }
    pub fn index_bytes(&self) -> u64 {
        self.hash.bytes() as u64 + self.indexes.iter().map(|i| i.tree.bytes() as u64).sum::<u64>()
    }

    /// Bytes taken from the memory manager, by what they are for.
    pub fn bytes_by_part(&self) -> [(&'static str, u64); 4] {
        let trees = self.indexes.iter().map(|index| index.accounted as u64).sum();
        [
            ("slots", self.slots.bytes() as u64),
            ("records", self.records.bytes()),
            ("hash index", self.hash.bytes() as u64),
            ("ordered indexes", trees),
        ]
    }

    /// The row with this primary key in whatever state: committed, being inserted, or kept only by a lock. `hash`, here and elsewhere, is that
    /// of the key by [`hash_key`], or by the function that [`Fragment::hash_by`] was given.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<RowId> {
        self.hash.find(hash, |row| self.has_key(RowId(row), key)).map(RowId)
    }
    /// First step of fetching ahead what a lookup by this hash will touch, so that the cache misses of many overlap: the place in
    /// the hash index.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.hash.prefetch(hash);
    }
    /// Second step: the slot of the row that the hash names (perhaps of another key).
    #[inline]
    pub fn prefetch_slot(&self, hash: u64) -> Option<RowId> {
        let row = RowId(self.hash.candidate(hash)?);
        prefetch_read(self.slots.place(row));
        Some(row)
    }
    /// The same for a row whose number is known.
    #[inline]
    pub fn prefetch_row(&self, row: RowId) {
        if row.0 < self.slots.reached() {
            prefetch_read(self.slots.place(row));
        }
    }
    /// Third step: its newest version.
    #[inline]
    pub fn prefetch_version(&self, row: RowId) {
        let record = self.slots.holder(row);
        if !record.is_none() {
            prefetch_read(self.records.place(record));
        }
    }

    /// The encoded primary key.
    #[inline]
    pub fn key(&self, row: RowId) -> RowKey<'_> {
        keys_of!(self).of(row)
    }
    #[inline]
    fn has_key(&self, row: RowId, key: &[u8]) -> bool {
        match keys_of!(self).key_or_image(row) {
            Ok(stored) => stored == key,
            Err(image) => self.keys.is_made(&self.schema, image, key),
        }
    }
    /// The row's key can be made from this image.
    #[inline]
    fn gives_key(&self, row: RowId, image: &[u8]) -> bool {
        match keys_of!(self).key_or_image(row) {
            Ok(stored) => self.keys.gives(&self.schema, image, stored),
            Err(other) => self.keys.agree(&self.schema, image, other),
        }
    }

    /// The row exists here and has this key: what names both means the same row as this replica.
    #[inline]
    pub fn holds(&self, row: RowId, key: &[u8]) -> bool {
        self.slots.is_used(row) && self.has_key(row, key)
    }
    /// Some row has this slot.
    pub fn is_used(&self, row: RowId) -> bool {
        self.slots.is_used(row)
    }

    /// Makes a row without versions, in a slot of this replica's choice, for a key that [`Fragment::find`] did not find.
    pub fn insert_slot(&mut self, key: &[u8], hash: u64) -> Result<RowId, ErrorCode> {
        self.settle_newborn()?;
        let row = self.slots.take(&self.memory)?;
        self.fill_slot(row, key, hash)?;
        Ok(row)
    }

    /// The same in the slot that the primary has chosen; see [`Fragment::evict`] for one that is not free.
    ///
    /// # Panics
    /// If a row has the slot.
    pub fn insert_slot_at(&mut self, row: RowId, key: &[u8], hash: u64) -> Result<(), ErrorCode> {
        self.settle_newborn()?;
        self.slots.take_at(row, &self.memory)?;
        self.fill_slot(row, key, hash)
    }

    /// Another row is to be made: the last one gets a record for its key, if it has no version.
    #[inline]
    fn settle_newborn(&mut self) -> Result<(), ErrorCode> {
        if let Some(row) = self.newborn.row {
            let record = self.records.alloc(Some(&self.newborn.key), &[], 0, RecRef::NONE, true)?;
            self.slots.set_head(row, record);
            self.slots.bare(row);
            self.newborn.row = None;
        }
        Ok(())
    }
    /// Frees what a row without versions has for its key.
    fn free_holder(&mut self, row: RowId) {
        match self.slots.holder(row) {
            RecRef::NONE => {
                assert!(self.newborn.row == Some(row), "row {row:?} has neither a record nor a key");
                self.newborn.row = None;
            }
            record => self.records.free(record),
        }
    }

    /// Makes the row in a slot that was taken, or gives the slot back.
    fn fill_slot(&mut self, row: RowId, key: &[u8], hash: u64) -> Result<(), ErrorCode> {
        self.trail.mark(Point::Insert);
        if let Err(code) = self.hash.insert(hash, row.0) {
            self.slots.give_back(row, &self.memory);
            return Err(code);
        }
        self.slots.fill(row, RecRef::NONE);
        self.newborn.row = Some(row);
        self.newborn.key.clear();
        self.newborn.key.extend_from_slice(key);
        self.rows += 1;
        assert!(
            self.hash.len() as u64 == self.rows,
            "{} rows, {} entries of the hash index",
            self.rows,
            self.hash.len()
        );
        self.count_deleted(false, self.slots.kept_next(row) != NOT_KEPT);
        Ok(())
    }

    /// The newest committed image; `None` when the row is not there for others.
    #[inline]
    pub fn committed(&self, row: RowId, writers: &impl Writers) -> Option<&[u8]> {
        self.image_of(self.latest(row, writers).0)
    }
    /// The newest version that is committed, and its epoch; pending ones count when their writer says that they are decided.
    #[inline]
    fn latest(&self, row: RowId, writers: &impl Writers) -> (RecRef, Epoch) {
        let head = self.slots.head(row);
        if head.is_none() {
            return (head, Epoch(0));
        }
        let (flags, stamp) = self.records.stamp(head);
        if flags & PENDING == 0 {
            return (head, stamp);
        }
        match writers.decided(stamp.0) {
            Some(epoch) => (head, epoch),
            None => {
                let below = self.below_pending(head);
                (below, if below.is_none() { Epoch(0) } else { self.records.epoch(below) })
            }
        }
    }
    /// The first version from `at` on that is not pending.
    fn below_pending(&self, mut at: RecRef) -> RecRef {
        while !at.is_none() && self.records.flags(at) & PENDING != 0 {
            at = self.records.previous(at);
        }
        at
    }
    /// What a version shows: `None` for no version and for a delete.
    #[inline]
    fn image_of(&self, at: RecRef) -> Option<&[u8]> {
        if at.is_none() { None } else { self.records.bytes_without(at, TOMBSTONE) }
    }
    /// The newest image, pending ones included: what the holder of the exclusive lock sees.
    #[inline]
    pub fn newest(&self, row: RowId) -> Option<&[u8]> {
        self.image_of(self.slots.head(row))
    }
    /// An image that the row has or may come to have: the newest pending one that is no delete, or the committed one.
    pub fn possible(&self, row: RowId) -> Option<&[u8]> {
        let mut at = self.slots.head(row);
        while !at.is_none() {
            let flags = self.records.flags(at);
            if flags & TOMBSTONE == 0 {
                return Some(self.records.bytes_of(at));
            }
            if flags & PENDING == 0 {
                return None;
            }
            at = self.records.previous(at);
        }
        None
    }
    /// The image committed at or before `epoch`, for snapshot reads; right only for epochs not below the horizon of [`Fragment::commit`].
    pub fn committed_at(&self, row: RowId, epoch: Epoch, writers: &impl Writers) -> Option<&[u8]> {
        let (mut at, mut since) = self.latest(row, writers);
        while !at.is_none() && since > epoch && !planted(Bug::SnapshotShowsLatest) {
            at = self.below_pending(self.records.previous(at));
            if !at.is_none() {
                since = self.records.epoch(at);
            }
        }
        self.image_of(at)
    }
    /// Who wrote the row's pending versions, as named to [`Fragment::push_pending`]; `None`: there are none.
    #[inline]
    pub fn writer(&self, row: RowId) -> Option<u64> {
        let at = self.slots.head(row);
        (!at.is_none() && self.records.flags(at) & PENDING != 0).then(|| self.records.epoch(at).0)
    }
    #[inline]
    pub fn has_pending(&self, row: RowId) -> bool {
        let at = self.slots.head(row);
        !at.is_none() && self.records.flags(at) & PENDING != 0
    }
    /// Epoch of the newest committed version; 0: there is none.
    pub fn last_change(&self, row: RowId, writers: &impl Writers) -> Epoch {
        self.latest(row, writers).1
    }

    /// Puts a version on top of the row, not committed; `None` deletes. The caller holds the row's exclusive lock and names itself:
    /// readers ask [`Writers`] what became of `writer`.
    pub fn push_pending(&mut self, row: RowId, image: Option<&[u8]>, writer: u64) -> Result<(), ErrorCode> {
        self.trail.mark(Point::Push);
        let head = self.slots.head(row);
        assert!(self.slots.is_used(row), "a change of row {row:?}, which does not exist");
        let flags = PENDING | if image.is_none() { TOMBSTONE } else { 0 };
        let record = match image {
            Some(image) if self.gives_key(row, image) => {
                self.records.alloc(None, image, flags, head, head.is_none())?
            }
            _ => {
                let mut key = std::mem::take(&mut self.scratch);
                key.clear();
                key.extend_from_slice(&self.key(row));
                let record = self.records.alloc(Some(&key), image.unwrap_or(&[]), flags, head, head.is_none());
                self.scratch = key;
                record?
            }
        };
        self.records.set_epoch(record, Epoch(writer));
        if let Some(image) = image {
            match self.index_version(row, image, head) {
                Ok(false) => {}
                Ok(true) => self.records.set_flags(record, flags | SAME_ENTRIES),
                Err(code) => {
                    self.records.free(record);
                    return Err(code);
                }
            }
        }
        if head.is_none() {
            self.free_holder(row);
        }
        self.slots.set_head(row, record);
        Ok(())
    }

    /// Adds the entries of a new image that the version below it does not have already; `true` if it has them all.
    fn index_version(&mut self, row: RowId, image: &[u8], below: RecRef) -> Result<bool, ErrorCode> {
        let (mut added, mut same) = (0u128, true);
        for i in 0..self.indexes.len() {
            let no = self.indexes[i].no;
            let Some(columns) = self.schema.index_columns(no) else { continue };
            if !below.is_none()
                && self.records.flags(below) & TOMBSTONE == 0
                && (no.0 == 0
                    || planted(Bug::OrderedIndexStale)
                    || key::same_columns(self.schema.layout(), columns, self.records.bytes_of(below), image))
            {
                continue;
            }
            same = false;
            let mut entry = std::mem::take(&mut self.scratch);
            let result = self.entry_key(no, row, image, &mut entry).and_then(|()| self.add_entry(i, &entry, row));
            self.scratch = entry;
            match result {
                Ok(true) => added |= 1 << i,
                Ok(false) => {}
                Err(code) => {
                    for j in (0..i).filter(|j| added & 1 << j != 0) {
                        self.remove_entry_of(j, row, image);
                    }
                    return Err(code);
                }
            }
        }
        Ok(same)
    }

    fn add_entry(&mut self, index: usize, entry: &[u8], row: RowId) -> Result<bool, ErrorCode> {
        let index = &mut self.indexes[index];
        // Room for what this insert may need is taken beforehand, beside nodes that are free: splits, and a long key twice (entry and separator).
        let more = INDEX_STEP / 2 + 2 * entry.len();
        while index.tree.bytes() - index.tree.spare_bytes() + more > index.accounted {
            if !self.memory.account(Region::Index, INDEX_STEP, false) {
                return Err(ErrorCode::OutOfMemory);
            }
            index.accounted += INDEX_STEP;
        }
        let rows = keys_of!(self);
        Ok(index.tree.insert(&rows, entry, row.0))
    }

    fn remove_entry_of(&mut self, index: usize, row: RowId, image: &[u8]) {
        let mut entry = std::mem::take(&mut self.scratch);
        let no = self.indexes[index].no;
        if self.entry_key(no, row, image, &mut entry).is_ok() {
            let rows = keys_of!(self);
            self.indexes[index].tree.remove(&rows, &entry);
        }
        self.scratch = entry;
        let index = &mut self.indexes[index];
        while index.accounted > index.tree.bytes() + 4 * INDEX_STEP {
            self.memory.unaccount(Region::Index, INDEX_STEP);
            index.accounted -= INDEX_STEP;
        }
    }

    /// Writes the entry key of `image` in index `no` into `out`.
    fn entry_key(&self, no: IndexNo, row: RowId, image: &[u8], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        out.clear();
        if no.0 != 0 {
            let index = self.schema.index(no).ok_or(ErrorCode::IndexNotFound)?;
            key::encode_entry(&self.schema, index, image, out)?;
        }
        match keys_of!(self).key_or_image(row) {
            Ok(key) => out.extend_from_slice(key),
            Err(image) => out.extend_from_slice(&self.keys.make(&self.schema, image)),
        }
        Ok(())
    }

    /// Removes the entries of a version that is no longer linked, except those a remaining version has too.
    fn unindex_version(&mut self, row: RowId, image: &[u8]) {
        for i in 0..self.indexes.len() {
            if !self.other_version_has(i, row, image) {
                self.remove_entry_of(i, row, image);
            }
        }
    }

    fn other_version_has(&mut self, index: usize, row: RowId, image: &[u8]) -> bool {
        let no = self.indexes[index].no;
        let mut at = self.slots.head(row);
        let (mut mine, mut other) = (std::mem::take(&mut self.scratch), std::mem::take(&mut self.scratch_old));
        let mut found = false;
        while !at.is_none() && !found {
            if self.records.flags(at) & TOMBSTONE == 0 {
                let version = self.records.bytes_of(at);
                found = no.0 == 0
                    || self
                        .schema
                        .index_columns(no)
                        .is_some_and(|c| key::same_columns(self.schema.layout(), c, version, image))
                    || (self.entry_key(no, row, image, &mut mine).is_ok()
                        && self.entry_key(no, row, version, &mut other).is_ok()
                        && mine == other);
            }
            at = self.records.previous(at);
        }
        (self.scratch, self.scratch_old) = (mine, other);
        found
    }

    /// Frees a record that has been unlinked from the row, unless the row needs it for its key, with the entries only it needed. `covered`: a version that stays has the same
    /// entries ([`SAME_ENTRIES`]).
    fn drop_version(&mut self, row: RowId, record: RecRef, covered: bool) {
        if !covered && self.records.flags(record) & TOMBSTONE == 0 && !self.indexes.is_empty() {
            // The image is copied out because the indexes are changed while it is read.
            let mut image = std::mem::take(&mut self.image);
            image.clear();
            image.extend_from_slice(self.records.bytes_of(record));
            self.unindex_version(row, &image);
            self.image = image;
        }
        if record != self.slots.holder(row) {
            self.records.free(record);
        }
    }

    #[inline]
    fn has_entries_of_below(&self, record: RecRef) -> bool {
        self.records.flags(record) & SAME_ENTRIES != 0
    }

    /// Undoes the newest pending version.
    pub fn pop_pending(&mut self, row: RowId) {
        self.trail.mark(Point::Undo);
        let head = self.slots.head(row);
        assert!(self.has_pending(row), "undo of a row without a pending version");
        match self.records.previous(head) {
            RecRef::NONE => self.slots.bare(row),
            previous => self.slots.set_head(row, previous),
        }
        self.drop_version(row, head, self.has_entries_of_below(head));
    }

    /// The lock word. What it becomes is looked at by [`Fragment::reclaim`].
    #[inline]
    pub fn lock_word(&mut self, row: RowId) -> &mut u32 {
        self.slots.lock_mut(row, &self.memory)
    }
    #[inline]
    pub fn lock_word_of(&self, row: RowId) -> u32 {
        self.slots.lock(row)
    }
    /// Changes committed here and not yet known to be complete in the cluster.
    #[inline]
    pub fn incomplete(&self, row: RowId) -> u32 {
        self.slots.incomplete(row)
    }
    pub fn add_incomplete(&mut self, row: RowId) {
        *self.slots.incomplete_mut(row, &self.memory) += 1;
    }
    pub fn sub_incomplete(&mut self, row: RowId) {
        let incomplete = self.slots.incomplete_mut(row, &self.memory);
        assert!(*incomplete > 0, "a row completed more often than it was committed");
        *incomplete -= 1;
        self.slots.settle(row, &self.memory);
    }

    /// Removes the row if nothing is left of it: no version, no lock, nothing incomplete, no visit of [`Fragment::collect`] to come.
    pub fn reclaim(&mut self, row: RowId) -> bool {
        self.slots.settle(row, &self.memory);
        if !self.slots.is_idle(row) || !self.slots.is_used(row) || !self.slots.head(row).is_none() {
            return false;
        }
        self.remove_row(row);
        true
    }

    /// Gives up a deleted row before its time: the primary has given its slot, or its key, to another row, so it has reclaimed this one, and no
    /// snapshot below the delete is held by anybody. Returns the epoch of the delete: this replica cannot show what was before.
    ///
    /// # Panics
    /// If the row is not deleted, or is locked.
    pub fn evict(&mut self, row: RowId) -> Epoch {
        self.trail.mark(Point::Evict);
        let (head, lock) = (self.slots.head(row), self.slots.lock(row));
        assert!(self.slots.is_used(row), "there is no row {row:?} to be given up");
        assert!(lock == 0, "row {row:?} is replaced by its primary and is locked here: {lock}");
        assert!(!self.has_pending(row), "row {row:?} is replaced by its primary and has an open change here");
        assert!(head.is_none() || self.is_tombstone(head), "row {row:?} is replaced by its primary and lives here");
        let epoch = if head.is_none() { Epoch(0) } else { self.records.epoch(head) };
        self.take_out(row);
        epoch
    }

    /// Gives up a row that this replica has read back from its own disk and its primary has not any more, with all its versions. Nobody reads
    /// here yet. `false`, and nothing changes: a transaction has it ([`Fragment::give_up_committed`]).
    pub fn give_up_row(&mut self, row: RowId) -> bool {
        self.trail.mark(Point::Evict);
        if !self.slots.is_used(row) || self.slots.lock(row) != 0 || self.has_pending(row) {
            return false;
        }
        self.slots.note_changed(row);
        self.take_out(row);
        true
    }

    /// The row goes with all its versions.
    fn take_out(&mut self, row: RowId) {
        let was_deleted = self.is_deleted(row);
        let mut at = self.slots.head(row);
        self.slots.bare(row);
        while !at.is_none() {
            let previous = self.records.previous(at);
            self.drop_version(row, at, false);
            at = previous;
        }
        self.remove_row(row);
        self.count_deleted(was_deleted, false);
    }

    fn remove_row(&mut self, row: RowId) {
        self.trail.mark(Point::Reclaim);
        assert!(self.slots.is_used(row) && self.rows > 0, "row {row:?} is removed twice");
        let hash = self.hash_of_key(&self.key(row));
        let removed = self.hash.remove(hash, row.0);
        assert!(removed, "a row without hash entry");
        self.free_holder(row);
        self.slots.give_back(row, &self.memory);
        self.rows -= 1;
        assert!(
            self.hash.len() as u64 == self.rows,
            "{} rows, {} entries of the hash index",
            self.rows,
            self.hash.len()
        );
    }

    /// The first row at or after `from`, in slot order.
    pub fn next_row(&self, from: RowId) -> Option<RowId> {
        (from.0..self.slots.reached()).map(RowId).find(|&row| self.slots.is_used(row))
    }

    /// Entries of an ordered index between two bounds over encoded index columns (a prefix will do) or whole entry keys; `None` when there
    /// is no such index.
    pub fn scan<'f>(
        &'f self,
        index: IndexNo,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> Option<FragmentScan<'f>> {
        let index = self.indexes.iter().find(|i| i.no == index)?;
        Some(FragmentScan { range: index.tree.range(&keys_of!(self), low, high, reverse), has_keys: index.no.0 != 0 })
    }
    /// The whole key of an entry that a scan has found.
    #[inline]
    pub fn entry_key_of<'f>(&'f self, entry: EntryKey<'f>, row: RowId) -> RowKey<'f> {
        entry.0.map_or_else(|| self.key(row), RowKey::stored)
    }

    /// Whether an entry found by a scan is the one of this image of the row.
    #[inline]
    pub fn entry_matches(
        &self,
        index: IndexNo,
        row: RowId,
        image: &[u8],
        entry: EntryKey<'_>,
        scratch: &mut Vec<u8>,
    ) -> bool {
        let Some(entry) = entry.0 else { return true };
        let mut at = self.slots.head(row);
        let mut below = self.records.previous(at);
        while !below.is_none() && self.has_entries_of_below(at) {
            (at, below) = (below, self.records.previous(below));
        }
        if below.is_none() {
            return true; // every version has the same entries
        }
        self.entry_key(index, row, image, scratch).is_ok() && scratch == entry
    }

    /// Makes an empty ordered index that writes maintain from now on; its definition must be in the schema. Fill it with
    /// [`Fragment::build_index`].
    pub fn add_index(&mut self, index: IndexNo) {
        if self.indexes.iter().all(|i| i.no != index) {
            let tree = if index.0 == 0 { BTree::without_keys() } else { BTree::new() };
            self.indexes.push(Index { no: index, tree, accounted: 0 });
        }
    }

    /// Adds the entries of the rows from `from` on, at most `budget` rows; returns where to go on. Entries that writes have added
    /// meanwhile are left as they are.
    pub fn build_index(&mut self, index: IndexNo, from: RowId, budget: usize) -> Result<Option<RowId>, ErrorCode> {
        self.trail.mark(Point::Build);
        let Some(i) = self.indexes.iter().position(|i| i.no == index) else { return Err(ErrorCode::IndexNotFound) };
        let mut next = self.next_row(from);
        for _ in 0..budget {
            let Some(row) = next else { return Ok(None) };
            let mut at = self.slots.head(row);
            while !at.is_none() {
                // What was alike in the other indexes may differ in this one.
                let flags = self.records.flags(at) & !SAME_ENTRIES;
                self.records.set_flags(at, flags);
                if flags & TOMBSTONE == 0 {
                    let mut entry = std::mem::take(&mut self.scratch);
                    let made = self.entry_key(index, row, self.records.bytes_of(at), &mut entry);
                    let added = made.and_then(|()| self.add_entry(i, &entry, row));
                    self.scratch = entry;
                    added?;
                }
                at = self.records.previous(at);
            }
            next = self.next_row(RowId(row.0 + 1));
        }
        Ok(next)
    }

    pub fn drop_index(&mut self, index: IndexNo) {
        if let Some(i) = self.indexes.iter().position(|i| i.no == index) {
            let index = self.indexes.swap_remove(i);
            self.memory.unaccount(Region::Index, index.accounted);
        }
    }

    /// Sum over the committed rows that is equal on replicas with equal content in equal slots.
    pub fn content_hash(&self) -> u64 {
        let mut sum = 0u64;
        let mut next = self.next_row(RowId(0));
        while let Some(row) = next {
            if let Some(image) = self.committed(row, &()) {
                sum = sum.wrapping_add(self.hash_of(row, image));
            }
            next = self.next_row(RowId(row.0 + 1));
        }
        sum
    }

    /// Of a row's place, key and this image of it: equal on all replicas.
    pub fn hash_of(&self, row: RowId, image: &[u8]) -> u64 {
        let place = hash_key(&row.0.to_le_bytes()).rotate_left(34);
        let hash = hash_key(&self.key(row)) ^ hash_key(image).rotate_left(17) ^ place;
        hash_key(&hash.to_le_bytes())
    }

    /// Checks the whole structure: hash index, slots, versions and trees against each other. Slow.
    pub fn verify(&self) -> Result<(), String> {
        let used: Vec<RowId> = (0..self.slots.reached()).map(RowId).filter(|&r| self.slots.is_used(r)).collect();
        self.slots.verify()?;
        if used.len() as u64 != self.rows || self.hash.len() != used.len() {
            return Err(format!("{} slots in use, {} rows, {} hash entries", used.len(), self.rows, self.hash.len()));
        }
        if let Some(row) = self.hash.rows().find(|&r| !self.slots.is_used(RowId(r))) {
            return Err(format!("the hash index names row {row}, which does not exist"));
        }
        let (mut entry, mut expected, mut records) =
            (Vec::new(), vec![std::collections::BTreeSet::new(); self.indexes.len()], 0);
        for &row in &used {
            if self.find(&self.key(row), self.hash_of_key(&self.key(row))) != Some(row) {
                return Err(format!("row {row:?} is not found by its key"));
            }
            let mut at = self.slots.head(row);
            records += u64::from(at.is_none() && self.newborn.row != Some(row));
            while !at.is_none() {
                records += 1;
                if self.records.flags(at) & TOMBSTONE == 0 {
                    for (i, index) in self.indexes.iter().enumerate() {
                        self.entry_key(index.no, row, self.records.bytes_of(at), &mut entry)
                            .map_err(|e| e.to_string())?;
                        if index.tree.get(&keys_of!(self), &entry) != Some(row.0) {
                            return Err(format!("row {row:?} has no entry in index {}", index.no));
                        }
                        expected[i].insert(entry.clone());
                    }
                }
                at = self.records.previous(at);
            }
        }
        if records != self.records.count() {
            return Err(format!("{records} records are linked, {} exist", self.records.count()));
        }
        self.verify_kept()?;
        for (index, expected) in self.indexes.iter().zip(expected) {
            index.tree.verify(&keys_of!(self))?;
            if index.tree.len() != expected.len() {
                return Err(format!("index {} has {} entries, {} are due", index.no, index.tree.len(), expected.len()));
            }
        }
        Ok(())
    }
}

impl Fragment {
    /// Frees a part of a fragment that nobody will use again: so many pages, large records or pieces of an index at most. `true`: what is left is
    /// small, and goes with it.
    pub fn give_up(&mut self, most: usize) -> bool {
        if !self.records.give_up(most) {
            return false;
        }
        let Some(index) = self.indexes.last_mut() else { return true };
        if (0..most).any(|_| index.tree.give_up()) {
            self.memory.unaccount(Region::Index, index.accounted);
            self.indexes.pop();
        }
        false
    }
}

impl Drop for Fragment {
    fn drop(&mut self) {
        for index in &self.indexes {
            self.memory.unaccount(Region::Index, index.accounted);
        }
        self.memory.unaccount(Region::Data, self.slots.bytes());
    }
}

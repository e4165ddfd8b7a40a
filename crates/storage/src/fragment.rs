//! A fragment: one partition of one table on one data node. Row slots, versions, the hash index and the ordered indexes together.
//!
//! # Rows and versions
//!
//! A row is a slot, named by its [`RowId`] for as long as it exists, on every replica by the same (module `slots`). The slot names the newest version, and has the lock word and the count of
//! changes that are committed here but not yet complete in the cluster. Versions are records linked from new to
//! old: any number of pending ones (one transaction, under an exclusive lock), then the committed one, then older committed ones kept
//! for snapshots (module `versions`). The encoded primary key is made from the image or stored in the record (module `keys`).
//!
//! A pending version names its writer in the place of an epoch, and locks the row for it (module `idle`). A large transaction commits by one change of state of its writer, which
//! readers ask for ([`Writers`]); its rows are stamped with [`Fragment::commit`] afterwards, some at a time, perhaps epochs later.
//!
//! # Ordered indexes
//!
//! Entry key = encoded index columns, then the encoded primary key (index 0: the primary key alone). Rule: for every version that is
//! linked to a row there is an entry, and for every entry there is such a version. The index of primary keys does not hold the keys, which the rows know. A reader that finds an entry therefore checks it
//! against the version it may see ([`Fragment::entry_matches`]). Hidden tables of unique indexes have no ordered index (module `indexes`).
//!
//! # Pages
//!
//! Slots are in pages of 256 for checkpoints, which want to know which pages have changed (module `pages`).
//!
//! # Failure of memory
//!
//! Only [`Fragment::insert_slot`] and its like, [`Fragment::push_pending`] and [`Fragment::build_index`] can be refused, and then change nothing. Commit, undo
//! and everything after a prepare never need memory.

mod idle;
mod indexes;
mod keys;
mod pages;
mod slots;
mod versions;

use std::{ops::Bound, sync::Arc};

use apus_types::{
    Epoch, ErrorCode, IndexNo, PartitionId, TableSchema,
    hash::{SecretHash, hash_key},
    planted::{Bug, planted},
};

use crate::{
    btree::{BTree, Range},
    hash_index::{HashIndex, prefetch_read},
    memory::{MemoryManager, Region},
    record::{Header, PENDING, RecRef, Records, SAME_ENTRIES, TOMBSTONE},
    row_key::{RowKey, RowKeys},
    trail::{Point, Trail},
};

pub use self::{idle::Idle, indexes::EntryAhead, pages::PAGE_ROWS};
use self::{
    keys::Keys,
    slots::Slots,
    versions::{Kept, NOT_KEPT},
};

/// Names a row of a fragment until the row is reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RowId(pub u32);

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
    /// There is an index beside that of primary keys, which no update changes.
    has_others: bool,
    kept: Kept,
    trail: Trail,
    newborn: Newborn,
    scratch: Vec<u8>,
    scratch_old: Vec<u8>,
    image: Vec<u8>,
}

/// A change of a row whose exclusive lock its writer has, or gets by it: [`Fragment::push`], [`Fragment::push_idle`].
#[derive(Clone, Copy, Debug)]
pub struct Change<'i> {
    /// `None`: the row is deleted.
    pub image: Option<&'i [u8]>,
    /// The owner of the lock in the high half ([`crate::Locks::of_writer`]), and a number that means something to the owner.
    pub writer: u64,
    /// The writer has the lock since just now, so nobody has an open change of the row.
    pub fresh: bool,
    /// The image was made from the row's newest one, and has its columns of the primary key.
    pub keeps_key: bool,
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

/// Of the version that a scan will look at, this much is fetched ahead.
const CACHE_LINE: usize = 64;
const LINES_FETCHED: usize = 3;

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

/// What a row shows at two moments, the earlier one first; `None`: it is not there.
pub type Between<'f> = (Option<&'f [u8]>, Option<&'f [u8]>);

/// A version that somebody looks at.
#[derive(Clone, Copy)]
struct Version<'f> {
    /// Its epoch, also where its rows are not stamped yet. Of a pending one nothing.
    since: Epoch,
    header: Header,
    image: &'f [u8],
}

impl<'f> Version<'f> {
    /// What it shows: `None` for a delete.
    #[inline]
    fn image(self) -> Option<&'f [u8]> {
        (!self.header.is_tombstone()).then_some(self.image)
    }
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
        self.key_or_image_in(self.slots.holder(row))
    }
    /// The same of a row whose record is known.
    #[inline]
    fn key_or_image_in(&self, holder: RecRef) -> Result<&'f [u8], &'f [u8]> {
        if holder.is_none() { Ok(&self.newborn.key) } else { self.records.key_or_image(holder) }
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
use keys_of;

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
            has_others: false,
            kept: Kept::default(),
            trail: Trail::default(),
            newborn: Newborn::default(),
            scratch: Vec::new(),
            scratch_old: Vec::new(),
            image: Vec::new(),
            schema,
        };
        if fragment.schema.has_ordered_keys() {
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
    /// the hash index, which the second step wants to know.
    #[inline]
    pub fn prefetch(&self, hash: u64) -> usize {
        self.hash.prefetch(hash)
    }
    /// As [`Fragment::find`]; the row is probably this one.
    #[inline]
    pub fn find_near(&self, guess: Option<RowId>, key: &[u8], hash: u64) -> Option<RowId> {
        match guess {
            Some(row) if self.holds(row, key) => guess,
            _ => self.find(key, hash),
        }
    }
    /// The row that the hash names (perhaps of another key).
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<RowId> {
        self.hash.candidate(self.hash.prefetch(hash), hash).map(RowId)
    }
    /// Second step: the slot of that row.
    #[inline]
    pub fn prefetch_slot(&self, place: usize, hash: u64) -> Option<RowId> {
        let row = RowId(self.hash.candidate(place, hash)?);
        prefetch_read(self.slots.place(row));
        Some(row)
    }
    /// The same for a row whose number is known.
    #[inline]
    pub fn prefetch_row(&self, row: RowId) {
        self.slots.place_at(row).into_iter().for_each(prefetch_read);
    }
    /// The second and third step of a row whose number is known; `false`: no row has it.
    #[inline]
    pub fn prefetch_used(&self, row: RowId) -> bool {
        let name = self.slots.name_at(row);
        if !name.holder().is_none() {
            prefetch_read(self.records.place(name.holder()));
        }
        name.is_used()
    }
    /// Third step: its newest version.
    #[inline]
    pub fn prefetch_version(&self, row: RowId) {
        let record = self.slots.holder(row);
        if !record.is_none() {
            prefetch_read(self.records.place(record));
        }
    }

    /// As [`Fragment::prefetch_version`], of all of a short one: for who reads columns and not its head alone.
    #[inline]
    pub fn prefetch_image(&self, row: RowId) {
        let record = self.slots.holder(row);
        if !record.is_none() {
            self.records.place(record).chunks(CACHE_LINE).take(LINES_FETCHED).for_each(prefetch_read);
        }
    }

    /// The encoded primary key.
    #[inline]
    pub fn key(&self, row: RowId) -> RowKey<'_> {
        keys_of!(self).of(row)
    }
    #[inline]
    fn has_key(&self, row: RowId, key: &[u8]) -> bool {
        self.has_key_in(self.slots.holder(row), key)
    }
    #[inline]
    fn has_key_in(&self, holder: RecRef, key: &[u8]) -> bool {
        match keys_of!(self).key_or_image_in(holder) {
            Ok(stored) => stored == key,
            Err(image) => self.keys.is_made(&self.schema, image, key),
        }
    }
    /// The key of a row with this record can be made from this image.
    #[inline]
    fn gives_key(&self, holder: RecRef, image: &[u8]) -> bool {
        match keys_of!(self).key_or_image_in(holder) {
            Ok(stored) => self.keys.gives(&self.schema, image, stored),
            Err(other) => self.keys.agree(&self.schema, image, other),
        }
    }

    /// The row exists here and has this key: what names both means the same row as this replica.
    #[inline]
    pub fn holds(&self, row: RowId, key: &[u8]) -> bool {
        let name = self.slots.name_at(row);
        name.is_used() && self.has_key_in(name.holder(), key)
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
            let record = self.records.alloc(Some(&self.newborn.key), &[], (0, 0), RecRef::NONE, true)?;
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
        self.latest(row, writers).and_then(Version::image)
    }
    /// The newest version that is committed; a pending one counts when its writer says that it is decided.
    #[inline(always)]
    fn latest(&self, row: RowId, writers: &impl Writers) -> Option<Version<'_>> {
        let version = self.version(self.slots.head(row))?;
        if !version.header.is_pending() {
            return Some(version);
        }
        match writers.decided(version.header.stamp) {
            Some(since) => Some(Version { since, ..version }),
            None => self.below_pending(version.header.previous),
        }
    }
    /// The first version from `at` on that is not pending.
    #[inline]
    fn below_pending(&self, at: RecRef) -> Option<Version<'_>> {
        let mut version = self.version(at)?;
        while version.header.is_pending() {
            version = self.version(version.header.previous)?;
        }
        Some(version)
    }
    #[inline(always)]
    fn version(&self, at: RecRef) -> Option<Version<'_>> {
        if at.is_none() {
            return None;
        }
        let (header, image) = self.records.version(at);
        Some(Version { since: Epoch(header.stamp), header, image })
    }
    /// The newest image, pending ones included: what the holder of the exclusive lock sees.
    #[inline]
    pub fn newest(&self, row: RowId) -> Option<&[u8]> {
        self.version(self.slots.head(row)).and_then(Version::image)
    }
    /// An image that the row has or may come to have: the newest pending one that is no delete, or the committed one.
    pub fn possible(&self, row: RowId) -> Option<&[u8]> {
        let mut version = self.version(self.slots.head(row))?;
        while version.header.is_pending() && version.header.is_tombstone() {
            version = self.version(version.header.previous)?;
        }
        version.image()
    }
    /// The image committed at or before `epoch`, for snapshot reads; right only for epochs not below the horizon of [`Fragment::commit`].
    pub fn committed_at(&self, row: RowId, epoch: Epoch, writers: &impl Writers) -> Option<&[u8]> {
        let mut version = self.latest(row, writers)?;
        while version.since > epoch && !planted(Bug::SnapshotShowsLatest) {
            version = self.below_pending(version.header.previous)?;
        }
        version.image()
    }
    /// What the row showed at each of two epochs, if that is not of one version; right as [`Fragment::committed_at`] is.
    pub fn changed_between(&self, row: RowId, from: Epoch, to: Epoch, writers: &impl Writers) -> Option<Between<'_>> {
        let mut new = self.latest(row, writers);
        while let Some(version) = new.filter(|version| version.since > to) {
            new = self.below_pending(version.header.previous);
        }
        let mut old = new.filter(|version| version.since > from)?;
        let shown = new.and_then(Version::image);
        while old.since > from {
            match self.below_pending(old.header.previous) {
                Some(below) => old = below,
                None => return shown.map(|image| (None, Some(image))),
            }
        }
        let before = old.image();
        (before.is_some() || shown.is_some()).then_some((before, shown))
    }
    /// The same, where the caller has just locked the row, if `fresh`: nobody else has an open change then.
    ///
    /// # Panics
    /// If somebody has.
    #[inline]
    pub fn newest_locked(&self, row: RowId, fresh: bool) -> Option<&[u8]> {
        let version = self.version(self.slots.head(row))?;
        let is_open = version.header.is_pending();
        assert!(!fresh || !is_open, "row {row:?} has a new holder and somebody else's change");
        version.image()
    }
    /// Who wrote the row's pending versions, as named to [`Fragment::push_pending`]; `None`: there are none.
    #[inline]
    pub fn writer(&self, row: RowId) -> Option<u64> {
        let head = self.slots.head(row);
        if head.is_none() {
            return None;
        }
        let header = self.records.header(head);
        header.is_pending().then_some(header.stamp)
    }
    #[inline]
    pub fn has_pending(&self, row: RowId) -> bool {
        self.writer(row).is_some()
    }
    /// Epoch of the newest committed version; 0: there is none.
    pub fn last_change(&self, row: RowId, writers: &impl Writers) -> Epoch {
        self.latest(row, writers).map_or(Epoch(0), |version| version.since)
    }

    /// Puts a version on top of the row, not committed; `None` deletes. The caller holds the row's exclusive lock and names itself:
    /// readers ask [`Writers`] what became of `writer`.
    pub fn push_pending(&mut self, row: RowId, image: Option<&[u8]>, writer: u64) -> Result<(), ErrorCode> {
        self.push(row, &Change { image, writer, fresh: false, keeps_key: false })
    }
    /// The same, with more that is known of the change.
    ///
    /// # Panics
    /// If somebody else has an open change of a row that was just locked.
    pub fn push(&mut self, row: RowId, change: &Change<'_>) -> Result<(), ErrorCode> {
        let Change { image, writer, fresh, keeps_key } = *change;
        self.trail.mark(Point::Push);
        let name = self.slots.name(row);
        let head = name.head();
        assert!(name.is_used(), "a change of row {row:?}, which does not exist");
        let below = self.version(head);
        let is_open = below.is_some_and(|version| version.header.is_pending());
        assert!(!fresh || !is_open, "row {row:?} has a new holder and somebody else's change");
        let changed = image.map_or(0, |image| self.changed_indexes(image, below));
        let flags = match image {
            None => PENDING | TOMBSTONE,
            Some(_) if changed == 0 && below.is_some() => PENDING | SAME_ENTRIES,
            Some(_) => PENDING,
        };
        let gives_key = image.is_some_and(|image| match below {
            Some(below) if !below.header.has_key() => keeps_key || self.keys.agree(&self.schema, image, below.image),
            _ => self.gives_key(name.holder(), image),
        });
        let record = match image {
            Some(image) if gives_key => self.records.alloc(None, image, (flags, writer), head, head.is_none())?,
            _ => self.alloc_with_key(row, image.unwrap_or(&[]), (flags, writer), head)?,
        };
        if changed != 0
            && let Some(image) = image
            && let Err(code) = self.index_version(row, image, changed)
        {
            self.records.free(record);
            return Err(code);
        }
        if head.is_none() {
            self.free_holder(row);
        }
        self.slots.set_head(row, record);
        Ok(())
    }

    /// A record that has the row's key with it.
    fn alloc_with_key(
        &mut self,
        row: RowId,
        image: &[u8],
        stamp: (u8, u64),
        head: RecRef,
    ) -> Result<RecRef, ErrorCode> {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(&self.key(row));
        let record = self.records.alloc(Some(&key), image, stamp, head, head.is_none());
        self.scratch = key;
        record
    }

    /// Frees a record that has been unlinked from the row, unless the row needs it for its key, with the entries only it needed. `covered`: a version that stays has the same
    /// entries ([`SAME_ENTRIES`]).
    fn drop_version(&mut self, row: RowId, record: RecRef, covered: bool) {
        if !covered && !self.indexes.is_empty() {
            let (header, image) = self.records.version(record);
            if !header.is_tombstone() {
                // The image is copied out because the indexes are changed while it is read.
                self.image.clear();
                self.image.extend_from_slice(image);
                let image = std::mem::take(&mut self.image);
                self.unindex_version(row, &image);
                self.image = image;
            }
        }
        if record != self.slots.holder(row) {
            self.records.free(record);
        }
    }

    /// Undoes the newest pending version.
    pub fn pop_pending(&mut self, row: RowId) {
        self.trail.mark(Point::Undo);
        let head = self.slots.head(row);
        let header = (!head.is_none()).then(|| self.records.header(head)).filter(Header::is_pending);
        let header = header.unwrap_or_else(|| panic!("undo of row {row:?} without a pending version"));
        self.activate(row); // the lock stays
        match header.previous {
            RecRef::NONE => self.slots.bare(row),
            previous => self.slots.set_head(row, previous),
        }
        self.drop_version(row, head, header.has_same_entries());
    }

    /// Changes committed here and not yet known to be complete in the cluster.
    #[inline]
    pub fn incomplete(&self, row: RowId) -> u32 {
        self.slots.incomplete(row)
    }
    pub fn add_incomplete(&mut self, row: RowId) {
        self.activate(row);
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
        let name = self.slots.settle(row, &self.memory);
        if !name.is_some_and(|name| name.is_used() && name.head().is_none()) {
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
        let epoch = if head.is_none() { 0 } else { self.records.header(head).stamp };
        self.take_out(row);
        Epoch(epoch)
    }

    /// Gives up a row that this replica has read back from its own disk and its primary has not any more, with all its versions. Nobody reads
    /// here yet. `false`, and nothing changes: a transaction has it ([`Fragment::give_up_committed`]).
    pub fn give_up_row(&mut self, row: RowId) -> bool {
        self.trail.mark(Point::Evict);
        if !self.slots.is_used(row) || self.slots.lock(row) != 0 || self.has_pending(row) {
            return false;
        }
        self.slots.note_changed(row, Epoch(0));
        self.take_out(row);
        true
    }

    /// The row goes with all its versions.
    fn take_out(&mut self, row: RowId) {
        let was_deleted = self.is_deleted(row);
        let mut at = self.slots.head(row);
        self.slots.bare(row);
        while !at.is_none() {
            let previous = self.records.header(at).previous;
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

    /// The first row at or after `from`, in slot order, in a page in which something was committed after `since`. What is decided and not stamped yet does not count.
    pub fn next_changed(&self, from: RowId, since: Epoch) -> Option<RowId> {
        let mut at = from;
        while at.0 < self.slots.reached() {
            let page = at.0 / PAGE_ROWS as u32;
            let end = page.saturating_add(1).saturating_mul(PAGE_ROWS as u32);
            if self.slots.newest_in(page) > since {
                let next = self.next_row(at)?;
                if next.0 < end {
                    return Some(next);
                }
                at = next;
            } else {
                at = RowId(end);
            }
        }
        None
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
        let mut version = self.records.header(self.slots.head(row));
        while !version.previous.is_none() && version.has_same_entries() {
            version = self.records.header(version.previous);
        }
        if version.previous.is_none() {
            return true; // every version has the same entries
        }
        self.entry_key(index, row, image, scratch).is_ok() && scratch == entry
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
                let (header, image) = self.records.version(at);
                if !header.is_tombstone() {
                    for (i, index) in self.indexes.iter().enumerate() {
                        self.entry_key(index.no, row, image, &mut entry).map_err(|e| e.to_string())?;
                        if index.tree.get(&keys_of!(self), &entry) != Some(row.0) {
                            return Err(format!("row {row:?} has no entry in index {}", index.no));
                        }
                        expected[i].insert(entry.clone());
                    }
                }
                at = header.previous;
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

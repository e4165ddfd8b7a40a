//! The ordered indexes of a fragment, and the rule that holds between their entries and the versions of rows: see the module above.
//!
//! A version whose index columns are those of the version below it says so (`SAME_ENTRIES`): it has added no entry, and takes none with it when it goes.

use apus_types::{
    ErrorCode, IndexNo, key,
    planted::{Bug, planted},
};

use super::{Fragment, Index, KeysOf, RowId, Version, keys_of};
use crate::{
    btree::{Approach, BTree},
    memory::Region,
    trail::Point,
};

/// Index memory is taken from the manager in steps of this many bytes.
const INDEX_STEP: usize = 32 << 10;

/// The way of a key to its place in an ordered index, to be fetched ahead: [`Fragment::entry_ahead`].
pub struct EntryAhead<'o> {
    fragment: &'o Fragment,
    key: &'o [u8],
    approach: Approach<'o>,
}

impl EntryAhead<'_> {
    /// Has the next node fetched; `false`: there is no further one.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.approach.step(&keys_of!(self.fragment), self.key)
    }
}

impl Fragment {
    /// For fetching ahead what a new entry, or a search for one, will touch in an ordered index; `None`: there is none.
    #[inline]
    pub fn entry_ahead<'o>(&'o self, no: IndexNo, key: &'o [u8]) -> Option<EntryAhead<'o>> {
        let index = self.indexes.iter().find(|index| index.no == no)?;
        Some(EntryAhead { fragment: self, key, approach: index.tree.approach() })
    }

    /// A bit for each index in which a new image has another entry than the version below it.
    #[inline]
    pub(super) fn changed_indexes(&self, image: &[u8], below: Option<Version<'_>>) -> u128 {
        let Some(old) = below.and_then(Version::image) else {
            return (0..self.indexes.len()).fold(0, |bits, i| bits | 1 << i);
        };
        let mut changed = 0;
        if !self.has_others {
            return changed;
        }
        for (i, index) in self.indexes.iter().enumerate() {
            let is_changed = || {
                let columns = self.schema.index_columns(index.no);
                columns.is_some_and(|c| !key::same_columns(self.schema.layout(), c, old, image))
            };
            if index.no.0 != 0 && !planted(Bug::OrderedIndexStale) && is_changed() {
                changed |= 1 << i;
            }
        }
        changed
    }

    /// Adds the entries of a new image to these indexes.
    pub(super) fn index_version(&mut self, row: RowId, image: &[u8], changed: u128) -> Result<(), ErrorCode> {
        let (mut added, mut left) = (0u128, changed);
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            let no = self.indexes[i].no;
            if self.schema.index_columns(no).is_none() {
                continue;
            }
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
        Ok(())
    }

    fn add_entry(&mut self, index: usize, entry: &[u8], row: RowId) -> Result<bool, ErrorCode> {
        let index = &mut self.indexes[index];
        // Room for what this insert may need is taken beforehand, beside nodes that are free: splits, and a long key twice (entry and separator).
        let more = INDEX_STEP / 2 + 2 * entry.len();
        while index.tree.used_bytes() + more > index.accounted {
            if !self.memory.account(Region::Index, INDEX_STEP, false) {
                return Err(ErrorCode::OutOfMemory);
            }
            index.accounted += INDEX_STEP;
        }
        let rows = keys_of!(self);
        Ok(index.tree.insert(&rows, entry, row.0))
    }

    pub(super) fn remove_entry_of(&mut self, index: usize, row: RowId, image: &[u8]) {
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
    pub(super) fn entry_key(&self, no: IndexNo, row: RowId, image: &[u8], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
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
    pub(super) fn unindex_version(&mut self, row: RowId, image: &[u8]) {
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
            let (header, version) = self.records.version(at);
            if !header.is_tombstone() {
                found = no.0 == 0
                    || self
                        .schema
                        .index_columns(no)
                        .is_some_and(|c| key::same_columns(self.schema.layout(), c, version, image))
                    || (self.entry_key(no, row, image, &mut mine).is_ok()
                        && self.entry_key(no, row, version, &mut other).is_ok()
                        && mine == other);
            }
            at = header.previous;
        }
        (self.scratch, self.scratch_old) = (mine, other);
        found
    }

    /// Makes an empty ordered index that writes maintain from now on; its definition must be in the schema. Fill it with
    /// [`Fragment::build_index`].
    pub fn add_index(&mut self, index: IndexNo) {
        if self.indexes.iter().all(|i| i.no != index) {
            let tree = if index.0 == 0 { BTree::without_keys() } else { BTree::new() };
            self.indexes.push(Index { no: index, tree, accounted: 0 });
            self.has_others |= index.0 != 0;
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
                let header = self.records.header(at);
                self.records.set_flags(at, header.without_same_entries());
                if !header.is_tombstone() {
                    let mut entry = std::mem::take(&mut self.scratch);
                    let made = self.entry_key(index, row, self.records.bytes_of(at), &mut entry);
                    let added = made.and_then(|()| self.add_entry(i, &entry, row));
                    self.scratch = entry;
                    added?;
                }
                at = header.previous;
            }
            next = self.next_row(RowId(row.0 + 1));
        }
        Ok(next)
    }

    pub fn drop_index(&mut self, index: IndexNo) {
        if let Some(i) = self.indexes.iter().position(|i| i.no == index) {
            let index = self.indexes.swap_remove(i);
            self.has_others = self.indexes.iter().any(|index| index.no.0 != 0);
            self.memory.unaccount(Region::Index, index.accounted);
        }
    }
}

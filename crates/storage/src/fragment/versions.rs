//! Committed versions: how long a replaced one stays, and how it goes.
//!
//! A version may be needed by the snapshots from its own epoch up to, and without, that of the version that replaced it. So a commit keeps
//! the replaced version if its own epoch is above the *horizon*, the oldest epoch that anybody may read at. Of several changes in one
//! epoch only the last can be seen by a snapshot: the others go at once, and a row never has two committed versions of one epoch.
//!
//! Rows with old versions stand in buckets by the epoch of the change that brought them there, a list threaded through their slots. When
//! the horizon has reached a bucket's epoch its rows are visited; one that still has old versions moves to a later bucket. So each row is
//! visited about once per advance of the horizon however often it changes, and nothing is allocated. With more epochs than buckets, which only
//! a long-lived snapshot can bring about, the newest bucket takes all and its rows wait for its newest epoch.

use apus_types::Epoch;

use super::{Fragment, RowId};
use crate::{
    lock::Locks,
    record::{Header, RecRef, SAME_ENTRIES, TOMBSTONE},
    trail::Point,
};

/// Buckets of a fragment; a few epochs pass between a change and its completion.
const BUCKETS: usize = 16;

/// In the list of kept rows: in no bucket; the last of its bucket.
pub(super) const NOT_KEPT: u32 = u32::MAX;
const LAST: u32 = u32::MAX - 1;

#[derive(Debug)]
pub(super) struct Kept {
    /// A ring: epoch and first row of each bucket, oldest first.
    buckets: [(Epoch, u32); BUCKETS],
    first: usize,
    count: usize,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { buckets: [(Epoch(0), LAST); BUCKETS], first: 0, count: 0 }
    }
}

impl Kept {
    fn oldest(&mut self) -> Option<&mut (Epoch, u32)> {
        if self.count == 0 { None } else { self.buckets.get_mut(self.first) }
    }
    /// The bucket for a row that may be visited once the horizon is at `epoch`.
    fn bucket(&mut self, epoch: Epoch) -> &mut (Epoch, u32) {
        let newest = (self.first + self.count + BUCKETS - 1) % BUCKETS;
        let reaches = self.count > 0 && self.buckets[newest].0 >= epoch;
        if reaches || self.count == BUCKETS {
            let bucket = &mut self.buckets[newest];
            bucket.0 = bucket.0.max(epoch);
            return bucket;
        }
        let next = (self.first + self.count) % BUCKETS;
        self.count += 1;
        self.buckets[next] = (epoch, LAST);
        &mut self.buckets[next]
    }
    fn drop_oldest(&mut self) {
        assert!(self.count > 0, "a bucket of kept rows is dropped, and there is none");
        self.first = (self.first + 1) % BUCKETS;
        self.count -= 1;
    }
}

impl Fragment {
    /// Makes the newest pending version the committed one. Pending versions below it vanish; the committed version it replaces is kept
    /// while `epoch > horizon` (a snapshot at the horizon may need it), otherwise freed now. `true`: the fragment had no old versions before
    /// and should be visited by [`Fragment::collect`] from now on.
    ///
    /// # Panics
    /// Without a pending version, and when the row was changed in a later epoch already.
    pub fn commit(&mut self, row: RowId, epoch: Epoch, horizon: Epoch) -> bool {
        self.trail.mark(Point::Commit);
        let head = self.slots.head(row);
        let header = (!head.is_none()).then(|| self.records.header(head)).filter(Header::is_pending);
        let header = header.unwrap_or_else(|| panic!("commit of row {row:?} without a pending version"));
        self.slots.note_changed(row, epoch);
        // Down to the version that was committed in an earlier epoch.
        let (mut below, mut as_below, mut replaced, mut stamp) = (header.previous, header.has_same_entries(), None, 0);
        while !below.is_none() {
            let version = self.records.header(below);
            if !version.is_pending() {
                stamp = version.stamp;
                replaced.get_or_insert(version);
                if stamp != epoch.0 {
                    break;
                }
            }
            as_below &= version.has_same_entries();
            below = version.previous;
        }
        if epoch <= horizon {
            below = RecRef::NONE;
        }
        let keep = !below.is_none();
        assert!(!keep || stamp < epoch.0, "a row's epochs go back to {epoch}");
        let was_kept = self.slots.kept_next(row) != NOT_KEPT;
        let was_deleted = replaced.map_or(was_kept, |version| version.is_tombstone());
        let tombstone = u8::from(header.is_tombstone()) * TOMBSTONE;
        self.records.settle(head, epoch, tombstone | (u8::from(keep && as_below) * SAME_ENTRIES), below);
        self.drop_versions(row, header.previous, below, header.has_same_entries());
        self.count_deleted(was_deleted, tombstone != 0 && (keep || was_kept));
        if !keep {
            if tombstone != 0 {
                self.slots.bare(row);
            }
            return false;
        }
        self.note_kept(row, epoch)
    }

    /// Frees the versions from `at` down to, and without, `end`, which are unlinked. `same`: a version that stays has the entries of the first one.
    fn drop_versions(&mut self, row: RowId, mut at: RecRef, end: RecRef, mut same: bool) {
        while at != end {
            let version = self.records.header(at);
            self.drop_version(row, at, same);
            same &= version.has_same_entries();
            at = version.previous;
        }
    }

    /// Ends a row that this owner has locked alone and of which nothing else is remembered, where that is simple: what the owner has changed is
    /// committed, the version below it goes, and so does the lock. `false`: nothing has happened, and there is more to do
    /// ([`Fragment::commit`], [`Fragment::reclaim`]).
    ///
    /// # Panics
    /// If another than the owner has changed the row.
    #[inline]
    pub fn end_locked(&mut self, row: RowId, owner: u32, (epoch, horizon): (Epoch, Epoch)) -> bool {
        let (entry, head) = match self.slots.idle(row) {
            Some(name) => (None, name.head()),
            None => match self.slots.locked_only(row, Locks::sole(owner)) {
                Some((entry, name)) => (Some(entry), name.head()),
                None => return false,
            },
        };
        if head.is_none() {
            return false;
        }
        let header = self.records.header(head);
        if header.is_pending() {
            let writer = Locks::owner_of(header.stamp);
            assert!(writer == owner, "row {row:?} is locked by {owner} and changed by {writer}");
            if epoch > horizon {
                return false;
            }
            if header.is_tombstone() {
                return self.end_deleted(row, entry, (head, epoch), header.previous);
            }
            let below = header.previous;
            let is_alone = below.is_none() || (header.has_same_entries() && self.records.free_plain(below));
            if !is_alone {
                return false;
            }
            self.trail.mark(Point::Commit);
            self.slots.note_changed(row, epoch);
            self.records.settle(head, epoch, 0, RecRef::NONE);
        } else if entry.is_none() {
            return false;
        }
        if let Some(entry) = entry {
            self.slots.unlock_only(row, entry, head, &self.memory);
        }
        true
    }
    /// Takes out a row of which nothing is left but a delete, if it is above one version.
    fn end_deleted(&mut self, row: RowId, entry: Option<u32>, (head, epoch): (RecRef, Epoch), below: RecRef) -> bool {
        if below.is_none() {
            return false;
        }
        let (version, bytes) = self.records.version(below);
        if !version.is_plain() {
            return false;
        }
        self.trail.mark(Point::Commit);
        self.slots.note_changed(row, epoch);
        let mut image = std::mem::take(&mut self.image);
        image.clear();
        image.extend_from_slice(bytes);
        (0..self.indexes.len()).for_each(|index| self.remove_entry_of(index, row, &image));
        self.image = image;
        self.records.free(below);
        if let Some(entry) = entry {
            self.slots.unlock_only(row, entry, head, &self.memory);
        }
        self.remove_row(row);
        true
    }

    fn note_kept(&mut self, row: RowId, epoch: Epoch) -> bool {
        if self.slots.kept_next(row) != NOT_KEPT {
            return false;
        }
        let is_first = self.kept.count == 0;
        assert!(epoch > Epoch(0), "row {row:?} is kept for snapshots below no epoch");
        let bucket = self.kept.bucket(epoch);
        let next = std::mem::replace(&mut bucket.1, row.0);
        self.slots.set_kept_next(row, next, &self.memory);
        is_first
    }

    /// Whether there are old versions that [`Fragment::collect`] may one day free.
    pub fn keeps_versions(&self) -> bool {
        self.kept.count > 0
    }

    /// Frees versions kept for snapshots that none at or after `horizon` can need; visits at most `budget` rows. Returns how many.
    pub fn collect(&mut self, horizon: Epoch, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(bucket) = self.kept.oldest()
            && bucket.0 <= horizon
        {
            let row = RowId(bucket.1);
            assert!(bucket.1 != LAST, "a bucket of kept rows is empty");
            let was_deleted = self.is_deleted(row);
            let is_used = self.slots.is_used(row);
            let next = self.slots.set_kept_next(row, NOT_KEPT, &self.memory);
            match self.kept.oldest() {
                Some(bucket) if next != LAST => bucket.1 = next,
                _ => self.kept.drop_oldest(),
            }
            if is_used {
                self.trim(row, horizon, was_deleted);
            }
            done += 1;
        }
        done
    }

    /// As [`Fragment::give_up_row`], of a row that a transaction has: its lock and its open changes stay, and the slot goes with its end. `false`: nothing is committed.
    pub fn give_up_committed(&mut self, row: RowId) -> bool {
        self.trail.mark(Point::Evict);
        let (mut newer, mut at) = (RecRef::NONE, self.slots.head(row));
        while let Some(header) = self.pending(at) {
            (newer, at) = (at, header.previous);
        }
        if at.is_none() {
            return false;
        }
        let (was_deleted, mut same) = (self.is_deleted(row), false);
        match newer.is_none() {
            true => self.slots.bare(row),
            false => {
                let header = self.records.header(newer);
                same = header.has_same_entries();
                self.records.set_previous(newer, RecRef::NONE);
                self.records.set_flags(newer, header.without_same_entries());
            }
        }
        self.drop_versions(row, at, RecRef::NONE, same);
        self.slots.note_changed(row, Epoch(0));
        self.count_deleted(was_deleted, self.is_deleted(row));
        true
    }

    /// Frees what a snapshot at `horizon` does not see and no later one either.
    fn trim(&mut self, row: RowId, horizon: Epoch, was_deleted: bool) {
        self.trail.mark(Point::Collect);
        let (mut newer, mut at) = (RecRef::NONE, self.slots.head(row));
        while !at.is_none() {
            let header = self.records.header(at);
            if !header.is_pending() && header.stamp <= horizon.0 {
                break;
            }
            (newer, at) = (at, header.previous);
        }
        if !at.is_none() {
            let header = self.records.header(at);
            self.records.set_previous(at, RecRef::NONE);
            if header.is_tombstone() {
                match newer.is_none() {
                    true => self.slots.bare(row),
                    false => {
                        self.records.set_previous(newer, RecRef::NONE);
                        self.records.free(at);
                    }
                }
            }
            self.drop_versions(row, header.previous, RecRef::NONE, header.has_same_entries());
        }
        self.count_deleted(was_deleted, self.is_deleted(row));
        if let Some(newest) = self.newest_committed(row).filter(Header::needs_visit) {
            self.note_kept(row, Epoch(newest.stamp));
        } else {
            self.reclaim(row);
        }
    }

    /// What a version says that is pending.
    fn pending(&self, at: RecRef) -> Option<Header> {
        (!at.is_none()).then(|| self.records.header(at)).filter(Header::is_pending)
    }
    fn newest_committed(&self, row: RowId) -> Option<Header> {
        self.below_pending(self.slots.head(row)).map(|version| version.header)
    }
    /// The newest committed version is a delete, kept for snapshots, or there is none any more and the slot stays until it is visited.
    pub(super) fn is_deleted(&self, row: RowId) -> bool {
        match self.newest_committed(row) {
            None => self.slots.kept_next(row) != NOT_KEPT,
            Some(newest) => newest.is_tombstone(),
        }
    }
    #[inline]
    pub(super) fn count_deleted(&mut self, before: bool, after: bool) {
        assert!(self.deleted >= u64::from(before), "more deleted rows go than there are");
        self.deleted = self.deleted + u64::from(after) - u64::from(before);
    }
    pub(super) fn is_tombstone(&self, record: RecRef) -> bool {
        self.records.header(record).is_tombstone()
    }

    /// The buckets hold each row with old versions once, and no row that does not exist.
    pub(super) fn verify_kept(&self) -> Result<(), String> {
        let mut listed = 0;
        for i in 0..self.kept.count {
            let (_, mut at) = self.kept.buckets[(self.kept.first + i) % BUCKETS];
            if at == LAST {
                return Err("a bucket of kept rows is empty".to_owned());
            }
            while at != LAST {
                if at >= self.slots.reached() || listed > self.slots.reached() {
                    return Err(format!("row {at} is kept and does not exist"));
                }
                listed += 1;
                at = self.slots.kept_next(RowId(at));
            }
        }
        let (mut marked, mut deleted) = (0, 0);
        for row in (0..self.slots.reached()).map(RowId) {
            let newest = self.newest_committed(row);
            let needs = newest.as_ref().is_some_and(Header::needs_visit);
            deleted += u64::from(self.slots.is_used(row) && self.is_deleted(row));
            let is_marked = self.slots.kept_next(row) != NOT_KEPT;
            marked += u32::from(is_marked);
            if needs && !is_marked {
                return Err(format!("row {row:?} has old versions and is not listed"));
            }
            let mut at = newest;
            while let Some(version) = at.filter(|version| !version.previous.is_none()) {
                let below = self.records.header(version.previous);
                if below.stamp >= version.stamp {
                    return Err(format!("the epochs of row {row:?} do not ascend"));
                }
                at = Some(below);
            }
        }
        if deleted != self.deleted {
            return Err(format!("{deleted} rows are deleted, {} are counted", self.deleted));
        }
        if marked == listed { Ok(()) } else { Err(format!("{marked} rows are marked as kept, {listed} listed")) }
    }
}

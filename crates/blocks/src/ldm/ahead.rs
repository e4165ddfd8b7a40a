//! Fetching ahead what the next operations of a batch will touch: hash buckets, then slots, then versions.
//!
//! A lookup meets three cache misses in a row when the data is larger than the cache; side by side, those of [`AHEAD`] lookups cost
//! little more than those of one. Nothing is decided here: what is fetched may be another key's.

use apus_storage::{Fragment, RowId};

/// Lookups whose cache misses overlap.
pub const AHEAD: usize = 16;

/// The next lookups of a batch, at most [`AHEAD`].
#[derive(Default)]
pub struct Ahead<'f> {
    lookups: [(Option<&'f Fragment>, u64); AHEAD],
    count: usize,
}

impl<'f> Ahead<'f> {
    pub fn clear(&mut self) {
        self.count = 0;
    }
    /// One more, if there is room; `None` for a fragment that is not here.
    #[inline]
    pub fn push(&mut self, fragment: Option<&'f Fragment>, hash: u64) {
        if let Some(place) = self.lookups.get_mut(self.count) {
            *place = (fragment, hash);
            self.count += 1;
        }
    }
    /// One that was pushed.
    #[inline]
    pub fn get(&self, number: usize) -> (Option<&'f Fragment>, u64) {
        self.lookups[number]
    }
    /// Starts fetching; a single lookup gains nothing and is left alone.
    #[inline]
    pub fn fetch(&self) {
        if self.count > 1 {
            self.fetch_all();
        }
    }

    fn fetch_all(&self) {
        let lookups = &self.lookups[..self.count];
        for (fragment, hash) in lookups {
            if let Some(fragment) = fragment {
                fragment.prefetch(*hash);
            }
        }
        let mut rows: [Option<RowId>; AHEAD] = [None; AHEAD];
        for ((fragment, hash), row) in lookups.iter().zip(&mut rows) {
            *row = fragment.and_then(|fragment| fragment.prefetch_slot(*hash));
        }
        for ((fragment, _), row) in lookups.iter().zip(rows) {
            if let (Some(fragment), Some(row)) = (fragment, row) {
                fragment.prefetch_version(row);
            }
        }
    }
}

//! Fetching ahead what the next operations of a batch will touch: hash buckets, then slots, then versions; of rows to be made, and of scans of several fragments, the ways to
//! their entries in the ordered index, level by level.
//!
//! A lookup meets three cache misses in a row when the data is larger than the cache; side by side, those of [`AHEAD`] lookups cost
//! little more than those of one. Nothing is decided here: what is fetched may be another key's, and the row that is found a guess ([`Fragment::find_near`]).

use apus_storage::{EntryAhead, Fragment, RowId};
use apus_types::IndexNo;

/// Lookups whose cache misses overlap.
pub const AHEAD: usize = 16;

/// The next lookups of a batch, at most [`AHEAD`].
#[derive(Default)]
pub struct Ahead<'f> {
    lookups: [(Option<&'f Fragment>, u64); AHEAD],
    rows: [Option<RowId>; AHEAD],
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
    /// One that was pushed, and the row that it names, perhaps.
    #[inline]
    pub fn get(&self, number: usize) -> (Option<&'f Fragment>, u64, Option<RowId>) {
        let (fragment, hash) = self.lookups[number];
        (fragment, hash, self.rows[number])
    }
    /// Starts fetching; for a single lookup there is nothing beside which that could be done.
    #[inline]
    pub fn fetch(&mut self) {
        match self.lookups[..self.count] {
            [(fragment, hash)] => self.rows[0] = fragment.and_then(|fragment| fragment.guess(hash)),
            _ => self.fetch_all(),
        }
    }
    /// What each of the lookups names, perhaps, in their order.
    #[inline]
    pub fn rows(&self) -> &[Option<RowId>] {
        &self.rows[..self.count]
    }

    fn fetch_all(&mut self) {
        let lookups = &self.lookups[..self.count];
        let mut places = [0; AHEAD];
        for ((fragment, hash), place) in lookups.iter().zip(&mut places) {
            if let Some(fragment) = fragment {
                *place = fragment.prefetch(*hash);
            }
        }
        for (((fragment, hash), place), row) in lookups.iter().zip(places).zip(&mut self.rows) {
            *row = fragment.and_then(|fragment| fragment.prefetch_slot(place, *hash));
        }
        for ((fragment, _), row) in lookups.iter().zip(self.rows) {
            if let (Some(fragment), Some(row)) = (fragment, row) {
                fragment.prefetch_version(row);
            }
        }
    }
}

/// Fetches what entries with these keys, at most [`AHEAD`], will touch in an ordered index when they are made or looked for.
pub fn fetch_entries<'o>(index: IndexNo, entries: impl Iterator<Item = (&'o Fragment, &'o [u8])>) {
    let mut ways: [Option<EntryAhead<'o>>; AHEAD] = [const { None }; AHEAD];
    for (way, (fragment, key)) in ways.iter_mut().zip(entries) {
        *way = fragment.entry_ahead(index, key);
    }
    let mut is_under_way = true;
    while is_under_way {
        is_under_way = false;
        for way in &mut ways {
            match way.as_mut().is_some_and(EntryAhead::step) {
                true => is_under_way = true,
                false => *way = None,
            }
        }
    }
}

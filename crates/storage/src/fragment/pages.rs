//! What checkpoints and restarts need of a fragment: which pages of slots have changed, and rows put back where they were.
//!
//! Each commit of a row notes the current *round* for the row's page: one store. A checkpoint begins a round of its own at every fragment and then writes the
//! pages that were changed in the round of the last checkpoint that counts, or later. So nothing is reset, and one that is given up leaves nothing to be
//! put right. A page that is made is changed in that round, as it may be there in the place of another one that a checkpoint knows.
//!
//! **Restore.** A fragment that is read back has no ordered indexes until all is read: on the way a key may be in two slots, of which the log says later
//! which one it has left. The hash index does not mind.

use apus_types::{Epoch, ErrorCode, IndexNo};

use super::{Fragment, RowId, slots::CHUNK};

/// Slots of a page.
pub const PAGE_ROWS: usize = CHUNK;

impl Fragment {
    /// Pages that rows have or had.
    pub fn pages(&self) -> u32 {
        self.slots.reached().div_ceil(CHUNK as u32)
    }
    pub fn begin_round(&mut self, round: u32) {
        self.slots.begin_round(round);
    }
    /// The round in which a row of the page was committed last.
    pub fn changed_in(&self, page: u32) -> Option<u32> {
        self.slots.changed_in(page)
    }
    /// The rows of a page, in whatever state.
    pub fn rows_of(&self, page: u32) -> impl Iterator<Item = RowId> + '_ {
        let first = page.saturating_mul(CHUNK as u32);
        let end = first.saturating_add(CHUNK as u32).min(self.slots.reached());
        (first..end).map(RowId).filter(|&row| self.slots.is_used(row))
    }

    /// Takes the ordered indexes away; [`Fragment::add_index`] and [`Fragment::build_index`] bring them back.
    pub fn drop_indexes(&mut self) {
        let all: Vec<IndexNo> = self.indexes.iter().map(|index| index.no).collect();
        all.into_iter().for_each(|no| self.drop_index(no));
    }
    /// Adds those that the schema has, empty, and gives their numbers.
    pub fn add_indexes(&mut self) -> Vec<IndexNo> {
        let schema = self.schema.clone();
        let first = schema.has_ordered_keys().then_some(IndexNo(0));
        let all: Vec<IndexNo> = first.into_iter().chain(schema.ordered_indexes().map(|index| index.no)).collect();
        all.iter().for_each(|&no| self.add_index(no));
        all
    }

    /// Puts a slot into the state that it had after a commit in `epoch`, whatever is there, unless that is newer; `None`: no row had it. For a fragment without
    /// ordered indexes, locks and snapshots. `hash` is asked for if a row has to be made.
    ///
    /// # Errors
    /// Without memory: the slot may have lost what it had.
    pub fn restore(
        &mut self,
        row: RowId,
        key: &[u8],
        hash: impl Fn(&[u8]) -> u64,
        image: Option<&[u8]>,
        epoch: Epoch,
    ) -> Result<(), ErrorCode> {
        assert!(self.indexes.is_empty(), "row {row:?} is restored in a fragment with ordered indexes");
        if self.slots.is_used(row) {
            if self.last_change(row, &()) > epoch {
                return Ok(());
            }
            if image.is_none() || !self.has_key(row, key) {
                self.push_pending(row, None, 0)?;
                self.commit(row, epoch, epoch);
                self.reclaim(row);
            }
        }
        let Some(image) = image else { return Ok(()) };
        if !self.slots.is_used(row) {
            self.insert_slot_at(row, key, hash(key))?;
        }
        self.push_pending(row, Some(image), 0)?;
        self.commit(row, epoch, epoch);
        Ok(())
    }
}

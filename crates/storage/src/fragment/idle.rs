//! Rows that nobody has, and the lock that a change is.
//!
//! Most rows are idle when somebody wants to change them: nobody has them locked, and nothing is remembered of them. Such a row is looked at once, and what its slot and its record say goes with
//! it to the change ([`Idle`]). The change locks the row: while its newest version is pending and there is no entry for it in the table of active rows (module `slots`), the row is locked exclusively by who has
//! written that, and nobody waits for it. Whoever asks for the lock meanwhile makes the entry first, and so does an undo, which leaves the lock and not the change ([`Fragment::activate`]).

use apus_types::{Epoch, ErrorCode};

use super::{Change, Fragment, RowId, Version};
use crate::{
    lock::Locks,
    record::{Header, PENDING, RecRef, SAME_ENTRIES},
    trail::Point,
};

/// A row that nobody has locked and of which nothing is remembered, as it was found, until it is changed in any way.
#[derive(Clone, Copy)]
pub struct Idle {
    row: RowId,
    /// Its record, and what that says; nothing of a row that was just made.
    holder: RecRef,
    header: Option<Header>,
}

impl Idle {
    #[inline]
    pub fn row(&self) -> RowId {
        self.row
    }
}

impl Fragment {
    /// As [`Fragment::find`]; the row is probably this one. `Err`: somebody has it locked, or something is remembered of it.
    #[inline]
    pub fn find_idle(&self, guess: Option<RowId>, key: &[u8], hash: u64) -> Option<Result<Idle, RowId>> {
        if let Some(row) = guess
            && let Some(idle) = self.idle_at(row, key)
        {
            return Some(Ok(idle));
        }
        let row = self.find_near(guess, key, hash)?;
        Some(self.idle(row).ok_or(row))
    }
    /// This row, if it exists, is idle, has a version and has this key.
    #[inline]
    pub fn idle_at(&self, row: RowId, key: &[u8]) -> Option<Idle> {
        let (holder, version) = self.settled_version(row, key)?;
        Some(Idle { row, holder, header: Some(version.header) })
    }
    #[inline(always)]
    fn settled_version(&self, row: RowId, key: &[u8]) -> Option<(RecRef, Version<'_>)> {
        let head = self.slots.idle_at(row)?.head();
        let version = self.version(head)?;
        let has_key = match version.header.has_key() {
            true => self.has_key_in(head, key),
            false => self.keys.is_made(&self.schema, version.image, key),
        };
        (has_key && !version.header.is_pending()).then_some((head, version))
    }
    /// Of a row that has this key and is idle: the epoch of its newest version, and what that shows. `None` for a row that has to be looked at, or for.
    #[inline]
    pub fn settled_at(&self, row: RowId, key: &[u8]) -> Option<(Epoch, Option<&[u8]>)> {
        let (_, version) = self.settled_version(row, key)?;
        Some((version.since, version.image()))
    }
    /// A row that exists, if it is idle.
    #[inline]
    pub fn idle(&self, row: RowId) -> Option<Idle> {
        let name = self.slots.idle(row)?;
        let head = name.head();
        let header = (!head.is_none()).then(|| self.records.header(head));
        let is_open = header.is_some_and(|header| header.is_pending());
        (!is_open).then_some(Idle { row, holder: name.holder(), header })
    }
    /// The image of an idle row.
    #[inline]
    pub fn image_of(&self, idle: &Idle) -> Option<&[u8]> {
        idle.header.filter(|header| !header.is_tombstone())?;
        Some(self.records.bytes_of(idle.holder))
    }

    /// As [`Fragment::push`], of a row as it was found idle: the change is its lock.
    #[inline(always)]
    pub fn push_idle(&mut self, idle: &Idle, change: &Change<'_>) -> Result<(), ErrorCode> {
        let is_plain = idle.header.is_some_and(|header| header.gives_key()) && !self.has_others;
        let Some(image) = change.image.filter(|_| is_plain) else { return self.push(idle.row, change) };
        let keeps_key = change.keeps_key || {
            let below = self.records.bytes_of(idle.holder);
            self.keys.agree(&self.schema, image, below)
        };
        if !keeps_key {
            return self.push(idle.row, change);
        }
        self.trail.mark(Point::Push);
        let record = self.records.alloc_image(image, (PENDING | SAME_ENTRIES, change.writer), idle.holder, false)?;
        self.slots.replace_head(idle.row, idle.holder, record);
        Ok(())
    }

    /// The lock word. What it becomes is looked at by [`Fragment::reclaim`].
    #[inline]
    pub fn lock_word(&mut self, row: RowId) -> &mut u32 {
        self.activate(row);
        self.slots.lock_mut(row, &self.memory)
    }
    #[inline]
    pub fn lock_word_of(&self, row: RowId) -> u32 {
        match self.slots.idle(row) {
            None => self.slots.lock(row),
            Some(_) => self.writer(row).map_or(0, Locks::of_writer),
        }
    }
    /// Gives this lock word to a row that nobody has locked and of which nothing is remembered; `false`: it is not such a row.
    #[inline]
    pub fn lock_idle(&mut self, row: RowId, word: u32) -> bool {
        let is_idle = self.idle(row).is_some();
        if is_idle {
            self.slots.activate(row, word, &self.memory);
        }
        is_idle
    }
    /// The lock that a row has by its open change becomes one that can be waited for and that stays when the change is undone.
    pub(super) fn activate(&mut self, row: RowId) {
        if self.slots.idle(row).is_some()
            && let Some(writer) = self.writer(row)
        {
            self.slots.activate(row, Locks::of_writer(writer), &self.memory);
        }
    }
}

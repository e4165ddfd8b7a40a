//! A user lock of the SQL node itself: for what one of them does for all.

use std::{sync::Arc, time::Instant};

use super::{Watch, lease::UserLocks, rows::Place};
use crate::{errors::Result, server::Registry, session::engine::SqlEngine};

/// No connection has this number.
const NOBODY: u32 = 0;

/// Given back when it is dropped, or with the SQL node's lease.
pub struct OwnLock {
    name: String,
    /// As sessions are numbered that have locks.
    session: u64,
    /// The lease under which it was taken.
    held: Option<u64>,
    watch: Option<Watch>,
    locks: Arc<UserLocks>,
}

impl OwnLock {
    /// Of a name that clients cannot have: longer than theirs, at most 256 bytes.
    pub fn new(locks: Arc<UserLocks>, name: impl Into<String>) -> OwnLock {
        OwnLock { name: name.into(), session: locks.new_session(), held: None, watch: None, locks }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may be believed in. Who hears no after a yes does not have it any more.
    pub fn is_held(&self) -> bool {
        self.held.is_some_and(|owner| self.locks.are_good(std::iter::once(owner)))
    }

    /// The lease under which it was taken.
    pub fn lease(&self) -> Option<u64> {
        self.held
    }

    /// Takes it if nobody has it, or who has it is dead; false: it is to be tried again in a while.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn try_take(&mut self, engine: &SqlEngine, connections: &Arc<Registry>) -> Result<bool> {
        if self.is_held() {
            return Ok(true);
        }
        if let Some(owner) = self.held.take() {
            let place = self.place(owner);
            self.locks.abandon_one(self.session, Some(place));
        }
        let tables = engine.user_lock_tables().await?;
        let (client, now) = (&engine.client, Instant::now());
        let holder = tables.holder(client, &self.name).await?;
        let mut beat = None;
        if let Some(holder) = &holder {
            beat = tables.beat(client, holder.owner).await?;
            let (watch, is_dead) = Watch::look(self.watch.take(), holder.owner, beat, now);
            self.watch = watch;
            if !is_dead {
                return Ok(false);
            }
        }
        let owner = self.locks.hold(client, &tables, self.session, (NOBODY, connections)).await?;
        let place = self.place(owner);
        let taken = match &holder {
            None => tables.take(client, &place, NOBODY).await.map(|other| other.is_none()),
            Some(holder) => tables.take_over(client, &place, NOBODY, holder, beat).await,
        };
        match taken {
            Ok(true) => self.held = Some(owner),
            // An error may hide that the row was written.
            _ => self.locks.abandon_one(self.session, taken.is_err().then_some(place)),
        }
        taken
    }

    /// # Errors
    /// The cluster does not answer; then it is given back as soon as it does.
    pub async fn give_back(&mut self, engine: &SqlEngine) -> Result<()> {
        match self.held.take() {
            Some(owner) => engine.give_back(self.place(owner)).await,
            None => Ok(()),
        }
    }

    fn place(&self, owner: u64) -> Place {
        Place { name: self.name.clone(), owner, session: self.session }
    }
}

impl Drop for OwnLock {
    fn drop(&mut self) {
        let places = self.held.take().map(|owner| self.place(owner));
        if places.is_some() {
            self.locks.abandon(self.session, places.into_iter());
        }
    }
}

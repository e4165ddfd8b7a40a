//! User locks: GET_LOCK, RELEASE_LOCK, RELEASE_ALL_LOCKS, IS_FREE_LOCK and IS_USED_LOCK, for all SQL nodes of a cluster.
//!
//! A lock is a committed row of `apus.user_locks` that names the session that holds it, so it outlives data nodes. A SQL node that holds locks has a *lease*
//! ([`lease`]): a row of `apus.user_lock_owners` with a number that it raises once a second. Who waits for a lock reads that number: when it has stood
//! still for [`lease::DEAD`], the waiter ends the lease by deleting its row, and takes the lock. A SQL node that could not raise the number for [`lease::GOOD`], a shorter time, ends the connections
//! of its sessions that hold locks: none of them goes on believing that it has one. Docs: `docs/decisions/0027-user-locks.md`.
//!
//! # How a function waits
//!
//! Expressions are evaluated without waiting for anybody. The first evaluation of a lock function ends its statement, nothing of which was sent, with the call noted ([`crate::expr::func::user_lock`]). The
//! session does what was called, and runs the statement again, in which that call has its answer.
//!
//! Waiters look again after 2 ms, and later less often, at least every [`PAUSE_MAX`]; those of the same SQL node are told when a lock is given back. So who waits longest need not be first.
//! Sessions that wait for each other do so until their time is over: no deadlock is found (MySQL: error 3058).
//!
//! Limits: [`crate::expr::func::user_lock::CALLS_MAX`] calls in a statement, [`LOCKS_MAX`] locks of a session.

mod lease;
mod own_lock;
mod rows;

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use self::rows::{Place, Tables};
use super::{Session, engine::SqlEngine};
use crate::{
    errors::{self, Result},
    expr::func::user_lock::{self, Call},
    value::datum::Datum,
    wire::SqlError,
};
pub use {lease::UserLocks, own_lock::OwnLock};

/// Locks that a session may hold.
pub const LOCKS_MAX: usize = 4096;
/// A waiter looks at its lock at least this often.
const PAUSE_MAX: Duration = Duration::from_millis(50);
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// How often a waiter looks at the lease of who holds the lock.
const LEASE_LOOK: Duration = Duration::from_secs(1);

/// What names begin with that a SQL node gives: longer than those of clients.
const OWN: &str = "#################################################################";
const _: () = assert!(OWN.len() > user_lock::NAME_CHARS_MAX, "no client can name such a lock");

/// A name for a lock that no client can name, and no other session has.
pub fn own_name() -> Result<String> {
    let mut random = [0u8; 16];
    getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
    Ok(name_of(&format!("{:032x}", u128::from_le_bytes(random))))
}

/// A name for a lock that no client can name.
pub fn name_of(what: &str) -> String {
    format!("{OWN}{what}")
}

/// The locks of a session. Those that it has when it is dropped are given back.
#[derive(Default)]
pub struct Held {
    /// Number of the session among all of this SQL node that ever had a lock.
    session: u64,
    /// How often each was taken, by name, and under which lease.
    locks: BTreeMap<String, (u32, u64)>,
    shared: Option<Arc<UserLocks>>,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let session = self.session;
            let places = std::mem::take(&mut self.locks).into_iter();
            shared.abandon(session, places.map(|(name, (_, owner))| Place { name, owner, session }));
        }
    }
}

/// What a waiter knows of the lease of who has its lock.
struct Watch {
    owner: u64,
    beat: u64,
    /// Since when the number stands still.
    since: Instant,
    looked: Instant,
}

impl Watch {
    /// Whether it is time to look at the lease of this holder.
    fn is_due(watch: Option<&Watch>, owner: u64, now: Instant) -> bool {
        watch.is_none_or(|w| w.owner != owner || now >= w.looked + LEASE_LOOK)
    }
    /// What is known now that the lease has this number (`None`: there is none), and whether who had it is dead.
    fn look(watch: Option<Watch>, owner: u64, beat: Option<u64>, now: Instant) -> (Option<Watch>, bool) {
        let before = watch.filter(|w| w.owner == owner && Some(w.beat) == beat);
        let since = before.map_or(now, |w| w.since);
        let is_dead = beat.is_none() || since.elapsed() >= lease::DEAD;
        (beat.map(|beat| Watch { owner, beat, since, looked: now }), is_dead)
    }
}

impl SqlEngine {
    /// Whether a session that believes to have locks may go on.
    ///
    /// # Errors
    /// The lease is over; the connection ends.
    pub(crate) fn check_user_locks(&self, session: &Session) -> Result<()> {
        let owners = session.held.locks.values().map(|(_, owner)| *owner);
        if self.user_locks.are_good(owners) {
            return Ok(());
        }
        session.info.registry.kill(session.info.id);
        Err(SqlError::new(
            1927,
            b"70100",
            "Connection was killed: it held user locks (GET_LOCK), and this SQL node could not reach the cluster to keep them",
        ))
    }

    /// Does what a lock function of the statement under way was called for.
    pub(crate) async fn call_user_lock(&self, session: &mut Session, call: Call) -> Result<()> {
        let answer = match &call {
            Call::Get { name, seconds } => Datum::from_bool(self.get_lock(session, name, *seconds).await?),
            Call::Release(name) => match self.release_lock(session, name).await? {
                true => Datum::Int(1),
                false => self.holder_of(name).await?.map_or(Datum::Null, |_| Datum::Int(0)),
            },
            Call::ReleaseAll => Datum::UInt(self.release_all_locks(session).await?),
            Call::IsFree(name) => Datum::from_bool(self.holder_of(name).await?.is_none()),
            Call::IsUsed(name) => self.holder_of(name).await?.map_or(Datum::Null, Datum::UInt),
        };
        session.env.lock_calls.borrow_mut().answer(call, answer);
        Ok(())
    }

    /// The tables of user locks; made when they are first needed.
    async fn user_lock_tables(&self) -> Result<Tables> {
        self.system_tables(Tables::of, Tables::definitions()).await
    }

    pub(crate) async fn get_lock(&self, session: &mut Session, name: &str, seconds: i64) -> Result<bool> {
        if let Some((times, _)) = session.held.locks.get_mut(name) {
            *times = times.saturating_add(1);
            return Ok(true);
        }
        if session.held.locks.len() >= LOCKS_MAX {
            return Err(errors::not_supported("more user locks of one connection"));
        }
        let deadline = u64::try_from(seconds).ok().and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
        let tables = self.user_lock_tables().await?;
        if session.held.shared.is_none() {
            session.held.session = self.user_locks.new_session();
            session.held.shared = Some(self.user_locks.clone());
        }
        let number = session.held.session;
        let owner =
            self.user_locks.hold(&self.client, &tables, number, (session.info.id, &session.info.registry)).await?;
        let place = Place { name: name.to_owned(), owner, session: number };
        let taken = self.wait_for_lock(session, &tables, &place, deadline).await;
        if let Ok(true) = taken {
            session.held.locks.insert(place.name, (1, owner));
        } else {
            // An error may hide that the row was written.
            let written = taken.is_err().then_some(place);
            self.user_locks.abandon_one(number, written);
        }
        taken
    }

    async fn wait_for_lock(
        &self,
        session: &Session,
        tables: &Tables,
        place: &Place,
        deadline: Option<Instant>,
    ) -> Result<bool> {
        let client = &self.client;
        let (mut watch, mut pause): (Option<Watch>, _) = (None, PAUSE_MIN);
        loop {
            session.env.may_go_on()?;
            let released = self.user_locks.released();
            let holder = match tables.take(client, place, session.info.id).await? {
                None => return Ok(true),
                Some(holder) => holder,
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(false);
            }
            if Watch::is_due(watch.as_ref(), holder.owner, now) {
                let beat = tables.beat(client, holder.owner).await?;
                let (seen, is_dead) = Watch::look(watch, holder.owner, beat, now);
                if is_dead && tables.take_over(client, place, session.info.id, &holder, beat).await? {
                    return Ok(true);
                }
                watch = seen;
            }
            let left = deadline.map_or(pause, |deadline| pause.min(deadline.saturating_duration_since(now)));
            let _ = tokio::time::timeout(left, first(released, session.env.stopped())).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// False: the session has no such lock.
    pub(crate) async fn release_lock(&self, session: &mut Session, name: &str) -> Result<bool> {
        match session.held.locks.get_mut(name) {
            None => return Ok(false),
            Some((times, _)) if *times > 1 => *times -= 1,
            Some((_, owner)) => {
                let place = Place { name: name.to_owned(), owner: *owner, session: session.held.session };
                session.held.locks.remove(name);
                self.give_back(place).await?;
            }
        }
        Ok(true)
    }

    /// How many were given back, each as often as it was taken. Those that no client has named stay.
    pub(crate) async fn release_all_locks(&self, session: &mut Session) -> Result<u64> {
        let mut count = 0;
        let is_own = |name: &String| name.starts_with(OWN);
        while let Some(name) = session.held.locks.keys().find(|name| !is_own(name)).cloned()
            && let Some((times, owner)) = session.held.locks.remove(&name)
        {
            count += u64::from(times);
            self.give_back(Place { name, owner, session: session.held.session }).await?;
        }
        Ok(count)
    }

    /// Where the row cannot be deleted now, the keeper of the lease does it.
    async fn give_back(&self, place: Place) -> Result<()> {
        let tables = self.user_lock_tables().await?;
        let (number, done) = (place.session, tables.remove(&self.client, &place).await);
        self.user_locks.abandon_one(number, done.is_err().then_some(place));
        Ok(())
    }

    /// The connection that has the lock.
    async fn holder_of(&self, name: &str) -> Result<Option<u64>> {
        let tables = self.user_lock_tables().await?;
        let Some(holder) = tables.holder(&self.client, name).await? else { return Ok(None) };
        let is_kept = tables.beat(&self.client, holder.owner).await?.is_some();
        Ok(is_kept.then_some(holder.connection))
    }
}

/// Until one of the two is done.
pub(crate) async fn first(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| match a.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => b.as_mut().poll(cx),
    })
    .await
}

//! The lease of a SQL node on the locks of its sessions.
//!
//! It begins with the first lock and ends when there has been none for [`IDLE`]; the next one has another number. A task, the keeper, raises the number in its row every [`BEAT`]. The lease
//! is good for [`GOOD`] from the moment at which the last raise that is known to be committed was *sent*. Another node ends it [`DEAD`] after it first *read* a number that has not changed since, in a
//! transaction that has locked the row: it has read the number later than the raise was sent, so it acts at least `DEAD - GOOD` after the sessions have stopped to believe in
//! their locks. Nobody's clock is compared with another's; only their rates have to be alike.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use apus_client::Client;
use tokio::sync::{Mutex as TurnMutex, Notify};

use super::rows::{Place, Tables};
use crate::{
    errors::{self, Result},
    server::Registry,
};

/// A lease is raised so often.
const BEAT: Duration = Duration::from_secs(1);
/// A session believes in its locks so long after the last raise.
pub const GOOD: Duration = Duration::from_secs(5);
/// Others end a lease that was not raised for so long.
pub const DEAD: Duration = Duration::from_secs(10);
/// A lease without locks ends after so long.
const IDLE: Duration = Duration::from_secs(10);
/// Longest a raise is waited for before the lease is looked at again.
const RAISE_MAX: Duration = Duration::from_secs(2);

const _: () = assert!(GOOD.as_millis() * 2 <= DEAD.as_millis(), "clocks and pauses of processes need room");
const _: () = assert!(BEAT.as_millis() + RAISE_MAX.as_millis() < GOOD.as_millis(), "one raise may fail");

#[derive(Clone, Copy)]
struct Lease {
    owner: u64,
    /// When the last raise was sent that is known to be committed.
    raised: Instant,
}

/// A session with locks, or about to have one.
struct Holder {
    connection: u32,
    registry: Arc<Registry>,
    locks: usize,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    last_session: u64,
    holders: BTreeMap<u64, Holder>,
    /// Locks to be given back by the keeper.
    abandoned: Vec<Place>,
    /// When the last lock was given back.
    idle_since: Option<Instant>,
}

/// The user locks of one SQL node; shared by its threads.
#[derive(Default)]
pub struct UserLocks {
    state: Mutex<State>,
    /// One lease begins at a time.
    begins: TurnMutex<()>,
    keeper: Notify,
    given_back: Notify,
}

impl UserLocks {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn new_session(&self) -> u64 {
        self.with(|state| {
            state.last_session += 1;
            state.last_session
        })
    }

    /// Until a lock of this SQL node is given back.
    pub fn released(&self) -> impl Future<Output = ()> {
        self.given_back.notified()
    }

    /// Whether sessions may believe in locks under these leases.
    pub fn are_good(&self, mut owners: impl Iterator<Item = u64>) -> bool {
        let good = self.with(|state| state.lease).filter(|lease| lease.raised.elapsed() < GOOD);
        owners.all(|owner| good.is_some_and(|lease| lease.owner == owner))
    }

    /// Counts a lock of a session before it is taken, and sees to it that there is a lease; its number.
    pub async fn hold(
        self: &Arc<Self>,
        client: &Client,
        tables: &Tables,
        session: u64,
        (connection, registry): (u32, &Arc<Registry>),
    ) -> Result<u64> {
        let new = || Holder { connection, registry: registry.clone(), locks: 0 };
        let count = |state: &mut State| {
            let lease = state.lease.filter(|lease| lease.raised.elapsed() < GOOD)?;
            state.holders.entry(session).or_insert_with(new).locks += 1;
            Some(lease.owner)
        };
        if let Some(owner) = self.with(count) {
            return Ok(owner);
        }
        let _turn = self.begins.lock().await;
        if let Some(owner) = self.with(count) {
            return Ok(owner);
        }
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
        let lease = Lease { owner: u64::from_le_bytes(random), raised: Instant::now() };
        tables.begin_lease(client, lease.owner).await.map_err(|e| errors::from_client(&e))?;
        self.with(|state| {
            state.end_lease();
            state.lease = Some(lease);
        });
        tokio::task::spawn_local(keep(self.clone(), client.clone(), tables.clone(), lease.owner));
        self.with(count).ok_or_else(|| errors::internal("a lease that was slow to begin"))
    }

    /// Locks that a session has no more. The keeper deletes their rows.
    pub fn abandon(&self, session: u64, places: impl Iterator<Item = Place>) {
        self.with(|state| {
            state.holders.remove(&session);
            state.abandoned.extend(places);
            state.note_idle();
        });
        self.keeper.notify_one();
    }

    /// One lock less of a session; with a place, the keeper deletes its row.
    pub fn abandon_one(&self, session: u64, place: Option<Place>) {
        let is_left = self.with(|state| {
            if let Some(holder) = state.holders.get_mut(&session) {
                holder.locks -= 1;
                if holder.locks == 0 {
                    state.holders.remove(&session);
                }
            }
            state.abandoned.extend(place);
            state.note_idle();
            !state.abandoned.is_empty()
        });
        if is_left {
            self.keeper.notify_one();
        }
        self.given_back.notify_waiters();
    }
}

impl State {
    fn note_idle(&mut self) {
        self.idle_since = Some(Instant::now()).filter(|_| self.holders.is_empty());
    }
    /// The sessions with locks end, which they may have lost.
    fn end_lease(&mut self) {
        if self.lease.take().is_some() {
            self.abandoned.clear();
            for holder in std::mem::take(&mut self.holders).into_values() {
                holder.registry.kill(holder.connection);
            }
        }
    }
}

/// What the keeper does next.
enum Duty {
    Raise,
    GiveBack(Vec<Place>),
    /// Nobody has locks any more.
    End,
    /// There is another lease by now.
    Leave,
}

impl UserLocks {
    fn duty(&self, owner: u64) -> Duty {
        self.with(|state| {
            if state.lease.is_none_or(|lease| lease.owner != owner) {
                return Duty::Leave;
            }
            if !state.abandoned.is_empty() {
                return Duty::GiveBack(std::mem::take(&mut state.abandoned));
            }
            if state.holders.is_empty() && state.idle_since.is_some_and(|since| since.elapsed() >= IDLE) {
                state.lease = None;
                return Duty::End;
            }
            Duty::Raise
        })
    }

    /// What a raise has come to. False: the lease is over.
    fn raised(&self, owner: u64, sent: Instant, done: Option<bool>) -> bool {
        self.with(|state| {
            let Some(lease) = state.lease.as_mut().filter(|lease| lease.owner == owner) else { return false };
            if done == Some(true) {
                lease.raised = lease.raised.max(sent);
            }
            let is_over = done == Some(false) || lease.raised.elapsed() >= GOOD;
            if is_over {
                state.end_lease();
            }
            !is_over
        })
    }
}

/// Keeps a lease until it ends.
async fn keep(locks: Arc<UserLocks>, client: Client, tables: Tables, owner: u64) {
    let mut next = Instant::now() + BEAT;
    loop {
        let _ = tokio::time::timeout_at(next.into(), locks.keeper.notified()).await;
        match locks.duty(owner) {
            Duty::Leave => return,
            Duty::End => {
                let _ = tables.end_lease(&client, owner).await;
                return;
            }
            Duty::GiveBack(places) => {
                let mut left = places.into_iter();
                while let Some(place) = left.next() {
                    let done = tokio::time::timeout(RAISE_MAX, tables.remove(&client, &place)).await;
                    if !matches!(done, Ok(Ok(()))) || Instant::now() >= next {
                        // Again after the raise; one that is gone is deleted in vain.
                        locks.with(|state| state.abandoned.extend(std::iter::once(place).chain(left)));
                        break;
                    }
                }
                locks.given_back.notify_waiters();
            }
            Duty::Raise => {}
        }
        if Instant::now() >= next {
            let sent = Instant::now();
            let done = tokio::time::timeout(RAISE_MAX, tables.raise(&client, owner)).await;
            next = Instant::now() + BEAT;
            if !locks.raised(owner, sent, done.ok().and_then(std::result::Result::ok)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(owner: u64, ago: Duration) -> UserLocks {
        let locks = UserLocks::default();
        locks.with(|state| state.lease = Instant::now().checked_sub(ago).map(|raised| Lease { owner, raised }));
        locks.with(|state| state.holders.insert(1, holder()));
        locks
    }
    fn holder() -> Holder {
        Holder { connection: 7, registry: Arc::new(Registry::new(1, 1, 1)), locks: 1 }
    }
    fn place() -> Place {
        Place { name: "a".into(), owner: 5, session: 1 }
    }

    #[test]
    fn nobody_believes_in_a_lease_that_was_not_raised() {
        let old = GOOD + Duration::from_millis(1);
        let locks = begun(5, old);
        assert!(!locks.are_good([5].into_iter()));
        assert!(!locks.raised(5, Instant::now(), None), "an unknown outcome is none");
        assert!(locks.with(|state| state.lease.is_none() && state.holders.is_empty()));
        let locks = begun(5, old);
        assert!(locks.raised(5, Instant::now(), Some(true)));
        assert!(locks.are_good([5].into_iter()) && !locks.are_good([5, 6].into_iter()));
        assert!(!locks.raised(5, Instant::now(), Some(false)), "another node has ended it");
        assert!(!locks.are_good([5].into_iter()) && locks.are_good([].into_iter()));
    }

    #[test]
    fn a_raise_counts_from_when_it_was_sent() {
        let locks = begun(5, Duration::ZERO);
        let before = locks.with(|state| state.lease.map(|lease| lease.raised));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        assert!(locks.raised(5, long_ago, Some(true)));
        assert_eq!(locks.with(|state| state.lease.map(|lease| lease.raised)), before);
    }

    #[test]
    fn the_keeper_gives_back_and_ends_with_the_last_lock() {
        let locks = begun(5, Duration::ZERO);
        assert!(matches!(locks.duty(5), Duty::Raise));
        assert!(matches!(locks.duty(6), Duty::Leave));
        locks.abandon(1, std::iter::once(place()));
        assert!(matches!(locks.duty(5), Duty::GiveBack(places) if places == [place()]));
        assert!(matches!(locks.duty(5), Duty::Raise), "the next lock may come soon");
        locks.with(|state| state.idle_since = Instant::now().checked_sub(IDLE));
        assert!(matches!(locks.duty(5), Duty::End));
        assert!(matches!(locks.duty(5), Duty::Leave));
    }

    #[test]
    fn a_session_with_one_lock_less_may_have_more() {
        let locks = begun(5, Duration::ZERO);
        locks.with(|state| state.holders.get_mut(&1).unwrap().locks = 2);
        locks.abandon_one(1, None);
        assert!(locks.with(|state| state.idle_since.is_none() && state.holders.len() == 1));
        locks.abandon_one(1, Some(place()));
        assert!(
            locks.with(|state| state.idle_since.is_some() && state.holders.is_empty() && state.abandoned.len() == 1)
        );
    }
}

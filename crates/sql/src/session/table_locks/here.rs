//! Which sessions of this SQL node use which tables, and which have locked them.
//!
//! A session publishes the tables of a statement before it looks whether one of them is locked ([`Uses::begin`]). Who locks tables says so first ([`TableLocks::want`]) and then looks at what is published. All of
//! it happens under the session's mutex, so of the two one sees the other. Without locks a statement pays for two mutexes that nobody else wants, and for reading a flag.
//!
//! What a transaction has used it uses until it ends. A lock that is wanted keeps away who begins; who is within a transaction that has used tables goes on, so that it can end. All tables of a lock
//! are granted at one moment, and nobody who waits for that has any. So no circle of waiting begins here.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use apus_types::TableId;
use tokio::sync::{Mutex as TurnMutex, Notify};

use crate::{
    catalog::Table,
    session::{
        read_locks::{Kept, OfNode},
        user_lock::{OwnLock, UserLocks},
    },
};

/// After another SQL node has waited for whole databases, only tables are kept from it for so long.
const MODEST: Duration = Duration::from_secs(60);
/// Whole databases are kept from other SQL nodes for so long after the last lock.
const IDLE: Duration = Duration::from_secs(10);

/// Tables by their ids, in order, and whether they are changed.
type List = Vec<(TableId, bool)>;

fn note(list: &mut List, id: TableId, writes: bool) {
    match list.binary_search_by_key(&id, |(known, _)| *known) {
        Ok(at) => list[at].1 |= writes,
        Err(at) => list.insert(at, (id, writes)),
    }
}

/// What a session uses, as others see it.
#[derive(Default)]
struct Published {
    of_transaction: List,
    of_statement: List,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its value whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tables that a session uses. When it is dropped the session has no locks any more.
#[derive(Default)]
pub struct Uses {
    number: u64,
    shared: Option<(Arc<TableLocks>, Arc<Mutex<Published>>)>,
    /// What the statement would use that waits.
    hidden: List,
}

impl Uses {
    fn shared(&mut self, locks: &Arc<TableLocks>) -> &Mutex<Published> {
        if self.shared.is_none() {
            let published = Arc::<Mutex<Published>>::default();
            self.number = lock(&locks.state).begin(published.clone());
            self.shared = Some((locks.clone(), published));
        }
        &self.shared.as_ref().expect("just made").1
    }

    /// A statement is about to use these tables; whether it changes them.
    pub fn begin<'t>(&mut self, locks: &Arc<TableLocks>, tables: impl Iterator<Item = (&'t Table, bool)>) {
        let mut published = lock(self.shared(locks));
        tables.for_each(|(table, writes)| note(&mut published.of_statement, table.schema.id, writes));
    }

    /// The statement has ended; within a transaction its tables are used on.
    pub fn end_statement(&mut self, in_transaction: bool) {
        let Some((locks, published)) = &self.shared else { return };
        {
            let mut published = lock(published);
            let Published { of_transaction, of_statement } = &mut *published;
            if in_transaction {
                of_statement.iter().for_each(|(id, writes)| note(of_transaction, *id, *writes));
            }
            of_statement.clear();
        }
        locks.tell();
    }

    pub fn end_transaction(&mut self) {
        let Some((locks, published)) = &self.shared else { return };
        lock(published).of_transaction.clear();
        locks.tell();
    }

    /// Whether an open transaction has used tables.
    pub fn has_begun(&self) -> bool {
        self.shared.as_ref().is_some_and(|(_, published)| !lock(published).of_transaction.is_empty())
    }

    /// The statement waits, and uses nothing meanwhile.
    pub fn hide(&mut self) {
        let Some((locks, published)) = &self.shared else { return };
        self.hidden = std::mem::take(&mut lock(published).of_statement);
        locks.tell();
    }
    pub fn show(&mut self) {
        if let Some((_, published)) = &self.shared {
            lock(published).of_statement = std::mem::take(&mut self.hidden);
        }
    }

    /// Its number, by which locks are kept.
    pub fn number(&mut self, locks: &Arc<TableLocks>) -> u64 {
        self.shared(locks);
        self.number
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        if let Some((locks, _)) = self.shared.take() {
            lock(&locks.state).sessions.remove(&self.number);
            locks.release(self.number);
        }
    }
}

/// A table that is to be locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockedTable {
    pub database: String,
    pub name: String,
    pub id: TableId,
    pub writes: bool,
}

struct Lock {
    tables: Vec<LockedTable>,
    is_granted: bool,
    /// Under which the session was told that it has it.
    lease: Option<u64>,
}

impl Lock {
    fn kept(&self) -> Kept {
        let name = |t: &LockedTable| (t.database.clone(), t.name.clone(), t.writes);
        Kept::Node(OfNode { tables: self.tables.iter().map(name).collect(), ..OfNode::default() })
    }
    fn is_against(&self, other: &Lock) -> bool {
        self.tables.iter().any(|a| {
            let is_same = |b: &&LockedTable| a.database == b.database && a.name == b.name;
            other.tables.iter().filter(is_same).any(|b| a.writes || b.writes)
        })
    }
    fn is_against_use(&self, uses: &List) -> bool {
        self.tables.iter().any(|t| uses.iter().any(|(id, writes)| *id == t.id && (t.writes || *writes)))
    }
}

/// What other SQL nodes know of this one.
#[derive(Default)]
struct Entry {
    /// Of the user lock that lives as long as the SQL node, and its lease. None: there is no entry.
    held: Option<(String, u64)>,
    /// By which all SQL nodes go.
    settled: OfNode,
    /// There is more in the entry than has to be.
    is_too_much: bool,
    /// Databases that another SQL node has waited for.
    wanted: BTreeMap<String, Instant>,
    last_release: Option<Instant>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<u64, Arc<Mutex<Published>>>,
    last: u64,
    locks: BTreeMap<u64, Lock>,
    entry: Entry,
}

impl State {
    fn begin(&mut self, published: Arc<Mutex<Published>>) -> u64 {
        self.last += 1;
        self.sessions.insert(self.last, published);
        self.last
    }

    /// What the entry has to say, for this session's lock as well. `may_reserve`: whole databases.
    fn entry_for(&self, session: Option<u64>, may_reserve: bool) -> OfNode {
        let mut entry = OfNode { databases: self.entry.settled.databases.clone(), ..OfNode::default() };
        let own = session.and_then(|session| self.locks.get(&session));
        if may_reserve {
            let is_free = |database: &String| self.entry.wanted.get(database).is_none_or(|at| at.elapsed() >= MODEST);
            for table in own.iter().flat_map(|lock| &lock.tables) {
                if is_free(&table.database) && !entry.databases.contains(&table.database) {
                    entry.databases.push(table.database.clone());
                }
            }
        }
        for table in self.locks.values().filter(|lock| lock.is_granted).flat_map(|lock| &lock.tables) {
            if !entry.databases.contains(&table.database) {
                entry.add(&table.database, &table.name, table.writes);
            }
        }
        entry
    }
}

/// What the entry of this SQL node is changed by, one after the other.
#[derive(Default)]
pub struct Turn {
    pub own: Option<OwnLock>,
    pub is_tended: bool,
}

/// The locks of tables of one SQL node; shared by its threads.
#[derive(Default)]
pub struct TableLocks {
    state: Mutex<State>,
    /// Some session has a lock, or wants one.
    is_any: AtomicBool,
    changed: Notify,
    /// To be locked before the state.
    pub turn: TurnMutex<Turn>,
    pub tend: Notify,
}

impl TableLocks {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }

    /// Until something has ended that somebody may have waited for.
    pub fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    fn tell(&self) {
        if self.is_any() {
            self.changed.notify_waiters();
        }
    }

    /// From now on nobody begins to use these tables.
    pub fn want(&self, session: u64, tables: Vec<LockedTable>) {
        let mut state = lock(&self.state);
        state.locks.insert(session, Lock { tables, is_granted: false, lease: None });
        self.is_any.store(true, Ordering::SeqCst);
    }

    /// Grants the lock that a session wants, unless somebody uses its tables, or has them locked.
    pub fn try_grant(&self, session: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(own) = state.locks.get(&session) else { return false };
        let is_locked = state.locks.iter().any(|(s, l)| *s != session && l.is_granted && l.is_against(own));
        let is_used = state.sessions.iter().filter(|(s, _)| **s != session).any(|(_, published)| {
            let published = lock(published);
            own.is_against_use(&published.of_transaction) || own.is_against_use(&published.of_statement)
        });
        if is_locked || is_used {
            return false;
        }
        state.locks.get_mut(&session).expect("found above").is_granted = true;
        true
    }

    /// It is only wanted again.
    pub fn take_back(&self, session: u64) {
        if let Some(own) = lock(&self.state).locks.get_mut(&session) {
            own.is_granted = false;
        }
        self.changed.notify_waiters();
    }

    /// The session has no lock any more. Whether the entry says more than it has to, by that.
    pub fn release(&self, session: u64) -> bool {
        let (had, is_too_much) = {
            let mut state = lock(&self.state);
            let had = state.locks.remove(&session);
            if state.locks.is_empty() {
                self.is_any.store(false, Ordering::SeqCst);
            }
            if let Some(had) = &had {
                let entry = &mut state.entry;
                entry.last_release = Some(Instant::now());
                let is_listed =
                    |t: &LockedTable| entry.settled.tables.iter().any(|(d, n, _)| *d == t.database && *n == t.name);
                entry.is_too_much |= had.tables.iter().any(is_listed);
            }
            (had.is_some(), state.entry.is_too_much)
        };
        if had {
            self.changed.notify_waiters();
            self.tend.notify_one();
        }
        had && is_too_much
    }

    /// A table of a lock has another name now, or none.
    pub fn rename(&self, session: u64, from: (&str, &str), to: Option<(&str, &str)>) {
        let mut state = lock(&self.state);
        let Some(own) = state.locks.get_mut(&session) else { return };
        let is_it = |t: &LockedTable| (t.database.as_str(), t.name.as_str()) == from;
        match to {
            None => own.tables.retain(|t| !is_it(t)),
            Some((database, name)) => own.tables.iter_mut().filter(|t| is_it(t)).for_each(|t| {
                (t.database, t.name) = (database.to_owned(), name.to_owned());
            }),
        }
    }

    /// What the locks of other sessions keep from a session. Who `has_begun` is kept by those alone that are granted.
    pub fn kept_from(&self, session: u64, has_begun: bool) -> Vec<Kept> {
        if !self.is_any() {
            return Vec::new();
        }
        let state = lock(&self.state);
        let others = state.locks.iter().filter(|(number, l)| **number != session && (l.is_granted || !has_begun));
        others.map(|(_, lock)| lock.kept()).collect()
    }

    /// The name of this SQL node's entry.
    pub fn entry_name(&self) -> Option<String> {
        lock(&self.state).entry.held.as_ref().map(|(name, _)| name.clone())
    }

    /// Whether all other SQL nodes go by the lock of a session, and believe that this one lives.
    pub fn is_settled(&self, session: u64, users: &UserLocks) -> bool {
        let state = lock(&self.state);
        let (Some(own), Some((_, lease))) = (state.locks.get(&session), &state.entry.held) else { return false };
        let is_known = |t: &LockedTable| state.entry.settled.has(&t.database, &t.name, t.writes);
        let is_the_same = own.lease.is_none_or(|told| told == *lease);
        is_the_same && users.are_good(std::iter::once(*lease)) && own.tables.iter().all(is_known)
    }

    /// The session is about to be told that it has its lock.
    pub fn believe(&self, session: u64) {
        let mut state = lock(&self.state);
        let lease = state.entry.held.as_ref().map(|(_, lease)| *lease);
        if let Some(own) = state.locks.get_mut(&session) {
            own.lease = lease;
        }
    }

    /// An entry of this name begins, under this lease; of what was before nothing is left.
    pub fn begin_entry(&self, name: String, lease: u64) {
        let mut state = lock(&self.state);
        let wanted = std::mem::take(&mut state.entry.wanted);
        state.entry = Entry { held: Some((name, lease)), wanted, ..Entry::default() };
    }

    /// What the entry has to say with the lock of this session.
    pub fn entry_with(&self, session: u64, may_reserve: bool) -> OfNode {
        lock(&self.state).entry_for(Some(session), may_reserve)
    }

    /// All SQL nodes go by this entry now. What it has for locks that were given back meanwhile is too much.
    pub fn settle(&self, entry: OfNode) {
        let mut state = lock(&self.state);
        let needed = state.entry_for(None, false);
        state.entry.is_too_much = entry.tables.iter().any(|(d, n, hidden)| !needed.has(d, n, *hidden));
        state.entry.settled = entry;
    }

    /// What the entry is to say from now on, where it is less than it says; other SQL nodes may go by it at once. `None` in the second place: nothing, and it ends.
    pub fn lessen(&self, is_wanted: bool) -> Option<Option<OfNode>> {
        let mut state = lock(&self.state);
        state.entry.held.as_ref()?;
        let is_idle = state.locks.is_empty() && state.entry.last_release.is_none_or(|at| at.elapsed() >= IDLE);
        if is_wanted {
            let Entry { wanted, settled, .. } = &mut state.entry;
            wanted.retain(|_, at| at.elapsed() < MODEST);
            wanted.extend(settled.databases.iter().map(|database| (database.clone(), Instant::now())));
        }
        if is_wanted || is_idle {
            state.entry.settled.databases.clear();
        }
        if !is_wanted && !is_idle && !state.entry.is_too_much {
            return None;
        }
        state.entry.is_too_much = false;
        let entry = state.entry_for(None, false);
        state.entry.settled = entry.clone();
        if entry.is_empty() {
            return Some(None);
        }
        Some(Some(entry))
    }

    /// The entry may say more than it has to.
    pub fn note_too_much(&self) {
        lock(&self.state).entry.is_too_much = true;
    }

    pub fn end_entry(&self) {
        lock(&self.state).entry.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u32, writes: bool) -> LockedTable {
        LockedTable { database: "d".into(), name: format!("t{id}"), id: TableId(id), writes }
    }
    fn publish(uses: &mut Uses, locks: &Arc<TableLocks>, id: u32, writes: bool) {
        let mut published = lock(uses.shared(locks));
        note(&mut published.of_statement, TableId(id), writes);
    }

    #[test]
    fn a_lock_waits_for_who_uses_its_tables() {
        let locks = Arc::<TableLocks>::default();
        let (mut a, mut b) = (Uses::default(), Uses::default());
        let number = b.number(&locks);
        publish(&mut a, &locks, 1, false);
        locks.want(number, vec![table(1, true)]);
        assert!(locks.is_any() && !locks.try_grant(number), "a reader keeps a writer away");
        locks.want(number, vec![table(1, false)]);
        assert!(locks.try_grant(number), "and no reader");
        locks.want(number, vec![table(1, true)]);
        a.end_statement(true);
        assert!(a.has_begun() && !locks.try_grant(number), "until its transaction has ended");
        a.end_transaction();
        assert!(locks.try_grant(number));
        let a_number = a.number(&locks);
        assert_eq!(locks.kept_from(a_number, true).len(), 1);
        assert!(locks.kept_from(number, false).is_empty(), "nobody is kept by himself");
        drop(b);
        assert!(!locks.is_any());
    }

    #[test]
    fn a_lock_that_is_wanted_keeps_away_who_begins_alone() {
        let locks = Arc::<TableLocks>::default();
        let (mut a, mut b, mut c) = (Uses::default(), Uses::default(), Uses::default());
        publish(&mut a, &locks, 1, true);
        let (b_number, c_number) = (b.number(&locks), c.number(&locks));
        locks.want(b_number, vec![table(1, true), table(2, false)]);
        assert!(!locks.try_grant(b_number));
        assert_eq!(locks.kept_from(c_number, false).len(), 1);
        assert!(locks.kept_from(c_number, true).is_empty());
        a.hide();
        assert!(locks.try_grant(b_number), "who waits uses nothing");
        a.show();
        assert!(!{
            locks.want(c_number, vec![table(2, true)]);
            locks.try_grant(c_number)
        });
        locks.release(b_number);
        assert!(locks.try_grant(c_number));
    }

    #[test]
    fn whole_databases_are_kept_until_somebody_wants_them() {
        let locks = Arc::<TableLocks>::default();
        let mut a = Uses::default();
        let number = a.number(&locks);
        locks.want(number, vec![table(1, true)]);
        assert!(locks.try_grant(number));
        locks.begin_entry("node".into(), 7);
        let entry = locks.entry_with(number, true);
        assert_eq!((entry.databases.as_slice(), entry.tables.len()), (&["d".to_owned()][..], 0));
        locks.settle(entry);
        assert_eq!(locks.lessen(false), None, "it has a lock");
        let less = locks.lessen(true).unwrap().unwrap();
        assert!(less.databases.is_empty() && less.has("d", "t1", true) && !less.has("d", "t2", false));
        assert!(locks.entry_with(number, true).databases.is_empty(), "for a while");
        assert!(locks.release(number), "the table is in the entry");
        assert_eq!(locks.lessen(false), Some(None));
    }
}

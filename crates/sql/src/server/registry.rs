//! All connections of a server: for the limit, SHOW PROCESSLIST and KILL. Touched when a connection comes, goes or is
//! killed, never per command: what a connection does is in its own [`Activity`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::{
    activity::Activity,
    limits,
    metered::{Meter, Traffic},
    process::{ConnectAttribute, shown_attributes},
};

/// What the registry knows about one connection.
#[derive(Debug, Clone)]
pub struct ConnectionEntry {
    pub id: u32,
    pub host: String,
    /// Empty until authenticated.
    pub user: String,
    /// What its client has said of itself, as far as it is kept.
    pub attributes: Arc<[ConnectAttribute]>,
    /// The worker thread that serves it.
    pub worker: usize,
    pub(crate) kill: Arc<Notify>,
    pub(crate) interrupt: Arc<Interrupt>,
    pub activity: Arc<Activity>,
    pub(super) meter: Arc<Meter>,
}

/// Tells a running statement to end. Between statements it means nothing.
#[derive(Debug, Default)]
pub struct Interrupt {
    asked: AtomicBool,
    /// The connection is to end, too.
    ending: AtomicBool,
    wake: Notify,
}

impl Interrupt {
    fn ask(&self) {
        self.asked.store(true, Relaxed);
        self.wake.notify_waiters();
    }
    fn end(&self) {
        self.ending.store(true, Relaxed);
        self.ask();
    }
    /// Whether the connection is to end with its statement.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }
    /// Waits until the connection is to end.
    pub async fn ended(&self) {
        loop {
            let waiting = self.wake.notified();
            if self.is_ending() {
                return;
            }
            waiting.await;
        }
    }
    /// A statement begins.
    pub fn reset(&self) {
        self.asked.store(self.is_ending(), Relaxed);
    }
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }
    /// Waits until it is asked for.
    pub async fn asked(&self) {
        let waiting = self.wake.notified();
        if !self.is_asked() {
            waiting.await;
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    connections: BTreeMap<u32, ConnectionEntry>,
    /// Those of them that have not logged in and were not asked to leave; the lowest id is about the oldest.
    strangers: BTreeSet<u32>,
    /// Those that have logged in.
    users: usize,
    per_worker: Vec<usize>,
    /// Of the server among those of its cluster; 0: none.
    number: u32,
    /// Counts the connections, up to [`limits::IDS_PER_SERVER`].
    last: u32,
    admitted: u64,
    most: usize,
    /// Of connections that have ended: what went through them, and how many ended without a word of the client, before and after it had logged in.
    past: Traffic,
    aborted_logins: u64,
    aborted: u64,
}

/// How many connections there are, were at most, and have been.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub now: usize,
    /// Of these: execute a statement.
    pub running: usize,
    pub most: usize,
    pub admitted: u64,
    /// Ended before the client had logged in.
    pub aborted_logins: u64,
    /// Ended without a word of the client.
    pub aborted: u64,
}

/// The connections of one server.
#[derive(Debug)]
pub struct Registry {
    inner: Mutex<Inner>,
    limit: usize,
    strangers_max: usize,
    address: Option<SocketAddr>,
}

impl Registry {
    /// No connections yet; at most `limit` of users and about `strangers_max` of others, spread over `workers` threads.
    pub fn new(workers: usize, limit: usize, strangers_max: usize) -> Registry {
        let inner = Inner { per_worker: vec![0; workers], ..Inner::default() };
        Registry { inner: Mutex::new(inner), limit, strangers_max, address: None }
    }

    /// Where the server listens.
    pub(super) fn at(self, address: SocketAddr) -> Registry {
        Registry { address: Some(address), ..self }
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Connections that come have ids of this server.
    pub fn set_number(&self, number: u32) {
        assert!(number <= limits::SERVERS_MAX, "ids have 32 bits");
        self.lock().number = number;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // Every critical section leaves the maps whole, so a panic elsewhere does not spoil them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot on the worker with the fewest connections, or none when the server is full of users. Who has not logged in takes
    /// no user's place: beyond their limit the oldest of them is ended for the newcomer.
    pub(crate) fn admit(self: &Arc<Self>, host: String) -> Option<Slot> {
        let mut inner = self.lock();
        if inner.users >= self.limit {
            return None;
        }
        let worker = (0..inner.per_worker.len()).min_by_key(|&w| inner.per_worker[w])?;
        let slot = self.enter(&mut inner, worker, host);
        inner.admitted += 1;
        inner.most = inner.most.max(inner.connections.len());
        if inner.strangers.len() >= self.strangers_max
            && let Some(oldest) = inner.strangers.pop_first()
            && let Some(entry) = inner.connections.get(&oldest)
        {
            entry.kill.notify_one();
        }
        inner.strangers.insert(slot.id);
        Some(slot)
    }

    /// A slot for what the server runs by itself for a user; none when the server is full of users.
    pub(crate) fn admit_own(self: &Arc<Self>, worker: usize, user: &str, host: &str) -> Option<Slot> {
        let mut inner = self.lock();
        if inner.users >= self.limit || worker >= inner.per_worker.len() {
            return None;
        }
        let slot = self.enter(&mut inner, worker, host.to_owned());
        // There is no client that could leave without a word.
        slot.meter.quits();
        drop(inner);
        self.set_user(slot.id, user, &[]);
        Some(slot)
    }

    fn enter(self: &Arc<Self>, inner: &mut Inner, worker: usize, host: String) -> Slot {
        inner.per_worker[worker] += 1;
        let id = loop {
            inner.last = (inner.last + 1) % limits::IDS_PER_SERVER;
            let id = inner.number * limits::IDS_PER_SERVER + inner.last;
            if inner.last > 0 && !inner.connections.contains_key(&id) {
                break id;
            }
        };
        let kill = Arc::new(Notify::new());
        let interrupt = Arc::new(Interrupt::default());
        let activity = Arc::new(Activity::default());
        let meter = Arc::new(Meter::default());
        let entry = ConnectionEntry {
            id,
            host: host.clone(),
            user: String::new(),
            attributes: Arc::default(),
            worker,
            kill: kill.clone(),
            interrupt: interrupt.clone(),
            activity: activity.clone(),
            meter: meter.clone(),
        };
        inner.connections.insert(id, entry);
        Slot { id, worker, host, kill, interrupt, activity, meter, registry: self.clone() }
    }

    /// Somebody has logged in, with these connection attributes.
    pub(crate) fn set_user(&self, id: u32, user: &str, attributes: &[(String, String)]) {
        let attributes = shown_attributes(attributes);
        let mut inner = self.lock();
        inner.strangers.remove(&id);
        let Some(entry) = inner.connections.get_mut(&id) else { return };
        let is_new = entry.user.is_empty();
        entry.user = user.to_owned();
        entry.attributes = attributes.into();
        inner.users += usize::from(is_new);
    }

    /// Has the running statement of a connection end with an error; false if there is no connection of this id.
    pub fn kill_query(&self, id: u32) -> bool {
        let inner = self.lock();
        let Some(entry) = inner.connections.get(&id) else { return false };
        entry.interrupt.ask();
        true
    }

    /// Ends a connection and its running statement; false if there is none of this id.
    pub fn kill(&self, id: u32) -> bool {
        let inner = self.lock();
        let Some(entry) = inner.connections.get(&id) else { return false };
        entry.interrupt.end();
        entry.kill.notify_one();
        true
    }

    /// Ends all connections.
    pub(crate) fn kill_all(&self) {
        self.kill_within(0..=u32::MAX);
    }

    /// Ends the connections of these ids.
    pub(crate) fn kill_within(&self, ids: RangeInclusive<u32>) {
        for (_, entry) in self.lock().connections.range(ids) {
            entry.interrupt.end();
            entry.kill.notify_one();
        }
    }

    /// Whose connection it is; empty: he has not logged in.
    pub fn user_of(&self, id: u32) -> Option<String> {
        self.lock().connections.get(&id).map(|entry| entry.user.clone())
    }

    /// A copy of all entries in the order of their ids.
    pub fn list(&self) -> Vec<ConnectionEntry> {
        self.lock().connections.values().cloned().collect()
    }

    pub fn use_of_connections(&self) -> Use {
        let is_running = |c: &&ConnectionEntry| !c.user.is_empty() && !c.activity.look().is_asleep();
        let running = self.list().iter().filter(is_running).count();
        let inner = self.lock();
        let (aborted_logins, aborted) = (inner.aborted_logins, inner.aborted);
        let now = inner.connections.len();
        Use { now, running, most: inner.most, admitted: inner.admitted, aborted_logins, aborted }
    }

    /// What went through all connections that there are and were.
    pub fn traffic(&self) -> Traffic {
        let inner = self.lock();
        inner.connections.values().map(|entry| entry.meter.traffic()).fold(inner.past, Traffic::and)
    }

    /// What went through one that there is.
    pub fn traffic_of(&self, id: u32) -> Traffic {
        self.lock().connections.get(&id).map(|entry| entry.meter.traffic()).unwrap_or_default()
    }

    /// The statement that one has run.
    pub fn last_statement(&self, id: u32) -> String {
        let entry = self.lock().connections.get(&id).cloned();
        entry.map_or_else(String::new, |entry| entry.activity.last_statement())
    }

    pub fn len(&self) -> usize {
        self.lock().connections.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One connection's place in the registry; given back when dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Slot {
    pub id: u32,
    pub worker: usize,
    pub host: String,
    pub kill: Arc<Notify>,
    pub interrupt: Arc<Interrupt>,
    pub activity: Arc<Activity>,
    pub meter: Arc<Meter>,
    pub registry: Arc<Registry>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        let Some(entry) = inner.connections.remove(&self.id) else { return };
        inner.strangers.remove(&self.id);
        inner.users -= usize::from(!entry.user.is_empty());
        inner.past = inner.past.and(entry.meter.traffic());
        if entry.user.is_empty() {
            inner.aborted_logins += 1;
        } else if !entry.meter.has_quit() {
            inner.aborted += 1;
        }
        if let Some(count) = inner.per_worker.get_mut(self.worker) {
            *count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_the_number_of_the_server_and_come_again_only_when_they_are_free() {
        let registry = Arc::new(Registry::new(1, 10, 10));
        let admit = || registry.admit("localhost".into()).expect("a slot");
        assert_eq!(admit().id, 1, "without a number");
        registry.set_number(limits::SERVERS_MAX);
        let first = limits::SERVERS_MAX * limits::IDS_PER_SERVER;
        let kept = admit();
        assert_eq!(kept.id, first + 2);
        registry.lock().last = limits::IDS_PER_SERVER - 2;
        assert_eq!(admit().id, first + limits::IDS_PER_SERVER - 1);
        assert_eq!(admit().id, first + 1);
        assert_eq!(admit().id, first + 3, "one that is in use is passed over");
        registry.set_user(kept.id, "anna", &[]);
        assert_eq!((registry.user_of(kept.id).as_deref(), registry.user_of(1)), (Some("anna"), None));
    }
}

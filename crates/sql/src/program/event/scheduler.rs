//! Runs events when they are due.
//!
//! Each SQL node has a scheduler, on its first thread. While no event is enabled it asks nobody anything. Otherwise it wants the *lease*, a user lock that no GET_LOCK can name: one SQL node has it, and
//! another takes it at most 11 s after that one is gone. The lease spares the cluster claims that are made in vain; that no run is begun twice is seen to by the claim of each run
//! ([`super::runs`]).
//!
//! A run that fell due while nobody had the lease, or all places were taken, is made up for once, then the next one is the first that is still to come.
//!
//! What dies with whom: a run is a session of this SQL node. Its statements are tried again like a client's where a data node dies; if the SQL node dies, the run is over, and not begun again. An
//! event that has run for the last time is dropped, or disabled, by who has the lease.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{Definition, Event, Status, runs::draw};
use crate::{
    accounts::{Privileges, identity::account_of},
    errors::Result,
    program::routine::failures::no_definer,
    server::{Collected, ConnectionInfo, Engine, Registry, Slot},
    session::{
        Session,
        engine::{Alive, SqlEngine},
        user_lock::OwnLock,
    },
    value::{datum::Datum, temporal::whole_seconds, zone::clock},
    wire::{SqlError, capability},
};

/// Longer than a name that GET_LOCK takes.
const LEASE: &str = "the lease of the SQL node that runs the events of the cluster, which no client can name";
/// Runs under way.
const RUNS_MAX: usize = 64;
/// Runs of one event under way.
const RUNS_OF_ONE_MAX: usize = 16;
/// How soon a change of the dictionary is seen.
const LOOK: Duration = Duration::from_millis(200);
/// How often who has not the lease asks for it, and who does not reach the cluster tries again.
const ASK: Duration = Duration::from_secs(1);
/// What USER() says in a body.
const USER: &str = "event_scheduler";
/// utf8mb4_0900_ai_ci.
const CHARSET: u16 = 255;

/// An event that is enabled.
struct Waiting {
    event: Rc<Event>,
    last: Option<i64>,
    /// `None`: it is over.
    next: Option<i64>,
    /// Drawn when the next run was first claimed, so that a claim whose outcome is unknown is known again.
    claim: Option<u64>,
}

impl Waiting {
    fn new(event: Rc<Event>, last: Option<i64>) -> Waiting {
        let next = next(&event.definition, last, event.definition.since);
        Waiting { event, last, next, claim: None }
    }
    fn has_run(&mut self, now: i64, due: i64) {
        self.last = Some(now.max(due));
        self.next = next(&self.event.definition, self.last, now);
        self.claim = None;
    }
}

fn next(definition: &Definition, last: Option<i64>, from: i64) -> Option<i64> {
    definition.schedule.next(whole_seconds(from), last, definition.zone())
}

/// How many runs of each event are under way.
type Running = Rc<RefCell<BTreeMap<u64, usize>>>;

/// Counts a run while it lives.
struct Counted(Running, u64);

impl Counted {
    fn new(running: &Running, event: u64) -> Counted {
        *running.borrow_mut().entry(event).or_default() += 1;
        Counted(running.clone(), event)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut running = self.0.borrow_mut();
        if let Some(count) = running.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.1);
            }
        }
    }
}

struct Scheduler {
    connections: Arc<Registry>,
    worker: usize,
    lease: OwnLock,
    /// By their numbers; those of this version of the dictionary.
    waiting: BTreeMap<u64, Waiting>,
    version: Option<(u64, u64)>,
    running: Running,
    /// Events whose bodies could not be begun.
    refused: Rc<RefCell<BTreeSet<u64>>>,
}

impl SqlEngine {
    /// Begins to run events, until the value that is returned is dropped. Within a `LocalSet`.
    pub(crate) fn schedule_events(self: &Rc<Self>, connections: &Arc<Registry>, worker: usize) -> Alive {
        let (alive, ended) = oneshot::channel();
        let scheduler = Scheduler {
            connections: connections.clone(),
            worker,
            lease: OwnLock::new(self.user_locks.clone(), LEASE),
            waiting: BTreeMap::new(),
            version: None,
            running: Running::default(),
            refused: Rc::default(),
        };
        tokio::task::spawn_local(scheduler.work(Rc::downgrade(self), ended));
        alive
    }

    /// A session of an event's definer, and its place among the connections.
    ///
    /// # Errors
    /// 1040. 1449, 1044: the definer is not there, or has not the privilege any more.
    async fn session_of(&self, connections: &Arc<Registry>, worker: usize, event: &Event) -> Result<(Slot, Session)> {
        let d = &event.definition;
        let (user, host) = (&d.definer.0, &d.definer.1);
        let slot = connections.admit_own(worker, user, host).ok_or_else(SqlError::too_many_connections)?;
        slot.activity.runs(&event.database, &d.body);
        let info = ConnectionInfo {
            id: slot.id,
            user: USER.to_owned(),
            host: "localhost".to_owned(),
            database: Some(event.database.clone()),
            charset: CHARSET,
            capabilities: capability::MULTI_RESULTS,
            attributes: Vec::new(),
            registry: connections.clone(),
            interrupt: slot.interrupt.clone(),
            activity: slot.activity.clone(),
            tls: None,
        };
        let is_sure = self.check_accounts().await;
        let mut session = match &self.store {
            None => self.open(info).await?,
            Some(store) => {
                let found = account_of(&store.accounts.current(), user, host).cloned();
                self.open_as(info, found.ok_or_else(|| no_definer(user, host))?, is_sure).await?
            }
        };
        self.require_on_database(&mut session, &event.database, Privileges::EVENT).await?;
        Ok((slot, session))
    }

    async fn call_event(&self, session: &mut Session, event: &Event) -> Result<()> {
        let d = &event.definition;
        self.begin_statement(session)?;
        session.env.variables.set("time_zone", Some(&Datum::text(d.zone.as_str())))?;
        let mut rows = Collected::new(false);
        self.call(session, &d.routine(&event.database), Vec::new(), &mut rows.unread()).await.map(|_| ())
    }

    /// An event has run for the last time.
    async fn finish_event(&self, event: &Event, is_kept: bool) -> Result<()> {
        let d = &event.definition;
        if !is_kept {
            return self.drop_event(event).await.map(|_| ());
        }
        let disabled = Definition { status: Status::Disabled, ..d.clone() };
        // If somebody changes it at this moment that change counts.
        self.replace_event(event, &event.database, &disabled).await?;
        self.fetch_catalog().await.map(|_| ())
    }
}

impl Scheduler {
    async fn work(mut self, engine: Weak<SqlEngine>, mut ended: oneshot::Receiver<Infallible>) {
        loop {
            let Some(alive) = engine.upgrade() else { return };
            let pause = match self.turn(&alive).await {
                Ok(pause) => pause,
                // What cannot be asked now is asked again.
                Err(_) => ASK,
            };
            drop(alive);
            if tokio::time::timeout(pause, &mut ended).await.is_ok() {
                return;
            }
        }
    }

    /// Runs what is due; how long to wait before the next turn.
    async fn turn(&mut self, engine: &Rc<SqlEngine>) -> Result<Duration> {
        if !engine.globals.runs_events() {
            self.rest(engine).await?;
            return Ok(LOOK);
        }
        let catalog = engine.catalog_as_it_is().await?;
        let enabled = || catalog.events().filter(|event| event.definition.status == Status::Enabled);
        if enabled().next().is_none() {
            self.rest(engine).await?;
            return Ok(LOOK);
        }
        if !self.lease.is_held() {
            self.forget();
            if !self.lease.try_take(engine, &self.connections).await? {
                return Ok(ASK);
            }
        }
        if self.version != Some((catalog.lineage, catalog.version)) {
            let is_new = |event: &&Rc<Event>| {
                self.waiting.get(&event.definition.number).is_none_or(|known| !Rc::ptr_eq(&known.event, event))
            };
            let runs = engine.event_runs(enabled().filter(is_new).map(|event| event.definition.number)).await?;
            let mut before = std::mem::take(&mut self.waiting);
            for event in enabled() {
                let number = event.definition.number;
                let known = before.remove(&number).filter(|known| Rc::ptr_eq(&known.event, event));
                let waiting = known.unwrap_or_else(|| Waiting::new(event.clone(), runs.get(&number).copied()));
                self.waiting.insert(number, waiting);
            }
            self.version = Some((catalog.lineage, catalog.version));
        }
        self.run_due(engine).await?;
        Ok(self.pause())
    }

    /// Until the next run, or a change of the dictionary is looked for.
    fn pause(&self) -> Duration {
        let now = clock();
        let first = self.waiting.values().filter_map(|waiting| waiting.next).filter(|next| *next > now).min();
        let left = first.map_or(LOOK, |next| Duration::from_micros(u64::try_from(next - now).unwrap_or(0)));
        left.min(LOOK)
    }

    async fn run_due(&mut self, engine: &Rc<SqlEngine>) -> Result<()> {
        let now = clock();
        let is_due = |waiting: &&Waiting| waiting.next.is_none_or(|next| next <= now);
        let mut due: Vec<(Option<i64>, u64)> =
            self.waiting.values().filter(is_due).map(|w| (w.next, w.event.definition.number)).collect();
        due.sort_unstable();
        for (next, number) in due {
            let of_this = self.running.borrow().get(&number).copied().unwrap_or(0);
            let Some(next) = next else {
                if of_this == 0
                    && let Some(over) = self.waiting.remove(&number)
                {
                    // One that was not run is there to be looked at, as in MySQL.
                    let is_kept = over.event.definition.is_kept || self.refused.borrow_mut().remove(&number);
                    let done = engine.finish_event(&over.event, is_kept).await;
                    if done.is_err() {
                        self.forget();
                        return done;
                    }
                }
                continue;
            };
            let all: usize = self.running.borrow().values().sum();
            if all >= RUNS_MAX || of_this >= RUNS_OF_ONE_MAX {
                continue;
            }
            if !self.lease.is_held() {
                self.forget();
                break;
            }
            let Some(waiting) = self.waiting.get_mut(&number) else { continue };
            let claim = waiting.claim.map_or_else(draw, Ok)?;
            waiting.claim = Some(claim);
            let is_ours = engine.claim_run(number, next, clock(), claim).await?;
            waiting.has_run(clock(), next);
            let event = waiting.event.clone();
            if is_ours {
                self.begin(engine, event);
            }
        }
        Ok(())
    }

    fn begin(&self, engine: &Rc<SqlEngine>, event: Rc<Event>) {
        let (engine, connections, worker) = (engine.clone(), self.connections.clone(), self.worker);
        let counted = Counted::new(&self.running, event.definition.number);
        let refused = self.refused.clone();
        tokio::task::spawn_local(async move {
            let _counted = counted;
            let done = match engine.session_of(&connections, worker, &event).await {
                Ok((_slot, mut session)) => {
                    let done = Box::pin(engine.call_event(&mut session, &event)).await;
                    engine.close(session).await;
                    done
                }
                Err(e) => {
                    refused.borrow_mut().insert(event.definition.number);
                    Err(e)
                }
            };
            if let Err(e) = done {
                let (user, host) = &event.definition.definer;
                eprintln!("apus sql: event {} of '{user}'@'{host}': {e}", event.full_name());
            }
        });
    }

    /// There is nothing to run here.
    async fn rest(&mut self, engine: &Rc<SqlEngine>) -> Result<()> {
        self.forget();
        self.lease.give_back(engine).await
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.version = None;
    }
}

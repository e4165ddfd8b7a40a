//! The workers of the bank on real time, and what they tell the auditor. What a transfer is and how it is seen through is
//! [`apus_workload::bank`]; here it is given threads, a gate that all wait at, and patience: an outcome that nobody can tell for a minute
//! makes the transfer unresolved.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use apus_client::{Client, CommitToken};
use apus_kernel::Random;
use apus_workload::bank::{Fate, Stage, Tables, Teller, Terms, Transfer, World};

use crate::bench::{
    cluster::{connect, on_this_thread, outcome_of},
    numbers::nanoseconds,
};
use crate::discover::Access;

/// Longest wait for one row lock, in milliseconds.
pub const LOCK_WAIT_MS: u32 = 10_000;
/// How long one transfer is tried and its outcome is asked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Violations remembered in words.
const VIOLATIONS_MAX: usize = 20;
/// Transfer ids of a worker start at its number times this.
const IDS_PER_WORKER: u64 = 1 << 40;

/// What workers are to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Gate {
    Open = 0,
    /// Finish the transfer at hand, then wait.
    Shut = 1,
    /// Go home.
    Closed = 2,
}

/// The longest time without a commit.
#[derive(Default)]
pub struct Gaps {
    last_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Gaps {
    fn commit(&self, now_ns: u64) {
        let last = self.last_ns.fetch_max(now_ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(now_ns.saturating_sub(last), Ordering::Relaxed);
    }
    /// Traffic begins now (again).
    fn resume(&self, now_ns: u64) {
        self.last_ns.store(now_ns, Ordering::Relaxed);
        self.longest_ns.store(0, Ordering::Relaxed);
    }
    /// The longest gap since the last call, the one that lasts included.
    fn take(&self, now_ns: u64) -> Duration {
        let lasting = now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed));
        Duration::from_nanos(self.longest_ns.swap(0, Ordering::Relaxed).max(lasting))
    }
}

/// What all workers and the auditor share.
pub struct Floor {
    pub mgmt: Access,
    pub terms: Terms,
    pub tables: Tables,
    pub workers: u64,
    gate: AtomicU8,
    parked: AtomicU64,
    start: Instant,
    gaps: Gaps,
    commits: AtomicU64,
    desks: Vec<Desk>,
    retries: Mutex<BTreeMap<u16, u64>>,
    violations: Mutex<Vec<String>>,
}

/// One worker's account of itself.
#[derive(Default)]
struct Desk {
    acknowledged: Mutex<Vec<u64>>,
    unresolved: Mutex<Vec<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Floor {
    pub fn new(mgmt: Access, terms: Terms, tables: Tables, workers: u64) -> Floor {
        Floor {
            mgmt,
            terms,
            tables,
            workers,
            gate: AtomicU8::new(Gate::Shut as u8),
            parked: AtomicU64::new(0),
            start: Instant::now(),
            gaps: Gaps::default(),
            commits: AtomicU64::new(0),
            desks: (0..workers).map(|_| Desk::default()).collect(),
            retries: Mutex::default(),
            violations: Mutex::default(),
        }
    }
    fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
    pub fn set_gate(&self, gate: Gate) {
        if gate == Gate::Open {
            self.gaps.resume(self.now_ns());
        }
        self.gate.store(gate as u8, Ordering::SeqCst);
    }
    fn is(&self, gate: Gate) -> bool {
        self.gate.load(Ordering::SeqCst) == gate as u8
    }
    /// Every worker waits at the shut gate: nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.parked.load(Ordering::SeqCst) == self.workers
    }
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }
    /// Longest time without a commit since the last call or since the gate was opened.
    pub fn take_gap(&self) -> Duration {
        self.gaps.take(self.now_ns())
    }
    /// Ids of the acknowledged and of the unresolved transfers.
    pub fn account(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut acknowledged, mut unresolved) = (Vec::new(), Vec::new());
        for desk in &self.desks {
            acknowledged.extend_from_slice(&lock(&desk.acknowledged));
            unresolved.extend_from_slice(&lock(&desk.unresolved));
        }
        (acknowledged, unresolved)
    }
    /// What should never have happened, in words.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }
    /// Why transfers had to be sent again: error number and how often.
    pub fn retries(&self) -> Vec<(u16, u64)> {
        lock(&self.retries).iter().map(|(&code, &count)| (code, count)).collect()
    }
    fn acknowledged(&self, worker: u64, id: u64) {
        lock(&self.desks[worker as usize].acknowledged).push(id);
        self.gaps.commit(self.now_ns());
        self.commits.fetch_add(1, Ordering::SeqCst);
    }
    fn violation(&self, text: String) {
        let mut list = lock(&self.violations);
        if list.len() < VIOLATIONS_MAX {
            eprintln!("bank   VIOLATION: {text}");
            list.push(text);
        }
    }
}

/// One thread with its client and its workers; says on `ready` whether it could begin.
pub fn run_thread(floor: &Arc<Floor>, number: u64, workers: std::ops::Range<u64>, ready: &Sender<Result<(), String>>) {
    let done = on_this_thread(async {
        let client = match connect(&floor.mgmt, number).await {
            Ok(client) => client,
            Err(error) => return Err(error),
        };
        let _ = ready.send(Ok(()));
        let spawn = |worker| tokio::task::spawn_local(work(floor.clone(), client.clone(), worker));
        for task in workers.map(spawn).collect::<Vec<_>>() {
            if let Err(error) = task.await {
                floor.violation(format!("a worker ended: {error}"));
            }
        }
        Ok(())
    });
    if let Err(error) | Ok(Err(error)) = done {
        let _ = ready.send(Err(error));
    }
}

/// A transfer on real time.
struct Counter<'a> {
    floor: &'a Floor,
    client: &'a Client,
    begin: Instant,
    last_error: Cell<String>,
}

impl World for Counter<'_> {
    async fn sleep(&self, nanoseconds: u64) {
        tokio::time::sleep(Duration::from_nanos(nanoseconds)).await;
    }
    async fn outcome(&self, token: &CommitToken) -> Fate {
        match outcome_of(self.client, token, PATIENCE).await {
            Some(true) => Fate::Committed,
            Some(false) => Fate::RolledBack,
            None => Fate::Unresolved,
        }
    }
    fn is_patient(&self) -> bool {
        self.begin.elapsed() <= PATIENCE
    }
    fn at(&self, _: &Transfer, stage: Stage<'_>) {
        if let Stage::RollsBack(error) = stage {
            *lock(&self.floor.retries).entry(error.code as u16).or_default() += 1;
            self.last_error.set(error.to_string());
        }
    }
    fn violation(&self, text: String) {
        self.floor.violation(text);
    }
}

/// Transfers, one after another, until the gate is closed.
async fn work(floor: Arc<Floor>, client: Client, worker: u64) {
    let random = Random::new(floor.terms.seed ^ (worker + 1));
    let mut teller = Teller::new(client.clone(), floor.tables.clone(), LOCK_WAIT_MS, random);
    let mut next = worker * IDS_PER_WORKER;
    loop {
        if floor.is(Gate::Shut) {
            floor.parked.fetch_add(1, Ordering::SeqCst);
            while floor.is(Gate::Shut) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            floor.parked.fetch_sub(1, Ordering::SeqCst);
        }
        if floor.is(Gate::Closed) {
            return;
        }
        let transfer = floor.terms.transfer(next);
        let counter = Counter { floor: &floor, client: &client, begin: Instant::now(), last_error: Cell::default() };
        match teller.see_through(&transfer, &counter).await {
            Fate::Committed => floor.acknowledged(worker, transfer.id),
            Fate::Unresolved => lock(&floor.desks[worker as usize].unresolved).push(transfer.id),
            Fate::Hopeless => tokio::time::sleep(Duration::from_millis(100)).await,
            Fate::RolledBack => {
                let last = counter.last_error.take();
                floor.violation(format!("{transfer:?} failed for {} s, last by {last}", PATIENCE.as_secs()));
            }
        }
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_and_pauses_do_not() {
        let gaps = Gaps::default();
        gaps.resume(1000);
        gaps.commit(1010);
        gaps.commit(1050);
        gaps.commit(1040); // another thread, late
        gaps.commit(1060);
        assert_eq!(gaps.take(1070), Duration::from_nanos(40));
        assert_eq!(gaps.take(1090), Duration::from_nanos(30));
        gaps.resume(9000);
        gaps.commit(9005);
        assert_eq!(gaps.take(9006), Duration::from_nanos(5));
    }
}

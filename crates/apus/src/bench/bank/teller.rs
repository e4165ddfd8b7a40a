//! The workers that transfer money, and what they tell the auditor.
//!
//! A worker executes one transfer after another and each until it is acknowledged: after a conflict or a node failure the same transfer is
//! sent again, which doubles as a test, because a transfer that was reported as rolled back and is there nevertheless refuses its
//! own repetition (its record's key is unique). An unknown outcome is asked for by commit token; only if nobody can tell for a
//! minute the transfer is set aside as unresolved.
//!
//! Transfers come in four shapes, by their id, so that all ways to commit meet node failures: additions with the commit in one message
//! (twice as often), locking reads followed by computed values with the commit in the second message, and the same with a
//! commit of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use apus_client::{Client, ClientError, CommitToken, ExecOptions, OpBatch, Results, Transaction};
use apus_signal::tc::OpKind;
use apus_types::{ErrorClass, ErrorCode, Value, update};

use super::ledger::{BALANCE_COLUMN, Tables, Terms, Transfer, encode_key, encode_record};
use crate::bench::{
    cluster::{connect, on_this_thread, outcome_of},
    numbers::{Random, nanoseconds},
};
use crate::discover::Access;

/// Longest wait for one row lock, in milliseconds.
const LOCK_WAIT_MS: u32 = 10_000;
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
        let spawn = |worker| tokio::task::spawn_local(Teller::new(floor.clone(), client.clone(), worker).run());
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

enum Fate {
    Committed,
    /// Nothing of it was or will be done: send it again.
    RolledBack,
    Unresolved,
    /// Sending it again is of no use.
    Hopeless,
}

struct Teller {
    floor: Arc<Floor>,
    client: Client,
    worker: u64,
    random: Random,
    ops: OpBatch,
    results: Results,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Teller {
    fn new(floor: Arc<Floor>, client: Client, worker: u64) -> Teller {
        Teller {
            random: Random::new(floor.terms.seed ^ (worker + 1)),
            floor,
            client,
            worker,
            ops: OpBatch::new(),
            results: Results::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    async fn run(mut self) {
        let floor = self.floor.clone();
        let mut next = self.worker * IDS_PER_WORKER;
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
            self.see_through(floor.terms.transfer(next)).await;
            next += 1;
        }
    }

    /// Executes a transfer until its fate is known, and notes it.
    async fn see_through(&mut self, transfer: Transfer) {
        let begin = Instant::now();
        let mut last = None;
        loop {
            let mut transaction = self.client.begin();
            let done = self.execute(&mut transaction, &transfer).await;
            let fate = match done {
                Ok(()) => Fate::Committed,
                Err(error) => {
                    let token = transaction.token();
                    *lock(&self.floor.retries).entry(error.code as u16).or_default() += 1;
                    let _ = transaction.rollback().await;
                    let fate = self.fate(&transfer, &error, token).await;
                    last = Some(error);
                    fate
                }
            };
            let (floor, desk) = (&self.floor, self.floor.desks.get(self.worker as usize));
            match fate {
                Fate::Committed => {
                    if let Some(desk) = desk {
                        lock(&desk.acknowledged).push(transfer.id);
                    }
                    floor.gaps.commit(floor.now_ns());
                    floor.commits.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Fate::Unresolved => {
                    if let Some(desk) = desk {
                        lock(&desk.unresolved).push(transfer.id);
                    }
                    return;
                }
                Fate::Hopeless => return tokio::time::sleep(Duration::from_millis(100)).await,
                Fate::RolledBack if begin.elapsed() > PATIENCE => {
                    let last = last.map(|e| e.to_string()).unwrap_or_default();
                    floor.violation(format!("{transfer:?} failed for {} s, last by {last}", PATIENCE.as_secs()));
                    return;
                }
                // Those that met in a deadlock must not meet again in step.
                Fate::RolledBack => tokio::time::sleep(Duration::from_millis(self.random.below(3))).await,
            }
        }
    }

    async fn fate(&self, transfer: &Transfer, error: &ClientError, token: Option<CommitToken>) -> Fate {
        if error.code == ErrorCode::DuplicateKey {
            let text = format!("transfer {} is there though it was reported as rolled back", transfer.id);
            self.floor.violation(text);
            return Fate::Hopeless;
        }
        match (error.class(), token) {
            (ErrorClass::UnknownOutcome, Some(token)) => self.resolve(&token).await,
            (ErrorClass::UnknownOutcome, None) => Fate::Unresolved,
            (ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace, _) => {
                Fate::RolledBack
            }
            _ => {
                self.floor.violation(format!("transfer {} was refused: {error}", transfer.id));
                Fate::Hopeless
            }
        }
    }

    /// What became of a commit, by its token.
    async fn resolve(&self, token: &CommitToken) -> Fate {
        match outcome_of(&self.client, token, PATIENCE).await {
            Some(true) => Fate::Committed,
            Some(false) => Fate::RolledBack,
            None => Fate::Unresolved,
        }
    }

    async fn execute(&mut self, transaction: &mut Transaction, t: &Transfer) -> Result<(), ClientError> {
        let mut options = ExecOptions::autocommit(LOCK_WAIT_MS);
        let computed = t.id % 4 >= 2;
        let [source, target] = if computed {
            let reading = ExecOptions { commit: false, ..options };
            options.savepoint = 2;
            options.commit = t.id.is_multiple_of(2);
            self.locked_balances(transaction, t, reading).await?
        } else {
            [0, 0]
        };
        self.ops.clear();
        for (account, delta, balance) in [(t.source, -t.amount, source), (t.target, t.amount, target)] {
            encode_key(account, &mut self.key);
            self.value.clear();
            if computed {
                let new = balance.checked_add(delta).ok_or(ErrorCode::ValueOutOfRange)?;
                update::push_set(&mut self.value, BALANCE_COLUMN, &new.to_le_bytes());
            } else {
                update::push_add(&mut self.value, BALANCE_COLUMN, delta);
            }
            self.ops.push(&self.floor.tables.accounts, OpKind::Update, 0, &self.key, &self.value)?;
        }
        encode_key(t.id, &mut self.key);
        encode_record(&self.floor.tables, t, &mut self.value)?;
        self.ops.push(&self.floor.tables.transfers, OpKind::Insert, 0, &self.key, &self.value)?;
        transaction.execute(&self.ops, options, &mut self.results).await?;
        if !options.commit {
            transaction.commit().await?;
        }
        Ok(())
    }

    /// Reads both balances and keeps them from changing.
    async fn locked_balances(
        &mut self,
        transaction: &mut Transaction,
        t: &Transfer,
        options: ExecOptions,
    ) -> Result<[i64; 2], ClientError> {
        let accounts = &self.floor.tables.accounts;
        self.ops.clear();
        for account in [t.source, t.target] {
            encode_key(account, &mut self.key);
            self.ops.push_read(accounts, true, 0, &self.key, None)?;
        }
        transaction.execute(&self.ops, options, &mut self.results).await?;
        let balance = |index| match self.results.row(index).map(|row| accounts.layout().value(row, BALANCE_COLUMN)) {
            Some(Value::Int(balance)) => Ok(balance),
            _ => Err(ClientError::from(ErrorCode::RowNotFound)),
        };
        Ok([balance(0)?, balance(1)?])
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

//! The threads that make the load.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use apus_client::{Client, ClientError, KeyList, OpBatch, ReadBatch, Results, Rows};
use apus_signal::tc::OpKind;
use apus_types::{Epoch, TableSchema, TransId, row::RowLayout, update};

use super::{
    Phase,
    data::{Maker, VALUE_COLUMN, is_value_of},
};
use crate::bench::{
    cluster::{connect, on_this_thread},
    numbers::{Latencies, Random},
};
use crate::discover::Access;

/// Longest wait for a row lock, in milliseconds. Nobody else should hold one.
const LOCK_WAIT_MS: u32 = 10_000;
/// A thread gives up after this many failed requests.
const ERRORS_MAX: u64 = 100;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// One phase, shared by all threads.
pub struct Load {
    pub mgmt: Access,
    pub phase: Phase,
    pub table: TableSchema,
    pub keys: u64,
    pub key_size: usize,
    pub value_size: usize,
    pub batch: u64,
    pub in_flight: u64,
    /// Over all threads.
    pub tasks: u64,
    /// Operations to execute.
    pub limit: u64,
    /// Operations given out.
    pub next: AtomicU64,
    /// Operations done, for the progress line.
    pub executed: AtomicU64,
}

/// `next` jumps here when the time is over. Far from the end of the range, as claims go on adding for a moment.
const STOPPED: u64 = 1 << 63;

impl Load {
    pub fn stop(&self) {
        self.next.fetch_max(STOPPED, Ordering::Relaxed);
    }
    /// The next operations to execute: number of the first, count.
    fn claim(&self) -> Option<(u64, u64)> {
        let first = self.next.fetch_add(self.batch, Ordering::Relaxed);
        (first < self.limit.min(STOPPED)).then(|| (first, self.batch.min(self.limit - first)))
    }
}

/// What was done and how it went.
pub struct Tally {
    pub operations: u64,
    pub batches: u64,
    pub missing: u64,
    pub wrong: u64,
    /// Failed requests.
    pub errors: u64,
    pub first_error: Option<String>,
    pub latencies: Latencies,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            operations: 0,
            batches: 0,
            missing: 0,
            wrong: 0,
            errors: 0,
            first_error: None,
            latencies: Latencies::new(),
        }
    }
    pub fn merge(&mut self, other: Tally) {
        self.operations += other.operations;
        self.batches += other.batches;
        self.missing += other.missing;
        self.wrong += other.wrong;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.merge(&other.latencies);
    }
    pub fn is_good(&self) -> bool {
        self.missing == 0 && self.wrong == 0 && self.errors == 0
    }
}

/// One thread of a phase, from connecting to its last answer.
///
/// # Errors
/// The cluster does not serve.
pub fn run_thread(load: &Arc<Load>, number: u16, start: &Barrier) -> Result<(Tally, Instant), String> {
    let mut waited = false;
    let done = on_this_thread(async {
        let connected = connect(&load.mgmt, u64::from(number)).await;
        waited = true;
        start.wait();
        let client = connected?;
        let tally = Rc::new(RefCell::new(Tally::new()));
        let first = u64::from(number) * load.in_flight;
        let tasks = (first..first + load.in_flight)
            .map(|task| tokio::task::spawn_local(Worker::new(load.clone(), client.clone(), task, tally.clone()).run()));
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|e| format!("a worker failed: {e}"))?;
        }
        let total = tally.replace(Tally::new());
        Ok((total, Instant::now()))
    });
    if !waited {
        start.wait(); // nobody must wait for a thread that could not begin
    }
    done?
}

/// One request after another; all buffers live as long as the worker.
struct Worker {
    load: Arc<Load>,
    client: Client,
    tally: Rc<RefCell<Tally>>,
    task: u64,
    random: Random,
    maker: Maker,
    numbers: Vec<u64>,
    keys: KeyList,
    rows: Rows,
    ops: OpBatch,
    results: Results,
    program: Vec<u8>,
    projected: RowLayout,
}

impl Worker {
    fn new(load: Arc<Load>, client: Client, task: u64, tally: Rc<RefCell<Tally>>) -> Worker {
        let maker = Maker::new(load.key_size, load.value_size);
        let projected = load.table.layout().project_layout(&[VALUE_COLUMN]);
        Worker {
            projected: projected.unwrap_or_else(|| RowLayout::new([])),
            random: Random::new(task + 1),
            load,
            client,
            tally,
            task,
            maker,
            numbers: Vec::new(),
            keys: KeyList::new(),
            rows: Rows::new(),
            ops: OpBatch::new(),
            results: Results::new(),
            program: Vec::new(),
        }
    }

    async fn run(mut self) {
        let load = self.load.clone();
        while let Some((first, count)) = load.claim() {
            self.choose(first, count);
            let begin = Instant::now();
            let done = if load.phase == Phase::Read { self.read().await } else { self.write().await };
            let latency = begin.elapsed();
            if !self.note(count, latency, done) {
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }

    /// Counts a request; whether it succeeded.
    fn note(&self, count: u64, latency: Duration, done: Result<(u64, u64), ClientError>) -> bool {
        let mut tally = self.tally.borrow_mut();
        match done {
            Ok((missing, wrong)) => {
                tally.operations += count;
                tally.batches += 1;
                tally.missing += missing;
                tally.wrong += wrong;
                tally.latencies.record(latency);
                self.load.executed.fetch_add(count, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tally.errors += 1;
                tally.first_error.get_or_insert_with(|| error.to_string());
                if tally.errors >= ERRORS_MAX {
                    self.load.stop();
                }
                false
            }
        }
    }

    /// Key numbers of the next request.
    fn choose(&mut self, first: u64, count: u64) {
        let Load { phase, keys, tasks, .. } = *self.load;
        self.numbers.clear();
        match phase {
            Phase::Insert | Phase::Delete => self.numbers.extend(first..first + count),
            Phase::Read => self.numbers.extend((0..count).map(|_| self.random.below(keys))),
            // This worker's own keys, where there are enough for all.
            Phase::Update if keys >= tasks => {
                let (own, task) = (keys / tasks, self.task);
                self.numbers.extend((0..count).map(|_| task + tasks * self.random.below(own)));
            }
            Phase::Update => self.numbers.extend((0..count).map(|_| self.task % keys)),
        }
    }

    /// Missing and wrong rows among those read.
    async fn read(&mut self) -> Result<(u64, u64), ClientError> {
        let table = &self.load.table;
        self.keys.clear();
        for &n in &self.numbers {
            self.keys.push(table, self.maker.key(table, n)?)?;
        }
        let request = ReadBatch {
            trans: TransId::NONE,
            snapshot: Epoch(0),
            table: table.id,
            schema_version: table.version,
            columns: Some(&[VALUE_COLUMN]),
            keys: &self.keys,
        };
        self.client.read(&request, &mut self.rows).await?;
        let (mut missing, mut wrong) = (0, 0);
        for (row, &n) in self.rows.iter().zip(&self.numbers) {
            match row {
                None => missing += 1,
                Some(row) => wrong += u64::from(!is_value_of(self.projected.raw(row, 0), n, self.load.value_size)),
            }
        }
        Ok((missing, wrong))
    }

    /// Writes as one transaction, again where a node failed before it was committed.
    async fn write(&mut self) -> Result<(u64, u64), ClientError> {
        let (table, fill) = (&self.load.table, self.random.next() as u8);
        self.ops.clear();
        for &n in &self.numbers {
            match self.load.phase {
                Phase::Insert => {
                    let (key, row) = self.maker.key_and_row(table, n, fill)?;
                    self.ops.push(table, OpKind::Insert, 0, key, row)?;
                }
                Phase::Update => {
                    self.program.clear();
                    update::push_set(&mut self.program, VALUE_COLUMN, self.maker.value(n, fill));
                    self.ops.push(table, OpKind::Update, 0, self.maker.key(table, n)?, &self.program)?;
                }
                _ => self.ops.push(table, OpKind::Delete, 0, self.maker.key(table, n)?, &[])?,
            }
        }
        self.client.run_autocommit(&self.ops, LOCK_WAIT_MS, &mut self.results).await?;
        Ok((0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::kv::data;

    fn load(limit: u64, batch: u64) -> Load {
        Load {
            mgmt: Access::default(),
            phase: Phase::Read,
            table: data::table("kv", 8, 8),
            keys: 10,
            key_size: 8,
            value_size: 8,
            batch,
            in_flight: 1,
            tasks: 1,
            limit,
            next: AtomicU64::new(0),
            executed: AtomicU64::new(0),
        }
    }

    #[test]
    fn every_operation_is_given_out_once_and_none_after_the_stop() {
        let l = load(10, 4);
        assert_eq!([l.claim(), l.claim(), l.claim(), l.claim()], [Some((0, 4)), Some((4, 4)), Some((8, 2)), None]);
        let l = load(u64::MAX, 4);
        assert_eq!(l.claim(), Some((0, 4)));
        l.stop();
        assert_eq!([l.claim(), l.claim()], [None, None]);
    }
}

//! One transaction after another, each written down before it begins and after it ended.

use std::sync::Arc;

use apus_client::{
    Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, Snapshot, Transaction,
};
use apus_signal::tc::OpKind;
use apus_sim::check::history::{EventKind, Mop};
use apus_types::{Epoch, ErrorClass, ErrorCode, TransId};

use super::{
    PATIENCE, Reads, Run,
    lists::{decode, encode_key, program},
};
use crate::bench::{
    cluster::{connect, on_this_thread, outcome_of},
    numbers::Random,
};

/// Most operations of a transaction.
pub const MOPS_MAX: u64 = 4;
/// Lists read by one transaction in the end.
const LAST_READS: u64 = 16;
/// Longest wait for one row lock, in milliseconds.
const LOCK_WAIT_MS: u32 = 5000;

/// A thread with its client and its workers.
pub fn run_thread(run: &Arc<Run>, number: u64, workers: std::ops::Range<u64>) {
    let done = on_this_thread(async {
        let client = connect(&run.mgmt, number).await?;
        let spawn = |worker| tokio::task::spawn_local(Worker::new(run.clone(), client.clone(), worker).run());
        for task in workers.map(spawn).collect::<Vec<_>>() {
            task.await.map_err(|e| format!("a worker ended: {e}"))?;
        }
        Ok(())
    });
    if let Err(reason) | Ok(Err(reason)) = done {
        run.fail(reason);
    }
}

struct Worker {
    run: Arc<Run>,
    client: Client,
    random: Random,
    /// The process of the history; another after each unknown outcome.
    process: u64,
    ops: OpBatch,
    results: Results,
    rows: Rows,
    keys: KeyList,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Worker {
    fn new(run: Arc<Run>, client: Client, worker: u64) -> Worker {
        Worker {
            random: Random::new(run.seed ^ (worker + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            run,
            client,
            process: worker,
            ops: OpBatch::new(),
            results: Results::new(),
            rows: Rows::new(),
            keys: KeyList::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    async fn run(mut self) {
        let run = self.run.clone();
        while run.claim() {
            let mops = self.choose();
            self.transact(mops).await;
        }
        loop {
            let lists = run.claim_last(LAST_READS);
            if lists.is_empty() {
                return;
            }
            let mops = lists.map(|key| Mop::Read { key, list: None }).collect();
            // A list whose last read failed would go unjudged.
            let mut tries = 0;
            while !self.transact(Vec::clone(&mops)).await {
                tries += 1;
                if tries == 1000 {
                    return run.fail("the lists cannot be read in the end".to_owned());
                }
            }
        }
    }

    fn choose(&mut self) -> Vec<Mop> {
        let count = 1 + self.random.below(MOPS_MAX);
        let one = |_| {
            let place = self.run.lists.random_place(&mut self.random);
            if self.random.below(2) == 0 {
                let (key, value) = self.run.lists.append_at(place);
                Mop::Append { key, value }
            } else {
                Mop::Read { key: self.run.lists.at(place), list: None }
            }
        };
        (0..count).map(one).collect()
    }

    /// Runs a transaction and writes it down; whether it was acknowledged.
    async fn transact(&mut self, mut mops: Vec<Mop>) -> bool {
        let run = self.run.clone();
        run.event(self.process, EventKind::Invoke, &mops);
        let mut transaction = self.client.begin();
        let mut done = self.execute(&mut transaction, &mut mops).await;
        if done.is_ok() {
            done = transaction.commit().await.map(drop);
        }
        let kind = match done {
            Ok(()) => EventKind::Ok,
            Err(error) => {
                run.error(error.code as u16);
                let token = transaction.token();
                let _ = transaction.rollback().await;
                self.judge(&error, token).await
            }
        };
        if kind != EventKind::Ok {
            for mop in &mut mops {
                if let Mop::Read { list, .. } = mop {
                    *list = None;
                }
            }
        }
        run.event(self.process, kind, &mops);
        if kind == EventKind::Info {
            self.process += run.workers;
        }
        if kind == EventKind::Fail {
            // Those that met in a deadlock must not meet again in step.
            tokio::time::sleep(std::time::Duration::from_millis(self.random.below(3))).await;
        }
        kind == EventKind::Ok
    }

    /// What became of a transaction that ended with an error.
    async fn judge(&self, error: &ClientError, token: Option<apus_client::CommitToken>) -> EventKind {
        match (error.class(), token) {
            (ErrorClass::UnknownOutcome, Some(token)) => match outcome_of(&self.client, &token, PATIENCE).await {
                Some(true) => EventKind::Ok,
                Some(false) => EventKind::Fail,
                None => EventKind::Info,
            },
            (ErrorClass::UnknownOutcome, None) => EventKind::Info,
            (ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace, _) => {
                EventKind::Fail
            }
            _ => {
                self.run.fail(format!("a transaction was refused: {error}"));
                EventKind::Info
            }
        }
    }

    async fn execute(&mut self, transaction: &mut Transaction, mops: &mut [Mop]) -> Result<(), ClientError> {
        // Taken by the first read, given back when the last operation is done.
        let mut snapshot: Option<Snapshot> = None;
        for (number, mop) in mops.iter_mut().enumerate() {
            // Each operation is a statement of its own.
            let options = ExecOptions { commit: false, savepoint: number as u32 + 1, lock_wait_ms: LOCK_WAIT_MS };
            match mop {
                Mop::Append { key, value } => {
                    let mut values = self.locked(transaction, *key, true, options).await?;
                    values.push(*value);
                    program(&values, &mut self.value)?;
                    self.ops.clear();
                    self.ops.push(&self.run.lists.table, OpKind::Update, 0, &self.key, &self.value)?;
                    transaction.execute(&self.ops, options, &mut self.results).await?;
                }
                Mop::Read { key, list } if self.run.reads == Reads::Locking => {
                    *list = Some(self.locked(transaction, *key, false, options).await?);
                }
                Mop::Read { key, list } => {
                    if self.run.reads == Reads::Snapshot && snapshot.is_none() {
                        snapshot = Some(self.client.snapshot().await?);
                    }
                    let epoch = snapshot.as_ref().map_or(Epoch(0), Snapshot::epoch);
                    *list = Some(self.unlocked(transaction, epoch, *key).await?);
                }
            }
        }
        Ok(())
    }

    /// Locks a list and reads it; leaves its key in `self.key`.
    async fn locked(
        &mut self,
        transaction: &mut Transaction,
        list: u64,
        exclusive: bool,
        options: ExecOptions,
    ) -> Result<Vec<u64>, ClientError> {
        encode_key(list, &mut self.key);
        self.ops.clear();
        self.ops.push_read(&self.run.lists.table, exclusive, 0, &self.key, None)?;
        transaction.execute(&self.ops, options, &mut self.results).await?;
        let row = self.results.row(0).ok_or(ErrorCode::RowNotFound)?;
        Ok(decode(&self.run.lists.table, row)?)
    }

    /// Reads the latest committed list (epoch 0) or that of a snapshot, with what the transaction itself appended.
    async fn unlocked(
        &mut self,
        transaction: &Transaction,
        snapshot: Epoch,
        list: u64,
    ) -> Result<Vec<u64>, ClientError> {
        encode_key(list, &mut self.key);
        let table = &self.run.lists.table;
        self.keys.clear();
        self.keys.push(table, &self.key)?;
        let trans = if transaction.is_started() { transaction.id() } else { TransId::NONE };
        let request = ReadBatch {
            trans,
            snapshot,
            table: table.id,
            schema_version: table.version,
            columns: None,
            keys: &self.keys,
        };
        self.client.read(&request, &mut self.rows).await?;
        Ok(decode(table, self.rows.row(0).ok_or(ErrorCode::RowNotFound)?)?)
    }
}

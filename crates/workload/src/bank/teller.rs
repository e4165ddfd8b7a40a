//! Who transfers money: one transfer after another, each until its fate is known.
//!
//! After a conflict or a node failure the same transfer is sent again, which is a test too: a transfer that was reported as rolled back and is
//! there nevertheless refuses its own repetition, for its record's key is unique. An unknown outcome is asked for by commit token.
//!
//! Transfers come in four shapes, by their id, so that all ways to commit meet failures: additions with the commit in one message
//! (twice as often), locking reads followed by computed values with the commit in the second message, and the same with a
//! commit of its own.

use std::{fmt, future::Future};

use apus_client::{Client, ClientError, CommitToken, ExecOptions, OpBatch, Results, Transaction};
use apus_kernel::Random;
use apus_signal::tc::OpKind;
use apus_types::{ErrorClass, ErrorCode, Value, update};

use super::{BALANCE_COLUMN, Tables, Transfer, encode_key, encode_record};

/// Longest pause before a transfer that was rolled back is sent again, in nanoseconds: those that met in a deadlock must not meet in step.
const PAUSE_NS: u64 = 3_000_000;

/// What became of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Committed,
    /// Nothing of it was or will be done.
    RolledBack,
    /// Nobody can tell.
    Unresolved,
    /// Sending it again is of no use.
    Hopeless,
}

/// How far a transfer is, for whoever wonders why it does not end.
#[derive(Debug)]
pub enum Stage<'a> {
    Executes,
    RollsBack(&'a ClientError),
    Asks(&'a CommitToken),
    Ended(Fate),
}

/// Where a teller works.
pub trait World {
    fn sleep(&self, nanoseconds: u64) -> impl Future<Output = ()>;
    /// Asks what became of a commit, for as long as it likes. Never [`Fate::Hopeless`].
    fn outcome(&self, token: &CommitToken) -> impl Future<Output = Fate>;
    /// A transfer that was rolled back is sent again.
    fn is_patient(&self) -> bool;
    fn at(&self, transfer: &Transfer, stage: Stage<'_>);
    /// Whether [`World::commit`] commits this one.
    fn commits(&self, _transfer: &Transfer) -> bool {
        false
    }
    /// Commits a transaction that has used the numbers below `savepoint`, in a way of its own.
    fn commit(
        &self,
        transaction: &mut Transaction,
        _transfer: &Transfer,
        _savepoint: u32,
    ) -> impl Future<Output = Result<(), ClientError>> {
        async { transaction.commit().await.map(|_| ()) }
    }
    /// What should never have happened.
    fn violation(&self, text: String);
}

/// A teller with its client.
pub struct Teller {
    client: Client,
    tables: Tables,
    lock_wait_ms: u32,
    random: Random,
    /// Its last transfer, in the table of the latest.
    latest: Option<u64>,
    ops: OpBatch,
    results: Results,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("latest", &self.latest).finish_non_exhaustive()
    }
}

impl Teller {
    pub fn new(client: Client, tables: Tables, lock_wait_ms: u32, random: Random) -> Teller {
        let (ops, results, key, value) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
        Teller { client, tables, lock_wait_ms, random, latest: None, ops, results, key, value }
    }
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Executes a transfer until its fate is known. [`Fate::RolledBack`]: its world has lost patience.
    pub async fn see_through(&mut self, transfer: &Transfer, world: &impl World) -> Fate {
        loop {
            let fate = self.attempt(transfer, world).await;
            world.at(transfer, Stage::Ended(fate));
            match fate {
                Fate::Committed => self.latest = Some(transfer.id),
                Fate::Unresolved => self.latest = None,
                Fate::RolledBack if world.is_patient() => {
                    let pause = self.random.below(PAUSE_NS);
                    world.sleep(pause).await;
                    continue;
                }
                Fate::RolledBack | Fate::Hopeless => {}
            }
            return fate;
        }
    }

    async fn attempt(&mut self, transfer: &Transfer, world: &impl World) -> Fate {
        let mut transaction = self.client.begin();
        world.at(transfer, Stage::Executes);
        let Err(error) = self.execute(&mut transaction, transfer, world).await else { return Fate::Committed };
        let token = transaction.token();
        world.at(transfer, Stage::RollsBack(&error));
        let _ = transaction.rollback().await;
        if error.code == ErrorCode::DuplicateKey {
            world.violation(format!("{transfer:?} is there though it was reported as rolled back"));
            return Fate::Hopeless;
        }
        match (error.class(), token) {
            (ErrorClass::UnknownOutcome, Some(token)) => {
                world.at(transfer, Stage::Asks(&token));
                world.outcome(&token).await
            }
            (ErrorClass::UnknownOutcome, None) => Fate::Unresolved,
            (ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace, _) => {
                Fate::RolledBack
            }
            _ => {
                world.violation(format!("{transfer:?} was refused: {error}"));
                Fate::Hopeless
            }
        }
    }

    async fn execute(
        &mut self,
        transaction: &mut Transaction,
        t: &Transfer,
        world: &impl World,
    ) -> Result<(), ClientError> {
        let mut options = ExecOptions::autocommit(self.lock_wait_ms);
        let by_world = world.commits(t);
        let computed = t.id % 4 >= 2;
        let [source, target] = if computed {
            let reading = ExecOptions { commit: false, ..options };
            options.savepoint = 2;
            options.commit = t.id.is_multiple_of(2);
            self.locked_balances(transaction, t, reading).await?
        } else {
            [0, 0]
        };
        options.commit &= !by_world;
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
            self.ops.push(&self.tables.accounts, OpKind::Update, 0, &self.key, &self.value)?;
        }
        encode_key(t.id, &mut self.key);
        encode_record(&self.tables.transfers, t, &mut self.value)?;
        self.ops.push(&self.tables.transfers, OpKind::Insert, 0, &self.key, &self.value)?;
        self.replace_latest(t)?;
        transaction.execute(&self.ops, options, &mut self.results).await?;
        match options.commit {
            true => Ok(()),
            false if by_world => world.commit(transaction, t, options.savepoint + 1).await,
            false => transaction.commit().await.map(|_| ()),
        }
    }

    fn replace_latest(&mut self, t: &Transfer) -> Result<(), ClientError> {
        let Some(latest) = &self.tables.latest else { return Ok(()) };
        self.value.clear();
        latest.layout().encode(&[Value::UInt(t.id)], &mut self.value)?;
        self.ops.push(latest, OpKind::Insert, 0, &self.key, &self.value)?;
        if let Some(last) = self.latest {
            encode_key(last, &mut self.key);
            self.ops.push(latest, OpKind::Delete, 0, &self.key, &[])?;
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
        let accounts = &self.tables.accounts;
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

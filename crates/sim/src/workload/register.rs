//! Registers: single rows that are read (committed from any replica, or locked), written blindly in one pass, deleted, and compared and set by
//! a locking read and a write. Every one of them is one operation that must have happened at one moment; [`crate::check::register`] judges.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use apus_client::{Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, Transaction};
use apus_kernel::Random;
use apus_signal::tc::{ALLOW_MISSING, OpKind};
use apus_types::{Epoch, ErrorCode, TableSchema, TransId, Value};

use super::crew::{Fate, Hall, LOCK_WAIT_MS, Member, Play, column, encode_key, number, number_type, table};
use crate::{
    check::register::{Action, Operation, Verdict, check},
    drill::Judgement,
};

/// Most operations in a row, so that many meet.
const BURST_MAX: u64 = 8;

pub(super) struct Registers {
    hall: Rc<Hall>,
    keys: u64,
    /// Reads count: what was read has happened, whatever comes.
    judges_reads: bool,
    done: RefCell<Vec<Operation>>,
    /// What each member has begun.
    open: RefCell<BTreeMap<u64, Operation>>,
}

impl Registers {
    /// `durable`: all may lose power, and what was read just before, but not acknowledged as durable to its writer, need not have happened.
    pub fn new(hall: Rc<Hall>, durable: bool) -> Registers {
        let keys = 1 + Random::new(hall.seed ^ 0x7265_6773).below(8);
        Registers { hall, keys, judges_reads: !durable, done: RefCell::default(), open: RefCell::default() }
    }
    fn begin(&self, process: u64, key: u64, action: Action) -> u64 {
        let begin = self.hall.moment();
        self.open.borrow_mut().insert(process, Operation { key, process, begin, end: None, action });
        begin
    }
    /// It happened, did not, or nobody knows. `action`: what it turned out to be.
    fn end(&self, process: u64, action: Action, fate: Fate) {
        let Some(operation) = self.open.borrow_mut().remove(&process) else { return };
        let end = (fate == Fate::Committed).then(|| self.hall.moment());
        if fate != Fate::RolledBack {
            self.done.borrow_mut().push(Operation { action, end, ..operation });
        }
    }
}

async fn committed(client: &Client, table: &TableSchema, key: u64) -> Result<Option<u64>, ClientError> {
    let (mut bytes, mut keys, mut rows) = (Vec::new(), KeyList::new(), Rows::new());
    encode_key(key, &mut bytes);
    keys.push(table, &bytes)?;
    let (id, schema_version) = (table.id, table.version);
    let request =
        ReadBatch { trans: TransId::NONE, snapshot: Epoch(0), table: id, schema_version, columns: None, keys: &keys };
    client.read(&request, &mut rows).await?;
    Ok(rows.row(0).and_then(|row| number(table, row, 1)))
}

async fn locked(
    transaction: &mut Transaction,
    table: &TableSchema,
    key: u64,
    exclusive: bool,
    commit: bool,
) -> Result<Option<u64>, ClientError> {
    let (mut bytes, mut ops, mut results) = (Vec::new(), OpBatch::new(), Results::new());
    encode_key(key, &mut bytes);
    ops.push_read(table, exclusive, ALLOW_MISSING, &bytes, None)?;
    let options = ExecOptions { commit, ..ExecOptions::autocommit(LOCK_WAIT_MS) };
    transaction.execute(&ops, options, &mut results).await?;
    if results.lost() {
        return Err(ErrorCode::NodeFailed.into()); // nobody knows what was read, and nothing was written
    }
    Ok(results.row(0).filter(|row| !row.is_empty()).and_then(|row| number(table, row, 1)))
}

async fn write(
    transaction: &mut Transaction,
    table: &TableSchema,
    key: u64,
    value: Option<u64>,
) -> Result<(), ClientError> {
    let (mut bytes, mut row, mut ops) = (Vec::new(), Vec::new(), OpBatch::new());
    encode_key(key, &mut bytes);
    match value {
        Some(value) => {
            table.layout().encode(&[Value::UInt(key), Value::UInt(value)], &mut row)?;
            ops.push(table, OpKind::Write, 0, &bytes, &row)?;
        }
        None => ops.push(table, OpKind::Delete, ALLOW_MISSING, &bytes, &[])?,
    }
    transaction.execute(&ops, ExecOptions::autocommit(LOCK_WAIT_MS), &mut Results::new()).await
}

impl Registers {
    async fn act(
        &self,
        member: &Member,
        transaction: &mut Transaction,
        table: &TableSchema,
        key: u64,
        choice: u64,
    ) -> (Action, Result<(), ClientError>) {
        let fresh = self.hall.moment();
        match choice {
            0..=5 => {
                let action = Action::Read(None);
                self.begin(member.number, key, action);
                let read = match choice {
                    0..=3 => committed(&member.client, table, key).await,
                    _ => locked(transaction, table, key, choice == 5, true).await,
                };
                read.map_or_else(|error| (action, Err(error)), |value| (Action::Read(value), Ok(())))
            }
            6..=8 => {
                let value = (choice < 8).then_some(fresh);
                self.begin(member.number, key, Action::Write(value));
                (Action::Write(value), write(transaction, table, key, value).await)
            }
            _ => {
                // Until the lock is there it is a read at most.
                self.begin(member.number, key, Action::Read(None));
                let seen = match locked(transaction, table, key, true, false).await {
                    Ok(seen) => seen,
                    Err(error) => return (Action::Read(None), Err(error)),
                };
                // An absent row cannot be locked.
                if seen.is_none() || fresh.is_multiple_of(4) {
                    let _ = transaction.rollback().await;
                    return (Action::Read(seen), Ok(()));
                }
                let action = Action::Cas(seen, Some(fresh));
                if let Some(open) = self.open.borrow_mut().get_mut(&member.number) {
                    open.action = action;
                }
                (action, write(transaction, table, key, Some(fresh)).await)
            }
        }
    }
}

impl Registers {
    /// One operation; `true` if it is known to have happened.
    async fn operation(&self, member: &mut Member) -> bool {
        // Everybody is about the first one half of the time.
        let key = if member.random.one_in(2) { 0 } else { member.random.below(self.keys) };
        let choice = member.random.below(12);
        let tables = member.tables();
        let mut transaction = member.client.begin();
        member.doing(format!("key {key}, choice {choice}"));
        let (action, result) = self.act(member, &mut transaction, &tables[0], key, choice).await;
        let fate = match result {
            Ok(()) => Fate::Committed,
            Err(error) => {
                let token = transaction.token();
                let _ = transaction.rollback().await;
                match (member.fate(&error, token).await, action) {
                    // It is committed, but what it read did not arrive.
                    (Fate::Committed, Action::Read(_)) => Fate::RolledBack,
                    (fate, _) => fate,
                }
            }
        };
        self.end(member.number, action, fate);
        fate == Fate::Committed
    }
}

impl Play for Registers {
    fn tables(&self) -> Vec<TableSchema> {
        vec![table("registers", vec![column("id", number_type(), false), column("value", number_type(), false)])]
    }
    async fn fill(&self, _client: &Client, _tables: &[TableSchema]) -> Result<(), ClientError> {
        Ok(())
    }

    async fn turn(&self, member: &mut Member) -> bool {
        let mut done = false;
        for _ in 0..1 + member.random.below(BURST_MAX) {
            done |= self.operation(member).await;
        }
        done
    }

    async fn read(&self, reader: &Member) -> Result<(), ClientError> {
        let tables = reader.tables();
        let process = u64::MAX - reader.number;
        for key in 0..self.keys {
            self.begin(process, key, Action::Read(None));
            let value = committed(&reader.client, &tables[0], key).await?;
            self.end(process, Action::Read(value), Fate::Committed);
        }
        Ok(())
    }

    fn died(&self, member: u64) {
        let action = self.open.borrow().get(&member).map(|open| open.action);
        if let Some(action) = action {
            self.end(member, action, Fate::Unknown);
        }
    }

    fn judge(&self) -> Result<Judgement, String> {
        let mut done = self.done.borrow().clone();
        done.retain(|op| self.judges_reads || !matches!(op.action, Action::Read(_)));
        match check(&done, None) {
            Verdict::Linearizable => Ok(Judgement::Good),
            Verdict::Violation(what) => Err(format!("not linearizable: {what}")),
            Verdict::Undecided(what) => Ok(Judgement::Undecided(format!("linearizable or not: {what}"))),
        }
    }
}

//! Lists: transactions of one to four operations, each of which appends to a list or reads one.
//!
//! A list is a row that holds its elements; appending is a locking read and a write. Half of the runs read by locks only, which claims strict
//! serializability: everything that a transaction saw stays as it was until its commit. The other half also reads what is committed, from
//! any replica, which claims READ COMMITTED in real time. Some transactions append something to another list and take it back by a savepoint;
//! to the history that is a transaction that failed. [`crate::check::append`] judges.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use apus_client::{
    Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest, Transaction,
};
use apus_kernel::Random;
use apus_signal::tc::OpKind;
use apus_types::{ColumnType, Epoch, ErrorCode, TableSchema, TransId, Value};

use super::crew::{Fate, Hall, LOCK_WAIT_MS, Member, Play, column, encode_key, number, number_type, scan, table};
use crate::{
    check::{
        append::{Claim, History, Level, Order},
        history::{Event, EventKind, Mop},
    },
    drill::Judgement,
};

/// Lists of a run.
const LISTS: u64 = 200;
/// Appends to a list on average before members move on to others.
const APPENDS: u64 = 24;
const LIST_BYTES_MAX: u16 = 8000;
const ELEMENT_BYTES: usize = 4;
/// Processes of what is taken back, and of readings.
const UNDONE: u64 = 1 << 40;
const READERS: u64 = 1 << 41;

pub(super) struct Lists {
    hall: Rc<Hall>,
    history: RefCell<History>,
    appended: Cell<u64>,
    events: Cell<u64>,
    /// Lists in use at one time.
    active: u64,
    locking_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Append,
    ReadLocked,
    ReadCommitted,
}

struct Step {
    key: u64,
    deed: Deed,
}

/// A transaction under way.
struct Under<'a> {
    member: &'a Member,
    table: &'a TableSchema,
    transaction: Transaction,
    savepoint: u32,
    ops: OpBatch,
    results: Results,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Lists {
    pub fn new(hall: Rc<Hall>) -> Lists {
        let mut random = Random::new(hall.seed ^ 0x6c69_7374);
        Lists {
            hall,
            history: RefCell::new(History::new()),
            appended: Cell::new(0),
            events: Cell::new(0),
            active: 2 + random.below(6),
            locking_only: random.one_in(2),
        }
    }
    fn claim(&self) -> Claim {
        let level = if self.locking_only { Level::Serializable } else { Level::ReadCommitted };
        Claim { level, order: Order::RealTime }
    }
    fn note(&self, process: u64, kind: EventKind, mops: &[Mop]) {
        let index = self.events.get();
        self.events.set(index + 1);
        let event = Event { index, time: index, process, kind, mops: mops.to_vec() };
        if let Err(what) = self.history.borrow_mut().add(&event) {
            self.hall.violation(format!("the workload's own history: {what}"));
        }
    }
    fn any_list(&self, random: &mut Random) -> u64 {
        let window = self.appended.get() / (self.active * APPENDS);
        (window * self.active + random.below(self.active)) % LISTS
    }
    fn next_value(&self) -> u64 {
        self.appended.set(self.appended.get() + 1);
        self.appended.get()
    }
    fn plan(&self, random: &mut Random) -> Vec<Step> {
        (0..1 + random.below(4))
            .map(|_| {
                let deed = match random.below(6) {
                    0..=2 => Deed::Append,
                    3 => Deed::ReadLocked,
                    _ if self.locking_only => Deed::ReadLocked,
                    _ => Deed::ReadCommitted,
                };
                Step { key: self.any_list(random), deed }
            })
            .collect()
    }

    /// Step by step, each with what it needs before the next begins.
    async fn step_by_step(&self, under: &mut Under<'_>, plan: &[Step], mops: &mut [Mop]) -> Result<(), ClientError> {
        for (step, mop) in plan.iter().zip(mops) {
            match (step.deed, mop) {
                (Deed::Append, Mop::Append { key, value }) => {
                    let mut list = under.locked(*key, true).await?;
                    list.push(*value);
                    under.write(*key, &list)?;
                    under.execute(false).await?;
                }
                (Deed::ReadLocked, Mop::Read { key, list }) => *list = Some(under.locked(*key, false).await?),
                (_, Mop::Read { key, list }) => *list = Some(under.committed(*key).await?),
                _ => {}
            }
        }
        under.transaction.commit().await.map(|_| ())
    }

    /// All locking reads in one batch, all writes in another, perhaps with the commit.
    async fn in_two_batches(
        &self,
        under: &mut Under<'_>,
        plan: &[Step],
        mops: &mut [Mop],
        commit: bool,
    ) -> Result<(), ClientError> {
        let locking = || plan.iter().enumerate().filter(|(_, s)| s.deed != Deed::ReadCommitted);
        under.ops.clear();
        for (_, step) in locking() {
            encode_key(step.key, &mut under.key);
            under.ops.push_read(under.table, step.deed == Deed::Append, 0, &under.key, None)?;
        }
        under.execute(false).await?;
        let mut lists = Vec::new();
        for result in 0..under.ops.len() {
            lists.push(under.elements(result)?);
        }
        under.ops.clear();
        for ((i, _), mut list) in locking().zip(lists) {
            match &mut mops[i] {
                Mop::Append { key, value } => {
                    list.push(*value);
                    under.write(*key, &list)?;
                }
                Mop::Read { list: seen, .. } => *seen = Some(list),
            }
        }
        for (step, mop) in plan.iter().zip(mops).filter(|(s, _)| s.deed == Deed::ReadCommitted) {
            if let Mop::Read { list, .. } = mop {
                *list = Some(under.committed(step.key).await?);
            }
        }
        if commit && !under.ops.is_empty() {
            return under.execute(true).await;
        }
        if !under.ops.is_empty() {
            under.execute(false).await?;
        }
        under.transaction.commit().await.map(|_| ())
    }

    /// Appends to some lists and takes it back.
    async fn change_of_mind(&self, under: &mut Under<'_>, random: &mut Random) -> Result<(), ClientError> {
        let keys: Vec<u64> = (0..1 + random.below(2)).map(|_| self.any_list(random)).collect();
        let mops: Vec<Mop> = keys.iter().map(|key| Mop::Append { key: *key, value: self.next_value() }).collect();
        let process = UNDONE + self.events.get();
        self.note(process, EventKind::Invoke, &mops);
        self.note(process, EventKind::Fail, &mops);
        let savepoint = under.savepoint + 1;
        for mop in &mops {
            if let Mop::Append { key, value } = mop {
                let mut list = under.locked(*key, true).await?;
                list.push(*value);
                under.write(*key, &list)?;
                under.execute(false).await?;
            }
        }
        under.transaction.rollback_to(savepoint).await
    }
}

impl Under<'_> {
    async fn execute(&mut self, commit: bool) -> Result<(), ClientError> {
        self.savepoint += 1;
        let options = ExecOptions { commit, savepoint: self.savepoint, lock_wait_ms: LOCK_WAIT_MS };
        self.transaction.execute(&self.ops, options, &mut self.results).await
    }
    fn elements(&self, result: usize) -> Result<Vec<u64>, ClientError> {
        let row = self.results.row(result).filter(|row| !row.is_empty());
        elements(self.table, row.ok_or(ErrorCode::RowNotFound)?)
    }
    async fn locked(&mut self, key: u64, exclusive: bool) -> Result<Vec<u64>, ClientError> {
        self.ops.clear();
        encode_key(key, &mut self.key);
        self.ops.push_read(self.table, exclusive, 0, &self.key, None)?;
        self.execute(false).await?;
        self.ops.clear();
        self.elements(0)
    }
    async fn committed(&mut self, key: u64) -> Result<Vec<u64>, ClientError> {
        encode_key(key, &mut self.key);
        let mut keys = KeyList::new();
        keys.push(self.table, &self.key)?;
        let started = self.transaction.is_started();
        let trans = if started { self.transaction.id() } else { TransId::NONE };
        let (table, schema_version) = (self.table.id, self.table.version);
        let request = ReadBatch { trans, snapshot: Epoch(0), table, schema_version, columns: None, keys: &keys };
        let mut rows = Rows::new();
        self.member.client.read(&request, &mut rows).await?;
        elements(self.table, rows.row(0).ok_or(ErrorCode::RowNotFound)?)
    }
    /// Adds the write of a whole list to the batch.
    fn write(&mut self, key: u64, list: &[u64]) -> Result<(), ClientError> {
        encode_key(key, &mut self.key);
        encode(self.table, key, list, &mut self.row)?;
        Ok(self.ops.push(self.table, OpKind::Write, 0, &self.key, &self.row)?)
    }
}

fn encode(table: &TableSchema, key: u64, list: &[u64], row: &mut Vec<u8>) -> Result<(), ErrorCode> {
    let bytes: Vec<u8> = list.iter().flat_map(|value| (*value as u32).to_le_bytes()).collect();
    row.clear();
    table.layout().encode(&[Value::UInt(key), Value::Bytes(&bytes)], row)
}
fn elements(table: &TableSchema, row: &[u8]) -> Result<Vec<u64>, ClientError> {
    table.layout().check(row)?;
    match table.layout().value(row, 1) {
        Value::Bytes(bytes) => {
            let (words, _) = bytes.as_chunks::<ELEMENT_BYTES>();
            Ok(words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect())
        }
        _ => Err(ErrorCode::RowNotFound.into()),
    }
}

fn unanswered(mops: &[Mop]) -> Vec<Mop> {
    let blank = |mop: &Mop| match mop {
        Mop::Read { key, .. } => Mop::Read { key: *key, list: None },
        append => append.clone(),
    };
    mops.iter().map(blank).collect()
}

impl Play for Lists {
    fn tables(&self) -> Vec<TableSchema> {
        let elements = ColumnType::VarBinary { length: LIST_BYTES_MAX };
        vec![table("lists", vec![column("id", number_type(), false), column("elements", elements, false)])]
    }
    async fn fill(&self, client: &Client, tables: &[TableSchema]) -> Result<(), ClientError> {
        let (mut ops, mut key, mut row) = (OpBatch::new(), Vec::new(), Vec::new());
        for id in 0..LISTS {
            encode_key(id, &mut key);
            encode(&tables[0], id, &[], &mut row)?;
            ops.push(&tables[0], OpKind::Write, 0, &key, &row)?;
        }
        client.run_autocommit(&ops, LOCK_WAIT_MS, &mut Results::new()).await.map(|_| ())
    }

    async fn turn(&self, member: &mut Member) -> bool {
        let mut random = Random::new(member.random.next_u64());
        let mut plan = self.plan(&mut random);
        let in_batches = random.one_in(2);
        if in_batches {
            // A batch reads before it writes, so each list once.
            let mut seen = std::collections::BTreeSet::new();
            plan.retain(|step| seen.insert(step.key));
        }
        let mut mops: Vec<Mop> = plan
            .iter()
            .map(|step| match step.deed {
                Deed::Append => Mop::Append { key: step.key, value: self.next_value() },
                _ => Mop::Read { key: step.key, list: None },
            })
            .collect();
        self.note(member.number, EventKind::Invoke, &mops);
        member.doing(format!("{mops:?}"));
        let tables = member.tables();
        let mut under = Under {
            member,
            table: &tables[0],
            transaction: member.client.begin(),
            savepoint: 0,
            ops: OpBatch::new(),
            results: Results::new(),
            key: Vec::new(),
            row: Vec::new(),
        };
        let mut result = Ok(());
        if random.one_in(5) {
            result = self.change_of_mind(&mut under, &mut random).await;
        }
        if result.is_ok() {
            result = match in_batches {
                true => self.in_two_batches(&mut under, &plan, &mut mops, random.one_in(2)).await,
                false => self.step_by_step(&mut under, &plan, &mut mops).await,
            };
        }
        let fate = match result {
            Ok(()) => Fate::Committed,
            Err(error) => {
                let token = under.transaction.token();
                let _ = under.transaction.rollback().await;
                member.fate(&error, token).await
            }
        };
        match fate {
            Fate::Committed => self.note(member.number, EventKind::Ok, &mops),
            Fate::RolledBack => self.note(member.number, EventKind::Fail, &unanswered(&mops)),
            Fate::Unknown => self.note(member.number, EventKind::Info, &unanswered(&mops)),
        }
        fate == Fate::Committed
    }

    async fn read(&self, reader: &Member) -> Result<(), ClientError> {
        let tables = reader.tables();
        let process = READERS + reader.number;
        let mut mops: Vec<Mop> = (0..LISTS).map(|key| Mop::Read { key, list: None }).collect();
        self.note(process, EventKind::Invoke, &mops);
        let request = ScanRequest::all(tables[0].id, tables[0].version);
        let found =
            scan(&reader.client, &tables[0], &request, |row| (number(&tables[0], row, 0), elements(&tables[0], row)))
                .await?;
        for (key, elements) in found {
            if let Some(Mop::Read { list, .. }) = key.and_then(|key| mops.get_mut(key as usize)) {
                *list = Some(elements?);
            }
        }
        self.note(process, EventKind::Ok, &mops);
        Ok(())
    }

    fn died(&self, _member: u64) {} // its transaction stays open in the history

    fn judge(&self) -> Result<Judgement, String> {
        let report = self.history.borrow().check(self.claim());
        let what = || format!("{} does not hold: {}\n{report}", self.claim(), report.summary());
        if report.is_good() { Ok(Judgement::Good) } else { Err(what()) }
    }
}

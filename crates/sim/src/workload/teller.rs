//! Those who transfer money: one transfer after another, each until its fate is known.
//!
//! Transfers come in four shapes, by their id: additions with the commit in one message (twice as often), locking reads followed by
//! computed values with the commit in the second message, and the same with a commit of its own. After a failure the same transfer is
//! sent again, which is a test too: one that was reported as rolled back and is there nevertheless refuses its repetition.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Outcome, Results, ScanRequest, Transaction};
use apus_kernel::Random;
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
    tc::OpKind,
};
use apus_types::{
    Column, ColumnType, Epoch, ErrorClass, ErrorCode, TableSchema, Value, key, schema::DefaultValue, update,
};

use crate::Clock;

/// Of each account at the beginning.
pub const BALANCE: i64 = 1000;
const DATABASE: &str = "bank";
const LOCK_WAIT_MS: u32 = 2_000;
/// Ids of a teller start at its number times this.
const IDS_PER_TELLER: u64 = 1 << 40;
const BALANCE_COLUMN: u16 = 1;
const MS: u64 = 1_000_000;

#[derive(Clone)]
pub struct Tables {
    pub accounts: TableSchema,
    pub transfers: TableSchema,
    /// The last transfer of each teller: every transfer inserts one row and deletes another.
    pub latest: TableSchema,
}

/// The round of an audit, and what was found in it.
pub type Finding = (u64, Result<Holdings, ClientError>);

/// What tellers and the one who drives the run share.
#[derive(Default)]
pub struct Floor {
    pub seed: u64,
    pub accounts: u64,
    pub tables: RefCell<Option<Tables>>,
    /// Tellers begin no further transfer.
    pub shut: Cell<bool>,
    /// Longest pause between two transfers, ns.
    pub pause_max_ns: u64,
    /// Tellers that do not wait at the shut gate.
    pub working: RefCell<BTreeSet<u64>>,
    /// The transfer that each teller has begun, until its fate is known.
    pub begun: RefCell<BTreeMap<u64, u64>>,
    /// Transfers acknowledged to each teller.
    pub done: RefCell<BTreeMap<u64, u64>>,
    pub acknowledged: RefCell<Vec<u64>>,
    pub unresolved: RefCell<Vec<u64>>,
    /// The last acknowledged transfer of each teller.
    pub latest: RefCell<BTreeMap<u64, u64>>,
    pub retries: RefCell<BTreeMap<u16, u64>>,
    /// What should never have happened.
    pub violations: RefCell<Vec<String>>,
    /// Snapshots that were read and found right.
    pub snapshots: Cell<u64>,
    /// Clients read everything whenever this grows, and say here what they found in which round.
    pub audits: Cell<u64>,
    pub findings: RefCell<BTreeMap<u64, Finding>>,
    /// What each teller is doing, for whoever wonders why it does not end.
    pub doing: RefCell<BTreeMap<u64, String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    pub id: u64,
    pub source: u64,
    pub target: u64,
    pub amount: i64,
}

impl Floor {
    /// What a transfer moves follows from its id.
    pub fn transfer(&self, id: u64) -> Transfer {
        let mut random = Random::new(self.seed ^ id.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let source = random.below(self.accounts);
        let other = random.below(self.accounts - 1);
        let target = if other < source { other } else { other + 1 };
        Transfer { id, source, target, amount: 1 + random.below(100) as i64 }
    }
    pub fn violation(&self, text: String) {
        self.violations.borrow_mut().push(text);
    }
}

fn long(unsigned: bool) -> ColumnType {
    ColumnType::Int { bits: 64, unsigned }
}

fn table(name: &str, columns: &[(&str, bool)]) -> TableSchema {
    let column = |&(name, unsigned): &(&str, bool)| Column {
        name: name.to_owned(),
        ty: long(unsigned),
        nullable: false,
        default: DefaultValue::None,
        auto_increment: false,
        on_update_now: false,
        comment: String::new(),
        declared: String::new(),
    };
    TableSchema::new(DATABASE, name, columns.iter().map(column).collect(), vec![0])
}

fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(long(true), false, &Value::UInt(id), out).expect("every number fits its column");
}

/// Makes the tables and opens the accounts.
///
/// # Errors
/// The cluster refuses.
pub async fn open(client: &Client, accounts: u64) -> Result<Tables, ClientError> {
    client.ready().await?;
    let mut new = [
        table("accounts", &[("id", true), ("balance", false)]),
        table("transfers", &[("id", true), ("source", true), ("target", true), ("amount", false)]),
        table("latest", &[("id", true)]),
    ];
    let database = DatabaseMessage { name: DATABASE.to_owned(), collation: u32::from(new[0].collation.id()) };
    client.schema_change(Change::CreateDatabase(database)).await?;
    for table in &new {
        client.schema_change(Change::CreateTable(TableMessage::from(table))).await?;
    }
    let dictionary = client.dictionary(0).await?.unwrap_or_default();
    for table in &mut new {
        let found = dictionary.tables.iter().find(|t| t.name == table.name && t.base_table == 0);
        let found = found.ok_or_else(|| ClientError::with_detail(ErrorCode::TableNotFound, table.name.clone()))?;
        *table = TableSchema::try_from(found)?;
    }
    let [accounts_table, transfers, latest] = new;
    let (mut ops, mut results, mut row, mut key) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    for id in 0..accounts {
        row.clear();
        encode_key(id, &mut key);
        accounts_table.layout().encode(&[Value::UInt(id), Value::Int(BALANCE)], &mut row)?;
        // Write, not insert: after a lost answer the batch is sent again.
        ops.push(&accounts_table, OpKind::Write, 0, &key, &row)?;
    }
    client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await?;
    Ok(Tables { accounts: accounts_table, transfers, latest })
}

/// The rows of all tables, as numbers.
#[derive(Default)]
pub struct Holdings {
    pub accounts: Vec<Vec<i128>>,
    pub transfers: Vec<Vec<i128>>,
    pub latest: Vec<Vec<i128>>,
}

/// Reads everything whenever it is asked for; never ends.
pub async fn audit(floor: std::rc::Rc<Floor>, client: Client, clock: Clock, number: u64) {
    let mut done = 0;
    loop {
        let is_asked = floor.audits.get() > done;
        let tables = if is_asked { floor.tables.borrow().clone() } else { None };
        if let Some(tables) = tables {
            done = floor.audits.get();
            let found = holdings(&client, &tables).await;
            floor.findings.borrow_mut().insert(number, (done, found));
        }
        clock.sleep(MS).await;
    }
}

async fn holdings(client: &Client, tables: &Tables) -> Result<Holdings, ClientError> {
    let now = Epoch(0);
    Ok(Holdings {
        accounts: read_all(client, &tables.accounts, now).await?,
        transfers: read_all(client, &tables.transfers, now).await?,
        latest: read_all(client, &tables.latest, now).await?,
    })
}

/// All rows of a table as numbers, now (0) or as of a snapshot.
pub(super) async fn read_all(
    client: &Client,
    table: &TableSchema,
    snapshot: Epoch,
) -> Result<Vec<Vec<i128>>, ClientError> {
    let mut all = Vec::new();
    let mut cursor = client.scan(&ScanRequest { snapshot, ..ScanRequest::all(table.id, table.version) });
    let mut rows = apus_client::Rows::new();
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            table.layout().check(row)?;
            let number = |column| match table.layout().value(row, column) {
                Value::UInt(n) => i128::from(n),
                Value::Int(n) => i128::from(n),
                _ => -1,
            };
            all.push((0..table.columns.len() as u16).map(number).collect());
        }
    }
    Ok(all)
}

enum Fate {
    Committed,
    RolledBack,
    Unresolved,
    Hopeless,
}

pub struct Teller {
    floor: std::rc::Rc<Floor>,
    client: Client,
    clock: Clock,
    number: u64,
    random: Random,
    last: Option<u64>,
    ops: OpBatch,
    results: Results,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Teller {
    pub fn new(floor: std::rc::Rc<Floor>, client: Client, clock: Clock, number: u64) -> Teller {
        Teller {
            random: Random::new(floor.seed ^ (number + 1)),
            floor,
            client,
            clock,
            number,
            last: None,
            ops: OpBatch::new(),
            results: Results::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Never ends; it is dropped with its client.
    pub async fn run(mut self) {
        let floor = self.floor.clone();
        let mut next = self.number * IDS_PER_TELLER;
        while floor.tables.borrow().is_none() {
            self.clock.sleep(MS).await;
        }
        // Its way to the management nodes may be cut for longer than it waits at once.
        while let Err(error) = self.client.ready().await {
            if error.class() != ErrorClass::Temporary {
                floor.violation(format!("teller {} finds no cluster: {error}", self.number));
                break;
            }
        }
        loop {
            if floor.shut.get() {
                floor.working.borrow_mut().remove(&self.number);
                while floor.shut.get() {
                    self.clock.sleep(MS).await;
                }
                floor.working.borrow_mut().insert(self.number);
            }
            floor.begun.borrow_mut().insert(self.number, next);
            self.see_through(floor.transfer(next)).await;
            floor.begun.borrow_mut().remove(&self.number);
            next += 1;
            let pause = self.random.below(floor.pause_max_ns);
            self.clock.think(pause).await;
        }
    }

    fn doing(&self, what: String) {
        self.floor.doing.borrow_mut().insert(self.number, what);
    }

    async fn see_through(&mut self, transfer: Transfer) {
        let Some(tables) = self.floor.tables.borrow().clone() else { return };
        loop {
            let mut transaction = self.client.begin();
            self.doing(format!("{} executes {transfer:?}", self.clock.now()));
            let fate = match self.execute(&mut transaction, &tables, &transfer).await {
                Ok(()) => Fate::Committed,
                Err(error) => {
                    *self.floor.retries.borrow_mut().entry(error.code as u16).or_default() += 1;
                    let token = transaction.token();
                    self.doing(format!("{} rolls back {transfer:?} after {error}", self.clock.now()));
                    let _ = transaction.rollback().await;
                    self.doing(format!("{} asks for {token:?} after {error}", self.clock.now()));
                    self.fate(&transfer, &error, token).await
                }
            };
            self.doing(format!("{} idle", self.clock.now()));
            match fate {
                Fate::Committed => {
                    self.last = Some(transfer.id);
                    self.floor.latest.borrow_mut().insert(self.number, transfer.id);
                    *self.floor.done.borrow_mut().entry(self.number).or_insert(0) += 1;
                    return self.floor.acknowledged.borrow_mut().push(transfer.id);
                }
                Fate::Unresolved => {
                    self.last = None;
                    self.floor.latest.borrow_mut().remove(&self.number);
                    return self.floor.unresolved.borrow_mut().push(transfer.id);
                }
                Fate::Hopeless => return,
                Fate::RolledBack => {
                    let pause = self.random.below(3 * MS);
                    self.clock.sleep(pause).await;
                }
            }
        }
    }

    async fn fate(&self, transfer: &Transfer, error: &ClientError, token: Option<apus_client::CommitToken>) -> Fate {
        if error.code == ErrorCode::DuplicateKey {
            self.floor.violation(format!("{transfer:?} is there though it was reported as rolled back"));
            return Fate::Hopeless;
        }
        match (error.class(), token) {
            (ErrorClass::UnknownOutcome, Some(token)) => match self.client.outcome(&token).await {
                Ok(Outcome::Committed) => Fate::Committed,
                Ok(Outcome::Aborted) => Fate::RolledBack,
                Ok(Outcome::Forgotten | Outcome::Open) | Err(_) => Fate::Unresolved,
            },
            (ErrorClass::UnknownOutcome, None) => Fate::Unresolved,
            (ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace, _) => {
                Fate::RolledBack
            }
            _ => {
                self.floor.violation(format!("{transfer:?} was refused: {error}"));
                Fate::Hopeless
            }
        }
    }

    async fn execute(
        &mut self,
        transaction: &mut Transaction,
        tables: &Tables,
        t: &Transfer,
    ) -> Result<(), ClientError> {
        let mut options = ExecOptions::autocommit(LOCK_WAIT_MS);
        let computed = t.id % 4 >= 2;
        let [source, target] = if computed {
            let reading = ExecOptions { commit: false, ..options };
            options.savepoint = 2;
            options.commit = t.id.is_multiple_of(2);
            self.locked_balances(transaction, tables, t, reading).await?
        } else {
            [0, 0]
        };
        self.ops.clear();
        for (account, delta, balance) in [(t.source, -t.amount, source), (t.target, t.amount, target)] {
            encode_key(account, &mut self.key);
            self.value.clear();
            if computed {
                update::push_set(&mut self.value, BALANCE_COLUMN, &(balance + delta).to_le_bytes());
            } else {
                update::push_add(&mut self.value, BALANCE_COLUMN, delta);
            }
            self.ops.push(&tables.accounts, OpKind::Update, 0, &self.key, &self.value)?;
        }
        encode_key(t.id, &mut self.key);
        self.value.clear();
        let record = [Value::UInt(t.id), Value::UInt(t.source), Value::UInt(t.target), Value::Int(t.amount)];
        tables.transfers.layout().encode(&record, &mut self.value)?;
        self.ops.push(&tables.transfers, OpKind::Insert, 0, &self.key, &self.value)?;
        self.value.clear();
        tables.latest.layout().encode(&[Value::UInt(t.id)], &mut self.value)?;
        self.ops.push(&tables.latest, OpKind::Insert, 0, &self.key, &self.value)?;
        if let Some(last) = self.last {
            encode_key(last, &mut self.key);
            self.ops.push(&tables.latest, OpKind::Delete, 0, &self.key, &[])?;
        }
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
        tables: &Tables,
        t: &Transfer,
        options: ExecOptions,
    ) -> Result<[i64; 2], ClientError> {
        self.ops.clear();
        for account in [t.source, t.target] {
            encode_key(account, &mut self.key);
            self.ops.push_read(&tables.accounts, true, 0, &self.key, None)?;
        }
        transaction.execute(&self.ops, options, &mut self.results).await?;
        let balance =
            |index| match self.results.row(index).map(|row| tables.accounts.layout().value(row, BALANCE_COLUMN)) {
                Some(Value::Int(balance)) => Ok(balance),
                _ => Err(ClientError::from(ErrorCode::RowNotFound)),
            };
        Ok([balance(0)?, balance(1)?])
    }
}

//! The tellers of the bank on virtual time. What a transfer is and how it is seen through is [`apus_workload::bank`]; here it is given the
//! simulator's clock, a gate that all wait at, and a floor on which everybody sees what the others do.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Client, ClientError, CommitToken, Outcome, Transaction};
use apus_kernel::Random;
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
};
use apus_types::{Epoch, ErrorClass, ErrorCode, TableSchema, schema::Durability};
use apus_workload::bank::{self, Fate, Holdings, Stage, Tables, Transfer, World};

use super::branches::Desk;
use crate::Clock;

/// Of each account at the beginning.
pub const BALANCE: i64 = 1000;
const DATABASE: &str = "bank";
const LOCK_WAIT_MS: u32 = 2_000;
/// Ids of a teller start at its number times this.
const IDS_PER_TELLER: u64 = 1 << 40;
const MS: u64 = 1_000_000;
/// So many accounts are written in one transaction once they are open.
const MANY: u64 = 1000;

/// The round of an audit, and what was found in it.
pub type Finding = (u64, Result<Holdings, ClientError>);

/// What tellers and the one who drives the run share.
#[derive(Default)]
pub struct Floor {
    pub terms: bank::Terms,
    pub tables: RefCell<Option<Tables>>,
    /// Of the tables.
    pub class: Durability,
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
    /// Some transfers are prepared first.
    pub(super) desk: Rc<Desk>,
}

impl Floor {
    fn note(&self, teller: u64, id: u64, fate: Fate) {
        match fate {
            Fate::Committed => {
                self.latest.borrow_mut().insert(teller, id);
                *self.done.borrow_mut().entry(teller).or_insert(0) += 1;
                self.acknowledged.borrow_mut().push(id);
            }
            Fate::Unresolved => {
                self.latest.borrow_mut().remove(&teller);
                self.unresolved.borrow_mut().push(id);
            }
            Fate::Hopeless | Fate::RolledBack => {}
        }
    }
    pub fn violation(&self, text: String) {
        self.violations.borrow_mut().push(text);
    }
}

/// Makes the tables and opens the accounts.
///
/// # Errors
/// The cluster refuses.
pub async fn open(client: &Client, terms: &bank::Terms, class: Durability) -> Result<Tables, ClientError> {
    client.ready().await?;
    let mut new = bank::definitions(DATABASE);
    let database = DatabaseMessage { name: DATABASE.to_owned(), collation: u32::from(new[0].collation.id()) };
    client.schema_change(Change::CreateDatabase(database)).await?;
    for table in &mut new {
        table.durability = class;
        client.schema_change(Change::CreateTable(TableMessage::from(&*table))).await?;
    }
    let dictionary = client.dictionary(0).await?.unwrap_or_default();
    for table in &mut new {
        let found = dictionary.tables.iter().find(|t| t.name == table.name && t.base_table == 0);
        let found = found.ok_or_else(|| ClientError::with_detail(ErrorCode::TableNotFound, table.name.clone()))?;
        *table = TableSchema::try_from(found)?;
    }
    let [accounts, transfers, latest] = new;
    bank::open_accounts(client, &accounts, terms, LOCK_WAIT_MS).await?;
    if terms.accounts >= MANY {
        bank::rewrite_accounts(client, &accounts, terms, LOCK_WAIT_MS).await?;
    }
    Ok(Tables { accounts, transfers, latest: Some(latest) })
}

/// Reads everything whenever it is asked for; never ends.
pub async fn audit(floor: std::rc::Rc<Floor>, client: Client, clock: Clock, number: u64) {
    let mut done = 0;
    loop {
        let is_asked = floor.audits.get() > done;
        let tables = if is_asked { floor.tables.borrow().clone() } else { None };
        if let Some(tables) = tables {
            done = floor.audits.get();
            let found = bank::read_all(&client, &tables, Epoch(0)).await;
            floor.findings.borrow_mut().insert(number, (done, found));
        }
        clock.sleep(MS).await;
    }
}

/// One teller's view of the floor.
struct Counter<'a> {
    floor: &'a Floor,
    /// Of what is done with branches.
    random: RefCell<Random>,
    client: &'a Client,
    clock: &'a Clock,
    number: u64,
}

impl Counter<'_> {
    fn doing(&self, what: String) {
        self.floor.doing.borrow_mut().insert(self.number, format!("{} {what}", self.clock.now()));
    }
}

impl World for Counter<'_> {
    async fn sleep(&self, nanoseconds: u64) {
        self.clock.sleep(nanoseconds).await;
    }
    async fn outcome(&self, token: &CommitToken) -> Fate {
        match self.client.outcome(token).await {
            Ok(Outcome::Committed) => Fate::Committed,
            Ok(Outcome::Aborted) => Fate::RolledBack,
            Ok(Outcome::Forgotten | Outcome::Open) | Err(_) => Fate::Unresolved,
        }
    }
    fn is_patient(&self) -> bool {
        true
    }
    fn at(&self, transfer: &Transfer, stage: Stage<'_>) {
        match stage {
            Stage::Executes => self.doing(format!("executes {transfer:?}")),
            Stage::RollsBack(error) => {
                *self.floor.retries.borrow_mut().entry(error.code as u16).or_default() += 1;
                self.doing(format!("rolls back {transfer:?} after {error}"));
            }
            Stage::Asks(token) => self.doing(format!("asks for {token:?}")),
            Stage::Ended(fate) => self.doing(format!("{fate:?}")),
        }
    }
    fn commits(&self, transfer: &Transfer) -> bool {
        self.floor.desk.is_open && transfer.id.is_multiple_of(3)
    }
    async fn commit(
        &self,
        transaction: &mut Transaction,
        transfer: &Transfer,
        savepoint: u32,
    ) -> Result<(), ClientError> {
        self.doing(format!("prepares {transfer:?}"));
        let mut random = Random::new(self.random.borrow_mut().next_u64());
        let violation = |text| self.floor.violation(text);
        let at = (self.client, self.clock);
        self.floor.desk.see_through(at, &mut random, transaction, savepoint, self.number, violation).await
    }
    fn violation(&self, text: String) {
        self.floor.violation(text);
    }
}

/// Transfers, one after another. Never ends; it is dropped with its client.
pub async fn work(floor: std::rc::Rc<Floor>, client: Client, clock: Clock, number: u64) {
    let mut next = number * IDS_PER_TELLER;
    let tables = loop {
        let tables = floor.tables.borrow().clone();
        if let Some(tables) = tables {
            break tables;
        }
        clock.sleep(MS).await;
    };
    // Its way to the management nodes may be cut for longer than it waits at once.
    while let Err(error) = client.ready().await {
        if error.class() != ErrorClass::Temporary {
            floor.violation(format!("teller {number} finds no cluster: {error}"));
            break;
        }
    }
    let random = Random::new(floor.terms.seed ^ (number + 1));
    let mut teller = bank::Teller::new(client.clone(), tables, LOCK_WAIT_MS, random);
    let branches = RefCell::new(Random::new(floor.terms.seed ^ 0x6272_616e ^ (number + 1)));
    let counter = Counter { floor: &floor, random: branches, client: &client, clock: &clock, number };
    loop {
        if floor.shut.get() {
            floor.working.borrow_mut().remove(&number);
            while floor.shut.get() {
                clock.sleep(MS).await;
            }
            floor.working.borrow_mut().insert(number);
        }
        floor.begun.borrow_mut().insert(number, next);
        let fate = teller.see_through(&floor.terms.transfer(next), &counter).await;
        floor.note(number, next, fate);
        floor.begun.borrow_mut().remove(&number);
        next += 1;
        let pause = teller.random().below(floor.pause_max_ns);
        clock.think(pause).await;
    }
}

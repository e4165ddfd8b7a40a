//! What the workloads that keep a history have in common: members who do one thing after another, a gate that lets them rest, readers, tallies.
//!
//! A workload is a [`Play`]: its tables, one turn of a member, one reading of everything, its judgement. A member begins each turn when the
//! gate is open, and a turn ends when its outcome is known or nobody can tell it. Moments are numbers from one counter, taken before a
//! request is sent and after its answer has come, so they order events as they were.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Client, ClientError, CommitToken, Outcome, ScanRequest};
use apus_kernel::Random;
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
};
use apus_types::{Column, ColumnType, ErrorClass, ErrorCode, PartitionId, TableSchema, Value, key, schema::Durability};

use super::branches::Desk;
use crate::{
    Clock, NativeClient,
    drill::{Judgement, Workload},
    settings::Settings,
};

const DATABASE: &str = "play";
pub(super) const LOCK_WAIT_MS: u32 = 2_000;
const MS: u64 = 1_000_000;
/// Most causes for concern that are remembered.
const VIOLATIONS_MAX: usize = 16;

/// What is done, and what must hold.
pub(super) trait Play: 'static {
    /// The tables as they are to be made.
    fn tables(&self) -> Vec<TableSchema>;
    /// Puts in the first rows.
    async fn fill(&self, client: &Client, tables: &[TableSchema]) -> Result<(), ClientError>;
    /// Does one thing; `true` if it is known to be committed.
    async fn turn(&self, member: &mut Member) -> bool;
    /// Reads everything while nobody writes.
    async fn read(&self, reader: &Member) -> Result<(), ClientError>;
    /// The member is gone in the midst of a turn, or between two.
    fn died(&self, member: u64);
    /// # Errors
    /// What cannot be.
    fn judge(&self) -> Result<Judgement, String>;
}

/// What all members of a run share with the one who drives it.
#[derive(Default)]
pub(super) struct Hall {
    pub seed: u64,
    /// Of the tables.
    class: Durability,
    pub tables: RefCell<Rc<[TableSchema]>>,
    open: Cell<bool>,
    shut: Cell<bool>,
    working: RefCell<BTreeSet<u64>>,
    done: RefCell<BTreeMap<u64, u64>>,
    acknowledged: Cell<u64>,
    unresolved: Cell<u64>,
    retries: RefCell<BTreeMap<u16, u64>>,
    violations: RefCell<Vec<String>>,
    doing: RefCell<BTreeMap<u64, String>>,
    moment: Cell<u64>,
    /// Readings asked for, and the last one that each client has done.
    readings: Cell<u64>,
    /// Some transactions are prepared first.
    pub desk: Rc<Desk>,
    read: RefCell<BTreeMap<u64, u64>>,
}

impl Hall {
    pub fn class(&self) -> Durability {
        self.class
    }
    /// The next moment.
    pub fn moment(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }
    pub fn violation(&self, text: String) {
        let mut violations = self.violations.borrow_mut();
        if violations.len() < VIOLATIONS_MAX {
            violations.push(text);
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Committed,
    RolledBack,
    Unknown,
}

/// One who does things, or reads for a whole client.
pub(super) struct Member {
    pub hall: Rc<Hall>,
    pub client: Client,
    pub number: u64,
    pub random: Random,
    pub clock: Clock,
    /// Longest pause between two turns.
    pause_max_ns: u64,
}

impl Member {
    pub fn tables(&self) -> Rc<[TableSchema]> {
        self.hall.tables.borrow().clone()
    }
    pub fn doing(&self, what: String) {
        self.hall.doing.borrow_mut().insert(self.number, format!("{} {what}", self.clock.now()));
    }

    pub fn count(&self, error: &ClientError) {
        *self.hall.retries.borrow_mut().entry(error.code as u16).or_default() += 1;
    }
    /// What an error says about the transaction; asks with the token where the error does not tell. The transaction has been rolled back.
    pub async fn fate(&self, error: &ClientError, token: Option<CommitToken>) -> Fate {
        self.count(error);
        let fate = match (error.class(), token) {
            (ErrorClass::UnknownOutcome, Some(token)) => match self.client.outcome(&token).await {
                Ok(Outcome::Committed) => Fate::Committed,
                Ok(Outcome::Aborted) => Fate::RolledBack,
                Ok(Outcome::Forgotten | Outcome::Open) | Err(_) => Fate::Unknown,
            },
            (ErrorClass::UnknownOutcome, None) => Fate::Unknown,
            (ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace, _) => {
                Fate::RolledBack
            }
            _ if error.code == ErrorCode::DuplicateKey => Fate::RolledBack,
            _ => {
                self.hall.violation(format!("member {} was refused: {error}", self.number));
                Fate::Unknown
            }
        };
        if fate == Fate::Unknown {
            self.hall.unresolved.set(self.hall.unresolved.get() + 1);
        }
        fate
    }

    async fn work<P: Play>(mut self, play: Rc<P>) {
        let hall = self.hall.clone();
        while !hall.open.get() {
            self.clock.sleep(MS).await;
        }
        // Its way to the management nodes may be cut for longer than it waits at once.
        while let Err(error) = self.client.ready().await {
            if error.class() != ErrorClass::Temporary {
                hall.violation(format!("member {} finds no cluster: {error}", self.number));
                break;
            }
        }
        loop {
            if hall.shut.get() {
                hall.working.borrow_mut().remove(&self.number);
                while hall.shut.get() {
                    self.clock.sleep(MS).await;
                }
                hall.working.borrow_mut().insert(self.number);
            }
            if play.turn(&mut self).await {
                *hall.done.borrow_mut().entry(self.number).or_default() += 1;
                hall.acknowledged.set(hall.acknowledged.get() + 1);
            }
            let pause = self.random.below(self.pause_max_ns.max(1));
            self.clock.think(pause).await;
        }
    }

    async fn serve_readings<P: Play>(self, play: Rc<P>) {
        let hall = self.hall.clone();
        // Earlier readings were for others.
        let mut done = hall.readings.get();
        loop {
            if hall.readings.get() > done {
                done = hall.readings.get();
                if let Err(error) = play.read(&self).await {
                    hall.violation(format!("client {} cannot read: {error}", self.number));
                }
                hall.read.borrow_mut().insert(self.number, done);
            }
            self.clock.sleep(MS).await;
        }
    }
}

/// The members of all clients.
pub(super) struct Crew<P> {
    play: Rc<P>,
    hall: Rc<Hall>,
    members_per_client: u64,
    clients: BTreeSet<u64>,
    /// Longest pauses of the members of the first client, and of all others.
    pauses_ns: (u64, u64),
    /// The first client; `None`: it died, and the next to come is in its place.
    first: Option<u64>,
}

impl<P: Play> Crew<P> {
    pub fn new(settings: &Settings, play: impl FnOnce(Rc<Hall>) -> P) -> Crew<P> {
        Crew::with_desk(settings, settings.tellers_per_client, Desk::new(settings.branches), play)
    }
    /// With so many members of each client, beside another workload.
    pub fn of(settings: &Settings, members_per_client: u64, play: impl FnOnce(Rc<Hall>) -> P) -> Crew<P> {
        Crew::with_desk(settings, members_per_client, Desk::default(), play)
    }
    fn with_desk(
        settings: &Settings,
        members_per_client: u64,
        desk: Desk,
        play: impl FnOnce(Rc<Hall>) -> P,
    ) -> Crew<P> {
        let hall = Hall {
            seed: settings.seed,
            tables: RefCell::new(Rc::new([])),
            class: settings.table_class(),
            desk: Rc::new(desk),
            ..Hall::default()
        };
        let hall = Rc::new(hall);
        let (pause, idle) = (settings.pause_max_ns, settings.idle_max_ns);
        Crew {
            play: Rc::new(play(hall.clone())),
            hall,
            members_per_client,
            clients: BTreeSet::new(),
            pauses_ns: (if idle > 0 { idle } else { pause }, pause),
            first: None,
        }
    }
    pub fn play(&self) -> &P {
        &self.play
    }
    fn members(&self, client: u64) -> std::ops::Range<u64> {
        client * self.members_per_client..(client + 1) * self.members_per_client
    }
}

impl<P: Play> Workload for Crew<P> {
    fn equip(&mut self, number: u64, client: &Client, clock: &Clock, actor: &mut NativeClient) {
        if number == 0 {
            let (play, hall, client) = (self.play.clone(), self.hall.clone(), client.clone());
            actor.spawn(async move {
                match open(&*play, &hall, &client).await {
                    Ok(tables) => {
                        *hall.tables.borrow_mut() = tables;
                        hall.open.set(true);
                    }
                    Err(error) => hall.violation(format!("the tables cannot be made: {error}")),
                }
            });
        }
        let is_first = *self.first.get_or_insert(number) == number;
        let pause_max_ns = if is_first { self.pauses_ns.0 } else { self.pauses_ns.1 };
        let member = |number: u64, salt: u64| Member {
            hall: self.hall.clone(),
            client: client.clone(),
            number,
            random: Random::new(self.hall.seed.wrapping_add(salt) ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            clock: clock.clone(),
            pause_max_ns,
        };
        for teller in self.members(number) {
            self.hall.working.borrow_mut().insert(teller);
            actor.spawn(member(teller, 1).work(self.play.clone()));
        }
        actor.spawn(member(number, 2).serve_readings(self.play.clone()));
        if self.hall.desk.is_open {
            let hall = self.hall.clone();
            let violation = move |text| hall.violation(text);
            actor.spawn(self.hall.desk.clone().tidy(client.clone(), clock.clone(), violation));
        }
        self.clients.insert(number);
    }
    fn lost(&mut self, number: u64) {
        self.clients.remove(&number);
        self.first = self.first.filter(|first| *first != number);
        for member in self.members(number) {
            self.hall.working.borrow_mut().remove(&member);
            self.hall.doing.borrow_mut().remove(&member);
            self.hall.desk.lost(member);
            self.play.died(member);
        }
    }
    fn is_open(&self) -> bool {
        self.hall.open.get()
    }
    fn progress(&self, number: u64) -> u64 {
        let done = self.hall.done.borrow();
        self.members(number).filter_map(|member| done.get(&member)).sum()
    }
    fn shut(&mut self, shut: bool) {
        self.hall.shut.set(shut);
    }
    fn at_rest(&self) -> Result<(), String> {
        if !self.hall.working.borrow().is_empty() {
            return Err(format!("{:?}", self.hall.doing.borrow()));
        }
        if self.hall.desk.is_empty() { Ok(()) } else { Err(self.hall.desk.describe()) }
    }
    fn read(&mut self) {
        self.hall.readings.set(self.hall.readings.get() + 1);
    }
    fn is_read(&self) -> bool {
        let read = self.hall.read.borrow();
        self.clients.iter().all(|number| read.get(number) == Some(&self.hall.readings.get()))
    }
    fn judge(&self) -> Result<Judgement, String> {
        self.violation().map_or(Ok(()), Err)?;
        self.play.judge()
    }
    fn violation(&self) -> Option<String> {
        self.hall.violations.borrow().first().cloned()
    }
    fn figures(&self) -> (u64, u64, BTreeMap<u16, u64>) {
        (self.hall.acknowledged.get(), self.hall.unresolved.get(), self.hall.retries.borrow().clone())
    }
}

// ---- tables and rows

pub(super) fn number_type() -> ColumnType {
    ColumnType::Int { bits: 64, unsigned: true }
}
pub(super) fn column(name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column { nullable, ..Column::new(name, ty) }
}
/// A table whose key is its first column.
pub(super) fn table(name: &str, columns: Vec<Column>) -> TableSchema {
    TableSchema::new(DATABASE, name, columns, vec![0])
}
pub(super) fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(number_type(), false, &Value::UInt(id), out).expect("every number fits its column");
}
pub(super) fn number(table: &TableSchema, row: &[u8], column: u16) -> Option<u64> {
    match table.layout().value(row, column) {
        Value::UInt(n) => Some(n),
        _ => None,
    }
}

async fn open<P: Play>(play: &P, hall: &Hall, client: &Client) -> Result<Rc<[TableSchema]>, ClientError> {
    client.ready().await?;
    let mut tables = play.tables();
    let collation = tables.first().map_or(0, |t| u32::from(t.collation.id()));
    let name = tables.first().map_or(DATABASE, |t| &t.database).to_owned();
    client.schema_change(Change::CreateDatabase(DatabaseMessage { name, collation })).await?;
    for table in &mut tables {
        table.durability = hall.class;
        client.schema_change(Change::CreateTable(TableMessage::from(&*table))).await?;
    }
    let dictionary = client.dictionary(0).await?.unwrap_or_default();
    for table in &mut tables {
        let is_ours = |t: &&TableMessage| t.name == table.name && t.database == table.database && t.base_table == 0;
        let found = dictionary.tables.iter().find(is_ours);
        let found = found.ok_or_else(|| ClientError::with_detail(ErrorCode::TableNotFound, table.name.clone()))?;
        *table = TableSchema::try_from(found)?;
    }
    hall.desk.open(client, &tables).await?;
    play.fill(client, &tables).await?;
    Ok(tables.into())
}

/// The rows that a scan gives, checked and taken apart by `take`.
pub(super) async fn scan<T>(
    client: &Client,
    table: &TableSchema,
    request: &ScanRequest<'_>,
    mut take: impl FnMut(&[u8]) -> T,
) -> Result<Vec<T>, ClientError> {
    let mut all = Vec::new();
    let mut cursor = client.scan(request);
    let mut rows = apus_client::Rows::new();
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            table.layout().check(row)?;
            all.push(take(row));
        }
    }
    Ok(all)
}

/// All partitions of the map.
pub(super) fn partitions(client: &Client) -> impl Iterator<Item = PartitionId> {
    (0..client.view().partition_count()).map(PartitionId)
}

//! Whoever looks at the whole bank while money moves: reads everything at snapshots, during traffic and faults.
//!
//! In each snapshot the sum of all balances is what it was at the beginning, each balance is what the transfers in the same snapshot say,
//! the list of latest transfers has transfers of the same snapshot only, and everything that any teller had an answer for before the
//! snapshot was asked for is in it. Every third time all balances are read at a moment that the client finds itself, of which the sum alone can be checked,
//! and every third time it looks at the balances of several snapshots one soon after the other, so that versions begin to be kept again and again, and has data nodes pick out those below a limit (`apus_types::filter`). Now and then two snapshots are compared: what has changed between them, as data nodes tell it, is the difference of two readings. A second reading of the same snapshot, perhaps from other replicas, finds the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Aggregate, AggregateFunction, ChangedRow, Client, ClientError, Rows, ScanRequest};
use apus_kernel::Random;
use apus_types::{Epoch, ErrorClass, TableSchema, Value};

use apus_workload::bank::{Holdings, Tables, read_all, read_balances, read_balances_below};

use super::teller::Floor;
use crate::Clock;

const MS: u64 = 1_000_000;
/// Snapshots that are looked at one soon after the other, and so many of many accounts.
const GLANCES: usize = 10;
const GLANCES_OF_MANY: usize = 2;
const MANY: u64 = 100;

/// Never ends; it is dropped with its client.
pub async fn watch(floor: Rc<Floor>, client: Client, clock: Clock, number: u64) {
    let mut random = Random::new(floor.terms.seed ^ 0x7761_7463 ^ (number << 32));
    loop {
        let pause = random.below(40 * MS);
        clock.think(pause).await;
        let tables = floor.tables.borrow().clone();
        let Some(tables) = tables else { continue };
        match random.below(4) {
            3 => {
                compare(&floor, &client, &clock, &mut random, &tables, number).await;
                continue;
            }
            0 => {
                check_totals(&floor, &client, &tables, number).await;
                continue;
            }
            1 => {
                glance(&floor, &client, &clock, &mut random, &tables, number).await;
                continue;
            }
            _ => {}
        }
        let known = floor.acknowledged.borrow().clone();
        match look(&client, &clock, &mut random, &tables).await {
            Ok((epoch, first, second)) => match check(&floor, &known, &first, &second) {
                Ok(()) => floor.snapshots.set(floor.snapshots.get() + 1),
                Err(what) => floor.violation(format!("snapshot {epoch} of client {number}: {what}")),
            },
            // Too old because its node died, or nobody to ask for too long.
            Err(e) if matches!(e.class(), ErrorClass::Conflict | ErrorClass::Temporary | ErrorClass::Timeout) => {}
            Err(error) => floor.violation(format!("client {number} cannot read a snapshot: {error}")),
        }
    }
}

/// All balances, read at one moment without a snapshot of our own.
async fn check_totals(floor: &Floor, client: &Client, tables: &Tables, number: u64) {
    let wanted = i128::from(floor.terms.balance) * i128::from(floor.terms.accounts);
    match totals(client, &tables.accounts).await {
        Ok((beside, here)) if (beside, here) == (wanted, wanted) => floor.snapshots.set(floor.snapshots.get() + 1),
        Ok(found) => floor.violation(format!("client {number} finds totals of {found:?} at a moment, not {wanted}")),
        Err(e) if matches!(e.class(), ErrorClass::Conflict | ErrorClass::Temporary | ErrorClass::Timeout) => {}
        Err(error) => floor.violation(format!("client {number} cannot read of one moment: {error}")),
    }
}

/// The sum of balances, made beside the data and here.
async fn totals(client: &Client, accounts: &TableSchema) -> Result<(i128, i128), ClientError> {
    // Several pages, also of few accounts.
    let request = ScanRequest { one_moment: true, batch_rows: 16, ..ScanRequest::all(accounts.id, accounts.version) };
    let mut sums = Vec::new();
    client.aggregate(&request, &[Aggregate { function: AggregateFunction::Sum, column: 1 }], &mut sums).await?;
    let (mut here, mut rows) = (0, Rows::new());
    let mut cursor = client.scan(&request);
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            accounts.layout().check(row)?;
            if let Value::Int(balance) = accounts.layout().value(row, 1) {
                here += i128::from(balance);
            }
        }
    }
    Ok((sums[0].value.unwrap_or(0), here))
}

/// Balances only, of some snapshots: all of them, and those below one of them that data nodes pick out.
async fn glance(floor: &Floor, client: &Client, clock: &Clock, random: &mut Random, tables: &Tables, number: u64) {
    for _ in 0..if floor.terms.accounts < MANY { GLANCES } else { GLANCES_OF_MANY } {
        match balances(client, random, tables).await {
            Ok((epoch, found, (limit, below))) => {
                let sum: i128 = found.iter().map(|(_, balance)| i128::from(*balance)).sum();
                let wanted = i128::from(floor.terms.balance) * i128::from(floor.terms.accounts);
                if found.len() as u64 != floor.terms.accounts || sum != wanted {
                    let what = format!("{} accounts of {} with {sum} of {wanted}", found.len(), floor.terms.accounts);
                    floor.violation(format!("snapshot {epoch} of client {number}: {what}"));
                }
                let wanted: BTreeSet<(u64, i64)> = found.into_iter().filter(|(_, balance)| *balance < limit).collect();
                if below.len() != wanted.len() || !below.iter().all(|one| wanted.contains(one)) {
                    let what = format!("{} accounts below {limit}, not {}", below.len(), wanted.len());
                    floor.violation(format!("snapshot {epoch} of client {number}: {what}"));
                }
                floor.snapshots.set(floor.snapshots.get() + 1);
            }
            Err(e) if matches!(e.class(), ErrorClass::Conflict | ErrorClass::Temporary | ErrorClass::Timeout) => {}
            Err(error) => floor.violation(format!("client {number} cannot read a snapshot: {error}")),
        }
        clock.sleep(random.below(8 * MS)).await;
    }
}

/// What has changed between two snapshots, of each table.
async fn compare(floor: &Floor, client: &Client, clock: &Clock, random: &mut Random, tables: &Tables, number: u64) {
    for table in [&tables.accounts, &tables.transfers].into_iter().chain(&tables.latest) {
        match differences(client, clock, random, table).await {
            Ok(None) => floor.snapshots.set(floor.snapshots.get() + 1),
            Ok(Some(what)) => floor.violation(format!("client {number} compares {}: {what}", table.name)),
            Err(e) if matches!(e.class(), ErrorClass::Conflict | ErrorClass::Temporary | ErrorClass::Timeout) => {}
            Err(error) => floor.violation(format!("client {number} cannot compare snapshots: {error}")),
        }
    }
}

/// Rows, and how often each is there.
type Bag = BTreeMap<Vec<u8>, i64>;

async fn bag(client: &Client, table: &TableSchema, snapshot: Epoch) -> Result<Bag, ClientError> {
    let request = ScanRequest { snapshot, ..ScanRequest::all(table.id, table.version) };
    let (mut cursor, mut rows, mut bag) = (client.scan(&request), Rows::new(), Bag::new());
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            *bag.entry(row.to_vec()).or_default() += 1;
        }
    }
    Ok(bag)
}

/// What is wrong with the rows that are said to have changed from one snapshot to the next.
async fn differences(
    client: &Client,
    clock: &Clock,
    random: &mut Random,
    table: &TableSchema,
) -> Result<Option<String>, ClientError> {
    let older = client.snapshot().await?;
    let before = bag(client, table, older.epoch()).await?;
    clock.think(random.below(30 * MS)).await;
    let newer = client.snapshot().await?;
    let (mut told, mut rows) = (before.clone(), Rows::new());
    let mut cursor = client.changed_rows(table, older.epoch(), newer.epoch());
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            let row = ChangedRow::decode(row)?;
            row.old.into_iter().for_each(|old| *told.entry(old.to_vec()).or_default() -= 1);
            row.new.into_iter().for_each(|new| *told.entry(new.to_vec()).or_default() += 1);
        }
    }
    told.retain(|_, count| *count != 0);
    let found = bag(client, table, newer.epoch()).await?;
    let (older, newer) = (older.epoch(), newer.epoch());
    let what = || {
        format!("{} rows at {older}, by what is told {} at {newer}, and not {}", before.len(), told.len(), found.len())
    };
    Ok((told != found).then(what))
}

/// Accounts and their balances.
type Balances = Vec<(u64, i64)>;

/// A snapshot of all accounts, the balance of one of them, and those that have less.
async fn balances(
    client: &Client,
    random: &mut Random,
    tables: &Tables,
) -> Result<(Epoch, Balances, (i64, Balances)), ClientError> {
    let snapshot = client.snapshot().await?;
    let found = read_balances(client, tables, snapshot.epoch()).await?;
    let limit = found.get(random.below(found.len().max(1) as u64) as usize).map_or(0, |(_, balance)| *balance);
    let below = read_balances_below(client, tables, snapshot.epoch(), limit).await?;
    Ok((snapshot.epoch(), found, (limit, below)))
}

/// One snapshot, read twice.
async fn look(
    client: &Client,
    clock: &Clock,
    random: &mut Random,
    tables: &Tables,
) -> Result<(Epoch, Holdings, Holdings), ClientError> {
    let snapshot = client.snapshot().await?;
    let first = read_all(client, tables, snapshot.epoch()).await?;
    let pause = if random.one_in(4) { random.below(100 * MS) } else { random.below(3 * MS) };
    clock.think(pause).await;
    let second = read_all(client, tables, snapshot.epoch()).await?;
    Ok((snapshot.epoch(), first, second))
}

fn check(floor: &Floor, known: &[u64], first: &Holdings, second: &Holdings) -> Result<(), String> {
    if first != second {
        return Err("two readings differ".to_owned());
    }
    let terms = &floor.terms;
    if first.balances.len() as u64 != terms.accounts {
        return Err(format!("{} accounts of {}", first.balances.len(), terms.accounts));
    }
    let mut balances: BTreeMap<u64, i64> = first.balances.iter().map(|(id, b)| (*id, b - terms.balance)).collect();
    let mut ids = BTreeSet::new();
    for transfer in &first.records {
        ids.insert(transfer.id);
        *balances.entry(transfer.source).or_default() += transfer.amount;
        *balances.entry(transfer.target).or_default() -= transfer.amount;
    }
    if let Some((account, difference)) = balances.iter().find(|&(_, &d)| d != 0) {
        return Err(format!("account {account} is {difference} off its {} transfers", ids.len()));
    }
    if let Some(latest) = first.latest.iter().find(|l| !ids.contains(l)) {
        return Err(format!("the latest transfer {latest} is not there"));
    }
    match known.iter().find(|id| !ids.contains(id)) {
        Some(missing) => Err(format!("transfer {missing} was acknowledged before and is not there")),
        None => Ok(()),
    }
}

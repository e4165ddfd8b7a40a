//! Whoever looks at the whole bank while money moves: reads everything at snapshots, during traffic and faults.
//!
//! In each snapshot the sum of all balances is what it was at the beginning, each balance is what the transfers in the same snapshot say,
//! the list of latest transfers has transfers of the same snapshot only, and everything that any teller had an answer for before the
//! snapshot was asked for is in it. A second reading of the same snapshot, perhaps from other replicas, finds the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Client, ClientError};
use apus_kernel::Random;
use apus_types::{Epoch, ErrorClass};

use apus_workload::bank::{Holdings, Tables, read_all};

use super::teller::Floor;
use crate::Clock;

const MS: u64 = 1_000_000;

/// Never ends; it is dropped with its client.
pub async fn watch(floor: Rc<Floor>, client: Client, clock: Clock, number: u64) {
    let mut random = Random::new(floor.terms.seed ^ 0x7761_7463 ^ (number << 32));
    loop {
        let pause = random.below(40 * MS);
        clock.think(pause).await;
        let tables = floor.tables.borrow().clone();
        let Some(tables) = tables else { continue };
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

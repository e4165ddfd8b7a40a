//! The bank: money moves between accounts, and none is lost.
//!
//! Accounts are numbered from 0. What a transfer moves follows from the run's seed and the transfer's id alone, so that one need
//! remember only the ids that were acknowledged to know everything that must be in the cluster. [`Teller`] executes transfers, [`audit`] judges.

mod audit;
mod teller;

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results, Rows, ScanRequest};
use apus_kernel::Random;
use apus_signal::tc::OpKind;
use apus_types::{Column, ColumnType, Epoch, ErrorCode, TableSchema, Value, filter, key};

pub use self::{
    audit::{Findings, audit},
    teller::{Fate, Stage, Teller, World},
};

/// Accounts opened per transaction.
const OPENED_PER_BATCH: u64 = 200;
const AMOUNT_MAX: u64 = 100;
pub const BALANCE_COLUMN: u16 = 1;

/// Money that moves from one account to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Transfer {
    pub id: u64,
    pub source: u64,
    pub target: u64,
    pub amount: i64,
}

/// What a run is about: everything needed to know what a transfer must have done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Terms {
    pub seed: u64,
    /// At least 2.
    pub accounts: u64,
    /// Of each account at the beginning.
    pub balance: i64,
}

impl Terms {
    /// The transfer with this id.
    pub fn transfer(&self, id: u64) -> Transfer {
        let mut random = Random::new(self.seed ^ id.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let source = random.below(self.accounts);
        let other = random.below(self.accounts - 1);
        let target = if other < source { other } else { other + 1 };
        Transfer { id, source, target, amount: 1 + random.below(AMOUNT_MAX) as i64 }
    }
}

/// The tables of a run, as the cluster defines them.
#[derive(Clone)]
pub struct Tables {
    pub accounts: TableSchema,
    pub transfers: TableSchema,
    /// The last transfer of each teller, where it is wanted: then every transfer inserts one row and deletes another.
    pub latest: Option<TableSchema>,
}

fn long(unsigned: bool) -> ColumnType {
    ColumnType::Int { bits: 64, unsigned }
}

/// Accounts, transfers, and the latest transfers, to be made.
pub fn definitions(database: &str) -> [TableSchema; 3] {
    let column = |&(name, unsigned): &(&str, bool)| Column { nullable: false, ..Column::new(name, long(unsigned)) };
    let table = |name: &str, columns: &[(&str, bool)]| {
        TableSchema::new(database, name, columns.iter().map(column).collect(), vec![0])
    };
    [
        table("accounts", &[("id", true), ("balance", false)]),
        table("transfers", &[("id", true), ("source", true), ("target", true), ("amount", false)]),
        table("latest", &[("id", true)]),
    ]
}

/// Opens the accounts. It writes and does not insert: after a lost answer a batch is sent again.
///
/// # Errors
/// The cluster refuses.
pub async fn open_accounts(
    client: &Client,
    accounts: &TableSchema,
    terms: &Terms,
    lock_wait_ms: u32,
) -> Result<(), ClientError> {
    let (mut ops, mut results, mut row, mut key) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    for first in (0..terms.accounts).step_by(OPENED_PER_BATCH as usize) {
        ops.clear();
        for id in first..terms.accounts.min(first + OPENED_PER_BATCH) {
            encode_key(id, &mut key);
            row.clear();
            accounts.layout().encode(&[Value::UInt(id), Value::Int(terms.balance)], &mut row)?;
            ops.push(accounts, OpKind::Write, 0, &key, &row)?;
        }
        client.run_autocommit(&ops, lock_wait_ms, &mut results).await?;
    }
    Ok(())
}

/// Writes all accounts as [`open_accounts`] has, in one large transaction.
///
/// # Errors
/// The cluster refuses.
pub async fn rewrite_accounts(
    client: &Client,
    accounts: &TableSchema,
    terms: &Terms,
    lock_wait_ms: u32,
) -> Result<(), ClientError> {
    let mut transaction = client.begin();
    let options = ExecOptions { lock_wait_ms, ..ExecOptions::default() };
    let (mut ops, mut results, mut row, mut key) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    for first in (0..terms.accounts).step_by(OPENED_PER_BATCH as usize) {
        ops.clear();
        for id in first..terms.accounts.min(first + OPENED_PER_BATCH) {
            encode_key(id, &mut key);
            row.clear();
            accounts.layout().encode(&[Value::UInt(id), Value::Int(terms.balance)], &mut row)?;
            ops.push(accounts, OpKind::Write, 0, &key, &row)?;
        }
        transaction.execute(&ops, options, &mut results).await?;
    }
    transaction.commit().await.map(|_| ())
}

/// Replaces `out` by the encoded primary key of an account or a transfer.
fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(long(true), false, &Value::UInt(id), out).expect("every number fits its column");
}

/// Replaces `out` by the row of a transfer.
fn encode_record(transfers: &TableSchema, t: &Transfer, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    out.clear();
    let values = [Value::UInt(t.id), Value::UInt(t.source), Value::UInt(t.target), Value::Int(t.amount)];
    transfers.layout().encode(&values, out)
}

/// Everything the cluster holds, each list in the order of its ids.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// (account, balance).
    pub balances: Vec<(u64, i64)>,
    pub records: Vec<Transfer>,
    pub latest: Vec<u64>,
}

/// Reads all tables, now (epoch 0) or as of a snapshot.
///
/// # Errors
/// A read fails, or a row is not one of ours ([`ErrorCode::ProtocolViolation`]).
pub async fn read_all(client: &Client, tables: &Tables, snapshot: Epoch) -> Result<Holdings, ClientError> {
    let mut all = Holdings::default();
    if let Some(latest) = &tables.latest {
        let ids = scan(client, latest, snapshot, &[]).await?;
        all.latest.extend(ids.iter().map(|[id, ..]| *id as u64));
    }
    all.balances = read_balances(client, tables, snapshot).await?;
    let records = scan(client, &tables.transfers, snapshot, &[]).await?;
    all.records.extend(records.iter().map(|[id, source, target, amount]| Transfer {
        id: *id as u64,
        source: *source as u64,
        target: *target as u64,
        amount: *amount as i64,
    }));
    all.latest.sort_unstable();
    all.balances.sort_unstable();
    all.records.sort_unstable();
    Ok(all)
}

/// All accounts with their balances, at a snapshot or (epoch 0) as they are.
///
/// # Errors
/// Those of the scan.
pub async fn read_balances(client: &Client, tables: &Tables, snapshot: Epoch) -> Result<Vec<(u64, i64)>, ClientError> {
    read_balances_that(client, tables, snapshot, &[]).await
}

/// Accounts whose balance is below a limit, as the data nodes find them.
pub async fn read_balances_below(
    client: &Client,
    tables: &Tables,
    snapshot: Epoch,
    limit: i64,
) -> Result<Vec<(u64, i64)>, ClientError> {
    let balance = &tables.accounts.columns[1];
    let (mut high, mut filter) = (Vec::new(), Vec::new());
    key::encode_part(balance.ty, balance.nullable, &Value::Int(limit), &mut high)?;
    filter::push_ranges(&mut filter, 1, [(None, Some(high.as_slice()))].into_iter());
    read_balances_that(client, tables, snapshot, &filter).await
}

async fn read_balances_that(
    client: &Client,
    tables: &Tables,
    snapshot: Epoch,
    filter: &[u8],
) -> Result<Vec<(u64, i64)>, ClientError> {
    let balances = scan(client, &tables.accounts, snapshot, filter).await?;
    Ok(balances.iter().map(|[id, balance, ..]| (*id as u64, *balance as i64)).collect())
}

/// The rows of a table as up to four numbers.
async fn scan(
    client: &Client,
    table: &TableSchema,
    snapshot: Epoch,
    filter: &[u8],
) -> Result<Vec<[i128; 4]>, ClientError> {
    let mut found = Vec::new();
    let mut cursor = client.scan(&ScanRequest { snapshot, filter, ..ScanRequest::all(table.id, table.version) });
    let mut rows = Rows::new();
    while cursor.next_batch(&mut rows).await? {
        for row in rows.iter().flatten() {
            table.layout().check(row)?;
            let mut numbers = [0; 4];
            for (column, number) in numbers.iter_mut().enumerate().take(table.columns.len()) {
                *number = match table.layout().value(row, column as u16) {
                    Value::UInt(n) => i128::from(n),
                    Value::Int(n) => i128::from(n),
                    _ => return Err(ErrorCode::ProtocolViolation.into()),
                };
            }
            found.push(numbers);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_follow_from_their_ids() {
        let terms = Terms { seed: 5, accounts: 3, balance: 10 };
        for id in 0..10_000 {
            let t = terms.transfer(id);
            assert_eq!(t, terms.transfer(id));
            assert!(t.source < 3 && t.target < 3 && t.source != t.target);
            assert!((1..=100).contains(&t.amount));
        }
    }

    #[test]
    fn rows_and_keys_fit_their_tables() {
        let [accounts, transfers, latest] = definitions("bank");
        for table in [&accounts, &transfers, &latest] {
            table.validate().unwrap();
        }
        let (mut row, mut key, mut from_row) = (Vec::new(), Vec::new(), Vec::new());
        encode_record(&transfers, &Transfer { id: u64::MAX, source: 1, target: 2, amount: 3 }, &mut row).unwrap();
        encode_key(u64::MAX, &mut key);
        key::encode_from_row(&transfers, &[0], &row, &mut from_row).unwrap();
        assert_eq!(key, from_row);
    }
}

//! Accounts, transfers, and the tables that hold them.
//!
//! Accounts are numbered from 0. What a transfer moves follows from the run's seed and the transfer's id alone, so that a client need
//! remember only the ids that were acknowledged to know everything that must be in the cluster.

use apus_client::{Client, OpBatch, Results, ScanRequest};
use apus_signal::tc::OpKind;
use apus_types::{ColumnType, ErrorCode, TableSchema, Value, key};

use crate::bench::{
    cluster::{DATABASE, column, create_table},
    numbers::Random,
};

/// Accounts opened per transaction.
const OPENED_PER_BATCH: u64 = 200;
const AMOUNT_MAX: u64 = 100;
pub const BALANCE_COLUMN: u16 = 1;

/// Money that moves from one account to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    pub id: u64,
    pub source: u64,
    pub target: u64,
    pub amount: i64,
}

/// What a run is about: everything needed to know what a transfer must have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// The tables of a run.
#[derive(Clone)]
pub struct Tables {
    pub accounts: TableSchema,
    pub transfers: TableSchema,
}

fn long(unsigned: bool) -> ColumnType {
    ColumnType::Int { bits: 64, unsigned }
}

fn definitions() -> [TableSchema; 2] {
    let accounts = vec![column("id", long(true)), column("balance", long(false))];
    let transfers = vec![
        column("id", long(true)),
        column("source", long(true)),
        column("target", long(true)),
        column("amount", long(false)),
    ];
    [("accounts", accounts), ("transfers", transfers)]
        .map(|(name, columns)| TableSchema::new(DATABASE, name, columns, vec![0]))
}

/// Makes the tables anew and opens the accounts.
///
/// # Errors
/// The cluster refuses.
pub async fn open(client: &Client, terms: &Terms) -> Result<Tables, String> {
    let [accounts, transfers] = definitions();
    let accounts = create_table(client, &accounts).await?;
    let transfers = create_table(client, &transfers).await?;
    let failed = |e: &dyn std::fmt::Display| format!("cannot open the accounts: {e}");
    let (mut ops, mut results, mut row, mut key) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    let mut next = 0;
    while next < terms.accounts {
        ops.clear();
        for id in next..terms.accounts.min(next + OPENED_PER_BATCH) {
            row.clear();
            encode_key(id, &mut key);
            let values = [Value::UInt(id), Value::Int(terms.balance)];
            accounts.layout().encode(&values, &mut row).map_err(|e| failed(&e))?;
            ops.push(&accounts, OpKind::Insert, 0, &key, &row).map_err(|e| failed(&e))?;
        }
        client.run_autocommit(&ops, 10_000, &mut results).await.map_err(|e| failed(&e))?;
        next += OPENED_PER_BATCH;
    }
    Ok(Tables { accounts, transfers })
}

/// The encoded primary key of an account or a transfer.
pub fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(long(true), false, &Value::UInt(id), out).expect("every number fits its column");
}

/// Replaces `out` by the row of a transfer.
pub fn encode_record(tables: &Tables, t: &Transfer, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    out.clear();
    let values = [Value::UInt(t.id), Value::UInt(t.source), Value::UInt(t.target), Value::Int(t.amount)];
    tables.transfers.layout().encode(&values, out)
}

/// Everything the cluster holds.
#[derive(Clone, Default, Debug)]
pub struct Holdings {
    /// (account, balance).
    pub balances: Vec<(u64, i64)>,
    pub records: Vec<Transfer>,
}

/// Reads both tables.
///
/// # Errors
/// A read fails, or a row is not one of ours.
pub async fn read_all(client: &Client, tables: &Tables) -> Result<Holdings, String> {
    let mut all = Holdings::default();
    let Holdings { balances, records } = &mut all;
    scan(client, &tables.accounts, |v| {
        let (Value::UInt(id), Value::Int(balance)) = (v(0), v(BALANCE_COLUMN)) else { return false };
        balances.push((id, balance));
        true
    })
    .await?;
    scan(client, &tables.transfers, |v| {
        let (Value::UInt(id), Value::UInt(source), Value::UInt(target), Value::Int(amount)) = (v(0), v(1), v(2), v(3))
        else {
            return false;
        };
        records.push(Transfer { id, source, target, amount });
        true
    })
    .await?;
    Ok(all)
}

async fn scan(
    client: &Client,
    table: &TableSchema,
    mut take: impl FnMut(&dyn Fn(u16) -> Value<'static>) -> bool,
) -> Result<(), String> {
    let mut cursor = client.scan(&ScanRequest::all(table.id, table.version));
    let mut rows = apus_client::Rows::new();
    while cursor.next_batch(&mut rows).await.map_err(|e| format!("cannot read {}: {e}", table.name))? {
        for row in rows.iter().flatten() {
            table.layout().check(row).map_err(|e| format!("a row of {} is not valid: {e}", table.name))?;
            let number = |column| match table.layout().value(row, column) {
                Value::UInt(n) => Value::UInt(n),
                Value::Int(n) => Value::Int(n),
                _ => Value::Null,
            };
            if !take(&number) {
                return Err(format!("a row of {} holds something else than numbers", table.name));
            }
        }
    }
    Ok(())
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
        let [accounts, transfers] = definitions();
        accounts.validate().unwrap();
        transfers.validate().unwrap();
        let tables = Tables { accounts, transfers };
        let (mut row, mut key, mut from_row) = (Vec::new(), Vec::new(), Vec::new());
        encode_record(&tables, &Transfer { id: u64::MAX, source: 1, target: 2, amount: 3 }, &mut row).unwrap();
        encode_key(u64::MAX, &mut key);
        key::encode_from_row(&tables.transfers, &[0], &row, &mut from_row).unwrap();
        assert_eq!(key, from_row);
    }
}

//! AUTO_INCREMENT values: ranges reserved from the table `apus.auto_increment` in transactions of their own.
//!
//! A range belongs to one SQL node and is shared by its threads, so that values of one node are consecutive; what is left of
//! it when the node ends is a gap. An explicit value raises the counter above itself before the row is inserted, and reserves a
//! range behind itself, so that a load with ascending explicit values does not pay for each.

use std::sync::{Mutex, PoisonError};

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results};
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, collections::FixedMap, key, schema::DefaultValue};

use super::catalog::{Catalog, SYSTEM_DATABASE};

pub const TABLE: &str = "auto_increment";
/// Values reserved at once, so that one transaction serves this many inserts.
const RANGE: u64 = 256;
/// Attempts of a reservation that another SQL node or a failing data node gets in the way of.
const ATTEMPTS_MAX: u32 = 20;

#[derive(Clone, Copy, Default)]
struct Range {
    next: u64,
    /// Excluded; also a lower bound of the counter in the table.
    end: u64,
}

/// The ranges of a SQL node.
#[derive(Default)]
pub struct AutoIncrement {
    ranges: Mutex<FixedMap<u64, Range>>,
}

fn counter_of(table: &TableSchema, column: u16) -> u64 {
    u64::from(table.id.0) << 16 | u64::from(column)
}

impl AutoIncrement {
    fn with<T>(&self, f: impl FnOnce(&mut FixedMap<u64, Range>) -> T) -> T {
        f(&mut self.ranges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next value for a column; `wanted` more are likely to follow.
    pub async fn next(
        &self,
        client: &Client,
        counters: &TableSchema,
        table: &TableSchema,
        column: u16,
        wanted: u64,
    ) -> Result<u64, ClientError> {
        let counter = counter_of(table, column);
        loop {
            let taken = self.with(|ranges| {
                let range = ranges.entry(counter).or_default();
                (range.next < range.end).then(|| {
                    range.next += 1;
                    range.next - 1
                })
            });
            if let Some(value) = taken {
                return Ok(value);
            }
            let (start, end) =
                move_counter(client, counters, counter, |next| next.saturating_add(wanted.max(RANGE))).await?;
            self.with(|ranges| {
                let range = ranges.entry(counter).or_default();
                // Two threads may reserve at once: the later range counts, the other is a gap unless still empty.
                if range.next >= range.end || start >= range.end {
                    *range = Range { next: start.max(range.next), end };
                }
            });
        }
    }

    /// Makes sure that no value up to `value` will be generated.
    pub async fn raise(
        &self,
        client: &Client,
        counters: &TableSchema,
        table: &TableSchema,
        column: u16,
        value: u64,
    ) -> Result<(), ClientError> {
        let counter = counter_of(table, column);
        let above = value.saturating_add(1);
        let done = self.with(|ranges| {
            let range = ranges.entry(counter).or_default();
            if above <= range.end {
                range.next = range.next.max(above);
                return true;
            }
            false
        });
        if done {
            return Ok(());
        }
        let reserve = |next: u64| if next < above { above.saturating_add(RANGE) } else { next };
        let (start, end) = move_counter(client, counters, counter, reserve).await?;
        self.with(|ranges| {
            let range = ranges.entry(counter).or_default();
            if range.end < end {
                *range = Range { next: if start < above { above } else { end }, end };
            }
        });
        Ok(())
    }
}

/// Reads the counter under a lock and moves it; returns both positions.
async fn move_counter(
    client: &Client,
    counters: &TableSchema,
    counter: u64,
    to: impl Fn(u64) -> u64,
) -> Result<(u64, u64), ClientError> {
    let mut encoded = Vec::with_capacity(8);
    key::encode_part(counters.columns[0].ty, false, &Value::UInt(counter), &mut encoded)?;
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut transaction = client.begin();
        let moved = async {
            ops.clear();
            ops.push_read(counters, true, ALLOW_MISSING, &encoded, None)?;
            let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 10_000 };
            transaction.execute(&ops, options, &mut results).await?;
            let found = results.status(0) == Some(OpStatus::Done);
            let current = match results.row(0).filter(|_| found).map(|row| counters.layout().value(row, 1)) {
                Some(Value::UInt(n)) => n,
                _ => 1,
            };
            let next = to(current);
            let mut row = Vec::new();
            counters.layout().encode(&[Value::UInt(counter), Value::UInt(next)], &mut row)?;
            ops.clear();
            ops.push(counters, if found { OpKind::Write } else { OpKind::Insert }, 0, &encoded, &row)?;
            transaction
                .execute(&ops, ExecOptions { commit: true, savepoint: 2, lock_wait_ms: 10_000 }, &mut results)
                .await?;
            Ok::<_, ClientError>((current, next))
        }
        .await;
        match moved {
            Ok(positions) => return Ok(positions),
            Err(e)
                if attempt < ATTEMPTS_MAX
                    && (e.retry_transaction() || matches!(e.code, ErrorCode::DuplicateKey | ErrorCode::Deadlock)) =>
            {
                let _ = transaction.rollback().await;
            }
            Err(e) => {
                let _ = transaction.rollback().await;
                return Err(e);
            }
        }
    }
}

/// Definition of the counters' table.
fn definition() -> TableSchema {
    let column = |name: &str| Column {
        name: name.to_owned(),
        ty: ColumnType::Int { bits: 64, unsigned: true },
        nullable: false,
        default: DefaultValue::None,
        auto_increment: false,
        on_update_now: false,
        comment: String::new(),
        declared: String::new(),
    };
    TableSchema::new(SYSTEM_DATABASE, TABLE, vec![column("counter"), column("next_value")], vec![0])
}

/// Creates what is missing of the system database; true when something was.
pub async fn create_missing(client: &Client, catalog: &Catalog) -> Result<bool, ClientError> {
    if catalog.find(SYSTEM_DATABASE, TABLE).is_some() {
        return Ok(false);
    }
    let database = DatabaseMessage { name: SYSTEM_DATABASE.to_owned(), collation: 45 };
    for change in [Change::CreateDatabase(database), Change::CreateTable(TableMessage::from(&definition()))] {
        match client.schema_change(change).await {
            Ok(_) => {}
            Err(e) if matches!(e.code, ErrorCode::DatabaseExists | ErrorCode::TableExists) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

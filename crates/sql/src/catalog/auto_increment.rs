//! AUTO_INCREMENT values: ranges reserved from the table `apus.auto_increment` in transactions of their own.
//!
//! A range belongs to one SQL node and is shared by its threads; what is left of it when the node ends is a gap. The values of one
//! statement are consecutive, because drivers tell their users the first one and its followers by counting. An explicit value raises the
//! counter above itself before the row is inserted, and reserves a range behind itself, so that a load with ascending explicit values does
//! not pay for each. One that falls into the range of another SQL node is found as a duplicate there: that node gives up its range and
//! takes a value above the counter, which is above all explicit ones.

use crate::variables::Step;

use std::sync::{Mutex, PoisonError};

use apus_client::{Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows};
use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ErrorCode, TableId, TableSchema, Value, collections::FixedMap, key};

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

impl Range {
    fn take(&mut self, count: u64, step: Step) -> Option<u64> {
        let first = step.align(self.next)?;
        let behind = step.behind(first, count)?;
        if behind > self.end {
            return None;
        }
        self.next = behind;
        Some(first)
    }
    /// Of a table that nobody else counts for.
    fn is_all(&self) -> bool {
        self.end == u64::MAX
    }
}

/// Why there is no value.
#[derive(Debug)]
pub enum Refusal {
    Client(ClientError),
    Exhausted,
}

impl From<ClientError> for Refusal {
    fn from(e: ClientError) -> Refusal {
        Refusal::Client(e)
    }
}

/// The ranges of a SQL node.
#[derive(Default)]
pub struct AutoIncrement {
    ranges: Mutex<FixedMap<u64, Range>>,
}

/// A table has one column of its own that counts, wherever that stands after changes of its columns, and may have a hidden one.
fn counter_of(table: &TableSchema, column: u16) -> u64 {
    let is_hidden = table.columns.get(usize::from(column)).is_some_and(|c| c.name.starts_with('#'));
    u64::from(table.id.0) << 16 | u64::from(is_hidden)
}

impl AutoIncrement {
    fn with<T>(&self, f: impl FnOnce(&mut FixedMap<u64, Range>) -> T) -> T {
        f(&mut self.ranges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The first of `count` values for a column, each `step.increment` behind the one before; nobody else gets any of them.
    ///
    /// # Errors
    /// `Exhausted`: the counter has reached the end of 64 bits.
    pub async fn take(
        &self,
        client: &Client,
        counters: &TableSchema,
        table: &TableSchema,
        column: u16,
        count: u64,
        step: Step,
    ) -> Result<u64, Refusal> {
        let counter = counter_of(table, column);
        if let Some(first) = self.with(|ranges| ranges.entry(counter).or_default().take(count, step)) {
            return Ok(first);
        }
        let behind = |next: u64| step.behind(next, count);
        let reserve = |next: u64| behind(next).unwrap_or(u64::MAX).max(next.saturating_add(RANGE));
        let (start, end) = move_counter(client, counters, counter, reserve).await?;
        self.with(|ranges| {
            let range = ranges.entry(counter).or_default();
            // What is left of the old range is a gap, unless the new one goes on where it ends.
            let joined = Range { next: if range.end == start { range.next } else { start }, end };
            let mut taken = joined;
            let first = taken.take(count, step).ok_or(Refusal::Exhausted)?;
            // Another thread may have reserved meanwhile: the later range counts.
            if end > range.end {
                *range = taken;
            }
            Ok(first)
        })
    }

    /// Nobody but this SQL node will ever count for this column of a new table: it needs no counter in the cluster.
    pub fn keep_here(&self, table: &TableSchema, column: u16, first: u64) {
        self.with(|ranges| ranges.insert(counter_of(table, column), Range { next: first.max(1), end: u64::MAX }));
    }

    /// The table is gone.
    pub fn end(&self, table: TableId) {
        let first = u64::from(table.0) << 16;
        self.with(|ranges| [first, first | 1].map(|counter| ranges.remove(&counter)));
    }

    /// Gives up what is left of the reserved range: some value in it was taken by an explicit one, through another SQL node.
    pub fn forget(&self, table: &TableSchema, column: u16) {
        let counter = counter_of(table, column);
        self.with(|ranges| {
            if !ranges.get(&counter).is_some_and(|range| range.is_all()) {
                ranges.remove(&counter);
            }
        });
    }

    /// Gives a counter of a new table what the old one has not given, and values above `highest`.
    pub async fn hand_on(
        &self,
        client: &Client,
        counters: &TableSchema,
        (old, from): (&TableSchema, u16),
        (new, to): (&TableSchema, u16),
        highest: Option<u64>,
    ) -> Result<(), ClientError> {
        let counter = counter_of(old, from);
        if let Some(own) = self.with(|ranges| ranges.get(&counter).copied()).filter(|range| range.is_all()) {
            let next = own.next.max(highest.map_or(1, |n| n.saturating_add(1)));
            self.with(|ranges| ranges.insert(counter_of(new, to), Range { next, ..own }));
            return Ok(());
        }
        let (next, _) = move_counter(client, counters, counter, |next| next).await?;
        // What is left of this node's range goes along, where nobody has reserved behind it.
        let own = self.with(|ranges| ranges.remove(&counter)).filter(|range| range.end == next);
        let first = own.map_or(next, |range| range.next).max(highest.map_or(1, |n| n.saturating_add(1)));
        self.forget(new, to);
        move_counter(client, counters, counter_of(new, to), |next| next.max(first)).await.map(|_| ())
    }

    /// The value that a row would get now, for people to see: what this node has reserved, unless another one has reserved behind it.
    pub async fn shown(
        &self,
        client: &Client,
        counters: &TableSchema,
        table: &TableSchema,
        column: u16,
    ) -> Result<u64, ClientError> {
        let counter = counter_of(table, column);
        let own = self.with(|ranges| ranges.get(&counter).copied());
        if let Some(all) = own.filter(|range| range.is_all()) {
            return Ok(all.next);
        }
        let mut keys = KeyList::new();
        keys.push(counters, &key_of(counters, counter)?)?;
        let mut rows = Rows::new();
        client.read(&ReadBatch::newest(counters, &keys), &mut rows).await?;
        let next = match rows.row(0).map(|row| counters.layout().value(row, 1)) {
            Some(Value::UInt(n)) => n,
            _ => 1,
        };
        Ok(own.filter(|range| range.end == next).map_or(next, |range| range.next))
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

fn key_of(counters: &TableSchema, counter: u64) -> Result<Vec<u8>, ClientError> {
    let mut encoded = Vec::with_capacity(8);
    key::encode_part(counters.columns[0].ty, false, &Value::UInt(counter), &mut encoded)?;
    Ok(encoded)
}

/// Reads the counter under a lock and moves it; returns both positions.
async fn move_counter(
    client: &Client,
    counters: &TableSchema,
    counter: u64,
    to: impl Fn(u64) -> u64,
) -> Result<(u64, u64), ClientError> {
    let encoded = key_of(counters, counter)?;
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
                    && !e.code.waits_for_operator()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_step_and_end() {
        let step = |increment, offset| Step { increment, offset };
        let mut range = Range { next: 1, end: 257 };
        assert_eq!(range.take(3, step(10, 3)), Some(3));
        assert_eq!(range.next, 24);
        assert_eq!(range.take(1, step(10, 3)), Some(33));
        assert_eq!(range.take(2, step(1, 1)), Some(34));
        assert_eq!(range.take(300, step(1, 1)), None, "only whole statements");
        assert_eq!(range.take(221, step(1, 1)), Some(36));
        assert_eq!(range.take(1, step(1, 1)), None);
        assert_eq!(step(10, 20).align(33), Some(41), "an offset above the increment is ignored");
        for next in [u64::MAX - 1, u64::MAX] {
            let mut last = Range { next, end: u64::MAX };
            assert_eq!(last.take(2, step(1, 1)), None);
            assert_eq!(last.take(1, step(65_535, 1)), None);
        }
    }
}

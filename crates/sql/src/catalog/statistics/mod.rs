//! What is known of the size of tables: rows, how many rows a value of the front of an index has, some rows, and histograms.
//!
//! Row counts come from the data nodes, which know them of their fragments; they count rows that are not committed too. The fronts of indexes are sampled:
//! the first and the last [`SAMPLE_ROWS`] entries, in order, so rows of one value lie side by side. That is exact for keys that are spread evenly and too much for those that are not. A column of
//! numbers has no more values than lie between its first and its last one. Some rows are kept ([`sample`]), of which conditions are asked.
//!
//! Each SQL thread keeps its own. They are fetched when a statement of several tables is first planned, counts again when they are older than [`FRESH_FOR`] and such
//! a plan is run, samples again when a count has doubled or halved; then plans over that table are made anew. ANALYZE TABLE does all that at once.

mod sample;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use apus_client::{Aggregate, AggregateFunction, Client, ClientError, Rows, ScanRequest};
use apus_types::{ErrorCode, IndexNo, TableId, collate::Collation};

pub use sample::Sample;

use super::{
    Table,
    histogram::{self, Histograms},
};
use crate::{
    expr::{ColumnRef, CompareOp, Expr},
    plan::access::Limit,
};

/// Entries sampled at each end of an index.
const SAMPLE_ROWS: u32 = 500;
/// How long a row count is believed.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// Tables are planned for as if they had so many rows at least: small ones grow.
const ROWS_MIN: f64 = 16.0;

/// Of one table.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Rows as planning takes them.
    pub rows: f64,
    /// For each index its number, its columns, and for 1, 2, ... of them how many rows have the same values.
    pub indexes: Vec<(IndexNo, Vec<u16>, Vec<f64>)>,
    pub sample: Option<Rc<Sample>>,
    /// By column.
    pub histograms: Vec<(u16, Rc<histogram::Kept>)>,
}

impl Known {
    /// Rows with the same values of the first `columns` columns of an index.
    pub fn rows_of(&self, index: IndexNo, columns: usize) -> f64 {
        let found = self.indexes.iter().find(|(no, ..)| *no == index);
        let per = columns.checked_sub(1).and_then(|at| found?.2.get(at)).copied();
        per.unwrap_or(self.rows).min(self.rows)
    }

    pub fn histogram(&self, column: u16) -> Option<&histogram::Kept> {
        self.histograms.iter().find(|(of, _)| *of == column).map(|(_, kept)| &**kept)
    }

    /// How many values a column has: by an index that begins with it, its histogram, or rows of the sample.
    pub fn values_of(&self, column: u16) -> Option<f64> {
        let seen = || match self.histogram(column) {
            Some(kept) => Some(kept.distinct() as f64),
            None => self.sample.as_ref()?.values_of(column, self.rows),
        };
        self.values_by_index(column).or_else(seen)
    }

    /// Part of the rows that have one value of a column, whichever.
    pub fn equal_to(&self, column: u16) -> Option<f64> {
        let seen = || self.sample.as_ref()?.equal_of(column);
        let one_of = |values: f64| 1.0 / values.max(1.0);
        self.values_by_index(column).map(one_of).or_else(seen).or_else(|| self.values_of(column).map(one_of))
    }

    /// Part of the rows that lie between limits; `None`: nothing is known.
    pub fn within(&self, column: u16, low: &Limit, high: &Limit) -> Option<f64> {
        let ty = self.sample.as_ref()?.type_of(column).filter(|ty| !ty.is_text())?;
        let limited = |limit: &Limit, op: [CompareOp; 2]| {
            let (value, is_included) = limit.as_ref()?;
            let (column, op) = (Expr::Column(ColumnRef { slot: column, ty }), op[usize::from(*is_included)]);
            Some(Expr::Compare(op, Box::new(column), Box::new(value.clone()), Collation::default()))
        };
        let low = limited(low, [CompareOp::Gt, CompareOp::GtEq]);
        let high = limited(high, [CompareOp::Lt, CompareOp::LtEq]);
        let both: Vec<Expr> = low.into_iter().chain(high).collect();
        if both.is_empty() {
            return None;
        }
        let of_histogram = |kept: &histogram::Kept| {
            let parts = both.iter().map(|e| super::histogram::selectivity::of_condition(e, &|_| Some(kept)));
            // What each of the limits leaves out.
            parts.map(|part| part.map(|part| 1.0 - part)).sum::<Option<f64>>().map(|out| (1.0 - out).max(0.0))
        };
        self.histogram(column).and_then(of_histogram).or_else(|| self.sample.as_ref()?.part(&Expr::And(both.clone())))
    }

    fn values_by_index(&self, column: u16) -> Option<f64> {
        let of = |(_, columns, per): &(IndexNo, Vec<u16>, Vec<f64>)| {
            (columns.first() == Some(&column)).then(|| self.rows / per.first().copied().unwrap_or(1.0).max(1.0))
        };
        self.indexes.iter().filter_map(of).reduce(f64::max)
    }
}

struct Kept {
    known: Rc<Known>,
    counted: Instant,
}

/// How many rows a table has, about.
///
/// # Errors
/// The cluster does not answer, or the table is another by now.
pub async fn rows_of(client: &Client, table: &Table) -> Result<u64, ClientError> {
    let request = ScanRequest::all(table.schema.id, table.schema.version);
    let mut counts = Vec::new();
    let wanted = [Aggregate { function: AggregateFunction::EstimatedRows, column: 0 }];
    client.aggregate(&request, &wanted, &mut counts).await?;
    Ok(counts.first().map_or(0, |c| c.count))
}

/// Of all tables that were asked for.
#[derive(Default)]
pub struct Statistics {
    tables: RefCell<BTreeMap<TableId, Kept>>,
    /// Grows with every change that plans should be made anew for.
    generation: Cell<u64>,
    histograms: RefCell<Histograms>,
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Statistics({} tables)", self.tables.borrow().len())
    }
}

impl Statistics {
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub fn of(&self, table: &Table) -> Option<Rc<Known>> {
        self.tables.borrow().get(&table.schema.id).map(|kept| kept.known.clone())
    }

    /// Whether it is time to count the table's rows.
    pub fn is_stale(&self, table: &Table) -> bool {
        let fresh = |kept: &Kept| kept.counted.elapsed() < FRESH_FOR;
        !crate::catalog::information_schema::is_virtual(&table.schema)
            && !self.tables.borrow().get(&table.schema.id).is_some_and(fresh)
    }

    /// Other histograms: what is known is asked for anew.
    pub fn set_histograms(&self, histograms: &Histograms) {
        self.histograms.borrow_mut().clone_from(histograms);
        self.tables.borrow_mut().clear();
        self.generation.set(self.generation.get() + 1);
    }

    /// The table is gone.
    pub fn forget(&self, table: TableId) {
        self.tables.borrow_mut().remove(&table);
    }

    #[cfg(test)]
    pub fn set(&self, table: &Table, known: Known) {
        let kept = Kept { known: Rc::new(known), counted: Instant::now() };
        self.tables.borrow_mut().insert(table.schema.id, kept);
    }

    /// Counts a table's rows, and samples its indexes where there are many more or fewer than before, or `anew`.
    ///
    /// # Errors
    /// The cluster does not answer, or the table is another by now.
    pub async fn gather(&self, client: &Client, table: &Table, anew: bool) -> Result<(), ClientError> {
        let schema = &table.schema;
        let request = ScanRequest::all(schema.id, schema.version);
        let rows = (rows_of(client, table).await? as f64).max(ROWS_MIN);
        let before = self.of(table);
        let is_like = |known: &Rc<Known>| known.rows < rows * 2.0 && rows < known.rows * 2.0;
        if let Some(known) = before.filter(|known| is_like(known) && !anew) {
            let kept = Kept { known: Rc::new(Known { rows, ..(*known).clone() }), counted: Instant::now() };
            self.tables.borrow_mut().insert(schema.id, kept);
            return Ok(());
        }
        let secondary = table.ready_indexes().map(|(_, i)| (i.no, i.columns.clone(), i.unique));
        let all: Vec<_> = std::iter::once((IndexNo(0), schema.primary_key.clone(), true)).chain(secondary).collect();
        let mut indexes = Vec::with_capacity(all.len());
        for (no, columns, is_unique) in all {
            let mut per = if columns.len() == 1 && is_unique {
                vec![1.0]
            } else {
                fronts(client, &ScanRequest { index: no, columns: Some(&columns), ..request }, table, rows).await?
            };
            if let (true, Some(last)) = (is_unique, per.last_mut()) {
                *last = 1.0;
            }
            indexes.push((no, columns, per));
        }
        let sample = Sample::take(client, table, rows).await?.map(Rc::new);
        let histograms = histogram::of_table(&self.histograms.borrow(), schema)
            .filter_map(|kept| Some((schema.column_no(&kept.definition.column)?, kept.clone())))
            .collect();
        let known = Known { rows, indexes, sample, histograms };
        self.tables.borrow_mut().insert(schema.id, Kept { known: Rc::new(known), counted: Instant::now() });
        // Of a temporary table no plan but those of its session know.
        self.generation.set(self.generation.get() + u64::from(!table.is_temporary()));
        Ok(())
    }
}

/// For 1, 2, ... columns of an index how many rows have the same values, by both its ends.
async fn fronts(client: &Client, request: &ScanRequest<'_>, table: &Table, rows: f64) -> Result<Vec<f64>, ClientError> {
    let columns = request.columns.unwrap_or_default();
    let layout = table.schema.layout().project_layout(columns).ok_or(ErrorCode::SchemaVersionChanged)?;
    let mut seen = 0u64;
    let mut values = vec![0u64; columns.len()];
    let mut ends: Vec<Option<f64>> = Vec::with_capacity(2);
    for reverse in [false, true] {
        let request =
            ScanRequest { ordered: true, reverse, limit: u64::from(SAMPLE_ROWS), batch_rows: SAMPLE_ROWS, ..*request };
        let mut cursor = client.scan(&request);
        let (mut batch, mut last) = (Rows::new(), Vec::new());
        while cursor.next_batch(&mut batch).await? {
            for row in batch.iter().flatten() {
                // From the first column on that differs all fronts are new ones.
                let differs =
                    |at: &usize| last.is_empty() || layout.value(&last, *at as u16) != layout.value(row, *at as u16);
                let first = (0..columns.len()).find(differs).unwrap_or(columns.len());
                values[first..].iter_mut().for_each(|count| *count += 1);
                if last.is_empty() {
                    ends.push(sample::number(&layout.value(row, 0)));
                }
                seen += 1;
                last.clear();
                last.extend_from_slice(row);
            }
        }
    }
    // So many numbers lie between the first and the last.
    let most = match ends[..] {
        [Some(first), Some(last)] => (last - first).abs() + 1.0,
        _ => 10.0,
    };
    // Nothing but one value at each end: it may be as long as the table.
    let is_one = |count: u64| count <= 2 && seen >= u64::from(SAMPLE_ROWS);
    let per = |&count: &u64| if is_one(count) { rows / most.max(10.0) } else { seen as f64 / count.max(1) as f64 };
    Ok(values.iter().map(per).map(|n| n.clamp(1.0, rows)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_of_indexes_tell_rows_and_values() {
        let indexes = vec![(IndexNo(0), vec![0], vec![1.0]), (IndexNo(2), vec![3, 1], vec![40.0, 4.0])];
        let known = Known { rows: 1000.0, indexes, ..Known::default() };
        assert_eq!(
            [known.rows_of(IndexNo(2), 1), known.rows_of(IndexNo(2), 2), known.rows_of(IndexNo(2), 0)],
            [40.0, 4.0, 1000.0]
        );
        assert_eq!((known.values_of(0), known.values_of(3), known.values_of(1)), (Some(1000.0), Some(25.0), None));
    }
}

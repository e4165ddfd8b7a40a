//! Some rows of a table, of which conditions are asked that no index knows anything of.
//!
//! They are read along the primary key: where it begins with a whole number from [`PLACES`] places that are spread evenly between its ends, otherwise from both ends. So a column whose values follow the
//! key (a date of entry) is seen all through. Columns with long values are left out; a condition on one of these is guessed.

use std::{cell::RefCell, collections::BTreeMap, ops::Bound, sync::Arc};

use apus_client::{Client, ClientError, Rows, ScanRequest};
use apus_types::{Column, ColumnType, RowLayout, TableSchema, Value, key};

use crate::{
    catalog::Table,
    expr::{Context, Env, Expr, fold, func::Func},
    server::Interrupt,
    spill::byte_strings::{StringSet, Strings},
    value::temporal,
};

/// Rows of a sample, and the places that they are read from.
const ROWS: u64 = 512;
const PLACES: u64 = 16;
/// No more rows when these have so many bytes.
const BYTES_MAX: usize = 128 << 10;
/// Longest declared text of a column that is looked at.
const TEXT_CHARS_MAX: u16 = 255;

/// What the rows say of a column.
#[derive(Clone, Copy, Debug)]
struct Values {
    /// Different ones, and how many of those were seen once.
    distinct: f64,
    single: f64,
    /// Part of the rows that have the value that some row has: what `=` leaves of a constant that is not known.
    equal: f64,
}

#[derive(Debug)]
pub struct Sample {
    /// Columns of the table, in the order that rows have them.
    columns: Vec<u16>,
    layout: RowLayout,
    rows: Strings,
    values: RefCell<BTreeMap<u16, Option<Values>>>,
    env: Env,
}

/// As a number that has neighbours: whole numbers and days.
pub fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::UInt(n) => Some(*n as f64),
        Value::Date(packed) => {
            let (year, month, day) = apus_types::time::unpack_date(*packed);
            Some(temporal::day_number(&apus_types::time::Civil { year, month, day, ..Default::default() }) as f64)
        }
        _ => None,
    }
}

fn is_short(column: &Column) -> bool {
    match column.ty {
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => length <= TEXT_CHARS_MAX,
        ColumnType::Binary { length } | ColumnType::VarBinary { length } => length <= TEXT_CHARS_MAX,
        ty => ty.fixed_bytes().is_some(),
    }
}

impl Sample {
    /// Reads one; `None`: there is nothing to look at.
    ///
    /// # Errors
    /// The cluster does not answer, or the table is another by now.
    pub async fn take(client: &Client, table: &Table, rows: f64) -> Result<Option<Sample>, ClientError> {
        let schema = &table.schema;
        let columns: Vec<u16> =
            (0..schema.columns.len() as u16).filter(|c| is_short(&schema.columns[usize::from(*c)])).collect();
        let Some(layout) = schema.layout().project_layout(&columns).filter(|_| !columns.is_empty()) else {
            return Ok(None);
        };
        let mut sample = Sample::of(columns, layout);
        let leading = schema.primary_key.first().map(|&c| (c, sample.place(c)));
        let is_read = match leading {
            _ if rows <= ROWS as f64 => {
                sample.read(client, schema, Bound::Unbounded, false, ROWS).await?;
                true
            }
            Some((column, Some(place))) => sample.read_places(client, schema, column, place).await?,
            _ => false,
        };
        if !is_read {
            sample.rows.clear();
            for reverse in [false, true] {
                sample.read(client, schema, Bound::Unbounded, reverse, ROWS / 2).await?;
            }
        }
        Ok(Some(sample))
    }

    fn of(columns: Vec<u16>, layout: RowLayout) -> Sample {
        let env = Env::new(String::new(), String::new(), 0, 0, Arc::<Interrupt>::default());
        Sample { columns, layout, rows: Strings::default(), values: RefCell::default(), env }
    }

    fn place(&self, column: u16) -> Option<u16> {
        self.columns.iter().position(|c| *c == column).map(|at| at as u16)
    }

    /// Along a key that begins with a whole number; false where it does not.
    async fn read_places(
        &mut self,
        client: &Client,
        schema: &TableSchema,
        column: u16,
        place: u16,
    ) -> Result<bool, ClientError> {
        let ColumnType::Int { .. } = schema.columns[usize::from(column)].ty else { return Ok(false) };
        let each = ROWS / PLACES;
        self.read(client, schema, Bound::Unbounded, false, each).await?;
        let middle = self.rows.len();
        self.read(client, schema, Bound::Unbounded, true, each).await?;
        let at = |row: usize| self.rows.get(row).and_then(|row| number(&self.layout.value(row, place)));
        let (Some(first), Some(last)) = (at(0), at(middle)) else { return Ok(middle > 0) };
        for step in 1..PLACES - 1 {
            let from = first + (last - first) * step as f64 / (PLACES - 1) as f64;
            let value = if from < 0.0 { Value::Int(from as i64) } else { Value::UInt(from as u64) };
            let mut low = Vec::new();
            let part = &schema.columns[usize::from(column)];
            key::encode_part(part.ty, part.nullable, &value, &mut low)?;
            self.read(client, schema, Bound::Included(&low), false, each).await?;
        }
        Ok(true)
    }

    async fn read(
        &mut self,
        client: &Client,
        schema: &TableSchema,
        low: Bound<&[u8]>,
        reverse: bool,
        limit: u64,
    ) -> Result<(), ClientError> {
        let columns = self.columns.clone();
        let all = ScanRequest::all(schema.id, schema.version);
        let request = ScanRequest {
            columns: Some(&columns),
            ordered: true,
            reverse,
            low,
            limit,
            batch_rows: limit as u32,
            ..all
        };
        let mut cursor = client.scan(&request);
        let mut batch = Rows::new();
        while cursor.next_batch(&mut batch).await? {
            for row in batch.iter().flatten() {
                if self.rows.byte_len() < BYTES_MAX {
                    self.rows.push(row);
                }
            }
        }
        Ok(())
    }

    pub fn type_of(&self, column: u16) -> Option<ColumnType> {
        self.layout.column_type(self.place(column)?)
    }

    fn values(&self, column: u16) -> Option<Values> {
        if let Some(known) = self.values.borrow().get(&column) {
            return *known;
        }
        let counted = self.place(column).and_then(|place| self.count(column, place));
        self.values.borrow_mut().insert(column, counted);
        counted
    }

    fn count(&self, column: u16, place: u16) -> Option<Values> {
        let ty = self.layout.column_type(place)?;
        let (mut keys, mut counts) = (StringSet::default(), Vec::new());
        for row in self.rows.iter() {
            let value = self.layout.value(row, place);
            if value.is_null() {
                continue;
            }
            let (number, is_new) = keys.insert_with(|out| key::encode_part(ty, false, &value, out)).ok()?;
            if is_new {
                counts.push(0u32);
            }
            counts[number] += 1;
        }
        let rows = self.rows.len().max(1) as f64;
        debug_assert!(self.columns.contains(&column));
        Some(Values {
            distinct: counts.len() as f64,
            single: counts.iter().filter(|n| **n == 1).count() as f64,
            equal: counts.iter().map(|n| (f64::from(*n) / rows).powi(2)).sum(),
        })
    }

    /// How many values a column of a table of so many rows has, by the number of those that were seen once and more often (Charikar and others, Towards estimation error guarantees for distinct
    /// values, 2000).
    pub fn values_of(&self, column: u16, rows: f64) -> Option<f64> {
        let values = self.values(column)?;
        let scale = (rows / self.rows.len().max(1) as f64).max(1.0).sqrt();
        Some((scale * values.single + values.distinct - values.single).clamp(1.0, rows.max(1.0)))
    }

    /// Part of the rows that have a value of this column, whichever it is.
    pub fn equal_of(&self, column: u16) -> Option<f64> {
        self.values(column).filter(|_| !self.rows.is_empty()).map(|values| values.equal)
    }

    /// Part of the rows that satisfy a condition, whose columns are those of the table; `None`: that cannot be asked of these rows.
    pub fn part(&self, condition: &Expr) -> Option<f64> {
        let mut named = Vec::new();
        condition.columns(&mut named);
        let is_here = !named.is_empty() && named.iter().all(|column| self.columns.contains(column));
        if !is_here || self.rows.is_empty() || condition.any(|e| !is_askable(e)) {
            return None;
        }
        let mut condition = condition.clone();
        condition.project(&self.columns);
        let context = |row| Context::of_row(&self.layout, row, &self.env);
        let condition = fold::for_rows(Some(&condition), self.rows.len(), &context(&[]))?;
        let mut passed = 0.0;
        for row in self.rows.iter() {
            passed += f64::from(u8::from(condition.passes(&context(row)).ok()?));
        }
        self.env.take_notes();
        // What no row of these satisfies, some of the others may.
        Some((passed + 0.5) / (self.rows.len() as f64 + 1.0))
    }
}

/// It says the same for these rows as it will when the statement runs, and does nothing else.
fn is_askable(e: &Expr) -> bool {
    match e {
        Expr::Call(f, ..) => matches!(
            f,
            Func::DateAdd
                | Func::DateSub
                | Func::Substring
                | Func::Left
                | Func::Right
                | Func::Lower
                | Func::Upper
                | Func::Year
                | Func::Month
                | Func::Abs
        ),
        Expr::Const(_)
        | Expr::Column(_)
        | Expr::Negate(_)
        | Expr::Not(_)
        | Expr::Arith(..)
        | Expr::Compare(..)
        | Expr::NullSafeEq(..)
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::Xor(..)
        | Expr::IsNull { .. }
        | Expr::IsTruth { .. }
        | Expr::In { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::Case { .. }
        | Expr::Cast(..) => true,
        _ => false,
    }
}

/// For plans of tests: rows of these values.
#[cfg(test)]
pub fn of_rows(types: &[ColumnType], rows: &[Vec<Value<'_>>]) -> Sample {
    let layout = RowLayout::new(types.iter().copied());
    let mut sample = Sample::of((0..types.len() as u16).collect(), layout.clone());
    let mut encoded = Vec::new();
    for row in rows {
        encoded.clear();
        layout.encode(row, &mut encoded).expect("values of these types");
        sample.rows.push(&encoded);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        expr::{ColumnRef, CompareOp},
        value::datum::Datum,
    };

    const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };

    fn compare(op: CompareOp, to: i64) -> Expr {
        let column = Expr::Column(ColumnRef { slot: 1, ty: INT });
        Expr::Compare(op, Box::new(column), Box::new(Expr::Const(Datum::Int(to))), Default::default())
    }

    #[test]
    fn rows_are_asked_and_values_counted() {
        let row = |n: i64| vec![Value::Int(n), if n % 10 == 0 { Value::Null } else { Value::Int(n % 4) }];
        let sample = of_rows(&[INT, INT], &(0..100).map(row).collect::<Vec<_>>());
        let about = |found: Option<f64>, want: f64| assert!((found.unwrap() - want).abs() < 0.01, "{found:?} {want}");
        about(sample.part(&compare(CompareOp::Eq, 1)), 0.25);
        about(sample.part(&compare(CompareOp::Lt, 2)), 0.45);
        about(sample.part(&compare(CompareOp::Eq, 99)), 0.005);
        assert_eq!(sample.values_of(1, 10_000.0), Some(4.0));
        // All were seen once: there are more.
        assert_eq!(sample.values_of(0, 10_000.0), Some(1000.0));
        about(sample.equal_of(1), 2.0 * 0.25f64.powi(2) + 2.0 * 0.2f64.powi(2));
        let unknown = Expr::Compare(
            CompareOp::Eq,
            Box::new(Expr::Column(ColumnRef { slot: 1, ty: INT })),
            Box::new(Expr::Param(0)),
            Default::default(),
        );
        assert_eq!(sample.part(&unknown), None);
    }
}

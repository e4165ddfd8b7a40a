//! A path with the values of an execution: its keys and ranges as they are stored.

use std::ops::Bound;

use apus_types::{key, schema::TableSchema};

use super::{EncodedRange, Interval, Limit, Path};
use crate::{
    catalog::Table,
    errors::{self, Result},
    expr::{
        Context, Expr,
        assign::{
            self,
            index_key::{self, KeyValue},
        },
    },
    spill::byte_strings::Strings,
};

/// A path with its values.
#[derive(Debug, Default)]
pub struct BoundPath {
    /// Encoded keys of the index (or primary key), in order, each once.
    pub points: Strings,
    /// Where the keys of a product of lists are made.
    spare: Strings,
    pub(super) low: Vec<u8>,
    /// Excluded.
    pub(super) high: Vec<u8>,
    has_low: bool,
    has_high: bool,
    pub empty: bool,
    /// The bounds are the conditions exactly; otherwise the whole condition must be checked.
    pub exact: bool,
    /// The path could not be used: scan everything.
    pub fallback: bool,
    /// Of a union: disjoint, in order.
    pub ranges: Vec<EncodedRange>,
    /// What rows of a scan must be like ([`apus_types::filter`]); empty: all of them are wanted.
    pub filter: Vec<u8>,
    /// What data nodes put rows together to ([`apus_eval::grouping`]); empty: rows are wanted.
    pub grouping: Vec<u8>,
    /// Bounds and filter are the condition exactly.
    pub decides: bool,
    /// Where the filter's ranges are made.
    pub aside: Option<Box<BoundPath>>,
}

impl BoundPath {
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let (low, high) = self.limits();
        bounds_of(low, high)
    }
    /// The bounds as keys of their own.
    pub fn range(&self) -> EncodedRange {
        (self.has_low.then(|| self.low.clone()), self.has_high.then(|| self.high.clone()))
    }
    pub fn limits(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.has_low.then_some(self.low.as_slice()), self.has_high.then_some(self.high.as_slice()))
    }
    pub fn clear(&mut self) {
        self.points.clear();
        self.ranges.clear();
        self.filter.clear();
        self.grouping.clear();
        self.clear_bounds();
        (self.empty, self.exact, self.fallback, self.decides) = (false, true, false, false);
    }
    fn clear_bounds(&mut self) {
        self.low.clear();
        self.high.clear();
        (self.has_low, self.has_high) = (false, false);
    }
}

pub fn bounds_of<'k>(low: Option<&'k [u8]>, high: Option<&'k [u8]>) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (low.map_or(Bound::Unbounded, Bound::Included), high.map_or(Bound::Unbounded, Bound::Excluded))
}

impl Path {
    /// Evaluates the constants and encodes the keys.
    pub fn bind(&self, table: &Table, cx: &Context<'_>, out: &mut BoundPath) -> Result<()> {
        out.clear();
        let schema = &table.schema;
        match self {
            Path::Listed(listed) => super::listed::bind(table, listed, cx, out),
            Path::Points { columns, values, rows: true, .. } => bind_rows(schema, columns, values, cx, out),
            Path::Points { columns, values, .. } => bind_points(schema, columns, values, cx, out),
            Path::Range { columns, equal, low, high, beginning, .. } => {
                bind_range(schema, columns, equal, (low, high, *beginning), cx, out)
            }
            Path::Union { columns, alternatives, .. } => bind_union(schema, columns, alternatives, cx, out),
        }
    }
}

pub fn encode(
    schema: &TableSchema,
    column: u16,
    value: &crate::value::datum::Datum<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let c = &schema.columns[usize::from(column)];
    key::encode_part(c.ty, c.nullable, &assign::stored(c.ty, value), out).map_err(|e| errors::from_code(e, ""))
}

pub(super) fn give_up(out: &mut BoundPath) -> Result<()> {
    out.points.clear();
    out.ranges.clear();
    out.clear_bounds();
    (out.exact, out.fallback) = (false, true);
    Ok(())
}

fn bind_points(
    schema: &TableSchema,
    columns: &[u16],
    values: &[Vec<Expr>],
    cx: &Context<'_>,
    out: &mut BoundPath,
) -> Result<()> {
    for (i, (&column, alternatives)) in columns.iter().zip(values).enumerate() {
        let ty = schema.columns[usize::from(column)].ty;
        std::mem::swap(&mut out.points, &mut out.spare);
        out.points.clear();
        for e in alternatives {
            let value = match index_key::key_value(ty, e.eval(cx)?, cx.env.zone()) {
                KeyValue::Exact(value) => value,
                KeyValue::Unusable => return give_up(out),
                _ => continue,
            };
            for prefix in 0..if i == 0 { 1 } else { out.spare.len() } {
                let key = out.points.writer();
                key.extend_from_slice(out.spare.get(prefix).filter(|_| i > 0).unwrap_or(&[]));
                encode(schema, column, &value, key)?;
                out.points.end();
            }
        }
    }
    if out.points.len() > 1 {
        out.points.sort_and_dedup();
    }
    out.empty = out.points.is_empty();
    Ok(())
}

/// Each of `rows` is a whole key.
fn bind_rows(
    schema: &TableSchema,
    columns: &[u16],
    rows: &[Vec<Expr>],
    cx: &Context<'_>,
    out: &mut BoundPath,
) -> Result<()> {
    for row in rows {
        let mut possible = true;
        for (&column, e) in columns.iter().zip(row) {
            match index_key::key_value(schema.columns[usize::from(column)].ty, e.eval(cx)?, cx.env.zone()) {
                KeyValue::Exact(value) => encode(schema, column, &value, out.points.writer())?,
                KeyValue::Unusable => {
                    out.points.abandon();
                    return give_up(out);
                }
                _ => possible = false,
            }
        }
        if possible { out.points.end() } else { out.points.abandon() }
    }
    if out.points.len() > 1 {
        out.points.sort_and_dedup();
    }
    out.empty = out.points.is_empty();
    Ok(())
}

/// Sorts the alternatives and joins those that touch.
pub fn bind_union(
    schema: &TableSchema,
    columns: &[u16],
    alternatives: &[Interval],
    cx: &Context<'_>,
    out: &mut BoundPath,
) -> Result<()> {
    let mut ranges: Vec<EncodedRange> = Vec::with_capacity(alternatives.len());
    for Interval { low, high } in alternatives {
        out.clear_bounds();
        out.empty = false;
        bind_range(schema, columns, &[], (low, high, None), cx, out)?;
        if out.fallback {
            return Ok(());
        }
        if !out.empty {
            ranges.push((out.has_low.then(|| out.low.clone()), out.has_high.then(|| out.high.clone())));
        }
    }
    out.clear_bounds();
    ranges.sort_unstable(); // without a lower bound first
    for (low, high) in ranges {
        match out.ranges.last_mut() {
            Some((_, end)) if end.is_none() || low <= *end => {
                if end.is_some() && (high.is_none() || high > *end) {
                    *end = high;
                }
            }
            _ => out.ranges.push((low, high)),
        }
    }
    out.empty = out.ranges.is_empty();
    Ok(())
}

pub fn bind_range(
    schema: &TableSchema,
    columns: &[u16],
    equal: &[Expr],
    (low, high, beginning): (&Limit, &Limit, Option<usize>),
    cx: &Context<'_>,
    out: &mut BoundPath,
) -> Result<()> {
    let encode_bound = |column: u16, value: &crate::value::datum::Datum<'_>, out: &mut Vec<u8>| match beginning {
        None => encode(schema, column, value, out),
        Some(length) => {
            let c = &schema.columns[usize::from(column)];
            let value = assign::stored(c.ty, value);
            key::encode_beginning(c.ty, c.nullable, &value, length, out).map_err(|e| errors::from_code(e, ""))
        }
    };
    let BoundPath { low: low_key, high: high_key, .. } = out;
    for (&column, e) in columns.iter().zip(equal) {
        match index_key::key_value(schema.columns[usize::from(column)].ty, e.eval(cx)?, cx.env.zone()) {
            KeyValue::Exact(value) => encode(schema, column, &value, low_key)?,
            KeyValue::Unusable => return give_up(out),
            _ => {
                out.empty = true;
                return Ok(());
            }
        }
    }
    let prefix = low_key.len();
    high_key.extend_from_slice(low_key);
    let next = columns.get(equal.len()).copied();
    let mut possible = true;
    let mut high_found = None;
    if let Some(column) = next.filter(|_| low.is_some() || high.is_some()) {
        let c = &schema.columns[usize::from(column)];
        if c.nullable {
            low_key.push(1); // above NULL, which no comparison selects
        }
        if let Some((e, inclusive)) = low {
            let mut set = |value, after: bool| -> Result<bool> {
                low_key.truncate(prefix);
                encode_bound(column, &value, low_key)?;
                Ok(!after || beginning.is_some() || key::successor_of_prefix(low_key))
            };
            possible &= match index_key::key_value(c.ty, e.eval(cx)?, cx.env.zone()) {
                KeyValue::Exact(value) => set(value, !inclusive)?,
                KeyValue::Above(value) => set(value, true)?,
                KeyValue::BelowAll => true,
                KeyValue::Never | KeyValue::AboveAll => false,
                KeyValue::Unusable => return give_up(out),
            };
        }
        if let Some((e, inclusive)) = high {
            let mut set = |value, after: bool| -> Result<bool> {
                encode_bound(column, &value, high_key)?;
                Ok(!after || key::successor_of_prefix(high_key))
            };
            match index_key::key_value(c.ty, e.eval(cx)?, cx.env.zone()) {
                KeyValue::Exact(value) => high_found = Some(set(value, *inclusive)?),
                KeyValue::Above(value) => high_found = Some(set(value, true)?),
                KeyValue::AboveAll => {}
                KeyValue::Never | KeyValue::BelowAll => possible = false,
                KeyValue::Unusable => return give_up(out),
            }
        }
    }
    out.has_low = !low_key.is_empty();
    out.has_high = high_found.unwrap_or_else(|| key::successor_of_prefix(high_key));
    out.empty = !possible || out.has_low && out.has_high && out.low >= out.high;
    Ok(())
}

//! How many rows: of a condition, of a path, of a query block. Guesses where statistics say nothing.

use apus_types::IndexNo;

use super::{
    Select,
    access::{Access, Path},
    query::{Body, Derived},
};
use crate::{
    catalog::{
        histogram::selectivity::of_condition,
        statistics::{Known, Statistics},
    },
    expr::{CompareOp, Expr},
    value::datum::Datum,
};

/// Rows of a derived table of which nothing is known.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Rows of one group.
const ROWS_OF_A_GROUP: f64 = 4.0;

/// Which part of the rows satisfies a condition on one table. `fetched`: the columns that the condition names by place; `None`: it names them as the table does.
pub fn part(e: &Expr, known: &Known, fetched: Option<&[u16]>) -> f64 {
    let Some(fetched) = fetched else { return part_of(e, known) };
    let mut of_table = e.clone();
    of_table.walk_mut(&mut |e| {
        if let Expr::Column(c) = e {
            c.slot = fetched.get(usize::from(c.slot)).copied().unwrap_or(u16::MAX);
        }
    });
    part_of(&of_table, known)
}

/// By histograms, by the rows of a sample, or as a guess.
fn part_of(e: &Expr, known: &Known) -> f64 {
    let of_histogram = of_condition(e, &|column| known.histogram(column));
    // Where there are histograms, each condition is asked of its own first.
    let is_compound = matches!(e, Expr::And(_) | Expr::Or(_)) && !known.histograms.is_empty();
    let of_sample = || known.sample.as_ref().filter(|_| !is_compound)?.part(e);
    of_histogram.or_else(of_sample).unwrap_or_else(|| guess(e, known))
}

fn guess(e: &Expr, known: &Known) -> f64 {
    let column = |e: &Expr| if let Expr::Column(c) = e { known.equal_to(c.slot) } else { None };
    let equal = |e: &Expr| column(e).unwrap_or(0.1);
    let negated = |part: f64, is: bool| if is { 1.0 - part } else { part };
    match e {
        Expr::Compare(CompareOp::Eq, a, b, _) | Expr::NullSafeEq(a, b, _) => equal(a).min(equal(b)),
        Expr::Compare(CompareOp::NotEq, ..) => 0.9,
        Expr::Compare(..) => 0.33,
        Expr::Between { negated: is, .. } => negated(0.2, *is),
        Expr::In { expr, list, negated: is, .. } => negated((equal(expr) * list.len() as f64).min(0.5), *is),
        Expr::Like { negated: is, .. } => negated(0.1, *is),
        Expr::IsNull { negated: is, .. } => negated(0.1, *is),
        Expr::And(list) => list.iter().map(|e| part_of(e, known)).product(),
        Expr::Or(list) => list.iter().map(|e| part_of(e, known)).sum::<f64>().min(0.9),
        Expr::Not(e) => 1.0 - part_of(e, known),
        _ => 0.5,
    }
}

/// Rows that a path reads, its values taken for constants.
pub fn read_by(path: &Path, known: &Known) -> f64 {
    let rows = match path {
        Path::Points { values, rows: true, .. } => values.len() as f64,
        Path::Points { values, .. } => values.iter().map(|list| list.len() as f64).product(),
        Path::Range { index, columns, equal, low, high, .. } => {
            let bounds = match (low, high) {
                (Some(_), Some(_)) => 0.2,
                (None, None) => 1.0,
                _ => 0.33,
            };
            let column = columns.get(equal.len()).copied();
            let bounds = column.and_then(|column| known.within(column, low, high)).unwrap_or(bounds);
            bounds * if equal.is_empty() { known.rows } else { known.rows_of(*index, equal.len()) }
        }
        // As if each element were that of one row in twenty.
        Path::Listed(_) => known.rows * 0.05,
        Path::Union { index, alternatives, .. } => {
            let one = |i: &super::access::Interval| match (&i.low, &i.high) {
                (Some((low, _)), Some((high, _))) if low == high => known.rows_of(*index, 1),
                (Some(_), Some(_)) => known.rows * 0.2,
                _ => known.rows * 0.33,
            };
            alternatives.iter().map(one).sum()
        }
    };
    rows.clamp(1.0, known.rows.max(1.0))
}

/// Rows that an access reads, and those of them that satisfy its condition, as of [`part`].
pub fn of_access(access: &Access, known: &Known, fetched: Option<&[u16]>) -> (f64, f64) {
    let read = read_by(&access.path, known);
    let rest = access.rest.as_ref().map_or(1.0, |e| part(e, known, fetched));
    (read, (read * rest).max(0.01))
}

/// Rows of a query block.
pub fn of_select(select: &Select, statistics: &Statistics) -> f64 {
    let rows = match (&select.join, &select.table, &select.access) {
        (Some(join), ..) => join.rows.unwrap_or(UNKNOWN_ROWS),
        (None, Some(table), Some(access)) => match statistics.of(table) {
            Some(known) => of_access(access, &known, select.columns.as_deref()).1,
            None => UNKNOWN_ROWS,
        },
        _ => 1.0,
    };
    let rows = match &select.group {
        Some(group) if group.keys.is_empty() => 1.0,
        Some(group) => rows / ROWS_OF_A_GROUP * if group.having.is_some() { 0.1 } else { 1.0 },
        None => rows,
    };
    let limit = match &select.limit {
        Some(Expr::Const(Datum::Int(limit))) => *limit as f64,
        _ => f64::INFINITY,
    };
    rows.min(limit).max(1.0)
}

/// Rows of a derived table.
pub fn of_derived(derived: &Derived, statistics: &Statistics) -> f64 {
    fn body(b: &Body, statistics: &Statistics) -> f64 {
        match b {
            Body::Select(select) => of_select(select, statistics),
            Body::Set { left, right, .. } => body(left, statistics) + body(right, statistics),
            Body::Recursive { first, .. } => body(first, statistics) * 10.0,
            Body::LastRows | Body::JsonTable { .. } => 10.0,
        }
    }
    body(&derived.body, statistics)
}

/// The primary key of a table is its index 0.
pub const PRIMARY: IndexNo = IndexNo(0);

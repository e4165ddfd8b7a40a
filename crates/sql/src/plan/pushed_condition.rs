//! Conditions that data nodes ask while they scan, so that rows nobody wants do not cross the network ([`apus_types::filter`]; NDB's pushed conditions).
//!
//! Of the conditions that a path leaves over those become tests that compare one column with constants, or two columns of one type. Constants are made keys as for a path, so
//! a test says what the bounds of an index on its column would. Rows that come are asked all conditions once more, unless the tests say exactly what is left ([`Pushed::says_all`]):
//! then the condition is decided, and aggregates may be computed beside the data as well.
//!
//! MySQL asks conditions in the order in which they stand, and one that is not true spares those behind it. So a condition is pushed only if none before it can give a warning or an error; those
//! behind it are asked of the rows that come, as ever. A constant that makes no key (text beside a number) is found when the statement runs, and ends the list there.

use std::rc::Rc;

use apus_types::{
    filter::{self, Set},
    schema::TableSchema,
};

use super::access::{
    Interval, Limit,
    binding::{BoundPath, bind_range, bind_union},
    choice::alternatives_of,
};
use crate::{
    errors::Result,
    expr::{CompareOp, Context, Expr, Func},
    value::datum::Datum,
};

/// One test; columns are those of the table.
#[derive(Debug, Clone)]
pub enum Test {
    /// `beginning`: of the first characters of a text.
    Ranges {
        column: u16,
        beginning: Option<Beginning>,
        alternatives: Vec<Interval>,
        negated: bool,
    },
    IsNull {
        column: u16,
        negated: bool,
    },
    Columns {
        left: u16,
        op: CompareOp,
        right: u16,
    },
    Like {
        column: u16,
        pattern: Expr,
        escape: Option<u8>,
        negated: bool,
    },
    /// What a join asks for.
    Set {
        column: u16,
        set: Rc<Set>,
    },
}

/// SUBSTRING of a text from a position, which is to be 1, or LEFT.
#[derive(Debug, Clone, PartialEq)]
pub struct Beginning {
    position: Option<Expr>,
    pub length: Expr,
}

impl Beginning {
    /// With the column that it is of.
    fn of(e: &Expr) -> Option<(&Expr, Beginning)> {
        let (column, position, length) = match e {
            Expr::Call(Func::Substring, arguments, _) => {
                let [column, position, length] = arguments.as_slice() else { return None };
                (column, Some(position.clone()), length)
            }
            Expr::Call(Func::Left, arguments, _) => {
                let [column, length] = arguments.as_slice() else { return None };
                (column, None, length)
            }
            _ => return None,
        };
        let is_text = matches!(column, Expr::Column(c) if filter::is_testable_text(c.ty));
        let are_known = length.is_constant() && position.as_ref().is_none_or(Expr::is_constant);
        (is_text && are_known).then(|| (column, Beginning { position, length: length.clone() }))
    }

    /// The condition on the column itself that is asked of a beginning; none where there is no beginning in it, `None` where there are several, or columns beside it.
    fn taken_out(condition: &Expr) -> Option<(Option<Expr>, Option<Beginning>)> {
        let (mut found, mut is_one, mut beginnings, mut columns) = (None, true, 0, 0);
        let mut of_column = condition.clone();
        condition.walk(&mut |e| columns += usize::from(matches!(e, Expr::Column(_))));
        of_column.walk_mut(&mut |e| {
            let Some((column, beginning)) = Beginning::of(e) else { return };
            let column = column.clone();
            is_one &= found.as_ref().is_none_or(|known| *known == beginning);
            found = Some(beginning);
            beginnings += 1;
            *e = column;
        });
        match found {
            None => Some((None, None)),
            found => (is_one && beginnings == columns).then_some((Some(of_column), found)),
        }
    }

    /// How many characters; `None`: not of the beginning, or of more than every text has a key for.
    fn characters(&self, cx: &Context<'_>) -> Result<Option<u16>> {
        let number = |e: &Expr| -> Result<Option<u16>> {
            Ok(if let Datum::Int(n) = e.eval(cx)? { u16::try_from(n).ok() } else { None })
        };
        let is_first = match &self.position {
            Some(position) => number(position)? == Some(1),
            None => true,
        };
        Ok(number(&self.length)?.filter(|n| is_first && (1..=filter::EXACT_LENGTH_MAX).contains(n)))
    }
}

/// Tests of rows, in the order of their conditions.
#[derive(Debug, Clone, Default)]
pub struct Pushed {
    tests: Vec<Test>,
    /// Whoever passes them satisfies all that the path leaves over.
    pub says_all: bool,
}

impl Pushed {
    /// Of the conditions that a scan leaves over.
    pub fn of<'e>(schema: &TableSchema, conditions: impl Iterator<Item = &'e Expr>) -> Pushed {
        let mut pushed = Pushed { tests: Vec::new(), says_all: true };
        for condition in conditions {
            match test_of(schema, condition).filter(|_| pushed.tests.len() < filter::TESTS_MAX) {
                Some(test) => {
                    pushed.says_all &= test.is_exact(schema);
                    pushed.tests.push(test);
                }
                None => {
                    pushed.says_all = false;
                    if !is_quiet(condition) {
                        break;
                    }
                }
            }
        }
        pushed
    }

    /// With one more: a column has a value that is in this set.
    pub fn and_set(&self, column: u16, set: Set) -> Pushed {
        let mut more = self.clone();
        more.tests.push(Test::Set { column, set: Rc::new(set) });
        more
    }

    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    pub fn has_tests(&self) -> bool {
        !self.tests.is_empty()
    }

    /// Writes the filter of a path that is bound: `bound.filter`, and whether it decides; a test that nothing can pass makes the path empty.
    ///
    /// # Errors
    /// What the constants end in.
    pub fn bind(&self, schema: &TableSchema, cx: &Context<'_>, bound: &mut BoundPath) -> Result<()> {
        // Data nodes see a CHAR without the spaces that it may have here.
        if self.tests.is_empty() || bound.empty || cx.env.variables.pads_chars {
            return Ok(());
        }
        let mut one = bound.aside.take().unwrap_or_default();
        bound.decides = self.says_all && bound.exact;
        let mut ranges_left = filter::RANGES_MAX;
        for test in &self.tests {
            let before = bound.filter.len();
            let is_pushed = test.bind(schema, cx, &mut one, &mut ranges_left, &mut bound.filter)?;
            if !is_pushed || bound.filter.len() > filter::FILTER_BYTES_MAX {
                bound.filter.truncate(before);
                bound.decides = false;
                break;
            }
            if one.empty {
                bound.empty = true;
                break;
            }
        }
        bound.aside = Some(one);
        Ok(())
    }
}

impl Test {
    /// It passes no row of which the condition is not true. A text may have no key, and NULL may be among what is negated.
    fn is_exact(&self, schema: &TableSchema) -> bool {
        match self {
            Test::Ranges { column, beginning, negated, .. } => {
                !negated && (beginning.is_some() || filter::is_exact(schema.columns[usize::from(*column)].ty))
            }
            Test::IsNull { .. } | Test::Columns { .. } | Test::Like { .. } | Test::Set { .. } => true,
        }
    }

    /// Appends the test to a filter; false where a constant makes no key, or there are too many.
    fn bind(
        &self,
        schema: &TableSchema,
        cx: &Context<'_>,
        one: &mut BoundPath,
        ranges_left: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        one.clear();
        let (column, alternatives, negated) = match *self {
            Test::Columns { left, op, right } => {
                filter::push_columns(out, left, filter::orders(|order| op.holds(order)), right);
                return Ok(true);
            }
            Test::IsNull { column, negated } => {
                let marked = if negated { (Some(&[1][..]), None) } else { (None, Some(&[1][..])) };
                filter::push_ranges(out, column, std::iter::once(marked));
                return Ok(true);
            }
            Test::Like { column, ref pattern, escape, negated } => {
                let pattern = pattern.eval(cx)?;
                one.empty = pattern.is_null();
                let text = pattern.as_text();
                filter::push_like(out, column, text.get(..filter::PATTERN_BYTES_MAX).unwrap_or(&text), escape, negated);
                return Ok(text.len() <= filter::PATTERN_BYTES_MAX);
            }
            Test::Set { column, ref set } => {
                filter::push_set(out, column, set.bytes());
                return Ok(true);
            }
            Test::Ranges { column, ref alternatives, negated, .. } => (column, alternatives, negated),
        };
        let characters = match self {
            Test::Ranges { beginning: Some(beginning), .. } => match beginning.characters(cx)? {
                None => return Ok(false),
                characters => characters,
            },
            _ => None,
        };
        match alternatives.as_slice() {
            [Interval { low, high }] => bind_range(schema, &[column], &[], (low, high, None), cx, one)?,
            _ => bind_union(schema, &[column], alternatives, cx, one)?,
        }
        // What is negated has a range more at most.
        let count = one.ranges.len().max(1) + usize::from(negated);
        match ranges_left.checked_sub(count).filter(|_| !one.fallback) {
            Some(left) => *ranges_left = left,
            None => return Ok(false),
        }
        let whole = [one.limits()];
        let ranges = one.ranges.iter().map(|(low, high)| (low.as_deref(), high.as_deref()));
        let list: Vec<filter::KeyRange<'_>> = match (alternatives.len(), negated) {
            (1, false) => whole.to_vec(),
            (_, false) => ranges.collect(),
            (1, true) => others(schema, column, whole.into_iter().filter(|_| !one.empty)),
            (_, true) => others(schema, column, ranges),
        };
        let is_empty = if negated { list.is_empty() } else { one.empty };
        match characters {
            Some(characters) => filter::push_ranges_of_beginning(out, column, characters, list.into_iter()),
            None => filter::push_ranges(out, column, list.into_iter()),
        }
        one.empty = is_empty;
        Ok(true)
    }
}

/// All values but NULL that are in none of the ranges.
fn others<'r>(
    schema: &TableSchema,
    column: u16,
    ranges: impl Iterator<Item = filter::KeyRange<'r>>,
) -> Vec<filter::KeyRange<'r>> {
    let mut others = Vec::new();
    let mut from = Some(schema.columns[usize::from(column)].nullable.then_some(&[1][..]));
    for (low, high) in ranges {
        if let Some(start) = from.filter(|start| low > *start) {
            others.push((start, low));
        }
        from = high.map(Some);
    }
    others.extend(from.map(|start| (start, None)));
    others
}

fn test_of(schema: &TableSchema, condition: &Expr) -> Option<Test> {
    let positive = match condition {
        Expr::Compare(op, a, b, _) if let (Expr::Column(left), Expr::Column(right)) = (&**a, &**b) => {
            let (are_comparable, op) = (filter::are_comparable(left.ty, right.ty), *op);
            return are_comparable.then_some(Test::Columns { left: left.slot, op, right: right.slot });
        }
        Expr::Like { expr, pattern, escape, negated, collation } => {
            let Expr::Column(c) = &**expr else { return None };
            let is_own = filter::is_testable_text(c.ty) && c.ty.collation() == Some(*collation);
            let may = is_own && matches!(**pattern, Expr::Const(_) | Expr::Param(_));
            let (column, escape, negated) = (c.slot, *escape, *negated);
            return may.then(|| Test::Like { column, pattern: (**pattern).clone(), escape, negated });
        }
        Expr::IsNull { expr, negated } => {
            let Expr::Column(c) = &**expr else { return None };
            let definition = schema.columns.get(usize::from(c.slot))?;
            let may = definition.nullable && filter::is_testable(definition.ty);
            return may.then_some(Test::IsNull { column: c.slot, negated: *negated });
        }
        Expr::Compare(CompareOp::NotEq, a, b, collation) => {
            Some(Expr::Compare(CompareOp::Eq, a.clone(), b.clone(), *collation))
        }
        Expr::In { negated: true, expr, list, collation } => {
            Some(Expr::In { negated: false, expr: expr.clone(), list: list.clone(), collation: *collation })
        }
        Expr::Between { negated: true, expr, low, high, collation } => {
            let (expr, low, high) = (expr.clone(), low.clone(), high.clone());
            Some(Expr::Between { negated: false, expr, low, high, collation: *collation })
        }
        _ => None,
    };
    let condition_of = positive.as_ref().unwrap_or(condition);
    let (of_column, beginning) = Beginning::taken_out(condition_of)?;
    let (column, alternatives) = alternatives_of(schema, of_column.as_ref().unwrap_or(condition_of))?;
    let is_given = |limit: &Limit| !limit.as_ref().is_some_and(|(e, _)| e.any(|e| matches!(e, Expr::Outer(_))));
    let may = filter::is_testable(schema.columns.get(usize::from(column))?.ty)
        && alternatives.len() < filter::RANGES_MAX
        && alternatives.iter().all(|a| is_given(&a.low) && is_given(&a.high));
    may.then_some(Test::Ranges { column, beginning, alternatives, negated: positive.is_some() })
}

/// No row makes it warn or fail.
fn is_quiet(condition: &Expr) -> bool {
    match condition {
        Expr::IsNull { expr, .. } => matches!(**expr, Expr::Column(_)),
        Expr::Like { expr, pattern, .. } => {
            matches!(&**expr, Expr::Column(c) if c.ty.is_text()) && matches!(**pattern, Expr::Const(_) | Expr::Param(_))
        }
        Expr::Not(e) => is_quiet(e),
        Expr::And(list) | Expr::Or(list) => list.iter().all(is_quiet),
        _ => false,
    }
}

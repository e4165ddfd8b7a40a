//! Window functions of a block: what is computed for a row of it and of those around, behind GROUP BY and HAVING, before DISTINCT and ORDER BY.
//!
//! An expression names the value of one as an aggregate from [`WINDOW`] on; when the block is bound these values have their places behind those of its aggregates
//! ([`super::rollup`]).

use super::{bind::Aggregate, select::OrderKey};
use crate::expr::{Expr, Kind};

/// Aggregates from here on are window functions.
pub const WINDOW: usize = 1 << 32;

#[derive(Clone, PartialEq, Debug)]
pub enum Function {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(Expr),
    /// LAG and LEAD.
    Shifted {
        back: bool,
        by: Option<Expr>,
        otherwise: Option<Expr>,
    },
    First,
    Last,
    Nth(Expr),
    Aggregate(Aggregate),
}

/// A call of a window function.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub function: Function,
    /// What LAG, LEAD, FIRST_VALUE, LAST_VALUE and NTH_VALUE show of a row.
    pub argument: Option<Expr>,
    /// Its window's number.
    pub window: usize,
}

/// Where a frame begins or ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Bound {
    /// UNBOUNDED: the partition's.
    Partition,
    /// With RANGE all rows that are equal in order.
    CurrentRow,
    /// So many rows before (behind) the current one.
    Rows { count: Expr, preceding: bool },
    /// Where the ORDER BY expression has this value, which is made of that of the current row and of `distance`.
    Value { value: Expr, distance: Expr, preceding: bool },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    pub is_rows: bool,
    pub start: Bound,
    pub end: Bound,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    pub name: String,
    pub partition: Vec<OrderKey>,
    pub order: Vec<OrderKey>,
    /// `None`: all of the partition, with ORDER BY as far as the current row and its equals.
    pub frame: Option<Frame>,
}

impl Window {
    /// How values of the ORDER BY expression are compared with those of [`Bound::Value`].
    pub fn value_kind(&self) -> Option<Kind> {
        let frame = self.frame.as_ref()?;
        let key = self.order.first()?;
        [&frame.start, &frame.end].into_iter().find_map(|bound| match bound {
            Bound::Value { value, .. } => Some(common_kind(key.kind, value.kind(&[]))),
            _ => None,
        })
    }
    fn expressions(&self) -> Vec<&Expr> {
        let keys = self.partition.iter().chain(&self.order).map(|k| &k.expr);
        let bounds = self.frame.iter().flat_map(|f| [&f.start, &f.end]).flat_map(|bound| match bound {
            Bound::Partition | Bound::CurrentRow => Vec::new(),
            Bound::Rows { count, .. } => vec![count],
            Bound::Value { value, distance, .. } => vec![value, distance],
        });
        keys.chain(bounds).collect()
    }
    fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        let keys = self.partition.iter_mut().chain(&mut self.order).map(|k| &mut k.expr);
        let bounds = self.frame.iter_mut().flat_map(|f| [&mut f.start, &mut f.end]).flat_map(|bound| match bound {
            Bound::Partition | Bound::CurrentRow => Vec::new(),
            Bound::Rows { count, .. } => vec![count],
            Bound::Value { value, distance, .. } => vec![value, distance],
        });
        keys.chain(bounds).collect()
    }
}

/// In which two numbers, or two moments, are comparable by their sort keys.
fn common_kind(a: Kind, b: Kind) -> Kind {
    let scale = |k| if let Kind::Decimal(s) = k { s } else { 0 };
    match (a, b) {
        (Kind::Date | Kind::DateTime(_), _) => Kind::DateTime(6),
        (Kind::Time(_), _) => Kind::Time(6),
        (Kind::Double, _) | (_, Kind::Double) => Kind::Double,
        _ => Kind::Decimal(scale(a).max(scale(b))),
    }
}

impl Call {
    pub fn expressions(&self) -> Vec<&Expr> {
        let mut list: Vec<&Expr> = self.argument.iter().collect();
        match &self.function {
            Function::Ntile(e) | Function::Nth(e) => list.push(e),
            Function::Shifted { by, otherwise, .. } => list.extend(by.iter().chain(otherwise)),
            Function::Aggregate(a) => list.extend(&a.argument),
            _ => {}
        }
        list
    }
    fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        let mut list: Vec<&mut Expr> = self.argument.iter_mut().collect();
        match &mut self.function {
            Function::Ntile(e) | Function::Nth(e) => list.push(e),
            Function::Shifted { by, otherwise, .. } => list.extend(by.iter_mut().chain(otherwise)),
            Function::Aggregate(a) => list.extend(&mut a.argument),
            _ => {}
        }
        list
    }
}

/// All window functions of a block.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Windows {
    pub list: Vec<Window>,
    pub calls: Vec<Call>,
}

impl Windows {
    pub fn expressions(&self) -> Vec<&Expr> {
        let windows = self.list.iter().flat_map(Window::expressions);
        windows.chain(self.calls.iter().flat_map(Call::expressions)).collect()
    }
    pub fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        let windows = self.list.iter_mut().flat_map(Window::expressions_mut);
        windows.chain(self.calls.iter_mut().flat_map(Call::expressions_mut)).collect()
    }
    /// The window function that an expression names here.
    pub fn call(&self, e: &Expr) -> Option<&Call> {
        match e {
            Expr::Aggregate(i, ..) if *i < 2 * WINDOW => self.calls.get(i.checked_sub(WINDOW)?),
            _ => None,
        }
    }
}

/// Whether the value of a window function is in an expression.
pub fn has_window(e: &Expr) -> bool {
    e.any(|e| matches!(e, Expr::Aggregate(i, ..) if (WINDOW..2 * WINDOW).contains(i)))
}

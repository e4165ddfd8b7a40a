//! Which rows a statement must look at: by primary key, by unique index, by a range of an ordered index, or all.

pub mod binding;
pub mod choice;
pub mod listed;

use apus_types::IndexNo;

use self::{binding::BoundPath, listed::Listed};
use super::pushed_condition::Pushed;
use crate::expr::Expr;

/// Most keys of one IN list that are read as keys; a longer product is a range scan.
pub const POINTS_MAX: usize = 16_384;

#[derive(Debug, Clone)]
pub enum Path {
    /// Equality on every column of the primary key (`index` None) or of a unique index (position in the schema's list);
    /// alternatives per column, or (`rows`) whole keys one by one.
    Points { index: Option<usize>, columns: Vec<u16>, values: Vec<Vec<Expr>>, rows: bool },
    /// A prefix of equalities and bounds on the next column; without any, the whole index.
    Range {
        index: IndexNo,
        columns: Vec<u16>,
        equal: Vec<Expr>,
        low: Limit,
        high: Limit,
        /// The index has so many characters of the last of the columns, which the bounds are on; it does not order by it.
        beginning: Option<usize>,
    },
    /// Alternatives on the first column of an index: `k BETWEEN 1 AND 2 OR k = 5 OR k > 9`, `k IN (1, 2)`.
    Union { index: IndexNo, columns: Vec<u16>, alternatives: Vec<Interval> },
    /// Elements of an array, by a multi-valued index.
    Listed(Listed),
}

impl Path {
    /// Whether its keys have such a part.
    pub fn is_led_by(&self, is_part: impl Fn(&Expr) -> bool) -> bool {
        let is = |e: &Expr| e.any(&is_part);
        match self {
            Path::Points { values, .. } => values.iter().flatten().any(is),
            Path::Range { equal, low, high, .. } => equal.iter().any(is) || low.iter().chain(high).any(|(e, _)| is(e)),
            Path::Union { alternatives, .. } => {
                alternatives.iter().flat_map(|i| i.low.iter().chain(&i.high)).any(|(e, _)| is(e))
            }
            Path::Listed(listed) => listed.exprs().any(is),
        }
    }
}

/// A limit with whether it is included.
pub type Limit = Option<(Expr, bool)>;

/// A lower and an upper limit.
#[derive(Debug, Clone, Default)]
pub struct Interval {
    pub low: Limit,
    pub high: Limit,
}

/// Encoded bounds: included below, excluded above.
pub type EncodedRange = (Option<Vec<u8>>, Option<Vec<u8>>);

#[derive(Debug, Clone)]
pub struct Access {
    pub path: Path,
    /// The whole condition.
    pub full: Option<Expr>,
    /// What is left of it when the path was bound exactly.
    pub rest: Option<Expr>,
    /// What data nodes ask of it while they scan.
    pub pushed: Pushed,
    /// A literal that is not there yet decides whether an index on an expression says what the condition does.
    pub waits_for_literals: bool,
    /// The kind of a parameter decides whether what it is beside can be a key: `id = outer.id + ?`.
    pub waits_for_kinds: bool,
    /// Indexes that conditions are on, the chosen one among them.
    pub possible: Vec<IndexNo>,
    /// Which part of the rows that the path reads satisfies the condition, as estimated.
    pub part: Option<f64>,
}

impl Access {
    /// Whether the condition has such a part.
    pub fn has(&self, is: impl Fn(&Expr) -> bool) -> bool {
        self.full.as_ref().is_some_and(|e| e.any(is))
    }

    /// What rows must still be asked that the bound path and its filter bring.
    pub fn unanswered(&self, bound: &BoundPath) -> Option<&Expr> {
        let is_exact = bound.exact && !matches!(self.path, Path::Points { index: Some(_), .. });
        match is_exact {
            true if bound.decides => None,
            true => self.rest.as_ref(),
            false => self.full.as_ref(),
        }
    }
}

impl Path {
    /// The index that its rows come from.
    pub fn index(&self) -> IndexNo {
        match self {
            Path::Points { .. } | Path::Listed(_) => IndexNo(0),
            Path::Range { index, .. } | Path::Union { index, .. } => *index,
        }
    }
    /// Whether rows come in the order of these columns: the equalities are skipped, the rest must follow the index.
    pub fn ordered_by(&self, order: &[u16]) -> bool {
        let Path::Range { columns, equal, beginning, .. } = self else { return order.is_empty() };
        let (bound, following) = columns.split_at(equal.len().min(columns.len()));
        let wanted: Vec<u16> = order.iter().copied().filter(|c| !bound.contains(c)).collect();
        let following = if beginning.is_some() { &[] } else { following };
        following.starts_with(&wanted)
    }
}

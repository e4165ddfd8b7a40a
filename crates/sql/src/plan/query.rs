//! The plan of a query block that is more than one table: what it is given, what it joins and how, which subqueries it runs.

use std::rc::Rc;

use apus_types::{ColumnType, RowLayout, collate::Collation, filter};

use super::{
    Select,
    access::{Access, Path},
    derived_condition_pushdown,
    json_table::Level,
};
use crate::{
    catalog::Table,
    expr::{CompareOp, Expr, Kind},
};

/// A value that is fixed before a block is run.
#[derive(Debug)]
pub enum Given {
    /// Of the block around it.
    Outer(Expr),
    /// A subquery that depends on no row of the block.
    Value(Rc<Subquery>),
}

/// A subquery in an expression.
#[derive(Debug)]
pub struct Subquery {
    pub query: Select,
    pub asked: Asked,
    /// Of its column, as it is kept.
    pub ty: ColumnType,
}

/// What is asked of a subquery.
#[derive(Debug)]
pub enum Asked {
    /// What MATCH ... AGAINST finds: its one value as it is, however long.
    Found,
    /// Its one value; 1242 where it has several rows, NULL where it has none.
    Value,
    Exists,
    /// `left = ANY (...)`: whether its rows have the values, NULL where that cannot be said.
    In(Vec<Member>),
    /// `left < ANY (...)` or ALL.
    Quantified {
        left: Expr,
        op: CompareOp,
        all: bool,
        collation: Collation,
    },
}

/// One side of IN and how it is compared.
#[derive(Debug)]
pub struct Member {
    pub left: Expr,
    pub collation: Collation,
    /// As which values are looked up; `None`: they are compared one by one.
    pub kind: Option<Kind>,
}

/// Rows made by a query in FROM, or by a set operation.
#[derive(Debug)]
pub struct Derived {
    /// Its columns.
    pub table: Rc<Table>,
    pub body: Body,
    /// It sees the block around it: made anew for each of its runs.
    pub is_correlated: bool,
    /// It stood behind IN.
    pub is_subquery: bool,
    /// It sees the tables before it in FROM: made anew for their rows.
    pub is_lateral: bool,
    /// What it is bound from once more where conditions go into it; `None`: none do.
    pub text: Option<Rc<derived_condition_pushdown::Text>>,
}

impl Derived {
    /// What it takes from the rows before it.
    pub fn inputs(&self) -> Vec<&Expr> {
        match &self.body {
            Body::Select(select) | Body::JsonTable { document: select, .. } if self.is_lateral => {
                select.given.iter().filter_map(Given::outer).collect()
            }
            _ => Vec::new(),
        }
    }
    pub fn inputs_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.body {
            Body::Select(select) | Body::JsonTable { document: select, .. } if self.is_lateral => {
                select.given.iter_mut().filter_map(|g| if let Given::Outer(e) = g { Some(e) } else { None }).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[derive(Debug)]
pub enum Body {
    Select(Box<Select>),
    Set {
        operation: SetOperation,
        all: bool,
        left: Box<Body>,
        right: Box<Body>,
    },
    /// WITH RECURSIVE: the first rows, and the block that makes more of the last ones.
    Recursive {
        first: Box<Body>,
        step: Box<Body>,
        all: bool,
    },
    /// The last rows of the recursion around it.
    LastRows,
    /// JSON_TABLE: rows of the one value of a block without tables.
    JsonTable {
        document: Box<Select>,
        level: Level,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOperation {
    Union,
    Intersect,
    Except,
}

/// Where rows come from.
#[derive(Debug)]
pub enum Leaf {
    /// Columns that are fetched.
    Table {
        table: Rc<Table>,
        columns: Vec<u16>,
    },
    Derived(Rc<Derived>),
    /// The right side of an outer join that is a join itself.
    Nested(Box<Join>),
}

/// Two values that a join has equal.
#[derive(Debug)]
pub struct HashKey {
    /// Over the row so far.
    pub outer: Expr,
    /// Over the row of the leaf.
    pub inner: Expr,
    pub kind: Kind,
    pub collation: Collation,
}

/// What becomes of a row so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// It goes on with each match.
    Inner,
    /// Without a match it goes on with NULLs.
    Left,
    /// It goes on once if there is a match.
    Semi,
    /// It goes on if there is none.
    Anti,
}

impl JoinKind {
    /// A row without a match goes on.
    pub fn keeps(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Anti)
    }
    /// Whether more matches are looked for behind one.
    pub fn wants_all(self) -> bool {
        matches!(self, JoinKind::Inner | JoinKind::Left)
    }
}

/// One more leaf for the row so far.
#[derive(Debug)]
pub struct JoinStep {
    pub leaf: Leaf,
    /// Name of the table in the statement.
    pub shown: String,
    pub kind: JoinKind,
    /// The rows so far are expected to be fewer than those of the leaf: of these only those are kept that they name.
    pub narrows: bool,
    /// How all rows of the leaf are read, where it is a table; with what it alone must satisfy.
    pub scan: Option<Access>,
    /// Condition on the leaf's row alone, where it is no table.
    pub own: Option<Expr>,
    /// Keys of the leaf by the row so far: in place of reading all rows.
    pub lookup: Option<Path>,
    /// The same where a hash table is expected to be cheaper: for rows that prove to be few.
    pub few: Option<Path>,
    pub keys: Vec<HashKey>,
    /// What a row so far and one of the leaf must satisfy to match.
    pub matches: Option<Expr>,
    /// What is left of that for rows of a hash table, which were asked what they alone must satisfy and have the same key.
    pub unasked: Option<Expr>,
    /// Of the leaf's rows.
    pub row: RowLayout,
    /// Places in the leaf's row that the joined row has.
    pub taken: Vec<u16>,
    /// Rows read, as estimated: for each row so far where keys lead to them, altogether otherwise.
    pub read: Option<f64>,
}

impl JoinStep {
    /// Where rows before say which of the leaf's rows are wanted: the part of the key whose values data nodes are told, and its column of the table. It is the first one that is a column on both sides, of types
    /// whose values are equal where their keys are.
    pub fn told(&self) -> Option<(&HashKey, u16)> {
        let (Leaf::Table { columns, .. }, Some(scan), true) = (&self.leaf, &self.scan, self.narrows) else {
            return None;
        };
        if scan.pushed.tests().len() >= filter::TESTS_MAX {
            return None;
        }
        self.keys.iter().find_map(|key| {
            let (Expr::Column(inner), Expr::Column(outer)) = (&key.inner, &key.outer) else { return None };
            let column = columns.get(usize::from(inner.slot)).filter(|_| filter::may_be_in_set(inner.ty, outer.ty))?;
            Some((key, *column))
        })
    }
}

#[derive(Debug)]
pub enum StepKind {
    /// The row stays as it is.
    Nothing,
    Join(Box<JoinStep>),
    /// One more column: what a subquery says for this row.
    Compute(Rc<Subquery>),
}

#[derive(Debug)]
pub struct Step {
    pub kind: StepKind,
    /// Of the row behind this step.
    pub layout: RowLayout,
    /// What the row must satisfy to go on.
    pub filter: Option<Expr>,
}

#[derive(Debug)]
pub struct Join {
    pub steps: Vec<Step>,
    /// Slots of the joined row, by place.
    pub columns: Vec<u16>,
    /// Everything is read by a bounded number of keys: worth trying without a snapshot.
    pub is_by_key: bool,
    /// Joined rows, as estimated.
    pub rows: Option<f64>,
}

impl Subquery {
    /// What it takes from the block around it.
    pub fn inputs(&self) -> Vec<&Expr> {
        let mut list: Vec<&Expr> = self.query.given.iter().filter_map(Given::outer).collect();
        match &self.asked {
            Asked::Value | Asked::Exists | Asked::Found => {}
            Asked::In(members) => list.extend(members.iter().map(|m| &m.left)),
            Asked::Quantified { left, .. } => list.push(left),
        }
        list
    }
    pub fn inputs_mut(&mut self) -> Vec<&mut Expr> {
        let given = self.query.given.iter_mut();
        let mut list: Vec<&mut Expr> =
            given.filter_map(|g| if let Given::Outer(e) = g { Some(e) } else { None }).collect();
        match &mut self.asked {
            Asked::Value | Asked::Exists | Asked::Found => {}
            Asked::In(members) => list.extend(members.iter_mut().map(|m| &mut m.left)),
            Asked::Quantified { left, .. } => list.push(left),
        }
        list
    }
}

impl Given {
    pub fn outer(&self) -> Option<&Expr> {
        if let Given::Outer(e) = self { Some(e) } else { None }
    }
}

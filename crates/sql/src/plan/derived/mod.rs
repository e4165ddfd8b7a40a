//! Queries that make tables for others: derived tables, common table expressions, set operations.

pub mod common_tables;
pub(crate) mod set_operation;

use std::{cell::Cell, rc::Rc};

use apus_types::{Column, ColumnType, TableSchema, schema::DefaultValue};
use sqlparser::ast;

use self::set_operation::Made;
use super::{
    Planner, Unplanned,
    derived_condition_pushdown::Text,
    outputs::is_text_of_json,
    query::{Body, Derived, Given},
    scope::Scope,
    select::{Output, Select},
};
use crate::{
    catalog::Table,
    errors,
    expr::{
        ColumnRef, Expr, Kind,
        coercion::{self, collation_of},
    },
};

type Bound<T> = Result<T, Unplanned>;

#[derive(Clone, Debug)]
enum What {
    Known(Rc<Derived>),
    /// Its definition is under way, and has no part to begin with.
    NoUnion,
    /// Its definition is under way: what its first part makes, and how often it was named.
    UnderWay(Option<Rc<Table>>, Rc<Cell<u32>>),
}

/// The type in which an output is kept.
pub fn type_of_output(output: &Output, params: &[Kind]) -> ColumnType {
    match &output.expr {
        Expr::Column(ColumnRef { ty: ColumnType::Timestamp { decimals }, .. })
        | Expr::Given(_, ColumnType::Timestamp { decimals }, _) => ColumnType::DateTime { decimals: *decimals },
        Expr::Column(c) => c.ty,
        Expr::Given(_, ty, _) => *ty,
        e if is_text_of_json(e) => {
            ColumnType::Text { length: apus_types::limits::ROW_BYTES_MAX as u32, collation: collation_of(e, params) }
        }
        e => coercion::type_of(output.kind, collation_of(e, params)),
    }
}

/// The type in which an output of a derived table is kept: that of the column it would make, where every value fits.
fn type_kept(output: &Output, otherwise: ColumnType) -> ColumnType {
    match (&output.expr, output.shape.ty) {
        (Expr::Column(_) | Expr::Given(..), _) | (_, ColumnType::Label { .. } | ColumnType::Timestamp { .. }) => {
            otherwise
        }
        (_, ty) if Kind::of(ty) == output.kind => ty,
        _ => otherwise,
    }
}

/// As what values of two expressions are looked up, so that equal ones are found; `None`: their comparison has no such form.
pub fn equal_kind(a: &Expr, b: &Expr, params: &[Kind]) -> Option<Kind> {
    let is_unknown =
        |e: &Expr| matches!(e, Expr::Param(i) if *i >= params.len()) || matches!(e, Expr::UserVariable(..));
    if a.any(is_unknown) || b.any(is_unknown) {
        return None;
    }
    let is_column = |e: &Expr| matches!(e, Expr::Column(_) | Expr::Given(..) | Expr::Outer(_));
    let scale = |kind| match kind {
        Kind::Int | Kind::UInt | Kind::Bit(_) => Some(0),
        Kind::Decimal(s) => Some(s),
        _ => None,
    };
    let (x, y) = (a.kind(params).of_result(), b.kind(params).of_result());
    match (x, y) {
        (Kind::Double, Kind::Double) => Some(Kind::Double),
        (Kind::Double, k) | (k, Kind::Double) if scale(k).is_some() => Some(Kind::Double),
        (Kind::Text, Kind::Text) if is_column(a) && is_column(b) => Some(Kind::Text),
        (Kind::Text | Kind::Bytes, Kind::Text | Kind::Bytes) if is_column(a) && is_column(b) => Some(Kind::Bytes),
        (Kind::Date | Kind::DateTime(_), Kind::Date | Kind::DateTime(_)) => Some(Kind::DateTime(6)),
        (Kind::Time(_), Kind::Time(_)) => Some(Kind::Time(6)),
        (x, y) => Some(Kind::Decimal(scale(x)?.max(scale(y)?))),
    }
}

impl Planner<'_> {
    /// A subquery in an expression.
    pub(crate) fn subquery(&self, query: &ast::Query, exists: bool) -> Bound<Select> {
        self.shapeless.set(exists);
        self.select(query)
    }

    /// A table in parentheses.
    pub(crate) fn derived(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Rc<Derived>> {
        self.begin_derived();
        let mut derived = self.table_in_parentheses(query, name, columns)?;
        let (query, name, columns) = (Box::new(query.clone()), name.to_owned(), columns.to_vec());
        derived.text = Some(Rc::new(Text::Query { query, name, columns }));
        Ok(Rc::new(derived))
    }

    fn table_in_parentheses(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Derived> {
        let select = self.select(query)?;
        self.derived_of(select, name, columns)
    }

    /// The rows of a block as a table.
    pub(crate) fn derived_of(&self, select: Select, name: &str, columns: &[String]) -> Bound<Derived> {
        let is_correlated = is_correlated(&select);
        let body = Body::Select(Box::new(select));
        let exactly = match &body {
            Body::Select(select) if !select.group.as_ref().is_some_and(|g| g.rollup) => Some(&**select),
            _ => None,
        };
        let table = self.table_of(name, columns, &body, exactly)?;
        Ok(Derived { table, body, is_correlated, is_subquery: false, is_lateral: false, text: None })
    }

    /// As [`Planner::derived`], of one that sees the tables of `before`.
    pub(crate) fn lateral(
        &self,
        query: &ast::Query,
        name: &str,
        columns: &[String],
        before: Scope,
    ) -> Bound<Rc<Derived>> {
        self.frames.show(&Rc::new(before));
        let outside = self.frames.begin_lateral();
        let derived = self.table_in_parentheses(query, name, columns);
        self.frames.end_lateral(outside);
        self.frames.show(&Rc::default());
        let mut derived = derived?;
        derived.is_lateral = true;
        derived.is_lateral = derived.inputs().iter().any(|e| e.any(|e| matches!(e, Expr::Column(_))));
        Ok(Rc::new(derived))
    }

    /// What a body makes, as a table; `exactly`: it is this SELECT, and no other adds rows to it.
    fn table_of(&self, name: &str, columns: &[String], body: &Body, exactly: Option<&Select>) -> Bound<Rc<Table>> {
        let mut made = self.made(body)?;
        if let Some(select) = exactly {
            for (m, o) in made.iter_mut().zip(&select.outputs) {
                (m.ty, m.face) = (type_kept(o, m.ty), o.shape.face);
            }
        }
        if !columns.is_empty() {
            if columns.len() != made.len() {
                return Err(errors::alias_columns().into());
            }
            made.iter_mut().zip(columns).for_each(|(m, name)| m.name.clone_from(name));
        }
        for (i, m) in made.iter().enumerate() {
            if !name.is_empty() && made[..i].iter().any(|other| other.name.eq_ignore_ascii_case(&m.name)) {
                return Err(errors::duplicate_column(&m.name).into());
            }
        }
        let column = |m: Made| {
            let declared = m.face.map_or_else(String::new, |face| face.declared(m.ty));
            Column { default: DefaultValue::Null, declared, ..Column::new(m.name, m.ty) }
        };
        let is_united = matches!(body, Body::Set { .. });
        let shapes = made.iter().filter(|_| is_united).map(|m| m.united.shape(m.face)).collect();
        let schema = TableSchema::new("", name, made.into_iter().map(column).collect(), key_of(body));
        let mut table = Table::new(schema, Vec::new());
        table.shapes = shapes;
        Ok(Rc::new(table))
    }
}

/// Columns that tell the rows of a body apart; none where that is not known.
fn key_of(body: &Body) -> Vec<u16> {
    match body {
        Body::Select(s) if s.distinct => (0..s.outputs.len() as u16).collect(),
        Body::Select(s) if s.group.as_ref().is_some_and(|g| g.rollup) => Vec::new(),
        Body::Select(s) => {
            let place = |e: &Expr| s.outputs.iter().position(|o| o.expr == *e).map(|at| at as u16);
            let keys = s.group.iter().flat_map(|g| &g.keys).map(|k| place(&k.expr));
            keys.collect::<Option<Vec<_>>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

pub fn is_correlated(select: &Select) -> bool {
    select.given.iter().any(|g| matches!(g, Given::Outer(_)))
}

fn body_is_correlated(body: &Body) -> bool {
    match body {
        Body::Select(select) | Body::JsonTable { document: select, .. } => is_correlated(select),
        Body::Set { left, right, .. } => body_is_correlated(left) || body_is_correlated(right),
        Body::Recursive { first, step, .. } => body_is_correlated(first) || body_is_correlated(step),
        Body::LastRows => true,
    }
}

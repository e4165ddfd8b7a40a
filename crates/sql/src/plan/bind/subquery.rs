//! Subqueries in expressions: a value that is fixed before the block runs, or a column that is computed for its rows.

use apus_types::{ColumnType, collate::Collation};
use sqlparser::ast::{self, BinaryOperator};

use super::{
    Builder, rows,
    text::{encoded, has_own_bytes},
};
use crate::{
    errors::{self, Result},
    expr::{CompareOp, Expr, Kind, coercion},
    plan::{
        Select, Unplanned, derived,
        query::{Asked, Given, Member, Subquery},
        scope::frames::ASKED,
        select::Output,
    },
    value::datum::Datum,
};

const TRUTH: ColumnType = ColumnType::Int { bits: 64, unsigned: false };

impl Builder<'_> {
    pub(super) fn subquery(&mut self, e: &ast::Expr) -> Result<Expr> {
        use ast::Expr as A;
        match e {
            A::Subquery(query) if let Some(literal) = literal_of(query) => self.build(literal),
            A::Subquery(query) => {
                let select = self.bound(query, false)?;
                let [one] = select.outputs.as_slice() else { return Err(errors::operand_columns(1)) };
                let ty = derived::type_of_output(one, &self.param_kinds);
                self.attach(Subquery { query: select, asked: Asked::Value, ty })
            }
            A::Exists { subquery, negated } => {
                let query = self.bound(subquery, true)?;
                let found = self.attach(Subquery { query, asked: Asked::Exists, ty: TRUTH })?;
                Ok(negate(found, *negated))
            }
            A::InSubquery { expr, subquery, negated } if let Some(literal) = literal_of(subquery) => {
                let list = vec![literal.clone()];
                self.build(&A::InList { expr: expr.clone(), list, negated: *negated })
            }
            A::InSubquery { expr, subquery, negated } => {
                let found = self.in_subquery(expr, subquery)?;
                Ok(negate(found, *negated))
            }
            A::AnyOp { left, compare_op, right, .. } => match compare_op {
                BinaryOperator::Eq => self.in_subquery(left, query_of(right)?),
                op => self.quantified(left, op, query_of(right)?, false),
            },
            A::AllOp { left, compare_op, right } => match compare_op {
                BinaryOperator::NotEq => Ok(negate(self.in_subquery(left, query_of(right)?)?, true)),
                op => self.quantified(left, op, query_of(right)?, true),
            },
            other => Err(errors::not_supported(&other.to_string())),
        }
    }

    /// `exists`: only whether there are rows is asked.
    pub(super) fn bound(&self, query: &ast::Query, exists: bool) -> Result<Select> {
        let planner = self.planner.ok_or_else(|| errors::not_supported("subqueries here"))?;
        planner.frames.begin_subquery(self.allow_aggregates);
        planner.subquery(query, exists).map_err(|e| match e {
            Unplanned::Error(e) => e,
            Unplanned::Structural => errors::structural(),
        })
    }

    fn in_subquery(&mut self, left: &ast::Expr, query: &ast::Query) -> Result<Expr> {
        let list = rows::row_of(left).unwrap_or_else(|| vec![left]);
        let left = list.into_iter().map(|e| self.build(e)).collect::<Result<Vec<_>>>()?;
        let mut query = self.bound(query, false)?;
        if query.outputs.len() != left.len() {
            return Err(errors::operand_columns(left.len()));
        }
        let mut members = Vec::with_capacity(left.len());
        for (left, output) in left.into_iter().zip(&mut query.outputs) {
            let left = self.beside_times(left, output);
            let right = Expr::Given(0, derived::type_of_output(output, &self.param_kinds), false);
            let collation = coercion::compared(&[&left, &right], &self.param_kinds, "=")?;
            let left = self.compared_as(collation, left);
            let right = self.answered_as(collation, output, right);
            let kind = derived::equal_kind(&left, &right, &self.param_kinds);
            members.push(Member { left, collation, kind });
        }
        self.attach(Subquery { query, asked: Asked::In(members), ty: TRUTH })
    }

    /// As [`Builder::compared_as`], of what a query answers; `given` stands for it.
    fn answered_as(&self, collation: Collation, output: &mut Output, given: Expr) -> Expr {
        if collation != Collation::Binary || has_own_bytes(&given, &self.param_kinds).is_none() {
            return given;
        }
        let text = std::mem::replace(&mut output.expr, Expr::Const(Datum::Null));
        (output.expr, output.kind) = (encoded(text, &self.param_kinds), Kind::Bytes);
        Expr::Given(0, derived::type_of_output(output, &self.param_kinds), false)
    }

    fn quantified(&mut self, left: &ast::Expr, op: &BinaryOperator, query: &ast::Query, all: bool) -> Result<Expr> {
        if rows::row_of(left).is_some() {
            return Err(errors::operand_columns(1));
        }
        let left = self.build(left)?;
        let mut query = self.bound(query, false)?;
        let [one] = query.outputs.as_mut_slice() else { return Err(errors::operand_columns(1)) };
        // The greatest or the least of all answers is asked otherwise.
        let is_asked_by_row = query.given.iter().any(|given| matches!(given, Given::Outer(_)));
        let left = match is_asked_by_row || *op == BinaryOperator::NotEq {
            true => self.beside_times(left, one),
            false => left,
        };
        let right = Expr::Given(0, derived::type_of_output(one, &self.param_kinds), false);
        let collation = coercion::compared(&[&left, &right], &self.param_kinds, &op.to_string())?;
        let left = self.compared_as(collation, left);
        self.answered_as(collation, one, right);
        let op = match op {
            BinaryOperator::Eq => CompareOp::Eq,
            BinaryOperator::NotEq => CompareOp::NotEq,
            BinaryOperator::Lt => CompareOp::Lt,
            BinaryOperator::LtEq => CompareOp::LtEq,
            BinaryOperator::Gt => CompareOp::Gt,
            BinaryOperator::GtEq => CompareOp::GtEq,
            other => return Err(errors::syntax(&other.to_string())),
        };
        self.attach(Subquery { query, asked: Asked::Quantified { left, op, all, collation }, ty: TRUTH })
    }

    /// The value of a subquery for the block that is built.
    pub(super) fn attach(&mut self, mut subquery: Subquery) -> Result<Expr> {
        let planner = self.planner.ok_or_else(|| errors::not_supported("subqueries here"))?;
        let asked: Vec<usize> = planner.frames.take_asked().into_iter().map(|a| self.number_of(a)).collect();
        for input in subquery.inputs_mut() {
            input.walk_mut(&mut |e| match e {
                Expr::Aggregate(number, ..) if *number >= ASKED => *number = asked[*number - ASKED],
                _ => {}
            });
        }
        let (parts, ty) = (subquery.inputs(), subquery.ty);
        if parts.iter().any(|e| e.any(|e| matches!(e, Expr::Aggregate(..)))) {
            return planner.frames.compute_late(subquery, ty);
        }
        if parts.iter().any(|e| !e.is_constant()) {
            return planner.frames.compute(subquery, ty);
        }
        planner.frames.give(Given::Value(subquery.into()), ty)
    }
}

/// `(SELECT 0x31)` is the literal, which is a number beside one.
fn literal_of(query: &ast::Query) -> Option<&ast::Expr> {
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let [ast::SelectItem::UnnamedExpr(literal @ ast::Expr::Value(_))] = select.projection.as_slice() else {
        return None;
    };
    let is_alone = query.with.is_none() && query.limit_clause.is_none() && query.order_by.is_none();
    let is_plain = select.from.is_empty() && select.selection.is_none() && select.having.is_none();
    (is_alone && is_plain).then_some(literal)
}

fn negate(e: Expr, negated: bool) -> Expr {
    if negated { Expr::Not(Box::new(e)) } else { e }
}

fn query_of(e: &ast::Expr) -> Result<&ast::Query> {
    match e {
        ast::Expr::Subquery(query) => Ok(query),
        ast::Expr::Nested(inner) => query_of(inner),
        other => Err(errors::syntax(&other.to_string())),
    }
}

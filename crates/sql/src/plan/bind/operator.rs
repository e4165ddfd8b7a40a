//! Operators, and constants that take the type of what stands beside them.

use apus_types::{collate::Collation, schema::ColumnType};
use sqlparser::ast::{self, BinaryOperator};

use super::{Builder, function::quiet_number, json::json_truth, rows};
use crate::{
    errors::{self, Result},
    expr::{ArithOp, CastType, CompareOp, Expr, Kind, coercion, func},
    plan::{scope::COMPUTED, select::Output},
    value::datum::Datum,
};

impl<'a> Builder<'a> {
    pub(super) fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Expr> {
        use BinaryOperator as B;
        if let Some(all) = is_chain(op) {
            return self.chain(left, op, right, all);
        }
        if rows::row_of(left).is_some() || rows::row_of(right).is_some() {
            return self.rows(left, op, right);
        }
        // date + INTERVAL n unit
        if let (B::Plus | B::Minus, ast::Expr::Interval(interval)) = (op, right) {
            let base = self.build(left)?;
            return self.date_add(base, interval, *op == B::Minus);
        }
        if let (ast::Expr::Interval(interval), B::Plus) = (left, op) {
            let base = self.build(right)?;
            return self.date_add(base, interval, false);
        }
        if *op == B::Assignment {
            return self.assignment(left, right);
        }
        if matches!(op, B::Arrow | B::LongArrow) {
            return self.arrow(left, op, right);
        }
        let (mut a, mut b) = (self.boxed(left)?, self.boxed(right)?);
        let is_comparison = matches!(op, B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq | B::Spaceship);
        let mut collation = Collation::default();
        if is_comparison && (self.is_json(&a) || self.is_json(&b)) {
            (*a, *b) = (json_truth(left, *a), json_truth(right, *b));
        }
        if self.is_number(&a) || *op == B::Xor {
            b = Box::new(quiet_number(as_number(*b)));
        }
        if self.is_number(&b) || *op == B::Xor {
            a = Box::new(quiet_number(as_number(*a)));
        }
        if is_comparison {
            collation = coercion::compared(&[&a, &b], &self.param_kinds, &op.to_string())?;
            (*a, *b) = (self.compared_as(collation, *a), self.compared_as(collation, *b));
            (*a, *b) = (self.fitting(&b, (*a).clone(), true), self.fitting(&a, (*b).clone(), true));
        }
        let number = |e: &Expr| Box::new(quiet_number(as_number(e.clone())));
        let arith = |op: ArithOp| match op.is_bitwise() {
            true => Ok(Expr::Arith(op, Box::new(as_number((*a).clone())), Box::new(as_number((*b).clone())))),
            false => Ok(Expr::Arith(op, number(&a), number(&b))),
        };
        let compare = |op| Ok(Expr::Compare(op, a.clone(), b.clone(), collation));
        match op {
            B::Plus => arith(ArithOp::Add),
            B::Minus if self.signed_difference => arith(ArithOp::SignedSub),
            B::Minus => arith(ArithOp::Sub),
            B::Multiply => arith(ArithOp::Mul),
            B::Divide => arith(ArithOp::Div),
            B::Modulo => arith(ArithOp::Mod),
            B::MyIntegerDivide => arith(ArithOp::IntDiv),
            B::BitwiseAnd => arith(ArithOp::BitAnd),
            B::BitwiseOr => arith(ArithOp::BitOr),
            B::BitwiseXor => arith(ArithOp::BitXor),
            B::PGBitwiseShiftLeft => arith(ArithOp::ShiftLeft),
            B::PGBitwiseShiftRight => arith(ArithOp::ShiftRight),
            B::Eq => compare(CompareOp::Eq),
            B::NotEq => compare(CompareOp::NotEq),
            B::Lt => compare(CompareOp::Lt),
            B::LtEq => compare(CompareOp::LtEq),
            B::Gt => compare(CompareOp::Gt),
            B::GtEq => compare(CompareOp::GtEq),
            B::Spaceship => Ok(Expr::NullSafeEq(a, b, collation)),
            B::Xor => Ok(Expr::Xor(a, b)),
            other => Err(errors::not_supported(&format!("operator {other}"))),
        }
    }

    /// `a OR b OR c ...`: the tree is as deep as the chain is long, so it is not followed by recursion.
    pub(super) fn chain(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Expr> {
        let mut operands = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp { left, op: other, right } = rest
            && is_chain(other) == is_chain(op)
        {
            operands.push(right);
            rest = left;
        }
        operands.push(rest);
        let built = operands
            .into_iter()
            .rev()
            .map(|e| Ok(quiet_number(as_number(self.build(e)?))))
            .collect::<Result<Vec<_>>>()?;
        Ok(if all { Expr::And(built) } else { Expr::Or(built) })
    }

    /// A constant beside `other` takes the type of a column of exact numbers, and of everything that is a moment.
    pub(super) fn fitting(&self, other: &Expr, constant: Expr, alone: bool) -> Expr {
        let kind = other.kind(&self.param_kinds);
        let is_moment = matches!(kind, Kind::Date | Kind::DateTime(_));
        // A column of the query around is another value for each of its rows.
        if constant.any(|e| matches!(e, Expr::Given(_, ty, _) if ty.is_text())) {
            return constant;
        }
        let has_given = constant.any(|e| matches!(e, Expr::Given(..)));
        let of_column = match other {
            Expr::Given(_, _, is_column) => *is_column && !has_given,
            Expr::Column(c) => c.slot < COMPUTED,
            other => other.column_type().is_some(),
        };
        let number = |e| of_column && self.is_number(e);
        let is_time = of_column && matches!(kind, Kind::Time(_));
        if is_time && alone && !has_given && self.is_constant_moment(&constant) {
            return Expr::Cast(Box::new(constant), CastType::Time(6));
        }
        let may_be_fraction = |e: &Expr| matches!(e.kind(&self.param_kinds), Kind::Decimal(_) | Kind::Double);
        let takes_digits = constant.kind(&self.param_kinds).is_text() || alone && may_be_fraction(&constant);
        if is_time && takes_digits && constant.is_constant() {
            return Expr::Cast(Box::new(constant), CastType::Moment { kind, alone, of_column });
        }
        if is_moment && (constant.kind(&self.param_kinds).is_text() || number(&constant)) && constant.is_constant() {
            return Expr::Cast(Box::new(constant), CastType::Moment { kind, alone, of_column });
        }
        exact(other, constant)
    }

    fn is_constant_moment(&self, e: &Expr) -> bool {
        e.is_constant() && matches!(e.kind(&self.param_kinds), Kind::Date | Kind::DateTime(_))
    }

    /// A value beside a query that answers with `output`: a constant moment beside a column of times is a time, as in [`Builder::fitting`].
    pub(super) fn beside_times(&self, value: Expr, output: &Output) -> Expr {
        let is_time = output.expr.column_type().is_some() && matches!(output.kind, Kind::Time(_));
        match is_time && self.is_constant_moment(&value) {
            true => Expr::Cast(Box::new(value), CastType::Time(6)),
            false => value,
        }
    }

    /// A column of years in a list of several. MySQL takes none of them for a year of two digits: they are compared as numbers, or as texts if none is one.
    pub(super) fn among_years(&self, column: Expr, list: Vec<Expr>) -> (Expr, Vec<Expr>) {
        if list.iter().any(|e| self.is_number(e)) {
            let is_text = |e: &Expr| e.is_constant() && e.kind(&self.param_kinds).is_text();
            let number = |e| Expr::Cast(Box::new(e), CastType::Exact { decimal: false });
            return (column, list.into_iter().map(|e| if is_text(&e) { number(e) } else { e }).collect());
        }
        if list.iter().all(Expr::is_constant) {
            let years = list.into_iter().map(|e| Expr::Cast(Box::new(e), CastType::Year { alone: false }));
            return (column, years.collect());
        }
        (Expr::Cast(Box::new(column), CastType::Text(None)), list)
    }

    /// Whether this is known to be a number.
    pub(super) fn is_number(&self, e: &Expr) -> bool {
        matches!(e.kind(&self.param_kinds), Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double | Kind::Bit(_))
    }
}

/// A constant beside a column of exact numbers takes the column's type.
pub(super) fn exact(column: &Expr, constant: Expr) -> Expr {
    let is_exact = |ty| {
        matches!(ty, ColumnType::Int { .. } | ColumnType::Decimal { .. } | ColumnType::Year | ColumnType::Bit { .. })
    };
    let may_be_text =
        !matches!(constant, Expr::Const(Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. } | Datum::Null));
    if !constant.is_constant() || constant.any(|e| matches!(e, Expr::Given(..))) {
        return constant;
    }
    let ty = match column {
        Expr::NewColumn(c) if c.ty != ColumnType::Year => Some(c.ty),
        other => other.column_type(),
    };
    match ty {
        Some(ColumnType::Year) => Expr::Cast(Box::new(constant), CastType::Year { alone: true }),
        Some(ty) if is_exact(ty) && may_be_text => {
            Expr::Cast(Box::new(constant), CastType::Exact { decimal: matches!(ty, ColumnType::Decimal { .. }) })
        }
        _ => constant,
    }
}

/// A hexadecimal or bit literal where a number is wanted; everything else as it is.
pub fn as_number(e: Expr) -> Expr {
    match e {
        Expr::Call(func::Func::BinaryLiteral, bytes, c) => Expr::Call(func::Func::BinaryNumber, bytes, c),
        other => other,
    }
}

/// Whether an operator is AND (`true`) or OR (`false`).
fn is_chain(op: &BinaryOperator) -> Option<bool> {
    use BinaryOperator as B;
    match op {
        B::And | B::PGOverlap => Some(true), // && is AND in MySQL
        B::Or | B::StringConcat => Some(false),
        _ => None,
    }
}

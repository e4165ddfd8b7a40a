//! What is true or false, as MySQL writes it in the definition of a table: a number where truth is wanted is compared with 0, NOT goes into comparisons.

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use BinaryOperator as B;
use ast::Expr as A;

fn inner(e: &A) -> &A {
    match e {
        A::Nested(e) => inner(e),
        other => other,
    }
}

fn pair(left: A, op: BinaryOperator, right: A) -> A {
    A::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn zero(op: BinaryOperator, e: &A) -> A {
    pair(A::Value(ast::Value::Number("0".to_owned(), false).into()), op, e.clone())
}

/// Whether an expression says true or false.
pub fn is_boolean(e: &A) -> bool {
    match inner(e) {
        A::BinaryOp { op, .. } => {
            inverted(op).is_some()
                || matches!(op, B::Spaceship | B::And | B::Or | B::Xor | B::PGOverlap | B::StringConcat)
        }
        A::UnaryOp { op, .. } => matches!(op, UnaryOperator::Not | UnaryOperator::BangNot),
        A::Value(v) => matches!(v.value, ast::Value::Boolean(_)),
        A::IsNull(_)
        | A::IsNotNull(_)
        | A::IsUnknown(_)
        | A::IsNotUnknown(_)
        | A::IsTrue(_)
        | A::IsNotTrue(_)
        | A::IsFalse(_)
        | A::IsNotFalse(_)
        | A::InList { .. }
        | A::Between { .. }
        | A::Like { .. }
        | A::RLike { .. }
        | A::MemberOf(_) => true,
        A::Function(f) => {
            let name = f.name.to_string().to_ascii_lowercase();
            let known = [
                "isnull",
                "regexp_like",
                "json_valid",
                "json_contains",
                "json_contains_path",
                "json_schema_valid",
                "json_overlaps",
                "is_uuid",
                "is_ipv4",
                "is_ipv6",
                "is_ipv4_compat",
                "is_ipv4_mapped",
            ];
            known.contains(&name.trim_matches('`'))
        }
        _ => false,
    }
}

/// The comparison that is true where this one is false.
fn inverted(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        B::Eq => B::NotEq,
        B::NotEq => B::Eq,
        B::Lt => B::GtEq,
        B::LtEq => B::Gt,
        B::Gt => B::LtEq,
        B::GtEq => B::Lt,
        _ => return None,
    })
}

/// Where truth is wanted.
fn truth(e: &A) -> A {
    match is_boolean(e) {
        true => written(inner(e)).unwrap_or_else(|| e.clone()),
        false => zero(B::NotEq, inner(e)),
    }
}

/// The opposite of an expression.
fn negated(e: &A) -> A {
    match inner(e) {
        A::BinaryOp { left, op, right } => match op {
            B::And | B::PGOverlap => pair(negated(left), B::Or, negated(right)),
            B::Or | B::StringConcat => pair(negated(left), B::And, negated(right)),
            B::Xor => pair(negated(left), B::Xor, truth(right)),
            op => match inverted(op) {
                Some(op) => pair((**left).clone(), op, (**right).clone()),
                None => not_of(e),
            },
        },
        A::UnaryOp { op: UnaryOperator::Not | UnaryOperator::BangNot, expr } => truth(expr),
        A::Function(f) if f.name.to_string().eq_ignore_ascii_case("isnull") => match &f.args {
            ast::FunctionArguments::List(list) => match list.args.as_slice() {
                [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(of))] => A::IsNotNull(Box::new(of.clone())),
                _ => not_of(e),
            },
            _ => not_of(e),
        },
        A::IsNull(e) => A::IsNotNull(e.clone()),
        A::IsNotNull(e) => A::IsNull(e.clone()),
        A::Between { expr, negated, low, high } => {
            A::Between { expr: expr.clone(), negated: !negated, low: low.clone(), high: high.clone() }
        }
        A::InList { expr, list, negated } => A::InList { expr: expr.clone(), list: list.clone(), negated: !negated },
        other => not_of(other),
    }
}

fn not_of(e: &A) -> A {
    if is_boolean(e) {
        A::UnaryOp { op: UnaryOperator::Not, expr: Box::new(A::Nested(Box::new(e.clone()))) }
    } else {
        zero(B::Eq, inner(e))
    }
}

/// Another expression that is written in place of this one; `None`: it stays.
pub fn written(e: &A) -> Option<A> {
    let other = match e {
        A::BinaryOp { left, op, right } => {
            let op = match op {
                B::And | B::PGOverlap => B::And,
                B::Or | B::StringConcat => B::Or,
                B::Xor => B::Xor,
                _ => return None,
            };
            pair(truth(left), op, truth(right))
        }
        A::UnaryOp { op: UnaryOperator::Not | UnaryOperator::BangNot, expr } => negated(expr),
        A::IsTrue(e) => A::IsTrue(Box::new(truth(e))),
        A::IsNotTrue(e) => A::IsNotTrue(Box::new(truth(e))),
        A::IsFalse(e) => A::IsFalse(Box::new(truth(e))),
        A::IsNotFalse(e) => A::IsNotFalse(Box::new(truth(e))),
        _ => return None,
    };
    (other != *e).then_some(other)
}

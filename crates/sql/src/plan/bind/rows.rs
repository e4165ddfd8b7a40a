//! Row constructors, as conditions on their parts; and what is asked of an expression instead of its value.

use apus_types::collate::Collation;
use sqlparser::ast::{self, BinaryOperator, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::Builder;
use crate::{
    errors::{self, Result},
    expr::{Expr, Kind, coercion::Coercion},
    value::datum::Datum,
};

/// Parts of rows that are compared by `<` and its like: the condition is as deep.
const ORDERED_MAX: usize = 64;

impl Builder<'_> {
    /// Comparison of row constructors, as conditions on their parts: NULL has the effect it has in MySQL.
    pub(super) fn rows(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Expr> {
        use BinaryOperator as B;
        let mut parts = Vec::new();
        pair_up(left, right, &mut parts)?;
        let Some((&last, before)) = parts.split_last() else { return Err(errors::operand_columns(1)) };
        let mut each = |op: &BinaryOperator| parts.iter().map(|(a, b)| self.binary(a, op, b)).collect::<Result<_>>();
        Ok(match op {
            B::Eq | B::Spaceship => Expr::And(each(op)?),
            B::NotEq => Expr::Or(each(op)?),
            B::Lt | B::LtEq | B::Gt | B::GtEq if parts.len() <= ORDERED_MAX => {
                let strict = if matches!(op, B::Lt | B::LtEq) { B::Lt } else { B::Gt };
                let mut decided = self.binary(last.0, op, last.1)?;
                for (a, b) in before.iter().rev() {
                    let behind = Expr::And(vec![self.binary(a, &B::Eq, b)?, decided]);
                    decided = Expr::Or(vec![self.binary(a, &strict, b)?, behind]);
                }
                decided
            }
            B::Lt | B::LtEq | B::Gt | B::GtEq => return Err(errors::not_supported("order of rows this long")),
            _ => return Err(errors::operand_columns(1)),
        })
    }

    /// CHARSET, COLLATION and COERCIBILITY, which do not depend on the value.
    pub(super) fn text_property(&self, name: &str, e: &Expr) -> Expr {
        let kind = e.kind(&self.param_kinds);
        let coercion = Coercion::of(e, &self.param_kinds);
        let collation = if kind == Kind::Text { coercion.collation } else { Collation::Binary };
        Expr::Const(match name {
            "charset" => Datum::text(collation.charset().name()),
            "collation" => Datum::text(collation.name()),
            _ => Datum::Int(coercion.strength as i64),
        })
    }
}

/// The parts of two rows of the same shape side by side; those of rows in them in their place.
fn pair_up<'e>(left: &'e ast::Expr, right: &'e ast::Expr, out: &mut Vec<(&'e ast::Expr, &'e ast::Expr)>) -> Result<()> {
    match (row_of(left), row_of(right)) {
        (Some(a), Some(b)) if a.len() == b.len() => a.into_iter().zip(b).try_for_each(|(a, b)| pair_up(a, b, out)),
        (None, None) => {
            out.push((left, right));
            Ok(())
        }
        (a, _) => Err(errors::operand_columns(a.map_or(1, |row| row.len()))),
    }
}

/// The parts of `(a, b)` or `ROW(a, b)`.
pub(super) fn row_of(e: &ast::Expr) -> Option<Vec<&ast::Expr>> {
    match e {
        ast::Expr::Tuple(parts) => Some(parts.iter().collect()),
        ast::Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &f.args else { return None };
            let part = |arg| match arg {
                &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref e)) => Some(e),
                _ => None,
            };
            list.args.iter().map(part).collect()
        }
        _ => None,
    }
}

//! Sums, differences and products of numbers with a fixed point, compiled for a statement that computes them for many rows.
//!
//! What comes of it is a program ([`apus_eval::fixed`]) that data nodes run, too, and the digits behind the point of its value. What does not fit is left to [`Expr::eval`], which knows what becomes of it and what to say.

use apus_eval::fixed::{self, Program, Step};
use apus_types::ColumnType;

use super::{ArithOp, Context, Expr};
use crate::value::{datum::Datum, decimal};

#[derive(Clone, Debug)]
pub struct Exact {
    program: Program,
    /// What its value is.
    face: Face,
}

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Face {
    /// With so many digits behind the point.
    Decimal(u8),
    /// A value of a column as it is stored.
    Column(ColumnType),
}

impl Face {
    /// The value.
    pub fn datum(self, n: i128, cx: &Context<'_>) -> Option<Datum<'static>> {
        match self {
            Face::Decimal(scale) => Some(Datum::Decimal { unscaled: n, scale }),
            Face::Column(ty) => Some(Datum::of_column(ty, fixed::value_of(ty, n)?, cx.env.zone())),
        }
    }
    /// The sum of values, which is a decimal.
    pub fn sum(self, n: i128) -> Option<Datum<'static>> {
        match self {
            Face::Decimal(scale) | Face::Column(ColumnType::Decimal { scale, .. }) => {
                Some(Datum::Decimal { unscaled: n, scale })
            }
            Face::Column(ColumnType::Int { .. }) => Some(Datum::Decimal { unscaled: n, scale: 0 }),
            Face::Column(_) => None,
        }
    }
}

impl Exact {
    /// Of an expression that has a DECIMAL in each of its operations; `None` of all others. Constants are those of this statement.
    pub fn of(e: &Expr, cx: &Context<'_>) -> Option<Exact> {
        let mut program = Program::default();
        let (scale, is_decimal) = push(&mut program, e, cx, &|slot| slot)?;
        is_decimal.then_some(Exact { program, face: Face::Decimal(scale) })
    }

    /// As [`Exact::of`], or of a column that programs may read, over the rows of the table itself: `columns` are those that the rows of `cx` have of it.
    pub fn of_table(e: &Expr, cx: &Context<'_>, columns: &[u16]) -> Option<Exact> {
        let column = |slot: u16| columns.get(usize::from(slot)).copied().unwrap_or(u16::MAX);
        let mut program = Program::default();
        if let Expr::Column(c) = e {
            program.push(Step::Column(column(c.slot)))?;
            return fixed::is_number(c.ty).then_some(Exact { program, face: Face::Column(c.ty) });
        }
        let (scale, is_decimal) = push(&mut program, e, cx, &column)?;
        is_decimal.then_some(Exact { program, face: Face::Decimal(scale) })
    }

    /// The value of a row; `None` where it does not fit.
    #[inline]
    pub fn eval(&self, cx: &Context<'_>) -> Option<Datum<'static>> {
        match self.program.eval(cx.layout, cx.row) {
            Ok(Some(n)) => self.face.datum(n, cx),
            Ok(None) => Some(Datum::Null),
            Err(fixed::Unfit) => None,
        }
    }

    pub fn into_parts(self) -> (Program, Face) {
        (self.program, self.face)
    }
}

/// Appends the steps of an expression; its digits behind the point, and whether it is a DECIMAL. `column` says the number of the column at a place of the row.
fn push(program: &mut Program, e: &Expr, cx: &Context<'_>, column: &impl Fn(u16) -> u16) -> Option<(u8, bool)> {
    let (step, scale, is_decimal) = match e {
        Expr::Column(c) => match c.ty {
            ColumnType::Decimal { scale, .. } => (Step::Column(column(c.slot)), scale, true),
            ColumnType::Int { .. } => (Step::Column(column(c.slot)), 0, false),
            _ => return None,
        },
        Expr::Const(_) | Expr::Param(_) => match e.eval(cx).ok()? {
            Datum::Int(n) => (Step::Constant(i128::from(n)), 0, false),
            Datum::Decimal { unscaled, scale } => (Step::Constant(unscaled), scale, true),
            _ => return None,
        },
        Expr::Arith(op, a, b) => {
            let (left, is_left) = push(program, a, cx, column)?;
            let (right, is_right) = push(program, b, cx, column)?;
            if !is_left && !is_right {
                return None;
            }
            let most = left.max(right);
            let (step, scale) = match op {
                ArithOp::Add => (Step::Add(most - left, most - right), most),
                ArithOp::Sub => (Step::Subtract(most - left, most - right), most),
                ArithOp::Mul => (Step::Multiply, left + right),
                _ => return None,
            };
            (step, scale, true)
        }
        _ => return None,
    };
    program.push(step)?;
    (scale <= decimal::SCALE_MAX).then_some((scale, is_decimal))
}

#[cfg(test)]
mod tests {
    use apus_types::{ColumnType, RowLayout, Value};

    use super::*;
    use crate::expr::{ColumnRef, Env};

    fn arith(op: ArithOp, a: Expr, b: Expr) -> Expr {
        Expr::Arith(op, Box::new(a), Box::new(b))
    }

    #[test]
    fn values_are_those_of_the_evaluator() {
        let decimal = ColumnType::Decimal { precision: 30, scale: 2, unsigned: false };
        let types = [decimal, decimal, ColumnType::Int { bits: 64, unsigned: true }];
        let layout = RowLayout::new(types);
        let column = |slot: u16| Expr::Column(ColumnRef { slot, ty: types[usize::from(slot)] });
        let number = |n| Expr::Const(Datum::Int(n));
        let env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
        let expressions = [
            column(0),
            arith(ArithOp::Mul, column(0), arith(ArithOp::Sub, number(1), column(1))),
            arith(ArithOp::Add, arith(ArithOp::Mul, column(0), column(1)), column(2)),
            arith(ArithOp::Sub, Expr::Const(Datum::Decimal { unscaled: 12345, scale: 4 }), column(0)),
        ];
        let of = |unscaled: i128| Value::Decimal { unscaled, scale: 2 };
        let rows = [
            [of(1250), of(7), Value::UInt(3)],
            [of(-99), of(0), Value::UInt(u64::MAX)],
            [Value::Null, of(5), Value::UInt(0)],
            [of(10i128.pow(29)), of(-(10i128.pow(29))), Value::UInt(1)],
        ];
        let mut fits = 0;
        for values in &rows {
            let mut row = Vec::new();
            layout.encode(values, &mut row).unwrap();
            let cx = Context::of_row(&layout, &row, &env);
            for e in &expressions {
                let found = Exact::of(e, &cx).expect("all have a DECIMAL in each operation").eval(&cx);
                fits += usize::from(found.is_some());
                if let Some(found) = found {
                    assert_eq!(found, e.eval(&cx).unwrap(), "{e:?}");
                }
            }
            for other in
                [arith(ArithOp::Add, column(2), number(1)), arith(ArithOp::Div, column(0), column(1)), column(2)]
            {
                assert!(Exact::of(&other, &cx).is_none(), "{other:?}");
            }
        }
        assert_eq!(fits, 14, "the product of the largest numbers does not fit");
    }
}

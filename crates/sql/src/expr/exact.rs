//! Sums, differences and products of numbers with a fixed point, compiled for a statement that computes them for many rows.
//!
//! Such an expression is a list of steps on a stack of 128-bit numbers. Digits behind the point are known when it is made, so a step is one multiplication, or an addition of what has as many. What does not fit
//! is left to [`Expr::eval`], which knows what becomes of it and what to say.

use apus_types::{ColumnType, Value};

use super::{ArithOp, Context, Expr};
use crate::value::{datum::Datum, decimal};

/// Most numbers on the stack.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Column(u16),
    Constant(i128),
    /// Of the two numbers on top, each made longer by this factor.
    Add(i128, i128),
    Subtract(i128, i128),
    Multiply,
}

#[derive(Clone, Debug)]
pub struct Exact {
    steps: Vec<Step>,
    /// Digits behind the point of the value.
    scale: u8,
}

impl Exact {
    /// Of an expression that has a DECIMAL in each of its operations; `None` of all others. Constants are those of this statement.
    pub fn of(e: &Expr, cx: &Context<'_>) -> Option<Exact> {
        let mut exact = Exact { steps: Vec::new(), scale: 0 };
        let is_decimal;
        (exact.scale, is_decimal) = exact.push(e, cx, 1)?;
        is_decimal.then_some(exact)
    }

    /// Appends the steps of an expression; its digits behind the point, and whether it is a DECIMAL.
    fn push(&mut self, e: &Expr, cx: &Context<'_>, depth: usize) -> Option<(u8, bool)> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (step, scale, is_decimal) = match e {
            Expr::Column(c) => match c.ty {
                ColumnType::Decimal { scale, .. } => (Step::Column(c.slot), scale, true),
                ColumnType::Int { .. } => (Step::Column(c.slot), 0, false),
                _ => return None,
            },
            Expr::Const(_) | Expr::Param(_) => match e.eval(cx).ok()? {
                Datum::Int(n) => (Step::Constant(i128::from(n)), 0, false),
                Datum::Decimal { unscaled, scale } => (Step::Constant(unscaled), scale, true),
                _ => return None,
            },
            Expr::Arith(op, a, b) => {
                let (left, is_left) = self.push(a, cx, depth)?;
                let (right, is_right) = self.push(b, cx, depth + 1)?;
                if !is_left && !is_right {
                    return None;
                }
                let most = left.max(right);
                let (x, y) = (decimal::power_of_ten(most - left)?, decimal::power_of_ten(most - right)?);
                let (step, scale) = match op {
                    ArithOp::Add => (Step::Add(x, y), most),
                    ArithOp::Sub => (Step::Subtract(x, y), most),
                    ArithOp::Mul => (Step::Multiply, left + right),
                    _ => return None,
                };
                (step, scale, true)
            }
            _ => return None,
        };
        self.steps.push(step);
        (scale <= decimal::SCALE_MAX).then_some((scale, is_decimal))
    }

    /// The value of a row; `None` where it does not fit.
    #[inline]
    pub fn eval(&self, cx: &Context<'_>) -> Option<Datum<'static>> {
        let mut stack = [0; DEPTH_MAX];
        let mut top = 0;
        for step in &self.steps {
            let value = match *step {
                Step::Column(slot) => match cx.layout.value(cx.row, slot) {
                    Value::Int(n) => i128::from(n),
                    Value::UInt(n) => i128::from(n),
                    Value::Decimal { unscaled, .. } => unscaled,
                    Value::Null => return Some(Datum::Null),
                    _ => return None,
                },
                Step::Constant(n) => n,
                Step::Add(x, y) => {
                    top -= 2;
                    decimal::product(stack[top], x)?.checked_add(decimal::product(stack[top + 1], y)?)?
                }
                Step::Subtract(x, y) => {
                    top -= 2;
                    decimal::product(stack[top], x)?.checked_sub(decimal::product(stack[top + 1], y)?)?
                }
                Step::Multiply => {
                    top -= 2;
                    decimal::product(stack[top], stack[top + 1])?
                }
            };
            stack[top] = value;
            top += 1;
        }
        Some(Datum::Decimal { unscaled: stack[0], scale: self.scale })
    }
}

#[cfg(test)]
mod tests {
    use apus_types::{ColumnType, RowLayout};

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
            let cx = Context {
                layout: &layout,
                row: &row,
                new_row: None,
                params: &[],
                aggregates: &[],
                given: &[],
                env: &env,
            };
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

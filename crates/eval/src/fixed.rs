//! Sums, differences and products of numbers with a fixed point.
//!
//! Such an expression is a list of steps on a stack of 128-bit numbers. Digits behind the point are known to whoever makes it, so a step is one multiplication, or an addition of what has as many. Temporal values without a
//! zone are numbers as they are stored: of them programs of one step make sense.

use apus_types::{RowLayout, Value, schema::ColumnType};

/// Most digits of a number.
pub const DIGITS_MAX: usize = 38;
/// Most numbers on the stack.
pub const DEPTH_MAX: usize = 8;
/// Most steps of a program.
pub const STEPS_MAX: usize = 64;

const POWERS: [i128; DIGITS_MAX + 1] = {
    let mut powers = [1; DIGITS_MAX + 1];
    let mut n = 1;
    while n <= DIGITS_MAX {
        powers[n] = powers[n - 1] * 10;
        n += 1;
    }
    powers
};

/// `10^n`; `None` beyond the representation.
#[inline]
pub fn power_of_ten(n: u8) -> Option<i128> {
    POWERS.get(usize::from(n)).copied()
}

/// The product; that of two numbers of 64 bits always fits.
#[inline]
pub fn product(x: i128, y: i128) -> Option<i128> {
    match (i64::try_from(x), i64::try_from(y)) {
        (Ok(x), Ok(y)) => Some(i128::from(x) * i128::from(y)),
        _ => x.checked_mul(y),
    }
}

/// A value that 128 bits do not hold, or that is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// NULL makes the value of the program NULL.
    Column(u16),
    Constant(i128),
    /// Of the two numbers on top, each made longer by so many digits.
    Add(u8, u8),
    Subtract(u8, u8),
    Multiply,
}

/// Steps that leave one number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    steps: Vec<Step>,
    depth: usize,
}

impl Program {
    /// Appends a step; `None` where the program would be no one that is run: over a limit, or with too little on the stack.
    pub fn push(&mut self, step: Step) -> Option<()> {
        self.depth = depth_behind(self.depth, step).filter(|_| self.steps.len() < STEPS_MAX)?;
        self.steps.push(step);
        Some(())
    }
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
    /// Whether one number is what it leaves.
    pub fn is_whole(&self) -> bool {
        self.depth == 1
    }
    /// The value of a row.
    ///
    /// # Errors
    /// [`Unfit`].
    #[inline]
    pub fn eval(&self, layout: &RowLayout, row: &[u8]) -> Result<Option<i128>, Unfit> {
        run(&self.steps, |column| number(layout.value(row, column)))
    }
}

/// Numbers on the stack behind a step; `None` where it lacks some, or these are too many.
pub fn depth_behind(depth: usize, step: Step) -> Option<usize> {
    let behind = match step {
        Step::Column(_) | Step::Constant(_) => depth + 1,
        Step::Add(x, y) | Step::Subtract(x, y) => {
            let is_known = usize::from(x.max(y)) <= DIGITS_MAX;
            depth.checked_sub(1).filter(|behind| *behind > 0 && is_known)?
        }
        Step::Multiply => depth.checked_sub(1).filter(|behind| *behind > 0)?,
    };
    (behind <= DEPTH_MAX).then_some(behind)
}

/// Whether programs may name columns of such a type.
pub fn is_number(ty: ColumnType) -> bool {
    matches!(
        ty,
        ColumnType::Int { .. }
            | ColumnType::Decimal { .. }
            | ColumnType::Date
            | ColumnType::DateTime { .. }
            | ColumnType::Time { .. }
    )
}

/// A stored value as programs see it, NULL as `None`.
#[inline]
pub fn number(value: Value<'_>) -> Result<Option<i128>, Unfit> {
    Ok(Some(match value {
        Value::Int(n) | Value::Time(n) => i128::from(n),
        Value::UInt(n) | Value::DateTime(n) => i128::from(n),
        Value::Decimal { unscaled, .. } => unscaled,
        Value::Date(d) => i128::from(d),
        Value::Null => return Ok(None),
        Value::Float(_) | Value::Double(_) | Value::Bytes(_) | Value::Timestamp(_) => return Err(Unfit),
    }))
}

/// What [`number`] made of a column of this type; `None` where the type has no such value.
pub fn value_of(ty: ColumnType, n: i128) -> Option<Value<'static>> {
    Some(match ty {
        ColumnType::Int { unsigned: true, .. } => Value::UInt(u64::try_from(n).ok()?),
        ColumnType::Int { .. } => Value::Int(i64::try_from(n).ok()?),
        ColumnType::Decimal { scale, .. } => Value::Decimal { unscaled: n, scale },
        ColumnType::Date => Value::Date(u32::try_from(n).ok()?),
        ColumnType::DateTime { .. } => Value::DateTime(u64::try_from(n).ok()?),
        ColumnType::Time { .. } => Value::Time(i64::try_from(n).ok()?),
        _ => return None,
    })
}

/// Runs the steps of a program that is whole. `column` reads one.
#[inline]
pub fn run(steps: &[Step], mut column: impl FnMut(u16) -> Result<Option<i128>, Unfit>) -> Result<Option<i128>, Unfit> {
    let mut stack = [0i128; DEPTH_MAX];
    let mut top = 0usize;
    for step in steps {
        let value = match *step {
            Step::Column(at) => match column(at)? {
                Some(n) => n,
                None => return Ok(None),
            },
            Step::Constant(n) => n,
            Step::Add(x, y) => {
                top -= 2;
                longer(stack[top], x)?.checked_add(longer(stack[top + 1], y)?).ok_or(Unfit)?
            }
            Step::Subtract(x, y) => {
                top -= 2;
                longer(stack[top], x)?.checked_sub(longer(stack[top + 1], y)?).ok_or(Unfit)?
            }
            Step::Multiply => {
                top -= 2;
                product(stack[top], stack[top + 1]).ok_or(Unfit)?
            }
        };
        stack[top] = value;
        top += 1;
    }
    Ok(Some(stack[0]))
}

/// With so many digits more.
#[inline]
fn longer(n: i128, digits: u8) -> Result<i128, Unfit> {
    match digits {
        0 => Ok(n),
        digits => power_of_ten(digits).and_then(|power| product(n, power)).ok_or(Unfit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(steps: &[Step]) -> Option<Program> {
        let mut program = Program::default();
        steps.iter().try_for_each(|step| program.push(*step))?;
        program.is_whole().then_some(program)
    }

    #[test]
    fn steps_are_what_they_say() {
        let price = ColumnType::Decimal { precision: 15, scale: 2, unsigned: false };
        let layout = RowLayout::new([price, ColumnType::Int { bits: 64, unsigned: true }]);
        let row = |unscaled: Option<i128>, n: u64| {
            let mut row = Vec::new();
            let price = unscaled.map_or(Value::Null, |unscaled| Value::Decimal { unscaled, scale: 2 });
            layout.encode(&[price, Value::UInt(n)], &mut row).unwrap();
            row
        };
        // price * (1 - price) + n, n as long as the product.
        let steps = [
            Step::Column(0),
            Step::Constant(1),
            Step::Column(0),
            Step::Subtract(2, 0),
            Step::Multiply,
            Step::Column(1),
            Step::Add(0, 4),
        ];
        let whole = program(&steps).unwrap();
        assert_eq!(whole.eval(&layout, &row(Some(250), 3)), Ok(Some(250 * (100 - 250) + 30_000)));
        assert_eq!(whole.eval(&layout, &row(None, 3)), Ok(None));
        assert_eq!(whole.eval(&layout, &row(Some(10i128.pow(30)), 3)), Err(Unfit));
        assert_eq!(whole.eval(&layout, &row(Some(0), u64::MAX)), Ok(Some(i128::from(u64::MAX) * 10_000)));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert_eq!(program(&[]), None);
        assert_eq!(program(&[Step::Multiply]), None, "nothing on the stack");
        assert_eq!(program(&[Step::Column(0), Step::Multiply]), None, "one number");
        assert_eq!(program(&[Step::Column(0), Step::Column(0)]), None, "two are left");
        assert_eq!(program(&[Step::Constant(1), Step::Constant(1), Step::Add(39, 0)]), None, "a power too large");
        assert!(program(&[Step::Constant(1), Step::Constant(1), Step::Add(38, 0)]).is_some());
        let deep = |n: usize| {
            let all: Vec<Step> =
                std::iter::repeat_n(Step::Constant(1), n).chain(std::iter::repeat_n(Step::Multiply, n - 1)).collect();
            program(&all)
        };
        assert!(deep(DEPTH_MAX).is_some() && deep(DEPTH_MAX + 1).is_none());
        let mut long = vec![Step::Constant(1)];
        while long.len() + 2 <= STEPS_MAX {
            long.extend([Step::Constant(1), Step::Multiply]);
        }
        assert!(program(&long).is_some());
        long.extend([Step::Constant(1), Step::Multiply]);
        assert_eq!(program(&long), None, "too many steps");
    }

    #[test]
    fn values_come_back_as_they_went() {
        let types = [
            (ColumnType::Int { bits: 64, unsigned: false }, Value::Int(i64::MIN)),
            (ColumnType::Int { bits: 64, unsigned: true }, Value::UInt(u64::MAX)),
            (
                ColumnType::Decimal { precision: 38, scale: 4, unsigned: false },
                Value::Decimal { unscaled: -7, scale: 4 },
            ),
            (ColumnType::Date, Value::Date(u32::MAX)),
            (ColumnType::DateTime { decimals: 6 }, Value::DateTime(u64::MAX)),
            (ColumnType::Time { decimals: 6 }, Value::Time(-1)),
        ];
        for (ty, value) in types {
            assert!(is_number(ty));
            assert_eq!(value_of(ty, number(value).unwrap().unwrap()), Some(value));
        }
        assert_eq!(value_of(ColumnType::Int { bits: 64, unsigned: true }, -1), None);
        assert_eq!(number(Value::Double(1.0)), Err(Unfit));
    }
}

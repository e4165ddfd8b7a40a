//! Arithmetic and bit operations.

use super::number;
use crate::{
    errors::{self, Result},
    expr::{ArithOp, Context, Expr},
    value::{
        datum::{Datum, Number},
        decimal,
    },
};

pub(super) fn negate(cx: &Context<'_>, e: &Expr, value: &Datum<'_>) -> Result<Datum<'static>> {
    Ok(match number(cx, value) {
        None => Datum::Null,
        Some(Number::Int(n)) => {
            Datum::Int(n.checked_neg().ok_or_else(|| overflow("BIGINT", "-", value, &Datum::Null))?)
        }
        Some(Number::UInt(n)) if n <= 1 << 63 => Datum::Int((n as i64).wrapping_neg()),
        // What is written so is a decimal.
        Some(Number::UInt(n)) if matches!(e, Expr::Const(_) | Expr::Param(_)) => {
            Datum::Decimal { unscaled: -i128::from(n), scale: 0 }
        }
        Some(Number::UInt(_)) => return Err(overflow("BIGINT", "-", value, &Datum::Null)),
        Some(Number::Decimal(unscaled, scale)) => Datum::decimal(-unscaled, scale, value.shown_scale().min(scale)),
        Some(Number::Double(x)) => Datum::Double(-x),
    })
}

/// Operand of a bit operation.
pub fn to_bits(n: Number) -> u64 {
    match n {
        Number::Int(n) => n as u64,
        Number::UInt(n) => n,
        other => {
            let wide = other.to_i128();
            let high = if wide < 0 { 0 } else { i128::from(i64::MAX) };
            wide.clamp(i128::from(i64::MIN), high) as i64 as u64
        }
    }
}

pub(super) fn overflow(kind: &str, op: &str, a: &Datum<'_>, b: &Datum<'_>) -> crate::wire::SqlError {
    errors::overflow(kind, &format!("({} {op} {})", a.as_string(), b.as_string()))
}

/// The sum, difference or product of two numbers with a fixed point, all of whose digits are shown, where it fits.
#[inline]
fn plain_arith(op: ArithOp, left: &Datum<'_>, right: &Datum<'_>) -> Option<Datum<'static>> {
    let (x, y) = match (left, right) {
        (Datum::Decimal { unscaled, scale }, Datum::Decimal { unscaled: other, scale: of_other }) => {
            ((*unscaled, *scale), (*other, *of_other))
        }
        (Datum::Decimal { unscaled, scale }, Datum::Int(n)) => ((*unscaled, *scale), (i128::from(*n), 0)),
        (Datum::Int(n), Datum::Decimal { unscaled, scale }) => ((i128::from(*n), 0), (*unscaled, *scale)),
        _ => return None,
    };
    let (unscaled, scale) = match op {
        ArithOp::Mul if x.1 + y.1 <= decimal::SCALE_MAX => decimal::multiply(x, y)?,
        ArithOp::Add => decimal::align(x, y).and_then(|(x, y, scale)| Some((x.checked_add(y)?, scale)))?,
        ArithOp::Sub | ArithOp::SignedSub => {
            decimal::align(x, y).and_then(|(x, y, scale)| Some((x.checked_sub(y)?, scale)))?
        }
        _ => return None,
    };
    Some(Datum::Decimal { unscaled, scale })
}

pub fn arith(op: ArithOp, left: &Datum<'_>, right: &Datum<'_>) -> Result<Datum<'static>> {
    use ArithOp::*;
    if let Some(result) = plain_arith(op, left, right) {
        return Ok(result);
    }
    let (Some(a), Some(b)) = (left.number(), right.number()) else { return Ok(Datum::Null) };
    let symbol = match op {
        Add => "+",
        Sub | SignedSub => "-",
        Mul => "*",
        Div => "/",
        IntDiv => "DIV",
        Mod => "%",
        BitAnd => return Ok(Datum::UInt(to_bits(a) & to_bits(b))),
        BitOr => return Ok(Datum::UInt(to_bits(a) | to_bits(b))),
        BitXor => return Ok(Datum::UInt(to_bits(a) ^ to_bits(b))),
        ShiftLeft | ShiftRight => {
            let (bits, by) = (to_bits(a), u32::try_from(to_bits(b)).unwrap_or(64));
            let shifted = if op == ShiftLeft { bits.checked_shl(by) } else { bits.checked_shr(by) };
            return Ok(Datum::UInt(shifted.unwrap_or(0)));
        }
    };
    if matches!(op, Div | IntDiv | Mod) && b.is_zero() {
        return Ok(Datum::Null);
    }
    let fail = |kind| Err(overflow(kind, symbol, left, right));
    let is_unsigned = op != SignedSub && (matches!(a, Number::UInt(_)) || matches!(b, Number::UInt(_)));
    match (a, b) {
        (Number::Int(_) | Number::UInt(_), Number::Int(_) | Number::UInt(_)) if op != Div => {
            let (x, y) = (a.to_i128(), b.to_i128());
            let result = match op {
                Add => x + y,
                Sub | SignedSub => x - y,
                Mul => x.checked_mul(y).unwrap_or(i128::MAX),
                IntDiv => x / y,
                _ => {
                    return Ok(if matches!(a, Number::UInt(_)) {
                        Datum::UInt((x % y) as u64)
                    } else {
                        Datum::Int((x % y) as i64)
                    });
                }
            };
            if is_unsigned {
                u64::try_from(result).map_or_else(|_| fail("BIGINT UNSIGNED"), |n| Ok(Datum::UInt(n)))
            } else {
                i64::try_from(result).map_or_else(|_| fail("BIGINT"), |n| Ok(Datum::Int(n)))
            }
        }
        (a, b) => match (a.to_decimal(), b.to_decimal()) {
            (Some(x), Some(y)) => {
                let shown = (left.shown_scale(), right.shown_scale());
                match decimal_arith(op, x, y, shown) {
                    // A quotient of what has no sign has none.
                    Some(Datum::Int(n)) if op == IntDiv && n < 0 && is_unsigned => fail("BIGINT UNSIGNED"),
                    result => result.map_or_else(|| fail("DECIMAL"), Ok),
                }
            }
            _ => {
                let (x, y) = (a.to_f64(), b.to_f64());
                let result = match op {
                    Add => x + y,
                    Sub | SignedSub => x - y,
                    Mul => x * y,
                    Div => x / y,
                    Mod => x % y,
                    _ => {
                        let quotient = (x / y).trunc() as i128;
                        if is_unsigned && quotient < 0 {
                            return fail("BIGINT UNSIGNED");
                        }
                        return i64::try_from(quotient).map_or_else(|_| fail("BIGINT"), |n| Ok(Datum::Int(n)));
                    }
                };
                if result.is_finite() { Ok(Datum::Double(result)) } else { fail("DOUBLE") }
            }
        },
    }
}

/// Arithmetic on exact numbers that are declared with `shown` digits. Where the representation is too small for all the
/// digits, those that are not shown go first.
fn decimal_arith(
    op: ArithOp,
    mut x: (i128, u8),
    mut y: (i128, u8),
    (shown_x, shown_y): (u8, u8),
) -> Option<Datum<'static>> {
    let shown = match op {
        ArithOp::Mul => shown_x + shown_y,
        ArithOp::Div => shown_x + decimal::DIVISION_DIGITS,
        _ => shown_x.max(shown_y),
    };
    loop {
        let done = match op {
            ArithOp::Div => decimal::divide(x, y, shown.min(decimal::SCALE_MAX)),
            ArithOp::Mul => decimal::multiply(x, y),
            _ => decimal::align(x, y).and_then(|(a, b, scale)| match op {
                ArithOp::Add => Some((a.checked_add(b)?, scale)),
                ArithOp::Sub | ArithOp::SignedSub => Some((a.checked_sub(b)?, scale)),
                ArithOp::Mod => Some((a % b, scale)),
                _ => Some((a / b, 0)),
            }),
        };
        if let Some((unscaled, scale)) = done {
            return Some(match (op, i64::try_from(unscaled)) {
                (ArithOp::IntDiv, Ok(n)) => Datum::Int(n),
                _ => Datum::decimal(unscaled, scale, shown.min(decimal::SCALE_MAX)),
            });
        }
        let longer = match (x.1 > shown_x, y.1 > shown_y) {
            (true, true) if y.1 > x.1 => &mut y,
            (true, _) => &mut x,
            (false, true) => &mut y,
            (false, false) => return None,
        };
        *longer = (decimal::truncate(longer.0, longer.1, longer.1 - 1)?, longer.1 - 1);
    }
}

/// The number that a text is, without loss where it is written without an exponent.
pub(super) fn exact(text: &[u8]) -> Datum<'static> {
    match decimal::parse_prefix(text.trim_ascii()) {
        Some((n, 0, [])) => match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => Datum::Int(n),
            (_, Ok(n)) => Datum::UInt(n),
            _ => Datum::Decimal { unscaled: n, scale: 0 },
        },
        Some((unscaled, scale, [])) => Datum::Decimal { unscaled, scale },
        _ => Datum::Double(crate::value::datum::text_to_f64(text).0),
    }
}

//! Functions over numbers.

use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func},
    value::{
        datum::{Datum, Number},
        decimal,
    },
};

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    if f == Pi {
        return Ok(Datum::Double(std::f64::consts::PI));
    }
    let first = args[0].eval(cx)?;
    if f == Crc32 {
        return Ok(if first.is_null() { Datum::Null } else { Datum::UInt(u64::from(crc32(&first.as_text()))) });
    }
    if let (BitCount, Datum::Bytes(bytes)) = (f, &first) {
        return Ok(Datum::Int(bytes.iter().map(|b| i64::from(b.count_ones())).sum()));
    }
    let Some(n) = first.number() else { return Ok(Datum::Null) };
    let second = match args.get(1) {
        Some(e) => match e.eval(cx)?.number() {
            Some(m) => Some(m),
            None => return Ok(Datum::Null),
        },
        None => None,
    };
    let x = n.to_f64();
    let double = |x: f64| Ok(if x.is_finite() { Datum::Double(x) } else { Datum::Null });
    match f {
        Abs => match n {
            Number::Int(i) => {
                i.checked_abs().map(Datum::Int).ok_or_else(|| errors::overflow("BIGINT", &format!("abs({i})")))
            }
            Number::Decimal(unscaled, scale) => {
                Ok(Datum::decimal(unscaled.abs(), scale, first.shown_scale().min(scale)))
            }
            Number::Double(x) => Ok(Datum::Double(x.abs())),
            Number::UInt(u) => Ok(Datum::UInt(u)),
        },
        Mod => crate::expr::eval::arithmetic::arith(crate::expr::ArithOp::Mod, &first, &args[1].eval(cx)?),
        Round | Truncate => {
            round(n, second.map_or(0, |m| m.to_i128().clamp(-60, 60) as i32), f == Truncate, args.len() > 1)
        }
        Floor | Ceil => Ok(match n {
            Number::Decimal(unscaled, scale) => {
                let unit = decimal::power_of_ten(scale).unwrap_or(1);
                let whole = if f == Floor { unscaled.div_euclid(unit) } else { -(-unscaled).div_euclid(unit) };
                Datum::Decimal { unscaled: whole, scale: 0 }
            }
            Number::Double(x) => Datum::Double(if f == Floor { x.floor() } else { x.ceil() }),
            n => n.datum(),
        }),
        Pow => {
            let result = x.powf(second.map_or(0.0, Number::to_f64));
            if result.is_finite() { Ok(Datum::Double(result)) } else { Err(errors::overflow("DOUBLE", "pow")) }
        }
        Exp => {
            if x.exp().is_finite() {
                Ok(Datum::Double(x.exp()))
            } else {
                Err(errors::overflow("DOUBLE", "exp"))
            }
        }
        BitCount => Ok(Datum::Int(i64::from(crate::expr::eval::arithmetic::to_bits(n).count_ones()))),
        Degrees => double(x.to_degrees()),
        Radians => double(x.to_radians()),
        Sin => double(x.sin()),
        Cos => double(x.cos()),
        Tan => double(x.tan()),
        Asin => double(x.asin()),
        Acos => double(x.acos()),
        Atan => double(second.map_or_else(|| x.atan(), |y| x.atan2(y.to_f64()))),
        Cot => {
            let result = 1.0 / x.tan();
            if result.is_finite() { Ok(Datum::Double(result)) } else { Err(errors::overflow("DOUBLE", "cot")) }
        }
        Sqrt if x >= 0.0 => double(x.sqrt()),
        Ln if x > 0.0 => double(x.ln()),
        Log2 if x > 0.0 => double(x.log2()),
        Log10 if x > 0.0 => double(x.log10()),
        Log => match second.map(Number::to_f64) {
            None if x > 0.0 => double(x.ln()),
            Some(y) if x > 0.0 && x != 1.0 && y > 0.0 => double(y.ln() / x.ln()),
            _ => Ok(Datum::Null),
        },
        Sign => Ok(Datum::Int(if n.is_zero() {
            0
        } else if x < 0.0 {
            -1
        } else {
            1
        })),
        _ => Ok(Datum::Null),
    }
}
fn round(n: Number, digits: i32, truncate: bool, has_digits: bool) -> Result<Datum<'static>> {
    Ok(match n {
        Number::Double(x) => {
            let factor = 10f64.powi(digits);
            let scaled = x * factor;
            let rounded = if truncate { scaled.trunc() } else { scaled.round_ties_even() };
            let result = if factor.is_finite() && factor != 0.0 { rounded / factor } else { x };
            Datum::Double(if result.is_finite() { result } else { x })
        }
        Number::Decimal(unscaled, scale) => {
            let keep = digits.clamp(0, i32::from(decimal::SCALE_MAX)) as u8;
            let kept = if truncate {
                decimal::truncate(unscaled, scale, keep)
            } else {
                decimal::rescale(unscaled, scale, keep)
            };
            if digits >= 0 {
                let Some(kept) = kept else { return Err(errors::overflow("DECIMAL", "round")) };
                Datum::Decimal { unscaled: kept, scale: if has_digits { keep } else { 0 } }
            } else {
                let whole = decimal::truncate(unscaled, scale, 0).unwrap_or(0);
                Datum::Decimal { unscaled: round_tens(whole, digits, truncate), scale: 0 }
            }
        }
        n if digits >= 0 => n.datum(),
        Number::UInt(u) => Datum::UInt(u64::try_from(round_tens(i128::from(u), digits, truncate)).unwrap_or(u64::MAX)),
        n => Datum::Int(i64::try_from(round_tens(n.to_i128(), digits, truncate)).unwrap_or(i64::MAX)),
    })
}

fn round_tens(n: i128, digits: i32, truncate: bool) -> i128 {
    let Some(unit) = 10i128.checked_pow(digits.unsigned_abs()) else { return 0 };
    let rest = n % unit;
    let up = !truncate && rest.abs() * 2 >= unit;
    n - rest + if up { unit * n.signum() } else { 0 }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

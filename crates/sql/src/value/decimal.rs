//! Exact decimals as a 128-bit unscaled integer and a scale.

pub use apus_eval::fixed::{DIGITS_MAX, power_of_ten, product};

/// MySQL adds this many digits to the dividend's scale in a division (`div_precision_increment`).
pub const DIVISION_DIGITS: u8 = 4;
/// MySQL's largest scale.
pub const SCALE_MAX: u8 = 30;

/// A plain decimal number (`[+-]digits[.digits]`), all of it.
pub fn parse_exact(text: &str) -> Option<(i128, u8)> {
    let (unscaled, scale, rest) = parse_prefix(text.as_bytes())?;
    rest.is_empty().then_some((unscaled, scale))
}

/// As [`parse_prefix`], an exponent included: `1.5e3`.
pub fn parse_scientific(text: &[u8]) -> Option<(i128, u8)> {
    let (unscaled, scale, rest) = parse_prefix(text)?;
    let exponent = match rest {
        [b'e' | b'E', b'-', digits @ ..] => parse_prefix(digits).map(|(n, s, _)| -truncate(n, s, 0).unwrap_or(0)),
        [b'e' | b'E', digits @ ..] => parse_prefix(digits).map(|(n, s, _)| truncate(n, s, 0).unwrap_or(0)),
        _ => None,
    };
    let shift = i128::from(scale) - exponent.unwrap_or(0).clamp(-100, 100);
    match u8::try_from(shift) {
        Ok(scale) if scale <= SCALE_MAX => Some((unscaled, scale)),
        Ok(scale) => Some((truncate(unscaled, scale, SCALE_MAX)?, SCALE_MAX)),
        Err(_) => Some((unscaled.checked_mul(power_of_ten(u8::try_from(-shift).ok()?)?)?, 0)),
    }
}

/// The longest decimal number at the start, and what follows it.
pub fn parse_prefix(text: &[u8]) -> Option<(i128, u8, &[u8])> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mut unscaled, mut scale, mut seen, mut point) = (0i128, 0u8, false, false);
    let mut at = 0;
    for &b in digits {
        match b {
            b'0'..=b'9' => {
                seen = true;
                if point && scale == 30 {
                    at += 1;
                    continue; // beyond the largest scale
                }
                unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
                scale += u8::from(point);
            }
            b'.' if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    seen.then_some((if negative { -unscaled } else { unscaled }, scale, &digits[at..]))
}

/// Changes the scale, rounding half away from zero; `None` on overflow.
#[inline]
pub fn rescale(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if to == from {
        return Some(unscaled);
    }
    if to > from {
        return product(unscaled, power_of_ten(to - from)?);
    }
    let Some(divisor) = power_of_ten(from - to) else { return Some(0) };
    let (quotient, remainder) = (unscaled / divisor, unscaled % divisor);
    let up = remainder.unsigned_abs() * 2 >= divisor.unsigned_abs();
    Some(if up { quotient + unscaled.signum() } else { quotient })
}

/// Changes the scale towards zero.
pub fn truncate(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from { rescale(unscaled, from, to) } else { Some(power_of_ten(from - to).map_or(0, |d| unscaled / d)) }
}

/// Both at the larger of the two scales.
pub fn align(a: (i128, u8), b: (i128, u8)) -> Option<(i128, i128, u8)> {
    let scale = a.1.max(b.1);
    Some((rescale(a.0, a.1, scale)?, rescale(b.0, b.1, scale)?, scale))
}

/// The product, at most [`SCALE_MAX`] digits behind the point.
pub fn multiply(x: (i128, u8), y: (i128, u8)) -> Option<(i128, u8)> {
    let (product, scale) = (product(x.0, y.0)?, x.1 + y.1);
    if scale > SCALE_MAX { Some((rescale(product, scale, SCALE_MAX)?, SCALE_MAX)) } else { Some((product, scale)) }
}

/// Digits of a word of MySQL's decimals.
pub const WORD_DIGITS: u8 = 9;

/// The quotient, rounded to `scale` digits behind the point, as MySQL 9 hands it on (until 8.4 it kept whole words of nine digits). It divides in words of nine digits: where these end with the
/// digits that are wanted, behind a divisor without a point, nothing is left to be rounded by. `None` when it does not fit.
pub fn divide(x: (i128, u8), y: (i128, u8), scale: u8) -> Option<(i128, u8)> {
    let (dividend, divisor) = (x.0.unsigned_abs(), y.0.unsigned_abs());
    let digits = i16::from(scale) + i16::from(y.1) - i16::from(x.1);
    let (mut quotient, mut rest) = (dividend.checked_div(divisor)?, dividend % divisor);
    let factor = u8::try_from(digits).ok().and_then(power_of_ten).map_or(0, i128::unsigned_abs);
    if let Some(longer) = dividend.checked_mul(factor).filter(|_| factor > 0) {
        (quotient, rest) = (longer / divisor, longer % divisor);
    } else {
        for _ in 0..digits {
            let next = rest.checked_mul(10)?;
            quotient = quotient.checked_mul(10)?.checked_add(next / divisor)?;
            rest = next % divisor;
        }
    }
    let is_negative = (x.0 < 0) != (y.0 < 0);
    let signed = |n: u128| i128::try_from(n).ok().map(|n| if is_negative { -n } else { n });
    if digits < 0 {
        // More digits than are wanted: what is cut off the quotient decides, the rest of the division cannot.
        return Some((rescale(signed(quotient)?, digits.unsigned_abs() as u8, 0)?, scale));
    }
    let is_cut = y.1 == 0 && scale.is_multiple_of(WORD_DIGITS);
    Some((signed(quotient + u128::from(!is_cut && rest >= divisor - rest))?, scale))
}

pub fn to_f64(unscaled: i128, scale: u8) -> f64 {
    if scale == 0 {
        return unscaled as f64;
    }
    // Through the digits, so that the nearest double is met.
    let mut text = Vec::with_capacity(48);
    push(&mut text, unscaled, scale);
    std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok()).unwrap_or(0.0)
}

/// Nearest decimal of a scale; `None` when it does not fit.
pub fn from_f64(x: f64, scale: u8) -> Option<i128> {
    let wide = (x * 10f64.powi(i32::from(scale))).round();
    (wide.abs() < 1e38).then_some(wide as i128)
}

/// Appends the digits.
pub fn push(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    let mut digits = [b'0'; 48];
    let mut at = digits.len();
    let mut rest = unscaled.unsigned_abs();
    let mut written = 0usize;
    while rest > 0 || written <= usize::from(scale) {
        if written == usize::from(scale) && scale > 0 {
            at -= 1;
            digits[at] = b'.';
        }
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        written += 1;
    }
    if unscaled < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_round_trip() {
        for (text, unscaled, scale) in
            [("0", 0, 0), ("0.00", 0, 2), ("-1.50", -150, 2), ("123", 123, 0), ("0.05", 5, 2)]
        {
            assert_eq!(parse_exact(text), Some((unscaled, scale)));
            let mut out = Vec::new();
            push(&mut out, unscaled, scale);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        let mut out = Vec::new();
        push(&mut out, i128::MIN, 30);
        assert!(out.len() > 38);
    }

    #[test]
    fn rounding() {
        assert_eq!(rescale(125, 2, 1), Some(13));
        assert_eq!(rescale(-125, 2, 1), Some(-13));
        assert_eq!(rescale(124, 2, 1), Some(12));
        assert_eq!(truncate(129, 2, 1), Some(12));
        assert_eq!(rescale(1, 0, 2), Some(100));
        assert_eq!(parse_exact("1.5x"), None);
        assert_eq!(parse_scientific(b"1.5e2x"), Some((150, 0)));
        assert_eq!(parse_scientific(b"-12e-3"), Some((-12, 3)));
        assert_eq!(parse_scientific(b"1e"), Some((1, 0)));
        assert_eq!(parse_scientific(b"1e99"), None);
    }

    #[test]
    fn quotients_are_rounded() {
        assert_eq!(divide((1, 0), (3, 0), 4), Some((3333, 4)));
        assert_eq!(divide((10, 1), (3, 0), 5), Some((33333, 5)));
        assert_eq!(divide((-20, 1), (30, 1), 5), Some((-66667, 5)));
        assert_eq!(divide((1, 0), (-20, 1), 0), Some((-1, 0)));
        assert_eq!(divide((1, 0), (-2, 0), 0), Some((0, 0)), "no word is left");
        assert_eq!(divide((200_000, 5), (3, 0), 9), Some((666_666_666, 9)), "nor here");
        assert_eq!(divide((20_000, 4), (3, 0), 8), Some((66_666_667, 8)));
        assert_eq!(divide((12345, 3), (5, 0), 1), Some((25, 1)));
        assert_eq!(divide((10i128.pow(37), 1), (7, 0), 0), Some((142_857_142_857_142_857_142_857_142_857_142_857, 0)));
        assert_eq!(divide((i128::MAX, 0), (3, 0), 4), None);
        assert_eq!(divide((1, 0), (0, 0), 4), None);
    }
}

//! Exact decimals as a 128-bit unscaled integer and a scale.

/// Most digits that the representation holds.
pub const DIGITS_MAX: usize = 38;
/// MySQL adds this many digits to the dividend's scale in a division (`div_precision_increment`).
pub const DIVISION_DIGITS: u8 = 4;

/// `10^n`; `None` beyond the representation.
pub fn power_of_ten(n: u8) -> Option<i128> {
    10i128.checked_pow(u32::from(n))
}

/// A plain decimal number (`[+-]digits[.digits]`), all of it.
pub fn parse_exact(text: &str) -> Option<(i128, u8)> {
    let (unscaled, scale, rest) = parse_prefix(text.as_bytes())?;
    rest.is_empty().then_some((unscaled, scale))
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
pub fn rescale(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        return unscaled.checked_mul(power_of_ten(to - from)?);
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
    }
}

//! Numbers as MySQL prints them in the text protocol, without allocation.
//!
//! Doubles take the shortest digits that read back to the same value; floats at most six significant digits. Both
//! print in fixed notation while the decimal point falls within fifteen places, otherwise as `1.5e20` and `1e-20`
//! (no plus sign, no zero padding). Infinity and not-a-number print as `0`, as MySQL's conversion does.

use std::io::Write;

const DIGIT_PAIRS: &[u8; 200] =
    b"00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445\
464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Appends `v` in decimal.
pub fn push_u64(out: &mut Vec<u8>, v: u64) {
    let mut digits = [0u8; 20];
    let start = format_u64(&mut digits, v);
    out.extend_from_slice(&digits[start..]);
}

/// Writes `v` right-aligned into `digits` and returns where it starts.
pub fn format_u64(digits: &mut [u8; 20], mut v: u64) -> usize {
    let mut at = digits.len();
    while v >= 100 {
        let pair = (v % 100) as usize * 2;
        v /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if v >= 10 {
        let pair = v as usize * 2;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + v as u8;
    }
    at
}

/// Appends `v` as exactly two digits; the value is below 100.
pub fn push_two(out: &mut Vec<u8>, v: u8) {
    let pair = usize::from(v % 100) * 2;
    out.extend_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
}

/// Appends `v` as at least four digits.
pub fn push_four(out: &mut Vec<u8>, v: u16) {
    if v >= 10_000 {
        return push_u64(out, u64::from(v));
    }
    push_two(out, (v / 100) as u8);
    push_two(out, (v % 100) as u8);
}

/// Appends `.` and the first `decimals` digits of a fraction given in microseconds; nothing for zero decimals.
pub fn push_fraction(out: &mut Vec<u8>, micros: u32, decimals: u8) {
    if decimals == 0 {
        return;
    }
    let mut digits = *b"000000";
    let mut rest = micros % 1_000_000;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push(b'.');
    out.extend_from_slice(&digits[..usize::from(decimals.min(6))]);
}

/// Appends a double in MySQL's general format.
pub fn push_f64(out: &mut Vec<u8>, v: f64) {
    push_general(out, v, None);
}

/// Appends a float in MySQL's general format: at most six significant digits.
pub fn push_f32(out: &mut Vec<u8>, v: f32) {
    push_general(out, f64::from(v), Some(5));
}

/// Appends a double with a fixed number of decimals, for columns declared as `DOUBLE(M, D)`.
pub fn push_f64_fixed(out: &mut Vec<u8>, v: f64, decimals: u8) {
    if v.is_finite() {
        let _ = write!(out, "{:.*}", usize::from(decimals.min(30)), v);
    } else {
        out.push(b'0');
    }
}

/// Digits that tell every double from all others.
const DIGITS_MAX: usize = 17;

/// In scientific notation, as short as possible or with so many digits behind the point; the bytes used. A point, two signs and an exponent fit beside the digits.
fn scientific(scratch: &mut [u8; 32], v: f64, fraction_digits: Option<usize>) -> usize {
    let mut rest = &mut scratch[..];
    let written = match fraction_digits {
        None => write!(rest, "{v:e}"),
        Some(n) => write!(rest, "{v:.n$e}"),
    };
    assert!(written.is_ok(), "a double in scientific notation fits in 32 bytes");
    32 - rest.len()
}

/// Decimal point positions outside -14..=15 switch to exponent notation.
const FIXED_POINT_MAX: i32 = 15;

fn push_general(out: &mut Vec<u8>, v: f64, fraction_digits: Option<usize>) {
    if !v.is_finite() {
        return out.push(b'0');
    }
    let mut scratch = [0u8; 32];
    let mut used = scientific(&mut scratch, v, fraction_digits);
    let digits_of = |text: &[u8]| text.iter().take_while(|b| **b != b'e').filter(|b| b.is_ascii_digit()).count();
    if fraction_digits.is_none() && digits_of(&scratch[..used]) == DIGITS_MAX {
        // Of two that are equally near MySQL takes the even one.
        used = scientific(&mut scratch, v, Some(DIGITS_MAX - 1));
    }
    let text = &scratch[..used];
    let e = text.iter().position(|&b| b == b'e').unwrap_or(used);
    let exponent: i32 = std::str::from_utf8(&text[(e + 1).min(used)..]).ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut digits = [0u8; 20];
    let mut len = 0;
    for &b in text[..e].iter().filter(|b| b.is_ascii_digit()) {
        digits[len] = b;
        len += 1;
    }
    while len > 1 && digits[len - 1] == b'0' {
        len -= 1;
    }
    if v.is_sign_negative() {
        out.push(b'-');
    }
    push_digits(out, &digits[..len], exponent);
}

/// `digits` is d.ddd times ten to the `exponent`.
fn push_digits(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    let point = exponent + 1;
    if !(1 - FIXED_POINT_MAX..=FIXED_POINT_MAX).contains(&point) {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let _ = write!(out, "e{exponent}");
        return;
    }
    if point <= 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + point.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
        return;
    }
    let point = point as usize;
    if digits.len() <= point {
        out.extend_from_slice(digits);
        out.resize(out.len() + point - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..point]);
        out.push(b'.');
        out.extend_from_slice(&digits[point..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers() {
        for v in [0, 1, 9, 10, 99, 100, 101, 999, 1000, 12345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            assert_eq!(text(|o| push_u64(o, v)), v.to_string());
        }
    }

    #[test]
    fn doubles_as_mysql_prints_them() {
        for (v, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (100.0, "100"),
            (123456.789, "123456.789"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (1e20, "1e20"),
            (1.5e300, "1.5e300"),
            (-1.25e-20, "-1.25e-20"),
            (0.001, "0.001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
            // As near to ...63.
            (f64::from(1.628_395_1f32), "1.6283950805664062"),
        ] {
            assert_eq!(text(|o| push_f64(o, v)), want);
        }
    }

    #[test]
    fn floats_have_six_digits() {
        for (v, want) in [
            (0.1f32, "0.1"),
            (16777216.0, "16777200"),
            (1.2345678, "1.23457"),
            (1e10, "10000000000"),
            (1.5, "1.5"),
            (1e20, "1e20"),
            (1.1754944e-38, "1.17549e-38"),
        ] {
            assert_eq!(text(|o| push_f32(o, v)), want);
        }
    }

    #[test]
    fn fixed_and_fractions() {
        assert_eq!(text(|o| push_f64_fixed(o, 1.005, 2)), "1.00");
        assert_eq!(text(|o| push_f64_fixed(o, 2.5, 3)), "2.500");
        assert_eq!(text(|o| push_fraction(o, 42, 6)), ".000042");
        assert_eq!(text(|o| push_fraction(o, 120_000, 2)), ".12");
        assert_eq!(text(|o| push_fraction(o, 5, 0)), "");
        assert_eq!(text(|o| push_four(o, 7)), "0007");
    }
}

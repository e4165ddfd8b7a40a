//! BIT: numbers of so many bits that are shown as bytes.
//!
//! In the data nodes such a column is an integer without sign that has room for its bits; the dictionary says that it is one of bits ([`apus_types::schema::Form`]).
//! A value is a [`Datum::Bit`]: a number in arithmetic and comparisons, its bytes, the highest first, where a text is wanted and in results.
//! The default of such a column is kept as SHOW CREATE TABLE writes it: `b'101'`.

use apus_types::ColumnType;

use super::datum::{Datum, Number};
use crate::{
    errors::Result,
    parse::{
        column_type::sizes,
        token::{Token, Tokens},
    },
    wire::SqlError,
};

const LENGTH_MAX: u32 = 64;

/// BIT with its length, 1 where none is named; `None`: another type.
///
/// # Errors
/// 1439 and 3013.
pub fn column_type(t: &mut Tokens, column: &str) -> Result<Option<ColumnType>> {
    if !t.word("bit") {
        return Ok(None);
    }
    match sizes(t)?.first().copied().unwrap_or(1) {
        0 => Err(SqlError::new(3013, b"HY000", format!("Invalid size for column '{column}'."))),
        n @ 1..=LENGTH_MAX => Ok(Some(ColumnType::Bit { length: n as u8 })),
        _ => {
            let text = format!("Display width out of range for column '{column}' (max = {LENGTH_MAX})");
            Err(SqlError::new(1439, b"42000", text))
        }
    }
}

/// The last bytes of a number, as many as so many bits take.
pub fn shown(number: &[u8; 8], length: u8) -> &[u8] {
    &number[8 - usize::from(length.div_ceil(8)).min(8)..]
}

/// `b'101'`.
pub fn literal(n: u64) -> String {
    format!("b'{n:b}'")
}

/// What [`literal`] has made.
pub fn of_default(text: &str, length: u8) -> Datum<'static> {
    let digits = text.strip_prefix("b'").and_then(|t| t.strip_suffix('\'')).unwrap_or("");
    Datum::Bit(u64::from_str_radix(digits, 2).unwrap_or(0), length)
}

/// `None`: they are more than 64 bits.
pub fn of_bytes(bytes: &[u8]) -> Option<u64> {
    let first = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
    let mut number = [0; 8];
    let digits = &bytes[first..];
    number[8usize.checked_sub(digits.len())?..].copy_from_slice(digits);
    Some(u64::from_be_bytes(number))
}

/// The value that a column of this length has for another one; `None`: it has more bits. Of a text its bytes are the number.
pub fn assigned(value: &Datum<'_>, length: u8) -> Option<u64> {
    let n = match value {
        Datum::Text(bytes) | Datum::Bytes(bytes) => of_bytes(bytes)?,
        // Below zero: all the bits of a number of 64.
        _ => match value.number()? {
            Number::Int(n) => n as u64,
            Number::Double(x) if x.abs() >= 1.9e19 => return None,
            Number::Double(x) => {
                let n = x.round_ties_even() as i128;
                u64::try_from(n).unwrap_or(n as i64 as u64)
            }
            n => {
                let n = n.to_i128();
                u64::try_from(n).or_else(|_| i64::try_from(n).map(|n| n as u64)).ok()?
            }
        },
    };
    (n <= u64::MAX >> (64 - u32::from(length.max(1)))).then_some(n)
}

/// A bit or hexadecimal literal that comes next: `b'1'`, `0b1`, `x'0A'`, `0x0a`.
///
/// # Errors
/// 1064: other digits.
pub fn written(t: &mut Tokens) -> Result<Option<Vec<u8>>> {
    let (digits, is_hex, tokens) = match t.rest() {
        [Token::Word(w), Token::Text(digits), ..] if w.eq_ignore_ascii_case("b") => (digits.clone(), false, 2),
        [Token::Word(w), Token::Text(digits), ..] if w.eq_ignore_ascii_case("x") => (digits.clone(), true, 2),
        [Token::Word(w), ..] if w.starts_with("0b") => (w[2..].to_owned(), false, 1),
        [Token::Word(w), ..] if w.starts_with("0x") => (w[2..].to_owned(), true, 1),
        _ => return Ok(None),
    };
    let (radix, per_byte) = if is_hex { (16, 2) } else { (2, 8) };
    let is_legal = digits.chars().all(|c| c.is_digit(radix)) && (!is_hex || tokens == 1 || digits.len() % 2 == 0);
    if !is_legal {
        return Err(t.error());
    }
    (0..tokens).for_each(|_| t.skip());
    let byte = |part: &[u8]| part.iter().fold(0, |n, c| n * radix + char::from(*c).to_digit(radix).unwrap_or(0)) as u8;
    Ok(Some(digits.as_bytes().rchunks(per_byte).rev().map(byte).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes() {
        assert_eq!(shown(&0x0fffu64.to_be_bytes(), 12), [0x0f, 0xff]);
        assert_eq!(shown(&1u64.to_be_bytes(), 1), [1]);
        assert_eq!(of_bytes(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Some(0x102));
        assert_eq!(of_bytes(b"abcdefghi"), None);
        assert_eq!(of_default(&literal(5), 3), Datum::Bit(5, 3));
        for (value, length, want) in [
            (Datum::Int(-1), 64, Some(u64::MAX)),
            (Datum::Int(-1), 63, None),
            (Datum::text("1"), 6, Some(0x31)),
            (Datum::text("1"), 5, None),
            (Datum::Decimal { unscaled: 15, scale: 1 }, 2, Some(2)),
            (Datum::Double(2.5), 2, Some(2)),
            (Datum::Double(1e30), 64, None),
        ] {
            assert_eq!(assigned(&value, length), want, "{value:?} {length}");
        }
    }

    #[test]
    fn literals() {
        let read = |text: &str| written(&mut Tokens::new(text)).map_err(|e| e.errno);
        assert_eq!(read("b'100000001' x"), Ok(Some(vec![1, 1])));
        assert_eq!(read("0x0a"), Ok(Some(vec![10])));
        assert_eq!(read("0xabc"), Ok(Some(vec![10, 0xbc])));
        assert_eq!(read("X'4142'"), Ok(Some(b"AB".to_vec())));
        assert_eq!(read("b'12'"), Err(1064));
        assert_eq!(read("x'123'"), Err(1064));
        assert_eq!(read("'1'"), Ok(None));
    }
}

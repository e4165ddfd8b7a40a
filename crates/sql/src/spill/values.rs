//! Values of a group as bytes, for files that only this process reads: each as it is, with what only arithmetic knows of it.

use std::borrow::Cow;

use crate::{
    errors::{self, Result},
    value::datum::Datum,
};

const NULL: u8 = 0;
const INT: u8 = 1;
const UINT: u8 = 2;
const DECIMAL: u8 = 3;
const FINE: u8 = 4;
const DOUBLE: u8 = 5;
const TEXT: u8 = 6;
const BYTES: u8 = 7;
const DATE: u8 = 8;
const DATE_TIME: u8 = 9;
const TIME: u8 = 10;
const LABEL: u8 = 11;
const JSON: u8 = 12;
const BIT: u8 = 13;

/// Appends a row and the values beside it.
pub fn push_group(row: &[u8], values: &[Datum<'_>], out: &mut Vec<u8>) {
    push_bytes(row, out);
    values.iter().for_each(|value| push(value, out));
}

/// What [`push_group`] has written.
///
/// # Errors
/// It has written something else.
pub fn group(mut bytes: &[u8]) -> Result<(&[u8], Vec<Datum<'_>>)> {
    let row = take_bytes(&mut bytes)?;
    let mut values = Vec::new();
    while !bytes.is_empty() {
        values.push(take(&mut bytes)?);
    }
    Ok((row, values))
}

/// Appends a value.
pub fn push(value: &Datum<'_>, out: &mut Vec<u8>) {
    match value {
        Datum::Null => out.push(NULL),
        Datum::Int(n) => push_tagged(INT, &n.to_le_bytes(), out),
        Datum::UInt(n) => push_tagged(UINT, &n.to_le_bytes(), out),
        Datum::Decimal { unscaled, scale } => {
            push_tagged(DECIMAL, &unscaled.to_le_bytes(), out);
            out.push(*scale);
        }
        Datum::Fine { unscaled, scale, shown } => {
            push_tagged(FINE, &unscaled.to_le_bytes(), out);
            out.extend_from_slice(&[*scale, *shown]);
        }
        Datum::Double(x) => push_tagged(DOUBLE, &x.to_bits().to_le_bytes(), out),
        Datum::Text(text) => push_text(TEXT, text, out),
        Datum::Bytes(bytes) => push_text(BYTES, bytes, out),
        Datum::Date(date) => push_tagged(DATE, &date.to_le_bytes(), out),
        Datum::DateTime(moment, digits) => {
            push_tagged(DATE_TIME, &moment.to_le_bytes(), out);
            out.push(*digits);
        }
        Datum::Time(time, digits) => {
            push_tagged(TIME, &time.to_le_bytes(), out);
            out.push(*digits);
        }
        Datum::Label(number, text) => {
            push_tagged(LABEL, &number.to_le_bytes(), out);
            push_bytes(text, out);
        }
        Datum::Json(document) => push_text(JSON, document, out),
        Datum::Bit(n, length) => {
            push_tagged(BIT, &n.to_le_bytes(), out);
            out.push(*length);
        }
    }
}

fn push_tagged(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(bytes);
}
fn push_text(tag: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    push_bytes(text, out);
}
fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes a value from the front.
///
/// # Errors
/// There is none.
pub fn take<'b>(bytes: &mut &'b [u8]) -> Result<Datum<'b>> {
    Ok(match byte(bytes)? {
        NULL => Datum::Null,
        INT => Datum::Int(i64::from_le_bytes(fixed(bytes)?)),
        UINT => Datum::UInt(u64::from_le_bytes(fixed(bytes)?)),
        DECIMAL => Datum::Decimal { unscaled: i128::from_le_bytes(fixed(bytes)?), scale: byte(bytes)? },
        FINE => {
            let unscaled = i128::from_le_bytes(fixed(bytes)?);
            Datum::Fine { unscaled, scale: byte(bytes)?, shown: byte(bytes)? }
        }
        DOUBLE => Datum::Double(f64::from_bits(u64::from_le_bytes(fixed(bytes)?))),
        TEXT => Datum::Text(Cow::Borrowed(take_bytes(bytes)?)),
        BYTES => Datum::Bytes(Cow::Borrowed(take_bytes(bytes)?)),
        DATE => Datum::Date(u32::from_le_bytes(fixed(bytes)?)),
        DATE_TIME => Datum::DateTime(u64::from_le_bytes(fixed(bytes)?), byte(bytes)?),
        TIME => Datum::Time(i64::from_le_bytes(fixed(bytes)?), byte(bytes)?),
        LABEL => Datum::Label(u64::from_le_bytes(fixed(bytes)?), Cow::Borrowed(take_bytes(bytes)?)),
        JSON => Datum::Json(Cow::Borrowed(take_bytes(bytes)?)),
        BIT => Datum::Bit(u64::from_le_bytes(fixed(bytes)?), byte(bytes)?),
        _ => return Err(cut_off()),
    })
}

fn cut_off() -> crate::wire::SqlError {
    errors::internal("values that are cut off")
}
fn byte(bytes: &mut &[u8]) -> Result<u8> {
    fixed::<1>(bytes).map(|[byte]| byte)
}
fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or_else(cut_off)?;
    *bytes = rest;
    Ok(*first)
}
/// Takes bytes with their length from the front.
pub fn take_bytes<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8]> {
    let length = usize::try_from(u64::from_le_bytes(fixed(bytes)?)).map_err(|_| cut_off())?;
    let (first, rest) = bytes.split_at_checked(length).ok_or_else(cut_off)?;
    *bytes = rest;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let values = [
            Datum::Null,
            Datum::Int(-7),
            Datum::UInt(u64::MAX),
            Datum::Decimal { unscaled: -12_345, scale: 2 },
            Datum::Fine { unscaled: i128::MAX, scale: 30, shown: 4 },
            Datum::Double(-0.0),
            Datum::Text(Cow::Borrowed(b"text")),
            Datum::Bytes(Cow::Borrowed(b"")),
            Datum::Date(7),
            Datum::DateTime(1 << 60, 6),
            Datum::Time(-5, 3),
            Datum::Label(3, Cow::Borrowed(b"three")),
            Datum::Json(Cow::Borrowed(b"{}")),
            Datum::Bit(5, 3),
        ];
        let mut bytes = Vec::new();
        push_group(b"row", &values, &mut bytes);
        let (row, found) = group(&bytes).unwrap();
        assert_eq!((row, format!("{found:?}")), (&b"row"[..], format!("{values:?}")), "with the sign of 0");
        assert!(group(&bytes[..bytes.len() - 1]).is_err() && group(&[]).is_err());
    }
}

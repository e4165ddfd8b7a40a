//! Order-preserving key encoding: comparing two encoded keys as bytes compares the tuples.
//!
//! Per column: a byte 0 (NULL, first as in MySQL) or 1 where the column may be NULL; integers and temporal values big-endian
//! with the sign bit flipped; floats with sign-dependent inversion; text as its collation sort key and binary as it is, both
//! with 0x00 escaped as 0x00 0xff and closed by 0x00 0x00. Every part delimits itself, so a prefix of the columns is a prefix
//! of the bytes: range bounds over leading columns need nothing more than byte prefixes.

use crate::{
    ErrorCode,
    limits::KEY_BYTES_MAX,
    row::RowLayout,
    schema::{ColumnType, IndexDef, TableSchema},
    value::Value,
};

/// Appends one column's part. `nullable` is the column's, not the value's.
///
/// # Errors
/// [`ErrorCode::NullNotAllowed`] for NULL in a column that has no NULL mark, [`ErrorCode::ValueOutOfRange`] for a value
/// of another kind than the column's.
pub fn encode_part(ty: ColumnType, nullable: bool, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    let start = out.len();
    if nullable {
        out.push(u8::from(!value.is_null()));
        if value.is_null() {
            return Ok(());
        }
    } else if value.is_null() {
        return Err(ErrorCode::NullNotAllowed);
    }
    match (ty.stored(), *value) {
        (ColumnType::Int { bits, unsigned }, Value::Int(n)) => put_int(bits, unsigned, i128::from(n), out)?,
        (ColumnType::Int { bits, unsigned }, Value::UInt(n)) => put_int(bits, unsigned, i128::from(n), out)?,
        (ColumnType::Year, Value::UInt(n)) => put_int(16, true, i128::from(n), out)?,
        (ColumnType::Year, Value::Int(n)) => put_int(16, true, i128::from(n), out)?,
        (ColumnType::Decimal { .. }, Value::Decimal { unscaled, .. }) => {
            out.extend_from_slice(&(unscaled as u128 ^ 1 << 127).to_be_bytes());
        }
        (ColumnType::Float, Value::Float(x)) => {
            let bits = if x == 0.0 { 0 } else { x.to_bits() };
            let mask = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
            out.extend_from_slice(&(bits ^ mask).to_be_bytes());
        }
        (ColumnType::Double, Value::Double(x)) => {
            let bits = if x == 0.0 { 0 } else { x.to_bits() };
            let mask = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
            out.extend_from_slice(&(bits ^ mask).to_be_bytes());
        }
        (ColumnType::Date, Value::Date(d)) => out.extend_from_slice(&d.to_be_bytes()),
        (ColumnType::DateTime { .. }, Value::DateTime(d)) => out.extend_from_slice(&d.to_be_bytes()),
        (ColumnType::Timestamp { .. }, Value::Timestamp(t)) | (ColumnType::Time { .. }, Value::Time(t)) => {
            out.extend_from_slice(&(t as u64 ^ 1 << 63).to_be_bytes());
        }
        (_, Value::Bytes(bytes)) if ty.fixed_bytes().is_none() => {
            match ty.collation() {
                Some(collation) => collation.sort_key(bytes, |piece| put_escaped(piece, out)),
                None => put_escaped(bytes, out),
            }
            out.extend_from_slice(&[0, 0]);
        }
        _ => return Err(ErrorCode::ValueOutOfRange),
    }
    if out.len() - start > KEY_BYTES_MAX * 2 { Err(ErrorCode::KeyTooLong) } else { Ok(()) }
}

fn put_int(bits: u8, unsigned: bool, value: i128, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    if !crate::row::int_fits(bits, unsigned, value) {
        return Err(ErrorCode::ValueOutOfRange);
    }
    let flip = if unsigned { 0 } else { 1u64 << (bits - 1) };
    let bytes = (value as u64 ^ flip).to_be_bytes();
    out.extend_from_slice(&bytes[8 - usize::from(bits / 8)..]);
    Ok(())
}

/// Appends bytes such that a pair of zeros behind them is below all that can follow: each zero is followed by 0xff.
pub fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    // `contains` looks at words, `position` at bytes; zeros are rare.
    while rest.contains(&0)
        && let Some(zero) = rest.iter().position(|&b| b == 0)
    {
        out.extend_from_slice(&rest[..zero]);
        out.extend_from_slice(&[0, 0xff]);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends the key of `columns` taken from a row. Returns whether any of them is NULL (such a key is not in a unique index).
///
/// A hidden unique-index table is special: its key column holds bytes that are encoded already and are used as they are.
pub fn encode_from_row(
    schema: &TableSchema,
    columns: &[u16],
    row: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool, ErrorCode> {
    let layout = schema.layout();
    if schema.is_hidden_index() && columns == schema.primary_key {
        out.extend_from_slice(layout.raw(row, crate::schema::HIDDEN_KEY_COLUMN));
        return Ok(false);
    }
    let start = out.len();
    let mut any_null = false;
    for &column in columns {
        let Some(definition) = schema.columns.get(usize::from(column)) else { return Err(ErrorCode::InvalidSchema) };
        let value = layout.value(row, column);
        any_null |= value.is_null();
        encode_part(definition.ty, definition.nullable, &value, out)?;
    }
    if out.len() - start > KEY_BYTES_MAX { Err(ErrorCode::KeyTooLong) } else { Ok(any_null) }
}

/// Appends the part of a column of which an index has the beginning only: entries are in the order of the texts as far as they go, and texts that are equal have
/// the same. So what is looked for is looked for by its own beginning, both ends of a range included, and the condition itself is asked of the rows.
///
/// # Errors
/// As [`encode_part`].
pub fn encode_beginning(
    ty: ColumnType,
    nullable: bool,
    value: &Value<'_>,
    length: usize,
    out: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    match (*value, ty.collation()) {
        (Value::Bytes(bytes), Some(collation)) => {
            if nullable {
                out.push(1);
            }
            collation.sort_key_of_beginning(bytes, length, |piece| put_escaped(piece, out));
            out.extend_from_slice(&[0, 0]);
            Ok(())
        }
        _ => encode_part(ty, nullable, &beginning(ty, value, length), out),
    }
}

/// The first characters or bytes of a value.
pub fn beginning<'v>(ty: ColumnType, value: &Value<'v>, length: usize) -> Value<'v> {
    match *value {
        Value::Bytes(bytes) if ty.is_text() => Value::Bytes(crate::collate::first_characters(bytes, length)),
        Value::Bytes(bytes) => Value::Bytes(bytes.get(..length).unwrap_or(bytes)),
        other => other,
    }
}

/// As [`encode_from_row`], of an index: the key of its entries in fragments.
pub fn encode_entry(schema: &TableSchema, index: &IndexDef, row: &[u8], out: &mut Vec<u8>) -> Result<bool, ErrorCode> {
    encode_index(schema, index, row, encode_beginning, out)
}

/// As [`encode_from_row`], of an index that is unique: what no two rows may share. Of beginnings it is the whole key, with all that a collation tells apart.
pub fn encode_unique(schema: &TableSchema, index: &IndexDef, row: &[u8], out: &mut Vec<u8>) -> Result<bool, ErrorCode> {
    let part = |ty, nullable, value: &Value<'_>, length, out: &mut Vec<u8>| {
        encode_part(ty, nullable, &beginning(ty, value, length), out)
    };
    encode_index(schema, index, row, part, out)
}

fn encode_index(
    schema: &TableSchema,
    index: &IndexDef,
    row: &[u8],
    part: impl Fn(ColumnType, bool, &Value<'_>, usize, &mut Vec<u8>) -> Result<(), ErrorCode>,
    out: &mut Vec<u8>,
) -> Result<bool, ErrorCode> {
    if !index.has_prefixes() {
        return encode_from_row(schema, &index.columns, row, out);
    }
    let start = out.len();
    let mut any_null = false;
    for (at, &column) in index.columns.iter().enumerate() {
        let Some(c) = schema.columns.get(usize::from(column)) else { return Err(ErrorCode::InvalidSchema) };
        let value = schema.layout().value(row, column);
        any_null |= value.is_null();
        match index.prefix(at) {
            Some(length) => part(c.ty, c.nullable, &value, length, out)?,
            None => encode_part(c.ty, c.nullable, &value, out)?,
        }
    }
    if out.len() - start > KEY_BYTES_MAX { Err(ErrorCode::KeyTooLong) } else { Ok(any_null) }
}

/// Whether `columns` are stored alike in both rows (NULL flags and bytes), so that no index over them changes.
pub fn same_columns(layout: &RowLayout, columns: &[u16], a: &[u8], b: &[u8]) -> bool {
    columns.iter().all(|&c| layout.is_null(a, c) == layout.is_null(b, c) && layout.raw(a, c) == layout.raw(b, c))
}

/// Length of the first `parts` columns of a primary key inside its encoding, to hash the distribution prefix.
/// `None` when the bytes do not follow the encoding.
pub fn prefix_len(schema: &TableSchema, parts: usize, key: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &column in schema.primary_key.iter().take(parts) {
        let ty = schema.columns.get(usize::from(column))?.ty;
        at += match ty.fixed_bytes() {
            Some(width) => width,
            None => loop_to_terminator(key.get(at..)?)?,
        };
    }
    (at <= key.len()).then_some(at)
}

fn loop_to_terminator(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let zero = at + bytes.get(at..)?.iter().position(|&b| b == 0)?;
        match bytes.get(zero + 1)? {
            0 => return Some(zero + 2),
            _ => at = zero + 2,
        }
    }
}

/// Hash that places the row: of the whole encoded primary key, or of its distribution prefix.
pub fn distribution_hash(schema: &TableSchema, key: &[u8]) -> u64 {
    if schema.is_hidden_index() || schema.distributed_by_whole_key() {
        return crate::hash::hash_key(key);
    }
    let len = prefix_len(schema, usize::from(schema.distribution_columns), key).unwrap_or(key.len());
    crate::hash::hash_key(key.get(..len).unwrap_or(key))
}

/// The smallest byte string above every string that starts with `prefix`; `false` when there is none (all 0xff).
pub fn successor_of_prefix(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xff {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Collation;

    fn encode(ty: ColumnType, value: Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_part(ty, true, &value, &mut out).unwrap();
        out
    }

    /// Keys of a long list stand in one buffer, and each of them has its own length.
    #[test]
    fn a_key_may_stand_behind_many_others() {
        let mut out = vec![7; 3 * KEY_BYTES_MAX];
        let ty = ColumnType::VarBinary { length: u16::MAX };
        assert_eq!(encode_part(ty, false, &Value::Bytes(b"key"), &mut out), Ok(()));
        let long = vec![b'x'; 2 * KEY_BYTES_MAX + 1];
        assert_eq!(encode_part(ty, false, &Value::Bytes(&long), &mut out), Err(ErrorCode::KeyTooLong));
    }

    /// Texts in their order have beginnings in their order, and equal texts the same, in every collation, also where characters have several weights or none.
    #[test]
    fn beginnings_are_in_the_order_of_texts() {
        let texts = [
            "", " ", "a", "A", "a\0b", "ab", "aB", "áb", "ß", "ss", "ssz", "ßa", "sz", "a b", "a\t", "中国", "中",
            "한국", "Æb", "aec",
        ];
        for collation in Collation::ALL {
            let ty = ColumnType::Text { length: 100, collation };
            for length in 1..4 {
                let entry = |text: &str| {
                    let mut out = Vec::new();
                    encode_beginning(ty, true, &Value::Bytes(text.as_bytes()), length, &mut out).unwrap();
                    out
                };
                for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
                    let (order, entries) = (collation.compare(a.as_bytes(), b.as_bytes()), entry(a).cmp(&entry(b)));
                    assert!(entries.is_eq() || entries == order, "{} {a:?} {b:?} {length}", collation.name());
                }
            }
        }
    }

    #[test]
    fn order_is_preserved() {
        let int = ColumnType::Int { bits: 24, unsigned: false };
        let ints: Vec<_> = [-8_388_608, -1, 0, 1, 8_388_607].iter().map(|&n| encode(int, Value::Int(n))).collect();
        assert!(ints.is_sorted());
        let doubles: Vec<_> = [f64::NEG_INFINITY, -1.5, -0.0, 1e-300, 2.0, f64::INFINITY]
            .iter()
            .map(|&x| encode(ColumnType::Double, Value::Double(x)))
            .collect();
        assert!(doubles.is_sorted());
        assert_eq!(encode(ColumnType::Double, Value::Double(0.0)), encode(ColumnType::Double, Value::Double(-0.0)));
        let text = ColumnType::VarBinary { length: 10 };
        let texts: Vec<_> = [&b""[..], b"\0", b"\0\0", b"\0a", b"a", b"a\0", b"ab", b"\xff"]
            .iter()
            .map(|t| encode(text, Value::Bytes(t)))
            .collect();
        assert!(texts.is_sorted());
        assert!(encode(text, Value::Null) < texts[0]);
        let ci = ColumnType::Char { length: 9, collation: Collation::Utf8mb4GeneralCi };
        assert_eq!(encode(ci, Value::Bytes(b"AbC ")), encode(ci, Value::Bytes(b"aBc")));
    }

    #[test]
    fn prefix_successor() {
        let mut p = vec![1, 0xff, 0xff];
        assert!(successor_of_prefix(&mut p));
        assert_eq!(p, [2]);
        assert!(!successor_of_prefix(&mut vec![0xff]));
    }
}

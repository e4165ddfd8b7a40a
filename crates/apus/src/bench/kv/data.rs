//! Keys and values of the key-value workload, made from a number without allocation.
//!
//! Key number n is eight hexadecimal digits of a mixed n, so that neighbours in time are not neighbours in the ordered index, filled up
//! with `k`. Its value begins with the bytes of n, so that a reader can tell a right value from another row's.

use apus_types::{ColumnType, ErrorCode, TableSchema, Value, key};

use crate::bench::cluster::{DATABASE, column};

pub const VALUE_COLUMN: u16 = 1;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub fn table(name: &str, key_size: u16, value_size: u32) -> TableSchema {
    let value = match u16::try_from(value_size) {
        Ok(length) => ColumnType::VarBinary { length },
        Err(_) => ColumnType::Blob { length: value_size },
    };
    let columns = vec![column("k", ColumnType::VarBinary { length: key_size }), column("v", value)];
    TableSchema::new(DATABASE, name, columns, vec![0])
}

/// A permutation of the numbers of 32 bits.
fn mix(n: u32) -> u32 {
    let n = n.wrapping_mul(0x9e37_79b1);
    let n = (n ^ (n >> 15)).wrapping_mul(0x85eb_ca6b);
    n ^ (n >> 13)
}

/// Buffers for one key, its encoding, a value and a row.
pub struct Maker {
    plain: Vec<u8>,
    encoded: Vec<u8>,
    value: Vec<u8>,
    row: Vec<u8>,
}

impl Maker {
    pub fn new(key_size: usize, value_size: usize) -> Maker {
        let (plain, value) = (vec![b'k'; key_size], vec![0; value_size]);
        Maker { plain, encoded: Vec::with_capacity(key_size + 2), value, row: Vec::new() }
    }

    /// The encoded primary key of key number `n`.
    #[inline]
    pub fn key(&mut self, table: &TableSchema, n: u64) -> Result<&[u8], ErrorCode> {
        let mixed = mix(n as u32);
        for (i, digit) in self.plain.iter_mut().take(8).enumerate() {
            *digit = DIGITS[(mixed >> (28 - 4 * i) & 15) as usize];
        }
        self.encoded.clear();
        let ty = table.columns.first().ok_or(ErrorCode::InvalidSchema)?.ty;
        key::encode_part(ty, false, &Value::Bytes(&self.plain), &mut self.encoded)?;
        Ok(&self.encoded)
    }

    /// A value of key number `n`. `fill` tells versions apart, in the last byte of a value at least: data nodes write nothing for an update that changes nothing.
    #[inline]
    pub fn value(&mut self, n: u64, fill: u8) -> &[u8] {
        self.value.fill(fill);
        let number = number_part(self.value.len());
        for (to, from) in self.value[..number].iter_mut().zip(n.to_le_bytes()) {
            *to = from;
        }
        &self.value
    }

    /// Encoded key and whole row of key number `n`.
    #[inline]
    pub fn key_and_row(&mut self, table: &TableSchema, n: u64, fill: u8) -> Result<(&[u8], &[u8]), ErrorCode> {
        self.key(table, n)?;
        self.value(n, fill);
        self.row.clear();
        table.layout().encode(&[Value::Bytes(&self.plain), Value::Bytes(&self.value)], &mut self.row)?;
        Ok((&self.encoded, &self.row))
    }
}

/// Whether `value` may be the value of key number `n`.
#[inline]
pub fn is_value_of(value: &[u8], n: u64, value_size: usize) -> bool {
    value.len() == value_size && value[..number_part(value_size)].iter().zip(n.to_le_bytes()).all(|(a, b)| *a == b)
}

/// How many bytes in front say whose value it is: the number's, as far as there is room before the last one.
#[inline]
fn number_part(value_size: usize) -> usize {
    value_size.saturating_sub(1).min(size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_distinct_and_rows_are_valid() {
        let table = table("kv", 12, 20);
        table.validate().unwrap();
        let mut maker = Maker::new(12, 20);
        let mut seen = BTreeSet::new();
        for n in 0..10_000 {
            let (key, row) = maker.key_and_row(&table, n, 3).unwrap();
            assert!(seen.insert(key.to_vec()));
            table.layout().check(row).unwrap();
            let mut again = Vec::new();
            key::encode_from_row(&table, &table.primary_key, row, &mut again).unwrap();
            assert_eq!(again, key);
            assert!(is_value_of(table.layout().raw(row, VALUE_COLUMN), n, 20));
            assert!(!is_value_of(table.layout().raw(row, VALUE_COLUMN), n + 1, 20));
        }
    }

    #[test]
    fn short_values_and_large_ones() {
        assert!(is_value_of(Maker::new(8, 1).value(0x1234, 9), 0x1234, 1));
        table("kv", 8, 1_000_000).validate().unwrap();
    }

    #[test]
    fn an_update_changes_values_of_every_size() {
        for size in [1, 2, 7, 8, 9, 100] {
            let mut maker = Maker::new(8, size);
            let before = maker.value(0x1234, 1).to_vec();
            assert_ne!(before, maker.value(0x1234, 2), "{size} bytes");
            assert!(is_value_of(&before, 0x1234, size), "{size} bytes");
        }
    }
}

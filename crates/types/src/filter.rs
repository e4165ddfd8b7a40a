//! Filters: what data nodes ask of the rows that they scan, so that rows nobody wants stay where they are. NDB calls it a pushed condition.
//!
//! A filter is a list of tests, all of which a row must pass. A *range test* says that the key of a column ([`crate::key`]) is in one of some ranges: what the bounds of an index on that column would
//! say, made by the same conversion of constants; or the key of the first characters of a text. A *column test* compares two columns of one type. A *pattern test* is LIKE by the column's collation. A *set test* says that a value may be one of very many, those that a join
//! asks for: a Bloom filter over keys ([`Set`]), which others pass now and then. NULL passes a range only where the range has it, and no other test.
//!
//! A filter is not a program: no jumps, no arithmetic, no error while it runs. What is richer than that is asked by the SQL node of the rows that come. Each test has a highest cost, so data
//! nodes know how many rows fit into a slice ([`Filter::cost`]); what a pattern costs is known when it was asked ([`Filter::take_spent`]).
//!
//! Keys are what a test means, and not always what it makes: one range of a number becomes two numbers when it is read, and rows are compared with these as they are stored ([`Ordered`]); of a short text the answer
//! is remembered ([`Known`]), since columns that are asked for often have few values.
//!
//! ```text
//! range test:  1 u8 | column u16 | count u16 | count x ( 1: low, 2: high u8 | low key length u16, key | high key length u16, key )   low included, high excluded
//!              5 u8 | column u16 | characters u16 | count u16 and so on: of the beginning of a text
//! column test: 2 u8 | left column u16 | orders that pass u8 (1 less, 2 equal, 4 greater) | right column u16
//! pattern test: 3 u8 | column u16 | 1: rows pass that are not like it, 2: there is an escape u8 | escape u8 | length u8, pattern
//! set test:    4 u8 | column u16 | length u32, a power of two of bytes
//! ```

use std::{cell::Cell, cmp::Ordering};

use crate::{
    ErrorCode,
    collate::{first_characters, like_in_steps},
    hash::hash_key,
    key,
    row::wide_int_le,
    schema::{ColumnType, TableSchema},
    value::Value,
};

/// Most tests of a filter, most ranges of all of them, most bytes.
pub const TESTS_MAX: usize = 16;
pub const RANGES_MAX: usize = 1024;
pub const FILTER_BYTES_MAX: usize = 112 << 10;
/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 32;
/// Least and most bytes of a set.
pub const SET_BYTES_MIN: usize = 64;
pub const SET_BYTES_MAX: usize = 64 << 10;
/// Longest texts (in characters) and binary strings (in bytes), as declared, of which a test is made: longer ones cost more than a slice has.
pub const LENGTH_MAX: u16 = 255;

/// Texts of so many characters have keys, whatever the characters and the collation.
pub const EXACT_LENGTH_MAX: u16 = 80;

const RANGES: u8 = 1;
const COLUMNS: u8 = 2;
const LIKE: u8 = 3;
const SET: u8 = 4;
const RANGES_OF_BEGINNING: u8 = 5;
const HAS_LOW: u8 = 1;
const HAS_HIGH: u8 = 2;
const IS_NEGATED: u8 = 1;
const HAS_ESCAPE: u8 = 2;
/// Bits of a set that each of its values has.
const SET_PROBES: u32 = 3;
/// Texts that a filter remembers.
const KNOWN: usize = 16;
/// The key of NULL, where there is one.
const NULL_KEY: &[u8] = &[0];
/// So many steps of a pattern take the time that a row costs that is looked at.
const STEPS_PER_ROW: u32 = 512;
/// A text that is tested costs as much as so many rows that are looked at.
const TEXT_COST: u32 = 4;

/// Of a key: not below the first, below the second.
pub type KeyRange<'f> = (Option<&'f [u8]>, Option<&'f [u8]>);

/// Whether a filter may ask for a column of such a type.
pub fn is_testable(ty: ColumnType) -> bool {
    match ty {
        ColumnType::Char { length, .. }
        | ColumnType::VarChar { length, .. }
        | ColumnType::Binary { length }
        | ColumnType::VarBinary { length } => length <= LENGTH_MAX,
        other => other.fixed_bytes().is_some(),
    }
}

/// Whether a filter may ask for the characters of a column of such a type; an ENUM is a number.
pub fn is_testable_text(ty: ColumnType) -> bool {
    ty.is_text() && ty.fixed_bytes().is_none() && is_testable(ty)
}

/// Whether every value of a column of such a type has a key, so that a test passes what the condition is true of and nothing else.
pub fn is_exact(ty: ColumnType) -> bool {
    match ty {
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => length <= EXACT_LENGTH_MAX,
        other => is_testable(other),
    }
}

/// Whether keys of the two order as their values do among each other.
pub fn are_comparable(left: ColumnType, right: ColumnType) -> bool {
    use ColumnType::{Date, DateTime, Decimal, Double, Int, Time};
    match (left, right) {
        (Int { .. }, Int { .. }) | (Double, Double) | (Date, Date) => left == right,
        (DateTime { .. }, DateTime { .. }) | (Time { .. }, Time { .. }) => left == right,
        (Decimal { scale, .. }, Decimal { scale: other, .. }) => scale == other,
        _ => false,
    }
}

/// Whether a filter may ask whether a column of such a type is in a set of the values of another one: their keys are equal where they are.
pub fn may_be_in_set(column: ColumnType, of: ColumnType) -> bool {
    let are_whole = matches!((column, of), (ColumnType::Int { .. }, ColumnType::Int { .. }));
    are_whole || are_comparable(column, of)
}

/// The values of a set test.
#[derive(Clone, Debug)]
pub struct Set {
    bits: Vec<u8>,
}

impl Set {
    /// Room for so many values.
    pub fn with_room(values: usize) -> Set {
        let bytes = (2 * values).next_power_of_two().clamp(SET_BYTES_MIN, SET_BYTES_MAX);
        Set { bits: vec![0; bytes] }
    }
    /// Adds a value for columns of this type; one that no such column can have is left out.
    pub fn add(&mut self, ty: ColumnType, value: &Value<'_>, key: &mut Vec<u8>) {
        key.clear();
        if key::encode_part(ty, false, value, key).is_ok() {
            let count = self.bits.len() * 8;
            places(key, count).for_each(|place| self.bits[place / 8] |= 1 << (place % 8));
        }
    }
    pub fn bytes(&self) -> &[u8] {
        &self.bits
    }
    /// Half of the values that are not in it are left out, or more: it has not taken too many.
    pub fn leaves_out(&self) -> bool {
        let ones: usize = self.bits.iter().map(|byte| byte.count_ones() as usize).sum();
        let density = ones as f64 / (self.bits.len() * 8) as f64;
        density.powi(SET_PROBES as i32) <= 0.5
    }
}

/// The bits of a key among so many, a power of two.
fn places(key: &[u8], count: usize) -> impl Iterator<Item = usize> {
    let hash = hash_key(key);
    let (first, step) = (hash, (hash >> 32) | 1);
    (0..u64::from(SET_PROBES)).map(move |n| first.wrapping_add(n.wrapping_mul(step)) as usize & (count - 1))
}

/// Orders of two values that pass a comparison.
pub fn orders(passes: impl Fn(Ordering) -> bool) -> u8 {
    [Ordering::Less, Ordering::Equal, Ordering::Greater].into_iter().filter(|o| passes(*o)).map(order_bit).sum()
}

fn order_bit(order: Ordering) -> u8 {
    match order {
        Ordering::Less => 1,
        Ordering::Equal => 2,
        Ordering::Greater => 4,
    }
}

/// Appends a range test; the ranges are in order and apart from each other.
pub fn push_ranges<'k>(out: &mut Vec<u8>, column: u16, ranges: impl ExactSizeIterator<Item = KeyRange<'k>>) {
    out.push(RANGES);
    out.extend_from_slice(&column.to_le_bytes());
    push_list(out, ranges);
}

/// As [`push_ranges`], of the first characters of a text.
pub fn push_ranges_of_beginning<'k>(
    out: &mut Vec<u8>,
    column: u16,
    characters: u16,
    ranges: impl ExactSizeIterator<Item = KeyRange<'k>>,
) {
    out.push(RANGES_OF_BEGINNING);
    out.extend_from_slice(&column.to_le_bytes());
    out.extend_from_slice(&characters.to_le_bytes());
    push_list(out, ranges);
}

fn push_list<'k>(out: &mut Vec<u8>, ranges: impl ExactSizeIterator<Item = KeyRange<'k>>) {
    out.extend_from_slice(&(ranges.len() as u16).to_le_bytes());
    for (low, high) in ranges {
        out.push((u8::from(low.is_some()) * HAS_LOW) | (u8::from(high.is_some()) * HAS_HIGH));
        for bound in [low, high].into_iter().flatten() {
            out.extend_from_slice(&(bound.len() as u16).to_le_bytes());
            out.extend_from_slice(bound);
        }
    }
}

/// Appends a column test; `orders` as of [`orders`].
pub fn push_columns(out: &mut Vec<u8>, left: u16, orders: u8, right: u16) {
    out.push(COLUMNS);
    out.extend_from_slice(&left.to_le_bytes());
    out.push(orders);
    out.extend_from_slice(&right.to_le_bytes());
}

/// Appends a pattern test.
pub fn push_like(out: &mut Vec<u8>, column: u16, pattern: &[u8], escape: Option<u8>, negated: bool) {
    out.push(LIKE);
    out.extend_from_slice(&column.to_le_bytes());
    out.push((u8::from(negated) * IS_NEGATED) | (u8::from(escape.is_some()) * HAS_ESCAPE));
    out.push(escape.unwrap_or(0));
    out.push(pattern.len() as u8);
    out.extend_from_slice(pattern);
}

/// Appends a set test.
pub fn push_set(out: &mut Vec<u8>, column: u16, set: &[u8]) {
    out.push(SET);
    out.extend_from_slice(&column.to_le_bytes());
    out.extend_from_slice(&(set.len() as u32).to_le_bytes());
    out.extend_from_slice(set);
}

#[derive(Clone, Copy)]
enum Test<'f> {
    /// `characters`: of the beginning of a text.
    Ranges {
        column: u16,
        characters: Option<u16>,
        first: u16,
        end: u16,
    },
    /// One range of a number: keys are compared as the numbers that they are. `last`: included.
    Number {
        column: u16,
        ordered: Ordered,
        low: u128,
        last: u128,
        null: bool,
    },
    /// `ordered`: of both, if they are numbers.
    Columns {
        left: u16,
        orders: u8,
        right: u16,
        ordered: Option<Ordered>,
    },
    Like {
        column: u16,
        pattern: &'f [u8],
        escape: Option<u8>,
        negated: bool,
    },
    Set {
        column: u16,
        bits: &'f [u8],
        ordered: Option<Ordered>,
    },
}

/// Of a type whose stored numbers, with a bit inverted, are the numbers that their keys are.
#[derive(Clone, Copy)]
struct Ordered {
    inverted: u128,
    /// Bytes of the key, without the mark for NULL.
    bytes: usize,
}

impl Ordered {
    fn of(ty: ColumnType) -> Option<Ordered> {
        let inverted = match ty.stored() {
            ColumnType::Int { bits, unsigned: false } => 1 << (bits - 1),
            ColumnType::Int { .. } | ColumnType::Year | ColumnType::Date | ColumnType::DateTime { .. } => 0,
            ColumnType::Timestamp { .. } | ColumnType::Time { .. } => 1 << 63,
            ColumnType::Decimal { .. } => 1 << 127,
            _ => return None,
        };
        Some(Ordered { inverted, bytes: ty.fixed_bytes()? })
    }
    #[inline]
    fn number(self, stored: &[u8]) -> u128 {
        wide_int_le(stored) ^ self.inverted
    }
    /// The least number whose key is not below this bound; `None`: all are below.
    fn least(self, nullable: bool, bound: &[u8]) -> Option<u128> {
        let bound = match (nullable, bound) {
            (true, [1, rest @ ..]) => rest,
            (true, [0, ..] | []) => return Some(0),
            (true, _) => return None,
            (false, bound) => bound,
        };
        let mut first = [0; 16];
        let length = bound.len().min(self.bytes);
        first[16 - self.bytes..][..length].copy_from_slice(&bound[..length]);
        let least = u128::from_be_bytes(first).checked_add(u128::from(bound.len() > self.bytes))?;
        (least <= u128::MAX >> (128 - 8 * self.bytes)).then_some(least)
    }
    /// What a range says of a number: from the first to the second, which is included.
    fn ends(self, nullable: bool, (low, high): KeyRange<'_>) -> (u128, u128) {
        const NOTHING: (u128, u128) = (1, 0);
        let Some(low) = low.map_or(Some(0), |low| self.least(nullable, low)) else { return NOTHING };
        match high.and_then(|high| self.least(nullable, high)) {
            None => (low, u128::MAX),
            Some(high) => high.checked_sub(1).map_or(NOTHING, |last| (low, last)),
        }
    }
}

/// A filter that was read and checked.
pub struct Filter<'f> {
    tests: [Test<'f>; TESTS_MAX],
    count: usize,
    ranges: Vec<KeyRange<'f>>,
    cost: u32,
    /// Steps of patterns that were not taken yet.
    steps: Cell<u32>,
    /// Texts that were asked for: columns that are asked for often have few.
    known: [Cell<Known>; KNOWN],
}

/// What a test said of a short text.
#[derive(Clone, Copy, Default)]
struct Known {
    text: u128,
    /// Its length, and the number of the test from 1 on.
    length: u8,
    test: u8,
    passes: bool,
}

impl Known {
    /// A text that is asked for, and its place among those that are known; `None`: it is too long.
    #[inline]
    fn of(test: usize, text: &[u8]) -> Option<(usize, Known)> {
        if text.len() > size_of::<u128>() {
            return None;
        }
        let (length, test, text) = (text.len() as u8, test as u8 + 1, wide_int_le(text));
        let mixed = (text as u64 ^ (text >> 64) as u64 ^ u64::from(test)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(((mixed >> 32) as usize % KNOWN, Known { text, length, test, passes: false }))
    }
    #[inline]
    fn is(self, other: Known) -> bool {
        (self.text, self.length, self.test) == (other.text, other.length, other.test)
    }
}

impl<'f> Filter<'f> {
    /// Reads a filter that came from outside, for rows of `schema`. No bytes: every row passes. `memory` is used for the list of ranges.
    ///
    /// # Errors
    /// [`ErrorCode::ProtocolViolation`] for what is no filter of such rows, or too long.
    pub fn decode(
        bytes: &'f [u8],
        schema: &TableSchema,
        mut memory: Vec<KeyRange<'f>>,
    ) -> Result<Filter<'f>, ErrorCode> {
        memory.clear();
        let none = Test::Columns { left: 0, orders: 0, right: 0, ordered: None };
        let mut filter = Filter {
            tests: [none; TESTS_MAX],
            count: 0,
            ranges: memory,
            cost: 0,
            steps: Cell::new(0),
            known: Default::default(),
        };
        if bytes.len() > FILTER_BYTES_MAX {
            return Err(ErrorCode::ProtocolViolation);
        }
        let mut rest = Bytes(bytes);
        let mut fixed = 0;
        while !rest.0.is_empty() {
            let place = filter.tests.get_mut(filter.count).ok_or(ErrorCode::ProtocolViolation)?;
            let ty = |column: u16| schema.columns.get(usize::from(column)).map(|c| c.ty);
            *place = match rest.u8()? {
                kind @ (RANGES | RANGES_OF_BEGINNING) => {
                    let column = rest.u16()?;
                    let characters = if kind == RANGES { None } else { Some(rest.u16()?) };
                    let may = |ty: &ColumnType| is_testable(*ty) && (characters.is_none() || is_testable_text(*ty));
                    let ty = ty(column).filter(may).ok_or(ErrorCode::ProtocolViolation)?;
                    let nullable = schema.columns[usize::from(column)].nullable;
                    match ty.fixed_bytes() {
                        Some(_) => fixed += 1,
                        None => filter.cost += TEXT_COST,
                    }
                    let first = filter.ranges.len();
                    let end = first + usize::from(rest.u16()?);
                    if end > RANGES_MAX {
                        return Err(ErrorCode::ProtocolViolation);
                    }
                    for _ in first..end {
                        filter.ranges.push(rest.range()?);
                    }
                    match (Ordered::of(ty), &filter.ranges[first..]) {
                        (Some(ordered), [range]) => {
                            let (low, last) = ordered.ends(nullable, *range);
                            let null = !nullable || is_in(&[*range], NULL_KEY);
                            Test::Number { column, ordered, low, last, null }
                        }
                        _ => Test::Ranges { column, characters, first: first as u16, end: end as u16 },
                    }
                }
                COLUMNS => {
                    let (left, orders, right) = (rest.u16()?, rest.u8()?, rest.u16()?);
                    let types = ty(left).zip(ty(right));
                    if !types.is_some_and(|(left, right)| are_comparable(left, right)) {
                        return Err(ErrorCode::ProtocolViolation);
                    }
                    fixed += 1;
                    let ordered = types.and_then(|(left, _)| Ordered::of(left));
                    Test::Columns { left, orders, right, ordered }
                }
                LIKE => {
                    let (column, flags, escape) = (rest.u16()?, rest.u8()?, rest.u8()?);
                    let length = usize::from(rest.u8()?);
                    let pattern = rest.take(length)?;
                    let is_text = ty(column).is_some_and(is_testable_text);
                    if !is_text || length > PATTERN_BYTES_MAX {
                        return Err(ErrorCode::ProtocolViolation);
                    }
                    filter.cost += 1;
                    let escape = (flags & HAS_ESCAPE != 0).then_some(escape);
                    Test::Like { column, pattern, escape, negated: flags & IS_NEGATED != 0 }
                }
                SET => {
                    let column = rest.u16()?;
                    let length = rest.u32()? as usize;
                    let bits = rest.take(length)?;
                    let ty = ty(column).filter(|ty| ty.fixed_bytes().is_some());
                    let is_size = length.is_power_of_two() && (SET_BYTES_MIN..=SET_BYTES_MAX).contains(&length);
                    if ty.is_none() || !is_size {
                        return Err(ErrorCode::ProtocolViolation);
                    }
                    fixed += 1;
                    Test::Set { column, bits, ordered: ty.and_then(Ordered::of) }
                }
                _ => return Err(ErrorCode::ProtocolViolation),
            };
            filter.count += 1;
        }
        filter.cost += fixed / 4;
        Ok(filter)
    }

    /// Of how many rows looked at its tests of one row cost the time, at most.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Whether the row passes. `key` is memory. A value that has no key (a text of many characters of many weights) passes its test: who asked looks at the rows once more.
    #[inline]
    pub fn passes(&self, schema: &TableSchema, row: &[u8], key: &mut Vec<u8>) -> bool {
        self.tests[..self.count].iter().enumerate().all(|(number, test)| match *test {
            Test::Ranges { column, characters, first, end } => {
                let value = match (schema.layout().value(row, column), characters) {
                    (Value::Bytes(text), Some(count)) => Value::Bytes(first_characters(text, usize::from(count))),
                    (value, _) => value,
                };
                let asked = if let Value::Bytes(text) = value { Known::of(number, text) } else { None };
                if let Some((place, asked)) = asked
                    && let known = self.known[place].get()
                    && known.is(asked)
                {
                    return known.passes;
                }
                let passes =
                    is_in_ranges(schema, column, &value, &self.ranges[usize::from(first)..usize::from(end)], key);
                if let Some((place, asked)) = asked {
                    self.known[place].set(Known { passes, ..asked });
                }
                passes
            }
            Test::Number { column, ordered, low, last, null } => schema
                .layout()
                .present(row, column)
                .map_or(null, |stored| (low..=last).contains(&ordered.number(stored))),
            Test::Columns { left, orders, right, ordered: Some(ordered) } => {
                let number = |column| schema.layout().present(row, column).map(|stored| ordered.number(stored));
                let (Some(left), Some(right)) = (number(left), number(right)) else { return false };
                orders & order_bit(left.cmp(&right)) != 0
            }
            Test::Columns { left, orders, right, ordered: None } => compares(schema, row, (left, orders, right), key),
            Test::Like { column, pattern, escape, negated } => {
                let layout = schema.layout();
                let Value::Bytes(text) = layout.value(row, column) else { return false };
                let collation = layout.column_type(column).and_then(ColumnType::collation);
                let (is_like, steps) = like_in_steps(text, pattern, escape, collation);
                self.steps.set(self.steps.get() + steps);
                is_like != negated
            }
            Test::Set { column, bits, ordered: Some(ordered) } => {
                let Some(stored) = schema.layout().present(row, column) else { return false };
                has_all(bits, &ordered.number(stored).to_be_bytes()[16 - ordered.bytes..])
            }
            Test::Set { column, bits, ordered: None } => {
                let value = schema.layout().value(row, column);
                let Some(ty) = schema.layout().column_type(column).filter(|_| !value.is_null()) else { return false };
                key.clear();
                key::encode_part(ty, false, &value, key).is_err() || has_all(bits, key)
            }
        })
    }

    /// Of how many rows looked at the tests since the last call have cost the time, beside [`Filter::cost`].
    #[inline]
    pub fn take_spent(&self) -> u32 {
        let steps = self.steps.get();
        self.steps.set(steps % STEPS_PER_ROW);
        steps / STEPS_PER_ROW
    }

    /// The memory of the list of ranges, without them.
    pub fn into_memory(self) -> Vec<KeyRange<'static>> {
        let mut ranges = self.ranges;
        ranges.clear();
        // An emptied vector collected in place keeps its allocation.
        ranges.into_iter().map_while(|_| None).collect()
    }
}

/// Whether a set has all bits of a key.
#[inline]
fn has_all(bits: &[u8], key: &[u8]) -> bool {
    places(key, bits.len() * 8).all(|place| bits[place / 8] & 1 << (place % 8) != 0)
}

fn is_in_ranges(
    schema: &TableSchema,
    column: u16,
    value: &Value<'_>,
    ranges: &[KeyRange<'_>],
    key: &mut Vec<u8>,
) -> bool {
    let Some(definition) = schema.columns.get(usize::from(column)) else { return false };
    key.clear();
    match key::encode_part(definition.ty, definition.nullable, value, key) {
        Ok(()) => is_in(ranges, key),
        Err(_) => true,
    }
}

fn is_in(ranges: &[KeyRange<'_>], key: &[u8]) -> bool {
    let starts_before = |range: &KeyRange<'_>| range.0.is_none_or(|low| low <= key);
    let at =
        if ranges.len() == 1 { usize::from(starts_before(&ranges[0])) } else { ranges.partition_point(starts_before) };
    at > 0 && ranges[at - 1].1.is_none_or(|high| key < high)
}

fn compares(schema: &TableSchema, row: &[u8], (left, orders, right): (u16, u8, u16), key: &mut Vec<u8>) -> bool {
    key.clear();
    let mut end = 0;
    for column in [left, right] {
        let value = schema.layout().value(row, column);
        let Some(ty) = schema.layout().column_type(column).filter(|_| !value.is_null()) else { return false };
        end = key.len();
        if key::encode_part(ty, false, &value, key).is_err() {
            return true;
        }
    }
    let (left, right) = key.split_at(end);
    orders & order_bit(left.cmp(right)) != 0
}

/// What is left of a filter.
struct Bytes<'f>(&'f [u8]);

impl<'f> Bytes<'f> {
    fn take(&mut self, count: usize) -> Result<&'f [u8], ErrorCode> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ErrorCode::ProtocolViolation)?;
        self.0 = rest;
        Ok(taken)
    }
    fn u8(&mut self) -> Result<u8, ErrorCode> {
        Ok(self.take(1)?[0])
    }
    fn u16(&mut self) -> Result<u16, ErrorCode> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
    fn u32(&mut self) -> Result<u32, ErrorCode> {
        Ok(u32::from_le_bytes(*self.take(4)?.first_chunk().ok_or(ErrorCode::ProtocolViolation)?))
    }
    fn range(&mut self) -> Result<KeyRange<'f>, ErrorCode> {
        let flags = self.u8()?;
        let mut bound = |flag: u8| -> Result<Option<&'f [u8]>, ErrorCode> {
            if flags & flag == 0 {
                return Ok(None);
            }
            let length = self.u16()?;
            self.take(usize::from(length)).map(Some)
        };
        Ok((bound(HAS_LOW)?, bound(HAS_HIGH)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, RowLayout, Value, collate::Collation};

    fn table() -> TableSchema {
        let int = ColumnType::Int { bits: 32, unsigned: false };
        let text = ColumnType::VarChar { length: 20, collation: Collation::Utf8mb4GeneralCi };
        let long = ColumnType::VarChar { length: 4000, collation: Collation::Utf8mb4GeneralCi };
        let list = [("id", int), ("n", int), ("m", int), ("t", text), ("long", long), ("d", ColumnType::Date)];
        let mut columns: Vec<Column> = list.into_iter().map(|(name, ty)| Column::new(name, ty)).collect();
        columns[0].nullable = false;
        TableSchema::new("d", "t", columns, vec![0])
    }

    fn row(layout: &RowLayout, n: Value<'_>, m: Value<'_>, t: Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        layout.encode(&[Value::Int(1), n, m, t, Value::Null, Value::Null], &mut out).unwrap();
        out
    }

    fn point(schema: &TableSchema, column: u16, value: Value<'_>) -> (Vec<u8>, Vec<u8>) {
        let c = &schema.columns[usize::from(column)];
        let mut low = Vec::new();
        key::encode_part(c.ty, c.nullable, &value, &mut low).unwrap();
        let mut high = low.clone();
        assert!(key::successor_of_prefix(&mut high));
        (low, high)
    }

    fn passing(filter: &[u8], schema: &TableSchema, rows: &[Vec<u8>]) -> Vec<usize> {
        let filter = Filter::decode(filter, schema, Vec::new()).unwrap();
        let mut key = Vec::new();
        (0..rows.len()).filter(|&i| filter.passes(schema, &rows[i], &mut key)).collect()
    }

    #[test]
    fn ranges_and_columns_are_asked_as_an_index_would_be() {
        let schema = table();
        let layout = schema.layout();
        let rows = [
            row(layout, Value::Int(-5), Value::Int(-5), Value::Bytes(b"Ab")),
            row(layout, Value::Int(3), Value::Int(4), Value::Bytes("\u{e4}b".as_bytes())),
            row(layout, Value::Int(7), Value::Null, Value::Bytes(b"abc")),
            row(layout, Value::Null, Value::Int(9), Value::Null),
        ];
        let of = |push: &dyn Fn(&mut Vec<u8>)| {
            let mut filter = Vec::new();
            push(&mut filter);
            passing(&filter, &schema, &rows)
        };
        let points: Vec<_> = [-5, 3].into_iter().map(|n| point(&schema, 1, Value::Int(n))).collect();
        let as_ranges = || points.iter().map(|(low, high)| (Some(low.as_slice()), Some(high.as_slice())));
        assert_eq!(of(&|out| push_ranges(out, 1, as_ranges())), [0, 1], "n IN (-5, 3)");
        let (seven, _) = point(&schema, 1, Value::Int(7));
        let below = || [(Some(&[1][..]), Some(seven.as_slice()))].into_iter();
        assert_eq!(of(&|out| push_ranges(out, 1, below())), [0, 1], "n < 7");
        assert_eq!(of(&|out| push_ranges(out, 1, [(None, Some(&[1][..]))].into_iter())), [3], "n IS NULL");
        let (low, high) = point(&schema, 3, Value::Bytes(b"AB"));
        let text = || [(Some(low.as_slice()), Some(high.as_slice()))].into_iter();
        assert_eq!(of(&|out| push_ranges(out, 3, text())), [0, 1], "t = 'AB' by its collation");
        let (low, high) = point(&schema, 3, Value::Bytes(b"A"));
        let first = || [(Some(low.as_slice()), Some(high.as_slice()))].into_iter();
        assert_eq!(of(&|out| push_ranges_of_beginning(out, 3, 1, first())), [0, 1, 2], "LEFT(t, 1) = 'A'");
        assert_eq!(of(&|out| push_ranges_of_beginning(out, 3, 2, first())), [0; 0], "LEFT(t, 2) = 'A'");
        assert_eq!(of(&|out| push_columns(out, 1, orders(Ordering::is_lt), 2)), [1], "n < m");
        assert_eq!(of(&|out| push_columns(out, 1, orders(Ordering::is_le), 2)), [0, 1], "n <= m");
        assert_eq!(of(&|out| push_columns(out, 1, orders(Ordering::is_ne), 2)), [1], "n <> m");
        let both = |out: &mut Vec<u8>| {
            push_ranges(out, 3, text());
            push_columns(out, 1, orders(Ordering::is_eq), 2);
        };
        assert_eq!(of(&both), [0], "all tests count");
        assert_eq!(of(&|out| push_like(out, 3, b"a_%", None, false)), [0, 1, 2], "t LIKE 'a_%'");
        assert_eq!(of(&|out| push_like(out, 3, b"A%C", None, true)), [0, 1], "t NOT LIKE 'A%C'");
        assert_eq!(of(&|out| push_like(out, 3, b"a|bc", Some(b'|'), false)), [2], "t LIKE 'a|bc' ESCAPE '|'");
        let mut set = Set::with_room(3);
        let (ty, wide) = (schema.columns[1].ty, ColumnType::Int { bits: 64, unsigned: true });
        assert!(may_be_in_set(ty, wide) && !may_be_in_set(ty, ColumnType::Date));
        for value in [Value::UInt(7), Value::Int(-5), Value::UInt(u64::MAX)] {
            set.add(ty, &value, &mut Vec::new());
        }
        assert_eq!(of(&|out| push_set(out, 1, set.bytes())), [0, 2], "n may be -5 or 7");
        assert_eq!(of(&|_| ()), [0, 1, 2, 3], "no test");
        assert_eq!(of(&|out| push_ranges(out, 1, std::iter::empty())), [0; 0], "no range");
    }

    /// Ranges of numbers are asked as ranges of keys are, whatever the bounds.
    #[test]
    fn numbers_are_compared_as_their_keys_are() {
        let types = [
            ColumnType::Int { bits: 8, unsigned: false },
            ColumnType::Int { bits: 24, unsigned: true },
            ColumnType::Int { bits: 64, unsigned: false },
            ColumnType::Decimal { precision: 38, scale: 2, unsigned: false },
            ColumnType::Date,
            ColumnType::DateTime { decimals: 6 },
            ColumnType::Time { decimals: 0 },
            ColumnType::Timestamp { decimals: 0 },
            ColumnType::Year,
        ];
        let values = |ty: ColumnType| {
            let bytes = ty.fixed_bytes().unwrap();
            let all = [0, 1, 2, 0x7f, 0x80, 0x81, 0xff, 0x100, 0x1234, u128::MAX / 2, u128::MAX / 2 + 1, u128::MAX];
            let stored = all.map(|n: u128| n.to_le_bytes()[..bytes].to_vec());
            stored
                .into_iter()
                .chain((0..bytes).map(move |at| [vec![0; at], vec![0x80], vec![0; bytes - at - 1]].concat()))
        };
        for (ty, nullable) in types.into_iter().flat_map(|ty| [(ty, false), (ty, true)]) {
            let schema = TableSchema::new("d", "t", vec![Column { nullable, ..Column::new("c", ty) }], vec![]);
            let (layout, mut rows) = (schema.layout(), vec![]);
            for stored in values(ty) {
                let mut row = Vec::new();
                layout.encode(&[crate::row::decode_value(ty, &stored)], &mut row).unwrap();
                rows.push(row);
            }
            if nullable {
                rows.push(Vec::new());
                layout.encode(&[Value::Null], rows.last_mut().unwrap()).unwrap();
            }
            let key_of = |row: &Vec<u8>| {
                let mut key = Vec::new();
                key::encode_part(ty, nullable, &layout.value(row, 0), &mut key).unwrap();
                key
            };
            let mut bounds: Vec<Vec<u8>> = rows.iter().map(key_of).collect();
            let longer: Vec<Vec<u8>> = bounds.iter().map(|key| [key, &[0][..]].concat()).collect();
            let shorter: Vec<Vec<u8>> = bounds.iter().map(|key| key[..key.len() - 1].to_vec()).collect();
            bounds.extend(longer.into_iter().chain(shorter).chain([vec![], vec![1], vec![2], vec![0xff; 20]]));
            let ends = || bounds.iter().map(|bound| Some(bound.as_slice())).chain([None]);
            for range in ends().flat_map(|low| ends().map(move |high| (low, high))) {
                let mut filter = Vec::new();
                push_ranges(&mut filter, 0, [range].into_iter());
                let expected: Vec<usize> = (0..rows.len()).filter(|&i| is_in(&[range], &key_of(&rows[i]))).collect();
                assert_eq!(passing(&filter, &schema, &rows), expected, "{ty:?} {range:x?}");
            }
        }
    }

    /// What is known of a text is of that text and that test, however many there are.
    #[test]
    fn texts_are_told_apart_from_those_that_are_known() {
        let schema = table();
        let texts: Vec<String> = (0..400)
            .map(|n| {
                ["", "x", "\0", "a much longer text"][n % 4].to_owned() + &"ab".repeat(n % 9) + &(n / 36).to_string()
            })
            .collect();
        let layout = schema.layout();
        let rows: Vec<_> =
            texts.iter().map(|text| row(layout, Value::Null, Value::Null, Value::Bytes(text.as_bytes()))).collect();
        let bounds = ["ab", "xab", "ABAB1"].map(|text| point(&schema, 3, Value::Bytes(text.as_bytes())).0);
        let tests = bounds.each_ref().map(|low| {
            let mut bytes = Vec::new();
            push_ranges(&mut bytes, 3, [(Some(low.as_slice()), None)].into_iter());
            bytes
        });
        let of = |bytes: &[u8], row: &Vec<u8>| !passing(bytes, &schema, std::slice::from_ref(row)).is_empty();
        let all: Vec<usize> = (0..rows.len()).filter(|i| tests.iter().all(|test| of(test, &rows[*i]))).collect();
        let twice = [rows.clone(), rows.clone()].concat();
        let found = passing(&tests.concat(), &schema, &twice);
        assert!(!all.is_empty() && all.len() < rows.len());
        assert_eq!(found, [all.clone(), all.iter().map(|i| i + rows.len()).collect()].concat());
    }

    /// No text that [`is_exact`] speaks of is without a key.
    #[test]
    fn texts_of_a_length_have_keys() {
        for collation in crate::collate::Collation::ALL {
            let ty = ColumnType::VarChar { length: EXACT_LENGTH_MAX, collation };
            let has_key =
                |text: &str| key::encode_part(ty, true, &Value::Bytes(text.as_bytes()), &mut Vec::new()).is_ok();
            let length = |c: &char| {
                let mut key = Vec::new();
                key::encode_part(ty, true, &Value::Bytes(c.encode_utf8(&mut [0; 4]).as_bytes()), &mut key).unwrap();
                key.len()
            };
            // The others have the rest of Unicode not at all, or as UTF-8 has it.
            let last = if collation.charset().is_utf8() { char::MAX } else { '\u{ffff}' };
            let longest = ('\0'..=last).max_by_key(length).unwrap();
            let all = |c: char| c.to_string().repeat(usize::from(EXACT_LENGTH_MAX));
            assert!(has_key(&all(longest)), "{} {longest:?}: {}", collation.name(), length(&longest));
        }
    }

    /// Of values that are not in a set few pass.
    #[test]
    fn sets_let_few_others_pass() {
        let ty = ColumnType::Int { bits: 64, unsigned: false };
        for values in [1, 100, 10_000, 65_536] {
            let mut set = Set::with_room(values);
            (0..values as i64).for_each(|n| set.add(ty, &Value::Int(n * 7), &mut Vec::new()));
            let may_be = |n: i64| {
                let mut key = Vec::new();
                key::encode_part(ty, false, &Value::Int(n), &mut key).unwrap();
                has_all(set.bytes(), &key)
            };
            assert!((0..values as i64).all(|n| may_be(n * 7)));
            let others = (0..20_000).filter(|n| may_be(-1 - n)).count();
            assert!(others < 1000, "{others} of 20,000 pass a set of {values}");
            assert!(set.leaves_out());
        }
        let mut crowded = Set::with_room(1_000_000);
        (0..1_000_000).for_each(|n| crowded.add(ty, &Value::Int(n), &mut Vec::new()));
        assert!(!crowded.leaves_out());
    }

    /// What a pattern costs is charged, also where it is long in coming.
    #[test]
    fn patterns_are_paid_for() {
        let schema = table();
        let text = "\u{e4}".repeat(20);
        let row = row(schema.layout(), Value::Null, Value::Null, Value::Bytes(text.as_bytes()));
        let mut bytes = Vec::new();
        push_like(
            &mut bytes,
            3,
            "%\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}o%".as_bytes(),
            None,
            false,
        );
        let filter = Filter::decode(&bytes, &schema, Vec::new()).unwrap();
        assert!(!filter.passes(&schema, &row, &mut Vec::new()));
        let spent = filter.take_spent();
        assert!((2..20).contains(&spent), "{spent}");
        assert_eq!(filter.take_spent(), 0);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let schema = table();
        let is_refused = |bytes: &[u8]| {
            Filter::decode(bytes, &schema, Vec::new()).err().is_some_and(|e| e == ErrorCode::ProtocolViolation)
        };
        let mut good = Vec::new();
        push_ranges(&mut good, 1, [(Some(&b"abc"[..]), None)].into_iter());
        push_columns(&mut good, 1, 1, 2);
        assert!(!is_refused(&good));
        for length in 1..good.len() {
            // What ends behind its first test is one.
            assert_eq!(is_refused(&good[..length]), length != good.len() - 6, "{length}");
        }
        let made = |push: &dyn Fn(&mut Vec<u8>)| {
            let mut filter = Vec::new();
            push(&mut filter);
            is_refused(&filter)
        };
        assert!(made(&|out| push_ranges(out, 6, std::iter::empty())), "no such column");
        assert!(made(&|out| push_ranges(out, 4, std::iter::empty())), "a column too long");
        assert!(made(&|out| push_columns(out, 1, 1, 5)), "columns of two types");
        assert!(made(&|out| (0..=TESTS_MAX).for_each(|_| push_columns(out, 1, 1, 2))), "too many tests");
        assert!(made(&|out| push_ranges_of_beginning(out, 1, 1, std::iter::empty())), "the beginning of a number");
        assert!(made(&|out| push_like(out, 1, b"a%", None, false)), "a pattern of numbers");
        assert!(made(&|out| push_like(out, 4, b"a%", None, false)), "a pattern of what is too long");
        assert!(made(&|out| push_like(out, 3, &[b'%'; PATTERN_BYTES_MAX + 1], None, false)), "a pattern too long");
        assert!(made(&|out| push_set(out, 3, &[0; SET_BYTES_MIN])), "a set of texts");
        assert!(made(&|out| push_set(out, 6, &[0; SET_BYTES_MIN])), "a set of no such column");
        for length in [0, 1, SET_BYTES_MIN / 2, SET_BYTES_MIN + 1, 2 * SET_BYTES_MAX] {
            assert!(made(&|out| push_set(out, 1, &vec![0; length])), "a set of {length} bytes");
        }
        let many = vec![(None, None); RANGES_MAX + 1];
        assert!(made(&|out| push_ranges(out, 1, many.iter().copied())), "too many ranges");
        assert!(made(&|out| push_ranges(out, 1, [(Some(&[0; FILTER_BYTES_MAX][..]), None)].into_iter())), "too long");
    }
}

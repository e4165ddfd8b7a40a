//! ENUM and SET: texts that are stored as numbers.
//!
//! In the data nodes such a column is an integer without sign: of an ENUM the number of its label, 0 for the empty text that a value becomes which is none of them; of a
//! SET a bit for each label. A SQL thread's catalog puts the labels into the type ([`typed`]), so that a plan, which copies types, has them everywhere. For this each list of labels is
//! kept once in the process and never freed; a definition that brings more than [`LABEL_BYTES_MAX`] of them together is refused.
//!
//! A value is a [`Datum::Label`]: a number where a number is wanted, a text elsewhere. It is sorted by its number and compared as a text, as in MySQL.

use std::{borrow::Cow, collections::BTreeMap, sync::Mutex};

use apus_types::{
    Column, ColumnType,
    collate::Collation,
    schema::{Form, LabelList, Labels},
};

use super::datum::{Datum, Number};
use crate::{
    errors::{self, Result},
    wire::SqlError,
};

/// Labels of all definitions that this process has seen, in bytes.
const LABEL_BYTES_MAX: usize = 64 << 20;
/// Labels of an ENUM and of a SET.
const ENUM_MAX: usize = 65_535;
const SET_MAX: usize = 64;
/// Characters of a label.
const LABEL_CHARS_MAX: usize = 255;

#[derive(Default)]
struct Known {
    lists: BTreeMap<Vec<String>, Labels>,
    bytes: usize,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { lists: BTreeMap::new(), bytes: 0 });

/// The one handle of this list.
fn handle(list: &[String], bytes_max: usize) -> Result<Labels> {
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(labels) = known.lists.get(list) {
        return Ok(*labels);
    }
    let bytes: usize = list.iter().map(|label| label.len() + size_of::<String>()).sum();
    if known.bytes + bytes > bytes_max {
        return Err(errors::not_supported("more than 64 MiB of labels of ENUM and SET since this SQL node began"));
    }
    known.bytes += bytes;
    let labels = Labels(Box::leak(Box::new(LabelList(list.to_vec()))));
    known.lists.insert(list.to_vec(), labels);
    Ok(labels)
}

/// The type of an ENUM or SET that is defined now.
///
/// # Errors
/// 1291 for a label twice, 1097 for too many, 3505 and the like for those that no value could name.
pub fn define(column: &str, is_set: bool, collation: Collation, list: Vec<String>) -> Result<ColumnType> {
    let kind = if is_set { "SET" } else { "ENUM" };
    // MySQL keeps no spaces at their end.
    let list: Vec<String> = list.into_iter().map(|label| label.trim_end_matches(' ').to_owned()).collect();
    if list.len() > if is_set { SET_MAX } else { ENUM_MAX } {
        return Err(match is_set {
            true => SqlError::new(1097, b"HY000", format!("Too many strings for column {column} and SET")),
            false => SqlError::new(3505, b"HY000", format!("Too many enumeration values for column {column}.")),
        });
    }
    for (i, label) in list.iter().enumerate() {
        if label.chars().count() > LABEL_CHARS_MAX {
            let text = format!("Too long enumeration/set value for column {column}.");
            return Err(SqlError::new(3505, b"HY000", text));
        }
        if is_set && label.contains(',') {
            let text = format!("Illegal {} '{label}' value found during parsing", kind.to_lowercase());
            return Err(SqlError::new(1367, b"22007", text));
        }
        if list[..i].iter().any(|other| collation.compare(other.as_bytes(), label.as_bytes()).is_eq()) {
            let text = format!("Column '{column}' has duplicated value '{label}' in {kind}");
            return Err(SqlError::new(1291, b"HY000", text));
        }
    }
    let labels = handle(&list, LABEL_BYTES_MAX)?;
    Ok(ColumnType::Label { bits: bits(is_set, list.len()), is_set, collation, labels })
}

/// Bits of the integer that holds such values.
fn bits(is_set: bool, count: usize) -> u8 {
    match (is_set, count) {
        (false, 0..=255) | (true, 0..=8) => 8,
        (false, _) | (true, 9..=16) => 16,
        (true, 17..=24) => 24,
        (true, 25..=32) => 32,
        (true, _) => 64,
    }
}

/// The type of a column that comes from the dictionary, as SQL has it.
pub fn typed(column: &mut Column) -> Result<()> {
    if column.form == Form::Json {
        column.ty = ColumnType::Json;
    }
    if let Form::Bit { length } = column.form {
        column.ty = ColumnType::Bit { length };
    }
    if let (ColumnType::Int { bits, .. }, Form::Labels { is_set, collation, labels }) = (column.ty, &column.form) {
        // What was defined elsewhere is known here, however much that is.
        let labels = handle(labels, usize::MAX)?;
        column.ty = ColumnType::Label { bits, is_set: *is_set, collation: *collation, labels };
    }
    Ok(())
}

/// What NULL becomes in a column that may not be NULL, without strict mode.
pub fn in_place_of_null(ty: ColumnType) -> Option<Datum<'static>> {
    matches!(ty, ColumnType::Label { .. }).then_some(Datum::UInt(0))
}

/// Whether a column of this type that may not be NULL has a default of its own: the first label of an ENUM.
pub fn has_first(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Label { is_set: false, .. })
}

/// What the number stands for; of a number that has no label the empty text.
pub fn text(labels: Labels, is_set: bool, n: u64) -> Cow<'static, [u8]> {
    let list = &labels.0.0;
    if !is_set {
        let label = usize::try_from(n).ok().and_then(|n| list.get(n.checked_sub(1)?));
        return Cow::Borrowed(label.map_or(&[], |label| label.as_bytes()));
    }
    let mut members = list.iter().enumerate().filter(|(i, _)| n >> i & 1 == 1).map(|(_, label)| label.as_str());
    match (members.next(), members.next()) {
        (None, _) => Cow::Borrowed(&[]),
        (Some(one), None) => Cow::Borrowed(one.as_bytes()),
        (Some(first), Some(second)) => {
            let mut text = format!("{first},{second}");
            members.for_each(|label| {
                text.push(',');
                text.push_str(label);
            });
            Cow::Owned(text.into_bytes())
        }
    }
}

/// Characters of the longest value.
pub fn longest(labels: Labels, is_set: bool) -> u32 {
    let lengths = labels.0.0.iter().map(|label| label.chars().count() as u32);
    if is_set { lengths.map(|n| n + 1).sum::<u32>().saturating_sub(1) } else { lengths.max().unwrap_or(0) }
}

/// The number of the label, from 1.
fn position(labels: Labels, collation: Collation, label: &[u8]) -> Option<u64> {
    let found = labels.0.0.iter().position(|known| collation.compare(known.as_bytes(), label).is_eq());
    found.map(|i| i as u64 + 1)
}

/// The number whose text is equal to this one; `None`: there is no such value.
pub fn find(labels: Labels, is_set: bool, collation: Collation, value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return Some(position(labels, collation, value).filter(|_| !is_set).unwrap_or(0));
    }
    if !is_set {
        return position(labels, collation, value);
    }
    let n = members(labels, collation, value)?;
    collation.compare(&text(labels, true, n), value).is_eq().then_some(n)
}

/// The bits of labels between commas.
fn members(labels: Labels, collation: Collation, value: &[u8]) -> Option<u64> {
    let mut n = 0;
    for label in value.split(|&b| b == b',') {
        n |= 1 << (position(labels, collation, label)? - 1);
    }
    Some(n)
}

/// The number that a value has in such a column, and whether that is all of it.
pub fn number(labels: Labels, is_set: bool, collation: Collation, value: &Datum<'_>) -> (u64, bool) {
    let count = labels.0.0.len() as u64;
    let most = if !is_set { count } else { u64::MAX >> (64 - count.clamp(1, 64)) };
    match value {
        Datum::Text(t) | Datum::Bytes(t) | Datum::Label(_, t) => {
            let t = &t[..t.iter().rposition(|&b| b != b' ').map_or(0, |last| last + 1)];
            let found = match is_set {
                false => position(labels, collation, t),
                true if t.is_empty() => Some(0),
                true => members(labels, collation, t),
            };
            // A text that is no label may be a number.
            let digits = || std::str::from_utf8(t).ok()?.parse::<u64>().ok().filter(|n| *n <= most);
            match found.or_else(digits) {
                Some(n) => (n, true),
                None if is_set => (known_members(labels, collation, t), false),
                None => (0, false),
            }
        }
        _ => {
            let n = match value.number() {
                Some(Number::Double(x)) => x.trunc() as i128,
                Some(Number::Decimal(unscaled, scale)) => unscaled / 10i128.pow(u32::from(scale.min(38))),
                Some(n) => n.to_i128(),
                None => 0,
            };
            match u64::try_from(n) {
                Ok(n) if n <= most && (n > 0 || is_set) => (n, true),
                _ if is_set => (n as u64 & most, false),
                _ => (0, false),
            }
        }
    }
}

/// Of labels between commas those that there are.
fn known_members(labels: Labels, collation: Collation, value: &[u8]) -> u64 {
    let bit = |label: &[u8]| position(labels, collation, label).map_or(0, |n| 1 << (n - 1));
    value.split(|&b| b == b',').map(bit).fold(0, |all, bit| all | bit)
}

/// Every value of the one is the same value of the other, if its stored bytes are: of ENUM and SET, labels are added behind those that are there.
pub fn extends(from: ColumnType, to: ColumnType) -> bool {
    match (from, to) {
        (ColumnType::Label { is_set, labels, .. }, ColumnType::Label { is_set: new_set, labels: new, .. }) => {
            is_set == new_set && new.0.0.starts_with(&labels.0.0)
        }
        (ColumnType::Label { .. }, _) | (_, ColumnType::Label { .. }) => false,
        (ColumnType::Bit { .. }, ColumnType::Bit { .. }) => true,
        (ColumnType::Bit { .. }, _) | (_, ColumnType::Bit { .. }) => false,
        (from, to) => (from == ColumnType::Json) == (to == ColumnType::Json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(list: &[&str], is_set: bool) -> Labels {
        let list = list.iter().map(|&label| label.to_owned()).collect();
        match define("c", is_set, Collation::default(), list) {
            Ok(ColumnType::Label { labels, .. }) => labels,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_of_an_enum() {
        let list = labels(&["small", "Medium", "2"], false);
        let number = |value: Datum<'_>| number(list, false, Collation::default(), &value);
        assert_eq!(number(Datum::text("MEDIUM ")), (2, true));
        assert_eq!(number(Datum::text("2")), (3, true), "a label before a number");
        assert_eq!(number(Datum::text("1")), (1, true));
        assert_eq!(number(Datum::text("large")), (0, false));
        assert_eq!(number(Datum::text("")), (0, false));
        assert_eq!(number(Datum::Int(2)), (2, true));
        assert_eq!(number(Datum::Int(4)), (0, false));
        assert_eq!(number(Datum::Int(0)), (0, false));
        assert_eq!(&*text(list, false, 2), b"Medium");
        assert_eq!(&*text(list, false, 0), b"");
        assert_eq!(find(list, false, Collation::default(), b"small"), Some(1));
        assert_eq!(find(list, false, Collation::default(), b"1"), None);
    }

    #[test]
    fn values_of_a_set() {
        let list = labels(&["a", "b", "c"], true);
        let number = |value: Datum<'_>| number(list, true, Collation::default(), &value);
        assert_eq!(number(Datum::text("c,a")), (5, true));
        assert_eq!(number(Datum::text("")), (0, true));
        assert_eq!(number(Datum::text("a,x,c")), (5, false));
        assert_eq!(number(Datum::text("3")), (3, true));
        assert_eq!(number(Datum::Int(8)), (0, false));
        assert_eq!(&*text(list, true, 5), b"a,c");
        assert_eq!(find(list, true, Collation::default(), b"a,c"), Some(5));
        assert_eq!(find(list, true, Collation::default(), b"c,a"), None, "it is compared as a text");
    }

    #[test]
    fn one_handle_for_equal_lists() {
        assert_eq!(labels(&["x", "y"], false), labels(&["x", "y"], false));
        assert_ne!(labels(&["x", "y"], false), labels(&["y", "x"], false));
        assert_eq!(define("c", false, Collation::default(), vec!["a".into(), "A".into()]).unwrap_err().errno, 1291);
    }
}

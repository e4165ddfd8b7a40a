//! Primary keys that are not stored, because they can be made from the image of the row.
//!
//! The key is in the image already, as columns. Where these are integers, times or bytes without a collation, the encoded key is made from them in some
//! tens of instructions, and compared with another one without being made. A record says whether its key is stored, so whatever cannot
//! be made is right, too: keys with texts, long ones, deletes, rows that have no version, and images of which a client claims another key.

use apus_types::{ColumnType, RowLayout, TableSchema, schema::HIDDEN_KEY_COLUMN};

use crate::row_key::{MADE_MAX, RowKey};

#[derive(Clone, Copy)]
pub(super) struct Part {
    column: u16,
    /// In rows of the newest form: where a number is, or where the first variable column says how long it is.
    at: u16,
    /// Where the bytes of the first variable column begin; 0: it is another one, or a number.
    bytes_at: u16,
    /// Bytes of a column that is a little-endian number in the row and a big-endian one in the key; 0: it is bytes.
    width: u8,
    /// The number has a sign, whose bit is the other way round in the key.
    signed: bool,
}

impl Part {
    #[inline(always)]
    fn raw<'r>(&self, layout: &'r RowLayout, image: &'r [u8]) -> &'r [u8] {
        let at = usize::from(self.at);
        if !layout.is_newest(image) || at == 0 {
            return self.raw_elsewhere(layout, image);
        }
        if self.width != 0 {
            return image.get(at..at + usize::from(self.width)).unwrap_or_default();
        }
        let length =
            image.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |length| u32::from_le_bytes(*length));
        let from = usize::from(self.bytes_at);
        image.get(from..from + length as usize).unwrap_or_default()
    }
    #[cold]
    fn raw_elsewhere<'r>(&self, layout: &'r RowLayout, image: &'r [u8]) -> &'r [u8] {
        layout.raw(image, self.column)
    }
    /// The column has what a key can be made from.
    #[inline]
    fn is_plain(&self, layout: &RowLayout, image: &[u8]) -> bool {
        let raw = self.raw(layout, image);
        if self.width == 0 { !has_zero(raw) } else { raw.len() == usize::from(self.width) }
    }
    /// Whether the key begins with what it has of this column in the image; what follows.
    #[inline(always)]
    fn strip<'k>(&self, layout: &RowLayout, image: &[u8], key: &'k [u8]) -> Option<&'k [u8]> {
        let raw = self.raw(layout, image);
        let (mine, rest) = key.split_at_checked(raw.len())?;
        if self.width != 0 {
            return (number(raw) == turned(mine, self.turn())).then_some(rest);
        }
        let rest = rest.strip_prefix(&[0, 0])?;
        is_same(raw, mine).then_some(rest)
    }
    #[inline]
    fn turn(&self) -> u8 {
        u8::from(self.signed) << 7
    }
}

/// How keys of a table are made.
pub(super) enum Keys {
    /// They are not.
    Stored,
    /// They are the bytes of a column as they are.
    Column(u16),
    /// They have one column.
    Part(Part),
    Parts(Vec<Part>),
}

impl Keys {
    pub fn new(schema: &TableSchema) -> Keys {
        if schema.is_hidden_index() {
            return Keys::Column(HIDDEN_KEY_COLUMN);
        }
        let part = |column: &u16| {
            let definition = schema.columns.get(usize::from(*column))?;
            let ty = definition.ty.stored();
            let (width, signed) = match ty {
                _ if definition.nullable => return None,
                ColumnType::Int { bits, unsigned } => (bits / 8, !unsigned),
                ColumnType::Year => (2, false),
                ColumnType::Date => (4, false),
                ColumnType::DateTime { .. } => (8, false),
                ColumnType::Timestamp { .. } | ColumnType::Time { .. } => (8, true),
                _ if ty.fixed_bytes().is_none() && ty.collation().is_none() => (0, false),
                _ => return None,
            };
            let (at, bytes_at) = match width {
                0 => schema.layout().first_variable_place(*column).unwrap_or_default(),
                _ => (schema.layout().fixed_place(*column)?.0, 0),
            };
            let (at, bytes_at) = (u16::try_from(at).ok()?, u16::try_from(bytes_at).ok()?);
            Some(Part { column: *column, at, bytes_at, width, signed })
        };
        match schema.primary_key.iter().map(part).collect::<Option<Vec<Part>>>() {
            Some(parts) if parts.len() > 1 => Keys::Parts(parts),
            Some(parts) => parts.first().map_or(Keys::Stored, |part| Keys::Part(*part)),
            None => Keys::Stored,
        }
    }

    /// The key of an image from which it can be made.
    #[inline]
    pub fn make<'f>(&self, schema: &'f TableSchema, image: &'f [u8]) -> RowKey<'f> {
        let layout = schema.layout();
        let parts = match self {
            Keys::Stored => panic!("a key is neither stored nor can it be made"),
            Keys::Column(column) => return RowKey::stored(layout.raw(image, *column)),
            Keys::Part(part) => std::slice::from_ref(part),
            Keys::Parts(parts) => parts,
        };
        let (mut bytes, mut at) = ([0; MADE_MAX], 0);
        for part in parts {
            let raw = part.raw(layout, image);
            let out = &mut bytes[at..at + raw.len()];
            out.copy_from_slice(raw);
            if part.width != 0 {
                out.reverse();
                out[0] ^= part.turn();
                at += raw.len();
            } else {
                at += raw.len() + 2; // there is no zero in it
            }
        }
        RowKey::made(bytes, at)
    }

    /// Whether [`Keys::make`] gives this key: of an image from which it makes the right one.
    #[inline(always)]
    pub fn is_made(&self, schema: &TableSchema, image: &[u8], key: &[u8]) -> bool {
        match self {
            Keys::Part(part) => part.strip(schema.layout(), image, key).is_some_and(<[u8]>::is_empty),
            _ => self.is_made_else(schema.layout(), image, key),
        }
    }
    fn is_made_else(&self, layout: &RowLayout, image: &[u8], key: &[u8]) -> bool {
        let parts = match self {
            Keys::Stored => return false,
            Keys::Column(column) => return layout.raw(image, *column) == key,
            Keys::Part(part) => std::slice::from_ref(part),
            Keys::Parts(parts) => parts,
        };
        let mut rest = key;
        for part in parts {
            let Some(behind) = part.strip(layout, image, rest) else { return false };
            rest = behind;
        }
        rest.is_empty()
    }

    /// Whether this key can be made from the image.
    #[inline]
    pub fn gives(&self, schema: &TableSchema, image: &[u8], key: &[u8]) -> bool {
        let layout = schema.layout();
        let is_plain = match self {
            Keys::Stored => false,
            Keys::Column(_) => layout.is_newest(image),
            Keys::Part(part) => key.len() <= MADE_MAX && part.is_plain(layout, image),
            Keys::Parts(parts) => key.len() <= MADE_MAX && parts.iter().all(|part| part.is_plain(layout, image)),
        };
        is_plain && self.is_made(schema, image, key)
    }

    /// Whether the image gives the key that another one gives.
    #[inline(always)]
    pub fn agree(&self, schema: &TableSchema, image: &[u8], other: &[u8]) -> bool {
        let layout = schema.layout();
        match self {
            Keys::Stored => false,
            Keys::Column(column) => layout.is_newest(image) && layout.raw(image, *column) == layout.raw(other, *column),
            Keys::Part(part) => is_same(part.raw(layout, image), part.raw(layout, other)),
            Keys::Parts(parts) => parts.iter().all(|part| is_same(part.raw(layout, image), part.raw(layout, other))),
        }
    }
}

/// As `==`, without a call for keys of usual lengths.
#[inline(always)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() || a.len() > 16 {
        return a == b;
    }
    match (a.first_chunk::<8>(), b.first_chunk::<8>(), a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a), Some(b), Some(a_end), Some(b_end)) => a == b && a_end == b_end,
        _ => a == b,
    }
}

/// Whether a byte is 0, without a call for so few bytes.
#[inline]
fn has_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let has = |word: u64| word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0;
    words.iter().any(|word| has(u64::from_le_bytes(*word))) || rest.contains(&0)
}

/// Up to 8 bytes, the first one the lowest.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(bytes), _) => u64::from_le_bytes(*bytes),
        (None, Some(four)) if bytes.len() == 4 => u64::from(u32::from_le_bytes(*four)),
        _ => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
/// The same of bytes in the other order, with a bit of the first one turned.
#[inline]
fn turned(bytes: &[u8], turn: u8) -> u64 {
    let turn = u64::from(turn) << (8 * bytes.len().max(1) - 8);
    turn ^ match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(bytes), _) => u64::from_be_bytes(*bytes),
        (None, Some(four)) if bytes.len() == 4 => u64::from(u32::from_be_bytes(*four)),
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_equal_bytes_are_found_wherever_they_are() {
        for length in 0..40 {
            let bytes = vec![0x81; length];
            assert!(
                !has_zero(&bytes) && is_same(&bytes, &bytes.clone()) && !is_same(&bytes, &[&bytes[..], &[0]].concat())
            );
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] = 0;
                assert!(has_zero(&other) && !is_same(&bytes, &other), "{length} bytes, {at}");
                other[at] = 1;
                assert!(!has_zero(&other) && !is_same(&bytes, &other), "{length} bytes, {at}");
            }
        }
    }
}

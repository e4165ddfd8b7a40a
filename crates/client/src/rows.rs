//! Reusable containers: keys to read, rows that came back.

use apus_types::{ErrorCode, TableSchema, key, limits};

/// Keys of one table to read, in the caller's order. Reuse it: [`KeyList::clear`] keeps the memory.
#[derive(Clone, Debug, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    entries: Vec<KeyEntry>,
}

#[derive(Clone, Copy, Debug)]
struct KeyEntry {
    hash: u64,
    start: u32,
    length: u32,
}

impl KeyList {
    pub fn new() -> KeyList {
        KeyList::default()
    }
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// Adds an encoded primary key of `schema`.
    ///
    /// # Errors
    /// `KeyTooLong`, `RequestTooLarge` (4 GiB of keys).
    #[inline]
    pub fn push(&mut self, schema: &TableSchema, key: &[u8]) -> Result<(), ErrorCode> {
        self.push_hashed(key::distribution_hash(schema, key), key)
    }
    /// Adds an encoded primary key whose [`key::distribution_hash`] is known already (unique index entries carry it).
    ///
    /// # Errors
    /// As [`KeyList::push`].
    #[inline]
    pub fn push_hashed(&mut self, distribution_hash: u64, key: &[u8]) -> Result<(), ErrorCode> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(ErrorCode::KeyTooLong);
        }
        let start = u32::try_from(self.bytes.len()).map_err(|_| ErrorCode::RequestTooLarge)?;
        self.bytes.extend_from_slice(key);
        self.entries.push(KeyEntry { hash: distribution_hash, start, length: key.len() as u32 });
        Ok(())
    }
    /// Key number `index` as it was pushed.
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        let entry = self.entries.get(index)?;
        self.bytes.get(entry.start as usize..)?.get(..entry.length as usize)
    }
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> (u64, &[u8]) {
        let entry = self.entries[index];
        (entry.hash, &self.bytes[entry.start as usize..][..entry.length as usize])
    }
}

/// Where a row lies in [`Rows`]; `length == MISSING` for a key without row. The entry key of a scan row follows its row.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    length: u32,
    key_length: u32,
}

const MISSING: u32 = u32::MAX;

/// Rows that came back: of a read one entry per key in the order asked (perhaps missing), of a scan the rows of one batch.
///
/// Each row is in the [`apus_types::row`] format of the projection asked for. Reuse it: buffers are kept and swapped with the
/// client's own, so that in steady state nothing is allocated or copied.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// A buffer that grew beyond this for one large answer is given back rather than kept, in bytes.
pub(crate) const BUFFER_KEPT_MAX: usize = 1 << 20;

impl Rows {
    pub fn new() -> Rows {
        Rows::default()
    }
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// The row; `None` when there is no row with that key (or no such entry).
    #[inline]
    pub fn row(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans.get(index)?;
        if span.length == MISSING {
            return None;
        }
        self.bytes.get(span.start as usize..)?.get(..span.length as usize)
    }
    /// The entry key of a scanned row, when it was asked for; otherwise empty.
    pub fn key(&self, index: usize) -> &[u8] {
        let Some(span) = self.spans.get(index).filter(|s| s.length != MISSING) else { return &[] };
        let start = span.start as usize + span.length as usize;
        self.bytes.get(start..).and_then(|b| b.get(..span.key_length as usize)).unwrap_or(&[])
    }
    /// All entries in order, `None` for a missing one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> + Clone {
        (0..self.spans.len()).map(|i| self.row(i))
    }
    pub fn clear(&mut self) {
        if self.bytes.capacity() > BUFFER_KEPT_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.spans.clear();
    }

    /// Entries that are all missing, to be filled by [`Rows::set`].
    pub(crate) fn reset(&mut self, entries: usize) {
        self.clear();
        self.spans.resize(entries, Span { start: 0, length: MISSING, key_length: 0 });
    }
    /// Copies a row into entry `index`.
    ///
    /// # Errors
    /// `RequestTooLarge` over 4 GiB.
    pub(crate) fn set(&mut self, index: usize, row: &[u8]) -> Result<(), ErrorCode> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| ErrorCode::RequestTooLarge)?;
        self.bytes.extend_from_slice(row);
        if let Some(span) = self.spans.get_mut(index) {
            *span = Span { start, length: row.len() as u32, key_length: 0 };
        }
        Ok(())
    }
    /// Appends a row and its entry key.
    ///
    /// # Errors
    /// `RequestTooLarge` over 4 GiB.
    pub(crate) fn push(&mut self, row: &[u8], key: &[u8]) -> Result<(), ErrorCode> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| ErrorCode::RequestTooLarge)?;
        self.bytes.extend_from_slice(row);
        self.bytes.extend_from_slice(key);
        self.spans.push(Span { start, length: row.len() as u32, key_length: key.len() as u32 });
        Ok(())
    }
    /// Appends a row that was read elsewhere.
    ///
    /// # Errors
    /// `RequestTooLarge` over 4 GiB.
    pub fn append(&mut self, row: &[u8]) -> Result<(), ErrorCode> {
        self.push(row, &[])
    }
    /// The buffer itself, emptied, to be swapped with a whole answer; entries are then added by position in it.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.clear();
        &mut self.bytes
    }
    /// The answer taken over.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    pub(crate) fn push_span(&mut self, start: usize, length: usize, key_length: usize) {
        self.spans.push(Span { start: start as u32, length: length as u32, key_length: key_length as u32 });
    }
    pub(crate) fn push_missing(&mut self) {
        self.spans.push(Span { start: 0, length: MISSING, key_length: 0 });
    }
    pub(crate) fn truncate(&mut self, entries: usize) {
        self.spans.truncate(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_places() {
        let mut rows = Rows::new();
        rows.reset(3);
        rows.set(2, b"two").unwrap();
        rows.set(0, b"zero").unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [Some(&b"zero"[..]), None, Some(&b"two"[..])]);
        assert_eq!(rows.row(3), None);
        rows.clear();
        rows.push(b"row", b"key").unwrap();
        assert_eq!((rows.row(0), rows.key(0)), (Some(&b"row"[..]), &b"key"[..]));
    }

    #[test]
    fn long_keys_are_refused() {
        let mut keys = KeyList::new();
        assert_eq!(keys.push_hashed(1, &[0; limits::KEY_BYTES_MAX + 1]), Err(ErrorCode::KeyTooLong));
        keys.push_hashed(1, b"k").unwrap();
        assert_eq!(keys.key(0), Some(&b"k"[..]));
        assert_eq!(keys.key(1), None);
    }
}

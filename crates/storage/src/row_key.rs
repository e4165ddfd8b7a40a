//! The encoded primary key of a row, from wherever it comes.

use std::ops::Deref;

/// Keys up to this length are made where they are needed.
pub(crate) const MADE_MAX: usize = 62;

/// An encoded primary key: of a record, or made.
pub struct RowKey<'f>(Form<'f>);

enum Form<'f> {
    Stored(&'f [u8]),
    Made { length: u8, bytes: [u8; MADE_MAX] },
}

impl Deref for RowKey<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Stored(bytes) => bytes,
            Form::Made { length, bytes } => &bytes[..usize::from(*length)],
        }
    }
}

impl<'f> RowKey<'f> {
    #[inline]
    pub(crate) fn stored(bytes: &'f [u8]) -> RowKey<'f> {
        RowKey(Form::Stored(bytes))
    }
    #[inline]
    pub(crate) fn made(bytes: [u8; MADE_MAX], length: usize) -> RowKey<'f> {
        RowKey(Form::Made { length: length as u8, bytes })
    }
}

/// Who knows the key of each row: an index that leaves keys out asks for them.
pub trait RowKeys {
    fn key(&self, row: u32) -> RowKey<'_>;
}

/// For indexes that hold their keys.
impl RowKeys for () {
    fn key(&self, row: u32) -> RowKey<'_> {
        panic!("an index that holds its keys asks for that of row {row}")
    }
}

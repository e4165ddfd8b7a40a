//! A column value as it passes between the row format and whoever computes with it.

/// One value; strings and blobs are borrowed from the row or request they came from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Null,
    Int(i64),
    UInt(u64),
    /// `unscaled / 10^scale`.
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    Float(f32),
    Double(f64),
    /// Text (UTF-8) or binary, as the column says.
    Bytes(&'a [u8]),
    /// See [`crate::time::pack_date`].
    Date(u32),
    /// See [`crate::time::pack_datetime`].
    DateTime(u64),
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    Timestamp(i64),
    /// Signed microseconds.
    Time(i64),
}

impl Value<'_> {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

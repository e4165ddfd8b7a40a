//! What a client is told of a column.

use std::{cell::OnceCell, ops::Deref};

use apus_types::collate::Charset;

use crate::wire::constants::{CHARSET_BINARY, CHARSET_UTF8MB4, column_flag};

/// Column and parameter types with their protocol numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ColumnType {
    Decimal = 0,
    Tiny = 1,
    Short = 2,
    Long = 3,
    Float = 4,
    Double = 5,
    Null = 6,
    Timestamp = 7,
    LongLong = 8,
    Int24 = 9,
    Date = 10,
    Time = 11,
    DateTime = 12,
    Year = 13,
    VarChar = 15,
    Bit = 16,
    Json = 245,
    NewDecimal = 246,
    Enum = 247,
    Set = 248,
    TinyBlob = 249,
    MediumBlob = 250,
    LongBlob = 251,
    Blob = 252,
    VarString = 253,
    String = 254,
    Geometry = 255,
}

impl ColumnType {
    /// The type with this protocol number.
    pub fn from_number(number: u8) -> Option<ColumnType> {
        use ColumnType::*;
        Some(match number {
            0 => Decimal,
            1 => Tiny,
            2 => Short,
            3 => Long,
            4 => Float,
            5 => Double,
            6 => Null,
            7 => Timestamp,
            8 => LongLong,
            9 => Int24,
            10 => Date,
            11 => Time,
            12 => DateTime,
            13 => Year,
            15 => VarChar,
            16 => Bit,
            245 => Json,
            246 => NewDecimal,
            247 => Enum,
            248 => Set,
            249 => TinyBlob,
            250 => MediumBlob,
            251 => LongBlob,
            252 => Blob,
            253 => VarString,
            254 => String,
            255 => Geometry,
            _ => return None,
        })
    }
}

/// `decimals` of a FLOAT or DOUBLE without a fixed number of places.
pub const DECIMALS_NOT_FIXED: u8 = 31;

/// What a client is told about one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDef {
    pub schema: String,
    /// Alias of the table in the statement.
    pub table: String,
    pub org_table: String,
    /// Alias of the column in the statement.
    pub name: String,
    pub org_name: String,
    pub column_type: ColumnType,
    /// 45 utf8mb4_general_ci for text, 63 binary for all else.
    pub charset: u16,
    /// Display width in bytes.
    pub length: u32,
    /// Bits of [`crate::wire::constants::column_flag`].
    pub flags: u16,
    /// Places after the point; for temporal columns, digits of the fraction; 31 ([`DECIMALS_NOT_FIXED`]) for FLOAT and
    /// DOUBLE (0 is taken as 31 there, since `DOUBLE(M,0)` is not offered).
    pub decimals: u8,
}

/// The columns of a plan's result, and the packets that tell them: the same bytes each time, but for sequence numbers.
#[derive(Debug, Clone, Default)]
pub struct Heading {
    pub(super) columns: Vec<ColumnDef>,
    pub(super) told: OnceCell<Box<[u8]>>,
}

impl Heading {
    /// Longer ones are told anew each time; so no packet among those that are kept was split.
    pub(super) const BYTES_MAX: usize = 8 << 10;
}

impl From<Vec<ColumnDef>> for Heading {
    fn from(columns: Vec<ColumnDef>) -> Heading {
        Heading { columns, told: OnceCell::new() }
    }
}

impl Deref for Heading {
    type Target = [ColumnDef];
    fn deref(&self) -> &[ColumnDef] {
        &self.columns
    }
}

impl ColumnDef {
    /// A column that is an expression: no table behind it, binary character set unless it is text.
    pub fn expression(name: impl Into<String>, column_type: ColumnType, length: u32) -> ColumnDef {
        let text = matches!(column_type, ColumnType::VarString | ColumnType::String | ColumnType::VarChar);
        let decimals = match column_type {
            ColumnType::Float | ColumnType::Double => DECIMALS_NOT_FIXED,
            _ => 0,
        };
        ColumnDef {
            schema: String::new(),
            table: String::new(),
            org_table: String::new(),
            name: name.into(),
            org_name: String::new(),
            column_type,
            charset: if text { CHARSET_UTF8MB4 } else { CHARSET_BINARY },
            length,
            flags: if text { 0 } else { column_flag::BINARY },
            decimals,
        }
    }

    /// What PREPARE says about a `?` whose type is not known.
    pub fn parameter() -> ColumnDef {
        let mut column = ColumnDef::expression("?", ColumnType::VarString, 0);
        column.charset = CHARSET_BINARY;
        column.flags = column_flag::BINARY;
        column
    }
}

/// The character set that a client is told of a column, and its width in it.
pub(super) fn told_as(column: &ColumnDef, results: Charset) -> (u16, u32) {
    if column.charset == CHARSET_BINARY || results == Charset::Utf8mb4 {
        return (column.charset, column.length);
    }
    let is_long = column.column_type == ColumnType::Blob; // whose length is in bytes
    let characters = column.length / u32::from(Charset::Utf8mb4.bytes_of_character());
    let length = characters.saturating_mul(results.bytes_of_character().into());
    (results.default_collation().id(), if is_long { column.length } else { length })
}

pub(super) fn is_datetime(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::Date | ColumnType::DateTime | ColumnType::Timestamp)
}

/// Types whose binary form is a length-encoded string.
pub(super) fn is_text(column_type: ColumnType) -> bool {
    use ColumnType::*;
    !matches!(
        column_type,
        Tiny | Short | Long | LongLong | Int24 | Year | Float | Double | Date | DateTime | Timestamp | Time | Null
    )
}

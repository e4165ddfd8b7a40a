//! The type of a column, as CREATE TABLE and ALTER TABLE name it, and the text that it was declared with.
//!
//! A data node knows types only; what a column is told with beyond that (digits of a FLOAT, ZEROFILL) is in the text.

use apus_types::{Column, ColumnType, collate::Collation};

use super::{charset::Characters, token::Tokens};
use crate::{
    errors::{self, Result},
    value::{bits, enum_set, number_format},
};

/// A column of the type that comes next.
pub fn typed(t: &mut Tokens, name: &str, default: Collation) -> Result<Column> {
    let (ty, declared) = match label_type(t, name, default)? {
        Some(ty) => (ty, String::new()),
        None => match bits::column_type(t, name)? {
            Some(ty) => (ty, String::new()),
            None => column_type(t, default)?,
        },
    };
    if let ColumnType::VarChar { length, collation } = ty {
        let most = VARCHAR_BYTES_MAX / u16::from(collation.charset().bytes_of_character());
        if length > most {
            let text = format!("Column length too big for column '{name}' (max = {most}); use BLOB or TEXT instead");
            return Err(crate::wire::SqlError::new(1074, b"42000", text));
        }
    }
    Ok(Column { declared, ..Column::new(name, ty) })
}

/// Most bytes of a VARCHAR in its character set.
const VARCHAR_BYTES_MAX: u16 = 65_535;

pub fn sizes(t: &mut Tokens) -> Result<Vec<u32>> {
    let mut list = Vec::new();
    if t.symbol('(') {
        loop {
            let n = t.number()?;
            list.push(n.parse::<u32>().map_err(|_| errors::syntax(&n))?);
            if !t.symbol(',') {
                break;
            }
        }
        t.expect_symbol(')')?;
    }
    Ok(list)
}

/// ENUM or SET with its labels; `None`: another type.
fn label_type(t: &mut Tokens, column: &str, default: Collation) -> Result<Option<ColumnType>> {
    let is_set = t.peek_word("set");
    if !(t.word("enum") || t.word("set")) {
        return Ok(None);
    }
    t.expect_symbol('(')?;
    let mut list = vec![t.string()?];
    while t.symbol(',') {
        list.push(t.string()?);
    }
    t.expect_symbol(')')?;
    let mut characters = Characters::default();
    loop {
        if t.word("binary") {
            characters.binary();
        } else if !characters.take(t)? {
            return enum_set::define(column, is_set, characters.collation(default)?, list).map(Some);
        }
    }
}

/// A type by its name, as a column of JSON_TABLE has it.
pub fn type_named(text: &str) -> Result<ColumnType> {
    let mut t = Tokens::new(text);
    let (ty, _) = column_type(&mut t, Collation::default())?;
    t.end()?;
    Ok(ty)
}

fn column_type(t: &mut Tokens, default: Collation) -> Result<(ColumnType, String)> {
    let name = t.identifier()?.to_ascii_lowercase();
    let mut declared = name.clone();
    if name == "double" {
        t.word("precision");
    }
    if name == "national" {
        t.identifier()?;
    }
    let varying = matches!(name.as_str(), "char" | "character") && t.word("varying");
    if name == "json" {
        return Ok((ColumnType::Json, String::new()));
    }
    let s = sizes(t)?;
    if !s.is_empty() {
        let list: Vec<String> = s.iter().map(u32::to_string).collect();
        declared = format!("{declared}({})", list.join(","));
    }
    let (mut unsigned, mut filled, mut characters) = (false, false, Characters::default());
    loop {
        if is_number(&name) && t.word("zerofill") {
            (filled, unsigned) = (true, true);
        } else if t.word("unsigned") {
            unsigned = true;
        } else if t.word("binary") {
            characters.binary();
        } else if !t.word("signed") && !characters.take(t)? {
            break;
        }
    }
    if unsigned {
        declared.push_str(" unsigned");
    }
    let is_national = matches!(name.as_str(), "nchar" | "nvarchar" | "national");
    let default = if is_national { Collation::Utf8mb3GeneralCi } else { default };
    let collation = characters.collation(default)?;
    let int = |bits| ColumnType::Int { bits, unsigned };
    let first = s.first().copied();
    let length = |default: u32, most: u32| -> Result<u16> {
        let n = first.unwrap_or(default);
        if n > most {
            let text = format!("Column length too big for column (max = {most}); use BLOB or TEXT instead");
            return Err(crate::wire::SqlError::new(1074, b"42000", text));
        }
        u16::try_from(n).map_err(|_| t.error())
    };
    let decimals = || first.unwrap_or(0).min(255) as u8;
    let text = |length| match collation {
        Collation::Binary => ColumnType::Blob { length },
        _ => ColumnType::Text { length, collation },
    };
    let blob = |length| ColumnType::Blob { length };
    const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
    let ty = match name.as_str() {
        "bool" | "boolean" => {
            declared = "tinyint(1)".into();
            int(8)
        }
        "tinyint" | "int1" => int(8),
        "smallint" | "int2" => int(16),
        "mediumint" | "int3" => int(24),
        "int" | "integer" | "int4" => int(32),
        "bigint" | "int8" => int(64),
        "serial" => ColumnType::Int { bits: 64, unsigned: true },
        "decimal" | "numeric" | "dec" | "fixed" => {
            let precision = first.unwrap_or(10).min(255) as u8;
            let scale = s.get(1).copied().unwrap_or(0).min(255) as u8;
            ColumnType::Decimal { precision, scale, unsigned }
        }
        "float" if first.is_some_and(|p| p > 24) && s.len() == 1 => ColumnType::Double,
        "float" | "float4" => ColumnType::Float,
        "double" | "real" | "float8" => ColumnType::Double,
        "char" | "character" if varying && collation == Collation::Binary => {
            ColumnType::VarBinary { length: length(1, 65_535)? }
        }
        "char" | "character" if varying => ColumnType::VarChar { length: length(1, 65_535)?, collation },
        "char" | "character" | "nchar" if collation == Collation::Binary => {
            ColumnType::Binary { length: length(1, 255)? }
        }
        "char" | "character" | "nchar" => ColumnType::Char { length: length(1, 255)?, collation },
        "varchar" | "nvarchar" | "national" if collation == Collation::Binary => {
            ColumnType::VarBinary { length: length(1, 65_535)? }
        }
        "varchar" | "nvarchar" | "national" => ColumnType::VarChar { length: length(1, 65_535)?, collation },
        "binary" => ColumnType::Binary { length: length(1, 255)? },
        "varbinary" => ColumnType::VarBinary { length: length(1, 65_535)? },
        "tinytext" => text(255),
        "text" => text(first.unwrap_or(65_535).clamp(65_535, LONGEST)),
        "mediumtext" | "longtext" => text(if name == "longtext" { LONGEST } else { LONGEST - 1 }),
        "tinyblob" => blob(255),
        "blob" => blob(65_535),
        "mediumblob" => blob(LONGEST - 1),
        "longblob" => blob(LONGEST),
        "date" => ColumnType::Date,
        "datetime" => ColumnType::DateTime { decimals: decimals() },
        "timestamp" => ColumnType::Timestamp { decimals: decimals() },
        "time" => ColumnType::Time { decimals: decimals() },
        "year" => ColumnType::Year,
        "geometry" | "point" | "linestring" | "polygon" => {
            return Err(errors::not_supported(&format!("type {}", name.to_uppercase())));
        }
        _ => return Err(errors::syntax(&name)),
    };
    Ok((ty, if filled { number_format::filled(ty, &s) } else { declared }))
}

/// Whether the name is one of a type that may have ZEROFILL.
fn is_number(name: &str) -> bool {
    const NAMES: &str = " tinyint smallint mediumint int integer bigint int1 int2 int3 int4 int8 decimal numeric dec fixed \
        float float4 float8 double real year ";
    NAMES.split_ascii_whitespace().any(|known| known == name)
}

pub fn set_collation(c: &mut Column, to: Collation) -> Result<()> {
    if c.ty == ColumnType::Json {
        let text = format!("COLLATION '{}' is not valid for CHARACTER SET 'binary'", to.name());
        return Err(crate::wire::SqlError::new(1253, b"42000", text));
    }
    match &mut c.ty {
        ColumnType::Char { collation, .. }
        | ColumnType::VarChar { collation, .. }
        | ColumnType::Text { collation, .. }
        | ColumnType::Label { collation, .. } => *collation = to,
        _ => {}
    }
    Ok(())
}

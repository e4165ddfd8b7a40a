//! What a client is told of the columns of SHOW and EXPLAIN: MySQL's types, where they are not VARCHAR.

use super::{Rows, filter::Filter};
use crate::{
    errors::Result,
    server::Output,
    session::Session,
    wire::{ColumnDef, ColumnType, column_flag},
};

/// Headings that are told by name, with the type where it is not VARCHAR.
pub type Headings = &'static [(&'static str, Told)];

/// Answers with those of the rows that the filter lets through.
///
/// # Errors
/// The filter names another column.
pub fn answer(
    session: &mut Session,
    out: &mut Output<'_>,
    headings: Headings,
    mut rows: Rows,
    filter: &Filter,
) -> Result<()> {
    let names: Vec<&str> = headings.iter().map(|(name, _)| *name).collect();
    filter.apply(&names, &mut rows)?;
    let defs: Vec<ColumnDef> = headings.iter().map(|(name, told)| def_of(*told, name)).collect();
    out.begin_rows(&defs);
    for row in &rows {
        out.row_start();
        row.iter().for_each(|cell| match cell {
            Some(cell) => out.bytes(cell.as_bytes()),
            None => out.null(),
        });
        out.row_end();
    }
    (session.env.row_count, session.env.found_rows) = (-1, rows.len() as u64);
    out.end_rows(session.warning_count(), session.status());
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Text,
    LongText,
    Enum,
    Set,
    Int,
    UInt,
    BigInt,
    BigUInt,
    Double,
    Timestamp,
    /// A TIMESTAMP with two digits of its second.
    Hundredths,
    DateTime,
    Nothing,
}

/// Columns by the name that begins the heading they stand in.
const TOLD: &[(&str, &[(&str, Told)])] = &[
    (
        "Field",
        &[("Type", Told::LongText), ("Key", Told::Enum), ("Default", Told::LongText), ("Comment", Told::LongText)],
    ),
    ("Tables_in_", &[("Table_type", Told::Enum)]),
    ("@@session.error_count", &[("@@session.error_count", Told::BigUInt)]),
    ("@@session.warning_count", &[("@@session.warning_count", Told::BigUInt)]),
    ("Level", &[("Code", Told::UInt)]),
    (
        "Table",
        &[
            ("Non_unique", Told::Int),
            ("Seq_in_index", Told::UInt),
            ("Cardinality", Told::BigInt),
            ("Sub_part", Told::BigInt),
            ("Packed", Told::Nothing),
            ("Expression", Told::LongText),
            ("Msg_text", Told::LongText),
        ],
    ),
    (
        "Name",
        &[
            ("Version", Told::Int),
            ("Row_format", Told::Enum),
            ("Rows", Told::BigUInt),
            ("Avg_row_length", Told::BigUInt),
            ("Data_length", Told::BigUInt),
            ("Max_data_length", Told::BigUInt),
            ("Index_length", Told::BigUInt),
            ("Data_free", Told::BigUInt),
            ("Auto_increment", Told::BigUInt),
            ("Create_time", Told::Timestamp),
            ("Update_time", Told::DateTime),
            ("Check_time", Told::DateTime),
            ("Checksum", Told::BigInt),
            ("Comment", Told::LongText),
        ],
    ),
    ("Id", &[("Id", Told::BigInt), ("Time", Told::Int)]),
    ("Collation", &[("Id", Told::BigUInt), ("Sortlen", Told::UInt), ("Pad_attribute", Told::Enum)]),
    ("Charset", &[("Maxlen", Told::UInt)]),
    ("Database", &[("In_use", Told::BigInt), ("Name_locked", Told::BigInt)]),
    (
        "id",
        &[("id", Told::BigUInt), ("partitions", Told::LongText), ("rows", Told::BigUInt), ("filtered", Told::Double)],
    ),
];

/// Longest text in bytes, as a client is told.
const TEXT_BYTES: u32 = 1024;

fn told(first: &str, name: &str) -> Told {
    let columns =
        TOLD.iter().filter(|(heading, _)| first == *heading || heading.ends_with('_') && first.starts_with(heading));
    let found = columns.flat_map(|(_, columns)| *columns).find(|(known, _)| *known == name);
    found.map_or(Told::Text, |(_, told)| *told)
}

/// Whether the cells of a column are numbers.
pub fn is_number(first: &str, name: &str) -> bool {
    matches!(told(first, name), Told::Int | Told::UInt | Told::BigInt | Told::BigUInt)
}

pub fn def(first: &str, name: &str) -> ColumnDef {
    def_of(told(first, name), name)
}

pub fn def_of(told: Told, name: &str) -> ColumnDef {
    let (ty, length) = match told {
        Told::Text => (ColumnType::VarString, TEXT_BYTES),
        Told::Enum | Told::Set => (ColumnType::String, TEXT_BYTES),
        Told::LongText => (ColumnType::Blob, u32::MAX),
        Told::Int | Told::UInt => (ColumnType::Long, 11),
        Told::BigInt | Told::BigUInt => (ColumnType::LongLong, 20),
        Told::Double => (ColumnType::Double, 22),
        Told::Timestamp => (ColumnType::Timestamp, 19),
        Told::Hundredths => (ColumnType::Timestamp, 22),
        Told::DateTime => (ColumnType::DateTime, 19),
        Told::Nothing => (ColumnType::Null, 0),
    };
    let mut def = ColumnDef::expression(name, ty, length);
    match told {
        Told::LongText => {
            def.charset = ColumnDef::expression("", ColumnType::VarString, 0).charset;
            def.flags = column_flag::BLOB;
        }
        Told::Enum => def.flags |= column_flag::ENUM,
        Told::Set => def.flags |= column_flag::SET,
        Told::Hundredths => def.decimals = 2,
        Told::UInt | Told::BigUInt => def.flags |= column_flag::UNSIGNED,
        _ => {}
    }
    def
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_told_by_the_heading_that_it_stands_in() {
        assert_eq!(told("Field", "Type"), Told::LongText);
        assert_eq!(told("Name", "Type"), Told::Text);
        assert_eq!(told("Tables_in_d (x)", "Table_type"), Told::Enum);
        assert_eq!(told("Tables_in_Table_type", "x"), Told::Text);
        assert!(is_number("Id", "Id") && is_number("Collation", "Id") && !is_number("Name", "Id"));
    }
}

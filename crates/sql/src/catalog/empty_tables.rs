//! Tables of MySQL's virtual databases that have few rows here, or never one. Tools ask them whether there is something to be told, and nothing is an answer; an unknown table would be an error.
//!
//! Of PERFORMANCE_SCHEMA these are the tables that are empty in a MySQL in which it is OFF: `setup_consumers` says what is collected here. Of INFORMATION_SCHEMA they tell of parts of InnoDB, of plans and profiles that
//! nobody asked for, and of objects that nobody can make. `empty_tables.tsv` has their columns; `tests/reference/empty_tables.py` asks MySQL for them.

use std::{collections::BTreeMap, sync::OnceLock};

use apus_types::{Column, ColumnType, TableSchema, collate::Collation};

use super::information_schema::virtual_schema;
use crate::value::enum_set;

const COLUMNS: &str = include_str!("empty_tables.tsv");

/// By name, those of one database.
pub(super) fn of(database: &str) -> &'static BTreeMap<&'static str, TableSchema> {
    static TABLES: OnceLock<[BTreeMap<&'static str, TableSchema>; 3]> = OnceLock::new();
    let databases = [super::information_schema::DATABASE, super::performance_schema::DATABASE, super::sys::DATABASE];
    let all = TABLES.get_or_init(|| databases.map(read));
    &all[databases.iter().position(|known| *known == database).unwrap_or(0)]
}

fn read(database: &'static str) -> BTreeMap<&'static str, TableSchema> {
    let mut columns: BTreeMap<&'static str, Vec<Column>> = BTreeMap::new();
    for line in COLUMNS.lines() {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().unwrap_or_default();
        let (of, table, name, ty, nullable) = (cell(), cell(), cell(), cell(), cell());
        if of == database {
            let column = Column { nullable: nullable == "YES", ..Column::new(name, column_type(name, ty)) };
            columns.entry(table).or_default().push(column);
        }
    }
    columns.into_iter().map(|(table, columns)| (table, virtual_schema(database, table, columns))).collect()
}

/// A type as MySQL writes it.
fn column_type(column: &str, text: &str) -> ColumnType {
    let collation = Collation::default();
    let (name, rest) = text.split_at(text.find(['(', ' ']).unwrap_or(text.len()));
    let argument = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(inner, _)| inner);
    let numbers: Vec<u16> = argument.split(',').filter_map(|n| n.parse().ok()).collect();
    let first = numbers.first().copied().unwrap_or_default();
    let decimals = u8::try_from(first).unwrap_or_default();
    let unsigned = rest.ends_with("unsigned");
    let int = |bits| ColumnType::Int { bits, unsigned };
    match name {
        "tinyint" => int(8),
        "smallint" => int(16),
        "mediumint" => int(24),
        "int" => int(32),
        "bigint" => int(64),
        "float" => ColumnType::Float,
        "double" => ColumnType::Double,
        "decimal" => {
            let scale = numbers.get(1).map_or(0, |n| u8::try_from(*n).unwrap_or_default());
            ColumnType::Decimal { precision: decimals, scale, unsigned }
        }
        "char" => ColumnType::Char { length: first, collation },
        "varchar" => ColumnType::VarChar { length: first, collation },
        "varbinary" => ColumnType::VarBinary { length: first },
        "longblob" => ColumnType::Blob { length: u32::MAX },
        "date" => ColumnType::Date,
        "datetime" => ColumnType::DateTime { decimals },
        "time" => ColumnType::Time { decimals },
        "timestamp" => ColumnType::Timestamp { decimals },
        "json" => ColumnType::Json,
        "enum" | "set" => {
            let labels = argument.split(',').map(|label| label.trim_matches('\'').to_owned()).collect();
            let text = ColumnType::VarChar { length: 255, collation };
            enum_set::define(column, name == "set", collation, labels).unwrap_or(text)
        }
        _ => ColumnType::Text { length: u32::MAX, collation },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{information_schema, performance_schema};

    #[test]
    fn all_columns_have_a_type_that_is_known() {
        let types: Vec<&str> = COLUMNS.lines().filter_map(|line| line.split('\t').nth(3)).collect();
        for ty in types {
            let is_text = matches!(column_type("c", ty), ColumnType::Text { .. });
            assert_eq!(is_text, ty.ends_with("text"), "{ty}");
        }
        let trx = column_type("c", "enum('A, B','C')");
        assert!(matches!(trx, ColumnType::Label { is_set: false, .. }));
    }

    #[test]
    fn no_table_is_there_twice() {
        for (database, others) in [
            (information_schema::DATABASE, information_schema::names().collect::<Vec<_>>()),
            (performance_schema::DATABASE, performance_schema::names().collect()),
        ] {
            assert!(of(database).len() >= 30, "{database}");
            for name in of(database).keys() {
                assert_eq!(others.iter().filter(|other| *other == name).count(), 1, "{database}.{name}");
            }
        }
    }
}

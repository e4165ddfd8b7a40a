//! What EXPLAIN's rows say of keys: their names, and how many bytes of one are used, as MySQL stores them.

use apus_types::{Column, ColumnType, IndexNo, schema::IndexDef};

use crate::{catalog::Table, plan::access::Path};

/// The name of an index of a table.
pub fn name(table: &Table, no: IndexNo) -> String {
    let name = table.key_name(no.0);
    name.rsplit_once('.').map_or(name.clone(), |(_, key)| key.to_owned())
}

/// The names of several, in the order of their numbers.
pub fn names(table: &Table, list: &[IndexNo]) -> Option<String> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list.dedup();
    let names: Vec<String> = list.iter().map(|no| name(table, *no)).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Bytes of the parts of a key that a path goes by; of an index that is read as a whole all of them.
pub fn length(table: &Table, path: &Path) -> u32 {
    let (no, columns, used) = match path {
        Path::Points { index, columns, .. } => {
            let no = index.and_then(|at| table.schema.indexes.get(at)).map_or(IndexNo(0), |i| i.no);
            (no, columns, columns.len())
        }
        Path::Range { index, columns, equal, low, high, .. } => {
            let bounded = equal.len() + usize::from(low.is_some() || high.is_some());
            (*index, columns, if bounded == 0 { columns.len() } else { bounded })
        }
        Path::Union { index, columns, .. } => (*index, columns, 1),
        Path::Listed(listed) => {
            let index = &table.schema.indexes[listed.index];
            (index.no, &index.columns, listed.parts())
        }
    };
    let index = table.schema.index(no);
    let part = |(at, column): (usize, &u16)| {
        // Of a list, of one of its elements.
        let list = table.rules().ok().flatten().and_then(|rules| rules.computed(*column)?.list.as_ref());
        if let Some(keys) = list {
            return bytes(&Column::new("", keys.ty), None);
        }
        let column = &table.schema.columns[usize::from(*column)];
        bytes(column, index.and_then(|index: &IndexDef| index.prefix(at)))
    };
    columns.iter().take(used).enumerate().map(part).sum()
}

/// Of one column, or of so many characters of it.
fn bytes(column: &Column, prefix: Option<usize>) -> u32 {
    let of_characters = |length: u32, width: u8| {
        let length = prefix.map_or(length, |prefix| length.min(u32::try_from(prefix).unwrap_or(u32::MAX)));
        length.saturating_mul(u32::from(width))
    };
    let of_fraction = |decimals: u8| u32::from(decimals).div_ceil(2);
    let own = match column.ty {
        ColumnType::Int { bits, .. } | ColumnType::Label { bits, .. } => u32::from(bits) / 8,
        ColumnType::Decimal { precision, scale, .. } => digits(precision - scale) + digits(scale),
        ColumnType::Float => 4,
        ColumnType::Double => 8,
        ColumnType::Char { length, collation } => {
            of_characters(u32::from(length), collation.charset().bytes_of_character())
        }
        ColumnType::VarChar { length, collation } => {
            of_characters(u32::from(length), collation.charset().bytes_of_character()) + 2
        }
        ColumnType::Text { length, collation } => of_characters(length, collation.charset().bytes_of_character()) + 2,
        ColumnType::Binary { length } => of_characters(u32::from(length), 1),
        ColumnType::VarBinary { length } => of_characters(u32::from(length), 1) + 2,
        ColumnType::Blob { length } => of_characters(length, 1).saturating_add(2),
        ColumnType::Json => 0,
        ColumnType::Date => 3,
        ColumnType::DateTime { decimals } => 5 + of_fraction(decimals),
        ColumnType::Timestamp { decimals } => 4 + of_fraction(decimals),
        ColumnType::Time { decimals } => 3 + of_fraction(decimals),
        ColumnType::Year => 1,
        ColumnType::Bit { length } => u32::from(length).div_ceil(8),
    };
    own + u32::from(column.nullable)
}

/// Bytes of so many decimal digits: four for nine of them.
fn digits(count: u8) -> u32 {
    let rest = [0, 1, 1, 2, 2, 3, 3, 4, 4][usize::from(count % 9)];
    u32::from(count / 9) * 4 + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_types::collate::Collation;

    #[test]
    fn keys_have_mysql_s_lengths() {
        let collation = Collation::Utf8mb4GeneralCi;
        for (ty, prefix, nullable, want) in [
            (ColumnType::Int { bits: 24, unsigned: true }, None, false, 3),
            (ColumnType::Int { bits: 64, unsigned: true }, None, true, 9),
            (ColumnType::Decimal { precision: 10, scale: 2, unsigned: false }, None, true, 6),
            (ColumnType::Decimal { precision: 38, scale: 30, unsigned: false }, None, false, 18),
            (ColumnType::VarChar { length: 10, collation }, None, true, 43),
            (ColumnType::VarChar { length: 10, collation }, Some(3), true, 15),
            (ColumnType::Char { length: 5, collation }, None, true, 21),
            (ColumnType::VarBinary { length: 8 }, None, true, 11),
            (ColumnType::Binary { length: 4 }, None, true, 5),
            (ColumnType::Blob { length: 65_535 }, Some(7), false, 9),
            (ColumnType::DateTime { decimals: 3 }, None, true, 8),
            (ColumnType::Timestamp { decimals: 0 }, None, true, 5),
            (ColumnType::Time { decimals: 6 }, None, true, 7),
            (ColumnType::Date, None, true, 4),
            (ColumnType::Year, None, true, 2),
            (ColumnType::Bit { length: 10 }, None, true, 3),
            (ColumnType::Float, None, true, 5),
        ] {
            let column = Column { nullable, ..Column::new("c", ty) };
            assert_eq!(bytes(&column, prefix), want, "{ty:?}");
        }
    }
}

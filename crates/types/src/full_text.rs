//! FULLTEXT indexes: which columns MATCH ... AGAINST may search together.
//!
//! They are definitions only. Nothing is kept for them in the data nodes, and SQL nodes read the rows for each search (docs/internals/full-text.md), so they come and go by one
//! change of the dictionary, and rows are written as if there were none.

use crate::{ErrorCode, TableSchema, form::Source};

#[derive(Clone, PartialEq, Debug)]
pub struct FullText {
    pub name: String,
    /// Column numbers.
    pub columns: Vec<u16>,
    pub comment: String,
    /// MATCH does as if it were not there.
    pub invisible: bool,
}

/// Those that are left where columns come from `from`: columns that go are taken out, an index without any goes.
#[must_use]
pub fn moved(list: &[FullText], from: &[Source]) -> Vec<FullText> {
    let now = |old: &u16| from.iter().position(|source| *source == Source::Kept(*old)).map(|at| at as u16);
    let moved =
        list.iter().map(|index| FullText { columns: index.columns.iter().filter_map(now).collect(), ..index.clone() });
    moved.filter(|index| !index.columns.is_empty()).collect()
}

impl TableSchema {
    /// # Errors
    /// A column is named twice, is no text, or is not there.
    pub(crate) fn validate_full_texts(&self) -> Result<(), (ErrorCode, String)> {
        for index in &self.full_texts {
            self.validate_key(&index.name, &index.columns)?;
            if let Some(&other) = index.columns.iter().find(|&&c| self.columns[usize::from(c)].ty.collation().is_none())
            {
                let text = format!("column '{}' is no text to be searched", self.columns[usize::from(other)].name);
                return Err((ErrorCode::InvalidSchema, text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, ColumnType, collate::Collation};

    fn table() -> TableSchema {
        let text =
            |name: &str| Column::new(name, ColumnType::VarChar { length: 9, collation: Collation::Utf8mb4GeneralCi });
        let id = Column { nullable: false, ..Column::new("id", ColumnType::Int { bits: 32, unsigned: false }) };
        let mut table = TableSchema::new("d", "t", vec![id, text("a"), text("b")], vec![0]);
        let index = |name: &str, columns: &[u16]| FullText {
            name: name.to_owned(),
            columns: columns.to_vec(),
            comment: String::new(),
            invisible: false,
        };
        table.full_texts = vec![index("both", &[2, 1]), index("one", &[1])];
        table
    }

    #[test]
    fn indexes_follow_their_columns_and_go_with_the_last_one() {
        let mut table = table();
        let columns = vec![table.columns[2].clone(), table.columns[0].clone()];
        table.change_columns(columns, vec![Source::Kept(2), Source::Kept(0)]).unwrap();
        let left: Vec<(&str, &[u16])> =
            table.full_texts.iter().map(|i| (i.name.as_str(), i.columns.as_slice())).collect();
        assert_eq!(left, [("both", &[0][..])]);
        table.validate().unwrap();
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for columns in [&[0][..], &[1, 1], &[3], &[]] {
            let mut table = table();
            table.full_texts[0].columns = columns.to_vec();
            assert_eq!(table.validate().unwrap_err().0, ErrorCode::InvalidSchema, "{columns:?}");
        }
    }
}

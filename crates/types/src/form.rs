//! Forms of a table's rows: the lists of columns with which they were written.
//!
//! A change of the columns makes a new form and touches no row. Rows of older forms stay until they are written again, and are read by what the change
//! left behind: for each column of today its place in the old row, or what a row that never had it has ([`Source`]). So adding, dropping, renaming and
//! reordering columns takes as long as a change of the dictionary, whatever the table's size (MySQL's ALGORITHM=INSTANT). A change that would alter the stored
//! bytes of a column is no such change ([`same_bytes`]).
//!
//! Limit: a row has one byte for its form, so a table that is not written anew has [`FORMS_MAX`] changes of its columns in its life.

use crate::schema::{Column, ColumnType};

/// Highest number of a form; the first is 0. As InnoDB's limit of row versions.
pub const FORMS_MAX: u8 = u8::MAX;

/// Where a column of today comes from in rows of an older form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The column with this number in that form, whose stored bytes are the same.
    Kept(u16),
    /// The stored bytes of the default that it was added with.
    Given(Vec<u8>),
    Null,
}

/// A form that rows of a table may still have.
#[derive(Clone, PartialEq, Debug)]
pub struct OlderForm {
    pub number: u8,
    pub types: Vec<ColumnType>,
    /// Of each column of today.
    pub sources: Vec<Source>,
}

impl OlderForm {
    /// It says of each of these columns what rows have there.
    pub(crate) fn fits(&self, columns: &[Column]) -> bool {
        let is_right = |(column, source): (&Column, &Source)| match source {
            Source::Kept(at) => self.types.get(usize::from(*at)).is_some_and(|ty| same_bytes(*ty, column.ty)),
            Source::Given(bytes) => column.ty.fixed_bytes().is_none_or(|width| width == bytes.len()),
            Source::Null => true,
        };
        self.sources.len() == columns.len() && columns.iter().zip(&self.sources).all(is_right)
    }
    /// The same rows after the next change: `from` has for each column of then where it was before the change.
    fn after(&self, from: &[Source]) -> OlderForm {
        let through = |source: &Source| match source {
            Source::Kept(at) => self.sources.get(usize::from(*at)).cloned().unwrap_or(Source::Null),
            other => other.clone(),
        };
        OlderForm { sources: from.iter().map(through).collect(), ..self.clone() }
    }
}

/// The older forms after a change from the form `number` with these columns; `from`: where each new column was.
pub fn change(older: &[OlderForm], number: u8, types: Vec<ColumnType>, from: &[Source]) -> Vec<OlderForm> {
    let last = OlderForm { number, types, sources: from.to_vec() };
    older.iter().map(|form| form.after(from)).chain([last]).collect()
}

/// A value of `from` is stored as the equal value of `to` is, whatever it is.
pub fn same_bytes(from: ColumnType, to: ColumnType) -> bool {
    use ColumnType::{Blob, Char, Decimal, Text, VarBinary, VarChar};
    match (from.stored(), to.stored()) {
        (Decimal { scale, .. }, Decimal { scale: new, .. }) => scale == new,
        (VarChar { .. } | Text { .. }, VarChar { .. } | Text { .. }) | (Char { .. }, Char { .. }) => true,
        (VarBinary { .. } | Blob { .. }, VarBinary { .. } | Blob { .. }) => true,
        (from, to) => from == to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schema::TableSchema, value::Value};

    const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };
    const BYTES: ColumnType = ColumnType::VarBinary { length: 20 };

    fn column(name: &str, ty: ColumnType) -> Column {
        Column { nullable: name != "id", ..Column::new(name, ty) }
    }
    fn table() -> TableSchema {
        let columns = vec![column("id", INT), column("a", BYTES), column("b", INT), column("c", BYTES)];
        TableSchema::new("d", "t", columns, vec![0])
    }
    fn row(table: &TableSchema, values: &[Value<'_>]) -> Vec<u8> {
        let mut row = Vec::new();
        table.layout().encode(values, &mut row).unwrap();
        table.layout().check(&row).unwrap();
        row
    }
    fn values<'r>(table: &'r TableSchema, row: &'r [u8]) -> Vec<Value<'r>> {
        (0..table.columns.len() as u16).map(|i| table.layout().value(row, i)).collect()
    }

    #[test]
    fn rows_of_all_forms_are_read_with_the_columns_of_today() {
        let mut t = table();
        let first = row(&t, &[Value::Int(1), Value::Bytes(b"one"), Value::Null, Value::Bytes(b"eins")]);
        // `a` goes, `d` comes with a default, `e` without, and the key stands last.
        let columns =
            vec![column("d", BYTES), column("e", INT), column("c", BYTES), column("b", INT), column("id", INT)];
        let from =
            vec![Source::Given(b"dee".to_vec()), Source::Null, Source::Kept(3), Source::Kept(2), Source::Kept(0)];
        t.change_columns(columns, from).unwrap();
        t.validate().unwrap();
        assert_eq!((t.primary_key.as_slice(), t.form), (&[4][..], 1));
        let today = [Value::Bytes(b"dee"), Value::Null, Value::Bytes(b"eins"), Value::Null, Value::Int(1)];
        assert_eq!(values(&t, &first), today);
        let second = row(&t, &[Value::Null, Value::Int(7), Value::Bytes(b"zwei"), Value::Int(8), Value::Int(2)]);
        // `d` goes again and `a` comes back, which has nothing to do with the one before.
        let columns =
            vec![column("id", INT), column("a", BYTES), column("e", INT), column("c", BYTES), column("b", INT)];
        let from = vec![Source::Kept(4), Source::Null, Source::Kept(1), Source::Kept(2), Source::Kept(3)];
        t.change_columns(columns, from).unwrap();
        t.validate().unwrap();
        assert_eq!(values(&t, &first), [Value::Int(1), Value::Null, Value::Null, Value::Bytes(b"eins"), Value::Null]);
        let of_second = [Value::Int(2), Value::Null, Value::Int(7), Value::Bytes(b"zwei"), Value::Int(8)];
        assert_eq!(values(&t, &second), of_second);
        for old in [&first, &second] {
            t.layout().check(old).unwrap();
            let (mut renewed, mut again) = (Vec::new(), Vec::new());
            t.layout().renew(old, &mut renewed);
            t.layout().check(&renewed).unwrap();
            assert!(t.layout().is_newest(&renewed) && !t.layout().is_newest(old));
            assert_eq!(values(&t, &renewed), values(&t, old));
            t.layout().renew(&renewed, &mut again);
            assert_eq!(again, renewed);
            let target = t.layout().project_layout(&[3, 0]).unwrap();
            let mut part = Vec::new();
            t.layout().project(old, &[3, 0], &target, &mut part);
            assert_eq!(target.value(&part, 1), values(&t, old)[0]);
        }
        let foreign = [&[9][..], &first[1..]].concat();
        assert!(t.layout().check(&foreign).is_err() && !t.layout().knows(&foreign));
        assert!(t.layout().is_null(&foreign, 0) && t.layout().raw(&foreign, 0).len() <= 4);
    }

    #[test]
    fn an_update_of_an_old_row_writes_it_anew() {
        let mut t = table();
        let old = row(&t, &[Value::Int(1), Value::Bytes(b"one"), Value::Int(2), Value::Null]);
        let columns = vec![column("id", INT), column("n", INT), column("b", INT)];
        let given = Source::Given(5i32.to_le_bytes().to_vec());
        t.change_columns(columns, vec![Source::Kept(0), given, Source::Kept(2)]).unwrap();
        let (mut program, mut out) = (Vec::new(), Vec::new());
        crate::update::push_add(&mut program, 1, 3);
        assert!(crate::update::apply(&t, &old, &program, &mut out).unwrap());
        assert_eq!(values(&t, &out), [Value::Int(1), Value::Int(8), Value::Int(2)]);
        program.clear();
        crate::update::push_add(&mut program, 1, 0);
        assert!(!crate::update::apply(&t, &old, &program, &mut out).unwrap(), "it has what it had");
    }

    #[test]
    fn what_would_alter_stored_bytes_or_keys_is_refused() {
        let mut t = table();
        let wide = ColumnType::Int { bits: 64, unsigned: false };
        let keeps = |n: u16| (0..n).map(Source::Kept).collect::<Vec<_>>();
        let mut columns = t.columns.clone();
        columns[2].ty = wide;
        assert!(t.change_columns(columns.clone(), keeps(4)).is_err());
        assert!(t.change_columns(t.columns[1..].to_vec(), (1..4).map(Source::Kept).collect()).is_err(), "the key goes");
        assert!(t.change_columns(t.columns.clone(), keeps(3)).is_err());
        columns = t.columns.clone();
        columns[1].ty = ColumnType::VarBinary { length: 200 };
        columns[1].name = "long".to_owned();
        t.change_columns(columns, keeps(4)).unwrap();
        assert_eq!((t.form, t.older.len()), (0, 0), "rows are as they were");
        for _ in 0..FORMS_MAX {
            let from = [1, 0, 2, 3].map(Source::Kept).to_vec();
            t.change_columns(
                from.iter()
                    .map(|s| match s {
                        Source::Kept(at) => t.columns[usize::from(*at)].clone(),
                        _ => unreachable!("all are kept"),
                    })
                    .collect(),
                from,
            )
            .unwrap();
        }
        assert!(t.change_columns(t.columns.clone(), [1, 0, 2, 3].map(Source::Kept).to_vec()).is_err());
    }
}

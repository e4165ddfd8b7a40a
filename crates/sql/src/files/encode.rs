//! Rows as SELECT ... INTO OUTFILE writes them, byte for byte as MySQL does.
//!
//! A value is written in the character set of its column, or in that of the statement; what that has not is `?`, with warning 1366. Then the escape character
//! goes before each byte of a text that LOAD DATA with the same clauses would take for something else: itself, the encloser or, where the value is not enclosed, the first byte of the separator, the first byte of
//! the end of a line, and 0, which becomes the digit. Bytes within a character of several are left alone.
//!
//! Separators that are letters or digits make two cases of their own. One that an escape character gives a meaning (`n`, `t`, ...) is doubled, not escaped. One that stands in numbers, which are not
//! enclosed, cannot be read again: warning 1475, and it is not escaped at all.
//!
//! Without separator and encloser each value takes as many bytes as its column has at most, filled with blanks, unless there is a column of 16 MiB or more.

use std::borrow::Cow;

use apus_types::{ColumnType, TableSchema, collate::Charset};

use super::format::{Format, has_long_characters, is_character, length};
use crate::{
    errors,
    expr::{Kind, result_cells},
    plan::{select::Output, shape::Shape},
    value::number_format::Face,
    wire::{SqlError, characters},
};

/// A column that may have as many bytes has no fixed width.
const FIXED_BYTES_MAX: u64 = 1 << 24;
/// Bytes that an escape character makes something else of.
const ESCAPED: &[u8] = b"ntrb0ZN";
/// Bytes that numbers are made of.
const NUMERIC: &[u8] = b".0123456789e+-";

/// What the values of a column are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Texts, and what is written like one; outside they are in this character set.
    Text(Charset),
    Bytes,
    Number,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub values: Values,
    /// Most bytes of a value.
    pub width: u64,
}

impl Column {
    pub fn of(output: &Output) -> Column {
        let ty = output.shape.ty;
        let values = match (output.kind, ty) {
            (_, ColumnType::Bit { .. }) | (Kind::Bytes | Kind::Bit(_), _) => Values::Bytes,
            (Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double, _) => Values::Number,
            (Kind::Text | Kind::Label, _) => {
                Values::Text(ty.collation().map_or(Charset::Utf8mb4, |collation| collation.charset()))
            }
            (Kind::Null | Kind::Json | Kind::Date | Kind::DateTime(_) | Kind::Time(_), _) => {
                Values::Text(Charset::Utf8mb4)
            }
        };
        let width = if output.kind == Kind::Null { 0 } else { width(output.shape, u64::from(output.def.length)) };
        Column { name: output.def.name.clone(), values, width }
    }
}

/// Most bytes of a column of a table in a row of fixed lengths.
pub fn width_of_column(schema: &TableSchema, column: u16) -> u64 {
    let (told, column) = (result_cells::column_def(schema, column).length, &schema.columns[usize::from(column)]);
    width(Shape { ty: column.ty, nullable: column.nullable, face: Face::of(column) }, told.into())
}

/// As MySQL has the length of a column of this type; `told`: what its client is told.
fn width(shape: Shape, told: u64) -> u64 {
    if let (Some(face), ColumnType::Float | ColumnType::Double | ColumnType::Decimal { .. }) = (shape.face, shape.ty) {
        return u64::from(face.width);
    }
    let of_characters =
        |count: u64| count * u64::from(shape.ty.collation().map_or(4, |c| c.charset().bytes_of_character()));
    match shape.ty {
        ColumnType::Int { bits, unsigned } => match (bits, unsigned) {
            (8, false) => 4,
            (8, true) => 3,
            (16, false) => 6,
            (16, true) => 5,
            (24, false) => 9,
            (24, true) => 8,
            (32, false) => 11,
            (32, true) => 10,
            _ => 20,
        },
        ColumnType::Decimal { precision, scale, unsigned } => {
            u64::from(precision) + u64::from(scale > 0) + u64::from(!unsigned)
        }
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => of_characters(u64::from(length)),
        ColumnType::Text { length, .. } => of_characters(u64::from(length)),
        ColumnType::Label { .. } => told / 4 * of_characters(1),
        _ => told,
    }
}

/// A value as DUMPFILE takes it.
pub fn dumped<'c>(column: &Column, value: Option<&'c [u8]>) -> Cow<'c, [u8]> {
    value.map_or(Cow::Borrowed(b"\0"), |value| written(column.values, None, value).0)
}

/// Makes lines of rows.
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    /// `None`: of each column.
    charset: Option<Charset>,
    columns: Vec<Column>,
    is_fixed: bool,
    /// The encloser, or else the first byte of the separator.
    separator: Option<u8>,
    /// It is doubled.
    is_doubled: bool,
    /// Numbers have it, so they are escaped like texts.
    is_in_numbers: bool,
    /// The separator is not escaped.
    pub is_ambiguous: bool,
}

impl Encoder {
    pub fn new(mut format: Format, charset: Option<Charset>, columns: Vec<Column>) -> Encoder {
        if format.line.is_empty() {
            format.line = format.terminated.clone();
        }
        if format.terminated.is_empty() {
            format.is_optional = false;
        }
        if format.enclosed.is_none() {
            format.is_optional = true;
        }
        let first = format.terminated.first().copied();
        let separator = format.enclosed.or(first);
        let is_one = |set: &[u8], b: Option<u8>| b.is_some_and(|b| set.contains(&b));
        let (is_doubled, is_in_numbers) = (is_one(ESCAPED, separator), is_one(NUMERIC, separator));
        let has_numbers = columns.iter().any(|c| c.values == Values::Number);
        let has_texts = columns.iter().any(|c| c.values != Values::Number);
        let is_ambiguous = is_doubled && format.enclosed.is_none() && (has_texts || is_in_numbers)
            || format.is_optional && has_numbers && is_one(NUMERIC, first);
        let is_wide = columns.iter().any(|c| c.width >= FIXED_BYTES_MAX);
        let is_fixed = first.is_none() && format.enclosed.is_none() && !is_wide;
        let charset = charset.filter(|charset| *charset != Charset::Binary);
        Encoder { format, charset, columns, is_fixed, separator, is_doubled, is_in_numbers, is_ambiguous }
    }

    /// Writes a row; `None` is NULL. `refused` gets warnings about row `row`.
    pub fn row<'c>(
        &self,
        cells: impl Iterator<Item = Option<&'c [u8]>>,
        row: u64,
        out: &mut Vec<u8>,
        refused: &mut Vec<SqlError>,
    ) {
        out.extend_from_slice(&self.format.starting);
        for (at, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            if at > 0 {
                out.extend_from_slice(&self.format.terminated);
            }
            match cell {
                None => self.null(column, out),
                Some(value) => self.value(column, value, row, out, refused),
            }
        }
        out.extend_from_slice(&self.format.line);
    }

    fn null(&self, column: &Column, out: &mut Vec<u8>) {
        match self.format.escaped {
            _ if self.is_fixed => fill(out, column.width),
            Some(escape) => out.extend_from_slice(&[escape, b'N']),
            None => out.extend_from_slice(b"NULL"),
        }
    }

    fn value(&self, column: &Column, value: &[u8], row: u64, out: &mut Vec<u8>, refused: &mut Vec<SqlError>) {
        let is_number = column.values == Values::Number;
        let enclosed = self.format.enclosed.filter(|_| !self.format.is_optional || !is_number);
        let (written, charset, wrong) = written(column.values, self.charset, value);
        if let Some(wrong) = wrong {
            refused.push(errors::incorrect_value("string", &printable(&wrong), &column.name, row as usize));
        }
        let length = if self.is_fixed { written.len().min(column.width as usize) } else { written.len() };
        out.extend(enclosed);
        match self.format.escaped {
            Some(escape) if !is_number || self.is_in_numbers => {
                self.escaped(&written[..length], charset, escape, enclosed.is_some(), out);
            }
            _ => out.extend_from_slice(&written[..length]),
        }
        if self.is_fixed {
            fill(out, column.width.saturating_sub(length as u64));
        }
        out.extend(enclosed);
    }

    fn escaped(&self, text: &[u8], charset: Charset, escape: u8, is_enclosed: bool, out: &mut Vec<u8>) {
        let (first, line) = (self.format.terminated.first().copied(), self.format.line.first().copied());
        let ends = if is_enclosed { self.separator } else { first };
        let is_long = has_long_characters(charset);
        let mut at = 0;
        while let Some(&b) = text.get(at) {
            if is_long && b >= 0x80 {
                let whole = text.get(at..at + length(charset, &text[at..])).filter(|c| is_character(charset, c));
                if let Some(character) = whole.filter(|c| c.len() > 1) {
                    out.extend_from_slice(character);
                    at += character.len();
                    continue;
                }
            }
            let is_special = b == escape || b == 0 || Some(b) == ends || Some(b) == line;
            if is_special && (is_enclosed || !self.is_ambiguous || Some(b) != first) {
                out.push(if self.is_doubled && Some(b) == self.separator { b } else { escape });
                out.push(if b == 0 { b'0' } else { b });
            } else {
                out.push(b);
            }
            at += 1;
        }
    }
}

fn fill(out: &mut Vec<u8>, count: u64) {
    out.resize(out.len() + count as usize, b' ');
}

/// A value as it is outside, in which character set that is, and what comes from where on it could not be written.
fn written(values: Values, charset: Option<Charset>, value: &[u8]) -> (Cow<'_, [u8]>, Charset, Option<Vec<u8>>) {
    const NONE: Charset = Charset::Binary;
    match (values, charset) {
        (Values::Number, _) | (Values::Bytes, None) => (Cow::Borrowed(value), NONE, None),
        (Values::Bytes, Some(to)) => {
            let end = well_formed(to, value);
            let wrong = (end < value.len()).then(|| value[end..].to_vec());
            (Cow::Borrowed(&value[..end]), to, wrong)
        }
        (Values::Text(own), None) => (characters::write(own, value), own, None),
        (Values::Text(own), Some(to)) => {
            let text = characters::write(to, value);
            let wrong = lost(to, value, &text).map(|at| characters::write(own, &value[at..]).into_owned());
            (text, to, wrong)
        }
    }
}

/// How many of these bytes are characters of a character set.
fn well_formed(charset: Charset, bytes: &[u8]) -> usize {
    if charset == Charset::Latin1 {
        return bytes.len();
    }
    if charset == Charset::Ascii {
        return bytes.iter().take_while(|b| b.is_ascii()).count();
    }
    let mut at = 0;
    while at < bytes.len() {
        let character = bytes.get(at..at + length(charset, &bytes[at..])).unwrap_or(&[]);
        if character.is_empty() || !is_character(charset, character) {
            break;
        }
        at += character.len();
    }
    at
}

/// Where the first character of a text is that became `?`.
fn lost(to: Charset, text: &[u8], written: &[u8]) -> Option<usize> {
    let marks = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'?').count();
    if text.is_ascii() || marks(text) == marks(written) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let is_lost = |c: char| c != '?' && *characters::write(to, c.encode_utf8(&mut [0; 4]).as_bytes()) == *b"?";
    text.char_indices().find(|(_, c)| is_lost(*c)).map(|(at, _)| at)
}

/// The first bytes of what is wrong with a text.
fn printable(bytes: &[u8]) -> String {
    let show =
        |b: &u8| if b.is_ascii_graphic() || *b == b' ' { char::from(*b).to_string() } else { format!("\\x{b:02X}") };
    bytes.iter().take(6).map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(change: impl FnOnce(&mut Format), columns: &[Values], cells: &[Option<&str>]) -> (String, bool) {
        let mut format = Format::default();
        change(&mut format);
        let columns = columns.iter().map(|values| Column { name: "c".to_owned(), values: *values, width: 5 }).collect();
        let encoder = Encoder::new(format, None, columns);
        let mut out = Vec::new();
        encoder.row(cells.iter().map(|c| c.map(str::as_bytes)), 1, &mut out, &mut Vec::new());
        (String::from_utf8(out).unwrap(), encoder.is_ambiguous)
    }

    const TEXT: Values = Values::Text(Charset::Utf8mb4);

    #[test]
    fn rows_are_written_as_mysql_does() {
        let of = |change: fn(&mut Format), columns: &[Values], cells: &[Option<&str>]| lines(change, columns, cells).0;
        assert_eq!(of(|_| {}, &[TEXT, TEXT], &[Some("a\tb\nc\\d\0"), None]), "a\\\tb\\\nc\\\\d\\0\t\\N\n");
        let quoted = |f: &mut Format| (f.enclosed, f.is_optional) = (Some(b'"'), true);
        assert_eq!(of(quoted, &[Values::Number, TEXT], &[Some("1.5"), Some("a\t\"")]), "1.5\t\"a\t\\\"\"\n");
        let raw = |f: &mut Format| (f.escaped, f.line) = (None, Vec::new());
        assert_eq!(of(raw, &[TEXT, TEXT], &[Some("a\\"), None]), "a\\\tNULL\t");
        let letters = |f: &mut Format| (f.terminated, f.enclosed) = (b"b".to_vec(), Some(b'n'));
        assert_eq!(of(letters, &[TEXT, TEXT], &[Some("a1b"), Some("n")]), "na1bnbnnnn\n");
        let itself = |f: &mut Format| (f.escaped, f.enclosed) = (Some(b'"'), Some(b'"'));
        assert_eq!(of(itself, &[TEXT, TEXT], &[Some("\"q\""), None]), "\"\"\"q\"\"\"\t\"N\n");
        let fixed = |f: &mut Format| f.terminated.clear();
        assert_eq!(of(fixed, &[TEXT, TEXT, TEXT], &[Some("a\n"), None, Some("abcdefg")]), "a\\\n        abcde\n");
    }

    #[test]
    fn separators_that_numbers_have_are_ambiguous() {
        let ones = |f: &mut Format| f.terminated = b"1".to_vec();
        assert_eq!(lines(ones, &[Values::Number, TEXT], &[Some("12"), Some("1")]), ("1211\n".to_owned(), true));
        let letter = |f: &mut Format| f.terminated = b"n".to_vec();
        assert!(lines(letter, &[TEXT], &[Some("n")]).1);
        assert!(!lines(letter, &[Values::Number], &[Some("1")]).1);
    }

    #[test]
    fn what_a_character_set_has_not_is_told() {
        let format = Format::default();
        let columns = vec![Column { name: "c".to_owned(), values: TEXT, width: 80 }];
        let encoder = Encoder::new(format, Some(Charset::Latin1), columns);
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        encoder.row([Some("é中?".as_bytes())].into_iter(), 3, &mut out, &mut refused);
        assert_eq!(out, b"\xe9??\n");
        assert_eq!(refused[0].message, "Incorrect string value: '\\xE4\\xB8\\xAD?' for column 'c' at row 3");
    }
}

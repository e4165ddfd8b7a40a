//! Parts of keys: columns with how much of them is in the key, and MySQL's rules about that.

use apus_types::{Column, IndexDef, IndexNo, TableSchema, collate::Collation, schema::ColumnType};

use super::full_text;
use crate::{
    errors::{self, Result},
    parse::{
        token::{self, Tokens},
        view_text::quoted,
    },
    plan::rules::functional,
    wire::SqlError,
};

/// MySQL's longest key, in bytes. Ours may be longer, but what MySQL refuses, a dump could not bring there.
const KEY_BYTES_MAX: usize = 3072;
/// Name of a primary key that has beginnings of columns: a unique index of a table whose rows have hidden keys.
pub const PRIMARY: &str = "PRIMARY";

/// The definition of a key or index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IndexClause {
    pub name: Option<String>,
    pub columns: Vec<String>,
    /// How many characters or bytes of each are in the key, 0 where that is not said.
    pub lengths: Vec<u32>,
    /// Places of those that are DESC.
    pub descending: Vec<u16>,
    /// Places of those that are expressions, with their texts; such a column has no name until it is made ([`crate::plan::rules::functional`]).
    pub expressions: Vec<(u16, String)>,
    /// The place of the expression that is an array, once it is known.
    pub list: Option<u16>,
    pub unique: bool,
    pub invisible: bool,
    pub full_text: bool,
    /// Kept of FULLTEXT indexes only.
    pub comment: String,
}

impl IndexClause {
    pub fn of(parts: KeyParts) -> IndexClause {
        let KeyParts { columns, lengths, descending, expressions } = parts;
        IndexClause { columns, lengths, descending, expressions, ..IndexClause::default() }
    }
}

/// What stands in the parentheses of a key.
#[derive(Default)]
pub struct KeyParts {
    pub columns: Vec<String>,
    /// How many characters or bytes of each, 0 where nothing is said.
    pub lengths: Vec<u32>,
    /// Places of those that are DESC.
    pub descending: Vec<u16>,
    /// Places of those that are expressions, with their texts.
    pub expressions: Vec<(u16, String)>,
}

/// `(a, b(10) DESC, (c + 1))`.
pub fn parse(t: &mut Tokens) -> Result<KeyParts> {
    t.expect_symbol('(')?;
    let mut parts = KeyParts::default();
    loop {
        let (column, length) = if t.peek_symbol('(') {
            parts.expressions.push((parts.columns.len() as u16, token::expression(t)?));
            (String::new(), 0)
        } else {
            column(t)?
        };
        parts.columns.push(column);
        parts.lengths.push(length);
        if t.word("desc") {
            parts.descending.push(parts.columns.len() as u16 - 1);
        } else {
            t.word("asc");
        }
        if !t.symbol(',') {
            break;
        }
    }
    t.expect_symbol(')')?;
    Ok(parts)
}

/// `b(10)`, 0 where no length is said.
fn column(t: &mut Tokens) -> Result<(String, u32)> {
    let column = t.identifier()?;
    if !t.symbol('(') {
        return Ok((column, 0));
    }
    let length = t.number()?.parse().map_err(|_| t.error())?;
    t.expect_symbol(')')?;
    if length == 0 {
        let text = format!("Key part '{column}' length cannot be 0");
        return Err(SqlError::new(1391, b"HY000", text));
    }
    Ok((column, length))
}

/// # Errors
/// 1280: the name is that of primary keys.
pub fn check_name(name: Option<&str>) -> Result<()> {
    match name.filter(|name| name.eq_ignore_ascii_case(PRIMARY)) {
        Some(name) => Err(SqlError::new(1280, b"42000", format!("Incorrect index name '{name}'"))),
        None => Ok(()),
    }
}

/// The given name, or the first column's with a number where that is taken.
pub fn index_name(table: &TableSchema, clause: &IndexClause) -> Result<String> {
    let taken =
        |name: &str| table.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(name)) || full_text::has(table, name);
    match &clause.name {
        Some(name) if taken(name) => Err(SqlError::new(1061, b"42000", format!("Duplicate key name '{name}'"))),
        Some(name) => Ok(name.clone()),
        None => {
            let is_functional = clause.columns.iter().any(|name| functional::is_name(name));
            let first =
                if is_functional { functional::NAME } else { clause.columns.first().map_or("", String::as_str) };
            let first = first.to_owned();
            let numbered = (2..).map(|n| format!("{first}_{n}"));
            Ok(std::iter::once(first.clone()).chain(numbered).find(|n| !taken(n)).unwrap_or(first))
        }
    }
}

/// Some column is there with its beginning, as it is written.
pub fn are_cut(lengths: &[u32]) -> bool {
    lengths.iter().any(|n| *n > 0)
}

/// What [`apus_types::IndexDef::prefixes`] is for these columns, once they are allowed. `list`: the place of one that has keys.
///
/// # Errors
/// 1060, 1071, 1089, 1170 and 3152, as MySQL has them.
pub fn prefixes(table: &TableSchema, columns: &[u16], lengths: &[u32], list: Option<u16>) -> Result<Vec<u32>> {
    let mut out = Vec::with_capacity(columns.len());
    let mut bytes = 0;
    for (at, &column) in columns.iter().enumerate() {
        let c = &table.columns[usize::from(column)];
        if columns[..at].contains(&column) {
            return Err(SqlError::new(1060, b"42S21", format!("Duplicate column name '{}'", c.name)));
        }
        if list == Some(at as u16) {
            out.push(0);
            continue;
        }
        let (length, long) = part(c, lengths.get(at).copied().unwrap_or(0))?;
        out.push(length);
        bytes += long;
    }
    if bytes > KEY_BYTES_MAX {
        return Err(too_long(KEY_BYTES_MAX));
    }
    Ok(if are_cut(&out) { out } else { Vec::new() })
}

/// The columns of a primary key as it is defined.
#[derive(Clone, Debug, Default)]
pub struct PrimaryKey {
    pub columns: Vec<String>,
    /// Places of columns with DESC.
    pub descending: Vec<u16>,
}

impl PrimaryKey {
    pub fn of_column(name: &str) -> PrimaryKey {
        PrimaryKey { columns: vec![name.to_owned()], descending: Vec::new() }
    }
}

fn too_long(most: usize) -> SqlError {
    SqlError::new(1071, b"42000", format!("Specified key was too long; max key length is {most} bytes"))
}

/// How much of a column is in the key, 0 for all, and how many bytes that may be.
fn part(c: &Column, asked: u32) -> Result<(u32, usize)> {
    let wide = |collation: Collation| usize::from(collation.charset().bytes_of_character());
    let (whole, width, must, most) = match c.ty {
        ColumnType::Json => return Err(errors::json_key(&c.name)),
        ColumnType::Char { length, collation } | ColumnType::VarChar { length, collation } => {
            (u32::from(length), wide(collation), false, usize::MAX)
        }
        ColumnType::Binary { length } | ColumnType::VarBinary { length } => (u32::from(length), 1, false, usize::MAX),
        ColumnType::Text { length, collation } => (u32::MAX, wide(collation), true, length as usize),
        ColumnType::Blob { length } => (u32::MAX, 1, true, length as usize),
        _ if asked > 0 => (0, 1, false, 0),
        ty => return Ok((0, ty.fixed_bytes().unwrap_or(0))),
    };
    if must && asked == 0 {
        let text = format!("BLOB/TEXT column '{}' used in key specification without a key length", c.name);
        return Err(SqlError::new(1170, b"42000", text));
    }
    if asked > whole {
        let text = "Incorrect prefix key; the used key part isn't a string, the used length is longer than the key part, or the storage engine doesn't \
             support unique prefix keys";
        return Err(SqlError::new(1089, b"HY000", text));
    }
    let length = if asked == 0 { whole } else { asked };
    let bytes = length as usize * width;
    if bytes > most.min(KEY_BYTES_MAX) {
        return Err(too_long(most.min(KEY_BYTES_MAX)));
    }
    Ok((if asked == whole { 0 } else { asked }, bytes))
}

/// `` `a`,`b` ``, as SHOW CREATE TABLE writes them.
pub fn names(table: &TableSchema, columns: &[u16]) -> String {
    columns.iter().map(|&c| quoted(&table.columns[usize::from(c)].name)).collect::<Vec<_>>().join(",")
}

/// `` `a`,`b` DESC ``: the primary key.
pub fn written_primary(table: &TableSchema) -> String {
    let one = |(at, &column): (usize, &u16)| {
        let direction = if table.descends(IndexNo(0), at) { " DESC" } else { "" };
        quoted(&table.columns[usize::from(column)].name) + direction
    };
    table.primary_key.iter().enumerate().map(one).collect::<Vec<_>>().join(",")
}

/// `` `a`,`b`(10) DESC,((`c` + 1)) ``.
pub fn written(table: &TableSchema, index: &IndexDef) -> String {
    let one = |(at, column): (usize, &u16)| {
        let length = index.prefix(at).map_or(String::new(), |n| format!("({n})"));
        let direction = if table.descends(index.no, at) { " DESC" } else { "" };
        let column = &table.columns[usize::from(*column)];
        match functional::expression(column) {
            Some(text) => format!("({text}){direction}"),
            None => format!("{}{length}{direction}", quoted(&column.name)),
        }
    };
    index.columns.iter().enumerate().map(one).collect::<Vec<_>>().join(",")
}

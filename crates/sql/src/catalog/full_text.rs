//! FULLTEXT indexes as statements define them and SHOW writes them; what they are good for is in [`crate::full_text`].

use apus_signal::{dict::FullTextsChange, schema::FullTextMessage};
use apus_types::{Column, FullText, TableSchema, form::Source, full_text};

use super::{
    key_parts::{self, IndexClause, KeyParts},
    visibility,
};
use crate::{
    errors::{self, Result},
    parse::token::{self, Tokens},
    wire::SqlError,
};

/// What stands behind FULLTEXT among the definitions of a table.
pub fn clause(t: &mut Tokens) -> Result<IndexClause> {
    let _ = t.word("index") || t.word("key");
    let name = if t.peek_symbol('(') { None } else { Some(t.identifier()?) };
    key_parts::check_name(name.as_deref())?;
    of_columns(t, name)
}

/// `name ON table (columns)`, behind CREATE FULLTEXT INDEX.
pub fn created(t: &mut Tokens) -> Result<(token::Name, IndexClause)> {
    t.expect("index")?;
    let name = Some(t.identifier()?);
    key_parts::check_name(name.as_deref())?;
    t.expect("on")?;
    let table = t.name()?;
    Ok((table, of_columns(t, name)?))
}

fn of_columns(t: &mut Tokens, name: Option<String>) -> Result<IndexClause> {
    // It takes no beginning of a column, and says nothing when it is given one.
    let KeyParts { columns, descending, .. } = key_parts::parse(t)?;
    if !descending.is_empty() {
        let text = "Incorrect usage of spatial/fulltext/hash index and explicit index order";
        return Err(SqlError::new(1221, b"HY000", text));
    }
    let mut index = IndexClause { name, columns, full_text: true, ..IndexClause::default() };
    loop {
        if t.word("comment") {
            index.comment = t.string()?;
        } else if t.word("key_block_size") {
            t.symbol('=');
            t.number()?;
        } else if t.word("with") {
            t.expect("parser")?;
            return Err(match t.identifier()? {
                name if name.eq_ignore_ascii_case("ngram") => errors::not_supported("WITH PARSER ngram"),
                name => SqlError::new(1128, b"HY000", format!("Function '{name}' is not defined")),
            });
        } else if let Some(invisible) = visibility::word(t) {
            index.invisible = invisible;
        } else {
            return Ok(index);
        }
    }
}

fn find<'t>(list: &'t [FullText], name: &str) -> Option<&'t FullText> {
    list.iter().find(|index| index.name.eq_ignore_ascii_case(name))
}

pub fn has(table: &TableSchema, name: &str) -> bool {
    find(&table.full_texts, name).is_some()
}

/// The column is the first of an index, be it a FULLTEXT one or another.
pub fn begins_any_index(table: &TableSchema, column: u16) -> bool {
    let begins = |columns: &[u16]| columns.first() == Some(&column);
    table.indexes.iter().any(|i| begins(&i.columns)) || table.full_texts.iter().any(|i| begins(&i.columns))
}

/// The index that a clause defines in a table.
///
/// # Errors
/// 1061, 1072, 1283, 3106, 3152.
pub fn defined(table: &TableSchema, clause: &IndexClause) -> Result<FullText> {
    let mut columns: Vec<u16> = Vec::with_capacity(clause.columns.len());
    for name in &clause.columns {
        let at = table.column_no(name).ok_or_else(|| errors::no_key_column(name))?;
        let column = &table.columns[usize::from(at)];
        check(column)?;
        let first = columns.first().map_or(at, |first| *first);
        if table.columns[usize::from(first)].ty.collation() != column.ty.collation() {
            return Err(not_searched(&column.name));
        }
        if columns.contains(&at) {
            return Err(errors::duplicate_column(&column.name));
        }
        columns.push(at);
    }
    let name = key_parts::index_name(table, clause)?;
    Ok(FullText { name, columns, comment: clause.comment.clone(), invisible: clause.invisible })
}

fn not_searched(column: &str) -> SqlError {
    SqlError::new(1283, b"HY000", format!("Column '{column}' cannot be part of FULLTEXT index"))
}

fn check(column: &Column) -> Result<()> {
    use apus_types::ColumnType as T;
    match column.ty {
        T::Json => Err(errors::json_key(&column.name)),
        _ if column.generated.as_ref().is_some_and(|g| !g.stored) => {
            let text = "'Fulltext index on virtual generated column' is not supported for generated columns.";
            Err(SqlError::new(3106, b"HY000", text))
        }
        T::Char { .. } | T::VarChar { .. } | T::Text { .. } => Ok(()),
        _ => Err(not_searched(&column.name)),
    }
}

/// As the clause that would make it.
pub fn as_clause(index: &FullText, name_of: impl Fn(u16) -> Option<String>) -> IndexClause {
    IndexClause {
        name: Some(index.name.clone()),
        columns: index.columns.iter().filter_map(|&c| name_of(c)).collect(),
        full_text: true,
        comment: index.comment.clone(),
        invisible: index.invisible,
        ..IndexClause::default()
    }
}

/// What ALTER TABLE says of them.
pub struct Changes<'c> {
    pub added: &'c [IndexClause],
    pub dropped: &'c [String],
    /// Those that are shown from now on, and those that are hidden.
    pub shown: &'c [String],
    pub hidden: &'c [String],
}

/// The indexes from now on, with the numbers of the new columns; `None`: those that there were.
pub fn altered(
    table: &TableSchema,
    columns: &[(Column, Source)],
    changes: &Changes<'_>,
) -> Result<Option<FullTextsChange>> {
    let sources: Vec<Source> = columns.iter().map(|(_, source)| source.clone()).collect();
    let mut now = TableSchema::new(&table.database, &table.name, Vec::new(), Vec::new());
    now.columns = columns.iter().map(|(column, _)| column.clone()).collect();
    let is_in = |list: &[String], name: &str| list.iter().any(|n| n.eq_ignore_ascii_case(name));
    now.indexes = table.indexes.iter().filter(|index| !is_in(changes.dropped, &index.name)).cloned().collect();
    let moved = full_text::moved(&table.full_texts, &sources);
    now.full_texts = moved.iter().filter(|index| !is_in(changes.dropped, &index.name)).cloned().collect();
    for index in &mut now.full_texts {
        index.invisible = !is_in(changes.shown, &index.name) && (index.invisible || is_in(changes.hidden, &index.name));
        let texts = index.columns.iter().map(|&c| &now.columns[usize::from(c)]);
        let first = now.columns[usize::from(index.columns[0])].ty.collation();
        for column in texts {
            check(column)?;
            if column.ty.collation() != first {
                return Err(not_searched(&column.name));
            }
        }
    }
    for clause in changes.added {
        let index = defined(&now, clause)?;
        now.full_texts.push(index);
    }
    let full_texts = now.full_texts.iter().map(FullTextMessage::from).collect();
    Ok((now.full_texts != moved).then_some(FullTextsChange { full_texts }))
}

/// Lines of SHOW CREATE TABLE.
pub fn shown(s: &TableSchema) -> impl Iterator<Item = String> {
    s.full_texts.iter().map(|index| {
        let name = index.name.replace('`', "``");
        let invisible = if index.invisible { " /*!80000 INVISIBLE */" } else { "" };
        let comment = match index.comment.as_str() {
            "" => String::new(),
            text => format!(" COMMENT '{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        };
        format!("  FULLTEXT KEY `{name}` ({}){comment}{invisible}", key_parts::names(s, &index.columns))
    })
}

//! The text of a view: its SELECT as MySQL writes it, small words, every name quoted and with its table, `*` spelled out, every operation in parentheses.
//!
//! What is written is read again by the parser whenever the view is used, and must mean the same then. So every form that the binder knows is written here, and
//! another is refused: a text that nobody has looked through could hold a name of another database or a backslash too few.

mod blocks;
pub mod definition;
mod exprs;
mod functions;
mod json;
pub mod logic;
mod tables;

use sqlparser::ast;

use crate::{
    errors::{self, Result},
    plan::view::Notes,
};

pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text in quotes.
pub fn literal(text: &str) -> String {
    format!("'{}'", escaped(text))
}
/// A text as it stands between quotes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '\\' | '\'' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            '\x1a' => out.push_str("\\Z"),
            c => out.push(c),
        }
    }
    out
}

/// Writes a query.
#[derive(Default)]
pub struct Writer<'w> {
    pub out: String,
    /// What names mean; without them they are written as they are.
    notes: Option<&'w Notes>,
    /// Put in front of names of tables that have none.
    database: &'w str,
    /// Left out in front of names.
    omitted: Option<&'w str>,
    /// Names of the outermost columns.
    headings: Vec<String>,
    /// Common table expressions in view.
    common: Vec<String>,
    /// Databases that tables were named of.
    pub databases: Vec<String>,
    depth: usize,
    in_select_list: bool,
    /// A subquery stands in the outermost select list.
    pub lists_subquery: bool,
    /// The text is an expression in the definition of a table.
    definition: Option<definition::Named>,
}

/// The text of a new view.
pub fn of_new<'w>(
    query: &ast::Query,
    notes: &'w Notes,
    database: &'w str,
    headings: Vec<String>,
) -> Result<Writer<'w>> {
    let mut writer = Writer { notes: Some(notes), database, headings, ..Writer::default() };
    writer.query(query, true)?;
    Ok(writer)
}

/// The text of a view that is there, for a session whose database is `current`: names of the view's own database are short where it names no other.
pub fn shown(query: &ast::Query, database: &str, current: Option<&str>) -> Result<String> {
    let mut writer = Writer::default();
    writer.query(query, true)?;
    if current != Some(database) || writer.databases.iter().any(|d| d != database) {
        return Ok(writer.out);
    }
    let mut writer = Writer { omitted: Some(database), ..Writer::default() };
    writer.query(query, true)?;
    Ok(writer.out)
}

/// FROM DUAL: of no table.
pub fn is_dual(from: &[ast::TableWithJoins]) -> bool {
    matches!(from, [one] if one.joins.is_empty() && one.relation.to_string().eq_ignore_ascii_case("dual"))
}

fn parts(name: &ast::ObjectName) -> Vec<&str> {
    name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect()
}

fn refused(what: &str) -> crate::wire::SqlError {
    errors::not_supported(&format!("{} in a view", what.chars().take(40).collect::<String>()))
}

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T) -> Result<()>) -> Result<()> {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.put(",");
            }
            write(self, item)?;
        }
        Ok(())
    }

    fn column(&mut self, database: &str, table: &str, column: &str) {
        if !database.is_empty() && self.omitted != Some(database) {
            self.put(&format!("{}.", quoted(database)));
        }
        if !table.is_empty() {
            self.put(&format!("{}.", quoted(table)));
        }
        self.put(&quoted(column));
    }
}

/// The name of an unaliased expression: its text.
pub fn display_name(e: &ast::Expr) -> String {
    match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => s.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

//! `JSON_TABLE(document, path COLUMNS (...))`: a derived table whose rows are made of one value.
//!
//! The document is the only column of a block without tables that stands beside the tables before it, as a LATERAL derived table does; `exec::query::json_table` makes rows of what it says.
//! Nested paths that stand side by side give their rows one after the other, with NULL in the columns of the others.

use std::rc::Rc;

use apus_types::{Column, ColumnType, TableSchema, schema::DefaultValue};
use sqlparser::ast::{self, JsonTableColumn, JsonTableColumnErrorHandling};

use super::{
    Planner, Unplanned,
    derived::{is_correlated, set_operation::row_of_values},
    query::{Body, Derived},
    scope::Scope,
};
use crate::{
    catalog::Table,
    errors,
    expr::{Expr, json},
    parse::column_type,
    value::json::{Json, path::Path},
    wire::SqlError,
};

/// Deepest nesting of NESTED PATH.
const NESTING_MAX: usize = 16;

/// The rows that a path leads to, and what of each is shown.
#[derive(Debug)]
pub struct Level {
    pub path: Path,
    pub cells: Vec<Cell>,
    pub nested: Vec<Level>,
}

/// A column of one level.
#[derive(Debug)]
pub struct Cell {
    /// Its number in the table.
    pub slot: u16,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// FOR ORDINALITY: the number of the row among those of its level.
    Number,
    Exists(Path),
    Value {
        path: Path,
        on_empty: Action,
        on_error: Action,
    },
}

/// What is shown in place of a value that is not there or does not fit.
#[derive(Debug)]
pub enum Action {
    Null,
    Error,
    Default(Json),
}

/// Columns of all levels.
struct Definition<'p, 'a> {
    planner: &'p Planner<'a>,
    columns: Vec<Column>,
}

impl Planner<'_> {
    /// The table that a call in FROM makes; it sees the tables of `before`.
    pub(crate) fn json_table(
        &self,
        (document, path): (&ast::Expr, &ast::Value),
        columns: &[JsonTableColumn],
        name: &str,
        before: Scope,
    ) -> Result<Rc<Derived>, Unplanned> {
        let mut definition = Definition { planner: self, columns: Vec::new() };
        let level = definition.level(path, columns, 0)?;
        let schema = TableSchema::new("", name, definition.columns, Vec::new());
        let table = Rc::new(Table::new(schema, Vec::new()));
        let query = row_of_values(std::slice::from_ref(document))?;
        self.frames.show(&Rc::new(before));
        let outside = self.frames.begin_lateral();
        let select = self.select(&query);
        self.frames.end_lateral(outside);
        self.frames.show(&Rc::default());
        let select = select?;
        let is_correlated = is_correlated(&select);
        let body = Body::JsonTable { document: Box::new(select), level };
        let mut derived = Derived { table, body, is_correlated, is_subquery: false, is_lateral: true, text: None };
        derived.is_lateral = derived.inputs().iter().any(|e| e.any(|e| matches!(e, Expr::Column(_))));
        Ok(Rc::new(derived))
    }
}

impl Definition<'_, '_> {
    fn level(&mut self, path: &ast::Value, columns: &[JsonTableColumn], depth: usize) -> Result<Level, Unplanned> {
        if depth > NESTING_MAX {
            let text = format!("More than supported {NESTING_MAX} NESTED PATHs were found in JSON_TABLE");
            return Err(SqlError::new(3668, b"42000", text).into());
        }
        let path = self.path(path)?;
        let (mut cells, mut nested) = (Vec::new(), Vec::new());
        for column in columns {
            let cell = match column {
                JsonTableColumn::Nested(n) => {
                    nested.push(self.level(&n.path.value, &n.columns, depth + 1)?);
                    continue;
                }
                JsonTableColumn::ForOrdinality(name) => {
                    let ty = ColumnType::Int { bits: 64, unsigned: false };
                    Cell { slot: self.column(&name.value, ty)?, what: What::Number }
                }
                JsonTableColumn::Named(c) => {
                    let slot = self.column(&c.name.value, column_type::type_named(&c.r#type.to_string())?)?;
                    let path = self.path(&c.path.value)?;
                    let what = match c.exists {
                        true => What::Exists(path),
                        false => What::Value {
                            path,
                            on_empty: self.action(c.on_empty.as_ref())?,
                            on_error: self.action(c.on_error.as_ref())?,
                        },
                    };
                    Cell { slot, what }
                }
            };
            cells.push(cell);
        }
        Ok(Level { path, cells, nested })
    }

    fn column(&mut self, name: &str, ty: ColumnType) -> Result<u16, SqlError> {
        if self.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name)) {
            return Err(errors::duplicate_column(name));
        }
        self.columns.push(Column { default: DefaultValue::Null, ..Column::new(name, ty) });
        Ok(self.columns.len() as u16 - 1)
    }

    fn text<'v>(&self, value: &'v ast::Value) -> Result<&'v str, Unplanned> {
        match value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => Ok(text),
            // What a table looks like is not left open.
            ast::Value::Placeholder(_) if self.planner.from_digest => Err(Unplanned::Structural),
            other => Err(errors::syntax(&other.to_string()).into()),
        }
    }

    fn path(&self, value: &ast::Value) -> Result<Path, Unplanned> {
        Ok(Path::parse(self.text(value)?).map_err(errors::json_path)?)
    }

    fn action(&self, handling: Option<&JsonTableColumnErrorHandling>) -> Result<Action, Unplanned> {
        Ok(match handling {
            None | Some(JsonTableColumnErrorHandling::Null) => Action::Null,
            Some(JsonTableColumnErrorHandling::Error) => Action::Error,
            Some(JsonTableColumnErrorHandling::Default(text)) => {
                Action::Default(json::parsed(self.text(&text.value)?.as_bytes(), 1, "json_table")?)
            }
        })
    }
}

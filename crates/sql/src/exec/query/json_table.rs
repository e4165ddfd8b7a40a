//! Rows of JSON_TABLE: one for each value that a level's path leads to, times those of the levels in it.

use std::borrow::Cow;

use apus_types::{Column, ColumnType, Value};

use crate::{
    catalog::Table,
    errors::{self, Result},
    exec::target::Target,
    expr::{Context, assign, json},
    plan::{
        json_table::{Action, Level, What},
        select::Output,
    },
    spill::byte_strings::Strings,
    value::{datum::Datum, json::Json},
};

/// Takes documents, and keeps the rows that are made of them.
pub struct Documents<'t> {
    table: &'t Table,
    level: &'t Level,
    rows: Strings,
    /// Error 3170 beyond so many bytes.
    bytes_max: usize,
}

impl<'t> Documents<'t> {
    pub fn new(table: &'t Table, level: &'t Level, bytes_max: usize) -> Documents<'t> {
        Documents { table, level, rows: Strings::default(), bytes_max }
    }
    pub fn into_rows(self) -> Strings {
        self.rows
    }

    fn document(&mut self, value: &Datum<'_>) -> Result<()> {
        let document = match value {
            Datum::Null => return Ok(()),
            Datum::Json(_) => json::of_datum(value),
            Datum::Text(text) | Datum::Label(_, text) => json::parsed(text, 1, "json_table")?,
            Datum::Bytes(_) => return Err(errors::json_of_binary()),
            _ => return Err(errors::json_data_type(1, "json_table")),
        };
        let mut cells = vec![Datum::Null; self.table.schema.columns.len()];
        self.expand(self.level, &document, &mut cells)?;
        Ok(())
    }

    /// Appends the rows of a level, `cells` being those of the levels around it; says whether there were any.
    fn expand(&mut self, level: &Level, value: &Json, cells: &mut [Datum<'static>]) -> Result<bool> {
        let found = level.path.find(value);
        for (i, part) in found.iter().enumerate() {
            for cell in &level.cells {
                let slot = usize::from(cell.slot);
                cells[slot] = content(&self.table.schema.columns[slot], &cell.what, part, i)?;
            }
            let mut any = false;
            for nested in &level.nested {
                any |= self.expand(nested, part, cells)?;
            }
            if !any {
                self.push(cells)?;
            }
        }
        for cell in &level.cells {
            cells[usize::from(cell.slot)] = Datum::Null;
        }
        Ok(!found.is_empty())
    }

    fn push(&mut self, cells: &[Datum<'static>]) -> Result<()> {
        let schema = &self.table.schema;
        let values: Vec<Value<'_>> =
            schema.columns.iter().zip(cells).map(|(c, cell)| assign::stored(c.ty, cell)).collect();
        if let Err(e) = schema.layout().encode(&values, self.rows.writer()) {
            self.rows.abandon();
            return Err(errors::from_code(e, ""));
        }
        self.rows.end();
        if self.rows.byte_len() > self.bytes_max { Err(errors::out_of_query_memory(self.bytes_max)) } else { Ok(()) }
    }
}

/// What a column shows of one value.
fn content(column: &Column, what: &What, value: &Json, i: usize) -> Result<Datum<'static>> {
    let (path, on_empty, on_error) = match what {
        What::Number => return Ok(Datum::Int(i as i64 + 1)),
        What::Exists(path) => {
            let exists = Json::Int(i64::from(!path.find(value).is_empty()));
            return json::into_column(column, &exists);
        }
        What::Value { path, on_empty, on_error } => (path, on_empty, on_error),
    };
    let found = path.find(value);
    let value = match found[..] {
        [] => {
            return match on_empty {
                Action::Null => Ok(Datum::Null),
                Action::Error => Err(errors::json_table_missing(&column.name)),
                Action::Default(value) => json::into_column(column, value),
            };
        }
        [one] => Cow::Borrowed(one),
        _ => Cow::Owned(Json::Array(found.into_iter().cloned().collect())),
    };
    let fitted = match value.is_container() && column.ty != ColumnType::Json {
        true => Err(errors::json_table_no_scalar(&column.name)),
        false => json::into_column(column, &value),
    };
    match (fitted, on_error) {
        (Ok(fitted), _) => Ok(fitted),
        (Err(e), Action::Error) => Err(e),
        (Err(_), Action::Null) => Ok(Datum::Null),
        (Err(_), Action::Default(value)) => json::into_column(column, value),
    }
}

impl Target for Documents<'_> {
    fn row_of(&mut self, outputs: &[Output], cx: &Context<'_>) -> Result<()> {
        match outputs {
            [document] => self.document(&document.expr.eval(cx)?),
            _ => Err(errors::internal("a JSON_TABLE of several documents")),
        }
    }
    fn row_of_values(&mut self, _: &[Output], values: &[Datum<'_>]) -> Result<()> {
        values.iter().try_for_each(|document| self.document(document))
    }
    async fn flush_if_full(&mut self) -> Result<()> {
        Ok(())
    }
}

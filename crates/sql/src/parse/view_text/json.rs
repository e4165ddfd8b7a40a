//! JSON_VALUE and JSON_TABLE, whose arguments have words between them.

use sqlparser::ast::{self, JsonTableColumn, JsonTableColumnErrorHandling as Handling};

use super::{Writer, quoted};
use crate::errors::{self, Result};

impl Writer<'_> {
    /// JSON_VALUE as `plan::dialect` reads it.
    pub(super) fn json_value(&mut self, args: [&ast::Expr; 5]) -> Result<()> {
        let [document, path, returns, on_empty, on_error] = args;
        let ast::Expr::Cast { data_type, .. } = returns else { return Err(errors::internal("JSON_VALUE of no type")) };
        self.put("json_value(");
        self.expr(document)?;
        self.put(",");
        self.expr(path)?;
        self.put(&format!(" returning {}", data_type.to_string().to_ascii_lowercase()));
        for (action, when) in [(on_empty, "empty"), (on_error, "error")] {
            match action {
                ast::Expr::Value(v) if v.value == ast::Value::Null => self.put(" null"),
                ast::Expr::Function(f) if f.name.to_string() == " error" => self.put(" error"),
                given => {
                    self.put(" default ");
                    self.expr(given)?;
                }
            }
            self.put(&format!(" on {when}"));
        }
        self.put(")");
        Ok(())
    }

    pub(super) fn json_table(
        &mut self,
        document: &ast::Expr,
        path: &ast::Value,
        columns: &[JsonTableColumn],
    ) -> Result<()> {
        self.put("json_table(");
        self.expr(document)?;
        self.put(", ");
        self.json_columns(path, columns)?;
        self.put(")");
        Ok(())
    }

    fn json_columns(&mut self, path: &ast::Value, columns: &[JsonTableColumn]) -> Result<()> {
        self.value(path)?;
        self.put(" columns (");
        for (i, column) in columns.iter().enumerate() {
            self.put(if i > 0 { ", " } else { "" });
            match column {
                JsonTableColumn::Nested(n) => {
                    self.put("nested path ");
                    self.json_columns(&n.path.value, &n.columns)?;
                }
                JsonTableColumn::ForOrdinality(name) => self.put(&format!("{} for ordinality", quoted(&name.value))),
                JsonTableColumn::Named(c) => {
                    let ty = c.r#type.to_string().to_ascii_lowercase();
                    let exists = if c.exists { " exists" } else { "" };
                    self.put(&format!("{} {ty}{exists} path ", quoted(&c.name.value)));
                    self.value(&c.path.value)?;
                    self.handling(c.on_empty.as_ref(), "empty")?;
                    self.handling(c.on_error.as_ref(), "error")?;
                }
            }
        }
        self.put(")");
        Ok(())
    }

    fn handling(&mut self, handling: Option<&Handling>, when: &str) -> Result<()> {
        match handling {
            None => return Ok(()),
            Some(Handling::Null) => self.put(" null"),
            Some(Handling::Error) => self.put(" error"),
            Some(Handling::Default(text)) => {
                self.put(" default ");
                self.value(&text.value)?;
            }
        }
        self.put(&format!(" on {when}"));
        Ok(())
    }
}

//! An expression in the definition of a table: columns without their table, every text with its character set, and what else it names is noted.

use sqlparser::ast;

use super::{Writer, literal, quoted};
use crate::errors::Result;

/// What may not stand in every expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Special {
    /// A function, as MySQL calls it.
    Function(String),
    Variable,
    Subquery,
}

/// What an expression names.
#[derive(Default, Debug)]
pub struct Named {
    pub columns: Vec<String>,
    pub special: Vec<Special>,
}

/// MySQL's name of a function that has several.
fn known_as(name: &str) -> &str {
    match name {
        "current_timestamp" | "localtime" | "localtimestamp" => "now",
        "current_date" => "curdate",
        "current_time" => "curtime",
        "session_user" | "system_user" => "user",
        "schema" => "database",
        "version" => "version()",
        "icu_version" => "icu_version()",
        "lcase" => "lower",
        "ucase" => "upper",
        "substring" | "mid" => "substr",
        "character_length" => "char_length",
        "power" => "pow",
        "ceil" => "ceiling",
        "day" => "dayofmonth",
        "octet_length" => "length",
        other => other,
    }
}

/// The text of an expression, and what it names.
pub fn of_definition(e: &ast::Expr) -> Result<(String, Named)> {
    let mut writer = Writer { definition: Some(Named::default()), ..Writer::default() };
    writer.expr(e)?;
    Ok((writer.out, writer.definition.unwrap_or_default()))
}

impl Writer<'_> {
    pub(super) fn note(&mut self, special: Special) {
        if let Some(named) = &mut self.definition {
            named.special.push(special);
        }
    }
    /// Whether this is the definition of a table; then the variable is noted.
    pub(super) fn notes_variable(&mut self) -> bool {
        self.note(Special::Variable);
        self.definition.is_some()
    }
    pub(super) fn text(&mut self, text: &str) {
        if self.definition.is_some() {
            self.put("_utf8mb4");
        }
        self.put(&literal(text));
    }
    pub(super) fn plain_column(&mut self, name: &str) {
        if let Some(named) = &mut self.definition {
            named.columns.push(name.to_owned());
        }
        self.put(&quoted(name));
    }
    /// A function that is written as an operation; `false`: it is not.
    pub(super) fn as_operation(&mut self, name: &str, args: &[Option<&ast::Expr>]) -> Result<bool> {
        match (self.definition.is_some(), name, args) {
            (true, "datediff", [Some(a), Some(b)]) => {
                for (begin, date) in [("(to_days(", a), (") - to_days(", b)] {
                    self.put(begin);
                    self.expr(date)?;
                }
                self.put("))");
            }
            (true, "date", [Some(e)]) => {
                self.put("cast(");
                self.expr(e)?;
                self.put(" as date)");
            }
            (true, "isnull", [Some(e)]) => {
                self.put("(");
                self.expr(e)?;
                self.put(" is null)");
            }
            (true, "mod", [Some(a), Some(b)]) => {
                self.put("(");
                self.expr(a)?;
                self.put(" % ");
                self.expr(b)?;
                self.put(")");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
    /// The name of a function in the text.
    pub(super) fn function_name<'n>(&mut self, name: &'n str) -> &'n str {
        if self.definition.is_none() {
            return name;
        }
        let known = known_as(name);
        self.note(Special::Function(known.to_owned()));
        known.trim_end_matches("()")
    }
    /// `_charset'text'` and the like.
    pub(super) fn prefixed(&mut self, prefix: &str, value: &ast::Expr) -> Result<()> {
        if self.definition.is_none() {
            self.put(&format!("{prefix} "));
            return self.expr(value);
        }
        match value {
            ast::Expr::Value(v) => match &v.value {
                ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => {
                    self.put(&format!("{}{}", prefix.to_ascii_lowercase(), literal(s)));
                    Ok(())
                }
                other => {
                    self.put(&format!("{} ", prefix.to_ascii_lowercase()));
                    self.value(other)
                }
            },
            other => self.expr(other),
        }
    }
    /// Behind the type of a CAST.
    pub(super) fn cast_end(&mut self, ty: &ast::DataType) {
        let is_text = matches!(ty, ast::DataType::Char(_) | ast::DataType::Character(_));
        let says_nothing = !ty.to_string().to_ascii_lowercase().contains("charset");
        self.put(if self.definition.is_some() && is_text && says_nothing { " charset utf8mb4)" } else { ")" });
    }
    /// `DATE'2024-01-01'`
    pub(super) fn typed(&mut self, ty: &str, value: &ast::Value) -> Result<()> {
        match (self.definition.is_some(), value) {
            (true, ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s)) => {
                self.put(&format!("{ty}{}", literal(s)));
                Ok(())
            }
            _ => {
                self.put(&format!("{ty} "));
                self.value(value)
            }
        }
    }
}

/// `unsigned`, `decimal(5, 2)`: what the elements of an array are, as MySQL writes it.
pub(super) fn array_element(ty: &ast::DataType) -> String {
    use ast::{DataType as T, ExactNumberInfo as N};
    match ty {
        T::Signed | T::SignedInteger => "signed".to_owned(),
        T::Unsigned | T::UnsignedInteger => "unsigned".to_owned(),
        T::Decimal(N::None) | T::Dec(N::None) | T::Numeric(N::None) => "decimal(10, 0)".to_owned(),
        T::Decimal(N::Precision(p)) | T::Dec(N::Precision(p)) | T::Numeric(N::Precision(p)) => {
            format!("decimal({p}, 0)")
        }
        T::Decimal(N::PrecisionAndScale(p, s))
        | T::Dec(N::PrecisionAndScale(p, s))
        | T::Numeric(N::PrecisionAndScale(p, s)) => format!("decimal({p}, {s})"),
        T::Character(Some(length)) => format!("char({length})"),
        other => other.to_string().to_ascii_lowercase(),
    }
}

//! From the parser's syntax tree to expressions: names resolved, functions looked up, collations chosen.
//!
//! What is not known here is refused with 1235 and its name; nothing is approximated.

mod aggregate;
mod full_text;
pub mod function;
mod json;
mod literal;
pub use self::literal::cast_type;
mod names;
mod number_format;
pub mod operator;
mod program;
mod rows;
mod subquery;
pub mod text;
mod window;

use apus_types::{
    collate::{Charset, Collation},
    schema::{ColumnType, TableSchema},
};
use sqlparser::ast::{self, BinaryOperator, DataType, UnaryOperator};

pub use aggregate::{Aggregate, AggregateKind, is_any_value};
pub use full_text::ranked;
pub use json::json_truth;
pub use window::WindowPlace;

use self::{
    function::{as_moment, call, quiet_number, unit_name},
    literal::{placeholder, shorten, value},
    operator::as_number,
};
use super::{Planner, scope::Scope, window::Windows};
use crate::{
    errors::{self, Result},
    expr::{
        CastType, Expr, Kind,
        coercion::{self, collation_of},
        func::{self, time},
    },
    parse::charset::{self, charset_named, collation_named},
    program::routine::code::Names,
    value::datum::Datum,
};

/// Deepest nesting of an expression, a guard of the stack.
const DEPTH_MAX: usize = 200;

/// What a name means that is both an alias of the select list and a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Precedence {
    #[default]
    Column,
    /// ORDER BY of a bare name.
    Alias,
    /// HAVING: the column if the rows are grouped by it, else the alias.
    Grouped,
}

/// Where names are looked up.
#[derive(Default)]
pub struct Builder<'a> {
    pub table: Option<&'a TableSchema>,
    /// Name that the table has in the statement.
    pub table_name: String,
    /// For the message about an unknown column: "field list", "where clause", ...
    pub clause: &'static str,
    /// Name of the row alias of INSERT ... AS new ON DUPLICATE KEY UPDATE.
    pub new_alias: Option<String>,
    pub allow_values: bool,
    /// Whether aggregates may stand here.
    pub allow_aggregates: bool,
    pub aggregates: Vec<Aggregate>,
    /// Whether window functions may stand here.
    pub window_place: WindowPlace,
    pub named_windows: Vec<ast::NamedWindowDefinition>,
    pub windows: Windows,
    /// The arguments of each GROUPING().
    pub groupings: Vec<Vec<Expr>>,
    /// Column aliases visible in this clause.
    pub aliases: Vec<(String, Expr)>,
    pub precedence: Precedence,
    /// What the rows are grouped by, for [`Precedence::Grouped`].
    pub grouped: Vec<Expr>,
    pub param_kinds: Vec<Kind>,
    /// The table of an INSERT, whose columns may be named in DEFAULT(column) only.
    pub target: Option<&'a TableSchema>,
    /// The statement assigns variables in expressions.
    pub assigns: bool,
    /// Placeholders stand for literals.
    pub from_digest: bool,
    /// By `sql_mode`: LIKE has no escape unless it names one.
    pub no_backslash: bool,
    /// By `sql_mode`: differences of unsigned numbers have a sign.
    pub signed_difference: bool,
    /// The expression stands in the definition of a table.
    pub of_definition: bool,
    /// The session, for the kinds of its variables.
    pub env: Option<&'a crate::expr::Env>,
    /// Variables of a procedure in view.
    pub names: Option<&'a Names>,
    pub database: String,
    /// The tables of a query block, in place of `table`.
    pub scope: Option<std::rc::Rc<Scope>>,
    /// Binds subqueries, and knows the blocks around.
    pub planner: Option<&'a Planner<'a>>,
    /// Knows stored functions.
    pub functions: Option<&'a Planner<'a>>,
    depth: usize,
}

impl<'a> Builder<'a> {
    pub fn new(table: Option<&'a TableSchema>, table_name: &str, database: &str) -> Builder<'a> {
        let database = database.to_owned();
        Builder { table, table_name: table_name.to_owned(), clause: "field list", database, ..Builder::default() }
    }

    pub fn build(&mut self, e: &ast::Expr) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(errors::not_supported("expressions nested this deeply"));
        }
        let built = self.build_inner(e);
        self.depth -= 1;
        built
    }

    fn boxed(&mut self, e: &ast::Expr) -> Result<Box<Expr>> {
        Ok(Box::new(self.build(e)?))
    }
    /// A WHERE.
    pub fn condition(&mut self, e: &ast::Expr) -> Result<Expr> {
        Ok(quiet_number(self.build(e)?))
    }
    fn truth(&mut self, e: &ast::Expr) -> Result<Box<Expr>> {
        Ok(Box::new(quiet_number(as_number(self.build(e)?))))
    }
    fn list(&mut self, list: &[ast::Expr]) -> Result<Vec<Expr>> {
        list.iter().map(|e| self.build(e)).collect()
    }

    fn build_inner(&mut self, e: &ast::Expr) -> Result<Expr> {
        use ast::Expr as A;
        Ok(match e {
            A::Identifier(name) => self.identifier(name)?,
            A::CompoundIdentifier(parts) => self.compound(parts)?,
            A::Value(v) => match &v.value {
                ast::Value::Placeholder(p) if p.starts_with('@') => self.variable(p)?,
                v => value(v)?,
            },
            A::Nested(inner) => self.build(inner)?,
            A::BinaryOp { left, op, right } => self.binary(left, op, right)?,
            A::UnaryOp { op, expr } => {
                let inner = self.boxed(expr)?;
                match op {
                    UnaryOperator::Minus => match *inner {
                        Expr::Const(Datum::Int(i64::MIN)) => Expr::Const(Datum::UInt(1 << 63)),
                        Expr::Const(Datum::Int(n)) => Expr::Const(Datum::Int(-n)),
                        Expr::Const(Datum::UInt(n)) if n == 1 << 63 => Expr::Const(Datum::Int(i64::MIN)),
                        Expr::Const(Datum::UInt(n)) => {
                            Expr::Const(Datum::Decimal { unscaled: -i128::from(n), scale: 0 })
                        }
                        Expr::Const(Datum::Decimal { unscaled, scale }) => {
                            Expr::Const(Datum::Decimal { unscaled: -unscaled, scale })
                        }
                        Expr::Const(Datum::Double(x)) => Expr::Const(Datum::Double(-x)),
                        other => Expr::Negate(Box::new(quiet_number(as_number(other)))),
                    },
                    UnaryOperator::Plus => *inner,
                    UnaryOperator::Not | UnaryOperator::BangNot => Expr::Not(Box::new(quiet_number(as_number(*inner)))),
                    UnaryOperator::BitwiseNot => Expr::BitNot(Box::new(as_number(*inner))),
                    other => return Err(errors::not_supported(&format!("operator {other}"))),
                }
            }
            A::IsNull(e) => Expr::IsNull { expr: self.boxed(e)?, negated: false },
            A::IsNotNull(e) => Expr::IsNull { expr: self.boxed(e)?, negated: true },
            A::IsUnknown(e) => Expr::IsNull { expr: self.boxed(e)?, negated: false },
            A::IsNotUnknown(e) => Expr::IsNull { expr: self.boxed(e)?, negated: true },
            A::IsTrue(e) => Expr::IsTruth { expr: self.truth(e)?, want: true, negated: false },
            A::IsNotTrue(e) => Expr::IsTruth { expr: self.truth(e)?, want: true, negated: true },
            A::IsFalse(e) => Expr::IsTruth { expr: self.truth(e)?, want: false, negated: false },
            A::IsNotFalse(e) => Expr::IsTruth { expr: self.truth(e)?, want: false, negated: true },
            A::InList { expr, list, negated } if rows::row_of(expr).is_some() => {
                let mut any = Vec::with_capacity(list.len());
                for row in list {
                    any.push(self.rows(expr, &BinaryOperator::Eq, row)?);
                }
                let found = if any.len() == 1 { any.remove(0) } else { Expr::Or(any) };
                if *negated { Expr::Not(Box::new(found)) } else { found }
            }
            A::InList { expr, list, negated } => {
                let written = list;
                let (mut expr, mut list) = (self.build(expr)?, self.list(list)?);
                if self.is_json(&expr) {
                    list = list.into_iter().zip(written).map(|(e, written)| json_truth(written, e)).collect();
                }
                if list.iter().any(|e| self.is_number(e)) {
                    expr = as_number(expr);
                }
                if self.is_number(&expr) {
                    list = list.into_iter().map(as_number).collect();
                }
                let operation = if list.len() == 1 { "=" } else { "IN" };
                let all: Vec<&Expr> = std::iter::once(&expr).chain(&list).collect();
                let collation = coercion::compared(&all, &self.param_kinds, operation)?;
                expr = self.compared_as(collation, expr);
                list = list.into_iter().map(|e| self.compared_as(collation, e)).collect();
                let alone = list.len() == 1;
                if !alone && expr.column_type() == Some(ColumnType::Year) {
                    (expr, list) = self.among_years(expr, list);
                } else {
                    list = list.into_iter().map(|e| self.fitting(&expr, e, alone)).collect();
                }
                let expr = Box::new(expr);
                Expr::In { expr, list, negated: *negated, collation }
            }
            A::Between { expr, negated, low, high } => {
                let parts = [self.build(expr)?, self.build(low)?, self.build(high)?];
                let [mut expr, mut low, mut high] = self.between_json(parts)?;
                if self.is_number(&low) || self.is_number(&high) {
                    (expr, low, high) = (as_number(expr), as_number(low), as_number(high));
                }
                if self.is_number(&expr) {
                    (low, high) = (as_number(low), as_number(high));
                }
                let collation = coercion::compared(&[&expr, &low, &high], &self.param_kinds, "between")?;
                [expr, low, high] = [expr, low, high].map(|e| self.compared_as(collation, e));
                // Moments beside a column of times are asked of the times of today, other than by a comparison alone.
                let is_time = matches!((expr.column_type(), expr.kind(&self.param_kinds)), (Some(_), Kind::Time(_)));
                let alone = is_time && self.is_number(&low) && self.is_number(&high);
                (low, high) = (self.fitting(&expr, low, alone), self.fitting(&expr, high, alone));
                let (expr, low, high) = (Box::new(expr), Box::new(low), Box::new(high));
                Expr::Between { expr, low, high, negated: *negated, collation }
            }
            A::Like { negated, any: false, expr, pattern, escape_char } => {
                let [expr, pattern] = [self.build(expr)?, self.build(pattern)?].map(|e| self.as_text(e));
                let escape = match escape_char {
                    None => (!self.no_backslash).then_some(b'\\'),
                    Some(e) => match self.build(e)? {
                        Expr::Const(d) => d.as_text().first().copied(),
                        _ => return Err(errors::wrong_arguments("ESCAPE")),
                    },
                };
                let collation = coercion::compared(&[&expr, &pattern], &self.param_kinds, "like")?;
                let [expr, pattern] = [expr, pattern].map(|e| Box::new(self.compared_as(collation, e)));
                Expr::Like { expr, pattern, escape, negated: *negated, collation }
            }
            A::Case { operand, conditions, else_result, .. } => {
                let operand = operand.as_ref().map(|e| self.boxed(e)).transpose()?;
                let mut whens = Vec::new();
                for when in conditions {
                    whens.push((self.build(&when.condition)?, self.build(&when.result)?));
                }
                let mut otherwise = else_result.as_ref().map(|e| self.boxed(e)).transpose()?;
                let compared: Vec<&Expr> = match &operand {
                    Some(operand) => std::iter::once(&**operand).chain(whens.iter().map(|(when, _)| when)).collect(),
                    None => Vec::new(),
                };
                let collation = coercion::compared(&compared, &self.param_kinds, "case")?;
                if self.is_text_chosen(&whens, otherwise.as_deref()) {
                    whens = whens.into_iter().map(|(when, then)| (when, self.as_text(then))).collect();
                    otherwise = otherwise.map(|e| Box::new(self.as_text(*e)));
                }
                let has_bytes = whens.iter().any(|(_, then)| self.is_bytes(then))
                    || otherwise.as_deref().is_some_and(|e| self.is_bytes(e));
                let chosen = |e| if has_bytes { self.encoded_one(e) } else { e };
                let asked = |e| if operand.is_some() { self.compared_as(collation, e) } else { e };
                let whens = whens.into_iter().map(|(when, then)| (asked(when), chosen(then))).collect();
                let otherwise = otherwise.map(|e| Box::new(chosen(*e)));
                let operand = operand.map(|e| Box::new(self.compared_as(collation, *e)));
                self.chosen(Expr::Case { operand, whens, otherwise, collation })
            }
            A::Cast { expr, data_type, .. } | A::Convert { expr, data_type: Some(data_type), charset: None, .. } => {
                let (mut inner, to) = (self.build(expr)?, cast_type(data_type)?);
                if to == CastType::Json {
                    inner = json_truth(expr, inner);
                }
                if matches!(to, CastType::Text(_) | CastType::Bytes(_)) {
                    inner = self.as_text(inner);
                }
                if matches!(to, CastType::Bytes(_)) {
                    inner = self.encoded_one(inner);
                }
                if matches!(to, CastType::Date | CastType::DateTime(_) | CastType::Time(_)) {
                    inner = as_moment(inner);
                }
                let number = matches!(
                    to,
                    CastType::Signed
                        | CastType::Unsigned
                        | CastType::Decimal { .. }
                        | CastType::Double
                        | CastType::Float
                        | CastType::AsYear
                );
                Expr::Cast(Box::new(if number { as_number(inner) } else { inner }), to)
            }
            A::Convert { expr, data_type: None, charset, .. } => {
                let name = charset.as_ref().map_or_else(String::new, ToString::to_string);
                match charset_named(name.trim_matches(['`', '\'', '"']))? {
                    Charset::Binary => Expr::Cast(Box::new(self.text_of(expr)?), CastType::Bytes(None)),
                    charset => {
                        let text = self.text_of(expr)?;
                        Expr::Call(func::Func::ConvertUsing, vec![text], charset.default_collation())
                    }
                }
            }
            A::Collate { expr, collation } => {
                let name = collation.to_string();
                let collation = collation_named(name.trim_matches(['`', '\'', '"']))?;
                let expr = self.text_of(expr)?;
                let own = match expr.kind(&self.param_kinds) {
                    Kind::Text | Kind::Label | Kind::Json => collation_of(&expr, &self.param_kinds),
                    Kind::Bytes => Collation::Binary,
                    _ => coercion::connection(),
                };
                if expr.kind(&self.param_kinds) != Kind::Null {
                    charset::check(collation, own.charset())?;
                }
                Expr::Call(func::Func::Collate, vec![expr], collation)
            }
            A::Function(f) => self.function(f)?,
            A::Substring { expr, substring_from, substring_for, .. } => {
                let mut args = vec![self.text_of(expr)?];
                args.push(match substring_from {
                    Some(e) => self.build(e)?,
                    None => Expr::Const(Datum::Int(1)),
                });
                if let Some(e) = substring_for {
                    args.push(self.build(e)?);
                }
                call(func::Func::Substring, args)
            }
            A::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                let mut args = vec![self.text_of(expr)?];
                if let Some(what) = trim_what {
                    args.push(self.text_of(what)?);
                }
                let f = match trim_where {
                    Some(ast::TrimWhereField::Leading) => func::Func::LTrim,
                    Some(ast::TrimWhereField::Trailing) => func::Func::RTrim,
                    _ => func::Func::Trim,
                };
                call(f, self.put_together(args))
            }
            A::Floor { expr, .. } => call(func::Func::Floor, vec![self.build(expr)?]),
            A::Ceil { expr, .. } => call(func::Func::Ceil, vec![self.build(expr)?]),
            A::Position { expr, r#in } => {
                let args = vec![self.text_of(expr)?, self.text_of(r#in)?];
                self.looking(func::Func::Locate, self.put_together(args))
            }
            A::Extract { field, expr, .. } => {
                let name = unit_name(field);
                if !time::is_unit(&name) {
                    return Err(errors::syntax(&name));
                }
                let moment = self.build(expr)?;
                match func::lookup(&name, 1)? {
                    // A number, not a YEAR.
                    Some(f @ func::Func::Year) => Expr::Cast(Box::new(call(f, vec![moment])), CastType::Signed),
                    Some(f) => call(f, vec![moment]),
                    None => call(func::Func::ExtractUnit, vec![moment, Expr::Const(Datum::text(name))]),
                }
            }
            A::TypedString(t) => {
                let text = match &t.value.value {
                    ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => {
                        Expr::Const(Datum::text(s.clone()))
                    }
                    // Its digits are part of its type.
                    ast::Value::Placeholder(_) if self.from_digest && t.data_type != DataType::Date => {
                        return Err(errors::structural());
                    }
                    ast::Value::Placeholder(p) => placeholder(p)?,
                    _ => return Err(errors::not_supported("this typed literal")),
                };
                // As many digits as are written.
                let digits = time::digits_of(&text, &[]);
                let to = match cast_type(&t.data_type)? {
                    CastType::DateTime(_) => CastType::DateTime(digits),
                    CastType::Time(_) => CastType::Time(digits),
                    to => to,
                };
                let kind = Expr::Cast(Box::new(Expr::Const(Datum::Null)), to).kind(&self.param_kinds);
                Expr::Cast(Box::new(Expr::Cast(Box::new(text), CastType::Literal(kind))), to)
            }
            A::Prefixed { prefix, value } => match charset_named(prefix.value.trim_start_matches('_'))? {
                Charset::Binary => Expr::Cast(self.boxed(value)?, CastType::Bytes(None)),
                // Every text is written so there.
                Charset::Utf8mb4 if self.of_definition => self.build(value)?,
                charset => self.introduced(charset, value)?,
            },
            A::Interval(_) => return Err(errors::syntax("INTERVAL")),
            A::Subquery(_) | A::Exists { .. } | A::InSubquery { .. } | A::AnyOp { .. } | A::AllOp { .. } => {
                self.subquery(e)?
            }
            A::Tuple(_) => return Err(errors::operand_columns(1)),
            A::RLike { negated, expr, pattern, .. } => {
                let (expr, pattern) = (self.text_of(expr)?, self.text_of(pattern)?);
                let found = call(func::Func::RegexpLike, vec![expr, pattern]);
                if *negated { Expr::Not(Box::new(found)) } else { found }
            }
            A::MemberOf(m) => {
                let args = [(*m.value).clone(), (*m.array).clone()];
                call(func::Func::MemberOf, self.json_arguments(func::Func::MemberOf, &args)?)
            }
            other => return Err(errors::not_supported(&shorten(&other.to_string()))),
        })
    }

    fn variable(&self, text: &str) -> Result<Expr> {
        if let Some(system) = text.strip_prefix("@@") {
            let lower = system.to_ascii_lowercase();
            let (global, name) = match lower.split_once('.') {
                Some(("global", name)) => (true, name),
                Some(("session" | "local", name)) => {
                    crate::variables::check_of_session(name)?;
                    (false, name)
                }
                _ => (false, lower.as_str()),
            };
            crate::variables::check_name(name)?;
            return Ok(Expr::SystemVariable { name: name.to_owned(), global });
        }
        let name = text.trim_start_matches('@').trim_matches(['`', '\'', '"']).to_ascii_lowercase();
        let kind = self.env.map_or(Kind::Text, |env| env.user_variables.get(&name).map_or(Kind::Null, Kind::of_datum));
        // One that gets its first value in this statement may get any.
        let kind = if self.assigns && kind == Kind::Null { Kind::Text } else { kind };
        Ok(Expr::UserVariable(name, kind, self.assigns))
    }

    /// `@name := value`.
    fn assignment(&mut self, variable: &ast::Expr, value: &ast::Expr) -> Result<Expr> {
        let Expr::UserVariable(name, ..) = self.build(variable)? else { return Err(errors::syntax(":=")) };
        Ok(call(func::Func::Assign, vec![Expr::Const(Datum::text(name)), self.build(value)?]))
    }
}

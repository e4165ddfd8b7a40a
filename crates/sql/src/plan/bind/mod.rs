//! From the parser's syntax tree to expressions: names resolved, functions looked up, collations chosen.
//!
//! What is not known here is refused with 1235 and its name; nothing is approximated.

mod aggregate;
mod full_text;
mod json;
mod names;
mod number_format;
mod program;
mod rows;
mod subquery;
pub mod text;
mod window;

use apus_types::{
    collate::{Charset, Collation},
    schema::{ColumnType, TableSchema},
};
use sqlparser::ast::{
    self, BinaryOperator, DataType, DateTimeField, DuplicateTreatment, ExactNumberInfo, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator,
};

pub use aggregate::{Aggregate, AggregateKind, is_any_value};
pub use full_text::ranked;
pub use json::json_truth;
pub use window::WindowPlace;

use super::{Planner, rollup::GROUPING, scope::Scope, window::Windows};
use crate::{
    errors::{self, Result},
    expr::{
        ArithOp, CastType, ColumnRef, CompareOp, Expr, Kind,
        coercion::{self, collation_of},
        func::{self, time},
    },
    parse::{
        charset::{self, charset_named, collation_named, spoken_named},
        dialect::MATCH,
        digest,
    },
    program::routine::code::Names,
    value::{datum::Datum, decimal},
    wire::characters::Spoken,
};

/// What the grammar reads like functions, beside those of [`func`], and words that may stand in front of a parenthesis.
const NATIVE: &str = " any_value if values charset collation coercibility default grouping date_add date_sub adddate subdate timestampdiff timestampadd \
    cast convert extract position substring substr mid trim char count json_value row exists in any all some and or not xor case when then else \
    between like rlike regexp div mod is select from where having on using by as distinct limit set binary return interval match against ";

/// Whether a call of this name is never one of a stored function.
pub fn is_native(name: &str) -> bool {
    let name = name.to_lowercase();
    let is = |known: &str| known == name;
    func::NAMES.iter().any(|(known, ..)| is(known))
        || NATIVE.split_ascii_whitespace().any(is)
        || AggregateKind::of_name(&name).is_some()
        || window::is_window_function(&name)
}

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
                let is_time = matches!((expr.column_type(), expr.kind(&self.param_kinds)), (Some(_), Kind::Time(_)));
                let are_numbers = self.is_number(&low) && self.is_number(&high);
                let alone = is_time
                    && match (low.kind(&self.param_kinds), high.kind(&self.param_kinds)) {
                        (Kind::Date, Kind::Date) | (Kind::DateTime(_), Kind::DateTime(_)) => true,
                        _ => are_numbers,
                    };
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
            A::Prefixed { prefix, value } => match spoken_named(prefix.value.trim_start_matches('_'))? {
                Spoken::Own(Charset::Binary) if self.of_definition || coercion::is_utf8() => {
                    Expr::Cast(self.boxed(value)?, CastType::Bytes(None))
                }
                // Every text is written so there.
                Spoken::Own(Charset::Utf8mb4) if self.of_definition => self.build(value)?,
                Spoken::Foreign(charset) if self.of_definition => {
                    return Err(errors::not_supported(&format!("_{} in a definition", charset.name())));
                }
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

    fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Expr> {
        use BinaryOperator as B;
        if let Some(all) = is_chain(op) {
            return self.chain(left, op, right, all);
        }
        if rows::row_of(left).is_some() || rows::row_of(right).is_some() {
            return self.rows(left, op, right);
        }
        // date + INTERVAL n unit
        if let (B::Plus | B::Minus, ast::Expr::Interval(interval)) = (op, right) {
            let base = self.build(left)?;
            return self.date_add(base, interval, *op == B::Minus);
        }
        if let (ast::Expr::Interval(interval), B::Plus) = (left, op) {
            let base = self.build(right)?;
            return self.date_add(base, interval, false);
        }
        if *op == B::Assignment {
            return self.assignment(left, right);
        }
        if matches!(op, B::Arrow | B::LongArrow) {
            return self.arrow(left, op, right);
        }
        let (mut a, mut b) = (self.boxed(left)?, self.boxed(right)?);
        let is_comparison = matches!(op, B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq | B::Spaceship);
        let mut collation = Collation::default();
        if is_comparison && (self.is_json(&a) || self.is_json(&b)) {
            (*a, *b) = (json_truth(left, *a), json_truth(right, *b));
        }
        if self.is_number(&a) || *op == B::Xor {
            b = Box::new(quiet_number(as_number(*b)));
        }
        if self.is_number(&b) || *op == B::Xor {
            a = Box::new(quiet_number(as_number(*a)));
        }
        if is_comparison {
            collation = coercion::compared(&[&a, &b], &self.param_kinds, &op.to_string())?;
            (*a, *b) = (self.compared_as(collation, *a), self.compared_as(collation, *b));
            (*a, *b) = (self.fitting(&b, (*a).clone(), true), self.fitting(&a, (*b).clone(), true));
        }
        let number = |e: &Expr| Box::new(quiet_number(as_number(e.clone())));
        let arith = |op: ArithOp| match op.is_bitwise() {
            true => Ok(Expr::Arith(op, Box::new(as_number((*a).clone())), Box::new(as_number((*b).clone())))),
            false => Ok(Expr::Arith(op, number(&a), number(&b))),
        };
        let compare = |op| Ok(Expr::Compare(op, a.clone(), b.clone(), collation));
        match op {
            B::Plus => arith(ArithOp::Add),
            B::Minus if self.signed_difference => arith(ArithOp::SignedSub),
            B::Minus => arith(ArithOp::Sub),
            B::Multiply => arith(ArithOp::Mul),
            B::Divide => arith(ArithOp::Div),
            B::Modulo => arith(ArithOp::Mod),
            B::MyIntegerDivide => arith(ArithOp::IntDiv),
            B::BitwiseAnd => arith(ArithOp::BitAnd),
            B::BitwiseOr => arith(ArithOp::BitOr),
            B::BitwiseXor => arith(ArithOp::BitXor),
            B::PGBitwiseShiftLeft => arith(ArithOp::ShiftLeft),
            B::PGBitwiseShiftRight => arith(ArithOp::ShiftRight),
            B::Eq => compare(CompareOp::Eq),
            B::NotEq => compare(CompareOp::NotEq),
            B::Lt => compare(CompareOp::Lt),
            B::LtEq => compare(CompareOp::LtEq),
            B::Gt => compare(CompareOp::Gt),
            B::GtEq => compare(CompareOp::GtEq),
            B::Spaceship => Ok(Expr::NullSafeEq(a, b, collation)),
            B::Xor => Ok(Expr::Xor(a, b)),
            other => Err(errors::not_supported(&format!("operator {other}"))),
        }
    }

    /// `GROUPING(key, ...)`: whose arguments are looked for among the keys when these are known.
    fn grouping(&mut self, args: &[ast::Expr]) -> Result<Expr> {
        if !self.allow_aggregates {
            return Err(errors::invalid_group_function());
        }
        if args.is_empty() {
            return Err(errors::syntax(")"));
        }
        let list = self.list(args)?;
        self.groupings.push(list);
        Ok(Expr::Aggregate(GROUPING + self.groupings.len() - 1, Kind::Int, Collation::default()))
    }

    /// `DEFAULT(column)`, of the column's type.
    fn default_of(&self, name: &str) -> Result<Expr> {
        let table = self.table.or(self.target).ok_or_else(|| errors::unknown_column(name, self.clause))?;
        let slot = table.column_no(name).ok_or_else(|| errors::unknown_column(name, self.clause))?;
        if let (Some(planner), None) = (self.functions, self.target) {
            planner.read_values(table, slot);
        }
        let column = &table.columns[usize::from(slot)];
        let value = Box::new(super::dml::default_expr(column)?);
        let to = match Kind::of(column.ty) {
            Kind::Int => CastType::Signed,
            Kind::UInt | Kind::Bit(_) => CastType::Unsigned,
            Kind::Decimal(scale) => CastType::Decimal { precision: decimal::DIGITS_MAX as u8, scale },
            Kind::Double => CastType::Double,
            Kind::Bytes => CastType::Bytes(None),
            Kind::Date => CastType::Date,
            Kind::DateTime(n) => CastType::DateTime(n),
            Kind::Time(n) => CastType::Time(n),
            Kind::Json => CastType::Json,
            Kind::Text | Kind::Label | Kind::Null => return Ok(*value),
        };
        Ok(Expr::Cast(value, to))
    }

    /// `a OR b OR c ...`: the tree is as deep as the chain is long, so it is not followed by recursion.
    fn chain(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr, all: bool) -> Result<Expr> {
        let mut operands = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp { left, op: other, right } = rest
            && is_chain(other) == is_chain(op)
        {
            operands.push(right);
            rest = left;
        }
        operands.push(rest);
        let built = operands
            .into_iter()
            .rev()
            .map(|e| Ok(quiet_number(as_number(self.build(e)?))))
            .collect::<Result<Vec<_>>>()?;
        Ok(if all { Expr::And(built) } else { Expr::Or(built) })
    }

    /// A constant beside `other` takes the type of a column of exact numbers, and of everything that is a moment.
    fn fitting(&self, other: &Expr, constant: Expr, alone: bool) -> Expr {
        let kind = other.kind(&self.param_kinds);
        let is_moment = matches!(kind, Kind::Date | Kind::DateTime(_));
        // A column of the query around is another value for each of its rows.
        if constant.any(|e| matches!(e, Expr::Given(_, ty, _) if ty.is_text())) {
            return constant;
        }
        let has_given = constant.any(|e| matches!(e, Expr::Given(..)));
        let of_column = match other {
            Expr::Given(_, _, is_column) => *is_column && !has_given,
            other => other.column_type().is_some(),
        };
        let number = |e| of_column && self.is_number(e);
        let is_time = of_column && matches!(kind, Kind::Time(_));
        if is_time
            && alone
            && matches!(constant.kind(&self.param_kinds), Kind::Date | Kind::DateTime(_))
            && constant.is_constant()
            && !has_given
        {
            return Expr::Cast(Box::new(constant), CastType::Time(6));
        }
        let may_be_fraction = |e: &Expr| matches!(e.kind(&self.param_kinds), Kind::Decimal(_) | Kind::Double);
        let takes_digits = constant.kind(&self.param_kinds).is_text() || alone && may_be_fraction(&constant);
        if is_time && takes_digits && constant.is_constant() {
            return Expr::Cast(Box::new(constant), CastType::Moment { kind, alone, of_column });
        }
        if is_moment && (constant.kind(&self.param_kinds).is_text() || number(&constant)) && constant.is_constant() {
            return Expr::Cast(Box::new(constant), CastType::Moment { kind, alone, of_column });
        }
        exact(other, constant)
    }

    /// A column of years in a list of several. MySQL takes none of them for a year of two digits: they are compared as numbers, or as texts if none is one.
    fn among_years(&self, column: Expr, list: Vec<Expr>) -> (Expr, Vec<Expr>) {
        if list.iter().any(|e| self.is_number(e)) {
            let is_text = |e: &Expr| e.is_constant() && e.kind(&self.param_kinds).is_text();
            let number = |e| Expr::Cast(Box::new(e), CastType::Exact { decimal: false });
            return (column, list.into_iter().map(|e| if is_text(&e) { number(e) } else { e }).collect());
        }
        if list.iter().all(Expr::is_constant) {
            let years = list.into_iter().map(|e| Expr::Cast(Box::new(e), CastType::Year { alone: false }));
            return (column, years.collect());
        }
        (Expr::Cast(Box::new(column), CastType::Text(None)), list)
    }

    /// Whether this is known to be a number.
    fn is_number(&self, e: &Expr) -> bool {
        matches!(e.kind(&self.param_kinds), Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double | Kind::Bit(_))
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

    fn date_add(&mut self, base: Expr, interval: &ast::Interval, subtract: bool) -> Result<Expr> {
        let unit = interval.leading_field.as_ref().map(unit_name).unwrap_or_default();
        if !time::is_unit(&unit) || interval.last_field.is_some() {
            return Err(errors::not_supported(&format!("INTERVAL ... {unit}")));
        }
        let count = self.build(&interval.value)?;
        let f = if subtract { func::Func::DateSub } else { func::Func::DateAdd };
        Ok(call(f, vec![base, count, Expr::Const(Datum::text(unit))]))
    }

    fn function(&mut self, f: &ast::Function) -> Result<Expr> {
        let name = f.name.to_string().trim_matches('`').to_ascii_lowercase();
        if let Some(over) = &f.over {
            return self.window_function(&name, f, over);
        }
        if window::is_window_function(&name) {
            return Err(errors::syntax(&f.to_string()));
        }
        let (args, distinct, clauses) = match &f.args {
            FunctionArguments::None => (&[][..], false, &[][..]),
            FunctionArguments::List(l) => {
                (&l.args[..], l.duplicate_treatment == Some(DuplicateTreatment::Distinct), &l.clauses[..])
            }
            FunctionArguments::Subquery(_) => return Err(errors::not_supported("subqueries")),
        };
        if let Some(aggregate) = self.aggregate(&name, args, distinct, clauses)? {
            return Ok(aggregate);
        }
        let plain = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Ok(e.clone()),
            _ => Err(errors::syntax(&f.to_string())),
        };
        let args = args.iter().map(plain).collect::<Result<Vec<_>>>()?;
        match (name.as_str(), &args[..]) {
            ("values", [ast::Expr::Identifier(column)]) if self.allow_values => {
                let unknown = || errors::unknown_column(&column.value, self.clause);
                if let Some(scope) = &self.scope {
                    let Some(Expr::Column(c)) = scope.column(&column.value, self.clause)? else {
                        return Err(unknown());
                    };
                    if let Some(planner) = self.planner {
                        planner.read_name(scope, &[], &column.value);
                    }
                    return Ok(Expr::NewColumn(c));
                }
                let table = self.table.ok_or_else(errors::invalid_group_function)?;
                let slot = table.column_no(&column.value).ok_or_else(unknown)?;
                if let Some(planner) = self.functions {
                    planner.read_values(table, slot);
                }
                return Ok(Expr::NewColumn(ColumnRef { slot, ty: table.columns[usize::from(slot)].ty }));
            }
            ("charset" | "collation" | "coercibility", [of]) => {
                let of = self.build(of)?;
                return Ok(self.text_property(&name, &of));
            }
            ("json_value", [_, _, _, _, _]) => return self.json_value(&args),
            (MATCH, [mode, query, columns @ ..]) => return self.match_against(mode, query, columns),
            ("grouping", _) => return self.grouping(&args),
            ("default", [ast::Expr::Identifier(column)]) => return self.default_of(&column.value),
            ("default", [ast::Expr::CompoundIdentifier(parts)]) => {
                return self.default_of(parts.last().map_or("", |p| &p.value));
            }
            ("date_add" | "adddate" | "date_sub" | "subdate", [base, ast::Expr::Interval(interval)]) => {
                let base = self.build(base)?;
                return self.date_add(base, interval, name.contains("sub"));
            }
            ("adddate" | "subdate", [base, days]) => {
                let f = if name == "subdate" { func::Func::DateSub } else { func::Func::DateAdd };
                let unit = Expr::Const(Datum::text("day"));
                return Ok(call(f, vec![self.build(base)?, self.build(days)?, unit]));
            }
            ("timestampdiff" | "timestampadd", [ast::Expr::Identifier(unit), a, b]) => {
                let unit = unit.value.to_ascii_lowercase();
                if !time::is_unit(&unit) || time::is_compound(&unit) {
                    return Err(errors::not_supported(&format!("{name} of {unit}")));
                }
                let (a, b) = (self.build(a)?, self.build(b)?);
                let unit = Expr::Const(Datum::text(unit));
                return Ok(if name == "timestampdiff" {
                    call(func::Func::TimestampDiff, vec![a, b, unit])
                } else {
                    call(func::Func::DateAdd, vec![b, a, unit])
                });
            }
            _ => {}
        }
        let Some(function) = func::lookup(&name, args.len())? else {
            return self.stored_function(f, &args);
        };
        if function.is_json() {
            return Ok(call(function, self.json_arguments(function, &args)?));
        }
        let args = self.list(&args)?;
        let args = self.read_by(function, args);
        let args = if text::sees_bytes(function) { self.encoded(args) } else { self.put_together(args) };
        let args = if function.is_numeric() { args.into_iter().map(as_number).collect() } else { args };
        let args = self.bits_as(function, args);
        if matches!(function, func::Func::Instr | func::Func::Locate) {
            return Ok(self.looking(function, args));
        }
        if matches!(function, func::Func::NullIf | func::Func::Strcmp | func::Func::FindInSet) {
            let compared: Vec<&Expr> = args.iter().collect();
            let collation = coercion::compared(&compared, &self.param_kinds, &name)?;
            let args = match <[Expr; 2]>::try_from(args) {
                Ok([value, other]) if function == func::Func::NullIf => {
                    let value = if self.is_number(&other) { as_number(value) } else { value };
                    let other = exact(&value, other);
                    vec![value, other]
                }
                Ok(two) => two.into(),
                Err(args) => args,
            };
            return Ok(Expr::Call(function, args, collation));
        }
        Ok(self.chosen(call(function, args)))
    }

    /// Columns of BIT as what a function makes of them: numbers, or bytes whose case is none.
    fn bits_as(&self, function: func::Func, args: Vec<Expr>) -> Vec<Expr> {
        use func::Func;
        let is_bits = |e: &Expr| matches!(e.kind(&self.param_kinds), Kind::Bit(_) | Kind::Null);
        let to = match function {
            Func::Upper | Func::Lower => CastType::Bytes(None),
            Func::Bin | Func::Oct | Func::Conv => CastType::Unsigned,
            Func::Coalesce | Func::IfNull | Func::Greatest | Func::Least if args.iter().all(is_bits) => {
                CastType::Unsigned
            }
            _ if function.is_numeric() => CastType::Unsigned,
            _ => return args,
        };
        let cast = |e: Expr| match e.kind(&self.param_kinds) {
            Kind::Bit(_) => Expr::Cast(Box::new(e), to),
            _ => e,
        };
        args.into_iter().map(cast).collect()
    }

    /// An expression that chooses among numbers of several kinds gives them the kind that holds all.
    fn chosen(&self, e: Expr) -> Expr {
        use func::Func;
        let (choices, scaled): (Vec<&Expr>, bool) = match &e {
            Expr::Case { whens, otherwise, .. } => {
                (whens.iter().map(|(_, then)| then).chain(otherwise.as_deref()).collect(), false)
            }
            Expr::Call(Func::If, args, _) => (args[1..].iter().collect(), false),
            Expr::Call(Func::IfNull | Func::Coalesce | Func::Greatest | Func::Least, args, _) => {
                (args.iter().collect(), true)
            }
            _ => return e,
        };
        let kind = e.kind(&self.param_kinds);
        let is_mixed = choices.iter().any(|c| !matches!(c.kind(&self.param_kinds), k if k == kind || k == Kind::Null));
        match kind {
            Kind::Double | Kind::Decimal(_) if is_mixed => Expr::Cast(Box::new(e), CastType::Chosen { kind, scaled }),
            // A time is one of today.
            Kind::DateTime(n) if is_mixed => Expr::Cast(Box::new(e), CastType::DateTime(n)),
            _ => e,
        }
    }
}

fn call(f: func::Func, args: Vec<Expr>) -> Expr {
    let collation = coercion::carried(&args, &[]);
    Expr::Call(f, args, collation)
}

/// A constant beside a column of exact numbers takes the column's type.
fn exact(column: &Expr, constant: Expr) -> Expr {
    let is_exact = |ty| {
        matches!(ty, ColumnType::Int { .. } | ColumnType::Decimal { .. } | ColumnType::Year | ColumnType::Bit { .. })
    };
    let may_be_text =
        !matches!(constant, Expr::Const(Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. } | Datum::Null));
    if !constant.is_constant() || constant.any(|e| matches!(e, Expr::Given(..))) {
        return constant;
    }
    let ty = match column {
        Expr::NewColumn(c) if c.ty != ColumnType::Year => Some(c.ty),
        other => other.column_type(),
    };
    match ty {
        Some(ColumnType::Year) => Expr::Cast(Box::new(constant), CastType::Year { alone: true }),
        Some(ty) if is_exact(ty) && may_be_text => {
            Expr::Cast(Box::new(constant), CastType::Exact { decimal: matches!(ty, ColumnType::Decimal { .. }) })
        }
        _ => constant,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

fn placeholder(text: &str) -> Result<Expr> {
    let number = text.strip_prefix('?').and_then(|n| n.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
    match number {
        Some(n) if n >= digest::BINARY_LITERAL => Ok(binary_literal(Expr::Param(n - digest::BINARY_LITERAL))),
        Some(n) => Ok(Expr::Param(n)),
        None => Err(errors::syntax(text)),
    }
}

fn binary_literal(bytes: Expr) -> Expr {
    Expr::Call(func::Func::BinaryLiteral, vec![bytes], Collation::Binary)
}

/// A hexadecimal or bit literal where a number is wanted; everything else as it is.
pub fn as_number(e: Expr) -> Expr {
    match e {
        Expr::Call(func::Func::BinaryLiteral, bytes, c) => Expr::Call(func::Func::BinaryNumber, bytes, c),
        other => other,
    }
}

/// The column of a TEXT where a number is wanted: what of it is none is not warned of, in MySQL.
pub fn quiet_number(e: Expr) -> Expr {
    match e.column_type() {
        Some(ColumnType::Text { .. }) => Expr::Cast(Box::new(e), CastType::Quiet),
        _ => e,
    }
}

/// Whether an operator is AND (`true`) or OR (`false`).
fn is_chain(op: &BinaryOperator) -> Option<bool> {
    use BinaryOperator as B;
    match op {
        B::And | B::PGOverlap => Some(true), // && is AND in MySQL
        B::Or | B::StringConcat => Some(false),
        _ => None,
    }
}

fn value(v: &ast::Value) -> Result<Expr> {
    use ast::Value as V;
    Ok(match v {
        V::Number(n, _) => Expr::Const(digest::number(n.as_bytes())?),
        V::SingleQuotedString(s) | V::DoubleQuotedString(s) | V::NationalStringLiteral(s) => {
            Expr::Const(Datum::text(s.clone()))
        }
        V::HexStringLiteral(s) => binary_literal(Expr::Const(Datum::Bytes(digest::from_hex(s.as_bytes()).into()))),
        V::SingleQuotedByteStringLiteral(s) if s.bytes().all(|b| matches!(b, b'0' | b'1')) => {
            binary_literal(Expr::Const(Datum::Bytes(digest::from_bits(s.as_bytes()).into())))
        }
        V::Boolean(b) => Expr::Const(Datum::from_bool(*b)),
        V::Null => Expr::Const(Datum::Null),
        V::Placeholder(p) => placeholder(p)?,
        other => return Err(errors::not_supported(&shorten(&other.to_string()))),
    })
}

fn unit_name(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase()
}

fn cast_type(ty: &DataType) -> Result<CastType> {
    let small = |n: &Option<u64>| n.map_or(0, |n| n.min(6) as u8);
    let length = |n: &Option<ast::CharacterLength>| match n {
        Some(ast::CharacterLength::IntegerLength { length, .. }) => u32::try_from(*length).ok(),
        _ => None,
    };
    Ok(match ty {
        DataType::Signed | DataType::SignedInteger | DataType::BigInt(_) | DataType::Int(_) | DataType::Integer(_) => {
            CastType::Signed
        }
        DataType::Unsigned | DataType::UnsignedInteger => CastType::Unsigned,
        DataType::Decimal(i) | DataType::Numeric(i) | DataType::Dec(i) => match *i {
            ExactNumberInfo::None => CastType::Decimal { precision: 10, scale: 0 },
            ExactNumberInfo::Precision(p) => CastType::Decimal { precision: p.min(38) as u8, scale: 0 },
            ExactNumberInfo::PrecisionAndScale(p, s) => {
                CastType::Decimal { precision: p.min(38) as u8, scale: s.clamp(0, 30) as u8 }
            }
        },
        DataType::Float(ExactNumberInfo::None) => CastType::Float,
        DataType::Float(ExactNumberInfo::Precision(p)) if *p <= 24 => CastType::Float,
        DataType::Double(_) | DataType::Float(_) | DataType::Real | DataType::DoublePrecision => CastType::Double,
        DataType::Char(n) | DataType::Character(n) | DataType::Varchar(n) | DataType::Nvarchar(n) => {
            CastType::Text(length(n))
        }
        DataType::Text => CastType::Text(None),
        DataType::Binary(n) => CastType::Bytes(n.and_then(|n| u32::try_from(n).ok())),
        DataType::Date => CastType::Date,
        DataType::Datetime(n) | DataType::Timestamp(n, _) => CastType::DateTime(small(n)),
        DataType::Time(n, _) => CastType::Time(small(n)),
        DataType::JSON => CastType::Json,
        other if other.to_string().eq_ignore_ascii_case("year") => CastType::AsYear,
        other => return Err(errors::not_supported(&format!("CAST AS {other}"))),
    })
}

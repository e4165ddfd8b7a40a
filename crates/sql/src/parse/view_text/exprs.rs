//! Expressions: every operation in parentheses.

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::{
    Writer,
    definition::{Special, array_element},
    logic, refused,
};
use crate::errors::{self, Result};

impl Writer<'_> {
    pub(super) fn exprs(&mut self, list: &[ast::Expr]) -> Result<()> {
        self.list(list, |w, e| w.expr(e))
    }

    #[allow(clippy::too_many_lines)] // one arm for each form, as in the binder
    pub(super) fn expr(&mut self, e: &ast::Expr) -> Result<()> {
        use ast::Expr as A;
        let not = |negated: bool| if negated { "not " } else { "" };
        match e {
            A::Identifier(i) if i.quote_style == Some('"') => self.text(&i.value),
            A::Identifier(i) if i.quote_style.is_none() && i.value.starts_with('@') => {
                if self.notes_variable() {
                    return Ok(());
                }
                return Err(errors::view_with_variable());
            }
            A::Identifier(i) => match self.notes.and_then(|n| n.names.get(&i.span.start)) {
                Some((database, table, column)) => self.column(database, table, column),
                None => self.plain_column(&i.value),
            },
            A::CompoundIdentifier(parts) if self.definition.is_some() => match parts.as_slice() {
                [first, ..] if first.value.starts_with('@') => self.note(Special::Variable),
                [.., last] => self.plain_column(&last.value),
                [] => {}
            },
            A::CompoundIdentifier(parts) => {
                let meant = parts.last().and_then(|i| self.notes.and_then(|n| n.names.get(&i.span.start)));
                match (meant, parts.as_slice()) {
                    (Some((database, table, column)), _) => self.column(database, table, column),
                    (None, [table, column]) => self.column("", &table.value, &column.value),
                    (None, [database, table, column]) => self.column(&database.value, &table.value, &column.value),
                    _ => return Err(errors::syntax(&e.to_string())),
                }
            }
            A::Value(v) => self.value(&v.value)?,
            A::Nested(inner) => self.expr(inner)?,
            A::BinaryOp { .. }
            | A::UnaryOp { .. }
            | A::IsTrue(_)
            | A::IsNotTrue(_)
            | A::IsFalse(_)
            | A::IsNotFalse(_)
                if self.definition.is_some() && logic::written(e).is_some() =>
            {
                if let Some(other) = logic::written(e) {
                    self.expr(&other)?;
                }
            }
            A::BinaryOp { left, op: BinaryOperator::MyIntegerDivide, right } if self.definition.is_some() => {
                self.pair(left, "DIV", right)?;
            }
            A::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                let word = format!(" {} ", op.to_string().to_ascii_lowercase());
                self.put("(");
                for (i, term) in Self::terms(e, op).iter().enumerate() {
                    self.put(if i > 0 { &word } else { "" });
                    self.expr(term)?;
                }
                self.put(")");
            }
            A::BinaryOp { left, op: op @ (BinaryOperator::Plus | BinaryOperator::Minus), right } => {
                match (&**left, &**right) {
                    (moment, A::Interval(by)) | (A::Interval(by), moment) => {
                        self.put("(");
                        self.expr(moment)?;
                        self.put(&format!(" {op} "));
                        self.interval(by)?;
                        self.put(")");
                    }
                    _ => self.pair(left, &op.to_string(), right)?,
                }
            }
            A::MemberOf(m) => {
                self.expr(&m.value)?;
                self.put(" member of (");
                self.expr(&m.array)?;
                self.put(")");
            }
            A::BinaryOp { left, op: BinaryOperator::Arrow, right } => self.call("json_extract", &[left, right])?,
            A::BinaryOp { left, op: BinaryOperator::LongArrow, right } => {
                self.put("json_unquote(");
                self.call("json_extract", &[left, right])?;
                self.put(")");
            }
            A::BinaryOp { left, op, right } => self.pair(left, &op.to_string().to_ascii_lowercase(), right)?,
            A::UnaryOp { op: UnaryOperator::Plus, expr } => self.expr(expr)?,
            A::UnaryOp { op: UnaryOperator::Minus, expr } => self.call("-", &[expr])?,
            A::UnaryOp { op: UnaryOperator::Not | UnaryOperator::BangNot, expr } => {
                self.put("(");
                self.call("not", &[expr])?;
                self.put(")");
            }
            A::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => self.call("~", &[expr])?,
            A::IsNull(e) => self.behind(e, "is null")?,
            A::IsNotNull(e) => self.behind(e, "is not null")?,
            A::IsUnknown(e) => self.behind(e, "is null")?,
            A::IsNotUnknown(e) => self.behind(e, "is not null")?,
            A::IsTrue(e) => self.behind(e, "is true")?,
            A::IsNotTrue(e) => self.behind(e, "is not true")?,
            A::IsFalse(e) => self.behind(e, "is false")?,
            A::IsNotFalse(e) => self.behind(e, "is not false")?,
            A::InList { expr, list, negated } => {
                self.put("(");
                self.expr(expr)?;
                self.put(&format!(" {}in (", not(*negated)));
                self.exprs(list)?;
                self.put("))");
            }
            A::Between { expr, negated, low, high } => {
                self.put("(");
                self.expr(expr)?;
                self.put(&format!(" {}between ", not(*negated)));
                self.expr(low)?;
                self.put(" and ");
                self.expr(high)?;
                self.put(")");
            }
            A::Like { negated, any: false, expr, pattern, escape_char } => {
                self.put(if *negated { "(not((" } else { "(" });
                self.expr(expr)?;
                self.put(" like ");
                self.expr(pattern)?;
                if let Some(escape) = escape_char {
                    self.put(" escape ");
                    self.expr(escape)?;
                }
                self.put(if *negated { ")))" } else { ")" });
            }
            A::RLike { negated, expr, pattern, .. } => {
                self.put(if *negated { "(not(" } else { "" });
                self.call("regexp_like", &[expr, pattern])?;
                self.put(if *negated { "))" } else { "" });
            }
            A::Case { operand, conditions, else_result, .. } => {
                self.put("(case ");
                if let Some(operand) = operand {
                    self.expr(operand)?;
                    self.put(" ");
                }
                for when in conditions {
                    self.put("when ");
                    self.expr(&when.condition)?;
                    self.put(" then ");
                    self.expr(&when.result)?;
                    self.put(" ");
                }
                if let Some(otherwise) = else_result {
                    self.put("else ");
                    self.expr(otherwise)?;
                    self.put(" ");
                }
                self.put("end)");
            }
            A::Cast { expr, data_type, .. } | A::Convert { expr, data_type: Some(data_type), charset: None, .. } => {
                self.put("cast(");
                self.expr(expr)?;
                if let ast::DataType::Array(ast::ArrayElemTypeDef::Qualified(element, None)) = data_type {
                    self.put(&format!(" as {} array)", array_element(element)));
                } else {
                    self.put(&format!(" as {}", data_type.to_string().to_ascii_lowercase()));
                    self.cast_end(data_type);
                }
            }
            A::Convert { expr, data_type: None, charset: Some(charset), .. } => {
                self.put("convert(");
                self.expr(expr)?;
                self.put(&format!(" using {})", charset.to_string().to_ascii_lowercase()));
            }
            A::Collate { expr, collation } => {
                self.put("(");
                self.expr(expr)?;
                self.put(&format!(" collate {collation})"));
            }
            A::Function(f) => self.function(f)?,
            A::Substring { expr, substring_from, substring_for, .. } => {
                let mut args = vec![&**expr];
                args.extend(substring_from.as_deref());
                args.extend(substring_for.as_deref());
                self.call("substr", &args)?;
            }
            A::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                self.put("trim(");
                let side = trim_where.as_ref().map(|w| w.to_string().to_ascii_lowercase());
                self.put(&side.clone().map_or_else(String::new, |side| format!("{side} ")));
                if let Some(what) = trim_what {
                    self.expr(what)?;
                    self.put(" ");
                }
                self.put(if side.is_some() || trim_what.is_some() { "from " } else { "" });
                self.expr(expr)?;
                self.put(")");
            }
            A::Floor { expr, .. } => self.call("floor", &[expr])?,
            A::Ceil { expr, .. } => self.call("ceiling", &[expr])?,
            A::Position { expr, r#in } => self.call("locate", &[expr, r#in])?,
            A::Extract { field, expr, .. } => {
                self.put(&format!("extract({} from ", field.to_string().to_ascii_lowercase()));
                self.expr(expr)?;
                self.put(")");
            }
            A::TypedString(t) => {
                self.typed(&t.data_type.to_string().to_ascii_uppercase(), &t.value.value)?;
            }
            A::Prefixed { prefix, value } => {
                self.prefixed(&prefix.value, value)?;
            }
            A::Tuple(list) => {
                self.put("(");
                self.exprs(list)?;
                self.put(")");
            }
            A::Subquery(_) | A::Exists { .. } | A::InSubquery { .. } | A::AnyOp { .. } | A::AllOp { .. }
                if self.definition.is_some() =>
            {
                self.note(Special::Subquery);
            }
            A::Subquery(query) => self.subquery(query)?,
            A::Exists { subquery, negated } => {
                self.put(if *negated { "(not(exists" } else { "exists" });
                self.subquery(subquery)?;
                self.put(if *negated { "))" } else { "" });
            }
            A::InSubquery { expr, subquery, negated } => {
                self.put(if *negated { "(" } else { "" });
                self.expr(expr)?;
                self.put(&format!(" {}in ", not(*negated)));
                self.subquery(subquery)?;
                self.put(if *negated { ")" } else { "" });
            }
            A::AnyOp { left, compare_op, right, .. } => {
                self.put("(");
                self.expr(left)?;
                self.put(&format!(" {compare_op} any "));
                self.expr(right)?;
                self.put(")");
            }
            A::AllOp { left, compare_op, right } => {
                self.put("(");
                self.expr(left)?;
                self.put(&format!(" {compare_op} all "));
                self.expr(right)?;
                self.put(")");
            }
            other => return Err(refused(&other.to_string())),
        }
        Ok(())
    }

    pub(super) fn value(&mut self, v: &ast::Value) -> Result<()> {
        use ast::Value as V;
        let text = match v {
            V::SingleQuotedString(s) | V::DoubleQuotedString(s) => {
                self.text(s);
                return Ok(());
            }
            V::NationalStringLiteral(s) if self.definition.is_some() => {
                self.text(s);
                return Ok(());
            }
            V::Number(n, _) => n.clone(),
            V::HexStringLiteral(s) => format!("0x{s}"),
            V::SingleQuotedByteStringLiteral(s) => format!("b'{s}'"),
            V::Boolean(b) => b.to_string(),
            V::Null => "NULL".to_owned(),
            V::Placeholder(name) if name.starts_with('@') && self.notes_variable() => return Ok(()),
            V::Placeholder(_) if self.definition.is_some() => return Err(errors::syntax("?")),
            V::Placeholder(_) => return Err(errors::view_with_variable()),
            other => return Err(refused(&other.to_string())),
        };
        self.put(&text);
        Ok(())
    }

    /// `(a op b)`
    fn pair(&mut self, a: &ast::Expr, op: &str, b: &ast::Expr) -> Result<()> {
        self.put("(");
        self.expr(a)?;
        self.put(&format!(" {op} "));
        self.expr(b)?;
        self.put(")");
        Ok(())
    }

    fn behind(&mut self, e: &ast::Expr, words: &str) -> Result<()> {
        self.put("(");
        self.expr(e)?;
        self.put(&format!(" {words})"));
        Ok(())
    }

    /// `name(a,b)`
    fn call(&mut self, name: &str, args: &[&ast::Expr]) -> Result<()> {
        self.put(&format!("{name}("));
        self.list(args, |w, e| w.expr(e))?;
        self.put(")");
        Ok(())
    }

    /// A subquery in parentheses.
    fn subquery(&mut self, query: &ast::Query) -> Result<()> {
        self.lists_subquery |= self.in_select_list;
        self.put("(");
        self.query(query, false)?;
        self.put(")");
        Ok(())
    }

    /// Parts of a chain of ANDs or ORs, in order.
    fn terms(e: &ast::Expr, op: &BinaryOperator) -> Vec<ast::Expr> {
        let (mut found, mut left) = (Vec::new(), vec![e]);
        while let Some(e) = left.pop() {
            match e {
                ast::Expr::Nested(inner) => left.push(inner),
                ast::Expr::BinaryOp { left: a, op: own, right: b } if own == op => left.extend([&**b, &**a]),
                other => found.push(other.clone()),
            }
        }
        found
    }
}

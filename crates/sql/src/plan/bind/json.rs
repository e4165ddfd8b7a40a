//! What is written about JSON: operators, truth values as parts of documents, comparisons that do not know documents.

use apus_types::collate::Collation;
use sqlparser::ast::{self, BinaryOperator};

use super::{Builder, func::Func, function::call};
use crate::{
    errors::{self, Result},
    expr::{CastType, Expr, Kind, json},
    value::datum::Datum,
};

impl Builder<'_> {
    /// `column -> path`, `column ->> path`.
    pub(super) fn arrow(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Expr> {
        if !matches!(left, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)) {
            return Err(errors::syntax(&format!("{op}{right}")));
        }
        let is_text = match right {
            ast::Expr::Value(v) => matches!(
                v.value,
                ast::Value::SingleQuotedString(_) | ast::Value::DoubleQuotedString(_) | ast::Value::Placeholder(_)
            ),
            _ => false,
        };
        if !is_text {
            return Err(errors::syntax(&right.to_string()));
        }
        let part = call(Func::JsonExtract, vec![self.build(left)?, self.build(right)?]);
        Ok(if *op == BinaryOperator::LongArrow { call(Func::JsonUnquote, vec![part]) } else { part })
    }

    /// Arguments of a function of JSON: what is true or false becomes a part of a document as that.
    pub(super) fn json_arguments(&mut self, f: Func, args: &[ast::Expr]) -> Result<Vec<Expr>> {
        let mut list = Vec::with_capacity(args.len());
        for (i, arg) in args.iter().enumerate() {
            let built = self.build(arg)?;
            let is_key = f == Func::JsonObject && i % 2 == 0;
            list.push(match f.takes_value(i) {
                true => json_truth(arg, built),
                false if is_key => self.as_text(built),
                false => built,
            });
        }
        Ok(list)
    }

    /// `JSON_VALUE`, as the dialect reads it: where an error is wanted stands an empty text of bytes.
    pub(super) fn json_value(&mut self, args: &[ast::Expr]) -> Result<Expr> {
        let mut list = Vec::with_capacity(args.len());
        for arg in args {
            let is_error = matches!(arg, ast::Expr::Function(f) if f.name.to_string() == " error");
            list.push(if is_error { Expr::Const(Datum::Bytes(b"".into())) } else { self.build(arg)? });
        }
        Ok(call(Func::JsonValue, list))
    }

    pub(super) fn is_json(&self, e: &Expr) -> bool {
        e.kind(&self.param_kinds) == Kind::Json
    }

    /// The parts of a BETWEEN among which is a document: texts where all others are, else numbers.
    pub(super) fn between_json(&self, parts: [Expr; 3]) -> Result<[Expr; 3]> {
        if !parts.iter().any(|e| self.is_json(e)) {
            return Ok(parts);
        }
        if self.from_digest && parts.iter().any(Expr::has_param) {
            return Err(errors::structural());
        }
        let are_texts = parts.iter().all(|e| self.is_json(e) || e.kind(&self.param_kinds) == Kind::Text);
        let [mut value, low, high] = parts.map(|e| match (are_texts, self.is_json(&e)) {
            (true, true) => {
                let text = Expr::Cast(Box::new(e), CastType::Text(None));
                Expr::Call(Func::Collate, vec![text], Collation::Utf8mb4Bin)
            }
            (true, false) => e,
            (false, _) => Expr::Cast(Box::new(e), CastType::Double),
        });
        value = call(Func::JsonRemark, vec![value, Expr::Const(Datum::text(json::BETWEEN))]);
        Ok([value, low, high])
    }
}

/// A truth value as JSON has it; everything else as it is.
pub fn json_truth(written: &ast::Expr, built: Expr) -> Expr {
    match &built {
        _ if is_written_truth(written) => {}
        Expr::Compare(..)
        | Expr::NullSafeEq(..)
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::Xor(..)
        | Expr::Not(_)
        | Expr::IsNull { .. }
        | Expr::IsTruth { .. }
        | Expr::In { .. }
        | Expr::Between { .. }
        | Expr::Like { .. } => {}
        Expr::Call(f, ..) if f.is_truth() => {}
        _ => return built,
    }
    call(Func::JsonTruth, vec![built])
}

fn is_written_truth(e: &ast::Expr) -> bool {
    match e {
        ast::Expr::Nested(inner) => is_written_truth(inner),
        ast::Expr::Value(v) => matches!(v.value, ast::Value::Boolean(_)),
        ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => true,
        ast::Expr::AnyOp { .. } | ast::Expr::AllOp { .. } => true,
        _ => false,
    }
}

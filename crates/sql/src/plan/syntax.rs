//! From the text of a statement to its syntax tree: what the parser is given, and what of MySQL's it lacks.

use std::borrow::Cow;

use sqlparser::{
    ast::{self, SetExpr, Statement},
    dialect::MySqlDialect,
    parser::Parser,
};

use super::into;
use crate::{
    errors::{self, Result},
    parse::{dialect, nesting, token},
    variables::NO_LIMIT,
};

/// Deepest nesting that the parser follows.
const PARSER_DEPTH: usize = 100;

/// `LOCK IN SHARE MODE` at the end of a normal form, which the parser does not know, as `FOR SHARE`. A string literal cannot be
/// meant: it would end in its quote.
fn for_share(text: &str) -> Cow<'_, str> {
    let mut words = text.rsplitn(5, ' ');
    let tail = ["mode", "share", "in", "lock"];
    let matches = tail.iter().all(|want| words.next().is_some_and(|word| word.eq_ignore_ascii_case(want)));
    match words.next() {
        Some(head) if matches => Cow::Owned(format!("{head} FOR SHARE")),
        _ => Cow::Borrowed(text),
    }
}

/// `a MOD b`, which the parser does not know, as `a % b`. MOD is a reserved word: outside of quotes, without a parenthesis
/// behind it, it is the operator.
fn modulo(text: Cow<'_, str>) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        match (b, quote) {
            (b'\\', Some(b'\'' | b'"')) => at += 1,
            (b, Some(q)) if b == q => quote = None,
            (b'\'' | b'"' | b'`', None) => quote = Some(b),
            (b' ', None)
                if bytes.get(at + 1..at + 5).is_some_and(|w| w.eq_ignore_ascii_case(b"mod "))
                    && bytes.get(at + 5) != Some(&b'(') =>
            {
                found.push(at + 1);
            }
            _ => {}
        }
        at += 1;
    }
    if found.is_empty() {
        return text;
    }
    let mut out = text.into_owned();
    for at in found.into_iter().rev() {
        out.replace_range(at..at + 3, "%");
    }
    Cow::Owned(out)
}

/// `UPDATE a, b SET`, which the parser does not know, as a CROSS JOIN; not beside NATURAL and USING, for which a comma is more.
pub(super) fn listed(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.get(..7).is_some_and(|t| t.eq_ignore_ascii_case("update ")) {
        return text;
    }
    let bytes = text.as_bytes();
    let (mut commas, mut depth, mut at) = (Vec::new(), 0usize, 7);
    while let Some(&b) = bytes.get(at) {
        let begin = at;
        at += 1;
        match b {
            b'\'' | b'"' | b'`' => at = token::behind_quoted(bytes, begin),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => commas.push(begin),
            b if token::is_word(b) => {
                while bytes.get(at).is_some_and(|b| token::is_word(*b)) {
                    at += 1;
                }
                let is = |word: &str| word.eq_ignore_ascii_case(&text[begin..at]);
                if depth == 0 && is("set") {
                    break;
                }
                if is("natural") || is("using") {
                    return text;
                }
            }
            _ => {}
        }
    }
    if commas.is_empty() {
        return text;
    }
    let mut out = text.into_owned();
    for at in commas.into_iter().rev() {
        out.replace_range(at..at + 1, " CROSS JOIN ");
    }
    Cow::Owned(out)
}

/// A text as the parser gets it.
pub fn prepared(text: &str) -> Cow<'_, str> {
    into::tables(listed(modulo(for_share(text))))
}

/// Parses one query or row-changing statement.
pub fn parse(text: &str) -> Result<Statement> {
    nesting::check(text)?;
    let prepared = prepared(text);
    let dialect = dialect::ApusDialect(MySqlDialect {});
    let statements = Parser::new(&dialect)
        .with_recursion_limit(PARSER_DEPTH)
        .try_with_sql(&prepared)
        .and_then(|mut p| p.parse_statements())
        .map_err(|e| errors::syntax_message(&e.to_string()))?;
    match <[Statement; 1]>::try_from(statements) {
        Ok([one]) => Ok(one),
        Err(_) => Err(errors::syntax(text)),
    }
}

/// A statement whose outermost SELECT names no limit, with this one.
pub fn limited(mut statement: Statement, limit: u64) -> Statement {
    if limit == NO_LIMIT {
        return statement;
    }
    let Statement::Query(outermost) = &mut statement else { return statement };
    let mut query = &mut **outermost;
    while query.limit_clause.is_none() && query.order_by.is_none() && matches!(&*query.body, SetExpr::Query(_)) {
        let SetExpr::Query(inner) = &mut *query.body else { break };
        query = inner;
    }
    query.limit_clause.get_or_insert_with(|| {
        let number = ast::Value::Number(limit.to_string(), false).into();
        ast::LimitClause::LimitOffset { limit: Some(ast::Expr::Value(number)), offset: None, limit_by: Vec::new() }
    });
    statement
}

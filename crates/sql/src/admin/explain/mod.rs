//! EXPLAIN: which form is asked for of what, and what each of them says of a plan.
//!
//! - [`columns`]: a row for each table. [`steps`]: the steps of a plan, with [`names`] for what they compute, [`reads`] for how they read tables and [`joins`] for how
//!   they join them; [`tree`] prints them as text and [`json`] as a document.
//! - [`run`]: answers the statement. [`connection`]: that of another connection.

pub mod columns;
pub mod connection;
mod joins;
pub mod json;
mod keys;
mod names;
mod reads;
mod run;
mod steps;
pub mod tree;

use crate::{
    errors::{self, Result},
    parse::token::{Token, Tokens},
};

/// What is to be said of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A line for each table.
    Rows,
    /// Its steps, as text.
    Tree,
    /// Its steps, as a document.
    Json,
}

/// What stands between EXPLAIN and the statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub form: Form,
    /// The statement is run, and what its steps did is counted.
    pub is_analyzed: bool,
    /// The user variable (lower case) that the document goes into, in place of a row.
    pub variable: Option<String>,
    /// Names in the statement are of this database.
    pub database: Option<String>,
    /// Where the statement begins.
    pub begin: usize,
}

/// What is asked for; `None`: the columns of a table are meant. `unsaid`: the form where the statement names none.
///
/// # Errors
/// 1235 of what there is not, 1791 of a form that nobody knows, 6006, 6007 and 6009 of INTO without FORMAT=JSON or FOR CONNECTION.
pub fn parse(t: &mut Tokens, unsaid: &str) -> Result<Option<Request>> {
    let is_analyzed = t.word("analyze");
    let format = if t.peek_word("format") && t.second_is('=') {
        t.skip();
        t.skip();
        if t.peek_word("default") {
            return Err(t.error());
        }
        Some(t.identifier()?.to_ascii_uppercase())
    } else {
        None
    };
    let named = format.as_deref();
    let variable = if t.word("into") { Some(variable(t)?) } else { None };
    let form = match named.unwrap_or(unsaid) {
        "TRADITIONAL" => Form::Rows,
        "TRADITIONAL_STRICT" if named.is_none() => Form::Rows,
        "TREE" => Form::Tree,
        "JSON" => Form::Json,
        other => return Err(errors::unknown_format(other)),
    };
    if variable.is_some() && named != Some("JSON") {
        return Err(errors::explain_into(named));
    }
    let form = match (form, named) {
        (Form::Rows, Some(_)) if is_analyzed => {
            return Err(errors::not_supported("EXPLAIN ANALYZE with TRADITIONAL format"));
        }
        (Form::Rows, None) if is_analyzed => Form::Tree,
        (form, _) => form,
    };
    let mut database = None;
    if t.word("for") {
        if t.peek_word("connection") {
            return Err(match (is_analyzed, variable) {
                (_, Some(_)) => errors::explain_connection_into(),
                (true, None) => errors::not_supported("EXPLAIN ANALYZE FOR CONNECTION"),
                (false, None) => t.error(),
            });
        }
        if !t.word("schema") {
            t.expect("database")?;
        }
        database = Some(t.identifier()?);
    }
    const WORDS: [&str; 8] = ["select", "insert", "update", "delete", "replace", "with", "table", "values"];
    if !WORDS.iter().any(|word| t.peek_word(word)) && !t.peek_symbol('(') {
        let is_table = !is_analyzed && named.is_none() && database.is_none();
        return if is_table { Ok(None) } else { Err(t.error()) };
    }
    Ok(t.offset().map(|begin| Request { form, is_analyzed, variable, database, begin }))
}

/// A user variable: `@name`, or `@` and a name in quotes.
fn variable(t: &mut Tokens) -> Result<String> {
    let (name, tokens) = match (t.peek(), t.ahead(1)) {
        (Some(Token::Word(at)), Some(Token::Quoted(name) | Token::Text(name))) if at == "@" => (name.as_str(), 2),
        (Some(Token::Word(word)), _) => (word.strip_prefix('@').unwrap_or(""), 1),
        _ => ("", 0),
    };
    if name.is_empty() || name.starts_with('@') {
        return Err(t.error());
    }
    let name = name.to_ascii_lowercase();
    (0..tokens).for_each(|_| t.skip());
    Ok(name)
}

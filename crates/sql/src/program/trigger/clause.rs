//! CREATE and DROP TRIGGER as they are written.

use apus_types::collate::Collation;

use super::Event;
use crate::{
    errors::Result,
    parse::{
        digest::Syntax,
        token::{Name, Tokens},
    },
    program::routine::{clause::if_not_exists, compile::Compiler, failures},
};

/// CREATE TRIGGER.
#[derive(Debug)]
pub struct Clause {
    pub name: Name,
    pub if_not_exists: bool,
    /// `None`: who makes it.
    pub definer: Option<(String, String)>,
    pub is_before: bool,
    pub event: Event,
    pub table: Name,
    /// It runs just behind (`true`) or before the trigger of this name.
    pub beside: Option<(bool, String)>,
    pub body: String,
}

impl Clause {
    /// Behind TRIGGER, as far as its body.
    pub fn parse(
        t: &mut Tokens,
        definer: Option<(String, String)>,
        (syntax, default): (Syntax, Collation),
    ) -> Result<Clause> {
        let if_not_exists = if_not_exists(t)?;
        let name = t.name()?;
        if name.1.is_empty() || name.1.ends_with(' ') {
            return Err(failures::bad_name(&name.1));
        }
        let is_before = t.word("before");
        if !is_before {
            t.expect("after")?;
        }
        let event = Event::ALL.into_iter().find(|event| t.word(event.name())).ok_or_else(|| t.error())?;
        t.expect("on")?;
        let table = t.name()?;
        ["for", "each", "row"].into_iter().try_for_each(|word| t.expect(word))?;
        let follows = t.word("follows");
        let beside = if follows || t.word("precedes") { Some((follows, t.identifier()?)) } else { None };
        let begin = t.offset();
        let mut compiler = Compiler::new(t, syntax, default);
        compiler.of_rows(event, is_before, None)?;
        compiler.body()?;
        let body = t.slice(begin, Some(t.behind()));
        Ok(Clause { name, if_not_exists, definer, is_before, event, table, beside, body })
    }
}

/// DROP TRIGGER.
#[derive(Debug)]
pub struct Drop {
    pub name: Name,
    pub if_exists: bool,
}

impl Drop {
    /// `None`: another statement.
    pub fn parse(t: &mut Tokens) -> Result<Option<Drop>> {
        if !t.peek_word("drop") || !t.second_word("trigger") {
            return Ok(None);
        }
        t.skip();
        t.skip();
        let if_exists = t.word("if");
        if if_exists {
            t.expect("exists")?;
        }
        let name = t.name()?;
        t.end()?;
        Ok(Some(Drop { name, if_exists }))
    }
}

//! Conditions in the text of a body: what handlers are for, SIGNAL, GET DIAGNOSTICS.

use super::Compiler;
use crate::{
    errors::Result,
    parse::token::Token,
    program::routine::{
        code::{Condition, Diagnostics, ITEMS, Item, Signal, Step, Wanted},
        failures,
    },
};

impl Compiler<'_> {
    /// Of DECLARE ... CONDITION and of handlers, which may name one of those.
    pub(crate) fn condition(&mut self, of_handler: bool) -> Result<Condition> {
        if self.t.peek_word("sqlstate") {
            return self.state().map(Condition::State);
        }
        if self.t.peek_number() {
            let number = self.t.number()?;
            let known = number.parse().ok().filter(|n| *n > 0).map(Condition::Error);
            return known.ok_or_else(|| failures::bad_condition(&number));
        }
        if !of_handler {
            return Err(self.t.error());
        }
        if self.t.word("sqlwarning") {
            return Ok(Condition::Warning);
        }
        if self.t.word("sqlexception") {
            return Ok(Condition::Exception);
        }
        if self.t.peek_word("not") && self.t.second_word("found") {
            self.t.skip();
            self.t.skip();
            return Ok(Condition::NotFound);
        }
        self.named_condition()
    }

    fn named_condition(&mut self) -> Result<Condition> {
        let name = self.t.identifier()?;
        let found = self.conditions.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        found.map(|(_, condition)| *condition).ok_or_else(|| failures::no_condition(&name))
    }

    /// `SQLSTATE [VALUE] 'xxxxx'`; not of what went well.
    fn state(&mut self) -> Result<[u8; 5]> {
        self.t.expect("sqlstate")?;
        self.t.word("value");
        let text = self.t.string()?;
        let state = <[u8; 5]>::try_from(text.as_bytes()).ok();
        let is_good = |state: &[u8; 5]| {
            state.iter().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) && !state.starts_with(b"00")
        };
        state.filter(is_good).ok_or_else(|| failures::bad_state(&text))
    }

    /// SIGNAL and RESIGNAL.
    pub(crate) fn signal(&mut self) -> Result<()> {
        let again = self.t.word("resignal");
        if !again {
            self.t.expect("signal")?;
        }
        let state = if self.t.peek_word("sqlstate") {
            Some(self.state()?)
        } else if again && (self.t.at_end() || self.t.peek_symbol(';') || self.t.peek_word("set")) {
            None
        } else {
            match self.named_condition()? {
                Condition::State(state) => Some(state),
                _ => return Err(failures::not_by_state()),
            }
        };
        let mut items = Vec::new();
        let mut named: Vec<String> = Vec::new();
        if self.t.word("set") {
            loop {
                let at = self.t.position();
                let name = self.t.identifier()?;
                let Some(item) = item(&name).filter(|item| *item != Item::ReturnedSqlstate) else {
                    self.t.rewind(at);
                    return Err(self.t.error());
                };
                if named.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                    return Err(failures::item_twice(&name.to_uppercase()));
                }
                named.push(name);
                self.t.expect_symbol('=')?;
                items.push((item, self.simple_value()?));
                if !self.t.symbol(',') {
                    break;
                }
            }
        }
        self.push(Step::Signal(Box::new(Signal { again, state, items })));
        Ok(())
    }

    /// GET DIAGNOSTICS.
    pub(crate) fn diagnostics(&mut self) -> Result<()> {
        self.t.expect("get")?;
        let stacked = self.t.word("stacked");
        if !stacked {
            self.t.word("current");
        }
        self.t.expect("diagnostics")?;
        let wanted = if self.t.word("condition") {
            let number = self.simple_value()?;
            let mut list = Vec::new();
            loop {
                let target = self.target()?;
                self.t.expect_symbol('=')?;
                let at = self.t.position();
                let name = self.t.identifier()?;
                let Some(item) = item(&name) else {
                    self.t.rewind(at);
                    return Err(self.t.error());
                };
                list.push((target, item));
                if !self.t.symbol(',') {
                    break;
                }
            }
            Wanted::Condition(number, list)
        } else {
            let mut list = Vec::new();
            loop {
                let target = self.target()?;
                self.t.expect_symbol('=')?;
                let of_rows = self.t.word("row_count");
                if !of_rows {
                    self.t.expect("number")?;
                }
                list.push((target, of_rows));
                if !self.t.symbol(',') {
                    break;
                }
            }
            Wanted::Statement(list)
        };
        self.push(Step::Diagnostics(Box::new(Diagnostics { stacked, wanted })));
        Ok(())
    }

    /// A literal or a variable.
    fn simple_value(&mut self) -> Result<crate::program::routine::code::Text> {
        let begin = self.t.offset();
        let of_system = matches!(self.t.peek(), Some(Token::Word(word)) if word.starts_with("@@"));
        let is_literal = self.t.peek_number() || self.t.peek_string() || self.t.peek_word("null");
        if self.t.peek_symbol('-') && matches!(self.t.ahead(1), Some(Token::Number(_))) {
            self.t.skip();
            self.t.skip();
        } else if is_literal || of_system {
            self.t.skip();
        } else {
            let at = self.t.position();
            self.target().map_err(|_| {
                self.t.rewind(at);
                self.t.error()
            })?;
        }
        let source = self.t.slice(begin, Some(self.t.behind()));
        self.value(&source)
    }
}

fn item(name: &str) -> Option<Item> {
    ITEMS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, item)| *item)
}

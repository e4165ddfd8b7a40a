//! SET within a body, and what values go to: variables, columns of NEW, variables of the session.

use super::{Compiler, Of};
use crate::{
    errors::{self, Result},
    parse::token::Token,
    program::{
        routine::{
            code::{Place, Step, Target, row_name, row_word},
            failures,
        },
        trigger::Event,
    },
    variables::check_name,
    wire::SqlError,
};

impl<'t> Compiler<'t> {
    /// A list of variables.
    pub(crate) fn targets(&mut self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        loop {
            targets.push(self.target()?);
            if !self.t.symbol(',') {
                return Ok(targets);
            }
        }
    }

    pub(crate) fn target(&mut self) -> Result<Target> {
        if self.t.symbol('@') || matches!(self.t.peek(), Some(Token::Word(w)) if w == "@") {
            self.t.skip();
            return Ok(Target::User(self.t.identifier()?.to_lowercase()));
        }
        let name = self.t.identifier()?;
        if let Some(user) = name.strip_prefix('@').filter(|name| !name.starts_with('@')) {
            return Ok(Target::User(user.to_lowercase()));
        }
        let found = self.names.find(&name).map(|known| Target::Variable(known.place));
        found.ok_or_else(|| errors::undeclared_variable(&name))
    }

    /// Whether the word in front of a point is that of a row.
    pub(super) fn row_of(&self, word: &str) -> Option<bool> {
        row_word(word).filter(|_| matches!(self.of, Of::Trigger { .. }))
    }

    /// As [`Compiler::target`], or a column of NEW in a BEFORE trigger.
    pub(super) fn target_or_row(&mut self) -> Result<Target> {
        let word = match self.t.peek() {
            Some(Token::Word(w) | Token::Quoted(w)) if self.t.second_is('.') => self.row_of(w),
            _ => None,
        };
        let Some(is_new) = word else { return self.target() };
        self.t.skip();
        self.t.skip();
        let column = self.t.identifier()?;
        if !is_new {
            return Err(failures::changes_row("OLD", ""));
        }
        let place = self.row_column(is_new, &column)?;
        if self.of.is_after() {
            return Err(failures::changes_row("NEW", "after "));
        }
        self.program.rows.iter_mut().filter(|row| row.place == place).for_each(|row| row.is_set = true);
        Ok(Target::Variable(place))
    }

    /// # Errors
    /// 1054, 1363: there is none.
    pub(super) fn row_column(&self, is_new: bool, column: &str) -> Result<Place> {
        let Of::Trigger { event, .. } = self.of else { return Err(errors::undeclared_variable(column)) };
        let word = if is_new { "NEW" } else { "OLD" };
        if event == if is_new { Event::Delete } else { Event::Insert } {
            return Err(failures::no_row(word, event.name()));
        }
        if self.any_column {
            return Ok(0);
        }
        let found = self.names.find(&row_name(is_new, column)).map(|known| known.place);
        found.ok_or_else(|| errors::unknown_column(column, word))
    }

    pub(super) fn set(&mut self) -> Result<()> {
        let words = ["names", "character", "charset", "password", "role", "default", "transaction", "resource"];
        let is_other =
            words.iter().any(|word| self.t.peek_word(word) && !self.t.second_is('=') && !self.t.second_is(':'));
        let of_next = SCOPES.iter().any(|word| self.t.peek_word(word)) && self.t.second_word("transaction");
        if is_other || of_next {
            let mut text = self.text_of_statement()?;
            text.sql.insert_str(0, "SET ");
            self.push(Step::Other(text));
            return Ok(());
        }
        loop {
            self.assignment()?;
            if !self.t.symbol(',') {
                return Ok(());
            }
        }
    }

    fn assignment(&mut self) -> Result<()> {
        let begin = self.t.offset();
        let start = self.t.position();
        let is_row = matches!(self.t.peek(), Some(Token::Word(w) | Token::Quoted(w)) if self.row_of(w).is_some())
            && self.t.second_is('.');
        let target = self.target_or_row();
        if is_row {
            target.as_ref().map_err(SqlError::clone)?;
        }
        if let Ok(target) = target
            && (self.t.peek_symbol('=') || self.t.peek_symbol(':'))
        {
            self.becomes()?;
            if matches!(target, Target::Variable(_)) && self.t.peek_word("default") && !self.t.second_is('(') {
                return Err(self.t.error());
            }
            let value = self.expression(&[])?;
            self.push(match target {
                Target::Variable(place) => Step::Assign(place, value),
                Target::User(name) => Step::AssignUser(name, value),
            });
            return Ok(());
        }
        self.t.rewind(start);
        let mut name = String::new();
        while self.t.peek().is_some_and(|t| !matches!(t, Token::Symbol('=' | ':' | ';' | ','))) {
            if let Some(Token::Word(word) | Token::Quoted(word)) = self.t.peek() {
                name.clone_from(word);
            }
            self.t.skip();
        }
        let target = self.t.slice(begin, Some(self.t.behind()));
        self.becomes()?;
        if self.t.at_end() || self.t.peek_symbol(';') {
            return Err(self.t.error());
        }
        let name = name.trim_start_matches('@').to_ascii_lowercase();
        check_name(&name)?;
        if self.of.is_within() && name == "autocommit" {
            return Err(failures::sets_autocommit());
        }
        let is_word =
            matches!(self.t.peek(), Some(Token::Word(w)) if self.names.find(w).is_none() && !w.starts_with('@'));
        let ends = matches!(self.t.ahead(1), None | Some(Token::Symbol(',' | ';')));
        if is_word && ends {
            let word = self.t.identifier()?;
            let text = self.text(&format!("SET {target} = {word}"))?;
            self.push(Step::Other(text));
            return Ok(());
        }
        let value = self.expression(&[])?;
        self.push(Step::SetSystem(format!("SET {target} = "), value));
        Ok(())
    }

    /// `=` or `:=`.
    fn becomes(&mut self) -> Result<()> {
        self.t.symbol(':');
        self.t.expect_symbol('=')
    }
}

/// Of variables of the system.
pub(super) const SCOPES: [&str; 3] = ["global", "session", "local"];

//! Expressions and statements of SQL within a body: texts that are planned when they are first run.

use apus_types::ColumnType;

use super::{Compiler, assignments::SCOPES};
use crate::{
    admin::set::expression,
    errors::{self, Result},
    parse::{
        digest::{Digest, Form},
        token::{Token, Tokens, is_query},
    },
    plan,
    program::routine::{
        code::{Step, Text},
        failures,
    },
    variables::check_name,
};

impl<'t> Compiler<'t> {
    /// An expression up to one of these words, a comma, a parenthesis that it has not opened, or the end of the statement.
    pub(crate) fn expression(&mut self, until: &[&str]) -> Result<Text> {
        let begin = self.t.offset();
        let start = self.t.position();
        let (mut depth, mut cases) = (0usize, 0usize);
        while let Some(token) = self.t.peek() {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') if depth == 0 => break,
                Token::Symbol(')') => depth -= 1,
                Token::Symbol(';') => break,
                Token::Symbol(',') if depth == 0 => break,
                Token::Word(word) if depth == 0 => {
                    let is = |other: &str| word.eq_ignore_ascii_case(other);
                    if is("case") {
                        cases += 1;
                    } else if is("end") && cases > 0 {
                        cases -= 1;
                    } else if cases == 0 && until.iter().any(|stop| is(stop)) {
                        break;
                    }
                }
                _ => {}
            }
            self.t.skip();
        }
        if self.t.position() == start {
            return Err(self.t.error());
        }
        let source = self.t.slice(begin, Some(self.t.behind()));
        self.value(&source)
    }

    pub(crate) fn value(&self, source: &str) -> Result<Text> {
        let mut text = self.text(source)?;
        expression(&text.sql)?;
        text.sql.insert_str(0, SELECT);
        Ok(text)
    }

    /// As a step keeps it: without comments, by the default syntax.
    pub(super) fn text(&self, source: &str) -> Result<Text> {
        let mut digest = Digest::default();
        digest.scan(source.as_bytes(), Form::Plain, self.syntax)?;
        if digest.parameters > 0 {
            return Err(errors::syntax("?"));
        }
        let sql = String::from_utf8_lossy(&digest.text).into_owned();
        self.check_names(&sql)?;
        Ok(Text::new(sql, &self.names))
    }

    /// Variables of the system are known, and those of LIMIT are whole numbers.
    fn check_names(&self, sql: &str) -> Result<()> {
        let t = Tokens::new(sql);
        let mut limits = false;
        for (at, token) in t.rest().iter().enumerate() {
            if let Token::Word(word) | Token::Quoted(word) = token
                && let Some(is_new) = self.row_of(word)
                && t.ahead(at + 1) == Some(&Token::Symbol('.'))
                && at.checked_sub(1).and_then(|before| t.ahead(before)) != Some(&Token::Symbol('.'))
                && let Some(Token::Word(column) | Token::Quoted(column)) = t.ahead(at + 2)
            {
                self.named.borrow_mut().insert(self.row_column(is_new, column)?);
            }
            let Token::Word(word) = token else {
                limits &= *token == Token::Symbol(',') || matches!(token, Token::Number(_));
                continue;
            };
            if let Some(name) =
                word.strip_prefix("@@").filter(|name| !SCOPES.iter().any(|s| s.eq_ignore_ascii_case(name)))
            {
                check_name(&name.to_ascii_lowercase())?;
            }
            if limits && let Some(known) = self.names.find(word) {
                if !matches!(known.ty, None | Some(ColumnType::Int { .. })) {
                    return Err(failures::no_number(word));
                }
            } else {
                limits = word.eq_ignore_ascii_case("limit") || word.eq_ignore_ascii_case("offset");
            }
        }
        Ok(())
    }

    /// The text up to the `;`.
    pub(super) fn text_of_statement(&mut self) -> Result<Text> {
        let begin = self.t.offset();
        while self.t.peek().is_some_and(|token| *token != Token::Symbol(';')) {
            self.t.skip();
        }
        let source = self.t.slice(begin, Some(self.t.behind()));
        self.text(&source)
    }

    pub(super) fn sql(&mut self) -> Result<()> {
        self.refuse()?;
        let text = self.text_of_statement()?;
        if text.sql.is_empty() {
            return Err(self.t.error());
        }
        if !is_query(text.sql.as_bytes()) {
            self.push(Step::Other(text));
            return Ok(());
        }
        let Some((into, behind)) = find_into(&text.sql) else {
            plan::syntax::parse(&text.sql)?;
            let changes = ["insert", "replace", "update", "delete"];
            if self.of.is_within() && !changes.iter().any(|word| Tokens::new(&text.sql).peek_word(word)) {
                return Err(failures::returns_result(self.of.name()));
            }
            self.push(Step::Planned(text));
            return Ok(());
        };
        let mut t = Tokens::new(&text.sql[behind..]);
        if t.peek_word("outfile") || t.peek_word("dumpfile") {
            plan::syntax::parse(&plan::into::split(&text.sql, self.syntax)?.0)?;
            self.push(Step::Planned(text));
            return Ok(());
        }
        std::mem::swap(self.t, &mut t);
        let targets = self.targets();
        let rest = self.t.offset().map(|at| behind + at);
        std::mem::swap(self.t, &mut t);
        let targets = targets?;
        let rest = rest.map_or("", |at| &text.sql[at..]);
        if find_into(rest).is_some() {
            return Err(errors::into_twice());
        }
        let sql = format!("{} {rest}", text.sql[..into].trim_end());
        let sql = sql.trim_end().to_owned();
        plan::syntax::parse(&sql)?;
        self.push(Step::Into(Text::new(sql, &text.names), targets));
        Ok(())
    }

    /// DO: expressions whose values nobody sees.
    pub(super) fn evaluate(&mut self) -> Result<()> {
        loop {
            let value = self.expression(&[])?;
            let before = self.names.clone();
            let place = self.variable("#done".to_owned(), None)?;
            self.names = before;
            self.push(Step::Assign(place, value));
            if !self.t.symbol(',') {
                return Ok(());
            }
        }
    }
}

pub(crate) const SELECT: &str = "SELECT ";

/// Where the INTO of a query stands, and what follows.
pub(super) fn find_into(sql: &str) -> Option<(usize, usize)> {
    let mut t = Tokens::new(sql);
    if ["insert", "replace", "update", "delete"].iter().any(|word| t.peek_word(word)) {
        return None;
    }
    let mut depth = 0usize;
    while let Some(token) = t.peek() {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth = depth.saturating_sub(1),
            Token::Word(w) if depth == 0 && w.eq_ignore_ascii_case("into") => {
                let begin = t.offset()?;
                return Some((begin, begin + "into".len()));
            }
            _ => {}
        }
        t.skip();
    }
    None
}

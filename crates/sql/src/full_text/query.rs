//! What stands in AGAINST (...), as a tree.
//!
//! ```text
//! list = { [ + | - | < | > | ~ ] ( term | text | "(" list ")" ) }
//! term = WORD | NUMBER | term "*" | "*" term          text = '"' ... '"' [ "@" NUMBER ]
//! ```
//!
//! In natural language mode operators and parentheses are no symbols but part of what separates words; `*` is one where it stands alone.
//! Errors are those of the reference, whose parser is made by bison: what was not expected, and what was if that is at most four things.

use super::words::{LENGTHS, words};
use crate::{errors::Result, wire::SqlError};

/// Parentheses within each other at most.
const DEPTH_MAX: usize = 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Natural,
    Boolean,
    Expansion,
}

/// What a part does to the rows that were found before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// They stay, and those that the part finds come.
    None,
    /// `+`: those stay that it finds, too.
    Must,
    /// `-`: those go that it finds.
    MustNot,
    /// `~`: those that it finds, too, count less.
    Negate,
    /// `>` and `<`: those that it finds come, and count more or less.
    More,
    Less,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// With the flag all words that begin so.
    Word(String, bool),
    /// These words one after the other; with a number all of them within so many words.
    Phrase(Vec<String>, Option<usize>),
    List(Vec<Part>),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    pub operator: Operator,
    pub operand: Operand,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'a> {
    Symbol(char),
    Number(&'a str),
    Term(&'a str),
    /// Between quotation marks.
    Text(&'a str),
    End,
}

impl Token<'_> {
    fn name(self) -> String {
        match self {
            Token::Symbol(symbol) => format!("'{symbol}'"),
            Token::Number(_) => "FTS_NUMB".to_owned(),
            Token::Term(_) => "FTS_TERM".to_owned(),
            Token::Text(_) => "FTS_TEXT".to_owned(),
            Token::End => "$end".to_owned(),
        }
    }
}

/// # Errors
/// 1064: a boolean query that does not follow the grammar.
pub fn parse(text: &str, mode: Mode) -> Result<Vec<Part>> {
    let mut parser = Parser { rest: text, is_boolean: mode == Mode::Boolean, next: Token::End };
    parser.step();
    let list = parser.list(0)?;
    match parser.next {
        Token::End => Ok(list),
        _ => Err(parser.error(", expecting $end")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    is_boolean: bool,
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    fn step(&mut self) -> Token<'a> {
        let taken = self.next;
        self.next = self.scan();
        taken
    }

    fn scan(&mut self) -> Token<'a> {
        loop {
            let Some(first) = self.rest.chars().next() else { return Token::End };
            let after = &self.rest[first.len_utf8()..];
            if first == '"' {
                let end = after.find(['"', '\n']).filter(|end| after.as_bytes()[*end] == b'"');
                self.rest = end.map_or(after, |end| &after[end + 1..]);
                match end {
                    Some(end) => return Token::Text(&after[..end]),
                    None => continue,
                }
            }
            if matches!(first, ' ' | '\t' | '\n' | '%') {
                self.rest = after;
                continue;
            }
            let ends_term = |c: char| matches!(c, '"' | ' ' | '\n' | '%') || self.is_boolean && is_symbol(c);
            if self.is_boolean && is_symbol(first) {
                self.rest = after;
                return Token::Symbol(first);
            }
            let end = self.rest.find(ends_term).unwrap_or(self.rest.len());
            let (term, rest) = self.rest.split_at(end);
            self.rest = rest;
            return match term {
                "*" => Token::Symbol('*'),
                _ if self.is_boolean && term.bytes().all(|b| b.is_ascii_digit()) => Token::Number(term),
                _ => Token::Term(term),
            };
        }
    }

    #[cold]
    fn error(&self, expected: &str) -> SqlError {
        SqlError::new(1064, b"42000", format!("syntax error, unexpected {}{expected}", self.next.name()))
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Part>> {
        let mut list = Vec::new();
        loop {
            let operator = match self.next {
                Token::Symbol('+') => Some(Operator::Must),
                Token::Symbol('-') => Some(Operator::MustNot),
                Token::Symbol('~') => Some(Operator::Negate),
                Token::Symbol('>') => Some(Operator::More),
                Token::Symbol('<') => Some(Operator::Less),
                _ => None,
            };
            if operator.is_some() {
                self.step();
            }
            let has_operator = operator.is_some();
            let operator = operator.unwrap_or(Operator::None);
            let operands = match self.next {
                Token::Symbol('(') => self.parentheses(depth)?.into_iter().collect(),
                Token::Symbol('*') | Token::Number(_) | Token::Term(_) => self.term()?,
                Token::Text(text) => self.text(text)?.into_iter().collect(),
                _ if has_operator => return Err(self.error("")),
                _ => return Ok(list),
            };
            list.extend(operands.into_iter().map(|operand| Part { operator, operand }));
        }
    }

    fn parentheses(&mut self, depth: usize) -> Result<Option<Operand>> {
        if depth >= DEPTH_MAX {
            return Err(SqlError::new(
                1064,
                b"42000",
                "a full-text query with more than 31 parentheses within each other",
            ));
        }
        self.step();
        let list = self.list(depth + 1)?;
        if self.next != Token::Symbol(')') {
            return Err(self.error(""));
        }
        self.step();
        Ok((!list.is_empty()).then_some(Operand::List(list)))
    }

    /// What is written as one term may be several words, of which those behind the first are passed over if they are too short to be found.
    fn term(&mut self) -> Result<Vec<Operand>> {
        while self.next == Token::Symbol('*') {
            self.step();
        }
        let (Token::Number(text) | Token::Term(text)) = self.next else {
            return Err(self.error(", expecting FTS_TERM or FTS_NUMB or '*'"));
        };
        self.step();
        let found = words(text).enumerate();
        let is_long = |(at, word): &(usize, &str)| {
            let length = word.chars().count();
            length <= *LENGTHS.end() && (*at == 0 || length >= *LENGTHS.start())
        };
        let mut list: Vec<Operand> =
            found.filter(is_long).map(|(_, word)| Operand::Word(word.to_owned(), false)).collect();
        if self.next == Token::Symbol('*') {
            self.step();
            if let Some(Operand::Word(_, begins)) = list.last_mut() {
                *begins = true;
            }
        }
        Ok(list)
    }

    fn text(&mut self, text: &str) -> Result<Option<Operand>> {
        self.step();
        let mut within = None;
        if self.next == Token::Symbol('@') {
            self.step();
            let Token::Number(number) = self.next else { return Err(self.error(", expecting FTS_NUMB")) };
            within = Some(number.parse().unwrap_or(usize::MAX));
            self.step();
        }
        let words = words(text).map(str::to_owned).collect();
        Ok((!text.is_empty()).then_some(Operand::Phrase(words, within)))
    }
}

fn is_symbol(c: char) -> bool {
    matches!(c, '*' | '(' | ')' | '+' | '-' | '<' | '>' | '~' | '@')
}

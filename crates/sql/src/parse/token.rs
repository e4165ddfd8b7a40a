//! Tokens of the statements that the query parser is not asked about: definitions, SET, SHOW, transactions.

use super::{
    charset::Characters,
    digest::{self, literal},
};
use crate::{
    errors::{self, Result},
    wire::SqlError,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Word(String),
    /// In backticks.
    Quoted(String),
    Text(String),
    Number(String),
    Symbol(char),
}

/// A statement's tokens and where reading stands.
#[derive(Debug)]
pub struct Tokens {
    list: Vec<Token>,
    /// Where each begins in the text.
    starts: Vec<usize>,
    /// Where each ends.
    ends: Vec<usize>,
    at: usize,
    text: String,
}

impl Tokens {
    /// Splits a text, which [`digest`] may have cleaned of comments.
    pub fn new(text: &str) -> Tokens {
        let bytes = text.as_bytes();
        let (mut list, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at, mut in_executable) = (0, false);
        let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'@') || b >= 0x80;
        while let Some(&b) = bytes.get(at) {
            if let Some(behind) = behind_comment(bytes, at, &mut in_executable) {
                at = behind;
                continue;
            }
            let (start, before) = (at, list.len());
            match b {
                b' ' | b'\t' | b'\n' | b'\r' => at += 1,
                b'\'' | b'"' | b'`' => {
                    at += 1;
                    while let Some(&c) = bytes.get(at) {
                        if c == b'\\' && b != b'`' {
                            at += 1;
                        } else if c == b {
                            if bytes.get(at + 1) != Some(&b) {
                                break;
                            }
                            at += 1;
                        }
                        at += 1;
                    }
                    let raw = bytes.get(start + 1..at).unwrap_or(&[]);
                    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                    list.push(if b == b'`' {
                        Token::Quoted(String::from_utf8_lossy(raw).replace("``", "`"))
                    } else {
                        Token::Text(text(literal::unescape(raw, b, true)))
                    });
                    at += 1;
                }
                b'0'..=b'9' => {
                    while bytes.get(at).is_some_and(|&c| c.is_ascii_alphanumeric() || c == b'.' || c == b'_') {
                        at += 1;
                    }
                    let text = &text[start..at];
                    let number = text.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'E'));
                    list.push(if number { Token::Number(text.to_owned()) } else { Token::Word(text.to_owned()) });
                }
                _ if is_word(b) => {
                    while bytes.get(at).is_some_and(|&c| is_word(c)) {
                        at += 1;
                    }
                    list.push(Token::Word(text[start..at].to_owned()));
                }
                _ => {
                    list.push(Token::Symbol(b as char));
                    at += 1;
                }
            }
            if list.len() > before {
                starts.push(start);
                ends.push(at.min(bytes.len()));
            }
        }
        Tokens { list, starts, ends, at: 0, text: text.to_owned() }
    }

    pub fn peek(&self) -> Option<&Token> {
        self.list.get(self.at)
    }
    /// The text behind a LIKE that comes next.
    pub fn peek_pattern(&self) -> Option<String> {
        match (self.list.get(self.at), self.list.get(self.at + 1)) {
            (Some(Token::Word(w)), Some(Token::Text(t))) if w.eq_ignore_ascii_case("like") => Some(t.clone()),
            _ => None,
        }
    }
    pub fn skip(&mut self) {
        self.at += 1;
    }
    pub fn at_end(&self) -> bool {
        self.at >= self.list.len()
    }
    pub fn end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.error()) }
    }
    /// Where the next token begins in the text.
    pub fn offset(&self) -> Option<usize> {
        self.starts.get(self.at).copied()
    }
    /// Where the last token that was read ends in the text.
    pub fn behind(&self) -> usize {
        self.at.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }
    /// The text from one place to another; either may be the end.
    pub fn slice(&self, from: Option<usize>, to: Option<usize>) -> String {
        let end = self.text.len();
        self.text.get(from.unwrap_or(end)..to.unwrap_or(end)).unwrap_or("").trim().to_owned()
    }
    /// Where the last tokens begin, if they are these words.
    pub fn ending(&self, words: &[&str]) -> Option<usize> {
        let first = self.list.len().checked_sub(words.len()).filter(|first| *first >= self.at)?;
        let is = |(token, word): (&Token, &&str)| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case(word));
        self.list[first..].iter().zip(words).all(is).then(|| self.starts[first])
    }
    /// Reads the rest.
    pub fn skip_all(&mut self) {
        self.at = self.list.len();
    }
    /// What is left to read.
    pub fn rest(&self) -> &[Token] {
        self.list.get(self.at..).unwrap_or(&[])
    }
    pub fn position(&self) -> usize {
        self.at
    }
    pub fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    /// The syntax error at this place.
    pub fn error(&self) -> SqlError {
        let show = |t: &Token| match t {
            Token::Word(w) | Token::Number(w) => w.clone(),
            Token::Quoted(w) => format!("`{w}`"),
            Token::Text(w) => format!("'{w}'"),
            Token::Symbol(c) => c.to_string(),
        };
        let rest: Vec<String> = self.list.iter().skip(self.at).take(12).map(show).collect();
        errors::syntax(&rest.join(" "))
    }

    pub fn peek_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word))
    }
    pub fn peek_word_starting(&self, head: &str) -> bool {
        let starts = |w: &str| w.get(..head.len()).is_some_and(|h| h.eq_ignore_ascii_case(head));
        matches!(self.peek(), Some(Token::Word(w)) if starts(w))
    }
    pub fn second_word(&self, word: &str) -> bool {
        matches!(self.list.get(self.at + 1), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word))
    }
    /// Whether the token at a position is this word.
    pub fn is_word_at(&self, at: usize, word: &str) -> bool {
        matches!(self.list.get(at), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word))
    }
    /// The text with other words in place of some tokens, which are told by how far they are.
    pub fn with_replaced(&self, other: impl Fn(usize, &Token) -> Option<String>) -> String {
        let (mut out, mut at) = (String::with_capacity(self.text.len()), 0);
        for (by, token) in self.rest().iter().enumerate() {
            if let Some(other) = other(by, token) {
                out.push_str(&self.text[at..self.starts[self.at + by]]);
                out.push_str(&other);
                at = self.ends[self.at + by];
            }
        }
        out.push_str(&self.text[at..]);
        out
    }
    /// The token so far behind the next one.
    pub fn ahead(&self, by: usize) -> Option<&Token> {
        self.list.get(self.at + by)
    }
    pub fn second_is(&self, symbol: char) -> bool {
        self.list.get(self.at + 1) == Some(&Token::Symbol(symbol))
    }
    pub fn word(&mut self, word: &str) -> bool {
        let found = self.peek_word(word);
        self.at += usize::from(found);
        found
    }
    pub fn expect(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { Err(self.error()) }
    }
    pub fn peek_symbol(&self, symbol: char) -> bool {
        self.peek() == Some(&Token::Symbol(symbol))
    }
    pub fn symbol(&mut self, symbol: char) -> bool {
        let found = self.peek_symbol(symbol);
        self.at += usize::from(found);
        found
    }
    pub fn expect_symbol(&mut self, symbol: char) -> Result<()> {
        if self.symbol(symbol) { Ok(()) } else { Err(self.error()) }
    }
    pub fn peek_string(&self) -> bool {
        matches!(self.peek(), Some(Token::Text(_)))
    }
    pub fn peek_number(&self) -> bool {
        matches!(self.peek(), Some(Token::Number(_)))
    }
    pub fn string(&mut self) -> Result<String> {
        self.symbol('=');
        match self.peek() {
            Some(Token::Text(t)) => {
                let text = t.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.error()),
        }
    }
    pub fn number(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Number(n)) => {
                let text = n.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.error()),
        }
    }
    /// `(name, ...)`.
    pub fn identifiers(&mut self) -> Result<Vec<String>> {
        self.expect_symbol('(')?;
        let mut list = vec![self.identifier()?];
        while self.symbol(',') {
            list.push(self.identifier()?);
        }
        self.expect_symbol(')')?;
        Ok(list)
    }
    /// A name, quoted or not; a text where a name is meant is taken too, as MySQL does for character sets.
    pub fn identifier(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(w) | Token::Quoted(w) | Token::Text(w)) => {
                let name = w.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.error()),
        }
    }
    /// `table` or `database.table`.
    pub fn name(&mut self) -> Result<Name> {
        let first = self.identifier()?;
        if self.symbol('.') { Ok((Some(first), self.identifier()?)) } else { Ok((None, first)) }
    }

    /// What `CHARSET x` and `COLLATE x` among the options of a table say. They stand behind the closing parenthesis of a
    /// column list, where there is one, and before a SELECT.
    pub fn table_characters(&self, behind_list: bool) -> Result<Characters> {
        let mut found = Characters::default();
        let mut depth = usize::from(behind_list);
        let mut at = self.at;
        while depth > 0 {
            match self.list.get(at) {
                Some(Token::Symbol('(')) => depth += 1,
                Some(Token::Symbol(')')) => depth -= 1,
                None => return Ok(found),
                _ => {}
            }
            at += 1;
        }
        while let Some(token) = self.list.get(at) {
            at += 1;
            if *token == Token::Symbol('(') {
                break;
            }
            let Token::Word(w) = token else { continue };
            if ["as", "select", "with", "values", "table"].iter().any(|word| w.eq_ignore_ascii_case(word)) {
                break;
            }
            let charset = w.eq_ignore_ascii_case("charset")
                || w.eq_ignore_ascii_case("set")
                    && matches!(self.list.get(at.wrapping_sub(2)), Some(Token::Word(c)) if c.eq_ignore_ascii_case("character"));
            if charset || w.eq_ignore_ascii_case("collate") {
                let mut value = at;
                if self.list.get(value) == Some(&Token::Symbol('=')) {
                    value += 1;
                }
                if let Some(Token::Word(name) | Token::Text(name) | Token::Quoted(name)) = self.list.get(value) {
                    if charset { found.charset(name)? } else { found.collate(name)? }
                }
            }
        }
        Ok(found)
    }
}

/// Where the first token begins.
pub fn behind_blanks(bytes: &[u8]) -> usize {
    let (mut at, mut in_executable) = (0, false);
    while let Some(b) = bytes.get(at) {
        match behind_comment(bytes, at, &mut in_executable) {
            Some(behind) => at = behind,
            None if b.is_ascii_whitespace() => at += 1,
            None => break,
        }
    }
    at
}

/// Where a comment that begins here ends. Of an executable one (`/*!80000 ... */`) it is what stands before the code, or behind it.
fn behind_comment(bytes: &[u8], at: usize, in_executable: &mut bool) -> Option<usize> {
    let rest = &bytes[at..];
    let line = || at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    match rest {
        [b'#', ..] => Some(line()),
        [b'-', b'-', behind, ..] if behind.is_ascii_whitespace() => Some(line()),
        [b'-', b'-'] => Some(bytes.len()),
        [b'*', b'/', ..] if *in_executable => {
            *in_executable = false;
            Some(at + 2)
        }
        [b'/', b'*', rest @ ..] => {
            if let Some(code) = digest::executable(rest) {
                *in_executable = true;
                return Some(at + 2 + code);
            }
            let end = rest.windows(2).position(|two| two == b"*/");
            Some(end.map_or(bytes.len(), |end| at + 2 + end + 2))
        }
        _ => None,
    }
}

/// Database (when given) and table.
pub type Name = (Option<String>, String);

/// What stands in the parentheses that come next.
pub fn expression(t: &mut Tokens) -> Result<String> {
    t.expect_symbol('(')?;
    if t.peek_word("select") || t.peek_symbol(')') {
        return Err(t.error());
    }
    let (begin, mut depth) = (t.offset(), 0usize);
    while depth > 0 || !t.peek_symbol(')') {
        if t.at_end() {
            return Err(t.error());
        }
        depth += usize::from(t.peek_symbol('('));
        depth -= usize::from(t.peek_symbol(')'));
        t.skip();
    }
    let text = t.slice(begin, t.offset());
    t.expect_symbol(')')?;
    Ok(text)
}

pub fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'@') || b >= 0x80
}

pub fn behind_quoted(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let mut at = start + 1;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        if b == b'\\' && quote != b'`' {
            at += 1;
        } else if b == quote {
            break; // a doubled quote begins the rest of the same text
        }
    }
    at.min(bytes.len())
}

/// Statements that the query parser reads; all others go by tokens.
pub(crate) fn is_query(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 8] = [b"select", b"insert", b"update", b"delete", b"replace", b"with", b"table", b"values"];
    let length = text.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let word = &text[..length];
    WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)) || text.first() == Some(&b'(')
}

/// Whether it is EXPLAIN FOR CONNECTION that comes next.
pub fn is_explain_for_connection(t: &Tokens) -> bool {
    let is = |by: usize, word: &str| matches!(t.ahead(by), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word));
    let begins = ["explain", "describe", "desc"].iter().any(|word| t.peek_word(word));
    let behind = if is(1, "format") { 4 } else { 1 };
    begins && is(behind, "for") && is(behind + 1, "connection")
}

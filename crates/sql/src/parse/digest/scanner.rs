//! The pass over a statement's text.

use super::{Digest, Form, executable};
use crate::{errors, wire::SqlError};

/// Where the scanner stands in the rows of a VALUES list.
#[derive(Default)]
pub(super) struct Rows {
    /// The last token was the word VALUES, or a comma behind a row: a row may begin.
    announced: bool,
    /// Open parentheses of the row under way.
    pub(super) depth: usize,
    /// The first row in the normal form: from its parenthesis to behind the closing one.
    pub(super) first: Option<(usize, usize)>,
    /// Where the row under way begins in the normal form, and how many literals were before it.
    pub(super) start: usize,
    pub(super) literals: usize,
    /// Something other than a further row followed.
    sealed: bool,
    /// The statement must be scanned without this.
    pub(super) differ: bool,
}

pub(super) struct Scanner<'a> {
    pub(super) sql: &'a [u8],
    pub(super) at: usize,
    /// White space was skipped since the last token.
    pub(super) gap: bool,
    pub(super) in_executable: bool,
    pub(super) form: Form,
    pub(super) rows: Option<Rows>,
    pub(super) out: &'a mut Digest,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.sql.get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(super) fn run(&mut self) -> Result<usize, SqlError> {
        while self.at < self.sql.len() && !self.rows.as_ref().is_some_and(|rows| rows.differ) {
            let b = self.peek(0);
            match b {
                b'(' => self.open(),
                b')' => self.close(),
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.skip(1),
                b'#' => self.skip_line(),
                b'-' if self.peek(1) == b'-' && (self.peek(2) <= b' ') => self.skip_line(),
                b'/' if self.peek(1) == b'*' => self.comment()?,
                b'*' if self.in_executable && self.peek(1) == b'/' => {
                    self.in_executable = false;
                    self.skip(2);
                }
                b';' => {
                    self.at += 1;
                    if self.out.text.is_empty() {
                        continue;
                    }
                    return Ok(self.at);
                }
                b'"' if self.out.syntax.ansi_quotes => self.name_in_double_quotes()?,
                b'\'' | b'"' => self.string(self.at)?,
                b'`' => self.quoted_identifier()?,
                b'|' if self.peek(1) == b'|' && self.out.syntax.pipes_concat => {
                    self.seal(false);
                    self.space();
                    self.out.text.extend_from_slice(b"||/");
                    self.at += 2;
                }
                // Which is how the normal form writes the one above, and NOT ([`is_high_not`](Self::is_high_not)).
                b'/' if !self.gap && self.out.text.ends_with(b"||") => return Err(self.unterminated()),
                b'/' if self.out.text.ends_with(b"!") => return Err(self.unterminated()),
                b'0' if self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() => self.hex_number(),
                b'x' | b'X' if self.peek(1) == b'\'' => self.hex_string()?,
                b'0' if self.peek(1) == b'b' && matches!(self.peek(2), b'0' | b'1') => self.bit_number(),
                b'b' | b'B' if self.peek(1) == b'\'' => self.bit_string()?,
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() && !self.after_name() => self.number(),
                b'?' => self.parameter()?,
                _ if is_word(b) => self.word(),
                _ => {
                    self.seal(b == b',');
                    self.symbol(b);
                }
            }
        }
        Ok(self.at)
    }

    fn symbol(&mut self, b: u8) {
        self.space();
        self.out.text.push(b);
        self.at += 1;
    }

    fn open(&mut self) {
        self.symbol(b'(');
        let start = self.out.text.len() - 1;
        let Some(rows) = self.rows.as_mut().filter(|rows| !rows.sealed) else { return };
        let announced = std::mem::take(&mut rows.announced);
        if rows.depth > 0 {
            rows.depth += 1;
        } else if announced && (rows.first.is_some() || self.out.literals.is_empty()) {
            (rows.depth, rows.start, rows.literals) = (1, start, self.out.literals.len());
        } else {
            rows.sealed = rows.first.is_some();
        }
    }

    fn close(&mut self) {
        self.symbol(b')');
        let Some(rows) = self.rows.as_mut().filter(|rows| rows.depth > 0) else { return };
        rows.depth -= 1;
        if rows.depth > 0 {
            return;
        }
        let end = self.out.text.len();
        match rows.first {
            None => rows.first = Some((rows.start, end)),
            Some((first, first_end)) => {
                self.out.rows += 1;
                rows.differ = self.out.text[first..first_end] != self.out.text[rows.start..];
                self.out.text.truncate(first_end);
            }
        }
    }

    /// A token that is no parenthesis: between rows there may be a comma only.
    #[inline]
    pub(super) fn seal(&mut self, comma: bool) {
        if let Some(rows) = self.rows.as_mut().filter(|rows| rows.depth == 0) {
            rows.sealed |= rows.first.is_some() && (!comma || rows.announced);
            rows.announced = comma && rows.first.is_some();
        }
    }

    /// Whether the last token was a name directly before (so that a point qualifies it).
    pub(super) fn after_name(&self) -> bool {
        !self.gap && self.out.text.last().is_some_and(|&b| is_word(b) || b == b'`')
    }
    fn skip(&mut self, count: usize) {
        self.at += count;
        self.gap = true;
    }
    fn skip_line(&mut self) {
        let rest = self.sql.get(self.at..).unwrap_or(&[]);
        self.skip(rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()));
    }
    pub(super) fn space(&mut self) {
        if self.gap && !self.out.text.is_empty() {
            self.out.text.push(b' ');
        }
        self.gap = false;
    }
    pub(super) fn copy(&mut self, end: usize) {
        self.space();
        let end = end.min(self.sql.len());
        self.out.text.extend_from_slice(&self.sql[self.at..end]);
        self.at = end;
    }

    pub(super) fn copy_doubling_backslashes(&mut self, end: usize) {
        self.space();
        for &b in &self.sql[self.at..end.min(self.sql.len())] {
            self.out.text.extend_from_slice(if b == b'\\' { b"\\\\" } else { std::slice::from_ref(&b) });
        }
        self.at = end;
    }

    fn comment(&mut self) -> Result<(), SqlError> {
        let rest = self.sql.get(self.at + 2..).unwrap_or(&[]);
        if let Some(code) = executable(rest) {
            self.in_executable = true;
            self.skip(2 + code);
            return Ok(());
        }
        let end = rest.windows(2).position(|w| w == b"*/");
        if rest.first() == Some(&b'+') && self.may_be_hinted() {
            let end = end.ok_or_else(|| self.unterminated())?;
            self.seal(false);
            self.gap = true;
            self.out.hints.push(self.at);
            self.copy(self.at + 2 + end + 2);
            self.gap = true;
            return Ok(());
        }
        self.skip(2 + end.map_or(rest.len(), |i| i + 2));
        Ok(())
    }

    /// Nothing but blanks stands behind a word that hints may follow.
    #[cold]
    fn may_be_hinted(&self) -> bool {
        const WORDS: [&[u8]; 5] = [b"select", b"insert", b"update", b"delete", b"replace"];
        let word = |text: &[u8]| {
            let length = text.iter().rev().take_while(|b| is_word(**b)).count();
            let (before, word) = text.split_at(text.len() - length);
            before.last() != Some(&b'.') && WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
        };
        let before = self.sql.get(..self.at).unwrap_or(&[]).trim_ascii_end();
        word(before) && word(self.out.text.trim_ascii_end())
    }

    pub(super) fn word(&mut self) {
        let rest = &self.sql[self.at..];
        let length = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
        let announces = matches!(length, 5 | 6) && b"values"[..length].eq_ignore_ascii_case(&rest[..length]);
        // A reserved word: without a point before it it is the type.
        let is_real = length == 4 && self.out.syntax.real_as_float && rest[..4].eq_ignore_ascii_case(b"real");
        if is_real && self.out.text.last() != Some(&b'.') {
            self.space();
            self.out.text.extend_from_slice(b"float");
            self.at += 4;
        } else if length == 3 && self.out.syntax.high_not && self.is_high_not() {
            self.space();
            self.out.text.extend_from_slice(b"!/");
            self.at += 3;
            self.gap = true;
        } else {
            self.copy(self.at + length);
        }
        self.seal(false);
        if let Some(rows) = self.rows.as_mut().filter(|rows| announces && rows.first.is_none()) {
            let starts = |word: &[u8]| self.out.text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
            rows.announced = starts(b"insert") || starts(b"replace");
        }
    }

    /// NOT stands in front of an operand, and not within a predicate or a definition.
    #[cold]
    fn is_high_not(&self) -> bool {
        const FOLLOW: [&[u8]; 11] = [
            b"in",
            b"like",
            b"between",
            b"regexp",
            b"rlike",
            b"exists",
            b"null",
            b"enforced",
            b"deterministic",
            b"found",
            b"preserve",
        ];
        let rest = &self.sql[self.at..];
        let next = rest.get(3..).unwrap_or(&[]).trim_ascii_start();
        let next = &next[..next.iter().position(|&b| !is_word(b)).unwrap_or(next.len())];
        let before = self.out.text.trim_ascii_end();
        let last = &before[before.iter().rposition(|&b| !is_word(b)).map_or(0, |at| at + 1)..];
        rest[..3].eq_ignore_ascii_case(b"not")
            && before.last() != Some(&b'.')
            && !last.eq_ignore_ascii_case(b"is")
            && !FOLLOW.iter().any(|word| word.eq_ignore_ascii_case(next))
    }

    fn quoted_identifier(&mut self) -> Result<(), SqlError> {
        let mut end = self.at + 1;
        loop {
            let rest = self.sql.get(end..).unwrap_or(&[]);
            let Some(close) = rest.iter().position(|&b| b == b'`') else { return Err(self.unterminated()) };
            end += close + 1;
            if self.sql.get(end) != Some(&b'`') {
                break;
            }
            end += 1;
        }
        self.copy(end);
        self.seal(false);
        Ok(())
    }

    /// A name by ANSI_QUOTES, which becomes one in backticks.
    fn name_in_double_quotes(&mut self) -> Result<(), SqlError> {
        self.seal(false);
        self.space();
        let start = self.out.text.len();
        self.out.text.push(b'`');
        let mut at = self.at + 1;
        loop {
            match (self.sql.get(at), self.sql.get(at + 1)) {
                (None, _) => {
                    self.out.text.truncate(start);
                    return Err(self.unterminated());
                }
                (Some(b'"'), Some(b'"')) => {
                    self.out.text.push(b'"');
                    at += 1;
                }
                (Some(b'"'), _) => break,
                (Some(b'`'), _) => self.out.text.extend_from_slice(b"``"),
                (Some(&b), _) => self.out.text.push(b),
            }
            at += 1;
        }
        self.out.text.push(b'`');
        self.at = at + 1;
        Ok(())
    }

    pub(super) fn unterminated(&self) -> SqlError {
        errors::syntax(&String::from_utf8_lossy(self.sql.get(self.at..).unwrap_or(&[])))
    }
}

/// Bytes of names and keywords; all of UTF-8's multi-byte sequences count.
pub(super) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || b >= 0x80
}

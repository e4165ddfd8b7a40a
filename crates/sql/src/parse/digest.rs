//! One pass over a statement's text: where it ends, and its normal form.
//!
//! Two forms are made of the same scan. [`Form::Digest`] puts a numbered placeholder (`?1`, `?2`, ...) for every number and
//! string, so that statements which differ only in their values share one plan; [`Form::Plain`] keeps the values and is
//! what the parsers read. Both drop comments, run executable ones (`/*!40101 ... */`) as code when their version is not above
//! ours, collapse white space, and number the client's own `?` parameters.
//!
//! A multi-row `INSERT ... VALUES (..), (..), ...` whose rows have one shape is digested as if it had its first row only, and
//! [`Digest::rows`] says how many rows of literals there are: a bulk load is planned once and not per statement.
//!
//! Nothing is allocated in steady state: the buffers belong to the caller. Any bytes are accepted; what is not SQL is left to
//! the parser to refuse.

use crate::{errors, value::datum::Datum, wire::SqlError};
use std::borrow::Cow;

/// `MMmmpp` of the MySQL version we answer as; executable comments of a higher one are comments.
const VERSION_NUMBER: u32 = 80_406;
/// Most literals of one statement that are lifted out; one with more is planned from its text.
pub const LITERALS_MAX: usize = 65_535;
/// Most literals of all rows of one INSERT digested by its first row.
pub const ROW_LITERALS_MAX: usize = 1 << 20;
/// Added to the number of a placeholder that stands for a hexadecimal or bit literal: these are numbers where one is wanted, other
/// texts are not, so that the plans differ.
pub const BINARY_LITERAL: usize = 1 << 20;
/// Room for literals that is kept from one statement to the next.
const LITERALS_KEPT: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Digest,
    Plain,
}

/// Where the code of a comment begins that is executable: behind `!` and a version that is not above ours. The text is what follows `/*`.
pub fn executable(rest: &[u8]) -> Option<usize> {
    let [b'!', rest @ ..] = rest else { return None };
    let digits = rest.iter().take(6).take_while(|b| b.is_ascii_digit()).count();
    let digits = if digits >= 5 { digits } else { 0 };
    let version = rest[..digits].iter().fold(0u32, |n, digit| n * 10 + u32::from(digit - b'0'));
    (version <= VERSION_NUMBER).then_some(1 + digits)
}

/// How statements are written, by `sql_mode` ([`crate::variables::sql_mode`]). The normal forms are written by the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Syntax {
    /// Double quotes are those of names.
    pub ansi_quotes: bool,
    /// `||` joins texts.
    pub pipes_concat: bool,
    /// A backslash in a text is itself.
    pub no_backslash: bool,
    /// The type REAL is FLOAT.
    pub real_as_float: bool,
    /// NOT in front of an operand binds like `!`.
    pub high_not: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LiteralKind {
    Integer,
    /// With a point.
    Decimal,
    /// With an exponent.
    Float,
    /// Quoted; `escaped` when it has backslashes or doubled quotes.
    Text {
        escaped: bool,
    },
    /// `0x..` or `x'..'`: digits only.
    Hex,
    /// `0b..` or `b'..'`: digits only.
    Bits,
}

/// A literal's place in the statement text, quotes and prefixes excluded.
#[derive(Clone, Copy, Debug)]
pub struct Literal {
    kind: LiteralKind,
    start: usize,
    end: usize,
}

/// The normal form of one statement.
#[derive(Default, Debug)]
pub struct Digest {
    pub text: Vec<u8>,
    pub literals: Vec<Literal>,
    /// `?` parameters of the client.
    pub parameters: usize,
    /// Where hints stand in the statement ([`crate::plan::hint`]); `text` has them as they are.
    pub hints: Vec<usize>,
    /// By which the statement was read.
    pub syntax: Syntax,
    /// Rows of an INSERT that `text` shows as one; the literals are theirs in order, equally many each. Otherwise 1.
    pub rows: usize,
}

impl Digest {
    /// Scans the statement at the start of `sql`; returns the offset behind it (after its `;`). An empty `text` means there
    /// was none.
    pub fn scan(&mut self, sql: &[u8], form: Form, syntax: Syntax) -> Result<usize, SqlError> {
        self.syntax = syntax;
        if form == Form::Digest
            && let Some(end) = self.scan_once(sql, form, Some(Rows::default()))?
        {
            return Ok(end);
        }
        Ok(self.scan_once(sql, form, None)?.unwrap_or(sql.len()))
    }

    /// `None`: the rows differ in shape and must not be digested as one.
    fn scan_once(&mut self, sql: &[u8], form: Form, rows: Option<Rows>) -> Result<Option<usize>, SqlError> {
        self.text.clear();
        self.literals.clear();
        self.literals.shrink_to(LITERALS_KEPT);
        self.parameters = 0;
        self.hints.clear();
        self.rows = 1;
        let mut scanner = Scanner { sql, at: 0, gap: false, in_executable: false, form, rows, out: self };
        let end = scanner.run()?;
        let alike = !scanner.rows.is_some_and(|rows| rows.differ);
        Ok(alike.then_some(end))
    }

    /// Literals of one of [`Digest::rows`].
    pub fn row_literals(&self) -> usize {
        self.literals.len() / self.rows.max(1)
    }

    /// Values of the literals, borrowed from the text wherever they have no escapes.
    pub fn values<'a>(&self, sql: &'a [u8], out: &mut Vec<Datum<'a>>) -> Result<(), SqlError> {
        for literal in &self.literals {
            out.push(literal.value(sql, self.syntax)?);
        }
        Ok(())
    }
}

impl Literal {
    fn value<'a>(&self, sql: &'a [u8], syntax: Syntax) -> Result<Datum<'a>, SqlError> {
        let raw = sql.get(self.start..self.end).unwrap_or(&[]);
        Ok(match self.kind {
            LiteralKind::Integer | LiteralKind::Decimal | LiteralKind::Float => number(raw)?,
            LiteralKind::Text { escaped: false } => Datum::Text(Cow::Borrowed(raw)),
            LiteralKind::Text { escaped: true } => {
                let quote = self.start.checked_sub(1).and_then(|i| sql.get(i)).copied().unwrap_or(b'\'');
                Datum::Text(Cow::Owned(unescape(raw, quote, !syntax.no_backslash)))
            }
            LiteralKind::Hex => Datum::Bytes(Cow::Owned(from_hex(raw))),
            LiteralKind::Bits => Datum::Bytes(Cow::Owned(from_bits(raw))),
        })
    }
}

/// A numeric literal: integer, exact decimal or double, as MySQL types them.
pub fn number(raw: &[u8]) -> Result<Datum<'static>, SqlError> {
    let mut int: u64 = 0;
    let mut plain = !raw.is_empty();
    for &b in raw {
        match (b.is_ascii_digit(), int.checked_mul(10).and_then(|n| n.checked_add(u64::from(b.wrapping_sub(b'0'))))) {
            (true, Some(n)) => int = n,
            _ => {
                plain = false;
                break;
            }
        }
    }
    if plain {
        return Ok(i64::try_from(int).map_or(Datum::UInt(int), Datum::Int));
    }
    let text = std::str::from_utf8(raw).unwrap_or("");
    if !raw.iter().any(|b| matches!(b, b'e' | b'E'))
        && let Some((unscaled, scale)) = crate::value::decimal::parse_exact(text)
    {
        return Ok(Datum::Decimal { unscaled, scale });
    }
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() => Ok(Datum::Double(x)),
        _ => Err(errors::illegal_double(text)),
    }
}

/// Bytes of hexadecimal digits; an odd count gets a leading zero.
pub fn from_hex(raw: &[u8]) -> Vec<u8> {
    let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u8;
    let (first, rest) = if raw.len() % 2 == 1 { raw.split_at(1) } else { raw.split_at(0) };
    let mut out = Vec::with_capacity(raw.len() / 2 + 1);
    out.extend(first.iter().map(|&b| digit(b)));
    out.extend(rest.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
    out
}

/// Bytes of binary digits, filled up with zeros in front.
pub fn from_bits(raw: &[u8]) -> Vec<u8> {
    raw.rchunks(8).rev().map(|byte| byte.iter().fold(0, |n, &digit| n << 1 | u8::from(digit == b'1'))).collect()
}

/// Undoes MySQL's escapes inside a string that was quoted by `quote`; those by `backslashes` as well.
pub fn unescape(raw: &[u8], quote: u8, backslashes: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied();
    while let Some(b) = bytes.next() {
        if b == quote {
            out.push(b);
            bytes.next();
        } else if b == b'\\' && backslashes {
            match bytes.next() {
                Some(b'0') => out.push(0),
                Some(b'b') => out.push(8),
                Some(b'n') => out.push(b'\n'),
                Some(b'r') => out.push(b'\r'),
                Some(b't') => out.push(b'\t'),
                Some(b'Z') => out.push(26),
                Some(c @ (b'%' | b'_')) => out.extend_from_slice(&[b'\\', c]),
                Some(c) => out.push(c),
                None => {}
            }
        } else {
            out.push(b);
        }
    }
    out
}

/// Where the scanner stands in the rows of a VALUES list.
#[derive(Default)]
struct Rows {
    /// The last token was the word VALUES, or a comma behind a row: a row may begin.
    announced: bool,
    /// Open parentheses of the row under way.
    depth: usize,
    /// The first row in the normal form: from its parenthesis to behind the closing one.
    first: Option<(usize, usize)>,
    /// Where the row under way begins in the normal form, and how many literals were before it.
    start: usize,
    literals: usize,
    /// Something other than a further row followed.
    sealed: bool,
    /// The statement must be scanned without this.
    differ: bool,
}

struct Scanner<'a> {
    sql: &'a [u8],
    at: usize,
    /// White space was skipped since the last token.
    gap: bool,
    in_executable: bool,
    form: Form,
    rows: Option<Rows>,
    out: &'a mut Digest,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.sql.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self) -> Result<usize, SqlError> {
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
    fn seal(&mut self, comma: bool) {
        if let Some(rows) = self.rows.as_mut().filter(|rows| rows.depth == 0) {
            rows.sealed |= rows.first.is_some() && (!comma || rows.announced);
            rows.announced = comma && rows.first.is_some();
        }
    }

    /// Whether the last token was a name directly before (so that a point qualifies it).
    fn after_name(&self) -> bool {
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
    fn space(&mut self) {
        if self.gap && !self.out.text.is_empty() {
            self.out.text.push(b' ');
        }
        self.gap = false;
    }
    fn copy(&mut self, end: usize) {
        self.space();
        let end = end.min(self.sql.len());
        self.out.text.extend_from_slice(&self.sql[self.at..end]);
        self.at = end;
    }

    fn copy_doubling_backslashes(&mut self, end: usize) {
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

    fn word(&mut self) {
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

    fn unterminated(&self) -> SqlError {
        errors::syntax(&String::from_utf8_lossy(self.sql.get(self.at..).unwrap_or(&[])))
    }

    fn literal(&mut self, kind: LiteralKind, start: usize, end: usize, token_end: usize) {
        self.seal(false);
        // Each row is numbered like the first.
        let (mut before, mut most) = (0, LITERALS_MAX);
        if let Some(rows) = &mut self.rows {
            if rows.depth > 0 && rows.first.is_some() {
                (before, most) = (rows.literals, ROW_LITERALS_MAX);
            }
            rows.differ |= self.out.rows > 1 && (rows.depth == 0 || self.out.literals.len() >= most);
        }
        if self.form == Form::Plain || self.out.literals.len() >= most {
            if self.out.syntax.no_backslash && matches!(kind, LiteralKind::Text { .. }) {
                return self.copy_doubling_backslashes(token_end);
            }
            return self.copy(token_end);
        }
        // A literal glued to the token before it would change meaning once it is a placeholder.
        if self.out.text.last().is_some_and(|&b| is_word(b)) {
            self.gap = true;
        }
        self.space();
        self.out.literals.push(Literal { kind, start, end });
        let binary = matches!(kind, LiteralKind::Hex | LiteralKind::Bits);
        let number = self.out.literals.len() - before + if binary { BINARY_LITERAL } else { 0 };
        self.out.text.push(b'?');
        push_number(&mut self.out.text, number);
        self.at = token_end;
    }

    fn string(&mut self, quote_at: usize) -> Result<(), SqlError> {
        let quote = self.sql[quote_at];
        let mut at = quote_at + 1;
        let mut escaped = false;
        loop {
            match self.sql.get(at) {
                None => return Err(self.unterminated()),
                Some(b'\\') if !self.out.syntax.no_backslash => {
                    escaped = true;
                    at += 2;
                }
                Some(&b) if b == quote => {
                    if self.sql.get(at + 1) != Some(&quote) {
                        break;
                    }
                    escaped = true;
                    at += 2;
                }
                Some(_) => at += 1,
            }
        }
        self.literal(LiteralKind::Text { escaped }, quote_at + 1, at, at + 1);
        Ok(())
    }

    fn hex_number(&mut self) {
        let rest = &self.sql[self.at + 2..];
        let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if rest.get(digits).is_some_and(|&b| is_word(b)) {
            return self.word();
        }
        let start = self.at + 2;
        self.literal(LiteralKind::Hex, start, start + digits, start + digits);
    }

    fn hex_string(&mut self) -> Result<(), SqlError> {
        let start = self.at + 2;
        let rest = self.sql.get(start..).unwrap_or(&[]);
        let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if rest.get(digits) != Some(&b'\'') || digits % 2 == 1 {
            return Err(self.unterminated());
        }
        self.literal(LiteralKind::Hex, start, start + digits, start + digits + 1);
        Ok(())
    }

    fn bit_number(&mut self) {
        let start = self.at + 2;
        let rest = &self.sql[start..];
        let digits = rest.iter().take_while(|b| matches!(b, b'0' | b'1')).count();
        if rest.get(digits).is_some_and(|&b| is_word(b)) {
            return self.word();
        }
        if self.form == Form::Digest {
            return self.literal(LiteralKind::Bits, start, start + digits, start + digits);
        }
        // The parser knows the quoted form only.
        self.seal(false);
        self.space();
        self.out.text.extend_from_slice(b"b'");
        self.out.text.extend_from_slice(&self.sql[start..start + digits]);
        self.out.text.push(b'\'');
        self.at = start + digits;
    }

    fn bit_string(&mut self) -> Result<(), SqlError> {
        let start = self.at + 2;
        let rest = self.sql.get(start..).unwrap_or(&[]);
        let digits = rest.iter().take_while(|b| matches!(b, b'0' | b'1')).count();
        if rest.get(digits) != Some(&b'\'') {
            return Err(self.unterminated());
        }
        self.literal(LiteralKind::Bits, start, start + digits, start + digits + 1);
        Ok(())
    }

    fn number(&mut self) {
        let rest = &self.sql[self.at..];
        let digits = |from: usize| rest[from.min(rest.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut kind = LiteralKind::Integer;
        if rest.get(end) == Some(&b'.') {
            kind = LiteralKind::Decimal;
            end += 1 + digits(end + 1);
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                kind = LiteralKind::Float;
                end += 1 + sign + exponent;
            }
        }
        if kind == LiteralKind::Integer && rest.get(end).is_some_and(|&b| is_word(b)) {
            return self.word(); // a name that starts with digits
        }
        if self.after_name() && self.out.text.last() == Some(&b'.') {
            return self.copy(self.at + end);
        }
        self.literal(kind, self.at, self.at + end, self.at + end);
    }

    fn parameter(&mut self) -> Result<(), SqlError> {
        if self.form == Form::Digest {
            return Err(self.unterminated()); // a text statement has no parameters
        }
        self.space();
        self.out.parameters += 1;
        let number = self.out.parameters;
        self.out.text.push(b'?');
        push_number(&mut self.out.text, number);
        self.at += 1;
        Ok(())
    }
}

fn push_number(out: &mut Vec<u8>, n: usize) {
    crate::wire::number::push_u64(out, n as u64);
}

/// Bytes of names and keywords; all of UTF-8's multi-byte sequences count.
fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || b >= 0x80
}

/// Without the zero byte that C programs like mysqlslap count as a part of their text.
pub fn without_end(sql: &[u8]) -> &[u8] {
    sql.trim_ascii_end().strip_suffix(b"\0").unwrap_or(sql)
}

/// Whether anything but white space, comments and semicolons is left.
pub fn has_statement(text: &[u8]) -> bool {
    if text.iter().all(|b| b.is_ascii_whitespace() || *b == b';') {
        return false;
    }
    let mut digest = Digest::default();
    digest.scan(text, Form::Plain, Syntax::default()).is_err() || !digest.text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(sql: &str) -> (String, Vec<Datum<'_>>) {
        let mut d = Digest::default();
        d.scan(sql.as_bytes(), Form::Digest, Syntax::default()).unwrap();
        let mut values = Vec::new();
        d.values(sql.as_bytes(), &mut values).unwrap();
        (String::from_utf8(d.text).unwrap(), values)
    }

    #[test]
    fn literals_become_placeholders() {
        let (text, values) =
            digest("SELECT  c FROM t1 WHERE id=-42 AND x IN ('a''b', \"q\\n\", 1.50, 1e3, 0xff, x'0A') -- end");
        assert_eq!(text, "SELECT c FROM t1 WHERE id=-?1 AND x IN (?2, ?3, ?4, ?5, ?1048582, ?1048583)");
        assert_eq!(values[0], Datum::Int(42));
        assert_eq!(values[1], Datum::Text(Cow::Borrowed(b"a'b")));
        assert_eq!(values[2], Datum::Text(Cow::Borrowed(b"q\n")));
        assert_eq!(values[3], Datum::Decimal { unscaled: 150, scale: 2 });
        assert_eq!(values[4], Datum::Double(1000.0));
        assert_eq!(values[5], Datum::Bytes(Cow::Borrowed(b"\xff")));
        assert_eq!(values[6], Datum::Bytes(Cow::Borrowed(b"\n")));
        let (text, values) = digest("SELECT 1, b'101', 0b1000001000000001");
        assert_eq!(text, "SELECT ?1, ?1048578, ?1048579");
        assert_eq!(values[1..], [Datum::Bytes(Cow::Borrowed(b"\x05")), Datum::Bytes(Cow::Borrowed(b"\x82\x01"))]);
        assert_eq!(digest("select 18446744073709551615 ,9223372036854775808.0").1[0], Datum::UInt(u64::MAX));
    }

    #[test]
    fn rows_of_one_shape_are_one() {
        let rows = |sql: &str| {
            let mut d = Digest::default();
            d.scan(sql.as_bytes(), Form::Digest, Syntax::default()).unwrap();
            (String::from_utf8(d.text.clone()).unwrap(), d.rows, d.literals.len())
        };
        let one = |text: &str, rows, literals| (text.to_owned(), rows, literals);
        assert_eq!(rows("INSERT INTO t VALUES (1,'a'),(2,'b') , (3, 'c')").1, 1, "spaces differ");
        assert_eq!(rows("INSERT INTO t VALUES(1,'a'),(2,'b') ,(3,'c')"), one("INSERT INTO t VALUES(?1,?2)", 3, 6));
        assert_eq!(
            rows("insert t (a, b) value (1, f(2, (3))),\n(4, f(5, (6))) on duplicate key update a = values(a)"),
            one("insert t (a, b) value (?1, f(?2, (?3))) on duplicate key update a = values(a)", 2, 6)
        );
        for other in [
            "INSERT INTO t VALUES (1,2),(3,-4)",
            "INSERT INTO t VALUES (1,2),(3,NULL)",
            "INSERT INTO t VALUES (1),(2) ON DUPLICATE KEY UPDATE a=5",
            "INSERT INTO t VALUES (1),(2),(3,4)",
            "SELECT 1, VALUES (2),(3)",
            "INSERT INTO t SELECT 5 VALUES (1),(2)",
        ] {
            let (text, count, literals) = rows(other);
            assert!(count == 1 && text.contains(&format!("?{literals}")), "{text}");
        }
        assert_eq!(rows("INSERT INTO t VALUES (1) (2)"), one("INSERT INTO t VALUES (?1) (?2)", 1, 2));
        assert_eq!(rows("INSERT INTO t VALUES (1),,(2)"), one("INSERT INTO t VALUES (?1),,(?2)", 1, 2));
        assert_eq!(rows("INSERT INTO t VALUES (),()"), one("INSERT INTO t VALUES ()", 2, 0));
        assert_eq!(rows("INSERT INTO t VALUES (1),(2); SELECT 3").1, 2);
        let mut d = Digest::default();
        d.scan(b"INSERT INTO t VALUES (1),(2)", Form::Plain, Syntax::default()).unwrap();
        assert_eq!((d.text.as_slice(), d.rows), (&b"INSERT INTO t VALUES (1),(2)"[..], 1));
    }

    #[test]
    fn comments_and_executable_comments() {
        assert_eq!(digest("/* x */ SELECT /*!40101 a, */ /*!99999 b, */ c # tail\n FROM t").0, "SELECT a, c FROM t");
        assert_eq!(digest("select `a 1``b`, t.c1, 2x").0, "select `a 1``b`, t.c1, 2x");
    }

    #[test]
    fn statements_are_split() {
        let sql = b"; select 'a;b' ; select 2";
        let mut d = Digest::default();
        let end = d.scan(sql, Form::Plain, Syntax::default()).unwrap();
        assert_eq!(d.text, b"select 'a;b'");
        let rest = &sql[end..];
        d.scan(rest, Form::Plain, Syntax::default()).unwrap();
        assert_eq!(d.text, b"select 2");
        d.scan(b"select ?, 5, ?", Form::Plain, Syntax::default()).unwrap();
        assert_eq!((d.text.as_slice(), d.parameters), (&b"select ?1, 5, ?2"[..], 2));
        assert!(d.scan(b"select 'abc", Form::Plain, Syntax::default()).is_err());
        assert!(d.scan(b"select `abc", Form::Digest, Syntax::default()).is_err());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        let mut d = Digest::default();
        let sql = b"select 'a\\'' /*! /* */ */ x'0' 0x 0xg 1.e 1e+ .5 `q`` ? @@x @'y' \xff\xfe -- \n;;#";
        for start in 0..sql.len() {
            for end in start..sql.len() {
                let _ = d.scan(&sql[start..end], Form::Digest, Syntax::default());
                let _ = d.scan(&sql[start..end], Form::Plain, Syntax::default());
            }
        }
    }

    #[test]
    fn other_syntax_is_written_as_the_default() {
        let all =
            Syntax { ansi_quotes: true, pipes_concat: true, no_backslash: true, real_as_float: true, high_not: true };
        let scan = |sql: &str, form| {
            let mut d = Digest::default();
            d.scan(sql.as_bytes(), form, all).unwrap();
            let mut values = Vec::new();
            d.values(sql.as_bytes(), &mut values).unwrap();
            let values: Vec<String> = values.iter().map(Datum::as_string).collect();
            (String::from_utf8(d.text.clone()).unwrap(), values)
        };
        let sql = r#"SELECT "a""b`c"||'x\n''y' , CAST(1 AS REAL), t.real || "d" FROM "t""#;
        let (text, values) = scan(sql, Form::Digest);
        assert_eq!(text, r#"SELECT `a"b``c`||/?1 , CAST(?2 AS float), t.real ||/ `d` FROM `t`"#);
        assert_eq!(values, [r"x\n'y", "1"]);
        let (text, _) = scan(sql, Form::Plain);
        assert_eq!(text, r#"SELECT `a"b``c`||/'x\\n''y' , CAST(1 AS float), t.real ||/ `d` FROM `t`"#);
        let mut d = Digest::default();
        assert!(d.scan(b"SELECT \"a", Form::Plain, all).is_err());
        assert!(d.scan(b"SELECT 1 ||/ 2", Form::Plain, Syntax::default()).is_err());
        assert!(d.scan(b"SELECT 1 ||/* x */ 2", Form::Plain, Syntax::default()).is_ok());
        let sql = "SELECT NOT a BETWEEN 1 AND 2, a NOT IN (1), (not b), a IS NOT NULL, NOT EXISTS (SELECT 1), t.not";
        let (text, _) = scan(sql, Form::Plain);
        let want = "SELECT !/ a BETWEEN 1 AND 2, a NOT IN (1), (!/ b), a IS NOT NULL, NOT EXISTS (SELECT 1), t.not";
        assert_eq!(text, want);
        assert!(d.scan(b"SELECT ! / 2", Form::Plain, Syntax::default()).is_err());
    }
}

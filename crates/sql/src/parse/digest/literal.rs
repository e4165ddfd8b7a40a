//! Literals of a statement: as the scanner meets them, and as values.

use std::borrow::Cow;

use super::{
    BINARY_LITERAL, Form, LITERALS_MAX, ROW_LITERALS_MAX, Syntax,
    scanner::{Scanner, is_word},
};
use crate::{errors, value::datum::Datum, wire::SqlError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LiteralKind {
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
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Literal {
    pub(super) fn value<'a>(&self, sql: &'a [u8], syntax: Syntax) -> Result<Datum<'a>, SqlError> {
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

impl Scanner<'_> {
    pub(super) fn literal(&mut self, kind: LiteralKind, start: usize, end: usize, token_end: usize) {
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

    pub(super) fn string(&mut self, quote_at: usize) -> Result<(), SqlError> {
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

    pub(super) fn hex_number(&mut self) {
        let rest = &self.sql[self.at + 2..];
        let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if rest.get(digits).is_some_and(|&b| is_word(b)) {
            return self.word();
        }
        let start = self.at + 2;
        self.literal(LiteralKind::Hex, start, start + digits, start + digits);
    }

    pub(super) fn hex_string(&mut self) -> Result<(), SqlError> {
        let start = self.at + 2;
        let rest = self.sql.get(start..).unwrap_or(&[]);
        let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if rest.get(digits) != Some(&b'\'') || digits % 2 == 1 {
            return Err(self.unterminated());
        }
        self.literal(LiteralKind::Hex, start, start + digits, start + digits + 1);
        Ok(())
    }

    pub(super) fn bit_number(&mut self) {
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

    pub(super) fn bit_string(&mut self) -> Result<(), SqlError> {
        let start = self.at + 2;
        let rest = self.sql.get(start..).unwrap_or(&[]);
        let digits = rest.iter().take_while(|b| matches!(b, b'0' | b'1')).count();
        if rest.get(digits) != Some(&b'\'') {
            return Err(self.unterminated());
        }
        self.literal(LiteralKind::Bits, start, start + digits, start + digits + 1);
        Ok(())
    }

    pub(super) fn number(&mut self) {
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

    pub(super) fn parameter(&mut self) -> Result<(), SqlError> {
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

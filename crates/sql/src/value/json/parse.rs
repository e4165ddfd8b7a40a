//! From text. The order of the checks, the words and the positions of errors are those of the parser that MySQL uses (RapidJSON), which clients see.

use super::value::{DEPTH_MAX, Json, Object};

/// What is wrong with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// What, and at which byte.
    Syntax(&'static str, usize),
    /// Nested too deeply.
    Depth,
}

type Parsed<T> = Result<T, ParseError>;

const INVALID_VALUE: &str = "Invalid value.";
const INVALID_ENCODING: &str = "Invalid encoding in string.";
const TOO_BIG: &str = "Number too big to be stored in double.";

/// Reads a whole text.
///
/// # Errors
/// It is no JSON text, or its values are nested too deeply.
pub fn parse(text: &[u8]) -> Parsed<Json> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    parser.skip_space();
    if parser.peek() == 0 {
        return Err(ParseError::Syntax("The document is empty.", parser.at));
    }
    let value = parser.value()?;
    parser.skip_space();
    match parser.at == text.len() {
        true => Ok(value),
        false => parser.fail("The document root must not be followed by other values."),
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// The next byte; 0 at the end.
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }
    fn consume(&mut self, byte: u8) -> bool {
        let found = self.at < self.text.len() && self.text[self.at] == byte;
        self.at += usize::from(found);
        found
    }
    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }
    fn fail<T>(&self, what: &'static str) -> Parsed<T> {
        Err(ParseError::Syntax(what, self.at))
    }

    fn value(&mut self) -> Parsed<Json> {
        match self.peek() {
            b'n' => self.word(b"null", Json::Null),
            b't' => self.word(b"true", Json::Bool(true)),
            b'f' => self.word(b"false", Json::Bool(false)),
            b'"' => Ok(Json::String(self.string()?)),
            b'{' => self.nested(Parser::object),
            b'[' => self.nested(Parser::array),
            _ => self.number(),
        }
    }

    fn nested(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<Json>) -> Parsed<Json> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ParseError::Depth);
        }
        let value = inside(self);
        self.depth -= 1;
        value
    }

    fn word(&mut self, word: &[u8], value: Json) -> Parsed<Json> {
        for &byte in word {
            if !self.consume(byte) {
                return self.fail(INVALID_VALUE);
            }
        }
        Ok(value)
    }

    fn array(&mut self) -> Parsed<Json> {
        self.at += 1;
        self.skip_space();
        let mut list = Vec::new();
        if self.consume(b']') {
            return Ok(Json::Array(list));
        }
        loop {
            list.push(self.value()?);
            self.skip_space();
            if self.consume(b',') {
                self.skip_space();
            } else if self.consume(b']') {
                return Ok(Json::Array(list));
            } else {
                return self.fail("Missing a comma or ']' after an array element.");
            }
        }
    }

    fn object(&mut self) -> Parsed<Json> {
        self.at += 1;
        self.skip_space();
        let mut members = Vec::new();
        if self.consume(b'}') {
            return Ok(Json::Object(Object::new()));
        }
        loop {
            if self.peek() != b'"' {
                return self.fail("Missing a name for object member.");
            }
            let key = self.string()?;
            self.skip_space();
            if !self.consume(b':') {
                return self.fail("Missing a colon after a name of object member.");
            }
            self.skip_space();
            members.push((key, self.value()?));
            self.skip_space();
            if self.consume(b',') {
                self.skip_space();
            } else if self.consume(b'}') {
                return Ok(Json::Object(Object::from_members(members)));
            } else {
                return self.fail("Missing a comma or '}' after an object member.");
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return String::from_utf8(out).or_else(|_| self.fail(INVALID_ENCODING));
                }
                b'\\' => self.escape(&mut out)?,
                0 if self.at == self.text.len() => return self.fail("Missing a closing quotation mark in string."),
                ..0x20 => return self.fail(INVALID_ENCODING),
                0x20..0x80 => {
                    out.push(self.peek());
                    self.at += 1;
                }
                _ => match character(&self.text[self.at..]) {
                    Some(bytes) => {
                        out.extend_from_slice(bytes);
                        self.at += bytes.len();
                    }
                    None => return self.fail(INVALID_ENCODING),
                },
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Parsed<()> {
        let start = self.at;
        let fail = |what| Err(ParseError::Syntax(what, start));
        self.at += 1;
        let plain = match self.peek() {
            c @ (b'"' | b'\\' | b'/') => c,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at += 1;
                let surrogate = "The surrogate pair in string is invalid.";
                let mut code = self.hex(start)?;
                if (0xd800..0xdc00).contains(&code) {
                    if !(self.consume(b'\\') && self.consume(b'u')) {
                        return fail(surrogate);
                    }
                    let low = self.hex(start)?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return fail(surrogate);
                    }
                    code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
                }
                let Some(c) = char::from_u32(code) else { return fail(surrogate) };
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return fail("Invalid escape character in string."),
        };
        out.push(plain);
        self.at += 1;
        Ok(())
    }

    fn hex(&mut self, start: usize) -> Parsed<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()).to_digit(16) else {
                return Err(ParseError::Syntax("Incorrect hex digit after \\u escape in string.", start));
            };
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at - start
    }

    /// An integer where it is one that fits, else a double.
    fn number(&mut self) -> Parsed<Json> {
        let start = self.at;
        let negative = self.consume(b'-');
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => _ = self.digits(),
            _ => return self.fail(INVALID_VALUE),
        }
        let mut is_integer = true;
        if self.consume(b'.') {
            is_integer = false;
            if self.digits() == 0 {
                return self.fail("Miss fraction part in number.");
            }
        }
        if self.consume(b'e') || self.consume(b'E') {
            is_integer = false;
            let _ = self.consume(b'+') || self.consume(b'-');
            if self.digits() == 0 {
                return self.fail("Miss exponent in number.");
            }
        }
        // Digits, signs and points are ASCII.
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or("0");
        if is_integer {
            if let Ok(n) = text.parse::<i64>() {
                return Ok(Json::Int(n));
            }
            if let (false, Ok(n)) = (negative, text.parse::<u64>()) {
                return Ok(Json::UInt(n));
            }
        }
        match text.parse::<f64>() {
            Ok(x) if x.is_finite() => Ok(Json::Double(x)),
            _ => Err(ParseError::Syntax(TOO_BIG, start)),
        }
    }
}

/// The character that a text begins with.
fn character(text: &[u8]) -> Option<&[u8]> {
    let length = match text.first()? {
        0xf0.. => 4,
        0xe0.. => 3,
        _ => 2,
    };
    let bytes = text.get(..length)?;
    std::str::from_utf8(bytes).is_ok_and(|s| s.chars().count() == 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (&'static str, usize) {
        match parse(text.as_bytes()) {
            Err(ParseError::Syntax(what, at)) => (what, at),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn numbers_keep_their_kind() {
        let number = |text: &str| parse(text.as_bytes()).unwrap();
        assert_eq!(number("-0"), Json::Int(0));
        assert_eq!(number("9223372036854775807"), Json::Int(i64::MAX));
        assert_eq!(number("9223372036854775808"), Json::UInt(1 << 63));
        assert_eq!(number("-9223372036854775809"), Json::Double(-9.223_372_036_854_776e18));
        assert_eq!(number("1.0"), Json::Double(1.0));
        assert_eq!(number("1E2"), Json::Double(100.0));
    }

    #[test]
    fn errors_have_the_reference_s_words_and_positions() {
        for (text, at) in [("nulx", 3), ("-", 1), ("[1,]", 3), ("{\"a\":}", 5), ("x", 0)] {
            assert_eq!(error(text), (INVALID_VALUE, at), "{text}");
        }
        assert_eq!(error("  "), ("The document is empty.", 2));
        assert_eq!(error("\"a\\x\"").1, 2);
        assert_eq!(error("\"\\ud800\"").1, 1);
        assert_eq!(error("1e400"), (TOO_BIG, 0));
        assert_eq!(error("01").1, 1);
        assert_eq!(parse("[".repeat(101).as_bytes()), Err(ParseError::Depth));
        assert!(parse(&[b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn strings_are_unescaped() {
        let text = r#""\u00e9\ud83d\ude00\n\/""#;
        assert_eq!(parse(text.as_bytes()), Ok(Json::text("é😀\n/")));
    }
}

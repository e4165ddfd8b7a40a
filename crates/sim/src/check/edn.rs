//! A reader of EDN, the notation in which Jepsen keeps histories: one form after another from a stream.
//!
//! It reads all of EDN but characters and ratios, because histories of others carry maps full of things that do not concern us. What it does
//! not understand it refuses, with line and column. A form is bounded ([`FORM_VALUES_MAX`], [`DEPTH_MAX`], [`TOKEN_BYTES_MAX`]), the stream is not.

use std::{fmt, io::BufRead};

/// Most values in one form.
pub const FORM_VALUES_MAX: usize = 4 << 20;
/// Deepest nesting.
pub const DEPTH_MAX: usize = 64;
/// Longest number, name or string.
pub const TOKEN_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Without its colon.
    Keyword(String),
    Symbol(String),
    /// A vector or a list.
    Sequence(Vec<Value>),
    Set(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// `#name value`.
    Tagged(String, Box<Value>),
}

impl Value {
    /// What a map holds under a keyword.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| matches!(key, Value::Keyword(k) if k == name)).map(|(_, value)| value)
    }
}

/// What could not be read, and where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdnError {
    pub line: u64,
    pub column: u64,
    pub what: String,
}

impl fmt::Display for EdnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for EdnError {}

/// Line and column, from 1.
pub type Position = (u64, u64);

/// Forms of a stream.
#[derive(Debug)]
pub struct Forms<R> {
    source: R,
    line: u64,
    column: u64,
    /// Values of the form being read.
    values: usize,
    /// Inside a vector that encloses the whole stream.
    enclosed: bool,
    begun: bool,
}

impl<R: BufRead> Forms<R> {
    pub fn new(source: R) -> Forms<R> {
        Forms { source, line: 1, column: 1, values: 0, enclosed: false, begun: false }
    }
    /// Where the next byte stands.
    pub fn position(&self) -> Position {
        (self.line, self.column)
    }
    /// A refusal of what begins at `position`.
    pub fn refusal(position: Position, what: impl Into<String>) -> EdnError {
        EdnError { line: position.0, column: position.1, what: what.into() }
    }

    /// The next form and where it begins; `None` at the end. A vector around all forms is looked through.
    ///
    /// # Errors
    /// What is not EDN, or over a limit, or cannot be read at all.
    pub fn next_form(&mut self) -> Result<Option<(Position, Value)>, EdnError> {
        loop {
            self.skip_space()?;
            let start = self.position();
            match self.peek()? {
                None if self.enclosed => return Err(Self::refusal(start, "the vector around the forms does not end")),
                None => return Ok(None),
                Some(b'[') if !self.begun => {
                    self.begun = true;
                    self.enclosed = true;
                    self.take()?;
                }
                Some(b']') if self.enclosed => {
                    self.take()?;
                    self.enclosed = false;
                }
                Some(_) => {
                    self.begun = true;
                    self.values = 0;
                    if let Some(value) = self.value(0)? {
                        return Ok(Some((start, value)));
                    }
                }
            }
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, EdnError> {
        let position = self.position();
        match self.source.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => Err(Self::refusal(position, format!("cannot be read: {error}"))),
        }
    }
    fn take(&mut self) -> Result<Option<u8>, EdnError> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.source.consume(1);
            if byte == b'\n' {
                (self.line, self.column) = (self.line + 1, 1);
            } else {
                self.column += 1;
            }
        }
        Ok(byte)
    }
    /// Blanks, commas and comments.
    fn skip_space(&mut self) -> Result<(), EdnError> {
        while let Some(byte) = self.peek()? {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => {
                    self.take()?;
                }
                b';' => while !matches!(self.take()?, None | Some(b'\n')) {},
                _ => break,
            }
        }
        Ok(())
    }

    /// One value; `None` if it was one to be discarded (`#_`).
    fn value(&mut self, depth: usize) -> Result<Option<Value>, EdnError> {
        let start = self.position();
        self.values += 1;
        if depth > DEPTH_MAX || self.values > FORM_VALUES_MAX {
            return Err(Self::refusal(start, "the form is too deep or too large"));
        }
        let Some(byte) = self.take()? else { return Err(Self::refusal(start, "a value is missing at the end")) };
        let value = match byte {
            b'[' => Value::Sequence(self.until(b']', depth, start)?),
            b'(' => Value::Sequence(self.until(b')', depth, start)?),
            b'{' => {
                let all = self.until(b'}', depth, start)?;
                if all.len() % 2 != 0 {
                    return Err(Self::refusal(start, "a key of this map has no value"));
                }
                let mut all = all.into_iter();
                Value::Map(std::iter::from_fn(|| all.next().zip(all.next())).collect())
            }
            b'#' => return self.dispatch(depth, start),
            b'"' => Value::Text(self.text(start)?),
            b':' => Value::Keyword(self.token(None, start)?),
            b'+'
            | b'-'
            | b'0'..=b'9'
            | b'.'
            | b'_'
            | b'*'
            | b'!'
            | b'?'
            | b'$'
            | b'%'
            | b'&'
            | b'='
            | b'<'
            | b'>'
            | b'/' => {
                let token = self.token(Some(byte), start)?;
                atom(token).ok_or_else(|| Self::refusal(start, "not a number"))?
            }
            _ if byte.is_ascii_alphabetic() => {
                let token = self.token(Some(byte), start)?;
                atom(token).ok_or_else(|| Self::refusal(start, "not a name"))?
            }
            _ => return Err(Self::refusal(start, format!("no value begins with {:?}", char::from(byte)))),
        };
        Ok(Some(value))
    }

    fn until(&mut self, end: u8, depth: usize, start: Position) -> Result<Vec<Value>, EdnError> {
        let mut all = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek()? {
                None => return Err(Self::refusal(start, format!("{:?} is missing", char::from(end)))),
                Some(byte) if byte == end => {
                    self.take()?;
                    return Ok(all);
                }
                Some(_) => all.extend(self.value(depth + 1)?),
            }
        }
    }

    fn dispatch(&mut self, depth: usize, start: Position) -> Result<Option<Value>, EdnError> {
        match self.peek()? {
            Some(b'{') => {
                self.take()?;
                Ok(Some(Value::Set(self.until(b'}', depth, start)?)))
            }
            Some(b'_') => {
                self.take()?;
                self.required(depth, start)?;
                Ok(None)
            }
            Some(byte) if byte.is_ascii_alphabetic() => {
                let tag = self.token(None, start)?;
                let value = self.required(depth, start)?;
                Ok(Some(Value::Tagged(tag, Box::new(value))))
            }
            _ => Err(Self::refusal(start, "nothing known begins with #")),
        }
    }
    /// A value that must be there, after a tag or to be discarded.
    fn required(&mut self, depth: usize, start: Position) -> Result<Value, EdnError> {
        loop {
            self.skip_space()?;
            if matches!(self.peek()?, None | Some(b']' | b')' | b'}')) {
                return Err(Self::refusal(start, "a value is missing after this"));
            }
            if let Some(value) = self.value(depth + 1)? {
                return Ok(value);
            }
        }
    }

    fn text(&mut self, start: Position) -> Result<String, EdnError> {
        let mut bytes = Vec::new();
        loop {
            let byte = self.take()?.ok_or_else(|| Self::refusal(start, "the string does not end"))?;
            match byte {
                b'"' => break,
                b'\\' => match self.take()? {
                    Some(b'n') => bytes.push(b'\n'),
                    Some(b't') => bytes.push(b'\t'),
                    Some(b'r') => bytes.push(b'\r'),
                    Some(b'b') => bytes.push(8),
                    Some(b'f') => bytes.push(12),
                    Some(byte @ (b'\\' | b'"')) => bytes.push(byte),
                    Some(b'u') => {
                        let code = self.hex4(start)?;
                        bytes.extend_from_slice(char::from_u32(code).unwrap_or('\u{fffd}').to_string().as_bytes());
                    }
                    _ => return Err(Self::refusal(start, "the string has an unknown escape")),
                },
                _ => bytes.push(byte),
            }
            if bytes.len() > TOKEN_BYTES_MAX {
                return Err(Self::refusal(start, "the string is too long"));
            }
        }
        String::from_utf8(bytes).map_err(|_| Self::refusal(start, "the string is not UTF-8"))
    }
    fn hex4(&mut self, start: Position) -> Result<u32, EdnError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.take()?.and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| Self::refusal(start, "the string has a bad \\u escape"))?;
        }
        Ok(code)
    }

    /// A name or number, up to the next delimiter.
    fn token(&mut self, first: Option<u8>, start: Position) -> Result<String, EdnError> {
        let mut token: Vec<u8> = first.into_iter().collect();
        while let Some(byte) = self.peek()? {
            if byte.is_ascii_whitespace()
                || matches!(byte, b',' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'"' | b';')
            {
                break;
            }
            token.push(byte);
            self.take()?;
            if token.len() > TOKEN_BYTES_MAX {
                return Err(Self::refusal(start, "the name is too long"));
            }
        }
        if token.is_empty() {
            return Err(Self::refusal(start, "a name is missing"));
        }
        String::from_utf8(token).map_err(|_| Self::refusal(start, "the name is not UTF-8"))
    }
}

fn atom(token: String) -> Option<Value> {
    match token.as_str() {
        "nil" => return Some(Value::Nil),
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    let unsigned = token.trim_start_matches(['+', '-']);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(Value::Symbol(token));
    }
    // `N` and `M` mark arbitrary precision.
    let digits = token.trim_end_matches(['N', 'M']);
    digits.parse().map(Value::Int).ok().or_else(|| digits.parse().map(Value::Float).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Value>, EdnError> {
        let mut forms = Forms::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some((_, form)) = forms.next_form()? {
            all.push(form);
        }
        Ok(all)
    }

    #[test]
    fn every_kind_of_value() {
        let read = all(r#"{:a 1, :b [-2 3.5 "x\n\"\u0041" nil true]} #{s} (q) #inst "2020" #_ {:gone 1} ; end
            12N"#);
        let expected = vec![
            Value::Map(vec![
                (Value::Keyword("a".into()), Value::Int(1)),
                (
                    Value::Keyword("b".into()),
                    Value::Sequence(vec![
                        Value::Int(-2),
                        Value::Float(3.5),
                        Value::Text("x\n\"A".into()),
                        Value::Nil,
                        Value::Bool(true),
                    ]),
                ),
            ]),
            Value::Set(vec![Value::Symbol("s".into())]),
            Value::Sequence(vec![Value::Symbol("q".into())]),
            Value::Tagged("inst".into(), Box::new(Value::Text("2020".into()))),
            Value::Int(12),
        ];
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn a_vector_around_all_is_looked_through() {
        assert_eq!(all("[{:a 1}\n {:a 2}]").map(|forms| forms.len()), Ok(2));
        assert_eq!(all("{:a [1]} [2]").map(|forms| forms.len()), Ok(2));
    }

    #[test]
    fn bad_input_is_refused_where_it_stands() {
        let cases = [
            ("{:a 1}\n  {:a", 2, 3),
            ("{:a 1}\n{:a}", 2, 1),
            ("{:a 1}\n{:a 1 :b \"x}", 2, 10),
            ("{:a 1}}", 1, 7),
            ("[{:a 1}", 1, 8),
            ("\\c", 1, 1),
            ("{:a 12x}", 1, 5),
            ("{: 1}", 1, 2),
            ("#", 1, 1),
            ("[[#_]]", 1, 3),
        ];
        for (text, line, column) in cases {
            let error = all(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{{:a {}", "[".repeat(100_000));
        assert!(all(&deep).expect_err("deep").what.contains("too deep"));
    }
}

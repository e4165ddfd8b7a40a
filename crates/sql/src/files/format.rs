//! How the rows of a file are told apart: FIELDS and LINES of LOAD DATA and of SELECT ... INTO OUTFILE, and the characters of its texts.

use apus_types::collate::Charset;

use crate::{
    errors::{self, Result},
    parse::token::{Token, Tokens},
    wire::foreign::Foreign,
};

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What its bytes are.
    pub charset: Charset,
    pub terminated: Vec<u8>,
    pub enclosed: Option<u8>,
    /// Only texts are enclosed.
    pub is_optional: bool,
    pub escaped: Option<u8>,
    pub starting: Vec<u8>,
    /// Empty: rows follow each other as fields do.
    pub line: Vec<u8>,
}

impl Default for Format {
    fn default() -> Format {
        let (terminated, line) = (b"\t".to_vec(), b"\n".to_vec());
        Format {
            charset: Charset::Utf8mb4,
            terminated,
            enclosed: None,
            is_optional: false,
            escaped: Some(b'\\'),
            starting: Vec::new(),
            line,
        }
    }
}

impl Format {
    /// FIELDS and LINES.
    ///
    /// # Errors
    /// 1064, 1083.
    pub fn parse(&mut self, t: &mut Tokens, has_long: &mut bool) -> Result<()> {
        if t.word("fields") || t.word("columns") {
            let mut is_first = true;
            loop {
                if t.word("terminated") {
                    self.terminated = separator(t, has_long)?;
                } else if t.peek_word("enclosed") || t.peek_word("optionally") {
                    self.is_optional |= t.word("optionally");
                    if !t.peek_word("enclosed") {
                        return Err(t.error());
                    }
                    t.skip();
                    self.enclosed = one_byte(separator(t, has_long)?)?;
                } else if t.word("escaped") {
                    self.escaped = one_byte(separator(t, has_long)?)?;
                } else if is_first {
                    return Err(t.error());
                } else {
                    break;
                }
                is_first = false;
            }
        }
        if t.word("lines") {
            let mut is_first = true;
            loop {
                if t.word("terminated") {
                    self.line = separator(t, has_long)?;
                } else if t.word("starting") {
                    self.starting = separator(t, has_long)?;
                } else if is_first {
                    return Err(t.error());
                } else {
                    break;
                }
                is_first = false;
            }
        }
        Ok(())
    }
}

/// BY and a text, also one in hexadecimal digits or bits.
fn separator(t: &mut Tokens, has_long: &mut bool) -> Result<Vec<u8>> {
    t.expect("by")?;
    let bytes = match t.peek().cloned() {
        Some(Token::Text(text)) => text.into_bytes(),
        Some(Token::Word(word)) => {
            let lower = word.to_ascii_lowercase();
            let (base, digits) = match (lower.as_str(), t.rest().get(1)) {
                ("x", Some(Token::Text(digits))) => (16, digits.clone()),
                ("b", Some(Token::Text(digits))) => (2, digits.clone()),
                (word, _) => match (word.strip_prefix("0x"), word.strip_prefix("0b")) {
                    (Some(digits), _) => (16, digits.to_owned()),
                    (_, Some(digits)) => (2, digits.to_owned()),
                    _ => return Err(t.error()),
                },
            };
            if lower.len() == 1 {
                t.skip();
            }
            bytes_of(base, &digits).ok_or_else(|| t.error())?
        }
        _ => return Err(t.error()),
    };
    t.skip();
    *has_long |= !bytes.is_ascii();
    Ok(bytes)
}

fn bytes_of(base: u32, digits: &str) -> Option<Vec<u8>> {
    let per_byte = if base == 16 { 2 } else { 8 };
    let padded = format!("{}{digits}", "0".repeat(digits.len().next_multiple_of(per_byte) - digits.len()));
    (0..padded.len())
        .step_by(per_byte)
        .map(|at| u8::from_str_radix(padded.get(at..at + per_byte)?, base).ok())
        .collect()
}

fn one_byte(text: Vec<u8>) -> Result<Option<u8>> {
    if text.len() > 1 { Err(errors::wrong_separator()) } else { Ok(text.first().copied()) }
}

/// Whether a character may have several bytes.
pub fn has_long_characters(charset: Charset) -> bool {
    charset.bytes_of_character() > 1
}

/// How many bytes the character has that begins here, by its first; 0: none begins like this.
pub fn length(charset: Charset, bytes: &[u8]) -> usize {
    if let Some(foreign) = Foreign::of(charset) {
        return foreign.expects(bytes);
    }
    match (charset, bytes.first()) {
        (_, Some(0x80..)) if !has_long_characters(charset) => 1,
        (_, Some(0xc2..=0xdf)) => 2,
        (_, Some(0xe0..=0xef)) => 3,
        (Charset::Utf8mb4, Some(0xf0..=0xf7)) => 4,
        (_, Some(0x80..)) => 0,
        _ => 1,
    }
}

/// Whether these bytes, as many as [`length`] says, are a character.
pub fn is_character(charset: Charset, bytes: &[u8]) -> bool {
    match Foreign::of(charset) {
        None => std::str::from_utf8(bytes).is_ok(),
        Some(foreign) => foreign.length(bytes) == bytes.len(),
    }
}

//! Texts in the character sets of MySQL: what clients say and are told, and the bytes that columns have in MySQL. Inside all is UTF-8.
//!
//! What a client says is read by `character_set_client`, what it is told is written in `character_set_results`; who says `binary` speaks UTF-8. Texts of ASCII
//! are the same in all but sjis and those of several bytes a character, and are not copied. [`foreign`](super::foreign) knows the bytes of those that are not UTF-8.

use std::borrow::Cow;

use apus_types::collate::{Charset, Collation};

use super::{
    SqlError,
    foreign::{Foreign, Quoting, Reader},
};

/// Whether a text in this character set can be taken for UTF-8 without a look at it.
pub fn is_utf8(spoken: Charset) -> bool {
    matches!(spoken, Charset::Utf8mb4 | Charset::Utf8mb3 | Charset::Binary)
}

/// What a client gets that asks for a collation by its number when it connects; of what no client can speak, and of what is not there, it gets utf8mb4.
pub fn greeted(collation: u16) -> Collation {
    let asked = Collation::from_id(collation).filter(|collation| !collation.charset().is_wide());
    asked.unwrap_or(Collation::DEFAULT)
}

/// A text in it that is ASCII, byte by byte, is that text.
fn has_ascii(charset: Charset, text: &[u8]) -> bool {
    !charset.is_wide() && text.is_ascii()
}

fn invalid(client: Charset, said: &[u8]) -> SqlError {
    SqlError::no_characters(client.name(), said)
}

/// What a client says, in UTF-8 if it was that.
///
/// # Errors
/// 1300: the character set has no such character.
pub fn read(client: Charset, said: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    if is_utf8(client) || has_ascii(client, said) {
        return Ok(Cow::Borrowed(said));
    }
    match Foreign::of(client) {
        Some(charset) => match charset.read(said) {
            Ok(text) => Ok(Cow::Owned(text.into_bytes())),
            Err(at) => Err(invalid(client, &said[at..])),
        },
        None => {
            let at = said.iter().position(|b| !b.is_ascii()).unwrap_or(0);
            let long = said[at..].iter().take_while(|b| !b.is_ascii()).count();
            Err(invalid(client, &said[at..at + long]))
        }
    }
}

/// As [`read`], of statements.
///
/// # Errors
/// 1300: the character set has no such character.
pub fn read_statement(client: Charset, quoting: Quoting, said: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    match Foreign::of(client) {
        Some(charset) if !said.is_ascii() => {
            let text = Reader::new(charset, quoting, said).text();
            text.map(Cow::Owned).map_err(|at| invalid(client, &said[at..]))
        }
        _ => read(client, said),
    }
}

/// How many bytes a client said for the first `end` bytes of the text that [`read_statement`] made of it.
pub fn said_for(client: Charset, quoting: Quoting, said: &[u8], end: usize) -> usize {
    match Foreign::of(client) {
        Some(charset) if !said.is_ascii() => Reader::new(charset, quoting, said).said_for(end),
        _ => end,
    }
}

/// As [`read`], of what is only looked at, and may be cut within a character.
pub fn read_lossy(client: Charset, said: &[u8]) -> Cow<'_, [u8]> {
    match Foreign::of(client) {
        Some(charset) if !said.is_ascii() => Cow::Owned(charset.read_lossy(said).into_bytes()),
        _ => read(client, said).unwrap_or(said.into()),
    }
}

/// As [`read`], of what must be a text.
///
/// # Errors
/// 1300: it is none.
pub fn read_text(client: Charset, said: &[u8]) -> Result<Cow<'_, str>, SqlError> {
    let invalid = || SqlError::invalid_characters("utf8mb4", said);
    match read(client, said)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| invalid()),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| invalid()),
    }
}

/// What a client is told; `?` for each character that its character set has not.
#[inline]
pub fn write(results: Charset, text: &[u8]) -> Cow<'_, [u8]> {
    if matches!(results, Charset::Utf8mb4 | Charset::Binary) {
        return Cow::Borrowed(text);
    }
    match Foreign::of(results) {
        Some(charset) if !charset.keeps(text) => Cow::Owned(charset.write(text)),
        None if !text.is_ascii() => Cow::Owned(results.replace_outside(text)),
        _ => Cow::Borrowed(text),
    }
}

/// The bytes that a column of this character set has in MySQL for a text: those that a client wrote.
pub fn kept(charset: Charset, text: &[u8]) -> Cow<'_, [u8]> {
    match Foreign::of(charset) {
        Some(foreign) if charset.is_wide() || !text.is_ascii() => Cow::Owned(foreign.written(text)),
        _ => Cow::Borrowed(text),
    }
}

/// What is wrong with bytes that are no text.
pub fn not_of(charset: Charset, bytes: &[u8]) -> SqlError {
    match Foreign::of(charset) {
        Some(foreign) => {
            let bytes = foreign.filled(bytes);
            invalid(charset, &bytes[foreign.read(&bytes).err().unwrap_or(0)..])
        }
        None => SqlError::invalid_characters(charset.name(), bytes),
    }
}

/// The text of bytes that a column of this character set may have; `None`: they are none.
pub fn text_of(charset: Charset, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    match Foreign::of(charset) {
        Some(foreign) => foreign.read(&foreign.filled(bytes)).ok().map(|text| Cow::Owned(text.into_bytes())),
        None => {
            let is_text = str::from_utf8(bytes).is_ok() && charset.first_outside(bytes).is_none();
            is_text.then_some(Cow::Borrowed(bytes))
        }
    }
}

/// What a backslash and this byte stand for in a text.
pub fn unescape(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'Z' => 26,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_latin1_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let read = read(Charset::Latin1, &all).unwrap();
        assert_eq!(std::str::from_utf8(&read).unwrap().chars().count(), 256);
        assert_eq!(write(Charset::Latin1, &read), all);
        assert_eq!(read_text(Charset::Latin1, b"\x80").unwrap(), "€");
    }

    #[test]
    fn what_is_not_there_is_a_question_mark() {
        let text = "a\u{e9}\u{4e2d}\u{1f600}".as_bytes();
        assert_eq!(*write(Charset::Latin1, text), *b"a\xe9??");
        assert_eq!(*write(Charset::Ascii, text), *b"a???");
        assert_eq!(*write(Charset::Utf8mb3, text), *"a\u{e9}\u{4e2d}?".as_bytes());
        assert_eq!(*write(Charset::Utf8mb4, text), *text);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(read(Charset::Ascii, b"caf\xe9").unwrap_err().message, "Invalid ascii character string: 'E9'");
        assert_eq!(read_text(Charset::Utf8mb4, b"\xe9").unwrap_err().errno, 1300);
        assert_eq!(read(Charset::Binary, b"\xe9").unwrap(), &b"\xe9"[..]);
    }
}

//! Texts of clients in other character sets than UTF-8, which is what everybody behind the protocol speaks.
//!
//! What a client says is read by `character_set_client`, what it is told is written in `character_set_results`; who says `binary` speaks UTF-8. Texts of ASCII
//! are the same in all but sjis, and are not copied. A client may speak the character sets that columns have, and those of [`foreign`](super::foreign), which only
//! clients have: what such a client writes counts as utf8mb4 once it is read.

use std::borrow::Cow;

use apus_types::collate::{self, Charset, Collation};

use super::{
    SqlError,
    foreign::{Foreign, ForeignCollation, Quoting, Reader},
};

/// A character set that a client speaks, or is told results in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoken {
    Own(Charset),
    Foreign(Foreign),
}

/// A collation that a connection may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpokenCollation {
    Own(Collation),
    Foreign(ForeignCollation),
}

impl Spoken {
    pub const DEFAULT: Spoken = Spoken::Own(Charset::Utf8mb4);

    pub fn from_name(name: &str) -> Option<Spoken> {
        let own = Charset::from_name(name).map(Spoken::Own);
        own.or_else(|| Foreign::from_name(name).map(Spoken::Foreign))
    }

    pub fn name(self) -> &'static str {
        match self {
            Spoken::Own(charset) => charset.name(),
            Spoken::Foreign(charset) => charset.name(),
        }
    }

    /// What its texts are once they are read.
    pub fn inside(self) -> Charset {
        match self {
            Spoken::Own(charset) => charset,
            Spoken::Foreign(_) => Charset::Utf8mb4,
        }
    }

    pub fn default_collation(self) -> SpokenCollation {
        match self {
            Spoken::Own(charset) => SpokenCollation::Own(charset.default_collation()),
            Spoken::Foreign(charset) => SpokenCollation::Foreign(charset.default_collation()),
        }
    }

    /// Most bytes of a character, in MySQL.
    pub fn bytes_of_character(self) -> u8 {
        match self {
            Spoken::Own(charset) => charset.bytes_of_character(),
            Spoken::Foreign(charset) => charset.bytes_of_character(),
        }
    }

    fn invalid(self, said: &[u8]) -> SqlError {
        SqlError::no_characters(self.name(), said)
    }
}

impl Default for SpokenCollation {
    fn default() -> SpokenCollation {
        SpokenCollation::DEFAULT
    }
}

impl SpokenCollation {
    pub const DEFAULT: SpokenCollation = SpokenCollation::Own(Collation::DEFAULT);

    pub fn from_name(name: &str) -> Option<SpokenCollation> {
        let own = Collation::from_name(name).map(SpokenCollation::Own);
        own.or_else(|| ForeignCollation::from_name(name).map(SpokenCollation::Foreign))
    }

    /// By MySQL's number.
    pub fn from_id(id: u16) -> Option<SpokenCollation> {
        let own = Collation::from_id(id).map(SpokenCollation::Own);
        own.or_else(|| ForeignCollation::from_id(id).map(SpokenCollation::Foreign))
    }

    pub fn name(self) -> &'static str {
        match self {
            SpokenCollation::Own(collation) => collation.name(),
            SpokenCollation::Foreign(collation) => collation.name(),
        }
    }

    pub fn id(self) -> u16 {
        match self {
            SpokenCollation::Own(collation) => collation.id(),
            SpokenCollation::Foreign(collation) => collation.id(),
        }
    }

    pub fn charset(self) -> Spoken {
        match self {
            SpokenCollation::Own(collation) => Spoken::Own(collation.charset()),
            SpokenCollation::Foreign(collation) => Spoken::Foreign(collation.charset()),
        }
    }

    /// By which texts are compared that have it. A foreign one has no weights here; it gives way to utf8mb4 as utf8mb3 does.
    pub fn inside(self) -> Collation {
        match self {
            SpokenCollation::Own(collation) => collation,
            SpokenCollation::Foreign(collation) if collation.name().ends_with("_bin") => Collation::Utf8mb3Bin,
            SpokenCollation::Foreign(_) => Collation::Utf8mb3GeneralCi,
        }
    }
}

/// Whether a text in this character set can be taken for UTF-8 without a look at it.
pub fn is_utf8(spoken: Spoken) -> bool {
    matches!(spoken, Spoken::Own(Charset::Utf8mb4 | Charset::Utf8mb3 | Charset::Binary))
}

/// What a client says, in UTF-8 if it was that.
///
/// # Errors
/// 1300: the character set has no such character.
pub fn read(client: Spoken, said: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    match client {
        _ if is_utf8(client) || said.is_ascii() => Ok(Cow::Borrowed(said)),
        Spoken::Own(Charset::Latin1) => Ok(Cow::Owned(collate::from_latin1(said).into_bytes())),
        Spoken::Own(_) => {
            let at = said.iter().position(|b| !b.is_ascii()).unwrap_or(0);
            let long = said[at..].iter().take_while(|b| !b.is_ascii()).count();
            Err(client.invalid(&said[at..at + long]))
        }
        Spoken::Foreign(charset) => match charset.read(said) {
            Ok(text) => Ok(Cow::Owned(text.into_bytes())),
            Err(at) => Err(client.invalid(&said[at..])),
        },
    }
}

/// As [`read`], of statements.
///
/// # Errors
/// 1300: the character set has no such character.
pub fn read_statement(client: Spoken, quoting: Quoting, said: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    match client {
        Spoken::Foreign(charset) if !said.is_ascii() => {
            let text = Reader::new(charset, quoting, said).text();
            text.map(Cow::Owned).map_err(|at| client.invalid(&said[at..]))
        }
        _ => read(client, said),
    }
}

/// How many bytes a client said for the first `end` of the text that [`read_statement`] made of it.
pub fn said_for(client: Spoken, quoting: Quoting, said: &[u8], (text, end): (&[u8], usize)) -> usize {
    match client {
        _ if is_utf8(client) || said.is_ascii() => end,
        Spoken::Foreign(charset) => Reader::new(charset, quoting, said).said_for(end),
        // Each of its characters was one byte.
        Spoken::Own(_) => text[..end].iter().filter(|b| **b & 0xc0 != 0x80).count(),
    }
}

/// As [`read`], of what is only looked at, and may be cut within a character.
pub fn read_lossy(client: Spoken, said: &[u8]) -> Cow<'_, [u8]> {
    match client {
        Spoken::Foreign(charset) if !said.is_ascii() => Cow::Owned(charset.read_lossy(said).into_bytes()),
        _ => read(client, said).unwrap_or(said.into()),
    }
}

/// As [`read`], of what must be a text.
///
/// # Errors
/// 1300: it is none.
pub fn read_text(client: Spoken, said: &[u8]) -> Result<Cow<'_, str>, SqlError> {
    let invalid = || SqlError::invalid_characters("utf8mb4", said);
    match read(client, said)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| invalid()),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| invalid()),
    }
}

/// What a client is told; `?` for each character that its character set has not.
#[inline]
pub fn write(results: Spoken, text: &[u8]) -> Cow<'_, [u8]> {
    match results {
        Spoken::Own(Charset::Utf8mb4 | Charset::Binary) => Cow::Borrowed(text),
        Spoken::Foreign(charset) if !charset.keeps(text) => Cow::Owned(charset.write(text)),
        _ if text.is_ascii() => Cow::Borrowed(text),
        Spoken::Own(Charset::Latin1) => Cow::Owned(collate::to_latin1(text)),
        _ => Cow::Owned(results.inside().replace_outside(text)),
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
        let read = read(Spoken::Own(Charset::Latin1), &all).unwrap();
        assert_eq!(std::str::from_utf8(&read).unwrap().chars().count(), 256);
        assert_eq!(write(Spoken::Own(Charset::Latin1), &read), all);
        assert_eq!(read_text(Spoken::Own(Charset::Latin1), b"\x80").unwrap(), "€");
    }

    #[test]
    fn what_is_not_there_is_a_question_mark() {
        let text = "a\u{e9}\u{4e2d}\u{1f600}".as_bytes();
        assert_eq!(*write(Spoken::Own(Charset::Latin1), text), *b"a\xe9??");
        assert_eq!(*write(Spoken::Own(Charset::Ascii), text), *b"a???");
        assert_eq!(*write(Spoken::Own(Charset::Utf8mb3), text), *"a\u{e9}\u{4e2d}?".as_bytes());
        assert_eq!(*write(Spoken::Own(Charset::Utf8mb4), text), *text);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(
            read(Spoken::Own(Charset::Ascii), b"caf\xe9").unwrap_err().message,
            "Invalid ascii character string: 'E9'"
        );
        assert_eq!(read_text(Spoken::Own(Charset::Utf8mb4), b"\xe9").unwrap_err().errno, 1300);
        assert_eq!(read(Spoken::Own(Charset::Binary), b"\xe9").unwrap(), &b"\xe9"[..]);
    }
}

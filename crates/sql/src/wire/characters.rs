//! Texts of clients in other character sets than UTF-8, which is what everybody behind the protocol speaks.
//!
//! What a client says is read by `character_set_client`, what it is told is written in `character_set_results`; who says `binary` speaks UTF-8. Texts of ASCII
//! are the same in all, and are not copied.

use std::borrow::Cow;

use apus_types::collate::{self, Charset};

use super::SqlError;

/// Whether a text in `charset` can be taken for UTF-8 without a look at it.
pub fn is_utf8(charset: Charset) -> bool {
    matches!(charset, Charset::Utf8mb4 | Charset::Utf8mb3 | Charset::Binary)
}

/// What a client says, in UTF-8 if it was that.
///
/// # Errors
/// 1300: the character set has no such character.
pub fn read(charset: Charset, said: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    match charset {
        Charset::Latin1 if !said.is_ascii() => Ok(Cow::Owned(collate::from_latin1(said).into_bytes())),
        Charset::Ascii => match said.iter().position(|b| !b.is_ascii()) {
            None => Ok(Cow::Borrowed(said)),
            Some(at) => {
                let long = said[at..].iter().take_while(|b| !b.is_ascii()).count();
                Err(SqlError::invalid_characters(charset.name(), &said[at..at + long]))
            }
        },
        _ => Ok(Cow::Borrowed(said)),
    }
}

/// As [`read`], of what must be a text.
///
/// # Errors
/// 1300: it is none.
pub fn read_text(charset: Charset, said: &[u8]) -> Result<Cow<'_, str>, SqlError> {
    let invalid = || SqlError::invalid_characters("utf8mb4", said);
    match read(charset, said)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| invalid()),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| invalid()),
    }
}

/// What a client is told; `?` for each character that its character set has not.
#[inline]
pub fn write(charset: Charset, text: &[u8]) -> Cow<'_, [u8]> {
    match charset {
        Charset::Utf8mb4 | Charset::Binary => Cow::Borrowed(text),
        _ if text.is_ascii() => Cow::Borrowed(text),
        Charset::Latin1 => Cow::Owned(collate::to_latin1(text)),
        Charset::Utf8mb3 | Charset::Ascii => Cow::Owned(charset.replace_outside(text)),
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

//! Texts on their way into a column: its character set, its length.

use std::borrow::Cow;

use apus_types::{
    Column,
    collate::{Charset, Collation},
};

use super::Assign;
use crate::{
    errors::{self, Result},
    expr::eval,
    value::datum::Datum,
    wire::{characters::kept, foreign::Foreign},
};

/// As [`into_text`], for a column of texts: bytes are its own.
pub(super) fn text_for<'t>(column: &Column, value: Datum<'t>, a: Assign<'_>) -> Result<Cow<'t, [u8]>> {
    let charset = charset_of(column);
    let Datum::Bytes(bytes) = value else { return Ok(into_text(value)) };
    let Some(foreign) = Foreign::of(charset) else { return Ok(bytes) };
    let bytes = foreign.filled(&bytes).into_owned();
    match foreign.read(&bytes) {
        Ok(text) => Ok(Cow::Owned(text.into_bytes())),
        Err(at) if a.strict => Err(errors::incorrect_value("string", &printable(&bytes[at..]), &column.name, a.row)),
        Err(at) => Ok(Cow::Owned(foreign.read_lossy(&bytes[..at]).into_bytes())),
    }
}

fn charset_of(column: &Column) -> Charset {
    column.ty.collation().map_or(Charset::Utf8mb4, Collation::charset)
}

/// How many bytes a text has in the character set of a column.
pub(super) fn length_in(column: &Column, text: &[u8]) -> usize {
    kept(charset_of(column), text).len()
}

/// The beginning of a text that has at most so many bytes in the character set of a column, and no character in part.
pub(super) fn beginning_of<'t>(column: &Column, text: &'t [u8], length: usize) -> &'t [u8] {
    let (mut end, mut left) = (0, length);
    while end < text.len() {
        let long = 1 + text[end + 1..].iter().take_while(|b| **b & 0xc0 == 0x80).count();
        match left.checked_sub(length_in(column, &text[end..end + long])) {
            Some(rest) => (end, left) = (end + long, rest),
            None => break,
        }
    }
    &text[..end]
}

pub(super) fn into_text(value: Datum<'_>) -> Cow<'_, [u8]> {
    match value {
        Datum::Text(t) | Datum::Bytes(t) => t,
        // Its number, not its bytes.
        Datum::Bit(n, _) => Cow::Owned(Datum::UInt(n).as_text().into_owned()),
        other => Cow::Owned(other.as_text().into_owned()),
    }
}

/// A text of the column's character set: without strict mode, `?` stands for what is not in it.
pub(super) fn valid_text<'t>(column: &Column, text: Cow<'t, [u8]>, a: Assign<'_>) -> Result<Cow<'t, [u8]>> {
    let text = valid_utf8(column, text, a)?;
    let charset = charset_of(column);
    let Some(at) = charset.first_outside(&text) else { return Ok(text) };
    if a.strict {
        return Err(errors::incorrect_value("string", &printable(&text[at..]), &column.name, a.row));
    }
    Ok(Cow::Owned(charset.replace_outside(&text)))
}

/// The first bytes of what is wrong with a text.
fn printable(bytes: &[u8]) -> String {
    let show =
        |b: &u8| if b.is_ascii_graphic() || *b == b' ' { char::from(*b).to_string() } else { format!("\\x{b:02X}") };
    bytes.iter().take(6).map(show).collect()
}

/// A text up to where it is none.
fn valid_utf8<'t>(column: &Column, text: Cow<'t, [u8]>, a: Assign<'_>) -> Result<Cow<'t, [u8]>> {
    let valid = match std::str::from_utf8(&text) {
        Ok(_) => return Ok(text),
        Err(e) => e.valid_up_to(),
    };
    if a.strict {
        return Err(errors::incorrect_value("string", &printable(&text[valid..]), &column.name, a.row));
    }
    Ok(match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..valid]),
        Cow::Owned(mut text) => {
            text.truncate(valid);
            Cow::Owned(text)
        }
    })
}

/// Cuts to `length` characters; the flag says that more than spaces went.
pub(super) fn limit_chars(text: Cow<'_, [u8]>, length: usize) -> (Cow<'_, [u8]>, bool) {
    if text.len() <= length {
        return (text, false);
    }
    let keep = eval::char_offset(&text, length);
    let cut = text[keep..].iter().any(|&b| b != b' ');
    if keep == text.len() {
        return (text, false);
    }
    (Cow::Owned(text[..keep].to_vec()), cut)
}

pub(super) fn trim_end(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let keep = text.iter().rposition(|&b| b != b' ').map_or(0, |i| i + 1);
    match text {
        Cow::Borrowed(b) => Cow::Borrowed(&b[..keep]),
        Cow::Owned(mut v) => {
            v.truncate(keep);
            Cow::Owned(v)
        }
    }
}

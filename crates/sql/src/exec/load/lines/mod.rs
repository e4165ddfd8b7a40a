//! A file cut into rows and fields.
//!
//! The file comes in pieces of any size ([`Lines::push`]). What has come and is not read lies in a window; a row is read from its front, as a whole, or not at
//! all: where the window ends before the row does, reading begins again when there is twice as much of it. So a row costs what its length costs, and a
//! file of any length costs a window. Lines that are skipped, and what stands before STARTING BY, are forgotten as they come.
//!
//! # Rules
//!
//! They are MySQL's. A field that begins with the encloser ends with it, if a separator or the end of the file comes next; a doubled encloser is one. Behind the
//! escape character `0 b n r t Z` stand for control characters and `N` for NULL, everything else for itself; where it is the encloser, too, it only
//! escapes itself. A row ends at its terminator, or at the end of the file; what of it is more than is wanted is skipped. In a multi-byte character no
//! separator is looked for.
//!
//! Where there is neither separator nor encloser, a row is as many bytes as its columns have at most ([`Lines::of_fixed`]); a terminator that comes before ends it, and what stands before the terminator
//! behind it is skipped.

#[cfg(test)]
mod tests;

use crate::{
    errors::{self, Result},
    files::format::{Format, has_long_characters, is_character, length},
    wire::{SqlError, characters, foreign::Foreign},
};

/// Longest row of a file, in bytes: several times what a row of a table may be.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// What comes next of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Its fields are those of [`Lines::field`].
    Row {
        /// It had more fields than were wanted.
        is_cut: bool,
    },
    /// More of the file is needed.
    Missing,
    End,
}

/// A field of the row read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Null,
    Text(&'a [u8]),
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
    is_null: bool,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The rest of a line that is skipped.
    Skip,
    /// What comes before a row.
    Start,
    Fields,
    /// The rest of a row that had enough fields.
    Rest {
        is_cut: bool,
    },
}

/// Why a row is not read to its end.
enum Stop {
    Missing,
    Failed(SqlError),
}

/// What ended a field.
#[derive(PartialEq, Eq)]
enum Ended {
    Field,
    Line,
    File,
}

pub struct Lines {
    format: Format,
    /// Bytes that are more than themselves somewhere.
    special: [bool; 256],
    window: Vec<u8>,
    /// Where reading stands.
    at: usize,
    /// Bytes behind `at` with which it is worth to read on.
    enough: usize,
    /// Nothing comes behind the window.
    is_whole: bool,
    mode: Mode,
    /// Lines to skip.
    skips: u64,
    /// Bytes of each field where rows are of fixed lengths; else empty.
    widths: Vec<usize>,
    whole: usize,
    /// Fields of the row, one behind the other.
    text: Vec<u8>,
    fields: Vec<Span>,
}

impl Lines {
    pub fn new(format: Format, skips: u64) -> Lines {
        let mut special = [false; 256];
        let firsts = [format.terminated.first(), format.line.first()];
        for b in firsts.into_iter().flatten().chain(&format.enclosed).chain(&format.escaped) {
            special[usize::from(*b)] = true;
        }
        if has_long_characters(format.charset) {
            special[0x80..].fill(true);
        }
        let mode = if skips > 0 && !format.line.is_empty() { Mode::Skip } else { Mode::Start };
        let (window, widths, whole, text, fields) = Default::default();
        Lines { format, special, window, at: 0, enough: 0, is_whole: false, mode, skips, widths, whole, text, fields }
    }

    /// Of rows of `whole` bytes, whose fields have so many bytes each.
    pub fn of_fixed(format: Format, skips: u64, (widths, whole): (Vec<usize>, usize)) -> Lines {
        Lines { widths, whole, ..Lines::new(format, skips) }
    }

    /// More of the file has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.window.drain(..self.at);
        self.at = 0;
        self.window.extend_from_slice(bytes);
    }
    /// All of the file has come.
    pub fn finish(&mut self) {
        self.is_whole = true;
    }

    #[cfg(test)]
    fn field_count(&self) -> usize {
        self.fields.len()
    }
    pub fn field(&self, i: usize) -> Option<Field<'_>> {
        let span = self.fields.get(i)?;
        Some(if span.is_null { Field::Null } else { Field::Text(&self.text[span.start..span.end]) })
    }

    /// Reads the next row, of `wanted` fields; `row` is its number.
    ///
    /// # Errors
    /// 1300: bytes that begin no character. 1118: the row has no end.
    pub fn next(&mut self, wanted: usize, row: usize) -> Result<Next> {
        loop {
            if !self.is_whole && self.window.len() - self.at < self.enough {
                return Ok(Next::Missing);
            }
            self.enough = 0;
            match self.mode {
                Mode::Skip => match self.skip() {
                    None if self.is_whole => return Ok(Next::End),
                    None => return Ok(Next::Missing),
                    Some(_) => {
                        self.skips -= 1;
                        self.mode = if self.skips > 0 { Mode::Skip } else { Mode::Start };
                    }
                },
                Mode::Start => match self.find_start() {
                    true => self.mode = Mode::Fields,
                    false => return Ok(if self.is_whole { Next::End } else { Next::Missing }),
                },
                Mode::Fields => match self.row(wanted) {
                    Ok(Ended::File) => return Ok(Next::End),
                    Ok(Ended::Field) => self.mode = Mode::Rest { is_cut: false },
                    Ok(Ended::Line) => {
                        if let Some(row) = self.ended(false)? {
                            return Ok(row);
                        }
                    }
                    Err(Stop::Failed(e)) => return Err(e),
                    Err(Stop::Missing) => {
                        let length = self.window.len() - self.at;
                        if length > LINE_BYTES_MAX {
                            return Err(errors::line_too_long(row, LINE_BYTES_MAX));
                        }
                        self.enough = (length * 2).min(LINE_BYTES_MAX + 1);
                        return Ok(Next::Missing);
                    }
                },
                Mode::Rest { is_cut } => {
                    let before = self.at;
                    let skipped = if self.format.line.is_empty() { Some(false) } else { self.skip() };
                    let is_cut = match skipped {
                        None if !self.is_whole => {
                            self.mode = Mode::Rest { is_cut: is_cut || self.at > before };
                            return Ok(Next::Missing);
                        }
                        // As MySQL: nothing is said of what is cut at the end of the file.
                        None => false,
                        Some(more) => is_cut || more,
                    };
                    if let Some(row) = self.ended(is_cut)? {
                        return Ok(row);
                    }
                }
            }
        }
    }

    /// The row has been read; `None`: it is one of those to skip.
    fn ended(&mut self, is_cut: bool) -> Result<Option<Next>> {
        self.mode = Mode::Start;
        if let Some(left) = self.skips.checked_sub(1) {
            self.skips = left;
            return Ok(None);
        }
        self.convert()?;
        Ok(Some(Next::Row { is_cut }))
    }

    /// Texts become UTF-8.
    fn convert(&mut self) -> Result<()> {
        let charset = self.format.charset;
        if Foreign::of(charset).is_none() || self.text.is_ascii() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        for span in &mut self.fields {
            let start = self.text.len();
            self.text.extend_from_slice(&characters::read(charset, &text[span.start..span.end])?);
            (span.start, span.end) = (start, self.text.len());
        }
        Ok(())
    }

    /// Reads to behind the end of a line, escaped characters apart; whether there was anything before it. `None`: it has not come.
    fn skip(&mut self) -> Option<bool> {
        let start = self.at;
        while let Some(&b) = self.window.get(self.at) {
            match self.is_at(self.at, &self.format.line) {
                Some(true) => {
                    let more = self.at > start;
                    self.at += self.format.line.len();
                    return Some(more);
                }
                Some(false) => {}
                None => return None,
            }
            let is_escape = self.format.escaped == Some(b);
            let length = if is_escape { 2 } else { length(self.format.charset, &self.window[self.at..]).max(1) };
            if self.at + length > self.window.len() {
                if self.is_whole {
                    self.at = self.window.len();
                }
                return None;
            }
            self.at += length;
        }
        None
    }

    /// Whether a separator stands at a place; `None`: it is not known yet.
    fn is_at(&self, at: usize, separator: &[u8]) -> Option<bool> {
        let there = self.window.get(at..).unwrap_or(&[]);
        if separator.is_empty() || there.len() >= separator.len() {
            return Some(!separator.is_empty() && there.starts_with(separator));
        }
        if separator.starts_with(there) && !self.is_whole { None } else { Some(false) }
    }

    /// Goes behind STARTING BY.
    fn find_start(&mut self) -> bool {
        let wanted = &self.format.starting;
        let there = &self.window[self.at..];
        if wanted.is_empty() {
            return true;
        }
        if let Some(found) = there.windows(wanted.len()).position(|w| w == wanted) {
            self.at += found + wanted.len();
            return true;
        }
        self.at += (there.len() + 1).saturating_sub(wanted.len());
        false
    }

    /// Reads the fields of a row: to its end (`Line`), or as many as are wanted (`Field`). `File`: there is no row. Nothing is read where the window ends too early.
    fn row(&mut self, wanted: usize) -> std::result::Result<Ended, Stop> {
        self.text.clear();
        self.fields.clear();
        if !self.widths.is_empty() {
            return self.fixed_row();
        }
        let mut at = self.at;
        let ended = loop {
            if self.byte(at)?.is_none() {
                break if self.fields.is_empty() { Ended::File } else { Ended::Line };
            }
            match self.read_field(&mut at)? {
                Ended::Field if self.fields.len() < wanted => {}
                Ended::Field => break Ended::Field,
                Ended::Line | Ended::File => break Ended::Line,
            }
        };
        self.at = at;
        Ok(ended)
    }

    /// [`Lines::row`] of one of fixed lengths.
    fn fixed_row(&mut self) -> std::result::Result<Ended, Stop> {
        let (mut at, whole) = (self.at, self.whole);
        let mut ended = Ended::Field;
        while self.text.len() < whole {
            let Some(b) = self.byte(at)? else {
                ended = if self.text.is_empty() { Ended::File } else { Ended::Line };
                break;
            };
            if self.format.escaped == Some(b) {
                let next = self.byte(at + 1)?;
                self.text.push(next.map_or(b, characters::unescape));
                at += if next.is_some() { 2 } else { 1 };
                continue;
            }
            if self.comes(at, &self.format.line)? {
                at += self.format.line.len();
                ended = Ended::Line;
                break;
            }
            self.text.push(b);
            at += 1;
        }
        let (mut start, length) = (0, self.text.len());
        for width in &self.widths {
            if start < length {
                let end = length.min(start.saturating_add(*width));
                self.fields.push(Span { start, end, is_null: false });
                start = end;
            }
        }
        self.at = at;
        Ok(ended)
    }

    fn byte(&self, at: usize) -> std::result::Result<Option<u8>, Stop> {
        match self.window.get(at) {
            Some(b) => Ok(Some(*b)),
            None if self.is_whole => Ok(None),
            None => Err(Stop::Missing),
        }
    }

    fn comes(&self, at: usize, separator: &[u8]) -> std::result::Result<bool, Stop> {
        self.is_at(at, separator).ok_or(Stop::Missing)
    }

    fn read_field(&mut self, place: &mut usize) -> std::result::Result<Ended, Stop> {
        let (start, mut at, mut says_null) = (self.text.len(), *place, false);
        let enclosed = self.format.enclosed.filter(|e| self.window.get(at) == Some(e));
        if let Some(b) = enclosed {
            self.text.push(b);
            at += 1;
        }
        let (ended, is_enclosed, behind) = loop {
            let there = &self.window[at..];
            let plain = there.iter().position(|b| self.special[usize::from(*b)]).unwrap_or(there.len());
            self.text.extend_from_slice(&there[..plain]);
            at += plain;
            let Some(b) = self.byte(at)? else { break (Ended::File, false, at) };
            if self.format.escaped == Some(b) {
                let Some(next) = self.byte(at + 1)? else {
                    self.text.push(b);
                    break (Ended::File, false, at + 1);
                };
                if self.format.escaped != self.format.enclosed || next == b {
                    says_null |= next == b'N';
                    self.text.push(characters::unescape(next));
                    at += 2;
                    continue;
                }
            }
            if enclosed.is_none() && self.comes(at, &self.format.line)? {
                break (Ended::Line, false, at + self.format.line.len());
            }
            if enclosed == Some(b) {
                match self.byte(at + 1)? {
                    None => break (Ended::File, true, at + 1),
                    Some(next) if next == b => {
                        self.text.push(b);
                        at += 2;
                        continue;
                    }
                    Some(_) if self.comes(at + 1, &self.format.line)? => {
                        break (Ended::Line, true, at + 1 + self.format.line.len());
                    }
                    Some(_) if self.comes(at + 1, &self.format.terminated)? => {
                        break (Ended::Field, true, at + 1 + self.format.terminated.len());
                    }
                    Some(_) => {}
                }
            } else if enclosed.is_none() && self.comes(at, &self.format.terminated)? {
                break (Ended::Field, false, at + self.format.terminated.len());
            }
            match self.character(at)? {
                0 => break (Ended::File, false, self.window.len()),
                length => {
                    self.text.extend_from_slice(&self.window[at..at + length]);
                    at += length;
                }
            }
        };
        *place = behind;
        let (start, end) = (start + usize::from(is_enclosed), self.text.len());
        let text = &self.text[start..end];
        let is_word = !is_enclosed && self.format.enclosed.is_some() && text == b"NULL";
        self.fields.push(Span { start, end, is_null: is_word || says_null && text.len() == 1 });
        Ok(ended)
    }

    /// The length of the character at a place, 1 of bytes that are none; 0: the file ends within it.
    fn character(&self, at: usize) -> std::result::Result<usize, Stop> {
        let there = &self.window[at..];
        match length(self.format.charset, there) {
            0 => Err(Stop::Failed(errors::invalid_characters(self.format.charset.name()))),
            length => match there.get(..length) {
                None if self.is_whole => Ok(0),
                None => Err(Stop::Missing),
                Some(bytes) if length > 1 && !is_character(self.format.charset, bytes) => Ok(1),
                Some(_) => Ok(length),
            },
        }
    }
}

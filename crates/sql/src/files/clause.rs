//! INTO OUTFILE and INTO DUMPFILE as they are written.

use apus_types::collate::Charset;

use super::format::Format;
use crate::{
    errors::Result,
    parse::{charset::spoken_named, digest::Syntax, token::Tokens},
};

/// A file that a query is written to.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub name: String,
    /// `None`: DUMPFILE, which takes the bytes of values and nothing between them.
    pub rows: Option<Rows>,
}

/// How OUTFILE tells rows and their values apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub format: Format,
    /// `None`: each column is written in its own.
    pub charset: Option<Charset>,
    /// A separator is no ASCII.
    pub has_long_separator: bool,
}

impl Clause {
    /// What stands behind INTO, up to where the clause ends; `None`: it names no file.
    ///
    /// # Errors
    /// 1064, 1083, 1115, 1235.
    pub fn parse(t: &mut Tokens, syntax: Syntax) -> Result<Option<Clause>> {
        let is_dump = t.word("dumpfile");
        if !is_dump && !t.word("outfile") {
            return Ok(None);
        }
        if !t.peek_string() {
            return Err(t.error());
        }
        let name = t.string()?;
        if is_dump {
            return Ok(Some(Clause { name, rows: None }));
        }
        let mut charset = None;
        if t.peek_word("character") && t.second_word("set") || t.peek_word("charset") {
            t.skip();
            t.word("set");
            charset = Some(spoken_named(&t.identifier()?)?);
        }
        let mut format = Format::default();
        if syntax.no_backslash {
            format.escaped = None;
        }
        let mut has_long_separator = false;
        format.parse(t, &mut has_long_separator)?;
        Ok(Some(Clause { name, rows: Some(Rows { format, charset, has_long_separator }) }))
    }
}

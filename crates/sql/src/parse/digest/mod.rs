//! One pass over a statement's text: where it ends, and its normal form.
//!
//! Two forms are made of the same scan. [`Form::Digest`] puts a numbered placeholder (`?1`, `?2`, ...) for every number and
//! string, so that statements which differ only in their values share one plan; [`Form::Plain`] keeps the values and is
//! what the parsers read. Both drop comments, run executable ones (`/*!40101 ... */`) as code when their version is not above
//! ours, collapse white space, and number the client's own `?` parameters.
//!
//! A multi-row `INSERT ... VALUES (..), (..), ...` whose rows have one shape is digested as if it had its first row only, and
//! [`Digest::rows`] says how many rows of literals there are: a bulk load is planned once and not per statement.
//!
//! Nothing is allocated in steady state: the buffers belong to the caller. Any bytes are accepted; what is not SQL is left to
//! the parser to refuse.

pub mod literal;
mod scanner;
#[cfg(test)]
mod tests;

use self::{
    literal::Literal,
    scanner::{Rows, Scanner},
};
use crate::{value::datum::Datum, wire::SqlError};

/// `MMmmpp` of the MySQL version we answer as; executable comments of a higher one are comments.
const VERSION_NUMBER: u32 = 80_406;
/// Most literals of one statement that are lifted out; one with more is planned from its text.
pub const LITERALS_MAX: usize = 65_535;
/// Most literals of all rows of one INSERT digested by its first row.
pub const ROW_LITERALS_MAX: usize = 1 << 20;
/// Added to the number of a placeholder that stands for a hexadecimal or bit literal: these are numbers where one is wanted, other
/// texts are not, so that the plans differ.
pub const BINARY_LITERAL: usize = 1 << 20;
/// Room for literals that is kept from one statement to the next.
const LITERALS_KEPT: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Digest,
    Plain,
}

/// Where the code of a comment begins that is executable: behind `!` and a version that is not above ours. The text is what follows `/*`.
pub fn executable(rest: &[u8]) -> Option<usize> {
    let [b'!', rest @ ..] = rest else { return None };
    let digits = rest.iter().take(6).take_while(|b| b.is_ascii_digit()).count();
    let digits = if digits >= 5 { digits } else { 0 };
    let version = rest[..digits].iter().fold(0u32, |n, digit| n * 10 + u32::from(digit - b'0'));
    (version <= VERSION_NUMBER).then_some(1 + digits)
}

/// How statements are written, by `sql_mode` ([`crate::variables::sql_mode`]). The normal forms are written by the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Syntax {
    /// Double quotes are those of names.
    pub ansi_quotes: bool,
    /// `||` joins texts.
    pub pipes_concat: bool,
    /// A backslash in a text is itself.
    pub no_backslash: bool,
    /// The type REAL is FLOAT.
    pub real_as_float: bool,
    /// NOT in front of an operand binds like `!`.
    pub high_not: bool,
}

/// The normal form of one statement.
#[derive(Default, Debug)]
pub struct Digest {
    pub text: Vec<u8>,
    pub literals: Vec<Literal>,
    /// `?` parameters of the client.
    pub parameters: usize,
    /// Where hints stand in the statement ([`crate::plan::hint`]); `text` has them as they are.
    pub hints: Vec<usize>,
    /// By which the statement was read.
    pub syntax: Syntax,
    /// Rows of an INSERT that `text` shows as one; the literals are theirs in order, equally many each. Otherwise 1.
    pub rows: usize,
}

impl Digest {
    /// Scans the statement at the start of `sql`; returns the offset behind it (after its `;`). An empty `text` means there
    /// was none.
    pub fn scan(&mut self, sql: &[u8], form: Form, syntax: Syntax) -> Result<usize, SqlError> {
        self.syntax = syntax;
        if form == Form::Digest
            && let Some(end) = self.scan_once(sql, form, Some(Rows::default()))?
        {
            return Ok(end);
        }
        Ok(self.scan_once(sql, form, None)?.unwrap_or(sql.len()))
    }

    /// `None`: the rows differ in shape and must not be digested as one.
    fn scan_once(&mut self, sql: &[u8], form: Form, rows: Option<Rows>) -> Result<Option<usize>, SqlError> {
        self.text.clear();
        self.literals.clear();
        self.literals.shrink_to(LITERALS_KEPT);
        self.parameters = 0;
        self.hints.clear();
        self.rows = 1;
        let mut scanner = Scanner { sql, at: 0, gap: false, in_executable: false, form, rows, out: self };
        let end = scanner.run()?;
        let alike = !scanner.rows.is_some_and(|rows| rows.differ);
        Ok(alike.then_some(end))
    }

    /// Literals of one of [`Digest::rows`].
    pub fn row_literals(&self) -> usize {
        self.literals.len() / self.rows.max(1)
    }

    /// Values of the literals, borrowed from the text wherever they have no escapes.
    pub fn values<'a>(&self, sql: &'a [u8], out: &mut Vec<Datum<'a>>) -> Result<(), SqlError> {
        for literal in &self.literals {
            out.push(literal.value(sql, self.syntax)?);
        }
        Ok(())
    }
}

/// Without the zero byte that C programs like mysqlslap count as a part of their text.
pub fn without_end(sql: &[u8]) -> &[u8] {
    sql.trim_ascii_end().strip_suffix(b"\0").unwrap_or(sql)
}

/// Whether anything but white space, comments and semicolons is left.
pub fn has_statement(text: &[u8]) -> bool {
    if text.iter().all(|b| b.is_ascii_whitespace() || *b == b';') {
        return false;
    }
    let mut digest = Digest::default();
    digest.scan(text, Form::Plain, Syntax::default()).is_err() || !digest.text.is_empty()
}

//! LIKE and WHERE of SHOW: conditions on the columns that the statement answers with.

use super::Rows;
use crate::{
    errors::{self, Result},
    expr::CompareOp,
    parse::token::Tokens,
};
use apus_types::collate::{Collation, like};

/// Which rows of a SHOW are wanted.
pub enum Filter {
    All,
    /// By the first column.
    Like(String),
    /// Conditions joined by AND, in alternatives joined by OR.
    Where(Vec<Vec<Condition>>),
}

pub struct Condition {
    column: String,
    negated: bool,
    test: Test,
}

pub enum Test {
    OneOf(Vec<String>),
    /// As numbers where both are, otherwise as texts.
    Order(CompareOp, String),
    Like(String),
    Null,
}

fn like_name(name: &str, pattern: &str) -> bool {
    like(name.as_bytes(), pattern.as_bytes(), Some(b'\\'), Some(Collation::Utf8mb3GeneralCi))
}

impl Filter {
    /// `LIKE 'pattern'` or `WHERE column = 'x'` (also `<>`, `<`, `>`, IN, LIKE and IS NULL) up to the end of the statement.
    pub fn parse(t: &mut Tokens) -> Result<Filter> {
        if t.word("like") {
            let pattern = t.string()?;
            t.end()?;
            return Ok(Filter::Like(pattern));
        }
        if !t.word("where") {
            t.end()?;
            return Ok(Filter::All);
        }
        let mut alternatives = vec![Vec::new()];
        loop {
            if let Some(all) = alternatives.last_mut() {
                all.push(Condition::parse(t)?);
            }
            if t.word("or") {
                alternatives.push(Vec::new());
            } else if !t.word("and") {
                break;
            }
        }
        t.end()?;
        Ok(Filter::Where(alternatives))
    }

    /// LIKE by a column other than the first.
    pub fn by(self, column: &str) -> Filter {
        match self {
            Filter::Like(pattern) => {
                let condition = Condition { column: column.to_owned(), negated: false, test: Test::Like(pattern) };
                Filter::Where(vec![vec![condition]])
            }
            other => other,
        }
    }

    /// Drops the rows not wanted.
    pub fn apply(&self, names: &[&str], rows: &mut Rows) -> Result<()> {
        match self {
            Filter::All => {}
            Filter::Like(pattern) => {
                rows.retain(|row| row.first().and_then(Option::as_ref).is_some_and(|cell| like_name(cell, pattern)));
            }
            Filter::Where(alternatives) => {
                let place = |c: &Condition| names.iter().position(|name| name.eq_ignore_ascii_case(&c.column));
                if let Some(c) = alternatives.iter().flatten().find(|c| place(c).is_none()) {
                    return Err(errors::unknown_column(&c.column, "where clause"));
                }
                let holds = |row: &[Option<String>], c: &Condition| match (place(c).map(|at| &row[at]), &c.test) {
                    (Some(cell), Test::Null) => cell.is_none() != c.negated,
                    (Some(Some(cell)), _) => c.holds(cell),
                    _ => false,
                };
                rows.retain(|row| alternatives.iter().any(|all| all.iter().all(|c| holds(row, c))));
            }
        }
        Ok(())
    }
}

impl Condition {
    fn parse(t: &mut Tokens) -> Result<Condition> {
        let value = |t: &mut Tokens| if t.peek_number() { t.number() } else { t.string() };
        let column = t.identifier()?;
        let mut negated = t.word("not");
        let test = if !negated && t.symbol('=') {
            Test::OneOf(vec![value(t)?])
        } else if !negated && t.symbol('!') {
            t.expect_symbol('=')?;
            negated = true;
            Test::OneOf(vec![value(t)?])
        } else if !negated && (t.peek_symbol('<') || t.peek_symbol('>')) {
            let less = t.symbol('<');
            if !less {
                t.skip();
            }
            let equal = t.symbol('=');
            negated = less && !equal && t.symbol('>');
            match (less, equal) {
                _ if negated => Test::OneOf(vec![value(t)?]),
                (true, false) => Test::Order(CompareOp::Lt, value(t)?),
                (true, true) => Test::Order(CompareOp::LtEq, value(t)?),
                (false, false) => Test::Order(CompareOp::Gt, value(t)?),
                (false, true) => Test::Order(CompareOp::GtEq, value(t)?),
            }
        } else if t.word("like") {
            Test::Like(t.string()?)
        } else if !negated && t.word("is") {
            negated = t.word("not");
            t.expect("null")?;
            Test::Null
        } else if t.word("in") {
            t.expect_symbol('(')?;
            let mut list = vec![value(t)?];
            while t.symbol(',') {
                list.push(value(t)?);
            }
            t.expect_symbol(')')?;
            Test::OneOf(list)
        } else {
            return Err(errors::not_supported("this condition of SHOW ... WHERE"));
        };
        Ok(Condition { column, negated, test })
    }

    fn holds(&self, cell: &str) -> bool {
        let found = match &self.test {
            Test::OneOf(list) => list.iter().any(|value| value.eq_ignore_ascii_case(cell)),
            Test::Like(pattern) => like_name(cell, pattern),
            Test::Null => false,
            Test::Order(op, value) => match (cell.parse::<f64>(), value.parse::<f64>()) {
                (Ok(cell), Ok(value)) => cell.partial_cmp(&value).is_some_and(|o| op.holds(o)),
                _ => op.holds(cell.to_lowercase().cmp(&value.to_lowercase())),
            },
        };
        found != self.negated
    }
}

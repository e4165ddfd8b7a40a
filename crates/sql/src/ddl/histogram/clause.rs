//! What ANALYZE TABLE says of histograms.

use crate::{
    catalog::histogram::{BUCKETS, BUCKETS_MAX},
    errors::{self, Result},
    parse::token::{Name, Tokens},
    wire::SqlError,
};

#[derive(Clone, PartialEq, Debug)]
pub struct Clause {
    pub columns: Vec<String>,
    pub change: Change,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    Update {
        buckets: u64,
        is_automatic: bool,
    },
    /// The text of a document.
    Given(String),
    Drop,
}

/// Tables and clause of a statement that says something of histograms, from behind TABLE on.
///
/// # Errors
/// As [`Clause::parse`].
pub fn of_statement(t: &mut Tokens) -> Result<Option<(Vec<Name>, Clause)>> {
    let mut tables = vec![t.name()?];
    while t.symbol(',') {
        tables.push(t.name()?);
    }
    Ok(Clause::parse(t)?.map(|clause| (tables, clause)))
}

impl Clause {
    /// Behind the tables of the statement; `None`: it says nothing of histograms.
    ///
    /// # Errors
    /// 1064; 1060 for a column that is named twice; 1690 for too many buckets, or none.
    pub fn parse(t: &mut Tokens) -> Result<Option<Clause>> {
        let is_update = t.word("update");
        if !is_update && !t.word("drop") {
            return Ok(None);
        }
        t.expect("histogram")?;
        t.expect("on")?;
        let mut columns = vec![t.identifier()?];
        while t.symbol(',') {
            columns.push(t.identifier()?);
        }
        let change = if is_update { update(t)? } else { Change::Drop };
        t.end()?;
        if let Change::Update { buckets, .. } = change
            && !(1..=BUCKETS_MAX).contains(&buckets)
        {
            let text = "Number of buckets value is out of range in 'ANALYZE TABLE'";
            return Err(SqlError::new(1690, b"22003", text));
        }
        for (at, name) in columns.iter().enumerate() {
            if columns[..at].iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(errors::duplicate_column(name));
            }
        }
        Ok(Some(Clause { columns, change }))
    }
}

fn update(t: &mut Tokens) -> Result<Change> {
    if t.word("using") {
        t.expect("data")?;
        return match t.peek_string() {
            true => Ok(Change::Given(t.string()?)),
            false => Err(t.error()),
        };
    }
    let mut buckets = BUCKETS;
    if t.word("with") {
        let at = t.position();
        buckets = t.number()?.parse().map_err(|_| {
            t.rewind(at);
            t.error()
        })?;
        t.expect("buckets")?;
    }
    let is_automatic = t.word("auto");
    if is_automatic || t.word("manual") {
        t.expect("update")?;
    }
    Ok(Change::Update { buckets, is_automatic })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Clause>> {
        Clause::parse(&mut Tokens::new(text))
    }

    #[test]
    fn clauses() {
        let clause =
            |columns: &[&str], change| Clause { columns: columns.iter().map(|c| (*c).to_owned()).collect(), change };
        let update = Change::Update { buckets: 100, is_automatic: false };
        assert_eq!(parsed("update histogram on a, `b c`").unwrap(), Some(clause(&["a", "b c"], update)));
        let automatic = Change::Update { buckets: 7, is_automatic: true };
        assert_eq!(
            parsed("update histogram on a with 7 buckets auto update").unwrap(),
            Some(clause(&["a"], automatic))
        );
        assert_eq!(parsed("drop histogram on a").unwrap(), Some(clause(&["a"], Change::Drop)));
        let given = Change::Given("{}".to_owned());
        assert_eq!(parsed("update histogram on a using data '{}'").unwrap(), Some(clause(&["a"], given)));
        assert_eq!(parsed("").unwrap(), None);
        for (text, errno) in [
            ("update histogram on a with 0 buckets", 1690),
            ("update histogram on a with 1025 buckets", 1690),
            ("update histogram on a, A", 1060),
            ("update histogram on", 1064),
            ("update histogram on a with 4 buckets using data ''", 1064),
            ("drop histogram on a with 4 buckets", 1064),
        ] {
            assert_eq!(parsed(text).unwrap_err().errno, errno, "{text}");
        }
    }
}

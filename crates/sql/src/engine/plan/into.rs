//! `SELECT ... INTO @a, @b` and `TABLE t`, which the parser does not read: they are taken out of the text before it.

use std::borrow::Cow;

use super::{Plan, Select, heading};
use crate::engine::errors::{self, Result};

/// A query whose rows are not for the client.
#[derive(Debug)]
pub struct Into {
    pub query: Select,
    pub goal: Goal,
}

#[derive(Debug)]
pub enum Goal {
    /// Its one row goes into variables of these names, lower case.
    Variables(Vec<String>),
    /// The session keeps them.
    Session,
}

/// The words of a text outside of quotes: where each begins and ends, and in how many parentheses.
fn words(text: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    std::iter::from_fn(move || {
        while let Some(&b) = bytes.get(at) {
            let begin = at;
            at += 1;
            match b {
                b'\'' | b'"' | b'`' => at = heading::behind_quoted(bytes, begin),
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b if heading::is_word(b) => {
                    while bytes.get(at).is_some_and(|b| heading::is_word(*b)) {
                        at += 1;
                    }
                    // The column of a table may have any name.
                    if begin == 0 || bytes[begin - 1] != b'.' {
                        return Some((begin, at, depth));
                    }
                }
                _ => {}
            }
        }
        None
    })
}

fn mentions(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes()))
}

/// `TABLE t` as `SELECT * FROM t`. TABLE is a reserved word: where it stands in a query it begins one.
pub fn tables(text: Cow<'_, str>) -> Cow<'_, str> {
    if !mentions(&text, "table ") {
        return text;
    }
    let found: Vec<usize> =
        words(&text).filter(|(begin, end, _)| text[*begin..*end].eq_ignore_ascii_case("table")).map(|w| w.0).collect();
    if found.is_empty() {
        return text;
    }
    let mut out = text.into_owned();
    for begin in found.into_iter().rev() {
        out.replace_range(begin..begin + "table".len(), "SELECT * FROM");
    }
    Cow::Owned(out)
}

/// A query without its INTO, and the variables that it named; of other statements the text.
///
/// # Errors
/// 1290, 1327, 3953, 3954: an INTO that is none of variables, or in a wrong place.
pub fn split(text: &str) -> Result<(Cow<'_, str>, Vec<String>)> {
    const WRITES: [&str; 4] = ["insert", "replace", "update", "delete"];
    if !mentions(text, "into ") || WRITES.iter().any(|w| text.get(..w.len()).is_some_and(|t| t.eq_ignore_ascii_case(w)))
    {
        return Ok((Cow::Borrowed(text), Vec::new()));
    }
    let mut found: Option<(usize, usize, Vec<String>)> = None;
    for (begin, end, depth) in words(text) {
        if !text[begin..end].eq_ignore_ascii_case("into") {
            continue;
        }
        if found.is_some() {
            return Err(errors::into_twice());
        }
        if depth > 0 {
            return Err(errors::into_inside());
        }
        let (behind, names) = variables(text, end)?;
        found = Some((begin, behind, names));
    }
    Ok(match found {
        None => (Cow::Borrowed(text), Vec::new()),
        Some((begin, behind, names)) => {
            let rest = [text[..begin].trim_end(), text[behind..].trim_start()].join(" ");
            (Cow::Owned(rest.trim_end().to_owned()), names)
        }
    })
}

/// A list of `@name` from here on; where it ends.
fn variables(text: &str, mut at: usize) -> Result<(usize, Vec<String>)> {
    let bytes = text.as_bytes();
    let mut names = Vec::new();
    loop {
        at += bytes[at..].iter().take_while(|b| **b == b' ').count();
        let begin = at;
        at += bytes[at..].iter().take_while(|b| heading::is_word(**b)).count();
        if at == begin + 1 && matches!(bytes.get(at), Some(b'\'' | b'"' | b'`')) {
            at = heading::behind_quoted(bytes, at);
        }
        match &text[begin..at] {
            name if name.len() > 1 && name.starts_with('@') && !name.starts_with("@@") => {
                names.push(name[1..].trim_matches(['`', '\'', '"']).to_ascii_lowercase());
            }
            "" => return Err(errors::syntax(&text[begin..])),
            word if ["outfile", "dumpfile"].iter().any(|w| word.eq_ignore_ascii_case(w)) => {
                return Err(errors::no_files());
            }
            word => return Err(errors::undeclared_variable(word)),
        }
        let comma = at + bytes[at..].iter().take_while(|b| **b == b' ').count();
        if bytes.get(comma) != Some(&b',') {
            return Ok((at, names));
        }
        at = comma + 1;
    }
}

/// A plan whose rows go into variables, if there are names of any.
///
/// # Errors
/// 1222 where there are not as many columns.
pub fn wrap(plan: Plan, names: Vec<String>) -> Result<Plan> {
    match plan {
        plan if names.is_empty() => Ok(plan),
        Plan::Select(query) if query.outputs.len() == names.len() => {
            Ok(Plan::Into(Box::new(Into { query: *query, goal: Goal::Variables(names) })))
        }
        Plan::Select(_) => Err(errors::into_columns()),
        _ => Err(errors::syntax("INTO")),
    }
}

/// A query whose rows the session keeps; other plans are as they are.
pub fn collecting(plan: Plan) -> Plan {
    match plan {
        Plan::Select(query) => Plan::Into(Box::new(Into { query: *query, goal: Goal::Session })),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn into_is_found_outside_of_quotes() {
        for (text, rest, names) in [
            ("SELECT 1 INTO @x", "SELECT 1", &["x"][..]),
            ("select a , 'into @q' into @A, @`b` from t", "select a , 'into @q' from t", &["a", "b"]),
            ("SELECT t.into FROM t", "SELECT t.into FROM t", &[]),
            ("INSERT INTO t SELECT 1", "INSERT INTO t SELECT 1", &[]),
        ] {
            let (found, variables) = split(text).unwrap();
            assert_eq!((&*found, variables), (rest, names.iter().map(|n| (*n).to_owned()).collect()), "{text}");
        }
        for (text, errno) in [
            ("SELECT 1 INTO @x INTO @y", 3953),
            ("SELECT (SELECT 1 INTO @x)", 3954),
            ("SELECT 1 INTO x", 1327),
            ("SELECT 1 INTO OUTFILE 'f'", 1290),
            ("SELECT 1 INTO ", 1064),
        ] {
            assert_eq!(split(text).unwrap_err().errno, errno, "{text}");
        }
    }

    #[test]
    fn tables_become_queries() {
        for (text, want) in [
            ("TABLE t", "SELECT * FROM t"),
            ("SELECT 'table t' IN (table `table `)", "SELECT 'table t' IN (SELECT * FROM `table `)"),
            ("SELECT x.table FROM x", "SELECT x.table FROM x"),
        ] {
            assert_eq!(tables(Cow::Borrowed(text)), want);
        }
    }
}

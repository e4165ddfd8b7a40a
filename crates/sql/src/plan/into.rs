//! `SELECT ... INTO @a, @b`, `INTO OUTFILE` and `TABLE t`, which the parser does not read: they are taken out of the text before it.

use std::borrow::Cow;

use super::{Plan, Select, needs::privilege_missing};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    expr::env::Env,
    files::clause::Clause,
    parse::{
        digest::Syntax,
        token::{self, Tokens},
    },
};

/// A query whose rows are not for the client.
#[derive(Debug)]
pub struct Into {
    pub query: Select,
    pub goal: Goal,
    /// It stands where MySQL will not take it any more: warning 3962.
    pub is_deprecated: bool,
}

#[derive(Debug)]
pub enum Goal {
    /// Its one row goes into variables of these names, lower case.
    Variables(Vec<String>),
    File(Clause),
    /// The session keeps them.
    Session,
}

/// What was taken out of a text.
#[derive(Debug, PartialEq)]
pub struct Found {
    goal: FoundGoal,
    is_deprecated: bool,
}

#[derive(Debug, PartialEq)]
enum FoundGoal {
    Variables(Vec<String>),
    File(Clause),
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
                b'\'' | b'"' | b'`' => at = token::behind_quoted(bytes, begin),
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b if token::is_word(b) => {
                    while bytes.get(at).is_some_and(|b| token::is_word(*b)) {
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

/// A text without the parentheses around all of it.
fn bare(text: &str) -> &str {
    let mut bare = text;
    while let Some(inner) = bare.strip_prefix('(').and_then(|t| t.trim_end().strip_suffix(')')) {
        let (mut depth, mut at, bytes) = (1usize, 0, inner.as_bytes());
        while let (Some(&b), true) = (bytes.get(at), depth > 0) {
            match b {
                b'\'' | b'"' | b'`' => at = token::behind_quoted(bytes, at) - 1,
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            at += 1;
        }
        if depth == 0 {
            break;
        }
        bare = inner.trim();
    }
    bare
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// A query without its INTO, and where that leads; of other statements the text.
///
/// # Errors
/// 1064, 1083, 1327, 3953, 3954: an INTO that is none, or in a wrong place.
pub fn split(text: &str, syntax: Syntax) -> Result<(Cow<'_, str>, Option<Found>)> {
    const WRITES: [&str; 4] = ["insert", "replace", "update", "delete"];
    const SETS: [&str; 3] = ["union", "except", "intersect"];
    if !mentions(text, "into ") || WRITES.iter().any(|w| text.get(..w.len()).is_some_and(|t| t.eq_ignore_ascii_case(w)))
    {
        return Ok((Cow::Borrowed(text), None));
    }
    let whole = text;
    let text = bare(text);
    let mut found: Option<(usize, usize, FoundGoal)> = None;
    let mut is_in_last_block = false;
    for (begin, end, depth) in words(text) {
        let word = &text[begin..end];
        if depth == 0 && is_any(word, &SETS) {
            match &found {
                Some((_, behind, _)) if begin < *behind => {}
                Some((_, behind, _)) if text[*behind..begin].trim().is_empty() => {
                    return Err(errors::syntax(&text[begin..]));
                }
                Some(_) => return Err(errors::into_inside()),
                None => is_in_last_block = true,
            }
        }
        let is_within = found.as_ref().is_some_and(|(_, behind, _)| begin < *behind);
        if is_within || !word.eq_ignore_ascii_case("into") {
            continue;
        }
        if found.is_some() {
            return Err(errors::into_twice());
        }
        if depth > 0 {
            return Err(errors::into_inside());
        }
        found = Some(match file(text, end, syntax)? {
            Some((behind, clause)) => (begin, behind, FoundGoal::File(clause)),
            None => {
                let (behind, names) = variables(text, end)?;
                (begin, behind, FoundGoal::Variables(names))
            }
        });
    }
    let Some((begin, behind, goal)) = found else { return Ok((Cow::Borrowed(whole), None)) };
    let after = text[behind..].trim_start();
    let locks = words(after).next().is_some_and(|(begin, end, _)| is_any(&after[begin..end], &["for", "lock"]));
    let is_deprecated = locks || is_in_last_block && !after.is_empty();
    let rest = [text[..begin].trim_end(), after].join(" ");
    Ok((Cow::Owned(rest.trim_end().to_owned()), Some(Found { goal, is_deprecated })))
}

/// The file that is named from here on, and where its clause ends.
fn file(text: &str, at: usize, syntax: Syntax) -> Result<Option<(usize, Clause)>> {
    let mut t = Tokens::new(&text[at..]);
    Ok(Clause::parse(&mut t, syntax)?.map(|clause| (at + t.behind(), clause)))
}

/// A list of `@name` from here on; where it ends.
fn variables(text: &str, mut at: usize) -> Result<(usize, Vec<String>)> {
    let bytes = text.as_bytes();
    let mut names = Vec::new();
    loop {
        at += bytes[at..].iter().take_while(|b| **b == b' ').count();
        let begin = at;
        at += bytes[at..].iter().take_while(|b| token::is_word(**b)).count();
        if at == begin + 1 && matches!(bytes.get(at), Some(b'\'' | b'"' | b'`')) {
            at = token::behind_quoted(bytes, at);
        }
        match &text[begin..at] {
            name if name.len() > 1 && name.starts_with('@') && !name.starts_with("@@") => {
                names.push(name[1..].trim_matches(['`', '\'', '"']).to_ascii_lowercase());
            }
            "" => return Err(errors::syntax(&text[begin..])),
            word => return Err(errors::undeclared_variable(word)),
        }
        let comma = at + bytes[at..].iter().take_while(|b| **b == b' ').count();
        if bytes.get(comma) != Some(&b',') {
            return Ok((at, names));
        }
        at = comma + 1;
    }
}

/// A plan whose rows go where its text says.
///
/// # Errors
/// 1222 where there are not as many columns as variables.
pub fn wrap(plan: Plan, found: Option<Found>) -> Result<Plan> {
    let Some(Found { goal, is_deprecated }) = found else { return Ok(plan) };
    let Plan::Select(query) = plan else { return Err(errors::syntax("INTO")) };
    let goal = match goal {
        FoundGoal::Variables(names) if query.outputs.len() != names.len() => return Err(errors::into_columns()),
        FoundGoal::Variables(names) => Goal::Variables(names),
        FoundGoal::File(clause) => Goal::File(clause),
    };
    Ok(Plan::Into(Box::new(Into { query: *query, goal, is_deprecated })))
}

/// 1227 for a file without the privilege FILE, before it is known what else is wrong.
pub fn check_file(env: &Env, found: Option<&Found>) -> Result<()> {
    let is_file = matches!(found, Some(Found { goal: FoundGoal::File(_), .. }));
    match &env.me {
        Some(me) if is_file && !me.rights.global.contains(Privileges::FILE) => Err(privilege_missing("FILE")),
        _ => Ok(()),
    }
}

/// A query whose rows the session keeps; other plans are as they are.
pub fn collecting(plan: Plan) -> Plan {
    match plan {
        Plan::Select(query) => Plan::Into(Box::new(Into { query: *query, goal: Goal::Session, is_deprecated: false })),
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
            let (found, goal) = split(text, Syntax::default()).unwrap();
            let wanted: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            let variables = match goal {
                Some(Found { goal: FoundGoal::Variables(names), .. }) => names,
                _ => Vec::new(),
            };
            assert_eq!((&*found, variables), (rest, wanted), "{text}");
        }
        for (text, errno) in [
            ("SELECT 1 INTO @x INTO @y", 3953),
            ("SELECT (SELECT 1 INTO @x)", 3954),
            ("SELECT 1 INTO @x FROM t UNION SELECT 2", 3954),
            ("SELECT 1 INTO @x UNION SELECT 2", 1064),
            ("SELECT 1 INTO x", 1327),
            ("SELECT 1 INTO OUTFILE f", 1064),
            ("SELECT 1 INTO OUTFILE 'f' FIELDS", 1064),
            ("SELECT 1 INTO OUTFILE 'f' FIELDS ENCLOSED BY 'ab'", 1083),
            ("SELECT 1 INTO ", 1064),
        ] {
            assert_eq!(split(text, Syntax::default()).unwrap_err().errno, errno, "{text}");
        }
    }

    #[test]
    fn files_are_taken_out_of_both_places() {
        for (text, rest, is_deprecated) in [
            ("SELECT a INTO OUTFILE 'f' FIELDS TERMINATED BY ',' FROM t", "SELECT a FROM t", false),
            ("(SELECT a FROM t INTO DUMPFILE 'into f')", "SELECT a FROM t", false),
            ("SELECT 1 INTO OUTFILE 'f' FOR UPDATE", "SELECT 1 FOR UPDATE", true),
            ("SELECT 1 UNION SELECT a INTO OUTFILE 'f' FROM t", "SELECT 1 UNION SELECT a FROM t", true),
            ("(SELECT 1) UNION (SELECT 2) INTO OUTFILE 'f'", "(SELECT 1) UNION (SELECT 2)", false),
        ] {
            let (found, goal) = split(text, Syntax::default()).unwrap();
            let goal = goal.unwrap();
            assert_eq!((&*found, goal.is_deprecated), (rest, is_deprecated), "{text}");
            assert!(matches!(goal.goal, FoundGoal::File(_)), "{text}");
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

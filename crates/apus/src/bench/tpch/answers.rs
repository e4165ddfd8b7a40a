//! Answers as they are kept: a line `-- NUMBER`, then a line for each row, its values with `|` between them.
//!
//! Two answers are equal when they have the same rows, each as often; ORDER BY leaves the order of equal rows open. Values are compared as text: the types that
//! MySQL gives to sums and averages are part of the answer.

use std::collections::BTreeMap;

use crate::bench::mysql::Row;

/// What MySQL 9.7.4 said at scale 0.01.
const RECORDED: &str = include_str!("../../../../../tests/reference/tpch-0.01.answers");
pub const RECORDED_SCALE: f64 = 0.01;

pub type Answers = BTreeMap<usize, Vec<String>>;

pub fn recorded() -> Answers {
    parse(RECORDED)
}

pub fn parse(text: &str) -> Answers {
    let mut all = Answers::new();
    let mut last = None;
    for line in text.lines() {
        match (line.strip_prefix("-- ").map(str::parse), last) {
            (Some(Ok(number)), _) => {
                all.insert(number, Vec::new());
                last = Some(number);
            }
            (None, Some(number)) => all.entry(number).or_default().push(line.to_owned()),
            _ => {}
        }
    }
    all
}

pub fn write(answers: &Answers) -> String {
    let mut out = String::new();
    for (number, rows) in answers {
        out.push_str(&format!("-- {number}\n"));
        for row in rows {
            out.push_str(row);
            out.push('\n');
        }
    }
    out
}

pub fn lines(rows: &[Row]) -> Vec<String> {
    let line = |row: &Row| row.iter().map(|v| v.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join("|");
    rows.iter().map(line).collect()
}

/// What is wrong with an answer; `None`: nothing.
pub fn difference(found: &[String], wanted: &[String]) -> Option<String> {
    let sorted = |rows: &[String]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    let (found, wanted) = (sorted(found), sorted(wanted));
    if found.len() != wanted.len() {
        return Some(format!("{} rows, wanted {}", found.len(), wanted.len()));
    }
    let (a, b) = found.iter().zip(&wanted).find(|(a, b)| a != b)?;
    Some(format!("found {a}, wanted {b}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_and_compared() {
        let all = Answers::from([(3, vec!["1|a".to_owned(), "2|NULL".to_owned()]), (4, Vec::new())]);
        assert_eq!(parse(&write(&all)), all);
        assert_eq!(recorded().len(), super::super::queries::COUNT);
        let (a, b) = (["x".to_owned(), "y".to_owned()], ["y".to_owned(), "x".to_owned()]);
        assert_eq!(difference(&a, &b), None);
        assert!(difference(&a, &b[..1]).is_some());
        assert!(difference(&a, &["y".to_owned(), "z".to_owned()]).is_some());
    }
}

//! Locales: how they name months and days, and write numbers (`lc_time_names`, FORMAT). The table is what the reference says of each; `tests/reference/locales.py` writes it.
//!
//! Messages are English in all of them: `lc_messages` is kept and shown, as MySQL does for a language that it has no file of.

use std::{array, sync::LazyLock};

use super::datum::Datum;
use crate::errors::{self, Result};

#[derive(Debug)]
pub struct Locale {
    pub name: &'static str,
    pub point: &'static str,
    /// Between groups of digits.
    pub separator: &'static str,
    /// Digits of the last group, and of each before it; zeros: there are no groups.
    pub groups: (usize, usize),
    /// From January on.
    pub months: [&'static str; 12],
    pub short_months: [&'static str; 12],
    /// From Monday on.
    pub days: [&'static str; 7],
    pub short_days: [&'static str; 7],
}

/// By their numbers.
static LOCALES: LazyLock<Vec<Locale>> = LazyLock::new(|| include_str!("locales.tsv").lines().map(of_line).collect());

/// en_US.
pub fn english() -> &'static Locale {
    &LOCALES[0]
}

/// By name, in upper or lower case.
pub fn named(name: &str) -> Option<&'static Locale> {
    LOCALES.iter().find(|l| l.name.eq_ignore_ascii_case(name))
}

/// The locale that a variable is set to, by name or number.
///
/// # Errors
/// 1649 of one that there is not, 1232 of a number with digits behind the point.
pub fn of_value(variable: &str, value: &Datum<'_>) -> Result<&'static Locale> {
    let text = value.as_string();
    let found = match value {
        Datum::Int(_) | Datum::UInt(_) => text.parse().ok().and_then(|n: usize| LOCALES.get(n)),
        Datum::Text(_) | Datum::Bytes(_) => named(&text),
        Datum::Null => return Err(errors::wrong_variable_value(variable, "NULL")),
        _ => return Err(errors::wrong_variable_type(variable)),
    };
    found.ok_or_else(|| errors::unknown_locale(&text))
}

fn of_line(line: &'static str) -> Locale {
    let mut fields = line.split('\t');
    let mut next = || fields.next().unwrap_or_default();
    let (name, point) = (next(), next());
    let separator = match next() {
        "\\0" => "\0",
        other => other,
    };
    let groups = (next().parse().unwrap_or(0), next().parse().unwrap_or(0));
    Locale {
        name,
        point,
        separator,
        groups,
        months: words(next()),
        short_months: words(next()),
        days: words(next()),
        short_days: words(next()),
    }
}

fn words<const N: usize>(list: &'static str) -> [&'static str; N] {
    let mut words = list.split('|');
    array::from_fn(|_| words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_locale_is_whole() {
        assert_eq!((LOCALES.len(), english().name), (111, "en_US"));
        for l in LOCALES.iter() {
            let lists = [&l.months[..], &l.short_months, &l.days, &l.short_days];
            assert!(lists.iter().all(|list| list.iter().all(|word| !word.is_empty())), "{}", l.name);
            assert!(!l.point.is_empty() && (l.groups == (0, 0)) == l.separator.is_empty(), "{}", l.name);
        }
    }

    #[test]
    fn a_locale_goes_by_its_name_or_its_number() {
        let of = |value: Datum<'_>| of_value("lc_time_names", &value).map(|l| l.name).map_err(|e| e.errno);
        assert_eq!(of(Datum::text("DE_de")), Ok("de_DE"));
        assert_eq!(of(Datum::Int(4)), Ok("de_DE"));
        assert_eq!(of(Datum::UInt(110)), Ok("rm_CH"));
        assert_eq!(
            [of(Datum::Int(-1)), of(Datum::Int(111)), of(Datum::text("4")), of(Datum::text("de"))],
            [Err(1649); 4]
        );
        assert_eq!(of(Datum::Double(1.5)), Err(1232));
    }
}

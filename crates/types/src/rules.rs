//! What the definition of a table says in SQL: generated columns, CHECK constraints and triggers.
//!
//! Only SQL knows what the texts mean. A SQL node computes the columns, looks at the conditions and runs the triggers when it writes a row; the data nodes keep the texts and store what they are
//! sent. So a client that writes rows itself must say that it holds the constraints, or is refused ([`crate::TableSchema::has_rules`]).

use crate::schema::{Column, DefaultValue, TableSchema};

/// The expression of a generated column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// As SQL writes it.
    pub text: String,
    /// STORED; otherwise it is shown as VIRTUAL. Both are kept in the row.
    pub stored: bool,
}

/// Whether rows must satisfy a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforced {
    No,
    #[default]
    Yes,
    /// Rows that are written must; those that are there are looked through.
    Validating,
}

/// A CHECK constraint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckDef {
    pub name: String,
    /// As SQL writes it.
    pub text: String,
    pub enforced: Enforced,
}

/// A trigger. Those of a table stand in the order in which they run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerDef {
    /// Unique in its database, whatever the case of its letters.
    pub name: String,
    /// What CREATE TRIGGER said, in a form of the SQL nodes.
    pub text: String,
}

/// Whether rows that were made by one definition may lack what the next asks for: a constraint that holds from now on, a column that is computed, other triggers.
pub fn tightens(now: &TableSchema, before: &TableSchema) -> bool {
    let holds = |check: &CheckDef| check.enforced != Enforced::No;
    let is_new = |check: &CheckDef| {
        holds(check) && !before.checks.iter().any(|old| holds(old) && old.name == check.name && old.text == check.text)
    };
    let is_computed = |c: &Column| c.generated.is_some() || matches!(c.default, DefaultValue::Expression(_));
    let is_other = |c: &Column| {
        is_computed(c) && !before.columns.iter().any(|old| old.generated == c.generated && old.default == c.default)
    };
    now.checks.iter().any(is_new) || now.columns.iter().any(is_other) || now.triggers != before.triggers
}

/// What stands between the name of a table and the number in the name of a constraint that was given none.
const MIDDLE: &str = "_chk_";

impl CheckDef {
    /// The name of constraint `number` of a table.
    pub fn automatic_name(table: &str, number: u64) -> String {
        format!("{table}{MIDDLE}{number}")
    }
    /// The number in a name that was made for this table.
    pub fn number(&self, table: &str) -> Option<u64> {
        let head = self.name.get(..table.len()).filter(|head| head.eq_ignore_ascii_case(table))?;
        self.name.get(head.len()..)?.strip_prefix(MIDDLE)?.parse().ok()
    }
    /// The table has another name now: so has a constraint that was named after it.
    pub fn follow(&mut self, from: &str, to: &str) {
        if let Some(number) = self.number(from) {
            self.name = CheckDef::automatic_name(to, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rows_may_lack_tightens() {
        let column = |name: &str| Column::new(name, crate::ColumnType::Year);
        let plain = TableSchema::new("d", "t", vec![column("a")], vec![0]);
        let check = |enforced| CheckDef { name: "c".to_owned(), text: "true".to_owned(), enforced };
        let with = |enforced| {
            let mut table = plain.clone();
            table.checks.push(check(enforced));
            table
        };
        assert!(tightens(&with(Enforced::Validating), &plain) && tightens(&with(Enforced::Yes), &with(Enforced::No)));
        assert!(!tightens(&with(Enforced::Yes), &with(Enforced::Validating)), "it held before");
        assert!(!tightens(&with(Enforced::No), &plain) && !tightens(&plain, &with(Enforced::Yes)));
        let generated = Some(Generated { text: "1".to_owned(), stored: true });
        let named = |name: &str| {
            let new = Column { generated: generated.clone(), ..column(name) };
            TableSchema::new("d", "t", vec![column("a"), new], vec![0])
        };
        assert!(tightens(&named("#new#b"), &plain));
        assert!(!tightens(&named("b"), &named("#new#b")), "another name");
        let mut triggered = plain.clone();
        triggered.triggers.push(TriggerDef { name: "t".to_owned(), text: "SET @a = 1".to_owned() });
        assert!(tightens(&triggered, &plain) && tightens(&plain, &triggered), "they are run, or not");
    }

    #[test]
    fn names_follow_the_table() {
        let named = |name: &str| CheckDef { name: name.to_owned(), text: String::new(), enforced: Enforced::Yes };
        for (name, after) in [
            ("t_chk_1", "u_chk_1"),
            ("T_chk_12", "u_chk_12"),
            ("t_chk_x", "t_chk_x"),
            ("c", "c"),
            ("tt_chk_1", "tt_chk_1"),
        ] {
            let mut check = named(name);
            check.follow("t", "u");
            assert_eq!(check.name, after);
        }
        assert_eq!(named("é_chk_3").number("é"), Some(3));
        assert_eq!(named("é").number("t"), None);
    }
}

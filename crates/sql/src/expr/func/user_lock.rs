//! Calls of lock functions in the statement under way, and their answers.

use crate::{
    errors::{self, Result},
    value::datum::Datum,
    wire::SqlError,
};

/// Calls of lock functions in one statement: it is run again for each.
pub const CALLS_MAX: usize = 64;
/// Characters of a lock's name, as in MySQL.
pub const NAME_CHARS_MAX: usize = 64;

#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// Below zero: waits without end.
    Get {
        name: String,
        seconds: i64,
    },
    Release(String),
    ReleaseAll,
    IsFree(String),
    IsUsed(String),
}

#[derive(Default, Debug)]
pub struct Calls {
    /// In the order in which they are called in each run of the statement.
    answered: Vec<(Call, Datum<'static>)>,
    /// How many of them this run has called.
    called: usize,
    wanted: Option<Call>,
}

impl Calls {
    /// The answer to a call, if it is known; otherwise the error ends the run of the statement.
    pub fn call(&mut self, call: Call) -> Result<Datum<'static>> {
        match self.answered.get(self.called) {
            Some((known, answer)) if *known == call => {
                self.called += 1;
                Ok(answer.clone())
            }
            Some(_) => Err(errors::not_supported("lock functions of values that change while the statement runs")),
            None if self.answered.len() >= CALLS_MAX => {
                Err(errors::not_supported("more than 64 calls of lock functions in a statement"))
            }
            None => {
                self.wanted = Some(call);
                Err(errors::internal("a lock function without its answer"))
            }
        }
    }

    /// What the run that has ended needs to know; the next run begins.
    pub fn take_wanted(&mut self) -> Option<Call> {
        self.called = 0;
        self.wanted.take()
    }

    pub fn answer(&mut self, call: Call, answer: Datum<'static>) {
        self.answered.push((call, answer));
    }

    /// A new statement begins.
    pub fn clear(&mut self) {
        self.answered.clear();
        self.called = 0;
        self.wanted = None;
    }
}

/// The name as locks are told apart by it.
///
/// # Errors
/// 3057: none. 4163: too long.
pub fn lock_name(name: &Datum<'_>) -> Result<String> {
    let text = name.as_string();
    if name.is_null() || text.is_empty() {
        let shown = if name.is_null() { "NULL" } else { "" };
        let why = "The name is empty, NULL, or can not be expressed in the current character-set.";
        return Err(SqlError::new(3057, b"42000", format!("Incorrect user-level lock name '{shown}'. {why}")));
    }
    if text.chars().count() > NAME_CHARS_MAX {
        let said = format!("User-level lock name '{text}' should not exceed {NAME_CHARS_MAX} characters.");
        return Err(SqlError::new(4163, b"42000", said));
    }
    Ok(text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_run_once_for_each_call() {
        let mut calls = Calls::default();
        let (a, b) = (Call::IsFree("a".into()), Call::Release("b".into()));
        assert!(calls.call(a.clone()).is_err());
        assert_eq!(calls.take_wanted(), Some(a.clone()));
        calls.answer(a.clone(), Datum::Int(1));
        assert_eq!(calls.call(a.clone()).unwrap(), Datum::Int(1));
        assert!(calls.call(b.clone()).is_err());
        assert_eq!(calls.take_wanted(), Some(b.clone()));
        calls.answer(b.clone(), Datum::Int(0));
        assert_eq!(calls.call(a.clone()).unwrap(), Datum::Int(1));
        assert_eq!(calls.call(b).unwrap(), Datum::Int(0));
        assert_eq!(calls.take_wanted(), None);
        assert_eq!(calls.call(Call::ReleaseAll).unwrap_err().errno, 1235, "another one than in the run before");
    }

    #[test]
    fn names() {
        assert_eq!(lock_name(&Datum::text("Größe".to_owned())).unwrap(), "größe");
        let refused = |name: &Datum<'_>| lock_name(name).unwrap_err().errno;
        assert_eq!(refused(&Datum::Null), 3057);
        assert_eq!(refused(&Datum::text(String::new())), 3057);
        assert!(lock_name(&Datum::text("ö".repeat(64))).is_ok());
        assert_eq!(refused(&Datum::text("o".repeat(65))), 4163);
    }
}

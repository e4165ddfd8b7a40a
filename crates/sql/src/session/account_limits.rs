//! Statements of sessions that are watched: those of accounts that have limits an hour, and those whose password has expired.
//!
//! A session is watched from its login or never: whoever has neither limits nor an expired password pays for one comparison per statement. The limits themselves are those of now, since what is counted
//! ([`Usage`]) follows the accounts.

use std::{sync::Arc, time::Instant};

use super::{Session, engine::SqlEngine};
use crate::{
    accounts::Account,
    errors::Result,
    parse::{
        account::{self, Clause},
        account_options::Options,
        digest::{Digest, Form},
        token::{Token, Tokens},
    },
    server::Usage,
    value::zone::clock,
    wire::{SqlError, capability},
};

/// Why a session is watched.
pub struct Watch {
    usage: Option<Arc<Usage>>,
    is_expired: bool,
}

/// # Errors
/// 1820
fn must_change() -> SqlError {
    let text = "You must reset your password using ALTER USER statement before executing this statement.";
    SqlError::new(1820, b"HY000", text)
}

/// Statements that change data, definitions or accounts, as MySQL counts them.
fn changes(t: &mut Tokens) -> bool {
    const WORDS: [&str; 16] = [
        "insert",
        "update",
        "delete",
        "replace",
        "load",
        "create",
        "alter",
        "drop",
        "rename",
        "truncate",
        "grant",
        "revoke",
        "optimize",
        "install",
        "uninstall",
        "import",
    ];
    if t.peek_word("set") {
        return t.second_word("password") || t.second_word("default");
    }
    if !t.peek_word("with") {
        return WORDS.iter().any(|word| t.peek_word(word));
    }
    // Behind the common table expressions.
    let mut depth = 0_usize;
    t.rest().iter().any(|token| match token {
        Token::Symbol('(') => {
            depth += 1;
            false
        }
        Token::Symbol(')') => {
            depth = depth.saturating_sub(1);
            false
        }
        Token::Word(word) if depth == 0 => ["update", "delete"].iter().any(|w| word.eq_ignore_ascii_case(w)),
        _ => false,
    })
}

/// Whether it gives the session's own account a password, and says nothing else.
fn is_own_password(session: &Session, t: &mut Tokens) -> bool {
    let own = session.env.me.as_ref().map(|me| &me.account.name);
    let is_own = |name: &account::Named| name.is_none() || name.as_ref() == own;
    match account::parse(t) {
        Ok(Some(Clause::SetPassword { user, .. })) => is_own(&user),
        Ok(Some(Clause::AlterUser { users, options, .. })) => {
            options == Options::default() && users.iter().all(|(name, how)| is_own(name) && how.is_some())
        }
        _ => false,
    }
}

impl SqlEngine {
    /// Who logs in by an account with limits or an expired password is watched.
    ///
    /// # Errors
    /// 1862: the password has expired, and the client cannot change it.
    pub(crate) fn watch(&self, session: &Session, account: &Account) -> Result<Option<Box<Watch>>> {
        let now = clock().cast_unsigned() / 1_000_000;
        let is_expired = account.policy.is_expired(now, self.globals.of_passwords().lifetime);
        if is_expired && session.info.capabilities & capability::EXPIRED_PASSWORDS == 0 {
            let text = "Your password has expired. To log in you must change it using a client that supports expired \
                        passwords.";
            return Err(SqlError::new(1862, b"HY000", text));
        }
        let counted = self.store.as_ref().filter(|_| !account.policy.limits.are_none());
        let usage = counted.map(|store| store.accounts.usage_of(account, Instant::now()));
        Ok((is_expired || usage.is_some()).then(|| Box::new(Watch { usage, is_expired })))
    }

    /// Lets a statement of a client begin.
    ///
    /// # Errors
    /// 1226: a limit of the account is reached. 1820: its password has to be changed first.
    #[inline]
    pub(crate) fn admit(&self, session: &Session, sql: &[u8]) -> Result<()> {
        match &session.watch {
            None => Ok(()),
            Some(watch) => admit_watched(session, watch, sql),
        }
    }
}

#[cold]
fn admit_watched(session: &Session, watch: &Watch, sql: &[u8]) -> Result<()> {
    let mut plain = Digest::default();
    plain.scan(sql, Form::Plain, session.env.variables.syntax)?;
    let mut t = Tokens::new(&String::from_utf8_lossy(&plain.text));
    if let Some(usage) = &watch.usage {
        usage.begin_statement(changes(&mut t), Instant::now())?;
    }
    if watch.is_expired && !is_own_password(session, &mut t) { Err(must_change()) } else { Ok(()) }
}

impl Session {
    /// # Errors
    /// 1820
    pub(crate) fn check_sandbox(&self) -> Result<()> {
        match &self.watch {
            Some(watch) if watch.is_expired => Err(must_change()),
            _ => Ok(()),
        }
    }

    /// The own password was changed.
    pub(crate) fn leave_sandbox(&mut self) {
        self.watch.iter_mut().for_each(|watch| watch.is_expired = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_something_are_known() {
        for (text, is) in [
            ("INSERT INTO t VALUES (1)", true),
            ("SET PASSWORD = 'x'", true),
            ("SET DEFAULT ROLE NONE TO u", true),
            ("SET @a = 1", false),
            ("SELECT * FROM t FOR UPDATE", false),
            ("WITH c AS (SELECT 1) SELECT * FROM c", false),
            ("WITH c AS (SELECT 1) DELETE FROM t", true),
            ("CREATE TEMPORARY TABLE t (a INT)", true),
            ("CALL p()", false),
            ("LOCK TABLES t WRITE", false),
        ] {
            assert_eq!(changes(&mut Tokens::new(text)), is, "{text}");
        }
    }
}

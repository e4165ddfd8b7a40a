//! What CREATE USER and ALTER USER say behind the accounts that they name: DEFAULT ROLE, REQUIRE, limits, the policy of passwords and locks, COMMENT and ATTRIBUTE.
//!
//! What is not done is refused by its name: a PASSWORD HISTORY that is longer than what is remembered.

use super::{
    account::{active, text},
    token::{Token, Tokens},
};
use crate::{
    accounts::{
        Active, Requires,
        policy::{Change, LockTime, PASTS_MAX, Remark},
        requires::Named,
    },
    errors::{self, Result},
    program::event::failures::wrong_value,
    wire::SqlError,
};

/// Most failed logins and days of a lock, as in MySQL.
const LOCK_MAX: u64 = 32_767;

/// What they say of all accounts that they name; `None`: nothing.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Options {
    pub requires: Option<Requires>,
    pub max_user_connections: Option<u32>,
    pub locked: Option<bool>,
    pub default_roles: Option<Active>,
    pub policy: Change,
}

impl Options {
    pub fn parse(t: &mut Tokens) -> Result<Options> {
        let mut options = Options::default();
        if t.peek_word("default") && t.second_word("role") {
            t.skip();
            t.skip();
            options.default_roles = Some(active(t, false)?);
        }
        if t.word("require") {
            options.requires = Some(match () {
                () if t.word("none") => Requires::Nothing,
                () if t.word("ssl") => Requires::Encryption,
                () if t.word("x509") => Requires::Certificate,
                () => named(t)?,
            });
        }
        if t.word("with") {
            options.limit(t)?;
            while t.peek_word_starting("max_") {
                options.limit(t)?;
            }
        }
        while !t.at_end() {
            match () {
                () if t.word("comment") => options.policy.remark = Some(Remark::Comment(text(t)?)),
                () if t.word("attribute") => options.policy.remark = Some(Remark::Attribute(text(t)?)),
                () => {
                    options.rest(t)?;
                    continue;
                }
            }
            // These come last.
            t.end()?;
        }
        Ok(options)
    }

    /// One of the resource limits.
    fn limit(&mut self, t: &mut Tokens) -> Result<()> {
        let policy = &mut self.policy;
        let limit = match () {
            () if t.word("max_user_connections") => &mut self.max_user_connections,
            () if t.word("max_queries_per_hour") => &mut policy.questions,
            () if t.word("max_updates_per_hour") => &mut policy.updates,
            () if t.word("max_connections_per_hour") => &mut policy.connections,
            () => return Err(t.error()),
        };
        *limit = Some(u32::try_from(count(t)?).unwrap_or(u32::MAX));
        Ok(())
    }

    /// One of the options of passwords and locks.
    fn rest(&mut self, t: &mut Tokens) -> Result<()> {
        if t.word("account") {
            self.locked = Some(match () {
                () if t.word("lock") => true,
                () if t.word("unlock") => false,
                () => return Err(t.error()),
            });
        } else if t.word("password") {
            match () {
                () if t.word("expire") => self.expire(t)?,
                () if t.word("history") => self.policy.history = Some(default_or(t, history)?),
                () if t.word("reuse") => {
                    t.expect("interval")?;
                    self.policy.reuse_days = Some(default_or(t, |t| Ok(days(t)?.min(u16::MAX.into()) as u16))?);
                }
                () if t.word("require") => {
                    t.expect("current")?;
                    self.policy.require_current = Some(match () {
                        () if t.word("default") => None,
                        () if t.word("optional") => Some(false),
                        () => Some(true),
                    });
                }
                () => return Err(t.error()),
            }
        } else if t.word("failed_login_attempts") {
            self.policy.failed_attempts = Some(lock_number(t, "FAILED_LOGIN_ATTEMPTS")?);
        } else if t.word("password_lock_time") {
            self.policy.lock_time = Some(match t.word("unbounded") {
                true => LockTime::Unbounded,
                false => LockTime::Days(lock_number(t, "PASSWORD_LOCK_TIME")?),
            });
        } else {
            return Err(t.error());
        }
        Ok(())
    }

    /// Behind PASSWORD EXPIRE.
    fn expire(&mut self, t: &mut Tokens) -> Result<()> {
        match () {
            () if t.word("default") => self.policy.lifetime = Some(None),
            () if t.word("never") => self.policy.lifetime = Some(Some(0)),
            () if t.word("interval") => {
                let said = days(t)?;
                let days = u16::try_from(said).ok().filter(|days| *days > 0);
                self.policy.lifetime = Some(Some(days.ok_or_else(|| wrong_value("DAY", &said.to_string()))?));
            }
            () => self.policy.expired = true,
        }
        Ok(())
    }
}

/// SUBJECT, ISSUER and CIPHER in any order, with or without AND.
fn named(t: &mut Tokens) -> Result<Requires> {
    let (mut named, mut may_end) = (Named::default(), false);
    while let Some(Token::Word(word)) = t.peek() {
        let word = word.to_ascii_uppercase();
        let Some(name) = named.of(&word) else { break };
        if name.is_some() {
            return Err(SqlError::new(1225, b"HY000", format!("Option '{word}' used twice in statement")));
        }
        t.skip();
        if !t.peek_string() {
            return Err(t.error());
        }
        *name = Some(t.string()?);
        may_end = !t.word("and");
    }
    if may_end { Ok(Requires::Named(named)) } else { Err(t.error()) }
}

fn default_or(t: &mut Tokens, number: impl Fn(&mut Tokens) -> Result<u16>) -> Result<Option<u16>> {
    if t.word("default") { Ok(None) } else { number(t).map(Some) }
}

fn count(t: &mut Tokens) -> Result<u64> {
    let error = t.error();
    t.number()?.parse().map_err(|_| error)
}

fn days(t: &mut Tokens) -> Result<u64> {
    let days = count(t)?;
    t.expect("day")?;
    Ok(days)
}

fn history(t: &mut Tokens) -> Result<u16> {
    let said = count(t)?;
    if said > PASTS_MAX as u64 {
        return Err(errors::not_supported(&format!(
            "PASSWORD HISTORY of more than {PASTS_MAX} passwords, as no more are remembered; PASSWORD REUSE INTERVAL counts days"
        )));
    }
    Ok(said as u16)
}

fn lock_number(t: &mut Tokens, name: &str) -> Result<u16> {
    let said = count(t)?;
    if said > LOCK_MAX {
        return Err(wrong_value(name, &said.to_string()));
    }
    Ok(said as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        let mut t = Tokens::new(text);
        let options = Options::parse(&mut t)?;
        t.end().map(|()| options)
    }

    #[test]
    fn policies_are_read() {
        let options = parsed(
            "REQUIRE NONE WITH MAX_QUERIES_PER_HOUR 1 MAX_UPDATES_PER_HOUR 2 MAX_CONNECTIONS_PER_HOUR 99999999999 \
             PASSWORD EXPIRE PASSWORD EXPIRE INTERVAL 3 DAY ACCOUNT UNLOCK PASSWORD HISTORY 5 PASSWORD REUSE INTERVAL \
             70000 DAY PASSWORD REQUIRE CURRENT FAILED_LOGIN_ATTEMPTS 6 PASSWORD_LOCK_TIME UNBOUNDED ATTRIBUTE '{}'",
        )
        .unwrap();
        let policy = Change {
            questions: Some(1),
            updates: Some(2),
            connections: Some(u32::MAX),
            failed_attempts: Some(6),
            lock_time: Some(LockTime::Unbounded),
            expired: true,
            lifetime: Some(Some(3)),
            history: Some(Some(5)),
            reuse_days: Some(Some(u16::MAX)),
            require_current: Some(Some(true)),
            remark: Some(Remark::Attribute("{}".into())),
        };
        let expected = Options { requires: Some(Requires::Nothing), locked: Some(false), policy, ..Options::default() };
        assert_eq!(options, expected);
        let policy = parsed(
            "PASSWORD EXPIRE NEVER PASSWORD REQUIRE CURRENT OPTIONAL PASSWORD HISTORY DEFAULT PASSWORD REUSE INTERVAL DEFAULT",
        )
        .unwrap()
        .policy;
        assert_eq!((policy.lifetime, policy.require_current), (Some(Some(0)), Some(Some(false))));
        assert_eq!((policy.history, policy.reuse_days), (Some(None), Some(None)));
        assert_eq!(parsed("PASSWORD EXPIRE DEFAULT").unwrap().policy.lifetime, Some(None));
        assert_eq!(parsed("PASSWORD REQUIRE CURRENT DEFAULT").unwrap().policy.require_current, Some(None));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_number() {
        for (text, errno) in [
            ("REQUIRE SSL AND X509", 1064),
            ("REQUIRE X509 AND SUBJECT 'a'", 1064),
            ("REQUIRE SUBJECT 'a' AND", 1064),
            ("REQUIRE SUBJECT", 1064),
            ("REQUIRE CIPHER 'a' ISSUER 'b' CIPHER 'c'", 1225),
            ("PASSWORD HISTORY 25", 1235),
            ("PASSWORD EXPIRE INTERVAL 0 DAY", 1525),
            ("PASSWORD EXPIRE INTERVAL 65536 DAY", 1525),
            ("FAILED_LOGIN_ATTEMPTS 32768", 1525),
            ("PASSWORD_LOCK_TIME 32768", 1525),
            ("PASSWORD_LOCK_TIME", 1064),
            ("PASSWORD EXPIRE INTERVAL -1 DAY", 1064),
            ("PASSWORD EXPIRE INTERVAL 1", 1064),
            ("COMMENT 'x' ATTRIBUTE '{}'", 1064),
            ("COMMENT 'x' ACCOUNT LOCK", 1064),
            ("WITH MAX_QUERIES_PER_HOUR -1", 1064),
            ("WITH", 1064),
            ("REQUIRE", 1064),
        ] {
            assert_eq!(parsed(text).map_err(|e| e.errno), Err(errno), "{text}");
        }
    }
}

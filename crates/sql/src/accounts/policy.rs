//! What an account is held to beside its privileges: limits an hour, failed logins, how long its password lasts and which ones it may take again; and what is noted about it.
//!
//! A [`Policy`] is kept with its account and is the same on all SQL nodes; what is counted by it is each node's own ([`crate::server`], `usage`). A [`Change`] is what CREATE and ALTER USER say of
//! it. Nothing in here looks at a clock: moments are seconds since 1970, handed in.

use super::{Secret, kept, password};
use crate::value::json::{self, Json, Object};

/// Passwords that are remembered of an account, whatever its policy asks for: each new one is compared with all of them, some milliseconds each.
pub const PASTS_MAX: usize = 24;
const DAY: u64 = 86_400;

/// Most in an hour; 0: any number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    pub questions: u32,
    pub updates: u32,
    pub connections: u32,
}

impl Limits {
    pub fn are_none(self) -> bool {
        self == Limits::default()
    }
}

/// How long an account is closed after too many failed logins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockTime {
    Days(u16),
    Unbounded,
}

impl Default for LockTime {
    fn default() -> LockTime {
        LockTime::Days(0)
    }
}

impl LockTime {
    /// As `mysql.user` has it.
    pub fn days(self) -> i64 {
        match self {
            LockTime::Days(days) => days.into(),
            LockTime::Unbounded => -1,
        }
    }
}

/// A password that an account has, or had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Past {
    pub at: u64,
    pub secret: Secret,
}

/// What is not said is as the server has it by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policy {
    pub limits: Limits,
    /// Counts what said limits: what was used before is forgotten.
    pub resets: u32,
    /// Failed logins one after the other that close the account; 0: they do not.
    pub failed_attempts: u16,
    pub lock_time: LockTime,
    /// Counts what opens an account again that failed logins have closed.
    pub unlocks: u32,
    /// The password has to be changed first.
    pub expired: bool,
    /// Days that a password lasts; 0: for ever.
    pub lifetime: Option<u16>,
    /// When the password was given; `None`: by a build that did not note it.
    pub changed: Option<u64>,
    /// So many passwords must come before one may come again.
    pub history: Option<u16>,
    /// So many days of the calendar.
    pub reuse_days: Option<u16>,
    /// Who changes the own password has to say the one that it replaces.
    pub require_current: Option<bool>,
    /// The newest last, the one that the account has among them; as many as the policy looks at.
    pub past: Vec<Past>,
    /// The JSON object of COMMENT and ATTRIBUTE.
    pub attributes: Option<String>,
}

/// What the server has by default: `password_history` and `password_reuse_interval`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reuse {
    pub history: u16,
    pub days: u16,
}

/// What COMMENT and ATTRIBUTE say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remark {
    Comment(String),
    Attribute(String),
}

/// What CREATE and ALTER USER say of the policy; `None`: nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Change {
    pub questions: Option<u32>,
    pub updates: Option<u32>,
    pub connections: Option<u32>,
    pub failed_attempts: Option<u16>,
    pub lock_time: Option<LockTime>,
    pub expired: bool,
    pub lifetime: Option<Option<u16>>,
    pub history: Option<Option<u16>>,
    pub reuse_days: Option<Option<u16>>,
    pub require_current: Option<Option<bool>>,
    pub remark: Option<Remark>,
}

/// What ATTRIBUTE says is no JSON object.
#[derive(Debug, PartialEq, Eq)]
pub struct NoObject;

fn object(text: &str) -> Result<Json, NoObject> {
    let value = json::parse::parse(text.as_bytes()).map_err(|_| NoObject)?;
    // mysql.user shows it within another object.
    let fits = matches!(value, Json::Object(_)) && value.depth() < json::value::DEPTH_MAX;
    if fits { Ok(value) } else { Err(NoObject) }
}

fn text_of(value: &Json) -> String {
    let mut out = Vec::new();
    json::print::push(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

impl Change {
    /// Changes a policy; `unlocks`: ACCOUNT UNLOCK is said, too.
    ///
    /// # Errors
    /// ATTRIBUTE is no JSON object.
    pub fn apply(&self, policy: &mut Policy, unlocks: bool) -> Result<(), NoObject> {
        let limits = &mut policy.limits;
        limits.questions = self.questions.unwrap_or(limits.questions);
        limits.updates = self.updates.unwrap_or(limits.updates);
        limits.connections = self.connections.unwrap_or(limits.connections);
        if [self.questions, self.updates, self.connections].iter().any(Option::is_some) {
            policy.resets = policy.resets.wrapping_add(1);
        }
        policy.failed_attempts = self.failed_attempts.unwrap_or(policy.failed_attempts);
        policy.lock_time = self.lock_time.unwrap_or(policy.lock_time);
        let opens = unlocks && policy.counts_failures();
        if opens || self.failed_attempts.is_some() || self.lock_time.is_some() {
            policy.unlocks = policy.unlocks.wrapping_add(1);
        }
        policy.expired |= self.expired;
        policy.lifetime = self.lifetime.unwrap_or(policy.lifetime);
        policy.history = self.history.unwrap_or(policy.history);
        policy.reuse_days = self.reuse_days.unwrap_or(policy.reuse_days);
        policy.require_current = self.require_current.unwrap_or(policy.require_current);
        let said = match &self.remark {
            None => return Ok(()),
            Some(Remark::Comment(text)) => {
                Json::Object(Object::from_members(vec![("comment".to_owned(), Json::text(text.clone()))]))
            }
            Some(Remark::Attribute(text)) => object(text)?,
        };
        let before = policy.attributes().unwrap_or_else(|| Json::Object(Object::new()));
        policy.attributes = Some(text_of(&json::change::patch(before, said)));
        Ok(())
    }
}

impl Policy {
    /// Failed logins may close the account.
    pub fn counts_failures(&self) -> bool {
        self.failed_attempts > 0 && self.lock_time != LockTime::Days(0)
    }

    /// Whether the password has to be changed before anything else; `lifetime`: the days that `default_password_lifetime` says.
    pub fn is_expired(&self, now: u64, lifetime: u16) -> bool {
        let days = u64::from(self.lifetime.unwrap_or(lifetime));
        let is_old = |at: u64| now > at.saturating_add(days * DAY);
        self.expired || days > 0 && self.changed.is_some_and(is_old)
    }

    pub fn attributes(&self) -> Option<Json> {
        object(self.attributes.as_ref()?).ok()
    }

    /// As `mysql.user` has it; `None`: NULL.
    pub fn user_attributes(&self, second: Option<&Secret>) -> Option<Json> {
        let mut members = Vec::new();
        members.extend(self.attributes().map(|attributes| ("metadata".to_owned(), attributes)));
        if self.failed_attempts > 0 || self.lock_time != LockTime::Days(0) {
            let locking = Object::from_members(vec![
                ("failed_login_attempts".to_owned(), Json::Int(self.failed_attempts.into())),
                ("password_lock_time_days".to_owned(), Json::Int(self.lock_time.days())),
            ]);
            members.push(("Password_locking".to_owned(), Json::Object(locking)));
        }
        members.extend(second.map(|second| ("additional_password".to_owned(), Json::String(second.text()))));
        (!members.is_empty()).then(|| Json::Object(Object::from_members(members)))
    }

    /// What counts of the past, the newest first.
    fn counting(&self, now: u64, default: Reuse) -> impl Iterator<Item = &Past> {
        let history = usize::from(self.history.unwrap_or(default.history));
        let days = u64::from(self.reuse_days.unwrap_or(default.days));
        let counts = move |(i, past): &(usize, &Past)| *i < history || (now / DAY).saturating_sub(past.at / DAY) < days;
        self.past.iter().rev().enumerate().filter(counts).map(|(_, past)| past).take(PASTS_MAX)
    }

    /// Whether the account must not have this password again yet.
    pub fn forbids(&self, password: &str, now: u64, default: Reuse) -> bool {
        !password.is_empty() && self.counting(now, default).any(|p| password::is_of(&p.secret, password.as_bytes()))
    }

    /// The account has a new password.
    pub fn note_password(&mut self, secret: &Secret, now: u64, default: Reuse) {
        self.changed = Some(now);
        if matches!(secret, Secret::Native(_) | Secret::Sha2(_)) {
            self.past.push(Past { at: now, secret: secret.clone() });
        }
        let mut past: Vec<Past> = self.counting(now, default).cloned().collect();
        past.reverse();
        self.past = past;
    }

    /// As lines of the account's row.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut number = |name: &str, value: Option<u64>| lines.extend(value.map(|n| format!("{name}\t{n}")));
        let some = |n: u32| (n > 0).then_some(u64::from(n));
        number("questions", some(self.limits.questions));
        number("updates", some(self.limits.updates));
        number("logins", some(self.limits.connections));
        number("resets", some(self.resets));
        number("attempts", some(self.failed_attempts.into()));
        number("lock days", u64::try_from(self.lock_time.days()).ok().filter(|days| *days > 0));
        number("unlocks", some(self.unlocks));
        number("lifetime", self.lifetime.map(u64::from));
        number("changed", self.changed);
        number("history", self.history.map(u64::from));
        number("reuse days", self.reuse_days.map(u64::from));
        number("current", self.require_current.map(u64::from));
        lines.extend((self.lock_time == LockTime::Unbounded).then(|| "lock for ever".to_owned()));
        lines.extend(self.expired.then(|| "expired".to_owned()));
        lines.extend(self.past.iter().map(|p| format!("past\t{}\t{}", p.at, kept::escaped(&p.secret.text()))));
        lines.extend(self.attributes.iter().map(|text| format!("attributes\t{}", kept::escaped(text))));
        lines
    }

    /// Takes such a line; `None`: it is none.
    pub(super) fn take(&mut self, line: &[&str]) -> Option<()> {
        match line {
            ["questions", n] => self.limits.questions = n.parse().ok()?,
            ["updates", n] => self.limits.updates = n.parse().ok()?,
            ["logins", n] => self.limits.connections = n.parse().ok()?,
            ["resets", n] => self.resets = n.parse().ok()?,
            ["attempts", n] => self.failed_attempts = n.parse().ok()?,
            ["lock days", n] => self.lock_time = LockTime::Days(n.parse().ok()?),
            ["lock for ever"] => self.lock_time = LockTime::Unbounded,
            ["unlocks", n] => self.unlocks = n.parse().ok()?,
            ["expired"] => self.expired = true,
            ["lifetime", n] => self.lifetime = Some(n.parse().ok()?),
            ["changed", n] => self.changed = Some(n.parse().ok()?),
            ["history", n] => self.history = Some(n.parse().ok()?),
            ["reuse days", n] => self.reuse_days = Some(n.parse().ok()?),
            ["current", n @ ("0" | "1")] => self.require_current = Some(*n == "1"),
            ["past", at, text] => {
                let text = kept::plain(text);
                let secret = password::parse_native(&text).or_else(|| password::parse_sha2(&text))?;
                self.past.push(Past { at: at.parse().ok()?, secret });
            }
            ["attributes", text] => {
                let text = kept::plain(text);
                object(&text).ok()?;
                self.attributes = Some(text);
            }
            _ => return None,
        }
        Some(())
    }
}

/// Characters of a password, as `generated_random_password_length` may be set.
pub const LENGTH_MIN: u64 = 5;

pub const LENGTH_MAX: u64 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(text: &str) -> Change {
        Change { remark: Some(Remark::Attribute(text.into())), ..Change::default() }
    }

    #[test]
    fn attributes_are_patched() {
        let mut policy = Policy::default();
        assert_eq!(policy.user_attributes(None), None);
        attribute("{\"b\": {\"c\": null, \"d\": 1}, \"a\": null}").apply(&mut policy, false).unwrap();
        assert_eq!(policy.attributes.as_deref(), Some("{\"b\": {\"d\": 1}}"));
        let comment = Change { remark: Some(Remark::Comment("it's".into())), ..Change::default() };
        comment.apply(&mut policy, false).unwrap();
        attribute("{\"b\": null}").apply(&mut policy, false).unwrap();
        assert_eq!(policy.attributes.as_deref(), Some("{\"comment\": \"it's\"}"));
        for wrong in ["", "x", "[1]", "1", "null", "{", &format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100))] {
            assert_eq!(attribute(wrong).apply(&mut policy, false), Err(NoObject), "{wrong}");
        }
        policy.lock_time = LockTime::Unbounded;
        assert_eq!(
            text_of(&policy.user_attributes(None).unwrap()),
            "{\"metadata\": {\"comment\": \"it's\"}, \
             \"Password_locking\": {\"failed_login_attempts\": 0, \"password_lock_time_days\": -1}}"
        );
    }

    #[test]
    fn passwords_expire() {
        let mut policy = Policy { changed: Some(1000), ..Policy::default() };
        assert!(!policy.is_expired(u64::MAX, 0));
        assert!(!policy.is_expired(1000 + 2 * DAY, 2) && policy.is_expired(1001 + 2 * DAY, 2));
        policy.lifetime = Some(0);
        assert!(!policy.is_expired(u64::MAX, 2));
        policy.lifetime = Some(1);
        assert!(policy.is_expired(1001 + DAY, 0));
        policy.changed = None;
        assert!(!policy.is_expired(u64::MAX, 1), "nobody knows how old it is");
        Change { expired: true, ..Change::default() }.apply(&mut policy, false).unwrap();
        assert!(policy.is_expired(0, 0));
    }

    #[test]
    fn passwords_come_again_when_they_may() {
        let none = Reuse::default();
        let mut policy = Policy { history: Some(2), ..Policy::default() };
        for (now, text) in ["a", "b", "c"].iter().enumerate() {
            assert!(!policy.forbids(text, now as u64, none), "{text}");
            policy.note_password(&password::native(text), now as u64, none);
        }
        assert_eq!(policy.past.len(), 2);
        assert!(!policy.forbids("a", 3, none) && policy.forbids("b", 3, none) && policy.forbids("c", 3, none));
        policy.history = Some(0);
        policy.reuse_days = Some(1);
        assert!(policy.forbids("b", DAY - 1, none) && !policy.forbids("b", DAY, none));
        assert!(!policy.forbids("", 0, none));
        policy.note_password(&password::native("d"), 10 * DAY, none);
        assert_eq!(policy.past.len(), 1);
        (policy.history, policy.reuse_days) = (None, None);
        assert!(!policy.forbids("d", 10 * DAY, none) && policy.forbids("d", 10 * DAY, Reuse { history: 1, days: 0 }));
        for i in 0..2 * PASTS_MAX {
            policy.note_password(&password::native(&i.to_string()), 10 * DAY, Reuse { history: 0, days: 9 });
        }
        assert_eq!(policy.past.len(), PASTS_MAX, "however often it is changed");
    }

    #[test]
    fn what_opens_an_account_is_counted() {
        let mut policy = Policy::default();
        Change::default().apply(&mut policy, true).unwrap();
        assert_eq!(policy.unlocks, 0, "nothing closes it");
        let close = Change { failed_attempts: Some(2), lock_time: Some(LockTime::Days(1)), ..Change::default() };
        close.apply(&mut policy, false).unwrap();
        Change::default().apply(&mut policy, false).unwrap();
        assert_eq!(policy.unlocks, 1);
        Change::default().apply(&mut policy, true).unwrap();
        close.apply(&mut policy, false).unwrap();
        assert_eq!(policy.unlocks, 3);
    }

    #[test]
    fn lines_come_back() {
        let policy = Policy {
            limits: Limits { questions: 1, updates: 2, connections: 3 },
            resets: 11,
            failed_attempts: 4,
            lock_time: LockTime::Days(5),
            unlocks: 6,
            expired: true,
            lifetime: Some(0),
            changed: Some(7),
            history: Some(8),
            reuse_days: Some(0),
            require_current: Some(false),
            past: vec![
                Past { at: 9, secret: password::native("a\tb") },
                Past { at: 10, secret: password::sha2("b", [7; 20]) },
            ],
            attributes: Some("{\"a\": \"x\\ty\"}".to_owned()),
        };
        for policy in [policy, Policy::default(), Policy { lock_time: LockTime::Unbounded, ..Policy::default() }] {
            let mut again = Policy::default();
            for line in policy.lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                assert_eq!(again.take(&fields), Some(()), "{line}");
            }
            assert_eq!(again, policy);
        }
        for wrong in [&["questions", "x"][..], &["new"], &["attributes", "[]"], &["past", "1", "x"], &["current", "2"]]
        {
            assert_eq!(Policy::default().take(wrong), None, "{wrong:?}");
        }
    }
}

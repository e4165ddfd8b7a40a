//! What accounts have used of their limits an hour, and how often logins of them have failed. Each SQL node counts for itself and forgets when it ends, as MySQL's servers do.
//!
//! An account is counted only if its [`Policy`](crate::accounts::Policy) asks for it: sessions of others have nothing to look at. A [`Usage`] is shared by all sessions of an account; its limits are
//! those of the newest accounts ([`Usages::follow`]). An hour begins with the first login that is counted, and anew with what comes when it is over. No function here looks at the clock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    accounts::{
        Account, AccountName, Directory, Policy,
        policy::{Limits, LockTime},
    },
    wire::SqlError,
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY_SECONDS: u64 = 86_400;

/// The account is closed, for so many days that are left, begun ones too; `None`: until somebody opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed(Option<u64>);

impl Closed {
    pub fn error(self, policy: &Policy, user: &str, host: &str) -> SqlError {
        let days = |days: Option<i64>| days.filter(|d| *d >= 0).map_or("unlimited".to_owned(), |d| d.to_string());
        let all = days(Some(policy.lock_time.days()));
        let (left, failed) = (days(self.0.map(u64::cast_signed)), policy.failed_attempts);
        let text = format!(
            "Access denied for user '{user}'@'{host}'. Account is blocked for {all} day(s) ({left} day(s) remaining) due to \
             {failed} consecutive failed logins."
        );
        SqlError::new(3955, b"HY000", text)
    }
}

#[derive(Debug)]
struct State {
    limits: Limits,
    /// [`Policy::resets`] when these were taken.
    resets: u32,
    /// In the hour that began then.
    used: Limits,
    hour: Instant,
    /// Logins that failed since the last one that did not.
    failures: u16,
    closed_at: Option<Instant>,
    /// [`Policy::unlocks`] when the failures were counted.
    unlocks: u32,
}

/// Of one account.
#[derive(Debug)]
pub struct Usage {
    user: String,
    state: Mutex<State>,
}

impl Usage {
    pub fn new(account: &Account, now: Instant) -> Usage {
        let state = State {
            limits: account.policy.limits,
            resets: account.policy.resets,
            used: Limits::default(),
            hour: now,
            failures: 0,
            closed_at: None,
            unlocks: account.policy.unlocks,
        };
        Usage { user: account.name.user.clone(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the numbers as they should be.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exceeded(&self, what: &str, most: u32) -> SqlError {
        let text = format!("User '{}' has exceeded the '{what}' resource (current value: {most})", self.user);
        SqlError::new(1226, b"42000", text)
    }

    /// A statement begins; `changes`: it changes data or definitions.
    ///
    /// # Errors
    /// 1226
    pub fn begin_statement(&self, changes: bool, now: Instant) -> Result<(), SqlError> {
        let state = &mut *self.lock();
        state.begin_hour(now);
        if !count(&mut state.used.questions, state.limits.questions) {
            return Err(self.exceeded("max_questions", state.limits.questions));
        }
        if changes && !count(&mut state.used.updates, state.limits.updates) {
            return Err(self.exceeded("max_updates", state.limits.updates));
        }
        Ok(())
    }

    /// A client has logged in.
    ///
    /// # Errors
    /// 1226
    pub fn log_in(&self, now: Instant) -> Result<(), SqlError> {
        let state = &mut *self.lock();
        state.begin_hour(now);
        match count(&mut state.used.connections, state.limits.connections) {
            true => Ok(()),
            false => Err(self.exceeded("max_connections_per_hour", state.limits.connections)),
        }
    }

    /// A client has tried to log in; nobody does while the account is closed.
    ///
    /// # Errors
    /// The account is closed, perhaps by this attempt.
    pub fn attempt(&self, policy: &Policy, is_right: bool, now: Instant) -> Result<(), Closed> {
        let state = &mut *self.lock();
        if state.unlocks != policy.unlocks {
            state.forget_failures();
            state.unlocks = policy.unlocks;
        }
        if let Some(since) = state.closed_at {
            let passed = now.saturating_duration_since(since).as_secs() / DAY_SECONDS;
            match policy.lock_time {
                LockTime::Unbounded => return Err(Closed(None)),
                LockTime::Days(days) if passed < days.into() => return Err(Closed(Some(u64::from(days) - passed))),
                LockTime::Days(_) => state.forget_failures(),
            }
        }
        if is_right {
            state.failures = 0;
            return Ok(());
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures < policy.failed_attempts {
            return Ok(());
        }
        state.closed_at = Some(now);
        Err(Closed(u64::try_from(policy.lock_time.days()).ok()))
    }
}

/// One more, unless there are as many as there may be.
fn count(used: &mut u32, most: u32) -> bool {
    let may = most == 0 || *used < most;
    *used = used.saturating_add(u32::from(may));
    may
}

impl State {
    fn begin_hour(&mut self, now: Instant) {
        if now.saturating_duration_since(self.hour) >= HOUR {
            self.hour = now;
            self.used = Limits::default();
        }
    }
    fn forget_failures(&mut self) {
        self.failures = 0;
        self.closed_at = None;
    }
}

/// Of all accounts that are counted: those of the directory only ([`super::Accounts::usage_of`]), so [`ACCOUNTS_MAX`](crate::accounts::ACCOUNTS_MAX) and those that the server was given at most.
#[derive(Default, Debug)]
pub struct Usages {
    map: Mutex<BTreeMap<AccountName, Arc<Usage>>>,
}

impl Usages {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AccountName, Arc<Usage>>> {
        // Every critical section leaves the map whole.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of an account of the newest directory.
    pub fn of(&self, account: &Account, now: Instant) -> Arc<Usage> {
        let new = || Arc::new(Usage::new(account, now));
        self.lock().entry(account.name.clone()).or_insert_with(new).clone()
    }

    /// There are other accounts: limits that were said since count from now on, from nothing, and who is gone is forgotten.
    pub fn follow(&self, directory: &Directory) {
        let mut map = self.lock();
        if map.is_empty() {
            return;
        }
        let accounts: BTreeMap<&AccountName, &Account> = directory.iter().map(|a| (&a.name, &**a)).collect();
        map.retain(|name, usage| {
            let Some(account) = accounts.get(name) else { return false };
            let state = &mut *usage.lock();
            if state.resets != account.policy.resets {
                (state.limits, state.resets) = (account.policy.limits, account.policy.resets);
                state.used = Limits::default();
            }
            true
        });
    }

    /// FLUSH USER_RESOURCES.
    pub fn forget_used(&self) {
        self.lock().values().for_each(|usage| usage.lock().used = Limits::default());
    }

    /// FLUSH PRIVILEGES, which opens accounts in MySQL.
    pub fn forget_failures(&self) {
        self.lock().values().for_each(|usage| usage.lock().forget_failures());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        accounts::{Auth, Secret},
        wire::auth::AuthPlugin,
    };

    fn account(policy: Policy) -> Account {
        let auth = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        Account { policy, ..Account::new(AccountName::new("u", "%"), auth) }
    }
    fn errno(done: Result<(), SqlError>) -> u16 {
        done.map_or_else(|e| e.errno, |()| 0)
    }

    #[test]
    fn hours_have_limits() {
        let limits = Limits { questions: 3, updates: 1, connections: 2 };
        let mut u = account(Policy { limits, ..Policy::default() });
        let (usages, now) = (Usages::default(), Instant::now());
        let usage = usages.of(&u, now);
        assert_eq!([0, 1, 2].map(|_| errno(usage.log_in(now))), [0, 0, 1226]);
        assert_eq!([true, true, false, false].map(|c| errno(usage.begin_statement(c, now))), [0, 1226, 0, 1226]);
        let text = usage.begin_statement(false, now).unwrap_err().message;
        assert_eq!(text, "User 'u' has exceeded the 'max_questions' resource (current value: 3)");
        assert_eq!(errno(usage.begin_statement(true, now + HOUR)), 0, "another hour");
        assert_eq!(errno(usage.begin_statement(true, now + HOUR)), 1226);
        usages.forget_used();
        assert_eq!(errno(usage.begin_statement(true, now + HOUR)), 0);
        (u.policy.limits.updates, u.policy.resets) = (2, 1);
        usages.follow(&Directory::new(1, vec![u.clone()]));
        assert_eq!([0, 1, 2].map(|_| errno(usage.begin_statement(true, now + HOUR))), [0, 0, 1226]);
        assert!(Arc::ptr_eq(&usage, &usages.of(&u, now)));
        usages.follow(&Directory::new(2, Vec::new()));
        assert!(usages.lock().is_empty());
    }

    #[test]
    fn failed_logins_close_an_account() {
        let mut u = account(Policy { failed_attempts: 2, lock_time: LockTime::Days(3), ..Policy::default() });
        let (usages, now) = (Usages::default(), Instant::now());
        let usage = usages.of(&u, now);
        let try_at = |u: &Account, is_right: bool, hours: u32| usage.attempt(&u.policy, is_right, now + hours * HOUR);
        assert_eq!([false, true, false].map(|right| try_at(&u, right, 0)), [Ok(()); 3], "a right one counts anew");
        assert_eq!(try_at(&u, false, 0), Err(Closed(Some(3))));
        assert_eq!(try_at(&u, true, 23), Err(Closed(Some(3))));
        assert_eq!(try_at(&u, true, 49), Err(Closed(Some(1))));
        assert_eq!(
            Closed(Some(1)).error(&u.policy, "u", "h").message,
            "Access denied for user 'u'@'h'. Account is blocked for 3 day(s) (1 day(s) remaining) due to 2 consecutive failed \
             logins."
        );
        assert_eq!(try_at(&u, true, 72), Ok(()));
        u.policy.lock_time = LockTime::Unbounded;
        u.policy.unlocks += 1;
        assert_eq!(
            [false, false, true].map(|right| try_at(&u, right, 72)),
            [Ok(()), Err(Closed(None)), Err(Closed(None))]
        );
        assert!(
            Closed(None).error(&u.policy, "u", "h").message.contains("unlimited day(s) (unlimited day(s) remaining)")
        );
        u.policy.unlocks += 1;
        assert_eq!(try_at(&u, true, 73), Ok(()), "ALTER USER has opened it");
        assert_eq!([false, false].map(|right| try_at(&u, right, 72).is_ok()), [true, false]);
        usages.forget_failures();
        assert_eq!(try_at(&u, true, 73), Ok(()));
    }
}

//! Who may log in at this server: what it was given when it started, and the accounts of the cluster.
//!
//! One value is shared by all threads. The engine reads the cluster's accounts and puts them in ([`Accounts::install`]); logins and sessions take the newest [`Directory`] and keep it as long
//! as they like. [`Accounts::is_fresh`] says whether somebody has looked recently enough to go by it: `docs/decisions/0026-accounts.md` has the argument.
//!
//! An account that the server was given (`root`) has all privileges until the cluster has an account of that name. That one counts then, but its password stays what the server was
//! given until ALTER USER gives it another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    rsa::RsaKey,
    usage::{Usage, Usages},
};
use crate::{
    accounts::{Account, AccountName, Auth, Directory, Privileges, Secret},
    wire::{
        SqlError,
        auth::{AuthPlugin, PasswordDigest, double_sha256},
    },
};

/// Nobody acts by accounts that were looked at longer ago.
pub const FRESH: Duration = Duration::from_millis(400);
/// Passwords whose short proof can be checked; at the limit all are forgotten, which costs each client one long login.
const REMEMBERED_MAX: usize = 10_000;

/// The accounts of one server.
#[derive(Clone, Default)]
pub struct Accounts {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Counts the directories.
    generation: AtomicU64,
    began: Instant,
    /// Microseconds from `began` to the beginning of the last successful look, plus one; 0: there was none.
    checked: AtomicU64,
    /// `SHA256(SHA256(p))` by the kept form of a password.
    remembered: Mutex<BTreeMap<String, [u8; 32]>>,
    rsa: OnceLock<Option<RsaKey>>,
    usages: Usages,
    /// How often the read locks of the cluster were changed, and what they are, as the engine writes them.
    read_locks: Mutex<(u64, Arc<[u8]>)>,
    has_read_locks: AtomicBool,
}

#[derive(Default)]
struct State {
    given: Vec<(String, Auth)>,
    directory: Arc<Directory>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            state: Mutex::default(),
            generation: AtomicU64::new(1),
            began: Instant::now(),
            checked: AtomicU64::new(0),
            remembered: Mutex::default(),
            rsa: OnceLock::new(),
            usages: Usages::default(),
            read_locks: Mutex::default(),
            has_read_locks: AtomicBool::new(false),
        }
    }
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").field("directory", &self.current()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its value whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accounts {
    /// No account: nobody can log in.
    pub fn new() -> Accounts {
        Accounts::default()
    }

    /// Only `root` without password, for servers that listen on loopback.
    pub fn root_without_password() -> Accounts {
        let mut accounts = Accounts::new();
        accounts.add("root", "", AuthPlugin::NativePassword);
        accounts
    }

    /// Adds an account for all hosts with all privileges; an empty password means none is needed.
    pub fn add(&mut self, user: &str, password: &str, plugin: AuthPlugin) {
        let auth = Auth { plugin, secret: Secret::Configured(PasswordDigest::of(password)) };
        {
            let mut state = lock(&self.shared.state);
            state.given.retain(|(name, _)| name != user);
            state.given.push((user.to_owned(), auth));
        }
        self.install(0, Vec::new());
    }

    /// The plugin that the greeting names. Where root has no password and there are no other accounts it is the one that every client library has built in: libmariadb loads
    /// caching_sha2_password from a file and, when many threads connect at once, sometimes fails to. Otherwise it is that of most accounts, as MySQL's
    /// servers do: PyMySQL answers a *switch* to caching_sha2_password wrongly (it takes the zero behind the scramble for a part of it), and has to send its password then.
    pub fn greeting_plugin(&self) -> AuthPlugin {
        let state = lock(&self.shared.state);
        match state.given.iter().find(|(user, _)| user == "root") {
            Some((_, root)) if state.directory.version == 0 => root.plugin,
            _ => AuthPlugin::CachingSha2Password,
        }
    }

    pub fn current(&self) -> Arc<Directory> {
        lock(&self.shared.state).directory.clone()
    }

    /// Another number than before: [`Accounts::current`] is another directory.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Takes the accounts of the cluster, as of `version` of their table.
    pub fn install(&self, version: u64, kept: Vec<Account>) {
        let mut accounts = kept;
        let has_secrets = accounts.iter().flat_map(Account::secrets).any(|secret| matches!(secret, Secret::Sha2(_)));
        {
            let mut state = lock(&self.shared.state);
            if version < state.directory.version {
                return; // Another thread was faster.
            }
            add_given(&state.given, &mut accounts);
            let texts: BTreeSet<String> = accounts.iter().flat_map(Account::secrets).filter_map(text_of).collect();
            lock(&self.shared.remembered).retain(|text, _| texts.contains(text));
            state.directory = Arc::new(Directory::new(version, accounts));
            self.shared.usages.follow(&state.directory);
            self.shared.generation.fetch_add(1, Ordering::AcqRel);
        }
        if has_secrets && self.shared.rsa.get().is_none() {
            // It takes a while, and nobody needs it before some client without TLS logs in.
            let accounts = self.clone();
            let _ = std::thread::Builder::new().name("apus-sql-rsa".into()).spawn(move || _ = accounts.rsa());
        }
    }

    /// The accounts of the cluster together with those that the server was given.
    pub(crate) fn with_given(&self, kept: BTreeMap<AccountName, Account>) -> BTreeMap<AccountName, Account> {
        let mut accounts = kept.into_values().collect();
        add_given(&lock(&self.shared.state).given, &mut accounts);
        accounts.into_iter().map(|account| (account.name.clone(), account)).collect()
    }

    /// Whether the server was given this account, which nobody can drop.
    pub(crate) fn is_given(&self, name: &AccountName) -> bool {
        name.host == "%" && lock(&self.shared.state).given.iter().any(|(user, _)| *user == name.user)
    }

    /// How long ago the last successful look began.
    pub(crate) fn age(&self) -> Duration {
        match self.shared.checked.load(Ordering::Acquire) {
            0 => Duration::MAX,
            checked => self.shared.began.elapsed().saturating_sub(Duration::from_micros(checked - 1)),
        }
    }

    /// The accounts were looked at; what was seen is not older than `begin`.
    pub fn note_checked(&self, begin: Instant) {
        let micros = begin.saturating_duration_since(self.shared.began).as_micros() as u64 + 1;
        self.shared.checked.fetch_max(micros, Ordering::AcqRel);
    }

    /// Nobody who has changed accounts has been told so without our knowing of the change.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        let checked = self.shared.checked.load(Ordering::Acquire);
        checked > 0 && self.shared.began.elapsed() < Duration::from_micros(checked - 1) + FRESH
    }

    /// Takes the read locks of the cluster, which stand beside the version of its accounts, unless it knows newer ones.
    pub(crate) fn note_read_locks(&self, number: u64, locks: &[u8]) {
        let mut known = lock(&self.shared.read_locks);
        if number > known.0 {
            self.know_read_locks(&mut known, number, locks);
        }
    }

    /// As above, of who keeps others from changing them.
    pub(crate) fn set_read_locks(&self, number: u64, locks: &[u8]) {
        self.know_read_locks(&mut lock(&self.shared.read_locks), number, locks);
    }

    fn know_read_locks(&self, known: &mut (u64, Arc<[u8]>), number: u64, locks: &[u8]) {
        *known = (number, locks.into());
        self.shared.has_read_locks.store(!locks.is_empty(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_read_locks(&self) -> bool {
        self.shared.has_read_locks.load(Ordering::Acquire)
    }

    pub(crate) fn read_locks(&self) -> Arc<[u8]> {
        lock(&self.shared.read_locks).1.clone()
    }

    pub(crate) fn remember(&self, text: &str, password: &[u8]) {
        let mut remembered = lock(&self.shared.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(text.to_owned(), double_sha256(password));
    }

    pub(crate) fn remembered(&self, text: &str) -> Option<[u8; 32]> {
        lock(&self.shared.remembered).get(text).copied()
    }

    /// What an account has used that somebody logs in by. One that is gone by now is counted alone.
    pub(crate) fn usage_of(&self, account: &Account, now: Instant) -> Arc<Usage> {
        // While it is locked no other accounts can come, whose limits would not be followed.
        let state = lock(&self.shared.state);
        match state.directory.find(&account.name) {
            Some(newest) => self.shared.usages.of(newest, now),
            None => Arc::new(Usage::new(account, now)),
        }
    }

    pub(crate) fn usages(&self) -> &Usages {
        &self.shared.usages
    }

    pub(crate) fn rsa(&self) -> Option<&RsaKey> {
        self.shared.rsa.get_or_init(RsaKey::generate).as_ref()
    }

    /// The error for a wrong user or a wrong password, which are not told apart.
    pub(crate) fn denied(user: &str, host: &str, with_password: bool) -> SqlError {
        let using = if with_password { "YES" } else { "NO" };
        SqlError::new(1045, b"28000", format!("Access denied for user '{user}'@'{host}' (using password: {using})"))
    }

    /// The account needs a certificate, and this SQL node asks no client for one.
    pub(crate) fn nobody_is_asked(user: &str, host: &str) -> SqlError {
        let text = format!(
            "Access denied for user '{user}'@'{host}': the account requires a certificate, and this SQL node takes none (it was started without --tls-ca)"
        );
        SqlError::new(1045, b"28000", text)
    }
}

/// Puts what the server was given into the accounts of the cluster.
fn add_given(given: &[(String, Auth)], accounts: &mut Vec<Account>) {
    for (user, auth) in given {
        let name = AccountName::new(user, "%");
        match accounts.iter_mut().find(|account| account.name == name) {
            Some(Account { auth: kept, .. }) if matches!(kept.secret, Secret::Configured(_)) => kept.clone_from(auth),
            Some(_) => {}
            None => accounts.push(given_account(name, auth)),
        }
    }
}

fn text_of(secret: &Secret) -> Option<String> {
    if let Secret::Sha2(text) = secret { Some(text.clone()) } else { None }
}

/// An account that the server was given.
fn given_account(name: AccountName, auth: &Auth) -> Account {
    Account { global: Privileges::GLOBAL.union(Privileges::GRANT_OPTION), ..Account::new(name, auth.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_s_root_counts_and_keeps_the_given_password() {
        let mut accounts = Accounts::new();
        accounts.add("root", "given", AuthPlugin::CachingSha2Password);
        let root = |a: &Accounts| a.current().matching("root", "10.0.0.1").unwrap().clone();
        assert!(root(&accounts).global.contains(Privileges::GLOBAL));
        let before = accounts.generation();
        let nobody = Auth { plugin: AuthPlugin::NativePassword, secret: Secret::Configured(PasswordDigest::of("\0")) };
        let kept = Account { max_user_connections: 7, ..Account::new(AccountName::new("root", "%"), nobody) };
        accounts.install(1, vec![kept.clone()]);
        assert_ne!(accounts.generation(), before);
        let now = root(&accounts);
        assert_eq!((now.global, now.max_user_connections), (Privileges::NONE, 7));
        assert!(matches!(&now.auth.secret, Secret::Configured(p) if p.is(b"given")));
        let other = Auth { plugin: AuthPlugin::NativePassword, secret: Secret::Empty };
        accounts.install(2, vec![Account { auth: other.clone(), ..kept }]);
        assert_eq!(root(&accounts).auth, other);
        accounts.install(1, Vec::new());
        assert_eq!(root(&accounts).auth, other, "what is older is not taken");
    }

    #[test]
    fn what_is_used_is_held_to_the_newest_limits() {
        let accounts = Accounts::new();
        let auth = Auth { plugin: AuthPlugin::NativePassword, secret: Secret::Empty };
        let mut u = Account::new(AccountName::new("u", "%"), auth);
        u.policy.limits.questions = 5;
        let (old, now) = (u.clone(), Instant::now());
        (u.policy.limits.questions, u.policy.resets) = (1, 1);
        accounts.install(1, vec![u.clone()]);
        let usage = accounts.usage_of(&old, now);
        assert!(usage.begin_statement(false, now).is_ok() && usage.begin_statement(false, now).is_err());
        (u.policy.limits.questions, u.policy.resets) = (2, 2);
        accounts.install(2, vec![u.clone()]);
        assert!([0, 1].iter().all(|_| usage.begin_statement(false, now).is_ok()));
        accounts.install(3, Vec::new());
        let alone = accounts.usage_of(&u, now);
        assert!(!Arc::ptr_eq(&alone, &accounts.usage_of(&u, now)), "nothing is kept of who is gone");
    }

    #[test]
    fn accounts_grow_stale() {
        let accounts = Accounts::root_without_password();
        assert!(!accounts.is_fresh(), "nobody has looked");
        let now = Instant::now();
        accounts.note_checked(now);
        assert!(accounts.is_fresh());
        let old =
            Accounts { shared: Arc::new(Shared { began: now.checked_sub(FRESH * 2).unwrap(), ..Shared::default() }) };
        old.note_checked(now.checked_sub(FRESH).unwrap());
        assert!(!old.is_fresh());
    }
}

//! Who may log in: an in-memory table given to the server when it starts.

use std::collections::BTreeMap;

use crate::wire::SqlError;
use crate::wire::auth::{AuthPlugin, PasswordDigest};

/// One account.
#[derive(Debug, Clone)]
pub struct Account {
    pub password: PasswordDigest,
    /// The plugin its clients must use; any other answer leads to an authentication switch.
    pub plugin: AuthPlugin,
}

/// Accounts by user name. Hosts are not told apart.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    by_user: BTreeMap<String, Account>,
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

    /// Adds or replaces an account; an empty password means none is needed.
    pub fn add(&mut self, user: &str, password: &str, plugin: AuthPlugin) {
        self.by_user.insert(user.to_owned(), Account { password: PasswordDigest::of(password), plugin });
    }

    /// The plugin that the greeting names: root's. Without a password that is the one that every client library has built in: libmariadb loads
    /// caching_sha2_password from a file and, when many threads connect at once, sometimes fails to. With one it is the account's own, as MySQL's
    /// servers do: PyMySQL answers a *switch* to caching_sha2_password wrongly (it takes the zero behind the scramble for a part of it).
    pub fn greeting_plugin(&self) -> AuthPlugin {
        self.by_user.get("root").map_or(AuthPlugin::CachingSha2Password, |root| root.plugin)
    }

    pub fn find(&self, user: &str) -> Option<&Account> {
        self.by_user.get(user)
    }

    /// The error for a wrong user or a wrong password, which are not told apart.
    pub(crate) fn denied(user: &str, host: &str, with_password: bool) -> SqlError {
        let using = if with_password { "YES" } else { "NO" };
        SqlError::new(1045, b"28000", format!("Access denied for user '{user}'@'{host}' (using password: {using})"))
    }
}

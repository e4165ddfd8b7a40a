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

    pub fn find(&self, user: &str) -> Option<&Account> {
        self.by_user.get(user)
    }

    /// The error for a wrong user or a wrong password, which are not told apart.
    pub(crate) fn denied(user: &str, host: &str, with_password: bool) -> SqlError {
        let using = if with_password { "YES" } else { "NO" };
        SqlError::new(1045, b"28000", format!("Access denied for user '{user}'@'{host}' (using password: {using})"))
    }
}

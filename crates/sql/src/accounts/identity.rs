//! Who a session acts for: its account, with the rights of the roles that are active.

use std::{cell::Cell, sync::Arc};

use super::{Account, AccountName, Active, Directory};

/// Who a session acts for.
#[derive(Clone, Debug)]
pub struct Identity {
    pub account: Arc<Account>,
    /// The account with what its active roles have.
    pub rights: Arc<Account>,
    pub active: Active,
    /// Another number is another `rights`; the same one may be shared by sessions.
    pub(crate) number: u64,
    /// All accounts as of the same moment.
    pub directory: Arc<Directory>,
    pub(crate) generation: u64,
    /// The account was looked up when the accounts were fresh.
    pub(crate) is_sure: bool,
}

impl Identity {
    pub fn new(account: Arc<Account>, directory: Arc<Directory>, generation: u64, is_sure: bool) -> Identity {
        let rights = account.clone();
        Identity { account, rights, active: Active::Default, number: 0, directory, generation, is_sure }
    }
    /// The roles that the session acts with.
    pub fn roles(&self) -> Vec<AccountName> {
        self.account.active(&self.active)
    }
    /// As at the beginning of a session.
    pub fn forget_roles(&mut self) {
        (self.active, self.generation) = (Active::Default, 0);
    }
    /// Takes the rights of the roles that are active.
    pub(crate) fn act(&mut self, next: &Cell<u64>) {
        let roles = self.roles();
        self.rights = self.directory.rights(&self.account, &roles);
        self.number = if roles.is_empty() {
            // The directory keeps it where it is.
            Arc::as_ptr(&self.account) as u64
        } else {
            next.set(next.get() + 2);
            next.get() | 1
        };
    }
    pub fn has_account(&self, user: &str, host: &str) -> bool {
        self.account_of(user, host).is_some()
    }
    /// The definer of a view.
    pub fn account_of(&self, user: &str, host: &str) -> Option<&Arc<Account>> {
        account_of(&self.directory, user, host)
    }
}

/// `root` is one for every host, as the server is given it.
pub fn account_of<'d>(directory: &'d Directory, user: &str, host: &str) -> Option<&'d Arc<Account>> {
    let of = |host: &str| directory.find(&AccountName::new(user, host));
    of(host).or_else(|| of("%").filter(|_| user == "root"))
}

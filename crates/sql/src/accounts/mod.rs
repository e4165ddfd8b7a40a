//! Accounts: who may log in, from where, how he proves it, and what he may do.
//!
//! An [`Account`] is a value; all accounts of one moment are a [`Directory`], which never changes. The engine keeps the accounts in a table of the cluster and makes a new directory
//! whenever that has another version ([`crate::session::account_store`]); the front end and all sessions of the process share the newest ([`crate::server::Accounts`]).
//!
//! [`password`] has the hashes, [`host`] says which account a login means, [`privilege`] names privileges, [`columns`] are those on columns, [`policy`] is what accounts are held to
//! beside them.

pub mod columns;
pub mod host;
pub(crate) mod identity;
pub mod kept;
pub mod password;
pub mod policy;
pub mod privilege;
pub mod requires;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::wire::auth::{AuthPlugin, PasswordDigest};
pub use columns::Columns;
pub use policy::Policy;
pub use privilege::Privileges;
pub use requires::Requires;

/// Longest names in characters, as in MySQL.
pub const USER_CHARS_MAX: usize = 32;
pub const HOST_CHARS_MAX: usize = 255;
/// Most accounts; each SQL node holds all of them in memory.
pub const ACCOUNTS_MAX: usize = 10_000;
/// Most bytes of one account as it is kept: some thousand grants.
pub const ACCOUNT_BYTES_MAX: usize = 256 << 10;

/// What a stored routine is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum RoutineKind {
    #[default]
    Procedure,
    Function,
}

impl RoutineKind {
    pub const ALL: [RoutineKind; 2] = [RoutineKind::Procedure, RoutineKind::Function];
    pub fn name(self) -> &'static str {
        match self {
            RoutineKind::Procedure => "PROCEDURE",
            RoutineKind::Function => "FUNCTION",
        }
    }
}

/// `user@host`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AccountName {
    pub user: String,
    /// A pattern; see [`host`].
    pub host: String,
}

impl AccountName {
    pub fn new(user: &str, host: &str) -> AccountName {
        AccountName { user: user.to_owned(), host: host.to_ascii_lowercase() }
    }
    /// As MySQL's errors name it.
    pub fn quoted(&self) -> String {
        format!("'{}'@'{}'", self.user, self.host)
    }
    /// As SHOW GRANTS names it.
    pub fn in_backticks(&self) -> String {
        let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
        format!("{}@{}", quote(&self.user), quote(&self.host))
    }
}

impl std::fmt::Display for AccountName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.user, self.host)
    }
}

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Secret {
    /// No password is needed.
    Empty,
    /// `SHA1(SHA1(p))`.
    Native([u8; 20]),
    /// MySQL's `$A$005$` form; see [`password`].
    Sha2(String),
    /// What this SQL node was given when it started. Other nodes may have been given something else.
    Configured(PasswordDigest),
}

impl Secret {
    /// As IDENTIFIED ... AS takes it again. A password that the server was given is nobody's to see.
    pub fn text(&self) -> String {
        match self {
            Secret::Empty | Secret::Configured(_) => String::new(),
            Secret::Native(digest) => password::native_text(digest),
            Secret::Sha2(text) => text.clone(),
        }
    }
}

/// How the account is proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Auth {
    pub plugin: AuthPlugin,
    pub secret: Secret,
}

/// Who is behind an open connection, and what he may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub name: AccountName,
    pub auth: Auth,
    /// RETAIN CURRENT PASSWORD has kept it: as good as the other one.
    pub second: Option<Secret>,
    pub is_locked: bool,
    pub requires: Requires,
    /// 0: any number.
    pub max_user_connections: u32,
    pub policy: Policy,
    pub global: Privileges,
    /// By patterns of database names.
    pub databases: BTreeMap<String, Privileges>,
    pub tables: BTreeMap<(String, String), Privileges>,
    /// Of tables with a privilege on some column.
    pub columns: BTreeMap<(String, String), Columns>,
    /// Routines by kind, database and lower case name.
    pub routines: BTreeMap<(RoutineKind, String, String), Privileges>,
    /// The roles that it was granted; true: WITH ADMIN OPTION.
    pub roles: BTreeMap<AccountName, bool>,
    /// Those of them that are active in a new session.
    pub default_roles: BTreeSet<AccountName>,
}

/// Which of its roles a session acts with.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Active {
    #[default]
    Default,
    None,
    All,
    AllBut(Vec<AccountName>),
    These(Vec<AccountName>),
}

impl Account {
    /// Without any privilege.
    pub fn new(name: AccountName, auth: Auth) -> Account {
        Account {
            name,
            auth,
            second: None,
            is_locked: false,
            requires: Requires::default(),
            max_user_connections: 0,
            policy: Policy::default(),
            global: Privileges::NONE,
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            columns: BTreeMap::new(),
            routines: BTreeMap::new(),
            roles: BTreeMap::new(),
            default_roles: BTreeSet::new(),
        }
    }

    /// All by which it can be proved.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        std::iter::once(&self.auth.secret).chain(&self.second)
    }

    /// The roles that a session of it acts with, in the order of their names.
    pub fn active(&self, active: &Active) -> Vec<AccountName> {
        let has = |role: &AccountName| match active {
            Active::Default => self.default_roles.contains(role),
            Active::None => false,
            Active::All => true,
            Active::AllBut(others) => !others.contains(role),
            Active::These(these) => these.contains(role),
        };
        self.roles.keys().filter(|role| has(role)).cloned().collect()
    }

    /// It is granted all that another is.
    fn take_rights_of(&mut self, other: &Account) {
        self.global = self.global.union(other.global);
        for (name, privileges) in &other.databases {
            let own = self.databases.entry(name.clone()).or_default();
            *own = own.union(*privileges);
        }
        for (name, privileges) in &other.tables {
            let own = self.tables.entry(name.clone()).or_default();
            *own = own.union(*privileges);
        }
        for (table, columns) in &other.columns {
            let own = self.columns.entry(table.clone()).or_default();
            columns.iter().for_each(|(name, privileges)| own.give(name, privileges));
        }
        for (name, privileges) in &other.routines {
            let own = self.routines.entry(name.clone()).or_default();
            *own = own.union(*privileges);
        }
    }

    /// What it may do with a whole database. Of several patterns the one that says most of the name counts alone, as in MySQL.
    pub fn on_database(&self, database: &str) -> Privileges {
        self.global.union(self.of_database(database))
    }

    /// What it may give on of a pattern of database names: with wildcards what it has for just this pattern, so that nobody gives more databases than he has.
    pub fn on_pattern(&self, pattern: &str) -> Privileges {
        if host::specificity(pattern) < usize::MAX {
            let same = self.databases.get(pattern).copied().unwrap_or_default();
            return self.global.union(same);
        }
        let same = self.databases.get(pattern).copied();
        let name = pattern.replace("\\_", "_").replace("\\%", "%");
        same.map_or_else(|| self.on_database(&name), |same| self.global.union(same))
    }

    fn of_database(&self, database: &str) -> Privileges {
        if self.databases.is_empty() {
            return Privileges::NONE;
        }
        if let Some(exact) = self.databases.get(database) {
            return *exact;
        }
        let matching = self.databases.iter().filter(|(pattern, _)| host::like(pattern, database));
        let best = matching.max_by_key(|(pattern, _)| host::specificity(pattern));
        best.map_or(Privileges::NONE, |(_, privileges)| *privileges)
    }

    /// What it may do with one table.
    pub fn on_table(&self, database: &str, table: &str) -> Privileges {
        let own = self.own_on_table(database, table);
        self.on_database(database).union(own)
    }

    /// What it may do with one routine.
    pub fn on_routine(&self, kind: RoutineKind, database: &str, name: &str) -> Privileges {
        let own = self.routines.get(&(kind, database.to_owned(), name.to_lowercase())).copied();
        self.on_database(database).union(own.unwrap_or_default())
    }

    fn own_on_table(&self, database: &str, table: &str) -> Privileges {
        if self.tables.is_empty() {
            return Privileges::NONE;
        }
        // The key is a pair of owned strings; grants on single tables are few.
        self.tables.get(&(database.to_owned(), table.to_owned())).copied().unwrap_or(Privileges::NONE)
    }

    /// The columns of a table with privileges of their own.
    pub fn columns_of(&self, database: &str, table: &str) -> Option<&Columns> {
        if self.columns.is_empty() {
            return None;
        }
        self.columns.get(&(database.to_owned(), table.to_owned()))
    }

    /// What it may do with some column of a table.
    pub fn on_some_column(&self, database: &str, table: &str) -> Privileges {
        let own = self.columns_of(database, table).map_or(Privileges::NONE, Columns::any);
        self.on_table(database, table).union(own)
    }

    /// What it may do with one column.
    pub fn on_column(&self, database: &str, table: &str, column: &str) -> Privileges {
        let own = self.columns_of(database, table).map_or(Privileges::NONE, |columns| columns.of(column));
        self.on_table(database, table).union(own)
    }

    /// The database exists for it.
    pub fn sees_database(&self, database: &str) -> bool {
        let some = Privileges::ON_DATABASE.union(Privileges::GRANT_OPTION);
        self.on_database(database).intersects(some)
            || self.global.contains(Privileges::SHOW_DATABASES)
            || self.tables.iter().any(|((d, _), p)| d == database && *p != Privileges::NONE)
            || self.columns.keys().any(|(d, _)| d == database)
            || self.routines.iter().any(|((_, d, _), p)| d == database && *p != Privileges::NONE)
    }

    /// The table exists for it.
    pub fn sees_table(&self, database: &str, table: &str) -> bool {
        self.on_some_column(database, table).intersects(Privileges::ON_TABLE.union(Privileges::GRANT_OPTION))
    }
}

/// All accounts of one moment, in the order in which a login looks at them.
#[derive(Default, Debug)]
pub struct Directory {
    /// Of the table of accounts; 0: it has never been written.
    pub version: u64,
    list: Vec<Arc<Account>>,
}

impl Directory {
    pub fn new(version: u64, accounts: Vec<Account>) -> Directory {
        let mut list: Vec<Arc<Account>> = accounts.into_iter().map(Arc::new).collect();
        list.sort_by(|a, b| host::order(&a.name, &b.name));
        Directory { version, list }
    }
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.list.iter()
    }
    pub fn find(&self, name: &AccountName) -> Option<&Arc<Account>> {
        self.list.iter().find(|account| account.name == *name)
    }
    /// What an account may do that acts with these roles, and with theirs.
    pub fn rights(&self, account: &Arc<Account>, roles: &[AccountName]) -> Arc<Account> {
        if roles.is_empty() {
            return account.clone();
        }
        let mut all = (**account).clone();
        for role in self.roles_of(roles) {
            all.take_rights_of(role);
        }
        Arc::new(all)
    }
    /// Roles, and those that they were granted.
    fn roles_of(&self, roles: &[AccountName]) -> Vec<&Account> {
        let mut found: Vec<&Account> = roles.iter().filter_map(|name| self.find(name)).map(|a| &**a).collect();
        let mut at = 0;
        while let Some(role) = found.get(at) {
            let more = role.roles.keys().filter_map(|name| self.find(name)).map(|a| &**a);
            let more: Vec<&Account> = more.filter(|a| !found.iter().any(|f| f.name == a.name)).collect();
            found.extend(more);
            at += 1;
        }
        found
    }
    /// The account that a login of `user` from `address` means.
    pub fn matching(&self, user: &str, address: &str) -> Option<&Arc<Account>> {
        self.list.iter().find(|account| account.name.user == user && host::matches(&account.name.host, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(user: &str, host: &str) -> Account {
        let auth = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        Account::new(AccountName::new(user, host), auth)
    }

    #[test]
    fn the_most_specific_host_is_meant() {
        let hosts = ["%", "10.1.%", "10.1.2.3", "localhost", "10.1.2.0/255.255.255.0", "10.%"];
        let directory = Directory::new(1, hosts.iter().map(|h| account("u", h)).collect());
        let meant = |address: &str| directory.matching("u", address).map(|a| a.name.host.clone());
        assert_eq!(meant("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(meant("10.1.2.4").as_deref(), Some("10.1.2.0/255.255.255.0"));
        assert_eq!(meant("10.1.9.9").as_deref(), Some("10.1.%"));
        assert_eq!(meant("10.2.0.1").as_deref(), Some("10.%"));
        assert_eq!(meant("127.0.0.1").as_deref(), Some("localhost"));
        assert_eq!(meant("192.168.0.1").as_deref(), Some("%"));
        assert_eq!(directory.matching("U", "10.1.2.3"), None, "user names are told apart by case");
    }

    #[test]
    fn roles_give_what_they_have() {
        let name = |user: &str| AccountName::new(user, "%");
        let mut user = account("u", "%");
        user.roles = [(name("a"), false), (name("b"), true)].into();
        user.default_roles = [name("a")].into();
        let mut a = account("a", "%");
        a.roles = [(name("c"), false)].into();
        a.databases.insert("d".into(), Privileges::INSERT);
        let mut b = account("b", "%");
        b.global = Privileges::PROCESS;
        let mut c = account("c", "%");
        c.databases.insert("d".into(), Privileges::SELECT);
        c.roles = [(name("a"), false)].into(); // a circle ends
        let directory = Directory::new(1, vec![user, a, b, c]);
        let user = directory.find(&name("u")).unwrap();
        let rights = |active: Active| {
            let acting = directory.rights(user, &user.active(&active));
            (acting.on_database("d"), acting.global)
        };
        let both = Privileges::SELECT.union(Privileges::INSERT);
        assert_eq!(rights(Active::Default), (both, Privileges::NONE));
        assert_eq!(rights(Active::None), (Privileges::NONE, Privileges::NONE));
        assert_eq!(rights(Active::All), (both.union(Privileges::PROCESS), Privileges::PROCESS));
        assert_eq!(rights(Active::AllBut(vec![name("b")])), (both, Privileges::NONE));
        assert_eq!(rights(Active::These(vec![name("b"), name("c")])), (Privileges::PROCESS, Privileges::PROCESS));
    }

    #[test]
    fn columns_have_privileges_of_their_own() {
        let mut a = account("u", "%");
        a.tables.insert(("d".into(), "t".into()), Privileges::DELETE);
        let columns = a.columns.entry(("d".into(), "t".into())).or_default();
        columns.give("B", Privileges::SELECT);
        columns.give("b", Privileges::UPDATE);
        columns.give("a", Privileges::SELECT);
        let both = Privileges::SELECT.union(Privileges::UPDATE);
        assert_eq!(columns.iter().collect::<Vec<_>>(), [("B", both), ("a", Privileges::SELECT)]);
        assert_eq!(a.on_column("d", "t", "b"), both.union(Privileges::DELETE));
        assert_eq!(a.on_column("d", "t", "c"), Privileges::DELETE);
        assert_eq!(a.on_table("d", "t"), Privileges::DELETE);
        assert_eq!(a.on_some_column("d", "t"), both.union(Privileges::DELETE));
        a.tables.clear();
        assert!(a.sees_database("d") && a.sees_table("d", "t") && !a.sees_table("d", "u"));
        let columns = a.columns.get_mut(&("d".into(), "t".into())).unwrap();
        columns.take("b", Privileges::SELECT);
        assert_eq!(columns.of("b"), Privileges::UPDATE);
        columns.take_from_all(both);
        assert!(columns.is_empty());
    }

    #[test]
    fn one_pattern_of_databases_counts() {
        let mut a = account("u", "%");
        a.databases.insert("shop%".into(), Privileges::SELECT.union(Privileges::INSERT));
        a.databases.insert("shop\\_1".into(), Privileges::SELECT);
        a.databases.insert("shop_%".into(), Privileges::UPDATE);
        assert_eq!(a.on_database("shop_1"), Privileges::SELECT);
        assert_eq!(a.on_database("shop22"), Privileges::UPDATE);
        assert_eq!(a.on_database("shop"), Privileges::SELECT.union(Privileges::INSERT));
        assert_eq!(a.on_database("other"), Privileges::NONE);
        let given = |a: &Account, pattern: &str| a.on_pattern(pattern);
        assert_eq!(given(&a, "shop\\_1"), Privileges::SELECT);
        assert_eq!(given(&a, "shop_1"), Privileges::NONE, "it would be more databases than one");
        assert_eq!(given(&a, "shop_%"), Privileges::UPDATE);
        assert_eq!(given(&a, "shopper"), Privileges::UPDATE);
        assert_eq!(given(&a, "%"), Privileges::NONE);
        a.global = Privileges::DELETE;
        a.tables.insert(("d".into(), "t".into()), Privileges::INSERT);
        assert_eq!(a.on_table("d", "t"), Privileges::DELETE.union(Privileges::INSERT));
        assert!(a.sees_database("d") && a.sees_table("d", "other"));
        a.global = Privileges::NONE;
        assert!(a.sees_database("d") && !a.sees_table("d", "other") && !a.sees_database("e"));
    }
}

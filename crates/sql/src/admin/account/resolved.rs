//! A statement about accounts with its names looked up, and what it does to the directory.

use super::{At, Notes, apply, auth_of, failed, no_grant, no_table_grant, second};
use crate::{
    accounts::{Account, AccountName, Active, Auth, Policy, Privileges, Secret, identity::Identity},
    errors::{self, Result},
    parse::{
        account::{
            Clause, Identified, Named,
            grants::{Level, What},
        },
        account_options::Options,
    },
    program::routine::{self, Key, failures},
    session::{Session, account_store::Book},
    wire::{SqlError, auth::AuthPlugin},
};

pub(super) fn is_there(name: &AccountName, is: bool) -> (&'static str, u16, String) {
    match is {
        true => ("Note", 3163, format!("Authorization ID {} already exists.", name.quoted())),
        false => ("Note", 3162, format!("Authorization ID {} does not exist.", name.quoted())),
    }
}

/// The account is gone, as a role of others, too.
pub(super) fn forget(book: &mut Book, name: &AccountName) {
    book.remove(name);
    for other in book.values_mut() {
        other.roles.remove(name);
        other.default_roles.remove(name);
    }
}

fn check_known(book: &Book, name: &AccountName) -> Result<()> {
    if book.contains_key(name) {
        return Ok(());
    }
    let text = format!("Unknown authorization ID {}", name.in_backticks());
    Err(SqlError::new(3523, b"HY000", text))
}

/// Whether an account has a role, perhaps by another one.
fn has_role(book: &Book, name: &AccountName, role: &AccountName) -> bool {
    let mut seen = vec![name];
    let mut at = 0;
    while let Some(one) = seen.get(at).and_then(|name| book.get(*name)) {
        for next in one.roles.keys() {
            if next == role {
                return true;
            }
            if book.contains_key(next) && !seen.contains(&next) {
                seen.push(next);
            }
        }
        at += 1;
    }
    false
}

fn circle(role: &AccountName, user: &AccountName) -> SqlError {
    let (role, user) = (role.in_backticks(), user.in_backticks());
    let text = format!(
        "User account {user} is directly or indirectly granted to the role {role}. The GRANT would create a loop"
    );
    SqlError::new(4027, b"HY000", text)
}

pub(super) fn set_default_roles(account: &mut Account, active: &Active) -> Result<()> {
    if let Active::These(roles) = active
        && let Some(role) = roles.iter().find(|role| !account.roles.contains_key(role))
    {
        return Err(errors::role_not_granted(&role.in_backticks(), &account.name.in_backticks()));
    }
    account.default_roles = account.active(active).into_iter().collect();
    Ok(())
}

/// A clause with all names and passwords as they are kept.
pub(super) enum Resolved {
    Create { users: Vec<(AccountName, Auth)>, if_not_exists: bool, options: Options, at: At },
    Alter { users: Vec<(AccountName, Option<Identified>)>, if_exists: bool, options: Options, own: bool, at: At },
    Drop { users: Vec<AccountName>, if_exists: bool },
    Rename(Vec<(AccountName, AccountName)>),
    Grant { what: What, level: Place, users: Vec<AccountName> },
    Revoke { what: What, level: Place, users: Vec<AccountName>, if_exists: bool, ignores_unknown: bool },
    RevokeAll(Vec<AccountName>),
    CreateRole { roles: Vec<AccountName>, if_not_exists: bool, at: At },
    DropRole { roles: Vec<AccountName>, if_exists: bool },
    GrantRoles { roles: Vec<AccountName>, users: Vec<AccountName>, with_admin: bool },
    RevokeRoles { roles: Vec<AccountName>, users: Vec<AccountName>, if_exists: bool, ignores_unknown: bool },
    DefaultRole { active: Active, users: Vec<AccountName> },
}

pub(super) enum Place {
    Global,
    Database(String),
    Table(String, String),
    Routine(Key),
}

impl Resolved {
    pub(super) fn of(session: &Session, me: &Identity, clause: Clause, at: At) -> Result<Resolved> {
        let name = |name: Named| name.unwrap_or_else(|| me.account.name.clone());
        let all = |names: Vec<Named>| names.into_iter().map(name).collect::<Vec<_>>();
        let place = |level: Level| -> Result<Place> {
            let own = || session.env.database.clone().ok_or_else(errors::no_database);
            Ok(match level {
                Level::Global => Place::Global,
                Level::Database(database) => Place::Database(database.map_or_else(own, Ok)?),
                Level::Table((database, table)) => Place::Table(database.map_or_else(own, Ok)?, table),
                Level::Routine(kind, (database, name)) => {
                    Place::Routine(routine::key(kind, &database.map_or_else(own, Ok)?, &name))
                }
            })
        };
        Ok(match clause {
            Clause::CreateUser { users, if_not_exists, options } => {
                let none = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
                let of = |i: Option<Identified>| i.map_or_else(|| Ok(none.clone()), |i| auth_of(&i, None));
                let users = users.into_iter().map(|(n, i)| Ok((name(n), of(i)?))).collect::<Result<_>>()?;
                Resolved::Create { users, if_not_exists, options, at }
            }
            Clause::AlterUser { users, if_exists, options } => {
                let users = users.into_iter().map(|(n, i)| (name(n), i)).collect();
                Resolved::Alter { users, if_exists, options, own: false, at }
            }
            Clause::SetPassword { user, password } => {
                let users = vec![(name(user), Some(Identified::By(None, password)))];
                Resolved::Alter { users, if_exists: false, options: Options::default(), own: true, at }
            }
            Clause::DropUser { users, if_exists } => Resolved::Drop { users: all(users), if_exists },
            Clause::RenameUser(list) => Resolved::Rename(list.into_iter().map(|(a, b)| (name(a), name(b))).collect()),
            Clause::Grant { what, level, users } => Resolved::Grant { what, level: place(level)?, users: all(users) },
            Clause::Revoke { what, level, users, if_exists, ignores_unknown } => {
                let (level, users) = (place(level)?, all(users));
                Resolved::Revoke { what, level, users, if_exists, ignores_unknown }
            }
            Clause::RevokeAll(users) => Resolved::RevokeAll(all(users)),
            Clause::CreateRole { roles, if_not_exists } => Resolved::CreateRole { roles, if_not_exists, at },
            Clause::DropRole { roles, if_exists } => Resolved::DropRole { roles, if_exists },
            Clause::GrantRoles { roles, users, with_admin } => {
                Resolved::GrantRoles { roles, users: all(users), with_admin }
            }
            Clause::RevokeRoles { roles, users, if_exists, ignores_unknown } => {
                Resolved::RevokeRoles { roles, users: all(users), if_exists, ignores_unknown }
            }
            Clause::DefaultRole { active, users } => Resolved::DefaultRole { active, users: all(users) },
            Clause::SetRole(_) => return Err(errors::internal("SET ROLE changes no account")),
        })
    }

    /// Changes the accounts, all or none; `is_given` tells which the server has been given.
    pub(super) fn carry_out(&self, book: &mut Book, is_given: &dyn Fn(&AccountName) -> bool) -> Result<Notes> {
        let mut notes = Notes::new();
        match self {
            Resolved::Create { users, if_not_exists, options, at } => {
                let taken: Vec<AccountName> =
                    users.iter().map(|(name, _)| name).filter(|name| book.contains_key(name)).cloned().collect();
                if !taken.is_empty() && !if_not_exists {
                    return Err(failed("CREATE USER", &taken));
                }
                notes.extend(taken.iter().map(|name| is_there(name, true)));
                for (name, auth) in users.iter().filter(|(name, _)| !taken.contains(name)) {
                    let mut account = Account::new(name.clone(), auth.clone());
                    apply(options, &mut account)?;
                    account.policy.note_password(&auth.secret, at.now, at.reuse);
                    if book.insert(name.clone(), account).is_some() {
                        return Err(failed("CREATE USER", std::slice::from_ref(name)));
                    }
                }
            }
            Resolved::Alter { users, if_exists, options, own, at } => {
                let unknown = |(name, _): &&(AccountName, _)| !book.contains_key(name);
                let unknown: Vec<AccountName> = users.iter().filter(unknown).map(|(name, _)| name.clone()).collect();
                if !unknown.is_empty() && *own {
                    return Err(SqlError::new(1133, b"42000", "Can't find any matching row in the user table"));
                }
                if !unknown.is_empty() && !if_exists {
                    return Err(failed("ALTER USER", &unknown));
                }
                notes.extend(unknown.iter().map(|name| is_there(name, false)));
                for (name, identified) in users {
                    let Some(account) = book.get_mut(name) else { continue };
                    match identified {
                        Some(Identified::Discard) => account.second = None,
                        Some(identified) => second::change(account, identified)?,
                        None => {}
                    }
                    apply(options, account)?;
                    if let Some(Identified::By(_, spoken)) = identified
                        && account.policy.forbids(&spoken.password, at.now, at.reuse)
                    {
                        let text = format!(
                            "Cannot use these credentials for '{name}' because they contradict the password history policy"
                        );
                        return Err(SqlError::new(3638, b"HY000", text));
                    }
                    if identified.as_ref().is_some_and(|identified| *identified != Identified::Discard) {
                        account.policy.note_password(&account.auth.secret, at.now, at.reuse);
                    }
                }
            }
            Resolved::Drop { users, if_exists } => {
                if users.iter().any(is_given) {
                    return Err(errors::not_supported("DROP USER of the account that SQL nodes are started with"));
                }
                let unknown: Vec<AccountName> = users.iter().filter(|n| !book.contains_key(n)).cloned().collect();
                if !unknown.is_empty() && !if_exists {
                    return Err(failed("DROP USER", &unknown));
                }
                notes.extend(unknown.iter().map(|name| is_there(name, false)));
                users.iter().for_each(|name| forget(book, name));
            }
            Resolved::Rename(list) => {
                for (from, to) in list {
                    if is_given(from) {
                        return Err(errors::not_supported(
                            "RENAME USER of the account that SQL nodes are started with",
                        ));
                    }
                    let renamed = if book.contains_key(to) { None } else { book.remove(from) };
                    let Some(account) = renamed else { return Err(failed("RENAME USER", std::slice::from_ref(from))) };
                    book.insert(to.clone(), Account { name: to.clone(), ..account });
                    for other in book.values_mut() {
                        if let Some(admin) = other.roles.remove(from) {
                            other.roles.insert(to.clone(), admin);
                        }
                        if other.default_roles.remove(from) {
                            other.default_roles.insert(to.clone());
                        }
                    }
                }
            }
            Resolved::Grant { what, level, users } => {
                for name in users {
                    let account = book.get_mut(name).ok_or_else(|| {
                        SqlError::new(1410, b"42000", "You are not allowed to create a user with GRANT")
                    })?;
                    level.change(account, |had| had.union(what.privileges));
                    if let (Place::Table(database, table), false) = (level, what.columns.is_empty()) {
                        let columns = account.columns.entry((database.clone(), table.clone())).or_default();
                        what.columns.iter().for_each(|(name, privileges)| columns.give(name, *privileges));
                    }
                }
            }
            Resolved::Revoke { what, level, users, if_exists, ignores_unknown } => {
                for name in users {
                    let done = level.revoke(book, name, what);
                    match done {
                        Err(_) if *ignores_unknown && !book.contains_key(name) => {
                            notes.push(("Warning", 3162, is_there(name, false).2));
                        }
                        Err(e) if *if_exists => notes.push(("Warning", e.errno, e.message)),
                        done => done?,
                    }
                }
            }
            Resolved::RevokeAll(users) => {
                for name in users {
                    let Some(account) = book.get_mut(name) else {
                        let text = "Can't revoke all privileges for one or more of the requested users";
                        return Err(SqlError::new(1269, b"HY000", text));
                    };
                    account.global = Privileges::NONE;
                    account.databases.clear();
                    account.tables.clear();
                    account.columns.clear();
                    account.routines.clear();
                }
            }
            Resolved::CreateRole { roles, if_not_exists, at } => {
                let taken: Vec<AccountName> = roles.iter().filter(|r| book.contains_key(r)).cloned().collect();
                if !taken.is_empty() && !if_not_exists {
                    return Err(failed("CREATE ROLE", &taken));
                }
                notes.extend(taken.iter().map(|name| is_there(name, true)));
                for name in roles.iter().filter(|name| !taken.contains(name)) {
                    let none = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
                    let policy = Policy { expired: true, changed: Some(at.now), ..Policy::default() };
                    let account = Account { is_locked: true, policy, ..Account::new(name.clone(), none) };
                    book.insert(name.clone(), account);
                }
            }
            Resolved::DropRole { roles, if_exists } => {
                let unknown: Vec<AccountName> = roles.iter().filter(|r| !book.contains_key(r)).cloned().collect();
                if !unknown.is_empty() && !if_exists || roles.iter().any(is_given) {
                    return Err(failed("DROP ROLE", if unknown.is_empty() { roles } else { &unknown }));
                }
                notes.extend(unknown.iter().map(|name| is_there(name, false)));
                roles.iter().for_each(|name| forget(book, name));
            }
            Resolved::GrantRoles { roles, users, with_admin } => {
                for name in roles.iter().chain(users) {
                    check_known(book, name)?;
                }
                for user in users {
                    for role in roles {
                        if role == user || has_role(book, role, user) {
                            return Err(circle(role, user));
                        }
                        if let Some(account) = book.get_mut(user) {
                            let admin = account.roles.entry(role.clone()).or_default();
                            *admin |= *with_admin;
                        }
                    }
                }
            }
            Resolved::RevokeRoles { roles, users, if_exists, ignores_unknown } => {
                for name in users.iter().chain(roles) {
                    match check_known(book, name) {
                        Err(e) if *if_exists || *ignores_unknown => notes.push(("Warning", e.errno, e.message)),
                        known => known?,
                    }
                }
                for account in users.iter().filter_map(|user| book.remove(user)).collect::<Vec<_>>() {
                    let mut account = account;
                    for role in roles {
                        account.roles.remove(role);
                        account.default_roles.remove(role);
                    }
                    book.insert(account.name.clone(), account);
                }
            }
            Resolved::DefaultRole { active, users } => {
                for user in users {
                    let account =
                        book.get_mut(user).ok_or_else(|| failed("SET DEFAULT ROLE", std::slice::from_ref(user)))?;
                    set_default_roles(account, active)?;
                }
            }
        }
        Ok(notes)
    }
}

impl Place {
    pub(super) fn change(&self, account: &mut Account, change: impl Fn(Privileges) -> Privileges) {
        match self {
            Place::Global => account.global = change(account.global),
            Place::Database(name) => {
                let had = account.databases.remove(name).unwrap_or_default();
                let has = change(had);
                if has != Privileges::NONE {
                    account.databases.insert(name.clone(), has);
                }
            }
            Place::Table(database, table) => {
                let key = (database.clone(), table.clone());
                let had = account.tables.remove(&key).unwrap_or_default();
                let has = change(had);
                if has != Privileges::NONE {
                    account.tables.insert(key, has);
                }
            }
            Place::Routine(key) => {
                let had = account.routines.remove(key).unwrap_or_default();
                let has = change(had);
                if has != Privileges::NONE {
                    account.routines.insert(key.clone(), has);
                }
            }
        }
    }

    pub(super) fn revoke(&self, book: &mut Book, name: &AccountName, what: &What) -> Result<()> {
        let account = book.get_mut(name).ok_or_else(|| no_grant(name))?;
        match self {
            Place::Database(database) if !account.databases.contains_key(database) => return Err(no_grant(name)),
            Place::Table(database, table) => revoke_from_columns(account, (database, table), what)?,
            Place::Routine(key) if !account.routines.contains_key(key) => {
                return Err(failures::no_grant(&name.user, &name.host, &key.2));
            }
            _ => {}
        }
        self.change(account, |had| had.without(what.privileges));
        Ok(())
    }
}

/// What is taken from a table is taken from its columns.
///
/// # Errors
/// 1147: nothing is granted there, or not what is named of a column.
fn revoke_from_columns(account: &mut Account, (database, table): (&str, &str), what: &What) -> Result<()> {
    let key = (database.to_owned(), table.to_owned());
    let has_columns = account.columns.get(&key);
    let has = |(name, p): &(String, Privileges)| has_columns.is_some_and(|columns| columns.of(name).contains(*p));
    if has_columns.is_none() && !account.tables.contains_key(&key) || !what.columns.iter().all(has) {
        return Err(no_table_grant(&account.name, table));
    }
    if let Some(columns) = account.columns.get_mut(&key) {
        columns.take_from_all(what.privileges);
        what.columns.iter().for_each(|(name, privileges)| columns.take(name, *privileges));
        if columns.is_empty() {
            account.columns.remove(&key);
        }
    }
    Ok(())
}

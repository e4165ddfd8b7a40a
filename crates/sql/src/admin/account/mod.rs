//! Account statements carried out. What SHOW says of accounts is in [`show`].

pub(crate) mod random;
mod second;
pub(crate) mod show;

use std::rc::Rc;

use self::random::Generated;
use crate::{
    accounts::{
        Account, AccountName, Active, Auth, Policy, Privileges, Secret,
        identity::Identity,
        password,
        policy::{NoObject, Reuse},
    },
    catalog::{Catalog, Table},
    errors::{self, Result},
    parse::{
        account::{Clause, Identified, Level, Named, Spoken, What, wrong_hash},
        account_options::Options,
    },
    plan::needs::privilege_missing,
    program::{
        routine::{self, Key, failures},
        trigger,
    },
    session::{
        Session,
        account_store::Book,
        authorize::{column_denied, database_denied, listed, table_denied},
        engine::SqlEngine,
    },
    wire::{SqlError, auth::AuthPlugin},
};

fn failed(operation: &str, names: &[AccountName]) -> SqlError {
    let names: Vec<String> = names.iter().map(AccountName::quoted).collect();
    SqlError::new(1396, b"HY000", format!("Operation {operation} failed for {}", names.join(",")))
}

pub(crate) fn no_grant(name: &AccountName) -> SqlError {
    let text = format!("There is no such grant defined for user '{}' on host '{}'", name.user, name.host);
    SqlError::new(1141, b"42000", text)
}

fn no_table_grant(name: &AccountName, table: &str) -> SqlError {
    let (user, host) = (&name.user, &name.host);
    let text = format!("There is no such grant defined for user '{user}' on host '{host}' on table '{table}'");
    SqlError::new(1147, b"42000", text)
}

fn is_there(name: &AccountName, is: bool) -> (&'static str, u16, String) {
    match is {
        true => ("Note", 3163, format!("Authorization ID {} already exists.", name.quoted())),
        false => ("Note", 3162, format!("Authorization ID {} does not exist.", name.quoted())),
    }
}

pub(crate) fn auth_of(identified: &Identified, before: Option<AuthPlugin>) -> Result<Auth> {
    let (plugin, secret) = match identified {
        Identified::By(plugin, Spoken { password: text, .. }) => {
            if text.len() > password::PASSWORD_BYTES_MAX {
                return Err(errors::not_supported("passwords of more than 256 bytes"));
            }
            let plugin = plugin.or(before).unwrap_or(AuthPlugin::CachingSha2Password);
            let secret = match plugin {
                AuthPlugin::NativePassword => password::native(text),
                AuthPlugin::CachingSha2Password => {
                    let mut random = [0; 20];
                    getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
                    password::sha2(text, random)
                }
            };
            (plugin, Some(secret))
        }
        Identified::As(plugin, text, _) => match plugin {
            AuthPlugin::NativePassword => (*plugin, password::parse_native(text)),
            AuthPlugin::CachingSha2Password => (*plugin, password::parse_sha2(text)),
        },
        Identified::Discard => return Err(errors::internal("DISCARD OLD PASSWORD names no password")),
    };
    Ok(Auth { plugin, secret: secret.ok_or_else(wrong_hash)? })
}

/// The account is gone, as a role of others, too.
fn forget(book: &mut Book, name: &AccountName) {
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

fn set_default_roles(account: &mut Account, active: &Active) -> Result<()> {
    if let Active::These(roles) = active
        && let Some(role) = roles.iter().find(|role| !account.roles.contains_key(role))
    {
        return Err(errors::role_not_granted(&role.in_backticks(), &account.name.in_backticks()));
    }
    account.default_roles = account.active(active).into_iter().collect();
    Ok(())
}

pub(crate) fn apply(options: &Options, account: &mut Account) -> Result<()> {
    if let Some(active) = &options.default_roles {
        set_default_roles(account, active)?;
    }
    if let Some(requires) = &options.requires {
        account.requires = requires.clone();
    }
    account.max_user_connections = options.max_user_connections.unwrap_or(account.max_user_connections);
    account.is_locked = options.locked.unwrap_or(account.is_locked);
    let changed = options.policy.apply(&mut account.policy, options.locked == Some(false));
    changed.map_err(|NoObject| SqlError::new(3982, b"HY000", "The user attribute must be a valid JSON object"))
}

/// When a statement changes accounts, and how soon passwords may come again where an account does not say it.
#[derive(Clone, Copy, Default)]
struct At {
    now: u64,
    reuse: Reuse,
}

/// # Errors
/// 3891, 3892, 3893: who changes the own password does not say which one he has, or says it of another's.
fn check_replaced(me: &Identity, clause: &Clause, is_required: bool) -> Result<()> {
    let check = |name: &Named, replaces: Option<&String>| {
        let is_own = is_own(me, name);
        let exempt = me.rights.global.contains(Privileges::CREATE_USER);
        match replaces {
            Some(_) if !is_own => {
                let text = "Do not specify the current password while changing it for other users.";
                Err(SqlError::new(3893, b"HY000", text))
            }
            Some(old) if !password::is_of(&me.account.auth.secret, old.as_bytes()) => {
                let text = "Incorrect current password. Specify the correct password which has to be replaced.";
                Err(SqlError::new(3891, b"HY000", text))
            }
            None if is_own && me.account.policy.require_current.unwrap_or(is_required && !exempt) => {
                let text = "Current password needs to be specified in the REPLACE clause in order to change it.";
                Err(SqlError::new(3892, b"HY000", text))
            }
            _ => Ok(()),
        }
    };
    match clause {
        Clause::SetPassword { user, password } => check(user, password.replaces.as_ref()),
        Clause::AlterUser { users, .. } => users.iter().try_for_each(|(name, identified)| match identified {
            Some(Identified::By(_, spoken)) => check(name, spoken.replaces.as_ref()),
            Some(Identified::As(..)) => check(name, None),
            Some(Identified::Discard) | None => Ok(()),
        }),
        _ => Ok(()),
    }
}

/// Warnings of a change: level, number and text.
type Notes = Vec<(&'static str, u16, String)>;

impl SqlEngine {
    /// Who made a routine may call, change and drop it, as `automatic_sp_privileges` says in MySQL.
    pub(crate) async fn grant_own(&self, session: &mut Session, key: Key) -> Result<()> {
        let (Some(me), Some(store)) = (self.identity(session).await?, &self.store) else { return Ok(()) };
        if me.rights.on_routine(key.0, &key.1, &key.2).contains(Privileges::ON_ROUTINE) {
            return Ok(());
        }
        let level = Place::Routine(key);
        let users = vec![me.account.name.clone()];
        let what = What { privileges: Privileges::ON_ROUTINE, columns: Vec::new() };
        let grant = Resolved::Grant { what, level, users };
        store.change(|book| grant.carry_out(book, &|name| store.accounts.is_given(name))).await.map(|_| ())
    }

    /// A routine is gone, and what anybody was granted on it.
    pub(crate) async fn revoke_gone(&self, key: &Key) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if !store.accounts.current().iter().any(|account| account.routines.contains_key(key)) {
            return Ok(());
        }
        let forget = |book: &mut Book| {
            book.values_mut().for_each(|account| _ = account.routines.remove(key));
            Ok(())
        };
        store.change(forget).await
    }

    /// # Errors
    /// 1227: a routine whose definer has SYSTEM_USER is for his like to change.
    pub(crate) async fn require_rank(&self, session: &mut Session, (user, host): &(String, String)) -> Result<()> {
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        match me.account_of(user, host) {
            Some(definer) if !me.rights.global.contains(Privileges::SYSTEM_USER) && is_above(&me, &definer.name) => {
                Err(privilege_missing("SYSTEM_USER"))
            }
            _ => Ok(()),
        }
    }

    /// Carries out an account statement; the passwords that it has made up.
    pub(crate) async fn change_accounts(&self, session: &mut Session, mut clause: Clause) -> Result<Vec<Generated>> {
        if let Clause::SetRole(active) = clause {
            return self.set_role(session, active).await.map(|()| Vec::new());
        }
        if session.locked.is_some() {
            return Err(errors::not_locked("user"));
        }
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define(session).await?;
        let me = self.identity(session).await?;
        let (Some(me), Some(store)) = (me, &self.store) else { return Err(errors::not_supported("accounts")) };
        check_may_change(session, &me, &clause)?;
        if let Clause::Grant { level: Level::Table(name), what, .. } = &clause
            && !(what.privileges.contains(Privileges::CREATE) && what.columns.is_empty())
        {
            let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
            let catalog = self.catalog_with(&database, &name.1).await?;
            let schema = &catalog.columns_of(&database, &name.1)?.schema;
            let is_there = |column: &str| !column.starts_with('#') && schema.column_no(column).is_some();
            if let Some((column, _)) = what.columns.iter().find(|(column, _)| !is_there(column)) {
                return Err(errors::unknown_column(column, &name.1));
            }
        }
        if let Clause::Grant { level: Level::Routine(kind, name), .. } = &clause {
            self.routine_named(session, *kind, name).await?;
        }
        let defaults = self.globals.of_passwords();
        check_replaced(&me, &clause, defaults.requires_current)?;
        let at = At { now: session.env.now().cast_unsigned() / 1_000_000, reuse: defaults.reuse };
        let mut made = random::fill(&mut clause, &me.account.name, session.env.variables.random_password())?;
        // What is said of passwords is the same in every attempt.
        let clause = Resolved::of(session, &me, clause, at)?;
        let notes = store.change(|book| clause.carry_out(book, &|name| store.accounts.is_given(name))).await?;
        if let Resolved::Create { .. } = &clause {
            // Those that were there keep their passwords.
            made.retain(|made| !notes.contains(&is_there(&made.name, true)));
        }
        for (level, code, text) in notes {
            session.warn(level, code, text);
        }
        if let Resolved::Alter { users, options, .. } = &clause
            && !options.policy.expired
            && users.iter().any(|(name, identified)| *name == me.account.name && identified.is_some())
        {
            session.leave_sandbox();
        }
        if let Resolved::Drop { users, .. } = &clause {
            let catalog = self.catalog().await?;
            for name in users {
                for what in defined_by(&catalog, name) {
                    let text = format!("User {} is referenced as a definer account in {what}.", name.quoted());
                    session.warn("Warning", 4005, text);
                }
            }
        }
        Ok(made)
    }
}

/// What there is whose definer is this account.
fn defined_by(catalog: &Catalog, name: &AccountName) -> Vec<&'static str> {
    let is = |definer: &(String, String)| (&name.user, &name.host) == (&definer.0, &definer.1);
    let has_trigger = |table: &Rc<Table>| {
        let definers = table.schema.triggers.iter().filter_map(trigger::Definition::from_def);
        definers.map(|d| d.definer).any(|definer| is(&definer))
    };
    let kinds = [
        ("an event", catalog.events().any(|event| is(&event.definition.definer))),
        ("a stored routine", catalog.routines().any(|routine| is(&routine.definition.definer))),
        ("a trigger", catalog.tables().any(has_trigger)),
        ("a view", catalog.views().any(|view| is(&view.definition.definer))),
    ];
    kinds.into_iter().filter(|(_, is_there)| *is_there).map(|(what, _)| what).collect()
}

/// # Errors
/// 1044, 1045, 1142, 1227.
fn check_may_change(session: &Session, me: &Identity, clause: &Clause) -> Result<()> {
    let global = me.rights.global;
    let all_own = |users: &[Named]| users.iter().all(|name| is_own(me, name));
    match clause {
        Clause::SetPassword { user, password } if is_own(me, user) => {
            return second::check_may(global, password.retains);
        }
        Clause::AlterUser { users, options, .. }
            if *options == Options::default()
                && users.iter().all(|(name, identified)| is_own(me, name) && identified.is_some()) =>
        {
            return second::check_may(global, users.iter().any(|(_, i)| i.as_ref().is_some_and(second::concerns)));
        }
        Clause::DefaultRole { users, .. } if all_own(users) => return Ok(()),
        _ => {}
    }
    // Who has SYSTEM_USER is changed, and taken for a role, by his like only.
    if !global.contains(Privileges::SYSTEM_USER) && named_by(me, clause).into_iter().any(|name| is_above(me, name)) {
        return Err(privilege_missing("SYSTEM_USER"));
    }
    match clause {
        Clause::Grant { what, level, .. } | Clause::Revoke { what, level, .. } => {
            check_may_give(session, me, what, level)
        }
        Clause::CreateRole { .. } if global.intersects(Privileges::CREATE_ROLE.union(Privileges::CREATE_USER)) => {
            Ok(())
        }
        Clause::CreateRole { .. } => Err(privilege_missing("CREATE ROLE or CREATE USER")),
        // Whom nobody can log in as is taken for a role.
        Clause::DropRole { roles, .. }
            if global.contains(Privileges::CREATE_USER)
                || global.contains(Privileges::DROP_ROLE)
                    && roles.iter().all(|name| me.directory.find(name).is_none_or(|a| a.is_locked)) =>
        {
            Ok(())
        }
        Clause::DropRole { .. } => Err(privilege_missing("DROP ROLE or CREATE USER")),
        Clause::GrantRoles { roles, .. } | Clause::RevokeRoles { roles, .. } => {
            let may_give = |role: &AccountName| me.account.roles.get(role) == Some(&true);
            match global.intersects(Privileges::SUPER.union(Privileges::ROLE_ADMIN)) || roles.iter().all(may_give) {
                true => Ok(()),
                false => Err(privilege_missing("WITH ADMIN, ROLE_ADMIN, SUPER")),
            }
        }
        _ if global.contains(Privileges::CREATE_USER) => Ok(()),
        _ => Err(privilege_missing("CREATE USER")),
    }
}

/// Whether an account has SYSTEM_USER, perhaps by a role.
fn is_above(me: &Identity, name: &AccountName) -> bool {
    let account = me.directory.find(name);
    account.is_some_and(|a| me.directory.rights(a, &a.active(&Active::All)).global.contains(Privileges::SYSTEM_USER))
}

/// # Errors
/// 1044, 1045, 1142, 1143: the session's account has not all of it there, or may not give it on.
fn check_may_give(session: &Session, me: &Identity, what: &What, level: &Level) -> Result<()> {
    let needed = what.privileges.union(Privileges::GRANT_OPTION);
    let own = session.env.database.as_deref();
    match level {
        Level::Global if !me.rights.global.contains(needed) => {
            let (user, host) = (&session.env.user, &session.env.host);
            let text = format!("Access denied for user '{user}'@'{host}' (using password: YES)");
            Err(SqlError::new(1045, b"28000", text))
        }
        Level::Global => Ok(()),
        Level::Database(database) => {
            let database = database.as_deref().or(own).ok_or_else(errors::no_database)?;
            let has = me.rights.on_pattern(database);
            if has.contains(needed) { Ok(()) } else { Err(database_denied(&session.env, database)) }
        }
        Level::Table((database, table)) => {
            let database = database.as_deref().or(own).ok_or_else(errors::no_database)?;
            let some = me.rights.on_some_column(database, table);
            let of_columns = what.columns.iter().fold(Privileges::NONE, |all, (_, p)| all.union(*p));
            let missing = needed.without(me.rights.on_table(database, table)).union(of_columns.without(some));
            if missing != Privileges::NONE {
                return Err(table_denied(&session.env, &listed(missing), table));
            }
            let missing =
                |(column, p): &&(String, Privileges)| !me.rights.on_column(database, table, column).contains(*p);
            match what.columns.iter().find(missing) {
                Some((column, p)) => Err(column_denied(&session.env, &listed(*p), column, table)),
                None => Ok(()),
            }
        }
        Level::Routine(kind, (database, name)) => {
            let database = database.as_deref().or(own).ok_or_else(errors::no_database)?;
            match needed.without(me.rights.on_routine(*kind, database, name)) {
                Privileges::NONE => Ok(()),
                missing => {
                    let (user, host) = (&session.env.user, &session.env.host);
                    Err(failures::denied(&listed(missing).to_lowercase(), user, host, &format!("{database}.{name}")))
                }
            }
        }
    }
}

fn is_own(me: &Identity, name: &Named) -> bool {
    name.as_ref().is_none_or(|name| *name == me.account.name)
}

/// The accounts that a clause changes, and the roles that it gives.
fn named_by<'c>(me: &'c Identity, clause: &'c Clause) -> Vec<&'c AccountName> {
    let own = |name: &'c Named| name.as_ref().unwrap_or(&me.account.name);
    match clause {
        Clause::CreateUser { users, .. } | Clause::AlterUser { users, .. } => {
            users.iter().map(|(name, _)| own(name)).collect()
        }
        Clause::RenameUser(list) => list.iter().flat_map(|(a, b)| [own(a), own(b)]).collect(),
        Clause::SetPassword { user, .. } => vec![own(user)],
        Clause::DropUser { users, .. }
        | Clause::RevokeAll(users)
        | Clause::Grant { users, .. }
        | Clause::Revoke { users, .. }
        | Clause::DefaultRole { users, .. } => users.iter().map(own).collect(),
        Clause::GrantRoles { roles, users, .. } | Clause::RevokeRoles { roles, users, .. } => {
            roles.iter().chain(users.iter().map(own)).collect()
        }
        Clause::CreateRole { roles, .. } | Clause::DropRole { roles, .. } => roles.iter().collect(),
        Clause::SetRole(_) => Vec::new(),
    }
}

/// A clause with all names and passwords as they are kept.
enum Resolved {
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

enum Place {
    Global,
    Database(String),
    Table(String, String),
    Routine(Key),
}

impl Resolved {
    fn of(session: &Session, me: &Identity, clause: Clause, at: At) -> Result<Resolved> {
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
    fn carry_out(&self, book: &mut Book, is_given: &dyn Fn(&AccountName) -> bool) -> Result<Notes> {
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
    fn change(&self, account: &mut Account, change: impl Fn(Privileges) -> Privileges) {
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

    fn revoke(&self, book: &mut Book, name: &AccountName, what: &What) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::{show::grants_of, *};

    fn account(user: &str) -> Account {
        let auth = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        Account::new(AccountName::new(user, "%"), auth)
    }
    fn book(users: &[&str]) -> Book {
        users.iter().map(|user| (AccountName::new(user, "%"), account(user))).collect()
    }
    fn names(users: &[&str]) -> Vec<AccountName> {
        users.iter().map(|user| AccountName::new(user, "%")).collect()
    }

    #[test]
    fn statements_change_all_accounts_or_none() {
        let nobody = |_: &AccountName| false;
        let none = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        let create = |users: &[&str], if_not_exists| Resolved::Create {
            users: names(users).into_iter().map(|name| (name, none.clone())).collect(),
            if_not_exists,
            options: Options { locked: Some(true), ..Options::default() },
            at: At::default(),
        };
        let mut two = book(&["a", "b"]);
        let e = create(&["c", "b", "a"], false).carry_out(&mut two, &nobody).unwrap_err();
        assert_eq!((e.errno, e.message.as_str()), (1396, "Operation CREATE USER failed for 'b'@'%','a'@'%'"));
        assert_eq!(two.len(), 2);
        let notes = create(&["c", "b"], true).carry_out(&mut two, &nobody).unwrap();
        assert_eq!(notes, [("Note", 3163, "Authorization ID 'b'@'%' already exists.".to_owned())]);
        assert!(two[&AccountName::new("c", "%")].is_locked && !two[&AccountName::new("b", "%")].is_locked);
        let drop = Resolved::Drop { users: names(&["a"]), if_exists: false };
        assert_eq!(drop.carry_out(&mut two, &|name| name.user == "a").unwrap_err().errno, 1235);
        drop.carry_out(&mut two, &nobody).unwrap();
        assert_eq!(drop.carry_out(&mut two, &nobody).unwrap_err().errno, 1396);
        let rename = |a: &str, b: &str| Resolved::Rename(vec![(AccountName::new(a, "%"), AccountName::new(b, "%"))]);
        assert_eq!(rename("b", "c").carry_out(&mut two, &nobody).unwrap_err().errno, 1396);
        rename("b", "d").carry_out(&mut two, &nobody).unwrap();
        assert_eq!(two[&AccountName::new("d", "%")].name.user, "d");
    }

    #[test]
    fn grants_come_and_go() {
        let nobody = |_: &AccountName| false;
        let mut one = book(&["u"]);
        let mut run = |resolved: Resolved| resolved.carry_out(&mut one, &nobody).map_err(|e| e.errno);
        let place = || Place::Database("d".into());
        let what = |privileges| What { privileges, columns: Vec::new() };
        let grant = |privileges, level| Resolved::Grant { what: what(privileges), level, users: names(&["u"]) };
        let revoke = |privileges, level, user: &str, if_exists| Resolved::Revoke {
            what: what(privileges),
            level,
            users: names(&[user]),
            if_exists,
            ignores_unknown: false,
        };
        assert_eq!(run(revoke(Privileges::SELECT, place(), "u", false)), Err(1141));
        assert_eq!(run(revoke(Privileges::SELECT, place(), "u", true)).map(|n| n.len()), Ok(1));
        assert_eq!(run(revoke(Privileges::SELECT, Place::Table("d".into(), "t".into()), "u", false)), Err(1147));
        assert_eq!(run(revoke(Privileges::SELECT, Place::Global, "v", false)), Err(1141));
        run(grant(Privileges::SELECT.union(Privileges::GRANT_OPTION), place())).unwrap();
        run(grant(Privileges::ON_TABLE, Place::Table("d`".into(), "t".into()))).unwrap();
        run(grant(Privileges::CONNECTION_ADMIN, Place::Global)).unwrap();
        let u = AccountName::new("u", "%");
        assert_eq!(
            grants_of(&one[&u]),
            [
                "GRANT USAGE ON *.* TO `u`@`%`",
                "GRANT CONNECTION_ADMIN ON *.* TO `u`@`%`",
                "GRANT SELECT ON `d`.* TO `u`@`%` WITH GRANT OPTION",
                "GRANT ALL PRIVILEGES ON `d```.`t` TO `u`@`%`",
            ]
        );
        let mut run = |resolved: Resolved| resolved.carry_out(&mut one, &nobody).map_err(|e| e.errno);
        run(revoke(Privileges::ON_DATABASE.union(Privileges::GRANT_OPTION), place(), "u", false)).unwrap();
        run(Resolved::RevokeAll(names(&["u"]))).unwrap();
        assert_eq!(run(Resolved::RevokeAll(names(&["v"]))), Err(1269));
        assert_eq!(grants_of(&one[&u]), ["GRANT USAGE ON *.* TO `u`@`%`"]);
    }
}

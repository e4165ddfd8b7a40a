//! Account statements carried out. What SHOW says of accounts is in [`show`].

pub(crate) mod random;
mod resolved;
mod rights;
mod second;
pub(crate) mod show;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use self::{
    random::Generated,
    resolved::{Place, Resolved, is_there, set_default_roles},
    rights::{check_may_change, check_replaced, is_above},
};
use crate::{
    accounts::{
        Account, AccountName, Auth, Privileges, password,
        policy::{NoObject, Reuse},
    },
    catalog::{Catalog, Table},
    errors::{self, Result},
    parse::{
        account::{
            Clause, Identified, Spoken,
            grants::{Level, What},
            wrong_hash,
        },
        account_options::Options,
    },
    plan::needs::privilege_missing,
    program::{routine::Key, trigger},
    session::{Session, account_store::Book, engine::SqlEngine},
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
            let catalog = self.catalog_with(session, &database, &name.1).await?;
            let schema = &catalog.permanent().columns_of(&database, &name.1)?.schema;
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

//! Who may change accounts, and give what: asked before anything of a statement is done.

use super::second;
use crate::{
    accounts::{AccountName, Active, Privileges, identity::Identity, password},
    errors::{self, Result},
    parse::{
        account::{
            Clause, Identified, Named,
            grants::{Level, What},
        },
        account_options::Options,
    },
    plan::needs::privilege_missing,
    program::routine::failures,
    session::{
        Session,
        authorize::{column_denied, database_denied, listed, table_denied},
    },
    wire::SqlError,
};

/// # Errors
/// 3891, 3892, 3893: who changes the own password does not say which one he has, or says it of another's.
pub(super) fn check_replaced(me: &Identity, clause: &Clause, is_required: bool) -> Result<()> {
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

/// # Errors
/// 1044, 1045, 1142, 1227.
pub(super) fn check_may_change(session: &Session, me: &Identity, clause: &Clause) -> Result<()> {
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
pub(super) fn is_above(me: &Identity, name: &AccountName) -> bool {
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

//! The second password of an account: RETAIN CURRENT PASSWORD and DISCARD OLD PASSWORD.

use super::auth_of;
use crate::{
    accounts::{Account, Privileges, Secret},
    errors::{self, Result},
    parse::account::Identified,
    plan::needs::privilege_missing,
    wire::SqlError,
};

/// A clause keeps a second password, or takes it away.
pub(super) fn concerns(identified: &Identified) -> bool {
    match identified {
        Identified::By(_, spoken) => spoken.retains,
        Identified::As(_, _, retains) => *retains,
        Identified::Discard => true,
    }
}

/// # Errors
/// 1227: who may change the own password need not be one who may have two.
pub(super) fn check_may(global: Privileges, concerns: bool) -> Result<()> {
    match !concerns || global.intersects(Privileges::CREATE_USER.union(Privileges::APPLICATION_PASSWORD_ADMIN)) {
        true => Ok(()),
        false => Err(privilege_missing("CREATE USER or APPLICATION_PASSWORD_ADMIN")),
    }
}

/// Gives an account another password.
///
/// # Errors
/// 3878, 3894, 3895: the one that it has cannot be its second one. As [`auth_of`].
pub(super) fn change(account: &mut Account, identified: &Identified) -> Result<()> {
    let auth = auth_of(identified, Some(account.auth.plugin))?;
    let name = account.name.quoted();
    let refused = |number, text: String| Err(SqlError::new(number, b"HY000", text));
    let changes_plugin = auth.plugin != account.auth.plugin;
    if concerns(identified) {
        if changes_plugin {
            let why = "because authentication plugin is being changed.";
            return refused(3894, format!("Current password can not be retained for user {name} {why}"));
        }
        match &account.auth.secret {
            before if auth.secret == Secret::Empty && *before != Secret::Empty => {
                let why = "because new password is empty.";
                return refused(3895, format!("Current password can not be retained for user {name} {why}"));
            }
            Secret::Empty => {
                return refused(
                    3878,
                    format!("Empty password can not be retained as second password for user {name}."),
                );
            }
            Secret::Configured(_) => {
                return Err(errors::not_supported("RETAIN CURRENT PASSWORD of what SQL nodes are started with"));
            }
            before => account.second = Some(before.clone()),
        }
    } else if changes_plugin || auth.secret == Secret::Empty {
        account.second = None;
    }
    account.auth = auth;
    account.policy.expired = false;
    Ok(())
}

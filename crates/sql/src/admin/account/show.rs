//! What SHOW says of accounts: SHOW GRANTS and SHOW CREATE USER.
//!
//! What SHOW CREATE USER prints makes the account again where it is executed, as dumps of MySQL do it.

use std::collections::BTreeSet;

use super::no_grant;
use crate::{
    accounts::{Account, AccountName, Columns, Privileges, policy::LockTime},
    admin::show,
    errors::{self, Result},
    parse::{account::Named, token::Tokens},
    program::routine::Key,
    server::Output,
    session::{Session, authorize::table_denied, engine::SqlEngine},
};

impl SqlEngine {
    /// SHOW GRANTS.
    pub(crate) async fn show_grants(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        let name = if t.word("for") { crate::parse::account::named(t)? } else { None };
        let using = if t.word("using") { crate::parse::account::roles(t)? } else { Vec::new() };
        t.end()?;
        let of_others = name.is_some();
        let Some(account) = self.shown_account(session, name).await? else {
            let name = AccountName::new(&session.env.user, "%");
            let all = format!("GRANT ALL PRIVILEGES ON *.* TO {}", name.in_backticks());
            show::table(session, out, &[&format!("Grants for {name}")], &[vec![Some(all)]]);
            return Ok(());
        };
        let shown = session.env.me.as_ref().map(|me| {
            let roles = if using.is_empty() && !of_others { me.roles() } else { using.clone() };
            if let Some(role) = using.iter().find(|role| !account.roles.contains_key(role)) {
                return Err(errors::role_not_granted(&role.in_backticks(), &account.name.in_backticks()));
            }
            Ok(me.directory.rights(&std::sync::Arc::new(account.clone()), &roles))
        });
        let account = shown.transpose()?.map_or(account, |rights| (*rights).clone());
        let rows: show::Rows = grants_of(&account).into_iter().map(|line| vec![Some(line)]).collect();
        show::table(session, out, &[&format!("Grants for {}", account.name)], &rows);
        Ok(())
    }

    /// SHOW CREATE USER.
    pub(crate) async fn show_create_user(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let name = crate::parse::account::named(t)?;
        t.end()?;
        let Some(account) = self.shown_account(session, name).await? else {
            return Err(errors::not_supported("accounts"));
        };
        show::table(
            session,
            out,
            &[&format!("CREATE USER for {}", account.name)],
            &[vec![Some(create_user(&account))]],
        );
        Ok(())
    }

    /// The account that SHOW names; another one than the own is for who may read `mysql`.
    async fn shown_account(&self, session: &mut Session, name: Named) -> Result<Option<Account>> {
        let Some(me) = self.identity(session).await? else { return Ok(None) };
        let Some(name) = name.filter(|name| *name != me.account.name) else { return Ok(Some((*me.account).clone())) };
        if !me.rights.on_database("mysql").contains(Privileges::SELECT) {
            return Err(table_denied(&session.env, "SELECT", "user"));
        }
        me.directory.find(&name).map(|account| Some((**account).clone())).ok_or_else(|| no_grant(&name))
    }
}

/// Privileges on a table and on its columns: `SELECT, INSERT (a, b)`.
fn with_columns(on_table: Privileges, columns: &Columns) -> String {
    let mut parts = Vec::new();
    for name in on_table.union(columns.any()).names() {
        let privilege = Privileges::named(name).unwrap_or_default();
        if on_table.contains(privilege) {
            parts.push(name.to_owned());
        }
        let listed: Vec<String> = columns.with(privilege).map(|c| format!("`{}`", c.replace('`', "``"))).collect();
        if !listed.is_empty() {
            parts.push(format!("{name} ({})", listed.join(", ")));
        }
    }
    parts.join(", ")
}

/// The lines of SHOW GRANTS.
pub(crate) fn grants_of(account: &Account) -> Vec<String> {
    let to = account.name.in_backticks();
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    let line = |privileges: Privileges, all: Option<Privileges>, on: &str| {
        let named = privileges.without(Privileges::GRANT_OPTION);
        let names = match all {
            Some(all) if named == all => "ALL PRIVILEGES".to_owned(),
            _ if named.names().is_empty() => "USAGE".to_owned(),
            _ => named.names().join(", "),
        };
        let option = if privileges.contains(Privileges::GRANT_OPTION) { " WITH GRANT OPTION" } else { "" };
        format!("GRANT {names} ON {on} TO {to}{option}")
    };
    let mut lines = vec![line(account.global, None, "*.*")];
    let dynamic = account.global.dynamic_names();
    if !dynamic.is_empty() {
        let option = if account.global.contains(Privileges::GRANT_OPTION) { " WITH GRANT OPTION" } else { "" };
        lines.push(format!("GRANT {} ON *.* TO {to}{option}", dynamic.join(",")));
    }
    let databases = account.databases.iter();
    lines.extend(databases.map(|(name, p)| line(*p, Some(Privileges::ON_DATABASE), &format!("{}.*", quote(name)))));
    let roles = |admin: bool| {
        let named = account.roles.iter().filter(move |(_, a)| **a == admin).map(|(role, _)| role.in_backticks());
        named.collect::<Vec<_>>().join(",")
    };
    let tables: BTreeSet<&(String, String)> = account.tables.keys().chain(account.columns.keys()).collect();
    lines.extend(tables.into_iter().map(|key| {
        let p = account.tables.get(key).copied().unwrap_or_default();
        let on = format!("{}.{}", quote(&key.0), quote(&key.1));
        match account.columns.get(key) {
            None => line(p, Some(Privileges::ON_TABLE), &on),
            Some(columns) => {
                let option = if p.contains(Privileges::GRANT_OPTION) { " WITH GRANT OPTION" } else { "" };
                format!("GRANT {} ON {on} TO {to}{option}", with_columns(p, columns))
            }
        }
    }));
    // As MySQL sorts them: by their quoted names.
    let named = |(kind, database, name): &Key| format!("{} {}.{}", kind.name(), quote(database), quote(name));
    let mut routines: Vec<(String, Privileges)> = account.routines.iter().map(|(key, p)| (named(key), *p)).collect();
    routines.sort_by(|(a, _), (b, _)| a.cmp(b));
    lines.extend(routines.iter().map(|(named, p)| line(*p, None, named)));
    for (names, option) in [(roles(false), ""), (roles(true), " WITH ADMIN OPTION")] {
        if !names.is_empty() {
            lines.push(format!("GRANT {names} TO {to}{option}"));
        }
    }
    lines
}

/// The statement that makes an account again. A password that the server was given is nobody's to see.
fn create_user(account: &Account) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let policy = &account.policy;
    let mut out =
        format!("CREATE USER {} IDENTIFIED WITH '{}'", account.name.in_backticks(), account.auth.plugin.name());
    let kept = account.auth.secret.text();
    if !kept.is_empty() {
        // A salt may have any bytes.
        let kept = quoted(&kept).replace('\n', "\\n").replace('\r', "\\r").replace('\x1a', "\\Z").replace('"', "\\\"");
        out += &format!(" AS {}", kept.replace('\0', "\\0"));
    }
    let roles: Vec<String> = account.default_roles.iter().map(AccountName::in_backticks).collect();
    if !roles.is_empty() {
        out += &format!(" DEFAULT ROLE {}", roles.join(","));
    }
    out += &format!(" REQUIRE {}", account.requires.shown());
    let limits = [
        ("MAX_QUERIES_PER_HOUR", policy.limits.questions),
        ("MAX_UPDATES_PER_HOUR", policy.limits.updates),
        ("MAX_CONNECTIONS_PER_HOUR", policy.limits.connections),
        ("MAX_USER_CONNECTIONS", account.max_user_connections),
    ];
    let mut before = " WITH";
    for (name, count) in limits.into_iter().filter(|(_, count)| *count > 0) {
        out += &format!("{before} {name} {count}");
        before = "";
    }
    let expires = match policy.lifetime {
        _ if policy.expired => String::new(),
        None => " DEFAULT".to_owned(),
        Some(0) => " NEVER".to_owned(),
        Some(days) => format!(" INTERVAL {days} DAY"),
    };
    let lock = if account.is_locked { "LOCK" } else { "UNLOCK" };
    let history = policy.history.map_or("DEFAULT".to_owned(), |count| count.to_string());
    let reuse = policy.reuse_days.map_or("DEFAULT".to_owned(), |days| format!("{days} DAY"));
    let current = match policy.require_current {
        None => " DEFAULT",
        Some(true) => "",
        Some(false) => " OPTIONAL",
    };
    out += &format!(
        " PASSWORD EXPIRE{expires} ACCOUNT {lock} PASSWORD HISTORY {history} PASSWORD REUSE INTERVAL {reuse} PASSWORD \
         REQUIRE CURRENT{current}"
    );
    if policy.failed_attempts > 0 {
        out += &format!(" FAILED_LOGIN_ATTEMPTS {}", policy.failed_attempts);
    }
    match policy.lock_time {
        LockTime::Days(0) => {}
        LockTime::Days(days) => out += &format!(" PASSWORD_LOCK_TIME {days}"),
        LockTime::Unbounded => out += " PASSWORD_LOCK_TIME UNBOUNDED",
    }
    if let Some(attributes) = &policy.attributes {
        out += &format!(" ATTRIBUTE {}", quoted(attributes));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        accounts::{Auth, Policy, Requires, Secret, password, policy::Limits, requires::Named},
        admin::account::{apply, auth_of},
        parse::account::{self, Clause},
        wire::auth::AuthPlugin,
    };

    fn account(user: &str) -> Account {
        let auth = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        Account::new(AccountName::new(user, "%"), auth)
    }

    #[test]
    fn what_makes_an_account_again_can_be_read() {
        let mut it = account("u");
        let salt = "a\\'\"\n\r\x1a\tb\x01 klmnopqrs";
        let Secret::Sha2(kept) = password::sha2("p", [9; 20]) else { panic!() };
        it.auth.secret = password::parse_sha2(&format!("{}{salt}{}", &kept[..7], &kept[27..])).unwrap();
        (it.is_locked, it.max_user_connections) = (true, 4);
        let named = Named { subject: Some("/CN=a".into()), cipher: Some("c".into()), issuer: None };
        it.requires = Requires::Named(named);
        it.policy = Policy {
            limits: Limits { questions: 1, updates: 2, connections: 3 },
            resets: 1,
            failed_attempts: 5,
            lock_time: LockTime::Unbounded,
            unlocks: 1,
            lifetime: Some(6),
            history: Some(7),
            reuse_days: Some(8),
            require_current: Some(false),
            attributes: Some("{\"it's\": \"a \\\"b\\\" \\\\ c\"}".to_owned()),
            ..Policy::default()
        };
        let text = create_user(&it);
        assert!(text.contains("$a\\\\\\'\\\"\\n\\r\\Z\tb\x01 klm"), "{text}");
        let Some(Clause::CreateUser { users, options, .. }) = account::parse(&mut Tokens::new(&text)).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(users[0].0, Some(it.name.clone()));
        assert_eq!(auth_of(users[0].1.as_ref().unwrap(), None).unwrap(), it.auth);
        let mut again = account("u");
        again.auth = it.auth.clone();
        apply(&options, &mut again).unwrap();
        assert_eq!(again, it);
    }
}

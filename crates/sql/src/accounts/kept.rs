//! An account as a row of the table of accounts: lines of text, the first one naming the form.
//!
//! A row that an older version cannot read is an account that is locked and may do nothing: never one that may do more than it should.

use super::{Account, AccountName, Auth, Privileges, RoutineKind, Secret, password};
use crate::wire::auth::{AuthPlugin, PasswordDigest};

const FORM: &str = "apus account 1";

/// The key of an account's row.
pub fn key(name: &AccountName) -> Vec<u8> {
    format!("{}\0{}", name.user, name.host).into_bytes()
}

pub fn name_of(key: &[u8]) -> Option<AccountName> {
    let (user, host) = std::str::from_utf8(key).ok()?.split_once('\0')?;
    Some(AccountName::new(user, host))
}

pub(super) fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t")
}

pub(super) fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                other => out.extend(other),
            },
            c => out.push(c),
        }
    }
    out
}

pub fn encode(account: &Account) -> Vec<u8> {
    let mut lines = vec![FORM.to_owned(), format!("plugin\t{}", account.auth.plugin.name())];
    let secret = |secret: &Secret| match secret {
        Secret::Empty => "empty".to_owned(),
        Secret::Configured(_) => "given".to_owned(),
        Secret::Native(digest) => format!("native\t{}", password::native_text(digest)),
        Secret::Sha2(text) => format!("sha2\t{}", escaped(text)),
    };
    lines.push(format!("secret\t{}", secret(&account.auth.secret)));
    lines.extend(account.second.iter().map(|second| format!("second\t{}", secret(second))));
    lines.extend(account.is_locked.then(|| "locked".to_owned()));
    lines.extend(account.requires.lines());
    if account.max_user_connections > 0 {
        lines.push(format!("connections\t{}", account.max_user_connections));
    }
    lines.extend(account.policy.lines());
    lines.push(format!("global\t{}", account.global.kept()));
    let databases = account.databases.iter();
    lines.extend(databases.map(|(name, p)| format!("database\t{}\t{}", p.0, escaped(name))));
    let tables = account.tables.iter();
    lines.extend(tables.map(|((d, t), p)| format!("table\t{}\t{}\t{}", p.0, escaped(d), escaped(t))));
    for ((database, table), columns) in &account.columns {
        let on = |name: &str| format!("{}\t{}\t{}", escaped(database), escaped(table), escaped(name));
        lines.extend(columns.iter().map(|(name, p)| format!("column\t{}\t{}", p.0, on(name))));
    }
    let routines = account.routines.iter();
    lines.extend(routines.map(|((kind, d, name), p)| {
        format!("{}\t{}\t{}\t{}", kind.name().to_lowercase(), p.0, escaped(d), escaped(name))
    }));
    let named = |name: &AccountName| format!("{}\t{}", escaped(&name.user), escaped(&name.host));
    lines.extend(account.roles.iter().map(|(role, admin)| format!("role\t{}\t{}", u8::from(*admin), named(role))));
    lines.extend(account.default_roles.iter().map(|role| format!("default\t{}", named(role))));
    lines.join("\n").into_bytes()
}

/// The account of a row; locked and without privileges where it cannot be read.
pub fn decode(name: AccountName, bytes: &[u8]) -> Account {
    decoded(name.clone(), bytes).unwrap_or_else(|| Account { is_locked: true, ..Account::new(name, nobody()) })
}

/// A password that nobody has, until the server puts in what it was given.
fn nobody() -> Auth {
    Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Configured(PasswordDigest::of("\0")) }
}

fn decoded(name: AccountName, bytes: &[u8]) -> Option<Account> {
    let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
    if lines.next() != Some(FORM) {
        return None;
    }
    let mut account = Account::new(name, nobody());
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["plugin", plugin] => account.auth.plugin = AuthPlugin::from_name(plugin.as_bytes())?,
            ["secret", "given"] => {}
            ["secret", "empty"] => account.auth.secret = Secret::Empty,
            ["secret", "native", text] => account.auth.secret = password::parse_native(text)?,
            ["secret", "sha2", text] => account.auth.secret = password::parse_sha2(&plain(text))?,
            ["second", "native", text] => account.second = Some(password::parse_native(text)?),
            ["second", "sha2", text] => account.second = Some(password::parse_sha2(&plain(text))?),
            ["locked"] => account.is_locked = true,
            ["tls" | "certificate", ..] => account.requires.take(&fields)?,
            ["connections", count] => account.max_user_connections = count.parse().ok()?,
            ["global", bits] => account.global = Privileges::of_kept(bits.parse().ok()?),
            ["database", bits, name] => {
                account.databases.insert(plain(name), Privileges(bits.parse().ok()?));
            }
            ["table", bits, database, table] => {
                account.tables.insert((plain(database), plain(table)), Privileges(bits.parse().ok()?));
            }
            ["column", bits, database, table, column] => {
                let columns = account.columns.entry((plain(database), plain(table))).or_default();
                columns.give(&plain(column), Privileges(bits.parse().ok()?));
            }
            [kind @ ("procedure" | "function"), bits, database, name] => {
                let kind = RoutineKind::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(kind))?;
                account.routines.insert((kind, plain(database), plain(name)), Privileges(bits.parse().ok()?));
            }
            ["role", admin, user, host] => {
                account.roles.insert(AccountName::new(&plain(user), &plain(host)), *admin == "1");
            }
            ["default", user, host] => {
                account.default_roles.insert(AccountName::new(&plain(user), &plain(host)));
            }
            of_policy => account.policy.take(of_policy)?,
        }
    }
    Some(account)
}

pub const TABLE: &str = "accounts";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::requires::{Named, Requires};

    #[test]
    fn accounts_come_back() {
        let name = AccountName::new("o'ne\ttwo", "10.%");
        assert_eq!(name_of(&key(&name)), Some(name.clone()));
        let secrets = [
            password::sha2("a", [3; 20]),
            password::native("b"),
            Secret::Empty,
            Secret::Configured(PasswordDigest::of("\0")),
        ];
        for (number, secret) in secrets.into_iter().enumerate() {
            let mut account = Account::new(name.clone(), Auth { plugin: AuthPlugin::CachingSha2Password, secret });
            account.is_locked = number == 1;
            account.second =
                [Some(password::sha2("c", [4; 20])), Some(password::native("d")), None, None][number].clone();
            account.requires = match number {
                0 => Requires::Nothing,
                1 => Requires::Encryption,
                2 => Requires::Certificate,
                _ => Requires::Named(Named { subject: Some("/CN=a\tb".into()), cipher: Some("".into()), issuer: None }),
            };
            account.max_user_connections = number as u32;
            account.policy.limits.questions = number as u32;
            account.policy.expired = number == 2;
            account.global = Privileges::GLOBAL.union(Privileges::GRANT_OPTION);
            account.databases.insert("d\\_%\n".into(), Privileges::SELECT);
            account.roles.insert(AccountName::new("r\n", "h"), number == 0);
            account.default_roles.insert(AccountName::new("r\n", "h"));
            account.tables.insert(("d\t".into(), "t\\".into()), Privileges::GRANT_OPTION);
            let columns = account.columns.entry(("d\t".into(), "t\\".into())).or_default();
            columns.give("c\n", Privileges::SELECT);
            columns.give("e", Privileges::UPDATE.union(Privileges::INSERT));
            account.routines.insert((RoutineKind::Procedure, "d\t".into(), "p\n".into()), Privileges::EXECUTE);
            account.routines.insert((RoutineKind::Function, "d\t".into(), "p\n".into()), Privileges::EXECUTE);
            assert_eq!(decode(name.clone(), &encode(&account)), account);
        }
    }

    #[test]
    fn what_older_builds_have_kept_is_read() {
        let name = AccountName::new("u", "%");
        let account =
            decode(name.clone(), b"apus account 1\nplugin\tmysql_native_password\nsecret\tempty\ntls\nglobal\t1");
        let auth = Auth { plugin: AuthPlugin::NativePassword, secret: Secret::Empty };
        let expected = Account { requires: Requires::Encryption, global: Privileges(1), ..Account::new(name, auth) };
        assert_eq!(account, expected);
        assert!(!account.policy.is_expired(u64::MAX, 1), "nobody knows how old its password is");
    }

    #[test]
    fn who_had_all_privileges_has_all() {
        let name = AccountName::new("u", "%");
        let kept = |bits: u64| format!("apus account 1\nsecret\tempty\nglobal\t{bits}").into_bytes();
        let global = |bytes: &[u8]| decode(name.clone(), bytes).global;
        assert_eq!(global(&kept(0x1f_3fff_ffff)), Privileges::GLOBAL, "before there was XA_RECOVER_ADMIN");
        assert_eq!(global(&kept(0x0f_3fff_ffff)), Privileges(0x0f_3fff_ffff));
        let mut account = decode(name.clone(), &kept(0x1f_3fff_ffff));
        account.global = Privileges::GLOBAL.without(Privileges::XA_RECOVER_ADMIN);
        assert_eq!(global(&encode(&account)), account.global, "it was revoked");
    }

    #[test]
    fn what_cannot_be_read_may_do_nothing() {
        let name = AccountName::new("u", "%");
        for bytes in [&b""[..], b"apus account 2\nglobal\t1", b"apus account 1\nglobal\t1\nnew\tthing", b"\xff"] {
            let account = decode(name.clone(), bytes);
            assert!(account.is_locked && account.global == Privileges::NONE, "{bytes:?}");
        }
    }
}

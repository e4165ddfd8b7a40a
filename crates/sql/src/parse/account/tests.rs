//! Tests of `parse::account`.

use super::*;
use crate::accounts::{Privileges, Requires};

fn parsed(text: &str) -> Result<Option<Clause>> {
    parse(&mut Tokens::new(text))
}
fn clause(text: &str) -> Clause {
    parsed(text).unwrap().unwrap_or_else(|| panic!("{text}"))
}
fn name(user: &str, host: &str) -> Named {
    Some(AccountName::new(user, host))
}

#[test]
fn users_are_named() {
    for (text, user, host) in [
        ("DROP USER u", "u", "%"),
        ("DROP USER u@localhost", "u", "localhost"),
        ("DROP USER 'u'@'10.0.%'", "u", "10.0.%"),
        ("DROP USER `a b`@`H`", "a b", "h"),
        ("DROP USER u@'%'", "u", "%"),
        ("DROP USER 'u'@localhost", "u", "localhost"),
    ] {
        assert_eq!(clause(text), Clause::DropUser { users: vec![name(user, host)], if_exists: false }, "{text}");
    }
    assert_eq!(
        clause("DROP USER IF EXISTS a, b@c"),
        Clause::DropUser { users: vec![name("a", "%"), name("b", "c")], if_exists: true }
    );
    let long = "x".repeat(33);
    assert_eq!(parsed(&format!("DROP USER {long}")).unwrap_err().errno, 1470);
    assert_eq!(parsed("DROP USER ''@localhost").unwrap_err().errno, 1235);
}

#[test]
fn definitions_are_read() {
    let Clause::CreateUser { users, if_not_exists, options } = clause(
        "CREATE USER IF NOT EXISTS u IDENTIFIED BY 'p', v IDENTIFIED WITH mysql_native_password BY 'q', \
             w IDENTIFIED WITH 'caching_sha2_password' AS 'h' REQUIRE SSL WITH MAX_QUERIES_PER_HOUR 0 \
             MAX_USER_CONNECTIONS 3 PASSWORD EXPIRE DEFAULT ACCOUNT LOCK PASSWORD HISTORY DEFAULT PASSWORD REUSE \
             INTERVAL DEFAULT PASSWORD REQUIRE CURRENT DEFAULT",
    ) else {
        panic!()
    };
    assert!(if_not_exists);
    let spoken =
        |password: &str| Spoken { password: password.into(), replaces: None, is_random: false, retains: false };
    assert_eq!(users[0], (name("u", "%"), Some(Identified::By(None, spoken("p")))));
    assert_eq!(users[1].1, Some(Identified::By(Some(AuthPlugin::NativePassword), spoken("q"))));
    assert_eq!(users[2].1, Some(Identified::As(AuthPlugin::CachingSha2Password, "h".into(), false)));
    let expected = Options {
        requires: Some(Requires::Encryption),
        max_user_connections: Some(3),
        locked: Some(true),
        ..Options::default()
    };
    assert_eq!(Options { policy: Default::default(), ..options }, expected);
    let Clause::AlterUser { users, .. } = clause("ALTER USER USER() IDENTIFIED BY 'x'") else { panic!() };
    assert_eq!(users[0].0, None);
    assert_eq!(
        clause("SET PASSWORD FOR u@h = 'x'"),
        Clause::SetPassword { user: name("u", "h"), password: spoken("x") }
    );
    let replaced = Spoken { password: "x".into(), replaces: Some("y".into()), is_random: false, retains: true };
    assert_eq!(
        clause("SET PASSWORD = 'x' REPLACE 'y' RETAIN CURRENT PASSWORD"),
        Clause::SetPassword { user: None, password: replaced }
    );
    let random = Spoken { password: String::new(), replaces: Some("y".into()), is_random: true, retains: false };
    let set = Clause::SetPassword { user: name("u", "%"), password: random.clone() };
    assert_eq!(clause("SET PASSWORD FOR u TO RANDOM REPLACE 'y'"), set);
    let Clause::AlterUser { users, .. } = clause("ALTER USER u IDENTIFIED BY RANDOM PASSWORD REPLACE 'y'") else {
        panic!()
    };
    assert_eq!(users[0].1, Some(Identified::By(None, random)));
    assert_eq!(clause("set password='x'"), Clause::SetPassword { user: None, password: spoken("x") });
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    for text in ["ALTER USER u IDENTIFIED BY 'x' AND IDENTIFIED BY 'y'", "GRANT BACKUP_ADMIN ON *.* TO u"] {
        assert_eq!(parsed(text).map_err(|e| e.errno), Err(1235), "{text}");
    }
    for text in [
        "GRANT SELECT ON d.* u",
        "CREATE USER u WITH",
        "CREATE USER u IDENTIFIED BY RANDOM",
        "CREATE USER u IDENTIFIED BY 'x' REPLACE 'y'",
        "GRANT NONESUCH ON *.* TO u",
    ] {
        assert_eq!(parsed(text).map_err(|e| e.errno), Err(1064), "{text}");
    }
    for text in ["CREATE TABLE user (a INT)", "ALTER TABLE t ADD a INT", "SET a = 1", "RENAME TABLE a TO b"] {
        assert_eq!(parsed(text), Ok(None), "{text}");
    }
}

#[test]
fn roles_are_told_from_privileges() {
    let role = |user: &str| AccountName::new(user, "%");
    assert_eq!(
        clause("CREATE ROLE IF NOT EXISTS a, 'b'@'%'"),
        Clause::CreateRole { roles: vec![role("a"), role("b")], if_not_exists: true }
    );
    assert_eq!(clause("DROP ROLE a"), Clause::DropRole { roles: vec![role("a")], if_exists: false });
    assert_eq!(
        clause("GRANT a, 'b'@'%' TO u WITH ADMIN OPTION"),
        Clause::GrantRoles { roles: vec![role("a"), role("b")], users: vec![name("u", "%")], with_admin: true }
    );
    assert!(matches!(clause("REVOKE a FROM u"), Clause::RevokeRoles { .. }));
    assert_eq!(clause("SET ROLE ALL EXCEPT a"), Clause::SetRole(Active::AllBut(vec![role("a")])));
    assert_eq!(clause("SET ROLE a, b"), Clause::SetRole(Active::These(vec![role("a"), role("b")])));
    assert_eq!(
        clause("SET DEFAULT ROLE NONE TO u"),
        Clause::DefaultRole { active: Active::None, users: vec![name("u", "%")] }
    );
    let Clause::AlterUser { options, .. } = clause("ALTER USER u DEFAULT ROLE ALL") else { panic!() };
    assert_eq!(options.default_roles, Some(Active::All));
}

#[test]
fn grants_have_levels() {
    let grant = |text: &str| match clause(text) {
        Clause::Grant { what, level, .. } => (what.privileges, level),
        other => panic!("{other:?}"),
    };
    assert_eq!(grant("GRANT ALL ON *.* TO u"), (Privileges::GLOBAL, Level::Global));
    assert_eq!(
        grant("GRANT SELECT, INSERT ON `d\\_%`.* TO u WITH GRANT OPTION"),
        (
            Privileges::SELECT.union(Privileges::INSERT).union(Privileges::GRANT_OPTION),
            Level::Database(Some("d\\_%".into()))
        )
    );
    assert_eq!(grant("GRANT ALL PRIVILEGES ON * TO u"), (Privileges::ON_DATABASE, Level::Database(None)));
    assert_eq!(grant("GRANT CREATE VIEW ON t TO u").1, Level::Table((None, "t".into())));
    assert_eq!(grant("GRANT USAGE ON d.t TO u").0, Privileges::NONE);
    for (text, errno) in [
        ("GRANT PROCESS ON d.* TO u", 1221),
        ("GRANT LOCK TABLES ON d.t TO u", 1144),
        ("GRANT CONNECTION_ADMIN ON d.* TO u", 3619),
    ] {
        assert_eq!(parsed(text).unwrap_err().errno, errno, "{text}");
    }
    assert_eq!(
        clause("REVOKE ALL PRIVILEGES, GRANT OPTION FROM u, v"),
        Clause::RevokeAll(vec![name("u", "%"), name("v", "%")])
    );
    let Clause::Revoke { what, if_exists, ignores_unknown, .. } =
        clause("REVOKE IF EXISTS ALL ON d.* FROM u IGNORE UNKNOWN USER")
    else {
        panic!()
    };
    assert_eq!((what.privileges, if_exists, ignores_unknown), (Privileges::ON_DATABASE, true, true));
}

#[test]
fn grants_name_columns() {
    let Clause::Grant { what, .. } = clause("GRANT SELECT (a, `b c`), DELETE, UPDATE(A) ON t TO u") else { panic!() };
    assert_eq!(what.privileges, Privileges::DELETE);
    let columns = [("a", Privileges::SELECT), ("b c", Privileges::SELECT), ("A", Privileges::UPDATE)];
    assert_eq!(what.columns, columns.map(|(name, p)| (name.to_owned(), p)));
    for text in ["GRANT DELETE (a) ON t TO u", "GRANT ALL (a) ON t TO u", "GRANT SELECT () ON t TO u"] {
        assert_eq!(parsed(text).map_err(|e| e.errno), Err(1064), "{text}");
    }
    assert_eq!(parsed("GRANT SELECT (a) ON d.* TO u").map_err(|e| e.errno), Err(1144));
}

//! Tests of `admin::account`.

use super::{show::grants_of, *};
use crate::accounts::Secret;

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

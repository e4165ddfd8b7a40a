//! The grant tables of database `mysql`, as tools read them: who there is and what he may do, made from the directory of accounts.
//!
//! They are virtual like those of INFORMATION_SCHEMA, are read by who has SELECT on them, and change by CREATE USER, GRANT and their kin alone. The database is in no list of
//! databases, so that no dump holds the tables, which Apus would not load. A real database of this name, which a dump of MySQL may have brought, stands in front of them.

use std::collections::BTreeSet;

use crate::{
    accounts::{Account, AccountName, Columns, Privileges, Requires, identity::Identity, requires::Named},
    catalog::grant_tables::{OF_COLUMN, OF_DATABASE, OF_ROUTINE, OF_TABLE, OF_USER, ROUTINE_KINDS},
    monitor::slow::{Entry, SlowLog},
    program::routine,
    value::{
        datum::{Datum, Row},
        json,
    },
};

/// An ENUM('N','Y') as it is stored.
const YES: [Datum<'static>; 2] = [Datum::UInt(1), Datum::UInt(2)];

/// The privilege that a column tells.
fn privilege(column: &str) -> Privileges {
    let name = match column {
        "Grant" => return Privileges::GRANT_OPTION,
        "Show_db" => "SHOW DATABASES",
        "Create_tmp_table" => "CREATE TEMPORARY TABLES",
        "Repl_slave" => "REPLICATION SLAVE",
        "Repl_client" => "REPLICATION CLIENT",
        other => &other.replace('_', " "),
    };
    Privileges::named(name).unwrap_or_default()
}

/// The rows of `slow_log`.
pub fn slow_log_rows(log: &SlowLog) -> Vec<Row> {
    // A TIME ends at 838:59:59.
    const TIME_MICROS_MAX: u64 = 3_020_399_000_000;
    let row = |entry: Entry| {
        let small = |n: u64| Datum::Int(i64::from(i32::try_from(n).unwrap_or(i32::MAX)));
        vec![
            Datum::Int(entry.ended),
            Datum::text(entry.user_host()),
            Datum::Time(entry.micros.min(TIME_MICROS_MAX).cast_signed(), 6),
            Datum::Time(0, 6),
            small(entry.sent),
            small(entry.examined),
            Datum::text(entry.database),
            small(entry.last_insert_id),
            Datum::Int(0),
            Datum::UInt(1),
            Datum::Bytes(entry.statement.into_bytes().into()),
            Datum::UInt(u64::from(entry.id)),
        ]
    };
    log.kept().into_iter().map(row).collect()
}

pub(crate) fn attribute_row(a: &Account) -> Row {
    let [host, user] = host_and_user(&a.name);
    vec![user, host, a.policy.attributes.clone().map_or(Datum::Null, Datum::text)]
}

/// All rows of one of them, one value per column of its schema.
pub fn rows(name: &str, me: Option<&Identity>) -> Vec<Row> {
    let Some(me) = me else { return Vec::new() };
    let accounts = || me.directory.iter().map(|a| &**a);
    match name {
        "user" => accounts().map(user_row).collect(),
        "db" => accounts().flat_map(database_rows).collect(),
        "tables_priv" => accounts().flat_map(table_rows).collect(),
        "role_edges" => accounts().flat_map(role_rows).collect(),
        "default_roles" => accounts().flat_map(default_role_rows).collect(),
        "global_grants" => accounts().flat_map(dynamic_rows).collect(),
        "procs_priv" => accounts().flat_map(routine_rows).collect(),
        "columns_priv" => accounts().flat_map(column_rows).collect(),
        // There are no grants of proxies.
        _ => Vec::new(),
    }
}

fn host_and_user(name: &AccountName) -> [Datum<'static>; 2] {
    [Datum::text(name.host.clone()), Datum::text(name.user.clone())]
}

fn flag(on: bool) -> Datum<'static> {
    YES[usize::from(on)].clone()
}

fn flags<'w>(held: Privileges, words: &'w str) -> impl Iterator<Item = Datum<'static>> + 'w {
    words.split_whitespace().map(move |word| flag(held.contains(privilege(word))))
}

fn user_row(a: &Account) -> Row {
    let mut row = host_and_user(&a.name).to_vec();
    row.extend(flags(a.global, OF_USER));
    let none = Named::default();
    let (kind, named) = match &a.requires {
        Requires::Nothing => (1, &none),
        Requires::Encryption => (2, &none),
        Requires::Certificate => (3, &none),
        Requires::Named(named) => (4, named),
    };
    row.push(Datum::UInt(kind));
    let names = [&named.cipher, &named.issuer, &named.subject];
    row.extend(names.map(|name| Datum::text(name.clone().unwrap_or_default())));
    let (policy, limits) = (&a.policy, a.policy.limits);
    let most = [limits.questions, limits.updates, limits.connections, a.max_user_connections];
    row.extend(most.map(|count| Datum::UInt(count.into())));
    let number = |value: Option<u16>| value.map_or(Datum::Null, |n| Datum::UInt(n.into()));
    row.extend([
        Datum::text(a.auth.plugin.name()),
        Datum::text(a.auth.secret.text()),
        flag(policy.expired),
        policy.changed.map_or(Datum::Null, |at| Datum::Int((at * 1_000_000).cast_signed())),
        number(policy.lifetime),
    ]);
    row.extend([
        flag(a.is_locked),
        flag(a.global.contains(Privileges::CREATE_ROLE)),
        flag(a.global.contains(Privileges::DROP_ROLE)),
    ]);
    row.extend([
        number(policy.history),
        number(policy.reuse_days),
        policy.require_current.map_or(Datum::Null, flag),
        policy
            .user_attributes(a.second.as_ref())
            .map_or(Datum::Null, |value| Datum::Json(json::binary::encode(&value).into())),
    ]);
    row
}

fn database_rows(a: &Account) -> Vec<Row> {
    let one = |(database, held): (&String, &Privileges)| {
        let [host, user] = host_and_user(&a.name);
        let mut row = vec![host, Datum::text(database.clone()), user];
        row.extend(flags(*held, OF_DATABASE));
        row
    };
    a.databases.iter().map(one).collect()
}

fn table_rows(a: &Account) -> Vec<Row> {
    let one = |key: &(String, String)| {
        let on_table = members(a.tables.get(key).copied().unwrap_or_default(), &OF_TABLE);
        let on_columns = members(a.columns.get(key).map_or(Privileges::NONE, Columns::any), &OF_COLUMN);
        [&place(a, key)[..], &[Datum::text(""), Datum::Null, on_table, on_columns]].concat()
    };
    a.tables.keys().chain(a.columns.keys()).collect::<BTreeSet<_>>().into_iter().map(one).collect()
}

fn column_rows(a: &Account) -> Vec<Row> {
    let of_table = |(key, columns): (&(String, String), &Columns)| {
        let one = |(name, held): (&str, Privileges)| {
            [&place(a, key)[..], &[Datum::text(name.to_owned()), Datum::Null, members(held, &OF_COLUMN)]].concat()
        };
        columns.iter().map(one).collect::<Vec<_>>()
    };
    a.columns.iter().flat_map(of_table).collect()
}

/// A SET of the privileges with these names.
fn members(held: Privileges, names: &[&str]) -> Datum<'static> {
    let privileges = names.iter().map(|name| privilege(name));
    Datum::UInt(privileges.enumerate().filter(|(_, p)| held.contains(*p)).fold(0, |set, (i, _)| set | 1 << i))
}

/// Host, database, user and table.
fn place(a: &Account, (database, table): &(String, String)) -> [Datum<'static>; 4] {
    let [host, user] = host_and_user(&a.name);
    [host, Datum::text(database.clone()), user, Datum::text(table.clone())]
}

fn routine_rows(a: &Account) -> Vec<Row> {
    let one = |((kind, database, name), held): (&routine::Key, &Privileges)| {
        let kind = ROUTINE_KINDS.iter().position(|known| *known == kind.name()).map_or(0, |at| at as u64 + 1);
        let [host, user] = host_and_user(&a.name);
        let place = [host, Datum::text(database.clone()), user, Datum::text(name.clone())];
        [&place[..], &[Datum::UInt(kind), Datum::text(""), members(*held, &OF_ROUTINE), Datum::Null]].concat()
    };
    a.routines.iter().map(one).collect()
}

fn role_rows(a: &Account) -> Vec<Row> {
    let one = |(role, admin): (&AccountName, &bool)| {
        [&host_and_user(role)[..], &host_and_user(&a.name), &[flag(*admin)]].concat()
    };
    a.roles.iter().map(one).collect()
}

fn default_role_rows(a: &Account) -> Vec<Row> {
    a.default_roles.iter().map(|role| [host_and_user(&a.name), host_and_user(role)].concat()).collect()
}

fn dynamic_rows(a: &Account) -> Vec<Row> {
    let may_grant = a.global.contains(Privileges::GRANT_OPTION);
    let one = |name| {
        let [host, user] = host_and_user(&a.name);
        vec![user, host, Datum::text(name), flag(may_grant)]
    };
    a.global.dynamic_names().into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::grant_tables::table;
    use crate::{
        accounts::{Auth, Secret},
        wire::auth::AuthPlugin,
    };

    #[test]
    fn every_privilege_has_its_column_and_every_row_its_columns() {
        let all = OF_USER.split_whitespace().map(privilege).fold(Privileges::NONE, Privileges::union);
        let roles = Privileges::CREATE_ROLE.union(Privileges::DROP_ROLE);
        let missing = Privileges::GLOBAL.union(Privileges::GRANT_OPTION).without(all.union(roles));
        assert_eq!(missing.names(), Vec::<&str>::new());
        let of_databases = OF_DATABASE.split_whitespace().map(privilege).fold(Privileges::NONE, Privileges::union);
        assert_eq!(of_databases, Privileges::ON_DATABASE.union(Privileges::GRANT_OPTION));
        let of_tables = OF_TABLE.iter().map(|n| privilege(n)).fold(Privileges::NONE, Privileges::union);
        assert_eq!(of_tables, Privileges::ON_TABLE.union(Privileges::GRANT_OPTION));
        let auth = Auth { plugin: AuthPlugin::CachingSha2Password, secret: Secret::Empty };
        let mut a = Account::new(AccountName::new("u", "%"), auth);
        a.global = Privileges::CONNECTION_ADMIN;
        a.databases.insert("d".into(), Privileges::SELECT);
        a.tables.insert(("d".into(), "t".into()), Privileges::SELECT.union(Privileges::GRANT_OPTION));
        a.routines.insert(routine::key(routine::Kind::Function, "d", "p"), Privileges::EXECUTE);
        a.roles.insert(AccountName::new("r", "%"), true);
        a.default_roles.insert(AccountName::new("r", "%"));
        let found = [
            ("user", vec![user_row(&a)]),
            ("db", database_rows(&a)),
            ("tables_priv", table_rows(&a)),
            ("procs_priv", routine_rows(&a)),
            ("role_edges", role_rows(&a)),
            ("default_roles", default_role_rows(&a)),
            ("global_grants", dynamic_rows(&a)),
        ];
        for (name, rows) in found {
            assert_eq!(
                rows.iter().map(Vec::len).collect::<Vec<_>>(),
                [table(name).unwrap().schema.columns.len()],
                "{name}"
            );
        }
        assert_eq!(table_rows(&a)[0][6], Datum::UInt(0b100_0001));
    }
}

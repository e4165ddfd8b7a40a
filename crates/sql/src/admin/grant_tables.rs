//! The grant tables of database `mysql`, as tools read them: who there is and what he may do, made from the directory of accounts.
//!
//! They are virtual like those of INFORMATION_SCHEMA, are read by who has SELECT on them, and change by CREATE USER, GRANT and their kin alone. The database is in no list of
//! databases, so that no dump holds the tables, which Apus would not load. A real database of this name, which a dump of MySQL may have brought, stands in front of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::OnceLock,
};

use apus_types::{Column, ColumnType, TableSchema, collate::Collation, schema::DefaultValue};

use super::information_schema::{Row, virtual_schema};
use crate::{
    accounts::{Account, AccountName, Columns, Privileges, Requires, requires::Named},
    catalog::Table,
    monitor::slow::{Entry, SlowLog},
    program::routine,
    session::authorize::Identity,
    value::{datum::Datum, enum_set, json},
};

pub const DATABASE: &str = "mysql";
/// Statements that took long, which is no grant table.
pub const SLOW_LOG: &str = "slow_log";

/// Privileges as columns of `user`: in the order of their numbers but for GRANT, which stands behind FILE.
const OF_USER: &str = "Select Insert Update Delete Create Drop Reload Shutdown Process File Grant References Index Alter Show_db Super \
                       Create_tmp_table Lock_tables Execute Repl_slave Repl_client Create_view Show_view Create_routine Alter_routine \
                       Create_user Event Trigger Create_tablespace";
const OF_DATABASE: &str = "Select Insert Update Delete Create Drop Grant References Index Alter Create_tmp_table Lock_tables Create_view Show_view \
                           Create_routine Alter_routine Execute Event Trigger";
/// Members of `tables_priv.Table_priv`.
const OF_TABLE: [&str; 13] = [
    "Select",
    "Insert",
    "Update",
    "Delete",
    "Create",
    "Drop",
    "Grant",
    "References",
    "Index",
    "Alter",
    "Create View",
    "Show view",
    "Trigger",
];
const OF_COLUMN: [&str; 4] = ["Select", "Insert", "Update", "References"];
const ROUTINE_KINDS: [&str; 3] = ["FUNCTION", "PROCEDURE", "LIBRARY"];
const OF_ROUTINE: [&str; 3] = ["Execute", "Alter Routine", "Grant"];
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

fn filled(name: &str, ty: ColumnType, default: &str) -> Column {
    Column { nullable: false, default: DefaultValue::Literal(default.into()), ..Column::new(name, ty) }
}
fn host(name: &str) -> Column {
    filled(name, ColumnType::Char { length: 255, collation: Collation::AsciiGeneralCi }, "")
}
fn named(name: &str, length: u16) -> Column {
    filled(name, ColumnType::Char { length, collation: Collation::Utf8mb3Bin }, "")
}
fn user(name: &str) -> Column {
    named(name, 32)
}
fn labelled(name: &str, is_set: bool, list: &[&str]) -> Column {
    let first = list[0];
    let list = list.iter().map(|label| (*label).to_owned()).collect();
    let ty = enum_set::define(name, is_set, Collation::Utf8mb3GeneralCi, list);
    // Lists so short are refused only if definitions have brought 64 MiB of others.
    filled(name, ty.unwrap_or(ColumnType::Int { bits: 64, unsigned: true }), if is_set { "" } else { first })
}
fn yes(name: &str) -> Column {
    labelled(name, false, &["N", "Y"])
}
fn number(name: &str) -> Column {
    filled(name, ColumnType::Int { bits: 32, unsigned: true }, "0")
}
fn grantor() -> Column {
    filled("Grantor", ColumnType::VarChar { length: 288, collation: Collation::Utf8mb3Bin }, "")
}
fn moment(name: &str) -> Column {
    Column::new(name, ColumnType::Timestamp { decimals: 0 })
}
fn nullable(column: Column) -> Column {
    Column { nullable: true, default: DefaultValue::None, ..column }
}
fn blob(name: &str) -> Column {
    Column { nullable: false, ..Column::new(name, ColumnType::Blob { length: 65_535 }) }
}
fn small(name: &str) -> Column {
    Column::new(name, ColumnType::Int { bits: 16, unsigned: true })
}
fn privileges<'w>(words: &'w str) -> impl Iterator<Item = Column> + 'w {
    words.split_whitespace().map(|word| yes(&format!("{word}_priv")))
}

fn user_columns() -> Vec<Column> {
    let mut columns = vec![host("Host"), user("User")];
    columns.extend(privileges(OF_USER));
    columns.push(labelled("ssl_type", false, &["", "ANY", "X509", "SPECIFIED"]));
    columns.extend(["ssl_cipher", "x509_issuer", "x509_subject"].map(blob));
    columns.extend(["max_questions", "max_updates", "max_connections", "max_user_connections"].map(number));
    columns.extend([
        named("plugin", 64),
        Column::new("authentication_string", ColumnType::Text { length: 65_535, collation: Collation::Utf8mb3Bin }),
        yes("password_expired"),
    ]);
    columns.extend([moment("password_last_changed"), small("password_lifetime"), yes("account_locked")]);
    columns.extend([yes("Create_role_priv"), yes("Drop_role_priv"), small("Password_reuse_history")]);
    columns.extend([small("Password_reuse_time"), nullable(yes("Password_require_current"))]);
    columns.push(Column::new("User_attributes", ColumnType::Json));
    columns
}

fn tables() -> &'static BTreeMap<&'static str, TableSchema> {
    static TABLES: OnceLock<BTreeMap<&'static str, TableSchema>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let place = || vec![host("Host"), named("Db", 64), user("User")];
        let mut of_database = place();
        of_database.extend(privileges(OF_DATABASE));
        let with = |mut columns: Vec<Column>, more: Vec<Column>| {
            columns.extend(more);
            columns
        };
        let of_column = || labelled("Column_priv", true, &OF_COLUMN);
        let table_name = || named("Table_name", 64);
        let routine = vec![named("Routine_name", 64), labelled("Routine_type", false, &ROUTINE_KINDS), grantor()];
        let table =
            vec![table_name(), grantor(), moment("Timestamp"), labelled("Table_priv", true, &OF_TABLE), of_column()];
        let proxied =
            vec![host("Proxied_host"), user("Proxied_user"), number("With_grant"), grantor(), moment("Timestamp")];
        [
            ("user", user_columns()),
            ("db", of_database),
            ("tables_priv", with(place(), table)),
            (
                "columns_priv",
                with(place(), vec![table_name(), named("Column_name", 64), moment("Timestamp"), of_column()]),
            ),
            (
                "procs_priv",
                with(with(place(), routine), vec![labelled("Proc_priv", true, &OF_ROUTINE), moment("Timestamp")]),
            ),
            ("proxies_priv", with(vec![host("Host"), user("User")], proxied)),
            (
                "role_edges",
                vec![host("FROM_HOST"), user("FROM_USER"), host("TO_HOST"), user("TO_USER"), yes("WITH_ADMIN_OPTION")],
            ),
            ("default_roles", vec![host("HOST"), user("USER"), host("DEFAULT_ROLE_HOST"), user("DEFAULT_ROLE_USER")]),
            (SLOW_LOG, slow_log_columns()),
            ("global_grants", vec![user("USER"), host("HOST"), user("PRIV"), yes("WITH_GRANT_OPTION")]),
        ]
        .into_iter()
        .map(|(name, columns)| (name, virtual_schema(DATABASE, name, columns)))
        .collect()
    })
}

fn slow_log_columns() -> Vec<Column> {
    let whole = |name: &str, bits, unsigned| filled(name, ColumnType::Int { bits, unsigned }, "0");
    let is_not_null = |column: Column| Column { nullable: false, ..column };
    let time = |name: &str| is_not_null(Column::new(name, ColumnType::Time { decimals: 6 }));
    let collation = Collation::Utf8mb3GeneralCi;
    vec![
        is_not_null(Column::new("start_time", ColumnType::Timestamp { decimals: 6 })),
        is_not_null(Column::new("user_host", ColumnType::Text { length: 16_777_215, collation })),
        time("query_time"),
        time("lock_time"),
        whole("rows_sent", 32, false),
        whole("rows_examined", 32, false),
        filled("db", ColumnType::VarChar { length: 512, collation }, ""),
        whole("last_insert_id", 32, false),
        whole("insert_id", 32, false),
        whole("server_id", 32, true),
        is_not_null(Column::new("sql_text", ColumnType::Blob { length: 16_777_215 })),
        whole("thread_id", 64, true),
    ]
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

/// The columns of INFORMATION_SCHEMA.USER_ATTRIBUTES, which is made of `user`.
pub(crate) fn attribute_columns() -> Vec<Column> {
    let of_user = |column: Column| Column { nullable: false, ..column };
    let length = apus_types::limits::ROW_BYTES_MAX as u32;
    let attribute = Column::new("ATTRIBUTE", ColumnType::Text { length, collation: Collation::Utf8mb4Bin });
    vec![of_user(user("USER")), of_user(host("HOST")), attribute]
}

pub(crate) fn attribute_row(a: &Account) -> Row {
    let [host, user] = host_and_user(&a.name);
    vec![user, host, a.policy.attributes.clone().map_or(Datum::Null, Datum::text)]
}

pub fn table(name: &str) -> Option<Rc<Table>> {
    Some(Rc::new(Table::new(tables().get(name)?.clone(), Vec::new())))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    tables().keys().copied()
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
        policy.user_attributes().map_or(Datum::Null, |value| Datum::Json(json::binary::encode(&value).into())),
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
            assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [tables()[name].columns.len()], "{name}");
        }
        assert_eq!(table_rows(&a)[0][6], Datum::UInt(0b100_0001));
    }
}

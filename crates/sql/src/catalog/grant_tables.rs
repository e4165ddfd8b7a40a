//! The grant tables of database `mysql`, as the catalog has them. Their rows are made when they are read ([`crate::admin::grant_tables`]).

use std::{collections::BTreeMap, rc::Rc, sync::OnceLock};

use apus_types::{Column, ColumnType, TableSchema, collate::Collation, schema::DefaultValue};

use super::{Table, information_schema::virtual_schema};
use crate::value::enum_set;

pub const DATABASE: &str = "mysql";

/// Statements that took long, which is no grant table.
pub const SLOW_LOG: &str = "slow_log";

/// Privileges as columns of `user`: in the order of their numbers but for GRANT, which stands behind FILE.
pub(crate) const OF_USER: &str = "Select Insert Update Delete Create Drop Reload Shutdown Process File Grant References Index Alter Show_db Super \
                       Create_tmp_table Lock_tables Execute Repl_slave Repl_client Create_view Show_view Create_routine Alter_routine \
                       Create_user Event Trigger Create_tablespace";

pub(crate) const OF_DATABASE: &str = "Select Insert Update Delete Create Drop Grant References Index Alter Create_tmp_table Lock_tables Create_view Show_view \
                           Create_routine Alter_routine Execute Event Trigger";

/// Members of `tables_priv.Table_priv`.
pub(crate) const OF_TABLE: [&str; 13] = [
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

pub(crate) const OF_COLUMN: [&str; 4] = ["Select", "Insert", "Update", "References"];
pub(crate) const ROUTINE_KINDS: [&str; 3] = ["FUNCTION", "PROCEDURE", "LIBRARY"];
pub(crate) const OF_ROUTINE: [&str; 3] = ["Execute", "Alter Routine", "Grant"];

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

/// The columns of INFORMATION_SCHEMA.USER_ATTRIBUTES, which is made of `user`.
pub(crate) fn attribute_columns() -> Vec<Column> {
    let of_user = |column: Column| Column { nullable: false, ..column };
    let length = apus_types::limits::ROW_BYTES_MAX as u32;
    let attribute = Column::new("ATTRIBUTE", ColumnType::Text { length, collation: Collation::Utf8mb4Bin });
    vec![of_user(user("USER")), of_user(host("HOST")), attribute]
}

pub fn table(name: &str) -> Option<Rc<Table>> {
    Some(Rc::new(Table::new(tables().get(name)?.clone(), Vec::new())))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    tables().keys().copied()
}

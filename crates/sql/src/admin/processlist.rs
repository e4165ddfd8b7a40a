//! The connections of all SQL nodes: SHOW PROCESSLIST, information_schema.PROCESSLIST, and what is like it in performance_schema and sys.
//!
//! Who has not the privilege PROCESS sees the connections of its own user name. Times are of the command that runs, or since the last one ended; a statement is shown up to 4 KiB, and of other SQL nodes less where they
//! have very many.

use apus_types::{ColumnType, TableSchema};

use crate::{
    accounts::Privileges,
    catalog::{
        information_schema,
        performance_schema::{self, ACCOUNT_CONNECT_ATTRS, CONNECT_ATTRS},
        sys,
    },
    expr::Env,
    server::{ConnectAttribute, Process, limits},
    value::datum::{Datum, Row},
};

/// Characters of a statement that SHOW PROCESSLIST shows without FULL.
const INFO_CHARS: usize = 100;
const _: () = assert!(limits::INFO_BYTES_MAX >= INFO_CHARS * 4);

/// As SHOW PROCESSLIST has it.
pub(crate) fn cells(process: Process, full: bool) -> Vec<Option<String>> {
    let cut = |info: String| if full { info } else { info.chars().take(INFO_CHARS).collect() };
    vec![
        Some(process.id.to_string()),
        Some(process.user),
        Some(process.host),
        process.database,
        Some(process.command),
        Some(process.time.to_string()),
        Some(process.state),
        process.info.map(cut),
    ]
}

pub(crate) fn row(process: Process) -> Vec<Datum<'static>> {
    let text = |s: String| Datum::text(s);
    vec![
        Datum::Int(i64::from(process.id)),
        text(process.user),
        text(process.host),
        process.database.map_or(Datum::Null, text),
        text(process.command),
        Datum::Int(i64::try_from(process.time).unwrap_or(i64::MAX)),
        text(process.state),
        process.info.map_or(Datum::Null, text),
    ]
}

/// What the session may see of what the statement knows ([`crate::session::peers`]), by id.
pub(crate) fn list(env: &Env) -> impl Iterator<Item = Process> {
    let sees_all = env.me.as_ref().is_none_or(|me| me.rights.global.contains(Privileges::PROCESS));
    let sees = move |process: &Process| sees_all || process.is_known && process.user == env.user;
    all(env).filter(sees)
}

fn all(env: &Env) -> impl Iterator<Item = Process> {
    let known = env.processes.borrow().as_ref().map(|known| known.all.clone());
    known.map(|all| all.to_vec()).unwrap_or_default().into_iter()
}

/// Attributes of connections, of all or of those of the session's own account.
pub(crate) fn attribute_rows(schema: &TableSchema, env: &Env, own: bool) -> Vec<Row> {
    let is_own = |process: &Process| process.user == env.user && process.host == env.host;
    let seen = all(env).filter(|process| process.is_known && (!own || is_own(process)));
    let row = |(id, at, attribute): (u32, usize, ConnectAttribute)| {
        let fits = |text: String, most: u16| text.chars().take(most.into()).collect::<String>();
        let most = |column: usize| match schema.columns[column].ty {
            ColumnType::VarChar { length, .. } => length,
            _ => u16::MAX,
        };
        vec![
            Datum::UInt(id.into()),
            Datum::text(fits(attribute.name, most(1))),
            Datum::text(fits(attribute.value, most(2))),
            Datum::Int(at as i64),
        ]
    };
    let of = |process: Process| process.attributes.into_iter().enumerate().map(move |(at, a)| (process.id, at, a));
    seen.flat_map(of).map(row).collect()
}

/// Whether the rows of a virtual table are made of the list; and if so, whether of attributes, too.
pub(crate) fn is_of_processes(database: &str, table: &str) -> Option<bool> {
    let (is_it, with_attributes) = match database {
        information_schema::DATABASE => (table == "PROCESSLIST", false),
        performance_schema::DATABASE => {
            let of_attributes = matches!(table, CONNECT_ATTRS | ACCOUNT_CONNECT_ATTRS);
            (of_attributes || matches!(table, "threads" | "processlist"), of_attributes)
        }
        sys::DATABASE => (matches!(table.strip_prefix("x$").unwrap_or(table), "processlist" | "session"), false),
        _ => (false, false),
    };
    is_it.then_some(with_attributes)
}

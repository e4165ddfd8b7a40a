//! What tools read of PERFORMANCE_SCHEMA: variables, what is counted of the SQL node, the list of processes, and statements by their normal form ([`crate::monitor::digests`]). Most others never have a row ([`crate::catalog::performance_schema`]); it is in no list of databases.
//!
//! They are virtual like those of INFORMATION_SCHEMA. A real database of this name stands in front of them.

use std::collections::BTreeMap;

use apus_types::TableSchema;

use super::{events, processlist};
use crate::{
    catalog::{
        Catalog,
        performance_schema::{ACCOUNT_CONNECT_ATTRS, CONNECT_ATTRS, DIGESTS, GLOBAL_STATUS, SESSION_STATUS},
    },
    expr::Env,
    server::Process,
    value::datum::{Datum, Row},
};

/// All rows of one of them, one value per column of its schema.
pub fn rows(schema: &TableSchema, catalog: &Catalog, env: &Env) -> Vec<Row> {
    let name = schema.name.as_str();
    let variables = |global| env.list_variables(global).into_iter().map(|(name, value)| pair(name, value)).collect();
    match name {
        "global_variables" => variables(true),
        "persisted_variables" => {
            env.variables.of_node().persisted().into_iter().map(|(name, value)| pair(name, value)).collect()
        }
        "session_variables" => variables(false),
        GLOBAL_STATUS => {
            let (node, tables) = (env.variables.of_node(), catalog.counted());
            let list = env.connections.as_ref().map(|registry| {
                node.status.list_of_node(registry, env.spill_space().figures(), tables, node.slow.dropped())
            });
            list.into_iter().flatten().map(|(name, value)| pair(name.to_owned(), value)).collect()
        }
        SESSION_STATUS => {
            let list = env.session_status.borrow();
            list.iter().map(|(name, value)| pair((*name).to_owned(), value.clone())).collect()
        }
        "threads" => processlist::list(env).map(|process| thread_row(schema, process)).collect(),
        CONNECT_ATTRS => processlist::attribute_rows(schema, env, false),
        ACCOUNT_CONNECT_ATTRS => processlist::attribute_rows(schema, env, true),
        "setup_consumers" => CONSUMERS.map(|(name, is_on)| vec![Datum::text(name), yes(is_on)]).into(),
        "setup_actors" => {
            let anybody = || Datum::text("%");
            vec![vec![anybody(), anybody(), anybody(), yes(true), yes(true)]]
        }
        "setup_instruments" => events::instruments().map(|name| instrument_row(schema, &name)).collect(),
        "events_statements_current" => events::current(schema, env),
        "events_statements_history" => events::history(schema, env),
        DIGESTS => env.variables.of_node().digests.rows(),
        "processlist" => processlist::list(env).map(process_row).collect(),
        _ => Vec::new(),
    }
}

/// What MySQL can collect, and whether it is collected here, at each SQL node. Nobody can change it.
const CONSUMERS: [(&str, bool); 16] = [
    ("events_stages_current", false),
    ("events_stages_history", false),
    ("events_stages_history_long", false),
    ("events_statements_cpu", false),
    ("events_statements_current", true),
    ("events_statements_history", true),
    ("events_statements_history_long", false),
    ("events_transactions_current", false),
    ("events_transactions_history", false),
    ("events_transactions_history_long", false),
    ("events_waits_current", false),
    ("events_waits_history", false),
    ("events_waits_history_long", false),
    ("global_instrumentation", true),
    ("thread_instrumentation", true),
    ("statements_digest", true),
];

/// As a value of a column with the labels YES and NO.
fn yes(is_on: bool) -> Datum<'static> {
    Datum::UInt(if is_on { 1 } else { 2 })
}

fn instrument_row(schema: &TableSchema, name: &str) -> Row {
    let (name, nothing) = (Datum::text(name.to_owned()), Datum::UInt(0));
    filled(schema, [("NAME", name), ("ENABLED", yes(true)), ("TIMED", yes(true)), ("PROPERTIES", nothing)])
}

fn pair(name: String, value: String) -> Row {
    vec![Datum::text(name), Datum::text(value)]
}

/// A row of a table by the names of its columns; what is not given is NULL, 0 or the first label.
pub(super) fn filled<const N: usize>(schema: &TableSchema, values: [(&str, Datum<'static>); N]) -> Row {
    filled_by(schema, values.into())
}

pub(super) fn filled_by(schema: &TableSchema, mut values: BTreeMap<&str, Datum<'static>>) -> Row {
    let of = |column: &apus_types::Column| match values.remove(column.name.as_str()) {
        Some(value) => value,
        None if column.nullable => Datum::Null,
        None if column.ty.is_text() => Datum::text(String::new()),
        None => Datum::UInt(u64::from(matches!(column.ty, apus_types::ColumnType::Label { .. }))),
    };
    let row = schema.columns.iter().map(of).collect();
    assert!(values.is_empty(), "columns that {} has not", schema.name);
    row
}

fn thread_row(schema: &TableSchema, process: Process) -> Row {
    let text = |s: Option<String>| s.map_or(Datum::Null, Datum::text);
    let id = Datum::UInt(u64::from(process.id));
    filled(
        schema,
        [
            ("THREAD_ID", id.clone()),
            ("NAME", Datum::text("thread/sql/one_connection")),
            ("TYPE", Datum::text("FOREGROUND")),
            ("PROCESSLIST_ID", id),
            ("PROCESSLIST_USER", Datum::text(process.user)),
            ("PROCESSLIST_HOST", Datum::text(process.host)),
            ("PROCESSLIST_DB", text(process.database)),
            ("PROCESSLIST_COMMAND", Datum::text(process.command)),
            ("PROCESSLIST_TIME", Datum::Int(i64::try_from(process.time).unwrap_or(i64::MAX))),
            ("PROCESSLIST_STATE", text(Some(process.state.to_owned()).filter(|state| !state.is_empty()))),
            ("PROCESSLIST_INFO", text(process.info)),
            ("CONNECTION_TYPE", Datum::text("TCP/IP")),
            ("EXECUTION_ENGINE", Datum::UInt(1)),
            ("TELEMETRY_ACTIVE", Datum::UInt(2)),
        ],
    )
}

fn process_row(process: Process) -> Row {
    let mut row = processlist::row(process);
    row.push(Datum::UInt(1));
    row
}

/// TRUNCATE of the one that may be; whether it is one.
pub fn truncate(name: &str, env: &Env) -> bool {
    let is_it = name == DIGESTS;
    if is_it {
        env.variables.of_node().digests.forget();
    }
    is_it
}

//! What tools read of PERFORMANCE_SCHEMA: variables, what is counted of the SQL node, the list of processes, and statements by their normal form ([`crate::monitor::digests`]). Most others never have a row ([`crate::catalog::performance_schema`]); it is in no list of databases.
//!
//! They are virtual like those of INFORMATION_SCHEMA. A real database of this name stands in front of them.

use super::processlist::{self, Process};
use crate::{
    catalog::{
        Catalog,
        performance_schema::{DIGESTS, GLOBAL_STATUS},
    },
    expr::Env,
    value::datum::{Datum, Row},
};

/// All rows of one of them, one value per column of its schema.
pub fn rows(name: &str, catalog: &Catalog, env: &Env) -> Vec<Row> {
    let variables = |global| env.list_variables(global).into_iter().map(|(name, value)| pair(name, value)).collect();
    match name {
        "global_variables" => variables(true),
        "persisted_variables" => {
            env.variables.of_node().persisted().into_iter().map(|(name, value)| pair(name, value)).collect()
        }
        "session_variables" => variables(false),
        GLOBAL_STATUS => {
            let (node, tables) = (env.variables.of_node(), catalog.tables().count());
            let list = env.connections.as_ref().map(|registry| {
                node.status.list_of_node(registry, env.spill_space().figures(), tables, node.slow.dropped())
            });
            list.into_iter().flatten().map(|(name, value)| pair(name.to_owned(), value)).collect()
        }
        DIGESTS => env.variables.of_node().digests.rows(),
        "processlist" => processlist::list(env).map(process_row).collect(),
        _ => Vec::new(),
    }
}

fn pair(name: String, value: String) -> Row {
    vec![Datum::text(name), Datum::text(value)]
}

fn process_row(process: Process) -> Row {
    let mut row = process.row();
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

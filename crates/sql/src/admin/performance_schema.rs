//! What tools read of PERFORMANCE_SCHEMA: variables, the list of processes, and statements by their normal form ([`crate::monitor::digests`]). Its other tables are not there (error 1146), and it is in no list of databases.
//!
//! They are virtual like those of INFORMATION_SCHEMA. A real database of this name stands in front of them.

use super::processlist::{self, Process};
use crate::{
    catalog::performance_schema::DIGESTS,
    expr::Env,
    value::datum::{Datum, Row},
};

/// All rows of one of them, one value per column of its schema.
pub fn rows(name: &str, env: &Env) -> Vec<Row> {
    let variables = |global| {
        let list = env.list_variables(global).into_iter();
        list.map(|(name, value)| vec![Datum::text(name), Datum::text(value)]).collect()
    };
    match name {
        "global_variables" => variables(true),
        "session_variables" => variables(false),
        DIGESTS => env.variables.of_node().digests.rows(),
        "processlist" => processlist::list(env).map(process_row).collect(),
        _ => Vec::new(),
    }
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

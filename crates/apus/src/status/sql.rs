//! What the SQL nodes tell: how many connections each has, and how far the definitions are that they make. It is what SHOW PROCESSLIST tells, asked in the same way ([`apus_sql::session::peers`]).

use std::fmt::Write as _;

use apus_client::{Client, ClientConfig};
use apus_signal::mgmt::StatusConf;
use apus_sql::{
    server::{Process, Progress},
    session::peers::{Heard, hear_all},
    wire::SqlError,
};
use serde_json::{Value, json};

use crate::discover::Access;

/// Longest that a data node is looked for to ask through.
const CONNECT_MS: u64 = 1_000;

/// Asks all SQL nodes. Where no data node serves, nobody is asked.
pub fn ask(status: &StatusConf, access: &Access) -> Heard {
    if !status.nodes.iter().any(|node| super::state_name(node) == "up") {
        return Heard::default();
    }
    let failed = |why: String| Heard { failed: Some(SqlError::new(1105, b"HY000", why)), ..Heard::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (runtime, id) = match (runtime, crate::random_id()) {
        (Ok(runtime), Ok(id)) => (runtime, id),
        (Err(e), _) => return failed(e.to_string()),
        (_, Err(e)) => return failed(e),
    };
    let mut config = ClientConfig::new(crate::discover::each(&access.mgmt), id);
    config.secret = access.secret.clone();
    config.name = format!("{} status", crate::build_id());
    config.connect_timeout_ms = CONNECT_MS;
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        match Client::connect(config).await {
            Ok(client) => hear_all(&client).await,
            Err(e) => failed(e.to_string()),
        }
    }))
}

/// Number of the SQL node, the connection, and how far it is.
fn definitions(heard: &Heard) -> impl Iterator<Item = (u32, &Process, &Progress)> {
    heard.answers.iter().flat_map(|(node, answer)| {
        answer.processes.iter().filter_map(|process| Some((node.number, process, process.progress.as_ref()?)))
    })
}

pub fn to_json(heard: &Heard) -> (Value, Value) {
    let answering = heard.answers.iter().map(|(node, answer)| {
        let connections = answer.processes.len() as u64 + answer.left_out;
        json!({ "number": node.number, "address": node.name, "answers": true, "connections": connections })
    });
    let silent = heard
        .silent
        .iter()
        .map(|node| json!({ "number": node.number, "address": node.name, "answers": false, "connections": null }));
    let definition = |(number, process, progress): (u32, &Process, &Progress)| {
        let rows = progress.rows;
        let whole = |value: f64| value.round() as u64;
        json!({
            "sql": number,
            "connection": process.id,
            "user": process.user,
            "seconds": process.time,
            "database": progress.database,
            "table": progress.table,
            "phase": progress.phase,
            "rows": rows.map(|rows| rows.done),
            "rows_in_all": rows.and_then(|rows| rows.of_about()),
            "rows_per_second": rows.and_then(|rows| rows.rate()).map(whole),
            "remaining_seconds": rows.and_then(|rows| rows.seconds_left()).map(whole),
            "state": progress.text(),
        })
    };
    (answering.chain(silent).collect(), definitions(heard).map(definition).collect())
}

pub fn to_table(heard: &Heard) -> String {
    let mut out = String::new();
    for (node, answer) in &heard.answers {
        let connections = answer.processes.len() as u64 + answer.left_out;
        let _ = writeln!(out, "SQL node {} ({}): {connections} connections", node.number, node.name);
    }
    for (number, process, progress) in definitions(heard) {
        let (table, state) = (format!("{}.{}", progress.database, progress.table), progress.text());
        let _ = writeln!(
            out,
            "SQL node {number} changes {table} (connection {}, for {} s): {state}",
            process.id, process.time
        );
    }
    for node in &heard.silent {
        let _ = writeln!(out, "SQL node {} ({}) does not answer", node.number, node.name);
    }
    if let Some(e) = &heard.failed {
        let _ = writeln!(out, "the SQL nodes could not be asked: {}", e.message);
    }
    out
}

#[cfg(test)]
mod tests {
    use apus_sql::{
        server::RowsDone,
        session::peers::{Answer, Node},
    };

    use super::*;

    #[test]
    fn definitions_are_told_in_the_words_of_the_process_list() {
        let node = |number| Node {
            number,
            owner: 1,
            answered: 1,
            name: format!("host:{number}"),
            outcomes: Default::default(),
        };
        let rows = Some(RowsDone { done: 50, total: 200, seconds: 2.0 });
        let progress = Progress { database: "shop".into(), table: "item".into(), phase: "copying rows".into(), rows };
        let busy = Process { id: 10_000_003, time: 3, progress: Some(progress), ..Process::default() };
        let answer = Answer { processes: vec![Process::default(), busy], left_out: 0 };
        let heard = Heard { answers: vec![(node(1), answer)], silent: vec![node(2)], failed: None };
        assert_eq!(
            to_table(&heard),
            "SQL node 1 (host:1): 2 connections\n\
             SQL node 1 changes shop.item (connection 10000003, for 3 s): copying rows: 50 rows of about 200, 25/s, 6 s left\n\
             SQL node 2 (host:2) does not answer\n"
        );
        let (nodes, definitions) = to_json(&heard);
        assert_eq!((&nodes[0]["connections"], &nodes[1]["answers"]), (&json!(2), &json!(false)));
        let told = &definitions[0];
        let figures = ["rows", "rows_in_all", "rows_per_second", "remaining_seconds"].map(|name| told[name].as_u64());
        assert_eq!(figures, [50, 200, 25, 6].map(Some));
        assert_eq!(told["state"], "copying rows: 50 rows of about 200, 25/s, 6 s left");
    }
}

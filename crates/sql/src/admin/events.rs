//! PERFORMANCE_SCHEMA.events_statements_current and _history: what connections of this SQL node run, and have last run.
//!
//! `current` is the statement that runs, or else the last one that has ended; `history` are the last of those that have, [`limits::PASTS_MAX`] at most of a connection, with 1 KiB of text. A command with several statements is one.
//! Texts that may tell a password are shown without literals. Who has not the privilege PROCESS sees connections of its own user name.

use std::time::{Duration, Instant};

use apus_types::TableSchema;
use sha2::{Digest as _, Sha256};

use super::performance_schema::filled;
use crate::{
    accounts::Privileges,
    expr::Env,
    monitor::{access, digest_text},
    parse::digest::{Digest, Form, Syntax},
    server::{ConnectionEntry, Figures, Past},
    value::datum::{Datum, Row},
};

/// Picoseconds of a nanosecond.
const PICOS: u64 = 1000;

/// What is to be told of a statement.
struct Told {
    number: u64,
    began: Instant,
    /// `None`: it runs.
    took: Option<Duration>,
    database: String,
    statement: String,
    figures: Figures,
}

impl Told {
    fn of(past: Past) -> Told {
        let statement = String::from_utf8_lossy(&past.statement).into_owned();
        let Past { number, began, took, database, figures, .. } = past;
        Told { number, began, took: Some(took), database, statement, figures }
    }
}

fn seen(env: &Env) -> impl Iterator<Item = ConnectionEntry> {
    let sees_all = env.me.as_ref().is_none_or(|me| me.rights.global.contains(Privileges::PROCESS));
    let all = env.connections.as_ref().map(|registry| registry.list()).unwrap_or_default();
    all.into_iter().filter(move |entry| !entry.user.is_empty() && (sees_all || entry.user == env.user))
}

pub(super) fn current(schema: &TableSchema, env: &Env) -> Vec<Row> {
    let of = |entry: ConnectionEntry| {
        let (doing, last) = (entry.activity.look(), entry.activity.past().pop());
        let number = last.as_ref().map_or(0, |past| past.number);
        let running = doing.statement().map(|statement| Told {
            number: number + 1,
            began: doing.since,
            took: None,
            database: doing.database.clone(),
            statement,
            figures: Figures::default(),
        });
        running.or_else(|| last.map(Told::of)).map(|told| row(schema, env, entry.id, &told))
    };
    seen(env).filter_map(of).collect()
}

pub(super) fn history(schema: &TableSchema, env: &Env) -> Vec<Row> {
    let of = |entry: ConnectionEntry| {
        let id = entry.id;
        entry.activity.past().into_iter().map(move |past| row(schema, env, id, &Told::of(past)))
    };
    seen(env).flat_map(of).collect()
}

/// As the names of instruments say it.
fn event_name(statement: &str) -> String {
    let verb: String = statement.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let verb = verb.to_ascii_lowercase();
    match VERBS.iter().find(|(known, _)| *known == verb) {
        Some((_, name)) => format!("statement/sql/{name}"),
        None => OTHERS.to_owned(),
    }
}

/// Verbs, and how instruments call them.
const VERBS: [(&str, &str); 17] = [
    ("begin", "begin"),
    ("call", "call_procedure"),
    ("commit", "commit"),
    ("delete", "delete"),
    ("do", "do"),
    ("flush", "flush"),
    ("insert", "insert"),
    ("kill", "kill"),
    ("load", "load"),
    ("replace", "replace"),
    ("rollback", "rollback"),
    ("savepoint", "savepoint"),
    ("select", "select"),
    ("set", "set_option"),
    ("truncate", "truncate"),
    ("update", "update"),
    ("use", "change_db"),
];
/// The instrument of all other statements.
const OTHERS: &str = "statement/com/Query";

/// The instruments by which statements are told.
pub(super) fn instruments() -> impl Iterator<Item = String> {
    let named = VERBS.iter().map(|(_, name)| format!("statement/sql/{name}"));
    named.chain([OTHERS.to_owned()])
}

fn row(schema: &TableSchema, env: &Env, id: u32, told: &Told) -> Row {
    let normal = normal_form(&told.statement);
    let digest: String = Sha256::digest(&normal).iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = if digest_text::is_secret(told.statement.as_bytes()) { normal.clone() } else { told.statement.clone() };
    let since_start = |at: Instant| at.saturating_duration_since(env.variables.of_node().status.began());
    let picos = |time: Duration| Datum::UInt(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(PICOS));
    let took = told.took.unwrap_or_else(|| told.began.elapsed());
    let (number, figures) = (Datum::UInt(told.number), &told.figures);
    let has = |bit: u8| Datum::UInt(u64::from(figures.traits & bit != 0));
    let text = |s: &str| if s.is_empty() { Datum::Null } else { Datum::text(s.to_owned()) };
    filled(
        schema,
        [
            ("THREAD_ID", Datum::UInt(u64::from(id))),
            ("EVENT_ID", number.clone()),
            ("END_EVENT_ID", if told.took.is_some() { number } else { Datum::Null }),
            ("EVENT_NAME", Datum::text(event_name(&told.statement))),
            ("TIMER_START", picos(since_start(told.began))),
            ("TIMER_END", picos(since_start(told.began) + took)),
            ("TIMER_WAIT", picos(took)),
            ("SQL_TEXT", text(&shown)),
            ("DIGEST", if normal.is_empty() { Datum::Null } else { Datum::text(digest) }),
            ("DIGEST_TEXT", text(&normal)),
            ("CURRENT_SCHEMA", text(&told.database)),
            ("ERRORS", Datum::UInt(u64::from(figures.is_failed))),
            ("WARNINGS", Datum::UInt(figures.warnings)),
            ("ROWS_AFFECTED", Datum::UInt(figures.affected)),
            ("ROWS_SENT", Datum::UInt(figures.sent)),
            ("ROWS_EXAMINED", Datum::UInt(figures.examined)),
            ("CREATED_TMP_TABLES", has(access::TEMPORARY)),
            ("SELECT_FULL_JOIN", has(access::FULL_JOIN)),
            ("SELECT_RANGE", has(access::RANGE)),
            ("SELECT_SCAN", has(access::SCAN)),
            ("SORT_RANGE", has(access::SORT_RANGE)),
            ("SORT_SCAN", has(access::SORT_SCAN)),
            ("NO_INDEX_USED", has(access::NO_INDEX)),
            ("NESTING_EVENT_LEVEL", Datum::Int(0)),
            ("EXECUTION_ENGINE", Datum::UInt(1)),
        ],
    )
}

/// As the digests have it; of a text that was cut, or is none, nothing.
fn normal_form(statement: &str) -> String {
    let mut digest = Digest::default();
    match digest.scan(statement.as_bytes(), Form::Digest, Syntax::default()) {
        Ok(_) => digest_text::of(&String::from_utf8_lossy(&digest.text)),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_named_by_their_verbs() {
        assert_eq!(event_name(" SELECT 1"), "statement/sql/select");
        assert_eq!(event_name("SET @x = 1"), "statement/sql/set_option");
        assert_eq!(event_name("CREATE TABLE t (a INT)"), "statement/com/Query");
    }

    #[test]
    fn literals_are_left_out() {
        assert_eq!(normal_form("SELECT a FROM t WHERE id = 7"), "SELECT `a` FROM `t` WHERE `id` = ?");
        assert_eq!(normal_form("SELECT 'x"), "");
    }
}

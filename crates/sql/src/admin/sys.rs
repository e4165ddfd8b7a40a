//! Views of the schema `sys` that have rows: its version, redundant indexes, statements by their normal form, processes.
//!
//! They are virtual ([`crate::catalog::sys`]). Those called `x$` have numbers where the others have texts for people.

use std::collections::BTreeMap;

use apus_types::TableSchema;

use super::{information_schema::constraints::statistics_rows, performance_schema::filled_by, processlist};
use crate::{
    catalog::{Catalog, Table},
    expr::Env,
    parse::view_text::quoted,
    server::Process,
    value::datum::{Datum, Row},
    wire::constants::SERVER_VERSION,
};

/// As MySQL's has it.
const SYS_VERSION: &str = "2.1.3";
/// Characters of a statement that views for people show: `statement_truncate_len`.
const SHOWN_CHARS: usize = 64;

/// All rows of one of them, one value per column of its schema.
pub fn rows(schema: &TableSchema, catalog: &Catalog, env: &Env) -> Vec<Row> {
    let (is_plain, name) = match schema.name.strip_prefix("x$") {
        Some(name) => (true, name),
        None => (false, schema.name.as_str()),
    };
    match name {
        "version" => vec![vec![Datum::text(SYS_VERSION), Datum::text(SERVER_VERSION)]],
        "schema_redundant_indexes" => redundant(schema, catalog, env),
        "statement_analysis" => analysis(schema, env, is_plain),
        "processlist" | "session" => {
            processlist::list(env).map(|process| process_row(schema, process, is_plain)).collect()
        }
        _ => Vec::new(),
    }
}

/// Not more than so many characters, the middle left out.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN_CHARS {
        return text.replace('\n', " ");
    }
    let half = SHOWN_CHARS / 2 - 2;
    let end: String = text.chars().skip(count - half).collect();
    format!("{} ... {end}", text.chars().take(half).collect::<String>()).replace('\n', " ")
}

/// A time in picoseconds as people read it.
fn time(picos: u64) -> String {
    const UNITS: [(f64, &str); 7] = [
        (1e12 * 86_400.0, "d"),
        (1e12 * 3600.0, "h"),
        (1e12 * 60.0, "min"),
        (1e12, "s"),
        (1e9, "ms"),
        (1e6, "us"),
        (1e3, "ns"),
    ];
    let value = picos as f64;
    match UNITS.iter().find(|(size, _)| value >= *size) {
        Some((size, unit)) => format!("{:.2} {unit}", value / size),
        None => format!("{picos:3} ps"),
    }
}

fn analysis(schema: &TableSchema, env: &Env, is_plain: bool) -> Vec<Row> {
    let number = |value: &Datum<'_>| value.number().map_or(0, |n| n.to_i128() as u64);
    let mut digests = env.variables.of_node().digests.rows();
    digests.sort_by_key(|row| std::cmp::Reverse(number(&row[4])));
    let of = |row: &Row| {
        let picos = |at: usize| if is_plain { row[at].clone() } else { Datum::text(time(number(&row[at]))) };
        let count = number(&row[3]).max(1);
        let average = |at: usize| {
            let rounded = (number(&row[at]) as f64 / count as f64).round();
            Datum::UInt(rounded as u64)
        };
        let query = match &row[2] {
            Datum::Null => Datum::Null,
            text if is_plain => text.clone(),
            text => Datum::text(shortened(&text.as_string())),
        };
        let scans = number(&row[26]) > 0 || number(&row[25]) > 0;
        let named = [
            ("query", query),
            ("db", row[0].clone()),
            ("full_scan", Datum::text(if scans { "*" } else { "" })),
            ("exec_count", row[3].clone()),
            ("err_count", row[9].clone()),
            ("warn_count", row[10].clone()),
            ("total_latency", picos(4)),
            ("max_latency", picos(7)),
            ("avg_latency", picos(6)),
            ("lock_latency", picos(8)),
            ("cpu_latency", picos(27)),
            ("rows_sent", row[12].clone()),
            ("rows_sent_avg", average(12)),
            ("rows_examined", row[13].clone()),
            ("rows_examined_avg", average(13)),
            ("rows_affected", row[11].clone()),
            ("rows_affected_avg", average(11)),
            ("tmp_tables", row[15].clone()),
            ("tmp_disk_tables", row[14].clone()),
            ("rows_sorted", row[22].clone()),
            ("sort_merge_passes", row[20].clone()),
            ("digest", row[1].clone()),
            ("first_seen", row[31].clone()),
            ("last_seen", row[32].clone()),
        ];
        filled_by(schema, named.into())
    };
    digests.iter().map(of).collect()
}

fn process_row(schema: &TableSchema, process: Process, is_plain: bool) -> Row {
    let text = |s: Option<String>| s.map_or(Datum::Null, Datum::text);
    let info = process.info.map(|info| if is_plain { info } else { shortened(&info) });
    let (id, runs) = (Datum::UInt(u64::from(process.id)), info.is_some());
    let named = [
        ("thd_id", id.clone()),
        ("conn_id", id),
        ("user", Datum::text(format!("{}@{}", process.user, process.host))),
        ("db", text(process.database)),
        ("command", Datum::text(process.command)),
        ("state", text(Some(process.state.to_owned()).filter(|state| !state.is_empty()))),
        ("time", Datum::Int(i64::try_from(process.time).unwrap_or(i64::MAX))),
        ("current_statement", text(info)),
        ("execution_engine", if runs { Datum::UInt(1) } else { Datum::Null }),
    ];
    filled_by(schema, named.into())
}

/// An index as `x$schema_flattened_keys` has it.
struct Flat {
    name: String,
    is_unique: bool,
    columns: Vec<String>,
    has_part: bool,
}

fn flat(table: &Table) -> Vec<Flat> {
    let mut all: Vec<Flat> = Vec::new();
    for row in statistics_rows(table) {
        // Columns of STATISTICS: 3 NON_UNIQUE, 5 INDEX_NAME, 7 COLUMN_NAME, 10 SUB_PART, 13 INDEX_TYPE.
        if row[13].as_string() != "BTREE" || row[7].is_null() {
            continue;
        }
        let name = row[5].as_string();
        if all.last().is_none_or(|last| last.name != name) {
            let is_unique = row[3].as_string() == "0";
            all.push(Flat { name, is_unique, columns: Vec::new(), has_part: false });
        }
        if let Some(last) = all.last_mut() {
            last.columns.push(row[7].as_string());
            last.has_part |= !row[10].is_null();
        }
    }
    all
}

/// Whether an index is of no use beside another one.
fn is_redundant(index: &Flat, beside: &Flat) -> bool {
    let rank = |of: &Flat| if of.name == "PRIMARY" { String::new() } else { of.name.to_lowercase() };
    let begins = |long: &Flat, short: &Flat| {
        long.columns.len() > short.columns.len() && long.columns.starts_with(&short.columns)
    };
    let is_same = index.columns == beside.columns
        && (!index.is_unique && beside.is_unique || index.is_unique == beside.is_unique && rank(index) > rank(beside));
    is_same || begins(beside, index) && !index.is_unique || begins(index, beside) && beside.is_unique
}

fn redundant(schema: &TableSchema, catalog: &Catalog, env: &Env) -> Vec<Row> {
    let sees = |t: &Table| env.me.as_ref().is_none_or(|me| me.rights.sees_table(&t.schema.database, &t.schema.name));
    let mut out = Vec::new();
    for table in catalog.tables().filter(|table| sees(table)) {
        let (database, name) = (&table.schema.database, &table.schema.name);
        let keys = flat(table);
        let pairs = keys.iter().flat_map(|index| keys.iter().map(move |beside| (index, beside)));
        for (index, beside) in pairs.filter(|(index, beside)| index.name != beside.name && is_redundant(index, beside))
        {
            let drop = format!("ALTER TABLE {}.{} DROP INDEX {}", quoted(database), quoted(name), quoted(&index.name));
            let flag = |on: bool| Datum::Int(i64::from(on));
            let named: BTreeMap<_, _> = [
                ("table_schema", Datum::text(database.clone())),
                ("table_name", Datum::text(name.clone())),
                ("redundant_index_name", Datum::text(index.name.clone())),
                ("redundant_index_columns", Datum::text(index.columns.join(","))),
                ("redundant_index_non_unique", flag(!index.is_unique)),
                ("dominant_index_name", Datum::text(beside.name.clone())),
                ("dominant_index_columns", Datum::text(beside.columns.join(","))),
                ("dominant_index_non_unique", flag(!beside.is_unique)),
                ("subpart_exists", flag(index.has_part || beside.has_part)),
                ("sql_drop_index", Datum::text(drop)),
            ]
            .into();
            out.push(filled_by(schema, named));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_by_people() {
        let all =
            [(7, "  7 ps"), (3501, "3.50 ns"), (188_732_396_662_000, "3.15 min"), (86_400_000_000_000_000, "1.00 d")];
        for (picos, text) in all {
            assert_eq!(time(picos), text);
        }
    }

    #[test]
    fn long_statements_lose_their_middle() {
        assert_eq!(shortened("SELECT\n1"), "SELECT 1");
        let long = shortened(&"x".repeat(200));
        assert_eq!((long.len(), &long[30..35]), (65, " ... "));
    }

    #[test]
    fn an_index_is_redundant_beside_one_that_begins_with_it() {
        let index = |name: &str, is_unique, columns: &str| Flat {
            name: name.to_owned(),
            is_unique,
            columns: columns.split(',').map(str::to_owned).collect(),
            has_part: false,
        };
        let (a, ab, ua) = (index("a", false, "a"), index("ab", false, "a,b"), index("ua", true, "a"));
        assert!(is_redundant(&a, &ab) && !is_redundant(&ab, &a));
        assert!(is_redundant(&a, &ua) && is_redundant(&ab, &ua) && !is_redundant(&ua, &ab));
        assert!(!is_redundant(&index("b", false, "b"), &ab));
        assert!(is_redundant(&index("z", true, "a"), &ua) && is_redundant(&ua, &index("PRIMARY", true, "a")));
    }
}

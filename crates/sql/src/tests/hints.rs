//! Hints, as EXPLAIN shows what they do to plans.

use super::{catalog, env};
use crate::{
    admin::explain::{columns, tree},
    catalog::{Catalog, statistics::Known},
    plan::{Plan, text::plan_text},
};

fn planned(catalog: &Catalog, sql: &str) -> Plan {
    plan_text(catalog, &env(), sql, Vec::new()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Table, access, key and Extra of each line.
fn lines(catalog: &Catalog, sql: &str) -> Vec<String> {
    let rows = columns::rows(&planned(catalog, sql), &catalog.statistics);
    let cell = |row: &[Option<String>], at: usize| row[at].clone().unwrap_or_else(|| "-".to_owned());
    rows.iter().map(|row| [2, 4, 6, 11].map(|at| cell(row, at)).join(" ")).collect()
}

/// A catalog whose tables have sizes.
fn weighed() -> Catalog {
    let catalog = catalog();
    for (name, rows) in [("sbtest1", 10_000.0), ("pair", 50.0)] {
        let table = catalog.table("d", name).unwrap();
        catalog.statistics.set(&table, Known { rows, ..Known::default() });
    }
    catalog
}

#[test]
fn indexes_are_used_as_hints_say() {
    let catalog = catalog();
    for (hint, listed, rest, want) in [
        ("", "", "WHERE k = 3 AND id > 5", "sbtest1 ref k_1 Using where; Using pushed condition"),
        (
            "NO_INDEX(sbtest1 k_1)",
            "",
            "WHERE k = 3 AND id > 5",
            "sbtest1 range PRIMARY Using where; Using pushed condition",
        ),
        ("NO_INDEX(sbtest1)", "", "WHERE k = 3 AND id > 5", "sbtest1 ALL - Using where; Using pushed condition"),
        ("JOIN_INDEX(sbtest1 PRIMARY)", "", "WHERE k = 3", "sbtest1 ALL - Using where; Using pushed condition"),
        ("NO_JOIN_INDEX(sbtest1 primary)", "", "WHERE id = 3", "sbtest1 ALL - Using where; Using pushed condition"),
        ("NO_GROUP_INDEX(sbtest1)", "", "WHERE id = 3", "sbtest1 const PRIMARY -"),
        (
            "INDEX(@`select#1` sbtest1 k_1)",
            "",
            "WHERE id = 3 AND k IN (1, 2)",
            "sbtest1 range k_1 Using where; Using pushed condition",
        ),
        ("", "IGNORE INDEX (k_1)", "WHERE k = 3", "sbtest1 ALL - Using where; Using pushed condition"),
        ("", "USE INDEX ()", "WHERE id = 3", "sbtest1 ALL - Using where; Using pushed condition"),
        ("", "FORCE INDEX (K_1)", "WHERE id = 3 AND k > 1", "sbtest1 range k_1 Using where; Using pushed condition"),
        ("", "IGNORE INDEX FOR ORDER BY (k_1)", "WHERE k = 3", "sbtest1 ref k_1 -"),
        ("INDEX(sbtest1 k_1)", "IGNORE INDEX (k_1)", "WHERE k = 3", "sbtest1 ref k_1 -"),
        ("", "", "ORDER BY k", "sbtest1 ALL - Using filesort"),
        ("ORDER_INDEX(sbtest1 k_1)", "", "ORDER BY k", "sbtest1 index k_1 -"),
        ("", "FORCE INDEX FOR ORDER BY (k_1)", "ORDER BY k", "sbtest1 index k_1 -"),
        ("", "", "ORDER BY k LIMIT 3", "sbtest1 index k_1 -"),
        ("NO_ORDER_INDEX(sbtest1 k_1)", "", "ORDER BY k LIMIT 3", "sbtest1 ALL - Using filesort"),
        ("", "IGNORE INDEX FOR ORDER BY (k_1)", "WHERE k > 1 ORDER BY k LIMIT 3", "sbtest1 range k_1 Using filesort"),
    ] {
        let hint = if hint.is_empty() { String::new() } else { format!("/*+ {hint} */ ") };
        let sql = format!("SELECT {hint}* FROM sbtest1 {listed} {rest}");
        assert_eq!(lines(&catalog, &sql), [want], "{sql}");
    }
    for (sql, want) in [
        ("UPDATE /*+ NO_INDEX(sbtest1) */ sbtest1 SET pad = 'x' WHERE k = 1", "sbtest1 ALL - Using where"),
        ("UPDATE sbtest1 IGNORE INDEX (k_1) SET pad = 'x' WHERE k = 1", "sbtest1 ALL - Using where"),
        ("UPDATE sbtest1 SET pad = 'x' WHERE k = 1", "sbtest1 ref k_1 Using where"),
        (
            "DELETE /*+ NO_INDEX(x) */ FROM sbtest1 AS x WHERE k = 1",
            "sbtest1 ALL - Using where; Using pushed condition",
        ),
        (
            "DELETE /*+ NO_INDEX(sbtest1) */ FROM sbtest1 WHERE k = 1",
            "sbtest1 ALL - Using where; Using pushed condition",
        ),
        ("INSERT INTO pair (a) SELECT /*+ NO_INDEX(sbtest1) */ id FROM sbtest1 WHERE k = 1", "pair ALL - -"),
    ] {
        assert_eq!(lines(&catalog, sql)[0], want, "{sql}");
    }
}

#[test]
fn tables_are_joined_as_hints_say() {
    let (plain, weighed) = (catalog(), weighed());
    let order = |catalog: &Catalog, select: &str, from: &str| -> Vec<String> {
        lines(catalog, &format!("SELECT {select} s.k FROM {from} WHERE p.c = s.id"))
            .iter()
            .map(|l| l[..1].to_owned())
            .collect()
    };
    for catalog in [&plain, &weighed] {
        for (select, from, want) in [
            ("/*+ JOIN_ORDER(s, p) */", "pair p, sbtest1 s", ["s", "p"]),
            ("/*+ JOIN_ORDER(p, s) */", "sbtest1 s, pair p", ["p", "s"]),
            ("/*+ JOIN_PREFIX(s) */", "pair p, sbtest1 s", ["s", "p"]),
            ("/*+ JOIN_SUFFIX(s) */", "sbtest1 s, pair p", ["p", "s"]),
            ("/*+ JOIN_FIXED_ORDER() */", "pair p, sbtest1 s", ["p", "s"]),
            ("/*+ JOIN_FIXED_ORDER() */", "sbtest1 s, pair p", ["s", "p"]),
            ("STRAIGHT_JOIN", "sbtest1 s, pair p", ["s", "p"]),
            ("/*+ QB_NAME(q) JOIN_ORDER(@q p, s) JOIN_ORDER(s, p) */", "sbtest1 s, pair p", ["p", "s"]),
        ] {
            assert_eq!(order(catalog, select, from), want, "{select} {from}");
        }
    }
    let text = |sql: &str| tree::text(&planned(&weighed, sql), &weighed.statistics, None);
    let join = "SELECT {} s.k FROM sbtest1 s JOIN pair p ON p.n = s.k";
    assert!(text(&join.replace("{}", "")).contains("hash join (p.n = s.k)"));
    let nested = text(&join.replace("{}", "/*+ NO_BNL() NO_INDEX(s) */"));
    assert!(nested.contains("hash join (no condition), extra conditions: (p.n = s.k)"), "{nested}");
    let keyed = text(&join.replace("{}", "/*+ NO_BNL(s) JOIN_ORDER(p, s) */"));
    assert!(keyed.contains("Index lookup on s using k_1 (k = p.n)"), "{keyed}");
}

#[test]
fn subqueries_and_views_stay_what_they_are() {
    let catalog = catalog();
    let is_joined = |hint: &str, inner: &str| {
        let sql = format!("SELECT {hint} k FROM sbtest1 WHERE k IN (SELECT {inner} n FROM pair)");
        tree::text(&planned(&catalog, &sql), &catalog.statistics, None).contains("<subquery2>")
    };
    for (hint, inner, want) in [
        ("", "", true),
        ("", "/*+ NO_SEMIJOIN() */", false),
        ("", "/*+ SUBQUERY(INTOEXISTS) */", false),
        ("", "/*+ SEMIJOIN(FIRSTMATCH) */", true),
        ("/*+ NO_SEMIJOIN(@q) */", "/*+ QB_NAME(q) */", false),
        ("/*+ NO_SEMIJOIN(@`select#2`) */", "", false),
        ("/*+ NO_SEMIJOIN() */", "", true),
    ] {
        assert_eq!(is_joined(hint, inner), want, "{hint} {inner}");
    }
}

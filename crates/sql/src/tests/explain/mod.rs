//! EXPLAIN: the trees and documents of plans, and which forms there are.

mod documents;

use super::{catalog, env};
use crate::{
    admin::explain::{self, Form, Request, tree},
    parse::token::Tokens,
    plan::text::plan_text,
};

#[test]
fn trees_say_what_is_done() {
    let catalog = catalog();
    for (sql, want) in [
        ("SELECT 1", "-> Rows fetched before execution  (rows=1)\n"),
        (
            "SELECT c FROM sbtest1 WHERE k > 3 AND pad = 'x' ORDER BY c DESC LIMIT 2, 5",
            "-> Limit/Offset: 5/2 row(s)\n    -> Sort: sbtest1.c DESC, limit input to 7 row(s) per chunk\n        \
             -> Filter: (sbtest1.pad = 'x')\n            -> Index range scan on sbtest1 using k_1 over (3 < k), with pushed condition\n",
        ),
        (
            "SELECT b, COUNT(*), SUM(n) FROM pair WHERE a IN (1, 2) GROUP BY b HAVING COUNT(*) > 1",
            "-> Filter: (count(0) > 1)\n    -> Table scan on <temporary>\n        -> Aggregate using temporary table\n            \
             -> Group aggregate in data nodes: count(0), sum(pair.n)\n                \
             -> Index range scan on pair using PRIMARY over (a = 1) OR (a = 2)\n",
        ),
        (
            "SELECT k FROM sbtest1 AS Other WHERE k = 3 AND c LIKE 'a%b'",
            "-> Filter: (Other.c like 'a%b')\n    -> Index lookup on Other using k_1 (k = 3), with pushed condition\n",
        ),
        ("SELECT COUNT(*) FROM pair", "-> Aggregate in data nodes: count(0)\n    -> Table scan on pair\n"),
        (
            "SELECT s.k FROM sbtest1 s LEFT JOIN pair p ON p.c = s.id WHERE s.id = 1",
            "-> Nested loop left join\n    -> Single-row index lookup on s using PRIMARY (id = 1)\n    \
             -> Single-row index lookup on p using u (c = s.id)\n",
        ),
        (
            "SELECT s.k FROM sbtest1 s JOIN pair p ON p.n = s.k",
            "-> Inner hash join (p.n = s.k)\n    -> Table scan on s\n    -> Hash\n        -> Table scan on p\n",
        ),
        (
            "SELECT id, (SELECT MAX(d) FROM pair WHERE a = sbtest1.k) FROM sbtest1 WHERE k = (SELECT MIN(a) FROM pair)",
            "-> Index lookup on sbtest1 using k_1 (k = (select #2))\n    -> Select #2 (subquery in condition; run only once)\n        \
             -> Aggregate in data nodes: min(pair.a)\n            -> Table scan on pair\n\
             -> Select #3 (subquery in projection; dependent)\n    -> Aggregate: max(pair.d)\n        \
             -> Index lookup on pair using PRIMARY (a = sbtest1.k)\n",
        ),
        (
            "SELECT a FROM pair UNION SELECT id FROM sbtest1",
            "-> Table scan on <union temporary>\n    -> Union materialize with deduplication\n        -> Table scan on pair\n        \
             -> Table scan on sbtest1\n",
        ),
        (
            "SELECT * FROM (SELECT a, COUNT(*) n FROM pair GROUP BY a) x WHERE a = 3 AND n = 1",
            "-> Filter: ((x.a = 3) and (x.n = 1))\n    -> Table scan on x\n        -> Materialize\n            -> Table scan on <temporary>\n                \
             -> Aggregate using temporary table\n                    -> Group aggregate in data nodes: count(0)\n                        \
             -> Index lookup on pair using PRIMARY (a = 3)\n",
        ),
        (
            "SELECT * FROM (SELECT a FROM pair UNION SELECT id FROM sbtest1) x WHERE a < 3",
            "-> Filter: (x.a < 3)\n    -> Table scan on x\n        -> Materialize\n            -> Table scan on <union temporary>\n                \
             -> Union materialize with deduplication\n                    -> Index range scan on pair using PRIMARY over (a < 3)\n                    \
             -> Index range scan on sbtest1 using PRIMARY over (id < 3)\n",
        ),
        (
            "SELECT * FROM (SELECT a, COUNT(*) n FROM pair GROUP BY a LIMIT 9) x WHERE a = 3",
            "-> Filter: (x.a = 3)\n    -> Table scan on x\n        -> Materialize\n            -> Limit: 9 row(s)\n                \
             -> Table scan on <temporary>\n                    -> Aggregate using temporary table\n                        -> Group aggregate in data nodes: count(0)\n                            \
             -> Table scan on pair\n",
        ),
        ("INSERT INTO pair (a, b) SELECT id, c FROM sbtest1", "-> Insert into pair\n    -> Table scan on sbtest1\n"),
        ("REPLACE INTO pair (a, b) VALUES (1, 'x')", "-> Replace into pair\n    -> Rows fetched before execution\n"),
        (
            "DELETE p FROM pair p JOIN sbtest1 s ON s.id = p.c AND s.k > p.n",
            "-> Delete from pair (buffered)\n    -> Nested loop inner join\n        -> Table scan on p\n        \
             -> Filter: (s.k > p.n)\n            -> Single-row index lookup on s using PRIMARY (id = p.c)\n",
        ),
        (
            "SELECT k FROM sbtest1 WHERE k IN (SELECT n FROM pair)",
            "-> Nested loop inner join\n    -> Table scan on <subquery2>\n        -> Materialize with deduplication\n            \
             -> Table scan on <temporary>\n                -> Temporary table with deduplication\n                    \
             -> Table scan on pair\n    -> Index lookup on sbtest1 using k_1 (k = `<subquery2>`.n)\n",
        ),
        (
            "VALUES ROW(1)",
            "-> Table scan on <temporary>\n    -> Materialize\n        -> Rows fetched before execution  (rows=1)\n",
        ),
        ("UPDATE pair SET n = 1 WHERE a = 1 AND b = 'x'", "-> <not executable by iterator executor>\n"),
        (
            "SELECT s.k FROM sbtest1 s LEFT JOIN pair p ON p.n = s.k AND p.a < s.id",
            "-> Left hash join (p.n = s.k), extra conditions: (p.a < s.id)\n    -> Table scan on s\n    -> Hash\n        -> Table scan on p\n",
        ),
        (
            "SELECT a FROM pair INTERSECT SELECT id FROM sbtest1",
            "-> Table scan on <intersect temporary>\n    -> Intersect materialize with deduplication\n        -> Table scan on pair\n        \
             -> Table scan on sbtest1\n",
        ),
        (
            "SELECT SQL_CALC_FOUND_ROWS a FROM pair WHERE a IN (1, 2) AND b IN ('x', 'y') LIMIT 1",
            "-> Limit: 1 row(s) (no early end due to SQL_CALC_FOUND_ROWS)\n    \
             -> Index range scan on pair using PRIMARY over (((a = 1) OR (a = 2)) AND ((b = 'x') OR (b = 'y')))\n",
        ),
        (
            "SELECT k, (SELECT MIN(c) FROM pair) FROM sbtest1 WHERE c = (SELECT MAX(b) FROM pair WHERE a = k)",
            "-> Filter: (sbtest1.c = (select #3))\n    -> Table scan on sbtest1\n    \
             -> Select #3 (subquery in condition; dependent)\n        -> Aggregate: max(pair.b)\n            \
             -> Index lookup on pair using PRIMARY (a = sbtest1.k)\n\
             -> Select #2 (subquery in projection; run only once)\n    -> Aggregate in data nodes: min(pair.c)\n        -> Table scan on pair\n",
        ),
        (
            "SELECT * FROM (SELECT (SELECT MIN(k) FROM sbtest1) AS x FROM pair) AS t",
            "-> Table scan on t\n    -> Materialize\n        -> Table scan on pair\n        -> Select #3 (subquery in projection; run only once)\n            \
             -> Aggregate in data nodes: min(sbtest1.k)\n                -> Table scan on sbtest1\n",
        ),
    ] {
        let plan = plan_text(&catalog, &env(), sql, Vec::new()).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(tree::text(&plan, &catalog.statistics, None), want, "{sql}");
    }
}

#[test]
fn what_cannot_be_explained_is_refused() {
    for (sql, number) in [
        ("FORMAT=NOSUCH SELECT 1", 1791),
        ("FORMAT=NOSUCH INTO @x t", 1791),
        ("FORMAT=DEFAULT SELECT 1", 1064),
        ("ANALYZE FORMAT=TRADITIONAL SELECT 1", 1235),
        ("INTO @x SELECT 1", 6006),
        ("FORMAT=TREE INTO @x SELECT 1", 6007),
        ("ANALYZE FORMAT=TRADITIONAL INTO @x SELECT 1", 6007),
        ("FORMAT=JSON INTO @@x SELECT 1", 1064),
        ("FORMAT=JSON INTO x SELECT 1", 1064),
        ("FORMAT=JSON INTO @ x SELECT 1", 1064),
        ("FORMAT=JSON INTO @x, @y SELECT 1", 1064),
        ("FORMAT=JSON INTO @x t", 1064),
        ("FORMAT=JSON INTO @x FOR CONNECTION 5", 6009),
        ("ANALYZE FOR CONNECTION 5", 1235),
        ("FOR SCHEMA d t", 1064),
        ("ANALYZE t", 1064),
        ("FORMAT=TREE", 1064),
        ("FORMAT=JSON t", 1064),
    ] {
        let found = explain::parse(&mut Tokens::new(sql), "TREE");
        assert_eq!(found.map_err(|e| e.errno).err(), Some(number), "{sql}");
    }
    let request_by = |sql: &str, unsaid| explain::parse(&mut Tokens::new(sql), unsaid).unwrap();
    let form_by = |sql, unsaid| request_by(sql, unsaid).map(|r| (r.form, r.is_analyzed, r.begin));
    let form = |sql| form_by(sql, "TREE");
    assert_eq!(form("t"), None, "the columns of a table");
    assert_eq!(form("SELECT 1"), Some((Form::Tree, false, 0)));
    assert_eq!(form_by("SELECT 1", "TRADITIONAL"), Some((Form::Rows, false, 0)));
    assert_eq!(form_by("SELECT 1", "JSON"), Some((Form::Json, false, 0)));
    assert_eq!(form_by("FORMAT=TREE SELECT 1", "JSON"), Some((Form::Tree, false, 12)));
    assert_eq!(form_by("ANALYZE SELECT 1", "TRADITIONAL"), Some((Form::Tree, true, 8)));
    assert_eq!(form_by("ANALYZE SELECT 1", "JSON"), Some((Form::Json, true, 8)));
    assert_eq!(form("FORMAT = tree (SELECT 1)"), Some((Form::Tree, false, 14)));
    assert_eq!(form("ANALYZE TABLE t"), Some((Form::Tree, true, 8)));
    let all = Request {
        form: Form::Json,
        is_analyzed: true,
        variable: Some("a b".to_owned()),
        database: Some("d".to_owned()),
        begin: 47,
    };
    assert_eq!(
        request_by("ANALYZE FORMAT='json' INTO @`A b` FOR SCHEMA d SELECT 1", "TREE"),
        Some(Request { begin: 47, ..all.clone() })
    );
    assert_eq!(request_by("FORMAT=JSON INTO @Xy TABLE t", "TREE").and_then(|r| r.variable), Some("xy".to_owned()));
}

//! EXPLAIN: the trees and documents of plans, and which forms there are.

use super::{catalog, env};
use crate::{
    admin::explain::{self, Form, Request, json, tree},
    expr::probe::{self, Counts, Of},
    parse::token::Tokens,
    plan::text::plan_text,
    value::json::{Json, parse::parse, path::Path},
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

/// The document of a plan in which nothing was counted; `analyzed`: by an EXPLAIN ANALYZE.
fn document(sql: &str, analyzed: bool) -> String {
    let catalog = catalog();
    let plan = plan_text(&catalog, &env(), sql, Vec::new()).unwrap_or_else(|e| panic!("{sql}: {e}"));
    json::text(&plan, &catalog.statistics, sql, analyzed.then(Counts::default).as_ref())
}

#[test]
fn documents_of_whole_statements() {
    for (sql, analyzed, want) in [
        (
            "SELECT c FROM sbtest1 WHERE k > 3 AND id < k AND pad NOT IN ('x', 'y') ORDER BY c DESC, k LIMIT 2, 5",
            false,
            r#"{
  "query": "SELECT c FROM sbtest1 WHERE k > 3 AND id < k AND pad NOT IN ('x', 'y') ORDER BY c DESC, k LIMIT 2, 5",
  "query_plan": {
    "limit": 7,
    "inputs": [
      {
        "inputs": [
          {
            "inputs": [
              {
                "ranges": [
                  "(3 < k)"
                ],
                "covering": false,
                "operation": "Index range scan on sbtest1 using k_1 over (3 < k), with pushed condition",
                "index_name": "k_1",
                "table_name": "sbtest1",
                "access_type": "index",
                "key_columns": [
                  "k"
                ],
                "schema_name": "d",
                "used_columns": [
                  "id",
                  "k",
                  "c",
                  "pad"
                ],
                "pushed_condition": "((sbtest1.id < sbtest1.k) and (not(sbtest1.pad = 'x' or sbtest1.pad = 'y')))",
                "index_access_type": "index_range_scan"
              }
            ],
            "condition": "((sbtest1.id < sbtest1.k) and (sbtest1.pad not in ('x','y')))",
            "operation": "Filter: ((sbtest1.id < sbtest1.k) and (sbtest1.pad not in ('x','y')))",
            "access_type": "filter",
            "filter_columns": [
              "d.sbtest1.id",
              "d.sbtest1.k",
              "d.sbtest1.pad"
            ]
          }
        ],
        "operation": "Sort: sbtest1.c DESC, sbtest1.k, limit input to 7 row(s) per chunk",
        "access_type": "sort",
        "sort_fields": [
          "sbtest1.c DESC",
          "sbtest1.k"
        ],
        "per_chunk_limit": 7
      }
    ],
    "operation": "Limit/Offset: 5/2 row(s)",
    "access_type": "limit",
    "limit_offset": 2
  },
  "query_type": "select",
  "json_schema_version": "2.0"
}"#,
        ),
        (
            "SELECT s.k FROM sbtest1 s LEFT JOIN pair p ON p.c = s.id AND p.n > s.k WHERE s.id = 1",
            true,
            r#"{
  "query": "SELECT s.k FROM sbtest1 s LEFT JOIN pair p ON p.c = s.id AND p.n > s.k WHERE s.id = 1",
  "query_plan": {
    "inputs": [
      {
        "alias": "s",
        "covering": false,
        "operation": "Single-row index lookup on s using PRIMARY (id = 1)",
        "index_name": "PRIMARY",
        "table_name": "sbtest1",
        "access_type": "index",
        "actual_rows": null,
        "key_columns": [
          "id"
        ],
        "schema_name": "d",
        "actual_loops": null,
        "used_columns": [
          "id",
          "k"
        ],
        "lookup_condition": "id = 1",
        "index_access_type": "index_lookup",
        "lookup_references": [
          "const"
        ],
        "actual_last_row_ms": null,
        "actual_first_row_ms": null
      },
      {
        "inputs": [
          {
            "alias": "p",
            "covering": false,
            "operation": "Single-row index lookup on p using u (c = s.id)",
            "index_name": "u",
            "table_name": "pair",
            "access_type": "index",
            "actual_rows": null,
            "key_columns": [
              "c"
            ],
            "schema_name": "d",
            "actual_loops": null,
            "used_columns": [
              "c",
              "n"
            ],
            "lookup_condition": "c = s.id",
            "index_access_type": "index_lookup",
            "lookup_references": [
              "d.s.id"
            ],
            "actual_last_row_ms": null,
            "actual_first_row_ms": null
          }
        ],
        "condition": "(p.n > s.k)",
        "operation": "Filter: (p.n > s.k)",
        "access_type": "filter",
        "actual_rows": null,
        "actual_loops": null,
        "filter_columns": [
          "p.n",
          "s.k"
        ],
        "actual_last_row_ms": null,
        "actual_first_row_ms": null
      }
    ],
    "join_type": "left join",
    "operation": "Nested loop left join",
    "access_type": "join",
    "actual_rows": null,
    "actual_loops": null,
    "join_algorithm": "nested_loop",
    "actual_last_row_ms": null,
    "actual_first_row_ms": null
  },
  "query_type": "select",
  "json_schema_version": "2.0"
}"#,
        ),
        (
            "SELECT s.k FROM sbtest1 s JOIN pair p ON p.n = s.k AND p.a < s.id",
            false,
            r#"{
  "query": "SELECT s.k FROM sbtest1 s JOIN pair p ON p.n = s.k AND p.a < s.id",
  "query_plan": {
    "inputs": [
      {
        "alias": "s",
        "operation": "Table scan on s",
        "table_name": "sbtest1",
        "access_type": "table",
        "schema_name": "d",
        "used_columns": [
          "id",
          "k"
        ]
      },
      {
        "alias": "p",
        "heading": "Hash",
        "operation": "Table scan on p",
        "table_name": "pair",
        "access_type": "table",
        "schema_name": "d",
        "used_columns": [
          "a",
          "n"
        ]
      }
    ],
    "join_type": "inner join",
    "operation": "Inner hash join (p.n = s.k), extra conditions: (p.a < s.id)",
    "access_type": "join",
    "join_columns": [
      "p.a",
      "p.n",
      "s.id",
      "s.k"
    ],
    "hash_condition": [
      "(p.n = s.k)"
    ],
    "join_algorithm": "hash",
    "extra_condition": [
      "(p.a < s.id)"
    ]
  },
  "query_type": "select",
  "json_schema_version": "2.0"
}"#,
        ),
        (
            "SELECT id, (SELECT MAX(d) FROM pair WHERE a = sbtest1.k) FROM sbtest1 WHERE k = (SELECT MIN(a) FROM pair)",
            false,
            r#"{
  "query": "SELECT id, (SELECT MAX(d) FROM pair WHERE a = sbtest1.k) FROM sbtest1 WHERE k = (SELECT MIN(a) FROM pair)",
  "query_plan": {
    "inputs": [
      {
        "inputs": [
          {
            "operation": "Table scan on pair",
            "table_name": "pair",
            "access_type": "table",
            "schema_name": "d",
            "used_columns": [
              "a"
            ]
          }
        ],
        "heading": "Select #2 (subquery in condition; run only once)",
        "subquery": true,
        "cacheable": true,
        "functions": [
          "min(pair.a)"
        ],
        "operation": "Aggregate in data nodes: min(pair.a)",
        "access_type": "aggregate",
        "in_data_nodes": true,
        "subquery_location": "condition"
      }
    ],
    "covering": false,
    "operation": "Index lookup on sbtest1 using k_1 (k = (select #2))",
    "index_name": "k_1",
    "table_name": "sbtest1",
    "access_type": "index",
    "key_columns": [
      "k"
    ],
    "schema_name": "d",
    "used_columns": [
      "id",
      "k"
    ],
    "lookup_condition": "k = (select #2)",
    "index_access_type": "index_lookup",
    "lookup_references": [
      "const"
    ],
    "inputs_from_select_list": [
      {
        "inputs": [
          {
            "covering": false,
            "operation": "Index lookup on pair using PRIMARY (a = sbtest1.k)",
            "index_name": "PRIMARY",
            "table_name": "pair",
            "access_type": "index",
            "key_columns": [
              "a"
            ],
            "schema_name": "d",
            "used_columns": [
              "a",
              "d"
            ],
            "lookup_condition": "a = sbtest1.k",
            "index_access_type": "index_lookup",
            "lookup_references": [
              "d.sbtest1.k"
            ]
          }
        ],
        "heading": "Select #3 (subquery in projection; dependent)",
        "subquery": true,
        "dependent": true,
        "functions": [
          "max(pair.d)"
        ],
        "operation": "Aggregate: max(pair.d)",
        "access_type": "aggregate",
        "subquery_location": "projection"
      }
    ]
  },
  "query_type": "select",
  "json_schema_version": "2.0"
}"#,
        ),
        (
            "REPLACE INTO pair (a, b) VALUES (1, 'x')",
            false,
            r#"{
  "query": "REPLACE INTO pair (a, b) VALUES (1, 'x')",
  "query_plan": {
    "inputs": [
      {
        "operation": "Rows fetched before execution",
        "access_type": "rows_fetched_before_execution"
      }
    ],
    "operation": "Replace into pair",
    "table_name": "pair",
    "access_type": "replace_values",
    "schema_name": "d",
    "used_columns": [
      "a",
      "b"
    ]
  },
  "query_type": "replace",
  "json_schema_version": "2.0"
}"#,
        ),
        (
            "UPDATE pair SET n = 1 WHERE a = 1 AND b = 'x'",
            true,
            r#"{
  "query_plan": {
    "operation": "<not executable by iterator executor>"
  },
  "query_type": "update",
  "json_schema_version": "2.0"
}"#,
        ),
    ] {
        assert_eq!(document(sql, analyzed), want, "{sql}");
    }
}

#[test]
fn a_document_says_what_was_counted() {
    let catalog = catalog();
    let sql = "SELECT k FROM sbtest1 WHERE k > 3 AND c = 'x'";
    let plan = plan_text(&catalog, &env(), sql, Vec::new()).unwrap();
    let access = plan.reading().and_then(|select| select.access.as_ref()).unwrap();
    let mut counts = Counts::default();
    counts.add(probe::of(access, Of::Read), 2, 3);
    let text = json::text(&plan, &catalog.statistics, sql, Some(&counts));
    let document = parse(text.as_bytes()).unwrap();
    let step = |path: &str| Path::parse(path).unwrap().find(&document).first().map(|&value| value.clone());
    assert_eq!(step("$.query_plan.actual_loops"), Some(Json::Null), "what passes the filter");
    assert_eq!(step("$.query_plan.inputs[0].actual_loops"), Some(Json::Int(2)));
    assert_eq!(step("$.query_plan.inputs[0].actual_rows"), Some(Json::Double(1.5)), "of each run");
    let ms = |name: &str| match step(&format!("$.query_plan.inputs[0].actual_{name}_row_ms")) {
        Some(Json::Double(ms)) => ms,
        other => panic!("{name}: {other:?}"),
    };
    assert!(0.0 <= ms("first") && ms("first") <= ms("last"));
}

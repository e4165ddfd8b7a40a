//! Documents of EXPLAIN FORMAT=JSON.

use crate::{
    admin::explain::json,
    expr::probe::{self, Counts, Of},
    plan::text::plan_text,
    tests::{catalog, env},
    value::json::{Json, parse::parse, path::Path},
};

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

//! EXPLAIN FORMAT=JSON: the steps of a plan as a document of MySQL's version 2 (`explain_json_format_version`).
//!
//! A step is an object whose `inputs` are the steps that it works on; the members are MySQL's, in MySQL's order, which is that of every JSON document here. There are no costs, which nothing
//! here has. `query` is the statement as it was sent, where MySQL shows what it has made of it. Apus's own: `in_data_nodes`, an aggregate that is computed beside the data; `tables` of UPDATE,
//! as MySQL has it of DELETE. After EXPLAIN ANALYZE a step that counts its rows has the `actual_` members; they are NULL where it was never run.

use std::time::Duration;

use super::steps::{self, step::Step};
use crate::{
    catalog::statistics::Statistics,
    expr::probe::{Counts, Part},
    plan::{Plan, dml::insert::OnDuplicate},
    value::json::{Json, Object, print},
};

/// The version of MySQL's documents that these are.
const SCHEMA_VERSION: &str = "2.0";

/// The document of a plan, with what was counted when it ran. `query`: the text of the statement.
pub fn text(plan: &Plan, statistics: &Statistics, query: &str, counts: Option<&Counts>) -> String {
    let mut members = vec![
        ("json_schema_version".to_owned(), Json::text(SCHEMA_VERSION)),
        ("query_type".to_owned(), Json::text(kind(plan))),
        ("query_plan".to_owned(), object(&steps::of(plan, statistics), counts)),
    ];
    // MySQL says nothing of changes that its executor of plans does not do.
    if !matches!(plan, Plan::Update(_) | Plan::Delete(_)) {
        members.push(("query".to_owned(), Json::text(query.trim())));
    }
    let mut out = Vec::new();
    print::push_pretty(&mut out, &Json::Object(Object::from_members(members)), 0);
    String::from_utf8_lossy(&out).into_owned()
}

fn kind(plan: &Plan) -> &'static str {
    match plan {
        Plan::Select(_) | Plan::Into(_) => "select",
        Plan::Insert(insert) if matches!(insert.on_duplicate, OnDuplicate::Replace) => "replace",
        Plan::Insert(_) => "insert",
        Plan::Update(_) => "update",
        Plan::Delete(_) => "delete",
        Plan::Change(change) => {
            if change.is_update {
                "update"
            } else {
                "delete"
            }
        }
    }
}

fn object(step: &Step, counts: Option<&Counts>) -> Json {
    let mut members: Vec<(&str, Json)> = step.members.clone();
    members.push(("operation", Json::text(step.operation.as_str())));
    members.extend(step.heading.as_deref().map(|heading| ("heading", Json::text(heading))));
    members.extend(step.rows.map(|rows| ("estimated_rows", Json::Double(rows))));
    if let (Some(counts), Some(part)) = (counts, step.part) {
        members.extend(actual(counts, part));
    }
    for (name, steps) in [("inputs", &step.inputs), ("inputs_from_select_list", &step.in_select_list)] {
        if !steps.is_empty() {
            members.push((name, Json::Array(steps.iter().map(|step| object(step, counts)).collect())));
        }
    }
    Json::Object(Object::from_members(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

/// What was counted of a step, or NULL for each of it.
fn actual(counts: &Counts, part: Part) -> [(&'static str, Json); 4] {
    let counted = counts.get(part).filter(|c| c.loops > 0);
    let ms = |time: Duration| Json::Double(time.as_secs_f64() * 1e3);
    let [rows, loops, first, last] = match counted {
        None => [const { Json::Null }; 4],
        Some(c) => [
            Json::Double(c.rows as f64 / c.loops as f64),
            Json::UInt(c.loops),
            ms(c.first.unwrap_or(c.last)),
            ms(c.last),
        ],
    };
    [("actual_rows", rows), ("actual_loops", loops), ("actual_first_row_ms", first), ("actual_last_row_ms", last)]
}

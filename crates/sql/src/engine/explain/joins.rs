//! How a step joins the rows before it with those of a leaf: by keys, or with a hash table, and by which conditions.

use super::{
    super::{
        exec::probe::{self, Of},
        expr::Expr,
        plan::query::{JoinStep, Leaf},
    },
    names::{Names, either_way},
    steps::{Step, filtered, texts},
};
use crate::json::Json;

/// What the places of the two rows are called that a join makes one.
pub struct Sides<'s> {
    pub before: &'s [String],
    pub own: &'s [String],
}

/// The step that joins the rows of a leaf.
pub fn joined(leaf: &JoinStep, outer: Step, inner: Step, sides: &Sides<'_>, names: &Names<'_>) -> Step {
    let kind = if leaf.is_left { "left join" } else { "inner join" };
    let (operation, algorithm, inner, conditions) =
        if leaf.lookup.is_some() || matches!(&leaf.leaf, Leaf::Derived(d) if d.is_lateral) {
            let inner = match all_of(beside_key(leaf, names)) {
                Some(condition) => filtered(inner, condition).counted(probe::of(leaf, Of::Matched)),
                None => inner,
            };
            (format!("Nested loop {kind}"), "nested_loop", inner, None)
        } else {
            let (hashed, extra) = matched(leaf, sides, names);
            let kind = if leaf.is_left { "Left" } else { "Inner" };
            let mut operation = format!("{kind} hash join ");
            operation += &all_of(hashed.clone()).unwrap_or_else(|| "(no condition)".to_owned());
            if let Some(extra) = all_of(extra.clone()) {
                operation += &format!(", extra conditions: {extra}");
            }
            (operation, "hash", inner.headed("Hash"), Some((hashed, extra)))
        };
    let step = Step::new(operation, "join", vec![outer, inner])
        .says("join_type", Json::text(kind))
        .says("join_algorithm", Json::text(algorithm));
    let Some((hashed, extra)) = conditions else { return step };
    let step = step.says("hash_condition", texts(hashed));
    if extra.is_empty() { step } else { step.says("extra_condition", texts(extra)) }
}

/// Conditions as one.
fn all_of(conditions: Vec<String>) -> Option<String> {
    match conditions.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("({})", several.join(" and "))),
    }
}

/// What two rows must satisfy to match: what is not said already, and what is.
fn parted(leaf: &JoinStep, names: &Names<'_>, said: &[String]) -> (Vec<String>, Vec<String>) {
    let parts = match &leaf.matches {
        None => &[],
        Some(Expr::And(parts)) => parts.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    parts.iter().map(|e| names.text(e)).partition(|text| !said.contains(text))
}

/// What rows that were found by key must satisfy, but for what their key says.
fn beside_key(leaf: &JoinStep, names: &Names<'_>) -> Vec<String> {
    let said = match (&leaf.leaf, &leaf.lookup) {
        (Leaf::Table { table, .. }, Some(path)) => names.said(&table.schema, &leaf.shown, path),
        _ => Vec::new(),
    };
    parted(leaf, names, &said).0
}

/// The conditions by which a hash table finds rows, and those that are asked of the rows it finds.
fn matched(leaf: &JoinStep, sides: &Sides<'_>, names: &Names<'_>) -> (Vec<String>, Vec<String>) {
    let over = |columns| Names { columns, group: None, ..*names };
    let said = leaf.keys.iter().flat_map(|key| {
        let (outer, inner) = (over(sides.before).text(&key.outer), over(sides.own).text(&key.inner));
        either_way(&outer, &inner)
    });
    let (extra, hashed) = parted(leaf, names, &said.collect::<Vec<_>>());
    // A key may be made of a condition that says it in other words.
    if hashed.len() < leaf.keys.len() {
        (Vec::from_iter(hashed.into_iter().chain(extra)), Vec::new())
    } else {
        (hashed, extra)
    }
}

//! How a step joins the rows before it with those of a leaf: by keys, or with a hash table, and by which conditions.

use super::{
    names::{Name, Names, either_way},
    steps::{filtered, step::Step, texts},
};
use crate::{
    expr::{
        Expr,
        probe::{self, Of},
    },
    plan::query::{JoinKind, JoinStep, Leaf},
    value::json::Json,
};

/// What the places of the two rows are called that a join makes one.
pub struct Sides<'s> {
    pub before: &'s [Name],
    pub own: &'s [Name],
}

/// The step that joins the rows of a leaf.
pub fn joined(leaf: &JoinStep, outer: Step, inner: Step, sides: &Sides<'_>, names: &Names<'_>) -> Step {
    let kind = word(leaf.kind);
    let step = |operation: String, algorithm, inner| {
        Step::new(operation, "join", vec![outer, inner])
            .says("join_type", Json::text(kind))
            .says("join_algorithm", Json::text(algorithm))
    };
    if leaf.lookup.is_some() || matches!(&leaf.leaf, Leaf::Derived(d) if d.is_lateral) {
        let beside = beside_key(leaf, names);
        let inner = match all_of(&beside, names) {
            Some(condition) => {
                filtered(inner, condition, names.columns_in(beside)).counted(probe::of(leaf, Of::Matched))
            }
            None => inner,
        };
        return step(format!("Nested loop {kind}"), "nested_loop", inner);
    }
    let (hashed, extra) = matched(leaf, sides, names);
    let mut operation = match leaf.kind {
        JoinKind::Inner => "Inner hash join ",
        JoinKind::Left => "Left hash join ",
        JoinKind::Semi => "Hash semijoin ",
        JoinKind::Anti => "Hash antijoin ",
    }
    .to_owned();
    operation += &all_of(&hashed, names).unwrap_or_else(|| "(no condition)".to_owned());
    if let Some(extra) = all_of(&extra, names) {
        operation += &format!(", extra conditions: {extra}");
    }
    let of = |list: &[&Expr]| texts(list.iter().map(|e| names.text(e)));
    let step = step(operation, "hash", inner.headed("Hash"))
        .says("hash_condition", of(&hashed))
        .says("join_columns", texts(names.columns_in([hashed, extra.clone()].concat())));
    if extra.is_empty() { step } else { step.says("extra_condition", of(&extra)) }
}

fn word(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner join",
        JoinKind::Left => "left join",
        JoinKind::Semi => "semijoin",
        JoinKind::Anti => "antijoin",
    }
}

/// Conditions as one.
fn all_of(conditions: &[&Expr], names: &Names<'_>) -> Option<String> {
    match conditions {
        [] => None,
        [one] => Some(names.text(one)),
        several => {
            let several: Vec<String> = several.iter().map(|e| names.text(e)).collect();
            Some(format!("({})", several.join(" and ")))
        }
    }
}

/// What two rows must satisfy to match: what is not said already, and what is.
fn parted<'l>(leaf: &'l JoinStep, names: &Names<'_>, said: &[String]) -> (Vec<&'l Expr>, Vec<&'l Expr>) {
    let parts = match &leaf.matches {
        None => &[],
        Some(Expr::And(parts)) => parts.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    parts.iter().partition(|e| !said.contains(&names.text(e)))
}

/// What rows that were found by key must satisfy, but for what their key says.
fn beside_key<'l>(leaf: &'l JoinStep, names: &Names<'_>) -> Vec<&'l Expr> {
    let said = match (&leaf.leaf, &leaf.lookup) {
        (Leaf::Table { table, .. }, Some(path)) => names.said(&table.schema, &leaf.shown, path),
        _ => Vec::new(),
    };
    parted(leaf, names, &said).0
}

/// The conditions by which a hash table finds rows, and those that are asked of the rows it finds.
fn matched<'l>(leaf: &'l JoinStep, sides: &Sides<'_>, names: &Names<'_>) -> (Vec<&'l Expr>, Vec<&'l Expr>) {
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

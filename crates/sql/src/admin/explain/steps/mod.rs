//! The steps of a plan, made once for [`tree`](super::tree) and [`json`](super::json) to print.
//!
//! A step says what it does in the words in which MySQL writes its own plans, what that sentence says piece by piece under the names that MySQL's documents give the pieces, how many
//! rows are expected where that is known, and by which part of the plan its rows are counted when the statement runs ([`crate::expr::probe`]). There are no costs. Sorting, grouping and
//! LIMIT of a block are one thing when it is run, so the block's topmost step is what is counted. A subquery is run before its block, or for each row of a join in it; it is shown where
//! MySQL shows it, below the step whose condition names it, or beside the block's topmost step.

pub mod step;

use std::collections::BTreeSet;

use self::step::{NOT_EXECUTABLE, Step, TEMPORARY};
use super::{
    joins::{Sides, joined},
    names::{Name, Names},
    reads::{self, columns_of, columns_of_derived},
};
use crate::{
    catalog::{Table, statistics::Statistics},
    expr::{
        Expr, Kind,
        probe::{self, Of},
    },
    plan::{
        Plan, Select,
        access::Access,
        change::Fate,
        cost,
        dml::insert::{Insert, OnDuplicate, Source},
        query::{Body, Derived, Given, Join, JoinStep, Leaf, SetOperation, StepKind, Subquery},
    },
    value::{datum::Datum, json::Json},
};

/// A subquery of a block.
struct Asked {
    number: u32,
    once: bool,
    top: Step,
}

impl Asked {
    fn at(self, location: &str) -> Step {
        let (how, kind) = if self.once { ("run only once", "cacheable") } else { ("dependent", "dependent") };
        let heading = format!("Select #{} (subquery in {location}; {how})", self.number);
        self.top.headed(heading).is("subquery").is(kind).says("subquery_location", Json::text(location))
    }
}

/// What a subquery is called where its value is used.
fn asked(number: u32) -> String {
    format!("(select #{number})")
}

/// Members that are conditions.
const CONDITIONS: [&str; 5] = ["condition", "lookup_condition", "ranges", "hash_condition", "extra_condition"];

/// A list of texts.
pub fn texts(list: impl IntoIterator<Item = String>) -> Json {
    Json::Array(list.into_iter().map(Json::String).collect())
}

struct Steps<'t> {
    statistics: &'t Statistics,
    blocks: u32,
}

/// The last step of a plan, with those before it.
pub fn of(plan: &Plan, statistics: &Statistics) -> Step {
    let mut steps = Steps { statistics, blocks: 0 };
    let nothing = Names { columns: &[], given: &[], group: None };
    match plan {
        Plan::Select(select) => steps.block(select, &nothing),
        Plan::Into(into) => steps.block(&into.query, &nothing),
        Plan::Insert(insert) => {
            let source = match &insert.source {
                Source::Select(select) => steps.block(select, &nothing),
                Source::Values(_) => Step::before(),
            };
            inserted(insert, source)
        }
        Plan::Change(change) => {
            let changed = change.targets.iter().filter(|t| !matches!(t.fate, Fate::Stays));
            let names: Vec<&str> = changed.map(|t| t.table.schema.name.as_str()).collect();
            let tables = format!("{} (buffered)", names.join(", "));
            let source = vec![steps.block(&change.query, &nothing)];
            let step = match change.is_update {
                true => Step::bare(format!("Update {tables}"), source),
                false => Step::new(format!("Delete from {tables}"), "delete_rows", source),
            };
            step.says("tables", Json::String(tables))
        }
        Plan::Update(_) | Plan::Delete(_) => Step::bare(NOT_EXECUTABLE, Vec::new()),
    }
}

/// Rows that an INSERT or REPLACE has become, from where they come from.
fn inserted(insert: &Insert, source: Step) -> Step {
    let schema = &insert.table.schema;
    let is_replace = matches!(insert.on_duplicate, OnDuplicate::Replace);
    let operation = format!("{} into {}", if is_replace { "Replace" } else { "Insert" }, schema.name);
    let step = match (&insert.source, is_replace) {
        (Source::Select(_), _) => Step::bare(operation, vec![source]),
        (Source::Values(_), true) => Step::new(operation, "replace_values", vec![source]),
        (Source::Values(_), false) => Step::new(operation, "insert_values", vec![source]),
    };
    let places = insert.places.iter().zip(&schema.columns);
    let named = places.filter(|(place, _)| place.is_some()).map(|(_, column)| column.name.clone());
    reads::named(step, &insert.table, &schema.name).says("used_columns", texts(named))
}

impl Steps<'_> {
    /// The topmost step of a block.
    fn block(&mut self, select: &Select, outside: &Names<'_>) -> Step {
        self.blocks += 1;
        let mut others: Vec<Asked> = Vec::new();
        let mut given = Vec::new();
        for g in &select.given {
            given.push(match g {
                Given::Outer(e) => outside.name(e),
                Given::Value(subquery) => {
                    let names = Names { columns: &[], given: &given, group: None };
                    self.subquery(subquery, &names, true, &mut others)
                }
            });
        }
        let mut columns = Vec::new();
        let source = match (&select.join, &select.table, &select.access) {
            (Some(join), ..) => self.join(join, &given, &mut columns, &mut others),
            (None, Some(table), Some(access)) => {
                let (shown, fetched) = (&select.shown, select.columns.as_deref());
                columns = columns_of(table, shown, fetched);
                let names = Names { columns: &columns, given: &given, group: None };
                self.table(table, shown, access, select.reverse, &names, fetched)
            }
            _ => Step::before().estimated(Some(1.0)),
        };
        let names = Names { columns: &columns, given: &given, group: select.group.as_ref() };
        let mut top = above(select, source, &names).counted(probe::of(select, Of::Given));
        others.into_iter().for_each(|subquery| top.place(subquery));
        top
    }

    /// Puts a subquery among the others of its block; what it is called where its value is used.
    fn subquery(&mut self, subquery: &Subquery, outside: &Names<'_>, once: bool, others: &mut Vec<Asked>) -> Name {
        let number = self.blocks + 1;
        let top = self.block(&subquery.query, outside);
        others.push(Asked { number, once, top });
        Name::of_value(asked(number), once)
    }

    fn table(
        &mut self,
        table: &Table,
        shown: &str,
        access: &Access,
        reverse: bool,
        names: &Names<'_>,
        fetched: Option<&[u16]>,
    ) -> Step {
        let rows = self.statistics.of(table).map(|known| cost::of_access(access, &known, fetched));
        let mut read = reads::reading(table, shown, &access.path, reverse, names, fetched);
        if access.pushed.has_tests() {
            read.operation += ", with pushed condition";
            let condition = names.pushed(&columns_of(table, shown, None), &access.pushed);
            read = read.says("pushed_condition", Json::String(condition));
        }
        let read = read.estimated(rows.map(|r| r.0)).counted(probe::of(access, Of::Read));
        match &access.rest {
            None => read,
            Some(rest) => {
                filter(read, rest, names).estimated(rows.map(|r| r.1)).counted(probe::of(access, Of::Matched))
            }
        }
    }

    /// The steps of a join; `columns` becomes what the places of the joined row are called.
    fn join(&mut self, join: &Join, given: &[Name], columns: &mut Vec<Name>, others: &mut Vec<Asked>) -> Step {
        let mut so_far: Option<Step> = None;
        for step in &join.steps {
            let before = columns.clone();
            match &step.kind {
                StepKind::Nothing => {}
                StepKind::Compute(subquery) => {
                    let names = Names { columns: &before, given, group: None };
                    columns.push(self.subquery(subquery, &names, false, others));
                }
                StepKind::Join(leaf) => {
                    let (own, read) = self.leaf(leaf, &before, given, others, so_far.is_none());
                    columns.extend(leaf.taken.iter().map(|&at| own.get(usize::from(at)).cloned().unwrap_or_default()));
                    let sides = Sides { before: &before, own: &own };
                    let names = Names { columns, given, group: None };
                    so_far = Some(match so_far.take() {
                        None => read,
                        Some(outer) => joined(leaf, outer, read, &sides, &names).counted(probe::of(step, Of::Matched)),
                    });
                }
            }
            if let Some(condition) = &step.filter {
                let names = Names { columns, given, group: None };
                let source = so_far.take().unwrap_or_else(Step::before);
                so_far = Some(filter(source, condition, &names).counted(probe::of(step, Of::Given)));
            }
        }
        let last = so_far.unwrap_or_else(|| Step::before().estimated(Some(1.0)));
        if last.rows.is_none() { last.estimated(join.rows) } else { last }
    }

    /// How a leaf is read, and what its own row's places are called.
    fn leaf(
        &mut self,
        leaf: &JoinStep,
        before: &[Name],
        given: &[Name],
        others: &mut Vec<Asked>,
        is_first: bool,
    ) -> (Vec<Name>, Step) {
        match &leaf.leaf {
            Leaf::Table { table, columns } => {
                let own = columns_of(table, &leaf.shown, Some(columns));
                let read = match (&leaf.lookup, &leaf.scan) {
                    (Some(path), _) => {
                        let names = Names { columns: before, given, group: None };
                        reads::reading(table, &leaf.shown, path, false, &names, Some(columns)).estimated(leaf.read)
                    }
                    (None, Some(access)) => {
                        let names = Names { columns: &own, given, group: None };
                        self.table(table, &leaf.shown, access, false, &names, Some(columns))
                    }
                    (None, None) => reads::scan(table, &leaf.shown, Some(columns)),
                };
                if is_first && leaf.lookup.is_none() {
                    return (own, read);
                }
                let read = match leaf.told() {
                    Some((_, column)) if leaf.lookup.is_none() => {
                        let column = columns_of(table, &leaf.shown, None).swap_remove(usize::from(column)).text;
                        read.told(column)
                    }
                    _ => read,
                };
                // All of it is read at once, or by the keys of a batch.
                let inputs = read.inputs.into_iter().map(|step| Step { part: None, ..step }).collect();
                (own, Step { inputs, ..read }.counted(probe::of(leaf, Of::Read)))
            }
            Leaf::Derived(derived) => {
                let shown = match derived.is_subquery {
                    true => format!("<subquery{}>", self.blocks + 1),
                    false => leaf.shown.clone(),
                };
                let own = columns_of_derived(derived, &shown);
                let names = Names { columns: before, given, group: None };
                let read =
                    self.derived(derived, &shown, &names).counted(probe::of(leaf, Of::Read)).estimated(leaf.read);
                let names = Names { columns: &own, given, group: None };
                let read = match &leaf.own {
                    Some(condition) => filter(read, condition, &names),
                    None => read,
                };
                (own, read)
            }
            Leaf::Nested(join) => {
                let mut own = Vec::new();
                let last = self.join(join, given, &mut own, others);
                (own, last.counted(probe::of(leaf, Of::Read)))
            }
        }
    }

    fn derived(&mut self, derived: &Derived, shown: &str, outside: &Names<'_>) -> Step {
        let made = self.body(&derived.body, shown, outside);
        let scanned = |made: Step| {
            let shown = match (shown, &derived.body) {
                ("", Body::Set { operation, .. }) => format!("<{} temporary>", word(*operation).to_lowercase()),
                ("", _) => TEMPORARY.to_owned(),
                (shown, _) => shown.to_owned(),
            };
            made.scanned(&shown)
        };
        let read = match &derived.body {
            Body::LastRows | Body::JsonTable { .. } => made,
            Body::Select(_) if derived.is_subquery => {
                scanned(made.over("Materialize with deduplication", "materialize").is("deduplication"))
            }
            Body::Select(_) => scanned(made.over("Materialize", "materialize")),
            Body::Set { .. } | Body::Recursive { .. } => scanned(made),
        };
        read.says("used_columns", texts(reads::names_of_derived(derived).map(str::to_owned)))
    }

    fn body(&mut self, body: &Body, shown: &str, outside: &Names<'_>) -> Step {
        match body {
            Body::Select(select) => self.block(select, outside),
            Body::Set { operation, all, left, right } => {
                let word = word(*operation);
                let parts = vec![self.body(left, shown, outside), self.body(right, shown, outside)];
                let kind = match operation {
                    SetOperation::Union => "union",
                    SetOperation::Intersect => "intersect",
                    SetOperation::Except => "except",
                };
                match all {
                    true => Step::new(format!("{word} all materialize"), "materialize", parts).is(kind),
                    false => {
                        let how = format!("{word} materialize with deduplication");
                        Step::new(how, "materialize", parts).is(kind).is("deduplication")
                    }
                }
            }
            Body::Recursive { first, step, .. } => {
                let first = self.body(first, shown, outside);
                let step = self.body(step, shown, outside).headed("Repeat until convergence");
                let operation = format!("Materialize recursive CTE {shown}");
                Step::new(operation, "materialize", vec![first, step]).is("cte").is("recursive")
            }
            Body::JsonTable { .. } => {
                let operation = format!("Materialize table function {shown}");
                Step::new(operation, "materialized_table_function", Vec::new()).says("table_name", Json::text(shown))
            }
            Body::LastRows => {
                let operation = format!("Scan new records on {shown}");
                Step::new(operation, "scan_new_records", Vec::new()).says("table_name", Json::text(shown))
            }
        }
    }
}

fn word(operation: SetOperation) -> &'static str {
    match operation {
        SetOperation::Union => "Union",
        SetOperation::Intersect => "Intersect",
        SetOperation::Except => "Except",
    }
}

/// What becomes of the rows of a block: groups, windows, order, limit.
fn above(select: &Select, source: Step, names: &Names<'_>) -> Step {
    let mut step = source;
    if let Some(group) = &select.group {
        if !group.each_row {
            let functions: Vec<String> = (0..group.aggregates.len()).map(|at| names.text(&aggregate(at))).collect();
            let whole = functions.join(", ");
            let functions = texts(functions);
            step = match (group.keys.is_empty(), group.rollup, select.pushdown.is_some()) {
                (true, _, true) => step
                    .over(format!("Aggregate in data nodes: {whole}"), "aggregate")
                    .says("functions", functions)
                    .is("in_data_nodes"),
                (true, _, false) => step.over(format!("Aggregate: {whole}"), "aggregate").says("functions", functions),
                (false, true, _) => step
                    .over(format!("Group aggregate with rollup: {whole}"), "aggregate")
                    .says("functions", functions)
                    .is("group_by")
                    .is("rollup"),
                (false, false, is_pushed) => {
                    let parts = match (is_pushed, whole.is_empty()) {
                        (false, _) => step,
                        (true, true) => {
                            step.over("Group in data nodes", "aggregate").is("group_by").is("in_data_nodes")
                        }
                        (true, false) => step
                            .over(format!("Group aggregate in data nodes: {whole}"), "aggregate")
                            .says("functions", functions)
                            .is("group_by")
                            .is("in_data_nodes"),
                    };
                    parts.over("Aggregate using temporary table", "temp_table_aggregate").scanned(TEMPORARY)
                }
            };
        }
        if let Some(having) = &group.having {
            step = filter(step, having, names);
        }
        if group.windows.is_some() {
            step = step.over("Window aggregate with buffering", "window").is("buffering");
        }
    }
    if select.distinct {
        if select.pushdown.is_some() && select.group.is_none() {
            step = step.over("Deduplication in data nodes", "materialize").is("deduplication").is("in_data_nodes");
        }
        let distinct = step.over("Temporary table with deduplication", "materialize");
        step = distinct.is("temp_table").is("deduplication").scanned(TEMPORARY);
    }
    let (limit, offset) = (count_of(select.limit.as_ref()), count_of(select.offset.as_ref()).unwrap_or(0));
    let last = limit.map(|n| n.saturating_add(offset));
    if !select.in_order && !select.order.is_empty() {
        let fields = names.keys(&select.order);
        let most = last.map_or_else(String::new, |n| format!(", limit input to {n} row(s) per chunk"));
        step = step.over(format!("Sort: {}{most}", fields.join(", ")), "sort").says("sort_fields", texts(fields));
        if let Some(last) = last {
            step = step.says("per_chunk_limit", Json::UInt(last));
        }
    }
    let (Some(limit), Some(last)) = (limit, last) else { return step };
    let mut operation = match offset {
        0 => format!("Limit: {limit} row(s)"),
        offset => format!("Limit/Offset: {limit}/{offset} row(s)"),
    };
    if select.counts_all {
        operation += " (no early end due to SQL_CALC_FOUND_ROWS)";
    }
    let limited =
        step.over(operation, "limit").says("limit", Json::UInt(last)).says("limit_offset", Json::UInt(offset));
    if select.counts_all { limited.is("count_all_rows") } else { limited }
}

fn aggregate(at: usize) -> Expr {
    Expr::Aggregate(at, Kind::Null, Default::default())
}

fn count_of(e: Option<&Expr>) -> Option<u64> {
    match e? {
        Expr::Const(Datum::Int(n)) => u64::try_from(*n).ok(),
        Expr::Const(Datum::UInt(n)) => Some(*n),
        _ => None,
    }
}

fn filter(step: Step, condition: &Expr, names: &Names<'_>) -> Step {
    filtered(step, names.text(condition), names.columns_in([condition]))
}

/// What of the rows of a step satisfies a condition on columns.
pub fn filtered(step: Step, condition: String, columns: BTreeSet<String>) -> Step {
    step.over(format!("Filter: {condition}"), "filter")
        .says("condition", Json::String(condition))
        .says("filter_columns", texts(columns))
}

//! EXPLAIN FORMAT=TRADITIONAL: what a plan reads and how, in MySQL's columns.
//!
//! Blocks are numbered as they are met, each with its tables in the order in which they are joined. `rows` is what the order was chosen by: rows read of a table, for each
//! row before it where keys lead to them. `filtered`, `possible_keys` and `key_len` are NULL: only the key that is used is named.

use std::collections::BTreeMap;

use apus_types::IndexNo;

use super::super::{
    catalog::Table,
    plan::{
        Plan, Select,
        access::{Access, Path},
        change::Locked,
        cost,
        dml::Source,
        query::{Asked, Body, Given, JoinStep, Leaf, StepKind, Subquery},
    },
    statistics::Statistics,
};

pub const COLUMNS: [&str; 12] = [
    "id",
    "select_type",
    "table",
    "partitions",
    "type",
    "possible_keys",
    "key",
    "key_len",
    "ref",
    "rows",
    "filtered",
    "Extra",
];

type Row = Vec<Option<String>>;

struct Lines<'l> {
    statistics: &'l Statistics,
    rows: Vec<Row>,
    blocks: u32,
    /// For each block how many combinations of rows it looks at.
    combinations: BTreeMap<u32, f64>,
}

/// One line of the answer.
#[derive(Default)]
struct Line<'l> {
    kind: &'l str,
    table: Option<&'l str>,
    access: Option<&'l str>,
    key: Option<String>,
    by: Option<&'l str>,
    read: Option<f64>,
    extra: Vec<&'l str>,
}

/// The lines of a plan.
pub fn rows(plan: &Plan, statistics: &Statistics) -> Vec<Row> {
    lines(plan, statistics).rows
}

/// Combinations of rows that a plan looks at, as estimated: in each block the product of what its tables give.
pub fn combinations(plan: &Plan, statistics: &Statistics) -> f64 {
    lines(plan, statistics).combinations.values().sum()
}

fn lines<'l>(plan: &Plan, statistics: &'l Statistics) -> Lines<'l> {
    let mut lines = Lines { statistics, rows: Vec::new(), blocks: 0, combinations: BTreeMap::new() };
    match plan {
        Plan::Select(select) => lines.select(select, top(select)),
        Plan::Into(into) => lines.select(&into.query, top(&into.query)),
        Plan::Insert(insert) => {
            let id = lines.next();
            let table = Some(insert.table.schema.name.as_str());
            lines.push(id, Line { kind: "INSERT", table, access: Some("ALL"), ..Line::default() });
            if let Source::Select(select) = &insert.source {
                lines.select(select, top(select));
            }
        }
        Plan::Update(update) => {
            let extra = if update.program.is_some() { vec!["Using update program"] } else { vec!["Using where"] };
            lines.changed("UPDATE", &update.table, &update.access, extra);
        }
        Plan::Delete(delete) => lines.changed("DELETE", &delete.table, &delete.access, Vec::new()),
        Plan::Change(change) => lines.change(change),
    }
    lines
}

fn top(select: &Select) -> &'static str {
    let has_others = !select.given.is_empty()
        || select.join.iter().flat_map(|j| &j.steps).any(|s| match &s.kind {
            StepKind::Compute(_) => true,
            StepKind::Join(join) => matches!(join.leaf, Leaf::Derived(_)),
            StepKind::Nothing => false,
        });
    if has_others { "PRIMARY" } else { "SIMPLE" }
}

impl Lines<'_> {
    fn next(&mut self) -> u32 {
        self.blocks += 1;
        self.blocks
    }

    fn push(&mut self, id: u32, line: Line<'_>) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let extra = (!line.extra.is_empty()).then(|| line.extra.join("; "));
        if let Some(read) = line.read {
            *self.combinations.entry(id).or_insert(1.0) *= read.max(1.0);
        }
        self.rows.push(vec![
            Some(id.to_string()),
            Some(line.kind.to_owned()),
            own(line.table),
            None,
            own(line.access),
            None,
            line.key,
            None,
            own(line.by),
            line.read.map(|rows| format!("{:.0}", rows.max(1.0))),
            None,
            extra,
        ]);
    }

    /// Rows that a path reads.
    fn read_by(&self, table: &Table, path: &Path) -> Option<f64> {
        self.statistics.of(table).map(|known| cost::read_by(path, &known))
    }

    fn changed(&mut self, kind: &str, table: &Table, access: &Access, mut extra: Vec<&'static str>) {
        let id = self.next();
        if access.rest.is_some() && extra.is_empty() {
            extra.extend(conditions(access));
        }
        let (how, key) = path(table, &access.path);
        let by = by_constant(how);
        let read = self.read_by(table, &access.path);
        self.push(id, Line { kind, table: Some(&table.schema.name), access: Some(how), key, by, read, extra });
    }

    fn change(&mut self, change: &Locked) {
        self.select(&change.query, if change.is_update { "UPDATE" } else { "DELETE" });
    }

    fn select(&mut self, select: &Select, kind: &str) {
        let id = self.next();
        let mut rest = Vec::new();
        if select.group.as_ref().is_some_and(|g| !g.keys.is_empty()) || select.distinct {
            rest.push("Using temporary");
        }
        if !select.in_order {
            rest.push("Using filesort");
        }
        if select.pushdown.is_some() {
            rest.push("Aggregates in data nodes");
        }
        match (&select.join, &select.table, &select.access) {
            (Some(join), ..) => {
                let mut extra = Some(rest);
                for step in &join.steps {
                    if let StepKind::Join(join) = &step.kind {
                        self.step(id, kind, join, step.filter.is_some(), extra.take().unwrap_or_default());
                    }
                }
                if extra.is_some() {
                    self.push(id, Line { kind, extra: vec!["No tables used"], ..Line::default() });
                }
                for step in &join.steps {
                    self.others(&step.kind);
                }
            }
            (None, Some(table), Some(access)) => {
                let (how, key) = path(table, &access.path);
                let mut extra = rest;
                if access.rest.is_some() {
                    extra.splice(0..0, conditions(access));
                }
                let by = by_constant(how);
                let read = self.read_by(table, &access.path);
                self.push(id, Line { kind, table: Some(&select.shown), access: Some(how), key, by, read, extra });
            }
            _ => self.push(id, Line { kind, extra: vec!["No tables used"], ..Line::default() }),
        }
        for given in &select.given {
            if let Given::Value(subquery) = given {
                self.subquery(subquery, "SUBQUERY");
            }
        }
    }

    fn step(&mut self, id: u32, kind: &str, join: &JoinStep, filtered: bool, mut rest: Vec<&str>) {
        let is_where = filtered || join.scan.as_ref().is_some_and(|s| s.rest.is_some()) || join.own.is_some();
        if is_where {
            let pushed = join.scan.as_ref().filter(|_| join.lookup.is_none()).is_some_and(|s| s.pushed.has_tests());
            rest.splice(0..0, std::iter::once("Using where").chain(pushed.then_some(PUSHED)));
        }
        let is_hash = join.lookup.is_none() && !join.keys.is_empty();
        if is_hash {
            rest.push("Using join buffer (hash join)");
        }
        match &join.leaf {
            Leaf::Table { table, .. } => {
                let (mut how, key) = match (&join.lookup, &join.scan) {
                    (Some(lookup), _) => path(table, lookup),
                    (None, Some(scan)) => path(table, &scan.path),
                    (None, None) => ("ALL", None),
                };
                let mut by = by_constant(how);
                if join.lookup.is_some() {
                    by = Some("func");
                    if how == "const" {
                        how = "eq_ref";
                    }
                }
                let path = join.lookup.as_ref().or(join.scan.as_ref().map(|scan| &scan.path));
                let read = join.read.or_else(|| self.read_by(table, path?));
                self.push(id, Line { kind, table: Some(&join.shown), access: Some(how), key, by, read, extra: rest });
            }
            Leaf::Derived(_) => {
                let name = format!("<derived {}>", join.shown);
                let line = Line {
                    kind,
                    table: Some(&name),
                    access: Some("ALL"),
                    read: join.read,
                    extra: rest,
                    ..Line::default()
                };
                self.push(id, line);
            }
            Leaf::Nested(inner) => {
                for step in &inner.steps {
                    if let StepKind::Join(join) = &step.kind {
                        self.step(id, kind, join, step.filter.is_some(), std::mem::take(&mut rest));
                    }
                }
            }
        }
    }

    /// Blocks that a step runs.
    fn others(&mut self, step: &StepKind) {
        match step {
            StepKind::Nothing => {}
            StepKind::Compute(subquery) => {
                let outside = subquery.query.given.iter().any(|g| g.outer().is_some());
                self.subquery(subquery, if outside { "DEPENDENT SUBQUERY" } else { "SUBQUERY" });
            }
            StepKind::Join(join) => match &join.leaf {
                Leaf::Table { .. } => {}
                Leaf::Derived(derived) => self.body(&derived.body, "DERIVED"),
                Leaf::Nested(inner) => inner.steps.iter().for_each(|s| self.others(&s.kind)),
            },
        }
    }

    fn subquery(&mut self, subquery: &Subquery, kind: &str) {
        match subquery.asked {
            Asked::Value | Asked::Exists | Asked::Found | Asked::In(_) | Asked::Quantified { .. } => {
                self.select(&subquery.query, kind);
            }
        }
    }

    fn body(&mut self, body: &Body, kind: &str) {
        match body {
            Body::Select(select) => self.select(select, kind),
            Body::Set { left, right, .. } => {
                self.body(left, kind);
                self.body(right, "UNION");
            }
            Body::Recursive { first, step, .. } => {
                self.body(first, kind);
                self.body(step, "RECURSIVE");
            }
            Body::JsonTable { document, .. } => self.select(document, kind),
            Body::LastRows => {}
        }
    }
}

fn by_constant(how: &str) -> Option<&'static str> {
    matches!(how, "const" | "ref").then_some("const")
}

/// How a path reads, and by which key.
fn path(table: &Table, path: &Path) -> (&'static str, Option<String>) {
    let named = |no: IndexNo| {
        let name = table.key_name(no.0);
        Some(name.rsplit_once('.').map_or(name.clone(), |(_, key)| key.to_owned()))
    };
    match path {
        Path::Points { index, values, rows, .. } => {
            let no = index.and_then(|at| table.schema.indexes.get(at)).map_or(IndexNo(0), |i| i.no);
            let is_one = !rows && values.iter().all(|list| list.len() == 1);
            (if is_one { "const" } else { "range" }, named(no))
        }
        Path::Union { index, .. } => ("range", named(*index)),
        Path::Range { index, equal, low, high, .. } => match (equal.is_empty(), low.is_some() || high.is_some()) {
            (_, true) => ("range", named(*index)),
            (false, false) => ("ref", named(*index)),
            (true, false) if *index == IndexNo(0) => ("ALL", None),
            (true, false) => ("index", named(*index)),
        },
    }
}

const PUSHED: &str = "Using pushed condition";

/// What is said of conditions beside the path.
fn conditions(access: &Access) -> impl Iterator<Item = &'static str> {
    std::iter::once("Using where").chain(access.pushed.has_tests().then_some(PUSHED))
}

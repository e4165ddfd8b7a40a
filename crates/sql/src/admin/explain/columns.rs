//! EXPLAIN FORMAT=TRADITIONAL: what a plan reads and how, in MySQL's columns.
//!
//! Blocks are numbered as they are met, each with its tables in the order in which they are joined. `rows` is what the order was chosen by: rows read of a table, for each
//! row before it where keys lead to them. `filtered` is the part of them, in percent, that the table's own conditions are expected to leave; `possible_keys` are indexes that
//! conditions are on; `key_len` has MySQL's bytes.

use std::collections::BTreeMap;

use apus_types::IndexNo;

use super::{
    keys,
    names::{Name, Names},
    reads::{columns_of, columns_of_derived},
};
use crate::{
    catalog::{Table, statistics::Statistics},
    expr::Expr,
    plan::{
        Plan, Select,
        access::{Access, Path},
        change::Locked,
        cost,
        dml::insert::Source,
        query::{Asked, Body, Given, JoinStep, Leaf, StepKind, Subquery},
    },
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
    possible: Option<String>,
    key: Option<(String, u32)>,
    by: Option<String>,
    read: Option<f64>,
    /// Which part of the rows is left.
    part: Option<f64>,
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
        Plan::Select(select) => lines.select(select, &[], top(select)),
        Plan::Into(into) => lines.select(&into.query, &[], top(&into.query)),
        Plan::Insert(insert) => {
            let id = lines.next();
            let table = Some(insert.table.schema.name.as_str());
            lines.push(id, Line { kind: "INSERT", table, access: Some("ALL"), ..Line::default() });
            if let Source::Select(select) = &insert.source {
                lines.select(select, &[], top(select));
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
        let (key, length) = line.key.map(|(key, length)| (key, length.to_string())).unzip();
        self.rows.push(vec![
            Some(id.to_string()),
            Some(line.kind.to_owned()),
            own(line.table),
            None,
            own(line.access),
            line.possible,
            key,
            length,
            line.by,
            line.read.map(|rows| format!("{:.0}", rows.max(1.0))),
            line.read.and(line.part).map(|part| format!("{:.2}", 100.0 * part.clamp(0.0, 1.0))),
            extra,
        ]);
    }

    /// Rows that a path reads.
    fn read_by(&self, table: &Table, path: &Path) -> Option<f64> {
        self.statistics.of(table).map(|known| cost::read_by(path, &known))
    }

    /// How one table is read by constants.
    fn reading(&self, table: &Table, access: &Access) -> Line<'static> {
        let (how, key) = path(table, &access.path);
        Line {
            access: Some(how),
            possible: keys::names(table, &access.possible),
            key,
            by: by_key(how, &access.path, &Names { columns: &[], given: &[], group: None }),
            read: self.read_by(table, &access.path),
            part: Some(access.part.unwrap_or(1.0)),
            ..Line::default()
        }
    }

    fn changed(&mut self, kind: &str, table: &Table, access: &Access, mut extra: Vec<&'static str>) {
        let id = self.next();
        if access.rest.is_some() && extra.is_empty() {
            extra.extend(conditions(access));
        }
        let line = self.reading(table, access);
        self.push(id, Line { kind, table: Some(&table.schema.name), extra, ..line });
    }

    fn change(&mut self, change: &Locked) {
        self.select(&change.query, &[], if change.is_update { "UPDATE" } else { "DELETE" });
    }

    /// `outside`: what the places of the row around it are called.
    fn select(&mut self, select: &Select, outside: &[Name], kind: &str) {
        let id = self.next();
        let given: Vec<Name> = select.given.iter().map(|given| name_of(given, outside)).collect();
        let mut rest = Vec::new();
        if select.group.as_ref().is_some_and(|g| !g.keys.is_empty()) || select.distinct {
            rest.push("Using temporary");
        }
        if !select.in_order {
            rest.push("Using filesort");
        }
        if select.pushdown.is_some() {
            rest.push(match &select.group {
                None => "Distinct rows in data nodes",
                Some(group) if group.keys.is_empty() => "Aggregates in data nodes",
                Some(_) => "Groups in data nodes",
            });
        }
        match (&select.join, &select.table, &select.access) {
            (Some(join), ..) => {
                let mut extra = Some(rest);
                let mut columns = Vec::new();
                for step in &join.steps {
                    if let StepKind::Join(join) = &step.kind {
                        let names = Names { columns: &columns, given: &given, group: None };
                        self.step(id, kind, join, &names, step.filter.is_some(), extra.take().unwrap_or_default());
                    }
                    grow(&mut columns, &step.kind);
                }
                if extra.is_some() {
                    self.push(id, Line { kind, extra: vec!["No tables used"], ..Line::default() });
                }
                let mut columns = Vec::new();
                for step in &join.steps {
                    self.others(&step.kind, &columns);
                    grow(&mut columns, &step.kind);
                }
            }
            (None, Some(table), Some(access)) => {
                let mut extra = rest;
                if access.rest.is_some() {
                    extra.splice(0..0, conditions(access));
                }
                let line = self.reading(table, access);
                self.push(id, Line { kind, table: Some(&select.shown), extra, ..line });
            }
            _ => self.push(id, Line { kind, extra: vec!["No tables used"], ..Line::default() }),
        }
        for given in &select.given {
            if let Given::Value(subquery) = given {
                self.subquery(subquery, outside, "SUBQUERY");
            }
        }
    }

    fn step(&mut self, id: u32, kind: &str, join: &JoinStep, names: &Names<'_>, filtered: bool, mut rest: Vec<&str>) {
        let is_where = filtered || join.scan.as_ref().is_some_and(|s| s.rest.is_some()) || join.own.is_some();
        if is_where {
            let pushed = join.scan.as_ref().filter(|_| join.lookup.is_none()).is_some_and(|s| s.pushed.has_tests());
            rest.splice(0..0, std::iter::once("Using where").chain(pushed.then_some(PUSHED)));
        }
        let is_hash = join.lookup.is_none() && !join.keys.is_empty();
        if is_hash && join.told().is_some() {
            rest.push("Using join filter");
        }
        if is_hash {
            rest.push("Using join buffer (hash join)");
        }
        match &join.leaf {
            Leaf::Table { table, .. } => {
                let (lookup, scan) = (join.lookup.as_ref(), join.scan.as_ref());
                let used = lookup.or(scan.map(|scan| &scan.path));
                let (mut how, key) = used.map_or(("ALL", None), |used| path(table, used));
                if lookup.is_some() && how == "const" {
                    how = "eq_ref";
                }
                let line = Line {
                    kind,
                    table: Some(&join.shown),
                    access: Some(how),
                    possible: scan.and_then(|scan| keys::names(table, &scan.possible)),
                    key,
                    by: used.and_then(|used| by_key(how, used, names)),
                    read: join.read.or_else(|| self.read_by(table, used?)),
                    part: Some(scan.and_then(|scan| scan.part).unwrap_or(1.0)),
                    extra: rest,
                };
                self.push(id, line);
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
                let mut columns = Vec::new();
                for step in &inner.steps {
                    if let StepKind::Join(join) = &step.kind {
                        let names = Names { columns: &columns, given: names.given, group: None };
                        self.step(id, kind, join, &names, step.filter.is_some(), std::mem::take(&mut rest));
                    }
                    grow(&mut columns, &step.kind);
                }
            }
        }
    }

    /// Blocks that a step runs.
    fn others(&mut self, step: &StepKind, before: &[Name]) {
        match step {
            StepKind::Nothing => {}
            StepKind::Compute(subquery) => {
                let outside = subquery.query.given.iter().any(|g| g.outer().is_some());
                self.subquery(subquery, before, if outside { "DEPENDENT SUBQUERY" } else { "SUBQUERY" });
            }
            StepKind::Join(join) => match &join.leaf {
                Leaf::Table { .. } => {}
                Leaf::Derived(derived) => self.body(&derived.body, before, "DERIVED"),
                Leaf::Nested(inner) => inner.steps.iter().for_each(|s| self.others(&s.kind, &[])),
            },
        }
    }

    fn subquery(&mut self, subquery: &Subquery, outside: &[Name], kind: &str) {
        match subquery.asked {
            Asked::Value | Asked::Exists | Asked::Found | Asked::In(_) | Asked::Quantified { .. } => {
                self.select(&subquery.query, outside, kind);
            }
        }
    }

    fn body(&mut self, body: &Body, outside: &[Name], kind: &str) {
        match body {
            Body::Select(select) => self.select(select, outside, kind),
            Body::Set { left, right, .. } => {
                self.body(left, outside, kind);
                self.body(right, outside, "UNION");
            }
            Body::Recursive { first, step, .. } => {
                self.body(first, outside, kind);
                self.body(step, outside, "RECURSIVE");
            }
            Body::JsonTable { document, .. } => self.select(document, outside, kind),
            Body::LastRows => {}
        }
    }
}

/// By what rows are looked up, where each part of the key has one value.
fn by_key(how: &str, path: &Path, names: &Names<'_>) -> Option<String> {
    matches!(how, "const" | "ref" | "eq_ref").then(|| names.references(path).join(","))
}

/// What the row behind a step has more than the row before it.
fn grow(columns: &mut Vec<Name>, step: &StepKind) {
    match step {
        StepKind::Nothing => {}
        StepKind::Compute(_) => columns.push(Name::of_value(String::new(), false)),
        StepKind::Join(leaf) => {
            let own = match &leaf.leaf {
                Leaf::Table { table, columns } => columns_of(table, &leaf.shown, Some(columns)),
                Leaf::Derived(derived) => columns_of_derived(derived, &leaf.shown),
                Leaf::Nested(join) => {
                    let mut own = Vec::new();
                    join.steps.iter().for_each(|step| grow(&mut own, &step.kind));
                    own
                }
            };
            columns.extend(leaf.taken.iter().map(|&at| own.get(usize::from(at)).cloned().unwrap_or_default()));
        }
    }
}

/// What a given value is called.
fn name_of(given: &Given, outside: &[Name]) -> Name {
    match given {
        Given::Outer(Expr::Column(c) | Expr::Outer(c)) => outside.get(usize::from(c.slot)).cloned().unwrap_or_default(),
        Given::Outer(_) => Name::of_value(String::new(), false),
        Given::Value(_) => Name::of_value(String::new(), true),
    }
}

/// How a path reads, by which key and how many bytes of it.
fn path(table: &Table, path: &Path) -> (&'static str, Option<(String, u32)>) {
    let named = |no: IndexNo| Some((keys::name(table, no), keys::length(table, path)));
    match path {
        Path::Points { index, values, rows, .. } => {
            let no = index.and_then(|at| table.schema.indexes.get(at)).map_or(IndexNo(0), |i| i.no);
            let is_one = !rows && values.iter().all(|list| list.len() == 1);
            (if is_one { "const" } else { "range" }, named(no))
        }
        Path::Union { index, .. } => ("range", named(*index)),
        Path::Listed(listed) => {
            let index = &table.schema.indexes[listed.index];
            let how = match listed.is_one() {
                true if index.unique && listed.parts() == index.columns.len() => "const",
                true => "ref",
                false => "range",
            };
            (how, named(index.no))
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalog::statistics::Known,
        plan::text::plan_text,
        tests::{catalog, env},
    };

    #[test]
    fn keys_and_what_is_left_of_rows_are_told() {
        let catalog = catalog();
        for (name, rows) in [("sbtest1", 10_000.0), ("pair", 50.0)] {
            catalog.statistics.set(&catalog.table("d", name).unwrap(), Known { rows, ..Known::default() });
        }
        for (sql, want) in [
            ("SELECT c FROM sbtest1 WHERE id = 1", &["sbtest1 const PRIMARY PRIMARY 4 const 1 100.00"][..]),
            ("SELECT id FROM sbtest1 WHERE k > 1 AND id IN (1, 2)", &["sbtest1 range PRIMARY,k_1 PRIMARY 4 - 2 33.00"]),
            ("SELECT id FROM sbtest1 WHERE c = 'x'", &["sbtest1 ALL - - - - 10000 10.00"]),
            ("SELECT id FROM sbtest1 ORDER BY k LIMIT 1", &["sbtest1 index - k_1 4 - 10000 100.00"]),
            ("SELECT a FROM pair WHERE a = 1 AND b = 'x'", &["pair const PRIMARY PRIMARY 86 const,const 1 100.00"]),
            ("SELECT a FROM pair WHERE a = 1 AND n = 2", &["pair ref PRIMARY PRIMARY 4 const 50 10.00"]),
            ("SELECT a FROM pair WHERE c = 1 OR c BETWEEN 5 AND 7", &["pair range u u 9 - 50 100.00"]),
            (
                "SELECT s.k FROM pair p JOIN sbtest1 s ON s.id = p.c WHERE p.a = 3",
                &["p ref PRIMARY,u PRIMARY 4 const 50 100.00", "s eq_ref PRIMARY PRIMARY 4 d.p.c 1 100.00"],
            ),
            (
                "SELECT STRAIGHT_JOIN s.k FROM sbtest1 s LEFT JOIN pair p ON p.c = s.k + 1 AND p.n = 1 WHERE s.id = 2",
                &["s const PRIMARY PRIMARY 4 const 1 100.00", "p eq_ref u u 9 func 1 10.00"],
            ),
            (
                "SELECT (SELECT MAX(n) FROM pair WHERE pair.a = s.k) FROM sbtest1 s",
                &["s ALL - - - - 10000 100.00", "pair ref PRIMARY PRIMARY 4 d.s.k 50 100.00"],
            ),
            ("DELETE FROM sbtest1 WHERE k = 2", &["sbtest1 ref k_1 k_1 4 const 10000 100.00"]),
            ("SELECT 1", &["- - - - - - - -"]),
        ] {
            let plan = plan_text(&catalog, &env(), sql, Vec::new()).unwrap();
            let line = |row: &Row| {
                let cell = |at: usize| row[at].clone().unwrap_or_else(|| "-".to_owned());
                [2, 4, 5, 6, 7, 8, 9, 10].map(cell).join(" ")
            };
            let lines: Vec<String> = rows(&plan, &catalog.statistics).iter().map(line).collect();
            assert_eq!(lines, want, "{sql}");
        }
    }
}

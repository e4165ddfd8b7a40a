//! EXPLAIN FORMAT=TREE and EXPLAIN ANALYZE: a plan in the words in which MySQL writes its own.
//!
//! A line is a step, what it works on is indented below. `rows` is what the order of a join was chosen by; there are no costs. EXPLAIN ANALYZE runs the statement and adds to each
//! step what was counted ([`super::exec::probe`]): rows for each run, runs, and when it gave its first and its last row, in milliseconds since the statement
//! began. Rows are pushed through the steps of a join in batches, so a step's time has in it what the steps behind it do meanwhile. Sorting, grouping and LIMIT of a block are
//! one thing when it is run, and told on the block's topmost line. Lookups that a batch has in common are counted for each row that asked.

use std::time::Duration;

use super::{
    catalog::Table,
    exec::probe::{self, Counts, Of, Part},
    explain_expr::Names,
    expr::{Datum, Expr},
    plan::{
        Plan, Select,
        access::{Access, Path},
        change::Fate,
        cost,
        dml::{OnDuplicate, Source},
        query::{Body, Derived, Given, Join, JoinStep, Leaf, SetOperation, StepKind, Subquery},
    },
    rules::functional,
    statistics::Statistics,
};

/// Said of changes, as MySQL does.
const NOT_EXECUTABLE: &str = "<not executable by iterator executor>";

/// A step and what it works on.
struct Node {
    text: String,
    rows: Option<f64>,
    part: Option<Part>,
    below: Vec<Node>,
}

impl Node {
    fn new(text: impl Into<String>, below: Vec<Node>) -> Node {
        Node { text: text.into(), rows: None, part: None, below }
    }
    fn over(self, text: impl Into<String>) -> Node {
        Node::new(text, vec![self])
    }
    fn counted(self, part: Part) -> Node {
        Node { part: Some(part), ..self }
    }
    fn estimated(self, rows: Option<f64>) -> Node {
        Node { rows, ..self }
    }

    fn write(&self, depth: usize, counts: Option<&Counts>, out: &mut String) {
        *out += &" ".repeat(4 * depth);
        *out += &format!("-> {}", self.text);
        if let Some(rows) = self.rows {
            *out += &format!("  (rows={})", short(rows));
        }
        if let (Some(counts), Some(part)) = (counts, self.part) {
            *out += if self.rows.is_some() { " " } else { "  " };
            *out += &actual(counts, part);
        }
        out.push('\n');
        self.below.iter().for_each(|node| node.write(depth + 1, counts, out));
    }
}

fn actual(counts: &Counts, part: Part) -> String {
    let Some(counted) = counts.get(part).filter(|c| c.loops > 0) else { return "(never executed)".to_owned() };
    let ms = |time: Duration| short(time.as_secs_f64() * 1e3);
    let (first, last) = (ms(counted.first.unwrap_or(counted.last)), ms(counted.last));
    let rows = short(counted.rows as f64 / counted.loops as f64);
    format!("(actual time={first}..{last} rows={rows} loops={})", counted.loops)
}

/// Three digits, or all those of a whole number.
fn short(x: f64) -> String {
    if x >= 100.0 {
        return format!("{x:.0}");
    }
    let digits = if x > 0.0 { (2 - x.log10().floor() as i32).clamp(0, 9) as usize } else { 0 };
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

struct Trees<'t> {
    statistics: &'t Statistics,
    blocks: u32,
}

/// The text of a plan, with what was counted when it ran.
pub fn text(plan: &Plan, statistics: &Statistics, counts: Option<&Counts>) -> String {
    let mut trees = Trees { statistics, blocks: 0 };
    let nothing = Names { columns: &[], given: &[], group: None };
    let nodes = match plan {
        Plan::Select(select) => trees.block(select, &nothing),
        Plan::Into(into) => trees.block(&into.query, &nothing),
        Plan::Insert(insert) => {
            let below = match &insert.source {
                Source::Select(select) => trees.block(select, &nothing),
                Source::Values(_) => vec![Node::new("Rows fetched before execution", Vec::new())],
            };
            let word = if matches!(insert.on_duplicate, OnDuplicate::Replace) { "Replace" } else { "Insert" };
            vec![Node::new(format!("{word} into {}", insert.table.schema.name), below)]
        }
        Plan::Change(change) => {
            let changed = change.targets.iter().filter(|t| !matches!(t.fate, Fate::Stays));
            let names: Vec<&str> = changed.map(|t| t.table.schema.name.as_str()).collect();
            let word = if change.is_update { "Update" } else { "Delete from" };
            vec![Node::new(format!("{word} {} (buffered)", names.join(", ")), trees.block(&change.query, &nothing))]
        }
        Plan::Update(_) | Plan::Delete(_) => vec![Node::new(NOT_EXECUTABLE, Vec::new())],
    };
    let mut out = String::new();
    nodes.iter().for_each(|node| node.write(0, counts, &mut out));
    out
}

impl Trees<'_> {
    /// A block, and behind it the subqueries that it runs.
    fn block(&mut self, select: &Select, outside: &Names<'_>) -> Vec<Node> {
        self.blocks += 1;
        let mut others = Vec::new();
        let mut given = Vec::new();
        for g in &select.given {
            given.push(match g {
                Given::Outer(e) => outside.text(e),
                Given::Value(subquery) => {
                    let names = Names { columns: &[], given: &given, group: None };
                    self.subquery(subquery, &names, "run only once", &mut others)
                }
            });
        }
        let mut columns = Vec::new();
        let source = match (&select.join, &select.table, &select.access) {
            (Some(join), ..) => self.join(join, &given, &mut columns, &mut others),
            (None, Some(table), Some(access)) => {
                columns = columns_of(table, &table.schema.name, select.columns.as_deref());
                let names = Names { columns: &columns, given: &given, group: None };
                self.table(table, &table.schema.name, access, select.reverse, &names)
            }
            _ => Node::new("Rows fetched before execution", Vec::new()).estimated(Some(1.0)),
        };
        let names = Names { columns: &columns, given: &given, group: select.group.as_ref() };
        let mut nodes = vec![Node { part: Some(probe::of(select, Of::Given)), ..above(select, source, &names) }];
        nodes.append(&mut others);
        nodes
    }

    fn subquery(&mut self, subquery: &Subquery, outside: &Names<'_>, how: &str, others: &mut Vec<Node>) -> String {
        let number = self.blocks + 1;
        let below = self.block(&subquery.query, outside);
        others.push(Node::new(format!("Select #{number} (subquery; {how})"), below));
        format!("(select #{number})")
    }

    fn table(&mut self, table: &Table, shown: &str, access: &Access, reverse: bool, names: &Names<'_>) -> Node {
        let rows = self.statistics.of(table).map(|known| cost::of_access(access, &known));
        let mut text = reading(table, shown, &access.path, reverse, names);
        if access.pushed.has_tests() {
            text += ", with pushed condition";
        }
        let read = Node::new(text, Vec::new()).estimated(rows.map(|r| r.0)).counted(probe::of(access, Of::Read));
        match &access.rest {
            None => read,
            Some(rest) => {
                filter(read, rest, names).estimated(rows.map(|r| r.1)).counted(probe::of(access, Of::Matched))
            }
        }
    }

    /// The steps of a join; `columns` becomes what the places of the joined row are called.
    fn join(&mut self, join: &Join, given: &[String], columns: &mut Vec<String>, others: &mut Vec<Node>) -> Node {
        let mut so_far: Option<Node> = None;
        for step in &join.steps {
            let before = columns.clone();
            match &step.kind {
                StepKind::Nothing => {}
                StepKind::Compute(subquery) => {
                    let names = Names { columns: &before, given, group: None };
                    columns.push(self.subquery(subquery, &names, "dependent", others));
                }
                StepKind::Join(leaf) => {
                    let (own, node) = self.leaf(leaf, &before, given, others, so_far.is_none());
                    columns.extend(leaf.taken.iter().map(|&at| own.get(usize::from(at)).cloned().unwrap_or_default()));
                    let names = Names { columns, given, group: None };
                    so_far = Some(match so_far.take() {
                        None => node,
                        Some(outer) => joined(leaf, outer, node, &names).counted(probe::of(step, Of::Matched)),
                    });
                }
            }
            if let Some(condition) = &step.filter {
                let names = Names { columns, given, group: None };
                let node = so_far.take().unwrap_or_else(|| Node::new("Rows fetched before execution", Vec::new()));
                so_far = Some(filter(node, condition, &names).counted(probe::of(step, Of::Given)));
            }
        }
        let node =
            so_far.unwrap_or_else(|| Node::new("Rows fetched before execution", Vec::new()).estimated(Some(1.0)));
        if node.rows.is_none() { node.estimated(join.rows) } else { node }
    }

    /// How a leaf is read, and what its own row's places are called.
    fn leaf(
        &mut self,
        leaf: &JoinStep,
        before: &[String],
        given: &[String],
        others: &mut Vec<Node>,
        is_first: bool,
    ) -> (Vec<String>, Node) {
        match &leaf.leaf {
            Leaf::Table { table, columns } => {
                let own = columns_of(table, &leaf.shown, Some(columns));
                let node = match (&leaf.lookup, &leaf.scan) {
                    (Some(path), _) => {
                        let names = Names { columns: before, given, group: None };
                        Node::new(reading(table, &leaf.shown, path, false, &names), Vec::new()).estimated(leaf.read)
                    }
                    (None, Some(access)) => {
                        let names = Names { columns: &own, given, group: None };
                        self.table(table, &leaf.shown, access, false, &names)
                    }
                    (None, None) => Node::new(format!("Table scan on {}", leaf.shown), Vec::new()),
                };
                if is_first && leaf.lookup.is_none() {
                    return (own, node);
                }
                // All of it is read at once, or by the keys of a batch.
                let below = node.below.into_iter().map(|n| Node { part: None, ..n }).collect();
                (own, Node { below, ..node }.counted(probe::of(leaf, Of::Read)))
            }
            Leaf::Derived(derived) => {
                let shown = match derived.is_subquery {
                    true => format!("<subquery{}>", self.blocks + 1),
                    false => leaf.shown.clone(),
                };
                let own = columns_of_derived(derived, &shown);
                let names = Names { columns: before, given, group: None };
                let node =
                    self.derived(derived, &shown, &names).counted(probe::of(leaf, Of::Read)).estimated(leaf.read);
                let names = Names { columns: &own, given, group: None };
                let node = match &leaf.own {
                    Some(condition) => filter(node, condition, &names),
                    None => node,
                };
                (own, node)
            }
            Leaf::Nested(join) => {
                let mut own = Vec::new();
                let node = self.join(join, given, &mut own, others);
                (own, node.counted(probe::of(leaf, Of::Read)))
            }
        }
    }

    fn derived(&mut self, derived: &Derived, shown: &str, outside: &Names<'_>) -> Node {
        let made = self.body(&derived.body, shown, outside);
        let shown = match (shown, &derived.body) {
            ("", Body::Set { .. }) => "<union temporary>",
            ("", _) => "<temporary>",
            (shown, _) => shown,
        };
        match &derived.body {
            Body::LastRows | Body::JsonTable { .. } => made,
            Body::Select(_) => {
                let how = if derived.is_subquery { "Materialize with deduplication" } else { "Materialize" };
                made.over(how).over(format!("Table scan on {shown}"))
            }
            Body::Set { .. } | Body::Recursive { .. } => made.over(format!("Table scan on {shown}")),
        }
    }

    fn body(&mut self, body: &Body, shown: &str, outside: &Names<'_>) -> Node {
        match body {
            Body::Select(select) => {
                let mut nodes = self.block(select, outside);
                let mut node = nodes.remove(0);
                node.below.append(&mut nodes);
                node
            }
            Body::Set { operation, all, left, right } => {
                let word = match operation {
                    SetOperation::Union => "Union",
                    SetOperation::Intersect => "Intersect",
                    SetOperation::Except => "Except",
                };
                let how = if *all { "all materialize" } else { "materialize with deduplication" };
                let parts = vec![self.body(left, shown, outside), self.body(right, shown, outside)];
                Node::new(format!("{word} {how}"), parts)
            }
            Body::Recursive { first, step, .. } => {
                let first = self.body(first, shown, outside);
                let step = self.body(step, shown, outside).over("Repeat until convergence");
                Node::new(format!("Materialize recursive CTE {shown}"), vec![first, step])
            }
            Body::JsonTable { .. } => Node::new(format!("Materialize table function {shown}"), Vec::new()),
            Body::LastRows => Node::new(format!("Scan new records on {shown}"), Vec::new()),
        }
    }
}

/// What becomes of the rows of a block: groups, windows, order, limit.
fn above(select: &Select, source: Node, names: &Names<'_>) -> Node {
    let mut node = source;
    if let Some(group) = &select.group {
        if !group.each_row {
            let whole: Vec<String> = (0..group.aggregates.len()).map(|at| names.text(&aggregate(at))).collect();
            let whole = whole.join(", ");
            node = match (group.keys.is_empty(), group.rollup, select.pushdown.is_some()) {
                (true, _, true) => node.over(format!("Aggregate in data nodes: {whole}")),
                (true, _, false) => node.over(format!("Aggregate: {whole}")),
                (false, true, _) => node.over(format!("Group aggregate with rollup: {whole}")),
                (false, false, _) => node.over("Aggregate using temporary table").over("Table scan on <temporary>"),
            };
        }
        if let Some(having) = &group.having {
            node = filter(node, having, names);
        }
        if group.windows.is_some() {
            node = node.over("Window aggregate with buffering");
        }
    }
    if select.distinct {
        node = node.over("Temporary table with deduplication").over("Table scan on <temporary>");
    }
    let (limit, offset) = (count_of(select.limit.as_ref()), count_of(select.offset.as_ref()).unwrap_or(0));
    if !select.in_order && !select.order.is_empty() {
        let most = limit
            .map_or_else(String::new, |n| format!(", limit input to {} row(s) per chunk", n.saturating_add(offset)));
        node = node.over(format!("Sort: {}{most}", names.keys(&select.order)));
    }
    match (limit, offset) {
        (Some(limit), 0) => node.over(format!("Limit: {limit} row(s)")),
        (Some(limit), offset) => node.over(format!("Limit/Offset: {limit}/{offset} row(s)")),
        (None, _) => node,
    }
}

fn aggregate(at: usize) -> Expr {
    Expr::Aggregate(at, super::expr::Kind::Null, Default::default())
}

fn count_of(e: Option<&Expr>) -> Option<u64> {
    match e? {
        Expr::Const(Datum::Int(n)) => u64::try_from(*n).ok(),
        Expr::Const(Datum::UInt(n)) => Some(*n),
        _ => None,
    }
}

fn filter(node: Node, condition: &Expr, names: &Names<'_>) -> Node {
    node.over(format!("Filter: {}", names.text(condition)))
}

fn joined(leaf: &JoinStep, outer: Node, inner: Node, names: &Names<'_>) -> Node {
    if leaf.lookup.is_some() || matches!(&leaf.leaf, Leaf::Derived(d) if d.is_lateral) {
        let kind = if leaf.is_left { "left" } else { "inner" };
        let inner = match beside_key(leaf, names) {
            Some(condition) => inner.over(format!("Filter: {condition}")).counted(probe::of(leaf, Of::Matched)),
            None => inner,
        };
        return Node::new(format!("Nested loop {kind} join"), vec![outer, inner]);
    }
    let kind = if leaf.is_left { "Left" } else { "Inner" };
    let condition = match leaf.matches.as_ref().map(|e| names.text(e)) {
        Some(condition) if leaf.keys.is_empty() => format!("(no condition), extra conditions: {condition}"),
        Some(condition) => condition,
        None => "(no condition)".to_owned(),
    };
    Node::new(format!("{kind} hash join {condition}"), vec![outer, inner.over("Hash")])
}

/// What rows that were found by key must satisfy, but for what their key says.
fn beside_key(leaf: &JoinStep, names: &Names<'_>) -> Option<String> {
    let said = match (&leaf.leaf, &leaf.lookup) {
        (Leaf::Table { table, .. }, Some(path)) => names.said(&table.schema, &leaf.shown, path),
        _ => Vec::new(),
    };
    let parts = match leaf.matches.as_ref()? {
        Expr::And(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let rest: Vec<String> = parts.iter().map(|e| names.text(e)).filter(|text| !said.contains(text)).collect();
    match rest.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("({})", several.join(" and "))),
    }
}

/// What the columns of a derived table's row are called; those of a subquery behind IN have no name but that of what it selects.
fn columns_of_derived(derived: &Derived, shown: &str) -> Vec<String> {
    let outputs = if let Body::Select(select) = &derived.body { select.outputs.as_slice() } else { &[] };
    let column = |(at, column): (usize, &apus_types::Column)| match outputs.get(at) {
        Some(output) if column.name.is_empty() => format!("`{shown}`.{}", output.def.name),
        _ => format!("{shown}.{}", column.name),
    };
    derived.table.schema.columns.iter().enumerate().map(column).collect()
}

/// What the columns of a table's row are called.
fn columns_of(table: &Table, shown: &str, columns: Option<&[u16]>) -> Vec<String> {
    let name = |c: u16| {
        let column = &table.schema.columns[usize::from(c)];
        functional::expression(column).map_or_else(|| format!("{shown}.{}", column.name), str::to_owned)
    };
    match columns {
        Some(columns) => columns.iter().map(|&c| name(c)).collect(),
        None => (0..table.schema.columns.len() as u16).map(name).collect(),
    }
}

/// How a path reads a table.
fn reading(table: &Table, shown: &str, path: &Path, reverse: bool, names: &Names<'_>) -> String {
    let (no, is_one) = match path {
        Path::Points { index, values, rows, .. } => {
            let no = index.and_then(|at| table.schema.indexes.get(at)).map_or(0, |i| i.no.0);
            (no, !rows && values.iter().all(|list| list.len() == 1))
        }
        Path::Range { index, low, high, .. } => (index.0, low.is_none() && high.is_none()),
        Path::Union { index, .. } => (index.0, false),
    };
    let key = table.key_name(no);
    let key = key.rsplit_once('.').map_or(key.as_str(), |(_, key)| key);
    let end = if reverse { " (reverse)" } else { "" };
    match (names.bounds(&table.schema, path), is_one, path) {
        (None, ..) if no == 0 && !reverse => format!("Table scan on {shown}"),
        (None, ..) => format!("Index scan on {shown} using {key}{end}"),
        (Some(by), true, Path::Points { .. }) => format!("Single-row index lookup on {shown} using {key} ({by})"),
        (Some(by), true, _) => format!("Index lookup on {shown} using {key} ({by}){end}"),
        (Some(by), false, _) => format!("Index range scan on {shown} using {key} over ({by}){end}"),
    }
}

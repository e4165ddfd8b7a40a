//! From items and conditions to the steps of a join.
//!
//! Where the sizes of all tables are known the cheapest order is taken ([`super::join_cost`]). Otherwise the first item is the one that its own conditions reach by the fewest
//! keys; each next one is reached from what is joined so far, best by a whole key, then by the front of an index, then by equal values (a hash table), at
//! last by comparing all with all. Where nothing says more, the written order stays. A LEFT JOIN waits for the tables that its conditions name.
//!
//! A condition is checked as soon as all its columns are there; one on the leaf alone, or what leads to its keys, narrows what is read.

mod conditions;

use std::rc::Rc;

use apus_types::RowLayout;

use self::conditions::reads_outer;
use super::{
    Planner, Unplanned,
    access::Path,
    block::all_of,
    disjunction,
    from::{Item, Level, Origin},
    join_order,
    query::{Derived, Given, Join, JoinKind, JoinStep, Leaf, Step, StepKind},
    scope::{COMPUTED, Scope, frames::Frame},
    semi_join,
};
use crate::{catalog::Table, errors, expr::Expr};

type Bound<T> = Result<T, Unplanned>;

pub struct Lowering<'l, 'a> {
    pub(crate) planner: &'l Planner<'a>,
    pub(crate) scope: Scope,
    given: Vec<Given>,
    /// Subqueries for rows, until they have a step.
    computed: Vec<Option<super::query::Subquery>>,
}

/// A join as far as it is planned.
#[derive(Default)]
pub(crate) struct Built {
    steps: Vec<Step>,
    columns: Vec<u16>,
    types: Vec<apus_types::ColumnType>,
    /// First slots of the tables in it.
    firsts: Vec<u16>,
    /// Conditions that wait for columns.
    pub(crate) waiting: Vec<Expr>,
    is_by_key: bool,
    /// A later step has fewer rows: what is dear to compute waits for it.
    is_to_shrink: bool,
    rows: Option<f64>,
    /// For each item the set of those that hints want before it; empty: no hint wants anything.
    pub(crate) after: Vec<u64>,
}

impl<'l, 'a> Lowering<'l, 'a> {
    pub fn new(planner: &'l Planner<'a>, scope: &Scope, frame: Frame) -> Self {
        let computed = frame.computed.into_iter().map(Some).collect();
        Lowering { planner, scope: scope.clone(), given: frame.given, computed }
    }

    /// `needed`: slots that are wanted of the joined row.
    pub fn plan(mut self, mut level: Level, needed: Vec<u16>, reads: &mut Vec<Rc<Table>>) -> Bound<(Join, Vec<Given>)> {
        semi_join::join(&mut level, &mut self.scope, &mut self.computed, &needed);
        semi_join::exists(&mut level, &mut self.scope, &mut self.computed, &needed);
        let mut all = needed;
        collect(&level, &mut all);
        for subquery in self.computed.iter().flatten() {
            subquery.inputs().iter().for_each(|e| e.columns(&mut all));
            reads.extend(subquery.query.reads.iter().cloned());
        }
        for given in &self.given {
            if let Given::Value(subquery) = given {
                reads.extend(subquery.query.reads.iter().cloned());
            }
        }
        all.sort_unstable();
        all.dedup();
        let mut built = self.level(level, &all, reads)?;
        // What no condition asked for.
        for at in 0..self.computed.len() {
            self.compute(at, &mut built)?;
        }
        self.settle(&mut built)?;
        if !built.waiting.is_empty() {
            return Err(errors::internal("a condition without its columns").into());
        }
        let is_by_key = built.is_by_key && built.steps.iter().all(|s| matches!(s.kind, StepKind::Join(_)));
        let is_by_key = is_by_key && self.given.iter().all(|g| matches!(g, Given::Outer(_)));
        Ok((Join { steps: built.steps, columns: built.columns, is_by_key, rows: built.rows }, self.given))
    }

    fn level(&mut self, mut level: Level, needed: &[u16], reads: &mut Vec<Rc<Table>>) -> Bound<Built> {
        disjunction::narrow(&mut level.conditions, &|slot| self.scope.of_slot(slot).map(|t| t.first));
        let mut built = Built { waiting: level.conditions, is_by_key: true, ..Built::default() };
        let mut items: Vec<Option<Item>> = level.items.into_iter().map(Some).collect();
        self.simplify(&mut items, &mut built.waiting);
        let in_order =
            level.rules.as_ref().is_some_and(|rules| rules.is_fixed) || items.iter().flatten().any(|i| i.is_straight);
        built.after = match &level.rules {
            _ if in_order && items.len() <= join_order::ITEMS_MAX => (0..items.len()).map(|at| (1 << at) - 1).collect(),
            Some(rules) => self.ordered(rules, &items),
            None => Vec::new(),
        };
        let weighed = self.weigh(&items, &built);
        self.settle(&mut built)?;
        for (number, step) in weighed.iter().enumerate() {
            let Some(item) = items[step.table].take() else { break };
            built.rows = Some(step.rows);
            built.is_to_shrink = weighed[number + 1..].iter().any(|later| later.rows < step.rows);
            self.join(item, &mut built, needed, reads, Some(*step))?;
            self.settle(&mut built)?;
        }
        while let Some(at) = self.next(&items, &built, in_order) {
            let Some(item) = items[at].take() else { break };
            self.join(item, &mut built, needed, reads, None)?;
            self.settle(&mut built)?;
        }
        Ok(built)
    }

    /// The next item to join; the first of the best.
    fn next(&self, items: &[Option<Item>], built: &Built, in_order: bool) -> Option<usize> {
        let mut best: Option<(i64, usize)> = None;
        for (at, item) in items.iter().enumerate() {
            let Some(item) = item else { continue };
            let is_early = built
                .after
                .get(at)
                .is_some_and(|set| (0..items.len()).any(|i| set >> i & 1 == 1 && items[i].is_some()));
            if is_early || !self.is_ready(item, built) {
                continue;
            }
            if let Some(on) = &item.left {
                let own = |slot| self.scope.of_slot(slot).is_some_and(|t| item.firsts.contains(&t.first));
                let ready = on.iter().all(|e| self.names(e).iter().all(|&slot| own(slot) || self.has(built, slot)));
                // Not before there is a row to join it to.
                if !ready || built.firsts.is_empty() {
                    continue;
                }
            }
            let score = self.score(item, built);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, at));
            }
            if in_order {
                break;
            }
        }
        best.map(|(_, at)| at).or_else(|| items.iter().position(Option::is_some))
    }

    /// Whether what a LATERAL table looks at is there.
    fn is_ready(&self, item: &Item, built: &Built) -> bool {
        let Origin::Derived(derived) = &item.origin else { return true };
        derived.inputs().into_iter().flat_map(|e| self.names(e)).all(|slot| self.has(built, slot))
    }

    /// Has a LATERAL table take its values from the joined row; whether it is one.
    fn look_at_rows(&self, item: &mut Item, built: &Built) -> Bound<bool> {
        if !self.is_ready(item, built) {
            return Err(errors::not_supported("LATERAL that looks out of a nested join").into());
        }
        let Origin::Derived(derived) = &mut item.origin else { return Ok(false) };
        if !derived.is_lateral {
            return Ok(false);
        }
        // Only tables that have names in WITH are shared.
        let own = Rc::get_mut(derived).ok_or_else(|| errors::internal("a LATERAL table that is shared"))?;
        own.inputs_mut().into_iter().for_each(|e| e.project(&built.columns));
        Ok(true)
    }

    fn score(&self, item: &Item, built: &Built) -> i64 {
        let Origin::Table(table) = &item.origin else {
            if matches!(&item.origin, Origin::Derived(d) if d.is_subquery) && built.columns.is_empty() {
                return 10; // its rows may lead to others by key
            }
            return if self.hash_keys(item, built).is_empty() { 0 } else { 25 };
        };
        if crate::catalog::information_schema::is_virtual(&table.schema) {
            return if self.hash_keys(item, built).is_empty() { 1 } else { 25 };
        }
        let access = self.access(item, table, built, true);
        match &access.path {
            Path::Points { index: None, values, .. } if values.iter().all(|v| v.len() == 1) => 100,
            Path::Points { .. } => 95,
            Path::Range { equal, .. } if !equal.is_empty() => 40 + equal.len() as i64,
            Path::Union { .. } | Path::Listed(_) => 35,
            Path::Range { low, high, .. } if low.is_some() || high.is_some() => 30,
            _ if !self.hash_keys(item, built).is_empty() => 20,
            _ => i64::from(access.full.is_some()),
        }
    }

    fn join(
        &mut self,
        mut item: Item,
        built: &mut Built,
        needed: &[u16],
        reads: &mut Vec<Rc<Table>>,
        weighed: Option<join_order::Step>,
    ) -> Bound<()> {
        for slot in item.left.iter().flatten().flat_map(|e| {
            let mut used = Vec::new();
            e.columns(&mut used);
            used
        }) {
            // A subquery in ON of an outer join: before the join, so by what is there before it.
            let Some(at) = slot.checked_sub(COMPUTED) else { continue };
            let Some(Some(subquery)) = self.computed.get(usize::from(at)) else { continue };
            if subquery.inputs().iter().any(|e| self.names(e).iter().any(|&slot| !self.has(built, slot))) {
                return Err(errors::not_supported("this subquery in ON of an outer join").into());
            }
            self.compute(usize::from(at), built)?;
        }
        let is_first = built.columns.is_empty();
        let linked = self.linked(&item, built);
        let mut keys = self.hash_keys(&item, built);
        if self.look_at_rows(&mut item, built)? || item.uses.as_ref().is_some_and(|uses| uses.no_hash) {
            keys.clear();
        }
        let matches: Vec<Expr> = self.applicable(&item, built).into_iter().cloned().collect();
        if item.left.is_none() {
            built.waiting.retain(|e| !matches.contains(e));
        }
        let matches = item.left.clone().unwrap_or(matches);
        let is_unasked = |e: &&Expr| keys.is_empty() || !self.is_asked_by_hash(&item, built, e);
        let mut unasked: Vec<Expr> = matches.iter().filter(is_unasked).cloned().collect();
        let first = item.firsts[0];
        let of_item = |slot: &u16| self.scope.of_slot(*slot).is_some_and(|t| item.firsts.contains(&t.first));
        let mut columns: Vec<u16> = needed.iter().copied().filter(of_item).collect();
        let (mut scan, mut lookup, mut few, mut own) = (None, None, None, None);
        let (leaf, row, inner_columns);
        let taken: Vec<u16>;
        match item.origin {
            Origin::Table(ref table) => {
                if columns.is_empty() {
                    columns.push(first + table.schema.primary_key.first().copied().unwrap_or(0));
                }
                let local: Vec<u16> = columns.iter().map(|slot| slot - first).collect();
                // The conditions were taken out: they are looked at as those of this item.
                let alone =
                    Item { left: Some(matches.clone()), origin: Origin::Table(table.clone()), ..item_of(&item) };
                let mut all = self.access(&alone, table, built, false);
                let reach = self.access(&alone, table, built, true);
                all.possible.extend(reach.possible.iter().copied().chain(linked));
                let is_virtual = crate::catalog::information_schema::is_virtual(&table.schema);
                let by_key = matches!(reach.path, Path::Points { .. });
                let is_bound = by_key || matches!(&reach.path, Path::Range { equal, .. } if !equal.is_empty());
                let is_hashed = weighed.is_some_and(|step| step.by_hash) && !keys.is_empty();
                let leads = is_bound && !is_first && !is_virtual && reads_outer(&reach.path);
                let is_bound = is_bound && !is_hashed;
                built.is_by_key &= is_bound && !is_virtual;
                match leads.then_some(reach.path) {
                    Some(path) if is_hashed => few = Some(path),
                    path => lookup = path,
                }
                all.full.iter_mut().chain(&mut all.rest).for_each(|e| e.project(&local));
                scan = Some(all);
                row = table.schema.layout().project_layout(&local).ok_or_else(|| errors::internal("projection"))?;
                taken = (0..local.len() as u16).collect();
                inner_columns = columns.clone();
                reads.push(table.clone());
                leaf = Leaf::Table { table: table.clone(), columns: local };
            }
            Origin::Derived(ref derived) => {
                built.is_by_key = false;
                read_by(derived, reads);
                inner_columns = (0..derived.table.schema.columns.len() as u16).map(|c| first + c).collect::<Vec<_>>();
                row = derived.table.schema.layout().clone();
                taken = columns.iter().map(|slot| slot - first).collect();
                own = Some(&inner_columns);
                leaf = Leaf::Derived(derived.clone());
            }
            Origin::Nested(_) => {
                built.is_by_key = false;
                let Origin::Nested(level) = item.origin else { return Err(errors::internal("a join").into()) };
                let inner = self.level(level, needed, reads)?;
                if !inner.waiting.is_empty() {
                    return Err(errors::not_supported("this subquery in a nested join").into());
                }
                row = inner.steps.last().map_or_else(|| RowLayout::new([]), |s| s.layout.clone());
                columns = inner.columns.clone();
                inner_columns = inner.columns.clone();
                taken = (0..columns.len() as u16).collect();
                own = Some(&inner_columns);
                let Built { steps, columns, .. } = inner;
                leaf = Leaf::Nested(Box::new(Join { steps, columns, is_by_key: false, rows: None }));
            }
        }
        let own = own.map(|places| {
            let on_own = |e: &&Expr| {
                let mut used = Vec::new();
                e.columns(&mut used);
                !used.is_empty() && used.iter().all(|slot| places.contains(slot))
            };
            let mut own: Vec<Expr> = matches.iter().filter(on_own).cloned().collect();
            own.iter_mut().for_each(|e| e.project(places));
            own
        });
        for key in &mut keys {
            key.outer.project(&built.columns);
            key.inner.project(&inner_columns);
        }
        let before = built.columns.len();
        built.types.extend(taken.iter().filter_map(|&c| row.column_type(c)));
        built.columns.extend(columns);
        debug_assert_eq!(built.columns.len(), before + taken.len());
        built.firsts.extend(&item.firsts);
        let mut matches = matches;
        matches.iter_mut().chain(&mut unasked).for_each(|e| e.project(&built.columns));
        let kind = match item.exists {
            Some(true) => JoinKind::Semi,
            Some(false) => JoinKind::Anti,
            None if item.left.is_some() => JoinKind::Left,
            None => JoinKind::Inner,
        };
        let narrows = weighed.is_some_and(|step| step.narrows) && !keys.is_empty();
        let shown = self.scope.of_slot(first).map(|t| t.shown.clone()).unwrap_or_default();
        let step = JoinStep {
            leaf,
            shown,
            kind,
            narrows,
            scan,
            own: own.and_then(all_of),
            lookup,
            few,
            keys,
            matches: all_of(matches),
            unasked: all_of(unasked),
            row,
            taken,
            read: weighed.map(|step| step.read),
        };
        self.push(StepKind::Join(Box::new(step)), built);
        Ok(())
    }

    fn push(&self, kind: StepKind, built: &mut Built) {
        let layout = RowLayout::new(built.types.iter().copied());
        built.steps.push(Step { kind, layout, filter: None });
    }
}

fn item_of(item: &Item) -> Item {
    let level = Level::default();
    Item {
        origin: Origin::Nested(level),
        firsts: item.firsts.clone(),
        left: None,
        exists: None,
        is_straight: false,
        uses: item.uses.clone(),
    }
}

fn collect(level: &Level, out: &mut Vec<u16>) {
    level.conditions.iter().for_each(|e| e.columns(out));
    for item in &level.items {
        item.left.iter().flatten().for_each(|e| e.columns(out));
        if let Origin::Nested(inner) = &item.origin {
            collect(inner, out);
        }
        if let Origin::Derived(derived) = &item.origin {
            derived.inputs().iter().for_each(|e| e.columns(out));
        }
    }
}

fn read_by(derived: &Derived, reads: &mut Vec<Rc<Table>>) {
    fn body(b: &super::query::Body, reads: &mut Vec<Rc<Table>>) {
        use super::query::Body;
        match b {
            Body::Select(select) | Body::JsonTable { document: select, .. } => {
                reads.extend(select.reads.iter().cloned())
            }
            Body::Set { left, right, .. } => [left, right].into_iter().for_each(|b| body(b, reads)),
            Body::Recursive { first, step, .. } => [first, step].into_iter().for_each(|b| body(b, reads)),
            Body::LastRows => {}
        }
    }
    body(&derived.body, reads);
}

//! Conditions of a join: by which an item is reached, and at which step each is checked.

use apus_types::{ColumnType, IndexNo};

use super::{Bound, Built, Lowering};
use crate::{
    catalog::Table,
    expr::{CompareOp, Expr},
    plan::{
        access::{Access, Path},
        block::all_of,
        derived,
        from::{Item, Origin},
        query::{HashKey, StepKind},
        scope::COMPUTED,
    },
};

impl<'l, 'a> Lowering<'l, 'a> {
    /// A LEFT JOIN whose NULLs a condition refuses is an inner one.
    pub(super) fn simplify(&self, items: &mut [Option<Item>], conditions: &mut Vec<Expr>) {
        loop {
            let mut changed = false;
            for item in items.iter_mut().flatten().filter(|i| i.left.is_some()) {
                let own = |slot| self.scope.of_slot(slot).is_some_and(|t| item.firsts.contains(&t.first));
                if conditions.iter().any(|c| refuses_null(c, &own)) {
                    conditions.extend(item.left.take().unwrap_or_default());
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Columns that a condition names, those of its subqueries in their place.
    pub(crate) fn names(&self, e: &Expr) -> Vec<u16> {
        let (mut direct, mut all) = (Vec::new(), Vec::new());
        e.columns(&mut direct);
        while let Some(slot) = direct.pop() {
            match slot.checked_sub(COMPUTED).and_then(|at| self.computed.get(usize::from(at))) {
                Some(Some(subquery)) => subquery.inputs().iter().for_each(|e| e.columns(&mut direct)),
                _ => all.push(slot),
            }
        }
        all
    }

    pub(super) fn has(&self, built: &Built, slot: u16) -> bool {
        built.columns.contains(&slot) || self.scope.of_slot(slot).is_some_and(|t| built.firsts.contains(&t.first))
    }

    /// Conditions that the item alone, or with what is joined already, decides.
    pub(super) fn applicable<'c>(&self, item: &'c Item, built: &'c Built) -> Vec<&'c Expr> {
        let own = |slot| self.scope.of_slot(slot).is_some_and(|t| item.firsts.contains(&t.first));
        let conditions = item.left.as_ref().unwrap_or(&built.waiting);
        let fits = |e: &&Expr| {
            let mut used = Vec::new();
            e.columns(&mut used);
            used.iter().any(|&slot| own(slot)) && used.iter().all(|&slot| own(slot) || self.has(built, slot))
        };
        conditions.iter().filter(fits).collect()
    }

    /// The path to a table's rows; `joined`: also by what the row so far has.
    pub(crate) fn access(&self, item: &Item, table: &Table, built: &Built, joined: bool) -> Access {
        let first = item.firsts[0];
        let count = table.schema.columns.len() as u16;
        let own = |slot: u16| (first..first + count).contains(&slot);
        let mut conditions = Vec::new();
        for e in self.applicable(item, built) {
            let mut used = Vec::new();
            e.columns(&mut used);
            if !joined && !used.iter().all(|&slot| own(slot)) {
                continue;
            }
            let mut e = e.clone();
            e.walk_mut(&mut |e| {
                if let Expr::Column(c) = e {
                    if own(c.slot) {
                        c.slot -= first;
                    } else if let Some(place) = built.columns.iter().position(|&slot| slot == c.slot) {
                        c.slot = place as u16;
                        *e = Expr::Outer(*c);
                    }
                }
            });
            conditions.push(e);
        }
        self.planner.choose(table, all_of(conditions), &[], item.uses.as_deref())
    }

    /// Indexes of a table whose first column is to be equal to something of another one.
    pub(super) fn linked(&self, item: &Item, built: &Built) -> Vec<IndexNo> {
        let Origin::Table(table) = &item.origin else { return Vec::new() };
        let first = item.firsts[0];
        let conditions = item.left.as_ref().unwrap_or(&built.waiting);
        let is_equal = |column: u16, e: &Expr| match e {
            Expr::Compare(CompareOp::Eq, a, b, _) => {
                [a, b].iter().any(|e| matches!(&***e, Expr::Column(c) if c.slot == first + column))
            }
            _ => false,
        };
        let is_allowed = |no| item.uses.as_ref().is_none_or(|uses| uses.join.allows(no));
        let secondary = table.ready_indexes().map(|(_, i)| (i.no, i.columns.as_slice()));
        let all = std::iter::once((IndexNo(0), table.schema.primary_key.as_slice())).chain(secondary);
        let is_linked =
            |columns: &[u16]| columns.first().is_some_and(|column| conditions.iter().any(|e| is_equal(*column, e)));
        all.filter(|(no, columns)| is_allowed(*no) && is_linked(columns)).map(|(no, _)| no).collect()
    }

    pub(super) fn hash_keys(&self, item: &Item, built: &Built) -> Vec<HashKey> {
        self.applicable(item, built).into_iter().filter_map(|e| self.hash_key(item, built, e)).collect()
    }

    /// The values that a condition has equal, one of an item and one of what is joined already.
    fn hash_key(&self, item: &Item, built: &Built, e: &Expr) -> Option<HashKey> {
        let own = |slot| self.scope.of_slot(slot).is_some_and(|t| item.firsts.contains(&t.first));
        let Expr::Compare(CompareOp::Eq, a, b, collation) = e else { return None };
        let side = |e: &Expr| {
            let mut used = Vec::new();
            e.columns(&mut used);
            let inner = !used.is_empty() && used.iter().all(|&slot| own(slot));
            let outer = !used.is_empty() && used.iter().all(|&slot| self.has(built, slot));
            (inner, outer)
        };
        let (inner, outer) = match (side(a), side(b)) {
            ((true, _), (_, true)) => (a, b),
            ((_, true), (true, _)) => (b, a),
            _ => return None,
        };
        self.planner.wait_for_kinds([inner, outer].iter().any(|e| e.any(|e| matches!(e, Expr::Param(_)))));
        let kind = derived::equal_kind(inner, outer, &self.planner.param_kinds)?;
        let (inner, outer) = ((**inner).clone(), (**outer).clone());
        Some(HashKey { outer, inner, kind, collation: *collation })
    }

    /// A row of an item's hash table satisfies it for sure: it was asked when it came, or whole numbers are equal where keys are.
    pub(super) fn is_asked_by_hash(&self, item: &Item, built: &Built, e: &Expr) -> bool {
        let mut used = Vec::new();
        e.columns(&mut used);
        let own = |slot: &u16| self.scope.of_slot(*slot).is_some_and(|t| item.firsts.contains(&t.first));
        let is_whole = |e: &Expr| matches!(e, Expr::Column(c) if matches!(c.ty, ColumnType::Int { .. }));
        !used.is_empty() && used.iter().all(own)
            || self.hash_key(item, built, e).is_some_and(|key| is_whole(&key.inner) && is_whole(&key.outer))
    }

    /// Whether a condition is better asked of fewer rows: its subqueries are run, or looked into, for each of them.
    fn may_wait(&self, built: &Built, e: &Expr) -> bool {
        let mut slots = Vec::new();
        e.columns(&mut slots);
        let subquery = |slot: &u16| self.computed.get(usize::from(slot.checked_sub(COMPUTED)?))?.as_ref();
        built.is_to_shrink && slots.iter().filter_map(subquery).next().is_some()
    }

    /// A step for a subquery, unless it has one.
    pub(super) fn compute(&mut self, at: usize, built: &mut Built) -> Bound<()> {
        let Some(mut subquery) = self.computed.get_mut(at).and_then(Option::take) else { return Ok(()) };
        // A subquery whose input is another one.
        let mut slots = Vec::new();
        subquery.inputs().iter().for_each(|e| e.columns(&mut slots));
        for slot in slots {
            if let Some(other) = slot.checked_sub(COMPUTED) {
                self.compute(usize::from(other), built)?;
            }
        }
        subquery.inputs_mut().into_iter().for_each(|e| e.project(&built.columns));
        built.columns.push(COMPUTED + at as u16);
        built.types.push(subquery.ty);
        self.push(StepKind::Compute(subquery.into()), built);
        Ok(())
    }

    /// Gives each condition whose columns are there to the last step; with a subquery in it, to a step behind that of the subquery.
    pub(super) fn settle(&mut self, built: &mut Built) -> Bound<()> {
        let ready = |this: &Self, built: &Built, e: &Expr, computed: bool| {
            let mut direct = Vec::new();
            e.columns(&mut direct);
            let names = if computed { this.names(e) } else { direct };
            names.iter().all(|&slot| this.has(built, slot))
        };
        loop {
            let (now, later): (Vec<Expr>, Vec<Expr>) =
                std::mem::take(&mut built.waiting).into_iter().partition(|e| ready(self, built, e, false));
            built.waiting = later;
            if !now.is_empty() {
                if built.steps.is_empty() {
                    // Conditions without a table: a step that adds nothing.
                    self.push(StepKind::Nothing, built);
                }
                let columns = built.columns.clone();
                if let Some(step) = built.steps.last_mut() {
                    let mut all: Vec<Expr> = step.filter.take().map(Expr::conjuncts).unwrap_or_default();
                    all.extend(now.into_iter().map(|mut e| {
                        e.project(&columns);
                        e
                    }));
                    step.filter = all_of(all);
                }
            }
            let next = built.waiting.iter().find(|e| ready(self, built, e, true) && !self.may_wait(built, e)).cloned();
            let Some(next) = next else { return Ok(()) };
            let mut slots = Vec::new();
            next.columns(&mut slots);
            for at in slots.iter().filter_map(|slot| slot.checked_sub(COMPUTED)) {
                self.compute(usize::from(at), built)?;
            }
        }
    }
}

/// Whether keys of the path are made of the row so far.
pub(super) fn reads_outer(path: &Path) -> bool {
    path.is_led_by(|e| matches!(e, Expr::Outer(_)))
}

/// Whether a condition is not true where all these columns are NULL.
fn refuses_null(e: &Expr, own: &dyn Fn(u16) -> bool) -> bool {
    // Functions may make something of a NULL: only bare columns and arithmetic with them are certain.
    fn strict(e: &Expr, own: &dyn Fn(u16) -> bool) -> bool {
        match e {
            Expr::Column(c) => own(c.slot),
            Expr::Arith(_, a, b) => strict(a, own) || strict(b, own),
            Expr::Negate(e) => strict(e, own),
            _ => false,
        }
    }
    match e {
        Expr::Compare(_, a, b, _) => strict(a, own) || strict(b, own),
        Expr::In { expr, .. } | Expr::Between { expr, .. } | Expr::Like { expr, .. } => strict(expr, own),
        Expr::IsNull { expr, negated: true } => strict(expr, own),
        Expr::And(list) => list.iter().any(|e| refuses_null(e, own)),
        Expr::Or(list) => list.iter().all(|e| refuses_null(e, own)),
        Expr::Column(c) => own(c.slot),
        _ => false,
    }
}

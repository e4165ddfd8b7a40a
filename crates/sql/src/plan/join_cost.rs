//! From the items of a join and their conditions to the numbers that an order is chosen by ([`join_order`]).

use super::{
    access, cost,
    from::{Item, Origin},
    hint::JoinRules,
    join::{Built, Lowering},
    join_order::{self, Edge, Part, Step, Way},
    scope::COMPUTED,
};
use crate::{
    catalog::{Table, statistics::Known},
    expr::{CompareOp, Expr},
};

/// Which part of the pairs a condition of two tables leaves where nothing is known of it.
const PART_EQUAL: f64 = 0.01;
const PART_OTHER: f64 = 0.33;
/// Rows of a nested join, or of a table that is not stored.
const ROWS_OTHER: f64 = 500.0;

/// The conditions of a level, each with the items that it names.
struct Conditions {
    all: Vec<Expr>,
    named: Vec<u64>,
}

impl Lowering<'_, '_> {
    /// The order of the items; empty where the sizes of their tables are not known, or nothing is to be ordered.
    pub(crate) fn weigh(&self, items: &[Option<Item>], built: &Built) -> Vec<Step> {
        let items: Vec<&Item> = items.iter().flatten().collect();
        if !(2..=join_order::ITEMS_MAX).contains(&items.len()) {
            return Vec::new();
        }
        let mut all = built.waiting.clone();
        all.extend(items.iter().flat_map(|item| item.left.iter().flatten().cloned()));
        let named = all.iter().map(|e| self.named(&items, e)).collect();
        let conditions = Conditions { all, named };
        let tables: Option<Vec<join_order::Table>> =
            (0..items.len()).map(|at| self.weighed(&items, at, built, &conditions)).collect();
        let Some(mut tables) = tables else { return Vec::new() };
        tables.iter_mut().zip(&built.after).for_each(|(table, after)| table.after |= after);
        let pairs = conditions.all.iter().zip(&conditions.named);
        let edge = |(e, &tables): (&Expr, &u64)| {
            let (part, is_equal) = if tables.count_ones() > 1 { self.edge(&items, e) } else { (1.0, false) };
            Edge { tables: if tables.count_ones() > 1 { tables } else { 0 }, part, is_equal }
        };
        let edges: Vec<Edge> = pairs.map(edge).collect();
        join_order::cheapest(&tables, &edges)
    }

    fn owner(&self, items: &[&Item], slot: u16) -> Option<usize> {
        let first = self.scope.of_slot(slot)?.first;
        items.iter().position(|item| item.firsts.contains(&first))
    }

    /// Items whose columns a condition names, none where a subquery is in it.
    fn named(&self, items: &[&Item], e: &Expr) -> u64 {
        let mut slots = Vec::new();
        e.columns(&mut slots);
        if slots.iter().any(|slot| *slot >= COMPUTED) {
            return 0;
        }
        slots.iter().filter_map(|&slot| self.owner(items, slot)).fold(0, |set, at| set | 1 << at)
    }

    fn known(&self, table: &Table) -> Option<std::rc::Rc<Known>> {
        self.planner.catalog.statistics.of(table)
    }

    /// Items that must be there before one.
    fn needed_before(&self, items: &[&Item], at: usize) -> u64 {
        let item = items[at];
        let looked_at = match &item.origin {
            Origin::Derived(derived) => derived.inputs(),
            _ => Vec::new(),
        };
        let names = item.left.iter().flatten().chain(looked_at).flat_map(|e| self.names(e));
        names.filter_map(|slot| self.owner(items, slot)).fold(0, |set, at| set | 1 << at) & !(1 << at)
    }

    /// For each item those that hints want before it, as far as that can be.
    pub(crate) fn ordered(&self, rules: &JoinRules, items: &[Option<Item>]) -> Vec<u64> {
        let items: Vec<&Item> = items.iter().flatten().collect();
        if items.len() > join_order::ITEMS_MAX {
            return Vec::new();
        }
        let name = |item: &&Item| self.scope.of_slot(item.firsts[0]).map_or_else(String::new, |t| t.shown.clone());
        let names: Vec<String> = items.iter().map(name).collect();
        let after: Vec<u64> = (0..items.len()).map(|at| self.needed_before(&items, at)).collect();
        rules.apply(&names, &after)
    }

    fn weighed(&self, items: &[&Item], at: usize, built: &Built, conditions: &Conditions) -> Option<join_order::Table> {
        let item = items[at];
        let after = self.needed_before(items, at);
        // Not before there is a row to join it to.
        let is_left = item.left.is_some();
        let mut found = join_order::Table {
            read: ROWS_OTHER,
            rows: ROWS_OTHER,
            part: 1.0,
            ways: Vec::new(),
            after,
            is_left,
            exists: item.exists,
            is_bound: false,
            no_hash: item.uses.as_ref().is_some_and(|uses| uses.no_hash),
        };
        match &item.origin {
            Origin::Table(table) if !crate::catalog::information_schema::is_virtual(&table.schema) => {
                let known = self.known(table)?;
                let access = self.access(item, table, built, false);
                (found.read, found.rows) = cost::of_access(&access, &known, None);
                found.part = (found.rows / known.rows).min(1.0);
                found.is_bound = match &access.path {
                    access::Path::Points { .. } => true,
                    access::Path::Range { equal, .. } => !equal.is_empty(),
                    access::Path::Union { .. } | access::Path::Listed(_) => false,
                };
                found.ways = self.ways(items, at, table, &known, conditions);
            }
            Origin::Derived(derived) => {
                found.rows = cost::of_derived(derived, &self.planner.catalog.statistics);
                found.read = found.rows;
            }
            _ => {}
        }
        Some(found)
    }

    /// Indexes of a table that other tables, with or without constants, may give values of.
    fn ways(&self, items: &[&Item], at: usize, table: &Table, known: &Known, conditions: &Conditions) -> Vec<Way> {
        let first = items[at].firsts[0];
        let part_of = |column: u16| -> Part {
            let mut part = Part::new();
            for (number, (e, &named)) in conditions.all.iter().zip(&conditions.named).enumerate() {
                let Expr::Compare(CompareOp::Eq, a, b, collation) = e else { continue };
                if named & 1 << at == 0 {
                    continue;
                }
                for (column_side, value) in [(a, b), (b, a)] {
                    let Expr::Column(c) = &**column_side else { continue };
                    let needs = self.named(items, value);
                    let mut value = (**value).clone();
                    value.walk_mut(&mut |e| {
                        if let Expr::Column(c) = e {
                            *e = Expr::Outer(*c);
                        }
                    });
                    let leads = c.slot == first + column && needs & 1 << at == 0;
                    if leads
                        && access::choice::fits(c.ty, *collation)
                        && access::choice::is_key(c.ty, &value, &self.planner.param_kinds)
                    {
                        part.push((needs, (needs != 0).then_some(number)));
                    }
                }
            }
            part
        };
        let is_allowed = |no| items[at].uses.as_ref().is_none_or(|uses| uses.join.allows(no));
        let secondary = table.ready_indexes().map(|(_, i)| (i.no, i.columns.as_slice(), i.unique));
        let primary = (cost::PRIMARY, table.schema.primary_key.as_slice(), true);
        let way = |(no, columns, is_unique): (apus_types::IndexNo, &[u16], bool)| Way {
            parts: columns.iter().map(|&column| part_of(column)).collect(),
            rows: (1..=columns.len()).map(|count| known.rows_of(no, count)).collect(),
            is_unique,
        };
        std::iter::once(primary)
            .chain(secondary)
            .filter(|(no, ..)| is_allowed(*no))
            .map(way)
            .filter(|way| way.parts.iter().any(|p| !p.is_empty()))
            .collect()
    }

    /// Which part of the pairs of rows satisfies a condition of several tables, and whether it has two values equal.
    fn edge(&self, items: &[&Item], e: &Expr) -> (f64, bool) {
        let Expr::Compare(CompareOp::Eq, a, b, _) = e else { return (PART_OTHER, false) };
        let is_equal = super::derived::equal_kind(a, b, &self.planner.param_kinds).is_some()
            && self.named(items, a) & self.named(items, b) == 0;
        let values = [a, b].into_iter().filter_map(|e| self.values(items, e)).reduce(f64::max);
        (values.map_or(PART_EQUAL, |values| 1.0 / values.max(1.0)), is_equal)
    }

    /// How many values a column has.
    fn values(&self, items: &[&Item], e: &Expr) -> Option<f64> {
        let Expr::Column(c) = e else { return None };
        let item = items[self.owner(items, c.slot)?];
        match &item.origin {
            Origin::Table(table) => {
                let known = self.known(table)?;
                Some(known.values_of(c.slot - item.firsts[0]).unwrap_or(known.rows.sqrt()))
            }
            Origin::Derived(derived) => Some(cost::of_derived(derived, &self.planner.catalog.statistics)),
            Origin::Nested(_) => None,
        }
    }
}

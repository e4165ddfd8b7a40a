//! A bound query block, and how it becomes a plan.
//!
//! A block over one stored table keeps that table's access path and streams its rows ([`Block::plan_single`]). Every other one is a [`Join`](super::query::Join).

use std::rc::Rc;

use apus_types::RowLayout;

use super::{
    Planner, Unplanned, access,
    from::{Item, Level, Origin},
    pushed_group::PushedGroup,
    scope::{Scope, frames::Frame},
    select::{Group, Lock, OrderKey, Output, Select},
};
use crate::{catalog::Table, errors, expr::Expr};

#[derive(Debug)]
pub struct Block {
    pub scope: Rc<Scope>,
    pub level: Level,
    pub outputs: Vec<Output>,
    pub group: Option<Group>,
    pub order: Vec<OrderKey>,
    pub distinct: bool,
    pub counts_all: bool,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub lock: Option<Lock>,
    pub stays_subquery: bool,
}

/// All of these conditions.
pub fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 => None,
        1 => conditions.pop(),
        _ => Some(Expr::And(conditions)),
    }
}

impl Block {
    /// One table that is stored, no subqueries.
    pub fn is_single(&self, planner: &Planner<'_>) -> bool {
        let is_table = |item: &Item| matches!(item.origin, Origin::Table(_));
        let items = self.level.items.as_slice();
        planner.frames.is_plain() && (items.is_empty() || matches!(items, [one] if is_table(one)))
    }

    /// The plan of the innermost block.
    pub fn plan(self, planner: &Planner<'_>) -> Result<Select, Unplanned> {
        let frame = planner.frames.taken();
        let is_plain = frame.given.is_empty() && frame.computed.is_empty();
        match self.level.items.as_slice() {
            [] if is_plain => Ok(self.plan_single(planner, None)?),
            [Item { origin: Origin::Table(table), left: None, .. }] if is_plain => {
                let table = table.clone();
                Ok(self.plan_single(planner, Some(table))?)
            }
            _ => self.plan_join(planner, frame),
        }
    }

    fn plan_join(mut self, planner: &Planner<'_>, frame: Frame) -> Result<Select, Unplanned> {
        let mut reads = Vec::new();
        let level = std::mem::take(&mut self.level);
        let needed = self.slots();
        let (join, given) = super::join::Lowering::new(planner, &self.scope, frame).plan(level, needed, &mut reads)?;
        let mut parts = self.expressions();
        parts.iter_mut().for_each(|e| e.project(&join.columns));
        let layout = join.steps.last().map_or_else(|| RowLayout::new([]), |step| step.layout.clone());
        let in_order = self.order.is_empty();
        let defs = self.outputs.iter().map(|o| o.def.clone()).collect::<Vec<_>>().into();
        Ok(Select {
            reads,
            names: Default::default(),
            given,
            join: Some(Box::new(join)),
            table: None,
            shown: String::new(),
            access: None,
            columns: None,
            layout,
            outputs: self.outputs,
            defs,
            group: self.group,
            order: self.order,
            in_order,
            reverse: false,
            distinct: self.distinct,
            counts_all: self.counts_all,
            limit: self.limit,
            offset: self.offset,
            is_typed_by_values: planner.typed.get(),
            lock: None,
            locked: None,
            pushdown: None,
            stays_subquery: self.stays_subquery,
        })
    }

    fn plan_single(mut self, planner: &Planner<'_>, table: Option<Rc<Table>>) -> errors::Result<Select> {
        let schema = table.as_ref().map(|t| &t.schema);
        let virtual_table = schema.is_some_and(crate::catalog::information_schema::is_virtual);
        let lock = self.lock.filter(|_| !virtual_table);
        let filter = all_of(std::mem::take(&mut self.level.conditions));
        let order = &self.order;
        let simple = table.as_ref().and_then(|t| planner.ordering(t, order));
        let uses = self.level.items.first().and_then(|item| item.uses.clone());
        let is_wanted = self.limit.is_some() || uses.as_ref().is_some_and(|uses| uses.order.is_forced);
        let wanted = simple.as_deref().filter(|_| self.group.is_none() && is_wanted).unwrap_or(&[]);
        let mut access = table.as_ref().map(|t| planner.choose(t, filter.clone(), wanted, uses.as_deref()));
        let may_order = |a: &access::Access| uses.as_ref().is_none_or(|uses| uses.order.allows(a.path.index()));
        let is_ordered = |a: &access::Access| simple.as_ref().is_some_and(|s| a.path.ordered_by(s)) && may_order(a);
        let path_order = access.as_ref().is_some_and(is_ordered);
        let in_order = order.is_empty() || (self.group.is_none() && path_order && !virtual_table);
        let reverse = in_order && order.first().is_some_and(|k| k.descending);
        let is_decided = |a: &access::Access| a.rest.is_none() || a.pushed.says_all;
        let may_push = !virtual_table && lock.is_none() && access.as_ref().is_some_and(is_decided);
        let mut pushdown = schema.filter(|_| may_push).and_then(|schema| match &self.group {
            Some(group) => PushedGroup::of_groups(schema, group),
            None => None,
        });
        let columns = match &table {
            Some(t) if lock.is_none() => Some(self.prune(t, &mut access)),
            _ => None,
        };
        if self.distinct
            && self.group.is_none()
            && may_push
            && (self.order.is_empty() || !in_order)
            && let (Some(table), Some(columns)) = (&table, &columns)
        {
            pushdown = PushedGroup::of_distinct(&table.schema, columns);
        }
        let shown = self.scope.tables.first().map(|visible| visible.shown.clone()).unwrap_or_default();
        let layout = match (&table, &columns) {
            (Some(t), Some(c)) => t.schema.layout().project_layout(c).ok_or_else(|| errors::internal("projection"))?,
            (Some(t), None) => t.schema.layout().clone(),
            (None, _) => RowLayout::new([]),
        };
        if let (Some(group), Some(columns)) = (&self.group, &columns)
            && let Some(mut pushed) = pushdown.take()
        {
            pushdown = pushed.prepare(group, columns, &layout, planner.env).then_some(pushed);
        }
        let defs = self.outputs.iter().map(|o| o.def.clone()).collect::<Vec<_>>().into();
        if let (None, Some(f)) = (&table, filter) {
            // Without a table the condition is checked on the one row there is.
            access = Some(access::Access {
                path: access::Path::Points { index: None, columns: Vec::new(), values: Vec::new(), rows: false },
                full: Some(f.clone()),
                rest: Some(f),
                pushed: Default::default(),
                waits_for_literals: false,
                waits_for_kinds: false,
                possible: Vec::new(),
                part: None,
            });
        }
        Ok(Select {
            reads: table.iter().cloned().collect(),
            names: Default::default(),
            given: Vec::new(),
            join: None,
            table,
            shown,
            access,
            columns,
            layout,
            outputs: self.outputs,
            defs,
            group: self.group,
            order: self.order,
            in_order,
            reverse,
            distinct: self.distinct,
            counts_all: self.counts_all,
            limit: self.limit,
            offset: self.offset,
            is_typed_by_values: planner.typed.get(),
            lock,
            locked: None,
            pushdown,
            stays_subquery: self.stays_subquery,
        })
    }

    /// All expressions that are evaluated over the block's rows.
    fn expressions(&mut self) -> Vec<&mut Expr> {
        let outputs = self.outputs.iter_mut().map(|o| &mut o.expr);
        let mut parts: Vec<&mut Expr> = outputs.chain(self.order.iter_mut().map(|k| &mut k.expr)).collect();
        if let Some(g) = &mut self.group {
            parts.extend(g.keys.iter_mut().map(|k| &mut k.expr));
            parts.extend(
                g.aggregates
                    .iter_mut()
                    .flat_map(|a| a.argument.iter_mut().chain(a.order.iter_mut().map(|k| &mut k.expr))),
            );
            parts.extend(g.having.iter_mut());
            parts.extend(g.windows.iter_mut().flat_map(|w| w.expressions_mut()));
        }
        parts
    }

    /// Slots that the block needs of its joined rows.
    fn slots(&mut self) -> Vec<u16> {
        let mut slots = Vec::new();
        self.expressions().iter().for_each(|e| e.columns(&mut slots));
        slots
    }

    /// The columns that are needed; rewrites all expressions to their places among them.
    fn prune(&mut self, table: &Table, access: &mut Option<access::Access>) -> Vec<u16> {
        let mut parts = self.expressions();
        if let Some(a) = access {
            parts.extend(a.full.iter_mut());
            parts.extend(a.rest.iter_mut());
        }
        let mut columns = Vec::new();
        parts.iter().for_each(|e| e.columns(&mut columns));
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            columns.push(table.schema.primary_key[0]);
        }
        parts.into_iter().for_each(|e| e.project(&columns));
        columns
    }
}

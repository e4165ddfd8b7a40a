//! ONLY_FULL_GROUP_BY: what of a row is the same for all rows of its group.
//!
//! Columns that are grouped by are; so are all columns of a table whose key is, and what a condition has equal to any of these or to a constant.

use super::{
    Planner, Unplanned,
    bind::is_any_value,
    block::Block,
    from::{Level, Origin},
    scope::{COMPUTED, Scope},
    select::Group,
};
use crate::{
    errors,
    expr::{CompareOp, Expr},
    wire::SqlError,
};

impl Block {
    /// # Errors
    /// 1055 of an output that a group has several of.
    pub fn check_grouping(&self, planner: &Planner<'_>) -> Result<(), Unplanned> {
        let Some(group) = self.group.as_ref().filter(|g| !g.each_row && planner.env.variables.only_full_group_by)
        else {
            return Ok(());
        };
        if self.scope.tables.is_empty() {
            return Ok(());
        }
        let mut fixed = Vec::new();
        group.keys.iter().for_each(|k| {
            if let Expr::Column(c) = &k.expr {
                fixed.push(c.slot);
            }
        });
        close(&mut fixed, &self.scope, &self.level);
        let check = Check { block: self, planner, group, fixed };
        for (i, output) in self.outputs.iter().enumerate() {
            if let Some(stray) = check.stray(&output.expr) {
                return Err(check.error(&format!("Expression #{} of SELECT list", i + 1), stray).into());
            }
        }
        let is_shown = |e: &Expr| self.outputs.iter().any(|o| o.expr == *e);
        let order = if group.keys.is_empty() { &[] } else { self.order.as_slice() };
        for (i, key) in order.iter().enumerate().filter(|(_, k)| !is_shown(&k.expr)) {
            if let Some(stray) = check.stray(&key.expr) {
                return Err(check.error(&format!("Expression #{} of ORDER BY clause", i + 1), stray).into());
            }
        }
        for window in group.windows.iter().flat_map(|w| &w.list) {
            for (i, key) in window.partition.iter().chain(&window.order).enumerate() {
                if let Some(stray) = check.stray(&key.expr) {
                    let place =
                        format!("Expression #{} of PARTITION BY or ORDER BY clause of window '{}'", i + 1, window.name);
                    return Err(check.error(&place, stray).into());
                }
            }
        }
        Ok(())
    }
}

struct Check<'c, 'a> {
    block: &'c Block,
    planner: &'c Planner<'a>,
    group: &'c Group,
    /// Columns that are the same all through a group.
    fixed: Vec<u16>,
}

impl Check<'_, '_> {
    /// A column in an expression that a group may have several values of. An expression that is grouped by counts as a whole only, as in MySQL.
    fn stray(&self, e: &Expr) -> Option<u16> {
        if self.group.keys.iter().any(|k| k.expr == *e) { None } else { self.stray_part(e) }
    }

    fn stray_part(&self, e: &Expr) -> Option<u16> {
        if is_any_value(e) || self.is_grouped_column_of_view(e) {
            return None;
        }
        if let Expr::Column(c) = e {
            if c.slot < COMPUTED {
                return (!self.fixed.contains(&c.slot)).then_some(c.slot);
            }
            return self.planner.frames.taken_by(c.slot).iter().find_map(|e| self.stray_part(e));
        }
        if let Some(call) = self.group.windows.as_ref().and_then(|w| w.call(e)) {
            return call.expressions().into_iter().find_map(|e| self.stray_part(e));
        }
        e.children().into_iter().find_map(|e| self.stray_part(e))
    }

    /// What a view computes is one of its columns.
    fn is_grouped_column_of_view(&self, e: &Expr) -> bool {
        let mut columns = self.block.scope.views.iter().flat_map(|v| &v.columns);
        columns.any(|(_, column)| column == e) && self.group.keys.iter().any(|k| k.expr == *e)
    }

    fn error(&self, place: &str, stray: u16) -> SqlError {
        let named = self.block.scope.of_slot(stray).map(|t| {
            let column = &t.column(stray).name;
            let database = if t.database.is_empty() { String::new() } else { format!("{}.", t.database) };
            format!("{database}{}.{column}", t.shown)
        });
        let named = named.unwrap_or_default();
        if self.group.keys.is_empty() {
            errors::not_aggregated(place, &named)
        } else {
            errors::not_in_group_by(place, &named)
        }
    }
}

/// Adds what follows from what is fixed.
fn close(fixed: &mut Vec<u16>, scope: &Scope, level: &Level) {
    loop {
        let before = fixed.len();
        for t in &scope.tables {
            let key = &t.table.schema.primary_key;
            let unique = t.table.schema.indexes.iter().filter(|i| i.unique && i.is_whole()).map(|i| &i.columns);
            let whole = |columns: &Vec<u16>| {
                !columns.is_empty()
                    && columns.iter().all(|&c| fixed.contains(&(t.first + c)) && (columns == key || !is_nullable(t, c)))
            };
            if std::iter::once(key).chain(unique).any(whole) {
                let all = (0..t.table.schema.columns.len() as u16).map(|c| t.first + c);
                let new: Vec<u16> = all.filter(|slot| !fixed.contains(slot)).collect();
                fixed.extend(new);
            }
        }
        equalities(&level.conditions, fixed, |_| true);
        for item in &level.items {
            let Some(on) = &item.left else { continue };
            // Where the row before is fixed, so is whether it has a match, and what that is equal to.
            let own = |slot: u16| scope.of_slot(slot).is_some_and(|t| item.firsts.contains(&t.first));
            let before_is_fixed = on.iter().all(|e| {
                let mut used = Vec::new();
                e.columns(&mut used);
                used.iter().all(|&slot| own(slot) || fixed.contains(&slot))
            });
            if before_is_fixed {
                equalities(on, fixed, own);
            }
        }
        for item in &level.items {
            if let Origin::Nested(inner) = &item.origin {
                equalities(&inner.conditions, fixed, |_| true);
            }
        }
        if fixed.len() == before {
            return;
        }
    }
}

fn is_nullable(t: &super::scope::Visible, column: u16) -> bool {
    t.table.schema.columns[usize::from(column)].nullable
}

fn equalities(conditions: &[Expr], fixed: &mut Vec<u16>, may: impl Fn(u16) -> bool) {
    for e in conditions {
        let Expr::Compare(CompareOp::Eq, a, b, _) = e else { continue };
        for (x, y) in [(a, b), (b, a)] {
            let Expr::Column(c) = &**x else { continue };
            let is_fixed = match &**y {
                Expr::Column(other) => fixed.contains(&other.slot),
                other => other.is_constant(),
            };
            if is_fixed && may(c.slot) && !fixed.contains(&c.slot) {
                fixed.push(c.slot);
            }
        }
    }
}

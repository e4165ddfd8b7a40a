//! GROUP BY ... WITH ROLLUP and GROUPING().
//!
//! With ROLLUP each row counts in its group, in those of fewer and fewer keys, and in that of all rows. Where a group has no key any more its value is NULL, wherever an
//! expression over the group names it. So these values belong to the group, as those of aggregates do. What an expression names as an aggregate has, until the block is
//! bound, a number that says what it is ([`WINDOW`], [`KEY`], [`GROUPING`]), and then its place among the values of a group:
//!
//! ```text
//! aggregates | keys (with ROLLUP) | GROUPING() | window functions
//! ```

use super::{
    Planner, Unplanned,
    block::Block,
    scope::COMPUTED,
    select::{Group, OrderKey, Output},
    window::WINDOW,
};
use crate::{
    errors,
    expr::{Expr, Kind, result_cells},
    wire::column_flag,
};

/// Aggregates from here on are the keys of a group with ROLLUP.
const KEY: usize = 2 * WINDOW;
/// Aggregates from here on are calls of GROUPING().
pub const GROUPING: usize = 3 * WINDOW;

/// Which keys the calls of GROUPING() name.
///
/// # Errors
/// 1111 where nothing is grouped, 3602 of what is no key.
pub fn grouped(calls: &[Vec<Expr>], keys: &[OrderKey]) -> errors::Result<Vec<Vec<usize>>> {
    if !calls.is_empty() && keys.is_empty() {
        return Err(errors::invalid_group_function());
    }
    let place =
        |(at, e): (usize, &Expr)| keys.iter().position(|k| k.expr == *e).ok_or_else(|| errors::not_grouping(at + 1));
    calls.iter().map(|list| list.iter().enumerate().map(place).collect()).collect()
}

/// Puts the keys' own values in the place of what is equal to them.
fn roll_up(e: &mut Expr, keys: &[OrderKey]) {
    let of_key = |e: &Expr| {
        let at = keys.iter().position(|k| k.expr == *e)?;
        Some(Expr::Aggregate(KEY + at, keys[at].kind, keys[at].collation))
    };
    if let Some(key) = of_key(e) {
        *e = key;
        return;
    }
    e.walk_mut(&mut |e| {
        if !e.is_constant()
            && let Some(key) = of_key(e)
        {
            *e = key;
        }
    });
}

impl Block {
    /// Gives everything that a group has beside its rows its place among the group's values.
    pub(crate) fn place_group_values(&mut self, planner: &Planner<'_>) -> Result<(), Unplanned> {
        if self.group.as_ref().is_some_and(|g| g.rollup) {
            self.check_rollup(planner)?;
            self.roll_up();
        }
        let Some(group) = &mut self.group else { return Ok(()) };
        let aggregates = group.aggregates.len();
        let keys = aggregates + if group.rollup { group.keys.len() } else { 0 };
        let windows = keys + group.groupings.len();
        let place = |e: &mut Expr| {
            e.walk_mut(&mut |e| {
                let Expr::Aggregate(i, ..) = e else { return };
                match *i / WINDOW {
                    0 => {}
                    1 => *i = *i - WINDOW + windows,
                    2 => *i = *i - KEY + aggregates,
                    _ => *i = *i - GROUPING + keys,
                }
            });
        };
        let outputs = self.outputs.iter_mut().map(|o| &mut o.expr);
        let over_group = outputs.chain(self.order.iter_mut().map(|k| &mut k.expr)).chain(&mut group.having);
        over_group.chain(group.windows.iter_mut().flat_map(|w| w.expressions_mut())).for_each(place);
        Ok(())
    }

    fn roll_up(&mut self) {
        let is_kept = !self.order.is_empty() || self.distinct || self.level.items.len() > 1;
        let Some(Group { keys, having, windows, .. }) = &mut self.group else { return };
        let is_kept = is_kept || windows.is_some();
        for output in &mut self.outputs {
            roll_up(&mut output.expr, keys);
            output.def.flags &= !column_flag::ZEROFILL;
            output.def.flags &= !column_flag::NOT_NULL;
            if is_kept
                && matches!(output.kind, Kind::Int | Kind::UInt)
                && matches!(output.expr, Expr::Aggregate(i, ..) if i / WINDOW == 2)
            {
                // As a client is told by MySQL, which keeps these rows.
                output.def = result_cells::expression_def(std::mem::take(&mut output.def.name), output.kind);
            }
        }
        let order = self.order.iter_mut().map(|k| &mut k.expr);
        let windows = windows.iter_mut().flat_map(|w| w.expressions_mut());
        order.chain(having).chain(windows).for_each(|e| roll_up(e, keys));
    }

    /// What a subquery says for a row is not what it would say for a group without a key.
    fn check_rollup(&self, planner: &Planner<'_>) -> Result<(), Unplanned> {
        let Some(Group { keys, having, .. }) = &self.group else { return Ok(()) };
        let parts =
            self.outputs.iter().map(|o: &Output| &o.expr).chain(self.order.iter().map(|k| &k.expr)).chain(having);
        let mut used = Vec::new();
        parts.for_each(|e| e.columns(&mut used));
        let mut of_keys = Vec::new();
        keys.iter().for_each(|k| k.expr.columns(&mut of_keys));
        let depends =
            |slot: &u16| *slot >= COMPUTED && planner.frames.inputs_of(*slot).iter().any(|c| of_keys.contains(c));
        if used.iter().any(depends) {
            return Err(errors::not_supported("a subquery of a key of WITH ROLLUP").into());
        }
        Ok(())
    }
}

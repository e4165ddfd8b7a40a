//! Conditions that go into derived tables which stay tables, and into views that do not merge.
//!
//! `SELECT ... FROM (SELECT k, COUNT(*) FROM t GROUP BY k) d WHERE d.k = 5` groups the rows of one key, not all. A table is bound before the conditions on it are known, so it is bound once
//! more, with those that say something of one of its columns as an index would (as [`super::pushed_condition`] has it), or compare two of them. Its block takes what is the same for all rows that
//! become one of its rows: conditions on keys of its groups, on any column where there are no groups, on what every window is partitioned by; none behind LIMIT. The block around
//! asks all its conditions as ever. Common table expressions may be named twice, and are left as they are.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use sqlparser::ast;

use super::{
    Planner, Unplanned,
    from::{Level, Origin},
    pushed_condition::Pushed,
    query::Derived,
    scope::{COMPUTED, Scope},
    select::{Group, Output},
};
use crate::{catalog::view::View, expr::Expr};

type Bound<T> = Result<T, Unplanned>;

/// Where a derived table comes from.
#[derive(Debug)]
pub enum Text {
    Query { query: Box<ast::Query>, name: String, columns: Vec<String> },
    View(Rc<View>),
}

/// So often at most something is bound once more for a statement: tables in tables are bound with each of those around them.
const BOUND_AGAIN_MAX: u32 = 64;

/// What goes into the table that is bound next.
#[derive(Default)]
pub struct Inward {
    /// Over its columns, by their place.
    conditions: RefCell<Rc<[Expr]>>,
    bound_again: Cell<u32>,
}

impl Inward {
    pub fn take(&self) -> Rc<[Expr]> {
        self.conditions.take()
    }
    pub fn set(&self, conditions: &Rc<[Expr]>) {
        self.conditions.replace(conditions.clone());
    }
}

impl Planner<'_> {
    /// Binds those tables of a block anew that can make fewer rows. `scope`: of the block.
    pub(crate) fn push_inward(&self, scope: &Rc<Scope>, level: &mut Level) -> Bound<()> {
        for item in &mut level.items {
            let conditions = item.left.as_ref().unwrap_or(&level.conditions);
            match &mut item.origin {
                Origin::Table(_) => {}
                Origin::Nested(inner) => self.push_inward(scope, inner)?,
                Origin::Derived(derived) => {
                    let Some(text) = derived.text.clone() else { continue };
                    let own = conditions.iter().filter_map(|e| of_derived(derived, item.firsts[0], e));
                    let own: Rc<[Expr]> = own.collect();
                    if !own.is_empty() && self.may_bind_again() {
                        *derived = self.bound_again(&text, &own, scope)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn may_bind_again(&self) -> bool {
        let times = self.inward.bound_again.get();
        self.inward.bound_again.set(times + 1);
        times < BOUND_AGAIN_MAX && self.refuse_inner_locks().is_ok()
    }

    fn bound_again(&self, text: &Rc<Text>, conditions: &Rc<[Expr]>, scope: &Rc<Scope>) -> Bound<Rc<Derived>> {
        // It sees no table beside it.
        self.frames.show(&Rc::default());
        self.inward.set(conditions);
        let views = self.views.used.borrow().len();
        let derived = match &**text {
            Text::Query { query, name, columns } => self.derived(query, name, columns),
            Text::View(view) => self.view_as_table(view),
        };
        self.inward.take();
        // They are known.
        self.views.used.borrow_mut().truncate(views);
        self.frames.show(scope);
        derived
    }
}

/// A condition of the block around that a derived table can ask: over its columns by place.
fn of_derived(derived: &Derived, first: u16, condition: &Expr) -> Option<Expr> {
    let schema = &derived.table.schema;
    let mut used = Vec::new();
    condition.columns(&mut used);
    let is_own =
        |slot: &u16| usize::from(*slot).checked_sub(usize::from(first)).is_some_and(|at| at < schema.columns.len());
    let is_foreign = |e: &Expr| {
        matches!(e, Expr::Given(..) | Expr::Outer(_) | Expr::UserVariable(..) | Expr::Stored(..) | Expr::Aggregate(..))
            || matches!(e, Expr::Call(func, ..) if func.varies())
    };
    if used.is_empty() || !used.iter().all(is_own) || condition.any(is_foreign) {
        return None;
    }
    let mut own = condition.clone();
    own.walk_mut(&mut |e| {
        if let Expr::Column(c) = e {
            c.slot -= first;
        }
    });
    Pushed::of(schema, std::iter::once(&own)).has_tests().then_some(own)
}

/// Those conditions that a block can ask of its rows before they are grouped.
pub fn taken_in(conditions: &[Expr], outputs: &[Output], group: Option<&Group>) -> Vec<Expr> {
    let varies = |e: &Expr| match e {
        Expr::Call(func, ..) => func.varies(),
        Expr::Stored(..) | Expr::UserVariable(..) => true,
        _ => false,
    };
    if group.is_some_and(|g| g.rollup) || outputs.iter().any(|o| o.expr.any(varies)) {
        return Vec::new();
    }
    let is_fixed = |e: &Expr| {
        group.is_none_or(|g| {
            (g.each_row || g.keys.iter().any(|key| key.expr == *e))
                && g.windows.iter().flat_map(|w| &w.list).all(|w| w.partition.iter().any(|key| key.expr == *e))
        })
    };
    let one = |condition: &Expr| {
        let (mut own, mut fits) = (condition.clone(), true);
        own.walk_mut(&mut |e| {
            let Expr::Column(c) = e else { return };
            let made = outputs.get(usize::from(c.slot)).map(|o| &o.expr);
            let is_same =
                |e: &&Expr| matches!(e, Expr::Column(own) if own.ty == c.ty && own.slot < COMPUTED) && is_fixed(e);
            match made.filter(is_same) {
                Some(made) => *e = made.clone(),
                None => fits = false,
            }
        });
        fits.then_some(own)
    };
    conditions.iter().filter_map(one).collect()
}

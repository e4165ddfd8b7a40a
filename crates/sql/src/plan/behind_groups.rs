//! Subqueries behind groups: those that take aggregates of their block, as in `HAVING COUNT(*) > ALL (SELECT ...)` or `(SELECT name FROM u WHERE u.id = MAX(t.uid))`.
//!
//! Subqueries are columns of a block's rows, which are there before its groups. So a block with such ones becomes two: its groups are a derived table, whose columns are the
//! aggregates and whatever else of a group is asked for, and the block over it runs the subqueries for its rows. HAVING is the condition of that block.

use std::rc::Rc;

use super::{
    Planner, Unplanned,
    block::Block,
    from::Level,
    outputs::Columns,
    query::{Given, Subquery},
    scope::{
        COMPUTED,
        frames::{Frame, Frames},
    },
    select::{Group, Output},
};
use crate::{
    errors,
    expr::{
        ColumnRef, Expr,
        coercion::{self, collation_of},
    },
};

impl Planner<'_> {
    /// A bound block, whose subqueries may take its aggregates.
    ///
    /// # Errors
    /// 1235 beside WITH ROLLUP, window functions and locks.
    pub(crate) fn behind_groups(&self, mut block: Block) -> Result<Block, Unplanned> {
        if !self.frames.has_late() {
            return Ok(block);
        }
        let group = block.group.take().ok_or_else(|| errors::internal("aggregates without groups"))?;
        if group.rollup || group.windows.is_some() || block.lock.is_some() {
            let what = "subqueries that take aggregates beside WITH ROLLUP, window functions or locks";
            return Err(errors::not_supported(what).into());
        }
        let mut parts = Parts::of(&self.frames, group);
        let wanted = parts.wanted(&block);
        let groups = Block {
            scope: block.scope.clone(),
            level: std::mem::take(&mut block.level),
            outputs: self.columns_of_groups(&block, &wanted, &parts.group),
            group: Some(parts.group),
            order: Vec::new(),
            distinct: false,
            counts_all: false,
            limit: None,
            offset: None,
            lock: None,
            stays_subquery: false,
        };
        self.frames.put(parts.over);
        self.frames.open(None);
        self.frames.put(parts.within);
        let select = groups.plan(self);
        self.frames.close();
        let derived = Rc::new(self.derived_of(select?, "", &[])?);
        let types = derived.table.schema.columns.iter().map(|column| column.ty).collect();
        let (scope, level) = Level::alone(derived);
        let moved = Moved { wanted, types, renumbered: parts.renumbered };
        block.outputs.iter_mut().for_each(|output| moved.apply(&mut output.expr));
        block.order.iter_mut().for_each(|key| moved.apply(&mut key.expr));
        self.frames.change_computed(|subquery| subquery.inputs_mut().into_iter().for_each(|e| moved.apply(e)));
        let mut conditions: Vec<Expr> = parts.having.map(Expr::conjuncts).unwrap_or_default();
        conditions.iter_mut().for_each(|e| moved.apply(e));
        self.frames.show(&scope);
        Ok(Block { scope, level: Level { conditions, ..level }, ..block })
    }

    fn columns_of_groups(&self, block: &Block, wanted: &[Expr], group: &Group) -> Vec<Output> {
        let columns = Columns { planner: self, scope: &block.scope, text: "", is_shapeless: false };
        let output = |(i, e): (usize, &Expr)| columns.computed(e.clone(), i.to_string(), (&group.aggregates, &[]));
        wanted.iter().enumerate().map(output).collect()
    }
}

/// What of a block belongs to its groups, and what to the block over them.
struct Parts {
    group: Group,
    having: Option<Expr>,
    /// Of the derived table.
    within: Frame,
    /// Of the block over it.
    over: Frame,
    /// For each subquery of the block whether it is one of the block over its groups, and its number there.
    renumbered: Vec<(bool, u16)>,
}

impl Parts {
    fn of(frames: &Frames, mut group: Group) -> Parts {
        let frame = frames.taken();
        let (mut within, mut over) = (Vec::new(), Vec::new());
        let mut renumbered = Vec::new();
        for (at, subquery) in frame.computed.into_iter().enumerate() {
            let is_late = frame.late.contains(&at);
            let list: &mut Vec<Subquery> = if is_late { &mut over } else { &mut within };
            renumbered.push((is_late, list.len() as u16));
            list.push(subquery);
        }
        let having = group.having.take();
        // Those of WHERE are the first ones and keep their numbers.
        let arguments = group.aggregates.iter_mut();
        let arguments = arguments.flat_map(|a| a.argument.iter_mut().chain(a.order.iter_mut().map(|k| &mut k.expr)));
        for e in group.keys.iter_mut().map(|k| &mut k.expr).chain(arguments) {
            renumber(e, &renumbered);
        }
        let given = frame.given.iter().enumerate().map(|(at, given)| Given::Outer(handed_on(at, given))).collect();
        let (within, over) = (Frame::of(frame.scope, given, within), Frame::of(Rc::default(), frame.given, over));
        Parts { group, having, within, over, renumbered }
    }

    /// The columns and aggregates that the block over the groups asks of them, each once, as the groups' block names them.
    fn wanted(&mut self, block: &Block) -> Vec<Expr> {
        let mut wanted: Vec<Expr> = Vec::new();
        let late = self.over.computed.iter().flat_map(|subquery| subquery.inputs());
        let outputs = block.outputs.iter().map(|output| &output.expr);
        let asked = outputs.chain(block.order.iter().map(|key| &key.expr)).chain(&self.having).chain(late);
        for e in asked {
            e.walk(&mut |e| {
                let mut e = match e {
                    Expr::Column(c) if !is_late(c.slot, &self.renumbered) => e.clone(),
                    Expr::Aggregate(..) => e.clone(),
                    _ => return,
                };
                renumber(&mut e, &self.renumbered);
                if !wanted.contains(&e) {
                    wanted.push(e);
                }
            });
        }
        wanted
    }
}

/// A value that the block over the groups is given, as these are given it.
fn handed_on(at: usize, given: &Given) -> Expr {
    let (ty, is_column) = match given {
        Given::Outer(e) => {
            let ty = e.column_type().unwrap_or_else(|| coercion::type_of(e.kind(&[]), collation_of(e, &[])));
            (ty, e.column_type().is_some())
        }
        Given::Value(subquery) => (subquery.ty, false),
    };
    Expr::Given(at as u16, ty, is_column)
}

fn number(slot: u16) -> Option<usize> {
    slot.checked_sub(COMPUTED).map(usize::from)
}

fn is_late(slot: u16, renumbered: &[(bool, u16)]) -> bool {
    number(slot).is_some_and(|at| renumbered[at].0)
}

fn renumber(e: &mut Expr, renumbered: &[(bool, u16)]) {
    e.walk_mut(&mut |e| {
        if let Expr::Column(c) = e
            && let Some(at) = number(c.slot)
        {
            c.slot = COMPUTED + renumbered[at].1;
        }
    });
}

/// Where the parts of expressions over groups are in the block over these.
struct Moved {
    wanted: Vec<Expr>,
    types: Vec<apus_types::ColumnType>,
    renumbered: Vec<(bool, u16)>,
}

impl Moved {
    fn apply(&self, e: &mut Expr) {
        e.walk_mut(&mut |e| {
            let is_of_groups = match e {
                Expr::Column(c) => !is_late(c.slot, &self.renumbered),
                Expr::Aggregate(..) => true,
                _ => return,
            };
            renumber(e, &self.renumbered);
            if is_of_groups && let Some(at) = self.wanted.iter().position(|wanted| wanted == e) {
                *e = Expr::Column(ColumnRef { slot: at as u16, ty: self.types[at] });
            }
        });
    }
}

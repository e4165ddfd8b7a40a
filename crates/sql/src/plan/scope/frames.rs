//! Blocks around blocks: what an inner one takes of the rows of an outer one.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_types::ColumnType;
use sqlparser::{ast, tokenizer::Location};

use super::{COMPUTED, Outside, Scope};
use crate::{
    errors::{self, Result},
    expr::{
        ColumnRef, Expr,
        coercion::{self, collation_of},
    },
    plan::{
        bind::Aggregate,
        query::{Given, Subquery},
        window::WINDOW,
    },
    value::number_format::Face,
};

/// One query block under construction.
#[derive(Default, Debug)]
pub struct Frame {
    pub scope: Rc<Scope>,
    /// Its SELECT in the text of the statement.
    pub(super) at: Option<Location>,
    /// What the block is given, in the order of its evaluation.
    pub given: Vec<Given>,
    /// Subqueries that are run for rows of the block.
    pub computed: Vec<Subquery>,
    /// Those of them that take aggregates of the block: they are run for its groups.
    pub late: Vec<usize>,
    /// Aggregates of the block that the subquery under construction has asked for.
    asked: Vec<Aggregate>,
    /// Whether aggregates may stand where that subquery stands.
    takes_aggregates: bool,
}

impl Frame {
    pub fn of(scope: Rc<Scope>, given: Vec<Given>, computed: Vec<Subquery>) -> Frame {
        Frame { scope, given, computed, ..Frame::default() }
    }
}

/// Where the numbers of aggregates begin that a subquery asks of the block around it, until that block knows them.
pub const ASKED: usize = 4 * WINDOW;

/// The blocks under construction, the innermost last.
#[derive(Default, Debug)]
pub struct Frames {
    list: RefCell<Vec<Frame>>,
    /// Depth of the LATERAL block under construction, or 0.
    lateral: Cell<usize>,
    /// The first block of the view under construction: it sees none around it.
    floor: Cell<usize>,
    /// Where SELECT stands in the text of the statement.
    selects: RefCell<BTreeSet<Location>>,
    /// By where they stand.
    outside: RefCell<BTreeMap<Location, Outside>>,
}

impl Frames {
    /// `at`: where the SELECT of the block stands, if that is in the text of the statement.
    pub fn open(&self, at: Option<Location>) {
        self.selects.borrow_mut().extend(at);
        self.list.borrow_mut().push(Frame { at, ..Frame::default() });
    }
    /// A name of the statement's text, which means a column of a block around.
    pub fn note_outside(&self, name: &ast::Ident, qualifier: &[&str]) {
        let Some((database, table)) = self.outer_owner(qualifier, &name.value) else { return };
        let list = self.list.borrow();
        let Some((own, around)) = list.split_last() else { return };
        let around = around.iter().rev().find(|frame| frame.scope.source(qualifier, &name.value).is_some());
        let parts = [database.as_str(), &table, &name.value];
        let full: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let noted = (full.join("."), own.at, around.and_then(|frame| frame.at));
        self.outside.borrow_mut().insert(name.span.start, noted);
    }
    /// What EXPLAIN tells of those names.
    pub fn take_outside(&self) -> Vec<String> {
        let selects = self.selects.take();
        let number = |at: Option<Location>| 1 + at.map_or(0, |at| selects.range(..at).count());
        let tell = |(name, own, around): Outside| {
            let (own, around) = (number(own), number(around));
            format!("Field or reference '{name}' of SELECT #{own} was resolved in SELECT #{around}")
        };
        self.outside.take().into_values().map(tell).collect()
    }
    pub fn close(&self) -> Frame {
        self.list.borrow_mut().pop().unwrap_or_default()
    }
    /// The columns that a slot of the innermost block depends on.
    pub fn inputs_of(&self, slot: u16) -> Vec<u16> {
        if slot < COMPUTED {
            return vec![slot];
        }
        let mut out = Vec::new();
        self.taken_by(slot).iter().for_each(|e| e.columns(&mut out));
        out.retain(|slot| *slot < COMPUTED);
        out
    }
    /// What the subquery that computes a slot of the innermost block takes from it.
    pub fn taken_by(&self, slot: u16) -> Vec<Expr> {
        let list = self.list.borrow();
        let subquery = slot.checked_sub(COMPUTED).and_then(|at| list.last()?.computed.get(usize::from(at)));
        subquery.map_or_else(Vec::new, |s| s.inputs().into_iter().cloned().collect())
    }
    /// The innermost block is given nothing and has nothing to compute.
    pub fn is_plain(&self) -> bool {
        self.list.borrow().last().is_none_or(|f| f.given.is_empty() && f.computed.is_empty())
    }
    pub fn depth(&self) -> usize {
        self.list.borrow().len()
    }
    /// A view's text begins in block `at`: from there on nothing around it is seen. Gives what was so before.
    pub fn begin_view(&self, at: usize) -> usize {
        self.floor.replace(at)
    }
    pub fn end_view(&self, before: usize) {
        self.floor.set(before);
    }
    /// What a name that is no column of the innermost block means a column of.
    pub fn outer_owner(&self, qualifier: &[&str], name: &str) -> Option<(String, String)> {
        let list = self.list.borrow();
        let around = list.get(self.floor.get()..list.len().checked_sub(1)?)?;
        around.iter().rev().find_map(|frame| match qualifier {
            [] => frame.scope.owner(name),
            [.., table] => {
                let database = qualifier.len().checked_sub(2).map(|at| qualifier[at]);
                frame.scope.qualified(database, table, name).and_then(|_| frame.scope.owner_of(database, table))
            }
        })
    }
    /// The names of the block around that has a column.
    pub fn outer_scope(&self, qualifier: &[&str], name: &str) -> Option<Rc<Scope>> {
        let list = self.list.borrow();
        let around = list.get(self.floor.get()..list.len().checked_sub(1)?)?;
        around.iter().rev().map(|frame| &frame.scope).find(|scope| scope.source(qualifier, name).is_some()).cloned()
    }
    /// The next block is LATERAL; gives what was so before.
    pub fn begin_lateral(&self) -> usize {
        self.lateral.replace(self.depth() + 1)
    }
    pub fn end_lateral(&self, before: usize) {
        self.lateral.set(before);
    }
    /// The innermost block stands in FROM and sees tables beside it, which cannot be grouped for its aggregates.
    pub fn is_lateral(&self) -> bool {
        self.depth() == self.lateral.get()
    }
    /// How much the innermost block is given and has to compute so far.
    pub fn extent(&self) -> (usize, usize) {
        self.list.borrow().last().map_or((0, 0), |frame| (frame.given.len(), frame.computed.len()))
    }
    /// The innermost block is given and computes no more than this.
    pub fn shrink_to(&self, (given, computed): (usize, usize)) {
        if let Some(frame) = self.list.borrow_mut().last_mut() {
            frame.given.truncate(given);
            frame.computed.truncate(computed);
        }
    }
    /// How much each block is given so far.
    pub fn given(&self) -> Vec<usize> {
        self.list.borrow().iter().map(|frame| frame.given.len()).collect()
    }
    /// Each block is given no more than this.
    pub fn give_up(&self, given: &[usize]) {
        self.list.borrow_mut().iter_mut().zip(given).for_each(|(frame, length)| frame.given.truncate(*length));
    }
    /// What the innermost block was given and has to compute.
    pub fn taken(&self) -> Frame {
        self.list.borrow_mut().last_mut().map(std::mem::take).unwrap_or_default()
    }
    /// What the innermost block is given and has to compute from now on.
    pub fn put(&self, frame: Frame) {
        if let Some(last) = self.list.borrow_mut().last_mut() {
            *last = frame;
        }
    }
    pub fn change_computed(&self, change: impl FnMut(&mut Subquery)) {
        if let Some(frame) = self.list.borrow_mut().last_mut() {
            frame.computed.iter_mut().for_each(change);
        }
    }
    /// Whether the innermost block has subqueries that take its aggregates.
    pub fn has_late(&self) -> bool {
        self.list.borrow().last().is_some_and(|frame| !frame.late.is_empty())
    }
    /// What names mean in the innermost block from now on.
    pub fn show(&self, scope: &Rc<Scope>) {
        if let Some(frame) = self.list.borrow_mut().last_mut() {
            frame.scope = scope.clone();
        }
    }
    /// Gives the innermost block a value.
    pub fn give(&self, given: Given, ty: ColumnType) -> Result<Expr> {
        let mut list = self.list.borrow_mut();
        let frame = list.last_mut().ok_or_else(|| errors::internal("a value without a block"))?;
        Ok(push_given(frame, given, ty))
    }
    /// A subquery that the innermost block runs for its rows.
    pub fn compute(&self, subquery: Subquery, ty: ColumnType) -> Result<Expr> {
        let mut list = self.list.borrow_mut();
        let frame = list.last_mut().ok_or_else(|| errors::internal("a subquery without a block"))?;
        let slot = COMPUTED + frame.computed.len() as u16;
        frame.computed.push(subquery);
        Ok(Expr::Column(ColumnRef { slot, ty }))
    }

    /// As [`Frames::compute`], of one that takes aggregates of the block.
    pub fn compute_late(&self, subquery: Subquery, ty: ColumnType) -> Result<Expr> {
        let column = self.compute(subquery, ty)?;
        if let Some(frame) = self.list.borrow_mut().last_mut() {
            frame.late.push(frame.computed.len() - 1);
        }
        Ok(column)
    }

    /// A subquery of the innermost block is about to be bound.
    pub fn begin_subquery(&self, takes_aggregates: bool) {
        if let Some(frame) = self.list.borrow_mut().last_mut() {
            frame.takes_aggregates = takes_aggregates;
            // Of one that was given up there may be some.
            frame.asked.clear();
        }
    }

    /// Aggregates of the innermost block that the subquery just bound has asked for, in the order of their numbers from [`ASKED`] on.
    pub fn take_asked(&self) -> Vec<Aggregate> {
        self.list.borrow_mut().last_mut().map_or_else(Vec::new, |frame| std::mem::take(&mut frame.asked))
    }

    /// An expression over what the block `out` blocks around the innermost one is given, as one of the block around that; `None`: it takes other values, too.
    pub fn outward(&self, e: &Expr, out: usize) -> Option<Expr> {
        let list = self.list.borrow();
        let given = &list.get(list.len().checked_sub(out + 1)?.max(1))?.given;
        let (mut e, mut is_outer) = (e.clone(), true);
        e.walk_mut(&mut |e| {
            let Expr::Given(at, ..) = e else { return };
            match given.get(usize::from(*at)) {
                Some(Given::Outer(outer)) => *e = outer.clone(),
                _ => is_outer = false,
            }
        });
        is_outer.then_some(e)
    }

    /// Whether aggregates may stand where the block `out` blocks around the innermost one has the subquery under construction.
    pub fn takes_aggregates(&self, out: usize) -> bool {
        let list = self.list.borrow();
        list.iter().rev().nth(out).is_some_and(|frame| frame.takes_aggregates)
    }

    /// Asks the block `out` blocks around the innermost one for an aggregate of it, as a value that is given inward to the innermost one.
    pub fn ask(&self, aggregate: Aggregate, out: usize) -> Result<Expr> {
        let mut list = self.list.borrow_mut();
        let around = list.len().checked_sub(out + 1).ok_or_else(|| errors::internal("a query without one around"))?;
        let (kind, collation) = (aggregate.kind, aggregate.collation);
        let asked = &mut list[around].asked;
        let at = asked.iter().position(|known| *known == aggregate).unwrap_or_else(|| {
            asked.push(aggregate);
            asked.len() - 1
        });
        let ty = coercion::type_of(kind, collation);
        let inward = list[around + 1..].iter_mut();
        Ok(inward.fold(Expr::Aggregate(ASKED + at, kind, collation), |e, frame| push_given(frame, Given::Outer(e), ty)))
    }

    /// How the column looks that the innermost block is given as this value.
    pub fn face_of_given(&self, at: u16) -> Option<Face> {
        let list = self.list.borrow();
        let (mut at, mut block) = (at, list.len().checked_sub(1)?);
        loop {
            let Given::Outer(found) = list.get(block)?.given.get(usize::from(at))? else { return None };
            block = block.checked_sub(1)?;
            match found {
                Expr::Column(c) => return Face::of(list[block].scope.of_slot(c.slot)?.column(c.slot)),
                Expr::Given(outer, ..) => at = *outer,
                _ => return None,
            }
        }
    }

    /// A column of a block around the innermost one, as a value that this is given.
    ///
    /// # Errors
    /// 1052.
    pub fn outer_column(&self, qualifier: &[&str], name: &str, clause: &str) -> Result<Option<Expr>> {
        let mut list = self.list.borrow_mut();
        let depth = list.len();
        if depth < 2 {
            return Ok(None);
        }
        resolve_outside(&mut list, (depth - 1, self.floor.get()), qualifier, name, clause)
    }
}

/// Looks a name up in the blocks around block `at`, down to block `floor`.
fn resolve_outside(
    list: &mut [Frame],
    (at, floor): (usize, usize),
    qualifier: &[&str],
    name: &str,
    clause: &str,
) -> Result<Option<Expr>> {
    let Some(outside) = at.checked_sub(1).filter(|outside| *outside >= floor) else { return Ok(None) };
    let scope = list[outside].scope.clone();
    let own = match qualifier {
        [] => scope.column(name, clause)?,
        [table] => scope.qualified(None, table, name),
        [database, table] => scope.qualified(Some(database), table, name),
        _ => None,
    };
    let found = match own {
        Some(column) => column,
        None => match resolve_outside(list, (outside, floor), qualifier, name, clause)? {
            Some(given) => given,
            None => return Ok(None),
        },
    };
    let ty = match &found {
        Expr::Column(c) => c.ty,
        Expr::Given(_, ty, _) => *ty,
        // A computed column of a view.
        e => coercion::type_of(e.kind(&[]), collation_of(e, &[])),
    };
    Ok(Some(push_given(&mut list[at], Given::Outer(found), ty)))
}

fn push_given(frame: &mut Frame, given: Given, ty: ColumnType) -> Expr {
    let is_column = matches!(&given, Given::Outer(e) if e.column_type().is_some());
    let known = match &given {
        Given::Outer(e) => frame.given.iter().position(|g| matches!(g, Given::Outer(known) if known == e)),
        _ => None,
    };
    let at = known.unwrap_or_else(|| {
        frame.given.push(given);
        frame.given.len() - 1
    });
    Expr::Given(at as u16, ty, is_column)
}

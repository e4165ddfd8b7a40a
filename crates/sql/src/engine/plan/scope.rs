//! What column names mean in a query block.
//!
//! Every column of every table in FROM has a number, its *slot*: tables one after the other as they are written. Values that are computed for each joined row
//! (subqueries) have slots from [`COMPUTED`] on. A name that is no column of the block may be one of a block around it: then it is a
//! value given to the block ([`Frames`]).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use apus_types::{Column, ColumnType};

use super::query::{Given, Subquery};
use crate::engine::{
    catalog::Table,
    errors::{self, Result},
    expr::{ColumnRef, Expr},
};

/// Slots from here on are computed for each row.
pub const COMPUTED: u16 = 60_000;
/// Most tables of one block, as in MySQL.
pub const TABLES_MAX: usize = 61;

/// A table of a FROM clause.
#[derive(Clone, Debug)]
pub struct Visible {
    /// Its alias or name.
    pub shown: String,
    /// Empty for a derived table.
    pub database: String,
    pub table: Rc<Table>,
    /// Slot of its first column.
    pub first: u16,
    /// An outer join may fill it with NULL.
    pub is_nullable: bool,
}

impl Visible {
    pub fn column(&self, slot: u16) -> &Column {
        &self.table.schema.columns[usize::from(slot - self.first)]
    }
    fn end(&self) -> u16 {
        self.first + self.table.schema.columns.len() as u16
    }
    fn find(&self, name: &str) -> Option<Expr> {
        let at = self.table.schema.column_no(name).filter(|_| !name.starts_with('#'))?;
        Some(Expr::Column(ColumnRef { slot: self.first + at, ty: self.table.schema.columns[usize::from(at)].ty }))
    }
}

/// The tables of a FROM clause, or of a part of it.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    pub tables: Vec<Visible>,
    /// Columns that USING or NATURAL shows only once, under their twin.
    pub hidden: Vec<u16>,
    /// What `*` is, where that is not all visible columns in order.
    star: Option<Vec<u16>>,
}

impl Scope {
    pub fn of(table: Visible) -> Scope {
        Scope { tables: vec![table], ..Scope::default() }
    }

    /// The tables of several.
    pub fn of_all(parts: &[&Scope]) -> Scope {
        let tables = parts.iter().flat_map(|s| s.tables.iter().cloned()).collect();
        let hidden = parts.iter().flat_map(|s| s.hidden.iter().copied()).collect();
        Scope { tables, hidden, star: None }
    }

    pub fn of_slot(&self, slot: u16) -> Option<&Visible> {
        self.tables.iter().find(|t| (t.first..t.end()).contains(&slot))
    }

    pub fn type_of(&self, slot: u16) -> Option<ColumnType> {
        self.of_slot(slot).map(|t| t.column(slot).ty)
    }

    /// A column without the name of a table.
    ///
    /// # Errors
    /// 1052 where several have it.
    pub fn column(&self, name: &str, clause: &str) -> Result<Option<Expr>> {
        let mut found = None;
        for column in self.tables.iter().filter_map(|t| t.find(name)) {
            if matches!(&column, Expr::Column(c) if self.hidden.contains(&c.slot)) {
                continue;
            }
            if found.replace(column).is_some() {
                return Err(errors::ambiguous_column(name, clause));
            }
        }
        Ok(found)
    }

    pub fn qualified(&self, database: Option<&str>, table: &str, name: &str) -> Option<Expr> {
        self.table(database, table)?.find(name)
    }

    pub fn table(&self, database: Option<&str>, table: &str) -> Option<&Visible> {
        self.tables.iter().find(|t| t.shown == table && database.is_none_or(|d| d == t.database))
    }

    /// What `*` shows.
    pub fn star(&self) -> Vec<u16> {
        match &self.star {
            Some(star) => star.clone(),
            None => self.tables.iter().flat_map(|t| t.table.visible_columns().map(|c| t.first + c)).collect(),
        }
    }

    /// Of both sides of a join; `twins` are pairs of columns (shown, hidden) that are one.
    ///
    /// # Errors
    /// 1066, 1116.
    pub fn join(mut self, other: Scope, twins: &[(u16, u16)]) -> Result<Scope> {
        for t in &other.tables {
            if self.tables.iter().any(|s| s.shown == t.shown && s.database == t.database) {
                return Err(errors::not_unique_table(&t.shown));
            }
        }
        if self.tables.len() + other.tables.len() > TABLES_MAX {
            return Err(errors::too_many_tables(TABLES_MAX));
        }
        if !twins.is_empty() || self.star.is_some() || other.star.is_some() {
            let is_twin = |slot: &u16| twins.iter().any(|(a, b)| a == slot || b == slot);
            let rest = self.star().into_iter().chain(other.star()).filter(|slot| !is_twin(slot));
            self.star = Some(twins.iter().map(|(shown, _)| *shown).chain(rest).collect());
        }
        self.hidden.extend(other.hidden);
        self.hidden.extend(twins.iter().map(|(_, hidden)| *hidden));
        self.tables.extend(other.tables);
        self.tables.sort_by_key(|t| t.first);
        Ok(self)
    }
}

/// One query block under construction.
#[derive(Default, Debug)]
pub struct Frame {
    pub scope: Rc<Scope>,
    /// What the block is given, in the order of its evaluation.
    pub given: Vec<Given>,
    /// Subqueries that are run for rows of the block.
    pub computed: Vec<Subquery>,
}

/// The blocks under construction, the innermost last.
#[derive(Default, Debug)]
pub struct Frames {
    list: RefCell<Vec<Frame>>,
    /// Depth of the LATERAL block under construction, or 0.
    lateral: Cell<usize>,
}

impl Frames {
    pub fn open(&self) {
        self.list.borrow_mut().push(Frame::default());
    }
    pub fn close(&self) -> Frame {
        self.list.borrow_mut().pop().unwrap_or_default()
    }
    /// The columns that a slot of the innermost block depends on.
    pub fn inputs_of(&self, slot: u16) -> Vec<u16> {
        let list = self.list.borrow();
        let Some(at) = slot.checked_sub(COMPUTED) else { return vec![slot] };
        let mut out = Vec::new();
        if let Some(subquery) = list.last().and_then(|f| f.computed.get(usize::from(at))) {
            subquery.inputs().iter().for_each(|e| e.columns(&mut out));
        }
        out.into_iter().flat_map(|slot| if slot < COMPUTED { vec![slot] } else { Vec::new() }).collect()
    }
    /// The innermost block is given nothing and has nothing to compute.
    pub fn is_plain(&self) -> bool {
        self.list.borrow().last().is_none_or(|f| f.given.is_empty() && f.computed.is_empty())
    }
    pub fn depth(&self) -> usize {
        self.list.borrow().len()
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
    /// What the innermost block was given and has to compute.
    pub fn taken(&self) -> Frame {
        self.list.borrow_mut().last_mut().map(std::mem::take).unwrap_or_default()
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
        resolve_outside(&mut list, depth - 1, qualifier, name, clause)
    }
}

/// Looks a name up in the blocks around block `at`.
fn resolve_outside(
    list: &mut [Frame],
    at: usize,
    qualifier: &[&str],
    name: &str,
    clause: &str,
) -> Result<Option<Expr>> {
    let Some(outside) = at.checked_sub(1) else { return Ok(None) };
    let scope = list[outside].scope.clone();
    let own = match qualifier {
        [] => scope.column(name, clause)?,
        [table] => scope.qualified(None, table, name),
        [database, table] => scope.qualified(Some(database), table, name),
        _ => None,
    };
    let found = match own {
        Some(column) => column,
        None => match resolve_outside(list, outside, qualifier, name, clause)? {
            Some(given) => given,
            None => return Ok(None),
        },
    };
    let ty = match &found {
        Expr::Column(c) => c.ty,
        Expr::Given(_, ty) => *ty,
        _ => return Ok(None),
    };
    Ok(Some(push_given(&mut list[at], Given::Outer(found), ty)))
}

fn push_given(frame: &mut Frame, given: Given, ty: ColumnType) -> Expr {
    let known = match &given {
        Given::Outer(e) => frame.given.iter().position(|g| matches!(g, Given::Outer(known) if known == e)),
        _ => None,
    };
    let at = known.unwrap_or_else(|| {
        frame.given.push(given);
        frame.given.len() - 1
    });
    Expr::Given(at as u16, ty)
}

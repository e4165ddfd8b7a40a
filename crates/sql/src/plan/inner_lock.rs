//! FOR UPDATE and FOR SHARE of a derived table: `SELECT COUNT(*) FROM (SELECT ... FOR UPDATE) d`, as libraries count what they lock.
//!
//! The rows are locked before the statement is run, as those of a join are ([`super::change::Locked`]), and it reads them at the snapshot at which they were found. So it is one derived
//! table of the outermost SELECT, that depends on nothing around it; elsewhere the clause is refused.

use std::cell::{Cell, RefCell};

use sqlparser::ast;

use super::{
    Planner, Unplanned,
    change::Locked,
    select::{Lock, Select},
};
use crate::errors;

/// Locks of derived tables, until the outermost block takes them.
#[derive(Default)]
pub struct InnerLocks {
    /// The next block is a derived table of the outermost one.
    is_next: Cell<bool>,
    found: RefCell<Vec<Locked>>,
}

impl Planner<'_> {
    /// A table in parentheses is planned next.
    pub(crate) fn begin_derived(&self) {
        self.inner_locks.is_next.set(self.is_outermost());
    }
    /// The block that is planned now is such a table.
    pub(crate) fn is_derived(&self) -> bool {
        self.inner_locks.is_next.take()
    }

    /// Keeps the lock of a block that is not the outermost.
    ///
    /// # Errors
    /// 1235: it cannot be taken before the statement.
    pub(crate) fn lock_inside(
        &self,
        is_derived: bool,
        select: &ast::Select,
        query: &ast::Query,
        lock: Lock,
    ) -> Result<(), Unplanned> {
        if !is_derived {
            return Err(errors::not_supported("FOR UPDATE inside of a query, but for a derived table").into());
        }
        let locked = self.locked_rows(select, query, lock)?;
        self.inner_locks.found.borrow_mut().push(locked);
        Ok(())
    }

    /// Gives the locks of derived tables to the outermost block.
    ///
    /// # Errors
    /// 1235: there are several.
    pub(crate) fn take_inner_locks(&self, plan: &mut Select) -> errors::Result<()> {
        let Some(locked) = self.inner_locks.found.borrow_mut().pop() else { return Ok(()) };
        let is_other = plan.lock.is_some() || plan.locked.is_some() || plan.join.is_none();
        plan.locked = Some(Box::new(locked));
        if is_other { Err(errors::not_supported("several locking clauses")) } else { self.refuse_inner_locks() }
    }

    /// # Errors
    /// 1235: nobody has taken the lock of a derived table.
    pub(crate) fn refuse_inner_locks(&self) -> errors::Result<()> {
        match self.inner_locks.found.borrow().is_empty() {
            true => Ok(()),
            false => Err(errors::not_supported("FOR UPDATE of a derived table in this statement")),
        }
    }
}

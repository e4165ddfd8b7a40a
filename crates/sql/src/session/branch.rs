//! The branch of a distributed transaction that the open transaction of a session is. `dispatch::xa` has what becomes of it.

use super::Session;
use crate::{
    errors::{Result, xa},
    parse::xid::Xid,
    plan::Plan,
    variables::branch_names::Taken,
    wire::SqlError,
};

/// How the cluster has ended the transaction of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    Deadlock,
    Otherwise,
}

impl Lost {
    pub(crate) fn error(self) -> SqlError {
        xa::lost(self == Lost::Deadlock)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Active,
    Idle,
    RollbackOnly,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
            State::RollbackOnly => "ROLLBACK ONLY",
        }
    }
}

/// The state of a session without a branch.
const NO_BRANCH: &str = "NON-EXISTING";

/// The branch of a session.
pub struct Branch {
    pub(crate) taken: Taken,
    pub(crate) state: State,
    pub(crate) lost: Option<Lost>,
}

impl Branch {
    /// Its transaction is gone.
    pub fn lose(&mut self, how: Lost) {
        if how == Lost::Deadlock || self.lost.is_none() {
            self.lost = Some(how);
        }
    }
}

impl Session {
    pub(crate) fn branch_state(&self) -> &'static str {
        self.branch.as_ref().map_or(NO_BRANCH, |branch| branch.state.name())
    }

    /// A statement that begins or ends transactions.
    ///
    /// # Errors
    /// 1399: there is a branch, for which there are XA statements.
    pub fn check_no_branch(&self) -> Result<()> {
        if self.branch.is_some() { Err(xa::wrong_state(self.branch_state())) } else { Ok(()) }
    }

    /// # Errors
    /// For a plan about tables: 1399 where the branch has ended; 1402, 1614 where it is lost, and nothing is left but to roll it back.
    pub(crate) fn check_branch_runs(&mut self, plan: &Plan) -> Result<()> {
        let Some(branch) = self.branch.as_mut().filter(|_| plan.tables().next().is_some()) else { return Ok(()) };
        if plan.tables().any(|table| table.is_temporary()) {
            return Err(xa::with_temporary_table());
        }
        if let Some(lost) = branch.lost {
            branch.state = State::RollbackOnly;
            return Err(lost.error());
        }
        if branch.state == State::Active { Ok(()) } else { Err(xa::wrong_state(branch.state.name())) }
    }

    /// A transaction has begun, by BEGIN or with autocommit = 0 by a statement about tables.
    pub(crate) fn has_begun(&self) -> bool {
        self.explicit || self.transaction.is_some() || self.isolation.is_some() && self.in_transaction()
    }

    pub(crate) fn branch_named(&mut self, xid: &Xid) -> Option<&mut Branch> {
        self.branch.as_mut().filter(|branch| branch.taken.xid() == xid)
    }
}

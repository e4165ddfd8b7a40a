//! Isolation level and access mode: of a transaction, of the next one, of all that a session begins.
//!
//! SET TRANSACTION without a scope, and `SET @@transaction_read_only`, are of the next transaction: the next BEGIN, or the next statement with tables that is a transaction of
//! its own. COMMIT and ROLLBACK use it up, too; a statement that was refused because of it does not. A transaction keeps the access mode with which it has begun. A
//! definition commits first, so the session's mode counts for it.

use super::{Session, engine::SqlEngine};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::token::Tokens,
    plan::{Plan, select::Lock},
    value::datum::Datum,
    variables::Variables,
    wire::SqlError,
};

/// For what SET TRANSACTION sets it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Next,
    Session,
    Global,
}

pub(crate) const READ_ONLY: &str = "transaction_read_only";
pub(crate) const ISOLATION: &str = "transaction_isolation";

impl Session {
    /// Whether a statement that writes, and begins now, is refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or_else(|| self.next_read_only.unwrap_or(self.env.variables.read_only))
    }
    /// A statement with tables begins: the first one of a transaction fixes what all of it are.
    pub fn fix_characteristics(&mut self) {
        if self.isolation.is_none() {
            let next = self.next_isolation.take();
            if self.in_transaction() {
                self.isolation = Some(next.unwrap_or(self.env.variables.isolation));
                self.reads.keep(self.is_serializable());
            }
        }
        if self.read_only.is_none() {
            let is_read_only = self.is_read_only();
            self.next_read_only = None;
            self.read_only = self.in_transaction().then_some(is_read_only);
        }
    }
    /// COMMIT or ROLLBACK.
    pub(crate) fn forget_next(&mut self) {
        (self.next_isolation, self.next_read_only) = (None, None);
    }

    /// # Errors
    /// 1792: the plan writes, or locks rows to write them, in a transaction that may not.
    pub(crate) fn check_may_run(&self, plan: &Plan) -> Result<()> {
        if !self.is_read_only() || changes_temporary_only(plan) {
            return Ok(());
        }
        let locks =
            matches!(plan.reading().and_then(|select| select.lock.as_ref()), Some(Lock { exclusive: true, .. }));
        let reads = matches!(plan, Plan::Select(_) | Plan::Into(_));
        if !reads || locks { Err(errors::read_only_transaction()) } else { Ok(()) }
    }
    /// # Errors
    /// 1792: nothing may be defined.
    pub(crate) fn check_may_define(&self) -> Result<()> {
        if self.is_read_only() { Err(errors::read_only_transaction()) } else { Ok(()) }
    }

    fn check_may_set_next(&self) -> Result<()> {
        if self.explicit || self.transaction.as_ref().is_some_and(|t| t.is_started()) {
            let message = "Transaction characteristics can't be changed while a transaction is in progress";
            return Err(SqlError::new(1568, b"25001", message));
        }
        Ok(())
    }

    /// Variables of a session that has set this one, and a warning where another value is taken.
    ///
    /// # Errors
    /// 1568 in a transaction; the variable has no such value.
    pub(crate) fn next_variables(
        &self,
        name: &str,
        value: Option<&Datum<'_>>,
    ) -> Result<(Variables, Option<SqlError>)> {
        self.check_may_set_next()?;
        let mut values = Variables::new(self.env.variables.globals.clone(), false);
        let warning = values.set(name, value)?;
        Ok((values, warning))
    }

    /// `SET @@transaction_...`, or SET TRANSACTION: of the next transaction. Returns a warning where another value is taken.
    pub(crate) fn set_next(&mut self, name: &str, value: Option<&Datum<'_>>) -> Result<Option<SqlError>> {
        let (values, warning) = self.next_variables(name, value)?;
        match name {
            READ_ONLY => self.next_read_only = Some(values.read_only),
            _ => self.next_isolation = Some(values.isolation),
        }
        Ok(warning)
    }
}

/// All that a plan changes or locks is temporary: a read only transaction may do that.
fn changes_temporary_only(plan: &Plan) -> bool {
    match plan {
        Plan::Change(change) => change.targets.iter().all(|target| target.table.is_temporary()),
        Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) => plan.written().all(|table| table.is_temporary()),
        Plan::Select(_) | Plan::Into(_) => plan.tables().all(|table| table.is_temporary()),
    }
}

/// READ ONLY or READ WRITE, if it comes next.
pub(crate) fn access_mode(t: &mut Tokens) -> Result<Option<bool>> {
    if !t.word("read") {
        return Ok(None);
    }
    let only = t.word("only");
    if !only {
        t.expect("write")?;
    }
    Ok(Some(only))
}

/// `REPEATABLE-READ`.
fn level(t: &mut Tokens) -> Result<String> {
    let mut words = vec![t.identifier()?];
    if !t.at_end() && !t.peek_symbol(',') {
        words.push(t.identifier()?);
    }
    Ok(words.join("-").to_ascii_uppercase())
}

/// Behind SET, as far as it is SET TRANSACTION, whose commas do not begin another assignment.
pub(crate) fn is_transaction(text: &str) -> bool {
    let mut t = Tokens::new(text);
    let _ = t.word("global") || t.word("session") || t.word("local");
    t.word("transaction")
}

impl SqlEngine {
    /// Behind SET ... TRANSACTION: one of each at most.
    pub(crate) async fn set_characteristics(&self, session: &mut Session, of: Of, t: &mut Tokens) -> Result<()> {
        let (mut isolation, mut mode) = (None, None);
        loop {
            if isolation.is_none() && t.word("isolation") {
                t.expect("level")?;
                isolation = Some(level(t)?);
            } else if mode.is_none() && t.peek_word("read") {
                mode = access_mode(t)?;
            } else {
                return Err(t.error());
            }
            if !t.symbol(',') {
                break;
            }
        }
        t.end()?;
        match of {
            Of::Next => session.check_may_set_next()?,
            Of::Session => {}
            Of::Global => {
                let one_of = Privileges::SUPER.union(Privileges::SYSTEM_VARIABLES_ADMIN);
                self.require(session, one_of, "SUPER or SYSTEM_VARIABLES_ADMIN").await?;
            }
        }
        let values = [(ISOLATION, isolation.map(Datum::text)), (READ_ONLY, mode.map(Datum::from_bool))];
        for (name, value) in values.iter().filter(|(_, value)| value.is_some()) {
            let warning = match of {
                Of::Next => session.set_next(name, value.as_ref())?,
                Of::Session => session.env.variables.set(name, value.as_ref())?,
                Of::Global => session.env.variables.set_global(name, value.as_ref())?,
            };
            if of == Of::Session {
                session.forget_next_of(name);
            }
            warning.iter().for_each(|w| session.warn_error(w));
        }
        Ok(())
    }
}

impl Session {
    /// The session's own value counts for the next transaction, too.
    pub(crate) fn forget_next_of(&mut self, name: &str) {
        match name {
            READ_ONLY => self.next_read_only = None,
            ISOLATION => self.next_isolation = None,
            _ => {}
        }
    }
}

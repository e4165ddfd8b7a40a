//! BEGIN, COMMIT and ROLLBACK, also to a savepoint.

use crate::{
    errors::{self, Result},
    monitor::status::Counter,
    server::Output,
    session::{self, Session, engine::SqlEngine, ok},
    variables::isolation::Isolation,
};

impl SqlEngine {
    /// Runs the plain forms of BEGIN, COMMIT and ROLLBACK, which come with every transaction; `false`: it is none of them.
    pub(crate) async fn transaction_control(
        &self,
        session: &mut Session,
        text: &[u8],
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        let begins = is("begin") || is("start transaction");
        if !begins && !is("commit") && !is("rollback") {
            return Ok(false);
        }
        session.clear_warnings();
        session.check_no_branch()?;
        let ended = if is("commit") { Counter::Commit } else { Counter::Rollback };
        self.count(session, if begins { Counter::Begin } else { ended });
        match begins {
            true => self.begin(session, None).await?,
            false => {
                self.end_by_statement(session, is("commit")).await?;
            }
        }
        ok(session, out)?;
        Ok(true)
    }

    /// COMMIT or ROLLBACK.
    pub(super) async fn end_by_statement(&self, session: &mut Session, commit: bool) -> Result<()> {
        let stays = session.temporary.stays();
        self.end_transaction(session, commit).await?;
        session.forget_next();
        if !commit {
            stays.for_each(|e| session.warn_error(&e));
        }
        Ok(())
    }

    /// `read_only`: as the statement says, if it does.
    pub(crate) async fn begin(&self, session: &mut Session, read_only: Option<bool>) -> Result<()> {
        self.end_transaction(session, true).await?;
        if session.locked.is_some() {
            Box::pin(self.end_table_locks(session)).await;
        }
        session.explicit = true;
        session.read_only = Some(read_only.unwrap_or_else(|| session.is_read_only()));
        session.next_read_only = None;
        Ok(())
    }

    /// WITH CONSISTENT SNAPSHOT: the transaction reads as of now, whatever the isolation level of the session.
    pub(super) async fn begin_at_snapshot(&self, session: &mut Session) -> Result<()> {
        session.fix_characteristics();
        session.isolation = session.isolation.max(Some(Isolation::RepeatableRead));
        session.tables_known = Some(self.catalog_of(session).await?);
        match session.reading_at(&self.client).await {
            Ok(_) => Ok(()),
            Err(fail) => {
                session.forget_transaction();
                Err(fail.into())
            }
        }
    }

    pub(super) async fn rollback_to(&self, session: &mut Session, name: &str) -> Result<()> {
        let at = session.named.iter().position(|(n, _)| n.eq_ignore_ascii_case(name));
        let at = at.ok_or_else(|| errors::unknown_savepoint(name))?;
        let number = session.named[at].1;
        session.named.truncate(at + 1);
        if session.transaction.as_ref().is_some_and(|t| t.is_started())
            && let Err(e) = session::rollback_to(session, number).await
        {
            if e.aborted {
                session.forget_transaction();
            }
            return Err(errors::from_client(&e));
        }
        Ok(())
    }
}

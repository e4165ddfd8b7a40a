//! How statements and their transactions end: the answer, the failure, and whether they are run again.

use std::time::Duration;

use apus_client::Losses;
use apus_types::ErrorCode;

use crate::{
    errors::{self, Result},
    exec::Changed,
    server::{Mark, Output},
    session::{self, Fail, Session, buffers::Scratch, engine::SqlEngine},
    wire::SqlError,
};

/// Bytes of a statement in an error.
const STATEMENT_NAMED_MAX: usize = 200;

impl SqlEngine {
    /// Whether a statement has ended for the answer to a lock function, which is there now.
    pub(crate) async fn is_to_run_again(
        &self,
        session: &mut Session,
        done: &Result<()>,
        start: Mark,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        if session.env.is_wanting() {
            if !out.take_back(start) {
                return Err(errors::not_supported("stored functions behind rows that were sent"));
            }
            Box::pin(self.answer_calls(session)).await?;
            session.begin_again();
            return Ok(true);
        }
        if done.is_ok() {
            return Ok(false);
        }
        let Some(call) = session.env.lock_calls.get_mut().take_wanted() else { return Ok(false) };
        if !out.take_back(start) {
            return Err(errors::not_supported("lock functions behind rows that were sent"));
        }
        Box::pin(self.call_user_lock(session, call)).await?;
        session.begin_again();
        Ok(true)
    }

    pub(crate) async fn end_statement(
        &self,
        session: &mut Session,
        result: Result<()>,
        start: Mark,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let ended =
            if session.calls_from.is_some() { Box::pin(self.end_calls(session, result.is_ok())).await } else { Ok(()) };
        if result.is_ok() && ended.is_err() && out.take_back(start) {
            return ended;
        }
        session.env.begun_file.take();
        session.end_use();
        session.env.keep_assigned();
        let seconds = session.env.sleep_seconds.replace(0.0);
        if seconds > 0.0 {
            let slept = session.env.sleep(seconds).await;
            if slept.is_err() && out.take_back(start) {
                return slept;
            }
        }
        if result.is_ok() {
            session.keep_warnings();
        }
        result
    }

    /// Between two attempts of a statement. Where columns are just being changed, data nodes take neither definition for a moment.
    pub(crate) async fn learn_definitions(&self, refused: &SqlError, attempt: u32) -> Result<()> {
        if refused.errno == errors::from_code(ErrorCode::SchemaVersionChanged, "").errno && attempt > 1 {
            tokio::time::sleep(Duration::from_millis(1 << attempt.min(9))).await;
        }
        self.fetch_catalog().await.map(|_| ())
    }

    /// Not a statement that two nodes were lost with.
    pub(crate) async fn may_try_again(&self, losses: &mut Losses, sql: &[u8]) -> Result<()> {
        let named = || String::from_utf8_lossy(sql.get(..STATEMENT_NAMED_MAX).unwrap_or(sql)).into_owned();
        losses.check(&self.client, named).await.map_err(|e| errors::from_client(&e))
    }

    pub(crate) fn answer(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        rows: u64,
        changed: Option<Changed>,
        out: &mut Output<'_>,
    ) {
        let status = session.status();
        match changed {
            None => {
                session.env.row_count = -1;
                session.env.found_rows = rows;
                out.end_rows(session.warning_count(), status);
            }
            Some(c) => {
                session.env.row_count = c.affected as i64;
                out.set_status(status);
                c.info.write(session.warnings_given(), &mut s.info);
                let given = session.env.last_insert_id_given.get();
                let last_insert_id = if given { session.env.last_insert_id.get() } else { c.last_insert_id };
                out.ok(c.affected, last_insert_id, session.warning_count(), &s.info);
            }
        }
    }

    /// Undoes the failed statement; the rest of the transaction lives unless the cluster ended it.
    pub(crate) async fn failed(
        &self,
        session: &mut Session,
        fail: Fail,
        before: u32,
        inside: bool,
        had_transaction: bool,
        nothing_sent: bool,
    ) -> (SqlError, bool) {
        let alone = !inside;
        session.own.forget_rows();
        let (error, again) = match &fail {
            Fail::Sql(e) => (e.clone(), false),
            Fail::Client(e) => {
                let stale = matches!(e.code, ErrorCode::SchemaVersionChanged | ErrorCode::TableNotFound);
                let was_waited_for = e.code == ErrorCode::NoNodeAvailable || e.code.waits_for_operator();
                let stale = stale && !session.own.has_waiting();
                let again = nothing_sent && (stale || alone && e.retry_transaction() && !was_waited_for);
                let is_replaced = e.code == ErrorCode::TableNotFound && !again;
                (if is_replaced { errors::definition_changed() } else { errors::from_client(e) }, again)
            }
        };
        if matches!(&fail, Fail::Client(e) if e.code == ErrorCode::SnapshotTooOld) {
            // As with a deadlock: nothing of the transaction is worth keeping.
            let _ = self.end_transaction(session, false).await;
        } else if !session.in_transaction() || !had_transaction {
            // The statement opened the transaction itself: nothing older is in it.
            if let Some(mut transaction) = session.transaction.take() {
                let _ = transaction.rollback().await;
                session.wrote.clear();
                session.worked.clear();
                session.own.clear();
            }
        } else if session.savepoint > before
            && session.transaction.as_ref().is_some_and(|t| t.is_started())
            && session::rollback_to(session, before + 1).await.is_err()
        {
            session.forget_transaction();
        }
        (error, again)
    }

    /// Ends the open transaction. What LOCK TABLES has locked stays.
    ///
    /// # Errors
    /// 1399: it is a branch and would be committed. The cluster's.
    pub(crate) async fn end_transaction(&self, session: &mut Session, commit: bool) -> Result<()> {
        if commit {
            session.check_no_branch()?;
        }
        if !session.transaction.as_ref().is_some_and(|t| t.is_started()) {
            session.forget_transaction();
            return Ok(());
        }
        if commit && !session.wrote.is_empty() && self.may_be_read_locked() {
            // Who is refused may try again.
            Box::pin(self.wait_to_commit(session)).await?;
        }
        let done = match session.transaction.as_mut().filter(|_| !commit) {
            Some(transaction) => transaction.rollback().await.map_err(Fail::Client),
            None => self.commit(session).await,
        };
        session.forget_transaction();
        match done {
            Err(fail) if commit => Err(fail.into()),
            _ => Ok(()),
        }
    }
}

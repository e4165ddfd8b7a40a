//! From the text of a statement to its executor: what [`SqlEngine`] does with each.

pub(crate) mod client_text;
pub(crate) mod commands;
pub mod digests;
pub mod join_size;
pub mod no_query;
mod outcome;
pub(crate) mod prepare;
mod xa;

use std::{pin::pin, rc::Rc, time::Duration};

use crate::{
    accounts::Privileges,
    catalog::Catalog,
    ddl::copy::fence,
    errors::{self, Result},
    exec::{self, Changed, change, change_joined, insert, into, read},
    expr::{Kind, env::Env},
    monitor::status::Counter,
    parse::{
        digest::{Digest, Form},
        token::{self, Tokens, is_query},
    },
    plan::{
        self, Plan,
        cache::Cached,
        dml::insert::Source,
        text::{plan_digest, plan_limited},
    },
    program::function::calls::unanswered,
    server::Output,
    session::{
        self, Fail, Session,
        branch::Lost,
        buffers::Scratch,
        engine::{ATTEMPTS_MAX, SqlEngine},
        prepared::KeptPlan,
    },
    value::datum::{Datum, recycle},
    wire::SqlError,
};
use apus_client::{ClientError, Losses};
use apus_types::ErrorCode;

/// Room for values that is kept from one statement to the next.
const VALUES_KEPT: usize = 1 << 12;

impl SqlEngine {
    /// Runs the statement `sql`, whose normal form is in the session's digest.
    pub(crate) async fn statement(&self, session: &mut Session, sql: &[u8], out: &mut Output<'_>) -> Result<()> {
        self.begin_statement(session)?;
        self.admit(session, sql)?;
        let start = out.mark();
        let mut s = session.take_scratch();
        self.begin_digest(session, &s.digest.text, sql);
        let is_hinted = !s.digest.hints.is_empty();
        if is_hinted {
            self.begin_hints(session, sql, &std::mem::take(&mut s.digest.hints), true);
        }
        let result = loop {
            let done = pin!(self.statement_with(session, &mut s, sql, out)).await;
            match self.is_to_run_again(session, &done, start, out).await {
                Ok(true) => {}
                Ok(false) => break done,
                Err(e) => break Err(e),
            }
        };
        session.scratch = Some(s);
        let result = self.end_statement(session, result, start, out).await;
        if is_hinted {
            self.end_hints(session);
        }
        result
    }

    pub(crate) fn begin_statement(&self, session: &mut Session) -> Result<()> {
        session.env.start_statement();
        session.own.begin_statement();
        self.count(session, Counter::Questions);
        if !session.held.is_empty() {
            self.check_user_locks(session)?;
        }
        self.check_temporary_tables(session)
    }

    pub(crate) async fn statement_with(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        sql: &[u8],
        out: &mut Output<'_>,
    ) -> Result<()> {
        if !is_query(&s.digest.text) {
            if self.transaction_control(session, &s.digest.text, out).await? {
                return Ok(());
            }
            s.digest.scan(sql, Form::Plain, s.digest.syntax)?;
            let text = String::from_utf8_lossy(&s.digest.text).into_owned();
            return Box::pin(self.other_statement(session, s, &text, &[], out)).await;
        }
        let key = session.form;
        let mut attempt = 0;
        let mut losses = Losses::new(&self.client);
        loop {
            attempt += 1;
            let catalog = self.catalog_of(session).await?;
            let planning = session.env.variables.planning();
            let database = session.env.database.as_deref();
            let cached = self.plans.borrow_mut().find((&s.digest.text, key), database, &catalog, planning);
            let cached = match cached {
                Some(Cached::Plan(plan)) if !plan.is_by_key() && self.measure(&catalog, &plan).await => continue,
                Some(cached) => cached,
                None => {
                    self.learn_identity(session).await;
                    let database = session.env.database.as_deref();
                    let mut cached = plan_digest(&catalog, &session.env, &s.digest)?;
                    if let Cached::Plan(plan) = &cached
                        && self.measure(&catalog, plan).await
                    {
                        cached = plan_digest(&catalog, &session.env, &s.digest)?;
                    }
                    if matches!(&cached, Cached::Plan(plan) if plan.is_large(&catalog.statistics)) {
                        cached = Cached::Structural;
                    }
                    self.plans.borrow_mut().put(&s.digest.text, database, &catalog, planning, cached.clone());
                    cached
                }
            };
            let mut params = recycle(std::mem::take(&mut s.values));
            let (plan, rows) = match cached {
                Cached::Plan(plan) => {
                    s.digest.values(sql, &mut params)?;
                    (plan, s.digest.rows)
                }
                Cached::Structural => {
                    let mut plain = Digest::default();
                    plain.scan(sql, Form::Plain, s.digest.syntax)?;
                    let text = String::from_utf8_lossy(&plain.text);
                    let limit = session.env.variables.select_limit;
                    match self.plan_measured(&catalog, &session.env, &text, Vec::new(), limit).await {
                        Ok(plan) => (Rc::new(plan), 1),
                        Err(e) if attempt < ATTEMPTS_MAX && Box::pin(self.has_news(&e)).await => continue,
                        Err(e) => return Err(e),
                    }
                }
            };
            let done = pin!(self.run(session, s, &catalog, &plan, &params, rows, out, &mut losses)).await;
            params.clear();
            params.shrink_to(VALUES_KEPT);
            s.values = recycle(params);
            match done {
                Ok(()) => return Ok(()),
                Err((e, true)) if attempt < ATTEMPTS_MAX => {
                    session.env.forget_assigned();
                    self.may_try_again(&mut losses, sql).await?;
                    self.learn_definitions(&e, attempt).await?;
                }
                Err((e, _)) => return Err(e),
            }
        }
    }

    /// Sees to it that the sizes of a plan's tables are known, where it has several and how they are read is for sizes to say. Whether they are others than
    /// before; what cannot be learned is done without.
    async fn measure(&self, catalog: &Catalog, plan: &Plan) -> bool {
        if !plan.is_weighed() {
            return false;
        }
        let statistics = &catalog.statistics;
        let before = statistics.generation();
        let mut is_own = false;
        for table in plan.tables() {
            if statistics.is_stale(table) {
                // In a box: every statement's future would have room for it.
                let _ = Box::pin(statistics.gather(&self.client, table, false)).await;
                is_own |= table.is_temporary() && !statistics.is_stale(table);
            }
        }
        is_own || statistics.generation() != before
    }

    /// # Errors
    /// 1044 and 1049 unless there is such a database for the account.
    pub(crate) async fn find_database(&self, session: &mut Session, database: &str) -> Result<()> {
        let catalog = self.catalog().await?;
        let known = database.eq_ignore_ascii_case("information_schema")
            || catalog.databases.contains_key(database)
            || catalog.virtual_tables(database).is_some();
        self.require_database(session, database).await?;
        if !known && !self.fetch_catalog().await?.databases.contains_key(database) {
            return Err(errors::unknown_database(database));
        }
        Ok(())
    }

    /// The plan of a statement's own text, its tables measured; `limit`: rows of a SELECT that names no limit.
    pub(crate) async fn plan_measured(
        &self,
        catalog: &Catalog,
        env: &Env,
        text: &str,
        kinds: Vec<Kind>,
        limit: u64,
    ) -> Result<Plan> {
        let plan = plan_limited(catalog, env, text, kinds.clone(), limit)?;
        if self.measure(catalog, &plan).await { plan_limited(catalog, env, text, kinds, limit) } else { Ok(plan) }
    }

    /// Executes a plan and ends the statement; the flag of an error says that it may be tried again from the start. `rows`: an INSERT of
    /// one row is done with so many rows of parameters.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn run(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        catalog: &Rc<Catalog>,
        plan: &Plan,
        params: &[Datum<'_>],
        rows: usize,
        out: &mut Output<'_>,
        losses: &mut Losses,
    ) -> std::result::Result<(), (SqlError, bool)> {
        let reads = session.reads.clone();
        let cluster = self.cluster(catalog, &reads);
        session.clear_warnings();
        if let Plan::Into(into) = plan
            && let plan::into::Goal::File(_) = &into.goal
        {
            Box::pin(self.require(session, Privileges::FILE, "FILE")).await.map_err(|e| (e, false))?;
        }
        let hinted_ms = plan.names().hints.as_ref().and_then(|told| session.tell_hints(told));
        let needs = &plan.names().needs;
        if !self.is_granted(session, needs) {
            Box::pin(self.authorize_in_transaction(session, needs)).await.map_err(|e| (e, false))?;
        }
        if session.env.variables.join_limit().is_some() {
            Box::pin(self.check_join_size(session, catalog, plan, params)).await.map_err(|e| (e, false))?;
        }
        session.check_may_run(plan).map_err(|e| (e, false))?;
        session.check_branch_runs(plan).map_err(|e| (e, false))?;
        self.begin_use(session, plan).await.map_err(|e| (e, false))?;
        if fence::is_closed(catalog, plan, &session.worked) {
            let worked = session.worked.clone();
            Box::pin(self.wait_for_copies(session, |catalog| fence::is_closed(catalog, plan, &worked)))
                .await
                .map_err(|e| (e, false))?;
            return Err((errors::from_code(ErrorCode::SchemaVersionChanged, ""), true));
        }
        fence::check_snapshot(session, catalog, plan).map_err(|e| (e, false))?;
        let calls = !plan.names().functions.is_empty();
        if calls {
            Box::pin(self.begin_calls(session, plan, rows)).await.map_err(|e| (e, false))?;
        }
        let in_use = session.use_tables(plan).map_err(|e| (e, false))?;
        out.hold(calls);
        self.count(session, plan.counter());
        if plan.names().traits != 0 {
            self.count_traits(session, plan.names().traits);
        }
        if plan.names().reads_status {
            let told = self.status_of_node().list(session, catalog.counted(), false, self.globals.slow.dropped());
            session.env.session_status.replace(told);
        }
        let before = session.savepoint;
        let had_transaction = session.transaction.is_some();
        // Asked now: a lost transaction ends its BEGIN too, and its statement must not be repeated alone.
        let inside = session.in_transaction();
        if inside && plan.changes_or_locks() {
            session.remember_work(plan);
        }
        let is_serializable = session.is_serializable() && plan.tables().next().is_some();
        let is_own_transaction = is_serializable && !inside && plan.written().next().is_some();
        session.is_own_transaction |= is_own_transaction;
        if plan.tables().next().is_some() {
            session.fix_characteristics();
        }
        let start = out.mark();
        let longest_ms = hinted_ms.unwrap_or(session.env.variables.max_execution_ms);
        if let Plan::Select(_) | Plan::Into(_) = plan
            && longest_ms > 0
            && session.calls.is_empty()
        {
            let longest = Duration::from_millis(longest_ms);
            session.env.deadline.set(std::time::Instant::now().checked_add(longest));
        }
        let sent = if session.own.has_waiting() && !finds_what_waits(plan) {
            exec::send_waiting(session).await
        } else {
            Ok(())
        };
        let sent = match sent {
            Ok(()) if is_serializable => Box::pin(self.begin_serializable(session, plan)).await,
            sent => sent,
        };
        let done = match plan {
            _ if sent.is_err() => sent.map(|()| (0, None)),
            Plan::Select(select) => {
                pin!(read::select(cluster, session, s, select, params, out)).await.map(|rows| (rows, None))
            }
            Plan::Into(_) if out.is_held() => Err(Fail::Sql(errors::cursor_with_into())),
            Plan::Into(into) => into::select(cluster, session, s, into, params).await.map(|c| (0, Some(c))),
            Plan::Insert(p) => pin!(insert::insert(cluster, session, s, p, params, rows)).await.map(|c| (0, Some(c))),
            Plan::Update(p) => pin!(change::update(cluster, session, s, p, params)).await.map(|c| (0, Some(c))),
            Plan::Change(p) => {
                Box::pin(change_joined::change(cluster, session, s, p, params)).await.map(|c| (0, Some(c)))
            }
            Plan::Delete(p) => {
                pin!(change::deletion::delete(cluster, session, s, p, params)).await.map(|c| (0, Some(c)))
            }
        };
        session.in_use.truncate(in_use);
        out.hold(false);
        // Statements of its triggers have not begun it.
        session.is_own_transaction &= !is_own_transaction;
        if is_serializable {
            self.note_told(session, catalog, plan, done.as_ref().err());
        }
        let done = match done {
            Ok(_) if calls && session.env.is_wanting() => Err(Fail::Sql(unanswered())),
            Ok(done) if !session.in_transaction() && session.transaction.is_some() => {
                let committed = self.commit(session).await;
                session.forget_transaction();
                committed.map(|()| done)
            }
            other => other,
        };
        if session.isolation.is_some() && !session.in_transaction() {
            session.forget_reading();
        }
        session.end_use();
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        session.tell_remarks();
        match done {
            Ok((rows, changed)) => {
                if let Some(changed) = &changed {
                    self.count_rows(session, plan, changed.affected);
                }
                let found_none = matches!((plan, &changed), (Plan::Into(into), Some(Changed { affected: 0, .. }))
                    if !matches!(into.goal, plan::into::Goal::File(_)));
                self.answer(session, s, rows, changed, out);
                if found_none {
                    session.env.row_count = -1;
                }
                Ok(())
            }
            Err(fail) => {
                let nothing_sent = out.take_back(start);
                if let Fail::Client(error) = &fail {
                    losses.note_error(&self.client, error);
                    if session.within > 0 && error.aborted {
                        session.lost_within = Some(error.clone());
                    }
                }
                let is_deadlock = matches!(&fail, Fail::Client(e) if e.code == ErrorCode::Deadlock);
                let (error, again) = self.failed(session, fail, before, inside, had_transaction, nothing_sent).await;
                if let Some(branch) = session.branch.as_mut().filter(|_| is_deadlock) {
                    branch.lose(Lost::Deadlock);
                }
                if session.within > 0 && had_transaction && session.transaction.is_none() {
                    let aborted = || ClientError { aborted: true, ..ClientError::new(ErrorCode::TransactionAborted) };
                    session.lost_within.get_or_insert_with(aborted);
                }
                Err((error, again || is_deadlock && is_own_transaction && nothing_sent))
            }
        }
    }

    pub(crate) async fn execute_prepared(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        id: u32,
        params: &[Datum<'_>],
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut attempt = 0;
        let mut losses = Losses::new(&self.client);
        loop {
            attempt += 1;
            let catalog = self.catalog_of(session).await?;
            let statement = session.prepared.get(&id).ok_or_else(|| SqlError::unknown_statement(id))?;
            session.digest = statement.digest;
            if statement.digest.is_some_and(|place| !self.digests.is_of_now(place)) {
                self.find_digest_again(session, id);
            }
            let statement = session.prepared.get(&id).ok_or_else(|| SqlError::unknown_statement(id))?;
            let known = statement.plan.as_ref();
            let known = known.filter(|kept| kept.is_of(&catalog, &session.env) && !statement.typed_by_params);
            let plan = match known {
                Some(kept) => {
                    let (is_older, plan) = (kept.state != catalog.state(), kept.plan.clone());
                    let statement = session.prepared.get_mut(&id).filter(|_| is_older);
                    if let Some(kept) = statement.and_then(|statement| statement.plan.as_mut()) {
                        kept.state = catalog.state();
                    }
                    plan
                }
                None => {
                    let mut plain = Digest::default();
                    plain.scan(&statement.sql, Form::Plain, statement.syntax)?;
                    let sql = if is_query(&plain.text) { Vec::new() } else { statement.sql.clone() };
                    self.learn_identity(session).await;
                    let text = String::from_utf8_lossy(&plain.text).into_owned();
                    if !is_query(&plain.text) {
                        if let Some((made, _)) = self.statement_with_body(session, &sql)? {
                            session.clear_warnings();
                            Box::pin(self.carry_out(session, &made)).await?;
                            return session::ok(session, out);
                        }
                        return Box::pin(self.other_statement(session, s, &text, params, out)).await;
                    }
                    let kinds = params.iter().map(Kind::of_datum).collect();
                    let limit = session.env.variables.select_limit;
                    let plan = self.plan_measured(&catalog, &session.env, &text, kinds, limit).await?;
                    let kept = KeptPlan::new(plan, &catalog, &session.env);
                    let plan = kept.plan.clone();
                    if let Some(statement) = session.prepared.get_mut(&id) {
                        statement.plan = Some(kept);
                    }
                    plan
                }
            };
            let done = pin!(self.run(session, s, &catalog, &plan, params, 1, out, &mut losses)).await;
            match done {
                Ok(()) => return Ok(()),
                Err((e, true)) if attempt < ATTEMPTS_MAX => {
                    session.env.forget_assigned();
                    let sql = session.prepared.get(&id).map_or(&[][..], |statement| &statement.sql);
                    self.may_try_again(&mut losses, sql).await?;
                    self.learn_definitions(&e, attempt).await?;
                }
                Err((e, _)) => return Err(e),
            }
        }
    }
}

/// A statement that sends changes that wait where it reads past the coordinator.
fn finds_what_waits(plan: &Plan) -> bool {
    match plan {
        Plan::Select(select) => select.join.is_none() && select.locked.is_none(),
        Plan::Insert(insert) => matches!(insert.source, Source::Values(_)),
        Plan::Update(_) | Plan::Delete(_) => true,
        Plan::Into(_) | Plan::Change(_) => false,
    }
}

/// A statement that MySQL does not prepare: LOAD, XA, LOCK and UNLOCK TABLES, EXPLAIN FOR CONNECTION, and changes of procedures.
pub(crate) fn is_of_text_protocol(text: &[u8]) -> bool {
    let t = Tokens::new(&String::from_utf8_lossy(text.get(..64).unwrap_or(text)));
    t.peek_word("load")
        || t.peek_word("xa")
        || (t.peek_word("lock") || t.peek_word("unlock")) && (t.second_word("tables") || t.second_word("table"))
        || token::is_explain_for_connection(&t)
        || (t.peek_word("drop") || t.peek_word("alter"))
            && ["procedure", "function", "trigger"].into_iter().any(|word| t.second_word(word))
}

pub(crate) fn begins_with(text: &[u8], word: &str) -> bool {
    Tokens::new(&String::from_utf8_lossy(text.get(..16).unwrap_or(text))).peek_word(word)
}

//! Statements of a body: their plans, and how often they are tried.

use std::{pin::pin, rc::Rc};

use apus_client::Losses;

use super::{Goal, frame::Frame};
use crate::{
    errors::Result,
    expr::Kind,
    parse::token::Tokens,
    plan::{self, Plan},
    program::routine::{
        code::{Kept, Text},
        failures,
        refused::refuse_within,
    },
    server::Output,
    session::{
        Session,
        buffers::Scratch,
        engine::{ATTEMPTS_MAX, SqlEngine},
        prepared::KeptPlan,
    },
    variables::NO_LIMIT,
    wire::capability,
};

impl SqlEngine {
    /// Runs a statement that is planned.
    pub(super) async fn statement_of(
        &self,
        session: &mut Session,
        frame: &Frame,
        text: &Text,
        goal: Goal,
        out: &mut Output<'_>,
    ) -> Result<()> {
        self.begin_inner(session)?;
        let start = out.mark();
        let more = out.has_more_results();
        let mut s = session.take_scratch();
        out.set_more_results(true);
        let result = loop {
            let done = Box::pin(self.attempts(session, &mut s, frame, text, goal, out)).await;
            match self.is_to_run_again(session, &done, start, out).await {
                Ok(true) => {}
                Ok(false) => break done,
                Err(e) => break Err(e),
            }
        };
        session.scratch = Some(s);
        let result = self.end_statement(session, result, start, out).await;
        if result.is_err() || out.is_ok_since(start) {
            out.take_back(start);
        }
        out.set_more_results(more);
        result
    }

    #[allow(clippy::too_many_arguments)]
    async fn attempts(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        frame: &Frame,
        text: &Text,
        goal: Goal,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let (mut attempt, mut losses) = (0, Losses::new(&self.client));
        loop {
            attempt += 1;
            let (catalog, plan) = self.plan_of(session, text, &frame.kinds, goal).await?;
            if let Plan::Select(_) = &*plan {
                if session.within > 0 {
                    return Err(failures::returns_result(session.within_what()));
                }
                if session.info.capabilities & capability::MULTI_RESULTS == 0 || out.is_held() {
                    return Err(failures::no_result_set("PROCEDURE", &frame.name));
                }
            }
            let done = pin!(self.run(session, s, &catalog, &plan, &frame.values, 1, out, &mut losses)).await;
            match done {
                Ok(()) => return Ok(()),
                Err((e, true)) if attempt < ATTEMPTS_MAX => {
                    session.env.forget_assigned();
                    self.may_try_again(&mut losses, text.sql.as_bytes()).await?;
                    self.learn_definitions(&e, attempt).await?;
                }
                Err((e, _)) => return Err(e),
            }
        }
    }

    /// The plan of a text, as it was the last time if that is still good.
    pub(super) async fn plan_of(
        &self,
        session: &mut Session,
        text: &Text,
        kinds: &[Kind],
        goal: Goal,
    ) -> Result<(Rc<crate::catalog::Catalog>, Rc<Plan>)> {
        let mut catalog = self.catalog_of(session).await?;
        let planning = session.env.variables.planning();
        if let Some(kept) = &*text.kept.borrow()
            && kept.plan.is_of(&catalog, &session.env)
            && kept.planning == planning
            && kept.kinds == kinds
        {
            return Ok((catalog, kept.plan.plan.clone()));
        }
        self.learn_identity(session).await;
        let mut is_first = true;
        let plan = loop {
            session.env.names = Some(text.names.clone());
            let planned =
                Box::pin(self.plan_measured(&catalog, &session.env, &text.sql, kinds.to_vec(), NO_LIMIT)).await;
            session.env.names = None;
            match planned {
                Err(e) if is_first && Box::pin(self.has_news(&e)).await => catalog = self.catalog_of(session).await?,
                planned => break planned?,
            }
            is_first = false;
        };
        let plan = if goal == Goal::Session { plan::into::collecting(plan) } else { plan };
        let kept = KeptPlan::new(plan, &catalog, &session.env);
        let plan = kept.plan.clone();
        *text.kept.borrow_mut() = Some(Kept { plan: kept, planning, kinds: kinds.to_vec() });
        Ok((catalog, plan))
    }

    /// Runs a statement that is not planned.
    pub(super) async fn other(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
        if session.within > 0 {
            refuse_within(&Tokens::new(text), session.within_what())?;
        }
        self.begin_inner(session)?;
        let start = out.mark();
        let more = out.has_more_results();
        let mut s = session.take_scratch();
        out.set_more_results(true);
        let done = match Box::pin(self.transaction_control(session, text.as_bytes(), out)).await {
            Ok(false) => Box::pin(self.other_statement(session, &mut s, text, &[], out)).await,
            done => done.map(|_| ()),
        };
        session.scratch = Some(s);
        let result = self.end_statement(session, done, start, out).await;
        if result.is_err() || out.is_ok_since(start) {
            out.take_back(start);
        }
        out.set_more_results(more);
        result
    }

    /// As [`SqlEngine::begin_statement`], of a statement within a call.
    fn begin_inner(&self, session: &mut Session) -> Result<()> {
        session.env.start_step_at(session.within);
        session.own.begin_statement();
        if session.held.is_empty() { Ok(()) } else { self.check_user_locks(session) }
    }
}

//! Carries out a program.
//!
//! Each statement of a body is one of the session that calls: it has the session's transaction, or one of its own where the session is in none, is tried again like a client's, and
//! leaves its own warnings. An expression that reads no table is evaluated on the spot; everything else goes the way of a client's statement, its rows to the client or, of a cursor
//! and INTO, to [`Session::collected`].

pub mod frame;
mod statements;
pub mod surroundings;

use std::rc::Rc;

use self::{
    frame::{Frame, written},
    surroundings::{enter, leave},
};
use super::{
    CALLS_MAX, Routine,
    code::{Argument, Mode, Step, Target, Text},
    compile::sql_texts::SELECT,
    failures,
};
use crate::{
    errors::{self, Result},
    expr::without_row,
    plan::{self, Plan},
    server::Output,
    session::{Called, Session, engine::SqlEngine},
    value::datum::Datum,
};

/// Steps after which others of the thread have their turn.
const BREATH_STEPS: u32 = 64;

/// What becomes of the rows of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Client,
    Session,
}

impl SqlEngine {
    /// Calls a procedure; the frame has its variables as they are in the end.
    ///
    /// # Errors
    /// Those of its statements that it does not handle; 1436, 1449, 1456.
    pub(crate) async fn call(
        &self,
        session: &mut Session,
        routine: &Rc<Routine>,
        values: Vec<Datum<'static>>,
        out: &mut Output<'_>,
    ) -> Result<Frame> {
        let program = routine.program()?;
        let same = session.calls.iter().filter(|other| other.is(routine)).count() as u64;
        let limit = session.env.variables.max_sp_recursion_depth;
        if same > limit {
            return Err(failures::recursion(limit, &routine.definition.name));
        }
        if session.calls.len() >= CALLS_MAX {
            return Err(failures::too_deep());
        }
        let mut frame = Frame::new(program, routine.full_name());
        frame.take_arguments(session, values)?;
        let around = enter(session, &routine.surroundings())?;
        session.calls.push(Called::Routine(routine.clone()));
        let done = Box::pin(self.run_program(session, &mut frame, out)).await;
        session.calls.pop();
        leave(session, around)?;
        done.map(|()| frame)
    }

    pub(crate) async fn run_program(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let program = frame.program.clone();
        let warns = program.has_handlers();
        let (mut at, mut steps) = (0, 0u32);
        while let Some(step) = program.steps.get(at) {
            session.env.may_go_on()?;
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(BREATH_STEPS) {
                tokio::task::yield_now().await;
            }
            let done = self.step(session, frame, step, out).await;
            at = match done {
                Ok(to) => {
                    let has_news = warns && session.warnings_given() > 0 && !is_quiet(step);
                    let handled = if has_news { frame.handle_warning(session, at) } else { None };
                    handled.or(to).unwrap_or(at + 1)
                }
                // Nothing is left that a handler could go on with.
                Err(e) if session.lost_within.is_some() => return Err(e),
                Err(e) => frame.handle(session, at, e)?,
            };
        }
        Ok(())
    }

    /// One step; where it goes on, unless that is the next one.
    async fn step(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        step: &Step,
        out: &mut Output<'_>,
    ) -> Result<Option<usize>> {
        match step {
            Step::Clear(places) => places.iter().for_each(|place| frame.values[*place] = Datum::Null),
            Step::Assign(place, value) => {
                session.begin_step();
                let value = self.value(session, frame, value, out).await;
                // NULL it stays where there is no value, or a wrong one, but for a column.
                if !frame.is_of_row(*place) {
                    frame.values[*place] = Datum::Null;
                }
                frame.check_warnings(session, *place)?;
                frame.store(session, *place, value?)?;
                session.env.row_count = 0;
            }
            Step::AssignUser(name, value) => {
                session.begin_step();
                let value = self.value(session, frame, value, out).await?;
                self.assign(session, frame, &Target::User(name.clone()), value)?;
                session.env.row_count = 0;
            }
            Step::SetSystem(text, value) => {
                session.begin_step();
                let value = self.value(session, frame, value, out).await?;
                let text = format!("{text}{}", written(&value));
                self.other(session, &text, out).await?;
            }
            Step::Unless { condition, to } => {
                session.begin_step();
                let value = self.value(session, frame, condition, out).await?;
                return Ok((value.truth() != Some(true)).then_some(*to));
            }
            Step::Return(place, value) => {
                session.begin_step();
                let value = self.value(session, frame, value, out).await?;
                frame.check_warnings(session, *place)?;
                session.begin_step();
                frame.store(session, *place, value)?;
                frame.keep_told(session);
                frame.has_returned = true;
                return Ok(Some(usize::MAX));
            }
            Step::Jump(to) => return Ok(Some(*to)),
            Step::NoCase => return Err(failures::no_case()),
            Step::Planned(text) => self.statement_of(session, frame, text, Goal::Client, out).await?,
            Step::Other(text) => {
                let text = frame.with_values(text);
                self.other(session, &text, out).await?;
            }
            Step::Into(text, targets) => {
                self.statement_of(session, frame, text, Goal::Session, out).await?;
                if let Some(Target::Variable(place)) = targets.iter().find(|t| matches!(t, Target::Variable(_))) {
                    frame.check_warnings(session, *place)?;
                }
                self.assign_into(session, frame, targets)?;
            }
            Step::Call { database, name, arguments } => {
                session.begin_step();
                self.call_within(session, frame, (database.as_deref(), name), arguments, out).await?;
            }
            Step::Open(cursor) => {
                if frame.cursors[*cursor].is_some() {
                    return Err(failures::cursor_open());
                }
                let program = frame.program.clone();
                self.statement_of(session, frame, &program.cursors[*cursor], Goal::Session, out).await?;
                frame.cursors[*cursor] = Some(std::mem::take(&mut session.collected).into_iter());
            }
            Step::Fetch(cursor, targets) => {
                session.begin_step();
                let rows = frame.cursors[*cursor].as_mut().ok_or_else(failures::cursor_closed)?;
                let row = rows.next().ok_or_else(errors::no_data)?;
                if row.len() != targets.len() {
                    return Err(failures::wrong_fetch());
                }
                self.assign_row(session, frame, targets, row)?;
            }
            Step::Close(cursor) => _ = frame.cursors[*cursor].take().ok_or_else(failures::cursor_closed)?,
            Step::CloseAll(cursors) => cursors.clone().for_each(|cursor| frame.cursors[cursor] = None),
            Step::Leave { to, cursors } => {
                cursors.iter().for_each(|cursor| frame.cursors[*cursor] = None);
                return Ok(Some(*to));
            }
            Step::Exit { to, within } => {
                frame.end_handler(session);
                while frame.handling.last().is_some_and(|handling| Some(handling.body) != *within) {
                    frame.handling.pop();
                }
                return Ok(Some(*to));
            }
            Step::Resume => return Ok(frame.end_handler(session).map(|handling| handling.resume)),
            Step::Signal(signal) => self.signal(session, frame, signal, out).await?,
            Step::Diagnostics(wanted) => self.diagnostics(session, frame, wanted, out).await?,
        }
        Ok(None)
    }

    /// The value of an expression.
    pub(crate) async fn value(
        &self,
        session: &mut Session,
        frame: &Frame,
        text: &Text,
        out: &mut Output<'_>,
    ) -> Result<Datum<'static>> {
        let (_, plan) = self.plan_of(session, text, &frame.kinds, Goal::Session).await?;
        if let Plan::Into(into) = &*plan
            && into.query.is_plain_value()
        {
            session.env.start_step_at(session.within);
            self.begin_calls(session, &plan, 1).await?;
            let value = loop {
                let value = evaluate(session, &into.query, &frame.values);
                if !Box::pin(self.answer_calls(session)).await? {
                    break value;
                }
                session.env.forget_notes();
            };
            self.end_calls(session, value.is_ok()).await?;
            // A lock function is asked for by a statement.
            if session.env.lock_calls.get_mut().take_wanted().is_some() {
                session.env.forget_notes();
            } else {
                session.env.keep_assigned();
                let notes = session.env.take_notes();
                notes.iter().for_each(|e| session.warn_error(e));
                let seconds = session.env.sleep_seconds.replace(0.0);
                if seconds > 0.0 {
                    session.env.sleep(seconds).await?;
                }
                return value;
            }
        }
        self.statement_of(session, frame, text, Goal::Session, out).await?;
        let mut rows = std::mem::take(&mut session.collected);
        match (rows.pop(), rows.is_empty()) {
            (Some(mut row), true) => Ok(row.pop().unwrap_or(Datum::Null)),
            _ => Err(errors::internal("an expression has no value")),
        }
    }

    /// SELECT ... INTO: its one row. Without one the variables stay, and there is a warning.
    fn assign_into(&self, session: &mut Session, frame: &mut Frame, targets: &[Target]) -> Result<()> {
        let mut rows = std::mem::take(&mut session.collected);
        let Some(row) = rows.pop() else {
            session.warn_error(&errors::no_data());
            session.env.row_count = -1;
            return Ok(());
        };
        if !rows.is_empty() {
            return Err(errors::several_rows());
        }
        if row.len() != targets.len() {
            return Err(errors::into_columns());
        }
        self.assign_row(session, frame, targets, row)
    }

    fn assign_row(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        targets: &[Target],
        row: Vec<Datum<'static>>,
    ) -> Result<()> {
        for (target, value) in targets.iter().zip(row) {
            self.assign(session, frame, target, value)?;
        }
        Ok(())
    }

    pub(crate) fn assign(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        target: &Target,
        value: Datum<'static>,
    ) -> Result<()> {
        match target {
            Target::Variable(place) => {
                if !frame.is_of_row(*place) {
                    frame.values[*place] = Datum::Null;
                }
                frame.store(session, *place, value)
            }
            Target::User(name) => {
                session.env.assign(name, value)?;
                session.env.keep_assigned();
                Ok(())
            }
        }
    }

    /// CALL in a body.
    async fn call_within(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        (database, name): (Option<&str>, &str),
        arguments: &[Argument],
        out: &mut Output<'_>,
    ) -> Result<()> {
        let routine = self.callable(session, database, name).await?;
        let program = routine.program()?;
        if program.parameters.len() != arguments.len() {
            let (expected, got) = (program.parameters.len(), arguments.len());
            return Err(failures::wrong_arguments(routine.definition.kind, &routine.full_name(), expected, got));
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (i, (argument, parameter)) in arguments.iter().zip(&program.parameters).enumerate() {
            if parameter.mode != Mode::In && argument.target.is_none() {
                self.value(session, frame, &argument.value, out).await?; // which may be a name of nothing
                return Err(failures::no_place_for_out(i + 1, &routine.full_name()));
            }
            values.push(match parameter.mode {
                Mode::Out => Datum::Null,
                Mode::In | Mode::InOut => self.value(session, frame, &argument.value, out).await?,
            });
        }
        let ended = Box::pin(self.call(session, &routine, values, out)).await?;
        for (i, (argument, parameter)) in arguments.iter().zip(&program.parameters).enumerate() {
            if let (Some(target), Mode::Out | Mode::InOut) = (&argument.target, parameter.mode) {
                frame.note_given_out(target);
                self.assign(session, frame, target, ended.values[i].clone())?;
            }
        }
        Ok(())
    }
}

/// A step that leaves the warnings of the statement before.
fn is_quiet(step: &Step) -> bool {
    matches!(
        step,
        Step::Clear(_)
            | Step::Jump(_)
            | Step::Leave { .. }
            | Step::Exit { .. }
            | Step::Resume
            | Step::CloseAll(_)
            | Step::Diagnostics(_)
    )
}

fn evaluate(session: &Session, query: &plan::Select, values: &[Datum<'static>]) -> Result<Datum<'static>> {
    let output = query.outputs.first().ok_or_else(|| errors::syntax(SELECT))?;
    Ok(output.expr.eval(&without_row(values, &session.env))?.into_owned())
}

//! Carries out a program.
//!
//! Each statement of a body is one of the session that calls: it has the session's transaction, or one of its own where the session is in none, is tried again like a client's, and
//! leaves its own warnings. An expression that reads no table is evaluated on the spot; everything else goes the way of a client's statement, its rows to the client or, of a cursor
//! and INTO, to [`Session::collected`].

use std::{collections::BTreeSet, pin::pin, rc::Rc};

use apus_client::Losses;
use apus_types::{Column, ColumnType, collate::Collation};

use super::{
    CALLS_MAX, Routine,
    code::{Argument, Kept, Mode, Place, Program, Step, Target, Text, Variable},
    compile::SELECT,
    conditions::Handling,
    failures,
    refused::refuse_within,
};
use crate::{
    accounts::identity::Identity,
    errors::{self, Result},
    expr::{
        Kind,
        assign::{self, Assign},
        eval::char_count,
        without_row,
    },
    parse::token::{Token, Tokens},
    plan::{self, Plan},
    server::Output,
    session::{
        Called, KeptPlan, Scratch, Session, Warning,
        engine::{ATTEMPTS_MAX, SqlEngine},
    },
    value::datum::Datum,
    variables::NO_LIMIT,
    wire::{
        capability,
        characters::{Spoken, SpokenCollation},
    },
};

/// Steps after which others of the thread have their turn.
const BREATH_STEPS: u32 = 64;

/// A call under way.
#[derive(Debug)]
pub struct Frame {
    pub(crate) program: Rc<Program>,
    /// For errors.
    name: String,
    pub(crate) values: Vec<Datum<'static>>,
    /// Of the values, as plans are made for them.
    kinds: Vec<Kind>,
    /// Rows of open cursors that were not fetched yet.
    cursors: Vec<Option<std::vec::IntoIter<Vec<Datum<'static>>>>>,
    pub(crate) handling: Vec<Handling>,
    /// Parameters of a prepared CALL that it has given a value.
    given_out: Vec<Place>,
    /// Columns of NEW that a trigger has given a value.
    pub(crate) touched: BTreeSet<Place>,
    /// What the value of a function is called in messages about it, and what those were.
    pub(crate) returns_as: String,
    pub(crate) told: Vec<Warning>,
    /// A function has come to its RETURN.
    pub(crate) has_returned: bool,
}

impl Frame {
    pub fn new(program: Rc<Program>, name: String) -> Frame {
        let values = vec![Datum::Null; program.variables.len()];
        let cursors = program.cursors.iter().map(|_| None).collect();
        let kind = |variable: &Variable| variable.column.as_ref().map_or(Kind::Null, |column| Kind::of(column.ty));
        let kinds = program.variables.iter().map(kind).collect();
        let (handling, given_out, touched) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (returns_as, told, has_returned) = (String::new(), Vec::new(), false);
        Frame { program, name, values, kinds, cursors, handling, given_out, touched, returns_as, told, has_returned }
    }

    /// Only a variable without a type is the parameter of a prepared CALL.
    fn note_given_out(&mut self, target: &Target) {
        if let Target::Variable(place) = target
            && self.program.variables[*place].column.is_none()
            && !self.given_out.contains(place)
        {
            self.given_out.push(*place);
        }
    }

    pub(crate) fn given_out(&self) -> impl Iterator<Item = (usize, Datum<'static>)> + '_ {
        self.given_out.iter().map(|place| (*place, self.values[*place].clone()))
    }
}

/// What becomes of the rows of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Client,
    Session,
}

/// What a body is run with.
pub struct Surroundings<'r> {
    pub database: &'r str,
    pub database_collation: &'r str,
    pub sql_mode: &'r str,
    /// `character_set_client` and `collation_connection` of who made it.
    pub spoken: (&'r str, &'r str),
    /// `None`: it acts for who calls.
    pub definer: Option<&'r (String, String)>,
}

impl Routine {
    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        let d = &self.definition;
        Surroundings {
            database: &self.database,
            database_collation: &d.database_collation,
            sql_mode: &d.sql_mode,
            spoken: (&d.charset, &d.collation),
            definer: (!d.invoker).then_some(&d.definer),
        }
    }
}

/// The state of a session that a call changes for a while.
pub struct Around {
    database: Option<String>,
    of_database: Option<Collation>,
    sql_mode: Datum<'static>,
    spoken: (Spoken, SpokenCollation),
    me: Option<Identity>,
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

    /// Runs a statement that is planned.
    async fn statement_of(
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
    async fn plan_of(
        &self,
        session: &mut Session,
        text: &Text,
        kinds: &[Kind],
        goal: Goal,
    ) -> Result<(Rc<crate::catalog::Catalog>, Rc<Plan>)> {
        let mut catalog = self.catalog().await?;
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
                Err(e) if is_first && Box::pin(self.has_news(&e)).await => catalog = self.catalog().await?,
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
    async fn other(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
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

impl Frame {
    /// The value of a column of NEW or OLD, as the row has it.
    pub(crate) fn load(&mut self, place: Place, value: Datum<'static>) {
        self.values[place] = value;
    }

    pub(crate) fn take_arguments(&mut self, session: &mut Session, values: Vec<Datum<'static>>) -> Result<()> {
        values.into_iter().enumerate().try_for_each(|(place, value)| self.store(session, place, value))
    }

    /// A definition that is not planned here, with the values of the variables that its query names.
    fn with_values(&self, text: &Text) -> String {
        let t = Tokens::new(&text.sql);
        let is =
            |token: Option<&Token>, word: &str| matches!(token, Some(Token::Word(w)) if w.eq_ignore_ascii_case(word));
        let word = match () {
            () if t.peek_word("create") && t.second_word("table") => "select",
            () if t.peek_word("alter") => "schedule",
            () => return text.sql.clone(),
        };
        let Some(query) = (2..t.rest().len()).find(|at| is(t.ahead(*at), word)) else { return text.sql.clone() };
        t.with_replaced(|at, token| {
            let (Token::Word(name) | Token::Quoted(name)) = token else { return None };
            let (before, behind) = (t.ahead(at.checked_sub(1)?), t.ahead(at + 1));
            let point = Some(&Token::Symbol('.'));
            let is_other = is(before, "as")
                || is(before, "to")
                || before == point
                || behind == point
                || behind == Some(&Token::Symbol('('));
            let known = text.names.find(name).filter(|_| at > query && !is_other)?;
            Some(literal(&self.values[known.place]))
        })
    }

    /// The warnings of the step are for who calls.
    pub(crate) fn keep_told(&mut self, session: &mut Session) {
        self.told.append(&mut session.warnings);
    }

    fn is_of_row(&self, place: Place) -> bool {
        self.program.rows.iter().any(|row| row.place == place)
    }

    /// In strict mode nothing that is warned of goes into a variable with a type.
    fn check_warnings(&self, session: &Session, place: Place) -> Result<()> {
        let is_held = session.env.variables.strict && self.program.variables[place].column.is_some();
        match session.warnings.iter().find(|w| is_held && w.level == "Warning") {
            Some(warning) => Err(warning.error()),
            None => Ok(()),
        }
    }

    /// Gives a variable a value of its type.
    pub(crate) fn store(&mut self, session: &mut Session, place: Place, value: Datum<'static>) -> Result<()> {
        let program = self.program.clone();
        let Some(column) = &program.variables[place].column else {
            self.kinds[place] = Kind::of_datum(&value);
            self.values[place] = value;
            return Ok(());
        };
        let renamed;
        let column = match program.returns == Some(place) {
            true => {
                renamed = Column { name: self.returns_as.clone(), ..column.clone() };
                &renamed
            }
            false => column,
        };
        let (strict, zone) = (session.env.variables.strict, session.env.zone());
        let a = Assign { row: 1, table: "", strict, zone, env: Some(&session.env) };
        let mut warnings = Vec::new();
        let is_of_row = self.is_of_row(place);
        if is_of_row {
            self.touched.insert(place);
        }
        let is_local = place >= program.parameters.len() && !is_of_row && program.returns != Some(place);
        if is_local && strict && is_longer(column.ty, &value) {
            return Err(failures::truncated(&column.name));
        }
        let converted = match strict {
            true => assign::assign(column, value, a)?,
            false => assign::assign_or_warn(column, value, a, &mut warnings)?,
        };
        self.values[place] = match converted {
            Datum::Null => Datum::Null,
            converted => Datum::of_column(column.ty, assign::stored(column.ty, &converted), zone).into_owned(),
        };
        warnings.extend(session.env.take_notes());
        warnings.iter().for_each(|e| session.warn_error(e));
        session.tell_remarks();
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

/// A text that a variable has no room for, also where what is left out are spaces.
fn is_longer(ty: ColumnType, value: &Datum<'_>) -> bool {
    match (ty, value) {
        (ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. }, Datum::Text(text)) => {
            char_count(text) > usize::from(length)
        }
        _ => false,
    }
}

fn literal(value: &Datum<'_>) -> String {
    match value {
        Datum::Null => "NULL".to_owned(),
        Datum::Int(n) => format!("CAST({n} AS SIGNED)"),
        other => written(other),
    }
}

/// As a value of SET.
fn written(value: &Datum<'_>) -> String {
    match value {
        Datum::Null => "NULL".to_owned(),
        number if number.is_number() => number.as_string(),
        other => format!("'{}'", other.as_string().replace('\\', "\\\\").replace('\'', "''")),
    }
}

/// The session as the body of a procedure finds it.
pub fn enter(session: &mut Session, surroundings: &Surroundings<'_>) -> Result<Around> {
    let Surroundings { database, database_collation, sql_mode, spoken, definer } = *surroundings;
    let me = session.env.me.clone();
    if let (Some(me), Some((user, host))) = (session.env.me.as_mut(), definer) {
        let definer = me.account_of(user, host).cloned().ok_or_else(|| failures::no_definer(user, host))?;
        if definer.name != me.account.name {
            *me = Identity::new(definer, me.directory.clone(), 0, true);
        }
    }
    let mode_of_body = Datum::text(sql_mode);
    let sql_mode = session.env.variables.get("sql_mode", false)?;
    session.env.variables.set("sql_mode", Some(&mode_of_body))?;
    let now = &session.env.variables;
    let (client, connection) = now.spoken();
    let client = Spoken::from_name(spoken.0).unwrap_or(client);
    let connection = SpokenCollation::from_name(spoken.1).unwrap_or(connection);
    let spoken = session.env.variables.speak_as((client, connection));
    let database = session.env.database.replace(database.to_owned());
    let of_database = Collation::from_name(&session.env.variables.get("collation_database", false)?.as_string());
    session.env.variables.set_database(Collation::from_name(database_collation));
    Ok(Around { database, of_database, sql_mode, spoken, me })
}

pub fn leave(session: &mut Session, around: Around) -> Result<()> {
    session.env.database = around.database;
    session.env.variables.set_database(around.of_database);
    session.env.variables.speak_as(around.spoken);
    session.env.me = around.me;
    session.env.variables.set("sql_mode", Some(&around.sql_mode)).map(|_| ())
}

//! Errors and warnings of a program under way: who handles them, SIGNAL, GET DIAGNOSTICS.

use super::{
    code::{Condition, Diagnostics, Item, Program, Signal, Wanted},
    failures,
    run::frame::Frame,
};
use crate::{
    errors::{Result, wrong_variable_value},
    server::Output,
    session::{
        Session,
        engine::SqlEngine,
        warnings::{ERROR, Signalled, Warning},
    },
    value::datum::Datum,
    wire::SqlError,
};
use std::rc::Rc;

/// A condition that a handler has taken.
#[derive(Clone, Debug)]
pub struct Handling {
    /// The first step of its body.
    pub body: usize,
    /// Where a CONTINUE handler goes on.
    pub resume: usize,
    /// What was told when it was taken.
    pub told: Vec<Warning>,
    pub error: SqlError,
}

impl Condition {
    /// How closely it names an error; `None`: it does not.
    fn closeness(self, number: u16, state: [u8; 5], is_warning: bool) -> Option<u8> {
        let class = &state[..2];
        match self {
            Condition::Error(own) => (own == number).then_some(3),
            Condition::State(own) => (own == state).then_some(2),
            Condition::Warning => (class == b"01" || is_warning).then_some(1),
            Condition::NotFound => (class == b"02").then_some(1),
            Condition::Exception => (!is_warning && class != b"01" && class != b"02" && class != b"00").then_some(1),
        }
    }
}

/// The first step of the handler that takes a condition of a step.
pub fn handler(program: &Program, step: usize, error: &SqlError, is_warning: bool) -> Option<usize> {
    let mut block = program.block_of.get(step).copied();
    while let Some(at) = block {
        let handlers = &program.blocks[at].handlers;
        let best = handlers
            .iter()
            .filter_map(|handler| {
                let close = |c: &Condition| c.closeness(error.errno, error.sqlstate, is_warning);
                Some((handler.conditions.iter().filter_map(close).max()?, handler.body))
            })
            .max_by_key(|(closeness, body)| (*closeness, std::cmp::Reverse(*body)));
        if let Some((_, body)) = best {
            return Some(body);
        }
        block = program.blocks[at].parent;
    }
    None
}

/// What is not for handlers: the statement was killed, or is out of time.
pub fn ends_all(error: &SqlError) -> bool {
    matches!(error.errno, 1317 | 3024)
}

impl Frame {
    /// The body of a handler ends: what it was for is told no more, unless the body has run a statement, which tells of its own.
    pub(crate) fn end_handler(&mut self, session: &mut Session) -> Option<Handling> {
        let ended = self.handling.pop()?;
        if ended.told == session.warnings {
            session.begin_step();
        }
        Some(ended)
    }

    /// A handler takes an error; where the program goes on.
    pub(crate) fn handle(&mut self, session: &mut Session, step: usize, error: SqlError) -> Result<usize> {
        let found = handler(&self.program, step, &error, false).filter(|_| !ends_all(&error));
        let Some(body) = found else { return Err(error) };
        let signalled = session.signalled.take().filter(|signalled| signalled.error == error);
        if !signalled.as_ref().is_some_and(|signalled| signalled.again) {
            session.clear_warnings();
        }
        session.note_failure(&error);
        if let Some(warning) = session.warnings.last_mut() {
            warning.signalled = signalled.map(|signalled| signalled.items);
        }
        Ok(self.enter(session, body, step, error))
    }

    /// After a step that went well: a handler for a warning that it left.
    pub(crate) fn handle_warning(&mut self, session: &mut Session, step: usize) -> Option<usize> {
        let warnings = session.warnings.iter().rev().filter(|w| w.level != NOTE);
        let found = warnings.into_iter().find_map(|w| {
            let error = w.error();
            Some((handler(&self.program, step, &error, w.level != ERROR)?, error))
        });
        let (body, error) = found?;
        Some(self.enter(session, body, step, error))
    }

    fn enter(&mut self, session: &Session, body: usize, step: usize, error: SqlError) -> usize {
        let behind = self.program.behind.iter().find(|(at, _)| *at == step).map(|(_, to)| *to);
        let told = session.warnings.clone();
        self.handling.push(Handling { body, resume: behind.unwrap_or(step + 1), told, error });
        body
    }
}

const NOTE: &str = "Note";

impl SqlEngine {
    pub(crate) async fn signal(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        signal: &Signal,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut error = match (signal.again, signal.state) {
            (true, _) => frame.handling.last().ok_or_else(failures::no_handler)?.error.clone(),
            (false, state) => failures::signalled(state.unwrap_or(*b"45000")),
        };
        if let (true, Some(state)) = (signal.again, signal.state) {
            error.sqlstate = state;
            error.errno = failures::signalled(state).errno;
        }
        let mut items = Vec::new();
        for (item, value) in &signal.items {
            let value = self.value(session, frame, value, out).await?;
            if value.is_null() {
                return Err(wrong_variable_value(item.name(), "NULL"));
            }
            match item {
                Item::MessageText => error.message = value.as_string().chars().take(MESSAGE_CHARS_MAX).collect(),
                Item::MysqlErrno => {
                    let number = value.number().and_then(|n| u16::try_from(n.to_i128()).ok()).filter(|n| *n > 0);
                    error.errno = number.ok_or_else(|| wrong_variable_value(item.name(), &value.as_string()))?;
                }
                Item::ReturnedSqlstate => {}
                Item::Origin { .. } | Item::Name(_) => items.push((*item, value.as_string())),
            }
        }
        let items = Rc::new(items);
        session.clear_warnings();
        if signal.again {
            let told = frame.handling.last().map(|handling| handling.told.clone()).unwrap_or_default();
            session.warnings = told;
            if signal.state.is_none() {
                session.warnings.pop(); // it is told again
            }
        }
        if error.sqlstate.starts_with(b"01") {
            session.warn_error(&error);
            if let Some(warning) = session.warnings.last_mut() {
                warning.signalled = Some(items);
            }
            session.keep_warnings();
            return Ok(());
        }
        session.signalled = Some(Signalled { error: error.clone(), items, again: signal.again });
        Err(error)
    }

    pub(crate) async fn diagnostics(
        &self,
        session: &mut Session,
        frame: &mut Frame,
        wanted: &Diagnostics,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let list = match wanted.stacked {
            true => frame.handling.last().ok_or_else(failures::no_stacked)?.told.clone(),
            false => session.warnings.clone(),
        };
        match &wanted.wanted {
            Wanted::Statement(items) => {
                for (target, of_rows) in items {
                    let rows = Datum::Int(session.env.row_count);
                    let value = if *of_rows { rows } else { Datum::UInt(list.len() as u64) };
                    self.assign(session, frame, target, value)?;
                }
            }
            Wanted::Condition(number, items) => {
                let number = self.value(session, frame, number, out).await?;
                let at = number.number().and_then(|n| usize::try_from(n.to_i128()).ok());
                let Some(told) = at.and_then(|at| list.get(at.checked_sub(1)?)) else {
                    session.fail_quietly(&failures::no_such_condition());
                    return Ok(());
                };
                for (target, item) in items {
                    let said = told.signalled.as_ref().and_then(|items| items.iter().find(|(known, _)| known == item));
                    let value = match item {
                        Item::MessageText => Datum::text(told.message.clone()),
                        Item::MysqlErrno => Datum::UInt(u64::from(told.code)),
                        Item::ReturnedSqlstate => Datum::text(String::from_utf8_lossy(&told.state).into_owned()),
                        Item::Origin { .. } if told.signalled.is_none() => Datum::text(origin(told.state)),
                        Item::Origin { .. } | Item::Name(_) => {
                            Datum::text(said.map_or_else(String::new, |(_, text)| text.clone()))
                        }
                    };
                    self.assign(session, frame, target, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Longest MESSAGE_TEXT in characters.
const MESSAGE_CHARS_MAX: usize = 128;

/// The standard that a state is of.
fn origin(state: [u8; 5]) -> &'static str {
    let is_standard = |b: u8| b.is_ascii_digit() && b < b'5' || b.is_ascii_uppercase() && b < b'I';
    if is_standard(state[0]) { "ISO 9075" } else { "MySQL" }
}

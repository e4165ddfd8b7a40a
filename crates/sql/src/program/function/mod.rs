//! Values of stored functions in the statement that calls them.
//!
//! An expression is evaluated without waiting, and a stored function may read tables. So a call is answered from what is known ([`Calls::value`](calls::Calls::value)); a run of the statement that
//! came upon a call without an answer does nothing ([`crate::exec`] refuses to write, its rows are taken back), the function is run for it, and the statement is run again, until it
//! knows all its answers. Everything happens in one transaction: that of the session, or one that ends with the statement ([`SqlEngine::end_calls`]); what the functions did is undone with
//! the statement.
//!
//! A function that only reads, by what stands in its body, has one answer for the same arguments all through a statement: so many calls as a run comes upon are answered before the
//! next, and while the answer is not there the value is NULL. Any other is called in turn: its run of the statement ends at once, and each further call of it with the same arguments is
//! one more call.
//!
//! | limit of one statement | value | error |
//! |---|---:|---|
//! | calls of functions that do more than read | 1000 | 1235 |
//! | calls answered between two runs; their arguments | 10,000; 16 MiB | (more runs) |
//! | memory of the answers | 64 MiB | 3170 |

pub mod calls;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use apus_types::ColumnType;

use self::calls::{Answer, RUNS_MAX, Wanted};
use super::routine::{
    CALLS_MAX, Kind, Routine,
    code::{Step, Target, Text},
    failures,
    run::{
        frame::Frame,
        surroundings::{enter, leave},
    },
};
use crate::{
    accounts::{Privileges, identity::Identity},
    catalog::{Catalog, Table, view::View},
    errors::{self, Result},
    expr::{Context, Expr},
    parse::token::{Token, Tokens},
    plan::{Plan, dml::insert::Source},
    server::Collected,
    session::{
        self, Called, Session,
        engine::{ATTEMPTS_MAX, SqlEngine},
    },
    value::datum::Datum,
};

/// Calls of functions that do more than read.
const CALLS_IN_TURN_MAX: usize = 1000;

/// A call in an expression.
#[derive(Clone, Debug)]
pub struct Stored {
    pub routine: Rc<Routine>,
    pub ty: ColumnType,
    /// As it is written, for messages about its value.
    pub heading: String,
    /// It only reads.
    pub is_reading: bool,
    /// The call stands in the text of a view.
    pub view: Option<Rc<View>>,
}

impl PartialEq for Stored {
    fn eq(&self, other: &Stored) -> bool {
        Rc::ptr_eq(&self.routine, &other.routine)
    }
}

/// The value of a call, or NULL in a run that lacks it.
///
/// # Errors
/// What the function ended with; that the run cannot go on.
pub fn eval(stored: &Stored, arguments: &[Expr], cx: &Context<'_>) -> Result<Datum<'static>> {
    let values = arguments.iter().map(|e| Ok(e.eval(cx)?.into_owned())).collect::<Result<Vec<_>>>()?;
    cx.env.stored.borrow_mut().value(stored, values, cx)
}

/// Who a view acts for.
fn definer_of(me: &Identity, view: &View) -> Result<Identity> {
    let (user, host) = &view.definition.definer;
    let definer = me.account_of(user, host).cloned().ok_or_else(|| failures::no_definer(user, host))?;
    Ok(Identity::new(definer, me.directory.clone(), 0, true))
}

/// Whether a function only reads: nothing in its body, or in what that calls, changes a row, a variable of the session or a lock, or has another value each time.
pub fn is_reading(catalog: &Catalog, routine: &Routine) -> bool {
    is_reading_within(catalog, routine, &mut Vec::new())
}

/// Functions whose value is another each time, or that do something.
const IN_TURN: [&str; 15] = [
    "rand",
    "uuid",
    "uuid_short",
    "sleep",
    "benchmark",
    "get_lock",
    "release_lock",
    "release_all_locks",
    "is_free_lock",
    "is_used_lock",
    "last_insert_id",
    "row_count",
    "found_rows",
    "sysdate",
    "random_bytes",
];

fn is_reading_within(catalog: &Catalog, routine: &Routine, around: &mut Vec<String>) -> bool {
    let name = routine.full_name().to_lowercase();
    if around.contains(&name) || around.len() > CALLS_MAX {
        return true; // an error when it is called
    }
    let Ok(program) = routine.program() else { return true };
    around.push(name);
    let to_user = |targets: &[Target]| targets.iter().any(|target| matches!(target, Target::User(_)));
    let is_good = |step: &Step| match step {
        Step::Planned(_) | Step::Other(_) | Step::SetSystem(..) | Step::AssignUser(..) | Step::Call { .. } => false,
        Step::Into(_, targets) | Step::Fetch(_, targets) => !to_user(targets),
        _ => true,
    };
    let mut reads = program.steps.iter().all(is_good);
    for text in program.texts() {
        reads = reads && is_reading_text(catalog, &routine.database, text, around);
    }
    around.pop();
    reads
}

fn is_reading_text(catalog: &Catalog, database: &str, text: &Text, around: &mut Vec<String>) -> bool {
    let t = Tokens::new(&text.sql);
    for at in 0..t.rest().len() {
        let (Some(Token::Word(word) | Token::Quoted(word)), next) = (t.ahead(at), t.ahead(at + 1)) else { continue };
        if word.starts_with('@') && !word.starts_with("@@") || word.eq_ignore_ascii_case("for") {
            return false;
        }
        if next != Some(&Token::Symbol('(')) {
            continue;
        }
        let lower = word.to_lowercase();
        if IN_TURN.contains(&lower.as_str()) {
            return false;
        }
        let qualifier =
            match (at.checked_sub(2).and_then(|before| t.ahead(before)), at.checked_sub(1).and_then(|b| t.ahead(b))) {
                (Some(Token::Word(database) | Token::Quoted(database)), Some(Token::Symbol('.'))) => {
                    Some(database.as_str())
                }
                _ => None,
            };
        if let Some(called) = catalog.routine(Kind::Function, qualifier.unwrap_or(database), word)
            && !is_reading_within(catalog, called, around)
        {
            return false;
        }
    }
    true
}

impl SqlEngine {
    /// Answers the calls that a run of the statement lacked; `false`: it lacked none.
    ///
    /// # Errors
    /// What ends the statement.
    pub(crate) async fn answer_calls(&self, session: &mut Session) -> Result<bool> {
        let calls = session.env.stored.get_mut();
        if !calls.is_wanting() {
            return Ok(false);
        }
        calls.runs += 1;
        if calls.runs > RUNS_MAX {
            return Err(errors::not_supported("stored functions of values that change while the statement runs"));
        }
        calls.wanted_bytes = 0;
        let wanted = std::mem::take(&mut calls.wanted);
        session.calls_own |= !session.in_transaction();
        session.calls_from.get_or_insert(session.savepoint);
        for Wanted { key, stored, arguments } in wanted {
            session.env.may_go_on()?;
            let answer = Box::pin(self.call_stored(session, &stored, arguments)).await;
            if let Some(lost) = session.lost_within.take() {
                let calls = session.env.stored.get_mut();
                calls.lost += 1;
                let again = session.calls_own && lost.retry_transaction() && calls.lost < ATTEMPTS_MAX;
                if !again {
                    return Err(errors::from_client(&lost));
                }
                // Whatever was answered is of a transaction that is gone.
                (calls.bytes, calls.in_turn) = (0, 0);
                calls.known.clear();
                calls.wanted.clear();
                self.end_transaction(session, false).await?;
                session.calls_own = false;
                break;
            }
            session.env.stored.get_mut().answer(key, &stored, answer)?;
        }
        session.env.stored.get_mut().begin_run();
        Ok(true)
    }

    async fn call_stored(
        &self,
        session: &mut Session,
        stored: &Stored,
        arguments: Vec<Datum<'static>>,
    ) -> Result<Answer> {
        let routine = &stored.routine;
        if session.calls.iter().any(|other| other.is(routine)) {
            return Err(failures::recursive());
        }
        if session.calls.len() >= CALLS_MAX {
            return Err(failures::too_deep());
        }
        let program = routine.program()?;
        let mut frame = Frame::new(program.clone(), routine.full_name());
        frame.returns_as.clone_from(&stored.heading);
        let (in_use, in_change) = (session.in_use.len(), session.in_change.len());
        let calls = session.env.stored.get_mut();
        session.in_use.extend(&calls.uses);
        session.in_change.extend(&calls.changes);
        let aside = session.step_aside();
        let me = session.env.me.clone();
        if let (Some(view), Some(caller)) = (stored.view.as_ref().filter(|view| !view.definition.invoker), &me) {
            session.env.me = Some(definer_of(caller, view)?);
        }
        let done = self.run_stored(session, routine, &mut frame, arguments).await;
        session.env.me = me;
        session.step_back(aside);
        session.in_use.truncate(in_use);
        session.in_change.truncate(in_change);
        done?;
        let place = program.returns.filter(|_| frame.has_returned);
        let value = place.map(|place| std::mem::replace(&mut frame.values[place], Datum::Null));
        let value = value.ok_or_else(|| failures::ended_without_return(&routine.definition.name))?;
        Ok(Answer { value, warnings: frame.told })
    }

    async fn run_stored(
        &self,
        session: &mut Session,
        routine: &Rc<Routine>,
        frame: &mut Frame,
        arguments: Vec<Datum<'static>>,
    ) -> Result<()> {
        frame.take_arguments(session, arguments)?;
        frame.keep_told(session);
        let around = enter(session, &routine.surroundings())?;
        session.calls.push(Called::Routine(routine.clone()));
        let mut unseen = Collected::new(false);
        let done = self.run_program(session, frame, &mut unseen.output()).await;
        session.calls.pop();
        leave(session, around)?;
        done
    }

    /// The statement has ended, and with it the transaction that its calls began.
    ///
    /// # Errors
    /// It cannot be committed.
    pub(crate) async fn end_calls(&self, session: &mut Session, is_good: bool) -> Result<()> {
        let Some(from) = session.calls_from.take() else { return Ok(()) };
        session.env.stored.take();
        if std::mem::take(&mut session.calls_own) {
            let done = self.end_transaction(session, is_good).await;
            session.forget_reading();
            return done;
        }
        let has_done = session.savepoint > from && session.transaction.as_ref().is_some_and(|t| t.is_started());
        if !is_good && has_done && session::rollback_to(session, from + 1).await.is_err() {
            session.forget_transaction();
        }
        Ok(())
    }

    /// A run of a plan that calls functions begins; `rows`: of an INSERT, so many times its own.
    ///
    /// # Errors
    /// 1370: it may not.
    pub(crate) async fn begin_calls(&self, session: &mut Session, plan: &Plan, rows: usize) -> Result<()> {
        for Stored { routine, view, .. } in &plan.names().functions {
            match view.as_ref().filter(|view| !view.definition.invoker) {
                None => self.require_on_routine(session, routine, Privileges::EXECUTE, "execute").await?,
                Some(view) => self.require_of_definer(session, routine, view).await?,
            }
        }
        if plan.finds_in_turn() {
            let what = "a stored function that does more than read, in the WHERE of UPDATE or DELETE";
            return Err(errors::not_supported(what));
        }
        let tables = |list: &mut dyn Iterator<Item = &Rc<Table>>| list.map(|table| table.schema.id).collect();
        let uses = tables(&mut plan.tables());
        let is_at_once = match plan {
            Plan::Insert(insert) => match &insert.source {
                Source::Values(list) => list.len() * rows < 2,
                Source::Select(_) => true,
            },
            _ => false,
        };
        let changes = if is_at_once { Vec::new() } else { tables(&mut plan.written()) };
        let calls = session.env.stored.get_mut();
        (calls.uses, calls.changes) = (uses, changes);
        calls.begin_run();
        Ok(())
    }

    async fn require_of_definer(&self, session: &mut Session, routine: &Routine, view: &View) -> Result<()> {
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        let (user, host) = &view.definition.definer;
        let definer = definer_of(&me, view)?;
        let held = definer.rights.on_routine(Kind::Function, &routine.database, &routine.definition.name);
        if held.contains(Privileges::EXECUTE) {
            return Ok(());
        }
        Err(failures::denied("execute", user, host, &routine.full_name()))
    }
}

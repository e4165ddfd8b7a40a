//! Values of stored functions in the statement that calls them.
//!
//! An expression is evaluated without waiting, and a stored function may read tables. So a call is answered from what is known ([`Calls::value`]); a run of the statement that
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

use std::{collections::BTreeMap, rc::Rc};

use apus_types::{ColumnType, TableId};

use super::routine::{
    CALLS_MAX, Kind, Routine,
    code::{Step, Target, Text},
    failures,
    run::{Frame, enter, leave},
};
use crate::{
    accounts::{Privileges, identity::Identity},
    catalog::{Catalog, Table, view::View},
    errors::{self, Result},
    expr::{Context, Expr},
    parse::token::{Token, Tokens},
    plan::{Plan, dml::Source},
    server::Collected,
    session::{
        self, Called, Session, Warning,
        engine::{ATTEMPTS_MAX, SqlEngine},
    },
    value::datum::Datum,
    wire::SqlError,
};

/// Calls of functions that do more than read.
const CALLS_IN_TURN_MAX: usize = 1000;
/// Calls answered between two runs.
const WANTED_MAX: usize = 10_000;
/// Bytes of the arguments of these.
const WANTED_BYTES_MAX: usize = 16 << 20;
/// Memory of the answers, in bytes.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
/// Runs of a statement whose functions are asked for values that change.
const RUNS_MAX: u32 = 2000;

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

#[derive(Clone, Debug)]
struct Answer {
    value: Datum<'static>,
    /// Of converting the arguments and the value.
    warnings: Vec<Warning>,
}

/// A call that has no answer yet.
#[derive(Debug)]
struct Wanted {
    key: Vec<u8>,
    stored: Stored,
    arguments: Vec<Datum<'static>>,
}

/// What is known of a call.
#[derive(Debug)]
struct Known {
    /// Keys have its address: as long as they live, no other function has that.
    _routine: Rc<Routine>,
    answers: Vec<Result<Answer>>,
}

/// Calls in turn of a run, by their keys.
type Used = BTreeMap<Vec<u8>, usize>;

/// The calls of the statement under way.
#[derive(Default, Debug)]
pub struct Calls {
    known: BTreeMap<Vec<u8>, Known>,
    /// Calls in turn of this run, by their keys.
    used: Used,
    wanted: Vec<Wanted>,
    wanted_bytes: usize,
    in_turn: usize,
    bytes: usize,
    runs: u32,
    /// Runs that a failing node has ended.
    lost: u32,
    /// Tables that the statement uses, and of those the ones that it changes row after row.
    uses: Vec<TableId>,
    changes: Vec<TableId>,
}

/// What ends a run of a statement that lacks an answer.
pub fn unanswered() -> SqlError {
    errors::internal("a stored function without its answer")
}

impl Calls {
    /// The run that comes upon it may not go on to do anything.
    pub fn is_wanting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A run of the statement begins.
    pub fn begin_run(&mut self) {
        self.used.clear();
    }
    /// How far this run has come, for [`Calls::go_back`].
    pub fn mark(&self) -> Used {
        self.used.clone()
    }
    /// What was evaluated since is evaluated again.
    pub fn go_back(&mut self, to: &Used) {
        self.used.clone_from(to);
    }

    fn value(&mut self, stored: &Stored, arguments: Vec<Datum<'static>>, cx: &Context<'_>) -> Result<Datum<'static>> {
        let key = key(stored, &arguments);
        let at = if stored.is_reading { 0 } else { self.used.get(&key).copied().unwrap_or(0) };
        let Some(answer) = self.known.get(&key).and_then(|known| known.answers.get(at)) else {
            return self.want(stored, key, arguments);
        };
        if !stored.is_reading {
            *self.used.entry(key).or_default() += 1;
        }
        match answer {
            Ok(answer) => {
                answer.warnings.iter().for_each(|warning| cx.env.remark_as(warning.level, warning.error()));
                Ok(answer.value.clone())
            }
            Err(e) => Err(e.clone()),
        }
    }

    fn want(&mut self, stored: &Stored, key: Vec<u8>, arguments: Vec<Datum<'static>>) -> Result<Datum<'static>> {
        let is_first = self.wanted.is_empty();
        if is_first || stored.is_reading && self.wanted.iter().all(|wanted| wanted.stored.is_reading) {
            self.wanted_bytes += key.len();
            self.wanted.push(Wanted { key, stored: stored.clone(), arguments });
        }
        if !stored.is_reading || self.wanted.len() >= WANTED_MAX || self.wanted_bytes >= WANTED_BYTES_MAX {
            return Err(unanswered());
        }
        Ok(Datum::Null)
    }

    fn answer(&mut self, key: Vec<u8>, stored: &Stored, answer: Result<Answer>) -> Result<()> {
        let is_reading = stored.is_reading;
        let of_value = |answer: &Answer| answer.value.heap_bytes() + answer.warnings.len() * size_of::<Warning>();
        self.bytes += key.len() + size_of::<Known>() + size_of::<Answer>() + answer.as_ref().map_or(0, of_value);
        if self.bytes > ANSWERS_BYTES_MAX {
            return Err(errors::out_of_query_memory(ANSWERS_BYTES_MAX));
        }
        self.in_turn += usize::from(!is_reading);
        if self.in_turn > CALLS_IN_TURN_MAX {
            return Err(errors::not_supported(
                "more than 1000 calls of stored functions that do more than read, in one statement",
            ));
        }
        let new = || Known { _routine: stored.routine.clone(), answers: Vec::new() };
        let known = self.known.entry(key).or_insert_with(new);
        // The same call may have been wanted by several rows.
        if !is_reading || known.answers.is_empty() {
            known.answers.push(answer);
        }
        Ok(())
    }
}

/// The same for the same function and arguments only.
fn key(stored: &Stored, arguments: &[Datum<'_>]) -> Vec<u8> {
    let mut key = (Rc::as_ptr(&stored.routine) as usize).to_le_bytes().to_vec();
    for value in arguments {
        let text = value.as_text();
        key.push(if value.is_null() { 0 } else { 1 + u8::from(value.is_number()) });
        key.extend_from_slice(&(text.len() as u64).to_le_bytes());
        key.extend_from_slice(&text);
    }
    key
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        expr::{Env, Kind as ExprKind},
        program::routine::{self, Definition},
    };
    use apus_types::RowLayout;

    fn env() -> Env {
        Env::new("root".into(), "localhost".into(), 7, 1, Default::default())
    }

    fn function(name: &str, body: &str) -> Rc<Routine> {
        let definition = Definition {
            kind: Kind::Function,
            name: name.to_owned(),
            parameters: "a INT".to_owned(),
            returns: "INT".to_owned(),
            body: body.to_owned(),
            ..Definition::default()
        };
        routine::Routine::of_no_dictionary("d", definition)
    }

    fn call(body: &str) -> Stored {
        let routine = function("f", body);
        let is_reading = is_reading(&Catalog::default(), &routine);
        let ty = ColumnType::Int { bits: 32, unsigned: false };
        Stored { routine, ty, heading: "f(1)".to_owned(), is_reading, view: None }
    }

    fn ask(env: &Env, stored: &Stored, argument: i64) -> Result<Datum<'static>> {
        let layout = RowLayout::new([]);
        let cx = Context { layout: &layout, row: &[], new_row: None, params: &[], aggregates: &[], given: &[], env };
        eval(stored, &[Expr::Const(Datum::Int(argument))], &cx)
    }

    /// Answers what a run has wanted by a count of the answers.
    fn answer(env: &Env, count: &mut i64) -> usize {
        let mut calls = env.stored.borrow_mut();
        let wanted = std::mem::take(&mut calls.wanted);
        let all = wanted.len();
        for Wanted { key, stored, .. } in wanted {
            *count += 1;
            calls.answer(key, &stored, Ok(Answer { value: Datum::Int(*count), warnings: Vec::new() })).unwrap();
        }
        calls.begin_run();
        all
    }

    #[test]
    fn a_function_that_reads_is_asked_once_for_the_same_arguments() {
        let (env, stored, mut count) = (env(), call("RETURN (SELECT COUNT(*) FROM t WHERE b = a)"), 0);
        assert!(stored.is_reading && Expr::Stored(Box::new(stored.clone()), Vec::new()).is_constant());
        assert_eq!(Expr::Stored(Box::new(stored.clone()), Vec::new()).kind(&[]), ExprKind::Int);
        let asked: Vec<_> = [1, 2, 1].into_iter().map(|n| ask(&env, &stored, n).unwrap()).collect();
        assert!(asked.iter().all(Datum::is_null) && env.is_wanting());
        assert_eq!(answer(&env, &mut count), 3);
        let asked: Vec<_> = [1, 2, 1].into_iter().map(|n| ask(&env, &stored, n).unwrap()).collect();
        assert_eq!(asked, [Datum::Int(1), Datum::Int(2), Datum::Int(1)]);
        assert!(!env.is_wanting());
    }

    #[test]
    fn a_function_that_does_more_is_asked_for_each_call_in_turn() {
        let (env, stored, mut count) = (env(), call("BEGIN INSERT INTO t VALUES (a); RETURN a; END"), 0);
        assert!(!stored.is_reading);
        for known in 0..3 {
            for n in 1..=known {
                assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(n));
            }
            assert!(ask(&env, &stored, 7).is_err(), "the run ends");
            assert_eq!(answer(&env, &mut count), 1);
        }
        let mark = env.stored.borrow().mark();
        assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(1));
        env.stored.borrow_mut().go_back(&mark);
        assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(1), "again");
        let refused = |calls: &mut Calls| calls.answer(vec![1], &stored, Err(unanswered())).map_err(|e| e.errno);
        let mut calls = env.stored.borrow_mut();
        let all = (0..CALLS_IN_TURN_MAX).find_map(|_| refused(&mut calls).err());
        assert_eq!(all, Some(1235));
    }

    #[test]
    fn what_only_reads() {
        let reads = |body: &str| is_reading(&Catalog::default(), &function("f", body));
        assert!(reads("RETURN a * 2") && reads("BEGIN DECLARE b INT; SELECT MAX(c) INTO b FROM t; RETURN b; END"));
        assert!(reads("BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; CLOSE c; RETURN NOW(); END"));
        for body in [
            "BEGIN SET @x = 1; RETURN 1; END",
            "RETURN @x",
            "RETURN RAND()",
            "RETURN (SELECT COUNT(*) FROM t WHERE id = LAST_INSERT_ID())",
            "BEGIN DELETE FROM t; RETURN 1; END",
            "BEGIN CALL p(); RETURN 1; END",
            "BEGIN SELECT 1 INTO @x; RETURN 1; END",
            "RETURN (SELECT a FROM t FOR UPDATE)",
        ] {
            assert!(!reads(body), "{body}");
        }
    }
}

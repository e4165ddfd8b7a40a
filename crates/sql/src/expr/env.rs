//! What expressions may ask of the session: time, identity, variables.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    func::{regexp, user_lock::Calls},
    probe,
};
use crate::{
    accounts::identity::Identity,
    errors::{self, WARNINGS_MAX, cut},
    files::Begun,
    program::{function, routine::code::Names},
    server::{Interrupt, Processes, Registry},
    spill::Space,
    value::{
        datum::Datum,
        zone::{Zone, clock},
    },
    variables::Variables,
    wire::SqlError,
};

/// Rows, or pairs of rows, after which others of the thread have their turn: about a tenth of a millisecond.
const BREATH_ROWS: usize = 256;

/// Part of a session that expressions read.
#[derive(Debug)]
pub struct Env {
    /// Microseconds since 1970 at the start of the statement; 0 until someone asks.
    now: Cell<i64>,
    pub variables: Variables,
    /// `@name`, lower case.
    pub user_variables: BTreeMap<String, Datum<'static>>,
    /// What the statement under way has assigned to variables.
    assigned: RefCell<BTreeMap<String, Datum<'static>>>,
    pub database: Option<String>,
    /// What performance_schema.session_status tells, while a statement reads it.
    pub session_status: RefCell<Vec<(&'static str, String)>>,
    /// The connections of all SQL nodes, once the statement under way has asked for them.
    pub processes: RefCell<Option<Processes>>,
    /// Query attributes of the command under way, by their lower case names.
    pub attributes: Vec<(String, Option<String>)>,
    pub user: String,
    pub host: String,
    /// The account that the session acts for; `None`: it is refused nothing.
    pub me: Option<Identity>,
    pub connection_id: u32,
    /// All connections of this SQL node.
    pub connections: Option<Arc<Registry>>,
    pub last_insert_id: Cell<u64>,
    /// The statement gave LAST_INSERT_ID its value itself: LAST_INSERT_ID(n).
    pub last_insert_id_given: Cell<bool>,
    /// The statement is an UPDATE or DELETE.
    pub changes_rows: Cell<bool>,
    pub row_count: i64,
    pub found_rows: u64,
    /// Rows that the command under way has read.
    pub examined: Cell<u64>,
    pub told_before: Told,
    random: Cell<u64>,
    /// What expressions of the statement have to warn of, at most [`WARNINGS_MAX`].
    notes: RefCell<Vec<SqlError>>,
    /// What was left out of values, which no mode forbids here, with its level; at most [`WARNINGS_MAX`].
    remarks: RefCell<Vec<(&'static str, SqlError)>>,
    /// The regular expression used last.
    pub regex: RefCell<Option<regexp::Compiled>>,
    /// KILL asks the statement to end.
    interrupt: Arc<Interrupt>,
    /// When a SELECT has taken as long as max_execution_time lets it.
    pub deadline: Cell<Option<Instant>>,
    /// Rows that were worked on since others had their turn.
    worked: Cell<usize>,
    /// Seconds that SLEEP asked for, waited for when the statement is done.
    pub sleep_seconds: Cell<f64>,
    /// Calls of GET_LOCK and its kin in the statement under way.
    pub lock_calls: RefCell<Calls>,
    /// Calls of stored functions in the statement under way.
    pub stored: RefCell<function::calls::Calls>,
    /// What EXPLAIN ANALYZE counts of the statement.
    counts: RefCell<Option<probe::Counts>>,
    /// Variables of a procedure that the statement which is planned may name.
    pub names: Option<Names>,
    /// The file that the statement under way writes.
    pub begun_file: RefCell<Option<Begun>>,
}

/// What an environment knows of the statement under way.
pub struct OfStatement {
    now: i64,
    last_insert_id: u64,
    last_insert_id_given: bool,
    changes_rows: bool,
    told_before: Told,
    notes: Vec<SqlError>,
    remarks: Vec<(&'static str, SqlError)>,
    deadline: Option<Instant>,
    sleep_seconds: f64,
    lock_calls: Calls,
    stored: function::calls::Calls,
    begun_file: Option<Begun>,
}

/// How many errors and warnings (errors among them) a statement left behind.
#[derive(Clone, Copy, Default, Debug)]
pub struct Told {
    pub errors: u64,
    pub warnings: u64,
}

/// Most `@variables` of one session.
pub const USER_VARIABLES_MAX: usize = 4096;

impl Env {
    pub fn new(user: String, host: String, connection_id: u32, seed: u64, interrupt: Arc<Interrupt>) -> Env {
        Env {
            now: Cell::new(0),
            variables: Variables::default(),
            user_variables: BTreeMap::new(),
            assigned: RefCell::default(),
            database: None,
            session_status: RefCell::default(),
            processes: RefCell::default(),
            attributes: Vec::new(),
            user,
            host,
            me: None,
            connection_id,
            connections: None,
            last_insert_id: Cell::new(0),
            last_insert_id_given: Cell::new(false),
            changes_rows: Cell::new(false),
            row_count: 0,
            examined: Cell::new(0),
            found_rows: 0,
            told_before: Told::default(),
            random: Cell::new(seed | 1),
            notes: RefCell::default(),
            remarks: RefCell::default(),
            regex: RefCell::default(),
            interrupt,
            deadline: Cell::new(None),
            worked: Cell::new(0),
            sleep_seconds: Cell::new(0.0),
            lock_calls: RefCell::default(),
            stored: RefCell::default(),
            counts: RefCell::default(),
            names: None,
            begun_file: RefCell::default(),
        }
    }

    /// From now on it is counted what the parts of the statement's plan do.
    pub fn begin_counting(&self) {
        *self.counts.borrow_mut() = Some(probe::Counts::default());
    }
    pub fn is_counting(&self) -> bool {
        self.counts.borrow().is_some()
    }
    /// Where the statement keeps rows that memory has no room for.
    pub fn spill_space(&self) -> Arc<Space> {
        self.variables.spill_space().clone()
    }
    /// A part of the plan was run so often more, and gave so many rows more.
    pub fn count(&self, part: probe::Part, loops: u64, rows: u64) {
        if part.1 == probe::Of::Read {
            self.examined.set(self.examined.get() + rows);
        }
        if let Some(counts) = self.counts.borrow_mut().as_mut() {
            counts.add(part, loops, rows);
        }
    }
    pub fn take_counts(&self) -> Option<probe::Counts> {
        self.counts.take()
    }

    /// The value of `@@name`; of some it is the session's state.
    ///
    /// # Errors
    /// 1193 for a name that is no variable, 1238 for one that has no value beyond the session's.
    pub fn system_variable(&self, name: &str, global: bool) -> Result<Datum<'static>, SqlError> {
        match self.counted(name) {
            Some(number) if !global => Ok(Datum::UInt(number)),
            _ => self.variables.get(name, global),
        }
    }
    fn counted(&self, name: &str) -> Option<u64> {
        Some(match name {
            "error_count" => self.told_before.errors,
            "warning_count" => self.told_before.warnings,
            "identity" | "last_insert_id" => self.last_insert_id.get(),
            "pseudo_thread_id" if !self.variables.is_set(name) => u64::from(self.connection_id),
            _ => return None,
        })
    }
    /// Name and text of every variable, by name, as SHOW VARIABLES has them.
    pub fn list_variables(&self, global: bool) -> Vec<(String, String)> {
        let mut list = self.variables.list(global);
        for (name, text) in &mut list {
            if let Some(number) = self.counted(name) {
                *text = number.to_string();
            }
        }
        list
    }

    /// The value of a variable in a statement that assigns some.
    pub fn variable_now(&self, name: &str) -> Datum<'static> {
        match self.assigned.borrow().get(name) {
            Some(value) => value.clone(),
            None => self.user_variables.get(name).cloned().unwrap_or(Datum::Null),
        }
    }
    /// `@name := value`, seen by the rest of the statement.
    ///
    /// # Errors
    /// More than [`USER_VARIABLES_MAX`].
    pub fn assign(&self, name: &str, value: Datum<'static>) -> Result<(), SqlError> {
        let value = match value {
            Datum::Label(_, text) => Datum::Text(text),
            document @ Datum::Json(_) => Datum::text(document.as_string()),
            Datum::Bit(n, _) => Datum::UInt(n),
            other => other,
        };
        let mut assigned = self.assigned.borrow_mut();
        if assigned.len() + self.user_variables.len() >= USER_VARIABLES_MAX && !self.user_variables.contains_key(name) {
            return Err(errors::not_supported("more user variables"));
        }
        assigned.insert(name.to_owned(), variable_value(value));
        Ok(())
    }
    /// The statement begins again.
    pub fn forget_assigned(&self) {
        self.stored.borrow_mut().begin_run();
        self.assigned.borrow_mut().clear();
    }
    /// At the end of a statement: its assignments last.
    pub fn keep_assigned(&mut self) {
        if !self.assigned.get_mut().is_empty() {
            self.user_variables.append(self.assigned.get_mut());
        }
    }
    /// A new statement begins: the clock may move.
    pub fn start_statement(&self) {
        self.interrupt.reset();
        self.examined.set(0);
        self.start_step();
    }
    /// A statement within a call begins: KILL means all of the call.
    pub fn start_step(&self) {
        self.now.set(0);
        self.last_insert_id_given.set(false);
        self.changes_rows.set(false);
        self.forget_notes();
        self.deadline.set(None);
        self.lock_calls.borrow_mut().clear();
        self.stored.take();
        self.processes.take();
        self.sleep_seconds.set(0.0);
        self.begun_file.take();
    }
    /// As [`Env::start_step`]; the clock stands still within a statement.
    pub fn start_step_at(&self, within: u32) {
        let now = if within > 0 { self.now() } else { 0 };
        self.start_step();
        self.now.set(now);
    }
    /// A run of the statement lacks the value of a stored function: it may do nothing more.
    pub fn is_wanting(&self) -> bool {
        self.stored.borrow().is_wanting()
    }
    /// Something runs within the statement, at its time.
    pub fn step_aside(&mut self) -> OfStatement {
        OfStatement {
            now: self.now(),
            last_insert_id: self.last_insert_id.get(),
            last_insert_id_given: self.last_insert_id_given.get(),
            changes_rows: self.changes_rows.get(),
            told_before: self.told_before,
            notes: self.notes.take(),
            remarks: self.remarks.take(),
            deadline: self.deadline.get(),
            sleep_seconds: self.sleep_seconds.get(),
            lock_calls: self.lock_calls.take(),
            stored: self.stored.take(),
            begun_file: self.begun_file.take(),
        }
    }
    /// It has ended.
    pub fn step_back(&mut self, statement: OfStatement) {
        self.now.set(statement.now);
        self.last_insert_id.set(statement.last_insert_id);
        self.last_insert_id_given.set(statement.last_insert_id_given);
        self.changes_rows.set(statement.changes_rows);
        self.told_before = statement.told_before;
        self.notes.replace(statement.notes);
        self.remarks.replace(statement.remarks);
        self.deadline.set(statement.deadline);
        self.sleep_seconds.set(statement.sleep_seconds);
        self.lock_calls.replace(statement.lock_calls);
        self.stored.replace(statement.stored);
        self.begun_file.replace(statement.begun_file);
    }
    /// Whose a view or a procedure is that the session makes.
    pub fn definer(&self) -> (String, String) {
        match &self.me {
            Some(me) => (me.account.name.user.clone(), me.account.name.host.clone()),
            None => (self.user.clone(), "%".to_owned()),
        }
    }
    /// Whether the statement may go on; asked between batches of rows.
    ///
    /// # Errors
    /// 1317 after KILL, 3024 behind the deadline.
    pub fn may_go_on(&self) -> Result<(), SqlError> {
        if self.interrupt.is_asked() {
            return Err(errors::interrupted());
        }
        match self.deadline.get() {
            Some(deadline) if Instant::now() >= deadline => Err(errors::out_of_time()),
            _ => Ok(()),
        }
    }
    /// So many rows, or pairs of rows, were worked on: now and then others of the thread have their turn.
    ///
    /// # Errors
    /// As [`Env::may_go_on`].
    pub async fn breathe(&self, rows: usize) -> Result<(), SqlError> {
        let worked = self.worked.get() + rows;
        self.worked.set(if worked < BREATH_ROWS { worked } else { 0 });
        if worked >= BREATH_ROWS {
            self.may_go_on()?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
    /// Done when [`Env::may_go_on`] begins to refuse.
    pub async fn stopped(&self) {
        match self.deadline.get() {
            Some(deadline) => _ = tokio::time::timeout_at(deadline.into(), self.interrupt.asked()).await,
            None => self.interrupt.asked().await,
        }
    }
    /// The error of a statement that was stopped.
    pub fn why_stopped(&self) -> SqlError {
        self.may_go_on().err().unwrap_or_else(errors::interrupted)
    }
    /// SLEEP, after the rows were made.
    ///
    /// # Errors
    /// As [`Env::may_go_on`].
    pub async fn sleep(&self, seconds: f64) -> Result<(), SqlError> {
        let wake = Instant::now().checked_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let until = match (wake, self.deadline.get()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let interrupted = self.interrupt.asked();
        match until {
            Some(until) => _ = tokio::time::timeout_at(until.into(), interrupted).await,
            None => interrupted.await,
        }
        self.may_go_on()
    }
    /// Keeps a warning for the end of the statement.
    pub fn note(&self, warning: SqlError) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < WARNINGS_MAX {
            notes.push(SqlError { message: cut(warning.message), ..warning });
        }
    }
    /// As [`Env::note`], unless the statement has said the same already.
    pub fn note_once(&self, warning: SqlError) {
        let warning = SqlError { message: cut(warning.message), ..warning };
        if !self.notes.borrow().iter().any(|n| n.errno == warning.errno && n.message == warning.message) {
            self.note(warning);
        }
    }
    /// What is computed, unless something is said of it: that is taken back then.
    pub fn unless_it_warns<T>(&self, compute: impl FnOnce() -> T) -> Option<T> {
        let before = (self.notes.borrow().len(), self.remarks.borrow().len());
        let value = compute();
        let (mut notes, mut remarks) = (self.notes.borrow_mut(), self.remarks.borrow_mut());
        if (notes.len(), remarks.len()) == before {
            return Some(value);
        }
        notes.truncate(before.0);
        remarks.truncate(before.1);
        None
    }
    /// A warning that strict mode makes an error of where a row is written.
    #[inline]
    pub fn fault(&self) -> Option<SqlError> {
        if self.notes.borrow().is_empty() { None } else { self.notes.borrow_mut().pop() }
    }
    /// [`Env::fault`] in strict mode; otherwise it stays a warning.
    pub fn fault_if(&self, strict: bool) -> Option<SqlError> {
        if strict { self.fault() } else { None }
    }
    pub fn has_notes(&self) -> bool {
        !self.notes.borrow().is_empty() || !self.remarks.borrow().is_empty()
    }
    /// The warnings so far, which are forgotten.
    pub fn take_notes(&self) -> Vec<SqlError> {
        if self.notes.borrow().is_empty() { Vec::new() } else { self.notes.take() }
    }
    /// Keeps a note for the end of the statement.
    pub fn remark(&self, note: SqlError) {
        self.remark_as("Note", note);
    }
    /// Keeps what no mode makes an error of.
    pub fn remark_as(&self, level: &'static str, said: SqlError) {
        let mut remarks = self.remarks.borrow_mut();
        if remarks.len() < WARNINGS_MAX {
            remarks.push((level, SqlError { message: cut(said.message), ..said }));
        }
    }
    pub fn take_remarks(&self) -> Vec<(&'static str, SqlError)> {
        if self.remarks.borrow().is_empty() { Vec::new() } else { self.remarks.take() }
    }
    /// The work begins again.
    pub fn forget_notes(&self) {
        self.notes.borrow_mut().clear();
        self.remarks.borrow_mut().clear();
    }
    /// Microseconds since 1970, the same all through a statement.
    pub fn now(&self) -> i64 {
        if self.now.get() == 0 {
            let fixed = self.variables.timestamp_micros;
            self.now.set(if fixed == 0 { clock() } else { fixed });
        }
        self.now.get()
    }
    pub fn zone(&self) -> Zone {
        self.variables.zone
    }
    /// [`Env::now`] as the session's clocks show it.
    pub fn local_now(&self) -> i64 {
        self.zone().local(self.now())
    }
    pub fn random_u64(&self) -> u64 {
        // splitmix64
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// A value as a variable keeps it: numbers and texts only, with all the digits they have.
pub fn variable_value(value: Datum<'static>) -> Datum<'static> {
    match value {
        Datum::Fine { unscaled, scale, .. } => Datum::Decimal { unscaled, scale },
        moment @ (Datum::Date(_) | Datum::DateTime(..) | Datum::Time(..) | Datum::Json(_)) => {
            Datum::text(moment.as_string())
        }
        other => other,
    }
}

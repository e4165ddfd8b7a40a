//! Warnings and errors that a session keeps of its statements.

use std::rc::Rc;

use super::Session;
use crate::{
    errors::{WARNINGS_MAX, cut},
    expr::env::Told,
    program::routine::code::Item,
    wire::SqlError,
};

/// The level of what ended a statement, or would have.
pub const ERROR: &str = "Error";

#[derive(Clone, PartialEq, Debug)]
pub struct Warning {
    /// `Note`, `Warning` or [`ERROR`].
    pub level: &'static str,
    pub code: u16,
    pub state: [u8; 5],
    pub message: String,
    /// SIGNAL made it: what else it told.
    pub signalled: Option<Rc<Items>>,
}

/// Items of a condition, with their texts.
pub type Items = Vec<(Item, String)>;

/// An error that SIGNAL made.
pub struct Signalled {
    pub error: SqlError,
    pub items: Rc<Items>,
    /// RESIGNAL made it: what was told before stays.
    pub again: bool,
}

impl Warning {
    /// As the error that it would be.
    pub fn error(&self) -> SqlError {
        SqlError::new(self.code, &self.state, self.message.clone())
    }
}

/// Warnings of rows that are sent many at a time, brought into the order of the rows.
#[derive(Default)]
pub struct Warned {
    /// The row, and the order within it.
    pub(super) list: Vec<((usize, u8), SqlError)>,
    /// As many more are kept.
    room: usize,
    left_out: u64,
}

impl Warned {
    pub fn clear(&mut self) {
        self.list.clear();
        self.left_out = 0;
        self.begin_phase();
    }
    /// What is pushed from now on comes in the order of its rows: the first [`WARNINGS_MAX`] of it are those that may be shown.
    pub fn begin_phase(&mut self) {
        self.room = WARNINGS_MAX;
    }
    pub fn push(&mut self, place: (usize, u8), e: SqlError) {
        match self.room.checked_sub(1) {
            Some(room) => {
                self.room = room;
                self.list.push((place, e));
            }
            None => self.left_out += 1,
        }
    }
    /// Hands all to the session.
    pub fn tell(&mut self, session: &mut Session) {
        self.list.sort_by_key(|(place, _)| *place);
        self.list.drain(..).for_each(|(_, e)| session.warn_error(&e));
        session.unlisted_warnings += std::mem::take(&mut self.left_out);
    }
}

impl Session {
    pub fn warn(&mut self, level: &'static str, code: u16, message: impl Into<String>) {
        self.tell(level, &SqlError::new(code, b"HY000", message));
    }
    pub fn warn_error(&mut self, e: &SqlError) {
        self.tell("Warning", e);
    }
    /// What expressions have said of values that were stored.
    pub fn tell_remarks(&mut self) {
        self.env.take_remarks().iter().for_each(|(level, e)| self.tell(level, e));
    }
    /// An error that its statement tells, and does not end with.
    pub fn fail_quietly(&mut self, e: &SqlError) {
        self.tell(ERROR, e);
    }
    pub(super) fn tell(&mut self, level: &'static str, e: &SqlError) {
        if self.warnings.len() < self.env.variables.max_error_count {
            let message = cut(e.message.clone());
            self.warnings.push(Warning { level, code: e.errno, state: e.sqlstate, message, signalled: None });
        } else {
            self.unlisted_warnings += 1;
        }
    }
    /// A statement begins that has warnings of its own.
    pub fn clear_warnings(&mut self) {
        if !self.has_own_warnings {
            self.env.told_before = Told { errors: self.errors_given(), warnings: self.warnings_given() };
            self.has_own_warnings = true;
        }
        self.warnings.clear();
        self.unlisted_warnings = 0;
    }
    /// A step of a program begins that is no statement, and has warnings of its own.
    pub fn begin_step(&mut self) {
        self.clear_warnings();
        self.keep_warnings();
    }
    /// A command failed: what was told of it stays, and the error is told with it.
    pub fn note_failure(&mut self, e: &SqlError) {
        if !self.has_own_warnings {
            self.clear_warnings();
        }
        self.has_own_warnings = false;
        self.tell(ERROR, e);
        self.env.row_count = -1;
    }
    /// A command ended well: its warnings are there for the next.
    pub fn keep_warnings(&mut self) {
        self.has_own_warnings = false;
    }
    /// Errors of the statement.
    pub fn errors_given(&self) -> u64 {
        self.warnings.iter().filter(|w| w.level == ERROR).count() as u64
    }
    /// All warnings of the statement.
    pub fn warnings_given(&self) -> u64 {
        self.warnings.len() as u64 + self.unlisted_warnings
    }
    /// As many of them as the protocol can tell.
    pub fn warning_count(&self) -> u16 {
        u16::try_from(self.warnings_given()).unwrap_or(u16::MAX)
    }
}

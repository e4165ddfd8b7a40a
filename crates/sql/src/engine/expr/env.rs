//! What expressions may ask of the session: time, identity, variables.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Datum, func_regexp};
use crate::{
    engine::{session::WARNINGS_MAX, variables::Variables},
    wire::SqlError,
};

/// Part of a session that expressions read.
#[derive(Debug)]
pub struct Env {
    /// Microseconds since 1970 at the start of the statement; 0 until someone asks.
    now: Cell<i64>,
    pub variables: Variables,
    /// `@name`, lower case.
    pub user_variables: BTreeMap<String, Datum<'static>>,
    pub database: Option<String>,
    pub user: String,
    pub host: String,
    pub connection_id: u32,
    pub last_insert_id: Cell<u64>,
    /// The statement gave LAST_INSERT_ID its value itself: LAST_INSERT_ID(n).
    pub last_insert_id_given: Cell<bool>,
    pub row_count: i64,
    pub found_rows: u64,
    random: Cell<u64>,
    /// What expressions of the statement have to warn of, at most [`WARNINGS_MAX`].
    notes: RefCell<Vec<SqlError>>,
    /// The regular expression used last.
    pub regex: RefCell<Option<func_regexp::Compiled>>,
    /// Seconds that SLEEP asked for, waited for when the statement is done.
    pub sleep_seconds: Cell<f64>,
}

/// Most `@variables` of one session.
pub const USER_VARIABLES_MAX: usize = 4096;

impl Env {
    pub fn new(user: String, host: String, connection_id: u32, seed: u64) -> Env {
        Env {
            now: Cell::new(0),
            variables: Variables::default(),
            user_variables: BTreeMap::new(),
            database: None,
            user,
            host,
            connection_id,
            last_insert_id: Cell::new(0),
            last_insert_id_given: Cell::new(false),
            row_count: 0,
            found_rows: 0,
            random: Cell::new(seed | 1),
            notes: RefCell::default(),
            regex: RefCell::default(),
            sleep_seconds: Cell::new(0.0),
        }
    }

    /// A new statement begins: the clock may move.
    pub fn start_statement(&self) {
        self.now.set(0);
        self.last_insert_id_given.set(false);
        self.notes.borrow_mut().clear();
    }
    /// Keeps a warning for the end of the statement.
    pub fn note(&self, warning: SqlError) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < WARNINGS_MAX {
            notes.push(warning);
        }
    }
    /// A warning that strict mode makes an error of where a row is written.
    #[inline]
    pub fn fault(&self) -> Option<SqlError> {
        if self.notes.borrow().is_empty() { None } else { self.notes.borrow_mut().pop() }
    }
    /// The warnings so far, which are forgotten.
    pub fn take_notes(&self) -> Vec<SqlError> {
        if self.notes.borrow().is_empty() { Vec::new() } else { self.notes.take() }
    }
    /// Microseconds since 1970, the same all through a statement.
    pub fn now(&self) -> i64 {
        if self.now.get() == 0 {
            self.now.set(clock());
        }
        self.now.get()
    }
    /// Offset of the session's time zone in microseconds.
    pub fn zone(&self) -> i64 {
        self.variables.zone_micros
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

pub fn clock() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

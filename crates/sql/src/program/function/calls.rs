//! Calls of functions within a statement: what is wanted, and what has been answered.

use std::{collections::BTreeMap, rc::Rc};

use apus_types::TableId;

use super::{CALLS_IN_TURN_MAX, Stored};
use crate::{
    errors::{self, Result},
    expr::Context,
    program::routine::Routine,
    session::warnings::Warning,
    value::datum::Datum,
    wire::SqlError,
};

/// Calls answered between two runs.
const WANTED_MAX: usize = 10_000;

/// Bytes of the arguments of these.
const WANTED_BYTES_MAX: usize = 16 << 20;

/// Memory of the answers, in bytes.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// Runs of a statement whose functions are asked for values that change.
pub(super) const RUNS_MAX: u32 = 2000;

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) value: Datum<'static>,
    /// Of converting the arguments and the value.
    pub(super) warnings: Vec<Warning>,
}

/// A call that has no answer yet.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: Vec<u8>,
    pub(super) stored: Stored,
    pub(super) arguments: Vec<Datum<'static>>,
}

/// What is known of a call.
#[derive(Debug)]
pub(super) struct Known {
    /// Keys have its address: as long as they live, no other function has that.
    _routine: Rc<Routine>,
    answers: Vec<Result<Answer>>,
}

/// Calls in turn of a run, by their keys.
pub(super) type Used = BTreeMap<Vec<u8>, usize>;

/// The calls of the statement under way.
#[derive(Default, Debug)]
pub struct Calls {
    pub(super) known: BTreeMap<Vec<u8>, Known>,
    /// Calls in turn of this run, by their keys.
    used: Used,
    pub(super) wanted: Vec<Wanted>,
    pub(super) wanted_bytes: usize,
    pub(super) in_turn: usize,
    pub(super) bytes: usize,
    pub(super) runs: u32,
    /// Runs that a failing node has ended.
    pub(super) lost: u32,
    /// Tables that the statement uses, and of those the ones that it changes row after row.
    pub(super) uses: Vec<TableId>,
    pub(super) changes: Vec<TableId>,
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

    pub(super) fn value(
        &mut self,
        stored: &Stored,
        arguments: Vec<Datum<'static>>,
        cx: &Context<'_>,
    ) -> Result<Datum<'static>> {
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

    pub(super) fn answer(&mut self, key: Vec<u8>, stored: &Stored, answer: Result<Answer>) -> Result<()> {
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
pub(super) fn key(stored: &Stored, arguments: &[Datum<'_>]) -> Vec<u8> {
    let mut key = (Rc::as_ptr(&stored.routine) as usize).to_le_bytes().to_vec();
    for value in arguments {
        let text = value.as_text();
        key.push(if value.is_null() { 0 } else { 1 + u8::from(value.is_number()) });
        key.extend_from_slice(&(text.len() as u64).to_le_bytes());
        key.extend_from_slice(&text);
    }
    key
}

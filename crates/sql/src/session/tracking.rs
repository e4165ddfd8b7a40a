//! What clients are told of changes of their sessions, along with the OK of the statement that made them: variables, the database, that anything has changed.
//!
//! A client asks for it by a capability, and says by `session_track_system_variables`, `session_track_schema` and `session_track_state_change` what it wants to know. Changes are
//! noted where they are made and told once, in the order of MySQL. There are no GTIDs here; changes of transactions are not tracked, which `session_track_transaction_info` says by
//! taking OFF only.

use std::collections::BTreeSet;

use super::Session;
use crate::{
    errors::{self, Result},
    variables,
    wire::{SqlError, packet::push_lenenc_bytes, result::ResultWriter},
};

/// Kinds of changes in the protocol.
const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;

/// Changes that the client has not been told of.
#[derive(Debug, Default)]
pub struct Changes {
    variables: BTreeSet<String>,
    schema: bool,
    state: bool,
}

/// The names in a value of `session_track_system_variables`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// What is wrong with such a value: names that are no variables are ignored with a warning.
///
/// # Errors
/// 3026: a name is there twice.
pub fn check(list: &str) -> Result<Vec<SqlError>> {
    let (mut seen, mut unknown) = (BTreeSet::new(), Vec::new());
    for name in names(list).filter(|name| *name != "*") {
        let lower = name.to_ascii_lowercase();
        if variables::check_name(&lower).is_err() {
            let text = format!("{name} is not a valid system variable and will be ignored.");
            unknown.push(SqlError::new(1231, b"42000", text));
        } else if !seen.insert(lower) {
            return Err(errors::duplicate_name_in_list(name));
        }
    }
    Ok(unknown)
}

impl Session {
    /// A variable (lower case) was set.
    pub fn note_variable(&mut self, name: &str) {
        if self.tracks() {
            self.changes.variables.insert(name.to_owned());
        }
    }
    /// The database is another, or the same anew.
    pub fn note_schema(&mut self) {
        self.changes.schema = self.tracks();
        self.note_state();
    }
    /// Something is not as in a new session.
    pub fn note_state(&mut self) {
        self.changes.state |= self.tracks() && self.env.variables.track_state;
    }
    fn tracks(&self) -> bool {
        self.info.capabilities & crate::wire::capability::SESSION_TRACK != 0
    }

    /// Hands what was noted to the next OK.
    pub fn tell_changes(&mut self, out: &mut ResultWriter<'_>) {
        let Changes { variables, schema, state } = std::mem::take(&mut self.changes);
        if !variables.is_empty() {
            self.tell_variables(&variables, out);
        }
        if schema && self.env.variables.track_schema {
            let mut name = Vec::new();
            push_lenenc_bytes(&mut name, self.env.database.as_deref().unwrap_or_default().as_bytes());
            out.session_change(SCHEMA, &name);
        }
        if state {
            out.session_change(STATE_CHANGE, b"\x011");
        }
    }

    fn tell_variables(&self, changed: &BTreeSet<String>, out: &mut ResultWriter<'_>) {
        let list = self.env.variables.tracked();
        let mut told: Vec<&str> = match names(&list).any(|name| name == "*") {
            true => changed.iter().map(String::as_str).collect(),
            false => names(&list).filter(|name| changed.contains(&name.to_ascii_lowercase())).collect(),
        };
        told.sort_unstable();
        for name in told {
            let value = self.env.variables.shown(&name.to_ascii_lowercase()).unwrap_or_default();
            let mut pair = Vec::new();
            push_lenenc_bytes(&mut pair, name.as_bytes());
            push_lenenc_bytes(&mut pair, value.as_bytes());
            out.session_change(SYSTEM_VARIABLES, &pair);
        }
    }
}

//! Rows that belong to one member each, and what each of them may be: what its owner made of it last, or could not learn.

use std::{cell::RefCell, collections::BTreeMap};

use super::crew::Fate;
use crate::check::unique::Row;

/// What a row may be: absent or a row. More than one where nobody could tell.
pub(super) type Possible = Vec<Option<Row>>;
/// Rows with what a transaction makes of them, as far as it has come.
pub(super) type Changes = BTreeMap<u64, Possible>;
/// Rows with what they are to become.
type Intended = Vec<(u64, Option<Row>)>;

#[derive(Default)]
pub(super) struct Ledger {
    rows: RefCell<BTreeMap<u64, Possible>>,
    /// What each member is about to make of its rows.
    intended: RefCell<BTreeMap<u64, Intended>>,
}

impl Ledger {
    pub fn possible(&self, id: u64) -> Possible {
        self.rows.borrow().get(&id).cloned().unwrap_or_else(|| vec![None])
    }
    /// All ids that were ever used are below.
    pub fn ids(&self) -> u64 {
        self.rows.borrow().last_key_value().map_or(0, |(id, _)| id + 1)
    }
    /// The member is about to make this of its rows; replaces what it said before.
    pub fn intend(&self, member: u64, changes: &Changes) {
        let all = changes.iter().map(|(id, possible)| (*id, possible.first().copied().flatten())).collect();
        self.intended.borrow_mut().insert(member, all);
    }
    /// What has become of that, or may have.
    pub fn settle(&self, member: u64, fate: Fate) {
        let mut rows = self.rows.borrow_mut();
        for (id, row) in self.intended.borrow_mut().remove(&member).unwrap_or_default() {
            let possible = rows.entry(id).or_insert_with(|| vec![None]);
            match fate {
                Fate::Committed => *possible = vec![row],
                Fate::Unknown if !possible.contains(&row) => possible.push(row),
                _ => {}
            }
        }
    }
    /// `seen`: a row with the columns that there are.
    ///
    /// # Errors
    /// A row that is not what its owner last made of it.
    pub fn compare(&self, found: &BTreeMap<u64, Row>, seen: impl Fn(Row) -> Row) -> Result<(), String> {
        let rows = self.rows.borrow();
        for (id, possible) in rows.iter() {
            let row = found.get(id).copied();
            let possible: Possible = possible.iter().map(|row| row.map(&seen)).collect();
            if !possible.contains(&row) {
                return Err(format!("row {id} is {row:?}, not one of {possible:?}"));
            }
        }
        match found.values().find(|row| !rows.contains_key(&row.key)) {
            Some(row) => Err(format!("{row:?} was never acknowledged")),
            None => Ok(()),
        }
    }
}

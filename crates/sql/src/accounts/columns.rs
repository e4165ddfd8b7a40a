//! What an account may do with columns of one table.
//!
//! Columns have the names by which they were granted; letters are told apart in no case. A name stays where the column goes, as in MySQL.

use std::collections::BTreeMap;

use super::Privileges;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Columns(BTreeMap<String, Privileges>);

impl Columns {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Privileges)> {
        self.0.iter().map(|(name, privileges)| (name.as_str(), *privileges))
    }
    /// Names of the columns with one of these privileges.
    pub fn with(&self, privileges: Privileges) -> impl Iterator<Item = &str> {
        self.iter().filter(move |(_, has)| has.intersects(privileges)).map(|(name, _)| name)
    }
    fn name_of(&self, column: &str) -> Option<&str> {
        self.0.keys().find(|name| name.eq_ignore_ascii_case(column)).map(String::as_str)
    }
    pub fn of(&self, column: &str) -> Privileges {
        self.name_of(column).map_or(Privileges::NONE, |name| self.0[name])
    }
    /// What it may do with some column.
    pub fn any(&self) -> Privileges {
        self.0.values().fold(Privileges::NONE, |all, one| all.union(*one))
    }
    pub fn give(&mut self, column: &str, privileges: Privileges) {
        let name = self.name_of(column).unwrap_or(column).to_owned();
        let has = self.0.entry(name).or_default();
        *has = has.union(privileges);
    }
    pub fn take(&mut self, column: &str, privileges: Privileges) {
        self.change(|name, has| if name.eq_ignore_ascii_case(column) { has.without(privileges) } else { has });
    }
    pub fn take_from_all(&mut self, privileges: Privileges) {
        self.change(|_, has| has.without(privileges));
    }
    fn change(&mut self, change: impl Fn(&str, Privileges) -> Privileges) {
        self.0.iter_mut().for_each(|(name, has)| *has = change(name, *has));
        self.0.retain(|_, has| *has != Privileges::NONE);
    }
}

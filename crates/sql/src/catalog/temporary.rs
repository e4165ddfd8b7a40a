//! Temporary tables, as the catalog has them.
//!
//! In the dictionary each is a table of a database that no statement can name, of a name that says which SQL thread has made it and that no statement can say. The session that has made it
//! sees it by the name that it has given it: its catalog is the one of all, with its own tables in front ([`Catalog::with_own`]). Nobody else's catalog knows that name, and no list has it.

use std::{collections::BTreeMap, rc::Rc};

use super::{Catalog, Table};
use crate::monitor::status::Tables;

/// The database in which they are in the dictionary. Tables of the cluster's own database are never altered.
pub const DATABASE: &str = "#temporary";
/// What the names of temporary tables begin with in the dictionary.
const MARK: &str = "#temporary#";

/// Tables of a session by the names that its statements call them: database and table.
pub type Named = BTreeMap<(String, String), Rc<Table>>;

/// What a session sees before all others.
#[derive(Clone, Debug)]
pub(super) struct Own {
    tables: Rc<Named>,
    /// What everybody sees.
    permanent: Rc<Catalog>,
    /// No two sets of tables of a thread have the same; never 0.
    number: u64,
}

/// The name of a table in the dictionary.
pub fn kept_name(owner: u64, number: u64) -> String {
    format!("{MARK}{owner:016x}#{number}")
}

/// The owner that a name in the dictionary says; `None`: it is no temporary table.
pub fn owner(name: &str) -> Option<u64> {
    let (owner, _) = name.strip_prefix(MARK)?.split_once('#')?;
    u64::from_str_radix(owner, 16).ok()
}

impl Table {
    /// The session's own table of this name, which is kept as `self`.
    pub fn as_own(&self, database: &str, name: &str) -> Table {
        let mut schema = self.schema.clone();
        let kept_as = std::mem::replace(&mut schema.name, name.to_owned());
        database.clone_into(&mut schema.database);
        Table { kept_as: Some(kept_as.into()), ..Table::new(schema, self.hidden.clone()) }
    }
    /// A temporary table by another name.
    pub fn called(&self, database: &str, name: &str) -> Table {
        Table { kept_as: self.kept_as.clone(), ..self.as_own(database, name) }
    }
    pub fn is_temporary(&self) -> bool {
        self.kept_as.is_some()
    }
}

impl Catalog {
    /// The catalog of a session that has these tables.
    pub fn with_own(permanent: &Rc<Catalog>, tables: Rc<Named>, number: u64) -> Catalog {
        let own = Own { tables, permanent: permanent.clone(), number };
        Catalog { own: Some(own), ..Catalog::clone(permanent) }
    }
    /// What everybody sees: names in the text of a view, of what is created and of what is renamed.
    pub fn permanent(&self) -> &Catalog {
        self.own.as_ref().map_or(self, |own| &own.permanent)
    }
    /// A temporary table of the session.
    pub fn own(&self, database: &str, name: &str) -> Option<&Rc<Table>> {
        self.own.as_ref()?.tables.get(&(database.to_owned(), name.to_owned()))
    }
    /// Which dictionary and whose tables it tells of: plans that were made for the same are good.
    pub fn state(&self) -> (u64, u64) {
        (self.version, self.own.as_ref().map_or(0, |own| own.number))
    }
    /// By their names in the dictionary, those of all sessions of all SQL nodes.
    pub fn temporary(&self) -> &BTreeMap<String, Rc<Table>> {
        &self.temporary
    }
    pub fn counted(&self) -> Tables {
        Tables { permanent: self.tables.len(), temporary: self.temporary.len() }
    }
    pub(super) fn kept_as(&self, database: &str, name: &str) -> Option<&Rc<Table>> {
        if database == DATABASE { self.temporary.get(name) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(owner(&kept_name(0xab, 7)), Some(0xab));
        assert_eq!(owner(&kept_name(u64::MAX, u64::MAX)), Some(u64::MAX));
        assert!(kept_name(u64::MAX, u64::MAX).len() <= 64, "a name of the dictionary");
        for other in ["t", "#temporary#", "#temporary#x#1", "#made#1", "#alter#1"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}

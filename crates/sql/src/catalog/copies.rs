//! Tables that are being copied ([`crate::ddl::copy`]), as the dictionary says it: a copy is a table `#alter#N`. While its rows only follow those of the other table, nothing else is known of it.
//! Then it has a foreign key of a name that no statement can say, [`Mark`]: nobody begins to write or lock the table that such a key refers to.

use std::{collections::BTreeSet, rc::Rc};

use apus_signal::{
    dict::{Change, RenameTable, TableName},
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
};
use apus_types::{TableId, TableSchema, foreign_key::ForeignKey};

use super::{Catalog, Table};

/// Attempts of a change that meets another.
pub(crate) const ATTEMPTS_MAX: u32 = 50;
/// What the name of a copy begins with.
pub const MARK: &str = "#alter#";

/// What the name of a foreign key begins with that the table will have.
const KEPT: &str = "#kept#";

/// How far a copy is for which a table is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Transactions that are at work in the table may end it.
    Closing,
    /// Nobody writes the table, and the copy does not have all of it yet.
    Filling,
    /// The copy has all.
    Ready,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Closing, Stage::Filling, Stage::Ready];

    fn front(self) -> &'static str {
        match self {
            Stage::Closing => "#closing#",
            Stage::Filling => "#filling#",
            Stage::Ready => "#ready#",
        }
    }
}

/// What the key of a copy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub stage: Stage,
    pub number: u16,
    /// The table that is copied.
    pub original: TableId,
}

impl Mark {
    pub fn name(self) -> String {
        format!("{}{}#{}", self.stage.front(), self.number, self.original.0)
    }
    fn read(name: &str) -> Option<Mark> {
        let (stage, rest) = Stage::ALL.iter().find_map(|stage| Some((*stage, name.strip_prefix(stage.front())?)))?;
        let (number, original) = rest.split_once('#')?;
        Some(Mark { stage, number: number.parse().ok()?, original: TableId(original.parse().ok()?) })
    }
    pub fn of(copy: &TableSchema) -> Option<(Mark, &ForeignKey)> {
        copy.foreign_keys.iter().find_map(|key| Some((Mark::read(&key.name)?, key)))
    }
    /// The key itself, of a copy, for the original as it is.
    pub fn key(self, copy: &TableSchema, original: &TableSchema) -> ForeignKeyMessage {
        let column = |t: &TableSchema| t.primary_key.first().copied().unwrap_or(0);
        let key = ForeignKey {
            name: self.name(),
            columns: vec![column(copy)],
            parent_database: original.database.clone(),
            parent_table: original.name.clone(),
            parent_columns: vec![original.columns[usize::from(column(original))].name.clone()],
            on_delete: Default::default(),
            on_update: Default::default(),
            matching: Default::default(),
            created: 0,
            unchecked: true,
        };
        let (parent_id, parent_version) = (original.id.0, original.version);
        ForeignKeyMessage { parent_id, parent_version, ..ForeignKeyMessage::from(&key) }
    }
}

/// The number of a copy, by the name of its table.
pub fn number(name: &str) -> Option<u16> {
    name.strip_prefix(MARK)?.parse().ok()
}

/// The name under which a copy keeps a foreign key of the table: names of keys are taken once in a database.
pub fn kept_name(number: u16, key: &str) -> String {
    format!("{KEPT}{number}#{key}")
}

fn own_name(name: &str) -> Option<&str> {
    name.strip_prefix(KEPT)?.split_once('#').map(|(_, own)| own)
}

/// Copies and what they stand for, of a dictionary.
#[derive(Default, Debug)]
pub struct Copies {
    /// Under names that nobody sees.
    hidden: Vec<Rc<Table>>,
    /// That have their names, but not their foreign keys.
    named: Vec<TableSchema>,
    ids: BTreeSet<TableId>,
}

impl Copies {
    /// Looks at a definition, and takes what only a copy has out of it. Whether it is a copy, that users do not see.
    pub fn sort(&mut self, schema: &mut TableSchema) -> bool {
        self.ids.insert(schema.id);
        if number(&schema.name).is_some() {
            return true;
        }
        if Mark::of(schema).is_some() {
            self.named.push(schema.clone());
            schema.foreign_keys.retain(|key| !key.name.starts_with('#'));
        }
        false
    }
    pub fn put(&mut self, copy: Rc<Table>) {
        self.hidden.push(copy);
    }
    pub fn find(&self, database: &str, number: u16) -> Option<&Rc<Table>> {
        let is_it = |t: &&Rc<Table>| t.schema.database == database && self::number(&t.schema.name) == Some(number);
        self.hidden.iter().find(is_it)
    }
    pub fn hidden(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.hidden.iter()
    }
    pub fn are_none(&self) -> bool {
        self.hidden.is_empty() && self.named.is_empty()
    }
    /// The copy has taken the place of its original.
    pub(crate) fn is_final(&self, mark: Mark) -> bool {
        mark.stage == Stage::Ready && !self.ids.contains(&mark.original)
    }
    /// Some copy has taken the place of its original, and is not finished.
    pub fn are_pending(&self) -> bool {
        let is_final = |copy: &Rc<Table>| Mark::of(&copy.schema).is_some_and(|(mark, _)| self.is_final(mark));
        !self.are_none() && (!self.named.is_empty() || self.hidden.iter().any(is_final))
    }
    /// Nobody may begin to write this table.
    pub(crate) fn closes(&self, table: TableId) -> bool {
        self.stage(table).is_some()
    }
    /// How far a copy of this table is for which it is closed.
    fn stage(&self, table: TableId) -> Option<Stage> {
        if self.named.iter().any(|t| t.id == table) {
            return Some(Stage::Ready);
        }
        let marks = self.hidden.iter().filter_map(|copy| Some(Mark::of(&copy.schema)?.0));
        marks.filter(|mark| mark.original == table).map(|mark| mark.stage).max()
    }

    /// The next change that brings a copy to its end that is in effect.
    pub(crate) fn next_step(&self, catalog: &Catalog, attempt: u32) -> Option<Change> {
        for copy in &self.hidden {
            let schema = &copy.schema;
            let Some((_, key)) = Mark::of(schema).filter(|(mark, _)| self.is_final(*mark)) else { continue };
            let name =
                |version| TableName { database: key.parent_database.clone(), table: key.parent_table.clone(), version };
            // Made in the moment at which there was none of its name. Nobody could write it.
            if let Some(other) = catalog.find(&key.parent_database, &key.parent_table) {
                return Some(Change::DropTable(name(other.schema.version)));
            }
            let from =
                TableName { database: schema.database.clone(), table: schema.name.clone(), version: schema.version };
            return Some(Change::RenameTable(RenameTable { from: Some(from), to: Some(name(0)) }));
        }
        self.named.first().map(|table| keys_change(catalog, table, attempt))
    }
}

/// Gives a table the foreign keys that its copy kept, under their own names.
fn keys_change(catalog: &Catalog, table: &TableSchema, attempt: u32) -> Change {
    let drop = table.foreign_keys.iter().filter(|key| key.name.starts_with('#')).map(|key| key.name.clone());
    let add = table.foreign_keys.iter().filter_map(|key| {
        let own = own_name(&key.name)?;
        // Somebody has taken the name since, for a key of another table.
        let name = if attempt > ATTEMPTS_MAX / 2 { format!("{own}_{attempt}") } else { own.to_owned() };
        let parent = catalog.find(&key.parent_database, &key.parent_table);
        let (parent_id, parent_version) = parent.map_or((0, 0), |p| (p.schema.id.0, p.schema.version));
        Some(ForeignKeyMessage { name, parent_id, parent_version, ..ForeignKeyMessage::from(key) })
    });
    let name = TableName { database: table.database.clone(), table: table.name.clone(), version: 0 };
    Change::ChangeForeignKeys(ForeignKeysChange {
        table: Some(name),
        id: table.id.0,
        version: table.version,
        drop: drop.collect(),
        add: add.collect(),
    })
}

/// Whether a statement that changes rows of these tables waits. `worked`: tables of which its open transaction has changed or locked rows before.
pub fn is_closed_for(catalog: &Catalog, tables: Vec<TableId>, worked: &[TableId]) -> bool {
    match closed(catalog, tables) {
        None => false,
        // The copy waits for such a transaction.
        Some(Stage::Closing) => closed(catalog, worked.to_vec()).is_none(),
        Some(_) => true,
    }
}

/// How far the copy is that is in the way of changes of these tables, or of others that follow.
fn closed(catalog: &Catalog, tables: Vec<TableId>) -> Option<Stage> {
    if catalog.copies.are_none() {
        return None;
    }
    let mut open = tables;
    let mut seen: BTreeSet<TableId> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        let Some(rules) = catalog.rules(id) else { continue };
        for child in rules.children.iter().map(|reference| reference.child.schema.id) {
            if seen.insert(child) {
                open.push(child);
            }
        }
    }
    let parents: Vec<TableId> = seen
        .iter()
        .filter_map(|id| catalog.rules(*id))
        .flat_map(|rules| rules.parents.clone())
        .filter_map(|reference| reference.parent.as_ref().map(|parent| parent.table.schema.id))
        .collect();
    seen.iter().chain(&parents).filter_map(|id| catalog.copies.stage(*id)).max()
}

/// Whether a table of this name is being copied.
pub fn is_copied(catalog: &Catalog, database: &str, name: &str) -> bool {
    !catalog.copies.are_none()
        && catalog.find(database, name).is_some_and(|table| catalog.copies.closes(table.schema.id))
}

/// Whether something in a database is being copied.
pub fn is_copied_in(catalog: &Catalog, database: &str) -> bool {
    catalog.tables_of(database).any(|table| catalog.copies.closes(table.schema.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_stand_for() {
        for stage in Stage::ALL {
            let mark = Mark { stage, number: 7, original: TableId(12) };
            assert_eq!(Mark::read(&mark.name()), Some(mark));
        }
        assert_eq!(Mark::read("#filling#7"), None);
        assert_eq!([number("#alter#17"), number("#alter#"), number("#made#1")], [Some(17), None, None]);
        assert_eq!(own_name(&kept_name(3, "t#ibfk_1")), Some("t#ibfk_1"));
    }
}

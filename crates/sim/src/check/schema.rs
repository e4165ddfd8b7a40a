//! The dictionaries of all nodes, read at rest, held against each other and against what the clients that changed the schema were told.
//!
//! Every node has the same version and the same content; what was acknowledged is there, what was refused is not, and what nobody could tell
//! is there or not, but on all nodes alike. The workers of each node have the tables of the dictionary and no others.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::dict::Dictionary;
use apus_types::{NodeId, TableSchema};

use super::unique::ADDED;

/// What there is of a table or an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    Absent,
    /// A unique index that may not have all entries yet.
    Building,
    Ready,
}

/// A table, or an index or a column of the table whose indexes and columns come and go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    Table(String),
    Index(String),
    Column(String),
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Made,
    Refused,
    /// It may be made, also later.
    Unknown,
}

/// What there may be of the objects of a database, as those who change them know it.
#[derive(Clone, Debug)]
pub struct Objects {
    database: String,
    /// The table whose indexes come and go.
    indexed: String,
    possible: BTreeMap<Object, Vec<Presence>>,
}

impl Objects {
    /// A database in which there is only the table whose indexes come and go, without any.
    pub fn new(database: &str, indexed: &str) -> Objects {
        let first = (Object::Table(indexed.to_owned()), vec![Presence::Ready]);
        Objects { database: database.to_owned(), indexed: indexed.to_owned(), possible: BTreeMap::from([first]) }
    }
    /// What there is, if that is certain.
    pub fn certain(&self, object: &Object) -> Option<Presence> {
        match self.possible.get(object).map(Vec::as_slice) {
            None => Some(Presence::Absent),
            Some([one]) => Some(*one),
            Some(_) => None,
        }
    }
    /// The tables that are certainly there.
    pub fn certainly_ready(&self) -> impl Iterator<Item = &str> {
        self.possible.iter().filter_map(|(object, possible)| match (object, possible.as_slice()) {
            (Object::Table(name), [Presence::Ready]) => Some(name.as_str()),
            _ => None,
        })
    }
    /// A change that leads to `presence`.
    pub fn settle(&mut self, object: &Object, presence: Presence, fate: Fate) {
        let possible = self.possible.entry(object.clone()).or_insert_with(|| vec![Presence::Absent]);
        match fate {
            Fate::Made => *possible = vec![presence],
            Fate::Unknown if !possible.contains(&presence) => possible.push(presence),
            _ => {}
        }
    }
    /// Holds the dictionary of a cluster at rest against what may be, which is certain from now on.
    ///
    /// # Errors
    /// What is there and should not be, or is not there and should be.
    pub fn check(&mut self, dictionary: &Dictionary) -> Result<(), String> {
        let mut found: BTreeMap<Object, Presence> = BTreeMap::new();
        for table in dictionary.tables.iter().filter(|t| t.database == self.database && t.base_table == 0) {
            found.insert(Object::Table(table.name.clone()), Presence::Ready);
            for index in table.indexes.iter().filter(|_| table.name == self.indexed) {
                let presence = if index.building { Presence::Building } else { Presence::Ready };
                found.insert(Object::Index(index.name.clone()), presence);
            }
            let added = table.columns.iter().find(|column| table.name == self.indexed && column.name == ADDED);
            found.extend(added.map(|column| (Object::Column(column.name.clone()), Presence::Ready)));
        }
        if let Some(object) = found.keys().find(|object| !self.possible.contains_key(object)) {
            return Err(format!("{object:?} is there, which nobody has made"));
        }
        for (object, possible) in &mut self.possible {
            let presence = found.get(object).copied().unwrap_or(Presence::Absent);
            if !possible.contains(&presence) {
                return Err(format!("{object:?} is {presence:?}, not one of {possible:?}"));
            }
            *possible = vec![presence];
        }
        Ok(())
    }
}

/// The dictionary that all nodes have.
///
/// # Errors
/// Two that differ, or one that contradicts itself.
pub fn agreed(all: &BTreeMap<NodeId, Dictionary>) -> Result<&Dictionary, String> {
    let (first, dictionary) = all.first_key_value().ok_or("no node was asked for its dictionary")?;
    for (node, other) in all {
        if other.version != dictionary.version {
            let (a, b) = (dictionary.version, other.version);
            return Err(format!("the dictionary of node {first} has version {a}, that of node {node} {b}"));
        }
        let names = |d: &Dictionary| d.databases.iter().map(|d| d.name.clone()).collect::<BTreeSet<_>>();
        if names(other) != names(dictionary) {
            return Err(format!("the databases of nodes {first} and {node} differ at version {}", other.version));
        }
        if let Some(table) = dictionary.tables.iter().chain(&other.tables).find(|table| {
            let of = |d: &'_ Dictionary| d.tables.iter().find(|t| t.id == table.id).cloned();
            of(dictionary) != of(other)
        }) {
            let (name, version) = (&table.name, other.version);
            return Err(format!(
                "table {} ({name}) of nodes {first} and {node} differs at version {version}",
                table.id
            ));
        }
        if other.next_table_id != dictionary.next_table_id {
            return Err(format!("nodes {first} and {node} would give the next table different ids"));
        }
    }
    check_whole(dictionary)?;
    Ok(dictionary)
}

/// Every unique index, and every one of lists, has its hidden table, every hidden table its index, no id and no name is there twice.
fn check_whole(dictionary: &Dictionary) -> Result<(), String> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut hidden: BTreeMap<u32, u32> = BTreeMap::new();
    for table in &dictionary.tables {
        let schema = TableSchema::try_from(table).map_err(|_| format!("table {} is not understood", table.name))?;
        if !ids.insert(table.id) || !names.insert((table.database.clone(), table.name.clone())) {
            return Err(format!("table {} ({}) is there twice", table.id, table.name));
        }
        if table.id >= dictionary.next_table_id {
            return Err(format!("the id of table {} will be given out again", table.id));
        }
        for index in &schema.indexes {
            match (index.unique || index.list.is_some(), index.hidden_table) {
                (true, None) => return Err(format!("index {} of {} has no hidden table", index.name, table.name)),
                (false, Some(_)) => return Err(format!("index {} of {} has a hidden table", index.name, table.name)),
                (true, Some(entries)) => drop(hidden.insert(entries.0, table.id)),
                (false, None) => {}
            }
        }
    }
    for table in dictionary.tables.iter().filter(|t| t.base_table != 0) {
        if hidden.remove(&table.id) != Some(table.base_table) {
            return Err(format!("the hidden table {} ({}) belongs to no index", table.id, table.name));
        }
    }
    match hidden.first_key_value() {
        Some((entries, base)) => Err(format!("the hidden table {entries} of table {base} is missing")),
        None => Ok(()),
    }
}

/// Whether the workers of each node have the tables of the dictionary; fragments are named `database.name part number`.
///
/// # Errors
/// What a node has too much or too little.
pub fn check_carried_out(dictionary: &Dictionary, fragments: &[(NodeId, String)]) -> Result<(), String> {
    let wanted: BTreeSet<String> = dictionary.tables.iter().map(|t| format!("{}.{}", t.database, t.name)).collect();
    let mut seen = BTreeSet::new();
    let mut nodes: BTreeMap<NodeId, BTreeSet<String>> = BTreeMap::new();
    for (node, name) in fragments {
        if !seen.insert((node, name)) {
            return Err(format!("node {node} has the fragment {name} of two tables"));
        }
        let table = name.rsplit_once(" part ").map_or(name.as_str(), |(table, _)| table);
        nodes.entry(*node).or_default().insert(table.to_owned());
    }
    for (node, tables) in nodes {
        if let Some(name) = tables.difference(&wanted).next() {
            return Err(format!("node {node} has fragments of {name}, which the dictionary does not know"));
        }
        if let Some(name) = wanted.difference(&tables).next() {
            return Err(format!("node {node} has no fragment of {name}, which is in the dictionary"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use apus_signal::{dict::DatabaseMessage, schema::TableMessage};
    use apus_types::{Column, ColumnType, IndexDef, IndexNo, IndexState, TableId};

    use super::*;

    fn schema(id: u32, name: &str) -> TableSchema {
        let column =
            |name: &str| Column { nullable: false, ..Column::new(name, ColumnType::Int { bits: 64, unsigned: true }) };
        let mut table = TableSchema::new("d", name, vec![column("a"), column("b")], vec![0]);
        table.id = TableId(id);
        table
    }
    /// Table 3 with unique index `u`, whose hidden table is 2, and ordered index `o`; table 4.
    fn good() -> Dictionary {
        let mut stock = schema(3, "stock");
        let index = |no, name: &str, hidden: Option<u32>| IndexDef {
            no: IndexNo(no),
            name: name.to_owned(),
            columns: vec![1],
            list: None,
            unique: hidden.is_some(),
            hidden_table: hidden.map(TableId),
            prefixes: Vec::new(),
            state: if hidden.is_some() { IndexState::Building } else { IndexState::Ready },
        };
        stock.indexes = vec![index(1, "u", Some(2)), index(2, "o", None)];
        let mut hidden = TableSchema::hidden_for(&stock, &stock.indexes[0]);
        hidden.id = TableId(2);
        Dictionary {
            version: 9,
            databases: vec![DatabaseMessage { name: "d".to_owned(), collation: 255 }],
            tables: [&hidden, &stock, &schema(4, "t")].map(TableMessage::from).to_vec(),
            next_table_id: 5,
            executed: Vec::new(),
            ..Dictionary::default()
        }
    }
    /// Of two nodes, after the second one's dictionary was changed.
    fn compared(change: impl FnOnce(&mut Dictionary)) -> String {
        let mut other = Dictionary { request: 77, ..good() };
        change(&mut other);
        agreed(&BTreeMap::from([(NodeId(1), good()), (NodeId(2), other)])).err().unwrap_or_default()
    }
    fn alone(change: impl FnOnce(&mut Dictionary)) -> String {
        let mut only = good();
        change(&mut only);
        agreed(&BTreeMap::from([(NodeId(1), only)])).err().unwrap_or_default()
    }

    #[test]
    fn all_nodes_have_the_same() {
        assert_eq!(compared(|_| {}), "");
        assert!(agreed(&BTreeMap::new()).is_err());
        assert!(compared(|d| d.version = 8).contains("node 2 8"));
        assert!(compared(|d| d.tables.truncate(2)).contains("table 4 (t) of nodes 1 and 2 differs"));
        assert!(compared(|d| d.tables.push(TableMessage::from(&schema(5, "v")))).contains("table 5 (v)"));
        assert!(compared(|d| d.tables[1].version = 2).contains("table 3 (stock)"));
        assert!(compared(|d| d.tables[1].indexes[0].building = false).contains("table 3 (stock)"));
        assert!(compared(|d| d.databases.clear()).contains("databases"));
        assert!(compared(|d| d.next_table_id = 6).contains("different ids"));
    }

    #[test]
    fn a_dictionary_does_not_contradict_itself() {
        assert!(alone(|d| drop(d.tables.remove(0))).contains("hidden table 2 of table 3 is missing"));
        assert!(alone(|d| drop(d.tables[1].indexes.remove(0))).contains("belongs to no index"));
        assert!(alone(|d| d.tables[1].indexes[0].hidden_table = 0).contains("has no hidden table"));
        assert!(alone(|d| d.tables[1].indexes[1].hidden_table = 4).contains("has a hidden table"));
        assert!(alone(|d| d.tables[2].name = "stock".to_owned()).contains("is there twice"));
        assert!(alone(|d| d.tables[2].id = 3).contains("is there twice"));
        assert!(alone(|d| d.next_table_id = 4).contains("given out again"));
    }

    #[test]
    fn acknowledged_is_there_and_refused_is_not() {
        let (table, index) = (|n: &str| Object::Table(n.to_owned()), |n: &str| Object::Index(n.to_owned()));
        let told = || {
            let mut objects = Objects::new("d", "stock");
            objects.settle(&table("t"), Presence::Ready, Fate::Made);
            objects.settle(&index("u"), Presence::Building, Fate::Made);
            objects.settle(&index("o"), Presence::Ready, Fate::Unknown);
            objects.settle(&table("v"), Presence::Ready, Fate::Refused);
            objects.settle(&table("w"), Presence::Ready, Fate::Unknown);
            objects
        };
        let mut objects = told();
        assert_eq!((objects.certain(&index("o")), objects.certain(&table("x"))), (None, Some(Presence::Absent)));
        assert_eq!(objects.check(&good()), Ok(()));
        let now = [index("u"), index("o"), table("w")].map(|o| objects.certain(&o));
        assert_eq!(now, [Some(Presence::Building), Some(Presence::Ready), Some(Presence::Absent)]);

        let broken = |change: fn(&mut Dictionary)| {
            let mut found = good();
            change(&mut found);
            told().check(&found).err().unwrap_or_default()
        };
        assert!(broken(|d| d.tables.truncate(2)).contains("Table(\"t\") is Absent"));
        assert!(broken(|d| d.tables[1].indexes.truncate(0)).contains("Index(\"u\") is Absent"));
        assert!(broken(|d| d.tables[1].indexes[0].building = false).contains("Index(\"u\") is Ready"));
        assert!(broken(|d| d.tables.push(TableMessage::from(&schema(5, "v")))).contains("Table(\"v\") is Ready"));
        assert!(broken(|d| d.tables.push(TableMessage::from(&schema(5, "x")))).contains("nobody has made"));
        assert_eq!(broken(|d| d.tables.push(TableMessage::from(&schema(5, "w")))), "");
        objects.settle(&index("u"), Presence::Ready, Fate::Unknown);
        objects.settle(&table("t"), Presence::Absent, Fate::Made);
        assert!(objects.check(&good()).is_err_and(|what| what.contains("Table(\"t\") is Ready")));
    }

    #[test]
    fn workers_have_what_the_dictionary_has() {
        let name = |table: &str, part: u32| format!("d.{table} part {part}");
        let tables = ["stock", "t", "#unique#stock#u"];
        let all: Vec<String> = tables.iter().flat_map(|table| [name(table, 0), name(table, 7)]).collect();
        let with = |change: &dyn Fn(&mut Vec<String>)| {
            let mut second = all.clone();
            change(&mut second);
            let first = all.iter().map(|name| (NodeId(1), name.clone()));
            let fragments: Vec<_> = first.chain(second.into_iter().map(|name| (NodeId(2), name))).collect();
            check_carried_out(&good(), &fragments).err().unwrap_or_default()
        };
        assert_eq!(with(&|_| {}), "");
        assert!(with(&|f| f.retain(|name| !name.starts_with("d.t "))).contains("node 2 has no fragment of d.t"));
        assert!(with(&|f| f.push(name("old", 0))).contains("fragments of d.old"));
        assert!(with(&|f| f.push(name("t", 7))).contains("node 2 has the fragment d.t part 7 of two tables"));
    }
}

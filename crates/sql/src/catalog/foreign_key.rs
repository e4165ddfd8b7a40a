//! Foreign keys as SQL nodes hold them.
//!
//! The dictionary keeps what was defined ([`apus_types::foreign_key`]); from it the catalog makes [`Rules`] for each table that refers to another or is referred to.
//! A statement that changes rows of such a table asks for them ([`rules`]) and goes by `exec::foreign_key`, unless the session said `foreign_key_checks = 0`. A table
//! without rules is told by two fields of its definition.
//!
//! `clause` reads definitions, `define` judges them, `validate` looks at the rows that are there already.
//!
//! A plan holds its table's definition. That changes with each key of the table and, because the data nodes require a new version of it, with each new key that refers
//! to it; so a plan that does not know its rules is stale, here and on other SQL nodes. See docs/decisions/0028-foreign-keys.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_types::{IndexNo, IndexState, TableId, TableSchema, foreign_key::ForeignKey};

use super::{Catalog, Table};
use crate::{parse::view_text::quoted, session::Session};

/// How a row that is referred to is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParentKey {
    Primary,
    /// By the unique index of this position.
    Unique(usize),
}

#[derive(Debug)]
pub struct Parent {
    pub table: Rc<Table>,
    /// In the order of the key.
    pub columns: Vec<u16>,
    pub by: ParentKey,
}

/// A foreign key between two tables.
#[derive(Debug)]
pub struct Reference {
    pub key: ForeignKey,
    pub child: Rc<Table>,
    /// Begins with the key's columns; none: all rows are looked at.
    pub index: Option<IndexNo>,
    /// None: it is not there, or not as it would have to be.
    pub parent: Option<Parent>,
}

/// What the rows of a table are held to.
#[derive(Debug)]
pub struct Rules {
    /// What its rows refer to, by name.
    pub parents: Vec<Rc<Reference>>,
    /// What refers to its rows, the oldest first.
    pub children: Vec<Rc<Reference>>,
    /// A change of one row may change others of the table, or be forbidden by them.
    pub is_cyclic: bool,
}

impl Rules {
    /// A change of these columns has to be looked at.
    pub fn concerns(&self, mut columns: impl Iterator<Item = u16>) -> bool {
        columns.any(|c| {
            let refers = |r: &Rc<Reference>| r.key.columns.contains(&c);
            let is_referred = |r: &Rc<Reference>| r.parent.as_ref().is_some_and(|p| p.columns.contains(&c));
            self.parents.iter().any(refers) || self.children.iter().any(is_referred)
        })
    }
}

impl Reference {
    /// The table refers to itself.
    pub fn is_of_itself(&self) -> bool {
        self.parent.as_ref().is_some_and(|p| p.table.schema.id == self.child.schema.id)
    }
    /// The constraint as errors name it.
    pub fn text(&self) -> String {
        let schema = &self.child.schema;
        let (database, table) = (quoted(&schema.database), quoted(&schema.name));
        format!("{database}.{table}, {}", definition(schema, &self.key))
    }
}

/// A key as it is defined.
pub fn definition(table: &TableSchema, key: &ForeignKey) -> String {
    let list = |names: Vec<String>| names.join(", ");
    let columns = key.columns.iter().map(|&c| quoted(&table.columns[usize::from(c)].name)).collect();
    let other = match key.parent_database == table.database {
        true => String::new(),
        false => format!("{}.", quoted(&key.parent_database)),
    };
    let mut text = format!(
        "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {other}{} ({})",
        quoted(&key.name),
        list(columns),
        quoted(&key.parent_table),
        list(key.parent_columns.iter().map(|c| quoted(c)).collect())
    );
    for (action, on) in [(key.on_delete, "DELETE"), (key.on_update, "UPDATE")] {
        if action != Default::default() {
            text.push_str(&format!(" ON {on} {}", action.name()));
        }
    }
    text
}

/// The keys of a table in the order in which they are shown and looked at.
pub fn by_name(table: &TableSchema) -> Vec<&ForeignKey> {
    let mut keys: Vec<&ForeignKey> = table.foreign_keys.iter().collect();
    keys.sort_by_key(|key| key.name.to_lowercase());
    keys
}

/// The index whose front these columns are.
pub fn index_for(table: &TableSchema, columns: &[u16]) -> Option<IndexNo> {
    if table.primary_key.starts_with(columns) {
        return Some(IndexNo(0));
    }
    let fits = |index: &&apus_types::IndexDef| index.columns.starts_with(columns);
    let ready = |index: &&apus_types::IndexDef| index.state == IndexState::Ready && index.is_whole();
    table.indexes.iter().filter(ready).find(fits).map(|index| index.no)
}

/// The unique key of a table that has just these columns.
pub fn unique_for(table: &TableSchema, columns: &[u16]) -> Option<ParentKey> {
    if table.primary_key == columns {
        return Some(ParentKey::Primary);
    }
    let is_whole = |index: &apus_types::IndexDef| index.state == IndexState::Ready && index.is_whole();
    let fits = |index: &apus_types::IndexDef| index.unique && is_whole(index) && index.columns == columns;
    table.indexes.iter().position(fits).map(ParentKey::Unique)
}

fn parent_of(key: &ForeignKey, catalog: &Catalog) -> Option<Parent> {
    let table = catalog.find(&key.parent_database, &key.parent_table)?;
    let columns = key.parent_columns.iter().map(|c| table.schema.column_no(c)).collect::<Option<Vec<_>>>()?;
    let by = unique_for(&table.schema, &columns)?;
    Some(Parent { table, columns, by })
}

/// The name of the unique key that a key refers to.
pub fn parent_key_name(key: &ForeignKey, catalog: &Catalog) -> Option<String> {
    let parent = parent_of(key, catalog)?;
    Some(match parent.by {
        ParentKey::Primary => "PRIMARY".to_owned(),
        ParentKey::Unique(position) => parent.table.schema.indexes.get(position)?.name.clone(),
    })
}

/// The rules of all tables that have some.
pub fn all_rules(catalog: &Catalog) -> BTreeMap<TableId, Rc<Rules>> {
    let mut parents: BTreeMap<TableId, Vec<Rc<Reference>>> = BTreeMap::new();
    let mut children: BTreeMap<TableId, Vec<Rc<Reference>>> = BTreeMap::new();
    for child in catalog.tables() {
        for key in &child.schema.foreign_keys {
            let index = index_for(&child.schema, &key.columns);
            let (key, child, parent) = (key.clone(), child.clone(), parent_of(key, catalog));
            let reference = Rc::new(Reference { key, child, index, parent });
            parents.entry(reference.child.schema.id).or_default().push(reference.clone());
            if let Some(parent) = &reference.parent {
                children.entry(parent.table.schema.id).or_default().push(reference.clone());
            }
        }
    }
    let ids: BTreeSet<TableId> = parents.keys().chain(children.keys()).copied().collect();
    let is_cyclic = |id: TableId| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![id]);
        while let Some(next) = open.pop() {
            for child in children.get(&next).into_iter().flatten().map(|r| r.child.schema.id) {
                if child == id {
                    return true;
                }
                if seen.insert(child) {
                    open.push(child);
                }
            }
        }
        false
    };
    let rules = |id: TableId| {
        let mut parents = parents.get(&id).cloned().unwrap_or_default();
        parents.sort_by_key(|r| r.key.name.to_lowercase());
        let mut children = children.get(&id).cloned().unwrap_or_default();
        children.sort_by_key(|r| (r.key.created, r.child.schema.id));
        (id, Rc::new(Rules { parents, children, is_cyclic: is_cyclic(id) }))
    };
    ids.iter().map(|&id| rules(id)).collect()
}

/// What a statement of the session has to hold rows of this table to.
#[inline]
pub fn rules(session: &Session, catalog: &Catalog, table: &TableSchema) -> Option<Rc<Rules>> {
    if !table.is_constrained() || !session.env.variables.foreign_key_checks {
        return None;
    }
    catalog.rules(table.id)
}

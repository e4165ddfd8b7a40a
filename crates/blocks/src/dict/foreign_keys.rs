//! Foreign keys in a schema change: what it means for tables besides the one that it names.
//!
//! A change is planned as if there were no foreign keys; then [`settle`] looks at what it would leave. Tables that refer to one that gets another name, or whose columns
//! do, follow in the same step. A table to which somebody begins to refer gets a new version, which the data nodes require of all who write
//! its rows ([`apus_types::foreign_key::Held`]). Where no table has a foreign key nothing is looked at and nothing is added.
//!
//! Whether a key may be made (columns, indexes, rows) is for the SQL nodes to say: they name the version of the other table by which they have judged.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::{
    dict::SchemaStep,
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
    schema::TableMessage,
};
use apus_types::{
    ErrorCode, TableId, TableSchema, eras,
    foreign_key::{ForeignKey, Held},
    form::Source,
};

use super::{
    catalog::Catalog,
    plan::{Planner, Refusal},
};

/// Who refers to a table: database, table, name and age of the key.
type Referrer = (String, String, String, u64);

impl Planner<'_> {
    /// The keys that a table is to have, made now.
    pub(super) fn new_foreign_keys(
        &self,
        table: &TableSchema,
        list: &[ForeignKeyMessage],
    ) -> Result<Vec<ForeignKey>, Refusal> {
        let mut keys: Vec<ForeignKey> = Vec::new();
        for message in list.iter().filter(|m| !m.columns.is_empty()) {
            let invalid = || (ErrorCode::InvalidSchema, message.name.clone());
            let mut key = ForeignKey::try_from(message).map_err(|_| invalid())?;
            key.created = self.dictionary_version();
            if !key.refers_to(&table.database, &table.name) {
                let parent = self.catalog.find(&key.parent_database, &key.parent_table);
                let seen = (message.parent_id, message.parent_version);
                if parent.map_or((0, 0), |p| (p.id.0, p.version)) != seen {
                    return Err((ErrorCode::SchemaVersionChanged, key.parent_table));
                }
            }
            let others = self.catalog.tables.values().filter(|t| t.database == table.database && t.id != table.id);
            let mut taken = others.flat_map(|t| &t.foreign_keys).chain(&keys);
            if taken.any(|other| other.name.eq_ignore_ascii_case(&key.name)) {
                return Err((ErrorCode::IndexExists, key.name));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    pub(super) fn change_foreign_keys(&mut self, change: &ForeignKeysChange) -> Result<TableId, Refusal> {
        let mut table = self.user_table(change.table.as_ref())?;
        if (table.id.0, table.version) != (change.id, change.version) {
            return Err((ErrorCode::SchemaVersionChanged, table.name));
        }
        for name in &change.drop {
            let at = table.foreign_keys.iter().position(|key| key.name.eq_ignore_ascii_case(name));
            table.foreign_keys.remove(at.ok_or_else(|| (ErrorCode::IndexNotFound, name.clone()))?);
        }
        let new = self.new_foreign_keys(&table, &change.add)?;
        let is_taken =
            |new: &&ForeignKey| table.foreign_keys.iter().any(|key| key.name.eq_ignore_ascii_case(&new.name));
        if let Some(twin) = new.iter().find(is_taken) {
            return Err((ErrorCode::IndexExists, twin.name.clone()));
        }
        table.version = self.next_version(table.version);
        if !new.is_empty() {
            table.held.since = table.version;
        }
        table.foreign_keys.extend(new);
        self.put(&table)
    }

    /// The rows that were there before the key satisfy it.
    pub(super) fn publish_foreign_key(&mut self, mut table: TableSchema, name: &str) -> Result<TableId, Refusal> {
        let found = table.foreign_keys.iter_mut().find(|key| key.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| (ErrorCode::IndexNotFound, name.to_owned()))?.unchecked = false;
        table.version = self.next_version(table.version);
        self.put(&table)
    }
}

/// The dictionary behind a step, as far as it is another one.
struct After<'a> {
    catalog: &'a Catalog,
    version: u64,
    changed: BTreeMap<u32, TableSchema>,
    dropped: BTreeSet<u32>,
}

impl After<'_> {
    fn tables(&self) -> impl Iterator<Item = &TableSchema> {
        let stays = |t: &&TableSchema| !self.dropped.contains(&t.id.0) && !self.changed.contains_key(&t.id.0);
        self.catalog.tables.values().filter(stays).chain(self.changed.values())
    }
    /// The table to change it, in a version of its own.
    fn change(&mut self, id: u32) -> Option<&mut TableSchema> {
        let known = self.catalog.tables.get(&id);
        let table = self.changed.entry(id).or_insert(known?.clone());
        if known.is_some_and(|known| known.version == table.version) {
            table.version = eras::table_version(self.version, table.version);
        }
        Some(table)
    }
    /// Ids of tables with a key that refers to this name.
    fn referring(&self, database: &str, name: &str) -> Vec<u32> {
        let refers = |t: &&TableSchema| t.foreign_keys.iter().any(|key| key.refers_to(database, name));
        self.tables().filter(refers).map(|t| t.id.0).collect()
    }

    fn follow_names(&mut self, old: &TableSchema, new: &TableSchema) {
        if (&old.database, &old.name) == (&new.database, &new.name) {
            return;
        }
        for id in self.referring(&old.database, &old.name) {
            let Some(table) = self.change(id) else { continue };
            for key in table.foreign_keys.iter_mut().filter(|key| key.refers_to(&old.database, &old.name)) {
                key.parent_database.clone_from(&new.database);
                key.parent_table.clone_from(&new.name);
            }
        }
        let generated = format!("{}_ibfk_", old.name);
        for key in self.changed.get_mut(&new.id.0).into_iter().flat_map(|table| &mut table.foreign_keys) {
            if let Some(number) = key.name.strip_prefix(&generated) {
                key.name = format!("{}_ibfk_{number}", new.name);
            }
        }
    }

    fn follow_columns(&mut self, old: &TableSchema, new: &TableSchema) {
        let older = new.older.iter().find(|older| older.number == old.form);
        let now = |at: usize| match older.filter(|_| new.form != old.form) {
            Some(older) => older.sources.iter().position(|source| *source == Source::Kept(at as u16)),
            None => Some(at),
        };
        let named = |(at, column): (usize, &apus_types::Column)| {
            let name = &new.columns.get(now(at)?)?.name;
            (*name != column.name).then(|| (column.name.clone(), name.clone()))
        };
        let names: BTreeMap<String, String> = old.columns.iter().enumerate().filter_map(named).collect();
        if names.is_empty() {
            return;
        }
        for id in self.referring(&new.database, &new.name) {
            let Some(table) = self.change(id) else { continue };
            for key in table.foreign_keys.iter_mut().filter(|key| key.refers_to(&new.database, &new.name)) {
                for column in &mut key.parent_columns {
                    if let Some(name) = names.get(column) {
                        column.clone_from(name);
                    }
                }
            }
        }
    }

    /// Marks the tables that are referred to.
    fn mark(&mut self) {
        let before = referrers(self.catalog.tables.values());
        let after = referrers(self.tables());
        let none = BTreeSet::new();
        let tables: Vec<TableSchema> = self.tables().filter(|t| t.base_table.is_none()).cloned().collect();
        for table in &tables {
            let name = (table.database.clone(), table.name.clone());
            let (before, after) = (before.get(&name).unwrap_or(&none), after.get(&name).unwrap_or(&none));
            let is_referenced = !after.is_empty();
            let known = self.catalog.tables.get(&table.id.0);
            let is_new_name =
                known.is_none_or(|known| (&known.database, &known.name) != (&table.database, &table.name));
            let has_new = !after.is_subset(before) || is_referenced && is_new_name;
            if !has_new && table.held.is_referenced == is_referenced {
                continue;
            }
            if let Some(table) = self.change(table.id.0) {
                let since = if has_new { table.version } else { table.held.since };
                table.held = Held { is_referenced, since };
            } else if let Some(made) = self.changed.get_mut(&table.id.0) {
                made.held.is_referenced = is_referenced;
            }
        }
    }
}

fn referrers<'t>(tables: impl Iterator<Item = &'t TableSchema>) -> BTreeMap<(String, String), BTreeSet<Referrer>> {
    let mut found: BTreeMap<_, BTreeSet<Referrer>> = BTreeMap::new();
    for table in tables {
        for key in &table.foreign_keys {
            let parent = (key.parent_database.clone(), key.parent_table.clone());
            let referrer = (table.database.clone(), table.name.clone(), key.name.clone(), key.created);
            found.entry(parent).or_default().insert(referrer);
        }
    }
    found
}

/// Adds to a step what it means for other tables.
///
/// # Errors
/// A table of the step does not decode.
pub(super) fn settle(catalog: &Catalog, step: &mut SchemaStep) -> Result<(), Refusal> {
    let has_keys = catalog.tables.values().any(|t| !t.foreign_keys.is_empty());
    if !has_keys && step.upsert_tables.iter().all(|t| t.foreign_keys.is_empty()) {
        return Ok(());
    }
    let mut changed = BTreeMap::new();
    for message in step.upsert_tables.iter().filter(|t| t.base_table == 0) {
        let table = TableSchema::try_from(message).map_err(|_| (ErrorCode::InvalidSchema, message.name.clone()))?;
        changed.insert(message.id, table);
    }
    let named: Vec<TableSchema> = changed.values().cloned().collect();
    let dropped = step.drop_tables.iter().copied().collect();
    let mut after = After { catalog, version: step.version, changed, dropped };
    for new in &named {
        if let Some(old) = catalog.tables.get(&new.id.0) {
            after.follow_names(old, new);
            after.follow_columns(old, new);
        }
    }
    after.mark();
    for (id, table) in &after.changed {
        let message = TableMessage::from(table);
        match step.upsert_tables.iter_mut().find(|t| t.id == *id) {
            Some(known) => *known = message,
            // What the change itself leaves stays the last.
            None => step.upsert_tables.insert(0, message),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use apus_signal::{
        dict::{Change, ColumnsChange, IndexChange, RenameTable, TableName},
        schema::{SourceMessage, column_to_wire},
    };
    use apus_types::{Column, ColumnType, foreign_key::Action};

    use super::{
        super::plan::{bootstrap, plan},
        *,
    };

    fn name(table: &str) -> TableName {
        TableName { database: "test".to_owned(), table: table.to_owned(), version: 0 }
    }
    fn run(catalog: &mut Catalog, change: Change) -> Result<(), ErrorCode> {
        let plan = plan(catalog, 1, &change, 0).map_err(|e| e.0)?;
        catalog.apply(&plan.step).unwrap();
        Ok(())
    }
    fn table(name: &str) -> TableSchema {
        let int = ColumnType::Int { bits: 32, unsigned: false };
        let columns = vec![Column { nullable: false, ..Column::new("id", int) }, Column::new("p", int)];
        TableSchema::new("test", name, columns, vec![0])
    }
    fn key_to(catalog: &Catalog, key: &str, parent: &str) -> ForeignKeyMessage {
        let seen = catalog.find("test", parent).map_or((0, 0), |t| (t.id.0, t.version));
        let key = ForeignKey {
            name: key.to_owned(),
            columns: vec![1],
            parent_database: "test".to_owned(),
            parent_table: parent.to_owned(),
            parent_columns: vec!["id".to_owned()],
            on_delete: Action::Cascade,
            on_update: Action::NoAction,
            matching: Default::default(),
            created: 0,
            unchecked: false,
        };
        ForeignKeyMessage { parent_id: seen.0, parent_version: seen.1, ..ForeignKeyMessage::from(&key) }
    }
    fn create(catalog: &mut Catalog, name: &str, keys: Vec<ForeignKeyMessage>) -> Result<(), ErrorCode> {
        run(catalog, Change::CreateTable(TableMessage { foreign_keys: keys, ..TableMessage::from(&table(name)) }))
    }
    fn start() -> Catalog {
        let mut catalog = Catalog::default();
        let step = bootstrap(&catalog, 0).step;
        catalog.apply(&step).unwrap();
        create(&mut catalog, "p", Vec::new()).unwrap();
        catalog
    }
    fn held(catalog: &Catalog, table: &str) -> (u32, Held) {
        let table = catalog.find("test", table).unwrap();
        (table.version, table.held)
    }

    #[test]
    fn a_table_that_is_referred_to_gets_a_version_that_writers_must_know() {
        let mut catalog = start();
        let stale = key_to(&catalog, "k", "p");
        let first = key_to(&catalog, "c_ibfk_1", "p");
        create(&mut catalog, "c", vec![first]).unwrap();
        assert_eq!(held(&catalog, "p"), (2, Held { is_referenced: true, since: 2 }));
        assert_eq!(create(&mut catalog, "d", vec![stale]), Err(ErrorCode::SchemaVersionChanged));
        let twin = key_to(&catalog, "C_IBFK_1", "p");
        assert_eq!(create(&mut catalog, "d", vec![twin]), Err(ErrorCode::IndexExists));
        let second = key_to(&catalog, "d_1", "p");
        create(&mut catalog, "d", vec![second]).unwrap();
        assert_eq!(held(&catalog, "p"), (3, Held { is_referenced: true, since: 3 }));
        run(&mut catalog, Change::DropTable(name("d"))).unwrap();
        assert_eq!(held(&catalog, "p"), (3, Held { is_referenced: true, since: 3 }), "somebody refers to it still");
        run(&mut catalog, Change::DropTable(name("c"))).unwrap();
        assert_eq!(held(&catalog, "p"), (4, Held { is_referenced: false, since: 3 }));
    }

    #[test]
    fn keys_follow_the_names_of_what_they_refer_to() {
        let mut catalog = start();
        let key = key_to(&catalog, "c_ibfk_1", "p");
        create(&mut catalog, "c", vec![key]).unwrap();
        let rename = |from: &str, to: &str| RenameTable { from: Some(name(from)), to: Some(name(to)) };
        run(&mut catalog, Change::RenameTable(rename("p", "q"))).unwrap();
        run(&mut catalog, Change::RenameTable(rename("c", "d"))).unwrap();
        let q = catalog.find("test", "q").unwrap().clone();
        let mut columns: Vec<_> = q.columns.iter().map(column_to_wire).collect();
        columns[0].name = "number".to_owned();
        let change = ColumnsChange {
            table: Some(name("q")),
            id: q.id.0,
            version: q.version,
            columns: vec![columns[1].clone(), columns[0].clone()],
            sources: [Source::Kept(1), Source::Kept(0)].iter().map(SourceMessage::from).collect(),
            ..ColumnsChange::default()
        };
        run(&mut catalog, Change::ChangeColumns(change)).unwrap();
        let key = &catalog.find("test", "d").unwrap().foreign_keys[0];
        assert_eq!((key.name.as_str(), key.parent_table.as_str()), ("d_ibfk_1", "q"));
        assert_eq!(key.parent_columns, ["number"]);
    }

    #[test]
    fn keys_wait_for_tables_that_are_not_there() {
        let mut catalog = start();
        let key = key_to(&catalog, "k", "later");
        create(&mut catalog, "c", vec![key]).unwrap();
        create(&mut catalog, "later", Vec::new()).unwrap();
        assert!(held(&catalog, "later").1.is_referenced);
        run(&mut catalog, Change::TruncateTable(name("later"))).unwrap();
        assert!(held(&catalog, "later").1.is_referenced, "also the table that takes its place");
        let is_other = TableName { version: 9, ..name("later") };
        assert_eq!(run(&mut catalog, Change::DropTable(is_other)), Err(ErrorCode::SchemaVersionChanged));
    }

    #[test]
    fn keys_come_and_go_and_are_published() {
        let mut catalog = start();
        create(&mut catalog, "c", Vec::new()).unwrap();
        let c = catalog.find("test", "c").unwrap().clone();
        let add = vec![ForeignKeyMessage { unchecked: true, ..key_to(&catalog, "k", "p") }];
        let change = |version, drop: &[&str], add| {
            let drop = drop.iter().map(|name| (*name).to_owned()).collect();
            Change::ChangeForeignKeys(ForeignKeysChange { table: Some(name("c")), id: c.id.0, version, drop, add })
        };
        run(&mut catalog, change(c.version, &[], add.clone())).unwrap();
        assert_eq!(run(&mut catalog, change(c.version, &[], add)), Err(ErrorCode::SchemaVersionChanged));
        assert_eq!(held(&catalog, "c"), (2, Held { is_referenced: false, since: 2 }));
        let publish =
            IndexChange { table: Some(name("c")), name: "k".to_owned(), is_foreign_key: true, ..Default::default() };
        run(&mut catalog, Change::PublishIndex(publish)).unwrap();
        let key = &catalog.find("test", "c").unwrap().foreign_keys[0];
        assert!(!key.unchecked && key.created > 0);
        assert_eq!(run(&mut catalog, change(3, &["nosuch"], Vec::new())), Err(ErrorCode::IndexNotFound));
        run(&mut catalog, change(3, &["K"], Vec::new())).unwrap();
        assert!(!held(&catalog, "p").1.is_referenced);
    }
}

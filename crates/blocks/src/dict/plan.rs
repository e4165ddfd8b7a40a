//! From a wished change to the step that makes it: all checks and all ids. Pure; executed by the president only.

use apus_signal::{
    dict::{Change, ColumnsChange, DatabaseMessage, IndexChange, RenameTable, SchemaStep, TableName},
    schema::{TableMessage, column_from_wire},
};
use apus_types::{
    Column, ColumnType, ErrorCode, FullText, IndexDef, IndexNo, IndexState, TableId, TableSchema,
    collate::Collation,
    eras,
    form::Source,
    rules::{CheckDef, TriggerDef},
};
use prost::Message;

use super::{
    catalog::{AUTO_INCREMENT_TABLE, Catalog, SYSTEM_DATABASE},
    foreign_keys,
};

/// Most tables, hidden ones included: each costs fragments on every node.
pub const TABLES_MAX: usize = 20_000;
/// Most databases.
pub const DATABASES_MAX: usize = 4096;
/// The dictionary must fit one signal, with room to spare.
pub const DICTIONARY_BYTES_MAX: usize = 12 << 20;
/// Longest name of a database, table or index in characters, as in MySQL.
pub const NAME_CHARS_MAX: usize = 64;

const _: () = assert!(DICTIONARY_BYTES_MAX < apus_types::limits::SIGNAL_BYTES_MAX);

pub(super) type Refusal = (ErrorCode, String);

/// A change ready to be executed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub step: SchemaStep,
    /// The table it leaves behind.
    pub table: Option<TableId>,
}

/// What the first president puts into an empty dictionary.
pub fn bootstrap(catalog: &Catalog, lineage: u64) -> Plan {
    let column = |name: &str, comment: &str| Column {
        nullable: false,
        comment: comment.to_owned(),
        ..Column::new(name, ColumnType::Int { bits: 64, unsigned: true })
    };
    let columns = vec![
        column("counter", "of table << 16 | 1 where it counts rows without a key"),
        column("next_value", "first value not given out"),
    ];
    let mut table = TableSchema::new(SYSTEM_DATABASE, AUTO_INCREMENT_TABLE, columns, vec![0]);
    let mut planner = Planner::new(catalog, 0, lineage);
    table.id = planner.new_id();
    for name in [SYSTEM_DATABASE, "test"] {
        let collation = u32::from(Collation::Utf8mb4GeneralCi.id());
        planner.step.upsert_databases.push(DatabaseMessage { name: name.to_owned(), collation });
    }
    planner.step.upsert_tables.push(TableMessage::from(&table));
    planner.finish(Some(table.id))
}

/// # Errors
/// The code and the name of the object that is in the way.
pub fn plan(catalog: &Catalog, token: u64, change: &Change, lineage: u64) -> Result<Plan, Refusal> {
    let mut planner = Planner::new(catalog, token, lineage);
    let table = match change {
        Change::CreateDatabase(database) => planner.create_database(database).map(|()| None),
        Change::AlterDatabase(database) => planner.alter_database(database).map(|()| None),
        Change::DropDatabase(name) => planner.drop_database(name).map(|()| None),
        Change::CreateTable(table) => planner.create_table(table).map(Some),
        Change::DropTable(name) => planner.drop_table(name).map(|()| None),
        Change::TruncateTable(name) => planner.truncate_table(name).map(Some),
        Change::CreateIndex(index) => planner.create_index(index).map(Some),
        Change::DropIndex(index) => planner.drop_index(index).map(Some),
        Change::RenameTable(names) => planner.rename_table(names).map(Some),
        Change::PublishIndex(index) => planner.publish_index(index).map(Some),
        Change::ChangeColumns(change) => planner.change_columns(change).map(Some),
        Change::ChangeForeignKeys(change) => planner.change_foreign_keys(change).map(Some),
    }?;
    foreign_keys::settle(catalog, &mut planner.step)?;
    let plan = planner.finish(table);
    let added: usize = plan.step.upsert_tables.iter().map(Message::encoded_len).sum();
    let is_new = |database: &&DatabaseMessage| !catalog.databases.contains_key(&database.name);
    let new_databases = plan.step.upsert_databases.iter().filter(is_new).count();
    if catalog.tables.len() + plan.step.upsert_tables.len() > TABLES_MAX
        || catalog.databases.len() + new_databases > DATABASES_MAX
        || (added > 0 && catalog.encoded_bytes() + added > DICTIONARY_BYTES_MAX)
    {
        return Err((ErrorCode::TooManyTables, String::new()));
    }
    Ok(plan)
}

pub(super) struct Planner<'a> {
    pub(super) catalog: &'a Catalog,
    step: SchemaStep,
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let good = !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.contains('\0');
    if good { Ok(()) } else { Err((ErrorCode::InvalidSchema, format!("'{name}' is not a name"))) }
}

fn full_name(name: &TableName) -> String {
    format!("{}.{}", name.database, name.table)
}

impl<'a> Planner<'a> {
    fn new(catalog: &'a Catalog, token: u64, lineage: u64) -> Planner<'a> {
        let step = SchemaStep {
            version: catalog.next_version(lineage),
            follows: catalog.version,
            lineage,
            token,
            next_table_id: catalog.next_table_id,
            ..SchemaStep::default()
        };
        Planner { catalog, step }
    }
    fn finish(self, table: Option<TableId>) -> Plan {
        let (upserts, drops) = (&self.step.upsert_tables, &self.step.drop_tables);
        let is_given = |id: u32| id > 0 && id < self.step.next_table_id;
        assert!(upserts.iter().all(|t| is_given(t.id)), "a table has an id that was not given: {:?}", self.step);
        assert!(drops.iter().all(|id| is_given(*id)), "a table is dropped that never was: {:?}", self.step);
        Plan { step: self.step, table }
    }
    /// To which it leads.
    pub(super) fn dictionary_version(&self) -> u64 {
        self.step.version
    }
    /// The version of a table that the step gives, which had `before`.
    pub(super) fn next_version(&self, before: u32) -> u32 {
        eras::table_version(self.step.version, before)
    }
    fn new_id(&mut self) -> TableId {
        let id = self.step.next_table_id;
        self.step.next_table_id += 1;
        TableId(id)
    }
    fn table(&self, name: Option<&TableName>) -> Result<TableSchema, Refusal> {
        let name = name.ok_or((ErrorCode::InvalidSchema, String::new()))?;
        if !self.catalog.databases.contains_key(&name.database) {
            return Err((ErrorCode::DatabaseNotFound, name.database.clone()));
        }
        self.catalog
            .find(&name.database, &name.table)
            .cloned()
            .ok_or_else(|| (ErrorCode::TableNotFound, full_name(name)))
    }
    /// A table that users may change.
    pub(super) fn user_table(&self, name: Option<&TableName>) -> Result<TableSchema, Refusal> {
        let table = self.table(name)?;
        if name.is_some_and(|name| name.version != 0 && name.version != table.version) {
            return Err((ErrorCode::SchemaVersionChanged, table.name));
        }
        if table.database == SYSTEM_DATABASE {
            return Err((ErrorCode::NotSupported, format!("{}.{} is a system table", table.database, table.name)));
        }
        Ok(table)
    }
    pub(super) fn put(&mut self, table: &TableSchema) -> Result<TableId, Refusal> {
        table.validate()?;
        self.step.upsert_tables.push(TableMessage::from(table));
        Ok(table.id)
    }
    /// Hidden tables come first, so that a table never names one that is not there.
    fn put_hidden(&mut self, base: &TableSchema, index: &mut IndexDef) -> Result<(), Refusal> {
        if index.unique || index.list.is_some() {
            let mut hidden = TableSchema::hidden_for(base, index);
            (hidden.id, hidden.version) = (self.new_id(), self.next_version(0));
            index.hidden_table = Some(hidden.id);
            self.put(&hidden)?;
        }
        Ok(())
    }
    fn drop_with_hidden(&mut self, table: &TableSchema) {
        self.step.drop_tables.push(table.id.0);
        self.step.drop_tables.extend(table.indexes.iter().filter_map(|i| i.hidden_table).map(|t| t.0));
    }

    fn create_database(&mut self, database: &DatabaseMessage) -> Result<(), Refusal> {
        check_name(&database.name)?;
        if self.catalog.databases.contains_key(&database.name) {
            return Err((ErrorCode::DatabaseExists, database.name.clone()));
        }
        self.step.upsert_databases.push(database.clone());
        Ok(())
    }

    /// It is there, and not the system's.
    fn check_own_database(&self, name: &str) -> Result<(), Refusal> {
        if !self.catalog.databases.contains_key(name) {
            return Err((ErrorCode::DatabaseNotFound, name.to_owned()));
        }
        if name == SYSTEM_DATABASE {
            return Err((ErrorCode::NotSupported, format!("{name} is the system's database")));
        }
        Ok(())
    }

    fn alter_database(&mut self, database: &DatabaseMessage) -> Result<(), Refusal> {
        self.check_own_database(&database.name)?;
        self.step.upsert_databases.push(database.clone());
        Ok(())
    }

    fn drop_database(&mut self, name: &str) -> Result<(), Refusal> {
        self.check_own_database(name)?;
        let tables = self.catalog.tables.values().filter(|t| t.database == name);
        self.step.drop_tables.extend(tables.map(|t| t.id.0));
        self.step.drop_databases.push(name.to_owned());
        Ok(())
    }

    fn create_table(&mut self, message: &TableMessage) -> Result<TableId, Refusal> {
        check_name(&message.name)?;
        if !self.catalog.databases.contains_key(&message.database) {
            return Err((ErrorCode::DatabaseNotFound, message.database.clone()));
        }
        let name = format!("{}.{}", message.database, message.name);
        if self.catalog.find(&message.database, &message.name).is_some() {
            return Err((ErrorCode::TableExists, name));
        }
        let mut message = message.clone();
        message.id = self.new_id().0;
        message.version = self.next_version(0);
        message.base_table = 0;
        message.ordered = false;
        (message.form, message.older) = (0, Vec::new());
        let foreign_keys = std::mem::take(&mut message.foreign_keys);
        for (no, index) in (1u32..).zip(&mut message.indexes) {
            check_name(&index.name)?;
            index.no = no;
            index.hidden_table = 0;
            index.building = false;
        }
        for (i, index) in message.indexes.iter().enumerate() {
            if message.indexes.iter().take(i).any(|other| other.name.eq_ignore_ascii_case(&index.name)) {
                return Err((ErrorCode::IndexExists, index.name.clone()));
            }
        }
        let mut table = TableSchema::try_from(&message).map_err(|_| (ErrorCode::InvalidSchema, name))?;
        table.foreign_keys = self.new_foreign_keys(&table, &foreign_keys)?;
        self.add_indexes(&mut table)
    }

    fn add_indexes(&mut self, table: &mut TableSchema) -> Result<TableId, Refusal> {
        let mut indexes = std::mem::take(&mut table.indexes);
        for index in &mut indexes {
            self.put_hidden(table, index)?;
        }
        table.indexes = indexes;
        self.put(table)
    }

    fn drop_table(&mut self, name: &TableName) -> Result<(), Refusal> {
        let table = self.user_table(Some(name))?;
        self.drop_with_hidden(&table);
        Ok(())
    }

    fn truncate_table(&mut self, name: &TableName) -> Result<TableId, Refusal> {
        let mut table = self.user_table(Some(name))?;
        self.drop_with_hidden(&table);
        table.id = self.new_id();
        table.version = self.next_version(table.version);
        table.forget_forms(); // no row is left of any
        for index in &mut table.indexes {
            index.hidden_table = None;
        }
        self.add_indexes(&mut table)
    }

    fn create_index(&mut self, change: &IndexChange) -> Result<TableId, Refusal> {
        let mut table = self.user_table(change.table.as_ref())?;
        check_name(&change.name)?;
        if table.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(&change.name)) {
            return Err((ErrorCode::IndexExists, change.name.clone()));
        }
        if u32::from(table.form) != change.form {
            return Err((ErrorCode::SchemaVersionChanged, change.name.clone()));
        }
        let columns: Result<Vec<u16>, _> = change.columns.iter().map(|&c| u16::try_from(c)).collect();
        let no = table.indexes.iter().map(|i| i.no.0).max().unwrap_or(0).checked_add(1);
        let descending: Result<Vec<u16>, _> = change.descending.iter().map(|&at| u16::try_from(at)).collect();
        let (Ok(columns), Some(no), Ok(descending)) = (columns, no, descending) else {
            return Err((ErrorCode::InvalidSchema, change.name.clone()));
        };
        let state = if change.unique { IndexState::Building } else { IndexState::Ready };
        let (name, unique) = (change.name.clone(), change.unique);
        let prefixes = change.prefixes.clone();
        let (list, hidden_table) = (None, None);
        let mut index = IndexDef { no: IndexNo(no), name, columns, prefixes, unique, list, hidden_table, state };
        self.put_hidden(&table, &mut index)?;
        table.invisible_indexes.extend(change.invisible.then_some(index.no));
        table.descending.extend(descending.into_iter().map(|at| (index.no, at)));
        table.indexes.push(index);
        table.version = self.next_version(table.version);
        self.put(&table)
    }

    fn drop_index(&mut self, change: &IndexChange) -> Result<TableId, Refusal> {
        let mut table = self.user_table(change.table.as_ref())?;
        if change.version != 0 && change.version != table.version {
            return Err((ErrorCode::SchemaVersionChanged, change.name.clone()));
        }
        let at = self.index_position(&table, change)?;
        let index = table.indexes.remove(at);
        table.forget_index(index.no);
        self.step.drop_tables.extend(index.hidden_table.map(|t| t.0));
        table.version = self.next_version(table.version);
        self.put(&table)
    }

    fn publish_index(&mut self, change: &IndexChange) -> Result<TableId, Refusal> {
        let mut table = self.user_table(change.table.as_ref())?;
        if change.is_foreign_key {
            return self.publish_foreign_key(table, &change.name);
        }
        let at = self.index_position(&table, change)?;
        table.indexes[at].state = IndexState::Ready;
        table.version = self.next_version(table.version);
        self.put(&table)
    }

    fn change_columns(&mut self, change: &ColumnsChange) -> Result<TableId, Refusal> {
        let mut table = self.user_table(change.table.as_ref())?;
        let name = || format!("{}.{}", table.database, table.name);
        if (table.id.0, table.version) != (change.id, change.version) {
            return Err((ErrorCode::SchemaVersionChanged, name()));
        }
        let columns = change.columns.iter().map(column_from_wire).collect::<Result<Vec<_>, _>>();
        let sources = change.sources.iter().map(Source::try_from).collect::<Result<Vec<_>, _>>();
        let (Ok(columns), Ok(sources)) = (columns, sources) else { return Err((ErrorCode::InvalidSchema, name())) };
        for index in &change.drop_indexes {
            let at = table.indexes.iter().position(|i| i.name.eq_ignore_ascii_case(index));
            let dropped = table.indexes.remove(at.ok_or_else(|| (ErrorCode::IndexNotFound, index.clone()))?);
            table.forget_index(dropped.no);
            self.step.drop_tables.extend(dropped.hidden_table.map(|t| t.0));
        }
        for (names, is_visible) in [(&change.visible_indexes, true), (&change.invisible_indexes, false)] {
            for name in names {
                let found = table.indexes.iter().find(|i| i.name.eq_ignore_ascii_case(name)).map(|i| i.no);
                let no = found.ok_or_else(|| (ErrorCode::IndexNotFound, name.clone()))?;
                table.invisible_indexes.retain(|other| *other != no);
                table.invisible_indexes.extend((!is_visible).then_some(no));
            }
        }
        if let Some(rules) = &change.checks {
            let checks = rules.checks.iter().map(CheckDef::try_from).collect::<Result<_, _>>();
            table.checks = checks.map_err(|_| (ErrorCode::InvalidSchema, table.name.clone()))?;
        }
        table.change_columns(columns, sources)?;
        if let Some(new) = &change.full_texts {
            let new = new.full_texts.iter().map(FullText::try_from).collect::<Result<_, _>>();
            table.full_texts = new.map_err(|_| (ErrorCode::InvalidSchema, table.name.clone()))?;
        }
        if let Some(new) = &change.triggers {
            table.triggers = new.triggers.iter().map(TriggerDef::from).collect();
            table.refresh();
        }
        table.version = self.next_version(table.version);
        self.put(&table)
    }

    fn index_position(&self, table: &TableSchema, change: &IndexChange) -> Result<usize, Refusal> {
        let found = table.indexes.iter().position(|i| i.name.eq_ignore_ascii_case(&change.name));
        found.ok_or_else(|| (ErrorCode::IndexNotFound, change.name.clone()))
    }

    fn rename_table(&mut self, names: &RenameTable) -> Result<TableId, Refusal> {
        let mut table = self.user_table(names.from.as_ref())?;
        let to = names.to.as_ref().ok_or((ErrorCode::InvalidSchema, table.name.clone()))?;
        check_name(&to.table)?;
        if !self.catalog.databases.contains_key(&to.database) {
            return Err((ErrorCode::DatabaseNotFound, to.database.clone()));
        }
        if to.database == SYSTEM_DATABASE {
            return Err((ErrorCode::NotSupported, format!("{SYSTEM_DATABASE} is the system's database")));
        }
        if self.catalog.find(&to.database, &to.table).is_some() {
            return Err((ErrorCode::TableExists, full_name(to)));
        }
        table.database.clone_from(&to.database);
        table.checks.iter_mut().for_each(|check| check.follow(&table.name, &to.table));
        table.name.clone_from(&to.table);
        table.version = self.next_version(table.version);
        for index in &table.indexes {
            let Some(mut hidden) = index.hidden_table.and_then(|t| self.catalog.tables.get(&t.0)).cloned() else {
                continue;
            };
            hidden.database.clone_from(&table.database);
            hidden.name = TableSchema::hidden_for(&table, index).name;
            self.put(&hidden)?;
        }
        self.put(&table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_signal::{
        dict::{ChecksChange, TriggersChange},
        schema::{CheckMessage, SourceMessage, TriggerMessage, column_to_wire},
    };
    use apus_types::{Value, rules::Enforced};

    fn start() -> Catalog {
        let mut catalog = Catalog::default();
        let step = bootstrap(&catalog, 0).step;
        catalog.apply(&step).unwrap();
        catalog
    }
    fn name(table: &str) -> TableName {
        TableName { database: "test".to_owned(), table: table.to_owned(), version: 0 }
    }
    fn run(catalog: &mut Catalog, change: Change) -> Result<Option<TableSchema>, ErrorCode> {
        let plan = plan(catalog, 1, &change, 0).map_err(|e| e.0)?;
        catalog.apply(&plan.step).unwrap();
        Ok(plan.table.map(|t| catalog.tables[&t.0].clone()))
    }
    fn table_message(name: &str, unique: bool) -> TableMessage {
        let column =
            |n: &str| Column { nullable: false, ..Column::new(n, ColumnType::Int { bits: 32, unsigned: false }) };
        let mut table = TableSchema::new("test", name, vec![column("a"), column("b")], vec![0]);
        if unique {
            let state = IndexState::Building;
            let index = IndexDef {
                no: IndexNo(9),
                name: "u".to_owned(),
                columns: vec![1],
                prefixes: Vec::new(),
                list: None,
                unique,
                hidden_table: None,
                state,
            };
            table.indexes.push(index);
        }
        TableMessage::from(&table)
    }

    #[test]
    fn the_first_change_of_a_lineage_begins_an_era() {
        let mut c = start();
        run(&mut c, Change::CreateTable(table_message("t", true))).unwrap();
        let change = |c: &Catalog, lineage, name: &str| {
            plan(c, 1, &Change::CreateTable(table_message(name, true)), lineage).unwrap().step
        };
        let versions = |step: &SchemaStep| step.upsert_tables.iter().map(|t| t.version).collect::<Vec<_>>();
        let first = change(&c, 5, "u");
        assert_eq!((first.version, first.follows), (eras::first_version(1), c.version));
        assert_eq!(versions(&first), [1 << 20; 2], "the hidden table's, too");
        assert!(c.note_era(&first) && !c.note_era(&first));
        assert_eq!(change(&c, 5, "v").version, first.version, "it was undone, in the same lineage");
        let next = change(&c, 6, "v");
        assert_eq!((next.version, next.follows), (eras::first_version(2), c.version), "it may have been lost");
        c.apply(&next).unwrap();
        let message = c.to_copy();
        let copy = Catalog::from_message(&message).unwrap();
        assert_eq!((copy.lineage, copy.begun), (6, c.begun));
        let more = change(&copy, 6, "w");
        assert_eq!((more.version, versions(&more)), (next.version + 1, vec![2 << 20; 2]));
        c.apply(&more).unwrap();
        let renamed = RenameTable { from: Some(name("w")), to: Some(name("x")) };
        let step = plan(&c, 1, &Change::RenameTable(renamed), 6).unwrap().step;
        assert_eq!(versions(&step), [2 << 20, (2 << 20) + 1], "one more for the table");
    }

    #[test]
    fn the_life_of_a_table() {
        let mut c = start();
        assert_eq!(c.databases.keys().collect::<Vec<_>>(), ["apus", "test"]);
        assert!(c.find("apus", "auto_increment").is_some());
        let made = run(&mut c, Change::CreateTable(table_message("t", true))).unwrap().unwrap();
        assert_eq!((made.version, made.indexes[0].no, made.indexes[0].state), (1, IndexNo(1), IndexState::Ready));
        let hidden = made.indexes[0].hidden_table.unwrap();
        assert_eq!(c.tables[&hidden.0].base_table, Some(made.id));
        assert_eq!(run(&mut c, Change::CreateTable(table_message("t", false))), Err(ErrorCode::TableExists));

        let index = |n: &str, unique| IndexChange {
            table: Some(name("t")),
            name: n.to_owned(),
            columns: vec![1],
            unique,
            ..IndexChange::default()
        };
        let made = run(&mut c, Change::CreateIndex(index("o", false))).unwrap().unwrap();
        assert_eq!((made.version, made.indexes[1].state), (2, IndexState::Ready));
        let made = run(&mut c, Change::CreateIndex(index("v", true))).unwrap().unwrap();
        assert_eq!(made.indexes[2].state, IndexState::Building);
        assert_eq!(run(&mut c, Change::CreateIndex(index("V", true))), Err(ErrorCode::IndexExists));
        let made = run(&mut c, Change::PublishIndex(index("v", true))).unwrap().unwrap();
        assert_eq!(made.indexes[2].state, IndexState::Ready);
        run(&mut c, Change::DropIndex(index("v", true))).unwrap();
        assert_eq!(run(&mut c, Change::DropIndex(index("v", true))), Err(ErrorCode::IndexNotFound));

        let down = |n: &str, at| IndexChange { descending: vec![at], ..index(n, false) };
        let made = run(&mut c, Change::CreateIndex(down("d", 0))).unwrap().unwrap();
        assert!(made.descends(made.indexes[2].no, 0));
        assert_eq!(run(&mut c, Change::CreateIndex(down("e", 1))), Err(ErrorCode::InvalidSchema));
        let made = run(&mut c, Change::DropIndex(down("d", 0))).unwrap().unwrap();
        assert!(made.descending.is_empty());

        let emptied = run(&mut c, Change::TruncateTable(name("t"))).unwrap().unwrap();
        assert!(emptied.id != made.id && emptied.indexes[0].hidden_table != Some(hidden));
        assert!(!c.tables.contains_key(&made.id.0) && !c.tables.contains_key(&hidden.0));
        let to = RenameTable { from: Some(name("t")), to: Some(name("T")) };
        let renamed = run(&mut c, Change::RenameTable(to)).unwrap().unwrap();
        assert_eq!((renamed.id, renamed.name.as_str()), (emptied.id, "T"));
        assert_eq!(run(&mut c, Change::DropTable(name("t"))), Err(ErrorCode::TableNotFound));
        run(&mut c, Change::DropTable(name("T"))).unwrap();
        assert_eq!(c.tables.len(), 1, "only the system table is left: {:?}", c.tables.keys());
    }

    #[test]
    fn constraints_and_marks_of_indexes_are_kept() {
        let mut c = start();
        let made = run(&mut c, Change::CreateTable(table_message("t", true))).unwrap().unwrap();
        let check = |name: &str| CheckDef {
            name: name.to_owned(),
            text: "(`a` > 0)".to_owned(),
            enforced: Enforced::Validating,
        };
        let change = |table: &TableSchema| ColumnsChange {
            table: Some(name("t")),
            id: table.id.0,
            version: table.version,
            columns: table.columns.iter().map(column_to_wire).collect(),
            sources: (0..2).map(|c| SourceMessage::from(&Source::Kept(c))).collect(),
            ..ColumnsChange::default()
        };
        let checks = vec![CheckMessage::from(&check("other")), CheckMessage::from(&check("t_chk_1"))];
        let checked = ColumnsChange { checks: Some(ChecksChange { checks }), ..change(&made) };
        let made = run(&mut c, Change::ChangeColumns(checked)).unwrap().unwrap();
        assert_eq!((made.checks.as_slice(), made.form, made.version), (&[check("other"), check("t_chk_1")][..], 0, 2));
        let unknown = ColumnsChange { invisible_indexes: vec!["nope".to_owned()], ..change(&made) };
        assert_eq!(run(&mut c, Change::ChangeColumns(unknown)), Err(ErrorCode::IndexNotFound));
        let trigger = TriggerDef { name: "tr".to_owned(), text: "SET @a = 1".to_owned() };
        let triggers = Some(TriggersChange { triggers: vec![TriggerMessage::from(&trigger)] });
        let made = run(&mut c, Change::ChangeColumns(ColumnsChange { triggers, ..change(&made) })).unwrap().unwrap();
        assert!(made.triggers == [trigger] && made.has_rules());
        let hidden = ColumnsChange { invisible_indexes: vec!["U".to_owned()], ..change(&made) };
        let made = run(&mut c, Change::ChangeColumns(hidden)).unwrap().unwrap();
        assert!(!made.is_visible(&made.indexes[0]) && made.checks.len() == 2 && made.has_rules());
        let rename = RenameTable { from: Some(name("t")), to: Some(name("new")) };
        let made = run(&mut c, Change::RenameTable(rename)).unwrap().unwrap();
        assert_eq!(made.checks.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["other", "new_chk_1"]);
        let emptied = run(&mut c, Change::TruncateTable(name("new"))).unwrap().unwrap();
        assert!(emptied.checks == made.checks && emptied.triggers == made.triggers);
        assert!(!emptied.is_visible(&emptied.indexes[0]));
        let gone = IndexChange { table: Some(name("new")), name: "u".to_owned(), ..IndexChange::default() };
        assert!(run(&mut c, Change::DropIndex(gone)).unwrap().unwrap().invisible_indexes.is_empty());
    }

    /// SQL nodes name a counter by `table << 16` and a small number.
    #[test]
    fn every_table_may_have_a_counter() {
        let counters = start().find(SYSTEM_DATABASE, AUTO_INCREMENT_TABLE).unwrap().clone();
        let last = u64::from(u32::MAX) << 16 | u64::from(u16::MAX);
        counters.layout().encode(&[Value::UInt(last), Value::UInt(u64::MAX)], &mut Vec::new()).unwrap();
    }

    #[test]
    fn databases_and_refusals() {
        let mut c = start();
        let database = |n: &str| Change::CreateDatabase(DatabaseMessage { name: n.to_owned(), collation: 255 });
        assert_eq!(run(&mut c, database("test")), Err(ErrorCode::DatabaseExists));
        assert_eq!(run(&mut c, database("")), Err(ErrorCode::InvalidSchema));
        run(&mut c, database("Test")).unwrap();
        run(&mut c, Change::CreateTable(table_message("t", true))).unwrap();
        let alter = |n: &str| Change::AlterDatabase(DatabaseMessage { name: n.to_owned(), collation: 46 });
        let tables = c.tables.len();
        run(&mut c, alter("test")).unwrap();
        assert_eq!((c.databases["test"].collation, c.tables.len()), (46, tables));
        assert_eq!(run(&mut c, alter("none")), Err(ErrorCode::DatabaseNotFound));
        assert_eq!(run(&mut c, alter("apus")), Err(ErrorCode::NotSupported));
        assert_eq!(run(&mut c, Change::DropDatabase("apus".to_owned())), Err(ErrorCode::NotSupported));
        run(&mut c, Change::DropDatabase("test".to_owned())).unwrap();
        assert_eq!(c.tables.len(), 1);
        assert_eq!(run(&mut c, Change::CreateTable(table_message("t", false))), Err(ErrorCode::DatabaseNotFound));
        assert_eq!(run(&mut c, Change::RenameTable(RenameTable::default())), Err(ErrorCode::InvalidSchema));
        let mut bad = table_message("x", false);
        bad.database = "Test".to_owned();
        bad.primary_key = vec![7];
        assert_eq!(run(&mut c, Change::CreateTable(bad)), Err(ErrorCode::InvalidSchema));
    }

    #[test]
    fn the_dictionary_travels() {
        let mut c = start();
        run(&mut c, Change::CreateTable(table_message("t", true))).unwrap();
        let copy = Catalog::from_message(&c.to_message(5)).unwrap();
        assert_eq!((copy.version, &copy.tables, copy.next_table_id), (c.version, &c.tables, c.next_table_id));
    }
}

//! The dictionary as data: databases, tables, and the step that leads from one version to the next.

use std::collections::{BTreeMap, VecDeque};

use apus_signal::{
    DecodeError,
    dict::{self, DatabaseMessage, Executed, SchemaStep},
    schema::TableMessage,
};
use apus_types::TableSchema;
use prost::Message;

use super::TOKENS_MAX;

/// Database of the system's own tables.
pub const SYSTEM_DATABASE: &str = "apus";
/// System table of the next value of each AUTO_INCREMENT column, by table.
pub const AUTO_INCREMENT_TABLE: &str = "auto_increment";
/// Ids below are never given out.
pub const FIRST_TABLE_ID: u32 = 2;

/// One version of the dictionary.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub version: u64,
    pub next_table_id: u32,
    pub databases: BTreeMap<String, DatabaseMessage>,
    /// By id; hidden unique-index tables included.
    pub tables: BTreeMap<u32, TableSchema>,
    /// Changes that were executed, as far as they are remembered.
    pub executed: VecDeque<Executed>,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog {
            version: 0,
            next_table_id: FIRST_TABLE_ID,
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            executed: VecDeque::new(),
        }
    }
}

impl Catalog {
    /// A table that users see. Names are case-sensitive.
    pub fn find(&self, database: &str, name: &str) -> Option<&TableSchema> {
        self.tables.values().find(|t| t.base_table.is_none() && t.database == database && t.name == name)
    }

    /// The ids of a step's tables are given out, whether it is committed or undone: once it is prepared transactions write rows of them, and logs keep these.
    /// `true`: no step before has given so many.
    pub fn skip_ids(&mut self, step: &SchemaStep) -> bool {
        let before = self.next_table_id;
        self.next_table_id = before.max(step.next_table_id);
        self.next_table_id > before
    }
    /// Executes a step; its tables must have been decoded before.
    ///
    /// # Errors
    /// A table of the step does not decode; nothing is changed.
    pub fn apply(&mut self, step: &SchemaStep) -> Result<(), DecodeError> {
        let tables = step.upsert_tables.iter().map(TableSchema::try_from).collect::<Result<Vec<_>, _>>()?;
        assert!(step.version == self.version + 1, "a step to {} follows {}", step.version, self.version);
        for name in &step.drop_databases {
            self.databases.remove(name);
        }
        for id in &step.drop_tables {
            self.tables.remove(id);
        }
        for database in &step.upsert_databases {
            self.databases.insert(database.name.clone(), database.clone());
        }
        self.tables.extend(tables.into_iter().map(|t| (t.id.0, t)));
        self.version = step.version;
        self.skip_ids(step);
        let highest = self.tables.last_key_value().map_or(0, |(id, _)| *id);
        assert!(highest < self.next_table_id, "table {highest} has an id that will be given out again");
        Ok(())
    }

    /// The change was executed, and left this table.
    pub fn note_executed(&mut self, token: u64, table: u32) {
        if self.executed.len() >= TOKENS_MAX {
            self.executed.pop_front();
        }
        self.executed.push_back(Executed { token, version: self.version, table });
    }
    pub fn find_executed(&self, token: u64) -> Option<Executed> {
        self.executed.iter().find(|done| done.token == token && token != 0).copied()
    }

    /// For another member, or the file: with what was executed.
    pub fn to_copy(&self) -> dict::Dictionary {
        dict::Dictionary { executed: self.executed.iter().copied().collect(), ..self.to_message(0) }
    }
    /// For clients.
    pub fn to_message(&self, request: u64) -> dict::Dictionary {
        dict::Dictionary {
            request,
            version: self.version,
            unchanged: false,
            databases: self.databases.values().cloned().collect(),
            tables: self.tables.values().map(TableMessage::from).collect(),
            next_table_id: self.next_table_id,
            executed: Vec::new(),
            lineage: 0,
        }
    }

    /// # Errors
    /// A table does not decode.
    pub fn from_message(message: &dict::Dictionary) -> Result<Catalog, DecodeError> {
        let tables = message.tables.iter().map(TableSchema::try_from).collect::<Result<Vec<_>, _>>()?;
        Ok(Catalog {
            version: message.version,
            next_table_id: message.next_table_id.max(FIRST_TABLE_ID),
            databases: message.databases.iter().map(|d| (d.name.clone(), d.clone())).collect(),
            tables: tables.into_iter().map(|t| (t.id.0, t)).collect(),
            executed: message.executed.iter().copied().take(TOKENS_MAX).collect(),
        })
    }

    /// Bytes of the whole dictionary in one message.
    pub fn encoded_bytes(&self) -> usize {
        self.to_message(0).encoded_len()
    }
}

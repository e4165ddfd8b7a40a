//! The dictionary as data: databases, tables, and the step that leads from one version to the next.

use std::collections::{BTreeMap, VecDeque};

use apus_signal::{
    DecodeError,
    dict::{self, DatabaseMessage, Era, Executed, SchemaStep},
    schema::TableMessage,
};
use apus_types::{TableSchema, eras};
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
    /// In which its newest change was begun.
    pub lineage: u64,
    /// The newest era of which a step was prepared, undone or not, as far as this member has heard.
    pub begun: Era,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog {
            version: 0,
            next_table_id: FIRST_TABLE_ID,
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            executed: VecDeque::new(),
            lineage: 0,
            begun: Era::default(),
        }
    }
}

impl Catalog {
    /// A table that users see. Names are case-sensitive.
    pub fn find(&self, database: &str, name: &str) -> Option<&TableSchema> {
        self.tables.values().find(|t| t.base_table.is_none() && t.database == database && t.name == name)
    }

    /// To which the next change leads; the first one of a lineage begins an era.
    pub fn next_version(&self, lineage: u64) -> u64 {
        if self.version == 0 || self.lineage == lineage {
            return self.version + 1;
        }
        let (known, begun) = (eras::era(self.version), self.begun);
        let is_begun = begun.lineage == lineage && begun.number > known; // and its first change was undone
        eras::first_version(if is_begun { begun.number } else { known.max(begun.number) + 1 })
    }
    /// A step is prepared. `true`: none before was of its era.
    pub fn note_era(&mut self, step: &SchemaStep) -> bool {
        let before = self.begun;
        self.begun = before.max(Era { number: eras::era(step.version), lineage: step.lineage });
        self.begun.number > before.number
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
        assert!(step.follows == self.version, "a step to {} follows {}", step.version, self.version);
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
        (self.version, self.lineage) = (step.version, step.lineage);
        self.skip_ids(step);
        self.note_era(step);
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
        let executed = self.executed.iter().copied().collect();
        dict::Dictionary { executed, lineage: self.lineage, era: Some(self.begun), ..self.to_message(0) }
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
            ..dict::Dictionary::default()
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
            lineage: message.lineage,
            begun: message.era.unwrap_or_default(),
        })
    }

    /// Bytes of the whole dictionary in one message.
    pub fn encoded_bytes(&self) -> usize {
        self.to_message(0).encoded_len()
    }
}
